"""Search in the console: what a form asks is what the API is asked, and answers say how good they
are."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from recollect.app import App
from recollect.model import Org, Scope, Tenant
from recollect.worker.processing import drain
from tests.console.test_console import (
    FORM,
    add,
    body,
    browse,
    console_site,
    me,
    new_key,
    one,
    tree,
)
from tests.fakes.rerank import shared

__all__ = ["browse", "me"]
SEARCH = "/console/search"


@dataclass
class Counting:
    """A reranker that judges by the words that passage and query share, and remembers."""

    name: str = "counting"
    asked: list[Sequence[str]] = field(default_factory=list[Sequence[str]])

    def score(self, query: str, passages: Sequence[str]) -> list[float]:
        self.asked.append(passages)
        return [float(shared(query, passage)) for passage in passages]

    def close(self) -> None: ...


@pytest.fixture
def birds(me: httpx.Client, app: App, tenant: Tenant, key: str) -> None:
    """Three documents and two memories."""
    for text, tags, metadata in (
        ("The grey heron stands in the river.", ["birds"], {"kind": "note", "year": 2026}),
        ("Herons nest in May.", ["birds", "nests"], {"kind": "Mail", "year": 2024}),
        ("Trains stand in the station.", ["rail"], {"kind": "note", "late": True}),
    ):
        add(app, tenant, text, tags=tags, metadata=metadata)
    facts = [{"content": "Ann feeds the heron every morning."}, {"content": "Bob likes trains."}]
    sent = me.post(
        "/v4/memories",
        json={"memories": facts, "containerTag": "birds"},
        headers={"authorization": f"Bearer {key}"},
    )
    assert sent.status_code == 201, sent.text
    drain(app)


def found(answer: httpx.Response) -> list[str]:
    assert answer.status_code == 200, body(answer)
    return [a.text() for a in tree(answer).css(".hits h3 a")]


def facts(answer: httpx.Response) -> list[str]:
    return [p.text() for p in tree(answer).css(".facts-found li > p:first-child")]


def ask(http: httpx.Client, q: str, **more: Any) -> httpx.Response:
    return http.get(SEARCH, params={"q": q, **more})


def rows(*given: tuple[str, str, str]) -> dict[str, list[str]]:
    keys, comparisons, values = zip(*given, strict=True)
    return {"key": list(keys), "is": list(comparisons), "value": list(values)}


HERON, NEST, TRAINS = (
    "The grey heron stands in the river.",
    "Herons nest in May.",
    "Trains stand in the station.",
)


def test_a_document_that_its_title_finds_shows_why(me: httpx.Client, key: str, app: App):
    files = {"file": ("minutes-of-november.md", b"We met on Monday.")}
    sent = me.post("/v3/documents/file", files=files, headers={"authorization": f"Bearer {key}"})
    assert sent.status_code == 200, sent.text
    drain(app)

    answer = ask(me, "minutes of november", mode="documents")
    assert found(answer)[0] == "minutes-of-november.md"
    marks = [mark.text() for mark in tree(answer).css(".hits h3 mark")]
    assert {"minutes", "november"} <= set(marks)


@pytest.mark.usefixtures("birds")
def test_a_search_is_in_documents_in_memories_or_in_both(me: httpx.Client):
    in_documents, in_memories, in_both = (
        ask(me, "heron", mode=mode) for mode in ("documents", "memories", "hybrid")
    )

    assert found(in_documents)[0] == HERON
    assert facts(in_documents) == []
    assert found(in_memories) == []
    assert facts(in_memories)[0] == "Ann feeds the heron every morning."
    assert (facts(in_both), found(in_both)) == (facts(in_memories), found(in_documents))
    marks = {mark.text() for mark in tree(in_memories).css(".facts-found mark")}
    assert marks == {"heron"}
    (source,) = {a.attributes["href"] for a in tree(in_memories).css(".facts-found li a")}
    assert me.get(source or "").status_code == 200
    assert "v3/search" in one(in_documents, "#code-1").text()
    assert "v4/search" in one(in_memories, "#code-1").text()
    assert '"searchMode": "hybrid"' in one(in_both, "#code-1").text()


@pytest.mark.usefixtures("birds")
def test_rows_of_a_form_become_filters(me: httpx.Client):
    def those(*given: tuple[str, str, str], **more: Any) -> set[str]:
        return set(found(ask(me, "stands nest in", **rows(*given), **more)))

    assert those(("kind", "is", "note")) == {HERON, TRAINS}
    assert those(("kind", "is-not", "note")) == {NEST}
    assert those(("kind", "contains", "MAI")) == {NEST}
    assert those(("kind", "lacks", "mai")) == {HERON, TRAINS}
    assert those(("year", "eq", "2024")) == {NEST}
    assert those(("year", "gt", "2024"), ("kind", "is", "note")) == {HERON}
    assert those(("year", "le", "2026")) == {HERON, NEST}
    assert those(("late", "is", "true"), ("year", "lt", "2025"), any="true") == {NEST, TRAINS}
    assert those(("", "is", ""), ("year", "ge", "2026")) == {HERON}
    more = '{"OR": [{"key": "year", "value": "2024"}, {"key": "late", "value": "true"}]}'
    assert those(("kind", "is", "note"), filters=more) == {TRAINS}
    code = one(ask(me, "nest", **rows(("year", "lt", "2025"))), "#code-1").text()
    assert re.search(r'"numericOperator": "<"', code)
    again = tree(ask(me, "nest", **rows(("year", "lt", "2025"))))
    assert [f.attributes["value"] for f in again.css("input[name=key]")] == ["year", "", ""]
    assert "open" in again.css("details#narrow")[0].attributes


@pytest.mark.parametrize(
    ("query", "reason"),
    [
        (rows(("", "is", "x")), "name the key that 'x' is for"),
        (rows(("year", "lt", "much")), "must be a finite number"),
        (rows(("year", "drop table", "1")), "compared by what the form offers"),
        (rows(("x" * 65, "is", "1")), "Filters (AND[0].key): 1 to 64"),
        ({"tag": "birds, no spaces"}, "Tag: 1 to 100"),
        ({"mode": "memories", "limit": 0}, "Limit: 1 to 100"),
    ],
)
def test_what_cannot_be_asked_says_why_and_keeps_what_was_typed(
    me: httpx.Client, query: dict[str, Any], reason: str
):
    answer = ask(me, "heron", **query)

    assert answer.status_code == 400
    assert reason in one(answer, "[role=alert]").text()
    assert one(answer, "#q").attributes["value"] == "heron"


@pytest.mark.usefixtures("birds")
def test_a_limit_that_is_emptied_is_the_usual_one(me: httpx.Client):
    answer = ask(me, "heron", limit="")

    assert HERON in found(answer)
    assert one(answer, "#limit").attributes["value"] == "10"


@pytest.mark.usefixtures("birds")
def test_all_tags_that_are_named_must_be_there(
    me: httpx.Client, browse: Callable[..., httpx.Client], app: App, org: Org
):
    assert set(found(ask(me, "heron", tag="birds"))) == {HERON, NEST}
    assert found(ask(me, "heron", tag="birds, nests")) == [NEST]
    limited = browse(new_key(app, org, tags=["nests"], scope=Scope.READ)[1])
    for mode in ("documents", "memories", "hybrid"):
        answer = ask(limited, "heron trains", mode=mode)
        assert set(found(answer)) <= {NEST}
        assert facts(answer) == []
        assert ask(limited, "heron", mode=mode, tag="rail").status_code == 403


@pytest.mark.usefixtures("birds")
def test_what_is_weak_is_called_so_and_can_be_left_out(me: httpx.Client):
    answer, strict = ask(me, "heron river"), ask(me, "heron river", strong="true")
    weak = {
        item.css("h3 a")[0].text() for item in tree(answer).css(".hits > li") if item.css(".mark")
    }

    assert HERON not in weak
    assert TRAINS in weak
    assert found(strict) == [HERON]
    nonsense = ask(me, "zxqvbn")
    assert "Only weak matches" in body(nonsense)
    nothing = ask(me, "zxqvbn", strong="true", mode="hybrid", tag="birds")
    assert "Nothing found." in body(nothing)
    assert "Weak matches were left out." in body(nothing)
    assert "All tags must be on a document." in body(nothing)
    assert not tree(nothing).css(".hits")


@pytest.mark.usefixtures("birds")
def test_a_reranker_judges_passages_and_memories(app: App, key: str, me: httpx.Client):
    assert not tree(ask(me, "heron")).css("[name=rerank], [name=rewrite]")
    assert "no reranker is configured" in body(ask(me, "heron", rerank="true"))
    judge = Counting()
    with (
        console_site(replace(app, reranker=judge)) as url,
        httpx.Client(base_url=url, headers=FORM, trust_env=False, timeout=60) as http,
    ):
        http.post("/console/login", data={"key": key})
        answer = ask(http, "heron", rerank="true", mode="hybrid")

    assert tree(answer).css("[name=rerank][checked]")
    assert len(judge.asked) == 2
    assert any("Ann feeds" in passage for passage in judge.asked[1])
    assert {dt.text() for dt in tree(answer).css(".why dt")} >= {"Reranker"}


@pytest.mark.usefixtures("birds")
def test_what_two_documents_say_is_shown_once_with_a_link_to_the_other(
    me: httpx.Client, app: App, tenant: Tenant
):
    add(app, tenant, "Herons  nest in May!", tags=["birds"])
    drain(app)
    shown = tree(me.get(SEARCH, params={"q": "herons nest in May"}))

    first, *others = shown.css(".hits li .passage")
    assert "also in Herons" in " ".join(first.text().split())
    assert len(first.css("a")) == 2
    assert not any("also in" in one.text() for one in others)


@pytest.mark.usefixtures("birds")
def test_old_addresses_lead_to_the_search(me: httpx.Client):
    old = me.get("/console/playground?q=grey+heron&tag=birds")
    target = urlsplit(old.headers["location"])

    assert old.status_code == 308
    assert (target.path, target.query) == (SEARCH, "q=grey+heron&tag=birds")
    assert found(me.get(f"{target.path}?{target.query}"))[0] == HERON
