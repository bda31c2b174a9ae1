"""What a crawler reads: the links of a page and what it tells of itself; sitemaps."""

import gzip
import json
import re
import zlib

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recollect.errors import Permanent
from recollect.extract import Limits, Sandbox
from recollect.extract._wire import MAX_ENTRIES, MAX_LINKS, URL_LENGTH
from recollect.model import Blob, Link, Sitemap, SitemapEntry, WebPage
from tests.conftest import examples
from tests.extract.conftest import ROGUES

_DRAWN = examples(change=50, night=150)
_CHECKS = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
URL = "https://orchard.test/fruit/apples?page=2"
ARTICLE = " ".join(f"Sentence {n} tells of apples and of who grows them." for n in range(30))


@pytest.fixture(scope="module")
def survey(sandbox):
    def survey(page: str | bytes, url: str | None = URL, mime: str = "text/html") -> WebPage:
        data = page.encode() if isinstance(page, str) else page
        return sandbox.survey(Blob(data, mime=mime, url=url), owner="tests")

    return survey


@pytest.fixture(scope="module")
def sitemap(sandbox):
    def sitemap(text: str | bytes, **claims: str) -> Sitemap:
        data = text.encode() if isinstance(text, str) else text
        return sandbox.sitemap(Blob(data, **claims), owner="tests")

    return sitemap


@pytest.fixture(scope="module")
def tight():
    """Little processor time and memory; the clock does not count, for the machine may be busy."""
    limits = Limits(cpu_seconds=8, wall_factor=60, memory_bytes=600_000_000)
    with Sandbox(workers=1, limits=limits) as sandbox:
        yield sandbox


def urls(page: WebPage) -> list[str]:
    return [link.url for link in page.links]


def pages(sitemap: Sitemap) -> list[str]:
    return [entry.url for entry in sitemap.pages]


# --- links


def test_a_page_gives_its_text_its_links_and_what_it_tells_of_itself(survey):
    page = survey(
        f"""<!doctype html><html lang="de-AT"><head><title>Apples</title>
        <link rel="canonical" href="/fruit/apples"><meta name="robots" content="noarchive">
        <meta property="article:published_time" content="2026-03-01T08:00:00+01:00">
        <meta property="article:modified_time" content="2026-04-02"></head>
        <body><nav><a href="/">Home</a></nav>
        <main><h1>All apples</h1><p>{ARTICLE} <a href="../pears#top">Pears</a></p></main>
        <footer><a href="https://other.test" rel="nofollow">Other</a></footer></body></html>"""
    )

    assert page.extracted.text == (
        f"# All apples\n\n{ARTICLE} [Pears](https://orchard.test/pears#top)"
    )
    assert page.extracted.title == "Apples"
    assert page.extracted.kind == "webpage"
    assert list(page.links) == [
        Link("https://orchard.test/"),
        Link("https://orchard.test/pears"),
        Link("https://other.test/", followed=False),
    ]
    assert page.canonical == "https://orchard.test/fruit/apples"
    assert list(page.directives) == ["noarchive"]
    assert page.language == "de-AT"
    assert page.published == "2026-03-01T08:00:00+01:00"
    assert page.modified == "2026-04-02"


def test_the_text_is_the_one_that_extraction_gives(survey, read):
    page = f"<html><title>T</title><nav>Menu</nav><main><p>{ARTICLE}<a href=b>B</a></main>"

    surveyed, extracted = survey(page).extracted, read(page, url=URL, forced="webpage")

    assert surveyed.text == extracted.text
    assert (surveyed.title, surveyed.kind) == (extracted.title, extracted.kind)


