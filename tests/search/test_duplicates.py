"""Passages that say what a better one says."""

import httpx
import pytest

from recollect.app import App
from recollect.search.duplicates import SaidBefore
from recollect.worker.processing import drain
from tests.contract.calls import add, found

TEXT = (
    "The weir at Hollow Mill was built in 1911 by the brothers Lund. It is 12 metres long, holds"
    " back the water of the Aller, and herons fish below it in every season of the year."
)


@pytest.mark.parametrize(
    "same",
    [
        TEXT,
        TEXT.upper().replace(" ", "\n"),
        "> " + TEXT.replace("brothers Lund", "**brothers Lund**"),
        TEXT[: TEXT.index(", holds")],
        TEXT.replace("every season", "each season"),
    ],
)
def test_what_a_better_passage_says_is_known(same: str):
    said = SaidBefore()
    said.add("Something else about the reeds and the frogs.")
    assert said.add(TEXT) == 1
    assert said.by(same) == 1


@pytest.mark.parametrize(
    "new",
    [
        "",
        "* * *",
        TEXT.replace("1911", "1912"),
        TEXT.replace("12 metres", "21 metres"),
        TEXT.replace("12 metres", "-12 metres"),
        TEXT + " The mill itself burned down in the winter of the great flood and was not rebuilt.",
        "It is not long, and no heron was ever seen below the weir at Hollow Mill.",
    ],
)
def test_what_no_better_passage_says_is_new(new: str):
    said = SaidBefore()
    said.add("* * *")
    said.add(TEXT)
    assert said.by(new) is None


def test_scripts_without_spaces_are_compared_by_their_characters():
    said = SaidBefore()
    said.add("鷺は川の堰の下で魚を捕る。水は冷たく、秋には霧が立つ。")
    assert said.by("鷺は川の堰の下で魚を捕る。水は冷たく、秋には霧が立つ") == 0
    assert said.by("鷺は川の堰の下で蛙を捕り、冬には南へ飛んで行く。") is None


@pytest.fixture
def three(client: httpx.Client, app: App) -> list[str]:
    """The same twice, in another dress, and something else."""
    ids = [
        add(client, TEXT),
        add(client, TEXT.replace(" ", "  ")),
        add(client, "A heron stood at the weir at noon, and left at dusk."),
    ]
    drain(app)
    return ids


def test_each_document_is_found_unless_folding_is_asked_for(client: httpx.Client, three: list[str]):
    results = found(client, "herons at the weir of Hollow Mill")
    assert {one["documentId"] for one in results} == set(three)
    assert all("alsoIn" not in chunk for one in results for chunk in one["chunks"])


def test_what_two_documents_say_is_shown_once_with_where_else_it_stands(
    client: httpx.Client, three: list[str]
):
    first, second = found(client, "herons at the weir of Hollow Mill", foldDuplicates=True)
    [chunk] = first["chunks"]
    [also] = chunk["alsoIn"]
    assert {first["documentId"], also["documentId"]} == set(three[:2])
    assert second["documentId"] == three[2]
    assert "alsoIn" not in second["chunks"][0]
    other = client.get(f"/v3/documents/{also['documentId']}").json()
    assert also["title"] == other["title"]
    text = other["content"]
    assert text[also["start"] : also["end"]].split() == TEXT.split()


def test_folding_leaves_room_for_others(client: httpx.Client, three: list[str]):
    results = found(client, "herons at the weir of Hollow Mill", foldDuplicates=True, limit=2)
    assert len(results) == 2


def test_passages_among_memories_are_folded_alike(client: httpx.Client, three: list[str]):
    body = {"q": "herons at the weir of Hollow Mill", "searchMode": "documents", "threshold": 0}
    apart = client.post("/v4/search", json=body).json()["results"]
    folded = client.post("/v4/search", json={**body, "foldDuplicates": True}).json()["results"]
    assert (len(apart), len(folded)) == (3, 2)
    assert [len(one.get("alsoIn", ())) for one in folded] == [1, 0]
