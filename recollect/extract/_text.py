"""What all kinds of text share: is it text, in which encoding, and how it is cleaned."""

import codecs
import contextlib
import functools
import re
import string
import unicodedata
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence

from recollect.model import codec_of

TEXT_BYTES = 20_000_000
"""Most UTF-8 bytes of text that one document may give."""
NO_TEXT = "No text was found in it."
"""The warning with a text that is empty."""

_BOMS = (
    # UTF-32 first: its little-endian mark begins with that of UTF-16.
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_CHARSET = re.compile(r";\s*charset\s*=\s*[\"']?([\w.:+-]+)", re.IGNORECASE)
_WESTERN = "cp1252"
_SEVEN_BIT = ("iso2022", "hz")
_SAMPLE = 65_536
_TELLING = 4_096
_NOT_ASCII = re.compile(rb"(?m)^[^\n\x80-\xff]*+[\x80-\xff][^\n]*+\n?")
_NOT_OF_TEXT = bytes(set(range(32)) - set(b"\t\n\v\f\r\b\x1a\x1b")) + b"\x7f"
_HIGH = bytes(range(128, 256))
_FOREIGN = (b"{\\rtf", b"%!PS", b"%PDF-", b"PK\x03\x04", b"\xd0\xcf\x11\xe0")

_NOT_IN_TEXT = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f\ufffe\uffff]")
_SURE = 0.2
_WIDE = frozenset({"euc_kr", "cp949", "johab", "euc_jp", "iso2022_jp", "big5", "big5hkscs"})
"""Encodings of several bytes a character that chardet tells apart even in a few words."""
# Kana, kanji of level 1, punctuation and full width (JIS X 0208 rows 1 to 5 and 16 to 47).
_DAILY_JAPANESE = re.compile(
    rb"(?:[\x81\x88-\x97][\x40-\x7e\x80-\xfc]|\x82[\x4f-\xf1]|\x83[\x40-\x96])+"
)
# Hanzi of level 1, punctuation and full width (GB 2312 rows 1 to 3 and 16 to 55).
_DAILY_CHINESE = re.compile(rb"[\xa1-\xa3\xb0-\xd7][\xa1-\xfe]")
_HIGH_LATIN_LETTERS = bytes(set(range(0xC0, 0x100)) - {0xD7, 0xF7})
_LATIN_LETTERS = string.ascii_letters.encode() + _HIGH_LATIN_LETTERS
_DAILY_LATIN = (
    b"\x80\x82\x84\x85\x8a\x8c\x8e\x91\x92\x93\x94\x95\x96\x97\x99\x9a\x9c\x9e\xa0\xa3\xa7\xa9\xab\xae\xb0"
    b"\xb2\xb3\xb4\xb5\xb7\xbb\xbc\xbd\xbe\xbf" + _HIGH_LATIN_LETTERS
)

_LINE_ENDS = re.compile("\r\n?|[\v\f\x85]")
_CONTROLS = re.compile("[\x00-\x08\x0e-\x1f\x7f-\x9f]")
_SURROGATES = re.compile("[\ud800-\udfff]")
_TRAILING = re.compile(r"(?<![ \t])[ \t]++(?=\n|\Z)")
_BLANK_LINES = re.compile(r"\n{5,}")
_BETWEEN = re.compile(r"[\w\n](?=[\w!-~])")
_WINDOW = 1 << 20
"""characters cleaned at once"""
# Invisible characters that can carry a text: twins of ASCII (only flags, U+1F3F4 …, may have them);
# two or more joiners or selectors in a row, where writing never needs more than one.
_TAGS = "(?<![\U0001f3f4\U000e0000-\U000e007f])[\U000e0000-\U000e007f]++"
_JOINED = "[\u200b-\u200d\u2060-\u2064\ufeff]"
_SELECTED = "[\ufe00-\ufe0f\U000e0100-\U000e01ef]"
_SELECTOR = re.compile(_SELECTED)
_SMUGGLED = re.compile(f"{_TAGS}|{_JOINED}{{2,}}+|{_SELECTED}{{2,}}+")
_INVISIBLE = re.compile(f"{_SMUGGLED.pattern}|[\u200b\u2060\ufeff]")
_UNSEEN = re.compile("[\u200b-\u200d\u2060-\u2064\ufe00-\ufe0f\ufeff\U000e0000-\U000e01ef]")
"""Without one of these nothing invisible is there; to look for what is takes ten times as long."""
_RARE = re.compile(f"[\r\v\f{_CONTROLS.pattern[1:-1]}\ud800-\udfff{_UNSEEN.pattern[1:-1]}]")
# The same in UTF-8, and bytes that are in what the pattern finds: looking for these takes no time.
_RARE_ASCII = bytes(set(range(32)) - set(b"\t\n")) + b"\x7f"
_C1 = ((b"\xc2",), re.compile(rb"\xc2[\x80-\x9f]"))
_UNSEEN_ENCODED = (
    ((b"\xe2", b"\xe2\x80"), re.compile(rb"\xe2\x80[\x8b-\x8d]")),
    ((b"\xe2", b"\xe2\x81"), re.compile(rb"\xe2\x81[\xa0-\xa4]")),
    ((b"\xef", b"\xef\xb8"), re.compile(rb"\xef\xb8[\x80-\x8f]")),
    ((b"\xef", b"\xef\xbb"), re.compile(rb"\xef\xbb\xbf")),
    ((b"\xf3", b"\xf3\xa0"), re.compile(rb"\xf3\xa0[\x80-\x87]")),
)


