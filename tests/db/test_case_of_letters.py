"""Letters are the same but for case, whatever locale a database of others has."""

from collections.abc import Callable, Generator
from dataclasses import replace
from pathlib import Path
from typing import LiteralString, cast

import httpx
import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from starlette.testclient import TestClient
from typer.testing import CliRunner

from recollect.api import create_app
from recollect.app import App, prepare
from recollect.cli import app as cli
from recollect.db import Database
from recollect.sync import push_registrations
from tests.conftest import capture_logs
from tests.db.test_older_postgres import postgres_16 as postgres_16
from tests.db.test_own_server import by_superuser, of_superuser
from tests.db.test_own_server import theirs as theirs

pytestmark = pytest.mark.one_server
UNKNOWING: LiteralString = "encoding 'UTF8' lc_collate 'C' lc_ctype 'C'"
LOCALES: list[LiteralString] = [
    UNKNOWING,
    "encoding 'UTF8' locale_provider libc locale 'C.UTF-8'",
    "encoding 'UTF8' locale_provider builtin builtin_locale 'C.UTF-8' locale 'C'",
]
CITIES = {"ZÜRICH": "zürich", "МОСКВА": "москва", "IZMIR": "izmir"}


@pytest.fixture(params=LOCALES)
def url(
    request: pytest.FixtureRequest, theirs: Callable[[LiteralString], str], postgres_url: str
) -> str:
    made = theirs(request.param)
    by_superuser(of_superuser(postgres_url, made), "create extension vector")
    return made


@pytest.fixture
def client(url: str, app: App, tmp_path: Path) -> Generator[httpx.Client]:
    """Of a service on that database."""
    config = app.config.model_copy(update={"data_dir": tmp_path})
    with capture_logs() as logs:
        key = prepare(config, url)
    assert [entry for entry in logs if entry["event"] == "locale"] == []
    with Database(url, size=2) as database:
        own = replace(app, config=config, db=database, embedder=None)
        with TestClient(create_app(own), headers={"authorization": f"Bearer {key}"}) as http:
            yield cast("httpx.Client", http)


def test_letters_are_found_in_either_case(client: httpx.Client):
    for given, asked in CITIES.items():
        body = {"content": given, "containerTag": "towns", "metadata": {"city": given}}
        client.post("/v3/documents", json=body).raise_for_status()
        for kind in ("metadata", "string_contains", "array_contains"):
            part = {"key": "city", "value": asked, "filterType": kind, "ignoreCase": True}
            found = client.post("/v3/documents/list", json={"filters": {"AND": [part]}}).json()
            assert len(found["memories"]) == 1, (kind, asked)
        memories = [{"content": f"She lives in {given}."}]
        body = {"containerTag": "ann", "memories": memories}
        client.post("/v4/memories", json=body).raise_for_status()
        body = {"containerTag": "ann", "query": f"she lives in  {asked}.", "dryRun": True}
        told = client.post("/v4/memories/forget-matching", json=body).json()
        assert told["candidates"][0]["score"] == 1, asked


def test_a_push_finds_its_account_in_either_case(url: str, app: App, tmp_path: Path):
    prepare(app.config.model_copy(update={"data_dir": tmp_path}), url)
    with Database(url, size=2) as database, database.begin() as tx:
        tx.execute(
            "insert into connections (id, org_id, provider, container_tags, document_limit, state,"
            " email) select 'ann', id, 'gmail', '{mail}', 10, 'ready', 'ANN.MÜLLER@example.org'"
            " from orgs"
        )
        address = "ann.müller@Example.org"
        assert push_registrations.of_account(tx, "gmail", [], [address]) == ["ann"]


def test_where_neither_server_nor_locale_knows_case_it_is_told(
    postgres_16: str, tmp_path: Path, app: App, monkeypatch: pytest.MonkeyPatch
):
    """A filter with `ignoreCase` left out what it should admit, and nobody knew why."""
    with psycopg.connect(postgres_16, autocommit=True) as session:
        session.execute(b"create database theirs template template0 " + UNKNOWING.encode())
        row = session.execute("select collname from pg_collation where collname = 'und-x-icu'")
        assert row.fetchone() is None
    url = make_conninfo(postgres_16, dbname="theirs")
    given = {"DATABASE_URL": url, "DATA_DIR": str(tmp_path), "EMBEDDER": "none"}
    for name, value in given.items():
        monkeypatch.setenv(f"RECOLLECT_{name}", value)

    with capture_logs() as logs:
        prepare(app.config.model_copy(update={"data_dir": tmp_path}), url)

    (told,) = (entry["reason"] for entry in logs if entry["event"] == "locale")
    assert "do not find Ä by ä" in told
    assert "warn database locale: " in CliRunner().invoke(cli, ["doctor"]).output
