"""Charts, sheets, boxes and remarks of OpenDocument files and old Excel files."""

import io
import re
import struct
import zipfile
from collections.abc import Mapping

import pytest

from recollect.errors import Permanent
from recollect.extract._zip import Package
from recollect.extract.office import _odf_objects
from tests.extract import office

EQUATION = (
    '<math xmlns="http://www.w3.org/1998/Math/MathML"><semantics><mrow><mi>a</mi><mo>=</mo>'
    "<mn>2</mn></mrow></semantics></math>"
)


def cell(words: str, more: str = "") -> str:
    return f"<table:table-cell {more}><text:p>{words}</text:p><d><p/>A1</d></table:table-cell>"


def row(*cells: str) -> str:
    return f"<table:table-row>{''.join(cells)}</table:table-row>"


CHART = (
    '<office:document-content xmlns:office="o" xmlns:chart="c" xmlns:text="t" xmlns:table="b">'
    "<chart:chart><chart:title><text:p>Pears<text:s/>&amp; <text:span>apples</text:span></text:p>"
    "</chart:title><chart:axis><chart:title><text:p>Tons</text:p></chart:title></chart:axis>"
    "<table:table>"
    + row(cell(""), cell("Bosc"), cell("2|3"))
    + row(cell("May"), cell("4.5"), cell("NaN"))
    + row(cell("", 'table:number-columns-repeated="9999"'))
    + "</table:table></chart:chart></office:document-content>"
)
TABLE = "Pears & apples; Tons\n\n|  | Bosc | 2\\|3 |\n| --- | --- | --- |\n| May | 4.5 |  |"
PARTS = {
    "Object 1/content.xml": CHART,
    "Object 2/content.xml": EQUATION,
    "Object 3/content.xml": CHART[:-30],
}


def having(data: bytes, parts: Mapping[str, str] = PARTS) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        whole = {name: archive.read(name) for name in archive.namelist()}
    content = whole["content.xml"].replace(
        b"office:version", b'xmlns:xlink="http://www.w3.org/1999/xlink" office:version', 1
    )
    return office.packed({**whole, "content.xml": content, **parts})


def frame(number: int, address: str = "./Object%20") -> str:
    return (
        f'<draw:frame text:anchor-type="as-char"><draw:object xlink:href="{address}{number}"/>'
        "<draw:image/></draw:frame>"
    )


def p(words: str) -> str:
    return f"<text:p>{words}</text:p>"


def test_a_text_tells_its_charts_and_takes_none_for_an_equation(read):
    body = (
        p(f"a {frame(1)} b")
        + p(f"c {frame(2, './Object ')} d {frame(3)}{frame(9)}")
        + p(f"e {frame(1)}")
    )

    text = read(having(office.odf("text", body)), "a.odt").text

    assert text == f"a b\n\n{TABLE}\n\nc $a=2$ d\n\ne"


@pytest.mark.parametrize(
    ("ahead", "behind", "text"),
    [
        ("<table:table><table:table-row><table:table-cell>", "</table:table-cell></table:table-row>"
         "</table:table>", "| a Pears & apples Tons Bosc 2\\|3 May 4.5 |\n| --- |"),
        ("<text:list><text:list-item>", "</text:list-item></text:list>",
         "- a\n- Pears & apples Tons Bosc 2|3 May 4.5"),
        ("<text:tracked-changes>", "</text:tracked-changes>", ""),
    ],
)  # fmt: skip
def test_no_word_of_a_chart_is_lost_where_no_table_can_stand(read, ahead, behind, text):
    body = f"{ahead}{p('a' + frame(1))}{behind}"

    assert read(having(office.odf("text", body)), "a.odt").text == text


def test_a_slide_of_opendocument_tells_its_charts_and_comments(read):
    said = "<office:annotation><dc:creator>Ann</dc:creator><text:p>why</text:p><text:p>so</text:p>"
    page = f"<draw:page>{frame(1)}{frame(3)}{said}</office:annotation>{frame(1)}</draw:page>"
    data = office.odf("presentation", page.replace("dc:creator", "office:creator"))

    assert read(having(data), "a.odp").text == f"{TABLE}\n\nComments:\n\nwhy\n\nso"


def test_a_sheet_of_opendocument_tells_what_is_in_no_cell(read):
    box = f"<draw:frame><draw:text-box>{p('in')}{p('box')}</draw:text-box></draw:frame>"
    remark = (
        "<office:annotation><office:creator>Ann</office:creator><text:p>see<text:s/>B2</text:p>"
    )
    rows = (
        row('<table:table-cell table:number-columns-repeated="27"/>')
        + row(
            '<table:table-cell table:number-columns-repeated="26"/>',
            f"<table:table-cell>{remark}</office:annotation><text:p>7</text:p>"
            "<draw:rect><text:p>drawn</text:p></draw:rect></table:table-cell>",
        )
    )  # fmt: skip
    sheet = f'<table:table table:name="S"><table:shapes>{frame(1)}{box}</table:shapes>{rows}'
    other = '</table:table><table:table table:name="T"><table:table-row/></table:table>'
    data = having(office.odf("spreadsheet", sheet + other))

    assert read(data, "a.ods").text.split("\n") == [
        *("## S", "", "7", "Pears & apples; Tons", "in box", "AA2: see B2", "drawn"),
    ]


def test_an_object_that_stands_in_a_file_often_is_read_once():
    data = having(office.odf("text", ""))
    objects = _odf_objects.Objects(Package(data))

    told = [objects.told(f"./Object {number}") for number in (1, 1, 2, 2, 9)]

    assert [bool(one.tables or one.formula) for one in told] == [True, False, True, False, False]
    assert not objects.told("").blocks()


