"""How much of a page's main text, and how little else, reaches the text.

Pages are built here as common software builds them, of words that are known: those of the main
text and, from other syllables, those of everything around it. `python -m
tests.extract.test_page_quality` shows the figures.
"""

# ruff: noqa: E501 - markup as it comes

import random
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from recollect.extract import Sandbox
from recollect.model import Blob

URL = "https://orchard.test/some/page"
MEAN = 0.985
FLOOR = 0.94
LEAKED = 0.06
"""Share of the words around the main text that may reach the text, of all pages together."""

LATIN = ["ber", "ka", "lon", "mi", "ru", "sta", "gro", "ffe", "hin", "del", "wy", "po"]
CYRILLIC = ["бе", "ка", "лон", "ми", "ру", "ста", "гро", "фе", "хи", "дел", "вы", "по"]
ARABIC = ["با", "كا", "لون", "مي", "رو", "ستا", "غرو", "في", "هن", "دل", "وي", "بو"]
DEVANAGARI = ["बे", "का", "लो", "मि", "रु", "स्ता", "ग्रो", "फे", "हि", "दे", "वी", "पो"]
GREEK = ["βε", "κα", "λον", "μι", "ρου", "στα", "γρο", "φε", "χιν", "δελ", "βι", "πο"]
HAN = list("天地玄黄宇宙洪荒日月盈昃辰宿列张寒来暑往秋收冬藏")
KANA = list("いろはにほへとちりぬるをわかよたれそつねならむ")
NOISE = ["xu", "qua", "zyx", "vex", "jaz", "quo", "zib", "jux"]
NOISE_HAN = list("龍龜鑿齋鬱灣籲")


@dataclass
class Prose:
    """Words out of syllables, the same each time; it remembers all that it gave."""

    syllables: list[str]
    space: str = " "
    stop: str = "."
    dice: random.Random = field(default_factory=lambda: random.Random(11))
    used: list[str] = field(default_factory=list[str])

    def words(self, count: int) -> str:
        new = [
            "".join(self.dice.choices(self.syllables, k=self.dice.randint(2, 4)))
            for _ in range(count)
        ]
        self.used.append(text := self.space.join(new))
        return text

    def sentence(self, count: int = 12) -> str:
        return self.words(count).capitalize() + self.stop

    def paragraph(self, sentences: int = 5) -> str:
        return " ".join(self.sentence(self.dice.randint(8, 16)) for _ in range(sentences))

    def paragraphs(self, count: int = 5, mark: str = "p") -> str:
        return "\n".join(f"<{mark}>{self.paragraph()}</{mark}>" for _ in range(count))

    def items(self, count: int, size: int = 4, mark: str = "li") -> str:
        return "\n".join(f"<{mark}>{self.words(size)}</{mark}>" for _ in range(count))

    def links(self, count: int, size: int = 2, mark: str = "li", kind: str = "") -> str:
        return "\n".join(
            f'<{mark} class="{kind}"><a href="/{number}/{self.dice.randint(1, 99)}">'
            f"{self.words(size)}</a></{mark}>"
            for number in range(count)
        )

    def rows(self, count: int, columns: int, cell: str = "td") -> str:
        return "\n".join(
            "<tr>" + "".join(f"<{cell}>{self.words(2)}</{cell}>" for _ in range(columns)) + "</tr>"
            for _ in range(count)
        )


_DENSE = "\u3040-\u30ff\u4e00-\u9fff"
_WORD = re.compile(rf"[{_DENSE}]|(?:(?![{_DENSE}])[\w\u0900-\u097f])+")
_TARGET = re.compile(r"\]\([^)\s]*\)|^```\S*$", re.MULTILINE)


def tokens(text: str) -> Counter[str]:
    """Words, and single characters where no spaces part words."""
    return Counter(_WORD.findall(text.casefold()))


def f1(known: Counter[str], found: Counter[str]) -> float:
    common = (known & found).total()
    return 2 * common / max(1, known.total() + found.total())


Make = Callable[[Prose, Prose], str]
PAGES: dict[str, tuple[Make, list[str]]] = {}


def page(name: str, syllables: list[str] = LATIN) -> Callable[[Make], Make]:
    def register(make: Make) -> Make:
        PAGES[name] = (make, syllables)
        return make

    return register


# --- the pages ---------------------------------------------------------------------------------


@page("documentation by Sphinx")
def _sphinx(main: Prose, other: Prose) -> str:
    return f"""<!DOCTYPE html><html class="writer-html5" lang="en"><head><title>{other.words(2)}
</title></head><body class="wy-body-for-nav"><div class="wy-grid-for-nav">
<nav data-toggle="wy-nav-shift" class="wy-nav-side"><div class="wy-side-scroll">
<div class="wy-side-nav-search"><a href="/">{other.words(2)}</a></div>
<div class="wy-menu wy-menu-vertical"><p class="caption"><span>{other.words(2)}</span></p>
<ul>{other.links(30)}</ul></div></div></nav>
<section class="wy-nav-content-wrap"><nav class="wy-nav-top"><a href="/">{other.words(1)}</a></nav>
<div class="wy-nav-content"><div class="rst-content">
<div role="navigation" aria-label="Page navigation"><ul class="wy-breadcrumbs">{other.links(3)}
<li class="wy-breadcrumbs-aside"><a href="/src">{other.words(3)}</a></li></ul><hr/></div>
<div role="main" class="document" itemscope><div itemprop="articleBody"><section id="a">
<h1>{main.words(3)}<a class="headerlink" href="#a" title="Link to this heading">¶</a></h1>
{main.paragraphs(3)}<div class="admonition note"><p class="admonition-title">{main.words(1)}</p>
<p>{main.paragraph()}</p></div>
<dl class="py function"><dt class="sig sig-object py"><span class="sig-name"><span class="pre">{main.words(1)}
</span></span><span class="sig-paren">(</span><em class="sig-param">{main.words(1)}</em>
<span class="sig-paren">)</span><a class="headerlink" href="#f">¶</a></dt><dd><p>{main.paragraph()}</p></dd></dl>
<div class="highlight-python notranslate"><div class="highlight"><pre><span></span><span class="k">{main.words(2)}</span>
</pre></div></div></section></div></div>
<footer><div class="rst-footer-buttons" role="navigation"><a href="n">{other.words(2)}</a></div>
<div role="contentinfo"><p>{other.words(8)}</p></div>{other.words(6)}</footer>
</div></div></section></div></body></html>"""


