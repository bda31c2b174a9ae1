"""What bytes are: by themselves first, then by name, then by declared type."""

import io
import subprocess
import sys
import zipfile

import pytest

from recollect.extract import Format, Sandbox, detect, format_of, nearest, supported
from recollect.model import Blob
from tests.extract import archives, office, samples

PNG = b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01"
OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(504)
DOCX_MIME = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"


def _detect(head, name=None, mime=None, forced=None):
    """The format that its extractor alone stands for must be the same."""
    found = detect(head, name=name, mime=mime, forced=forced)
    if found is None:
        return None
    again = format_of(found.extractor, forced)
    assert again is not None
    assert (again.kind, again.unpacks) == (found.kind, found.unpacks)
    return found.extractor, found.kind


@pytest.mark.parametrize(
    ("head", "name", "mime", "expected"),
    [
        (b"just words", None, None, ("text", "text")),
        (b"just words", "upload", "application/octet-stream", ("text", "text")),
        (b"# Title\n", "notes.md", None, ("text", "text")),
        ("größe".encode("cp1252"), "a.txt", None, ("text", "text")),
        ("こんにちは".encode("shift-jis"), None, None, ("text", "text")),
        ("grün".encode("utf-16"), None, None, ("text", "text")),
        ("grün".encode("utf-8-sig"), None, None, ("text", "text")),
        (b"a,b\n1,2\n", "t.csv", None, ("sheet", "text")),
        (b"a,b\n1,2\n", "T.CSV", "text/plain", ("sheet", "text")),
        (b"a,b\n1,2\n", None, "text/csv; charset=utf-8", ("sheet", "text")),
        (b"a\tb\n", "t.tsv", None, ("sheet", "text")),
        (b"<p>hello", "a.html", None, ("html", "text")),
        (b"<p>hello", None, "text/html", ("html", "text")),
        (b"<p>hello", None, None, ("text", "text")),
        (b"\n<!-- x -->\n<!DOCTYPE HTML>", None, None, ("html", "text")),
        (b'<?xml version="1.0"?>\n<html xmlns="x">', None, "text/plain", ("html", "text")),
        (b"%PDF-1.7\n", None, None, ("pdf", "pdf")),
        (b"\r\njunk\n%PDF-1.7\n", "upload", "application/octet-stream", ("pdf", "pdf")),
        (b"\x01\x02\x03%PDF-1.7\n", None, None, ("pdf", "pdf")),
        (b"A PDF begins with %PDF-1.7.\n", "notes.md", "text/markdown", ("text", "text")),
        (b"The free tier has a limit.\n", "plans.md", "text/markdown", ("text", "text")),
        (b"Too wide a net\n", None, None, ("text", "text")),
        (b"ID3 grows a tree of decisions.\n", "trees.txt", None, ("text", "text")),
        (b"See ftyp in the list of boxes.\n", "boxes.txt", None, ("text", "text")),
        (b"OggS stands ahead of each page.\n", "ogg.txt", None, ("text", "text")),
        (b"fLaC stands ahead of the blocks.\n", None, None, ("text", "text")),
        (b'<?xml version="1.0"?>\n<Workbook xmlns="x">', "a.xls", None, ("xml", "text")),
        (b'\xef\xbb\xbf<?xml version="1.0"?>\n<plist>', None, None, ("xml", "text")),
        (b'<?xml version="1.0"?>\n<a>', "a.md", None, ("text", "text")),
        (archives.packed({"a.pdf": b"%PDF-1.7\n"}, stored=True), None, None, ("zip", "text")),
        (b"", "empty.pdf", None, ("pdf", "pdf")),
        (b"", None, None, ("text", "text")),
    ],
)
def test_bytes_then_name_then_type_tell_the_format(head, name, mime, expected):
    assert _detect(head, name, mime) == expected


@pytest.mark.parametrize(
    ("head", "name", "mime", "expected"),
    [
        (b"%PDF-1.7\n\x00\x01", "report.txt", "text/plain", ("pdf", "pdf")),
        (b"<!doctype html><p>x", "report.pdf", "application/pdf", ("html", "text")),
        (b"plain words", "report.pdf", "application/pdf", ("text", "text")),
        (b"plain words", "report.docx", DOCX_MIME, ("text", "text")),
        (PNG, "photo.txt", "text/plain", ("image", "image")),
        (b"MZ\x90\x00\x03\x00", "notes.txt", "text/plain", None),
        (bytes(range(1, 256)), "notes.txt", "text/plain", None),
    ],
)
def test_a_name_or_type_that_the_bytes_contradict_does_not_count(head, name, mime, expected):
    assert _detect(head, name, mime) == expected


