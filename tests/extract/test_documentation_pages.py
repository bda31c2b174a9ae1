"""Pages of documentation as generators make them, beside the text that they were made of.

`documentation/` has three texts, written for this in Markdown, and what ten generators made of
each: Sphinx 9 (alabaster, furo, Read the Docs) and MkDocs 1.6 (its own theme, Read the Docs,
Material), Docusaurus 3, VitePress 1.6, pdoc 16, Doxygen 1.9, of the same words as a manual page
mandoc 1.14 and groff 1.22, and as pages of a wiki DokuWiki (2022) and ikiwiki 3. Scripts, styles
and drawings were taken out. The answer is the text, not what any extractor made of a page. `python
-m tests.extract.test_documentation_pages` shows the figures.
"""

import re
import sys
from collections import Counter
from pathlib import Path

import pytest

from bench.pages import plain
from recollect.extract import Sandbox
from recollect.model import Blob
from tests.extract.test_page_quality import f1, tokens

FOLDER = Path(__file__).parent / "documentation"
PAGES = sorted(path.stem for path in FOLDER.glob("*.html"))
MEAN = 0.99
FLOOR = 0.96
GENERATORS = 10
LEAST_PAGES = 42


def known(page: str) -> Counter[str]:
    """The words that the page was made of, without marks; code in fences counts."""
    text = (FOLDER / f"{page.rpartition('-')[2]}.md").read_text()
    return words(text)


def words(markdown: str) -> Counter[str]:
    return tokens(plain(re.sub(r"^```\w*$", "", markdown, flags=re.MULTILINE)))


def found(sandbox: Sandbox, page: str) -> Counter[str]:
    blob = Blob(
        (FOLDER / f"{page}.html").read_bytes(),
        mime="text/html; charset=utf-8",
        url=f"https://orchard.test/book/{page}.html",
    )
    return words(sandbox.survey(blob, owner="tests").extracted.text)


@pytest.mark.parametrize("page", PAGES)
def test_the_text_that_a_page_was_made_of_is_extracted(sandbox: Sandbox, page: str):
    wanted, extracted = known(page), found(sandbox, page)

    assert not list((wanted - extracted).elements())
    assert f1(wanted, extracted) >= FLOOR


def test_pages_of_many_generators_are_read_well_on_the_whole(sandbox: Sandbox):
    figures = [f1(known(page), found(sandbox, page)) for page in PAGES]

    assert len(PAGES) >= LEAST_PAGES
    assert len({page.partition("-")[0] for page in PAGES}) >= GENERATORS
    assert sum(figures) / len(figures) >= MEAN


if __name__ == "__main__":
    with Sandbox(workers=1) as opened:
        for name in PAGES:
            figure = f1(known(name), found(opened, name))
            sys.stdout.write(f"{name:34} {figure:.4f}\n")
