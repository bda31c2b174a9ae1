"""The plans of searches over memories and of the queue that draws them, at 29,900 of each.

Meaning is compared with every live memory in question, exactly: what bounds a search is the tag,
by its index. Whoever has few memories pays for few, however many others there are. Up to 30,000
rows `analyze` reads all; of more it draws lots, and a plan might be another the next time.
"""

import contextlib
import re
from collections.abc import Callable, Generator, Sequence
from datetime import timedelta

import numpy as np
import psycopg
import pytest

from recollect import documents
from recollect.db import Database, Tx
from recollect.documents import DocumentChange
from recollect.index import phrases, terms, vector_index
from recollect.memories import extraction_queue, finding, memories, reading, records
from recollect.memories.records import MemoryQuery
from recollect.model import DocumentId, Plan, Tenant
from recollect.orgs import orgs
from tests.search.test_query_plans import Explained, ExplainingCursor, nodes, one

MEMORIES = 14_900
FEW = 100
pytestmark = pytest.mark.one_server
WORD = "zebra"
DIMENSIONS = 16
NOISE = np.random.default_rng(5).normal(size=DIMENSIONS).astype(np.float32)
Explain = Callable[[Callable[[Tx], object]], list[Explained]]


@pytest.fixture(scope="module")
def large(new_database: Callable[[], str]) -> Generator[tuple[Database, Tenant]]:
    """An organisation with a large tag and a small one, beside another as large."""
    url = new_database()
    with Database(url) as db:
        with db.begin() as tx:
            tenant = Tenant(orgs.create(tx, "large", Plan.ENTERPRISE).id)
            other = Tenant(orgs.create(tx, "other", Plan.ENTERPRISE).id)
            vector_index.adopt(tx, "fake:noise", DIMENSIONS)
            for one_of in (tenant, other):
                fill(tx, one_of, "many", MEMORIES)
            fill(tx, tenant, "few", FEW)
        with psycopg.connect(url, autocommit=True) as session:
            session.execute("vacuum analyze")
        yield db, tenant


def fill(tx: Tx, tenant: Tenant, tag: str, count: int) -> None:
    """Memories of as many documents, each of which is due to be read, too."""
    given = {
        "org": tenant.id,
        "tag": tag,
        "scope": documents.scope(tenant.id, [tag]),
        "count": count,
        "word": next(iter(terms.weigh(tenant.id, WORD))),
        "dimensions": DIMENSIONS,
    }
    # Triggers, row by row, would take minutes.
    tx.execute("set local session_replication_role = replica")
    tx.execute(
        "insert into documents (id, org_id, container_tags, scope, kind, source, content,"
        " content_hash, status, due_at, indexed_revision, text)"
        " select %(org)s || %(tag)s || n, %(org)s, array[%(tag)s], %(scope)s::int4[], 'text',"
        "  'api', 'text ' || n, sha256(n::text::bytea), 'done', null, 1, 'text ' || n"
        " from generate_series(1, %(count)s) n",
        given,
    )
    tx.execute(
        "insert into memories (id, org_id, tag, content, terms, weights, embedding, updated_at)"
        " select %(org)s || %(tag)s || n, %(org)s, %(tag)s, 'fact ' || n,"
        "  array[1000000 + n %% 5000] || case when n %% 500 = 0 then array[%(word)s::int4]"
        "   else '{}' end,"
        "  format('{%%s:1.5,%%s:0.5}/1000000000', %(word)s, 2000000 + n %% 300)::sparsevec,"
        "  (select array_agg(hashint4(n * 100 + i) / 4294967296.0)"
        "   from generate_series(1, %(dimensions)s) i)::vector::halfvec,"
        "  now() - n * interval '1 s'"
        " from generate_series(1, %(count)s) n",
        given,
    )
    tx.execute(
        "insert into dreams (document_id, org_id, due_at)"
        " select %(org)s || %(tag)s || n, %(org)s, now() + interval '1 day'"
        " from generate_series(1, %(count)s) n",
        given,
    )
    tx.execute(
        "insert into chunks (document_id, position, start_at, end_at, hash)"
        " select %(org)s || %(tag)s || n, 0, 0, 4, sha256(n::text::bytea)"
        " from generate_series(1, %(count)s) n",
        given,
    )
    tx.execute(
        "insert into memory_reads (document_id, hash)"
        " select %(org)s || %(tag)s || n, sha256(n::text::bytea)"
        " from generate_series(1, %(count)s) n where n %% 2 = 0",
        given,
    )
    tx.execute(
        "insert into memory_sources (memory_id, document_id, hash, start_at, end_at)"
        " select %(org)s || %(tag)s || n, %(org)s || %(tag)s || n, '', 0, 4"
        " from generate_series(1, %(count)s) n",
        given,
    )


@pytest.fixture
def explain(large: tuple[Database, Tenant]) -> Explain:
    """Runs work in a transaction that is undone; returns the plans of its statements."""

    def explained(work: Callable[[Tx], object]) -> list[Explained]:
        ExplainingCursor.explained.clear()
        with contextlib.suppress(Undo), large[0].begin() as tx:
            factory, tx.cursor_factory = tx.cursor_factory, ExplainingCursor
            try:
                work(tx)
            finally:
                tx.cursor_factory = factory
            raise Undo
        return list(ExplainingCursor.explained)

    return explained


class Undo(Exception):
    """Roll back."""


def reads(found: Explained) -> list[tuple[str, str]]:
    """How the plan comes by memories: the kind of each node on them, and its conditions."""
    return [
        (node["Node Type"], str(node.get("Index Cond", "")))
        for node in nodes(found.plan)
        if node.get("Relation Name") == "memories" or node["Node Type"] == "Bitmap Index Scan"
    ]


