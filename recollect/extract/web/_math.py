"""Formulas of web pages as LaTeX, written in signs that the converter leaves alone."""

import html
import re

from selectolax.lexbor import LexborHTMLParser, LexborNode

from recollect.extract import _formulas
from recollect.extract._main import outermost, remove

_DRAWN = ", ".join(
    f".{name}"
    for name in (
        *("MathJax", "MathJax_Preview", "MathJax_Display", "MathJax_SVG", "MathJax_SVG_Display"),
        *("MathJax_CHTML", "MJXc-display"),
    )
)
"""what MathJax 2 draws ahead of the script that it reads"""
_PICTURES = (
    "img.tex[alt], img.latex[alt], img.math[alt], img.formulaInl[alt], img.formulaDsp[alt], "
    'img[src*="//latex.codecogs.com/"][alt]'
)
"""of old wikis, WordPress, Sphinx, Doxygen, and a service that draws for others"""
_DELIMITED = re.compile(r"\$([^$]*)\$|\\\[(.*)\\\]", re.DOTALL)
_STYLE = re.compile(r"\{\\(?:display|text)style (.*)\}", re.DOTALL)

_REST = r"((?:[^<>\"]|\"[^\"]*\"|(?!))*+)>"
_MARKUP = re.compile(
    rf"<!--.*?-->|<(mi|mn|mo)(?:\s(?:[^<>\"]|\"[^\"]*\"|(?!))*+)?>([^<]*)</\1>|<(/?)([A-Za-z][^\s<>/]*){_REST}|([^<]+)",
    re.DOTALL,
)
"""as the parser writes what it read"""
_ATTRIBUTE = re.compile(r"\b(display|linethickness|open|close|separators)=\"([^\"]*)\"")


def mark_drawn(page: LexborHTMLParser) -> None:
    """Write those that are drawn from TeX in place of what draws them, for `_formulas.plain`.

    Of MediaWiki's the picture is seen, with what it shows in TeX, and MathML is hidden; MathJax 2
    reads a script, and MathJax 4 hides what it draws.
    """
    for around in outermost(page.css(".mwe-math-element")):
        if image := around.css_first("img[alt]"):
            tex = (image.attributes.get("alt") or "").strip()
            styled = _STYLE.fullmatch(tex)
            block = "display" in (image.attributes.get("class") or "")
            remove(around.css("math"))
            for later in around.css("noscript"):  # of pages for telephones
                later.unwrap()
            _put(page, image, _formulas.quoted(styled[1] if styled else tex, block=block))
    for image in page.css(_PICTURES):
        tex = (image.attributes.get("alt") or "").strip()
        found = _DELIMITED.fullmatch(tex)
        block = bool(found and found[2])
        _put(page, image, _formulas.quoted((found[1] or found[2]) if found else tex, block=block))
    for around in page.css("mjx-container"):
        if not around.css_first("math") and (drawn := around.css_first("[data-latex]")):
            block = around.attributes.get("display") == "true"
            tex = drawn.attributes.get("data-latex") or ""
            _put(page, around, _formulas.quoted(tex, block=block))
    for drawn in page.css(".katex > .katex-html[aria-hidden]"):
        if drawn.parent and not drawn.parent.css_first("math"):
            del drawn.attrs["aria-hidden"]  # nothing else says it
    if scripts := page.css('script[type^="math/tex" i]'):
        remove(page.css(_DRAWN))
        for script in scripts:
            block = "display" in (script.attributes.get("type") or "")
            _put(page, script, _formulas.quoted(script.text(), block=block))


def mark(page: LexborHTMLParser) -> None:
    """Write MathML in the same way, once what is hidden is gone. What is drawn counts: nobody sees
    what is noted beside it."""
    for node in outermost(page.css("math")):
        block = node.attributes.get("display") == "block"
        _put(page, node, _formulas.latex(_tree(node), block=block))


def _put(page: LexborHTMLParser, node: LexborNode, formula: str) -> None:
    style = node.attributes.get("style")
    text = _formulas.kept(formula)
    if style or formula.startswith("$$"):
        line = page.create_node("div" if formula.startswith("$$") else "span")
        line.insert_child(text)
        if style:
            line.attrs["style"] = style
        node.replace_with(line)
    else:
        node.replace_with(text)


def _tree(node: LexborNode) -> _formulas.Element:
    tree = _formulas.Formula()
    for leaf, words, closing, name, attributes, text in _MARKUP.findall(node.html or ""):
        if leaf:
            tree.leaf(leaf, html.unescape(words))
        elif name and not closing:
            tree.start(name, dict(_ATTRIBUTE.findall(attributes)) if attributes else {})
        elif name:
            tree.end()
        elif text:
            tree.text(html.unescape(text))
    return tree.root
