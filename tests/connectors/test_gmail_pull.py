"""Gmail's notices, fetched from Pub/Sub by those whom Google cannot reach."""

import json
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, LiteralString

import googleapiclient.discovery
import pytest
from google.auth.transport.requests import Request
from google.oauth2 import credentials, service_account
from googleapiclient.http import HttpRequest
from pydantic import SecretStr

from recollect import connectors
from recollect.app import App
from recollect.cli import doctor
from recollect.cli._config import load
from recollect.config import Config, ProviderSettings
from recollect.connectors.base import settings_of
from recollect.connectors.gmail._settings import GmailSettings
from recollect.connectors.gmail.pubsub import Subscription, read_key
from recollect.connectors.oauth import Tokens
from recollect.connectors.pushes import Inbox
from recollect.db import Database
from recollect.errors import Permanent, RecollectError, SetupError, Transient, Unavailable
from recollect.model import ConnectionId, Org, Tenant, random_id
from recollect.sync import authorizations, connections
from recollect.sync.credentials import seal_tokens
from recollect.worker import pulls as pull
from recollect.worker import syncs
from recollect.worker.processing import drain
from tests.conftest import eventually
from tests.fakes.gmail import ME, PUBLISHER, TOKEN, FakeGmail, envelope
from tests.fakes.pubsub import SUBSCRIPTION, FakePubSub, contract

TOPIC = "projects/recollect-test/topics/gmail"


@pytest.fixture
def pubsub() -> Generator[FakePubSub]:
    with FakePubSub() as made:
        yield made
    assert made.violations == []


@pytest.fixture
def subscription(pubsub: FakePubSub, tmp_path: Path) -> Subscription:
    return Subscription(SUBSCRIPTION, read_key(pubsub.key_file(tmp_path)), pubsub.url)


# --- the subscription --------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["service_account", "authorized_user"])
def test_notices_are_pulled_with_either_kind_of_key(pubsub: FakePubSub, tmp_path: Path, kind: str):
    subscription = Subscription(SUBSCRIPTION, read_key(pubsub.key_file(tmp_path, kind)), pubsub.url)
    pubsub.tidy = True
    pubsub.publish(envelope(ME, 9876, "m-1"))
    pubsub.publish(envelope("bob@example.com", 12, "m-2"))

    received = subscription.pull()

    assert [(one.notice.addresses, one.notice.key) for one in received] == [
        ([ME], "m-1"),
        (["bob@example.com"], "m-2"),
    ]


def test_without_news_nothing_comes(subscription: Subscription):
    assert subscription.pull() == []


def test_what_is_acknowledged_does_not_come_again(pubsub: FakePubSub, subscription: Subscription):
    pubsub.publish(envelope(ME, 9876, "m-1"))

    subscription.acknowledge(subscription.pull())
    pubsub.lapse()

    assert subscription.pull() == []
    assert pubsub.waiting == {}


def test_what_is_not_acknowledged_comes_again(pubsub: FakePubSub, subscription: Subscription):
    pubsub.publish(envelope(ME, 9876, "m-1"))
    subscription.pull()
    pubsub.lapse()

    again = subscription.pull()

    assert {one.notice.key for one in again} == {"m-1"}


@pytest.mark.parametrize(
    "data", ["", "!!!", "W10=", "eyJlbWFpbEFkZHJlc3MiOiAzfQ=="], ids=["none", "odd", "list", "3"]
)
def test_messages_of_others_concern_nobody(
    pubsub: FakePubSub, subscription: Subscription, data: str
):
    pubsub.tidy = True
    pubsub.publish({"message": {"data": data, "messageId": "m-1"}})

    [received] = subscription.pull()

    assert list(received.notice.addresses) == []


def test_a_token_is_asked_for_once_and_again_when_it_ages(pubsub: FakePubSub, tmp_path: Path):
    now = [1_800_000_000.0]
    # The assertion carries the time, so only the token's life is told by the clock.
    key = read_key(pubsub.key_file(tmp_path, "authorized_user"))
    subscription = Subscription(SUBSCRIPTION, key, pubsub.url, clock=lambda: now[0])
    subscription.pull()
    subscription.pull()
    early = pubsub.granted
    now[0] += 3599 - 30

    subscription.pull()

    assert (early, pubsub.granted) == (1, 2)


