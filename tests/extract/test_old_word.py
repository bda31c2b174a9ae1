"""DOC, RTF and ODT: words, headings and umlauts survive; locks and damage are told apart."""

import io
import struct
import zipfile
from collections.abc import Mapping

import pytest

from recollect.errors import Permanent
from tests.extract import office, samples

WORDS = "Die Äpfel sind reif – „sehr“ süß, und kosten 1,20 €."
_XLINK = "http://www.w3.org/1999/xlink"
RICH = rb"{\rtf1\ansi\ansicpg1252{\info{\title \'c4pfel & Birnen}}"


def test_an_old_word_file_gives_its_words(read):
    extracted = read(office.doc(WORDS), "old.doc")

    assert extracted.text == WORDS
    assert extracted.kind == "text"


def test_an_odt_gives_headings_and_words(read):
    extracted = read(office.odt("# Ernte", WORDS, "zwei"), "a.odt")

    assert extracted.text == f"# Ernte\n\n{WORDS}\n\nzwei"
    assert extracted.title == "Ernte"


BOX = "<draw:frame><draw:text-box><text:p>{}</text:p></draw:text-box></draw:frame>"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (f"<text:p>Seen{BOX.format('boxed')} here</text:p>", "Seen here\n\nboxed"),
        (f"<draw:g>{BOX.format('one')}{BOX.format('two')}</draw:g>", "one\n\ntwo"),
        (
            f"<text:p>Seen<draw:g>{BOX.format('one')}{BOX.format('two')}</draw:g></text:p>"
            "<text:p>later</text:p>",
            "Seen\n\none\n\ntwo\n\nlater",
        ),
        ('<text:p>a<text:s/>b<text:s text:c="3"/>c</text:p>', "a b c"),
        (
            "<text:p>Seen<draw:frame><draw:image/><svg:title>A tree</svg:title></draw:frame>"
            "</text:p>",
            "SeenA tree",
        ),
        (f"<text:p/><draw:g>{BOX.format('one')}</draw:g>", "one"),
        ("<text:p>Seen<draw:g/></text:p><text:p>later</text:p>", "Seen\n\nlater"),
        (f"<text:p>Seen<draw:frame/>{BOX.format('boxed')}</text:p>", "Seen\n\nboxed"),
        (
            f"<text:list><text:list-item><text:p>Seen{BOX.format('boxed')}</text:p>"
            "</text:list-item></text:list>",
            "- Seen\n- boxed",
        ),
        (f"<text:p>Seen{BOX.format('one' + BOX.format('two'))}</text:p>", "Seen\n\none\n\ntwo"),
        (
            f"<text:p>Seen<draw:g>{BOX.format('boxed')}<draw:rect><text:p> drawn</text:p>"
            "</draw:rect></draw:g></text:p>",
            "Seen drawn\n\nboxed",
        ),
    ],
    ids=[
        "a box",
        "a group",
        "a group in a paragraph",
        "spaces",
        "a picture",
        "a group behind an empty paragraph",
        "an empty group",
        "an empty frame",
        "a box in a list",
        "a box in a box",
        "a shape in a group",
    ],
)
def test_boxes_groups_and_spaces_of_an_odt_are_read_once(read, body, text):
    assert read(office.odf("text", body), "a.odt").text == text


def test_an_index_of_an_odt_has_its_title(read):
    body = (
        "<text:table-of-content><text:index-body><text:index-title><text:p>Contents</text:p>"
        "</text:index-title><text:p>One 1</text:p></text:index-body></text:table-of-content>"
    )

    assert read(office.odf("text", body), "a.odt").text == "Contents\n\nOne 1"


