"""What several wordings of a question find, put together."""

from recollect import documents
from recollect.app import App
from recollect.documents import DocumentChange, NewDocument
from recollect.model import DocumentId, Hit, Tenant, random_id
from recollect.search import hybrid
from recollect.search.hybrid import Query
from recollect.worker.processing import drain


def test_passages_of_a_text_that_an_edit_replaced_meanwhile_are_left_out(app: App, tenant: Tenant):
    id = DocumentId(random_id())
    with app.db.begin() as tx:
        new = NewDocument(documents.text_content("A heron waits. " * 200), ["birds"])
        documents.add(tx, tenant, new, id)
    drain(app)
    before = searched(app, tenant, "heron waits")
    content = documents.text_content("A stork, no heron.")
    with app.db.begin() as tx:
        documents.update(tx, tenant, id, DocumentChange(content=content))
    drain(app)
    after = searched(app, tenant, "stork heron")

    [hit] = hybrid.fuse([before, after], Query("heron", None))
    assert [chunk.text for chunk in hit.chunks] == ["A stork, no heron."]


def searched(app: App, tenant: Tenant, text: str) -> list[Hit]:
    with app.db.begin() as tx:
        return hybrid.search(tx, tenant, Query(text, None))