def test_a_token_that_ends_early_is_replaced(pubsub: FakePubSub, subscription: Subscription):
    subscription.pull()
    pubsub.expire()

    subscription.pull()

    assert pubsub.granted == 2


REFUSALS: dict[str, tuple[Callable[[FakePubSub], object], str, str]] = {
    "key": (lambda pubsub: pubsub.revoke(), "key_refused", "clock"),
    "role": (lambda pubsub: pubsub.readers.clear(), "no_permission", "Pub/Sub Subscriber"),
    "subscription": (
        lambda pubsub: setattr(pubsub, "exists", False),
        "no_subscription",
        "RECOLLECT_PUBSUB_SUBSCRIPTION",
    ),
    "switched_off": (
        lambda pubsub: pubsub.refuse(":pull", 403, "SERVICE_DISABLED", times=None),
        "api_disabled",
        "switch it on",
    ),
}


@pytest.mark.parametrize("what", REFUSALS)
def test_what_the_operator_has_to_mend_is_said(
    pubsub: FakePubSub, subscription: Subscription, what: str
):
    subscription.pull()
    refuse, code, mend = REFUSALS[what]
    refuse(pubsub)

    with pytest.raises(Permanent, match=mend) as caught:
        subscription.pull()

    assert caught.value.code == code


@pytest.mark.parametrize("status", [429, 500, 503])
def test_trouble_of_pub_sub_passes(pubsub: FakePubSub, subscription: Subscription, status: int):
    pubsub.refuse(":pull", status, "UNAVAILABLE", after="7")

    with pytest.raises(Transient) as caught:
        subscription.pull()

    assert caught.value.after == timedelta(seconds=7)
    assert subscription.pull() == []


def test_a_token_endpoint_that_fails_passes(pubsub: FakePubSub, subscription: Subscription):
    pubsub.refuse("/token", 503)

    with pytest.raises(Transient):
        subscription.pull()

    assert subscription.pull() == []


def test_no_message_repeats_a_secret(pubsub: FakePubSub, tmp_path: Path):
    path = pubsub.key_file(tmp_path)
    key = read_key(path)
    private = json.loads(path.read_text())["private_key"]
    subscription = Subscription(SUBSCRIPTION, key, pubsub.url)
    subscription.pull()
    told = [repr(key)]
    for status in (400, 403, 500):
        pubsub.refuse(":pull", status)
        with pytest.raises(RecollectError) as caught:
            subscription.pull()
        told.append(str(caught.value))

    assert not [text for text in told if private[40:80] in text or "pubsub-token-" in text]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (None, "cannot be read"),
        ("{secret", "not JSON"),
        ("[]", "neither"),
        ('{"type": "external_account"}', "neither"),
        ('{"type": "service_account", "client_email": "a@b"}', "private_key_id, private_key"),
        ('{"type": "authorized_user", "client_id": "c"}', "client_secret, refresh_token"),
        (
            '{"type": "service_account", "client_email": "a", "private_key_id": "b",'
            ' "private_key": "secret", "token_uri": "file:///etc/passwd"}',
            "token_uri",
        ),
    ],
    ids=["none", "text", "list", "kind", "account", "user", "address"],
)
def test_a_bad_key_file_is_named(tmp_path: Path, text: str | None, fault: str):
    path = tmp_path / "key.json"
    if text is not None:
        path.write_text(text)

    with pytest.raises(SetupError, match=fault) as caught:
        read_key(path)

    assert str(path) in str(caught.value)
    assert "secret" not in str(caught.value).replace("client_secret", "")


def test_a_private_key_that_is_none_is_told(pubsub: FakePubSub, tmp_path: Path):
    path = pubsub.key_file(tmp_path, private_key="-----BEGIN PRIVATE KEY-----\nnone")
    subscription = Subscription(SUBSCRIPTION, read_key(path), pubsub.url)

    with pytest.raises(Permanent) as caught:
        subscription.pull()

    assert caught.value.code == "key_refused"


# --- the loop ----------------------------------------------------------------------------------


@pytest.fixture
def gmail() -> Generator[FakeGmail]:
    with FakeGmail() as made:
        made.topics[TOPIC] = {PUBLISHER}
        made.now = datetime.now(UTC)
        yield made
    assert made.violations == []


