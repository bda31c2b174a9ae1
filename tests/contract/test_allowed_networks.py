"""RECOLLECT_ALLOW_NETWORKS opens networks for every way of adding a URL, and no others."""

import httpx
import pytest

from recollect.app import App
from recollect.console._adding import add_text
from recollect.errors import BadRequestError
from recollect.ingest.intake import Labels
from recollect.model import Tenant

HERE = "http://127.0.0.1:9/page"
ELSEWHERE = "http://10.0.0.1/page"


@pytest.mark.parametrize(("url", "code"), [(HERE, 200), (ELSEWHERE, 400)])
def test_a_document(client: httpx.Client, url: str, code: int) -> None:
    note = client.post("/v3/documents", json={"content": "A note."}).json()["id"]

    assert client.post("/v3/documents", json={"content": url}).status_code == code
    assert client.patch(f"/v3/documents/{note}", json={"content": url}).status_code == code


@pytest.mark.parametrize(("url", "status"), [(HERE, "queued"), (ELSEWHERE, "error")])
def test_one_of_many(client: httpx.Client, url: str, status: str) -> None:
    told = client.post("/v3/documents/batch", json={"documents": [url]}).json()

    assert told["results"][0]["status"] == status


def test_what_is_pasted_into_the_console(app: App, tenant: Tenant) -> None:
    assert add_text(app, tenant, Labels(), HERE).url == HERE
    with pytest.raises(BadRequestError, match="not a public address"):
        add_text(app, tenant, Labels(), ELSEWHERE)
