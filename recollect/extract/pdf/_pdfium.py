"""The one seam to pypdfium2: what is drawn on a page, its plain text, and its picture."""

import ctypes
import io
import math
from collections import Counter
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import pypdfium2
import pypdfium2.raw

from recollect.errors import Permanent

try:
    from PIL import ImageChops
except ModuleNotFoundError:  # it comes with the engine that reads pictures
    ImageChops = None

if TYPE_CHECKING:
    from PIL import Image

# Its functions are made at run time and have no types.
pdfium = cast(Any, pypdfium2.raw)

_MAX_OBJECTS = 20_000
"""Of a page. What comes after them is not looked at."""
_MAX_DEPTH = 40
"""As deep as pdfium itself reads forms within forms."""
_TINY = 1.5
"""Points. Print of this height nobody reads."""
_WHITE = 250
_FEW_LETTERS = 20
_COVERED = 0.5
_EDGE = 0.1
"""A page with more of it under pictures is a scan with a stamp or a number, if it has fewer letters
or all of them in so much of its height and width, as "Scanned with …" and numbers of files are."""
_MOST_TYPED = 600
"""Characters that are typed over a scan at most: what is filled into a form, who signed it."""
_GLANCE = 1_000
"""Pixels of the side of the square on which it is told whether a page is a scan."""
_PAPER, _LIGHT, _SHADE = 0.7, 128, 24
"""Part of a scan that is paper, how bright that is at least, and by how much that differs."""
_LETTERS, _SHARP = 0.005, 50
"""Part of a scan at the edges of letters, and by how much brightness differs there."""
_PART = 0.02
"""of a page that a picture covers at least, unless it is a decoration"""
_MOST_PIXELS = 7_000
"""Pixels of the side of a square with as many as a page has at most."""
_FINEST = 20.0
"""Pixels per point at most: a page of a few points is not blown up to `side`."""


class Box(NamedTuple):
    """In points, y pointing up."""

    left: float
    bottom: float
    right: float
    top: float

    @property
    def area(self) -> float:
        return max(0.0, self.right - self.left) * max(0.0, self.top - self.bottom)

    def common(self, other: "Box") -> "Box":
        return Box(
            max(self.left, other.left),
            max(self.bottom, other.bottom),
            min(self.right, other.right),
            min(self.top, other.top),
        )

    def holds_middle_of(self, other: "Box") -> bool:
        x, y = (other.left + other.right) / 2, (other.bottom + other.top) / 2
        return self.left <= x <= self.right and self.bottom <= y <= self.top


class _Matrix(NamedTuple):
    a: float = 1
    b: float = 0
    c: float = 0
    d: float = 1
    e: float = 0
    f: float = 0

    def then(self, other: "_Matrix") -> "_Matrix":
        return _Matrix(
            self.a * other.a + self.b * other.c,
            self.a * other.b + self.b * other.d,
            self.c * other.a + self.d * other.c,
            self.c * other.b + self.d * other.d,
            self.e * other.a + self.f * other.c + other.e,
            self.e * other.b + self.f * other.d + other.f,
        )

    def move(self, box: Box) -> Box:
        corners = [(x, y) for x in (box.left, box.right) for y in (box.bottom, box.top)]
        xs = [self.a * x + self.c * y + self.e for x, y in corners]
        ys = [self.b * x + self.d * y + self.f for x, y in corners]
        return Box(min(xs), min(ys), max(xs), max(ys))


@dataclass(frozen=True, slots=True)
class Drawn:
    """What a page draws: the part of it under pictures, the number of paths, hidden characters.

    `hidden` counts them by the way in which they are hidden.
    """

    pictures: float = 0.0
    paths: int = 0
    hidden: Mapping[str, int] = field(default_factory=dict[str, int])
    text: str = ""
    """as it comes, if it was asked for"""
    at_edges: bool = False
    """whether all its text is"""
    is_typed_over: bool = False
    """whether all its text is at the edges or over the picture of a page of writing"""

    def is_scan(self, letters: int) -> bool:
        """Whether it is a picture, but for what is stamped on it or typed over it."""
        return self.pictures > _COVERED and (
            letters < _FEW_LETTERS or self.at_edges or self.is_typed_over
        )


@contextmanager
def opened(data: bytes) -> Generator[Any]:
    """A document, for the functions below. Raises Permanent: encrypted_file, unreadable_content."""
    try:
        document = pypdfium2.PdfDocument(data)
    except pypdfium2.PdfiumError as error:
        if getattr(error, "err_code", None) == pdfium.FPDF_ERR_PASSWORD:
            raise Permanent("it is protected by a password", code="encrypted_file") from error
        raise Permanent("it is damaged or not a PDF") from error
    try:
        yield document
    finally:
        document.close()


