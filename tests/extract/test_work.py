"""Files that ask for work without end are given little of it, whatever the clock says.

Measured is the processor time of the sandbox's processes, which a busy machine does not lengthen.
"""

import io
import resource
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest

from recollect.errors import Permanent
from recollect.extract import Limits, Sandbox
from recollect.model import Blob
from tests.extract import archives, samples

MOST = 30.0
"""Seconds of work that a file may cost whose content is a trap."""


@dataclass
class Cost:
    seconds: float = 0.0


@contextmanager
def reading() -> Generator[tuple[Sandbox, Cost]]:
    """A sandbox, and what its processes cost, once they have ended."""
    cost, before = Cost(), _spent()
    with Sandbox(workers=1, limits=Limits(wall_factor=60)) as sandbox:
        yield sandbox, cost
    cost.seconds = _spent() - before


def _spent() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.mark.costly
@pytest.mark.parametrize(
    "padding",
    [
        pytest.param(0, id="small"),
        pytest.param(45_000_000, id="large", marks=pytest.mark.slow),
    ],
)
def test_a_list_of_pages_that_contains_itself_ends_within_its_work(padding: int):
    """A large file may take longer than a small one, but not for this."""
    data = samples.page_loop_pdf() + b"%" * padding

    with reading() as (sandbox, cost):
        with pytest.raises(Permanent, match="list of pages has no end") as caught:
            sandbox.extract(Blob(data, name="a.pdf"))
        after = sandbox.extract(Blob(samples.pdf("still here"), name="b.pdf"))

    assert caught.value.code == "unreadable_content"
    assert after.text == "still here"
    assert cost.seconds < MOST


@pytest.mark.slow
def test_what_draws_itself_ends_within_the_time_that_its_size_may_take():
    with reading() as (sandbox, cost), pytest.raises(Permanent):
        sandbox.extract(Blob(samples.form_fan_pdf(), name="a.pdf"))

    assert cost.seconds < MOST + 5


def unpacked(sandbox: Sandbox, data: bytes) -> tuple[list[str], str]:
    """Paths of what came out of it, and the list that says what did not."""
    found = sandbox.unpack(Blob(data, name="a.zip"), io.BytesIO())
    return [member.path for member in found.members or ()], "\n".join([found.text, *found.warnings])


def test_archives_nine_deep_end_within_their_work_and_say_why():
    with reading() as (sandbox, cost):
        straight, told = unpacked(sandbox, archives.wrapped(archives.packed({"a.txt": "w"}), 8))
        fan, fan_told = unpacked(sandbox, archives.fanned(9, 10))
        shallow, _ = unpacked(sandbox, archives.fanned(3, 4))

    assert (straight, fan) == ([], [])
    assert "it is nested in more than 3 archives" in told
    assert "it is nested in more than 3 archives" in fan_told
    assert len(shallow) == 4**3
    assert cost.seconds < MOST
