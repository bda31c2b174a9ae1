"""Equations of text documents as LaTeX in their lines: xberg moves them, and reads a cube root as a
square root."""

import posixpath
import re
from urllib.parse import unquote

from recollect.errors import Permanent
from recollect.extract import _formulas, _xml, _zip
from recollect.extract.office import _spelling

_MATH = rb"<(\w+:|)oMath(?:\s[^<>]*)?(?<!/)>(?:(?!<(?:\w+:)?oMath[\s>]).)*?</\1oMath>"
_EQUATION = re.compile(_MATH, re.DOTALL)
_OF_WORD = re.compile(
    rb"<(\w+:|)oMathPara(?:\s[^<>]*)?(?<!/)>(?:(?!<(?:\w+:)?oMathPara[\s>]).)*?</\1oMathPara>|"
    + _MATH.replace(rb"\1", rb"\2"),
    re.DOTALL,
)
_DELETED = re.compile(
    rb"<w:(del|moveFrom)\s[^<>]*(?<!/)>(?:(?!<w:(?:del|moveFrom)\s).)*?</w:\1>", re.DOTALL
)
_BETWEEN_PARAGRAPHS = (b"</w:p>", b"</w:tbl>", b"<w:body>", b"</w:sectPr>", b"<w:tc>", b"</w:tcPr>")
_FRAME = re.compile(
    rb"<draw:frame\b([^<>]*)>((?:(?!</?draw:(?:frame|text-box)\b)[\s\S])*?)</draw:frame>"
)
_OBJECT = re.compile(rb"<draw:object\s(?:[^<>]*?\s)?xlink:href=\"([^\"]+)\"")
_IN_LINE = re.compile(rb"\btext:anchor-type=\"(?:as-)?char\"")
_IS_FORMULA = re.compile(rb"<(?:\w+:)?math[\s>]")
_ROOT_BYTES = 1_000


def in_word(source: bytes) -> bytes:
    """A part of a DOCX with runs in their place, but for those that were deleted."""
    if b"oMath" not in source:
        return source
    return _OF_WORD.sub(_run, _DELETED.sub(lambda gone: _OF_WORD.sub(b"", gone[0]), source))


def in_odt(source: bytes, package: _zip.Package) -> bytes:
    """The text of an OpenDocument with words in place of objects that are formulas, each once."""
    told: set[str] = set()

    def words(frame: re.Match[bytes]) -> bytes:
        found = _OBJECT.search(frame[2])
        address = unquote(found[1].decode()) if found else ""
        part = posixpath.normpath(posixpath.join(address, "content.xml"))
        if not address or part in told or part not in package.names:
            return frame[0]
        told.add(part)
        block = not _IN_LINE.search(frame[1])
        inner = _spelling.usual_if_sound(package.read(part))
        text = latex(inner, block=block) if is_formula(inner) else ""
        return _formulas.kept(text).encode() or frame[0]

    return _FRAME.sub(words, source) if b"<draw:object" in source else source


def is_formula(source: bytes) -> bool:
    """Whether a part of an OpenDocument is MathML."""
    return _IS_FORMULA.search(source[:_ROOT_BYTES]) is not None


def _run(found: re.Match[bytes]) -> bytes:
    block = found[1] is not None
    all = (latex(one[0], block=block) for one in _EQUATION.finditer(found[0]))
    words = _formulas.kept(" ".join(filter(None, all))).encode()
    if not words:
        return found[0]
    run = b'<w:r><w:t xml:space="preserve">%s</w:t></w:r>' % words
    ahead = found.string[max(0, found.start() - 20) : found.start()].rstrip()
    return b"<w:p>%s</w:p>" % run if ahead.endswith(_BETWEEN_PARAGRAPHS) else run


def latex(source: bytes, *, block: bool) -> str:
    """Nothing of a damaged one."""
    tree = _formulas.Formula()
    try:
        _xml.parse([source], tree.start, lambda _: tree.end(), tree.text)
    except Permanent:
        return ""
    return _formulas.latex(tree.root, block=block)
