"""Word: the numbers that it shows and nobody typed (ECMA-376 part 1, 17.9)."""

import pytest

from tests.extract import office

STYLES = (
    '<w:styles><w:style w:type="paragraph" w:styleId="Heading1"><w:name w:val="heading 1"/><w:pPr>'
    '<w:numPr><w:numId w:val="1"/></w:numPr><w:outlineLvl w:val="0"/></w:pPr></w:style>'
    '<w:style w:type="paragraph" w:styleId="Heading2"><w:name w:val="heading 2"/><w:pPr><w:numPr>'
    '<w:ilvl w:val="1"/><w:numId w:val="1"/></w:numPr><w:outlineLvl w:val="1"/></w:pPr></w:style>'
    '<w:style w:type="paragraph" w:styleId="Own"><w:name w:val="Own"/><w:basedOn w:val="Heading2"/>'
    "</w:style></w:styles>"
)
BARE = "<w:styles></w:styles>"


def level(at: int, text: str, format: str = "decimal", more: str = "", start: int = 1) -> str:
    return (
        f'<w:lvl w:ilvl="{at}"><w:start w:val="{start}"/><w:numFmt w:val="{format}"/>{more}'
        f'<w:lvlText w:val="{text}"/></w:lvl>'
    )


def p(words: str = "", num: int | None = None, at: int = 0, style: str = "", more: str = "") -> str:
    numbering = "" if num is None else f'<w:ilvl w:val="{at}"/><w:numId w:val="{num}"/>'
    style = f'<w:pStyle w:val="{style}"/>' if style else ""
    numbering = f"<w:numPr>{numbering}</w:numPr>" if numbering else ""
    run = f"<w:r><w:t>{words}</w:t></w:r>" if words else ""
    return f"<w:p><w:pPr>{style}{numbering}{more}</w:pPr>{run}</w:p>"


def word(body: str, *levels: str, overrides: str = "", styles: str = STYLES) -> bytes:
    lists = (
        f'<w:numbering><w:abstractNum w:abstractNumId="7">{"".join(levels)}</w:abstractNum>'
        '<w:num w:numId="1"><w:abstractNumId w:val="7"/></w:num>'
        f'<w:num w:numId="2"><w:abstractNumId w:val="7"/>{overrides}</w:num></w:numbering>'
    )
    parts = {"styles.xml": ("styles", styles), "numbering.xml": ("numbering", lists)}
    return office.docx(body, parts)


CONTRACT = (
    level(0, "Article %1.", "decimal", '<w:pStyle w:val="Heading1"/>'),
    level(1, "%1.%2", "decimal", '<w:pStyle w:val="Heading2"/>'),
    level(2, "(%3)", "lowerLetter"),
    level(3, "(%4)", "lowerRoman"),
)


def test_a_contract_is_read_as_it_is_cited(read):
    body = (
        p("Definitions", style="Heading1")
        + p("Terms", style="Heading2")
        + p("the Supplier", 1, 2)
        + p("the Buyer", 1, 2)
        + p("its parent", 1, 3)
        + p("Words of their own")
        + p("Notice", style="Own")
        + p("in writing", 1, 2)
        + p("Termination", style="Heading1")
        + p("At will", style="Heading2")
    )

    assert read(word(body, *CONTRACT), "a.docx").text.split("\n\n") == [
        "# Article 1. Definitions",
        "## 1.1 Terms",
        "(a) the Supplier",
        "(b) the Buyer",
        "(i) its parent",
        "Words of their own",
        "## 1.2 Notice",
        "(a) in writing",
        "# Article 2. Termination",
        "## 2.1 At will",
    ]


def test_a_plain_list_stays_one(read):
    body = p("one", 1) + p("two", 1) + p("a part", 1, 1) + p("three", 1)
    text = read(word(body, level(0, "%1."), level(1, "%2)"), styles=BARE), "a.docx").text

    assert text == "1. one\n2. two\n   1. a part\n3. three"


def test_a_list_goes_on_after_other_words(read):
    body = p("one", 1) + p("two", 1) + p("Meanwhile") + p("three", 1) + p("four", 1)

    text = read(word(body, level(0, "%1.")), "a.docx").text

    assert text == "1. one\n2. two\n\nMeanwhile\n\n3. three\n\n4. four"


