"""Word: headings, lists and tables survive; bombs and locks are told apart."""

import io
import zipfile

import pytest

from recollect.errors import Permanent
from tests.extract import samples


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
