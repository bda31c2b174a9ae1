"""GitHub: the documentation files of picked repositories, as they are on the default branch.

A head that moved means: take the whole tree and compare. That is one call, and right after any
number of commits, a forced push or a lost webhook; blob shas tell what is new without reading it.
A branch (in the words of `base`) is a repository, named by its id, which survives renames.

Facts: docs.github.com/rest (repos, branches, git/trees, git/blobs, webhooks, rate limits). The API
version is one that every supported Enterprise Server knows, too.
"""

import base64
import binascii
import hashlib
import hmac
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, cast
from urllib.parse import parse_qs, quote, urlsplit

from recollect.connectors._json import as_object
from recollect.connectors.about import Application
from recollect.connectors.api import (
    PROVIDER_UNAVAILABLE,
    RATE_LIMITED,
    Api,
    Patience,
    as_json,
    field_of,
)
from recollect.connectors.base import (
    Account,
    Assumption,
    Change,
    Checkpoint,
    Connector,
    Cursor,
    Listed,
    Listing,
    Resource,
    Source,
    Trouble,
)
from recollect.connectors.github._calls import call, links, objects_of, wait_of
from recollect.connectors.github._guide import GUIDE
from recollect.connectors.github._listing import KIND, listing
from recollect.connectors.github._picked import (
    NO_ACCESS,
    RESOURCES,
    PickedRepository,
    checked,
    cursor_of,
    in_turn,
    picked_of,
    states_of,
    trouble,
)
from recollect.connectors.github._repository import look_at, must_be_there, repository_of
from recollect.connectors.oauth import OAuth, Tokens, missing
from recollect.connectors.pushes import FORGED, Push, PushResult, Registration
from recollect.errors import BadRequestError, NotFoundError, Permanent, Transient
from recollect.fetch import Endpoint, EndpointAnswer
from recollect.model import Blob, Remembered

VISIBILITY = "visibility"
"""key of the metadata: `all`, or `public` for an authorization that cannot read private ones"""
WEBHOOKS = "webhooks"
"""key of the metadata: False for an authorization that cannot register webhooks"""
MOST_REPOSITORIES = 500
MOST_LOOKED_AT = 20
"""repositories that a check of the account asks about"""
MARKDOWN = frozenset({"md", "mdx", "markdown"})
POINTER = re.compile(rb"version https://(git-lfs\.github\.com|hawser\.github\.com)/spec/v\d")


