"""What the operator has set, in words: models, limits, backup, purge, version."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from recollect import __version__
from recollect.app import App
from recollect.config import Config


@dataclass(frozen=True, slots=True)
class InstalledFact:
    """One line: what it is, how it stands, what that means; the setting, and the guide to it."""

    name: str
    value: str
    meaning: str
    setting: str = ""
    guide: str = "settings"


def facts(app: App) -> Sequence[InstalledFact]:
    """Of this process; others of the installation are set in the same way. Names no secret."""
    config = app.config
    return [
        InstalledFact(
            "Version", __version__, "What runs. CHANGELOG.md says what came with it.", guide=""
        ),
        InstalledFact(
            "Embedding model",
            app.embedder.name if app.embedder else "none",
            "Finds passages by meaning. `recollect embedder switch` changes it while"
            " searches go on."
            if app.embedder
            else "Searches go by words only. `local` adds meaning.",
            "RECOLLECT_EMBEDDER",
        ),
        InstalledFact(
            "Language model",
            app.llm.name if app.llm else "none",
            "Answers questions, draws memories from documents, and judges what filters ask it."
            if app.llm
            else "Questions get passages, not an answer; no memories are drawn from documents;"
            " and filters in words let nothing in.",
            "RECOLLECT_LLM_URL and RECOLLECT_LLM_MODEL",
        ),
        InstalledFact(
            "Reranker",
            app.reranker.name if app.reranker else "none",
            f"Judges the first {config.rerank_first} passages of a search that asks for it."
            if app.reranker
            else "A search that asks for it gets a warning.",
            "RECOLLECT_RERANK_MODEL",
            "search",
        ),
        InstalledFact(
            "Processed at once",
            f"{config.workers:,} documents, {config.syncs:,} connections",
            "By each worker process. More is faster where there are cores.",
            "RECOLLECT_WORKERS and RECOLLECT_SYNCS",
        ),
        *_limits(config),
        InstalledFact(
            "Syncs",
            f"every {_span(config.sync_interval)}",
            "How often connections look for changes, unless a connection says otherwise.",
            "RECOLLECT_SYNC_INTERVAL",
            "connections",
        ),
        InstalledFact(
            "Purge",
            f"every {_span(config.purge_interval)}" if config.purge_interval else "by hand",
            "Deleted content leaves searches at once, and the disk with the purge:"
            " `recollect purge --now` does it now.",
            "RECOLLECT_PURGE_INTERVAL",
        ),
        InstalledFact(
            "Backup",
            "by command",
            "`recollect backup` writes all there is into one file; `recollect verify` proves that"
            " what is stored is whole. Nothing is backed up by itself.",
            guide="backup",
        ),
        InstalledFact(
            "Audit log",
            f"{_span(config.audit_retention)}" if config.audit_retention else "forever",
            "How long it is kept.",
            "RECOLLECT_AUDIT_RETENTION",
        ),
    ]


def _limits(config: Config) -> list[InstalledFact]:
    rate = f"{config.rate_limit:,} a minute" if config.rate_limit else "no limit"
    return [
        InstalledFact(
            "Largest file",
            f"{config.max_file_mb:,} MB",
            "Larger uploads are refused.",
            "RECOLLECT_MAX_FILE_MB",
        ),
        InstalledFact(
            "Requests per key",
            rate,
            "For each key without a limit of its own.",
            "RECOLLECT_RATE_LIMIT",
        ),
        InstalledFact(
            "Attempts",
            f"{config.max_attempts:,}",
            "How often a document is tried before it counts as failed.",
            "RECOLLECT_MAX_ATTEMPTS",
        ),
    ]


def _span(length: timedelta) -> str:
    seconds = length.total_seconds()
    for unit, size in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= size:
            number = seconds / size
            return unit if number == 1 else f"{number:g} {unit}s"
    return f"{seconds:g} seconds"
