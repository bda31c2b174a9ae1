"""What several wordings of a question find, put together."""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from recollect import documents
from recollect.app import App
from recollect.documents import DocumentChange, NewDocument
from recollect.model import DocumentId, Hit, Tenant, random_id
from recollect.search import hybrid
from recollect.search.answers.sources import AnswerQuery, EarlierTurn, gather
from recollect.search.hybrid import Query
from recollect.worker.processing import drain
from tests.fakes.embedder import WordEmbedder

OLD, NEW = "A heron waits. " * 200, "A stork, no heron, waits."


class LateEmbedder(WordEmbedder):
    """Before it embeds a second query, something happens."""

    def __init__(self, happens: Callable[[], None]) -> None:
        super().__init__()
        self._happens, self._asked = happens, 0

    def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        self._asked += 1
        if self._asked == 2:
            self._happens()
        return super().embed(texts, query=query)


def test_of_a_text_that_an_edit_replaced_meanwhile_no_passage_is_left(app: App, tenant: Tenant):
    id = added(app, tenant)
    before = searched(app, tenant, "heron waits")
    edit(app, tenant, id)
    after = searched(app, tenant, "stork heron")

    [hit] = hybrid.fuse([before, after], Query("heron", None))
    assert [chunk.text for chunk in hit.chunks] == [NEW]


def test_an_answer_rests_on_one_text_of_a_document(app: App, tenant: Tenant):
    id = added(app, tenant)
    asking = replace(app, embedder=LateEmbedder(lambda: edit(app, tenant, id)))
    query = AnswerQuery("heron waits", [EarlierTurn("user", "A heron waits?")])

    assert [one.text for one in gather(asking, tenant, query).sources] == [NEW]


@pytest.mark.parametrize("before", ["-rf", f'What of "{"word " * 70}"?'], ids=["minus", "marks"])
def test_a_turn_before_that_could_not_be_asked_is_left_out(app: App, tenant: Tenant, before: str):
    added(app, tenant)
    query = AnswerQuery("heron waits", [EarlierTurn("user", before)])

    assert gather(app, tenant, query).sources


def added(app: App, tenant: Tenant) -> DocumentId:
    id = DocumentId(random_id())
    with app.db.begin() as tx:
        documents.add(tx, tenant, NewDocument(documents.text_content(OLD), ["birds"]), id)
    drain(app)
    return id


def edit(app: App, tenant: Tenant, id: DocumentId) -> None:
    with app.db.begin() as tx:
        content = documents.text_content(NEW)
        documents.update(tx, tenant, id, DocumentChange(content=content))
    drain(app)


def searched(app: App, tenant: Tenant, text: str) -> list[Hit]:
    with app.db.begin() as tx:
        return hybrid.search(tx, tenant, Query(text, None))