class Github(Connector):
    provider = "github"
    name = "GitHub"
    kinds = MappingProxyType({KIND: "file"})
    guide = GUIDE
    application = Application("github", "GitHub", "https://github.com/settings/developers")
    api_url = "https://api.github.com"
    oauth = OAuth(
        authorize_url="https://github.com/login/oauth/authorize",
        token_url="https://github.com/login/oauth/access_token",  # noqa: S106 # an address
        # `repo` is the least that reads private repositories, and includes their webhooks.
        scopes=("repo", "user:email"),
        rotates=True,
        separator=",",
    )
    pushes = True
    largest_push = 25 * 1024 * 1024
    picks = True
    selects = "repos"

    def check(self, metadata: Mapping[str, Any], fetcher: object) -> dict[str, Any]:
        if metadata.get(VISIBILITY, "all") not in ("all", "public"):
            raise BadRequestError(f"metadata.{VISIBILITY}: must be 'all' or 'public'")
        if not isinstance(metadata.get(WEBHOOKS, True), bool):
            raise BadRequestError(f"metadata.{WEBHOOKS}: must be true or false")
        if RESOURCES not in metadata:
            return dict(metadata)
        picked = metadata[RESOURCES]
        if not isinstance(picked, list):
            raise BadRequestError(f"metadata.{RESOURCES}: repositories are picked by configuring")
        return self.configure(metadata, cast("list[Mapping[str, Any]]", picked))

    def headers(self) -> Mapping[str, str]:
        return {
            "accept": "application/vnd.github+json",
            "user-agent": "Recollect",
            "x-github-api-version": "2022-11-28",
        }

    def judge(self, answer: EndpointAnswer) -> Exception | None:
        if answer.status not in (403, 429):
            return None
        wait = wait_of(answer)
        if wait is not None:
            return Transient("GitHub's rate limit is used up", code=RATE_LIMITED, after=wait)
        if answer.headers.get("x-github-sso", "").startswith("required"):
            return Permanent(
                "its organisation requires single sign-on: sign in there, then authorize again",
                code="sso_required",
            )
        return None

    # --- authorization -------------------------------------------------------------------------

    def authorized(self, asked: Mapping[str, Any]) -> Sequence[str]:
        if asked.get(VISIBILITY) != "public":
            return ("repo", "user:email")
        # What is public may be read without any scope.
        hooks = ("admin:repo_hook",) if asked.get(WEBHOOKS, True) else ()
        return (*hooks, "user:email")

    def identify(self, api: Api, tokens: Tokens) -> Account:
        me = api.get("/user")
        id, login = field_of(me, "id", int), field_of(me, "login", str)
        # 403 or 404: the scope for it was not granted.
        answer = api.call("GET", "/user/emails", accept=frozenset({403, 404}))
        emails = objects_of(as_json(answer)) if answer.status == 200 else []
        primary = [email for email in emails if email.get("primary") and email.get("verified")]
        address = primary[0].get("email") if primary else None
        return Account(str(id), address if isinstance(address, str) else login)

    def revoke(self, endpoint: Endpoint, tokens: Tokens, client: tuple[str, str]) -> bool:
        """Ends all tokens that the account gave the application, those of other connections too."""
        answer = endpoint.request(
            "DELETE",
            f"/applications/{quote(client[0], safe='')}/grant",
            json={"access_token": tokens.access},
            headers={
                **self.headers(),
                "authorization": "Basic " + base64.b64encode(":".join(client).encode()).decode(),
            },
        )
        # 404 and 422: it was taken back already.
        if answer.status not in (204, 404, 422):
            raise endpoint.refusal(answer, hide=(tokens.access, client[1]))
        return True

    # --- picking -------------------------------------------------------------------------------

    def resources(self, source: Source, page: int, per_page: int) -> tuple[list[Resource], int]:
        size = min(max(per_page, 1), 100)
        params = {"sort": "full_name"}
        if source.metadata.get(VISIBILITY) == "public":
            params["visibility"] = "public"
        answer = _page(source.api, params, page, size)
        found = [_resource(entry) for entry in objects_of(as_json(answer))]
        if (found or page == 1) and "next" not in links(answer):
            return found, (page - 1) * size + len(found)
        # With one on a page, the number of the last page is that of all.
        single = _page(source.api, params, 1, 1)
        last = parse_qs(urlsplit(links(single).get("last", "")).query).get("page", [""])[0]
        total = int(last) if re.fullmatch(r"[0-9]{1,9}", last) else len(objects_of(as_json(single)))
        return found, total

    def configure(
        self, metadata: Mapping[str, Any], picked: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any]:
        if len(picked) > MOST_REPOSITORIES:
            raise BadRequestError(
                f"{RESOURCES}: at most {MOST_REPOSITORIES} repositories, not {len(picked):,}"
            )
        kept = [checked(entry, f"{RESOURCES}[{at}]") for at, entry in enumerate(picked)]
        return {**metadata, RESOURCES: list({entry["id"]: entry for entry in kept}.values())}

    def selection(self, metadata: Mapping[str, Any]) -> dict[str, str] | None:
        return {one.id: one.name for one in picked_of(metadata)}

    # --- listing and fetching ------------------------------------------------------------------

    def changes(self, source: Source, cursor: Cursor | None) -> Iterator[Change]:
        before = states_of(cursor)
        picked = in_turn(picked_of(source.metadata), cursor)
        states = {one.id: before[one.id] for one in picked if one.id in before}
        troubles: list[Trouble] = []
        failures: list[Transient] = []
        patience = Patience(lambda: self.ping(source))
        for repository in picked:
            source.going()
            try:
                look = look_at(source, repository, before.get(repository.id))
            except Permanent as error:
                patience.succeeded()
                troubles.append(trouble(repository, self._told(source, error)))
                continue
            except Transient as error:
                try:
                    patience.failed(error)
                except Transient:
                    if patience.exhausted:
                        yield Checkpoint(cursor_of(states, last=repository.id))
                    raise
                failures.append(error)
                troubles.append(trouble(repository, error))
                continue
            patience.succeeded()
            if look.verdict is not None:
                yield look.verdict
            states[repository.id] = look.state
            if look.files is not None:
                # A sync that ends in between lists again, even if the old head is back by then.
                states[repository.id] = replace(look.state, head=None, etag=None)
                if (yield from listing(source, repository.id, look, look.files, states)):
                    states[repository.id] = look.state
                    yield Checkpoint(cursor_of(states))
        if failures and len(failures) == len(picked):
            raise failures[0]
        for one in troubles:
            yield one
            if one.code == NO_ACCESS:
                # The sync believes an empty listing once the next one is empty, too.
                states.pop(one.branch, None)
                yield Listing(one.branch)
                yield Listed(one.branch)
        yield Checkpoint(cursor_of(states))

    def _told(self, source: Source, error: Permanent) -> Permanent:
        """The same, unless it is the token that may no longer look."""
        if error.code != NO_ACCESS:
            return error
        granted = source.api.call("GET", "/user").headers.get("x-oauth-scopes")
        rights = _rights(granted, self.authorized(source.metadata))
        if rights.holds is False:
            return Permanent(rights.sentence, code="no_permission")
        return error

    def fetch(self, source: Source, item: Remembered) -> Blob:
        id, _, path = item.id.partition(":")
        repository = item.extra.get("repository")
        if item.version is None or not isinstance(repository, str):
            raise NotFoundError(f"nothing is known of the content of {item.id}")
        answer = call(
            source.api,
            "GET",
            f"/repos/{repository}/git/blobs/{item.version}",
            headers={"accept": "application/vnd.github.raw+json"},
            accept=frozenset({404, 409}),
        )
        if answer.status in (404, 409):
            must_be_there(source.api, PickedRepository(id, repository))
            raise NotFoundError(f"{path} is not in {repository} any more")
        data = _content(answer, item.version)
        if POINTER.match(data) and len(data) < 1024:  # the most that a pointer may have
            raise Permanent(
                f"{path} is kept in Git LFS: the repository holds a pointer to it only",
                code="lfs_pointer",
            )
        ending = path.rpartition(".")[2].lower()
        mime = "text/markdown" if ending in MARKDOWN else "text/plain"
        return Blob(data, mime, path.rpartition("/")[2], item.url)

    def ping(self, source: Source) -> None:
        source.api.get("/user")

    def assumptions(self, source: Source) -> Iterator[Assumption]:
        answer = source.api.call("GET", "/user")
        yield _rights(answer.headers.get("x-oauth-scopes"), self.authorized(source.metadata))
        yield _budget(source.api.call("GET", "/rate_limit", accept=frozenset({404})))
        for repository in picked_of(source.metadata)[:MOST_LOOKED_AT]:
            yield _may_be_watched(source, repository)

    # --- pushes --------------------------------------------------------------------------------

    def watches(self, source: Source) -> Sequence[str]:
        if source.metadata.get(WEBHOOKS, True) is False:
            return ()
        return [repository.id for repository in picked_of(source.metadata)]

    def subscribe(self, source: Source, registration: Registration) -> Registration:
        """Raises Permanent (`no_webhook`) when the account may not add webhooks there."""
        named = [one for one in picked_of(source.metadata) if one.id == registration.resource]
        if not named:
            raise Permanent("the repository was taken out of the connection", code="no_webhook")
        name = repository_of(source.api, named[0], None).name
        body = {
            "name": "web",
            "active": True,
            "events": ["push"],
            "config": {
                "url": registration.url,
                "content_type": "json",
                "secret": registration.secret,
                "insecure_ssl": "0",
            },
        }
        try:
            answer = call(source.api, "POST", f"/repos/{name}/hooks", json=body)
        except Permanent as error:
            if error.code not in ("http_403", "http_404", "http_422"):
                raise
            raise Permanent(
                f"no webhook for {name} ({error}): only an account that administers the"
                " repository can add one. Until then Recollect polls for changes",
                code="no_webhook",
            ) from error
        hook = field_of(as_json(answer), "id", int)
        return replace(registration, remote={"hook_id": hook, "repo": name}, expires_at=None)

    def stands(self, api: Api, registration: Registration) -> bool:
        """False for a hook that someone deleted, switched off or pointed elsewhere."""
        hook, name = registration.remote.get("hook_id"), registration.remote.get("repo")
        if not isinstance(hook, int) or not isinstance(name, str):
            return False
        answer = call(api, "GET", f"/repos/{name}/hooks/{hook}", accept=frozenset({404}))
        if answer.status == 404:
            return False
        found = as_json(answer)
        url = as_object(found.get("config")).get("url")
        return found.get("active") is not False and url == registration.url

    def unsubscribe(self, api: Api, registration: Registration) -> None:
        hook, name = registration.remote.get("hook_id"), registration.remote.get("repo")
        if not isinstance(hook, int) or not isinstance(name, str):
            return
        gone = frozenset({403, 404})
        call(api, "DELETE", f"/repos/{name}/hooks/{hook}", accept=gone)

    def reads(self, push: Push) -> bool:
        return push.registration is not None and "x-hub-signature-256" in push.headers

    def receive(self, push: Push) -> PushResult:
        if push.registration is None:
            return PushResult(status=202)
        if not _signed(push, push.registration.secret):
            return FORGED
        key = push.headers.get("x-github-delivery", "")[:100] or None
        match push.headers.get("x-github-event"):
            case "ping":
                return PushResult(status=200, key=key)
            case "push":
                concerned = _on_default_branch(push.body, push.registration.resource)
                return PushResult(status=202, concerned=concerned, key=key)
            case _:
                return PushResult(status=202, key=key)


