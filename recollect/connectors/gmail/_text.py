"""A thread as Markdown: bodies, the mails attached to them, and the names of other attachments."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from recollect.connectors._json import as_list, as_object, as_word
from recollect.connectors.api import field_of
from recollect.connectors.base import Source
from recollect.connectors.gmail._charsets import CHARSET, bytes_of, decoded
from recollect.connectors.gmail._quotes import FORWARD, GAPS, without_quoted_markup, without_quotes
from recollect.connectors.gmail._threads import (
    MOST_PARTS,
    Mail,
    Thread,
    attachments_of,
    header_of,
    headers_of,
    kind_of,
    path_of,
    subject_of,
    time_of,
)
from recollect.errors import Permanent
from recollect.model import Blob, Extracted

DEEPEST = 5
"""mails in mails"""
LONGEST_BODY = 2_000_000
"""characters"""
LONGEST_TEXT = 10_000_000
"""characters of a thread"""
LARGEST_BODY = 10_000_000
"""bytes of a body that comes by itself"""
MOST_CALLS = 50
"""for such bodies of one thread"""
UNSTORABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


class ThreadReader:
    """One thread as Markdown: mail after mail, so that another one is added at the end.

    The first mail keeps what it quotes, since that is nowhere else in the document; the others
    quote what stands above them.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        self._calls = 0
        self._size = 0
        self._warnings: dict[str, None] = {}

    def read(self, thread: Thread) -> Extracted:
        blocks: list[str] = []
        for place, mail in enumerate(thread.mails):
            if self._size > LONGEST_TEXT:
                left = len(thread.mails) - place
                self._warn(f"The last {left} mails were left out: the thread is too long.")
                break
            blocks.append(self._mail(mail, quotes=place == 0))
            self._size += len(blocks[-1])
        # As all text leaves extraction: without what nobody sees.
        whole = Blob("\n\n".join(blocks).encode(), "text/markdown", "thread.md")
        text = self._source.read(whole).text
        return Extracted(text, title=subject_of(thread.mails[0]), warnings=list(self._warnings))

    def _mail(self, mail: Mail, *, quotes: bool) -> str:
        at = time_of(mail.at).strftime("%Y-%m-%d %H:%M UTC")
        sender = header_of(mail.headers, "from")[:200] or "Unknown"
        heads = [f"## {sender}, {at}", *_told(mail.headers, ("To", "Cc", "Subject"))]
        keep = quotes or FORWARD.match(header_of(mail.headers, "subject")) is not None
        blocks = ["\n".join(heads), *self._contents(mail.id, mail.payload, 0, keep=keep)]
        names = list(attachments_of(mail.payload))
        if names:
            blocks.append(f"Attachments ({len(names)}): {', '.join(names)}")
        return "\n\n".join(block for block in blocks if block)

    def _contents(
        self, mail: str, payload: Mapping[str, Any], depth: int, *, keep: bool
    ) -> Iterator[str]:
        """Bodies, then the mails that are attached."""
        bodies, inner, whole = _sorted_parts(payload)
        if not whole:
            self._warn("Parts of a mail were left out: it has too many of them.")
        for part in bodies:
            yield self._body(mail, part, keep=keep)
        for part in inner:
            if depth + 1 >= DEEPEST:
                self._warn("Mails within mails were left out: they are nested too deeply.")
                return
            headers = headers_of(part)
            heads = _told(headers, ("From", "To", "Cc", "Date", "Subject"))
            yield "\n".join(["### Attached mail", *heads])
            yield from self._contents(mail, part, depth + 1, keep=True)

    def _body(self, mail: str, part: Mapping[str, Any], *, keep: bool) -> str:
        data = self._data(mail, part)
        text = decoded(data, _charset(part))
        if len(text) > LONGEST_BODY:
            text = text[:LONGEST_BODY]
            self._warn("The end of a mail was left out: it is too long.")
        if kind_of(part) == "text/html":
            whole = "" if keep else self._html(without_quoted_markup(text))
            text = whole if whole.strip() else self._html(text)
        text = _tidy(text)
        return text if keep else without_quotes(text) or text

    def _html(self, markup: str) -> str:
        """All of it, as a mail: of a page only the main content would be read."""
        head = b"MIME-Version: 1.0\nContent-Type: text/html; charset=utf-8\n"
        body = UNSTORABLE.sub(" ", markup).encode()
        blob = Blob(head + b"Content-Transfer-Encoding: 8bit\n\n" + body, "message/rfc822", "m.eml")
        try:
            return self._source.read(blob).text
        except Permanent as error:
            self._warn(f"A mail in HTML could not be read: {error}")
            return ""

    def _data(self, mail: str, part: Mapping[str, Any]) -> bytes:
        """The bytes of a body; large ones come by themselves."""
        body = as_object(part.get("body"))
        encoded, id = as_word(body.get("data")), as_word(body.get("attachmentId"))
        if not encoded and id:
            size = body.get("size")
            if self._calls >= MOST_CALLS or (isinstance(size, int) and size > LARGEST_BODY):
                self._warn("The text of a mail was left out: it is too long.")
                return b""
            self._calls += 1
            path = path_of(f"messages/{quote(mail, safe='')}/attachments/{quote(id, safe='')}")
            encoded = field_of(self._source.api.get(path), "data", str)
        data = bytes_of(encoded)
        if data is None:
            self._warn("A part of a mail could not be decoded.")
            return b""
        return data

    def _warn(self, sentence: str) -> None:
        self._warnings[sentence] = None


