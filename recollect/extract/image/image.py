"""Pictures: the writing on them, and what their makers said of them.

A picture without writing is found by its name and its description. What is on it nobody looks at.
"""

from importlib.util import find_spec
from pathlib import PurePath

from recollect.extract._registry import NeedsHeavy
from recollect.model import Blob, Extracted, Place

TYPES = frozenset(
    {
        "image/jpeg", "image/png", "image/gif", "image/webp", "image/bmp", "image/tiff",
        ".jpg", ".jpeg", ".png", ".gif", ".webp", ".bmp", ".tif", ".tiff",
    }
)  # fmt: skip
_HAS_ENGINE = find_spec("rapidocr") is not None
LOADS = (
    "recollect.extract.image._ocr",
    *(("recollect.extract.image._picture",) if _HAS_ENGINE else ()),
)
HEAVY_LOADS = (*LOADS, *(("rapidocr.main", "cv2") if _HAS_ENGINE else ()))
KIND = "image"

_NAMELESS = frozenset({"upload", "image", "file", "blob", "untitled"})


def sniff(head: bytes) -> bool | None:
    if head.startswith(b"BM"):
        # Text may begin like this; four zeros and the size of a known header follow in a bitmap.
        return head[6:10] == bytes(4) and head[14:18] in (
            b"\x0c\0\0\0",
            b"\x28\0\0\0",
            b"\x6c\0\0\0",
            b"\x7c\0\0\0",
        )
    return head.startswith(
        (b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF87a", b"GIF89a", b"II*\0", b"MM\0*")
    ) or (head.startswith(b"RIFF") and head[8:12] == b"WEBP")


def extract(blob: Blob) -> Extracted:
    from recollect.extract.image import _ocr  # noqa: PLC0415 - only the child reads pictures

    _ocr.require()
    from recollect.extract.image import _picture  # noqa: PLC0415 - Pillow comes with the engine

    # What is no picture, or a bomb, costs no models.
    with _picture.opened(blob.data):
        raise NeedsHeavy


def extract_heavy(blob: Blob) -> Extracted:
    from recollect.extract.image import _ocr, _picture  # noqa: PLC0415 - only the child reads pictures

    parts: list[str] = []
    places: list[Place] = []
    warnings: list[str] = []
    length = 0
    known: set[str] = set()
    with _picture.opened(blob.data) as picture:
        about = picture.about()
        budget = _ocr.Budget()
        for frame in picture.seen():
            if not budget.suffices():
                name = "page" if picture.has_pages else "frame"
                warnings.append(
                    f"It was read up to {name} {frame.number - 1} of {picture.frames:,}:"
                    " reading pictures took too long."
                )
                break
            text = _ocr.read(frame.image)
            if not picture.has_pages:
                # Moments of an animation show the same again and again.
                text = "\n".join(line for line in text.split("\n") if line not in known).strip()
                known.update(text.split("\n"))
            if text:
                if picture.has_pages and picture.frames > 1:
                    places.append(Place(length, {"page": frame.number}))
                parts.append(text)
                length += len(text) + 2
        if picture.skips:
            warnings.append(f"Not all of its {picture.frames:,} frames were looked at.")
    if not parts:
        if name := _telling_name(blob.name):
            parts.append(f"Picture: {name}")
        if about.title:
            parts.append(f"Title: {about.title}")
        found = (
            ", but it is found by its name and description" if parts or about.description else ""
        )
        warnings.append(f"No writing was found on it{found}.")
    if about.description:
        parts.append(f"Description: {about.description}")
    if about.taken and parts:
        parts.append(f"Taken: {about.taken}")
    return Extracted("\n\n".join(parts), about.title, KIND, warnings, places)


def _telling_name(name: str | None) -> str | None:
    """A name that somebody gave; clients call raw bytes `upload`."""
    stem = PurePath(name).stem if name else ""
    return name if stem and stem.lower() not in _NAMELESS else None
