"""EML: a message reads like a message, whoever sent it however."""

import base64
from email.message import EmailMessage
from urllib.parse import quote

import pytest

from recollect.errors import Permanent
from tests.extract import office
from tests.extract.archives import packed
from tests.extract.conftest import Unpack
from tests.extract.samples import pdf


def _plain(message):
    message["Cc"] = "Carla <carla@orchard.test>"
    message.set_content("Dear Bert,\n\nthe apples are ripe.\n\nAnna\n")


def test_a_message_begins_with_who_when_and_what(read):
    extracted = read(office.eml(_plain, subject="Äpfel – reif?"), "harvest.eml")

    assert extracted.text == (
        "From: Anna Öst <anna@orchard.test>\nTo: bert@orchard.test\n"
        "Cc: Carla <carla@orchard.test>\nDate: 2024-02-05 10:11:12+01:00\n"
        "Subject: Äpfel – reif?\n\nDear Bert,\n\nthe apples are ripe.\n\nAnna"
    )
    assert extracted.title == "Äpfel – reif?"
    assert extracted.kind == "text"


def test_the_bytes_tell_a_message_but_not_notes_that_look_like_one(read):
    assert read(office.eml(_plain)).title == "Harvest"
    assert read("From: me\nTo: you\nSubject: lunch\n\nAt one?").title is None


def test_of_two_forms_of_a_message_the_plain_one_is_read(read):
    def both(message):
        message.set_content("The plain words of it all.")
        message.add_alternative("<p>The <b>marked-up</b> words.</p>", subtype="html")

    text = read(office.eml(both)).text

    assert "plain words" in text
    assert "marked-up" not in text


def test_markup_is_read_where_the_plain_form_says_nothing(read):
    def both(message):
        message.set_content(" \n")
        message.add_alternative(
            "<style>p{}</style><p>The <b>apples</b> are <a href='https://t.test/x'>ripe</a>.</p>"
            "<p style='display:none'>obey me</p><script>x()</script>",
            subtype="html",
        )

    extracted = read(office.eml(both))

    assert extracted.text.endswith("\n\nThe **apples** are ripe.")
    assert list(extracted.warnings) == ["Hidden text was left out (6 characters)."]


def test_attachments_are_named_and_not_read(read):
    def attached(message):
        message.set_content("See attached.")
        message.add_attachment(b"%PDF-1.4 secret", "application", "pdf", filename="Übersicht.pdf")
        message.add_attachment("secret", filename="../../etc/notes.txt")

    text = read(office.eml(attached)).text

    assert text.endswith("See attached.\n\nAttachments: Übersicht.pdf, notes.txt")


def test_attachments_that_can_be_read_are_handed_over(unpack: Unpack):
    box = packed({"in/a.md": "# Quince", "inner.zip": packed({"b.txt": "pears"}), "c.exe": b"MZ\0"})
    pear = b"\x89PNG\r\n\x1a\n a pear"

    def attached(message):
        message.set_content("See attached.")
        message.add_attachment(b"apples", "text", "plain", filename="notes.txt")
        message.add_attachment(b"plums", "text", "plain", filename="notes.txt")
        message.add_attachment(b"\0\1\2\3", "application", "octet-stream", filename="x.bin")
        message.add_attachment(b"", "text", "plain", filename="empty.txt")
        message.add_attachment(box, "application", "zip", filename="box.zip")
        message.add_attachment(
            b"shown", "image", "png", filename="logo.png", cid="<a@b>", disposition="inline"
        )
        message.add_attachment(pear, "image", "png", filename="pear.png")
        message.add_attachment(
            b"-----BEGIN PGP SIGNATURE-----",
            "application",
            "pgp-signature",
            filename="signature.asc",
        )
        inner = EmailMessage()
        inner.set_content("The pears are late.")
        inner.add_attachment(b"cherries", "text", "plain", filename="inner.txt")
        message.add_attachment(inner)

    found, members = unpack(office.eml(attached), "a.eml")

    assert members == {
        "notes.txt": b"apples",
        "notes (2).txt": b"plums",
        "box.zip/in/a.md": b"# Quince",
        "box.zip/inner.zip/b.txt": b"pears",
        "pear.png": pear,
        "inner.txt": b"cherries",
    }
    assert "Attachments: notes.txt, notes.txt, x.bin, empty.txt, box.zip, logo.png" in found.text
    assert found.warnings == (
        "3 files in it were not read: its kind is not supported (2), it is empty (1).",
    )


