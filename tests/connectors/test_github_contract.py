"""What we ask of GitHub, and what our fake answers, judged by GitHub's own description of its API.

`@octokit/openapi-types` is that description as TypeScript types, made by a machine. A walk over
everything that the connector does is written down as a file of TypeScript whose values must satisfy
them: queries and bodies that we send wholly; answers of the fake as far as they go, for it leaves
out what the connector never reads. Installed at the test, by the lock file.
"""

import json
import re
import shutil
import subprocess
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import pytest

from recollect.connectors.oauth import Tokens
from recollect.extract import Sandbox
from recollect.fetch import Endpoint, Fetcher
from recollect.model import Blob
from tests.connectors.memory import MemorySource, Token
from tests.connectors.test_github import CONNECTOR, Letterbox, pick
from tests.connectors.test_github import fetcher as fetcher
from tests.connectors.test_github import letterbox as letterbox
from tests.connectors.test_github import sandbox as sandbox
from tests.fakes.emulate import installed
from tests.fakes.github import FakeGithub, Reply
from tests.fakes.website import Request

TYPES = Path(__file__).parent.parent / "emulators" / "github-types"
pytestmark = pytest.mark.slow
# Not described by number: what GitHub's own redirects of renamed repositories lead to.
REPOSITORY = r"/(?:repos/[^/]+/[^/]+|repositories/\d+)"
OPERATIONS = {
    r"GET /user": "users/get-authenticated",
    r"GET /user/emails": "users/list-emails-for-authenticated-user",
    r"GET /user/repos": "repos/list-for-authenticated-user",
    r"GET /rate_limit": "rate-limit/get",
    rf"GET {REPOSITORY}": "repos/get",
    rf"GET {REPOSITORY}/branches/[^/]+": "repos/get-branch",
    rf"GET {REPOSITORY}/git/ref/heads/[^/]+": "git/get-ref",
    rf"GET {REPOSITORY}/git/trees/\w+": "git/get-tree",
    rf"GET {REPOSITORY}/git/blobs/\w+": "git/get-blob",
    rf"POST {REPOSITORY}/hooks": "repos/create-webhook",
    rf"GET {REPOSITORY}/hooks/\d+": "repos/get-webhook",
    rf"DELETE {REPOSITORY}/hooks/\d+": "repos/delete-webhook",
    r"DELETE /applications/[^/]+/grant": "apps/delete-authorization",
    r"DELETE /applications/[^/]+/token": "apps/delete-token",
}
MOVED = '"repos/get", 301'
NUMBERS = ("page", "per_page")
HEAD = """import type { operations as Operations } from "@octokit/openapi-types";
type Some<T> = T extends readonly (infer E)[] ? Some<E>[]
  : T extends object ? { [K in keyof T]?: Some<T[K]> } : T;
type Json<T> = T extends { content: { "application/json": infer B } } ? B : never;
type Query<O extends keyof Operations> =
  Operations[O] extends { parameters: { query?: infer Q } } ? NonNullable<Q> : never;
type Asked<O extends keyof Operations> =
  Operations[O] extends { requestBody?: infer B } ? Json<NonNullable<B>> : never;
type Told<O extends keyof Operations, S> =
  Operations[O] extends { responses: infer R }
    ? S extends keyof R ? Some<Json<R[S]>> : never : never;
export {};
"""


@dataclass(frozen=True)
class Exchange:
    operation: str
    asked: Request
    told: Reply


class Recorded(FakeGithub):
    def __init__(self, **how: Any) -> None:
        super().__init__(**how)
        self.exchanges: list[Exchange] = []
        self.unknown: set[str] = set()

    def _answer(self, request: Request) -> Reply:
        reply = super()._answer(request)
        asked = f"{request.method} {request.path.partition('?')[0]}"
        for pattern, operation in OPERATIONS.items():
            if re.fullmatch(pattern, asked):
                self.exchanges.append(Exchange(operation, request, reply))
                return reply
        self.unknown.add(asked)
        return reply


@pytest.fixture
def github() -> Generator[Recorded]:
    with Recorded() as made:
        yield made


