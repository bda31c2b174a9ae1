"""`tests/schema.sql` is the sum of the migrations, so that a review sees what a migration does."""

import re
import uuid
from collections.abc import Callable
from typing import LiteralString, cast

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from recollect.db.schema import migrate, migrate_new
from recollect.errors import SetupError
from tests.schema import KEPT, dump


@pytest.mark.one_server  # on Citus the index is spread, after the migrations
def test_the_migrations_add_up_to_the_schema_that_is_written_down(
    new_database: Callable[[], str],
) -> None:
    url = new_database()
    with psycopg.connect(url) as session:
        if session.info.server_version // 10000 != 18:
            pytest.skip("pg_dump of the wheel describes PostgreSQL 18")
    assert dump(url) == KEPT.read_text(), "run `make schema` and look at the difference"


def test_a_role_that_may_not_make_a_schema_is_told_what_lets_it(postgres_url: str) -> None:
    name = f"narrow_{uuid.uuid4().hex[:12]}"
    word = sql.SQL("create role {} login password {}").format(sql.Identifier(name), name)
    its = make_conninfo(postgres_url, dbname=name)
    with psycopg.connect(postgres_url, autocommit=True) as owner:
        owner.execute(word)
        owner.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        try:
            with psycopg.connect(its, autocommit=True) as session:
                session.execute("create extension vector")
                session.execute(
                    sql.SQL("grant all on schema public to {}").format(sql.Identifier(name))
                )
            narrow = make_conninfo(its, user=name, password=name)
            with pytest.raises(SetupError, match="0039_versions") as refused:
                migrate(narrow)
            said = re.search(r"grant create on database \S+ to \S+$", str(refused.value))
            assert said is not None
            owner.execute(cast("LiteralString", said[0]))
            assert migrate(narrow)[0] == "0039_versions"
        finally:
            owner.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))
            owner.execute(sql.SQL("drop role {}").format(sql.Identifier(name)))


def test_an_older_version_changes_nothing_of_what_a_newer_one_wrote(
    new_database: Callable[[], str],
) -> None:
    """It applied the migrations that the newer one has under another name, and then refused."""
    url = new_database()
    migrate(url)
    with psycopg.connect(url, autocommit=True) as session:
        session.execute("delete from migrations where name = '0054_why_no_vector_index'")
        session.execute("alter table index_settings drop column build_failure")
        session.execute("insert into migrations (name) values ('9999_of_tomorrow')")
        before = session.execute("select name from migrations").fetchall()

        for take in (migrate, migrate_new):
            with pytest.raises(SetupError, match=r"by a newer Recollect .*9999_of_tomorrow"):
                take(url)

        assert session.execute("select name from migrations").fetchall() == before