@page("documentation by Docusaurus")
def _docusaurus(main: Prose, other: Prose) -> str:
    return f"""<!doctype html><html lang="en"><head><title>{other.words(2)}</title></head>
<body class="navigation-with-keyboard"><div id="__docusaurus">
<div role="region" aria-label="Skip to main content"><a class="skipToContent_fXgn" href="#x">{other.words(4)}</a></div>
<nav aria-label="Main" class="navbar navbar--fixed-top"><div class="navbar__inner">{other.links(6, mark="div")}</div></nav>
<div id="__docusaurus_skipToContent_fallback" class="main-wrapper"><div class="docsWrapper_hBAB">
<div class="docRoot_UBD9"><aside class="theme-doc-sidebar-container"><nav><ul class="theme-doc-sidebar-menu">
{other.links(25)}</ul></nav></aside>
<main class="docMainContainer_TBSr"><div class="container"><div class="row"><div class="col docItemCol_VOVn">
<div class="docItemContainer_Djhp"><article><nav class="theme-doc-breadcrumbs"><ul>{other.links(3)}</ul></nav>
<span class="theme-doc-version-badge badge">{other.words(2)}</span>
<div class="theme-doc-markdown markdown"><header><h1>{main.words(3)}</h1></header>{main.paragraphs(3)}
<h2 class="anchor" id="b">{main.words(2)}<a href="#b" class="hash-link" aria-label="Direct link"></a></h2>
<div class="theme-code-block"><div class="codeBlockContent_biex"><pre class="prism-code language-bash"><code>{main.words(6)}</code></pre>
<div class="buttonGroup__atx"><button type="button">{other.words(1)}</button></div></div></div>
<div class="theme-admonition theme-admonition-tip"><div class="admonitionHeading_Gvgb">{main.words(1)}</div>
<div class="admonitionContent_BuS1"><p>{main.paragraph()}</p></div></div>
<ul>{main.items(6)}</ul></div>
<footer class="theme-doc-footer"><a href="/edit">{other.words(3)}</a></footer></article>
<nav class="docusaurus-mt-lg pagination-nav"><a href="/p">{other.words(3)}</a><a href="/n">{other.words(3)}</a></nav>
</div></div><div class="col col--3"><div class="tableOfContents_bqdL theme-doc-toc-desktop"><ul class="table-of-contents">
{other.links(5)}</ul></div></div></div></div></main></div></div></div>
<footer class="theme-layout-footer footer">{other.links(9)}<div>{other.words(6)}</div></footer></div></body></html>"""


@page("blog by WordPress")
def _wordpress(main: Prose, other: Prose) -> str:
    return f"""<!DOCTYPE html><html lang="en-US"><head><title>{other.words(3)}</title></head>
<body class="post-template-default single single-post"><div id="page" class="site">
<a class="skip-link screen-reader-text" href="#content">{other.words(3)}</a>
<header id="masthead" class="site-header"><div class="site-branding"><p class="site-title"><a href="/">{other.words(2)}</a></p>
<p class="site-description">{other.words(5)}</p></div>
<nav id="site-navigation" class="main-navigation"><ul id="primary-menu" class="menu">{other.links(7)}</ul></nav></header>
<div id="content" class="site-content"><div id="primary" class="content-area"><main id="main" class="site-main">
<article id="post-12" class="post-12 post type-post status-publish hentry">
<header class="entry-header"><h1 class="entry-title">{main.words(5)}</h1>
<div class="entry-meta"><span class="posted-on"><time class="entry-date published" datetime="2026-01-02T03:04:05+00:00">{other.words(2)}</time></span>
<span class="byline"><span class="author vcard"><a href="/author">{other.words(2)}</a></span></span></div></header>
<div class="entry-content">{main.paragraphs(5)}
<figure class="wp-block-image"><img src="a.jpg" alt=""/><figcaption>{main.words(6)}</figcaption></figure>
<h2 class="wp-block-heading">{main.words(3)}</h2>{main.paragraphs(2)}
<blockquote class="wp-block-quote"><p>{main.sentence()}</p></blockquote>
<div class="sharedaddy sd-sharing-enabled"><h3 class="sd-title">{other.words(2)}</h3><ul>{other.links(4)}</ul></div>
<div id="jp-relatedposts" class="jp-relatedposts"><h3 class="jp-relatedposts-headline"><em>{other.words(1)}</em></h3>{other.links(3, 5, "div")}</div>
</div>
<footer class="entry-footer"><span class="cat-links">{other.links(3, mark="span")}</span><span class="tags-links">{other.links(5, mark="span")}</span></footer>
</article>
<nav class="navigation post-navigation"><h2 class="screen-reader-text">{other.words(2)}</h2><div class="nav-links">{other.links(2, 4, "div")}</div></nav>
<div id="comments" class="comments-area"><h2 class="comments-title">{other.words(4)}</h2><ol class="comment-list">
<li class="comment"><article class="comment-body"><footer class="comment-meta"><b class="fn">{other.words(2)}</b></footer>
<div class="comment-content"><p>{other.paragraph(2)}</p></div></article></li></ol>
<div id="respond" class="comment-respond"><h3 class="comment-reply-title">{other.words(3)}</h3><form><p>{other.words(6)}</p></form></div></div>
</main></div>
<aside id="secondary" class="widget-area"><section class="widget widget_recent_entries"><h2 class="widget-title">{other.words(2)}</h2><ul>{other.links(5, 5)}</ul></section>
<section class="widget widget_archive"><ul>{other.links(12)}</ul></section></aside></div>
<footer id="colophon" class="site-footer"><div class="site-info">{other.words(8)}</div></footer></div></body></html>"""


@page("blog by WordPress without semantic tags")
def _old_wordpress(main: Prose, other: Prose) -> str:
    return f"""<!DOCTYPE html PUBLIC "-//W3C//DTD XHTML 1.0 Transitional//EN" "http://www.w3.org/TR/xhtml1/DTD/xhtml1-transitional.dtd">
<html xmlns="http://www.w3.org/1999/xhtml"><head><title>{other.words(3)}</title></head><body><div id="page">
<div id="header"><div id="headerimg"><h1><a href="/">{other.words(2)}</a></h1><div class="description">{other.words(5)}</div></div>
<ul id="nav">{other.links(6)}</ul></div>
<div id="content" class="widecolumn"><div class="navigation"><div class="alignleft"><a href="/p">{other.words(4)}</a></div></div>
<div class="post" id="post-9"><h2>{main.words(4)}</h2><div class="entry">{main.paragraphs(6)}<ul>{main.items(5)}</ul>
<p class="postmetadata alt"><small>{other.words(20)} <a href="/feed">{other.words(2)}</a></small></p></div></div>
<h3 id="comments">{other.words(4)}</h3><ol class="commentlist"><li><cite>{other.words(2)}</cite><p>{other.paragraph(2)}</p></li></ol>
<h3 id="respond">{other.words(3)}</h3><form action="/c"><p><small>{other.words(5)}</small></p></form></div>
<div id="sidebar"><ul><li><h2>{other.words(1)}</h2><ul>{other.links(8)}</ul></li><li><h2>{other.words(1)}</h2><ul>{other.links(12)}</ul></li></ul></div>
<div id="footer"><p>{other.words(10)}</p></div></div></body></html>"""


@page("forum by Discourse, as robots get it")
def _discourse(main: Prose, other: Prose) -> str:
    posts = "\n".join(
        f"""<div id="post_{n}" itemprop="comment" itemscope itemtype="http://schema.org/Comment" class="topic-body crawler-post">
<div class="crawler-post-meta"><span class="creator" itemprop="author"><a rel="nofollow" href="/u/{n}"><span itemprop="name">{main.words(1)}</span></a></span>
<link itemprop="mainEntityOfPage" href="/t/1"><span class="crawler-post-infos"><time itemprop="datePublished" datetime="2026-01-0{n}T00:00:00Z" class="post-time"></time></span></div>
<div class="post" itemprop="text">{main.paragraphs(n % 3 + 1)}</div></div>"""
        for n in range(1, 7)
    )
    return f"""<!DOCTYPE html><html lang="en"><head><title>{other.words(3)}</title></head><body class="crawler">
<header><a href="/">{other.words(2)}</a></header>
<div id="main-outlet" class="wrap" role="main"><div id="topic-title"><h1><a href="/t/1">{main.words(6)}</a></h1>
</div>{posts}</div>
<footer class="container wrap"><nav class="crawler-nav"><ul>{other.links(5)}</ul></nav></footer>
<p class="powered-by-link">{other.words(4)}</p></body></html>"""


