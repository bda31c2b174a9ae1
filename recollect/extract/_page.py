"""Reading one HTML page: cut away what is not content, find the main part, write Markdown."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urljoin

import html_to_markdown
from selectolax.lexbor import LexborHTMLParser, LexborNode
from w3lib.encoding import html_to_unicode

from recollect.extract import _hidden
from recollect.extract._markup import refuse_hostile
from recollect.extract._text import clean_line, guess_encoding
from recollect.model import Blob, Extracted

_NOT_CONTENT = (
    "script, style, noscript, template, svg, canvas, iframe, object, embed, audio, video, nav, "
    "footer, aside, dialog, input, select, textarea, button, [role=navigation], "
    "[role=contentinfo], [role=complementary], [role=search], [role=dialog], [role=alertdialog], "
    # The pilcrows, pencils and copy buttons that documentation and wikis hang on headings and code.
    "a.headerlink, a.anchor, a.anchor-link, a.hash-link, .mw-editsection, .clipboard-copy"
)
_CONSENT = (
    '[id*="cookie" i], [class*="cookie" i], [id*="consent" i], [class*="consent" i], '
    '[id*="gdpr" i], [class*="gdpr" i]'
)
_CONSENT_LENGTH = 1_500
_STRUCTURE = "main, article, h1, [role=main]"
_MAIN = (
    "main",
    "[role=main]",
    "article",
    '[itemprop="articleBody"]',
    "#mw-content-text",
    ".markdown-body, .post-content, .entry-content, .article-content, .article-body",
    "#main-content, #content, #main",
)
_TOO_DEEP = html_to_markdown.WarningKind.DEPTH_LIMIT_EXCEEDED
_SUBSTANCE = 200
"""Characters of text from which on a marked container counts as main without comparison."""
_CODE_LANGUAGE = re.compile(
    r"(?:^|\s)(?:highlight-source-|language-|lang-|highlight-|brush:\s*)(?!default\b)([a-z0-9+#]+)",
    re.IGNORECASE,
)


# For readers of HTML an element that ends itself does not end, other than for those of XHTML.
_SELF_ENDED = re.compile(
    r"<(?!(?:area|base|br|col|embed|hr|img|input|link|meta|source|track|wbr)\b)"
    r"([A-Za-z][\w:-]*)([^<>]*)/>"
)
_MACHINERY = "script, style, noscript, template, iframe, object, embed, audio, video, form"


@dataclass(frozen=True, slots=True)
class _Cleaned:
    hidden: int
    doubtful: int
    boilerplate: bool


@dataclass(frozen=True, slots=True)
class Whole:
    """All of a page that can be read: a chapter of a book, a letter."""

    text: str
    title: str | None
    hidden: int
    """characters that were left out because no reader sees them"""


def read(blob: Blob) -> Extracted:
    """Raises Permanent for markup that would choke a parser."""
    source = _decoded(blob.data, blob.mime)
    refuse_hostile(source)
    page = LexborHTMLParser(source)
    title = _title(page)
    base = _base(page, blob.url)
    cleaned = _clean(page)
    main = _main(page)
    if main:
        text = "\n\n".join(_markdown(node, base) for node in main)
    else:
        text = _markdown(page.body, base) if page.body else ""
        if blob.url and cleaned.boilerplate:
            text = _guess_main(source, blob.url, text)
    warnings = hidden_warnings(cleaned.hidden)
    if cleaned.doubtful:
        warnings.append(
            f"White text is in it that may be hidden ({cleaned.doubtful:,} characters)."
        )
    return Extracted(text, title=title, warnings=warnings)


def read_chapter(data: bytes) -> Whole:
    """All of an XHTML page; of what it says only links, pictures and hidden text are left out."""
    return _read_whole(_SELF_ENDED.sub(r"<\1\2></\1>", _decoded(data, None)))


def read_letter(data: bytes, mime: str) -> Whole:
    """All of an HTML mail."""
    return _read_whole(_decoded(data, mime))


def hidden_warnings(hidden: int) -> list[str]:
    return [f"Hidden text was left out ({hidden:,} characters)."] if hidden else []


def _decoded(data: bytes, mime: str | None) -> str:
    return html_to_unicode(mime, data, auto_detect_fun=guess_encoding)[1]


def _read_whole(source: str) -> Whole:
    refuse_hostile(source)
    page = LexborHTMLParser(source)
    title = _title(page)
    hidden = _remove(_hidden.find(page).nodes)
    _drop_styles(page)
    _remove(page.css(_MACHINERY))
    for link in page.css("a"):
        link.unwrap()
    for image in page.css("img, image"):
        image.replace_with(image.attributes.get("alt") or "")
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
    node = page.css_first("base[href]")
    declared = (node.attributes.get("href") or "") if node else ""
    try:
        return urljoin(url, declared) if url else None
    except ValueError:  # a base such as "http://[" is not there for browsers either
        return url


def _clean(page: LexborHTMLParser) -> _Cleaned:
    whole = _length(page.body)
    found = _hidden.find(page)
    hidden = _remove(found.nodes)
    _drop_styles(page)
    _remove(node for node in page.css(_CONSENT) if _is_consent_bar(node))
    for form in page.css("form"):
        # Some frameworks wrap the whole page in one form.
        if form.css_first(_STRUCTURE) or _length(form) * 2 > whole:
            form.unwrap()
    _remove(page.css("form"))
    boilerplate = page.css_first("nav, footer, aside, header, [role=navigation]") is not None
    _remove(page.css(_NOT_CONTENT))
    _remove(node for node in page.css("a") if not node.text().strip() and not node.css_first("img"))
    for link in page.css('a[href^="javascript:" i], a[href^="data:" i]'):
        link.unwrap()
    for image in page.css("img"):
        # The description is content, the address is not.
        image.replace_with(image.attributes.get("alt") or "")
    for block in page.css("pre"):
        _name_language(block)
    return _Cleaned(hidden, found.doubtful, boilerplate)


def _drop_styles(page: LexborHTMLParser) -> None:
    """What is hidden is decided; the converter would drop by styles without a word."""
    for node in page.css("[style]"):
        del node.attrs["style"]


def _remove(nodes: Iterable[LexborNode]) -> int:
    """Take nodes out of the tree; how many characters of text went with them.

    Last first, so that none is touched after an ancestor of it was freed: a selection is in
    document order, but a node that matches twice is in it twice.
    """
    characters = 0
    for node in reversed({node.mem_id: node for node in nodes}.values()):
        characters += len("".join(node.text().split()))
        node.decompose()
    return characters


def _is_consent_bar(node: LexborNode) -> bool:
    if node.tag in {"html", "body", "main", "article"} or node.css_first(_STRUCTURE):
        return False
    return _length(node) < _CONSENT_LENGTH


def _length(node: LexborNode | None) -> int:
    return len(" ".join(node.text().split())) if node else 0


def _main(page: LexborHTMLParser) -> list[LexborNode]:
    """The container or containers of the main content; empty when the page marks none."""
    whole = _length(page.body)
    for selector in _MAIN:
        nodes = [node for node in page.css(selector) if not _is_inside(node, selector)]
        lengths = [_length(node) for node in nodes]
        if not nodes or sum(lengths) < min(_SUBSTANCE, whole / 2):
            continue
        # One article with teasers of others beside it, or a list of articles.
        longest = max(range(len(nodes)), key=lengths.__getitem__)
        return [nodes[longest]] if lengths[longest] * 2 > sum(lengths) else nodes
    return []


def _is_inside(node: LexborNode, selector: str) -> bool:
    parent = node.parent
    while parent is not None and parent.tag not in {"body", "html"}:
        if parent.css_matches(selector):
            return True
        parent = parent.parent
    return False


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


def _markdown(node: LexborNode, base: str | None) -> str:
    options = html_to_markdown.ConversionOptions(
        extract_metadata=False, compact_tables=True, base_url=base
    )
    result = html_to_markdown.convert(node.html or "", options)
    if any(warning.kind == _TOO_DEEP for warning in result.warnings):
        # It leaves out what is nested more than 1,024 levels deep: words matter more than form.
        return node.text(separator="\n").strip()
    return (result.content or "").strip()


def _guess_main(source: str, url: str, everything: str) -> str:
    """For a fetched page with boilerplate around unmarked content: by its statistics."""
    import trafilatura  # noqa: PLC0415 - 20 MB for the rare page that needs it

    guess = trafilatura.extract(
        source,
        url=url,
        output_format="markdown",
        include_comments=False,
        include_formatting=True,
        include_links=True,
        favor_recall=True,
    )
    # Less than a tenth of what is readable is a miss, not a find.
    return guess if guess and len(guess) * 10 > len(everything) else everything
