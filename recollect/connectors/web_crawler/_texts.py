"""Texts that are the same, or nearly: they show that two addresses are one page."""

import hashlib
import re
import zlib
from collections.abc import Collection, Iterator
from heapq import nsmallest
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

NEAR = 10
"""most bits of 256 in which the fingerprints of nearly the same texts differ"""
FEWEST_WORDS = 48
"""of a text whose fingerprint says anything"""

_PRIMES = [0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93]
_MOST_SHINGLES = 4_096


def fingerprint(text: str) -> bytes | None:
    """256 bits that differ in few places if texts do (Charikar's simhash, of runs of four words).

    None for a text that is too short.
    """
    words = text.lower().split()
    if len(words) < FEWEST_WORDS:
        return None
    hashes = np.fromiter((zlib.crc32(w.encode()) for w in words), np.uint64, count=len(words))
    runs = len(words) - 3
    shingles = np.zeros(runs, np.uint64)
    for offset, prime in enumerate(_PRIMES):
        shingles += hashes[offset : offset + runs] * np.uint64(prime)
    shingles = _mixed(np.unique(shingles))
    if len(shingles) > _MOST_SHINGLES:
        # By their values, not their places: an insertion must not change the choice of the rest.
        share = np.uint64(-(-len(shingles) // _MOST_SHINGLES))
        shingles = shingles[shingles % share == 0]
    lanes = np.stack([_mixed(shingles + np.uint64(prime)) for prime in _PRIMES], axis=1)
    bits = np.unpackbits(lanes.view(np.uint8), axis=1)
    return np.packbits(bits.sum(axis=0, dtype=np.uint32) * 2 > len(lanes)).tobytes()


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Each bit depends on all (the finaliser of splitmix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


class Fingerprints:
    """Of the documents met so far."""

    def __init__(self) -> None:
        self._urls: list[str] = []
        self._rows: NDArray[np.uint64] = np.zeros((256, 4), np.uint64)

    def add(self, url: str, print: bytes) -> None:
        if len(self._urls) == len(self._rows):
            self._rows = np.concatenate([self._rows, np.zeros_like(self._rows)])
        self._rows[len(self._urls)] = np.frombuffer(print, np.uint64)
        self._urls.append(url)

    def nearest(self, url: str, print: bytes) -> str | None:
        """Another page that says nearly the same."""
        if not self._urls:
            return None
        differing = self._rows[: len(self._urls)] ^ np.frombuffer(print, np.uint64)
        distances = np.bitwise_count(differing).sum(axis=1, dtype=np.uint32)
        nearest: list[int] = np.argsort(distances, kind="stable")[:2].tolist()
        near = (self._urls[index] for index in nearest if distances[index] <= NEAR)
        return next((found for found in near if found != url), None)


def are_near(one: bytes | None, other: bytes | None) -> bool:
    if one is None or other is None:
        return False
    return (int.from_bytes(one, "big") ^ int.from_bytes(other, "big")).bit_count() <= NEAR


_SKETCHED = 16
"""hashes of words in a sketch"""
_MOST_HASHED = 200_000
"""characters of a text; all of a hostile page's would take hundreds of megabytes"""

# Thai, Lao, Myanmar, Khmer, Kana and Han are written without spaces, so that words do not show.
UNSPACED = re.compile(
    "[\u0e01-\u0e4e\u0e81-\u0ece\u1000-\u103f\u1780-\u17d3\u3005\u3041-\u3096\u30a1-\u30fa\u30fc"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]+"
)


def pairs(run: str) -> Iterator[str]:
    """Of neighbouring characters: what counts as words where none show."""
    return map("".join, pairwise(run))


def word_hashes(text: str) -> set[int]:
    words: set[str] = set()
    for token in set(UNSPACED.sub(r" \g<0> ", text[:_MOST_HASHED].lower()).split()):
        words |= set(pairs(token)) if UNSPACED.match(token) and len(token) > 1 else {token}
    return {zlib.crc32(word.encode()) for word in words}


def sketch(hashes: Collection[int]) -> str:
    """The smallest hashes of a text's words: of two texts they tell how many words they share."""
    return " ".join(f"{one:08x}" for one in nsmallest(_SKETCHED, hashes))


def is_kept(before: str, hashes: Collection[int]) -> bool:
    """Whether a text has nearly all words of a sketched one. A long text has three quarters of a
    short one's by chance."""
    sample = before.split()
    return 16 * sum(int(one, 16) in hashes for one in sample) >= 15 * len(sample)


def are_alike(one: str, other: str) -> bool:
    """Whether the texts of two sketches share half of their words or more (Broder)."""
    mine, theirs = set(one.split()), set(other.split())
    both = sorted(mine | theirs)[:_SKETCHED]
    return 2 * sum(each in mine and each in theirs for each in both) >= len(both)


def version_of(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


class Texts:
    """Of the documents met so far."""

    def __init__(self) -> None:
        self._owners: dict[str, str] = {}
        """version of a text → the page that has it"""
        self._prints = Fingerprints()

    def register(self, url: str, version: str | None, print: str | None) -> None:
        """A document with its text; `print` in hexadecimal digits."""
        if version is not None:
            self._owners.setdefault(version, url)
        if print:
            self._prints.add(url, bytes.fromhex(print))

    def owner(self, version: str | None) -> str | None:
        """The page that has this very text."""
        return None if version is None else self._owners.get(version)

    def nearest(self, url: str, print: bytes | None) -> str | None:
        """Another page that says nearly the same."""
        return None if print is None else self._prints.nearest(url, print)
