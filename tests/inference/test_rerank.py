"""Rerankers: a real graph on onnxruntime, and an endpoint over real HTTP that misbehaves."""

import json
import math
import threading
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import helper

from recollect.errors import Permanent, SetupError, Unavailable
from recollect.inference.circuit_breaker import FAILURES, Breaker, Resting
from recollect.inference.rerank import (
    BATCH_TOKENS,
    EndpointReranker,
    LocalReranker,
    RerankChoice,
    open_reranker,
)
from tests.fakes.rerank import Judge, Says, Silent, judging, write_model

KEY = "rk-very-secret-0123456789"
QUERY = "what does the heron eats in the pond"
FIT = "heron eats in the pond"
POOR = "the river"
UNFIT = "frog frog frog"


def sigmoid(logit: float) -> float:
    return 1 / (1 + math.exp(-logit))


# --- on this machine -----------------------------------------------------------------------------


def test_each_passage_gets_the_score_that_the_graph_gives_it(tmp_path: Path):
    reranker = LocalReranker(write_model(tmp_path / "judge"))

    scores = reranker.score("heron pond", ["frog", "heron", "the pond heron pond", ""])

    expected = [sigmoid(n - 1) for n in (0, 1, 3, 0)]
    assert scores == pytest.approx(expected)
    assert reranker.name == "local:judge"
    assert reranker.score("heron", []) == []


@pytest.mark.parametrize("labels", [1, 2])
@pytest.mark.parametrize("types", [True, False])
def test_graphs_of_both_families_are_fed_what_they_name(tmp_path: Path, labels: int, types: bool):
    reranker = LocalReranker(write_model(tmp_path, labels=labels, types=types))

    assert reranker.score("heron pond", ["frog", "pond heron"]) == pytest.approx(
        [sigmoid(labels * -1), sigmoid(labels * 1)]
    )


def test_many_passages_of_any_length_go_in_batches_and_come_back_in_order(tmp_path: Path):
    reranker = LocalReranker(write_model(tmp_path, tokens=1_000))
    passages = [" ".join(["frog"] * (n % 7 * 60) + ["heron"] * (n % 3)) for n in range(200)]
    assert sum(len(passage.split()) for passage in passages) > BATCH_TOKENS

    scores = reranker.score("heron", passages)

    assert scores == pytest.approx([sigmoid(n % 3 - 1) for n in range(200)])


@pytest.mark.parametrize("where", ["tokenizer.json", "tokenizer_config.json", "config.json"])
def test_what_is_longer_than_the_model_reads_is_cut(tmp_path: Path, where: str):
    folder = write_model(tmp_path, tokens=16 if where == "tokenizer.json" else None)
    if where == "tokenizer_config.json":
        (folder / where).write_text(json.dumps({"model_max_length": 16}))
    if where == "config.json":
        (folder / "tokenizer_config.json").write_text(json.dumps({"model_max_length": 10**30}))
        (folder / where).write_text(json.dumps({"max_position_embeddings": 18}))
    long = " ".join(["frog"] * 100) + " heron heron"

    # Three special tokens and the one of the query leave twelve.
    [cut, whole] = LocalReranker(folder).score("heron", [long, "frog " * 10 + "heron heron heron"])

    assert cut == pytest.approx(sigmoid(-1))
    assert whole == pytest.approx(sigmoid(1))


def test_a_query_that_alone_is_too_long_does_no_harm(tmp_path: Path):
    reranker = LocalReranker(write_model(tmp_path, tokens=16))

    assert len(reranker.score("heron " * 5_000, ["heron", "\ud800 frog"])) == 2


def test_it_is_loaded_once_and_at_first_use(tmp_path: Path):
    folder = write_model(tmp_path)
    reranker = open_reranker(RerankChoice(model=str(folder), timeout=60))
    assert isinstance(reranker, LocalReranker)
    assert reranker._loaded is None

    def ask(_: int) -> tuple[list[float], int]:
        return reranker.score("heron", ["heron"]), id(reranker._loaded)

    with ThreadPoolExecutor(4) as pool:
        told = list(pool.map(ask, range(8)))

    assert [scores for scores, _ in told] == [[0.5]] * 8
    assert len({loaded for _, loaded in told}) == 1


def test_who_waits_too_long_for_a_turn_goes_on_without(tmp_path: Path):
    reranker = LocalReranker(write_model(tmp_path), timeout=0.05)
    reranker._turn.acquire()

    with pytest.raises(Unavailable, match="busy"):
        reranker.score("heron", ["heron"])


