"""A folder as a connection: what it takes, what never leads out of it, and what keeps documents."""

import ctypes
import os
import socket
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar, cast

import httpx
import pytest
from starlette.testclient import TestClient

from recollect.api import create_app
from recollect.app import App
from recollect.config import Config
from recollect.connectors.base import Change, Checkpoint, Item, Listing, LocalFolders
from recollect.connectors.folder import LocalFolder, _pass
from recollect.connectors.folder._pass import AT_ONCE
from recollect.errors import BadRequestError, Permanent, RecollectError, Transient
from recollect.extract import Sandbox
from recollect.fetch import Fetcher
from recollect.model import Blob
from recollect.worker import syncs
from recollect.worker.processing import drain
from tests.connectors.memory import NOW, MemorySource

LONG_AGO = 1_600_000_000
NOBODY = 65_534
T = TypeVar("T")
SECRET = "the secret of another folder"


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(workers=1) as sandbox:
        yield sandbox


@pytest.fixture(scope="module")
def fetcher() -> Iterator[Fetcher]:
    with Fetcher(user_agent="test") as fetcher:
        yield fetcher


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The folder that is open; `papers` in it is connected, and `secret` beside it is not open."""
    (tmp_path / "secret").mkdir()
    (tmp_path / "secret" / "key.txt").write_text(SECRET)
    (tmp_path / "open" / "papers").mkdir(parents=True)
    return tmp_path / "open" / "papers"


@pytest.fixture
def source(root: Path, sandbox: Sandbox, fetcher: Fetcher) -> MemorySource:
    return connected(root, sandbox, fetcher)


def connected(path: Path, sandbox: Sandbox, fetcher: Fetcher) -> MemorySource:
    return MemorySource(
        LocalFolder(),
        fetcher,
        sandbox,
        metadata={"path": str(path)},
        local=LocalFolders([path.parent]),
    )


def write(path: Path, text: str | bytes = "Words of it.", *, at: int = LONG_AGO) -> Path:
    """A file that looks as if it had been there for long."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    os.utime(path, (at, at))
    return path


def sync(source: MemorySource) -> list[Change]:
    return source.sync(at=source.since + timedelta(minutes=5))


def verdicts(source: MemorySource) -> dict[str, str]:
    return {row.id: row.verdict for row in source.rows.values() if row.verdict != "document"}


def read(source: MemorySource, id: str) -> bytes:
    found = source.connector.fetch(source, source.rows[id])
    assert isinstance(found, Blob)
    return found.data


def as_nobody(work: Callable[[], T]) -> T:
    """As a user who may not read everything: root may."""
    if os.geteuid() != 0:
        return work()
    libc = ctypes.CDLL(None)

    def unprivileged() -> T:
        libc.setfsuid(NOBODY)  # of this thread alone
        libc.setfsgid(NOBODY)
        return work()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(unprivileged).result()


# --- what the operator opens ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "why"),
    [
        (None, "required"),
        (7, "required"),
        ("papers", "absolute path"),
        ("~/papers", "absolute path"),
        ("{open}/a\0b", "absolute path"),
        ("/" + "x" * 5_000, "absolute path"),
        ("/", "not below a folder of RECOLLECT_FOLDERS"),
        ("{open}/../secret", "not below a folder of RECOLLECT_FOLDERS"),
        ("{open}-not", "not below a folder of RECOLLECT_FOLDERS"),
        ("{open}/none", "no such folder"),
        ("{open}/file.txt", "no such folder"),
        ("{open}/data/blobs", "belongs to the service"),
    ],
)
def test_a_path_is_refused_with_the_reason(
    root: Path, fetcher: Fetcher, path: object, why: str
) -> None:
    write(root.parent / "file.txt")
    config = Config(folders=[root.parent], data_dir=root.parent / "data")
    given = path.replace("{open}", str(root.parent)) if isinstance(path, str) else path
    with pytest.raises(BadRequestError, match=why):
        LocalFolder().admit(LocalFolder().check({"path": given}, fetcher), config)


