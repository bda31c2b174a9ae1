"""The plans of the statements that the code runs, at 29,000 documents and as many entries.

A cursor explains each statement before it runs it, so that none is written down here again. Up to
30,000 rows `analyze` reads all; of more it draws lots, and a plan might be another the next time.
"""

import contextlib
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Self, cast

import numpy as np
import psycopg
import pytest
from psycopg import Cursor, sql
from psycopg.rows import DictRow

from recollect import documents
from recollect.db import Database, Tx, look_back
from recollect.documents import DocumentQuery, NewDocument
from recollect.documents.filters import parse as parse_filter
from recollect.index import terms, vector_index
from recollect.model import ConnectionId, DocumentId, Plan, Status, Tenant
from recollect.ops import verify
from recollect.orgs import orgs, tags
from recollect.search import candidates, hybrid, walks

DOCUMENTS = 29_000
DUE = 2_900
FEW = 100
"""documents of the tag `few`; all have the tag `many`"""
RARE_WORD = "zebra"
pytestmark = pytest.mark.one_server
RARE = 500
MEMBERS = "documents_archive"
"""by which the members of each archive among what is read are counted"""
DIMENSIONS = 16


@dataclass(frozen=True, slots=True)
class Explained:
    """One statement with its plan."""

    statement: str
    plan: Mapping[str, Any]

    @property
    def indexes(self) -> set[str]:
        return {node["Index Name"] for node in nodes(self.plan) if "Index Name" in node}

    def scans(self, table: str) -> bool:
        """Whether it reads all of the table."""
        return any(
            node["Node Type"] == "Seq Scan" and node["Relation Name"] == table
            for node in nodes(self.plan)
        )


