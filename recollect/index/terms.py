"""Words → numbered, weighted terms: the lexical half of search, BM25 on stock pgvector.

A document's word becomes exactly one term: its stem in the language of the chunk, marked with that
language ("en:hous"). A query is too short to tell its language, so each of its words becomes a
group with its stem in every language ("en:hous", "de:houses", …). Thereby a word always meets
itself, whatever the chunk was taken for, inflections meet within each language, and stems of
different languages never meet by chance. Only languages written in Latin letters need this; other
scripts have one stemmer or none.

Identifiers (`foo.bar_baz`, `v1.2.3`, `camelCase`), dates, codes, addresses and paths (`2024-03-17`,
`CVE-2025-1234`, `ada@example.com`, `src/app.py`) are indexed whole and in parts. Scripts without
spaces (and Korean, whose particles stick to the words) are indexed as single characters and pairs:
a query meets wherever all of its pairs do. Symbols and emoji are terms of their own.

What some write as one word and others as several (`e-mail`, `O'Brien`, `1,234`: `spellings`) is
indexed as several and as one; a query finds each of the several in the one as well.
"""

import math
import re
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from functools import lru_cache
from hashlib import blake2b
from heapq import merge
from itertools import chain
from typing import Protocol, cast
from unicodedata import category, decimal, normalize

import Stemmer

from recollect.index import languages, spellings

VERSION = 3
"""Of the words that a text is found by. Raised by a change of them, it has the workers give them to
the texts that are there (`ops/rewording.py`)."""
K1 = 1.2
B = 0.75
AVERAGE = 920
"""Mean length of a chunk of prose as `chunk.split` cuts it, in characters.

BM25 divides by the mean over the collection. Chunks are bounded, so that a constant is nearly
right and adding a document never changes the weights of others. Characters instead of terms,
because that treats all scripts alike.
"""
MOST_TERMS = 4_000
"""per chunk, the most frequent; sparsevec holds 16 000"""
MOST_WORDS = 64
"""per query …"""
MOST_READ = 4_000
"""… among its first characters: so many hold them but in a text that is no question"""
MOST_WHOLES = 4
"""written as one with others that a word of a query stands for: of a list of codes all parts alike
would stand for all of them"""
LARGEST = 1_000_000_000
"""sparsevec indices are 1 … 10^9"""
LONGEST_NAMES = 500
"""characters of the names of a document that are read"""
LONGEST_WORD = 64
"""characters; what is longer (base64, hashes) is indexed as it is, and not kept in caches"""

HARDENED = {"p": "b", "t": "d"}
"""first letters that the Turkish stemmer gives short words, and those that they have"""
SCRIPTS = (
    (0x0041, 0x0250, "latin"),
    (0x0370, 0x0400, "el"),
    (0x0400, 0x0530, "ru"),
    (0x0530, 0x0590, "hy"),
    (0x0600, 0x0780, "ar"),
    (0x0900, 0x0980, "hi"),
    (0x0B80, 0x0C00, "ta"),
    (0x1E00, 0x1F00, "latin"),
    (0x1F00, 0x2000, "el"),
)

