"""The measure of the main part of pages counts as the public benchmarks do."""

import gzip
import json

import pytest

from bench import pages

BODY = "One two three four five six. Seven eight nine ten eleven twelve thirteen."


def test_a_page_whose_text_is_known_has_all_of_it(tmp_path, capsys):
    (tmp_path / "html").mkdir()
    page = f"<html><body><nav>Menu</nav><main><h1>Title</h1><p>{BODY}</p></main></body></html>"
    (tmp_path / "html" / "a.html.gz").write_bytes(gzip.compress(page.encode()))
    known = {"a": {"articleBody": BODY, "url": "https://orchard.test/a"}}
    (tmp_path / "ground-truth.json").write_text(json.dumps(known))

    assert [round(one.value, 3) for one in list(pages.measure(tmp_path))[:3]] == [1, 1, 1]
    assert pages.main([str(tmp_path)]) == 0
    assert "≥ 0.96 " in capsys.readouterr().out


def test_passages_that_must_not_be_there_cost_precision(tmp_path):
    (tmp_path / "eval").mkdir()
    (tmp_path / "eval" / "a.html").write_text(
        f"<html><body><main><p>{BODY}</p></main></body></html>"
    )
    known = {
        "https://orchard.test/a": {
            "file": "a.html",
            "with": ["One two", "plums"],
            "without": ["ten"],
        }
    }
    (tmp_path / "evaldata.json").write_text(json.dumps(known))

    f1, precision, recall, _ = (one.value for one in pages.measure(tmp_path))
    assert (f1, precision, recall) == (0.5, 0.5, 0.5)


@pytest.mark.parametrize(
    ("markdown", "words"),
    [
        ("## 1. See [pears](https://e.test/a_(b)?c=1)", "1. See pears  "),
        ("- **bold** and `snake\\_case`", "bold and snake_case"),
        ("```python\nx = 1\n```", "\nx = 1\n"),
    ],
)
def test_of_markdown_the_words_count(markdown, words):
    assert pages.plain(markdown).split() == words.split()


def test_without_data_it_says_what_is_missing(tmp_path, capsys):
    assert pages.main([str(tmp_path)]) == 2
    assert "docs/bench.md" in capsys.readouterr().err
