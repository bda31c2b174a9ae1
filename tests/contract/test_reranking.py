"""`rerank` and `rewriteQuery` of both searches, over real HTTP, with engines that may misbehave."""

import json
from collections.abc import Callable, Generator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr
from typer.testing import CliRunner, Result

from recollect.app import App
from recollect.cli import app as cli
from recollect.cli import doctor
from recollect.config import Config
from recollect.errors import SetupError
from recollect.inference.circuit_breaker import Breaker
from recollect.inference.llm import Llm
from recollect.inference.rerank import EndpointReranker, LocalReranker
from recollect.model import Tenant
from recollect.search.answers.sources import AnswerQuery, gather
from recollect.worker.processing import drain
from tests.conftest import capture_logs, eventually, plain_client, serving
from tests.contract.calls import add, found
from tests.fakes.llm import Asked, Model, Silent, running
from tests.fakes.llm import Says as ModelSays
from tests.fakes.llm import Status as HttpStatus
from tests.fakes.patience import only_for_what_hangs
from tests.fakes.rerank import Judge, Says, judging, write_model
from tests.fakes.rerank import Silent as NoJudgement

QUERY = "heron pond"
BOTH = ["/v3/search", "/v4/search"]
Serve = Callable[..., httpx.Client]


@pytest.fixture
def judge() -> Generator[Judge]:
    with judging(Judge()) as started:
        yield started


@pytest.fixture
def model() -> Generator[Model]:
    with running(Model()) as started:
        yield started
    assert started.faults == []


@pytest.fixture
def serve(app: App, key: str) -> Generator[Serve]:
    """Clients of an API with these engines and settings: `serve(reranker=…, rerank_first=3)`."""
    with ExitStack() as stack:

        def make(
            *,
            reranker: Any = None,
            llm: Any = None,
            embedder: Any = app.embedder,
            **settings: Any,
        ) -> httpx.Client:
            config = app.config.model_copy(update=settings)
            other = replace(app, reranker=reranker, llm=llm, embedder=embedder, config=config)
            url = stack.enter_context(serving(other))
            for engine in (reranker, llm):
                if engine is not None:
                    stack.callback(engine.close)
            headers = {"Authorization": f"Bearer {key}"}
            return stack.enter_context(plain_client(url, headers))

        yield make


def searched(http: httpx.Client, path: str, q: str = QUERY, **more: Any) -> dict[str, Any]:
    body: dict[str, Any] = {"q": q, **more}
    if path == "/v4/search":
        body = {"searchMode": "documents", "threshold": 0, **body}
    answer = http.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


def texts(body: dict[str, Any]) -> list[str]:
    """The first passage of each result."""
    return [
        one["chunk"] if "chunk" in one else one["chunks"][0]["content"] for one in body["results"]
    ]


def scores(body: dict[str, Any]) -> list[float | None]:
    return [
        (one if "chunk" in one else one["chunks"][0]).get("rerankScore") for one in body["results"]
    ]


def patient_judge(judge: Judge) -> EndpointReranker:
    """Where the limit is not what is looked at: the machine may be slow."""
    return EndpointReranker(judge.url, None, timeout=60)


def patient(model: Model) -> Llm:
    return Llm(model.url, "a-model", hurry=60)


def fill(http: httpx.Client, app: App, *contents: str) -> list[str]:
    ids = [add(http, content) for content in contents]
    drain(app)
    return ids


BIRDS = (
    "Herons at a pond with many other birds.",
    "The heron waits.",
    "A heron, a pond, a heron: the pond" + " of so many other words" * 20 + ".",
)


# --- reranking -----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", BOTH)
def test_the_reranker_decides_the_order_and_its_score_is_told(
    serve: Serve, app: App, judge: Judge, path: str
):
    http = serve(reranker=patient_judge(judge))
    fill(http, app, *BIRDS)
    plain = searched(http, path)

    told = searched(http, path, rerank=True)

    assert "warnings" not in told
    assert texts(told)[0] == BIRDS[2]
    assert scores(told)[0] == 0.4
    assert scores(told) == sorted(scores(told), key=lambda one: -(one or 0))
    assert sorted(texts(told)) == sorted(texts(plain))
    assert texts(plain) != texts(told)
    assert set(scores(plain)) == {None}
    assert [body["query"] for body in judge.asked] == [QUERY]


