"""The log of the service's processes, and of a command that works on the database itself."""

from recollect import log
from recollect.config import Config


def log_of_process(config: Config, process: str) -> None:
    """All of it, but on a terminal briefly, unless RECOLLECT_LOG_LEVEL says how much."""
    log.configure(
        config.log_level, process=process, brief="log_level" not in config.model_fields_set
    )


def log_of_command(level: str) -> None:
    """A command says itself what it did and found: of its log it shows errors, and all of it only
    where more than usual is asked for."""
    log.configure("error" if level in ("info", "warning") else level, process="cli")