def test_each_note_of_an_odt_stands_where_its_reference_does(read):
    def note(*blocks):
        return (
            '<text:note text:note-class="footnote"><text:note-citation>7</text:note-citation>'
            f"<text:note-body>{''.join(blocks)}</text:note-body></text:note>"
        )

    words = "<office:creator>Ann</office:creator><text:p>Which?</text:p>"
    ripe = note('<text:p text:style-name=">">Ripe</text:p>', "<text:p>Sweet</text:p>")
    listed = "<text:list><text:list-item><text:p>Red</text:p></text:list-item></text:list>"
    body = (
        f"<text:tracked-changes><text:p>Gone{note('<text:p>gone</text:p>')}</text:p>"
        "</text:tracked-changes><text:h text:outline-level='1'>Fruit</text:h>"
        f"<text:p>Apples{ripe} and"
        f"<text:s/>pears{note(listed)}.</text:p><text:p>Plums{note('<text:p/>')}"
        f"<office:annotation>{words}</office:annotation></text:p>"
    )

    assert read(office.odf("text", body), "a.odt").text == (
        "# Fruit\n\nApples[^1] and pears[^2].\n\nPlums[^3][^comment1]\n\n"
        "[^1]: Ripe\n\nSweet\n\n[^2]:\n\n- Red\n\n[^3]:\n\n[^comment1]: Which?"
    )


def _formula(number: int, anchor: str) -> str:
    return (
        f'<draw:frame text:anchor-type="{anchor}"><draw:object xmlns:xlink="{_XLINK}"'
        f' xlink:href="./F{number}"/></draw:frame>'
    )


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (
            f"<text:p>with {_formula(0, 'as-char')} and {_formula(1, 'as-char')} in it</text:p>"
            f"<text:p>{_formula(2, 'paragraph')}</text:p><text:p>end</text:p>",
            "with $x$ and $y$ in it\n\n$$z$$\n\nend",
        ),
        (
            f"<text:p>one {_formula(0, 'as-char')}<text:note><text:note-body><text:p>so "
            f"{_formula(1, 'as-char')}</text:p></text:note-body></text:note></text:p>",
            None,
        ),
    ],
)
def test_an_equation_of_an_odt_stays_in_its_line(read, body, text):
    with zipfile.ZipFile(io.BytesIO(office.odf("text", body))) as parts:
        content = {name: parts.read(name) for name in parts.namelist()}
    for number, letter in enumerate("xyz"):
        content[f"F{number}/content.xml"] = (
            f'<math xmlns="http://www.w3.org/1998/Math/MathML"><mi>{letter}</mi></math>'
        ).encode()
    found = read(office.packed(content), "a.odt").text

    assert found == text if text else found.count("x") == found.count("y") == 1
    assert "\U0010fffc" not in found


def test_reading_aids_do_not_break_the_words_of_an_odt(read):
    ruby = "<text:ruby><text:ruby-base>{}</text:ruby-base>{}</text:ruby>"
    body = ruby.format("東", "<text:ruby-text>とう</text:ruby-text>") + ruby.format(
        "京", "<text:ruby-text/>"
    )

    assert read(office.odf("text", f"<text:p>{body}です</text:p>"), "a.odt").text == "東京です"


@pytest.mark.parametrize(
    ("told", "text"),
    [
        ("<svg:title>A</svg:title><svg:desc>Goose</svg:desc>", "A Goose\n\nA goose"),
        ("<svg:desc>A goose</svg:desc>", "A goose"),
        ("<svg:desc>Geese</svg:desc>", "Geese\n\nA goose"),
    ],
)
def test_what_is_said_of_a_picture_of_an_odt_is_said_once(read, told, text):
    picture = f"<text:p><draw:frame><draw:image/>{told}</draw:frame></text:p>"

    assert read(office.odf("text", f"{picture}<text:p>A goose</text:p>"), "a.odt").text == text


def test_a_damaged_picture_costs_no_word_of_an_odt(read):
    data = office.odf("text", "<text:p>a<text:s/>b</text:p>")
    out = io.BytesIO(data)
    with zipfile.ZipFile(out, "a") as archive:
        archive.writestr("Pictures/1.png", b"picture")

    assert read(out.getvalue().replace(b"picture", b"damaged"), "a.odt").text == "a b"


def test_an_rtf_gives_its_words_and_its_title(read):
    extracted = read(office.rtf(WORDS, "braces { } and \\ too!"), "a.rtf")

    assert extracted.text == f"{WORDS}\n\nbraces {{ }} and \\ too!"
    assert read(RICH + rb" Gr\'fc\'dfe\par}").title == "Äpfel & Birnen"
    assert read(RICH + rb" Gr\'fc\'dfe\par}").text == "Grüße"


