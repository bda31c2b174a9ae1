"""reStructuredText, AsciiDoc and Org: headings that passages carry, code that stays whole."""

from collections.abc import Iterator

import pytest

from recollect.extract import Limits, Sandbox, detect
from recollect.ingest import chunk, positions
from recollect.model import Blob

RST = """\
.. _top:

==========
The weir
==========

.. comment stays

Gates
=====

Open them::

    # no heading
    gate.open()

.. code-block:: python
   :linenos:

   # nor this
   ----
   gate.close()

Table
-----

=====  ====
a      b
=====  ====
1      2
=====  ====

One line.
Another
---

Locks
=====
"""
ADOC = """\
= The weir
:author: A. Keeper

// a comment
== Gates

[source,python]
----
# no heading
== nor this
----

NAME
----

====
An example.
====

=== Locks
. one
"""
ORG = """\
#+TITLE: The weir
#+OPTIONS: toc:nil
# a comment
* TODO Gates :work:
:PROPERTIES:
:ID: 7f
:END:
See [[https://a.test/x][the plan]], *bold*.
#+BEGIN_SRC python
,* no heading
# nor this
#+END_SRC
** Locks
#+begin_quote
Said.
#+end_quote
"""


def headings(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("#")]


def test_headings_of_rst_have_the_levels_of_their_lines(read):
    extracted = read(RST, "weir.rst")

    assert extracted.title == "The weir"
    assert headings(extracted.text)[:2] == ["# The weir", "## Gates"]
    assert "# The weir\n" in extracted.text
    assert "\n## Gates\n" in extracted.text
    assert "\n### Table\n" in extracted.text
    assert "```\n# no heading\ngate.open()\n```" in extracted.text
    assert "```python\n# nor this\n----\ngate.close()\n```" in extracted.text
    assert "=====  ====\na      b\n=====  ====" in extracted.text
    assert "One line.\nAnother\n---" in extracted.text


def test_headings_of_asciidoc_are_kept_and_listings_fenced(read):
    extracted = read(ADOC, "weir.adoc")

    assert extracted.title == "The weir"
    assert "```python\n# no heading\n== nor this\n```" in extracted.text
    for heading in ("# The weir", "## Gates", "## NAME", "### Locks"):
        assert f"{heading}\n" in extracted.text
    assert "a comment" not in extracted.text
    assert "\nAn example.\n" in extracted.text
    assert "====" not in extracted.text
    assert ":author: A. Keeper" in extracted.text


def test_headings_of_org_are_kept_and_its_bookkeeping_is_not(read):
    extracted = read(ORG, "weir.org")

    assert extracted.title == "The weir"
    assert extracted.text == (
        "Title: The weir\n\n# TODO Gates :work:\n\n"
        "See [the plan](https://a.test/x), *bold*.\n\n"
        "```python\n* no heading\n# nor this\n```\n\n## Locks\n\nSaid."
    )


@pytest.mark.parametrize(("name", "text"), [("a.rst", RST), ("a.adoc", ADOC), ("a.org", ORG)])
def test_a_passage_carries_the_headings_it_stands_under(read, name, text):
    extracted = read(text + "\n" + "Water runs over the sill of the lock. " * 80, name)
    chunks = positions.locate(extracted, chunk.split(extracted.text))

    assert (chunks[-1].place or {})["heading"][-1] == "Locks"
    assert not any(
        "nor this" in one for at in chunks for one in (at.place or {}).get("heading", ())
    )


@pytest.mark.parametrize(
    ("name", "mime", "kind"),
    [
        ("a.rst", None, "rst"),
        ("README.adoc", "text/plain", "asciidoc"),
        (None, "text/x-asciidoc", "asciidoc"),
        ("notes.ORG", None, "org"),
        ("a.ipynb", "application/json", "notebook"),
        (None, "text/xml; charset=utf-8", "xml"),
    ],
)
def test_the_kind_is_told_by_name_and_type(name, mime, kind):
    found = detect(b"words of it", name=name, mime=mime)

    assert found is not None
    assert found.extractor == kind


@pytest.fixture(scope="module")
def hasty() -> Iterator[Sandbox]:
    """A sandbox that has little processor time."""
    with Sandbox(workers=1, limits=Limits(cpu_seconds=2, wall_factor=60)) as sandbox:
        yield sandbox


@pytest.mark.parametrize("name", ["a.rst", "a.adoc", "a.org"])
@pytest.mark.parametrize(
    "line", ["====\n", "----\n", "* \n", "#+begin_src\n", ".. code::\n", "a::\n\n  b\n", "=" * 50]
)
def test_the_same_line_over_and_over_takes_no_time(hasty, name, line):
    text = line * (500_000 // len(line))

    assert hasty.extract(Blob(text.encode(), name=name)) is not None


@pytest.mark.parametrize("mark", [":LOGBOOK:", ":PROPERTIES:", "#+begin_comment"])
def test_what_an_org_file_does_not_close_hides_nothing(read, mark):
    end = "#+end_comment" if "comment" in mark else ":end:"
    text = f"{mark}\nhidden\n{end}\n{mark}\nseen\n* Head\nbelow\n"

    assert read(text + mark + "\nlast", "a.org").text == "seen\n\n# Head\n\nbelow\nlast"
    assert read(text * 20_000, "a.org").text.count("seen") == 20_000
