"""A document is found by its title and by the name of its file, as they are now."""

from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO

import pytest

from recollect import documents
from recollect.app import App
from recollect.documents import DocumentChange, SyncedDocument
from recollect.index import phrases, terms
from recollect.ingest import intake, notes, pipeline
from recollect.ingest.intake import Labels, Sent
from recollect.model import Changed, Claim, ConnectionId, DocumentId, Tenant, random_id
from recollect.ops.verify import verify
from recollect.orgs import settings
from recollect.search import hybrid
from recollect.search.candidates import Query
from recollect.worker.processing import drain
from tests.worker.test_worker import DyingEmbedder, Killed

TEXT = "The heron waits at the pond. It is patient."


@pytest.fixture(autouse=True)
def sound(app: App, tenant: Tenant) -> Iterator[None]:
    """Whatever a test did: each entry has the words that it should have, and all are counted."""
    yield
    with app.db.begin() as tx:
        rows = tx.execute("select id from documents where org_id = %s", (tenant.id,)).fetchall()
    ours = {row["id"] for row in rows} | {tenant.id}
    findings = verify(app.db, app.blobs).findings
    found = {one.kind for one in findings if ours & set(" ".join(one.examples).split())}
    assert found <= {"item_missing"}, "a test puts a document without its sync"


def upload(app: App, tenant: Tenant, name: str, text: str, custom_id: str = "one") -> DocumentId:
    id = take(app, tenant, name, text, custom_id)
    drain(app)
    return id


def take(app: App, tenant: Tenant, name: str, text: str, custom_id: str = "one") -> DocumentId:
    labels = Labels(tags=["files"], custom_id=custom_id)
    sent = Sent(BytesIO(text.encode()), name, None)
    return intake.take_file(app, tenant, labels, sent).id


def found(app: App, tenant: Tenant, words: str) -> set[str]:
    """What holds any of the words, whatever it means."""
    with app.db.begin() as tx:
        hits = hybrid.search(tx, tenant, Query(words, None))
    return {hit.document.id for hit in hits}


def claim(app: App) -> Claim:
    with app.db.begin() as tx:
        (claimed,) = documents.claim(tx, lease=app.lease, limit=1, max_attempts=5)
    return claimed


def test_a_file_is_found_by_its_name_and_it_is_relevant(app: App, tenant: Tenant) -> None:
    id = upload(app, tenant, "settings.toml", TEXT)
    upload(app, tenant, "other.md", "Storks nest on chimneys.", "two")

    for words in ("settings.toml", "settings", "where is settings.toml"):
        assert found(app, tenant, words) == {id}, words
    with app.db.begin() as tx:
        (hit,) = hybrid.search(tx, tenant, Query("settings.toml", None))
    assert hit.chunks[0].is_relevant
    assert hit.chunks[0].text == TEXT, "the passage is shown as it is"


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("IMG_2034.HEIC.txt", ["IMG_2034.HEIC", "img_2034"]),
        ("meeting-notes_2025w14.md", ["meeting-notes_2025w14", "MEETING-NOTES_2025W14.MD"]),
        ("straße_plan.txt", ["STRASSE_PLAN", "strasse plan"]),
        ("v1.2.3.md", ["v1.2.3", "V1.2.3.md"]),
        (
            "2024-03-17_Protokoll_Mitgliederversammlung_Musikverein_Musterstadt_final_v2.txt",
            ["Mitgliederversammlung", "Protokoll Musikverein", "Musterstadt final"],
        ),
    ],
)
def test_a_name_is_found_without_its_suffix_and_in_parts_and_is_relevant(
    app: App, tenant: Tenant, name: str, asked: list[str]
) -> None:
    """What is joined is a word of the index as a whole, which its suffix is a part of."""
    id = upload(app, tenant, name, TEXT)
    upload(app, tenant, "other.md", "Storks nest on chimneys. Geese fly.", "two")
    for words in asked:
        with app.db.begin() as tx:
            hits = hybrid.search(tx, tenant, Query(words, None))
        assert hits[0].document.id == id, words
        assert hits[0].chunks[0].is_relevant, words


