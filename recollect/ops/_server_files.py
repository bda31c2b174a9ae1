"""What the server keeps of a text beside its tables: statistics, messages, notices, its log."""

import re
from datetime import timedelta
from pathlib import Path

import psycopg
from psycopg import sql

from recollect.db import Tx
from recollect.ops._rewrite import (
    PATIENCE,
    await_older,
    insisting,
    one_row,
    patiently,
    tables_to_rewrite,
    verbatim,
    wait_until,
)

NOTICES = 80
"""That fill more than two segments (of 32 pages) of the queue of notices, a page each."""
# A message of the server about itself; errors and warnings, and what follows on lines of its own,
# may quote content.
_HARMLESS = re.compile(rb"^[^\n]{0,60}\] (?:LOG|FATAL|PANIC):  ")
_STORAGE = re.compile(r"(\d+)(?:_fsm|_vm|_init)?(?:\.\d+)?")


def renew_statistics(session: Tx, keeper: Tx, left: list[str]) -> None:
    """Forget frequent values, also of columns that are empty now, which `analyze` passes over."""
    found = one_row(
        session,
        "select current_setting('server_version_num')::int as version, rolsuper"
        " from pg_roles where rolname = current_user",
    )
    tables = sql.SQL(", ").join(table.identifier for table in tables_to_rewrite(session))

    def renew() -> None:
        with session.transaction():
            if found["version"] >= 180000:
                session.execute(
                    "select count(pg_clear_attribute_stats("
                    "schemaname, tablename, attname, inherited))"
                    " from pg_stats where schemaname = current_schema()"
                )
            elif found["rolsuper"]:
                session.execute(
                    "delete from pg_statistic s using pg_class c where c.oid = s.starelid"
                    " and c.relnamespace = quote_ident(current_schema())::regnamespace"
                )
            else:
                left.append("statistics of columns that are empty now: the server's superuser")
            session.execute(sql.SQL("analyze {}").format(tables))

    insisting(renew, "pg_statistic")
    await_older(keeper)
    patiently(keeper, sql.SQL("vacuum (full) pg_catalog.pg_statistic").format(), "pg_statistic")


def server_folder(session: Tx, data_dir: Path) -> Path | None:
    """The folder of our own server's data, None if it is somebody else's."""
    ours = data_dir.absolute() / "postgres" / "data"
    try:
        row = one_row(session, "select current_setting('data_directory', true) as folder")
    except psycopg.errors.InsufficientPrivilege:
        return None
    shown = row["folder"]
    return ours if shown is not None and Path(shown).resolve() == ours.resolve() else None


def silence(session: Tx) -> None:
    """Let the server's log say what went wrong, but not quote statements and values.

    And let it remove parts of the write-ahead log rather than use their files again, with what
    they hold.
    """
    for setting in (
        "log_error_verbosity = terse",
        "log_min_error_statement = panic",
        "log_parameter_max_length = 0",
        "log_parameter_max_length_on_error = 0",
        "wal_recycle = off",
    ):
        session.execute(sql.SQL("alter system set {}").format(verbatim(setting)))
    session.execute("select pg_reload_conf()")
    wait_until(
        lambda: one_row(session, "select current_setting('wal_recycle') as now")["now"] == "off",
        timedelta(seconds=10),
    )


def scrub(messages: Path) -> None:
    """Keep of the server's log what cannot quote content. The server opens its log to append, so it
    goes on behind what is left."""
    try:
        with messages.open("r+b") as file:
            kept = [line for line in file if _HARMLESS.match(line)]
            file.seek(0)
            file.truncate()
            file.writelines(kept)
    except FileNotFoundError:
        return


