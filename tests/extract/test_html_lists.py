"""Web pages, books and mails: lists have the numbers and letters that a reader sees."""

import pytest

from recollect.extract.web import _page
from tests.extract.test_html import ARTICLE

LISTS = {
    '<ol type="a"><li>one</li><li>two</li></ol>': "- a. one\n- b. two",
    '<ol type="A" start="26"><li>one</li><li>two</li></ol>': "- Z. one\n- AA. two",
    '<ol style="color: red; LIST-STYLE: inside upper-roman"><li>one</li></ol>': "- I. one",
    '<ol type="1"><li>one<ol type="i"><li>in it</li></ol></li></ol>': "1. one\n   - i. in it",
    '<ol start="4"><li>one</li><li value="9">two</li><li>three</li></ol>': (
        "4. one\n9. two\n10. three"
    ),
    "<ol reversed><li>one</li><li>two</li></ol>": "2. one\n1. two",
    '<ol type="a"><li>\n<div><p>one</p><p>more</p></div></li></ol>': "- a. one\n\n   more",
    '<ol type="a"><li><b>one</b></li></ol>': "- a. **one**",
    '<ol type="a"><li><ul><li>one</li></ul></li></ol>': "1. - one",
    '<ol type="a"><li></li></ol><p>one</p>': "1.\n\none",
    '<ol type="i" start="-1"><li>one</li><li>two</li><li>three</li></ol>': (
        "-1. one\n0. two\n- i. three"
    ),
    '<ol type="x" start="y"><li>one</li></ol>': "1. one",
    "<ul><li>one</li><li><br></li><li><ul><li></li></ul></li><li>two</li></ul>": "- one\n- two",
    '<ul style="list-style-type: lower-alpha"><li>one</li></ul>': "- one",
}


@pytest.mark.parametrize("markup", LISTS)
def test_a_list_says_what_a_reader_sees(read, markup):
    page = f"<html><body><main><h1>Lists</h1><p>{ARTICLE}</p>{markup}</main></body></html>"
    letter = f"<html><body>{markup}</body></html>".encode()

    assert read(page, url="https://a.test/").text.partition(ARTICLE)[2].strip() == LISTS[markup]
    assert _page.read_letter(letter, "text/html").text == LISTS[markup].strip()


def test_lists_within_thousands_of_blocks_are_read():
    markup = f"<ol type=a><li>{'<div>' * 900}one" + "9" * 1_000_000

    assert "a. one" in _page.read_letter(markup.encode(), "text/html").text


def test_pictures_without_words_leave_neither_bullets_nor_links(read):
    picture = '<a href="/b"><img src="/c.png"></a>'
    page = f"<html><body><main><p>{ARTICLE}</p><ul><li>{picture}</li></ul><p>End {picture}</p>"

    assert read(page, url="https://a.test/").text == f"{ARTICLE}\n\nEnd"


@pytest.mark.parametrize("indent", [1, 100, 5_000])
def test_items_may_be_indented_as_far_as_one_likes(indent):
    item = "\n" + " " * indent + "Hori Parata" + " " * indent + "at his farm"
    markup = f"<ul><li>{item}</li><li>{' ' * indent}</li></ul>"

    assert _page.read_letter(markup.encode(), "text/html").text == "- Hori Parata at his farm"
