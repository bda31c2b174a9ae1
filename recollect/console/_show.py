"""How values look to people: ages, sizes, marked words."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

from recollect.index import terms
from recollect.model import Document, Key, OrgId, Stage, Status, SyncRun
from recollect.search import places

Piece = tuple[str, bool]
"""A stretch of text, and whether it is a word of the query."""
RULED_OUT = frozenset(
    {
        "robots", "noindex", "nofollow", "filtered", "deleted", "over_limit", "limit", "depth",
        "trap", "too_large",
    }
)  # fmt: skip
"""Verdicts of someone's rule, or of a limit."""


def marked(org: OrgId, query: str, text: str) -> list[Piece]:
    """The text cut into pieces; those are marked that the index takes for words of the query."""
    return marker(org, query)(text)


def marker(org: OrgId, query: str) -> Callable[[str], list[Piece]]:
    """`marked` for many texts, which learns each of their words once."""
    wanted = {number for group in terms.query_terms(org, query) for number in group}
    known: dict[terms.WrittenWord, bool] = {}

    def mark(text: str) -> list[Piece]:
        pieces: list[Piece] = []
        done = 0
        for start, end, word in terms.places(text) if wanted else ():
            if word not in known:
                known[word] = not wanted.isdisjoint(terms.place_terms(org, *word))
            if known[word] and end > done:
                start = max(start, done)
                if start > done:
                    pieces.append((text[done:start], False))
                pieces.append((text[start:end], True))
                done = end
        if done < len(text):
            pieces.append((text[done:], False))
        return pieces

    return mark


def excerpt(pieces: Sequence[Piece], before: int = 30, longest: int = 90) -> str:
    """A line of a text around the first word that is marked."""
    at = 0
    for words, is_marked in pieces:
        if is_marked:
            break
        at += len(words)
    else:
        at = 0
    text = "".join(words for words, _ in pieces)
    start = text.find(" ", at - before) + 1 if at > before else 0
    said = " ".join(text[start : start + longest].split())
    return f"{'… ' if start else ''}{said}{' …' if start + longest < len(text) else ''}"


def iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def full(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def hour(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%d %H:00")


def ago(moment: datetime) -> str:
    """`3 min ago`, `in 20 s`; older than a month: the day."""
    seconds = int((datetime.now(UTC) - moment).total_seconds())
    if abs(seconds) >= 30 * 86_400:
        return moment.astimezone(UTC).strftime("%Y-%m-%d")
    if abs(seconds) < 2:
        return "now"
    # What was said to be two hours ahead is so a moment later, too.
    return f"{_duration(seconds)} ago" if seconds > 0 else f"in {_duration(-seconds, nearest=True)}"


def _duration(seconds: int, *, nearest: bool = False) -> str:
    """In whole units that have passed, or the nearest number of them."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= size:
            return f"{(seconds + size // 2 * nearest) // size} {unit}"
    return f"{seconds} s"


def milliseconds(value: float) -> str:
    return f"{value / 1000:,.1f} s" if value >= 1000 else f"{value:,.0f} ms"


def sentence(said: str) -> str:
    """`name: at most 100 characters` and `no document 'x'` as sentences: the name of a field stays
    as it is written."""
    begins = said.partition(" ")[0]
    first = said if begins.endswith(":") or not begins.isalpha() else said[:1].upper() + said[1:]
    return first if first.endswith((".", "!", "?", "…")) else f"{first}."


def thousands(number: int) -> str:
    return f"{number:,}"


def size(bytes: int) -> str:
    """`812 kB`, `1.4 GB`: thousands, as disks are sold."""
    value, unit = bytes / 1000, "kB"
    for larger in ("MB", "GB", "TB"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{value:.0f} {unit}" if value >= 10 else f"{value:.1f} {unit}"


def counted(number: int, noun: str) -> str:
    """`1 document`, `1,204 documents`."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def link(url: str | None) -> str | None:
    """The URL if a browser should follow it: http and https only."""
    if url is None:
        return None
    try:
        return url if urlsplit(url).scheme in ("http", "https") else None
    except ValueError:
        return None


def stages(document: Document) -> list[tuple[Stage, str]]:
    """Each stage with what to show of it: `done`, `now`, `failed` or `open`."""
    order = list(Stage)
    if document.status is Status.PROCESSING:
        reached = order.index(document.stage or Stage.EXTRACTING)
        return [
            (stage, "done" if at < reached else "now" if at == reached else "open")
            for at, stage in enumerate(order)
        ]
    same = {Status.DONE: "done", Status.FAILED: "failed"}.get(document.status, "open")
    return [(stage, same) for stage in order]


def unfinished(documents: Sequence[Document]) -> int:
    return sum(document.status in (Status.QUEUED, Status.PROCESSING) for document in documents)


def verdict_class(verdict: str) -> str:
    """How a verdict is coloured: it is a document, waits, went wrong, is kept out by someone's rule
    or a limit, or by its kind.
    """
    match verdict:
        case "document":
            return "good"
        case "planned" | "undecided":
            return "open"
        case "error" | "blocked" | "missing":
            return "wrong"
        case _ if verdict in RULED_OUT:
            return "ruled"
        case _:
            return "out"


def words(code: str) -> str:
    """`over_limit` as people read it."""
    return code.replace("_", " ")


def total(verdicts: Mapping[str, int]) -> int:
    return sum(verdicts.values())


def span(run: SyncRun) -> str:
    """How long it took, or takes by now."""
    end = run.finished_at or datetime.now(UTC)
    return _duration(max(0, int((end - run.started_at).total_seconds())))


def rate(key: Key) -> str:
    """` · at most 60 requests per minute`; empty without a limit of its own."""
    if key.rate_limit is None or key.rate_window is None:
        return ""
    seconds = int(key.rate_window.total_seconds())
    each = "per minute" if seconds == 60 else f"in {_duration(seconds)}"
    return f" · at most {key.rate_limit:,} request{'s' * (key.rate_limit > 1)} {each}"


FILTERS: dict[str, Callable[..., Any]] = {
    "iso": iso,
    "full": full,
    "ago": ago,
    "hour": hour,
    "milliseconds": milliseconds,
    "counted": counted,
    "link": link,
    "stages": stages,
    "unfinished": unfinished,
    "thousands": thousands,
    "sentence": sentence,
    "size": size,
    "verdict_class": verdict_class,
    "words": words,
    "total": total,
    "span": span,
    "rate": rate,
    "place": places.in_words,
}
