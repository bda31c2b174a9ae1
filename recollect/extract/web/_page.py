"""Reading one HTML page: cut away what is not content, find the main part, write Markdown."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

import ada_url
import html_to_markdown
from selectolax.lexbor import LexborHTMLParser, LexborNode

from recollect.extract import _formulas, _main, _signs
from recollect.extract._charsets import read_page
from recollect.extract._main import holders, length, opening, outermost, remove
from recollect.extract._text import clean_line
from recollect.extract._wire import URL_LENGTH
from recollect.extract.web import _hidden, _lists, _math
from recollect.extract.web._markup import refuse_hostile, shown
from recollect.model import Blob, Extracted

_NOT_CONTENT = (
    "script, style, noscript, template, canvas, iframe, object, embed, audio, video, nav, "
    "footer:not(blockquote footer), dialog, input, select, textarea, button, [role=navigation], "
    "[role=contentinfo], [role=complementary], [role=search], [role=dialog], [role=alertdialog], "
    # The pilcrows, pencils and copy buttons that documentation and wikis hang on headings and code.
    "a.headerlink, a.anchor, a.anchor-link, a.hash-link, .mw-editsection, .clipboard-copy, "
    # Numbers of lines, in a column or ahead of each.
    "td.linenos, td.gutter, td.lineno, td.blob-num, span.linenos, span.lineno, .line-numbers-rows, "
    "td.line-numbers, .line-numbers-wrapper, .chroma .ln, .chroma .lnt, .crayon-nums, "
    # The language that VitePress writes ahead of code, and its links that skip to the text.
    'div[class*="language-"] > span.lang, a[href^="#"][class*="skip" i], '
    # The source that pdoc folds up below what it says in prose.
    "div.pdoc-code.codehilite, "
    # The number of a note of LaTeXML, a third time.
    ".ltx_tag_note, "
    # What stands beside the text, but for its own notes, as docutils and Starlight write them.
    'aside:not([role="note" i], [role^="doc-" i], [class*="footnote" i], [class*="admonition" i], '
    '[class*="starlight-aside" i])'
)
# What folds up a part of the page when it is pressed.
_HEADING_BUTTONS = (
    "h1 button, h2 button, h3 button, h4 button, h5 button, h6 button, dt button, summary button"
)
_QUESTION = re.compile(r"[?\uff1f\u061f\u037e]\s*\Z")
_SAID = "title, h1, h2, h3, figcaption, a"
_CAPTIONS = 'figcaption, [class*="caption" i]'
_FILE_NAME = re.compile(
    r"\S+\.(?:jpe?g|png|gif|webp|svg|avif|bmp)|\S*[\d_-]\S*|image|photo|picture|logo|icon|img", re.I
)
_CAPTION_LENGTH = 500
_SAID_LENGTH = 300
_LABEL_LEVELS = 5
_STORY_MARKS = (
    'meta[property="og:type"][content="article" i], meta[property="article:published_time"], '
    '[itemtype$="/NewsArticle"], [itemtype$="/BlogPosting"], [itemtype$="/Article"]'
)
_STORY_TYPE = re.compile(r'"@type"\s*:\s*\[?\s*"(?:\w*NewsArticle|BlogPosting|Article)"')
_LINKED_DATA = 1_000_000
_CONSENT = (
    '[id*="cookie" i], [class*="cookie" i], [id*="consent" i], [class*="consent" i], '
    '[id*="gdpr" i], [class*="gdpr" i]'
)
# What the widgets that ask for consent write, most often with a heading of their own.
_WIDGETS = (
    ".cc-window.cc-banner, .cc-window.cc-floating, .cky-consent-container, .cky-modal, "
    ".cmplz-cookiebanner, .cookiefirst-root, .eu-cookie-compliance-banner, .fc-consent-root, "
    ".govuk-cookie-banner, .osano-cm-window, .rcb-banner, .sqs-cookie-banner-v2, "
    "#axeptio_overlay, #BorlabsCookieBox, #BorlabsCookieWidget, #cc-main > .cm-wrapper, "
    "#ccc-notify, #cliSettingsPopup, #cmpbox, #cmpwrapper, #cookie-law-info-bar, "
    "#cookieChoiceInfo, #cookiescript_injected, #CybotCookiebotDialog, #didomi-host, "
    "#hs-eu-cookie-confirmation, #iubenda-cs-banner, #klaro > .klaro, #moove_gdpr_cookie_info_bar, "
    "#moove_gdpr_cookie_modal, #onetrust-consent-sdk, #qc-cmp2-container, #shopify-pc__banner, "
    "#tarteaucitronRoot, #termly-code-snippet-support, #truste-consent-track, #uc-cmp-container, "
    '#usercentrics-cmp-ui, #usercentrics-root, [id^="sp_message_container_"]'
)
# But for what a shop or a blog says of things in its categories.
_CONSENT_NAME = re.compile(
    r"(?<!\S)(?!\S*(?:category|cat|tag)[-_])\S*(?:cookie|consent|gdpr)", re.I
)
_BAR = re.compile(
    r"(?:alert|banner|bar|law|message|modal|notice|notification|overlay|pop-?up|toast|warning)"
    r"(?![a-z])",
    re.I,
)
_CONSENT_CONTROL = (
    "button, input, [role=button], [class*=btn i], [class*=button i], [class*=accept i], "
    "[class*=close i]"
)
_CONSENT_TOPIC = re.compile("cookie|consent|gdpr", re.I)
_CONSENT_LENGTH = 1_500
_CONSENT_NODES = 700
_STRUCTURE = "main, article, h1, [role=main]"
_HEADED = "h1, h2, h3, h4, h5, h6, dt, pre, code"
_SUPERSCRIPT = "\U0010fffb"
_SUPERSCRIPTS = re.compile(f"{_SUPERSCRIPT}([^{_SUPERSCRIPT}]*){_SUPERSCRIPT}")
_TOO_DEEP = html_to_markdown.WarningKind.DEPTH_LIMIT_EXCEEDED
_UNKNOWN = re.compile(r"(?:acronym|big|nobr|[a-z][^-]*-.*)", re.DOTALL)
"""names of elements; a page's own have a hyphen"""
# Elements within a line.
_INLINE = (
    r"(?:a|abbr|b|bdi|bdo|cite|code|data|del|dfn|em|font|i|ins|kbd|label|mark|q|s|samp|small|span|"
    r"strike|strong|sub|sup|time|tt|u|var)"
)
_BREAK_AHEAD = re.compile(rf"(?<=[^>\s])[ \t\r]*+\n\s*+(?=</?{_INLINE}[\s>])")
_BREAK_BETWEEN = re.compile(rf"(</{_INLINE}>)\s++(?=<{_INLINE}[\s>])")
_WORD = re.compile(r"\w")
# By which one links to a heading, or goes back from a note.
_LINK_SIGN = re.compile("\\s*[#¶§^↑⇑⤴↩↵⏎⮌🔗\u200b][\\s\u200b\ufe0e\ufe0f]*")
_FRAME = frozenset({"div", "td", "tr", "tbody", "table"})
_FRAME_LEVELS = 12
_CODE_LANGUAGE = re.compile(
    r"(?:^|\s)(?:highlight-source-|language-|lang-|highlight-|brush:\s*)(?!default\b)([a-z0-9+#]+)",
    re.IGNORECASE,
)


