"""Providers as the conformance suite sees them: a user's hands, and a fault proxy in between.

A peer is named in `PEERS` by its provider; a new connector without one fails the suite.
"""

import base64
import json
import re
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Self, cast
from urllib.parse import urlsplit

import boto3
import jwt
from botocore.config import Config
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm
from moto.core.models import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends
from moto.server import ThreadedMotoServer

from recollect.config import ProviderSettings
from recollect.connectors.gmail._settings import GmailSettings
from recollect.connectors.oauth import Tokens
from tests.fakes.authorization import Grant
from tests.fakes.cabinet import Cabinet
from tests.fakes.folder import MountedFolder
from tests.fakes.github import FakeGithub
from tests.fakes.gmail import ME, PUBLISHER, FakeGmail
from tests.fakes.gmail import TOKEN as GMAIL_TOKEN
from tests.fakes.google_drive import TOKEN, FakeDrive
from tests.fakes.graph import FakeGraph, Thing
from tests.fakes.notion import WORKSPACE, FakeNotion, Page, para
from tests.fakes.proxy import Proxy, Seen
from tests.fakes.site import Site
from tests.fakes.website import Website

PUBLIC = "https://recollect.example"
"""of the service, where it has one"""


class Peer(ABC):
    """Things have short names (`a`, `b1`) and texts; `names` tells what is there."""

    settings: ProviderSettings | None = None
    """of the connection's provider"""
    public = False
    """whether it needs no account"""
    opens: Sequence[Path] = ()
    """folders of this machine that the settings open"""
    account: tuple[str, str] = ("ann", "ann@example.com")
    """id and name of who authorized"""
    registers: str | None = None
    """requests that register for pushes, as patterns of the proxy go; None: there are no pushes"""
    proof: str | None = None
    """header that proves a push"""
    gate = ""
    """where pushes go instead of `PUBLIC`, once it listens"""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self.proxy = self._stack.enter_context(Proxy())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def metadata(self) -> dict[str, Any]:
        """Of the connection to be created."""
        return {}

    def picks(self) -> list[dict[str, Any]]:
        """Resources to be configured, if there is something to pick."""
        return []

    def tokens(self) -> Tokens | None:
        """What an authorization is worth; None: it needs none."""
        return None

    def admit(self, token: str) -> None:
        """Let this access token in, for the same account."""
        raise NotImplementedError

    def banish(self, token: str) -> None:
        """It has expired."""
        raise NotImplementedError

    def hook_secrets(self) -> list[str]:
        """What proves the pushes that are registered now, where the secret is ours."""
        return []

    @abstractmethod
    def put(self, name: str, text: str) -> None:
        """Make it, or edit it."""

    @abstractmethod
    def remove(self, name: str) -> None: ...

    @abstractmethod
    def rename(self, old: str, new: str) -> None: ...

    def move(self, name: str, folder: str) -> None:
        """To another place, where there are places."""
        return

    def folder_id(self, folder: str) -> str:
        """Of one that something was moved to, as a selection names it."""
        raise NotImplementedError

    def share(self, name: str) -> None:
        """Change who may see it, other than us, where that can be."""
        return

    def forget_cursor(self) -> None:
        """Where we were is known no longer."""
        return

    @abstractmethod
    def names(self) -> set[str]: ...

    @abstractmethod
    def name_of(self, document: dict[str, Any]) -> str:
        """Which thing a document is of, by what the API shows."""

    def fill(self, numbers: range) -> None:
        """Make a tiny thing for each number, at once."""
        for n in numbers:
            self.put(f"f{n}", f"Tiny {n}.")

    def revoke(self) -> None:
        """The authorization ends."""
        raise NotImplementedError

    # --- pushes ---

    def pushed(self) -> ProviderSettings | None:
        """The settings, with those that pushes need."""
        return self.settings

    def listen(self, gate: str, public: str = PUBLIC) -> None:
        """Let pushes to `public` go to the service at this address."""
        self.gate = gate

    def deliver(self) -> None:
        """Send what there is to push; most do that by themselves."""
        return

    def registrations(self) -> set[str]:
        """What is registered there, by the provider's ids."""
        return set()

    def lose(self) -> None:
        """Somebody removes all registrations at the provider."""
        raise NotImplementedError

    def forgeries(self, push: Seen) -> dict[str, tuple[dict[str, str], bytes]]:
        """A genuine push changed so that it proves nothing: headers and body by what was done."""
        assert self.proof is not None
        headers = {n: v for n, v in push.headers.items() if n not in ("host", "content-length")}
        right = headers.pop(self.proof)
        wrong = right[:-1] + ("0" if right[-1] != "0" else "1")
        return {
            "missing": (headers, push.body),
            "empty": ({**headers, self.proof: ""}, push.body),
            "wrong": ({**headers, self.proof: wrong}, push.body),
            "longer": ({**headers, self.proof: right + "0"}, push.body),
        }

    def post(self, url: str, headers: Mapping[str, str], body: bytes) -> int:
        """As the provider does, through the gate; the status of the answer."""
        target = urlsplit(url.replace(PUBLIC, self.gate, 1))
        connection = HTTPConnection(target.hostname or "", target.port, timeout=30)
        try:
            connection.request("POST", f"{target.path}?{target.query}", body, dict(headers))
            return connection.getresponse().status
        finally:
            connection.close()

    def hide(self) -> None:
        """Everything looks empty, without an error."""
        for name in sorted(self.names()):
            self.remove(name)


