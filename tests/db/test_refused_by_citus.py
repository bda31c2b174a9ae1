"""What tests of the day refuse in the statements that they send; `test_citus` asks Citus."""

import re
from typing import LiteralString, cast

import pytest

from recollect.db import Database
from recollect.db.citus import SHARED
from tests.fakes.spread import refused
from tests.schema import KEPT

WALK = "select document_id from chunks union select r.memory_id from t, memory_relations r"
LOOK = "select {} from documents d where {}"
REFUSED = [
    f"with recursive t (id) as ({WALK}) select id from t",
    "insert into orgs (id, name) values ('a', (select text from entries limit 1))",
    LOOK.format("id", "exists (select from chunks c where c.document_id = d.id)"),
    LOOK.format("(select count(*) from entries e where e.document_id = d.id)", "true"),
    LOOK.format("id", "exists (select from chunks)"),
    "delete from memory_sources s where not exists (select from chunks c where c.hash = s.hash)",
    "update chunks c set place = '{}' where exists"
    " (select from documents d where d.id = c.document_id)",
    "select hash from entries where document_id = any('{a,b,c,d}') for update",
    "with d as materialized (select id from documents) select id, x.hash from d cross join"
    " lateral (select c.hash from chunks c where c.document_id = d.id limit 1) as x",
    "with n as materialized (select d.id, s.hash from unnest('{a}'::text[], '{a}'::bytea[])"
    " as s (id, hash) join documents d on d.id = s.id for key share of d)"
    " select n.id, c.hash from n join chunks c on c.document_id = n.id and c.hash = n.hash",
]
TAKEN = [
    "select from chunks where document_id = 'a' union all"
    " select from entries where document_id = 'a'",
    LOOK.format("d.id", "d.id in (select document_id from chunks)"),
    "select f.id from facets f where exists (select from chunks c where c.document_id = f.id)",
    "select text from entries where document_id = 'a' for update",
    "insert into version_chunks select 1, position, start_at, end_at, hash, place from chunks"
    " where document_id = 'a'",
    "with recursive t (id) as (select id from memories union"
    " select r.memory_id from t join memory_relations r on r.target_id = t.id) select id from t",
    "delete from entries e where not exists"
    " (select from chunks c where c.document_id = e.document_id and c.hash = e.hash)",
]


@pytest.mark.parametrize("statement", REFUSED)
def test_what_citus_refuses_fails_the_test_that_sends_it(db: Database, statement: str):
    assert refused(statement)
    with pytest.raises(AssertionError, match="Citus refuses"), db.begin() as tx:
        tx.execute(cast("LiteralString", statement))


@pytest.mark.parametrize("statement", TAKEN)
def test_what_citus_takes_does_not(statement: str):
    assert refused(statement) is None


def test_functions_that_statements_may_have_workers_call_are_shared():
    """Those that ask for nothing but what they are given; of others the rows are elsewhere."""
    made = re.findall(
        r"^CREATE FUNCTION public\.(\w+)\(.*\n +LANGUAGE \w+ IMMUTABLE\b",
        KEPT.read_text(),
        re.MULTILINE,
    )

    assert "fold_case" in made
    assert set(made) == set(SHARED)
