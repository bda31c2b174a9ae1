"""Reading HTTP answers: bounded bodies, and what a status means for what happens next."""

import json
import re
import unicodedata
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.message import Message
from email.utils import collapse_rfc2231_value, parsedate_to_datetime
from html import unescape
from typing import Any, cast
from urllib.parse import unquote

from recollect.errors import Permanent, Transient

PASSING = frozenset({202, 206, 408, 425, 429})
"""statuses that are worth another try; so are all of 500 to 599"""
LONGEST_WAIT = timedelta(hours=24)
"""a longer wait counts as a mistake, and becomes `LESSER_WAIT`"""
LESSER_WAIT = timedelta(hours=1)
NO_CODINGS = frozenset({"", "identity", "aws-chunked", "utf-8"})
"""said of bodies that are as they are; `aws-chunked` is how an object came into its store, and some
stores go on saying so"""
DISPOSITION = "content-disposition"
STEP = 256 * 1024
"""decoded bytes at a time"""
SNIFFED = 512
"""decoded bytes by which a kind is told"""

EXCERPT = 300
"""characters of a refusal that are passed on"""
_SAYS = frozenset({"detail", "error", "error_description", "message", "msg", "title"})
"""names of what is for people in the JSON of a refusal: of Google, Microsoft, GitHub, Notion,
OpenAI, FastAPI, OAuth (RFC 6749 5.2) and problem details (RFC 9457)"""
_MARKUP = re.compile(r"\s*<[!?a-zA-Z]")
_TAG = re.compile(r"<[^<>]*>?")
_TITLE = re.compile(r"<title[^<>]*>([^<]*)", re.IGNORECASE)


def said_in(data: bytes, *, hide: Iterable[str] = ()) -> str:
    """What a refusal says, on one line, as words for people where they can be told from its form;
    without `hide`, secrets that were sent with the call."""
    text = data[: 100 * EXCERPT].decode("utf-8-sig", errors="replace")
    if _MARKUP.match(text):
        title = _TITLE.search(text)
        text = unescape((title and title[1].strip()) or _TAG.sub(" ", text))
    else:
        with suppress(ValueError, RecursionError):
            text = ": ".join(dict.fromkeys(_sentences(json.loads(text)))) or text
    for secret in hide:
        text = text.replace(secret, "***")
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:EXCERPT]


def _sentences(told: Any) -> Iterator[str]:
    """What an object says comes before what is said inside of it."""
    fields = cast("dict[str, Any]", told) if isinstance(told, dict) else {}
    for name, value in fields.items():
        if name in _SAYS and isinstance(value, str):
            yield value.rstrip(" .")
    inner = cast("list[Any]", told) if isinstance(told, list) else fields.values()
    for value in inner:
        yield from _sentences(value)


def outcome(status: int, headers: Mapping[str, str], message: str) -> Transient | Permanent:
    """What an answer other than a success means."""
    if status in PASSING or status >= 500:
        after = retry_after(headers.get("retry-after"), told_time(headers))
        return Transient(message, code=f"http_{status}", after=after)
    return Permanent(message, code=f"http_{status}")


def retry_after(value: str | None, now: datetime) -> timedelta | None:
    """How long a Retry-After header asks us to wait (RFC 9110 10.2.3), `believable`. Some servers
    name parts of a second."""
    if value is None:
        return None
    value = value.strip()
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", value):
        wait = timedelta(seconds=float(value))
    else:
        try:
            date = parsedate_to_datetime(value)
        except (ValueError, OverflowError):
            return None
        wait = (date if date.tzinfo else date.replace(tzinfo=UTC)) - now
    return believable(wait)


def believable(wait: timedelta) -> timedelta:
    """How long someone asked us to wait, from nothing to a day; an hour if they asked for more."""
    return LESSER_WAIT if wait > LONGEST_WAIT else max(wait, timedelta())


def told_time(headers: Mapping[str, str]) -> datetime:
    """When this was answered, by the clock of who answered (RFC 9110 6.6.1): ours may be off."""
    try:
        told = parsedate_to_datetime(headers.get("date", ""))
        return told.astimezone(UTC) if told.tzinfo else told.replace(tzinfo=UTC)
    except (ValueError, OverflowError):
        return datetime.now(UTC)


def read_body(
    parts: Iterable[bytes],
    headers: Mapping[str, str],
    max_bytes: int,
    *,
    sniff: Callable[[bytes], None] | None = None,
    enough: int | None = None,
) -> bytes:
    """The decoded body. `max_bytes` bounds it both on the wire and decoded.

    `sniff` is shown the first 512 decoded bytes, or all if there are fewer, before more is read,
    and raises to stop. With `enough`, everything after that many decoded bytes is left unread.
    Raises Permanent for `too_large` and `unsupported_encoding`, Transient for a garbled body.
    """
    length = headers.get("content-length", "")
    told = length.isdecimal() and (len(length) > 18 or int(length) > max_bytes)
    if told and enough is None:
        raise too_large(max_bytes)
    codings = [word.strip().lower() for word in headers.get("content-encoding", "").split(",")]
    bounded = _bounded(parts, max_bytes)
    match [word for word in codings if word not in NO_CODINGS]:
        case []:
            decoded = bounded
        case ["gzip" | "x-gzip"]:
            decoded = _bounded(_unzip(bounded), max_bytes)
        case _:
            # We asked for gzip alone; stacked codings exist only to blow up.
            raise Permanent("the answer has an unknown encoding", code="unsupported_encoding")
    return _joined(decoded if sniff is None else _sniffed(decoded, sniff), enough)