def test_settings_name_folders_by_whole_paths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECOLLECT_FOLDERS", "/srv/papers, /srv/a/../mail")
    assert Config().folders == [Path("/srv/papers"), Path("/srv/mail")]
    monkeypatch.setenv("RECOLLECT_FOLDERS", "papers")
    with pytest.raises(ValueError, match="not an absolute path"):
        Config()


def test_without_the_setting_nobody_can_connect_one(app: App, key: str, root: Path) -> None:
    headers = {"authorization": f"Bearer {key}"}
    body = {"metadata": {"path": str(root)}}
    with TestClient(create_app(app), headers=headers) as http:
        refused = cast("httpx.Client", http).post("/v3/connections/folder", json=body)
        assert refused.status_code == 400
        assert "set RECOLLECT_FOLDERS" in refused.text
    opened = replace(app, config=app.config.model_copy(update={"folders": [root.parent]}))
    with TestClient(create_app(opened), headers=headers) as http:
        made = cast("httpx.Client", http).post("/v3/connections/folder", json=body)
        assert made.status_code == 200, made.text
        outside = {"metadata": {"path": str(root.parent.parent / "secret")}}
        id = made.json()["id"]
        changed = cast("httpx.Client", http).patch(f"/v3/connections/{id}", json=outside)
        assert changed.status_code == 400
        assert "RECOLLECT_FOLDERS" in changed.text


def test_a_folder_that_is_closed_again_keeps_its_documents(
    source: MemorySource, root: Path
) -> None:
    write(root / "a.txt")
    sync(source)
    source.local = LocalFolders([root / "deeper"])
    with pytest.raises(Permanent, match="RECOLLECT_FOLDERS") as caught:
        sync(source)
    assert caught.value.code == "not_allowed"
    with pytest.raises(Permanent, match="RECOLLECT_FOLDERS"):
        read(source, "a.txt")
    assert set(source.items) == {"a.txt"}


def test_the_services_own_folders_are_left_out_by_whatever_path(
    source: MemorySource, root: Path
) -> None:
    write(root / "data" / "secrets" / "key.txt", SECRET)
    write(root / "a.txt")
    (root.parent / "alias").symlink_to(root / "data")
    source.local = LocalFolders([root.parent], [root.parent / "alias"])
    sync(source)

    assert set(source.items) == {"a.txt"}
    assert verdicts(source) == {"data/": "own"}
    source.metadata = {"path": str(root / "data" / "secrets")}
    with pytest.raises(Permanent, match="the service itself"):
        sync(source)


def test_doctor_tells_of_folders_that_cannot_be_read(root: Path) -> None:
    config = Config(folders=[root, root / "none"])
    assert [one.holds for one in LocalFolder().diagnose(config)] == [True, False]


# --- what it takes -------------------------------------------------------------------------------


def test_files_become_documents_under_their_paths(source: MemorySource, root: Path) -> None:
    write(root / "b" / "c.md", "# Weirs")
    write(root / "Öl & Gas.txt", "Größe")
    write(root / "line\nbreak.txt")
    said = sync(source)

    assert set(source.items) == {"b/c.md", "Öl & Gas.txt", "line\nbreak.txt"}
    item = source.items["b/c.md"]
    assert (item.title, item.url) == ("c.md", f"file://{root}/b/c.md")
    assert item.metadata["path"] == "b/c.md"
    assert item.modified_at is not None
    assert isinstance(said[0], Listing)
    assert read(source, "Öl & Gas.txt") == "Größe".encode()


