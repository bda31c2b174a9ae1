"""From an open bundle to documents of an organisation.

Finished documents come with their text and chunks, so that nothing is fetched or extracted again;
their vectors are taken over when the model is the same, and made here when it is not. One
transaction each: a run that was cut off is simply started again.

An import only adds. What is here stays as it is, and where the bundle says otherwise that is
counted, so that a person can decide.
"""

import binascii
import hashlib
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray
from psycopg.types.json import Jsonb

from recollect import documents
from recollect.app import App, index_identity
from recollect.blobs import delete_all, new_key
from recollect.db import Tx
from recollect.errors import Refused, RequestError, SetupError, Unavailable
from recollect.index import terms
from recollect.index.vector_index import ModelVectors
from recollect.inference.embed import Embedder
from recollect.memories import memories, records
from recollect.model import (
    Chunk,
    Content,
    DocumentId,
    Entry,
    OrgId,
    StoredBlob,
    Tenant,
    random_id,
    storable,
)
from recollect.ops.backup import _questions
from recollect.ops.backup._archive import Progress, Tell, silent
from recollect.ops.backup._bundle import (
    DOCUMENTS,
    ID,
    INDEX,
    MEMORIES,
    QUESTIONS,
    Bundle,
    BundledDocument,
    BundledMemory,
    BundledQuestion,
    BundledSource,
    VectorModel,
    derived,
    vector_of,
)
from recollect.ops.backup._import_documents import (
    DocumentFound,
    as_jsonb,
    check_document,
    chunks_of,
    file_data,
    find_document,
    insert_document,
    is_fetched,
    read_elsewhere,
)
from recollect.ops.backup._import_memories import MemoryVersion, chain_of, differs, source_columns
from recollect.ops.backup._open_bundle import LONGEST_LINE, open_bundle
from recollect.orgs import orgs, tags

BATCH = 64
"""texts embedded at a time"""


@dataclass(frozen=True, slots=True)
class Brought:
    """What an import did, in documents unless it says otherwise."""

    added: int = 0
    there: int = 0
    """were there already, by their id or customId, and stay as they are"""
    differing: int = 0
    """of those: with other content than in the bundle"""
    queued: int = 0
    """of the added: not finished in the bundle; workers will process them"""
    renamed: int = 0
    """of the added: under another id, since theirs was taken"""
    taken_over: int = 0
    """chunks whose vector came with the bundle"""
    embedded: int = 0
    """chunks whose vector was made here"""
    memories: int = 0
    """added; those that are there already stay as they are"""
    memories_differing: int = 0
    """forgotten or current in the bundle and not here, or the reverse: what is here stands"""
    memories_left_out: int = 0
    """without a text, or without any document of the organisation that they came from"""

    questions: int = 0
    """test questions that were added"""
    questions_left_out: int = 0
    """made of a document that is not here, or more than a tag may have"""

    @property
    def conflicts(self) -> int:
        """What of the bundle does not stand here as the bundle has it."""
        return (
            self.differing
            + self.memories_differing
            + self.memories_left_out
            + self.questions_left_out
        )


def must_embed(bundle: Bundle, embedder: Embedder | None) -> str | None:
    """Why the vectors of the bundle are of no use here; None when they are, or none are wanted."""
    if embedder is None or bundle.embedder == VectorModel(*index_identity(embedder)):
        return None
    made = bundle.embedder.name if bundle.embedder else "none"
    return (
        f"the bundle's vectors are of {made}, the index is of {embedder.name}:"
        " all chunks are embedded here"
    )


def bring(app: App, folder: Path, *, org: str, tell: Tell = silent) -> Brought:
    """Add the documents of a bundle to an organisation; those that are there already stay.

    Raises SetupError for what is no whole bundle, naming the line, and NotFoundError for an
    unknown organisation; what was added before stays.
    """
    bundle = open_bundle(folder)
    with app.db.begin() as tx:
        owner = orgs.find(tx, org).id
        with _naming(folder / INDEX):
            _bring_tags(tx, owner, bundle)
    known = app.embedder is not None and must_embed(bundle, app.embedder) is None
    carrier = _Carrier(app, folder, owner, known)
    for number, document in _lines(folder / DOCUMENTS, BundledDocument):
        tell(Progress("documents", number - 1, bundle.documents))
        with _naming(folder / DOCUMENTS, number):
            carrier.carry(document)
    if (folder / MEMORIES).exists():
        for number, memory in _lines(folder / MEMORIES, BundledMemory):
            tell(Progress("memories", number - 1, bundle.memories))
            with _naming(folder / MEMORIES, number):
                carrier.carry_memory(memory)
        tell(Progress("memories", bundle.memories or 0, bundle.memories))
        carrier.relate()
    if (folder / QUESTIONS).exists():
        for number, question in _lines(folder / QUESTIONS, BundledQuestion):
            with _naming(folder / QUESTIONS, number):
                carrier.carry_question(question)
    return carrier.brought