class CabinetPeer(Peer):
    def __init__(self) -> None:
        super().__init__()
        self.cabinet = self._stack.enter_context(Cabinet())
        self.proxy.upstream = self.cabinet.url
        self.settings = self.cabinet.settings(api=self.proxy.url)
        self._said: dict[str, int] = {}

    def tokens(self) -> Tokens | None:
        grant = Grant("ann@example.com", ["things", "hooks"], None, "")
        grant.access.add("at-conform")
        grant.refresh.add("rt-conform")
        self.cabinet.authorization.grants.append(grant)
        return Tokens("at-conform", "rt-conform")

    def put(self, name: str, text: str) -> None:
        self.cabinet.shelf.put(self._ids().get(name, f"id of {name}"), text, title=name)

    def remove(self, name: str) -> None:
        self.cabinet.shelf.take(self._ids()[name])

    def rename(self, old: str, new: str) -> None:
        self.cabinet.shelf.rename(self._ids()[old], new)

    def _ids(self) -> dict[str, str]:
        return {thing.title: thing.id for thing in self.cabinet.shelf.things.values()}

    def names(self) -> set[str]:
        return {thing.title for thing in self.cabinet.shelf.things.values()}

    registers = "POST /hooks"
    proof = "x-cabinet-signature"

    def deliver(self) -> None:
        changes = self.cabinet.shelf.feed
        for hook, told in list(self.cabinet.hooks.items()):
            for number in range(self._said.get(hook, len(changes) - 1), len(changes)):
                body = f'{{"news": "{hook} {number}"}}'.encode()
                self.post(told["url"], self.cabinet.signed(hook, body), body)
            self._said[hook] = len(changes)

    def registrations(self) -> set[str]:
        return set(self.cabinet.hooks)

    def admit(self, token: str) -> None:
        grant = Grant("ann@example.com", ["things", "hooks"], None, "")
        grant.access.add(token)
        self.cabinet.authorization.grants.append(grant)

    def banish(self, token: str) -> None:
        for grant in self.cabinet.authorization.grants:
            grant.access.discard(token)

    def hook_secrets(self) -> list[str]:
        return [told["secret"] for told in self.cabinet.hooks.values()]

    def name_of(self, document: dict[str, Any]) -> str:
        return document["title"]

    def revoke(self) -> None:
        self.cabinet.authorization.withdraw()


