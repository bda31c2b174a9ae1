"""Rerankers: how well passages answer a query, judged one by one by a model that reads both.

A search finds passages by words and vectors that were made beforehand; a cross-encoder reads query
and passage together, which is better and slow, so that only the first ones are judged. It is a
model on this machine (a folder with its ONNX graph), or an endpoint that answers `POST /rerank` as
Cohere, Jina, Voyage, vLLM and text-embeddings-inference do. Who asks goes on without it when it
fails.
"""

import json
import math
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray
from tokenizers import Encoding, Tokenizer

from recollect import log
from recollect.errors import Permanent, SetupError, Transient, Unavailable
from recollect.fetch import Endpoint, EndpointAnswer, outcome
from recollect.inference.circuit_breaker import Breaker
from recollect.model import storable

GRAPH = "model.onnx"
TOKENIZER = "tokenizer.json"
FIRST = 20
"""passages that are judged of one search"""
TIMEOUT = 10.0
"""seconds that a search waits for the judgement"""
SHORT = 500
"""characters of passages that an endpoint refused: few enough for models of 512 tokens"""
MOST_TOKENS = 1_024
"""of query and passage together, even if the model could read more: time grows with the square"""
USUAL_TOKENS = 512
"""what nearly all such models read, where the folder does not say"""
BATCH_TOKENS = 8_192
"""of a batch, padding included"""
BAD_ANSWER = "bad_answer"
NEEDS_RERANKER = "RECOLLECT_RERANK_MODEL or RECOLLECT_RERANK_URL names one"

_log = log.get("rerank")


class Reranker(Protocol):
    """Judges passages. May be used by several threads at once."""

    @property
    def name(self) -> str: ...

    def score(self, query: str, passages: Sequence[str]) -> list[float]:
        """How well each answers the query, in the order of the passages; more is better.

        Takes as long as the model does: not to be called in a transaction. Raises Unavailable when
        nothing can be judged now, Permanent when this cannot be. No message quotes what was asked.
        """
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class RerankChoice:
    """The operator's settings. `model` is a folder, or with `url` the name at the endpoint."""

    url: str | None = None
    key: str | None = field(default=None, repr=False)
    model: str | None = None
    timeout: float = TIMEOUT
    threads: int = 1


def open_reranker(choice: RerankChoice) -> Reranker | None:
    """The reranker of the settings; None without one. Loads and connects nothing.

    Raises SetupError.
    """
    if choice.url is not None:
        return EndpointReranker(choice.url, choice.model, choice.key, timeout=choice.timeout)
    if choice.model is None:
        return None
    folder = Path(choice.model).expanduser().absolute()
    for name in (GRAPH, TOKENIZER):
        if not (folder / name).is_file():
            raise SetupError(
                f"RECOLLECT_RERANK_MODEL: {folder} has no {name}; name a folder with {GRAPH} and"
                f" {TOKENIZER} of a cross-encoder, or an endpoint by RECOLLECT_RERANK_URL"
            )
    return LocalReranker(folder, threads=choice.threads, timeout=choice.timeout)


# --- on this machine -----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Loaded:
    tokenizer: Tokenizer
    session: Any
    inputs: frozenset[str]
    output: str
    padding: int
    """id of the token that fills up"""


class LocalReranker:
    """A cross-encoder for one label (or two, of which the second says yes), on onnxruntime.

    Scores are between 0 and 1. It is loaded at the first use and then kept.
    """

    def __init__(self, folder: Path, *, threads: int = 1, timeout: float = TIMEOUT) -> None:
        self._folder = folder
        self._threads = threads
        self._timeout = timeout
        self._turn = threading.Lock()
        self._loaded: _Loaded | None = None

    @property
    def name(self) -> str:
        return f"local:{self._folder.name}"

    def score(self, query: str, passages: Sequence[str]) -> list[float]:
        if not passages:
            return []
        # One after another: each run takes all threads anyway, and memory.
        if not self._turn.acquire(timeout=self._timeout):
            raise Unavailable("the reranker is busy with other searches", code="timeout")
        try:
            loaded = self._loaded = self._loaded or _load(self._folder, self._threads)
            return self._scored(loaded, query, passages)
        finally:
            self._turn.release()

    def close(self) -> None:
        self._loaded = None

    def _scored(self, loaded: _Loaded, query: str, passages: Sequence[str]) -> list[float]:
        asked = storable(query)
        pairs = [(asked, storable(passage)) for passage in passages]
        texts = loaded.tokenizer.encode_batch(pairs)
        scores = [0.0] * len(passages)
        for batch in _batches([len(text.ids) for text in texts]):
            told = self._run(loaded, [texts[place] for place in batch])
            for place, score in zip(batch, told, strict=True):
                scores[place] = score
        return scores

    def _run(self, loaded: _Loaded, texts: Sequence[Encoding]) -> list[float]:
        try:
            logits = loaded.session.run([loaded.output], _fed(loaded, texts))[0]
        except Exception as error:  # the engine's errors have no root of their own
            raise Unavailable(
                f"{self._folder / GRAPH} does not run: {type(error).__name__}", code="broken_model"
            ) from error
        return _probabilities(np.asarray(logits, np.float64), len(texts))


