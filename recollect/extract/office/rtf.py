"""RTF: Markdown with lists and tables. Hidden text of it is left out, and what pages repeat."""

import codecs
import re
import string
import unicodedata
from urllib.parse import quote

from recollect.errors import Permanent
from recollect.extract import _magic
from recollect.extract.office import (
    _code_pages,
    _office,
    _powers,
    _rtf_equations,
    _rtf_labels,
    _rtf_signs,
)
from recollect.model import Blob, Extracted

MIME = "application/rtf"

_CODE_PAGE = re.compile(rb"\\ansicpg(\d{3,5})")
_MARK = re.compile(
    rb"\\(?!u-?\d|')(?:\*\\(?:footnote|annotation)(?![a-z])|[\\{}~_]|uc(\d)"
    rb"|(?:nestcell|emdash|endash|emspace|enspace|qmspace|[lr]d?(?:bl)?quote|bullet"
    rb"|page|sect|column|deleted|mac|xe|tcn?|(?:head|foot)er[lrf]?)(?![a-z])[ ]?)"
)
_MARK_OR_BRACE = re.compile(rb"[{}]|" + _MARK.pattern)
_SKIP = re.compile(rb"\\uc(\d)")
_CHARACTERS = {
    b"~": 0xA0, b"_": 0x2011, b"emspace": 0x2003, b"enspace": 0x2002, b"qmspace": 0x2005,
    b"endash": 0x2013, b"emdash": 0x2014, b"bullet": 0x2022,
    b"\\": 0x5C, b"{": 0x7B, b"}": 0x7D,
    b"lquote": 0x2018, b"rquote": 0x2019, b"ldblquote": 0x201C, b"rdblquote": 0x201D,
}  # fmt: skip
"""Of the first two xberg takes the sign for the character; of the others it drops the spaces, and
the rest within tables, whose rows it then no longer finds."""
_WORDS = {
    b"nestcell": b"tab", b"page": b"par", b"sect": b"par", b"column": b"par",
    b"deleted": b"v", b"mac": b"ansi\\ansicpg10000",
    b"xe": b"*\\xe", b"tc": b"*\\tc", b"tcn": b"*\\tcn",
    **dict.fromkeys((b"header", b"headerl", b"headerr", b"headerf"), b"*\\header"),
    **dict.fromkeys((b"footer", b"footerl", b"footerr", b"footerf"), b"*\\footer"),
}  # fmt: skip
"""What xberg does not know, in words that it does. It takes headers, footers and entries of
indexes for text."""
_OPTIONAL = re.compile(rb"\\[\\{}]|\{\s*+\\\*|\\\*(?=\\)")
"""what may be the mark of a group that readers may leave out; it is one at its beginning alone"""
_NUMBER_AHEAD = re.compile(rb"\\u-?\d{1,6}\Z")
_TWICE = re.compile(rb"\{\\nonesttables(?![a-z])(?:[^{}]|\{[^{}]*+\}|(?!))*+\}")
"""a cell within a cell once more, for readers that do not know such"""
_PAIR = re.compile(
    rb"\\u(-(?:10[0-2]|9[2-9])\d\d|5(?:5[3-9]|6[0-3])\d\d)[ ]?(?:\\'[0-9a-fA-F]{2}|[^\\{}\s]){0,2}"
    rb"\\u(-?\d{4,5})(?!\d)"
)
"""what may be a character beyond the first 65,536, in two halves"""
_CHARACTER = re.compile(rb"(?<!\\)\\u(\d{3,5})(?!\d)")
_UNCOMPOSED = re.compile(rb"\\u([89]\d{2,3})(?!\d)")
"""what may be another character in NFC: all such below U+D800 begin with these digits"""
_NUMBERED = re.compile(r"(?:\\u-?\d{1,6} ?(?:\?|(?:\\'[0-9a-fA-F]{2}){1,2})?)+")
_LINK = re.compile(r'\bHYPERLINK (?:\\+l )?"[^"\n]*" ?')
"""the instruction of a field, which xberg takes for text within notes"""
_BESIDE = re.compile(
    rb"\{\\\*\\(?:atn(?:ref|date|id|author)|bkmk(?:start|end)|datafield)(?![a-z])[^{}]*+\}"
)
"""what belongs to notes, marks and links; the same"""
_GOES_ON = re.compile(rb"\}(?<!\\\})(?=[\r\n]*+[^{}\s])")
"""the end of a group with text behind it, where xberg puts a space, as in `H{\\sub 2}O`"""
_HEADING = re.compile(rb"\{\\s(\d{1,5})\\[^{};]* [Hh]eading ([1-9]);\}")
"""a style of headings, in the list of styles"""
_STYLED = re.compile(rb"(?<![\\{])\\s(\d{1,5})(?!\d)")
_OUTLINE = b"\\outlinelevel"
_ADDRESS = re.compile(
    rb'(\\fldinst(?![a-z])[^"}]{0,500}?\bHYPERLINK)((?:\s|\\\\[a-z]|"[^"{}]*"|(?!))++)'
)
_ARGUMENT = re.compile(rb'(?:\\\\([a-z])\s*)?"([^"]*)"')
_HIDING = re.compile(rb"[{}]|\\(?:v(\d*)(?![a-z])|plain(?![a-z]))|(\\(?:[\\{}]|u-?\d{1,7}[ ]?))")
_HIDING_TEXT = re.compile(
    _HIDING.pattern + rb"|(\\'[0-9a-fA-F]{2}|[^\\{}]++)|\\[a-z]++(?:-?\d++)?[ ]?"
)
_IN_NOTES = (b"{\\footnote", b"{\\annotation")
_ASCII = string.printable
_PICTURE = re.compile(r"^!\[image\]\(image_\d+\.\w+\)$", re.MULTILINE)


