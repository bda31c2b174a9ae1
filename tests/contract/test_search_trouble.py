"""Searches while the embedding model is away: words alone, said so; wrong settings stay a 503."""

import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient
from pydantic import SecretStr
from typer.testing import CliRunner

from recollect.api import create_app
from recollect.app import App
from recollect.cli import app as cli
from recollect.errors import Permanent, RecollectError, Transient, Unavailable
from recollect.fetch import Endpoint
from recollect.inference.batching import Vectors
from recollect.inference.circuit_breaker import Breaker
from recollect.inference.endpoint_embedder import EndpointEmbedder
from recollect.search.query_vectors import vectors
from recollect.worker.processing import drain
from tests.conftest import eventually
from tests.console.test_console import console_site
from tests.contract.calls import add, refused
from tests.fakes.embedder import DIMENSIONS, WordEmbedder
from tests.fakes.models import Model, endpoint
from tests.fakes.patience import only_for_what_hangs

BOTH = ["/v3/search", "/v4/search"]
HERON = "The heron stands in the shallow water."
PATIENCE = 0.3
"""seconds for the vector of a query, where it never comes"""


class Confused(WordEmbedder):
    """An endpoint that answers with what is no vector."""

    def __init__(self, error: RecollectError) -> None:
        super().__init__()
        self._error = error

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        raise self._error


class Words(Model):
    """The vectors of the tests' index, at an endpoint; `asked` counts."""

    def __init__(self) -> None:
        super().__init__("openai:words", DIMENSIONS, 0.0)
        self.asked = 0
        self.over = threading.Event()
        self.hangs = False
        self.makes_nothing = False
        self._made = WordEmbedder()

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        self.asked += 1
        if self.hangs:
            self.over.wait(60)
        made = super().embed(texts, query=query)
        return made * 0 if self.makes_nothing else made

    def vector(self, text: str) -> Vectors:
        return self._made.embed([text], query=True)[0]


@dataclass
class Weather:
    """An API whose embedding model is at an endpoint; `now` is the time for the breaker."""

    app: App
    http: httpx.Client
    model: Words
    now: float = field(default=1_000.0)

    def search(self, path: str, q: str = "heron", **more: Any) -> dict[str, Any]:
        body: dict[str, Any] = {"q": q, **more}
        if path == "/v4/search":
            body = {"searchMode": "documents", "threshold": 0.3, **body}
        answer = self.http.post(path, json=body)
        assert answer.status_code == 200, answer.text
        assert [one.get("chunk") or one["chunks"][0]["content"] for one in answer.json()["results"]]
        return answer.json()


@contextmanager
def remote(app: App, key: str) -> Generator[Weather]:
    model = Words()
    with endpoint(model) as url:
        patient, hurried = Endpoint(url), Endpoint(url, timeout=PATIENCE, total=PATIENCE)
        only_for_what_hangs(hurried, lambda body: model.hangs)
        breaker = Breaker("test", failures=2, clock=lambda: weather.now)
        embedder = EndpointEmbedder(patient, "words", None, hurried=hurried, breaker=breaker)
        other = replace(app, embedder=embedder)
        headers = {"Authorization": f"Bearer {key}"}
        with TestClient(create_app(other), headers=headers) as http:
            weather = Weather(other, http, model)
            yield weather
        model.over.set()
        patient.close()
        hurried.close()


@pytest.fixture
def weather(app: App, key: str, client: httpx.Client) -> Generator[Weather]:
    add(client, HERON)
    drain(app)
    with remote(app, key) as there:
        yield there


@pytest.mark.parametrize(
    "error", [Unavailable("down"), Permanent("no such model"), Unavailable("key", code="http_401")]
)
@pytest.mark.parametrize("path", BOTH)
def test_wrong_settings_are_said_and_not_passed_over(
    app: App, key: str, path: str, error: RecollectError
) -> None:
    site = create_app(replace(app, embedder=Confused(error)))
    with TestClient(site, headers={"Authorization": f"Bearer {key}"}) as http:
        answer = http.post(path, json={"q": "anything", "searchMode": "documents"})

    assert answer.status_code == 503
    assert answer.json()["error"] == "Service unavailable"


@pytest.mark.parametrize(
    "error",
    [
        Unavailable("down", code="unreachable"),
        Unavailable("down", code="http_500"),
        Transient("too long for it", code="embedding_refused"),
        Permanent("not such a text", code="embedding_refused"),
    ],
    ids=repr,
)
@pytest.mark.parametrize("path", BOTH)
def test_without_a_vector_words_answer(
    app: App, key: str, client: httpx.Client, path: str, error: Transient | Permanent
) -> None:
    add(client, HERON)
    drain(app)
    site = create_app(replace(app, embedder=Confused(error)))
    with TestClient(site, headers={"Authorization": f"Bearer {key}"}) as http:
        mode = {"searchMode": "documents"} if path == "/v4/search" else {}
        told = http.post(path, json={"q": "heron", **mode}).json()
        nothing = http.post(path, json={"q": "zebra", **mode}).json()

    assert len(told["results"]) == 1
    [warning] = told["warnings"]
    assert warning == (
        f"embedding: the embedding model gave no answer ({error.code});"
        " only words were searched for, not meaning"
    )
    assert nothing["results"] == []
    assert nothing["warnings"] == told["warnings"]