def _load(folder: Path, threads: int) -> _Loaded:
    import onnxruntime  # noqa: PLC0415 - as in local_model.py

    options = cast(Any, onnxruntime).SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.enable_mem_pattern = False
    try:
        tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))
        session = cast(Any, onnxruntime).InferenceSession(
            str(folder / GRAPH), options, providers=["CPUExecutionProvider"]
        )
    except Exception as error:  # neither library's errors have a root of their own
        raise Unavailable(
            f"RECOLLECT_RERANK_MODEL: {folder} cannot be loaded ({type(error).__name__}); it must"
            f" hold {GRAPH} and {TOKENIZER} of a cross-encoder",
            code="broken_model",
        ) from error
    length = _length(folder, tokenizer)
    padding = cast("Mapping[str, Any] | None", tokenizer.padding)
    tokenizer.no_padding()
    tokenizer.enable_truncation(length)  # pyright: ignore[reportUnknownMemberType]
    inputs = frozenset(one.name for one in session.get_inputs())
    _log.info("reranker loaded", model=folder.name, tokens=length)
    return _Loaded(
        tokenizer,
        session,
        inputs,
        session.get_outputs()[0].name,
        padding["pad_id"] if padding else tokenizer.token_to_id("<pad>") or 0,
    )


def _length(folder: Path, tokenizer: Tokenizer) -> int:
    """Tokens that the model reads, as its folder says it."""
    truncation = cast("Mapping[str, Any] | None", tokenizer.truncation)
    said = (
        truncation["max_length"] if truncation else None,
        _number(folder / "tokenizer_config.json", "model_max_length"),
        # RoBERTa counts positions from 2 on.
        (_number(folder / "config.json", "max_position_embeddings") or 0) - 2,
    )
    known = [n for n in said if isinstance(n, int) and 0 < n < 1_000_000]
    return min(known[0] if known else USUAL_TOKENS, MOST_TOKENS)


def _number(file: Path, name: str) -> int | None:
    try:
        found = json.loads(file.read_bytes())[name]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if isinstance(found, int) else None


