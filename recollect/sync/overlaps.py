"""Connections that bring the same into one tag, so that its documents are there twice."""

from collections.abc import Mapping
from typing import Any

from recollect import connectors
from recollect.connectors.base import Connector
from recollect.db import Tx
from recollect.model import Connection, Tenant
from recollect.sync import connections

MOST_NAMED = 3
"""connections, and tags of one"""


def told(tx: Tx, tenant: Tenant, found: Connection) -> list[str]:
    """A sentence for each other connection of the tenant that brings the same, or some of it."""
    connector = connectors.all().get(found.provider)
    if connector is None:
        return []
    said: list[str] = []
    beside = {
        one.id: one
        for tag in found.container_tags
        for one in connections.find(tx, tenant, provider=found.provider, tags=[tag])
    }
    for other in beside.values():
        shared = [tag for tag in found.container_tags if tag in other.container_tags]
        if other.id == found.id or len(said) == MOST_NAMED:
            continue
        if what := _shared(connector, found, other):
            said.append(
                f"Connection {other.id} brings {what} into {', '.join(shared[:MOST_NAMED])}, too,"
                " so documents come in twice; change or delete one of the two connections."
            )
    return said


def _shared(connector: Connector, one: Connection, other: Connection) -> str | None:
    a, b = one.metadata, other.metadata
    if connector.subject is not None:
        return _of_subject(connector.subject, a, b)
    ours, theirs = connector.selection(a), connector.selection(b)
    if connector.picks:  # the same for every account
        both = (ours or {}).keys() & (theirs or {}).keys()
        return ("the same" if ours == theirs else "some of the same") if both else None
    if connector.oauth is None or one.account is None or one.account != other.account:
        return None
    if ours and theirs and ours.keys().isdisjoint(theirs):
        return None
    return "the same" if (a, ours) == (b, theirs) else "things of the same account"


def _of_subject(subject: str, a: Mapping[str, Any], b: Mapping[str, Any]) -> str | None:
    """Of sites, buckets and folders, which the metadata names."""
    if "endpoint" in a or "bucket" in a:
        if any(a.get(key) != b.get(key) for key in ("endpoint", "bucket")):
            return None
        ours, theirs = str(a.get("prefix") or ""), str(b.get("prefix") or "")
    elif subject == "path":
        ours, theirs = (f"{str(given.get(subject)).rstrip('/')}/" for given in (a, b))
    else:
        return "the same" if a.get(subject) == b.get(subject) else None
    if ours == theirs:
        return "the same"
    return "some of the same" if ours.startswith(theirs) or theirs.startswith(ours) else None