@pytest.mark.parametrize(
    "head",
    [
        b"7z\xbc\xaf\x27\x1c\x00\x04",
        b"\x7fELF\x02\x01\x01\x00",
        b"MZ\x90\x00\x03\x00",
        b"SQLite format 3\x00\x10\x00",
        office.odf("drawing", "<text:p>x</text:p>")[:8192],
    ],
)
@pytest.mark.parametrize("name", [None, "a.txt", "a.doc", "a.png"])
def test_a_kind_that_nobody_reads_is_none(head, name):
    assert _detect(head, name) is None


@pytest.mark.parametrize("kind", ["text-template", "text-master", "spreadsheet-template"])
def test_templates_and_master_documents_of_opendocument_are_read(read, kind: str):
    body = "<text:p>x</text:p>"
    if kind.startswith("s"):
        body = (
            "<table:table table:name='S'><table:table-row><table:table-cell>"
            f"{body}</table:table-cell></table:table-row></table:table>"
        )
    data = office.odf(kind.partition("-")[0], body)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    parts["mimetype"] = f"application/vnd.oasis.opendocument.{kind}".encode()
    last = dict(sorted(parts.items(), reverse=True))

    assert read(office.packed(parts)).text.endswith("x")
    assert read(office.packed(last), "upload.bin").text.endswith("x")


@pytest.mark.parametrize(
    ("endings", "extractor"),
    [
        (".dotx .dotm", "word"),
        (".xltx .xltm", "xlsx"),
        (".potx .potm .ppsx .ppsm", "pptx"),
        (".ott .odm", "odt"),
        (".ots", "ods"),
        (".otp", "odp"),
    ],
)
def test_a_template_is_known_by_its_name_where_its_first_bytes_do_not_tell(endings, extractor):
    head = samples.zipped(["[Content_Types].xml"])
    if extractor.startswith("od"):
        head = (
            office.packed({"mimetype": ""})[:8] + b"\x08\0" + office.packed({"mimetype": ""})[10:]
        )

    for ending in endings.split():
        assert _detect(head, f"a{ending}") == (extractor, "text")


@pytest.mark.parametrize("name", ["a.dot", "messages.pot"])
def test_a_text_whose_ending_templates_of_old_programs_have_is_text(name):
    assert _detect(b"digraph {}", name) == ("text", "text")


def test_a_word_document_is_known_by_its_parts():
    data = samples.word(lambda document: document.add_paragraph("x"))

    assert _detect(data[:8192]) == ("word", "text")
    assert _detect(data[:8192], "upload.bin", "application/zip") == ("word", "text")


@pytest.mark.parametrize(
    "names",
    [["mimetype"], ["a.txt", "b.txt"], ["words/a.xml"], ["xls/a.xml"]],
)
def test_another_zip_is_not_a_word_document_even_if_called_so(names):
    assert _detect(samples.zipped(names), "a.docx", DOCX_MIME) == ("zip", "text")


ORCHARD = {"S": [["Fruit", "Price"], ["Pear", 2]]}


@pytest.mark.parametrize(
    ("data", "extractor"),
    [
        (office.xlsx(ORCHARD), "xlsx"),
        (office.xls(ORCHARD), "xls"),
        (office.ods(ORCHARD), "ods"),
        (office.odt("x"), "odt"),
        (office.doc("x"), "doc"),
        (office.ppt([("x", [])]), "ppt"),
        (office.msg("x", "y"), "msg"),
        (office.rtf("x"), "rtf"),
        (office.pptx([("x", [])]), "pptx"),
        (office.epub({"a.xhtml": "x"}), "epub"),
        (office.eml(lambda message: message.set_content("x")), "mail"),
        (samples.zipped(["[Content_Types].xml", "_rels/.rels", "xl/workbook.xml"]), "xlsx"),
    ],
)
@pytest.mark.parametrize("name", [None, "upload", "wrong.pdf", "wrong.docx", "wrong.xls", "a.txt"])
def test_office_files_are_known_by_their_bytes(data, extractor, name):
    assert _detect(data[:8192], name, "application/octet-stream") == (extractor, "text")


