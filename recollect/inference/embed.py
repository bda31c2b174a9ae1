"""Texts to vectors: a model on this machine, or an OpenAI-compatible endpoint."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from recollect.errors import SetupError
from recollect.inference.batching import Vectors
from recollect.inference.endpoint_embedder import open_endpoint
from recollect.inference.local_model import open_local


class Embedder(Protocol):
    """Maps texts to points of one vector space. May be used by several threads at once."""

    @property
    def name(self) -> str:
        """Identity of the vector space; vectors of different names must never be compared."""
        ...

    @property
    def dimensions(self) -> int: ...

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        """One row of length 1 per text, in the order of the texts.

        `query` tells models that need it that these are questions, not passages. Raises
        Unavailable when nothing can be embedded now, Transient or Permanent for these texts. For a
        query, what does not answer is left alone for a while: then it is Resting, at once.
        After `stop`, LeaseLost for what is no query.
        """
        ...

    def stop(self) -> None:
        """Take no more texts, for good: this process ends. What is under way is finished, and who
        waits for more than that gets LeaseLost."""
        ...


@dataclass(frozen=True, slots=True)
class EmbedderChoice:
    """The operator's settings. `model` is a model's name; for `local` also a folder with one."""

    kind: str
    url: str | None = None
    key: str | None = field(default=None, repr=False)
    model: str | None = None
    dimensions: int | None = None


def open_embedder(choice: EmbedderChoice, *, cache: Path, threads: int) -> Embedder | None:
    """The embedder of the settings; None for `none`.

    `threads` is how many texts the local model works on at once. Opening it takes some seconds
    the first time, while it is built into `cache`. Raises SetupError with the remedy.
    """
    match choice.kind:
        case "none":
            return None
        case "local":
            return open_local(choice.model, cache.absolute(), threads)
        case "openai":
            return open_endpoint(choice.url, choice.key, choice.model, choice.dimensions)
        case unknown:
            raise SetupError(
                f"RECOLLECT_EMBEDDER is {unknown!r}, but must be local, openai or none"
            )
