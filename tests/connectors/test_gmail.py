"""The Gmail connector against a stateful fake with real MIME, and against `emulate`."""

import base64
import hashlib
import itertools
import json
import random
import re
import threading
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage
from functools import cache
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from google.oauth2.credentials import Credentials
from googleapiclient.discovery import build
from hypothesis import given
from hypothesis import strategies as st
from jwt import algorithms

from recollect.connectors.base import Change, Checkpoint, Gone, Item, Listed, Listing, Verdict
from recollect.connectors.gmail import Gmail
from recollect.connectors.gmail._quotes import without_quoted_markup, without_quotes
from recollect.connectors.gmail.proofs import FindKey, Keys, verify
from recollect.connectors.oauth import Tokens
from recollect.connectors.pushes import Push, Registration
from recollect.errors import (
    BadRequestError,
    CursorExpired,
    NotFoundError,
    Permanent,
    Reauthorize,
    Transient,
)
from recollect.extract import Sandbox
from recollect.fetch import EndpointAnswer, Fetcher
from recollect.ingest import chunk
from recollect.model import Extracted
from tests.connectors.memory import ID, NOW, MemorySource, Token
from tests.fakes.emulate import behind_proxy
from tests.fakes.gmail import (
    ME,
    PUBLISHER,
    READ,
    TOKEN,
    FakeGmail,
    contract,
    envelope,
    letter,
    walk,
)
from tests.fakes.proxy import Proxy

CONNECTOR = Gmail()
Connect = Callable[..., "Clocked"]


@pytest.fixture(scope="module")
def sandbox() -> Generator[Sandbox]:
    with Sandbox(workers=1) as made:
        yield made


@pytest.fixture(scope="module")
def fetcher() -> Generator[Fetcher]:
    with Fetcher(user_agent="RecollectBot/test") as made:
        yield made


@pytest.fixture
def gmail() -> Generator[FakeGmail]:
    """Whatever was asked of it, and answered, is as Google describes its API."""
    with FakeGmail() as made:
        yield made
    assert made.violations == []


class Clocked(MemorySource):
    """Each sync is a minute after the one before; an expired cursor means listing everything."""

    def again(self) -> list[Change]:
        self.since += timedelta(minutes=1)
        try:
            return self.sync()
        except CursorExpired:
            self.cursor = None
            return self.sync()


@pytest.fixture
def connect(gmail: FakeGmail, fetcher: Fetcher, sandbox: Sandbox) -> Connect:
    def connect(**metadata: Any) -> Clocked:
        return Clocked(
            connector=CONNECTOR,
            fetcher=fetcher,
            sandbox=sandbox,
            metadata=CONNECTOR.check(metadata, fetcher),
            api_url=gmail.url,
            access=Token(TOKEN),
        )

    return connect


@pytest.fixture
def source(connect: Connect) -> Clocked:
    return connect()


def local(source: MemorySource) -> dict[str, str]:
    """Id → version of what the connection has as documents."""
    return {id: item.version for id, item in source.items.items()}


def remote(gmail: FakeGmail) -> dict[str, str]:
    """The same as it should be."""
    return {id: version_of(document.mails) for id, document in gmail.documents().items()}


def version_of(mails: Any) -> str:
    return hashlib.sha256("\n".join(mails).encode()).hexdigest()[:32]


def labels(source: MemorySource) -> dict[str, set[str]]:
    return {
        id: set(str(item.metadata.get("labels", "")).split(", ")) - {""}
        for id, item in source.items.items()
    }


def only(changes: list[Change], kind: type[Any]) -> list[Any]:
    return [change for change in changes if isinstance(change, kind)]


def read(source: MemorySource, thread: str) -> Extracted:
    return CONNECTOR.fetch(source, source.rows[thread])


def gets(gmail: FakeGmail) -> int:
    return gmail.count(r"^GET \S*/threads/")


def lists(gmail: FakeGmail) -> int:
    return gmail.count(r"^GET \S*/threads\?")


# --- listing -----------------------------------------------------------------------------------


def test_a_thread_tells_what_it_is(gmail: FakeGmail, source: Clocked):
    project = gmail.label("Project X")
    thread = gmail.mail("Plan", "One.", labels=("INBOX", "UNREAD"), files={"a.pdf": b"%PDF"})
    gmail.tag(thread, project)
    gmail.reply(thread, "Two.", files={"b.pdf": b"%PDF", "c, d.pdf": b"%PDF"}, labels=("SENT",))

    source.sync()

    [item] = source.items.values()
    assert item.id == thread
    assert item.title == "Plan"
    assert item.url == f"https://mail.google.com/mail/u/me@example.com/#all/{thread}"
    assert item.kind == "text"
    assert item.modified_at == gmail.of(thread)[-1].at
    assert item.metadata == {
        "type": "gmail_thread",
        "threadId": thread,
        "subject": "Plan",
        "from": "Ann <ann@example.com>",
        "to": ME,
        "date": gmail.of(thread)[-1].at.isoformat(),
        "messageCount": 2,
        "attachmentCount": 3,
        "attachmentNames": "a.pdf, b.pdf, c, d.pdf",
        "labels": "INBOX, Project X, SENT",
    }


def test_every_thread_is_listed_once_and_the_newest_first(gmail: FakeGmail, source: Clocked):
    threads = [gmail.mail(f"Plan {n}") for n in range(20)]
    gmail.reply(threads[3])

    said = source.sync()

    assert [item.id for item in only(said, Item)][:2] == [threads[3], threads[19]]
    assert local(source) == remote(gmail)
    assert len(source.items) == 20
    assert gets(gmail) == 20


@pytest.mark.parametrize(
    "at", [datetime(1969, 12, 31, 23, tzinfo=UTC), datetime(1, 1, 1, tzinfo=UTC)]
)
def test_imported_mail_may_be_older_than_computers_count(
    gmail: FakeGmail, source: Clocked, at: datetime
):
    thread = gmail.mail("Old")
    gmail.of(thread)[0].at = at

    source.sync()

    assert source.items[thread].modified_at == at
    assert source.items[thread].metadata["date"] == at.isoformat()


def test_trash_spam_and_drafts_are_left_out(gmail: FakeGmail, source: Clocked):
    kept = gmail.mail("Kept")
    gmail.draft(kept, "Not sent yet.")
    gmail.mail("Win", labels=("SPAM",))
    gmail.trash(gmail.mail("Old"))
    gmail.mail("Idea", labels=("DRAFT",))

    source.sync()

    assert local(source) == remote(gmail)
    assert [item.title for item in source.items.values()] == ["Kept"]
    assert source.items[kept].metadata["messageCount"] == 1
    assert "Not sent yet" not in read(source, kept).text


def test_what_has_not_changed_costs_one_call_and_is_not_said(gmail: FakeGmail, source: Clocked):
    gmail.mail()
    source.sync()
    gmail.asked.clear()

    said = source.again()

    assert {type(change) for change in said} == {Checkpoint}
    assert len(gmail.asked) == 1


def test_a_new_mail_concerns_its_thread_alone(gmail: FakeGmail, source: Clocked):
    threads = [gmail.mail(f"Plan {n}") for n in range(5)]
    source.sync()
    before = local(source)
    gmail.reply(threads[2])
    new = gmail.mail("New")

    said = source.again()

    assert {item.id for item in only(said, Item)} == {threads[2], new}
    assert local(source) == remote(gmail)
    assert [id for id in before if before[id] != local(source)[id]] == [threads[2]]


def test_labels_are_metadata_only(gmail: FakeGmail, source: Clocked):
    thread = gmail.mail()
    source.sync()
    before = local(source)
    gmail.tag(thread, gmail.label("Important things"), "STARRED")
    gmail.untag(thread, "INBOX")

    source.again()

    assert local(source) == before
    assert labels(source) == {thread: {"Important things", "STARRED"}}


def test_reading_a_mail_is_no_change(gmail: FakeGmail, source: Clocked):
    thread = gmail.mail()
    source.sync()
    gmail.asked.clear()
    gmail.read(thread)

    said = source.again()

    assert only(said, Item) == []
    assert len(gmail.asked) == 1


def test_deleted_and_trashed_threads_go_and_restored_ones_come_back(
    gmail: FakeGmail, source: Clocked
):
    trashed, deleted, spam, kept = (gmail.mail(name) for name in ("a", "b", "c", "d"))
    source.sync()
    before = local(source)
    gmail.trash(trashed)
    gmail.delete(deleted)
    gmail.tag(spam, "SPAM")
    said = source.again()
    without = local(source)
    gmail.restore(trashed)

    source.again()

    assert {gone.id for gone in only(said, Gone)} == {trashed, deleted, spam}
    assert set(without) == {kept}
    assert local(source) == remote(gmail)
    assert local(source)[trashed] == before[trashed]


@pytest.mark.parametrize("how", ["trashed", "deleted"])
def test_one_mail_that_goes_makes_another_text(gmail: FakeGmail, source: Clocked, how: str):
    thread = gmail.mail("Plan", "One.")
    gone = gmail.reply(thread, "Secret.")
    gmail.reply(thread, "Three.")
    source.sync()
    before = local(source)
    if how == "trashed":
        gmail.trash_mail(gone)
    else:
        gmail.delete_mail(gone)

    source.again()

    assert local(source) == remote(gmail)
    assert local(source) != before
    assert source.items[thread].metadata["messageCount"] == 2
    assert "Secret" not in read(source, thread).text


def test_a_draft_that_is_sent_belongs_to_the_thread(gmail: FakeGmail, source: Clocked):
    thread = gmail.mail("Plan", "One.")
    source.sync()
    draft = gmail.draft(thread, "Two, not yet.")
    source.again()
    unsent = local(source)
    gmail.send(draft)

    source.again()

    assert unsent == {thread: version_of([gmail.of(thread)[0].id])}
    assert local(source) == remote(gmail)
    assert source.items[thread].metadata["messageCount"] == 2


def test_many_changes_are_followed_page_by_page(gmail: FakeGmail, source: Clocked):
    threads = [gmail.mail(f"Plan {n}") for n in range(30)]
    source.sync()
    for thread in threads:
        gmail.reply(thread)
        gmail.tag(thread, "STARRED")
    before = gets(gmail)

    said = source.again()

    assert local(source) == remote(gmail)
    # A thread that was looked at is not asked for again because of what was seen already.
    assert gets(gmail) - before == 30
    assert len(only(said, Checkpoint)) >= 10


