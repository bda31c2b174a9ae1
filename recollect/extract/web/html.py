"""HTML: the main content of a page as Markdown; all of it where a page has no main content."""

from recollect.extract.web import _page, _survey
from recollect.model import Blob, Extracted, WebPage


def extract(blob: Blob) -> Extracted:
    return _page.read(blob)


def survey(blob: Blob) -> WebPage:
    """The page as a crawler sees it."""
    return _survey.survey(blob)
