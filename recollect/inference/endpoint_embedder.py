"""An embedder that is an OpenAI-compatible endpoint."""

import base64
import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from recollect.errors import HeldOff, Permanent, SetupError, Transient, Unavailable
from recollect.fetch import Endpoint, EndpointAnswer
from recollect.inference.batching import BATCH_TEXTS, EmbeddingTurns, Vectors
from recollect.inference.circuit_breaker import Breaker
from recollect.inference.completion_stream import tells_of_error
from recollect.model import storable

REQUESTS = 4
"""to an endpoint at once; what more there is gathers and goes together into the next"""
SLOW = frozenset({"timeout", "http_504"})
"""codes of an endpoint, or what stands before it, that did not wait for so many texts"""
WHOLE = 300.0
"""seconds for a whole answer: some send a byte at a time to keep the connection"""
HURRY = 8.0
"""seconds for a query's vector from an endpoint: a search can do without"""
REFUSED, BAD_ANSWER = "embedding_refused", "bad_answer"
TOO_MUCH = SLOW | {"http_500", BAD_ANSWER}
"""codes of what is mostly the fault of these texts, where the endpoint takes others"""
LIMITED = "http_429"
HELD_OFF = "embedding_held_off"
"""of a text to which the endpoint answers 429, 503 or the like, and takes others"""
SHORTEST_HALF = 200
"""characters: a text that is refused alone may be too long for the model down to twice as many"""
RETRIAL = 64
"""one in so many requests has twice as many texts as were taken: a fault may have passed"""
HARMLESS = "harmless "
UNTOLD: Mapping[str, object] = {}
TOLD: Mapping[str, object] = {"encoding_format": "float"}
"""Voyage refuses `float`, others refuse `base64`, and we read both. So the format is left out until
a service refuses even a harmless text: LiteLLM hands on a null, which vLLM and DeepInfra refuse."""
INCOMPLETE = "embeddings: the answer has not one vector for each text"


