"""Commands that look at what the service holds and tend it."""

import json
import re
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from typing import Annotated, Any

import typer
from rich.live import Live
from rich.padding import Padding
from rich.text import Text

from recollect.cli import _complete
from recollect.cli.client import ApiKey, AsJson, AsOf, DocumentRow, Service, Url, open_service
from recollect.cli.output import (
    age,
    confirm,
    console,
    counted,
    echo_json,
    fail,
    harmless,
    one_line,
    table,
    tell,
)
from recollect.errors import NotFoundError
from recollect.index import terms
from recollect.model import OrgId
from recollect.search import places
from recollect.search.ranking import ONLY_WEAK

PASSAGE = 400
"""Characters of a chunk that a person is shown."""
LINES = 12
"""of them"""
ALSO = 3
"""Titles of other documents that say the same."""
BATCH = 100
"""The most ids that one request may name."""
HERE = OrgId("")
"""Term numbers differ between organisations; any will do to compare words with words."""
TO = "–"  # noqa: RUF001 # the dash of ranges
REFRESH = 2.0
"""Seconds between two looks of `status --watch`."""
NEWEST = 1000
"""How many failures are looked through for their reasons."""

Tags = Annotated[
    list[str] | None,
    typer.Option(
        "--tag",
        help="Only with this container tag; repeat for several.",
        autocompletion=_complete.tags,
    ),
]

Ids = Annotated[
    list[str] | None,
    typer.Argument(help="Ids or customIds.", autocompletion=_complete.documents),
]


def register(app: typer.Typer) -> None:
    app.command()(search)
    app.command("list")(list_documents)
    app.command()(show)
    app.command()(versions)
    app.command()(rm)
    app.command()(retry)
    app.command()(status)


# --- search ------------------------------------------------------------------------------------


def search(
    words: Annotated[list[str], typer.Argument(metavar="QUERY...", help="What to look for.")],
    tag: Tags = None,
    limit: Annotated[int, typer.Option(min=1, max=100, help="The most documents to show.")] = 10,
    filter: Annotated[
        str | None, typer.Option(help='Metadata filter, JSON: {"AND": [{"key": …}]}.')
    ] = None,
    rerank: Annotated[
        bool, typer.Option("--rerank", help="Let the reranker put the best first.")
    ] = False,
    with_duplicates: Annotated[
        bool, typer.Option("--with-duplicates", help="Also show passages that repeat another.")
    ] = False,
    as_of: AsOf = None,
    as_json: AsJson = False,
    url: Url = None,
    key: ApiKey = None,
) -> None:
    """Find documents by words and meaning: title, score, passage, and where it stands.

    Example: recollect search how are tasks cancelled --tag handbook --limit 5
    """
    query = " ".join(words)
    if not query.strip():
        fail("the query is empty", code=2)
    body: dict[str, Any] = {"q": query, "limit": limit, "containerTags": tag, "rerank": rerank}
    body["foldDuplicates"] = not with_duplicates
    if as_of is not None:
        body["asOf"] = as_of
    if filter is not None:
        try:
            body["filters"] = json.loads(filter)
        except ValueError:
            fail("--filter must be JSON", code=2)
    service = open_service(url, key)
    found = service.send("POST", "/v3/search", body)
    if as_json:
        echo_json(found)
        return
    for number, hit in enumerate(found["results"], 1):
        print_hit(number, hit, query)
    for warning in found.get("warnings") or ():
        tell(warning)
    if not found["results"]:
        tell(f"nothing found{service.unused(tag)}")
    elif not any(one["isRelevant"] for hit in found["results"] for one in hit["chunks"]):
        tell(ONLY_WEAK)


def print_hit(number: int, hit: dict[str, Any], query: str) -> None:
    out = console()
    best = hit["chunks"][0]
    title = one_line(hit["title"] or "") or "(no title)"
    # On a terminal, code and tables keep their lines; elsewhere a hit has three lines.
    found = harmless(best["content"]) if out.is_terminal else one_line(best["content"])
    passage = Text(_few_lines(excerpt(found, query)))
    for start, end in matches(passage.plain, query):
        passage.stylize("bold", start, end)
    place = [
        one_line(hit["filepath"] or hit.get("url") or hit["customId"] or hit["type"]),
        one_line(places.in_words(best["place"])),
        f"chars {best['start']}{TO}{best['end']}",
        f"id {hit['documentId']}",
    ]
    if more := len(hit["chunks"]) - 1:
        place.append(f"{more} more passage{'s' if more > 1 else ''}")
    others = {one["documentId"]: one["title"] for one in best.get("alsoIn") or ()}
    others.pop(hit["documentId"], None)  # it says so elsewhere, too
    if also := [one_line(title or id) for id, title in others.items()]:
        place.append(f"also in {', '.join(also[:ALSO])}{' …' if len(also) > ALSO else ''}")
    weak = "" if best["isRelevant"] else " weak"
    heading = Text.assemble(f"{number}. ", (title, "bold"), f"  {hit['score']:.3f}{weak}")
    where = Text(" · ".join(filter(None, place)), style="dim")
    if out.is_terminal:
        out.print(heading, Padding(passage, (0, 0, 0, 3)), Padding(where, (0, 0, 1, 3)))
    else:
        typer.echo(f"{heading.plain}\n   {passage.plain}\n   {where.plain}\n")


