"""docs/migration.md: its recipe moves what it says, twice without doubling."""

import re
from pathlib import Path
from typing import Any

import pytest
from supermemory import Supermemory

from recollect import documents
from recollect.app import App
from recollect.db import Database
from recollect.documents import NewDocument
from recollect.model import DocumentId, Plan, Scope, Tenant
from recollect.orgs import orgs
from recollect.worker.processing import drain

DOCS = Path(__file__).parents[2] / "docs"


def test_the_recipe_brings_documents_with_their_names_along(
    app: App,
    db: Database,
    tenant: Tenant,
    live_url: str,
    key: str,
    capsys: pytest.CaptureFixture[str],
):
    with db.begin() as tx:
        other = orgs.create(tx, f"new-{tenant.id}", Plan.ENTERPRISE)
        secret = orgs.create_key(tx, other.id, scope=Scope.ADMIN)[1]
        for n in range(3):
            content = documents.text_content(f"Note {n}.")
            tags = ["notes", "ferries"]
            new = NewDocument(content, tags, metadata={"n": n}, custom_id=f"note-{n}")
            documents.add(tx, tenant, new, DocumentId(orgs.random_id()))
    # The newest, so that it comes first.
    broken = Supermemory(api_key=key, base_url=live_url).documents.upload_file(
        file=("broken.pdf", b"%PDF-1.4 no more"), container_tag="notes"
    )
    drain(app)
    block = re.search(
        r"```python\n(def move.+?)```", (DOCS / "migration.md").read_text(), re.DOTALL
    )
    assert block is not None
    names: dict[str, Any] = {}
    exec(block[1], names)
    old, new_ = (Supermemory(api_key=one, base_url=live_url) for one in (key, secret))

    for tag in ("notes", "notes", "ferries"):
        names["move"](old, new_, tag)
        drain(app)

    assert capsys.readouterr().out == f"without a text: {broken.id} broken.pdf\n" * 2
    found = new_.documents.list(container_tags=["notes"], include_content=True).memories
    assert {(one.custom_id, one.content) for one in found} == {
        (f"note-{n}", f"Note {n}.") for n in range(3)
    }
    assert {(one.status, *(one.container_tags or ())) for one in found} == {
        ("done", "notes", "ferries")
    }
    assert new_.documents.list(container_tags=["ferries"]).pagination.total_items == 3
    with db.begin() as tx:
        tx.execute("delete from orgs where id = %s", (other.id,))


def test_every_page_is_in_the_index():
    index = (DOCS / "README.md").read_text()
    pages = {page.name for page in DOCS.glob("*.md")} - {"README.md"}

    assert {page for page in pages if f"]({page})" not in index} == set()
