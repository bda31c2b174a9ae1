"""Tables: every line of the text can stand alone."""

import csv
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.extract.office import sheet
from recollect.model import Blob


def test_each_row_names_its_columns(read):
    text = read("Name,City,Age\nAnna,Bonn,31\nBert,,40\n", "a.csv").text

    assert text == "Name: Anna; City: Bonn; Age: 31\nName: Bert; Age: 40"


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_is_found(read, delimiter):
    rows = [["name", "price, net", "note"], ["a", "1,20", "x; y"], ["b", "3,40", "p|q"]]
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter).writerows(rows)

    assert (
        read(out.getvalue(), "a.csv").text.splitlines()[0]
        == "name: a; price, net: 1,20; note: x; y"
    )


def test_the_hint_of_excel_is_obeyed(read):
    assert read("sep=|\r\na,b|c,d\r\n1,2|3,4\r\n", "a.csv").text == "a,b: 1,2; c,d: 3,4"


def test_a_tsv_is_cut_at_tabs_whatever_else_is_in_it(read):
    assert read("a\tb\n1,2,3\t4,5,6\n", "a.tsv").text == "a: 1,2,3; b: 4,5,6"


@pytest.mark.parametrize(
    ("table", "first"),
    [
        ("1,2\n3,4\n", "column 1: 1; column 2: 2"),
        ("Anna,31\nBert,40\n", "column 1: Anna; column 2: 31"),
        ("2024-01-05,open\n2024-01-06,shut\n", "column 1: 2024-01-05; column 2: open"),
        ("a,a\nb,c\n", "column 1: a; column 2: a"),
        ("only,row\n", "column 1: only; column 2: row"),
        ("Land,2023,2024\nItalien,5,6\n", "Land: Italien; 2023: 5; 2024: 6"),
        (",apples,pears\nMay,1,2\n", "column 1: May; apples: 1; pears: 2"),
    ],
)
def test_a_first_row_of_values_is_no_header(read, table, first):
    assert read(table, "a.csv").text.splitlines()[0] == first


def test_quotation_marks_may_have_a_space_ahead(read):
    assert read('a, b, c\n"1, x", "2, y", 3\n', "a.csv").text == "a: 1, x; b: 2, y; c: 3"


def test_a_name_that_columns_share_costs_no_headers(read):
    table = "Day;From;Balance;Currency;Amount;Currency\n5.2.;Ann;10;EUR;5;USD\n"

    assert read(table, "bank.csv").text == (
        "Day: 5.2.; From: Ann; Balance: 10; Currency: EUR; Amount: 5; Currency: USD"
    )


def test_cells_may_hold_line_ends_quotes_and_delimiters(read):
    table = 'name,text\r\nAnna,"one\r\ntwo, ""three"""\r\nBert,x\r\n'

    assert read(table, "a.csv").text == 'name: Anna; text: one two, "three"\nname: Bert; text: x'


def test_rows_longer_than_the_header_lose_nothing(read):
    assert read("a,b\n1,2,3\n\n,,\n4\n", "a.csv").text == "a: 1; b: 2; column 3: 3\na: 4"


def test_lines_above_a_table_are_not_its_header(read):
    table = (
        "Sales;5 May\n\nAccount;DE12\nDay;Payee;Text;Sum;Note\n1;Anna;Pears;2,50\n2;Bert;Nuts;1\n"
    )

    assert read(table, "a.csv").text.splitlines() == [
        "Sales; 5 May",
        "Account; DE12",
        "Day: 1; Payee: Anna; Text: Pears; Sum: 2,50",
        "Day: 2; Payee: Bert; Text: Nuts; Sum: 1",
        "without values: Note",
    ]


@pytest.mark.parametrize("longer", ["a,b,c,d,e", "a,b,c,d,e\nv,1\nf,g,h,i"])
def test_a_row_with_too_many_cells_does_not_cost_the_headers(read, longer):
    table = f"name,note\nAnna,1\n{longer}\nBert,2\n"

    assert read(table, "a.csv").text.splitlines()[:2] == [
        "name: Anna; note: 1",
        "name: a; note: b; column 3: c; column 4: d; column 5: e",
    ]
    assert read("text\nwell, yes\nno\na, b, c\n", "a.csv").text.startswith("text: well; column 2")