# --- a history that Gmail forgot ---------------------------------------------------------------


def test_after_a_forgotten_history_what_changed_in_the_gap_is_found(
    gmail: FakeGmail, source: Clocked
):
    threads = [gmail.mail(f"Plan {n}") for n in range(20)]
    source.sync()
    before = local(source)
    gmail.delete(threads[4])
    gmail.trash(threads[5])
    gmail.reply(threads[6])
    gmail.tag(threads[7], "STARRED")
    new = gmail.mail("New")
    gmail.forget_history()
    asked = gets(gmail)

    source.again()

    assert local(source) == remote(gmail)
    assert {id for id in before if local(source).get(id) != before[id]} == set(threads[4:7])
    assert "STARRED" in labels(source)[threads[7]]
    assert new in source.items
    # Only what has another number is asked for.
    assert gets(gmail) - asked == 3


def test_a_forgotten_history_is_told(gmail: FakeGmail, source: Clocked):
    gmail.mail()
    source.sync()
    gmail.forget_history()

    with pytest.raises(CursorExpired):
        source.sync()


def test_what_gmail_says_of_the_mailbox_fails_no_thread(gmail: FakeGmail, source: Clocked):
    """It says so of good ones, too, for a while:
    github.com/googleapis/google-api-java-client-services/issues/15307"""
    thread = gmail.mail()
    source.sync()
    gmail.refuse("^GET .*/threads/", 400, "failedPrecondition", times=1)

    with pytest.raises(Transient, match="no mailbox"):
        read(source, thread)


def test_a_history_that_is_always_forgotten_is_no_endless_loop(gmail: FakeGmail, source: Clocked):
    """As that of a mailbox in which nothing has happened for weeks: github.com/gauteh/lieer issues
    203 and 301, github.com/LogicLabs-OU/OpenArchiver/issues/443"""
    gone, _ = gmail.mail(), gmail.mail()
    gmail.refuse("^GET .*/history", 404, "notFound", times=None)
    source.again()
    assert len(source.items) == 2
    assert source.cursor is not None
    assert source.cursor["listed"] is True
    gmail.trash(gone)

    source.again()
    source.again()

    assert local(source) == remote(gmail) != {}


def test_the_stored_cursor_moves(gmail: FakeGmail, source: Clocked):
    gmail.mail()
    source.sync()
    first = source.cursor
    gmail.mail()
    source.again()

    assert first is not None
    assert source.cursor is not None
    assert int(source.cursor["history"]) > int(first["history"])
    assert len(json.dumps(source.cursor)) < 500


@pytest.mark.parametrize(
    "cursor",
    [
        {},
        {"history": "1"},
        {"scope": "", "address": ME, "history": "x", "listed": True, "more": False},
        {"scope": "", "address": ME, "history": 7, "listed": True, "more": False},
        {"link": "https://example.com"},
        {
            "scope": "", "address": ME, "history": "1", "listed": True, "more": False,
            "listing": {"page": 3},
        },
    ],
    ids=["empty", "short", "letters", "number", "foreign", "listing"],
)  # fmt: skip
def test_an_unknown_cursor_means_listing_everything(
    gmail: FakeGmail, source: Clocked, cursor: Mapping[str, Any]
):
    gmail.mail()
    source.cursor = cursor

    source.sync()

    assert local(source) == remote(gmail)


# --- while it is listed ------------------------------------------------------------------------


def test_what_changes_while_everything_is_listed_is_not_lost(gmail: FakeGmail, source: Clocked):
    threads = [gmail.mail(f"Plan {n}") for n in range(30)]
    seen: list[str] = []

    def meddle(line: str) -> None:
        if "/threads?" in line:
            seen.append(line)
            match len(seen):
                case 2:
                    # From a later page to the first one, and from an earlier page away.
                    gmail.reply(threads[3])
                    gmail.delete(threads[28])
                case 3:
                    gmail.mail("New")
                    gmail.trash(threads[1])
                    gmail.tag(threads[29], "STARRED")
                case _:
                    pass

    gmail.before(meddle)
    source.sync()

    assert len(seen) >= 4
    assert local(source) == remote(gmail)
    assert "STARRED" in labels(source)[threads[29]]


def test_a_known_thread_that_moves_while_everything_is_listed_is_not_taken_as_gone(
    gmail: FakeGmail, source: Clocked
):
    threads = [gmail.mail(f"Plan {n}") for n in range(30)]
    source.sync()
    gmail.forget_history()
    seen: list[str] = []

    def meddle(line: str) -> None:
        if "/threads?" in line:
            seen.append(line)
            if len(seen) == 2:
                gmail.reply(threads[3])

    gmail.before(meddle)
    said = source.again()

    assert local(source) == remote(gmail)
    listed = next(at for at, change in enumerate(said) if isinstance(change, Listed))
    told = [at for at, change in enumerate(said) if getattr(change, "id", None) == threads[3]]
    assert told
    assert max(told) < listed


def stop_after(source: MemorySource, count: int) -> None:
    """The process dies after so many changes; only what stands before a checkpoint is stored."""
    batch: list[Change] = []
    for _, change in zip(range(count), CONNECTOR.changes(source, source.cursor), strict=False):
        batch.append(change)
        if isinstance(change, Checkpoint):
            for each in batch:
                source._apply(each, set())
            batch.clear()


def test_a_listing_that_was_interrupted_goes_on_where_it_was(gmail: FakeGmail, source: Clocked):
    for n in range(30):
        gmail.mail(f"Plan {n}")
    stop_after(source, 15)
    half, asked = len(source.items), lists(gmail)

    said = source.again()

    assert 0 < half < 20
    assert local(source) == remote(gmail)
    assert only(said, Listing) == []
    assert len(only(said, Listed)) == 1
    assert lists(gmail) - asked <= 4
    assert gets(gmail) <= 36


def test_a_listing_whose_page_is_forgotten_begins_anew_without_asking_again(
    gmail: FakeGmail, source: Clocked
):
    for n in range(30):
        gmail.mail(f"Plan {n}")
    stop_after(source, 15)
    gmail.forget_pages()

    said = source.again()

    assert local(source) == remote(gmail)
    assert len(only(said, Listing)) == 1
    assert gets(gmail) <= 36


@pytest.mark.parametrize("count", range(1, 30, 4))
def test_wherever_it_dies_the_next_sync_makes_it_good(
    gmail: FakeGmail, source: Clocked, count: int
):
    threads = [gmail.mail(f"Plan {n}") for n in range(12)]
    source.sync()
    gmail.forget_history()
    gmail.delete(threads[0])
    gmail.reply(threads[1])
    try:
        stop_after(source, count)
    except CursorExpired:
        source.cursor = None
        stop_after(source, count)
    gmail.reply(threads[2])

    source.again()

    assert local(source) == remote(gmail)


@pytest.mark.parametrize("what", ["threads", "history"])
def test_pages_in_a_circle_end_with_an_error(gmail: FakeGmail, source: Clocked, what: str):
    for n in range(20):
        gmail.mail(f"Plan {n}")
    source.sync()
    before = local(source)
    for n in range(20):
        gmail.mail(f"More {n}")
    if what == "threads":
        source.cursor = None
    gmail.cycles = what

    with pytest.raises(Transient, match="circle"):
        source.sync()

    assert before.items() <= local(source).items()


class Held(Clocked):
    """The end of the first listing is not acted on, as when the guard holds it."""

    held = 0

    def _apply(self, change: Change, missing_before: set[str]) -> None:
        if isinstance(change, Listed) and not self.held:
            self.held += 1
            self._seen.clear()
            return
        super()._apply(change, missing_before)


def test_a_listing_that_was_held_is_confirmed_by_another(
    gmail: FakeGmail, fetcher: Fetcher, sandbox: Sandbox
):
    threads = [gmail.mail(f"Plan {n}") for n in range(10)]
    source = Held(
        CONNECTOR,
        fetcher,
        sandbox,
        api_url=gmail.url,
        access=Token(TOKEN),
    )
    source.held = 1
    source.sync()
    source.held = 0
    for thread in threads[:8]:
        gmail.delete(thread)
    gmail.forget_history()
    source.again()
    held = set(source.items)
    said = source.again()

    assert held == set(threads)
    assert len(only(said, Listed)) == 1
    assert local(source) == remote(gmail)
    assert only(source.again(), Listing) == []


def test_an_empty_mailbox_is_empty(gmail: FakeGmail, source: Clocked):
    thread = gmail.mail()
    source.sync()
    gmail.delete(thread)
    gmail.forget_history()

    source.again()

    assert source.items == {}


def test_many_threads_are_said_with_checkpoints_in_between(gmail: FakeGmail, source: Clocked):
    for n in range(600):
        gmail.mail(f"Plan {n}")
    gmail.page_size = 300

    said = source.sync()
    gmail.forget_history()
    asked = gets(gmail)
    source.again()

    gaps = [0]
    for change in said:
        gaps = [*gaps, 0] if isinstance(change, Checkpoint) else [*gaps[:-1], gaps[-1] + 1]
    assert len(source.items) == 600
    assert max(gaps) <= 200
    assert len(json.dumps(source.cursor)) < 1000
    assert (asked, gets(gmail)) == (600, 600)
    assert lists(gmail) == 4


# --- documentLimit -----------------------------------------------------------------------------


def test_without_room_only_the_newest_are_asked_for(gmail: FakeGmail, source: Clocked):
    threads = [gmail.mail(f"Plan {n}") for n in range(20)]
    source.limit = 5

    source.sync()
    first = set(source.items)
    asked = gets(gmail)
    source.again()
    unchanged = gets(gmail)
    source.limit = 12
    source.again()
    raised = set(source.items)
    source.limit = 100
    source.again()

    assert first == set(threads[-5:])
    assert asked == unchanged == 5
    assert raised == set(threads[-12:])
    assert local(source) == remote(gmail)
    assert only(source.again(), Listing) == []


def test_a_document_less_lets_the_next_in(gmail: FakeGmail, source: Clocked):
    threads = [gmail.mail(f"Plan {n}") for n in range(10)]
    source.limit = 5
    source.sync()
    gmail.delete(threads[-1])
    source.again()

    source.again()

    assert set(source.items) == set(threads[4:9])


def test_what_the_filter_keeps_out_takes_no_room(gmail: FakeGmail, source: Clocked):
    threads = [gmail.mail(f"Plan {n}") for n in range(20)]
    source.limit = 15
    source.sync()

    assert set(source.items) == set(threads[5:])


