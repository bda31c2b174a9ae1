"""What stands in the place of row-level security: no statement of the API lacks its tenant.

The calls are those of the isolation suite, one for each route; `docs/decisions/0018` has the why.
"""

import re
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import httpx
import psycopg
import pytest
from psycopg import sql

from recollect.db import Database
from recollect.documents import sought
from recollect.model import Org
from tests.contract.test_isolation import ROWS, Names, owned, shelf

__all__ = ["owned", "shelf"]  # fixtures

KEYED = re.compile(r"\b[a-z_]*id\s*=|^insert into", re.IGNORECASE)
"""Names rows one by one, or makes them: of a tenant, if the transaction has bound one."""
OPEN = {
    "authorizations": "found by a state of 256 bits",
    "watchers": "holds no tenant's data",
}
"""Tables that are asked before a tenant is known."""
KNOWN = {
    "importConnection": "by the ids that a transaction before has read of the tenant",
    "previewSettings": "likewise, of one connection",
}
"""Routes with a statement that is not bound, and why that is right."""


@dataclass
class Recorder:
    """All statements of the process, by transaction."""

    org: Org
    tables: set[str]
    seen: int = 0
    unbound: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    route: str | None = None
    _bound: dict[int, bool] = field(default_factory=dict[int, bool])

    def hear(self, cursor: psycopg.Cursor[Any], query: Any, params: Any) -> None:
        text = query.as_string(cursor) if isinstance(query, sql.Composable) else str(query)
        transaction = id(cursor.connection)
        if text.lower().startswith(("begin", "commit", "rollback")):
            self._bound[transaction] = False
            return
        binds = self._names_tenant(params)
        before = self._bound.get(transaction, False)
        self._bound[transaction] = before or binds
        if self.route is None:
            return
        touched = set(re.findall(r"\b(?:from|join|into|update)\s+([a-z_]+)", text)) & self.tables
        if not touched:
            return
        self.seen += 1
        if not binds and not (before and KEYED.search(text)):
            self.unbound[self.route].add(f"{sorted(touched)}: {text[:300]}")

    def _names_tenant(self, value: Any) -> bool:
        match value:
            case str():
                return self.org.id in value
            case dict():
                return any(map(self._names_tenant, value.values()))
            case list() | tuple():
                return value == sought(self.org.id, []) or any(map(self._names_tenant, value))
            case _:
                return False


@pytest.fixture
def recorder(db: Database, org: Org, monkeypatch: pytest.MonkeyPatch) -> Recorder:
    with db.begin() as tx:
        rows = tx.execute(
            "select table_name as name from information_schema.columns"
            " where table_schema = 'public' and column_name = any(%s)",
            (["org_id", "document_id", "connection_id", "memory_id", "endpoint_id"],),
        ).fetchall()
    found = Recorder(org, {row["name"] for row in rows} - {"keys"} - set(OPEN))
    execute = psycopg.Cursor.execute

    def recorded(self: Any, query: Any, params: Any = None, **more: Any) -> Any:
        found.hear(self, query, params)
        return execute(self, query, params, **more)

    monkeypatch.setattr(psycopg.Cursor, "execute", recorded)
    return found


def test_no_statement_reaches_a_tenants_table_without_its_tenant(
    recorder: Recorder, client: httpx.Client, owned: Names
) -> None:
    for name, row in ROWS.items():
        recorder.route = name
        row.call(client, owned)
        recorder.route = None

    unbound = {name: sorted(some) for name, some in recorder.unbound.items()}
    assert {name: some for name, some in unbound.items() if name not in KNOWN} == {}
    assert set(unbound) == set(KNOWN), "one is bound by now: forget it here"
    assert recorder.seen > 100


def test_a_statement_without_its_tenant_is_noticed(
    recorder: Recorder, db: Database, org: Org
) -> None:
    recorder.route = "by hand"
    with db.begin() as tx:
        tx.execute("select 1 from documents where org_id = %s", (org.id,))
        tx.execute("select 1 from chunks where document_id = %s", ("x",))
        assert recorder.unbound == {}
        tx.execute("select title from documents where title = %s", ("x",))
    with db.begin() as tx:
        tx.execute("select 1 from chunks where document_id = %s", ("x",))

    assert len(recorder.unbound["by hand"]) == 2