def test_a_table_within_a_cell_of_an_rtf_is_read_once(read):
    nested = (
        rb"\itap2 b\nestcell c\nestcell{\*\nesttableprops\trowd\cellx500\cellx900\nestrow}"
        rb"{\nonesttables\par {b} c\par}"
    )
    body = rb"\trowd\cellx1000\cellx2000\pard\intbl a %s\cell d\cell\row " % nested

    assert read(rb"{\rtf1\ansi %s\pard e\par}" % body).text == "| a b c | d |\n| --- | --- |\n\ne"


def test_spaces_and_hyphens_of_an_rtf_that_do_not_break_are_themselves(read):
    body = rb"{\rtf1\ansi {\b 12\b0\~000} kg of A\_Z in\~C:\\~tmp ~ \\_x\par}"

    assert read(body).text == "**12**\xa0000 kg of A\u2011Z in\xa0C:\\~tmp ~ \\_x"


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (rb"Ann\rquote s", "Ann’s"),
        (rb"\ldblquote so\rdblquote\emdash it is", "“so”—it is"),
        (rb"2\endash 3\bullet x", "2–3•x"),
        (rb"\uc0 Ann\rquote s{\uc2 a\rquote b}c\rquote", "Ann’sa’bc’"),
        (rb"C:\\temp\\row\\cell \{\\par\}", r"C:\temp\row\cell {\par}"),
        (rb"x {\uc0\\*\\b}", r"x \*\b"),
    ],
)
def test_signs_in_a_table_of_an_rtf_stay_and_so_do_rows_and_headings(read, written, shown):
    row = rb"\trowd\cellx2000\cellx4000\pard\intbl %s\cell b\cell\row "
    heading = rb"\pard x\par\pard\outlinelevel1 Prices\par\pard y\par"

    assert read(rb"{\rtf1\ansi %s%s%s}" % (row % written, row % b"a", heading)).text == (
        f"| {shown} | b |\n| --- | --- |\n| a | b |\n\nx\n\n## Prices\n\ny"
    )


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (rb"a \u-10180?\u-8398? b", "a 🌲 b"),
        (rb"a \u-10180\'3f\u-8398\'3f b", "a 🌲 b"),
        (rb"\uc0 a \u55356 \u57168  b", "a 🍐 b"),
        (rb"a\page b\par c\sect d\column e", "a\n\nb\n\nc\n\nd\n\ne"),
        (rb"a \deleted gone \deleted0 stays", "a stays"),
        (rb"a {\pict\pngblip 89504e47}b", "a b"),
        (rb"a{\super\chftn}{\*\footnote\chftn\pard  So.}", "a[^1]\n\n[^1]: So."),
        (rb"a{\*\atnid Z}\chatn{\*\annotation{\*\atnref 1}\pard  So.}", "a\n\n[Comment 1]: So."),
        (
            rb"a{\chftn{\footnote{\*\bkmkstart x} "
            rb'{\field{\*\fldinst HYPERLINK "http://x.test"}{\fldrslt So}}.}}',
            "a[^1]\n\n[^1]: So.",
        ),
    ],
)
def test_an_rtf_says_what_its_programs_show(read, written, shown):
    assert read(rb"{\rtf1\ansi %s\par}" % written).text == shown


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        (rb"H{\sub 2}O", "H2O"),
        (b"{\\f1 un}\r\ntrue", "untrue"),
        (rb"{\field{\*\fldinst HYPERLINK http://a.test}{\fldrslt it}}s", "[it](http://a.test)s"),
        (rb"a{\i0\*\cs7 b}c {\i0 \*\cs7 d}{\*\cs7 e}{\*\cs7 f} C:\\*\\g", r"abc d C:\*\g"),
        (rb"a{x}\lang7 b {c} d {e}, {f }g\}h", "axb c d e, f g}h"),
    ],
)
def test_a_group_of_an_rtf_does_not_part_a_word(read, written, shown):
    assert read(rb"{\rtf1\ansi\pard %s\par}" % written).text == shown


def test_styles_of_headings_make_some_where_a_paragraph_does_not_say_so(read):
    styles = rb"{\stylesheet{\s0\ql Default;}{\s1\sbasedon0\b Heading 1;}{\s22\b\ql heading 2;}}"
    body = (
        rb"\pard\plain \s1\ql\b{\loch Pears}\par\pard\plain \s22 Trees\par\pard\s0 \\s1 it is\par"
    )

    text = read(rb"{\rtf1\ansi" + styles + body + b"}").text

    assert text == "# Pears\n\n## Trees\n\n\\s1 it is"


