"""Small files of each kind, made on the spot; hostile ones, too."""

import io
import zipfile
from collections.abc import Callable, Sequence

import docx
from docx.document import Document
from reportlab.lib import colors
from reportlab.lib.pagesizes import A4
from reportlab.lib.pdfencrypt import StandardEncryption
from reportlab.lib.styles import getSampleStyleSheet
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import (
    BaseDocTemplate,
    Frame,
    FrameBreak,
    NextPageTemplate,
    PageBreak,
    PageTemplate,
    Paragraph,
    Table,
)


def pdf(*pages: str, title: str | None = None, password: str | None = None) -> bytes:
    """One line of text a page; an empty one draws a box, as a scanned page shows a picture."""
    out = io.BytesIO()
    lock = None if password is None else StandardEncryption(password, ownerPassword="owner")
    canvas = Canvas(out, pagesize=A4, encrypt=lock)
    if title:
        canvas.setTitle(title)
    for page in pages:
        if page:
            canvas.drawString(72, 700, page)
        else:
            canvas.rect(72, 500, 200, 200, fill=1)
        canvas.showPage()
    canvas.save()
    return out.getvalue()


def set_pdf(*lines: str) -> bytes:
    """One page of lines set one below the other; an empty one leaves a gap."""
    out = io.BytesIO()
    canvas = Canvas(out, pagesize=A4)
    for number, line in enumerate(lines):
        canvas.drawString(60, 800 - 14 * number, line)
    canvas.showPage()
    canvas.save()
    return out.getvalue()


def report_pdf() -> bytes:
    """A heading, a table, then a page in two columns."""
    out = io.BytesIO()
    styles = getSampleStyleSheet()
    width, height = A4
    column = (width - 120) / 2
    document = BaseDocTemplate(out, pagesize=A4, title="Annual Report")
    whole = [Frame(50, 50, width - 100, height - 100)]
    halves = [
        Frame(50, 50, column, height - 100),
        Frame(70 + column, 50, column, height - 100),
    ]
    document.addPageTemplates(
        [PageTemplate(id="whole", frames=whole), PageTemplate(id="halves", frames=halves)]
    )
    document.build(
        [
            Paragraph("Introduction", styles["Heading1"]),
            Paragraph(
                "The harvest was plentiful in every one of our orchards. " * 4, styles["Normal"]
            ),
            Table(
                [["Fruit", "Price"], ["Apple", "1.20"], ["Pear", "3.40"]],
                style=[("GRID", (0, 0), (-1, -1), 1, colors.black)],
            ),
            NextPageTemplate("halves"),
            PageBreak(),
            *(
                Paragraph(f"Left {n} speaks of apples on the western side.", styles["Normal"])
                for n in range(9)
            ),
            FrameBreak(),
            *(
                Paragraph(f"Right {n} speaks of pears on the eastern side.", styles["Normal"])
                for n in range(9)
            ),
        ]
    )
    return out.getvalue()


def raw_pdf(*objects: bytes) -> bytes:
    """A PDF of hand-written objects, the first of which is the catalogue."""
    out = bytearray(b"%PDF-1.4\n")
    offsets: list[int] = []
    for number, body in enumerate(objects, 1):
        offsets.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, body)
    start = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    out += b"trailer<</Size %d/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % (len(objects) + 1, start)
    return bytes(out)


_ONE_PAGE = (
    b"<</Type/Catalog/Pages 2 0 R>>",
    b"<</Type/Pages/Count 1/Kids[3 0 R]>>",
    b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 99 99]/Contents 4 0 R"
    b"/Resources<</XObject<</F 5 0 R>>>>>>",
    b"<</Length 5>>stream\n/F Do\nendstream",
)


def _form(next_form: int, draws: int) -> bytes:
    content = b"/F Do " * draws
    return (
        b"<</Type/XObject/Subtype/Form/BBox[0 0 9 9]/Resources<</XObject<</F %d 0 R>>>>/Length %d>>"
        b"stream\n%s\nendstream" % (next_form, len(content), content)
    )


def form_loop_pdf() -> bytes:
    """A form that draws itself twice."""
    return raw_pdf(*_ONE_PAGE, _form(5, 2))


def page_loop_pdf() -> bytes:
    """A list of pages that is one of its own pages, twice."""
    return raw_pdf(
        b"<</Type/Catalog/Pages 2 0 R>>", b"<</Type/Pages/Count 9/Kids[2 0 R 2 0 R 3 0 R]>>",
        b"<</Type/Pages/Parent 2 0 R/Count 9/Kids[2 0 R 3 0 R]>>",
    )  # fmt: skip


def form_fan_pdf() -> bytes:
    """Sixty forms that each draw the next ten times."""
    forms = [_form(6 + number, 10) for number in range(60)]
    return raw_pdf(
        *_ONE_PAGE,
        *forms,
        b"<</Type/XObject/Subtype/Form/BBox[0 0 9 9]/Length 0>>stream\n\nendstream",
    )


def many_pages_pdf(count: int) -> bytes:
    """A page tree that names one page `count` times."""
    return raw_pdf(
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Count %d/Kids[%s]>>" % (count, b"3 0 R " * count),
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 99 99]/Contents 4 0 R"
        b"/Resources<</Font<</F 5 0 R>>>>>>",
        b"<</Length 40>>stream\nBT /F 9 Tf 9 9 Td (once and again) Tj ET\nendstream",
        b"<</Type/Font/Subtype/Type1/BaseFont/Helvetica>>",
    )


def word(fill: Callable[[Document], object]) -> bytes:
    document = docx.Document()
    document.core_properties.title = ""
    fill(document)
    out = io.BytesIO()
    document.save(out)
    return out.getvalue()


def repacked(data: bytes, change: Callable[[str, bytes], tuple[str, bytes]]) -> bytes:
    """A ZIP with each entry changed."""
    out = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(data)) as old,
        zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as new,
    ):
        for name in old.namelist():
            new.writestr(*change(name, old.read(name)))
    return out.getvalue()


def zipped(names: Sequence[str]) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for name in names:
            archive.writestr(name, "<x/>")
    return out.getvalue()