@pytest.mark.parametrize(
    ("href", "url"),
    [
        ("b.html", "https://orchard.test/fruit/b.html"),
        ("./b", "https://orchard.test/fruit/b"),
        ("../b", "https://orchard.test/b"),
        ("../../../b", "https://orchard.test/b"),
        ("/b", "https://orchard.test/b"),
        ("//other.test/b", "https://other.test/b"),
        ("?page=3", "https://orchard.test/fruit/apples?page=3"),
        ("", URL),
        ("#top", URL),
        ("b#c", "https://orchard.test/fruit/b"),
        ("HTTP://Other.Test:80/B", "http://other.test/B"),
        ("http://bücher.test/", "http://xn--bcher-kva.test/"),
        ("  /b\n", "https://orchard.test/b"),
        ("/b\nc", "https://orchard.test/bc"),
        ("/a b", "https://orchard.test/a%20b"),
        ("/ä?ö", "https://orchard.test/%C3%A4?%C3%B6"),
        ("/a&amp;b?c&amp;d", "https://orchard.test/a&b?c&d"),
        ("\\b", "https://orchard.test/b"),
        ("https:b", "https://orchard.test/fruit/b"),
        ("http://127.1/", "http://127.0.0.1/"),
        ("javascript:go()", None),
        ("JAVASCRIPT:go()", None),
        ("mailto:a@orchard.test", None),
        ("tel:+431234", None),
        ("data:text/html,a", None),
        ("ftp://orchard.test/", None),
        ("file:///etc/passwd", None),
        ("http://", None),
        ("http://[", None),
        ("http://a b/", None),
        ("https://orchard.test:99999/", None),
        ("/" + "a" * URL_LENGTH, None),
    ],
)
def test_links_are_made_absolute_as_a_browser_does(survey, href, url):
    assert urls(survey(f'<html><a href="{href}">b</a>')) == ([url] if url else [])


def test_a_page_of_frames_leads_to_them(survey):
    frames = '<frame src="menu.html"><frameset rows=*><frame src="/start"><frame></frameset>'

    page = survey(f"<html><frameset cols=*,*>{frames}<noframes>None here</noframes></frameset>")

    assert urls(page) == ["https://orchard.test/fruit/menu.html", "https://orchard.test/start"]


@pytest.mark.parametrize(
    ("base", "url"),
    [
        ("/docs/", "https://orchard.test/docs/b"),
        ("docs/", "https://orchard.test/fruit/docs/b"),
        ("https://cdn.test/x/y", "https://cdn.test/x/b"),
        ("", "https://orchard.test/fruit/b"),
        ("http://[", "https://orchard.test/fruit/b"),
        ("javascript:alert(1)", "https://orchard.test/fruit/b"),
        ("data:text/html,", "https://orchard.test/fruit/b"),
    ],
)
def test_links_are_relative_to_the_base(survey, base, url):
    page = survey(f'<html><head><base href="{base}"></head><p><a href="b">{ARTICLE}</a>')

    assert urls(page) == [url]
    assert f"({url})" in page.extracted.text


def test_only_the_first_base_counts(survey):
    page = '<html><base target=_top><base href="/a/"><base href="/b/"><a href="c">c</a>'

    assert urls(survey(page)) == ["https://orchard.test/a/c"]


def test_without_an_address_only_absolute_links_are_found(survey):
    assert urls(survey('<html><a href="/a">a</a><a href="http://b.test">b</a>', url=None)) == [
        "http://b.test/"
    ]


def test_an_address_comes_once_where_it_comes_first(survey):
    page = survey('<html><a href="/b">1</a><a href="/a">2</a><a href="/b#x">3</a><a href="/a/">4')

    assert urls(page) == [
        "https://orchard.test/b",
        "https://orchard.test/a",
        "https://orchard.test/a/",
    ]


@pytest.mark.parametrize(
    ("rel", "followed"),
    [
        ("", True),
        ("noopener noreferrer", True),
        ("nofollow", False),
        ("NoFollow noopener", False),
        ("ugc", False),
        ("sponsored", False),
        ("nofollowing", True),
    ],
)
def test_links_that_the_page_does_not_endorse_are_marked(survey, rel, followed):
    page = survey(f'<html><a rel="{rel}" href="/a">a</a><area rel="{rel}" href="/b">')

    assert [link.followed for link in page.links] == [followed, followed]


def test_a_link_that_is_endorsed_somewhere_is_followed(survey):
    page = survey('<html><a rel=nofollow href="/a">a</a><a href="/a">a</a><a rel=ugc href="/a">a')

    assert list(page.links) == [Link("https://orchard.test/a")]