@pytest.fixture(scope="module")
def compiler(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command that judges a file; the folder it has to run in comes last."""
    node, _ = installed()
    npm = node.parent.parent / "lib/node_modules/npm/bin/npm-cli.js"
    command = [str(node), str(npm)] if npm.exists() else ["npm"]
    folder = tmp_path_factory.mktemp("github-types")
    for name in ("package.json", "package-lock.json"):
        shutil.copy(TYPES / name, folder)
    flags = ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-timeout=20000"]
    try:
        done = subprocess.run(
            [*command, *flags], cwd=folder, capture_output=True, text=True, timeout=180, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        pytest.skip(f"npm cannot install the types here: {error}")
    if done.returncode:
        pytest.skip(f"npm cannot install the types here: {done.stderr[-300:]}")
    options = ["--noEmit", "--strict", "--skipLibCheck", "--target", "es2022"]
    return [str(node), "node_modules/typescript/bin/tsc", *options, str(folder)]


def judge(compiler: list[str], lines: list[str]) -> list[str]:
    """The faults that the types find, one for each bad line."""
    *command, folder = compiler
    (Path(folder) / "wire.ts").write_text(HEAD + "\n".join(lines) + "\n")
    command += ["--moduleResolution", "node10", "wire.ts"]
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=300, check=False
    )
    found = re.findall(r"^wire\.ts\((\d+),\d+\): error (.*)$", done.stdout, re.MULTILINE)
    assert bool(found) == bool(done.returncode), done.stdout + done.stderr
    given = (HEAD + "\n".join(lines)).splitlines()
    return [f"{given[int(line) - 1][:120]} … {fault[:300]}" for line, fault in found]


def written(value: object, wanted: str) -> str:
    return f"({json.dumps(value)}) satisfies {wanted};"


def said(exchange: Exchange) -> Generator[str]:
    """What was asked and told, as lines of TypeScript."""
    name = f'"{exchange.operation}"'
    query: Mapping[str, str | int] = {
        key: int(value) if key in NUMBERS else value
        for key, value in parse_qsl(exchange.asked.path.partition("?")[2])
    }
    if query:
        yield written(query, f"Query<{name}>")
    if exchange.asked.body and exchange.asked.method == "POST":
        yield written(json.loads(exchange.asked.body), f"Asked<{name}>")
    kind = exchange.told.headers.get("Content-Type", "application/json")
    if exchange.told.body and kind.startswith("application/json"):
        # Redirects are described of one operation, and meant for all (docs: "Best practices").
        told = f"{name}, {exchange.told.status}" if exchange.told.status < 300 else MOVED
        yield written(json.loads(exchange.told.body), f"Told<{told}>")


def walk(github: Recorded, fetcher: Fetcher, sandbox: Sandbox, letterbox: Letterbox) -> None:
    """All that the connector does: look, list, read, follow, watch, leave."""
    token = github.user("octo")
    docs = github.repository("octo/docs", {"a.md": "1", "b/c.md": "2", "b/d.png": "3"})
    source = MemorySource(
        connector=CONNECTOR,
        fetcher=fetcher,
        sandbox=sandbox,
        metadata=CONNECTOR.configure({}, [pick(docs)]),
        api_url=github.url,
        access=Token(token),
    )
    CONNECTOR.identify(source.api, Tokens(token))
    assert CONNECTOR.resources(source, 1, 10)[1] == 1
    assert all(one.holds is not False for one in CONNECTOR.assumptions(source))
    source.sync()
    for row in list(source.remembered()):
        if row.document_id is not None:
            assert isinstance(CONNECTOR.fetch(source, row), Blob)
    docs.commit({"a.md": None, "z.md": "1"})
    source.sync()
    github.most_entries = 1
    docs.commit({"y.md": "5"})
    source.sync()
    made = CONNECTOR.subscribe(source, letterbox.registration("r1", str(docs.id)))
    assert CONNECTOR.stands(source.api, made)
    github.rename(docs, "octo/handbook")
    source.sync()
    CONNECTOR.unsubscribe(source.api, made)
    github.knows_raw = False
    for row in list(source.remembered()):
        if row.document_id is not None:
            CONNECTOR.fetch(source, row)
    assert {item.title for item in source.items.values()}
    assert CONNECTOR.revoke(Endpoint(github.url), Tokens(token), ("app-id", "app-secret"))


def test_github_s_own_types_accept_what_we_say_and_what_the_fake_answers(
    github: Recorded,
    fetcher: Fetcher,
    sandbox: Sandbox,
    letterbox: Letterbox,
    compiler: list[str],
):
    walk(github, fetcher, sandbox, letterbox)

    asked = {exchange.operation for exchange in github.exchanges}
    assert github.unknown == set()
    assert len(asked) >= 11, asked
    lines = sorted({line for exchange in github.exchanges for line in said(exchange)})
    assert len(lines) > 20
    assert judge(compiler, lines) == []


def test_the_types_refuse_what_is_wrong(compiler: list[str]):
    wrong = [
        written({"recursiv": "1"}, 'Query<"git/get-tree">'),
        written({"name": "web", "events": "push"}, 'Asked<"repos/create-webhook">'),
        written({"sha": "x", "trunkated": False}, 'Told<"git/get-tree", 200>'),
        written({"sha": "x", "tree": [{"size": "3"}]}, 'Told<"git/get-tree", 200>'),
    ]

    assert len(judge(compiler, wrong)) == len(wrong)