def _sorted_parts(
    payload: Mapping[str, Any],
) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]], bool]:
    """Bodies, of alternatives the better one; the mails that are attached; whether that is all."""
    bodies: list[Mapping[str, Any]] = []
    inner: list[Mapping[str, Any]] = []
    pending = [payload]
    looked = 0
    while pending and looked < MOST_PARTS:
        part = pending.pop()
        looked += 1
        kind = kind_of(part)
        below = [as_object(one) for one in as_list(part.get("parts"))]
        if kind == "message/rfc822":
            inner += below
        elif kind == "multipart/alternative":
            pending += _better(below)
        elif below:
            pending += reversed(below)
        elif part is payload and kind.startswith("text/"):
            bodies.append(part)  # all of the mail, whatever it is called
        elif kind in ("text/plain", "text/html") and not _is_file(part):
            bodies.append(part)
    return bodies, inner, not pending


def _better(parts: Sequence[Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    """The plain text, unless it says nothing (`See the HTML version`)."""
    plain = [part for part in parts if kind_of(part) == "text/plain"]
    rich = [
        part
        for part in parts
        if kind_of(part) == "text/html" or kind_of(part).startswith("multipart/")
    ]
    for part in plain:
        body = as_object(part.get("body"))
        # More than three words; what comes by itself is long.
        if "attachmentId" in body or len((bytes_of(as_word(body.get("data"))) or b"").split()) > 3:
            return [part]
    return rich[:1] or plain[:1] or parts[:1]


def _is_file(part: Mapping[str, Any]) -> bool:
    disposition = headers_of(part).get("content-disposition", "")
    named = as_word(part.get("filename")) != ""
    return named or disposition.strip().lower().startswith("attachment")


def _charset(part: Mapping[str, Any]) -> str | None:
    found = CHARSET.search(headers_of(part).get("content-type", ""))
    return found[1] if found else None


def _told(headers: Mapping[str, str], names: Iterable[str]) -> list[str]:
    return [f"{name}: {text}" for name in names if (text := header_of(headers, name.lower()))]


def _tidy(text: str) -> str:
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    lines = (line.rstrip() for line in UNSTORABLE.sub("", text).split("\n"))
    return GAPS.sub("\n\n", "\n".join(lines)).strip("\n")