def test_every_part_of_a_page_may_link(survey):
    page = survey(
        """<html><head><link rel="stylesheet" href="/no.css"><link rel="NEXT" href="/next">
        <link rel=prev href="/prev"><link rel="alternate" href="/no.rss"></head><body>
        <header><a href="/header">h</a></header>
        <nav style="display:none"><a href="/menu">m</a></nav>
        <map><area href="/area"></map><div id=cookie-bar><a href="/privacy">p</a></div>
        <main><p>text</p><a href="/empty"></a><a name=here>no</a></main>
        <form action="/no"><a href="/form">f</a></form><noscript><a href="/plain">p</a></noscript>
        <!-- <a href="/no">c</a> --><script>"<a href='/no'>"</script><img src="/no.png">
        <iframe src="/no"></iframe><aside><a href="/aside">a</a></aside>
        <footer><a href="/footer">f</a></footer></body></html>"""
    )

    assert [url.removeprefix("https://orchard.test/") for url in urls(page)] == [
        "next", "prev", "header", "menu", "area", "privacy", "empty", "form", "plain", "aside",
        "footer",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("content", "url"),
    [
        ("0; url=/b", "https://orchard.test/b"),
        ("5;URL='/b'", "https://orchard.test/b"),
        ("0.5, url = &quot;/b c&quot;", "https://orchard.test/b%20c"),
        ("0 /b", "https://orchard.test/b"),
        ("0; url=https://other.test/b", "https://other.test/b"),
        ("30", None),
        ("0; url=", None),
        ("0; url=javascript:go()", None),
        ("", None),
    ],
)
def test_a_redirect_by_the_page_is_a_link(survey, content, url):
    page = survey(f'<html><meta http-equiv="Refresh" content="{content}"><p>Moved')

    assert urls(page) == ([url] if url else [])


def test_of_very_many_links_the_first_are_taken(survey):
    page = survey("<html><main>" + "".join(f"<a href=/{n}>{n}</a> " for n in range(20_000)))

    assert urls(page) == [f"https://orchard.test/{n}" for n in range(MAX_LINKS)]
    assert "19999" in page.extracted.text


def test_the_query_of_a_link_is_in_the_encoding_of_the_page(survey):
    page = '<html><meta charset="windows-1251"><a href="/я?q=я#я">я</a>'.encode("windows-1251")

    assert urls(survey(page)) == ["https://orchard.test/%D1%8F?q=%FF"]


def test_a_query_that_the_encoding_of_the_page_lacks_is_utf_8(survey):
    page = b'<html><meta charset="windows-1252"><a href="/?q=&#1103;">a</a>'

    assert urls(survey(page)) == ["https://orchard.test/?q=%D1%8F"]


# --- what a page tells of itself


@pytest.mark.parametrize(
    ("head", "canonical"),
    [
        ('<link rel="canonical" href="/a?b#c">', "https://orchard.test/a?b"),
        ('<link rel="x CANONICAL" href="a">', "https://orchard.test/fruit/a"),
        ('<link rel="canonical" href="a"><link rel="canonical" href="/fruit/a#x">',
         "https://orchard.test/fruit/a"),
        ('<link rel="canonical" href="a"><link rel="canonical" href="b">', None),
        ('<base href="/x/"><link rel="canonical" href="a">', "https://orchard.test/x/a"),
        ('<link rel="canonical" href="javascript:a">', None),
        ('<link rel="canonical">', None),
        ('<meta http-equiv="Refresh" content="0; url=/new">', "https://orchard.test/new"),
        ('<meta http-equiv=refresh content="0;/new"><link rel=canonical href=/a>',
         "https://orchard.test/a"),
        ('<meta http-equiv="refresh" content="30; url=/new">', None),
        ('<meta http-equiv="refresh" content="0">', None),
        ('<noscript><meta http-equiv="refresh" content="0; url=/old-browsers"></noscript>', None),
        ("", None),
        ('<body><p>said a visitor: <link rel="canonical" href="/a">', None),
    ],
    ids=range(14),
)  # fmt: skip
def test_the_address_that_a_page_calls_its_own(survey, head, canonical):
    assert survey(f"<html>{head}<p>text").canonical == canonical


@pytest.mark.parametrize(
    ("head", "directives"),
    [
        ("<meta name=robots content='NOINDEX,NoFollow'>", ["noindex", "nofollow"]),
        ("<META NAME='Robots' CONTENT='none'>", ["noindex", "nofollow"]),
        ("<meta name=robots content=' noindex , , noarchive '>", ["noindex", "noarchive"]),
        ("<meta name=robots content='noindex nofollow'>", ["noindex", "nofollow"]),
        ("<meta name=robots content=''>", []),
        ("<meta name=RecollectBot content=noindex>", ["noindex"]),
        ("<meta name=PlumBot content=noindex>", []),
        ("<meta name=description content=noindex>", []),
        (
            "<meta name=robots content=nofollow>"
            "<meta name=recollectbot content='noindex,nofollow'>",
            ["nofollow", "noindex"],
        ),
        (
            "<meta name=robots "
            "content='unavailable_after: Wed, 25 Jun 2031 15:00:00 GMT, nofollow'>",
            ["unavailable_after: Wed, 25 Jun 2031 15:00:00 GMT", "nofollow"],
        ),
        ("<meta name=robots content='max-snippet:-1, MAX-image-preview: Large'>",
         ["max-snippet: -1", "max-image-preview: large"]),
        ("<body><div><meta name=robots content=noindex>", ["noindex"]),
        ("", []),
    ],
    ids=range(13),
)  # fmt: skip
def test_what_a_page_asks_of_robots(survey, head, directives):
    assert list(survey(f"<html>{head}<p>text").directives) == directives


