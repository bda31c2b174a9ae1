"""The GitHub connector against a stateful fake with real git objects, and against `emulate`."""

import base64
import hashlib
import hmac
import json
import random
import re
import subprocess
import threading
import time
from collections.abc import Callable, Generator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import httpx
import pytest
from jsonschema import Draft7Validator

from recollect.connectors import api
from recollect.connectors.base import Change, Checkpoint, Item, Listed, Trouble, Verdict
from recollect.connectors.github import Github
from recollect.connectors.oauth import Tokens
from recollect.connectors.pushes import Push, Registration
from recollect.errors import (
    BadRequestError,
    NotFoundError,
    Permanent,
    Reauthorize,
    Transient,
)
from recollect.extract import Sandbox
from recollect.fetch import Endpoint, EndpointAnswer, Fetcher
from recollect.model import Blob
from tests.connectors.memory import ID, MemorySource, Token
from tests.fakes.emulate import behind_proxy, installed
from tests.fakes.github import LINK, MODULE, FakeGithub, Repository
from tests.fakes.proxy import Proxy
from tests.fakes.website import Exchange, Request, Website, answer

CONNECTOR = Github()
Connect = Callable[..., MemorySource]


@pytest.fixture(scope="module")
def sandbox() -> Generator[Sandbox]:
    with Sandbox(workers=1) as made:
        yield made


@pytest.fixture(scope="module")
def fetcher() -> Generator[Fetcher]:
    with Fetcher(user_agent="RecollectBot/test") as made:
        yield made


@pytest.fixture
def github() -> Generator[FakeGithub]:
    with FakeGithub() as made:
        yield made


@pytest.fixture
def token(github: FakeGithub) -> str:
    return github.user("octo")


@pytest.fixture
def connect(github: FakeGithub, token: str, fetcher: Fetcher, sandbox: Sandbox) -> Connect:
    """A connection of `octo` with these repositories picked."""

    def connect(*picked: Repository, **metadata: Any) -> MemorySource:
        return MemorySource(
            connector=CONNECTOR,
            fetcher=fetcher,
            sandbox=sandbox,
            metadata=CONNECTOR.configure(metadata, [pick(each) for each in picked]),
            api_url=github.url,
            access=Token(token),
        )

    return connect


def pick(repository: Repository) -> dict[str, Any]:
    branch = repository.default_branch
    return {"id": repository.id, "name": repository.name, "defaultBranch": branch}


def local(source: MemorySource) -> dict[str, str]:
    """Id → version of what the connection has as documents."""
    return {id: item.version for id, item in source.items.items()}


def remote(*repositories: Repository) -> dict[str, str]:
    """The same as it should be."""
    wanted = re.compile(r"\.(md|mdx|markdown|txt|rst|adoc|org)$", re.IGNORECASE)
    return {
        f"{repository.id}:{path}": sha
        for repository in repositories
        for path, sha in repository.files().items()
        if wanted.search(path)
    }


def only(changes: list[Change], kind: type[Any]) -> list[Any]:
    return [change for change in changes if isinstance(change, kind)]


# --- listing -----------------------------------------------------------------------------------


def test_documentation_files_are_listed_and_nothing_else(github: FakeGithub, connect: Connect):
    files = ["README.md", "a.MDX", "docs/b.markdown", "docs/c/d.txt", "e.rst", "f.AdOc", "g.org"]
    docs = github.repository("octo/docs", {path: f"# {path}" for path in files})
    docs.commit({"main.py": "1", "md": "x", "x.md.gz": "x", "notes.md/code.c": "x"})
    docs.commit({"link.md": "README.md"}, mode=LINK)
    docs.commit({"module.md": ""}, mode=MODULE)
    source = connect(docs)

    source.sync()

    assert sorted(item.title or "" for item in source.items.values()) == sorted(files)
    assert local(source) == remote(docs)


def test_an_item_tells_where_it_stands(github: FakeGithub, connect: Connect):
    docs = github.repository("octo/docs")
    docs.default_branch = "release/2"
    docs.commit({"docs/über uns #1.md": "# Hi"})
    source = connect(docs)

    source.sync()

    [item] = source.items.values()
    assert item.id == f"{docs.id}:docs/über uns #1.md"
    assert item.version == hashlib.sha1(b"blob 4\0# Hi").hexdigest()
    assert item.title == "docs/über uns #1.md"
    assert item.url == (f"{github.url}/octo/docs/blob/release/2/docs/%C3%BCber%20uns%20%231.md")
    assert item.kind == "github_markdown"
    assert item.branch == str(docs.id)
    assert item.metadata == {
        "repository": "octo/docs",
        "path": "docs/über uns #1.md",
        "branch": "release/2",
    }


def test_what_has_not_changed_costs_nothing_and_is_not_said(github: FakeGithub, connect: Connect):
    docs = github.repository("octo/docs", {"a.md": "1"})
    more = github.repository("octo/more", {"b.md": "1"})
    source = connect(docs, more)
    source.sync()
    budget = github.budget

    said = source.sync()

    assert [type(change) for change in said] == [Checkpoint]
    assert github.budget == budget


def test_a_push_brings_what_it_changed(github: FakeGithub, connect: Connect):
    docs = github.repository("octo/docs", {"a.md": "1", "b.md": "2", "c/d.md": "3"})
    other = github.repository("octo/other", {"a.md": "1"})
    source = connect(docs, other)
    source.sync()
    before = local(source)
    docs.commit({"a.md": "one", "b.md": None, "new/e.md": "4"})

    said = source.sync()

    assert local(source) == remote(docs, other)
    assert local(source)[f"{docs.id}:c/d.md"] == before[f"{docs.id}:c/d.md"]
    assert {item.branch for item in only(said, Item)} == {str(docs.id)}


def test_a_rename_keeps_the_document(github: FakeGithub, connect: Connect):
    docs = github.repository("octo/docs", {"old/a.md": "same", "old/b.md": "same", "c.md": "3"})
    source = connect(docs)
    source.sync()
    docs.move("old", "new")

    said = source.sync()

    former = {item.title: item.formerly for item in only(said, Item)}
    assert former == {
        "new/a.md": f"{docs.id}:old/a.md",
        "new/b.md": f"{docs.id}:old/b.md",
        "c.md": None,
    }
    assert local(source) == remote(docs)


def test_a_copy_is_a_document_of_its_own(github: FakeGithub, connect: Connect):
    docs = github.repository("octo/docs", {"a.md": "same"})
    source = connect(docs)
    source.sync()
    docs.commit({"b.md": "same"})

    said = source.sync()

    assert [item.formerly for item in only(said, Item)] == [None, None]
    assert local(source) == remote(docs)


def test_no_former_id_serves_twice(github: FakeGithub, connect: Connect):
    docs = github.repository("octo/docs", {"a.md": "same", "x/b.md": "same"})
    source = connect(docs)
    source.sync()
    docs.commit({"a.md": None, "x/b.md": None, "y/b.md": "same", "c.md": "same", "d.md": "same"})

    said = source.sync()

    former = {item.title: item.formerly for item in only(said, Item)}
    assert former == {"y/b.md": f"{docs.id}:x/b.md", "c.md": f"{docs.id}:a.md", "d.md": None}
    assert local(source) == remote(docs)


def test_a_forced_push_is_like_any_other(github: FakeGithub, connect: Connect):
    docs = github.repository("octo/docs", {"a.md": "1", "b.md": "1"})
    first = docs.head
    docs.commit({"a.md": "2", "b.md": None, "c.md": "1"})
    source = connect(docs)
    source.sync()
    docs.force("main", first)

    source.sync()

    assert local(source) == remote(docs)
    assert {id.partition(":")[2] for id in local(source)} == {"a.md", "b.md"}


@pytest.mark.parametrize("most", [1, 3, 10])
def test_a_truncated_tree_is_walked(github: FakeGithub, connect: Connect, most: int):
    paths = ["a.md", "b/c.md", "b/d/e.md", "b/d/f.md", "g/h/i/j.md", "g/k.py", "l/m.md", "z.md"]
    docs = github.repository("octo/docs", {path: path for path in paths})
    source = connect(docs)
    github.most_entries = most

    source.sync()

    assert local(source) == remote(docs)


