"""Signs, and what is set apart within a line, are read as a reader sees them."""

import html
import re
import time
import unicodedata
from collections.abc import Callable

import pytest

from recollect.extract import _signs
from recollect.extract.office import _rtf_signs
from tests.extract import office, samples
from tests.extract.test_word_numbers import CONTRACT, p, word

LINES = (
    "p < 0.05 and q > 3, ~5 of ~~x~~, AT&T; a+b",
    "in C:\\.config and \\\\server\\share",
    "a `word` is <b>there</b>! [it](x)",
    "\\(x_1\\) is [\\w\\-], not \\=",
    "C# and x # y cost $$, \\server\\$c < $$$",
)
PAGE = "".join(f"<p>{html.escape(line)}</p>" for line in LINES)
SHEET = {"Sheet": [["head"], *([line] for line in LINES)]}
FILES = {
    "csv": lambda: "\n".join(["head", *(f'"{line}"' for line in LINES)]).encode(),
    "doc": lambda: office.doc("\n".join(LINES)),
    "docx": lambda: office.docx("".join(p(html.escape(line)) for line in LINES)),
    "eml": lambda: office.eml(lambda mail: mail.set_content("\n\n".join(LINES))),
    "msg": lambda: office.msg("Subject", "\n\n".join(LINES)),
    "ppt": lambda: office.ppt([("Title", LINES)]),
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


def test_each_character_of_an_rtf_that_is_another_one_is_that_one(read):
    others = {
        chr(code): other
        for code in range(0x80, 0xD800)
        if len(other := unicodedata.normalize("NFC", chr(code))) == 1 and other != chr(code)
    }
    body = "x".join(f"\\u{ord(sign)}?" for sign in others)

    # Of the two that are wide spaces xberg makes narrow ones.
    text = read(f"{{\\rtf1\\ansi {body}}}".encode(), "a.rtf").text

    assert " ".join(text.split()) == " ".join("x".join(others.values()).split())


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


WHOLE = {
    "<b>R</b>etrieval <b>G</b>eneration of x**y**z": "Retrieval Generation of x**y**z",
    "<b>bold</b> words, a*b*c, <i>lean</i>": "**bold** words, a*b*c, *lean*",
    "Head<b>ing</b> of <b>two wor</b>ds, un<b>believ</b>able": "Heading of two words, unbelievable",
    "<b>H</b>2O, <i>e</i>-mail, foot<b>note. More</b>": "H2O, e-mail, footnote. More",
    "<b>br</b><b>oken</b> <i>in</i><i>to</i> <b>some pie</b><b>ces of it</b>": (
        "**broken** *into* **some pieces of it**"
    ),
    "len*width*height, f****d, __init__ and a==b==c": (
        "len*width*height, f****d, __init__ and a==b==c"
    ),
    "\u8fd9\u662f<b>\u91cd\u8981</b>\u7684": "\u8fd9\u662f**\u91cd\u8981**\u7684",
}


@pytest.mark.parametrize("kind", ["docx", "html", "odt", "rtf"])
def test_emphasis_does_not_part_a_word(read, kind: str):
    pages = {
        "docx": lambda line: ("<w:p>", _runs(line, _of_word), "</w:p>"),
        "html": lambda line: ("<p>", line, "</p>"),
        "odt": lambda line: ("<text:p>", _runs(line, _of_odt), "</text:p>"),
        "rtf": lambda line: (r"\pard ", _runs(line, _of_rtf), r"\par "),
    }
    body = "".join(part for line in WHOLE for part in pages[kind](line))
    styles = "".join(
        f'<style:style style:name="{name}" style:family="text"><style:text-properties fo:{how}/>'
        "</style:style>"
        for name, how in (("b", 'font-weight="bold"'), ("i", 'font-style="italic"'))
    )
    fo = "urn:oasis:names:tc:opendocument:xmlns:xsl-fo-compatible:1.0"
    styles = styles.replace("<style:style ", f'<style:style xmlns:fo="{fo}" ')
    files = {
        "docx": lambda: office.docx(body),
        "html": lambda: body.encode(),
        "odt": lambda: office.odf("text", body, styles),
        "rtf": lambda: f"{{\\rtf1\\ansi {body}}}".encode(),
    }

    assert read(files[kind](), f"a.{kind}").text.split("\n\n") == list(WHOLE.values())


@pytest.mark.parametrize(
    ("style", "mark"), [('<w:u w:val="single"/>', "__"), ('<w:highlight w:val="yellow"/>', "==")]
)
def test_spaces_of_underlined_words_are_spaces(read, style, mark):
    words = ("A ", "form ", "of &amp;#32; ", " my ", "bank", "\u2002  \u2002", "it", " ", "is")
    runs = "".join(
        f'<w:r><w:rPr>{style if at % 2 else ""}</w:rPr><w:t xml:space="preserve">{word}</w:t></w:r>'
        for at, word in enumerate(words)
    )

    text = read(office.docx(f"<w:p>{runs}</w:p>"), "a.docx").text

    shown = text.replace(mark, "").split()
    assert shown == ["A", "form", "of", "&#32;", "my", "bank", "it", "is"]
    assert f"A {mark}form{mark} of" in text
    assert text.endswith("it is")


def test_code_keeps_its_stars(read):
    page = "<p><code>*p*q</code> and <b>R</b>ows</p><pre><code>*p*q = **x**y\n</code></pre>"

    text = read(page, "a.html").text

    assert text == "`*p*q` and **R**ows\n\n```\n*p*q = **x**y\n```"


def _runs(line: str, written: Callable[[str, str], str]) -> str:
    parts = re.split("<([bi])>(.*?)</[bi]>", line)
    marked = zip(parts[1::3], parts[2::3], parts[3::3], strict=True)
    return written(parts[0], "") + "".join(
        written(words, mark) + written(rest, "") for mark, words, rest in marked
    )


def _of_word(words: str, mark: str) -> str:
    format = f"<w:rPr><w:{mark}/><w:lang w:val='{words[:2].strip()}'/></w:rPr>" if mark else ""
    return f'<w:r>{format}<w:t xml:space="preserve">{words}</w:t></w:r>'


def _of_odt(words: str, mark: str) -> str:
    return f'<text:span text:style-name="{mark}">{words}</text:span>' if mark else words


def _of_rtf(words: str, mark: str) -> str:
    said = "".join(
        one if one.isascii() else f"\\u{ord(one) - 65536 * (ord(one) > 32767)}?" for one in words
    )
    return f"{{\\{mark} {said}}}" if mark else said


SUPER = '<text:span text:style-name="U">{}</text:span>'
RAISED = {
    "docx": (
        '<w:r><w:t xml:space="preserve">{}</w:t></w:r><w:proofErr w:type="x"/>',
        '<w:r><w:rPr><w:b/><w:vertAlign w:val="superscript"/></w:rPr><w:t>{}</w:t></w:r>',
        "<w:tbl><w:tr><w:tc><w:p>{0}</w:p></w:tc></w:tr></w:tbl><w:p>{0}</w:p>",
    ),
    "odp": (
        "<text:span>{}</text:span>",
        SUPER,
        "<draw:page><draw:frame><draw:text-box><text:p>{0}</text:p></draw:text-box></draw:frame>"
        "</draw:page>",
    ),
    "odt": ("{}", SUPER, "<text:p>{0}</text:p><text:p><text:span>{0}</text:span></text:p>"),
    "pptx": (
        "<a:r><a:rPr/><a:t>{}</a:t></a:r>",
        '<a:r><a:rPr baseline="30000"/><a:t>{}</a:t></a:r>',
        "<p:sp><p:txBody><a:p>{0}</a:p></p:txBody></p:sp>",
    ),
    "rtf": (r"{{\f1\fs24 {}}}", r"{{\fs20\super\f1 {}}}", r"\pard {0}\par\pard\plain\fs24{0}\par"),
}


@pytest.mark.parametrize("kind", RAISED)
def test_a_power_is_no_longer_number(read, kind: str):
    plain, raised, around = RAISED[kind]
    parts = ["2", "10", " = 1024; 10", "-3", " m", "2", "; 5", "th", "; x"]
    line = "".join((raised if at % 2 else plain).format(part) for at, part in enumerate(parts))
    style = (
        '<style:style style:name="U" style:family="text"><style:text-properties '
        'style:text-position="super 58%"/></style:style>'
    )
    body = around.format(line)
    data = {
        "docx": lambda: office.docx(body),
        "odp": lambda: office.odf("presentation", body, style),
        "odt": lambda: office.odf("text", body, style),
        "pptx": lambda: office.pptx([("T", [])], extra=body),
        "rtf": lambda: rf"{{\rtf1\ansi {body}}}".encode(),
    }[kind]()

    text = read(data, f"a.{kind}").text

    times = around.count("{0}")
    assert text.replace("**", "").count("2^10 = 1024; 10^-3 m2; 5th; x") == times


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


@pytest.mark.parametrize(
    "unit", ["*", "**a****b", "*a**b", "_", "==a", "~~a~~b", "\\#", "\n$$\\*", "`\\*", "``a`\\`"]
)
def test_signs_in_masses_take_linear_time(unit: str):
    text = unit * 200_000

    assert len(_signs.plain(text, by_xberg=True)) > len(text) / 3


FONTS_OF_RTF = (
    r"{\fonttbl{\f0\fcharset0 Times;}{\f3\froman\fcharset2{\*\panose 0505}Symbol;}"
    r"{\f4\fcharset2 Wingdings{\*\falt x};}{\f5\fcharset0 Symbol;}{\f6\fcharset2 Foo;}}"
)


@pytest.mark.parametrize(
    ("written", "text"),
    [
        (r"{\f3 a} is {\f3 \'62} or {\f3\fs24\u-3999 ?}", "α is β or α"),
        (r"{\f3\uc2\u61538\'62\'62}c {\f5\u-3998 b}d {\f5 ab}", "βc βd ab"),
        ("{\\f4\n\\'fc}{\\f4 A} {\\f6 ab}", "✓A ab"),
        (r"\f3 ab{\f0 ab}\fs9 a\f0 a \f3 x\plain x", "αβabαa ξx"),
        (r"{\field{\*\fldinst{\f3 SYMBOL 97 \\f \"Symbol\"}}{\fldrslt{\f3 a}}}", "α"),
        (r"{\listtext\f4 n\tab}one", "one"),
    ],
)
def test_signs_of_fonts_in_an_rtf_are_those_that_a_reader_sees(read, written, text):
    written = written.replace('\\"', '"')

    assert read(f"{{\\rtf1\\ansi{FONTS_OF_RTF}\\pard {written}\\par}}", "a.rtf").text == text


def test_signs_of_fonts_in_an_rtf_take_linear_time():
    before = time.process_time()

    for piece in (b" ", rb"{\f3 ", rb"\f3", b"{", b"}"):
        _rtf_signs.told(rb"{\rtf1{\fonttbl{\f3\fcharset2 Symbol" + piece * 40_000 + b"x;}}")
        _rtf_signs.told(rb"{\rtf1{\fonttbl{\f3\fcharset2 Symbol;}}\f3 a" + piece * 40_000 + b"}")

    assert time.process_time() - before < 4


def test_signs_of_fonts_in_opendocument_and_on_slides_are_those_that_a_reader_sees(read):
    styles = (
        '<style:font-face style:name="S1" svg:font-family="\'Symbol\'"/>'
        '<style:style style:name="T1"><style:text-properties style:font-name="S1"/></style:style>'
    )
    span = '<text:span text:style-name="T1">\uf061&lt;\uf03c</text:span>'
    odt = office.odf("text", f"<text:p>\uf061{span}</text:p>", styles)
    run = "<a:r><a:rPr>{}</a:rPr><a:t>\uf0fc</a:t></a:r>"
    runs = run.format('<a:sym typeface="Wingdings"/>') + run.format("")
    shape = f"<p:sp><p:txBody><a:p>{runs}</a:p></p:txBody></p:sp>"

    assert read(odt, "a.odt").text == "\uf061α<<"
    assert read(office.pptx([("", [])], extra=shape), "a.pptx").text == "✓\uf0fc"