def _ends_blank(text: str) -> bool:
    """Whether a line does that another follows. One sign is found faster than two."""
    return " \n" in text or ("\t" in text and "\t\n" in text)


_PASSES: Sequence[tuple[re.Pattern[str], str, Callable[[str], object]]] = (
    (_LINE_ENDS, "\n", _RARE.search),
    (_CONTROLS, "", _RARE.search),
    (_SURROGATES, "\ufffd", _SURROGATES.search),
    (_INVISIBLE, "", _UNSEEN.search),
    (_TRAILING, "", lambda text: _ends_blank(text) or text[-1:] in (" ", "\t")),
    (_BLANK_LINES, "\n\n\n\n", lambda text: "\n" * 5 in text),
)
"""Pattern, what replaces it, and a quick look whether it can be there at all."""
_LEAST_DATA = 500
"""characters; keys, hashes and signatures, which people may look for, are shorter"""
_CAPITALS, _SMALL_LETTERS, _DIGITS = (
    signs.encode() for signs in (string.ascii_uppercase, string.ascii_lowercase, string.digits)
)
_SIGNS_OF_DATA = (string.ascii_letters + string.digits + "+/").encode()
_AS_DATA = bytes(ord("a") if byte in _SIGNS_OF_DATA else ord(" ") for byte in range(256))
_LINE_OF_DATA = b"a" * 60
_NAME_OF_DATA = "base64,"
"""ahead of it in addresses (RFC 2397)"""
_DATA = re.compile(
    r"(?<![A-Za-z0-9+/])[A-Za-z0-9+/]{60,}+(?:\s{1,40}[A-Za-z0-9+/]{60,}+|(?!))*+"
    # The last line is shorter; the signs of its end are in no other.
    r"(?:={1,2}|[ \t]{0,40}+(?:\r?\n[ \t]{0,40}+)?"
    r"[A-Za-z0-9+/]{1,75}(?:={1,2}|(?<=[A-Za-z0-9+/]{16}))"
    r"(?=[ \t]*(?:\r?\n|\Z)|[\"'<>)}\]]))?"
)
_LEFT_OUT = "\N{HORIZONTAL ELLIPSIS}"
_BIDI = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
_NAME_BYTES = 255
_ENDING = 10


@functools.lru_cache(1)
def looks_like_text(head: bytes) -> bool:
    """Whether these first bytes are text in some encoding. UTF-32 needs its mark."""
    if any(head.startswith(bom) for bom, _ in _BOMS):
        return True
    if head.lstrip()[:5].startswith(_FOREIGN):
        return False
    if b"\0" in head:
        return _unmarked_utf16(head) is not None
    return _count(head, _NOT_OF_TEXT) * 50 <= len(head)


def decode(data: bytes, mime: str | None = None) -> str:
    """Text of bytes: by byte order mark, else UTF-8, else as the type says, else by what they look
    like; as the type says, too, if that is a charset which writes other scripts in ASCII. Never
    fails."""
    for bom, encoding in _BOMS:
        if data.startswith(bom):
            return data.decode(encoding, "replace")
    if encoding := _unmarked_utf16(data[:_SAMPLE]):
        return data.decode(encoding, "replace")
    told = _told_encoding(mime)
    if told is not None and told.startswith(_SEVEN_BIT) and data.isascii():
        return data.decode(told, "replace")
    text, cut = codecs.utf_8_decode(data, "replace", False)
    # A slightly damaged file is still UTF-8: other encodings hardly ever make a valid sequence.
    # What stands undecoded at the end is a character that was cut in two.
    if not (doubtful := text.count("\ufffd")) or doubtful * 20 < _count(data[:cut], _HIGH):
        return text
    return data.decode(told or guess_encoding(data), "replace")


def _told_encoding(mime: str | None) -> str | None:
    """Not that of Western Europe, which servers say of whatever they have."""
    found = _CHARSET.search(mime or "")
    codec = codec_of(found[1]) if found else None
    return None if codec is None or codec.startswith(("utf", _WESTERN)) else codec


