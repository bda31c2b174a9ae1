"""The guides: pages of `docs/` that are in the package, with the addresses of this service in
them.
"""

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from fastapi import APIRouter, Request, Response
from markdown_it.token import Token
from markdown_it.utils import EnvType, OptionsDict
from markupsafe import Markup, escape

from recollect import connectors
from recollect.console import _rendering
from recollect.console._room import CurrentApp, PathId, Reader, SignedInPage, page
from recollect.errors import NotFoundError
from recollect.sync.connect import own_url

GUIDES = "/console/guides"
COMMON = ("connections", "filters", "mcp", "search", "backup", "settings", "troubleshooting")
"""Beside one for each provider. The wheel takes them by name (pyproject.toml)."""
_INSIDE = re.compile(r"([a-z0-9-]+)\.md(#[a-z0-9_-]+)?|(#[a-z0-9_-]+)")
_NOT_IN_A_NAME = re.compile(r"[^\w\- ]")

rooms = APIRouter(route_class=SignedInPage, include_in_schema=False)


@rooms.get(GUIDES)
def listed(request: Request, tenant: Reader) -> Response:
    providers = [
        (one.provider, one.name) for one in connectors.all().values() if one.provider in names()
    ]
    return page(request, "guides.html", {"providers": providers, "common": COMMON})


@rooms.get(GUIDES + "/{name}")
def guide(request: Request, name: PathId, tenant: Reader, app: CurrentApp) -> Response:
    if name not in names():
        raise NotFoundError("There is no such guide", "see the list of guides")
    text = read(name).replace("{PUBLIC_URL}", own_url(app))
    title, _, rest = text.partition("\n")
    values = {"title": title.lstrip("# "), "body": _rendering.drawn_by(rest, GuideDrawing())}
    return page(request, "guide.html", values)


@cache
def names() -> frozenset[str]:
    """Of the guides that are here."""
    wanted = {*COMMON, *connectors.all()}
    return frozenset(name for name in wanted if (_folder() / f"{name}.md").is_file())


def read(name: str) -> str:
    """`name`: one of `names()`."""
    return (_folder() / f"{name}.md").read_text("utf-8")


def _folder() -> Path:
    """In the package as it is installed, else of the source tree."""
    packed = Path(__file__).with_name("guides")
    return packed if packed.is_dir() else Path(__file__).parents[2] / "docs"


class GuideDrawing(_rendering.Drawing):
    """As a document, but that guides lead to each other and to places in themselves."""

    def __init__(self) -> None:
        super().__init__(lambda said: [(said, False)])

    def softbreak(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType
    ) -> str:
        return "\n"

    def heading_open(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType
    ) -> str:
        return f'<{tokens[idx].tag} id="{_anchor(tokens[idx + 1].content)}">'

    def heading_close(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType
    ) -> str:
        return f"</{tokens[idx].tag}>\n"

    def link_open(
        self, tokens: Sequence[Token], idx: int, options: OptionsDict, env: EnvType
    ) -> str:
        found = _INSIDE.fullmatch(str(tokens[idx].attrGet("href") or ""))
        if found is None or (found[1] and found[1] not in names()):
            return super().link_open(tokens, idx, options, env)
        self.linked.append(True)
        target = found[3] or f"{GUIDES}/{found[1]}{found[2] or ''}"
        return f'<a href="{escape(target)}">'


def _anchor(heading: str) -> Markup:
    """As GitHub makes it of a heading's text."""
    plain = _NOT_IN_A_NAME.sub("", heading.lower().replace("`", ""))
    return escape(plain.strip().replace(" ", "-"))
