"""One document: acquire → extract → chunk → embed → index."""

import hashlib
import re
import string
import threading
import time
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, nullcontext, suppress
from dataclasses import asdict, replace
from datetime import timedelta
from functools import partial
from itertools import pairwise
from tempfile import SpooledTemporaryFile
from typing import IO

import numpy as np
from numpy.typing import NDArray

from recollect import blobs, documents, extract
from recollect.app import App
from recollect.db import Tx
from recollect.documents import NewMember, stretch
from recollect.errors import (
    Contended,
    LeaseLost,
    Parked,
    Permanent,
    Reauthorize,
    SetupError,
    Transient,
    Unavailable,
    code_of,
)
from recollect.extract.text.text import front_matter
from recollect.index import terms
from recollect.inference.speech import Heard, LocalEngine
from recollect.ingest import chunk, positions, video_page
from recollect.model import (
    TURNING,
    Blob,
    Changed,
    Chunk,
    Claim,
    Content,
    Entry,
    Extracted,
    Member,
    OrgId,
    Stage,
    StoredBlob,
    storable,
)
from recollect.sync import change_log, sources
from recollect.telemetry import metrics, tracing

BATCH = 64
"""Chunks embedded and stored at a time; a killed worker loses at most so much work."""
FEW = 8
"""Chunks up to which a thread that embeds ahead would cost more than it overlaps."""
BRIEF = 0.25
"""Seconds for each document; a stage that is over sooner need not be seen."""
LONG = 1_000_000
"""Characters from which chunking takes longer than that."""
TITLE_LENGTH = 80
MARKS = " #\t>*-="
LEADING = re.compile(r"\A(?:[\s>#]|[*=-]+(?=\s)|(?!))*+")
EMPHASIS = re.compile(r"(\*{1,3})([^*]++)\1")
SIGNS = string.punctuation + string.whitespace
FENCES = ("```", "~~~")
LATE = timedelta(hours=1)
"""From when on each part of a recording asks for the longest lease: heartbeats go on for two hours,
and what is held for so long is held for as long if its worker dies."""
SPOOLED = 8_000_000
"""Bytes of the files of an archive that are held in memory; more go to a file without a name."""

Alive = Callable[[], None]
"""Called between the parts of long work; raises LeaseLost once it is in vain."""
NamedChunk = tuple[Chunk, str]
"""With what it is found by beside its text: see `documents.names`."""
Vectors = Sequence[NDArray[np.float32] | None]
"""one for each text; without an embedder there are none"""


def process(app: App, claim: Claim) -> Changed:
    """Take a claimed document through all stages.

    Raises Transient, Unavailable, Permanent, or LeaseLost; the worker settles those.
    """
    clock = Stopwatch()
    span = span_of(app, claim)
    try:
        changed = _through(app, claim, clock)
        clock.lap(Stage.INDEXING)
        span.end(stages=clock.timings, attributes=asdict(changed))
    except Exception as error:
        span.end(stages=clock.timings, code=code_of(error))
        if _own(clock.stage, error):
            # What is down is down for all; else it takes several documents to accuse a stage.
            down = isinstance(error, Unavailable) and not isinstance(error, Contended)
            document = None if down else claim.document.id
            metrics.stumbled(clock.stage, code_of(error), document)
        raise
    finally:
        observe(clock)
    return changed


def span_of(app: App, claim: Claim) -> tracing.OpenSpan:
    """Of this attempt; whoever begins it ends it."""
    return tracing.begin(app.tracer, "document", trace_id(claim), _traced(claim))


def observe(clock: "Stopwatch") -> None:
    """Count a document's stages and what they took."""
    for stage, took in clock.timings.items():
        metrics.observe("recollect_stage_seconds", took / 1000, stage=stage)
    metrics.passed(list(clock.timings))


def trace_id(claim: Claim) -> str:
    """Of the trace of this attempt."""
    return tracing.id_of("document", claim.document.id, claim.number)


def _traced(claim: Claim) -> tracing.Attributes:
    document = claim.document
    return {
        "document": document.id,
        "org": document.org_id,
        "kind": document.kind,
        "attempt": document.attempts,
    }


def _own(stage: Stage, error: Exception) -> bool:
    """Whether a failure says more of the stage than of the document.

    Nothing that the caller sent can make embedding or indexing fail.
    """
    match error:
        case LeaseLost() | Parked() | Reauthorize():
            return False
        case Unavailable() | SetupError():
            return True
        case Permanent() | Transient():
            return stage in (Stage.EMBEDDING, Stage.INDEXING)
        case _:
            return True


