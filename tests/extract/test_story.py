"""Pages that say that they are a story: their text, and nothing that leads to other stories."""

import time

import pytest

from recollect.extract.web import html
from recollect.model import Blob

URL = "https://news.orchard.test/2026/apples"
MAIN = "".join(
    f"<p>Sentence {n} tells of apples, of <a href='/pears/{n}'>pears {n}</a> and of those who grow "
    "them on the hills behind the town.</p>"
    for n in range(12)
)
MARKS = [
    '<meta property="og:type" content="article">',
    '<meta property="article:published_time" content="2026-01-02">',
    '<script type="application/ld+json">{"@type": "NewsArticle"}</script>',
    '<script type="application/ld+json">{"@graph":[{"@type":["BlogPosting"]}]}</script>',
]
OWN = "<ul><li><a href='/plums'>Plums are late</a></li><li><a href='/figs'>Figs came</a></li></ul>"
SHOPS = OWN.replace("'/", "'https://shop.test/")


def text(body: str, mark: str = MARKS[0], url: str | None = URL) -> str:
    page = f"<!doctype html><html><head><title>T</title>{mark}</head><body>{body}</body></html>"
    return html.extract(Blob(data=page.encode(), mime="text/html", url=url)).text


@pytest.mark.parametrize("mark", MARKS)
def test_captions_and_links_to_other_stories_are_left_out(mark):
    found = text(
        f"<article><h1>Apples</h1><figure><img src=a.jpg alt='A tree'><figcaption>Seen by Ann"
        f"</figcaption></figure><div class='article-body'>{MAIN}{OWN}{MAIN}</div></article>",
        mark,
    )

    assert found.startswith("# Apples\n\nSentence 0")
    assert found.count("(https://news.orchard.test/pears/7)") == 2
    for other in ("A tree", "Seen by", "Plums", "Figs"):
        assert other not in found


def test_what_is_no_story_keeps_captions_descriptions_and_lists():
    found = text(
        "<article><h1>Apples</h1><figure><img src=a.jpg><figcaption>Seen by Ann</figcaption>"
        f"</figure><img src=b.jpg alt='An old tree'>{MAIN}{OWN}</article>",
        mark="",
    )

    for kept in ("Seen by Ann", "An old tree", "[Plums are late](https://news.orchard.test/plums)"):
        assert kept in found


def test_a_story_keeps_lists_that_lead_to_other_sites():
    assert "[Plums are late](https://shop.test/plums)" in text(f"<article>{MAIN}{SHOPS}</article>")


def test_a_story_that_is_a_list_of_links_keeps_them():
    found = text(f"<article><h1>All of the week</h1>{MAIN}{OWN * 30}</article>")

    assert found.count("Plums are late") == 30


@pytest.mark.parametrize(
    "pointer",
    [
        "<p>Read more: <a href=/x>Plums are late</a></p>",
        "<p><strong>Lea también:</strong> <a href=/x>Plums are late</a></p>",
        "<p>相关阅读 <a href=/x>Plums are late</a></p>",
        f"<h3>Related articles</h3>{OWN}",
        f"<div><div><h3>You may also like</h3></div>{OWN}</div>",
        f"<h2>Das könnte Sie auch interessieren</h2>{OWN}{OWN}",
    ],
)
def test_what_leads_elsewhere_and_says_so_is_left_out_of_every_page(pointer):
    found = text(f"<main><h1>Apples</h1>{MAIN}{pointer}{MAIN}</main>", mark="")

    assert "Plums" not in found
    assert found.count("Sentence 11") == 2


@pytest.mark.parametrize(
    "kept",
    [
        f"<h2>See also</h2>{OWN}",
        "<h2>Related work</h2><p>Plums are late, says Ann, and others say so as well.</p>",
        "<p>Read more about plums: <em>Plums are late</em>, a book.</p>",
    ],
)
def test_what_only_sounds_alike_stays(kept):
    assert "Plums are late" in text(f"<main><h1>Apples</h1>{MAIN}{kept}</main>", mark="")