def _batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Places of texts that go together: of like length, so that little is padding."""
    batch: list[int] = []
    for place in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and (len(batch) + 1) * lengths[place] > BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


def _fed(loaded: _Loaded, texts: Sequence[Encoding]) -> dict[str, NDArray[np.int64]]:
    """What the graph takes in, of what it names."""
    width = max(len(text.ids) for text in texts)
    rows = {
        "input_ids": ([text.ids for text in texts], loaded.padding),
        "attention_mask": ([text.attention_mask for text in texts], 0),
        "token_type_ids": ([text.type_ids for text in texts], 0),
    }
    return {
        name: np.array([row + [filler] * (width - len(row)) for row in of_texts], np.int64)
        for name, (of_texts, filler) in rows.items()
        if name in loaded.inputs
    }


def _probabilities(logits: NDArray[np.float64], count: int) -> list[float]:
    """Of one column the sigmoid, of two the share of the second."""
    table = logits.reshape(count, -1) if logits.size and logits.size % count == 0 else logits
    if table.ndim != 2 or table.shape[1] not in (1, 2) or not np.isfinite(table).all():
        raise Unavailable(
            "RECOLLECT_RERANK_MODEL: the model gives no score for each passage; it must be a"
            " cross-encoder with one label, or two",
            code="broken_model",
        )
    margin = table[:, -1] - (table[:, 0] if table.shape[1] == 2 else 0.0)
    return [float(one) for one in 1 / (1 + np.exp(-np.clip(margin, -500, 500)))]


# --- an endpoint ---------------------------------------------------------------------------------


class EndpointReranker:
    """A service that answers `POST /rerank`; its scores are taken as they are.

    While it does not answer it is left alone: `score` raises Resting.
    """

    def __init__(
        self,
        url: str,
        model: str | None,
        key: str | None = None,
        *,
        timeout: float = TIMEOUT,
        breaker: Breaker | None = None,
    ) -> None:
        """`timeout` is seconds for one answer. Raises SetupError."""
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        settings = "RECOLLECT_RERANK_URL or RECOLLECT_RERANK_KEY"
        self._endpoint = Endpoint(
            url, headers=headers, timeout=timeout, total=timeout, settings=settings
        )
        self._model = model
        self._forms = _FORMS
        self._breaker = breaker or Breaker("reranker")

    @property
    def name(self) -> str:
        return self._model or "endpoint"

    def score(self, query: str, passages: Sequence[str]) -> list[float]:
        if not passages:
            return []
        with self._breaker.guard():
            return self._scored(query, passages)

    def close(self) -> None:
        self._endpoint.close()

    def _scored(self, query: str, passages: Sequence[str]) -> list[float]:
        asked, given = storable(query), [storable(passage) for passage in passages]
        answer = self._answer(asked, given)
        short = [passage[:SHORT] for passage in given]
        if answer.status in _TOO_LONG and short != given:
            other = self._answer(asked, short)
            answer = other if 200 <= other.status < 300 else answer
        if not 200 <= answer.status < 300:
            raise _judged(answer)
        try:
            return _by_place(json.loads(answer.data), len(given))
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError) as error:
            raise Unavailable(
                "the answer is not one of /rerank: not one score for each passage;"
                " check RECOLLECT_RERANK_URL",
                code=BAD_ANSWER,
            ) from error

    def _answer(self, asked: str, given: Sequence[str]) -> EndpointAnswer:
        """In the first form that the endpoint takes, if there is one."""
        forms = self._forms
        answer = self._asked(forms[0](asked, given))
        for at in range(1, len(forms)):
            if answer.status not in (400, 422):
                break
            other = self._asked(forms[at](asked, given))
            if other.status not in (400, 422):
                answer = other
            if 200 <= other.status < 300:
                self._forms = forms[at:]
        return answer

    def _asked(self, body: dict[str, object]) -> EndpointAnswer:
        if self._model is not None:
            body["model"] = self._model
        try:
            return self._endpoint.request("POST", "/rerank", json=body)
        except Transient as error:
            raise Unavailable(f"the reranker: {error}", code=error.code) from None


_FORMS: Sequence[Callable[[str, Sequence[str]], dict[str, object]]] = (
    # Without the number Xinference gives no score at all; Voyage refuses it.
    lambda query, passages: {"query": query, "documents": passages, "top_n": len(passages)},
    lambda query, passages: {"query": query, "documents": passages},
    # text-embeddings-inference refuses what it does not know, and what is too long unless told.
    lambda query, passages: {"query": query, "texts": passages, "truncate": True},
)


def _judged(answer: EndpointAnswer) -> Unavailable | Permanent:
    """What a refusal means. Its text is not passed on: it may quote what was asked."""
    status = answer.status
    message, code = f"the reranker's endpoint answered {status}", f"http_{status}"
    if setting := _SETTINGS.get(status) or ("RECOLLECT_RERANK_URL" if status < 400 else None):
        return Unavailable(f"{message}; check {setting}", code=code)
    judged = outcome(status, answer.headers, message)
    if isinstance(judged, Transient):
        return Unavailable(message, code=code, after=judged.after)
    return judged


_TOO_LONG = (400, 413, 422, 500)
"""statuses of endpoints that do not cut what is too long for their model"""
_SETTINGS: Mapping[int, str] = {
    401: "RECOLLECT_RERANK_KEY",
    403: "RECOLLECT_RERANK_KEY",
    404: "RECOLLECT_RERANK_URL and RECOLLECT_RERANK_MODEL",
    405: "RECOLLECT_RERANK_URL",
}


def _by_place(told: Any, count: int) -> list[float]:
    """The scores in the order of the passages; raises ValueError, KeyError, TypeError."""
    if isinstance(told, dict):
        fields = cast("dict[str, Any]", told)
        told = fields["data" if "data" in fields else "results"]
    results = cast("list[Any]", told)
    scores: dict[int, float] = {}
    for one in results:
        place: Any = one["index"]
        score = float(one["relevance_score"] if "relevance_score" in one else one["score"])
        if type(place) is not int or not 0 <= place < count or not math.isfinite(score):
            raise ValueError("no such passage, or no such score")
        scores[place] = score
    if len(scores) != count or len(results) != count:
        raise ValueError("not one score for each passage")
    return [scores[place] for place in range(count)]
