"""Files that were uploaded."""

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path
from shutil import which

import pytest

from recollect.blobs import NOTE, FolderBlobs, is_new, keeps_any, new_key, open_blobs
from recollect.errors import DISK_FULL, Permanent, SetupError, Unavailable
from recollect.model import OrgId

_AS_ROOT = ("unshare", "--user", "--map-root-user")
_NAMESPACE = (
    os.geteuid() == 0
    and which("unshare") is not None
    and subprocess.run([*_AS_ROOT, "true"], check=False, capture_output=True).returncode == 0
)


def test_a_file_and_each_folder_that_names_it_are_on_the_disk_when_it_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    flushed: set[int] = set()
    flush = os.fsync

    def watched(handle: int) -> None:
        flushed.add(os.fstat(handle).st_ino)
        flush(handle)

    monkeypatch.setattr(os, "fsync", watched)
    blobs, key = FolderBlobs(tmp_path / "blobs"), new_key(OrgId("org"), b"a file")

    blobs.put(key, b"a file")

    path = tmp_path / "blobs" / key
    assert blobs.get(key) == b"a file"
    named = [path, *path.parents[: len(Path(key).parts)]]
    assert {one.stat().st_ino for one in named} <= flushed


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may write into another user's folder")
def test_what_root_puts_into_the_folder_of_another_user_is_that_users(tmp_path: Path):
    """As `sudo recollect serve` does, once, where a service user runs it otherwise."""
    blobs = FolderBlobs(tmp_path / "blobs")
    os.chown(tmp_path / "blobs", 54321, 54322)

    blobs.put("org/aa/file", b"bytes")

    made = [tmp_path / "blobs" / name for name in ("org", "org/aa", "org/aa/file")]
    assert [(one.stat().st_uid, one.stat().st_gid) for one in made] == [(54321, 54322)] * 3


@pytest.mark.skipif(not _NAMESPACE, reason="the system opens no namespace of users")
def test_root_of_a_container_writes_where_the_owner_of_the_folder_is_unknown_in_it(tmp_path: Path):
    """chown(2) gives EINVAL there, as without a range of ids for the user who started it."""
    FolderBlobs(tmp_path / "blobs").put("org/aa/first", b"bytes")
    for folder in (tmp_path / "blobs", tmp_path / "blobs/org", tmp_path / "blobs/org/aa"):
        folder.chmod(0o777)
    os.chown(tmp_path / "blobs", 54321, 54322)
    put = (
        "import sys; from pathlib import Path; from recollect.blobs import FolderBlobs;"
        " FolderBlobs(Path(sys.argv[1])).put('org/aa/file', b'bytes')"
    )

    subprocess.run([*_AS_ROOT, sys.executable, "-c", put, str(tmp_path / "blobs")], check=True)

    assert (tmp_path / "blobs/org/aa/file").read_bytes() == b"bytes"


def test_a_folder_that_is_away_is_no_folder_without_files(tmp_path: Path):
    """As of a volume that was unmounted: the empty folder under it is there."""
    folder, kept = tmp_path / "blobs", tmp_path / "kept"
    blobs = FolderBlobs(folder)
    blobs.put("org/aa/file", b"bytes")
    folder.rename(kept)
    folder.mkdir()

    for use in (
        lambda: blobs.get("org/aa/file"),
        lambda: blobs.put("org/aa/other", b"bytes"),
        lambda: blobs.delete("org/aa/file"),
        lambda: list(blobs.older_than(timedelta())),
    ):
        with pytest.raises(Unavailable, match="is away"):
            use()

    folder.rmdir()
    kept.rename(folder)
    assert blobs.get("org/aa/file") == b"bytes"
    assert not (folder / "org/aa/other").exists()


def test_a_command_does_not_take_an_empty_folder_for_the_one_that_is_away(tmp_path: Path):
    mounted = tmp_path / "not mounted"
    mounted.mkdir()

    for folder in (mounted, mounted / "files"):
        away = open_blobs(folder.as_uri(), used=True)

        with pytest.raises(Unavailable, match="away"):
            away.get("org/aa/one")
        with pytest.raises(Unavailable, match="away"):
            away.put("org/aa/one", b"bytes")
        with pytest.raises(Unavailable, match="away"):
            away.delete("org/aa/one")
    assert list(mounted.iterdir()) == []


def test_what_others_keep_in_the_folder_is_none_of_the_files_to_be_removed(tmp_path: Path):
    blobs, key = FolderBlobs(tmp_path), new_key(OrgId("org"), b"bytes")
    blobs.put(key, b"bytes")
    (tmp_path / f"{key}.part").write_bytes(b"by")
    for name in (b"notes.txt", b"org/photo.jpg", b"no \xff UTF-8"):
        Path(os.fsdecode(bytes(tmp_path) + b"/" + name)).write_bytes(b"mine")

    assert set(blobs.older_than(timedelta(seconds=-60))) == {key, f"{key}.part"}


def test_a_folder_that_cannot_be_made_is_a_matter_of_settings(tmp_path: Path):
    (tmp_path / "file").touch()

    with pytest.raises(SetupError, match="cannot be read or written: Not a directory"):
        open_blobs((tmp_path / "file/blobs").as_uri())
    # As one that belongs to another user. What cannot be looked at ends a start in one line, too.
    closed = (tmp_path / ("x" * 300)).as_uri()
    for look in (is_new, open_blobs, lambda url: keeps_any(url, ["org/aa/one"])):
        with pytest.raises(SetupError, match="cannot be read or written: File name too long"):
            look(closed)


def test_one_file_that_cannot_be_read_is_lost_and_the_store_is_not(tmp_path: Path):
    blobs = FolderBlobs(tmp_path)
    (tmp_path / "org/aa/file").mkdir(parents=True)

    with pytest.raises(Permanent, match="Is a directory") as caught:
        blobs.get("org/aa/file")

    assert caught.value.code == "missing_blob"


def test_a_file_that_cannot_be_written_leaves_nothing(tmp_path: Path):
    blobs = FolderBlobs(tmp_path)
    (tmp_path / "org/aa/file").mkdir(parents=True)

    with pytest.raises(Unavailable):
        blobs.put("org/aa/file", b"bytes")

    assert {path.name for path in tmp_path.rglob("*") if path.is_file()} == {NOTE}


def test_a_full_disk_is_told_from_a_folder_that_is_away(tmp_path: Path):
    blobs = FolderBlobs(tmp_path)
    (tmp_path / "org/aa").mkdir(parents=True)
    (tmp_path / "org/aa/file.part").symlink_to("/dev/full")

    with pytest.raises(Unavailable, match="No space left") as caught:
        blobs.put("org/aa/file", b"bytes")

    assert caught.value.code == DISK_FULL