def test_a_folder_that_cannot_be_listed_whole_deletes_nothing(github: FakeGithub, connect: Connect):
    docs = github.repository("octo/docs", {f"a/{n}.md": "1" for n in range(5)})
    other = github.repository("octo/other", {"a.md": "1"})
    source = connect(docs, other)
    source.sync()
    before = remote(docs)
    docs.commit({"a/1.md": None})
    other.commit({"a.md": "2"})
    github.most_entries = github.most_in_folder = 3

    [trouble] = only(source.sync(), Trouble)

    assert (trouble.code, trouble.branch) == ("too_large", str(docs.id))
    assert local(source) == before | remote(other)


def test_ten_thousand_files_are_said_with_checkpoints_in_between(
    github: FakeGithub, connect: Connect
):
    docs = github.repository("octo/docs", {f"{n % 100}/{n}.md": str(n) for n in range(10_000)})
    source = connect(docs)

    said = source.sync()

    gaps = [0]
    for change in said:
        gaps = [*gaps, 0] if isinstance(change, Checkpoint) else [*gaps[:-1], gaps[-1] + 1]
    assert len(source.items) == 10_000
    assert max(gaps) <= 500
    assert len(github.calls("/git/trees/")) == 1
    assert len(json.dumps(source.cursor)) < 1000


def test_a_repository_without_files_is_empty_and_not_broken(github: FakeGithub, connect: Connect):
    docs = github.repository("octo/docs", {"a.md": "1"})
    source = connect(docs)
    source.sync()
    docs.commit({"a.md": None})

    said = source.sync()

    assert only(said, Trouble) == []
    assert source.items == {}


def test_a_repository_without_commits_is_looked_at_again(github: FakeGithub, connect: Connect):
    docs = github.repository("octo/docs")
    source = connect(docs)

    [verdict] = only(source.sync(), Verdict)
    docs.commit({"a.md": "1"})
    source.sync()

    assert (verdict.kind, verdict.failed) == ("empty_repository", False)
    assert "octo/docs is empty" in verdict.detail
    assert source.rows.keys() == local(source).keys() == remote(docs).keys()


def test_a_renamed_repository_keeps_its_documents(github: FakeGithub, connect: Connect):
    docs = github.repository("octo/docs", {"a.md": "1", "b.md": "2"})
    source = connect(docs)
    source.sync()
    github.rename(docs, "acme/handbook")
    docs.readers.add("octo")

    said = source.sync()

    assert local(source) == remote(docs)
    assert [item.formerly for item in only(said, Item)] == [None, None]
    for item in source.items.values():
        assert item.metadata["repository"] == "acme/handbook"
        assert "/acme/handbook/blob/" in (item.url or "")


def test_a_name_that_is_anothers_now_misleads_nobody(github: FakeGithub, connect: Connect):
    docs = github.repository("octo/docs", {"a.md": "1"})
    source = connect(docs)
    source.sync()
    github.rename(docs, "octo/old-docs")
    github.repository("octo/docs", {"evil.md": "not picked"})

    source.sync()

    assert local(source) == remote(docs)


def test_the_default_branch_is_followed(github: FakeGithub, connect: Connect):
    docs = github.repository("octo/docs", {"a.md": "1"})
    source = connect(docs)
    source.sync()
    docs.rename_branch("main", "trunk")
    source.sync()
    renamed = {item.metadata["branch"] for item in source.items.values()}
    docs.commit({"b.md": "2"}, branch="next")
    docs.default_branch = "next"

    source.sync()

    assert renamed == {"trunk"}
    assert local(source) == remote(docs)
    assert [item.title for item in source.items.values()] == ["b.md"]


def test_a_default_branch_that_is_not_there_deletes_nothing(github: FakeGithub, connect: Connect):
    docs = github.repository("octo/docs", {"a.md": "1"})
    source = connect(docs)
    source.sync()
    before = local(source)
    docs.default_branch = "gone"

    [trouble] = only(source.sync(), Trouble)

    assert trouble.code == "no_branch"
    assert "default branch" in trouble.message
    assert local(source) == before


def test_a_repository_that_is_lost_goes_when_another_sync_finds_the_same(
    github: FakeGithub, fetcher: Fetcher, sandbox: Sandbox, token: str
):
    docs = github.repository("acme/docs", {"a.md": "1"})
    docs.readers.add("octo")
    other = github.repository("octo/other", {"a.md": "1"})
    metadata = CONNECTOR.configure({}, [pick(docs), pick(other)])
    source = CarefulSource(
        CONNECTOR, fetcher, sandbox, metadata, api_url=github.url, access=Token(token)
    )
    source.sync()
    before = local(source)
    docs.readers.clear()
    other.commit({"b.md": "2"})

    [trouble] = only(source.sync(), Trouble)
    held = local(source)
    source.sync()
    without = local(source)
    [still] = only(source.sync(), Trouble)
    docs.readers.add("octo")
    docs.commit({"c.md": "3"})
    source.sync()

    assert (trouble.code, trouble.branch) == ("no_access", str(docs.id))
    assert "acme/docs" in trouble.message
    assert held == before | remote(other)
    assert without == remote(other)
    assert still == trouble
    assert local(source) == remote(docs, other)


def test_a_repository_that_comes_back_between_two_syncs_keeps_its_documents(
    github: FakeGithub, fetcher: Fetcher, sandbox: Sandbox, token: str
):
    docs = github.repository("acme/docs", {"a.md": "1"})
    docs.readers.add("octo")
    metadata = CONNECTOR.configure({}, [pick(docs)])
    source = CarefulSource(
        CONNECTOR, fetcher, sandbox, metadata, api_url=github.url, access=Token(token)
    )
    source.sync()
    docs.readers.clear()
    source.sync()
    docs.readers.add("octo")

    said = source.sync()

    assert [one.id for one in only(said, Item)] == [f"{docs.id}:a.md"]
    assert local(source) == remote(docs)


def test_a_token_that_may_read_no_private_repository_any_more_deletes_nothing(
    github: FakeGithub, connect: Connect, token: str
):
    docs = github.repository("octo/docs", {"a.md": "1"})
    source = connect(docs)
    source.sync()
    github.users[token].scopes = {"user:email"}

    source.sync()
    [trouble] = only(source.sync(), Trouble)

    assert trouble.code == "no_permission"
    assert "lacks repo: authorize the connection again" in trouble.message
    assert local(source) == remote(docs)