# --- query and labels --------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["q", "labelIds"])
def test_only_what_is_asked_for_is_synced(gmail: FakeGmail, connect: Connect, by: str):
    project = gmail.label("project")
    inside = [gmail.mail(f"Plan {n}", labels=("INBOX", project)) for n in range(10)]
    outside = [gmail.mail(f"Other {n}") for n in range(10)]
    source = connect(**({"q": "label:project"} if by == "q" else {"labelIds": project}))

    source.sync()
    first = set(source.items)
    asked = gets(gmail)
    gmail.untag(inside[0], project)
    gmail.tag(outside[0], project)
    gmail.trash(inside[1])
    gmail.reply(inside[2])
    source.again()
    moved = set(source.items)
    gmail.asked.clear()
    source.again()

    assert first == set(inside)
    assert asked == 10
    assert moved == {outside[0], *inside[2:]}
    assert local(source)[inside[2]] == remote(gmail)[inside[2]]
    # What was new when the listing began was listed; nothing else happened since.
    assert gmail.count("/threads") == 0


def test_a_thread_in_scope_that_moves_while_listed_is_not_taken_as_gone(
    gmail: FakeGmail, connect: Connect
):
    threads = [gmail.mail(f"Plan {n}") for n in range(30)]
    source = connect(q="plan")
    source.sync()
    before = set(source.items)
    gmail.reply(threads[20])
    seen: list[str] = []

    def meddle(line: str) -> None:
        if "/threads?" in line:
            seen.append(line)
            if len(seen) == 2:
                gmail.reply(threads[3])

    gmail.before(meddle)
    source.again()
    during = set(source.items)
    source.again()

    assert before == during == set(threads)
    assert local(source) == remote(gmail)


def test_another_query_is_another_scope(gmail: FakeGmail, connect: Connect):
    plans = [gmail.mail(f"Plan {n}") for n in range(3)]
    others = [gmail.mail(f"Other {n}") for n in range(3)]
    source = connect(q="plan")
    source.sync()
    first = set(source.items)
    source.metadata = {"q": "other"}
    source.again()
    second = set(source.items)
    source.metadata = {}
    source.again()

    assert (first, second) == (set(plans), set(others))
    assert local(source) == remote(gmail)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({}, {}),
        ({"q": " newer_than:1y "}, {"q": "newer_than:1y"}),
        ({"labelIds": ["INBOX", "Label_1", "INBOX"]}, {"labelIds": "INBOX,Label_1"}),
        ({"labelIds": "INBOX, Label_1"}, {"labelIds": "INBOX,Label_1"}),
        (
            {"pubsubTopic": "projects/p-123/topics/m-1"},
            {"pubsubTopic": "projects/p-123/topics/m-1"},
        ),
        ({"other": 3}, {"other": 3}),
    ],
    ids=["none", "query", "list", "text", "topic", "foreign"],
)
def test_metadata_is_kept(fetcher: Fetcher, given: dict[str, Any], kept: dict[str, Any]):
    assert CONNECTOR.check(given, fetcher) == kept


@pytest.mark.parametrize(
    "metadata",
    [
        {"q": 3},
        {"q": "x" * 1001},
        {"q": "a\nb"},
        {"labelIds": 3},
        {"labelIds": ["INBOX", 3]},
        {"labelIds": "a b"},
        {"labelIds": ",".join(f"L{n}" for n in range(21))},
        {"pubsubTopic": "mail"},
        {"pubsubTopic": "projects/p-123/topics/m-1/x"},
        {"pubsubTopic": True},
    ],
    ids=["number", "long", "line", "labels", "label", "space", "many", "short", "deep", "bool"],
)
def test_metadata_is_checked(fetcher: Fetcher, metadata: dict[str, Any]):
    with pytest.raises(BadRequestError, match=next(iter(metadata))):
        CONNECTOR.check(metadata, fetcher)


# --- limits, refusals, bad days ----------------------------------------------------------------


def test_a_short_wait_is_waited(gmail: FakeGmail, source: Clocked):
    gmail.mail()
    gmail.refuse("/threads/", 429, "rateLimitExceeded", headers={"Retry-After": "2"})

    source.sync()

    assert source.pauses == [2.0]
    assert local(source) == remote(gmail)


@pytest.mark.parametrize(
    ("status", "reason"),
    [
        (403, "userRateLimitExceeded"),
        (403, "rateLimitExceeded"),
        (429, "RESOURCE_EXHAUSTED"),
        (429, "anything"),
    ],
)
def test_a_limit_without_a_time_is_tried_again_and_then_parks(
    gmail: FakeGmail, source: Clocked, status: int, reason: str
):
    gmail.mail()
    gmail.refuse("/threads/", status, reason, times=2)
    source.sync()
    pauses = len(source.pauses)
    gmail.mail()
    gmail.refuse("/threads/", status, reason, times=None)

    with pytest.raises(Transient) as caught:
        source.again()

    assert pauses == 2
    assert caught.value.code == "rate_limited"


def test_the_wait_that_gmail_hides_in_its_message_is_found():
    body = json.dumps(
        {
            "error": {
                "code": 429,
                "message": "User-rate limit exceeded.  Retry after 2026-01-01T00:10:00.000Z",
                "errors": [{"reason": "rateLimitExceeded"}],
            }
        }
    ).encode()
    headers = {"date": "Thu, 01 Jan 2026 00:00:00 GMT"}

    judged = CONNECTOR.judge(EndpointAnswer(429, headers, body))

    assert isinstance(judged, Transient)
    assert judged.after == timedelta(minutes=10)


def test_what_was_asked_for_before_the_limit_is_not_asked_for_again(
    gmail: FakeGmail, source: Clocked
):
    for n in range(30):
        gmail.mail(f"Plan {n}")
    gmail.page_size = 500
    gmail.budget = 1000

    with pytest.raises(Transient) as caught:
        stop_after(source, 1000)
    half = len(source.items)
    gmail.budget = None
    source.again()

    assert caught.value.code == "rate_limited"
    assert 20 <= half < 30
    assert local(source) == remote(gmail)
    assert gets(gmail) <= 33


def test_a_thread_that_is_forbidden_keeps_no_other_from_being_synced(
    gmail: FakeGmail, source: Clocked
):
    threads = [gmail.mail(f"Plan {n}") for n in range(5)]
    source.sync()
    before = local(source)
    for thread in threads:
        gmail.reply(thread)
    gmail.refuse(f"/threads/{threads[2]}", 403, "forbidden", times=None)

    [verdict] = only(source.again(), Verdict)

    assert (verdict.id, verdict.kind, verdict.failed) == (threads[2], "unreadable", True)
    assert "on purpose" in verdict.detail
    assert local(source) == {**remote(gmail), threads[2]: before[threads[2]]}


@pytest.mark.parametrize("how", ["asked", "a day later", "it changed"])
def test_a_new_thread_that_is_refused_once_is_tried_again(
    gmail: FakeGmail, source: Clocked, how: str
):
    source.sync()
    thread = gmail.mail("New")
    gmail.refuse(f"/threads/{thread}", 403, "forbidden")
    source.again()
    source.again()
    assert source.items == {}
    match how:
        case "asked":
            source.asked = True
        case "a day later":
            source.since += timedelta(days=1)
        case _:
            gmail.reply(thread)
    source.again()

    assert local(source) == remote(gmail)
    before = gets(gmail)
    source.again()
    assert gets(gmail) == before


def test_a_thread_that_fails_is_tried_again_with_the_next_sync(gmail: FakeGmail, source: Clocked):
    threads = [gmail.mail(f"Plan {n}") for n in range(5)]
    source.sync()
    new = gmail.mail("New")
    gmail.reply(threads[0])
    gmail.refuse(f"/threads/{new}", 500, times=3)

    [verdict] = only(source.again(), Verdict)
    without = set(source.items)
    source.again()

    assert (verdict.id, verdict.kind, verdict.failed) == (new, "unavailable", True)
    assert without == set(threads)
    assert local(source) == remote(gmail)
    assert only(source.again(), Item) == []


def test_threads_that_always_fail_keep_no_other_from_being_synced(
    gmail: FakeGmail, source: Clocked
):
    threads = [gmail.mail(f"Plan {n}") for n in range(10)]
    bad = threads[2:7]
    for thread in bad:
        gmail.refuse(f"/threads/{thread}", 500, times=None)
    source.again()
    assert set(source.items) == {*threads} - {*bad}
    new = gmail.mail("New")
    gmail.reply(threads[0])

    source.again()

    assert set(source.items) == {*threads, new} - {*bad}
    assert source.items[threads[0]].metadata["messageCount"] == 2
    gmail.behave()
    for _ in bad:
        source.again()
    assert local(source) == remote(gmail)


def test_when_everything_fails_it_is_gmail(gmail: FakeGmail, source: Clocked):
    gmail.mail("Before")  # an empty mailbox is listed once more
    source.sync()
    before = gets(gmail)
    for n in range(10):
        gmail.mail(f"Plan {n}")
    gmail.refuse("/threads/|/profile", 503, times=None)

    with pytest.raises(Transient) as caught:
        source.again()
    calls = gets(gmail) - before
    gmail.behave()
    source.again()

    assert caught.value.code == "provider_unavailable"
    assert calls == 9
    assert local(source) == remote(gmail)


@pytest.mark.parametrize("status", [500, 502, 503])
def test_passing_trouble_passes(gmail: FakeGmail, source: Clocked, status: int):
    gmail.mail()
    for what in ("profile", "threads\\?", "threads/", "history", "labels"):
        gmail.refuse(what, status, times=2)

    source.sync()

    assert local(source) == remote(gmail)


@pytest.mark.parametrize("what", ["profile", r"threads\?", "threads/", "history", "labels"])
@pytest.mark.parametrize("body", [b"{}", b"[]", b"null", b"<html>sign in</html>", b'{"thr'])
def test_an_answer_that_says_nothing_is_not_taken_for_an_empty_mailbox(
    gmail: FakeGmail, source: Clocked, what: str, body: bytes
):
    gmail.mail()
    source.sync()
    before = local(source)
    gmail.reply(next(iter(before)))
    source.cursor = None
    with Proxy(gmail.url) as proxy:
        source.api_url, source._api = proxy.url, None
        proxy.on(what, status=200, body=body, times=None)
        failed = None
        try:
            said = source.sync()
        except Transient as error:
            failed = error.code
        else:
            failed = only(said, Verdict)[0].kind

    assert failed in ("provider_unavailable", "unavailable")
    assert local(source) == before


