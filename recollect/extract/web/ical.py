"""Calendars and address books (iCalendar, vCard): each event, task or contact under its name."""

import quopri
import re
from collections.abc import Iterator, Mapping
from datetime import date, timedelta
from itertools import chain
from typing import NamedTuple

from recollect.extract._text import TEXT_BYTES, clean_line, decode
from recollect.model import Blob, Extracted

_FOLD = re.compile(rb"(?:\r\n?|\n)[ \t]")
_LINE = re.compile(
    r'(?:[\w-]+\.)?([A-Za-z][\w-]*)((?:;(?:[^:;"]|"[^"]*"|(?!))*+|(?!))*+):(.*)', re.DOTALL
)
_PARAMETER = re.compile(r';([\w-]+)(?:=((?:[^;"]|"[^"]*"|(?!))*+))?')
_ESCAPED = re.compile(r"\\([\\,;:nN])")
_PIECES = re.compile(r"(?<!\\);")
_DATE = re.compile(r"\b(\d{4})(\d\d)(\d\d)(?:T(\d\d)(\d\d)(\d\d)?(Z)?)?(?!\d)")
_TOLD = {"VEVENT": "Event", "VTODO": "Task", "VJOURNAL": "Journal", "VCARD": "Contact"}
"""components that are read, and what one without a name is called"""
_NAMES = ("SUMMARY", "FN")
_LABELS = {
    "ADR": "Address", "BDAY": "Birthday", "DTEND": "End", "DTSTART": "Start", "N": "Name",
    "ORG": "Organization", "RDATE": "Also on", "EXDATE": "Not on", "RRULE": "Repeats",
    "TEL": "Phone",
}  # fmt: skip
_DATES = frozenset(
    {"DTSTART", "DTEND", "DUE", "COMPLETED", "RECURRENCE-ID", "RDATE", "EXDATE", "RRULE", "BDAY"}
)
_STRUCTURED = frozenset({"ADR", "N", "ORG", "RRULE"})
_PEOPLE = frozenset({"ORGANIZER", "ATTENDEE"})
_TYPED = frozenset({"ADR", "EMAIL", "IMPP", "TEL", "URL"})
_NO_TYPES = frozenset({"internet", "pref", "voice"})
_FOR_PROGRAMS = frozenset(
    {
        "CALSCALE", "CLASS", "CREATED", "DTSTAMP", "KEY", "LAST-MODIFIED", "LOGO", "METHOD",
        "PHOTO", "PRODID", "REV", "SEQUENCE", "SOUND", "SOURCE", "TRANSP", "UID", "VERSION",
    }
)  # fmt: skip


class _Property(NamedTuple):
    name: str
    parameters: Mapping[str, str]
    value: str
    """as it is written"""


def extract(blob: Blob) -> Extracted:
    text, title = read(blob.data, blob.mime)
    if text:
        return Extracted(text, title=title)
    return Extracted(
        decode(blob.data, blob.mime),
        warnings=["It holds no events or contacts; it was read as plain text."],
        markdown=False,
    )


def read(data: bytes, mime: str | None) -> tuple[str, str | None]:
    """The text of what it holds, empty if nothing, and the name of the calendar or of the only
    component in it."""
    title = None
    names: list[str] = []
    written: list[str] = []
    told: list[_Property] = []
    size = 0
    kind: str | None = None
    within = 0
    """how deep in parts of it, such as alarms"""

    def finish() -> None:
        nonlocal kind, size, within
        if kind and told:
            name, text = _component(kind, told)
            names.append(name)
            written.append(text)
            size += len(text) + 2
        told.clear()
        kind, within = None, 0

    for one in _properties(data, mime):
        begun = one.value.strip().upper()
        if one.name == "BEGIN" and begun in _TOLD:
            finish()  # of the one before, whose end may be missing
            kind = begun
        elif one.name == "BEGIN":
            within += 1
        elif one.name == "END" and begun == kind:
            finish()
        elif one.name == "END":
            within = max(0, within - 1)
        elif kind and not within:
            told.append(one)
        elif one.name == "X-WR-CALNAME":
            title = clean_line(_unescaped(one.value)) or None
        if size > TEXT_BYTES:
            break
    finish()
    return "\n\n".join(written), title or (names[0] if len(names) == 1 else None)


def _properties(data: bytes, mime: str | None) -> Iterator[_Property]:
    """Lines in one piece: they are folded between bytes (RFC 5545, 3.1), also within a letter."""
    if b"\0" in data[:100]:
        text = _FOLD.sub(b"", decode(data, mime).encode()).decode()
    else:
        text = decode(_FOLD.sub(b"", data), mime)
    lines = _lines(text.replace("\r\n", "\n").replace("\r", "\n"))
    found: re.Match[str] | None = None
    value: list[str] = []
    for line in chain(lines, ("END:",)):
        begun = _LINE.match(line)
        if not begun:
            value.append(line)  # of a value whose lines a program did not fold
            continue
        if found:
            yield _property(found, "\n".join(value).rstrip())
        found, value = begun, [begun[3]]
        if "QUOTED-PRINTABLE" in found[2].upper():
            while value[-1].endswith("="):
                value.append(next(lines, ""))


