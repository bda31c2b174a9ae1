"""Structured lines: one canonical line per request, document and sync.

Pretty on a terminal, JSON otherwise. Never content, tokens, or query strings of foreign URLs. Nor
the words of an error about a document, which name it and may quote it, in our own lines or in those
of a library: a log is kept when the document is deleted.
"""

import logging
import re
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TextIO, cast

import structlog
from structlog.typing import EventDict, ExcInfo, FilteringBoundLogger, Processor

LEVELS: Mapping[str, int] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "critical": logging.CRITICAL,
}

LONGEST = 500
"""characters of the words of an error in a line"""
_SECRET = re.compile(r"//[^/@\s]*@|\?\S+")
"""Of an address: who asks, with a password, and its query."""


def configure(level: str = "info", *, process: str | None = None, brief: bool = False) -> None:
    """Set up logging of this process; `process` names it on each line (`api`, `worker`).

    `brief`: on a terminal only what someone who watches wants to know.
    """
    terminal = sys.stderr.isatty()
    written: Processor = (
        structlog.dev.ConsoleRenderer()
        if terminal
        else structlog.processors.JSONRenderer(sort_keys=False)
    )
    processors: list[Processor] = [
        *([_briefly] if terminal and brief else []),
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        _clean,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.ExceptionRenderer(_render),
        written,
    ]
    # What libraries say, which else goes to the same place with the words of their errors.
    said = logging.StreamHandler(sys.stderr)
    said.setFormatter(_Wordless())
    logging.basicConfig(handlers=[said])
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        # A line and its end in one write: lines of several threads and processes stay apart.
        logger_factory=structlog.WriteLoggerFactory(cast("TextIO", _Output(sys.stderr))),
    )
    structlog.contextvars.clear_contextvars()
    if process:
        structlog.contextvars.bind_contextvars(process=process)


class _Output:
    """A file for lines. One that it does not take (its disk is full, its reader has gone) is lost,
    and no work with it."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, text: str) -> None:
        with suppress(OSError):
            self._file.write(text)

    def flush(self) -> None:
        with suppress(OSError):
            self._file.flush()


def trace(error: BaseException) -> str:
    """Where an error was raised, and what it came of, each with its class and SQLSTATE.

    Not its words: those of the database quote rows, those of a parser quote the file.
    """
    return "\n".join(_traced(error, set()))


def _traced(error: BaseException, told: set[int]) -> Iterator[str]:
    told.add(id(error))
    before = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if before is not None and id(before) not in told:
        yield from _traced(before, told)
        yield "of which came:"
    yield from (line.rstrip("\n") for line in traceback.format_tb(error.__traceback__))
    state = getattr(error, "sqlstate", None)
    yield type(error).__qualname__ + (f" ({state})" if state else "")
    if isinstance(error, BaseExceptionGroup):
        for one in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            yield from _traced(one, told)


def _briefly(logger: object, method: str, line: EventDict) -> EventDict:
    """Warnings, documents that failed, and that the database was brought up to date."""
    failed = line["event"] == "document" and line.get("outcome") == "failed"
    if LEVELS[method] > logging.INFO or failed or line["event"] == "migrated":
        return line
    raise structlog.DropEvent


def _clean(logger: object, method: str, line: EventDict) -> EventDict:
    """Leave credentials, queries, control characters and long texts out of the words of errors."""
    for name in ("error", "reason"):
        if isinstance(said := line.get(name), str):
            plain = _SECRET.sub(lambda m: "//…@" if m[0][0] == "/" else "?…", said[: 2 * LONGEST])
            told = "".join(sign if sign.isprintable() else " " for sign in plain)
            line[name] = told if len(told) <= LONGEST else f"{told[:LONGEST]}…"
    return line


def _render(exc_info: ExcInfo) -> str:
    return trace(exc_info[1])


class _Wordless(logging.Formatter):
    def formatException(self, ei: ExcInfo) -> str:  # type: ignore[override]
        return trace(ei[1])


def get(name: str) -> FilteringBoundLogger:
    """The logger of a module; `name` is shown as `part`."""
    return structlog.get_logger(part=name)
