"""Jupyter notebooks: cells in their order; Markdown as it is, code fenced, outputs as text.

HTML is read where no text stands beside it; pictures and other outputs are named. Nothing is run.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from json import JSONDecodeError, JSONDecoder
from typing import Any, cast

from recollect.errors import Permanent
from recollect.extract._text import TEXT_BYTES, clean_line, decode
from recollect.extract.text._outline import fenced
from recollect.extract.text.text import first_heading
from recollect.extract.web._page import read_letter
from recollect.model import Blob, Extracted, Place

OUTPUT_LENGTH = 20_000
"""Characters of the outputs of one cell; what a loop printed says little more."""
HTML_LENGTH = 1_000_000
"""Characters of HTML that are read; a chart that brings its own program has more."""
_OBJECT = re.compile(r"|<\S+ object(?: at 0x[0-9a-f]+)?>")
"""What stands for text beside HTML that a program made to be shown."""
_DECODER = JSONDecoder(parse_float=str, parse_int=str, parse_constant=str)
_COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_LEVELS = frozenset("123456")
_INLINE = re.compile(r"\(data:[^()\s]{100,}\)")
"""A picture within the Markdown."""


def extract(blob: Blob) -> Extracted:
    try:
        notebook: object = _DECODER.decode(decode(blob.data, blob.mime).removeprefix("\ufeff"))
    except JSONDecodeError as error:
        raise Permanent(f"it is not a notebook: not valid JSON (line {error.lineno})") from error
    cells = _cells(notebook)
    language = _language(_mapping(notebook))
    parts: list[str] = []
    places: list[Place] = []
    size = cut = 0
    title = None
    for number, cell in enumerate(cells, 1):
        source = _text(cell.get("source", cell.get("input")))
        if cell.get("cell_type") == "code":
            said, left = _outputs(_mappings(cell.get("outputs")))
            cut += left > 0
            part = "\n\n".join([*([fenced(source, language)] if source.strip() else ()), *said])
        else:
            part = _INLINE.sub("(a picture)", source)
            if cell.get("cell_type") == "heading":  # of nbformat 3
                level = str(cell.get("level"))
                part = f"{'#' * (int(level) if level in _LEVELS else 1)} {part}"
            title = title or first_heading(part)
        if part.strip():
            places.append(Place(size, {"cell": number}))
            parts.append(part)
            size += len(part) + 2
        if size > TEXT_BYTES:
            break
    told = _mapping(_mapping(notebook).get("metadata")).get("title")
    warning = f"Of {cut:,} cells only the first {OUTPUT_LENGTH:,} characters of output were kept."
    return Extracted(
        "\n\n".join(parts),
        title=clean_line(str(told)) if told else title,
        warnings=[warning] if cut else [],
        places=places,
    )


def _cells(notebook: object) -> Iterator[Mapping[str, Any]]:
    """Raises Permanent for what is not a notebook. Up to nbformat 3 cells lay in worksheets."""
    told = _mapping(notebook)
    if isinstance(told.get("cells"), list):
        return iter(_mappings(told["cells"]))
    if isinstance(told.get("worksheets"), list):
        sheets = _mappings(told["worksheets"])
        return (cell for sheet in sheets for cell in _mappings(sheet.get("cells")))
    raise Permanent("it is not a notebook: it has no cells")


def _language(notebook: Mapping[str, Any]) -> str:
    metadata = _mapping(notebook.get("metadata"))
    for about, name in (("language_info", "name"), ("kernelspec", "language")):
        if isinstance(found := _mapping(metadata.get(about)).get(name), str):
            return found
    return ""


def _outputs(outputs: Sequence[Mapping[str, Any]]) -> tuple[list[str], int]:
    """What a cell printed and gave back, and how many characters of it were left out."""
    said: list[str] = []
    room = OUTPUT_LENGTH
    left = 0
    for output in outputs:
        text, markdown, others = _output(output)
        kept = text[:room]
        room -= len(kept)
        left += len(text) - len(kept)
        if kept.strip():
            said.append(kept if markdown else fenced(_COLOURS.sub("", kept)))
        if others and room > 0:
            said.append(f"(output: {', '.join(others)})")
            room -= len(said[-1])
    return said, left


def _output(output: Mapping[str, Any]) -> tuple[str, bool, Sequence[str]]:
    """Text, whether it is Markdown, and the media types of anything else."""
    match output.get("output_type"):
        case "stream":
            return _text(output.get("text")), False, ()
        case "error" | "pyerr":
            lines = output.get("traceback")
            trace = (
                "\n".join(map(str, cast(list[object], lines))) if isinstance(lines, list) else ""
            )
            return trace or f"{output.get('ename')}: {output.get('evalue')}", False, ()
        case _:
            data = _mapping(output.get("data")) or {  # nbformat 3 has them beside each other
                _OLD.get(name, name): value for name, value in output.items() if name in _OLD
            }
            if shown := _shown(data):
                return shown, True, ()
            for mime in ("text/markdown", "text/plain", "text/latex"):
                if mime in data:
                    pictures = [clean_line(one)[:100] for one in data if one.startswith("image/")]
                    return _text(data[mime]), mime == "text/markdown", pictures[:10]
            return "", False, [clean_line(one)[:100] for one in data][:10]


def _shown(data: Mapping[str, Any]) -> str:
    """The text of HTML that no other text stands beside."""
    if "text/html" not in data or "text/markdown" in data:
        return ""
    html = _text(data["text/html"])
    if len(html) > HTML_LENGTH or not _OBJECT.fullmatch(_text(data.get("text/plain")).strip()):
        return ""
    try:
        return read_letter(html.encode(), "text/html; charset=utf-8").text
    except Permanent:  # markup that would choke a parser
        return ""


_OLD = {"text": "text/plain", "png": "image/png", "jpeg": "image/jpeg", "svg": "image/svg+xml"}


def _text(value: object) -> str:
    """A string, or the lines of one, as nbformat keeps them."""
    if isinstance(value, list):
        return "".join(one for one in cast(list[object], value) if isinstance(one, str))
    return value if isinstance(value, str) else ""


def _mapping(value: object) -> Mapping[str, Any]:
    return cast(Mapping[str, Any], value) if isinstance(value, dict) else {}


def _mappings(value: object) -> Sequence[Mapping[str, Any]]:
    values = cast(list[object], value) if isinstance(value, list) else []
    return [_mapping(one) for one in values]
