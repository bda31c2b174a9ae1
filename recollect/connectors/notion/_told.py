"""What Notion says of a page or a database: its edit, its parent, its properties."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from typing import Any

from recollect.connectors._json import as_object
from recollect.connectors.api import as_json, field_of
from recollect.connectors.notion._blocks import (
    ListPage,
)
from recollect.connectors.notion._values import (
    id_of,
    tidy,
    time_of,
    value_of,
)
from recollect.fetch import EndpointAnswer
from recollect.model import MetadataValue

LONGEST_KEY = 64


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
    """As Notion writes it, so that texts can be compared; empty for what tells only its id.

    Raises Transient for an invalid time.
    """
    edited = tidy(found.get("last_edited_time"))
    return stamp(time_of(edited)) if edited else ""


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
