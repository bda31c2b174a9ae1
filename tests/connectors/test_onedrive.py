"""The OneDrive connector against a stateful fake that Microsoft's types judge, and `emulate`."""

import base64
import hashlib
import json
import random
import re
import shutil
import subprocess
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx
import pytest
from jsonschema import Draft7Validator

from recollect import documents
from recollect.app import App
from recollect.config import ProviderSettings
from recollect.connectors import api, oauth
from recollect.connectors.base import (
    Change,
    Checkpoint,
    Gone,
    Item,
    Listed,
    Missing,
    Trouble,
    Verdict,
)
from recollect.connectors.oauth import OAuthClient, Tokens
from recollect.connectors.onedrive import OneDrive
from recollect.connectors.pushes import FORGED, Push, Registration
from recollect.db import Database
from recollect.documents import DocumentQuery
from recollect.errors import (
    BadRequestError,
    CursorExpired,
    NotFoundError,
    Permanent,
    Reauthorize,
    Transient,
)
from recollect.extract import Sandbox
from recollect.fetch import Endpoint, EndpointAnswer, Fetcher
from recollect.model import Blob, Connection, ConnectionId, Document, Tenant, random_id
from recollect.sync import authorizations, connections
from recollect.sync.connections import SealedConnection
from recollect.sync.credentials import seal_tokens
from recollect.worker import syncs
from recollect.worker.processing import drain
from tests.conftest import LOOPBACK
from tests.connectors.memory import ID, NOW, MemorySource, Token
from tests.fakes.embedder import WordEmbedder
from tests.fakes.emulate import behind_proxy, installed
from tests.fakes.graph import Drive, FakeGraph, Thing, User
from tests.fakes.graph_contract import Sdk, get_sdk, keys_of
from tests.fakes.proxy import Proxy
from tests.fakes.website import Exchange, Request, Website, answer

CONNECTOR = OneDrive()
TYPES = Path(__file__).parent.parent / "emulators" / "graph-types"
Connect = Callable[..., MemorySource]


@pytest.fixture(scope="module")
def sandbox() -> Generator[Sandbox]:
    with Sandbox(workers=1) as made:
        yield made


@pytest.fixture(scope="module")
def fetcher() -> Generator[Fetcher]:
    with Fetcher(user_agent="RecollectBot/test", allow_networks=[LOOPBACK]) as made:
        yield made


@pytest.fixture
def graph() -> Generator[FakeGraph]:
    with FakeGraph() as made:
        yield made


@pytest.fixture(params=["business", "personal"])
def user(request: pytest.FixtureRequest, graph: FakeGraph) -> User:
    return graph.user("ann", kind=request.param)


@pytest.fixture
def ann(graph: FakeGraph) -> User:
    return graph.user("ann")


@pytest.fixture
def connect(graph: FakeGraph, fetcher: Fetcher, sandbox: Sandbox) -> Connect:
    def connect(user: User, url: str | None = None, **metadata: Any) -> MemorySource:
        return MemorySource(
            connector=CONNECTOR,
            fetcher=fetcher,
            sandbox=sandbox,
            metadata=CONNECTOR.check(metadata, fetcher),
            api_url=url or graph.url,
            access=Token(user.token),
        )

    return connect


def local(source: MemorySource) -> dict[str, tuple[str, str, str]]:
    """Id → title, path and version of what the connection has as documents."""
    return {
        id: (item.title or "", str(item.metadata["path"]), item.version)
        for id, item in source.items.items()
    }


def remote(drive: Drive, below: Thing | None = None) -> dict[str, tuple[str, str, str]]:
    """The same as it should be."""
    return {
        id: (thing.name, thing.path, version(thing)) for id, thing in drive.files(below).items()
    }


def version(thing: Thing) -> str:
    data = thing.content or b""
    return f"{base64.b64encode(hashlib.sha1(data).digest()).decode()} {len(data)}"


def only(changes: list[Change], kind: type[Any]) -> list[Any]:
    return [change for change in changes if isinstance(change, kind)]


def follow(source: MemorySource) -> None:
    """A sync, and another from the start where the product would begin one."""
    try:
        source.sync()
    except CursorExpired:
        source.cursor = None
        source.sync()


# --- listing and following ---------------------------------------------------------------------


def test_everything_is_listed_wherever_it_is(graph: FakeGraph, user: User, connect: Connect):
    drive = user.drive
    docs = drive.folder("Docs")
    deep = drive.folder("Über uns #1", into=docs)
    drive.file("root.txt")
    drive.file("a.docx", into=docs)
    drive.file("b c.pdf", into=deep)
    drive.folder("empty")
    graph.page = 2
    source = connect(user)

    source.sync()

    assert local(source) == remote(drive)
    assert {path for _, path, _ in local(source).values()} == {
        "root.txt",
        "Docs/a.docx",
        "Docs/Über uns #1/b c.pdf",
    }


def test_an_item_tells_where_it_stands(ann: User, connect: Connect):
    docs = ann.drive.folder("Docs")
    plan = ann.drive.file("plan.txt", "the plan", into=docs)
    ann.drive.edit(plan, "a new plan")
    source = connect(ann)

    source.sync()

    [item] = source.items.values()
    assert (item.id, item.title, item.kind, item.branch) == (
        plan.id,
        "plan.txt",
        "onedrive",
        "drive",
    )
    assert item.url == "https://ann.example.com/Docs/plan.txt"
    assert item.modified_at == plan.modified
    assert item.metadata == {
        "path": "Docs/plan.txt",
        "size": 10,
        "mimeType": "text/plain",
        "versionId": "2.0",
        "createdBy": "Ann Example",
        "lastModifiedBy": "Ann Example",
    }


def test_what_has_not_changed_is_not_said(graph: FakeGraph, user: User, connect: Connect):
    user.drive.file("a.txt")
    source = connect(user)
    source.sync()
    graph.site.requests.clear()

    said = source.sync()

    assert {type(change) for change in said} == {Checkpoint}
    assert len(graph.calls()) == 1


def test_the_cursor_moves(user: User, connect: Connect):
    a = user.drive.file("a.txt")
    source = connect(user)
    source.sync()
    before = source.cursor
    user.drive.edit(a, "new")
    source.sync()

    assert source.cursor != before
    assert only(source.sync(), Item) == []


def test_changes_are_followed(graph: FakeGraph, user: User, connect: Connect):
    drive = user.drive
    docs, other = drive.folder("Docs"), drive.folder("Other")
    a, b, c = (drive.file(f"{name}.txt", name, into=docs) for name in "abc")
    source = connect(user)
    source.sync()
    before = local(source)
    drive.edit(a, "new")
    drive.rename(b, "b2.txt")
    drive.move(b, other)
    drive.delete(c)
    drive.file("d.txt", into=other)

    said = source.sync()

    assert local(source) == remote(drive)
    assert before[b.id][2] == local(source)[b.id][2]
    assert only(said, Gone) == [Gone(c.id)]


def test_sharing_costs_nothing(user: User, connect: Connect):
    a = user.drive.file("a.txt")
    source = connect(user)
    source.sync()
    [before] = source.items.values()
    user.drive.share(a)

    [after] = only(source.sync(), Item)

    assert after.version == before.version


@pytest.mark.parametrize("hashed", [True, False], ids=["hash", "tag"])
def test_both_ways_of_listing_tell_the_same_version(
    graph: FakeGraph, connect: Connect, hashed: bool
):
    user = graph.user("ann", kind="business" if hashed else "personal")
    folder = user.drive.folder("Docs")
    file = user.drive.file("a.txt", into=folder)
    file.hashed = hashed
    source = connect(user)
    source.sync()
    before = local(source)[file.id][2]
    user.drive.delete(folder)
    source.sync()
    user.drive.restore(folder)

    source.sync()

    assert local(source)[file.id][2] == before


def test_a_restored_thing_is_back_though_its_deletion_is_told_again(user: User, connect: Connect):
    a = user.drive.file("a.txt")
    source = connect(user)
    source.sync()
    user.drive.delete(a)
    source.sync()
    without = local(source)
    user.drive.restore(a)

    source.sync()

    assert without == {}
    assert local(source) == remote(user.drive)


@pytest.mark.parametrize("page", [1, 2, 3, 100])
def test_deleted_and_restored_between_two_syncs_is_there(
    graph: FakeGraph, user: User, connect: Connect, page: int
):
    things = [user.drive.file(f"{n}.txt") for n in range(4)]
    graph.page = page
    source = connect(user)
    source.sync()
    for thing in things:
        user.drive.delete(thing)
        user.drive.restore(thing)

    source.sync()

    assert local(source) == remote(user.drive)


# --- folders -----------------------------------------------------------------------------------


def test_a_renamed_folder_changes_paths_and_fetches_nothing(
    graph: FakeGraph, user: User, connect: Connect
):
    docs = user.drive.folder("Docs")
    deep = user.drive.folder("deep", into=docs)
    for n in range(3):
        user.drive.file(f"{n}.txt", into=deep)
    user.drive.file("other.txt")
    source = connect(user)
    source.sync()
    versions = {id: item.version for id, item in source.items.items()}
    graph.site.requests.clear()
    user.drive.rename(docs, "Papers")

    said = source.sync()

    assert local(source) == remote(user.drive)
    assert {id: item.version for id, item in source.items.items()} == versions
    assert len(only(said, Item)) == 3
    assert len(graph.calls()) == 1
    for item in only(said, Item):
        assert item.metadata["size"] == 4
        assert item.metadata["lastModifiedBy"] == "Ann Example"
        assert item.modified_at is not None
        assert item.url


def test_a_moved_folder_takes_its_content_along(user: User, connect: Connect):
    a, b = user.drive.folder("A"), user.drive.folder("B")
    inner = user.drive.folder("inner", into=a)
    user.drive.file("x.txt", into=inner)
    source = connect(user)
    source.sync()
    user.drive.move(inner, b)
    source.sync()

    assert [path for _, path, _ in local(source).values()] == ["B/inner/x.txt"]


def test_with_a_deleted_folder_goes_what_is_in_it(user: User, connect: Connect):
    docs = user.drive.folder("Docs")
    deep = user.drive.folder("deep", into=docs)
    user.drive.file("a.txt", into=docs)
    user.drive.file("b.txt", into=deep)
    kept = user.drive.file("c.txt")
    source = connect(user)
    source.sync()
    user.drive.delete(docs)

    source.sync()

    assert list(local(source)) == [kept.id]
    assert list(source.known_folders) == [user.drive.root.id]