def test_an_attachment_without_a_name_is_handed_over(unpack: Unpack):
    head = "From: a@orchard.test\nSubject: s\nContent-Type: multipart/mixed; boundary=x\n\n"
    part = "--x\nContent-Type: text/csv\n\npears,2\n"

    found, members = unpack(f"{head}--x\n\nhello\n{part}{part}--x--\n".encode(), "a.eml")

    assert "Attachments: unnamed (text/csv), unnamed (text/csv)" in found.text
    assert [*members.values()] == [b"pears,2"] * 2


@pytest.mark.parametrize("outer", ["mixed", "signed"])
def test_an_attachment_without_a_name_is_handed_over_from_a_message_that_was_wrapped(
    unpack: Unpack, outer: str
):
    """By a list that adds its footer, or a program that signs."""
    kind = "Content-Type: multipart/mixed; boundary="
    head = f"From: a@orchard.test\nSubject: s\n{kind}y\n\n".replace("mixed", outer)
    inner = f"{kind}x\n\n--x\n\nhello\n--x\nContent-Type: text/csv\n\npears,2\n--x--\n"
    last = "Content-Type: application/pgp-signature\n\n-----BEGIN PGP SIGNATURE-----"

    _, members = unpack(f"{head}--y\n{inner}--y\n{last}\n--y--\n".encode(), "a.eml")

    assert [*members.values()] == [b"pears,2"]


def test_a_message_that_begins_with_a_pdf_in_readable_signs_is_a_message(unpack: Unpack):
    def attached(message: EmailMessage):
        message.set_content("The list is attached.")
        message.add_attachment(scan, "application", "pdf", filename="a.pdf", cte="quoted-printable")

    scan = pdf("pears")

    found, members = unpack(office.eml(attached), "a.eml")

    assert "The list is attached." in found.text
    assert members == {"a.pdf": scan}


def test_nothing_that_pgp_adds_to_a_message_is_a_text(unpack: Unpack):
    def attached(message: EmailMessage):
        message.set_content("hello")
        key = b"-----BEGIN PGP PUBLIC KEY BLOCK-----\n\nmDMEZ"
        message.add_attachment(key, "application", "pgp-keys", filename="OpenPGP_0xA.asc")
        letter = b"-----BEGIN PGP MESSAGE-----\n\nhF4DZ"
        message.add_attachment(letter, "application", "octet-stream", filename="encrypted.asc")

    found, members = unpack(office.eml(attached), "a.eml")

    assert members == {}
    assert found.warnings == ("1 file in it was not read, because it is encrypted.",)


def test_what_a_mac_keeps_of_a_file_is_no_attachment(unpack: Unpack):
    def part(kind: str, data: bytes) -> str:
        head = f'--y\nContent-Type: {kind}; name="a.csv"\nContent-Transfer-Encoding: base64\n\n'
        return head + base64.b64encode(data).decode() + "\n"

    kind = "Content-Type: multipart/{}; boundary={}\n\n"
    head = f"From: a@orchard.test\nSubject: s\n{kind.format('mixed', 'x')}--x\n\nhello\n--x\n"
    fork = part("application/applefile", b"\x00\x05\x16\x07\x00\x02\x00\x00" + bytes(90))
    both = kind.format("appledouble", "y") + fork + part("text/csv", b"pears,2") + "--y--\n"

    for sent in (both, both.replace(fork, "")):
        found, members = unpack(f"{head}{sent}--x--\n".encode(), "a.eml")

        assert members == {"a.csv": b"pears,2"}
        assert found.text.endswith("Attachments: a.csv")
        assert found.warnings == ()


def test_a_message_that_is_but_a_file_hands_it_over(unpack: Unpack):
    head = b"From: a@orchard.test\nSubject: Scan\nContent-Type: application/pdf\n"
    scan = pdf("pears")
    coded = b"Content-Transfer-Encoding: base64\n\n" + base64.b64encode(scan)

    _, members = unpack(head + coded, "a.eml")

    assert [*members.values()] == [scan]


def test_a_warning_names_the_most_common_reasons(unpack: Unpack):
    def attached(message: EmailMessage):
        message.set_content("hello")
        for data in (b"", b"\0", b"-----BEGIN PGP MESSAGE-----", packed({"a": "apples"})[:-9]):
            message.add_attachment(data, "application", "octet-stream", filename="a.zip")

    found, _ = unpack(office.eml(attached), "a.eml")

    [warning] = found.warnings
    assert warning.startswith("4 files in it were not read: it is empty (1), ")
    assert warning.endswith(" (1), and others.")