@pytest.mark.parametrize(
    ("instruction", "address"),
    [
        (rb'HYPERLINK "http://x.test/\'e4/\u1103?"', "http://x.test/%C3%A4/%D1%8F"),
        (rb'HYPERLINK "http://x.test/a" \\o "a \'e4" \\t "_blank"', "http://x.test/a"),
        (rb'HYPERLINK "http://x.test/a" \\l "part"', "http://x.test/a#part"),
        (rb'HYPERLINK \\l "part"', "#part"),
        (rb'{\lang7 HYPERLINK "http://x.test" }{{\*\datafield 00d0c9ea\n79f9}}', "http://x.test"),
        (rb"HYPERLINK mailto:a@b.test", "mailto:a@b.test"),
    ],
)
def test_a_link_of_an_rtf_leads_where_it_does(read, instruction, address):
    field = rb"{\field{\*\fldinst %s}{\fldrslt caf\'e9 \u1103?}}" % instruction
    text = read(rb"{\rtf1\ansi\ansicpg1252 a %s b\par}" % field).text

    assert text == f"a [caf\u00e9 \u044f]({address}) b"


def test_an_rtf_of_an_old_macintosh_is_read_in_its_code_page(read):
    assert read(rb"{\rtf1\mac caf\'8e\par}").text == "café"


_JAPANESE = (
    rb"{\rtf1\ansi\ansicpg932{\fonttbl{\f0\fcharset128 A;}{\f1\fcharset0 B;}{\f2\fcharset204 C;}}"
    rb"\f0 %s\par}"
)


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (rb"{\rtf1\pc \'81ber \'84hnlich\par}", "über ähnlich"),
        (rb"{\rtf1\pca\uc0 \'81ber \'84hnlich\par}", "über ähnlich"),
        (rb"{\rtf1\ansi\ansicpg850 \'81ber \u228\'84hnlich\par}", "über ähnlich"),
        (b"{\\rtf1\\ansi\\ansicpg1252 \xfcber \xe4hnlich\\par}", "über ähnlich"),
        (b"{\\rtf1\\ansi\\ansicpg1252 \xc3\xbcber \xf0\x9f\x8d\x90\\par}", "über 🍐"),
        (_JAPANESE % rb"\'83e\'83X\'83g {\f1 caf\'e9t} \uc2\u26085\'93\'fa", "テスト cafét 日"),
        (_JAPANESE % b"\x83e\x83X\\'83\\'67 \\'b1", "テスト ｱ"),
        (_JAPANESE % b"{\\pict\\bin3 \xff}{}\x83e", "テ"),
        (_JAPANESE % b"{\\pict\\bin4 \xff\\~{}\x83e", "テ"),
        (_JAPANESE % b"\\'93\r\n\\'fa\\'96\r\n\\'7b\\'93\xfa", "日本日"),
        (_JAPANESE % rb"\f2\'cf\'f0\'e8\f0\'93\'fa", "При日"),
        (_JAPANESE % rb"a{\v b\'93\'fa\u233?\emdash c\plain\'93\'fa\v\'93\'fa\v0 d} e", "a日d e"),
        (_JAPANESE % rb"a{\deleted b\'93\'fa}\'93\'fa", "a日"),
    ],
    ids=[
        "437",
        "850",
        "850 by number",
        "raw",
        "UTF-8",
        "trail bytes",
        "raw trail bytes",
        "binary",
        "signs in binary",
        "lines",
        "other font",
        "hidden",
        "deleted",
    ],
)
def test_an_rtf_is_read_in_the_code_page_of_its_program_or_font(read, data, text):
    assert read(data).text == text


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_lines_of_an_rtf_end_anywhere(read, end):
    written = (
        "{/rtf1/ansi/ansicpg1251{/fonttbl{/f0 Arial;}{/f1/fcharset128 MS Mincho;}}/uc1/u1055|/'cf"
        "/u1080|/'e8/u8211|-|/u-10240|/'3f|/u-8398|/'3f {/f1/uc2/u12293|/'81|/'58/'92|/'57}|/par b}"
    ).replace("/", "\\")

    assert read(written.replace("|", end), "a.rtf").text == "Пи–𐌲 々淡\n\nb"


