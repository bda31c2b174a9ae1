"""Whoever takes a file in finds its kind for the first attempt; later ones look for themselves."""

from io import BytesIO

import pytest

from recollect import documents
from recollect.app import App
from recollect.errors import Permanent
from recollect.ingest import intake, pipeline
from recollect.ingest.intake import Labels, Sent
from recollect.model import Claim, Failure, Status, Tenant


def take(app: App, tenant: Tenant, data: bytes, custom_id: str | None = None) -> str:
    sent = Sent(BytesIO(data), "table.csv", None)
    return intake.take_file(app, tenant, Labels(tags=["files"], custom_id=custom_id), sent).id


def claim(app: App) -> Claim:
    with app.db.begin() as tx:
        (found,) = documents.claim(tx, lease=app.lease, limit=1, max_attempts=5)
    return found


def test_the_first_claim_takes_away_what_was_found(app: App, tenant: Tenant) -> None:
    take(app, tenant, b"bird,place\nheron,pond\n", "a")
    first = claim(app)
    with app.db.begin() as tx:
        documents.release(tx, [first])
    again = claim(app)

    assert (first.content.extractor, again.content.extractor) == ("sheet", None)
    pipeline.process(app, again)
    take(app, tenant, b"%PDF-1.7\n", "a")
    newer = claim(app)
    assert newer.content.extractor == "pdf"
    with pytest.raises(Permanent):
        pipeline.process(app, newer)
    with app.db.begin() as tx:
        documents.fail(tx, newer, Failure("unreadable_content", "it is damaged"))
        documents.reprocess(tx, tenant, ids=[newer.document.id])
    assert claim(app).content.extractor is None


def test_what_a_newer_version_found_is_found_again_by_one_that_does_not_know_it(
    app: App, tenant: Tenant
) -> None:
    id = take(app, tenant, b"bird,place\nheron,pond\n")
    with app.db.begin() as tx:
        tx.execute("update documents set extractor = 'of_tomorrow' where id = %s", (id,))
    pipeline.process(app, claim(app))

    with app.db.begin() as tx:
        found = documents.get(tx, tenant, id, with_text=True)
    assert found.status is Status.DONE
    assert found.text is not None
    assert "heron" in found.text
