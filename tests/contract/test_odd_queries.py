"""Queries that nobody would write: an answer or a clear refusal everywhere, for no more work."""

import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from typer.testing import CliRunner

from recollect.app import App
from recollect.cli import app as cli
from recollect.errors import RecollectError
from recollect.worker.processing import drain
from tests.console.test_console import console_site
from tests.contract.calls import add, refused
from tests.contract.test_queries import Statements, statements
from tests.contract.test_search_trouble import visiting

__all__ = ["statements"]

TIMES = 3
"""as many statements as a normal query, at most"""
MUCH_LONGER = 12
"""times the processor time of a normal query: a pattern or a loop that runs away takes hundreds.
Alone on a machine the worst query takes 2.6 times, of the same few milliseconds that other
threads and a loaded machine make three to four of."""
RUNS = 3
LONGEST_ADDRESS = 60_000
NORMAL = "Which birds stand in the shallow water of the pond?"
DOCUMENTS = 120

ANSWERED = {
    "one letter": "h",
    "stop words": "what is the of and in to a",
    "punctuation": "?!.,;:-()[]{}*&%$#@/\\|",
    "emoji": "🦢🐸",
    "mixed scripts": "heron 苍鹭 цапля طائر ציפור นก 새 héron",
    "right to left": "مالك الحزين يقف في الماء",
    "overriding direction": "\u202eheron\u202c \u2067frog\u2069",
    "no width": "he\u200bron\u00ad frog\ufeff",
    "combining": "e" + "\u0301" * 300,
    "500 rare words": " ".join(f"rare{n:03}word" for n in range(500)),
    "1,600 rare words": " ".join(f"r{n:04}" for n in range(1_600)),
    "one word 500 times": "heron " * 500,
    "10,000 characters": ("heron frog pond marsh " * 500)[:10_000].strip(),
    "one word of 10,000": "h" * 10_000,
    "10,000 of a script without blanks": "苍鹭在池塘里吃青蛙" * 1_111,
    "10,000 of punctuation": "-_." * 3_333,
    "a quotation mark": '"heron frogs',
    "quotation marks": '"heron" "frogs" "',
    "nothing in quotation marks": '"" heron',
    "operators": "heron & frog | !marsh <-> :* and or not near",
    "SQL": "heron'; drop table documents; --",
    "JSON": '{"q": "heron", "limit": 5}',
    "a format": "%s %(words)s {0} {condition}",
    "NUL": "heron\x00frog",
    "lines": "heron\n\r\n\tfrog\v\f\u2028pond\u0085",
}
REFUSED = {
    "empty": "",
    "blanks": " \t\n\u3000",
    "20,000 characters": "heron " * 3_334,
}


@dataclass(frozen=True, slots=True)
class Place:
    """The whole website over HTTP, and a client that is signed in to its console."""

    url: str
    key: str
    http: httpx.Client


@pytest.fixture
def place(app: App, key: str, client: httpx.Client) -> Generator[Place]:
    written = [
        {
            "content": f"Heron number {n} stands in the shallow water of the pond. "
            + " ".join(f"rare{5 * n + k:03}word" for k in range(5))
        }
        for n in range(DOCUMENTS)
    ]
    answer = client.post("/v3/documents/batch", json={"documents": written})
    assert answer.status_code == 200, answer.text
    drain(app)
    known = {"containerTag": "ann", "memories": [{"content": "Ann saw a heron in the pond."}]}
    assert client.post("/v4/memories", json=known).status_code == 201
    with console_site(app) as url, visiting(url, key) as http:
        http.headers["Authorization"] = f"Bearer {key}"
        yield Place(url, key, http)


def v3(place: Place, q: str) -> httpx.Response:
    return place.http.post("/v3/search", json={"q": q})


def v4(place: Place, q: str) -> httpx.Response:
    return place.http.post("/v4/search", json={"q": q, "searchMode": "hybrid", "threshold": 0})


def profile(place: Place, q: str) -> httpx.Response:
    return place.http.post("/v4/profile", json={"containerTag": "ann", "q": q})


