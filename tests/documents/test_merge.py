"""What content sent again means, and what no guess may ever lose."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.documents.merge import Merged, MergeRule, merge

LINES = st.lists(
    st.one_of(
        st.sampled_from(
            ["user: ok", "assistant: fine", "# Title", "---", "", "  ", "}", "👍", "a "]
        ),
        st.text(max_size=6),
    ),
    max_size=12,
)
TEXTS = st.one_of(
    st.text(), st.builds(str.__add__, st.sampled_from(["", "\ufeff"]), LINES.map("\n".join))
)

CHAT = "user: hello\nassistant: hi\nuser: what is RAG?\nassistant: retrieval first"


def lines(text: str) -> list[str]:
    said = text.removeprefix("\ufeff")
    return [line.rstrip() for line in said.split("\n") if line.strip()]


@settings(deadline=None)
@given(TEXTS)
def test_the_same_again_changes_nothing(text: str):
    assert merge(text, text) == Merged(text, MergeRule.UNCHANGED)


@settings(deadline=None)
@given(TEXTS, TEXTS)
def test_the_whole_text_with_more_replaces_the_old(old: str, more: str):
    merged = merge(old, old + more)

    assert merged.text == (old if lines(old + more) == lines(old) else old + more)


@settings(deadline=None)
@given(TEXTS, TEXTS)
def test_sending_the_result_changes_nothing(old: str, new: str):
    text = merge(old, new).text

    assert merge(text, text) == Merged(text, MergeRule.UNCHANGED)


@settings(deadline=None)
@given(TEXTS, TEXTS)
def test_a_retry_changes_nothing(old: str, new: str):
    text = merge(old, new).text

    assert merge(text, new) == Merged(text, MergeRule.UNCHANGED)


@settings(deadline=None)
@given(TEXTS, TEXTS)
def test_nothing_new_is_lost(old: str, new: str):
    text = lines(merge(old, new).text)
    sent = lines(new)

    assert text[len(text) - len(sent) :] == sent


@settings(deadline=None)
@given(TEXTS, TEXTS)
def test_nothing_old_is_lost_unless_it_was_edited(old: str, new: str):
    merged = merge(old, new)
    text, known = lines(merged.text), lines(old)

    if merged.kind is not MergeRule.EDITED:
        assert merged.text.startswith(old) or text[: len(known)] == known


@settings(deadline=None)
@given(st.lists(st.text(alphabet="abc", min_size=1, max_size=2), max_size=8), TEXTS)
def test_an_edit_holds_half_of_the_old_lines(known: list[str], new: str):
    old = "\n".join(known)
    merged = merge(old, new)

    if merged.kind is MergeRule.EDITED:
        assert 2 * longest_common(known, lines(new)) >= len(known) or joined(new).startswith(
            joined(old)
        )


def joined(text: str) -> str:
    return "".join(text.split())


@settings(deadline=None)
@given(st.permutations(range(10)), st.permutations(range(10)), st.integers(0, 10))
def test_half_is_counted_exactly_where_no_line_repeats(
    known: list[int], sent: list[int], left_out: int
):
    old = ["first", *map(str, known)]
    new = ["changed", *map(str, sent[left_out:])]
    merged = merge("\n".join(old), "\n".join(new))

    held = 2 * longest_common(old, new) >= len(old)
    assert merged.kind is (MergeRule.EDITED if held else MergeRule.EXTENDED)


def longest_common(old: list[str], new: list[str]) -> int:
    """The textbook's table, as the judge."""
    row = [0] * (len(new) + 1)
    for a in old:
        diagonal = 0
        for index, b in enumerate(new, 1):
            diagonal, row[index] = (
                row[index],
                diagonal + 1 if a == b else max(row[index], row[index - 1]),
            )
    return row[-1]