class GithubPeer(Peer):
    def __init__(self) -> None:
        super().__init__()
        self.github = self._stack.enter_context(FakeGithub())
        self.proxy.upstream = self.github.site.url("")
        self.token = self.github.user("octo")
        self.repository = self.github.repository("octo/docs", {"src/code.c": "int main;"})
        self.settings = ProviderSettings(
            client_id="id",
            client_secret="secret",  # pyright: ignore[reportArgumentType] # pydantic wraps it
            api_url=self.proxy.url,
        )

    def tokens(self) -> Tokens | None:
        return Tokens(self.token)

    def picks(self) -> list[dict[str, Any]]:
        return [{"id": self.repository.id, "name": "octo/docs", "defaultBranch": "main"}]

    def put(self, name: str, text: str) -> None:
        self.repository.commit({self._path(name): text})

    def fill(self, numbers: range) -> None:
        self.repository.commit({f"f{n}.md": f"Tiny {n}." for n in numbers})

    def remove(self, name: str) -> None:
        self.repository.commit({self._path(name): None})

    def rename(self, old: str, new: str) -> None:
        self.repository.move(self._path(old), f"{new}.md")

    def move(self, name: str, folder: str) -> None:
        self.repository.move(self._path(name), f"{folder}/{name}.md")

    def share(self, name: str) -> None:
        self.repository.private = not self.repository.private

    def forget_cursor(self) -> None:
        """The head is thrown away: a forced push to what was before."""
        parents = re.findall(
            rb"(?m)^parent (\w+)", self.repository.objects[self.repository.head][1]
        )
        if parents:
            self.repository.force("main", parents[0].decode())

    def _path(self, name: str) -> str:
        paths = [p for p in self.repository.files() if p.rpartition("/")[2] == f"{name}.md"]
        return paths[0] if paths else f"{name}.md"

    def names(self) -> set[str]:
        paths = [path for path in self.repository.files() if path.endswith(".md")]
        return {path.rpartition("/")[2].removesuffix(".md") for path in paths}

    def name_of(self, document: dict[str, Any]) -> str:
        return document["url"].rsplit("/", 1)[1].removesuffix(".md")

    def revoke(self) -> None:
        self.github.revoke(self.token)

    registers = "POST .*/hooks"
    proof = "x-hub-signature-256"

    def listen(self, gate: str, public: str = PUBLIC) -> None:
        super().listen(gate, public)
        self.github.detours[public] = gate

    def registrations(self) -> set[str]:
        return {str(id) for id in self.repository.hooks}

    def admit(self, token: str) -> None:
        self.github.users[token] = replace(self.github.users[self.token], token=token)

    def banish(self, token: str) -> None:
        self.github.revoke(token)

    def hook_secrets(self) -> list[str]:
        return [hook.secret for hook in self.repository.hooks.values()]

    def lose(self) -> None:
        self.repository.hooks.clear()

    def forgeries(self, push: Seen) -> dict[str, tuple[dict[str, str], bytes]]:
        whole = {n: v for n, v in push.headers.items() if n not in ("host", "content-length")}
        altered = push.body.replace(b'"forced": false', b'"forced": true')
        return {**super().forgeries(push), "altered": (whole, altered)}


class SitePeer(Peer):
    """Pages that the front page links to."""

    public = True

    def __init__(self) -> None:
        super().__init__()
        self.site = self._stack.enter_context(Site())
        self.proxy.upstream = self.site.url("")
        self._pages: dict[str, str] = {}
        self._write()

    def metadata(self) -> dict[str, Any]:
        return {"startUrl": f"{self.proxy.url}/"}

    def put(self, name: str, text: str) -> None:
        self._pages[name] = text
        self.site.write(f"/{name}", text, title=name)
        self._write()

    def remove(self, name: str) -> None:
        del self._pages[name]
        self.site.status(f"/{name}", 410)
        self._write()

    def rename(self, old: str, new: str) -> None:
        text = self._pages.pop(old)
        self.put(new, text)
        self.site.status(f"/{old}", 301, {"Location": f"/{new}"})

    def names(self) -> set[str]:
        return {"", *self._pages}

    def name_of(self, document: dict[str, Any]) -> str:
        return document["url"].rsplit("/", 1)[1]

    def _write(self) -> None:
        links = [f"/{name}" for name in sorted(self._pages)]
        self.site.write("/", "The front page of a small site.", links, title="Front")