def _few_lines(text: str) -> str:
    """Without blank lines at its ends and several in a row; the rest is cut after `LINES`."""
    lines = re.sub(r"\n[ \t]*\n[ \t\n]*", "\n\n", text.strip("\n")).split("\n")
    return "\n".join([*lines[:LINES], *(["…"] if len(lines) > LINES else [])])


def matches(text: str, query: str) -> list[tuple[int, int]]:
    """Where words of the query stand in the text, in any inflection that the index knows."""
    wanted = {number for group in terms.query_terms(HERE, query) for number in group}
    return [
        (start, end)
        for start, end, word in terms.places(text)
        if not wanted.isdisjoint(terms.place_terms(HERE, *word))
    ]


def excerpt(text: str, query: str) -> str:
    """About `PASSAGE` characters of the text, where most of the query's words are together, and
    there the nearest to each other: rows of a table have most words in common."""
    if len(text) <= PASSAGE:
        return text
    spans = matches(text, query)

    def together(start: int) -> tuple[int, int]:
        ends: dict[str, int] = {}
        for a, b in spans:
            if start <= a and b <= start + PASSAGE * 3 // 4:
                ends.setdefault(text[a:b].casefold(), b)
        return len(ends), -max(ends.values(), default=0) + start

    first = max((start for start, _ in spans), key=together, default=0)
    start = max(0, min(first - PASSAGE // 8, len(text) - PASSAGE))
    end = min(start + PASSAGE, len(text))
    if start > 0:
        start = text.find(" ", start, first) + 1 or start
    if end < len(text):
        space = text.rfind(" ", first + 1, end + 1)
        end = space if space > start else end
    return ("… " if start > 0 else "") + text[start:end] + (" …" if end < len(text) else "")


# --- list and show -----------------------------------------------------------------------------


def list_documents(
    tag: Tags = None,
    status: Annotated[
        str | None,
        typer.Option(
            help="Only queued, processing, done or failed.", autocompletion=_complete.statuses
        ),
    ] = None,
    archive: Annotated[
        str | None,
        typer.Option(
            metavar="ID",
            help="Only the files of this archive or mail.",
            autocompletion=_complete.archives,
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=1100, help="Documents on a page.")] = 20,
    page: Annotated[int, typer.Option(min=1, help="Which page.")] = 1,
    as_json: AsJson = False,
    url: Url = None,
    key: ApiKey = None,
) -> None:
    """List documents, the newest first.

    Example: recollect list --status failed --limit 50
    """
    service = open_service(url, key)
    query = {
        "containerTags": tag,
        "status": status,
        "archiveId": archive,
        "limit": limit,
        "page": page,
    }
    if as_json:
        echo_json(service.send("POST", "/v3/documents/list", query))
        return
    found, total = service.page(**query)
    if found:
        table(
            ["id", "status", "title", "tags", "added", "source"],
            [
                [
                    d.id,
                    _status(d),
                    _cut(d.title or "", 60),
                    _cut(", ".join(d.tags), 30),
                    age(d.created_at, datetime.now(UTC)),
                    d.source,
                ]
                for d in found
            ],
        )
    first = (page - 1) * limit + 1
    if not found:
        tell(
            "no documents" if total == 0 else f"no page {page}; in all {counted(total, 'document')}"
        )
    elif total > len(found):
        tell(f"{first}{TO}{first + len(found) - 1} of {total}; --page shows others")


def show(
    id: Annotated[str, typer.Argument(help="Id or customId.", autocompletion=_complete.documents)],
    text: Annotated[bool, typer.Option("--text", help="Print the extracted text alone.")] = False,
    as_of: AsOf = None,
    as_json: AsJson = False,
    url: Url = None,
    key: ApiKey = None,
) -> None:
    """Show a document: status, stage, attempts, timings, warnings, error, what was reused.

    Example: recollect show docs/guide.md --text
    """
    document = open_service(url, key).document(id, as_of)
    if as_json:
        echo_json(document)
    elif text:
        content = document.get("content") or ""
        # A pipe gets the text as it is, so that offsets into it hold.
        typer.echo(harmless(content) if console().is_terminal else content, nl=False)
    else:
        for name, value in _facts(document):
            typer.echo(f"{name:<10}{value}")


def versions(
    id: Annotated[str, typer.Argument(help="Id or customId.", autocompletion=_complete.documents)],
    as_json: AsJson = False,
    url: Url = None,
    key: ApiKey = None,
) -> None:
    """List the texts that a document has and had, as far as they are kept, the newest first.

    `show ID --text --as-of FROM` prints one. Settings say how many are kept.

    Example: recollect versions docs/guide.md
    """
    found = open_service(url, key).versions(id)
    if as_json:
        echo_json(found)
        return
    for one in found["versions"]:
        until = one["knownUntil"] or "now"
        typer.echo(
            f"{one['revision']:>5}  {one['knownFrom']} to {until:<24}  {one['characters']:>9,}"
            f"  {one_line(one['title'] or '')}"
        )
    if not found["versions"]:
        tell("it has no text yet")


def _before(count: int | None) -> str | None:
    return f"{count} document{'' if count == 1 else 's'} of its tag" if count else None


def _within(document: dict[str, Any]) -> str | None:
    """Where a file lay in the archive that it came out of."""
    archive = document.get("archiveId")
    return f"{archive} ({document.get('archivePath')})" if archive else None


def _facts(document: dict[str, Any]) -> Iterable[tuple[str, str]]:
    one = DocumentRow.of(document)
    waits = document["nextAttemptAt"]
    chunks, timings = document.get("chunks"), document["timings"]
    facts = [
        ("id", one.id),
        ("title", one.title),
        ("status", _status(one)),
        ("error", f"{one.error_message} ({one.error_code})" if one.error_message else None),
        ("attempts", document["attempts"]),
        ("next try", waits if one.error_message else None),
        ("before it", _before(document["queuedBefore"])),
        ("type", document["type"]),
        ("customId", one.custom_id),
        ("source", one.filepath or one.url),
        ("archive", _within(document)),
        ("files", document.get("members")),
        ("tags", ", ".join(one.tags)),
        ("metadata", json.dumps(document.get("metadata"), ensure_ascii=False)),
        ("revision", document["latestRevision"]),
        ("text", f"{len(document.get('content') or '')} characters"),
        (
            "chunks",
            f"{chunks['total']} ({chunks['reused']} reused, {chunks['embedded']} embedded,"
            f" {chunks['removed']} removed)"
            if chunks
            else None,
        ),
        (
            "timings",
            ", ".join(f"{stage} {timings[stage]:.0f} ms" for stage in timings),
        ),
        *(("warning", warning) for warning in document["warnings"]),
        ("added", document["createdAt"]),
        ("changed", document["updatedAt"]),
    ]
    return (
        (name, one_line(str(value))) for name, value in facts if value not in (None, "", "null")
    )


def _status(document: DocumentRow) -> str:
    more = document.stage
    if document.status == "done" and document.warnings:
        more = counted(len(document.warnings), "warning")
    return f"{document.status} ({more})" if more else document.status


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


# --- rm and retry ------------------------------------------------------------------------------


def rm(
    ids: Ids = None,
    tag: Annotated[
        str | None,
        typer.Option(help="With --all: everything in this tag.", autocompletion=_complete.tags),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="All documents of --tag.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    as_json: AsJson = False,
    url: Url = None,
    key: ApiKey = None,
) -> None:
    """Delete documents for good: those named, or all of a tag.

    Example: recollect rm docs/guide.md · recollect rm --tag old --all
    """
    if bool(ids) == (tag is not None) or everything != (tag is not None):
        fail("name ids, or --tag TAG --all", code=2)
    service = open_service(url, key)
    if tag is not None:
        _, total = service.page(containerTags=[tag], limit=1)
        told = f"{'all ' * (total > 1)}{counted(total, 'document')} of tag {tag}"
        confirm(f"Delete {told}?", yes=yes or not total)
        selectors: list[dict[str, object]] = [{"containerTags": [tag]}]
    else:
        selectors = [{"ids": batch} for batch in _batches(ids or [])]
    deleted, errors = 0, list[dict[str, str]]()
    for selector in selectors:
        answer = service.send("DELETE", "/v3/documents/bulk", selector)
        deleted += answer["deletedCount"]
        if answer.get("errors"):
            errors += answer["errors"]
    if as_json:
        echo_json({"deleted": deleted, "errors": errors})
    else:
        typer.echo(f"deleted {deleted}")
        for error in errors:
            tell(f"error: {error['id']}: {error['error']}")
    if errors:
        raise typer.Exit(1)


def retry(
    ids: Ids = None,
    failed: Annotated[bool, typer.Option("--failed", help="All that failed.")] = False,
    as_json: AsJson = False,
    url: Url = None,
    key: ApiKey = None,
) -> None:
    """Process documents again with the content they have; URLs are fetched again.

    Example: recollect retry --failed
    """
    if bool(ids) == failed:
        fail("name ids, or --failed", code=2)
    service = open_service(url, key)
    bodies = [{"failed": True}] if failed else [{"ids": batch} for batch in _batches(ids or [])]
    queued = [
        id for body in bodies for id in service.send("POST", "/v3/documents/retry", body)["ids"]
    ]
    # What is under way is not queued twice and that is fine; what does not exist is a mistake.
    unknown = _unknown(service, [id for id in ids or [] if id not in queued])
    if as_json:
        echo_json({"queued": queued, "unknown": unknown})
    else:
        typer.echo(f"queued {len(queued)}")
        for id in unknown:
            tell(f"error: there is no document {id}")
    if unknown:
        raise typer.Exit(1)


def _unknown(service: Service, ids: Iterable[str]) -> list[str]:
    unknown: list[str] = []
    for id in ids:
        try:
            service.document(id)
        except NotFoundError:
            unknown.append(id)
    return unknown


def _batches(ids: Sequence[str]) -> list[list[str]]:
    distinct = list(dict.fromkeys(ids))
    return [distinct[i : i + BATCH] for i in range(0, len(distinct), BATCH)]


# --- status ------------------------------------------------------------------------------------


def status(
    watch: Annotated[bool, typer.Option("--watch", help="Until Ctrl-C.")] = False,
    as_json: AsJson = False,
    url: Url = None,
    key: ApiKey = None,
) -> None:
    """Show how many documents wait, are worked on, done, failed, and why.

    Example: recollect status --watch
    """
    service = open_service(url, key)
    state = _state(service)  # before anything is waited for: is there a service?
    if not watch:
        _print_status(state, as_json=as_json)
        return
    live = console().is_terminal and not as_json
    try:
        _watch(service.patient(), state, live=live, as_json=as_json)
    except KeyboardInterrupt:
        return


def _watch(service: Service, state: dict[str, Any], *, live: bool, as_json: bool) -> None:
    stop = threading.Event()
    with Live(console=console(), auto_refresh=False) if live else nullcontext() as screen:
        shown: dict[str, Any] = {}
        while not stop.is_set():
            if screen is not None:
                screen.update("\n".join(_lines(state)), refresh=True)
            elif state != shown:
                _print_status(state, as_json=as_json)
            shown = state
            stop.wait(REFRESH)
            state = _state(service)


def _state(service: Service) -> dict[str, Any]:
    counts = service.get("/v3/documents/counts")
    working, _ = service.page(status="processing", limit=NEWEST)
    waiting, _ = service.page(status="queued", sort="updatedAt", order="asc", limit=1)
    failed, _ = service.page(status="failed", sort="updatedAt", limit=NEWEST)
    return {
        "documents": {name: counts[name] for name in counts},
        "stages": dict(Counter(d.stage or "extracting" for d in working)),
        "oldestWaiting": {"id": waiting[0].id, "since": waiting[0].updated_at.isoformat()}
        if waiting
        else None,
        "failures": dict(Counter(d.error_code or "unknown" for d in failed).most_common()),
        "reason": service.trouble(),
    }


def _print_status(state: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        echo_json(state)
    else:
        typer.echo("\n".join(_lines(state)))


def _lines(state: dict[str, Any]) -> Iterator[str]:
    stages = ", ".join(f"{stage} {n}" for stage, n in state["stages"].items())
    waiting = state["oldestWaiting"]
    for name, count in state["documents"].items():
        note = ""
        if name == "queued" and waiting:
            since = age(datetime.fromisoformat(waiting["since"]), datetime.now(UTC))
            note = f"  the oldest for {since} ({waiting['id']})"
        elif name == "processing" and stages:
            note = f"  {stages}"
        yield f"{name:<11}{count:>7}{note}"
        if name == "failed":
            yield from (f"  {code:<24}{n:>7}" for code, n in state["failures"].items())
    if state["reason"]:
        yield f"The service cannot work: {one_line(state['reason'])}"