@contextmanager
def _naming(path: Path, line: int | None = None) -> Generator[None]:
    try:
        yield
    except (RequestError, SetupError, Refused, ValueError) as error:
        where = f"{path}" if line is None else f"{path}, line {line}"
        raise SetupError(f"{where}: {error}") from error


class _Carrier:
    def __init__(self, app: App, folder: Path, org: OrgId, known: bool) -> None:
        self._app = app
        self._folder = folder
        self._org: OrgId = org
        self._known = known
        self._model = index_identity(app.embedder)
        """whether the vectors of the bundle are those of the index's model"""
        self.brought = Brought()
        # By their ids in the bundle: those they have here.
        self._documents: dict[str, str] = {}
        self._memories: dict[str, str] = {}
        self._parents: dict[str, str] = {}
        """the version before each, by their ids here"""
        self._differing: set[str] = set()
        """documents, by their ids here, that are others than in the bundle"""
        self._relations: list[tuple[str, str, str]] = []

    def carry(self, given: BundledDocument) -> None:
        given = self._placed(check_document(given))
        data = file_data(self._folder, given)
        body = given.content if given.content is not None else given.text
        if data is None and body is None:
            raise ValueError("it has neither content, text, nor file")
        fetched = data is None and is_fetched(given)
        raw = data if data is not None else ((fetched and given.url) or body or "").encode()
        digest = hashlib.sha256(raw).digest()
        with self._app.db.begin() as tx:
            found = find_document(tx, self._org, given, digest)
        if found.there:
            self._pass(given, found)
            return
        if given.archive in self._differing:  # it has no such file here
            given = msgspec.structs.replace(given, archive=None, archive_path=None)
        chunks = chunks_of(given)
        entries = None if chunks is None else self._entries(chunks, given)
        content = Content(
            kind=given.type,
            hash=digest,
            text=None if data is not None and given.content is None else body,
            url=given.url,
            blob=self._put(given, data),
            forced=given.forced_type,
            source_id=None if data is not None or fetched else read_elsewhere(given, found.id),
        )
        try:
            with self._app.db.begin() as tx:
                done = insert_document(
                    tx, self._app, self._org, found.id, given, content, chunks, entries
                )
        except Exception as error:
            # After an outage nobody knows whether it was committed: what was not is swept later.
            if not isinstance(error, Unavailable):
                self._take_back(content)
            raise
        if not done:  # somebody else was faster
            self._take_back(content)
            with self._app.db.begin() as tx:
                self._pass(given, find_document(tx, self._org, given, digest))
            return
        self._documents[given.id or found.id] = found.id
        self._count(
            added=1, queued=int(chunks is None), renamed=int(found.id != (given.id or found.id))
        )

    def _pass(self, given: BundledDocument, found: "DocumentFound") -> None:
        """It is there and stays as it is."""
        self._documents[given.id or found.id] = found.id
        if not found.same:
            self._differing.add(found.id)
        self._count(there=1, differing=int(not found.same))

    def _placed(self, given: BundledDocument) -> BundledDocument:
        """With the id that its archive has here; a file of one that is not here stands alone."""
        archive = self._documents.get(given.archive or "")
        path = None if archive is None else given.archive_path
        return msgspec.structs.replace(
            given,
            archive=None if path is None else archive,
            archive_path=path,
            unpacked=None if path is not None else given.unpacked,
        )

    def carry_memory(self, given: BundledMemory) -> None:
        """Add it with those of its sources that are here; one without any is left out.

        One that is here gets the sources that it lacks.
        """
        if not ID.fullmatch(given.id):
            raise ValueError("id: 1 to 64 characters of letters, digits, _ -")
        [tag] = tags.check([given.tag], "tag")
        content = storable(given.content)
        sources = [(self._documents.get(one.document, one.document), one) for one in given.sources]
        if not content or not all(0 <= one.start < one.end for _, one in sources):
            self._count(memories_left_out=1)
            return
        other = derived(self._org, given.id)
        with self._app.db.begin() as tx:
            rows = tx.execute(
                "select id, org_id from memories where id = any(%s)", ([given.id, other],)
            ).fetchall()
        ours = [row["id"] for row in rows if row["org_id"] == self._org]
        id = ours[0] if ours else other if rows else given.id
        # Earlier versions stand in earlier lines; what names itself has none.
        parent, root = self._memories.get(given.parent or ""), self._root(given, id)
        self._memories[given.id] = id
        if parent is not None and parent != id:
            self._parents[id] = parent
        self._relations += [(id, target, kind) for target, kind in given.relations.items()]
        if ours:
            with self._app.db.begin() as tx:
                chain = chain_of(tx, self._org, id)
                self._cite(tx, id, sources)
            self._count(memories_differing=int(differs(given, chain, id)))
            return
        vector = self._vector(given.vector, content)
        weights = terms.weigh(self._org, content)
        with self._app.db.begin() as tx:
            chain = chain_of(tx, self._org, parent or root or id)
            if parent in chain:  # which may have become a version of one that says the same
                root = chain[parent].root if chain[parent].root != id else None
            rival = given.latest and self._rival(chain, id)
            added = tx.execute(
                "insert into memories (id, org_id, tag, content, version, parent_id, root_id,"
                " is_latest, is_static, is_inference, buckets, metadata, temporal, forget_after,"
                " forget_reason, forgotten_at, created_at, updated_at, terms, weights, embedding,"
                " embedding_b, group_pairs)"
                " values (%(id)s, %(org)s, %(tag)s, %(content)s, %(version)s, %(parent)s,"
                " %(root)s, %(latest)s, %(static)s, %(inference)s, %(buckets)s, %(metadata)s,"
                " %(temporal)s, %(forget_after)s, %(forget_reason)s, %(forgotten_at)s,"
                " coalesce(%(created_at)s, now()), coalesce(%(updated_at)s, now()), %(terms)s,"
                " %(weights)s, %(embedding)s, %(embedding_b)s, %(group)s) on conflict do nothing",
                {
                    "id": id,
                    "org": self._org,
                    "tag": tag,
                    "content": content,
                    "version": given.version,
                    "parent": parent,
                    "root": root,
                    "latest": given.latest and not rival,
                    "static": given.static,
                    "inference": given.inference,
                    "buckets": given.buckets,
                    "metadata": as_jsonb(given.metadata),
                    "group": as_jsonb(given.group or None),
                    "temporal": as_jsonb(msgspec.to_builtins(given.temporal)),
                    "forget_after": given.forget_after,
                    "forget_reason": storable(given.forget_reason),
                    "forgotten_at": given.forgotten_at,
                    "created_at": given.created_at,
                    "updated_at": given.updated_at,
                    **memories.indexed(tx, id, weights, vector),
                },
            ).rowcount
            kept = self._cite(tx, id, sources) or self._bear(tx, id, tag, content, sources)
            if added and not kept:  # the documents are not here, or were deleted meanwhile
                tx.execute("delete from memories where id = %s", (id,))
            elif added and given.latest and not rival:
                tx.execute(
                    "update memories set is_latest = false where id = any(%s) and is_latest",
                    (list(chain),),
                )
                # A text is one memory: this one becomes an earlier version of one that is here.
                tx.execute(
                    "select unite_memories(array(select id from memories where org_id = %s"
                    " and tag = %s and md5(content) = md5(%s::text) and content = %s and is_latest"
                    " and forgotten_at is null and id <> %s order by created_at, id limit 1))",
                    (self._org, tag, content, content, id),
                )
        self._count(
            memories=int(bool(added and kept)),
            memories_left_out=int(not kept),
            memories_differing=int(kept and rival),
        )

    def carry_question(self, given: BundledQuestion) -> None:
        with self._app.db.begin() as tx:
            outcome = _questions.bring(tx, self._org, given, self._documents)
        self._count(
            questions=int(outcome == "added"), questions_left_out=int(outcome == "left out")
        )

    def _root(self, given: BundledMemory, id: str) -> str | None:
        """The first version, by its id here; it holds a chain together even when it is gone."""
        if given.root is None or given.root == given.id:
            return None
        gone = given.root if id == given.id else derived(self._org, given.root)
        return self._memories.get(given.root, gone)

    def _rival(self, chain: "Mapping[str, MemoryVersion]", id: str) -> bool:
        """Whether what stands here is no earlier version of this one: it was corrected here."""
        before: set[str] = set()
        while (id := self._parents.get(id, "")) and id not in before:
            before.add(id)
        said = {chain[one].content for one in before if one in chain}
        return any(
            one.latest and one.id not in before and one.content not in said
            for one in chain.values()
        )

    def _cite(self, tx: Tx, id: str, sources: Sequence[tuple[str, BundledSource]]) -> bool:
        """Note the evidence that stands here; whether the memory has any."""
        named = tx.execute(
            "select d.id, s.hash, s.start_at, s.end_at"
            " from unnest(%s::text[], %s::bytea[], %s::int[], %s::int[])"
            "  as s (document_id, hash, start_at, end_at)"
            " join documents d on d.id = s.document_id and d.org_id = %s and d.gone_at is null"
            " for key share of d",
            (*source_columns(sources), self._org),
        ).fetchall()
        doubtful = [row for row in named if row["id"] in self._differing]
        # By themselves: with Citus these lie on other servers than the rest.
        placed = {
            (row["id"], row["hash"])
            for one, hash in {(row["id"], row["hash"]) for row in doubtful}
            for row in tx.execute(
                "select document_id as id, hash from chunks"
                " where document_id = %s and hash = %s limit 1",
                (one, hash),
            )
        }
        tx.cursor().executemany(
            "insert into memory_sources (memory_id, document_id, hash, start_at, end_at)"
            " values (%s, %s, %s, %s, %s) on conflict do nothing",
            [
                (id, row["id"], row["hash"], row["start_at"], row["end_at"])
                for row in named
                if row["id"] not in self._differing or (row["id"], row["hash"]) in placed
            ],
        )
        row = tx.execute(
            "select exists (select from memory_sources where memory_id = %s) as cited", (id,)
        ).fetchone()
        assert row is not None
        return row["cited"]

    def _bear(
        self,
        tx: Tx,
        id: str,
        tag: str,
        content: str,
        sources: Sequence[tuple[str, BundledSource]],
    ) -> bool:
        """Let a document of its own bear a memory that says more than its document here.

        False when none of its documents is here.
        """
        there = tx.execute(
            "select from documents where id = any(%s) and org_id = %s and gone_at is null limit 1",
            ([document for document, _ in sources], self._org),
        ).fetchone()
        if there is None:
            return False
        bearer = documents.bear(tx, Tenant(self._org), tag, content, DocumentId(random_id()))
        tx.execute(
            "insert into memory_sources (memory_id, document_id, hash, start_at, end_at)"
            " values (%s, %s, %s, 0, %s)",
            (id, bearer.id, records.WHOLE, len(content)),
        )
        return True

    def relate(self) -> None:
        """Now that all memories are here, say what follows from what."""
        known = [
            (id, self._memories[target], kind)
            for id, target, kind in self._relations
            if target in self._memories and kind in ("extends", "derives")
        ]
        if not known:
            return
        with self._app.db.begin() as tx:
            tx.execute(
                "insert into memory_relations (memory_id, target_id, relation)"
                " select m.id, t.id, r.relation"
                " from unnest(%s::text[], %s::text[], %s::text[]) as r (id, target, relation)"
                " join memories m on m.id = r.id join memories t on t.id = r.target"
                " where m.org_id = %s and t.org_id = m.org_id and t.id <> m.id"
                " on conflict do nothing",
                (*map(list, zip(*known, strict=True)), self._org),
            )

    def _vector(self, given: str | None, text: str) -> Any:
        embedder = self._app.embedder
        if embedder is None:
            return None
        if self._known and given is not None:
            return self._decoded(given)
        return embedder.embed([text])[0]

    def _decoded(self, text: str) -> ModelVectors:
        """A vector of the bundle, which is of the model that the index had at the beginning."""
        name, dimensions = self._model
        return ModelVectors.of(_decoded(text, dimensions), name)

    def _entries(self, chunks: Sequence[Chunk], given: BundledDocument) -> list[Entry]:
        """One for each text, with the vector of the bundle if it can serve."""
        file = given.file and given.file.name
        names = {one.hash: documents.names(given.title, file, one.text) for one in chunks[:1]}
        vectors: dict[bytes, Any] = {}
        texts: dict[bytes, str] = {}
        embedder = self._app.embedder
        for one, bundled in zip(chunks, given.chunks or (), strict=True):
            texts[one.hash] = one.text
            if self._known and embedder is not None and bundled.vector is not None:
                vectors[one.hash] = self._decoded(bundled.vector)
        lacking = [hash for hash in texts if hash not in vectors] if embedder is not None else []
        self._count(taken_over=len(vectors), embedded=len(lacking))
        for start in range(0, len(lacking), BATCH):
            some = lacking[start : start + BATCH]
            assert embedder is not None
            made = embedder.embed([texts[hash] for hash in some])
            vectors.update(zip(some, made, strict=True))
        return [
            Entry(hash, text, terms.weigh(self._org, text, names.get(hash, "")), vectors.get(hash))
            for hash, text in texts.items()
        ]

    def _put(self, given: BundledDocument, data: bytes | None) -> StoredBlob | None:
        if data is None or given.file is None:
            return None
        key = new_key(self._org, data)
        self._app.blobs.put(key, data)
        return StoredBlob(key, given.file.name, given.file.mime)

    def _take_back(self, content: Content) -> None:
        if content.blob is not None:
            delete_all(self._app.blobs, [content.blob.key])

    def _count(self, **more: int) -> None:
        held = {name: getattr(self.brought, name) + n for name, n in more.items()}
        self.brought = replace(self.brought, **held)


