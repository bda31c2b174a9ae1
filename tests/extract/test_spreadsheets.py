"""XLSX, XLS and ODS: every row can stand alone, and nothing is computed."""

import re
import zipfile
from datetime import date, datetime, time, timedelta
from io import BytesIO

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openpyxl.utils.datetime import CALENDAR_MAC_1904

from recollect.errors import Permanent
from recollect.extract import _ole
from recollect.extract.office import xls, xlsx
from recollect.model import Blob, Place
from tests.extract import office, samples

ORCHARD = {
    "Q1": [["Fruit", "Price", "Note"], ["Äpfel", 1.2, None], [], ["Birnen", 3, "süß"]],
    "Q2": [["Harvest of the year"], [], ["Fruit", "Tons"], ["Plums", 7], ["total", None]],
}
TEXT = (
    "## Q1\n\nFruit: Äpfel; Price: 1.2\nFruit: Birnen; Price: 3; Note: süß\n\n"
    "## Q2\n\nHarvest of the year\nFruit: Plums; Tons: 7\nFruit: total"
)
MAKERS = {"xlsx": office.xlsx, "xls": office.xls, "ods": office.ods}


@pytest.fixture(params=MAKERS)
def ending(request):
    return request.param


def test_each_sheet_is_a_heading_and_each_row_names_its_columns(read, ending):
    extracted = read(MAKERS[ending](ORCHARD), f"orchard.{ending}")

    assert extracted.text == TEXT
    assert extracted.kind == "text"
    assert list(extracted.warnings) == []


def test_each_row_has_its_place(read, ending):
    extracted = read(MAKERS[ending](ORCHARD), f"orchard.{ending}")
    lines = {
        (place.at["sheet"], place.at.get("row")): extracted.text[place.start :].splitlines()[0]
        for place in extracted.places
    }

    assert extracted.places[0] == Place(0, {"sheet": "Q1"})
    assert lines[("Q1", 4)] == "Fruit: Birnen; Price: 3; Note: süß"
    assert lines[("Q2", 1)] == "Harvest of the year"
    assert lines[("Q2", 4)] == "Fruit: Plums; Tons: 7"


def test_the_bytes_tell_a_spreadsheet_without_a_name(read, ending):
    assert read(MAKERS[ending](ORCHARD)).text == TEXT


def test_hidden_sheets_are_named_in_a_warning(read):
    def hide(book):
        book["Q2"].sheet_state = "veryHidden"

    for data in (
        office.xlsx(ORCHARD, hide),
        office.xls(ORCHARD, hidden=["Q2"]),
        office.ods(ORCHARD, hidden=["Q2"]),
    ):
        (warning,) = read(data).warnings

        assert warning == 'The sheet "Q2" is hidden in the file; its rows were read as well.'


def test_formulas_give_their_saved_value_else_their_words(read):
    table = {"S": [["a", "b"], ["x", "=1+1"]]}
    cached = '<sheetData><row r="1"><c r="A1"><f>6*7</f><v>42</v></c></row></sheetData>'
    saved = office.xls({"S": [["a", "b"], [office.Formula(0.1 + 0.2), office.Formula("yes")]]})

    assert read(office.xlsx(table)).text.endswith("a: x; b: =1+1")
    assert read(office.ods(table)).text.endswith("a: x; b: =1+1")
    assert read(office.raw_xlsx(f"<worksheet>{cached}</worksheet>")).text.endswith("42")
    assert read(saved).text.endswith("a: 0.3; b: yes")


def test_dates_times_percentages_and_truths_read_as_they_are_shown(read):
    def fill(book):
        sheet = book["S"]
        sheet.append([date(2024, 2, 5), datetime.fromisoformat("2024-02-05T06:07:08")])
        sheet["C2"], sheet["D2"], sheet["E2"] = time(6, 15), 0.125, True
        sheet["D2"].number_format = "0.0%"
        sheet["A3"], sheet["A3"].number_format = 45000, '[$-407]d. mmm "im Jahr" yyyy'
        sheet["B3"], sheet["B3"].number_format = 45000, '0.00 "days"'

    header = [["day", "moment", "hour", "share", "ok"]]
    text = read(office.xlsx({"S": header}, fill)).text

    assert text.splitlines()[2:] == [
        "day: 2024-02-05; moment: 2024-02-05 06:07:08; hour: 06:15; share: 12.5%; ok: TRUE",
        "day: 2023-03-15; moment: 45000",
    ]