@pytest.mark.parametrize(
    ("charset", "words"), [("iso-2022-jp", "梨は遅い"), ("windows-1250", "Žluté hrušky jsou zralé")]
)
def test_a_text_is_handed_over_as_its_charset_has_it(unpack: Unpack, charset: str, words: str):
    head = "From: a@orchard.test\nSubject: s\nContent-Type: multipart/mixed; boundary=x\n\n"
    part = f"--x\nContent-Type: text/plain; charset={charset}; name=a.txt\n\n"
    data = f"{head}--x\n\nhello\n{part}".encode() + words.encode(charset) + b"\n--x--\n"

    _, members = unpack(data, "a.eml")

    assert members == {"a.txt": words.encode()}


def test_a_byte_order_mark_counts_more_than_the_charset_that_is_told_beside_it(unpack: Unpack):
    """As of a table that a spreadsheet saved as Unicode: programs tell the charset of the mail."""
    words = "pears\tŽluté hrušky jsou zralé"

    def attached(message):
        message.set_content("See attached.")
        message.add_attachment(words.encode("utf-16"), "text", "plain", filename="a.txt")
        message.get_payload()[-1].set_param("charset", "iso-8859-1")

    _, members = unpack(office.eml(attached), "a.eml")

    assert members == {"a.txt": words.encode()}


def test_a_charset_beside_a_file_that_is_no_text_changes_nothing_in_it(unpack: Unpack):
    data = pdf("Žluté hrušky")

    def attached(message):
        message.set_content("See attached.")
        message.add_attachment(data, "text", "plain", filename="a.pdf")
        message.get_payload()[-1].set_param("charset", "iso-8859-1")

    _, members = unpack(office.eml(attached), "a.eml")

    assert members == {"a.pdf": data}


def test_a_message_with_nothing_to_hand_over_holds_no_files(unpack: Unpack):
    found, _ = unpack(office.eml(_plain), "a.eml")

    assert found.members is None


def test_paths_of_a_folder_begin_with_the_subject(unpack: Unpack):
    def message(subject: str, *names: str) -> bytes:
        def attached(message):
            message.set_content("See attached.")
            for name in names:
                message.add_attachment(b"pears", "text", "plain", filename=name)

        mail = office.eml(attached, subject=subject)
        return b"From a Mon Jan  1 00:00:00 2024\n" + mail + b"\n"

    first = message("Re: a/b", "bill.txt") + message("Re: a/b", "bill.txt", "more.txt")
    _, before = unpack(first, "a.mbox")
    _, after = unpack(first + message("Re: a/b", "bill.txt"), "a.mbox")

    assert len(before) == 3
    assert before.items() < after.items()
    assert all("/" not in path.split("/", 1)[1] for path in after)


@pytest.mark.parametrize("charset", ["utf-8", "latin-1"])
def test_names_in_raw_bytes_are_read(unpack: Unpack, charset: str):
    head = "From: a@orchard.test\nSubject: s\nContent-Type: multipart/mixed; boundary=x\n\n"
    odd = "--x\nContent-Type: text/ä\n\nplums\n"
    named = 'Content-Disposition: attachment; filename="Äpfel und Süßes.txt"'
    text = f"{head}--x\n\nhello\n{odd}--x\n{named}\n\npears\n--x--\n"

    found, members = unpack(text.encode(charset), "a.eml")

    assert [*members.values()] == [b"plums", b"pears"]
    assert members["Äpfel und Süßes.txt"] == b"pears"
    assert ", Äpfel und Süßes.txt" in found.text


@pytest.mark.parametrize(
    "name",
    ["../../etc/a.txt", "a\0b.txt", "\u202etxt.a.txt", "a/b.txt", "C:\\x.txt", "é" * 400 + ".txt"],
)
def test_no_name_of_an_attachment_leads_elsewhere(unpack: Unpack, name: str):
    named = f"Content-Disposition: attachment; filename*=utf-8''{quote(name, safe='')}"
    head = "From: a@orchard.test\nSubject: s\nContent-Type: multipart/mixed; boundary=x\n\n"

    _, members = unpack(f"{head}--x\n\nhello\n--x\n{named}\n\npears\n--x--\n".encode(), "a.eml")

    [path] = members
    assert path.isprintable()
    assert "/" not in path