@cache
def _moto() -> str:
    """One server for all tests of a process; each peer has a bucket of its own."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    return f"http://{host}:{port}"


class S3Peer(Peer):
    def __init__(self) -> None:
        super().__init__()
        self.proxy.upstream = _moto()
        self.s3: Any = boto3.client(
            "s3",
            endpoint_url=self.proxy.upstream,
            region_name="us-east-1",
            aws_access_key_id="AKIACONFORMANCE",
            aws_secret_access_key="secret/of+conformance",
            config=Config(s3={"addressing_style": "path"}, proxies={}),
        )
        self.bucket = f"bucket-{secrets.token_hex(8)}"
        self.s3.create_bucket(Bucket=self.bucket)

    def metadata(self) -> dict[str, Any]:
        return {
            "accessKeyId": "AKIACONFORMANCE",
            "secretAccessKey": "secret/of+conformance",
            "bucket": self.bucket,
            "region": "us-east-1",
            "endpoint": self.proxy.url,
        }

    def put(self, name: str, text: str) -> None:
        self.s3.put_object(Bucket=self.bucket, Key=self._key(name), Body=text.encode())

    def fill(self, numbers: range) -> None:
        backend: Any = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]  # a request each would take minutes
        for n in numbers:
            backend.put_object(self.bucket, f"docs/f{n}.txt", f"Tiny {n}.".encode())

    def remove(self, name: str) -> None:
        self.s3.delete_object(Bucket=self.bucket, Key=self._key(name))

    def rename(self, old: str, new: str) -> None:
        self._to(old, f"docs/{new}.txt")

    def move(self, name: str, folder: str) -> None:
        self._to(name, f"docs/{folder}/{name}.txt")

    def _to(self, name: str, key: str) -> None:
        before = self._key(name)
        if before != key:
            source = f"{self.bucket}/{before}"
            self.s3.copy_object(Bucket=self.bucket, Key=key, CopySource=source)
            self.s3.delete_object(Bucket=self.bucket, Key=before)

    def _key(self, name: str) -> str:
        found = [key for key in self._keys() if key.rpartition("/")[2] == f"{name}.txt"]
        return found[0] if found else f"docs/{name}.txt"

    def _keys(self) -> list[str]:
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=self.bucket)
        return [entry["Key"] for page in pages for entry in page.get("Contents", [])]

    def names(self) -> set[str]:
        return {key.rpartition("/")[2].removesuffix(".txt") for key in self._keys()}

    def name_of(self, document: dict[str, Any]) -> str:
        return document["url"].rsplit("/", 1)[1].removesuffix(".txt")

    def revoke(self) -> None:
        body = b"<Error><Code>InvalidAccessKeyId</Code><Message>no such key</Message></Error>"
        headers = {"Content-Type": "application/xml"}
        self.proxy.on(".", status=403, body=body, headers=headers, times=None)


class FolderPeer(Peer):
    """Files of a folder; what goes wrong is the folder's own doing, not a network's."""

    public = True

    def __init__(self) -> None:
        super().__init__()
        self.folder = self._stack.enter_context(MountedFolder())
        self.proxy = cast("Proxy", self.folder)
        self.opens = [self.folder.root]

    def metadata(self) -> dict[str, Any]:
        return {"path": str(self.folder.path)}

    def put(self, name: str, text: str) -> None:
        self._file(name).write_text(text)

    def remove(self, name: str) -> None:
        self._file(name).unlink()

    def rename(self, old: str, new: str) -> None:
        before = self._file(old)
        before.rename(before.with_name(f"{new}.txt"))

    def move(self, name: str, folder: str) -> None:
        target = self.folder.real / folder
        target.mkdir(exist_ok=True)
        self._file(name).rename(target / f"{name}.txt")

    def _file(self, name: str) -> Path:
        found = list(self.folder.real.rglob(f"{name}.txt"))
        return found[0] if found else self.folder.real / f"{name}.txt"

    def names(self) -> set[str]:
        return {one.stem for one in self.folder.real.rglob("*.txt")}

    def name_of(self, document: dict[str, Any]) -> str:
        return document["url"].rsplit("/", 1)[1].removesuffix(".txt")


class GmailPeer(Peer):
    """Each thing is a thread, named by its subject."""

    def __init__(self) -> None:
        super().__init__()
        self.gmail = self._stack.enter_context(FakeGmail())
        self._sent = 0
        self.proxy.upstream = self.gmail.url
        # Google revokes elsewhere than its API is.
        other = self._stack.enter_context(Website())
        other.page("/revoke", "{}", mime="application/json")
        self.settings = GmailSettings(
            client_id="id",
            client_secret="secret",  # pyright: ignore[reportArgumentType] # pydantic wraps it
            api_url=self.proxy.url,
            revoke_url=other.url("/revoke"),
        )

    def __exit__(self, *exit: object) -> None:
        super().__exit__(*exit)
        assert self.gmail.violations == []

    def tokens(self) -> Tokens | None:
        return Tokens(GMAIL_TOKEN)

    def put(self, name: str, text: str) -> None:
        thread = self._threads().get(name)
        if thread is None:
            self.gmail.mail(name, text)
            return
        old = [mail.id for mail in self.gmail.of(thread)]
        self.gmail.mail(name, text, thread=thread)
        for id in old:
            self.gmail.delete_mail(id)

    def fill(self, numbers: range) -> None:
        for n in numbers:
            self.gmail.mail(f"f{n}", f"Tiny {n}.")

    def remove(self, name: str) -> None:
        self.gmail.trash(self._threads()[name])

    def rename(self, old: str, new: str) -> None:
        """There is no such thing; a new thread in place of the old one."""
        self.remove(old)
        self.put(new, f"Once called {old}.")

    def names(self) -> set[str]:
        return set(self._threads())

    def _threads(self) -> dict[str, str]:
        return {document.subject: id for id, document in self.gmail.documents().items()}

    def name_of(self, document: dict[str, Any]) -> str:
        return document["title"]

    def revoke(self) -> None:
        self.gmail.scopes.clear()

    account = ("ann", ME)
    registers = "POST .*/watch"
    proof = "authorization"
    topic = "projects/recollect-test/topics/gmail"

    def metadata(self) -> dict[str, Any]:
        return {"pubsubTopic": self.topic} if self.gate else {}

    def pushed(self) -> ProviderSettings:
        keys = self._stack.enter_context(Website())
        keys.page("/certs", json.dumps({"keys": [_public(_key())]}), mime="application/json")
        assert self.settings is not None
        told = {
            "pubsub_audience": AUDIENCE,
            "pubsub_service_account": PUBLISHES,
            "pubsub_certs_url": keys.url("/certs"),
        }
        return self.settings.model_copy(update=told)

    def listen(self, gate: str, public: str = PUBLIC) -> None:
        super().listen(gate, public)
        self.gmail.topics[self.topic] = {PUBLISHER}
        self.gmail.now = datetime.now(UTC)  # watches end by it

    def deliver(self) -> None:
        while self._sent < len(self.gmail.published):
            body = json.dumps(self.gmail.published[self._sent]).encode()
            self._sent += 1
            self.post(f"{PUBLIC}/v3/hooks/gmail", {"Authorization": f"Bearer {_jwt()}"}, body)

    def move(self, name: str, folder: str) -> None:
        self.gmail.tag(self._threads()[name], "STARRED")

    def forget_cursor(self) -> None:
        self.gmail.forget_history()

    def admit(self, token: str) -> None:
        self.gmail.scopes[token] = self.gmail.scopes[GMAIL_TOKEN]

    def banish(self, token: str) -> None:
        del self.gmail.scopes[token]

    def registrations(self) -> set[str]:
        watch = self.gmail.watch
        return set() if watch is None else {watch.expires.isoformat()}

    def forgeries(self, push: Seen) -> dict[str, tuple[dict[str, str], bytes]]:
        other = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        head, claims, _ = _jwt().split(".")
        none = base64.urlsafe_b64encode(b'{"alg": "none", "kid": "one"}').decode().rstrip("=")
        now = int(datetime.now(UTC).timestamp())
        tokens = {
            "altered": f"{head}.{claims[:-4]}AAAA.{_jwt().rpartition('.')[2]}",
            "none": f"{none}.{claims}.",
            "other_key": _jwt(other),
            "expired": _jwt(iat=now - 7200, exp=now - 3600),
            "other_audience": _jwt(aud="https://other.example"),
            "other_issuer": _jwt(iss="https://accounts.google.com.evil.example"),
            "other_email": _jwt(email="push@evil.example"),
        }
        made = {name: ({"authorization": f"Bearer {t}"}, push.body) for name, t in tokens.items()}
        return {**made, "missing": ({}, push.body)}


AUDIENCE = f"{PUBLIC}/v3/hooks/gmail"
PUBLISHES = "push@recollect-test.iam.gserviceaccount.com"


@cache
def _key() -> rsa.RSAPrivateKey:
    """Of who signs the pushes of Pub/Sub."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def _public(key: rsa.RSAPrivateKey) -> dict[str, Any]:
    told: dict[str, Any] = RSAAlgorithm.to_jwk(key.public_key(), as_dict=True)
    return {**told, "kid": "one", "alg": "RS256", "use": "sig"}


