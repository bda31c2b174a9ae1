"""A crawl with everything behind it: rows, documents, chunks, and the published client."""

from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any, LiteralString, cast

import pytest
import supermemory
from supermemory import Supermemory

from recollect.app import App
from recollect.db import Database, Tx
from recollect.model import Connection, ConnectionId, Plan, Tenant, random_id
from recollect.sync import connections, items
from recollect.sync.connections import SealedConnection
from recollect.worker import syncs
from recollect.worker.processing import drain
from tests.fakes.embedder import WordEmbedder
from tests.fakes.site import Site, html


class Recorded:
    """A transaction that counts what it is asked."""

    def __init__(self, tx: Tx, said: Counter[str]) -> None:
        self._tx = tx
        self._said = said

    def execute(self, statement: str, *given: Any, **named: Any) -> Any:
        self._said[statement] += 1
        return self._tx.execute(cast("LiteralString", statement), *given, **named)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tx, name)


class RecordingDatabase(Database):
    """`said`: how often each statement was."""

    said: Counter[str]

    @contextmanager
    def begin(self) -> Generator[Tx]:
        with super().begin() as tx:
            yield cast("Tx", Recorded(tx, self.said))


@pytest.fixture
def site() -> Iterator[Site]:
    with Site() as site:
        yield site


@pytest.fixture
def eager(app: App) -> App:
    """Crawls without a delay."""
    return replace(app, config=app.config.model_copy(update={"crawl_delay": 0.0}))


@pytest.fixture
def crawling(tenant: Tenant, site: Site) -> Callable[..., Connection]:
    """Makes a connection to the site, or syncs it again: as it is afterwards."""

    def crawl(app: App, known: Connection | None = None, **given: Any) -> Connection:
        with app.db.begin() as tx:
            if known is None:
                metadata = {"startUrl": site.url("/"), **given}
                new = SealedConnection("web-crawler", ["web"], 1000, metadata, None, pending=False)
                known = connections.create(tx, tenant.id, new, ConnectionId(random_id()))
            tx.execute(
                "update connections set due_at = now(), parked_until = null where id = %s",
                (known.id,),
            )
        syncs.drain(app)
        drain(app)
        with app.db.begin() as tx:
            return connections.get(tx, tenant, known.id)

    return crawl


def counts(connection: Connection) -> tuple[int, int, int, int]:
    run = connection.last_run
    assert run is not None
    return run.added, run.changed, run.unchanged, run.removed


PAGES = 150
DEAD = [f"/dead/{n}" for n in range(20)]
FAR = [f"https://example.com/{n}" for n in range(30)]


def write_pages(site: Site) -> None:
    """With validators, but for ten; with dead links and links to elsewhere."""
    for n in range(PAGES):
        below = [f"/{m}" for m in range(n * 10 + 1, min(n * 10 + 11, PAGES))]
        bare = n >= PAGES - 10
        others = [*DEAD, *FAR] if n == 0 else []
        site.write(f"/{n or ''}", links=[*below, *others], etag=not bare, modified=not bare)


def test_an_unchanged_site_costs_few_statements_and_no_embedding(
    eager: App,
    site: Site,
    crawling: Callable[..., Connection],
    database_url: str,
    embedder: WordEmbedder,
) -> None:
    write_pages(site)
    with RecordingDatabase(database_url) as db:
        db.said = Counter()
        app = replace(eager, db=db)
        connection = crawling(app)
        assert counts(connection) == (PAGES, 0, 0, 0)
        first = db.said.total()
        crawling(app, connection)  # the dead links are dead for the second time
        embedder.forget()
        site.forget()
        db.said.clear()

        connection = crawling(app, connection)

    assert counts(connection) == (0, 0, PAGES, 0)
    assert embedder.texts == [], "nothing is embedded again"
    assert connection.last_run is not None
    assert dict(connection.last_run.skipped) == {"error": len(DEAD), "off_host": len(FAR)}
    assert len(site.requests) == PAGES + 2, "robots.txt and the sitemap; no dead link"
    assert first > 5 * PAGES
    assert db.said.total() <= first / 10
    writing = [one for one in db.said.elements() if one.lstrip().startswith(("insert", "update"))]
    assert len(writing) <= PAGES / 4, "rows are touched together"