@pytest.mark.parametrize("page", [1, 100])
def test_what_moved_out_of_a_deleted_folder_stays(
    graph: FakeGraph, user: User, connect: Connect, page: int
):
    docs = user.drive.folder("Docs")
    saved, lost = (user.drive.file(f"{name}.txt", into=docs) for name in ("saved", "lost"))
    source = connect(user)
    source.sync()
    user.drive.delete(docs)
    user.drive.restore(docs)
    user.drive.move(saved, user.drive.root)
    user.drive.delete(docs)
    graph.page, graph.children_first = page, page == 1

    said = source.sync()

    assert local(source) == remote(user.drive)
    assert only(said, Gone) == [Gone(lost.id)]


@pytest.mark.parametrize("told", [True, False], ids=["told", "untold"])
def test_a_restored_folder_comes_back_with_its_content(
    graph: FakeGraph, user: User, connect: Connect, told: bool
):
    graph.tells_restored = told
    graph.page = 3
    docs = user.drive.folder("Docs")
    deep = user.drive.folder("deep", into=docs)
    for n in range(5):
        user.drive.file(f"{n}.txt", into=deep)
    source = connect(user)
    source.sync()
    user.drive.delete(docs)
    source.sync()
    without = local(source)
    user.drive.restore(docs)

    source.sync()

    assert without == {}
    assert local(source) == remote(user.drive)
    assert len(source.known_folders) == 3


@pytest.mark.parametrize("page", [1, 2, 100])
def test_paths_are_right_even_if_folders_come_after_what_is_in_them(
    graph: FakeGraph, user: User, connect: Connect, page: int
):
    graph.children_first, graph.page = True, page
    folder = user.drive.root
    for name in "abcd":
        folder = user.drive.folder(name, into=folder)
        user.drive.file(f"{name}.txt", into=folder)
    source = connect(user)
    selected = connect(user, syncScope="selected", folders=folder.id)

    source.sync()
    selected.sync()

    assert local(source) == remote(user.drive)
    assert local(selected) == remote(user.drive, folder)


def test_folders_in_a_circle_and_a_thousand_deep_are_survived(user: User, connect: Connect):
    folder = user.drive.root
    for _ in range(300):
        folder = user.drive.folder("sub folder", into=folder)
    deep = user.drive.file("x.txt", into=folder)
    a = user.drive.folder("a")
    b = user.drive.folder("b", into=a)
    source = connect(user)
    source.sync()
    source.known_folders[a.id] = replace(source.known_folders[a.id], parent=b.id)
    user.drive.file("y.txt", into=b)

    source.sync()

    path = str(source.items[deep.id].metadata["path"])
    assert len(path) == 1000
    assert path.endswith("/x.txt")
    assert len(source.items) == 2


def test_a_folder_that_cannot_be_looked_into_is_listed_with_the_next_sync(
    graph: FakeGraph, user: User, connect: Connect
):
    docs = user.drive.folder("Docs")
    user.drive.file("a.txt", into=docs)
    source = connect(user)
    source.sync()
    user.drive.delete(docs)
    source.sync()
    user.drive.restore(docs)
    graph.refuse(404, at="/children")
    source.sync()
    before = local(source)

    source.sync()

    assert before == {}
    assert local(source) == remote(user.drive)


# --- selected folders --------------------------------------------------------------------------


def test_only_what_is_below_selected_folders_is_followed(user: User, connect: Connect):
    drive = user.drive
    docs, other = drive.folder("Docs"), drive.folder("Other")
    deep = drive.folder("deep", into=docs)
    inside, outside = drive.file("in.txt", into=deep), drive.file("out.txt", into=other)
    source = connect(user, syncScope="selected", folders=f" {docs.id}, ")
    source.sync()
    first = local(source)
    drive.move(outside, deep)
    drive.move(inside, other)

    source.sync()

    assert list(first) == [inside.id]
    assert local(source) == remote(drive, docs)
    assert list(source.rows) == [outside.id]


def test_a_folder_that_comes_into_scope_brings_its_content(user: User, connect: Connect):
    drive = user.drive
    docs, other = drive.folder("Docs"), drive.folder("Other")
    deep = drive.folder("deep", into=other)
    for n in range(5):
        drive.file(f"{n}.txt", into=deep)
    source = connect(user, syncScope="selected", folders=docs.id)
    source.sync()
    drive.move(other, docs)
    source.sync()
    moved_in = local(source)
    expected = remote(drive, docs)
    drive.move(other, drive.root)

    source.sync()

    assert len(moved_in) == 5
    assert moved_in == expected
    assert local(source) == {}


def test_a_document_that_moved_to_a_folder_not_heard_of_stays_the_same(
    graph: FakeGraph, user: User, connect: Connect
):
    docs = user.drive.folder("Docs")
    file = user.drive.file("a.txt", into=docs)
    source = connect(user, syncScope="selected", folders=docs.id)
    source.sync()
    graph.children_first, graph.page, graph.repeats = True, 1, False
    new = user.drive.folder("new", into=docs)
    user.drive.move(file, new)
    user.drive.rename(new, "newer")

    said = source.sync()

    assert local(source) == remote(user.drive, docs)
    assert only(said, Gone) + only(said, Verdict) == []


def test_other_selected_folders_are_another_listing(user: User, connect: Connect):
    drive = user.drive
    a, b = drive.folder("A"), drive.folder("B")
    drive.file("a.txt", into=a)
    drive.file("b.txt", into=b)
    source = connect(user, syncScope="selected", folders=a.id)
    source.sync()
    source.metadata = {"syncScope": "selected", "folders": b.id}
    source.sync()
    assert local(source) == remote(drive, b)
    source.metadata = {}
    source.sync()
    assert local(source) == remote(drive)


def test_what_a_listing_tells_in_a_selected_folder_and_then_outside_is_gone(
    graph: FakeGraph, user: User, connect: Connect
):
    docs, other = user.drive.folder("Docs"), user.drive.folder("Other")
    kept = user.drive.file("kept.txt", into=docs)
    moved = user.drive.file("moved.txt", into=docs)
    source = connect(user, syncScope="selected", folders=docs.id)
    source.sync()
    user.drive.move(moved, other)
    graph.page, source.cursor = 1, None  # the first page with it tells where it was

    source.sync(at=NOW + timedelta(hours=1))

    assert source.items.keys() == {kept.id}


def test_a_selected_folder_that_is_not_there_is_told(user: User, connect: Connect):
    drive = user.drive
    docs = drive.folder("Docs")
    drive.file("a.txt", into=docs)
    drive.delete(docs)
    source = connect(user, syncScope="selected", folders=docs.id)

    [verdict] = only(source.sync(), Verdict)
    source.cursor = None
    [again] = only(source.sync(), Verdict)
    drive.restore(docs)
    source.sync()

    assert (verdict.id, verdict.kind, verdict.failed) == (docs.id, "folder_missing", True)
    assert again == verdict
    assert local(source) == remote(drive)
    assert docs.id not in source.rows


@pytest.mark.parametrize("told", [True, False], ids=["told", "untold"])
def test_a_selected_folder_comes_back_with_the_folder_that_it_is_in(
    graph: FakeGraph, user: User, connect: Connect, told: bool
):
    graph.tells_restored = told
    outer = user.drive.folder("Outer")
    docs = user.drive.folder("Docs", into=outer)
    user.drive.file("a.txt", into=docs)
    source = connect(user, syncScope="selected", folders=docs.id)
    source.sync()
    user.drive.delete(outer)
    source.sync()
    without = local(source)
    user.drive.restore(outer)

    source.sync()

    assert without == {}
    assert local(source) == remote(user.drive, docs)


def test_nothing_selected_is_said_and_deletes_nothing(
    graph: FakeGraph, user: User, connect: Connect
):
    user.drive.file("a.txt")
    source = connect(user)
    source.sync()
    source.metadata = {"syncScope": "selected"}

    [trouble] = only(source.sync(), Trouble)

    assert trouble.code == "no_folders"
    assert len(source.items) == 1


@pytest.mark.parametrize(
    ("metadata", "field"),
    [
        ({"syncScope": "some"}, "syncScope"),
        ({"shared": "yes"}, "shared"),
        ({"folders": ["a"]}, "folders"),
        ({"folders": "a/b"}, "folders"),
        ({"folders": "x" * 201}, "folders"),
        ({"folders": ",".join(f"folder{n}" for n in range(101))}, "folders"),
    ],
    ids=["scope", "shared", "list", "path", "long", "many"],
)
def test_metadata_is_checked(fetcher: Fetcher, metadata: dict[str, Any], field: str):
    with pytest.raises(BadRequestError, match=rf"metadata\.{field}"):
        CONNECTOR.check(metadata, fetcher)


# --- what is no document -----------------------------------------------------------------------


def test_what_cannot_be_a_document_says_why(graph: FakeGraph, user: User, connect: Connect):
    drive = user.drive
    friend = graph.user("bob")
    drive.notebook("Notes")
    drive.touch(drive.file("huge.zip"), size=2_000_000_000)
    drive.file("empty.txt", "")
    drive.touch(drive.file("bad.exe"), malware=True)
    drive.shortcut(friend.drive, friend.drive.file("theirs.txt"))
    drive.file("good.txt")
    source = connect(user)

    source.sync()

    assert {row.title: row.verdict for row in source.rows.values()} == {
        "Notes": "unsupported",
        "huge.zip": "too_large",
        "empty.txt": "empty",
        "bad.exe": "malware",
        "theirs.txt": "shared",
        "good.txt": "document",
    }
    assert all(row.detail for row in source.rows.values() if row.verdict != "document")


@pytest.mark.parametrize("scope", ["full", "selected"])
def test_what_is_in_a_notebook_is_not_fetched(user: User, connect: Connect, scope: str):
    drive = user.drive
    drive.file("Plans.one", into=(notes := drive.notebook("Notes")))
    drive.file("Open Notebook.onetoc2", into=notes)
    drive.file("good.txt", into=(docs := drive.folder("Docs")))
    source = connect(user, syncScope=scope, folders=docs.id)

    for _ in range(2):
        source.sync()
        assert [path for _, path, _ in local(source).values()] == ["Docs/good.txt"]
    kinds = {row.title: row.verdict for row in source.rows.values() if row.title != "good.txt"}
    assert set(kinds.values()) == {"unsupported"}


@pytest.mark.parametrize("first", ["folder", "within"])
def test_what_two_shortcuts_lead_to_is_one_document(
    graph: FakeGraph, user: User, connect: Connect, first: str
):
    friend = graph.user("bob")
    folder = friend.drive.folder("Team")
    within = friend.drive.folder("Plans", into=folder)
    friend.drive.file("plan.txt", into=within)
    pair = (folder, within) if first == "folder" else (within, folder)
    shortcuts = [user.drive.shortcut(friend.drive, one) for one in pair]
    source = connect(user, shared=True)
    source.sync()
    before = dict(source.items)
    assert len(before) == 1

    said = source.sync()
    assert [change for change in said if isinstance(change, Item)] == list(before.values())

    user.drive.delete(shortcuts[0])
    gone = [change.id for change in source.sync() if isinstance(change, Gone)]
    assert set(gone) == {shortcuts[0].id}
    assert source.items.keys() == before.keys()


