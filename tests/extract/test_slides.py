"""PPTX and ODP: what is on each slide, in the order in which they are shown."""

import io
import zipfile

import pytest

from recollect.errors import Permanent
from tests.extract import office, samples

SLIDES = [("Harvest", ["Äpfel", "Birnen"]), ("Prices", ["up & down"]), ("", ["the end"])]


def test_each_slide_is_a_page_with_its_title_bullets_and_notes(read):
    extracted = read(office.pptx(SLIDES, notes={2: "Mention the frost."}), "talk.pptx")

    assert extracted.text == (
        "## Harvest\n\n- Äpfel\n- Birnen\n\n"
        "## Prices\n\n- up & down\n\nNotes:\n\nMention the frost.\n\n- the end"
    )
    assert extracted.title == "Harvest"
    assert extracted.kind == "text"
    assert [(p.at["page"], extracted.text[p.start :].split("\n")[0]) for p in extracted.places] == [
        (1, "## Harvest"), (2, "## Prices"), (3, "- the end"),
    ]  # fmt: skip


def test_a_presentation_in_one_file_of_xml_is_read_as_that_in_parts(read):
    data = office.pptx(SLIDES, notes={2: "Mention the frost."})

    assert read(office.in_one_xml(data), "a.xml").text == read(data, "a.pptx").text


def test_notes_are_known_by_their_type_however_their_part_is_called(read):
    def renamed(text: str) -> str:
        return text.replace("notesSlides/notesSlide", "said/words")

    types = (
        '<Types><Override PartName="/ppt/said/words2.xml" ContentType="application/'
        'vnd.openxmlformats-officedocument.presentationml.notesSlide+xml"/></Types>'
    )
    usual = zipfile.ZipFile(io.BytesIO(office.pptx(SLIDES, notes={2: "Mention the frost."})))
    parts = {renamed(name): renamed(usual.read(name).decode()) for name in usual.namelist()}

    extracted = read(office.packed({**parts, "[Content_Types].xml": types}), "talk.pptx")

    assert "Notes:\n\nMention the frost." in extracted.text


def test_slides_come_in_the_order_of_the_show_not_of_the_parts(read):
    text = read(office.pptx(SLIDES, order=[3, 1, 2])).text

    assert text.index("the end") < text.index("Harvest") < text.index("Prices")


def test_a_slide_without_text_still_counts_as_a_page(read):
    extracted = read(office.pptx([("One", []), ("", []), ("Three", [])]))

    assert [place.at["page"] for place in extracted.places] == [1, 3]


def test_tables_of_a_slide_become_tables(read):
    rows = [["Fruit", "Price"], ["Öl | Fett", "1,20 €"]]
    table = "".join(
        "<a:tr>" + "".join(f"<a:tc><a:p><a:t>{cell}</a:t></a:p></a:tc>" for cell in row) + "</a:tr>"
        for row in rows
    )
    text = read(office.pptx([("T", [])], extra=f"<a:tbl>{table}</a:tbl>")).text

    assert text.endswith("| Fruit | Price |\n| --- | --- |\n| Öl \\| Fett | 1,20 € |")


def test_what_is_there_twice_for_older_readers_is_read_once(read):
    def box(words: str) -> str:
        return f"<p:sp><a:p><a:t>{words}</a:t></a:p></p:sp>"

    extra = f"<Choice>{box('drawn')}</Choice><Fallback>{box('drawn')}</Fallback>"

    assert read(office.pptx([("T", [])], extra=extra)).text == "## T\n\ndrawn"


def test_hidden_slides_are_named_in_a_warning(read):
    assert list(read(office.pptx(SLIDES, hidden=[2])).warnings) == [
        "Hidden slides were read as well: 2."
    ]


def test_a_password_is_said_to_be_the_reason(read):
    data = office.ole({"EncryptedPackage": b"x" * 5000, "EncryptionInfo": b"y" * 5000})
    with pytest.raises(Permanent, match="password") as caught:
        read(data, "talk.pptx")

    assert caught.value.code == "encrypted_file"


@pytest.mark.parametrize("part", [0.3, 0.6, 0.95])
def test_a_cut_file_is_refused(read, part):
    data = office.pptx(SLIDES)
    with pytest.raises(Permanent) as caught:
        read(data[: int(len(data) * part)], "talk.pptx")

    assert caught.value.code == "unreadable_content"


def test_entities_are_refused(read):
    def poison(name: str, body: bytes) -> tuple[str, bytes]:
        entity = b'<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]>'
        return name, entity + body if name.startswith("ppt/slides/slide") else body

    with pytest.raises(Permanent, match="entities"):
        read(samples.repacked(office.pptx(SLIDES), poison))


def test_a_bomb_is_refused(read):
    def blow_up(name: str, body: bytes) -> tuple[str, bytes]:
        return name, body + b" " * 100_000_000 if name.startswith("ppt/slides/slide") else body

    with pytest.raises(Permanent) as caught:
        read(samples.repacked(office.pptx(SLIDES), blow_up))

    assert caught.value.code == "too_large"


def _frame(kind: str, text: str) -> str:
    box = f"<draw:text-box>{text}</draw:text-box>"
    return f'<draw:frame presentation:class="{kind}">{box}</draw:frame>'


def _p(*lines: str) -> str:
    return "".join(f"<text:p>{line}</text:p>" for line in lines)


def _list(*items: str) -> str:
    inner = "".join(f"<text:list-item>{item}</text:list-item>" for item in items)
    return f"<text:list>{inner}</text:list>"


