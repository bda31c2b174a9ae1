"""XML as a stream of tags, without entities, DTDs from outside, or a tree in memory."""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping
from html.entities import html5
from xml.parsers import expat

from recollect.errors import Permanent

Start = Callable[[str, Mapping[str, str]], None]
"""Called with a tag's name and its attributes, without their prefixes: `w:t` is `t`.

Of `id` and `r:id` the one with the prefix counts."""
End = Callable[[str], None]
Text = Callable[[str], None]
# The others are of encodings that it names and expat does not know.
MALFORMED = (expat.ExpatError, ValueError, LookupError)
TAG = re.compile(rb"""<(?:[^"'>]++|"[^"]*"|'[^']*'|(?!))*+>""")
_REFERENCE = re.compile(r"&#(?:x([0-9A-Fa-f]{1,8})|([0-9]{1,8}));")


def parse(
    pieces: Iterable[bytes], start: Start, end: End | None = None, text: Text | None = None
) -> None:
    """Read a whole document."""
    for _ in steps(pieces, start, end, text):
        pass


def words_of(pieces: Iterable[bytes], name: str) -> str:
    """The text of the elements of that name, one after another, up to their first child or end.
    Raises as `steps`."""
    words: list[str] = []
    inside = False

    def start(tag: str, attributes: Mapping[str, str]) -> None:
        nonlocal inside
        inside = tag == name

    def end(tag: str) -> None:
        nonlocal inside
        inside = False

    def text(piece: str) -> None:
        if inside:
            words.append(piece)

    parse(pieces, start, end, text)
    return "".join(words)


def tag_end(source: bytes, at: int) -> int:
    """Where the tag ends that begins there."""
    tag = TAG.match(source, at)
    return tag.end() if tag else source.find(b">", at) + 1


def edited(source: bytes, edits: Iterable[tuple[int, int, bytes]]) -> bytes:
    """With other bytes from each start to its end."""
    pieces: list[bytes] = []
    at = 0
    for start, end, new in sorted(edits):
        pieces += source[at:start], new
        at = end
    return b"".join([*pieces, source[at:]])


def composed(source: bytes) -> bytes:
    """Normalized to NFC (UAX #15), without references to characters beyond ASCII. The same object
    where nothing changes, or where it is not in UTF-8.

    A single sign that is not in NFC, such as U+2126 for ohm, and xberg gives no Markdown at all.
    """
    if source.isascii() and b"&#" not in source:
        return source
    try:
        text = source.decode()
    except UnicodeDecodeError:
        return source
    told = _REFERENCE.sub(_beyond_ascii, text) if "&#" in text else text
    if told == text and unicodedata.is_normalized("NFC", text):
        return source
    return unicodedata.normalize("NFC", told).encode("utf-8", "surrogatepass")


def _beyond_ascii(reference: re.Match[str]) -> str:
    number = int(reference[1], 16) if reference[1] else int(reference[2])
    is_other = 127 < number < 0xD800 or 0xDFFF < number < 0x110000
    return chr(number) if is_other else reference[0]


def _malformed(error: Exception) -> Permanent:
    """What is said of broken XML, by the line where that shows."""
    line = f" (line {error.lineno:,})" if isinstance(error, expat.ExpatError) else ""
    return Permanent(f"it is damaged: its XML is not well-formed{line}")


def check(source: bytes) -> None:
    """Raise what `parse` raises, without a look at what it says: twenty times as fast."""
    walk(source, expat.ParserCreate())


def walk(source: bytes, parser: expat.XMLParserType) -> None:
    """Read it whole for handlers that look at the parser's `CurrentByteIndex`.

    Raises as `steps`.
    """
    parser.EntityDeclHandler = _refuse
    try:
        parser.Parse(source, True)
    except MALFORMED as error:
        raise _malformed(error) from error


def steps(
    pieces: Iterable[bytes], start: Start, end: End | None = None, text: Text | None = None
) -> Iterator[None]:
    """Read it piece by piece, so that the caller can collect what each piece brought.

    Raises Permanent for what is not well-formed, or declares entities (which make bombs).
    """

    def start_plain(name: str, attributes: Mapping[str, str]) -> None:
        start(_PLAIN[name], plain(attributes))

    def end_plain(name: str) -> None:
        if end is not None:
            end(_PLAIN[name])

    return written(pieces, start_plain, end_plain if end else None, text)


def written(
    pieces: Iterable[bytes], start: Start, end: End | None = None, text: Text | None = None
) -> Iterator[None]:
    """The same with names as they are written, for readers of so many tags that a call for each
    counts: they look them up in `Tags`, and have `plain` attributes made where they want any.
    """
    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler = start
    if end is not None:
        parser.EndElementHandler = end
    if text is not None:
        parser.CharacterDataHandler = text
        # Of a DTD that is not loaded: nearly always those of HTML, such as &eacute;.
        parser.SkippedEntityHandler = lambda name, is_parameter: (
            None if is_parameter else text(html5.get(f"{name};", f"&{name};"))
        )
    parser.EntityDeclHandler = _refuse
    try:
        for piece in pieces:
            parser.Parse(piece, False)
            yield
        parser.Parse(b"", True)
        yield
    except MALFORMED as error:
        raise _malformed(error) from error


class Tags(dict[str, str]):
    """Names without their prefixes by names as they are written, each looked up once.

    Those that are not `wanted` are empty.
    """

    def __init__(self, *wanted: str) -> None:
        super().__init__()
        self._wanted = frozenset(wanted)

    def __missing__(self, name: str) -> str:
        plain = name[name.find(":") + 1 :]
        if self._wanted and plain not in self._wanted:
            plain = ""
        if len(self) >= 1_000:  # documents have few, but for one whose author makes them up
            self.clear()
        self[name] = plain
        return plain


_PLAIN = Tags()


def plain(attributes: Mapping[str, str]) -> Mapping[str, str]:
    """Attributes by their names without prefixes."""
    if not attributes:
        return attributes
    found = {_PLAIN[name]: text for name, text in attributes.items()}
    if len(found) < len(attributes):
        ordered = sorted(attributes.items(), key=lambda item: ":" in item[0])
        found = {_PLAIN[name]: text for name, text in ordered}
    return found


def _refuse(*declaration: object) -> None:
    raise Permanent("its XML declares entities, which no such document needs")
