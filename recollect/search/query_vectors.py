"""What a search asks with: vectors of the query and of other wordings of it, as far as there are.

A search can do without a vector, a rerank, another wording. What gives no answer is left out; the
caller is told so, and it is counted. Wrong settings are not passed over for a vector: they raise.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from recollect import log
from recollect.app import App
from recollect.errors import Permanent, Transient
from recollect.inference.circuit_breaker import Resting
from recollect.telemetry import metrics

Vector = NDArray[np.float32]

_PASSING = frozenset(
    {"timeout", "unreachable", "bad_response", "embedding_refused"}
    | {"http_408", "http_425", "http_429"}
)
"""Why a model gives no vector now, or none for this text. All else is for the operator to mend."""

_log = log.get("search")


def vectors(app: App, texts: Sequence[str], warnings: list[str]) -> list[Vector | None]:
    """One for each text that is searched by, or none for all of them, which is then warned of.

    Without an embedder there are none, and nobody is warned. Not to be called in a transaction.
    Raises Transient or Permanent where the settings are wrong, or the database is away.
    """
    if app.embedder is None:
        return [None] * len(texts)
    try:
        return list(app.embedder.embed(texts, query=True))
    except (Transient, Permanent) as error:
        if error.code not in _PASSING and not error.code.startswith("http_5"):
            raise
        told = left_out("embedding", "the embedding model", error)
        warnings.append(f"{told}; only words were searched for, not meaning")
        return [None] * len(texts)


def left_out(part: str, who: str, error: Transient | Permanent) -> str:
    """Count that a search went without `part`, and say why: the beginning of a warning.

    It is logged, too, but for what is left alone anyway.
    """
    metrics.add("recollect_search_left_out_total", part=part, code=error.code)
    if isinstance(error, Resting):
        return f"{part}: {who} gave no answer ({error.code}) and is not asked for a while"
    _log.warning("left out", what=part, code=error.code, reason=str(error))
    return f"{part}: {who} gave no answer ({error.code})"