def test_a_folder_that_holds_no_such_model_is_named(tmp_path: Path):
    with pytest.raises(SetupError, match=r"RECOLLECT_RERANK_MODEL.*no model\.onnx"):
        open_reranker(RerankChoice(model=str(tmp_path)))
    folder = write_model(tmp_path / "broken")
    (folder / "model.onnx").write_bytes(b"no graph")
    broken = LocalReranker(folder)
    with pytest.raises(Unavailable, match="RECOLLECT_RERANK_MODEL"):
        broken.score("heron", ["heron"])
    write_model(folder)  # mended in place
    assert broken.score("heron", ["heron"]) == [0.5]
    several = LocalReranker(write_model(tmp_path / "several", labels=2))
    _widen(tmp_path / "several" / "model.onnx")
    with pytest.raises(Unavailable, match="one label"):
        several.score("heron", ["heron", "frog"])


def _widen(graph: Path) -> None:
    """Three labels."""
    model: Any = onnx.load_model(str(graph))
    model.graph.node.append(helper.make_node("Concat", ["logits", "logit"], ["three"], axis=1))
    model.graph.output[0].name = "three"
    model.graph.output[0].type.tensor_type.shape.dim[1].dim_value = 3
    graph.write_bytes(model.SerializeToString())


# --- an endpoint ---------------------------------------------------------------------------------


@pytest.fixture
def judge() -> Generator[Judge]:
    with judging(Judge()) as started:
        yield started


@pytest.fixture
def opened(judge: Judge) -> Generator[Callable[..., EndpointReranker]]:
    with ExitStack() as stack:

        def make(model: str | None = "judge-1", **settings: Any) -> EndpointReranker:
            settings = {"timeout": 60} | settings
            made = EndpointReranker(judge.url, model, KEY, **settings)
            stack.callback(made.close)
            return made

        yield make


def test_an_endpoint_is_asked_once_and_its_order_undone(
    judge: Judge, opened: Callable[..., EndpointReranker]
):
    scores = opened().score(QUERY, [UNFIT, FIT, POOR])

    assert scores == [0.0, 0.5, 0.1]
    assert judge.asked == [
        {"query": QUERY, "documents": [UNFIT, FIT, POOR], "top_n": 3, "model": "judge-1"}
    ]
    assert judge.authorizations == [f"Bearer {KEY}"]
    assert opened().score(QUERY, []) == []
    assert len(judge.asked) == 1


def test_text_embeddings_inference_is_understood_and_remembered(
    judge: Judge, opened: Callable[..., EndpointReranker]
):
    judge.wants_texts = True
    reranker = opened(model=None)

    assert reranker.score(QUERY, [UNFIT, FIT]) == [0.0, 0.5]
    assert reranker.score(QUERY, [FIT, UNFIT]) == [0.5, 0.0]

    assert ["texts" in body for body in judge.asked] == [False, False, True, True]


def test_voyage_is_understood_and_remembered(judge: Judge, opened: Callable[..., EndpointReranker]):
    judge.is_voyage = True
    reranker = opened()

    assert reranker.score(QUERY, [UNFIT, FIT]) == [0.0, 0.5]
    assert reranker.score(QUERY, [FIT, UNFIT]) == [0.5, 0.0]

    assert ["top_n" in body for body in judge.asked] == [True, False, False]


@pytest.mark.parametrize("busy", [429, 503])
def test_a_form_that_a_busy_endpoint_did_not_judge_says_nothing_of_the_question(
    judge: Judge, opened: Callable[..., EndpointReranker], busy: int
):
    judge.is_voyage = True
    judge.misbehave = [Says(400), Says(busy)]
    reranker = opened()

    with pytest.raises(Unavailable) as caught:
        reranker.score(QUERY, [UNFIT, FIT])

    assert caught.value.code == f"http_{busy}"
    assert reranker.score(QUERY, [UNFIT, FIT]) == [0.0, 0.5]


@pytest.mark.parametrize("status", [400, 413, 422, 500])
def test_passages_that_are_too_long_for_the_model_are_judged_by_their_beginning(
    judge: Judge, opened: Callable[..., EndpointReranker], status: int
):
    """llama.cpp answers 500 to more than its 512 tokens, vLLM 400."""
    judge.window, judge.too_long = 600, status

    assert opened().score(QUERY, [UNFIT, FIT + " and" * 400]) == [0.0, 0.5]


def test_a_question_that_is_refused_changes_no_form(
    judge: Judge, opened: Callable[..., EndpointReranker]
):
    judge.misbehave = [Says(400)] * 3
    reranker = opened()

    with pytest.raises(Permanent):
        reranker.score(QUERY, [UNFIT, FIT])

    assert reranker.score(QUERY, [FIT, UNFIT]) == [0.5, 0.0]
    assert "top_n" in judge.asked[-1]