@pytest.mark.parametrize("status", [400, 403, 404, 500])
def test_a_folder_that_may_not_be_looked_into_stops_no_sync(
    graph: FakeGraph, user: User, connect: Connect, status: int
):
    source = connect(user)
    source.sync()
    vault = user.drive.folder("Personal Vault")
    user.drive.file("inside.txt", into=vault)
    user.drive.file("beside.txt")
    graph.refuse(status, "accessDenied", at="/children", times=3)

    source.sync()
    assert local(source) == remote(user.drive)
    source.sync()
    assert {type(change) for change in source.sync()} == {Checkpoint}
    assert local(source) == remote(user.drive)


def test_what_was_empty_becomes_a_document(user: User, connect: Connect):
    draft = user.drive.file("draft.txt", "")
    source = connect(user)
    source.sync()
    user.drive.edit(draft, "words")
    source.sync()

    assert local(source) == remote(user.drive)
    user.drive.edit(draft, "")
    source.sync()
    assert local(source) == {}


@pytest.mark.parametrize(
    "name",
    ["\u202eexe.txt", "a\x00b\nc.txt", "\ud800.txt", "x" * 5000, "   ", "…/../x"],
    ids=["rtl", "control", "surrogate", "long", "blank", "dots"],
)
def test_odd_names_are_survived(user: User, connect: Connect, name: str):
    user.drive.file(name)
    user.drive.file("good.txt")
    source = connect(user)

    source.sync()

    assert len(source.items) == 2
    for item in source.items.values():
        assert item.title
        assert len(item.title) <= 1000
        json.dumps([item.title, dict(item.metadata), dict(item.extra)], ensure_ascii=False).encode()
        assert "\x00" not in item.title


# --- shortcuts to what others share ------------------------------------------------------------


@pytest.fixture
def bob(graph: FakeGraph) -> User:
    return graph.user("bob", kind="business")


def theirs(source: MemorySource) -> dict[str, str]:
    """Path → version of what is a document."""
    return {str(item.metadata["path"]): item.version for item in source.items.values()}


def test_a_shared_file_is_followed_by_its_shortcut(
    graph: FakeGraph, ann: User, bob: User, connect: Connect
):
    plan = bob.drive.file("plan.txt", "the plan")
    shortcut = ann.drive.shortcut(bob.drive, plan)
    source = connect(ann, shared=True)
    source.sync()
    first = content(source, "plan.txt")
    bob.drive.edit(plan, "another plan")

    source.sync()

    assert first.data == b"the plan"
    assert theirs(source) == {"plan.txt": version(plan)}
    assert list(source.items) == [shortcut.id]
    assert content(source, "plan.txt").data == b"another plan"
    assert len(graph.calls(f"/drives/{re.escape(bob.drive.id).replace('!', '%21')}/")) >= 2


def test_a_shared_folder_is_followed_with_all_that_is_in_it(
    graph: FakeGraph, ann: User, bob: User, connect: Connect
):
    graph.page = 2
    team = bob.drive.folder("Team")
    deep = bob.drive.folder("deep", into=team)
    files = [bob.drive.file(f"{n}.txt", str(n), into=deep) for n in range(5)]
    bob.drive.file("private.txt")
    mine = ann.drive.folder("Mine")
    ann.drive.shortcut(bob.drive, team, into=mine)
    source = connect(ann, shared=True)
    source.sync()
    first = theirs(source)
    bob.drive.edit(files[0], "new")
    bob.drive.file("more.txt", into=team)
    ann.drive.rename(mine, "Ours")

    source.sync()

    assert first.keys() == {f"Mine/Team/deep/{n}.txt" for n in range(5)}
    assert theirs(source).keys() == {
        *(f"Ours/Team/deep/{n}.txt" for n in range(5)),
        "Ours/Team/more.txt",
    }
    assert theirs(source)["Ours/Team/deep/0.txt"] == version(files[0])
    assert content(source, "more.txt").data == b"text"


def followed(
    graph: FakeGraph, ann: User, connect: Connect, what: str
) -> tuple[MemorySource, Thing]:
    """A connection that follows a shortcut to a file, or a folder, of a personal drive."""
    cat = graph.user("cat", kind="personal")
    team = cat.drive.folder("Team")
    plan = cat.drive.file("plan.txt", "the plan", into=team)
    shortcut = ann.drive.shortcut(cat.drive, plan if what == "file" else team)
    source = connect(ann, shared=True)
    source.sync()
    return source, shortcut


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_shortcut_leads_to_a_personal_drive_whose_id_begins_with_zero(
    graph: FakeGraph, ann: User, connect: Connect, what: str
):
    source, shortcut = followed(graph, ann, connect, what)
    known = dict(source.items)
    graph.drops_zeros = True
    ann.drive.rename(shortcut, "Cat")

    source.sync()
    source.sync()

    assert source.items.keys() == known.keys() != set()
    [item] = source.items.values()
    assert content(source, item.title or "").data == b"the plan"


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_shortcut_that_an_earlier_version_remembers_without_the_zero_is_followed(
    graph: FakeGraph, ann: User, connect: Connect, what: str
):
    source, shortcut = followed(graph, ann, connect, what)
    row = source.rows[shortcut.id]
    short = {name: row.extra[name].removeprefix("0") for name in ("drive", "target")}
    source.rows[shortcut.id] = replace(row, extra={**row.extra, **short})
    assert short["drive"] != row.extra["drive"]

    source.sync()
    source.sync()

    [item] = source.items.values()
    assert content(source, item.title or "").data == b"the plan"


@pytest.mark.parametrize("what", ["file", "folder"])
def test_what_is_unshared_is_gone_once_that_is_certain(
    ann: User, bob: User, connect: Connect, what: str
):
    team = bob.drive.folder("Team")
    file = bob.drive.file("a.txt", into=team)
    kept = ann.drive.file("mine.txt")
    target = file if what == "file" else team
    ann.drive.shortcut(bob.drive, target)
    source = connect(ann, shared=True)
    source.sync()
    target.readers.clear()

    [missing] = only(source.sync(), Missing if what == "folder" else Verdict)
    still_there = len(source.items)
    source.sync()
    ended = list(source.items)
    target.readers.add("ann")
    source.sync()

    assert "not shared" in missing.detail
    assert still_there == 2
    assert ended == [kept.id]
    assert len(source.items) == 2


@pytest.mark.parametrize("what", ["file", "folder", "drive"])
def test_what_refuses_the_account_is_gone_once_that_is_certain(
    graph: FakeGraph, ann: User, bob: User, connect: Connect, what: str
):
    graph.denies = True
    team = bob.drive.folder("Team")
    file = bob.drive.file("a.txt", into=team)
    kept = ann.drive.file("mine.txt")
    targets = {"file": [file], "folder": [team], "drive": [team, bob.drive.file("b.txt")]}[what]
    for target in targets:
        ann.drive.shortcut(bob.drive, target)
    source = connect(ann, shared=True)
    source.granted = ["https://graph.microsoft.com/files.read.all"]
    source.sync()
    before = set(source.items)
    for _ in range(2):  # once, it is not certain, and what is back begins again
        for target in targets:
            target.readers.clear()
        said = source.sync()
        assert only(said, Trouble) == []
        assert all("not shared" in (one.detail or "") for one in only(said, Verdict))
        assert set(source.items) == before
        for target in targets:
            target.readers.add("ann")
        source.sync()

    for target in targets:
        target.readers.clear()
    source.sync()
    source.sync()
    ended = list(source.items)
    refused = {row.verdict for row in source.rows.values() if row.branch == "shortcuts"}
    for target in targets:
        target.readers.add("ann")
    source.sync()

    assert (ended, refused) == ([kept.id], {"no_access"})
    assert set(source.items) == before
    assert "no_access" not in {row.verdict for row in source.rows.values()}


@pytest.mark.parametrize(
    ("granted", "code", "message"),
    [
        ([], "accessDenied", "Access denied"),
        (["Files.Read"], "accessDenied", "Access denied"),
        (["Files.Read.All"], "insufficient_claims", "Continuous access evaluation"),
        (["Files.Read.All"], "accessDenied", "Due to organizational policies, you cannot"),
    ],
    ids=["unknown", "fewer scopes", "conditional access", "policy"],
)
def test_what_is_refused_for_another_reason_stays_however_often(
    graph: FakeGraph,
    ann: User,
    bob: User,
    connect: Connect,
    granted: list[str],
    code: str,
    message: str,
):
    team = bob.drive.folder("Team")
    bob.drive.file("a.txt", into=team)
    for target in (team, bob.drive.file("b.txt")):
        ann.drive.shortcut(bob.drive, target)
    source = connect(ann, shared=True)
    source.granted = granted
    source.sync()
    graph.refuse(403, code, at="/v1.0/drives/", times=99, message=message)

    for _ in range(3):
        assert len(only(source.sync(), Trouble)) == 2
        assert len(source.items) == 2


def test_a_refused_folder_in_a_shared_one_takes_nothing_along(
    graph: FakeGraph, ann: User, bob: User, connect: Connect
):
    """Though nothing else is in that one."""
    team = bob.drive.folder("Team")
    deep = bob.drive.folder("deep", into=team)
    bob.drive.file("a.txt", into=deep)
    ann.drive.shortcut(bob.drive, team)
    source = connect(ann, shared=True)
    source.granted = ["Files.Read.All"]
    source.sync()
    for status in (403, 404):
        graph.refuse(status, "accessDenied", at=f"/items/{deep.id}/children", times=2)
        for _ in range(2):
            [trouble] = only(source.sync(), Trouble)
            assert trouble.code == f"http_{status}"

    assert len(source.items) == 1


def test_a_slip_of_microsoft_s_costs_no_authorization(
    graph: FakeGraph, ann: User, connect: Connect
):
    """github.com/OneDrive/onedrive-api-docs/issues/1489"""
    ann.drive.file("a.txt")
    source = connect(ann)
    source.access = StillGood(ann.token)
    slip = "Unable to initialize RPS"
    graph.refuse(401, "InvalidAuthenticationToken", message=slip, at="/delta", times=2)

    source.sync()

    assert len(source.items) == 1
    graph.refuse(401, "InvalidAuthenticationToken", message=slip, at="/delta", times=99)
    with pytest.raises(Transient):
        source.sync()


