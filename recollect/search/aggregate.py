"""Memories that answer a query put together, by the language model, for the answer to that query.

The answer is shown to those who may see all of the memories, with their numbers. It is not stored.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from recollect.inference.llm import Llm, Question, Reply
from recollect.model import storable

PURPOSE = "aggregate"
FIRST = 20
"""memories that are put together, the likest"""
SHOWN = 1_000
"""characters of each"""
MOST = 3
"""that come of it"""
LONGEST = 1_000
"""characters of one that comes of it"""
_RULES = (
    "The data are a query to a person's memory and what was found, each with its number and the"
    " date when it was noted. Where several of them together answer the query better than each"
    " alone, say so in a sentence or two that make sense alone, and give the numbers of all that"
    " they are made of, at least two. Up to three of these, the best first. Keep names, numbers,"
    " dates and the language. Say nothing that the memories do not say; where they contradict each"
    " other, say which is newer. If nothing is better together, give none."
)


@dataclass(frozen=True, slots=True)
class Noted:
    """A memory, and the date when it was noted (ISO 8601)."""

    text: str
    date: str


@dataclass(frozen=True, slots=True)
class Aggregate:
    """What several memories say together; `of` are their places, at least two."""

    text: str
    of: Sequence[int]


class MergedMemory(Reply):
    memory: str
    of: list[int]


class MemoriesReply(Reply):
    memories: list[MergedMemory]


def aggregates(llm: Llm, query: str, known: Sequence[Noted]) -> list[Aggregate]:
    """Up to `MOST`, from the first `FIRST` of the memories; none that repeats one of them.

    Somebody waits, so the model has a few seconds for it. Not to be called in a transaction.
    Raises Unavailable or Permanent, of which no message quotes the query or the memories.
    """
    shown = known[:FIRST]
    if len(shown) < 2:  # one is together already
        return []
    data = {
        "query": query,
        "memories": [
            {"number": number, "date": one.date, "memory": one.text[:SHOWN]}
            for number, one in enumerate(shown, 1)
        ],
    }
    told = llm.ask(Question(PURPOSE, _RULES, data, MemoriesReply, hurried=True))
    there = {_plain(one.text) for one in shown}
    found: list[Aggregate] = []
    for one in told.memories:
        text = " ".join(storable(one.memory).split())
        of = sorted({number - 1 for number in one.of if 0 < number <= len(shown)})
        if text and len(text) <= LONGEST and len(of) > 1 and _plain(text) not in there:
            there.add(_plain(text))
            found.append(Aggregate(text, of))
    return found[:MOST]


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()
