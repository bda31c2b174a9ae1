"""Phrases and exclusions hold on every way of search, and `limit` is filled with what is left."""

import time
from collections.abc import Callable, Generator
from itertools import permutations

import numpy as np
import psycopg
import pytest
from psycopg.types.json import Jsonb

from recollect import documents
from recollect.db import Database, Tx
from recollect.documents.filters import parse
from recollect.index import phrases, terms, vector_index
from recollect.index.phrases import Reading
from recollect.model import Hit, Plan, Tenant
from recollect.orgs import orgs
from recollect.search import hybrid
from recollect.search.hybrid import Query
from tests.conftest import facet
from tests.search.test_query_plans import ExplainingCursor, nodes

DIMENSIONS = 16
TOWARDS = np.ones(DIMENSIONS, dtype=np.float32)
FROG = "A frog sits by the pond."
TOAD = "A green toad sits by the pond."
OTHER = "By the pond, a toad; green is the pond."
COUNTS = {FROG: 11_000, TOAD: 300, OTHER: 200}
"""Frogs are more than are compared one by one, and nearest to the query."""


@pytest.fixture(scope="module")
def pond(new_database: Callable[[], str]) -> Generator[tuple[Database, Tenant]]:
    url = new_database()
    with Database(url) as db:
        with db.begin() as tx:
            tenant = Tenant(orgs.create(tx, "pond", Plan.ENTERPRISE).id)
            _fill(tx, tenant)
            vector_index.adopt(tx, "fake:pond", DIMENSIONS)
        with psycopg.connect(url, autocommit=True) as session:
            session.execute("vacuum analyze")
        yield db, tenant


def _fill(tx: Tx, tenant: Tenant) -> None:
    """One entry a document, by COPY: the service's own way would take minutes."""
    scope = documents.scope(tenant.id, [])
    counted: dict[int, int] = {}
    rng = np.random.default_rng(3)
    tx.execute("set local session_replication_role = replica")
    for number, (text, count) in enumerate(COUNTS.items()):
        weights = terms.weigh(tenant.id, text)
        numbers = sorted({*scope, *weights})
        for one in numbers:
            counted[one] = counted.get(one, 0) + count
        tx.execute(
            "insert into documents (id, org_id, container_tags, scope, kind, source, metadata,"
            " content, content_hash, status, due_at, indexed_revision, text, chunks)"
            " select %(name)s || n, %(org)s, '{all}', %(scope)s::int4[], 'text', 'api',"
            "  %(metadata)s, %(text)s, sha256('x'), 'done', null, 1, %(text)s, 1"
            " from generate_series(1, %(count)s) n",
            {
                "name": f"{number}.",
                "org": tenant.id,
                "scope": scope,
                "text": text,
                "count": count,
                "metadata": Jsonb({"wet": "yes"}),
            },
        )
        facet(tx)
        near = TOWARDS * (1.0 if text == FROG else -0.2)
        vectors = near + rng.normal(size=(count, DIMENSIONS)) * 0.2
        sparse = ",".join(f"{n}:{w:.4f}" for n, w in sorted(weights.items()))
        with tx.cursor().copy(
            "copy entries (document_id, hash, text, terms, weights, embedding) from stdin"
        ) as copy:
            for n, vector in enumerate(vectors, 1):
                copy.write_row(
                    (
                        f"{number}.{n}",
                        b"h",
                        text,
                        "{" + ",".join(map(str, numbers)) + "}",
                        f"{{{sparse}}}/1000000000",
                        "[" + ",".join(f"{x:.5f}" for x in vector) + "]",
                    )
                )
    tx.execute(
        "insert into chunks (document_id, position, start_at, end_at, hash)"
        " select document_id, 0, 0, length(text), hash from entries"
    )
    tx.execute(
        "insert into term_counts (org_id, number, entries)"
        " select %s, * from unnest(%s::int4[], %s::int4[])",
        (tenant.id, list(counted), list(counted.values())),
    )


@pytest.mark.parametrize(
    ("asked", "may"),
    [
        pytest.param("pond -frog", {TOAD, OTHER}, id="what is nearest is excluded"),
        pytest.param("pond -frogs -green", set[str](), id="all is excluded"),
        pytest.param("pond -toad", {FROG}, id="a few of many are excluded"),
        pytest.param('pond -"green toads"', {FROG, OTHER}, id="a phrase is excluded"),
        pytest.param('pond -"a frog"', {TOAD, OTHER}, id="more hold the words than are read"),
        pytest.param('pond "green toad"', {TOAD}, id="a phrase"),
        pytest.param('"toad green"', {OTHER}, id="a phrase over a sentence's end"),
        pytest.param('"by the pond" frog -toad', {FROG}, id="a phrase of nearly all"),
        pytest.param('frog "by the"', {FROG, TOAD, OTHER}, id="a phrase of stop words"),
        pytest.param('pond "frog" "toad"', set[str](), id="two words that never meet"),
        pytest.param('frog "toad"', {TOAD, OTHER}, id="one word must be there"),
        pytest.param('pond "green frog"', set[str](), id="words that never follow each other"),
        pytest.param('pond "zxqvbn"', set[str](), id="a word that stands nowhere"),
        pytest.param("pond -zxqvbn", {FROG, TOAD, OTHER}, id="excluded, and stands nowhere"),
    ],
)
@pytest.mark.parametrize("limit", [10, 100])
@pytest.mark.parametrize(
    ("meaning", "filtered"), [(True, False), (True, True), (False, False)], ids=str
)
def test_only_what_may_be_is_found_and_fills_the_limit(
    pond: tuple[Database, Tenant],
    asked: str,
    may: set[str],
    limit: int,
    meaning: bool,
    filtered: bool,
) -> None:
    db, tenant = pond
    reading = phrases.read(asked)
    with db.begin() as tx:
        hits = hybrid.search(
            tx,
            tenant,
            Query(
                reading.text,
                TOWARDS if meaning else None,
                phrases=reading.phrases,
                excluded=reading.excluded,
                filter=parse({"AND": [{"key": "wet", "value": "yes"}]}) if filtered else None,
                limit=limit,
            ),
        )

    shown = {chunk.text for hit in hits for chunk in hit.chunks}
    assert shown <= may
    assert len(hits) == (limit if may else 0)