def extract(blob: Blob) -> Extracted:
    if not _magic.RTF.match(blob.data):
        raise Permanent("it is damaged or not what it says (not RTF)")
    extracted = _office.read(_plain(blob.data), MIME)
    # xberg names pictures that do not exist.
    text = _PICTURE.sub("", extracted.text) if "![image]" in extracted.text else extracted.text
    text = _rtf_labels.placed(_LINK.sub("", text) if "HYPERLINK" in text else text)
    told = _rtf_labels.placed(extracted.title or "")
    title = _decoded(told, blob.data) if told else None
    return Extracted(text, title=title)


def _plain(data: bytes) -> bytes:
    """The same in words that xberg understands."""
    data = _TWICE.sub(b"", _unwrapped(data))
    if b"\\{\\*" in data or data.count(b"\\*") > data.count(b"{\\*"):
        data = _OPTIONAL.sub(_of_group, data)
    data = _powers.in_rtf(_composed(_rtf_signs.told(data)))
    known = _rtf_equations.in_rtf(_code_pages.in_unicode(data))
    known = _rtf_labels.told(_outlined(_BESIDE.sub(b"", known)))

    def addressed(link: re.Match[bytes]) -> bytes:
        """With nothing but where it leads, in ASCII: of the rest xberg makes a part of it."""
        told = dict(reversed(_ARGUMENT.findall(link[2])))
        if not told:
            return link[0]
        place = b"#" + told[b"l"] if b"l" in told else b""
        lead = (told.get(b"", b"") + place).translate(None, b"\r\n").decode("latin-1")
        return b'%s "%s" ' % (link[1], quote(_decoded(lead, data), safe=_ASCII).encode())

    if b"HYPERLINK" in known:
        known = _ADDRESS.sub(addressed, known)
    known = _in_known_words(_PAIR.sub(_joined, known))
    return _without_hidden(_GOES_ON.sub(b"}{}", known))


def _in_known_words(data: bytes) -> bytes:
    # How many characters stand behind each `\\u` for readers that do not know it, by group.
    skips = [1]

    def plainly(mark: re.Match[bytes]) -> bytes:
        written = mark[0]
        word = written[1:].rstrip(b" ")
        if written == b"{":
            skips.append(skips[-1])
        elif written == b"}":
            if len(skips) > 1:
                skips.pop()
        elif mark[1]:
            skips[-1] = int(mark[1])
        elif word.startswith(b"*"):  # for readers that do not know it
            return written[2:]
        elif word in _WORDS:
            return written.replace(word, _WORDS[word])
        elif word in _CHARACTERS:
            return b"\\u%d%s" % (_CHARACTERS[word], b"?" * skips[-1] or b" ")
        return written

    # Where it is one everywhere, as mostly, groups do not matter, and to find them takes long.
    marks = _MARK_OR_BRACE if {*_SKIP.findall(data)} - {b"1"} else _MARK
    return marks.sub(plainly, data)


