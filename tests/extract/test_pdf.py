"""PDF: the words of every page in reading order, and the truth about pages without any."""

import io
from collections.abc import Callable

import pypdfium2 as pdfium
import pytest
from reportlab.lib.pagesizes import A4
from reportlab.pdfgen.canvas import Canvas

from recollect.errors import Permanent
from recollect.extract import Limits, Sandbox
from recollect.model import Blob, Place
from tests.extract import samples


def test_headings_tables_and_columns_become_markdown(read):
    extracted = read(samples.report_pdf(), "report.pdf")
    text = extracted.text

    assert "# Introduction" in text
    assert "harvest was plentiful" in text
    assert "| Fruit | Price |" in text
    assert "| Apple | 1.20 |" in text
    assert text.index("Left 8") < text.index("Right 0")
    assert extracted.title == "Annual Report"
    assert extracted.kind == "pdf"
    assert not extracted.warnings


@pytest.mark.parametrize(
    "line",
    [
        "2.18 metres over the sill, and stayed.",
        "7) was torn away by the flood.",
        "14 that the log names were there.",
        "3. of the month they came back.",
        "2.18 Meter over the sill, says the log.",
        "(c) of the act was broken then.",
        "1,200 men came with sand.",
    ],
)
def test_a_line_that_begins_with_a_number_goes_on_with_its_sentence(read, line):
    page = samples.set_pdf(
        "The survey of the weir", "", "", "At post 81 the water stood", line, "The men went home."
    )

    assert f"the water stood {line}" in read(page, "survey.pdf").text


@pytest.mark.parametrize(
    "line",
    [
        "#hashtag and issue #b of C#code, C\\# and F#",
        "wow!that is !important, #fff and (#12)",
        'so"quoted of first flowers',
    ],
)
def test_signs_are_no_ligatures(read, line):
    page = samples.set_pdf("We find the first officer of the staff:", "", "", line)

    assert read(page, "a.pdf").text.endswith(line)


def test_signs_that_stand_for_ligatures_are_read_as_these(read):
    page = samples.set_pdf('We #nd the speci#c and e"cient de!nition:', "con#rmed by a #re")

    assert read(page, "a.pdf").text == (
        "We find the specific and efficient definition: confirmed by a fire"
    )


def test_what_is_a_list_or_stands_apart_remains_so(read):
    page = samples.set_pdf(
        "What the wardens of the weir do",
        "1. Open the gates of the lock",
        "2. Close the gates at night",
        "3. Go home when it is late",
        "",
        "",
        "Here a sentence ends.",
        "",
        "2.1 Methods of the survey",
    )
    text = read(page, "survey.pdf").text

    items = ["1. Open the gates of the lock", "2. Close the gates at night", "3. Go home"]
    assert all(f"\n- {item}" in text for item in items)
    assert "\n\n2.1 Methods" in text or "\n# 2.1 Methods" in text


def test_the_pages_come_in_order(read):
    text = read(samples.pdf("first page", "second page", "third page"), "a.pdf").text

    assert text == "first page\n\nsecond page\n\nthird page"


def test_letters_beyond_ascii_are_read(read):
    assert read(samples.pdf("Größe und Öl für 5 €"), "a.pdf").text == "Größe und Öl für 5 €"


def _from_the_right(*lines: str, whole: bool) -> bytes:
    """Lines as a reader of Hebrew sees them, drawn at once or each word by itself."""
    letters = {0x05D0 + at: ord("a") + at for at in range(26)}
    width = 6  # of each character, in points
    drawn: list[str] = []
    for number, line in enumerate(lines):
        seen = [word if word.isascii() else word[::-1] for word in line.split()]
        right = 500
        for piece in [" ".join(reversed(seen))] if whole else seen:
            left = right - width * len(piece)
            drawn.append(f"1 0 0 1 {left} {700 - 20 * number} Tm ({piece.translate(letters)}) Tj")
            right = left - width
    page = f"BT /F 10 Tf {' '.join(drawn)} ET".encode()
    means = "".join(f"<{code:02x}> <{letter:04x}>\n" for letter, code in letters.items())
    table = f"1 begincodespacerange <00> <ff> endcodespacerange 26 beginbfchar {means} endbfchar"
    return samples.raw_pdf(
        b"<< /Type /Catalog /Pages 2 0 R >>",
        b"<< /Type /Pages /Kids [3 0 R] /Count 1 >>",
        b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 595 842] /Contents 4 0 R"
        b" /Resources << /Font << /F 5 0 R >> >> >>",
        b"<< /Length %d >> stream\n%s\nendstream" % (len(page), page),
        b"<< /Type /Font /Subtype /Type1 /BaseFont /Courier /ToUnicode 6 0 R >>",
        b"<< /Length %d >> stream\n%s\nendstream" % (len(table), table.encode()),
    )


