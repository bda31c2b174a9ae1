"""The log of a command that works on the database itself."""

from recollect import log


def log_of_command(level: str) -> None:
    """A command says itself what it did and found: of its log it shows errors, and all of it only
    where more than usual is asked for."""
    log.configure("error" if level in ("info", "warning") else level, process="cli")
