"""PDF: Markdown page by page. Pages without usable text are read as pictures.

xberg finds headings and tables. It takes 10 to 20 ms a page, growing faster than the page
count; from LONG pages on pypdfium2 reads plain text at 1 ms a page.
"""

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from recollect.errors import Permanent
from recollect.extract._text import clean_line
from recollect.extract.image import _ocr
from recollect.extract.image._models import LONG_SIDE
from recollect.extract.kinds import NeedsHeavy
from recollect.extract.office import _xberg
from recollect.extract.pdf import _ligatures, _lines, _pdfium
from recollect.model import Blob, Extracted, Place

LONG = 500
_JUNK_TITLE = re.compile(
    r"untitled|\(anonymous\)|microsoft (word|powerpoint|excel) -|.*\.\w{2,4}$", re.I
)

_SOME_PICTURE = 0.02
_MANY_PATHS = 50
"""An empty page that draws so much may have letters as outlines."""
_GARBAGE = 0.2
"""Part of the characters that says nothing, from which on a text layer is not worth having."""
_MORE = 1.25
"""How much more a scan says than what is typed over it, or it is the ground of a slide."""
_WORD = re.compile(r"\w+")
_CODE = re.compile(r"\(cid:\d+\)")
_BULLET = re.compile(r"\s*\x7f\s*")
_ALPHANUMERIC = (string.ascii_letters + string.digits).encode()
_FROM_THE_RIGHT = re.compile(
    "[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff]"
)
_NAMED_PAGES = 20


@dataclass(frozen=True, slots=True)
class _Page:
    number: int
    text: str
    drawn: _pdfium.Drawn
    is_scan: bool
    """whatever is written over it"""

    @property
    def usable(self) -> str:
        """What its text layer is good for."""
        return "" if _is_garbage(self.text) else self.text

    @property
    def wants_ocr(self) -> bool:
        letters, garbage = _weigh(self.text)
        if self.is_scan or _outweighs(garbage, letters):
            return True
        if letters == 0:
            return self.drawn.pictures > _SOME_PICTURE or self.drawn.paths >= _MANY_PATHS
        return self.drawn.is_scan(letters)


@dataclass(frozen=True, slots=True)
class _Read:
    """What the file itself says, before any page is read as a picture."""

    pages: Sequence[_Page]
    title: str | None
    warnings: Sequence[str]
    data: bytes
    """with forms flattened"""


def extract(blob: Blob) -> Extracted:
    read = _read(blob.data)
    wanting = [page.number for page in read.pages if page.wants_ocr]
    if not wanting:
        return _put_together(read)
    if _ocr.is_installed():
        raise NeedsHeavy
    pages = [replace(page, text=page.usable) for page in read.pages]
    them = "it" if len(wanting) == 1 else "them"
    warning = f"{_named(wanting, 'a picture', 'pictures')}; to have {them} read: {_ocr.MEND}"
    return _put_together(replace(read, pages=pages), warning, unread=set(wanting))


def extract_heavy(blob: Blob) -> Extracted:
    read = _read(blob.data)
    budget = _ocr.TimeBudget()
    pages: list[_Page] = []
    left_out: list[int] = []
    with _pdfium.opened(read.data) as document:
        for page in read.pages:
            if not page.wants_ocr:
                pages.append(page)
            elif left_out or not budget.suffices():
                left_out.append(page.number)
                pages.append(replace(page, text=page.usable))
            else:
                image = _pdfium.render(document, page.number - 1, LONG_SIDE)
                seen = _ocr.read(image)
                if page.drawn.is_typed_over and _weigh(seen)[0] < _MORE * _weigh(page.text)[0]:
                    seen = ""
                pages.append(replace(page, text=_with_stamp(seen, page.usable)))
    unread = _named(left_out, "left unread", "left unread")
    warnings = [f"{unread}: reading pictures took too long."] if left_out else []
    return _put_together(replace(read, pages=pages), *warnings, unread=set(left_out))


def _with_stamp(seen: str, stamp: str) -> str:
    """A number or stamp that the file has as text is on the picture as well, if it can be read."""
    if set(_WORD.findall(stamp.lower())) <= set(_WORD.findall(seen.lower())):
        return seen
    return f"{seen}\n\n{stamp}" if seen else stamp


