"""Regular expressions of strangers, by RE2, whose time is linear in the text.

Python's own engine tries alternatives one after the other, and a short pattern can keep it busy for
years. RE2 has no look-around and no back-references, which are what makes an engine slow.
"""

from typing import Any, Protocol, cast

import re2 as _untyped

re2 = cast("Any", _untyped)
REFUSED = cast("type[Exception]", re2.error)

LARGEST = 1 << 20
"""Bytes that one compiled pattern may take."""


class _Match(Protocol):
    def group(self, name: str) -> str | None: ...


class _Compiled(Protocol):
    groupindex: dict[str, int]

    def search(self, text: str) -> _Match | None: ...


class KeyPattern:
    """Finds the one named group of a pattern; `(?<name>…)` or `(?P<name>…)`."""

    def __init__(self, source: str) -> None:
        """Raises ValueError with a sentence for anyone who wrote the pattern."""
        options = re2.Options()
        options.log_errors = False
        options.max_mem = LARGEST
        try:
            self._compiled = cast("_Compiled", re2.compile(source, options))
        except REFUSED as error:
            raise ValueError(f"RE2 does not take it: {_sentence(error)}") from error
        names = list(self._compiled.groupindex)
        if len(names) != 1:
            raise ValueError(f"it must have exactly one named group, but has {len(names)}")
        self.name = names[0]

    def find(self, text: str) -> str | None:
        """What the group holds in the leftmost match; None without match, or without the group."""
        found = self._compiled.search(text)
        return None if found is None else found.group(self.name)


def _sentence(error: Exception) -> str:
    told = error.args[0] if error.args else "it is malformed"
    return told.decode("utf-8", "replace") if isinstance(told, bytes) else str(told)