def test_an_edited_page_embeds_what_changed_and_keeps_its_document(
    eager: App,
    tenant: Tenant,
    site: Site,
    crawling: Callable[..., Connection],
    embedder: WordEmbedder,
) -> None:
    site.write("/", links=["/a"])
    site.write("/a", "Herons eat frogs.")
    connection = crawling(eager)
    with eager.db.begin() as tx:
        before = items.get(tx, connection.id, site.url("/a")).document_id
    embedder.forget()
    site.write("/a", "Herons eat mice.")

    connection = crawling(eager, connection)

    with eager.db.begin() as tx:
        after = items.get(tx, connection.id, site.url("/a"))
    assert after.document_id == before
    assert str(after.detail).startswith("changed on ")
    assert counts(connection) == (0, 1, 1, 0)
    assert len(embedder.texts) == 1


@pytest.mark.parametrize("status", [404, 200], ids=["not found", "no HTML"])
def test_a_page_that_is_missing_goes_with_a_crawl_a_day_later(
    eager: App, site: Site, crawling: Callable[..., Connection], status: int
) -> None:
    site.write("/", links=["/a"])
    site.write("/a")
    connection = crawling(eager)
    site.page("/a", "{}", status=status, mime="application/json")

    for _ in range(3):  # a user may want as many in an hour
        connection = crawling(eager, connection)
        assert counts(connection)[3] == 0
    with eager.db.begin() as tx:
        tx.execute("update items set missing_at = missing_at - interval '25 hours'")
    connection = crawling(eager, connection)

    assert counts(connection) == (0, 0, 1, 1)


# --- through the published client ----------------------------------------------------------------


@pytest.fixture
def sdk(live_url: str, key: str) -> Iterator[Supermemory]:
    with Supermemory(base_url=live_url, api_key=key, max_retries=0) as client:
        yield client


def work(app: App) -> None:
    syncs.drain(app)
    drain(app)


def connect(sdk: Supermemory, url: str, tag: str) -> str:
    made = sdk.connections.create(
        "web-crawler", container_tags=[tag], document_limit=50, metadata={"startUrl": url}
    )
    assert made.id is not None
    return made.id


def test_a_site_becomes_documents_and_follows_through_the_published_client(
    sdk: Supermemory, eager: App, site: Site
) -> None:
    site.write("/", "Birds of the marsh.", ["/heron", "/admin"], title="Marsh")
    site.write("/heron", "Herons eat frogs.", title="Heron")
    site.write("/admin", "Keep out.", title="Admin")
    sdk.settings.update(
        should_llm_filter=False, exclude_items=cast("Any", {"urlPatterns": ["*/admin*"]})
    )
    id = connect(sdk, site.url("/"), "marsh")
    work(eager)

    page = sdk.documents.list(container_tags=["marsh"])
    documents = {one.title: one for one in page.memories}
    assert {one.title for one in page.memories} == {"Marsh", "Heron"}
    assert {(one.type, one.status) for one in page.memories} == {("webpage", "done")}
    listed = sdk.connections.list_documents("web-crawler", container_tags=["marsh"])
    assert {one.title for one in listed} == {"Marsh", "Heron"}
    assert sdk.documents.get(documents["Heron"].id).url == site.url("/heron")
    found = sdk.search.documents(q="frogs", container_tags=["marsh"]).results
    assert found[0].document_id == documents["Heron"].id

    site.write("/heron", "Herons eat mice.", title="Heron")
    assert sdk.connections.import_("web-crawler", container_tags=["marsh"])
    work(eager)
    assert "mice" in str(sdk.documents.get(documents["Heron"].id).content)
    assert sdk.connections.get_by_id(id).provider == "web-crawler"
    assert [one.id for one in sdk.connections.list(container_tags=["marsh"])] == [id]
    assert sdk.connections.get_by_tag("web-crawler", container_tags=["marsh"]).id == id

    sdk.connections.delete_by_provider("web-crawler", container_tags=["marsh"])
    assert sdk.documents.list(container_tags=["marsh"]).memories == []
    with pytest.raises(supermemory.NotFoundError):
        sdk.connections.get_by_id(id)