def _jwt(key: rsa.RSAPrivateKey | None = None, **changed: Any) -> str:
    now = int(datetime.now(UTC).timestamp())
    right = {"iss": "https://accounts.google.com", "aud": AUDIENCE, "email": PUBLISHES}
    right |= {"email_verified": True, "sub": "1", "iat": now, "exp": now + 3600}
    return jwt.encode({**right, **changed}, key or _key(), "RS256", headers={"kid": "one"})


class OneDrivePeer(Peer):
    def __init__(self) -> None:
        super().__init__()
        self.graph = self._stack.enter_context(FakeGraph())
        self._folders: dict[str, Thing] = {}
        self.proxy.upstream = self.graph.url
        self.graph.url = self.proxy.url  # what its links name
        self.user = self.graph.user("ann")
        self.settings = ProviderSettings(
            client_id="id",
            client_secret="secret",  # pyright: ignore[reportArgumentType] # pydantic wraps it
            api_url=self.proxy.url,
        )

    def tokens(self) -> Tokens | None:
        return Tokens(self.user.token)

    def put(self, name: str, text: str) -> None:
        if name in (things := self._things()):
            self.user.drive.edit(things[name], text)
        else:
            self.user.drive.file(f"{name}.txt", text)

    def fill(self, numbers: range) -> None:
        for n in numbers:
            self.user.drive.file(f"f{n}.txt", f"Tiny {n}.")

    def remove(self, name: str) -> None:
        self.user.drive.delete(self._things()[name])

    def rename(self, old: str, new: str) -> None:
        self.user.drive.rename(self._things()[old], f"{new}.txt")

    def names(self) -> set[str]:
        return set(self._things())

    def _things(self) -> dict[str, Thing]:
        files = self.user.drive.files().values()
        return {thing.name.removesuffix(".txt"): thing for thing in files}

    def name_of(self, document: dict[str, Any]) -> str:
        return document["title"].removesuffix(".txt")

    def revoke(self) -> None:
        self.graph.users.clear()

    registers = "POST .*/subscriptions"

    def listen(self, gate: str, public: str = PUBLIC) -> None:
        super().listen(gate, public)
        self.graph.detours[public] = gate

    def deliver(self) -> None:
        self.graph.notify(self.user.drive)

    def registrations(self) -> set[str]:
        return set(self.graph.subscriptions)

    def move(self, name: str, folder: str) -> None:
        if folder not in self._folders:
            self._folders[folder] = self.user.drive.folder(folder)
        self.user.drive.move(self._things()[name], self._folders[folder])

    def folder_id(self, folder: str) -> str:
        return self._folders[folder].id

    def share(self, name: str) -> None:
        self.user.drive.share(self._things()[name])

    def forget_cursor(self) -> None:
        self.graph.forget()

    def admit(self, token: str) -> None:
        self.graph.users[token] = self.user

    def banish(self, token: str) -> None:
        del self.graph.users[token]

    def hook_secrets(self) -> list[str]:
        return [one.given["clientState"] for one in self.graph.subscriptions.values()]

    def lose(self) -> None:
        for subscription in list(self.graph.subscriptions.values()):
            self.graph.lifecycle(subscription, "subscriptionRemoved")

    def forgeries(self, push: Seen) -> dict[str, tuple[dict[str, str], bytes]]:
        told = json.loads(push.body)
        headers = {"content-type": "application/json"}
        made: dict[str, tuple[dict[str, str], bytes]] = {}
        for name, secret in {"missing": None, "empty": "", "wrong": "x" * 43}.items():
            forged = [{**one, "clientState": secret} for one in told["value"]]
            made[name] = (headers, json.dumps({"value": forged}).encode())
        return made


