"""What `connect` takes for each provider, from the forms that the console shows."""

from collections.abc import Iterable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from recollect import connectors
from recollect.connectors.about import Field


def names() -> Mapping[str, str]:
    """What a provider is called, by its word on the command line."""
    return {word: connector.name for word, connector in connectors.all().items()}


def keys() -> Iterator[tuple[str, str, str]]:
    """Provider, key and meaning of everything that `--set` knows."""
    for word, connector in connectors.all().items():
        for field in connector.guide.fields:
            yield word, field.name, _meaning(field)


def lacking(provider: str, given: Mapping[str, object]) -> list[tuple[str, str]]:
    """Keys that have to be set and are not, with their meaning; none of a provider not known."""
    connector = connectors.all().get(provider)
    fields = () if connector is None else connector.guide.fields
    return [
        (field.name, _meaning(field))
        for field in fields
        if field.required and given.get(field.name) in (None, "")
    ]


def mistaken(provider: str, given: Iterable[str]) -> list[tuple[str, str]]:
    """Keys that the provider does not know, each with the key or option that was meant.

    Others may be metadata of one's own, which a connection keeps.
    """
    known = [key for word, key, _ in keys() if word == provider]
    meant = [*known, "--limit", "--tag"]
    near = [(key, get_close_matches(key, meant, 1)) for key in given if key not in known]
    return [(key, best[0]) for key, best in near if best]


def authorizes(provider: str) -> bool:
    """Whether a person has to authorize it at the provider."""
    connector = connectors.all().get(provider)
    return connector is not None and connector.oauth is not None


def unpicked(provider: str, metadata: Mapping[str, object]) -> bool:
    """Whether something has to be picked, and nothing is."""
    connector = connectors.all().get(provider)
    return connector is not None and connector.picks and not metadata.get("resources")


def todo(one: Mapping[str, Any]) -> str | None:
    """What a person has to do before anything more is synced, and the command for it."""
    if one["state"] in ("pending", "needs_auth") and authorizes(one["provider"]):
        return f"`recollect connections authorize {one['id']}` prints the link to authorize it"
    if one["errorCode"] == "invalid_client":
        return f"once that is right, `recollect sync {one['id']}` goes on at once"
    if unpicked(one["provider"], one["metadata"]):
        return (
            "nothing is picked yet, so nothing is synced;"
            f" `recollect connections pick {one['id']}` lists what there is"
        )
    if one["errorCode"] in ("rate_limited", "provider_unavailable") and one["nextSyncAt"]:
        return "nothing has to be done: its documents stay, and the next sync goes on from there"
    return None


def _meaning(field: Field) -> str:
    choices = " or ".join(value for value, _ in field.choices if value)
    told = [field.label, f"({choices})" if choices else "", "required" if field.required else ""]
    sentence = ", ".join(filter(None, (" ".join(filter(None, told[:2])), told[2])))
    return f"{sentence}. {field.hint}".strip() if field.hint else sentence