def broken_off(host: str) -> Transient:
    """The server reset the connection, closed it too early, or sent what HTTP does not know."""
    return Transient(
        f"{host} gave no whole answer: it broke off the connection, or what it sent is not HTTP",
        code="bad_response",
    )


def too_large(max_bytes: int) -> Permanent:
    return Permanent(f"the answer is larger than {max_bytes:,} bytes", code="too_large")


def _bounded(parts: Iterable[bytes], max_bytes: int) -> Iterable[bytes]:
    left = max_bytes
    for part in parts:
        yield part[:left]  # first, for who has enough with it
        left -= len(part)
        if left < 0:
            raise too_large(max_bytes)


def _joined(parts: Iterable[bytes], enough: int | None) -> bytes:
    body = bytearray()  # not a list: a body may come in millions of tiny chunks
    for part in parts:
        body += part
        if enough is not None and len(body) >= enough:
            break
    return bytes(body[:enough])


def _sniffed(parts: Iterable[bytes], sniff: Callable[[bytes], None]) -> Iterable[bytes]:
    head, unseen = b"", True
    for part in parts:
        if unseen:
            head += part
            if len(head) < SNIFFED:
                continue
            sniff(head[:SNIFFED])
            unseen, part = False, head
        yield part
    if unseen:
        sniff(head)
        yield head


def _unzip(parts: Iterable[bytes]) -> Iterable[bytes]:
    """Undo gzip in small steps; several members may follow each other (RFC 1952 2.2)."""
    member = zlib.decompressobj(wbits=31)
    empty = True
    try:
        for part in parts:
            rest = part
            empty = empty and not part
            while rest:
                if member.eof:
                    rest = rest.lstrip(b"\0")
                    if not rest.startswith(b"\x1f"):
                        break  # padding, or rubbish that browsers ignore as well
                    member = zlib.decompressobj(wbits=31)
                yield member.decompress(rest, STEP)
                rest = member.unused_data if member.eof else member.unconsumed_tail
    except zlib.error as error:
        raise Transient("the answer is garbled", code="bad_response") from error
    if not member.eof and not empty:
        raise Transient("the answer was cut off", code="bad_response")


def join_headers(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Names in lower case, repeated fields joined by commas (RFC 9110 5.3), those of X-Robots-Tag
    by line ends: each may be for another robot, up to its end."""
    headers: dict[str, str] = {}
    for name, value in raw:
        key = name.decode("latin-1").lower()
        text = as_text(value)
        between = "\n" if key == "x-robots-tag" else ", "
        headers[key] = f"{headers[key]}{between}{text}" if key in headers else text
    return headers


def as_text(value: bytes) -> str:
    """Header bytes as what they were probably meant to be."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def mime_of(headers: Mapping[str, str]) -> str | None:
    """`text/html` of `Text/HTML; charset=x`."""
    essence = headers.get("content-type", "").partition(";")[0].strip().lower()
    return essence if re.fullmatch(r"[!-.0-~]+/[!-.0-~]+", essence) else None


def file_name(headers: Mapping[str, str], path: str) -> str | None:
    """A harmless file name: what the server calls it, else the last part of the path."""
    told = _told_name(headers[DISPOSITION]) if DISPOSITION in headers else ""
    return _harmless(told) or _harmless(unquote(path.rpartition("/")[2]))


def _told_name(value: str) -> str:
    disposition = Message()
    # Bounded because the parser of the standard library takes quadratic time.
    disposition[DISPOSITION] = value[:2_000]
    # The parser fails at what is wrongly encoded (`idna''x`) or wrongly numbered (`filename*0`
    # beside `filename*`): then no name was told.
    with suppress(TypeError, ValueError):
        # It gives extended values as tuples; its types do not tell.
        params: list[tuple[str, Any]] = disposition.get_params([], DISPOSITION)
        told = [value for name, value in params if name == "filename"]
        told.sort(key=lambda value: isinstance(value, str))  # RFC 6266 4.3: extended ones first
        return collapse_rfc2231_value(told[0]) if told else ""
    return ""


def _harmless(name: str) -> str | None:
    name = "".join(c for c in name if unicodedata.category(c)[0] != "C")
    name = re.split(r"[/\\]", name)[-1].strip(" .")
    if len(name) > 200:
        stem, dot, suffix = name.rpartition(".")
        suffix = dot + suffix if stem and len(suffix) <= 20 else ""
        name = name[: 200 - len(suffix)] + suffix
    return name or None