class NotionPeer(Peer):
    """Pages in one that is shared; a few minutes pass with whatever a user does."""

    def __init__(self) -> None:
        super().__init__()
        self.notion = self._stack.enter_context(FakeNotion())
        self.proxy.upstream = self.notion.url
        self.token = "token-1"
        self.settings = ProviderSettings(
            client_id=self.notion.client[0],
            client_secret=self.notion.client[1],  # pyright: ignore[reportArgumentType] # pydantic wraps it
            api_url=self.proxy.url,
            token_url=f"{self.proxy.url}/v1/oauth/token",
        )

    def tokens(self) -> Tokens | None:
        self.notion.refreshing["refresh-1"] = self.token
        return Tokens(self.token, "refresh-1")

    def put(self, name: str, text: str) -> None:
        blocks = [para(part) for part in text.split("\n\n")]
        page = self._pages().get(name)
        if page is None:
            self.notion.page(name, *blocks)
        else:
            self.notion.write(page, *blocks)
        self.notion.pass_time(minutes=5)

    def fill(self, numbers: range) -> None:
        for n in numbers:
            self.notion.page(f"f{n}", para(f"Tiny {n}."))
        self.notion.pass_time(minutes=5)

    def remove(self, name: str) -> None:
        self.notion.trash(self._pages()[name])
        self.notion.pass_time(minutes=5)

    def rename(self, old: str, new: str) -> None:
        self.notion.rename(self._pages()[old], new)
        self.notion.pass_time(minutes=5)

    def names(self) -> set[str]:
        return set(self._pages())

    def _pages(self) -> dict[str, Page]:
        return {page.title: page for page in self.notion.readable().values()}

    def name_of(self, document: dict[str, Any]) -> str:
        return document["title"]

    def revoke(self) -> None:
        self.notion.tokens.clear()
        self.notion.refreshing.clear()

    account = (WORKSPACE.replace("-", ""), "ann@example.com")
    registers = "by hand"
    proof = "x-notion-signature"

    def listen(self, gate: str, public: str = PUBLIC) -> None:
        super().listen(gate, public)
        self.notion.subscribe(f"{gate}/v3/hooks/notion")

    def move(self, name: str, folder: str) -> None:
        """Below another page, which takes it along to the trash; or out of all of them."""
        page, others = self._pages()[name], self._pages()
        free = [o for o in others.values() if o is not page and page not in [*o.above()]]
        self.notion.move(page, free[len(others) % len(free)] if free and name < "m" else None)
        self.notion.pass_time(minutes=5)

    def forget_cursor(self) -> None:
        self.notion.forget_cursors()

    def admit(self, token: str) -> None:
        self.notion.tokens.add(token)

    def banish(self, token: str) -> None:
        self.notion.tokens.discard(token)

    def hook_secrets(self) -> list[str]:
        return [self.notion.subscription.token] if self.notion.subscription else []

    def registrations(self) -> set[str]:
        held = self.notion.subscription
        return {held.token} if held is not None and held.verified else set()

    def forgeries(self, push: Seen) -> dict[str, tuple[dict[str, str], bytes]]:
        whole = {n: v for n, v in push.headers.items() if n not in ("host", "content-length")}
        altered = push.body.replace(b'"attempt_number": 1', b'"attempt_number": 2')
        return {**super().forgeries(push), "altered": (whole, altered)}


