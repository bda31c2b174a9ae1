"""The console's pages read about as much of 20,000 documents as of a few.

Counted in pages of the database that the statements of one request touch.
"""

from collections.abc import Callable, Generator
from dataclasses import replace
from typing import LiteralString

import httpx
import psycopg
import pytest

from recollect import documents
from recollect.app import App
from recollect.console import _connections
from recollect.db import Database, Tx
from recollect.documents import figures
from recollect.model import OrgId, Plan, Scope, Status, Tenant
from recollect.orgs import orgs
from recollect.sync import connections
from tests.console.test_console import FORM, body, console_site, tree
from tests.search.test_neighbours import CountingCursor

MANY = 20_000
FEW = 30
"""of the tag `few`, the newest; the oldest 40 failed, and the newest 10 wait"""
LOOKED_AT = 1_000
PAGES = 600
"""All rows take several thousand."""


class CountingDatabase(Database):
    def _begun(self, opening: LiteralString, give_up: float) -> Tx:
        tx = super()._begun(opening, give_up)
        tx.cursor_factory = CountingCursor
        return tx


@pytest.fixture(scope="module")
def large(new_database: Callable[[], str]) -> Generator[tuple[CountingDatabase, OrgId, str]]:
    """A database whose statements are counted, an organisation with many documents, its key."""
    url = new_database()
    with CountingDatabase(url) as db:
        with db.begin() as tx:
            org = orgs.create(tx, "large", Plan.ENTERPRISE).id
            _, secret = orgs.create_key(tx, org, name="all", scope=Scope.ADMIN)
            fill(tx, org)
            connect(tx, org)
        with psycopg.connect(url, autocommit=True) as session:
            session.execute("vacuum analyze")
        yield db, org, secret


def fill(tx: Tx, org: OrgId) -> None:
    scopes = {name: documents.scope(org, [name]) for name in ("many", "few")}
    tx.execute(
        "insert into documents (id, org_id, container_tags, scope, kind, source, title, content,"
        " content_hash, status, due_at, indexed_revision, text, chunks, created_at, updated_at,"
        " error_code, error_message)"
        " select %(org)s || n, %(org)s,"
        "  case when n <= %(few)s then '{few}'::text[] else '{many}' end,"
        "  case when n <= %(few)s then %(few_scope)s::int4[] else %(many_scope)s end,"
        "  case when n %% 500 = 7 then 'pdf' else 'text' end, 'api', 'Title ' || n,"
        "  repeat('text ', 200), sha256(n::text::bytea),"
        "  case when n <= 10 then 'queued' when n > %(many)s - 40 then 'failed' else 'done' end,"
        "  case when n <= 10 then now() end, 1, repeat('text ', 200), 1,"
        "  now() - n * interval '1 minute', now() - n * interval '1 minute',"
        "  case when n > %(many)s - 40 then 'too_large' end,"
        "  case when n > %(many)s - 40 then 'too large' end"
        " from generate_series(1, %(many)s) n",
        {
            "org": org,
            "few": FEW,
            "many": MANY,
            "many_scope": scopes["many"],
            "few_scope": scopes["few"],
        },
    )


def connect(tx: Tx, org: OrgId) -> None:
    """As many connections, the newest of which ran; and of each the last run."""
    tx.execute(
        "insert into connections (id, org_id, provider, container_tags, document_limit, metadata,"
        " state, created_at) select %(org)s || 'c' || n, %(org)s,"
        "  case when n %% 2 = 0 then 's3' else 'web-crawler' end,"
        "  case when n <= %(few)s then '{few}'::text[] else '{many}' end, 100,"
        "  jsonb_build_object('startUrl', 'https://' || n || '.example/'), 'ready',"
        "  now() - n * interval '1 minute' from generate_series(1, %(many)s) n",
        {"org": org, "few": FEW, "many": MANY},
    )
    tx.execute(
        "insert into sync_runs (id, connection_id, trigger, status, finished_at)"
        " select 'r' || id, id, 'cron', 'completed', now() from connections where org_id = %s",
        (org,),
    )


@pytest.fixture(scope="module")
def visitor(app: App, large: tuple[CountingDatabase, OrgId, str]) -> Generator[httpx.Client]:
    db, _, secret = large
    # verify: no certificate is looked at on http, and loading the authorities is slow.
    with (
        console_site(replace(app, db=db)) as url,
        httpx.Client(base_url=url, headers=FORM, timeout=60, trust_env=False, verify=False) as http,
    ):
        assert http.post("/console/login", data={"key": secret}).status_code == 303
        yield http