def told(*results: object) -> Says:
    return Says(body=json.dumps({"results": list(results)}))


GOOD = {"index": 0, "relevance_score": 0.5}


@pytest.mark.parametrize(
    ("said", "error", "words"),
    [
        (Says(500), Unavailable, "500"),
        (Says(429), Unavailable, "429"),
        (Says(401), Unavailable, "RECOLLECT_RERANK_KEY"),
        (Says(404), Unavailable, "RECOLLECT_RERANK_URL and RECOLLECT_RERANK_MODEL"),
        (Says(302), Unavailable, "RECOLLECT_RERANK_URL"),
        (Says(400, '{"message": "the heron is too long"}'), Permanent, "400"),
        (Says(body="no JSON"), Unavailable, "RECOLLECT_RERANK_URL"),
        (Says(body="[" * 100_000), Unavailable, "RECOLLECT_RERANK_URL"),
        (Says(body="{}"), Unavailable, "RECOLLECT_RERANK_URL"),
        (told(GOOD), Unavailable, "each passage"),
        (told(GOOD, GOOD), Unavailable, "each passage"),
        (told(GOOD, {"index": 2, "relevance_score": 1}), Unavailable, "each passage"),
        (told(GOOD, {"index": -1, "relevance_score": 1}), Unavailable, "each passage"),
        (told(GOOD, {"index": True, "relevance_score": 1}), Unavailable, "each passage"),
        (told(GOOD, {"index": 1, "relevance_score": None}), Unavailable, "each passage"),
        (told(GOOD, {"index": 1, "relevance_score": 10**400}), Unavailable, "each passage"),
        (
            Says(body='{"results": [{"index": 0, "score": NaN}, {"index": 1, "score": 1}]}'),
            Unavailable,
            "each passage",
        ),
        (told("x", "y"), Unavailable, "each passage"),
    ],
)
def test_what_went_wrong_is_said_without_what_was_asked(
    judge: Judge,
    opened: Callable[..., EndpointReranker],
    said: Says,
    error: type[Unavailable | Permanent],
    words: str,
):
    judge.misbehave = [said]

    with pytest.raises(error, match=words) as raised:
        opened().score("a private heron", ["a", "b"])

    assert "heron" not in str(raised.value)
    assert KEY not in str(raised.value)
    assert opened().score("heron", ["heron", "frog"]) == [0.1, 0.0]


@pytest.mark.parametrize("status", [429, 503])
def test_it_is_left_alone_for_as_long_as_it_asks(
    judge: Judge, opened: Callable[..., EndpointReranker], status: int
):
    now = 0.0
    reranker = opened(breaker=Breaker("reranker", clock=lambda: now))
    judge.misbehave = [Says(status, headers={"retry-after": "77"})] * FAILURES
    for _ in range(FAILURES):
        with pytest.raises(Unavailable) as limited:
            reranker.score(QUERY, [FIT])
        assert limited.value.after == timedelta(seconds=77)

    now = 76.0
    with pytest.raises(Resting):
        reranker.score(QUERY, [FIT])
    now = 77.0
    assert reranker.score(QUERY, [FIT]) == [0.5]


def test_silence_ends_in_time(judge: Judge, opened: Callable[..., EndpointReranker]):
    judge.misbehave = [Silent()]

    with pytest.raises(Unavailable) as raised:
        opened(timeout=0.3).score(QUERY, [FIT])

    assert raised.value.code == "timeout"


def test_nobody_there_is_unavailable():
    reranker = EndpointReranker("http://127.0.0.1:9", None)

    with pytest.raises(Unavailable):
        reranker.score(QUERY, [FIT])
    reranker.close()


def test_several_ask_at_once(judge: Judge, opened: Callable[..., EndpointReranker]):
    reranker = opened()
    start = threading.Barrier(4)

    def ask(_: int) -> list[float]:
        start.wait(60)
        return reranker.score(QUERY, [FIT, UNFIT])

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(ask, range(4))) == [[0.5, 0.0]] * 4


def test_without_settings_there_is_none():
    assert open_reranker(RerankChoice()) is None


def test_bad_settings_are_named():
    with pytest.raises(SetupError, match="RECOLLECT_RERANK_URL"):
        open_reranker(RerankChoice(url="ftp://example.org"))
    with pytest.raises(SetupError, match="RECOLLECT_RERANK_KEY") as wrong:
        open_reranker(RerankChoice(url="http://127.0.0.1:9", key="secret\nkey"))
    assert "secret" not in str(wrong.value)
    assert "secret" not in repr(RerankChoice(key="secret"))