def _decoded(text: str, dimensions: int) -> NDArray[np.float32]:
    try:
        return vector_of(text, dimensions)
    except binascii.Error as error:
        raise ValueError(f"a vector is not base64: {error}") from error


_Line = TypeVar("_Line", bound=msgspec.Struct)


def _lines(path: Path, kind: type[_Line]) -> Iterator[tuple[int, _Line]]:
    decoder = msgspec.json.Decoder(kind)
    with path.open("rb") as lines:
        for number in count(1):
            line = lines.readline(LONGEST_LINE + 1)
            if not line:
                return
            if len(line) > LONGEST_LINE:
                raise SetupError(f"{path}, line {number}: longer than {LONGEST_LINE:,} bytes")
            try:
                read = _in_utc(decoder.decode(line))
            except (msgspec.MsgspecError, ValueError) as error:
                raise SetupError(f"{path}, line {number}: {error}") from error
            yield number, read


def _in_utc(line: _Line) -> _Line:
    """With its times in UTC: the database takes some that nobody can read there."""
    times = {
        field.encode_name: (field.name, value)
        for field in msgspec.structs.fields(line)
        if isinstance(value := getattr(line, field.name), datetime)
    }
    moved: dict[str, datetime] = {}
    for shown, (name, time) in times.items():
        try:
            moved[name] = time.replace(tzinfo=time.tzinfo or UTC).astimezone(UTC)
        except OverflowError as error:
            raise ValueError(f"{shown}: is outside of the years 1 to 9999") from error
    return msgspec.structs.replace(line, **moved)


def _bring_tags(tx: Tx, org: OrgId, bundle: Bundle) -> None:
    """Make the tags; what is kept on those that are there already stays."""
    for tag in bundle.tags:
        tags.check([tag.name], f"tag {tag.name[:100]!r}")
    tags.ensure(tx, org, list(dict.fromkeys(tag.name for tag in bundle.tags)))
    for tag in bundle.tags:
        details: Mapping[str, Any] = {
            "org": org,
            "name": tag.name,
            "title": storable(tag.title),
            "context": storable(tag.entity_context),
            "buckets": None
            if tag.profile_buckets is None
            else Jsonb(storable(msgspec.to_builtins(tag.profile_buckets))),
        }
        tx.execute(
            "update tags set title = coalesce(title, %(title)s),"
            " entity_context = coalesce(entity_context, %(context)s),"
            " profile_buckets = coalesce(profile_buckets, %(buckets)s)"
            " where org_id = %(org)s and name = %(name)s"
            " and num_nonnulls(%(title)s::text, %(context)s::text, %(buckets)s::jsonb) > 0",
            details,
        )
