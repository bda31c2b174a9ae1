"""How a process reaches the models of the index, which may change while it runs.

`IndexEmbedder` stands for whichever model searches use now. It looks at the row (`embedding.py`)
when it is asked for vectors and has not looked for a second, so an idle process asks nothing.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from recollect import log
from recollect.db import Database
from recollect.errors import Permanent, SetupError, Transient, Unavailable
from recollect.index import vector_index
from recollect.index.vector_index import Choice, Index, Kept, ModelVectors
from recollect.inference.embed import Embedder

LOG = log.get("embedders")
FRESH = 1.0
"""Seconds that what the row said is good for: so long after a flip a process may search with the
model before, which still has all vectors."""
REST = 30.0
"""Seconds that the second model is left alone after it failed; meanwhile the workers catch up."""
SHARE = 10
"""It is left alone so many times as long as the failure took: who adds a memory waits for that."""

Vectors = NDArray[np.float32]


class IndexEmbedder:
    """The model that searches use; what it makes knows the model, see `embedding.Made`.

    Texts that are to be kept get the second model's vectors, too, while there is one. Nobody waits
    for it when it is down: the workers make what is lacking.
    """

    def __init__(
        self, db: Database, settings: Embedder, opened: Callable[[Choice], Embedder]
    ) -> None:
        """`settings`: the one that the settings name; `opened` opens any other, or raises
        SetupError."""
        self._db = db
        self._settings = settings
        self._open = opened
        self._opened: dict[str, tuple[Choice, Embedder]] = {}
        self._opening = Lock()
        self._index: Index | None = None
        self._looked_at = float("-inf")
        self._rest_until = float("-inf")

    @property
    def name(self) -> str:
        return self.index().used.name

    @property
    def dimensions(self) -> int:
        return self.index().used.dimensions

    def embed(self, texts: Sequence[str], *, query: bool = False) -> ModelVectors:
        """As `Embedder.embed`."""
        index = self.index()
        vectors = self.embed_with(index.used, texts, query=query)
        if query or not texts:
            return ModelVectors.of(vectors, index.used.name)
        return ModelVectors.of(vectors, index.used.name, self._beside(index, texts))

    def stop(self) -> None:
        """As `Embedder.stop`."""
        for embedder in (self._settings, *(one for _, one in list(self._opened.values()))):
            embedder.stop()

    def embed_with(self, model: Kept, texts: Sequence[str], *, query: bool = False) -> Vectors:
        """What one model makes of them. Raises as `Embedder.embed`; Unavailable, too, when its
        vectors would not fit those that the index has."""
        vectors = self.reach(model).embed(texts, query=query)
        if vectors.shape[1] != model.dimensions:
            raise Unavailable(
                f"{model.name} gives vectors of {vectors.shape[1]} dimensions, the index has"
                f" {model.dimensions} of it; check what its endpoint runs, and"
                " RECOLLECT_EMBEDDER_DIMENSIONS"
            )
        return vectors

    def index(self, *, now: bool = False) -> Index:
        """The row; `now`: not as it was a second ago. Raises Unavailable."""
        index = self._index
        if index is None or now or time.monotonic() - self._looked_at > FRESH:
            with self._db.begin() as tx:
                found = vector_index.read(tx)
            if found is None:
                raise Unavailable("the index is bound to no model; start the service again")
            if index is not None and index.used.name != found.used.name:
                LOG.info("model changed", model=found.used.name)
            self._index, self._looked_at = found, time.monotonic()
            return found
        return index

    def reach(self, model: Kept) -> Embedder:
        """Opened at first, which may take a while. Raises Unavailable when that fails."""
        if model.name == self._settings.name:
            return self._settings
        with self._opening:
            held = self._opened.get(model.name)
            if held is not None and held[0] == model.choice:
                return held[1]
            if model.choice is None:
                raise Unavailable(
                    f"the index is of {model.name}, the settings name {self._settings.name}"
                )
            try:
                embedder = self._open(model.choice)
            except SetupError as error:
                raise Unavailable(f"{model.name} cannot be opened: {error}") from error
            self._opened[model.name] = (model.choice, embedder)
            return embedder

    def _beside(self, index: Index, texts: Sequence[str]) -> Mapping[str, Vectors]:
        if index.other is None or time.monotonic() < self._rest_until:
            return {}
        began = time.monotonic()
        try:
            return {index.other.name: self.embed_with(index.other, texts)}
        except (Transient, Permanent) as error:
            now = time.monotonic()
            self._rest_until = now + max(REST, SHARE * (now - began))
            LOG.warning("second model", model=index.other.name, error=str(error))
            return {}