@pytest.mark.parametrize("day", ["cut", "reset", "lose", "dribble"])
def test_broken_answers_are_asked_for_again(gmail: FakeGmail, source: Clocked, day: str):
    for n in range(3):
        gmail.mail(f"Plan {n}")
    with Proxy(gmail.url) as proxy:
        source.api_url = proxy.url
        fault: dict[str, Any] = {"dribble": (10, 0.001)} if day == "dribble" else {day: True}
        if day == "cut":
            fault = {"cut": 10}
        rules = [
            proxy.on(what, **fault)
            for what in ("profile", r"threads\?", "threads/", "history", "labels")
        ]
        source.sync()

    assert all(rule.hit.is_set() for rule in rules)
    assert local(source) == remote(gmail)


@pytest.mark.parametrize(
    ("status", "reason", "error", "code"),
    [
        (403, "insufficientPermissions", Reauthorize, "auth_expired"),
        (403, "accessNotConfigured", Permanent, "api_disabled"),
        (400, "failedPrecondition", Permanent, "no_mailbox"),
        (403, "domainPolicy", Permanent, "domain_policy"),
        (403, "dailyLimitExceeded", Transient, "rate_limited"),
    ],
)
@pytest.mark.parametrize("what", [r"threads\?", "threads/"])
def test_a_refusal_of_everything_ends_the_sync_and_deletes_nothing(
    gmail: FakeGmail,
    source: Clocked,
    what: str,
    status: int,
    reason: str,
    error: type[Exception],
    code: str | None,
):
    gmail.mail()
    source.sync()
    before = local(source)
    gmail.reply(next(iter(before)))
    source.cursor = None
    gmail.refuse(what, status, reason, times=None)

    with pytest.raises(error) as caught:
        source.sync()

    assert getattr(caught.value, "code", None) == code
    assert local(source) == before


def test_a_scope_that_was_not_granted_is_named(gmail: FakeGmail, source: Clocked):
    gmail.scopes[TOKEN] = {"openid", "email"}

    with pytest.raises(Reauthorize, match=r"gmail\.readonly"):
        source.sync()

    assert CONNECTOR.authorized({}) == (READ, "openid", "email")


def test_a_token_that_is_revoked_deletes_nothing(gmail: FakeGmail, source: Clocked):
    gmail.mail()
    source.sync()
    before = local(source)
    gmail.scopes.clear()

    with pytest.raises(Reauthorize):
        source.again()

    assert local(source) == before


def test_an_expired_token_is_refreshed_once(gmail: FakeGmail, source: Clocked):
    for n in range(3):
        gmail.mail(f"Plan {n}")
    gmail.scopes = {"token-2": gmail.scopes[TOKEN]}

    source.sync()

    assert source.access.refreshed == 1
    assert local(source) == remote(gmail)


# --- reading -----------------------------------------------------------------------------------


@pytest.fixture
def text_of(gmail: FakeGmail, source: Clocked) -> Callable[[str], str]:
    def text_of(thread: str) -> str:
        source.again()
        return read(source, thread).text

    return text_of


def test_a_thread_is_read_mail_by_mail(gmail: FakeGmail, source: Clocked):
    thread = gmail.mail("Plan", "Let us meet.\n\n-- \nAnn", files={"a.pdf": b"%PDF"})
    gmail.reply(thread, "Fine with me.", to="Ann <ann@example.com>")
    source.sync()

    extracted = read(source, thread)

    assert extracted.title == "Plan"
    assert extracted.warnings == []
    assert extracted.text == (
        "## Ann <ann@example.com>, 2026-01-01 00:01 UTC\n"
        "To: me@example.com\n"
        "Subject: Plan\n\n"
        "Let us meet.\n\n--\nAnn\n\n"
        "Attachments (1): a.pdf\n\n"
        "## Bob <bob@example.com>, 2026-01-01 00:02 UTC\n"
        "To: Ann <ann@example.com>\n"
        "Subject: Re: Plan\n\n"
        "Fine with me."
    )


def test_plain_text_is_read_rather_than_html(gmail: FakeGmail, text_of: Callable[[str], str]):
    thread = gmail.mail("Plan", "This is the plain text.", html="<p>This is the <b>HTML</b></p>")

    text = text_of(thread)

    assert "the plain text" in text
    assert "HTML" not in text


@pytest.mark.parametrize("plain", ["", "See HTML version"])
def test_html_is_read_whole_where_there_is_no_plain_text(
    gmail: FakeGmail, text_of: Callable[[str], str], plain: str
):
    html = "<h1>News</h1><nav>Contents</nav><ul><li>one<li>two</ul><footer>Our address</footer>"
    thread = gmail.mail("News", plain, html=html)

    text = text_of(thread)

    assert "# News" in text
    assert "- one\n- two" in text
    assert "Our address" in text
    assert "<" not in text.partition("Subject")[2]


CHARSETS = [
    ("Привет, как дела у тебя?", "windows-1251"),
    ("Привет, как дела у тебя?", "koi8-r"),
    ("日本語のメールです。よろしくお願いします。", "iso-2022-jp"),
    ("日本語のメールです。よろしくお願いします。", "shift_jis"),
    ("Grüße aus Köln für 5 €", "iso-8859-15"),
    ("朱镕基总理", "gb2312"),
    ("Grüße aus Köln", "utf-16"),
    ("Grüße aus Köln", "unknown-8bit"),
    ("Grüße aus Köln", "utf-8"),
    ("Grüße aus Köln", "punycode"),
    ("Grüße aus Köln", "base64"),
]


@pytest.mark.parametrize("normalises", [True, False], ids=["normalised", "raw"])
@pytest.mark.parametrize("kind", ["plain", "html"])
@pytest.mark.parametrize(("words", "charset"), CHARSETS, ids=[charset for _, charset in CHARSETS])
def test_every_charset_is_read(
    gmail: FakeGmail,
    text_of: Callable[[str], str],
    words: str,
    charset: str,
    kind: str,
    normalises: bool,
):
    written = "latin-1" if charset in ("unknown-8bit", "punycode", "base64") else charset
    written = "gb18030" if charset == "gb2312" else written
    body = words if kind == "plain" else f"<p>{words}</p>"
    gmail.normalises = normalises
    head = f"From: a@example.com\nSubject: x\nMIME-Version: 1.0\nContent-Type: text/{kind};"
    head += f' charset="{charset}"\nContent-Transfer-Encoding: base64\n\n'
    raw = head.encode() + base64.encodebytes(body.encode(written))

    assert words in text_of(gmail.mail(message=raw))


def test_heads_in_other_scripts_are_read(gmail: FakeGmail, source: Clocked):
    words = "=?utf-8?B?" + base64.b64encode("Grüße".encode()).decode() + "?="
    raw = f"From: {words} <a@example.com>\nSubject: =?x-unknown?Q?Gr=FC=DFe?= an alle\n\nHallo"
    thread = gmail.mail(message=raw.encode())
    source.sync()

    assert source.items[thread].metadata["from"] == "Grüße <a@example.com>"
    assert source.items[thread].title == "Grüße an alle"
    assert "## Grüße <a@example.com>" in read(source, thread).text


def test_large_bodies_come_by_themselves(gmail: FakeGmail, text_of: Callable[[str], str]):
    gmail.large = 1000
    thread = gmail.mail("Long", "\n".join(f"line {n}" for n in range(1000)))

    text = text_of(thread)

    assert "line 999" in text
    assert gmail.count("/attachments/") == 1


def nested(depth: int) -> EmailMessage:
    sender = f"L{depth} <l@example.com>"
    message = letter(f"Level {depth}", f"This is level {depth}.", sender=sender)
    if depth < 9:
        message.add_attachment(nested(depth + 1))
    return message


def test_mails_within_mails_are_read(gmail: FakeGmail, source: Clocked):
    thread = gmail.mail(message=nested(0))
    source.sync()

    extracted = read(source, thread)

    assert source.items[thread].metadata["attachmentCount"] == 1
    assert "### Attached mail\nFrom: L1 <l@example.com>" in extracted.text
    assert "This is level 4." in extracted.text
    assert "This is level 5." not in extracted.text
    assert extracted.warnings == ["Mails within mails were left out: they are nested too deeply."]


def test_a_mail_of_one_text_is_read_whatever_that_is_called(
    gmail: FakeGmail, text_of: Callable[[str], str]
):
    head = "From: a@example.com\nSubject: x\nMIME-Version: 1.0\nContent-Type: text/plain\n"
    named = 'Content-Disposition: inline; filename="body.txt"\n\n'

    raw = f"{head}{named}The pears are late.".encode()

    assert "The pears are late." in text_of(gmail.mail(message=raw))


def test_pictures_of_a_body_are_no_attachments(gmail: FakeGmail, source: Clocked):
    message = letter("Logo", "", html="<p>Hello there, all of you</p><img src='cid:logo'>")
    message.add_related(b"\x89PNG", "image", "png", cid="<logo>", filename="logo.png")
    message.add_attachment(b"\x89PNG", maintype="image", subtype="png", filename="photo.png")
    message.add_attachment("a;b", subtype="csv", filename="t.csv")
    thread = gmail.mail(message=message)
    source.sync()

    text = read(source, thread).text

    assert source.items[thread].metadata["attachmentNames"] == "photo.png, t.csv"
    assert "Hello there" in text
    assert text.endswith("Attachments (2): photo.png, t.csv")
    assert "a;b" not in text


def payload(**part: Any) -> dict[str, Any]:
    headers = [{"name": "Subject", "value": "Odd"}, {"name": "From", "value": "a@example.com"}]
    return {"mimeType": "text/plain", "headers": headers, **part}


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (payload(body={"data": "abcde"}), "could not be decoded"),
        (payload(body={"size": 3}), None),
        (payload(), None),
        (payload(mimeType="multipart/mixed"), None),
        (payload(mimeType="multipart/alternative", parts=[]), None),
        (payload(body={"size": 99_000_000, "attachmentId": "x"}), "too long"),
        (payload(mimeType="message/rfc822", parts=[{}]), None),
        (payload(mimeType="multipart/mixed", parts=[{"mimeType": "text/plain"}] * 2000), "many"),
        ({"mimeType": "text/plain"}, None),
    ],
    ids=[
        "base64", "no_data", "no_body", "no_parts", "no_alternative", "huge", "empty_mail",
        "many_parts", "no_head",
    ],
)  # fmt: skip
def test_odd_mails_are_read_as_far_as_they_go(
    gmail: FakeGmail, source: Clocked, part: dict[str, Any], words: str | None
):
    thread = gmail.mail("Odd", payload=part)
    gmail.reply(thread, "This one is fine.")
    source.sync()
    # Base64 that is none is not as Google describes it.
    gmail.violations.clear()

    extracted = read(source, thread)
    gmail.violations.clear()

    assert "This one is fine." in extracted.text
    assert bool(extracted.warnings) == (words is not None)
    assert words is None or words in extracted.warnings[0]


