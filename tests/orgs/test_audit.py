"""The audit log: who did what, from which address, and that nobody can rewrite it."""

from datetime import timedelta
from typing import Any

import httpx
import psycopg
import pytest

from recollect import documents
from recollect.app import App, secret_keys
from recollect.db import Database, Tx
from recollect.documents import NewDocument, _changing
from recollect.errors import Refused
from recollect.model import DocumentId, Org, OrgId, Scope, Tenant, random_id
from recollect.orgs import audit, orgs, settings

Json = dict[str, Any]
SECRET = "zugzwang-and-more"


def told(http: httpx.Client, **query: Any) -> list[Json]:
    answer = http.get("/v3/audit", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()["records"]


def test_each_action_has_its_row_with_who_and_from_where(
    client: httpx.Client, app: App, db: Database, org: Org, tenant: Tenant
):
    with db.begin() as tx:
        ours = orgs.list_keys(tx, org.id)[0].id
    made = client.post("/v3/auth/scoped-key", json={"containerTag": "a", "name": SECRET}).json()
    client.delete(f"/v3/auth/scoped-key/{made['id']}")
    answer = client.patch("/v3/settings", json={"githubClientSecret": SECRET})
    for text in ("one", "two", "three"):
        client.post("/v3/documents", json={"content": f"{SECRET} {text}", "containerTag": "a"})
    client.request("DELETE", "/v3/documents/bulk", json={"containerTags": ["a"]})
    with db.begin() as tx:
        rows = tx.execute("select id from receipts where org_id = %s", (org.id,)).fetchall()
        [receipt] = [row["id"] for row in rows]
    hook = client.post("/v3/webhooks", json={"url": f"https://hooks.example.org/{SECRET}"}).json()
    client.patch(f"/v3/webhooks/{hook['id']}", json={"rotateSecret": True})
    client.delete(f"/v3/webhooks/{hook['id']}")
    body = {"metadata": {"startUrl": "https://docs.example.org"}}
    connection = client.post("/v3/connections/web-crawler", json=body).json()["id"]
    client.delete(f"/v3/connections/{connection}")
    client.post("/v3/settings/reset", json={"confirmation": org.name})

    rows = told(client, actor=f"key:{ours}")
    assert [(row["action"], row["object"]) for row in reversed(rows)] == [
        ("key.created", made["id"]),
        ("key.revoked", made["id"]),
        ("settings.changed", None),
        ("documents.deleted", receipt),
        ("webhook.created", hook["id"]),
        ("webhook.changed", hook["id"]),
        ("webhook.deleted", hook["id"]),
        ("connection.created", connection),
        ("connection.deleted", connection),
        ("organisation.reset", org.id),
    ]
    by_action = {row["action"]: row for row in rows}
    assert by_action["settings.changed"]["details"] == {"names": ["githubClientSecret"]}
    assert by_action["settings.changed"]["request"] == answer.headers["x-request-id"]
    assert by_action["documents.deleted"]["details"] == {"documents": 3}
    assert {row["address"] for row in rows} == {"127.0.0.1"}
    assert {row["result"] for row in rows} == {"done"}
    with db.begin() as tx:
        everything = tx.execute("select audit_log::text as row from audit_log").fetchall()
    assert SECRET not in str(everything)


def test_a_large_deletion_names_none_of_its_receipts(
    client: httpx.Client, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(_changing, "AT_ONCE", 0)
    for text in ("one", "two"):
        client.post("/v3/documents", json={"content": text, "containerTag": "a"})
    client.request("DELETE", "/v3/documents/bulk", json={"containerTags": ["a"]})
    (row,) = told(client, action="documents.deleted")
    assert (row["object"], row["details"]) == (None, {"documents": 2})


def test_a_wrong_key_is_noted_once_a_minute_and_with_whose_it_was(
    client: httpx.Client, live_url: str, db: Database, org: Org
):
    with db.begin() as tx:
        key, secret = orgs.create_key(tx, org.id)
        orgs.revoke_key(tx, key.id)
        audit.sweep(tx, timedelta(0))
        # An hour ago, as far as the log can tell.
        tx.execute("alter table audit_log disable trigger user")
        tx.execute("update audit_log set at = now() - interval '1 hour'")
        tx.execute("alter table audit_log enable trigger user")
    for _ in range(3):
        headers = {"Authorization": f"Bearer {secret}"}
        refused = httpx.get(f"{live_url}/v3/settings", headers=headers, trust_env=False)
        assert refused.status_code == 401

    [row] = told(client, action="sign_in.failed")
    assert (row["actor"], row["object"], row["result"]) == ("nobody", key.id, "refused")


def test_what_fails_leaves_no_row(db: Database, org: Org, app: App):
    def change_in_vain() -> None:
        with db.begin() as tx:
            settings.patch(tx, org.id, {"chunkSize": 400}, keys=secret_keys(app.config))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        change_in_vain()

    with db.begin() as tx:
        assert audit.find(tx, org=org.id, action="settings.changed") == []


@pytest.mark.parametrize(
    "statement",
    [
        "update audit_log set actor = 'nobody'",
        "delete from audit_log",
        "truncate audit_log",
        "insert into audit_log (actor, action, result) values ('cli', 'x', 'maybe')",
    ],
)
def test_the_log_is_append_only(db: Database, org: Org, statement: str):
    def rewrite(tx: Tx) -> None:
        tx.execute(statement.encode())

    with db.begin() as tx:
        audit.record(tx, "key.created", "k", org=org.id)
    with pytest.raises((psycopg.Error, Refused)), db.begin() as tx:
        rewrite(tx)

    with db.begin() as tx:
        assert audit.find(tx, org=org.id, action="key.created")


def test_old_rows_go_by_age_alone(db: Database):
    org = OrgId(random_id())
    with db.begin() as tx:
        for age in ("2 days", "1 minute"):
            tx.execute(
                "insert into audit_log (at, org_id, actor, action, result)"
                " values (now() - %s::interval, %s, 'cli', %s, 'done')",
                (age, org, age),
            )
    with db.begin() as tx:
        audit.sweep(tx, timedelta(days=3))
        assert len(audit.find(tx, org=org)) == 2
        audit.sweep(tx, timedelta(0))
        assert len(audit.find(tx, org=org)) == 2
        audit.sweep(tx, timedelta(days=1))
        assert [row.action for row in audit.find(tx, org=org)] == ["1 minute"]


def test_filters_and_pages(client: httpx.Client, db: Database, org: Org):
    for number in range(3):
        client.post("/v3/auth/scoped-key", json={"containerTag": f"t{number}"})
    keys = told(client, action="key.", limit=2)
    older = told(client, action="key.", before=keys[-1]["id"])

    assert [row["action"] for row in keys + older].count("key.created") == 4
    assert told(client, action="key") == []
    assert told(client, since="2999-01-01") == []
    assert told(client, actor="cli") == []


def test_only_admin_keys_of_the_organisation_read_it(
    live_url: str, db: Database, org: Org, tenant: Tenant
):
    def status(**key: Any) -> int:
        with db.begin() as tx:
            secret = orgs.create_key(tx, org.id, **key)[1]
        headers = {"Authorization": f"Bearer {secret}"}
        return httpx.get(f"{live_url}/v3/audit", headers=headers, trust_env=False).status_code

    assert status(scope=Scope.WRITE) == 403
    assert status(scope=Scope.ADMIN, tags=["a"]) == 403
    assert status(scope=Scope.ADMIN) == 200


def test_one_deletion_and_what_a_source_removes_are_no_rows(db: Database, tenant: Tenant):
    with db.begin() as tx:
        ids = [
            documents.add(
                tx,
                tenant,
                NewDocument(documents.text_content(f"text {number}"), ["a"]),
                DocumentId(random_id()),
            ).id
            for number in range(3)
        ]
        documents.delete(tx, tenant, ids[:1])
        documents.drop(tx, tenant.id, ids[1:])

        assert audit.find(tx, org=tenant.id, action="documents.") == []