def nodes(plan: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield plan
    for part in plan.get("Plans", []):
        yield from nodes(part)


class ExplainingCursor(Cursor[DictRow]):
    """Keeps the plan of each statement that has one."""

    explained: ClassVar[list[Explained]] = []

    def execute(self, query: Any, params: Any = None, **how: Any) -> Self:
        statement: str = query.as_string(self) if isinstance(query, sql.Composable) else query
        if statement.lstrip().startswith(("select", "with", "insert", "update", "delete")):
            explain = f"explain (format json) {statement}"
            row = super().execute(explain.encode(), params, **how).fetchone()
            assert row is not None
            self.explained.append(Explained(statement, row["QUERY PLAN"][0]["Plan"]))
        return super().execute(cast("Any", query), params, **how)


Explain = Callable[[Callable[[Tx], object]], list[Explained]]


@pytest.fixture(scope="module")
def large(new_database: Callable[[], str]) -> Generator[tuple[Database, Tenant]]:
    """A database with one large organisation and a small one beside it."""
    url = new_database()
    with Database(url) as db:
        with db.begin() as tx:
            tenant = Tenant(orgs.create(tx, "large", Plan.ENTERPRISE).id)
            other = Tenant(orgs.create(tx, "small", Plan.ENTERPRISE).id)
            fill(tx, tenant, DOCUMENTS)
            fill(tx, other, 1_000)
            vector_index.adopt(tx, "fake:noise", DIMENSIONS)
        with psycopg.connect(url, autocommit=True) as session:
            session.execute("vacuum analyze")
        yield db, tenant


def fill(tx: Tx, tenant: Tenant, count: int) -> None:
    """Documents of one chunk each; every tenth is due, the newest `FEW` have a tag of their own.

    An eighth has vectors, of noise that is the same each time: their index takes most of the time.
    """
    numbers = {
        "org": tenant.id,
        "count": count,
        "due": count * DUE // DOCUMENTS,
        "few": FEW,
        "rare": RARE,
        "many_scope": documents.scope(tenant.id, ["many"]),
        "few_scope": documents.scope(tenant.id, ["many", "few"]),
        "rare_word": next(iter(terms.weigh(tenant.id, RARE_WORD))),
        "dimensions": DIMENSIONS,
    }
    # Triggers, row by row, would take most of the time.
    tx.execute("set local session_replication_role = replica")
    tx.execute(
        "insert into documents (id, org_id, custom_id, container_tags, scope, kind, source,"
        " filepath, metadata, content, content_hash, status, due_at, indexed_revision, text,"
        " chunks, created_at, updated_at)"
        " select %(org)s || n, %(org)s, 'custom' || n,"
        "  case when n <= %(few)s then '{many,few}'::text[] else '{many}' end,"
        "  case when n <= %(few)s then %(few_scope)s::int4[] else %(many_scope)s end,"
        "  'text', 'api', '/' || n, jsonb_build_object('batch', n / 50, 'even', n %% 2 = 0),"
        "  'text ' || n, sha256(n::text::bytea),"
        "  case when n <= %(due)s then 'queued' else 'done' end,"
        "  case when n <= %(due)s then now() - n * interval '1 second' end,"
        "  1, 'text ' || n || repeat(' and more', 100), 1,"
        "  now() - n * interval '1 minute', now() - n * interval '1 minute'"
        " from generate_series(1, %(count)s) n",
        numbers,
    )
    tx.execute(
        "insert into entries (document_id, hash, text, terms, weights, embedding)"
        " select d.id, decode(md5(d.id), 'hex'), d.text,"
        "  d.scope || 1000000 + n %% 5000 || 2000000 + n %% 300"
        "   || case when n %% %(count)s < %(rare)s then array[%(rare_word)s::int4] else '{}' end,"
        "  format('{%%s:1.5,%%s:0.5}/1000000000', %(rare_word)s, 2000000 + n %% 300)::sparsevec,"
        "  case when n %% 8 = 0 then (select array_agg(hashint4(n * 100 + i) / 4294967296.0)"
        "   from generate_series(1, %(dimensions)s) i)::vector::halfvec end"
        " from documents d, lateral (select split_part(d.text, ' ', 2)::int as n) as number"
        " where d.org_id = %(org)s",
        numbers,
    )
    tx.execute(
        "insert into chunks (document_id, position, start_at, end_at, hash)"
        " select document_id, 0, 0, length(e.text), hash from entries e"
        " join documents d on d.id = e.document_id where d.org_id = %(org)s",
        numbers,
    )
    tx.execute(
        "insert into term_counts (org_id, number, entries)"
        " select %(org)s, number, count(*) from entries e join documents d on d.id = e.document_id,"
        " unnest(e.terms) number where d.org_id = %(org)s group by number",
        numbers,
    )
    tx.execute(
        "insert into document_counts (org_id, tag, connection_id, documents, chunks)"
        " select org_id, tag, '', count(*), sum(chunks) from documents d,"
        " counted_under(d.container_tags, null) where org_id = %(org)s group by org_id, tag",
        numbers,
    )
    tx.execute(
        "insert into document_counts (org_id, tag, connection_id, documents, chunks, folded)"
        " select 'beside ' || %(org)s, 'tag ' || n, '', 1, 1, n %% 2 = 0"
        " from generate_series(1, %(n)s) as n",
        {**numbers, "n": DOCUMENTS},
    )


@pytest.fixture
def tenant(large: tuple[Database, Tenant]) -> Tenant:
    return large[1]


@pytest.fixture
def explain(large: tuple[Database, Tenant]) -> Explain:
    """Runs work in a transaction that is undone; returns the plans of its statements."""
    db, _ = large

    def explained(work: Callable[[Tx], object]) -> list[Explained]:
        ExplainingCursor.explained.clear()
        with contextlib.suppress(Undo), db.begin() as tx:
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


def one(found: list[Explained], words: str) -> Explained:
    """The only statement that holds these words."""
    [match] = [explained for explained in found if words in explained.statement]
    return match


# --- the queue ---------------------------------------------------------------------------------


@pytest.mark.parametrize("busy", [False, True])
def test_a_claim_walks_the_turns(explain: Explain, tenant: Tenant, busy: bool) -> None:
    passed_over = [(tenant.id, "many")] if busy else []

    def claim(tx: Tx) -> None:
        lease = timedelta(seconds=60)
        claims = documents.claim(tx, lease=lease, limit=4, max_attempts=5, busy=passed_over)
        assert len(claims) == 4
        assert not busy or {one.document.org_id for one in claims} != {tenant.id}

    found = one(explain(claim), "update documents")

    assert found.indexes == {"documents_turns", "documents_pkey", MEMBERS}
    assert not found.scans("documents")


def test_who_is_before_one_that_waits_is_counted_in_its_turns(explain: Explain) -> None:
    def ahead(tx: Tx) -> None:
        row = tx.execute(
            "select id, org_id from documents where status = 'queued' order by due_at limit 1"
            " offset 100"
        ).fetchone()
        assert row is not None
        document = documents.get(tx, Tenant(row["org_id"]), row["id"])
        assert documents.ahead(tx, document)

    found = one(explain(ahead), "select count(*) as n from (select from documents")

    assert found.indexes == {"documents_turns"}
    assert not found.scans("documents")


@pytest.mark.parametrize(
    "look",
    [lambda tx: documents.bury(tx, max_attempts=5), documents.next_due_in],
    ids=["bury", "next_due_in"],
)
def test_housekeeping_looks_at_due_documents_only(
    explain: Explain, look: Callable[[Tx], object]
) -> None:
    for found in explain(look):
        assert "documents_due" in found.indexes
        assert not found.scans("documents")


def test_an_advance_finds_its_row(explain: Explain, tenant: Tenant) -> None:
    def advance(tx: Tx) -> None:
        [claim] = documents.claim(tx, lease=timedelta(seconds=60), limit=1, max_attempts=5)
        documents.renew(tx, [claim], lease=timedelta(seconds=60))
        documents.release(tx, [claim])

    for found in explain(advance):
        assert not found.scans("documents")


# --- callers -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("query", "index"),
    [
        (DocumentQuery(), "documents_created"),
        (DocumentQuery(sort="updated_at"), "documents_updated"),
        (DocumentQuery(tags=["few"]), "documents_scope"),
    ],
    ids=["newest", "last changed", "a small tag"],
)
def test_a_page_of_documents_reads_no_more_than_it_must(
    explain: Explain, tenant: Tenant, query: DocumentQuery, index: str
) -> None:
    found = one(explain(lambda tx: documents.find(tx, tenant, query)), "offset")

    assert index in found.indexes
    assert not found.scans("documents")