def test_what_stands_behind_many_broken_repositories_is_read_by_the_next_sync(
    github: FakeGithub, connect: Connect, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(api, "MOST_FAILURES", 2)
    monkeypatch.setattr(api, "TRIES", 1)
    broken = [github.repository(f"octo/broken{n}", {"a.md": "1"}) for n in range(4)]
    for one in broken:
        one.broken = True
    docs = github.repository("octo/docs", {"a.md": "2"})
    source = connect(*broken, docs)

    for _ in range(3):
        with pytest.raises(Transient):
            source.sync()
    found = local(source)
    for one in broken:
        one.broken = False
    source.sync()

    assert found == remote(docs)
    assert local(source) == remote(*broken, docs)


@pytest.mark.parametrize(("attribute", "code"), [("blocked", "http_451"), ("disabled", "disabled")])
def test_a_repository_that_github_closed_keeps_its_documents(
    github: FakeGithub, connect: Connect, attribute: str, code: str
):
    docs = github.repository("octo/docs", {"a.md": "1"})
    source = connect(docs)
    source.sync()
    before = local(source)
    setattr(docs, attribute, True)

    [trouble] = only(source.sync(), Trouble)

    assert trouble.code == code
    assert local(source) == before


def test_an_archived_repository_is_read_like_any_other(github: FakeGithub, connect: Connect):
    docs = github.repository("octo/docs", {"a.md": "1"})
    docs.archived = True
    source = connect(docs)

    source.sync()

    assert local(source) == remote(docs)


def test_a_dead_token_ends_the_sync(github: FakeGithub, connect: Connect, token: str):
    docs = github.repository("octo/docs", {"a.md": "1"})
    source = connect(docs)
    source.sync()
    before = local(source)
    github.revoke(token)

    with pytest.raises(Reauthorize):
        source.sync()

    assert local(source) == before


def test_a_repository_that_is_not_found_may_be_a_dead_token(
    github: FakeGithub, connect: Connect, token: str
):
    docs = github.repository("octo/docs", {"a.md": "1"})
    source = connect(docs)
    source.sync()
    before = local(source)
    github.refuse(404, times=2)
    github.revoke(token)

    with pytest.raises(Reauthorize):
        source.sync()

    assert local(source) == before


def test_one_repository_that_fails_does_not_stop_the_others(github: FakeGithub, connect: Connect):
    docs = [github.repository(f"octo/{name}", {"a.md": "1"}) for name in "abc"]
    docs[0].broken = True
    source = connect(*docs)

    [trouble] = only(source.sync(), Trouble)

    assert (trouble.code, trouble.branch) == ("provider_unavailable", str(docs[0].id))
    assert local(source) == remote(docs[1], docs[2])


def test_repositories_that_fail_side_by_side_do_not_stop_the_others(
    github: FakeGithub, connect: Connect
):
    docs = [github.repository(f"octo/r{n}", {"a.md": "1"}) for n in range(6)]
    for each in docs[:5]:
        each.broken = True
    source = connect(*docs)

    troubles = only(source.sync(), Trouble)

    assert [trouble.branch for trouble in troubles] == [str(each.id) for each in docs[:5]]
    assert local(source) == remote(docs[5])


def test_if_all_fails_it_is_github(github: FakeGithub, connect: Connect):
    docs = [github.repository(f"octo/r{n}", {"a.md": "1"}) for n in range(20)]
    for each in docs:
        each.broken = True

    for picked in (docs[:1], docs):
        with pytest.raises(Transient) as caught:
            connect(*picked).sync()
        assert caught.value.code == "provider_unavailable"
    github.forget()
    github.refuse(503, times=99)
    with pytest.raises(Transient) as caught:
        connect(*docs).sync()
    assert caught.value.code == "provider_unavailable"
    assert len(github.calls()) == 12


def test_documents_of_repositories_that_are_not_picked_any_more_stay(
    github: FakeGithub, connect: Connect
):
    docs = github.repository("octo/docs", {"a.md": "1"})
    other = github.repository("octo/other", {"a.md": "1"})
    source = connect(docs, other)
    source.sync()
    docs.commit({"b.md": "2"})
    before = local(source)
    source.metadata = CONNECTOR.configure(source.metadata, [pick(other)])
    other.commit({"c.md": "3"})

    source.sync()
    assert local(source) == before | remote(other)

    source.metadata = CONNECTOR.configure(source.metadata, [pick(other), pick(docs)])
    source.sync()
    assert local(source) == remote(docs, other)


def test_nothing_picked_is_nothing_to_do(github: FakeGithub, connect: Connect):
    assert [type(change) for change in connect().sync()] == [Checkpoint]
    assert github.calls() == []


def test_an_address_of_another_host_is_not_followed(github: FakeGithub, connect: Connect):
    docs = github.repository("octo/docs", {"a.md": "1"})
    with Website() as evil:
        github.refuse(301, Location=evil.url("/repos/octo/docs"))

        with pytest.raises(Transient, match="a redirect to") as caught:
            connect(docs).sync()

        assert caught.value.code == "provider_unavailable"
        assert evil.requests == []


def test_redirects_in_a_circle_end(github: FakeGithub, connect: Connect):
    docs = github.repository("octo/docs", {"a.md": "1"})
    github.refuse(301, times=9, Location=f"{github.url}/repos/octo/docs")

    [trouble] = only(connect(docs).sync(), Trouble)

    assert trouble.code == "bad_answer"


@pytest.mark.parametrize("after", [0, 1, 2], ids=["repository", "branch", "tree"])
def test_an_answer_without_content_is_no_empty_repository(
    github: FakeGithub, connect: Connect, after: int
):
    docs = github.repository("octo/docs", {"a.md": "1"})
    source = connect(docs)
    source.sync()
    before = local(source)
    docs.commit({"b.md": "2"})
    with Proxy(github.url) as proxy:
        odd = connect(docs)
        odd.api_url, odd.items, odd.rows = proxy.url, source.items, source.rows
        proxy.on("^GET", after=after, status=200, body=b"{}")

        with pytest.raises(Transient) as caught:
            odd.sync()

    assert caught.value.code == "provider_unavailable"
    assert local(odd) == before


def test_what_cannot_be_a_document_says_why(github: FakeGithub, connect: Connect):
    long = "x" * 2000 + ".md"
    docs = github.repository("octo/docs", {"huge.md": "huge", long: "1", "a.md": "1"})
    docs.sizes[docs.files()["huge.md"]] = 2_000_000_000
    source = connect(docs)

    said = source.sync()

    assert sorted(verdict.kind for verdict in only(said, Verdict)) == ["bad_name", "too_large"]
    assert all(len(id) < 1500 for id in source.rows)
    assert [item.title for item in source.items.values()] == ["a.md"]


def test_a_file_whose_size_is_not_told_is_a_document(github: FakeGithub, connect: Connect):
    docs = github.repository("octo/docs", {"a.md": "1"})
    docs.sizes[docs.files()["a.md"]] = None
    source = connect(docs)

    source.sync()

    assert local(source) == remote(docs)


def test_a_file_that_is_emptied_is_no_document_until_it_has_content(
    github: FakeGithub, connect: Connect
):
    docs = github.repository("octo/docs", {"a.md": "1", "b.md": "2", "c.txt": ""})
    source = connect(docs)
    source.sync()
    assert [item.title for item in source.items.values()] == ["a.md", "b.md"]
    docs.commit({"a.md": ""})

    [verdict, other] = only(source.sync(), Verdict)

    assert (verdict.kind, verdict.title, other.title) == ("empty", "a.md", "c.txt")
    assert [item.title for item in source.items.values()] == ["b.md"]
    docs.commit({"a.md": "3", "c.txt": None})
    source.sync()
    assert local(source) == remote(docs)


def test_names_that_are_no_text_are_skipped(github: FakeGithub, connect: Connect):
    docs = github.repository("octo/docs", {"a.md": "1", "b.md": "2"})
    with Proxy(github.url) as proxy:
        source = connect(docs)
        source.api_url = proxy.url
        proxy.on("/git/trees/", alter=lambda body: body.replace(b'"b.md"', b'"\\ud800.md"'))

        said = source.sync()

    assert [verdict.kind for verdict in only(said, Verdict)] == ["bad_name"]
    assert [item.title for item in source.items.values()] == ["a.md"]
    json.dumps([list(source.rows), list(source.items)]).encode()
    for id in source.rows:
        id.encode()


@pytest.mark.parametrize("field", ["path", "mode", "type"])
def test_an_entry_that_lacks_something_ends_the_sync_and_takes_nothing_away(
    github: FakeGithub, connect: Connect, field: str
):
    docs = github.repository("octo/docs", {"a.md": "1", "b.md": "2"})
    with Proxy(github.url) as proxy:
        source = connect(docs)
        source.api_url = proxy.url
        source.sync()
        docs.commit({"c.md": "3"})
        lacks = f'"other {field}":'.encode()
        proxy.on("/git/trees/", alter=lambda body: body.replace(f'"{field}":'.encode(), lacks, 1))

        with pytest.raises(Transient, match=f"without '{field}'"):
            source.sync()

        assert {item.title for item in source.items.values()} == {"a.md", "b.md"}
        source.sync()
    assert local(source) == remote(docs)


class CarefulSource(MemorySource):
    """Holds each listing that lacks something until the next one lacks it, too."""

    def _apply(self, change: Change, missing_before: set[str]) -> None:
        held = self.known_folders
        if isinstance(change, Listed) and change.branch not in held:
            lost = {id for id, row in self.rows.items() if row.branch == change.branch}
            if lost - self._seen[change.branch]:
                held[change.branch] = None  # pyright: ignore[reportArgumentType]
                return
        super()._apply(change, missing_before)


def test_a_listing_that_is_held_is_said_again(
    github: FakeGithub, fetcher: Fetcher, sandbox: Sandbox, token: str
):
    docs = github.repository("octo/docs", {"a.md": "1", "b.md": "1"})
    metadata = CONNECTOR.configure({}, [pick(docs)])
    source = CarefulSource(
        CONNECTOR, fetcher, sandbox, metadata, api_url=github.url, access=Token(token)
    )
    source.sync()
    docs.commit({"a.md": None})
    source.sync()
    held = local(source)

    source.sync()
    last = source.sync()

    assert len(held) == 2
    assert local(source) == remote(docs)
    assert [type(change) for change in last] == [Checkpoint]


@pytest.mark.parametrize("count", range(1, 8))
def test_a_sync_that_was_torn_leaves_nothing_of_a_head_that_is_gone(
    github: FakeGithub, connect: Connect, count: int
):
    docs = github.repository("octo/docs", {"a.md": "1", "b.md": "1", "c.md": "1"})
    first = docs.head
    source = connect(docs)
    source.sync()
    docs.commit({"a.md": "2", "b.md": None, "d.md": "1"})
    torn = CONNECTOR.changes(source, source.cursor)
    for _ in range(count):
        source._apply(next(torn), set())
    del torn
    docs.force("main", first)

    source.sync()

    assert local(source) == remote(docs)


@pytest.mark.parametrize(
    "cursor",
    [
        {},
        {"repos": None},
        {"repos": {"1": None}},
        {"repos": {"1": {"name": "octo/docs", "head": "0" * 40}}},
        {"link": "https://example.com"},
    ],
    ids=["empty", "none", "entry", "fields", "other"],
)
def test_a_cursor_of_another_shape_counts_as_none(
    github: FakeGithub, connect: Connect, cursor: Mapping[str, Any]
):
    docs = github.repository("octo/docs", {"a.md": "1"})
    source = connect(docs)
    source.cursor = json.loads(json.dumps(cursor).replace('"1"', f'"{docs.id}"'))

    source.sync()

    assert local(source) == remote(docs)


def test_an_authorization_for_what_is_public_reads_it(
    github: FakeGithub, fetcher: Fetcher, sandbox: Sandbox
):
    docs = github.repository("acme/docs", {"a.md": "1"}, private=False)
    token = github.user("eve", scopes="admin:repo_hook,user:email")
    metadata = CONNECTOR.configure({"visibility": "public"}, [pick(docs)])
    source = MemorySource(
        CONNECTOR, fetcher, sandbox, metadata, api_url=github.url, access=Token(token)
    )

    source.sync()

    assert local(source) == remote(docs)


def test_a_server_of_an_enterprise_has_its_api_below_a_path(fetcher: Fetcher, sandbox: Sandbox):
    with FakeGithub("/api/v3") as github:
        token = github.user("octo")
        docs = github.repository("octo/docs", {"a.md": "1"})
        metadata = CONNECTOR.configure({}, [pick(docs)])
        source = MemorySource(
            CONNECTOR, fetcher, sandbox, metadata, api_url=github.url, access=Token(token)
        )
        source.sync()
        github.rename(docs, "octo/handbook")

        source.sync()

        assert local(source) == remote(docs)
        assert source.items[f"{docs.id}:a.md"].metadata["repository"] == "octo/handbook"
        assert content(source, "a.md").data == b"1"


# --- fetching ----------------------------------------------------------------------------------


def content(source: MemorySource, title: str) -> Blob:
    [row] = [row for row in source.rows.values() if row.title == title]
    found = CONNECTOR.fetch(source, row)
    assert isinstance(found, Blob)
    return found


@pytest.mark.parametrize("raw", [True, False], ids=["raw", "json"])
def test_content_comes_byte_by_byte(github: FakeGithub, connect: Connect, raw: bool):
    files = {"a.md": b"\xff\x00 caf\xe9\r\n", "docs/big.TXT": b"x" * 3_000_000, "e.rst": b"\n"}
    docs = github.repository("octo/docs", files)
    github.knows_raw = raw
    source = connect(docs)
    source.sync()

    blobs = [content(source, path) for path in files]

    assert [blob.data for blob in blobs] == list(files.values())
    assert [blob.name for blob in blobs] == ["a.md", "big.TXT", "e.rst"]
    assert [blob.mime for blob in blobs] == ["text/markdown", "text/plain", "text/plain"]


@pytest.mark.parametrize("ending", ["md", "mdx", "markdown", "txt", "rst", "adoc", "org"])
def test_every_kind_can_be_read(github: FakeGithub, connect: Connect, ending: str):
    docs = github.repository("octo/docs", {f"guide.{ending}": "Setup\n=====\n\n- Install it"})
    source = connect(docs)
    source.sync()

    read = source.read(content(source, f"guide.{ending}"))

    assert "- Install it" in read.text


def test_a_pointer_to_large_file_storage_is_refused(github: FakeGithub, connect: Connect):
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
    docs = github.repository("octo/docs", {"a.md": pointer, "b.md": pointer + "and so on" * 200})
    source = connect(docs)
    source.sync()

    with pytest.raises(Permanent) as caught:
        content(source, "a.md")

    assert caught.value.code == "lfs_pointer"
    assert content(source, "b.md").data.endswith(b"and so on")


def test_content_is_found_under_a_new_name_of_the_repository(github: FakeGithub, connect: Connect):
    docs = github.repository("octo/docs", {"a.md": "1"})
    source = connect(docs)
    source.sync()
    github.rename(docs, "octo/handbook")

    assert content(source, "a.md").data == b"1"


def test_content_that_vanished_is_told_from_access_that_was_lost(
    github: FakeGithub, connect: Connect
):
    docs = github.repository("acme/docs", {"a.md": "1"})
    docs.readers.add("octo")
    source = connect(docs)
    source.sync()
    blob = docs.objects.pop(docs.files()["a.md"])
    with pytest.raises(NotFoundError):
        content(source, "a.md")
    docs.put(*blob)
    docs.readers.clear()

    with pytest.raises(Permanent) as caught:
        content(source, "a.md")

    assert caught.value.code == "no_access"
    assert "acme/docs" in str(caught.value)


@pytest.mark.parametrize("body", [b"<html>please sign in</html>", b"{}", b'{"content": "QQ=="}'])
def test_other_bytes_than_asked_for_are_not_taken(
    github: FakeGithub, connect: Connect, body: bytes
):
    docs = github.repository("octo/docs", {"a.md": "1"})
    source = connect(docs)
    source.sync()
    with Proxy(github.url) as proxy:
        other = connect(docs)
        other.api_url, other.rows = proxy.url, source.rows
        proxy.on("/git/blobs/", status=200, body=body)

        with pytest.raises(Transient) as caught:
            content(other, "a.md")

    assert caught.value.code == "provider_unavailable"


# --- limits ------------------------------------------------------------------------------------


def refused(status: int, body: str = "no", **headers: str) -> Exception | None:
    told = {name.replace("_", "-"): value for name, value in headers.items()}
    return CONNECTOR.judge(EndpointAnswer(status, told, body.encode()))


NOON = {"date": "Thu, 01 Jan 2026 12:00:00 GMT", "x_ratelimit_remaining": "0"}
RESET = 1767268800  # that noon


@pytest.mark.parametrize(
    ("status", "headers", "body", "seconds"),
    [
        (403, {**NOON, "x_ratelimit_reset": str(RESET + 600)}, "limit", 601),
        (403, {**NOON, "x_ratelimit_reset": str(RESET + 86_400)}, "limit", 3600),
        (403, {**NOON, "x_ratelimit_reset": str(RESET - 600)}, "limit", 1),
        (403, {**NOON, "x_ratelimit_reset": "soon"}, "limit", 60),
        (429, {**NOON, "x_ratelimit_reset": str(RESET + 60)}, "limit", 61),
        (403, {}, "You have exceeded a secondary rate limit.", 60),
        (403, {}, "You have triggered an abuse detection mechanism.", 60),
        (403, {"retry_after": "7"}, "You have exceeded a secondary rate limit.", 7),
        (403, {"retry_after": "36000"}, "secondary rate limit", 36_000),
        (403, {"retry_after": "999999"}, "secondary rate limit", 3600),
        (403, {"retry_after": "-5"}, "secondary rate limit", 60),
        (429, {"retry_after": "2"}, "", 2),
        (429, {"retry_after": "0"}, "", 1),
        (429, {}, "", 60),
    ],
)
def test_a_limit_is_waited_for(status: int, headers: dict[str, str], body: str, seconds: int):
    error = refused(status, body, **headers)

    assert isinstance(error, Transient)
    assert (error.code, error.after) == ("rate_limited", timedelta(seconds=seconds))


def test_a_reset_is_told_from_our_clock_if_there_is_no_date():
    soon = str(int(time.time()) + 1000)

    error = refused(403, x_ratelimit_remaining="0", x_ratelimit_reset=soon)

    assert isinstance(error, Transient)
    assert error.after is not None
    assert timedelta(seconds=900) < error.after <= timedelta(seconds=1002)


@pytest.mark.parametrize(
    ("status", "headers"),
    [(403, {}), (403, {"x_ratelimit_remaining": "17"}), (404, NOON), (500, NOON), (401, {})],
)
def test_other_refusals_are_no_limit(status: int, headers: dict[str, str]):
    assert refused(status, "Resource not accessible", **headers) is None


def test_a_short_limit_is_waited_for_in_place(github: FakeGithub, connect: Connect):
    docs = github.repository("octo/docs", {"a.md": "1"})
    source = connect(docs)
    github.refuse(429, Retry_After="2")

    source.sync()

    assert source.pauses == [2.0]
    assert local(source) == remote(docs)


def test_a_long_limit_ends_the_sync_and_keeps_what_there_is(github: FakeGithub, connect: Connect):
    docs = github.repository("octo/docs", {"a.md": "1"})
    other = github.repository("octo/other", {"a.md": "1"})
    source = connect(docs, other)
    github.budget, github.resets_at = 3, int(time.time()) + 600

    with pytest.raises(Transient) as caught:
        source.sync()
    first = local(source)
    github.budget = 5000
    source.sync()

    assert caught.value.code == "rate_limited"
    assert caught.value.after is not None
    assert caught.value.after > timedelta(seconds=500)
    assert source.pauses == []
    assert first == remote(docs)
    assert local(source) == remote(docs, other)


def test_a_refusal_that_is_no_limit_is_trouble_of_that_repository(
    github: FakeGithub, connect: Connect
):
    docs = github.repository("octo/docs", {"a.md": "1"})
    other = github.repository("octo/other", {"a.md": "1"})
    github.refuse(403, message="the organization has enabled OAuth App access restrictions")

    [trouble] = only((source := connect(docs, other)).sync(), Trouble)

    assert trouble.code == "http_403"
    assert "access restrictions" in trouble.message
    assert "an owner may have to approve" in trouble.message
    assert local(source) == remote(other)


def test_single_sign_on_is_explained(github: FakeGithub, connect: Connect):
    docs = github.repository("acme/docs", {"a.md": "1"})
    told = "required; url=https://github.com/orgs/acme/sso?authorization_request=x"
    github.refuse(403, X_GitHub_SSO=told)

    [trouble] = only(connect(docs).sync(), Trouble)

    assert trouble.code == "sso_required"
    assert "single sign-on" in trouble.message


# --- account -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("scopes", "name"), [("repo,user:email", "octo@example.com"), ("repo", "octo")]
)
def test_an_account_has_an_id_and_a_name(
    github: FakeGithub, connect: Connect, scopes: str, name: str
):
    source = connect()
    source.access.value = github.user("octo", scopes=scopes)

    account = CONNECTOR.identify(source.api, Tokens("unused"))

    assert (account.id, account.name) == (str(github.users[source.access.value].id), name)


