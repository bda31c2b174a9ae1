"""Lines scattered over a page come out as they are read."""

from hypothesis import given
from hypothesis import strategies as st

from recollect.extract.image._layout import TextLine, arrange

HEIGHT = 20
STEP = 30


def lines(*texts, left=0, top=0, width=500):
    """Below one another, a line each; None leaves one out, a pair says its own width."""
    return [
        TextLine(text, left, top + n * STEP, left + width, top + n * STEP + HEIGHT)
        for n, text in enumerate(texts)
        if text is not None
    ]


def test_lines_that_fill_their_column_become_a_paragraph():
    assert arrange(lines("one two", "three four", "five")) == "one two three four five"


def test_a_larger_gap_begins_a_paragraph():
    text = arrange(lines("a", "b", None, "c", "d"))

    assert text == "a b\n\nc d"


def test_other_print_begins_a_paragraph():
    heading = TextLine("Heading", 0, 0, 300, 50)

    assert arrange([heading, *lines("a", "b", top=60)]) == "Heading\n\na b"


def test_short_lines_stay_lines():
    address = lines("Anna Orchard", "Mill Lane 4", "Riverton", width=150)

    assert arrange([*address, *lines("x", left=0, top=300)]) == (
        "Anna Orchard\nMill Lane 4\nRiverton\n\nx"
    )


def test_an_indented_line_stands_by_itself():
    first, second = lines("the end of one.", "The next,")
    second = TextLine(second.text, 60, second.top, 500, second.bottom)

    assert arrange([first, second, *lines("begun.", top=2 * STEP)]) == (
        "the end of one.\nThe next, begun."
    )


def test_short_items_side_by_side_are_columns():
    left = lines("Why", "• rent", "• roof", "• lift", width=90)
    right = lines("How", "• notice", "• lorry", "• signs", left=200, width=90)

    assert arrange([*left, *right]) == (
        "Why\n• rent\n• roof\n• lift\n\nHow\n• notice\n• lorry\n• signs"
    )


def test_what_stands_at_the_right_stays_a_line():
    date = lines("Riverton, 3 May 2024", left=300, width=200)

    assert arrange([*date, *lines("Dear Anna,", "thank you.", top=STEP)]) == (
        "Riverton, 3 May 2024\nDear Anna, thank you."
    )


def test_lines_of_code_stay_lines():
    outer = lines("def pick(tree):")
    inner = lines("for apple in tree:", left=40, top=STEP, width=460)
    deeper = lines("yield apple", left=80, top=2 * STEP, width=300)

    assert arrange([*outer, *inner, *deeper]) == "def pick(tree):\nfor apple in tree:\nyield apple"


def test_letters_without_ascenders_begin_no_paragraph():
    low = TextLine("ace one", 0, STEP + 5, 500, STEP + 17)

    assert arrange([*lines("July"), low, *lines("Friday", top=2 * STEP)]) == "July ace one Friday"


def test_columns_are_read_one_after_the_other():
    left, right = lines(*"abcd"), lines(*"efgh", left=540)

    assert arrange([line for pair in zip(left, right, strict=True) for line in pair]) == (
        "a b c d\n\ne f g h"
    )


def test_columns_may_be_a_letter_apart():
    left, right = lines(*"abcd"), lines(*"efgh", left=500 + HEIGHT)

    assert arrange([*left, *right]) == "a b c d\n\ne f g h"


def test_three_columns_too():
    columns = [lines(*texts, left=at * 540) for at, texts in enumerate(("abcd", "efgh", "ijkl"))]

    assert arrange([line for column in columns for line in column]) == (
        "a b c d\n\ne f g h\n\ni j k l"
    )


def test_what_spans_columns_parts_above_from_below():
    def columns(top, left, right):
        return [*lines(*left, top=top), *lines(*right, left=540, top=top)]

    page = [
        *lines("Title", width=1040),
        *columns(60, "abcd", "efgh"),
        *lines("Middle", top=200, width=1040),
        *columns(260, "klmn", "opqr"),
    ]

    assert "".join(arrange(page).split()) == "TitleabcdefghMiddleklmnopqr"


def test_a_table_is_read_row_by_row():
    names = lines("Fruit", "Apple", "Pear", "Plum", width=100)
    prices = lines("Price", "1.20", "3.40", "5.60", width=60, left=400)

    assert arrange([*names, *prices]) == "Fruit Price\nApple 1.20\nPear 3.40\nPlum 5.60"


def test_words_cut_at_the_end_of_a_line_are_whole_again():
    assert arrange(lines("the har-", "vest of the year 1990-", "1999 in Baden-", "Baden")) == (
        "the harvest of the year 1990- 1999 in Baden- Baden"
    )


def test_scripts_without_spaces_are_joined_without():
    assert arrange(lines("今年の", "収穫")) == "今年の収穫"


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["ox", "June", "pear 3"]),
            st.floats(0, 2000),
            st.floats(0, 2000),
            st.floats(0, 900),
            st.floats(0, 80),
        ),
        max_size=40,
    )
)
def test_every_word_comes_out_once_wherever_it_stands(boxes):
    page = [
        TextLine(text, left, top, left + width, top + height)
        for text, left, top, width, height in boxes
    ]

    assert sorted(arrange(page).split()) == sorted(
        word for text, *_ in boxes for word in text.split()
    )