def _read(data: bytes) -> _Read:
    count = _xberg.count_pages(data)
    if count > _xberg.MAX_PAGES:
        raise Permanent(
            f"it has {count:,} pages; {_xberg.MAX_PAGES:,} are accepted", code="too_large"
        )
    data, scans = _pdfium.flattened(data)
    if count > LONG:
        pages = [
            _Page(index + 1, *page, index in scans)
            for index, page in enumerate(_pdfium.read_plainly(data))
        ]
        warning = f"Its {count:,} pages were read as plain text, without headings and tables."
        return _Read(pages, None, [warning], data)
    converted = _xberg.convert(data, _xberg.PDF)
    title = clean_line(converted.title or "")
    drawn = _pdfium.look(data, ["fi" in text for text in converted.pages])
    texts = _ligatures.undone(converted.pages, [look.text for look in drawn])
    # xberg has the words of a line as they stand from the left, and turns those in Latin letters.
    turned = _pdfium.read_some(
        data, [index for index, text in enumerate(texts) if _is_from_the_right(text)]
    )
    pages = [
        _Page(index + 1, turned.get(index) or _lines.joined(_bulleted(text)), look, index in scans)
        for index, (text, look) in enumerate(zip(texts, drawn, strict=True))
    ]
    warnings: list[str] = []
    if turned:
        which = "Page {} was" if len(turned) == 1 else "Pages {} were"
        listed = _listed([index + 1 for index in turned])
        warnings = [
            f"{which.format(listed)} read as plain text, without headings and tables:"
            " its script is written from the right."
        ]
    return _Read(pages, title if title and not _JUNK_TITLE.match(title) else None, warnings, data)


def _is_from_the_right(text: str) -> bool:
    """Whether most letters are of Hebrew, Arabic or another script written from the right."""
    if text.isascii():
        return False
    return 2 * len(_FROM_THE_RIGHT.findall(text)) > sum(map(str.isalpha, text))


def _bulleted(text: str) -> str:
    """In WinAnsi an unused code such as 0x7F is a bullet (ISO 32000-1, annex D.2, note 3)."""
    return _BULLET.sub("\n- ", text) if "\x7f" in text else text


def _put_together(read: _Read, *warnings: str, unread: Collection[int] = ()) -> Extracted:
    parts: list[str] = []
    places: list[Place] = []
    length = 0
    for page in read.pages:
        if part := page.text.strip():
            places.append(Place(length, {"page": page.number}))
            parts.append(part)
            length += len(part) + 2
    empty = [page.number for page in read.pages if not (page.text.strip() or page.number in unread)]
    return Extracted(
        "\n\n".join(parts),
        title=read.title,
        kind="pdf",
        warnings=[*read.warnings, *warnings, *_hidden(read.pages), *_without_text(empty, read)],
        places=places,
    )


def _weigh(text: str) -> tuple[int, int]:
    """Letters and digits; characters that stand for a letter that is not known."""
    garbage = len(_CODE.findall(text)) if "(cid:" in text else 0
    if garbage:
        text = _CODE.sub("", text)
    if text.isascii():
        return len(text) - len(text.encode().translate(None, _ALPHANUMERIC)), garbage
    counts = Counter(text)
    letters = sum(count for one, count in counts.items() if one.isalnum())
    garbage += sum(count for one, count in counts.items() if _says_nothing(one))
    return letters, garbage


def _says_nothing(character: str) -> bool:
    return character == "\ufffd" or unicodedata.category(character) in ("Co", "Cn")


def _is_garbage(text: str) -> bool:
    letters, garbage = _weigh(text)
    return _outweighs(garbage, letters)


def _outweighs(garbage: int, letters: int) -> bool:
    return garbage > _GARBAGE * (letters + garbage)


def _hidden(pages: Sequence[_Page]) -> Iterator[str]:
    counts: Counter[str] = Counter()
    numbers: list[int] = []
    for page in pages:
        if page.drawn.hidden:
            counts.update(page.drawn.hidden)
            numbers.append(page.number)
    if numbers:
        kinds = ", ".join(f"{how}: {count:,}" for how, count in sorted(counts.items()))
        where = f"page {numbers[0]}" if len(numbers) == 1 else f"pages {_listed(numbers)}"
        yield (
            f"It has text that no reader sees: {sum(counts.values()):,} characters"
            f" ({kinds}) on {where}."
        )


def _without_text(empty: Sequence[int], read: _Read) -> Iterator[str]:
    if empty and len(empty) == len(read.pages):
        yield "No page has any text."
    elif empty:
        yield (
            f"Page {_listed(empty)} has no text."
            if len(empty) == 1
            else (f"Pages {_listed(empty)} have no text.")
        )


def _named(numbers: Sequence[int], one: str, several: str) -> str:
    if len(numbers) == 1:
        return f"Page {numbers[0]} is {one}"
    return f"Pages {_listed(numbers)} are {several}"


def _listed(numbers: Sequence[int]) -> str:
    more = f" and {len(numbers) - _NAMED_PAGES:,} more" if len(numbers) > _NAMED_PAGES else ""
    return ", ".join(map(str, numbers[:_NAMED_PAGES])) + more
