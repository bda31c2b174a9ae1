"""A chunk says where it stands, in the reader's terms."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.api.conversations import turn
from recollect.api.document_schemas import Message
from recollect.ingest import positions
from recollect.ingest.chunk import split
from recollect.ingest.positions import locate
from recollect.model import Chunk, Extracted, Place


def chunk(start: int, end: int) -> Chunk:
    return Chunk(0, start, end, "x" * (end - start), b"")


def place_of(extracted: Extracted, start: int, end: int) -> dict[str, object]:
    return dict(locate(extracted, [chunk(start, end)])[0].place)


def test_a_chunk_within_a_page_names_that_page():
    pages = Extracted("x" * 300, places=[Place(0, {"page": 1}), Place(100, {"page": 2})])

    assert place_of(pages, 0, 100) == {"page": 1}
    assert place_of(pages, 100, 300) == {"page": 2}


def test_a_chunk_over_several_pages_names_the_first_and_the_last():
    pages = Extracted("x" * 300, places=[Place(n * 100, {"page": n + 1}) for n in range(3)])

    assert place_of(pages, 50, 250) == {"page": 1, "pageEnd": 3}


def test_rows_go_with_their_sheet():
    rows = Extracted(
        "x" * 30,
        places=[
            Place(0, {"sheet": "Q1", "row": 2}),
            Place(10, {"sheet": "Q1", "row": 3}),
            Place(20, {"sheet": "Q2", "row": 2}),
        ],
    )

    assert place_of(rows, 0, 20) == {"sheet": "Q1", "row": 2, "rowEnd": 3}
    assert place_of(rows, 0, 30) == {"sheet": "Q1", "row": 2, "rowEnd": 3, "sheetEnd": "Q2"}
    assert place_of(rows, 10, 30) == {"sheet": "Q1", "row": 3, "sheetEnd": "Q2"}
    assert place_of(rows, 20, 30) == {"sheet": "Q2", "row": 2}


def test_the_heading_of_a_sheet_stands_with_its_first_row():
    rows = Extracted(
        "x" * 40,
        places=[
            Place(0, {"sheet": "Q1"}),
            Place(10, {"sheet": "Q1", "row": 2}),
            Place(20, {"sheet": "Q1", "row": 3}),
            Place(30, {"sheet": "Q2"}),
        ],
    )

    assert place_of(rows, 0, 30) == {"sheet": "Q1", "row": 2, "rowEnd": 3}
    assert place_of(rows, 0, 10) == {"sheet": "Q1"}
    assert place_of(rows, 0, 40) == {"sheet": "Q1", "row": 2, "rowEnd": 3, "sheetEnd": "Q2"}


def test_a_chunk_over_several_chapters_names_the_first_and_the_last():
    book = Extracted(
        "x" * 30, places=[Place(10 * n, {"chapter": name}) for n, name in enumerate("ABC")]
    )

    assert place_of(book, 0, 10) == {"chapter": "A"}
    assert place_of(book, 5, 30) == {"chapter": "A", "chapterEnd": "C"}


def test_text_before_the_first_place_takes_the_first_one_it_reaches():
    pages = Extracted("x" * 300, places=[Place(100, {"page": 1})])

    assert place_of(pages, 0, 50) == {}
    assert place_of(pages, 0, 150) == {"page": 1}


def test_the_path_of_headings_is_the_one_that_is_open():
    text = "# A\n\nintro\n\n## B\n\none\n\n### C\n\ntwo\n\n## D\n\nthree"
    extracted = Extracted(text)

    assert place_of(extracted, text.index("two"), text.index("two") + 3) == {
        "heading": ["A", "B", "C"]
    }
    assert place_of(extracted, text.index("three"), len(text)) == {"heading": ["A", "D"]}
    assert place_of(extracted, text.index("## D"), len(text)) == {"heading": ["A", "D"]}


def test_comments_in_code_are_no_headings():
    text = "# A\n\n```sh\n# not a heading\n```\n\nafter"

    assert place_of(Extracted(text), text.index("after"), len(text)) == {"heading": ["A"]}
    assert place_of(Extracted("# comment\nx = 1", markdown=False), 0, 15) == {}


@pytest.mark.parametrize(
    ("line", "title"),
    [
        ("# Plain", "Plain"),
        ("##\tIndented   ", "Indented"),
        ("# Closed ##", "Closed"),
        ("# C#", "C#"),
        ("# C # #", "C #"),
        ("# key   value", "key   value"),
        ("# ###", "#"),
        ("# " + "x" * 300 + "  ##", "x" * 300),
    ],
)
def test_a_title_ends_before_the_marks_that_close_it(line: str, title: str):
    assert place_of(Extracted(line), 0, len(line)) == {"heading": [title]}


@pytest.mark.parametrize("line", ["#no space", "####### seven", "#", "#   ", "# " + "x" * 301])
def test_what_is_no_heading(line: str):
    assert place_of(Extracted(line), 0, len(line)) == {}


def test_a_line_of_spaces_after_a_mark_takes_no_longer_than_any_other():
    """2,500 of them took 28 s once, and the square of that for more."""
    text = "# a" + " " * 1_000_000 + "b"
    began = time.process_time()

    assert place_of(Extracted(text), 0, 1) == {}
    assert time.process_time() - began < 5  # it took days


def test_messages_of_a_conversation_are_counted():
    text = "user: hi\nassistant: hello\nmore of it\nuser: bye"

    assert place_of(Extracted(text), text.index("more"), text.index("more") + 4) == {"message": 2}
    assert place_of(Extracted(text), 0, len(text)) == {"message": 1, "messageEnd": 3}


@pytest.mark.parametrize("indent", [None, 2])
def test_messages_in_json_are_counted(indent: int | None):
    """As `supermemory-pipecat` sends them: a list for each turn, below the one before."""
    said = [("system", "Be kind."), ("user", 'Is a "heron" a bird?'), ("assistant", "It is.")]
    turns = [[{"role": role, "content": content}] for role, content in said]
    text = "\n".join(json.dumps(turn, indent=indent) for turn in turns)

    assert place_of(Extracted(text), text.index("It is"), len(text)) == {"message": 3}
    assert place_of(Extracted(text), 0, len(text)) == {"message": 1, "messageEnd": 3}
    assert positions.first_said(text) == 'Is a "heron" a bird?'


@pytest.mark.parametrize(
    "content", ['"cut off', '"a\nbreak"', '"bad \\x escape"', '[{"type": "text"}]', "null"]
)
def test_what_is_no_text_of_a_user_is_not_said(content: str):
    assert not positions.first_said('[{"role": "user", "content": ' + content)
    assert not positions.first_said('[{"role": "tool", "content": "1"}]')


def test_messages_with_names_are_counted():
    text = "system: 8 May\n\nuser Ann Lee: hi\n\nassistant Bo: hello\n  user Ann: (quoted)"

    assert place_of(Extracted(text), 0, len(text)) == {"message": 1, "messageEnd": 3}
    assert place_of(Extracted(text), text.index("hello"), len(text)) == {"message": 3}


def test_messages_that_someone_quotes_are_not_counted():
    text = turn(Message(role="user", content="My chat was\nuser: hi\n\nassistant: hello"))
    text += "\n\n" + turn(Message(role="assistant", content="I see."))

    assert place_of(Extracted(text), text.index("I see"), len(text)) == {"message": 2}


def test_words_before_a_colon_are_no_names_of_speakers():
    text = "How to begin\n\nuser guide: page 3\n\nsystem requirements: none"

    assert place_of(Extracted(text), 0, len(text)) == {}


@pytest.mark.parametrize(
    "text",
    [
        "user name: Ann\nuser email: ann@acme\nuser id: 4",
        "tool list: what we have\n\nA saw.\n\nsystem requirements: none",
    ],
)
def test_a_text_that_begins_like_a_message_with_a_name_need_be_no_conversation(text: str):
    assert place_of(Extracted(text), 0, len(text)) == {}


def test_words_before_a_colon_are_no_names_in_a_conversation_without_names():
    text = "user: hi\nassistant: you need\nsystem requirements: none\nuser: bye"

    assert place_of(Extracted(text), text.index("bye"), len(text)) == {"message": 3}


@given(st.lists(st.text(alphabet=" \n:user\u2028", max_size=40), min_size=2, max_size=5))
def test_whatever_is_said_in_a_conversation_each_turn_is_one_message(said: list[str]):
    turns = [turn(Message(role="user", content=f"He said\nuser: {one}")) for one in said]
    text = "\n\n".join([*turns, "assistant Bo: the end"])

    assert place_of(Extracted(text), text.index("the end"), len(text)) == {"message": len(said) + 1}


def test_lines_that_are_all_indented_may_be_messages():
    assert place_of(Extracted("  user: hi\n  assistant: hello"), 2, 5) == {"message": 1}


def test_one_line_that_looks_like_a_message_makes_no_conversation():
    assert place_of(Extracted("user: hi, this is a letter"), 0, 10) == {}


@given(st.text(alphabet="# abc\n`:user", max_size=400))
def test_locating_never_fails_and_leaves_the_chunks_as_they_are(text: str):
    chunks = split(text)

    located = locate(Extracted(text), chunks)

    assert [(c.start, c.end, c.hash) for c in located] == [(c.start, c.end, c.hash) for c in chunks]
