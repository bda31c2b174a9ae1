"""An embedder whose vectors are words: near texts share words. Keeps what it was asked to embed."""

import re
import zlib
from collections.abc import Sequence
from threading import Lock

import numpy as np
from numpy.typing import NDArray

from recollect.errors import Unavailable

DIMENSIONS = 64


class WordEmbedder:
    """Deterministic; `texts` lists the texts embedded since the last `forget`."""

    name = "fake:words"
    dimensions = DIMENSIONS

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.down = False
        self._lock = Lock()

    def embed(self, texts: Sequence[str], *, query: bool = False) -> NDArray[np.float32]:
        if self.down:
            raise Unavailable("the embedding endpoint does not answer")
        if not query:
            with self._lock:
                self.texts.extend(texts)
        vectors = np.full((len(texts), DIMENSIONS), 1e-3, dtype=np.float32)
        for row, text in enumerate(texts):
            for word in re.findall(r"\w+", text.lower()):
                vectors[row, zlib.crc32(word.encode()) % DIMENSIONS] += 1
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    def stop(self) -> None:
        pass

    def forget(self) -> None:
        self.texts.clear()
