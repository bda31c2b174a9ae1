"""A stop in the middle of long work: it is over soon, by itself, and nothing stays claimed."""

import json
import socket
import threading
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.conftest import Service, start_service
from tests.fakes import models

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(300)]


class Gated(models.Model):
    """Answers batches until `left` of them are over; then none, until the gate is opened."""

    def __init__(self, left: int) -> None:
        super().__init__("openai:gated", 16, 0.0)
        self.left = left
        self.stuck = threading.Event()
        self.gate = threading.Event()

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Any:
        if len(texts) > 1 or len(texts[0]) > 100:
            self.left -= 1
        if self.left < 0:
            self.stuck.set()
            assert self.gate.wait(240)
        return super().embed(texts, query=query)


@contextmanager
def embedding(model: models.Model, folder: Path, url: str) -> Generator[Service]:
    with models.endpoint(model) as endpoint:
        service = start_service(
            folder,
            database_url=url,
            embedder="openai",
            embedder_url=endpoint,
            embedder_model=model.name.partition(":")[2],
            workers="3",
            lease_seconds="600",
        )
        try:
            yield service
        finally:
            service.process.kill()
            service.process.wait(60)


def add_books(service: Service, count: int) -> None:
    with service.client() as http:
        for book in range(count):
            lines = (f"Book {book}, line {n}: the heron stands at the weir." for n in range(9000))
            answer = http.post("/v3/documents", json={"content": "\n\n".join(lines)})
            assert answer.status_code == 200, answer.text


def documents(url: str) -> set[tuple[Any, ...]]:
    """Status, attempts, and whether it may be claimed now, of all that there are."""
    with psycopg.connect(url) as session:
        found = session.execute("select status, attempts, due_at <= now() from documents")
        return set(found.fetchall())


def told(service: Service) -> list[dict[str, Any]]:
    lines = service.log.read_text().splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


@pytest.mark.parametrize("hangs", [False, True], ids=["answers", "hangs"])
def test_a_stop_while_large_documents_are_embedded_gives_all_of_them_back(
    short_tmp: Path, new_database: Callable[[], str], hangs: bool
) -> None:
    url = new_database()
    model = Gated(2)
    with embedding(model, short_tmp / f"embedding-{hangs}", url) as service:
        add_books(service, 5)
        assert model.stuck.wait(120)
        assert "processing" in {status for status, *_ in documents(url)}
        service.process.terminate()
        if not hangs:
            model.left = 1 << 30
            model.slow = 1.0
            model.gate.set()
        assert service.process.wait(120) == 0
        model.gate.set()

        assert documents(url) == {("queued", 0, True)}
        events = [line["event"] for line in told(service)]
        assert not [one for one in events if one == "bug" or one.startswith("process killed")]


def test_a_search_that_waits_for_a_model_is_told_of_the_stop_and_does_not_hold_it_up(
    short_tmp: Path, new_database: Callable[[], str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent, ThreadPoolExecutor(1) as pool:
        service = start_service(
            short_tmp / "searching",
            database_url=new_database(),
            embedder="none",
            llm_url=f"http://127.0.0.1:{silent.getsockname()[1]}/v1",
            llm_model="silent",
        )
        try:
            with service.client() as http:
                asked = {"q": "heron", "rewriteQuery": True}
                answer = pool.submit(http.post, "/v3/search", json=asked, timeout=60)
                connection, _ = silent.accept()
                with connection:
                    service.process.terminate()
                    assert answer.result(60).status_code == 503
                    assert service.process.wait(60) == 0
        finally:
            service.process.kill()
            service.process.wait(60)
    events = [line["event"] for line in told(service)]
    assert not [one for one in events if one == "bug" or one.startswith("process killed")]