def test_an_authorization_is_taken_back(github: FakeGithub, token: str):
    other = github.user("octo")
    stranger = github.user("eve")
    endpoint = Endpoint(github.url)

    assert CONNECTOR.revoke(endpoint, Tokens(token), ("app-id", "app-secret"))
    assert CONNECTOR.revoke(endpoint, Tokens(other), ("app-id", "app-secret"))

    assert list(github.users) == [stranger]


def test_an_authorization_that_cannot_be_taken_back_says_so_without_secrets(
    github: FakeGithub, token: str
):
    github.refuse(500, message=f"cannot with {token} and app-secret")

    with pytest.raises(Transient) as caught:
        CONNECTOR.revoke(Endpoint(github.url), Tokens(token), ("app-id", "app-secret"))

    assert token not in str(caught.value)
    assert "app-secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("metadata", "scopes"),
    [
        ({}, ("repo", "user:email")),
        ({"visibility": "all", "webhooks": False}, ("repo", "user:email")),
        ({"visibility": "public"}, ("admin:repo_hook", "user:email")),
        ({"visibility": "public", "webhooks": False}, ("user:email",)),
    ],
    ids=["default", "all", "public", "public_polled"],
)
def test_no_more_is_asked_for_than_needed(metadata: dict[str, Any], scopes: tuple[str, ...]):
    assert tuple(CONNECTOR.authorized(metadata)) == scopes


