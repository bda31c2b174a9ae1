"""Extraction: bytes of any readable kind come in, Markdown goes out.

A kind is a row in `kinds` and the module that the row names as its reader. Callers see two
things: `detect`, a cheap look at the first bytes, and `Sandbox`, which parses in a confined child
process. Nothing here parses a stranger's bytes in the calling process.
"""

from recollect.extract._answers import Limits
from recollect.extract._registry import HEAD, Format, detect, format_of, nearest, supported
from recollect.extract._sandbox import Sandbox
from recollect.extract._text import NO_TEXT, clean, safe_name, without_data
from recollect.extract.text._captions import weave
from recollect.extract.web._markup import is_html

__all__ = [
    "HEAD",
    "NO_TEXT",
    "Format",
    "Limits",
    "Sandbox",
    "clean",
    "detect",
    "format_of",
    "is_html",
    "nearest",
    "safe_name",
    "supported",
    "weave",
    "without_data",
]