@pytest.mark.parametrize(
    ("name", "extractor"),
    [
        ("a.docx", "word"),
        ("a.xlsx", "xlsx"),
        ("a.pptx", "pptx"),
        ("a.ppsx", "pptx"),
        ("a.PPTM", "pptx"),
        ("a.doc", "doc"),
        ("a.xls", "xls"),
        ("a.ppt", "ppt"),
        ("a.msg", "msg"),
    ],
)
def test_where_the_head_does_not_tell_the_name_does(name, extractor):
    head = OLE if extractor in ("doc", "xls", "ppt", "msg") else samples.zipped(["_rels/.rels"])

    assert _detect(head, name) == (extractor, "text")


@pytest.mark.parametrize(
    ("head", "name", "mime", "extractor"),
    [
        (b'{"a": 1}', "a.json", None, "records"),
        (b'{"a": 1}', None, "application/json; charset=utf-8", "records"),
        (b'{"a": 1}', "a.jsonl", "application/octet-stream", "records"),
        (b'{"a": 1}', "a.txt", None, "text"),
        (b"def f(): pass", "a.py", "text/x-python", "code"),
        ("größe".encode("utf-16-le"), None, None, "text"),
        ("größe;maß\n".encode("utf-16-be"), "a.csv", None, "sheet"),
    ],
)
def test_text_kinds_are_known_by_name_or_type(head, name, mime, extractor):
    assert _detect(head, name, mime) == (extractor, "text")


def test_an_encrypted_word_document_is_left_to_the_extractor_to_explain():
    assert _detect(OLE, "a.docx") == ("word", "text")


@pytest.mark.parametrize(
    ("head", "name", "forced", "expected"),
    [
        (b"words", None, "pdf", ("pdf", "pdf")),
        (b"words", "a.pdf", "webpage", ("html", "webpage")),
        (b"a,b\n", "a.csv", "text", ("sheet", "text")),
        (b"%PDF-1.7\n", None, "text", None),
        (b"words", None, "image", ("image", "image")),
        (PNG, None, "video", ("video", "video")),
        (b"%PDF-1.7\n", None, "onedrive", ("pdf", "onedrive")),
        (b"<html><p>x", None, "google_doc", ("html", "google_doc")),
    ],
)
def test_a_forced_type_settles_the_format_or_names_the_origin(head, name, forced, expected):
    assert _detect(head, name, forced=forced) == expected


def test_the_media_type_is_the_declared_one_where_it_fits():
    markdown = detect(b"# x", name=None, mime="Text/Markdown; charset=utf-8")
    pdf = detect(b"%PDF-1.7", name=None, mime="text/plain")

    assert markdown
    assert markdown.mime == "text/markdown"
    assert pdf
    assert pdf.mime == "application/pdf"


def test_the_sentence_for_people_names_every_ending():
    sentence = supported()

    assert all(ending in sentence for ending in (".csv", ".docx", ".html", ".md", ".pdf", ".txt"))


@pytest.mark.parametrize(
    ("name", "near"),
    [("a.doxc", ".docx"), ("a.htlm", ".html"), (None, ".pdf"), ("x." + "y" * 10_000, ".pdf")],
)
def test_a_refusal_names_ten_kinds_at_most_the_nearest_among_them(name, near):
    sentence = nearest(name)

    assert near in sentence
    assert sentence.count(" .") <= 10


def test_the_registry_loads_no_parser():
    program = (
        "import sys, recollect.extract as e; e.supported();"
        "print(*{'xberg', 'selectolax', 'html_to_markdown', 'pypdfium2', 'trafilatura', 'lxml',"
        " 'chardet', 'w3lib', 'ctypes', 'asyncio'} & set(sys.modules))"
    )
    out = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert out.stdout.strip() == ""


def test_what_was_found_is_not_looked_for_again(sandbox: Sandbox):
    """It is handed on: to a reader of text goes what the bytes and the name call a table."""
    table = Blob(b"a,b\n1,2\n", name="x.csv")
    found = sandbox.detect(table)

    assert found.extractor == "sheet"
    assert sandbox.detect(table, found) is found
    assert sandbox.extract(table, forced=found).text == sandbox.extract(table).text
    as_text = Format("text", "text", "text/plain")
    assert sandbox.extract(table, forced=as_text).text == "a,b\n1,2"
