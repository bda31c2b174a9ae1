"""The order of candidates, their relevance, and the windows in which words are looked for."""

import random
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.index import terms
from recollect.search import ranking
from recollect.search.ranking import Found, Wanted

MODEL = "local:all-MiniLM-L6-v2"


def wanted(query: str, texts: Sequence[str]) -> Wanted:
    """The query's words as a collection of these texts counts them."""
    words = terms.query_words(query)
    groups = [tuple(terms.number("org", term) for term in group) for group in words]
    held = [set(terms.weigh("org", text)) for text in texts]
    counted = {n: sum(n in one for one in held) for group in groups for n in group}
    return Wanted.of(words, groups, counted, len(texts))


def order(query: str, found: Sequence[Found]) -> list[int]:
    standings = ranking.rank(wanted(query, [one.text for one in found]), found, model=MODEL)
    return sorted(range(len(found)), key=lambda n: -standings[n].parts.order)


def test_a_strong_hit_by_words_stays_first_though_its_vector_is_far_down():
    found = [Found(f"Herons stand in pond {n}.", 1.0, 0.50 + n / 1000) for n in range(30)]
    found.append(Found("The error is E4711 in the pump.", 14.0, 0.30))

    assert order("E4711", found)[0] == 30


def test_without_words_in_common_the_vectors_decide():
    found = [Found(f"An English text about number {n}.", 0.0, n / 100) for n in range(30)]

    assert order("Welche deutsche Frage?", found) == list(reversed(range(30)))


def test_one_candidate_far_from_the_others_is_no_veto():
    found = [Found("same words here", 5.0, 0.9), *(Found("other", 5.0, 0.1) for _ in range(50))]
    found.append(Found("other", 500.0, 0.1))

    standings = ranking.rank(wanted("query", ["x"]), found, model=MODEL)

    assert max(one.parts.order for one in standings) <= ranking.HIGHEST * 4


def test_words_that_stand_together_tell_more_than_the_same_words_apart():
    apart = "The release of water was late. " + "Filler goes here. " * 20 + "It was a candidate."
    together = "We shipped a release candidate. " + "Filler goes here. " * 20
    others = [Found(f"Nothing of it in {n}.", 0.0, 0.2) for n in range(8)]
    found = [Found(apart, 3.0, 0.2), Found(together, 3.0, 0.2), *others]

    assert order("release candidate", found)[:2] == [1, 0]


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("running horses", "A horse runs home."),
        ("Häuser am Fluss", "Ein Haus an einem Fluß."),
        ("2024-03-17", "On 2024-03-17 we met."),
        ("getUserById", "call getUserById(7) first"),
        ("東京タワー", "昨日、東京タワーに行きました。"),
        ("naïve résumé", "a naive resume"),
    ],
)
def test_a_text_that_holds_all_words_has_the_whole_share(query: str, text: str):
    [standing] = ranking.rank(wanted(query, [text]), [Found(text, 1.0, None)], model="")

    assert standing.share == pytest.approx(1.0)


ENGLISH = "The war of the roses was fought by the houses of York and Lancaster."
GERMAN = "Es war einmal ein König, und der hatte die Rosen in dem Garten gern."


@pytest.mark.parametrize(
    ("query", "text", "share"),
    [
        ("the", ENGLISH, 0.0),
        ("it is what it is", f"{ENGLISH} It is what it is.", 0.0),
        ("the war", ENGLISH, 1.0),
        ("war", ENGLISH, 1.0),
        ("war", GERMAN, 0.0),
        ("rosen", GERMAN, 1.0),
    ],
)
def test_a_word_that_all_texts_of_a_language_hold_makes_none_relevant(
    query: str, text: str, share: float
):
    [standing] = ranking.rank(wanted(query, [text] * 3), [Found(text, 1.0, 0.3)], model=MODEL)

    assert standing.share == share


def test_a_rare_short_word_makes_a_text_relevant():
    texts = ["Who is that?", *(f"An English text about number {n}." for n in range(99))]
    [standing] = ranking.rank(wanted("who", texts), [Found(texts[0], 1.0, 0.3)], model=MODEL)

    assert standing.share == 1.0


