"""Text → chunks, cut where the text itself says so.

Each border between two blocks has a rank: a hash of the words before it. A border becomes a cut
when the span between the nearest stronger borders left and right of it does not fit into one
chunk. This depends on the neighbourhood alone, never on how many chunks came before, so that an
edit changes the chunk it falls into and rarely another, and text that is appended changes the last
one or two. (Cutting from left to right at a minimum size instead was tried: the cuts after an edit
took up to a dozen chunks to fall in step again.)

Coarse borders go first; only where they leave a piece that is too long, finer ones are looked at:
blank lines and headings, line ends, sentences, words, any character.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from itertools import pairwise
from typing import NamedTuple
from unicodedata import category
from zlib import crc32

import numpy as np

from recollect.model import Chunk

LONGEST = 1_600
"""characters; no chunk is longer"""
SHORTEST = 300
"""characters, outer white space included; no chunk is shorter unless the text is"""
USUAL = 1_300
"""characters; where the text repeats itself and no border stands out, cut by here"""
CONTEXT = 64
"""characters before a border that decide its rank"""
CROWD = 100
"""characters within which only ever stronger borders are kept"""
WINDOW = 1 << 18
"""characters hashed at once where any character may be cut after"""
LONGEST_HEADING = 300

Span = tuple[int, int]

HEADING = re.compile(r"#{1,6}[ \t]{1,9}\S")
# Each pattern begins with one fixed character or class that cannot overlap its repetition, so that
# a search stays linear on runs of millions of newlines or spaces.
BLANK_LINE = re.compile(r"\n(?:[^\S\n]*\n\s*|(?=#{1,6}[ \t]))")
LINE_END = re.compile(r"\n\s*")
SENTENCE_END = re.compile(
    r"""[.!?…]["'”’»)\]]*(?=\s)|[。．！？｡؟।॥။។]["'”’」』）]*"""  # noqa: RUF001 the signs themselves
)
SPACE = re.compile(r"\s+")

JOINERS = frozenset("\u200d\u034f\u2060\ufeff")
EMOJI_TONES = range(0x1F3FB, 0x1F400)
REGIONAL_INDICATORS = range(0x1F1E6, 0x1F200)
HANGUL_TAILS = range(0x1160, 0x1200)
LOW_SURROGATES = range(0xDC00, 0xE000)
TAG_CHARACTERS = range(0xE0020, 0xE0080)


class Border(NamedTuple):
    """A place where a cut may fall; the smaller the rank, the stronger."""

    rank: int
    at: int


Finder = Callable[[str, int, int, Sequence[Span]], Iterable[Border]]


def split(text: str) -> list[Chunk]:
    """All non-blank text in chunks of at most `LONGEST` characters (about 900 on average).

    Chunks neither overlap nor begin or end with white space. A heading is the last line of a chunk
    only at the end of the text, or in a list of headings that is too long for one chunk.
    """
    pieces: list[Span] = [(0, len(text))]
    fences = _fences(text)
    for find in FINDERS:
        pieces = [part for piece in pieces for part in _divide(text, piece, find, fences)]
    pieces = [part for piece in pieces for part in _slice(text, *piece)]
    chunks: list[Chunk] = []
    for start, end in pieces:
        part = text[start:end].lstrip()
        start = end - len(part)
        part = part.rstrip()
        if part:
            chunks.append(Chunk(len(chunks), start, start + len(part), part, digest(part)))
    return chunks


