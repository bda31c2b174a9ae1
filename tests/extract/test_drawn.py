"""Charts, SmartArt, boxes and remarks of Office files: parts of their own."""

import io
import posixpath
import time
import zipfile
from collections.abc import Mapping
from xml.etree import ElementTree

import pytest

from recollect.extract import _zip
from recollect.extract.office import _drawn, xlsx
from tests.extract import office

OFFICE = "http://schemas.openxmlformats.org"
KIND = f"{OFFICE}/officeDocument/2006/relationships"
SPACES = (
    f'xmlns:c="{OFFICE}/drawingml/2006/chart" xmlns:a="{OFFICE}/drawingml/2006/main" '
    f'xmlns:r="{KIND}" xmlns:dgm="{OFFICE}/drawingml/2006/diagram" '
    f'xmlns:xdr="{OFFICE}/drawingml/2006/spreadsheetDrawing"'
)


def points(*texts: str, format: str = "General", kind: str = "num") -> str:
    inside = "".join(f'<c:pt idx="{n}"><c:v>{text}</c:v></c:pt>' for n, text in enumerate(texts))
    return (
        f"<c:{kind}Ref><c:f>A1</c:f><c:{kind}Cache><c:formatCode>{format}</c:formatCode>"
        f'<c:ptCount val="{len(texts)}"/>{inside}</c:{kind}Cache></c:{kind}Ref>'
    )


def title(words: str) -> str:
    return (
        f"<c:title><c:tx><c:rich><a:p><a:r><a:t>{words}</a:t></a:r></a:p></c:rich></c:tx></c:title>"
    )


DAYS = points("45292", "45293", format="m/d/yyyy")
CHART = (
    f"<c:chartSpace {SPACES}><c:chart>{title('Pears sold')}<c:plotArea><c:barChart>"
    f"<c:ser><c:tx>{points('Bosc', kind='str')}</c:tx><c:cat>"
    f"{DAYS}</c:cat><c:val>{points('4.5', '7')}</c:val></c:ser><c:ser><c:cat>{DAYS}</c:cat>"
    f"<c:val>{points('0.25', 'NaN', format='0%')}</c:val></c:ser></c:barChart>"
    f"<c:valAx>{title('Tons')}</c:valAx></c:plotArea></c:chart></c:chartSpace>"
)
TABLE = (
    "Pears sold; Tons\n\n|  | Bosc | 2 |\n| --- | --- | --- |\n| 2024-01-01 | 4.5 | 25% |\n"
    "| 2024-01-02 | 7 | NaN |"
)


def point(id: str, words: str = "", kind: str = "") -> str:
    kind = f' type="{kind}"' if kind else ""
    said = f"<dgm:t><a:p><a:r><a:t>{words}</a:t></a:r></a:p></dgm:t>" if words else ""
    return f'<dgm:pt modelId="{id}"{kind}>{said}</dgm:pt>'


def link(source: str, target: str, at: int, kind: str = "") -> str:
    kind = f' type="{kind}"' if kind else ""
    return f'<dgm:cxn modelId="x" srcId="{source}" destId="{target}" srcOrd="{at}"{kind}/>'


DIAGRAM = (
    f"<dgm:dataModel {SPACES}><dgm:ptLst>{point('0', kind='doc')}{point('3', 'grower')}"
    f"{point('1', 'owner')}{point('2', 'buyer')}{point('4', 'alone')}{point('5', 'pres', 'pres')}"
    f"{point('6', 'each week', 'sibTrans')}</dgm:ptLst><dgm:cxnLst>{link('0', '1', 0)}"
    f"{link('1', '2', 1)}{link('1', '3', 0)}{link('2', '1', 0)}{link('5', '4', 0, 'presOf')}"
    "</dgm:cxnLst></dgm:dataModel>"
)
TREE = "- owner\n  - grower\n  - buyer\n- alone\n- each week"
FRAMES = (
    f'<a:graphic {SPACES}><a:graphicData><c:chart r:id="rId7"/></a:graphicData></a:graphic>'
    f'<a:graphic {SPACES}><a:graphicData><dgm:relIds r:dm="rId8" r:lo="rId7"/></a:graphicData>'
    "</a:graphic>"
)
DRAWN = {
    "rId7": ("chart", "charts/chart1.xml", CHART),
    "rId8": ("diagramData", "diagrams/data1.xml", DIAGRAM),
}


