"""GitHub's REST API on loopback, as far as it takes to follow documentation: with real git objects.

    with FakeGithub() as github:
        token = github.user("octo")
        docs = github.repository("octo/docs", {"guide.md": "# Guide"})
        docs.commit({"guide.md": "# New", "old.md": None})
        docs.move("guide.md", "start.md")
        github.rename(docs, "octo/handbook")

The test is the user: it commits, moves, forces, renames. Commits deliver pushes to the hooks before
they return. Objects have the names that git gives them, unchanged answers are 304, old names are
301, an empty tree is 404 as at GitHub. Days get worse with `refuse`, `budget` and `moody`.
"""

import base64
import hashlib
import hmac
import json
import random
import re
import threading
import uuid
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from http.client import HTTPConnection, HTTPException
from typing import Any, Self
from urllib.parse import parse_qs, quote, unquote, urlsplit

from tests.fakes.website import Exchange, Request, Website, answer

NOBODY = "0" * 40
EPOCH = 1_767_225_600
"""seconds; each commit is a minute later than the one before"""
FOLDER, FILE, LINK, MODULE = "040000", "100644", "120000", "160000"
RAW = "application/vnd.github.raw"
MOODS = ("busy", "error", "bad gateway", "cut", "reset", "page")
URLS = {
    "forks": "forks",
    "keys": "keys{/key_id}",
    "collaborators": "collaborators{/collaborator}",
    "teams": "teams",
    "hooks": "hooks",
    "issue_events": "issues/events{/number}",
    "events": "events",
    "assignees": "assignees{/user}",
    "branches": "branches{/branch}",
    "tags": "tags",
    "blobs": "git/blobs{/sha}",
    "git_tags": "git/tags{/sha}",
    "git_refs": "git/refs{/sha}",
    "trees": "git/trees{/sha}",
    "statuses": "statuses/{sha}",
    "languages": "languages",
    "stargazers": "stargazers",
    "contributors": "contributors",
    "subscribers": "subscribers",
    "subscription": "subscription",
    "commits": "commits{/sha}",
    "git_commits": "git/commits{/sha}",
    "comments": "comments{/number}",
    "issue_comment": "issues/comments{/number}",
    "contents": "contents/{+path}",
    "compare": "compare/{base}...{head}",
    "merges": "merges",
    "archive": "{archive_format}{/ref}",
    "downloads": "downloads",
    "issues": "issues{/number}",
    "pulls": "pulls{/number}",
    "milestones": "milestones{/number}",
    "notifications": "notifications{?since,all,participating}",
    "labels": "labels{/name}",
    "releases": "releases{/id}",
    "deployments": "deployments",
}
"""name of a field, without `_url`, and what it adds to the address of a repository"""


@dataclass
class User:
    id: int
    login: str
    token: str
    email: str
    scopes: set[str]


@dataclass
class Delivery:
    id: int
    guid: str
    event: str
    body: bytes
    status: int
    """what the receiver answered; 0: nothing"""
    again: bool = False


@dataclass
class Hook:
    id: int
    url: str
    secret: str
    events: list[str]
    deliveries: list[Delivery] = field(default_factory=list[Delivery])


@dataclass(frozen=True)
class Reply:
    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(eq=False)
