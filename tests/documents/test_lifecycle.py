"""Any order of what callers, workers and time do to documents, against a model of dictionaries.

The model knows the state machine of the design (who may claim, what a change does to the queue)
and the promises: newest content wins, a fenced worker changes nothing, `done` means that the index
holds exactly the text, and every document ends.
"""

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from datetime import timedelta
from random import Random
from typing import Any, ClassVar

import httpx
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from recollect import blobs, documents
from recollect.app import App
from recollect.db import Tx
from recollect.documents import DocumentChange, NewDocument, merge
from recollect.errors import (
    AmbiguousError,
    BadRequestError,
    ConflictError,
    LeaseLost,
    NotFoundError,
    Permanent,
    RequestError,
)
from recollect.index import terms
from recollect.ingest import chunk, pipeline
from recollect.model import (
    Changed,
    Chunk,
    Claim,
    Content,
    DocumentId,
    Entry,
    Extracted,
    Failure,
    Plan,
    Stage,
    Status,
    StoredBlob,
    Tenant,
)
from recollect.orgs import orgs
from recollect.search import hybrid
from recollect.worker.processing import attempt, drain, settle
from tests.conftest import examples

LEASE = timedelta(minutes=30)
"""Longer than any machine takes from one step to the next: only what is aged here is over."""
MAX_ATTEMPTS = 2
FAILURE = Failure("temporary_error", "the weather")
WORDS = ["árbol", "borde", "cielo", "düne", "façade", "größe", "🌱", "hügel", "insel", "мост"]


def paragraph(number: int) -> str:
    """About 700 characters that no other number gives: two or three of them overflow a chunk."""
    words = [f"{WORDS[(number + i) % len(WORDS)]}{number}x{i % 9}" for i in range(80)]
    return " ".join(words) + "."


texts = st.lists(st.integers(0, 6), min_size=1, max_size=4).map(
    lambda numbers: "\n\n".join(paragraph(number) for number in numbers)
) | st.sampled_from(["one line", "user: hello\nassistant: hi", "one line\nand another"])
tag_lists = st.lists(st.sampled_from("aabbc"), min_size=1, max_size=4).map(
    lambda tags: list(dict.fromkeys(tags))
)
custom_ids = st.sampled_from(["x", "y"])
metadatas = st.none() | st.fixed_dictionaries({"n": st.integers(0, 2)})
indexes = st.integers(0, 11)


@dataclass
class Expected:
    """What the model knows of one document."""

    id: DocumentId
    custom_id: str | None
    tags: list[str]
    metadata: dict[str, Any] | None
    text: str
    """the newest accepted content, as text"""
    blob: str | None = None
    revision: int = 1
    indexed_revision: int | None = None
    indexed_text: str | None = None
    status: Status = Status.QUEUED
    attempts: int = 0
    holder: int | None = None
    """number of the one claim that may finish"""
    due: bool | None = True
    """whether a worker may take it now; None: never again by itself"""

    def queue(self) -> None:
        self.status, self.attempts, self.due, self.holder = Status.QUEUED, 0, True, None

    def end(self, status: Status) -> None:
        self.status, self.due, self.holder = status, None, None

    def accept(self, text: str, blob: str | None) -> None:
        self.text, self.blob = text, blob
        self.revision += 1
        if self.status is Status.PROCESSING:
            self.attempts = 0
        else:
            self.queue()


@dataclass
class Held:
    """A worker's claim with the work done so far; the worker may long have been given up."""

    claim: Claim
    text: str
    extracted: Extracted | None = None
    chunks: Sequence[Chunk] = ()
    fresh: Sequence[Entry] = ()
    known: set[bytes] = field(default_factory=set[bytes])