def test_lists_count_together_until_one_starts_again(read):
    again = '<w:lvlOverride w:ilvl="0"><w:startOverride w:val="20"/></w:lvlOverride>'
    body = p("a", 1) + p("b", 2) + p("c", 1)

    together = read(word(body, level(0, "%1)", start=5)), "a.docx").text
    apart = read(word(body, level(0, "%1)", start=5), overrides=again), "a.docx").text

    assert together.split("\n\n") == ["5) a", "6) b", "7) c"]
    assert apart.split("\n\n") == ["5) a", "20) b", "21) c"]


def test_a_level_may_be_overridden_as_a_whole(read):
    other = f'<w:lvlOverride w:ilvl="0">{level(0, "§ %1", "upperRoman")}</w:lvlOverride>'

    text = read(word(p("a", 2) + p("b", 2), level(0, "%1."), overrides=other), "a.docx").text

    assert text.split("\n\n") == ["§ I a", "§ II b"]


def test_only_the_list_that_is_met_starts_again_and_only_on_its_level(read):
    levels = level(0, "A%1"), level(1, "A%1.%2")
    again = "".join(
        f'<w:lvlOverride w:ilvl="{at}"><w:startOverride w:val="1"/></w:lvlOverride>'
        for at in (0, 1)
    )
    body = p("a", 1) + p("b", 1) + p("c", 1, 1) + p("d", 2, 1) + p("e", 2, 1) + p("f", 2)

    text = read(word(body, *levels, overrides=again), "a.docx").text

    assert text.split("\n\n") == ["A1 a", "A2 b", "A2.1 c", "A2.1 d", "A2.2 e", "A3 f"]


def test_a_part_without_a_whole_ahead_takes_the_number_of_one(read):
    levels = level(0, "%1"), level(1, "%1.%2", "decimal", '<w:pStyle w:val="Heading2"/>')
    body = p("a", 1, 1) + p("b", 1, 1) + p("c", 1) + p("d", 1, 1)

    text = read(word(body, *levels), "a.docx").text

    assert text.split("\n\n") == ["1.1 a", "1.2 b", "2 c", "2.1 d"]


def test_an_override_makes_numbers_of_bullets_and_bullets_of_numbers(read):
    bullet, number = level(0, "\u2022", "bullet"), level(0, "%1.")
    body = p("a", 2) + p("b", 2)

    def overridden(own: str, other: str) -> str:
        over = f'<w:lvlOverride w:ilvl="0">{other}</w:lvlOverride>'
        return read(word(body, own, overrides=over, styles=BARE), "a.docx").text

    assert overridden(bullet, number).split("\n\n") == ["1. a", "2. b"]
    assert overridden(number, bullet).split("\n\n") == ["- a", "- b"]


def test_what_a_paragraph_does_not_say_of_its_list_its_style_does(read):
    def style(id: str, more: str, base: str = "") -> str:
        base = base and f'<w:basedOn w:val="{base}"/>'
        return (
            f'<w:style w:type="paragraph" w:styleId="{id}"><w:name w:val="{id}"/>{base}<w:pPr>'
            f"<w:numPr>{more}</w:numPr></w:pPr></w:style>"
        )

    def said(words: str, of: str, more: str = "") -> str:
        more = more and f"<w:numPr>{more}</w:numPr>"
        return p(words, style=of, more=more)

    own, deep, off = '<w:numId w:val="1"/>', '<w:ilvl w:val="1"/>', '<w:numId w:val="0"/>'
    styles = "".join(
        (style("A", own), style("B", own + deep), style("C", own, "B"), style("D", off, "B"))
    )
    body = (
        said("a", "A") + said("b", "A", deep) + said("c", "B", own) + said("d", "C")
        + said("e", "D") + said("f", "B", off) + said("g", "B", '<w:ilvl w:val="0"/>')
    )  # fmt: skip
    levels = level(0, "No. %1"), level(1, "No. %1.%2")

    text = read(word(body, *levels, styles=f"<w:styles>{styles}</w:styles>"), "a.docx").text

    assert text.split("\n\n") == [
        *("No. 1 a", "No. 1.1 b", "No. 1.2 c", "No. 1.3 d"),
        *("e", "f", "No. 2 g"),
    ]


