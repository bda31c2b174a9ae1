"""What is promised of Google Drive and Gmail, where no other test would notice it broken."""

import base64
import json
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx
import pytest
from pydantic import SecretStr
from starlette.testclient import TestClient

from recollect import connectors
from recollect.api import create_app
from recollect.app import App
from recollect.config import ProviderSettings
from recollect.connectors.base import Checkpoint
from recollect.connectors.google_drive import GoogleDrive, _pass
from recollect.extract import Sandbox
from recollect.fetch import Fetcher
from recollect.model import ConnectionId, random_id
from recollect.sync import push_registrations
from recollect.worker import syncs
from recollect.worker.processing import drain
from tests.connectors import test_published_client as published
from tests.connectors.memory import MemorySource, Token
from tests.connectors.peers import PEERS, GoogleDrivePeer, OneDrivePeer
from tests.connectors.test_conformance import World
from tests.connectors.test_conformance import known_connectors as known_connectors
from tests.connectors.test_conformance import unpaced as unpaced
from tests.connectors.test_conformance import world as world
from tests.connectors.test_conformance_pushes import Loud
from tests.connectors.test_conformance_pushes import loud as loud
from tests.extract import office, samples
from tests.fakes.authorization import CLIENT_ID, CLIENT_SECRET, AuthorizationServer
from tests.fakes.google_drive import TOKEN, FakeDrive
from tests.fakes.proxy import Proxy

every = pytest.mark.parametrize


def slow(*values: object) -> Any:
    """What the same test at another provider shows as well: at night."""
    return pytest.param(*values, marks=pytest.mark.slow)


Connect = Callable[..., MemorySource]
DRIVE = GoogleDrive()
HOUR = timedelta(hours=1)


# --- limits --------------------------------------------------------------------------------------


def used_up(world: World, where: str) -> None:
    """Google's answer on a day whose limit is used up, five hours before it ends in California."""
    told = {
        "code": 403,
        "message": "Daily Limit Exceeded",
        "errors": [{"reason": "dailyLimitExceeded"}],
    }
    world.peer.proxy.on(
        where,
        status=403,
        body=json.dumps({"error": told}).encode(),
        headers={"Date": "Thu, 01 Jan 2026 03:00:00 GMT", "Content-Type": "application/json"},
        times=None,
    )


def wait_of(world: World) -> timedelta:
    return datetime.fromisoformat(world.connection()["nextSyncAt"]) - datetime.now(UTC)


@every("world", ["google-drive", slow("gmail")], indirect=True)
def test_the_limit_of_a_day_is_waited_out_until_the_day_ends(world: World):
    world.connect()
    used_up(world, ".")
    world.due()
    syncs.drain(world.app)

    assert world.connection()["lastSyncRun"]["errorCode"] == "rate_limited"
    assert 4.9 * HOUR < wait_of(world) <= 5 * HOUR
    world.peer.proxy.behave()
    world.sync()
    world.agrees()


@every("world", ["google-drive"], indirect=True)
def test_a_file_that_meets_with_the_limit_of_a_day_parks_them_all_until_it_ends(world: World):
    world.connect()
    world.due()
    syncs.drain(world.app)
    used_up(world, "/export")
    drain(world.app)
    with world.app.db.begin() as tx:
        rows = tx.execute(
            "select due_at - now() as wait from documents where connection_id = %s", (world.id,)
        ).fetchall()

    assert wait_of(world) > 4.9 * HOUR
    assert len(rows) == 3
    assert all(4.9 * HOUR < row["wait"] <= 5 * HOUR for row in rows)
    world.peer.proxy.behave()
    world.sync()
    world.agrees()


# --- who answers ---------------------------------------------------------------------------------

DONE = "https://app.example/done"
GOOGLE = "https://accounts.google.com"
ELSEWHERE = ["https://evil.example", f"{GOOGLE}/", "accounts.google.com", "", "null"]


@dataclass
class Door:
    """Where users come back who authorized at Google, which answers codes for tokens."""

    http: httpx.Client
    provider: str
    proxy: Proxy
    google: AuthorizationServer

    def link(self) -> str:
        body = {"containerTags": ["notes"], "redirectUrl": DONE}
        return self.http.post(f"/v3/connections/{self.provider}", json=body).json()["authLink"]

    def follow(self, link: str, *issuers: str, deny: bool = False) -> httpx.Response:
        back = urlsplit(self.google.consent(link, deny=deny))
        query = "&".join([back.query, *(urlencode({"iss": one}) for one in issuers)])
        return self.http.get(f"{back.path}?{query}", follow_redirects=False)

    def outcome(self, link: str, *issuers: str, deny: bool = False) -> tuple[str, str | None]:
        answer = self.follow(link, *issuers, deny=deny)
        assert answer.status_code == 303, answer.text
        told = dict(parse_qsl(urlsplit(answer.headers["location"]).query))
        return told["status"], told.get("error")