class EndpointEmbedder:
    """Any service with OpenAI's `POST /embeddings`."""

    def __init__(
        self,
        endpoint: Endpoint,
        model: str,
        dimensions: int | None,
        *,
        hurried: Endpoint | None = None,
        breaker: Breaker | None = None,
    ) -> None:
        """`dimensions` is asked of the service; None takes what the model gives. `hurried`, of
        less patience, and `breaker` are for queries."""
        self._endpoint = endpoint
        self._hurried = hurried or endpoint
        self._breaker = breaker or Breaker("embedding model, for searches")
        self._model = model
        self._asked = dimensions
        self._learned = dimensions
        self._format = UNTOLD
        self._most = BATCH_TEXTS
        self._parts = 0
        self._learning = Lock()
        self._turns = EmbeddingTurns(self._embed_batch, lanes=REQUESTS)

    @property
    def name(self) -> str:
        return f"openai:{self._model}"

    @property
    def dimensions(self) -> int:
        """Without a setting for it, the first use asks the service. Raises Unavailable."""
        if self._learned is None:
            self._probe()
        assert self._learned is not None
        return self._learned

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        if not texts:
            return np.empty((0, self.dimensions), np.float32)
        if query:  # somebody waits for the answer
            with self._breaker.guard():
                return self._embed_batch(texts, time.monotonic() + HURRY)
        return self._turns.embed(texts)

    def stop(self) -> None:
        self._turns.stop()

    def _embed_batch(
        self,
        texts: Sequence[str],
        until: float | None = None,
        refused: list[Sequence[str]] | None = None,
    ) -> Vectors:
        """In as many requests as it takes. `until`, by the monotonic clock, is for a query: after
        it, nothing is taken apart. `refused` gains the texts of each request that is refused."""
        refused = [] if refused is None else refused
        rows: list[Vectors] = []
        while texts:
            most = self._most
            if len(texts) > most:
                self._parts += 1
                most *= 2 if self._parts % RETRIAL == 0 else 1
            rows.append(self._embed_part(texts[:most], until, refused))
            texts = texts[most:]
        return np.concatenate(rows)

    def _embed_part(
        self, texts: Sequence[str], until: float | None, refused: list[Sequence[str]]
    ) -> Vectors:
        # A text that the service does not like must not pause the queue for everybody, and wrong
        # settings must not fail each document: whether it takes a harmless text tells them apart.
        told = self._format
        try:
            rows = self._request(texts, until)
            if len(texts) > self._most:
                self._most = len(texts)
                self._parts = -1  # the next may have twice as many again
            return rows
        except (Permanent, Transient) as error:
            refused.append(texts)
            # Some servers answer 500 to a text that is too long for them, or leave it out. One that
            # takes too long for many would take so each time; who searches does not wait again.
            down = isinstance(error, Unavailable)
            if down and until is not None and error.code not in TOO_MUCH - SLOW:
                raise
            alone = len(texts) == 1
            # A limit of so much in a minute lets a short text pass when a long one has to wait.
            limited = alone and down and error.code == LIMITED
            self._probe(until, len(texts[0]) if limited else len(HARMLESS))
            if told is not self._format:
                return self._embed_part(texts, until, refused)
            if until is not None and time.monotonic() > until:
                raise Transient(str(error), code="timeout") from error
            if alone and not _may_be_too_long(texts[0], error):
                if isinstance(error, Permanent):
                    raise
                if down and error.code not in TOO_MUCH:
                    raise HeldOff(str(error), code=HELD_OFF, after=error.after) from error
                raise Transient(str(error), code=REFUSED, after=error.after) from error
            too_many = not down or error.code in TOO_MUCH
        if alone:
            return self._embed_long(texts[0], until, once_more=down)
        middle = (len(texts) + 1) // 2  # services differ in how much they take in one request
        halves = (texts[:middle], texts[middle:])
        rows = np.concatenate([self._embed_batch(half, until, refused) for half in halves])
        if too_many and refused[-1] is texts:
            self._most = min(self._most, middle)
        return rows

    def _embed_long(self, text: str, until: float | None, *, once_more: bool) -> Vectors:
        """The mean of its halves, for a model that does not read the whole of it. `once_more`: it
        is asked for the whole again, since the fault may have passed, and vectors are kept."""
        if once_more:
            with suppress(Permanent, Transient):
                return self._request([text], until)
        middle = len(text) // 2
        halves = [half for half in (text[:middle], text[middle:]) if half.strip()]
        rows = self._embed_batch(halves, until)
        return self._normalise(rows.mean(axis=0, keepdims=True, dtype=np.float64))

    def _probe(self, until: float | None = None, length: int = len(HARMLESS)) -> None:
        """Raises Unavailable unless the service embeds a harmless text of `length` characters."""
        harmless = [(HARMLESS * (length // len(HARMLESS) or 1)).rstrip()]
        try:
            self._request(harmless, until)
        except Unavailable:
            raise
        except (Permanent, Transient) as error:
            with suppress(Permanent, Transient):
                self._request(harmless, until, TOLD)
                self._format = TOLD
                return
            raise Unavailable(
                f"{error}; check RECOLLECT_EMBEDDER_URL, RECOLLECT_EMBEDDER_KEY,"
                " RECOLLECT_EMBEDDER_MODEL and RECOLLECT_EMBEDDER_DIMENSIONS",
                code=error.code,
            ) from error

    def _request(
        self,
        texts: Sequence[str],
        until: float | None = None,
        told: Mapping[str, object] | None = None,
    ) -> Vectors:
        body: dict[str, object] = {
            "model": self._model,
            "input": [storable(text) for text in texts],
            **(self._format if told is None else told),
        }
        if self._asked is not None:
            body["dimensions"] = self._asked
        endpoint = self._endpoint if until is None else self._hurried
        try:
            answer = endpoint.request_json("POST", "/embeddings", body)
            if tells_of_error(answer):
                said = endpoint.message(EndpointAnswer(200, {}, json.dumps(answer).encode()))
                raise Transient(f"{said}; check RECOLLECT_EMBEDDER_URL", code="http_500")
        except Transient as error:
            raise Unavailable(f"embeddings: {error}", code=error.code, after=error.after) from error
        except Permanent as error:
            raise _judge(error) from error
        return self._normalise(_parse(answer, len(texts)))

    def _normalise(self, vectors: NDArray[np.float64]) -> Vectors:
        width = vectors.shape[1]
        with self._learning:
            self._learned = self._learned or width
        if width != self._learned:
            raise Unavailable(
                f"embeddings: {self._model} gave vectors of {width} dimensions, not"
                f" {self._learned}; check RECOLLECT_EMBEDDER_DIMENSIONS and"
                " RECOLLECT_EMBEDDER_MODEL"
            )
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
        if not (np.isfinite(lengths).all() and lengths.all()):
            raise Transient(
                "embeddings: a vector came back with zero or infinite length",
                code=REFUSED,
            )
        return (vectors / lengths).astype(np.float32)


def open_endpoint(
    url: str | None, key: str | None, model: str | None, dimensions: int | None
) -> EndpointEmbedder:
    """Raises SetupError when `url` or `model` is not set."""
    if url is None or model is None:
        missing = "RECOLLECT_EMBEDDER_URL" if url is None else "RECOLLECT_EMBEDDER_MODEL"
        raise SetupError(f"RECOLLECT_EMBEDDER=openai needs {missing}")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    known = partial(
        Endpoint, url, headers=headers, settings="RECOLLECT_EMBEDDER_URL or RECOLLECT_EMBEDDER_KEY"
    )
    hurried = known(timeout=HURRY, total=HURRY)
    return EndpointEmbedder(known(total=WHOLE), model, dimensions, hurried=hurried)


def _judge(error: Permanent) -> Unavailable | Permanent:
    """Names the setting to check where the answer tells which one it is."""
    settings = {
        "http_401": "RECOLLECT_EMBEDDER_KEY",
        "http_403": "RECOLLECT_EMBEDDER_KEY",
        "http_404": "RECOLLECT_EMBEDDER_URL and RECOLLECT_EMBEDDER_MODEL",
        BAD_ANSWER: "RECOLLECT_EMBEDDER_URL",
    }
    if error.code in settings:
        return Unavailable(f"embeddings: {error}; check {settings[error.code]}", code=error.code)
    return Permanent(f"embeddings: {error}", code=REFUSED)


def _may_be_too_long(text: str, error: Permanent | Transient) -> bool:
    down = isinstance(error, Unavailable) and error.code not in TOO_MUCH - SLOW
    return len(text.strip()) >= 2 * SHORTEST_HALF and not down


def _parse(answer: Any, count: int) -> NDArray[np.float64]:
    """The vectors by `index`, or in their order. Raises Unavailable unless there are `count`, all
    of one width."""
    try:
        # Google leaves out a zero, others all numbers.
        found = {
            place if (index := item.get("index")) is None else index: _numbers(item["embedding"])
            for place, item in enumerate(answer["data"])
        }
        vectors = np.array([found[index] for index in range(count)], np.float64)
        complete = len(found) == len(answer["data"]) == count
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise Unavailable(INCOMPLETE, code=BAD_ANSWER) from error
    if not complete or vectors.ndim != 2 or not vectors.size:
        raise Unavailable(INCOMPLETE, code=BAD_ANSWER)
    return vectors


def _numbers(embedding: Any) -> Any:
    # Some services send base64 of little-endian float32 although floats were asked for.
    if isinstance(embedding, str):
        return np.frombuffer(base64.b64decode(embedding, validate=True), "<f4")
    return embedding
