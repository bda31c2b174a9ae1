"""Which kinds can be read, and which of them some bytes are.

A kind is a module whose name does not start with `_`. The calling process imports these modules,
so they load their parsers inside `extract()`, which only the sandboxed child runs: the service
itself never pays for, nor is exposed to, a parser.
"""

import difflib
import functools
import importlib
import pkgutil
import posixpath
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol, cast

from recollect.inference.speech import Heard, LocalEngine
from recollect.model import Blob, Extracted

HEAD = 8192
"""How many first bytes `detect` wants at most."""

PACKAGE = "recollect.extract"

_NEAREST = 10
_LONGEST_ENDING = 20
_COMMON = (".pdf", ".docx", ".xlsx", ".pptx", ".txt", ".md", ".html", ".csv", ".eml", ".zip")
"""named where nothing is near"""

FORMAT_WORDS = frozenset({"text", "pdf", "image", "video", "audio", "webpage"})
"""Document types that name a format. The others (`google_doc`, `onedrive`, `tweet` …) say where a
document came from, not what its bytes are."""


class NeedsHeavy(Exception):
    """Raised by `extract` for a blob that takes models: `extract_heavy` is asked instead."""


class Extractor(Protocol):
    """A module that reads one kind.

    It may also have `KIND`, the contract's word for its documents (default `text`), and
    `sniff(head) -> bool | None`: these first bytes are mine, are not, or do not tell. If its
    `extract` raises NeedsHeavy it has `extract_heavy`, which may take more memory and time.
    `LOADS` names the modules that it imports when it reads, `HEAVY_LOADS` those of
    `extract_heavy`: they are loaded once, before there is a file. `SAMPLE` is a tiny file of the
    kind, read once as well: what is made at the first reading is made for all. Only for kinds
    whose parsers start no threads, which would not be there in a child.
    Recordings have `hear(blob, start, seconds, engine) -> Heard`, archives
    `unpack(blob, keep) -> Extracted`, which calls `keep(path, data)` for each file in it.
    """

    @property
    def TYPES(self) -> frozenset[str]:
        """Media types and file name endings: `{"application/pdf", ".pdf"}`."""
        ...

    def extract(self, blob: Blob) -> Extracted:
        """Read it, or raise Permanent. Runs in the child: no network, no writing, no processes."""
        ...


@dataclass(frozen=True, slots=True)
class Format:
    """What some bytes are: who reads them, and the document type they become."""

    extractor: str
    kind: str
    mime: str


@dataclass(frozen=True, slots=True)
class Kind:
    """A registered extractor; `sniff` answers None where its module has none."""

    name: str
    types: frozenset[str]
    kind: str
    sniff: Callable[[bytes], bool | None]
    extractor: Extractor
    extract_heavy: Callable[[Blob], Extracted] | None
    hear: Callable[[Blob, float, float, LocalEngine | None], Heard] | None
    unpack: Callable[[Blob, Callable[[str, bytes], None]], Extracted] | None
    loads: tuple[str, ...]
    heavy_loads: tuple[str, ...]
    sample: bytes | None

    @property
    def mime(self) -> str:
        return min(type for type in self.types if "/" in type)


@functools.cache
def scan(*packages: str) -> Mapping[str, Kind]:
    """Every extractor of these packages, by module name. Loads no parser."""
    kinds: dict[str, Kind] = {}
    for package in packages:
        for found in pkgutil.iter_modules(importlib.import_module(package).__path__):
            if found.ispkg:
                kinds |= scan(f"{package}.{found.name}")
            elif not found.name.startswith("_"):
                module = importlib.import_module(f"{package}.{found.name}")
                kinds[found.name] = Kind(
                    name=found.name,
                    types=module.TYPES,
                    kind=getattr(module, "KIND", "text"),
                    sniff=getattr(module, "sniff", _cannot_tell),
                    extractor=cast(Extractor, module),
                    extract_heavy=getattr(module, "extract_heavy", None),
                    hear=getattr(module, "hear", None),
                    unpack=getattr(module, "unpack", None),
                    loads=getattr(module, "LOADS", ()),
                    heavy_loads=getattr(module, "HEAVY_LOADS", ()),
                    sample=getattr(module, "SAMPLE", None),
                )
    return MappingProxyType(kinds)


def _cannot_tell(head: bytes) -> bool | None:
    return None


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
    kinds = scan(PACKAGE, *packages)
    if forced == "webpage":
        return Format("html", "webpage", "text/html")
    if forced in FORMAT_WORDS:
        wanted = [kind for kind in kinds.values() if kind.kind == forced]
        if len(wanted) == 1:
            return Format(wanted[0].name, forced, wanted[0].mime)
        found = _look(head, name, mime, wanted)
    elif forced is not None and forced in kinds:
        return Format(forced, kinds[forced].kind, kinds[forced].mime)
    else:
        found = _look(head, name, mime, list(kinds.values()))
    if found is None:
        return None
    kind, type = found
    return Format(kind.name, forced or kind.kind, type)


def _look(
    head: bytes, name: str | None, mime: str | None, kinds: list[Kind]
) -> tuple[Kind, str] | None:
    ending = posixpath.splitext(name)[1].lower() if name else ""
    declared = mime.partition(";")[0].strip().lower() if mime else ""
    # No bytes contradict nothing: an empty file is what its name says.
    verdicts = [(kind, kind.sniff(head) if head else None) for kind in kinds]
    possible = [kind for kind, verdict in verdicts if verdict is not False]
    chosen = next((kind for kind, verdict in verdicts if verdict), None)
    for claim in (ending, declared):
        if chosen is None:
            chosen = next((kind for kind in possible if claim in kind.types), None)
    if chosen is None:
        chosen = next((kind for kind in possible if kind.name == "text"), None)
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
    return sorted(type for kind in scan(PACKAGE).values() for type in kind.types if "/" not in type)