# For readers of HTML an element that ends itself does not end, other than for those of XHTML.
_SELF_ENDED = re.compile(
    r"<(?!(?:area|base|br|col|embed|hr|img|input|link|meta|source|track|wbr)\b)"
    r"([A-Za-z][\w:-]*)([^<>]*)/>"
)
# Nor do names have prefixes there.
_OF_MATHML = re.compile(r"""xmlns:([A-Za-z]\w*)=["']http://www\.w3\.org/1998/Math/MathML["']""")
_ASCII = "".join(map(chr, range(33, 127)))
_UNSEEN = (
    '[display="none" i]', '[visibility="hidden" i]', '[visibility="collapse" i]', '[opacity="0"]',
    '[fill-opacity="0"]', '[font-size="0"]',
)  # fmt: skip
# Parts of a drawing that other parts use, and parts that nobody sees.
_UNDRAWN = ", ".join([
    'defs, metadata, symbol, clipPath, mask, marker, pattern, svg[width="0"], svg[height="0"]',
    *(f"svg{how}, svg {how}" for how in _UNSEEN),
    *(f'{name}[fill="{none}" i]' for name in ("text", "tspan") for none in ("none", "transparent")),
])  # fmt: skip
_MACHINERY = "script, style, noscript, template, iframe, object, embed, audio, video"
# What is left out is decided here: it would drop menus, headers and forms without a word.
_PREPROCESSING = html_to_markdown.PreprocessingOptions(remove_navigation=False, remove_forms=False)


