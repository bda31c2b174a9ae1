"""Test questions in a bundle: what is asked and expected, without the results of runs."""

from collections.abc import Mapping
from typing import Any, Literal

from recollect.db import Tx
from recollect.model import OrgId, Tenant, storable
from recollect.ops.backup._bundle import ID, BundledQuestion, derived
from recollect.orgs import tags
from recollect.search.evaluation import MOST_QUESTIONS, Expected

MATCHING = (
    " from test_questions q where q.org_id = %(org)s"
    " and (%(tags)s::text[] is null or q.tag = any(%(tags)s::text[]))"
)
"""Those of an organisation, or of some of its tags; the columns of `q`."""
Outcome = Literal["added", "there", "left out"]


def bundled(row: Mapping[str, Any]) -> BundledQuestion:
    return BundledQuestion(
        id=row["id"],
        tag=row["tag"],
        question=row["question"],
        document=row["document"],
        words=row["words"],
        made_from=row["made_from"],
        created_at=row["created_at"],
    )


def bring(
    tx: Tx,
    org: OrgId,
    given: BundledQuestion,
    documents: Mapping[str, str],
) -> Outcome:
    """Add a question, unless it is there; `documents`: by their ids in the bundle those they have
    here.

    Left out are those made of a document that is not here in their tag, with which they would have
    gone, and those beyond what a tag may have. Raises RequestError, ValueError.
    """
    if not ID.fullmatch(given.id):
        raise ValueError("id: 1 to 64 characters of letters, digits, _ -")
    [tag] = tags.check([given.tag], "tag")
    expected = Expected(
        storable(given.question),
        storable(given.document and documents.get(given.document, given.document)),
        storable(given.words),
    )
    expected.check()
    made_from = given.made_from and documents.get(given.made_from, given.made_from)
    there = tx.execute(  # documents before tags, as who changes both locks them
        "select from documents d where d.id = %s and d.org_id = %s and d.gone_at is null"
        " and %s = any(d.container_tags) for share",
        (storable(made_from), org, tag),
    ).fetchone()
    if made_from is not None and there is None:
        return "left out"
    tags.ensure(tx, org, [tag])
    tags.get(tx, Tenant(org), tag, lock=True)
    other = derived(org, given.id)
    rows = tx.execute(
        "select id, org_id from test_questions where id = any(%s)", ([given.id, other],)
    ).fetchall()
    if any(row["org_id"] == org for row in rows):
        return "there"
    added = tx.execute(
        "insert into test_questions (id, org_id, tag, question, document, words, made_from,"
        "  created_at)"
        " select %(id)s, %(org)s, %(tag)s, %(question)s, %(document)s, %(words)s, %(made)s,"
        "  coalesce(%(created_at)s, now())"
        " where (select count(*) from test_questions where org_id = %(org)s and tag = %(tag)s)"
        "   < %(most)s"
        " on conflict do nothing",
        {
            "id": other if rows else given.id,
            "org": org,
            "tag": tag,
            "question": expected.question,
            "document": expected.document,
            "words": expected.words,
            "made": storable(made_from),
            "created_at": given.created_at,
            "most": MOST_QUESTIONS,
        },
    ).rowcount
    return "added" if added else "left out"