def test_headers_of_empty_columns_are_not_lost(read):
    text = read("name,fax,city,telex\nAnna,,Bonn,\nBert,,,\n", "a.csv").text

    assert text == "name: Anna; city: Bonn\nname: Bert\nwithout values: fax; telex"


def test_the_encoding_is_found(read):
    table = "Größe;Farbe\n" + "klein;grün\ngroß;weiß\n" * 20

    assert read(table.encode("cp1252"), "a.csv").text.startswith("Größe: klein; Farbe: grün")
    assert read(table.encode("utf-16"), "a.csv").text.startswith("Größe: klein; Farbe: grün")


def test_one_column_is_a_table_too(read):
    assert read("word\nalpha\nbeta\n", "a.csv").text == "word: alpha\nword: beta"


@pytest.mark.parametrize("data", ["", "\n\n", ",,,\n"])
def test_an_empty_table_is_an_empty_text(read, data):
    assert read(data, "a.csv").text == ""


def test_a_line_of_24_megabytes_is_read_as_text(read):
    extracted = read(b"a,b," * 6_000_000, "a.csv")

    assert extracted.text.startswith("a,b,a,b")
    assert "too long for a table" in extracted.warnings[0]
    assert "first 20,000,000 bytes" in extracted.warnings[1]


def test_a_quote_that_never_ends_loses_nothing(read):
    rows = "".join(f"{number},pear\n" for number in range(200_000))
    extracted = read(f'size,kind\n"12 pipe,x\n{rows}', "a.csv")

    assert extracted.text.startswith('size: "12 pipe; kind: x\nsize: 0; kind: pear\n')
    assert extracted.text.endswith("size: 199999; kind: pear")
    assert list(extracted.warnings) == [
        "A quotation mark in it is never closed; from there on all were read as signs."
    ]


def test_a_quote_that_never_ends_takes_no_rows_into_its_cell(read):
    table = 'name;note\nAnna;"two\nlines; and more"\nBert;"5\nCarl;6\nDora;7\n'
    extracted = read(table, "a.csv")

    assert extracted.text.splitlines() == [
        "name: Anna; note: two lines; and more",
        'name: Bert; note: "5',
        "name: Carl; note: 6",
        "name: Dora; note: 7",
    ]
    assert [place.at["row"] for place in extracted.places] == [2, 3, 4, 5]
    assert len(extracted.warnings) == 1
    assert read('a;b\n1;"cut', "a.csv").text == 'a: 1; b: "cut'
    assert not read('a;b\n1;"closed\n"', "a.csv").warnings


@pytest.mark.slow
def test_50_megabytes_are_read_within_the_limits(read):
    extracted = read(b"name,city\n" + b"Anna,Bonn\nBert,Rome\n" * 2_500_000, "a.csv")

    assert extracted.text.startswith("name: Anna; city: Bonn\n")
    assert "20,000,000" in extracted.warnings[0]


cells = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1).filter(str.split)


rows_of_one_width = st.integers(2, 5).flatmap(
    lambda width: st.lists(st.lists(cells, min_size=width, max_size=width), min_size=3, max_size=8)
)


spaced = st.text(st.sampled_from("ab \t\n\v\xa0\u2003\"',;"), max_size=6)


@given(
    st.lists(st.lists(spaced, min_size=2, max_size=3), min_size=1, max_size=4),
    st.sampled_from(",;\t"),
    st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
)
def test_every_cell_is_one_line_of_single_spaces(rows, delimiter, quoting):
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter, quoting=quoting, lineterminator="\n").writerows(rows)
    read = list(sheet._rows(out.getvalue(), 0, delimiter, []))

    expected = [[" ".join(cell.split()) for cell in row] for row in rows]
    assert [list(row.texts) for row in read] == [
        [cell for cell in row if cell] for row in expected if any(row)
    ]
    assert [list(row.columns) for row in read] == [
        [at for at, cell in enumerate(row) if cell] for row in expected if any(row)
    ]


@given(rows_of_one_width)
def test_no_cell_is_lost(rows):
    out = io.StringIO()
    csv.writer(out, quoting=csv.QUOTE_ALL).writerows(rows)
    text = sheet.extract(Blob(out.getvalue().encode(), name="a.csv")).text

    for cell in {" ".join(cell.split()) for row in rows for cell in row}:
        assert cell in text
