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
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import timedelta
from typing import Any, cast
from urllib.parse import parse_qs, quote, urlsplit

from recollect.connectors._json import as_object
from recollect.connectors.api import PROVIDER_UNAVAILABLE, RATE_LIMITED, Api, as_json, field_of
from recollect.connectors.base import (
    FORGED,
    Account,
    Assumption,
    Change,
    Checkpoint,
    Connector,
    Cursor,
    Item,
    Listed,
    Listing,
    Notice,
    Push,
    Registration,
    Resource,
    Source,
    Trouble,
    Verdict,
)
from recollect.connectors.oauth import OAuth, Tokens, missing
from recollect.errors import BadRequestError, NotFoundError, Permanent, Transient
from recollect.fetch import Answer, Endpoint, believable, told_time
from recollect.model import Blob, Remembered

RESOURCES = "resources"
"""key of the metadata: what was picked, a list of `{id, name, defaultBranch}`"""
VISIBILITY = "visibility"
"""key of the metadata: `all`, or `public` for an authorization that cannot read private ones"""
WEBHOOKS = "webhooks"
"""key of the metadata: False for an authorization that cannot register webhooks"""
MOST_REPOSITORIES = 500
MOST_FILES = 200_000
MOST_TREES = 2_000
"""calls for one listing; a repository can be made to unfold into any number of folders"""
LARGEST_FILE = 50_000_000
"""bytes, as for an upload"""
LONGEST_PATH = 1_000
"""bytes in UTF-8: it is part of an id, which is indexed"""
BATCH = 200
"""files between two checkpoints"""
MOST_LOOKED_AT = 20
"""repositories that a check of the account asks about"""
PATIENCE = 3
"""repositories in a row that fail before GitHub as a whole counts as unavailable"""
HOPS = 3
MOVED = frozenset({301, 302, 307, 308})
SECONDARY_WAIT = timedelta(minutes=1)
EMPTY_TREE = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"
"""git's tree without entries, which the API answers with 404"""
FILES = ("100644", "100755")
"""modes; the others are symbolic links (120000), submodules (160000) and folders (040000)"""
WANTED = re.compile(r"\.(md|mdx|markdown|txt|rst|adoc|org)\Z", re.IGNORECASE)
MARKDOWN = frozenset({"md", "mdx", "markdown"})
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*/(?!\.{1,2}\Z)[A-Za-z0-9._-]{1,100}")
POINTER = re.compile(rb"version https://(git-lfs\.github\.com|hawser\.github\.com)/spec/v\d")

ADVICE = {
    "http_403": "Its documents stay. If it belongs to an organisation, an owner may have to approve"
    " the application there",
    "http_451": "It is blocked for legal reasons. Its documents stay",
    "no_access": "Its documents stay. Give the account access again, or take the repository out of"
    " the connection",
    "no_branch": "Its documents stay. Choose a default branch in the settings of the repository",
}
"""What to do, by code of the error."""


@dataclass(frozen=True, slots=True)
class Picked:
    id: str
    name: str
    """`owner/repository`, as it was when it was picked"""


@dataclass(frozen=True, slots=True)
class State:
    """A repository as it was when it was last seen; JSON in the cursor."""

    name: str
    branch: str
    url: str
    """where people look at it"""
    mark: str | None = None
    """ETag of the repository"""
    head: str | None = None
    """commit that was listed whole; None: it must be listed"""
    etag: str | None = None
    """of the branch"""


FIELDS = frozenset(field.name for field in fields(State))


@dataclass(frozen=True, slots=True)
class File:
    path: str
    sha: str
    size: int


@dataclass(frozen=True, slots=True)
class Look:
    """What a look at a repository found; `files` None: nothing that must be listed."""

    state: State
    files: Sequence[File] | None = None
    verdict: Verdict | None = None