@pytest.mark.parametrize("whole", [True, False], ids=["whole lines", "words"])
def test_what_is_written_from_the_right_is_read_in_its_own_order(read, whole):
    lines = [
        "\u05e9\u05e0\u05d4 2024 \u05d8\u05d5\u05d1\u05d4 \u05de\u05d0\u05d5\u05d3",
        "\u05e9\u05dc\u05d5\u05dd HARVEST \u05e2\u05d5\u05dc\u05dd",
    ]
    extracted = read(_from_the_right(*lines, whole=whole), "year.pdf")

    assert extracted.text.split("\n") == lines
    assert list(extracted.warnings) == [
        "Page 1 was read as plain text, without headings and tables: its script is written from the"
        " right."
    ]


@pytest.mark.parametrize(
    ("pages", "warning"),
    [
        (["one", "", "three", "", "five"], "Pages 2, 4 have no text."),
        (["one", ""], "Page 2 has no text."),
        (
            ["one", *[""] * 22],
            f"Pages {', '.join(map(str, range(2, 22)))} and 2 more have no text.",
        ),
    ],
)
def test_pages_without_text_are_named(read, pages, warning):
    extracted = read(samples.pdf(*pages), "a.pdf")

    assert list(extracted.warnings) == [warning]
    assert "one" in extracted.text


def test_no_text_at_all_is_an_empty_text_that_says_so(read):
    extracted = read(samples.pdf("", ""), "a.pdf")

    assert extracted.text == ""
    assert extracted.warnings[0] == "No page has any text."


def test_a_passage_knows_its_page(read):
    extracted = read(samples.pdf("first page", "", "third page"), "a.pdf")

    assert list(extracted.places) == [Place(0, {"page": 1}), Place(12, {"page": 3})]


def test_what_is_filled_into_a_form_or_typed_over_it_is_read(read):
    out = io.BytesIO()
    canvas = Canvas(out, A4)
    canvas.drawString(50, 740, "Whoever asks for apples is to say of which kind.")
    canvas.acroForm.textfield(name="who", value="Zebulon", x=200, y=690)
    canvas.acroForm.choice(name="kind", value="Bravo", options=["Alpha", "Bravo"], x=200, y=640)
    canvas.freeTextAnnotation("Two crates", (200, 540, 500, 600))
    canvas.showPage()
    canvas.drawString(50, 740, "The second page has nothing to fill in.")
    canvas.save()
    extracted = read(out.getvalue(), "form.pdf")

    assert "Zebulon" in extracted.text
    assert "Bravo" in extracted.text
    assert "Two crates" in extracted.text
    assert "Alpha" not in extracted.text
    assert [place.at for place in extracted.places] == [{"page": 1}, {"page": 2}]
    assert not extracted.warnings


@pytest.mark.parametrize("title", ["untitled", "Microsoft Word - draft", "scan0001.tif", ""])
def test_a_title_that_a_program_gave_is_none(read, title):
    assert read(samples.pdf("x", title=title), "a.pdf").title is None


def test_a_password_is_said_to_be_the_reason(read):
    with pytest.raises(Permanent, match=r'"a\.pdf" .* password') as caught:
        read(samples.pdf("secret", password="pass"), "a.pdf")

    assert caught.value.code == "encrypted_file"


def test_a_file_that_only_forbids_printing_is_read(read):
    assert read(samples.pdf("not secret", password=""), "a.pdf").text == "not secret"


def test_a_long_file_is_read_plainly_and_says_so(read):
    extracted = read(samples.many_pages_pdf(501), "a.pdf")

    assert extracted.text.count("once and again") == 501
    assert "plain text" in extracted.warnings[0]


def test_too_many_pages_are_refused(read):
    with pytest.raises(Permanent, match=r"5,001 pages") as caught:
        read(samples.many_pages_pdf(5_001), "a.pdf")

    assert caught.value.code == "too_large"


