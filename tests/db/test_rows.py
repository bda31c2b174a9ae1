"""What PostgreSQL keeps in the rows of the index, and what beside them."""

import random
from typing import Any

from recollect.app import App
from recollect.ingest import intake
from recollect.ingest.intake import Labels
from recollect.model import Tenant
from recollect.worker.processing import drain

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def test_of_a_large_row_the_text_is_kept_beside_it_and_what_is_compared_in_it(
    app: App, tenant: Tenant
) -> None:
    draws = random.Random(5)
    words = ("".join(draws.choices(LETTERS, k=draws.randint(4, 9))) for _ in range(600))
    intake.take(app, tenant, Labels(tags=["a"]), intake.content_of(app, " ".join(words)))
    drain(app)

    with app.db.begin() as tx:
        rows = tx.execute(
            "select pg_column_toast_chunk_id(text) is not null as text, num_nonnulls("
            "  pg_column_toast_chunk_id(terms), pg_column_toast_chunk_id(weights),"
            "  pg_column_toast_chunk_id(embedding)) as compared from entries"
        ).fetchall()
    assert any(row["text"] for row in rows), "no row is large"
    assert [row for row in rows if row["compared"]] == []


def test_every_vector_is_kept_in_its_row(app: App) -> None:
    assert vectors_beside_rows(app) == []


def vectors_beside_rows(app: App) -> list[dict[str, Any]]:
    """Columns of vectors that PostgreSQL may move out of their rows."""
    with app.db.begin() as tx:
        return tx.execute(
            "select attrelid::regclass::text, attname from pg_attribute"
            " where attrelid in ('entries'::regclass, 'memories'::regclass)"
            " and format_type(atttypid, null) in ('halfvec', 'public.halfvec')"
            " and attstorage <> 'm' and not attisdropped"
        ).fetchall()