def test_what_an_answer_rests_on_is_in_the_order_that_the_reranker_helped_to_make(
    serve: Serve, app: App, tenant: Tenant, judge: Judge
):
    """It was asked, and the passages stood in the order of the search all the same."""
    reranker = patient_judge(judge)
    fill(serve(reranker=reranker), app, *BIRDS)
    asking = replace(app, reranker=reranker)

    plain, judged = (
        [one.text for one in gather(asking, tenant, AnswerQuery(QUERY, rerank=rerank)).sources]
        for rerank in (False, True)
    )

    assert plain[0] != judged[0] == BIRDS[2]


@pytest.mark.parametrize("path", BOTH)
def test_a_local_model_does_the_same(serve: Serve, app: App, tmp_path: Path, path: str):
    http = serve(reranker=LocalReranker(write_model(tmp_path)))
    fill(http, app, *BIRDS)

    told = searched(http, path, rerank=True)

    best = dict(zip(texts(told), scores(told), strict=True))
    assert best[BIRDS[2]] == pytest.approx(0.952574, abs=1e-6)  # sigmoid(4 - 1)
    assert texts(told).index(BIRDS[2]) < texts(told).index(BIRDS[1])


@pytest.mark.parametrize("path", BOTH)
def test_more_is_judged_than_is_shown(serve: Serve, app: App, judge: Judge, path: str):
    http = serve(reranker=patient_judge(judge))
    fill(http, app, *BIRDS)
    assert texts(searched(http, path, limit=1)) != [BIRDS[2]]

    told = searched(http, path, limit=1, rerank=True)

    assert texts(told) == [BIRDS[2]]
    assert len(judge.asked[0]["documents"]) == 3


@pytest.mark.parametrize("path", BOTH)
def test_only_the_first_are_judged_and_the_others_stay_behind(
    serve: Serve, app: App, judge: Judge, path: str
):
    http = serve(reranker=patient_judge(judge), rerank_first=2)
    fill(http, app, *BIRDS)
    plain = texts(searched(http, path))

    told = searched(http, path, rerank=True)

    assert sorted(judge.asked[0]["documents"]) == sorted(plain[:2])
    assert sorted(texts(told)[:2]) == sorted(plain[:2])
    assert texts(told)[2:] == plain[2:]
    assert scores(told)[2] is None
    assert None not in scores(told)[:2]


@pytest.mark.parametrize("path", BOTH)
@pytest.mark.parametrize("said", [Says(500), Says(400), Says(body="[]"), Says(401)])
def test_an_engine_that_fails_costs_the_order_and_nothing_else(
    serve: Serve, app: App, judge: Judge, path: str, said: Says
):
    http = serve(reranker=patient_judge(judge))
    fill(http, app, *BIRDS)
    plain = searched(http, path)
    judge.misbehave = [said]

    with capture_logs() as lines:
        told = searched(http, path, rerank=True)

    assert texts(told) == texts(plain)
    assert set(scores(told)) == {None}
    [warning] = told["warnings"]
    assert warning.startswith("rerank: the reranker gave no answer (")
    assert [line["event"] for line in lines if line["log_level"] == "warning"] == ["left out"]
    assert "heron" not in str(lines)


def test_a_hanging_reranker_is_left_alone_and_asked_again(serve: Serve, app: App, judge: Judge):
    now, path = [0.0], "/v4/search"
    breaker = Breaker("test", failures=2, clock=lambda: now[0])
    reranker = EndpointReranker(judge.url, None, timeout=0.3, breaker=breaker)
    only_for_what_hangs(reranker._endpoint, lambda body: bool(judge.misbehave))
    http = serve(reranker=reranker)
    fill(http, app, *BIRDS)
    judge.misbehave = [NoJudgement()] * 9

    told = [searched(http, path, rerank=True) for _ in range(5)]

    eventually(lambda: len(judge.asked) >= 2)
    assert len(judge.asked) == 2
    assert [texts(one) for one in told] == [texts(searched(http, path))] * 5
    assert all("gave no answer (timeout); the order" in one["warnings"][0] for one in told[:2])
    spared = "(timeout) and is not asked for a while; the"
    assert all(spared in one["warnings"][0] for one in told[2:])
    now[0], judge.misbehave = 11.0, []
    assert "warnings" not in searched(http, path, rerank=True)
    assert len(judge.asked) == 3


