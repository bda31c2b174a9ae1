"""DOCX in what xberg understands: it keeps one box of a group and drops what is another file within
it, counts notes of two kinds as one, breaks words with their reading aids, and joins those around
some breaks.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from xml.parsers import expat

from recollect.extract import _xml

_NEEDS = (
    *(b"footnoteReference", b"endnoteReference", b"commentReference", b"altChunk"),
    *(b"txbxContent", b"<w:ruby", b"<w:cr", b":ptab", b'"page"', b":chart", b":relIds"),
)
_LINK = re.compile(rb"""(<(?:\w+:)?hyperlink\b[^>]*?)\s[\w-]+:id=(?:"[^"]*"|'[^']*')""")
"""Its address is listed with the part of the notes, whose numbers mean others elsewhere."""
_COMMENT = "comment"
_REFERENCES = {f"{kind}Reference": kind for kind in ("footnote", "endnote", _COMMENT)}
_DRAWN = frozenset({"chart", "relIds"})
_OTHERS = frozenset({"AlternateContent", "Fallback", *_DRAWN})
"""whose names have a prefix of their own"""
_GONE = frozenset({"del", "moveFrom"})
_DELETED = "deleted"
_SEPARATORS = ("separator", "continuationSeparator", "continuationNotice")
_OPEN, _CLOSE = "\U0010fffc", "\U0010fffd"
_MARK = re.compile(f"{_OPEN}(\\d{{1,9}}){_CLOSE}")


@dataclass(frozen=True, slots=True)
class Plain:
    """The parts that changed, and what is still missing in the text that comes of them."""

    parts: Mapping[str, bytes]
    chunks: Sequence[str]

    def finished(self, text: str) -> str:
        if not self.chunks:
            return text
        # Each is said once: the file may have such marks of its own.
        said = {str(number): chunk.strip() for number, chunk in enumerate(self.chunks)}
        return _MARK.sub(lambda mark: said.pop(mark[1], ""), text)


def plain(
    main: str,
    notes: Mapping[str, str],
    sources: Mapping[str, bytes],
    read_chunk: Callable[[str], str],
) -> Plain:
    """`sources` are parts by name, in UTF-8: `main`, and `notes` by kind (`footnote` …).

    `read_chunk` gives the text of another file within it, by the id of its relation.
    """
    source = sources[main]
    if not any(need in source for need in _NEEDS):
        return Plain({}, ())
    known = {kind: _Notes(kind, sources[part]) for kind, part in notes.items()}
    rewriting = _Rewriting(source, known, read_chunk)
    parts = {part: known[kind].without() for kind, part in notes.items()}
    return Plain(parts | {main: rewriting.whole}, rewriting.chunks)


def _in_one_line(markdown: str) -> str:
    """Without the signs of a table, as it stands in a cell."""
    return " ".join(markdown.replace("|", " ").replace(" --- ", " ").split())


def _is_of_page(attributes: Mapping[str, str]) -> bool:
    return _xml.plain(attributes).get("type") == "page"


def _prefix(name: str) -> bytes:
    return name[: name.rfind(":") + 1].encode()


@dataclass(slots=True)
class _Note:
    start: int
    end: int = 0
    label_at: int | None = None
    """where its first paragraph begins, if it begins with one"""
    label: str = ""
    """once it is told, or `_DELETED`"""


