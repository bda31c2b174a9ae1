"""The files of one repository, as changes; what was renamed keeps its document."""

import hashlib
import re
from collections.abc import Generator, Mapping, Sequence
from urllib.parse import quote

from recollect.connectors.base import (
    Change,
    Checkpoint,
    Item,
    Listed,
    Listing,
    Source,
    Verdict,
)
from recollect.connectors.github._picked import State, cursor_of
from recollect.connectors.github._repository import RepositoryFile, RepositoryLook

KIND = "github_markdown"
"""type of the documents"""
LARGEST_FILE = 50_000_000
"""bytes, as for an upload"""
LONGEST_PATH = 1_000
"""bytes in UTF-8: it is part of an id, which is indexed"""
BATCH = 200
"""files between two checkpoints"""


def listing(
    source: Source,
    id: str,
    look: RepositoryLook,
    files: Sequence[RepositoryFile],
    states: Mapping[str, State],
) -> Generator[Change, None, bool]:
    """Says the files; whether the sync took what is gone for gone, or wants to hear it again."""
    known = {row.id: row.version for row in source.remembered(branch=id)}
    former = _former(id, files, known)
    gone = known.keys() - former.values()
    yield Checkpoint(cursor_of(states))
    yield Listing(id)
    for count, file in enumerate(files, 1):
        said = _said_of(id, file, look.state, former.get(file.path))
        gone.discard(said.id)
        yield said
        if count % BATCH == 0:
            yield Checkpoint(cursor_of(states))
    yield Listed(id)
    yield Checkpoint(cursor_of(states))
    return not any(source.remembered(sorted(gone)[:1]))


def _said_of(id: str, file: RepositoryFile, state: State, formerly: str | None) -> Item | Verdict:
    path = file.path.encode(errors="replace")
    if path != file.path.encode(errors="surrogatepass") or len(path) > LONGEST_PATH:
        mark = hashlib.sha256(file.path.encode(errors="surrogatepass")).hexdigest()
        detail = "Its path is too long, or is not text."
        return Verdict(f"{id}:?{mark}", "bad_name", detail, branch=id)
    url = f"{state.url}/blob/{quote(state.branch)}/{quote(file.path)}"
    refused: tuple[str, str] | None = None
    if file.size > LARGEST_FILE:
        told = f"It has {file.size:,} bytes; at most {LARGEST_FILE:,} are read."
        refused = ("too_large", told)
    elif file.size == 0:
        refused = ("empty", "It is empty.")
    if refused is not None:
        return Verdict(f"{id}:{file.path}", *refused, branch=id, url=url, title=file.path)
    return Item(
        id=f"{id}:{file.path}",
        version=file.sha,
        title=file.path,
        url=url,
        kind=KIND,
        metadata={"repository": state.name, "path": file.path, "branch": state.branch},
        extra={"repository": state.name},
        branch=id,
        formerly=formerly,
    )


def _former(
    id: str, files: Sequence[RepositoryFile], known: Mapping[str, str | None]
) -> dict[str, str]:
    """Former ids by new path: the same content is gone in one place and new in another.

    Among equal files, those that kept their name go together, then the others in order.
    """
    present = {f"{id}:{file.path}" for file in files}
    gone: dict[str, list[str]] = {}
    for former, sha in sorted(known.items()):
        if sha is not None and former not in present:
            gone.setdefault(sha, []).append(former)
    new = [file for file in files if f"{id}:{file.path}" not in known and file.sha in gone]
    new.sort(key=lambda file: file.path)
    found: dict[str, str] = {}
    for by_name in (True, False):
        free: dict[tuple[str, str], list[str]] = {}
        taken = set(found.values())
        for sha, formers in gone.items():
            for former in formers:
                if former not in taken:
                    free.setdefault((sha, _last(former) if by_name else ""), []).append(former)
        for file in new:
            candidates = free.get((file.sha, _last(file.path) if by_name else ""))
            if candidates and file.path not in found:
                found[file.path] = candidates.pop(0)
    return found


def _last(path: str) -> str:
    return re.split(r"[/:]", path)[-1]