@pytest.mark.parametrize("path", BOTH)
def test_a_query_that_the_model_makes_nothing_of_is_answered_by_words(
    weather: Weather, path: str
) -> None:
    weather.model.makes_nothing = True

    [warning] = weather.search(path)["warnings"]
    assert warning.startswith("embedding: the embedding model gave no answer (embedding_refused);")


@pytest.mark.parametrize("refused", [["weir"], ["heron"], ["heron", "weir"]])
def test_a_wording_that_is_refused_costs_no_other_its_vector(
    weather: Weather, refused: list[str]
) -> None:
    class Picky(WordEmbedder):
        def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
            if any(text in refused for text in texts):
                raise Permanent("not such a text", code="embedding_refused")
            return super().embed(texts, query=query)

    warnings: list[str] = []
    texts = ["heron", "weir", "reeds"]
    found = vectors(replace(weather.app, embedder=Picky()), texts, warnings)

    assert [text for text, one in zip(texts, found, strict=True) if one is None] == refused
    [warning] = warnings
    assert ("another wording" in warning) is ("heron" not in refused)


def test_a_hanging_endpoint_is_left_alone_and_asked_again(weather: Weather) -> None:
    assert "warnings" not in weather.search("/v3/search")
    weather.model.hangs, before = True, weather.model.asked

    waited = [weather.search(path) for path in BOTH]
    spared = [weather.search(path) for path in (*BOTH, "/v3/search")]

    eventually(lambda: weather.model.asked >= before + 2)
    assert weather.model.asked == before + 2
    assert all(one["timing"] >= PATIENCE * 900 for one in waited)
    assert all("(timeout); only words" in one["warnings"][0] for one in waited)
    assert all("(timeout) and is not asked for a while" in one["warnings"][0] for one in spared)
    weather.now += 11
    weather.model.hangs = False
    weather.model.over.set()
    assert all("warnings" not in weather.search(path) for path in BOTH)
    assert weather.model.asked == before + 4


def test_a_profile_says_so_too(weather: Weather) -> None:
    body = {"memories": [{"content": "Ann saw a heron."}], "containerTag": "ann"}
    assert weather.http.post("/v4/memories", json=body).status_code == 201
    weather.model.down = True

    told = weather.http.post("/v4/profile", json={"containerTag": "ann", "q": "heron"}).json()

    assert [one["memory"] for one in told["searchResults"]["results"]] == ["Ann saw a heron."]
    assert "embedding: " in told["searchResults"]["warnings"][0]
    assert told["profile"]["dynamic"] == ["Ann saw a heron."]


def test_what_is_written_or_forgotten_waits_for_the_model(weather: Weather) -> None:
    weather.model.down = True
    named = {"containerTag": "ann"}
    fact = {"memories": [{"content": "Ann saw a heron."}], **named}

    refused(weather.http.post("/v4/memories", json=fact), 503)
    forgets = weather.http.post("/v4/memories/forget-matching", json={"query": "heron", **named})

    refused(forgets, 503)
    weather.model.down = False
    listed = weather.http.post("/v4/memories/list", json={"containerTags": ["ann"]}).json()
    assert listed["memoryEntries"] == []


def test_it_is_counted(weather: Weather) -> None:
    config = weather.app.config.model_copy(update={"metrics_token": SecretStr("token")})

    def counted() -> float:
        """As the API process that did it shows it."""
        with TestClient(create_app(replace(weather.app, config=config))) as http:
            told = http.get("/metrics", headers={"Authorization": "Bearer token"})
        line = 'recollect_search_left_out_total{code="http_503",part="embedding"} '
        found = [one for one in told.text.splitlines() if one.startswith(line)]
        return float(found[0].removeprefix(line)) if found else 0.0

    before = counted()
    weather.model.down = True
    for path in BOTH:
        weather.search(path)

    assert counted() == before + 2


@pytest.fixture
def site(weather: Weather) -> Generator[str]:
    weather.model.down = True
    with console_site(weather.app) as url:
        yield url


def test_every_face_tells_it(site: str, key: str) -> None:
    """The command line on standard error, the assistant's tool, the console's pages."""
    to = ["--url", site, "--key", key]
    told = CliRunner().invoke(cli, ["search", "heron", *to])
    assert told.exit_code == 0
    assert "heron" in told.stdout
    assert "only words were searched for" in told.stderr
    assert "only words" not in told.stdout

    with visiting(site, key) as http:
        accept = {
            "Accept": "application/json, text/event-stream",
            "Authorization": f"Bearer {key}",
        }
        for name in ("profile", "search"):
            call = {"name": name, "arguments": {"query": "heron"}}
            asked = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
            answer = http.post("/mcp", json=asked, headers=accept).json()
            warning = answer["result"]["structuredContent"]["warnings"][0]
            assert "only words were searched for" in warning
        found = answer["result"]["structuredContent"]["results"]

        page = http.get("/console/search", params={"q": "heron"})
        assert page.status_code == 200
        assert "only words were searched for" in page.text
        assert "Similarity" in page.text
        shown = http.get(f"/console/documents/{found[0]['id']}", params={"q": "heron"})
        assert "only words were searched for" in shown.text
        plain = http.get(f"/console/documents/{found[0]['id']}")
        assert "only words were searched for" not in plain.text


@contextmanager
def visiting(site: str, key: str) -> Generator[httpx.Client]:
    """Signed in to the console."""
    headers = {"sec-fetch-site": "same-origin", "origin": site}
    with httpx.Client(
        base_url=site, headers=headers, timeout=60, trust_env=False, verify=False
    ) as http:
        assert http.post("/console/login", data={"key": key}).status_code == 303
        yield http