class _Notes:
    """Footnotes, endnotes or comments, by their ids."""

    def __init__(self, kind: str, source: bytes) -> None:
        self.by_id: dict[str, _Note] = {}
        self._kind, self._source = kind, source
        self._note: _Note | None = None
        self._depth = 0
        self._is_first = False
        self._name = self._root = b""
        self._prefix = b""
        self._parser = expat.ParserCreate()
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        _xml.walk(source, self._parser)

    def without(self) -> bytes:
        """The part with none of them."""
        return b"<%s%s/>" % (self._name, self._root)

    def written(self, note: _Note, label: str) -> list[bytes]:
        """Its paragraphs."""
        note.label = label
        w = self._prefix
        run = b'<%sr><%st xml:space="preserve">%s: </%st></%sr>' % (w, w, label.encode(), w, w)
        at = note.start if note.label_at is None else note.label_at
        pieces: list[bytes] = [self._source[note.start : at], run]
        if note.label_at is None:
            pieces = [b"<%sp>%s</%sp>" % (w, run, w)]
        pieces.append(self._source[at : note.end])
        return [_LINK.sub(rb"\1", one) for one in pieces]

    def together(self, written: Sequence[bytes]) -> list[bytes]:
        """What is written of several, with the namespaces of their part."""
        w = self._prefix
        start = b"<%ssdt%s><%ssdtContent>" % (w, self._root, w)
        return [start, *written, b"</%ssdtContent></%ssdt>" % (w, w)]

    def _start(self, name: str, attributes: Mapping[str, str]) -> None:
        here = self._parser.CurrentByteIndex
        tag, end = name.rpartition(":")[2], _xml.tag_end(self._source, here)
        is_empty = self._source.startswith(b"/>", end - 2)
        self._depth += 1
        if self._depth == 1:
            self._name, self._prefix = name.encode(), _prefix(name)
            ahead = here + 1 + len(self._name)
            self._root = self._source[ahead:end].removesuffix(b">").removesuffix(b"/")
        elif self._depth == 2 and tag == self._kind:
            values = _xml.plain(attributes)
            if values.get("type") not in _SEPARATORS:
                self._note = self.by_id[values.get("id", "")] = _Note(end)
                self._is_first = True
        elif self._note and self._is_first and self._depth == 3:
            self._is_first = tag == "p" and not is_empty
            self._note.label_at = end if self._is_first else None
        elif self._note and self._is_first and self._depth == 4:
            self._is_first = tag == "pPr" and not is_empty
            if tag == "pPr" and is_empty:
                self._note.label_at = end

    def _end(self, name: str) -> None:
        self._depth -= 1
        if self._note is None:
            return
        here = self._parser.CurrentByteIndex
        if self._depth == 3 and self._is_first:
            self._note.label_at = _xml.tag_end(self._source, here)
            self._is_first = False
        elif self._depth == 1:
            self._note.end = max(self._note.start, here)
            self._note = None


