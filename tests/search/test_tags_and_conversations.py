"""Where the order depends on what is searched: the words of a tag, the turns of a conversation."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from recollect import documents
from recollect.app import App
from recollect.db import Database, Tx
from recollect.documents import NewDocument
from recollect.model import DocumentId, Tenant, random_id
from recollect.search import candidates, hybrid, statements
from recollect.search.hybrid import Query
from recollect.search.ranking import Found
from recollect.worker.processing import drain
from tests.search.test_ranking import order


def test_the_name_that_is_all_over_a_tag_does_not_decide_in_it(app: App, tenant: Tenant):
    """Everywhere else it is rare, and the other word is not."""
    fill(app, tenant, "others", [f"On day {n} a kayak was lent." for n in range(60)])
    notes = [f"Marta, on day {n}: Marta called Marta." for n in range(30)]
    fill(app, tenant, "marta", [*notes, "The kayak of Marta hangs in the shed."])

    for text in ("Marta's kayak", "kayak of Marta"):
        found = texts(app, tenant, Query(text, None, tags=["marta"]))
        assert found[0] == "The kayak of Marta hangs in the shed."
    assert "Marta" in texts(app, tenant, Query("Marta's kayak", None))[0]


class ListedTx(Tx):
    """Keeps the numbers of the words that it was asked to count in a tag."""

    counted: ClassVar[list[list[int]]] = []

    def execute_planned(self, statement: Any, parameters: Any) -> Any:
        if statement is statements.WITHIN:
            self.counted.append(parameters["numbers"])
        return super().execute_planned(statement, parameters)


@pytest.mark.one_server  # over several, words are counted in the organisation
def test_words_are_not_counted_anew_in_a_tag_that_nearly_everything_carries(
    app: App, tenant: Tenant
):
    """It took as long as the search itself, and gave the counts of the organisation."""
    fill(app, tenant, "home", [f"Marta slept on day {n}." for n in range(19)])
    fill(app, tenant, "away", ["Marta called."])

    assert not counted_anew(app, tenant, Query("Marta", None, ["home"]))
    assert counted_anew(app, tenant, Query("Marta", None, ["away"]))


@pytest.mark.one_server
def test_of_many_frequent_words_only_the_rarest_are_counted_in_the_tag(
    app: App, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
):
    """A pasted paragraph is a query, too: to count all of its words took longer than the search."""
    fill(app, tenant, "others", [f"A kayak was lent on day {n}." for n in range(30)])
    fill(app, tenant, "marta", [f"Marta lent a kayak on day {n}." for n in range(10, 30)])
    asked = Query("Marta kayak", None, ["marta"])

    marta = counted_anew(app, tenant, replace(asked, text="Marta"))
    assert len(counted_anew(app, tenant, asked)) == 2
    monkeypatch.setattr(candidates, "LOOKED_UP", 10)

    assert counted_anew(app, tenant, asked) == marta
    assert texts(app, tenant, asked)[0].startswith("Marta")


def test_a_word_that_a_tag_does_not_hold_finds_nothing_in_it(app: App, tenant: Tenant):
    fill(app, tenant, "others", [f"On day {n} a kayak was lent." for n in range(12)])
    fill(app, tenant, "marta", ["Marta called."])

    assert texts(app, tenant, Query("kayak", None, tags=["marta"])) == []
    assert texts(app, tenant, Query("Marta's kayak", None, tags=["marta"])) == ["Marta called."]


@pytest.mark.one_server  # over several, words are counted in the organisation
def test_of_two_tags_the_words_are_counted_where_both_are(app: App, tenant: Tenant):
    """Each of them has many more passages than both together."""
    fill(app, tenant, "marta", [f"It rained on day {n}." for n in range(60)])
    fill(app, tenant, "home", [f"It snowed on day {n}." for n in range(60)])
    notes = [f"Marta Lee of Porto slept on day {n}, Marta Lee of Porto." for n in range(20)]
    fill(app, tenant, "marta", [*notes, "A kayak hangs there."], ["home"])

    found = texts(app, tenant, Query("Marta Lee Porto kayak", None, tags=["marta", "home"]))

    assert found[0] == "A kayak hangs there."


def test_a_turn_is_lifted_by_others_of_its_conversation():
    trip = ["We go to Lisbon on Friday.", "Lisbon it is, by train to Lisbon.", "I pack tonight."]
    talk = ["I had soup.", "It rained.", "I pack tonight."]
    found = [
        *(Found(text, points(text), 0.3, "trip") for text in trip),
        *(Found(text, points(text), 0.3, "talk") for text in talk),
    ]

    ranked = [found[n] for n in order("When do I pack for Lisbon?", found)]

    turns = [one.conversation for one in ranked if one.text == "I pack tonight."]
    assert turns == ["trip", "talk"]


def test_passages_of_other_documents_lift_each_other_by_nothing():
    found = [Found(f"Lisbon {n}", 4.0 - n, 0.3 + n / 50) for n in range(6)]
    told = [*found, Found("I pack.", 0.0, 0.3, "trip")]

    assert order("Lisbon", told)[:6] == order("Lisbon", found)


@pytest.mark.parametrize("talking", [1, 2, 3])
def test_passages_of_a_conversation_among_others_are_not_lifted_for_being_one(talking: int):
    texts = [f"Lisbon {n}" for n in range(10, 50)]
    found = [Found(text, 4.0 - n / 20, 0.9 - n / 200) for n, text in enumerate(texts)]
    told = [replace(one, conversation=f"talk {one.text}") for one in found[-talking:]]

    assert order("Lisbon", [*found[:-talking], *told]) == order("Lisbon", found)


def counted_anew(app: App, tenant: Tenant, query: Query) -> list[int]:
    """The numbers of the words that a search counts in its tag."""
    ListedTx.counted.clear()
    with Database(app.db.url, connections=ListedTx) as db:
        db.read(lambda tx: hybrid.search(tx, tenant, query))
    return [number for numbers in ListedTx.counted for number in numbers]


def points(text: str) -> float:
    return float(sum(word in text for word in ("pack", "Lisbon")))


def fill(
    app: App, tenant: Tenant, tag: str, given: Sequence[str], more: Sequence[str] = ()
) -> None:
    with app.db.begin() as tx:
        for text in given:
            new = NewDocument(documents.text_content(text), [tag, *more])
            documents.add(tx, tenant, new, DocumentId(random_id()))
    drain(app)


def texts(app: App, tenant: Tenant, query: Query) -> list[str]:
    with app.db.begin() as tx:
        return [hit.chunks[0].text for hit in hybrid.search(tx, tenant, query)]