@page("forum by phpBB")
def _phpbb(main: Prose, other: Prose) -> str:
    posts = "\n".join(
        f"""<div id="p{n}" class="post has-profile bg{n % 2 + 1}"><div class="inner">
<dl class="postprofile" id="profile{n}"><dt><a href="/u{n}" class="username">{other.words(1)}</a></dt>
<dd class="profile-posts"><strong>{other.words(1)}</strong> 12</dd><dd class="profile-joined">{other.words(2)}</dd></dl>
<div class="postbody"><div id="post_content{n}"><h3 class="first"><a href="#p{n}">{main.words(4)}</a></h3>
<ul class="post-buttons"><li><a href="/q" class="button">{other.words(1)}</a></li></ul>
<p class="author">{other.words(4)}</p><div class="content">{main.paragraph(6)}<br><br>{main.paragraph(4)}</div>
<div class="signature">{other.words(5)}</div></div></div></div></div><hr class="divider">"""
        for n in range(1, 6)
    )
    return f"""<!DOCTYPE html><html dir="ltr" lang="en-gb"><head><title>{other.words(3)}</title></head>
<body id="phpbb" class="nojs notouch section-viewtopic ltr"><div id="wrap" class="wrap"><div id="page-header">
<div class="headerbar" role="banner"><div id="site-description"><h1>{other.words(2)}</h1><p>{other.words(4)}</p></div></div>
<div class="navbar" role="navigation"><ul id="nav-main" class="nav-main linklist">{other.links(6)}</ul></div></div>
<div id="page-body" class="page-body" role="main"><h2 class="topic-title"><a href="/t">{main.words(5)}</a></h2>
<div class="action-bar bar-top"><a href="/r" class="button">{other.words(2)}</a><div class="pagination">{other.words(2)}<ul>{other.links(3, 1)}</ul></div></div>
{posts}
<div class="action-bar bar-bottom"><div class="pagination">{other.words(2)}</div></div>
<div class="action-bar actions-jump"><p class="jumpbox-return"><a href="/f">{other.words(3)}</a></p></div>
<div class="stat-block permissions"><h3>{other.words(2)}</h3><p>{other.words(10)}</p></div></div>
<div id="page-footer" class="page-footer" role="contentinfo"><div class="copyright">{other.words(8)}</div></div></div></body></html>"""


@page("questions and answers")
def _answers(main: Prose, other: Prose) -> str:
    def post(kind: str) -> str:
        return f"""<div class="{kind}" data-score="3"><div class="post-layout"><div class="votecell post-layout--left">
<div class="js-voting-container"><button>{other.words(2)}</button><div class="js-vote-count">17</div></div></div>
<div class="postcell post-layout--right"><div class="s-prose js-post-body" itemprop="text">{main.paragraphs(2)}
<pre class="lang-py s-code-block"><code>{main.words(8)}</code></pre>{main.paragraphs(1)}</div>
<div class="mt16"><div class="js-post-menu"><a href="/share">{other.words(1)}</a> <a href="/edit">{other.words(1)}</a></div>
<div class="post-signature"><div class="user-info"><div class="user-details"><a href="/u">{other.words(2)}</a></div></div></div></div></div>
</div></div>"""

    return f"""<!DOCTYPE html><html><head><title>{other.words(4)}</title></head><body class="question-page">
<header class="s-topbar"><a href="/">{other.words(2)}</a><ol>{other.links(4)}</ol></header>
<div class="container"><div id="left-sidebar" class="left-sidebar"><nav><ol class="nav-links">{other.links(8)}</ol></nav></div>
<div id="content" class="snippet-hidden"><div itemprop="mainEntity" itemscope itemtype="https://schema.org/Question">
<div id="question-header"><h1 itemprop="name"><a href="/q">{main.words(8)}</a></h1></div>
<div id="mainbar" role="main" aria-label="question and answers">{post("question")}
<div id="answers"><div id="answers-header"><h2>{other.words(2)}</h2></div>{post("answer")}{post("answer")}</div></div>
<div id="sidebar" role="complementary"><h4>{other.words(2)}</h4><div class="related">{other.links(12, 7, "div")}</div></div>
</div></div></div><footer id="footer">{other.links(20)}<p>{other.words(9)}</p></footer></body></html>"""


@page("news with related links between paragraphs")
def _news(main: Prose, other: Prose) -> str:
    return f"""<!doctype html><html lang="en"><head><title>{other.words(4)}</title></head><body>
<header class="site-header"><a href="/">{other.words(1)}</a><nav><ul>{other.links(12, 1)}</ul></nav></header>
<div class="breaking-news-banner"><a href="/b">{other.words(9)}</a></div>
<main><article class="article"><header><h1 class="headline">{main.words(9)}</h1>
<p class="standfirst">{main.sentence(20)}</p></header>
<div class="share-tools"><ul class="social-share">{other.links(4, 1)}</ul></div>
<figure><img src="a.jpg" alt=""><figcaption>{main.sentence(10)}</figcaption></figure>
<div class="article__body">{main.paragraphs(3)}
<aside class="related"><h2>{other.words(2)}</h2><ul>{other.links(3, 8)}</ul></aside>
{main.paragraphs(3)}
<div class="ad-slot" aria-hidden="true"><span>{other.words(1)}</span></div>
<div class="newsletter-signup"><h3>{other.words(4)}</h3><p>{other.words(14)}</p><form><button>{other.words(1)}</button></form></div>
{main.paragraphs(2)}</div>
<section class="related-articles"><h2>{other.words(2)}</h2><ul>{other.links(8, 9)}</ul></section>
<div class="tags"><ul>{other.links(5, 1)}</ul></div></article>
<section class="most-read"><h2>{other.words(2)}</h2><ol>{other.links(10, 8)}</ol></section></main>
<footer>{other.links(15)}<p>{other.words(12)}</p></footer></body></html>"""


