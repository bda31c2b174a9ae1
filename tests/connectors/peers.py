"""Providers as the conformance suite sees them: a user's hands, and a fault proxy in between.

A peer is named in `PEERS` by its provider; a new connector without one fails the suite.
"""

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from typing import Any, Self

import boto3
from botocore.config import Config
from moto.server import ThreadedMotoServer

from recollect.config import ProviderSettings
from recollect.oauth import Tokens
from tests.fakes.authorization import Grant
from tests.fakes.cabinet import Cabinet
from tests.fakes.github import FakeGithub
from tests.fakes.gmail import TOKEN as GMAIL_TOKEN
from tests.fakes.gmail import FakeGmail
from tests.fakes.google_drive import TOKEN, FakeDrive
from tests.fakes.graph import FakeGraph, Thing
from tests.fakes.notion import FakeNotion, Page, para
from tests.fakes.proxy import Proxy
from tests.fakes.site import Site


class Peer(ABC):
    """Things have short names (`a`, `b1`) and texts; `names` tells what is there."""

    settings: ProviderSettings | None = None
    """of the connection's provider"""
    public = False
    """whether it needs no account"""

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

    @abstractmethod
    def put(self, name: str, text: str) -> None:
        """Make it, or edit it."""

    @abstractmethod
    def remove(self, name: str) -> None: ...

    @abstractmethod
    def rename(self, old: str, new: str) -> None: ...

    @abstractmethod
    def names(self) -> set[str]: ...

    @abstractmethod
    def name_of(self, document: dict[str, Any]) -> str:
        """Which thing a document is of, by what the API shows."""

    def revoke(self) -> None:
        """The authorization ends."""
        raise NotImplementedError

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
        self.repository.commit({f"{name}.md": text})

    def remove(self, name: str) -> None:
        self.repository.commit({f"{name}.md": None})

    def rename(self, old: str, new: str) -> None:
        self.repository.move(f"{old}.md", f"{new}.md")

    def names(self) -> set[str]:
        return {path.removesuffix(".md") for path in self.repository.files() if ".md" in path}

    def name_of(self, document: dict[str, Any]) -> str:
        return document["url"].rsplit("/", 1)[1].removesuffix(".md")

    def revoke(self) -> None:
        self.github.revoke(self.token)


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
        self.s3.put_object(Bucket=self.bucket, Key=f"docs/{name}.txt", Body=text.encode())

    def remove(self, name: str) -> None:
        self.s3.delete_object(Bucket=self.bucket, Key=f"docs/{name}.txt")

    def rename(self, old: str, new: str) -> None:
        source = f"{self.bucket}/docs/{old}.txt"
        self.s3.copy_object(Bucket=self.bucket, Key=f"docs/{new}.txt", CopySource=source)
        self.remove(old)

    def names(self) -> set[str]:
        listed = self.s3.list_objects_v2(Bucket=self.bucket).get("Contents", [])
        return {entry["Key"].removeprefix("docs/").removesuffix(".txt") for entry in listed}

    def name_of(self, document: dict[str, Any]) -> str:
        return document["url"].rsplit("/", 1)[1].removesuffix(".txt")

    def revoke(self) -> None:
        body = b"<Error><Code>InvalidAccessKeyId</Code><Message>no such key</Message></Error>"
        headers = {"Content-Type": "application/xml"}
        self.proxy.on(".", status=403, body=body, headers=headers, times=None)


class GmailPeer(Peer):
    """Each thing is a thread, named by its subject."""

    def __init__(self) -> None:
        super().__init__()
        self.gmail = self._stack.enter_context(FakeGmail())
        self.proxy.upstream = self.gmail.url
        self.settings = ProviderSettings(
            client_id="id",
            client_secret="secret",  # pyright: ignore[reportArgumentType] # pydantic wraps it
            api_url=self.proxy.url,
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


class OneDrivePeer(Peer):
    def __init__(self) -> None:
        super().__init__()
        self.graph = self._stack.enter_context(FakeGraph())
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


class GoogleDrivePeer(Peer):
    def __init__(self) -> None:
        super().__init__()
        self.drive = self._stack.enter_context(FakeDrive())
        self.proxy.upstream = self.drive.url
        self.settings = ProviderSettings(
            client_id="id",
            client_secret="secret",  # pyright: ignore[reportArgumentType] # pydantic wraps it
            api_url=self.proxy.url,
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


PEERS: dict[str, Callable[[], Peer]] = {
    "cabinet": CabinetPeer,
    "github": GithubPeer,
    "gmail": GmailPeer,
    "google-drive": GoogleDrivePeer,
    "notion": NotionPeer,
    "onedrive": OneDrivePeer,
    "s3": S3Peer,
    "web-crawler": SitePeer,
}