def test_a_reranked_document_still_has_what_was_asked_for(serve: Serve, app: App, judge: Judge):
    http = serve(reranker=patient_judge(judge), embedder=None)
    long = "\n\n".join(
        f"## Part {n}\n\n{word} " + f"Filler number {n} goes on and on. " * 34
        for n, word in enumerate(["frog", "heron", "pond heron", "toad"])
    ).strip()
    [id] = fill(http, app, long)

    [hit] = found(http, QUERY, rerank=True, includeFullDocs=True, onlyMatchingChunks=False)

    assert hit["documentId"] == id
    assert len(hit["content"]) > 4_000
    best, *rest = hit["chunks"]
    assert "pond heron" in best["content"]
    assert best["rerankScore"] == 0.2
    neighbours = [chunk for chunk in rest if not chunk["score"]]
    assert neighbours
    assert not any("rerankScore" in chunk or chunk["isRelevant"] for chunk in neighbours)


def test_memories_and_chunks_are_judged_together(serve: Serve, app: App, judge: Judge):
    http = serve(reranker=patient_judge(judge))
    fill(http, app, "A heron in a pond, and a heron beside the pond.")
    body = {"containerTag": "sm_project_default", "memories": [{"content": "Ann saw a heron."}]}
    assert http.post("/v4/memories", json=body).status_code == 201

    asked: dict[str, Any] = {"searchMode": "hybrid", "threshold": 0, "rerank": True}
    told = searched(http, "/v4/search", **asked)
    remembered = searched(http, "/v4/search", **asked | {"searchMode": "memories"})

    kinds = [next(kind for kind in ("memory", "chunk") if kind in one) for one in told["results"]]
    assert kinds == ["chunk", "memory"]
    assert [one["rerankScore"] for one in told["results"]] == [0.4, 0.1]
    assert [one["rerankScore"] for one in remembered["results"]] == [0.1]


@pytest.mark.parametrize("path", BOTH)
def test_without_one_the_setting_is_named(serve: Serve, path: str):
    told = searched(serve(), path, rerank=True, rewriteQuery=True)

    rerank, rewrite = told["warnings"]
    assert "RECOLLECT_RERANK_MODEL" in rerank
    assert "RECOLLECT_RERANK_URL" in rerank
    assert "RECOLLECT_LLM_URL" in rewrite
    assert "RECOLLECT_LLM_MODEL" in rewrite


def test_nobody_is_asked_without_need(serve: Serve, app: App, judge: Judge):
    http = serve(reranker=patient_judge(judge))

    assert searched(http, "/v3/search", rerank=True)["results"] == []
    fill(http, app, *BIRDS)
    searched(http, "/v3/search")

    assert judge.asked == []


# --- other wordings ------------------------------------------------------------------------------


def says(*queries: str) -> Callable[[Asked], object]:
    def answer(asked: Asked) -> object:
        assert asked.data == {"query": "bird"}
        return {"queries": list(queries)}

    return answer


@pytest.mark.parametrize("path", BOTH)
def test_what_other_wordings_find_is_found(serve: Serve, app: App, model: Model, path: str):
    model.answer = says("heron", "  HERON ", "stork", "Bird", "", "x" * 501, "crane", "toad")
    http = serve(llm=patient(model), embedder=None)
    fill(http, app, "A heron waits.", "A stork flies.", "The crane calls.", "A toad sleeps.")
    assert searched(http, path, "bird")["results"] == []

    told = searched(http, path, "bird", rewriteQuery=True)

    assert "warnings" not in told
    # Of toads no more is asked: there are three wordings at most.
    assert sorted(texts(told)) == ["A heron waits.", "A stork flies.", "The crane calls."]
    [asked] = model.asked
    assert asked.schema is not None