@page("product of a shop")
def _product(main: Prose, other: Prose) -> str:
    return f"""<!doctype html><html lang="en"><head><title>{other.words(4)}</title></head><body class="template-product">
<div id="shopify-section-announcement-bar" class="shopify-section"><div class="announcement-bar" role="region"><p>{other.words(6)}</p></div></div>
<header class="header"><nav class="header__inline-menu"><ul>{other.links(8)}</ul></nav></header>
<div id="CartDrawer" class="drawer" role="dialog"><h2>{other.words(3)}</h2></div>
<main id="MainContent" class="content-for-layout" role="main"><section class="product-section"><div class="product grid">
<div class="product__media-wrapper"><ul><li><img src="p.jpg" alt="{main.words(4)}"></li></ul></div>
<div class="product__info-wrapper"><div class="product__title"><h1>{main.words(4)}</h1></div>
<div class="price"><span class="price-item">12.50</span></div>
<form method="post" action="/cart/add"><label>{other.words(1)}</label><select><option>{other.words(2)}</option></select><button>{other.words(3)}</button></form>
<div class="product__description rte">{main.paragraphs(2)}<ul>{main.items(8, 5)}</ul></div>
<details><summary><h2>{main.words(2)}</h2></summary><div><p>{main.paragraph()}</p></div></details>
<h2>{main.words(2)}</h2><table><tbody>{main.rows(8, 2)}</tbody></table></div></div></section>
<section class="product-recommendations"><h2>{other.words(4)}</h2><ul class="grid product-grid">{other.links(4, 5)}</ul></section></main>
<footer class="footer"><ul>{other.links(10)}</ul><small>{other.words(6)}</small></footer></body></html>"""


@page("wiki with an infobox")
def _wiki(main: Prose, other: Prose) -> str:
    return f"""<!DOCTYPE html><html class="client-nojs" lang="en" dir="ltr"><head><title>{other.words(3)}</title></head>
<body class="skin-vector mediawiki ltr ns-0 page-Apple"><a class="mw-jump-link" href="#bodyContent">{other.words(3)}</a>
<div class="vector-header-container"><header class="vector-header mw-header"><div class="vector-header-start"><nav class="vector-main-menu-landmark"><ul>{other.links(10)}</ul></nav></div></header></div>
<div class="mw-page-container"><div class="mw-page-container-inner"><div class="vector-column-start"><nav id="mw-panel-toc"><div id="vector-toc"><h2>{other.words(1)}</h2><ul>{other.links(9)}</ul></div></nav></div>
<div class="mw-content-container"><main id="content" class="mw-body"><header class="mw-body-header vector-page-titlebar">
<h1 id="firstHeading" class="firstHeading mw-first-heading"><span class="mw-page-title-main">{main.words(1)}</span></h1>
<div id="p-lang-btn" class="vector-dropdown mw-portlet mw-portlet-lang"><input type="checkbox"><label>{other.words(2)}</label><div class="vector-dropdown-content"><ul>{other.links(30, 1)}</ul></div></div></header>
<div class="vector-page-toolbar"><div class="vector-page-toolbar-container"><nav><ul>{other.links(6)}</ul></nav></div></div>
<div id="bodyContent" class="vector-body"><div id="siteSub" class="noprint">{other.words(5)}</div><div id="contentSub"></div>
<div id="mw-content-text" class="mw-body-content"><div class="mw-content-ltr mw-parser-output">
<table class="infobox vcard"><tbody><tr><th colspan="2" class="infobox-above">{main.words(2)}</th></tr>{main.rows(8, 2)}</tbody></table>
{main.paragraphs(3)}<div class="mw-heading mw-heading2"><h2>{main.words(2)}</h2><span class="mw-editsection"><span class="mw-editsection-bracket">[</span><a href="/e">{other.words(1)}</a><span class="mw-editsection-bracket">]</span></span></div>
{main.paragraphs(3)}<table class="wikitable"><caption>{main.words(3)}</caption><tbody>{main.rows(1, 4, "th")}{main.rows(9, 4)}</tbody></table>
<div class="mw-heading mw-heading2"><h2>{main.words(1)}</h2></div><div class="reflist"><ol class="references">{main.items(6, 8)}</ol></div>
<div class="navbox" role="navigation"><table><tbody>{other.rows(5, 3)}</tbody></table></div></div>
<div class="printfooter">{other.words(3)} <a href="/x">{other.words(2)}</a></div></div>
<div id="catlinks" class="catlinks"><div class="mw-normal-catlinks"><a href="/c">{other.words(1)}</a><ul>{other.links(8)}</ul></div></div></div></main></div>
<div class="mw-footer-container"><footer id="footer" class="mw-footer"><ul id="footer-info"><li>{other.words(9)}</li></ul></footer></div></div></div></body></html>"""


@page("page that is all table")
def _table(main: Prose, other: Prose) -> str:
    return f"""<!doctype html><html><head><title>{other.words(3)}</title></head><body>
<div class="navbar navbar-default navbar-fixed-top"><div class="container"><a class="navbar-brand" href="/">{other.words(2)}</a><ul class="nav navbar-nav">{other.links(7)}</ul></div></div>
<div class="container"><ol class="breadcrumb">{other.links(3)}</ol><h1>{main.words(4)}</h1><p>{main.sentence()}</p>
<div class="table-responsive"><table class="table table-striped"><thead>{main.rows(1, 6, "th")}</thead><tbody>{main.rows(60, 6)}</tbody></table></div></div>
<footer class="footer"><div class="container"><p>{other.words(8)}</p></div></footer></body></html>"""


@page("page that is nearly all code")
def _code(main: Prose, other: Prose) -> str:
    blocks = "\n".join(
        f"<h3>{main.words(2)}</h3><p>{main.sentence(9)}</p><div class='highlight'><table class='highlighttable'><tr>"
        f"<td class='linenos'><div class='linenodiv'><pre>1\n2\n3</pre></div></td><td class='code'><div><pre><span></span><code>"
        f"<span class='k'>{main.words(1)}</span> <span class='nf'>{main.words(1)}</span>({main.words(1)}):\n    {main.words(4)}\n    {main.words(3)}\n"
        f"</code></pre></div></td></tr></table></div>"
        for _ in range(8)
    )
    return f"""<!doctype html><html lang="en"><head><title>{other.words(2)}</title></head><body dir="ltr">
<header class="md-header" data-md-component="header"><nav class="md-header__inner"><div class="md-header__title">{other.words(3)}</div></nav></header>
<div class="md-container"><main class="md-main" data-md-component="main"><div class="md-main__inner md-grid">
<div class="md-sidebar md-sidebar--primary"><div class="md-sidebar__scrollwrap"><nav class="md-nav"><ul class="md-nav__list">{other.links(20)}</ul></nav></div></div>
<div class="md-sidebar md-sidebar--secondary"><nav class="md-nav md-nav--secondary"><ul>{other.links(8)}</ul></nav></div>
<div class="md-content" data-md-component="content"><article class="md-content__inner md-typeset"><a class="md-content__button md-icon" title="Edit" href="/e"></a>
<h1 id="t">{main.words(3)}<a class="headerlink" href="#t">¶</a></h1>{blocks}
<aside class="md-source-file"><span>{other.words(3)}</span></aside></article></div></div></main>
<footer class="md-footer"><nav class="md-footer__inner">{other.links(2, 4, "div")}</nav><div class="md-copyright">{other.words(5)}</div></footer></div></body></html>"""