def test_of_a_thousand_attachments_and_more_the_first_are_read(unpack: Unpack):
    part = "--x\nContent-Disposition: attachment; filename=a.txt\n\npears\n"
    head = "From: a@orchard.test\nSubject: s\nContent-Type: multipart/mixed; boundary=x\n\n"
    mails = f"From a Mon Jan  1 00:00:00 2024\n{head}{part * 600}--x--\n\n" * 2

    found, members = unpack(mails.encode(), "a.mbox")

    assert len(members) == 1000
    assert found.warnings == (
        "200 files in it were not read, each because only 1,000 files of an archive are read.",
    )


def test_what_is_attached_to_a_form_that_is_not_read_is_named(read):
    def attached(message):
        message.set_content("The plain words of it all.")
        message.add_alternative("<p>The marked-up words.</p>", subtype="html")
        markup = message.get_payload()[1]
        shown = {"cid": "<logo>", "filename": "logo.png", "disposition": "inline"}
        markup.add_related(b"x", "image", "png", **shown)
        for how in ("attachment", "inline"):  # as Apple Mail shows a PDF
            named = {"filename": f"{how}.pdf", "disposition": how}
            markup.add_attachment(b"%PDF-1.4 secret", "application", "pdf", **named)
        inner = office.EmailMessage()
        inner.set_content("The pears are late.")
        inner.add_attachment(b"%PDF-1.4 secret", "application", "pdf", filename="inner.pdf")
        markup.add_attachment(inner)

    text = read(office.eml(attached)).text

    assert text.endswith(
        "The plain words of it all.\n\nAttachments: attachment.pdf, inline.pdf\n\n"
        "## Attached message\n\nThe pears are late.\n\nAttachments: inner.pdf"
    )


@pytest.mark.parametrize(
    "kind",
    [
        'text/plain; name="body.txt"\nContent-Disposition: inline; filename="body.txt"',
        "text/plain\nContent-Disposition: attachment",
        "text/markdown",
        "text/enriched",
        "multipart/mixed",
        "multipart/mixed; boundary=x",
    ],
)
def test_all_that_a_message_has_is_its_text_whatever_it_is_called(read, kind):
    head = f"From: a@b.test\nMessage-ID: <1@x>\nMIME-Version: 1.0\nContent-Type: {kind}"

    assert read(f"{head}\n\nThe pears are late.\n", "a.eml").text == (
        "From: a@b.test\n\nThe pears are late."
    )


def test_a_message_within_a_message_follows_it(read):
    def forwarded(message):
        message.set_content("Look at this.")
        inner = office.EmailMessage()
        inner["Subject"], inner["From"] = "Inner", "dora@orchard.test"
        inner.set_content("The pears are late.")
        message.add_attachment(inner)

    text = read(office.eml(forwarded)).text

    assert text.endswith(
        "Look at this.\n\n## Attached message\n\nFrom: dora@orchard.test\nSubject: Inner\n\n"
        "The pears are late."
    )


@pytest.mark.parametrize("charset", ["iso-8859-1", "utf-8", "windows-1252", "no-such-charset", ""])
def test_a_body_is_read_in_its_charset_or_by_its_bytes(read, charset):
    words = "Die Bäume tragen schöne Äpfel; das Öl ist süß, über Größe läßt sich streiten."
    encoded = words.encode("utf-8" if charset in ("utf-8", "no-such-charset") else "cp1252")
    kind = f"Content-Type: text/plain; charset={charset}\r\n" if charset else ""
    data = f"From: a@b.test\r\nMessage-ID: <1@x>\r\n{kind}\r\n".encode() + encoded

    assert words in read(data, "a.eml").text


@pytest.mark.parametrize(
    ("charset", "codec", "words"),
    [
        ("iso-8859-1", "cp1252", "“Don’t”, he said – 5 €"),
        ("gb2312", "gb18030", "朱镕基"),
        ("ks_c_5601-1987", "cp949", "펲시 똠방각하"),
        ("shift_jis", "cp932", "①髙橋"),
        ("undefined", "utf-8", "Größe"),
        ("idna", "utf-8", "Größe"),
        ("punycode", "utf-8", "Größe"),
        ("utf-16", "utf-8", "Größe"),
        ("utf-16le", "utf-16-le", "日本語のテキスト"),
        ("utf-16be", "utf-16-be", "日本語のテキスト"),
        ("hex", "utf-8", "Größe"),
        ("UTF-7", "utf-7", "Größe & süß"),
        ("unicode-1-1-utf-7", "utf-7", "日本語のテキスト"),
    ],
)
def test_a_charset_means_what_programs_write_under_its_name(read, charset, codec, words):
    encoded = words.encode(codec)
    subject = base64.b64encode(encoded).decode()
    data = (
        f"From: a@b.test\nMessage-ID: <1@x>\nSubject: =?{charset}?B?{subject}?=\n"
        f"Content-Type: text/plain; charset={charset}\n\n".encode()
        + encoded
    )
    extracted = read(data, "a.eml")

    assert extracted.title == words
    assert extracted.text.endswith(f"\n\n{words}")