@pytest.fixture
def behind(
    app: App,
    gmail: FakeGmail,
    pubsub: FakePubSub,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> App:
    """An installation that Google cannot reach, with a key for the subscription."""
    monkeypatch.setattr(connectors.get("gmail"), "per_second", None)  # the fake has no rate
    given: dict[str, Any] = app.config.model_dump(exclude={"providers"}) | {
        "public_url": None,
        "providers": {
            "gmail": GmailSettings.model_construct(
                client_id="id",
                client_secret=SecretStr("secret"),
                api_url=gmail.url,
                pubsub_subscription=SUBSCRIPTION,
                pubsub_key_file=pubsub.key_file(tmp_path),
                pubsub_api_url=pubsub.url,
            )
        },
    }
    return replace(app, config=Config(**given))


def changed(config: Config, **settings: Any) -> Config:
    """With other settings of Gmail."""
    gmail = settings_of(config, "gmail", GmailSettings).model_copy(update=settings)
    return config.model_copy(update={"providers": {"gmail": gmail}})


Connect = Callable[..., str]


@pytest.fixture
def connect(behind: App, org: Org) -> Connect:
    """A connection that its user has authorized, and that has been synced once; its id."""

    def make(email: str = ME, **metadata: Any) -> str:
        new = connections.SealedConnection(
            "gmail", ["mail"], 1_000, {"pubsubTopic": TOPIC, **metadata}, None, pending=True
        )
        with behind.db.begin() as tx:
            made = connections.create(tx, org.id, new, ConnectionId(email))
            authorizations.authorize(
                tx,
                made,
                tokens=seal_tokens(behind, made.id, Tokens(TOKEN)),
                expires_at=None,
                account=f"id of {email}",
                email=email,
                due=True,
            )
        work(behind)
        return made.id

    return make


def work(app: App) -> None:
    syncs.drain(app)
    drain(app)


def seen(app: App, org: Org, id: str) -> connections.Connection:
    with app.db.begin() as tx:
        return connections.get(tx, Tenant(org.id), id)


def titles(app: App, org: Org) -> set[str]:
    with app.db.begin() as tx:
        rows = tx.execute("select title from documents where org_id = %s", (org.id,)).fetchall()
    return {row["title"] for row in rows}


class Brief(threading.Event):
    """Is waited for in a moment, however long a pause was to be; so nobody stops because of it."""

    def wait(self, timeout: float | None = None) -> bool:
        return super().wait(None if timeout is None else min(timeout, 0.01))


@contextmanager
def pulling(app: App) -> Generator[None]:
    stop = Brief()
    thread = threading.Thread(target=pull.run, args=(app, connectors.get("gmail"), stop))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(60)
    assert not thread.is_alive()


def opened(app: App) -> Inbox:
    inbox = connectors.get("gmail").inbox(app.config)
    assert inbox is not None
    return inbox


def fetch(app: App) -> int:
    return pull.fetch(app, connectors.get("gmail"), opened(app))


def deliver(gmail: FakeGmail, pubsub: FakePubSub) -> None:
    """What Gmail published meanwhile reaches the subscription."""
    for told in gmail.published:
        # Numbers of their own: what came once is remembered for a week, by all tests.
        pubsub.publish({"message": {**told["message"], "messageId": random_id()}})
    gmail.published.clear()


def test_a_mail_is_known_without_any_address_of_ours(
    behind: App, org: Org, connect: Connect, gmail: FakeGmail, pubsub: FakePubSub
):
    id = connect()
    before = seen(behind, org, id)
    gmail.mail("Urgent")
    deliver(gmail, pubsub)

    fetch(behind)
    after = seen(behind, org, id)
    work(behind)

    assert gmail.watch is not None
    assert before.pushes == "on"
    # Not before the schedule's four hours, had nothing come.
    assert before.due_at is not None
    assert after.due_at is not None
    assert after.due_at < before.due_at
    assert titles(behind, org) == {"Urgent"}
    assert pubsub.waiting == {}


def test_a_notice_that_comes_twice_is_heeded_once(
    behind: App, org: Org, connect: Connect, gmail: FakeGmail, pubsub: FakePubSub
):
    connect()
    gmail.mail("Urgent")
    deliver(gmail, pubsub)
    subscription = opened(behind)
    pubsub.refuse(":acknowledge", 503)
    with pytest.raises(Transient):
        pull.fetch(behind, connectors.get("gmail"), subscription)
    work(behind)
    calls = len(gmail.asked)
    pubsub.lapse()

    pull.fetch(behind, connectors.get("gmail"), subscription)
    work(behind)

    assert pubsub.waiting == {}
    assert len(gmail.asked) == calls


def test_mailboxes_that_nobody_connected_are_acknowledged(
    behind: App, org: Org, connect: Connect, pubsub: FakePubSub
):
    id = connect()
    before = seen(behind, org, id)
    pubsub.publish(envelope("stranger@example.com", 9, "m-1"))

    fetch(behind)

    assert pubsub.waiting == {}
    assert seen(behind, org, id) == before


def test_a_notice_is_not_acknowledged_before_it_is_written_down(
    behind: App, connect: Connect, gmail: FakeGmail, pubsub: FakePubSub
):
    connect()
    gmail.mail("Urgent")
    deliver(gmail, pubsub)
    closed = replace(behind, db=Database("postgresql://127.0.0.1/closed"))
    with pytest.raises(Unavailable):
        pull.fetch(closed, connectors.get("gmail"), opened(behind))

    assert len(pubsub.waiting) == 1


def test_a_notice_reaches_every_connection_of_the_mailbox(
    behind: App, org: Org, connect: Connect, gmail: FakeGmail, pubsub: FakePubSub
):
    ids = [connect(), connect("Me@Example.com", q="project")]
    before = [seen(behind, org, id).pushed_at for id in ids]
    gmail.mail("Urgent")
    deliver(gmail, pubsub)

    fetch(behind)

    after = [seen(behind, org, id).pushed_at for id in ids]
    assert all(new != old for new, old in zip(after, before, strict=True))


def test_the_loop_pulls_until_it_is_stopped(
    behind: App, org: Org, connect: Connect, gmail: FakeGmail, pubsub: FakePubSub
):
    id = connect()
    before = seen(behind, org, id)

    with pulling(behind):
        eventually(lambda: pubsub.count(":pull") > 0)
        gmail.mail("Urgent")
        deliver(gmail, pubsub)
        eventually(lambda: seen(behind, org, id).pushed_at != before.pushed_at)
        eventually(lambda: pubsub.waiting == {})

    assert seen(behind, org, id).pushes == "on"


def test_while_nothing_can_be_pulled_it_is_polled_and_the_status_says_why(
    behind: App, org: Org, connect: Connect, pubsub: FakePubSub
):
    id = connect()
    scheduled = seen(behind, org, id).due_at
    pubsub.readers.clear()

    with pulling(behind):
        eventually(lambda: "Pub/Sub Subscriber" in str(seen(behind, org, id).pushes))
    found = seen(behind, org, id)
    with behind.db.begin() as tx:
        tx.execute("update connections set due_at = now() where id = %s", (id,))
    work(behind)
    later = seen(behind, org, id)

    assert found.pushes is not None
    assert found.pushes.startswith("off (notices cannot be pulled: ")
    assert found.due_at is not None
    assert scheduled is not None
    # Soon, and from then on as often as where there are no pushes at all.
    assert scheduled - found.due_at > timedelta(hours=3)
    assert later.due_at is not None
    assert later.last_synced_at is not None
    assert later.due_at - later.last_synced_at <= behind.config.poll_interval + timedelta(minutes=1)


def test_what_the_operator_mends_is_taken_without_a_restart(
    behind: App, org: Org, connect: Connect, pubsub: FakePubSub, tmp_path: Path
):
    id = connect()
    pubsub.revoke()

    with pulling(behind):
        eventually(lambda: str(seen(behind, org, id).pushes).startswith("off"))
        pubsub.key_file(tmp_path)
        eventually(lambda: _has_renewal(behind, id))
    work(behind)

    found = seen(behind, org, id)
    assert found.pushes == "on"


def _has_renewal(app: App, id: str) -> bool:
    with app.db.begin() as tx:
        row = tx.execute(
            "select bool_or(renew_at <= now()) as due from registrations where connection_id = %s",
            (id,),
        ).fetchone()
    return bool(row and row["due"])


def test_a_short_outage_turns_nothing_off(
    behind: App, org: Org, connect: Connect, pubsub: FakePubSub
):
    id = connect()
    pubsub.refuse(":pull", 503, "UNAVAILABLE", times=2)

    with pulling(behind):
        eventually(lambda: pubsub.count(":pull") >= 4)

    assert seen(behind, org, id).pushes == "on"


def test_a_missing_key_file_is_named(behind: App, org: Org, connect: Connect, tmp_path: Path):
    id = connect()
    without = replace(behind, config=changed(behind.config, pubsub_key_file=None))

    with pulling(without):
        eventually(lambda: "PUBSUB_KEY_FILE" in str(seen(behind, org, id).pushes))


DUE: dict[str, LiteralString] = {
    "sync": "update connections set due_at = now() where id = %s",
    "renewal": "update registrations set renew_at = now() where connection_id = %s",
}


@pytest.mark.parametrize("by", DUE)
def test_when_the_setting_goes_the_mailbox_is_polled(
    behind: App, org: Org, connect: Connect, by: str
):
    id = connect()
    without = replace(behind, config=changed(behind.config, pubsub_subscription=None))
    for step in (by, "sync", "sync"):
        with behind.db.begin() as tx:
            tx.execute(DUE[step], (id,))
        work(without)

    found = seen(behind, org, id)

    assert found.pushes is None
    assert found.due_at is not None
    assert found.last_synced_at is not None
    assert found.due_at - found.last_synced_at <= timedelta(minutes=6)


def test_without_a_subscription_there_is_nothing_to_do(app: App):
    pull.run(app, connectors.get("gmail"), threading.Event())


def test_the_doctor_looks_at_the_key_file(behind: App, tmp_path: Path):
    def told(**settings: Any) -> doctor.CheckResult:
        config = changed(behind.config, **settings)
        return next(f for f in doctor._providers(config) if f.name == "gmail's notices")

    assert (told().state, told().details) == ("ok", f"pulled from {SUBSCRIPTION}")
    assert told(pubsub_key_file=None).state == "FAIL"
    assert "cannot be read" in told(pubsub_key_file=tmp_path / "none.json").details


def test_the_doctor_knows_the_application_that_google_drive_shares(behind: App):
    given = ProviderSettings(client_id="id", client_secret=SecretStr("secret"))
    config = behind.config.model_copy(update={"providers": {"google-drive": given}})

    found = {one.name: one.state for one in doctor._providers(config)}

    assert (found["google-drive"], found["gmail"], found["notion"]) == ("ok", "ok", "off")


def test_what_is_no_name_of_a_subscription_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("RECOLLECT_PUBSUB_SUBSCRIPTION", "projects/p/topics/gmail")

    with pytest.raises(SetupError, match=r"^RECOLLECT_PUBSUB_SUBSCRIPTION: "):
        load()


# --- judges that are not ours ------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["service_account", "authorized_user"])
def test_the_official_client_walks_the_fake(pubsub: FakePubSub, tmp_path: Path, kind: str):
    """Google's own credentials get a token of it, and its own client pulls and acknowledges."""
    told = json.loads(pubsub.key_file(tmp_path, kind).read_text())
    scopes = ["https://www.googleapis.com/auth/pubsub"]
    if kind == "service_account":
        found: Any = service_account.Credentials.from_service_account_info(told, scopes=scopes)
    else:
        found = credentials.Credentials(
            None,
            refresh_token=told["refresh_token"],
            client_id=told["client_id"],
            client_secret=told["client_secret"],
            token_uri=told["token_uri"],
        )
    found.refresh(Request())
    client: Any = googleapiclient.discovery.build(
        "pubsub",
        "v1",
        credentials=found,
        client_options={"api_endpoint": pubsub.url},
        static_discovery=True,
    )
    pubsub.publish(envelope(ME, 9876, "m-1"))
    calls = client.projects().subscriptions()

    pulled: HttpRequest = calls.pull(subscription=SUBSCRIPTION, body={"maxMessages": 10})
    received = pulled.execute()["receivedMessages"]
    acks = {"ackIds": [one["ackId"] for one in received]}
    calls.acknowledge(subscription=SUBSCRIPTION, body=acks).execute()

    assert {one["message"]["messageId"] for one in received} == {"m-1"}
    assert pubsub.waiting == {}


def test_the_judge_of_the_fake_judges():
    wrong = contract().check_request(
        "POST", f"/v1/{SUBSCRIPTION}:pull", json.dumps({"maxMessage": "many"}).encode()
    )

    assert wrong
