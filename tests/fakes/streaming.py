"""Streaming replicas of a PostgreSQL that listens on loopback, as an operator makes them."""

import os
import subprocess
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import psycopg
from psycopg.conninfo import make_conninfo

from recollect.db._server_process import ENVIRONMENT, account_for, installed_server
from recollect.db.embedded import Embedded
from tests.fakes.killing import kill

START = 60.0


@dataclass
class Standby:
    """A hot standby of `primary`, which has a port."""

    primary: Embedded
    folder: Path
    port: int
    settings: tuple[str, ...] = ()
    """of postgresql.conf: name=value"""
    _server: psutil.Popen | None = None

    def make(self) -> None:
        """Copy the primary; what it writes is kept for this one from here on."""
        account = account_for(self.primary.cluster)
        self.folder.mkdir(mode=0o711, parents=True, exist_ok=True)
        if account.uid is not None:
            os.chown(self.folder, account.uid, account.gid or -1)
        made = subprocess.run(
            [
                *(installed_server() / "pg_basebackup", "-D", self.data, "-R", "--no-sync"),
                *("--checkpoint=fast", "-C", "-S", f"standby_{self.port}"),
                *("-d", self.primary.superuser_url),
            ],
            check=False,
            capture_output=True,
            text=True,
            **self._as_its_user(),
        )
        assert made.returncode == 0, made.stderr

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def superuser_url(self) -> str:
        return make_conninfo(self.primary.superuser_url, port=self.port)

    def url(self, database: str) -> str:
        """As the service."""
        return make_conninfo(self.primary.url, port=self.port, dbname=database)

    def start(self) -> None:
        (self.data / "postmaster.pid").unlink(missing_ok=True)
        listening = ("listen_addresses=127.0.0.1", f"port={self.port}", "shared_buffers=64MB")
        given = [word for one in (*listening, *self.settings) for word in ("-c", one)]
        with (self.folder / "log").open("ab") as out:
            self._server = psutil.Popen(
                [installed_server() / "postgres", "-D", self.data, "-k", self.folder, *given],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                **self._as_its_user(),
            )
        give_up = time.monotonic() + START
        while not self.answers():
            assert time.monotonic() < give_up, (self.folder / "log").read_text()[-2000:]

    def answers(self) -> bool:
        with suppress(psycopg.Error):
            self.ask("select 1")
            return True
        return False

    def ask(self, statement: str) -> Any:
        """What the superuser gets to see: the first column of the first row. Asked again where
        what is replayed cancels it, which may be any statement, and the connecting."""
        try:
            return self._asked(statement)
        except psycopg.OperationalError as error:  # while it connects, without a code
            if "conflict with recovery" not in str(error):
                raise
        return self.ask(statement)

    def _asked(self, statement: str) -> Any:
        with psycopg.connect(self.superuser_url, connect_timeout=30, autocommit=True) as session:
            answer = session.execute(statement.encode())
            row = answer.fetchone() if answer.description else None
            return None if row is None else row[0]

    def pause(self) -> None:
        """It receives, and replays nothing."""
        self.ask("select pg_wal_replay_pause()")

    def resume(self) -> None:
        self.ask("select pg_wal_replay_resume()")

    def follow(self, other: "Standby") -> None:
        """From now on the log of another, which is or will be promoted."""
        where = other.superuser_url.replace("'", "''")
        self.ask("alter system reset primary_slot_name")
        self.ask(f"alter system set primary_conninfo = '{where}'")
        self.ask("select pg_reload_conf()")

    def processes(self) -> list[psutil.Process]:
        if self._server is None or not self._server.is_running():
            return []
        return [*self._server.children(recursive=True), self._server]

    def freeze(self) -> None:
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):
                process.suspend()

    def thaw(self) -> None:
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):
                process.resume()

    def kill(self) -> None:
        """All of its processes at once."""
        kill(self.processes())
        if self._server is not None:
            self._server.wait(START)
        self._server = None

    def _as_its_user(self) -> dict[str, Any]:
        account = account_for(self.primary.cluster)
        return {
            "cwd": "/",
            "env": ENVIRONMENT,
            "user": account.uid,
            "group": account.gid,
            "extra_groups": account.extra_groups,
        }


@contextmanager
def standing_by(standby: Standby) -> Generator[Standby]:
    """Made and started; killed at the end."""
    standby.make()
    try:
        standby.start()
        yield standby
    finally:
        standby.kill()