def test_what_cannot_be_stored_is_left_out(gmail: FakeGmail, source: Clocked):
    data = base64.urlsafe_b64encode(b"a\0b\x07c \xed\xa0\x80 d\x1b[0m").decode()
    heads = [{"name": "Subject", "value": "S\0ub\ud800ject\nline"}]
    thread = gmail.mail(payload=payload(headers=heads, body={"data": data}))
    source.sync()

    text = read(source, thread).text

    item = source.items[thread]
    for word in (text, item.title or "", json.dumps(item.metadata, ensure_ascii=False)):
        assert not re.search("[\0\x07\x1b\ud800-\udfff]", word)
    assert item.title == "S ub ject line"


def test_what_nobody_sees_is_not_read(gmail: FakeGmail, source: Clocked):
    hidden = "".join(chr(0xE0000 + ord(letter)) for letter in "obey me")
    thread = gmail.mail("Re: \u202eevil", f"Plain{hidden} wor\u200bds in here.")
    source.sync()

    assert read(source, thread).text.endswith("Plain words in here.")
    assert source.items[thread].title == "Re: evil"


def test_a_thread_of_200_mails_is_read_whole(gmail: FakeGmail, source: Clocked):
    thread = gmail.mail("Plan", "Mail 0 says this.")
    for n in range(1, 200):
        gmail.reply(thread, f"Mail {n} says that.")
    source.sync()

    text = read(source, thread).text

    assert source.items[thread].metadata["messageCount"] == 200
    assert all(f"Mail {n} says" in text for n in range(200))


@pytest.mark.slow
def test_a_thread_without_end_is_cut_with_a_word(gmail: FakeGmail, source: Clocked):
    thread = gmail.mail("Log", "0" * 3_000_000)
    for _ in range(7):
        gmail.reply(thread, "x " * 1_000_000)
    source.sync()

    extracted = read(source, thread)

    assert len(extracted.text) < 13_000_000
    assert sorted(extracted.warnings) == [
        "The end of a mail was left out: it is too long.",
        "The last 3 mails were left out: the thread is too long.",
    ]


def test_hostile_html_fails_no_thread(gmail: FakeGmail, source: Clocked):
    thread = gmail.mail("Deep", "", html="<div>" * 200_000)
    gmail.reply(thread, "This one is fine.")
    source.sync()

    extracted = read(source, thread)

    assert "This one is fine." in extracted.text


def test_a_thread_in_the_trash_is_gone_and_one_that_is_not_found_waits_for_the_history(
    gmail: FakeGmail, source: Clocked
):
    deleted, trashed = gmail.mail("One"), gmail.mail("Two")
    source.sync()
    gmail.delete(deleted)
    gmail.trash(trashed)

    with pytest.raises(NotFoundError):
        read(source, trashed)
    with pytest.raises(Transient, match="One: Gmail does not find it") as caught:
        read(source, deleted)
    assert caught.value.code == "provider_unavailable"
    source.again()
    assert source.items == {}


def test_a_thread_that_is_refused_is_named(gmail: FakeGmail, source: Clocked):
    thread = gmail.mail("Plan")
    source.sync()
    gmail.refuse("/threads/", 403, "forbidden")

    with pytest.raises(Permanent, match=r"^Plan: .*on purpose"):
        read(source, thread)


# --- quotes ------------------------------------------------------------------------------------

ASKED = "Can we move the meeting to Tuesday?\nIt would suit me better."
PLAIN_REPLIES = {
    "gmail": "Yes.\n\nOn Thu, Jan 1, 2026 at 10:00 AM Ann <ann@example.com> wrote:\n\n{q}",
    "broken": "Yes.\n\nOn Thu, Jan 1, 2026 at 10:00 AM Ann Lee\n<ann@example.com> wrote:\n{q}",
    "twice": "Yes.\n\nOn Thu,\nJan 1, 2026 at 10:00 AM Ann\n<ann@example.com> wrote:\n{q}",
    "german": "Yes.\n\nAm Do., 1. Jan. 2026 um 10:00 Uhr schrieb Ann <a@example.com>:\n\n{q}",
    "french": "Yes.\n\nLe jeu. 1 janv. 2026 à 10:00, Ann <a@example.com> a écrit :\n\n{q}",
    "spanish": "Yes.\n\nEl jue, 1 ene 2026 a las 10:00, Ann (<a@example.com>) escribió:\n\n{q}",
    "russian": "Yes.\n\nчт, 1 янв. 2026 г. в 10:00, Ann <a@example.com>:\n\n{q}",
    "chinese": "Yes.\n\nAnn <a@example.com> 于2026年1月1日周四 10:00写道：\n\n{q}",
    "short": "Yes.\n\nAnn wrote:\n{q}",
    "outlook": "Yes.\n\nFrom: Ann <ann@example.com>\nSent: Thursday, January 1, 2026 10:00\n"
    "To: Bob\nSubject: Plan\n\n{p}",
    "outlook_rule": "Yes.\n\n________________________________\nFrom: Ann\nSent: 1 January 2026\n"
    "To: Bob\nCc: Eve\nSubject: Plan\n\n{p}",
    "outlook_german": "Yes.\n\nVon: Ann\nGesendet: Donnerstag, 1. Januar 2026 10:00\nAn: Bob\n"
    "Betreff: Plan\n\n{p}",
    "outlook_stars": "Yes.\n\n*From:* Ann\n*Sent:* 1 January 2026\n*To:* Bob\n"
    "*Subject:* Plan\n\n{p}",
    "original": "Yes.\n\n-----Original Message-----\nFrom: Ann\n\n{p}",
    "original_german": "Yes.\n\n-----Ursprüngliche Nachricht-----\nVon: Ann\n\n{p}",
}  # fmt: skip


def quoted(text: str) -> str:
    return "\n".join(f"> {line}" for line in text.split("\n"))


@pytest.mark.parametrize("style", PLAIN_REPLIES)
def test_a_reply_says_only_what_is_its_own(style: str):
    reply = PLAIN_REPLIES[style].format(q=quoted(ASKED), p=ASKED)

    assert without_quotes(reply) == "Yes."


def test_answers_between_quotes_stay():
    reply = (
        "On Thu, Jan 1, 2026 at 10:00 AM Ann <ann@example.com> wrote:\n> Can we meet?\n\nYes.\n\n"
        "> On Tuesday?\n>\n> > Or not\n\nBetter on Monday.\n> Bye\n"
    )

    assert without_quotes(reply) == "Yes.\n\nBetter on Monday."


@pytest.mark.parametrize(
    "text",
    [
        "As a poet said:\n\n> Shall I compare thee\n> to a summer's day?\n\nNice.",
        ">>> print(1)\n1",
        "From: Berlin\nTo: Paris\nby train",
        "We disagree on these 3 points:\n> one\n> two",
        "The file is at 10:30:\nnothing quoted",
        "",
        "\n\n",
        "Sent: yes\nFrom: me",
    ],
    ids=["poem", "python", "trip", "points", "colon", "nothing", "blank", "other_order"],
)
def test_what_only_looks_like_a_quote_stays(text: str):
    assert without_quotes(text) == text.strip()


HTML_REPLIES = {
    "gmail": "<div>Yes, of course.</div><br><div class='gmail_quote gmail_quote_container'>"
    "<div class='gmail_attr'>On Thu Ann wrote:</div><blockquote><div>{q}</div></blockquote></div>",
    "apple": "<div>Yes, of course.</div><div><blockquote type=\"cite\"><div>On 1 Jan 2026, at"
    " 10:00, Ann wrote:</div><blockquote>{q}</blockquote></blockquote></div>",
    "thunderbird": "<p>Yes, of course.</p><div class=\"moz-cite-prefix\">On 1/1/26 Ann wrote:</div>"
    "<blockquote type=cite cite='mid:x'>{q}</blockquote>",
    "yahoo": "<div>Yes, of course.</div><div id='x' class='yahoo_quoted'><div>{q}</div></div>",
    "outlook": "<div>Yes, of course.</div><div id='appendonsend'></div><hr><div id='divRplyFwdMsg'>"
    "<b>From:</b> Ann<br><b>Sent:</b> Thursday, January 1, 2026<br><b>To:</b> Bob<br>"
    "<b>Subject:</b> Plan</div><div>{q}</div>",
    "plain_style": "<div>Yes, of course.</div><p>On Thu, Jan 1, 2026 Ann wrote:</p>"
    "<blockquote>{q}</blockquote>",
}  # fmt: skip


@pytest.mark.parametrize("style", HTML_REPLIES)
def test_a_reply_in_html_says_only_what_is_its_own(
    gmail: FakeGmail, text_of: Callable[[str], str], style: str
):
    thread = gmail.mail("Plan", ASKED)
    gmail.reply(thread, "", html=HTML_REPLIES[style].format(q=ASKED))

    text = text_of(thread)

    assert "Yes, of course." in text
    assert text.count("move the meeting") == 1
    assert text.endswith("Yes, of course.")


def test_answers_below_and_between_marked_quotes_stay():
    html = (
        "<div>above</div><blockquote type=cite><div>old<blockquote type='cite'>older</blockquote>"
        "</div></blockquote><p>between</p><DIV CLASS=gmail_quote>old<div>old</div></DIV>below"
    )

    assert without_quoted_markup(html) == "<div>above</div><p>between</p>below"


@given(st.lists(st.sampled_from(["> old", ">", "", "On 1/1/2026 Ann wrote:", "new", "From: x"])))
def test_nothing_is_made_up(lines: list[str]):
    left = iter(lines)

    assert all(line in left for line in without_quotes("\n".join(lines)).split("\n") if line)