@pytest.mark.parametrize(
    "look",
    [
        lambda tx, tenant: documents.find(tx, tenant, DocumentQuery()),
        lambda tx, tenant: documents.find(tx, tenant, DocumentQuery(tags=["many"])),
        lambda tx, tenant: documents.counts(tx, tenant),
        lambda tx, tenant: documents.counts_of_connections(tx, tenant, [ConnectionId("a")]),
        lambda tx, tenant: (
            tags.ensure(tx, tenant.id, ["many"]),
            tags.find(tx, tenant, limit=50, page=1),
        ),
    ],
    ids=["all", "a tag", "by status", "of connections", "tags"],
)
def test_counts_that_are_kept_are_found_by_index(
    explain: Explain, tenant: Tenant, look: Callable[[Tx, Tenant], object]
) -> None:
    found = explain(lambda tx: look(tx, tenant))

    assert any("document_counts_new" in one.indexes for one in found)
    assert not any(one.scans("document_counts") for one in found)


def test_a_check_of_tags_reads_no_document_but_of_those_that_are_missing(
    explain: Explain, tenant: Tenant
) -> None:
    def check(tx: Tx) -> None:
        tags.ensure(tx, tenant.id, ["many"])
        tx.execute("delete from tags where name = 'few'")
        wanted = [(tenant.id, name) for name in ("many", "few", "none")]
        assert verify.missing_tags(tx, wanted) == [(tenant.id, "few")]

    found = explain(check)

    assert not any(one.scans("documents") for one in found)
    assert any("documents_scope" in one.indexes for one in found)


def test_what_a_filter_matches_is_counted_by_the_indexes_of_metadata_and_of_groups(
    explain: Explain, tenant: Tenant
) -> None:
    """Its first ten may be the first of the newest that match."""
    query = DocumentQuery(filter=parse_filter({"AND": [{"key": "batch", "value": "7"}]}))
    counted, page = explain(lambda tx: documents.find(tx, tenant, query))

    assert counted.indexes == {"documents_metadata", "documents_groups"}
    assert not page.scans("documents")


@pytest.mark.parametrize("name", ["custom77", "id"])
def test_a_document_is_found_by_id_and_by_custom_id(
    explain: Explain, tenant: Tenant, name: str
) -> None:
    asked = f"{tenant.id}77" if name == "id" else name
    [found] = explain(lambda tx: documents.get(tx, tenant, asked))

    assert found.indexes == {"documents_pkey", "documents_custom_id", MEMBERS}
    assert not found.scans("documents")


@pytest.mark.parametrize("custom_id", [None, "custom77", "new"])
def test_an_addition_looks_for_its_like_by_index(
    explain: Explain, tenant: Tenant, custom_id: str | None
) -> None:
    new = NewDocument(documents.text_content("new"), ["many"], custom_id=custom_id)

    for found in explain(lambda tx: documents.add(tx, tenant, new, DocumentId("new"))):
        assert not found.scans("documents")
        assert not found.scans("entries")