@page("page under cookie bars and pop-ups")
def _cookies(main: Prose, other: Prose) -> str:
    return f"""<!doctype html><html lang="en"><head><title>{other.words(2)}</title></head><body>
<div id="onetrust-consent-sdk"><div id="onetrust-banner-sdk" class="otFlat" role="region"><div class="ot-sdk-container"><h2>{other.words(3)}</h2><div id="onetrust-policy-text">{other.paragraph(3)}</div>
<button>{other.words(3)}</button></div></div></div>
<div id="CybotCookiebotDialog" role="dialog"><h2>{other.words(4)}</h2><p>{other.paragraph(4)}</p><ul>{other.items(5, 9)}</ul></div>
<div class="cc-window cc-banner" role="dialog" aria-label="cookieconsent"><span class="cc-message">{other.sentence()}</span></div>
<div class="modal fade" id="newsletter" tabindex="-1" role="dialog" aria-hidden="true"><div class="modal-dialog"><h4>{other.words(4)}</h4><p>{other.sentence()}</p></div></div>
<div class="gdpr-overlay"><p>{other.paragraph(2)}</p></div>
<div class="page"><div class="top"><a href="/">{other.words(2)}</a></div>
<main><h1>{main.words(5)}</h1>{main.paragraphs(5)}</main></div>
<div class="footer-cookie-settings"><a href="#">{other.words(2)}</a></div></body></html>"""


@page("nested divs without semantic tags")
def _divs(main: Prose, other: Prose) -> str:
    return f"""<!DOCTYPE html><html><head><title>{other.words(3)}</title></head><body>
<div class="wrapper"><div class="top-bar"><div class="inner"><div class="logo"><a href="/">{other.words(1)}</a></div>
<div class="menu"><div class="menu-inner">{other.links(9, 1, "div", "menu-item")}</div></div></div></div>
<div class="body"><div class="inner"><div class="left"><div class="box"><div class="box-title">{other.words(2)}</div>{other.links(10, 2, "div")}</div></div>
<div class="center"><div class="text"><div class="h">{main.words(5)}</div>
{main.paragraphs(7, "div")}</div></div></div></div>
<div class="bottom"><div class="inner">{other.links(8, 2, "div")}<div class="copy">{other.words(7)}</div></div></div></div></body></html>"""


@page("old page laid out with tables")
def _layout_tables(main: Prose, other: Prose) -> str:
    return f"""<HTML><HEAD><TITLE>{other.words(3)}</TITLE></HEAD><BODY BGCOLOR="#FFFFFF">
<TABLE WIDTH="100%" BORDER=0><TR><TD COLSPAN=2 BGCOLOR="#003366"><FONT COLOR="#FFFFFF" SIZE=5>{other.words(2)}</FONT></TD></TR>
<TR><TD WIDTH=150 VALIGN=TOP BGCOLOR="#CCCCCC"><FONT SIZE=2>{"<BR>".join(f'<A HREF="p{n}.htm">{other.words(2)}</A>' for n in range(12))}</FONT></TD>
<TD VALIGN=TOP><H2>{main.words(4)}</H2><P>{"<P>".join(main.paragraph() for _ in range(6))}</TD></TR>
<TR><TD COLSPAN=2 ALIGN=CENTER><FONT SIZE=1>{other.words(8)}</FONT></TD></TR></TABLE></BODY></HTML>"""


def _plain(main: Prose, other: Prose, lang: str, dir: str = "ltr") -> str:
    return f"""<!doctype html><html lang="{lang}" dir="{dir}"><head><meta charset="utf-8"><title>{other.words(3)}</title></head><body>
<header><nav><ul>{other.links(8)}</ul></nav></header>
<div class="layout"><div class="content"><h1>{main.words(4)}</h1>{main.paragraphs(5)}<h2>{main.words(2)}</h2>{main.paragraphs(2)}<ul>{main.items(5)}</ul></div>
<div class="sidebar"><h3>{other.words(2)}</h3><ul>{other.links(10)}</ul></div></div>
<footer><p>{other.words(10)}</p></footer></body></html>"""


@page("page in Russian", CYRILLIC)
def _russian(main: Prose, other: Prose) -> str:
    return _plain(main, other, "ru")


@page("page in Arabic", ARABIC)
def _arabic(main: Prose, other: Prose) -> str:
    return _plain(main, other, "ar", "rtl")


@page("page in Hindi", DEVANAGARI)
def _hindi(main: Prose, other: Prose) -> str:
    return _plain(main, other, "hi")


@page("page in Greek", GREEK)
def _greek(main: Prose, other: Prose) -> str:
    return _plain(main, other, "el")


@page("page in Chinese", HAN)
def _chinese(main: Prose, other: Prose) -> str:
    return _plain(main, other, "zh")


@page("article in Japanese", KANA)
def _japanese(main: Prose, other: Prose) -> str:
    return f"""<!doctype html><html lang="ja"><head><meta charset="utf-8"><title>{other.words(3)}</title></head><body>
<div id="header"><ul class="gnavi">{other.links(8)}</ul></div><div id="contents"><article><h1>{main.words(4)}</h1>{main.paragraphs(6)}</article>
<div id="side"><ul>{other.links(12)}</ul></div></div><div id="footer">{other.words(8)}</div></body></html>"""


@page("help centre")
def _help(main: Prose, other: Prose) -> str:
    return f"""<!DOCTYPE html><html lang="en-us"><head><title>{other.words(4)}</title></head><body>
<header class="header"><div class="logo"><a href="/">{other.words(2)}</a></div><div class="nav-wrapper"><nav>{other.links(3, mark="div")}</nav></div></header>
<main role="main"><div class="container-divider"></div><div class="container"><div class="sub-nav"><ol class="breadcrumbs">{other.links(3)}</ol>
<form role="search" class="search"><input type="search" placeholder="Search"></form></div>
<div class="article-container" id="article-container"><aside class="article-sidebar" aria-labelledby="section-articles-title"><h3 class="collapsible-sidebar-title">{other.words(3)}</h3><ul>{other.links(8, 4)}</ul></aside>
<article id="main-content" class="article"><header class="article-header"><h1 class="article-title">{main.words(6)}</h1>
<div class="article-author"><div class="article-meta"><a href="/p">{other.words(2)}</a><ul class="meta-group"><li><time datetime="2026-01-02T03:04:05Z">{other.words(2)}</time></li></ul></div></div></header>
<section class="article-info"><div class="article-content"><div class="article-body">{main.paragraphs(2)}<ol>{main.items(7, 9)}</ol>{main.paragraphs(2)}</div></div></section>
<footer><div class="article-footer"><div class="article-share">{other.links(3, 1, "div")}</div></div>
<div class="article-votes"><h4 class="article-votes-question">{other.words(4)}</h4><button>{other.words(1)}</button></div></footer>
<div class="article-relatives"><div class="recent-articles"><h3>{other.words(3)}</h3><ul>{other.links(4, 5)}</ul></div><section class="related-articles"><h3>{other.words(2)}</h3><ul>{other.links(5, 6)}</ul></section></div>
<div class="article-comments" id="article-comments"><section class="comments"><h2>{other.words(1)}</h2><p class="comment-callout">{other.words(5)}</p></section></div>
</article></div></div></main><footer class="footer"><div class="footer-inner">{other.words(3)}</div></footer></body></html>"""