@pytest.mark.parametrize(
    ("old", "new", "text", "kind"),
    [
        pytest.param(CHAT, CHAT + "\n", CHAT, MergeRule.UNCHANGED, id="a newline at the end"),
        pytest.param(CHAT, CHAT.replace("\n", "\r\n"), CHAT, MergeRule.UNCHANGED, id="CRLF"),
        pytest.param(
            CHAT, "assistant: retrieval first", CHAT, MergeRule.UNCHANGED, id="the last line again"
        ),
        pytest.param(CHAT, "\n\n", CHAT, MergeRule.UNCHANGED, id="nothing"),
        pytest.param("", "a", "a", MergeRule.APPENDED, id="after nothing"),
        pytest.param("a\n\n", "a\nb", "a\nb", MergeRule.APPENDED, id="blank lines went"),
        pytest.param(
            CHAT, CHAT + " and more", CHAT + " and more", MergeRule.APPENDED, id="line goes on"
        ),
        pytest.param(
            CHAT,
            "assistant: retrieval first\nuser: thanks\n",
            CHAT + "\nuser: thanks\n",
            MergeRule.JOINED,
            id="one line of overlap",
        ),
        pytest.param(
            "user: ok\nassistant: a\nuser: ok",
            "user: ok\nassistant: fine",
            "user: ok\nassistant: a\nuser: ok\nassistant: fine",
            MergeRule.JOINED,
            id="a repeated line counts as overlap",
        ),
        pytest.param(
            "a b\n---", "---\nc", "a b\n---\n---\nc", MergeRule.EXTENDED, id="a rule is none"
        ),
        pytest.param(
            "a\n\n", "\n\nb", "a\n\n\n\n\nb", MergeRule.EXTENDED, id="nor are blank lines"
        ),
        pytest.param(
            "a\nb", "\nb\nc", "a\nb\nc", MergeRule.JOINED, id="blank lines before an overlap"
        ),
        pytest.param(
            CHAT,
            CHAT.replace("hi", "hello!"),
            CHAT.replace("hi", "hello!"),
            MergeRule.EDITED,
            id="one line edited",
        ),
        pytest.param(
            "a\nb\nc\nd", "x\nb\nc\ny", "x\nb\nc\ny", MergeRule.EDITED, id="half is enough"
        ),
        pytest.param(
            "a\nb\nc\nd", "x\nb\ny", "a\nb\nc\nd\nx\nb\ny", MergeRule.EXTENDED, id="less is not"
        ),
        pytest.param("a\nb\nc", "c\nb\na", "a\nb\nc\nb\na", MergeRule.JOINED, id="in order only"),
        pytest.param(
            "1. milk\n2. bread\n3. tea",
            "1. eggs\n2. milk\n3. bread\n4. tea",
            "1. eggs\n2. milk\n3. bread\n4. tea",
            MergeRule.EDITED,
            id="an item in front of a numbered list",
        ),
        pytest.param(
            "0. milk\n1. bread\n2. tea",
            "0. eggs\n1. milk\n2. bread\n3. tea",
            "0. eggs\n1. milk\n2. bread\n3. tea",
            MergeRule.EDITED,
            id="a list that counts from nought",
        ),
        pytest.param(
            "1、牛奶\n2、面包\n3、茶",
            "1、鸡蛋\n2、牛奶\n3、面包\n4、茶",
            "1、鸡蛋\n2、牛奶\n3、面包\n4、茶",
            MergeRule.EDITED,
            id="a list with commas of Chinese",
        ),
        pytest.param(
            "(1) milk\n(2) bread\n(3) tea",
            "(1) eggs\n(2) milk\n(3) bread\n(4) tea",
            "(1) eggs\n(2) milk\n(3) bread\n(4) tea",
            MergeRule.EDITED,
            id="a list in brackets",
        ),
        pytest.param(
            "1) milk\n2) bread",
            "\ufeff1) eggs\n2) milk\n3) bread",
            "\ufeff1) eggs\n2) milk\n3) bread",
            MergeRule.EDITED,
            id="a mark of the order of bytes before a list",
        ),
        pytest.param("a", "\ufeffa\nb", "\ufeffa\nb", MergeRule.APPENDED, id="and before a line"),
        pytest.param("a", "\ufeffa", "a", MergeRule.UNCHANGED, id="and that is all"),
        pytest.param("a", "\ufeffb", "a\nb", MergeRule.EXTENDED, id="nor is it one in a text"),
        pytest.param(
            "# Todo\n\n 7) milk\n 8) bread",
            "# To do\n\n 7) eggs\n 8) milk\n 9) bread",
            "# To do\n\n 7) eggs\n 8) milk\n 9) bread",
            MergeRule.EDITED,
            id="a list that begins later",
        ),
        pytest.param(
            "1. pass\n2. pass\n3. fail",
            "4. pass\n5. pass\n6. pass",
            "1. pass\n2. pass\n3. fail\n4. pass\n5. pass\n6. pass",
            MergeRule.EXTENDED,
            id="a list that goes on",
        ),
        pytest.param(
            "def f():\n  a()\n  b()",
            "class A:\n    def f():\n        a()\n        b()",
            "class A:\n    def f():\n        a()\n        b()",
            MergeRule.EDITED,
            id="indented",
        ),
        pytest.param(
            "| a | b |\n| 1 | 2 |",
            "| a  | b |\n| 1  | 2 |\n| 30 | 4 |",
            "| a  | b |\n| 1  | 2 |\n| 30 | 4 |",
            MergeRule.EDITED,
            id="a table that became wider",
        ),
        pytest.param(
            "Herons stand in\nthe water.",
            "Herons stand\nin the water. Storks do not.",
            "Herons stand\nin the water. Storks do not.",
            MergeRule.EDITED,
            id="other line ends, and more",
        ),
        pytest.param(
            "pears\n  plums",
            "plums\nquinces",
            "pears\n  plums\nplums\nquinces",
            MergeRule.EXTENDED,
            id="a part that begins with the last line, indented otherwise",
        ),
        pytest.param(
            "1. pears\n2. plums",
            "plums\nquinces",
            "1. pears\n2. plums\nplums\nquinces",
            MergeRule.EXTENDED,
            id="a part without numbers",
        ),
        pytest.param("one", "two", "one\ntwo", MergeRule.EXTENDED, id="one line, another line"),
        pytest.param(
            CHAT,
            "Ship it.",
            CHAT + "\nShip it.",
            MergeRule.EXTENDED,
            id="something else altogether",
        ),
        pytest.param(
            "a\n---\nb\n---\nc\n---",
            "x\n---\ny\n---\nz\n---",
            "a\n---\nb\n---\nc\n---\nx\n---\ny\n---\nz\n---",
            MergeRule.EXTENDED,
            id="shared rules are no shared lines",
        ),
    ],
)
def test_each_rule(old: str, new: str, text: str, kind: MergeRule):
    assert merge(old, new) == Merged(text, kind)


