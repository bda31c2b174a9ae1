"""The largest texts that the limits allow never make a transaction wait for Python."""

import random
from collections.abc import Generator
from dataclasses import replace
from datetime import timedelta
from itertools import count

import httpx
import pytest

from recollect import documents
from recollect.app import App
from recollect.db import Database
from recollect.documents import NewDocument, _finishing
from recollect.errors import ConflictError
from recollect.ingest import intake
from recollect.model import DocumentId, Tenant, random_id
from recollect.ops.verify import verify
from recollect.worker.processing import drain
from tests.conftest import plain_client, serving

LONGEST_IDLE = timedelta(seconds=3)
"""A second on a quiet machine; others may work beside it."""
LONG = "a line that is long enough\n" * 2_000


@pytest.fixture(scope="module")
def strict(app: App, database_url: str) -> Generator[App]:
    """A process whose sessions the server ends when a transaction waits for Python so long."""
    with Database(database_url, idle_timeout=LONGEST_IDLE) as db:
        yield replace(app, db=db)


@pytest.fixture(scope="module")
def strict_url(strict: App) -> Generator[str]:
    with serving(strict) as url:
        yield url


@pytest.fixture
def client(strict_url: str, key: str) -> Generator[httpx.Client]:
    with plain_client(strict_url, {"Authorization": f"Bearer {key}"}) as http:
        http.timeout = httpx.Timeout(150)
        yield http


def sent(client: httpx.Client, path: str, **body: object) -> str:
    answer = client.request("PATCH" if path.count("/") == 3 else "POST", path, json=body)
    assert answer.status_code == 200, answer.text[:500]
    return answer.json()["id"]


def stored(db: Database, id: str) -> tuple[int, str]:
    with db.begin() as tx:
        row = tx.execute("select revision, content from documents where id = %s", (id,)).fetchone()
    assert row is not None
    return row["revision"], row["content"]


def lines(n: int) -> list[str]:
    return [f"line {number:08}" for number in range(n)]


@pytest.mark.costly
@pytest.mark.timeout(600)
def test_a_text_of_half_a_million_lines_can_be_sent_again_and_edited(
    client: httpx.Client, db: Database
):
    old = lines(500_000)
    moved = [f"first {old[0]}", *old[230_000:], *old[1:230_000], "last"]
    id = sent(client, "/v3/documents", content="\n".join(old), customId="log")

    assert sent(client, "/v3/documents", content="\n".join(old), customId="log") == id
    assert stored(db, id)[0] == 1
    assert sent(client, "/v3/documents", content="\n".join(moved), customId="log") == id
    assert stored(db, id) == (2, "\n".join(moved))


@pytest.mark.timeout(600)
def test_a_text_of_the_largest_size_is_taken_replaced_and_grows(client: httpx.Client, db: Database):
    words = random.Random(5).choices(["heron", "Käse", "stork", "crane"], k=2_000_000)
    half, most = " ".join(words), intake.CONTENT_LIMIT
    whole = (half * 5).encode()[: most - 1].decode(errors="ignore")
    id = sent(client, "/v3/documents", content=half, customId="book")

    assert sent(client, "/v3/documents", content=whole, customId="book") == id
    assert stored(db, id) == (2, whole)
    assert sent(client, f"/v3/documents/{id}", content=half) == id
    assert stored(db, id) == (3, half)


@pytest.mark.parametrize(
    "said",
    [
        pytest.param(lambda n: "ok" * 500, id="the same"),
        pytest.param(lambda n: f"{'ok' * 500} {n}", id="all different"),
    ],
)
def test_a_conversation_of_the_most_turns_grows(
    client: httpx.Client, db: Database, said: type[str]
):
    talk = [{"role": "user", "content": said(n)} for n in range(9_999)]
    more = {"role": "user", "content": "bye"}
    id = sent(client, "/v4/conversations", conversationId="talk", messages=talk)

    window = [*talk[5_000:], more]
    assert sent(client, "/v4/conversations", conversationId="talk", messages=window) == id
    revision, text = stored(db, id)
    assert (revision, text.count("user: ")) == (2, 10_000)


def test_metadata_of_the_most_that_is_taken(client: httpx.Client):
    long = "\U0001f600" * (intake.METADATA_VALUE // 4)
    metadata = {f"key {n}": long for n in range(9)} | {f"k{n}": "x" for n in range(500)}

    id = sent(client, "/v3/documents", content="short", customId="labels", metadata=metadata)
    assert sent(client, f"/v3/documents/{id}", metadata=metadata) == id
    assert sent(client, "/v3/documents", content="more", customId="labels", metadata=metadata) == id


def test_what_others_change_while_long_texts_are_joined_is_kept(strict: App, tenant: Tenant):
    def put(text: str, **more: object) -> None:
        new = NewDocument(documents.text_content(text), ["a"], custom_id="log")
        intake.put(strict, tenant, replace(new, **more), None)

    def meanwhile(old: str, new: str, recent: bool) -> str:
        if "theirs" not in old:
            put("theirs", join=lambda old, new, _: old + new)
        return old + new

    put(LONG)
    put("ours", join=meanwhile)

    with strict.db.begin() as tx:
        found = documents.get(tx, tenant, "log")
    assert stored(strict.db, found.id) == (3, LONG + "theirs" + "ours")


def test_a_text_that_is_changed_again_and_again_is_given_up(strict: App, tenant: Tenant):
    number = count()
    new = NewDocument(documents.text_content(LONG), ["a"], custom_id="log")
    intake.put(strict, tenant, new, None)

    def meanwhile(old: str, new: str, recent: bool) -> str:
        with strict.db.begin() as tx:
            other = documents.text_content(f"{LONG} {next(number)}")
            documents.update(tx, tenant, "log", documents.DocumentChange(content=other))
        return old + new

    with pytest.raises(ConflictError, match="was changed by others 5 times"):
        intake.put(strict, tenant, replace(new, join=meanwhile), None)
    assert next(number) == intake.JOINS


def test_nothing_is_written_before_long_texts_are_joined(strict: App, tenant: Tenant):
    new = NewDocument(documents.text_content(LONG), ["a"], custom_id="log", metadata={"n": 1})
    intake.put(strict, tenant, new, None)
    again = replace(new, metadata={"n": 2}, content=documents.text_content("more"))

    with pytest.raises(documents.Unjoined) as found, strict.db.begin() as tx:
        documents.add(tx, tenant, again, DocumentId(random_id()))
    with strict.db.begin() as tx:
        assert documents.get(tx, tenant, "log").metadata == {"n": 1}
        joined = documents.join(found.value, again)
        documents.add(tx, tenant, again, DocumentId(random_id()), joined=joined)
        assert documents.get(tx, tenant, "log").metadata == {"n": 2}


def test_the_index_takes_a_long_text_in_several_statements(
    client: httpx.Client, app: App, monkeypatch: pytest.MonkeyPatch
):
    """Each has its minute: of 13,000 entries in one, a busy machine took in none."""
    monkeypatch.setattr(_finishing, "COPIED", 3)
    text = "\n\n".join(f"Heron {n} stands by pond {n}. " * 40 for n in range(20))
    id = client.post("/v3/documents", json={"content": text}).json()["id"]
    drain(app)

    chunks = client.get(f"/v3/documents/{id}/chunks").json()["chunks"]
    assert len(chunks) > 2 * 3
    assert verify(app.db, app.blobs).findings == []
