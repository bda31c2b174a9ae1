"""`/docs`: our own page, whole without a network."""

import re
from html.parser import HTMLParser

import httpx

ATTRIBUTES = {"src", "href", "action", "srcset", "data", "poster", "formaction"}


class Links(HTMLParser):
    """What a page loads or leads to, its ids, and its scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.leads: list[str] = []
        self.ids: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ATTRIBUTES and value:
                (self.leads if tag in ("a", "form") else self.loads).append(value)
            if name == "id" and value:
                self.ids.append(value)
            assert not name.startswith("on"), name
            assert name != "style"


def links(page: str) -> Links:
    found = Links()
    found.feed(page)
    return found


def test_the_reference_tells_all_and_loads_nothing_from_elsewhere(client: httpx.Client):
    document = client.get("/v3/openapi").json()
    answer = client.get("/docs", headers={"Authorization": ""})
    assert answer.status_code == 200
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    found = links(answer.text)
    assert len(set(found.ids)) == len(found.ids)
    assert "<script>" not in answer.text
    for address in found.loads:
        assert not re.match(r"[a-z]+:|//", address), address
        assert client.get(f"/{address}").status_code == 200
    for item in document["paths"].values():
        for told in item.values():
            assert told["operationId"] in found.ids
            assert told["summary"] in answer.text
    for name, schema in document["components"]["schemas"].items():
        assert f"shape-{name}" in found.ids
        for field in schema.get("properties", ()):
            assert f"<code>{field}</code>" in answer.text
    for address in found.leads:
        if address.startswith("#"):
            assert address[1:] in found.ids, address


def test_the_reference_draws_code_and_says_bounds_in_sentences(client: httpx.Client):
    page = client.get("/docs").text

    assert "<code>Authorization: Bearer KEY</code>" in page
    assert "updates the document. 1 to 255 characters." in page
    assert ".; " not in page
