"""Text and Markdown keep their words whatever the encoding; all output is clean."""

import base64
import json
import random
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.extract import _text
from recollect.extract._text import (
    clean,
    clean_placed,
    decode,
    looks_like_text,
    safe_name,
    without_data,
)

PANGRAMS = {
    "cp1252": "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich — „schön“. " * 3,
    "cp1251": "Съешь же ещё этих мягких французских булок, да выпей чаю. " * 3,
    "koi8-r": "Съешь же ещё этих мягких французских булок, да выпей чаю. " * 3,
    "shift-jis": "いろはにほへと ちりぬるを わかよたれそ つねならむ。日本語の文章です。" * 3,
    "gb18030": "我能吞下玻璃而不伤身体。这是一个用来测试编码的中文句子。" * 3,
    "euc-kr": "다람쥐 헌 쳇바퀴에 타고파. 한국어 문장으로 인코딩을 시험합니다. " * 3,
    "utf-16": "grüne Äpfel",
    "utf-16-be-bom": "grüne Äpfel",
    "utf-32": "grüne Äpfel",
    "utf-8-sig": "grüne Äpfel",
    "utf-8": "grüne Äpfel 🍏",
}


@pytest.mark.parametrize("encoding", PANGRAMS)
def test_text_is_read_in_its_encoding(read, encoding):
    text = PANGRAMS[encoding]
    if encoding == "utf-16-be-bom":
        data = b"\xfe\xff" + text.encode("utf-16-be")
    else:
        data = text.encode(encoding)

    assert read(data, "a.txt").text == text.strip()


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize(
    "text",
    ["hi", "grüne Äpfel\n", "我能吞下玻璃\n而不伤身体。", "Съешь ещё этих\n", "a,b\n1,2\n" * 9],
)
def test_utf16_is_known_without_its_mark(read, encoding, text):
    assert read(text.encode(encoding), "a.txt").text == text.strip()
    assert read(text.encode(encoding)).text == text.strip()


@pytest.mark.parametrize("data", [b"GIF89a\x01\0\x01\0", b"\0\0\0\x18ftyp", b"a\0\0b", bytes(64)])
def test_bytes_with_zeros_are_not_all_utf16(data):
    assert not looks_like_text(data)


def test_a_few_zeros_in_a_text_do_not_make_it_utf16():
    assert decode("über den Deich\0 und ab ins Meer".encode()) == "über den Deich\0 und ab ins Meer"


@pytest.mark.parametrize(
    ("encoding", "text"),
    [
        ("shift-jis", "名前,都市\n田中,東京\n"),
        ("shift-jis", "いろはにほへと"),
        ("gb18030", "客户,城市\n王,北京\n"),
        ("gb18030", "我能吞下玻璃"),
        ("cp1252", "Müller, Größe, 5 €"),
        ("cp1252", "naïve café"),
        ("cp1252", "“quoted” — é"),
        ("cp1252", "Le garçon mangea une crêpe à Noël"),
    ],
)
def test_a_few_words_are_enough_for_the_common_encodings(encoding, text):
    assert decode(text.encode(encoding)) == text


@pytest.mark.parametrize("encoding", ["koi8-r", "shift-jis", "cp1252"])
def test_the_lines_that_are_not_ascii_tell_the_encoding_wherever_they_stand(encoding):
    plain = "2026-11-22 12:00:00 INFO started, nothing to report\n" * 2_000
    text = plain + PANGRAMS[encoding] + "\n" + plain

    assert decode(text.encode(encoding)) == text


def test_a_character_cut_in_two_does_not_change_the_encoding(read):
    assert read("naïve café".encode()[:-1], "a.txt").text == "naïve caf"


def test_a_few_broken_bytes_do_not_change_the_encoding(read):
    data = "Äpfel und Öl. ".encode() * 50 + b"\xff end"

    assert read(data, "a.txt").text.startswith("Äpfel und Öl.")


def test_markdown_stays_as_it_is_and_gives_its_heading_as_title(read):
    source = "intro\n\n```sh\n# not this\n```\n\n# The *Title* #\n\n- a\n    - b\n\n| x |\n|---|\n"
    extracted = read(source, "a.md")

    assert extracted.text == source.strip()
    assert extracted.title == "The *Title*"
    assert extracted.kind == "text"


@pytest.mark.parametrize("heading", ["About C#", "About C# #", "About C#  ##  "])
def test_a_mark_that_is_part_of_a_word_stays_in_the_title(read, heading: str):
    assert read(f"# {heading}\n\ntext\n", "a.md").title == "About C#"