@dataclass(frozen=True, slots=True)
class _Cleaned:
    hidden: int
    doubtful: int


@dataclass(frozen=True, slots=True)
class Whole:
    """All of a page that can be read: a chapter of a book, a letter."""

    text: str
    title: str | None
    hidden: int
    """characters that were left out because no reader sees them"""


@dataclass(frozen=True, slots=True)
class Parsed:
    """A page before anything is taken from it."""

    tree: LexborHTMLParser
    source: str
    encoding: str
    url: str | None
    base: str | None
    """what links are relative to; None when nobody knows"""


def parse(blob: Blob) -> Parsed:
    """Raises Permanent for markup that would choke a parser."""
    encoding, source = read_page(blob.data, blob.mime)
    source = shown(source)
    refuse_hostile(source)
    tree = LexborHTMLParser(source)
    return Parsed(tree, source, encoding, blob.url, _base(tree, blob.url))


def read(blob: Blob) -> Extracted:
    """Raises Permanent for markup that would choke a parser."""
    return content(parse(blob))


def content(parsed: Parsed) -> Extracted:
    """The main part. Takes the tree apart on its way."""
    page, base = parsed.tree, parsed.base
    title = _title(page)
    story = urlsplit(base).hostname if base and _is_story(page) else None
    if story:
        _drop_captions(page)
    cleaned = _clean(page)
    main = _main.find(page, fetched=parsed.url is not None, story=story)
    main = [*_heading_apart(page, main, title), *main]
    _unwrap_own_links(main, parsed.url or "")
    text = "\n\n".join(_markdown(node, base) for node in main)
    warnings = hidden_warnings(cleaned.hidden)
    if cleaned.doubtful:
        warnings.append(
            f"White text is in it that may be hidden ({cleaned.doubtful:,} characters)."
        )
    return Extracted(text, title=title, warnings=warnings)


def _heading_apart(
    page: LexborHTMLParser, main: Sequence[LexborNode], title: str | None
) -> list[LexborNode]:
    """The heading of the page, where it stands beside its main part: what the title begins with,
    and no link, as a logo is."""
    headings = [node for node in outermost(page.css("h1")) if not node.css_first("a[href]")]
    said = clean_line(headings[0].text(separator=" ")) if len(headings) == 1 else ""
    if not said or not (title or "").startswith(said):
        return []
    within = {one.mem_id for node in main for one in (node, *node.css("h1"))}
    return [heading for heading in headings if heading.mem_id not in within]


def read_chapter(data: bytes, *, besides: str = "") -> Whole:
    """All of an XHTML page; of what it says only links, pictures and hidden text are left out, and
    what the selector `besides` names."""
    source = _SELF_ENDED.sub(r"<\1\2></\1>", read_page(data, None)[1])
    if prefix := _OF_MATHML.search(source):
        source = re.sub(rf"(</?){prefix[1]}:", r"\1", source)
    return _read_whole(source, besides)


def read_letter(data: bytes, mime: str) -> Whole:
    """All of an HTML mail."""
    return _read_whole(read_page(data, mime)[1])


def hidden_warnings(hidden: int) -> list[str]:
    return [f"Hidden text was left out ({hidden:,} characters)."] if hidden else []