def test_memories_are_found_by_other_wordings_once(serve: Serve, model: Model):
    model.answer = says("heron", "heron pond")
    http = serve(llm=patient(model))
    body = {"containerTag": "ann", "memories": [{"content": "Ann saw a heron at the pond."}]}
    assert http.post("/v4/memories", json=body).status_code == 201

    [one] = searched(
        http, "/v4/search", "bird", searchMode="memories", threshold=0.5, rewriteQuery=True
    )["results"]

    assert one["memory"] == "Ann saw a heron at the pond."


@pytest.mark.parametrize("path", BOTH)
@pytest.mark.parametrize(
    "fault", [HttpStatus(500), HttpStatus(400), HttpStatus(401), ModelSays("no JSON"), Silent()]
)
def test_a_model_that_fails_costs_the_wordings_and_little_time(
    serve: Serve, app: App, model: Model, path: str, fault: Any
):
    model.answer = lambda asked: fault
    http = serve(llm=Llm(model.url, "a-model", hurry=0.3, pauses=(30,)))
    fill(http, app, "A bird sings.", "A heron waits.")
    plain = searched(http, path, "bird")

    with capture_logs() as lines:
        told = searched(http, path, "bird", rewriteQuery=True)

    assert texts(told) == texts(plain)
    [warning] = told["warnings"]
    assert warning.startswith("rewriteQuery: the model gave no answer (")
    assert told["timing"] < 25_000, "a model that is tried again is waited for half a minute"
    assert "bird" not in str([line for line in lines if line["log_level"] != "debug"])


def test_a_hanging_model_is_left_alone_for_wordings_and_not_for_others(
    serve: Serve, app: App, model: Model
):
    now = [0.0]
    breaker = Breaker("test", failures=2, clock=lambda: now[0])
    model.answer = lambda asked: Silent()
    llm = Llm(model.url, "a-model", hurry=0.3, breaker=breaker)
    only_for_what_hangs(llm._hurried, lambda body: now[0] == 0.0)
    http = serve(llm=llm)
    fill(http, app, "A bird sings.", "A heron waits.")

    told = [searched(http, "/v3/search", "bird", rewriteQuery=True) for _ in range(5)]

    eventually(lambda: len(model.asked) >= 2)
    assert len(model.asked) == 2
    assert all("gave no answer (timeout); the query" in one["warnings"][0] for one in told[:2])
    assert all("is not asked for a while; the query" in one["warnings"][0] for one in told[2:])
    llm.check()  # who may wait is not kept from asking
    now[0], model.answer = 11.0, says("heron")
    found = searched(http, "/v3/search", "bird", rewriteQuery=True)
    assert "warnings" not in found
    assert "A heron waits." in texts(found)


def test_no_wording_reaches_beyond_the_callers_tags(serve: Serve, app: App, model: Model):
    model.answer = says("heron vault secret")
    http = serve(llm=patient(model))
    add(http, "The heron vault secret.", containerTag="vault")
    mine = add(http, "A bird sings.", containerTag="mine")
    drain(app)

    for path in BOTH:
        told = searched(http, path, "bird", containerTags=["mine"], rewriteQuery=True)
        ids = [one.get("documentId") or one["documents"][0]["id"] for one in told["results"]]
        assert set(ids) == {mine}


@pytest.mark.parametrize("path", BOTH)
def test_both_together_judge_by_the_query_itself(
    serve: Serve, app: App, model: Model, judge: Judge, path: str
):
    model.answer = says("heron")
    http = serve(llm=patient(model), reranker=patient_judge(judge))
    fill(http, app, "A heron waits.", "bird bird bird")

    told = searched(http, path, "bird", rewriteQuery=True, rerank=True)

    judged = dict(zip(texts(told), scores(told), strict=True))
    assert judged == {"bird bird bird": 0.3, "A heron waits.": 0.0}
    assert [body["query"] for body in judge.asked] == ["bird"]