@pytest.mark.parametrize(
    ("lines", "title"),
    [
        ("title: Of herons\ntags:\n  - birds", "Of herons"),
        ("# a comment\ndate: 2026-11-27\nTitle: 'Herons: a life' \n", "Herons: a life"),
        ('title: "Herons"\r\ndraft: true\r', "Herons"),
        ("tags: [a]", "Heading"),
        ("title: >-\n  folded", "Heading"),
        ("title:\nx: y", "Heading"),
        ("", "Heading"),
    ],
)
def test_the_front_matter_of_markdown_gives_its_title(read, lines: str, title: str):
    source = f"---\n{lines}\n---\n\n# Heading\n\ntext\n"
    extracted = read(source, "a.md")

    assert extracted.title == title
    assert extracted.text.startswith("---\n")


def test_a_rule_at_the_beginning_is_no_front_matter(read):
    for source in (
        "---\nSome words.\ntitle: no\n\n---\n\n# Heading\n",
        "---\ntitle: no\n\n# Heading\n",
    ):
        assert read(source, "a.md").title == "Heading"


def test_plain_text_has_no_title(read):
    assert read("# comment\nvalue\n", "a.txt").title is None


def test_an_empty_file_is_an_empty_text_with_a_warning(read):
    for data in (b"", b" \n\t\n ", b"\xef\xbb\xbf"):
        extracted = read(data, "a.txt")

        assert extracted.text == ""
        assert list(extracted.warnings) == ["No text was found in it."]


@settings(deadline=None)  # the first guess loads what guesses
@given(st.binary(max_size=200))
def test_whatever_the_bytes_decoding_gives_text(data):
    clean(decode(data)).encode()


@given(st.text(st.characters(exclude_characters="\0"), min_size=1))
def test_utf8_text_is_always_taken_for_itself(text):
    assert decode(text.encode("utf-8", "replace")).strip("\ufeff") == text.encode(
        "utf-8", "replace"
    ).decode().strip("\ufeff")


@given(
    st.text(
        alphabet=st.sampled_from("ab \t\r\n\v\f\x00\x1b\x85\ud800\udfff\u200b\ufeffé🏴\U000e0067")
    )
)
def test_clean_text_has_one_form(text):
    cleaned = clean(text)

    cleaned.encode()
    assert clean(cleaned) == cleaned
    assert not set(cleaned) & set("\r\v\f\x00\x1b\x85\u200b\ufeff")
    assert "\n" * 5 not in cleaned
    assert not any(line.endswith((" ", "\t")) for line in cleaned.split("\n"))


def test_cleaning_keeps_what_is_content():
    assert clean("a\r\n\r\n  indented\té e\u0301 👨‍👩‍👧") == "a\n\n  indented\té e\u0301 👨‍👩‍👧"


def test_text_in_invisible_characters_is_dropped_but_flags_stay():
    smuggled = "".join(chr(0xE0000 + ord(letter)) for letter in "obey me")
    wales = "🏴" + "".join(chr(0xE0000 + ord(letter)) for letter in "gbwls") + "\U000e007f"

    assert clean(f"hello{smuggled} world {wales}") == f"hello world {wales}"


def test_long_runs_of_blanks_take_linear_time():
    assert clean("a" + " " * 3_000_000 + "b").endswith("b")


@given(st.text(alphabet=st.characters(exclude_categories=["Cc", "Cs"]), min_size=1))
def test_every_text_looks_like_text(text):
    assert looks_like_text(text.encode())


@pytest.mark.parametrize(
    ("sent", "kept"),
    [
        ("report.pdf", "report.pdf"),
        ("../../etc/passwd", "passwd"),
        ("C:\\Users\\a\\report.pdf", "report.pdf"),
        ("a\x00b\r\nc.txt", "ab c.txt"),
        ("gpj.\u202efdp.exe", "gpj.fdp.exe"),
        ("U\u0308bung.md", "Übung.md"),
        ("=cmd|' /C calc'!A0.csv", " C calc'!A0.csv".strip()),
        ("CON", "CON"),
        ("  spaced  .txt ", "spaced .txt"),
        ("ä" * 300 + ".docx", "ä" * 125 + ".docx"),
        ("x" * 300, "x" * 255),
        ("", None),
        (None, None),
        (".", None),
        ("..", None),
        ("/", None),
        ("\u202e", None),
    ],
)
def test_a_file_name_is_made_safe_to_show(sent, kept):
    assert safe_name(sent) == kept


@given(st.text())
def test_a_safe_name_stays_as_it_is(name):
    kept = safe_name(name)

    assert kept is None or (len(kept.encode()) <= 255 and "/" not in kept)
    assert safe_name(kept) == kept


PIECES = [*"aä \t\n\r\0\v.漢", "\r\n", "\u200b", "\u200d", "\ufe0f", "\x85", "\ud800"]


