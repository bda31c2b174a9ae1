"""A linear look at markup without parsing it: is it HTML, and is it safe to give to a parser."""

import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from recollect.errors import Permanent

MAX_ATTRIBUTES = 5_000
MAX_NESTING = 2_000
MOST_STEPS = 50_000_000
"""What a parser may climb above that: for each tag the levels that there are more. A second."""
_HARMLESS = 16_384
"""Characters below which the parser's quadratic cases end within a fraction of a second."""

_TAG_OR_COMMENT = re.compile(
    r"<(?:!--(?:-?>)?|(/?)([A-Za-z][^\s/>]*+)"
    r"(?:[\s/=]++|[^\s/>=]++(?:\s*+=\s*+(?:\"[^\"]*+\"|'[^']*+'|[^\s>\"'][^\s>]*+|(?!))?+|(?!))?+|(?!))*+>?)"
)
_ATTRIBUTE = re.compile(
    r"[\s/=]*+[^\s/>=]++(?:\s*+=\s*+(?:\"[^\"]*+\"|'[^']*+'|[^\s>\"'][^\s>]*+|(?!))?+|(?!))?+"
)
_END_OF_COMMENT = re.compile(r"--!?>")
_LONG_TAG = re.compile(rf"<[A-Za-z][^>]{{{2 * MAX_ATTRIBUTES - 2}}}")
"""One that may have too many attributes, but for those with a > in their values."""
_END_IN_QUOTES = re.compile(r"=\s*+(?:\"[^\">]*+>|'[^'>]*+>)")
_RAW = frozenset({"script", "style", "textarea", "title", "xmp", "iframe", "noembed", "noframes"})
_VOID = frozenset(
    [
        "area",
        "base",
        "br",
        "col",
        "embed",
        "hr",
        "img",
        "input",
        "link",
        "meta",
        "param",
        "source",
        "track",
        "wbr",
        "frame",
        "keygen",
    ]
)
# Their end tags may be left out (HTML 13.1.2.4), or the next one ends the one before it, so an open
# one says nothing about nesting.
_ENDED_BY_OTHERS = frozenset(
    [
        "html",
        "head",
        "body",
        "p",
        "li",
        "dt",
        "dd",
        "rp",
        "rt",
        "option",
        "optgroup",
        "tr",
        "td",
        "th",
        "thead",
        "tbody",
        "tfoot",
        "caption",
        "colgroup",
        "a",
        "nobr",
        "button",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
    ]
)
_CLOSED_WITHIN = {"rt": "ruby", "rp": "ruby", "optgroup": "select"}
"""Elsewhere the next of these stands within the one before it."""
_PAGE = re.compile(
    r"\ufeff?\s*(?:<\?xml[^>]*>\s*|<!--.*?-->\s*|(?!))*+(?:<!doctype\s+html|<html[\s>])",
    re.I | re.S,
)
_BLOCKS = frozenset(
    [
        "address",
        "article",
        "blockquote",
        "body",
        "center",
        "details",
        "div",
        "dl",
        "fieldset",
        "figure",
        "footer",
        "form",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "head",
        "header",
        "main",
        "nav",
        "ol",
        "p",
        "pre",
        "section",
        "table",
        "ul",
    ]
)
_MARKDOWN = re.compile(r"\n {0,3}(?:#{1,6} |```|~~~|[-*+] |\d+[.)] |> |\|.*\||\[[^\]\n]+\]: )")
_TEMPLATE = re.compile(r"\bclassName=|=\{|\{\{|\{%|<%|<\?php")


_SHADOW = re.compile(r"<template\s(?:[^<>]*?\s)?shadowrootmode\s*=", re.I)


class MarkupTag(NamedTuple):
    start: int
    end: int
    name: str
    closing: bool


def tags(text: str) -> Iterator[MarkupTag]:
    """The tags of an HTML text in order, each once, in linear time.

    Comments and the contents of script, style and the like hold none.
    """
    position = 0
    while match := _TAG_OR_COMMENT.search(text, position):
        start, position = match.span()
        if match[2] is None:
            if not match[0].endswith(">"):
                end = _END_OF_COMMENT.search(text, position)
                position = end.end() if end else len(text)
            continue
        name, closing = match[2].lower(), match[1] == "/"
        yield MarkupTag(start, position, name, closing)
        if name in _RAW and not closing:
            position = _end_of_raw(text, name, position)


