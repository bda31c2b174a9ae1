"""Patterns of the metadata that narrow what is followed: `*` stands for any run of characters."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from recollect.errors import BadRequestError, Issue


def wrong(key: str, what: str) -> BadRequestError:
    """The fault of one key of the metadata."""
    return BadRequestError(f"metadata.{key}: {what}", [Issue(["metadata", key], what)])


def patterns(metadata: Mapping[str, Any], key: str) -> list[str]:
    """A text with commas or line ends between patterns, or a list of them; raises
    BadRequestError."""
    given = metadata.get(key)
    listed = cast("list[object]", given) if isinstance(given, list) else [given or ""]
    if not all(isinstance(one, str) for one in listed):
        raise wrong(
            key, "must be a string of patterns, separated by commas, with * for any characters"
        )
    words = ",".join(cast("list[str]", listed)).replace("\n", ",").split(",")
    return [word.strip() for word in words if word.strip()]


def fits(pattern: str, text: str) -> bool:
    """Whether all of a text is as the pattern says, case included. Linear, whatever the pattern."""
    first, *rest = pattern.split("*")
    last = rest.pop() if rest else None
    return _fits(text, first, rest, last)


def _fits(text: str, first: str, middle: Sequence[str], last: str | None) -> bool:
    if last is None:
        return text == first
    if not text.startswith(first):
        return False
    at = len(first)
    for part in middle:
        at = text.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return len(text) - len(last) >= at and text.endswith(last)