def test_the_title_of_an_rtf_in_numbers_is_read(read):
    written = rb"{\rtf1\ansi{\info{\title \u26085\'93 \u-10180?\u-8398? A}} x\par}"

    assert read(written).title == "日 🌲 A"


def test_what_the_pages_of_an_rtf_repeat_is_left_out(read):
    written = rb"{\rtf1{\header Secret\par}{\footerl\pard Page 1}a \headery720 b{\footer 2}c\par}"

    assert read(written).text == "a bc"


def test_hidden_words_of_an_rtf_are_left_out(read):
    assert read(rb"{\rtf1 seen {\v obey me} words\par}").text == "seen words"


def test_the_bytes_tell_the_kind(read):
    assert read(office.doc(WORDS)).text == WORDS
    assert read(office.rtf(WORDS), "a.txt").text == WORDS
    assert read(office.odt(WORDS), "upload", mime="application/octet-stream").text == WORDS
    assert read(office.doc(WORDS), "a.docx").text == WORDS
    assert read(office.doc(WORDS), "a.xls").text == WORDS


@pytest.mark.parametrize(
    ("data", "name"),
    [
        (office.doc(WORDS, password=True), "a.doc"),
        (office.ole({"EncryptedPackage": b"x" * 5000}), "a.docx"),
        (office.ole({"EncryptedPackage": b"x" * 5000}), None),
        (office.odf("text", "", manifest="<encryption-data/>"), "a.odt"),
    ],
)
def test_a_password_is_said_to_be_the_reason(read, data, name):
    with pytest.raises(Permanent, match="password") as caught:
        read(data, name)

    assert caught.value.code == "encrypted_file"


@pytest.mark.parametrize("part", [0.1, 0.5, 0.8])
@pytest.mark.parametrize("ending", ["doc", "odt"])
def test_a_cut_file_is_refused_or_read_in_part(read, ending, part):
    data = office.doc(WORDS * 100) if ending == "doc" else office.odt(WORDS * 100)
    try:
        outcome = read(data[: int(len(data) * part)], f"a.{ending}").text
    except Permanent as error:
        outcome = error.code
    assert outcome == "unreadable_content" or "Äpfel" in outcome


@pytest.mark.parametrize(
    "body",
    [
        "{" * 200_000 + "x",
        "\\'" * 100_000,
        "\\bin99999999 x",
        "{\\*\\x" * 50_000,
        "",
        "ü{\\uc9\\f0\\u1" * 50_000,
    ],
)
def test_odd_rtf_ends(read, body):
    try:
        read("{\\rtf1 " + body, "a.rtf")
    except Permanent as error:
        outcome = error.code
    else:
        outcome = "read"
    assert outcome in ("read", "unreadable_content", "extraction_crashed", "too_large")
    assert read(office.rtf("alive"), "a.rtf").text == "alive"


def test_a_powerpoint_of_old_is_not_taken_for_word(read):
    extracted = read(office.ppt([("Ernte", ["eins"]), ("", []), ("Obst", [])]), "a.doc")

    assert (extracted.text, extracted.title) == ("## Ernte\n\neins\n\nObst", "Ernte")
    assert [place.at for place in extracted.places] == [{"page": 1}, {"page": 3}]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (office.ppt([("Ernte", [])], password=True), "encrypted_file"),
        (office.ppt([("Ernte", ["x" * 9000])])[:5000], "unreadable_content"),
        (office.ole({"Other": b"x"}), "unreadable_content"),
    ],
)
@pytest.mark.parametrize("name", ["a.ppt", "a.msg"])
def test_no_powerpoint_of_old_nor_message_of_outlook(read, data, code, name):
    if code == "encrypted_file" and name == "a.msg":
        name = "a.ppt"
    with pytest.raises(Permanent) as caught:
        read(data, name)

    assert caught.value.code == code


def test_a_message_of_outlook_is_a_mail(read):
    extracted = read(office.msg("**To**: x", "**From**: y\n\nz", p0C1A="Ann"), "a.msg")

    assert extracted.title == "**To**: x"
    assert extracted.text == "From: Ann\nSubject: **To**: x\n\n**From**: y\n\nz"


