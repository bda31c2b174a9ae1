"""Folders of providers that give no paths, and the choice of some of them in the metadata."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from recollect.connectors.about import Field
from recollect.connectors.base import Change, Checkpoint, Folder, Trouble
from recollect.errors import BadRequestError

SYNC_SCOPE = "syncScope"
"""key of the metadata: `full`, or `selected` for what is below `folders`"""
FOLDERS = "folders"
"""key of the metadata: ids of folders, with commas between them"""
ROOT = "root"
MOST_SELECTED = 100
FIELDS = (
    Field(
        SYNC_SCOPE,
        "What to follow",
        kind="choice",
        choices=(("full", "everything"), ("selected", "only what is in the folders below")),
        in_config=True,
    ),
    Field(
        FOLDERS,
        "Folders",
        "Ids of folders, one on a line. They count only where not everything is followed.",
        kind="lines",
    ),
)
ReadId = Callable[[str], str]
"""The id of a folder, as a person gave it; raises BadRequestError."""


def checked(metadata: Mapping[str, Any], read_id: ReadId) -> dict[str, Any]:
    """The metadata to keep; raises BadRequestError for a choice that is not one."""
    if metadata.get(SYNC_SCOPE, "full") not in ("full", "selected"):
        raise BadRequestError(f"metadata.{SYNC_SCOPE}: must be 'full' or 'selected'")
    if FOLDERS not in metadata:
        return dict(metadata)
    ids = _ids(metadata[FOLDERS], read_id)
    if ROOT in ids:  # an alias; what is listed names the drive by its id
        raise BadRequestError(
            f"metadata.{FOLDERS}: {ROOT!r} is the whole drive; for that, set"
            f" metadata.{SYNC_SCOPE} to 'full'"
        )
    return {**metadata, FOLDERS: ",".join(ids)}


def selected(metadata: Mapping[str, Any], read_id: ReadId) -> frozenset[str] | None:
    """The folders to which the sync is limited; None: it is not."""
    if metadata.get(SYNC_SCOPE) != "selected":
        return None
    given = metadata.get(FOLDERS)
    return frozenset(_ids(given, read_id)) if isinstance(given, str) else frozenset()


def selection(metadata: Mapping[str, Any], read_id: ReadId) -> dict[str, str] | None:
    """The folders to which the sync is limited, each under its id; None: it is not."""
    found = selected(metadata, read_id)
    return None if found is None else {id: id for id in sorted(found)}


def select(metadata: Mapping[str, Any], ids: Sequence[str]) -> dict[str, Any]:
    """The metadata, limited to these folders."""
    return {**metadata, SYNC_SCOPE: "selected", FOLDERS: ",".join(ids)}


def none_selected(branch: str) -> Iterator[Change]:
    """What a sync says if it has no folder to look into: nothing is listed, nothing is gone."""
    yield Trouble(
        f"No folder is selected. Name some in metadata.{FOLDERS}, or set"
        f" metadata.{SYNC_SCOPE} to 'full'",
        code="no_folders",
        branch=branch,
    )
    yield Checkpoint({})


def above(folders: Mapping[str, Folder], id: str) -> list[str]:
    """The folder and its parents, up to one that is not known; never in circles."""
    found: dict[str, None] = {}
    while id and id not in found:
        found[id] = None
        folder = folders.get(id)
        id = (folder.parent or "") if folder else ""
    return list(found)


def _ids(given: object, read_id: ReadId) -> list[str]:
    if not isinstance(given, str):
        raise BadRequestError(f"metadata.{FOLDERS}: must be ids of folders, separated by commas")
    parts = filter(None, (part.strip() for part in given.split(",")))
    found = list(dict.fromkeys(read_id(part) for part in parts))
    if len(found) > MOST_SELECTED:
        raise BadRequestError(f"metadata.{FOLDERS}: at most {MOST_SELECTED} folders")
    return found
