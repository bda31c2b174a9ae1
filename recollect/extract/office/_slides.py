"""What readers of presentations share: slides as Markdown, with a place for each."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from recollect.extract._text import TEXT_BYTES, clean_line
from recollect.model import Extracted, Place

BULLETS = 8
"""levels of a list, those below look like the last"""


class Slide(NamedTuple):
    title: str
    blocks: Sequence[str]
    notes: Sequence[str] = ()
    hidden: bool = False
    remarks: Sequence[str] = ()


def written(slides: Iterable[Slide], title: str | None) -> Extracted:
    """All slides as one text. Without a `title`, the first title of a slide is that of the
    document."""
    places: list[Place] = []
    texts: list[str] = []
    hidden: list[int] = []
    size = 0
    for number, slide in enumerate(slides, 1):
        title = title or clean_line(slide.title) or None
        if slide.hidden:
            hidden.append(number)
        blocks = [f"## {slide.title}"] if slide.title else []
        blocks += slide.blocks
        blocks += ["Notes:", *slide.notes] if slide.notes else []
        blocks += ["Comments:", *slide.remarks] if slide.remarks else []
        if text := "\n\n".join(blocks):
            places.append(Place(size, {"page": number}))
            texts.append(text)
            size += len(text) + 2
        if size > TEXT_BYTES:
            break
    warnings = [f"Hidden slides were read as well: {_listed(hidden)}."] if hidden else []
    return Extracted("\n\n".join(texts), title=title, warnings=warnings, places=places)


def paragraph(words: str) -> str:
    """The lines of a paragraph, each without superfluous spaces."""
    lines = map(clean_line, words.split("\n")) if "\n" in words else [clean_line(words)]
    return "\n".join(lines).strip()


class ListItem(str):
    """A paragraph of a list."""


def item(text: str, level: int, sign: str = "-") -> ListItem:
    """A paragraph with a bullet or its number ahead; 0 is the highest level."""
    return ListItem(f"{'  ' * min(level, BULLETS)}{sign} {text}")


def block(paragraphs: Sequence[str]) -> str:
    """The paragraphs of one shape as a block of Markdown."""
    listed = all(
        isinstance(text, ListItem) or text.lstrip().startswith("- ") for text in paragraphs
    )
    return ("\n" if listed else "\n\n").join(paragraphs)


def table(rows: Iterable[Sequence[str]]) -> list[str]:
    """The table as a block of Markdown; no block for a table without words."""
    kept = [[cell.replace("|", "\\|") for cell in row] for row in rows if any(row)]
    if not kept:
        return []
    lines = [f"| {' | '.join(row)} |" for row in kept]
    return ["\n".join([lines[0], f"|{' --- |' * len(kept[0])}", *lines[1:]])]


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers[:20])) + (" …" if len(numbers) > 20 else "")
