"""OpenDocument text: the numbers that a reader sees and nobody typed. What is expected is what
LibreOffice 7.4 shows of the same files."""

import time
from io import BytesIO
from zipfile import ZipFile

import pytest

from recollect.errors import Permanent
from recollect.extract.office._odf_numbers import numbered
from tests.extract import office


def number(at: int, format: str = "1", behind: str = ".", before: str = "", more: str = "") -> str:
    return (
        f'<text:list-level-style-number text:level="{at}" style:num-format="{format}" '
        f'style:num-prefix="{before}" style:num-suffix="{behind}" {more}/>'
    )


def bullet(at: int) -> str:
    return f'<text:list-level-style-bullet text:level="{at}" text:bullet-char="•"/>'


def style(name: str, *levels: str) -> str:
    return f'<text:list-style style:name="{name}">{"".join(levels)}</text:list-style>'


def items(*contents: str, style: str = "", more: str = "") -> str:
    """A list. Words alone are a paragraph."""
    named = f'text:style-name="{style}"' if style else ""
    inside = "".join(
        content
        if content.startswith("<text:list-")
        else f"<text:list-item>{p(content)}</text:list-item>"
        for content in contents
    )
    return f"<text:list {named} {more}>{inside}</text:list>"


def item(*contents: str, more: str = "") -> str:
    return f"<text:list-item {more}>{''.join(map(p, contents))}</text:list-item>"


def p(words: str) -> str:
    return words if words.startswith("<") or not words else f"<text:p>{words}</text:p>"


def h(words: str, level: int = 1, more: str = "") -> str:
    return f'<text:h text:outline-level="{level}" {more}>{words}</text:h>'


STYLES = (
    style("N", number(1), number(2), number(3, more='text:display-levels="3"'))
    + style("A", number(1, "a", ")"), number(2, "I", ")"))
    + style("B", bullet(1), bullet(2))
    + style("M", bullet(1), number(2))
    + style("O", number(1, "", ""), number(2))
    + style(
        "C",
        number(1, "1", ".", "Article "),
        number(2, "1", "", more='text:display-levels="2"'),
        number(3, "a", ")", "("),
        number(4, "i", ")", "("),
    )
    + style("S", number(1, "a", ")", more='text:start-value="26"'))
    + style("D", number(1, "A", ")", more='text:start-value="26" style:num-letter-sync="true"'))
    + style("P", number(1), number(2, "1", "", more='style:num-list-format="%1%-%2%"'))
    + style(
        "T",
        number(1)[:-2] + '><style:list-level-label-alignment text:label-followed-by="nothing"/>'
        "</text:list-level-style-number>",
    )
    + '<style:style style:name="P1" style:family="paragraph" style:list-style-name="A"/>'
    + '<style:style style:name="P2" style:family="paragraph" style:parent-style-name="P1"/>'
)
OUTLINE = '<text:outline-style style:name="Outline">{}</text:outline-style>'.format(
    "".join(
        level.replace("list-level-style-number", "outline-level-style")
        for level in (number(1, "I"), number(2, more='text:display-levels="2"'), number(3, "", ""))
    )
)


GO_ON = 'text:continue-numbering="true"'
PLAIN = "1. a\n2. b\n   1. c\n   2. d\n3. e"