class Repository:
    """Attributes may be changed at any time; contents by its methods."""

    hub: "FakeGithub"
    id: int
    name: str
    """`owner/repository`"""
    private: bool = True
    readers: set[str] = field(default_factory=set[str])
    """logins besides the owner's"""
    default_branch: str = "main"
    archived: bool = False
    disabled: bool = False
    blocked: bool = False
    """answers 451"""
    broken: bool = False
    """answers 500"""
    branches: dict[str, str] = field(default_factory=dict[str, str])
    """name → commit"""
    former_branches: dict[str, str] = field(default_factory=dict[str, str])
    hooks: dict[int, Hook] = field(default_factory=dict[int, Hook])
    sizes: dict[str, int | None] = field(default_factory=dict[str, int | None])
    """what is said of the size of a blob, instead of the truth"""
    objects: dict[str, tuple[str, bytes]] = field(default_factory=dict[str, tuple[str, bytes]])
    pushed_at: int = EPOCH

    @property
    def owner(self) -> str:
        return self.name.partition("/")[0]

    @property
    def head(self) -> str:
        return self.branches[self.default_branch]

    # --- what users do ---

    def commit(
        self,
        changes: Mapping[str, str | bytes | None],
        *,
        branch: str | None = None,
        mode: str = FILE,
    ) -> str:
        """Write files (None: delete them) and push; answers the new head."""
        branch = branch or self.default_branch
        with self.hub.lock:
            files = dict(self.entries(self.branches.get(branch)))
            for path, content in changes.items():
                if content is None:
                    del files[path]
                elif mode == MODULE:
                    files[path] = (MODULE, hashlib.sha1(path.encode()).hexdigest())
                else:
                    data = content.encode() if isinstance(content, str) else content
                    files[path] = (mode, self.put("blob", data))
        return self.push(branch, files)

    def move(self, old: str, new: str, *, branch: str | None = None) -> str:
        """Rename a file, or a folder with all below it."""
        branch = branch or self.default_branch
        with self.hub.lock:
            files = {
                new + path[len(old) :] if path == old or path.startswith(f"{old}/") else path: entry
                for path, entry in self.entries(self.branches[branch]).items()
            }
        return self.push(branch, files)

    def push(self, branch: str, files: Mapping[str, tuple[str, str]]) -> str:
        with self.hub.lock:
            parent = self.branches.get(branch)
            tree = self._tree(files)
            self.pushed_at += 60
            lines = [f"tree {tree}", *([f"parent {parent}"] if parent else [])]
            who = f"{self.owner} <{self.owner}@example.com> {self.pushed_at} +0000"
            text = "\n".join([*lines, f"author {who}", f"committer {who}", "", "Change", ""])
            commit = self.put("commit", text.encode())
        self.force(branch, commit, forced=False)
        return commit

    def force(self, branch: str, commit: str, *, forced: bool = True) -> None:
        """Let a branch point elsewhere, and tell the hooks."""
        with self.hub.lock:
            before = self.branches.get(branch, NOBODY)
            self.branches[branch] = commit
            payload = self.hub.push_payload(self, branch, before, commit, forced=forced)
            hooks = [hook for hook in self.hooks.values() if "push" in hook.events]
        guid = str(uuid.uuid4())
        for hook in hooks:
            self.hub.deliver(hook, "push", payload, guid=guid)

    def rename_branch(self, old: str, new: str) -> None:
        with self.hub.lock:
            self.branches[new] = self.branches.pop(old)
            self.former_branches[old] = new
            if self.default_branch == old:
                self.default_branch = new

    # --- what there is ---

    def files(self, branch: str | None = None) -> dict[str, str]:
        """Path → sha of everything on a branch that is a plain file."""
        with self.hub.lock:
            entries = self.entries(self.branches.get(branch or self.default_branch))
        return {path: sha for path, (mode, sha) in entries.items() if mode == FILE}

    def entries(self, commit: str | None) -> dict[str, tuple[str, str]]:
        if commit is None:
            return {}
        walked = self.walk(self.tree_of(commit))
        return {path: (mode, sha) for path, mode, sha in walked if mode != FOLDER}

    def tree_of(self, commit: str) -> str:
        return re.findall(rb"^tree (\w+)", self.objects[commit][1])[0].decode()

    def walk(self, tree: str, prefix: str = "") -> Iterator[tuple[str, str, str]]:
        """Path, mode and sha of all that is below a tree, folders before what they hold."""
        for name, mode, sha in self.level(tree):
            yield prefix + name, mode, sha
            if mode == FOLDER:
                yield from self.walk(sha, f"{prefix}{name}/")

    def level(self, tree: str) -> list[tuple[str, str, str]]:
        data, found = self.objects[tree][1], list[tuple[str, str, str]]()
        while data:
            head, _, rest = data.partition(b"\0")
            mode, _, name = head.partition(b" ")
            found.append((name.decode(), mode.decode().zfill(6), rest[:20].hex()))
            data = rest[20:]
        return found

    def put(self, kind: str, data: bytes) -> str:
        sha = hashlib.sha1(f"{kind} {len(data)}\0".encode() + data).hexdigest()
        self.objects[sha] = (kind, data)
        return sha

    def _tree(self, files: Mapping[str, tuple[str, str]]) -> str:
        here: dict[str, tuple[str, str]] = {}
        below: dict[str, dict[str, tuple[str, str]]] = {}
        for path, entry in files.items():
            folder, slash, rest = path.partition("/")
            if slash:
                below.setdefault(folder, {})[rest] = entry
            else:
                here[path] = entry
        here |= {name: (FOLDER, self._tree(inner)) for name, inner in below.items()}
        # git sorts a folder as if its name ended in a slash.
        names = sorted(here, key=lambda name: (name + "/" * (here[name][0] == FOLDER)).encode())
        return self.put(
            "tree",
            b"".join(
                f"{here[name][0].lstrip('0')} {name}\0".encode() + bytes.fromhex(here[name][1])
                for name in names
            ),
        )


