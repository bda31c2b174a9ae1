"""Text that no reader sees is left out or named, never passed off as what the document says."""

import struct
import zlib
from io import BytesIO
from zipfile import ZipFile, ZipInfo

import pytest
from docx.enum.style import WD_STYLE_TYPE
from docx.oxml import parse_xml
from docx.oxml.ns import nsdecls
from docx.shared import RGBColor

from tests.extract import office, samples

SECRET = "ignoreallrules"
COUNTED = f"({len(SECRET)} characters)."


@pytest.mark.parametrize(
    "veil",
    [
        '<p style="display:none">{}</p>',
        '<p style="DISPLAY : none !important">{}</p>',
        '<p style="visibility:hidden">{}</p>',
        '<p style="visibility: collapse">{}</p>',
        '<p style="opacity:0">{}</p>',
        '<p style="opacity: 0.01">{}</p>',
        '<p style="font-size:0">{}</p>',
        '<p style="font-size: 1px">{}</p>',
        '<p style="height:0;overflow:hidden">{}</p>',
        '<p style="max-height:0px; overflow-y: hidden">{}</p>',
        '<p style="width:1px;height:1px;overflow:hidden">{}</p>',
        '<p style="position:absolute; left:-9999px">{}</p>',
        '<p style="position:fixed; top:-200em">{}</p>',
        '<p style="text-indent:-10000px">{}</p>',
        '<p style="position:absolute;clip:rect(0,0,0,0)">{}</p>',
        '<p style="clip-path: inset(100%)">{}</p>',
        '<p style="color:#fff;background:#ffffff">{}</p>',
        '<p style="color:white">{}</p>',
        '<p style="color: rgb(255, 255, 255)">{}</p>',
        '<p style="color:rgba(0,0,0,0)">{}</p>',
        '<p style="color:transparent">{}</p>',
        '<div style="background-color:black"><p style="color:#010101">{}</p></div>',
        '<table bgcolor="#ffffff"><tr><td><font color="#fefefe">{}</font></td></tr></table>',
        '<p style="display:/* x */none">{}</p>',
        '<p style="display/* : */:none">{}</p>',
        '<p style="d\\69splay:n\\6f ne">{}</p>',
        '<p style="color:red;/* ; */display:none">{}</p>',
        '<p style="display:none !important;display:block">{}</p>',
        '<p style="font:italic 400 0/0 serif">{}</p>',
        '<p style="font: 1px Arial">{}</p>',
        '<p style="position:absolute;inset:-9999px auto auto">{}</p>',
        '<p aria-hidden="TRUE">{}</p>',
        "<p hidden>{}</p>",
        '<p aria-hidden="true">{}</p>',
    ],
)
def test_what_a_page_hides_is_left_out_and_counted(read, veil):
    extracted = read(f"<html><body><p>Seen before.</p>{veil.format(SECRET)}<p>Seen after.</p>")

    assert SECRET not in extracted.text
    assert "Seen before." in extracted.text
    assert "Seen after." in extracted.text
    assert list(extracted.warnings) == [f"Hidden text was left out {COUNTED}"]


@pytest.mark.parametrize(
    "shown",
    [
        '<div style="font-size:0"><p style="font-size:14px">{}</p></div>',
        '<div style="visibility:hidden"><p style="visibility:visible">{}</p></div>',
        '<div style="background:#000"><p style="color:#fff">{}</p></div>',
        '<div style="color:white"><p style="color:black">{}</p></div>',
        '<div style="background:url(night.png);color:#eee"><p>{}</p></div>',
        '<div style="color:#fff"><table bgcolor="#003366"><tr><td>{}</td></tr></table></div>',
        '<div style="color:#fff"><p style="background:#000">{}</p></div>',
        '<p hidden="until-found">{}</p>',
        '<p style="font-size:10.5px">{}</p>',
        '<p style="font:bold 12px/0 serif">{}</p>',
        '<p style="font-size:0;font:400 1.2em serif">{}</p>',
        '<div style="font-size:0"><p style="font:14px/1.5 serif">{}</p></div>',
        '<p style="display:none;display:block">{}</p>',
        '<p style="/* display:none */color:red">{}</p>',
        '<p style="content:\\110000">{}</p>',
        '<p style="opacity:0.8">{}</p>',
        '<p style="height:0">{}</p>',
        '<p style="margin-left:-9999px">{}</p>',
        '<p style="left:-5px;position:absolute">{}</p>',
        '<p style="color:#000">{}</p>',
        '<p style="display:block">{}</p>',
    ],
)
def test_what_a_page_shows_stays(read, shown):
    extracted = read(f"<html><body>{shown.format(SECRET)}<p>Seen.</p>")

    assert SECRET in extracted.text
    assert list(extracted.warnings) == []