def having(data: bytes, part: str, parts: Mapping[str, tuple[str, str, str]]) -> bytes:
    """With further parts, by the ids of their relations to one of it: kind, name and content."""
    folder, name = posixpath.split(part)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        whole = {name: archive.read(name) for name in archive.namelist()}
    relations = f"{folder}/_rels/{name}.rels"
    listed = whole.get(relations, b"<Relationships></Relationships>").decode()
    for id, (kind, target, content) in parts.items():
        added = f'<Relationship Id="{id}" Type="{KIND}/{kind}" Target="{target}"/>'
        listed = listed.replace("</Relationships>", f"{added}</Relationships>")
        whole[posixpath.normpath(f"{folder}/{target}")] = content.encode()
    return office.packed({**whole, relations: listed.encode()})


def test_a_slide_tells_its_charts_diagrams_and_comments(read):
    comments = (
        '<p:cmLst xmlns:p="p"><p:cm><p:text>too few</p:text></p:cm><p:cm><p:text> </p:text></p:cm>'
        "</p:cmLst>"
    )
    frames = f"<p:graphicFrame>{FRAMES}{FRAMES}</p:graphicFrame>"
    data = office.pptx([("Harvest", ["a"])], notes={1: "said"}, extra=frames)
    parts = {**DRAWN, "rId9": ("comments", "../comments/comment1.xml", comments)}

    assert read(having(data, "ppt/slides/slide1.xml", parts), "a.pptx").text == (
        f"## Harvest\n\n- a\n\n{TABLE}\n\n{TREE}\n\nNotes:\n\nsaid\n\nComments:\n\ntoo few"
    )


def test_a_word_file_tells_its_charts_and_diagrams(read):
    def p(inside: str) -> str:
        return f"<w:p><w:r><w:t>before</w:t>{inside}<w:t> after</w:t></w:r></w:p>"

    drawing = f"<w:drawing>{FRAMES}</w:drawing>"
    cell = f"<w:tbl><w:tr><w:tc>{p('')}</w:tc><w:tc>{p(drawing)}</w:tc></w:tr></w:tbl>"

    shown = read(having(office.docx(p(drawing) + p("")), "word/document.xml", DRAWN), "a.docx")
    celled = read(having(office.docx(cell), "word/document.xml", DRAWN), "a.docx")

    assert shown.text == f"before after\n\n{TABLE}\n\n{TREE}\n\nbefore after"
    assert celled.text == (
        "| before after | before after Pears sold; Tons Bosc 2 2024-01-01 4.5 25% 2024-01-02 7 NaN"
        " - owner - grower - buyer - alone - each week |\n| --- | --- |"
    )


@pytest.mark.parametrize("cells", ["<row><c><v>1</v></c></row>", ""])
def test_a_sheet_tells_boxes_titles_of_charts_and_remarks(read, cells: str):
    drawing = (
        f"<xdr:wsDr {SPACES}><xdr:sp><xdr:txBody><a:p><a:r><a:t>read </a:t></a:r><a:r><a:t>me"
        f"</a:t></a:r></a:p></xdr:txBody></xdr:sp>{FRAMES}</xdr:wsDr>"
    )
    comments = (
        '<comments><comment ref="B2"><text><r><t>check </t></r><r><t>this</t></r></text></comment>'
        '<comment ref="C3"><text><t>[Threaded comment] Your version …</t></text></comment>'
        "</comments>"
    )
    thread = (
        '<ThreadedComments><threadedComment ref="C3"><text>why?</text></threadedComment>'
        '<threadedComment ref="C3"><text>so</text></threadedComment></ThreadedComments>'
    )
    data = office.raw_xlsx(f"<worksheet><sheetData>{cells}</sheetData></worksheet>")
    parts = {
        "rId1": ("drawing", "../drawings/drawing1.xml", drawing),
        "rId2": ("comments", "../comments1.xml", comments),
        "rId3": ("threadedComment", "../threadedComments/t1.xml", thread),
    }
    data = having(data, "xl/worksheets/sheet1.xml", parts)
    data = having(data, "xl/drawings/drawing1.xml", DRAWN)

    extracted = read(data, "a.xlsx")

    assert extracted.text.split("\n") == [
        "## S",
        "",
        *(["1"] if cells else []),
        "read me",
        "Pears sold; Tons",
        *TREE.split("\n"),
        "C3: why?",
        "C3: so",
        "B2: check this",
    ]
    assert [place.at for place in extracted.places][-1] == {"sheet": "S"}


