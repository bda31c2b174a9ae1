"""The call to the workers: behind the commit, one for many, and never before the last of them."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

from recollect import db
from recollect.db import Database

WRITERS = 8
ROUNDS = 50
SOON = timedelta(seconds=10)
AT_ONCE = timedelta()


def test_who_hears_a_call_sees_what_was_committed(database_url: str):
    """However many share a call: behind each commit comes one."""
    together = threading.Barrier(WRITERS)

    def write(number: int) -> None:
        with base.begin() as tx:
            tx.execute("insert into woken values (%s)", (number,))
            db.notify(tx)
            together.wait()

    with Database(database_url) as base, ThreadPoolExecutor(WRITERS) as pool:
        with base.begin() as tx:
            tx.execute("create table woken (number int)")
        listener = base.listen()
        try:
            for begun in range(0, ROUNDS * WRITERS, WRITERS):
                seen = begun
                writing = [pool.submit(write, begun + one) for one in range(WRITERS)]
                while seen < begun + WRITERS:
                    assert listener.wait(SOON), "committed, and nobody was called"
                    with base.glance() as tx:
                        row = tx.execute("select count(*) as n from woken").fetchone()
                    assert row is not None
                    seen = row["n"]
                for one in writing:
                    one.result()
                while listener.wait(AT_ONCE):
                    pass
        finally:
            listener.close()
            with base.begin() as tx:
                tx.execute("drop table woken")


def test_what_was_taken_back_calls_nobody(database_url: str):
    with Database(database_url) as base:
        listener = base.listen()
        try:
            try:
                with base.begin() as tx:
                    db.notify(tx)
                    raise KeyError
            except KeyError:
                pass
            with base.begin() as tx:  # on the same connection, which forgets
                tx.execute("select 1")
            assert not listener.wait(timedelta(milliseconds=200))
        finally:
            listener.close()
