"""JSON and JSON Lines: a line "path: value" for each value, a blank line between records.

The outermost arrays are walked as they are scanned, so that a long one never is in memory as a
whole: only its elements are.
"""

import re
from collections.abc import Callable, Generator, Iterator
from json import JSONDecodeError, JSONDecoder
from typing import Any, cast

from recollect.extract._text import TEXT_BYTES, decode
from recollect.model import Blob, Extracted

_LINED = (".jsonl", ".ndjson", "application/jsonl", "application/x-ndjson")
_BLANK = re.compile(r"[ \t\r\n]*")
_COMMA = re.compile(r"[ \t\r\n]*,[ \t\r\n]*+(?!\])")
_SCALARS_A_LINE = 100
# Numbers stay as they are written; Python would refuse those of more than 4,300 digits.
_DECODER = JSONDecoder(parse_float=str, parse_int=str, parse_constant=str)
# What `raw_decode` calls, for each of thousands of elements.
_SCAN = cast(Callable[[str, int], tuple[Any, int]], cast(Any, _DECODER).scan_once)


def extract(blob: Blob) -> Extracted:
    text = decode(blob.data, blob.mime).removeprefix("\ufeff")
    claims = ((blob.name or "").lower(), (blob.mime or "").partition(";")[0].strip().lower())
    if any(claim.endswith(_LINED) for claim in claims):
        return _read_lines(text)
    try:
        return Extracted(_joined(_records(text)), markdown=False)
    except JSONDecodeError as error:
        if error.msg == "Extra data":
            return _read_lines(text)
        warning = f"It is not valid JSON (line {error.lineno}); it was read as text."
        return Extracted(text, warnings=[warning], markdown=False)


def _read_lines(text: str) -> Extracted:
    broken = 0

    def records() -> Iterator[str]:
        nonlocal broken
        for line in _lines(text):
            try:
                yield "\n".join(_said("", _DECODER.decode(line)))
            except JSONDecodeError:
                broken += 1
                yield line

    joined = _joined(records())
    return Extracted(joined, warnings=_told(broken) if broken else [], markdown=False)


def _told(broken: int) -> list[str]:
    some = "1 line of it is" if broken == 1 else f"{broken:,} lines of it are"
    return [f"{some} not valid JSON, and kept as found."]


def _lines(text: str) -> Iterator[str]:
    start = 0
    while start < len(text):
        end = text.find("\n", start)
        end = len(text) if end < 0 else end
        if line := text[start:end].strip():
            yield line
        start = end + 1


def _joined(records: Iterator[str]) -> str:
    """No more than the sandbox hands on anyway."""
    written: list[str] = []
    size = 0
    for record in records:
        if record:
            written.append(record)
            size += len(record) + 2
            if size > TEXT_BYTES:
                break
    return "\n\n".join(written)


def _records(text: str) -> Iterator[str]:
    """The elements of an array, or the members of an object with the arrays in it taken apart."""
    at = _skip(text, 0)
    if text[at : at + 1] == "[":
        at = yield from _elements(text, at, "")
    elif text[at : at + 1] == "{":
        at = yield from _members(text, at)
    else:
        value, at = _value(text, at)
        yield "\n".join(_said("", value))
    if (at := _skip(text, at)) < len(text):
        raise JSONDecodeError("Extra data", text, at)


def _members(text: str, at: int) -> Generator[str, None, int]:
    """What comes before, between and after the arrays of an object is a record each."""
    plain: list[str] = []
    at = _skip(text, at + 1)
    while text[at : at + 1] != "}":
        if text[at : at + 1] != '"':
            raise JSONDecodeError("Expecting property name enclosed in double quotes", text, at)
        key, at = _value(text, at)
        at = _skip(text, _expect(text, _skip(text, at), ":"))
        name = str(key)
        if text[at : at + 1] == "[":
            if plain:
                yield "\n".join(plain)
                plain.clear()
            at = yield from _elements(text, at, name)
        else:
            value, at = _value(text, at)
            plain += _said(name, value)
        at = _next(text, at, "}")
    if plain:
        yield "\n".join(plain)
    return at + 1


def _elements(text: str, at: int, path: str) -> Generator[str, None, int]:
    """A record for each element of an array; values without parts share lines."""
    scalars: list[object] = []
    number = 0
    at = _skip(text, at + 1)
    more = text[at : at + 1] != "]"
    while more:
        try:
            value, at = _SCAN(text, at)
        except StopIteration as stop:
            raise _no_value(text, at) from stop
        if isinstance(value, (dict, list)):
            if scalars:
                yield "\n".join(_said(path, scalars))
                scalars = []
            yield "\n".join(_said(f"{path}[{number}]" if path else "", value))
        else:
            scalars.append(value)
            if len(scalars) == _SCALARS_A_LINE:
                yield "\n".join(_said(path, scalars))
                scalars = []
        number += 1
        # The rule, in one step; else it ends here, or something is wrong.
        if comma := _COMMA.match(text, at):
            at = comma.end()
        else:
            at = _next(text, at, "]")
            more = text[at : at + 1] != "]"
    yield "\n".join(_said(path, scalars))
    return at + 1


def _value(text: str, at: int) -> tuple[Any, int]:
    try:
        return _SCAN(text, at)
    except StopIteration as stop:
        raise _no_value(text, at) from stop


def _no_value(text: str, at: int) -> JSONDecodeError:
    return JSONDecodeError("Expecting value", text, at)


def _skip(text: str, at: int) -> int:
    blank = _BLANK.match(text, at)
    return blank.end() if blank else at


def _expect(text: str, at: int, sign: str) -> int:
    if text[at : at + 1] != sign:
        raise JSONDecodeError(f"Expecting '{sign}' delimiter", text, at)
    return at + 1


def _next(text: str, at: int, closing: str) -> int:
    """Where the next element is, or the end of them all."""
    at = _skip(text, at)
    if text[at : at + 1] == closing:
        return at
    at = _skip(text, _expect(text, at, ","))
    if text[at : at + 1] == closing:
        raise JSONDecodeError("Illegal trailing comma", text, at)
    return at


def _said(path: str, value: Any) -> list[str]:
    """A line for each value in it."""
    lines: list[str] = []
    _say(lines.append, path, value)
    return lines


def _say(line: Callable[[str], None], path: str, value: Any) -> None:
    # One list for all levels: generators within generators take twice as long.
    if isinstance(value, dict):
        ahead = f"{path}." if path else ""
        for key, part in cast("dict[str, Any]", value).items():
            if isinstance(part, str):
                text = part.strip()
            elif isinstance(part, (dict, list)):
                _say(line, ahead + key, part)
                continue
            else:
                text = _scalar(part)
            if text:
                line(f"{ahead}{key}: {text}" if ahead or key else text)
    elif isinstance(value, list):
        parts = cast("list[Any]", value)
        if any(isinstance(part, (dict, list)) for part in parts):
            for number, part in enumerate(parts):
                _say(line, f"{path}[{number}]", part)
        elif said := ", ".join([text for part in parts if (text := _scalar(part))]):
            line(f"{path}: {said}" if path else said)
    elif text := _scalar(value):
        line(f"{path}: {text}" if path else text)


def _scalar(value: object) -> str:
    """Nothing for nothing; strings as they are, lines and all."""
    if isinstance(value, str):
        return value.strip()
    if value is None:
        return ""
    return "true" if value else "false"
