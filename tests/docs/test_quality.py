"""The sets of `python -m bench quality`: how they are read, and what the measures make of them."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from bench import evaluate, quality, relevance, sets
from bench.__main__ import main
from bench.quality import MEASURES, Passage
from bench.relevance import Example
from bench.sets import Absent, Question, Set, Wanted
from tests.fakes.sets import TALK, write


def passage(document: str, content: str) -> Passage:
    return Passage(document, content, relevant=False, lexical=1.0, similarity=0.5)


@pytest.fixture
def read(tmp_path: Path) -> dict[str, Set]:
    found = list(sets.public(write(tmp_path)))
    assert not [one for one in found if isinstance(one, Absent)]
    return {one.name: one for one in found if isinstance(one, Set)}


def test_every_set_has_a_name_that_the_command_takes(read: dict[str, Set]):
    assert {*read, *(one.name for one in sets.made(4, 2))} == set(sets.NAMES)
    for one in read.values():
        assert one.questions
        assert all(
            wanted.document < len(one.documents) for q in one.questions for wanted in q.wanted
        )
        assert set(one.measures) <= set(MEASURES)


def test_an_answer_counts_in_the_language_of_the_texts_alone(read: dict[str, Set]):
    assert read["xquad-de"].questions[0].wanted == [Wanted(0, ("Frösche",))]
    assert read["xquad-de-en"].questions[0].wanted == [Wanted(0)]
    assert read["xquad-de-en"].corpus == "xquad-en"
    assert read["xquad-de-en"].documents == read["xquad-en"].documents
    assert len(read["covid"].questions) == 2  # those without an answer are none


def test_judgements_of_cranfield_name_questions_by_their_place(read: dict[str, Set]):
    lift, heat = read["cranfield"].questions

    assert (lift.text, lift.wanted) == ("lift of a wing", [Wanted(0)])
    assert (heat.text, heat.wanted) == ("heat in slabs", [Wanted(1)])
    contents = [one.body["content"] for one in read["cranfield"].documents]
    assert contents[0].count("wings in a slipstream") == 3  # the title, and an abstract with it
    assert contents[2] == "3"  # one of its abstracts is empty


def test_turns_of_conversations_that_can_be_found_are_asked(read: dict[str, Set], tmp_path: Path):
    locomo = read["locomo"]

    assert [[one.document for one in q.wanted] for q in locomo.questions] == [[0], [0, 1]]
    messages = locomo.documents[0].body["messages"]
    assert messages[0] == {"role": "system", "content": "1 May 2031"}
    assert messages[1]["content"] == "I saw a heron\n\nat the pond. [a grey bird]"
    assert [message["role"] for message in messages[1:]] == ["user", "assistant"]
    assert len(locomo.documents) == 2
    folder = tmp_path / "apart"
    folder.mkdir()
    flat = {**TALK["conversation"], "qa": TALK["qa"]}
    (folder / "1.json").write_text(json.dumps(flat))
    assert sets.locomo(folder) == locomo


def test_what_is_absent_is_said_and_what_is_wrong_is_refused(tmp_path: Path, capsys: Any):
    (tmp_path / "locomo10.json").write_text('[{"qa": 1}]')
    with pytest.raises(SystemExit, match="not the set locomo"):
        list(sets.public(tmp_path))
    assert all(isinstance(one, Absent) for one in sets.public(None))
    with pytest.raises(SystemExit):
        main(["quality", "--set", "covvid"])
    assert "covid" in capsys.readouterr().err


def test_a_hit_shows_the_answer_within_what_is_shown():
    asked = Question("?", [Wanted(1, ["42"])])
    ids = ["a", "b"]
    other, long = passage("a", "It is 42."), passage("a", "x" * quality.SHOWN)
    answer = passage("b", "It is 42.")

    assert MEASURES["hit5"]([other], asked, ids) == 0
    assert MEASURES["hit1"]([other, answer], asked, ids) == 0
    assert MEASURES["hit5"]([other, answer], asked, ids) == 1
    assert MEASURES["hit5"]([long, answer], asked, ids) == 0


def test_the_place_of_an_answer_is_that_of_its_document():
    asked = Question("?", [Wanted(1, ["It is 42."])])
    other = {"documentId": "a", "chunks": [{"content": "It is 42."}]}
    answer = {"documentId": "b", "chunks": [{"content": "No."}, {"content": "So it\n IS 42. Yes"}]}

    assert evaluate.place([other, answer], asked, ["a", "b"]) == 2
    assert evaluate.place([other], asked, ["a", "b"]) is None
    assert evaluate.place([answer], Question("?", [Wanted(1)]), ["a", "b"]) == 1


def test_test_questions_are_about_the_documents_that_are_there():
    long = Question("x" * 1_001, [Wanted(0, ["y"])])
    one, two = Question("a?", [Wanted(0, ["A"])]), Question("b?", [Wanted(5, ["B"])])
    some = Set("s", "s", [], [one, two, long, Question("a?", [Wanted(0, ["Z"])])], ())

    assert evaluate.chosen(some, 5) == [one]
    assert json.loads(evaluate.lines([one], ["id"])) == {
        "question": "a?", "document": "id", "words": "A",
    }  # fmt: skip


def test_the_first_passages_count_whatever_their_documents_hold_beside():
    asked = Question("?", [Wanted(1, ["42"])])
    ids = ["a", "b"]
    answer, half = passage("b", "It is 42."), passage("a", "x" * (quality.SHOWN // 2))
    ranked = [half, answer, half]

    assert MEASURES["hit5"](ranked, asked, ids) == 0
    assert MEASURES["answer1"](ranked, asked, ids) == 0
    assert MEASURES["answer5"](ranked, asked, ids) == 1
    assert MEASURES["answer5"]([half] * 5 + [answer], asked, ids) == 0


def test_the_weight_of_relevance_is_chosen_on_one_half_and_shown_on_the_other(capsys):
    def example(asked: int, similarity: float, *, answers: bool, kind: str = "") -> Example:
        hidden = bool(kind) or not answers
        return Example(
            asked, f"question {asked}", True, hidden, similarity, 0.5, answers, similarity, kind
        )

    answered = [example(n, 0.9 - n % 7 / 100, answers=True) for n in range(120)]
    narrow = [example(200 + n, 0.86 + n % 7 / 100, answers=False) for n in range(120)]
    made = [
        example(-1 - n, 0.5, answers=False, kind=kind)
        for at, kind in enumerate(relevance.made())
        for n in range(40 * at, 40 * at + 40)
    ]
    examples = [*answered, *narrow, *made]
    held_out = {one.asked for one in examples if one.asked % 2}

    relevance.tell(examples, held_out, words_only=False)

    first, chosen, shown = re.split(r" the half that the weight was .*\n", capsys.readouterr().out)
    assert float(first.split()[-1]) < 1
    asked = [int(one) for one in re.findall(r"(\d+) questions with an answer", chosen + shown)]
    assert sum(asked) == 60
    assert len({one.shown for one in answered}) == 2
    [share] = re.findall(r"with an answer: ([\d.]+)", chosen)
    assert float(share) >= relevance.ENOUGH


def test_what_the_service_as_it_is_calls_relevant_is_counted(capsys):
    some = [
        Example(n, f"question {n}", True, hidden, 0.0, 0.0, not hidden, score, kind)
        for n, (hidden, score, kind) in enumerate(
            [(False, 0.9, ""), (False, 0.3, ""), (True, 0.1, ""), (True, 0.6, "on other subjects")]
        )
    ]

    relevance.tell_in_use(some, words_only=False, others=True)

    told = capsys.readouterr().out
    assert "2 questions with an answer: 0.500 have a relevant hit" in told
    assert "1 questions without: 0.000 have a relevant hit" in told
    assert "1 questions on other subjects: 1.000 have a relevant hit" in told


def test_measures_of_documents_and_turns():
    ids = ["a", "b", "c"]
    asked = Question("?", [Wanted(0), Wanted(2)])
    ranked = [passage("b", "x"), passage("a", "x"), passage("a", "y"), passage("c", "x")]

    # b, a, c: places 2 and 3 of two that are wanted
    assert MEASURES["mrr10"](ranked, asked, ids) == 1 / 2
    assert MEASURES["recall10"](ranked, asked, ids) == 1
    assert MEASURES["ndcg10"](ranked, asked, ids) == pytest.approx((0.6309 + 0.5) / 1.6309, 1e-3)
    assert MEASURES["ndcg10"]([ranked[1], ranked[3]], asked, ids) == 1
    turns = Question("?", [Wanted(0, ["at the pond"]), Wanted(2, ["z"])])
    come_up = [passage("a", "seen\n\nat  the pond"), *[passage("b", "x")] * 4, passage("c", "z")]
    assert MEASURES["turns5"](come_up, turns, ids) == 0.5
    assert MEASURES["turns15"](come_up, turns, ids) == 1


def test_questions_without_an_answer_are_many_and_each_another():
    for made in (sets.nonsense(200), sets.unrelated(200)):
        assert len(set(made)) == 200
    assert sets.nonsense(5) == sets.nonsense(5)


def test_dates_and_codes_stand_in_one_document_each():
    for one in (sets.dates(), sets.codes()):
        contents = [source.body["content"] for source in one.documents]
        assert len(set(contents)) == len(contents) >= 36
    codes = sets.codes()
    for question in codes.questions:
        holding = [n for n, s in enumerate(codes.documents) if question.text in s.body["content"]]
        assert holding == [question.wanted[0].document]


@pytest.mark.slow
def test_a_small_one_of_each_goes_through_the_service(tmp_path: Path):
    with quality.Ground() as ground:
        folder = write(tmp_path)
        only = ["locomo", "cranfield", "xquad-de"]
        measured = quality.measure(ground, quality.TINY, folder, only)
        figures = {figure.id: figure.value for figure in measured}

    assert figures["quality.locomo.turns15.rescored"] == 1
    assert figures["quality.cranfield.ndcg10.words"] == 1
    assert figures["quality.xquad-de.hit1.rescored"] == 1