# --- picking -----------------------------------------------------------------------------------


def test_repositories_are_offered_page_by_page(github: FakeGithub, connect: Connect):
    made = [github.repository(f"octo/r{n:02}", private=n % 2 == 0) for n in range(7)]
    github.repository("eve/hers")
    shared = github.repository("acme/shared")
    shared.readers.add("octo")
    source = connect()

    pages = [CONNECTOR.resources(source, page, 3) for page in (1, 2, 3, 4)]

    names = [[each.full_name for each in found] for found, _ in pages]
    assert names == [
        ["acme/shared", "octo/r00", "octo/r01"],
        ["octo/r02", "octo/r03", "octo/r04"],
        ["octo/r05", "octo/r06"],
        [],
    ]
    assert [total for _, total in pages] == [8, 8, 8, 8]
    first = pages[0][0][1]
    assert (first.id, first.name, first.private) == (str(made[0].id), "r00", True)
    assert (first.default_branch, first.description) == ("main", "All about r00")
    assert first.updated_at == "2026-01-01T00:00:00Z"


def test_only_public_repositories_are_offered_if_only_those_can_be_read(
    github: FakeGithub, connect: Connect
):
    github.repository("octo/private")
    github.repository("octo/public", private=False)

    found, total = CONNECTOR.resources(connect(visibility="public"), 1, 30)

    assert ([each.full_name for each in found], total) == (["octo/public"], 1)


def test_an_account_without_repositories_has_none(connect: Connect):
    assert CONNECTOR.resources(connect(), 1, 30) == ([], 0)


def test_what_is_picked_is_kept_with_the_rest(github: FakeGithub):
    kept = CONNECTOR.configure(
        {"team": "docs", "resources": [{"id": "9", "name": "octo/old"}]},
        [
            {"id": 1, "name": "octo/docs", "defaultBranch": "main", "stars": 7},
            {"id": "2", "name": "o_o/a.b-c_d"},
            {"id": "1", "name": "octo/docs2"},
        ],
    )

    assert kept == {
        "team": "docs",
        "resources": [{"id": "1", "name": "octo/docs2"}, {"id": "2", "name": "o_o/a.b-c_d"}],
    }
    assert CONNECTOR.check(kept, object()) == kept


