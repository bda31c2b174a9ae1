"""XML as a stream of tags, without entities, DTDs from outside, or a tree in memory."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from xml.parsers import expat

from recollect.errors import Permanent

Start = Callable[[str, Mapping[str, str]], None]
"""Called with a tag's name and its attributes, without their prefixes: `w:t` is `t`.

Of `id` and `r:id` the one with the prefix counts."""
End = Callable[[str], None]
Text = Callable[[str], None]


def parse(pieces: Iterable[bytes], start: Start, end: End, text: Text) -> None:
    """Read a whole document."""
    for _ in steps(pieces, start, end, text):
        pass


def check(source: bytes) -> None:
    """Raise what `parse` raises, without a look at what it says: twenty times as fast."""
    parser = expat.ParserCreate()
    parser.EntityDeclHandler = _refuse
    try:
        parser.Parse(source, True)
    except (expat.ExpatError, ValueError) as error:
        raise Permanent(f"it is damaged: its XML is not well-formed ({error})") from error


def steps(pieces: Iterable[bytes], start: Start, end: End, text: Text) -> Iterator[None]:
    """Read it piece by piece, so that the caller can take along what each piece brought.

    Raises Permanent for what is not well-formed, or declares entities (which make bombs).
    """
    parser = expat.ParserCreate()
    parser.buffer_text = True
    plain = _PlainNames()

    def start_plain(name: str, attributes: dict[str, str]) -> None:
        if not attributes:
            start(plain[name], attributes)
            return
        found = {plain[name]: text for name, text in attributes.items()}
        if len(found) < len(attributes):
            ordered = sorted(attributes.items(), key=lambda item: ":" in item[0])
            found = {plain[name]: text for name, text in ordered}
        start(plain[name], found)

    parser.StartElementHandler = start_plain
    parser.EndElementHandler = lambda name: end(plain[name])
    parser.CharacterDataHandler = text
    parser.EntityDeclHandler = _refuse
    try:
        for piece in pieces:
            parser.Parse(piece, False)
            yield
        parser.Parse(b"", True)
        yield
    except (expat.ExpatError, ValueError) as error:
        raise Permanent(f"it is damaged: its XML is not well-formed ({error})") from error


class _PlainNames(dict[str, str]):
    """Names without their prefixes, each looked up once: documents have few of them."""

    def __missing__(self, name: str) -> str:
        plain = name[name.find(":") + 1 :]
        if len(self) < 1_000:
            self[name] = plain
        return plain


def _refuse(*declaration: object) -> None:
    raise Permanent("its XML declares entities, which no such document needs")
