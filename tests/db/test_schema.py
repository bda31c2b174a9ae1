"""`tests/schema.sql` is the sum of the migrations, so that a review sees what a migration does."""

import re
import uuid
from collections.abc import Callable
from typing import LiteralString, cast

import psycopg
import pytest
from psycopg import sql
from psycopg.conninfo import make_conninfo

from recollect.db import migrate
from recollect.errors import SetupError
from tests.schema import KEPT, dump


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
