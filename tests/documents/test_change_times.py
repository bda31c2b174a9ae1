"""When a document was changed never goes back, whichever transaction began first."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from recollect import documents
from recollect.app import App
from recollect.db import Tx
from recollect.documents import DocumentChange, NewDocument
from recollect.model import Claim, DocumentId, Failure, Tenant, random_id

Change = Callable[[Tx, Tenant, Claim], object]


def edited(tx: Tx, tenant: Tenant, claim: Claim) -> None:
    change = DocumentChange(content=documents.text_content("Two."))
    documents.update(tx, tenant, claim.document.id, change)


def named(tx: Tx, tenant: Tenant, claim: Claim) -> None:
    documents.update(tx, tenant, claim.document.id, DocumentChange(title="Late"))


def failed(tx: Tx, tenant: Tenant, claim: Claim) -> None:
    documents.fail(tx, claim, Failure("no_text", "no text"))


@pytest.mark.parametrize("late", [edited, named, failed])
def test_a_change_that_began_before_another_is_not_older(app: App, tenant: Tenant, late: Change):
    with app.db.begin() as tx:
        new = NewDocument(documents.text_content("One."), ["team"])
        id = documents.add(tx, tenant, new, DocumentId(random_id())).id
    with app.db.begin() as tx:
        (claim,) = documents.claim(tx, lease=timedelta(seconds=60), limit=1, max_attempts=5)

    with app.db.begin() as first:
        first.execute("select now()")  # its time, from here on
        with app.db.begin() as tx:
            documents.update(tx, tenant, id, DocumentChange(title="Early"))
        with app.db.begin() as tx:
            shown = documents.get(tx, tenant, id).updated_at
        late(first, tenant, claim)

    with app.db.begin() as tx:
        assert documents.get(tx, tenant, id).updated_at > shown


def test_no_statement_of_documents_takes_the_time_of_its_transaction():
    folder = Path(documents.__file__).parent
    texts = {path.name: path.read_text() for path in folder.glob("*.py")}
    assert sum("LATER" in text for text in texts.values()) > 5
    assert not [name for name, text in texts.items() if "updated_at = now()" in text]