@pytest.mark.one_server
def test_many_phrases_cost_little_more_than_one(pond: tuple[Database, Tenant]) -> None:
    """Each read up to 2,000 passages on its own: a dozen searches with 31 exclusions, at once, kept
    every other caller waiting for minutes."""
    db, tenant = pond
    around = permutations(["sits", "by", "the", "pond", "is", "a"], 2)
    many = [f'-"{one} toad {other}"' for one, other in around][: phrases.MOST // 3]

    def cost(asked: str) -> float:
        with db.begin() as tx:
            before = time.process_time()
            _dry(tx, tenant, asked)
            return time.process_time() - before

    cost(f"pond {many[0]}")
    alone = min(cost(f"pond {many[0]}") for _ in range(3))
    assert min(cost(f"pond {' '.join(many)}") for _ in range(3)) < 5 * alone


@pytest.mark.one_server
def test_many_excluded_words_are_looked_for_at_once(pond: tuple[Database, Tenant]) -> None:
    """The plan does not grow with them: 63 looks at the entries of each document took seconds."""
    db, tenant = pond
    words = [f"-{first}{second}" for first in "abcdefgh" for second in "xyz"]

    def size(asked: str) -> int:
        ExplainingCursor.explained.clear()
        with db.begin() as tx:
            factory, tx.cursor_factory = tx.cursor_factory, ExplainingCursor
            try:
                _dry(tx, tenant, asked)
            finally:
                tx.cursor_factory = factory
        return sum(1 for found in ExplainingCursor.explained for _ in nodes(found.plan))

    assert size(f"pond {' '.join(words)}") <= size(f"pond {words[0]}")


@pytest.mark.one_server
def test_documents_that_hold_a_phrase_are_not_looked_up_in_their_list_one_by_one(
    pond: tuple[Database, Tenant],
) -> None:
    """The list was sorted anew for each of them: on a cluster a search took ten seconds."""
    reading = phrases.read('frog "by the"')
    ExplainingCursor.explained.clear()
    with pond[0].begin() as tx:
        factory, tx.cursor_factory = tx.cursor_factory, ExplainingCursor
        try:
            hybrid.search(tx, pond[1], Query(reading.text, TOWARDS, phrases=reading.phrases))
        finally:
            tx.cursor_factory = factory

    conditions = [
        str(node.get("Index Cond"))
        for found in ExplainingCursor.explained
        for node in nodes(found.plan)
    ]
    assert any("document_id = " in one for one in conditions)
    assert [one[:80] for one in conditions if ") AND (id = ANY (" in one] == []


def test_a_document_is_excluded_by_any_of_its_published_passages(
    pond: tuple[Database, Tenant],
) -> None:
    """Also by one that does not match; what is not published yet excludes nothing."""
    db, tenant = pond
    with db.begin() as tx:
        before = _dry(tx, tenant, "green -frog")
        id = before[0].document.id
        weights = terms.weigh(tenant.id, FROG)
        tx.execute(
            "insert into entries (document_id, hash, text, terms, weights)"
            " select document_id, 'later', %s, %s::int4[], weights from entries"
            " where document_id = %s",
            (FROG, [*documents.scope(tenant.id, []), *weights], id),
        )
        # Being processed: its chunks are those from before.
        tx.execute("set local session_replication_role = replica")
        tx.execute("select facet(array[%s], null)", (id,))
        tx.execute("update documents set status = 'queued', due_at = now() where id = %s", (id,))
        assert id in {hit.document.id for hit in _dry(tx, tenant, "green -frog")}
        tx.execute("update documents set status = 'done', due_at = null where id = %s", (id,))
        tx.execute("select facet(array[%s], array[1])", (id,))
        after = {hit.document.id for hit in _dry(tx, tenant, "green -frog")}
        tx.execute("delete from entries where document_id = %s and hash = 'later'", (id,))

    assert id not in after


def _dry(tx: Tx, tenant: Tenant, asked: str) -> list[Hit]:
    reading: Reading = phrases.read(asked)
    query = Query(reading.text, None, excluded=reading.excluded, limit=100)
    return hybrid.search(tx, tenant, query)
