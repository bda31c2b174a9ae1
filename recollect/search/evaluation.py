"""Test questions: what should be found, by tag, and how the search fares at it.

A run asks the questions that the tag has when it begins, in steps, so that no request lasts for
minutes. It goes through the search of `POST /v3/search`.
"""

import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, cast

import msgspec

from recollect.app import App
from recollect.db import Tx, tenancy
from recollect.errors import (
    BadRequestError,
    NotFoundError,
    Permanent,
    RequestError,
    Transient,
)
from recollect.model import Hit, Tenant, random_id, storable
from recollect.orgs import tags
from recollect.search.ask import ask
from recollect.search.hybrid import Query

MOST_QUESTIONS = 1_000
"""of a tag"""
MOST_RUNS = 20
"""Runs of a tag that are kept; the oldest goes."""
LONGEST_QUESTION = 1_000
LONGEST_EXPECTED = 1_000
LONGEST_LINE = 16_000
"""Characters of a JSON line of an import."""
DEPTH = 10
"""Documents that are looked at for the expected one."""
STEP = 20
"""Questions that a step asks, if it has the time."""
STRETCH = 10.0
"""Seconds after which a step asks none further: a reranker may take seconds for each."""

_SEEN = tenancy.with_one("tag", "org_id")


class UnmeasuredError(RequestError):
    """A question could not be asked as the run wants it, and the figures would be those of another
    search. What was asked before counts; the next step asks it again."""

    status = 503

    def __init__(self, why: str) -> None:
        super().__init__("The run stands still", why)


@dataclass(frozen=True, slots=True)
class Expected:
    """A question, and the document (id or customId), the words of a passage, or both."""

    question: str
    document: str | None = None
    words: str | None = None

    def check(self) -> None:
        """Raises BadRequestError."""
        if not self.question.strip() or len(self.question) > LONGEST_QUESTION:
            raise BadRequestError(f"question: needs 1 to {LONGEST_QUESTION} characters")
        for name, value in (("document", self.document), ("words", self.words)):
            if value is not None and not (value.strip() and len(value) <= LONGEST_EXPECTED):
                raise BadRequestError(f"{name}: needs 1 to {LONGEST_EXPECTED} characters")
        if self.document is None and self.words is None:
            raise BadRequestError("document, words: give at least one of them")

    def rank(self, hits: Sequence[Hit]) -> int | None:
        """The place of the first hit that is meant, from 1."""
        return next((at for at, hit in enumerate(hits, 1) if self._is_meant(hit)), None)

    def _is_meant(self, hit: Hit) -> bool:
        if self.document not in (None, hit.document.id, hit.document.custom_id):
            return False
        if self.words is None:
            return True
        words = _plain(self.words)
        return any(words in _plain(chunk.text) for chunk in hit.chunks)


@dataclass(frozen=True, slots=True)
class TestQuestion:
    id: str
    tag: str
    expected: Expected
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True)
class QuestionResult:
    """`rank`: None for what was not among the first ten, or waits; `before`: in the run before."""

    question_id: str
    question: str
    asked: bool
    rank: int | None
    asked_before: bool
    before: int | None


@dataclass(frozen=True, slots=True)
class TestRun:
    """`reciprocal`: the mean reciprocal rank of those that were asked; shares are from 0 to 1."""

    id: str
    tag: str
    rerank: bool
    rewrite: bool
    created_at: datetime
    finished_at: datetime | None
    questions: int
    asked: int
    hit_1: float
    hit_5: float
    hit_10: float
    reciprocal: float


# --- questions ---------------------------------------------------------------------------------