class _Rewriting:
    """One walk over the text. What is in a box comes behind the paragraph that it is in."""

    def __init__(
        self, source: bytes, notes: Mapping[str, _Notes], read_chunk: Callable[[str], str]
    ) -> None:
        self.chunks: list[str] = []
        self._source, self._notes, self._read_chunk = source, notes, read_chunk
        self._at = 0
        self._sinks: list[list[bytes]] = [[]]
        """the text, and that of each open box"""
        self._behind: list[list[bytes]] = []
        """of each open paragraph"""
        self._path: list[str] = []
        self._boxed: list[bool] = []
        """for each open choice of markup: whether it has a box"""
        self._cut = 0
        """how deep the element stands that is being left out; 0 for none"""
        self._ended = False
        """whether its tag ends itself"""
        self._counts = Counter[str]()
        self._told: dict[str, list[bytes]] = {kind: [] for kind in notes}
        self._prefix = b""
        self._parser = expat.ParserCreate()
        self._parser.StartElementHandler = self._start
        self._parser.EndElementHandler = self._end
        _xml.walk(source, self._parser)
        self._write(len(source))
        self.whole = b"".join(self._sinks[0])

    def _start(self, name: str, attributes: Mapping[str, str]) -> None:
        prefix, _, tag = name.rpartition(":")
        if not self._path:
            self._prefix = _prefix(name)
        is_own = prefix.encode() == self._prefix[:-1]
        here = self._parser.CurrentByteIndex
        is_known = is_own or tag in _OTHERS
        if tag in ("p", "txbxContent"):
            is_known &= not self._is_empty(here) and bool(tag == "p" or self._behind)
        self._path.append(tag if is_known else "")
        if self._cut:
            return
        match self._path[-1]:
            case "p":
                self._behind.append([])
            case "txbxContent":
                self._write(_xml.tag_end(self._source, here))
                self._sinks.append([])
                self._boxed[-1:] = [True] if self._boxed else []
            case "AlternateContent":
                self._boxed.append(False)
            case "Fallback" if self._boxed and self._boxed[-1]:
                self._replace(here, b"")
            case "rt" if "ruby" in self._path[-2:]:
                self._replace(here, b"")
            case "cr" | "ptab" | "br" if tag != "br" or _is_of_page(attributes):
                self._replace(here, b"<%sbr/>" % self._prefix)
            case other:
                self._start_reference(here, other, _xml.plain(attributes))

    def _start_reference(self, here: int, tag: str, values: Mapping[str, str]) -> None:
        """To what is in another part."""
        if tag in _REFERENCES:
            self._refer(here, _REFERENCES[tag], values.get("id", ""))
        elif tag == "altChunk":
            self._replace(here, self._chunk(self._read_chunk(values.get("id", ""))))
        elif tag in _DRAWN and self._behind and _GONE.isdisjoint(self._path):
            told = self._read_chunk(values.get("id") or values.get("dm", ""))
            told = _in_one_line(told) if "tc" in self._path else told
            self._behind[-1] += [self._chunk(told)] if told else []

    def _end(self, name: str) -> None:
        tag = self._path.pop()
        here = self._parser.CurrentByteIndex
        if self._cut:
            if len(self._path) < self._cut:
                self._cut = 0
                # Of a tag that ends itself the end is what stands behind it.
                self._at = here if self._ended else _xml.tag_end(self._source, here)
            return
        match tag:
            case "p":
                self._write(_xml.tag_end(self._source, here))
                self._sinks[-1] += self._behind.pop()
            case "txbxContent":
                self._write(here)
                self._behind[-1] += self._sinks.pop()
            case "AlternateContent":
                self._boxed.pop()
            case "body":
                self._write(here)
                for kind in self._told:
                    self._sinks[-1] += self._all_of(kind)
            case _:
                pass

    def _chunk(self, chunk: str) -> bytes:
        self.chunks.append(chunk)
        mark = self._text(f"{_OPEN}{len(self.chunks) - 1}{_CLOSE}")
        return b"<%sp>%s</%sp>" % (self._prefix, mark, self._prefix)

    def _refer(self, here: int, kind: str, number: str) -> None:
        note = self._notes[kind].by_id.get(number) if kind in self._notes else None
        mark = b""
        if note and "del" in self._path:
            note.label = note.label or _DELETED
        elif note:
            # A cross-reference refers to what is told already.
            told = note.label if note.label not in ("", _DELETED) else self._tell(kind, note)
            mark = self._text(told)
            if self._path[-2:-1] == ["r"]:  # what raises its sign is left behind
                mark = b"</%sr>%s<%sr>" % (self._prefix, mark, self._prefix)
        self._replace(here, mark)

    def _tell(self, kind: str, note: _Note) -> str:
        # Those that a reader sees are counted by themselves.
        name = kind if kind == _COMMENT else ""
        self._counts[name] += 1
        label = f"[^{name}{self._counts[name]}]"
        self._told[kind] += self._notes[kind].written(note, label)
        return label

    def _all_of(self, kind: str) -> list[bytes]:
        notes = self._notes[kind]
        for note in notes.by_id.values():
            if not note.label:
                self._tell(kind, note)
        return notes.together(self._told[kind])

    def _text(self, text: str) -> bytes:
        w = self._prefix
        return b"<%sr><%st>%s</%st></%sr>" % (w, w, text.encode(), w, w)

    def _replace(self, here: int, new: bytes) -> None:
        self._write(here)
        self._sinks[-1].append(new)
        self._cut = len(self._path)
        self._ended = self._is_empty(here)

    def _is_empty(self, here: int) -> bool:
        return self._source.startswith(b"/>", _xml.tag_end(self._source, here) - 2)

    def _write(self, end: int) -> None:
        self._sinks[-1].append(self._source[self._at : end])
        self._at = end