def test_headers_in_raw_bytes_are_read(read):
    data = "From: a@b.test\nMessage-ID: <1@x>\nSubject: Größe – süß\n\nx".encode()

    assert read(data).title == "Größe – süß"


@pytest.mark.parametrize(
    "header",
    ["Date: the day before", "Date: Mon, 99 Feb 9999 99:99:99", "Subject: =?utf-8?b?!!!?=",
     "Subject: =?no-such?q?a?=", "From: <<>>@@,,;", "Content-Type: multipart/mixed",
     "Content-Type: text/plain; charset*=x'y'z%%", "Content-Transfer-Encoding: base64",
     "Content-Type: text/plain; name*=a; name*0=b", "Content-Type: text/plain; charset*=%00'x'y",
     "Content-Type: multipart/mixed; charset=undefined; x=\N{WHITE SQUARE}\n\n\N{WHITE SQUARE}",
     "Content-Disposition: ;;;filename=\"", "To: " + "(" * 5000],
)  # fmt: skip
def test_broken_headers_break_nothing(read, header):
    data = f"Message-ID: <1@x>\nFrom: a@b.test\n{header}\n\nThe body of it.\n".encode()

    assert read(data, "a.eml").text.startswith("From: ")


def test_ten_thousand_nested_parts_end(read):
    kind = "Content-Type: multipart/mixed; boundary="
    parts = "".join(f'{kind}"b{n}"\n\n--b{n}\n' for n in range(10_000))
    with pytest.raises(Permanent, match="nested too deeply"):
        read(f"From: a@b.test\nMessage-ID: <1@x>\n{parts}\ndeep", "a.eml")


def test_ten_thousand_parts_beside_each_other_are_cut_with_a_warning(read):
    head = 'From: a@b.test\nMessage-ID: <1@x>\nContent-Type: multipart/mixed; boundary="b"\n\n'
    parts = "".join(f"--b\n\npart {n}\n" for n in range(10_000))
    extracted = read(head + parts, "a.eml")

    assert "part 9\n" in extracted.text
    assert "too many" in extracted.warnings[0]


def test_messages_within_messages_end(read):
    data = "Subject: deep\n\nx"
    for n in range(50):
        data = f"From: a@b.test\nMessage-ID: <{n}@x>\nContent-Type: message/rfc822\n\n{data}"
    extracted = read(data, "a.eml")

    assert extracted.text.count("Attached message") == 4
    assert "too many" in extracted.warnings[0]


def test_a_letter_within_a_form_is_read(read):
    def formed(message):
        message.set_content("<form action='/x'><p>The apples are ripe.</p></form>", subtype="html")

    assert read(office.eml(formed)).text.endswith("\n\nThe apples are ripe.")


def _dashed(message):
    message.set_content("Dear Bert,\n\nFrom today on\n\nit is ripe.\n")


def test_all_messages_of_a_folder_are_read_under_their_subjects(read):
    mark = b"From anna@orchard.test Mon Feb  5 10:11:12 2024\n"
    letters = [office.eml(_plain, subject="Äpfel"), office.eml(_dashed, subject="Pears")]
    folder = b"\n".join(mark + one.replace(b"\nFrom today", b"\n>From today") for one in letters)
    lined = folder.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n")

    for data in (folder, lined):
        extracted = read(data, "Inbox.mbox")
        assert extracted.title is None
        assert [line for line in extracted.text.splitlines() if line.startswith("##")] == [
            "## Äpfel", "## Pears",
        ]  # fmt: skip
        assert "Subject: Pears\n\nDear Bert,\n\nFrom today on\n\nit is ripe." in extracted.text
    assert read(folder).text == read(folder, "Inbox.mbox").text
    assert read(mark + letters[1]).title == "Pears"