@pytest.mark.parametrize(
    ("attributes", "language"),
    [
        ("lang=en", "en"),
        ("lang=' pt-BR '", "pt-BR"),
        ("lang=zh_Hant", "zh-Hant"),
        ("xml:lang=fr", "fr"),
        ("lang=''", None),
        ("lang='<b>'", None),
        ("lang=" + "en-" * 200, None),
        ("", None),
    ],
    ids=range(8),
)
def test_the_language_that_a_page_declares(survey, attributes, language):
    assert survey(f"<!doctype html><html {attributes}><p>text").language == language


def _linked(*things: object) -> str:
    return "".join(
        f'<script type="application/ld+json">{json.dumps(thing)}</script>' for thing in things
    )


@pytest.mark.parametrize(
    ("page", "published", "modified"),
    [
        (
            "<meta property='article:published_time' content='2026-01-02T03:04:05Z'>",
            "2026-01-02T03:04:05Z",
            None,
        ),
        ("<meta name='article:modified_time' content=' 2026-01-02 '>", None, "2026-01-02"),
        (
            "<meta property='og:updated_time' content='2026-01-02T03:04:05 +0100'>",
            None,
            "2026-01-02T03:04:05+0100",
        ),
        (
            _linked(
                {
                    "@type": "NewsArticle",
                    "datePublished": "2026-01-02",
                    "dateModified": "2026-02-03",
                }
            ),
            "2026-01-02",
            "2026-02-03",
        ),
        (
            _linked(
                [
                    {"@type": "WebSite"},
                    {"@type": ["Thing", "BlogPosting"], "datePublished": "2026-01-02"},
                ]
            ),
            "2026-01-02",
            None,
        ),
        (
            _linked(
                {
                    "@graph": [
                        {"@type": "Person"},
                        {"@type": "Article", "datePublished": "2026-01-02"},
                    ]
                }
            ),
            "2026-01-02",
            None,
        ),
        (
            _linked(
                {"@type": "Event", "datePublished": "2020-01-01"},
                {"@type": "Article", "datePublished": "2026-01-02"},
            ),
            "2026-01-02",
            None,
        ),
        (_linked({"@type": "Article", "comment": [{"datePublished": "2020-01-01"}]}), None, None),
        (_linked({"datePublished": 20260102}), None, None),
        (
            '<script type="application/ld+json">{"datePublished": "2026-01-02",}</script>',
            None,
            None,
        ),
        (
            '<script type="application/ld+json">{"a":"a\nb","datePublished":"2026-01-02"}</script>',
            "2026-01-02",
            None,
        ),
        ("<meta itemprop=datePublished content=2026-01-02>", "2026-01-02", None),
        (
            "<body><span itemprop='datePublished'>2026-01-02</span>"
            "<time itemprop=dateModified datetime=2026-02-03>last week</time>",
            "2026-01-02",
            "2026-02-03",
        ),
        ("<meta name=DC.date.issued content=2026-01-02>", "2026-01-02", None),
        ("<meta http-equiv=last-modified content=2026-01-02>", None, "2026-01-02"),
        ("<body><article><time datetime='2026-01-02 10:00'>today</time>", "2026-01-02 10:00", None),
        (
            "<body><time class=updated datetime=2026-02-03></time><time datetime=2026-01-02>",
            "2026-01-02",
            "2026-02-03",
        ),
        (
            "<body><nav><time datetime=2020-01-01></time></nav>"
            "<aside><time datetime=2020-01-02></time></aside><p><time datetime=2026-01-02>x</time>",
            "2026-01-02",
            None,
        ),
        ("<body><time datetime=10:30>half past ten</time>", None, None),
        ("<meta property='article:published_time' content='0001-01-01T00:00:00'>", None, None),
        (
            "<meta property='article:published_time' content='last week'>"
            "<meta name=date content=2026-01-02>",
            "2026-01-02",
            None,
        ),
        ("<meta property='article:published_time' content='2026-13-45'>", None, None),
        ("<meta property='article:published_time' content=''>", None, None),
        (
            _linked({"datePublished": "2025-01-01"})
            + "<meta property='article:published_time' content='2026-01-02'>",
            "2026-01-02",
            None,
        ),
        ("", None, None),
    ],
    ids=range(25),
)
def test_when_a_page_was_published_and_changed(survey, page, published, modified):
    found = survey(f"<!doctype html><html>{page}<p>text")

    assert (found.published, found.modified) == (published, modified)


