"""What Notion says of a page or a database: its edit, its parent, its properties."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from itertools import islice
from typing import Any

from recollect.connectors._json import as_object, as_time
from recollect.connectors.api import as_json, field_of
from recollect.connectors.notion._blocks import (
    ListPage,
)
from recollect.connectors.notion._state import PAGE
from recollect.connectors.notion._values import (
    id_of,
    shown,
    tidy,
    time_of,
    value_of,
)
from recollect.fetch import EndpointAnswer
from recollect.model import MetadataValue

LONGEST_KEY = 64
LONGEST_VALUE = 2_000
"""characters of one property"""
LONGEST_LINES = 20_000
"""characters of all properties of a row that begin its text"""
MOST_PROPERTIES = 100


@dataclass(frozen=True, slots=True)
class PageLook:
    children: Sequence[tuple[str, str]]
    blank: bool
    whole: bool
    """nothing was left out"""


def object_of(answer: EndpointAnswer) -> dict[str, Any]:
    found = as_object(as_json(answer))
    field_of(found, "object", str)
    return found


def edited_at(found: Mapping[str, Any]) -> str:
    """As Notion writes it, so that texts can be compared; empty for what tells no time."""
    edited = as_time(tidy(found.get("last_edited_time")))
    return stamp(edited) if edited else ""


def stamp(time: datetime) -> str:
    return time.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")


def is_over(page: ListPage, until: datetime) -> bool:
    """Whether a list that is newest first has come to what was seen before."""
    times = [time_of(edited) for found in page.results if (edited := edited_at(found))]
    return bool(times) and min(times) < until


def parent_of(found: Mapping[str, Any]) -> str | None:
    """Id of the page or data source that something stands in, if it says so."""
    parent = as_object(found.get("parent"))
    for name in ("data_source_id", "page_id"):
        if parent.get(name) is not None:
            return id_of(parent.get(name))
    return None


def properties_of(given: Mapping[str, Any]) -> Iterator[tuple[str, str, MetadataValue]]:
    """Name, type and value of what has one; the title is told elsewhere."""
    for name, property in given.items():
        kind = tidy(as_object(property).get("type"))
        value = None if kind == "title" else value_of(property)
        key = " ".join("".join(c if c.isprintable() else " " for c in tidy(name)).split())
        if value is not None and key:
            yield key[:LONGEST_KEY], kind, value


def mark_of(title: str, url: str, metadata: Mapping[str, Any], lines: Sequence[str]) -> str:
    """Stands for all that is told of a thing besides its content."""
    told = repr((title, url, sorted(metadata.items()), list(lines)))
    return sha256(told.encode()).hexdigest()[:16]


def described(
    page: Mapping[str, Any], name_of_database: Callable[[str], str]
) -> tuple[dict[str, MetadataValue], list[str]]:
    """Metadata, and for a row what its properties say, as lines."""
    given = as_object(page.get("properties"))
    within = parent_of(page)
    is_row = as_object(page.get("parent")).get("type") in ("data_source_id", "database_id")
    told: dict[str, MetadataValue] = {"type": "row" if is_row else PAGE}
    if within is not None:
        told["parentId"] = within
    if is_row and within is not None and (title := name_of_database(within)):
        told["database"] = title[:LONGEST_VALUE]
    for name, key in (("created_time", "createdAt"), ("last_edited_time", "editedAt")):
        if time := tidy(page.get(name)):
            told[key] = time
    lines: list[str] = []
    left = LONGEST_LINES
    for name, kind, value in islice(properties_of(given), MOST_PROPERTIES):
        key = name if name not in told else f"property {name}"[:LONGEST_KEY]
        told[key] = value[:LONGEST_VALUE] if isinstance(value, str) else value
        line = f"{name}: {shown(told[key])}"
        left -= len(line)
        if is_row and kind != "relation" and left >= 0:
            lines.append(line)
    return told, lines