def _rights(granted: str | None, needed: Sequence[str]) -> Assumption:
    """What the token may do now, which is less than it was once granted if the user changed it."""
    if granted is None:
        return Assumption("rights", None, "GitHub does not list the scopes of this kind of token")
    # A word that is not a scope, since none at all would mean that nobody knows.
    tokens = Tokens("", scopes=["none", *re.findall(r"[^,\s]+", granted)])
    if lacking := missing(needed, tokens):
        told = f"the token lacks {', '.join(lacking)}: authorize the connection again"
        return Assumption("rights", False, told)
    return Assumption("rights", True, f"the token has {granted.strip()}")


def _budget(answer: EndpointAnswer) -> Assumption:
    if answer.status == 404:
        return Assumption("budget", True, "this server limits no calls")
    core = field_of(field_of(as_json(answer), "resources", dict), "core", dict)
    left, most = field_of(core, "remaining", int), field_of(core, "limit", int)
    told = f"{left:,} of {most:,} calls of this hour are left"
    if left * 10 < most:
        told += "; others use them too, and when none are left syncs wait for the next hour"
    return Assumption("budget", left * 10 >= most, told)


def _may_be_watched(source: Source, picked: PickedRepository) -> Assumption:
    """Whether the account may add a webhook to a repository."""
    answer = call(source.api, "GET", f"/repositories/{picked.id}", accept=frozenset({404}))
    if answer.status == 404:
        return Assumption("repository", False, f"{picked.name} cannot be read by this account")
    found = as_json(answer)
    name, may = field_of(found, "full_name", str), as_object(found.get("permissions")).get("admin")
    if source.metadata.get(WEBHOOKS, True) is False:
        return Assumption("repository", True, f"{name} can be read; webhooks are switched off")
    if may is True and found.get("archived") is not True:
        return Assumption("repository", True, f"{name} can be read, and a webhook can be added")
    return Assumption(
        "repository",
        None,
        f"{name} can be read, but a webhook needs an account that administers it, and a repository"
        " that is not archived: Recollect polls for its changes",
    )


