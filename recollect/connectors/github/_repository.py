"""One repository as it is now: its name, its default branch, and the files on it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote

from recollect.connectors.api import PROVIDER_UNAVAILABLE, Api, as_json, field_of
from recollect.connectors.base import (
    Source,
    Verdict,
)
from recollect.connectors.github._calls import call, objects_of, unless
from recollect.connectors.github._picked import NAME, NO_ACCESS, PickedRepository, State, place
from recollect.errors import Permanent, Transient

MOST_FILES = 200_000
MOST_TREES = 2_000
"""calls for one listing; a repository can be made to unfold into any number of folders"""
EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
"""git's tree without entries, which the API answers with 404"""
FILES = ("100644", "100755")
"""modes; the others are symbolic links (120000), submodules (160000) and folders (040000)"""
WANTED = re.compile(r"\.(md|mdx|markdown|txt|rst|adoc|org)\Z", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class RepositoryFile:
    path: str
    sha: str
    size: int
    """bytes; -1: not told"""


@dataclass(frozen=True, slots=True)
class RepositoryLook:
    """What a look at a repository found; `files` None: nothing that must be listed."""

    state: State
    files: Sequence[RepositoryFile] | None = None
    verdict: Verdict | None = None


def look_at(source: Source, picked: PickedRepository, before: State | None) -> RepositoryLook:
    """All that must be asked of a repository, so that nothing can go wrong while it is listed."""
    api = source.api
    now = repository_of(api, picked, before)
    listed = before if before and before.head and place(now) == place(before) else None
    answer = call(
        api,
        "GET",
        f"/repos/{now.name}/branches/{quote(now.branch, safe='')}",
        headers=unless(listed.etag if listed else None),
        accept=frozenset({304, 404}),
    )
    if answer.status == 404:
        return _without_branch(api, picked, now)
    if listed and answer.status == 304:
        return RepositoryLook(replace(now, head=listed.head, etag=listed.etag))
    commit = field_of(as_json(answer), "commit", dict)
    head = field_of(commit, "sha", str)
    now = replace(now, head=head, etag=answer.headers.get("etag"))
    if listed and head == listed.head:
        return RepositoryLook(now)
    inner: Any = commit.get("commit")
    tree = field_of(field_of(inner, "tree", dict), "sha", str) if inner is not None else head
    return RepositoryLook(now, _files(source, now.name, tree))


def repository_of(api: Api, picked: PickedRepository, before: State | None) -> State:
    """Its present name and default branch, by name and then by id: the name may be another's now.

    Raises Permanent when the account cannot read it, Reauthorize when that is because the token
    is not good any more.
    """
    name = picked.name if before is None else before.name
    answer = call(
        api,
        "GET",
        f"/repos/{name}",
        headers=unless(None if before is None else before.mark),
        accept=frozenset({304, 404}),
    )
    if before is not None and answer.status == 304:
        return replace(before, head=None, etag=None)
    if answer.status == 404 or str(field_of(as_json(answer), "id", int)) != picked.id:
        answer = call(api, "GET", f"/repositories/{picked.id}", accept=frozenset({404}))
    if answer.status == 404:
        # GitHub says 404, never 403, of what an account may not know of.
        api.get("/user")
        raise Permanent("it is gone, or this account may not read it", code=NO_ACCESS)
    found = as_json(answer)
    full_name = field_of(found, "full_name", str)
    if not NAME.fullmatch(full_name):
        raise Permanent("GitHub answered with an invalid name", code="bad_answer")
    if found.get("disabled") is True:
        raise Permanent("GitHub has disabled it; its documents stay", code="disabled")
    return State(
        name=full_name,
        branch=field_of(found, "default_branch", str),
        url=field_of(found, "html_url", str),
        mark=answer.headers.get("etag"),
    )


def must_be_there(api: Api, picked: PickedRepository) -> None:
    """Raises Permanent when it is the repository that cannot be read any more."""
    try:
        repository_of(api, picked, None)
    except Permanent as error:
        raise Permanent(f"{picked.name}: {error}", code=error.code) from error


def _without_branch(api: Api, picked: PickedRepository, now: State) -> RepositoryLook:
    """An empty repository, or one whose default branch does not exist."""
    branch = quote(now.branch, safe="")
    answer = call(
        api,
        "GET",
        f"/repos/{now.name}/git/ref/heads/{branch}",
        accept=frozenset({404, 409}),
    )
    if answer.status != 409:
        raise Permanent(f"there is no branch {now.branch!r}", code="no_branch")
    verdict = Verdict(
        picked.id,
        "empty_repository",
        f"{now.name} is empty. It is looked at again with each sync.",
        branch=picked.id,
        keep=True,
        url=now.url,
        title=now.name,
    )
    return RepositoryLook(now, verdict=verdict)


def _files(source: Source, name: str, root: str) -> list[RepositoryFile]:
    """All documentation files below a tree, however large it is.

    Raises Permanent when that cannot be said for certain.
    """
    found: list[RepositoryFile] = []
    folders = [] if root == EMPTY_TREE else [("", root)]
    asked = 0
    while folders:
        source.going()
        prefix, sha = folders.pop()
        entries, whole = _tree(source.api, name, sha, {"recursive": "1"})
        if not whole:
            entries, flat = _tree(source.api, name, sha, {})
            if not flat:
                raise Permanent(f"the folder /{prefix} has too many entries", code="too_large")
            folders += [
                (f"{prefix}{entry['path']}/", entry["sha"])
                for entry in entries
                if entry["type"] == "tree" and entry["sha"] != EMPTY_TREE
            ]
        found += [
            RepositoryFile(
                prefix + entry["path"],
                entry["sha"],
                -1 if (size := entry.get("size")) is None else size,
            )
            for entry in entries
            if entry["mode"] in FILES and WANTED.search(entry["path"])
        ]
        asked += 1
        if asked > MOST_TREES or len(found) > MOST_FILES:
            raise Permanent("it has too many files to list", code="too_large")
    return found


def _tree(
    api: Api, name: str, sha: str, params: Mapping[str, str]
) -> tuple[list[dict[str, Any]], bool]:
    """Entries of a tree, and whether these are all of them."""
    answer = api.get(f"/repos/{name}/git/trees/{sha}", params)
    entries = objects_of(field_of(answer, "tree", list))
    if not entries:  # git's only tree without any is not asked for
        raise Transient("GitHub answered with an empty folder", code=PROVIDER_UNAVAILABLE)
    for entry in entries:
        for field in ("path", "mode", "type", "sha"):
            field_of(entry, field, str)
    return entries, not field_of(answer, "truncated", bool)