def test_documents_may_outlive_their_connection(sdk: Supermemory, eager: App, site: Site) -> None:
    site.write("/", "Birds of the marsh.", title="Marsh")
    id = connect(sdk, site.url("/"), "left")
    work(eager)

    sdk.connections.delete_by_id(id, extra_query={"deleteDocuments": "false"})

    assert [one.title for one in sdk.documents.list(container_tags=["left"]).memories] == ["Marsh"]


def test_the_plan_and_the_rules_of_addresses_stand_before_a_crawl(
    sdk: Supermemory, app: App, tenant: Tenant
) -> None:
    with pytest.raises(supermemory.BadRequestError, match="not a public address"):
        connect(sdk, "http://169.254.169.254/latest/", "x")
    with app.db.begin() as tx:
        tx.execute("update orgs set plan = %s where id = %s", (Plan.FREE.value, tenant.id))

    with pytest.raises(supermemory.PermissionDeniedError, match="Scale or Enterprise"):
        connect(sdk, "https://example.com/", "x")


def test_why_one_address_is_no_document_can_be_asked(
    client: Any, eager: App, site: Site, crawling: Callable[..., Connection]
) -> None:
    site.robots("User-agent: *\nDisallow: /private")
    site.write("/", links=["/private/plans", "/a"])
    site.page("/a", html("Words.", title="A"))
    connection = crawling(eager)
    asked = f"/v3/connections/{connection.id}/items"

    [told] = client.get(asked, params={"id": site.url("/private/plans")}).json()["items"]

    assert (told["verdict"], told["detail"]) == (
        "robots",
        "robots.txt line 2: Disallow: /private",
    )
    unknown = client.get(asked, params={"id": site.url("/never")})
    assert unknown.status_code == 404


def test_what_waits_for_another_crawl_says_so(
    client: Any, eager: App, site: Site, crawling: Callable[..., Connection]
) -> None:
    site.write("/", links=["/a"])
    site.write("/a")
    connection = crawling(eager)
    site.redirect("/a", "/login")
    site.write("/login", "Who are you?")
    crawling(eager, connection)
    asked = f"/v3/connections/{connection.id}/items"

    [told] = client.get(asked, params={"verdict": "waits"}).json()["items"]

    assert (told["id"], told["verdict"]) == (site.url("/a"), "document")
    assert client.get(asked, params={"id": site.url("/a")}).json()["items"] == [told]
    since, _, what = told["detail"].partition(" for another sync that finds it so: ")
    assert (since[:12], what) == ("waits since ", site.url("/login"))
    with eager.db.begin() as tx:
        [shown] = items.below(tx, connection.id, site.url("/"), after="", limit=1)
    assert shown.own is not None
    assert shown.own.why == told["detail"]


def test_a_notice_that_names_each_page_replaces_documents_only_when_it_stays(
    eager: App, site: Site, crawling: Callable[..., Connection]
) -> None:
    paths = ("/", "/a", "/b", "/c")
    for path in paths:
        site.write(path, links=paths)
    connection = crawling(eager)
    for path in paths:
        site.write(path, f"Please sign in to see {path}.")

    for _ in range(2):  # a user may want another one within the hour
        connection = crawling(eager, connection)
        run = connection.last_run
        assert run is not None
        assert run.failure is not None
        assert (run.status, run.failure.code) == ("partial", "one_page")
        assert (counts(connection), dict(run.skipped)) == ((0, 0, 0, 0), {"waits": 4})
    with eager.db.begin() as tx:
        tx.execute("update items set missing_at = missing_at - interval '25 hours'")
    assert counts(crawling(eager, connection)) == (0, 4, 0, 0)
    connection = crawling(eager, connection)
    assert connection.last_run is not None
    assert (counts(connection), connection.last_run.status) == ((0, 0, 4, 0), "completed")

    for path in paths:
        site.write(path, links=paths)
    connection = crawling(eager, connection)

    assert connection.last_run is not None
    assert (counts(connection), connection.last_run.status) == ((0, 4, 0, 0), "completed")


