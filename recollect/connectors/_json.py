"""Parts of a provider's JSON, whatever it sent: the wrong kind of thing is an empty one."""

import re
from datetime import UTC, datetime
from typing import Any, cast

LONGEST_NAME = 1_000
"""characters of a title, a path, a person's name"""
EARLIEST, LATEST = datetime(1, 1, 2, tzinfo=UTC), datetime(9999, 12, 30, tzinfo=UTC)
"""of times: a day is left on both sides to reckon with"""
UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def as_object(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    return cast("list[Any]", value) if isinstance(value, list) else []


def as_objects(value: Any) -> list[dict[str, Any]]:
    """The objects of a list."""
    return [cast("dict[str, Any]", one) for one in as_list(value) if isinstance(one, dict)]


def as_word(value: Any) -> str:
    return value if isinstance(value, str) else ""


def as_name(text: str) -> str:
    """Without what cannot be stored, or is not a name."""
    return UNPRINTABLE.sub(" ", text)[:LONGEST_NAME].strip()


def as_time(text: str) -> datetime | None:
    """ISO 8601, in UTC if it does not say; None for what is not a time, or so far away that it
    could be stored in UTC, but never be read again."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    time = time if time.tzinfo else time.replace(tzinfo=UTC)
    return time.astimezone(UTC) if EARLIEST < time < LATEST else None