def _read_whole(source: str, besides: str = "") -> Whole:
    refuse_hostile(source)
    page = LexborHTMLParser(source)
    title = _title(page)
    _math.mark_drawn(page)
    hidden = remove(_hidden.find(page).nodes)
    _math.mark(page)
    _lists.mark(page)
    _drop_styles(page)
    remove(page.css(f"{_MACHINERY}, {besides}" if besides else _MACHINERY))
    for link in page.css("a"):
        link.unwrap()
    for image in page.css("img, image"):
        image.replace_with(image.attributes.get("alt") or "")
    _say_drawings(page, "title, desc, text, foreignObject")
    return Whole(_markdown(page.body, None) if page.body else "", title, hidden)


def _title(page: LexborHTMLParser) -> str | None:
    named = page.css_first('meta[property="og:title"], meta[name="og:title"]')
    candidates = [named.attributes.get("content") if named else None]
    # An SVG has titles, too: only that of the head is the page's.
    candidates += [node.text() for node in page.css("head > title")[:1]]
    candidates += [node.text(separator=" ") for node in page.css("h1")[:1]]
    return next((title for text in candidates if text and (title := clean_line(text))), None)


def _base(page: LexborHTMLParser, url: str | None) -> str | None:
    """What links are relative to; None when nobody knows."""
    own = absolute(url, None) if url else None
    node = page.css_first("base[href]")
    return absolute((node.attributes.get("href") or "") if node else "", own) or own


def absolute(address: str, base: str | None, encoding: str = "utf-8") -> str | None:
    """What a link leads to, as WHATWG reads it, without its fragment; None unless http or https."""
    if len(address) > URL_LENGTH:
        return None
    if not address.isascii():
        address = _as_sent(address, encoding)
    try:
        url = ada_url.URL(address, base).href.partition("#")[0]
    except ValueError:
        return None
    return url if url.startswith(("http://", "https://")) and len(url) <= URL_LENGTH else None


def _as_sent(address: str, encoding: str) -> str:
    """The query in the encoding of the page (URL Standard 4.4, query state)."""
    if encoding.startswith("utf"):
        return address
    ahead, mark, rest = address.partition("?")
    query, hash, _ = rest.partition("#")
    try:
        return ahead + mark + quote(query, safe=_ASCII, encoding=encoding, errors="strict") + hash
    except (UnicodeEncodeError, LookupError):
        return address


def _clean(page: LexborHTMLParser) -> _Cleaned:
    whole = length(page.body) if page.css_first("form") else 0
    _math.mark_drawn(page)
    found = _hidden.find(page)
    hidden = remove(found.nodes)
    _math.mark(page)
    _lists.mark(page)
    _drop_styles(page)
    holding = holders(page.css(_STRUCTURE))
    text = {node.mem_id: True for node in page.css(f"main, article, [role=main], {_HEADED}")}
    remove(node for node in page.css(_WIDGETS) if not node.css_matches("main, article"))
    is_topic = any(_CONSENT_TOPIC.search(node.text()) for node in page.css("title, h1"))
    bars = (node for node in page.css(_CONSENT) if node.mem_id not in holding)
    remove(node for node in bars if _is_consent_bar(node, text, is_topic=is_topic))
    for form in page.css("form"):
        # Some frameworks wrap the whole page in one form.
        if form.css_first(_STRUCTURE) or length(form) * 2 > whole:
            form.unwrap()
    remove(page.css("form"))
    for button in page.css(_HEADING_BUTTONS):
        button.unwrap()
    for button in page.css("button[aria-expanded]"):
        if _QUESTION.search(button.text()):  # above its answer
            button.unwrap()
    remove(page.css(_NOT_CONTENT))
    _say_drawings(page, "text, foreignObject")  # the titles of icons say what a button does
    # The head of the site; that of a page has its heading.
    for node in outermost(page.css("header, main, article, section")):
        if node.tag == "header" and not node.css_first("h1"):
            node.decompose()
    remove(node for node in page.css("a") if not node.text().strip() and not node.css_first("img"))
    remove(node for node in page.css('a[href*="#"]') if _LINK_SIGN.fullmatch(node.text()))
    for link in page.css('a[href^="javascript:" i], a[href^="data:" i], pre a'):
        link.unwrap()
    for link in page.css("a[title]"):  # what other pages say of themselves
        del link.attrs["title"]
    _describe_images(page)
    lengths: dict[int, int] = {}
    for block in page.css("pre"):
        _name_language(block)
        _unframe(block, lengths)
    return _Cleaned(hidden, found.doubtful)