@pytest.fixture
def short_sighted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer rows are looked at than there are, as in an organisation that is larger still."""
    monkeypatch.setattr(figures, "LOOKED_AT", LOOKED_AT)
    monkeypatch.setattr(_connections, "LOOKED_AT", LOOKED_AT)


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    ("path", "shown"),
    [
        ("/console", "Oldest waiting"),
        ("/console/documents", f"{MANY:,} documents, page 1 of 800"),
        ("/console/documents?status=queued", "10 documents"),
        ("/console/documents?status=failed", "40 documents"),
        ("/console/documents?status=done", "990+ documents"),
        ("/console/documents?tag=few", "30 documents"),
        ("/console/documents?tag=many", f"{LOOKED_AT:,}+ documents"),
        ("/console/documents?type=pdf", "2+ documents"),
        ("/console/documents/{org}77", "Title 77"),
        ("/console/search", "Search"),
        ("/console/connections", f"{LOOKED_AT:,}+ connections, page 1 of 40"),
        ("/console/connections?provider=s3", "500+ connections, page 1 of 20"),
        ("/console/connections?tag=few&page=2", "30+ connections, page 2 of 2"),
        ("/console/connections/{org}c77", "https://77.example/"),
        ("/console/connections/{org}c77/runs/r{org}c77", "Nothing changed"),
    ],
)
@pytest.mark.usefixtures("short_sighted")
def test_a_page_reads_a_bounded_number_of_rows(
    visitor: httpx.Client, large: tuple[CountingDatabase, OrgId, str], path: str, shown: str
):
    CountingCursor.pages = 0
    answer = visitor.get(path.format(org=large[1]))

    assert answer.status_code == 200
    assert shown in " ".join(body(answer).split())
    assert 0 < CountingCursor.pages < PAGES, f"{CountingCursor.pages} pages"


@pytest.mark.slow
def test_what_is_looked_at_whole_is_exact(
    large: tuple[CountingDatabase, OrgId, str], monkeypatch: pytest.MonkeyPatch
):
    db, org, _ = large
    monkeypatch.setattr(figures, "LOOKED_AT", MANY + 1)
    with db.begin() as tx:
        counts, total = figures.by_status(tx, Tenant(org))
        pdf = figures.find(tx, Tenant(org), figures.TableQuery(kind="pdf"))
        few, of_few = figures.by_status(tx, Tenant(org, ["few"]))

    assert {status.value: str(figure) for status, figure in counts.items()} == {
        "queued": "10",
        "processing": "0",
        "done": f"{MANY - 50:,}",
        "failed": "40",
    }
    assert (str(total), str(pdf.total), pdf.cut) == (f"{MANY:,}", "40", False)
    assert (str(few[Status.QUEUED]), str(few[Status.DONE]), str(of_few)) == ("10", "20", "30")


@pytest.mark.slow
@pytest.mark.usefixtures("short_sighted")
def test_failures_are_never_cut_and_the_rest_says_how_it_is_meant(visitor: httpx.Client):
    figures = {
        (part.css_first("dt") or part).text(): (part.css_first("dd") or part).text().strip()
        for part in tree(visitor.get("/console")).css(".figures > div")
    }

    assert figures["Queued"] == "10"
    assert figures["Failed"] == "40"
    assert figures["Done"] == f"{MANY - 50:,}"
    assert figures["Documents"] == f"{MANY:,}"
    assert "Looked for among" not in body(visitor.get("/console/documents?status=failed"))
    assert "Looked for among the newest 1,000" in body(visitor.get("/console/documents?type=pdf"))


@pytest.mark.slow
def test_the_size_of_the_database_is_for_the_default_organisation_alone(
    large: tuple[CountingDatabase, OrgId, str],
):
    db, org, _ = large
    with db.begin() as tx:
        house = orgs.create(tx, orgs.DEFAULT, Plan.ENTERPRISE).id
        size = figures.database(tx, house)

        assert size is not None
        assert size > 10_000_000
        assert figures.database(tx, org) is None


@pytest.mark.slow
@pytest.mark.usefixtures("short_sighted")
def test_retrying_all_reads_what_failed_and_no_more(
    visitor: httpx.Client, large: tuple[CountingDatabase, OrgId, str]
):
    db, org, _ = large
    CountingCursor.pages = 0
    asked = visitor.post("/console/documents/confirm", data={"action": "failed"})
    of_asking = CountingCursor.pages
    CountingCursor.pages = 0  # to be explained, the update is made once before, so none is left
    done = visitor.post("/console/documents/apply", data={"action": "failed"})
    of_doing = CountingCursor.pages
    with db.begin() as tx:
        back = tx.execute(
            "update documents set status = 'failed', due_at = null, error_code = 'too_large',"
            " error_message = 'too large', updated_at = created_at"
            " where org_id = %s and status = 'queued' and title <> all(%s)",
            (org, [f"Title {n}" for n in range(1, 11)]),
        ).rowcount

    assert "40 documents will be processed again" in " ".join(body(asked).split())
    assert "done=retry" in done.headers["location"]
    assert back == 40
    assert 0 < of_asking < PAGES, f"{of_asking} pages"
    assert 0 < of_doing < 3 * PAGES, f"{of_doing} pages"


@pytest.mark.slow
def test_who_follows_connections_has_the_newest_looked_at(
    large: tuple[CountingDatabase, OrgId, str],
):
    db, org, _ = large
    one = f"{org}c5"
    with db.begin() as tx:
        before = connections.mark(tx, Tenant(org))
        CountingCursor.pages = 0
        again = connections.mark(tx, Tenant(org))
        of_all, CountingCursor.pages = CountingCursor.pages, 0
        alone = connections.mark(tx, Tenant(org), one)
        of_one = CountingCursor.pages
        tx.execute("update connections set paused = true where id = %s", (one,))
        after = connections.mark(tx, Tenant(org)), connections.mark(tx, Tenant(org), one)

    assert before == again
    assert after[0] != before
    assert after[1] != alone
    assert 0 < of_all < 10 * PAGES, f"{of_all} pages"
    assert 0 < of_one < PAGES / 10, f"{of_one} pages"
