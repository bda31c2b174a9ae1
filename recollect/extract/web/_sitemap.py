"""Sitemaps (sitemaps.org): which pages a site names, in XML, in a feed, or line by line."""

import re
import zlib
from collections.abc import Iterator, Mapping
from email.utils import parsedate_to_datetime

from recollect.errors import Permanent
from recollect.extract import _xml
from recollect.extract._charsets import read_page
from recollect.extract._text import clean_line
from recollect.extract._wire import MAX_ENTRIES, URL_LENGTH, WORD_LENGTH
from recollect.model import Blob, Sitemap, SitemapEntry

UNPACKED_BYTES = 52_428_800
"""Most bytes of a sitemap, packed or not (sitemaps.org); what comes behind them is not read."""
_PIECE = 1 << 20
_FED = 16_384
"""Bytes unpacked at a time: what follows a member of the file is copied for each."""
_GZIP_BITS = zlib.MAX_WBITS | 16
_GZIP = b"\x1f\x8b"
_DECLARATION = re.compile(r"<\?xml[^>]*\?>\s*")
_DOCTYPE = re.compile(r"<!(?:DOCTYPE|ENTITY)\b", re.I)
_PAGE = re.compile(r"<(?:!doctype\s+)?html\b", re.I)
_STRAY_AMPERSAND = re.compile(r"&(?!(?:amp|lt|gt|quot|apos|#[0-9]{1,7}|#x[0-9A-Fa-f]{1,6});)")
_ADDRESS = re.compile(r"https?://\S", re.I)
_HEAD = 4_096


def read(blob: Blob) -> Sitemap:
    """Raises Permanent if it is not a sitemap; gives the part of a damaged one before the
    damage.
    """
    data = blob.data[:UNPACKED_BYTES]
    if data.startswith(_GZIP):
        data = _unpacked(blob.data)
        if data.startswith(_GZIP):
            raise Permanent("it is packed twice")
    # A sitemap has to be UTF-8, whatever charset the server puts on its XML files.
    text = read_page(data, None)[1].lstrip("\ufeff \t\r\n")
    if text.startswith("<"):
        return _marked_up(text)
    return _listed(text)


def _unpacked(data: bytes) -> bytes:
    """As much as a sitemap may have; of a damaged one its start.

    Raises Permanent if nothing comes out.
    """
    found = bytearray()
    member = zlib.decompressobj(_GZIP_BITS)
    try:
        for start in range(0, len(data), _FED):
            piece = data[start : start + _FED]
            while piece and len(found) < UNPACKED_BYTES:
                found += member.decompress(piece, UNPACKED_BYTES - len(found))
                piece = member.unused_data
                if member.eof:
                    member = zlib.decompressobj(_GZIP_BITS)
    except zlib.error as error:
        if not found:
            raise Permanent("it is damaged: it cannot be unpacked") from error
    return bytes(found)


def _listed(text: str) -> Sitemap:
    urls: dict[str, None] = {}
    for line in text.splitlines():
        url = line.strip()
        if _ADDRESS.match(url) and len(url) <= URL_LENGTH:
            urls[url] = None
            if len(urls) >= MAX_ENTRIES:
                break
    if text.strip() and not urls:
        raise Permanent("it is not a sitemap: neither XML nor a list of addresses")
    return Sitemap([SitemapEntry(url) for url in urls], [])


def _marked_up(text: str) -> Sitemap:
    text = _DECLARATION.sub("", text, count=1)
    head = text[:_HEAD]
    if _PAGE.search(head):
        raise Permanent("it is not a sitemap but an HTML page")
    # Nothing that a sitemap needs: entities make bombs, defaults of attributes do, too.
    if _DOCTYPE.search(text, 0, _first_element(text)):
        raise Permanent("its XML has a DTD, which no sitemap needs")
    if "<![CDATA[" not in text:
        text = _STRAY_AMPERSAND.sub("&amp;", text)
    reader = _Reader()
    try:
        for _ in _xml.steps(_pieces(text), reader.start, reader.end, reader.text):
            if reader.is_full():
                break
    except Permanent:
        if not (reader.pages or reader.sitemaps):
            raise
    if not reader.known:
        raise Permanent("it is not a sitemap: its XML is of another kind")
    return Sitemap(list(reader.pages.values()), list(reader.sitemaps))


def _first_element(text: str) -> int:
    """Where the first tag begins that is neither comment nor instruction nor declaration."""
    position = 0
    while (position := text.find("<", position)) >= 0:
        if text.startswith("<!--", position):
            position = text.find("-->", position)
        elif text.startswith(("<?", "<!"), position):
            position = text.find(">", position)
        else:
            return position
        if position < 0:
            break
    return len(text)


def _pieces(text: str) -> Iterator[bytes]:
    for start in range(0, len(text), _PIECE):
        yield text[start : start + _PIECE].encode("utf-8", "replace")


_ENTRIES = frozenset({"url", "sitemap", "item", "entry"})
_ROOTS = frozenset({"urlset", "sitemapindex", "rss", "feed", "RDF"})
_ADDRESSES = frozenset({"loc", "link"})
_TIMES = frozenset({"lastmod", "pubDate", "updated", "date"})


class _Reader:
    """Collects the entries while the tags go by."""

    def __init__(self) -> None:
        self.pages: dict[str, SitemapEntry] = {}
        self.sitemaps: dict[str, None] = {}
        self.known = False
        self._path: list[str] = []
        self._said: dict[str, str] = {}
        self._pieces: list[str] = []
        self._length = 0

    def is_full(self) -> bool:
        return len(self.pages) >= MAX_ENTRIES or len(self.sitemaps) >= MAX_ENTRIES

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        if not self._path:
            self.known = name in _ROOTS
        parent = self._path[-1] if self._path else ""
        self._path.append(name)
        self._pieces, self._length = [], 0
        if name in _ENTRIES:
            self._said = {}
        # RFC 4287 4.2.7.2: without a relation it is the alternate, the page itself.
        elif parent == "entry" and name == "link" and attributes.get("rel") in (None, "alternate"):
            self._said.setdefault("link", attributes.get("href", ""))

    def text(self, text: str) -> None:
        if self._length <= URL_LENGTH:
            self._pieces.append(text)
            self._length += len(text)

    def end(self, name: str) -> None:
        self._path.pop()
        parent = self._path[-1] if self._path else ""
        if name in _ENTRIES:
            self._take(name)
        elif parent in _ENTRIES and name in _ADDRESSES | _TIMES:
            # Those of pictures and videos have other parents.
            said = "".join(self._pieces).strip()
            if said and self._length <= URL_LENGTH:
                self._said.setdefault(name, said)
        self._pieces, self._length = [], 0

    def _take(self, name: str) -> None:
        said, self._said = self._said, {}
        url = said.get("loc") or said.get("link")
        if not (self.known and url) or len(url) > URL_LENGTH or self.is_full():
            return
        if name == "sitemap":
            self.sitemaps[url] = None
        else:
            self.pages.setdefault(url, SitemapEntry(url, _time(said)))


def _time(said: Mapping[str, str]) -> str | None:
    """As it is written, but for the times of RSS, which are those of mail."""
    if "pubDate" in said:
        try:
            return parsedate_to_datetime(said["pubDate"]).isoformat()
        except (ValueError, TypeError, OverflowError):
            return None
    written = said.get("lastmod") or said.get("updated") or said.get("date")
    return clean_line(written)[:WORD_LENGTH] or None if written else None
