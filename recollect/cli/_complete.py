"""What Tab offers: names and ids that the service knows, asked for with the configured key.

A shell waits for it: without a service, a key or a quick answer there is silently nothing to offer.
"""

from collections.abc import Callable, Iterable, Iterator

import typer

from recollect.cli._lazy import part
from recollect.cli.client import Service, open_service
from recollect.cli.output import counted, one_line
from recollect.errors import RecollectError
from recollect.model import Status

WITHIN = 1.0
"""Seconds for the service to answer."""
NEWEST = 200
"""How many documents, the newest, are offered."""

Offer = tuple[str, str]
"""A word, and what it is."""


def tags(ctx: typer.Context, incomplete: str) -> list[Offer]:
    def ask(service: Service) -> Iterator[Offer]:
        for one in service.get("/v3/container-tags/list?limit=1000")["containerTags"]:
            yield one["containerTag"], counted(one["documentCount"], "document")

    return _asked(ctx, incomplete, ask)


def documents(ctx: typer.Context, incomplete: str) -> list[Offer]:
    """Ids and customIds of documents that begin with what was typed."""

    def ask(service: Service) -> Iterator[Offer]:
        for one in service.page(limit=NEWEST)[0]:
            yield one.id, one.title or one.source
            if incomplete and one.custom_id:
                yield one.custom_id, one.title or one.source

    return _asked(ctx, incomplete, ask)


def archives(ctx: typer.Context, incomplete: str) -> list[Offer]:
    def ask(service: Service) -> Iterator[Offer]:
        found, _ = service.page(limit=NEWEST)
        yield from ((one.id, one.title or one.source) for one in found if one.members is not None)

    return _asked(ctx, incomplete, ask)


def connections(ctx: typer.Context, incomplete: str) -> list[Offer]:
    def ask(service: Service) -> Iterator[Offer]:
        for one in service.array("POST", "/v3/connections/list", {}):
            source = one.get("email") or one["metadata"].get("startUrl") or ""
            yield one["id"], f"{one['provider']} {source}"

    return _asked(ctx, incomplete, ask)


def webhooks(ctx: typer.Context, incomplete: str) -> list[Offer]:
    def ask(service: Service) -> Iterator[Offer]:
        for one in service.get("/v3/webhooks")["endpoints"]:
            yield one["id"], one["url"]

    return _asked(ctx, incomplete, ask)


def statuses(incomplete: str) -> list[str]:
    return [status for status in Status if status.startswith(incomplete)]


def providers(incomplete: str) -> list[Offer]:
    return _fit(incomplete, part("_providers").names().items())


def _asked(
    ctx: typer.Context, incomplete: str, ask: Callable[[Service], Iterable[Offer]]
) -> list[Offer]:
    try:
        service = open_service(ctx.params.get("url"), ctx.params.get("key"), timeout=WITHIN)
        return _fit(incomplete, ask(service))
    except RecollectError:
        return []


def _fit(incomplete: str, offers: Iterable[Offer]) -> list[Offer]:
    """Offers that begin with what was typed. Those with a space are left out: a shell would take
    them apart."""
    return [
        (word, one_line(what))
        for word, what in offers
        if word.startswith(incomplete) and word.isprintable() and " " not in word
    ]