class Github(Connector):
    provider = "github"
    name = "GitHub"
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

    def judge(self, answer: Answer) -> Exception | None:
        if answer.status not in (403, 429):
            return None
        wait = _wait(answer)
        if wait is not None:
            return Transient("GitHub's rate limit is used up", code=RATE_LIMITED, after=wait)
        if answer.headers.get("x-github-sso", "").startswith("required"):
            return Permanent(
                "its organisation wants single sign-on: sign in there, then authorize again",
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
        emails = _entries(as_json(answer)) if answer.status == 200 else []
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
        found = [_resource(entry) for entry in _entries(as_json(answer))]
        if (found or page == 1) and "next" not in _links(answer):
            return found, (page - 1) * size + len(found)
        # With one on a page, the number of the last page is that of all.
        single = _page(source.api, params, 1, 1)
        last = parse_qs(urlsplit(_links(single).get("last", "")).query).get("page", [""])[0]
        total = int(last) if re.fullmatch(r"[0-9]{1,9}", last) else len(_entries(as_json(single)))
        return found, total

    def configure(
        self, metadata: Mapping[str, Any], picked: Sequence[Mapping[str, Any]]
    ) -> dict[str, Any]:
        if len(picked) > MOST_REPOSITORIES:
            raise BadRequestError(f"{RESOURCES}: at most {MOST_REPOSITORIES} repositories")
        kept = [_checked(entry, f"{RESOURCES}[{at}]") for at, entry in enumerate(picked)]
        return {**metadata, RESOURCES: list({entry["id"]: entry for entry in kept}.values())}

    def selection(self, metadata: Mapping[str, Any]) -> dict[str, str] | None:
        return {one.id: one.name for one in _picked(metadata)}

    # --- listing and fetching ------------------------------------------------------------------

    def changes(self, source: Source, cursor: Cursor | None) -> Iterator[Change]:
        before = _states(cursor)
        picked = _picked(source.metadata)
        states = {one.id: before[one.id] for one in picked if one.id in before}
        troubles: list[Trouble] = []
        failures: list[Transient] = []
        in_a_row = 0
        for repository in picked:
            source.going()
            try:
                look = _look(source, repository, before.get(repository.id))
            except Permanent as error:
                in_a_row = 0
                troubles.append(_trouble(repository, error))
                continue
            except Transient as error:
                in_a_row += 1
                if error.code == RATE_LIMITED or in_a_row == PATIENCE:
                    raise
                failures.append(error)
                troubles.append(_trouble(repository, error))
                continue
            in_a_row = 0
            if look.verdict is not None:
                yield look.verdict
            states[repository.id] = look.state
            if look.files is not None:
                # A sync that ends in between lists again, even if the old head is back by then.
                states[repository.id] = replace(look.state, head=None, etag=None)
                if (yield from _listing(source, repository.id, look, look.files, states)):
                    states[repository.id] = look.state
                    yield Checkpoint(_cursor(states))
        if failures and len(failures) == len(picked):
            raise failures[0]
        yield from troubles
        yield Checkpoint(_cursor(states))

    def fetch(self, source: Source, item: Remembered) -> Blob:
        id, _, path = item.id.partition(":")
        repository = item.extra.get("repository")
        if item.version is None or not isinstance(repository, str):
            raise NotFoundError(f"nothing is known of the content of {item.id}")
        answer = _call(
            source.api,
            "GET",
            f"/repos/{repository}/git/blobs/{item.version}",
            headers={"accept": "application/vnd.github.raw+json"},
            accept=frozenset({404, 409}),
        )
        if answer.status in (404, 409):
            _must_be_there(source.api, Picked(id, repository))
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

    def assumptions(self, source: Source) -> Iterator[Assumption]:
        answer = source.api.call("GET", "/user")
        yield _rights(answer.headers.get("x-oauth-scopes"), self.authorized(source.metadata))
        yield _budget(source.api.call("GET", "/rate_limit", accept=frozenset({404})))
        for repository in _picked(source.metadata)[:MOST_LOOKED_AT]:
            yield _may_be_watched(source, repository)

    # --- pushes --------------------------------------------------------------------------------

    def watches(self, source: Source) -> Sequence[str]:
        if source.metadata.get(WEBHOOKS, True) is False:
            return ()
        return [repository.id for repository in _picked(source.metadata)]

    def subscribe(self, source: Source, registration: Registration) -> Registration:
        """Raises Permanent (`no_webhook`) when the account may not add webhooks there."""
        named = [one for one in _picked(source.metadata) if one.id == registration.resource]
        if not named:
            raise Permanent("the repository was taken out of the connection", code="no_webhook")
        name = _repository(source.api, named[0], None).name
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
            answer = _call(source.api, "POST", f"/repos/{name}/hooks", json=body)
        except Permanent as error:
            if error.code not in ("http_403", "http_404", "http_422"):
                raise
            raise Permanent(
                f"no webhook for {name} ({error}): that takes an account which administers the"
                " repository. Until then changes are found by asking",
                code="no_webhook",
            ) from error
        hook = field_of(as_json(answer), "id", int)
        return replace(registration, remote={"hook_id": hook, "repo": name}, expires_at=None)

    def stands(self, api: Api, registration: Registration) -> bool:
        """False for a hook that somebody deleted, switched off or pointed elsewhere."""
        hook, name = registration.remote.get("hook_id"), registration.remote.get("repo")
        if not isinstance(hook, int) or not isinstance(name, str):
            return False
        answer = _call(api, "GET", f"/repos/{name}/hooks/{hook}", accept=frozenset({404}))
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
        _call(api, "DELETE", f"/repos/{name}/hooks/{hook}", accept=gone)

    def reads(self, push: Push) -> bool:
        return push.registration is not None and "x-hub-signature-256" in push.headers

    def receive(self, push: Push) -> Notice:
        if push.registration is None:
            return Notice(status=202)
        if not _signed(push, push.registration.secret):
            return FORGED
        key = push.headers.get("x-github-delivery", "")[:100] or None
        match push.headers.get("x-github-event"):
            case "ping":
                return Notice(status=200, key=key)
            case "push":
                concerned = _on_default_branch(push.body, push.registration.resource)
                return Notice(status=202, concerned=concerned, key=key)
            case _:
                return Notice(status=202, key=key)


# --- one repository ----------------------------------------------------------------------------


def _look(source: Source, picked: Picked, before: State | None) -> Look:
    """All that must be asked of a repository, so that nothing can go wrong while it is listed."""
    api = source.api
    now = _repository(api, picked, before)
    listed = before if before and before.head and _place(now) == _place(before) else None
    answer = _call(
        api,
        "GET",
        f"/repos/{now.name}/branches/{quote(now.branch, safe='')}",
        headers=_unless(listed.etag if listed else None),
        accept=frozenset({304, 404}),
    )
    if answer.status == 404:
        return _without_branch(api, picked, now)
    if listed and answer.status == 304:
        return Look(replace(now, head=listed.head, etag=listed.etag))
    commit = field_of(as_json(answer), "commit", dict)
    head = field_of(commit, "sha", str)
    now = replace(now, head=head, etag=answer.headers.get("etag"))
    if listed and head == listed.head:
        return Look(now)
    inner: Any = commit.get("commit")
    tree = field_of(field_of(inner, "tree", dict), "sha", str) if inner is not None else head
    return Look(now, _files(source, now.name, tree))


def _repository(api: Api, picked: Picked, before: State | None) -> State:
    """Its present name and default branch, by name and then by id: the name may be another's now.

    Raises Permanent when the account cannot read it, Reauthorize when that is because the token
    is not good any more.
    """
    name = picked.name if before is None else before.name
    answer = _call(
        api,
        "GET",
        f"/repos/{name}",
        headers=_unless(None if before is None else before.mark),
        accept=frozenset({304, 404}),
    )
    if before is not None and answer.status == 304:
        return replace(before, head=None, etag=None)
    if answer.status == 404 or str(field_of(as_json(answer), "id", int)) != picked.id:
        answer = _call(api, "GET", f"/repositories/{picked.id}", accept=frozenset({404}))
    if answer.status == 404:
        # GitHub says 404, never 403, of what an account may not know of.
        api.get("/user")
        raise Permanent("it is gone, or this account may not read it", code="no_access")
    found = as_json(answer)
    full_name = field_of(found, "full_name", str)
    if not NAME.fullmatch(full_name):
        raise Permanent("GitHub answered with a name that cannot be one", code="bad_answer")
    if found.get("disabled") is True:
        raise Permanent("GitHub has disabled it; its documents stay", code="disabled")
    return State(
        name=full_name,
        branch=field_of(found, "default_branch", str),
        url=field_of(found, "html_url", str),
        mark=answer.headers.get("etag"),
    )


def _rights(granted: str | None, needed: Sequence[str]) -> Assumption:
    """What the token may do now, which is less than it was once granted if the user changed it."""
    if granted is None:
        return Assumption("rights", None, "GitHub names no scopes for a token of this kind")
    # A word that is no scope, since none at all would mean that nobody knows.
    tokens = Tokens("", scopes=["none", *re.findall(r"[^,\s]+", granted)])
    if lacking := missing(needed, tokens):
        told = f"the token lacks {', '.join(lacking)}: authorize the connection again"
        return Assumption("rights", False, told)
    return Assumption("rights", True, f"the token has {granted.strip()}")


def _budget(answer: Answer) -> Assumption:
    if answer.status == 404:
        return Assumption("budget", True, "this server limits no calls")
    core = field_of(field_of(as_json(answer), "resources", dict), "core", dict)
    left, most = field_of(core, "remaining", int), field_of(core, "limit", int)
    told = f"{left:,} of {most:,} calls of this hour are left"
    if left * 10 < most:
        told += ": others use them, too, and syncs wait for the next hour when there are none"
    return Assumption("budget", left * 10 >= most, told)


def _may_be_watched(source: Source, picked: Picked) -> Assumption:
    """Whether the account may add a webhook to a repository."""
    answer = _call(source.api, "GET", f"/repositories/{picked.id}", accept=frozenset({404}))
    if answer.status == 404:
        return Assumption("repository", False, f"{picked.name} cannot be read by this account")
    found = as_json(answer)
    name, may = field_of(found, "full_name", str), as_object(found.get("permissions")).get("admin")
    if source.metadata.get(WEBHOOKS, True) is False:
        return Assumption("repository", True, f"{name} can be read; webhooks are switched off")
    if may is True and found.get("archived") is not True:
        return Assumption("repository", True, f"{name} can be read, and a webhook be added")
    return Assumption(
        "repository",
        None,
        f"{name} can be read, but a webhook takes an account that administers it and a repository"
        " that is not archived: its changes are found by asking",
    )


def _must_be_there(api: Api, picked: Picked) -> None:
    """Raises Permanent when it is the repository that cannot be read any more."""
    try:
        _repository(api, picked, None)
    except Permanent as error:
        raise Permanent(f"{picked.name}: {error}", code=error.code) from error


def _without_branch(api: Api, picked: Picked, now: State) -> Look:
    """An empty repository, or one whose default branch does not exist."""
    branch = quote(now.branch, safe="")
    answer = _call(
        api,
        "GET",
        f"/repos/{now.name}/git/ref/heads/{branch}",
        accept=frozenset({404, 409}),
    )
    if answer.status != 409:
        raise Permanent(f"there is no branch {now.branch!r}", code="no_branch")
    verdict = Verdict(
        picked.id,
        "empty_repository",
        f"{now.name} is empty. It is looked at again with each sync.",
        branch=picked.id,
        keep=True,
        url=now.url,
        title=now.name,
    )
    return Look(now, verdict=verdict)


def _files(source: Source, name: str, root: str) -> list[File]:
    """All documentation files below a tree, however large it is.

    Raises Permanent when that cannot be said for certain.
    """
    found: list[File] = []
    folders = [] if root == EMPTY_TREE else [("", root)]
    asked = 0
    while folders:
        source.going()
        prefix, sha = folders.pop()
        entries, whole = _tree(source.api, name, sha, {"recursive": "1"})
        if not whole:
            entries, flat = _tree(source.api, name, sha, {})
            if not flat:
                raise Permanent(f"the folder /{prefix} has too many entries", code="too_large")
            folders += [
                (f"{prefix}{entry['path']}/", entry["sha"])
                for entry in entries
                if entry["type"] == "tree" and entry["sha"] != EMPTY_TREE
            ]
        found += [
            File(prefix + entry["path"], entry["sha"], entry.get("size") or 0)
            for entry in entries
            if entry.get("mode") in FILES and WANTED.search(entry["path"])
        ]
        asked += 1
        if asked > MOST_TREES or len(found) > MOST_FILES:
            raise Permanent("it has too many files to list", code="too_large")
    return found


def _tree(
    api: Api, name: str, sha: str, params: Mapping[str, str]
) -> tuple[list[dict[str, Any]], bool]:
    """Entries of a tree, and whether these are all of them."""
    answer = api.get(f"/repos/{name}/git/trees/{sha}", params)
    entries = _entries(field_of(answer, "tree", list))
    for entry in entries:
        for field in ("path", "type", "sha"):
            field_of(entry, field, str)
    return entries, not field_of(answer, "truncated", bool)


def _listing(
    source: Source, id: str, look: Look, files: Sequence[File], states: Mapping[str, State]
) -> Generator[Change, None, bool]:
    """Says the files; whether the sync took what is gone for gone, or wants to hear it again."""
    known = {row.id: row.version for row in source.remembered(branch=id)}
    former = _former(id, files, known)
    gone = known.keys() - former.values()
    yield Checkpoint(_cursor(states))
    yield Listing(id)
    for count, file in enumerate(files, 1):
        said = _said_of(id, file, look.state, former.get(file.path))
        gone.discard(said.id)
        yield said
        if count % BATCH == 0:
            yield Checkpoint(_cursor(states))
    yield Listed(id)
    yield Checkpoint(_cursor(states))
    return not any(source.remembered(sorted(gone)[:1]))


def _said_of(id: str, file: File, state: State, formerly: str | None) -> Item | Verdict:
    path = file.path.encode(errors="replace")
    if path != file.path.encode(errors="surrogatepass") or len(path) > LONGEST_PATH:
        mark = hashlib.sha256(file.path.encode(errors="surrogatepass")).hexdigest()
        detail = "Its path is too long, or no text."
        return Verdict(f"{id}:?{mark}", "bad_name", detail, branch=id)
    url = f"{state.url}/blob/{quote(state.branch)}/{quote(file.path)}"
    if file.size > LARGEST_FILE:
        return Verdict(
            f"{id}:{file.path}",
            "too_large",
            f"It has {file.size:,} bytes; at most {LARGEST_FILE:,} are read.",
            branch=id,
            url=url,
            title=file.path,
        )
    return Item(
        id=f"{id}:{file.path}",
        version=file.sha,
        title=file.path,
        url=url,
        kind="github_markdown",
        metadata={"repository": state.name, "path": file.path, "branch": state.branch},
        extra={"repository": state.name},
        branch=id,
        formerly=formerly,
    )


def _former(id: str, files: Sequence[File], known: Mapping[str, str | None]) -> dict[str, str]:
    """Former ids by new path: the same content is gone in one place and new in another.

    Among equal files, those that kept their name go together, then the others in order.
    """
    present = {f"{id}:{file.path}" for file in files}
    gone: dict[str, list[str]] = {}
    for former, sha in sorted(known.items()):
        if sha is not None and former not in present:
            gone.setdefault(sha, []).append(former)
    new = [file for file in files if f"{id}:{file.path}" not in known and file.sha in gone]
    new.sort(key=lambda file: file.path)
    found: dict[str, str] = {}
    for by_name in (True, False):
        free: dict[tuple[str, str], list[str]] = {}
        taken = set(found.values())
        for sha, formers in gone.items():
            for former in formers:
                if former not in taken:
                    free.setdefault((sha, _last(former) if by_name else ""), []).append(former)
        for file in new:
            candidates = free.get((file.sha, _last(file.path) if by_name else ""))
            if candidates and file.path not in found:
                found[file.path] = candidates.pop(0)
    return found


def _content(answer: Answer, sha: str) -> bytes:
    """The bytes of a blob, certainly: git names it by their hash."""
    data = answer.data
    if _sha(data, sha) != sha:
        # Servers that know no raw media type for blobs answer with JSON.
        said = as_json(answer)
        try:
            data = base64.b64decode(field_of(said, "content", str))
        except (binascii.Error, ValueError) as error:
            raise Transient("GitHub gave a broken blob", code=PROVIDER_UNAVAILABLE) from error
    if _sha(data, sha) != sha:
        raise Transient("GitHub gave another blob than asked for", code=PROVIDER_UNAVAILABLE)
    return data


def _sha(data: bytes, like: str) -> str:
    header = f"blob {len(data)}\0".encode()
    if len(like) == 64:
        return hashlib.sha256(header + data).hexdigest()
    return hashlib.sha1(header + data, usedforsecurity=False).hexdigest()


# --- picked and remembered ---------------------------------------------------------------------


def _checked(entry: object, where: str) -> dict[str, Any]:
    """One picked repository; raises BadRequestError naming the field."""
    if not isinstance(entry, dict):
        raise BadRequestError(f"{where}: must be an object with id and name")
    given = cast("dict[str, Any]", entry)
    id, name, branch = given.get("id"), given.get("name"), given.get("defaultBranch")
    if isinstance(id, int) and not isinstance(id, bool):
        id = str(id)
    if not isinstance(id, str) or not re.fullmatch(r"[1-9][0-9]{0,18}", id):
        raise BadRequestError(f"{where}.id: must be the number that GitHub gave the repository")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise BadRequestError(f"{where}.name: must be 'owner/repository', as in full_name")
    if branch is not None and not (isinstance(branch, str) and 0 < len(branch) <= 255):
        raise BadRequestError(f"{where}.defaultBranch: must be the name of a branch")
    return {"id": id, "name": name, **({"defaultBranch": branch} if branch else {})}


def _picked(metadata: Mapping[str, Any]) -> list[Picked]:
    picked: Any = metadata.get(RESOURCES)
    if not isinstance(picked, list):
        return []
    return [Picked(entry["id"], entry["name"]) for entry in _entries(cast("list[Any]", picked))]


def _states(cursor: Cursor | None) -> dict[str, State]:
    """What a cursor knows; what it does not say in our way counts as unknown."""
    repositories: Any = cursor.get("repos") if cursor else None
    found: dict[str, State] = {}
    if isinstance(repositories, dict):
        for id, state in cast("dict[str, Any]", repositories).items():
            texts = [text for text in as_object(state).values() if isinstance(text, str | None)]
            if len(texts) == len(FIELDS) and as_object(state).keys() == FIELDS:
                found[id] = State(**state)
    return found


def _cursor(states: Mapping[str, State]) -> Cursor:
    return {"repos": {id: asdict(state) for id, state in states.items()}}


def _place(state: State) -> tuple[str, str, str]:
    """What url and metadata of its documents are made of."""
    return state.name, state.branch, state.url


def _trouble(picked: Picked, error: Permanent | Transient) -> Trouble:
    advice = ADVICE.get(error.code, "It is tried again with the next sync")
    return Trouble(f"{picked.name}: {error}. {advice}.", error.code, picked.id)


# --- calls and answers -------------------------------------------------------------------------


def _call(
    api: Api,
    method: str,
    path: str,
    *,
    json: object | None = None,
    headers: Mapping[str, str] | None = None,
    accept: frozenset[int] = frozenset(),
) -> Answer:
    """A call that goes after renamed repositories; GitHub wants it repeated as it was.

    Raises what `Api.call` raises: Permanent (`foreign_address`) when it leads to another host.
    """
    for _ in range(HOPS):
        answer = api.call(method, path, json=json, headers=headers, accept=accept | MOVED)
        if answer.status not in MOVED:
            return answer
        path = answer.headers.get("location", "")
        if not path:
            break
    raise Permanent("GitHub redirects to nowhere", code="bad_answer")


def _unless(etag: str | None) -> Mapping[str, str]:
    """An answer that has not changed is a 304, which costs nothing."""
    return {} if etag is None else {"if-none-match": etag}


def _page(api: Api, params: Mapping[str, str], page: int, per_page: int) -> Answer:
    return api.call(
        "GET", "/user/repos", params={**params, "page": str(page), "per_page": str(per_page)}
    )


def _links(answer: Answer) -> dict[str, str]:
    """Addresses of the Link header, by what they are (RFC 8288)."""
    found = re.findall(r'<([^<>]*)>\s*;\s*rel="(\w+)"', answer.headers.get("link", ""))
    return {relation: url for url, relation in found}


def _entries(value: Any) -> list[dict[str, Any]]:
    """A list of objects; raises Transient if it is none."""
    if not isinstance(value, list) or not all(isinstance(e, dict) for e in cast("Any", value)):
        raise Transient("GitHub answered without a list", code=PROVIDER_UNAVAILABLE)
    return cast("list[dict[str, Any]]", value)


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


def _wait(answer: Answer) -> timedelta | None:
    """How long a refusal asks us to wait; None: it is none for asking too often.

    docs.github.com/rest/using-the-rest-api/best-practices-for-using-the-rest-api
    """
    told, limit = answer.headers.get("retry-after"), answer.headers.get("x-ratelimit-remaining")
    if told is not None and (answer.status == 429 or re.fullmatch(r"[0-9]{1,9}", told)):
        # Other forms of a 429 are understood below.
        return _clamped(int(told)) if told.isdecimal() and len(told) < 10 else None
    if limit == "0":
        return _until_reset(answer)
    said = answer.data[:4096].lower()
    if answer.status == 429 or b"secondary rate limit" in said or b"abuse detection" in said:
        return SECONDARY_WAIT
    return None


def _until_reset(answer: Answer) -> timedelta:
    """By GitHub's clock where it tells it: ours may be off."""
    reset = answer.headers.get("x-ratelimit-reset", "")
    if not re.fullmatch(r"[0-9]{1,11}", reset):
        return SECONDARY_WAIT
    return _clamped(int(reset) - told_time(answer.headers).timestamp() + 1)


def _clamped(seconds: float) -> timedelta:
    return max(believable(timedelta(seconds=seconds)), timedelta(seconds=1))


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


def _last(path: str) -> str:
    return re.split(r"[/:]", path)[-1]
