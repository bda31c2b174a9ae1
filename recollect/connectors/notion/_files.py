"""Files that Notion stores, read at once: their links work for an hour, and for everybody. So no
token goes there, and neither a document nor a message repeats a link. What is in a file stands
below the page that shows it, under the file's name; a file that cannot be read costs the page no
more than a warning.
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from recollect.connectors.api import PROVIDER_UNAVAILABLE, RATE_LIMITED, refuse_stand_in
from recollect.connectors.base import Source
from recollect.errors import Permanent, Transient
from recollect.fetch import outcome
from recollect.model import Blob

PAGES = re.compile(r"\.x?html?\Z", re.IGNORECASE)
"""ends of the names of web pages"""
MOST = 20
"""files of one page"""
LARGEST = 50_000_000
"""bytes, as for an upload"""
REFUSED = "http_403"
"""code of what the place of files answers to a link that is no longer good"""
DOWNLOAD_TIME = 120.0
"""seconds for one file"""


@dataclass(frozen=True, slots=True)
class Hosted:
    name: str
    url: str


def read_files(
    source: Source, shown: Iterable[Hosted], again: Callable[[], Iterable[Hosted]]
) -> tuple[list[str], list[str]]:
    """Sections of Markdown, and sentences about what could not be read.

    `again` gives the same files with new links, if those ended while others were read. Raises what
    it raises, and Transient when the place where files lie does not serve at the moment.
    """
    links = _by_place(shown)
    files = list(links.items())
    renewed = False
    sections: list[str] = []
    lacking: list[str] = []
    for place, file in files[:MOST]:
        try:
            try:
                text = _text(source, links[place])
            except Permanent as error:
                if error.code != REFUSED or renewed:
                    raise
                renewed, links = True, {**links, **_by_place(again())}
                text = _text(source, links[place])
        except Permanent as error:
            lacking.append(f"The file {file.name} is missing: {_reason(error)}.")
            continue
        if text:
            sections.append(f"## {file.name}\n\n{text}")
    if len(files) > MOST:
        lacking.append(f"Of {len(files)} files the first {MOST} were read.")
    return sections, lacking


def _by_place(files: Iterable[Hosted]) -> dict[str, Hosted]:
    return {file.url.partition("?")[0]: file for file in files}


def _text(source: Source, file: Hosted) -> str:
    try:
        answer = source.fetcher.ask(file.url, max_bytes=LARGEST, total=DOWNLOAD_TIME)
    except Transient as error:
        # What the fetcher says names the link.
        told = f"the file {file.name} could not be fetched from Notion"
        raise Transient(told, code=PROVIDER_UNAVAILABLE, after=error.after) from None
    except Permanent as error:
        raise Permanent(_refused(error), code=error.code) from None
    if 200 < answer.status < 300:
        told = f"the file {file.name}: its server answered {answer.status}, without content"
        raise Transient(told, code=PROVIDER_UNAVAILABLE)
    if answer.status != 200:
        known = outcome(
            answer.status, answer.headers, f"the server that holds it answered {answer.status}"
        )
        if isinstance(known, Transient):
            code = RATE_LIMITED if answer.status == 429 else PROVIDER_UNAVAILABLE
            raise Transient(f"the file {file.name}: {known}", code=code, after=known.after)
        raise known
    if not answer.data.strip():
        return ""
    mime = answer.headers.get("content-type", "").partition(";")[0].strip() or None
    if mime == "text/html" and not PAGES.search(file.name):
        refuse_stand_in(answer.data)
    return source.read(Blob(answer.data, mime, file.name)).text.strip()


def _refused(error: Permanent) -> str:
    if error.code == "too_large":
        return f"it has more than {LARGEST:,} bytes"
    return "its URL may not be fetched"


def _reason(error: Permanent) -> str:
    return str(error).rstrip(".")


__all__: Sequence[str] = ["Hosted", "read_files"]