# --- hostile pages


@pytest.mark.parametrize(
    "page",
    [
        "",
        "<",
        "<html",
        "<html><a href=",
        "<html><a href='/a",
        "<html><a href=/a" + " x" * 4_000,
        "<html><head><base href=" + "a" * 100_000 + "><a href=b>b</a>",
        "<html><meta http-equiv=refresh content='" + "1." * 100_000 + "'>",
        "<html><meta http-equiv=refresh content='" + " " * 100_000 + "'>",
        "<html><meta name=robots content='" + "a, " * 100_000 + "'>",
        "<html><meta name=robots content='unavailable_after: " + "9" * 100_000 + "'>",
        "<html>" + "<meta name=robots content=noindex>" * 10_000,
        "<html>" + "<time datetime=2026-01-02 class=a></time>" * 20_000,
        "<html>" + "<div>" * 1_900 + "<time datetime=2026-01-02 class=a></time>" * 60_000,
        "<html>" + "<div class=cookie>" * 1_900 + "<i></i><b>a</b>" * 8_000,
        "<html><script type='application/ld+json'>" + "[" * 400_000 + "</script>",
        "<html><script type='application/ld+json'>" + '{"@graph":' * 9_000 + "</script>",
        "<html><script type='application/ld+json'>[" + "{}," * 300_000 + "{}]</script>",
        "<html><script type='application/ld+json'>" + "9" * 900_000 + "</script>",
        '<html><script type="application/ld+json">{"datePublished":"\\ud800"}</script>',
        "<html>" + "<script type='application/ld+json'>{}</script>" * 10_000,
        "<html lang='\ud800'>".encode("utf-8", "surrogatepass").decode("latin-1"),
        "<html><a href='http://&#xD800;.test/'>a</a><a href='/&#xD800;&#0;'>b</a>",
    ],
    ids=range(23),
)
def test_a_hostile_page_is_read_in_bounded_time(tight, page):
    found = tight.survey(Blob(page.encode("utf-8", "replace"), mime="text/html", url=URL))

    assert len(found.links) <= MAX_LINKS
    assert len(found.directives) <= 50


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"%PDF-1.7 and so on", "unsupported_kind"),
        (b"PK\x03\x04" + bytes(40), "unsupported_kind"),
        (b"\x89PNG\r\n\x1a\n" + bytes(40), "unsupported_kind"),
        (b"\x00\x01\x02\x03" * 100, "unsupported_kind"),
        (b"<html>" + b"<b>" * 100_000, "unreadable_content"),
        (b"<html><a " + b"x " * 50_000 + b"href=/a>", "unreadable_content"),
    ],
    ids=["pdf", "zip", "png", "binary", "nested", "attributes"],
)
def test_what_is_no_page_or_would_choke_a_parser_is_refused(survey, data, code):
    with pytest.raises(Permanent) as caught:
        survey(data)

    assert caught.value.code == code


def test_a_page_larger_than_allowed_is_refused():
    with Sandbox(workers=1, limits=Limits(input_bytes=100)) as sandbox:
        for read in (sandbox.survey, sandbox.sitemap):
            with pytest.raises(Permanent) as caught:
                read(Blob(b"<html>" + b"a" * 100, mime="text/html"))

            assert caught.value.code == "too_large"


def test_text_and_links_are_bounded_apart():
    links = "".join(f"<a href=/{n}>word</a> " for n in range(MAX_LINKS))
    limits = Limits(text_bytes=1_000)
    with Sandbox(workers=1, packages=[ROGUES], limits=limits) as sandbox:
        page = sandbox.survey(Blob(f"<html>{links}".encode(), mime="text/html", url=URL))

    assert len(page.extracted.text) <= 1_000
    assert len(page.links) == MAX_LINKS


