"""Chunks: exact, bounded, and stable under the changes that documents really see."""

import random
from hashlib import blake2b
from itertools import pairwise
from statistics import mean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.ingest.chunk import LONGEST, SHORTEST, split
from recollect.model import Chunk

LETTERS = "etaoinshrdlucmfwypvbgk"


def word(rng: random.Random) -> str:
    return "".join(rng.choices(LETTERS, k=rng.randint(1, 9)))


def sentence(rng: random.Random) -> str:
    return " ".join(word(rng) for _ in range(rng.randint(4, 20))).capitalize() + "."


def paragraph(rng: random.Random, sentences: int | None = None) -> str:
    return " ".join(sentence(rng) for _ in range(sentences or rng.randint(1, 9)))


def prose(seed: int, size: int) -> list[str]:
    """Paragraphs that joined by blank lines have about `size` characters."""
    rng = random.Random(seed)
    paragraphs: list[str] = []
    while sum(map(len, paragraphs)) + 2 * len(paragraphs) < size:
        paragraphs.append(paragraph(rng))
    return paragraphs


def changed(before: list[Chunk], after: list[Chunk]) -> int:
    known = {chunk.hash for chunk in before}
    return sum(chunk.hash not in known for chunk in after)


@st.composite
def documents(draw: st.DrawFn) -> str:
    """Markdown with everything that has its own rule, and a few things that have none."""
    rng = random.Random(draw(st.integers(0, 10_000)))
    parts = {
        "prose": lambda: paragraph(rng) + "\n\n",
        "long": lambda: paragraph(rng, 40) + "\n\n",
        "heading": lambda: (
            f"{'#' * rng.randint(1, 6)} {sentence(rng)}\n{rng.choice(['', chr(10)])}"
        ),
        "list": lambda: "".join(f"- {sentence(rng)}\n" for _ in range(rng.randint(1, 30))) + "\n",
        "table": lambda: "".join(f"| {word(rng)} | {word(rng)} |\n" for _ in range(40)) + "\n",
        "code": lambda: "```\n" + "x = 1\n\n" * rng.randint(1, 300) + "```\n\n",
        "chat": lambda: "".join(f"user: {sentence(rng)}\r\n" for _ in range(20)),
        "same": lambda: "user: ok\n" * rng.randint(1, 400),
        "key": lambda: "".join(rng.choices(LETTERS, k=rng.randint(1, 4000))) + "\n",
        "blank": lambda: rng.choice(["\n", " \t", "\n" * 2000, " " * 3000, "\u2003"]),
        "marks": lambda: "e\u0301" * rng.randint(1, 1500),
        "cjk": lambda: "日本語の文章です。" * rng.randint(1, 400),
        "open fence": lambda: "```python\n",
    }
    return "".join(parts[kind]() for kind in draw(st.lists(st.sampled_from(sorted(parts)))))


@settings(deadline=None, max_examples=50)
@given(st.one_of(st.text(), documents()))
def test_chunks_hold_all_that_is_not_blank_exactly_once(text: str):
    chunks = split(text)

    assert [chunk.position for chunk in chunks] == list(range(len(chunks)))
    end = 0
    for chunk in chunks:
        assert chunk.start >= end
        assert not text[end : chunk.start].strip()
        assert chunk.text == text[chunk.start : chunk.end]
        assert chunk.text == chunk.text.strip()
        assert 0 < len(chunk.text) <= LONGEST
        data = chunk.text.encode("utf-8", "surrogatepass")
        assert chunk.hash == blake2b(data, digest_size=16).digest()
        end = chunk.end
    assert not text[end:].strip()


@settings(deadline=None, max_examples=50)
@given(documents(), documents())
def test_appending_leaves_all_chunks_but_the_last_two_alone(old: str, tail: str):
    before, after = split(old), split(old + tail)

    assert after[: max(0, len(before) - 2)] == before[:-2]


def test_appending_a_paragraph_changes_one_chunk_on_average():
    paragraphs = prose(5, 60_000)
    texts = ["\n\n".join(paragraphs[:count]) for count in range(60, len(paragraphs), 2)]
    steps = [changed(split(before), split(after)) for before, after in pairwise(texts)]

    assert mean(steps) <= 2
    assert max(steps) <= 4