def add(
    tx: Tx,
    tenant: Tenant,
    tag: str,
    given: Sequence[Expected],
    *,
    made_from: Sequence[str] | None = None,
) -> list[TestQuestion]:
    """Add questions to the tag, which the caller may touch; all of them or none.

    `made_from`: for each the id of the document that it was made of; left out are those of one that
    is not in the tag any more.

    Raises BadRequestError for one that expects nothing, and for more than a tag may have.
    """
    for one in given:
        one.check()
    made = list(made_from or [None] * len(given))
    # Documents before tags, as who changes both locks them; and held, so that none leaves the tag.
    held = tx.execute(
        "select d.id from documents d where d.id = any(%s) and d.org_id = %s and d.gone_at is null"
        " and %s = any(d.container_tags) order by d.archive_id is not null, d.id for share",
        (made, tenant.id, tag),
    )
    there = [row["id"] for row in held]
    tags.ensure(tx, tenant.id, [tag])
    # One at a time, so that two who add at once do not pass the limit together.
    tags.get(tx, tenant, tag, lock=True)
    row = tx.execute(
        "select count(*) as present from test_questions where org_id = %s and tag = %s",
        (tenant.id, tag),
    ).fetchone()
    assert row is not None
    if row["present"] + len(given) > MOST_QUESTIONS:
        raise BadRequestError(
            f"a tag has at most {MOST_QUESTIONS} test questions; {tag!r} has {row['present']},"
            f" and these are {len(given)}"
        )
    rows = tx.execute(
        "insert into test_questions (id, org_id, tag, question, document, words, made_from,"
        "  created_at)"
        " select g.id, %(org)s, %(tag)s, g.question, g.document, g.words, g.made_from,"
        "  now() + g.place * interval '1 microsecond'"
        " from unnest(%(ids)s::text[], %(questions)s::text[], %(documents)s::text[],"
        "  %(words)s::text[], %(made)s::text[]) with ordinality"
        "  as g (id, question, document, words, made_from, place)"
        " where g.made_from is null or g.made_from = any(%(there)s)"
        " returning *",
        {
            "org": tenant.id,
            "tag": tag,
            "ids": [random_id() for _ in given],
            "questions": [one.question for one in given],
            "documents": [one.document for one in given],
            "words": [one.words for one in given],
            "made": made,
            "there": there,
        },
    ).fetchall()
    return sorted(map(_question, rows), key=lambda one: one.created_at)


def find(tx: Tx, tenant: Tenant, tag: str) -> list[TestQuestion]:
    """The questions of the tag, the oldest first."""
    rows = tx.execute(
        f"select * from test_questions where {_SEEN} and tag = %(tag)s order by created_at, id",
        {**tenancy.bounds(tenant), "tag": tag},
    ).fetchall()
    return [_question(row) for row in rows]


def get(tx: Tx, tenant: Tenant, id: str) -> TestQuestion:
    """Raises NotFoundError."""
    row = tx.execute(
        f"select * from test_questions where {_SEEN} and id = %(id)s for update",
        {**tenancy.bounds(tenant), "id": id},
    ).fetchone()
    if row is None:
        raise NotFoundError("Not found", "there is no such test question")
    return _question(row)


def change(tx: Tx, tenant: Tenant, id: str, wanted: Expected) -> TestQuestion:
    """Raises NotFoundError, and BadRequestError as `add`."""
    get(tx, tenant, id)
    wanted.check()
    row = tx.execute(
        "update test_questions set question = %s, document = %s, words = %s, updated_at = now()"
        " where id = %s returning *",
        (wanted.question, wanted.document, wanted.words, id),
    ).fetchone()
    assert row is not None
    return _question(row)


def remove(tx: Tx, tenant: Tenant, id: str) -> None:
    """With its results in all runs. Raises NotFoundError."""
    get(tx, tenant, id)
    tx.execute("delete from test_questions where id = %s", (id,))


def read_lines(lines: str) -> list[Expected]:
    """Questions of JSON lines: `question`, and `document`, `words` or both. Empty lines count as
    none. Raises BadRequestError, which names the first line that is wrong."""
    read: list[Expected] = []
    for number, line in enumerate(lines.split("\n"), 1):
        if not line.strip():
            continue
        if len(read) == MOST_QUESTIONS:
            raise BadRequestError(f"lines: at most {MOST_QUESTIONS} questions")
        try:
            read.append(_read_line(line))
        except (BadRequestError, ValueError, RecursionError) as error:
            told = error.details if isinstance(error, BadRequestError) else str(error)
            raise BadRequestError(f"line {number}: {told}") from error
    if not read:
        raise BadRequestError("lines: there is no question")
    return read