@pytest.mark.parametrize(
    "around",
    [
        '<div style="color:#fff">{}<b style="color:#000">Seen</b></div>',
        '<div style="color:#fff"><p>{}<i style="color:inherit"></i></p><b bgcolor=""></b></div>',
        '<div style="color:#fff">{}<i style="border-color:red"></i></div>',
    ],
)
def test_a_part_of_another_colour_does_not_show_what_stands_beside_it(read, around):
    extracted = read(f"<html><body><p>Seen {around.format(SECRET)}")

    assert SECRET not in extracted.text
    assert "Seen" in extracted.text
    assert list(extracted.warnings) == [f"Hidden text was left out {COUNTED}"]


@pytest.mark.parametrize(
    "veil",
    ["font-size:0", "visibility:hidden", "color:#fff", "color:#fe0"],
    ids=lambda veil: veil[:4],
)
def test_a_page_whose_parts_all_have_their_look_is_read(read, veil):
    """Each within the other: no look at one is a look at all within or around it, which the
    sandbox would end."""
    parts = '<p style="color:#123">y</p><i style="font-size:0;visibility:hidden"></i>' * 15_000
    within = f'<div class="cookie" style="{veil}">' * 1_500

    assert "Seen" in read(f"<html><body><p>Seen</p>{within}{parts}").text


@pytest.mark.parametrize(
    "veil", ["hidden", "style='opacity:0'", "style='color:#fff'", "role=dialog"]
)
@pytest.mark.parametrize("page", ["<html {}><body>", "<html><body {}>"])
@pytest.mark.parametrize("name", ["a.html", "a.eml"])
def test_a_page_that_is_hidden_as_a_whole_is_read(read, veil, page, name):
    """Its scripts show it."""
    data = f"{page.format(veil)}<p>Words of it.</p><p hidden>{SECRET}</p></body></html>"
    head = "Message-ID: <a@b>\nFrom: a@b.example\nContent-Type: text/html\n\n"
    extracted = read(head + data if name == "a.eml" else data, name)

    assert "Words of it." in extracted.text
    assert SECRET not in extracted.text
    assert list(extracted.warnings) == [f"Hidden text was left out {COUNTED}"]


def test_white_text_on_what_a_style_sheet_may_colour_stays_with_a_warning(read):
    page = f"<html><style>.dark{{background:navy}}</style><p class=dark style='color:#fff'>{SECRET}"
    extracted = read(page)

    assert SECRET in extracted.text
    assert list(extracted.warnings) == [f"White text is in it that may be hidden {COUNTED}"]


@pytest.mark.parametrize(
    "ground",
    [
        "style='background:navy'",
        "style='background-image:url(night.png)'",
        "style='background:url(night.png)'",
        "style='background:linear-gradient(black, navy)'",
        "background='night.png'",
    ],
)
def test_white_text_on_a_ground_of_unknown_colour_stays_with_a_warning(read, ground):
    page = f"<html><body><table><tr><td {ground}><font color=white>{SECRET}</font></table>"
    extracted = read(page)

    assert SECRET in extracted.text
    assert list(extracted.warnings) == [f"White text is in it that may be hidden {COUNTED}"]


def _tags(words: str) -> str:
    return "".join(chr(0xE0000 + ord(letter)) for letter in words)


def _bits(words: str) -> str:
    return "".join(
        "\u200b" if bit == "0" else "\u200c" for letter in words for bit in f"{ord(letter):08b}"
    )


def _selectors(words: str) -> str:
    return "".join(chr(0xE0100 + ord(letter)) for letter in words)


