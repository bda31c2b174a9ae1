"""Nothing that matches is missing: what is being written, what is long and what is filtered."""

from collections.abc import Callable
from datetime import date, timedelta
from typing import Any

import httpx
import pytest

from recollect import documents
from recollect.app import App
from recollect.index import terms
from recollect.model import Entry, Org
from recollect.worker.processing import drain
from tests.contract.calls import add, found

LEASE = timedelta(minutes=5)


def ids(results: list[dict[str, Any]]) -> list[str]:
    return [result["documentId"] for result in results]


@pytest.mark.parametrize("again", [False, True], ids=["new", "processed again"])
def test_a_large_document_that_is_being_written_takes_nobodys_place(
    client: httpx.Client, app: App, org: Org, again: bool
):
    large = add(client, "the heron in the marsh, first of all")
    small = [add(client, f"The heron of pond {n} eats frogs.") for n in range(5)]
    drain(app)
    if again:
        client.patch(f"/v3/documents/{large}", json={"content": "the heron in the marsh, edited"})
    else:
        large = add(client, "something long about the heron")
    with app.db.begin() as tx:
        [claim] = documents.claim(tx, lease=LEASE, limit=1, max_attempts=3)
        assert claim.document.id == large
        documents.stash(tx, claim, entries(app, org, 300), lease=LEASE)

    assert set(small) <= set(ids(found(client, "heron frogs", limit=20)))
    assert (large in ids(found(client, "heron", limit=20))) is again
    shown = [one for hit in found(client, "heron", limit=20) for one in hit["chunks"]]
    assert not any("stashed" in one["content"] for one in shown)


def entries(app: App, org: Org, count: int) -> list[Entry]:
    assert app.embedder is not None
    texts = [f"heron heron heron frogs stashed {n}" for n in range(count)]
    vectors = app.embedder.embed(texts)
    return [
        Entry(f"{n:016d}".encode(), text, terms.weigh(org.id, text), vector)
        for n, (text, vector) in enumerate(zip(texts, vectors, strict=True))
    ]


def test_one_long_document_leaves_room_for_others_that_match(client: httpx.Client, app: App):
    book = "\n\n".join(f"# Part {n}\n\n" + f"heron heron marsh {n} " * 60 for n in range(150))
    long = add(client, book)
    small = [
        add(client, f"A heron and {n} other birds in the marsh of the north.") for n in range(5)
    ]
    drain(app)

    results = found(client, "heron marsh", limit=10)

    assert set(ids(results)) == {long, *small}
    assert set(ids(found(client, "heron marsh", limit=6))) == {long, *small}


def test_among_few_documents_each_word_of_the_query_finds_its_own(
    client: httpx.Client, served: Callable[..., httpx.Client], app: App
):
    made = [add(client, f"The {bird} stands in the water.") for bird in ("heron", "crane", "stork")]
    drain(app)

    results = found(served(embedder=None), "heron crane stork")
    assert {result["documentId"] for result in results} == set(made)


def test_the_document_of_a_date_is_first_for_all_36(client: httpx.Client, app: App):
    first = date(2024, 1, 5)
    days = [first + timedelta(days=10 * n) for n in range(36)]
    made = {day: add(client, f"The meeting was on {day} in Bonn.") for day in days}
    drain(app)

    for day in days:
        assert ids(found(client, f"What was on {day}?"))[0] == made[day], day
        assert ids(found(client, str(day)))[0] == made[day], day


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("CVE-2025-1234", "Fixes CVE-2025-1234 in the parser."),
        ("v1.2.3", "Released as v1.2.3 on Monday."),
        ("ISO 27001", "Audited by ISO 27001 in May."),
        ("ada@example.com", "Write to ada@example.com about it."),
        ("src/recollect/app.py", "See src/recollect/app.py for more."),
        ("10:45", "The train leaves at 10:45 sharp."),
    ],
)
def test_codes_are_found_as_what_they_are(client: httpx.Client, app: App, query: str, text: str):
    mixed = [
        "Fixes CVE-2025-4321 and CVE-2024-1234; the year 2025 had 1234 of them.",
        "Released as v1.3.2 and v3.2.1, after v1.2 and v2.3.",
        "Audited by ISO 9001; room 27001 is for 27 members.",
        "Write to ada.example@com.org or example@ada.com about it.",
        "See src/app.py, recollect/src and app/recollect.py for more.",
        "The train leaves at 45:10 or 10 past; 45 seats.",
    ]
    for other in mixed:
        add(client, other)
    wanted = add(client, text)
    drain(app)

    assert ids(found(client, query))[0] == wanted


def test_nonsense_is_not_relevant_and_a_threshold_cuts_it(client: httpx.Client, app: App):
    for n in range(8):
        add(client, f"Recipe {n}: boil the potatoes, add salt, serve with butter.")
    drain(app)

    for query in ("zxqvbn", "quantum chromodynamics of quarks"):
        results = found(client, query)
        assert not any(chunk["isRelevant"] for hit in results for chunk in hit["chunks"]), query
        assert found(client, query, chunkThreshold=0.5) == []
    [*relevant] = found(client, "boil potatoes with salt and butter", chunkThreshold=0.5)
    assert len(relevant) == 8


def test_scores_never_rise_down_the_list(client: httpx.Client, app: App):
    for n in range(30):
        add(client, " ".join(["heron"] * (n % 5) + ["marsh"] * (n % 3) + [f"bird {n}"]))
    drain(app)

    scores = [hit["score"] for hit in found(client, "heron in the marsh", limit=30)]

    assert scores == sorted(scores, reverse=True)


def test_of_two_equal_texts_the_newer_is_first(client: httpx.Client, app: App):
    made: list[str] = []
    for n in range(6):
        made.append(add(client, "The heron eats frogs.", containerTags=[f"t{n}"]))
        drain(app)

    assert ids(found(client, "heron frogs", limit=6)) == made[::-1]
