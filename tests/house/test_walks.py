"""How many files and rooms a document, a search and a sync pass through, by the functions that run
in a warm process. Prints the ways with `-s`."""

import sys
import threading
import zipfile
from collections import Counter
from collections.abc import Callable, Generator
from functools import partial
from io import BytesIO
from itertools import count, groupby
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from starlette.testclient import TestClient

from recollect.api import create_app
from recollect.app import App
from recollect.db import Database
from recollect.worker.processing import drain
from tests.connectors.test_conformance import World, known_connectors, unpaced, world
from tests.house import plan

__all__ = ["known_connectors", "unpaced", "world"]
HOUSE = str(Path(drain.__code__.co_filename).parents[1]) + "/"


class Walk:
    """The files of the package whose functions were called, in order, in all threads."""

    def __init__(self) -> None:
        self.files: list[str] | None = None
        self.calls = Counter[tuple[str, str]]()
        """how often each function of a file was called on the last way"""
        self._begun = set[FrameType]()

    def hook(self, frame: FrameType, event: str, _: Any) -> None:
        # A coroutine, or a generator, that goes on after a pause is told as a call, too.
        if event == "call" and self.files is not None and frame not in self._begun:
            path = frame.f_code.co_filename
            if path.startswith(HOUSE):
                self._begun.add(frame)
                self.files.append(path.removeprefix(HOUSE))
                self.calls[self.files[-1], frame.f_code.co_name] += 1

    def through(self, way: str, go: Callable[[], None], times: int = 1) -> None:
        """Holds the shortest of the ways to its plan: rooms, files, changes of file."""
        counted = list[tuple[int, int, int]]()
        while len(counted) < times:
            counted.append(self._walked(way, go))
            if all(have <= most for have, most in zip(counted[-1], plan.WAYS[way], strict=True)):
                return
        pytest.fail(f"{way}: {counted}")

    def watched(self, go: Callable[[], object]) -> list[str]:
        """The files on the way, one for each call; `calls` has the counts."""
        self.calls.clear()
        self.files = files = []
        sys.setprofile(self.hook)
        try:
            go()
        finally:
            sys.setprofile(None)
            self.files = None
            self._begun.clear()
        return files

    def _walked(self, way: str, go: Callable[[], None]) -> tuple[int, int, int]:
        passed = [file for file, _ in groupby(self.watched(go))]
        rooms = {file.partition("/")[0] for file in passed if "/" in file}
        counted = len(rooms), len(set(passed)), len(passed)
        sys.stdout.write(f"{way}: {counted} {' '.join(dict.fromkeys(passed))}\n")
        return counted


@pytest.fixture
def walk(db: Database) -> Generator[Walk]:
    """Threads that begin from here on are watched. Nobody watches the stages of documents, as tests
    of events did a moment ago."""
    with db.begin() as tx:
        tx.execute("delete from watchers")
    made = Walk()
    threading.setprofile(made.hook)
    yield made
    threading.setprofile(None)


def test_a_text_and_a_search_pass_few_rooms(app: App, key: str, walk: Walk):
    headers = {"authorization": f"Bearer {key}"}

    def ingest(http: TestClient, text: str) -> None:
        body = {"content": text, "containerTag": "notes"}
        assert http.post("/v3/documents", json=body).status_code == 200
        drain(app)

    def search(http: TestClient) -> None:
        answer = http.post("/v3/search", json={"q": "herons", "containerTags": ["notes"]})
        assert answer.json()["total"] > 0

    with TestClient(create_app(app), headers=headers) as http:
        ingest(http, "Herons wait at the pond.")
        search(http)
        walk.through(
            "a text, from POST to its chunks", lambda: ingest(http, "More herons came to the pond.")
        )
        walk.through("a search", lambda: search(http))


@pytest.mark.parametrize("world", ["google-drive"], indirect=True)
def test_a_sync_passes_few_rooms(world: World, walk: Walk):
    numbers = count(8)

    def sync() -> None:
        world.peer.put(f"n{next(numbers)}", "It came later.")
        world.sync()

    world.connect()
    world.sync()
    sync()
    # The questions whether it is over, and loops that look at queues, come in between.
    walk.through("a sync of one new file", sync, times=20)
    assert f"n{next(numbers) - 1}" in world.documents()


def test_a_kind_is_found_once(app: App, key: str, walk: Walk):
    """By the API, which refuses what cannot be read, for the worker, which reads it. Of an archive
    each file is found once more, in the service."""
    inside = BytesIO()
    with zipfile.ZipFile(inside, "w") as archive:
        archive.writestr("one.md", "Herons wait.")
        archive.writestr("two.csv", "bird,place\nheron,pond\n")

    def upload(name: str, data: bytes) -> None:
        answer = http.post("/v3/documents/file", files={"file": (name, data)})
        assert answer.status_code == 200
        drain(app)

    with TestClient(create_app(app), headers={"authorization": f"Bearer {key}"}) as http:
        for name, data, times in [("herons.md", b"Herons.", 1), ("all.zip", inside.getvalue(), 3)]:
            walk.watched(partial(upload, name, data))
            assert walk.calls["extract/_registry.py", "_look"] == times


@pytest.mark.parametrize("world", ["google-drive"], indirect=True)
def test_a_filter_is_compiled_once_in_a_sync(world: World, walk: Walk):
    kept_out = {"excludeItems": {"titlePatterns": ["secret*"]}}
    assert world.http.patch("/v3/settings", json=kept_out).status_code == 200
    world.connect()
    world.sync()
    for number in (7, 8, 9):
        world.peer.put(f"n{number}", "It came later.")
    walk.watched(world.sync)

    assert walk.calls["sync/item_filter.py", "_patterns"] == 2, "what is let in, what is kept out"
    assert "n9" in world.documents()
