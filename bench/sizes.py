"""What an index of so many chunks takes: bytes, write-ahead log, time to build, pages of a search.

`python -m bench.sizes [CHUNKS]`. The rows are made by SQL, by `generate_series`: 2,000 profiles
(900 characters of 5,000 made-up words as rare and as frequent as words are, their terms, a vector)
are spread over the chunks, each with noise of its own. So sizes are those of real rows, words are
as frequent as they are, and vectors lie in clusters; what a search finds means nothing. Ten chunks
make a document, and a hundred tags share the documents.
"""

import random
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from typing import LiteralString

import numpy as np
import psycopg
from pgvector import HalfVector, SparseVector

from bench.fill import default_tenant, open_database
from bench.ground import Ground
from recollect import documents
from recollect.db import Database, Tx
from recollect.index import terms, vector_index
from recollect.model import Tenant
from recollect.search import hybrid
from recollect.search.hybrid import Query

DIMENSIONS = 384
PROFILES, VOCABULARY, WORDS = 2_000, 5_000, 130
PER_DOCUMENT, TAGS = 10, 100
LATER = 2_000
"""chunks that are added with the vector index in place"""
SEARCHES = 30
STEP = 50_000
"""chunks of a statement"""

RELATIONS: dict[str, LiteralString] = {
    "rows of chunks, with their texts, terms and vectors": "pg_table_size('entries')",
    "vector index (HNSW)": "pg_relation_size('entries_embedding')",
    "terms index (GIN)": "pg_relation_size('entries_terms')",
    "key of these rows": "pg_relation_size('entries_pkey')",
    "places of chunks, with key": "pg_total_relation_size('chunks')",
    "documents, with text and indexes": "pg_total_relation_size('documents')",
    "counts of terms": "pg_total_relation_size('term_counts')",
}

DOCUMENTS = """
insert into documents (id, org_id, container_tags, scope, kind, source, content, content_hash,
  status, due_at, indexed_revision, text, chunks)
select lpad(d::text, 22, '0'), %(org)s, array['tag' || d %% %(tags)s::int],
  array[%(number)s::int, (%(numbers)s::int[])[d %% %(tags)s::int + 1]], 'text', 'api', p.whole,
  sha256(d::text::bytea), 'done', null, 1, p.whole, %(each)s::int
from generate_series(%(first)s::int, %(last)s::int) d cross join lateral (
  select string_agg(p.text || ' ' || d, E'\\n' order by k) as whole
  from generate_series(0, %(each)s::int - 1) k
  join profiles p on p.id = (d::bigint * 7919 + k * 104729) %% %(profiles)s::int
) p
"""
ENTRIES = """
insert into entries (document_id, hash, text, terms, weights, embedding)
select lpad(d::text, 22, '0'), m.hash, p.text || ' ' || d,
  array[%(number)s::int, (%(numbers)s::int[])[d %% %(tags)s::int + 1]] || p.terms, p.weights,
  l2_normalize(p.vector + noise.vector)
from made m(d, k) join profiles p on p.id = (d::bigint * 7919 + k * 104729) %% %(profiles)s::int
cross join lateral (
  select array_agg((random() - 0.5) * 0.1)::halfvec as vector
  from generate_series(1, %(dimensions)s::int) where d + k >= 0
) noise
"""
CHUNKS = """
insert into chunks (document_id, position, start_at, end_at, hash)
select lpad(d::text, 22, '0'), k, start_at, end_at, hash from made m(d, k)
"""
PAGES = """
select relname as name, heap_blks_read + heap_blks_hit + coalesce(toast_blks_read, 0)
  + coalesce(toast_blks_hit, 0) + coalesce(tidx_blks_read, 0) + coalesce(tidx_blks_hit, 0) as pages
from pg_statio_user_tables union all
select indexrelname, idx_blks_read + idx_blks_hit from pg_statio_user_indexes
"""


@dataclass(frozen=True, slots=True)
class Simulated:
    db: Database
    tenant: Tenant
    model: str
    words: list[str]
    texts: list[str]
    vectors: list[HalfVector]


def main(chunks: int) -> None:
    with Ground() as ground, open_database(ground.new_database()) as db:
        made = prepare(db)
        print(f"{chunks:,} chunks, {chunks // PER_DOCUMENT:,} documents, {DIMENSIONS} dimensions")
        took, wal = _measured(db, lambda: fill(made, 0, chunks))
        _row("rows and terms index written, WAL", wal / chunks, "bytes/chunk", took)
        took, wal = _measured(db, lambda: build(made))
        _row("vector index built, WAL", wal / chunks, "bytes/chunk", took)
        took, wal = _measured(db, lambda: fill(made, chunks, LATER))
        _row(f"{LATER:,} chunks more, with all indexes, WAL", wal / LATER, "bytes/chunk", took)
        with psycopg.connect(db.url, autocommit=True) as session:
            session.execute("vacuum analyze")
        for what, size in _sizes(db):
            _row(what, size / (chunks + LATER), "bytes/chunk")
        for what, tags in (("untagged", []), (f"tag of 1/{TAGS}", ["tag7"])):
            pages, took = _searched(made, tags)
            _row(f"search, {what}, 8 kB pages", sum(pages.values()), "", took)
            for name, count in sorted(pages.items(), key=lambda item: -item[1])[:6]:
                _row(f"  {name}", count, "")


def _row(what: str, value: float, unit: str, seconds: float | None = None) -> None:
    took = "" if seconds is None else f"  {seconds:,.3g} s"
    print(f"{what:<55}{value:>12,.0f} {unit:<12}{took}", flush=True)


