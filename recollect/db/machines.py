"""What all processes on one database must have in common, told by each in the name of its sessions.

Machines that differ would each work well alone, and lose the other's work: what one seals or signs
the other refuses, a file that one keeps the other does not find. So who serves says which secret
keys and which store of files it has, where every other process can read it, and looks at the rest
before it begins. The name goes with the last session of a process, so nobody has to tidy up.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from recollect.db import Tx
from recollect.errors import SetupError

MARK = "recollect serves "
MOST_KEYS = 4
"""of which the name has room, 63 bytes"""
LOOKS = 50
"""for sessions of a service, a tenth of a second apart"""


@dataclass(frozen=True, slots=True)
class Shared:
    """What one process has; both are told by digests, which say nothing of keys and addresses."""

    keys: Sequence[str]
    """ids of its secret keys, the one that seals first"""
    files: str
    """8 characters that mean its store of files"""

    @property
    def name(self) -> str:
        """For `Database`."""
        return f"{MARK}{'+'.join(self.keys[:MOST_KEYS])} {self.files}"

    def agrees(self, other: "Shared") -> bool:
        """Whether each opens what the other seals."""
        return other.keys[0] in self.keys and self.keys[0] in other.keys


def check(tx: Tx, mine: Shared) -> None:
    """Raises SetupError when a process that serves on this database now has other ones."""
    rows = tx.execute(
        "select application_name as name, min(coalesce(host(client_addr), 'this machine')) as host"
        " from pg_stat_activity where datname = current_database() and application_name like %s"
        " group by 1 order by 1",
        (f"{MARK}%",),
    ).fetchall()
    for row in rows:
        keys, _, files = row["name"].removeprefix(MARK).partition(" ")
        other = Shared(keys.split("+"), files)
        if not mine.agrees(other):
            raise SetupError(
                f"a process at {row['host']} serves on this database with another secret key, and"
                " what one of the two seals or signs the other cannot open. Give all machines the"
                " same RECOLLECT_SECRET_KEY, or a copy of one DATA_DIR/secret-key. For a change of"
                " the key, put the new one behind the old one (old,new) on every machine first"
            )
        if other.files != mine.files:
            raise SetupError(
                f"a process at {row['host']} serves on this database with another store of files,"
                " and would not find what is uploaded here. Give all machines the same"
                " RECOLLECT_BLOB_URL: s3://bucket/prefix, or file:///folder of a file system that"
                " they share"
            )


def is_served(tx: Tx, *also: str) -> bool:
    """Whether a service has sessions on this database, or anything whose sessions are called as in
    `also`. The sessions of one that was just stopped take a moment to end: up to 5 seconds."""
    for _ in range(LOOKS):
        busy = tx.execute(
            "select exists (select from pg_stat_activity where datname = current_database()"
            " and (application_name like %s or application_name = any(%s))) as busy",
            (f"{MARK}%", list(also)),
        ).fetchone()
        if busy is None or not busy["busy"]:
            return False
        tx.execute("select pg_stat_clear_snapshot(), pg_sleep(0.1)")
    return True