@given(st.text(alphabet="<>/ divblockquotetype=cite'\"", max_size=300))
def test_markup_that_is_none_is_survived(html: str):
    assert len(without_quoted_markup(html)) <= len(html)


@pytest.mark.parametrize(
    "text",
    ["<div " * 200_000, "<div class=" * 100_000, "<blockquote type=cite>" * 50_000],
    ids=["tags", "classes", "quotes"],
)
def test_hostile_markup_takes_no_time(text: str):
    # A quadratic search would take hours.
    assert len(without_quoted_markup(text)) <= len(text)


@pytest.mark.parametrize(
    "text",
    [" " * 500_000 + "x", ">" * 500_000, "From: x\n" * 50_000, "a:\n>\n" * 50_000, "-" * 500_000],
    ids=["spaces", "quotes", "heads", "colons", "rules"],
)
def test_hostile_text_takes_no_time(text: str):
    assert len(without_quotes(text)) <= len(text)


def test_the_first_mail_keeps_what_it_quotes_and_so_do_forwards(
    gmail: FakeGmail, text_of: Callable[[str], str]
):
    quote = f"On Thu, Jan 1, 2026 at 10:00 AM Eve <eve@example.com> wrote:\n{quoted('Elsewhere.')}"
    thread = gmail.mail("Re: Plan", f"What about this?\n\n{quote}")
    gmail.mail("Fwd: Plan", f"See below, please.\n\n{quote}", thread=thread)
    gmail.reply(thread, f"I agree with that.\n\n{quote}")

    text = text_of(thread)

    assert text.count("> Elsewhere.") == 2
    assert text.endswith("I agree with that.")


def test_a_mail_that_is_nothing_but_a_quote_stays(gmail: FakeGmail, text_of: Callable[[str], str]):
    thread = gmail.mail("Plan", ASKED)
    gmail.reply(thread, f"On Thu, Jan 1, 2026 Ann wrote:\n{quoted('Answered in here.')}")

    assert "Answered in here." in text_of(thread)


def test_a_new_mail_in_a_long_thread_changes_only_the_tail(
    gmail: FakeGmail, source: Clocked, text_of: Callable[[str], str]
):
    lot = random.Random(1)
    said = [" ".join(f"word{lot.randint(0, 5000)}" for _ in range(150)) + "." for _ in range(41)]
    thread = gmail.mail("Plan", said[0])
    for earlier, words in itertools.pairwise(said[:-1]):
        quote = f"On Thu, Jan 1, 2026 at 10:00 AM Ann <a@example.com> wrote:\n{quoted(earlier)}"
        gmail.reply(thread, f"{words}\n\n{quote}")
    before = text_of(thread)
    quote = f"On Thu, Jan 1, 2026 at 10:00 AM Ann <a@example.com> wrote:\n{quoted(said[-2])}"
    gmail.reply(thread, f"{said[-1]}\n\n{quote}")

    after = text_of(thread)

    assert after.startswith(before)
    assert len(after) - len(before) < 1.2 * len(said[-1])
    known = {each.hash for each in chunk.split(before)}
    fresh = [each for each in chunk.split(after) if each.hash not in known]
    assert 1 <= len(fresh) <= 4


# --- watching and pushes -----------------------------------------------------------------------

TOPIC = "projects/recollect-test/topics/gmail"


def registration(id: str = "r1") -> Registration:
    url = f"https://recollect.example.com/v3/hooks/gmail?registration={id}"
    return Registration(id, ID, "mailbox", "secret", url)


def test_a_mailbox_is_watched_only_where_there_is_a_topic(connect: Connect):
    assert list(CONNECTOR.watches(connect())) == []
    assert list(CONNECTOR.watches(connect(pubsubTopic=TOPIC))) == ["mailbox"]


def test_a_watch_is_made_and_renewed_daily(gmail: FakeGmail, connect: Connect):
    gmail.topics[TOPIC] = {PUBLISHER}
    source = connect(pubsubTopic=TOPIC)

    made = CONNECTOR.subscribe(source, registration())
    renewed = CONNECTOR.subscribe(source, registration("r2"))
    CONNECTOR.unsubscribe(source.api, made)

    assert gmail.watch is not None
    assert (gmail.watch.topic, gmail.watch.labels) == (TOPIC, ["INBOX"])
    assert made.remote == {"historyId": str(gmail._number)}
    # Half of it is a day.
    assert made.expires_at == source.since + timedelta(days=2)
    assert renewed.expires_at == made.expires_at
    assert gmail.count("POST .*/stop") == 0


def test_a_watch_never_outlives_what_gmail_says(gmail: FakeGmail, connect: Connect):
    gmail.topics[TOPIC] = {PUBLISHER}
    source = connect(pubsubTopic=TOPIC)
    gmail.now = source.since - timedelta(days=6)

    made = CONNECTOR.subscribe(source, registration())

    assert made.expires_at == source.since + timedelta(days=1)


def test_a_topic_that_gmail_may_not_publish_to_is_told(gmail: FakeGmail, connect: Connect):
    with pytest.raises(Permanent, match=re.escape(PUBLISHER)) as caught:
        CONNECTOR.subscribe(connect(pubsubTopic=TOPIC), registration())

    assert caught.value.code == "no_watch"
    assert TOPIC in str(caught.value)


def test_a_limit_is_no_broken_topic(gmail: FakeGmail, connect: Connect):
    gmail.refuse("/watch", 403, "userRateLimitExceeded")

    with pytest.raises(Transient):
        CONNECTOR.subscribe(connect(pubsubTopic=TOPIC), registration())


AUDIENCE = "https://recollect.example.com/v3/hooks/gmail"
ACCOUNT = "push@recollect-test.iam.gserviceaccount.com"


@cache
def private() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


@cache
def foreign() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def public(key: rsa.RSAPrivateKey, kid: str) -> dict[str, Any]:
    told: dict[str, Any] = algorithms.RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
    return {**told, "kid": kid, "alg": "RS256", "use": "sig"}


@dataclass
class Certificates:
    """Google's keys, as they are now."""

    keys: list[dict[str, Any]] = field(default_factory=lambda: [public(private(), "one")])
    age: int = 3600
    fetched: int = 0
    fails: bool = False
    body: bytes | None = None

    def __call__(self) -> tuple[bytes, int]:
        self.fetched += 1
        if self.fails:
            raise Transient("no connection to Google")
        return self.body or json.dumps({"keys": self.keys}).encode(), self.age


def claims(**changed: Any) -> dict[str, Any]:
    now = int(datetime.now(UTC).timestamp())
    right = {
        "iss": "https://accounts.google.com",
        "aud": AUDIENCE,
        "email": ACCOUNT,
        "email_verified": True,
        "sub": "1",
        "iat": now,
        "exp": now + 3600,
        **changed,
    }
    return {name: value for name, value in right.items() if value is not None}


def signed(key: rsa.RSAPrivateKey | None = None, *, kid: str | None = "one", **changed: Any) -> str:
    headers = {"kid": kid} if kid is not None else {}
    return jwt.encode(claims(**changed), key or private(), algorithm="RS256", headers=headers)


def raw_token(head: dict[str, Any], signature: bytes = b"") -> str:
    parts = [json.dumps(head).encode(), json.dumps(claims()).encode(), signature]
    return ".".join(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts)


def with_public_key_as_secret() -> str:
    """The classic: an HMAC whose secret is the public key."""
    pem = (
        private()
        .public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
    head = {"alg": "HS256", "kid": "one", "typ": "JWT"}
    body = raw_token(head).rpartition(".")[0]
    mac = algorithms.HMACAlgorithm(algorithms.HMACAlgorithm.SHA256)
    signature = base64.urlsafe_b64encode(mac.sign(body.encode(), pem)).decode().rstrip("=")
    return f"{body}.{signature}"


def altered() -> str:
    head, _, signature = signed().split(".")
    body = json.dumps(claims(sub="2")).encode()
    return f"{head}.{base64.urlsafe_b64encode(body).decode().rstrip('=')}.{signature}"


HOUR = 3600
BEGAN = int(datetime.now(UTC).timestamp())
FORGERIES: dict[str, Callable[[], str]] = {
    "none": lambda: raw_token({"alg": "none", "kid": "one", "typ": "JWT"}),
    "None": lambda: raw_token({"alg": "None", "kid": "one"}),
    "hmac": with_public_key_as_secret,
    "other_key": lambda: signed(foreign()),
    "unknown_key": lambda: signed(foreign(), kid="two"),
    "no_key": lambda: signed(kid=None),
    "number_as_key": lambda: raw_token({"alg": "RS256", "kid": 1}, b"x"),
    "expired": lambda: signed(iat=BEGAN - 2 * HOUR, exp=BEGAN - HOUR),
    "from_tomorrow": lambda: signed(iat=BEGAN + 24 * HOUR, exp=BEGAN + 25 * HOUR),
    "not_yet": lambda: signed(nbf=BEGAN + 24 * HOUR),
    "no_expiry": lambda: signed(exp=None),
    "text_as_expiry": lambda: signed(exp=str(BEGAN + HOUR)),
    "yes_as_expiry": lambda: signed(exp=True),
    "no_issue_time": lambda: signed(iat=None),
    "other_audience": lambda: signed(aud="https://other.example.com"),
    "many_audiences": lambda: signed(aud=[AUDIENCE, "https://other.example.com"]),
    "no_audience": lambda: signed(aud=None),
    "other_issuer": lambda: signed(iss="https://accounts.google.com.evil.example"),
    "no_issuer": lambda: signed(iss=None),
    "other_account": lambda: signed(email="push@evil.iam.gserviceaccount.com"),
    "no_account": lambda: signed(email=None),
    "unverified": lambda: signed(email_verified=False),
    "verified_in_words": lambda: signed(email_verified="true"),
    "altered": altered,
    "unsigned": lambda: signed().rpartition(".")[0] + ".",
    "garbage": lambda: "x.y.z",
    "empty": lambda: "",
    "long": lambda: "." * 100_000,
    "deep": lambda: base64.urlsafe_b64encode(b"[" * 50_000).decode() + ".e30.x",
    "accents": lambda: "é.ü.ß",
    "surrogates": lambda: "\ud800.\ud800.\ud800",
}


def config(certificates: Certificates | None = None, **changed: Any) -> dict[str, Any]:
    keys = Keys(certificates or Certificates())
    return {"audience": AUDIENCE, "service_account": ACCOUNT, "keys": keys, **changed}


def push(token: str | None, told: Mapping[str, Any] | None = None, **changed: Any) -> Push:
    body = json.dumps(envelope("Me@Example.com", 9876, "m-1") if told is None else told).encode()
    headers = {} if token is None else {"authorization": f"Bearer {token}"}
    return Push(headers, {}, body, None, config=config(**changed))


def test_a_push_that_google_signed_concerns_its_mailbox():
    notice = CONNECTOR.receive(push(signed()))

    assert (notice.status, notice.addresses, notice.key) == (200, ["Me@Example.com"], "m-1")


@pytest.mark.parametrize("issuer", ["accounts.google.com", "https://accounts.google.com"])
def test_both_names_of_google_are_taken(issuer: str):
    assert CONNECTOR.receive(push(signed(iss=issuer))).status == 200


def test_clocks_may_differ_a_little():
    for shift in (-50, 50):
        token = signed(iat=BEGAN + max(0, shift), exp=BEGAN + (HOUR if shift > 0 else 0) + shift)
        at = datetime.fromtimestamp(BEGAN, UTC)
        assert verify(
            token, audience=AUDIENCE, service_account=ACCOUNT, keys=Keys(Certificates()), now=at
        )


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_push_is_refused(forgery: str):
    notice = CONNECTOR.receive(push(FORGERIES[forgery]()))

    assert (notice.status, notice.addresses, notice.key) == (401, (), None)


@pytest.mark.parametrize(
    "headers",
    [{}, {"authorization": ""}, {"authorization": "Bearer"}, {"authorization": "Basic x"}],
    ids=["none", "empty", "bare", "basic"],
)
def test_a_push_without_a_proof_is_refused(headers: dict[str, str]):
    made = Push(headers, {}, b"{}", None, config=config())

    assert CONNECTOR.receive(made).status == 401


@pytest.mark.parametrize("missing", ["audience", "service_account", "keys"])
def test_without_settings_nothing_is_taken(missing: str):
    made = push(signed(), **{missing: None})

    assert CONNECTOR.receive(made).status == 401


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"message": 3}',
        b'{"message": {"data": "!!!", "messageId": 3}}',
        b'{"message": {"data": "W10="}}',
        b'{"message": {"data": "eyJlbWFpbEFkZHJlc3MiOiAzfQ=="}}',
        b"[" * 100_000,
    ],
    ids=["none", "list", "empty", "number", "garbage", "no_object", "no_address", "deep"],
)
def test_an_authentic_push_that_says_nothing_is_acknowledged(body: bytes):
    made = Push({"authorization": f"Bearer {signed()}"}, {}, body, None, config=config())

    notice = CONNECTOR.receive(made)

    assert (notice.status, list(notice.addresses), notice.key) == (200, [], None)


