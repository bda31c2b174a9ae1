"""What a query says beside its words: "exact phrases", and -words that must not be there.

A phrase stands in quotation marks, and its words must follow each other in a passage. What a minus
sign leads is a word, or a phrase, that no found document holds. Words are compared as they are
indexed: capitals, accents, punctuation between words and inflection do not count. All else of a
query is words as they are, a mark that does not close and a minus that leads no word included.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from recollect.errors import BadRequestError
from recollect.index import terms

MOST = 64
"""words of all phrases of a query together"""
_MARKED = re.compile(
    # A mark opens at the start of a word, or behind a script without spaces: 5" is a length.
    rf'(?P<minus>(?<!\S)-)?(?:(?<!\w)|(?<=[{terms.UNSPACED}]))["“„](?P<phrase>[^"“”„]*)["”“]'
    # -1 is a number, --flag an option, foo-bar one word.
    r"|(?<!\S)-(?P<word>[^\W\d_][^\s\"“”„]*)"
)


@dataclass(frozen=True)
class Phrase:
    """`words`: its words in their order, each as the terms under which a text may hold it."""

    words: tuple[tuple[str, ...], ...]

    def stands_in(self, text: str) -> bool:
        """Whether the words follow each other in the text."""
        return self in PhraseStanding([self]).of(text)


class PhraseStanding:
    """Which of some phrases stand in texts. What a token is to them is found once a language.

    Each word of each phrase has a bit, next to that of the word before it, so that one pass over a
    text follows all of them at once, however they repeat.
    """

    def __init__(self, phrases: Iterable[Phrase]) -> None:
        self._ends: dict[int, Phrase] = {}
        self._bits: dict[str, int] = {}
        self._firsts = self._alone = 0
        bit = 1
        for phrase in phrases:
            self._firsts |= bit
            self._alone |= bit if len(phrase.words) == 1 else 0
            for word in phrase.words:
                for term in word:
                    self._bits[term] = self._bits.get(term, 0) | bit
                bit <<= 1
            self._ends[bit >> 1] = phrase
        self._beginnings = terms.beginnings([self._bits])
        self._known: dict[tuple[str, str], tuple[Sequence[int], int]] = {}

    def of(self, text: str) -> set[Phrase]:
        tokens = terms.tokens(text)
        language = terms.language(tokens)
        begun = met = 0
        for token in tokens:
            known = self._known.get((language, token))
            if known is None:
                known = self._known[language, token] = self._look(token, language)
            words, parts = known
            met |= parts
            for bits in words:
                begun = (begun << 1 | self._firsts) & bits
                met |= begun
        return {phrase for end, phrase in self._ends.items() if met & end}

    def _look(self, token: str, language: str) -> tuple[Sequence[int], int]:
        """The bits of each word of a token, one after another, and of those in any of its parts: a
        word alone is found in parts of names as well, as it is without quotation marks."""
        if terms.beginning(token) not in self._beginnings:
            return (0,), 0
        words = [self._bits.get(term, 0) for term in terms.sequence(token, language)]
        parts = 0
        for term in terms.stems_of(token, language):
            parts |= self._bits.get(term, 0)
        return words, parts & self._alone


@dataclass(frozen=True, slots=True)
class Reading:
    """A query as it was understood. `text` is what to look for, without what must not be there;
    `phrases` stand in each passage that is found, and none of `excluded` in its document."""

    text: str
    phrases: Sequence[Phrase] = ()
    excluded: Sequence[Phrase] = ()


class QueryError(BadRequestError):
    """`problem`: what is wrong with the query; `q` is what most doors call the field."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"q: {problem}")
        self.problem = problem


def read(query: str) -> Reading:
    """Raises QueryError if the query says only what must not be there, or too much."""
    kept: list[str] = []
    phrases: list[Phrase] = []
    excluded: list[Phrase] = []
    end = 0
    for found in _MARKED.finditer(query):
        phrase = _phrase(found["word"] or found["phrase"] or "")
        if not phrase.words:  # "" or "!"
            continue
        away = found["minus"] is not None or found["word"] is not None
        (excluded if away else phrases).append(phrase)
        kept += (query[end : found.start()], " " if away else f" {found['phrase']} ")
        end = found.end()
    if not (phrases or excluded):
        return Reading(query)
    text = " ".join("".join([*kept, query[end:]]).split())
    if not text:
        raise QueryError(
            "says only what must not be there; add words to look for, or put quotation marks"
            ' around it to look for the minus sign\'s word: "-word"'
        )
    if sum(len(one.words) for one in (*phrases, *excluded)) > MOST:
        raise QueryError(
            f"at most {MOST} words in quotation marks and behind minus signs; leave out the"
            " marks to look for the words singly"
        )
    return Reading(text, phrases, excluded)


def _phrase(text: str) -> Phrase:
    return Phrase(tuple(word for token in terms.tokens(text) for word in terms.wanted(token)))
