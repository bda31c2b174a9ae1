"""The child process that builds a local model: its graph of small integers, and its tokenizer.

`python -m recollect.inference.build_model NAME FOLDER TARGET` prints the manifest as JSON. It is
the one module that loads the tools for building, which take about 700 MB.
"""

import hashlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

import numpy as np
import sentencepiece
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from safetensors import numpy as safetensors
from sentencepiece import sentencepiece_model_pb2

from recollect.inference import e5
from recollect.inference.local_model import (
    DIMENSIONS,
    E5,
    MINILM,
    MODELS,
    GraphManifest,
    LocalEmbedder,
    Model,
    beside,
)

Tensors = Mapping[str, NDArray[Any]]

HEADS = 12
EPSILON = 1e-12
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


def build(model: Model, folder: Path, target: Path) -> GraphManifest:
    """Write the quantised graph that is truest to full precision on this machine's processor; the
    full graph if none is true enough."""
    tokenizer = None
    if model.name in _TOKENIZERS:
        tokenizer = _TOKENIZERS[model.name](folder / model.weights)
        beside(target).write_bytes(tokenizer)
    read = model.reader(folder, beside(target))
    tensors = LOADERS[model.name](folder / model.weights)
    full = build_graph(model, tensors, levels=None)
    truth = LocalEmbedder(model, full, read, 1).embed(CHECKS)
    chosen, precision, cosines, best = full, "fp32", np.ones(1), LEAST_COSINE
    # onnxruntime's kernels for x86 without VNNI overflow on eight bits, but not on seven.
    for name, levels in (("int8", 127), ("int7", 63)):
        graph = build_graph(model, tensors, levels=levels)
        found = np.sum(truth * LocalEmbedder(model, graph, read, 1).embed(CHECKS), axis=1)
        if found.mean() >= best:
            chosen, precision, cosines, best = graph, name, found, found.mean()
    target.write_bytes(chosen)
    return GraphManifest(
        hashlib.sha256(chosen).hexdigest(),
        precision,
        float(cosines.mean()),
        float(cosines.min()),
        None if tokenizer is None else hashlib.sha256(tokenizer).hexdigest(),
    )


def _load_minilm(weights: Path) -> Tensors:
    return cast(Any, safetensors).load_file(weights)


def write_tokenizer(path: Path) -> bytes:
    """The tokenizer of the file as a model of sentencepiece, which takes a fifth of the memory
    that the library `tokenizers` needs for so many pieces."""
    definitions = cast(Any, sentencepiece_model_pb2)
    # XLM-RoBERTa, whose tokenizer this is, was made with the rules that the library still has.
    rules = cast(Any, sentencepiece).SentencePieceNormalizer(rule_name="nmt_nfkc")
    model = definitions.ModelProto.FromString(rules.serialized_model_proto())
    model.normalizer_spec.add_dummy_prefix = True
    model.normalizer_spec.remove_extra_whitespaces = True
    model.normalizer_spec.escape_whitespaces = True
    pieces, scores = e5.PackedModel(path).pieces()
    training = model.trainer_spec
    training.model_type = training.UNIGRAM
    training.vocab_size = len(pieces)
    for name, number in (
        ("bos", e5.START),
        ("pad", e5.PADDING),
        ("eos", e5.END),
        ("unk", e5.UNKNOWN),
    ):
        setattr(training, f"{name}_id", number)
        setattr(training, f"{name}_piece", pieces[number])
    kinds = definitions.ModelProto.SentencePiece
    special = {e5.START, e5.PADDING, e5.END, len(pieces) - 1}
    for number, (piece, score) in enumerate(zip(pieces, scores, strict=True)):
        kind = kinds.CONTROL if number in special else kinds.NORMAL
        model.pieces.add(
            piece=piece, score=score, type=kinds.UNKNOWN if number == e5.UNKNOWN else kind
        )
    return model.SerializeToString()


LOADERS: Mapping[str, Callable[[Path], Tensors]] = {E5: e5.read, MINILM: _load_minilm}
"""By the names that BERT's have. Without a table of words, they are handed in."""
_TOKENIZERS: Mapping[str, Callable[[Path], bytes]] = {E5: write_tokenizer}
"""of models whose files have none that can be used as it is"""


# The graph


def build_graph(model: Model, tensors: Tensors, *, levels: int | None) -> bytes:
    """The model as ONNX: token ids of one text in (`ids`), its vector of length 1 out (`vector`).

    A model whose tensors have no table of words takes the rows of its tokens instead (`words`).

    With `levels`, weights become integers from -levels to levels with a scale per column (per row
    for the vocabulary), and activations are quantised as they come. None: full precision.
    """
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
        name = f"constant_{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def node(
        self, op: str, inputs: Sequence[str], *, out: str = "", domain: str = "", **options: Any
    ) -> str:
        """Returns the name of the (first) output."""
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


if __name__ == "__main__":
    name, *paths = sys.argv[1:]
    sys.stdout.write(json.dumps(asdict(build(MODELS[name], *map(Path, paths)))))
