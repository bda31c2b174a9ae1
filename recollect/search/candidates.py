"""The candidates of a search, by words (BM25) and by nearest vectors, in order.

The lexical side finds candidates by the GIN index on `entries.terms` and scores them with a sparse
inner product (BM25's document side is stored, its query side are the inverse frequencies). The
dense side compares all vectors where the scope (a tag, a document, the organisation) holds few
entries, and walks the HNSW index where it holds many: the planner cannot know which is better, the
counts in `term_counts` do. A walk that does not find enough is given up for the comparison of all.

Only what is published is a candidate: the entries of a document that is being written do not take
the place of others. Where one long document takes the places of others that match, each document
gets a share of further ones.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pgvector import HalfVector, SparseVector
from psycopg import sql

from recollect import db, documents
from recollect.db import Tx
from recollect.documents.filters import Filter
from recollect.index import terms, vector_index
from recollect.index.phrases import Phrase, PhraseStanding
from recollect.model import DocumentId, HitChunk, Tenant
from recollect.search import ranking, statements, walks

EXACT_UP_TO = 10_000
"""Entries in scope up to which every vector is compared; above, the HNSW index is walked."""
VISIT = 20
"""How many comparisons of a vector take as long as one visit on a walk through the HNSW index. It
takes `CANDIDATES` / (share of the entries that is in scope) visits to find enough."""
MOST_VISITS = 10_000
"""Walks that would be longer are not begun."""
LEAST_VISITS = 2_000
"""Bounds of a walk: those, or `PATIENCE` times as many as it should take. What matches a filter may
lie far from the query, and then comparing all of it is faster than walking on."""
PATIENCE = 4
PRIOR = 10
"""Beside the entries of a tag so many usual ones count when it is asked how frequent a word is
there: few alone say little."""
LOOKED_UP = 5_000
"""How many of the tag's entries are counted for that, if words are as frequent there as elsewhere;
each takes about a microsecond."""
NEARLY_ALL = 0.9
"""The share of the organisation's entries above which a tag has all words as frequent as that."""
CANDIDATES = 40
"""How many entries each side hands to the ranking; 100 find the same (docs/bench.md)."""
DEEP = 2_000
"""Entries on a walk among which documents find their share."""
PICKED = 3_000
"""Entries in scope that words should pick as candidates: the rarest pick, all score. Of the hundred
that would score best if all picked, these held 99 in 140 queries to 100,000 entries, and always
the first ten, for a quarter of the time."""
RARE = 0.1
"""Where too many would be picked, words in more than this share of the entries pick none, and are
not asked for beside others, but for want of rarer ones."""
READ = 2_000
"""Passages that hold the words of a phrase, the best first, in which their order is looked at; of
several phrases, each has a share of them."""


@dataclass(frozen=True, slots=True)
class Query:
    """What to look for.

    `threshold` (0 … 1) is the least score of a chunk, `document_threshold` that of a document,
    which is its best chunk's. Each chunk holds all `phrases`, and no chunk of its document any of
    `excluded`.
    """

    text: str
    vector: NDArray[np.float32] | None
    tags: Sequence[str] = ()
    filter: Filter | None = None
    filepath: str | None = None
    phrases: Sequence[Phrase] = ()
    excluded: Sequence[Phrase] = ()
    threshold: float = 0.0
    document_threshold: float = 0.0
    limit: int = 10
    with_neighbours: bool = False
    fold: bool = False
    """Passages that say what a better one says stand there only as its `also_in`; see `ask`."""
    as_of: datetime | None = None
    """What was known then is searched, all of it compared one by one; None: what is known now."""


@dataclass(frozen=True, slots=True)
class Placed:
    """A chunk among the candidates, as it was when its document was last updated."""

    document: DocumentId
    updated_at: datetime
    chunk: HitChunk


@dataclass(frozen=True, slots=True)
class _Way:
    """How candidates are looked for."""

    narrowed: bool
    """words look at documents before they choose the best"""
    walk: bool
    """vectors walk the HNSW index instead of comparing all"""
    shared: bool
    """each document has a share of the places"""
    paired: bool
    """what holds a frequent word alone, and no other word of the query, is no candidate by words"""


