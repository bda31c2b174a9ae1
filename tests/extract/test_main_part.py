"""What stands around the main part of a page goes; what is about such things stays."""

import re

import pytest

URL = "https://orchard.test/guide/"
PROSE = " ".join(
    f"Sentence {number} of a text about fruit trees and their care." for number in range(40)
)
OTHER = "Wassail in January wakes the trees, as people in Somerset say."


def _page(part: str) -> str:
    """A page of a manual, as Sphinx writes them."""
    return (
        "<html><body><nav><a href=/>Home</a></nav><div role=main><section id=orchards>"
        f"<h1>Orchards</h1><p>{PROSE}</p>{part}<p>{PROSE}</p></section></div></body></html>"
    )


@pytest.mark.parametrize(
    "part",
    [
        f"<section id=cookies><h2>Cookies</h2><p>{OTHER}</p></section>",
        f"<div class=section id=s-csrf-cookie-age><h2>AGE</h2><p>{OTHER}</p></div>",
        f"<h2><span class=headline id=Consent>{OTHER}</span></h2>",
        f"<h3 id=cookieJar>{OTHER}</h3>",
        f'<dl><dt class="sig py" id=SESSION_COOKIE_NAME>{OTHER}</dt><dd>The name.</dd></dl>',
        f"<div class=viewcode id=CookieJar><pre>{OTHER}</pre></div>",
        f"<article><div id=cookies><h2>Cookies</h2>{OTHER}<button>Copy</button></div></article>",
        f"<section id=comments><h2>Comments</h2><p>{OTHER}</p></section>",
        f"<section id=template-tags><h2>Template tags</h2><p>{OTHER}</p></section>",
        f"<div class=section id=s-login-url><h2>LOGIN_URL</h2><p>{OTHER}</p></div>",
        f'<section id=method.skip class="method has-srclink"><h4>fn skip</h4>{OTHER}</section>',
        f"<section class=detail><h3>grow</h3><div class=member-signature>{OTHER}</div></section>",
    ],
)
@pytest.mark.parametrize("is_marked", [True, False], ids=["marked", "not marked"])
def test_a_section_whose_id_sounds_like_furniture_is_text(read, part, is_marked):
    page = _page(part) if is_marked else _page(part).replace(" role=main", "")

    assert OTHER in read(page, mime="text/html", url=URL).text


@pytest.mark.parametrize(
    "part",
    [
        f"<div class=cookie-notice><h2>Cookies</h2><p>{OTHER}</p><button>Yes</button></div>",
        f"<div id=cookie-bar><p>{OTHER}</p><a class=btn href=#>Fine</a></div>",
        f"<div id=cookie-notice><p>{OTHER} <a href=/privacy>More</a></p></div>",
        f"<div id=consent-banner><p>{OTHER} <a href=/p>Fine</a></p></div>",
        f"<div class=cookie-consent><h3>Your choice</h3><p>{OTHER} <a href=/p>Fine</a></p></div>",
        f"<p class=consent>{OTHER} <input type=checkbox></p>",
        f"<div id=comments class=comments><h2>Comments</h2><p>{OTHER}</p></div>",
        f"<section id=comments><h2>Comments</h2><article><p>{OTHER}</p></article></section>",
        f"<section class=newsletter id=newsletter><h3>Letters</h3>{OTHER}</section>",
        f"<div id=newsletter><h3>Letters</h3>{OTHER}</div>",
        f"<div class=signature>{OTHER}</div>",
        f"<div id=footer><p>{OTHER}</p><p>All rights reserved.</p></div>",
        f"<div class=site-footer><p>{OTHER}</p></div>",
    ],
)
def test_what_asks_for_something_and_what_readers_say_is_left_out(read, part):
    page = f"<html><body><div>{PROSE}</div><div>{part}</div></body></html>"

    assert OTHER not in read(page, mime="text/html", url=URL).text


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (
            "Gov. <a href=/noem>Noem</a> (R) signed <i>the long bill on trees and their fruit</i>.",
            "Gov. Noem (R) signed the long bill",
        ),
        ("Of <span class=tag>grafts</span> all but few live.", "Of grafts all but few live."),
        (
            "See <a href=/r><span>related trees</span></a> and <a href=/b>hedges</a>.",
            "related trees",
        ),
    ],
)
def test_links_and_labels_in_a_sentence_are_its_words(read, part, said):
    page = f"<html><body><main><p>{PROSE}</p><p>{part}</p></main></body></html>"
    alone = f"<html><body><main><p>{PROSE} {part}</p></main></body></html>"

    for one in (page, alone):
        text = read(one, mime="text/html", url=URL).text
        assert said in _without_marks(text)