@pytest.mark.parametrize(
    "work",
    [
        lambda tx, tenant: documents.delete(tx, tenant, [f"{tenant.id}77", "custom78"]),
        lambda tx, tenant: documents.delete_where(tx, tenant, tags=["few"]),
        lambda tx, tenant: documents.reprocess(tx, tenant, ids=["custom28000"]),
        lambda tx, tenant: documents.chunks(tx, tenant, "custom77"),
    ],
    ids=["delete", "delete by tag", "reprocess", "chunks"],
)
def test_work_on_a_few_documents_looks_at_few(
    explain: Explain, tenant: Tenant, work: Callable[[Tx, Tenant], object]
) -> None:
    for found in explain(lambda tx: work(tx, tenant)):
        for table in ("documents", "entries", "chunks"):
            assert not found.scans(table), found.statement


def test_processing_again_what_failed_reads_what_failed(explain: Explain, tenant: Tenant) -> None:
    failed = one(explain(lambda tx: documents.reprocess(tx, tenant, failed=True)), "with ended")

    assert "documents_failed" in failed.indexes
    assert not failed.scans("documents")


# --- search ------------------------------------------------------------------------------------

NOISE = np.random.default_rng(7).normal(size=DIMENSIONS).astype(np.float32)


def searched(
    explain: Explain, tenant: Tenant, query: hybrid.Query, inside: DocumentId | None = None
) -> Explained:
    def work(tx: Tx) -> None:
        assert hybrid.search(tx, tenant, query, inside=inside)

    found = one(explain(work), "picked as materialized")
    for table in ("documents", "entries", "chunks"):
        assert not found.scans(table)
    return found


def test_words_are_found_by_their_numbers(explain: Explain, tenant: Tenant) -> None:
    found = searched(explain, tenant, hybrid.Query(RARE_WORD, None))

    assert "entries_terms" in found.indexes


def test_a_search_of_the_past_reads_its_scope_alone(large: tuple[Database, Tenant]) -> None:
    """It read every passage of every tenant."""
    db, tenant = large
    query = hybrid.Query("text", NOISE, as_of=datetime.now(UTC))
    with contextlib.suppress(Undo), db.begin() as tx:
        beside = Tenant(orgs.create(tx, "beside", Plan.ENTERPRISE).id)
        before = rows_read(tx)
        assert len(hybrid.search(tx, tenant, replace(query, tags=["few"]))) == query.limit
        assert hybrid.search(tx, beside, query) == []

        assert rows_read(tx) - before < 50 * FEW
        raise Undo


def test_neighbours_in_the_past_are_found_without_their_scope(
    large: tuple[Database, Tenant],
) -> None:
    db, tenant = large
    query = hybrid.Query("text", NOISE, tags=["few"], as_of=datetime.now(UTC))
    with db.begin() as tx:
        hits = hybrid.search(tx, tenant, query)
    with db.begin() as tx:
        before = rows_read(tx)
        look_back(tx, tenant.id, query.as_of)
        hybrid.with_neighbours(tx, hits, in_the_past=True)

        assert rows_read(tx) - before < 50 * query.limit


def rows_read(tx: Tx) -> int:
    """By this transaction."""
    row = tx.execute(
        "select sum(seq_tup_read + coalesce(idx_tup_fetch, 0))::int as n"
        " from pg_stat_xact_user_tables"
    ).fetchone()
    assert row is not None
    return row["n"]


def test_words_look_for_documents_only_once_the_best_are_known(
    explain: Explain, tenant: Tenant
) -> None:
    found = searched(explain, tenant, hybrid.Query(RARE_WORD, None))

    assert {"entries"} in [
        {part["Relation Name"] for part in nodes(node) if "Relation Name" in part}
        for node in nodes(found.plan)
        if node.get("Subplan Name") == "CTE first_found"
    ]


