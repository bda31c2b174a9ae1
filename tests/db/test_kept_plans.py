"""Statements whose plan a connection keeps."""

from psycopg import sql

from recollect.db import Database
from recollect.model import Tenant
from recollect.search import hybrid
from recollect.search.hybrid import Query

NUMBER = sql.SQL("select %(number)s::int as number").format()
KEPT = "select generic_plans, custom_plans from pg_prepared_statements order by prepare_time"


def test_a_plan_is_made_once_for_all_parameters(database_url: str):
    with Database(database_url) as db, db.begin() as tx:
        for number in (1, 2):
            [row] = tx.execute_planned(NUMBER, {"number": number}).fetchall()
            assert row["number"] == number
            tx.execute("select %s::int as number", (number,))

        assert tx.execute(KEPT).fetchall() == [{"generic_plans": 2, "custom_plans": 0}]


def test_searches_within_tags_share_a_plan_and_others_have_their_own(
    database_url: str, tenant: Tenant
):
    """A plan for any tag would read all of the index where there is none."""
    with Database(database_url) as db, db.begin() as tx:
        for tags in (["a"], ["b"], [], ["c"]):
            hybrid.search(tx, tenant, Query("grey herons", None, tags=tags))

        assert tx.execute(KEPT).fetchall() == [{"generic_plans": 3, "custom_plans": 0}]