class GoogleDrivePeer(Peer):
    def __init__(self) -> None:
        super().__init__()
        self.drive = self._stack.enter_context(FakeDrive())
        self._folders: dict[str, str] = {}
        self._sent = 0
        self.proxy.upstream = self.drive.url
        # Google revokes elsewhere than its API is.
        other = self._stack.enter_context(Website())
        other.page("/revoke", "{}", mime="application/json")
        self.settings = ProviderSettings(
            client_id="id",
            client_secret="secret",  # pyright: ignore[reportArgumentType] # pydantic wraps it
            api_url=self.proxy.url,
            revoke_url=other.url("/revoke"),
        )

    def __exit__(self, *exit: object) -> None:
        super().__exit__(*exit)
        assert self.drive.violations == []

    def tokens(self) -> Tokens | None:
        return Tokens(TOKEN)

    def put(self, name: str, text: str) -> None:
        if name in (ids := self._ids()):
            self.drive.edit(ids[name], text.encode())
        else:
            self.drive.doc(name, text)

    def fill(self, numbers: range) -> None:
        for n in numbers:
            self.drive.doc(f"f{n}", f"Tiny {n}.")

    def remove(self, name: str) -> None:
        self.drive.trash(self._ids()[name])

    def rename(self, old: str, new: str) -> None:
        self.drive.rename(self._ids()[old], new)

    def _ids(self) -> dict[str, str]:
        return {document.title: id for id, document in self.drive.documents().items()}

    def names(self) -> set[str]:
        return {*self._ids()}

    def name_of(self, document: dict[str, Any]) -> str:
        return document["title"]

    def revoke(self) -> None:
        self.drive.scopes.clear()

    registers = "POST .*/watch"
    proof = "x-goog-channel-token"

    def listen(self, gate: str, public: str = PUBLIC) -> None:
        super().listen(gate, public)
        self.drive.now = datetime.now(UTC)  # channels end by it

    def deliver(self) -> None:
        while self._sent < len(self.drive.sent):
            sent = self.drive.sent[self._sent]
            self._sent += 1
            self.post(sent.address, sent.headers, b"")

    def registrations(self) -> set[str]:
        return set(self.drive.channels)

    def move(self, name: str, folder: str) -> None:
        if folder not in self._folders:
            self._folders[folder] = self.drive.folder(folder)
        self.drive.move(self._ids()[name], self._folders[folder])

    def folder_id(self, folder: str) -> str:
        return self._folders[folder]

    def share(self, name: str) -> None:
        self.drive.share(self._ids()[name])

    def forget_cursor(self) -> None:
        self.drive.forget_tokens()

    def admit(self, token: str) -> None:
        self.drive.scopes[token] = self.drive.scopes[TOKEN]

    def banish(self, token: str) -> None:
        del self.drive.scopes[token]

    def hook_secrets(self) -> list[str]:
        return [channel.token for channel in self.drive.channels.values()]


PEERS: dict[str, Callable[[], Peer]] = {
    "cabinet": CabinetPeer,
    "folder": FolderPeer,
    "github": GithubPeer,
    "gmail": GmailPeer,
    "google-drive": GoogleDrivePeer,
    "notion": NotionPeer,
    "onedrive": OneDrivePeer,
    "s3": S3Peer,
    "web-crawler": SitePeer,
}