@pytest.mark.parametrize(
    ("entry", "field"),
    [
        ("octo/docs", "resources[0]"),
        ({"name": "octo/docs"}, "resources[0].id"),
        ({"id": "12a", "name": "octo/docs"}, "resources[0].id"),
        ({"id": True, "name": "octo/docs"}, "resources[0].id"),
        ({"id": -1, "name": "octo/docs"}, "resources[0].id"),
        ({"id": "1" * 30, "name": "octo/docs"}, "resources[0].id"),
        ({"id": 1}, "resources[0].name"),
        ({"id": 1, "name": "docs"}, "resources[0].name"),
        ({"id": 1, "name": "octo/.."}, "resources[0].name"),
        ({"id": 1, "name": "octo/docs/x"}, "resources[0].name"),
        ({"id": 1, "name": "octo/docs?x"}, "resources[0].name"),
        ({"id": 1, "name": "octo/docs\n"}, "resources[0].name"),
        ({"id": 1, "name": "octo/docs", "defaultBranch": 3}, "resources[0].defaultBranch"),
        ({"id": 1, "name": "octo/docs", "defaultBranch": "x" * 300}, "resources[0].defaultBranch"),
    ],
    ids=str,
)
def test_what_cannot_be_picked_is_named(entry: Any, field: str):
    with pytest.raises(BadRequestError, match=re.escape(f"{field}:")):
        CONNECTOR.configure({}, [entry])


def test_there_is_an_end_to_picking():
    with pytest.raises(BadRequestError, match="at most 500"):
        CONNECTOR.configure({}, [{"id": n, "name": "octo/docs"} for n in range(1, 502)])


@pytest.mark.parametrize(
    "metadata",
    [
        {"visibility": "private"},
        {"webhooks": "no"},
        {"resources": '[{"id": 1}]'},
        {"resources": [{"id": "x", "name": "octo/docs"}]},
    ],
    ids=["visibility", "webhooks", "text", "entry"],
)
def test_metadata_is_checked(metadata: dict[str, Any]):
    with pytest.raises(BadRequestError, match=next(iter(metadata))):
        CONNECTOR.check(metadata, object())


# --- pushes ------------------------------------------------------------------------------------


class Letterbox:
    """Where pushes go: keeps them, verified by the connector as they come."""

    def __init__(self) -> None:
        self.site = Website()
        self.site.route("/*", self._take)
        self.registrations: dict[str, Registration] = {}
        self.pushes: list[Push] = []
        self.came = threading.Condition()

    def registration(self, id: str, resource: str) -> Registration:
        url = self.site.url(f"/v3/hooks/github?registration={id}")
        made = Registration(id, ID, resource, f"secret-of-{id}", url)
        self.registrations[id] = made
        return made

    def _take(self, exchange: Exchange) -> bool:
        push = self.opened(exchange.request)
        with self.came:
            self.pushes.append(push)
            self.came.notify_all()
        exchange.send(answer(CONNECTOR.receive(push).status, b""))
        return True

    def opened(self, request: Request) -> Push:
        query = dict(parse_qsl(request.path.partition("?")[2]))
        known = self.registrations.get(query["registration"])
        return Push(request.headers, query, request.body, known)

    def wait_for(self, event: str, times: int = 1) -> list[Push]:
        def those() -> list[Push]:
            return [push for push in self.pushes if push.headers["x-github-event"] == event]

        with self.came:
            assert self.came.wait_for(lambda: len(those()) >= times, 60)
            return those()


@pytest.fixture
def letterbox() -> Generator[Letterbox]:
    made = Letterbox()
    with made.site:
        yield made


@pytest.fixture
def docs(github: FakeGithub, token: str) -> Repository:
    return github.repository("octo/docs", {"a.md": "1"})


@pytest.fixture
def source(connect: Connect, docs: Repository) -> MemorySource:
    return connect(docs)


def test_each_repository_is_watched(github: FakeGithub, connect: Connect, docs: Repository):
    other = github.repository("octo/other")

    assert list(CONNECTOR.watches(connect(docs, other))) == [str(docs.id), str(other.id)]
    assert list(CONNECTOR.watches(connect(docs, webhooks=False))) == []


def test_a_ping_is_answered_before_the_registration_is_complete(
    docs: Repository, source: MemorySource, letterbox: Letterbox
):
    made = CONNECTOR.subscribe(source, letterbox.registration("r1", str(docs.id)))

    [hook] = docs.hooks.values()
    [push] = letterbox.pushes
    notice = CONNECTOR.receive(push)
    assert (hook.events, hook.secret) == (["push"], "secret-of-r1")
    assert made.remote == {"hook_id": hook.id, "repo": "octo/docs"}
    assert made.expires_at is None
    assert hook.deliveries[0].status == 200
    assert (notice.status, notice.concerned, notice.lost) == (200, False, False)


def test_a_push_to_the_default_branch_concerns_us(
    github: FakeGithub, docs: Repository, source: MemorySource, letterbox: Letterbox
):
    CONNECTOR.subscribe(source, letterbox.registration("r1", str(docs.id)))
    [hook] = docs.hooks.values()
    docs.commit({"a.md": "2"})
    docs.commit({"a.md": "3"}, branch="draft")
    docs.force("main", docs.branches["draft"])
    github.redeliver(hook, hook.deliveries[1])

    notices = [CONNECTOR.receive(push) for push in letterbox.pushes[1:]]

    assert [notice.concerned for notice in notices] == [True, False, True, True]
    assert [delivery.status for delivery in hook.deliveries[1:]] == [202] * 4
    keys = [notice.key for notice in notices]
    assert keys[0] == keys[3] == hook.deliveries[1].guid
    assert len(set(keys)) == 3


def test_a_push_of_a_deleted_registration_is_taken_without_a_word(
    docs: Repository, source: MemorySource, letterbox: Letterbox
):
    CONNECTOR.subscribe(source, letterbox.registration("r1", str(docs.id)))
    letterbox.registrations.clear()
    docs.commit({"a.md": "2"})

    notice = CONNECTOR.receive(letterbox.pushes[-1])

    assert (notice.status, notice.concerned, notice.text, notice.key) == (202, False, None, None)


def signed(body: bytes, secret: str = "secret", **headers: str) -> Push:
    mac = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    told = {
        "x-github-event": "push",
        "x-github-delivery": "guid",
        "x-hub-signature-256": f"sha256={mac}",
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    registration = Registration("r1", ID, "7", "secret", "https://example.com")
    return Push(told, {"registration": "r1"}, body, registration)


PUSHED = json.dumps(
    {"ref": "refs/heads/main", "repository": {"id": 7, "default_branch": "main"}}
).encode()


def test_what_we_sign_ourselves_is_taken():
    assert CONNECTOR.receive(signed(PUSHED)).concerned


@pytest.mark.parametrize(
    "signature",
    [
        "",
        "sha256=",
        "sha256",
        "sha256=" + "0" * 64,
        "sha256=" + "0" * 63,
        "sha256=" + "é" * 64,
        "sha256=\ud800",
        hmac.new(b"secret", PUSHED, hashlib.sha256).hexdigest(),
        "sha1=" + hmac.new(b"secret", PUSHED, hashlib.sha1).hexdigest(),
        "sha256=" + hmac.new(b"other", PUSHED, hashlib.sha256).hexdigest(),
        "sha256=" + hmac.new(b"secret", PUSHED + b" ", hashlib.sha256).hexdigest(),
        "SHA256=" + hmac.new(b"secret", PUSHED, hashlib.sha256).hexdigest(),
    ],
    ids=[
        "none", "empty", "word", "zeros", "short", "accents", "surrogate", "bare", "sha1",
        "other_secret", "altered", "upper",
    ],
)  # fmt: skip
@pytest.mark.parametrize("event", ["push", "ping"])
def test_a_forged_push_is_refused(signature: str, event: str):
    push = signed(PUSHED, x_hub_signature_256=signature, x_github_event=event)

    notice = CONNECTOR.receive(push)

    assert (notice.status, notice.concerned, notice.key) == (401, False, None)


def test_a_push_without_a_signature_is_refused():
    push = Push({"x-github-event": "push"}, {}, PUSHED, signed(b"").registration)

    assert CONNECTOR.receive(push).status == 401


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"payload=%7B%7D",
        b"[]",
        b"{}",
        b'{"ref": "refs/heads/main", "repository": 3}',
        b"[" * 100_000,
        PUSHED.replace(b"7", b"8"),
        PUSHED.replace(b"refs/heads", b"refs/tags"),
    ],
    ids=["none", "form", "list", "nothing", "odd", "deep", "other_repository", "tag"],
)
def test_a_genuine_push_that_says_nothing_of_ours_is_taken(body: bytes):
    notice = CONNECTOR.receive(signed(body))

    assert (notice.status, notice.concerned) == (202, False)


