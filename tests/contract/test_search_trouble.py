"""A search whose words cannot be embedded now is a 503, never a 500."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from fastapi.testclient import TestClient

from recollect.api import create_app
from recollect.app import App
from recollect.embed import Vectors
from recollect.errors import Permanent, RecollectError, Transient, Unavailable
from tests.fakes.embedder import WordEmbedder


class Confused(WordEmbedder):
    """An endpoint that answers with what is no vector."""

    def __init__(self, error: RecollectError) -> None:
        super().__init__()
        self._error = error

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        raise self._error


@pytest.mark.parametrize(
    "error", [Transient("no direction"), Unavailable("down"), Permanent("no such model")], ids=repr
)
@pytest.mark.parametrize("path", ["/v3/search", "/v4/search"])
def test_trouble_of_the_embedder_is_no_bug_of_ours(
    app: App, key: str, path: str, error: RecollectError
) -> None:
    site = create_app(replace(app, embedder=Confused(error)))
    with TestClient(site, headers={"Authorization": f"Bearer {key}"}) as http:
        answer = http.post(path, json={"q": "anything", "searchMode": "documents"})

    assert answer.status_code == 503
    assert answer.json()["error"] == "Service unavailable"
    assert answer.headers["retry-after"] == "1"
