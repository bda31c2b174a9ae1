"""Clauses of the contract and of the promises about memories that no other test holds alone."""

from collections.abc import Callable, Generator
from dataclasses import replace

import httpx
import pytest
from fastapi.testclient import TestClient
from pydantic import SecretStr

from recollect.api import create_app
from recollect.app import App
from recollect.errors import Permanent
from recollect.inference.llm import Llm, Question, Reply
from recollect.worker import maintenance
from tests.fakes.llm import Asked, Model, Says, running


class Fine(Reply):
    word: str


ASKED = Question("memories", "Say a word.", {"text": "heron"}, Fine)


@pytest.fixture
def model() -> Generator[Model]:
    with running(Model(answer=lambda asked: {"word": "yes"})) as started:
        yield started
    assert started.faults == []


def billed(app: App) -> Callable[[], dict[str, float]]:
    """What /metrics shows of the model, by line."""
    config = app.config.model_copy(update={"metrics_token": SecretStr("token")})

    def look() -> dict[str, float]:
        with TestClient(create_app(replace(app, config=config))) as http:
            told = http.get("/metrics", headers={"Authorization": "Bearer token"}).text
        lines = [one for one in told.splitlines() if one.startswith("recollect_llm_")]
        return {name: float(value) for name, value in (one.rsplit(" ", 1) for one in lines)}

    return look


def test_what_a_model_costs_is_counted_once_where_the_operator_looks(app: App, model: Model):
    """Issue 9, cost counters: calls, failures, tokens and time, by purpose, over all processes."""
    llm = Llm(model.url, "a-model", pauses=())
    with_model = replace(app, llm=llm)
    look = billed(app)
    before = look()
    llm.ask(ASKED)
    maintenance.flush(with_model)  # as a worker does
    llm.ask(ASKED)
    model.answer = lambda asked: Says(None, refusal="no")
    with pytest.raises(Permanent):
        llm.ask(ASKED)
    spent = llm.spent["memories"]
    maintenance.flush(with_model)
    maintenance.flush(with_model)
    after = look()
    llm.close()

    def more(name: str) -> float:
        return after[name] - before.get(name, 0.0)

    assert more('recollect_llm_requests_total{purpose="memories"}') == spent.calls == 3
    assert more('recollect_llm_failures_total{purpose="memories"}') == 1
    assert spent.prompt_tokens > 0
    prompt = 'recollect_llm_tokens_total{kind="prompt",purpose="memories"}'
    assert more(prompt) == spent.prompt_tokens
    completion = 'recollect_llm_tokens_total{kind="completion",purpose="memories"}'
    assert more(completion) == spent.completion_tokens
    seconds = more('recollect_llm_seconds_total{purpose="memories"}')
    assert seconds == pytest.approx(spent.seconds)


def test_a_search_bills_its_process_too(app: App, key: str, model: Model):
    """What the API spends on searches is shown by the API, which no worker adds up."""
    llm = Llm(model.url, "a-model", hurry=60)
    model.answer = says_nothing
    config = app.config.model_copy(update={"metrics_token": SecretStr("token")})
    line = 'recollect_llm_requests_total{purpose="rewrite"} '

    def counted(http: TestClient) -> float:
        told = http.get("/metrics", headers={"Authorization": "Bearer token"}).text
        found = [one for one in told.splitlines() if one.startswith(line)]
        return float(found[0].removeprefix(line)) if found else 0.0

    with TestClient(create_app(replace(app, llm=llm, config=config))) as http:
        before = counted(http)
        body = {"q": "heron", "rewriteQuery": True}
        answer = http.post("/v3/search", json=body, headers={"Authorization": f"Bearer {key}"})
        assert answer.status_code == 200
        assert counted(http) == before + 1
    llm.close()


def says_nothing(asked: Asked) -> object:
    return {"queries": []}


def test_a_result_has_what_strict_clients_ask_for(client: httpx.Client):
    """D4: required-but-nullable fields are there with null; optional ones are absent."""
    body = {"containerTag": "ann", "memories": [{"content": "Ann likes tea."}]}
    assert client.post("/v4/memories", json=body).status_code == 201

    told = client.post("/v4/search", json={"q": "tea", "containerTag": "ann"}).json()

    assert set(told) == {"results", "timing", "total"}
    [one] = told["results"]
    assert one["metadata"] is None
    assert set(one) <= {
        "id",
        "memory",
        "similarity",
        "metadata",
        "updatedAt",
        "version",
        "rootMemoryId",
    }
    assert {"id", "memory", "similarity", "metadata", "updatedAt"} <= set(one)
    assert 0.6 <= one["similarity"] <= 1