def test_other_events_are_taken_and_ignored():
    notice = CONNECTOR.receive(signed(PUSHED, x_github_event="star"))

    assert (notice.status, notice.concerned) == (202, False)


def test_a_registration_is_taken_back(docs: Repository, source: MemorySource, letterbox: Letterbox):
    made = CONNECTOR.subscribe(source, letterbox.registration("r1", str(docs.id)))
    kept = CONNECTOR.subscribe(source, letterbox.registration("r2", str(docs.id)))

    CONNECTOR.unsubscribe(source.api, made)
    CONNECTOR.unsubscribe(source.api, made)

    assert list(docs.hooks) == [kept.remote["hook_id"]]


def test_a_renamed_repository_can_be_watched_and_left(
    github: FakeGithub, docs: Repository, source: MemorySource, letterbox: Letterbox
):
    early = CONNECTOR.subscribe(source, letterbox.registration("r1", str(docs.id)))
    github.rename(docs, "octo/handbook")

    made = CONNECTOR.subscribe(source, letterbox.registration("r2", str(docs.id)))
    CONNECTOR.unsubscribe(source.api, early)

    assert made.remote["repo"] == "octo/handbook"
    assert list(docs.hooks) == [made.remote["hook_id"]]


@pytest.mark.parametrize("why", ["reader", "archived", "scope"])
def test_who_may_not_add_webhooks_is_told(
    github: FakeGithub,
    connect: Connect,
    token: str,
    docs: Repository,
    letterbox: Letterbox,
    why: str,
):
    match why:
        case "reader":
            docs.name = "acme/docs"
            docs.readers.add("octo")
        case "archived":
            docs.archived = True
        case _:
            docs.private = False
            github.users[token].scopes.clear()

    with pytest.raises(Permanent, match="administers the repository") as caught:
        CONNECTOR.subscribe(connect(docs), letterbox.registration("r1", str(docs.id)))

    assert caught.value.code == "no_webhook"
    assert docs.name in str(caught.value)


def test_what_is_not_picked_cannot_be_watched(source: MemorySource, letterbox: Letterbox):
    with pytest.raises(Permanent, match="taken out"):
        CONNECTOR.subscribe(source, letterbox.registration("r1", "404"))


@pytest.fixture(scope="module")
def webhook_schemas(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Any]:
    """GitHub's own description of what it pushes, as its npm package has it."""
    node, _ = installed()
    npm = node.parent.parent / "lib/node_modules/npm/bin/npm-cli.js"
    command = [str(node), str(npm)] if npm.exists() else ["npm"]
    folder: Path = tmp_path_factory.mktemp("octokit")
    (folder / "package.json").write_text('{"private": true}')
    flags = ["install", "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-timeout=20000"]
    try:
        done = subprocess.run(
            [*command, *flags, "@octokit/webhooks-schemas@7.6.1"],
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"npm cannot install the schemas here: {error}")
    if done.returncode:
        pytest.skip(f"npm cannot install the schemas here: {done.stderr[-300:]}")
    return json.loads((folder / "node_modules/@octokit/webhooks-schemas/schema.json").read_text())


def test_the_fake_pushes_what_github_pushes(
    docs: Repository,
    source: MemorySource,
    letterbox: Letterbox,
    webhook_schemas: Mapping[str, Any],
):
    CONNECTOR.subscribe(source, letterbox.registration("r1", str(docs.id)))
    first = docs.head
    docs.commit({"a.md": None, "b.md": "2"})
    docs.commit({"a.md": "3"}, branch="draft")
    docs.force("main", first)

    assert len(letterbox.pushes) == 4
    for push in letterbox.pushes:
        schema = {
            "$ref": f"#/definitions/{push.headers['x-github-event']}$event",
            "definitions": webhook_schemas["definitions"],
        }
        faults = Draft7Validator(schema).iter_errors(json.loads(push.body))
        assert [f"{list(fault.path)}: {fault.message}" for fault in faults] == []


# --- long runs ---------------------------------------------------------------------------------


class Chance:
    """A user who does one thing after another, by lot."""

    def __init__(self, seed: int, github: FakeGithub, repositories: list[Repository]) -> None:
        self.lot = random.Random(seed)
        self.github = github
        self.repositories = repositories
        self.heads = {each.id: [each.head] for each in repositories}
        self.number = 0

    def act(self) -> None:
        self.number += 1
        repository = self.lot.choice(self.repositories)
        files = sorted(repository.entries(repository.head))
        if not files:
            repository.commit({self.path(): self.words()})
        match self.lot.choices(
            ["add", "edit", "rename", "move", "delete", "force", "branch", "name"],
            [25, 20, 15, 10, 15, 8, 3, 4],
        )[0]:
            case "edit" if files:
                repository.commit({self.lot.choice(files): self.words()})
            case "rename" if files:
                repository.move(self.lot.choice(files), self.path())
            case "move" if folders := sorted({f.rpartition("/")[0] for f in files} - {""}):
                repository.move(self.lot.choice(folders), f"moved{self.number}")
            case "delete" if files:
                gone = self.lot.sample(files, self.lot.randint(1, min(3, len(files))))
                repository.commit(dict.fromkeys(gone))
            case "force":
                repository.force(
                    repository.default_branch, self.lot.choice(self.heads[repository.id])
                )
            case "branch":
                repository.rename_branch(repository.default_branch, f"branch-{self.number}")
            case "name":
                self.github.rename(repository, f"octo/name-{self.number}")
            case _:
                repository.commit({self.path(): self.words()})
        self.heads[repository.id].append(repository.head)

    def path(self) -> str:
        folder = self.lot.choice(["", "docs/", "docs/deep/", "src/", f"new{self.number}/"])
        return f"{folder}{self.number}.{self.lot.choice(['md', 'md', 'txt', 'RST', 'py'])}"

    def words(self) -> str:
        # Few enough that equal files are common.
        return f"text {self.lot.randint(0, 40)}"


@pytest.mark.parametrize(
    ("seed", "operations"),
    [(1, 300), *(pytest.param(*one, marks=pytest.mark.slow) for one in ((2, 300), (3, 1000)))],
)
def test_after_many_operations_with_faults_nothing_diverges(
    github: FakeGithub, connect: Connect, seed: int, operations: int
):
    """Faults in every tenth call, and every fifth sync is killed somewhere."""
    repositories = [
        github.repository(f"octo/r{n}", {f"{m}.md": f"{n}{m}" for m in range(10)}) for n in range(3)
    ]
    github.most_entries, github.budget = 12, 1_000_000
    user, moods = Chance(seed, github, repositories), random.Random(seed)
    source = connect(*repositories)
    github.moody(moods)
    whole = partial = killed = 0
    for operation in range(operations):
        user.act()
        if operation % 3:
            continue
        try:
            if moods.random() < 0.2:
                changes = CONNECTOR.changes(source, source.cursor)
                for _, change in zip(range(moods.randint(1, 30)), changes, strict=False):
                    source._apply(change, set())
                killed += 1
            else:
                troubles = only(source.sync(), Trouble)
                whole, partial = whole + (not troubles), partial + bool(troubles)
        except Transient:
            partial += 1
    github.moody(None)

    source.sync()

    assert local(source) == remote(*repositories)
    assert source.rows.keys() == source.items.keys()
    by_id = {str(each.id): each for each in repositories}
    for item in source.items.values():
        repository = by_id[item.branch]
        assert item.metadata["repository"] == repository.name
        assert item.metadata["branch"] == repository.default_branch
    assert min(whole, killed) > 5
    assert partial > 0
    [last] = source.sync()
    assert isinstance(last, Checkpoint)