LOST: dict[str, Callable[[Site, str], None]] = {
    "not found": lambda site, path: site.status(path, 404),
    "sent abroad": lambda site, path: site.redirect(path, f"https://example.com/login?{path}"),
    "empty": lambda site, path: site.page(path, "<div id=app></div>"),
    "no HTML": lambda site, path: site.page(path, "{}", mime="application/json"),
    "copies": lambda site, path: site.write(path, head='<link rel="canonical" href="/">'),
}


@pytest.mark.parametrize("what", LOST)
def test_most_documents_of_a_site_do_not_go_without_a_word(
    eager: App, site: Site, crawling: Callable[..., Connection], what: str
) -> None:
    paths = ("/a", "/b", "/c", "/d")
    for path in ("/", *paths):
        site.write(path, links=paths)
    connection = crawling(eager)
    for path in paths[:2]:
        LOST[what](site, path)
    connection = crawling(eager, connection)
    assert connection.last_run is not None
    assert connection.last_run.status == "completed", "some always go"
    for path in paths:
        LOST[what](site, path)

    connection = crawling(eager, connection)
    first = connection.last_run, connection.due_at
    with eager.db.begin() as tx:
        tx.execute("update items set missing_at = missing_at - interval '21 hours'")
    connection = crawling(eager, connection)
    second = connection.last_run, connection.due_at

    for (run, due), (least, most) in zip((first, second), ((0, 5), (24 * 6, 24 * 8)), strict=True):
        assert run is not None
        assert run.failure is not None
        assert due is not None
        assert (run.status, run.failure.code, run.removed) == ("partial", "most_missing", 0)
        assert run.notes[0].startswith("4 of 5 documents were not found")
        wait = due - run.started_at
        assert timedelta(hours=least) < wait < timedelta(hours=most), "before it may delete: a week"


def test_a_site_behind_a_login_page_is_told_and_loses_nothing_at_once(
    eager: App, site: Site, crawling: Callable[..., Connection]
) -> None:
    paths = ("/", "/a", "/b", "/c")
    for path in paths:
        site.write(path, links=paths)
    connection = crawling(eager)
    for path in paths:
        site.redirect(path, "/login")
    site.write("/login", "Who are you?")

    connection = crawling(eager, connection)

    assert connection.last_run is not None
    assert connection.last_run.status == "partial"
    assert connection.last_run.failure is not None
    assert connection.last_run.failure.code == "one_page"
    assert f"4 of 5 pages redirect to {site.url('/login')}" in connection.last_run.notes[0]
    with eager.db.begin() as tx:
        kept = [items.get(tx, connection.id, site.url(path)).document_id for path in paths]
    assert None not in kept


START: dict[str, Callable[[Site], object]] = {
    "gone": lambda site: site.status("/", 404),
    "refused": lambda site: site.status("/", 403),
    "broken": lambda site: site.status("/", 500),
    "no HTML": lambda site: site.page("/", "{}", mime="application/json"),
    "elsewhere": lambda site: site.redirect("/", "https://elsewhere.invalid/"),
    "silent": lambda site: site.status("/robots.txt", 500),
}


@pytest.mark.parametrize("what", START)
def test_a_start_page_that_does_not_answer_counts_once(
    eager: App, site: Site, crawling: Callable[..., Connection], what: str
) -> None:
    START[what](site)

    run = crawling(eager).last_run

    assert run is not None
    assert run.status == "partial"
    assert (run.failed, run.skipped) == (1, {})
