"""Notebooks are read as a reader sees them: cells in order, outputs as text, pictures named."""

import json

import pytest

from recollect.errors import Permanent
from recollect.extract.text.notebook import OUTPUT_LENGTH


def notebook(*cells: dict, **metadata) -> str:
    return json.dumps({"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5})


def code(source: str, *outputs: dict) -> dict:
    return {"cell_type": "code", "source": source, "outputs": outputs, "execution_count": 1}


def markdown(source: str | list[str]) -> dict:
    return {"cell_type": "markdown", "source": source}


def test_cells_come_in_their_order_with_what_they_gave(read):
    result = {
        "output_type": "execute_result",
        "data": {"text/plain": ["   apples\n", "0  112"], "text/html": "<table>secret markup"},
    }
    plot = {
        "output_type": "display_data",
        "data": {"image/png": "iVBORw0KGgo" * 900, "text/plain": "<Figure size 640x480>"},
    }
    extracted = read(
        notebook(
            markdown(["# The harvest\n", "\n", "Of *all* trees."]),
            code("import pandas", {"output_type": "stream", "name": "stdout", "text": "loaded\n"}),
            code("frame", result),
            code("frame.plot()", plot),
            {"cell_type": "raw", "source": "As it is."},
            language_info={"name": "python"},
        ),
        "harvest.ipynb",
    )

    assert extracted.text == (
        "# The harvest\n\nOf *all* trees.\n\n"
        "```python\nimport pandas\n```\n\n```\nloaded\n```\n\n"
        "```python\nframe\n```\n\n```\n   apples\n0  112\n```\n\n"
        "```python\nframe.plot()\n```\n\n```\n<Figure size 640x480>\n```\n\n(output: image/png)\n\n"
        "As it is."
    )
    assert extracted.title == "The harvest"
    assert [place.at for place in extracted.places] == [{"cell": n} for n in range(1, 6)]
    assert not extracted.warnings


@pytest.mark.parametrize("beside", [{}, {"text/plain": "<IPython.core.display.HTML object>"}])
def test_html_is_read_where_no_text_stands_beside_it(read, beside: dict):
    table = "<style>td {}</style><table><tr><th>tree<th>kg</tr><tr><td>elm<td>3</tr></table>"
    shown = {"output_type": "display_data", "data": {"text/html": [table], **beside}}
    choking = {"output_type": "display_data", "data": {"text/html": "<div>" * 5_000, **beside}}

    text = read(notebook(code("frame", shown), code("deep", choking)), "a.ipynb").text
    assert "| tree | kg |\n| --- | --- |\n| elm | 3 |" in text
    assert text.count("(output: text/html)") == (0 if beside else 1)
    assert "```\n| tree" not in text


def test_an_error_is_read_without_its_colours(read):
    trace = ["\x1b[0;31mZeroDivisionError\x1b[0m: division by zero"]
    broken = {"output_type": "error", "ename": "E", "evalue": "v", "traceback": trace}

    assert (
        "```\nZeroDivisionError: division by zero\n```"
        in read(notebook(code("1 / 0", broken)), "a.ipynb").text
    )


def test_the_old_format_is_read(read):
    cells = [
        {"cell_type": "heading", "level": 2, "source": "Trees"},
        {
            "cell_type": "code",
            "input": "1 + 1",
            "outputs": [{"output_type": "pyout", "text": ["2"], "png": "iVBO"}],
        },
    ]
    old = json.dumps({"worksheets": [{"cells": cells}], "nbformat": 3})

    assert read(old, "a.ipynb").text == (
        "## Trees\n\n```\n1 + 1\n```\n\n```\n2\n```\n\n(output: image/png)"
    )


def test_what_a_loop_printed_is_cut_and_a_picture_in_the_text_is_left_out(read):
    printed = {"output_type": "stream", "text": "line\n" * OUTPUT_LENGTH}
    extracted = read(
        notebook(markdown(f"see ![x](data:image/png;base64,{'A' * 9999})"), code("run", printed)),
        "a.ipynb",
    )

    assert len(extracted.text) < OUTPUT_LENGTH + 200
    assert extracted.text.startswith("see ![x](a picture)\n")
    assert "first 20,000 characters" in extracted.warnings[0]


def test_code_with_fences_of_its_own_stays_in_one(read):
    text = read(notebook(code('text = """\n```\n# no heading\n```\n"""')), "a.ipynb").text

    assert text.startswith("````\n")
    assert text.endswith("\n````")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ("", "not valid JSON"),
        ('{"cells": [', "not valid JSON"),
        ("<<<<<<< HEAD\n{}", r"not valid JSON \(line 1\)"),
        ('{"name": "package"}', "no cells"),
        ("[]", "no cells"),
        ('{"cells": "none"}', "no cells"),
        ('{"cells": ' + "[" * 200_000, "nested too deeply"),
    ],
)
def test_what_is_no_notebook_fails_with_the_reason(read, data, why):
    with pytest.raises(Permanent, match=why) as caught:
        read(data, "a.ipynb")

    assert caught.value.code == "unreadable_content"


@pytest.mark.parametrize(
    "cell",
    [
        {},
        {"cell_type": "code", "source": 7, "outputs": "x"},
        {"cell_type": "code", "source": ["a", 1], "outputs": [1, None, {"data": [], "text": {}}]},
        {"cell_type": "heading", "level": "x", "source": "h"},
        {"cell_type": "code", "outputs": [{"output_type": "error", "traceback": 3}]},
        {"cell_type": [], "source": None},
    ],
)
def test_cells_of_any_shape_harm_nobody(read, cell):
    assert read(notebook(cell, markdown("good")), "a.ipynb").text.endswith("good")


def test_no_cells_are_an_empty_text(read):
    assert read(notebook(), "a.ipynb").text == ""