def chart_of(read, source: str, **parts: tuple[str, str, str]) -> str:
    """What a slide with that chart tells."""
    slide = office.pptx([("", [])], extra=FRAMES)
    data = having(slide, "ppt/slides/slide1.xml", {"rId7": ("chart", "charts/c.xml", source)})
    return read(having(data, "ppt/slides/charts/c.xml", parts), "a.pptx").text


def test_the_words_of_a_chart_are_whole_and_its_groups_are_named(read):
    label = "<c:dLbls><c:dLbl><c:idx val='1'/><c:tx><c:rich><a:p><a:r><a:t>rec</a:t></a:r><a:r>"
    label += "<a:t>ord</a:t></a:r><a:fld><a:t>[VALUE]</a:t></a:fld></a:p></c:rich></c:tx></c:dLbl>"
    cells = "<c:extLst><c:ext><c:datalabelsRange><c:dlblRangeCache><c:pt idx='0'><c:v>see B2"
    cells += "</c:v></c:pt></c:dlblRangeCache></c:datalabelsRange>"
    groups = ["a", "b", "1.10", "d"], ["x", "", "y", "z"], ["R", "", "", "S"]
    levels = "".join(
        "<c:lvl>"
        + "".join(f"<c:pt idx='{at}'><c:v>{word}</c:v></c:pt>" * bool(word) for at, word in level)
        + "</c:lvl>"
        for level in map(enumerate, groups)
    )
    months = points("1", "2", "3", "43830", format="d.m.yy")
    source = (
        f"<c:chartSpace {SPACES}><c:date1904 val='1'/><c:chart><c:title><c:tx><c:rich><a:p><a:r>"
        "<a:t>Rev</a:t></a:r><a:r><a:t>enue</a:t></a:r></a:p><a:p><a:r><a:t>of 2024</a:t></a:r>"
        f"</a:p></c:rich></c:tx></c:title><c:plotArea><c:lineChart><c:ser>{label}</c:dLbls><c:cat>"
        f"<c:multiLvlStrRef><c:multiLvlStrCache>{levels}</c:multiLvlStrCache></c:multiLvlStrRef>"
        f"</c:cat><c:val>{months}</c:val>{cells}</c:ext></c:extLst></c:ser>"
        "</c:lineChart></c:plotArea></c:chart></c:chartSpace>"
    )
    drawn = "<c:user xmlns:c='c' xmlns:a='a'><a:p><a:r><a:t>drawn</a:t></a:r></a:p></c:user>"

    text = chart_of(read, source, rId1=("chartUserShapes", "../drawings/d.xml", drawn))

    assert text.split("\n") == [
        "Revenue of 2024",
        "",
        "|  | 1 | 1 |",
        "| --- | --- | --- |",
        "| R / x / a | 1904-01-02 | see B2 |",
        "| R / x / b | 1904-01-03 | record |",
        "| R / y / 1.10 | 1904-01-04 |  |",
        "| S / z / d | 2024-01-01 |  |",
        "",
        "drawn",
    ]


def test_charts_of_office_2016_are_told(read):
    def dimension(kind: str, type: str, *texts: str, more: str = "") -> str:
        said = "".join(f"<cx:pt idx='{at}'>{text}</cx:pt>" for at, text in enumerate(texts))
        return f"<cx:{kind} type='{type}'><cx:f>A1</cx:f><cx:lvl {more}>{said}</cx:lvl></cx:{kind}>"

    source = (
        f"<cx:chartSpace xmlns:cx='cx' {SPACES}><cx:chartData><cx:data id='0'>"
        + dimension("strDim", "cat", "007", "Costs")
        + dimension("strDim", "entityId", "none", "sees")
        + dimension("numDim", "val", "0.5", "-0.25", more="formatCode='0%'")
        + "</cx:data></cx:chartData><cx:chart><cx:title><cx:tx><cx:txData><cx:v>Water</cx:v>"
        "</cx:txData></cx:tx><cx:txPr><a:p><a:r><a:t>Water</a:t></a:r></a:p></cx:txPr></cx:title>"
        "<cx:plotArea><cx:plotAreaRegion><cx:series><cx:tx><cx:txData><cx:f>B1</cx:f><cx:v>Cash"
        "</cx:v></cx:txData></cx:tx><cx:dataId val='0'/></cx:series></cx:plotAreaRegion><cx:axis>"
        f"{title('Quarters')}</cx:axis></cx:plotArea></cx:chart></cx:chartSpace>"
    )
    drawing = FRAMES.replace("c:chart", "cx:chart xmlns:cx='cx'")
    slide = office.pptx([("", [])], extra=drawing)
    parts = {"rId7": ("chartEx", "charts/c.xml", source)}
    run = f"<w:p><w:r><w:t>a</w:t><w:drawing>{drawing}</w:drawing></w:r></w:p>"
    table = "Water; Quarters\n\n|  | Cash |\n| --- | --- |\n| 007 | 50% |\n| Costs | -25% |"

    assert read(having(slide, "ppt/slides/slide1.xml", parts), "a.pptx").text == table
    assert (
        read(having(office.docx(run), "word/document.xml", parts), "a.docx").text == f"a\n\n{table}"
    )