class Lifecycle(RuleBasedStateMachine):
    """One organisation of one database."""

    app: ClassVar[App]

    def __init__(self) -> None:
        super().__init__()
        with self.app.db.begin() as tx:
            org = orgs.create(tx, f"life-{orgs.random_id()}", Plan.ENTERPRISE)
        self.tenant = Tenant(org.id)
        self.known: dict[str, Expected] = {}
        self.held: list[Held] = []
        self.ages = 0
        self._look: Tx | None = None

    @initialize(some=st.lists(texts, min_size=3, max_size=3))
    def begin_with_some(self, some: list[str]) -> None:
        for number, text in enumerate(some):
            custom_id = "xy"[number] if number < 2 else None
            self.add(text, ["ab"[number % 2]], True, custom_id, None, False, False)
        self.claim_and_work()

    # --- callers -------------------------------------------------------------------------------

    @rule(
        text=texts,
        tags=tag_lists,
        tagged=st.booleans(),
        custom_id=st.none() | custom_ids,
        metadata=metadatas,
        uploaded=st.integers(0, 4).map(lambda n: n == 0),
        in_flight=st.booleans(),
    )
    def add(
        self,
        text: str,
        tags: list[str],
        tagged: bool,
        custom_id: str | None,
        metadata: dict[str, Any] | None,
        uploaded: bool,
        in_flight: bool,
    ) -> None:
        if in_flight:
            self.claim(limit=12)
        content = self._content(text, uploaded)
        new = NewDocument(
            content, tags, tagged=tagged, custom_id=custom_id, metadata=metadata, source="test"
        )
        try:
            expected = self._found_by_custom_id(custom_id, tags[0] if tagged else None)
        except ConflictError:
            with pytest.raises(ConflictError):
                self._add(new)
            self._forget_upload(content)
            return
        document = self._add(new)
        blob = content.blob and content.blob.key
        if expected is not None:
            assert document.id == expected.id
            if tagged:
                expected.tags += [tag for tag in tags if tag not in expected.tags]
            if metadata is not None:
                expected.metadata = metadata
            self._add_again(expected, text, blob)
        elif document.id in self.known:
            self._assert_twin(self.known[document.id], text, tags, metadata)
        else:
            self.known[document.id] = Expected(
                document.id, custom_id, list(tags), metadata, text, blob
            )

    @precondition(lambda self: self.known)
    @rule(
        index=indexes,
        text=st.none() | texts,
        tags=st.none() | tag_lists,
        custom_id=st.none() | custom_ids,
        metadata=metadatas,
        by_custom_id=st.booleans(),
        in_flight=st.booleans(),
    )
    def change(
        self,
        index: int,
        text: str | None,
        tags: list[str] | None,
        custom_id: str | None,
        metadata: dict[str, Any] | None,
        by_custom_id: bool,
        in_flight: bool,
    ) -> None:
        if in_flight:
            self.claim(limit=12)
        expected = self._pick(index)
        name: str = expected.id
        if by_custom_id and expected.custom_id is not None:
            name = expected.custom_id
        change = DocumentChange(
            content=None if text is None else documents.text_content(text),
            custom_id=custom_id,
            tags=tags,
            metadata=metadata,
        )
        refusal = self._refusal_of_change(expected, name, change)
        if refusal is not None:
            with pytest.raises(refusal), self.app.db.begin() as tx:
                documents.update(tx, self.tenant, name, change)
            return
        with self.app.db.begin() as tx:
            documents.update(tx, self.tenant, name, change)
        expected.tags = tags or expected.tags
        expected.custom_id = custom_id or expected.custom_id
        expected.metadata = expected.metadata if metadata is None else metadata
        if text is not None:
            same = text == expected.text and expected.blob is None
            if not same or expected.status is Status.FAILED:
                expected.accept(text, None)

    @precondition(lambda self: len(self.known) > 2)
    @rule(index=indexes, how=st.sampled_from(["id", "id", "customId", "tag"]))
    def delete(self, index: int, how: str) -> None:
        expected = self._pick(index)
        if how == "tag":
            tag = expected.tags[-1]
            with self.app.db.begin() as tx:
                gone = documents.delete_where(tx, self.tenant, tags=[tag, "unused"])
            assert set(gone) == {d.id for d in self.known.values() if tag in d.tags}
            for id in gone:
                del self.known[id]
            return
        name: str = expected.id
        if how == "customId" and expected.custom_id is not None:
            name = expected.custom_id
        ambiguous = name != expected.id and len(self._named(name)) > 1
        with self.app.db.begin() as tx:
            refused = documents.delete(tx, self.tenant, [name, "nobody"])
        assert isinstance(refused.pop("nobody"), NotFoundError)
        assert {key: type(why) for key, why in refused.items()} == (
            {name: AmbiguousError} if ambiguous else {}
        )
        if not ambiguous:
            del self.known[expected.id]

    @precondition(lambda self: self.known)
    @rule(index=indexes, every_failed=st.booleans())
    def reprocess(self, index: int, every_failed: bool) -> None:
        ids = [] if every_failed else [self._pick(index).id]
        with self.app.db.begin() as tx:
            queued = documents.reprocess(tx, self.tenant, ids=ids, failed=every_failed)
        wanted = [
            d
            for d in self.known.values()
            if (d.id in ids and (d.due is None or (d.status is Status.QUEUED and not d.due)))
            or (every_failed and d.status is Status.FAILED)
        ]
        assert set(queued) == {expected.id for expected in wanted}
        for expected in wanted:
            expected.queue()
            self._age(expected.id)

    # --- workers -------------------------------------------------------------------------------

    @rule(limit=st.integers(1, 3))
    def claim(self, limit: int) -> None:
        ready = {d.id for d in self.known.values() if d.due and d.attempts < MAX_ATTEMPTS}
        with self.app.db.begin() as tx:
            claims = documents.claim(tx, lease=LEASE, limit=limit, max_attempts=MAX_ATTEMPTS)
        taken = {claim.document.id for claim in claims}
        assert taken <= ready
        # Tags share a claim evenly, so it may be smaller than it could.
        assert min(1, len(ready)) <= len(claims) == len(taken) <= min(limit, len(ready))
        for claim in sorted(claims, key=lambda claim: list(self.known).index(claim.document.id)):
            expected = self.known[claim.document.id]
            assert claim.document.revision == expected.revision
            self.held.append(Held(claim, expected.text))
            expected.status, expected.due = Status.PROCESSING, False
            expected.attempts += 1
            expected.holder = claim.number

    @precondition(lambda self: self.held)
    @rule(
        index=indexes,
        act=st.sampled_from(["work", "finish", "stash", "renew", "retry", "fail", "release"]),
        free=st.booleans(),
    )
    def act(self, index: int, act: str, free: bool) -> None:
        """One of the workers, live or long given up, does the next thing."""
        held = self.held[index % len(self.held)]
        match act:
            case "work" if held.extracted is None:
                self._work(held)
            case "work":  # a claim is begun once; whoever begins again claimed it again
                self._write(held, "finish")
            case "retry":
                self._retry(held, free=free)
            case "renew":
                self._renew()
            case "release":
                self._release(held)
            case _:
                self._prepare(held)
                self._write(held, act)

    @rule()
    def claim_and_work(self) -> None:
        before = len(self.held)
        self.claim(limit=1)
        for held in self.held[before:]:
            self._work(held)

    @precondition(lambda self: self._all_live())
    @rule(index=indexes, act=st.sampled_from(["advance", "stash", "finish", "retry", "fail"]))
    def overtake(self, index: int, act: str) -> None:
        """A worker stalls until another has taken the document; then it goes on."""
        live = self._all_live()
        held = live[index % len(live)]
        self._prepare(held)
        self._lease_ends(self.known[held.claim.document.id])
        self.claim(limit=3)
        self._write(held, act)

    @precondition(lambda self: self._all_live())
    @rule(index=indexes, text=texts, act=st.sampled_from(["stash", "finish", "retry", "fail"]))
    def outrun(self, index: int, text: str, act: str) -> None:
        """New content comes while a worker is at the old; then it goes on."""
        live = self._all_live()
        held = live[index % len(live)]
        self._prepare(held)
        place = list(self.known).index(held.claim.document.id)
        self.change(place, text, None, None, None, False, False)
        self._write(held, act)

    @precondition(lambda self: self._all_live())
    @rule(index=indexes)
    def poison(self, index: int) -> None:
        """Half done each time, until no attempt is left."""
        live = self._all_live()
        expected = self._live(live[index % len(live)])
        while expected and expected.status is Status.PROCESSING:
            held = next(held for held in self.held if self._live(held) is expected)
            self._prepare(held)
            self._write(held, "stash")
            self._lease_ends(expected)
            self._bury()
            if expected.due:
                self.claim(limit=12)

    @rule(index=indexes, what=st.sampled_from(["lease", "back-offs", "bury", "sweep"]))
    def time_passes(self, index: int, what: str) -> None:
        match what:
            case "lease":
                # Its worker crashed or stalls: it still knows its claim and may come back.
                live = self._all_live()
                for held in live[index % (len(live) + 1) :]:
                    self._lease_ends(self.known[held.claim.document.id])
            case "bury":
                self._bury()
            case "sweep":
                self._sweep()
            case _:
                for expected in self.known.values():
                    if expected.status is Status.QUEUED:
                        self._age(expected.id)
                        expected.due = True

    def _work(self, held: Held) -> None:
        """All of it at once, as the worker does; then its result is written down."""
        expected = self._live(held)
        before = self._snapshot() if expected is None else ""
        outcome = attempt(self.app, held.claim, pipeline.process)
        settle(self.app, held.claim, outcome)
        if expected is None:
            assert isinstance(outcome, LeaseLost | Permanent)
            assert self._snapshot() == before
        elif isinstance(outcome, Permanent):
            assert outcome.code == "missing_blob", outcome
            assert expected.revision > held.claim.document.revision
            expected.queue()
        else:
            assert isinstance(outcome, Changed), outcome
            self._indexed(expected, held)
        self.held.remove(held)

    def _prepare(self, held: Held) -> None:
        """The slow part alone, so that the world may change before its result is written."""
        if held.extracted is not None:
            return
        try:
            held.extracted = pipeline.read(self.app, held.claim.document.org_id, held.claim.content)
        except Permanent:
            return
        held.chunks = chunk.split(held.extracted.text)
        with self.app.db.begin() as tx:
            held.known = documents.known_hashes(tx, held.claim, embedded=True)
        fresh = {c.hash: c for c in held.chunks if c.hash not in held.known}
        assert self.app.embedder is not None
        vectors = self.app.embedder.embed([c.text for c in fresh.values()])
        held.fresh = [
            Entry(c.hash, c.text, terms.weigh(self.tenant.id, c.text), vectors[i])
            for i, c in enumerate(fresh.values())
        ]

    def _write(self, held: Held, act: str) -> None:
        """Write a result down, as far as there is one."""
        match act:
            case "stash" if held.fresh:
                self._stash(held)
            case "finish" if held.extracted is not None:
                self._finish(held, held.extracted)
            case "retry":
                self._retry(held, free=False)
            case "fail":
                self._fail(held)
            case _:
                self._advance(held)

    def _finish(self, held: Held, extracted: Extracted) -> None:
        reused = len({c.hash for c in held.chunks} & held.known)
        if self._fenced(
            held,
            lambda tx: documents.finish(
                tx, held.claim, extracted, held.chunks, held.fresh, {}, reused=reused
            ),
        ):
            self._indexed(self.known[held.claim.document.id], held)
        self.held.remove(held)

    def _stash(self, held: Held) -> None:
        if self._fenced(
            held, lambda tx: documents.stash(tx, held.claim, held.fresh[:1], lease=LEASE)
        ):
            held.fresh = held.fresh[1:]
            self.known[held.claim.document.id].due = False

    def _advance(self, held: Held) -> None:
        if self._fenced(
            held, lambda tx: documents.advance(tx, held.claim, Stage.EMBEDDING, lease=LEASE)
        ):
            self.known[held.claim.document.id].due = False

    def _renew(self) -> None:
        with self.app.db.begin() as tx:
            documents.renew(tx, [held.claim for held in self.held], lease=LEASE)
        for held in self._all_live():
            self.known[held.claim.document.id].due = False

    def _retry(self, held: Held, *, free: bool) -> None:
        later = timedelta(hours=1)
        if self._fenced(
            held, lambda tx: documents.retry(tx, held.claim, FAILURE, later, free=free)
        ):
            expected = self.known[held.claim.document.id]
            attempts = max(expected.attempts - free, 0)
            expected.queue()
            if expected.revision == held.claim.document.revision:
                expected.due, expected.attempts = False, attempts
        self.held.remove(held)

    def _fail(self, held: Held) -> None:
        if self._fenced(held, lambda tx: documents.fail(tx, held.claim, FAILURE)):
            expected = self.known[held.claim.document.id]
            if expected.revision > held.claim.document.revision:
                expected.queue()
            else:
                expected.end(Status.FAILED)
        self.held.remove(held)

    def _release(self, held: Held) -> None:
        with self.app.db.begin() as tx:
            documents.release(tx, [held.claim])
        if expected := self._live(held):
            attempts = max(expected.attempts - 1, 0)
            expected.queue()
            expected.attempts = attempts
        self.held.remove(held)

    def _bury(self) -> None:
        with self.app.db.begin() as tx:
            buried = documents.bury(tx, max_attempts=MAX_ATTEMPTS)
        spent = [d for d in self.known.values() if d.due and d.attempts >= MAX_ATTEMPTS]
        assert set(buried) == {expected.id for expected in spent}
        for expected in spent:
            expected.end(Status.FAILED)

    def _sweep(self) -> None:
        """What no row names any more goes from the blob store, and nothing else."""
        doomed = [""]
        while doomed:  # some at a time; other tests left theirs
            with self.app.db.begin() as tx:
                doomed = documents.doomed_blobs(tx)
            for key in doomed:
                self.app.blobs.delete(key)
            with self.app.db.begin() as tx:
                documents.forget_blobs(tx, doomed)
        present = set(self.app.blobs.older_than(timedelta(0)))
        owned = {key for key in present if key.startswith(self.tenant.id)}
        assert owned == {d.blob for d in self.known.values() if d.blob is not None}

    # --- what always holds ---------------------------------------------------------------------

    @invariant()
    def all_holds(self) -> None:
        with self.app.db.begin() as self._look:
            try:
                self.rows_are_as_expected()
                self.the_index_is_the_text()
                self.no_entry_without_chunk_once_the_work_ended()
                self.counts_are_a_recount()
            finally:
                self._look = None

    def rows_are_as_expected(self) -> None:
        rows = self._rows(
            "select *, due_at <= now() as due from documents where org_id = %(org)s"
            ' order by id collate "C"'  # as Python sorts them
        )
        found = [
            Expected(
                id=row["id"],
                custom_id=row["custom_id"],
                tags=row["container_tags"],
                metadata=row["metadata"],
                text=self.known[row["id"]].text if row["blob"] else row["content"],
                blob=row["blob"],
                revision=row["revision"],
                indexed_revision=row["indexed_revision"],
                indexed_text=row["text"],
                status=Status(row["status"]),
                attempts=row["attempts"],
                holder=row["claims"] if row["status"] == Status.PROCESSING else None,
                due=row["due"],
            )
            for row in rows
            if row["id"] in self.known
        ]

        assert [row["id"] for row in rows] == sorted(self.known)
        assert found == [self.known[id] for id in sorted(self.known)]
        assert all((row["stage"] is None) == (row["status"] != "processing") for row in rows)

    def the_index_is_the_text(self) -> None:
        chunks = self._rows(
            "select c.*, e.text as held, e.terms, e.embedding is not null as embedded,"
            " substr(d.text, c.start_at + 1, c.end_at - c.start_at) as cut,"
            " d.title, d.blob_name, d.revision = d.indexed_revision as is_newest,"
            " c.hash = first_value(c.hash) over (partition by d.id order by c.position) as first"
            " from chunks c join documents d on d.id = c.document_id"
            " left join entries e on e.document_id = c.document_id and e.hash = c.hash"
            " where d.org_id = %(org)s order by c.document_id, c.position"
        )
        placed: dict[str, list[tuple[int, int, bytes]]] = {id: [] for id in self.known}
        for row in chunks:
            assert row["held"] == row["cut"]
            assert row["embedded"]
            scope = documents.scope(self.tenant.id, self.known[row["document_id"]].tags)
            assert row["terms"][: len(scope)] == scope
            words = set(row["terms"][len(scope) :])
            assert words >= set(terms.weigh(self.tenant.id, row["held"]))
            if row["is_newest"] or not row["first"]:  # else its file may have another name already
                named = documents.names(row["title"], row["blob_name"], row["held"])
                told = named if row["first"] else ""
                assert words == set(terms.weigh(self.tenant.id, row["held"], told))
            placed[row["document_id"]].append((row["start_at"], row["end_at"], row["hash"]))
        for id, expected in self.known.items():
            wanted = chunk.split(expected.indexed_text or "")
            assert placed[id] == [(c.start, c.end, c.hash) for c in wanted]

    def no_entry_without_chunk_once_the_work_ended(self) -> None:
        astray = self._rows(
            "select e.document_id from entries e join documents d on d.id = e.document_id"
            " where d.org_id = %(org)s and d.status in ('done', 'failed') and not exists"
            " (select 1 from chunks c where c.document_id = e.document_id and c.hash = e.hash)"
        )

        assert astray == []

    def counts_are_a_recount(self) -> None:
        counted = self._rows("select number, entries from term_counts where org_id = %(org)s")
        recount = self._rows(
            "select number, count(*) as entries from entries e"
            " join documents d on d.id = e.document_id, unnest(e.terms) number"
            " where d.org_id = %(org)s group by number"
        )

        assert {r["number"]: r["entries"] for r in counted} == {
            r["number"]: r["entries"] for r in recount
        }

    def teardown(self) -> None:
        try:
            self._everything_ends()
            self._nothing_stays()
        finally:
            with self.app.db.begin() as tx:
                tx.execute("delete from orgs where id = %s", (self.tenant.id,))

    def _everything_ends(self) -> None:
        """However the workers were left, the queue runs dry and the newest content is indexed."""
        for _ in range(self.app.config.max_attempts + 1):
            with self.app.db.begin() as tx:
                tx.execute(
                    "update documents set due_at = now() where org_id = %s and due_at is not null",
                    (self.tenant.id,),
                )
            drain(self.app)
        for expected in self.known.values():
            if expected.status is not Status.FAILED:
                expected.end(Status.DONE)
                expected.indexed_text, expected.indexed_revision = expected.text, expected.revision
        rows = self._rows("select * from documents where org_id = %(org)s")
        assert {row["id"]: (row["status"], row["text"]) for row in rows} == {
            id: (expected.status, expected.indexed_text) for id, expected in self.known.items()
        }
        self.the_index_is_the_text()
        self.no_entry_without_chunk_once_the_work_ended()
        self.counts_are_a_recount()

    def _nothing_stays(self) -> None:
        with self.app.db.begin() as tx:
            documents.delete(tx, self.tenant, list(self.known))
        self.known.clear()
        self._sweep()
        self.counts_are_a_recount()
        assert self._rows("select 1 from documents where org_id = %(org)s") == []
        assert self._rows("select 1 from term_counts where org_id = %(org)s") == []

    # --- the model -----------------------------------------------------------------------------

    def _pick(self, index: int) -> Expected:
        return list(self.known.values())[index % len(self.known)]

    def _all_live(self) -> list[Held]:
        return [held for held in self.held if self._live(held)]

    def _live(self, held: Held) -> Expected | None:
        expected = self.known.get(held.claim.document.id)
        return expected if expected and expected.holder == held.claim.number else None

    def _named(self, custom_id: str) -> list[Expected]:
        return [d for d in self.known.values() if d.custom_id == custom_id]

    def _found_by_custom_id(self, custom_id: str | None, tag: str | None) -> Expected | None:
        """Whom an add means: the one at home in the tag, else the only one that has it."""
        if custom_id is None:
            return None
        found = [d for d in self._named(custom_id) if tag is None or tag in d.tags]
        home = [d for d in found if d.tags[0] == tag]
        if not home and len(found) > 1:
            raise ConflictError("several")
        return (home or found or [None])[0]

    def _refusal_of_change(
        self, expected: Expected, name: str, change: DocumentChange
    ) -> type[RequestError] | None:
        if name != expected.id and len(self._named(name)) > 1:
            return ConflictError
        custom_id = change.custom_id or expected.custom_id
        home = (change.tags or expected.tags)[0]
        others = [d for d in self._named(custom_id) if d.id != expected.id] if custom_id else []
        asked = change.custom_id is not None or change.tags is not None
        taken = asked and any(d.tags[0] == home for d in others)
        return BadRequestError if taken else None

    def _add_again(self, expected: Expected, text: str, blob: str | None) -> None:
        if expected.blob is None and blob is None:
            text = merge.merge(expected.text, text).text
        # The bytes of a text are another content as a file.
        if text != expected.text or (blob is None) != (expected.blob is None):
            expected.accept(text, blob)
        elif expected.status is Status.FAILED:
            expected.queue()

    def _assert_twin(
        self, twin: Expected, text: str, tags: list[str], metadata: dict[str, Any] | None
    ) -> None:
        assert twin.due is not None
        assert (twin.custom_id, twin.revision) == (None, 1)
        assert (twin.text, twin.tags, twin.metadata) == (text, tags, metadata)

    def _indexed(self, expected: Expected, held: Held) -> None:
        expected.indexed_revision = held.claim.document.revision
        expected.indexed_text = held.text
        if expected.revision > held.claim.document.revision:
            expected.queue()
        else:
            expected.end(Status.DONE)

    # --- the database --------------------------------------------------------------------------

    def _fenced(self, held: Held, write: Callable[[Tx], object]) -> bool:
        """Whether the claim was the live one; if not, the write is refused without a trace."""
        if self._live(held):
            with self.app.db.begin() as tx:
                write(tx)
            return True
        before = self._snapshot()
        with pytest.raises(LeaseLost), self.app.db.begin() as tx:
            write(tx)
        assert self._snapshot() == before
        return False

    def _add(self, new: NewDocument) -> Any:
        with self.app.db.begin() as tx:
            return documents.add(tx, self.tenant, new, DocumentId(orgs.random_id()))

    def _content(self, text: str, uploaded: bool) -> Content:
        content = documents.text_content(text)
        if not uploaded:
            return content
        key = blobs.new_key(self.tenant.id, text.encode())
        self.app.blobs.put(key, text.encode())
        return Content("text", content.hash, blob=StoredBlob(key, "note.txt", "text/plain"))

    def _forget_upload(self, content: Content) -> None:
        if content.blob is not None:  # as the upload endpoint does when the row is refused
            self.app.blobs.delete(content.blob.key)

    def _lease_ends(self, expected: Expected) -> None:
        self._age(expected.id)
        expected.due = True

    def _age(self, id: DocumentId) -> None:
        """Due long ago, in the order of the calls: real time would make runs differ."""
        self.ages += 1
        with self.app.db.begin() as tx:
            tx.execute(
                "update documents set due_at = 'epoch'::timestamptz + %s where id = %s",
                (timedelta(seconds=self.ages), id),
            )

    def _rows(self, query: Any) -> list[dict[str, Any]]:
        if self._look is not None:
            return self._look.execute(query, {"org": self.tenant.id}).fetchall()
        with self.app.db.begin() as tx:
            return tx.execute(query, {"org": self.tenant.id}).fetchall()

    def _snapshot(self) -> str:
        """Everything of the organisation that a worker can write, as a digest."""
        rows = self._rows(
            "select md5(string_agg(row, '|' order by row)) as digest from ("
            " select d::text as row from documents d where org_id = %(org)s"
            " union all select md5(e::text) from entries e join documents d on d.id = document_id"
            "  where org_id = %(org)s"
            " union all select c::text from chunks c join documents d on d.id = document_id"
            "  where org_id = %(org)s"
            " union all select t::text from term_counts t where org_id = %(org)s"
            " union all select b::text from doomed_blobs b) as rows"
        )
        return rows[0]["digest"] or ""