def _unwrap_own_links(main: Iterable[LexborNode], url: str) -> None:
    """Of links to places on the page itself the text is enough: manuals have hundreds."""
    here = ("", url.partition("#")[0], urlsplit(url).path.rpartition("/")[2])
    for node in main:
        for link in node.css('a[href*="#"]'):
            if (link.attributes.get("href") or "").partition("#")[0] in here:
                link.unwrap()


def _is_story(page: LexborHTMLParser) -> bool:
    """Whether a page says that it is an article of a newspaper or a blog."""
    if page.css_first(_STORY_MARKS):
        return True
    return any(
        len(text := node.text()) <= _LINKED_DATA and _STORY_TYPE.search(text)
        for node in page.css('script[type="application/ld+json" i]')
    )


def _drop_captions(page: LexborHTMLParser) -> None:
    """In a story the text goes without what is said of its pictures, often again and again."""
    remove(node for node in page.css(_CAPTIONS) if opening(node, _CAPTION_LENGTH) is not None)
    for image in page.css("img[alt]"):
        del image.attrs["alt"]


def _describe_images(page: LexborHTMLParser) -> None:
    """The description of an image is content, its address is not; each thing is said once."""
    said = {opening(node, _SAID_LENGTH) for node in page.css(_SAID)}
    labelled: dict[int, bool] = {}
    for image in page.css("img"):
        text = " ".join((image.attributes.get("alt") or "").split())
        is_said = text in said or _FILE_NAME.fullmatch(text) or _is_labelled(image, labelled)
        said.add(text)
        image.replace_with("" if is_said else text)


def _say_drawings(page: LexborHTMLParser, labels: str) -> None:
    """What is written in them, each label once, in their place.

    The converter would write a drawing out in base64.
    """
    drawings = outermost(page.css("svg"))
    if drawings:
        remove(page.css(_UNDRAWN))
    for drawing in drawings:
        said = (node.text(separator=" ").split() for node in outermost(drawing.css(labels)))
        each = dict.fromkeys(" ".join(words) for words in said)
        drawing.replace_with(f" {', '.join(label for label in each if _WORD.search(label))} ")


def _is_labelled(image: LexborNode, known: dict[int, bool]) -> bool:
    """Whether a caption or the text of a link says what is in an image."""
    parent = image.parent
    for _ in range(_LABEL_LEVELS):
        if parent is None:
            return False
        if parent.tag in ("a", "figure"):
            if parent.mem_id not in known:
                known[parent.mem_id] = bool(
                    parent.text().strip()
                    if parent.tag == "a"
                    else parent.css_first("figcaption") is not None
                )
            return known[parent.mem_id]
        parent = parent.parent
    return False


def _drop_styles(page: LexborHTMLParser) -> None:
    """What is hidden is decided; the converter would drop by these without a word."""
    for name in ("style", "hidden"):
        for node in page.css(f"[{name}]"):
            del node.attrs[name]


