"""The settings of an organisation: stored as given, but for secrets, and answered whole."""

from collections.abc import Mapping
from typing import Any

from psycopg.types.json import Jsonb

from recollect import seal
from recollect.db import Tx
from recollect.model import OrgId

DEFAULTS: Mapping[str, Any] = {
    "shouldLLMFilter": False,
    "includeItems": None,
    "excludeItems": None,
    "filterPrompt": None,
    "workspacePrompt": None,
    "chunkSize": None,
    "profileBuckets": None,
    "notionCustomKeyEnabled": False,
    "notionClientId": None,
    "notionClientSecret": None,
    "googleDriveCustomKeyEnabled": False,
    "googleDriveClientId": None,
    "googleDriveClientSecret": None,
    "onedriveCustomKeyEnabled": False,
    "onedriveClientId": None,
    "onedriveClientSecret": None,
    "githubCustomKeyEnabled": False,
    "githubClientId": None,
    "githubClientSecret": None,
}
"""Every key that may be set, on the wire's spelling, with its value when nobody set it."""


SECRETS = frozenset(name for name in DEFAULTS if name.endswith("ClientSecret"))
"""Those that are stored sealed."""


def read(tx: Tx, org: OrgId) -> dict[str, Any]:
    """All settings, those that nobody set with their defaults; secrets are sealed."""
    row = tx.execute("select data from settings where org_id = %s", (org,)).fetchone()
    return {**DEFAULTS, **(row["data"] if row else {})}


def secret(tx: Tx, org: OrgId, name: str, *, key: bytes) -> str | None:
    """One of `SECRETS`, opened; raises SetupError when it was sealed with another key."""
    found = read(tx, org)[name]
    return None if found is None else seal.unseal(key, found, place=(org, name))


def patch(tx: Tx, org: OrgId, change: Mapping[str, Any], *, key: bytes) -> dict[str, Any]:
    """Merge top-level keys; None clears one. Returns all settings as they now are.

    `key`, the secret of the installation, seals the secrets among them.
    """
    stored = {
        name: seal.seal(key, value, place=(org, name)) if name in SECRETS and value else value
        for name, value in change.items()
    }
    tx.execute(
        "insert into settings (org_id, data) values (%(org)s, jsonb_strip_nulls(%(change)s))"
        " on conflict (org_id) do update"
        " set data = jsonb_strip_nulls(settings.data || %(change)s), updated_at = now()",
        {"org": org, "change": Jsonb(stored)},
    )
    return read(tx, org)


def reset(tx: Tx, org: OrgId) -> None:
    """Back to the defaults."""
    tx.execute("delete from settings where org_id = %s", (org,))
