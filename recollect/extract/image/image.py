"""Pictures: the writing on them, and what their makers said of them.

A picture without writing is found by its name and its description. What is on it nobody looks at.
"""

from pathlib import PurePath

from recollect.extract.image import _ocr, _picture
from recollect.extract.kinds import NeedsHeavy
from recollect.model import Blob, Extracted, Place

_TOO_LONG = "reading pictures took too long"
_NAMELESS = frozenset({"upload", "image", "file", "blob", "untitled"})


def extract(blob: Blob) -> Extracted:
    _ocr.require()
    # What is not a picture, or a bomb, costs no models.
    with _picture.opened(blob.data):
        raise NeedsHeavy


def extract_heavy(blob: Blob) -> Extracted:
    parts: list[str] = []
    places: list[Place] = []
    warnings: list[str] = []
    length = 0
    known: set[str] = set()
    with _picture.opened(blob.data) as picture:
        about = picture.about()
        budget = _ocr.TimeBudget()
        name = "page" if picture.has_pages else "frame"
        for frame in picture.seen():
            if frame.image is None or not budget.suffices():
                why = "the rest of it is damaged" if frame.image is None else _TOO_LONG
                warnings.append(
                    f"It was read up to {name} {frame.number - 1} of {picture.frames:,}: {why}."
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
        if told := _telling_name(blob.name):
            parts.append(f"Picture: {told}")
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
    return Extracted("\n\n".join(parts), about.title, "image", warnings, places)


def _telling_name(name: str | None) -> str | None:
    """A name that someone gave; clients call raw bytes `upload`."""
    stem = PurePath(name).stem if name else ""
    return name if stem and stem.lower() not in _NAMELESS else None
