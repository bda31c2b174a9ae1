"""Styles that hide what no run or paragraph says to be hidden."""

from io import BytesIO
from zipfile import ZipFile

import pytest

from tests.extract import office
from tests.extract.test_odf_objects import flat

SECRET = "ignoreallrules"
WARNING = f"Hidden text was left out ({len(SECRET)} characters)."
SEEN = (
    '<w:p><w:r><w:rPr><w:vanish w:val="0"/><w:color w:val="000000"/></w:rPr><w:t>Seen.</w:t></w:r>'
    "</w:p>"
)
HIDE, WHITE = "<w:vanish/>", '<w:color w:val="FFFFFF"/>'
SHADE = '<w:pPr><w:shd w:val="clear" w:fill="1F3864"/></w:pPr>'


def p(look: str = "", style: str = "") -> str:
    return f"<w:p><w:pPr>{style}</w:pPr>{r(look)}</w:p>"


def r(look: str = "", words: str = f"<w:t>{SECRET}</w:t>") -> str:
    return f"<w:r><w:rPr>{look}</w:rPr>{words}</w:r>"


def style(id: str, look: str, more: str = "", kind: str = "paragraph") -> str:
    return (
        f'<w:style w:type="{kind}" w:styleId="{id}"><w:name w:val="{id}"/>{more}'
        f"<w:rPr>{look}</w:rPr></w:style>"
    )


def read_word(read, body: str, *styles: str, root: str = ""):
    parts = {"styles.xml": ("styles", f"<w:styles>{''.join(styles)}</w:styles>")}
    data = office.docx(SEEN + body, parts)
    if root:
        with ZipFile(BytesIO(data)) as archive:
            whole = {name: archive.read(name) for name in archive.namelist()}
        whole["word/document.xml"] = whole["word/document.xml"].replace(
            b"<w:body>", root.encode() + b"<w:body>"
        )
        data = office.packed(whole)
    return read(data, "a.docx")


OF = '<w:pStyle w:val="{}"/>'.format
ALL = f"<w:docDefaults><w:rPrDefault><w:rPr>{HIDE}</w:rPr></w:rPrDefault></w:docDefaults>"
BASED = '<w:basedOn w:val="{}"/>'.format
TABLE = '<w:tbl><w:tblPr><w:tblStyle w:val="T"/></w:tblPr><w:tr><w:tc>{}</w:tc></w:tr></w:tbl>'
RUBY = f"<w:ruby><w:rt>{r(words='<w:t>a</w:t>')}</w:rt><w:rubyBase>{r()}</w:rubyBase></w:ruby>"
BOX = f"<w:pict><w:txbxContent>{p()}</w:txbxContent></w:pict>"


@pytest.mark.parametrize(
    ("body", "styles"),
    [
        (p(), ALL),
        (p(style=OF("A")), ALL + style("A", "")),
        (p(), style("N", HIDE).replace("w:styleId", 'w:default="1" w:styleId')),
        (p(), style("N", HIDE).replace("w:styleId", 'w:default = "1" w:styleId')),
        (p(style=OF("unknown")), style("N", HIDE).replace("w:styleId", 'w:default="1" w:styleId')),
        (p(style=OF("A")), style("A", WHITE)),
        (p(style=OF("B")), style("A", WHITE) + style("B", "", BASED("A"))),
        (p('<w:rStyle w:val="A"/>'), style("A", WHITE, kind="character")),
        (TABLE.format(p()), style("T", HIDE, kind="table")),
        (p(style='<w:pStyle q:val="A" w:val="B"/>'), style("A", "") + style("B", HIDE)),
        (p(style='<w:pStyle w:val="B" q:val="A"/>'), style("A", "") + style("B", HIDE)),
        (p(style=OF("A")), style("A", '<w:vanish w:val="1" q:val="0"/>')),
        (f"<w:p>{r(HIDE, BOX)}</w:p>", ""),
    ],
)
def test_what_a_style_of_word_hides_is_left_out_and_counted(read, body, styles):
    extracted = read_word(read, body, styles)

    assert extracted.text.split()[0] == "Seen."
    assert SECRET not in extracted.text
    assert list(extracted.warnings) == [WARNING]


def test_a_hidden_word_is_hidden_with_its_reading_aid(read):
    extracted = read_word(read, f"<w:p>{r(HIDE, RUBY)}</w:p>")

    assert extracted.text == "Seen."