def test_what_becomes_no_document_is_named_with_the_reason(
    source: MemorySource, root: Path
) -> None:
    write(root / "empty.txt", "")
    write(root / "tool.exe", b"MZ\x90\0" + bytes(range(256)) * 9)
    with (root / "huge.txt").open("wb") as file:
        file.truncate(50_000_001)
    for hidden in (".env", ".git/config", "~$a.docx", "Thumbs.db"):
        write(root / hidden, SECRET)
    write(Path(os.fsdecode(os.fsencode(root) + b"/caf\xe9.txt")))
    write(root.joinpath(*["d"] * 120, "deep.txt"))
    sync(source)

    assert not source.items
    assert verdicts(source) == {
        "empty.txt": "empty",
        "tool.exe": "unsupported",
        "huge.txt": "too_large",
        "caf\ufffd.txt": "bad_name",
        "/".join(["d"] * 101) + "/": "too_deep",
    }
    before = {id: os.stat(root / "tool.exe").st_atime_ns for id in ("tool.exe",)}
    sync(source)
    assert {"tool.exe": os.stat(root / "tool.exe").st_atime_ns} == before, "it is not read again"


def test_patterns_narrow_it_and_excluded_folders_are_not_opened(
    source: MemorySource, root: Path
) -> None:
    for path in ("a.md", "b.txt", "drafts/c.md", "x/drafts/d.md", "x/Node_Modules/e.md"):
        write(root / path)
    source.metadata = {
        **source.metadata,
        "includePatterns": "*.md",
        "excludePatterns": "drafts/*\n*/node_modules/*",
    }
    sync(source)

    assert set(source.items) == {"a.md", "x/drafts/d.md"}
    assert verdicts(source) == {
        "b.txt": "filtered",
        "drafts/": "filtered",
        "x/Node_Modules/": "filtered",
    }
    source.metadata = {**source.metadata, "includePatterns": "", "excludePatterns": "*.md"}
    sync(source)
    assert set(source.items) == {"b.txt"}


# --- what changes --------------------------------------------------------------------------------


def test_what_only_looks_changed_keeps_its_version_and_what_changed_is_found(
    source: MemorySource, root: Path
) -> None:
    path = write(root / "a.txt", "one")
    sync(source)
    first = source.items["a.txt"].version
    os.utime(path, (LONG_AGO + 9, LONG_AGO + 9))
    sync(source)
    assert source.items["a.txt"].version == first
    write(path, "two", at=LONG_AGO + 10)
    sync(source)
    assert source.items["a.txt"].version != first


def test_a_change_within_one_tick_of_the_clock_is_found(source: MemorySource, root: Path) -> None:
    path = root / "a.txt"
    path.write_text("one")
    about = path.stat()
    sync(source)
    first = source.items["a.txt"].version
    path.write_text("two")
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
    sync(source)

    assert source.items["a.txt"].version != first


def test_a_file_from_the_future_is_read_once(source: MemorySource, root: Path) -> None:
    write(root / "a.txt", at=int(time.time()) + 86_400)
    sync(source)
    assert "racy" not in source.rows["a.txt"].extra


def test_a_renamed_file_keeps_its_document(source: MemorySource, root: Path) -> None:
    write(root / "a.txt", "The words.")
    sync(source)
    (root / "x").mkdir()
    (root / "a.txt").rename(root / "x" / "b.txt")
    [item] = [one for one in sync(source) if isinstance(one, Item)]

    assert (item.id, item.formerly) == ("x/b.txt", "a.txt")
    assert set(source.items) == {"x/b.txt"}


def test_copies_links_and_another_file_with_the_inode_are_no_renames(
    source: MemorySource, root: Path
) -> None:
    write(root / "a.txt", "The words.")
    write(root / "c.txt", "Of the third.")
    sync(source)
    os.link(root / "a.txt", root / "a2.txt")
    write(root / "copy.txt", "The words.")
    # Rotated: the old file has another name, and a new one stands in its place.
    (root / "c.txt").rename(root / "c.1.txt")
    write(root / "c.txt", "Of the fourth.")
    said = [one for one in sync(source) if isinstance(one, Item)]

    assert [one.formerly for one in said] == [None] * 5
    assert set(source.items) == {"a.txt", "a2.txt", "copy.txt", "c.txt", "c.1.txt"}

    inode = (root / "c.txt").stat().st_ino
    (root / "c.txt").rename(root / "d.txt")
    write(root / "d.txt", "Something else altogether.")
    assert (root / "d.txt").stat().st_ino == inode
    [item] = [one for one in sync(source) if isinstance(one, Item) and one.id == "d.txt"]
    assert item.formerly is None


