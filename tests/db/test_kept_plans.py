"""Statements whose plan a connection keeps."""

from dataclasses import replace

import numpy as np
import pytest
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from recollect.db import Database
from recollect.documents.filters import parse
from recollect.model import Tenant
from recollect.search import hybrid
from recollect.search.candidates import Candidates
from recollect.search.hybrid import Query

NUMBER = sql.SQL("select %(number)s::int as number").format()
KEPT_OF = "select generic_plans, custom_plans from pg_prepared_statements where"
SEARCHES = "statement like '%with picked%'"
PLANS_OF_THE_SESSION = (
    "select coalesce(ident, '') as ident from pg_backend_memory_contexts where name = 'CachedPlan'"
)
WHOLE_READS = "select seq_scan from pg_stat_xact_user_tables where relname = 'skewed'"


def test_a_plan_is_made_once_for_all_parameters(database_url: str):
    with Database(database_url) as db, db.begin() as tx:
        for number in (1, 2):
            [row] = tx.execute_planned(NUMBER, {"number": number}).fetchall()
            assert row["number"] == number
            tx.execute("select %s::int as number", (number,))

        assert tx.execute(f"{KEPT_OF} true").fetchall() == [{"generic_plans": 2, "custom_plans": 0}]


@pytest.mark.one_server  # over several, each search is planned anew
@pytest.mark.parametrize("walks", [False, True], ids=["compared", "walked"])
def test_searches_share_a_plan_unless_a_filter_narrows_them(
    database_url: str, tenant: Tenant, walks: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(Candidates, "_walks", lambda _: walks)
    asked = Query("grey herons", np.ones(384, np.float32))
    with Database(database_url) as db, db.begin() as tx:
        for query in (
            replace(asked, tags=["a"]),
            replace(asked, tags=["b"]),
            asked,
            replace(asked, filter=parse({"AND": [{"key": "kind", "value": "bird"}]})),
            replace(asked, text="herons"),
        ):
            hybrid.search(tx, tenant, query)

        # One within tags and one for everything, and of each another where the walk finds too few.
        kept = {"generic_plans": 2, "custom_plans": 0}
        assert tx.execute(f"{KEPT_OF} {SEARCHES}").fetchall() == [kept] * (4 if walks else 2)
        # The counts and the documents of every search, however narrow.
        rest = tx.execute(f"{KEPT_OF} not {SEARCHES}").fetchall()
        assert rest == [{"generic_plans": 5, "custom_plans": 0}] * 2


def test_other_statements_of_the_same_transaction_are_planned_for_their_parameters(
    database_url: str,
):
    """They kept the setting until its end: what an answer read of memories after a search."""
    with Database(database_url) as db, db.begin() as tx:
        tx.execute(
            "create temp table skewed on commit drop as"
            " select case when n > 10000 then 0 else n end as value"
            " from generate_series(1, 100000) n"
        )
        tx.execute("create index on skewed (value)")
        tx.execute("analyze skewed")
        tx.execute_planned(NUMBER, {"number": 1})

        # Most rows hold 0, but a plan for any value expects few.
        before = tx.execute(WHOLE_READS).fetchone()
        tx.execute("select count(value) from skewed where value = %s", (0,))
        after = tx.execute(WHOLE_READS).fetchone()

        assert before is not None
        assert after == {"seq_scan": before["seq_scan"] + 1}


@pytest.mark.one_server
def test_triggers_and_foreign_keys_keep_their_plans(
    postgres_url: str, database_url: str, tenant: Tenant
):
    """Each row that came or went had them planned anew, which took most of a deletion's time."""
    # Only a superuser may see what a session keeps.
    url = make_conninfo(postgres_url, dbname=conninfo_to_dict(database_url)["dbname"])
    with Database(url) as db, db.begin() as tx:
        for number in range(10):
            tx.execute(
                "insert into documents (id, org_id, container_tags, scope, kind, source, content,"
                " content_hash) values (%s, %s, '{a}', '{1}', 'text', 'api', 'x', '\\x01')",
                (f"{tenant.id}-{number}", tenant.id),
            )
            tx.execute("delete from documents where id = %s", (f"{tenant.id}-{number}",))

        kept = " ".join(row["ident"] for row in tx.execute(PLANS_OF_THE_SESSION))
        assert "insert into document_counts" in kept  # a trigger
        assert 'DELETE FROM ONLY "public"."chunks"' in kept  # a foreign key