@pytest.fixture
def door(request: pytest.FixtureRequest, app: App, key: str) -> Generator[Door]:
    provider, auth_url = request.param
    with AuthorizationServer() as google, Proxy(google.url) as proxy:
        proxy.on("/userinfo", times=None, status=200, json_body={"sub": "1", "email": "a@b.test"})
        given = ProviderSettings(
            client_id=CLIENT_ID,
            client_secret=SecretStr(CLIENT_SECRET),
            api_url=proxy.url,
            auth_url=auth_url,
            token_url=f"{proxy.url}/token",
        )
        config = app.config.model_copy(update={"providers": {provider: given}})
        headers = {"authorization": f"Bearer {key}"}
        with TestClient(create_app(replace(app, config=config)), headers=headers) as http:
            yield Door(cast("httpx.Client", http), provider, proxy, google)


@every("door", [("google-drive", None), slow(("gmail", None))], indirect=True, ids=str)
def test_an_answer_that_is_not_google_s_is_refused(door: Door):
    for issuers in [*([one] for one in ELSEWHERE), [GOOGLE, ELSEWHERE[0]], [ELSEWHERE[0], GOOGLE]]:
        link = door.link()
        assert door.outcome(link, *issuers) == ("error", "refused"), issuers
        assert door.follow(link, GOOGLE).status_code == 400, "its state is used up"
        denied = door.follow(door.link(), *issuers, deny=True)
        assert denied.status_code == 400, "nobody is sent anywhere by it"
        assert f"not from {GOOGLE};" in denied.text
        assert "evil" not in denied.text
    assert door.proxy.asked("/token") == 0, "no code of it is shown to Google"

    assert door.outcome(door.link(), GOOGLE, deny=True) == ("error", "access_denied")
    assert door.outcome(door.link(), GOOGLE) == ("connected", None)
    assert door.outcome(door.link()) == ("connected", None), "some of Google's do without"
    assert door.proxy.asked("/token") == 2


@every("door", [("gmail", "https://sso.example/authorize")], indirect=True)
def test_who_authorizes_elsewhere_is_not_taken_for_google(door: Door):
    assert door.outcome(door.link(), "https://sso.example") == ("connected", None)


# --- every kind of file --------------------------------------------------------------------------


@dataclass(frozen=True)
class Sample:
    data: bytes
    mime: str
    words: str


def _words(name: str) -> str:
    return f"The {name} stands in the reeds and waits."


OFFICE = "application/vnd.openxmlformats-officedocument"
DOCX = f"{OFFICE}.wordprocessingml.document"
XLSX = f"{OFFICE}.spreadsheetml.sheet"
PPTX = f"{OFFICE}.presentationml.presentation"
ODT = "application/vnd.oasis.opendocument.text"


def docx(words: str) -> bytes:
    return samples.word(lambda document: document.add_paragraph(words))


def xlsx(words: str) -> bytes:
    """On the second sheet."""
    return office.xlsx({"One": [["a"]], "Two": [["b"], [words]]})


MAKERS: Mapping[str, tuple[str, Callable[[str], bytes]]] = {
    "heron.docx": (DOCX, docx),
    "stork.xlsx": (XLSX, xlsx),
    "crane.pptx": (PPTX, lambda words: office.pptx([("Birds", [words])])),
    "ibis.pdf": ("application/pdf", lambda words: samples.pdf(words)),
    "egret.odt": (ODT, office.odt),
    "bittern.md": ("text/markdown", lambda words: f"# Birds\n\n{words}".encode()),
    "rail.csv": ("text/csv", lambda words: f"bird,told\nrail,{words}\n".encode()),
    "coot.eml": ("message/rfc822", lambda words: office.eml(lambda m: m.set_content(words))),
    # Drives often know no more of a file than this.
    "grebe.docx": ("application/octet-stream", docx),
}
SAMPLES: Mapping[str, Sample] = {
    name: Sample(make(_words(name)), mime, _words(name)) for name, (mime, make) in MAKERS.items()
}


def texts(world: World) -> dict[str, str]:
    """By title."""
    listed = world.http.post(f"/v3/connections/{world.provider}/documents").json()
    found = [world.http.get(f"/v3/documents/{one['id']}").json() for one in listed]
    return {one["title"]: f"{one['status']}: {one['content']}" for one in found}


