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
from recollect.inference.embed import Embedder
from recollect.inference.endpoint_embedder import REFUSED
from recollect.telemetry import metrics

Vector = NDArray[np.float32]

_PASSING = frozenset(
    {"timeout", "unreachable", "bad_response", REFUSED} | {"http_408", "http_425", "http_429"}
)
"""Why a model gives no vector now, or none for this text. All else is for the operator to mend."""

_log = log.get("search")


def vectors(app: App, texts: Sequence[str], warnings: list[str]) -> list[Vector | None]:
    """One for each text that is searched by, or none for those that get none, which is then warned
    of; the query itself is the first.

    Without an embedder there are none, and nobody is warned. Not to be called in a transaction.
    Raises Transient or Permanent where the settings are wrong, or the database is away.
    """
    if app.embedder is None:
        return [None] * len(texts)
    found, error = _embed(app.embedder, texts)
    if error is not None:
        told = left_out("embedding", "the embedding model", error)
        others = "" if found[0] is None else " of another wording"
        warnings.append(f"{told}; only words{others} were searched for, not meaning")
    return found


def _embed(
    embedder: Embedder, texts: Sequence[str]
) -> tuple[list[Vector | None], Transient | Permanent | None]:
    """Those that can be had, and why others cannot."""
    try:
        return list(embedder.embed(texts, query=True)), None
    except (Transient, Permanent) as error:
        if error.code not in _PASSING and not error.code.startswith("http_5"):
            raise
        if error.code != REFUSED or len(texts) == 1:
            return [None] * len(texts), error
    # It may be one of them that is refused.
    each = [_embed(embedder, [text]) for text in texts]
    return [found for [found], _ in each], next((error for _, error in each if error), None)


def left_out(part: str, who: str, error: Transient | Permanent) -> str:
    """Count that a search went without `part`, and say why: the beginning of a warning.

    It is logged, too, but for what is left alone anyway.
    """
    metrics.add("recollect_search_left_out_total", part=part, code=error.code)
    if isinstance(error, Resting):
        return f"{part}: {who} gave no answer ({error.code}) and is not asked for a while"
    _log.warning("left out", what=part, code=error.code, reason=str(error))
    return f"{part}: {who} gave no answer ({error.code})"