@pytest.mark.parametrize(
    "part",
    [
        "<h2><a href=/index.html#grafts>Grafting trees</a></h2><p>Text.</p>",
        "<p>Bases: <a href=/tree>Grafting trees</a></p>",
        "<dl><dt><a href=/a>mean</a></dt><dd><p>Similar to Grafting trees.</p></dd>"
        "<dt><a href=/b>median</a></dt></dl>",
        f"<ul><li>{PROSE}</li><li>shared (<a href=/bool>bool</a>)</li>"
        "<li><a href=/b>Grafting trees</a></li></ul>",
        "<p>Read <a href=/b>Grafting trees</a> if you want to know.</p>",
    ],
)
def test_lines_of_a_manual_that_are_mostly_links_are_text(read, part):
    page = f"<html><body><main><h1>Trees</h1>{part}<div><p>{PROSE}</p></div></main></body></html>"

    text = _without_marks(read(page, mime="text/html", url=URL).text)

    assert "Grafting trees" in text
    assert "shared (bool)" in text or "shared" not in part


def _without_marks(markdown: str) -> str:
    return re.sub(r"\]\([^)]*\)|[\[*]", "", markdown)


@pytest.mark.parametrize(
    "body",
    [
        "<main><h1>Trees</h1><article class=story><div class=extra>"
        "<div class='story-body story-body-1'><p>{first}</p></div></div><div class=extra>"
        "<div class='story-body story-body-2'><p>{second}</p></div></div></article></main>",
        "<h1>Trees</h1><article class=post id=post-1>{second}</article><aside>x</aside>"
        "<article class=post id=post-2>{first}</article>",
        "<h1>Trees</h1><div class=post-content>{second}</div><div class=post-content>{first}</div>",
        "<h1>Trees</h1><div class='article-text'>{first}</div><b>Ad</b>"
        "<div class='with-ads article-text'>{second}</div>",
    ],
    ids=["parts", "posts", "replies", "blocks"],
)
def test_of_a_text_in_parts_the_longest_is_not_all(read, body):
    first = PROSE.replace("Sentence", "Opening")[:1_000]
    page = body.format(first=first, second=f"{PROSE}</p><p>{PROSE}")
    said = '<meta property="og:type" content="article">'

    text = read(f"<html><head>{said}</head><body>{page}", mime="text/html", url=URL).text

    assert first in text
    assert "Sentence 39" in text


def test_paragraphs_of_a_style_that_sounds_like_a_label_are_text(read):
    part = '<p class="tagStyle_18h">Pear {n} <a href=/{n}>from the orchard in the valley</a></p>'
    parts = "".join(part.format(n=n) for n in range(20))
    page = f"<html><body><main><h1>Pears</h1><p>{PROSE}</p>{parts}</main></body></html>"

    text = read(page, mime="text/html", url=URL).text

    assert all(f"Pear {n} " in text for n in range(20))


