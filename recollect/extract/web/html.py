"""HTML: the main content of a page as Markdown; all of it where a page has no main content."""

import re

from recollect.extract._text import looks_like_text
from recollect.model import Blob, Extracted, WebPage

TYPES = frozenset({"text/html", "application/xhtml+xml", ".html", ".htm", ".xhtml"})
LOADS = ("recollect.extract.web._page", "recollect.extract.web._survey", "chardet")
SAMPLE = b"<html><head><title>t</title></head><body><h1>a</h1><p>b <a href='/c'>c</a></body></html>"

_PAGE = re.compile(
    rb"(?:\xef\xbb\xbf)?\s*(?:<\?xml[^>]*>\s*|<!--.*?-->\s*)*+(?:<!doctype\s+html|<html[\s>])",
    re.IGNORECASE | re.DOTALL,
)


def sniff(head: bytes) -> bool | None:
    if _PAGE.match(head):
        return True
    return None if looks_like_text(head) else False


def extract(blob: Blob) -> Extracted:
    from recollect.extract.web import _page  # noqa: PLC0415 - parsers that only the child may load

    return _page.read(blob)


def survey(blob: Blob) -> WebPage:
    """The page as a crawler sees it."""
    from recollect.extract.web import _survey  # noqa: PLC0415 - parsers that only the child may load

    return _survey.survey(blob)
