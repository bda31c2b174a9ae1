"""Mails: who wrote to whom, when, about what, then the message; its attachments by their names.
`unpack` hands over those that can be read.

One by one (EML, EMLX, MHTML), or those of a whole folder (mbox).
"""

import base64
import email
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from email.errors import HeaderParseError
from email.header import decode_header
from email.message import Message
from email.policy import Compat32
from email.utils import collapse_rfc2231_value, parsedate_to_datetime
from typing import Any, cast
from urllib.parse import unquote

from recollect.extract._charsets import decoded
from recollect.extract._registry import HEAD, detect
from recollect.extract._text import TEXT_BYTES, clean_line, decode, safe_name
from recollect.extract._unpacking import UNSUPPORTED, Keep, Skipped, Unpacking
from recollect.extract.archive.zip import Walk
from recollect.extract.web import _page, ical
from recollect.model import Blob, Extracted

MAX_PARTS = 1_000
MAX_NESTING = 5
_SIZE = re.compile(rb"(\d{1,9})[ \t]*\r?\n(?=[A-Za-z-]+:)")
_ENVELOPE = re.compile(
    rb"(?:\A|(?<=\n\n)|(?<=\n\r\n))From (?=[^\n]*+\n(?:[A-Za-z-]++:|>From ))[^\n]{0,320}?"
    rb"\b(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)\b[^\n]{1,20}\d\d:\d\d[^\n]*+\n"
)
"""It holds a date: no line of a letter begins a message."""
_SETTINGS = re.compile(rb"\s*<\?xml\b")
_ESCAPED = re.compile(rb"^>From ", re.MULTILINE)
_REPORTS = frozenset({"message/delivery-status", "message/disposition-notification"})
"""What became of a message (RFC 3464, RFC 8098): headers only, in some groups."""
_INVITATION = "text/calendar"
_SHOWN_IN_PAGES = ("image/", "audio/", "video/", "application/pdf")
_SHOWN = ("From", "To", "Cc", "Date", "Subject")
_SIGNATURES = frozenset(
    {
        "application/pkcs7-signature",
        "application/x-pkcs7-signature",
        "application/pgp-signature",
        "application/pgp-keys",
    }
)
"""and the keys that programs send along with them"""
_UNMARKED = frozenset({"text/markdown", "application/csv"})
"""What texts and tables are detected as: their charset is told beside them alone, so that they are
handed over in UTF-8."""
_LOCKED = b"-----BEGIN PGP MESSAGE-----"


class _Part(Message):
    """One whose parameters break nothing: Python fails on some that do not follow RFC 2231."""

    def get_param(self, *args: Any, **named: Any) -> Any:
        try:
            value = super().get_param(*args, **named)
            return collapse_rfc2231_value(value) if isinstance(value, tuple) else value
        except (TypeError, ValueError):
            return named.get("failobj", args[1] if len(args) > 1 else None)


class _AsTheyCame(Compat32):
    """Bytes beyond ASCII in headers are lone surrogates, as `_words` takes them; Python's own makes
    each a U+FFFD."""

    message_factory = _Part

    def header_fetch_parse(self, name: str, value: str) -> str:
        return value


def extract(blob: Blob) -> Extracted:
    return _read(blob, None)


def unpack(blob: Blob, keep: Keep) -> Extracted:
    """The text; `keep` gets each attachment that can be read, those of archives as well."""
    files = Unpacking(keep)
    read = _read(blob, files)
    return replace(read, warnings=[*read.warnings, *files.warnings(rest=", and others")])


def _read(blob: Blob, files: Unpacking | None) -> Extracted:
    # RFC 5322 has ASCII lines; a message saved from a program may begin with a byte order mark.
    data = blob.data.removeprefix(b"\xef\xbb\xbf").lstrip()
    if size := _SIZE.match(data):  # Apple Mail: settings stand behind the message
        data = data[size.end() :]
        if _SETTINGS.match(data, int(size[1])):
            data = data[: int(size[1])]
    is_folder = _ENVELOPE.match(data) is not None
    starts = [found.start() for found in _ENVELOPE.finditer(data)] if is_folder else []
    if len(starts) < 2:
        message = _parse(data)
        reading = _Reading(files)
        text = reading.read(message, 0)
        title = _header(message, "Subject") or None
        return Extracted(text, title=title, warnings=reading.warnings())
    return _read_folder(data, starts, files)