@pytest.mark.parametrize("name", ["post post-{}", "s-prose js-post-body"])
def test_short_replies_in_a_forum_are_read_beside_a_long_question(read, name):
    texts = [PROSE, "No, it is too cold for pears there.", PROSE[:300], "Thanks a lot, that helps!"]
    posts = "".join(f"<div class='{name.format(n)}'>{one}</div>" for n, one in enumerate(texts))
    page = f"<html><body><h1>Pears?</h1><div>{posts}</div></body></html>"

    text = read(page, mime="text/html", url=URL).text

    assert all(one in text for one in texts)


def test_questions_that_fold_up_their_answers_are_read(read):
    part = "<div><button aria-expanded=false>May I {n}?</button><div>Yes, {n}.</div></div>"
    parts = "".join(part.format(n=n) for n in range(9))
    menu = "<button aria-expanded=false>Menu</button>"
    page = f"<html><body><main>{menu}<h1>FAQ</h1><p>{PROSE}</p>{parts}</main></body></html>"

    text = read(page, mime="text/html", url=URL).text

    assert all(f"May I {n}?" in text for n in range(9))
    assert "Menu" not in text


def test_things_in_a_category_of_cookies_are_text(read):
    part = f"<h2>Wafers</h2><p>{OTHER}</p><a class=button href=/buy>Buy</a>"
    things = "".join(f"<div class='post-{n} post category-cookies'>{part}</div>" for n in range(4))

    text = read(f"<html><body><h1>Bakery</h1>{things}", mime="text/html", url=URL).text

    assert text.count(OTHER) == 4


def test_one_article_is_read_without_the_teasers_beside_it(read):
    teaser = "<article class=teaser><h3>Bees</h3>" + "The bees are out and about again. " * 8
    page = f"<html><body><article class=post><h1>Trees</h1>{PROSE}</article>{teaser}</article>"

    text = read(page, mime="text/html", url=URL).text

    assert "Sentence 39" in text
    assert "bees" not in text


def test_a_section_about_footers_and_the_foot_of_a_card_are_text(read):
    parts = "<section id=footer><h2>The footer</h2><p>Apples.</p></section>"
    parts += "<div class=card><p>Pears.</p><div class=card-footer>Ripe in May.</div></div>"

    text = read(_page(parts), mime="text/html", url=URL).text

    assert "Apples." in text
    assert "Ripe in May." in text


@pytest.mark.parametrize(
    "widget",
    [
        "<div id=cookie-law-info-bar><span><div class=cli-bar-message>{}</div></span></div>"
        "<div class=cli-modal id=cliSettingsPopup><div class=cli-modal-content><h4>Overview</h4>"
        "<div class=cli-privacy-content><div class=cli-privacy-content-text>{}</div></div></div>"
        "</div>",
        "<div class=cky-modal><p class=cky-title>Customise</p><div>{}</div></div>",
        "<div id=didomi-host><div id=didomi-notice><p>{}</p><button>Agree</button></div></div>",
        "<div class=fc-consent-root><h1>Welcome</h1><p>{}</p><button>Consent</button></div>",
        "<div id=iubenda-cs-banner><div id=iubenda-cs-title>Notice</div><p>{}</p></div>",
        "<div id=klaro><div class=klaro><p>{}</p><button>Fine</button></div></div>",
        "<div id=axeptio_overlay><template shadowrootmode=open><h2>Hello</h2>{}</template></div>",
        "<div id=sp_message_container_12><div class=message><p>{}</p></div></div>",
    ],
    ids=[
        "WebToffee",
        "CookieYes",
        "Didomi",
        "Google",
        "iubenda",
        "Klaro",
        "Axeptio",
        "Sourcepoint",
    ],
)
def test_widgets_that_ask_for_consent_are_left_out(read, widget):
    asked = f"{OTHER} We ask you to agree, as the law of many countries has it. " * 4
    page = f"<html><body>{widget.replace('{}', asked)}<h1>Trees</h1><p>One sentence.</p></body>"

    text = read(page, mime="text/html", url=URL).text

    assert OTHER not in text
    assert "One sentence." in text