def test_hours_beyond_a_day_read_as_they_are_shown(read):
    def fill(book):
        row = [1.5625, timedelta(hours=30, seconds=5), -0.25, 1.5625]
        formats = ["[h]:mm", "[hh]:mm:ss", "[h]:mm", "[mm]:ss"]
        book["S"].append(row)
        for column, format in enumerate(formats, 1):
            book["S"].cell(2, column).number_format = format

    text = read(office.xlsx({"S": [["week", "more", "less", "film"]]}, fill)).text

    assert text.splitlines()[2] == "week: 37:30; more: 30:00:05; less: -6:00; film: 2250:00"


@pytest.mark.parametrize(
    ("number", "format", "shown"),
    [
        (1, "yyyy-mm-dd", "1900-01-01"), (59.5, "yyyy-mm-dd", "1900-02-28 12:00:00"),
        (60, "yyyy-mm-dd", "1900-02-29"), (61, "yyyy-mm-dd", "1900-03-01"),
        (1.25, "h:mm", "06:00"), (2, "hh:mm:ss AM/PM", "00:00"),
        (45000.25, "h:mm", "2023-03-15 06:00:00"),
        (0.00123456, "mm:ss.0", "00:01:46.7"), (0.00123456, "[mm]:ss.00", "1:46.67"),
        (45000.00123456, "yyyy-mm-dd hh:mm:ss.0", "2023-03-15 00:01:46.7"),
        (0.5, "mm:ss.0", "12:00"), (1.5, "[h]:mm:ss.000", "36:00"),
        (0, "h:mm", "00:00"), (3e9, "yyyy-mm-dd", "3000000000"),
        (1e307, "hh:mm:ss.000", "1e+307"), (4e6, "h:mm", "4000000"),
    ],
)  # fmt: skip
def test_early_dates_and_times_of_day_read_as_excel_shows_them(read, number, format, shown):
    def fill(book):
        book["S"].append([number])
        book["S"]["A2"].number_format = format

    assert read(office.xlsx({"S": [["when"]]}, fill)).text == f"## S\n\nwhen: {shown}"


def test_a_book_that_counts_from_1904_has_its_first_day(read):
    def fill(book):
        book.epoch = CALENDAR_MAC_1904
        book["S"].append([date(1904, 1, 1), time(6, 15)])

    assert read(office.xlsx({"S": [["day", "at"]]}, fill)).text.endswith(
        "day: 1904-01-01; at: 06:15"
    )


@pytest.mark.parametrize("value", ["NaN", "INF", "-Infinity", "1e999"])
def test_a_cell_with_no_number_in_it_does_not_lose_the_others(read, value):
    rows = f"<row><c><v>{value}</v></c><c><v>2</v></c></row>"
    sheet = f"<worksheet><sheetData>{rows}</sheetData></worksheet>"

    assert read(office.raw_xlsx(sheet)).text == f"## S\n\ncolumn 1: {value}; column 2: 2"


def test_an_old_file_knows_the_same_formats(read):
    row = [
        (45000, office.DATE), (45000.25, office.CUSTOM), (0.25, office.PERCENT), True,
        12345678901234567, -3,
    ]  # fmt: skip
    text = read(office.xls({"S": [["a", "b", "c", "d", "e", "f"], row]})).text

    assert text.splitlines()[2] == (
        "a: 2023-03-15; b: 2023-03-15 06:00:00; c: 25%; d: TRUE; e: 1.23456789012346e+16; f: -3"
    )


@settings(deadline=None, max_examples=30)
@given(st.integers(20, 28) | st.integers(33, 60), st.sampled_from(["abcdefghij", "äöüßÄÖÜabc"]))
def test_texts_that_go_on_in_another_record_are_whole(cut, words):
    # Where the letters of the third and of the fourth text are.
    data = office.xls({"S": [["a", "b"], [words, words * 3]]}, cut=cut)

    assert f"a: {words}; b: {words * 3}" in xls.extract(Blob(data)).text


def test_shared_texts_are_read_without_their_reading_aids(read):
    strings = (
        "<sst><si><t>豊田</t><rPh><t>とよた</t></rPh></si>"
        "<si><r><t>rich </t></r><r><t>text</t></r></si></sst>"
    )
    cells = '<c t="s"><v>0</v></c><c t="s"><v>1</v></c><c t="s"><v>99</v></c>'
    sheet = f"<worksheet><sheetData><row>{cells}</row></sheetData></worksheet>"

    assert read(office.raw_xlsx(sheet, strings)).text.endswith(
        "column 1: 豊田; column 2: rich text"
    )


