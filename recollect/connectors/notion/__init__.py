"""Notion: the pages and the rows of databases that a user shares with the integration.

The API version is the one that both official clients speak by default, so that they can judge
what we send and expect. Of what 2026-03-11 changed, only two names are read here, and both forms
of each: `archived`, now `in_trash`, and the block of a meeting's notes.

Facts: developers.notion.com/reference (authentication, search, retrieve-page-markdown, webhooks,
request-limits, status-codes).
"""

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, cast

from pydantic import Field, SecretStr

from recollect.config import Config, ProviderSettings
from recollect.connectors._json import as_object
from recollect.connectors.about import Application, Guide
from recollect.connectors.api import RATE_LIMITED, Api, as_json, field_of
from recollect.connectors.base import (
    Account,
    Assumption,
    Change,
    Connector,
    Cursor,
    Source,
    settings_of,
)
from recollect.connectors.notion._blocks import GONE, BlockReader, render
from recollect.connectors.notion._calls import NotionCalls
from recollect.connectors.notion._files import Hosted, read_files
from recollect.connectors.notion._markdown import has_unknown, shown_files, simplified
from recollect.connectors.notion._pass import KIND, PER_SECOND, RESTRICTED, Pass
from recollect.connectors.notion._values import tidy
from recollect.connectors.oauth import OAuth, Tokens
from recollect.connectors.pushes import FORGED, Push, PushResult
from recollect.errors import NotFoundError, Permanent, Transient
from recollect.fetch import Endpoint, EndpointAnswer, outcome
from recollect.model import Extracted, Remembered

VERSION = "2025-09-03"
CONCERNING = ("page.", "data_source.", "database.", "comment.")
"""beginnings of the events that may mean something new to read"""
TOKEN = re.compile(r"[!-~]{10,500}")


class NotionSettings(ProviderSettings):
    verification_token: SecretStr | None = Field(
        default=None,
        description="Token of pushes, if it is not confirmed by `recollect connections verify`.",
    )


class Notion(Connector):
    provider = "notion"
    name = "Notion"
    guide = Guide(
        "Pages and rows of databases.",
        "a Notion account; Notion asks which pages to share",
        if_nothing="No page is shared with the integration: at Notion, on a page, open ••• →"
        " Connections and choose it; or authorize the connection again and pick pages.",
    )
    settings = NotionSettings
    kinds = MappingProxyType({KIND: "page"})
    application = Application("notion", "Notion", "https://www.notion.so/my-integrations")
    api_url = "https://api.notion.com"
    # Revoking is left to `revoke`, because it needs the version in a header.
    oauth = OAuth(
        authorize_url="https://api.notion.com/v1/oauth/authorize",
        token_url="https://api.notion.com/v1/oauth/token",  # noqa: S106 # an address
        pkce=False,
        parameters={"owner": "user"},
        client="basic",
        sends="json",
        rotates=True,
    )
    per_second = float(PER_SECOND)
    pushes = True
    asks = re.compile(r"/v1/(search|data_sources/[^/]+/query)")

    def headers(self) -> Mapping[str, str]:
        return {"notion-version": VERSION}

    def judge(self, answer: EndpointAnswer) -> Exception | None:
        code = _code(answer)
        if answer.status == 403 and code == RESTRICTED:
            message = _field(answer, "message")
            # "Insufficient permissions for this endpoint." is what a missing capability gets.
            if "endpoint" not in message:
                told = f" ({message[:200]})" if message else ""
                return Permanent(
                    f"Notion does not let the integration read this{told}", code=RESTRICTED
                )
            return Permanent(
                "the integration may not read content: switch on its capability “Read content”"
                " at notion.so/my-integrations, then authorize the connection again",
                code=RESTRICTED,
            )
        if answer.status == 529:
            # service_overload; it is waited for as for a limit.
            said = outcome(529, answer.headers, "")
            wait = said.after if isinstance(said, Transient) else None
            return Transient("Notion is overloaded", code=RATE_LIMITED, after=wait)
        if answer.status == 409:
            return Transient("Notion could not answer just now", code="conflict_error")
        return None

    # --- authorization -------------------------------------------------------------------------

    def identify(self, api: Api, tokens: Tokens) -> Account:
        """The workspace: events name it, and pages belong to it, regardless of who authorized. The
        name is that of the user who did. A user may authorize several times; each has pages of its
        own choice.
        """
        told = tokens.extra
        workspace, name = told.get("workspace_id"), told.get("workspace_name")
        email = told.get("owner.user.person.email")
        if workspace is None:
            bot = as_object(field_of(api.get("/v1/users/me"), "bot", dict))
            workspace, name = field_of(bot, "workspace_id", str), bot.get("workspace_name")
            owner = as_object(as_object(bot.get("owner")).get("user"))
            email = as_object(owner.get("person")).get("email")
        return Account(_short(workspace), tidy(email) or tidy(name) or None)

    def revoke(self, endpoint: Endpoint, tokens: Tokens, client: tuple[str, str]) -> bool:
        answer = endpoint.request(
            "POST",
            "/v1/oauth/revoke",
            json={"token": tokens.access},
            headers={
                **self.headers(),
                "authorization": "Basic " + base64.b64encode(":".join(client).encode()).decode(),
            },
        )
        # 400 invalid_grant, 404: it was taken back already.
        if answer.status not in (200, 404) and "invalid_grant" not in (
            _code(answer),
            _field(answer, "error"),
        ):
            raise endpoint.refusal(answer, hide=(tokens.access, client[1]))
        return True

    # --- listing and fetching ------------------------------------------------------------------

    def changes(self, source: Source, cursor: Cursor | None) -> Iterator[Change]:
        return Pass(source, cursor).run()

    def fetch(self, source: Source, item: Remembered) -> Extracted:
        """The page as Markdown; a row begins with what its properties say, and files that Notion
        stores are read with the page that shows them.

        Notion's own rendering is one call for a page. Where it leaves something out, or does not
        exist, the blocks are read.
        """
        blank = bool(item.extra.get("blank"))
        page = _read(source.api, item.id, blank)
        files, lacking = read_files(
            source, page.files, lambda: _read(source.api, item.id, blank).files
        )
        lines = cast("list[Any]", item.extra.get("lines") or [])
        told = "\n".join(tidy(line) for line in lines)
        return Extracted(
            "\n\n".join(part for part in (told, page.text, *files) if part.strip()),
            title=item.title,
            kind=KIND,
            warnings=tuple(dict.fromkeys([*page.lacking, *lacking])),
        )

    def ping(self, source: Source) -> None:
        NotionCalls(source).is_there()

    def assumptions(self, source: Source) -> Iterator[Assumption]:
        bot = as_object(field_of(source.api.get("/v1/users/me"), "bot", dict))
        workspace = tidy(bot.get("workspace_id"))
        if not workspace or source.account is None:
            yield Assumption("workspace", None, "Notion does not say which workspace it is")
            return
        same = _short(workspace) == source.account
        name = tidy(bot.get("workspace_name")) or workspace
        yield Assumption(
            "workspace",
            same,
            f"the integration reads the workspace {name}"
            if same
            else f"the integration reads {name}, not the workspace of this connection",
        )

    # --- pushes --------------------------------------------------------------------------------

    def reads(self, push: Push) -> bool:
        """Also what nobody signed: it may hold a verification token."""
        return True

    def proof(self, config: Config, *, confirmed: bool) -> Assumption:
        if confirmed or settings_of(config, self.provider, NotionSettings).verification_token:
            return Assumption("pushes", True, "the verification token of pushes is confirmed")
        told = "Notion's verification token is not confirmed: see `recollect connections verify`"
        return Assumption("pushes", False, told)

    def hook_secrets(self, config: Config) -> Sequence[str]:
        named = settings_of(config, self.provider, NotionSettings).verification_token
        return [named.get_secret_value()] if named else []

    def receive(self, push: Push) -> PushResult:
        """Events of all workspaces come by one registration, which the operator made by hand.

        Before the first of them comes a token, unsigned, from Notion or from anybody: it is
        nothing but shown until the operator says which one is good.
        """
        body = _body(push.body)
        token = body.get("verification_token")
        if token is not None and "type" not in body:
            if not isinstance(token, str) or not TOKEN.fullmatch(token):
                return PushResult(status=400)
            return PushResult(status=200, pending_secret=token)
        if not _signed(push):
            return FORGED
        key = tidy(body.get("id"))[:100] or None
        workspace = body.get("workspace_id")
        if isinstance(workspace, str) and tidy(body.get("type")).startswith(CONCERNING):
            return PushResult(status=200, accounts=[_short(workspace)], key=key)
        return PushResult(status=200, key=key)


