"""What a connection saw: each thing with its verdict and reason, and the addresses as a tree."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from recollect.console._connections import CONNECTIONS, about, subject_of
from recollect.console._room import (
    LIVE,
    CurrentApp,
    Part,
    PathId,
    Reader,
    SignedInPage,
    Text,
    address,
    near,
    page,
)
from recollect.db import Tx
from recollect.model import Connection
from recollect.sync import connections, items
from recollect.sync.items import Branch

SEEN = 50
"""Things on a page of what was seen."""
BRANCHES = 100
"""Names shown at once in a folder of the tree."""
OPEN = 30
"""Folders of the tree that may be open at once."""
OPEN_LENGTH = 8_000
"""characters of them together, since they stand in the address of the page"""
CLOSED = "-"
"""Stands for "no folder is open"; where the address says nothing, the first one is."""
_HOST = re.compile(r"https?://[^/?#]+", re.IGNORECASE)

rooms = APIRouter(route_class=SignedInPage, include_in_schema=False)


@rooms.get(CONNECTIONS + "/{id}/seen")
def seen(
    request: Request,
    id: PathId,
    tenant: Reader,
    app: CurrentApp,
    verdict: Text = "",
    q: Text = "",
    number: Annotated[int, Query(alias="page", ge=1, le=1_000_000)] = 1,
    part: Part = "",
) -> Response:
    """Everything that was seen, the latest first, with the verdict and the reason."""
    with app.db.begin() as tx:
        found = connections.get(tx, tenant, id)
        counts = items.verdicts(tx, found.id)
        some = items.find(
            tx,
            found.id,
            verdict=verdict or None,
            text=q.strip() or None,
            limit=SEEN,
            page=number,
        )
    last = max(1, -(-some.total // SEEN))
    own = f"{CONNECTIONS}/{found.id}/seen"
    values = {
        **about(found),
        "some": some,
        "counts": counts,
        "verdict": verdict,
        "q": q,
        "last": last,
        "links": {at: address(own, verdict=verdict, q=q, page=at) for at in near(number, last)},
    }
    return page(request, "_seen.html" if part == LIVE else "seen.html", values)


@dataclass(frozen=True, slots=True)
class Node:
    """A row of the tree as it is shown."""

    branch: Branch
    toggle: str
    """the address of the page with the folder opened or closed"""
    below: "Sequence[Node] | None"
    """None: closed, or no folder"""
    more: str | None
    """the address of the page on which the folder goes on"""


@rooms.get(CONNECTIONS + "/{id}/tree")
def tree(
    request: Request,
    id: PathId,
    tenant: Reader,
    app: CurrentApp,
    opened: Annotated[list[Text] | None, Query(alias="open", max_length=OPEN)] = None,
    after: Text = "",
    root: Text = "",
    part: Part = "",
) -> Response:
    """The addresses as a tree. Only open folders are read, and a page of names of each; `root` and
    `after` go on in a folder that has more."""
    with app.db.begin() as tx:
        found = connections.get(tx, tenant, id)
        counts = items.verdicts(tx, found.id)
        own = f"{CONNECTIONS}/{found.id}/tree"
        folders = _first_open(tx, found) if opened is None else list(dict.fromkeys(opened))
        view = _View(own, [one for one in folders if one != CLOSED], root, after)
        nodes, more = _nodes(tx, found, view, root, after)
    values = {
        **about(found),
        "nodes": nodes,
        "more": more,
        "counts": counts,
        "root": root,
        "up": view.at(root="", after=""),
    }
    return page(request, "_tree.html" if part == LIVE else "tree.html", values)


@dataclass(frozen=True, slots=True)
class _View:
    """What the address of a page of the tree says."""

    own: str
    opened: Sequence[str]
    root: str
    after: str

    def at(
        self, *, opened: Sequence[str] | None = None, root: str | None = None, after: str = ""
    ) -> str:
        folders = list(self.opened if opened is None else opened)
        return address(
            self.own,
            open=folders or [CLOSED],
            root=self.root if root is None else root,
            after=after,
        )

    def toggled(self, prefix: str) -> str:
        rest = [one for one in self.opened if one != prefix]
        # Closing a folder closes what is open in it.
        rest = [one for one in rest if prefix not in self.opened or not one.startswith(prefix)]
        opened = rest if prefix in self.opened else [*rest, prefix][-OPEN:]
        while sum(map(len, opened)) > OPEN_LENGTH:
            opened = opened[1:]
        return self.at(opened=opened, after=self.after)


def _first_open(tx: Tx, found: Connection) -> list[str]:
    """The host of what it is of; where that is not an address, the first."""
    own = _HOST.match(subject_of(found))
    if own is not None:
        return [f"{own[0].lower()}/"]
    return [one.prefix for one in items.below(tx, found.id, "", after="", limit=1)]


def _nodes(
    tx: Tx, found: Connection, view: _View, prefix: str, after: str
) -> tuple[list[Node], str | None]:
    """What stands in a folder, open folders with theirs; and where it goes on."""
    branches = items.below(tx, found.id, prefix, after=after, limit=BRANCHES + 1)
    more = None
    if len(branches) > BRANCHES:
        branches = branches[:BRANCHES]
        more = view.at(root=prefix, after=branches[-1].name)
    nodes: list[Node] = []
    for branch in branches:
        below, rest = None, None
        if branch.is_folder and branch.prefix in view.opened:
            below, rest = _nodes(tx, found, view, branch.prefix, "")
        nodes.append(Node(branch, view.toggled(branch.prefix), below, rest))
    return nodes, more
