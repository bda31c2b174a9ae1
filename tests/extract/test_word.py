"""Word: headings, lists and tables survive; bombs and locks are told apart."""

import io
import zipfile

import pytest
from PIL import Image

from recollect.errors import Permanent
from tests.extract import office, pictures, samples


def _report(document):
    document.add_heading("Harvest", 1)
    document.add_paragraph("The apples were ")
    document.paragraphs[-1].add_run("large").bold = True
    document.add_paragraph("Gala", style="List Bullet")
    document.add_paragraph("Boskop", style="List Bullet")
    document.add_paragraph("pick", style="List Number")
    document.add_paragraph("press", style="List Number")
    document.add_heading("Prices", 2)
    table = document.add_table(2, 2)
    for cell, words in zip(table._cells, ["Fruit", "Price", "Öl", "1,20 €"], strict=True):
        cell.text = words


def test_headings_lists_and_tables_become_markdown(read):
    extracted = read(samples.word(_report), "a.docx")

    assert extracted.text == (
        "# Harvest\n\nThe apples were **large**\n\n- Gala\n- Boskop\n\n1. pick\n2. press\n\n"
        "## Prices\n\n| Fruit | Price |\n| --- | --- |\n| Öl | 1,20 € |"
    )
    assert extracted.title == "Harvest"
    assert extracted.kind == "text"


def test_the_title_of_the_file_comes_first(read):
    def titled(document):
        document.core_properties.title = "Orchard Report"
        document.add_heading("Chapter", 1)

    assert read(samples.word(titled)).title == "Orchard Report"


def test_an_empty_document_is_an_empty_text(read):
    assert read(samples.word(lambda document: None), "a.docx").text == ""


def test_a_password_is_said_to_be_the_reason(read):
    data = (
        b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(1000) + "EncryptedPackage".encode("utf-16-le")
    )
    with pytest.raises(Permanent, match="password") as caught:
        read(data, "a.docx")

    assert caught.value.code == "encrypted_file"


@pytest.mark.parametrize("part", [0.3, 0.6, 0.99])
def test_a_cut_file_is_refused(read, part):
    data = samples.word(_report)
    with pytest.raises(Permanent, match="damaged") as caught:
        read(data[: int(len(data) * part)], "a.docx")

    assert caught.value.code == "unreadable_content"


def test_a_file_without_its_main_part_says_so(read):
    def rename(name: str, body: bytes) -> tuple[str, bytes]:
        return name.replace("word/document.xml", "word/other.xml"), body

    with pytest.raises(Permanent, match=r"its part word/document\.xml is missing"):
        read(samples.repacked(samples.word(_report), rename), "a.docx")


def test_a_zip_bomb_is_refused(read):
    def blow_up(name: str, body: bytes) -> tuple[str, bytes]:
        return name, body + b" " * 200_000_000 if name == "word/document.xml" else body

    with pytest.raises(Permanent) as caught:
        read(samples.repacked(samples.word(_report), blow_up), "bomb.docx")

    assert caught.value.code == "too_large"


def test_a_zip_bomb_that_lies_about_its_size_harms_nothing(read):
    body = b"<w>" + b" " * 200_000_000
    bomb = bytearray(
        samples.repacked(
            samples.word(_report),
            lambda name, old: (name, body if name == "word/document.xml" else old),
        )
    )
    true_size = len(body).to_bytes(4, "little")
    while (at := bomb.find(true_size)) >= 0:
        bomb[at : at + 4] = (1000).to_bytes(4, "little")
    with pytest.raises(Permanent):
        read(bytes(bomb), "bomb.docx")

    assert read(samples.word(_report), "a.docx").title == "Harvest"


def test_a_path_that_leads_out_is_refused(read):
    out = io.BytesIO(samples.word(_report))
    with zipfile.ZipFile(out, "a") as archive:
        archive.writestr("../../etc/cron.d/x", "x")
    with pytest.raises(Permanent, match="leads out"):
        read(out.getvalue(), "a.docx")


@pytest.mark.parametrize(
    "entity",
    [
        '<!DOCTYPE x [<!ENTITY a "haha"><!ENTITY b "{}">]>'.format("&a;" * 1000),
        '<!DOCTYPE x [<!ENTITY b SYSTEM "file:///etc/passwd">]>',
    ],
)
def test_entities_are_not_expanded(read, entity):
    def poison(name: str, body: bytes) -> tuple[str, bytes]:
        if name == "word/document.xml":
            start = body.index(b"?>") + 2
            body = body[:start] + entity.encode() + body[start:].replace(b"Harvest", b"&b;Harvest")
        return name, body

    try:
        text = read(samples.repacked(samples.word(_report), poison), "a.docx").text
    except Permanent:
        return
    assert "haha" not in text
    assert "root:" not in text