def test_an_authorization_that_one_shared_thing_refuses_is_good_for_all_others(
    graph: FakeGraph, ann: User, bob: User, connect: Connect
):
    """Graph answers 401 for some of what is shared with guests."""
    one, two = (bob.drive.file(name, name) for name in ("a.txt", "b.txt"))
    for target in (one, two):
        ann.drive.shortcut(bob.drive, target)
    source = connect(ann, shared=True)
    source.access = StillGood(ann.token)
    source.sync()
    bob.drive.edit(two, "edited")
    graph.refuse(401, "accessDenied", at=f"/items/{one.id}", times=99)

    [trouble] = only(source.sync(), Trouble)
    assert trouble.code == "http_401"
    assert theirs(source)["b.txt"] == version(two)
    assert set(theirs(source)) == {"a.txt", "b.txt"}
    with pytest.raises(Permanent) as refused:
        content(source, "a.txt")
    assert refused.value.code == "http_401"
    graph._refusals.clear()
    graph.refuse(401, "unauthenticated", at=".", times=99)
    with pytest.raises(Reauthorize):
        content(source, "a.txt")


class StillGood(Token):
    """A new one each time the old one is refused, and as good."""

    def token(self, stale: str | None = None) -> str | None:
        return self.value


def test_a_thing_in_a_shared_folder_that_is_missed_once_stays(
    ann: User, bob: User, connect: Connect
):
    team = bob.drive.folder("Team")
    file = bob.drive.file("a.txt", into=team)
    ann.drive.shortcut(bob.drive, team)
    source = connect(ann, shared=True)
    source.sync()
    bob.drive.delete(file)
    source.sync()
    bob.drive.restore(file)
    source.sync()
    bob.drive.delete(file)
    source.sync()
    missed = list(source.items)

    source.sync()

    assert len(missed) == 1
    assert list(source.items) == []


def test_a_shared_folder_that_fails_keeps_its_documents_and_stops_nothing(
    graph: FakeGraph, ann: User, bob: User, connect: Connect
):
    team = bob.drive.folder("Team")
    bob.drive.file("a.txt", into=team)
    shortcut = ann.drive.shortcut(bob.drive, team)
    source = connect(ann, shared=True)
    source.sync()
    before = local(source)
    bob.drive.file("b.txt", into=team)
    ann.drive.file("mine.txt")
    for status, code in ((403, "access_denied"), (500, "provider_unavailable")):
        graph.refuse(status, "accessDenied", at="/drives/.*/children", times=3)
        [trouble] = only(source.sync(), Trouble)
        graph._refusals.clear()

        assert (trouble.code, trouble.branch) == (code, shortcut.id)
        assert shortcut.id in trouble.message
        assert "Team" not in trouble.message  # the run outlives what is in it
        assert before.items() <= local(source).items()
        assert "mine.txt" in theirs(source)
    source.sync()
    assert len(source.items) == 3


