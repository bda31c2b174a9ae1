"""One long document, and others that match less: these are found, too, and cost it no passage."""

from recollect import documents
from recollect.app import App
from recollect.documents import NewDocument
from recollect.model import DocumentId, Tenant, random_id
from recollect.search import hybrid
from recollect.search.ask import ask
from recollect.search.hybrid import PER_DOCUMENT, Query
from recollect.worker.processing import drain


def test_a_long_document_keeps_its_best_passages_where_others_fill_the_limit(
    app: App, tenant: Tenant
):
    sentence = "Herons of pond {n} nest in reeds, and herons fish there."
    passages = [" ".join([sentence.format(n=n)] * 14) for n in range(50)]
    book = add(app, tenant, "\n\n".join(passages))
    notes = {add(app, tenant, f"Day {n}: a heron.") for n in range(12)}
    drain(app)

    found = search(app, tenant, Query("herons nest", None))
    [alone] = search(app, tenant, Query("herons nest", None), inside=book)

    assert found[0].document.id == book
    assert len(found) == 10
    assert {hit.document.id for hit in found[1:]} <= notes
    assert len(found[0].chunks) == PER_DOCUMENT
    assert {one.text for one in found[0].chunks} == {one.text for one in alone.chunks}


def test_weak_passages_of_one_document_do_not_stand_before_the_best_of_another(
    app: App, tenant: Tenant
):
    answering = "Herons nest in the reeds of the pond. " * 20
    weak = [f"Page {n} tells of the heron, the kite, the owl. " * 18 for n in range(11)]
    book = add(app, tenant, "\n\n".join([answering, *weak]))
    notes = {add(app, tenant, f"{answering} Seen by walker {n}.") for n in range(9)}
    drain(app)

    answer = ask(app, tenant, Query("where herons nest", None))
    of_book = ask(app, tenant, Query("where herons nest", None, limit=1), inside=book)

    assert {hit.document.id for hit in answer.hits} == {book, *notes}
    assert all("reeds" in chunk.text for hit in answer.hits for chunk in hit.chunks)
    assert len(of_book.hits[0].chunks) == PER_DOCUMENT


def add(app: App, tenant: Tenant, text: str) -> DocumentId:
    with app.db.begin() as tx:
        new = NewDocument(documents.text_content(text), ["a"])
        return documents.add(tx, tenant, new, DocumentId(random_id())).id


def search(
    app: App, tenant: Tenant, query: Query, inside: DocumentId | None = None
) -> list[hybrid.Hit]:
    with app.db.begin() as tx:
        return hybrid.search(tx, tenant, query, inside=inside)
