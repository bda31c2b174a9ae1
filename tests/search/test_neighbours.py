"""What an organisation's reads cost does not grow with what the other organisations have.

Counted in pages of the database that its statements touch, which is the same on every machine.
"""

from collections.abc import Callable, Generator
from typing import Any, ClassVar, Self, cast

import numpy as np
import psycopg
import pytest
from psycopg import Cursor, sql
from psycopg.rows import DictRow

from recollect import documents
from recollect.db import Database, Tx
from recollect.documents import DocumentQuery
from recollect.documents.filters import parse as parse_filter
from recollect.index import vector_index
from recollect.model import Plan, Tenant
from recollect.orgs import orgs, tags
from recollect.search import hybrid
from tests.search.test_query_plans import DIMENSIONS, RARE, RARE_WORD, fill

SMALL = 1_000
FEW, MANY = 2_900, 29_000
"""documents of the neighbours. Beside none, a scan of everything is as good as any index."""
pytestmark = pytest.mark.one_server
GROWTH = 1.3
"""An index on ten times as many rows is a level higher at most."""
PER_ROW = 4
"""Where all of one's own rows are compared, each is looked up: three levels of an index, and its
page. Beside few neighbours a scan of everything is cheaper still."""
FOUND, PER_FOUND = 100, 20
"""The best by words and the best by meaning are looked up once more, with their documents and
their places in them; and of those that score alike, by how new they are."""
NOISE = np.random.default_rng(3).normal(size=DIMENSIONS).astype(np.float32)


class CountingCursor(Cursor[DictRow]):
    """Adds up the pages that each statement reads, and hands on what it returns."""

    pages: ClassVar[int] = 0

    def execute(self, query: Any, params: Any = None, **how: Any) -> Self:
        statement: str = query.as_string(self) if isinstance(query, sql.Composable) else query
        if statement.lstrip().startswith(("select", "with")):
            explain = f"explain (analyze, buffers, timing off, format json) {statement}"
            row = super().execute(explain.encode(), params, **how).fetchone()
            assert row is not None
            plan = row["QUERY PLAN"][0]["Plan"]
            type(self).pages += plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
        return super().execute(cast("Any", query), params, **how)


Reads = Callable[[Callable[[Tx, Tenant], object]], int]


@pytest.fixture(scope="module")
def few(new_database: Callable[[], str]) -> Generator[Reads]:
    yield from _reads(new_database(), FEW)


@pytest.fixture(scope="module")
def many(new_database: Callable[[], str]) -> Generator[Reads]:
    yield from _reads(new_database(), MANY)


def _reads(url: str, neighbours: int) -> Generator[Reads]:
    with Database(url) as db:
        with db.begin() as tx:
            tenant = Tenant(orgs.create(tx, "small", Plan.ENTERPRISE).id)
            fill(tx, Tenant(orgs.create(tx, "large", Plan.ENTERPRISE).id), neighbours)
            fill(tx, tenant, SMALL)
            tags.ensure(tx, tenant.id, ["many", "few"])
            vector_index.adopt(tx, "fake:noise", DIMENSIONS)
        with psycopg.connect(url, autocommit=True) as session:
            session.execute("vacuum analyze")

        def read(work: Callable[[Tx, Tenant], object]) -> int:
            with db.begin() as tx:
                factory, tx.cursor_factory = tx.cursor_factory, CountingCursor
                CountingCursor.pages = 0
                try:
                    assert work(tx, tenant)
                finally:
                    tx.cursor_factory = factory
            return CountingCursor.pages

        yield read


def _filtered(tx: Tx, tenant: Tenant) -> object:
    narrow = parse_filter({"AND": [{"key": "batch", "value": "7"}]})
    return documents.find(tx, tenant, DocumentQuery(filter=narrow)).items


@pytest.mark.parametrize(
    "work",
    [
        pytest.param(lambda tx, t: documents.find(tx, t, DocumentQuery()).items, id="list"),
        pytest.param(
            lambda tx, t: documents.find(tx, t, DocumentQuery(tags=["few"])).items,
            id="list of a tag",
        ),
        pytest.param(_filtered, id="list by filter"),
        pytest.param(lambda tx, t: documents.get(tx, t, "custom7"), id="get by customId"),
        pytest.param(
            lambda tx, t: hybrid.search(tx, t, hybrid.Query(RARE_WORD, None)), id="search by words"
        ),
        pytest.param(
            lambda tx, t: hybrid.search(tx, t, hybrid.Query(RARE_WORD, NOISE)), id="search by both"
        ),
        pytest.param(
            lambda tx, t: hybrid.search(tx, t, hybrid.Query("text", NOISE, tags=["few"])),
            id="search in a tag",
        ),
        pytest.param(lambda tx, t: tags.find(tx, t, limit=50, page=1).items, id="container tags"),
    ],
)
def test_reads_of_a_small_organisation_stay_small(
    few: Reads, many: Reads, work: Callable[[Tx, Tenant], object]
) -> None:
    before, after = few(work), many(work)
    most = PER_ROW * (SMALL + RARE) + PER_FOUND * FOUND
    told = f"{before} pages beside {FEW:,}, {after} beside {MANY:,}"
    assert after <= before * GROWTH + 20 or FEW / 2 < before < after <= most, told