def _through(app: App, claim: Claim, clock: "Stopwatch") -> Changed:
    with SpooledTemporaryFile(max_size=SPOOLED) as spool:
        return _worked(app, claim, clock, spool)


def _worked(app: App, claim: Claim, clock: "Stopwatch", spool: IO[bytes]) -> Changed:
    synced = claim.content.source_id is not None
    # What came out of an archive is a file like any other, never an archive of its own.
    into = spool if claim.document.archive_id is None else None
    alive = partial(_prolong, app, claim, time.monotonic())
    extracted = (
        _synced(app, claim, into, alive)
        if synced
        else read(app, claim.document.org_id, claim.content, into, alive)
    )
    extracted = _titled(claim.content, extracted, emptied=synced and _is_newer(claim))
    clock.lap(Stage.EXTRACTING)
    if claim.watched or len(extracted.text) > LONG:
        _advance(app, claim, Stage.CHUNKING)
    chunks = positions.locate(extracted, chunk.split(extracted.text))
    clock.lap(Stage.CHUNKING)
    with shown(app, [claim], Stage.EMBEDDING):
        known = _known(app, claim)
        fresh = list({c.hash: c for c in chunks if c.hash not in known}.values())
        last: list[Entry] = []
        # What a worker that dies has stashed may be the first no more: `finish` names it.
        whole = chunks if len(fresh) <= BATCH else ()
        named = with_names(claim.content, extracted, whole, fresh)
        with closing(_entries(app, claim, named)) as batches:
            for last, more in batches:
                if more:
                    with app.db.begin() as tx:
                        documents.stash(tx, claim, last, lease=app.lease)
    clock.lap(Stage.EMBEDDING)
    if claim.watched or len(chunks) > BATCH or extracted.members:
        _advance(app, claim, Stage.INDEXING)
    with app.db.begin() as tx:
        lost = documents.lost_quotes(tx, claim, keep={chunk.hash for chunk in chunks})
    places = documents.places_of(lost, chunks)

    def finish(tx: Tx) -> Changed:
        changed = documents.finish(
            tx,
            claim,
            extracted,
            chunks,
            last,
            clock.timings,
            reused=len({c.hash for c in chunks} & known),
            members=members,
            places=places,
        )
        if claim.document.connection_id is not None:
            texts = changed.reused + changed.embedded
            change_log.processed(
                tx,
                claim.document.id,
                claim.document.revision,
                texts=texts,
                new_texts=changed.embedded,
            )
        return changed

    with _stored(app, claim, extracted.members, spool) as members:
        return app.db.write(finish)


def read(
    app: App,
    owner: OrgId,
    content: Content,
    into: IO[bytes] | None = None,
    alive: Alive = lambda: None,
) -> Extracted:
    """The text of a content of that organisation: given, fetched, or out of a file in the sandbox.

    An archive is unpacked `into` a file, if there is one.
    """
    if content.blob is not None:
        data = blobs.get_whole(app.blobs, content.blob.key)
        blob = Blob(data, content.blob.mime, content.blob.name)
        found = content.extractor and extract.format_of(content.extractor, content.forced)
        return _extract(app, owner, blob, found or content.forced, into, alive)
    assert content.text is not None
    if content.url is not None:
        blob = app.fetcher.get(content.url).blob
        format = app.sandbox.detect(blob, content.forced)
        extracted = _extract(app, owner, blob, format, into, alive)
        extracted = replace(extracted, kind="webpage") if extracted.kind == "text" else extracted
        if format.extractor != "html":
            return extracted
        listen = partial(_extract, app, owner, forced=None, alive=alive)
        return video_page.read(app, blob, content.url, extracted, listen)
    if extract.is_html(content.text):
        blob = Blob(content.text.encode(), "text/html; charset=utf-8")
        return replace(app.sandbox.extract(blob, forced="html", owner=owner), kind="text")
    return _given(content.text, content.kind)


def read_note(content: Content) -> Extracted:
    """A text that was given and is not HTML, with a title. Raises Permanent if it has no words."""
    assert content.text is not None
    return _titled(content, _given(content.text, content.kind))


def _given(text: str, kind: str) -> Extracted:
    said, _, warnings = extract.without_data(text)
    # The comments of a script look like headings.
    is_markdown = not text.startswith("#!")
    return Extracted(extract.clean(said), kind=kind, warnings=warnings, markdown=is_markdown)


def _is_newer(claim: Claim) -> bool:
    """Whether searchers see an earlier revision until this one is done."""
    seen = claim.document.indexed_revision
    return seen is not None and seen < claim.document.revision