@page("frequent questions, folded")
def _faq(main: Prose, other: Prose) -> str:
    folds = "\n".join(
        f'<div class="accordion-item"><h2 class="accordion-header"><button class="accordion-button collapsed" type="button" aria-expanded="false">{main.words(7)}</button></h2>'
        f'<div class="accordion-collapse collapse"><div class="accordion-body"><p>{main.paragraph()}</p></div></div></div>'
        for _ in range(5)
    )
    details = "\n".join(
        f"<details><summary>{main.words(6)}</summary><p>{main.paragraph()}</p></details>"
        for _ in range(5)
    )
    terms = "\n".join(f"<dt>{main.words(5)}</dt><dd>{main.paragraph(2)}</dd>" for _ in range(5))
    return f"""<!doctype html><html lang="en"><head><title>{other.words(2)}</title></head><body>
<nav class="navbar"><ul>{other.links(6)}</ul></nav><div class="container" role="main"><h1>{main.words(3)}</h1>
<div class="accordion">{folds}</div>{details}<dl>{terms}</dl></div><footer>{other.words(9)}</footer></body></html>"""


@page("story on a publishing platform")
def _story(main: Prose, other: Prose) -> str:
    return f"""<!doctype html><html lang="en"><head><title>{other.words(4)}</title></head><body><div id="root"><div class="a b c">
<div class="d e"><a href="/">{other.words(1)}</a><div class="f"><a href="/signin">{other.words(2)}</a></div></div>
<div class="fm fn fo"><article><div class="l"><div class="l"><section><div><div class="gk gl"><div class="ch bg">
<h1 class="pw-post-title" data-testid="storyTitle">{main.words(7)}</h1>
<div class="speechify-ignore ab cp"><div class="speechify-ignore bh l"><a rel="noopener follow" href="/@x">{other.words(2)}</a><span>{other.words(3)}</span></div>
<div class="ab co"><button>{other.words(1)}</button><button>{other.words(1)}</button></div></div>
{main.paragraphs(8)}<figure><img src="a.png" alt=""><figcaption class="ns">{main.words(5)}</figcaption></figure>{main.paragraphs(2)}
</div></div></div></section></div></div></article>
<div class="ab ca"><div class="ch">{other.links(5, 1, "div")}<div class="author"><h2>{other.words(3)}</h2><p>{other.sentence()}</p></div></div></div>
<div class="more"><h2>{other.words(4)}</h2>{other.links(6, 7, "div")}</div></div></div></div></body></html>"""


@page("page of an application without semantic tags")
def _application(main: Prose, other: Prose) -> str:
    return f"""<!DOCTYPE html><html lang="en"><head><title>{other.words(2)}</title></head><body><div id="__next"><div class="min-h-screen flex flex-col">
<div class="sticky top-0 z-50 flex"><a class="font-bold" href="/">{other.words(1)}</a><div class="hidden md:flex gap-4">{other.links(6, 1, "span")}</div></div>
<div class="flex-1 max-w-4xl mx-auto"><h1 class="text-4xl font-bold">{main.words(5)}</h1>
<p class="text-xl">{main.sentence(18)}</p><div class="prose">{main.paragraphs(4)}<h2>{main.words(3)}</h2>{main.paragraphs(3)}</div></div>
<div class="border-t py-8 grid grid-cols-4">{"".join(f'<div><div class="font-semibold">{other.words(1)}</div>{other.links(4, 1, "div")}</div>' for _ in range(4))}
<div class="text-sm">{other.words(6)}</div></div></div></div><script id="__NEXT_DATA__" type="application/json">{{"a":"{other.words(30)}"}}</script></body></html>"""


@page("page of the operator's own intranet, plain")
def _plain_page(main: Prose, other: Prose) -> str:
    return f"""<html><head><title>{other.words(2)}</title></head><body><h1>{main.words(3)}</h1>
{main.paragraphs(4)}<ul>{main.items(6)}</ul><h2>{main.words(2)}</h2>{main.paragraphs(1)}</body></html>"""


@page("team wiki")
def _confluence(main: Prose, other: Prose) -> str:
    return f"""<!DOCTYPE html><html lang="en-US"><head><title>{other.words(4)}</title></head><body id="com-atlassian-confluence" class="theme-default">
<div id="page"><div id="full-height-container"><div id="header-precursor"></div><header id="header" role="banner"><nav class="aui-header" role="navigation"><ul class="aui-nav">{other.links(6)}</ul></nav></header>
<div class="ia-splitter"><div class="ia-splitter-left"><div class="ia-fixed-sidebar"><div class="acs-side-bar">{other.links(20, 3)}</div></div></div>
<div id="main" class="aui-page-panel"><div id="main-header"><div id="navigation" class="content-navigation"><ul class="ajs-menu-bar">{other.links(4, 1)}</ul></div>
<h1 id="title-text" class="with-breadcrumbs"><a href="/x">{main.words(4)}</a></h1></div>
<div id="sidebar-container"></div><div id="content" class="page view"><div class="page-metadata"><ul class="banner"><li class="page-metadata-modification-info">{other.words(6)}</li></ul></div>
<div id="main-content" class="wiki-content"><div class="toc-macro client-side-toc-macro"></div>{main.paragraphs(3)}<h2>{main.words(2)}</h2>
<div class="table-wrap"><table class="confluenceTable"><tbody>{main.rows(1, 3, "th")}{main.rows(6, 3)}</tbody></table></div><div class="panel"><div class="panelContent"><p>{main.paragraph()}</p></div></div></div>
<div id="likes-and-labels-container"><div id="likes-section"><a href="#">{other.words(1)}</a></div><div id="labels-section"><ul class="label-list">{other.links(4, 1)}</ul></div></div>
<div id="comments-section" class="pageSection"><h2 class="section-title">{other.words(2)}</h2></div></div></div></div>
<div id="footer" role="contentinfo"><section class="footer-body"><ul><li>{other.words(8)}</li></ul></section></div></div></div></body></html>"""


@page("repository with its readme")
def _repository(main: Prose, other: Prose) -> str:
    return f"""<!DOCTYPE html><html lang="en"><head><title>{other.words(4)}</title></head><body class="logged-out env-production">
<div class="position-relative header-wrapper"><a href="#start-of-content" class="show-on-focus">{other.words(3)}</a><header class="HeaderMktg"><nav>{other.links(8, mark="div")}</nav></header></div>
<div class="application-main"><div class="Layout"><main id="js-repo-pjax-container"><div id="repository-container-header"><strong itemprop="name"><a href="/r">{other.words(1)}</a></strong><nav class="js-repo-nav"><ul>{other.links(7, 1)}</ul></nav></div>
<turbo-frame id="repo-content-turbo-frame"><div class="Layout-main"><table aria-labelledby="folders-and-files"><tbody>{other.rows(12, 3)}</tbody></table>
<div class="Box"><article class="markdown-body entry-content container-lg" itemprop="text"><div class="markdown-heading"><h1 class="heading-element">{main.words(2)}</h1><a id="user-content-x" class="anchor" href="#x"><svg></svg></a></div>
{main.paragraphs(3)}<div class="highlight highlight-source-shell"><pre>{main.words(4)}</pre><div class="zeroclipboard-container"><clipboard-copy class="ClipboardButton" value="x">{other.words(1)}</clipboard-copy></div></div><ul>{main.items(6)}</ul>{main.paragraphs(1)}</article></div></div>
<div class="Layout-sidebar"><div class="BorderGrid"><h2>{other.words(1)}</h2><p class="f4">{other.words(8)}</p>{other.links(6, 2, "div")}</div></div></turbo-frame></main></div></div>
<footer class="footer" role="contentinfo"><ul>{other.links(9)}</ul></footer></body></html>"""


