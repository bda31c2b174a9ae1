"""What a query says beside its words: "exact phrases", and -words that must not be there.

A phrase stands in quotation marks, and its words must follow each other in a passage. What a minus
sign leads is a word, or a phrase, that no found document holds. Words are compared as they are
indexed: capitals, accents, punctuation between words and inflection do not count. All else of a
query is words as they are, a mark that does not close and a minus that leads no word included.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

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

    @cached_property
    def _beginnings(self) -> frozenset[str]:
        return terms.beginnings(self.words)

    def stands_in(self, text: str) -> bool:
        """Whether the words follow each other in the text."""
        tokens = terms.tokens(text)
        language = terms.language(tokens)
        # A word alone is found in parts of names as well, as it is without quotation marks.
        cut = terms.stems_of if len(self.words) == 1 else terms.sequence
        held: list[str | None] = []
        for token in tokens:
            if terms.may_be(token, self._beginnings):
                held += cut(token, language)
            else:
                held.append(None)
        return any(
            all(held[at + place] in word for place, word in enumerate(self.words))
            for at in range(len(held) - len(self.words) + 1)
        )


@dataclass(frozen=True, slots=True)
class Reading:
    """A query as it was understood. `text` is what to look for, without what must not be there;
    `phrases` stand in each passage that is found, and none of `excluded` in its document."""

    text: str
    phrases: Sequence[Phrase] = ()
    excluded: Sequence[Phrase] = ()

    def admits(self, text: str) -> bool:
        """Whether a text holds all phrases and nothing that is excluded."""
        return all(one.stands_in(text) for one in self.phrases) and not any(
            one.stands_in(text) for one in self.excluded
        )


def read(query: str) -> Reading:
    """Raises BadRequestError if the query says only what must not be there, or too much."""
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
        raise BadRequestError(
            "q: says only what must not be there; add words to look for, or put quotation marks"
            ' around it to look for the minus sign\'s word: "-word"'
        )
    if sum(len(one.words) for one in (*phrases, *excluded)) > MOST:
        raise BadRequestError(
            f"q: at most {MOST} words in quotation marks and behind minus signs; leave out the"
            " marks to look for the words singly"
        )
    return Reading(text, phrases, excluded)


def _phrase(text: str) -> Phrase:
    return Phrase(tuple(word for token in terms.tokens(text) for word in terms.wanted(token)))