def test_what_stands_behind_many_broken_shortcuts_is_read_by_the_next_sync(
    graph: FakeGraph, ann: User, bob: User, connect: Connect, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(api, "MOST_FAILURES", 2)
    monkeypatch.setattr(api, "TRIES", 1)
    targets = [bob.drive.file(f"{n}.txt") for n in range(5)]
    shortcuts = [ann.drive.shortcut(bob.drive, target) for target in targets]
    broken = "|".join(target.id for target in targets[:4])
    graph.refuse(500, at=f"/items/({broken})", times=99)
    source = connect(ann, shared=True)

    for _ in range(3):
        with suppress(Transient):
            source.sync()
    found = {*source.items}
    graph._refusals.clear()
    source.sync()

    assert found == {shortcuts[4].id}
    assert {*source.items} == {one.id for one in shortcuts}


@pytest.mark.parametrize("how", ["deleted", "not wanted", "unseen"])
def test_with_a_shortcut_goes_what_it_stood_for(
    graph: FakeGraph, ann: User, bob: User, connect: Connect, how: str
):
    team = bob.drive.folder("Team")
    bob.drive.file("a.txt", into=team)
    shortcuts = [
        ann.drive.shortcut(bob.drive, team),
        ann.drive.shortcut(bob.drive, bob.drive.file("b.txt")),
    ]
    kept = ann.drive.file("mine.txt")
    source = connect(ann, shared=True)
    source.sync()
    assert len(source.items) == 3
    if how == "not wanted":
        source.metadata, source.cursor = {}, None
    else:
        for shortcut in shortcuts:
            ann.drive.delete(shortcut)
    if how == "unseen":
        source.cursor = None

    source.sync()

    assert list(source.items) == [kept.id]


def test_shortcuts_out_of_scope_are_not_followed(
    graph: FakeGraph, ann: User, bob: User, connect: Connect
):
    docs = ann.drive.folder("Docs")
    inside = ann.drive.shortcut(bob.drive, bob.drive.file("in.txt"), into=docs)
    ann.drive.shortcut(bob.drive, bob.drive.file("out.txt"))
    source = connect(ann, shared=True, syncScope="selected", folders=docs.id)
    source.sync()
    first = theirs(source)
    ann.drive.move(inside, ann.drive.root)
    source.sync()

    assert list(first) == ["Docs/in.txt"]
    assert source.items == {}


def test_without_the_permission_to_read_what_is_shared_that_is_said(
    ann: User, bob: User, connect: Connect
):
    ann.scopes.clear()
    ann.scopes.add("Files.Read")
    ann.drive.shortcut(bob.drive, bob.drive.file("b.txt"))
    ann.drive.file("mine.txt")
    source = connect(ann, shared=True)

    [trouble] = only(source.sync(), Trouble)

    assert "authorize again" in trouble.message
    assert "metadata.shared was set later" in trouble.message
    assert list(theirs(source)) == ["mine.txt"]


# --- lost places, circles, listings ------------------------------------------------------------


@pytest.mark.parametrize(
    "code", ["resyncChangesApplyDifferences", "resyncChangesUploadDifferences"]
)
@pytest.mark.parametrize("location", ["own", None, "http://127.0.0.1:9/v1.0/me/drive/root/delta"])
def test_a_lost_place_is_a_whole_listing(
    graph: FakeGraph, user: User, connect: Connect, code: str, location: str | None
):
    drive = user.drive
    docs = drive.folder("Docs")
    a, b, _ = (drive.file(f"{name}.txt", into=docs) for name in "abc")
    source = connect(user)
    source.sync()
    drive.delete(a)
    drive.edit(b, "new")
    drive.file("d.txt")
    graph.forget(code, location=location)

    if location == "own":
        source.sync()
    else:
        with pytest.raises(CursorExpired):
            source.sync()
        source.cursor = None
        source.sync()

    assert local(source) == remote(drive)
    assert [type(change) for change in source.sync()] == [Checkpoint, Checkpoint]


def test_a_place_that_is_lost_again_and_again_ends(graph: FakeGraph, user: User, connect: Connect):
    user.drive.file("a.txt")
    source = connect(user)
    source.sync()
    before = local(source)
    for n in range(20):
        graph.refuse(410, at="/delta", Location=f"{graph.url}/v1.0/me/drive/root/delta?token=0.{n}")

    with pytest.raises((Transient, CursorExpired)):
        source.sync()

    assert local(source) == before
    assert len(graph.calls("/delta")) < 8


@pytest.mark.parametrize("status", [400, 404])
def test_a_link_of_an_earlier_sync_that_is_refused_is_lost(
    graph: FakeGraph, user: User, connect: Connect, status: int
):
    user.drive.file("a.txt")
    source = connect(user)
    source.sync()
    graph.refuse(status, at="/delta")

    with pytest.raises(CursorExpired):
        source.sync()
    source.cursor = None
    source.sync()

    assert local(source) == remote(user.drive)


def test_a_fresh_listing_that_is_refused_is_no_lost_place(
    graph: FakeGraph, user: User, connect: Connect
):
    graph.refuse(410, at="/delta")
    with pytest.raises(Transient) as caught:
        connect(user).sync()
    assert caught.value.code == "provider_unavailable"

    graph.refuse(404, at="/delta")
    with pytest.raises(Permanent) as refused:
        connect(user).sync()
    assert refused.value.code == "no_drive"

    graph.refuse(400, "BadRequest", at="/delta", message="Tenant does not have a SPO license.")
    with pytest.raises(Permanent, match="licence") as refused:
        connect(user).sync()
    assert refused.value.code == "no_drive"
    assert "licence" in str(refused.value)


@pytest.mark.parametrize("what", ["listing", "following"])
def test_pages_in_a_circle_end(graph: FakeGraph, user: User, connect: Connect, what: str):
    things = [user.drive.file(f"{n}.txt") for n in range(9)]
    graph.page = 2
    source = connect(user)
    if what == "following":
        source.sync()
        for thing in things:
            user.drive.edit(thing, "new")
    before = local(source)
    graph.lead("circle")

    with pytest.raises(Transient, match="circle") as caught:
        source.sync()

    assert caught.value.code == "provider_unavailable"
    assert before.keys() <= local(source).keys()
    graph.lead(None)
    source.sync()
    assert local(source) == remote(user.drive)


def test_folders_whose_pages_go_in_a_circle_end(
    graph: FakeGraph, ann: User, bob: User, connect: Connect
):
    team = bob.drive.folder("Team")
    bob.drive.file("a.txt", into=team)
    ann.drive.shortcut(bob.drive, team)
    with Proxy(graph.url) as proxy:
        source = connect(ann, proxy.url, shared=True)

        def in_a_circle(body: bytes) -> bytes:
            [asked] = {seen.path for seen in proxy.seen("/children")}
            return json.dumps({**json.loads(body), "@odata.nextLink": asked}).encode()

        proxy.on("/children", times=None, alter=in_a_circle)
        [trouble] = only(source.sync(), Trouble)

    assert "circle" in trouble.message


def test_an_address_of_another_host_gets_no_token(graph: FakeGraph, user: User, connect: Connect):
    user.drive.file("a.txt")
    source = connect(user)
    source.sync()
    before = local(source)
    with Website() as evil:
        graph.lead(evil.url("/v1.0/me/drive/root/delta"))
        with pytest.raises(Permanent) as caught:
            source.sync()
        graph.lead(None)
        with pytest.raises(CursorExpired):
            source.sync()
        source.cursor = {**(source.cursor or {}), "link": evil.url("/x"), "listing": False}
        with pytest.raises(CursorExpired):
            source.sync()

        assert caught.value.code == "foreign_address"
        assert evil.requests == []
    assert local(source) == before


@pytest.mark.parametrize(
    "cursor",
    [
        {},
        {"link": "/v1.0/me"},
        {"scope": "full", "link": 1, "began": "2026-01-01"},
        {"scope": "full", "link": "/x", "began": "once"},
        {"repos": {}},
    ],
    ids=["empty", "link", "type", "time", "other"],
)
def test_a_cursor_of_another_shape_counts_as_none(
    user: User, connect: Connect, cursor: Mapping[str, Any]
):
    user.drive.file("a.txt")
    source = connect(user)
    source.cursor = cursor

    source.sync()

    assert local(source) == remote(user.drive)


def test_what_the_feed_kept_quiet_about_is_found_within_a_week(user: User, connect: Connect):
    drive = user.drive
    a = drive.file("a.txt")
    docs = drive.folder("Docs")
    drive.file("b.txt", into=docs)
    source = connect(user)
    source.sync()
    a.deleted = docs.deleted = True

    source.sync(at=NOW + timedelta(days=6))
    before = len(source.items)
    source.sync(at=NOW + timedelta(days=8))
    following = source.sync(at=NOW + timedelta(days=9))

    assert before == 2
    assert source.items == {}
    assert list(source.known_folders) == [drive.root.id]
    assert only(following, Listed) == []


def test_a_sync_by_hand_finds_what_the_feed_kept_quiet_about(user: User, connect: Connect):
    a = user.drive.file("a.txt")
    user.drive.file("b.txt")
    source = connect(user)
    source.sync()
    a.deleted = True
    source.sync(at=NOW + timedelta(minutes=1))
    assert len(source.items) == 2

    source.asked = True
    source.sync(at=NOW + timedelta(minutes=2))
    following = source.sync(at=NOW + timedelta(minutes=2))  # the same sync, which goes on

    assert local(source) == remote(user.drive)
    assert len(source.items) == 1
    assert only(following, Listed) == []


class CarefulSource(MemorySource):
    """Holds each listing that lacks something until the next one lacks it, too."""

    held: bool = False

    def _apply(self, change: Change, missing_before: set[str]) -> None:
        if isinstance(change, Listed) and change.branch == "drive" and not self.held:
            lost = {id for id, row in self.rows.items() if row.branch == change.branch}
            if lost - self._seen[change.branch]:
                self.held = True
                return
        super()._apply(change, missing_before)


def test_a_listing_that_is_held_is_said_again(
    graph: FakeGraph, ann: User, fetcher: Fetcher, sandbox: Sandbox
):
    docs = ann.drive.folder("Docs")
    ann.drive.file("a.txt", into=docs)
    ann.drive.file("b.txt")
    source = CarefulSource(CONNECTOR, fetcher, sandbox, api_url=graph.url, access=Token(ann.token))
    source.sync(at=NOW)
    ann.drive.delete(docs)
    source.cursor = None
    source.sync(at=NOW + timedelta(hours=1))
    held = len(source.items)

    source.sync(at=NOW + timedelta(hours=2))
    last = source.sync(at=NOW + timedelta(hours=3))

    assert held == 2
    assert local(source) == remote(ann.drive)
    assert only(last, Listed) == []


def test_a_change_while_the_first_listing_runs_is_seen(
    graph: FakeGraph, user: User, connect: Connect
):
    drive = user.drive
    docs = drive.folder("Docs")
    things = [drive.file(f"{n}.txt", into=docs) for n in range(10)]
    graph.page = 3
    source = connect(user)
    changes = CONNECTOR.changes(source, None)
    for change in changes:
        source._apply(change, set())
        if isinstance(change, Item):
            drive.delete(things[0])
            drive.edit(things[9], "new")
            drive.rename(docs, "Papers")
            drive.file("new.txt", into=docs)
            break
    for change in changes:
        source._apply(change, set())

    source.sync()

    assert local(source) == remote(drive)


@pytest.mark.parametrize("count", [1, 4, 7, 12, 18])
def test_a_sync_that_was_killed_goes_on_where_it_was(
    graph: FakeGraph, user: User, connect: Connect, count: int
):
    drive = user.drive
    docs = drive.folder("Docs")
    for n in range(8):
        drive.file(f"{n}.txt", into=docs)
    graph.page = 2
    source = connect(user)
    torn = CONNECTOR.changes(source, None)
    for _, change in zip(range(count), torn, strict=False):
        source._apply(change, set())
    del torn
    done = len(graph.calls("/delta"))
    graph.site.requests.clear()

    source.sync()

    assert local(source) == remote(drive)
    assert len(graph.calls("/delta")) <= 6 - done + 1


@pytest.mark.parametrize("count", [4, 5, 6, 7, 8])
def test_what_is_deleted_after_a_listing_was_killed_on_its_first_page_is_gone(
    user: User, connect: Connect, count: int
):
    docs = user.drive.folder("Docs")
    things = [user.drive.file(f"{n}.txt", into=docs) for n in range(4)]
    source = connect(user)
    torn = CONNECTOR.changes(source, None)
    for _, change in zip(range(count), torn, strict=False):
        source._apply(change, set())
    del torn
    user.drive.delete(things[0])

    source.sync()

    assert local(source) == remote(user.drive)


def test_a_sync_that_goes_on_also_brings_what_came_since(
    graph: FakeGraph, user: User, connect: Connect
):
    things = [user.drive.file(f"{n}.txt") for n in range(8)]
    graph.page = 2
    source = connect(user)
    torn = CONNECTOR.changes(source, None)
    for change in torn:
        source._apply(change, set())
        if len(graph.calls("/delta")) == 2:
            break
    del torn
    user.drive.edit(things[0], "new")
    user.drive.file("late.txt")

    source.sync()

    assert local(source) == remote(user.drive)


def test_a_place_to_begin_anew_that_does_not_work_is_not_insisted_on(
    graph: FakeGraph, user: User, connect: Connect
):
    user.drive.file("a.txt")
    source = connect(user)
    source.sync()
    graph.refuse(410, at="/delta", Location=f"{graph.url}/v1.0/me/drive/root/delta?token=odd")
    graph.refuse(500, at="token=odd", times=3)
    with pytest.raises(Transient):
        source.sync()
    graph.site.requests.clear()

    source.sync()

    assert local(source) == remote(user.drive)
    assert not graph.calls("token=odd")


def test_a_thousand_items_come_page_by_page(graph: FakeGraph, user: User, connect: Connect):
    folders = [user.drive.folder(f"f{n}") for n in range(20)]
    for n in range(1000):
        user.drive.file(f"{n}.txt", str(n), into=folders[n % 20])
    source = connect(user)
    changes = CONNECTOR.changes(source, None)
    for _ in range(50):
        source._apply(next(changes), set())
    at_first = len(graph.calls())
    del changes

    said = source.sync()

    assert at_first == 1
    assert len(source.items) == 1000
    assert local(source) == remote(user.drive)
    gaps = [0]
    for change in said:
        gaps = [*gaps, 0] if isinstance(change, Checkpoint) else [*gaps[:-1], gaps[-1] + 1]
    assert max(gaps) <= 500
    assert len(json.dumps(source.cursor)) < 2000


# --- bad days ----------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [429, 503, 509, 507])
def test_a_short_wait_is_waited_in_place(
    graph: FakeGraph, user: User, connect: Connect, status: int
):
    user.drive.file("a.txt")
    source = connect(user)
    graph.refuse(status, Retry_After="2")

    source.sync()

    assert source.pauses == [2.0]
    assert local(source) == remote(user.drive)


@pytest.mark.parametrize(
    ("status", "code", "told", "seconds"),
    [
        (429, "activityLimitReached", "41", 41),
        (429, "activityLimitReached", "315", 315),
        (429, "activityLimitReached", "36000", 36_000),
        (429, "x", "999999", 3600),
        (403, "activityLimitReached", "60", 60),
        (509, "bandwidthLimitExceeded", None, 600),
        (507, "quotaLimitReached", None, 600),
    ],
)
def test_a_long_wait_parks(
    graph: FakeGraph,
    ann: User,
    connect: Connect,
    status: int,
    code: str,
    told: str | None,
    seconds: int,
):
    ann.drive.file("a.txt")
    source = connect(ann)
    source.sync()
    headers: dict[str, Any] = {} if told is None else {"Retry_After": told}
    graph.refuse(status, code, **headers)

    with pytest.raises(Transient) as caught:
        source.sync()

    assert (caught.value.code, caught.value.after) == ("rate_limited", timedelta(seconds=seconds))
    assert source.pauses == []
    source.sync()
    assert local(source) == remote(ann.drive)


@pytest.mark.parametrize("told", ["0", "-7", "soon", ""])
def test_a_wait_that_makes_no_sense_is_short(told: str):
    error = CONNECTOR.judge(EndpointAnswer(429, {"retry-after": told}, b""))

    assert isinstance(error, Transient)
    assert error.code == "rate_limited"
    assert error.after in (None, timedelta(seconds=1))


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (403, "accessDenied", Permanent),
        (403, "Authorization_RequestDenied", Reauthorize),
        (403, "InvalidAuthenticationToken", Reauthorize),
        (423, "resourceLocked", Transient),
        (423, "notAllowed", Transient),
        (404, "itemNotFound", None),
        (500, "generalException", None),
        (503, "serviceNotAvailable", None),
    ],
)
def test_refusals_are_told_apart(status: int, code: str, kind: type[Exception] | None):
    body = json.dumps({"error": {"code": "x", "innererror": {"code": code}}}).encode()

    error = CONNECTOR.judge(EndpointAnswer(status, {}, body))

    assert type(error) is (kind or type(None))


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"error": 3}', b"[" * 100_000])
def test_refusals_that_are_not_of_microsoft_mean_what_they_mean_everywhere(body: bytes):
    assert CONNECTOR.judge(EndpointAnswer(403, {}, body)) is None


@pytest.mark.parametrize(
    ("status", "code"), [(403, "accessDenied"), (403, "notAllowed"), (423, "notAllowed")]
)
def test_an_account_that_is_blocked_goes_on_once_it_is_let_in_again(
    graph: FakeGraph, ann: User, connect: Connect, status: int, code: str
):
    """A site that an administrator blocks answers 423 (github.com/dust-tt/dust/pull/20377)."""
    ann.drive.file("a.txt")
    source = connect(ann)
    source.granted = ["Files.Read", "User.Read"]
    source.sync()
    for _ in range(2):
        graph.refuse(status, code, at="/delta", message="Access to this site has been blocked.")
        with pytest.raises(Permanent, match="ask the administrator"):
            source.sync()

    source.sync()

    assert [item.title for item in source.items.values()] == ["a.txt"]


def test_an_account_that_did_not_grant_files_is_asked_again_and_nothing_is_deleted(
    graph: FakeGraph, ann: User, connect: Connect
):
    ann.drive.file("a.txt")
    source = connect(ann)
    source.sync()
    ann.scopes.clear()

    with pytest.raises(Reauthorize, match=r"Files\.Read"):
        source.sync()

    assert len(source.items) == 1


def test_a_dead_token_ends_the_sync(graph: FakeGraph, ann: User, connect: Connect):
    ann.drive.file("a.txt")
    source = connect(ann)
    source.sync()
    graph.users.clear()

    with pytest.raises(Reauthorize):
        source.sync()

    assert len(source.items) == 1
    assert source.access.refreshed == 1