def _read_line(line: str) -> Expected:
    if len(line) > LONGEST_LINE:
        raise BadRequestError(f"is longer than {LONGEST_LINE} characters")
    given = msgspec.json.decode(line)
    if not isinstance(given, dict):
        raise BadRequestError("is not a JSON object")
    fields = cast("dict[str, Any]", given)
    question, *expected = (fields.get(name) for name in ("question", "document", "words"))
    if not isinstance(question, str):
        raise BadRequestError("question: is not a text")
    if any(not isinstance(value, str | None) for value in expected):
        raise BadRequestError("document, words: are texts, or left out")
    one = Expected(storable(question), *map(storable, expected))
    one.check()
    return one


def write_lines(questions: Sequence[TestQuestion]) -> str:
    """What `read_lines` reads."""
    return "".join(
        msgspec.json.encode(
            {
                name: value
                for name, value in (
                    ("question", one.expected.question),
                    ("document", one.expected.document),
                    ("words", one.expected.words),
                )
                if value is not None
            }
        ).decode()
        + "\n"
        for one in questions
    )


# --- runs --------------------------------------------------------------------------------------


def begin(tx: Tx, tenant: Tenant, tag: str, *, rerank: bool, rewrite: bool) -> TestRun:
    """Note a run over the questions of the tag; `step` asks them.

    The oldest runs beyond `MOST_RUNS` go. Raises BadRequestError for a tag without questions.
    """
    questions = find(tx, tenant, tag)
    if not questions:
        raise BadRequestError(f"containerTag: {tag!r} has no test questions; add some first")
    tags.get(tx, tenant, tag, lock=True)
    id = random_id()
    tx.execute(
        "insert into test_runs (id, org_id, tag, rerank, rewrite, created_at)"
        " values (%s, %s, %s, %s, %s, clock_timestamp())",
        (id, tenant.id, tag, rerank, rewrite),
    )
    tx.execute(
        "insert into test_results (run_id, question_id, place)"
        " select %s, q.id, q.place from unnest(%s::text[]) with ordinality as q (id, place)"
        " where exists (select from test_questions t where t.id = q.id)",
        (id, [one.id for one in questions]),
    )
    tx.execute(
        "delete from test_runs where id in (select id from test_runs"
        " where org_id = %s and tag = %s order by created_at desc, id offset %s)",
        (tenant.id, tag, MOST_RUNS),
    )
    return run(tx, tenant, id)


def step(app: App, tenant: Tenant, id: str) -> TestRun:
    """Ask the next questions of the run, one at least. Two steps at once ask some twice, and count
    them once.

    Not to be called in a transaction. Raises NotFoundError, UnmeasuredError where a model gives no
    answer, and as `ask`; a question that asks for nothing counts as not found.
    """
    end = time.monotonic() + STRETCH
    with app.db.begin() as tx:
        begun = run(tx, tenant, id)
        rows = tx.execute(
            "select q.* from test_results r join test_questions q on q.id = r.question_id"
            " where r.run_id = %s and r.asked_at is null order by r.place limit %s",
            (id, STEP),
        ).fetchall()
    for question in map(_question, rows):
        rank = question.expected.rank(_hits(app, tenant, begun, question))
        with app.db.begin() as tx:
            tx.execute(
                "update test_results set rank = %s, asked_at = now()"
                " where run_id = %s and question_id = %s and asked_at is null",
                (rank, id, question.id),
            )
        if time.monotonic() >= end:
            break
    with app.db.begin() as tx:
        tx.execute(
            "update test_runs set finished_at = now() where id = %(id)s and finished_at is null"
            " and not exists (select from test_results"
            "  where run_id = %(id)s and asked_at is null)",
            {"id": id},
        )
        return run(tx, tenant, id)


