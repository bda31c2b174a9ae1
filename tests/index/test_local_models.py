"""The two local models, as an operator changes from one to the other while the service runs."""

import threading
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from recollect.app import embedder_choice, open_choice
from recollect.config import Config
from recollect.index.vector_index import Index, Kept
from recollect.inference.local_model import E5, MINILM, local_name
from tests.conftest import Service, eventually, start_service, stop_service
from tests.index.test_embedder_switch import command

FACTS = (
    "The library opens again in spring.",
    "Ada is allergic to peanuts.",
    "The invoice was paid on the second of June.",
)
SETTINGS = {"embedder": "local", "workers": "1", "canary_interval": "0"}
OLD = {"kind": "local", "url": None, "key": None, "model": None, "dimensions": None}
"""what the index remembered of MiniLM before there was another local model"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_an_index_keeps_its_model_until_it_is_switched_and_may_be_switched_back(
    short_tmp: Path,
) -> None:
    folder = short_tmp / "locals"
    with running(folder, embedder_model=MINILM) as service, service.client() as client:
        for fact in FACTS:
            client.post("/v3/documents", json={"content": fact}).raise_for_status()
        eventually(lambda: not client.get("/v3/documents/processing").json()["totalCount"])
        first = similarities(client)

    with running(folder) as service, service.client() as client, asking(client) as asked:
        assert status(folder)["used"]["name"] == local_name(MINILM)
        assert similarities(client) == pytest.approx(first)

        command(folder, SETTINGS, "switch", "local", "--yes")
        eventually(lambda: status(folder)["phase"] == "kept", 240)
        eventually(lambda: best(client, "Wann öffnet die Bibliothek?") == FACTS[0])
        assert status(folder)["used"]["name"] == local_name(E5)
        eventually(lambda: command(folder, SETTINGS, "finish", fails="try again in"))
        eventually(lambda: status(folder)["phase"] is None, 120)

        command(folder, SETTINGS, "switch", "local", "--model", MINILM, "--yes")
        eventually(lambda: status(folder)["phase"] == "kept", 240)
        eventually(lambda: similarities(client) == pytest.approx(first))
        assert status(folder)["used"]["name"] == local_name(MINILM)
    assert asked
    assert set(asked) == {200}


@pytest.mark.parametrize(
    ("index", "model"),
    [
        (None, E5),
        (Index(Kept("none", 0, "a")), E5),
        (Index(Kept(local_name(MINILM), 384, "a")), MINILM),
        (Index(Kept(local_name(E5), 384, "b"), Kept(local_name(MINILM), 384, "a")), E5),
        (Index(Kept("openai:m", 8, "b"), Kept(local_name(MINILM), 384, "a"), "kept"), MINILM),
        (Index(Kept("openai:m", 8, "b"), replaced=local_name(MINILM)), MINILM),
    ],
)
def test_settings_that_name_no_local_model_mean_that_of_the_index(
    index: Index | None, model: str
) -> None:
    assert embedder_choice(Config(embedder="local"), index).model == model


def test_settings_that_name_one_mean_it(tmp_path: Path) -> None:
    index = Index(Kept(local_name(MINILM), 384, "a"))

    assert embedder_choice(Config(embedder_model=E5), index).model == E5
    assert embedder_choice(Config(embedder_model=str(tmp_path)), index).model == str(tmp_path)


def test_a_local_model_that_an_index_remembers_without_a_name_is_the_one_that_there_was(
    tmp_path: Path,
) -> None:
    assert open_choice(Config(data_dir=tmp_path), OLD).name == local_name(MINILM)


@contextmanager
def running(folder: Path, **settings: str) -> Generator[Service]:
    service = start_service(folder, **SETTINGS, **settings)
    try:
        yield service
    finally:
        stop_service(service)


@contextmanager
def asking(client: httpx.Client) -> Generator[list[int]]:
    """Searches without a pause; what they were answered."""
    answers: list[int] = []
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            answer = client.post("/v3/search", json={"q": "Who may not eat peanuts?"})
            answers.append(answer.status_code if answer.json()["results"] else 0)

    with ExitStack() as stack:
        thread = threading.Thread(target=ask)
        thread.start()
        stack.callback(thread.join)
        stack.callback(over.set)
        yield answers


def status(folder: Path) -> Any:
    return command(folder, SETTINGS, "status")


def best(client: httpx.Client, query: str) -> str:
    answer = client.post("/v3/search", json={"q": query}).raise_for_status().json()
    return answer["results"][0]["chunks"][0]["content"]


def similarities(client: httpx.Client) -> list[float]:
    answer = client.post("/v3/search", json={"q": "peanuts and libraries"}).raise_for_status()
    return sorted(
        chunk["similarity"] for hit in answer.json()["results"] for chunk in hit["chunks"]
    )
