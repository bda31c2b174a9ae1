"""A local model that nobody uses gives its memory back, and is there again when it is wanted."""

import threading
import weakref
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import numpy as np
import pytest

from recollect.errors import SetupError, Unavailable
from recollect.inference import local_model
from recollect.inference.batching import Vectors
from recollect.inference.local_model import IdleEmbedder, LocalEmbedder
from tests.conftest import eventually


class Opened:
    """Models as they were opened, each of which knows its number and may be held in its work."""

    name = "local:fake"

    def __init__(self) -> None:
        self.times = 0
        self.alive = weakref.WeakSet["Fake"]()
        self.fault: str | None = None
        self.held: threading.Event | None = None
        self.began = threading.Event()

    def __call__(self) -> LocalEmbedder:
        if self.fault is not None:
            raise SetupError(self.fault)
        self.times += 1
        model = Fake(self)
        self.alive.add(model)
        return cast("LocalEmbedder", model)


class Fake:
    def __init__(self, opened: Opened) -> None:
        self.name = opened.name
        self._opened = opened

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        self._opened.began.set()
        if self._opened.held is not None:
            assert self._opened.held.wait(60)
        return np.full((len(texts), 2), 2.0 if query else 1.0, np.float32)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Opened:
    monkeypatch.setattr(local_model, "IDLE", 0.05)
    return Opened()


def gone(opened: Opened) -> Callable[[], bool]:
    return lambda: len(opened.alive) == 0


def test_it_goes_while_nobody_embeds_and_comes_back(opened: Opened) -> None:
    embedder = IdleEmbedder(opened)
    assert embedder.name == "local:fake"
    for times in (1, 2, 3):
        assert embedder.embed(["a", "b"]).shape == (2, 2)
        assert opened.times == times
        eventually(gone(opened))


def test_whoever_asks_a_query_keeps_it(opened: Opened) -> None:
    embedder, other = IdleEmbedder(opened), IdleEmbedder(opened)
    assert embedder.embed(["a"], query=True)[0, 0] == 2.0
    eventually(lambda: len(opened.alive) == 1)
    embedder.embed(["a"])
    assert opened.times == 2
    assert other.embed(["a"])[0, 0] == 1.0
    assert opened.times == 3


def test_one_in_use_stays_until_its_work_is_done(opened: Opened) -> None:
    embedder = IdleEmbedder(opened)
    opened.held = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        long = pool.submit(embedder.embed, ["a"])
        assert opened.began.wait(60)
        embedder._used = float("-inf")
        embedder._rest()
        assert len(opened.alive) == 1
        opened.held.set()
        assert long.result()[0, 0] == 1.0
    eventually(gone(opened))


def test_many_at_once_open_it_once(opened: Opened) -> None:
    embedder = IdleEmbedder(opened)
    eventually(gone(opened))
    opened.held = threading.Event()
    with ThreadPoolExecutor(8) as pool:
        all_of_them = [pool.submit(embedder.embed, ["a"]) for _ in range(8)]
        assert opened.began.wait(60)
        opened.held.set()
        assert [one.result().shape for one in all_of_them] == [(1, 2)] * 8
    assert opened.times == 2


def test_files_that_are_no_longer_what_they_were_are_said_and_documents_wait(
    opened: Opened,
) -> None:
    embedder = IdleEmbedder(opened)
    eventually(gone(opened))
    opened.fault = "model.bin is not the file of fake"
    with pytest.raises(Unavailable, match="not the file of fake"):
        embedder.embed(["a"])
    opened.fault = None
    assert embedder.embed(["a"]).shape == (1, 2)


def test_at_the_start_that_ends_it(opened: Opened) -> None:
    opened.fault = "not installed"
    with pytest.raises(SetupError, match="not installed"):
        IdleEmbedder(opened)


def test_a_timer_keeps_no_model_alive(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_model, "IDLE", 3_600.0)
    embedder = IdleEmbedder(opened)
    assert len(opened.alive) == 1
    del embedder
    assert gone(opened)()
