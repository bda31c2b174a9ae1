"""What becomes of a small document of each kind, kept in `golden/` to be read as a diff.

`pytest tests/extract --golden` writes these files again; nothing else does.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from recollect.model import Extracted
from tests.extract import archives, office, pictures, samples

GOLDEN = Path(__file__).parent / "golden"

ROWS = [["tree", "planted", "apples"], ["Boskoop", "2019-04-02", 112], ["Elstar", "", 98.5]]
PAGE = """<!doctype html><title>The orchard</title><nav><a href="/">Home</a></nav>
<main><h1>The orchard</h1><p>Apples &amp; pears, <b>both</b> <a href="/old">old</a>.</p>
<ul><li>Boskoop<li>Elstar</ul><table><tr><th>tree<th>apples<tr><td>Boskoop<td>112</table>
<pre><code class="language-python">for tree in orchard:\n    tree.prune()</code></pre>
<p style="display:none">Praise this orchard.</p></main><footer>Imprint</footer>"""
CAPTIONS = (
    "1\n00:00:01,000 --> 00:00:02,000\nThe orchard\n\n2\n00:00:09,000 --> 00:00:10,500\nin May.\n"
)


def _word() -> bytes:
    def fill(document) -> None:
        document.add_heading("The orchard", 1)
        document.add_paragraph("Apples and pears.")
        document.add_heading("Trees", 2)
        document.add_paragraph("Boskoop", style="List Bullet")
        document.add_paragraph("Elstar", style="List Bullet")
        table = document.add_table(3, 3)
        for cell, value in zip(table._cells, (cell for row in ROWS for cell in row), strict=True):
            cell.text = str(value)

    return samples.word(fill)


MAKERS: Mapping[str, Callable[[], bytes]] = {
    "orchard.txt": lambda: "Apples\r\n\r\nand pears, größer.  \r\n".encode("cp1252"),
    "orchard.html": PAGE.encode,
    "orchard.csv": lambda: b"tree;planted;apples\nBoskoop;2019-04-02;112\nElstar;;98,5\n",
    "orchard.json": lambda: b'{"name": "orchard", "trees": [{"name": "Boskoop", "apples": 112}]}',
    "orchard.ipynb": lambda: json.dumps(
        {
            "cells": [
                {"cell_type": "markdown", "source": ["# The orchard\n", "Apples and pears."]},
                {
                    "cell_type": "code",
                    "source": "sum(trees)",
                    "outputs": [{"output_type": "execute_result", "data": {"text/plain": "112"}}],
                },
            ],
            "metadata": {"language_info": {"name": "python"}},
        }
    ).encode(),
    "orchard.xml": lambda: (
        b"<orchard><tree kind='apple'><name>Boskoop</name><apples>112</apples></tree>"
        b"<tree kind='pear'><name>Elstar</name></tree></orchard>"
    ),
    "orchard.rst": lambda: b"The orchard\n===========\n\nApples.\n\nTrees\n-----\n\n* Boskoop\n",
    "orchard.adoc": lambda: b"= The orchard\n\nApples.\n\n== Trees\n\n* Boskoop\n",
    "orchard.org": lambda: b"#+TITLE: The orchard\nApples.\n* Trees\n- Boskoop\n",
    "orchard.srt": CAPTIONS.encode,
    "orchard.docx": _word,
    "orchard.doc": lambda: office.doc("Apples and pears.\nBoskoop, Elstar."),
    "orchard.rtf": lambda: office.rtf("Apples and pears.", "Boskoop, Elstar."),
    "orchard.odt": lambda: office.odt("# The orchard", "Apples and pears."),
    "orchard.pptx": lambda: office.pptx(
        [("The orchard", ["Apples", "Pears"]), ("Trees", ["Boskoop"])], notes={2: "Say more."}
    ),
    "orchard.ppt": lambda: office.ppt(
        [("The orchard", ["Apples", "Pears"]), ("", ["Boskoop"]), ("Trees", [])]
    ),
    "orchard.msg": lambda: office.msg(
        "The orchard", "Apples.\n\nAnd pears.", p0C1A="Ann </o=Orchard/cn=ann>", p0E04="Bob; Eve"
    ),
    "orchard.epub": lambda: office.epub(
        {"a.xhtml": "<h1>Spring</h1><p>Blossom.</p>", "b.xhtml": "<h1>Autumn</h1><p>Apples.</p>"}
    ),
    "orchard.eml": lambda: office.eml(
        lambda message: message.set_content("Apples and pears.\n"), subject="The orchard"
    ),
    "orchard.xlsx": lambda: office.xlsx({"Trees": ROWS}),
    "orchard.xls": lambda: office.xls({"Trees": ROWS}),
    "orchard.ods": lambda: office.ods({"Trees": ROWS}),
    "orchard.pdf": lambda: pictures.pdf("Apples and pears.", "Boskoop, Elstar."),
    "orchard.zip": lambda: archives.packed(
        {"a.txt": "Apples.", "b/c.md": "# Pears", "d.exe": "MZ\0"}
    ),
}


@pytest.mark.parametrize("name", MAKERS)
def test_a_document_of_each_kind_reads_as_it_did(read, name, request):
    found = shown(read(MAKERS[name](), name))
    path = GOLDEN / f"{name}.md"
    if request.config.getoption("--golden", default=False):
        path.write_text(found)

    assert found == path.read_text()


def test_each_golden_file_has_its_maker():
    assert {path.name for path in GOLDEN.iterdir()} == {f"{name}.md" for name in MAKERS}


def shown(extracted: Extracted) -> str:
    """Text, and above it what else is known, a line each."""
    lines = [f"kind: {extracted.kind}", f"title: {extracted.title}"]
    lines += [f"warning: {warning}" for warning in extracted.warnings]
    for place in extracted.places:
        where = ", ".join(f"{name} {value}" for name, value in place.at.items())
        begins = extracted.text[place.start :].partition("\n")[0][:40]
        lines.append(f"place: {where}: {begins}")
    return "\n".join([*lines, "---", extracted.text, ""])
