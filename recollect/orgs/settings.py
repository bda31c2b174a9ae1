"""The settings of an organisation: stored as given, but for secrets, and answered whole."""

from collections.abc import Mapping, Sequence
from typing import Any

from psycopg.types.json import Jsonb

from recollect import connectors, encryption
from recollect.db import Tx
from recollect.model import OrgId
from recollect.orgs import audit, tags

SECRETS = frozenset(one.setting("ClientSecret") for one in connectors.applications())
"""Settings that are stored sealed."""
DEFAULTS: Mapping[str, Any] = {
    "shouldLLMFilter": False,
    "includeItems": None,
    "excludeItems": None,
    "filterPrompt": None,
    "workspacePrompt": None,
    "keepVersions": 0,
    "chunkSize": None,
    "profileBuckets": None,
    **{one.setting("CustomKeyEnabled"): False for one in connectors.applications()},
    **{one.setting("ClientId"): None for one in connectors.applications()},
    **{one.setting("ClientSecret"): None for one in connectors.applications()},
}
"""Every key that may be set, on the wire's spelling, with its value when nobody set it."""

MASK = "********"
"""What is shown in place of a secret, and taken for "as it is" when it comes back."""
PATTERNS = 1_000
"""of each kind in a filter"""
PATTERN_LENGTH = 1_000
"""characters of a pattern of a filter"""
PROMPT_LENGTH = 10_000
"""characters"""
CREDENTIAL_LENGTH = 1_000
"""characters of a client's id or secret"""


def read(tx: Tx, org: OrgId, *, lock: bool = False) -> dict[str, Any]:
    """All settings, those that nobody set with their defaults; secrets are sealed. With `lock`
    they stay so until the transaction ends."""
    if lock:
        tx.execute(
            "insert into settings (org_id, data) values (%s, '{}') on conflict do nothing", (org,)
        )
    row = tx.execute(
        "select data from settings where org_id = %s" + (" for update" if lock else ""), (org,)
    ).fetchone()
    return {**DEFAULTS, **(row["data"] if row else {})}


def buckets_of(tx: Tx, org: OrgId, tag: str | None) -> list[Mapping[str, Any]]:
    """The profile buckets that hold for a tag, or (None) for all."""
    own = tags.guidance(tx, org, tag)[1] if tag is not None else None
    return tags.buckets(read(tx, org)["profileBuckets"], own)


def masked(values: Mapping[str, Any]) -> dict[str, Any]:
    """The settings as they may be shown."""
    return {name: MASK if v and name in SECRETS else v for name, v in values.items()}


def secret(tx: Tx, org: OrgId, name: str, *, keys: Sequence[bytes]) -> str | None:
    """One of `SECRETS`, opened; raises SetupError when it was sealed with none of the keys."""
    found = read(tx, org)[name]
    return None if found is None else encryption.unseal(keys, found, place=(org, name))


def patch(
    tx: Tx, org: OrgId, change: Mapping[str, Any], *, keys: Sequence[bytes]
) -> dict[str, Any]:
    """Merge top-level keys; None clears one. Returns all settings as they now are.

    `keys`, the secrets of the installation, seal the secrets among them. Who sends back what
    `masked` showed does not overwrite a secret with its mask.
    """
    stored = {
        name: encryption.seal(keys, value, place=(org, name))
        if name in SECRETS and value
        else value
        for name, value in change.items()
        if not (name in SECRETS and value == MASK)
    }
    tx.execute(
        "insert into settings (org_id, data) values (%(org)s, jsonb_strip_nulls(%(change)s))"
        " on conflict (org_id) do update"
        " set data = jsonb_strip_nulls(settings.data || %(change)s), updated_at = now()",
        {"org": org, "change": Jsonb(stored)},
    )
    if stored:
        audit.record(tx, "settings.changed", org=org, names=sorted(stored))
    return read(tx, org)


def lacks(change: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """A sentence for each application that a change switches on, or touches, and that lacks a part:
    the one of the installation goes on serving."""
    found: list[str] = []
    for one in connectors.applications():
        enabled = one.setting("CustomKeyEnabled")
        parts = (one.setting("ClientId"), one.setting("ClientSecret"))
        lacking = [name for name in parts if not now[name]]
        if now[enabled] and lacking and not change.keys().isdisjoint((enabled, *parts)):
            found.append(
                f"{enabled}: it does nothing without {' and '.join(lacking)}; set"
                f" {'them' if len(lacking) > 1 else 'it'}, too."
            )
    return found


def reseal(tx: Tx, org: OrgId, keys: Sequence[bytes]) -> int:
    """Seal with the newest key what older ones sealed; how many that were."""
    row = tx.execute("select data from settings where org_id = %s for update", (org,)).fetchone()
    stored: dict[str, Any] = row["data"] if row else {}
    again = {
        name: sealed
        for name in SECRETS & stored.keys()
        if (sealed := encryption.again(keys, stored[name], place=(org, name))) is not None
    }
    if again:
        tx.execute("update settings set data = data || %s where org_id = %s", (Jsonb(again), org))
    return len(again)


def reset(tx: Tx, org: OrgId) -> None:
    """Back to the defaults."""
    tx.execute("delete from settings where org_id = %s", (org,))
