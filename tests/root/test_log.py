"""A log outlives what it tells of: it says where something failed, and quotes nothing."""

import json
import os
import subprocess
import sys

import psycopg
import pytest

from recollect import log

WORDS = "words of a document"
PROGRAM = f"""
import logging
from recollect import log
log.configure()
words = {WORDS[::-1]!r}[::-1]  # since Python 3.13 a traceback quotes lines of such a program
try:
    try:
        int(words)
    except ValueError as error:
        raise KeyError(words) from error
except KeyError:
    log.get("here").exception("bug")
    logging.getLogger("a.library").exception("it failed")
"""


def fall() -> None:
    try:
        raise psycopg.errors.UniqueViolation(f"DETAIL: Key (custom_id)=({WORDS}) already exists.")
    except psycopg.Error as error:
        raise ExceptionGroup(WORDS, [ValueError(WORDS), OSError(2, WORDS)]) from error


def test_a_trace_tells_where_and_what_but_not_the_words() -> None:
    with pytest.raises(ExceptionGroup) as raised:
        fall()

    told = log.trace(raised.value)
    assert WORDS not in told.replace("WORDS", "")
    assert "in fall" in told
    named = [line for line in told.splitlines() if not line.startswith(" ")]
    assert named == [
        "UniqueViolation (23505)",
        "of which came:",
        "ExceptionGroup",
        "ValueError",
        "FileNotFoundError",
    ]


def test_a_circle_of_causes_ends() -> None:
    one, two = ValueError(WORDS), KeyError(WORDS)
    one.__cause__, two.__cause__ = two, one

    assert log.trace(one).splitlines() == ["KeyError", "of which came:", "ValueError"]


def test_neither_our_lines_nor_those_of_libraries_quote_an_error() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, timeout=60
    )

    ours, *theirs = done.stderr.splitlines()
    assert json.loads(ours)["event"] == "bug"
    assert "KeyError" in json.loads(ours)["exception"]
    assert theirs[0] == "it failed"
    assert "KeyError" in theirs
    assert WORDS not in done.stderr


@pytest.mark.parametrize("name", ["error", "reason"])
def test_the_words_of_an_error_are_cleaned(capsys: pytest.CaptureFixture[str], name: str):
    log.configure("info")
    secret = (
        "postgresql://u:hunter2@db/x and https://a.example/b?token=sesame\x1b[2J\n" + "x" * 5_000
    )

    log.get("test").warning("unavailable", **{name: secret})

    [line] = capsys.readouterr().err.splitlines()
    assert "postgresql://…@db/x and https://a.example/b?…" in json.loads(line)[name]
    assert not any(told in line for told in ("hunter2", "sesame", "\x1b", "u001b", "x" * 501))


def test_a_line_that_cannot_be_written_costs_no_work() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as unread:
        done = subprocess.run(
            [sys.executable, "-c", f"{PROGRAM}\nprint('went on', flush=True)"],
            stdout=subprocess.PIPE,
            stderr=unread,
            text=True,
            check=False,
        )
    assert done.stdout == "went on\n"
