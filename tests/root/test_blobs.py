"""Files that were uploaded."""

import os
from pathlib import Path

import pytest

from recollect.blobs import FolderBlobs, new_key
from recollect.model import OrgId


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