def test_a_mail_comes_as_a_push_and_is_found(gmail: FakeGmail, connect: Connect):
    gmail.topics[TOPIC] = {PUBLISHER}
    source = connect(pubsubTopic=TOPIC)
    source.sync()
    CONNECTOR.subscribe(source, registration())
    thread = gmail.mail("Urgent")

    notices = [CONNECTOR.receive(push(signed(), told)) for told in gmail.published]
    source.sync()

    assert [notice.addresses for notice in notices] == [[ME]]
    assert notices[0].key
    assert thread in source.items


# --- Google's keys -----------------------------------------------------------------------------


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_keys_are_kept_as_long_as_google_says():
    certificates, clock = Certificates(age=600), Clock()
    keys = Keys(certificates, clock=clock)
    for _ in range(5):
        assert keys("one") is not None
    early = certificates.fetched
    clock.now += 599
    keys("one")
    kept = certificates.fetched
    clock.now += 2
    keys("one")

    assert (early, kept, certificates.fetched) == (1, 1, 2)


def test_new_keys_are_found_and_old_ones_forgotten():
    certificates, clock = Certificates(), Clock()
    keys = Keys(certificates, clock=clock)
    keys("one")
    certificates.keys = [public(foreign(), "two")]
    clock.now += 61

    assert keys("two") is not None
    assert keys("one") is None


def test_made_up_names_do_not_make_us_ask_google_all_the_time():
    certificates, clock = Certificates(), Clock()
    keys = Keys(certificates, clock=clock)
    for n in range(1000):
        clock.now += 0.1
        assert keys(f"made-up-{n}") is None

    assert certificates.fetched == 2


def test_while_google_fails_the_old_keys_serve():
    certificates, clock = Certificates(age=600), Clock()
    keys = Keys(certificates, clock=clock)
    keys("one")
    certificates.fails = True
    clock.now += 700
    during = keys("one")
    certificates.fails, certificates.body = False, b"<html>"
    clock.now += 700
    after = keys("one")

    assert during is not None
    assert after is not None
    assert certificates.fetched == 3


@pytest.mark.parametrize(
    "entry",
    [
        3,
        {"kid": "one"},
        {"kid": "one", "kty": "oct", "k": "c2VjcmV0"},
        {"kid": "one", "kty": "RSA"},
        {"kid": "one", "kty": "RSA", "n": "!", "e": "AQAB"},
        lambda: public(private(), "x") | {"kid": 1},
    ],
    ids=["number", "bare", "secret", "no_numbers", "bad_numbers", "no_name"],
)
def test_keys_that_are_none_are_passed_over(entry: Any):
    made: Any = entry() if callable(entry) else entry
    certificates = Certificates(keys=[made, public(foreign(), "two")])
    keys = Keys(certificates, clock=Clock())

    assert keys("one") is None
    assert keys("two") is not None


def test_many_threads_cause_one_fetch():
    certificates = Certificates()
    keys: FindKey = Keys(certificates)
    start = threading.Barrier(8, timeout=60)
    found: list[Any] = []

    def ask() -> None:
        start.wait()
        found.append(keys("one"))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

    assert len(found) == 8
    assert None not in found
    assert certificates.fetched == 1


# --- who authorized ----------------------------------------------------------------------------


def test_who_authorized_is_told_by_the_id_token(gmail: FakeGmail, source: Clocked):
    told = jwt.encode({"sub": "12345", "email": ME}, "x" * 32, algorithm="HS256")

    account = CONNECTOR.identify(source.api, Tokens("unused", extra={"id_token": told}))

    assert (account.id, account.name) == ("12345", ME)
    assert gmail.asked == []


# --- long runs ---------------------------------------------------------------------------------


class Chance:
    """A user who does one thing after another, by lot."""

    def __init__(self, seed: int, gmail: FakeGmail) -> None:
        self.lot = random.Random(seed)
        self.gmail = gmail
        self.number = 0
        self.names = [gmail.label(name) for name in ("work", "home", "later")]

    def act(self) -> None:
        self.number += 1
        gmail, lot = self.gmail, self.lot
        threads = sorted({mail.thread for mail in gmail.mails.values()})
        if not threads:
            gmail.mail(f"Subject {self.number}")
            return
        thread = lot.choice(threads)
        match lot.choices(
            [
                "mail",
                "reply",
                "tag",
                "untag",
                "trash",
                "restore",
                "delete",
                "one",
                "draft",
                "forget",
            ],
            [25, 20, 12, 6, 10, 8, 6, 6, 5, 2],
        )[0]:
            case "reply":
                gmail.reply(thread, f"Answer {self.number}")
            case "tag":
                gmail.tag(thread, lot.choice([*self.names, "STARRED", "UNREAD"]))
            case "untag":
                gmail.untag(thread, lot.choice([*self.names, "UNREAD", "INBOX"]))
            case "trash":
                gmail.trash(thread)
            case "restore":
                gmail.restore(thread)
            case "delete":
                gmail.delete(thread)
            case "one":
                mail = lot.choice(gmail.of(thread)).id
                lot.choice([gmail.trash_mail, gmail.delete_mail])(mail)
            case "draft":
                mail = gmail.draft(thread, f"Draft {self.number}")
                if lot.random() < 0.5:
                    gmail.send(mail)
            case "forget":
                gmail.forget_history()
            case _:
                gmail.mail(f"Subject {self.number}", labels=("INBOX", lot.choice(self.names)))


def test_a_thread_that_is_not_found_once_stays(gmail: FakeGmail, source: Clocked):
    known, starred = gmail.mail("Known"), gmail.mail("Starred")
    source.sync()
    gmail.tag(starred, "STARRED")
    new = gmail.mail("New")
    for thread in (starred, new):
        gmail.refuse(f"^GET .*/threads/{thread}", 404, "notFound")

    heard = source.again()

    assert [change for change in heard if isinstance(change, Gone)] == []
    [last] = [change for change in heard if isinstance(change, Checkpoint)][-1:]
    assert last.again == timedelta(minutes=1)
    assert source.items.keys() == {known, starred}
    source.again()
    assert source.items.keys() == {known, starred, new}
    assert "STARRED" in labels(source)[starred]
    gmail.delete(starred)
    source.again()
    assert source.items.keys() == {known, new}


def test_a_thread_that_lost_a_mail_and_is_not_found_once_comes_back(
    gmail: FakeGmail, source: Clocked
):
    thread = gmail.mail("Plan", "first")
    gmail.mail("Plan", "second", thread=thread)
    source.sync()
    gmail.delete_mail(gmail.of(thread)[0].id)
    gmail.refuse(f"^GET .*/threads/{thread}", 404, "notFound")
    source.again()

    source.again()

    assert source.items.keys() == {thread}
    gmail.delete(thread)
    source.again()
    assert source.items == {}
    source.again()
    asked = gmail.count(f"/threads/{thread}")
    source.again()
    assert gmail.count(f"/threads/{thread}") == asked


def test_a_thread_that_waits_goes_on_waiting_while_labels_cannot_be_read(
    gmail: FakeGmail, source: Clocked
):
    thread = gmail.mail("Plan")
    source.sync()
    gmail.tag(thread, "STARRED")
    gmail.refuse(f"^GET .*/threads/{thread}", 500, times=3)
    source.again()
    gmail.refuse("^GET .*/labels", 500, times=3)
    with pytest.raises(Transient):
        source.again()

    source.again()

    assert "STARRED" in labels(source)[thread]