def test_a_repeated_line_does_not_hide_an_edit():
    turns = [line for number in range(50) for line in ("user: ok", f"assistant: answer {number}")]
    edited = ["user: wait", "user: ok", *turns[:40], *turns[42:]]

    assert merge("\n".join(turns), "\n".join(edited)).kind is MergeRule.EDITED


def test_lines_that_take_turns_do_not_hide_an_edit():
    old = ["a", "b"] * 50 + ["c"]
    new = ["b", "a"] * 50 + ["d"]

    assert merge("\n".join(old), "\n".join(new)).kind is MergeRule.EDITED


def shuffled(count: int) -> list[str]:
    numbers = [f"line {number}" for number in range(count)]
    random.Random(3).shuffle(numbers)
    return numbers


@pytest.mark.parametrize(
    ("old", "new", "kind"),
    [
        pytest.param(shuffled(40_000), sorted(shuffled(40_000)), MergeRule.EXTENDED, id="shuffled"),
        pytest.param(["ok"] * 100_000, ["ok"] * 99_999 + ["x"], MergeRule.JOINED, id="one line"),
        pytest.param(
            ["ok"] * 100_000 + ["x"],
            ["ok"] * 50_000 + ["y"] + ["ok"] * 50_000,
            MergeRule.EDITED,
            id="nearly one line",
        ),
        pytest.param(
            ["a", "b"] * 50_000 + ["c"],
            ["b", "a"] * 50_000 + ["d"],
            MergeRule.EDITED,
            id="two lines",
        ),
        pytest.param([""] * 1_000_000, ["", "a"], MergeRule.APPENDED, id="blank"),
        pytest.param(
            [f"{number}. a" for number in range(1, 100_001)],
            ["1. b", *(f"{number}. a" for number in range(2, 100_002))],
            MergeRule.EDITED,
            id="numbers",
        ),
    ],
)
def test_hostile_texts_are_merged_in_near_linear_time(
    old: list[str], new: list[str], kind: MergeRule
):
    """A quadratic step would run for an hour here; the limit is that of the whole suite."""
    assert merge("\n".join(old), "\n".join(new)).kind is kind


def test_a_full_update_that_begins_with_the_line_the_old_text_ended_with_is_no_part():
    old = "user: hi\nassistant: hello\nuser: how are you\nassistant: fine\nuser: hi"
    new = "user: hi\nassistant: hello there\nuser: how are you\nassistant: fine\nuser: hi\nbye"

    assert merge(old, new).text == new


def test_a_window_over_the_last_half_joins_and_keeps_the_first_half():
    old = "a1\nb2\nc3\nd4"

    assert merge(old, "c3\nd4\ne5").text == "a1\nb2\nc3\nd4\ne5"