def _read_folder(data: bytes, starts: Sequence[int], files: Unpacking | None) -> Extracted:
    """All messages of a folder (RFC 4155), each under its subject."""
    written: list[str] = []
    warnings: dict[str, None] = {}
    size = 0
    for start, end in zip(starts, [*starts[1:], len(data)], strict=True):
        body = _ESCAPED.sub(b"From ", data[start:end])
        message = _parse(body)
        subject = _header(message, "Subject") or "No subject"
        reading = _Reading(files, f"{safe_name(subject) or 'No subject'}/")
        text = f"## {subject}\n\n{reading.read(message, 0)}"
        written.append(text)
        warnings |= dict.fromkeys(reading.warnings())
        size += len(text) + 2
        if size > TEXT_BYTES:
            break
    return Extracted("\n\n".join(written), warnings=list(warnings))


class _Reading:
    """One message and those within it."""

    def __init__(self, files: Unpacking | None, above: str = "") -> None:
        """`above`: the folder of its attachments, with a slash at its end."""
        self._files = files
        self._above = above
        self._parts = 0
        self._size = 0
        self._hidden = 0
        self._left_out = False

    def warnings(self) -> list[str]:
        warnings = _page.hidden_warnings(self._hidden)
        if self._left_out:
            warnings.append("Parts of the message were left out: it has too many of them.")
        return warnings

    def read(self, message: Message, depth: int) -> str:
        headers = [f"{name}: {text}" for name in _SHOWN if (text := _header(message, name))]
        blocks = ["\n".join(headers)]
        attachments: list[str] = []
        inner: list[Message] = []
        bodies: list[str] = []
        invitations: list[str] = []
        unnamed = {id(one) for one in _enclosed_unnamed(message)}
        for part in self._contents(message):
            if part.get_content_type() == "message/rfc822":
                inner += _messages(part)
            elif part.get_content_type() in _REPORTS:
                bodies.append(_report(part))
            elif part.get_content_type() == _INVITATION and not _is_file(part):
                invitations.append(self._invitation(part))
            elif _is_body(part) or (part is message and _holds_words(part)):
                bodies.append(self._body(part))
            elif name := _file_name(part):
                attachments.append(name)
                if self._files is not None and (_is_enclosed(part) or id(part) in unnamed):
                    self._hand_over(self._files, part, name)
        blocks += [*bodies, *invitations]
        if attachments:
            blocks.append(f"Attachments: {', '.join(attachments)}")
        for one in inner:
            if depth + 1 >= MAX_NESTING:
                self._left_out = True
                break
            blocks.append(f"## Attached message\n\n{self.read(one, depth + 1)}")
        return "\n\n".join(block for block in blocks if block.strip())

    def _hand_over(self, files: Unpacking, part: Message, name: str) -> None:
        data = _data(part)
        try:
            files.check_size(len(data))
            path = files.free(self._above + name.replace("/", "-"))
            files.check_path(path)
            if data.lstrip().startswith(_LOCKED):
                raise Skipped("it is encrypted")
            found = detect(data[:HEAD], name=path, mime=None)
            if found is None:
                raise Skipped(UNSUPPORTED)
            if found.mime in _UNMARKED and (charset := part.get_content_charset()):
                data = decoded(data, charset).encode()
            files.unpacked += len(data)
            Walk(files).offer(path, data, found, 0)
        except Skipped as reason:
            files.skip(str(reason))

    def _contents(self, message: Message) -> Iterator[Message]:
        """Parts that hold something; of alternatives the plain text, if it says anything."""
        pending = [message]
        while pending:
            part = pending.pop()
            self._parts += 1
            if self._parts > MAX_PARTS or self._size > TEXT_BYTES:
                self._left_out = True
                return
            kind = part.get_content_type()
            if not part.is_multipart() or kind == "message/rfc822" or kind in _REPORTS:
                yield part
            elif kind == "multipart/alternative":
                chosen = _choose(_payloads(part))
                # Apple Mail puts attachments into the alternative that has markup.
                others = [one for one in _payloads(part) if one not in chosen]
                yield from filter(_is_beside_text, _leaves(others))
                pending += chosen
            else:
                # A file of a Mac comes second, behind what its Finder keeps of it (RFC 1740).
                parts = _payloads(part)
                pending += reversed((kind == "multipart/appledouble" and parts[1:]) or parts)

    def _invitation(self, part: Message) -> str:
        text, _ = ical.read(_data(part), f"{_INVITATION}; charset={part.get_content_charset()}")
        self._size += len(text)
        return text or self._body(part)

    def _body(self, part: Message) -> str:
        data = _data(part)
        charset = part.get_content_charset()
        if part.get_content_type() == "text/html":
            mime = f"text/html; charset={charset}" if charset else "text/html"
            page = _page.read_letter(data, mime)
            self._hidden += page.hidden
            text = page.text
        else:
            text = decoded(data, charset)
        self._size += len(text)
        return text.strip()


def _parse(data: bytes) -> Message:
    return email.message_from_bytes(data, policy=_AsTheyCame())


