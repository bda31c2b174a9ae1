"""A web site with state, on loopback, over `Website`: pages that change, move and vanish.

    with Site() as site:
        site.write("/", "Welcome.", links=["/a", "/b"])
        site.robots("User-agent: *\nDisallow: /b")

What is written has an ETag and a Last-Modified, and answers 304 to those that know them.
"""

import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from email.utils import format_datetime
from html import escape

from tests.fakes.website import Exchange, Request, Website, answer

WRITTEN = datetime(2025, 6, 1, tzinfo=UTC)
WORDS = (
    "harbour lantern meadow copper willow saddle thunder velvet cinder orchard marble falcon"
    " ribbon glacier pepper anchor timber quartz hollow ember juniper canvas plover rudder"
)


def prose(seed: str, words: int = 80) -> str:
    """Text that no other seed gives, or anything near it."""
    known = WORDS.split()
    found: list[str] = []
    while len(found) < words:
        digest = hashlib.sha256(f"{seed} {len(found)}".encode()).digest()
        found += [known[byte % len(known)] + digest.hex()[:2] for byte in digest[:16]]
    return " ".join(found[:words]) + f" {seed}"


def html(
    text: str,
    links: Sequence[str] = (),
    *,
    title: str = "",
    head: str = "",
    nofollow: Sequence[str] = (),
) -> str:
    anchors = [f'<a href="{escape(link)}">{escape(link)}</a>' for link in links]
    anchors += [f'<a rel="nofollow" href="{escape(link)}">x</a>' for link in nofollow]
    return (
        f'<!doctype html><html lang="en"><head><title>{escape(title)}</title>{head}</head>'
        f"<body><main><p>{escape(text)}</p></main><nav>{' '.join(anchors)}</nav></body></html>"
    )


class Site(Website):
    """`requests` and `paths()` tell what was asked for, in order."""

    def write(
        self,
        path: str,
        text: str | None = None,
        links: Sequence[str] = (),
        *,
        title: str | None = None,
        head: str = "",
        nofollow: Sequence[str] = (),
        headers: Mapping[str, str] | None = None,
        etag: bool = True,
        modified: bool = True,
    ) -> None:
        """A page; without a text, one that only this path has."""
        body = html(
            prose(path) if text is None else text,
            links,
            title=f"Page {path}" if title is None else title,
            head=head,
            nofollow=nofollow,
        )
        validators: dict[str, str] = {}
        if etag:
            validators["ETag"] = f'"{hashlib.sha256(body.encode()).hexdigest()[:16]}"'
        if modified:
            validators["Last-Modified"] = format_datetime(WRITTEN, usegmt=True)
        told = {"Content-Type": "text/html; charset=utf-8", **validators, **(headers or {})}

        def serve(exchange: Exchange) -> bool:
            if _knows(exchange.request, validators):
                exchange.send(answer(304, b"", {**validators, **(headers or {})}))
            else:
                exchange.send(answer(200, body.encode(), told))
            return True

        self.route(path, serve)

    def render(self, path: str, body: Callable[[Request], str]) -> None:
        """Pages that are made when they are asked for; `path` may end in `*`."""

        def serve(exchange: Exchange) -> bool:
            data = body(exchange.request).encode()
            exchange.send(answer(200, data, {"Content-Type": "text/html; charset=utf-8"}))
            return True

        self.route(path, serve)

    def robots(self, text: str) -> None:
        self.page("/robots.txt", text, mime="text/plain")

    def sitemap(
        self, path: str, urls: Sequence[str], *, index: bool = False, modified: str | None = None
    ) -> None:
        outer, inner = ("sitemapindex", "sitemap") if index else ("urlset", "url")
        when = f"<lastmod>{modified}</lastmod>" if modified else ""
        entries = "".join(f"<{inner}><loc>{escape(url)}</loc>{when}</{inner}>" for url in urls)
        body = (
            '<?xml version="1.0" encoding="UTF-8"?>'
            f'<{outer} xmlns="http://www.sitemaps.org/schemas/sitemap/0.9">{entries}</{outer}>'
        )
        self.page(path, body, mime="application/xml")

    def status(self, path: str, status: int, headers: Mapping[str, str] | None = None) -> None:
        """This page answers so from now on."""
        self.page(path, b"", status=status, headers=headers)

    def header(self, path: str, name: str, beginning: str, *, otherwise: int) -> None:
        """From now on it is served only if a header of the request begins so."""
        served = self._behaviour(path)

        def serve(exchange: Exchange) -> bool | None:
            if exchange.request.headers.get(name, "").startswith(beginning):
                return served(exchange)
            exchange.send(answer(otherwise, b"", {}))
            return True

        self.route(path, serve)

    def limit(self, path: str, *, times: int, retry_after: str | None) -> None:
        """429 the next times; then what the path answered before."""
        served = self._behaviour(path)
        left = [times]

        def serve(exchange: Exchange) -> bool | None:
            if left[0] > 0:
                left[0] -= 1
                headers = {} if retry_after is None else {"Retry-After": retry_after}
                exchange.send(answer(429, b"slow down", headers))
                return True
            return served(exchange)

        self.route(path, serve)

    def pages(self) -> list[str]:
        """What was asked for, but for robots.txt and sitemaps."""
        return [path for path in self.paths() if path not in ("/robots.txt", "/sitemap.xml")]

    def forget(self) -> None:
        self.requests.clear()

    def meeting(self, path: str, parties: int) -> None:
        """Requests below this path are answered when so many are there at the same time."""
        gate = threading.Barrier(parties)

        def serve(exchange: Exchange) -> bool:
            gate.wait(60)
            text = prose(exchange.request.path)
            exchange.send(answer(200, html(text).encode(), {"Content-Type": "text/html"}))
            return True

        self.route(path, serve)


def _knows(request: Request, validators: Mapping[str, str]) -> bool:
    """RFC 9110 13.2.2: the ETag decides if the client names one."""
    tag = request.headers.get("if-none-match")
    if tag is not None:
        return tag == validators.get("ETag")
    since = request.headers.get("if-modified-since")
    return since is not None and since == validators.get("Last-Modified")