@pytest.mark.parametrize("data", [b"%PDF-1.7\nand nothing else", b"%PDF-", b""])
def test_what_is_no_pdf_is_refused(read, data):
    with pytest.raises(Permanent) as caught:
        read(data, "a.pdf")

    assert caught.value.code == "unreadable_content"


@pytest.mark.parametrize("part", [0.2, 0.5, 0.9, 0.99])
def test_a_cut_file_is_read_or_refused_but_harms_nothing(read, part):
    data = samples.report_pdf()
    codes: list[str] = []
    try:
        read(data[: int(len(data) * part)], "a.pdf")
    except Permanent as error:
        codes.append(error.code)

    assert set(codes) <= {"unreadable_content"}
    assert read(samples.pdf("still here"), "b.pdf").text == "still here"


def test_a_form_that_draws_itself_ends():
    with Sandbox(workers=1, limits=Limits(cpu_seconds=2, wall_factor=60)) as sandbox:
        with pytest.raises(Permanent) as caught:
            sandbox.extract(Blob(samples.form_loop_pdf(), name="a.pdf"))

        # Which of its bounds it meets first (time, memory, stack) depends on the machine's load.
        bounds = {"extraction_timeout", "extraction_memory", "extraction_crashed"}
        assert caught.value.code in bounds
        assert sandbox.extract(Blob(samples.pdf("still here"), name="b.pdf")).text == "still here"


def _canvas(draw: Callable[[Canvas], object]) -> bytes:
    out = io.BytesIO()
    canvas = Canvas(out, pagesize=A4)
    canvas.drawString(72, 780, "What a reader sees of it, in black on white")
    draw(canvas)
    canvas.showPage()
    canvas.save()
    return out.getvalue()


def _white(canvas: Canvas) -> None:
    canvas.setFillColorRGB(1, 1, 1)
    canvas.drawString(72, 600, "ten letters")


def _invisible(canvas: Canvas) -> None:
    text = canvas.beginText(72, 600)
    text.setTextRenderMode(3)
    text.textLine("ten letters")
    canvas.drawText(text)


def _tiny(canvas: Canvas) -> None:
    canvas.setFont("Helvetica", 1)
    canvas.drawString(72, 600, "ten letters")


def _shrunk(canvas: Canvas) -> None:
    canvas.scale(0.05, 0.05)
    canvas.drawString(720, 600, "ten letters")


def _transparent(canvas: Canvas) -> None:
    canvas.setFillAlpha(0)
    canvas.drawString(72, 600, "ten letters")


def _in_a_form(canvas: Canvas) -> None:
    canvas.beginForm("form")
    _white(canvas)
    canvas.endForm()
    canvas.doForm("form")


def _on_blue(canvas: Canvas) -> None:
    canvas.setFillColorRGB(0, 0, 0.5)
    canvas.rect(60, 590, 200, 40, stroke=0, fill=1)
    _white(canvas)


@pytest.mark.parametrize(
    ("draw", "how"),
    [
        (_white, "white on white"),
        (_in_a_form, "white on white"),
        (_invisible, "invisible"),
        (_tiny, "tiny"),
        (_shrunk, "tiny"),
        (_transparent, "transparent"),
        (lambda canvas: canvas.drawString(900, 600, "ten letters"), "off the page"),
    ],
)
def test_text_that_no_reader_sees_is_marked(read, draw, how):
    warnings = read(_canvas(draw), "a.pdf").warnings

    assert list(warnings) == [
        f"It has text that no reader sees: 10 characters ({how}: 10) on page 1."
    ]


def test_the_pages_with_hidden_text_are_named(read):
    sheet = pdfium.PdfDocument.new()
    for draw in (_white, _on_blue, _tiny):
        sheet.import_pages(pdfium.PdfDocument(_canvas(draw)))
    out = io.BytesIO()
    sheet.save(out)

    (warning,) = read(out.getvalue(), "a.pdf").warnings
    assert "20 characters (tiny: 10, white on white: 10) on pages 1, 3" in warning


@pytest.mark.parametrize("draw", [_on_blue, lambda canvas: canvas.drawString(72, 600, "black")])
def test_text_that_a_reader_sees_is_not_marked(read, draw):
    assert not read(_canvas(draw), "a.pdf").warnings