def xls_box(number: int, *pieces: bytes, length: int) -> list[tuple[int, bytes]]:
    return [
        (0x5D, struct.pack("<HHHH", 0x15, 0x12, 0x19, number)),
        (0x1B6, bytes(10) + struct.pack("<HH", length, 0) + bytes(4)),
        *((0x3C, piece) for piece in pieces),
    ]


def test_an_old_sheet_tells_its_boxes_and_remarks(read):
    besides = [
        *xls_box(1, b"\0pr", b"\1" + "üf\nes".encode("utf-16-le"), b"runs", length=7),
        *xls_box(2, b"\0box", length=3),
        *xls_box(3, b"\0x", length=900),
        *xls_box(4, length=0),
        (0x1C, struct.pack("<HHHH", 1, 27, 0, 1) + b"\0\0Ann"),
        (0x1C, struct.pack("<HHHH", 2, 0, 0, 9)),
        (0x1C, b"\0"),
    ]
    data = office.xls({"S": [["a"]]}, besides=besides)

    assert read(data, "a.xls").text == "## S\n\na\nbox\nAB2: prüf es"


def test_a_remark_of_excel_5_goes_on_in_further_records(read):
    besides = [
        (0x1C, struct.pack("<HHH", 0, 1, 6) + b"why "),
        (0x1C, struct.pack("<HHH", 0xFFFF, 0, 2) + b"not"),
    ]
    data = office.xls({"S": [[1]]}, besides=besides, version=0x500)

    assert "B1: why not" in read(data, "a.xls").text


def test_a_name_of_a_sheet_with_a_nul_harms_nothing(read):
    extracted = read(office.xls({"S\0T": [["a"]]}), "a.xls")

    assert extracted.text == "## ST\n\na"
    assert extracted.places[0].at == {"sheet": "ST"}


def test_a_formula_that_an_odt_shows_many_times_is_told_once(read):
    body = f"<text:p>Of {frame(2) * 1_000} all</text:p>"

    assert read(having(office.odf("text", body)), "a.odt").text == "Of $a=2$ all"


def flat(data: bytes, *, header: str = "") -> bytes:
    """The same in one file of XML, indented as LibreOffice does; `header` is told on each page."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        whole = {name: archive.read(name).decode() for name in archive.namelist()}
    meta = re.sub(r"</?office:document-meta.*?>", "", whole["meta.xml"])
    masters = f"<office:master-styles><text:p>{header}</text:p></office:master-styles>"
    content = whole["content.xml"].replace("office:version", 'xmlns:dc="d" office:version')
    content = content.replace("<office:automatic", f"{meta}{masters}<office:automatic", 1)
    content = content.replace(">", f' office:mimetype="{whole["mimetype"]}">', 2)
    content = content.replace(f' office:mimetype="{whole["mimetype"]}"', "", 1)
    content = content.replace("office:document-content", "office:document")
    content = content.replace("<draw:", "\n <draw:").replace("</draw:", "\n </draw:")
    picture = "<draw:image><office:binary-data>iVBO\nRw0K\n</office:binary-data></draw:image>"

    def inner(found: re.Match[str]) -> str:
        part = whole[f"Object {found[1]}/content.xml"].replace("-content", "")
        return f"<draw:object>\n <loext:p/>\n {part}\n</draw:object>{picture}"

    return re.sub(r'<draw:object xlink:href="[^"]*(\d)"/>', inner, content).encode()


BOX = (
    "<draw:frame><draw:text-box><text:p>In a <text:span>box</text:span></text:p></draw:text-box>"
    "</draw:frame>"
)


@pytest.mark.parametrize(
    ("kind", "ending", "body"),
    [
        ("text", "odt", f"<text:p>Of {frame(1)} and {frame(2)} all{BOX}</text:p>"),
        ("presentation", "odp", f"<draw:page>{frame(1)}{frame(2)}{BOX}</draw:page>"),
        (
            "spreadsheet",
            "ods",
            f'<table:table table:name="S"><table:shapes>{frame(1)}{frame(2)}</table:shapes>'
            f"{row(cell('a'))}</table:table>",
        ),
    ],
)
def test_an_opendocument_in_one_file_is_read_as_one_in_parts(read, kind, ending, body):
    parts = {name: part for name, part in PARTS.items() if "3" not in name}
    data = having(office.odf(kind, body, title="Fruit"), parts)

    extracted = read(flat(data, header="Small print"), "a.xml")

    packed = read(data, f"a.{ending}")
    assert extracted.text == packed.text
    assert list(extracted.places) == list(packed.places)
    assert extracted.title == "Fruit"
    assert "Pears & apples; Tons" in extracted.text
    assert "$a=2$" in extracted.text
    assert "Small print" not in extracted.text


@pytest.mark.parametrize("ending", ["fodt", "fods", "fodp"])
def test_damaged_and_hostile_opendocuments_in_one_file_are_refused(read, ending):
    kind = {"fodt": "text", "fods": "spreadsheet", "fodp": "presentation"}[ending]
    whole = flat(office.odf(kind, "<draw:object>" * 50_000 + "</draw:object>" * 50_000))
    for data in (
        whole[:-30],
        whole.replace(b"<office:", b'<!DOCTYPE x [<!ENTITY a "a">]><office:', 1),
    ):
        with pytest.raises(Permanent):
            read(data, f"a.{ending}")

    assert read(whole, f"a.{ending}").text == ""
