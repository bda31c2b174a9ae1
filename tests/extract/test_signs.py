"""Signs, and what is set apart within a line, are read as a reader sees them."""

import html
import unicodedata

import pytest

from tests.extract import office, samples
from tests.extract.test_word_numbers import CONTRACT, p, word

LINES = (
    "p < 0.05 and q > 3, ~5 of ~~x~~, AT&T; a+b",
    "in C:\\.config and \\\\server\\share",
    "a `word` is <b>there</b>! [it](x)",
)
PAGE = "".join(f"<p>{html.escape(line)}</p>" for line in LINES)
SHEET = {"Sheet": [["head"], *([line] for line in LINES)]}
FILES = {
    "csv": lambda: "\n".join(["head", *(f'"{line}"' for line in LINES)]).encode(),
    "doc": lambda: office.doc("\n".join(LINES)),
    "docx": lambda: office.docx("".join(p(html.escape(line)) for line in LINES)),
    "eml": lambda: office.eml(lambda mail: mail.set_content("\n\n".join(LINES))),
    "epub": lambda: office.epub({"one": f"<html><body>{PAGE}</body></html>"}),
    "html": lambda: PAGE.encode(),
    "odp": lambda: office.odp([("Title", LINES)]),
    "ods": lambda: office.ods(SHEET),
    "odt": lambda: office.odt(*LINES),
    "pdf": lambda: samples.pdf(*LINES),
    "pptx": lambda: office.pptx([("Title", LINES)]),
    "rtf": lambda: office.rtf(*LINES),
    "txt": lambda: "\n\n".join(LINES).encode(),
    "xls": lambda: office.xls(SHEET),
    "xlsx": lambda: office.xlsx(SHEET),
}


@pytest.mark.parametrize("kind", FILES)
def test_signs_of_markdown_are_read_as_they_stand(read, kind: str):
    text = read(FILES[kind](), f"a.{kind}").text

    for line in LINES:
        assert line in text


def test_signs_within_code_and_tables_stay_as_they_are(read):
    page = (
        "<p>1. not 2 &lt; 1</p><pre><code>a \\. b\\\\c\n</code></pre><p>see <code>\\.x</code></p>"
        "<table><tr><th>a | b</th></tr><tr><td>c \\ d</td></tr></table>"
    )

    text = read(page, "a.html").text

    assert text == (
        "1. not 2 < 1\n\n```\na \\. b\\\\c\n```\n\nsee `\\.x`\n\n| a \\| b |\n| --- |\n| c \\ d |"
    )


@pytest.mark.parametrize("signs", ["5 k\u2126", "cafe\u0301", "12 \u212b"])
@pytest.mark.parametrize("kind", ["docx", "docx by number", "odt"])
def test_signs_that_have_another_form_leave_the_structure(read, kind: str, signs: str):
    rows = "".join(f"<w:tr><w:tc>{p(one)}</w:tc></w:tr>" for one in ("Part", signs))
    body = f"{p('Parts', style='Heading1')}<w:tbl>{rows}</w:tbl>"
    if kind == "docx by number":
        body = body.encode("ascii", "xmlcharrefreplace").decode()
    data = office.odt("# Parts", signs) if kind == "odt" else word(body, *CONTRACT)
    head, rule = ("# Parts\n\n", "") if kind == "odt" else ("# Article 1. Parts\n\n", "| ")
    table = f"| Part |\n| --- |\n{rule}" if rule else ""

    shown = f"{head}{table}{unicodedata.normalize('NFC', signs)}{' |' if rule else ''}"
    assert read(data, f"a.{kind[:4].strip()}").text == shown


def test_a_sign_that_has_another_form_leaves_the_tables_of_an_rtf(read):
    table = rb"\trowd\cellx1000\cellx2000 Part\cell 5 k\u8486?\cell\row\pard C:\\.config\par"

    text = read(rb"{\rtf1\ansi %s}" % table, "a.rtf").text

    assert text == "| Part | 5 k\u03a9 |\n| --- | --- |\n\nC:\\.config"


@pytest.mark.parametrize("kind", ["docx", "html"])
def test_what_is_set_lower_or_higher_stays_within_its_word(read, kind: str):
    def one(words: str, place: str = "") -> str:
        if kind == "html":
            return f"<{place[:3]}>{words}</{place[:3]}>" if place else words
        place = f'<w:rPr><w:vertAlign w:val="{place}"/></w:rPr>' if place else ""
        return f'<w:r>{place}<w:t xml:space="preserve">{words}</w:t></w:r>'

    body = (
        one("H") + one("2", "subscript") + one("SO") + one("4", "subscript") + one(", 10")
        + one("-6", "superscript") + one(" m") + one("2", "superscript") + one(" of the 5")
        + one("th", "superscript") + one(", ^_^ ~typed~ x^2 2^3^4")
    )  # fmt: skip
    data = office.docx(f"<w:p>{body}</w:p>") if kind == "docx" else f"<p>{body}</p>".encode()

    assert read(data, f"a.{kind}").text == "H2SO4, 10^-6 m2 of the 5th, ^_^ ~typed~ x^2 2^3^4"


@pytest.mark.parametrize("kind", ["docx", "html"])
def test_bold_initials_stay_with_their_words(read, kind: str):
    def bold(words: str) -> str:
        if kind == "html":
            return f"<b>{words}</b>"
        return f"<w:r><w:rPr><w:b/></w:rPr><w:t>{words}</w:t></w:r>"

    def plain(words: str) -> str:
        return words if kind == "html" else f'<w:r><w:t xml:space="preserve">{words}</w:t></w:r>'

    body = f"{bold('R')}{plain('etrieval ')}{bold('G')}{plain('eneration of x**y**z, ')}"
    body += f"{bold('bold')}{plain(' words')}"
    data = office.docx(f"<w:p>{body}</w:p>") if kind == "docx" else f"<p>{body}</p>".encode()

    assert read(data, f"a.{kind}").text == "Retrieval Generation of x**y**z, **bold** words"


def test_signs_of_the_font_symbol_are_characters(read):
    def run(font: str, *content: str) -> str:
        fonts = f'<w:rPr><w:rFonts w:ascii="{font}" w:hAnsi="{font}"/></w:rPr>' if font else ""
        return f"<w:r>{fonts}{''.join(content)}</w:r>"

    def sign(font: str, number: str) -> str:
        return f'<w:sym w:font="{font}" w:char="{number}"/>'

    def said(words: str) -> str:
        return f'<w:t xml:space="preserve">{words}</w:t>'

    paragraphs = (
        run("", said("a "), sign("Symbol", "F062"), said("-blocker "), sign("Symbol", "b0")),
        run("Symbol", said("\uf061 &#xF0A3;")) + run("Arial", said(" \uf061")),
        run("Wingdings", sign("Wingdings", "F0E0"), said(" \uf0fc")) + run("", said("\uf0fc")),
        run("", sign("Symbol", "F03C"), sign("Symbol", "F026"), sign("Webdings", "F061")),
        run("", sign("Symbol", "F0FF"), said("y")),
    )
    data = office.docx("".join(f"<w:p>{paragraph}</w:p>" for paragraph in paragraphs))

    assert read(data, "a.docx").text.split("\n\n") == [
        "a β-blocker °",
        "α ≤ \uf061",
        "→ ✓\uf0fc",
        "<&\uf061",
        "\uf0ffy",
    ]