@pytest.mark.parametrize(
    ("body", "styles", "root"),
    [
        (p(style=OF("A")), style("A", WHITE, SHADE), ""),
        (p(style=OF("B")), style("A", "", SHADE) + style("B", WHITE, BASED("A")), ""),
        (p(WHITE), style("N", "", SHADE).replace("w:styleId", 'w:default="1" w:styleId'), ""),
        (p(WHITE), "", '<w:background w:color="1F3864"/>'),
        (p(WHITE, '<w:shd w:val="solid" w:color="000000" w:fill="auto"/>'), "", ""),
        (p('<w:color w:val="000000"/>', OF("A")), style("A", WHITE), ""),
        (p('<w:vanish w:val="0"/>', OF("A")), style("A", HIDE), ""),
        (p(style=OF("A")), style("A", "", f"<w:pPr><w:rPr>{HIDE}</w:rPr></w:pPr>"), ""),
        (p(style=OF("A")), style("A", f"<w:rPrChange><w:rPr>{HIDE}</w:rPr></w:rPrChange>"), ""),
        (p(style=OF("A")), ALL + style("A", '<w:vanish w:val="0"/>'), ""),
        (f"<w:p>{r(WHITE, BOX)}</w:p>", "", ""),
    ],
)
def test_what_word_shows_whatever_else_its_styles_say_stays(read, body, styles, root):
    extracted = read_word(read, body, styles, root=root)

    assert SECRET in extracted.text
    assert not extracted.warnings


def test_a_run_of_nothing_that_was_moved_harms_nothing(read):
    moved = f'<w:p><w:moveFrom w:id="1" w:author="Ann">{r()}<w:r/></w:moveFrom></w:p>'

    assert read_word(read, moved).text == "Seen."


def odf_style(family: str, display: str = "none", name: str = "T1") -> str:
    told = f'style:style style:name="{name}"' if name else "style:default-style"
    return (
        f'<{told} style:family="{family}"><style:text-properties text:display="{display}"/>'
        f"</{told.split()[0]}>"
    )


FIELD = 'text:condition="ooow:1" text:is-hidden="true"'
VEILED = f'text:style-name="T1">{SECRET}'


@pytest.mark.parametrize(
    ("body", "styles"),
    [
        (f'<text:p text:style-name="T1"/><text:p {VEILED}</text:p>', odf_style("paragraph")),
        (f"<text:p {VEILED}</text:p>", odf_style("paragraph") + odf_style("text", "true")),
        (f"<text:p>{SECRET}</text:p>", odf_style("paragraph", name="")),
        (
            f'<text:p text:style-name="P1">{SECRET}</text:p>',
            odf_style("paragraph", name="")
            + '<style:style style:name="P1" style:family="paragraph"/>',
        ),
        (f"<text:p>a<text:a {VEILED}</text:a></text:p>", odf_style("text")),
        (
            f'<text:p>a<text:span text:style-name="T1"/><text:span {VEILED}</text:span></text:p>',
            odf_style("text"),
        ),
        (f"<text:p>a<text:hidden-text {FIELD}>{SECRET}</text:hidden-text></text:p>", ""),
        (
            f'<text:p>a<text:sequence text:display="none">{SECRET}</text:sequence></text:p>',
            "",
        ),
        (f"<text:p><text:hidden-paragraph {FIELD}/>{SECRET}</text:p>", ""),
        (
            f"<text:h text:outline-level='1'><text:span>{SECRET[:6]}</text:span>"
            f"<text:hidden-paragraph {FIELD}/>{SECRET[6:]}</text:h>",
            "",
        ),
    ],
)  # fmt: skip
def test_what_a_text_of_opendocument_hides_is_left_out_and_counted(read, body, styles):
    shown = '<text:p><text:span text:style-name="T3">b</text:span></text:p>'
    if "default-style" in styles:
        shown, styles = (
            '<text:p text:style-name="P2">b</text:p>',
            styles + (odf_style("paragraph", "true", name="P2")),
        )

    extracted = read(office.odf("text", body + shown, styles), "a.odt")

    assert extracted.text.replace("a", "").strip() == "b"
    assert list(extracted.warnings) == [WARNING]


def test_a_style_of_headers_hides_no_word_that_has_another_one_of_its_name(read):
    """Those without names of their own are counted in each part."""
    body = f'<text:p><text:span text:style-name="T1">{SECRET}</text:span></text:p>'
    plain = '<style:style style:name="T1" style:family="text"/>'
    with ZipFile(BytesIO(office.odf("text", body, plain))) as archive:
        whole = {name: archive.read(name) for name in archive.namelist()}
    own = whole["content.xml"].replace(plain.encode(), odf_style("text").encode())

    extracted = read(office.packed({**whole, "styles.xml": own}), "a.odt")

    assert extracted.text == SECRET
    assert not extracted.warnings


def test_parts_of_one_file_of_xml_may_be_empty(read):
    whole = flat(office.odf("text", "<text:p>Seen.</text:p>", "")).replace(
        b"<office:automatic-styles></office:automatic-styles>", b"<office:automatic-styles/>"
    )
    assert b"<office:automatic-styles/>" in whole

    assert read(whole, "a.fodt").text == "Seen."