def test_another_zip_is_read_as_an_archive(read):
    assert "- a.txt (4 bytes)" in read(samples.zipped(["a.txt"]), "a.docx").text


def _p(*runs):
    return f"<w:p>{''.join(run if run.startswith('<') else _r(run) for run in runs)}</w:p>"


def _r(words):
    return f'<w:r><w:t xml:space="preserve">{words}</w:t></w:r>'


def _ref(kind, number):
    raised = '<w:rPr><w:vertAlign w:val="superscript"/></w:rPr>'
    return f'<w:r>{raised}<w:{kind}Reference w:id="{number}"/></w:r>'


def _notes(kind, **notes):
    written = "".join(f'<w:{kind} w:id="{id[1:]}">{body}</w:{kind}>' for id, body in notes.items())
    line = f'<w:{kind} w:type="separator" w:id="-1"><w:p/></w:{kind}>'
    return {f"{kind}s.xml": (f"{kind}s", f"<w:{kind}s>{line}{written}</w:{kind}s>")}


def test_each_note_has_the_number_of_its_reference(read):
    body = (
        _p("Apples", _ref("footnote", 4), " and pears", _ref("endnote", 4), ".")
        + _p(
            "Plums",
            _ref("footnote", 4),
            _ref("comment", 9),
            "<w:del>" + _ref("footnote", 6) + "</w:del>",
        )
        + f"<w:tbl><w:tr><w:tc>{_p('Nuts', _ref('footnote', 5))}</w:tc></w:tr></w:tbl>"
    )
    styled = "<w:p><w:pPr><w:jc w:val='both'/></w:pPr><w:r><w:footnoteRef/></w:r>" + _r(" Ripe.")
    link = f'<w:hyperlink r:id="c0">{_r("here")}</w:hyperlink>'
    parts = (
        _notes("footnote", _5=_p("See ", link), _4=f"{styled}</w:p>{_p('Red.')}", _6=_p("Gone."))
        | _notes("endnote", _4="<w:tbl><w:tr><w:tc><w:p/></w:tc></w:tr></w:tbl>" + _p("Sweet."))
        | _notes("comment", _9="<w:p><w:pPr/>" + _r("Which?") + "</w:p>", _10=_p("Bare."))
    )

    assert read(office.docx(body, parts)).text == (
        "Apples[^1] and pears[^2].\n\nPlums[^1][^comment1]\n\n| Nuts[^3] |\n| --- |\n\n"
        "[^1]: Ripe.\n\nRed.\n\n[^3]: See here\n\n[^2]:\n\n|  |\n| --- |\n\nSweet.\n\n"
        "[^comment1]: Which?\n\n[^comment2]: Bare."
    )


def _boxes(*texts):
    boxes = "".join(
        f"<wps:wsp><wps:txbx><w:txbxContent>{_p(text)}</w:txbxContent></wps:txbx></wps:wsp>"
        for text in texts
    )
    return (
        f'<w:r><mc:AlternateContent><mc:Choice Requires="wps"><w:drawing>{boxes}</w:drawing>'
        f"</mc:Choice><mc:Fallback><w:pict>{boxes}</w:pict></mc:Fallback></mc:AlternateContent></w:r>"
    )


def test_every_box_of_a_group_is_read_once_behind_its_paragraph(read):
    body = _p("An", _boxes("One", "Two"), " anchor") + _p(_boxes("Three")) + "<w:p/>" + _p("End")
    cell = f"<w:tbl><w:tr><w:tc>{_p('Cell', _boxes('Four', 'Five'))}</w:tc></w:tr></w:tbl>"

    assert read(office.docx(body + cell)).text == (
        "An anchor\n\nOne\n\nTwo\n\nThree\n\nEnd\n\n| Cell Four Five |\n| --- |"
    )


def test_reading_aids_do_not_break_words_and_line_ends_part_them(read):
    ruby = "<w:r><w:ruby><w:rt>{}</w:rt><w:rubyBase>{}</w:rubyBase></w:ruby></w:r>"
    body = _p(ruby.format(_r("とう"), _r("東")), ruby.format(_r("きょう"), _r("京")), "です")

    assert read(office.docx(body)).text == "東京です"
    for end in ("cr", 'br w:type="page"', 'br w:type="column"', 'ptab w:alignment="right"'):
        line = f"<w:p><w:r><w:t>a</w:t><w:{end}/><w:t>b</w:t></w:r></w:p>"
        assert read(office.docx(line)).text == "a b"