@page("front page of a news site")
def _front(main: Prose, other: Prose) -> str:
    teasers = "\n".join(
        f'<article class="teaser"><h2><a href="/s{n}">{main.words(8)}</a></h2><p>{main.sentence(16)}</p></article>'
        for n in range(14)
    )
    return f"""<!doctype html><html lang="en"><head><title>{other.words(2)}</title></head><body><header><nav><ul>{other.links(10, 1)}</ul></nav></header>
<main><h1 class="visually-hidden">{main.words(2)}</h1><section>{teasers}</section></main><footer><ul>{other.links(12)}</ul></footer></body></html>"""


@page("list of posts of a blog")
def _posts(main: Prose, other: Prose) -> str:
    posts = "\n".join(
        f'<div class="post-preview"><h2 class="post-title"><a href="/p{n}">{main.words(6)}</a></h2><div class="post-excerpt"><p>{main.paragraph(3)}</p></div></div>'
        for n in range(6)
    )
    return f"""<!doctype html><html><head><title>{other.words(2)}</title></head><body><div class="site-header"><div class="wrap"><a href="/">{other.words(2)}</a><ul>{other.links(5, 1)}</ul></div></div>
<div class="wrap"><div class="posts">{posts}</div><div class="pagination"><a href="/2">{other.words(2)}</a></div></div>
<div class="site-footer"><div class="wrap">{other.words(6)}{other.links(4, 1, "span")}</div></div></body></html>"""


@page("recipe")
def _recipe(main: Prose, other: Prose) -> str:
    return f"""<!doctype html><html lang="en"><head><title>{other.words(3)}</title></head><body class="recipe-page"><header class="banner"><nav><ul>{other.links(7, 1)}</ul></nav></header>
<div class="site-container"><div class="site-inner"><div class="content-sidebar-wrap"><main class="content"><div class="breadcrumb">{other.links(3, 1, "span")}</div><article class="entry">
<header class="entry-header"><h1 class="entry-title" itemprop="headline">{main.words(4)}</h1></header><div class="entry-content">{main.paragraphs(3)}
<div class="wprm-recipe-container"><div class="wprm-recipe"><h2 class="wprm-recipe-name">{main.words(3)}</h2><div class="wprm-recipe-ingredients-container"><h3>{main.words(1)}</h3><ul>{main.items(10, 4)}</ul></div>
<div class="wprm-recipe-instructions-container"><h3>{main.words(1)}</h3><ol>{main.items(6, 14)}</ol></div></div></div></div></article>
<div class="related-posts"><h3>{other.words(3)}</h3><ul>{other.links(4, 5)}</ul></div></main>
<aside class="sidebar sidebar-primary" role="complementary"><section class="widget"><p>{other.paragraph(2)}</p></section></aside></div></div><footer class="site-footer"><p>{other.words(8)}</p></footer></div></body></html>"""


@page("reference of an interface")
def _reference(main: Prose, other: Prose) -> str:
    methods = "\n".join(
        f'<section class="method" id="m{n}"><h3><code>{main.words(1)}</code></h3><p>{main.sentence()}</p><table class="params"><thead>{main.rows(1, 3, "th")}</thead><tbody>{main.rows(4, 3)}</tbody></table>'
        f'<pre class="example"><code class="language-json">{{"{main.words(1)}": "{main.words(1)}"}}</code></pre></section>'
        for n in range(6)
    )
    return f"""<!doctype html><html lang="en"><head><title>{other.words(3)}</title></head><body><div id="sidebar" class="toc-wrapper"><ul class="toc-list">{other.links(40)}</ul></div>
<div class="page-wrapper"><div class="content"><h1 id="introduction">{main.words(1)}</h1><p>{main.paragraph()}</p>{methods}</div></div><footer>{other.words(5)}</footer></body></html>"""


@page("policy of a company, with many headings")
def _policy(main: Prose, other: Prose) -> str:
    parts = "\n".join(f"<h3>{main.words(4)}</h3>{main.paragraphs(2)}" for _ in range(8))
    return f"""<!doctype html><html lang="en"><head><title>{other.words(2)}</title></head><body class="cookie-policy-page"><div class="header"><a href="/">{other.words(1)}</a><div class="nav">{other.links(6, 1, "span")}</div></div>
<div class="cookie-policy"><h1>{main.words(2)}</h1>{parts}</div><div class="footer"><p>{other.words(6)}</p>{other.links(6, 1, "span")}</div></body></html>"""


@page("short page of contact")
def _contact(main: Prose, other: Prose) -> str:
    return f"""<!doctype html><html lang="en"><head><title>{other.words(2)}</title></head><body><header><nav><ul>{other.links(6, 1)}</ul></nav></header>
<main><h1>{main.words(2)}</h1><address>{main.words(5)}<br>{main.words(4)}</address><p>{main.sentence(10)}</p></main><footer><p>{other.words(6)}</p></footer></body></html>"""


# --- the figures -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Figure:
    f1: float
    missing: int
    """words of the main text"""
    leaked: int
    around: int
    """words of what is around it that reached the text, and all"""


def measure(sandbox: Sandbox, name: str) -> Figure:
    make, syllables = PAGES[name]
    dense = syllables in (HAN, KANA)
    main = Prose(syllables, space="", stop="。") if dense else Prose(syllables)
    other = Prose(NOISE_HAN, space="") if dense else Prose(NOISE)
    html = make(main, other)
    blob = Blob(html.encode(), mime="text/html; charset=utf-8", url=URL)
    text = _TARGET.sub("", sandbox.survey(blob, owner="tests").extracted.text)
    known, noise, found = tokens(" ".join(main.used)), tokens(" ".join(other.used)), tokens(text)
    around = noise - known
    return Figure(
        f1(known, found), (known - found).total(), (found & around).total(), around.total()
    )


@pytest.mark.parametrize("name", PAGES)
def test_the_main_text_of_a_page_and_little_else_is_extracted(sandbox, name):
    figure = measure(sandbox, name)

    assert figure.f1 >= FLOOR
    assert figure.missing <= 8


def test_on_the_whole_extraction_is_as_good_as_the_readme_says(sandbox):
    all = [measure(sandbox, name) for name in PAGES]

    assert len(all) >= 34
    assert sum(figure.f1 for figure in all) / len(all) >= MEAN
    assert sum(figure.leaked for figure in all) <= LEAKED * sum(figure.around for figure in all)


# --- what each rule is for, and where it has to hold back


@pytest.fixture
def text(sandbox):
    def text(body: str, url: str | None = URL) -> str:
        page = f"<!doctype html><html><head><title>T</title></head><body>{body}</body></html>"
        blob = Blob(page.encode(), mime="text/html", url=url)
        return sandbox.extract(blob, owner="tests").text

    return text


MAIN = Prose(LATIN).paragraphs(4)
COUNT = tokens(re.sub("<.*?>", "", MAIN)).total()
MENUS = "".join(
    f'<div class=menu><p><a href="/{n}">entry{n} of many</a></p></div>' for n in range(30)
)
LINKS = "".join(f'<li><a href="/{n}">entry{n} of many</a></li>' for n in range(30))