@pytest.mark.parametrize("veil", [_tags, _bits, _selectors])
@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.csv", "a.html", "a.json", "a.py"])
def test_a_message_in_invisible_characters_is_left_out_and_counted(read, veil, name):
    smuggled = veil(SECRET)
    text = f"before{smuggled} after"
    data = {"a.html": f"<p>{text}</p>", "a.json": f'"{text}"'}.get(name, text)
    extracted = read(data, name)

    assert extracted.text.endswith("before after")
    assert (
        f"Text in invisible characters was left out ({len(smuggled):,} characters)."
        in extracted.warnings
    )


WALES = "🏴" + _tags("gbwls") + "\U000e007f"
FAMILY = "👨\u200d👩\u200d👧\u200d👦 ❤\ufe0f"
PERSIAN, HINDI = "نمی\u200cخواهم", "क\u094d\u200dष"


@pytest.mark.parametrize("text", [WALES, FAMILY, PERSIAN, HINDI, "word\u200bbreak"])
def test_characters_that_writing_needs_raise_no_warning(read, text):
    extracted = read(text, "a.txt")

    assert extracted.text == text.replace("\u200b", "")
    assert list(extracted.warnings) == []


def _hidden(document):
    run = document.add_paragraph("Seen ").add_run(SECRET)
    run.font.hidden = True


def _white(document):
    run = document.add_paragraph("Seen ").add_run(SECRET)
    run.font.color.rgb = RGBColor(255, 255, 255)


def _hidden_by_a_style(document):
    style = document.styles.add_style("Ghost", WD_STYLE_TYPE.CHARACTER)
    style.font.hidden = True
    heir = document.styles.add_style("Heir", WD_STYLE_TYPE.CHARACTER)
    heir.base_style = style
    document.add_paragraph("Seen ").add_run(SECRET, style="Heir")


def _hidden_paragraph(document):
    style = document.styles.add_style("Gone", WD_STYLE_TYPE.PARAGRAPH)
    style.font.hidden = True
    document.add_paragraph("Seen ")
    document.add_paragraph(SECRET, style="Gone")


def _in_a_cell(document):
    document.add_paragraph("Seen ")
    run = document.add_table(1, 1).cell(0, 0).paragraphs[0].add_run(SECRET)
    run.font.color.rgb = RGBColor(255, 255, 255)


@pytest.mark.parametrize(
    "fill", [_hidden, _white, _hidden_by_a_style, _hidden_paragraph, _in_a_cell]
)
def test_what_word_does_not_show_is_left_out_and_counted(read, fill):
    extracted = read(samples.word(fill))

    assert SECRET not in extracted.text
    assert "Seen" in extracted.text
    assert list(extracted.warnings) == [f"Hidden text was left out {COUNTED}"]


def _unhidden(document):
    run = document.add_paragraph().add_run(SECRET)
    run.font.hidden = False


def _white_on_dark(document):
    table = document.add_table(1, 1)
    cell = table.cell(0, 0)
    cell._tc.get_or_add_tcPr().append(parse_xml(f'<w:shd {nsdecls("w")} w:fill="1F3864"/>'))
    run = cell.paragraphs[0].add_run(SECRET)
    run.font.color.rgb = RGBColor(255, 255, 255)


def _hidden_mark(document):
    paragraph = document.add_paragraph(SECRET)
    mark = paragraph._p.get_or_add_pPr()
    mark.append(parse_xml(f"<w:rPr {nsdecls('w')}><w:vanish/></w:rPr>"))


def _only_on_the_web(document):
    run = document.add_paragraph().add_run(SECRET)
    run._r.get_or_add_rPr().append(parse_xml(f"<w:webHidden {nsdecls('w')}/>"))


@pytest.mark.parametrize("fill", [_unhidden, _white_on_dark, _hidden_mark, _only_on_the_web])
def test_what_word_shows_stays(read, fill):
    extracted = read(samples.word(fill))

    assert SECRET in extracted.text
    assert list(extracted.warnings) == []


def test_as_many_hidden_runs_as_a_file_has_are_left_out(read):
    """To find each of them takes no look at those before it, which the sandbox would end."""
    run = "<w:r><w:rPr><w:vanish/></w:rPr><w:t>x</w:t></w:r>"
    runs = f"<w:r><w:t>Seen</w:t></w:r>{60_000 * run}"

    def fill(document):
        document.add_paragraph()._p.getparent().insert(
            0, parse_xml(f"<w:p {nsdecls('w')}>{runs}</w:p>")
        )

    extracted = read(samples.word(fill))

    assert extracted.text == "Seen"
    assert list(extracted.warnings) == ["Hidden text was left out (60,000 characters)."]