def _titled(content: Content, extracted: Extracted, *, emptied: bool = False) -> Extracted:
    """`emptied`: what its source took out of it must not be found any more, so it may be empty, but
    not where text may only be hidden (in a scan)."""
    if not extracted.text.strip():
        said = " ".join(extracted.warnings) or extract.NO_TEXT
        if said != extract.NO_TEXT or not emptied:
            raise Permanent(said, code="empty_content")
        extracted = replace(extracted, text="", warnings=[said])
    title = extracted.title or _title(content, extracted.text)
    return replace(extracted, title=TURNING.sub("", title))


def _synced(app: App, claim: Claim, into: IO[bytes] | None, alive: Alive) -> Extracted:
    """What a connection brings: its listing, or a fetch. Its title is that of the provider."""
    content, title = claim.content, claim.document.title
    if content.text is not None:
        return replace(_given(content.text, content.kind), title=title)
    found = sources.fetch(app, claim)
    if isinstance(found, Extracted):
        extracted = replace(found, text=storable(found.text), title=storable(found.title))
    else:
        extracted = _extract(app, claim.document.org_id, found, None, into, alive)
    kind = extracted.kind if content.kind == "text" else content.kind
    return replace(extracted, title=title or extracted.title, kind=kind)


def _extract(
    app: App,
    owner: OrgId,
    blob: Blob,
    forced: str | extract.Format | None,
    into: IO[bytes] | None = None,
    alive: Alive = lambda: None,
) -> Extracted:
    """With what is said in it, if it is a recording without captions."""
    format = app.sandbox.detect(blob, forced)
    if into is not None and format.unpacks:
        return app.sandbox.unpack(blob, into, forced=format, owner=owner)
    extracted = app.sandbox.extract(blob, forced=format, owner=owner)
    if not extracted.unheard:
        return extracted

    def hear(start: float, seconds: float, engine: LocalEngine | None) -> Heard:
        alive()
        return app.sandbox.hear(blob, start, seconds, engine, forced=format)

    with app.sandbox.in_line() if app.listener.is_local else nullcontext():
        transcript = app.listener.transcribe(hear)
    text, places = extract.weave(extracted.text, extracted.places, transcript.segments)
    warnings = [*extracted.warnings, *transcript.warnings]
    return replace(extracted, text=text, places=places, warnings=warnings, unheard=False)


@contextmanager
def _stored(
    app: App, claim: Claim, members: Sequence[Member] | None, spool: IO[bytes]
) -> Generator[Sequence[NewMember] | None]:
    """The files of an archive; those are in the blob store that it did not hold when last read.

    They are removed again if what is inside fails.
    """
    if members is None:
        yield None
        return
    with app.db.begin() as tx:
        before = documents.unpacked(tx, claim)
    found, stored = list[NewMember](), list[str]()
    try:
        for member in members:
            spool.seek(member.start)
            data = spool.read(member.size)
            digest = hashlib.sha256(data)
            blob = None
            if before.get(member.path) != digest.hexdigest():
                key = blobs.new_key(claim.document.org_id, data)
                stored.append(key)
                app.blobs.put(key, data)
                blob = StoredBlob(key, extract.safe_name(member.path), None)
            content = Content(
                kind=member.kind, hash=digest.digest(), blob=blob, extractor=member.extractor
            )
            found.append(NewMember(member.path, content))
    except BaseException:
        _take_back(app, stored)
        raise
    try:
        yield found
    except Unavailable:
        # After an outage nobody knows whether it was committed: what was not is swept later.
        raise
    except BaseException:
        _take_back(app, stored)
        raise


def _take_back(app: App, keys: Sequence[str]) -> None:
    with suppress(Unavailable):  # then they are swept
        blobs.delete_all(app.blobs, keys)


class Stopwatch:
    """Milliseconds from lap to lap."""

    def __init__(self) -> None:
        self._last = time.monotonic()
        self.timings: dict[str, float] = {}

    @property
    def stage(self) -> Stage:
        """The one that is under way: the first without its lap."""
        return next((stage for stage in Stage if stage not in self.timings), Stage.INDEXING)

    def lap(self, name: str) -> None:
        now = time.monotonic()
        self.timings[name] = round((now - self._last) * 1000, 1)
        self._last = now


def _advance(app: App, claim: Claim, stage: Stage) -> None:
    with app.db.begin() as tx:
        documents.advance(tx, claim, stage, lease=app.lease)


