"""Ratios of the local embedder: int8 against fp32, with the memory and time that it takes.

`python bench/embedder.py [ROUNDS [MODEL]]`. Rounds alternate between the candidates,
so that a machine with other work to do slows them alike; read the ratios, not the absolute figures.
"""

import random
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import psutil
from tokenizers import Tokenizer

from recollect.inference.batching import Vectors
from recollect.inference.build_model import LOADERS, build_graph
from recollect.inference.embed import Embedder, EmbedderChoice, open_embedder
from recollect.inference.local_model import (
    DEFAULT,
    MINILM,
    MODELS,
    TOKENIZER,
    LocalEmbedder,
    find_folder,
)

THREADS = 2
TEXTS = 32
TOKENS = 240
GROWTH = 2000


def resident() -> float:
    return psutil.Process().memory_info().rss / 1e6


def make_texts(count: int, tokens: tuple[int, int]) -> list[str]:
    """Prose of common words, the same each time; `tokens` is the least and the most of a text."""
    choose = random.Random(7)
    tokenizer = Tokenizer.from_file(str(find_folder(MODELS[MINILM]) / TOKENIZER))
    words = sorted(word for word in tokenizer.get_vocab() if word.isascii() and word.isalpha())
    return [" ".join(choose.choices(words, k=choose.randint(*tokens))) for _ in range(count)]


def rate(embedder: Embedder, texts: list[str]) -> tuple[float, Vectors]:
    start = time.perf_counter()
    vectors = embedder.embed(texts)
    return len(texts) / (time.perf_counter() - start), vectors


def main(rounds: int, name: str) -> None:
    model = MODELS[name]
    before = resident()
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        small = open_embedder(
            EmbedderChoice("local", model=name), cache=Path(folder), threads=THREADS
        )
        built = time.perf_counter() - start
        start = time.perf_counter()
        small = open_embedder(
            EmbedderChoice("local", model=name), cache=Path(folder), threads=THREADS
        )
        opened = time.perf_counter() - start
        assert small is not None
        read = model.reader(
            find_folder(model), next(Path(folder).glob("*.onnx")).with_suffix(".spm")
        )
    print(f"build {built:.2f} s, open again {opened:.2f} s")
    print(f"resident: imports {before:.0f} MB, opened {resident():.0f} MB")
    for done in range(0, GROWTH, 500):
        small.embed(make_texts(500, (5, 250)))
        print(f"resident after {done + 500} texts of 5 to 250 tokens: {resident():.0f} MB")

    tensors = LOADERS[model.name](find_folder(model) / model.weights)
    full = LocalEmbedder(model, build_graph(model, tensors, levels=None), read, THREADS)
    texts = make_texts(TEXTS, (TOKENS - 2, TOKENS - 2))
    rates: dict[str, list[float]] = {"int8": [], "fp32": []}
    cosines = np.ones(0)
    for _ in range(rounds):
        fast, near = rate(small, texts)
        slow, true = rate(full, texts)
        rates["int8"].append(fast)
        rates["fp32"].append(slow)
        cosines = np.sum(near * true, axis=1)
    for name, figures in rates.items():
        print(f"{name}: best {max(figures):.1f}, median {statistics.median(figures):.1f} chunks/s")
    ratios = [one / other for one, other in zip(rates["int8"], rates["fp32"], strict=True)]
    print(f"int8 / fp32: {statistics.median(ratios):.2f} times as many")
    print(f"cosine int8 to fp32: mean {cosines.mean():.4f}, min {cosines.min():.4f}")


if __name__ == "__main__":
    given = sys.argv[1:]
    main(int(given[0]) if given else 8, given[1] if given[1:] else DEFAULT)
