"""One sandbox for all tests of this folder; each test finds it working."""

import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec

import pytest

from recollect.extract import Limits, Sandbox
from recollect.model import Blob, Extracted

ROGUES = "tests.extract.rogues"

Read = Callable[..., Extracted]
Unpack = Callable[..., tuple[Extracted, dict[str, bytes]]]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--golden", action="store_true", help="write the files of tests/extract/golden again"
    )


@pytest.fixture(scope="session")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(workers=2, packages=[ROGUES]) as sandbox:
        yield sandbox


@pytest.fixture(scope="session")
def strict() -> Iterator[Sandbox]:
    """A sandbox whose limits are soon reached, but for the clock: the machine may be busy."""
    limits = Limits(memory_bytes=400_000_000, cpu_seconds=1, wall_factor=60, text_bytes=1000)
    with Sandbox(workers=2, packages=[ROGUES], limits=limits) as sandbox:
        yield sandbox


@pytest.fixture(scope="session")
def read(sandbox: Sandbox) -> Read:
    """Extract some bytes: `read(data, "a.csv")`."""

    def read(
        data: bytes | str,
        name: str | None = None,
        *,
        mime: str | None = None,
        url: str | None = None,
        forced: str | None = None,
    ) -> Extracted:
        data = data.encode() if isinstance(data, str) else data
        blob = Blob(data, mime=mime, name=name, url=url)
        return sandbox.extract(blob, forced=forced, owner="tests")

    return read


@pytest.fixture
def unpack(sandbox: Sandbox) -> Unpack:
    """The list, and the bytes of each file by its path."""

    def unpack(data: bytes, name: str = "a.zip") -> tuple[Extracted, dict[str, bytes]]:
        with tempfile.TemporaryFile() as spool:
            found = sandbox.unpack(Blob(data, name=name), spool)
            members: dict[str, bytes] = {}
            for member in found.members or ():
                spool.seek(member.start)
                members[member.path] = spool.read(member.size)
        return found, members

    return unpack


def deed(sandbox: Sandbox, words: str) -> str:
    return sandbox.extract(Blob(words.encode(), mime="application/x-rogue", name="x.rogue")).text


needs_pocketsphinx = pytest.mark.skipif(
    find_spec("pocketsphinx") is None, reason="pocketsphinx has no wheel for this Python"
)
needs_linux = pytest.mark.skipif(
    sys.platform != "linux", reason="Landlock and seccomp are Linux's own"
)