def test_an_equation_stays_in_its_line(read):
    equation = "<m:oMath><m:r><m:t>{}</m:t></m:r></m:oMath>"
    body = _p("If ", equation.format("x=1"), " and ", equation.format("y=2"), " then")
    body += _p(f"<m:oMathPara>{equation.format('z=3')}</m:oMathPara>")

    assert read(office.docx(body)).text == "If $x=1$ and $y=2$ then\n\n$$z=3$$"


@pytest.mark.parametrize("change", ["del", "moveFrom"])
def test_a_deleted_equation_is_left_out(read, change):
    equation = "<m:oMath><m:r><m:t>x=1</m:t></m:r></m:oMath>"
    body = _p("If ", f"<w:{change} w:id='1'>{equation}</w:{change}>", equation, " then")

    assert read(office.docx(body)).text == "If $x=1$ then"


def test_each_equation_stays_in_its_line_beside_boxes_notes_and_tables(read):
    def equation(words):
        return f"<m:oMath><m:r><m:t>{words}</m:t></m:r></m:oMath>"

    boxed = (
        f"<w:r><w:pict><w:txbxContent>{_p('In ', equation('b=2'))}</w:txbxContent></w:pict></w:r>"
    )
    cells = f"<w:tbl><w:tr><w:tc>{_p('Cell ', equation('c=3'))}</w:tc></w:tr></w:tbl>"
    body = _p("If ", equation("a=1"), boxed, " then ", _ref("footnote", 4), equation("d=4"))
    notes = _notes("footnote", _4=_p("See ", equation("e=5"), ".") + cells)

    assert read(office.docx(body + cells, notes)).text == (
        "If $a=1$ then [^1]$d=4$\n\nIn $b=2$\n\n| Cell $c=3$ |\n| --- |\n\n"
        "[^1]: See $e=5$.\n\n| Cell $c=3$ |\n| --- |"
    )


def test_notes_of_a_heading_are_not_in_the_title_but_equations_are(read):
    style = "<w:pPr><w:pStyle w:val='Heading1'/></w:pPr>"
    extracted = read(
        office.docx(_p(style, "Fruit", _ref("footnote", 4)), _notes("footnote", _4=_p("Ripe.")))
    )

    assert extracted.text.startswith("# Fruit[^1]\n")
    assert extracted.title == "Fruit"
    equation = "<m:oMath><m:r><m:t>x</m:t></m:r></m:oMath>"
    assert read(office.docx(_p(style, "The ", equation, " axis"))).title == "The $x$ axis"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.htm", "<html><body><p>An <b>inner</b> text</p></body></html>"),
        ("a.txt", "An **inner** text"),
        ("a.rtf", r"{\rtf1 An {\b inner} text}"),
        ("a.docx", office.docx(_p("An **inner** text"))),
        (
            "a.mht",
            "MIME-Version: 1.0\nContent-Type: multipart/related; boundary=x\n\n--x\n"
            "Content-Type: text/html\n\n<p>An <b>inner</b> text</p>\n--x--",
        ),
    ],
)
def test_a_file_within_it_is_read_where_it_stands(read, name, content):
    data = office.docx(
        _p("Ahead") + '<w:altChunk r:id="c0"/>' + _p("Behind"), {name: ("aFChunk", content)}
    )
    extracted = read(data)

    assert extracted.text == "Ahead\n\nAn **inner** text\n\nBehind"
    assert not extracted.warnings


def test_a_file_within_it_that_cannot_be_read_is_told(read):
    chunk = '<w:altChunk r:id="c0"/>'
    data = office.docx(chunk + chunk + _p("Behind"), {"a.docx": ("aFChunk", b"PK\3\4 torn")})

    assert read(data).text == "Behind"
    assert list(read(data).warnings) == ["A file that was put into it as a whole cannot be read."]


def test_of_a_picture_only_what_is_said_of_it_is_text(read):
    def pictured(document):
        for words in ("", "Pears on a *table*"):
            document.add_picture(io.BytesIO(pictures.encoded(Image.new("L", (9, 9)))))
            document.inline_shapes[-1]._inline.docPr.set("descr", words)
        document.add_paragraph("End")

    assert read(samples.word(pictured)).text == "Pears on a *table*\n\nEnd"