def guess_encoding(data: bytes) -> str:
    """The encoding of bytes that do not tell it: UTF-8 if possible, at worst windows-1252."""
    if encoding := _unmarked_utf16(data[:_SAMPLE]):
        return encoding
    with contextlib.suppress(UnicodeDecodeError):
        codecs.utf_8_decode(data, "strict", False)
        return "utf-8"
    import chardet  # noqa: PLC0415 - 8 MB of models that only the child needs

    sample = _telling(data)
    guess = chardet.detect(sample)
    try:
        encoding = codecs.lookup(guess["encoding"] or "cp1252").name
    except LookupError:
        encoding = "cp1252"
    if guess["confidence"] >= _SURE or encoding in _WIDE:
        return encoding
    # Of a few words its statistics know little; what the common encodings look like helps then.
    return _plain_guess(sample) or encoding


def _telling(data: bytes) -> bytes:
    """Enough of the lines that are not ASCII: only these tell encodings apart. In none of the
    encodings in question is a line end part of a character.
    """
    if len(data) <= _TELLING:
        return data
    found: list[bytes] = []
    size = 0
    for line in _NOT_ASCII.finditer(data):
        found.append(line[0][: _TELLING - size])
        size += len(found[-1])
        if size >= _TELLING:
            break
    return b"".join(found)


def _unmarked_utf16(head: bytes) -> str | None:
    """Which UTF-16 it is that has no mark; None if none. Every such text has an ASCII character."""
    if b"\0" not in head or len(head) < 2 or _is_stray(head):
        return None
    found: list[tuple[int, str]] = []
    for encoding, decoder in (
        ("utf-16-le", codecs.utf_16_le_decode),
        ("utf-16-be", codecs.utf_16_be_decode),
    ):
        with contextlib.suppress(UnicodeDecodeError):
            text = decoder(head, "strict", False)[0]
            if not _NOT_IN_TEXT.search(text) and not any(
                unicodedata.category(character) in ("Cn", "Co") for character in set(text)
            ):
                found.append((len(text.encode("ascii", "ignore")), encoding))
    # In the wrong order its spaces, line ends and ASCII letters become rare characters.
    (plain, encoding), (other, _) = sorted([*found, (0, ""), (0, "")], reverse=True)[:2]
    return encoding if plain > other else None


def _is_stray(head: bytes) -> bool:
    """Whether the zero bytes are few, and those around them UTF-8 in its own right."""
    rest = head.replace(b"\0", b"")
    if (len(head) - len(rest)) * 4 >= len(head):
        return False
    if _count(rest, _NOT_OF_TEXT) * 50 > len(rest):
        return False
    try:
        codecs.utf_8_decode(rest, "strict", False)
    except UnicodeDecodeError:
        return False
    return True


def _plain_guess(sample: bytes) -> str | None:
    """Shift-JIS, GB18030 or windows-1252 if nearly all of it is what these have in daily use."""
    high = _count(sample, _HIGH)
    if sum(map(len, _DAILY_JAPANESE.findall(sample))) >= high:
        return "cp932"
    if 2 * len(_DAILY_CHINESE.findall(sample)) >= 0.95 * high:
        return "gb18030"
    letters = _count(sample, _LATIN_LETTERS)
    daily = _count(sample, _DAILY_LATIN)
    return "cp1252" if daily >= 0.95 * high and high * 2 < letters else None


def _count(data: bytes, wanted: bytes) -> int:
    """How many of the bytes are among the wanted ones; a pattern takes thirty times as long."""
    return len(data) - len(data.translate(None, wanted))


def clean(text: str) -> str:
    """The one form in which text leaves extraction.

    `\\n` line ends, no control or invisible characters, no lone surrogates, no trailing spaces, at
    most three blank lines in a row. Otherwise as it was: no Unicode normalisation.
    """
    return "".join(map(_passed, _pieces(text))).strip("\n")


def _pieces(text: str) -> Iterator[str]:
    """Cut where nothing to clean can be, since the interpreter is held while a pattern looks."""
    start = at = 0
    while at < len(text):
        at += _WINDOW
        if cut := _BETWEEN.search(text, at, at + _WINDOW):
            yield text[start : cut.end()]
            start = at = cut.end()
    yield text[start:]


def _passed(text: str) -> str:
    for pattern, new, may_be_in in _PASSES if _has_rare(text) else _PASSES[-2:]:
        if may_be_in(text):
            text = _replaced(text, pattern, new)
    return text


def _replaced(text: str, pattern: re.Pattern[str], new: str) -> str:
    if pattern is _TRAILING:  # which looks at each character, where few are ends of lines
        return "\n".join([line.rstrip(" \t") for line in text.split("\n")])
    return pattern.sub(new, text)