@pytest.mark.parametrize("tag", ["few", "many"])
@pytest.mark.parametrize("words", [WORD, "unheard-of"])
def test_a_search_in_a_tag_reads_that_tag_and_nothing_else(
    explain: Explain, large: tuple[Database, Tenant], tag: str, words: str
):
    def work(tx: Tx) -> None:
        query = MemoryQuery(tags=[tag], limit=10)
        found = finding.search(tx, large[1], words, NOISE, query)
        assert {one.memory.tag for one in found} == {tag}

    plans = [found for found in explain(work) if "from memories m" in found.statement]

    assert len(plans) == 2  # how common the words are, and the search
    for found in plans:
        assert not found.scans("memories"), found.statement
        assert found.indexes & {"memories_tag", "memories_content"}  # both begin with the tag
        for kind, condition in reads(found):
            # By tag, by word, by id: nothing walks all that an organisation has.
            assert re.search(r"\b(tag|terms|id)\b", condition) or "Bitmap Heap" in kind, kind


def test_an_excluded_phrase_brings_a_bounded_number_of_memories_here(
    explain: Explain, large: tuple[Database, Tenant]
):
    """All of a tag, and of an organisation, came once, with their texts, to be read for it."""
    reading = phrases.read(f'{WORD} -"no such fact"')

    def work(tx: Tx) -> None:
        query = MemoryQuery(excluded=reading.excluded, limit=100)
        assert len(finding.search(tx, large[1], WORD, NOISE, query)) == 100

    found = one(explain(work), "with lexical")

    limits = [node["Plan Rows"] for node in nodes(found.plan) if node["Node Type"] == "Limit"]
    assert len(limits) == 2  # by words and by meaning
    assert max(limits) <= finding.READ


@pytest.mark.parametrize(
    "work",
    [
        lambda tx, tenant: reading.known(tx, tenant, "few"),
        lambda tx, tenant: reading.profile(tx, tenant, "few", None, []),
        lambda tx, tenant: reading.drawn(tx, tenant, ["few"]),
        lambda tx, tenant: reading.unread(tx, DocumentId(f"{tenant.id}few1")),
        lambda tx, tenant: reading.unread_count(tx, DocumentId(f"{tenant.id}few1")),
        lambda tx, tenant: memories.store(
            tx,
            tenant.id,
            DocumentId(f"{tenant.id}few1"),
            "few",
            [
                records.Fact(
                    "fact 2",
                    {},
                    updates=records.MemoryId(f"{tenant.id}few3"),
                    related={records.MemoryId(f"{tenant.id}few4"): records.Relation.EXTENDS},
                    spans=[records.Span(b"x", 0, 1)],
                )
            ],
            read=[b"x"],
        ),
        lambda tx, tenant: documents.delete(tx, tenant, [f"{tenant.id}few2"]),
    ],
    ids=["known", "profile", "drawn", "unread", "unread count", "store", "delete"],
)
def test_work_in_a_small_tag_reads_no_table_whole(
    explain: Explain, large: tuple[Database, Tenant], work: Callable[[Tx, Tenant], object]
):
    for found in explain(lambda tx: work(tx, large[1])):
        for table in ("memories", "memory_sources", "memory_reads", "documents", "chunks"):
            assert not found.scans(table), found.statement


@pytest.mark.parametrize("tag", ["else", "many"], ids=["new", "says the same"])
def test_a_document_that_changes_its_tag_reads_no_table_whole(
    large: tuple[Database, Tenant], tag: str
):
    """Where the new tag has a memory that says the same, the two become one."""
    db, tenant = large
    id = f"{tenant.id}few1"

    def read(tx: Tx) -> Sequence[object]:
        """Rows that this session read by going through a table."""
        return tx.execute(
            "select relname, seq_tup_read from pg_stat_xact_user_tables"
            " where relname in ('memories', 'memory_sources', 'documents') order by relname"
        ).fetchall()

    with contextlib.suppress(Undo), db.begin() as tx:
        before = read(tx)
        documents.update(tx, tenant, DocumentId(id), DocumentChange(tags=[tag]))
        after = read(tx)
        moved = tx.execute("select tag from memories where id = %s", (id,)).fetchone()

        assert moved == {"tag": tag}
        assert after == before
        raise Undo


def test_a_claim_walks_the_turns(explain: Explain, large: tuple[Database, Tenant]):
    with large[0].begin() as tx:
        row = tx.execute("select count(*) as n from dreams where due_at is not null").fetchone()
    assert row is not None
    assert row["n"] >= 2 * MEMORIES

    def claim(tx: Tx) -> None:
        tx.execute("update dreams set due_at = now() where document_id like %s", ("%many7%",))
        claims = extraction_queue.claim(tx, lease=timedelta(seconds=60), limit=4)
        assert len({one.org_id for one in claims}) == 2

    found = one(explain(claim), "with recursive orgs")

    assert found.indexes == {"dreams_due", "dreams_pkey"}
    assert not found.scans("dreams")


def test_renewing_and_letting_go_find_their_rows(explain: Explain):
    def work(tx: Tx) -> None:
        tx.execute("update dreams set due_at = now() where document_id like %s", ("%many7%",))
        held = extraction_queue.claim(tx, lease=timedelta(seconds=60), limit=2)
        extraction_queue.renew(tx, held, lease=timedelta(seconds=60))
        extraction_queue.onward(tx, held[0], 3, None)
        extraction_queue.release(tx, held[1:])

    for found in explain(work):
        if "like" not in found.statement:
            assert not found.scans("dreams"), found.statement