def _cells(*cells: str) -> str:
    inner = "".join(f"<table:table-cell>{_p(cell)}</table:table-cell>" for cell in cells)
    return f"<table:table-row>{inner}</table:table-row>"


ODP = (
    "<presentation:footer-decl>Every slide</presentation:footer-decl>"
    '<draw:page draw:name="page1">'
    + _frame("title", _p("Har<text:span>vest</text:span>"))
    + _frame("outline", _list(_p("\u00c4pfel"), _p("Birnen") + _list(_p("late<text:s/>ones"))))
    + _frame("footer", _p("Every slide"))
    + "<draw:g><draw:custom-shape>"
    + _p("in a group", "two<text:line-break/>lines")
    + "</draw:custom-shape><draw:frame><draw:image/><svg:desc>a pear</svg:desc>"
    + "</draw:frame></draw:g>"
    + "<office:annotation>" + _p("a comment") + "</office:annotation>"
    + "<presentation:notes><draw:page-thumbnail/>"
    + _frame("notes", _p("Mention the frost.")) + _frame("page-number", _p("1"))
    + "</presentation:notes></draw:page>"
    + '<draw:page draw:style-name="dp2">'
    + _frame("title", _p("Prices"))
    + "<draw:frame><table:table>" + _cells("Fruit", "Price") + _cells("\u00d6l | Fett", "1,20")
    + "</table:table></draw:frame></draw:page><draw:page/>"
    + "<draw:page>" + _frame("subtitle", _p("the end")) + "</draw:page>"
)  # fmt: skip
HIDDEN = (
    '<style:style style:name="dp2" style:family="drawing-page">'
    '<style:drawing-page-properties presentation:visibility="hidden"/></style:style>'
)


@pytest.mark.parametrize("name", ["talk.odp", None])
def test_a_presentation_of_opendocument_is_read_alike(read, name):
    extracted = read(office.odf("presentation", ODP, HIDDEN), name)

    assert extracted.text == (
        "## Harvest\n\n- \u00c4pfel\n- Birnen\n  - late ones\n\nin a group\n\ntwo\nlines\n\n"
        "Notes:\n\nMention the frost.\n\nComments:\n\na comment\n\n"
        "## Prices\n\n| Fruit | Price |\n| --- | --- |\n| \u00d6l \\| Fett | 1,20 |\n\nthe end"
    )
    assert [place.at["page"] for place in extracted.places] == [1, 2, 4]
    assert extracted.title == "Harvest"
    assert list(extracted.warnings) == ["Hidden slides were read as well: 2."]


def test_the_title_of_its_properties_is_that_of_an_opendocument_presentation(read):
    assert read(office.odf("presentation", ODP, title="Our year")).title == "Our year"


@pytest.mark.parametrize("name", ["a.ppt", "a.pptx", "a.docm", "a.xlsx", "a.doc", "a.xls", "a.msg"])
def test_an_old_presentation_is_read_whatever_its_name_says_and_however_it_lists_its_parts(
    read, name: str
):
    """The first bytes tell of no more than three of its streams."""
    data = office.ppt([("Harvest", ["quince"])], others=dict.fromkeys("ABC", b"x"))

    assert "quince" in read(data, name).text


def test_another_file_in_the_container_of_old_office_files_is_none(read):
    """As drawings of Visio are."""
    for name in ("a.docx", "a.xls", "a.pptx"):
        with pytest.raises(Permanent, match=r"old Office|not what it says"):
            read(office.ole(dict.fromkeys("ABCD", b"x")), name)


def test_a_locked_opendocument_presentation_says_so(read):
    with pytest.raises(Permanent) as caught:
        read(office.odf("presentation", ODP, manifest="<encryption-data/>"), "talk.odp")

    assert caught.value.code == "encrypted_file"


def test_numbers_of_a_slide_are_those_that_a_reader_sees(read):
    def p(words: str, level: int = 0, kind: str = "", start: str = "") -> str:
        numbers = f'<a:buAutoNum type="{kind}"{start}/>' if kind else ""
        said = f"<a:r><a:t>{words}</a:t></a:r>" if words else ""
        return f'<a:p><a:pPr lvl="{level}">{numbers}</a:pPr>{said}</a:p>'

    body = (
        p("one", 0, "arabicPeriod") + p("in", 1, "alphaLcParenR") + p("it", 1, "alphaLcParenR")
        + p("", 0, "arabicPeriod") + p("two", 0, "arabicPeriod") + p("new", 1, "alphaLcParenR")
        + p("third", 0, "romanUcParenBoth", ' startAt="3"')
        + p("fourth", 0, "romanUcParenBoth", ' startAt="3"') + p("deep", 2)
        + p("five", 0, "ea1JpnKorPlain") + p("point") + p("again", 0, "arabicPlain")
    )  # fmt: skip
    shape = (
        '<p:sp><p:nvSpPr><p:nvPr><p:ph idx="1"/></p:nvPr></p:nvSpPr><p:txBody>'
        f"{body}</p:txBody></p:sp><p:sp><p:txBody>{p('other', 0, 'arabicPeriod')}</p:txBody></p:sp>"
    )

    assert read(office.pptx([("", [])], extra=shape), "a.pptx").text.split("\n") == [
        *("1. one", "  a) in", "  b) it", "2. two", "  a) new", "(III) third", "(IV) fourth"),
        *("    - deep", "1. five", "- point", "1 again", "", "1. other"),
    ]