@pytest.mark.parametrize(
    ("format", "shown"),
    [
        ("decimalZero", "07 30"),
        ("upperLetter", "G DD"),
        ("lowerRoman", "vii xxx"),
        ("ordinal", "7th 30th"),
        ("chineseCountingThousand", "七 三十"),
        ("hebrew1", "7 30"),
    ],
)
def test_numbers_are_written_in_many_ways(read, format: str, shown: str):
    levels = level(0, "%1:", format, start=7), level(1, "%2:", format, start=30)

    text = read(word(p("a", 1) + p("b", 1, 1), *levels), "a.docx").text

    assert text.replace(": a\n\n", " ").removesuffix(": b") == shown


def test_legal_numbers_and_levels_that_do_not_start_again(read):
    levels = (
        level(0, "%1", "upperRoman"),
        level(1, "%1.%2", more='<w:lvlRestart w:val="0"/><w:isLgl/>'),
    )
    body = p("a", 1) + p("b", 1, 1) + p("c", 1) + p("d", 1, 1)

    text = read(word(body, *levels), "a.docx").text

    assert text.split("\n\n") == ["I a", "1.1 b", "II c", "2.2 d"]


def test_rows_of_a_table_are_numbered(read):
    rows = "".join(
        f"<w:tr><w:tc>{p(num=1)}</w:tc><w:tc>{p(words)}</w:tc></w:tr>" for words in ("pear", "plum")
    )

    text = read(word(f"<w:tbl>{rows}</w:tbl>", level(0, "%1.")), "a.docx").text

    assert "| 1. | pear |" in text
    assert "| 2. | plum |" in text


def test_what_shows_no_number_takes_none(read):
    deleted = "<w:rPr><w:del w:id='1' w:author='x'/></w:rPr>"
    former = (
        "<w:pPrChange w:id='1' w:author='x'><w:pPr><w:numPr><w:ilvl w:val='0'/>"
        "<w:numId w:val='1'/></w:numPr></w:pPr></w:pPrChange>"
    )
    gone = p(num=1, more=deleted).replace("</w:p>", "<w:del><w:r><w:delText>x</w:delText></w:r>")
    body = (
        p("a", 1)
        + f"{gone}</w:del></w:p>"
        + p("formerly", more=former)
        + p("off", 0)
        + p("unknown", 99)
        + p(num=1)
        + "<w:p/>"
        + p("b", 1)
    )

    text = read(word(body, level(0, "No. %1")), "a.docx").text

    assert "No. 1 a" in text
    assert "No. 3 b" in text, "an empty paragraph has a number of its own"
    assert text.count("No.") == 2


def test_a_style_of_lists_says_by_which_one_it_counts(read):
    styles = (
        '<w:styles><w:style w:type="numbering" w:styleId="L"><w:name w:val="L"/><w:pPr><w:numPr>'
        '<w:numId w:val="2"/></w:numPr></w:pPr></w:style></w:styles>'
    )
    lists = (
        '<w:numbering><w:abstractNum w:abstractNumId="7"><w:numStyleLink w:val="L"/>'
        f'</w:abstractNum><w:abstractNum w:abstractNumId="8">{level(0, "Rule %1")}</w:abstractNum>'
        '<w:num w:numId="1"><w:abstractNumId w:val="7"/></w:num>'
        '<w:num w:numId="2"><w:abstractNumId w:val="8"/></w:num></w:numbering>'
    )
    parts = {"styles.xml": ("styles", styles), "numbering.xml": ("numbering", lists)}

    assert read(office.docx(p("a", 1), parts), "a.docx").text == "Rule 1 a"