@contextmanager
def _page(document: Any, index: int) -> Generator[Any]:
    """Else every page of the document stays in memory."""
    page = document[index]
    try:
        yield page
    finally:
        page.close()


def flattened(data: bytes) -> tuple[bytes, frozenset[int]]:
    """The same with what is filled into forms, typed over a page or stamped on it as a part of the
    page, which is all that readers of text look at. Itself if there is nothing of it.

    Also the indexes of the pages that were scans before, by their own letters.
    """
    changed = False
    scans: set[int] = set()
    with suppress(Permanent, pypdfium2.PdfiumError), opened(data) as document:
        if document.get_formtype():
            document.init_forms()
        for index in range(len(document)):
            with suppress(pypdfium2.PdfiumError), _page(document, index) as page:
                if _has_writing(page):
                    if _is_scan(page):
                        scans.add(index)
                    done = pdfium.FPDFPage_Flatten(page, pdfium.FLAT_NORMALDISPLAY)
                    changed = changed or done == pdfium.FLATTEN_SUCCESS
        if changed:
            out = io.BytesIO()
            document.save(out)
            data = out.getvalue()
    return data, frozenset(scans)


def _has_writing(page: Any) -> bool:
    """Whether something is written over it."""
    for number in range(min(pdfium.FPDFPage_GetAnnotCount(page), _MAX_OBJECTS)):
        annotation = pdfium.FPDFPage_GetAnnot(page, number)
        kind = pdfium.FPDFAnnot_GetSubtype(annotation)
        pdfium.FPDFPage_CloseAnnot(annotation)
        if kind in (pdfium.FPDF_ANNOT_WIDGET, pdfium.FPDF_ANNOT_FREETEXT, pdfium.FPDF_ANNOT_STAMP):
            return True
    return False


def _is_scan(page: Any) -> bool:
    content = page.get_textpage()
    letters = content.count_chars()
    content.close()
    return _look(page).is_scan(letters)


def read_plainly(data: bytes) -> list[tuple[str, Drawn]]:
    """The text of each page as it comes, without headings and tables, and what the page draws.

    Raises Permanent: encrypted_file, unreadable_content.
    """
    pages: list[tuple[str, Drawn]] = []
    with opened(data) as document:
        for index in range(len(document)):
            try:
                with _page(document, index) as page:
                    content = page.get_textpage()
                    pages.append((content.get_text_range(), _look(page)))
                    content.close()
            except pypdfium2.PdfiumError:
                pages.append(("", Drawn()))
    return pages


def read_some(data: bytes, indexes: Iterable[int]) -> dict[int, str]:
    """The plain text of some pages, those left out that cannot be read."""
    texts: dict[int, str] = {}
    with suppress(Permanent), opened(data) as document:
        for index in indexes:
            with suppress(pypdfium2.PdfiumError), _page(document, index) as page:
                content = page.get_textpage()
                texts[index] = content.get_text_range()
                content.close()
    return texts


def look(data: bytes, texts: Sequence[bool]) -> list[Drawn]:
    """What each page draws, and its text where `texts` asks for it; nothing, for one that pypdfium2
    cannot read although others can."""
    drawn = [Drawn()] * len(texts)
    with suppress(Permanent), opened(data) as document:
        for index in range(min(len(texts), len(document))):
            # Not by pypdfium2's class of a page: to make one takes as long as to look at it.
            if page := pdfium.FPDF_LoadPage(document, index):
                try:
                    drawn[index] = _look(page)
                    if texts[index]:
                        drawn[index] = replace(drawn[index], text=_text(page))
                finally:
                    pdfium.FPDF_ClosePage(page)
    return drawn


def render(document: Any, index: int, side: int) -> "Image.Image":
    """A page as a reader sees it, turned as the file says, its longer side so many pixels; or more
    if the pictures on it have more, since a shot of a screen, or a plan, has small print.

    Raises Permanent if it cannot be drawn.
    """
    try:
        with _page(document, index) as page:
            short, long = sorted(max(1.0, points) for points in page.get_size())
            most = min(2 * side / min(long, 2 * short), _MOST_PIXELS / math.sqrt(long * short))
            scale = max(side / long, min(_resolution(page), most))
            bitmap = page.render(scale=min(scale, _FINEST))
            image = bitmap.to_pil().convert("RGB")
            bitmap.close()
            return image
    except pypdfium2.PdfiumError as error:
        raise Permanent(f"its page {index + 1} is damaged: it cannot be drawn") from error