def test_a_line_of_a_letter_begins_no_other_message(read):
    mark = b"From bert@orchard.test Mon Feb  5 10:11:12 2024\n"
    letter = b"Subject: Trip\n\nWell,\n\nFrom Rome at 10:30 we go on\nNote: bring water\n"

    assert (
        "\n\nFrom Rome at 10:30 we go on\nNote: bring water" in read(mark + letter, "1.mbox").text
    )
    both = read(mark + letter + b"\n" + mark + letter, "1.mbox").text
    assert both.count("## ") == 2
    assert both.count("From Rome at 10:30 we go on\nNote: bring water") == 2


def test_a_message_that_is_longer_than_apple_mail_says_is_read_to_its_end(read):
    letter = office.eml(_plain)

    assert read(b"%d\n%s" % (len(letter) - 9, letter)).text == read(letter).text


def test_a_message_of_apple_mail_ends_ahead_of_its_settings(read):
    letter = office.eml(_plain)
    data = b"%d  \n%s<?xml version='1.0'?><plist><dict/></plist>" % (len(letter), letter)

    assert read(data, "1.emlx").text == read(letter, "1.eml").text
    assert read(data).title == "Harvest"


def test_a_page_saved_as_a_message_is_read(read, unpack: Unpack):
    data = (
        b"MIME-Version: 1.0\nContent-Type: multipart/related; boundary=x\n\n--x\n"
        b"Content-Type: text/html\n\n<p>Pears</p>\n--x\nContent-Type: text/css\n\np{}\n--x--"
    )

    assert unpack(data, "a.mht")[0].members is None
    assert read(data, "a.mht").text == "Pears\n\nAttachments: unnamed (text/css)"


def test_the_parts_of_a_saved_page_are_named_by_their_addresses(read):
    def part(kind: str, address: str) -> str:
        return f"--B\nContent-Type: {kind}\nContent-Location: {address}\n\nAAAA\n"

    page = (
        "MIME-Version: 1.0\nSubject: Saved\nContent-Type: multipart/related; boundary=B\n\n"
        "--B\nContent-Type: text/html\nContent-Location: http://x.test/\n\n<p>Pears are ripe.</p>\n"
        + part("image/png", "http://x.test/a/ripe%20pear.png?size=2")
        + part("text/css", "http://x.test/look.css")
        + part("image/gif", "cid:12@x.test")
        + "--B\nContent-Type: image/jpeg\n\nAAAA\n--B--\n"
    )

    assert read(page, "a.mht").text == (
        "Subject: Saved\n\nPears are ripe.\n\nAttachments: ripe pear.png, unnamed (image/jpeg)"
    )


INVITATION = (
    "BEGIN:VCALENDAR\r\nMETHOD:REQUEST\r\nBEGIN:VEVENT\r\nSUMMARY:Äpfel pflücken\r\n"
    "DTSTART:20240205T090000Z\r\nLOCATION:Field 5\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"
)
INVITED = "## Äpfel pflücken\n\nStart: 2024-02-05 09:00 UTC\nLocation: Field 5"


def test_an_invitation_tells_what_when_and_where(read):
    def fill(message):
        message.set_content("Do come to our meeting.")
        message.add_alternative("<p>Do come to our meeting.</p>", subtype="html")
        message.add_alternative(INVITATION, subtype="calendar")

    assert read(office.eml(fill)).text.endswith(f"Do come to our meeting.\n\n{INVITED}")


def test_a_message_that_is_but_an_invitation_is_read(read):
    def fill(message):
        message.set_content(INVITATION, subtype="calendar")

    assert read(office.eml(fill)).text.endswith(f"Subject: Harvest\n\n{INVITED}")


def test_a_report_tells_what_became_of_a_message(read):
    data = (
        b"From: daemon@x.test\nMIME-Version: 1.0\nSubject: Returned\n"
        b"Content-Type: multipart/report; boundary=B\n\n"
        b"--B\nContent-Type: text/plain\n\nIt did not arrive.\n"
        b"--B\nContent-Type: message/delivery-status\n\nReporting-MTA: dns; x.test\n\n"
        b"Final-Recipient: rfc822; ann@x.test\nDiagnostic-Code: smtp; 550\n no such box\n\n--B--\n"
    )

    assert read(data, "a.eml").text.endswith(
        "It did not arrive.\n\nReporting-MTA: dns; x.test\n\n"
        "Final-Recipient: rfc822; ann@x.test\nDiagnostic-Code: smtp; 550 no such box"
    )