def test_a_chart_that_was_deleted_is_not_told(read):
    drawing = f"<w:r><w:drawing>{FRAMES}</w:drawing></w:r>"
    body = f"<w:p><w:r><w:t>a</w:t></w:r><w:del>{drawing}</w:del></w:p>"

    assert read(having(office.docx(body), "word/document.xml", DRAWN), "a.docx").text == "a"


def test_what_older_programs_are_told_instead_is_not_said(read):
    def box(words: str) -> str:
        return f"<xdr:sp><xdr:txBody><a:p><a:r><a:t>{words}</a:t></a:r></a:p></xdr:txBody></xdr:sp>"

    drawing = (
        f"<xdr:wsDr xmlns:mc='mc' {SPACES}><mc:AlternateContent><mc:Choice>{box('new')}</mc:Choice>"
        f"<mc:Fallback>{box('not available')}</mc:Fallback></mc:AlternateContent></xdr:wsDr>"
    )
    thread = (
        "<ThreadedComments><threadedComment ref='C3'><text>wieso?</text></threadedComment>"
        "</ThreadedComments>"
    )
    comments = (
        "<comments><comment ref='C3'><text><t>[Kommentarthread] wieso?</t></text></comment>"
        "<comment ref='C4'><text><t>[Threaded comment] alone</t></text></comment></comments>"
    )
    parts = {
        "rId1": ("drawing", "../drawings/drawing1.xml", drawing),
        "rId2": ("comments", "../comments1.xml", comments),
        "rId3": ("threadedComment", "../threadedComments/t1.xml", thread),
    }
    data = office.raw_xlsx("<worksheet><sheetData/></worksheet>")

    text = read(having(data, "xl/worksheets/sheet1.xml", parts), "a.xlsx").text

    assert text == "## S\n\nnew\nC3: wieso?\nC4: [Threaded comment] alone"


def test_answers_stand_behind_the_remark_that_they_answer(read):
    def said(words: str) -> str:
        return f"<p188:txBody><a:p><a:r><a:t>{words}</a:t></a:r></a:p></p188:txBody>"

    comments = (
        f"<p188:cmLst xmlns:p188='p' {SPACES}><p188:cm><p188:replyLst><p188:reply>{said('yes')}"
        f"</p188:reply></p188:replyLst>{said('ready?')}</p188:cm><p188:cm>{said('next')}</p188:cm>"
        "</p188:cmLst>"
    )
    parts = {"rId9": ("comments", "../comments/modernComment_1.xml", comments)}

    text = read(having(office.pptx([("", ["a"])]), "ppt/slides/slide1.xml", parts), "a.pptx").text

    assert text == "- a\n\nComments:\n\nready?\n\nyes\n\nnext"


def test_what_is_damaged_costs_no_word_of_the_rest(read):
    broken = {id: (kind, name, text[:-20]) for id, (kind, name, text) in DRAWN.items()}
    remarks = {"rId9": ("comments", "../comments1.xml", "<comments><comment ref='B2'>")}
    sheet = office.raw_xlsx("<worksheet><row><c><v>1</v></c></row></worksheet>")
    drawing = {"rId1": ("drawing", "../drawings/drawing1.xml", f"<xdr:wsDr {SPACES}>")}
    run = f"<w:p><w:r><w:t>a</w:t><w:drawing>{FRAMES}</w:drawing></w:r></w:p>"
    files = {
        "a.pptx": having(
            office.pptx([("a", [])], extra=FRAMES), "ppt/slides/slide1.xml", broken | remarks
        ),
        "a.docx": having(office.docx(run), "word/document.xml", broken),
        "a.xlsx": having(sheet, "xl/worksheets/sheet1.xml", drawing | remarks),
    }

    assert [read(data, name).text for name, data in files.items()] == ["## a", "a", "## S\n\n1"]