def test_texts_within_a_cell_are_read_without_their_reading_aids(read):
    cell = '<c t="inlineStr"><is><t>豊田</t><rPh><t>とよた</t></rPh><r><t>市</t></r></is></c>'
    sheet = f"<worksheet><sheetData><row>{cell}</row></sheetData></worksheet>"

    assert read(office.raw_xlsx(sheet)).text == "## S\n\n豊田市"


def test_dates_of_a_strict_file_read_as_those_of_others(read):
    values = ["2024-02-05", "2024-02-05T00:00:00.000", "2024-02-05T09:30:00.000"]
    row = "".join(f'<c t="d"><v>{value}</v></c>' for value in values)
    sheet = f"<worksheet><sheetData><row>{row}</row></sheetData></worksheet>"

    assert read(office.raw_xlsx(sheet)).text.endswith(
        "column 1: 2024-02-05; column 2: 2024-02-05; column 3: 2024-02-05 09:30:00"
    )


def test_characters_that_xml_does_not_have_are_themselves(read):
    data = office.xlsx({"S": [["Note", "Plain"], ["one_x000D_\ntwo_x0041_", "_x_ x000D_"]]})

    assert read(data, "a.xlsx").text.endswith("Note: one twoA; Plain: _x_ x000D_")


def test_what_an_old_file_holds_beyond_cells_is_skipped(read):
    assert read(office.xls({"S": [], "T": [["only"]]})).text == "## T\n\nonly"


def test_the_title_of_the_properties_is_the_title(read):
    def titled(book):
        book.properties.title = "Harvest plan"

    sheet = office.odf("spreadsheet", "", title="Harvest plan")

    assert read(office.xlsx(ORCHARD, titled)).title == "Harvest plan"
    assert read(sheet).title == "Harvest plan"


def test_repeated_cells_and_rows_are_counted_but_no_more_than_they_say(read):
    rows = (
        '<table:table table:name="R"><table:table-row table:number-rows-repeated="1048570">'
        '<table:table-cell table:number-columns-repeated="16384"/></table:table-row>'
        '<table:table-row><table:table-cell table:number-columns-repeated="2"><text:p>x</text:p>'
        "<office:annotation><text:p>a note</text:p></office:annotation>"
        "</table:table-cell></table:table-row></table:table>"
    )
    extracted = read(office.ods({}, extra=rows))

    assert extracted.text == "## R\n\ncolumn 1: x; column 2: x\nA1048571: a note"
    assert dict(extracted.places[-2].at) == {"sheet": "R", "row": 1048571}


def test_a_sheet_that_says_it_is_huge_is_read_for_what_it_holds(read):
    sheet = (
        '<worksheet><dimension ref="A1:XFD1048576"/><sheetData><row r="1048576">'
        '<c r="XFD1048576"><v>7</v></c></row></sheetData></worksheet>'
    )
    extracted = read(office.raw_xlsx(sheet))

    assert extracted.text == "## S\n\n7"
    assert dict(extracted.places[1].at) == {"sheet": "S", "row": 1048576}


@pytest.mark.parametrize("ending", ["xlsx", "ods"])
def test_twenty_million_rows_in_a_small_file_are_refused(read, ending):
    if ending == "xlsx":
        rows = b"<row/>" * 20_000_000
        data = office.raw_xlsx(b"<worksheet><sheetData>" + rows + b"</sheetData></worksheet>")
    else:
        data = office.ods({}, extra="<table:table-row/>" * 7_000_000)
    with pytest.raises(Permanent) as caught:
        read(data, f"bomb.{ending}")

    assert caught.value.code == "too_large"


@pytest.mark.slow
def test_more_than_a_million_cells_are_cut_with_a_warning(read):
    # Numbers that do not repeat, so that it is no bomb.
    rows = "".join(
        f'<row r="{n + 1}"><c><v>{n * n % 999_983}</v></c><c><v>{n * 7919 % 999_979}</v></c></row>'
        for n in range(600_000)
    )
    data = office.raw_xlsx(f"<worksheet><sheetData>{rows}</sheetData></worksheet>")
    extracted = read(data, "large.xlsx")

    assert len(extracted.places) == 500_001
    assert "first 1,000,000 cells" in extracted.warnings[0]


