"""A folder of the machine that the service runs on, where the operator opens it.

There is no feed of changes: each sync lists the folder and compares what each file looks like with
what is remembered. That asks nothing of the files that did not change, so it is done often.
"""

import os
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from recollect.config import Config
from recollect.connectors._patterns import patterns, wrong
from recollect.connectors.base import (
    Assumption,
    Change,
    Connector,
    Cursor,
    LocalFolders,
    Source,
)
from recollect.connectors.folder import _disk
from recollect.connectors.folder._guide import GUIDE
from recollect.connectors.folder._pass import LARGEST, FolderPass, FolderScope, away
from recollect.errors import Permanent
from recollect.fetch import Fetcher
from recollect.model import Blob, Remembered

SETTING = "RECOLLECT_FOLDERS"


class LocalFolder(Connector):
    provider = "folder"
    name = "Folder"
    guide = GUIDE
    subject = "path"
    tree = True
    interval = timedelta(minutes=5)

    def check(self, metadata: Mapping[str, Any], fetcher: Fetcher) -> dict[str, Any]:
        given = metadata.get("path")
        if not isinstance(given, str) or not given.strip():
            raise wrong("path", "required: a folder on the machine of the service")
        given = given.strip()
        if (
            not given.startswith("/")
            or "\0" in given
            or len(os.fsencode(given)) > os.pathconf("/", "PC_PATH_MAX")
        ):
            raise wrong("path", "must be an absolute path, such as /srv/papers")
        for key in ("includePatterns", "excludePatterns"):
            patterns(metadata, key)
        # Without `..`: what a path means must not depend on what is a link.
        return {**metadata, "path": os.path.normpath(f"/{given.lstrip('/')}")}

    def obstacle(self, config: Config) -> str | None:
        if config.folders:
            return None
        return (
            f"set {SETTING} to the folders of this machine that may be connected,"
            " such as /srv/papers"
        )

    def admit(self, metadata: Mapping[str, Any], config: Config) -> None:
        super().admit(metadata, config)
        path = Path(metadata["path"])
        local = LocalFolders.of(config)
        root = next((one for one in local.open if path == one or one in path.parents), None)
        if root is None:
            raise wrong("path", f"is not below a folder of {SETTING}; ask the operator to add it")
        if any(path == one or one in path.parents for one in local.own):
            raise wrong("path", "belongs to the service itself")
        # Workers may run on another machine: only where the root is here, its folders must be.
        if root.is_dir() and not path.is_dir():
            raise wrong("path", "there is no such folder on the machine of the service")

    def diagnose(self, config: Config) -> Iterator[Assumption]:
        for folder in config.folders:
            usable = folder.is_dir() and os.access(folder, os.R_OK | os.X_OK)
            told = "can be read"
            if not usable:
                told = (
                    f"cannot be read; let the service's user read it, or take it out of {SETTING}"
                )
            yield Assumption("folder", usable, f"{folder} {told}")

    def changes(self, source: Source, cursor: Cursor | None) -> Iterator[Change]:
        scope = FolderScope.of(source.metadata)
        with _disk.opened_root(scope.path, source.local) as root:
            yield from FolderPass(source, cursor, root).run()

    def fetch(self, source: Source, item: Remembered) -> Blob:
        scope = FolderScope.of(source.metadata)
        parts = item.id.split("/")
        with _disk.opened_root(scope.path, source.local) as root:
            try:
                data = _disk.read(root, parts, LARGEST)
            except OSError as error:
                if error.errno in _disk.DENIED:
                    raise Permanent(
                        "the user of the service may not read the file", code="access_denied"
                    ) from error
                # Whether the file is gone or its disk is, only a listing can tell.
                raise away(item.id, error) from error
        if data is None:
            raise Permanent(f"is larger than {LARGEST // 1_000_000} MB", code="too_large")
        return Blob(data, name=parts[-1])

    def assumptions(self, source: Source) -> Iterator[Assumption]:
        scope = FolderScope.of(source.metadata)
        with _disk.opened_root(scope.path, source.local) as root:
            count = len(os.listdir(root))
        yield Assumption("folder", True, f"{scope.path} is there, with {count:,} entries")