@dataclass(frozen=True, slots=True)
class PageText:
    text: str
    files: Sequence[Hosted]
    """that Notion stores"""
    lacking: Sequence[str]
    """sentences about what could not be read"""


def _read(api: Api, id: str, blank: bool) -> PageText:
    """`blank`: nothing was found on it. Raises NotFoundError."""
    markdown, whole = _rendered(api, id)
    if whole and (blank or markdown.strip()):
        return PageText(simplified(markdown), shown_files(markdown), ())
    reader = BlockReader(api.call)
    try:
        text = render(reader, id)
    except Permanent as error:
        if error.code == "no_access":
            raise NotFoundError("Not found", f"Notion does not find {id}") from error
        text = simplified(markdown)
        if not text.strip():
            raise
        # Of blocks that Notion does not know it lists not even the others.
        told = f"Parts of it are missing: {error}."
        return PageText(text, shown_files(markdown), (told,))
    return PageText(text, reader.shown, reader.lacking)


def _rendered(api: Api, id: str) -> tuple[str, bool]:
    """A page in Notion's own rendering, or "" if Notion has none, and whether that is the whole."""
    # 400: it is more than one request may ask for.
    answer = api.call("GET", f"/v1/pages/{id}/markdown", accept=GONE | {400})
    if answer.status != 200:
        return "", False
    said = as_json(answer)
    markdown = field_of(said, "markdown", str)
    whole = not said.get("truncated") and not said.get("unknown_block_ids")
    return markdown, whole and not has_unknown(markdown)


def _signed(push: Push) -> bool:
    """X-Notion-Signature over the raw body, by any of the tokens that are active."""
    told = push.headers.get("x-notion-signature", "").encode(errors="replace")
    good = False
    for secret in push.secrets:
        digest = hmac.new(secret.encode(), push.body, hashlib.sha256).hexdigest()
        good |= hmac.compare_digest(told, f"sha256={digest}".encode())
    return good


def _short(id: str) -> str:
    """As ids are kept: Notion writes them with hyphens or without."""
    return tidy(id).replace("-", "").lower()[:100]


def _body(data: bytes) -> dict[str, Any]:
    try:
        return as_object(json.loads(data))
    except (ValueError, RecursionError):
        return {}


def _field(answer: EndpointAnswer, name: str) -> str:
    return tidy(_body(answer.data).get(name))


def _code(answer: EndpointAnswer) -> str:
    """Notion's word for an error."""
    return _field(answer, "code")