def test_documents_keep_their_promises_in_any_order_of_events(app: App) -> None:
    one_app = app

    class Bound(Lifecycle):
        app = one_app

    run_state_machine_as_test(
        Bound,
        settings=settings(
            max_examples=examples(change=20, night=40),
            stateful_step_count=35,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
        ),
    )


def test_customid_and_tags_change_in_one_step(app: App, tenant: Tenant) -> None:
    """Taking a name in another tag is no conflict with who has that name in the old tag."""
    with app.db.begin() as tx:
        for custom_id in ("x", "y"):
            new = NewDocument(documents.text_content(custom_id), ["a"], custom_id=custom_id)
            documents.add(tx, tenant, new, DocumentId(orgs.random_id()))
    with app.db.begin() as tx:
        moved = documents.update(tx, tenant, "y", DocumentChange(custom_id="x", tags=["b"]))

    assert (moved.custom_id, moved.container_tags) == ("x", ["b"])


def test_neighbours_come_from_the_revision_that_was_found(app: App, tenant: Tenant) -> None:
    def write(content: Content) -> None:
        with app.db.begin() as tx:
            new = NewDocument(content, ["a"], custom_id="x")
            documents.add(tx, tenant, new, DocumentId(orgs.random_id()))
        drain(app)

    write(documents.text_content("\n\n".join(map(paragraph, range(8)))))
    query = hybrid.Query(f"{WORDS[3]}3x0", None)
    with app.db.begin() as tx:
        [hit] = hybrid.search(tx, tenant, query)
        [whole] = hybrid.search(tx, tenant, replace(query, with_neighbours=True))
    with app.db.begin() as tx:
        text = documents.text_content("\n\n".join(map(paragraph, range(10, 18))))
        documents.update(tx, tenant, "x", DocumentChange(content=text))
    drain(app)

    assert len(whole.chunks) > len(hit.chunks)
    with app.db.begin() as tx:
        [late] = hybrid.with_neighbours(tx, [hit])
    assert late.chunks == hit.chunks


