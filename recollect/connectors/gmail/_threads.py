"""What Gmail says about threads and mails: heads, labels, parts and their names.

Facts: developers.google.com/workspace/gmail/api (users.threads, users.messages, users.history).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.errors import HeaderParseError
from email.header import decode_header
from typing import Any
from urllib.parse import quote, urlencode

from recollect.connectors._json import as_list, as_object, as_word
from recollect.connectors.api import PROVIDER_UNAVAILABLE, Api, as_json, field_of
from recollect.connectors.gmail._charsets import decoded
from recollect.errors import NotFoundError, Transient

LEFT_OUT = frozenset({"TRASH", "SPAM", "DRAFT"})
"""labels of mails that are not read; a draft becomes another mail each time it is saved"""
QUIET = frozenset({"UNREAD"})
"""labels that are not told: they come and go with every look at the mailbox"""
CHANGED = ("messagesAdded", "messagesDeleted", "labelsAdded", "labelsRemoved")
NESTED = 6
"""levels of parts that are looked through for attachments"""
LONGEST_LINE = 1_000
"""characters of what is metadata"""
MOST_PARTS = 1_000
"""of one mail"""
UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Mail:
    id: str
    at: int
    """milliseconds since 1970, when Gmail got it"""
    labels: Sequence[str]
    payload: Mapping[str, Any]
    headers: Mapping[str, str]
    """names in lower case; the first of each"""


@dataclass(frozen=True, slots=True)
class Thread:
    id: str
    history: str
    mails: Sequence[Mail]
    """the oldest first; at least one"""


def path_of(tail: str, **params: str | Sequence[str] | None) -> str:
    given = {name: value for name, value in params.items() if value}
    query = f"?{urlencode(given, doseq=True)}" if given else ""
    return f"/gmail/v1/users/me/{tail}{query}"


def _parts_of(levels: int) -> str:
    """A mask of fields: parts without what is in them, that many levels deep."""
    below = f",{_parts_of(levels - 1)}" if levels > 1 else ""
    return f"parts(mimeType,filename,body/attachmentId{below})"


HEADS = (
    "id,historyId,messages(id,labelIds,internalDate,"
    f"payload(mimeType,filename,headers,body/attachmentId,{_parts_of(NESTED)}))"
)
"""All but the bodies. `format=metadata` costs as much, and leaves out attachments."""


def read_thread(api: Api, id: str, fields: str) -> Thread | None:
    """None: all of it is in the trash, spam, or not sent yet. Raises NotFoundError."""
    path = path_of(f"threads/{quote(id, safe='')}", format="full", fields=fields)
    answer = api.call("GET", path, accept=frozenset({404}))
    if answer.status == 404:
        raise NotFoundError("Not found", "Gmail does not find it.")
    body = as_json(answer)
    mails = [_mail(entry) for entry in as_list(field_of(body, "messages", list))]
    if not mails:
        raise Transient("Gmail answered with a thread without mails", code=PROVIDER_UNAVAILABLE)
    kept = [mail for mail in mails if LEFT_OUT.isdisjoint(mail.labels)]
    kept.sort(key=lambda mail: mail.at)
    if not kept:
        return None
    return Thread(field_of(body, "id", str), as_word(body.get("historyId")), kept)


def _mail(entry: Any) -> Mail:
    said = as_object(entry)
    payload = as_object(said.get("payload"))
    at = as_word(said.get("internalDate")) or "0"
    return Mail(
        id=field_of(entry, "id", str),
        at=-number_of(at[1:]) if at.startswith("-") else number_of(at),
        labels=[id for id in as_list(said.get("labelIds")) if isinstance(id, str)],
        payload=payload,
        headers=headers_of(payload),
    )


def headers_of(part: Mapping[str, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    for header in as_list(part.get("headers")):
        found.setdefault(said_by(header, "name").lower(), said_by(header, "value"))
    return found


def marks_of(body: Mapping[str, Any]) -> dict[str, str]:
    """Thread → historyId, in the order of the listing."""
    entries = as_list(body.get("threads"))
    return {field_of(one, "id", str): field_of(one, "historyId", str) for one in entries}


def touched_by(record: Any) -> Iterator[str]:
    """Threads of one record of the history."""
    said = as_object(record)
    kinds = [kind for kind in CHANGED if kind in said]
    for kind in kinds:
        for entry in as_list(said[kind]):
            labels = as_list(as_object(entry).get("labelIds"))
            if kind.startswith("labels") and QUIET.issuperset(labels):
                continue
            yield field_of(as_object(entry).get("message"), "threadId", str)
    if not kinds:
        for message in as_list(said.get("messages")):
            yield field_of(message, "threadId", str)


def left_by(record: Any) -> Iterator[str]:
    """Threads of which a mail was deleted or put away, by one record of the history."""
    said = as_object(record)
    labelled = [as_object(entry) for entry in as_list(said.get("labelsAdded"))]
    away = [one for one in labelled if not LEFT_OUT.isdisjoint(as_list(one.get("labelIds")))]
    for entry in (*as_list(said.get("messagesDeleted")), *away):
        yield field_of(as_object(entry).get("message"), "threadId", str)


def number_of(text: str) -> int:
    """Raises Transient for what is not a number."""
    if not re.fullmatch(r"[0-9]{1,30}", text):
        raise Transient(f"Gmail answered {text[:50]!r} for a number", code=PROVIDER_UNAVAILABLE)
    return int(text)


def time_of(milliseconds: int) -> datetime:
    # Mail of an import may claim any time, one before 1970 too.
    seconds = min(max(milliseconds / 1000, -62_135_596_800), 253_402_300_799)
    return datetime.fromtimestamp(seconds, UTC)


def said_by(entry: Any, name: str) -> str:
    return as_word(as_object(entry).get(name))


def line_of(text: str) -> str:
    """Without what cannot be stored; on one line."""
    return " ".join(UNPRINTABLE.sub(" ", text).split())[:LONGEST_LINE]


def subject_of(mail: Mail) -> str:
    return header_of(mail.headers, "subject") or "(no subject)"


def address_of(mail: Mail, name: str) -> str:
    return header_of(mail.headers, name)


def header_of(headers: Mapping[str, str], name: str) -> str:
    """Gmail decodes what it understands; the rest is still in the form of RFC 2047."""
    text = headers.get(name, "")[: 10 * LONGEST_LINE]
    if "=?" in text:
        try:
            text = "".join(_piece(*piece) for piece in decode_header(text))
        except (HeaderParseError, ValueError):
            return line_of(text)
    return line_of(text)


def _piece(piece: str | bytes, charset: str | None) -> str:
    if isinstance(piece, str):
        return piece
    # So Python passes on what stands between encoded words.
    return piece.decode("raw_unicode_escape") if charset is None else decoded(piece, charset)


def attachments_of(payload: Mapping[str, Any]) -> Iterator[str]:
    """Names of what is attached; pictures that an HTML body shows are part of it."""
    pending = [(payload, "")]
    looked = 0
    while pending and looked < MOST_PARTS:
        part, around = pending.pop()
        looked += 1
        kind, inner = kind_of(part), as_list(part.get("parts"))
        if kind.startswith("multipart/"):
            pending += [(as_object(one), kind) for one in reversed(inner)]
        elif _is_attachment(part, around):
            yield line_of(as_word(part.get("filename"))) or f"unnamed ({line_of(kind)})"


def _is_attachment(part: Mapping[str, Any], around: str) -> bool:
    kind = kind_of(part)
    if kind.startswith("image/") and around == "multipart/related":
        return False
    if as_word(part.get("filename")) or kind == "message/rfc822":
        return True
    return not kind.startswith("text/") and "attachmentId" in as_object(part.get("body"))


def kind_of(part: Mapping[str, Any]) -> str:
    return as_word(part.get("mimeType")).lower()