def test_what_was_moved_in_word_stands_where_it_went_to(read):
    def fill(document):
        for tag in ("moveFrom", "moveTo"):
            run = f"<w:r><w:t>{SECRET} by {tag}</w:t></w:r>"
            moved = f'<w:{tag} {nsdecls("w")} w:id="1" w:author="Ann">{run}</w:{tag}>'
            document.add_paragraph()._p.append(parse_xml(moved))

    extracted = read(samples.word(fill))

    assert extracted.text == f"{SECRET} by moveTo"
    assert list(extracted.warnings) == []


def test_hidden_text_in_another_encoding_of_the_same_file_is_found(read):
    def recode(name: str, body: bytes) -> tuple[str, bytes]:
        if name != "word/document.xml":
            return name, body
        text = body.decode().replace("UTF-8", "UTF-16")
        return name, text.encode("utf-16")

    extracted = read(samples.repacked(samples.word(_hidden), recode))

    assert SECRET not in extracted.text
    assert list(extracted.warnings) == [f"Hidden text was left out {COUNTED}"]


@pytest.mark.parametrize(
    ("main", "name"), [("word/document.xml", "a.docx"), ("content.xml", "a.odt")]
)
def test_what_is_searched_for_hidden_text_is_what_is_read(read, main, name):
    """Of two parts one is called like the other by the field for names in Unicode (APPNOTE 4.6.9),
    which xberg and later releases of Python know."""
    hidden = f"<w:p><w:r><w:rPr><w:vanish/></w:rPr><w:t>{SECRET}</w:t></w:r></w:p>"
    veiled = f'<text:p text:style-name="T1">{SECRET}</text:p>'
    shown, other = (
        (office.docx("<w:p><w:r><w:t>Seen.</w:t></w:r></w:p>"), office.docx(hidden))
        if name == "a.docx"
        else (
            office.odf("text", "<text:p>Seen.</text:p>", _HIDDEN_STYLE),
            office.odf("text", veiled, _HIDDEN_STYLE),
        )
    )
    raw = b"other.xml"
    field = struct.pack("<BI", 1, zlib.crc32(raw)) + main.encode()
    entry = ZipInfo(raw.decode())
    entry.extra = struct.pack("<HH", 0x7075, len(field)) + field
    out = BytesIO(shown)
    with ZipFile(out, "a") as archive:
        archive.writestr(entry, ZipFile(BytesIO(other)).read(main))

    assert read(out.getvalue(), name).text in ("Seen.", "")


_STYLES = """<w:styles>
<w:style w:type="paragraph" w:styleId="Other"><w:name w:val="Other"/></w:style>
<w:style w:type="paragraph" w:styleId="Hidden"><w:rPr><w:vanish/></w:rPr></w:style>
<w:style w:type="paragraph" w:styleId="Based"><w:basedOn w:val="Hidden"/></w:style>
<w:style w:type="paragraph" w:styleId="Last"><w:name w:val="Last"/></w:style>
</w:styles>"""