BAD_DAYS: Mapping[str, Mapping[str, Any]] = {
    "error": {"status": 500, "times": 2},
    "bad_gateway": {"status": 502, "body": b"<html>"},
    "cut": {"cut": 10},
    "reset": {"reset": True},
    "lost": {"lose": True},
    "dribbled": {"dribble": (20, 0.001)},
}


@pytest.mark.parametrize("day", BAD_DAYS)
def test_a_bad_day_is_survived(graph: FakeGraph, ann: User, connect: Connect, day: str):
    ann.drive.file("a.txt")
    with Proxy(graph.url) as proxy:
        graph.url = proxy.url
        source = connect(ann)
        rule = proxy.on("/delta", **BAD_DAYS[day])

        source.sync()

        assert local(source) == remote(ann.drive)
        assert rule.hit.is_set()


@pytest.mark.parametrize(
    "body",
    [b"{}", b"[]", b"<html>sign in</html>", b'{"value": []}', b'{"value": [3]}', b'{"value": {}}'],
)
def test_an_answer_without_content_is_no_empty_drive(
    graph: FakeGraph, ann: User, connect: Connect, body: bytes
):
    ann.drive.file("a.txt")
    source = connect(ann)
    source.sync()
    with Proxy(graph.url) as proxy:
        odd = connect(ann, proxy.url)
        odd.items, odd.rows = source.items, source.rows
        proxy.on("/delta", times=None, status=200, body=body)

        with pytest.raises(Transient) as caught:
            odd.sync()

    assert caught.value.code == "provider_unavailable"
    assert local(odd) == remote(ann.drive)


# --- content -----------------------------------------------------------------------------------


def content(source: MemorySource, title: str) -> Blob:
    [row] = [row for row in source.rows.values() if row.title == title]
    found = CONNECTOR.fetch(source, row)
    assert isinstance(found, Blob)
    return found


@pytest.mark.parametrize("direct", [True, False], ids=["direct", "redirected"])
def test_content_comes_byte_by_byte(graph: FakeGraph, user: User, connect: Connect, direct: bool):
    data = b"\xff\x00 caf\xe9\r\n" * 1000
    graph.direct = direct
    user.drive.file("a.txt", data)
    source = connect(user)
    source.sync()

    blob = content(source, "a.txt")

    assert (blob.data, blob.name, blob.mime) == (data, "a.txt", "text/plain")
    assert blob.url == "https://ann.example.com/a.txt"


def test_neither_the_token_nor_the_address_of_content_gets_around(
    graph: FakeGraph, user: User, connect: Connect, capfd: pytest.CaptureFixture[str]
):
    file = user.drive.file("a.txt")
    source = connect(user)
    source.sync()
    content(source, "a.txt")
    errors = list[str]()
    for fail in ((403, b"no"), (500, b"no"), (200, None)):
        path = f"/odd/{fail[0]}?tempauth=secret"
        graph.store.page(
            path.partition("?")[0],
            b"",
            status=fail[0],
            headers={"Content-Length": "99999999999"} if fail[1] is None else {},
        )
        graph.refuse(302, at="/content", Location=graph.store.url(path))
        with pytest.raises((Transient, Permanent)) as caught:
            CONNECTOR.fetch(source, source.rows[file.id])
        errors.append(f"{caught.value} {caught.value.__cause__}")

    assert all("authorization" not in request.headers for request in graph.store.requests)
    assert len(graph.store.requests) == 4
    kept = json.dumps([source.cursor, *(dict(row.extra) for row in source.rows.values())])
    out, err = capfd.readouterr()
    for text in (*errors, kept, out, err):
        assert "tempauth" not in text
        assert user.token not in text


def test_an_address_of_content_inside_our_network_is_not_asked(
    graph: FakeGraph, ann: User, sandbox: Sandbox
):
    ann.drive.file("a.txt")
    with Fetcher(user_agent="RecollectBot/test") as strict:
        source = MemorySource(
            CONNECTOR, strict, sandbox, api_url=graph.url, access=Token(ann.token)
        )
        source.sync()
        with pytest.raises(Permanent) as caught:
            content(source, "a.txt")

    assert caught.value.code == "blocked_target"
    assert graph.store.requests == []


def test_content_may_lead_on_to_another_place(graph: FakeGraph, ann: User, connect: Connect):
    file = ann.drive.file("a.txt")
    source = connect(ann)
    source.sync()
    graph.store.redirect("/first", "/second")
    graph.store.page("/second", b"moved")
    graph.store.redirect("/round", "/round")
    graph.refuse(302, at="/content", Location=graph.store.url("/first"))

    assert content(source, "a.txt").data == b"moved"
    for nowhere in ("/round", "http://[", ""):
        location = graph.store.url(nowhere) if nowhere.startswith("/") else nowhere
        graph.refuse(302, at="/content", Location=location)
        with pytest.raises((Transient, Permanent)):
            CONNECTOR.fetch(source, source.rows[file.id])


def test_a_page_to_sign_in_where_content_should_be_is_not_taken(
    graph: FakeGraph, ann: User, connect: Connect
):
    page = b"\r\n<!-- Copyright -->\r\n<!DOCTYPE html>\r\n<html><body>Sign in</body></html>"
    file = ann.drive.file("a.html", page + b" to what?")
    source = connect(ann)
    source.sync()
    graph.store.redirect("/first", "/sign-in")
    graph.store.page("/sign-in", page)
    graph.refuse(302, at="/content", Location=graph.store.url("/first"))

    with pytest.raises(Transient, match="a web page came") as caught:
        content(source, file.name)

    assert caught.value.code == "provider_unavailable"
    assert content(source, file.name).data == file.content


def test_content_that_vanished_is_not_there(graph: FakeGraph, ann: User, connect: Connect):
    file = ann.drive.file("a.txt")
    source = connect(ann)
    source.sync()
    ann.drive.delete(file)

    with pytest.raises(NotFoundError):
        content(source, "a.txt")


@pytest.mark.parametrize(
    ("attribute", "kind", "code"),
    [("locked", Transient, "provider_unavailable"), ("malware", Permanent, "malware")],
)
def test_content_that_is_not_given_out_says_why(
    ann: User, connect: Connect, attribute: str, kind: type[Transient | Permanent], code: str
):
    file = ann.drive.file("a.txt")
    source = connect(ann)
    source.sync()
    setattr(file, attribute, True)

    with pytest.raises(kind) as caught:
        content(source, "a.txt")

    assert caught.value.code == code


def test_content_that_is_too_large_is_not_read(graph: FakeGraph, ann: User, connect: Connect):
    ann.drive.file("a.txt")
    source = connect(ann)
    source.sync()
    graph.store.page("/large", b"x", headers={"Content-Length": "50000001"})
    graph.refuse(302, at="/content", Location=graph.store.url("/large"))

    with pytest.raises(Permanent) as caught:
        content(source, "a.txt")

    assert caught.value.code == "too_large"


def test_content_of_eleven_megabytes_is_read(graph: FakeGraph, ann: User, connect: Connect):
    data = b"x" * 11_000_000
    ann.drive.file("a.txt", data)
    source = connect(ann)
    source.sync()

    assert content(source, "a.txt").data == data


@pytest.mark.parametrize(
    ("status", "told", "code"),
    [
        (404, None, "provider_unavailable"),
        (401, None, "provider_unavailable"),
        (500, None, "provider_unavailable"),
        (429, "90", "rate_limited"),
        (503, "90", "provider_unavailable"),
    ],
)
def test_a_bad_day_where_content_is_kept_is_passing(
    graph: FakeGraph, ann: User, connect: Connect, status: int, told: str | None, code: str
):
    ann.drive.file("a.txt")
    source = connect(ann)
    source.sync()
    graph.store.fail_next(status, retry_after=told)

    with pytest.raises(Transient) as caught:
        content(source, "a.txt")

    assert caught.value.code == code
    assert caught.value.after == (timedelta(seconds=90) if told else None)
    assert content(source, "a.txt").data == b"text"


def test_content_that_was_cut_is_not_taken(graph: FakeGraph, ann: User, connect: Connect):
    ann.drive.file("a.txt")
    source = connect(ann)
    source.sync()

    def cut(exchange: Exchange) -> None:
        exchange.send(answer(200, b"half", {"Content-Length": "8"}))

    graph.store.route("/cut", cut)
    graph.refuse(302, at="/content", Location=graph.store.url("/cut"))

    with pytest.raises(Transient) as caught:
        content(source, "a.txt")

    assert caught.value.code == "provider_unavailable"


# --- pushes ------------------------------------------------------------------------------------


class Letterbox:
    """Where pushes go: keeps them, verified by the connector as they come."""

    def __init__(self) -> None:
        self.site = Website()
        self.site.route("/*", self._take)
        self.registrations: dict[str, Registration] = {}
        self.pushes: list[Push] = []
        self.lock = threading.Lock()

    def registration(self, id: str, *, known: bool = True) -> Registration:
        url = self.site.url(f"/v3/hooks/onedrive?registration={id}")
        made = Registration(id, ID, "root", f"secret-of-{id}", url)
        if known:
            self.registrations[id] = made
        return made

    def _take(self, exchange: Exchange) -> bool:
        push = self.opened(exchange.request)
        with self.lock:
            self.pushes.append(push)
        notice = CONNECTOR.receive(push)
        mime = {"Content-Type": "text/plain; charset=utf-8"} if notice.text else {}
        exchange.send(answer(notice.status, (notice.text or "").encode(), mime))
        return True

    def opened(self, request: Request) -> Push:
        query = dict(parse_qsl(request.path.partition("?")[2]))
        known = self.registrations.get(query.get("registration", ""))
        return Push(request.headers, query, request.body, known)


@pytest.fixture
def letterbox() -> Generator[Letterbox]:
    made = Letterbox()
    with made.site:
        yield made


@pytest.fixture
def source(ann: User, connect: Connect) -> MemorySource:
    made = connect(ann)
    made.since = datetime.now(UTC)
    return made


def notices(letterbox: Letterbox) -> list[Any]:
    return [CONNECTOR.receive(push) for push in letterbox.pushes if push.body]


@pytest.mark.parametrize("known", [True, False], ids=["known", "unknown"])
def test_the_handshake_is_answered_before_the_subscription_is_there(
    graph: FakeGraph, source: MemorySource, letterbox: Letterbox, known: bool
):
    made = CONNECTOR.subscribe(source, letterbox.registration("r1", known=known))

    [subscription] = graph.subscriptions.values()
    assert made.remote == {"id": subscription.id}
    asked = datetime.fromisoformat(subscription.given["expirationDateTime"])
    assert made.expires_at == asked - timedelta(minutes=1)
    assert asked - source.since < timedelta(minutes=42_300)
    assert subscription.given["lifecycleNotificationUrl"] == made.url
    assert len(letterbox.pushes) == 2
    assert all(not CONNECTOR.receive(push).concerned for push in letterbox.pushes)