def test_the_paragraph_set_apart_ahead_of_the_text_stays():
    lead = "It was a late year for all that grows on trees, but nobody in the valley complained."
    found = text(
        f"<main><h1>Apples</h1><p class='standfirst'>{lead}</p><p class='byline'>By Ann</p>"
        f"<div class='article-body'>{MAIN}</div></main>"
    )

    assert found.startswith(f"# Apples\n\n{lead}\n\nSentence 0")


def test_labels_that_recur_are_those_of_a_list_and_stay():
    events = "".join(f"<li><span class='date'>May {n}</span> Fair {n}</li>" for n in range(1, 20))
    found = text(f"<main><h1>Fairs</h1><ul>{events}</ul>{MAIN}</main>", mark="")

    assert all(f"May {n} Fair {n}" in found for n in range(1, 20))


def test_of_a_story_without_containers_the_part_with_the_sentences_is_taken():
    box = "<div class=x><p>Be the first to hear of new trees, and of old ones.</p></div>"
    found = text(f"<div>{box}<div><div>{MAIN}</div></div>{box}</div>")

    assert found.startswith("Sentence 0")
    assert "Be the first" not in found


DEEP = 1_500
P = "<p>Some words of a sentence that is long enough to count as prose.</p>"
HOSTILE = {
    "leads in each other": lambda n: "<main>" + "<div class=lead>" * DEEP + P * n,
    "cores in each other": lambda n: "<main>" + "<div class=post-content>" * DEEP + P * n,
    "cores beside each other": lambda n: "<div>" * DEEP + f"<div class=post>{P}</div>" * (n // 8),
    "captions in each other": lambda n: "<div class=caption>" * DEEP + P * n,
    "headings of links": lambda n: f"<main>{MAIN}" + f"<b>Related</b>{OWN}" * n,
    "lists in each other": lambda n: (
        f"<main>{MAIN}" + "<ul><li>" * (DEEP // 2) + "<a href=x>x</a>" * n
    ),
    "pictures in a link": lambda n: f"<main>{MAIN}<a href=x>" + "<img src=a alt='a b'>" * n,
    "code in a table": lambda n: "<table>" + "<tr><td><pre>x</pre>" * (4 * n),
    "spans in each other": lambda n: (
        f"<main>{MAIN}" + "<span>" * DEEP + "Read more <a href=x>x</a>" * n
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_pages_made_to_be_slow_take_time_in_proportion(name):
    def seconds(count: int) -> float:
        started = time.thread_time()
        text(HOSTILE[name](count))
        return time.thread_time() - started

    # Where others work beside it, a measure is at most too long: one that is short enough will do.
    small = min(seconds(1_000) for _ in range(2))
    assert any(seconds(4_000) < 9 * max(small, 0.01) for _ in range(6))


@pytest.mark.parametrize(
    ("page", "kept"),
    [
        ("<p>One line.", "One line."),
        ("", ""),
        ("<frameset><frame src=a></frameset><noframes>Go on.</noframes>", ""),
        ("<pre>total 4\n-rw-r--r-- apples</pre>", "total 4\n-rw-r--r-- apples"),
        (f"<template>{P}</template><noscript>{P}</noscript><p>Seen.", "Seen."),
        ("<main dir=rtl><p>" + "مرحبا بكم في بستان التفاح. " * 30, "بستان التفاح"),
        ("<div><div><p>" + "山上的果园里种着许多苹果树。" * 60, "苹果树"),
    ],
)
def test_odd_pages_keep_what_they_say(page, kept):
    found = text(page)

    assert kept in found
    assert "Some words" not in found


@pytest.mark.parametrize(
    "part",
    [
        "<div class='alert alert-info'><p>Mind the frost.</p></div>",
        "<p class=notice--info>Mind the frost.</p>",
        "<div class='hint style-info'><p>Mind the frost.</p></div>",
        "<div class=sourceCode id=cb1><pre><code>Mind the frost.</code></pre></div>",
        "<div class='highlight print'><pre><code>Mind the frost.</code></pre></div>",
    ],
)
def test_notices_and_code_are_no_labels_of_a_story(part):
    assert "Mind the frost." in text(f"<article><h1>Apples</h1>{MAIN}{part}</article>")