@pytest.mark.parametrize(
    ("use", "old", "new"),
    [
        ('w:val="Hidden"', "", ""),
        ('w:val = "Hidden"', "", ""),
        ('w:x="" w:val="Hidden"', "", ""),
        ("w:val='Hidden'", "", ""),
        ('w:val="H&#105;dden"', "", ""),
        ('w:val="Based"', "", ""),
        ('w:val="Based"', '<w:basedOn w:val="Hidden"', '<w:basedOn w:val = "Hidden"'),
        ('w:val="Based"', '<w:basedOn w:val="Hidden"', '<w:basedOn w:val="&#72;idden"'),
        ('w:val="Hidden"', 'w:styleId="Hidden"', 'w:styleId="&#72;idden"'),
        ('w:val="Hidden"', 'w:styleId="Hidden"', "w:x='w:styleId=\"O\"' w:styleId=\"Hidden\""),
        ('w:val="Hidden"', 'w:styleId="Hidden"', 'w:x=">" w:styleId="Hidden"'),
        ('w:val="Hidden"', 'w:styleId="Hidden">', 'w:styleId="Hidden"><!-- </w:style>'
         '<w:style w:styleId="Unused"> -->'),
        ('w:val="Hidden"', 'w:styleId="Hidden">', 'w:styleId="Hidden"><w:x><![CDATA[ </w:style>'
         '<w:style w:styleId="Unused"> ]]></w:x>'),
        ('w:val="Hidden"', '<w:style w:type="paragraph" w:styleId="H', '<w:style\nw:styleId="H'),
    ],
)  # fmt: skip
def test_a_style_hides_however_it_and_its_use_are_written(read, use, old, new):
    assert old in _STYLES
    body = f"<w:p><w:pPr><w:pStyle {use}/></w:pPr><w:r><w:t>{SECRET}</w:t></w:r></w:p>"
    parts = {"styles.xml": ("styles", _STYLES.replace(old, new) if old else _STYLES)}
    data = office.docx(f"<w:p><w:r><w:t>Seen.</w:t></w:r></w:p>{body}", parts)

    extracted = read(data, "a.docx")

    assert extracted.text == "Seen."
    assert list(extracted.warnings) == [f"Hidden text was left out {COUNTED}"]


DEFAULT = "<!DOCTYPE w:document [<!ATTLIST w:color w:val CDATA 'FFFFFF'>]>"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b'w:val="FFFFFF"', b'w:val="&#70;FFF&#x46;f"'),
        (b'w:val="FFFFFF"', b'w:val="fefefe"'),
        (b'w:val="FFFFFF"', b'w:lang="' + b"x" * 1_000 + b'" w:val="FFFFFF"'),
        (b'w:color w:val="FFFFFF"', b"w:color"),
        (b'w:color w:val="FFFFFF"', b"w:color  "),
    ],
    ids=["by number", "small letters", "a long tag", "by default", "behind a comment"],
)
def test_white_in_other_words_is_found_as_well(read, old, new):
    def reword(name: str, body: bytes) -> tuple[str, bytes]:
        if name != "word/document.xml":
            return name, body
        assert old in body
        body = body.replace(old, new)
        if b"FF" in new or b"fe" in new:
            return name, body
        return name, _with_default(body, ahead="<!-- <w:p> -->" if new.endswith(b" ") else "")

    extracted = read(samples.repacked(samples.word(_white), reword))

    assert SECRET not in extracted.text
    assert list(extracted.warnings) == [f"Hidden text was left out {COUNTED}"]


def _with_default(body: bytes, ahead: str) -> bytes:
    start = body.index(b"?>") + 2
    return body[:start] + (ahead + DEFAULT).encode() + body[start:]


OFFICE = "http://schemas.openxmlformats.org"
FOOTNOTES = (
    f'<w:footnotes xmlns:w="{OFFICE}/wordprocessingml/2006/main"><w:footnote w:id="1"><w:p><w:r>'
    "<w:t>Of the Gala kind.</w:t></w:r></w:p></w:footnote></w:footnotes>"
)
RELATION = (
    f'<Relationship Id="rIdF" Type="{OFFICE}/officeDocument/2006/relationships/footnotes" '
    'Target="footnotes.xml"/></Relationships>'
)


def test_footnotes_and_comments_are_part_of_the_text(read):
    def fill(document):
        paragraph = document.add_paragraph("Apples")
        document.add_comment(paragraph.runs, text="Which kind?", author="Anna")

    def add_footnote(name: str, body: bytes) -> tuple[str, bytes]:
        match name:
            case "docProps/thumbnail.jpeg":
                return "word/footnotes.xml", FOOTNOTES.encode()
            case "word/document.xml":
                mark = b'<w:r><w:footnoteReference w:id="1"/></w:r></w:p>'
                return name, body.replace(b"</w:p>", mark, 1)
            case "word/_rels/document.xml.rels":
                return name, body.replace(b"</Relationships>", RELATION.encode())
            case _:
                return name, body

    text = read(samples.repacked(samples.word(fill), add_footnote)).text

    assert "Apples" in text
    assert "Which kind?" in text
    assert "Of the Gala kind." in text


_HIDDEN_STYLE = (
    '<style:style style:name="T1"><style:text-properties text:display="none"/></style:style>'
)