def test_a_deletion_is_followed(source: MemorySource, root: Path) -> None:
    write(root / "a.txt")
    write(root / "b" / "c.txt")
    sync(source)
    (root / "b" / "c.txt").unlink()
    (root / "b").rmdir()
    sync(source)
    assert set(source.items) == {"a.txt"}


def test_a_listing_that_is_cut_off_goes_on_behind_what_was_stored(
    source: MemorySource, root: Path
) -> None:
    names = [f"{n:03}.txt" for n in range(AT_ONCE + 20)]
    for folder in ("", "a", "a/b", "c"):
        for name in names:
            write(root / folder / name, f"{folder} {name}")
    expected = {
        f"{folder}/{name}".lstrip("/") for folder in ("", "a", "a/b", "c") for name in names
    }
    paths: list[str] = []
    cuts = 0
    done = False
    while not done:
        heard = LocalFolder().changes(source, source.cursor)
        assert isinstance(heard, Generator)
        batch: list[Change] = []
        for change in heard:
            batch.append(change)
            if isinstance(change, Checkpoint):
                break
        heard.close()
        for change in batch:
            source._apply(change, set())
        paths += [change.id for change in batch if isinstance(change, Item)]
        done = source.cursor is not None and source.cursor["after"] is None
        cuts += not done

    assert cuts >= 4
    assert sorted(paths) == sorted(expected), "each is said once"
    assert set(source.items) == expected


def test_a_folder_that_vanishes_while_it_is_listed_costs_nothing_else(
    source: MemorySource, root: Path
) -> None:
    for name in ("a.txt", "b/c.txt", "d/e.txt"):
        write(root / name)
    heard = LocalFolder().changes(source, None)
    said = [next(heard), next(heard)]
    (root / "b" / "c.txt").unlink()
    (root / "b").rmdir()
    write(root / "d" / "new.txt")
    said += heard

    assert {one.id for one in said if isinstance(one, Item)} == {"a.txt", "d/e.txt", "d/new.txt"}


# --- what never leads out ------------------------------------------------------------------------


def test_links_are_not_followed(source: MemorySource, root: Path) -> None:
    secret = root.parent.parent / "secret"
    (root / "file.txt").symlink_to(secret / "key.txt")
    (root / "folder").symlink_to(secret)
    (root / "up").symlink_to("..")
    (root / "loop").symlink_to("loop")
    sync(source)

    assert not source.items
    assert verdicts(source) == dict.fromkeys(("file.txt", "folder", "up", "loop"), "link")


@pytest.mark.parametrize("name", ["linked", "linked/within"])
def test_a_connection_of_a_link_is_refused(
    root: Path, sandbox: Sandbox, fetcher: Fetcher, name: str
) -> None:
    (root.parent.parent / "secret" / "within").mkdir()
    (root.parent / "linked").symlink_to(root.parent.parent / "secret")
    source = connected(root, sandbox, fetcher)
    source.metadata = {"path": str(root.parent / name)}
    with pytest.raises(Permanent, match="name the folder itself") as caught:
        sync(source)
    assert caught.value.code == "no_folder"