# --- a peer that is not ours -------------------------------------------------------------------

SEED: Mapping[str, Any] = {
    "tokens": {"octo-token": {"login": "octo", "scopes": ["repo", "user", "admin:repo_hook"]}},
    "github": {
        # An unknown bearer is the first user.
        "users": [{"login": "aa-decoy"}, {"login": "octo", "email": "octo@example.com"}],
        "repos": [
            {"owner": "octo", "name": "docs", "auto_init": True, "private": True},
            {"owner": "octo", "name": "other", "auto_init": True},
        ],
        "oauth_apps": [{"client_id": "gh", "client_secret": "s", "name": "x", "redirect_uris": []}],
    },
}


@pytest.fixture(scope="module")
def emulated() -> Generator[Proxy]:
    with behind_proxy("github", SEED) as proxy:
        proxy.strict = True
        proxy.admit("octo-token")
        yield proxy


@pytest.fixture
def peer(emulated: Proxy) -> Generator[httpx.Client]:
    """GitHub by somebody else, as its user `octo` sees it; each test makes a repository."""
    emulated.behave()
    headers = {"Authorization": "Bearer octo-token"}
    with httpx.Client(base_url=emulated.url, headers=headers, timeout=30) as client:
        yield client


class EmulatedRepository:
    """A repository there, and what `octo` does with it."""

    def __init__(self, peer: httpx.Client, name: str) -> None:
        made = peer.post("/user/repos", json={"name": name, "private": True, "auto_init": True})
        made.raise_for_status()
        self.peer, self.id = peer, made.json()["id"]
        self.name, self.branch = made.json()["full_name"], made.json()["default_branch"]

    def write(self, path: str, text: str) -> None:
        content = base64.b64encode(text.encode()).decode()
        known = self.peer.get(f"/repos/{self.name}/contents/{path}")
        sha = {"sha": known.json()["sha"]} if known.status_code == 200 else {}
        body = {"message": "write", "content": content, "branch": self.branch, **sha}
        self.peer.put(f"/repos/{self.name}/contents/{path}", json=body).raise_for_status()

    def delete(self, path: str) -> None:
        sha = self.peer.get(f"/repos/{self.name}/contents/{path}").json()["sha"]
        body = {"message": "delete", "sha": sha, "branch": self.branch}
        self.peer.request(
            "DELETE", f"/repos/{self.name}/contents/{path}", json=body
        ).raise_for_status()

    def force(self, sha: str) -> None:
        self.peer.patch(
            f"/repos/{self.name}/git/refs/heads/{self.branch}", json={"sha": sha, "force": True}
        ).raise_for_status()

    @property
    def head(self) -> str:
        answer = self.peer.get(f"/repos/{self.name}/branches/{self.branch}")
        return answer.json()["commit"]["sha"]


@pytest.fixture
def peers(emulated: Proxy, fetcher: Fetcher, sandbox: Sandbox) -> Connect:
    def connect(*picked: EmulatedRepository) -> MemorySource:
        picks = [{"id": each.id, "name": each.name} for each in picked]
        return MemorySource(
            CONNECTOR,
            fetcher,
            sandbox,
            CONNECTOR.configure({}, picks),
            api_url=emulated.url,
            access=Token("octo-token"),
        )

    return connect


def test_a_peer_of_others_is_followed(peer: httpx.Client, peers: Connect):
    docs = EmulatedRepository(peer, "followed")
    docs.write("docs/intro.md", "# Intro")
    docs.write("src/app.py", "print()")
    first = docs.head
    source = peers(docs)
    source.sync()
    titles = {item.title for item in source.items.values()}
    intro = content(source, "docs/intro.md")

    docs.write("docs/intro.md", "# New")
    docs.write("docs/start.md", "# Start")
    source.sync()
    start = source.items[f"{docs.id}:docs/start.md"]
    docs.delete("docs/start.md")
    docs.write("begin.md", "# Start")
    said = source.sync()
    former = {item.title: item.formerly for item in only(said, Item)}
    docs.force(first)
    source.sync()

    assert titles == {"README.md", "docs/intro.md"}
    assert intro.data == b"# Intro"
    assert start.version == hashlib.sha1(b"blob 7\0# Start").hexdigest()
    assert former["begin.md"] == start.id
    assert {item.title for item in source.items.values()} == titles
    assert content(source, "docs/intro.md").data == b"# Intro"


def test_a_peer_of_others_offers_and_tells(peer: httpx.Client, peers: Connect):
    source = peers()

    found, total = CONNECTOR.resources(source, 1, 1)
    rest, _ = CONNECTOR.resources(source, 2, 100)
    account = CONNECTOR.identify(source.api, Tokens("unused"))

    assert len(found) == 1
    assert total >= 2
    assert rest == []
    assert account.name == "octo@example.com"


def test_a_peer_of_others_pushes(peer: httpx.Client, peers: Connect, letterbox: Letterbox):
    docs = EmulatedRepository(peer, "pushed")
    source = peers(docs)
    made = CONNECTOR.subscribe(source, letterbox.registration("r1", str(docs.id)))

    docs.write("a.md", "1")
    push = letterbox.wait_for("push")[-1]
    CONNECTOR.unsubscribe(source.api, made)

    notice = CONNECTOR.receive(push)
    assert (notice.status, notice.concerned) == (202, True)
    assert notice.key
    assert peer.get(f"/repos/{docs.name}/hooks").json() == []


def test_a_peer_of_others_renames(peer: httpx.Client, peers: Connect):
    docs = EmulatedRepository(peer, "before")
    source = peers(docs)
    source.sync()
    before = local(source)
    peer.patch(f"/repos/{docs.name}", json={"name": "after"}).raise_for_status()

    source.sync()

    assert local(source) == before
    assert {item.metadata["repository"] for item in source.items.values()} == {"octo/after"}


BAD_DAYS: Mapping[str, Mapping[str, Any]] = {
    "busy": {"status": 429, "headers": {"Retry-After": "2"}},
    "secondary": {"status": 403, "headers": {"Retry-After": "1"}},
    "error": {"status": 500, "times": 2},
    "bad_gateway": {"status": 502, "body": b"<html>"},
    "unavailable": {"status": 503, "headers": {"Retry-After": "1"}},
    "cut": {"cut": 10},
    "reset": {"reset": True},
    "lost": {"lose": True},
    "dribbled": {"dribble": (20, 0.001)},
}


@pytest.mark.parametrize("day", BAD_DAYS)
def test_a_bad_day_of_the_peer_is_survived(
    emulated: Proxy, peer: httpx.Client, peers: Connect, day: str
):
    docs = EmulatedRepository(peer, day)
    source = peers(docs)
    calls = [f"^GET /repos/{docs.name}$", "^GET .*/branches/", "^GET .*/git/trees/"]
    rules = [emulated.on(call, **BAD_DAYS[day]) for call in calls]

    source.sync()

    assert [item.title for item in source.items.values()] == ["README.md"]
    assert all(rule.hit.is_set() for rule in rules)


def test_a_token_that_the_peer_takes_away_deletes_nothing(
    emulated: Proxy, peer: httpx.Client, peers: Connect
):
    docs = EmulatedRepository(peer, "taken-away")
    source = peers(docs)
    source.sync()
    before = local(source)
    emulated.expire()
    try:
        with pytest.raises(Reauthorize):
            source.sync()
    finally:
        emulated.admit("octo-token")

    assert before
    assert local(source) == before


def test_a_repository_that_the_peer_forbids_is_trouble(
    emulated: Proxy, peer: httpx.Client, peers: Connect
):
    docs = EmulatedRepository(peer, "forbidden")
    source = peers(docs)
    source.sync()
    before = local(source)
    emulated.on("^GET /repos/octo/forbidden$", status=403)

    [trouble] = only(source.sync(), Trouble)

    assert trouble.code == "http_403"
    assert local(source) == before
