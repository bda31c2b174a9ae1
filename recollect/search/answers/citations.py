"""Sentences of what a model writes, and the citations in them, checked.

A citation is a number in brackets, that of a source which the model was given. What looks like one
and names no source is taken out and reported. Nothing here judges whether a source says what the
sentence says: that it was given, and which one it is, is all that is checked.
"""

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass

_BACK = 200
"""Characters before what is new in which a sentence may end: its end and the citations behind."""
_END = re.compile(
    r"(?:(?P<dot>(?<![.!?…])[.!?…]+)[\"'”’)]{0,3}|(?<![。！？])[。！？]+)"  # noqa: RUF001 # ends of sentences in Chinese
    r"(?:\s{0,3}[\[【][^\[\]【】\n]{1,80}[\]】]){0,10}"
    r"(?(dot)\s{1,20}(?=[^\s\[【a-z])|\s{0,20}(?=[^\s\[【]))"
    r"|\n\s{0,20}(?=[^\s\[【])"
)
_NO_END = re.compile(
    r"(?:^|[\s(])(?:\d{1,3}|[A-Z]|Dr|Mr|Mrs|Ms|St|No|Nr|Fig|vs|cf|pp?|e\.g|i\.e|z\.B|approx)\.$"
)
"""What ends in a dot and ends no sentence: numbers of a list, initials, abbreviations."""
_LINK = re.compile(r"!?\[([^\[\]\n]{0,200})\]\([^()\n]{0,2000}\)")
_BRACKETS = re.compile(r"\s{0,3}[\[【]([^\[\]【】\n]{1,80})[\]】]")
_NUMBERS = re.compile(r"\^?[0-9]{1,80}(?:\s{0,80}[,;–-]\s{0,80}\^?[0-9]{1,80})*")  # noqa: RUF001 # the dash of ranges
_NAMED = re.compile(
    r"(?:sources?|doc(?:ument)?s?|passages?|refs?|references?|memor(?:y|ies)|citations?)"
    r"(?![a-z])[\s:#.]{0,5}(.*)",
    re.IGNORECASE | re.DOTALL,
)
_RANGE = re.compile(r"([0-9]{1,4})\s*[–-]\s*([0-9]{1,4})")  # noqa: RUF001 # the dash of ranges
_WIDEST = 20
"""Sources that one range may name."""


@dataclass(frozen=True, slots=True)
class Sentence:
    """One sentence of an answer, without its citations."""

    text: str
    """empty where a citation that names nothing stands on its own"""
    cites: tuple[int, ...]
    """numbers of sources, each of which was given, in the order of the sentence"""
    dropped: tuple[str, ...]
    """citations that name no source, as they were written"""

    @property
    def is_unsupported(self) -> bool:
        """Whether it states something and cites nothing. Headings, questions and what introduces a
        list state nothing."""
        states = self.text and not self.text.startswith("#") and not self.text.endswith((":", "?"))
        return bool(states) and not self.cites


class SentenceReader:
    """Takes an answer in pieces, gives its sentences as soon as each is known to have ended."""

    def __init__(self, sources: Collection[int]) -> None:
        self._sources = sources
        self._text = ""

    def read(self, piece: str) -> Iterator[Sentence]:
        since = max(0, len(self._text) - _BACK)
        self._text += piece
        while (end := self._end(since)) is not None:
            said, self._text, since = self._text[:end], self._text[end:], 0
            yield from self._sentence(said)

    def rest(self) -> Iterator[Sentence]:
        """What is left when the answer is over."""
        said, self._text = self._text, ""
        yield from self._sentence(said)

    def _end(self, since: int) -> int | None:
        for found in _END.finditer(self._text, since):
            before = self._text[max(0, found.start() - 20) : found.start() + 1]
            if found["dot"] != "." or _NO_END.search(before) is None:
                return found.end()
        return None

    def _sentence(self, said: str) -> Iterator[Sentence]:
        sentence = checked(said, self._sources)
        if any(char.isalnum() for char in sentence.text):
            yield sentence
        elif sentence.dropped:  # a citation on its own belongs to nothing; a wrong one is told
            yield Sentence("", (), sentence.dropped)


def checked(said: str, sources: Collection[int]) -> Sentence:
    """The sentence with those of its citations that name one of the sources.

    Links keep their words and lose their address: an address in an answer was made up, or was put
    there by a document to carry something out.
    """
    cites: dict[int, None] = {}
    dropped: list[str] = []

    def take(found: re.Match[str]) -> str:
        numbers = _cited(found[1].strip())
        if numbers is None:
            return found[0]
        cites.update(dict.fromkeys(one for one in numbers if one in sources))
        if not numbers or any(one not in sources for one in numbers):
            dropped.append(found[0].strip())
        return ""

    text = _BRACKETS.sub(take, _LINK.sub(r"[\1]", said))
    return Sentence(" ".join(text.split()), tuple(cites), tuple(dropped))


def _cited(inside: str) -> list[int] | None:
    """The numbers that brackets name; none where they are a citation of something else, None where
    they are part of the text."""
    named = _NAMED.fullmatch(inside)
    numbers = named[1].strip() if named else inside
    if _NUMBERS.fullmatch(numbers) is None:
        return [] if named else None
    found: list[int] = []
    for part in re.split(r"[,;]", numbers.replace("^", "")):
        bounds = _RANGE.fullmatch(part.strip())
        first, last = (int(bounds[1]), int(bounds[2])) if bounds else (0, -1)
        if bounds and first <= last < first + _WIDEST:
            found += range(first, last + 1)
        elif len(part.strip()) <= 4 and part.strip().isdecimal():
            found.append(int(part))
        else:
            return []
    return found