def test_repeated_rows_of_data_end_at_the_limit(read):
    row = (
        '<table:table-row table:number-rows-repeated="1048576"><table:table-cell '
        'table:number-columns-repeated="1000"><text:p>bomb</text:p></table:table-cell>'
        "</table:table-row>"
    )
    extracted = read(office.ods({}, extra=f'<table:table table:name="R">{row * 50}</table:table>'))

    assert "first 1,000,000 cells" in extracted.warnings[0]
    assert len(extracted.text) < 20_000_000


@pytest.mark.parametrize("ending", ["xlsx", "xls", "ods"])
def test_a_password_is_said_to_be_the_reason(read, ending):
    data = {
        "xlsx": office.ole({"EncryptedPackage": b"x" * 5000, "EncryptionInfo": b"y" * 5000}),
        "xls": office.xls(ORCHARD, password=True),
        "ods": office.odf("spreadsheet", "", manifest="<encryption-data/>"),
    }[ending]
    for name in (f"a.{ending}", None):
        with pytest.raises(Permanent, match="password") as caught:
            read(data, name)

        assert caught.value.code == "encrypted_file"


@pytest.mark.parametrize("part", [0.3, 0.6, 0.95])
def test_a_cut_file_is_refused_or_read_in_part(read, ending, part):
    data = MAKERS[ending](ORCHARD)
    try:
        text = read(data[: int(len(data) * part)], f"a.{ending}").text
    except Permanent as error:
        text = error.code
    assert text == "unreadable_content" or "Q1" in text


@pytest.mark.parametrize("part", ["xl/sharedStrings.xml", "xl/workbook.xml", "_rels/.rels"])
@pytest.mark.parametrize(
    "entity", ['<!ENTITY a "haha">', '<!ENTITY a SYSTEM "file:///etc/passwd">']
)
def test_entities_are_refused(read, part, entity):
    def poison(name: str, body: bytes) -> tuple[str, bytes]:
        start = body.find(b"?>") + 2 if body.startswith(b"<?xml") else 0
        return name, (
            body[:start] + f"<!DOCTYPE x [{entity}]>".encode() + body[start:]
            if name == part
            else body
        )

    with pytest.raises(Permanent, match="entities") as caught:
        read(samples.repacked(office.raw_xlsx("<worksheet/>"), poison), "a.xlsx")

    assert caught.value.code == "unreadable_content"


def test_a_part_whose_path_leads_out_is_refused(read):
    def escape(name: str, body: bytes) -> tuple[str, bytes]:
        return ("../../etc/x", body) if name == "docProps/core.xml" else (name, body)

    with pytest.raises(Permanent, match="leads out"):
        read(samples.repacked(office.xlsx(ORCHARD), escape), "a.xlsx")


def test_the_bytes_count_more_than_a_wrong_ending(read):
    assert read(office.xlsx(ORCHARD), "a.docx").text == TEXT
    assert read(office.xls(ORCHARD), "a.doc").text == TEXT
    assert read("a,b\n1,2\n", "a.xlsx").text == "a,b\n1,2"


def test_macros_are_left_alone(read):
    def add_macro(name: str, body: bytes) -> tuple[str, bytes]:
        return ("xl/vbaProject.bin", b"AutoOpen") if name == "docProps/app.xml" else (name, body)

    assert read(samples.repacked(office.xlsx(ORCHARD), add_macro), "a.xlsm").text == TEXT


@given(st.binary(max_size=200), st.integers(0, 8000))
@settings(deadline=None, max_examples=200)
def test_a_damaged_old_file_is_read_or_refused(noise, at):
    good = bytearray(office.xls(ORCHARD))
    at %= len(good)
    good[at : at + len(noise)] = noise
    try:
        xls.extract(Blob(bytes(good)))
    except Permanent:
        return


@given(st.binary(max_size=600))
def test_any_bytes_behind_the_mark_are_no_ole_file_or_one(noise):
    try:
        _ole.Streams(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + noise)
    except Permanent:
        return


