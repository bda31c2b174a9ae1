"""The folders of an account and its shared drives, as a tree."""

from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet

from recollect.connectors import _folders
from recollect.connectors._json import LONGEST_NAME
from recollect.connectors.base import Folder
from recollect.connectors.google_drive._files import FOLDER, DriveFile


class Tree(dict[str, Folder]):
    """Folders by id; those of `selected`, and what is below them, are in scope, or all are."""

    def __init__(self, known: Mapping[str, Folder], selected: AbstractSet[str] | None) -> None:
        super().__init__(known)
        self.selected = selected

    def in_scope(self, parent: str, before: Mapping[str, Folder] | None = None) -> bool:
        """Whether what is in this folder is synced; with `before`: whether it was."""
        if self.selected is None:
            return True
        places = _folders.above(self if before is None else before, parent)
        return any(id in self.selected for id in places)

    def top(self, folder: str) -> str:
        """The id of the topmost folder or shared drive above it, or of itself."""
        return _folders.above(self, folder)[-1]

    def name(self, drive: str) -> str:
        return self[drive].name if drive in self else drive

    def path(self, file: DriveFile) -> str:
        """Names from the top down; the beginning of a long one is left out."""
        names = [self[id].name for id in _folders.above(self, file.parent) if id in self]
        path = "/".join([*reversed(names), file.name])
        return path if len(path) <= LONGEST_NAME else "…" + path[1 - LONGEST_NAME :]

    def below(self, roots: AbstractSet[str]) -> set[str]:
        """The folders and all that are in them."""
        if not roots:
            return set()
        inside: dict[str, list[str]] = {}
        for folder in self.values():
            inside.setdefault(folder.parent or "", []).append(folder.id)
        found: set[str] = set()
        waiting = list(roots)
        while waiting:
            id = waiting.pop()
            if id not in found:
                found.add(id)
                waiting += inside.get(id, ())
        return found

    def differing(self, before: Mapping[str, Folder]) -> set[str]:
        """Folders that are new, renamed or moved."""
        return {id for id, folder in self.items() if before.get(id) != folder}

    def entered(self, before: Mapping[str, Folder]) -> list[str]:
        """Folders whose content was unknown, or out of scope, and is not any more."""
        return sorted(
            id
            for id in self.below(self.differing(before))
            if id in self
            and (id not in before or (self.in_scope(id) and not self.in_scope(id, before)))
        )

    def apply(
        self, changes: Mapping[str, DriveFile | None], drives: Collection[str]
    ) -> tuple[set[str], set[str]]:
        """Bring the folders up to date, but for the shared drives themselves; all that were known
        and went into the trash, and all that may not be seen any more."""
        trashed: set[str] = set()
        removed: set[str] = set()
        for id, file in changes.items():
            if id in drives:
                continue
            if file is not None and file.mime == FOLDER and not file.trashed:
                self[id] = Folder(id, file.name, file.parent)
            elif id in self:
                (removed if file is None else trashed).add(id)
        in_trash, unseen = self.below(trashed), self.below(removed)
        for id in in_trash | removed:
            self.pop(id, None)
        return in_trash, unseen - in_trash