@pytest.mark.parametrize("border", ["\n\n", "\n", " "])
def test_an_edit_in_the_middle_changes_few_chunks(border: str):
    paragraphs = prose(7, 105_000)
    rng = random.Random(11)
    before = split(border.join(paragraphs))
    changes = [
        changed(
            before, split(border.join([*paragraphs[:at], paragraph(rng), *paragraphs[at + 1 :]]))
        )
        for at in range(0, len(paragraphs), 3)
    ]

    assert mean(changes) <= 2
    assert max(changes) <= 5


@pytest.mark.parametrize("border", ["\n\n", "\n", " ", ""])
def test_after_an_insertion_the_cuts_fall_in_step_again(border: str):
    """Without borders, too: the last case is one line of letters alone."""
    words = [text.replace(" ", "").replace(".", "") for text in prose(13, 60_000)]
    paragraphs = prose(13, 60_000) if border else words
    before = split(border.join(paragraphs))
    after = split(border.join([paragraphs[0][:100], *paragraphs]))

    assert len(before) > 40
    assert [chunk.hash for chunk in after[-30:]] == [chunk.hash for chunk in before[-30:]]


def test_chunks_have_about_900_characters():
    sizes = [len(chunk.text) for chunk in split("\n\n".join(prose(17, 300_000)))[:-1]]

    assert 800 < mean(sizes) < 1_000
    assert min(sizes) >= SHORTEST - 2


@settings(deadline=None, max_examples=50)
@given(st.integers(0, 10_000), st.sampled_from(["\n", "\n\n", " \n", "\r\n\r\n"]))
def test_a_heading_stays_with_what_follows(seed: int, border: str):
    rng = random.Random(seed)
    sections = [
        f"## {sentence(rng)}{border}{paragraph(rng, rng.choice([1, 3, 8, 40]))}\n\n"
        for _ in range(30)
    ]

    for chunk in split("".join(sections)):
        assert not chunk.text.splitlines()[-1].startswith("## ")


def test_sections_begin_chunks_where_they_can():
    """Any two sections are too long for one chunk, and each has borders of its own."""
    rng = random.Random(23)
    body = "\n\n".join
    chunks = split(
        "".join(
            f"## {word(rng)}\n\n{body(paragraph(rng, 3) for _ in range(6))}\n\n" for _ in range(30)
        )
    )

    assert sum(chunk.text.startswith("## ") for chunk in chunks) == 30


def test_code_that_fits_is_not_cut():
    rng = random.Random(29)
    code = ["```\n" + f"{word(rng)}()\n\n# {word(rng)}\n" * 40 + "```\n" for _ in range(20)]
    text = "".join(f"{paragraph(rng)}\n\n{block}\n" for block in code)

    assert all(len(block) < LONGEST for block in code)
    assert all(any(block.strip() in chunk.text for chunk in split(text)) for block in code)


def test_sentences_are_not_cut_where_a_sentence_ends_nearby():
    chunks = split(paragraph(random.Random(31), 500))

    assert len(chunks) > 20
    assert all(chunk.text.endswith(".") for chunk in chunks)


def test_characters_that_belong_together_stay_together():
    family = "👨\u200d👩\u200d👧\u200d👦"
    for unit in ("e\u0301\u0323", family, "🇫🇷", "👍🏽", "각", "नि"):
        rng = random.Random(37)
        text = "".join(unit + rng.choice(["", "x", "语"]) for _ in range(2_000))
        chunks = split(text)

        assert len(chunks) > 1
        for chunk in chunks[1:]:
            assert chunk.text[0] in (unit[0], "x", "语")
        for chunk in chunks[:-1]:
            assert chunk.text.endswith((unit, "x", "语"))


@pytest.mark.parametrize("text", ["", " ", "\n \t\r\n", "\u3000\u2028"])
def test_blank_text_has_no_chunks(text: str):
    assert split(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "\n" * 5_000_000,
        " " * 5_000_000 + "a",
        "a" * 5_000_000,
        "." * 2_000_000,
        "\n".join(map(str, range(100_000))),
        "a\n" * 100_000,
        "a\n\n" * 100_000,
        "# a b\n" * 50_000,
        "# " * 100_000,
        "```a\n" * 100_000,
        "```\n" * 50_000,
        "\u0301" * 300_000,
        "\ud800\udc00" * 200_000,
        "\n \t" * 500_000,
    ],
    ids=lambda text: repr(text[:8]),
)
def test_hostile_text_is_split_in_linear_time(text: str):
    """A quadratic step would run for hours here; the limit is that of the whole suite."""
    assert all(len(chunk.text) <= LONGEST for chunk in split(text))