def _prolong(app: App, claim: Claim, began: float) -> None:
    """A sign of life: a recording of four hours may take longer than any other attempt."""
    is_late = time.monotonic() - began >= LATE.total_seconds()
    lease = max(app.lease, documents.LONGEST_LEASE) if is_late else app.lease
    with suppress(Unavailable), app.db.begin() as tx:  # hours of work outlive an outage
        documents.advance(tx, claim, Stage.EXTRACTING, lease=lease)


@contextmanager
def shown(app: App, claims: Sequence[Claim], stage: Stage) -> Generator[None]:
    """Show the stage of what is inside, unless it is over before anybody has looked."""
    if any(claim.watched for claim in claims):
        for claim in claims:
            _advance(app, claim, stage)
        yield
        return

    def show() -> None:
        with suppress(Exception):  # what is inside will meet the same, and is heard
            for claim in claims:
                _advance(app, claim, stage)

    timer = threading.Timer(BRIEF * len(claims), show)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()  # or it may show an earlier stage than the next


def _known(app: App, claim: Claim) -> set[bytes]:
    """Hashes of those of its chunk texts that the index holds already."""
    if claim.number == 1:  # nobody had it before
        return set()
    with app.db.begin() as tx:
        return documents.known_hashes(tx, claim, embedded=app.embedder is not None)


def _entries(
    app: App, claim: Claim, chunks: Sequence[NamedChunk]
) -> Generator[tuple[list[Entry], bool]]:
    """Batch by batch, and whether more will come; while one is stored, the next is embedded."""
    org = claim.document.org_id
    batches = [chunks[start : start + BATCH] for start in range(0, len(chunks), BATCH)]
    if len(batches) <= 1 and len(chunks) <= FEW:
        for batch in batches:
            yield weighed(org, batch, partial(vectors_of, app, batch)), False
        return
    with ThreadPoolExecutor(1, "ahead") as ahead:
        coming = ahead.submit(vectors_of, app, batches[0])
        for batch, following in pairwise([*batches, []]):
            entries = weighed(org, batch, coming.result)
            if following:
                coming = ahead.submit(vectors_of, app, following)
            yield entries, bool(following)


def weighed(
    org: OrgId, chunks: Sequence[NamedChunk], vectors: Callable[[], Vectors]
) -> list[Entry]:
    weights = [terms.weigh(org, one.text, names) for one, names in chunks]
    columns = zip(chunks, weights, vectors(), strict=True)
    return [Entry(one.hash, one.text, weight, vector) for (one, _), weight, vector in columns]


def with_names(
    content: Content, extracted: Extracted, chunks: Sequence[Chunk], fresh: Iterable[Chunk]
) -> list[NamedChunk]:
    """Those of the chunks that are `fresh`, the first of all with the names of its document."""
    file = content.blob and content.blob.name
    first = {one.hash: documents.names(extracted.title, file, one.text) for one in chunks[:1]}
    return [(one, first.get(one.hash, "")) for one in fresh]


def vectors_of(app: App, chunks: Sequence[NamedChunk]) -> Vectors:
    if app.embedder is None:
        return [None] * len(chunks)
    return list(app.embedder.embed([one.text for one, _ in chunks]))


def _title(content: Content, text: str) -> str:
    if content.blob is not None and content.blob.name:
        return content.blob.name
    title, begins = None, 0
    if text.startswith("---"):
        title, begins = front_matter(text)
    elif text.startswith("system"):
        begins = positions.first_question(text)
    elif text.startswith("#!"):  # it names an interpreter
        begins = text.find("\n") + 1
    elif text.startswith(("[{", "{")):
        title = _first_words(positions.first_said(text))
    return title or _first_words(text[begins:]) or _first_words(text)


def _first_words(text: str) -> str:
    """The first line with more than signs, as `{` or `/**` are; else the first with any."""
    lines = (line for whole in stretch.lines(text) for line in whole.splitlines())
    signs = rule = ""
    for line in lines:
        if line.strip(SIGNS) and not line.lstrip().startswith(FENCES):
            return _shortened(_unmarked(line))
        signs = signs or line.strip(MARKS)
        rule = rule or line.strip()
    return _shortened(signs or rule)


def _unmarked(line: str) -> str:
    """Without the marks before it, and those of the same kind after it: `## a ##`, `**a**`."""
    rest = LEADING.sub("", line)
    words = rest.rstrip()
    before, _, last = words.rpartition(" ")
    if before and set(last) <= set(line[: -len(rest)]):
        words = before.rstrip()
    wrapped = EMPHASIS.fullmatch(words)
    return wrapped[2] if wrapped else words


def _shortened(words: str) -> str:
    if len(words) <= TITLE_LENGTH:
        return words
    return words[:TITLE_LENGTH].rsplit(" ", 1)[0] + "…"