def test_a_page_about_cookies_is_read_without_the_bar_that_asks(read):
    bar = f"<div class=cookie-bar><p>{OTHER}</p><button>Yes</button></div>"
    said = (
        "<div class=cookie-info><p>Small files.</p></div><div class=cookie-table><table><tr>"
        "<td>_id</td><td>Counts visits.</td></tr></table></div><p class=consent>Say no.</p>"
    )
    page = f"<body>{bar}<div id=content><h1>Our cookies</h1><p>{PROSE}</p>{said}</div></body>"

    text = read(page, mime="text/html", url=URL).text

    assert OTHER not in text
    assert all(words in text for words in ("Small files.", "Counts visits.", "Say no."))


def test_what_a_manual_says_of_a_widget_that_asks_for_consent_is_text(read):
    part = f"<section id=klaro><h2>Klaro</h2><p>{OTHER}</p></section>"

    assert OTHER in read(_page(part), mime="text/html", url=URL).text


CHAPTERS = "".join(f"<li><a href=c{number}.html>Of kind {number}</a></li>" for number in range(9))
MANY = "".join(f"<li><a href=/t{number}>All of kind {number}</a></li>" for number in range(300))
FUNCTIONS = "".join(
    f"<tr><td><a href=#{name}>graft_{name}</a></td><td>int</td></tr>" for name in "abc"
)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (f"<p>{PROSE}</p><h2>Chapters</h2><ul>{CHAPTERS}</ul>", "Of kind 8"),
        (
            f"<div class=paragraph><p>{PROSE}</p></div><div class=ulist><ul>{CHAPTERS}</ul></div>",
            "Of kind 8",
        ),
        (f"<div>{PROSE}</div><div class=list><ul>{MANY}</ul></div>", "All of kind 299"),
        (f"<div>{PROSE}</div><table><tr><th>Name<th>Type</tr>{FUNCTIONS}</table>", "graft_c"),
        (
            f"<div class=part1><h2>Functions</h2><ul>{CHAPTERS}</ul></div>"
            f"<div class=part2><h2>Details</h2><p>{PROSE}</p></div>",
            "Of kind 8",
        ),
        (
            f"<section><h2>See also</h2><ul>{CHAPTERS}</ul></section>"
            f"<section><h2>Details</h2><p>{PROSE}</p></section>",
            "Of kind 8",
        ),
    ],
    ids=["chapters", "Asciidoctor", "mostly links", "table", "parts", "sections"],
)
@pytest.mark.parametrize("main", ["main", "article", "div role=main"])
def test_lists_of_links_in_a_marked_main_part_are_text(read, main, body, said):
    page = f"<html><body><{main}><h1>Trees</h1>{body}</{main.split()[0]}></body></html>"

    assert said in read(page, mime="text/html", url=URL).text


def test_links_to_other_pages_beside_a_marked_text_are_left_out(read):
    tags = "<div><a href=/tag/a>Of apples</a> <a href=/tag/b>Of pears</a></div>"
    page = f"<html><body><main><div><h1>Trees</h1><p>{PROSE}</p></div>{tags}</main></body></html>"

    assert "Of pears" not in read(page, mime="text/html", url=URL).text


@pytest.mark.parametrize(("heading", "is_said"), [("Trees", True), ("The orchard", False)])
def test_the_heading_of_a_page_is_read_where_it_stands_beside_the_posts(read, heading, is_said):
    posts = "".join(f"<article class=post id=p{n}><p>Post {n}.</p></article>" for n in range(30))
    page = (
        f"<html><head><title>Trees - The orchard</title></head><body><div><h1>{heading}</h1></div>"
        f"<div>{posts}</div></body></html>"
    )

    text = read(page, mime="text/html", url=URL).text

    assert text.startswith("# Trees\n\nPost 0.") is is_said
    assert "Post 29." in text
