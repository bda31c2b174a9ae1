"""Sentences of an answer and their citations, whichever way a model writes and cuts them."""

import pytest

from recollect.search.answers.citations import Sentence, SentenceReader, checked


def read(text: str, size: int, sources: set[int]) -> list[Sentence]:
    reader = SentenceReader(sources)
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    return [*(one for piece in pieces for one in reader.read(piece)), *reader.rest()]


ANSWER = (
    "Herons eat fish [1]. They stand still. [2][3] Dr. Brown saw e.g. two [9]! 1. First point [1]\n"
    "- It flew, i.e. it left [2, 3].\n\nWhy? The reasons:\nNobody knows. 鹭吃鱼。[1]它站着。"
)
SENTENCES = [
    ("Herons eat fish.", (1,), False),
    ("They stand still.", (2, 3), False),
    ("Dr. Brown saw e.g. two!", (), True),
    ("1. First point", (1,), False),
    ("- It flew, i.e. it left.", (2, 3), False),
    ("Why?", (), False),
    ("The reasons:", (), False),
    ("Nobody knows.", (), True),
    ("鹭吃鱼。", (1,), False),
    ("它站着。", (), True),
]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_sentences_and_citations_are_the_same_however_the_stream_is_cut(size: int) -> None:
    found = read(ANSWER, size, {1, 2, 3})
    assert [(one.text, one.cites, one.is_unsupported) for one in found] == SENTENCES
    assert [one.dropped for one in found if one.dropped] == [("[9]",)]


@pytest.mark.parametrize(
    ("said", "cites", "dropped", "text"),
    [
        ("It is so [1-3].", (1, 2, 3), (), "It is so."),
        ("It is so [^2].", (2,), (), "It is so."),
        ("It is so 【2】.", (2,), (), "It is so."),
        ("It is so [source 2].", (2,), (), "It is so."),
        ("It is so [2][7].", (2,), ("[7]",), "It is so."),
        ("It is so [0].", (), ("[0]",), "It is so."),
        ("It is so [2, 7].", (2,), ("[2, 7]",), "It is so."),
        ("It is so [1-900].", (), ("[1-900]",), "It is so."),
        ("It is so [99999999999999999999].", (), ("[99999999999999999999]",), "It is so."),
        ("It is so [doc: secret.pdf].", (), ("[doc: secret.pdf]",), "It is so."),
        ("It is so [1](http://evil.example/?q=x).", (1,), (), "It is so."),
        ("Look ![all](http://evil.example/x.png) here.", (), (), "Look [all] here."),
        ("He said [sic] so.", (), (), "He said [sic] so."),
    ],
)
def test_a_citation_names_what_was_given_or_is_dropped(
    said: str, cites: tuple[int, ...], dropped: tuple[str, ...], text: str
) -> None:
    assert checked(said, {1, 2, 3}) == Sentence(text, cites, dropped)


def test_citations_of_nothing_are_told_and_lone_ones_say_nothing() -> None:
    assert read("[1]\n\n[8]", 4, {1}) == [Sentence("", (), ("[8]",))]


def test_a_sentence_without_an_end_costs_no_more_for_its_length() -> None:
    """Each piece is looked at with what is near it, not with all that came before."""
    reader = SentenceReader({1})
    for _ in range(20_000):
        assert list(reader.read("a")) == []
    [sentence] = reader.rest()
    assert len(sentence.text) == 20_000
