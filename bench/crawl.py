"""Crawling a site of our own on this machine: pages a second, and how much less a second crawl is.

The site is a process of its own. What is measured is the crawl itself (fetch, robots, links,
Markdown in the sandbox, verdicts): nothing is stored or embedded. Scrapy crawls the same site in
the same run, where it is installed; it is no dependency. At last the site is crawled twice by the
whole service, from the request until everything found is searchable.
"""

import hashlib
import importlib.util
import random
import resource
import socketserver
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from html import escape
from ipaddress import ip_network
from typing import Any

import psutil

from bench.corpus import Shuffled
from bench.figures import Figure, alternate
from bench.ground import PROJECT, Ground, until
from recollect.connectors.api import Api
from recollect.connectors.base import (
    Change,
    Checkpoint,
    Cursor,
    Folder,
    HostTurn,
    Item,
    LocalFolders,
    Verdict,
)
from recollect.connectors.web_crawler import WebCrawler
from recollect.extract import Sandbox
from recollect.fetch import Fetcher
from recollect.model import Blob, ConnectionId, DocumentId, Extracted, Remembered, Sitemap, WebPage

LINKS = 40
"""of a page"""
WORDS = 4_000
"""characters of a page's text"""
CONCURRENCY = 4
SCRAPY = "scrapy"
SITE = "bench.crawl"
TICK = 0.01
"""seconds of processor time that are told apart"""
LONGEST = 1_800.0
"""seconds of a crawl with all its embedding"""
ID = ConnectionId("bench")


@dataclass(frozen=True, slots=True)
class Size:
    pages: int
    rounds: int
    synced: int


FULL = Size(pages=2_000, rounds=3, synced=2_000)
QUICK = Size(pages=400, rounds=1, synced=100)
TINY = Size(pages=20, rounds=1, synced=20)


def measure(ground: Ground, size: Size) -> Iterator[Figure]:
    with (
        serving(size.pages) as url,
        Sandbox(workers=2) as sandbox,
        Fetcher(user_agent="bench", allow_networks=[ip_network("127.0.0.0/8")]) as fetcher,
    ):
        source = Source(url, fetcher, sandbox)
        again: list[float] = []
        work: list[float] = []

        def ours(_: int) -> float:
            source.forget()
            first = _spent(lambda: _crawl(source, size.pages, texts=size.pages))
            second = _spent(lambda: _crawl(source, size.pages, texts=0))
            again.append(first.wall / second.wall)
            work.append(first.processor / max(second.processor, TICK))
            return size.pages / first.wall

        if importlib.util.find_spec(SCRAPY) is None:
            rates, ratio, against = [ours(n) for n in range(size.rounds)], None, "no Scrapy here"
        else:
            rates, ratios = alternate(size.rounds, lambda _: _scrapy(url, size.pages), ours)
            ratio, against = _middle(ratios), "Scrapy"
        yield Figure(
            "crawl.pages",
            f"a site of {size.pages:,} pages, no delay",
            _middle(rates),
            "pages/s",
            ratio,
            against,
        )
        yield Figure(
            "crawl.again", "the same site again, the crawler alone", _middle(again), "times as fast"
        )
        yield Figure(
            "crawl.again.cpu",
            "the same, processor time, the sandbox's with it",
            _middle(work),
            "times as little",
        )
    yield _synced_twice(ground, size.synced)


def _synced_twice(ground: Ground, pages: int) -> Figure:
    """As users see it; raises RuntimeError when the second crawl brought anything."""
    with (
        serving(pages) as url,
        ground.serving(allow_networks="127.0.0.0/8", crawl_delay="0") as service,
    ):
        client = service.client()

        def runs() -> list[dict[str, Any]]:
            told = client.send("GET", f"/v3/connections/{id}/sync-runs")
            return [run for run in told if run["status"] == "completed"]

        began = time.perf_counter()
        made = client.send(
            "POST",
            "/v3/connections/web-crawler",
            {"metadata": {"startUrl": url}, "documentLimit": pages, "containerTags": ["bench"]},
        )
        id = made["id"]
        until(lambda: len(runs()) == 1, within=LONGEST)
        until(client.drained, within=LONGEST)
        first = time.perf_counter() - began
        began = time.perf_counter()
        client.send("POST", "/v3/connections/web-crawler/import", {"containerTags": ["bench"]})
        until(lambda: len(runs()) == 2, within=LONGEST, every=0.01)
        second = time.perf_counter() - began
        counts = sorted((run["added"], run["unchanged"]) for run in runs())
    if counts != [(0, pages), (pages, 0)]:
        raise RuntimeError(f"{pages} pages were to come once: {counts}")
    return Figure(
        "crawl.resync",
        f"a site of {pages:,} pages by the whole service, until searchable; then unchanged",
        first / second,
        "times as fast",
    )