def test_what_is_called_as_the_query_comes_first(app: App, tenant: Tenant) -> None:
    texts = (TEXT, "Notes, notes and more notes.txt: all of them notes.", "Storks. " * 200)
    names = ("engine_notes.txt", "notes_of_notes.txt", "notes.txt")
    ids = [upload(app, tenant, name, text, name) for name, text in zip(names, texts, strict=True)]
    for number in range(4):
        upload(app, tenant, f"notes {number}.txt", f"Notes of day {number}.", str(number))
    titled = upload(app, tenant, "long.md", "Of many things. " * 99, "long")
    upload(app, tenant, "primer.md", "C++ primer: C++ explained.", "primer")
    intake.change(app, tenant, titled, DocumentChange(title="C++"))

    for words, id in (("notes.txt", ids[2]), ("NOTES", ids[2]), ("c++", titled)):
        with app.db.begin() as tx:
            best = hybrid.search(tx, tenant, Query(words, None))[0]
        assert (best.document.id, best.chunks[0].is_relevant) == (id, True), words
        assert best.chunks[0].parts.name > 0


def test_a_phrase_is_looked_for_in_names_as_well(app: App, tenant: Tenant) -> None:
    id = upload(app, tenant, "party plan.md", TEXT)
    long = "\n\n".join(f"Part {n}. " + "The stork builds. " * 99 for n in range(3))
    other = upload(app, tenant, "parseInvoice.py", long + " The plan of a party.", "two")
    intake.change(app, tenant, other, DocumentChange(title="Annual report of birds"))

    def said(query: str) -> list[tuple[str, int]]:
        read = phrases.read(query)
        assert app.embedder is not None
        vector = app.embedder.embed([read.text], query=True)[0]
        asked = Query(read.text, vector, phrases=read.phrases, excluded=read.excluded)
        with app.db.begin() as tx:
            hits = hybrid.search(tx, tenant, asked)
        return [(hit.document.id, one.position) for hit in hits for one in hit.chunks]

    for query in ('"party plan"', '"party plan.md" heron', '"the heron waits" "party plan"'):
        assert said(query) == [(id, 0)], query
    for query in (
        '"annual report of birds"',
        '"parseInvoice.py"',
        '"annual report" "stork builds"',
    ):
        assert said(query) == [(other, 0)], query
    for query in ('"plan md heron"', '"birds parseInvoice"', '"plan party"'):
        assert not said(query), "a name ends where another, or the text, begins"
    assert {of for of, _ in said('plan -"party plan"')} == {other}
    assert {of for of, _ in said('plan -"annual report"')} == {id}
    # Its first passage is that of the other, which has the phrase in its name.
    same = upload(app, tenant, "b.md", f"{TEXT}\n\n{'Geese fly. ' * 400}A party plan.", "three")
    upload(app, tenant, "party plan.md", f"{TEXT}\n\n{'Geese fly. ' * 400}")
    places = set(said('"party plan"'))
    assert (id, 0) in places
    assert (same, 0) not in places


@pytest.mark.parametrize(
    ("title", "text"),
    [("art", "A party at the pond."), ("art", "Smart carts."), ("Ion", "Ionic, Ions, Ion2.")],
)
def test_a_name_that_stands_within_words_alone_is_found(
    app: App, tenant: Tenant, title: str, text: str
) -> None:
    id = upload(app, tenant, "a.md", text)
    intake.change(app, tenant, id, DocumentChange(title=title))

    assert documents.names(title, None, text) == title
    assert found(app, tenant, title) == {id}
    assert documents.names(title, None, f"{text} {title}, at last") == ""
    assert documents.names(f"{text[:5]}…", None, text) == ""


def test_another_title_is_found_and_the_one_before_is_not(app: App, tenant: Tenant) -> None:
    id = upload(app, tenant, "a.txt", TEXT)
    for title, before in (("Minutes of November", "annual"), ("Annual report", "minutes")):
        intake.change(app, tenant, id, DocumentChange(title=title, tags=[title[:6].strip()]))
        assert found(app, tenant, title.split()[-1]) == {id}
        assert not found(app, tenant, before)
    upload(app, tenant, "a.txt", TEXT + " It eats.")
    assert found(app, tenant, "report") == {id}, "new content leaves a given title"