def test_what_is_put_together_is_judged_with_the_rest(serve: Serve, model: Model, judge: Judge):
    def merge(asked: Asked) -> object:
        numbers = [one["number"] for one in asked.data["memories"]]
        return {"memories": [{"memory": "heron, pond, heron, pond", "of": numbers}]}

    model.answer = merge
    http = serve(llm=patient(model), reranker=patient_judge(judge))
    said = [{"content": "A heron, Ann says."}, {"content": "By the pond, Bob says."}]
    body = {"containerTag": "ann", "memories": said}
    assert http.post("/v4/memories", json=body).status_code == 201
    asked: dict[str, Any] = {"searchMode": "memories", "aggregate": True, "containerTag": "ann"}

    told = searched(http, "/v4/search", rerank=True, **asked)

    assert told["results"][0]["isAggregated"] is True
    assert [one["rerankScore"] for one in told["results"]] == [0.4, 0.1, 0.1]
    assert len(searched(http, "/v4/search", rerank=True, limit=1, **asked)["results"]) == 1


def test_a_wording_that_fits_all_counts_more_than_one_that_fits_one(
    serve: Serve, app: App, model: Model
):
    model.answer = says("heron pond", "pond")
    http = serve(llm=patient(model))
    fill(http, app, "bird", "heron at the pond of the bird", "pond")

    told: Sequence[dict[str, Any]] = found(http, "bird", rewriteQuery=True)

    assert told[0]["chunks"][0]["content"] == "heron at the pond of the bird"
    assert 0 < told[0]["score"] <= 1


# --- the doctor, the command line, assistants ----------------------------------------------------


def test_the_doctor_says_what_is_off_and_asks_what_there_is(judge: Judge, tmp_path: Path):
    [off] = doctor._reranker(Config(data_dir=tmp_path))
    assert off.state == "off"
    assert "RECOLLECT_RERANK_MODEL" in off.details

    there = Config(data_dir=tmp_path, rerank_url=judge.url, rerank_key=SecretStr("rk-a-secret"))
    [fine] = doctor._reranker(there)
    assert (fine.state, judge.authorizations) == ("ok", ["Bearer rk-a-secret"])
    judge.misbehave = [Says(401)]
    [wrong] = doctor._reranker(there)
    assert wrong.state == "FAIL"
    assert "RECOLLECT_RERANK_KEY" in wrong.details
    assert "rk-a-secret" not in wrong.details

    folder = write_model(tmp_path / "model")
    [local] = doctor._reranker(Config(data_dir=tmp_path, rerank_model=str(folder)))
    assert local.state == "ok"
    (folder / "model.onnx").write_bytes(b"")
    [broken] = doctor._reranker(Config(data_dir=tmp_path, rerank_model=str(folder)))
    assert broken.state == "FAIL"
    (folder / "model.onnx").unlink()
    with pytest.raises(SetupError, match="RECOLLECT_RERANK_MODEL"):
        doctor._reranker(Config(data_dir=tmp_path, rerank_model=str(folder)))


def test_the_command_line_reranks_or_says_why_not(serve: Serve, app: App, key: str, judge: Judge):
    with_one, without = serve(reranker=patient_judge(judge)), serve()
    fill(with_one, app, *BIRDS)

    def run(http: httpx.Client, *options: str) -> Result:
        to = ["--url", str(http.base_url), "--key", key]
        return CliRunner().invoke(cli, ["search", QUERY, "--rerank", *options, *to])

    found = json.loads(run(with_one, "--json").stdout)
    assert found["results"][0]["chunks"][0]["rerankScore"] == 0.4
    assert run(with_one).stdout.startswith("1. A heron, a pond, a heron")
    told = run(without)
    assert told.exit_code == 0
    assert "RECOLLECT_RERANK_MODEL" in told.stderr


def test_an_assistant_gets_the_reranked_order_or_the_reason(
    serve: Serve, app: App, key: str, judge: Judge
):
    with_one, without = serve(reranker=patient_judge(judge)), serve()
    fill(with_one, app, *BIRDS)

    def ask(http: httpx.Client) -> dict[str, Any]:
        body = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": "search", "arguments": {"query": QUERY, "rerank": True}},
        }
        accept = {"Accept": "application/json, text/event-stream"}
        answer = http.post("/mcp", json=body, headers=accept)
        assert answer.status_code == 200, answer.text
        return answer.json()["result"]["structuredContent"]

    first = ask(with_one)["results"][0]["passages"][0]
    assert (first["text"], first["rerank_score"]) == (BIRDS[2], 0.4)
    assert ask(with_one)["warnings"] is None
    [warning] = ask(without)["warnings"]
    assert "RECOLLECT_RERANK_MODEL" in warning
