"""Answers are bounded: what does not fit is left out and said so, and few large ones go at once."""

import gc
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from recollect import documents
from recollect.api.document_schemas import StatusCounts
from recollect.api.room import MOST_TEXT, Holding, Room, with_texts
from recollect.app import App
from recollect.db import Database
from recollect.documents import DocumentQuery
from recollect.errors import Unavailable
from recollect.model import Org, OrgId, Tenant
from recollect.worker.processing import drain
from tests.conftest import plain_client
from tests.contract.calls import add, get, refused

LARGE = 6_000_000
OURS = Tenant(OrgId("o"))


@pytest.fixture
def large(client: httpx.Client, db: Database, org: Org) -> list[str]:
    """Finished documents with long texts, one small one before and one behind them."""
    ids = [add(client, f"heron number {n}") for n in range(5)]
    with db.begin() as tx:
        for n, id in enumerate(ids):
            size = 10 if n in (0, 4) else LARGE
            tx.execute(
                "update documents set status = 'done', due_at = null, indexed_revision = revision,"
                " text = repeat('heron', %s), created_at = now() + %s * interval '1 second'"
                " where id = %s",
                (size // 5, n, id),
            )
    return ids


def listed(client: httpx.Client, **query: Any) -> dict[str, Any]:
    answer = client.post("/v3/documents/list", json={"includeContent": True, **query})
    assert answer.status_code == 200, answer.text[:300]
    return answer.json()


def test_a_list_leaves_out_the_texts_that_do_not_fit_and_says_so(
    client: httpx.Client, large: list[str]
):
    page = listed(client, order="asc", limit=100)
    shown = {one["id"]: len(one["content"] or "") for one in page["memories"] if "content" in one}

    assert [one["id"] for one in page["memories"]] == large
    assert shown == {large[0]: 10, large[1]: LARGE, large[2]: LARGE, large[4]: 10}
    assert sum(shown.values()) <= MOST_TEXT
    [warning] = page["warnings"]
    assert "1 document is left out" in warning
    assert "GET /v3/documents/" in warning
    assert len(get(client, large[3])["content"]) == LARGE


def test_a_list_that_fits_has_no_warning(client: httpx.Client, large: list[str]):
    assert "warnings" not in listed(client, order="asc", limit=2)
    plain = client.post("/v3/documents/list", json={}).json()
    assert "warnings" not in plain
    assert all("content" not in one for one in plain["memories"])


def test_one_document_is_never_cut(client: httpx.Client, db: Database, large: list[str]):
    with db.begin() as tx:
        tx.execute(
            "update documents set text = repeat('x', %s) where id = %s", (MOST_TEXT + 1, large[0])
        )
    assert len(get(client, large[0])["content"]) == MOST_TEXT + 1
    page = listed(client, order="asc", limit=1)
    assert len(page["memories"][0]["content"]) == MOST_TEXT + 1


def test_a_document_that_changes_while_a_list_is_read_keeps_its_text(
    client: httpx.Client, app: App, tenant: Tenant
):
    add(client, "heron", containerTag="a")
    with app.db.begin() as tx:
        [found] = documents.find(tx, tenant, DocumentQuery()).items
    drain(app)
    with Holding(Room(1_000_000), tenant) as holding:
        [shown] = with_texts(app, tenant, [found], holding, "includeContent", [])

    assert shown.text == "heron"


def test_room_is_given_back_when_the_answer_is_gone():
    room = Room(10_000_000)
    with Holding(room, OURS) as holding:
        holding.take(8_000_000)
        answer = holding.answer(StatusCounts(queued=0, processing=0, done=0, failed=0))
    with pytest.raises(Unavailable, match="too many large answers"), Holding(room, OURS) as other:
        other.take(8_000_000)
    del answer
    gc.collect()
    with Holding(room, OURS) as other:
        other.take(8_000_000)
    with Holding(room, OURS) as again:  # `other` came to no answer
        again.take(8_000_000)


def test_one_that_is_larger_than_the_room_goes_alone():
    room = Room(10_000_000)
    with Holding(room, OURS) as holding:
        holding.take(50_000_000)
        with pytest.raises(Unavailable):
            room.take(2_000_000, "p")


def test_an_organisation_leaves_room_to_others_while_its_answers_are_read():
    room = Room(9_000_000)
    room.take(3_000_000, "o")
    room.take(3_000_000, "o")
    with pytest.raises(Unavailable, match="too many large answers"):
        room.take(2_000_000, "o")
    room.take(3_000_000, "p")
    room.give_back(6_000_000, "o")
    room.take(6_000_000, "o")


def test_what_waits_goes_when_there_is_room():
    room = Room(10_000_000)
    room.take(9_000_000, "o")
    passed = threading.Event()

    def wait() -> None:
        room.take(9_000_000, "o")
        passed.set()

    thread = threading.Thread(target=wait)
    thread.start()
    room.give_back(9_000_000, "o")
    thread.join(30)

    assert passed.is_set()


def test_many_large_answers_at_once_are_right_or_asked_to_come_again(
    client: httpx.Client, app: App, large: list[str], live_url: str
):
    def ask(n: int) -> int:
        with plain_client(live_url, client.headers) as own:
            answer = own.get(f"/v3/documents/{large[1 + n % 3]}")
            if answer.status_code == 200:
                assert len(answer.json()["content"]) == LARGE
            else:
                assert answer.status_code == 503
                assert answer.headers["retry-after"]
            return answer.status_code

    with ThreadPoolExecutor(24) as pool:
        codes = list(pool.map(ask, range(48)))

    assert 200 in codes
    assert set(codes) <= {200, 503}
    assert client.get("/health").status_code == 200


def test_metadata_is_bounded_as_a_whole(client: httpx.Client):
    fits = {f"key{n}": "x" * 9_000 for n in range(10)}
    add(client, "fits", metadata=fits)
    answer = client.post(
        "/v3/documents", json={"content": "does not", "metadata": {**fits, "more": "x" * 9_999}}
    )
    refused(answer, 400, "at most 100,000 bytes in all")
