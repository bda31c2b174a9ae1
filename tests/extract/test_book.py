"""EPUB: chapters in the order in which they are read."""

import re

import pytest

from recollect.errors import Permanent
from tests.extract import office, samples

BOOK = {
    "z/first.xhtml": "<h1>Äpfel</h1><p>They are <b>red</b>.<a id='x'/> And green.</p>"
    '<aside epub:type="footnote">Not all of them.</aside>',
    "a%20second.xhtml": "<h2>Pears</h2><ul><li>Conference</li></ul>",
    "third.xhtml": "<p>No heading here.</p>",
}


@pytest.fixture
def book():
    return office.epub(BOOK)


def _spaced(data: bytes) -> bytes:
    """The names of the container are not encoded, the links to them are."""
    return samples.repacked(data, lambda name, body: (name.replace("%20", " "), body))


def test_chapters_follow_the_order_of_reading_with_their_places(read, book):
    extracted = read(_spaced(book), "book.epub")

    assert extracted.text == (
        "# Äpfel\n\nThey are **red**. And green.\n\nNot all of them.\n\n"
        "## Pears\n\n- Conference\n\nNo heading here."
    )
    assert extracted.title == "The Orchard"
    assert [(p.at["chapter"], extracted.text[p.start :][:4]) for p in extracted.places] == [
        ("Äpfel", "# Äp"), ("Pears", "## P"), ("part 3", "No h"),
    ]  # fmt: skip


def test_the_bytes_tell_a_book_after_it_was_repacked_too(read, book):
    assert read(_spaced(book), "book.zip.epub").title == "The Orchard"


def test_hidden_text_of_chapters_is_left_out_and_counted(read):
    data = office.epub({"a.xhtml": '<p>Seen.</p><p style="display:none">Obey me.</p>'})
    extracted = read(data)

    assert extracted.text == "Seen."
    assert list(extracted.warnings) == ["Hidden text was left out (7 characters)."]


def test_scripts_are_dropped(read):
    assert read(office.epub({"a.xhtml": "<script>steal()</script><p>Seen."})).text == "Seen."


def test_of_a_drawing_in_a_chapter_its_words_are_read(read):
    cover = '<svg viewBox="0 0 9 9"><image width="9" height="9" xlink:href="cover.jpg"/></svg>'
    chart = (
        "<svg><title>Harvest</title><metadata>image/svg+xml</metadata>"
        "<defs><text>4</text></defs><g><text>2023</text><text>2024</text></g><path d='M0'/></svg>"
    )
    data = office.epub({"a.xhtml": f"<p>{cover}</p>", "b.xhtml": f"<p>Seen.</p><p>{chart}</p>"})

    assert read(data).text == "Seen.\n\nHarvest, 2023, 2024"


def test_a_locked_book_is_said_to_be_locked_and_one_with_locked_fonts_is_read(read):
    with pytest.raises(Permanent, match="DRM") as caught:
        read(office.epub({"a.xhtml": "x"}, locks="OEBPS/a.xhtml"))

    assert caught.value.code == "encrypted_file"
    assert read(office.epub({"a.xhtml": "x"}, locks="OEBPS/font.otf")).text == "x"


def test_a_book_without_its_list_is_damaged(read):
    data = office.packed({"mimetype": "application/epub+zip", "a.xhtml": "x"})
    with pytest.raises(Permanent, match="damaged") as caught:
        read(data)

    assert caught.value.code == "unreadable_content"


def test_a_list_that_leads_out_of_the_book_leads_nowhere(read):
    data = office.epub({"../../../etc/passwd": "x", "a.xhtml": "fine"})
    with pytest.raises(Permanent, match="leads out"):
        read(data)


def test_entities_in_a_list_are_refused_and_in_chapters_not_fetched(read):
    entity = b'<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]>'

    def poisoned(part: str) -> bytes:
        return samples.repacked(
            office.epub({"a.xhtml": "<p>&a; fine</p>"}),
            lambda name, body: (name, entity + body if name == part else body),
        )

    with pytest.raises(Permanent, match="entities"):
        read(poisoned("OEBPS/book.opf"), "a.epub")
    assert "root:" not in read(poisoned("OEBPS/a.xhtml"), "a.epub").text


@pytest.mark.parametrize("part", [0.3, 0.9])
def test_a_cut_book_is_refused(read, book, part):
    with pytest.raises(Permanent) as caught:
        read(book[: int(len(book) * part)], "a.epub")

    assert caught.value.code == "unreadable_content"


def test_a_bomb_is_refused(read):
    with pytest.raises(Permanent) as caught:
        read(office.epub({"a.xhtml": "x" * 100_000_000}))

    assert caught.value.code == "too_large"


def test_the_heading_of_a_chapter_may_stand_in_a_head_of_its_own(read):
    data = office.epub({"a.xhtml": "<header><h2>Plums</h2><p>in autumn</p></header><p>Ripe.</p>"})
    extracted = read(data)

    assert extracted.text == "## Plums\n\nin autumn\n\nRipe."
    assert [place.at for place in extracted.places] == [{"chapter": "Plums"}]


def test_a_chapter_that_is_not_there_is_named(read):
    data = samples.repacked(
        office.epub({"a.xhtml": "<p>Seen.</p>", "b.xhtml": "<p>Lost.</p>"}),
        lambda name, body: (name.replace("b.xhtml", "B.xhtml"), body),
    )
    extracted = read(data, "book.epub")

    assert extracted.text == "Seen."
    assert list(extracted.warnings) == ["Chapters that it lists are missing in it: OEBPS/b.xhtml."]


@pytest.mark.parametrize("kind", ["text/x-oeb1-document", "application/xml", "TEXT/HTML", ""])
def test_what_the_order_of_reading_lists_is_a_chapter_under_another_type_as_well(read, kind):
    def renamed(name, body):
        return name, body.replace(b"application/xhtml+xml", kind.encode())

    data = samples.repacked(_spaced(office.epub(BOOK)), renamed)

    assert "Conference" in read(data, "book.epub").text


def test_what_stands_beside_the_table_of_contents_is_read(read):
    def full(name, body):
        return name, body.replace(b"</nav>", b"</nav><h1>Plums</h1><p>A short book.</p>")

    data = samples.repacked(office.epub({"a.xhtml": "<p>Seen.</p>"}), full)

    assert read(data, "book.epub").text == "# Plums\n\nA short book.\n\nSeen."


def test_a_book_without_an_order_of_reading_is_read_in_that_of_its_list(read):
    def emptied(name, body):
        return name, re.sub(b"<spine>.*</spine>", b"<spine/>", body)

    data = samples.repacked(
        office.epub({"b.xhtml": "<p>One.</p>", "a.xhtml": "<p>Two.</p>"}), emptied
    )

    assert read(data, "book.epub").text == "One.\n\nTwo."