@every("world", ["google-drive", slow("onedrive")], indirect=True)
def test_whatever_can_be_read_is_read(world: World):
    for name, sample in SAMPLES.items():
        if isinstance(world.peer, GoogleDrivePeer):
            world.peer.drive.file(name, sample.data, sample.mime)
        elif isinstance(world.peer, OneDrivePeer):
            world.peer.user.drive.file(name, sample.data)
    world.connect()
    world.sync()

    found = texts(world)
    assert {name for name in SAMPLES if not found[name].startswith("done: ")} == set()
    assert {name for name, one in SAMPLES.items() if one.words not in found[name]} == set()


# --- registrations -------------------------------------------------------------------------------


@every(
    ("loud", "life"),
    [("google-drive", timedelta(days=7)), ("gmail", timedelta(days=2))],
    indirect=["loud"],
)
def test_a_registration_is_renewed_at_half_of_its_life(loud: Loud, life: timedelta):
    """So Gmail's daily, as Google wants it."""
    loud.begun()
    [row] = registrations(loud)

    assert life - HOUR < row["life"] <= life
    assert 0.4 * life < row["wait"] <= 0.5 * life


def registrations(loud: Loud) -> list[dict[str, Any]]:
    with loud.app.db.begin() as tx:
        return tx.execute(
            "select expires_at - now() as life, renew_at - now() as wait from registrations"
            " where connection_id = %s and not retired",
            (loud.id,),
        ).fetchall()


@every("loud", ["google-drive"], indirect=True)
def test_registrations_that_were_made_together_are_not_renewed_together(loud: Loud):
    """A service with thousands of mailboxes would ask for all watches in the same minute."""
    loud.connect()
    ids = [random_id() for _ in range(5)]
    with loud.app.db.begin() as tx:
        for id in ids:
            push_registrations.add_registration(
                tx, id, ConnectionId(loud.id), f"feed {id}", secret="s", url="u"
            )
            ends = datetime.now(UTC) + timedelta(days=7)
            push_registrations.keep_registration(tx, id, remote={}, expires_at=ends)
    times = sorted(row["wait"] for row in registrations(loud))

    assert times[-1] - times[0] > timedelta(minutes=1)


@every(("public_url", "told"), [(None, 1), ("https://recollect.example", 0)])
def test_that_nobody_can_push_is_said_once(
    app: App, public_url: str | None, told: int, capfd: pytest.CaptureFixture[str]
):
    config = app.config.model_copy(update={"public_url": public_url})
    loop = syncs.Syncer(replace(app, config=config))
    loop.stop()
    loop.run()

    assert capfd.readouterr().err.count("providers cannot push to us") == told


# --- what Drive tells, and what it does not ------------------------------------------------------


@pytest.fixture(scope="module")
def sandbox() -> Generator[Sandbox]:
    with Sandbox(workers=1) as made:
        yield made


@pytest.fixture(scope="module")
def fetcher() -> Generator[Fetcher]:
    with Fetcher(user_agent="RecollectBot/test") as made:
        yield made


@pytest.fixture
def drive() -> Generator[FakeDrive]:
    with FakeDrive() as made:
        yield made
        assert made.violations == []


@pytest.fixture
def between(drive: FakeDrive) -> Generator[Proxy]:
    with Proxy(drive.url) as made:
        yield made


@pytest.fixture
def connect(between: Proxy, fetcher: Fetcher, sandbox: Sandbox) -> Connect:
    def connect(**metadata: str) -> MemorySource:
        kept = DRIVE.check(metadata, fetcher)
        return MemorySource(DRIVE, fetcher, sandbox, kept, api_url=between.url, access=Token(TOKEN))

    return connect


def sync(source: MemorySource) -> None:
    source.sync(at=source.since + timedelta(minutes=5))


def test_a_shared_drive_that_is_only_missing_from_the_list_keeps_its_files(
    drive: FakeDrive, between: Proxy, connect: Connect
):
    """It is asked for by itself before anything is given up."""
    team = drive.shared_drive("Team")
    plan = drive.doc("plan", "We dig at dawn.", team)
    source = connect()
    sync(source)
    between.on(r"GET /drive/v3/drives\?", alter=lambda _: b'{"drives": []}', times=None)
    sync(source)
    late = drive.doc("late", "Then we rest.", team)
    sync(source)

    assert between.asked(rf"GET /drive/v3/drives/{team}\?") == 2
    assert source.items.keys() == {plan, late}