@pytest.mark.parametrize(
    ("seed", "operations"),
    [(1, 200), *(pytest.param(*one, marks=pytest.mark.slow) for one in ((2, 200), (3, 1000)))],
)
def test_after_many_operations_with_faults_nothing_diverges(
    gmail: FakeGmail, source: Clocked, seed: int, operations: int
):
    """Faults in every tenth call, and every fifth sync is killed somewhere."""
    for n in range(10):
        gmail.mail(f"First {n}")
    user, moods = Chance(seed, gmail), random.Random(seed)
    gmail.moody(moods)
    whole = failed = killed = 0
    for operation in range(operations):
        user.act()
        if operation % 3:
            continue
        try:
            if moods.random() < 0.2:
                stop_after(source, moods.randint(1, 30))
                killed += 1
            else:
                source.again()
                whole += 1
        except CursorExpired:
            source.cursor = None
        except Transient:
            failed += 1
    gmail.behave()

    source.again()
    source.again()  # what was not found once, and nothing else tells that it is gone

    assert local(source) == remote(gmail)
    expected = {id: document.labels for id, document in gmail.documents().items()}
    assert labels(source) == expected
    titles = {id: document.subject for id, document in gmail.documents().items()}
    assert {id: item.title for id, item in source.items.items()} == titles
    assert source.rows.keys() == source.items.keys()
    assert min(whole, killed) > 5
    assert failed > 0
    assert only(source.again(), Item) == []


# --- judges that are not ours ------------------------------------------------------------------


def test_the_official_client_walks_the_fake(gmail: FakeGmail):
    gmail.topics[TOPIC] = {PUBLISHER}
    gmail.large = 50
    threads = [gmail.mail(f"Plan {n}", "x " * 100, files={"a.pdf": b"%PDF"}) for n in range(12)]
    service: Any = build(
        "gmail",
        "v1",
        credentials=Credentials(TOKEN),
        client_options={"api_endpoint": gmail.url},
        static_discovery=True,
        cache_discovery=False,
    )
    users = service.users()
    profile = users.getProfile(userId="me").execute()
    found: list[str] = []
    request = users.threads().list(userId="me", maxResults=5)
    while request is not None:
        answer = request.execute()
        found += [thread["id"] for thread in answer.get("threads", [])]
        request = users.threads().list_next(request, answer)
    whole = users.threads().get(userId="me", id=threads[0]).execute()
    heads = users.threads().get(
        userId="me", id=threads[0], format="metadata", metadataHeaders=["Subject"]
    )
    head = heads.execute()["messages"][0]["payload"]
    gmail.reply(threads[0])
    gmail.tag(threads[1], "STARRED")
    gmail.delete(threads[2])
    news = users.history().list(userId="me", startHistoryId=profile["historyId"]).execute()
    body = whole["messages"][0]["payload"]["parts"][0]["body"]
    large = users.messages().attachments()
    data = large.get(
        userId="me", messageId=whole["messages"][0]["id"], id=body["attachmentId"]
    ).execute()
    watch = {"topicName": TOPIC, "labelIds": ["INBOX"], "labelFilterBehavior": "include"}
    watched = users.watch(userId="me", body=watch).execute()
    names = users.labels().list(userId="me").execute()
    service.close()

    assert profile["emailAddress"] == ME
    assert set(found) == set(threads)
    assert [part["mimeType"] for part in walk(whole["messages"][0]["payload"])] == [
        "multipart/mixed", "text/plain", "application/pdf",
    ]  # fmt: skip
    assert "parts" not in head
    kinds = {kind for record in news["history"] for kind in record} - {"id", "messages"}
    assert kinds == {"messagesAdded", "labelsAdded", "messagesDeleted"}
    assert base64.urlsafe_b64decode(data["data"]).startswith(b"x x x")
    assert int(watched["expiration"]) > 0
    assert {"id": "INBOX", "name": "INBOX", "type": "system"} in names["labels"]


def test_the_judge_of_the_fake_judges():
    ask = contract().check_request

    assert ask("GET", "/gmail/v1/users/me/threads?maxResults=5", b"") == []
    assert ask("GET", "/gmail/v1/users/me/threads?pageSize=5", b"")
    assert ask("GET", "/gmail/v1/users/me/threads/1?format=raw", b"")
    assert ask("GET", "/gmail/v1/users/me/threads/1?fields=mails(id)", b"")
    assert ask("POST", "/gmail/v1/users/me/watch", b'{"topic": "x"}')


# --- a peer that is not ours -------------------------------------------------------------------

PEER = "ann@example.com"
SEED: Mapping[str, Any] = {
    "tokens": {"ann-token": {"login": PEER, "scopes": [READ]}},
    "google": {
        # An unknown bearer is the first user.
        "users": [{"email": "aa-decoy@example.com"}, {"email": PEER, "name": "Ann"}],
        "messages": [
            {
                "user_email": "aa-decoy@example.com",
                "subject": "Decoy",
                "body_text": "Nobody may see this.",
                "from": "x@example.com",
                "to": "aa-decoy@example.com",
            }
        ],
    },
}


@pytest.fixture(scope="module")
def emulated() -> Generator[Proxy]:
    with behind_proxy("google", SEED) as proxy:
        proxy.strict = True
        proxy.admit("ann-token")
        yield proxy


class Peer:
    """A mailbox by somebody else, as its owner uses it."""

    def __init__(self, proxy: Proxy, client: httpx.Client) -> None:
        self.proxy = proxy
        self.client = client

    def mail(self, subject: str, body: str, thread: str | None = None) -> tuple[str, str]:
        """Ids of the mail and of its thread."""
        raw = base64.urlsafe_b64encode(letter(subject, body, to=PEER).as_bytes()).decode()
        asked = {"raw": raw, "labelIds": ["INBOX", "UNREAD"]}
        made = self.post("messages/import", asked | ({"threadId": thread} if thread else {}))
        return made["id"], made["threadId"]

    def post(self, path: str, body: object = None) -> Any:
        answer = self.client.post(path, json=body or {})
        answer.raise_for_status()
        return answer.json()

    def delete(self, path: str) -> None:
        self.client.delete(path).raise_for_status()


@pytest.fixture
def peer(emulated: Proxy) -> Generator[Peer]:
    """It has no profile, so the proxy tells one, with the number that a watch tells."""
    emulated.behave()
    base = f"{emulated.url}/gmail/v1/users/me/"
    headers = {"Authorization": "Bearer ann-token"}
    with httpx.Client(base_url=base, headers=headers, timeout=30) as client:
        made = Peer(emulated, client)
        for thread in client.get("threads?maxResults=500").json().get("threads", []):
            made.delete(f"threads/{thread['id']}")
        made.mail("First", "So that there is a history.")
        watch = made.post("watch", {"topicName": TOPIC, "labelIds": ["INBOX"]})
        profile = {"emailAddress": PEER, "historyId": watch["historyId"]}
        emulated.on("GET .*/profile", status=200, json_body=profile, times=None)
        yield made


@pytest.fixture
def peers(emulated: Proxy, fetcher: Fetcher, sandbox: Sandbox) -> Clocked:
    return Clocked(
        CONNECTOR, fetcher, sandbox, api_url=emulated.url, access=Token("ann-token"), since=NOW
    )


def titles(source: MemorySource) -> list[str]:
    return sorted(item.title or "" for item in source.items.values())


def test_a_peer_of_others_is_followed(peer: Peer, peers: Clocked):
    _, plan = peer.mail("Plan", "Let us meet on Monday, please.")
    _, other = peer.mail("Other", "Nothing of importance in here.")
    peers.sync()
    first, before = titles(peers), local(peers)
    text = read(peers, plan).text
    peer.mail("Re: Plan", "Monday is fine with me, thanks.", thread=plan)
    peer.post(f"threads/{other}/modify", {"addLabelIds": ["STARRED"]})
    peers.again()
    after, later = local(peers), read(peers, plan).text
    starred = labels(peers)[other]
    peer.post(f"threads/{plan}/trash")
    peers.again()
    trashed = titles(peers)
    peer.post(f"threads/{plan}/untrash")
    peer.delete(f"threads/{other}")
    peers.again()

    assert first == ["First", "Other", "Plan"]
    assert "Nobody may see this" not in text
    assert later.startswith(text)
    assert "Monday is fine" in later
    assert before[plan] != after[plan]
    assert (before[other], "STARRED" in starred) == (after[other], True)
    assert trashed == ["First", "Other"]
    assert titles(peers) == ["First", "Plan"]
    assert local(peers)[plan] == after[plan]


BAD_DAYS: Mapping[str, Mapping[str, Any]] = {
    "busy": {"status": 429, "headers": {"Retry-After": "2"}},
    "limit": {
        "status": 403,
        "json_body": {"error": {"code": 403, "errors": [{"reason": "userRateLimitExceeded"}]}},
    },
    "error": {"status": 500, "times": 2},
    "bad_gateway": {"status": 502, "body": b"<html>"},
    "unavailable": {"status": 503, "headers": {"Retry-After": "1"}},
    "cut": {"cut": 10},
    "reset": {"reset": True},
    "lost": {"lose": True},
    "dribbled": {"dribble": (20, 0.001)},
}


@pytest.mark.parametrize("day", BAD_DAYS)
def test_a_bad_day_of_the_peer_is_survived(peer: Peer, peers: Clocked, day: str):
    peer.mail(day, "Let us meet on Monday, please.")
    calls = [r"^GET .*/threads\?", "^GET .*/threads/", "^GET .*/history", "^GET .*/labels"]
    rules = [peer.proxy.on(call, **BAD_DAYS[day]) for call in calls]

    peers.sync()

    assert titles(peers) == sorted(["First", day])
    assert all(rule.hit.is_set() for rule in rules)


def test_a_token_that_the_peer_takes_away_deletes_nothing(peer: Peer, peers: Clocked):
    peers.sync()
    before = local(peers)
    peer.proxy.expire()
    try:
        with pytest.raises(Reauthorize):
            peers.again()
    finally:
        peer.proxy.admit("ann-token")

    assert before
    assert local(peers) == before


def test_a_history_that_the_peer_forgot_is_made_good(peer: Peer, peers: Clocked):
    _, plan = peer.mail("Plan", "Let us meet on Monday, please.")
    peers.sync()
    before = local(peers)
    peer.delete(f"threads/{plan}")
    peer.mail("New", "Something that is new to all.")
    gone = {"error": {"code": 404, "message": "Requested entity was not found."}}
    peer.proxy.on("GET .*/history", status=404, json_body=gone)

    peers.again()

    assert titles(peers) == ["First", "New"]
    kept = [id for id in before if id != plan]
    assert [local(peers)[id] for id in kept] == [before[id] for id in kept]
