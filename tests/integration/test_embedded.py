"""The bundled PostgreSQL, started, killed and joined for real."""

import os
import signal
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from recollect.db.embedded import Embedded
from recollect.errors import SetupError
from tests.conftest import eventually


@pytest.fixture
def folder(short_tmp: Path, request: pytest.FixtureRequest) -> Path:
    return short_tmp / request.node.name[:40]


def postmaster(server: Embedded) -> int:
    return int((server.cluster / "postmaster.pid").read_text().split("\n", 1)[0])


def test_what_was_committed_survives_a_kill_of_the_server(folder: Path):
    server = Embedded(folder)
    with psycopg.connect(server.ensure(), autocommit=True) as session:
        session.execute("create table t (n int)")
        session.execute("insert into t values (1)")
        killed = postmaster(server)
        os.kill(killed, signal.SIGKILL)

    def back() -> str | None:
        # A process that was killed a moment ago may still be there: the next look finds it gone.
        url = server.ensure()
        return url if postmaster(server) != killed else None

    url = eventually(back)

    try:
        with psycopg.connect(url) as session:
            assert session.execute("select n from t").fetchall() == [(1,)]
    finally:
        server.stop()


def test_a_second_process_joins_the_running_server(folder: Path):
    first, second = Embedded(folder), Embedded(folder)
    first.ensure()

    second.ensure()

    try:
        assert second.running()
        assert not second.started_here()
    finally:
        first.stop()
    assert not second.running()


def test_the_server_asks_for_a_password_and_listens_on_no_port(folder: Path):
    server = Embedded(folder)
    url = server.ensure()
    try:
        with psycopg.connect(url) as session:
            row = session.execute("show listen_addresses").fetchone()
        assert row == ("",)
        with pytest.raises(psycopg.OperationalError, match="password"):
            psycopg.connect(make_conninfo(url, password="wrong"))
    finally:
        server.stop()


def test_a_half_made_cluster_is_made_anew(folder: Path):
    server = Embedded(folder)
    server.folder.mkdir(parents=True)
    server.cluster.mkdir()
    (server.cluster / "base").mkdir()

    server.ensure()

    try:
        assert server.running()
    finally:
        server.stop()


def test_a_cluster_of_another_major_version_is_refused_with_the_way_out(folder: Path):
    server = Embedded(folder)
    server.folder.mkdir(parents=True)
    server.cluster.mkdir()
    (server.cluster / "PG_VERSION").write_text("17\n")

    way_out = "with the Recollect that wrote it, move .* away, and run `recollect restore"
    with pytest.raises(SetupError, match=way_out):
        server.ensure()

    assert [path.name for path in server.cluster.iterdir()] == ["PG_VERSION"]