def _hits(app: App, tenant: Tenant, begun: TestRun, question: TestQuestion) -> Sequence[Hit]:
    query = Query(text=question.expected.question, vector=None, tags=[begun.tag], limit=DEPTH)
    try:
        answer = ask(app, tenant, query, rerank=begun.rerank, rewrite=begun.rewrite)
    except BadRequestError:
        return ()
    except (Transient, Permanent) as error:
        if not error.code.startswith("http_"):
            raise
        raise UnmeasuredError(str(error)) from error
    if answer.warnings:
        raise UnmeasuredError("; ".join(answer.warnings))
    return answer.hits


_FIGURES = (
    "select r.*, count(t.*) as questions, count(t.asked_at) as asked,"
    " count(*) filter (where t.rank <= 1) as hits_1, count(*) filter (where t.rank <= 5) as hits_5,"
    " count(*) filter (where t.rank <= 10) as hits_10,"
    " coalesce(sum(1.0 / t.rank), 0)::float8 as reciprocals"
    " from test_runs r left join test_results t on t.run_id = r.id where "
)


def runs(tx: Tx, tenant: Tenant, tag: str) -> list[TestRun]:
    """The runs of the tag, the newest first."""
    rows = tx.execute(
        f"{_FIGURES}{_SEEN} and r.tag = %(tag)s group by r.id order by r.created_at desc, r.id",
        {**tenancy.bounds(tenant), "tag": tag},
    ).fetchall()
    return [_run(row) for row in rows]


def run(tx: Tx, tenant: Tenant, id: str) -> TestRun:
    """Raises NotFoundError."""
    row = tx.execute(
        f"{_FIGURES}{_SEEN} and r.id = %(id)s group by r.id",
        {**tenancy.bounds(tenant), "id": id},
    ).fetchone()
    if row is None:
        raise NotFoundError("Not found", "there is no such test run")
    return _run(row)


def results(tx: Tx, of: TestRun, before: TestRun | None) -> list[QuestionResult]:
    """By question, in the order of the run."""
    rows = tx.execute(
        "select r.question_id, q.question, r.asked_at is not null as asked, r.rank,"
        " b.asked_at is not null as asked_before, b.rank as before"
        " from test_results r join test_questions q on q.id = r.question_id"
        " left join test_results b on b.question_id = r.question_id and b.run_id = %s"
        " where r.run_id = %s order by r.place",
        (None if before is None else before.id, of.id),
    ).fetchall()
    return [QuestionResult(**row) for row in rows]


def run_before(tx: Tx, tenant: Tenant, of: TestRun) -> TestRun | None:
    """The last finished run of the tag that began before this one."""
    earlier = [
        one
        for one in runs(tx, tenant, of.tag)
        if one.finished_at is not None and one.created_at < of.created_at
    ]
    return earlier[0] if earlier else None


def _plain(text: str) -> str:
    return re.sub(r"\s+", " ", text).strip().casefold()


def _question(row: Mapping[str, Any]) -> TestQuestion:
    return TestQuestion(
        id=row["id"],
        tag=row["tag"],
        expected=Expected(row["question"], row["document"], row["words"]),
        created_at=row["created_at"],
        updated_at=row["updated_at"],
    )


def _run(row: Mapping[str, Any]) -> TestRun:
    asked = row["asked"] or 1
    return TestRun(
        id=row["id"],
        tag=row["tag"],
        rerank=row["rerank"],
        rewrite=row["rewrite"],
        created_at=row["created_at"],
        finished_at=row["finished_at"],
        questions=row["questions"],
        asked=row["asked"],
        hit_1=row["hits_1"] / asked,
        hit_5=row["hits_5"] / asked,
        hit_10=row["hits_10"] / asked,
        reciprocal=row["reciprocals"] / asked,
    )