def clean_placed(text: str, starts: Sequence[int]) -> tuple[str, Sequence[int]]:
    """The clean text, and where in it that begins what began at `starts` (in order)."""
    for pattern, new, may_be_in in _PASSES if _has_rare(text) else _PASSES[-2:]:
        if may_be_in(text):
            if starts:
                spans = (found.span() for found in pattern.finditer(text))
                starts = _after(spans, starts, len(new))
            text = _replaced(text, pattern, new)
    stripped = text.lstrip("\n")
    ahead = len(text) - len(stripped)
    cleaned = stripped.rstrip("\n")
    if starts and (ahead or starts[-1] > len(cleaned)):
        starts = [min(max(0, start - ahead), len(cleaned)) for start in starts]
    return cleaned, starts


def _has_rare(text: str) -> bool:
    """Whether `_RARE` finds something: ten times as fast where it does not, which is the rule."""
    try:
        encoded = text.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return True
    if len(encoded.translate(None, _RARE_ASCII)) < len(encoded):
        return True
    return len(encoded) > len(text) and _has_any(encoded, (_C1, *_UNSEEN_ENCODED))


def _has_any(encoded: bytes, patterns: Sequence[tuple[Sequence[bytes], re.Pattern[bytes]]]) -> bool:
    return any(
        all(first in encoded for first in firsts) and pattern.search(encoded)
        for firsts, pattern in patterns
    )


def _after(spans: Iterable[tuple[int, int]], starts: Sequence[int], size: int) -> Sequence[int]:
    """Where `starts` are once what is in each span is replaced by `size` characters."""
    moved = array("I")
    gone = index = 0
    for start, end in spans:
        while index < len(starts) and starts[index] <= start:
            moved.append(starts[index] - gone)
            index += 1
        gone += end - start - size
        while index < len(starts) and starts[index] < end:
            moved.append(end - gone)
            index += 1
    if not gone and not index:
        return starts
    moved.extend(start - gone for start in starts[index:])
    return moved


def without_data(text: str, starts: Sequence[int] = ()) -> tuple[str, Sequence[int], Sequence[str]]:
    """The text without what is written in base64 (RFC 4648), such as pictures within Markdown;
    where in it that begins what began at `starts` (in order); a warning, if there was any."""
    encoded = text.encode("utf-8", "surrogatepass")
    if _LINE_OF_DATA not in encoded.translate(_AS_DATA):  # at the speed of memory
        return text, starts, ()
    spans = [
        found.span()
        for found in _DATA.finditer(text)
        if _is_data(found[0], named=text.endswith(_NAME_OF_DATA, 0, found.start()))
    ]
    kept: list[str] = []
    at = 0
    for start, end in spans:
        kept += text[at:start], _LEFT_OUT
        at = end
    left_out = sum(end - start for start, end in spans)
    warnings = [f"Data in base64 was left out ({left_out:,} characters)."] if spans else []
    return "".join([*kept, text[at:]]), _after(spans, starts, len(_LEFT_OUT)), warnings


def _is_data(run: str, *, named: bool) -> bool:
    """Of random bytes each kind of letter comes often, and other signs seldom, but come. A sequence
    of a gene has no digits, numbers in hexadecimal have letters of one case, addresses many
    slashes, names that a program makes up no other signs."""
    data = run.encode()
    few = len(data) // 50
    return len(data) >= _LEAST_DATA and (
        named
        or (
            all(_count(data, signs) > few for signs in (_CAPITALS, _SMALL_LETTERS, _DIGITS))
            and 0 < _count(data, b"+/") < 4 * few
        )
    )


def count_smuggled(text: str) -> int:
    """Characters of text that no reader sees, such as a message in tag characters."""
    if text.isascii() or not _has_any(text.encode("utf-8", "surrogatepass"), _UNSEEN_ENCODED):
        return 0
    return sum(len(match[0]) for match in _SMUGGLED.finditer(text))


def clean_line(text: str) -> str:
    """The same for what must be one line, such as a title; at most 500 characters."""
    # What can be printed has nothing to clean, but for selectors.
    if text.isprintable() and (text.isascii() or not _SELECTOR.search(text)):
        return " ".join(text.split())[:500]
    return " ".join(clean(text).split())[:500]


def safe_name(name: str | None) -> str | None:
    """A file name as its sender may have it: shown and matched, never used as a path.

    The last component only, NFC, without control and bidirectional characters, at most 255 bytes;
    None if nothing is left.
    """
    last = re.split(r"[/\\]", unicodedata.normalize("NFC", name or ""))[-1]
    shown = clean_line(_BIDI.sub("", last)).strip()
    if len(shown.encode()) > _NAME_BYTES:
        stem, dot, ending = shown.rpartition(".")
        kept = f"{dot}{ending}" if stem and len(ending) <= _ENDING else ""
        stem = (stem if kept else shown).encode()[: _NAME_BYTES - len(kept.encode())]
        shown = stem.decode("utf-8", "ignore") + kept
    return shown if shown.strip(".") else None