@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
def test_a_long_text_is_cleaned_as_a_short_one(text: str):
    """Long ones are cleaned in pieces, which end just behind where what may be cut begins."""
    before, after = "word " * 200, "\n" + "end. " * 100
    long = f"{before}\n{text}{after}"

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(_text, "_WINDOW", len(before) + 6)
        assert clean(long) == clean_placed(long, ())[0]


def test_a_text_of_several_pieces_is_cleaned_as_it_is_at_once():
    long = "".join(f"word {n} {piece}" for n in range(10_000) for piece in PIECES)

    assert len(long) > _text._WINDOW
    assert clean(long) == clean_placed(long, ())[0]


DATA = base64.b64encode(random.Random(51).randbytes(3_000)).decode()
LINES = "\n".join(DATA[at : at + 76] for at in range(0, len(DATA), 76))


@pytest.mark.parametrize(
    ("name", "source", "kept"),
    [
        (
            "a.md",
            f"before ![x](data:image/png;base64,{DATA}) after",
            "before ![x](data:image/png;base64,…) after",
        ),
        ("a.md", f"x\n\n[image1]: <data:image/png;base64,{DATA}>\n", "[image1]: <data:image/"),
        ("a.txt", f"before\n{LINES}\nafter", "before\n…\nafter"),
        ("a.txt", f"before\n{LINES}\nafter".replace("\n", "\r\n"), "before\n…\nafter"),
        ("a.json", json.dumps({"name": "quince", "image": DATA}), "name: quince\nimage: …"),
        ("a.xml", f"<?xml version='1.0'?><r><b>{LINES}</b><c>after</c></r>", "b: …\nc: after"),
        ("a.csv", f"name,image\nquince,{DATA}\npear,{DATA}\n", "image: …\nname: pear; image: …"),
        ("a.eml", f"From: a@b.example\nTo: c@d.example\n\nbefore\n{LINES}\n", "before\n…"),
        ("a.py", f"x = {DATA!r}\n", "x = '…'"),
    ],
)
def test_pictures_and_files_in_base64_are_left_out(read, name: str, source: str, kept: str):
    extracted = read(source.encode(), name)

    assert kept in extracted.text
    assert not re.search(r"[A-Za-z0-9+/]{40}", extracted.text)
    [warning] = extracted.warnings
    assert re.fullmatch(r"Data in base64 was left out \([48],[01]\d\d characters\)\.", warning)
    assert all(
        extracted.text[place.start :].startswith("name: ")
        for place in extracted.places
        if "row" in place.at
    )


@pytest.mark.parametrize(
    "said",
    [
        DATA[:480],
        random.Random(51).randbytes(1_000).hex(),
        "ACGTTGCA" * 200,
        "https://a.example/" + "Area51/photos/" * 80,
        "Donaudampfschifffahrtsgesellschaft" * 30,
        "\n".join(re.sub(r"\W", "x", DATA)[at : at + 64] for at in range(0, 3_000, 64)),
        "\n".join(f"{DATA[at : at + 86]}==" for at in range(0, 3_000, 86)),
        "".join(f"Sensor{at}Value{at * 7}" for at in range(80)),
    ],
    ids=["a key", "hexadecimal", "a gene", "an address", "a long word", "ids", "hashes", "names"],
)
def test_what_only_looks_a_little_like_base64_stays(said: str):
    shown, _, warnings = without_data(f"a {said} b")

    assert shown == f"a {said} b"
    assert not warnings


@pytest.mark.parametrize("data", [LINES[: 50 * 77 - 1], f"{LINES}=="])
def test_a_heading_below_base64_stays(data: str):
    shown, _, _ = without_data(f"{data}\n\nAcknowledgements\n")

    assert shown == "…\n\nAcknowledgements\n"


def test_what_an_address_calls_base64_is_left_out_whatever_it_is():
    white = base64.b64encode(b"\xff\xff\xff" * 800 + bytes(900)).decode()

    assert (
        without_data(f"![x](data:image/bmp;base64,{white})")[0] == "![x](data:image/bmp;base64,…)"
    )


# More could be the last line of the data.
_SHORT = st.text(st.characters(exclude_characters="="), max_size=15)


@given(st.text(), _SHORT, st.sampled_from([DATA, LINES[: 50 * 77 - 1]]))
def test_what_stands_around_base64_stays(before: str, after: str, data: str):
    text = f"{before} {data} {after}"

    shown, starts, _ = without_data(text, [0, len(before) + 1, len(text) - len(after)])

    assert shown == f"{before} … {after}"
    assert [*starts] == [0, len(before) + 1, len(shown) - len(after)]