def _resolution(page: Any) -> float:
    """Pixels per point of the finest picture on a page, decorations left out; 0 without one."""
    width, height = page.get_size()
    finest, (across, down) = 0.0, (ctypes.c_uint(), ctypes.c_uint())
    for kind, raw, box, _ in islice(_objects(page), _MAX_OBJECTS):
        if kind == pdfium.FPDF_PAGEOBJ_IMAGE and box.area > _PART * width * height:
            pdfium.FPDFImageObj_GetImagePixelSize(raw, across, down)
            finest = max(finest, math.sqrt(across.value * down.value / box.area))
    return finest


def _look(page: Any) -> Drawn:
    if (bounds := _bounds(page)) is None:
        return Drawn()
    across, down = _EDGE * (bounds.right - bounds.left), _EDGE * (bounds.top - bounds.bottom)
    left, bottom, right, top = bounds
    inner = Box(left + across, bottom + down, right - across, top - down)
    paths = 0
    texts: list[Any] = []
    is_over: set[bool] = set()
    pictures: list[Box] = []
    grounds: list[Box] = []
    unseen: list[tuple[str, Any, Box]] = []
    for kind, raw, box, outer in islice(_objects(page), _MAX_OBJECTS):
        if kind == pdfium.FPDF_PAGEOBJ_TEXT:
            texts.append(raw)
            if how := _how_hidden(raw, box, outer, bounds, grounds):
                unseen.append((how, raw, box))
            if False not in is_over and inner.holds_middle_of(box):
                is_over.add(not how and any(one.holds_middle_of(box) for one in pictures))
        elif kind == pdfium.FPDF_PAGEOBJ_PATH:
            paths += 1
            if _is_dark(raw):
                grounds.append(box)
        else:
            grounds.append(box)
            if kind == pdfium.FPDF_PAGEOBJ_IMAGE:
                pictures.append(box)
    covered = sum(picture.common(bounds).area for picture in pictures)
    part = min(1.0, covered / bounds.area) if bounds.area else 0.0
    hidden = [
        (how, raw)
        for how, raw, box in unseen
        # Invisible writing on a picture is what a scanner's own OCR leaves: it says what is seen.
        if how != "invisible" or not any(picture.holds_middle_of(box) for picture in pictures)
    ]
    return Drawn(
        pictures=part,
        paths=paths,
        hidden=_count(page, hidden) if hidden else {},
        at_edges=bool(texts) and not is_over,
        is_typed_over=part > _COVERED and is_over == {True} and _is_of_writing(page, texts),
    )


def _is_of_writing(page: Any, texts: Sequence[Any]) -> bool:
    """Whether a page looks like paper with writing on it without these texts, if they are few."""
    content = pdfium.FPDFText_LoadPage(page)
    characters = pdfium.FPDFText_CountChars(content)
    pdfium.FPDFText_ClosePage(content)
    if characters > _MOST_TYPED or ImageChops is None:
        return False
    for text in texts:
        pdfium.FPDFPageObj_SetIsActive(text, False)
    bitmap = cast(Any, pypdfium2.PdfBitmap).new_native(_GLANCE, _GLANCE, pdfium.FPDFBitmap_Gray)
    bitmap.fill_rect((255,) * 4, 0, 0, _GLANCE, _GLANCE)
    pdfium.FPDF_RenderPageBitmap(bitmap, page, 0, 0, _GLANCE, _GLANCE, 0, 0)
    for text in texts:
        pdfium.FPDFPageObj_SetIsActive(text, True)
    image = bitmap.to_pil()
    shades = image.histogram()
    steps = ImageChops.difference(image, ImageChops.offset(image, 1, 0)).histogram()
    bitmap.close()
    paper = max(sum(shades[at - _SHADE : at + _SHADE]) for at in range(_LIGHT, 256))
    return min(paper / _PAPER, sum(steps[_SHARP:]) / _LETTERS) > _GLANCE**2


def _bounds(page: Any) -> Box | None:
    box = pdfium.FS_RECTF()
    if not pdfium.FPDF_GetPageBoundingBox(page, box):
        return None
    return Box(box.left, box.bottom, box.right, box.top)


