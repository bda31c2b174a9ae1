"""Notes, short texts that are new, worked together: one call of the model, one transaction.

A note by itself takes as many statements as a document of a hundred passages, and a model reads one
text at a time more slowly than several. Whatever goes wrong here is no note's fault yet: nothing is
written, and each goes the way of all documents by itself.
"""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from itertools import chain, groupby, islice

from recollect import documents, extract
from recollect.app import App
from recollect.documents import Finished
from recollect.errors import Contended, LeaseLost, Unavailable, code_of
from recollect.ingest import chunk, pipeline, positions
from recollect.ingest.pipeline import Stopwatch
from recollect.model import Changed, Claim, Stage
from recollect.telemetry import metrics

TOGETHER = 16
"""notes"""


def groups(claims: Sequence[Claim]) -> Iterator[Sequence[Claim]]:
    """What is worked together, and all else one by one."""
    notes = sorted(filter(_fits, claims), key=_org)
    for _, found in groupby(notes, _org):
        theirs = list(found)
        for first in range(0, len(theirs), TOGETHER):
            yield theirs[first : first + TOGETHER]
    for one in claims:
        if not _fits(one):
            yield [one]


def _org(claim: Claim) -> str:
    return claim.document.org_id


def _fits(claim: Claim) -> bool:
    """Whoever watches is shown each stage, which documents have by themselves."""
    text = claim.content.text
    return (
        documents.is_note(claim)
        and text is not None
        and not claim.watched
        and not extract.is_html(text)
    )


def process(app: App, claims: Sequence[Claim]) -> list[Changed | LeaseLost]:
    """Take notes of one organisation through all stages: all of them, or none, where it raises.

    A note without any words raises Permanent, as anything may that a document raises.
    """
    clock = Stopwatch()
    spans = [pipeline.span_of(app, claim) for claim in claims]
    try:
        changed = _through(app, claims, clock)
    except Exception as error:
        for span in spans:
            span.end(stages=clock.timings, code=code_of(error))
        if isinstance(error, Unavailable) and not isinstance(error, Contended):
            metrics.stumbled(clock.stage, code_of(error), None)
        raise
    clock.lap(Stage.INDEXING)
    for span, one in zip(spans, changed, strict=True):
        if one is not None:
            span.end(stages=clock.timings, attributes=asdict(one))
            pipeline.observe(clock)
    return [LeaseLost() if one is None else one for one in changed]


def _through(app: App, claims: Sequence[Claim], clock: Stopwatch) -> list[Changed | None]:
    read = [pipeline.read_note(claim.content) for claim in claims]
    clock.lap(Stage.EXTRACTING)
    chunks = [positions.locate(one, chunk.split(one.text)) for one in read]
    clock.lap(Stage.CHUNKING)
    with pipeline.shown(app, claims, Stage.EMBEDDING):
        fresh = [
            pipeline.with_names(claim.content, one, some, {own.hash: own for own in some}.values())
            for claim, one, some in zip(claims, read, chunks, strict=True)
        ]
        every = list(chain.from_iterable(fresh))
        org = claims[0].document.org_id
        made = iter(pipeline.weighed(org, every, partial(pipeline.vectors_of, app, every)))
        entries = [list(islice(made, len(some))) for some in fresh]
    clock.lap(Stage.EMBEDDING)
    works = [
        Finished(*work, timings=clock.timings)
        for work in zip(claims, read, chunks, entries, strict=True)
    ]
    return app.db.write(lambda tx: documents.finish_together(tx, works))
