"""Test questions go along with a bundle: once, with what they expect, checked like all input."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recollect import documents
from recollect.app import App
from recollect.errors import SetupError
from recollect.model import DocumentId, Tenant, storable
from recollect.ops import backup
from recollect.orgs import tags
from recollect.search import evaluation
from recollect.search.evaluation import Expected
from recollect.worker.processing import drain
from tests.ops.test_backup import add, new_org, new_place, story, url_of

__all__ = ["new_place"]


def questions(app: App, tenant: Tenant, tag: str = "notes") -> list[tuple[Any, ...]]:
    with app.db.begin() as tx:
        rows = tx.execute(
            "select question, document, words, made_from, created_at from test_questions"
            " where org_id = %s and tag = %s order by created_at, id",
            (tenant.id, tag),
        ).fetchall()
        return [tuple(row.values()) for row in rows]


def asked(app: App, tenant: Tenant, id: DocumentId) -> None:
    """Three questions, one of them made of the document; one of them was run."""
    with app.db.begin() as tx:
        evaluation.add(tx, tenant, "notes", [Expected("Where is the apple?", document=id)])
    with app.db.begin() as tx:  # later, so that their order is known
        evaluation.add(
            tx, tenant, "notes", [Expected("What is made?", document=id)], made_from=[id]
        )
        evaluation.add(tx, tenant, "other", [Expected("By words?", words="the apple stands")])
        begun = evaluation.begin(tx, tenant, "notes", rerank=False, rewrite=False)
    assert evaluation.step(app, tenant, begun.id).finished_at is not None


def bundle(app: App, folder: Path, **more: Any) -> backup.Bundle:
    return backup.export(url_of(app), app.blobs, folder, org="acme", **more)


def test_they_come_along_once_and_without_results(
    new_place: Callable[..., App], tmp_path: Path
) -> None:
    app, other = new_place(), new_place()
    tenant, second, there = new_org(app), new_org(app, "second"), new_org(other, "there")
    id = add(app, tenant, story(0), custom_id="note")
    drain(app)
    asked(app, tenant, id)
    made = bundle(app, tmp_path / "b")
    assert made.questions == 3

    came = backup.bring(other, tmp_path / "b", org="there")
    assert (came.questions, came.questions_left_out, came.conflicts) == (3, 0, 0)
    assert questions(other, there) == questions(app, tenant)
    assert [row[2] for row in questions(other, there, "other")] == ["the apple stands"]
    with other.db.begin() as tx:
        assert evaluation.runs(tx, there, "notes") == []
    again = backup.bring(other, tmp_path / "b", org="there")
    assert (again.questions, again.conflicts) == (0, 0)
    assert len(questions(other, there)) == 2
    with other.db.begin() as tx:  # those made of a document go with it
        documents.delete(tx, there, [id])
    assert [row[0] for row in questions(other, there)] == ["Where is the apple?"]

    # Beside its own: the documents have other ids there, and what is expected names those.
    beside = backup.bring(app, tmp_path / "b", org="second")
    assert (beside.questions, beside.renamed) == (3, 1)
    with app.db.begin() as tx:
        renamed = documents.get(tx, second, "note").id
    assert renamed != id
    assert [row[1:4] for row in questions(app, second)] == [
        (renamed, None, None),
        (renamed, None, renamed),
    ]
    assert backup.bring(app, tmp_path / "b", org="second").questions == 0


def test_only_those_of_the_tags_that_were_named(
    new_place: Callable[..., App], tmp_path: Path
) -> None:
    app = new_place()
    tenant = new_org(app)
    asked(app, tenant, add(app, tenant, story(0)))
    assert bundle(app, tmp_path / "b", tags=["other"]).questions == 1
    with app.db.begin() as tx:
        tags.ensure(tx, tenant.id, ["nothing"])
    assert bundle(app, tmp_path / "none", tags=["nothing"]).questions == 0
    assert not (tmp_path / "none" / "questions.jsonl").exists()


def by_hand(folder: Path, *lines: object) -> Path:
    folder.mkdir()
    (folder / "bundle.json").write_text('{"format": "recollect-bundle", "version": 1}')
    (folder / "documents.jsonl").write_text("")
    text = "\n".join(one if isinstance(one, str) else json.dumps(one) for one in lines)
    (folder / "questions.jsonl").write_text(text + "\n")
    return folder


GOOD = {"id": "q1", "tag": "notes", "question": "Where?", "words": "here"}


def test_one_that_others_wrote_is_read_and_a_foreign_document_makes_none(
    new_place: Callable[..., App], tmp_path: Path
) -> None:
    app = new_place()
    tenant, second = new_org(app), new_org(app, "second")
    foreign = add(app, tenant, story(1))
    folder = by_hand(
        tmp_path / "b",
        GOOD,
        {**GOOD, "id": "q2", "madeFrom": foreign},
        {**GOOD, "id": "q3", "madeFrom": "nowhere"},
        {**GOOD, "id": "q4", "words": "a\x00b", "future": {"x": 1}},
    )
    came = backup.bring(app, folder, org="second")
    assert (came.questions, came.questions_left_out, came.conflicts) == (2, 2, 2)
    assert {row[2] for row in questions(app, second)} == {"here", storable("a\x00b")}
    assert questions(app, tenant) == []


@pytest.mark.parametrize(
    "change",
    [
        {"id": ""},
        {"id": "a/b"},
        {"id": "x" * 65},
        {"id": 1},
        {"id": None},
        {"tag": ""},
        {"tag": "bad\x00"},
        {"tag": "x" * 101},
        {"tag": ["notes"]},
        {"question": " "},
        {"question": "x" * 1_001},
        {"question": True},
        {"words": ""},
        {"words": "x" * 1_001},
        {"words": None},
        {"words": 1e300},
        {"words": "\ud800"},
        {"document": ""},
        {"document": {"id": "x"}},
        {"createdAt": "yesterday"},
        {"createdAt": -(10**20)},
        {"createdAt": "9999-12-31T23:59:59-12:00"},
    ],
    ids=lambda change: str(change)[:40],
)
def test_a_faulty_line_is_named(
    new_place: Callable[..., App], tmp_path: Path, change: dict[str, Any]
) -> None:
    app = new_place()
    tenant = new_org(app)
    folder = by_hand(tmp_path / "b", GOOD, {**GOOD, "id": "q2", **change})
    with pytest.raises(SetupError, match=r"questions\.jsonl, line 2"):
        backup.bring(app, folder, org="acme")
    assert [row[0] for row in questions(app, tenant)] == ["Where?"]


def test_a_tag_has_no_more_than_it_may(new_place: Callable[..., App], tmp_path: Path) -> None:
    app = new_place()
    tenant = new_org(app)
    with app.db.begin() as tx:
        tags.ensure(tx, tenant.id, ["notes"])
        full = [Expected(f"Number {n}?", words="x") for n in range(evaluation.MOST_QUESTIONS - 1)]
        evaluation.add(tx, tenant, "notes", full)
    folder = by_hand(tmp_path / "b", *({**GOOD, "id": f"q{n}"} for n in range(3)))
    came = backup.bring(app, folder, org="acme")
    assert (came.questions, came.questions_left_out) == (1, 2)
    assert len(questions(app, tenant)) == evaluation.MOST_QUESTIONS