def _unwrapped(data: bytes) -> bytes:
    """Without ends of lines between control words, which say nothing and may part a character from
    its bytes."""
    lines = data.splitlines(keepends=True)
    for at, line in enumerate(lines[:-1]):
        text = line.rstrip(b"\r\n")
        if _NUMBER_AHEAD.search(text[-10:]):
            lines[at] = text + b" "
        elif lines[at + 1].startswith(b"\\") and not text.endswith(b"\\"):
            lines[at] = text
    return b"".join(lines)


def _of_group(mark: re.Match[bytes]) -> bytes:
    return b"" if mark[0] == b"\\*" else mark[0]


def _composed(data: bytes) -> bytes:
    """With the characters by number that are another one in NFC as that, as for `_xml.composed`."""
    found: dict[bytes, bytes] = {}
    for number in set(_UNCOMPOSED.findall(data)):
        character = chr(int(number))
        other = unicodedata.normalize("NFC", character)
        if other != character and len(other) == 1:
            found[number] = b"\\u%d" % ord(other)
    return _CHARACTER.sub(lambda one: found.get(one[1], one[0]), data) if found else data


def _outlined(data: bytes) -> bytes:
    """With the levels of headings in their paragraphs: LibreOffice has them in styles alone."""
    levels = {style: int(level) - 1 for style, level in _HEADING.findall(data)}
    if not levels or _OUTLINE in data:
        return data

    def said(styled: re.Match[bytes]) -> bytes:
        level = levels.get(styled[1])
        return styled[0] if level is None else b"%s%s%d" % (styled[0], _OUTLINE, level)

    return _STYLED.sub(said, data)


def _without_hidden(data: bytes) -> bytes:
    """The same without hidden characters by number, which xberg shows; it hides the others, but for
    those of notes."""
    if b"\\v" not in data:
        return data
    hidden = [False]

    def shown(mark: re.Match[bytes]) -> bytes:
        written = mark[0]
        if written == b"{":
            hidden.append(hidden[-1])
        elif written == b"}":
            if len(hidden) > 1:
                hidden.pop()
        elif mark[1] is not None:
            hidden[-1] = mark[1] != b"0"
        elif written == b"\\plain":
            hidden[-1] = False
        elif hidden[-1] and mark.lastindex:
            return b""
        return written

    has_notes = any(note in data for note in _IN_NOTES)
    return (_HIDING_TEXT if has_notes else _HIDING).sub(shown, data)


def _joined(pair: re.Match[bytes]) -> bytes:
    high, low = (int(half) & 0xFFFF for half in pair.groups())
    if not (0xD800 <= high < 0xDC00 <= low < 0xE000):
        return pair[0]
    return b"\\u%d" % (0x10000 + ((high & 0x3FF) << 10) + (low & 0x3FF))


def _decoded(text: str, data: bytes) -> str:
    """A title or an address whose characters beyond ASCII still stand as `\\'e4` or `\\u228?`."""
    page = _CODE_PAGE.search(data)
    encoding = f"cp{page[1].decode()}" if page else "cp1252"
    try:
        codecs.lookup(encoding)
    except LookupError:
        encoding = "cp1252"
    text = _NUMBERED.sub(_counted, text)
    return re.sub(
        r"(?:\\'[0-9a-fA-F]{2}.?(?=\\')|\\'[0-9a-fA-F]{2})+",
        lambda run: _bytes(run[0]).decode(encoding, "replace"),
        text,
    )


def _counted(run: re.Match[str]) -> str:
    numbers = [int(number) for number in re.findall(r"\\u(-?\d+)", run[0])]
    text = "".join(
        [chr(number % 0x110000 if number >= 0 else number & 0xFFFF) for number in numbers]
    )
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def _bytes(run: str) -> bytes:
    return b"".join(
        bytes.fromhex(piece[2:]) if piece.startswith("\\'") else piece.encode()
        for piece in re.findall(r"\\'[0-9a-fA-F]{2}|.", run)
    )
