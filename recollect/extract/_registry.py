"""Which kind some bytes are, and what is said about a file of no kind."""

import difflib
import posixpath
from dataclasses import dataclass

from recollect.extract import _magic
from recollect.extract.kinds import Kind, known

HEAD = 8192
"""How many first bytes `detect` wants at most."""

_NEAREST = 10
_LONGEST_ENDING = 20
_COMMON = (".pdf", ".docx", ".xlsx", ".pptx", ".txt", ".md", ".html", ".csv", ".eml", ".zip")
"""named where nothing is near"""

FORMAT_WORDS = frozenset({"text", "pdf", "image", "video", "audio", "webpage"})
"""Document types that name a format. The others (`google_doc`, `onedrive`, `tweet` …) say where a
document came from, not what its bytes are."""


@dataclass(frozen=True, slots=True)
class Format:
    """What some bytes are: who reads them, and the document type they become."""

    extractor: str
    kind: str
    mime: str
    unpacks: bool = False


def detect(
    head: bytes,
    *,
    name: str | None,
    mime: str | None,
    forced: str | None = None,
    packages: tuple[str, ...] = (),
) -> Format | None:
    """Tell a format from its first bytes (≤ HEAD), then its name, then its declared type.

    A name or a type counts only if the bytes do not contradict it. `forced` is a document type of
    the contract: one that names a format settles it (for `text`: which text format is still
    looked for), one that names an origin only becomes the kind. The name of an extractor settles
    it as well. None: not readable here.
    """
    kinds = known(*packages)
    if forced == "webpage":
        return Format("html", "webpage", "text/html")
    if forced in FORMAT_WORDS:
        wanted = [kind for kind in kinds.values() if kind.kind == forced]
        if len(wanted) == 1:
            return _format(wanted[0])
        found = _look(head, name, mime, wanted)
    elif forced is not None and forced in kinds:
        return _format(kinds[forced])
    else:
        found = _look(head, name, mime, list(kinds.values()))
    if found is None:
        return None
    kind, type = found
    return Format(kind.name, forced or kind.kind, type, kind.unpacks)


def format_of(extractor: str, forced: str | None = None) -> Format | None:
    """The format that `detect` found for `forced`, by the extractor that was kept of it; None if
    there is no such extractor here."""
    found = known().get(extractor)
    if found is None:
        return None
    kind = found.kind if forced is None or forced in known() else forced
    return Format(found.name, kind, found.mime, found.unpacks)


def _format(kind: Kind) -> Format:
    return Format(kind.name, kind.kind, kind.mime, kind.unpacks)


def _look(
    head: bytes, name: str | None, mime: str | None, kinds: list[Kind]
) -> tuple[Kind, str] | None:
    own = posixpath.basename(name).lower() if name else ""
    ending = posixpath.splitext(own)[1]
    declared = mime.partition(";")[0].strip().lower() if mime else ""
    # No bytes contradict nothing: an empty file is what its name says.
    verdicts = [(kind, kind.sniff(head) if head else None) for kind in kinds]
    possible = [kind for kind, verdict in verdicts if verdict is not False]
    chosen = next((kind for kind, verdict in verdicts if verdict), None)
    for claim in (own, ending, declared):
        if chosen is None:
            chosen = next((kind for kind in possible if claim in kind.types), None)
    if chosen is None:
        # Such as what programs write as .xls or .doc, or a plist.
        usual = "xml" if _magic.is_xml(head) else "text"
        chosen = next((kind for kind in possible if kind.name == usual), None)
    if chosen is None:
        return None
    return chosen, declared if declared in chosen.types else chosen.mime


def supported() -> str:
    """All that can be read, as a sentence for people."""
    return f"Supported file types: {', '.join(_endings())}."


def nearest(name: str | None) -> str:
    """What to send instead of a file that cannot be read: the kinds whose endings are nearest."""
    ending = posixpath.splitext(name)[1].lower() if name else ""
    found = difflib.get_close_matches(ending[:_LONGEST_ENDING], _endings(), n=_NEAREST, cutoff=0.5)
    others = [one for one in _COMMON if one not in found]
    return (
        f"Among the file types that can be read are {', '.join([*found, *others][:_NEAREST])};"
        " docs/file-kinds.md names all."
    )


def _endings() -> list[str]:
    return sorted(type for kind in known().values() for type in kind.types if type[0] == ".")