def _is_consent_bar(node: LexborNode, text: dict[int, bool], *, is_topic: bool) -> bool:
    """One asks for something, or is named for it; what a manual says of cookies has its id from a
    heading, or a term.

    `text`: which nodes are, or stand in, the text of the page; `is_topic`: it is about cookies.
    """
    classes, id = node.attributes.get("class") or "", node.attributes.get("id") or ""
    names = f"{classes} {id}".lower()
    if node.tag in {"html", "body", "main", "article"} or not _CONSENT_NAME.search(names):
        return False
    is_bar = _BAR.search(names) is not None or ("cookie" in names and "consent" in names)
    is_named = is_bar or _CONSENT_NAME.search(classes) is not None
    # They may stand within each other: none is looked at to its end.
    length = 0
    for seen, part in enumerate(node.traverse(include_text=True)):
        length += len((part.text_content or "").strip()) if part.is_text_node else 0
        if length >= _CONSENT_LENGTH or seen >= _CONSENT_NODES:
            return False
    is_headed = node.css_first(_HEADED) is not None
    if node.css_first(_CONSENT_CONTROL) is not None:
        return not (is_headed and _stands_in(node, text))
    is_section = node.tag == "section" or "section" in classes.lower().split()
    asks = is_bar and not is_section if is_headed else is_named
    return asks and not is_topic and not _stands_in(node, text)


def _stands_in(node: LexborNode, known: dict[int, bool]) -> bool:
    passed: list[int] = []
    around: LexborNode | None = node
    while around is not None and around.mem_id not in known:
        passed.append(around.mem_id)
        around = around.parent
    found = around is not None and known[around.mem_id]
    known |= dict.fromkeys(passed, found)
    return found


def _name_language(block: LexborNode) -> None:
    """Put the language of a code block where the converter looks for it."""
    code = block.css_first("code")
    around = [code, block, block.parent, block.parent.parent if block.parent else None]
    for node in around:
        if node is not None and (
            match := _CODE_LANGUAGE.search(node.attributes.get("class") or "")
        ):
            block.attrs["class"] = f"language-{match[1].lower()}"
            return


def _unframe(block: LexborNode, lengths: dict[int, int]) -> None:
    """Take a code block out of the table that showed it beside the numbers of its lines.

    `lengths`: of tables that were looked at, since one may hold many blocks.
    """
    around: list[LexborNode] = []
    parent = block.parent
    while parent is not None and parent.tag in _FRAME and len(around) < _FRAME_LEVELS:
        around.append(parent)
        if parent.tag == "table":
            if parent.mem_id not in lengths:
                lengths[parent.mem_id] = length(parent)
            if lengths[parent.mem_id] == length(block):
                for frame in around:
                    frame.unwrap()
            return
        parent = parent.parent


def _unbroken(page: str) -> str:
    """With a space for each line break before or at the end of what stands within a line: between
    some of these the converter drops a break and joins the words. Code stays as it is."""
    parts: list[str] = []
    position = 0
    while position < len(page):
        start = page.find("<pre", position)
        end = page.find("</pre>", start) if start >= 0 else -1
        start, end = (start, end) if end >= 0 else (len(page), len(page))
        text = _BREAK_AHEAD.sub(" ", page[position:start])
        parts += (_BREAK_BETWEEN.sub(r"\1 ", text), page[start:end])
        position = end
    return "".join(parts)


def _markdown(node: LexborNode, base: str | None) -> str:
    # The converter joins the words in what it does not know with those around it.
    for one in [part for part in node.traverse() if _UNKNOWN.fullmatch(part.tag or "")]:
        if one.mem_id != node.mem_id:
            one.unwrap()
    # Bullets and links of nothing: what stood there was a button or a picture.
    remove(one for one in node.css("ul > li, a") if opening(one, 1) == "")
    options = html_to_markdown.ConversionOptions(
        extract_metadata=False,
        compact_tables=True,
        base_url=base,
        preprocessing=_PREPROCESSING,
        sup_symbol=_SUPERSCRIPT,
    )
    result = html_to_markdown.convert(_unbroken(node.html or ""), options)
    if any(warning.kind == _TOO_DEEP for warning in result.warnings):
        # It leaves out what is nested more than 1,024 levels deep: words matter more than form.
        return _formulas.plain(_lists.unmarked(node.text(separator="\n").strip()))
    text = _SUPERSCRIPTS.sub(
        lambda part: _signs.raised(part[1], part.string[max(0, part.start() - 1) : part.start()]),
        _lists.unmarked(result.content or ""),
    )
    return _formulas.plain(_signs.plain(text.strip()))