def _end_of_raw(text: str, name: str, position: int) -> int:
    end = re.compile(f"</{name}", re.I).search(text, position)
    return end.start() if end else len(text)


def shown(text: str) -> str:
    """With elements of their own for templates that a browser shows where they stand (HTML 4.12.3,
    shadowrootmode), which a parser keeps apart."""
    if not _SHADOW.search(text):
        return text
    parts: list[str] = []
    shows: list[bool] = []
    position = 0
    for tag in tags(text):
        if tag.name != "template" or (tag.closing and not shows):
            continue
        if not tag.closing:
            shows.append(_SHADOW.match(text, tag.start) is not None)
        if shows[-1]:
            start = tag.start + 1 + tag.closing
            parts += text[position:start], "x-shadow"
            position = start + len("template")
        if tag.closing:
            shows.pop()
    return "".join([*parts, text[position:]])


def refuse_hostile(text: str) -> None:
    """Raise Permanent for markup that takes a parser quadratic time (too many attributes, nesting).

    lexbor needs 20 s for 100,000 nested elements and 10 s for 80,000 attributes on one.
    """
    if len(text) < _HARMLESS:
        return
    # There are no more levels than tags.
    is_shallow = text.count("<") <= MAX_NESTING
    if is_shallow and not _LONG_TAG.search(text) and not _END_IN_QUOTES.search(text):
        return
    nesting = steps = 0
    opened: Counter[str] = Counter()
    for tag in tags(text):
        if tag.end - tag.start > 2 * MAX_ATTRIBUTES:
            _refuse_attributes(text, tag)
        if is_shallow or tag.name in _VOID:
            continue
        around = _CLOSED_WITHIN.get(tag.name)
        if tag.name in _ENDED_BY_OTHERS and (around is None or opened[around]):
            continue
        if tag.closing:
            if opened[tag.name]:
                opened[tag.name] -= 1
                nesting -= 1
        elif not _is_empty(text, tag, opened):
            opened[tag.name] += 1
            nesting += 1
        steps += max(0, nesting - MAX_NESTING)
        if steps > MOST_STEPS:
            raise Permanent("the HTML is nested too deeply")


def _is_empty(text: str, tag: MarkupTag, opened: Counter[str]) -> bool:
    """Whether it is a shape of a drawing, or a part of a formula, that ends with its own tag.

    Elsewhere the slash means nothing (HTML 13.1.2.1).
    """
    within = opened["svg"] or opened["math"] or tag.name in ("svg", "math")
    return bool(within) and tag.name not in _BLOCKS and text.startswith("/>", tag.end - 2)


def _refuse_attributes(text: str, tag: MarkupTag) -> None:
    position = tag.start + 1 + len(tag.name)
    for _ in range(MAX_ATTRIBUTES + 1):
        match = _ATTRIBUTE.match(text, position, tag.end)
        if not match:
            return
        position = match.end()
    raise Permanent(f"a tag of the HTML has more than {MAX_ATTRIBUTES:,} attributes")


def is_html(text: str) -> bool:
    """Whether content given as a string is HTML. In doubt it is not.

    A doctype or an `html` tag settles it. Else all of the text has to stand inside of block
    elements, without a line of Markdown or template code: prose or Markdown with some tags in it
    is not HTML.
    """
    if _PAGE.match(text):
        return True
    text = text.removeprefix("\ufeff")
    if not text.lstrip().startswith("<") or not text.rstrip().endswith(">"):
        return False
    return _is_fragment(text)


def _is_fragment(text: str) -> bool:
    first: str | None = None
    depth, end, preformatted = 0, 0, 0
    for tag in tags(text):
        between = text[end : tag.start]
        if depth == 0 and between.strip():
            return False
        if not preformatted and _MARKDOWN.search(between):
            return False
        if first is None:
            first = tag.name
        if _TEMPLATE.search(text, tag.start, tag.end):
            return False
        end = tag.end
        if tag.name == "pre":
            preformatted += -1 if tag.closing else 1
        if tag.name not in _VOID:
            depth = max(0, depth - 1) if tag.closing else depth + 1
    return first in _BLOCKS and not text[end:].strip()
