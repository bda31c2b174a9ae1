"""What was picked, and what is remembered of it in the cursor."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any, cast

from recollect.connectors._json import as_object, as_word
from recollect.connectors.api import behind
from recollect.connectors.base import (
    Cursor,
    Trouble,
)
from recollect.connectors.github._calls import objects_of
from recollect.errors import BadRequestError, Permanent, Transient

RESOURCES = "resources"
"""key of the metadata: what was picked, a list of `{id, name, defaultBranch}`"""
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*/(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,100}")
NO_ACCESS = "no_access"
"""code: it was deleted, or this account may not read it"""
ADVICE = {
    "http_403": "Its documents stay. If it belongs to an organisation, an owner may have to approve"
    " the application there",
    "http_451": "It is blocked for legal reasons. Its documents stay",
    NO_ACCESS: "Its documents are deleted once two syncs in a row find this. Give the account"
    " access again; or take the repository out of the connection, which keeps what is still here",
    "no_permission": "Its documents stay",
    "no_branch": "Its documents stay. Choose a default branch in the settings of the repository",
}
"""What to do, by code of the error."""


@dataclass(frozen=True, slots=True)
class PickedRepository:
    id: str
    name: str
    """`owner/repository`, as it was when it was picked"""


@dataclass(frozen=True, slots=True)
class State:
    """A repository as it was when it was last seen; JSON in the cursor."""

    name: str
    branch: str
    url: str
    """where people look at it"""
    mark: str | None = None
    """ETag of the repository"""
    head: str | None = None
    """commit that was listed whole; None: it must be listed"""
    etag: str | None = None
    """of the branch"""


FIELDS = frozenset(field.name for field in fields(State))


def checked(entry: object, where: str) -> dict[str, Any]:
    """One picked repository; raises BadRequestError naming the field."""
    if not isinstance(entry, dict):
        raise BadRequestError(f"{where}: must be an object with id and name")
    given = cast("dict[str, Any]", entry)
    id, name, branch = given.get("id"), given.get("name"), given.get("defaultBranch")
    if isinstance(id, int) and not isinstance(id, bool):
        id = str(id)
    if not isinstance(id, str) or not re.fullmatch(r"[1-9][0-9]{0,18}", id):
        raise BadRequestError(f"{where}.id: must be the number that GitHub gave the repository")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise BadRequestError(f"{where}.name: must be 'owner/repository', as in full_name")
    if branch is not None and not (isinstance(branch, str) and 0 < len(branch) <= 255):
        raise BadRequestError(f"{where}.defaultBranch: must be the name of a branch")
    return {"id": id, "name": name, **({"defaultBranch": branch} if branch else {})}


def picked_of(metadata: Mapping[str, Any]) -> list[PickedRepository]:
    picked: Any = metadata.get(RESOURCES)
    if not isinstance(picked, list):
        return []
    return [
        PickedRepository(entry["id"], entry["name"])
        for entry in objects_of(cast("list[Any]", picked))
    ]


def states_of(cursor: Cursor | None) -> dict[str, State]:
    """What a cursor knows; what it does not say in our way counts as unknown."""
    repositories: Any = cursor.get("repos") if cursor else None
    found: dict[str, State] = {}
    if isinstance(repositories, dict):
        for id, state in cast("dict[str, Any]", repositories).items():
            texts = [text for text in as_object(state).values() if isinstance(text, str | None)]
            if len(texts) == len(FIELDS) and as_object(state).keys() == FIELDS:
                found[id] = State(**state)
    return found


def cursor_of(states: Mapping[str, State], *, last: str | None = None) -> Cursor:
    """`last`: the repository at which the sync ended, because one after the other failed."""
    return {"repos": {id: asdict(state) for id, state in states.items()}, "last": last}


def in_turn(picked: Sequence[PickedRepository], cursor: Cursor | None) -> list[PickedRepository]:
    """Those first that the last sync did not come to."""
    by_id = {one.id: one for one in picked}
    return [by_id[id] for id in behind([*by_id], as_word((cursor or {}).get("last")))]


def place(state: State) -> tuple[str, str, str]:
    """What url and metadata of its documents are made of."""
    return state.name, state.branch, state.url


def trouble(picked: PickedRepository, error: Permanent | Transient) -> Trouble:
    advice = ADVICE.get(error.code, "It is tried again with the next sync")
    return Trouble(f"{picked.name}: {error}. {advice}.", error.code, picked.id)