def _middle(values: Sequence[float]) -> float:
    return sorted(values)[len(values) // 2]


@dataclass(frozen=True, slots=True)
class _Spent:
    """Seconds."""

    wall: float
    processor: float


def _spent(work: Callable[[], None]) -> _Spent:
    started, before = time.perf_counter(), _processor_time()
    work()
    return _Spent(time.perf_counter() - started, _processor_time() - before)


def _processor_time() -> float:
    """Of this process and its children, those that ended too, but for the site."""
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    total = ended.ru_utime + ended.ru_stime
    me = psutil.Process()
    for process in [me, *me.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            if SITE not in process.cmdline():
                times = process.cpu_times()
                total += times.user + times.system
    return total


def _crawl(source: "Source", pages: int, *, texts: int) -> None:
    """One sync; raises RuntimeError when other pages or texts come than should."""
    source.since += timedelta(days=7)
    found = read = 0
    batch: list[Change] = []
    for change in WebCrawler().changes(source, source.cursor):
        batch.append(change)
        if isinstance(change, Item):
            found += 1
            read += change.text is not None
        elif isinstance(change, Checkpoint):
            source.store(batch)
            batch = []
    if (found, read) != (pages, texts):
        raise RuntimeError(f"{found} pages came, {read} with a text; not {pages} and {texts}")


# --- what the crawler works with -----------------------------------------------------------------


@dataclass
class Source:
    """A connection that keeps its rows in memory."""

    url: str
    fetcher: Fetcher
    sandbox: Sandbox
    crawl_delay: float = 0.0
    crawl_concurrency: int = CONCURRENCY
    local: LocalFolders = field(default_factory=LocalFolders)
    connection_id: ConnectionId = ID
    account: str | None = None
    granted: Sequence[str] = ()
    limit: int = 10_000
    asked: bool = False
    since: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    cursor: Cursor | None = None
    rows: dict[str, Remembered] = field(default_factory=dict[str, Remembered])

    @property
    def metadata(self) -> Mapping[str, Any]:
        return {"startUrl": self.url}

    @property
    def api(self) -> Api:
        raise NotImplementedError("a crawler calls no API")

    def room(self) -> int:
        return self.limit - sum(row.document_id is not None for row in self.rows.values())

    def remembered(
        self, ids: Sequence[str] | None = None, *, branch: str | None = None
    ) -> Iterator[Remembered]:
        yield from list(self.rows.values())

    def folders(self) -> Mapping[str, Folder]:
        return {}

    def refused(self, title: str | None, url: str | None) -> str | None:
        return None

    def reads(self, head: bytes, name: str) -> bool:
        raise RuntimeError("a crawler is told the kind")

    def read(self, blob: Blob) -> Extracted:
        return self.sandbox.extract(blob, owner="bench")

    def survey(self, blob: Blob) -> WebPage:
        return self.sandbox.survey(blob, owner="bench")

    def sitemap(self, blob: Blob) -> Sitemap:
        return self.sandbox.sitemap(blob, owner="bench")

    def turn(self, host: str, delay: float) -> HostTurn:
        return HostTurn(0.0, 0.0, 1)

    def rest(self, host: str, seconds: float) -> None:
        raise RuntimeError("nobody asked for a rest")

    def leave(self, host: str) -> None:
        """Nobody else is there."""

    def pause(self, seconds: float) -> None:
        raise RuntimeError("nobody asked for a delay")

    def going(self) -> None:
        """Always."""

    def forget(self) -> None:
        self.rows.clear()
        self.cursor = None

    def store(self, batch: Sequence[Change]) -> None:
        for change in batch:
            match change:
                case Item():
                    known = change.id, change.version, "document", DocumentId(change.id)
                case Verdict():
                    known = change.id, None, change.kind, None
                case Checkpoint():
                    self.cursor = change.cursor
                    continue
                case _:
                    continue
            id, version, verdict, document = known
            self.rows[id] = Remembered(
                id=id,
                version=version,
                title=change.title,
                url=change.url,
                kind=None,
                verdict=verdict,
                detail=change.detail,
                extra=change.extra,
                branch="",
                document_id=document,
                seen_at=self.since,
            )


# --- the site ------------------------------------------------------------------------------------


@contextmanager
def serving(pages: int) -> Generator[str]:
    """The site in a process of its own; its start page."""
    command = [sys.executable, "-m", SITE, str(pages)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=PROJECT, text=True
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        port = int(process.stdout.readline())
        try:
            yield f"http://127.0.0.1:{port}/"
        finally:
            process.stdin.close()  # it ends with its input


def _site(pages: int) -> dict[bytes, tuple[bytes, bytes]]:
    """path → ETag and body. Every page is a few links from the start."""
    texts = Shuffled(5)
    chance = random.Random(5)
    found: dict[bytes, tuple[bytes, bytes]] = {}
    for number in range(pages):
        children = range(number * 10 + 1, min(number * 10 + 11, pages))
        others = [chance.randrange(pages) for _ in range(LINKS - len(children))]
        links = "".join(
            f'<li><a href="/{n or ""}">Page number {n}</a></li>' for n in (*children, *others)
        )
        paragraphs = texts.document(WORDS).split("\n\n")
        text = "".join(f"<p>{escape(paragraph)}</p>" for paragraph in paragraphs)
        body = (
            f'<!doctype html><html lang="en"><head><title>Page {number}</title></head><body>'
            f"<nav><ul>{links}</ul></nav><main><h1>Page {number}</h1>{text}</main></body></html>"
        ).encode()
        tag = f'"{hashlib.sha256(body).hexdigest()[:16]}"'.encode()
        found[f"/{number or ''}".encode()] = tag, body
    return found


def _serve(pages: int) -> None:
    site = _site(pages)

    class Answers(socketserver.StreamRequestHandler):
        disable_nagle_algorithm = True

        def handle(self) -> None:
            while line := self.rfile.readline():
                path = line.split(b" ")[1]
                known = b""
                while (header := self.rfile.readline().strip()) != b"":
                    name, _, value = header.partition(b": ")
                    if name.lower() == b"if-none-match":
                        known = value
                tag, body = site.get(path, (b"", b""))
                if not tag:
                    self.wfile.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")
                elif tag == known:
                    self.wfile.write(b"HTTP/1.1 304 Not Modified\r\nETag: " + tag + b"\r\n\r\n")
                else:
                    self.wfile.write(
                        b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nETag: "
                        + tag
                        + b"\r\nContent-Length: %d\r\n\r\n" % len(body)
                        + body
                    )

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Answers) as server:
        print(server.server_address[1], flush=True)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        sys.stdin.read()
        server.shutdown()


# --- the counterpart -----------------------------------------------------------------------------


SPIDER = """
import re
import sys
import time

from scrapy import Request, Spider
from scrapy.crawler import CrawlerProcess
from scrapy.linkextractors import LinkExtractor

class Pages(Spider):
    name = "pages"
    start_urls = [sys.argv[1]]
    count = 0
    links = LinkExtractor(allow=[re.escape(sys.argv[1])])

    def parse(self, response):
        Pages.count += 1
        for link in self.links.extract_links(response):
            yield Request(link.url)

process = CrawlerProcess({
    "LOG_ENABLED": False,
    "ROBOTSTXT_OBEY": True,
    "DOWNLOAD_DELAY": 0,
    "CONCURRENT_REQUESTS_PER_DOMAIN": int(sys.argv[2]),
    "TELNETCONSOLE_ENABLED": False,
})
process.crawl(Pages)
started = time.perf_counter()
process.start()
print(Pages.count, time.perf_counter() - started)
"""


def _scrapy(url: str, pages: int) -> float:
    """Pages a second, with its own link extractor; it makes no text of them."""
    done = subprocess.run(
        [sys.executable, "-c", SPIDER, url, str(CONCURRENCY)],
        capture_output=True,
        text=True,
        check=True,
    )
    found, seconds = done.stdout.split()
    if int(found) < pages:  # it may count the start page under two addresses
        raise RuntimeError(f"Scrapy found {found} pages, not {pages}")
    return int(found) / float(seconds)


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
