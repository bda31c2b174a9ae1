"""Structured lines: one canonical line per request, document and sync.

Pretty on a terminal, JSON otherwise. Never content, tokens, or query strings of foreign URLs.
"""

import logging
import sys
from collections.abc import Mapping

import structlog
from structlog.typing import FilteringBoundLogger, Processor

LEVELS: Mapping[str, int] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


def configure(level: str = "info", *, process: str | None = None) -> None:
    """Set up logging of this process; `process` names it on each line (`api`, `worker`)."""
    terminal = sys.stderr.isatty()
    processors: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if terminal:
        processors.append(
            structlog.dev.ConsoleRenderer(
                # Without local variables: they hold content.
                exception_formatter=structlog.dev.plain_traceback
            )
        )
    else:
        processors += [
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(sort_keys=False),
        ]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        # A line and its end in one write: lines of several threads and processes stay apart.
        logger_factory=structlog.WriteLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.clear_contextvars()
    if process:
        structlog.contextvars.bind_contextvars(process=process)


def get(name: str) -> FilteringBoundLogger:
    """The logger of a module; `name` is shown as `part`."""
    return structlog.get_logger(part=name)