@settings(max_examples=_DRAWN, deadline=None, suppress_health_check=_CHECKS)
@given(
    choice=st.binary(max_size=40),
    url=st.sampled_from([None, URL, "http://", "not a url", "https://e.test/ä"]),
)
def test_no_page_breaks_it_and_links_are_absolute(sandbox, choice, url):
    pieces = ["<html>", "<head>", "<base href=", "<a href=", "<link rel=canonical href=", "<meta ",
              "name=robots ", "http-equiv=refresh ", "content=", "'", '"', ">", "</a>", "</html>",
              "http://", "//", "/", "#", "?", "[", "%", "é", "\x00", "&#xD800;", "<script", "<svg>",
              "<template>", "<table>", "<time datetime=", "2026", " ", "<!--", "-->"]  # fmt: skip
    page = "<html>" + "".join(pieces[number % len(pieces)] for number in choice)
    found = sandbox.survey(Blob(page.encode(), mime="text/html", url=url), owner="tests")

    assert all(link.url.startswith(("http://", "https://")) for link in found.links)
    assert all("#" not in link.url for link in found.links)
    assert len(set(urls(found))) == len(found.links)


# --- sitemaps

URLSET = """<?xml version="1.0" encoding="UTF-8"?>
<urlset xmlns="http://www.sitemaps.org/schemas/sitemap/0.9" xmlns:image="urn:i" xmlns:xhtml="urn:x">
  <url><loc>
    https://orchard.test/?a=1&amp;b=2 </loc><lastmod> 2026-01-02</lastmod><priority>1</priority>
    <image:image><image:loc>https://orchard.test/tree.png</image:loc></image:image>
    <xhtml:link rel="alternate" hreflang="de" href="https://orchard.test/de"/></url>
  <url><image:image><image:loc>https://orchard.test/bud.png</image:loc></image:image><loc><![CDATA[https://orchard.test/b?c&d]]></loc></url>
  <url><lastmod>2026-01-02</lastmod></url>
  <url><loc>https://orchard.test/ä</loc></url>
  <url><loc>https://orchard.test/ä</loc><lastmod>2020</lastmod></url>
</urlset>"""
FOUND = Sitemap(
    (
        SitemapEntry("https://orchard.test/?a=1&b=2", "2026-01-02"),
        SitemapEntry("https://orchard.test/b?c&d"),
        SitemapEntry("https://orchard.test/ä"),
    ),
    (),
)


def test_a_sitemap_names_pages_and_when_they_changed(sitemap):
    assert sitemap(URLSET) == FOUND


def test_an_index_names_sitemaps(sitemap):
    index = """<s:sitemapindex xmlns:s="http://www.sitemaps.org/schemas/sitemap/0.9">
    <s:sitemap><s:loc>https://orchard.test/1.xml.gz</s:loc><s:lastmod>2026</s:lastmod></s:sitemap>
    <s:sitemap><s:loc>/2.xml</s:loc></s:sitemap></s:sitemapindex>"""

    assert sitemap(index) == Sitemap((), ("https://orchard.test/1.xml.gz", "/2.xml"))


@pytest.mark.parametrize(
    "pack",
    [
        gzip.compress,
        lambda data: gzip.compress(data[:200]) + gzip.compress(data[200:]),
        lambda data: gzip.compress(data) + b"rubbish behind it",
        lambda data: data.decode().encode("utf-8-sig"),
        lambda data: b"\n\n \t" + data,
        lambda data: data.decode().replace("UTF-8", "UTF-16").encode("utf-16"),
        lambda data: data.decode().replace("UTF-8", "iso-8859-1").encode("latin-1"),
        lambda data: data.replace(b"\n", b"\r\n"),
        lambda data: data.replace(b' encoding="UTF-8"', b""),
        lambda data: data.replace(b"<url>", b"<!-- a --><?b c?><url>"),
        lambda data: re.sub(rb"(</?)(?=url|loc|lastmod)", rb"\1s:", data),
    ],
    ids=["gzip", "members", "tail", "bom", "space", "utf-16", "latin-1", "crlf", "undeclared",
         "comments", "prefix"],
)  # fmt: skip
def test_a_sitemap_may_come_in_many_forms(sitemap, pack):
    assert sitemap(pack(URLSET.encode()), mime="application/octet-stream", name="s.bin") == FOUND