class Candidates:
    """Of one query, and the ways to them."""

    def __init__(self, tx: Tx, tenant: Tenant, query: Query, inside: DocumentId | None) -> None:
        self._tx, self._query = tx, query
        scope = documents.sought(tenant.id, query.tags)
        db.look_back(tx, tenant.id, query.as_of, scope)
        self._model = vector_index.sought(tx, "entries", query.vector)
        self._column = self._model.column
        tx.plan_for_any(statements.SETTINGS)
        self._condition, self._parameters = documents.condition(
            tenant,
            documents.DocumentQuery(
                id=inside, tags=query.tags, filter=query.filter, filepath=query.filepath
            ),
        )
        # What a limited key sees carries one of its tags, by which the indexes find it.
        reach = [] if query.tags else documents.sought(tenant.id, tenant.tags or ())[1:]
        self._own = sql.SQL("e.terms && %(own)s::int4[]" if reach else "true")
        if reach:
            self._parameters["own"] = reach
            self._condition = _both(self._condition, sql.SQL("d.scope && %(own)s::int4[]"))
        # Stop words of a phrase count: all that is found holds them.
        quoted = [word for one in query.phrases for word in one.words]
        words = list(dict.fromkeys([*terms.query_words(query.text), *quoted]))
        groups = [terms.numbers(tenant.id, word) for word in words]
        away = [terms.numbers(tenant.id, w) for one in query.excluded for w in one.words]
        counted, self._everywhere, self._shards = _counts(
            tx, tenant, [*scope, *reach, *(n for group in (*groups, *away) for n in group)]
        )
        if query.as_of is not None:  # older texts are not counted
            counted = {n: 1 for group in (scope, reach, *groups, *away) for n in group} | counted
        self._counted = counted
        total = counted.get(scope[0], 0)
        in_scope = min((counted.get(number, 0) for number in scope), default=0)
        if reach:
            in_scope = min(in_scope, sum(counted.get(number, 0) for number in reach))
        there = None
        is_part = scope[1:] and 0 < in_scope <= min(EXACT_UP_TO, NEARLY_ALL * total)
        if is_part and self._shards == 1 and query.as_of is None:
            there = _as_in_scope(tx, tenant, scope, counted, groups)
        self._wanted = ranking.Wanted.of(words, groups, counted, total, there, quoted=quoted)
        self._words = terms.idf(groups, there or counted, total)
        self._unpicked: Sequence[Sequence[int]] = groups
        self._choose = partial(_picks, counted=counted, total=total, in_scope=in_scope)
        self._picks, self._beside = self._choose(groups)
        self._within = scope[1:]
        self._holding: sql.Composable = sql.SQL("true")
        self._parameters["words"] = SparseVector(
            {n - 1: w for n, w in self._words.items()}, documents.TERM_SPACE
        )
        self._standing = PhraseStanding([*query.phrases, *query.excluded])
        self._stood: dict[str, set[Phrase]] = {}
        self._said: set[tuple[str, bytes]] | None = None
        readings = sum(_of_several(one) for one in query.excluded)
        readings += any(_of_several(one) for one in query.phrases)
        self._most = READ // max(readings, 1)
        if query.phrases:
            self._hold(tenant, query.phrases)
            # Any of its words finds all that holds a phrase.
            self._picks = list(terms.numbers(tenant.id, query.phrases[0].words[0]))
            self._beside = []
            self._unpicked = ()
        if words := [one.words[0] for one in query.excluded if not _of_several(one)]:
            # One look for any of them: a look for each of 63 took seconds.
            held = self._held(tenant, [tuple(term for word in words for term in word)], "without")
            self._condition = _both(self._condition, self._free_of(held))
        for number, phrase in enumerate(query.excluded):
            if _of_several(phrase):
                self._exclude(tenant, phrase, f"excluded_{number}")
        self._filtered = bool(
            inside is not None
            or query.filter is not None
            or query.filepath is not None
            or query.phrases
            or query.excluded
            or query.as_of is not None
        )
        self._narrowed = self._filtered or tenant.tags is not None
        matching, is_all = in_scope, True
        if self._filtered:
            matching, is_all = _matching(tx, self._condition, self._parameters)
        self._matching = min(matching, in_scope)
        self._may_match = self._matching if is_all else in_scope
        self._few = self._filtered and self._matching <= EXACT_UP_TO
        if self._few and not query.phrases:
            # How common a word is tells nothing of the few that match: each of them is read.
            self._picks, self._beside = list(self._words), []
        self._candidates = max(CANDIDATES, 2 * query.limit)
        self._one_document = inside is not None

    def _hold(self, tenant: Tenant, phrases: Sequence[Phrase]) -> None:
        """Narrow to the entries that hold all of the phrases."""
        words = [word for one in phrases for word in one.words]
        held = self._held(tenant, words, "held")
        if not any(_of_several(one) for one in phrases):
            self._holding = held
            self._condition = _both(self._condition, statements.OF_HOLDING.format(held=held))
            return
        found = self._saying(self._read_holding(held, self._most), phrases)
        self._said = {(row["document_id"], row["hash"]) for row in found}
        self._parameters |= {
            "held_in": list({id for id, _ in self._said}),
            "held_by": list({hash for _, hash in self._said}),
        }
        # Two arrays are looked up, pairs would be gone through: `find` does, for names differ.
        # `any` of thousands of documents would be sorted anew for each row that it is asked of.
        self._holding = sql.SQL("e.hash = any(%(held_by)s::bytea[])")
        held_in = sql.SQL("d.id in (select unnest(%(held_in)s::text[]))")
        self._condition = _both(self._condition, held_in)

    def _exclude(self, tenant: Tenant, phrase: Phrase, name: str) -> None:
        """Narrow to the documents that do not hold the phrase, which is of several words."""
        held = self._held(tenant, phrase.words, name)
        rows = self._read_holding(held, self._most + 1)
        if len(rows) <= self._most:
            found = {row["document_id"] for row in self._saying(rows, [phrase])}
            self._parameters[name] = list(found)
            condition = sql.SQL("d.id <> all({}::text[])").format(sql.Placeholder(name))
        else:  # words so common that to read all that hold them would take too long
            condition = self._free_of(held)
        self._condition = _both(self._condition, condition)

    def _free_of(self, held: sql.Composable) -> sql.Composable:
        """A condition on documents: none of their published entries is such a one."""
        return statements.NOT_HOLDING.format(
            held=held, published=statements.PUBLISHED.format(sql.SQL("e.hash"))
        )

    def _held(self, tenant: Tenant, words: Sequence[Sequence[str]], name: str) -> sql.Composable:
        """A condition on entries: each of the words stands there, somewhere."""
        parts: list[sql.Composable] = []
        for number, word in enumerate(words):
            # Of the forms in all languages few stand anywhere, and each is compared with each term.
            stand = [one for one in terms.numbers(tenant.id, word) if one in self._counted]
            self._parameters[f"{name}_{number}"] = stand
            blank = sql.Placeholder(f"{name}_{number}")
            parts.append(sql.SQL("e.terms && {}::int4[]").format(blank))
        return sql.SQL(" and ").join(parts)

    def _read_holding(self, held: sql.Composable, most: int) -> list[dict[str, Any]]:
        statement = statements.HOLDING.format(
            held=held,
            condition=self._condition,
            published=statements.PUBLISHED.format(sql.SQL("e.hash")),
        )
        return self._tx.execute(statement, {**self._parameters, "most": most}).fetchall()

    def _saying(
        self, rows: Sequence[Mapping[str, Any]], phrases: Sequence[Phrase]
    ) -> list[Mapping[str, Any]]:
        """Those entries in which all of the phrases stand, or in names of their document."""
        ids = {r["document_id"] for r in rows if not self._stand(r["text"]).issuperset(phrases)}
        named = self._tx.execute(statements.NAMED, (list(ids),)) if ids else ()
        names = {(r["document_id"], r["hash"]): (r["title"], r["blob_name"]) for r in named}

        def says(row: Mapping[str, Any]) -> bool:
            given = names.get((row["document_id"], row["hash"]), ())
            texts = [row["text"], *(name for name in given if name)]
            return set[Phrase]().union(*map(self._stand, texts)).issuperset(phrases)

        return [row for row in rows if says(row)]

    def _stand(self, text: str) -> set[Phrase]:
        if text not in self._stood:
            self._stood[text] = self._standing.of(text)
        return self._stood[text]

    def find(self) -> list[Placed]:
        """The candidates, the best first."""
        way: _Way | None = _Way(
            self._narrowed, self._walks(), shared=False, paired=bool(self._beside)
        )
        rows = best = list[dict[str, Any]]()
        while way is not None:
            rows = self._candidates_by(way)
            best = best if way.shared else rows
            way = self._better(way, rows)
        # So that further documents come, each has a share; the best passages stay nevertheless.
        places = {(row["document_id"], row["hash"]): row for row in [*best, *rows]}
        said = places if self._said is None else self._said
        return self._ranked([row for place, row in places.items() if place in said])

    def _walks(self) -> bool:
        visits = self._visits()
        return not (
            self._query.as_of is not None
            or self._matching <= max(EXACT_UP_TO, VISIT * visits)
            or visits > MOST_VISITS
            or self._query.vector is None
        )

    def _visits(self) -> float:
        return self._candidates * self._everywhere / max(self._matching, 1)

    def _better(self, way: _Way, rows: Sequence[Mapping[str, Any]]) -> _Way | None:
        """Another way if this one left out what it should have found; each gives up a short cut."""
        by_words = sum(row["by_words"] for row in rows)
        by_meaning = sum(row["by_meaning"] for row in rows)
        shown = len({row["document_id"] for row in rows})
        # Entries that are not published, or another organisation's by chance, took places.
        picked = rows[0]["picked"] if rows else 0 if way.narrowed else len(self._words)
        if way.paired and picked < self._candidates:
            return replace(way, paired=False)
        if not way.narrowed and by_words < min(picked, self._candidates):
            return replace(way, narrowed=True)
        if not picked and self._pick_others():
            return replace(way, paired=bool(self._beside))
        if way.walk and by_meaning < self._candidates:
            return replace(way, walk=False)
        if shown >= self._query.limit or self._one_document:
            return None
        if not way.shared:
            full = max(by_words, by_meaning) >= self._candidates
            return replace(way, narrowed=True, shared=True) if full and self._more(shown) else None
        return replace(way, walk=False) if way.walk and self._more(shown) else None

    def _pick_others(self) -> bool:
        """Where those that picked stand nowhere in scope, let others; whether there are any."""
        done = frozenset(self._picks)
        self._unpicked = [group for group in self._unpicked if done.isdisjoint(group)]
        self._picks, self._beside = self._choose(self._unpicked)
        return bool(self._picks)

    def _more(self, shown: int) -> bool:
        """Whether more documents match than were found."""
        row = self._tx.execute(
            sql.SQL(
                "select count(*) as n from"
                " (select 1 from facets d where {} and d.chunks > 0 limit %(most)s) as found"
            ).format(self._condition),
            {**self._parameters, "most": shown + 1},
        ).fetchone()
        return row is not None and row["n"] > shown

    def _candidates_by(self, way: _Way) -> list[dict[str, Any]]:
        query, walked = self._query, None if way.shared else self._candidates
        rounds = 1
        if way.walk:
            width = walks.width(self._everywhere, self._matching, self._shards)
            visits = max(LEAST_VISITS, round(PATIENCE * self._visits()))
            if way.shared:
                walked = DEEP
            elif (rounds := walks.rounds(self._everywhere, self._may_match, self._shards)) > 1:
                # The last round begins only if those before it did not find as many.
                share = min(1.0, self._may_match / self._everywhere)
                walked = self._candidates + round(walks.SURPLUS * (rounds - 1) * width * share)
                visits = max(visits, rounds * walks.ROUND_VISITS)
            self._tx.execute(
                sql.SQL(
                    "set local hnsw.max_scan_tuples = {}; set local hnsw.ef_search = {}"
                ).format(max(visits, 2 * DEEP) if way.shared else visits, width)
            )
        # Each of several servers joins its own documents with their entries.
        apart = sql.SQL("offset 0" if self._shards == 1 else "")
        matching = statements.MATCHING.format(condition=self._condition, apart=apart)
        blanks = {
            "apart": apart,
            "picked": _both(statements.PAIRED if way.paired else statements.PICK, self._own),
            "condition": self._condition,
            "matching": matching,
            "documents": sql.SQL("facets d"),
            "published": _both(statements.PUBLISHED.format(sql.SQL("e.hash")), self._holding),
            "column": self._column,
            "dimensions": sql.Literal(0 if query.vector is None else len(query.vector)),
        }
        joins = statements.BY_ONE if query.as_of and self._shards == 1 else statements.JOINED
        picked = dense = statements.NOTHING
        if self._words:
            picked = statements.PICKED_NARROWED if way.narrowed else statements.PICKED
            picked = statements.PICKED_SHARED if way.shared else picked
            few = {"documents": matching, "condition": sql.SQL("true")} if self._few else {}
            picked = statements.FIRST.format(all=picked.format(**{**blanks, **few}), **joins)
        if query.vector is not None:
            dense = (statements.WALKED if way.walk else statements.COMPARED).format(**blanks)
            dense = statements.SHARED.format(all=dense) if way.shared else dense
            # A round of a walk begins with the nearest, and knows of no others.
            is_sorted = way.walk and not way.shared and rounds == 1
            dense = dense if is_sorted else statements.FIRST.format(all=dense, **joins)
        statement = statements.FOUND.format(
            picked=picked,
            dense=dense,
            **joins,
            condition=self._condition,
            published=statements.PUBLISHED.format(sql.SQL("p.hash")),
            similarity=sql.SQL(
                "null::float8" if query.vector is None else statements.SIMILARITY
            ).format(**blanks),
        )
        # Words are looked up, vectors compared or walked to, however many there are; under a filter
        # the best way depends on it.
        is_usual = not (way.narrowed or way.shared) and self._shards == 1
        execute = self._tx.execute_planned if is_usual else self._tx.execute
        return execute(
            statement,
            {
                **self._parameters,
                "within": self._within,
                "picks": self._picks,
                "beside": self._beside,
                "vector": None if query.vector is None else HalfVector(query.vector),
                "candidates": self._candidates,
                "share": max(2, self._candidates // query.limit),
                "walked": walked,
            },
        ).fetchall()

    def _ranked(self, rows: Sequence[Mapping[str, Any]]) -> list[Placed]:
        found = [
            ranking.Found(
                _read(row),
                row["points"],
                row["similarity"],
                row["document_id"] if "message" in row["place"] else None,
                row["position"] == 0
                and documents.is_called(self._query.text, row["title"], row["blob_name"]),
            )
            for row in rows
        ]
        standings = ranking.rank(self._wanted, found, model=self._model.name)
        ranked = sorted(
            zip(rows, standings, strict=True),
            key=lambda one: (
                -one[1].parts.order,
                -one[0]["updated_at"].timestamp(),
                one[0]["position"],
                one[0]["document_id"],
            ),
        )
        relevance = ranking.falling([standing.relevance for _, standing in ranked])
        scores = [round(one, ranking.DIGITS) for one in relevance]
        return [
            Placed(
                row["document_id"],
                row["updated_at"],
                HitChunk(
                    position=row["position"],
                    start=row["start_at"],
                    end=row["end_at"],
                    text=row["text"],
                    score=score,
                    is_relevant=score >= ranking.RELEVANT,
                    similarity=row["similarity"],
                    lexical=row["points"],
                    share=standing.share,
                    place=row["place"],
                    parts=standing.parts,
                ),
            )
            for (row, standing), score in zip(ranked, scores, strict=True)
        ]


def _read(row: Mapping[str, Any]) -> str:
    """What a candidate is judged by: of the first passage of a document, its names as well."""
    text = row["text"]
    names = "" if row["position"] else documents.names(row["title"], row["blob_name"], text)
    return f"{names}\n{text}" if names else text


def _both(one: sql.Composable, other: sql.Composable) -> sql.Composable:
    return sql.SQL("({} and {})").format(one, other)


def _of_several(phrase: Phrase) -> bool:
    """Whether it has several words, whose order the index does not know."""
    return len(phrase.words) > 1


def _matching(
    tx: Tx, condition: sql.Composable, parameters: Mapping[str, object]
) -> tuple[int, bool]:
    """How many chunks the documents that match have, and whether those are all: it stops counting
    where it is clear that they are many."""
    row = tx.execute(
        sql.SQL(
            # What has none counts, too: of many documents, some wait or failed.
            "select greatest(sum(chunks), count(*)) as n, count(*) as documents from"
            " (select d.chunks from facets d where {} limit %(most)s) as found"
        ).format(condition),
        {**parameters, "most": EXACT_UP_TO + 1},
    ).fetchone()
    assert row is not None
    return int(row["n"]), row["documents"] <= EXACT_UP_TO


def _counts(tx: Tx, tenant: Tenant, numbers: Sequence[int]) -> tuple[dict[int, int], int, int]:
    """In how many entries each number stands, about how many entries all tenants have, and in how
    many shards they lie."""
    given = {"org": tenant.id, "numbers": list(numbers)}
    rows = tx.execute_planned(statements.COUNTS, given).fetchall()
    shape = next(row for row in rows if row["number"] is None)
    counted = {row["number"]: row["entries"] for row in rows if row["number"]}
    return counted, max(shape["entries"], *counted.values(), 0), shape["shards"]


def _as_in_scope(
    tx: Tx,
    tenant: Tenant,
    scope: Sequence[int],
    counted: Mapping[int, int],
    groups: Sequence[Sequence[int]],
) -> dict[int, int]:
    """`counted`, as it would be if each word were everywhere as frequent as under all of the tags.

    `scope`: the number of the organisation, then those of the tags.

    The name of a person stands in every other passage of his tag, and in few of all. The most
    frequent words stay as they are where all would take too long: they tell little anyway.
    """
    total, *tags = (counted[number] for number in scope)
    stand = {number for group in groups for number in group if counted.get(number, 0) > 0}
    rarest = sorted(stand, key=counted.__getitem__)
    usual = accumulate(counted[number] * min(tags) / total for number in rarest)
    numbers = [number for number, many in zip(rarest, usual, strict=True) if many <= LOOKED_UP]
    given = {"org": tenant.id, "numbers": numbers, "scope": list(scope[1:])}
    rows = tx.execute_planned(statements.WITHIN, given).fetchall()
    there = {row["number"]: row["entries"] for row in rows}
    size = min(tags)
    if len(tags) > 1:
        [together] = tx.execute_planned(statements.TOGETHER, given)
        size = together["entries"]
    found = dict(counted)
    for number in numbers:
        before = PRIOR * counted[number]
        found[number] = max(1, round((total * there.get(number, 0) + before) / (size + PRIOR)))
    return found


def _picks(
    groups: Sequence[Sequence[int]], counted: Mapping[int, int], total: int, in_scope: int
) -> tuple[list[int], list[int]]:
    """The numbers that find candidates: those of the rarest words, until they find enough.

    Where the last of them alone finds too many, also the numbers of all other words: one of these
    has to stand beside it.
    """
    found = [[n for n in group if counted.get(n, 0) > 0] for group in groups]
    share = in_scope / max(total, 1)
    picks: list[list[int]] = []
    rarest = sorted((sum(counted[n] for n in group), group) for group in found if group)
    expected = 0.0
    for n, group in rarest:
        many = expected + n * share > PICKED
        if picks and many and (expected >= CANDIDATES or n > RARE * total):
            break
        expected += n * share
        picks.append(group)
    last = picks[-1] if expected > PICKED else None
    others = [(n, group) for n, group in rarest if last and group is not last]
    telling = [group for n, group in others if n <= RARE * total] or [g for _, g in others]
    beside = [n for group in telling for n in group]
    return [n for group in picks for n in group], beside
