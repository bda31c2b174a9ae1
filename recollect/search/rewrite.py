"""Other words for a query, from the language model: what is searched besides the query itself.

A variant only ever adds to what is searched, in the reach of whoever asks: however a query steers
the model, no more can be found than by asking in those words.
"""

from recollect.inference.llm import Llm, Question, Reply
from recollect.model import storable

PURPOSE = "rewrite"
VARIANTS = 3
LONGEST = 500
"""characters of a variant"""
_RULES = (
    "The data are a query to a search over a person's documents and notes, which finds by words and"
    " by meaning. Write up to three other queries that would find the same: the question as a"
    " statement, other words for its words, its parts if it asks several things. Keep names,"
    " numbers and the language. Do not answer it, and add nothing that it does not ask for. If it"
    " cannot be put better, give none."
)


class Variants(Reply):
    queries: list[str]


def variants(llm: Llm, query: str) -> list[str]:
    """Up to `VARIANTS` other queries; none is like the query but for capitals and white space.

    Somebody waits, so the model has a few seconds for it. Not to be called in a transaction.
    Raises Unavailable or Permanent, of which no message quotes the query.
    """
    told = llm.ask(Question(PURPOSE, _RULES, {"query": query}, Variants, hurried=True))
    found: dict[str, str] = {}
    for said in told.queries:
        text = " ".join(storable(said).split())
        if text and len(text) <= LONGEST:
            found.setdefault(text.casefold(), text)
    found.pop(" ".join(storable(query).split()).casefold(), None)
    return list(found.values())[:VARIANTS]
