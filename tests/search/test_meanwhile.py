"""What is written while a search runs."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import pytest

from recollect import documents
from recollect.app import App
from recollect.db import Database, Tx
from recollect.documents import DocumentChange, NewDocument
from recollect.index.phrases import read
from recollect.model import DocumentId, Tenant, random_id
from recollect.search import hybrid
from recollect.search.hybrid import Query
from recollect.worker.processing import drain


class DisturbedTx(Tx):
    """After each statement, something happens elsewhere."""

    happens: ClassVar[Sequence[Callable[[], None]]] = ()

    def execute(self, query: Any, params: Any = None, **how: Any) -> Any:
        answer = super().execute(query, params, **how)
        if self.info.transaction_status.name == "INTRANS":
            for happens in self.happens:
                happens()
        return answer


@pytest.mark.one_server  # over several there is no snapshot
@pytest.mark.parametrize("typed", ["heron waits", '"heron waits"', 'heron -"grey stork"'])
def test_a_document_that_is_edited_all_the_time_is_found(app: App, tenant: Tenant, typed: str):
    id = DocumentId(random_id())
    with app.db.begin() as tx:
        documents.add(
            tx, tenant, NewDocument(documents.text_content("A heron waits."), ["birds"]), id
        )
    drain(app)
    edits = iter(range(100))

    def edit() -> None:
        content = documents.text_content(f"A heron waits for fish {next(edits)}.")
        with app.db.begin() as tx:
            documents.update(tx, tenant, id, DocumentChange(content=content))
        drain(app)

    DisturbedTx.happens = [edit]
    reading = read(typed)
    query = Query(reading.text, None, phrases=reading.phrases, excluded=reading.excluded)
    with Database(app.db.url, connections=DisturbedTx) as db:
        found = db.read(lambda tx: hybrid.search(tx, tenant, query))

    assert [hit.document.id for hit in found] == [id]
