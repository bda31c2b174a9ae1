"""Short limits for what never answers that do not hit, on a slow machine, what does."""

from collections.abc import Callable

import httpx

from recollect.fetch import Endpoint

LONG = 60.0


def only_for_what_hangs(endpoint: Endpoint, hangs: Callable[[bytes], bool]) -> None:
    """Let its limit hold for the answers to requests of which `hangs` says so, by their body.

    To come to be sent, and to be answered otherwise, each has a minute.
    """

    def spare(request: httpx.Request) -> None:
        limits = request.extensions["timeout"]
        answered = limits["read"] if hangs(request.content) else LONG
        request.extensions["timeout"] = httpx.Timeout(LONG, read=answered).as_dict()

    endpoint._client.event_hooks = {"request": [spare]}
    endpoint._total = None  # it would hit an answer that comes in pieces