def test_a_change_concerns_the_connection(
    graph: FakeGraph, ann: User, source: MemorySource, letterbox: Letterbox
):
    CONNECTOR.subscribe(source, letterbox.registration("r1"))

    graph.notify(ann.drive, times=3)
    graph.notify(ann.drive)

    [subscription] = graph.subscriptions.values()
    assert subscription.answers == [202, 202]
    assert [(each.concerned, each.lost) for each in notices(letterbox)] == [(True, False)] * 2


@pytest.mark.parametrize(
    ("event", "lost"),
    [("reauthorizationRequired", True), ("subscriptionRemoved", True), ("missed", False)],
)
def test_events_of_its_life_are_understood(
    graph: FakeGraph, source: MemorySource, letterbox: Letterbox, event: str, lost: bool
):
    CONNECTOR.subscribe(source, letterbox.registration("r1"))
    [subscription] = graph.subscriptions.values()

    graph.lifecycle(subscription, event)

    [notice] = notices(letterbox)
    assert (notice.status, notice.concerned, notice.lost) == (202, True, lost)


def forged(secret: Any, **more: Any) -> bytes:
    return json.dumps({"value": [{"subscriptionId": "s", "clientState": secret, **more}]}).encode()


@pytest.mark.parametrize(
    "body",
    [
        forged("wrong"),
        forged("secret-of-r2"),
        forged("secret-of-r1x"),
        forged(None),
        forged(["secret-of-r1"]),
        forged("\ud800"),
        forged("sécret"),
        forged("wrong", lifecycleEvent="subscriptionRemoved"),
        b'{"value": [{"clientState": "wrong"}, {}, 7, {"clientState": ["secret-of-r1"]}]}',
        b'{"value": []}',
        b'{"value": {"clientState": "secret-of-r1"}}',
        b"{}",
        b"[]",
        b"null",
        b"",
        b"\xff\xfe",
        b"[" * 200_000,
    ],
    ids=range(17),
)
def test_a_forged_push_is_refused(letterbox: Letterbox, body: bytes):
    known = letterbox.registration("r1")
    letterbox.registration("r2")

    assert CONNECTOR.receive(Push({}, {"registration": "r1"}, body, known)) == FORGED


@pytest.mark.parametrize(
    ("false", "true", "lost"),
    [
        ({}, {}, False),
        ({"lifecycleEvent": "subscriptionRemoved"}, {}, False),
        ({}, {"lifecycleEvent": "subscriptionRemoved"}, True),
    ],
    ids=["change", "forged loss", "loss"],
)
def test_each_notification_of_a_batch_is_judged_by_itself(
    letterbox: Letterbox, false: dict[str, str], true: dict[str, str], lost: bool
):
    known = letterbox.registration("r1")
    others = [{"clientState": "wrong", **false}, {}, 7]
    body = json.dumps({"value": [*others, {"clientState": "secret-of-r1", **true}]}).encode()

    notice = CONNECTOR.receive(Push({}, {"registration": "r1"}, body, known))

    assert (notice.status, notice.concerned, notice.lost) == (202, True, lost)


def test_a_push_for_nobody_is_taken_without_a_word(letterbox: Letterbox):
    notice = CONNECTOR.receive(Push({}, {"registration": "x"}, forged("secret"), None))

    assert (notice.status, notice.text, notice.concerned, notice.lost) == (202, None, False, False)


@pytest.mark.parametrize(
    "token",
    ["", "x" * 2049, "<script>alert(1)</script>", "a\r\nb", "a\x00", "\ud800"],
    ids=["empty", "long", "markup", "lines", "nul", "surrogate"],
)
def test_not_everything_is_a_handshake(letterbox: Letterbox, token: str):
    notice = CONNECTOR.receive(Push({}, {"validationToken": token}, b"", None))

    assert (notice.status, notice.text) == (400, None)


def test_what_is_not_reached_is_explained(graph: FakeGraph, source: MemorySource):
    nowhere = Registration("r1", ID, "root", "s", "http://127.0.0.1:9/v3/hooks?registration=r1")

    with pytest.raises(Permanent, match="reach this service") as caught:
        CONNECTOR.subscribe(source, nowhere)

    assert caught.value.code == "no_webhook"
    assert graph.subscriptions == {}


def test_a_renewed_subscription_lives_beside_the_old_one_until_that_is_removed(
    graph: FakeGraph, ann: User, source: MemorySource, letterbox: Letterbox
):
    old = CONNECTOR.subscribe(source, letterbox.registration("r1"))
    new = CONNECTOR.subscribe(source, letterbox.registration("r2"))
    graph.notify(ann.drive)
    CONNECTOR.unsubscribe(source.api, old)
    CONNECTOR.unsubscribe(source.api, old)
    graph.notify(ann.drive)

    assert [each.concerned for each in notices(letterbox)] == [True] * 3
    assert list(graph.subscriptions) == [new.remote["id"]]
    CONNECTOR.unsubscribe(source.api, letterbox.registration("r3"))


def test_the_root_is_watched(source: MemorySource):
    assert list(CONNECTOR.watches(source)) == ["root"]


# --- authorization -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mail", "name"), [(True, "ann@example.com"), (False, "ann_upn@example.onmicrosoft.com")]
)
def test_an_account_has_an_id_and_a_name(graph: FakeGraph, connect: Connect, mail: bool, name: str):
    user = graph.user("ann", mail=mail)

    account = CONNECTOR.identify(connect(user).api, Tokens(user.token))

    assert (account.id, account.name) == (user.id, name)


def test_no_more_is_asked_for_than_needed():
    assert CONNECTOR.authorized({}) == ("Files.Read", "offline_access", "User.Read")
    assert CONNECTOR.authorized({"shared": False})[0] == "Files.Read"
    assert CONNECTOR.authorized({"shared": True})[0] == "Files.Read.All"


def test_microsoft_has_no_way_to_take_one_authorization_back(graph: FakeGraph):
    assert not CONNECTOR.revoke(Endpoint(graph.url), Tokens("t"), ("id", "secret"))
    assert graph.calls() == []


CALLBACK = "http://127.0.0.1:9911/v3/connections/auth/callback/onedrive"
SEED: Mapping[str, Any] = {
    "microsoft": {
        "users": [{"email": "decoy@example.com"}, {"email": "ann@example.com", "name": "Ann"}],
        "oauth_clients": [
            {"client_id": "id", "client_secret": "s3cret-ms", "redirect_uris": [CALLBACK]}
        ],
    }
}


def test_an_account_is_authorized_at_a_peer_of_others(connect: Connect, fetcher: Fetcher):
    with behind_proxy("microsoft", SEED) as proxy, httpx.Client(trust_env=False) as browser:
        proxy.strict = True
        assert CONNECTOR.oauth is not None
        at_peer = replace(
            CONNECTOR.oauth,
            authorize_url=f"{proxy.url}/oauth2/v2.0/authorize",
            token_url=f"{proxy.url}/oauth2/v2.0/token",
        )
        client = OAuthClient("id", "s3cret-ms")

        def consent() -> tuple[str, oauth.AuthorizationLink]:
            link = oauth.begin(
                at_peer, client, redirect_uri=CALLBACK, scopes=CONNECTOR.authorized({})
            )
            asked = dict(parse_qsl(urlsplit(link.url).query))
            page = f"{proxy.url}/oauth2/v2.0/authorize/callback"
            sent = browser.post(page, data={**asked, "email": "ann@example.com"})
            answered = dict(parse_qsl(urlsplit(sent.headers["location"]).query))
            assert answered["state"] == link.state
            return answered["code"], link

        code, _ = consent()
        with pytest.raises(Reauthorize):
            oauth.exchange(at_peer, client, code, redirect_uri=CALLBACK, verifier="x" * 43)
        code, link = consent()
        first = oauth.exchange(at_peer, client, code, redirect_uri=CALLBACK, verifier=link.verifier)
        second = oauth.refresh(at_peer, client, first)
        with pytest.raises(Reauthorize):
            oauth.refresh(at_peer, client, first)
        nobody = User("", "", second.access, None, set(), None)  # pyright: ignore[reportArgumentType]
        account = CONNECTOR.identify(connect(nobody, proxy.url).api, second)

    assert oauth.missing(CONNECTOR.authorized({}), first) == []
    assert second.refresh != first.refresh
    assert account.name == "ann@example.com"


# --- Microsoft's own types as the judge of the fake --------------------------------------------


@pytest.fixture(scope="module")
def published_types(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """JSON schemas made of the published TypeScript types, by the versions of the lock file."""
    node, _ = installed()
    npm = node.parent.parent / "lib/node_modules/npm/bin/npm-cli.js"
    command = [str(node), str(npm)] if npm.exists() else ["npm"]
    folder: Path = tmp_path_factory.mktemp("graph-types")
    for name in ("package.json", "package-lock.json"):
        shutil.copy(TYPES / name, folder)
    names = ("DriveItem", "Subscription", "ChangeNotificationCollection", "User")
    fields = " ".join(f"{name}: graph.{name};" for name in names)
    (folder / "wire.ts").write_text(
        'import type * as graph from "@microsoft/microsoft-graph-types";\n'
        f"export interface Wire {{ {fields} }}\n"
    )
    flags = ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-timeout=20000"]
    make = "node_modules/ts-json-schema-generator/bin/ts-json-schema-generator.js"
    options = ["--path", "wire.ts", "--type", "Wire", "--no-type-check", "--expose", "all"]
    try:
        for step in ([*command, *flags], [str(node), make, *options, "-o", "wire.json"]):
            done = subprocess.run(
                step, cwd=folder, capture_output=True, text=True, timeout=120, check=False
            )
            if done.returncode and step[-1] != "wire.json":
                pytest.skip(f"npm cannot install the types here: {done.stderr[-300:]}")
            assert done.returncode == 0, done.stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"npm cannot install the types here: {error}")
    return json.loads((folder / "wire.json").read_text())


def faults(types: Mapping[str, Any], name: str, value: Any) -> list[str]:
    """OData annotations (@odata.type) are no part of the types."""
    schema = {"$ref": f"#/definitions/{name}", "definitions": types["definitions"]}
    found = Draft7Validator(schema).iter_errors(value)
    return [f"{name} {list(fault.path)}: {fault.message}"[:300] for fault in found]