@pytest.mark.parametrize("part", ["word/document2.xml", "main.xml"])
def test_the_main_part_may_have_another_name(read, part: str):
    with zipfile.ZipFile(io.BytesIO(office.docx("<w:p><w:r><w:t>a</w:t></w:r></w:p>"))) as archive:
        whole = {name: archive.read(name) for name in archive.namelist()}
    folder, name = posixpath.split(part)
    whole[part] = whole.pop("word/document.xml")
    whole[posixpath.join(folder, "_rels", f"{name}.rels")] = whole.pop(
        "word/_rels/document.xml.rels"
    )
    whole["_rels/.rels"] = whole["_rels/.rels"].replace(b"word/document.xml", part.encode())

    assert read(office.packed(whole), "a.docx").text == "a"


def test_names_may_have_other_prefixes(read):
    """As Python's ElementTree writes them."""
    body = (
        '<w:p><w:pPr><w:pStyle w:val="Heading2"/></w:pPr><w:r><w:t>Head w:p</w:t></w:r></w:p>'
        '<w:p><w:hyperlink r:id="rId7"><w:r><w:t>it</w:t></w:r></w:hyperlink></w:p>'
    )
    styles = (
        '<w:styles><w:style w:type="paragraph" w:styleId="Heading2"><w:name w:val="heading 2"/>'
        "</w:style></w:styles>"
    )
    with zipfile.ZipFile(io.BytesIO(office.docx(body, {"styles.xml": ("styles", styles)}))) as old:
        whole = {name: old.read(name) for name in old.namelist()}
    relations = whole["word/_rels/document.xml.rels"].decode()
    link = f'<Relationship Id="rId7" Type="{KIND}/hyperlink" Target="http://a.test" TargetMode='
    whole["word/_rels/document.xml.rels"] = relations.replace(
        "</R", f'{link}"External"/></R'
    ).encode()
    for name in ("word/document.xml", "word/styles.xml"):
        tree = ElementTree.fromstring(whole[name])
        whole[name] = ElementTree.tostring(tree)
        assert b"<ns0:" in whole[name]

    assert read(office.packed(whole), "a.docx").text == "## Head w:p\n\n[it](http://a.test)"


def test_a_drop_cap_begins_its_word(read):
    def p(words: str, drop: str = "", more: str = "") -> str:
        frame = f'<w:framePr w:dropCap="{drop}" w:lines="3"/>' if drop else ""
        return f"<w:p><w:pPr>{frame}{more}</w:pPr><w:r><w:t>{words}</w:t></w:r></w:p>"

    body = (
        p("O", "drop") + p("nce", more='<w:jc w:val="left"/>') + p("x", "none") + p("T", "margin")
        + "<w:p><w:r><w:t>wice</w:t></w:r></w:p>" + p("A", "drop") + p("B", "drop") + p("c")
        + p("Z", "drop")
    )  # fmt: skip

    text = read(office.docx(body), "a.docx").text

    assert text.split("\n\n") == ["Once", "x", "Twice", "AB", "c", "Z"]


def test_what_is_nested_deeply_or_has_many_roots_takes_no_time():
    title = "<c:chart>" + "<c:title>" * 30_000 + "<a:t>a</a:t>" * 9_000 + "</c:title>" * 30_000
    parts = {
        "rId7": ("chart", "c.xml", f"<c:chartSpace {SPACES}>{title}</c:chart></c:chartSpace>"),
        "rId8": (
            "diagramData",
            "d.xml",
            f"<dgm:dataModel {SPACES}>"
            + "".join(point(f"{at}", kind="doc") for at in range(30_000))
            + "</dgm:dataModel>",
        ),
    }
    data = having(office.pptx([("a", [])]), "ppt/slides/slide1.xml", parts)
    drawings = _drawn.Drawings(_zip.Package(data), "ppt/slides/slide1.xml", xlsx.shown)
    before = time.process_time()

    assert [drawings.blocks("rId7"), drawings.blocks("rId8")] == [[], []]
    assert time.process_time() - before < 2