@pytest.mark.parametrize(
    "around",
    [
        "<nav>{}</nav>",
        "<footer>{}</footer>",
        "<div role=navigation>{}</div>",
        "<div role=contentinfo>{}</div>",
        "<aside>{}</aside>",
        "<header><nav>{}</nav></header>",
        '<div class="navbar"><ul>{}</ul></div>',
        '<div id="footer"><ul>{}</ul></div>',
        '<div id="sidebar"><ul>{}</ul></div>',
        '<div class="mainMenu"><ul>{}</ul></div>',
        '<div class="x"><ul>{}</ul></div>',
        "<table><tr><td>{}</td></tr></table>",
    ],
)
@pytest.mark.parametrize(
    "content",
    ["<main>{}</main>", "<article>{}</article>", "<div>{}</div>", '<div id="content">{}</div>',
     '<div class="wrap"><main>{}</main></div>', '<div class="a"><div class="b">{}</div></div>'],
)  # fmt: skip
def test_links_around_the_content_stay_out_of_the_text(text, around, content):
    found = text(f"{around.format(LINKS)}{content.format(MAIN)}{around.format(LINKS)}")

    assert "entry" not in found
    assert tokens(found).total() == COUNT


def test_the_heading_ahead_of_an_article_stays(text):
    found = text(f"<main><h1>Title</h1><div>By Ann</div><article>{MAIN}</article></main>")

    assert found.startswith("# Title\n\nWydelstawy")


@pytest.mark.parametrize("wrapper", ["div", "section", "form"])
def test_a_main_part_is_found_however_deep_it_stands(text, wrapper):
    page = f"<p>Before</p><main><h1>Title</h1>{MAIN}</main><p>Behind</p>"
    for _ in range(4):
        page = f"<{wrapper}>{page}</{wrapper}>"
    found = text(page)

    assert found.startswith("# Title")
    assert "Before" not in found
    assert "Behind" not in found


@pytest.mark.parametrize(
    "page",
    [
        f"<ul>{LINKS}</ul>",
        f"<h1>Index</h1><ul>{LINKS}</ul><p>Some words.</p>",
        f"<main><h1>Index</h1><ul class=toc>{LINKS}</ul></main>",
        f"<main><h1>Index</h1><p>Some words.</p><div class=menu><ul>{LINKS}</ul></div></main>",
        f"<main><h1>Index</h1>{MENUS}</main>",
        f"<div class=content><h1>Index</h1><div class=sidebar>{LINKS}</div></div><div>© Orchard</div>",
        f"<main>{MAIN}<h2>See also</h2><ul>{LINKS}</ul>{MAIN}</main>",
        f"<article>{MAIN}<ul class=list>{LINKS}</ul></article>",
        f"<h1>Index</h1>{MAIN}<ul>{LINKS}</ul>",
    ],
    ids=range(9),
)
def test_a_list_of_links_that_is_content_stays(text, page):
    found = text(page)

    assert all(f"entry{n} " in found for n in range(30))


def test_of_a_file_that_is_no_page_of_a_site_nothing_is_guessed_away(text):
    found = text(f"<ul>{LINKS}</ul><div>{MAIN}</div><div id=footer>{LINKS}</div>", url=None)

    assert found.count("entry7 ") == 2


def test_a_discussion_below_a_page_is_left_out_but_not_one_that_is_the_page(text):
    talk = f'<div id="comments" class="comments-area"><div>{MAIN.upper()}</div></div>'
    below = text(f"<div><h1>Title</h1>{MAIN}{talk}</div>")
    alone = text(f"<h1>Title</h1><p>A question?</p>{talk}")

    assert tokens(below).total() == COUNT + 1
    assert tokens(alone).total() == COUNT + 3


def test_code_beside_numbers_of_its_lines_is_a_code_block(text):
    found = text(
        "<main><h1>Code</h1><table class=highlighttable><tr><td class=linenos><pre>1\n2</pre></td>"
        '<td class=code><div class="highlight-python"><pre>def eat():\n    pass</pre></div></td></tr>'
        "</table></main>"
    )

    assert found == "# Code\n\n```python\ndef eat():\n    pass\n```"


@pytest.mark.parametrize(
    "block",
    [
        "<div class=highlight><pre class=chroma><code class=language-python><span class=line>"
        "<span class=ln>1</span><span class=cl>def eat():\n</span></span><span class=line>"
        "<span class=ln>2</span><span class=cl>    pass</span></span></code></pre></div>",
        "<div class=chroma><table class=lntable><tr><td class=lntd><pre class=chroma><code>"
        "<span class=lnt>1\n</span><span class=lnt>2\n</span></code></pre></td><td class=lntd>"
        "<pre class=chroma><code class=language-python>def eat():\n    pass</code></pre></td></tr>"
        "</table></div>",
        "<table class=CodeRay><tr><td class=line-numbers><pre>1\n2</pre></td><td class=code>"
        "<pre><code class=language-python>def eat():\n    pass</code></pre></td></tr></table>",
        "<div class='language-python line-numbers-mode'><pre class=language-python><code>def eat():"
        "\n    pass</code></pre><div class=line-numbers-wrapper><span>1</span><br><span>2</span>"
        "</div></div>",
        "<div class='language-python vp-adaptive-theme'><button title='Copy Code'></button>"
        "<span class=lang>python</span><pre class=shiki><code>def eat():\n    pass</code></pre>"
        "</div>",
    ],
    ids=["Chroma", "Chroma's table", "CodeRay", "VuePress", "VitePress"],
)
def test_numbers_of_lines_and_the_name_of_a_language_are_no_code(text, block):
    found = text(f"<main><h1>Code</h1>{block}</main>")

    assert found == "# Code\n\n```python\ndef eat():\n    pass\n```"


def test_a_link_that_nobody_sees_leaves_no_sign_at_a_heading(text):
    skip = "<a class=VPSkipLink href='#content'>Skip to content</a>"
    link = "<a class=header-anchor href='#trees' aria-label='Permalink'>&#8203;</a>"

    assert text(f"{skip}<main><h1>Trees {link}</h1><p>Apples.</main>") == "# Trees\n\nApples."


def test_a_table_with_code_in_it_stays_a_table(text):
    found = text("<main><table><tr><td>name</td><td><pre>x = 1</pre></td></tr></table></main>")

    assert "| name |" in found
    assert "x = 1" in found


def test_the_heading_of_what_is_folded_up_stays(text):
    found = text(
        "<main><h2><button aria-expanded=false>Where do they grow?</button></h2><p>On trees.</p>"
        "<button>Send</button></main>"
    )

    assert found == "## Where do they grow?\n\nOn trees."


def figures() -> Iterator[tuple[str, Figure]]:
    with Sandbox(workers=1) as sandbox:
        for name in PAGES:
            yield name, measure(sandbox, name)


if __name__ == "__main__":
    total = 0.0
    for name, figure in figures():
        total += figure.f1
        sys.stdout.write(f"{name:46} {figure.f1:.4f}  missing {figure.missing:4}  ")
        sys.stdout.write(f"leaked {figure.leaked:4} of {figure.around}\n")
    sys.stdout.write(f"{'mean of ' + str(len(PAGES)):46} {total / len(PAGES):.4f}\n")