@pytest.mark.slow  # TypeScript takes long; by day what we send is held against their own client
@pytest.mark.timeout(900)
def test_the_fake_speaks_as_microsoft_s_types_say(
    graph: FakeGraph,
    user: User,
    bob: User,
    connect: Connect,
    letterbox: Letterbox,
    published_types: Mapping[str, Any],
):
    drive = user.drive
    docs = drive.folder("Docs")
    files = [drive.file(f"{n}.txt", into=docs) for n in range(3)]
    drive.notebook("Notes")
    drive.touch(drive.file("bad.exe"), malware=True)
    team = bob.drive.folder("Team")
    bob.drive.file("b.txt", into=team)
    drive.shortcut(bob.drive, team)
    drive.shortcut(bob.drive, bob.drive.file("c.txt"))
    source = connect(user, shared=True)
    source.since = datetime.now(UTC)
    source.sync()
    drive.delete(files[0])
    drive.delete(docs)
    source.sync()
    drive.restore(docs)
    source.sync()
    CONNECTOR.identify(source.api, Tokens("unused"))
    CONNECTOR.subscribe(source, letterbox.registration("r1"))
    graph.notify(drive)
    [subscription] = graph.subscriptions.values()
    for event in ("missed", "reauthorizationRequired", "subscriptionRemoved"):
        graph.lifecycle(subscription, event)

    seen = {name for name, _ in graph.wire}
    assert seen == {"DriveItem", "Subscription", "ChangeNotificationCollection", "User"}
    assert [fault for name, value in graph.wire for fault in faults(published_types, name, value)][
        :5
    ] == []
    assert faults(published_types, "DriveItem", {"id": "1", "deleted": True})
    assert faults(published_types, "DriveItem", {"id": "1", "ctag": "x"})


# --- Microsoft's own client as the judge of what we send ---------------------------------------


@pytest.fixture(scope="module")
def sdk(request: pytest.FixtureRequest) -> Sdk:
    assert request.config.cache is not None
    return get_sdk(request.config.cache)


def test_all_that_we_send_is_in_microsoft_s_own_client(
    graph: FakeGraph, user: User, bob: User, connect: Connect, letterbox: Letterbox, sdk: Sdk
):
    """Addresses, `$` parameters, each name in `$select`, each field of what is posted."""
    drive = user.drive
    docs = drive.folder("Docs")
    kept = drive.file("kept.txt", into=docs)
    drive.delete(drive.file("old.txt", into=docs))
    team = bob.drive.folder("Team")
    bob.drive.file("b.txt", into=team)
    drive.shortcut(bob.drive, team)
    drive.shortcut(bob.drive, bob.drive.file("c.txt"))
    source = connect(user, shared=True, syncScope="selected", folders=docs.id)
    source.since = datetime.now(UTC)
    source.sync()
    elsewhere = drive.folder("Elsewhere")
    drive.file("d.txt", into=elsewhere)
    drive.move(elsewhere, docs)
    source.sync()
    CONNECTOR.fetch(source, source.rows[kept.id])
    CONNECTOR.identify(source.api, Tokens("unused"))
    made = CONNECTOR.subscribe(source, letterbox.registration("r1"))
    CONNECTOR.unsubscribe(source.api, made)

    faults: list[str] = []
    seen: set[str] = set()
    for request in graph.site.requests:
        asked = dict(parse_qsl(urlsplit(request.path).query))
        if "token" in asked:
            continue  # a link of Graph's, followed as it is
        faults += sdk.check_request(request.path)
        path = urlsplit(request.path).path
        seen.add(f"{request.method} {path.rsplit('/', 1)[1] if path.count('/') > 4 else path}")
        model = "user" if path == "/v1.0/me" else "drive_item"
        faults += sdk.check_fields(model, asked.get("$select", "id").split(","))
        if request.method == "POST":
            faults += sdk.check_fields("subscription", keys_of(request.body))
    assert faults == []
    assert {"GET delta", "GET children", "GET content", "GET /v1.0/me"} <= seen
    assert "POST /v1.0/subscriptions" in seen


@pytest.mark.parametrize(
    "target",
    [
        "/v1.0/me/drive/root/delta?$selct=id",
        "/v1.0/me/drive/root/delta?$format=json",
        "/v1.0/me/drive/items/1/chidren",
        "/v1.0/me/drives/root/delta",
        "/v1.0/drives/1/items/2/content?$select=id",
    ],
)
def test_that_judge_judges(sdk: Sdk, target: str):
    assert sdk.check_request(target)


def test_that_judge_knows_the_names_of_fields(sdk: Sdk):
    assert sdk.check_fields("drive_item", ["cTag", "publication", "malware", "id", "name"]) == []
    assert sdk.check_fields("drive_item", ["ctag", "title"]) == [
        "drive_item has no ctag",
        "drive_item has no title",
    ]


# --- with the whole of Recollect ---------------------------------------------------------------


@pytest.fixture
def served(app: App, graph: FakeGraph, db: Database) -> Generator[App]:
    """A process whose OneDrive is the fake."""
    config = app.config.model_copy(
        update={"providers": {"onedrive": ProviderSettings(api_url=graph.url)}}
    )
    yield replace(app, config=config)
    with db.begin() as tx:
        tx.execute("delete from connections where provider = 'onedrive'")


def run(app: App, connection: Connection) -> Connection:
    """Sync once, and work until all documents are done."""
    with app.db.begin() as tx:
        tx.execute("update connections set due_at = now() where id = %s", (connection.id,))
    syncs.drain(app)
    drain(app)
    with app.db.begin() as tx:
        return connections.get(tx, Tenant(connection.org_id), connection.id)


def stored(app: App, connection: Connection) -> dict[str, Document]:
    """Documents by path."""
    query = DocumentQuery(connections=[connection.id], limit=1000, with_text=True)
    with app.db.begin() as tx:
        page = documents.find(tx, Tenant(connection.org_id), query)
    return {str((document.metadata or {})["path"]): document for document in page.items}


def test_documents_follow_the_drive(served: App, tenant: Tenant, ann: User, embedder: WordEmbedder):
    docs = ann.drive.folder("Docs")
    files = [ann.drive.file(f"{n}.md", f"# Title\n\nword{n}", into=docs) for n in range(30)]
    kept = ann.drive.file("kept.md", "keep this")
    new = SealedConnection("onedrive", ["mine"], 100, {}, None, pending=False)
    with served.db.begin() as tx:
        made = connections.create(tx, tenant.id, new, ConnectionId(random_id()))
        tokens = seal_tokens(served, made.id, Tokens(ann.token))
        authorizations.keep_tokens(tx, made.id, tokens=tokens, expires_at=None)

    run(served, made)
    first = stored(served, made)
    embedder.forget()
    ann.drive.rename(docs, "Papers")
    ann.drive.edit(kept, "keep that")
    run(served, made)
    renamed = stored(served, made)
    embedded = list(embedder.texts)
    ann.drive.delete(docs)
    ann.drive.graph.forget()
    held = run(served, made)
    still = stored(served, made)
    run(served, made)
    ended = stored(served, made)

    assert len(first) == 31
    assert first["Docs/3.md"].text is not None
    assert "word3" in first["Docs/3.md"].text
    assert (first["Docs/3.md"].kind, first["Docs/3.md"].title) == ("onedrive", "3.md")
    assert {f"Papers/{thing.name}" for thing in files} | {"kept.md"} == renamed.keys()
    assert renamed["Papers/3.md"].id == first["Docs/3.md"].id
    assert embedded == ["keep that"]
    assert held.last_run is not None
    assert any("30 of 31" in note for note in held.last_run.notes)
    assert len(still) == 31
    assert list(ended) == ["kept.md"]


# --- long runs ---------------------------------------------------------------------------------


class Chance:
    """A user who does one thing after another, by lot."""

    def __init__(self, seed: int, graph: FakeGraph, drive: Drive) -> None:
        self.lot = random.Random(seed)
        self.graph = graph
        self.drive = drive
        self.bin: list[Thing] = []
        self.number = 0

    def act(self) -> None:
        self.number += 1
        drive, lot = self.drive, self.lot
        files = list(drive.files().values())
        folders = [each for each in drive.things.values() if each.folder and each.is_there]
        others = [each for each in folders if each.parent]
        folder = lot.choice(folders)
        match lot.choices(
            ["add", "folder", "edit", "rename", "move", "delete", "restore", "share", "forget"],
            [25, 12, 15, 15, 12, 10, 8, 3, 1],
        )[0]:
            case "folder":
                drive.folder(f"folder {self.number}", into=folder)
            case "edit" if files:
                drive.edit(lot.choice(files), self.words())
            case "rename" if files + others:
                drive.rename(lot.choice(files + others), f"renamed {self.number}.txt")
            case "move" if files + others:
                thing = lot.choice(files + others)
                if thing is not folder and thing not in folder.above:
                    drive.move(thing, folder)
            case "delete" if files:
                thing = lot.choice(files + others)
                drive.delete(thing)
                self.bin.append(thing)
            case "restore" if self.bin:
                thing = self.bin.pop(lot.randrange(len(self.bin)))
                # Where it was, if that is still there; else at the root.
                if not all(each.is_there for each in thing.above):
                    drive.move(thing, drive.root)
                drive.restore(thing)
            case "share" if files:
                drive.share(lot.choice(files))
            case "forget":
                self.graph.forget(location=lot.choice(["own", None]))
            case _:
                drive.file(f"{self.number}.txt", self.words(), into=folder)

    def words(self) -> str:
        return f"text {self.lot.randint(0, 1000)}"


@pytest.mark.parametrize(
    ("seed", "kind", "selected"),
    [
        (1, "business", False),
        (2, "personal", False),
        (3, "business", True),
        (4, "personal", True),
    ],
)
def test_after_300_operations_with_faults_nothing_diverges(
    graph: FakeGraph, connect: Connect, seed: int, kind: Any, selected: bool
):
    """Faults in every tenth call, and every fifth sync is killed somewhere."""
    user = graph.user("ann", kind=kind)
    drive = user.drive
    docs = drive.folder("Docs")
    for n in range(15):
        drive.file(f"{n}.txt", str(n), into=docs if n % 2 else drive.root)
    chance, moods = Chance(seed, graph, drive), random.Random(seed)
    source = connect(user, **({"syncScope": "selected", "folders": docs.id} if selected else {}))
    graph.page, graph.children_first = 7, seed % 2 == 0
    graph.moody(moods)
    whole = partial = killed = 0
    for operation in range(300):
        chance.act()
        if operation % 3:
            continue
        try:
            if moods.random() < 0.2:
                changes = CONNECTOR.changes(source, source.cursor)
                for _, change in zip(range(moods.randint(1, 30)), changes, strict=False):
                    source._apply(change, set())
                killed += 1
            else:
                source.sync()
                whole += 1
        except Transient:
            partial += 1
        except CursorExpired:
            source.cursor = None
    graph.moody(None)

    follow(source)

    assert local(source) == remote(drive, docs if selected else None)
    assert min(whole, killed) > 5
    assert partial > 0
    assert {type(change) for change in source.sync()} == {Checkpoint}
    there = {id for id, thing in drive.things.items() if thing.folder and thing.is_there}
    # What is in a folder out of scope need not be known.
    assert (
        source.known_folders.keys() <= there if selected else source.known_folders.keys() == there
    )
