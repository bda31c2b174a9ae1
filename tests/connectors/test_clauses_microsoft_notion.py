"""What is promised of Notion and OneDrive, where no other test would notice it broken."""

import json
import threading
from collections.abc import Generator
from datetime import UTC, datetime, timedelta

import pytest
from typer.testing import CliRunner, Result

from recollect.app import App
from recollect.cli import app as commands
from recollect.connectors.base import Checkpoint
from recollect.connectors.notion import Notion
from recollect.errors import Transient
from recollect.extract import Sandbox
from recollect.fetch import Fetcher
from recollect.worker import syncs
from tests.conftest import LOOPBACK, serving
from tests.connectors.memory import MemorySource
from tests.connectors.peers import NotionPeer
from tests.connectors.test_clauses_google import registrations
from tests.connectors.test_conformance import World
from tests.connectors.test_conformance import known_connectors as known_connectors
from tests.connectors.test_conformance import unpaced as unpaced
from tests.connectors.test_conformance import world as world
from tests.connectors.test_conformance_pushes import Loud
from tests.connectors.test_conformance_pushes import loud as loud
from tests.fakes.notion import FakeNotion, Page, hosted, para, toggle

every = pytest.mark.parametrize
NOTION = Notion()
COUNTS = [1, 2, *(pytest.param(n, marks=pytest.mark.slow) for n in range(3, 8))]
"""checkpoints after which a pass is killed"""


@pytest.fixture(scope="module")
def sandbox() -> Generator[Sandbox]:
    with Sandbox(workers=1) as made:
        yield made


@pytest.fixture(scope="module")
def fetcher() -> Generator[Fetcher]:
    with Fetcher(user_agent="RecollectBot/test", allow_networks=[LOOPBACK]) as made:
        yield made


@pytest.fixture
def notion() -> Generator[FakeNotion]:
    with FakeNotion() as made:
        yield made


@pytest.fixture
def source(notion: FakeNotion, fetcher: Fetcher, sandbox: Sandbox) -> MemorySource:
    return MemorySource(NOTION, fetcher, sandbox, api_url=notion.url)


# --- a pass of Notion that ends in the middle ----------------------------------------------------


def pass_of(source: MemorySource, notion: FakeNotion, checkpoints: int = 10**9) -> bool:
    """A pass, five minutes later, killed after so many checkpoints; whether it came to its end.

    No complete check is due so soon after the last one.
    """
    source.since = notion.pass_time(minutes=5)
    for change in NOTION.changes(source, source.cursor):
        source._apply(change, set())
        if isinstance(change, Checkpoint):
            checkpoints -= 1
            if not checkpoints:
                return False
    return True


def titles(source: MemorySource) -> list[str]:
    return sorted(item.title or "" for item in source.items.values())


def hidden(notion: FakeNotion, title: str, parent: Page) -> Page:
    """A page that only walking finds."""
    made = notion.page(title, para(f"The text of {title}."), parent=parent)
    notion.gaps.add(made.key)
    return made


@every("count", COUNTS)
def test_what_stands_in_a_new_page_is_not_lost_when_a_pass_is_killed(
    source: MemorySource, notion: FakeNotion, count: int
):
    home = notion.page("home", para("Welcome."))
    pass_of(source, notion)
    new = notion.page("new", para("New."), parent=home)
    deeper = hidden(notion, "deeper", new)
    hidden(notion, "deepest", deeper)
    pass_of(source, notion, count)
    pass_of(source, notion)

    assert titles(source) == ["deeper", "deepest", "home", "new"]


@every("count", COUNTS)
def test_what_stood_in_a_page_that_went_goes_though_a_pass_is_killed(
    source: MemorySource, notion: FakeNotion, count: int
):
    home = notion.page("home", para("Welcome."))
    old = notion.page("old", para("Old."), parent=home)
    deeper = hidden(notion, "deeper", old)
    hidden(notion, "deepest", deeper)
    pass_of(source, notion)
    notion.trash(old)
    pass_of(source, notion, count)
    pass_of(source, notion)

    assert titles(source) == ["home"]


@every("count", COUNTS)
def test_rows_of_a_new_database_are_not_lost_when_a_pass_is_killed(
    source: MemorySource, notion: FakeNotion, count: int
):
    home = notion.page("home", para("Welcome."))
    pass_of(source, notion)
    table = notion.database("birds", home)
    for n in range(120):
        notion.gaps.add(notion.row(table, f"row {n}", para("A bird.")).key)
    pass_of(source, notion, count)
    pass_of(source, notion)

    assert len(titles(source)) == 121


# --- how far a first walk is ---------------------------------------------------------------------


@every("world", ["notion"], indirect=True)
def test_a_long_first_walk_shows_how_far_it_is(world: World):
    """Twelve pages, each of twenty lists of blocks: at three calls a second, more than a minute."""
    assert isinstance(world.peer, NotionPeer)
    for n in range(12):
        world.peer.notion.page(f"p{n}", *(toggle(f"t{i}", para("x")) for i in range(20)))
    world.peer.notion.pass_time(minutes=5)
    world.connect()
    go = threading.Event()
    world.peer.proxy.on("GET /v1/blocks/", after=200, hold=go)
    walk = threading.Thread(target=syncs.drain, args=(world.app,))
    walk.start()
    try:
        world.peer.proxy.wait_for("GET /v1/blocks/", times=201)
        under_way = world.run()
    finally:
        go.set()
        walk.join(60)

    assert under_way["status"] == "running"
    assert 0 < under_way["added"] < 12
    assert world.run()["added"] == 15