@dataclass
class Caller:
    """Changes a handful of documents again and again, in an order of its own."""

    http: httpx.Client
    chance: Random
    answers: Counter[int] = field(default_factory=Counter[int])

    def go_on(self, steps: int) -> None:
        for step in range(steps):
            self.answers[self._step(step).status_code] += 1

    def _step(self, step: int) -> httpx.Response:
        custom_id, tags = self.chance.choice("xyz"), self.chance.sample("abc", 2)
        named = {"customId": custom_id, "containerTags": tags}
        match self.chance.randrange(6):
            case 0 | 1:
                content = f"{paragraph(step % 5)} {self.chance.random()}"
                return self.http.post("/v3/documents", json={"content": content, **named})
            case 2:
                context = {**named, "entityContext": f"context {step}", "content": f"note {step}"}
                return self.http.post("/v3/documents", json=context)
            case 3:
                return self.http.patch(f"/v3/documents/{custom_id}", json={"containerTags": tags})
            case 4:
                change = {**named, "entityContext": f"context {step}", "content": f"new {step}"}
                return self.http.patch(f"/v3/documents/{self.chance.choice('xyz')}", json=change)
            case _:
                gone = {"ids": self.chance.sample("xyz", 2)}
                if self.chance.random() < 0.3:
                    gone = {"containerTags": tags[:1]}
                return self.http.request("DELETE", "/v3/documents/bulk", json=gone)


def test_callers_and_workers_never_wait_for_each_other_in_a_circle(
    app: App, client: httpx.Client
) -> None:
    callers = [Caller(client, Random(seed)) for seed in range(6)]
    over = threading.Event()

    def work() -> None:
        while not over.is_set():
            drain(app)

    with ThreadPoolExecutor(8) as pool:
        workers = [pool.submit(work) for _ in range(2)]
        try:
            wait([pool.submit(caller.go_on, 60) for caller in callers])
        finally:
            over.set()
        for worker in workers:
            worker.result()

    answers = sum((caller.answers for caller in callers), Counter[int]())
    assert answers.total() == 360
    # A deadlock that the server broke would be a 503, two rows for one customId a 500.
    assert set(answers) <= {200, 400, 404, 409}