def test_a_list_of_lines_is_a_sitemap(sitemap):
    text = "\ufeffhttps://orchard.test/a\r\n  HTTP://orchard.test/b?c#d  \n\n# no\nftp://no\n/no\n"

    assert sitemap(text) == Sitemap(
        (SitemapEntry("https://orchard.test/a"), SitemapEntry("HTTP://orchard.test/b?c#d")), ()
    )


RSS = """<?xml version="1.0"?><rss version="2.0"><channel><link>https://no.test/</link>
<image><link>https://no.test/</link></image>
<item><title>A</title><link>https://orchard.test/a</link>
<pubDate>Tue, 10 Jun 2025 04:00:00 GMT</pubDate></item>
<item><link>https://orchard.test/b</link><pubDate>yesterday</pubDate></item></channel></rss>"""
ATOM = """<feed xmlns="http://www.w3.org/2005/Atom"><link href="https://no.test/"/><updated>2020</updated>
<entry><link rel="enclosure" href="https://no.test/a.mp3"/><link href="https://orchard.test/a"/>
<updated>2026-01-02T03:04:05Z</updated></entry>
<entry><link rel="alternate" href="https://orchard.test/b"/><link href="https://no.test"/></entry></feed>"""
RDF = """<rdf:RDF xmlns:rdf="urn:r" xmlns:dc="urn:d"><channel><link>https://no.test/</link></channel>
<item><link>https://orchard.test/a</link><dc:date>2026-01-02</dc:date></item></rdf:RDF>"""


@pytest.mark.parametrize(
    ("feed", "found"),
    [
        (RSS, [("a", "2025-06-10T04:00:00+00:00"), ("b", None)]),
        (ATOM, [("a", "2026-01-02T03:04:05Z"), ("b", None)]),
        (RDF, [("a", "2026-01-02")]),
    ],
    ids=["rss", "atom", "rdf"],
)
def test_a_feed_is_a_sitemap(sitemap, feed, found):
    assert list(sitemap(feed).pages) == [
        SitemapEntry(f"https://orchard.test/{name}", time) for name, time in found
    ]


def test_a_stray_ampersand_does_not_end_a_sitemap(sitemap):
    text = "<urlset><url><loc>https://e.test/?a&b&amp;c&nbsp;&#38;&#x26;</loc></url></urlset>"

    assert pages(sitemap(text)) == ["https://e.test/?a&b&c&nbsp;&&"]


def _urlset(count: int, name: str = "url", root: str = "urlset") -> bytes:
    entries = "".join(f"<{name}><loc>https://e.test/{n}</loc></{name}>" for n in range(count))
    return f"<{root}>{entries}</{root}>".encode()


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data[:-100],
        lambda data: data[:-9] + b"</wrong>",
        lambda data: data.replace(b"/99<", b"/99</url><"),
        lambda data: data.replace(b"/99<", b"/99\x00<"),
        lambda data: gzip.compress(data)[:-20],
    ],
    ids=["cut", "unmatched", "crossed", "nul", "cut-gzip"],
)
def test_of_a_damaged_sitemap_what_stands_before_is_read(sitemap, damage):
    found = pages(sitemap(damage(_urlset(100))))

    assert found == [f"https://e.test/{n}" for n in range(len(found))]
    assert len(found) >= 80


def test_of_a_huge_sitemap_the_first_are_taken(sitemap):
    found = sitemap(_urlset(MAX_ENTRIES + 2_000))
    index = sitemap(_urlset(MAX_ENTRIES + 2_000, "sitemap", "sitemapindex"))
    lines = sitemap("".join(f"https://e.test/{n}\n" for n in range(MAX_ENTRIES + 2_000)))

    assert pages(found) == pages(lines) == list(index.sitemaps)
    assert len(found.pages) == MAX_ENTRIES


def test_addresses_that_are_too_long_are_left_out(sitemap):
    long = "https://e.test/" + "a" * URL_LENGTH
    text = f"<urlset><url><loc>{long}</loc></url><url><loc>https://e.test/</loc></url></urlset>"

    assert pages(sitemap(text)) == ["https://e.test/"]
    assert pages(sitemap(f"{long}\nhttps://e.test/")) == ["https://e.test/"]


BOMB = """<!DOCTYPE urlset [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;&a;&a;">
<!ENTITY c "&b;&b;&b;&b;&b;&b;&b;&b;&b;&b;">]><urlset><url><loc>https://e.test/&c;</loc></url></urlset>"""
THIEF = """<!DOCTYPE urlset [<!ENTITY f SYSTEM "file:///etc/passwd">]>
<urlset><url><loc>https://e.test/&f;</loc></url></urlset>"""