def test_what_a_caption_says_of_a_picture_or_table_is_said_once(read):
    def pictured(document):
        document.add_picture(io.BytesIO(pictures.encoded(Image.new("L", (9, 9)))))
        document.inline_shapes[-1]._inline.docPr.set("descr", "A goose")
        document.add_paragraph("A goose")
        document.add_paragraph("A goose of old")

    row = "<w:tr><w:tc><w:p/></w:tc><w:tc><w:p><w:r><w:t>4</w:t></w:r></w:p></w:tc></w:tr></w:tbl>"
    table = "<w:tbl><w:tblPr><w:tblCaption w:val='Geese &amp; more'/></w:tblPr>" + row
    table = table.replace("'", '"')

    assert read(samples.word(pictured)).text == "A goose\n\nA goose of old"
    assert read(office.docx(_p("Geese &amp; more") + table)).text.count("Geese & more") == 1
    assert read(office.docx(_p("Ducks") + table)).text.count("Geese & more") == 1


def test_two_powers_of_an_equation_stay_in_it(read):
    power = (
        "<m:sSup><m:e><m:r><m:t>{}</m:t></m:r></m:e><m:sup><m:r><m:t>2</m:t></m:r></m:sup></m:sSup>"
    )
    equation = f"<m:oMath>{power.format('x')}{power.format('y')}</m:oMath>"
    body = _p("As ", equation, " of f^-1,g^-1") + _p(f"<m:oMathPara>{equation}</m:oMathPara>")

    assert read(office.docx(body)).text == "As $x^2 y^2$ of f^-1,g^-1\n\n$$x^2 y^2$$"


def test_a_small_file_that_repeats_itself_is_no_bomb(read):
    lines = _p("The same again. " * 40) * 500

    text = read(office.docx(lines)).text

    assert text.count("The same again.") == 20_000


def test_too_many_levels_of_tables_are_said_to_be_the_reason(read):
    tables = "<w:tbl><w:tr><w:tc>" * 3_000 + "<w:p/>" + "</w:tc></w:tr></w:tbl>" * 3_000

    with pytest.raises(Permanent, match="larger inside than is accepted"):
        read(office.docx(tables), "a.docx")


def test_styles_based_on_thousands_of_others_take_no_time(read):
    styles = "".join(
        f'<w:style w:type="paragraph" w:styleId="S{at}"><w:basedOn w:val="S{at + 1}"/></w:style>'
        for at in range(20_000)
    )
    numbered = '<w:p><w:pPr><w:pStyle w:val="S0"/><w:numPr/></w:pPr><w:r><w:t>x</w:t></w:r></w:p>'
    parts = {
        "styles.xml": ("styles", f"<w:styles><w:vanish/>{styles}</w:styles>"),
        "numbering.xml": ("numbering", "<w:numbering></w:numbering>"),
    }

    assert read(office.docx(numbered * 3_000, parts), "a.docx").text.count("x") == 3_000


@pytest.mark.parametrize(
    ("old", "new"), [("", ""), ('w:styleId="', 'w:x="" w:styleId="'), ("<w:style ", "<w:style\n")]
)
def test_a_style_among_hundreds_says_what_those_say_that_it_is_based_on(read, old, new):
    """As Word writes them, and as others do."""
    base = '<w:basedOn w:val="{}"/>'
    styles = "".join(
        f'<w:style w:type="paragraph" w:styleId="{id}"><w:name w:val="{id}"/>{said}</w:style>\n'
        for id, said in {
            "Normal": "",
            **{f"Unused{at}": base.format("Head") for at in range(300)},
            "Deep": base.format("Mid"),
            "Mid": base.format("Head"),
            "Head": "<w:pPr><w:numPr><w:numId w:val='1'/></w:numPr></w:pPr>",
            "Hiding": "<w:rPr><w:vanish/></w:rPr>",
            "Hidden": base.format("Hiding"),
        }.items()
    )
    level = '<w:lvl w:ilvl="0"><w:start w:val="1"/><w:lvlText w:val="Article %1"/></w:lvl>'
    parts = {
        "styles.xml": ("styles", f"<w:styles>{styles.replace(old, new)}</w:styles>"),
        "numbering.xml": (
            "numbering",
            f'<w:numbering><w:abstractNum w:abstractNumId="0">{level}</w:abstractNum>'
            '<w:num w:numId="1"><w:abstractNumId w:val="0"/></w:num></w:numbering>',
        ),
    }
    body = "".join(
        f'<w:p><w:pPr><w:pStyle w:val="{style}"/></w:pPr><w:r><w:t>{style}</w:t></w:r></w:p>'
        for style in ("Deep", "Hidden", "Deep", "Normal")
    )

    text = read(office.docx(body, parts), "a.docx").text

    assert text.split("\n\n") == ["Article 1 Deep", "Article 2 Deep", "Normal"]


