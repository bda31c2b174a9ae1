"""Extraction: bytes of any readable kind become Markdown.

A kind is one module of this package with `TYPES` and `extract()` (see `Extractor`); the registry
finds it. Callers see two things: `detect`, a cheap look at the first bytes, and `Sandbox`, which
parses in a confined child process. Nothing here parses a stranger's bytes in the calling process.
"""

from recollect.extract._registry import HEAD, Extractor, Format, detect, nearest, supported
from recollect.extract._sandbox import Limits, Sandbox
from recollect.extract._text import clean, safe_name
from recollect.extract.text._captions import weave
from recollect.extract.web._markup import is_html

__all__ = [
    "HEAD",
    "Extractor",
    "Format",
    "Limits",
    "Sandbox",
    "clean",
    "detect",
    "is_html",
    "nearest",
    "safe_name",
    "supported",
    "weave",
]
