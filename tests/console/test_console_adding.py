"""Adding in the console: what would be refused is told before it is sent, and each thing by itself.

What the script does with it is in tests/e2e/test_console_browser.py.
"""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from recollect import extract
from recollect.app import App
from recollect.console._adding import CHECKED
from recollect.model import Org, Scope, Tenant
from tests.console.test_console import all_of, body, browse, me, new_key, one, tree

__all__ = ["browse", "me"]
ADD, CHECK = "/console/add", "/console/add/check"
LABELS = {
    "tag": "Tag: ",
    "customId": "The customId",
    "metadata": "Metadata: ",
    "filepath": "File path: ",
    "content": "Text: ",
}
JSON = {"accept": "application/json"}
Files = list[tuple[str, tuple[str, bytes, str]]]


def files(*given: tuple[str, bytes]) -> Files:
    return [("file", (name, data, "")) for name, data in given]


def checked(http: httpx.Client, sent: Files | None = None, **form: str) -> dict[str, Any]:
    answer = http.post(CHECK, data=form, files=sent or [])
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize(
    ("form", "field"),
    [
        ({"tag": "no spaces"}, "tag"),
        ({"tag": "a, b c"}, "tag"),
        ({"customId": "a\x07"}, "customId"),
        ({"customId": "x", "number": "2"}, "customId"),
        ({"key": "year", "kind": "number", "value": "much"}, "metadata"),
        ({"filepath": "x" * 1001}, "filepath"),
    ],
)
def test_a_wrong_field_is_told_before_anything_is_sent_and_when_it_is(
    me: httpx.Client, app: App, tenant: Tenant, form: dict[str, str], field: str
):
    told = checked(me, None, **form)
    number = int(form.pop("number", "1"))
    sent = me.post(ADD, data=form, files=files(*[("a.txt", b"text")] * number), headers=JSON)
    shown = me.post(ADD, data=form, files=files(*[("a.txt", b"text")] * number))

    assert list(told["faults"]) == [field]
    assert told["faults"][field].startswith(LABELS[field])
    assert sent.status_code == shown.status_code == 400
    assert sent.json() == {"added": [], "faults": told["faults"]}
    assert "choose again" in one(shown, "[role=alert]").text()
    if field != "filepath":  # which has no field without the script
        assert one(shown, f"[data-fault={field}]").text() == told["faults"][field]
        assert "hidden" not in one(shown, f"[data-fault={field}]").attributes
    assert all_of(app, tenant) == []


def test_the_first_bytes_of_files_are_enough_to_know(me: httpx.Client, app: App, tenant: Tenant):
    head = extract.HEAD
    told = checked(
        me,
        files(
            ("a.md", b"# A heron"),
            ("wing.bin", bytes(range(256)) * (head // 256)),
            ("renamed.pdf", b"\x7fELF" + bytes(head - 4)),
            ("b.pdf", b"%PDF-1.7\n" + b"x" * (head - 9)),
        ),
    )

    assert told["faults"] == {}
    assert [reason is None for reason in told["files"]] == [True, False, False, True]
    assert "this kind is not supported" in told["files"][1]
    assert all_of(app, tenant) == []
    many = files(*[("a.md", b"x")] * (CHECKED + 1))
    assert me.post(CHECK, files=many).status_code == 400


def test_each_thing_is_added_by_itself_and_says_its_id(me: httpx.Client, app: App, tenant: Tenant):
    form = {"tag": "birds, herons", "filepath": "far/away/a.txt"}
    one_file = me.post(ADD, data=form, files=files(("a.txt", b"a heron")), headers=JSON)
    a_text = me.post(ADD, data={"content": "a text"}, headers=JSON)
    refused = me.post(ADD, data=form, files=files(("wing.bin", bytes(range(256)))), headers=JSON)
    nothing = me.post(ADD, data=form, headers=JSON)

    assert {*one_file.json()["added"], *a_text.json()["added"]} == {
        document.id for document in all_of(app, tenant)
    }
    (filed,) = [document for document in all_of(app, tenant) if document.filepath]
    assert (filed.filepath, filed.container_tags) == ("far/away/a.txt", ["birds", "herons"])
    assert refused.status_code == 400
    assert list(refused.json()["faults"]) == ["file"]
    assert list(nothing.json()["faults"]) == ["content"]


def test_a_key_is_told_what_it_may_not(
    browse: Callable[..., httpx.Client], app: App, org: Org, tenant: Tenant
):
    reader = browse(new_key(app, org, scope=Scope.READ)[1])
    limited = browse(new_key(app, org, tags=["birds"])[1])

    assert reader.post(CHECK, data={"tag": "birds"}).status_code == 403
    assert reader.get(ADD).status_code == 403
    assert checked(limited, tag="birds")["faults"] == {}
    assert "may not use 'rail'" in checked(limited, tag="rail")["faults"]["tag"]
    assert limited.post(ADD, data={"tag": "rail", "content": "x"}, headers=JSON).status_code == 403
    assert all_of(app, tenant) == []
    assert tree(limited.get(ADD)).css("select#tag")
    assert "several with commas" not in body(limited.get(ADD))
