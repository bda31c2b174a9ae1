"""XML as what it says and where: no tags, no DTDs, no entities."""

import re

import pytest

from recollect.errors import Permanent
from tests.extract import office, samples

CATALOG = """<?xml version="1.0" encoding="UTF-8"?>
<!-- stock -->
<catalog xmlns="urn:x" xmlns:d="urn:d" xsi:schemaLocation="a b">
  <updated>2024-02-05</updated>
  <book id="b1" d:lang="de"><title>Die Äpfel</title><price currency="EUR">12.50</price></book>
  <book id="b2"><title>Pears &amp; plums</title><stock/><cover href="p.png"/></book>
  <note>Both <em>very</em> good.<br/>Really</note>
</catalog>"""


def test_each_value_says_what_it_is_the_value_of(read):
    extracted = read(CATALOG, "catalog.xml")

    assert extracted.text == (
        "updated: 2024-02-05\n\n"
        "book (id: b1; d:lang: de)\nbook/title: Die Äpfel\nbook/price (currency: EUR): 12.50\n\n"
        "book (id: b2)\nbook/title: Pears & plums\nbook/cover (href: p.png)\n\n"
        "note: Both very good.Really"
    )
    assert not extracted.warnings
    assert extracted.markdown is False


def test_a_feed_is_a_record_for_each_entry_and_has_its_title(read):
    items = "".join(f"<item><title>News {n}</title><link>/{n}</link></item>" for n in (1, 2))
    feed = f"<rss><channel><title>Orchard</title>{items}</channel></rss>"
    extracted = read(feed, None, mime="application/rss+xml")

    assert extracted.title == "Orchard"
    assert extracted.text == (
        "channel/title: Orchard\n\n"
        "channel/item/title: News 1\nchannel/item/link: /1\n\n"
        "channel/item/title: News 2\nchannel/item/link: /2"
    )


def test_marked_words_stay_in_their_sentence(read):
    para = "<para><b>Note</b> the <i>s<u>i</u>ll</i> of H<s>2</s>O.</para>"
    book = f"<article><title>Weirs</title>{para}</article>"
    extracted = read(book, "a.xml")

    assert extracted.text == "title: Weirs\npara: Note the sill of H2O."
    assert extracted.title == "Weirs"


@pytest.mark.parametrize("encoding", ["utf-16", "iso-8859-1", "shift_jis", "gb18030", "koi8-r"])
def test_the_declared_encoding_counts(read, encoding):
    word = {"shift_jis": "東京", "gb18030": "北京", "koi8-r": "Съешь"}.get(encoding, "größer")
    text = f'<?xml version="1.0" encoding="{encoding}"?><a><b>{word}</b></a>'

    assert read(text.encode(encoding), "a.xml").text == f"b: {word}"


@pytest.mark.parametrize(
    ("encoding", "codec"),
    [
        ("iso-8859-1", "cp1252"),
        ("gb2312", "gb18030"),
        ("undefined", "utf-8"),
        ("utf8", "utf-8"),
        ("utf-16", "utf-8"),
        ("utf-16", "utf-8-sig"),
        ("utf-16", "cp1252"),
        ("us-ascii", "utf-8"),
    ],
)
def test_an_encoding_means_what_programs_write_under_its_name(read, encoding, codec):
    text = f'<?xml version="1.0" encoding="{encoding}"?><a><b>10 €</b></a>'

    assert read(text.encode(codec), "a.xml").text == "b: 10 €"


@pytest.mark.parametrize(
    "data",
    ["<a><b>one</a>", "<a>1</a><a>2</a>", "no tags", "<p>x&nbsp;y</p>", "<a>&lt;", "<a b='<'/>"],
)
def test_what_is_almost_xml_is_read_as_text_with_a_warning(read, data):
    extracted = read(data, "a.xml")

    assert extracted.text == data
    assert "not well-formed" in extracted.warnings[0]
    assert "read as text" in extracted.warnings[0]


@pytest.mark.parametrize(
    "data",
    [
        '<!DOCTYPE x [<!ENTITY b SYSTEM "file:///etc/passwd">]><x>&b;</x>',
        '<!DOCTYPE x [<!ENTITY % p SYSTEM "http://127.0.0.1/p.dtd"> %p;]><x>y</x>',
        '<!DOCTYPE x [<!ENTITY a "ha"><!ENTITY b "&a;&a;">]><x>&b;',
        "<a>" * 100_000,
        "<a>" * 501 + "</a>" * 501,
    ],
)
def test_entities_and_depth_are_refused(read, data):
    with pytest.raises(Permanent, match=r"entities|nested too deeply") as caught:
        read(data, "a.xml")

    assert caught.value.code == "unreadable_content"


def test_a_document_type_from_elsewhere_is_not_asked_for(read):
    data = '<!DOCTYPE plist PUBLIC "-//x" "http://127.0.0.1:9/p.dtd"><plist><key>a</key></plist>'

    assert read(data, "a.xml").text == "key: a"


def test_nothing_is_an_empty_text(read):
    assert read("<a><b/></a>", "a.xml").text == ""
    assert read("<?xml version='1.0'?><a/>", "a.xml").text == ""


def test_letters_that_a_dtd_elsewhere_names_are_read(read):
    text = (
        '<?xml version="1.0"?><!DOCTYPE article PUBLIC "-//OASIS//DTD DocBook XML V4.5//EN"'
        ' "http://example.org/docbookx.dtd"><article><para>caf&eacute; &mdash; &product;</para>'
        "</article>"
    )

    assert read(text, "a.xml").text == "para: café — &product;"


@pytest.mark.parametrize("encoding", ["UTF-9", "hex", "shift_jis", "undefined"])
@pytest.mark.parametrize(
    ("data", "name"),
    [
        (office.docx("<w:p/>"), "a.docx"),
        (office.odt("words"), "a.odt"),
        (office.pptx([("words", [])]), "a.pptx"),
        (office.raw_xlsx("<worksheet/>"), "a.xlsx"),
    ],
)
def test_an_encoding_that_expat_does_not_know_is_a_reason(read, data, name, encoding):
    def recode(name: str, body: bytes) -> tuple[str, bytes]:
        told = f'<?xml version="1.0" encoding="{encoding}"?>'.encode()
        is_text = name.endswith(".xml") and not name.startswith("[")
        return name, told + re.sub(rb"^<\?xml[^>]*>", b"", body) if is_text else body

    with pytest.raises(Permanent, match="not well-formed"):
        read(samples.repacked(data, recode), name)
