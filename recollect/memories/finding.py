"""Memories that answer a query, by words and by meaning, and how well they do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pgvector import HalfVector, SparseVector
from psycopg import sql

from recollect import documents
from recollect.db import Tx
from recollect.index import terms, vector_index
from recollect.index.phrases import PhraseStanding
from recollect.memories.records import (
    COLUMNS,
    Memory,
    MemoryId,
    MemoryQuery,
    condition_of,
    read_row,
)
from recollect.model import (
    Tenant,
)

CANDIDATES = 100
"""How many memories each side, words and meaning, hands to the fusion."""
READ = 500
"""How many each side hands over where the order of a phrase's words has to be looked at."""
STEP = 5_000
"""How many of all memories of a tag are read at a time."""
RANK_CONSTANT = 60
"""as in `search.py`"""
RANGES: Mapping[str, tuple[Sequence[float], Sequence[float]]] = {
    "local:multilingual-e5-small-q4": ((0.73, 0.79, 1.0), (0.0, 0.36, 1.0))
}
"""Cosines of models that call everything alike, and what they amount to, see `likeness`. Of 30
facts and questions about them, in six languages, all have 0.795 and more; of the others, one in 50.
"""


@dataclass(frozen=True, slots=True)
class FoundMemory:
    """A memory that answers a query; `similarity` as of `likeness`."""

    memory: Memory
    similarity: float


@dataclass(frozen=True, slots=True)
class Compared:
    """A memory beside a query. No `cosine` without vectors of one model on both sides."""

    memory: Memory
    cosine: float | None
    share: float
    """of the query's words that it holds"""
    rare_share: float
    """the same, where a word counts for as much as it is rare among the memories"""


@dataclass(frozen=True, slots=True)
class NamedStanding:
    """As `Compared`, of a memory that is only named: there may be very many."""

    id: MemoryId
    cosine: float | None
    share: float
    rare_share: float


def likeness(cosine: float | None, share: float, model: str = "") -> float:
    """How well a text answers a query, 0 … 1: by meaning, by the words they share, or by both.

    Callers ask for 0.6 and more unless they say otherwise. Of most models, all-MiniLM-L6-v2 among
    them, a fact and a question about it have cosines from 0.4 on, unrelated ones up to 0.25: the
    root puts 0.6 between them, at 0.36. Where the cosines of a `model` lie elsewhere, `RANGES`
    says what they amount to. Without vectors it is 0.6 for 36 % of the words.
    """
    if cosine is None:
        return sqrt(share)
    if model in RANGES:
        cosine = float(np.interp(cosine, *RANGES[model]))
    return 1 - (1 - sqrt(min(max(cosine, 0.0), 1.0))) * (1 - share / 2)


# The columns of a memory say where it belongs, so its terms are words only, and how common a word
# is gets counted among the memories in question: there are few of them beside the chunks.
_COUNTED = sql.SQL(
    "select number, count(*) as n from memories m cross join unnest(m.terms) as number"
    " where m.terms && %(numbers)s::int4[] and number = any(%(numbers)s) and {condition}"
    " group by number"
    " union all select null, count(*) from memories m where {condition}"
)
_LEXICAL = sql.SQL(
    "select m.id, -(m.weights <#> %(words)s) as points from memories m"
    " where m.terms && %(numbers)s::int4[] and {condition}"
    " order by points desc, m.id limit %(candidates)s"
)
_DENSE = sql.SQL(
    "select m.id, m.{column} <=> %(vector)s as distance from memories m"
    # Another model's vectors, until they are made again, are no distance away.
    " where vector_dims(m.{column}) = %(dimensions)s and {condition}"
    " order by distance, m.id limit %(candidates)s"
)
_EVERY = sql.SQL(
    "select m.id, {cosine} as cosine, case when m.terms && %(numbers)s::int4[] then array"
    " (select number from unnest(m.terms) as number where number = any(%(numbers)s)) end as held"
    " from memories m where {condition}"
)
_COSINE = (
    "case when vector_dims(m.{column}) = %(dimensions)s then 1 - (m.{column} <=> %(vector)s) end"
)
_NO_WORDS = sql.SQL("select null::text as id, 0::float8 as points where false")
_NO_VECTOR = sql.SQL("select null::text as id, 0::float8 as distance where false")
_FUSED = sql.SQL(
    "with lexical as materialized ({lexical}), dense as materialized ({dense}),"
    " ranked as (select id, sum(1.0 / (%(k)s + place)) as score from ("
    "  select id, rank() over (order by points desc) as place from lexical where points > 0"
    "  union all select id, rank() over (order by distance) from dense) as sides group by id)"
    " select {columns}, m.terms, {cosine} as cosine from ranked r join memories m on m.id = r.id"
    " order by r.score desc, m.id"
)


