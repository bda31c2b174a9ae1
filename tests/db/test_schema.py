"""`tests/schema.sql` is the sum of the migrations, so that a review sees what a migration does."""

from collections.abc import Callable

import psycopg
import pytest

from tests.schema import KEPT, dump


def test_the_migrations_add_up_to_the_schema_that_is_written_down(
    new_database: Callable[[], str],
) -> None:
    url = new_database()
    with psycopg.connect(url) as session:
        if session.info.server_version // 10000 != 18:
            pytest.skip("pg_dump of the wheel describes PostgreSQL 18")
    assert dump(url) == KEPT.read_text(), "run `make schema` and look at the difference"
