"""Each file that means harm ends in the stated way, and the next file is read as ever."""

import pytest

from recollect.model import Blob
from tests.extract.hostile import ITEMS, outcome

LONG = (
    "PDF with a form in itself",
    "PDF whose list of pages contains itself",
    "animation of 8 pictures of 16 million points",
    "notebook of 50 MB of brackets",
    "XML of 6 million elements",
)
"""`test_pdf.py`, `test_work.py`, `test_image.py`, `test_notebook.py` and `test_xml.py`
have the like in every run"""


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] if name in LONG else []) for name in ITEMS],
)
def test_a_hostile_file_ends_as_stated_and_harms_nobody(sandbox, name, record_property):
    found = outcome(sandbox, ITEMS[name])
    record_property("memory", found.memory)
    record_property("seconds", found.seconds)

    assert ITEMS[name].is_stated(found.ended)
    assert found.memory < 1_600_000_000
    assert sandbox.extract(Blob(b"good", name="good.txt")).text == "good"