def _count(page: Any, unseen: Sequence[tuple[str, Any]]) -> dict[str, int]:
    """Characters by the way in which they are hidden, spaces left out."""
    content = pdfium.FPDFText_LoadPage(page)
    counts: Counter[str] = Counter()
    for how, raw in unseen:
        size = pdfium.FPDFTextObj_GetText(raw, content, None, 0)
        # In bytes, with a closing zero.
        buffer = (ctypes.c_ushort * (size // 2))()
        pdfium.FPDFTextObj_GetText(raw, content, buffer, size)
        text = bytes(buffer).decode("utf-16-le", "replace").rstrip("\0")
        counts[how] += len("".join(text.split()))
    pdfium.FPDFText_ClosePage(content)
    return {how: count for how, count in counts.items() if count}


def _text(page: Any) -> str:
    content = pdfium.FPDFText_LoadPage(page)
    size = max(0, pdfium.FPDFText_CountChars(content)) + 1
    buffer = (ctypes.c_ushort * size)()
    pdfium.FPDFText_GetText(content, 0, size, buffer)
    pdfium.FPDFText_ClosePage(content)
    return bytes(buffer).decode("utf-16-le", "replace").rstrip("\0")


def _objects(page: Any) -> Iterator[tuple[int, Any, Box, _Matrix]]:
    """In the order in which they are drawn, those of forms included, in the page's coordinates."""
    for number in range(pdfium.FPDFPage_CountObjects(page)):
        yield from _unfold(pdfium.FPDFPage_GetObject(page, number), _Matrix(), 0)


def _unfold(raw: Any, outer: _Matrix, depth: int) -> Iterator[tuple[int, Any, Box, _Matrix]]:
    kind = pdfium.FPDFPageObj_GetType(raw)
    if kind == pdfium.FPDF_PAGEOBJ_FORM:
        if depth < _MAX_DEPTH:
            inner = _matrix(raw).then(outer)
            for number in range(pdfium.FPDFFormObj_CountObjects(raw)):
                yield from _unfold(pdfium.FPDFFormObj_GetObject(raw, number), inner, depth + 1)
        return
    left, bottom, right, top = (ctypes.c_float() for _ in range(4))
    if pdfium.FPDFPageObj_GetBounds(raw, left, bottom, right, top):
        box = Box(left.value, bottom.value, right.value, top.value)
        yield kind, raw, outer.move(box) if depth else box, outer


def _matrix(raw: Any) -> _Matrix:
    matrix = pdfium.FS_MATRIX()
    if not pdfium.FPDFPageObj_GetMatrix(raw, matrix):
        return _Matrix()
    return _Matrix(matrix.a, matrix.b, matrix.c, matrix.d, matrix.e, matrix.f)


def _how_hidden(raw: Any, box: Box, outer: _Matrix, bounds: Box, grounds: list[Box]) -> str | None:
    """Why a reader does not see this text; None if they do, as far as can be told."""
    if box.area == 0:
        return None
    if pdfium.FPDFTextObj_GetTextRenderMode(raw) in (
        pdfium.FPDF_TEXTRENDERMODE_INVISIBLE,
        pdfium.FPDF_TEXTRENDERMODE_CLIP,
    ):
        return "invisible"
    if box.common(bounds).area == 0:
        return "off the page"
    if _size(raw, outer) < _TINY:
        return "tiny"
    red, green, blue, alpha = _color(raw)
    if alpha == 0:
        return "transparent"
    if min(red, green, blue) >= _WHITE and not any(
        ground.holds_middle_of(box) for ground in grounds
    ):
        return "white on white"
    return None


def _size(raw: Any, outer: _Matrix) -> float:
    """Font size in points on the page."""
    size = ctypes.c_float()
    if not pdfium.FPDFTextObj_GetFontSize(raw, size):
        return _TINY
    matrix = _matrix(raw).then(outer)
    return abs(size.value) * (matrix.c**2 + matrix.d**2) ** 0.5


def _color(raw: Any) -> tuple[int, int, int, int]:
    red, green, blue, alpha = (ctypes.c_uint() for _ in range(4))
    if not pdfium.FPDFPageObj_GetFillColor(raw, red, green, blue, alpha):
        return 0, 0, 0, 255
    return red.value, green.value, blue.value, alpha.value


def _is_dark(raw: Any) -> bool:
    """Whether a path fills its area with a colour on which white can be seen."""
    mode, stroke = ctypes.c_int(), ctypes.c_int()
    if not pdfium.FPDFPath_GetDrawMode(raw, mode, stroke) or mode.value == 0:
        return False
    red, green, blue, alpha = _color(raw)
    return alpha > 0 and min(red, green, blue) < _WHITE