def test_an_ole_chain_that_loops_ends():
    data = bytearray(office.ole({"Workbook": b"x" * 5000}))
    fat = 512
    # The first data sector follows itself.
    first = 2
    data[fat + 4 * first : fat + 4 * first + 4] = first.to_bytes(4, "little")
    with pytest.raises(Permanent, match="no end"):
        _ole.Streams(bytes(data)).read("Workbook")


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("yyyy-mm-dd", "date"), ("[h]:mm:ss", "hours"), ("d/m/yy h:mm AM/PM", "date"),
        ("h:mm", "time"), ("[$-F400]h:mm:ss AM/PM", "time"), ("mm:ss.0", "time."),
        ("hh:mm:ss.000", "time..."), ("[ss].00", "seconds.."), ("mmm h", "date"),
        ("mm", "date"), ("[mm]:ss", "minutes"), ("[ss]", "seconds"), ("0.00;[Magenta]-0.00", None),
        ("0%", "percent"), ("0.00%;[Red]-0.00%", "percent"),
        ("General", None), ('0.00 "days"', None), ("#,##0.00_);[Red](#,##0.00)", None),
        ("00000", "00000"), (r"000\-00\-0000", "000-00-0000"), ('"No. "00;[Red]-00', "No. 00"),
        ("00.00", None), ("0 000", "0 000"),
        ("[$€-407] #,##0", None), (r"0\d", None), ("@", None), ("", None),
    ],
)  # fmt: skip
def test_a_number_format_tells_dates_from_numbers(code, kind):
    assert xlsx.format_of(code) == kind


def test_numbers_keep_the_zeros_that_lead_in_their_format(read):
    def fill(book):
        shown = {
            "00000": 1067, r"000\-00\-0000": 78051120, r"\+00\ 000": 1234567,
            "000": -7, "0000": 1.5, "00": 1e17, "00/00": 2, "0" * 256: 3,
        }  # fmt: skip
        book["S"].append(list(shown.values()))
        for column, format in enumerate(shown, 1):
            book["S"].cell(2, column).number_format = format

    text = read(
        office.xlsx({"S": [["zip", "ssn", "tel", "less", "part", "huge", "of", "long"]]}, fill)
    ).text

    assert text.splitlines()[2] == (
        "zip: 01067; ssn: 078-05-1120; tel: +1234 567; less: -7; part: 1.5; huge: 1e+17; "
        "of: 2; long: 3"
    )


def test_a_lying_zip_harms_nothing(read):
    rows = b"<row/>" * 3_000_000
    body = b"<worksheet><sheetData>" + rows + b"</sheetData></worksheet>"
    data = bytearray(office.raw_xlsx(body))
    size = len(body).to_bytes(4, "little")
    while (at := data.find(size)) >= 0:
        data[at : at + 4] = (1000).to_bytes(4, "little")
    with pytest.raises(Permanent) as caught:
        read(bytes(data), "a.xlsx")

    assert caught.value.code == "unreadable_content"


@pytest.mark.parametrize("prefix", ["office", "o"])
def test_cells_of_an_ods_are_known_by_what_their_prefixes_stand_for(read, prefix):
    cells = (
        '<table:table-cell office:value-type="string" calcext:value-type="string"><text:p>Due'
        '</text:p></table:table-cell><table:table-cell office:value-type="string"><text:p>Sum'
        "</text:p></table:table-cell>",
        '<table:table-cell office:value-type="date" calcext:value-type="date" office:date-value='
        '"2026-03-01"><text:p>01.03.</text:p></table:table-cell><table:table-cell '
        'office:value-type="float" office:value="7"/>',
    )
    rows = "".join(f"<table:table-row>{row}</table:table-row>" for row in cells)
    data = office.ods({}, extra=f'<table:table table:name="S">{rows}</table:table>')
    usual = zipfile.ZipFile(BytesIO(data))
    content = re.sub(r"\boffice(?=:[a-z-]+[= >])", prefix, usual.read("content.xml").decode())
    content = content.replace("xmlns:office=", f'xmlns:calcext="urn:calcext" xmlns:{prefix}=')
    parts = {name: usual.read(name) for name in usual.namelist()}

    extracted = read(office.packed({**parts, "content.xml": content}), "a.ods")

    assert extracted.text == "## S\n\nDue: 2026-03-01; Sum: 7"


def test_a_cell_of_an_ods_without_text_gives_the_value_that_it_has(read):
    cells = "".join(
        f'<table:table-cell office:value-type="{kind}" {name}="{value}"/>'
        for kind, name, value in (
            ("boolean", "office:boolean-value", "true"),
            ("string", "office:string-value", "pear"),
            ("time", "office:time-value", "PT11H12M00S"),
            ("float", "office:value", "3.5"),
        )
    )
    sheet = f'<table:table table:name="S"><table:table-row>{cells}</table:table-row></table:table>'

    found = read(office.odf("spreadsheet", sheet), "a.ods").text

    assert all(value in found for value in ("true", "pear", "PT11H12M00S", "3.5"))