def digest(text: str) -> bytes:
    """What stands for the text of a chunk."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _divide(text: str, piece: Span, find: Finder, fences: Sequence[Span]) -> Iterator[Span]:
    start, end = piece
    if end - start <= LONGEST:
        yield piece
        return
    borders = list(_thin(find(text, start, end, fences)))
    for left, right in pairwise((start, *_peaks(borders, start, end), end)):
        if right - left <= LONGEST:
            yield left, right
        else:
            first = bisect_right(borders, left + SHORTEST, key=_at)
            last = bisect_right(borders, right - SHORTEST, key=_at)
            yield from pairwise((left, *_strides(borders[first:last], left, right), right))


def _at(border: Border) -> int:
    return border.at


def _peaks(borders: Sequence[Border], start: int, end: int) -> Iterator[int]:
    """The cuts that stand out: stronger than all around, and needed for pieces to fit."""
    peaks = [
        border
        for border, (left, right) in zip(borders, _reaches(borders, start, end), strict=True)
        if border.at - left >= SHORTEST and right - border.at >= SHORTEST
    ]
    for border, (left, right) in zip(peaks, _reaches(peaks, start, end), strict=True):
        if right - left > LONGEST:
            yield border.at


def _reaches(borders: Sequence[Border], start: int, end: int) -> Iterator[Span]:
    """For each border the places of the nearest stronger ones to its left and right."""
    lefts: list[int] = []
    rights = [end] * len(borders)
    rising: list[int] = []
    for index, (rank, at) in enumerate(borders):
        while rising and borders[rising[-1]].rank > rank:
            rights[rising.pop()] = at
        lefts.append(borders[rising[-1]].at if rising else start)
        rising.append(index)
    return zip(lefts, rights, strict=True)


def _strides(borders: Sequence[Border], start: int, end: int) -> Iterator[int]:
    """Cuts from left to right, for text in which nothing stands out (one line a thousand times)."""
    index = 0
    while end - start > LONGEST and index < len(borders):
        near = bisect_right(borders, start + USUAL, lo=index, key=_at)
        start = min(borders[index:near], default=borders[index]).at
        yield start
        index = bisect_right(borders, start + SHORTEST, lo=index, key=_at)


def _slice(text: str, start: int, end: int) -> Iterator[Span]:
    """Cuts by length alone, for millions of the same character."""
    while end - start > LONGEST:
        cut = start + USUAL
        while _joined(text, cut) and cut > start + USUAL - CONTEXT:
            cut -= 1
        yield start, cut
        start = cut
    yield start, end


def _thin(borders: Iterable[Border]) -> Iterator[Border]:
    """Without borders that a stronger one shortly before outdoes, so that memory stays small."""
    kept = Border(0, -CROWD)
    for border in borders:
        if border.rank < kept.rank or border.at - kept.at >= CROWD:
            kept = border
            yield border


def _rank(text: str, at: int) -> int:
    return crc32(text[max(0, at - CONTEXT) : at].encode("utf-8", "surrogatepass"))


def _blocks(text: str, start: int, end: int, fences: Sequence[Span]) -> Iterator[Border]:
    """Blank lines and headings; the border before a heading is stronger than all others."""
    for found in BLANK_LINE.finditer(text, start + SHORTEST, end - SHORTEST):
        at = found.start()
        if not (_in_heading(text, at) or _inside(fences, at)):
            tier = 0 if HEADING.match(text, found.end()) else 1 << 32
            yield Border(tier + _rank(text, at), at)


def _sparing(pattern: re.Pattern[str]) -> Finder:
    """Matches of the pattern outside of headings and of code that fits into a chunk."""

    def find(text: str, start: int, end: int, fences: Sequence[Span]) -> Iterator[Border]:
        for border in _plain(pattern)(text, start, end, fences):
            if not (_in_heading(text, border.at) or _inside(fences, border.at)):
                yield border

    return find


def _plain(pattern: re.Pattern[str]) -> Finder:
    """Matches of the pattern anywhere; white space belongs to what follows."""

    def find(text: str, start: int, end: int, _: Sequence[Span]) -> Iterator[Border]:
        for found in pattern.finditer(text, start + SHORTEST, end - SHORTEST):
            at = found.start() if found[0].isspace() else found.end()
            if not _joined(text, at):
                yield Border(_rank(text, at), at)

    return find


def _characters(text: str, start: int, end: int, _: Sequence[Span]) -> Iterator[Border]:
    """One place in about 64, chosen by the eight characters before it."""
    for first in range(start + SHORTEST, end - SHORTEST, WINDOW):
        data = text[first - 8 : min(first + WINDOW, end - SHORTEST)]
        codes = np.frombuffer(data.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)
        mixed = np.zeros(len(codes) - 8, dtype=np.uint32)
        for offset in range(8):
            mixed = mixed * np.uint32(0x9E3779B1) + codes[offset : offset + len(mixed)]
        mixed = (mixed ^ (mixed >> 15)) * np.uint32(0x85EBCA6B)
        places = np.flatnonzero(mixed >> 26 == 0)
        if len(places) > len(codes) // 8:  # the same few characters over and over
            continue
        for place in places.tolist():
            if not _joined(text, first + place):
                yield Border(_rank(text, first + place), first + place)


FINDERS: tuple[Finder, ...] = (
    _blocks,
    _sparing(LINE_END),
    _sparing(SENTENCE_END),
    _sparing(SPACE),
    _plain(LINE_END),
    _plain(SPACE),
    _characters,
)


def _in_heading(text: str, at: int) -> bool:
    """Whether the last line that is not blank before `at` is a Markdown heading."""
    start = max(0, at - LONGEST_HEADING)
    line = text[start:at].rstrip().rfind("\n") + 1
    if line == 0 and start > 0:
        return False
    return HEADING.match(text, start + line) is not None


def _fences(text: str) -> list[Span]:
    """Fenced code that fits into a chunk, from its first line to its last, in order."""
    found = sorted(span for mark in ("```", "~~~") for span in _fences_of(text, mark))
    return [span for before, span in pairwise(((0, 0), *found)) if span[0] >= before[1]]


def _fences_of(text: str, mark: str) -> Iterator[Span]:
    line = "\n" + mark
    at = 0 if text.startswith(mark) else text.find(line) + 1 or len(text)
    while at < len(text):
        close = text.find(line, at, at + LONGEST)
        if close >= 0 and text[close + 4 : close + 5] in ("", "\n", "\r", " ", mark[0]):
            yield at, close + 1
            at = close + 1
        at = text.find(line, at) + 1 or len(text)


def _inside(spans: Sequence[Span], at: int) -> bool:
    index = bisect_right(spans, at, key=lambda span: span[0]) - 1
    return index >= 0 and at < spans[index][1]


def _joined(text: str, at: int) -> bool:
    """Whether a reader sees the characters before and after `at` as one, or nearly always."""
    after = text[at]
    if after.isascii():
        return False
    before = text[at - 1]
    code = ord(after)
    return (
        before == "\u200d"
        or after in JOINERS
        or code in EMOJI_TONES
        or code in HANGUL_TAILS
        or code in LOW_SURROGATES
        or code in TAG_CHARACTERS
        or (code in REGIONAL_INDICATORS and ord(before) in REGIONAL_INDICATORS)
        or category(after).startswith("M")
    )