def search(
    tx: Tx,
    tenant: Tenant,
    text: str,
    vector: NDArray[np.float32] | None,
    query: MemoryQuery,
    *,
    threshold: float = 0.0,
    candidates: int = CANDIDATES,
) -> list[FoundMemory]:
    """Up to `query.limit` memories that answer best, the most similar first.

    By words and by meaning; `threshold` is the least similarity. `candidates`: how many of the
    best of each side are judged.
    """
    model = vector_index.made_by(vector)
    compared = compare(tx, tenant, text, vector, query, candidates=candidates)
    found = [
        # As it is shown: a threshold that was read off an answer lets that memory pass.
        FoundMemory(one.memory, round(likeness(one.cosine, one.share, model), 6))
        for one in compared
    ]
    liked = sorted(found, key=lambda one: one.similarity, reverse=True)
    return [one for one in liked if one.similarity >= threshold][: query.limit]


def compare(
    tx: Tx,
    tenant: Tenant,
    text: str,
    vector: NDArray[np.float32] | None,
    query: MemoryQuery,
    *,
    candidates: int,
) -> list[Compared]:
    """The memories that are nearest by words and those by meaning, `candidates` of each,
    beside the query; those first that are high in both orders."""
    groups = terms.query_terms(tenant.id, text)
    groups += [terms.numbers(tenant.id, word) for one in query.phrases for word in one.words]
    # Single words are looked for in the index; the order of several is looked at below.
    told = [one for one in (*query.phrases, *query.excluded) if len(one.words) > 1]
    if told:
        candidates = READ
    numbers = sorted({number for group in groups for number in group})
    condition, parameters = condition_of(tenant, query)
    parameters |= {"numbers": numbers}
    counted = _counted(tx, condition, parameters)
    words = terms.idf(groups, counted, counted[None])
    if not counted[None] or (not words and vector is None):
        return []
    column = vector_index.sought(tx, "memories", vector).column
    rows = tx.execute(
        _FUSED.format(
            lexical=_LEXICAL.format(condition=condition) if words else _NO_WORDS,
            dense=_NO_VECTOR
            if vector is None
            else _DENSE.format(condition=condition, column=column),
            columns=sql.SQL(COLUMNS),
            cosine=_cosine(vector, column),
        ),
        {
            **parameters,
            **_asked(vector),
            "numbers": list(words),
            "words": SparseVector({n - 1: w for n, w in words.items()}, documents.TERM_SPACE),
            "candidates": candidates,
            "k": RANK_CONSTANT,
        },
    ).fetchall()
    wanted, standing = set(told).intersection(query.phrases), PhraseStanding(told)

    def admitted(text: str) -> bool:
        stands = standing.of(text)
        return stands >= wanted and stands.isdisjoint(query.excluded)

    rarity = terms.rarities(groups, counted, counted[None])

    def beside(row: Mapping[str, Any]) -> Compared:
        held = set(row["terms"])
        shares = terms.share(groups, held), terms.share(groups, held, rarity)
        return Compared(read_row(row), row["cosine"], *shares)

    return [beside(row) for row in rows if not told or admitted(row["content"])]


def every(
    tx: Tx, tenant: Tenant, text: str, vector: NDArray[np.float32] | None, query: MemoryQuery
) -> list[NamedStanding]:
    """All memories that the query is about and that have anything of the text, or a vector to hold
    against its own; in no order."""
    groups = terms.query_terms(tenant.id, text)
    condition, parameters = condition_of(tenant, query)
    parameters |= {"numbers": sorted({number for group in groups for number in group})}
    counted = _counted(tx, condition, parameters)
    rarity = terms.rarities(groups, counted, counted[None])
    cosine = _cosine(vector, vector_index.sought(tx, "memories", vector).column)
    known = {frozenset[int](): (0.0, 0.0)}  # most hold the same few words
    found = list[NamedStanding]()
    # The server hands them over some at a time.
    with tx.cursor("every_memory") as rows:
        rows.itersize = STEP
        rows.execute(
            _EVERY.format(cosine=cosine, condition=condition), {**parameters, **_asked(vector)}
        )
        for row in rows:
            held = frozenset[int](row["held"] or ())
            if held not in known:
                known[held] = terms.share(groups, held), terms.share(groups, held, rarity)
            if held or row["cosine"] is not None:
                found.append(NamedStanding(row["id"], row["cosine"], *known[held]))
    return found


def _counted(
    tx: Tx, condition: sql.Composable, parameters: Mapping[str, object]
) -> Mapping[Any, int]:
    """How many of the memories hold each of the numbers; None: how many there are."""
    # As in `search.search`: a scan of all tenants' rows only looks cheap.
    tx.execute("set local enable_seqscan = off; set local random_page_cost = 1.1")
    rows = tx.execute(_COUNTED.format(condition=condition), parameters)
    return {row["number"]: row["n"] for row in rows}


def _cosine(vector: NDArray[np.float32] | None, column: sql.Composable) -> sql.Composable:
    return sql.SQL("null::float8" if vector is None else _COSINE).format(column=column)


def _asked(vector: NDArray[np.float32] | None) -> dict[str, object]:
    return {
        "vector": None if vector is None else HalfVector(vector),
        "dimensions": 0 if vector is None else len(vector),
    }
