"""Which files below a folder are meant: `.gitignore`, `--exclude`, `--include`."""

import os
import re
import stat
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import re2 as _untyped
from pathspec.patterns.gitignore import GitIgnorePatternError
from pathspec.patterns.gitignore.spec import GitIgnoreSpecPattern

from recollect.cli.output import fail

NEVER = frozenset({".git", ".venv", "__pycache__", "node_modules"})
"""Names of folders that hold what programs made."""
IGNORE_FILE = ".gitignore"
LARGEST_IGNORE_FILE = 1024 * 1024

re2: Any = _untyped
SILENT: Any = re2.Options()
SILENT.log_errors = False


class Globs:
    """Patterns in the grammar of `.gitignore`, of which the last that matches counts."""

    def __init__(self, lines: Sequence[str]) -> None:
        """Comments, empty lines and what Git does not take either are left away."""
        rules = [rule for line in lines for rule in _read_rule(line)]
        self._rules = [(_compiled(text), named) for text, named in rules]
        try:
            self._any = _compiled("|".join(f"(?:{text})" for text, _ in rules))
        except re2.error:  # too large for one
            self._any = _compiled("(?s:.*)")

    def __bool__(self) -> bool:
        return bool(self._rules)

    def verdict(self, path: str) -> bool | None:
        """Whether they name this path, a folder's with a slash at its end; None: they say nothing.

        It is the path itself that has to match: that nobody looks into a folder that is named is
        up to the caller.
        """
        if not self._rules or not self._any.fullmatch(path):
            return None
        matched = (named for rule, named in reversed(self._rules) if rule.fullmatch(path))
        return next(matched, None)


Rules = Sequence[tuple[Path, Globs]]
"""folder → what its `.gitignore` says, from the innermost folder outwards"""


@dataclass(frozen=True, slots=True)
class FileChoice:
    """What the options say of the files below a folder."""

    exclude: Globs
    include: Globs
    gitignore: bool = True

    @classmethod
    def of(
        cls, exclude: Sequence[str] = (), include: Sequence[str] = (), *, gitignore: bool = True
    ) -> "FileChoice":
        return cls(_globs("--exclude", exclude), _globs("--include", include), gitignore)


class FolderSieve:
    """Says of what is found below one folder why it is passed over."""

    def __init__(self, root: Path, choice: FileChoice) -> None:
        self._root = root
        self._choice = choice
        self._rules: dict[Path, Rules] = {}
        outer = _outer_rules(root) if choice.gitignore else ()
        # A folder that is named is read, even one that its repository ignores.
        self._outer = () if outer and _is_ignored(outer, root, folder=True) else outer

    def why_not(self, path: Path, *, folder: bool) -> str | None:
        """None: it is meant. `path` is below the folder, as it was reached."""
        if folder and path.name in NEVER:
            return "never added"
        here = _relative(path, self._root, folder=folder)
        if self._choice.exclude.verdict(here):
            return "--exclude"
        if self._choice.gitignore and _is_ignored(self._of(path.parent), path, folder=folder):
            return IGNORE_FILE
        if folder or not self._choice.include or self._is_included(path):
            return None
        return "not in --include"

    def _is_included(self, path: Path) -> bool:
        """The file, or a folder that it is in."""
        below = [path, *path.parents[: len(path.relative_to(self._root).parts) - 1]]
        names = (_relative(one, self._root, folder=one != path) for one in below)
        return any(self._choice.include.verdict(name) for name in names)

    def _of(self, folder: Path) -> Rules:
        if folder not in self._rules:
            above = self._outer if folder == self._root else self._of(folder.parent)
            self._rules[folder] = [*_read(folder), *above]
        return self._rules[folder]


def _globs(option: str, globs: Sequence[str]) -> Globs:
    for glob in globs:
        if not Globs([glob]):
            fail(
                f"{option} {glob!r} is not a pattern, such as *.log, build/ or docs/**/*.md", code=2
            )
    return Globs(globs)


def _read_rule(line: str) -> Iterator[tuple[str, bool]]:
    """A line as a regular expression for RE2, and False where it takes back."""
    try:
        with warnings.catch_warnings(action="ignore"):
            pattern: Any = GitIgnoreSpecPattern(line)
        if pattern.include is not None:
            text = _whole(pattern.regex.pattern)
            _compiled(text)
            yield text, pattern.include
    except (GitIgnorePatternError, re.error, re2.error):  # the second for a range like [z-a]
        return


def _compiled(text: str) -> Any:
    # RE2: a pattern of a stranger's repository must not take years.
    return re2.compile(text, SILENT)


def _whole(text: str) -> str:
    """pathspec matches a path by any folder that it is in; here the path itself has to match."""
    if text == ".":  # all there is
        return "(?s:.+)"
    anchored = text if text.startswith("^") else f"(?s:.*){text}"
    if "(?P<ps_d>" not in anchored:  # all below a folder
        return f"{anchored}(?s:.+)"
    return anchored.replace("(?P<ps_d>", "(?:")


def _outer_rules(root: Path) -> Rules:
    """Those of the folders above, up to the one that is the repository; outside of one, none."""
    above = [root, *root.parents]
    repository = next((at for at, one in enumerate(above) if os.path.exists(one / ".git")), 0)
    return [found for folder in above[1 : repository + 1] for found in _read(folder)]


def _read(folder: Path) -> Iterator[tuple[Path, Globs]]:
    path = folder / IGNORE_FILE
    try:
        # Git follows no link here either; a pipe would never end.
        if not stat.S_ISREG(path.lstat().st_mode):
            return
        with path.open("rb") as file:
            text = file.read(LARGEST_IGNORE_FILE).decode("utf-8-sig", "replace")
    except OSError:
        return
    if globs := Globs([line.rstrip("\r") for line in text.split("\n")]):
        yield folder, globs


def _is_ignored(rules: Rules, path: Path, *, folder: bool) -> bool:
    for base, globs in rules:
        ignored = globs.verdict(_relative(path, base, folder=folder))
        if ignored is not None:
            return ignored
    return False


def _relative(path: Path, base: Path, *, folder: bool) -> str:
    # Names need not be UTF-8, patterns are.
    text = os.fsencode(path.relative_to(base)).decode("utf-8", "replace")
    return f"{text}/" if folder else text