class FakeGithub:
    def __init__(self, prefix: str = "") -> None:
        """`prefix`: where the API begins, on a server of an enterprise."""
        self.prefix = prefix
        self.lock = threading.RLock()
        self.site = Website()
        self.site.route(f"{prefix}/*", self._serve)
        self.url = self.site.url(prefix)
        self.users: dict[str, User] = {}
        self.repositories: dict[int, Repository] = {}
        self.former: dict[str, int] = {}
        """old name → id"""
        self.apps = {"app-id": "app-secret"}
        self.most_entries = 100_000
        """of a recursive tree; then it is truncated"""
        self.most_in_folder = 100_000
        """the same for one that is not recursive"""
        self.knows_raw = True
        self.budget = 5000
        """calls until the limit"""
        self.detours: dict[str, str] = {}
        """public addresses of receivers, and where they are reached here"""
        self.resets_at = 0
        """when there are more, in seconds of the epoch"""
        self._refusals: deque[Reply] = deque()
        self._moods: tuple[random.Random, float] | None = None
        self._numbers = iter(range(1, 10**9))

    def __enter__(self) -> Self:
        self.site.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self.site.__exit__()

    # --- what users and GitHub do ---

    def user(self, login: str, *, scopes: str = "repo,user:email") -> str:
        """Somebody with a token, which is answered."""
        number = next(self._numbers)
        token = f"gho_{login}_{number}"
        ids = [user.id for user in self.users.values() if user.login == login]
        id = ids[0] if ids else number
        email = f"{login}@example.com"
        self.users[token] = User(id, login, token, email, set(scopes.split(",")))
        return token

    def repository(
        self, name: str, files: Mapping[str, str | bytes] | None = None, *, private: bool = True
    ) -> Repository:
        """A repository; empty without files. It takes the name from one that had it formerly."""
        with self.lock:
            made = Repository(self, next(self._numbers), name, private)
            self.repositories[made.id] = made
            self.former.pop(name.lower(), None)
        if files is not None:
            made.commit(files)
        return made

    def rename(self, repository: Repository, name: str) -> None:
        """Or transfer."""
        with self.lock:
            self.former[repository.name.lower()] = repository.id
            repository.name = name

    def delete(self, repository: Repository) -> None:
        with self.lock:
            del self.repositories[repository.id]

    def revoke(self, token: str) -> None:
        with self.lock:
            del self.users[token]

    # --- bad days ---

    def refuse(self, status: int, *, times: int = 1, message: str = "no", **headers: str) -> None:
        """Answer the next calls with this; names of headers with underscores."""
        told = {name.replace("_", "-"): value for name, value in headers.items()}
        reply = Reply(status, json.dumps({"message": message}).encode(), told)
        self._refusals.extend([reply] * times)

    def moody(self, moods: random.Random | None, share: float = 0.1) -> None:
        """Let that share of all calls go wrong, each in some way; None: no longer."""
        self._moods = None if moods is None else (moods, share)

    # --- serving ---

    def calls(self, pattern: str = "") -> list[Request]:
        """What was asked, where "METHOD /path" matches."""
        seen = list(self.site.requests)
        return [each for each in seen if re.search(pattern, f"{each.method} {each.path}")]

    def forget(self) -> None:
        self.site.requests.clear()

    def _serve(self, exchange: Exchange) -> bool:
        request = exchange.request
        with self.lock:
            mood = self._mood()
            reply = Reply(500) if mood in ("reset", "busy", "error") else self._answer(request)
        headers = {
            "Content-Type": "application/json; charset=utf-8",
            "Date": format_datetime(datetime.now(UTC), usegmt=True),
            "X-RateLimit-Limit": "5000",
            "X-RateLimit-Remaining": str(self.budget),
            "X-RateLimit-Reset": str(self.resets_at),
            **reply.headers,
        }
        match mood:
            case "reset":
                return False
            case "busy":
                exchange.send(answer(429, b"", {"Retry-After": "1"}))
            case "error":
                exchange.send(answer(500, b'{"message": "Server Error"}'))
            case "bad gateway":
                exchange.send(answer(502, b"<html>Bad Gateway</html>"))
            case "page":
                exchange.send(answer(200, b"<html>please sign in</html>"))
            case "cut":
                whole = answer(reply.status, reply.body, headers)
                exchange.send(whole[: -max(1, len(reply.body) // 2)])
                return False
            case _:
                exchange.send(answer(reply.status, reply.body, headers))
        return True

    def _mood(self) -> str | None:
        if self._moods is None:
            return None
        moods, share = self._moods
        return moods.choice(MOODS) if moods.random() < share else None

    def _answer(self, request: Request) -> Reply:
        if self._refusals:
            return self._refusals.popleft()
        path, _, query = request.path.removeprefix(self.prefix).partition("?")
        asked = {name: values[0] for name, values in parse_qs(query).items()}
        if found := re.fullmatch(r"/applications/([^/]+)/(grant|token)", path):
            return self._revoke(request, found[1], found[2])
        user = self.users.get(request.headers.get("authorization", "").removeprefix("Bearer "))
        if user is None:
            return _refusal(401, "Bad credentials")
        if self.budget <= 0:
            return _refusal(403, f"API rate limit exceeded for user ID {user.id}.")
        reply = self._route(request, user, path, asked)
        told = {**reply.headers, "X-OAuth-Scopes": ", ".join(sorted(user.scopes))}
        reply = Reply(reply.status, reply.body, told)
        if reply.status != 200 or request.method != "GET":
            self.budget -= 1
            return reply
        etag = f'W/"{hashlib.sha256(reply.body).hexdigest()}"'
        if request.headers.get("if-none-match") == etag:
            return Reply(304, headers={"ETag": etag})
        self.budget -= 1
        return Reply(200, reply.body, {**reply.headers, "ETag": etag})

    def _route(self, request: Request, user: User, path: str, asked: Mapping[str, str]) -> Reply:
        match path:
            case "/rate_limit":
                self.budget += 1  # asking costs nothing
                left = {"limit": 5000, "used": 5001 - self.budget, "remaining": self.budget - 1}
                return _json({"resources": {"core": left | {"reset": self.resets_at}}})
            case "/user":
                return _json(self.user_json(user.login) | {"name": None, "email": None})
            case "/user/emails":
                if not user.scopes & {"user", "user:email"}:
                    return _refusal(404, "Not Found")
                other = {"email": "old@example.com", "primary": False, "verified": True}
                own = {"email": user.email, "primary": True, "verified": True}
                return _json([other, own])
            case "/user/repos":
                return self._repositories(user, asked)
            case _:
                found = re.fullmatch(r"/(repositories/\d+|repos/[^/]+/[^/]+)(/.*)?", path)
                return self._below(request, user, found[1], found[2] or "") if found else NOT_FOUND

    def _repositories(self, user: User, asked: Mapping[str, str]) -> Reply:
        wanted = [
            each
            for each in sorted(self.repositories.values(), key=lambda each: each.name)
            if user.login == each.owner or user.login in each.readers
            if asked.get("visibility") != "public" or not each.private
        ]
        page, size = int(asked.get("page", "1")), min(int(asked.get("per_page", "30")), 100)
        last = max(1, -(-len(wanted) // size))
        to = {"next": page + 1, "last": last} if page < last else {}
        to |= {"first": 1, "prev": page - 1} if page > 1 else {}
        links = [
            f'<{self.url}/user/repos?page={number}&per_page={size}>; rel="{relation}"'
            for relation, number in to.items()
        ]
        shown = [self.repository_json(each) for each in wanted[(page - 1) * size : page * size]]
        for each in shown:
            each.pop("custom_properties")  # of one repository, not of a list
        return _json(shown, Link=", ".join(links))

    def _below(self, request: Request, user: User, named: str, rest: str) -> Reply:
        """Everything of one repository."""
        kind, _, name = named.partition("/")
        by_name = {each.name.lower(): each for each in self.repositories.values()}
        if kind == "repositories":
            repository = self.repositories.get(int(name))
        elif (repository := by_name.get(name.lower())) is None and name.lower() in self.former:
            repository = self.repositories.get(self.former[name.lower()])
            if repository is not None and self._may_read(user, repository):
                to = f"{self.url}/repositories/{repository.id}{rest}"
                status = 301 if request.method == "GET" else 307
                return Reply(status, b'{"message": "Moved Permanently"}', {"Location": to})
        if repository is None or not self._may_read(user, repository):
            return NOT_FOUND
        if repository.blocked:
            return _refusal(451, "Repository access blocked")
        if repository.broken:
            return _refusal(500, "Server Error")
        if rest.startswith("/hooks"):
            return self._hooks(request, user, repository, rest)
        if request.method != "GET":
            return NOT_FOUND
        if not rest:
            own = user.login == repository.owner
            may = {"admin": own, "maintain": own, "push": own, "triage": own, "pull": True}
            return _json(self.repository_json(repository) | {"permissions": may})
        return self._read(request, repository, rest)

    def _may_read(self, user: User, repository: Repository) -> bool:
        if not repository.private:
            return True
        own = user.login == repository.owner or user.login in repository.readers
        return own and "repo" in user.scopes

    def _read(self, request: Request, repository: Repository, rest: str) -> Reply:
        what, _, key = rest.removeprefix("/git").removeprefix("/").partition("/")
        key = unquote(key)
        match what:
            case "branches":
                if key in repository.former_branches and key not in repository.branches:
                    new = quote(repository.former_branches[key], safe="")
                    to = f"{self.url}/repositories/{repository.id}/branches/{new}"
                    return Reply(301, b"{}", {"Location": to})
                return self._branch(repository, key)
            case "ref" | "trees" | "blobs" if not repository.branches:
                return _refusal(409, "Git Repository is empty.")
            case "ref":
                sha = repository.branches.get(key.removeprefix("heads/"))
                return _json({"ref": f"refs/{key}", "object": {"sha": sha}}) if sha else NOT_FOUND
            case "trees":
                return self._tree(repository, key, recursive="recursive=" in request.path)
            case "blobs":
                return self._blob(request, repository, key)
            case _:
                return NOT_FOUND

    def _branch(self, repository: Repository, name: str) -> Reply:
        sha = repository.branches.get(name)
        if sha is None:
            return _refusal(404, "Branch not found")
        base = f"{self.url}/repos/{repository.name}"
        tree = repository.tree_of(sha)
        inner = {"message": "Change", "tree": {"sha": tree, "url": f"{base}/git/trees/{tree}"}}
        commit = {"sha": sha, "url": f"{base}/commits/{sha}", "commit": inner}
        return _json({"name": name, "commit": commit, "protected": False})

    def _tree(self, repository: Repository, sha: str, *, recursive: bool) -> Reply:
        kind, data = repository.objects.get(sha, ("", b""))
        tree = repository.tree_of(sha) if kind == "commit" else sha
        if kind not in ("commit", "tree") or not (data if kind == "tree" else tree):
            return NOT_FOUND
        if not repository.objects[tree][1]:
            return NOT_FOUND  # github.com/orgs/community/discussions/131150
        most = self.most_entries if recursive else self.most_in_folder
        walked = list(repository.walk(tree) if recursive else repository.level(tree))
        entries = [self._entry(repository, *each) for each in walked[:most]]
        return _json({"sha": tree, "tree": entries, "truncated": len(walked) > most})

    def _entry(self, repository: Repository, path: str, mode: str, sha: str) -> dict[str, Any]:
        types = {FOLDER: "tree", MODULE: "commit"}
        entry: dict[str, Any] = {"path": path, "mode": mode, "sha": sha}
        entry["type"] = types.get(mode, "blob")
        if entry["type"] == "blob":
            size = len(repository.objects[sha][1])
            entry["size"] = repository.sizes.get(sha, size)
        return entry

    def _blob(self, request: Request, repository: Repository, sha: str) -> Reply:
        kind, data = repository.objects.get(sha, ("", b""))
        if kind != "blob":
            return NOT_FOUND
        if self.knows_raw and request.headers.get("accept", "").startswith(RAW):
            return Reply(200, data, {"Content-Type": f"{RAW}+json; charset=utf-8"})
        content = base64.encodebytes(data).decode()
        return _json({"sha": sha, "size": len(data), "content": content, "encoding": "base64"})

    def _revoke(self, request: Request, client: str, what: str) -> Reply:
        given = base64.b64encode(f"{client}:{self.apps.get(client)}".encode()).decode()
        if request.headers.get("authorization") != f"Basic {given}":
            return NOT_FOUND
        user = self.users.get(json.loads(request.body).get("access_token"))
        if user is None:
            return _refusal(422, "Validation Failed")
        ended = [user] if what == "token" else self.users.values()
        for each in [each for each in ended if each.login == user.login]:
            del self.users[each.token]
        return Reply(204)

    # --- hooks ---

    def _hooks(self, request: Request, user: User, repository: Repository, rest: str) -> Reply:
        if user.login != repository.owner or not user.scopes & {"repo", "admin:repo_hook"}:
            return NOT_FOUND
        if repository.archived:
            return _refusal(403, "Repository was archived so is read-only.")
        if (request.method, rest) == ("POST", "/hooks"):
            return self._new_hook(json.loads(request.body), repository)
        found = re.fullmatch(r"/hooks/(\d+)(/.*)?", rest)
        hook = repository.hooks.get(int(found[1])) if found else None
        if found is None or hook is None:
            return NOT_FOUND
        if (request.method, found[2]) == ("GET", None):
            return _json(self.hook_json(repository, hook))
        if (request.method, found[2]) == ("DELETE", None):
            del repository.hooks[hook.id]
            return Reply(204)
        return NOT_FOUND

    def _new_hook(self, given: Mapping[str, Any], repository: Repository) -> Reply:
        config = given.get("config", {})
        url = urlsplit(config.get("url", ""))
        if given.get("name") != "web" or not url.scheme or config.get("content_type") != "json":
            return _refusal(422, "Validation Failed")
        if any(hook.url == config["url"] for hook in repository.hooks.values()):
            return _refusal(422, "Hook already exists on this repository")
        hook = Hook(next(self._numbers), config["url"], config.get("secret", ""), given["events"])
        repository.hooks[hook.id] = hook
        shown = self.hook_json(repository, hook)
        ping = {"zen": "Speak like a human.", "hook_id": hook.id, "hook": shown}
        ping |= {"repository": self.repository_json(repository)}
        ping |= {"sender": self.user_json(repository.owner)}
        # It is there before the answer is.
        self.deliver(hook, "ping", json.dumps(ping).encode())
        return Reply(201, json.dumps(shown).encode())

    def deliver(self, hook: Hook, event: str, body: bytes, *, guid: str | None = None) -> Delivery:
        """Send it once, as GitHub does, whatever becomes of it. `guid`: of the event, which is told
        to all hooks by the same one."""
        made = Delivery(next(self._numbers), guid or str(uuid.uuid4()), event, body, 0)
        made.again = any(one.guid == made.guid for one in hook.deliveries)
        url = urlsplit(detour(hook.url, self.detours))
        mac = hmac.new(hook.secret.encode(), body, hashlib.sha256).hexdigest()
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "GitHub-Hookshot/000",
            "X-GitHub-Event": event,
            "X-GitHub-Delivery": made.guid,
            "X-GitHub-Hook-ID": str(hook.id),
            "X-Hub-Signature-256": f"sha256={mac}",
        }
        connection = HTTPConnection(url.hostname or "", url.port, timeout=60)
        try:
            connection.request("POST", f"{url.path}?{url.query}", body, headers)
            made.status = connection.getresponse().status
        except (OSError, HTTPException):
            pass  # GitHub notes it, and does not try again
        finally:
            connection.close()
        hook.deliveries.append(made)
        return made

    def redeliver(self, hook: Hook, delivery: Delivery) -> Delivery:
        """What somebody does by hand: the same again, with the same GUID."""
        return self.deliver(hook, delivery.event, delivery.body, guid=delivery.guid)

    def push_payload(
        self, repository: Repository, branch: str, before: str, after: str, *, forced: bool
    ) -> bytes:
        html = f"{self.url}/{repository.name}"
        who = {"name": repository.owner, "email": f"{repository.owner}@example.com"}
        old = repository.entries(None if before == NOBODY else before)
        new = repository.entries(after)
        commit = {
            "id": after,
            "tree_id": repository.tree_of(after),
            "distinct": True,
            "message": "Change",
            "timestamp": _time(repository.pushed_at),
            "url": f"{html}/commit/{after}",
            "author": who,
            "committer": who,
            "added": sorted(new.keys() - old.keys()),
            "removed": sorted(old.keys() - new.keys()),
            "modified": sorted(p for p in new.keys() & old.keys() if new[p] != old[p]),
        }
        payload = {
            "ref": f"refs/heads/{branch}",
            "before": before,
            "after": after,
            "created": before == NOBODY,
            "deleted": False,
            "forced": forced,
            "base_ref": None,
            "compare": f"{html}/compare/{before[:12]}...{after[:12]}",
            "commits": [] if forced else [commit],
            "head_commit": commit,
            "repository": self.repository_json(repository),
            "pusher": who,
            "sender": self.user_json(repository.owner),
        }
        return json.dumps(payload).encode()

    # --- what things look like ---

    def user_json(self, login: str) -> dict[str, Any]:
        ids = [user.id for user in self.users.values() if user.login == login]
        base, html = f"{self.url}/users/{login}", f"{self.url}/{login}"
        below = {"organizations": "orgs"}
        names = ("followers", "subscriptions", "organizations", "repos", "received_events")
        urls = {f"{name}_url": f"{base}/{below.get(name, name)}" for name in names}
        return {
            "login": login,
            "id": ids[0] if ids else 1,
            "node_id": "U_1",
            "avatar_url": f"{html}.png",
            "gravatar_id": "",
            "url": base,
            "html_url": html,
            **urls,
            "following_url": f"{base}/following{{/other_user}}",
            "gists_url": f"{base}/gists{{/gist_id}}",
            "starred_url": f"{base}/starred{{/owner}}{{/repo}}",
            "events_url": f"{base}/events{{/privacy}}",
            "type": "User",
            "site_admin": False,
        }

    def repository_json(self, repository: Repository) -> dict[str, Any]:
        name = repository.name.partition("/")[2]
        base, html = f"{self.url}/repos/{repository.name}", f"{self.url}/{repository.name}"
        time = _time(repository.pushed_at)
        urls = {f"{name}_url": f"{base}/{below}" for name, below in URLS.items()}
        return {
            "id": repository.id,
            "node_id": "R_1",
            "name": name,
            "full_name": repository.name,
            "private": repository.private,
            "owner": self.user_json(repository.owner),
            "html_url": html,
            "description": f"All about {name}",
            "fork": False,
            "url": base,
            **urls,
            "created_at": _time(EPOCH),
            "updated_at": time,
            "pushed_at": time,
            "git_url": f"git://example.com/{repository.name}.git",
            "ssh_url": f"git@example.com:{repository.name}.git",
            "clone_url": f"{html}.git",
            "svn_url": html,
            "homepage": None,
            "size": len(repository.objects),
            **dict.fromkeys(("stargazers_count", "watchers_count", "forks_count"), 0),
            **dict.fromkeys(("open_issues_count", "forks", "open_issues", "watchers"), 0),
            "language": None,
            **dict.fromkeys(("has_issues", "has_projects", "has_downloads", "has_wiki"), True),
            "has_pages": False,
            "mirror_url": None,
            "archived": repository.archived,
            "disabled": repository.disabled,
            "license": None,
            "allow_forking": True,
            "is_template": False,
            "web_commit_signoff_required": False,
            "topics": [],
            "visibility": "private" if repository.private else "public",
            "custom_properties": {},
            "default_branch": repository.default_branch,
        }

    def hook_json(self, repository: Repository, hook: Hook) -> dict[str, Any]:
        base = f"{self.url}/repos/{repository.name}/hooks/{hook.id}"
        config = {"content_type": "json", "insecure_ssl": "0", "url": hook.url}
        return {
            "type": "Repository",
            "id": hook.id,
            "name": "web",
            "active": True,
            "events": hook.events,
            "config": config | {"secret": "********"},
            "updated_at": _time(EPOCH),
            "created_at": _time(EPOCH),
            "url": base,
            "test_url": f"{base}/tests",
            "ping_url": f"{base}/pings",
            "deliveries_url": f"{base}/deliveries",
            "last_response": {"code": None, "status": "unused", "message": None},
        }


def detour(url: str, detours: Mapping[str, str]) -> str:
    for public, here in detours.items():
        url = url.replace(public, here, 1)
    return url


def _json(value: object, **headers: str) -> Reply:
    return Reply(200, json.dumps(value).encode(), {k: v for k, v in headers.items() if v})


def _refusal(status: int, message: str) -> Reply:
    said = {"message": message, "documentation_url": "https://docs.github.com/rest"}
    return Reply(status, json.dumps(said).encode())


NOT_FOUND = _refusal(404, "Not Found")


def _time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