def _content(answer: EndpointAnswer, sha: str) -> bytes:
    """The bytes of a blob, certainly: git names it by their hash."""
    data = answer.data
    if _sha(data, sha) != sha:
        # Servers that know no raw media type for blobs answer with JSON.
        said = as_json(answer)
        try:
            data = base64.b64decode(field_of(said, "content", str))
        except (binascii.Error, ValueError) as error:
            raise Transient("GitHub sent a damaged file", code=PROVIDER_UNAVAILABLE) from error
    if _sha(data, sha) != sha:
        raise Transient(
            "GitHub sent a different file from the one asked for", code=PROVIDER_UNAVAILABLE
        )
    return data


def _sha(data: bytes, like: str) -> str:
    header = f"blob {len(data)}\0".encode()
    if len(like) == 64:
        return hashlib.sha256(header + data).hexdigest()
    return hashlib.sha1(header + data, usedforsecurity=False).hexdigest()


def _page(api: Api, params: Mapping[str, str], page: int, per_page: int) -> EndpointAnswer:
    return api.call(
        "GET", "/user/repos", params={**params, "page": str(page), "per_page": str(per_page)}
    )


def _resource(entry: Mapping[str, Any]) -> Resource:
    return Resource(
        id=str(field_of(entry, "id", int)),
        name=field_of(entry, "name", str),
        full_name=field_of(entry, "full_name", str),
        description=entry.get("description"),
        private=bool(entry.get("private")),
        default_branch=entry.get("default_branch"),
        updated_at=entry.get("updated_at"),
    )


def _signed(push: Push, secret: str) -> bool:
    """X-Hub-Signature-256 over the raw body (docs.github.com, validating webhook deliveries)."""
    digest = hmac.new(secret.encode(), push.body, hashlib.sha256).hexdigest()
    told = push.headers.get("x-hub-signature-256", "").encode(errors="replace")
    return hmac.compare_digest(told, f"sha256={digest}".encode())


def _on_default_branch(body: bytes, repository: str) -> bool:
    try:
        payload = json.loads(body)
    except (ValueError, RecursionError):
        return False
    about = as_object(as_object(payload).get("repository"))
    default = f"refs/heads/{about.get('default_branch')}"
    return str(about.get("id")) == repository and as_object(payload).get("ref") == default