def test_special_files_are_named_and_never_opened(
    source: MemorySource, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(root / "pipe.txt")
    with socket.socket(socket.AF_UNIX) as listening:
        monkeypatch.chdir(root)  # the path of a socket is short
        listening.bind("socket.txt")
        sync(source)

    assert verdicts(source) == {"pipe.txt": "special", "socket.txt": "special"}


def _link(path: Path, secret: Path) -> None:
    path.unlink()
    path.symlink_to(secret / "key.txt")


def _pipe(path: Path, secret: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _folder_linked(path: Path, secret: Path) -> None:
    path.rename(secret / path.name)
    path.parent.rmdir()
    path.parent.symlink_to(secret)


def _above_linked(path: Path, secret: Path) -> None:
    """`papers/b` becomes `secret`, which has a `a.txt` of its own."""
    (secret / "a.txt").write_text(SECRET)
    path.parent.rename(path.parent.with_name("moved"))
    path.parent.symlink_to(secret)


SWAPS = [_link, _pipe, _folder_linked, _above_linked]


@pytest.mark.parametrize("swap", SWAPS, ids=lambda swap: swap.__name__)
def test_what_is_swapped_between_listing_and_reading_is_not_read(
    source: MemorySource, root: Path, swap: Callable[[Path, Path], None]
) -> None:
    path = write(root / "b" / "a.txt", "harmless")
    sync(source)
    swap(path, root.parent.parent / "secret")
    with pytest.raises(Transient, match=r"b/a\.txt cannot be read"):
        read(source, "b/a.txt")


@pytest.mark.parametrize("swap", SWAPS, ids=lambda swap: swap.__name__)
def test_what_is_swapped_while_it_is_listed_is_not_read(
    source: MemorySource, root: Path, swap: Callable[[Path, Path], None]
) -> None:
    write(root / "0.txt")
    path = write(root / "b" / "a.txt", "harmless")
    heard = LocalFolder().changes(source, None)
    said = [next(heard), next(heard)]  # the names of the folder are known by now
    swap(path, root.parent.parent / "secret")
    said += heard
    versions = {one.version for one in said if isinstance(one, Item)}

    write(root.parent / "known.txt", SECRET)
    other = MemorySource(
        LocalFolder(),
        source.fetcher,
        source.sandbox,
        metadata={"path": str(root.parent)},
        local=LocalFolders([root.parent]),
    )
    sync(other)
    assert other.items["known.txt"].version not in versions
    assert {one.id for one in said if isinstance(one, Item)} == {"0.txt"}


# --- what keeps documents ------------------------------------------------------------------------


def test_what_may_not_be_read_is_named_and_its_documents_stay(
    short_tmp: Path, sandbox: Sandbox, fetcher: Fetcher
) -> None:
    root = short_tmp / "open" / "papers"  # what is above `tmp_path` is closed to others
    source = connected(root, sandbox, fetcher)
    for name in ("a.txt", "b/c.txt", "d.txt", "b/e/f.txt"):
        write(root / name)
    sync(source)
    (root / "d.txt").unlink()
    write(root / "a.txt", "Changed.", at=LONG_AGO + 1)
    os.chmod(root / "a.txt", 0)
    os.chmod(root / "b", 0)
    try:
        as_nobody(lambda: sync(source))
        assert set(source.items) == {"a.txt", "b/c.txt", "b/e/f.txt"}
        assert verdicts(source) == {"b/": "unreadable"}
        assert "may not read" in (source.rows["a.txt"].detail or "")
        with pytest.raises(Permanent, match="may not read"):
            as_nobody(lambda: read(source, "a.txt"))
    finally:
        os.chmod(root / "b", 0o755)
        os.chmod(root / "a.txt", 0o644)
    sync(source)
    assert set(source.items) == {"a.txt", "b/c.txt", "b/e/f.txt"}
    assert verdicts(source) == {}


@pytest.mark.parametrize("left", ["nothing", "an empty folder", "a folder with a note"])
def test_a_folder_that_is_away_is_an_error_and_no_deletion(
    source: MemorySource, root: Path, left: str
) -> None:
    for n in range(5):
        write(root / f"{n}.txt")
    sync(source)
    root.rename(root.with_name("elsewhere"))
    if left != "nothing":
        root.mkdir()
    if left == "a folder with a note":
        write(root / "NOT MOUNTED.txt")
    for _ in range(3):
        with pytest.raises(Transient, match="Is it mounted") as caught:
            sync(source)
        assert caught.value.code == "provider_unavailable"
    assert len(source.items) == 5
    if left == "nothing":
        with pytest.raises(Transient, match="Is it mounted"):
            read(source, "1.txt")
    if left != "nothing":
        for stray in root.iterdir():
            stray.unlink()
        root.rmdir()
    root.with_name("elsewhere").rename(root)
    (root / "3.txt").unlink()
    sync(source)
    assert set(source.items) == {"0.txt", "1.txt", "2.txt", "4.txt"}


def test_a_disk_that_goes_away_between_listing_and_reading_keeps_its_documents(
    app: App, key: str, root: Path
) -> None:
    opened = replace(app, config=app.config.model_copy(update={"folders": [root.parent]}))
    write(root / "a.txt", "Words that were read before.")
    with TestClient(create_app(opened), headers={"authorization": f"Bearer {key}"}) as client:
        http = cast("httpx.Client", client)
        body = {"metadata": {"path": str(root)}, "containerTags": ["notes"]}
        id = http.post("/v3/connections/folder", json=body).json()["id"]
        syncs.drain(opened)
        drain(opened)
        [before] = http.post("/v3/documents/list", json={}).json()["memories"]
        assert before["status"] == "done"

        write(root / "a.txt", "Other words.", at=LONG_AGO + 1)
        assert http.post(f"/v3/connections/{id}/sync").is_success
        syncs.drain(opened)
        root.rename(root.with_name("elsewhere"))
        root.mkdir()
        for _ in range(3):
            with app.db.begin() as tx:
                tx.execute("update documents set due_at = now()")
            drain(opened)
        root.rmdir()
        root.with_name("elsewhere").rename(root)
        with app.db.begin() as tx:
            tx.execute("update documents set due_at = now()")
        drain(opened)
        [after] = http.post("/v3/documents/list", json={}).json()["memories"]
        assert (after["id"], after["status"]) == (before["id"], "done")
        assert "Other" in http.get(f"/v3/documents/{after['id']}").json()["content"]


def test_a_folder_that_was_restored_is_the_same(source: MemorySource, root: Path) -> None:
    for n in range(3):
        write(root / f"{n}.txt", f"Text {n}.")
    sync(source)
    root.rename(root.with_name("old"))
    for n in range(2):
        write(root / f"{n}.txt", f"Text {n}.")
    sync(source)
    assert set(source.items) == {"0.txt", "1.txt"}


def test_a_folder_that_was_emptied_is_empty(source: MemorySource, root: Path) -> None:
    write(root / "a.txt")
    sync(source)
    (root / "a.txt").unlink()
    sync(source)
    assert not source.items


@pytest.mark.parametrize("gone", [False, True])
def test_a_disk_within_the_folder_that_is_away_keeps_its_documents(
    source: MemorySource, root: Path, gone: bool
) -> None:
    """What a sync notes of a disk that is mounted there; the tests cannot mount one."""
    write(root / "a.txt")
    write(root / "usb" / "b.txt")
    sync(source)
    assert source.cursor is not None
    source.cursor = {**source.cursor, "mounts": ["usb"]}
    (root / "usb" / "b.txt").unlink()
    if gone:
        (root / "usb").rmdir()
    for _ in range(3):
        sync(source)
        assert set(source.items) == {"a.txt", "usb/b.txt"}
        assert source.cursor["mounts"] == ["usb"]
    assert "gone" in (source.rows["usb/b.txt"].detail or "")

    write(root / "usb" / "c.txt")
    sync(source)
    assert set(source.items) == {"a.txt", "usb/c.txt"}, "it is a folder like any other now"


def test_a_cursor_of_another_shape_counts_as_none(source: MemorySource, root: Path) -> None:
    write(root / "a.txt")
    for cursor in (
        {"path": str(root), "after": 7, "mounts": 3},
        {"x": 1},
        {"path": [], "began": 1},
    ):
        source.cursor = cast("Any", cursor)
        sync(source)
        assert set(source.items) == {"a.txt"}


def test_too_many_entries_are_refused_before_anything_is_taken_for_gone(
    source: MemorySource, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(5):
        write(root / f"{n}.txt")
    sync(source)
    monkeypatch.setattr(_pass, "MOST_ENTRIES", 3)
    with pytest.raises(RecollectError, match="more than 3 entries"):
        sync(source)
    assert len(source.items) == 5
    assert source.since > NOW