def test_the_words_of_a_phrase_are_never_idle():
    words = terms.query_words("to be")
    groups = [tuple(terms.number("org", term) for term in group) for group in words]
    counted = {number: 9 for group in groups for number in group[:1]}
    asked = Wanted.of(words, groups, counted, 9, quoted=words)
    [standing] = ranking.rank(asked, [Found("To be or not to be.", 1.0, 0.3)], model=MODEL)

    assert standing.share == 1.0


def test_relevance_needs_evidence():
    assert ranking.relevance(0.05, 0.0, MODEL) < 0.01
    assert ranking.relevance(None, 0.0, "") < 0.01
    assert ranking.relevance(0.7, 1.0, MODEL) > 0.9
    assert ranking.relevance(None, 1.0, "") > 0.8


def test_a_word_that_stands_nowhere_lowers_the_share_of_the_others():
    text = "Herons eat frogs."
    others = [text, "Frogs sing.", "Water is wet."]
    both = ranking.rank(wanted("frogs", others), [Found(text, 1.0, None)], model="")
    one = ranking.rank(wanted("frogs zxqvbn", others), [Found(text, 1.0, None)], model="")

    assert one[0].share < both[0].share / 2


@given(st.lists(st.floats(0, 1), max_size=40))
def test_falling_scores_never_rise_and_keep_their_mean(scores: list[float]):
    fallen = ranking.falling(scores)

    assert len(fallen) == len(scores)
    assert all(a >= b - 1e-12 for a, b in pairwise(fallen))
    assert sum(fallen) == pytest.approx(sum(scores))


def test_scores_that_fall_stay_as_they_are():
    assert ranking.falling([0.9, 0.5, 0.5, 0.1]) == [0.9, 0.5, 0.5, 0.1]


@given(st.text(max_size=3_000))
def test_windows_are_the_text(text: str):
    packed = ranking.windows(text)

    assert "".join(packed) == text
    assert all(packed)


def test_windows_hold_sentences_up_to_their_size():
    rng = random.Random(3)
    text = " ".join("w" * rng.randint(3, 60) + "." for _ in range(80))

    packed = ranking.windows(text)

    assert all(len(one) <= ranking.WINDOW + ranking.LEAST_WINDOW for one in packed)
    assert len(packed) <= len(text) / (ranking.WINDOW - 62) + 1


def test_an_empty_query_ranks_by_what_there_is():
    found = [Found("a", 0.0, 0.1), Found("b", 0.0, 0.3), Found("c", 0.0, None)]

    assert order("", found)[0] == 1


# --- a reranker --------------------------------------------------------------------------------

FALLING = [float(20 - n) for n in range(20)]


def test_a_judge_that_agrees_moves_and_one_that_does_not_moves_nothing():
    agrees = [score + (6.0 if place == 3 else 0.0) for place, score in enumerate(FALLING)]
    moved = [a + b for a, b in zip(FALLING, ranking.lifts(FALLING, agrees), strict=True)]

    assert moved[3] == max(moved)
    assert set(ranking.lifts(FALLING, FALLING[::-1])) == {0.0}
    assert set(ranking.lifts(FALLING, [0.5] * 20)) == {0.0}
    assert ranking.lifts([], []) == []
    assert ranking.lifts([1.0], [0.2]) == [0.0]


def test_probabilities_near_0_and_1_are_told_apart():
    odds = [score / 2 - 5 for score in FALLING]
    likely = [1 / (1 + 2.718281828459045**-one) for one in odds]

    assert ranking.lifts(FALLING, likely) == pytest.approx(ranking.lifts(FALLING, odds), abs=1e-3)


def test_where_the_search_tells_nothing_apart_the_judge_decides():
    lifts = ranking.lifts([1.0, 1.0], [0.1, 0.9])

    assert lifts[1] > lifts[0]


@pytest.mark.parametrize("judged", [[1e300, -1e300, 0.0], [1e-300, 0.0, 0.0], [5e-324, 1.0, 0.5]])
def test_extreme_judgements_lift_by_finite_figures(judged: list[float]):
    assert all(abs(lift) < 100 for lift in ranking.lifts([3.0, 2.0, 1.0], judged))