def test_a_change_of_a_drive_itself_is_none_of_a_file(
    drive: FakeDrive, between: Proxy, connect: Connect
):
    team = drive.shared_drive("Team")
    plan = drive.doc("plan", "We dig at dawn.", team)
    source = connect()
    sync(source)
    told = {"changeType": "drive", "driveId": team, "removed": False}

    def renamed(body: bytes) -> bytes:
        page = json.loads(body)
        return json.dumps({**page, "changes": [told, *page["changes"]]}).encode()

    between.on(r"GET /drive/v3/changes\?", alter=renamed, times=2)
    late = drive.doc("late", "Then we rest.", team)
    sync(source)

    assert source.items.keys() == {plan, late}


def test_a_shortcut_to_what_may_not_be_read_keeps_nothing_else_from_being_synced(
    drive: FakeDrive, between: Proxy, connect: Connect
):
    target = drive.doc("target", "Not for you.", drive.folder("Elsewhere"))
    inside = drive.folder("In")
    shortcut = drive.shortcut("short", target, inside)
    plan = drive.doc("plan", "We dig at dawn.", inside)
    told = {"code": 403, "message": "no", "errors": [{"reason": "insufficientFilePermissions"}]}
    between.on(
        rf"GET /drive/v3/files/{target}\?", status=403, json_body={"error": told}, times=None
    )
    source = connect(syncScope="selected", folders=inside)
    sync(source)

    assert source.items.keys() == {plan}
    assert source.rows[shortcut].verdict == "broken_shortcut"
    assert "share it with the account again" in (source.rows[shortcut].detail or "")
    between.behave()
    sync(source)
    drive.rename(shortcut, "short again")
    sync(source)
    assert source.items.keys() == {plan, target}


def test_a_tree_of_many_folders_that_moves_into_the_selection_comes_whole(
    drive: FakeDrive, connect: Connect, monkeypatch: pytest.MonkeyPatch
):
    """More than are looked into one by one."""
    monkeypatch.setattr(_pass, "MANY", 10)
    inside, outside = drive.folder("In"), drive.folder("Out")
    tops = [drive.folder(f"top {n}", outside) for n in range(6)]
    folders = [drive.folder(f"deep {n}", top) for n, top in enumerate([*tops, *tops])]
    docs = {drive.doc(f"doc {n}", "x", folders[n]) for n in (0, 5, 11)}
    source = connect(syncScope="selected", folders=inside)
    sync(source)
    assert source.items == {}
    drive.move(outside, inside)
    sync(source)
    sync(source)

    assert source.items.keys() == docs


# --- where a sync goes on ------------------------------------------------------------------------


@every(
    ("name", "things", "most"),
    [
        ("google-drive", 300, 3_000),
        ("onedrive", 300, 3_000),
        slow("gmail", 120, 1_500),
        slow("notion", 400, 9_000),
    ],
)
def test_what_is_known_of_things_stands_in_rows_and_not_in_the_cursor(
    name: str, things: int, most: int, fetcher: Fetcher, sandbox: Sandbox
):
    with PEERS[name]() as peer:
        peer.fill(range(things))
        tokens = peer.tokens()
        assert tokens is not None
        source = MemorySource(
            connectors.get(name),
            fetcher,
            sandbox,
            peer.metadata(),
            api_url=peer.proxy.url,
            access=Token(tokens.access),
        )
        said = [*source.sync(at=datetime.now(UTC)), *source.sync(at=datetime.now(UTC) + HOUR)]

    assert len(source.items) == things
    cursors = [one.cursor for one in said if isinstance(one, Checkpoint)]
    assert max(len(json.dumps(cursor)) for cursor in cursors) < most


# --- who authorized ------------------------------------------------------------------------------


class OfAnother(published.Provider):
    """Its id_tokens are made for another application."""

    def token(self, asked: dict[str, str]) -> dict[str, Any]:
        said = super().token(asked)
        claims = json.dumps({"sub": "eve", "email": "eve@example.com", "aud": "another"}).encode()
        parts = [b'{"alg":"none"}', claims, b""]
        told = [base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts]
        return {**said, "id_token": ".".join(told)}


@every("name", ["gmail", slow("google-drive")])
def test_an_id_token_for_another_application_says_nothing(
    app: App, key: str, name: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(published, "Provider", OfAnother)
    with published.world(app, key, name) as made:
        created = made.sdk.connections.create(made.name, container_tags=["marsh"])
        assert created.id
        assert created.auth_link
        back = urlsplit(made.authorization.consent(created.auth_link, user=published.ANN))
        answer = httpx.get(f"{made.url}{back.path}?{back.query}", trust_env=False)

        assert answer.status_code == 400
        assert "id_token" in answer.text
        assert made.sdk.connections.get_by_id(created.id).email is None