def prepare(db: Database, model: str = "simulated") -> Simulated:
    """The profiles, in a table, and an index of vectors that is yet to be made."""
    chance, noise = random.Random(5), np.random.default_rng(5)
    words = ["".join(chance.choices("bcdfglmnprst", k=7)) for _ in range(VOCABULARY)]
    often = [1 / (rank + 10) for rank in range(VOCABULARY)]
    tenant = default_tenant(db)
    texts: list[str] = []
    vectors: list[HalfVector] = []
    with db.begin() as tx:
        vector_index.rebind(tx, model, DIMENSIONS)
        tx.execute("drop index entries_embedding")
        tx.execute(
            "create unlogged table profiles (id int primary key, text text, terms int[],"
            " weights sparsevec, vector halfvec)"
        )
        tx.execute(
            "create unlogged table made (document int, position int, start_at int, end_at int,"
            " hash bytea)"
        )
        for number in range(PROFILES):
            text = " ".join(chance.choices(words, often, k=WORDS))[:880]
            texts.append(text)
            weighed = terms.weigh(tenant.id, text)
            vector = noise.normal(size=DIMENSIONS)
            vectors.append(HalfVector(vector / np.linalg.norm(vector)))
            weights = {term - 1: weight for term, weight in weighed.items()}
            tx.execute(
                "insert into profiles values (%s, %s, %s, %s, %s)",
                (
                    number,
                    text,
                    list(weighed),
                    SparseVector(weights, documents.TERM_SPACE),
                    vectors[-1],
                ),
            )
        tx.execute("analyze profiles")
    return Simulated(db, tenant, model, words, texts, vectors)


def fill(
    made: Simulated, begun: int, count: int, each: int = PER_DOCUMENT, tags: int = TAGS
) -> None:
    """So many chunks from that number on, `each` of them in a document, documents under a tag by
    turns."""
    org = made.tenant.id
    numbers = [documents.sought(org, [f"tag{number}"])[1] for number in range(tags)]
    for first in range(begun, begun + count, STEP):
        last = min(first + STEP, begun + count) // each - 1
        given = {
            "org": org,
            "number": documents.sought(org, [])[0],
            "numbers": numbers,
            "tags": tags,
            "each": each,
            "profiles": PROFILES,
            "dimensions": DIMENSIONS,
            "first": first // each,
            "last": last,
        }
        with made.db.begin() as tx:
            tx.execute("truncate made")
            with tx.cursor().copy("copy made from stdin") as rows:
                for row in _chunks(made, first // each, last, each):
                    rows.write_row(row)
            for statement in (DOCUMENTS, ENTRIES, CHUNKS):
                tx.execute(statement, given)
    with made.db.begin() as tx:
        tx.execute("delete from term_counts")
        tx.execute(
            "insert into term_counts (org_id, number, entries) select %s, number, count(*)"
            " from entries, unnest(terms) number group by number",
            (org,),
        )


def _chunks(
    made: Simulated, first: int, last: int, each: int
) -> Iterator[tuple[int, int, int, int, bytes]]:
    """Documents and positions of chunks, where they begin and end, and the hashes of their texts,
    which the statements cannot compute."""
    for document in range(first, last + 1):
        start = 0
        for position in range(each):
            text = f"{made.texts[(document * 7919 + position * 104729) % PROFILES]} {document}"
            digest = blake2b(text.encode(), digest_size=16).digest()
            yield document, position, start, start + len(text), digest
            start += len(text) + 1


def build(made: Simulated) -> None:
    """The vector index over all that is there."""
    with made.db.begin() as tx:
        tx.execute("set local maintenance_work_mem = '1GB'")
        tx.execute("set local statement_timeout = 0")
        vector_index.rebind(tx, made.model, DIMENSIONS)


def _measured(db: Database, work: Callable[[], None]) -> tuple[float, int]:
    """Seconds, and bytes of the write-ahead log."""
    before, started = _wal(db), time.perf_counter()
    work()
    return time.perf_counter() - started, _wal(db) - before


def _wal(db: Database) -> int:
    with db.begin() as tx:
        row = tx.execute("select pg_current_wal_lsn() - '0/0' as bytes").fetchone()
    assert row is not None
    return int(row["bytes"])


def _sizes(db: Database) -> Iterator[tuple[str, int]]:
    with db.begin() as tx:
        for what, size in RELATIONS.items():
            row = tx.execute("select " + size + " as bytes").fetchone()
            assert row is not None
            yield what, row["bytes"]


def _searched(made: Simulated, tags: list[str]) -> tuple[dict[str, float], float]:
    """Pages of each table and index that a search reads, cached or not, and its seconds."""
    chance = random.Random(9)
    with made.db.begin() as tx:
        before = _pages(tx)
    took = 0.0
    for _ in range(SEARCHES):
        vector = np.asarray(chance.choice(made.vectors).to_numpy(), dtype=np.float32)
        query = Query(" ".join(chance.choices(made.words, k=4)), vector, tags=tags)
        with made.db.begin() as tx:
            started = time.perf_counter()
            hybrid.search(tx, made.tenant, query)
            took += time.perf_counter() - started
            tx.execute("select pg_stat_force_next_flush()")
    with made.db.begin() as tx:
        after = _pages(tx)
    pages = {name: (count - before.get(name, 0)) / SEARCHES for name, count in after.items()}
    return {name: count for name, count in pages.items() if count >= 1}, took / SEARCHES


def _pages(tx: Tx) -> dict[str, int]:
    return {row["name"]: row["pages"] for row in tx.execute(PAGES)}


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 100_000)