def _lines(text: str) -> Iterator[str]:
    """Without a list of all."""
    start = 0
    while start < len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        yield text[start:end]
        start = end + 1


def _property(found: re.Match[str], value: str) -> _Property:
    told: dict[str, list[str]] = {}
    for key, said in _PARAMETER.findall(found[2]):
        # Of vCard 2.1, which leaves out what a value is of.
        name, said = (key.upper(), said.replace('"', "")) if said else ("TYPE", key)
        told.setdefault(name, []).append(said)
    parameters = {name: ",".join(values) for name, values in told.items()}
    if "QUOTED-PRINTABLE" in found[2].upper():
        charset = f";charset={parameters.get('CHARSET', 'utf-8')}"
        value = decode(quopri.decodestring(value.encode()), charset)
    return _Property(found[1].upper(), parameters, value)


def _component(kind: str, told: list[_Property]) -> tuple[str, str]:
    """Its name, and its text: a line for all that it says of one thing."""
    heading = ""
    lines: dict[str, dict[str, None]] = {}
    start = next((one.value for one in told if one.name == "DTSTART"), "")
    for one in told:
        if _is_for_programs(one) or not (value := _value(one)):
            continue
        if one.name in _NAMES and not heading:
            heading = clean_line(value)
        elif one.name != "DTEND" or one.value != start:
            lines.setdefault(_label(one), {})[value] = None
    name = " ".join(lines.pop("Name", ()))
    if heading and not set(name.split()) <= set(heading.split()):
        lines = {"Name": {name: None}, **lines}
    heading = heading or name or _TOLD[kind]
    if lines.get("Start") == lines.get("End"):
        lines.pop("End", None)
    body = "\n".join(f"{label}: {'; '.join(values)}" for label, values in lines.items())
    return heading, f"## {heading}\n\n{body}".rstrip()


def _is_for_programs(one: _Property) -> bool:
    encoding = one.parameters.get("ENCODING", "").upper()
    return (
        one.name in _FOR_PROGRAMS
        or one.name.startswith(("X-AB", "X-ALT", "X-APPLE", "X-GOOGLE", "X-MICROSOFT", "X-MOZ"))
        or encoding in ("B", "BASE64")
        or "BASE64" in one.parameters.get("TYPE", "").upper()
        or one.value.startswith("data:")
    )


def _label(one: _Property) -> str:
    name = one.name.removeprefix("X-")
    label = _LABELS.get(name) or name.capitalize().replace("-", " ")
    if one.name not in _TYPED:
        return label
    types = [type.lower() for type in one.parameters.get("TYPE", "").split(",")]
    said = dict.fromkeys(type for type in types if type and type not in _NO_TYPES)
    return f"{label} ({', '.join(said)})" if said else label


def _value(one: _Property) -> str:
    value = one.value
    if one.name in _DATES:
        value = _DATE.sub(_moment, value)
        if one.name == "DTEND" and (day := re.fullmatch(r"\d{4}-\d\d-\d\d", value.strip())):
            value = _day_before(day[0])  # which is the first that it does not last
        zone = one.parameters.get("TZID", "").lstrip("/")
        value = f"{value} {zone}" if zone and ":" in value else value
    if one.name in _STRUCTURED:
        pieces = [" ".join(_unescaped(piece).split()) for piece in _PIECES.split(value)]
        if one.name == "N":  # family, given, further, ahead and behind (RFC 6350, 6.2.2)
            family, given, further, ahead, behind = [*pieces, *[""] * 5][:5]
            pieces = [" ".join(filter(None, (ahead, given, further, family, behind)))]
        return ", ".join(filter(None, pieces))
    value = _unescaped(value).strip()
    if one.name in _PEOPLE:
        address = re.sub("^mailto:", "", value, flags=re.IGNORECASE)
        name = one.parameters.get("CN", "").strip()
        return f"{name} <{address}>" if name and name != address else address
    return value


def _moment(found: re.Match[str]) -> str:
    year, month, day, hour, minute, second, utc = found.groups()
    if hour is None:
        return f"{year}-{month}-{day}"
    seconds = f":{second}" if second not in (None, "00") else ""
    return f"{year}-{month}-{day} {hour}:{minute}{seconds}{' UTC' if utc else ''}"


def _day_before(day: str) -> str:
    try:
        return (date.fromisoformat(day) - timedelta(days=1)).isoformat()
    except (ValueError, OverflowError):
        return day


def _unescaped(value: str) -> str:
    return _ESCAPED.sub(lambda sign: "\n" if sign[1] in "nN" else sign[1], value)
