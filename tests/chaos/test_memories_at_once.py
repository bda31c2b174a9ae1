"""Who forgets a memory at the moment in which another corrects it forgets the correction, too."""

import threading
from collections.abc import Callable

import httpx
import pytest

from recollect.app import App
from recollect.index import terms
from recollect.memories import memories, reading
from recollect.memories.records import Correction, Fact, MemoryQuery, MemoryTarget
from recollect.model import DocumentId, Tenant, random_id
from tests.conftest import eventually, plain_client, serving

Act = Callable[[httpx.Client, str], httpx.Response]


def by_id(http: httpx.Client, id: str) -> httpx.Response:
    return http.request("DELETE", "/v4/memories", json={"id": id, "containerTag": "a"})


def one_of_many(http: httpx.Client, id: str) -> httpx.Response:
    body = {"ids": [id], "containerTag": "a", "dryRun": False}
    return http.post("/v4/memories/forget-matching", json=body)


@pytest.mark.parametrize("act", [by_id, one_of_many])
def test_what_is_corrected_at_the_moment_it_is_forgotten_is_forgotten(
    app: App, tenant: Tenant, key: str, act: Act
) -> None:
    def weigh(text: str) -> dict[int, float]:
        return terms.weigh(tenant.id, text)

    old, new = "Ann likes tea.", "Ann likes coffee."
    with app.db.begin() as tx:
        fact = Fact(old, weigh(old))
        _, [made] = memories.add(tx, tenant, "a", [fact], DocumentId(random_id()))
    answers: list[httpx.Response] = []
    headers = {"Authorization": f"Bearer {key}"}
    with serving(app) as url, plain_client(url, headers) as http:
        forgetting = threading.Thread(target=lambda: answers.append(act(http, made.id)))
        with app.db.begin() as tx:
            memories.correct(tx, tenant, "a", MemoryTarget(made.id), Correction(new, weigh(new)))
            forgetting.start()
            eventually(
                lambda: tx.execute(
                    "select 1 from pg_locks where not granted and pg_backend_pid() ="
                    " any(pg_blocking_pids(pid))"
                ).fetchone()
            )
        forgetting.join(60)

    [answer] = answers
    assert answer.status_code == 200, answer.text
    assert answer.json().get("count", 1) == 1
    with app.db.begin() as tx:
        assert reading.find(tx, tenant, MemoryQuery(any_of=["a"])).items == []
