"""The web crawler: every page of one host, as its robots.txt, its pages and its limits allow.

`_crawl` is the crawl itself. It speaks to the site through `_host`, decides about addresses in
`_addresses`, and says what became of them through `_ledger`.
"""

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from recollect.config import Config
from recollect.connectors._patterns import wrong
from recollect.connectors.base import (
    Assumption,
    Change,
    Connector,
    Cursor,
    Source,
    Trouble,
)
from recollect.connectors.web_crawler._crawl import Crawl
from recollect.connectors.web_crawler._guide import GUIDE
from recollect.connectors.web_crawler._host import visit_alone
from recollect.connectors.web_crawler._scope import CrawlScope
from recollect.connectors.web_crawler._visit import NotHtml, Redirected
from recollect.errors import BadRequestError, NotFoundError, Permanent
from recollect.fetch import Fetched, Fetcher, parse_url
from recollect.model import Blob, Extracted, Plan, Remembered


class WebCrawler(Connector):
    """Metadata: `startUrl`; `crawlDepth` (or `depth`, up to 20), `includePatterns` and
    `excludePatterns` (texts with `*`, several with commas or line ends between them) narrow the
    crawl."""

    provider = "web-crawler"
    name = "Web crawler"
    guide = GUIDE
    subject = "startUrl"
    tree = True
    plans = frozenset({Plan.SCALE, Plan.ENTERPRISE})
    interval = timedelta(days=7)
    # A crawl that finds no start page is soon repeated, and a user may want one at any time: a web
    # server that answers 404 for a morning must not cost a document.
    confirms_after = timedelta(days=1)

    def check(self, metadata: Mapping[str, Any], fetcher: Fetcher) -> dict[str, Any]:
        scope = CrawlScope.asked(metadata)
        verdict = fetcher.check(scope.start)
        # A name that cannot be looked up now may be right; the crawl tells.
        if not verdict.allowed and (verdict.addresses or not _may_be_public(scope.start)):
            raise wrong("startUrl", verdict.reason)
        return {**metadata, "startUrl": metadata["startUrl"].strip()}

    def diagnose(self, config: Config) -> Iterator[Assumption]:
        if config.crawl_contact is None and config.public_url is None:
            told = (
                "site owners cannot tell whom to ask: RECOLLECT_CRAWL_CONTACT, or else"
                " RECOLLECT_PUBLIC_URL, goes into the User-Agent"
            )
            yield Assumption("crawl contact", None, told)

    def changes(self, source: Source, cursor: Cursor | None) -> Iterator[Change]:
        crawl = Crawl(source, cursor)
        try:
            yield from crawl.run()
        finally:
            crawl.close()

    def fetch(self, source: Source, item: Remembered) -> Blob | Extracted:
        """A page whose text was not kept when it was listed."""
        answer = visit_alone(source, CrawlScope.of(source.metadata).start, item.id)
        match answer:
            case Fetched():
                return source.survey(answer.blob).extracted
            case NotHtml():
                raise Permanent(f"{item.id} is no longer an HTML page", code="unsupported_kind")
            case Redirected():
                raise NotFoundError("Not found", f"{item.id} redirects to {answer.target}")
            case Permanent(code="http_404" | "http_410"):
                raise NotFoundError("Not found", str(answer)) from answer
            case _:
                raise answer

    def sample(self, source: Source) -> Iterator[Change]:
        crawl = Crawl(source, None)
        try:
            yield crawl.look()[0]
        finally:
            crawl.close()

    def assumptions(self, source: Source) -> Iterator[Assumption]:
        crawl = Crawl(source, None)
        try:
            first, rules = crawl.look()
        finally:
            crawl.close()
        if isinstance(first, Trouble):
            yield Assumption("robots", False, first.message)
            return
        delay = max(rules.delay or 0.0, source.crawl_delay)
        maps = f"{len(rules.sitemaps)} sitemaps" if rules.sitemaps else "no sitemap"
        told = f"robots.txt allows the start page, {delay:g} seconds apart, and names {maps}"
        yield Assumption("robots", True, told)


def _may_be_public(url: str) -> bool:
    try:
        parse_url(url)
    except BadRequestError:
        return False
    return True
