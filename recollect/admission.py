"""What the settings' filter admits of synced content, and why not the rest (contract 7.6).

Exclusion wins; without patterns to include, everything is included.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Refuse = Callable[[str | None, str | None], str | None]


@dataclass(frozen=True, slots=True)
class Patterns:
    """`*` stands for any run of characters; case does not matter; the whole text must match."""

    url: Sequence[tuple[str, re.Pattern[str]]] = ()
    title: Sequence[tuple[str, re.Pattern[str]]] = ()

    def match(self, title: str | None, url: str | None) -> str | None:
        """The pattern that matches, as it was written, or None."""
        for patterns, text in ((self.url, url), (self.title, title)):
            for written, compiled in patterns:
                if text is not None and compiled.fullmatch(text):
                    return written
        return None


def refusal(settings: Mapping[str, Any]) -> Refuse:
    """The filter of an organisation's settings: why a title and url are kept out, or None.

    A title of None is not known yet: then only what the url decides is refused.
    """
    include, exclude = _patterns(settings["includeItems"]), _patterns(settings["excludeItems"])

    def refuse(title: str | None, url: str | None) -> str | None:
        matched = exclude.match(title, url)
        if matched is not None:
            return f"excludeItems: {matched}"
        if not include.url and not include.title:
            return None
        if include.match(title, url) is not None:
            return None
        if title is None and include.title:
            return None
        return "includeItems: no pattern matches"

    return refuse


def _patterns(value: Mapping[str, Any] | None) -> Patterns:
    if not value:
        return Patterns()
    return Patterns(
        url=[_compiled(pattern) for pattern in value.get("urlPatterns") or ()],
        title=[_compiled(pattern) for pattern in value.get("titlePatterns") or ()],
    )


def _compiled(pattern: str) -> tuple[str, re.Pattern[str]]:
    # Atomic groups: each `*` takes the nearest match of what follows and is never reconsidered,
    # so that no pattern takes more than linear time.
    first, *rest = (re.escape(part) for part in re.split(r"\*+", pattern))
    if not rest:
        return pattern, re.compile(first, re.IGNORECASE | re.DOTALL)
    *middle, last = rest
    between = "".join(f"(?>.*?{part})" for part in middle if part)
    return pattern, re.compile(f"{first}{between}.*{last}", re.IGNORECASE | re.DOTALL)