def _in_xml(sheets: str, styles: str = "", *, prefix: str = "") -> bytes:
    """A workbook as Excel 2003 writes it, or as others do, with a `prefix` for its elements."""
    spaces = f'xmlns{prefix and ":" + prefix[:-1]}="urn:schemas-microsoft-com:office:spreadsheet"'
    body = f"<Styles>{styles}</Styles>{sheets}"
    body = re.sub(r"<(/?)(?=\w)", rf"<\1{prefix}", body)
    return (
        '<?xml version="1.0"?>\n<?mso-application progid="Excel.Sheet"?>\n<!-- made by hand -->\n'
        f'<{prefix}Workbook {spaces} xmlns:ss="urn:schemas-microsoft-com:office:spreadsheet">'
        '<DocumentProperties xmlns="urn:schemas-microsoft-com:office:office">'
        f"<Title>Our year</Title></DocumentProperties>{body}</{prefix}Workbook>"
    ).encode()


_FRUITS = (
    '<Worksheet ss:Name="Fruits"><Table>'
    '<Row><Cell><Data ss:Type="String">Fruit</Data></Cell>'
    '<Cell><Data ss:Type="String">Picked</Data></Cell>'
    '<Cell><Data ss:Type="String">Share</Data></Cell>'
    '<Cell><Data ss:Type="String">Ripe</Data></Cell></Row>'
    '<Row ss:Index="4"><Cell><Data ss:Type="String">quince<I> late</I></Data>'
    '<Comment ss:Author="Ann"><Data>mind the frost</Data></Comment></Cell>'
    '<Cell><Data ss:Type="DateTime">2024-02-05T00:00:00.000</Data></Cell>'
    '<Cell ss:StyleID="p"><Data ss:Type="Number">0.25</Data></Cell>'
    '<Cell><Data ss:Type="Boolean">1</Data></Cell></Row>'
    '<Row ss:Span="1"><Cell ss:MergeAcross="1"><Data ss:Type="String">pear</Data></Cell>'
    '<Cell><Data ss:Type="Number">12345678901234567890</Data></Cell></Row>'
    '<Row><Cell ss:Index="4"><Data ss:Type="Error">#N/A</Data></Cell></Row></Table></Worksheet>'
)
_HIDDEN_ONE = (
    '<Worksheet ss:Name="Old"><Table><Row><Cell><Data ss:Type="String">plum</Data></Cell></Row>'
    "</Table><WorksheetOptions><Visible>SheetHidden</Visible></WorksheetOptions></Worksheet>"
)


@pytest.mark.parametrize("name", ["a.xls", "a.xml", "a.xlsx", None])
@pytest.mark.parametrize("prefix", ["", "x:"])
def test_a_workbook_in_xml_is_read_as_any_other(read, name, prefix):
    percent = '<Style ss:ID="p"><NumberFormat ss:Format="Percent"/></Style>'

    extracted = read(_in_xml(_FRUITS + _HIDDEN_ONE, percent, prefix=prefix), name)

    assert extracted.text == (
        "## Fruits\n\n"
        "Fruit: quince late; Picked: 2024-02-05; Share: 25%; Ripe: TRUE\n"
        "Fruit: pear; Share: 12345678901234567890\n"
        "Ripe: #N/A\n"
        "mind the frost\n\n"
        "## Old\n\nplum"
    )
    assert [place.at.get("row") for place in extracted.places] == [None, 4, 5, 7, None, None, 1]
    assert extracted.title == "Our year"
    assert [*extracted.warnings] == [
        'The sheet "Old" is hidden in the file; its rows were read as well.'
    ]


@pytest.mark.parametrize("index", ["9" * 30, "-1", "x", "0"])
def test_a_workbook_in_xml_may_count_its_cells_wrongly(read, index):
    row = f'<Row ss:Index="{index}"><Cell ss:Index="{index}"><Data>quince</Data></Cell></Row>'

    text = read(_in_xml(f'<Worksheet ss:Name="S"><Table>{row}</Table></Worksheet>'), "a.xls").text

    assert text == "## S\n\nquince"
