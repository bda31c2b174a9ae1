"""Change of the embedding model, in the workers: what lacks a vector gets it, then comes the flip.

Each step is one bounded piece of work that any worker may do, and that may be killed at any time:
what has its vector has it, and the rest is still named by a gap whose lease runs out. See
`embedding.py` for the states.
"""

from collections.abc import Sequence
from datetime import timedelta

import numpy as np
from numpy.typing import NDArray

from recollect import log
from recollect.app import App
from recollect.errors import Permanent, Transient, Unavailable, code_of
from recollect.index import missing_vectors, model_switch
from recollect.index.embedder import IndexEmbedder
from recollect.index.missing_vectors import Gap, Lacking
from recollect.index.vector_index import Index, Kept
from recollect.model import Failure
from recollect.orgs import audit

LOG = log.get("reembed")
BATCH = 64
"""Texts embedded and stored at a time; a killed worker loses at most so much work."""
AGAIN = timedelta(minutes=1)
"""How long texts that a model refuses are left alone."""
LONGEST_WISH = timedelta(hours=1)
"""How long an endpoint's `Retry-After` is obeyed."""

Vectors = NDArray[np.float32]


def step(app: App) -> bool:
    """Do one piece of what there is to do; whether there was any.

    Raises Unavailable when the model, or the database, cannot be reached now.
    """
    if not isinstance(app.embedder, IndexEmbedder):  # words alone
        return False
    index = app.embedder.index(now=True)
    if index.phase == "clearing":
        return _clear(app)
    if index.phase == "building" and not index.planned:
        with app.db.begin() as tx:
            return missing_vectors.plan(tx)
    with app.db.begin() as tx:
        gap = missing_vectors.claim(tx, lease=app.lease)
        lacking = [] if gap is None else missing_vectors.lacking(tx, gap, index, BATCH)
        waiting = gap is not None or missing_vectors.gaps(tx) > 0
    if gap is not None:
        _fill(app, app.embedder, gap, index, lacking)
        return True
    return index.phase == "building" and not waiting and _complete(app, index)


def _fill(
    app: App, embedder: IndexEmbedder, gap: Gap, index: Index, lacking: Sequence[Lacking]
) -> None:
    if not lacking:
        with app.db.begin() as tx:
            missing_vectors.close(tx, gap)
        return
    made: list[dict[str, Vectors]] = [{} for _ in lacking]
    refused: Failure | None = None
    down: Unavailable | None = None
    for model in index.models:
        asked = [pair for pair in zip(lacking, made, strict=True) if model.name in pair[0].models]
        try:
            refused = _make(embedder, model, asked) or refused
        except Unavailable as error:  # the other model's are stored all the same
            down = error
    failure = refused if down is None else Failure(code_of(down), str(down))
    with app.db.begin() as tx:
        filled = missing_vectors.fill(tx, gap.relation, zip(lacking, made, strict=True))
        if filled:
            missing_vectors.advance(tx, gap, filled, failure)
        elif failure is None:  # somebody works on all of them
            missing_vectors.postpone(
                tx, gap, Failure("busy", "being changed"), timedelta(seconds=1)
            )
        elif down is None:
            missing_vectors.postpone(tx, gap, failure, AGAIN)
        else:
            wait = min(down.after or timedelta(), LONGEST_WISH)
            missing_vectors.postpone(tx, gap, failure, wait)
    if down is not None:
        raise down


def _make(
    embedder: IndexEmbedder, model: Kept, asked: Sequence[tuple[Lacking, dict[str, Vectors]]]
) -> Failure | None:
    """Give each text its vector of the model, and say why one is refused: the others get theirs.

    Raises Unavailable; some may have got theirs by then.
    """
    if not asked:
        return None
    try:
        vectors = embedder.embed_with(model, [one.text for one, _ in asked])
    except Unavailable:
        raise
    except (Transient, Permanent) as error:
        middle = len(asked) // 2
        if not middle:
            return Failure(code_of(error), f"{asked[0][0].id}: {error}")
        first = _make(embedder, model, asked[:middle])
        return _make(embedder, model, asked[middle:]) or first
    for (_, made), vector in zip(asked, vectors, strict=True):
        made[model.name] = vector
    return None


def _complete(app: App, index: Index) -> bool:
    """Build the vector index, count once more, and flip; whether anything was done."""
    if not model_switch.build_beside(app.db, index):
        return False
    with app.db.begin() as tx:
        missing = missing_vectors.missing(tx, index)
    with app.db.begin() as tx:
        if missing:
            LOG.warning("vectors are missing that no gap names", texts=missing)
            missing_vectors.plan_again(tx)
            return True
        if not model_switch.flip(tx):
            return True
        assert index.other is not None
        audit.record(tx, "index.switched", embedder=index.other.name)
    LOG.info("model changed", model=index.other.name)
    return True


def _clear(app: App) -> bool:
    with app.db.begin() as tx:
        return model_switch.clear(tx)