@pytest.mark.parametrize(
    "veiled",
    [
        '<text:p>a<text:span text:style-name="T1">un<text:span>se</text:span>en</text:span>'
        "</text:p>",
        '<text:p>a</text:p><text:p text:style-name="T1">unseen</text:p>',
        '<text:p>a</text:p><text:section text:display="none"><text:p>unseen</text:p>'
        "</text:section>",
        '<text:p>a</text:p><text:section text:display="condition" text:is-hidden="true">'
        "<text:p>un<draw:frame><draw:text-box><text:p>seen</text:p></draw:text-box></draw:frame>"
        "</text:p></text:section>",
    ],
)
def test_hidden_text_of_an_opendocument_text_is_left_out_and_counted(read, veiled):
    extracted = read(office.odf("text", f"{veiled}<text:p>b</text:p>", _HIDDEN_STYLE), "a.odt")

    assert extracted.text == "a\n\nb"
    assert list(extracted.warnings) == ["Hidden text was left out (6 characters)."]


@pytest.mark.parametrize("written", [' = "none"', "='none'", '\n=\t"none"', '="&#110;one"'])
def test_a_style_of_an_opendocument_text_hides_however_it_is_written(read, written):
    style = _HIDDEN_STYLE.replace('="none"', written)
    body = f'<text:p>a</text:p><text:p text:style-name="T1">{SECRET}</text:p>'

    extracted = read(office.odf("text", body, style), "a.odt")

    assert extracted.text == "a"
    assert list(extracted.warnings) == [f"Hidden text was left out {COUNTED}"]


def test_a_named_style_of_an_opendocument_text_hides_as_well(read):
    text = office.odf("text", '<text:p>a</text:p><text:p text:style-name="T1">unseen</text:p>')
    with ZipFile(BytesIO(text)) as parts:
        content = {name: parts.read(name) for name in parts.namelist()}
    spaces = 'xmlns:style="s" xmlns:text="t"'
    styles = f"<styles {spaces}>{_HIDDEN_STYLE}</styles>"

    assert read(office.packed({**content, "styles.xml": styles}), "a.odt").text == "a"


def test_a_style_that_is_based_on_a_hiding_one_hides_unless_it_says_otherwise(read):
    def style(name: str, on: str, display: str = "") -> str:
        shown = f'<style:text-properties text:display="{display}"/>' * bool(display)
        based = f'style:parent-style-name="{on}"'
        return f'<style:style style:name="{name}" {based}>{shown}</style:style>'

    styles = style("P1", "P2") + style("P2", "T1") + style("P3", "P1", "true") + style("P4", "P5")
    styles += style("P5", "P4") + style("P6", "P3")
    body = "".join(f'<text:p text:style-name="P{at}">{at}</text:p>' for at in range(7))
    data = office.odf("text", body, styles + _HIDDEN_STYLE)

    assert read(data, "a.odt").text.split("\n\n") == ["0", "3", "4", "5", "6"]


def test_what_an_opendocument_text_shows_is_read(read):
    shown = (
        '<text:section text:display="condition"><text:p>a</text:p></text:section>'
        '<text:p>b<text:span text:style-name="T2">c</text:span></text:p>'
    )
    extracted = read(office.odf("text", shown, _HIDDEN_STYLE), "a.odt")

    assert extracted.text == "a\n\nbc"
    assert not extracted.warnings


@pytest.mark.parametrize(
    "veiled",
    [
        r"{\footnote b{\v %s\'e4\{}c}",
        r"{\*\annotation b{\b\v %s\ul x\u228?}c}",
        r"{\footnote b\deleted %s\deleted0 c}",
        r"b{\xe %s}c",
        r"b{\tc{\b %s}\tcl2}c",
    ],
)
def test_what_a_rtf_does_not_show_is_left_out_of_notes_and_of_indexes(read, veiled):
    text = read("{\\rtf1\\ansi a" + veiled % SECRET + "\\par}", "a.rtf").text

    assert SECRET not in text
    assert "bc" in text


def test_a_style_of_a_million_letters_takes_no_time(read):
    style = "a" * 1_000_000

    assert read(f'<p style="{style};display:none">x</p><p>y</p>', "a.html").text == "y"