def _data(part: Message) -> bytes:
    data = part.get_payload(decode=True)
    return data if isinstance(data, bytes) else b""


def _payloads(part: Message) -> list[Message]:
    if not part.is_multipart():
        return []
    payload = cast(list[object], part.get_payload())
    return [one for one in payload if isinstance(one, Message)]


def _leaves(parts: list[Message]) -> Iterator[Message]:
    pending = parts[::-1]
    while pending:
        part = pending.pop()
        if part.get_content_maintype() == "multipart":
            pending += reversed(_payloads(part))
        else:
            yield part


def _messages(part: Message) -> list[Message]:
    """The messages that a part wraps, also where it is encoded, which RFC 2046 5.2.1 forbids."""
    found = _payloads(part)
    if str(part.get("Content-Transfer-Encoding", "")).strip().lower() != "base64":
        return found
    try:
        bodies = [base64.b64decode(str(one.get_payload())) for one in found]
    except ValueError:
        return found
    return [_parse(body) for body in bodies]


def _report(part: Message) -> str:
    groups = [
        "\n".join(f"{name}: {clean_line(_words(str(value)))}" for name, value in one.raw_items())
        for one in _payloads(part)
    ]
    return "\n\n".join(groups)


def _choose(parts: list[Message]) -> list[Message]:
    for part in parts:
        if part.get_content_type() == "text/plain" and len(_data(part).split()) > 3:
            return [part]
    for part in parts:
        if part.get_content_type() == "text/html" or part.is_multipart():
            return [part]
    return parts[:1]


def _is_body(part: Message) -> bool:
    return part.get_content_type() in ("text/plain", "text/html") and not _is_file(part)


def _is_file(part: Message) -> bool:
    return _is_attached(part) or bool(part.get_filename())


def _is_attached(part: Message) -> bool:
    return part.get_content_disposition() == "attachment"


def _is_enclosed(part: Message) -> bool:
    """Whether an attachment is a file that was sent: no picture that is shown in the text, no
    part of a page that was saved as one file, no signature."""
    is_shown = part.get_content_maintype() == "image" and "Content-ID" in part
    is_file = _is_attached(part) or (bool(part.get_filename()) and not is_shown)
    return is_file and part.get_content_type() not in _SIGNATURES


def _enclosed_unnamed(message: Message) -> list[Message]:
    """What stands beside the text of a message, rather than in it (RFC 2046 5.1.3), or instead."""
    beside, pending = [message], [message]
    while pending:
        part = pending.pop()
        if part.get_content_type() == "multipart/mixed":
            beside += _payloads(part)
        if part.get_content_type() in ("multipart/mixed", "multipart/signed"):
            pending += _payloads(part)
    return [
        part
        for part in beside
        if not _is_file(part)
        and "Content-ID" not in part
        and part.get_content_type() not in _SIGNATURES
    ]


def _is_beside_text(part: Message) -> bool:
    """Whether a part of an alternative adds to its words; pictures mostly belong to its markup."""
    if part.get_content_maintype() == "image":
        return _is_attached(part)
    return _is_file(part) or part.get_content_type() in ("message/rfc822", _INVITATION)


def _holds_words(part: Message) -> bool:
    """Of the only part of a message, which is its text whatever that is called."""
    return part.get_content_maintype() in ("text", "multipart")


def _file_name(part: Message) -> str | None:
    """None for what a page that was saved as one file (RFC 2557) only looks like."""
    if name := safe_name(_words(part.get_filename() or "")):
        return name
    kind = part.get_content_type()
    address = _words(str(part.get("Content-Location", ""))).strip()
    if not address:
        return clean_line(f"unnamed ({kind})")
    if address.startswith("cid:") or not kind.startswith(_SHOWN_IN_PAGES):
        return None
    return safe_name(unquote(re.split("[?#]", address)[0]))


def _header(message: Message, name: str) -> str:
    values = [_words(str(value)) for value in message.get_all(name, [])]
    text = clean_line(", ".join(value for value in values if value))
    if name == "Date":
        try:
            return parsedate_to_datetime(text).isoformat(" ", "seconds")
        except (ValueError, TypeError, IndexError, OverflowError):
            return text
    return text


def _words(header: str) -> str:
    """The words of a header in which other scripts are encoded (RFC 2047), or sent as they are."""
    try:
        pieces = decode_header(header)
    except (HeaderParseError, ValueError):
        return header
    words = [
        piece if isinstance(piece, str) else decoded(piece, charset) for piece, charset in pieces
    ]
    text = "".join(words)
    # Raw bytes beyond ASCII reach Python's parser as lone surrogates.
    raw = text.encode("utf-8", "surrogateescape")
    return decode(raw) if any("\ud800" <= letter <= "\udfff" for letter in text) else text