def test_a_contract_is_read_as_it_is_cited(read):
    terms = item(
        h("Terms", 2),
        items("the Supplier", item("the Buyer", items("its parent"))),
    )
    body = (
        items(item(h("Definitions"), items(terms, item(h("Notice", 2)))), style="C")
        + p("Words of their own")
        + items(item(h("End"), items(item(h("At will", 2)))), style="C", more=GO_ON)
    )

    assert read(office.odf("text", body, STYLES), "a.odt").text.split("\n\n") == [
        "# Article 1. Definitions",
        "## 1.1 Terms",
        "(a) the Supplier",
        "(b) the Buyer",
        "(i) its parent",
        "## 1.2 Notice",
        "Words of their own",
        "# Article 2. End",
        "## 2.1 At will",
    ]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (items("a", item("b", items("c", "d", style="N")), "e", style="N"), PLAIN),
        (items("a", item("b", items("c", "d")), "e", style="N", more=""), PLAIN),
        (items("a", item("b", items("c")), style="B"), "- a\n- b\n  - c"),
        (items(item("a", items("b")), "c", style="M"), "- a\n  1. b\n- c"),
        (items("a", item("b", items("c", style="N")), style="B"), "- a\n- b\n  1. c"),
        (items("a", "b", style="A"), "a) a\n\nb) b"),
        (items("a", "b", style="T"), "1.a\n\n2.b"),
        (items("a", "b", style="S"), "z) a\n\naa) b"),
        (items("a", "b", style="D"), "Z) a\n\nAA) b"),
        (items(item("a", items("b")), style="P"), "1. a\n\n1-1 b"),
        (items(item("a", items("b")), "c", style="O"), "a\n\n1. b\n\nc"),
        (items("a", "b", style="N") + items("c", style="N"), "1. a\n2. b\n\n1. c"),
        (items("a", style="N") + p("x") + items("b", style="N", more=GO_ON), "1. a\n\nx\n\n2. b"),
        (
            items("a", style="N")
            + items("b", style="A")
            + items("c", style="N", more=GO_ON),
            "1. a\n\na) b\n\n1. c",
        ),
        (
            items("a", style="N", more='xml:id="l1"')
            + items("b", style="B")
            + items("c", style="N", more='text:continue-list="l1"'),
            "1. a\n\n- b\n\n2. c",
        ),
        (items(item("a", more='text:start-value="7"'), "b", style="N"), "7. a\n\n8. b"),
        (items("a", item("b", more='text:style-override="A"'), style="N"), "1. a\n\nb) b"),
        (items(item(items(item(items("a")))), "b", style="N"), "1.1.1. a\n\n2. b"),
        (items(item("a", "more of it"), "b", style="N"), "1. a\n\nmore of it\n\n2. b"),
        (items("a", item("<text:p/>"), "b", style="N"), "1. a\n\n3. b"),
        (items('<text:p text:style-name="P2">a</text:p>', "b"), "a) a\n\n- b"),
        (items("a", item(h("b", 2)), style="B"), "- a\n\n## - b"),
    ],
)  # fmt: skip
def test_a_list_says_what_a_reader_sees(read, body, text):
    assert read(office.odf("text", body, STYLES), "a.odt").text == text


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (items("<text:list-header><text:p>a</text:p></text:list-header>", "b", style="N"),
         "a\n\n1. b"),
        (items("<text:list-header><text:p>a</text:p></text:list-header>", "b", style="B"),
         "a\n\n- b"),
        (items(item("<text:number>9.</text:number>", "a"), style="N"), "1. a"),
        (items(item("<text:p><text:number>9.</text:number>a</text:p>"), style="N"), "1. a"),
        (
            '<text:numbered-paragraph text:list-id="l" text:level="1" text:style-name="A">'
            "<text:number>a)</text:number><text:p>a</text:p></text:numbered-paragraph>"
            '<text:numbered-paragraph text:list-id="l" text:level="2" text:style-name="A">'
            "<text:p>b</text:p></text:numbered-paragraph>"
            '<text:numbered-paragraph text:list-id="l" text:level="1" text:style-name="A">'
            "<text:h>c</text:h></text:numbered-paragraph>",
            "a) a\n\nI) b\n\n# b) c",
        ),
        (
            "<text:tracked-changes><text:changed-region>"
            + items("gone", style="N", more='xml:id="l"')
            + "</text:changed-region></text:tracked-changes>"
            + items("a", item("b", "c"), style="N"),
            "1. a\n\n2. b\n\nc",
        ),
        (
            items(
                '<text:list-item><text:p>a<draw:frame><draw:text-box>'
                + items("in the box", style="A")
                + "</draw:text-box></draw:frame></text:p></text:list-item>",
                "b",
                style="N",
            ),
            "1. a\n\na) in the box\n\n2. b",
        ),
    ],
)  # fmt: skip
def test_no_word_of_a_list_is_lost_or_doubled(read, body, text):
    assert read(office.odf("text", body, STYLES), "a.odt").text == text


def test_cells_have_their_numbers(read):
    def cell(content: str) -> str:
        return f"<table:table-cell>{content}</table:table-cell>"

    rows = (
        cell(items(item("<text:p/>"), style="A", more=GO_ON)) + cell(p("x")),
        cell(items(item("<text:p/>"), style="A", more=GO_ON)) + cell(items("y", style="B")),
    )
    body = "".join(f"<table:table-row>{row}</table:table-row>" for row in rows)

    text = read(office.odf("text", f"<table:table>{body}</table:table>", STYLES), "a.odt").text

    assert text == "| a) | x |\n| --- | --- |\n| b) | y |"


def test_headings_have_the_numbers_of_the_outline(read):
    no_list = (
        '<style:style style:name="H0" style:family="paragraph" style:list-style-name=""/>'
        '<style:style style:name="H1" style:family="paragraph" style:parent-style-name="H0"/>'
    )
    body = (
        h("One")
        + h("Two", 2)
        + h("Deep", 3)
        + h("Preface", 1, 'text:is-list-header="true"')
        + h("Apart", 1, 'text:style-name="H1"')
        + h("Three", 2)
        + h("Four", 1, 'text:restart-numbering="true" text:start-value="9"')
        + h("Five", 2)
    )
    styles = OUTLINE + no_list
    with ZipFile(BytesIO(office.odf("text", body))) as parts:
        content = {name: parts.read(name) for name in parts.namelist()}
    apart = {"styles.xml": f'<styles xmlns:style="s" xmlns:text="t">{styles}</styles>'}
    seen = [
        "# I. One",
        "## I.1. Two",
        "### Deep",
        "# Preface",
        "# Apart",
        "## I.2. Three",
        "# IX. Four",
        "## IX.1. Five",
    ]

    assert read(office.odf("text", body, styles), "a.odt").text.split("\n\n") == seen
    assert read(office.packed({**content, **apart}), "a.odt").text.split("\n\n") == seen


def test_a_broken_or_hostile_file_is_refused():
    for broken in (b"<a><text:list></b>", b'<!DOCTYPE a [<!ENTITY b "c">]><a><text:list/>&b;</a>'):
        with pytest.raises(Permanent, match="XML"):
            numbered(broken, None)


def test_a_chain_of_styles_is_walked_once():
    """For each paragraph it took half a minute."""
    chain = "".join(
        f'<style:style style:name="S{at}" style:family="paragraph" '
        f'style:parent-style-name="S{at + 1}"/>'
        for at in range(3_000)
    )
    body = items(*['<text:p text:style-name="S0">a</text:p>'] * 10_000, style="")
    with ZipFile(BytesIO(office.odf("text", body, chain))) as parts:
        content = parts.read("content.xml")
    before = time.process_time()

    numbered(content, None)

    assert time.process_time() - before < 2