@pytest.mark.parametrize(
    "levels",
    [
        (level(0, "%1" * 5_000, "upperRoman", start=999_999),),
        (level(0, "%9.%1.%8"),),
        (level(0, "&lt;b&gt; &amp; %1"),),
        ('<w:lvl w:ilvl="x"><w:start w:val="-1"/></w:lvl>', level(0, "%1", start=10**30)),
        (level(999_999, "%1"), level(0, "%1", start=7)),
    ],
    ids=["long", "levels that are none", "signs of XML", "no numbers", "too deep"],
)
def test_odd_lists_do_no_harm(read, levels: tuple[str, ...]):
    loop = (
        '<w:styles><w:style w:type="paragraph" w:default="1" w:styleId="A"><w:basedOn w:val="B"/>'
        '</w:style><w:style w:type="paragraph" w:styleId="B"><w:basedOn w:val="A"/></w:style>'
        "</w:styles>"
    )
    body = p("words", 1) + p("more words", 1, 999_999, style="B") + p("others")

    text = read(word(body, *levels, styles=loop), "a.docx").text

    assert "words" in text
    assert "others" in text
    assert len(text) < 1_500


def test_an_rtf_says_its_numbers_itself(read):
    word = rb"\pard\plain\ltrpar \rtlch\fcs1 \af0 \hich\af37\dbch\af31505\loch\f37 "
    labels = [rb"{\pntext (a)\tab}", rb"{\listtext\tab 1.2.\tab}", rb"{\listtext%s iv.\tab}" % word]
    bullets = [
        rb"{\listtext%s \'b7\tab}" % word,
        rb"{\listtext\f2 o\tab}",
        rb"{\pntext\u8226?\tab}",
    ]
    lines = [rb"%s\ls1 words\par" % label for label in (*labels, *bullets)]

    text = read(rb"{\rtf1\ansi\pard\par" + b"".join(lines) + b"}", "a.rtf").text

    assert text.split("\n\n") == ["(a) words", "1.2. words", "iv. words", *["words"] * 3]


LABELS = (
    (rb"1.", "1. "),
    (rb"2)", "2) "),
    (rb"iv.", "iv. "),
    (rb"\f3 \'b7", "- "),
    (rb"\u-3913 ?", "- "),
    (rb"Article 3 \endash ", "Article 3 \u2013 "),
    (rb"\'a7\~7", "\u00a7\u00a07 "),
    (
        rb"\u1057\'d1\u1090\'f2\u1072\'e0\u1090\'f2\u1100\'fc\u1103\'ff",
        "\u0421\u0442\u0430\u0442\u044c\u044f ",
    ),
    (rb"\u31532?\u19968?", "\u7b2c\u4e00 "),
)


@pytest.mark.parametrize("program", ["Word", "LibreOffice", "TextEdit"])
def test_the_numbers_of_an_rtf_stand_ahead_of_their_items(read, program: str):
    items = {
        # The number comes before the paragraph that it belongs to.
        "Word": rb"{\listtext\pard\plain\ltrpar \s15\loch\f31 %s\tab}\pard \ltrpar\s15\ql\fi-360"
        rb"\ls1\ilvl0\rin0 {\rtlch\fcs1 \af0 words\par }",
        "LibreOffice": rb"\pard\plain \s33\ql{\listtext\pard\plain  %s\tab}\ilvl0\ls2 "
        rb"{\loch words}\par ",
        "TextEdit": b"\\ls1\\ilvl0\n\\f0 {\\listtext\t%s\t}words\\\n",
    }
    body = b"".join(items[program] % label for label, _ in LABELS)

    text = read(rb"{\rtf1\ansi\deff0 \pard " + body + rb"\pard after\par}", "a.rtf").text

    assert text == "\n".join(f"{shown}words" for _, shown in LABELS) + "\n\nafter"


def test_the_levels_headings_and_cells_of_an_rtf_keep_their_numbers(read):
    label = rb"{\listtext\pard\plain %s\tab}\pard\plain"
    body = (
        (label % b"1.") + rb"\ls1\ilvl0 one\par" + (label % b"a.") + rb"\ls1\ilvl1 part\par"
        rb"\pard\par" + (label % b"Article 2.") + rb"\s1\ls2\outlinelevel0 Terms\par"
        rb"\trowd\cellx1000\cellx2000" + (label % b"7.")
        + rb"\intbl\ls3\cell pear\cell\row\pard x\par"
    )  # fmt: skip

    extracted = read(rb"{\rtf1\ansi " + body + b"}", "a.rtf")

    assert extracted.text.split("\n\n") == [
        "1. one\n  a. part",
        "# Article 2. Terms",
        "| 7. | pear |\n| --- | --- |",
        "x",
    ]
    assert extracted.title == "Article 2. Terms"
