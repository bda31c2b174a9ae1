"""Words that thousands of passages hold: another one has to stand beside them, where any does."""

from collections.abc import Callable, Generator
from typing import Any

import psycopg
import pytest

from recollect import documents
from recollect.db import Database
from recollect.documents.filters import parse
from recollect.index import terms, vector_index
from recollect.model import DocumentId, Plan, Tenant
from recollect.orgs import orgs
from recollect.search import hybrid
from recollect.search.hybrid import Query
from tests.conftest import facet

DOCUMENTS = 8_000
HELD = {
    "heron": range(1, 4_001),
    "weir": range(3_941, 8_001),
    "stork": range(4_901, 8_001),
    "crane": range(3_000, 4_003),
}
"""which documents hold each word; more than pick candidates by themselves"""
BOTH = {str(n) for n in range(3_941, 4_001)}
FEW = {"7000", "7001"}
"""which can be told from all others"""


@pytest.fixture(scope="module")
def many(new_database: Callable[[], str]) -> Generator[tuple[Database, Tenant]]:
    url = new_database()
    with Database(url) as db:
        with db.begin() as tx:
            tenant = Tenant(orgs.create(tx, "many", Plan.ENTERPRISE).id)
            vector_index.adopt(tx, "none", 0)
        _fill(tenant, url)  # longer than a transaction may be idle, on a cluster
        yield db, tenant


def _fill(tenant: Tenant, url: str) -> None:
    number = {word: next(iter(terms.weigh(tenant.id, word))) for word in HELD}
    scope = documents.scope(tenant.id, ["birds"])
    south = documents.scope(tenant.id, ["birds", "south"])
    with psycopg.connect(url) as session:
        session.execute("set local session_replication_role = replica")
        session.execute(
            "insert into documents (id, org_id, container_tags, scope, kind, source, content,"
            " content_hash, status, due_at, indexed_revision, text, chunks)"
            " select n::text, %s, '{birds}', %s::int4[], 'text', 'api', 'x', '', 'done', null, 1,"
            " 'x', 1 from generate_series(1, %s) n",
            (tenant.id, scope, DOCUMENTS),
        )
        session.execute(
            "update documents set container_tags = '{birds,south}', scope = %s"
            " where id::int > 4000",
            (south,),
        )
        session.execute(
            "update documents set metadata = '{\"few\": \"yes\"}', filepath = 'few/' || id"
            " where id = any(%s)",
            (list(FEW),),
        )
        facet(session)
        with session.cursor().copy(
            "copy entries (document_id, hash, text, terms, weights) from stdin"
        ) as copy:
            for n in range(1, DOCUMENTS + 1):
                words = [number[word] for word, held in HELD.items() if n in held]
                weights = ",".join(f"{one}:1" for one in sorted(words))
                copy.write_row(
                    (
                        str(n),
                        f"\\x{n:08x}",
                        f"text {n}",
                        [*(south if n > 4_000 else scope), *words],
                        f"{{{weights}}}/1000000000",
                    )
                )
        session.execute(
            "insert into chunks (document_id, position, start_at, end_at, hash)"
            " select document_id, 0, 0, length(text), hash from entries"
        )
        session.execute(
            "insert into term_counts (org_id, number, entries)"
            " select %s, number, count(*) from entries, unnest(terms) number group by number",
            (tenant.id,),
        )


def found(
    many: tuple[Database, Tenant],
    text: str,
    inside: str | None = None,
    key: Tenant | None = None,
    **narrowed: Any,
) -> list[str]:
    db, tenant = many
    within = None if inside is None else DocumentId(inside)
    query = Query(text, None, limit=30, **narrowed)
    with db.begin() as tx:
        return [hit.document.id for hit in hybrid.search(tx, key or tenant, query, inside=within)]


def test_what_holds_two_of_them_comes_before_what_holds_one(many: tuple[Database, Tenant]) -> None:
    assert len(found(many, "heron weir")) == 30
    assert set(found(many, "heron weir")) <= BOTH


def test_what_holds_one_is_found_where_nothing_holds_two(many: tuple[Database, Tenant]) -> None:
    assert len(found(many, "heron stork")) == 30


@pytest.mark.parametrize("query", ["heron weir", "heron stork", "weir stork heron"])
def test_among_the_few_that_match_any_of_them_is_found(
    many: tuple[Database, Tenant], query: str
) -> None:
    assert found(many, query, inside="7000") == ["7000"]
    few = parse({"AND": [{"key": "few", "value": "yes"}]})
    assert set(found(many, query, filter=few)) == FEW
    assert set(found(many, query, filepath="few/")) == FEW


@pytest.mark.parametrize("query", ["heron weir", "heron weir stork"])
def test_a_word_finds_where_a_rarer_one_stands_nowhere_in_the_tag(
    many: tuple[Database, Tenant], query: str
) -> None:
    assert len(found(many, query, tags=["south"])) == 30


@pytest.mark.parametrize("query", ["crane stork", "heron weir", "weir stork"])
@pytest.mark.parametrize("tags", [("south",), ("south", "north")])
def test_a_limited_key_finds_what_it_finds_where_it_names_its_tag(
    many: tuple[Database, Tenant], query: str, tags: tuple[str, ...]
) -> None:
    key = Tenant(many[1].id, tags)
    assert len(found(many, query, key=key)) == 30
    assert found(many, query, key=key) == found(many, query, key=key, tags=["south"])


def test_what_holds_the_only_word_is_found(many: tuple[Database, Tenant]) -> None:
    assert len(found(many, "heron")) == 30