LETTER = "Dear Bob,\r\n- one\r\n- two\r\n\r\nAnn"
TABLE = "<p>a<br>b<table><tr><td>x<td>y</table>"


# MS-OXRTFCP 4.1.1 and 4.1.2; the second writes a piece out of itself.
HELLO, AGAIN = (
    bytes.fromhex(packed)
    for packed in (
        "2d0000002b0000004c5a4675f1c5c7a703000a007263706731323542320af32068656c090020627705b06c647d"
        "0a800fa0",
        "1a0000001c0000004c5a4675e2d44b51410004205758595a0d6e7d010eb0",
    )
)
NOTHING = struct.pack("<II4sI", 12, 0, b"LZFu", 0)
AS_IS = struct.pack("<II4sI", 28, 16, b"MELA", 0) + rb"{\rtf1 as it is}"


def message(streams: Mapping[str, bytes], *, page: int = 0, of: int = 0x3FDE0003) -> bytes:
    """One of Outlook by its streams, without what their names begin with."""
    properties = bytes(32) + struct.pack("<IIII", of, 6, page, 0) * bool(page)
    named = {f"__substg1.0_{name}": data for name, data in streams.items()}
    return office.ole({"__properties_version1.0": properties, **named})


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (message({"1000001F": LETTER.encode("utf-16-le")}), LETTER.replace("\r", "")),
        (message({"1000001E": "чай".encode("cp1251")}, page=1251), "чай"),
        (message({"1000001E": "чай".encode("koi8-r")}, page=20866, of=0x3FFD0003), "чай"),
        (message({"10130102": f"<p>чай{TABLE}".encode("iso-8859-5")}, page=28595),
         "чай\n\na\nb\n\n| x | y |\n| --- | --- |"),
        (message({"1013001F": "<p>é</p>".encode("utf-16-le"), "1000001F": b"e\0"}), "é"),
        (message({"10130102": b"<p> </p>", "1000001F": b"e\0"}), "e"),
        (message({"10090102": HELLO, "1000001F": b"e\0"}), "e"),
        (message({"10090102": HELLO, "1000001F": b""}), "hello world"),
        (message({"10090102": AGAIN}), "WXYZWXYZWXYZWXYZWXYZ"),
        (message({"10090102": AS_IS}), "as it is"),
        (message({"10090102": NOTHING, "10130102": b"<p> </p>"}), ""),
    ],
)  # fmt: skip
def test_a_message_of_outlook_keeps_its_lines_and_cells(read, data, text):
    assert read(data, "a.msg").text == text


@pytest.mark.parametrize("packed", [b"?" * 40, HELLO[:16] + b"\1\xff\xf1"])
def test_a_message_whose_packed_text_is_damaged_is_refused(read, packed):
    with pytest.raises(Permanent, match="damaged"):
        read(message({"10090102": packed}), "a.msg")


def test_of_messages_within_each_other_each_has_its_own_text(read):
    """A page in another folder has the name that one of the message itself would have."""
    data = bytearray(message({"1000001F": b"o\0u\0t\0", "10130102": b"<p>in</p>"}))
    plain, page = (data.index(f"_{name}".encode("utf-16-le")) - 22 for name in (1000, 1013))
    data[plain + 72 : plain + 76] = data[page + 72 : page + 76]

    assert read(bytes(data), "a.msg").text == "out"


@pytest.mark.parametrize(
    "entity", ['<!ENTITY a "haha">', '<!ENTITY a SYSTEM "file:///etc/passwd">']
)
def test_entities_of_an_odt_are_not_expanded(read, entity):
    def poison(name: str, body: bytes) -> tuple[str, bytes]:
        if name != "content.xml":
            return name, body
        start = body.index(b"?>") + 2
        body = body[:start] + f"<!DOCTYPE x [{entity}]>".encode() + body[start:]
        return name, body.replace(b"Ernte", b"Ernte &a;")

    try:
        text = read(samples.repacked(office.odt("# Ernte"), poison), "a.odt").text
    except Permanent:
        return
    assert "haha" not in text
    assert "root:" not in text


def test_a_bomb_is_refused(read):
    with pytest.raises(Permanent) as caught:
        read(office.odt("x" * 100_000_000))

    assert caught.value.code == "too_large"