def flush_notices(session: Tx, left: list[str]) -> None:
    """Notices name tags; their queue lets go of a segment once later ones are full and heard."""

    def segments() -> set[str]:
        rows = session.execute("select pg_ls_dir('pg_notify') as name").fetchall()
        return {row["name"] for row in rows}

    before = segments()
    session.execute(
        "select pg_notify('recollect_purge', rpad(n::text, 7900, '.'))"
        " from generate_series(1, %s) as n",
        (NOTICES,),
    )

    def gone() -> bool:
        session.execute(
            "select pg_notify('recollect_purge', rpad(n::text, 7900, '.'))"
            " from generate_series(1, 8) as n"
        )
        return not before & segments()

    if not wait_until(gone, timedelta(seconds=20)):
        left.append("notices that a session has not heard yet: restart the service")


def renew_wal(session: Tx, *, ours: bool, left: list[str]) -> None:
    """Begin a new part of the write-ahead log, and let the server remove the earlier ones."""
    try:
        session.execute("checkpoint")
        parts = _wal_parts(session)
        mark = _wal_part(session)
        # Files that wait to be used again hold what they held; each is filled by being ended.
        again = max([name for name in parts if name > mark], default=mark) if ours else mark
        while _wal_part(session) <= again:
            session.execute("select pg_logical_emit_message(false, 'recollect', 'purge')")
            session.execute("select pg_switch_wal()")
            session.execute("select pg_logical_emit_message(false, 'recollect', 'purge')")
        session.execute("checkpoint")
        if ours and min(_wal_parts(session)) <= mark:
            left.append("write-ahead log that a replication slot or an archive still needs")
    except psycopg.errors.InsufficientPrivilege:
        left.append("the write-ahead log: ask the administrator of the database server")
    else:
        if not ours:
            left.append(
                "write-ahead log whose files are used again, archives, replicas, and the log of the"
                " database server: ask its administrator"
            )


def _wal_part(session: Tx) -> str:
    return one_row(session, "select pg_walfile_name(pg_current_wal_insert_lsn()) as name")["name"]


def _wal_parts(session: Tx) -> list[str]:
    rows = session.execute("select name from pg_ls_waldir() where name ~ '^[0-9A-F]{24}$'")
    return [row["name"] for row in rows.fetchall()]


def remove_abandoned(session: Tx, server: Path) -> int:
    """Remove files of tables that a crash left half-made: the catalogue does not know them.

    A file may belong to a transaction that is under way, and its time does not tell, since a clock
    may be set back. So this waits for the transactions that may have made one.
    """
    oid = one_row(
        session, "select oid::text as oid from pg_database where datname = current_database()"
    )["oid"]
    folder = server / "base" / oid
    found: dict[Path, float] = {}
    for path in folder.iterdir():
        if _STORAGE.fullmatch(path.name):
            try:
                found[path] = path.stat().st_mtime
            except FileNotFoundError:
                continue
    oldest = one_row(
        session,
        "select extract(epoch from coalesce(min(xact_start), now()))::float8 as at"
        " from pg_stat_activity where pid <> pg_backend_pid()",
    )["at"]
    under_way = _under_way(session)
    if not wait_until(lambda: not under_way & _under_way(session), PATIENCE):
        return 0
    # Asked after those ended: what they made is known or gone, and what is newer not in the list.
    rows = session.execute("select pg_relation_filenode(oid)::text as node from pg_class")
    known = {row["node"] for row in rows.fetchall()}
    removed = 0
    for path, changed in found.items():
        match = _STORAGE.fullmatch(path.name)
        if match is not None and match[1] not in known and changed < oldest - 60:
            path.unlink(missing_ok=True)
            removed += 1
    return removed


def _under_way(session: Tx) -> set[str]:
    """The transactions of this database except our own, by their virtual ids."""
    rows = session.execute(
        "select l.virtualtransaction as id from pg_locks l join pg_stat_activity a using (pid)"
        " where l.locktype = 'virtualxid' and l.virtualxid = l.virtualtransaction"
        " and a.datname = current_database() and l.pid <> pg_backend_pid()"
    )
    return {row["id"] for row in rows}