@pytest.mark.parametrize("name", ["a.xml", "a.doc", "a.docx", None])
def test_a_document_in_one_file_of_xml_is_read_as_that_in_parts(read, name):
    def fill(document):
        document.add_heading("Harvest")
        document.add_paragraph("quince", style="List Bullet")
        document.add_paragraph("pear", style="List Number")
        document.add_table(1, 2).cell(0, 1).text = "plum"

    data = samples.word(fill)

    assert read(office.in_one_xml(data), name).text == read(data, "a.docx").text


WORD_2003 = """<?xml version="1.0" encoding="UTF-8"?>
<?mso-application progid="Word.Document"?>
<w:wordDocument xmlns:w="http://schemas.microsoft.com/office/word/2003/wordml"
 xmlns:wx="http://schemas.microsoft.com/office/word/2003/auxHint"
 xmlns:aml="http://schemas.microsoft.com/aml/2001/core"
 xmlns:o="urn:schemas-microsoft-com:office:office">
<o:DocumentProperties><o:Title>Our &amp; year</o:Title></o:DocumentProperties>
<w:fonts><w:defaultFonts w:ascii="Courier"/></w:fonts>
<w:styles><w:style w:type="paragraph" w:styleId="Heading1"><w:name w:val="heading 1"/></w:style>
</w:styles><w:body><wx:sect><wx:sub-section>
<w:p><w:pPr><w:pStyle w:val="Heading1"/></w:pPr><w:r><w:t>Harvest</w:t></w:r></w:p>
<w:p><w:r><w:t>It was good</w:t></w:r><w:r><w:footnote><w:p><w:r><w:t>in May</w:t></w:r></w:p>
</w:footnote></w:r><aml:annotation aml:id="1" w:type="Word.Insertion"><aml:content><w:r>
<w:t xml:space="preserve"> for all</w:t></w:r></aml:content></aml:annotation>
<aml:annotation aml:id="2" w:type="Word.Deletion"><aml:content><w:r><w:delText>gone</w:delText>
</w:r></aml:content></aml:annotation><aml:annotation aml:id="3" w:type="Word.Comment.Start"/>
<w:r><w:t>.</w:t></w:r><aml:annotation aml:id="3" w:type="Word.Comment"><aml:content><w:p><w:r>
<w:t>Is that </w:t></w:r><aml:annotation w:type="Word.Insertion"><aml:content><w:r><w:t>so?</w:t>
</w:r></aml:content></aml:annotation></w:p></aml:content></aml:annotation>
<w:r><w:rPr><w:vanish/></w:rPr><w:t>unseen</w:t></w:r></w:p>
<w:p><w:pPr><w:listPr><w:ilvl w:val="0"/><wx:t wx:val="2.1."/><wx:font wx:val="Arial"/></w:listPr>
</w:pPr><w:r><w:t>quince</w:t></w:r></w:p>
<w:p><w:pPr><w:listPr><wx:t wx:val="·"/></w:listPr></w:pPr><w:r><w:t>pear</w:t></w:r></w:p>
<w:tbl><w:tr><w:tc><w:p><w:r><w:t>plum</w:t></w:r></w:p></w:tc></w:tr></w:tbl>
<w:p><w:r><w:pict><w:binData w:name="a.png">iVBORw0KGgoAAA==</w:binData></w:pict></w:r></w:p>
</wx:sub-section></wx:sect></w:body></w:wordDocument>"""


@pytest.mark.parametrize("name", ["a.doc", "a.xml", None])
def test_what_word_2003_and_servers_of_its_time_wrote_as_xml_is_read(read, name):
    extracted = read(WORD_2003, name)

    assert [" ".join(block.split()) for block in extracted.text.split("\n\n")] == [
        "# Harvest",
        "It was good for all.",
        "in May",
        "Is that so?",
        "2.1. quince",
        "- pear",
        "| plum | | --- |",
    ]
    assert extracted.title == "Our & year"
    assert [*extracted.warnings] == ["Hidden text was left out (6 characters)."]


@pytest.mark.parametrize("body", ["", "<w:body>", "<w:body><w:p></w:body>"])
def test_a_broken_document_in_one_file_of_xml_says_so(read, body):
    data = f"{WORD_2003[: WORD_2003.index('<o:Doc')]}{body}</w:wordDocument>"

    with pytest.raises(Permanent, match="damaged"):
        read(data, "a.doc")