# Written without spaces: Thai, Lao, Tibetan, Myanmar, Khmer, Han, Kana, Hangul.
UNSPACED = (
    "\u0e00-\u0fff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u3005-\u3007\u3031-\u303c\u3040-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uaa60-\uaa7f\uac00-\ud7ff\uf900-\ufaff"
    "\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)


def _characters(*kinds: tuple[str, ...]) -> list[str]:
    """For each tuple of categories, the characters above ASCII that are of them, as a class for a
    regular expression. One look at Unicode for all: every process has it at its start."""
    found: list[list[int]] = [[] for _ in kinds]
    places = {one: codes for kind, codes in zip(kinds, found, strict=True) for one in kind}
    for code in range(0x80, 0x20000):
        if (codes := places.get(category(chr(code)))) is not None:
            codes.append(code)
    return [_ranges(codes) for codes in found]


def _ranges(codes: list[int]) -> str:
    firsts = [code for code, before in zip(codes, [0, *codes], strict=False) if code != before + 1]
    lasts = [code for code, after in zip(codes, [*codes[1:], 0], strict=True) if after != code + 1]
    return "".join(f"{chr(a)}-{chr(b)}" for a, b in zip(firsts, lasts, strict=True))


_IDENTIFIER = rf"{{word}}(?:(?:[-./:@]|{spellings.WITHIN}){{word}}|(?!))*+(?:\+\+|\#)?"
TOKEN_OF_ASCII = re.compile(_IDENTIFIER.format(word=r"\w++"), re.ASCII)
# Python's \w leaves out the marks that Indic and Thai words are made of.
_MARKS, _SIGNS = _characters(("Mn", "Mc"), ("So", "Sm", "Sc"))
TOKEN = re.compile(
    _IDENTIFIER.format(word=rf"\w++(?:[{_MARKS}]++\w*+|(?!))*+") + rf"|[{_MARKS}]+|[{_SIGNS}]"
)
JOINT = re.compile(r"[-/:@,'\u2019\u066c]")
"""between the parts of a date, a code, an address, a path, a name or a number"""
TELLING = re.compile(r"[0-9/@]")
"""What is joined is a name as a whole if it holds one of these: `2024-03-17`, not `well-known`."""
SEPARATOR = re.compile(r"[._]+")
RUN = re.compile(f"[{UNSPACED}]+|[^{UNSPACED}]+")
UNSPACED_START = re.compile(f"[{UNSPACED}]")
INVISIBLE = re.compile("[\u00ad\u061c\u200c-\u200f\u202a-\u202e\u2060-\u2064\ufe00-\ufe0f\ufeff]")
# Accents, Hebrew and Arabic points, tatweel: often left out in writing, so left out here. The
# voiced marks of Kana and the vowel signs of Indic scripts are letters to their readers and stay.
ACCENT = re.compile("[\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670]")
STREET = re.compile(r"(?<=\w)str(asse)?\Z")
"""at the end of the name of a German street, cut short or in full"""
WRITTEN = re.compile(rf"\w(?:\+\+|\#)|\w[\w{_MARKS}{INVISIBLE.pattern[1:-1]}]*+")
"""a word as a text has it, before `tokens` has made its characters alike"""
DIGITS = tuple(
    str.maketrans("0123456789", "".join(map(chr, range(zero, zero + 10))))
    for zero in (0x0660, 0x06F0, 0x0966, 0x09E6)
)
"""of Arabic, Persian, Hindi and Bengali texts, which write numbers in these and in ours"""
WITHOUT_STROKE = str.maketrans(
    {"ø": "o", "ł": "l", "đ": "d", "ħ": "h", "ı": "i", "æ": "ae", "œ": "oe"}  # noqa: RUF001 dotless
)

Cut = Callable[[str], Iterable[str]]
Word = tuple[str, str]
"""A word in lower case, and what stems it: "latin", a language code, or "" for nothing."""
WrittenWord = tuple[str, bool]
"""A word as a text has it, and whether it is several there that may be written as this one."""
Reader = Callable[[str], Iterable[Word]]
"""the words of one token"""


def stems(text: str) -> list[str]:
    """The terms of a document's text, in its order, repeated as often as they occur."""
    return _stems(text)[0]


def _stems(text: str, spoken: str | None = None) -> tuple[list[str], str]:
    """With the language, which is found unless it is `spoken`."""
    words = _words(tokens(text), _in_text)
    language = spoken or languages.spoken(word for word, _ in words)[0]
    return [_term(word, language if by == "latin" else by) for word, by in words], language


def weigh(org: str, text: str, names: str = "") -> dict[int, float]:
    """Term number → BM25 weight of the document side, without the IDF, of one chunk. The words of
    `names` that do not stand in the text count as if they stood there once."""
    counts: Counter[int] = Counter()
    read, spoken = _stems(text)
    for stem, count in Counter(read).most_common(MOST_TERMS):
        counts[number(org, stem)] += count
    for stem in _stems(names[:LONGEST_NAMES], spoken)[0]:
        counts.setdefault(number(org, stem), 1)
    saturation = K1 * (1 - B + B * len(text) / AVERAGE)
    return {term: count * (K1 + 1) / (count + saturation) for term, count in counts.items()}


def query_terms(org: str, text: str) -> list[tuple[int, ...]]:
    """`query_words` as term numbers: one group per word, its alternatives.

    A chunk holds the word in one language, so the document frequency of the word is the sum over
    its group, and all numbers of the group weigh the same.
    """
    return [numbers(org, group) for group in query_words(text)]


def query_words(text: str) -> list[tuple[str, ...]]:
    """The terms under which documents may hold each distinct word of a query, at most `MOST_WORDS`.

    Stop words of the language that the query seems to be in are left out unless there is nothing
    else.
    """
    read = tokens(text[:MOST_READ])
    words = _words(read, _in_query)
    joined: dict[str, list[Word]] = {}
    for part, one in chain.from_iterable(map(_joined, read)):
        if one not in (wholes := joined.setdefault(part, [])) and len(wholes) < MOST_WHOLES:
            wholes.append(one)
    spoken = frozenset(languages.spoken(word for word, _ in words))
    telling = [word for word in words if spoken.isdisjoint(languages.SPEAKERS.get(word[0], ()))]
    # One by one: the stems of a word in all languages take longer than to read a thousand words.
    distinct: dict[tuple[str, ...], None] = {}
    for word in dict.fromkeys(telling or words):
        if len(distinct) == MOST_WORDS:
            break
        forms = (_alternatives(*one) for one in (word, *joined.get(word[0], ())))
        distinct[tuple(dict.fromkeys(chain.from_iterable(forms)))] = None
    return list(distinct)


@lru_cache
def stop_terms() -> frozenset[str]:
    """The stop words, each as the term of its language."""
    return frozenset(
        _term(word, code) for code, said in languages.STOP_WORDS.items() for word in said.split()
    )


def tokens(text: str) -> list[str]:
    """Words, names and symbols as they stand in a text."""
    text = spellings.SPACED.sub(spellings.hyphened, text)
    if text.isascii():
        return TOKEN_OF_ASCII.findall(text)
    text = spellings.THIN_SPACE.sub(",", INVISIBLE.sub("", text))
    # The hyphens of word processors, which may forbid a line to end there, are like any other.
    return TOKEN.findall(normalize("NFKC", text).replace("\u2010", "-"))


def places(text: str) -> Iterator[tuple[int, int, WrittenWord]]:
    """Where words stand in a text as it is written, to be marked where a query asks for them:
    start, end, and the word.

    Scripts without spaces are indexed by single characters and pairs: both are given. What may be
    written as one word is given so before its parts.
    """
    alone = ((*span, (text[slice(*span)], False)) for span in _places(text))
    joined = ((start, end, (word, True)) for start, end, word in spellings.places(text))
    return merge(joined, alone, key=lambda place: place[0])


def place_terms(org: str, word: str, is_joined: bool) -> frozenset[int]:
    """By which numbers of a query a word of `places` is marked. What is written as several counts
    whole: each of its parts has a place of its own."""
    groups = query_terms(org, word)
    return frozenset(chain.from_iterable(groups[:1] if is_joined else groups))


def _places(text: str) -> Iterator[tuple[int, int]]:
    for found in WRITTEN.finditer(text):
        if found[0].isascii():
            yield found.span()
            continue
        for run in RUN.finditer(found[0]):
            start, end = found.start() + run.start(), found.start() + run.end()
            if not UNSPACED_START.match(run[0]):
                yield start, end
                continue
            for at in range(start, end):
                yield at, min(at + 2, end)
                yield at, at + 1


def language(tokens: Iterable[str]) -> str:
    """Of a text of Latin letters, by its stop words: that by which `stems` takes its words."""
    return languages.spoken(map(str.lower, tokens))[0]


def stems_of(token: str, language: str) -> Sequence[str]:
    """The terms of one token of a text in that language."""
    if len(token) <= LONGEST_WORD:
        return _stems_of(token, language)
    # A sentence in a script without spaces, or a key of many letters.
    words = () if token.isascii() else _in_text(token)
    return [_term(word, language if by == "latin" else by) for word, by in words]


@lru_cache(maxsize=1 << 16)
def _stems_of(token: str, language: str) -> tuple[str, ...]:
    return tuple(_term(word, language if by == "latin" else by) for word, by in _in_text(token))


def held(
    tokens: Iterable[str], language: str, words: Mapping[str, Sequence[int]], begun: Collection[str]
) -> dict[str, tuple[int, ...]]:
    """Which words the tokens of a text in that language hold; of those tokens that hold any.

    `words`: their numbers by their terms; `begun`: the `beginnings` of these.
    """
    found: dict[str, tuple[int, ...]] = {}
    for token in tokens:
        if beginning(token) in begun:
            stems = stems_of(token, language)
            if not words.keys().isdisjoint(stems):
                found[token] = tuple(chain.from_iterable(words.get(stem, ()) for stem in stems))
    return found


def sequence(token: str, language: str) -> list[str]:
    """The terms of one token of a text in that language, word by word in its order: not whole, and
    names of several capitals not in parts."""
    return [_term(word, language if by == "latin" else by) for word, by in _succession(token)]


def wanted(token: str) -> list[tuple[str, ...]]:
    """The words of one token of a query in its order, each as the terms that `sequence` may give
    for it. All of them are `stems` of a text that holds the token."""
    return [_alternatives(*word) for word in _succession(token)]


def beginnings(alternatives: Iterable[Iterable[str]]) -> frozenset[str]:
    """What `beginning` says of the tokens that may hold one of these terms."""
    found = {term.rpartition(":")[2][:1] for group in alternatives for term in group}
    return frozenset({"", *found, *(soft for hard, soft in HARDENED.items() if hard in found)})


def beginning(token: str) -> str:
    """The letter with which each term of a token begins, "" where they may begin otherwise: to ask
    whether a token may be a word that is looked for. Stemming would tell, for 20 times the time.

    No stemmer changes the first letter of a word of ASCII letters, except that the Dutch one takes
    "ge" away, and the Turkish one hardens some. The second letter changes more often: "ueber",
    "lying", "ogen".
    """
    return _beginning(token) if len(token) <= LONGEST_WORD else ""


@lru_cache(maxsize=1 << 16)
def _beginning(token: str) -> str:
    begun = token[:2].lower()
    is_word = token.isalpha() and token.isascii() and (token.islower() or token.istitle())
    return begun[0] if is_word and begun != "ge" else ""


def idf(
    groups: Sequence[Sequence[int]], counted: Mapping[int, int], total: int
) -> dict[int, float]:
    """BM25's query side: rare words weigh more; words that stand nowhere weigh nothing.

    `counted`: in how many of the `total` texts a number stands. A text holds a word under one
    number of its group, so the group's frequency is the sum.
    """
    weights: dict[int, float] = {}
    for group, rarity in zip(groups, rarities(groups, counted, total), strict=True):
        for number in group:
            if counted.get(number, 0) > 0:
                weights[number] = max(rarity, weights.get(number, 0.0))
    return weights


def rarities(
    groups: Sequence[Sequence[int]], counted: Mapping[int, int], total: int
) -> list[float]:
    """Of each word: the fewer of the `total` texts hold it, the more; see `idf`."""
    held = [sum(counted.get(number, 0) for number in group) for group in groups]
    return [math.log1p((max(total - n, 0) + 0.5) / (n + 0.5)) for n in held]


def share(
    groups: Sequence[Sequence[int]], held: Set[int], weights: Sequence[float] | None = None
) -> float:
    """Which share of a query's words a text holds, 0 … 1; `held` are the numbers of the text.

    With `weights`, one for each word, a word counts for as much.
    """
    weights = [1.0] * len(groups) if weights is None else weights
    there = [not held.isdisjoint(group) for group in groups]
    whole = sum(weights)
    return sum(w for w, held in zip(weights, there, strict=True) if held) / whole if whole else 0.0


def number(org: str, stem: str) -> int:
    """The stem's term number, 1 … 10^9: the same on every machine, another in another org."""
    if len(stem) > LONGEST_WORD:
        return _hash("stem", org, stem)
    return _number(org, stem)


def numbers(org: str, word: Iterable[str]) -> tuple[int, ...]:
    """Those of the terms under which a text may hold a word."""
    return tuple(number(org, term) for term in word)


def tag_number(org: str, tag: str) -> int:
    """Term number that stands for a container tag; apart from stems but for chance."""
    return _hash("tag", org, tag)


def org_number(org: str) -> int:
    """Term number that every chunk of an organisation carries."""
    return _hash("org", org, "")


def _hash(space: str, org: str, name: str) -> int:
    data = "\0".join((space, org, name)).encode("utf-8", "surrogatepass")
    return int.from_bytes(blake2b(data, digest_size=8).digest(), "big") % LARGEST + 1


@lru_cache(maxsize=1 << 16)
def _number(org: str, stem: str) -> int:
    return _hash("stem", org, stem)


def _words(tokens: Iterable[str], reader: Reader) -> list[Word]:
    words: list[Word] = []
    for token in tokens:
        words += _known(token, reader) if len(token) <= LONGEST_WORD else reader(token)
    return words


@lru_cache(maxsize=1 << 16)
def _known(token: str, reader: Reader) -> tuple[Word, ...]:
    return tuple(reader(token))


def _in_query(token: str) -> Iterable[Word]:
    return _parts(token, _pairs)


def _in_text(token: str) -> Iterable[Word]:
    """The words of a token, and what may be written as one word of several."""
    words = [*_parts(token, _singles_and_pairs)]
    return words + [
        one for one in dict.fromkeys(one for _, one in _joined(token)) if one not in words
    ]


def _joined(token: str) -> Iterator[tuple[str, Word]]:
    """Words of a token, each with one that they may be written as, mostly together with others."""
    if len(token) > LONGEST_WORD or _is_plain(token):
        return
    for whole, parts in spellings.joined(token):
        for part in parts:
            yield _lower(part), _word(whole)


def _parts(token: str, cut: Cut) -> Iterator[Word]:
    """A token whole, if it is a name of some kind, and its words."""
    bare = token.rstrip("+#")
    if len(bare) == 1 and bare != token:  # C++, C#
        yield _lower(token), ""
    whole = spellings.THOUSANDS.sub("", bare)
    if JOINT.search(whole) and TELLING.search(whole):
        yield _lower(whole), ""
    for one in JOINT.split(bare):
        yield from _dotted(one, cut)


def _dotted(name: str, cut: Cut) -> Iterator[Word]:
    """An identifier whole and its words."""
    parts = [part for part in SEPARATOR.split(name) if part]
    if len(parts) > 1:
        yield _lower(name.strip("_")), ""
        if all(len(part) == 1 for part in parts):  # U.S.A.
            yield _word("".join(parts))
    for part in parts:
        for run in RUN.findall(part):
            if UNSPACED_START.match(run):
                for gram in cut(_lower(run)):
                    yield gram, ""
                continue
            yield _word(run)
            if not _is_plain(run):
                yield from map(_word, spellings.pieces(run))


def _is_plain(word: str) -> bool:
    return word.isalpha() and (word.islower() or word.istitle())


def _succession(token: str) -> Iterator[Word]:
    """The words of a token one after another, characters of scripts without spaces each alone."""
    bare = token.rstrip("+#")
    if len(bare) == 1 and bare != token:  # C++, C#
        yield _lower(token), ""
        return
    for name in JOINT.split(bare):
        for part in SEPARATOR.split(name):
            for run in RUN.findall(part):
                if UNSPACED_START.match(run):
                    for character in _lower(run):
                        yield character, ""
                else:
                    yield _word(run)


def _singles_and_pairs(run: str) -> Iterator[str]:
    for index, character in enumerate(run):
        yield character
        if index + 1 < len(run):
            yield run[index : index + 2]


def _pairs(run: str) -> Iterator[str]:
    if len(run) == 1:
        yield run
    for index in range(len(run) - 1):
        yield run[index : index + 2]


def _lower(word: str) -> str:
    return word.lower() if word.isascii() else normalize("NFKC", word.casefold())


def _word(text: str) -> Word:
    word = _lower(text)
    code = ord(word[0])
    if len(word) > LONGEST_WORD:
        return word, ""
    return word, next((by for first, end, by in SCRIPTS if first <= code < end), "")


def _alternatives(word: str, by: str) -> tuple[str, ...]:
    """The terms under which documents may hold the word: without accents, in other `DIGITS`, and
    of a street cut short or in full."""
    if word.isdecimal():
        ours = "".join(str(decimal(digit)) for digit in word)
        theirs = (_term(*_word(ours.translate(digits))) for digits in DIGITS)
        return tuple(dict.fromkeys((_term(word, by), ours, *theirs)))
    spoken = languages.LATIN if by == "latin" else (by,)
    plain = _fold(word)
    forms = (word, plain, STREET.sub(lambda end: "str" if end[1] else "strasse", plain))
    return tuple(dict.fromkeys(_term(form, language) for form in forms for language in spoken))


def _term(word: str, language: str) -> str:
    return _stemmed(word, language) if language else _fold(word)


@lru_cache(maxsize=1 << 16)
def _stemmed(word: str, language: str) -> str:
    # English has no accents: "résumé" has to meet "resume", which is stemmed further. Elsewhere the
    # stemmer needs them to recognise endings.
    plain = _fold(word) if language == "en" else word
    return f"{language}:{_fold(_stemmer(language).stemWord(plain) or word)}"


def _fold(word: str) -> str:
    return word if word.isascii() else _without_accents(word)


@lru_cache(maxsize=1 << 16)
def _without_accents(word: str) -> str:
    bare = ACCENT.sub("", normalize("NFD", word)).translate(WITHOUT_STROKE)
    return normalize("NFC", bare) or word


class _Stemmer(Protocol):
    def stemWord(self, word: str) -> str: ...


_threads = threading.local()


def _stemmer(language: str) -> _Stemmer:
    """This thread's stemmer: the C objects must not be shared between threads."""
    mine = cast("dict[str, _Stemmer]", _threads.__dict__)
    if language not in mine:
        make = cast("Callable[[str, int], _Stemmer]", Stemmer.Stemmer)
        mine[language] = make(languages.STEMMERS[language], 0)
    return mine[language]
