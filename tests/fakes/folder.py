"""A real folder that misbehaves on demand, as `Proxy` lets a provider: it is taken away, or another
folder stands in its place, as when a disk is not mounted.

    with MountedFolder() as folder:
        folder.on(".", status=500)    # it is not there
        folder.on(".", status=200)    # an empty one is in its place
        folder.behave()               # it is back
"""

import re
import shutil
import tempfile
from pathlib import Path
from typing import Any, Self

from tests.fakes.proxy import Rule, Seen


class MountedFolder:
    """`path` lies below `root`, which a setting may open."""

    def __init__(self) -> None:
        self._base = Path(tempfile.mkdtemp(prefix="recollect-folder-"))
        self.root = self._base / "open"
        self.path = self.root / "papers"
        self._elsewhere = self._base / "elsewhere"
        self.path.mkdir(parents=True)
        self.log: list[Seen] = []
        """nobody is asked, so this stays empty"""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self._base)

    def on(self, match: str, *, status: int | None = None, **how: Any) -> Rule:
        """Take it away; with a status of 200 leave an empty one in its place."""
        if how.get("do") is None and not self._elsewhere.exists():
            self.path.rename(self._elsewhere)
            if status == 200:
                self.path.mkdir()
        return Rule(re.compile(match))

    @property
    def real(self) -> Path:
        """Where its files are now: users may work on them while the service does not see them."""
        return self._elsewhere if self._elsewhere.exists() else self.path

    def forget(self) -> None:
        """As `Proxy.forget`."""

    def behave(self) -> None:
        """It is there again, as it was."""
        if self._elsewhere.exists():
            if self.path.exists():
                self.path.rmdir()
            self._elsewhere.rename(self.path)