def test_the_names_go_to_the_passage_that_is_the_first_now(app: App, tenant: Tenant) -> None:
    long = "\n\n".join(f"Part {n}. " + "The stork builds and builds. " * 60 for n in range(4))
    upload(app, tenant, "birds.md", long)
    id = upload(app, tenant, "birds.md", "Geese come first. " * 90 + "\n\n" + long)

    with app.db.begin() as tx:
        hits = hybrid.search(tx, tenant, Query("birds", None))
        numbers = set(terms.numbers(tenant.id, terms.query_words("birds")[0]))
        rows = tx.execute("select terms from entries where document_id = %s", (id,)).fetchall()
    assert [one.position for one in hits[0].chunks] == [0]
    assert sum(not numbers.isdisjoint(row["terms"]) for row in rows) == 1


def test_a_killed_worker_leaves_no_names_on_what_is_the_first_no_more(
    app: App, tenant: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it stashed of a large document, others take up, though the content is another one."""
    monkeypatch.setattr("recollect.ingest.pipeline.BATCH", 2)
    long = "\n\n".join(f"Part {n}. " + "The stork builds and builds. " * 60 for n in range(4))
    id = take(app, tenant, "birds.md", long)
    with pytest.raises(Killed):
        pipeline.process(replace(app, embedder=DyingEmbedder(after=2)), claim(app))
    with app.db.begin() as tx:
        tx.execute("update documents set due_at = now() where id = %s", (id,))
        assert tx.execute("select 1 from entries where document_id = %s", (id,)).fetchone()
    take(app, tenant, "geese.md", "Geese come first. " * 90 + "\n\n" + long)
    drain(app)

    assert (found(app, tenant, "geese"), found(app, tenant, "birds")) == ({id}, set())
    first = take(app, tenant, "ducks.md", long.replace("stork", "duck"), "two")
    drain(app)
    assert found(app, tenant, "ducks.md") >= {first}, "what is stashed whole gets its names"


def test_a_title_that_came_while_it_was_worked_stays_and_is_found(app: App, tenant: Tenant) -> None:
    connection = ConnectionId(random_id())

    def put(title: str, known: DocumentId | None, version: str = "1") -> DocumentId:
        synced = SyncedDocument(
            connection, "1", "drive", version, "text", ["files"], title, None, {}, text=TEXT
        )
        with app.db.begin() as tx:
            return DocumentId(documents.put(tx, tenant.id, synced, known)[0])

    with app.db.begin() as tx:
        tx.execute(
            "insert into connections (id, org_id, provider, container_tags, document_limit, state)"
            " values (%s, %s, 'drive', '{files}', 100, 'ready')",
            (connection, tenant.id),
        )
    id = put("Draft", None)
    work = claim(app)
    put("Contract", id)
    pipeline.process(app, work)

    assert found(app, tenant, "contract") == {id}
    assert not found(app, tenant, "draft")
    put("Agreement", id)
    assert (found(app, tenant, "agreement"), found(app, tenant, "contract")) == ({id}, set())
    put("Settlement", id, version="2")
    assert (found(app, tenant, "settlement"), found(app, tenant, "agreement")) == ({id}, set())


def test_older_texts_keep_the_title_of_their_time(app: App, tenant: Tenant) -> None:
    with app.db.begin() as tx:
        settings.patch(tx, tenant.id, {"keepVersions": 3}, keys=[])
    upload(app, tenant, "first.md", TEXT)
    upload(app, tenant, "second.md", "Storks nest on chimneys.")

    assert found(app, tenant, "second")
    assert not found(app, tenant, "first")


def test_notes_that_share_their_first_passage_keep_their_own_titles(
    app: App, tenant: Tenant
) -> None:
    """A title that is made of a text may stand behind the first passage."""
    start = "system: " + "You are of help. " * 100
    for word in ("Orchards", "Vineyards"):
        text = f"{start}\n\nuser: {word} in spring?\n\nassistant: They bloom."
        intake.take(app, tenant, Labels(tags=["talk"]), intake.content_of(app, text))
    with app.db.begin() as tx:
        (first,) = documents.claim(tx, lease=app.lease, limit=1, max_attempts=5)
        claims = [
            first,
            *documents.claim_notes(tx, first, lease=app.lease, limit=9, max_attempts=5),
        ]
    assert len(claims) == 2
    done = notes.process(app, claims)

    assert all(isinstance(one, Changed) and one.chunks > 1 for one in done)
    with app.db.begin() as tx:
        hits = hybrid.search(tx, tenant, Query("orchards", None))
    assert [hit.document.title for hit in hits] == ["user: Orchards in spring?"]
    assert 0 in [one.position for one in hits[0].chunks]
