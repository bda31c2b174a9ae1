"""Of two transactions that wait for each other the server ends one: that is done again."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from recollect.db import TRIES, Database, Tx
from recollect.errors import Collided


def test_what_collides_is_done_again(database_url: str):
    both = threading.Barrier(2)
    began: list[str] = []

    def work(first: str, second: str) -> str:
        def write(tx: Tx) -> str:
            began.append(first)
            tx.execute("update rivals set n = n + 1 where name = %s", (first,))
            if began.count(first) == 1:
                both.wait(60)
            tx.execute("update rivals set n = n + 1 where name = %s", (second,))
            return first

        return base.write(write)

    with Database(database_url) as base, ThreadPoolExecutor(2) as pool:
        with base.begin() as tx:
            tx.execute("create table rivals (name text primary key, n int not null default 0)")
            tx.execute("insert into rivals values ('a'), ('b')")
        try:
            assert list(pool.map(work, "ab", "ba")) == ["a", "b"]
            with base.begin() as tx:
                rows = tx.execute("select n from rivals").fetchall()
            assert [row["n"] for row in rows] == [2, 2]
            assert len(began) == 3
        finally:
            with base.begin() as tx:
                tx.execute("drop table rivals")


def test_what_collides_each_time_is_given_up(database_url: str):
    began: list[int] = []

    def collide(tx: Tx) -> None:
        began.append(1)
        tx.execute("do $$ begin raise exception using errcode = '40P01'; end $$")

    with Database(database_url) as base:
        with pytest.raises(Collided):
            base.write(collide)
        assert len(began) == TRIES