@pytest.mark.parametrize(
    "text",
    [
        BOMB,
        BOMB.encode("utf-16"),
        gzip.compress(BOMB.encode()),
        "<?xml version='1.0'?><!-- a > b --> " + BOMB,
        THIEF,
        "<!DOCTYPE urlset SYSTEM 'http://e.test/s.dtd'><urlset/>",
        "<!DOCTYPE urlset [<!ATTLIST url a CDATA 'aaaaaaaaaaaaaaaaaaaa'>]><urlset><url/></urlset>",
        "<!doctype html><html><title>Not found</title>",
        "<html><body>Not found</body></html>",
        "<svg xmlns='http://www.w3.org/2000/svg'><url><loc>https://e.test</loc></url></svg>",
        "<unknown/>",
        "<",
        "just words",
        '{"urls": ["https://e.test/"]}',
        b"\x1f\x8b" + bytes(30),
        gzip.compress(gzip.compress(URLSET.encode())),
        b"\x89PNG\r\n\x1a\n" + bytes(40),
    ],
    ids=["bomb", "bomb-utf-16", "bomb-gzip", "bomb-late", "thief", "dtd", "defaults", "html",
         "page", "svg", "unknown", "open", "words", "json", "bad-gzip", "twice", "png"],
)  # fmt: skip
def test_what_is_no_sitemap_or_a_trap_is_refused(sitemap, text):
    with pytest.raises(Permanent) as caught:
        sitemap(text)

    assert caught.value.code == "unreadable_content"


def test_an_empty_sitemap_names_nothing(sitemap):
    assert sitemap("") == sitemap("<urlset/>") == sitemap(gzip.compress(b"")) == Sitemap((), ())


def _outcome(sandbox: Sandbox, data: bytes) -> list[str] | str:
    """The pages, or the code of what was wrong."""
    try:
        return pages(sandbox.sitemap(Blob(data), owner="tests"))
    except Permanent as error:
        return error.code


def _zeros(count: int) -> bytes:
    packer = zlib.compressobj(wbits=31)
    piece = b"<urlset>" + b"\0" * 1_000_000
    return b"".join(packer.compress(piece) for _ in range(count)) + packer.flush()


# Made by the test that wants one: whoever only collects tests has no time for them.
@pytest.mark.parametrize(
    "data",
    [
        lambda: _zeros(300),
        lambda: gzip.compress(b"") * 300_000,
        lambda: b"<urlset><!-- " + b"a" * 9_000_000,
        lambda: b"<!-- " + b"a" * 9_000_000,
        lambda: b"<!---->" * 1_000_000,
        lambda: b"<urlset a='" + b"a" * 9_000_000,
        lambda: b"<urlset>" + b"<![CDATA[" * 1_000_000,
        lambda: b"<urlset>" + b"<a>" * 1_000_000,
        lambda: b"<urlset>" + b"&" * 2_000_000,
        lambda: b"<urlset><url><loc>" + b"a" * 9_000_000,
        lambda: b"<urlset>" + b"<url><loc>https://e.test/</loc></url>" * 200_000,
        lambda: b"<" * 9_000_000,
    ],
    ids=["zeros", "members", "comment", "comment-first", "comments", "attribute", "cdata", "deep",
         "ampersands", "address", "same", "tags"],
)  # fmt: skip
def test_a_hostile_sitemap_is_over_in_bounded_time_and_memory(tight, data):
    outcome = _outcome(tight, data())

    assert outcome == "unreadable_content" or len(outcome) <= 1


@settings(max_examples=_DRAWN, deadline=None, suppress_health_check=_CHECKS)
@given(choice=st.binary(max_size=40), cut=st.integers(0, 60))
def test_no_sitemap_breaks_it(sandbox, choice, cut):
    pieces = ["<urlset>", "<url>", "<loc>", "https://e.test/", "a", "</loc>", "</url>", "</urlset>",
              "<sitemap>", "</sitemap>", "<item>", "<link>", "<entry>", "<link href='x'/>", "&",
              "&#0;", "<!--", "-->", "<![CDATA[", "]]>", "<?xml?>", "<!DOCTYPE a>"]  # fmt: skip
    data = ("<urlset>" + "".join(pieces[number % len(pieces)] for number in choice)).encode()
    for blob in (data, gzip.compress(data)[:-cut]):
        outcome = _outcome(sandbox, blob)

        assert outcome == "unreadable_content" or all(outcome)