def mcp(place: Place, q: str) -> httpx.Response:
    call = {"name": "search", "arguments": {"query": q}}
    asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    accept = {"Accept": "application/json, text/event-stream"}
    return place.http.post("/mcp", json=asked, headers=accept)


def console(place: Place, q: str) -> httpx.Response:
    # This client sends no longer address, nor does a browser take one.
    sent = q if len(quote(q)) < LONGEST_ADDRESS else q[: LONGEST_ADDRESS // 10]
    return place.http.get("/console/search", params={"q": sent})


ASKED: dict[str, Callable[[Place, str], httpx.Response]] = {
    "v3": v3,
    "v4": v4,
    "profile": profile,
    "mcp": mcp,
    "console": console,
}


def test_every_face_answers_or_refuses(place: Place):
    """One fixture for all: to make the documents takes longer than to ask."""
    for name, query in ANSWERED.items():
        for face, ask in ASKED.items():
            answer = ask(place, query)
            # A body is cleaned of NUL, as documents are; an address with one is refused.
            refuses = ask is console and "\x00" in query
            assert answer.status_code == (400 if refuses else 200), (name, face, answer.text)
        told = mcp(place, query).json()["result"]
        assert not told.get("isError"), (name, told)
        ran = _cli(place, query)
        assert ran.exit_code == 0, (name, ran.output)
    assert "q: must have at most 10,000 characters" in v3(place, REFUSED["20,000 characters"]).text
    for name, query in REFUSED.items():
        for ask in (v3, v4):
            assert refused(ask(place, query), 400)["details"].strip(), name
        told = mcp(place, query).json()
        assert "error" in told or told["result"]["isError"], (name, told)
        ran = _cli(place, query)
        assert ran.exit_code in (1, 2), (name, ran.output)
        # `main` tells either in one line.
        assert isinstance(ran.exception, SystemExit | RecollectError), (name, ran.exception)
        # A page without a query is the form; what cannot be asked is said on it.
        answer = console(place, query)
        assert answer.status_code == (400 if query.strip() else 200), (name, answer.status_code)


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ('"heron frogs', "The heron eats frogs."),
        ("🦢", "A swan 🦢 on the lake."),
        ("مالك الحزين", "مالك الحزين يقف في الماء"),
        ("he\u00adron\u2060", "The heron eats."),
        ("heron 苍鹭 цапля", "The heron is 苍鹭 in Chinese and цапля in Russian."),
        ("who", "Who? We asked who it was."),
    ],
)
def test_what_is_odd_is_found_all_the_same(client: httpx.Client, app: App, query: str, text: str):
    wanted = add(client, text)
    for n in range(12):
        add(client, f"Boil the potatoes for {n} minutes with salt.")
    drain(app)

    answer = client.post("/v3/search", json={"q": query})

    assert answer.json()["results"][0]["documentId"] == wanted


def test_no_query_takes_more_work_than_three_normal_ones(place: Place, statements: Statements):
    """Work is statements, which are counted, and processor time of this process, which has the API
    in it: a loaded machine lengthens that less than what a clock says, but it does."""
    for face, ask in ASKED.items():
        _work(place, statements, ask, "heron")
        normal, usual = _work(place, statements, ask, NORMAL)
        for name, query in {**ANSWERED, **REFUSED}.items():
            sent, spent = _work(place, statements, ask, query, enough=MUCH_LONGER * usual)
            assert sent <= TIMES * normal, (face, name, sent, normal)
            assert spent <= MUCH_LONGER * usual, (face, name, spent, usual)


def _work(
    place: Place,
    statements: Statements,
    ask: Callable[[Place, str], httpx.Response],
    query: str,
    enough: float = 0,
) -> tuple[int, float]:
    """Statements, and seconds of processor time in the fastest of some runs, or in the first that
    is fast enough."""
    spent: list[float] = []
    most = 0
    for _ in range(RUNS):
        with statements.sent() as sent:
            before = time.process_time()
            ask(place, query)
            spent.append(time.process_time() - before)
        most = max(most, len(sent))
        if spent[-1] <= enough:
            break
    return most, min(spent)


def _cli(place: Place, query: str) -> Any:
    to = ["--url", place.url, "--key", place.key]
    return CliRunner().invoke(cli, ["search", *to, "--", query])