# --- files that lie at Notion --------------------------------------------------------------------


def showing(source: MemorySource, notion: FakeNotion, name: str) -> Page:
    page = notion.page("Page", para("words"), hosted("file", name))
    pass_of(source, notion)
    return page


def test_a_place_of_files_that_breaks_off_is_tried_again_and_its_link_is_kept_quiet(
    source: MemorySource, notion: FakeNotion
):
    page = showing(source, notion, "plan.txt")
    notion.store.__exit__()

    with pytest.raises(Transient, match=r"plan\.txt") as caught:
        NOTION.fetch(source, source.rows[page.key])

    assert caught.value.code == "provider_unavailable"
    assert "X-Amz" not in str(caught.value)
    assert str(notion.store.url("")) not in str(caught.value)
    notion.store = type(notion.store)()  # for the fixture to close


def test_a_file_inside_our_network_is_not_asked_for(notion: FakeNotion, sandbox: Sandbox):
    """A page may name any address as one of Notion's."""
    with Fetcher(user_agent="RecollectBot/test") as strict:
        source = MemorySource(NOTION, strict, sandbox, api_url=notion.url)
        page = showing(source, notion, "plan.txt")

        told = NOTION.fetch(source, source.rows[page.key])

    assert list(told.warnings) == ["The file plan.txt is missing: its URL may not be fetched."]
    assert notion.store.requests == []
    assert "words" in told.text


def test_a_file_that_is_gone_costs_a_warning(source: MemorySource, notion: FakeNotion):
    page = showing(source, notion, "plan.txt")
    notion.store.fail_next(404)

    told = NOTION.fetch(source, source.rows[page.key])

    assert list(told.warnings) == [
        "The file plan.txt is missing: the server that holds it answered 404."
    ]
    assert "words" in told.text


# --- what the operator does ----------------------------------------------------------------------


@pytest.fixture
def command_line(app: App, monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """Commands work on the database of the tests; the tokens are the installation's."""
    monkeypatch.setenv("RECOLLECT_DATA_DIR", str(app.config.data_dir))
    monkeypatch.setenv("RECOLLECT_DATABASE_URL", app.db.url)
    yield
    with app.db.begin() as tx:
        tx.execute("delete from hook_secrets")


def verify(*words: str) -> Result:
    return CliRunner().invoke(commands, ["connections", "verify", *words])


@every("world", ["notion"], indirect=True)
def test_notions_token_is_shown_to_the_operator_and_confirmed_by_a_command(
    world: World, command_line: None
):
    assert isinstance(world.peer, NotionPeer)
    notion = world.peer.notion
    page = next(iter(notion.readable().values()))
    with serving(world.app) as url:
        made = notion.subscribe(f"{url}/v3/hooks/notion")
        shown = verify()
        [pending] = json.loads(verify("--json").stdout)
        before = notion.deliver(notion.event("page.created", page))
        assert notion.confirm(made.token)
        wrong = verify("notion", "secret_of_somebody_else")
        between = notion.deliver(notion.event("page.created", page))
        right = verify("notion", made.token)
        after = notion.deliver(notion.event("page.created", page))
        [active] = json.loads(verify("--json").stdout)

    assert shown.exit_code == 0, shown.output
    assert made.token in shown.output
    assert (pending["token"], pending["confirmed"]) == (made.token, False)
    assert wrong.exit_code == 1
    assert "no such token" in str(wrong.exception)
    assert (right.exit_code, right.output) == (0, "notion: confirmed\n")
    assert active["confirmed"] is True
    assert (before, between, after) == (401, 401, 200)


# --- registrations -------------------------------------------------------------------------------


@every("loud", ["onedrive"], indirect=True)
def test_a_subscription_is_renewed_by_the_end_that_microsoft_told(loud: Loud):
    """It may give less than was asked for; how much, depends on the drive."""

    def shorter(body: bytes) -> bytes:
        told = json.loads(body)
        ends = datetime.now(UTC) + timedelta(days=3)
        return json.dumps({**told, "expirationDateTime": ends.isoformat()}).encode()

    loud.peer.proxy.on("POST .*/subscriptions", alter=shorter, times=None)
    loud.begun()
    [row] = registrations(loud)

    assert timedelta(days=2.9) < row["life"] <= timedelta(days=3)
    assert timedelta(days=1.2) < row["wait"] <= timedelta(days=1.5)


@pytest.mark.slow  # the fake refuses more; and that it is renewed is shown above
@every("loud", ["onedrive"], indirect=True)
def test_a_subscription_is_asked_for_less_than_thirty_days(loud: Loud):
    loud.begun()
    [asked] = loud.peer.proxy.seen("POST .*/subscriptions")
    ends = datetime.fromisoformat(json.loads(asked.body)["expirationDateTime"])

    assert timedelta(days=28) < ends - datetime.now(UTC) < timedelta(minutes=42_300)
    [row] = registrations(loud)
    assert 0.4 * row["life"] < row["wait"] <= 0.5 * row["life"]