@pytest.mark.parametrize(
    ("counts", "in_scope", "picking", "besides"),
    [
        pytest.param([2_000, 700, 200], 1.0, [700, 200, 2_000], [], id="all find few"),
        pytest.param([2_900, 500], 1.0, [500], [], id="the rarer finds enough"),
        pytest.param([6_000, 30, 7_000], 1.0, [30, 6_000], [30, 7_000], id="the rarest: too few"),
        pytest.param([6_000, 7_000, 50_000], 1.0, [6_000], [7_000], id="the rarest: too many"),
        pytest.param([40_000, 3], 1.0, [3], [], id="a rare one and one that is everywhere"),
        pytest.param([60_000, 40_000], 1.0, [40_000], [60_000], id="both are everywhere"),
        pytest.param([90_000, 8_000], 0.01, [8_000, 90_000], [], id="in a small scope"),
        pytest.param([5_000], 1.0, [5_000], [], id="one word"),
        pytest.param([0, 20, 0], 1.0, [20], [], id="unknown words"),
        pytest.param([0], 1.0, [], [], id="unknown words only"),
    ],
)
def test_the_rarest_words_pick_until_they_find_enough(
    counts: list[int], in_scope: float, picking: list[int], besides: list[int]
) -> None:
    total = 100_000
    groups = [(count,) for count in counts]  # a word's number is how often it stands somewhere

    picks, beside = candidates._picks(
        groups, {n: n for n in counts}, total, round(in_scope * total)
    )

    assert (sorted(picks), sorted(beside)) == (sorted(picking), sorted(besides))


def test_vectors_of_everything_are_walked(explain: Explain, tenant: Tenant) -> None:
    found = searched(explain, tenant, hybrid.Query("no such word", NOISE))

    assert "entries_embedding" in found.indexes


def test_vectors_of_a_large_tag_are_walked(explain: Explain, tenant: Tenant) -> None:
    found = searched(explain, tenant, hybrid.Query("no such word", NOISE, tags=["many"]))

    assert "entries_embedding" in found.indexes


def test_vectors_of_a_small_tag_are_all_compared(explain: Explain, tenant: Tenant) -> None:
    found = searched(explain, tenant, hybrid.Query("no such word", NOISE, tags=["few"]))

    # From its documents to their entries: terms would be looked up again for each document.
    assert {"documents_scope", "entries_pkey"} <= found.indexes
    assert not found.indexes & {"entries_embedding", "entries_terms"}


def test_vectors_of_one_document_are_all_compared(explain: Explain, tenant: Tenant) -> None:
    inside = DocumentId(f"{tenant.id}80")
    found = searched(explain, tenant, hybrid.Query("no such word", NOISE), inside)

    assert not found.indexes & {"entries_embedding", "entries_terms"}


def test_vectors_of_a_narrow_filter_are_all_compared(explain: Explain, tenant: Tenant) -> None:
    narrow = parse_filter({"AND": [{"key": "batch", "value": "7"}]})
    found = searched(explain, tenant, hybrid.Query("no such word", NOISE, filter=narrow))

    assert "documents_metadata" in found.indexes
    assert "entries_embedding" not in found.indexes


def test_the_generated_rows_are_what_the_code_would_write(
    large: tuple[Database, Tenant],
) -> None:
    db, tenant = large
    with db.begin() as tx:
        page = documents.find(tx, tenant, DocumentQuery(tags=["few"]))
        [hit, *_] = hybrid.search(tx, tenant, hybrid.Query(RARE_WORD, NOISE, tags=["few"]))

    assert page.total == FEW
    assert page.items[0].status is Status.QUEUED
    assert hit.chunks[0].text.startswith("text ")


@pytest.mark.parametrize(
    ("everywhere", "matching", "rounds"),
    [
        (-1, 5, 1),
        (100_000, 100_000, 1),
        (100_000, 20_000, 1),
        (1_000_000, 1_000_000, 2),
        (1_000_000, 200_000, 3),
        (1_000_000, 100_000, 4),
        (100_000_000, 100_000, walks.MOST_ROUNDS),
    ],
)
def test_a_walk_goes_on_where_one_round_finds_too_few(everywhere: int, matching: int, rounds: int):
    assert walks.rounds(everywhere, matching, 1) == rounds
    assert walks.rounds(everywhere, matching, 64) <= rounds


@pytest.mark.parametrize(
    ("everywhere", "matching", "width"),
    [
        (1_000, 1_000, 400),
        (100_000, 100_000, 400),
        (100_000, 50_000, 800),
        (300_000, 300_000, 621),
        (1_000_000, 1_000_000, 1_000),
        (1_000_000, 10, 1_000),
        (0, 0, 400),
        (-1, 5, 400),
    ],
)
def test_a_walk_is_the_wider_the_more_there_is_and_the_less_matches(
    everywhere: int, matching: int, width: int
):
    """`everywhere` is -1 where nobody has counted yet."""
    assert walks.width(everywhere, matching, 1) in range(
        max(400, width - 20), min(1_000, width + 20) + 1
    )
