"""Answers that hold what ours never do, as those of something else at the address might."""

import copy
import gc
import json
from collections.abc import Generator, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from recollect.app import App
from recollect.cli import app as commands
from recollect.errors import RecollectError, SetupError
from recollect.worker.processing import drain
from tests.conftest import plain_client
from tests.fakes.proxy import Proxy

COMMANDS = (
    ("search", "heron"),
    ("list",),
    ("show", "pond"),
    ("versions", "pond"),
    ("status",),
    ("tags",),
    ("edit", "pond", "--title", "Pond"),
    ("retry", "pond"),
    ("rm", "nothing"),
    ("connections",),
    ("seen", "CONNECTION"),
    ("sync", "CONNECTION"),
    ("filters", "show"),
    ("filters", "preview"),
    ("webhooks", "list"),
    ("webhooks", "test", "WEBHOOK"),
    ("webhooks", "log", "WEBHOOK"),
    ("webhooks", "rotate", "WEBHOOK"),
)
Place = tuple[str | int, ...]


@dataclass
class Hollow:
    """Lets answers pass and keeps them, or puts `value` at one place of one of them."""

    value: Any = None
    kept: list[Any] = field(default_factory=list[Any])
    at: tuple[int, Place] | None = None

    def __call__(self, body: bytes) -> bytes:
        answer = json.loads(body)
        self.kept.append(answer)
        if self.at is None or self.at[0] != len(self.kept) - 1:
            return body
        hollow = inner = copy.deepcopy(answer)
        *way, last = self.at[1]
        for step in way:
            inner = inner[step]
        inner[last] = self.value
        return json.dumps(hollow).encode()


def places(answer: Any) -> Iterator[Place]:
    """All of an answer's fields; of a list, the first member and its fields."""
    inside: list[tuple[str | int, Any]] = []
    if isinstance(answer, dict):
        inside = list(answer.items())
    elif isinstance(answer, list):
        inside = [(0, one) for one in answer[:1]]
    for step, value in inside:
        yield (step,)
        yield from ((step, *rest) for rest in places(value))


@pytest.fixture
def filled(app: App, live_url: str, key: str) -> Generator[tuple[Proxy, dict[str, str]]]:
    """A service with something of each kind, behind a proxy, and the ids that commands name."""
    with plain_client(live_url, {"Authorization": f"Bearer {key}"}) as http:
        pond = {"content": "A heron wades in the pond.", "customId": "pond", "containerTag": "a"}
        http.post("/v3/documents", json=pond).raise_for_status()
        drain(app)
        hook = http.post("/v3/webhooks", json={"url": "https://hook.example/a"}).json()["id"]
        http.post(f"/v3/webhooks/{hook}/test", json={}).raise_for_status()
        crawl = {"metadata": {"startUrl": f"{live_url}/docs"}, "containerTags": ["a"]}
        made = http.post("/v3/connections/web-crawler", json=crawl).json()["id"]
    with Proxy(live_url) as proxy:
        yield proxy, {"CONNECTION": made, "WEBHOOK": hook}


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize(
    "value",
    [None, 7, *(pytest.param(each, marks=pytest.mark.slow) for each in ("a", ["b"], {"c": 1}))],
    ids=lambda value: type(value).__name__,
)
def test_anything_at_any_place_of_an_answer_ends_in_a_sentence(
    filled: tuple[Proxy, dict[str, str]], key: str, command: tuple[str, ...], value: Any
) -> None:
    proxy, ids = filled
    hollow = Hollow(value)
    proxy.on("", alter=hollow, times=None)

    def run() -> Result:
        hollow.kept.clear()
        named = [ids.get(word, word) for word in command]
        return CliRunner().invoke(commands, [*named, "--url", proxy.url, "--key", key])

    honest = run()
    tried = [(number, place) for number, one in enumerate(hollow.kept) for place in places(one)]
    bugs: list[tuple[Place, BaseException]] = []
    for number, place in tried:
        hollow.at = (number, place)
        ended = run().exception
        if not isinstance(ended, RecollectError | SystemExit | None):
            bugs.append((place, ended))
        ended = None
        gc.collect(1)  # a command leaves its connections to the end of its process

    assert isinstance(honest.exception, SystemExit | None), honest.exception
    assert tried
    assert bugs == []


def test_a_debug_log_shows_where_an_answer_was_not_understood(
    key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECOLLECT_LOG_LEVEL", "debug")
    with Proxy() as proxy:
        proxy.on("", status=200, json_body={"memories": 7, "pagination": {}}, times=None)
        ended = CliRunner().invoke(commands, ["list", "--url", proxy.url, "--key", key])

    assert isinstance(ended.exception, TypeError)


def test_an_answer_that_nests_without_an_end_is_not_of_a_service(key: str) -> None:
    with Proxy() as proxy:
        proxy.on("", status=200, body=b"[" * 100_000, times=None)
        ended = CliRunner().invoke(commands, ["list", "--url", proxy.url, "--key", key])

    assert isinstance(ended.exception, SetupError)
    assert "is that the right address?" in str(ended.exception)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
@pytest.mark.parametrize("answer", [(204, b""), (200, b"[7]")], ids=["nothing", "numbers"])
def test_an_answer_of_something_else_ends_in_a_sentence(
    key: str, command: tuple[str, ...], answer: tuple[int, bytes]
) -> None:
    with Proxy() as proxy:
        proxy.on("", status=answer[0], body=answer[1], times=None)
        ended = CliRunner().invoke(commands, [*command, "--url", proxy.url, "--key", key])

    assert isinstance(ended.exception, SetupError)
    assert "address" in str(ended.exception)
