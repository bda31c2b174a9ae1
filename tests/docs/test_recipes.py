"""The pages of docs/recipes, and the settings in docs/mcp.md: the very blocks that a reader copies,
against a service and a model server of ours."""

import asyncio
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import httpx
import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from recollect import documents
from recollect.app import App
from recollect.documents import NewDocument
from recollect.inference.llm import Llm
from recollect.model import DocumentId, Tenant
from recollect.orgs import orgs
from recollect.worker.processing import drain
from tests.conftest import serving
from tests.contract.conftest import node
from tests.fakes.llm import Asked, Calls, Model, Says, Streams, running
from tests.installing import install

__all__ = ["node"]

HERE = Path(__file__).parent / "recipes"
DOCS = Path(__file__).parents[2] / "docs"
PAGES = DOCS / "recipes"
FERRY = "The ferry leaves at noon from the northern pier."
TEXTS = [
    FERRY,
    "Bread is baked before dawn.",
    "The library is closed on Mondays.",
    "\n\n".join(f"# Pier {n}\n\n{' '.join(['The ferry passes the pier.'] * 50)}" for n in range(9)),
]
AT_NOON = "The ferry leaves at noon. [1]"
Names = dict[str, Any]


def reader(asked: Asked) -> Says | Calls | Streams:
    """A model that searches where it may, and knows only what it was given."""
    messages = asked.body["messages"]
    tools = [one["function"]["name"] for one in asked.body.get("tools", ())]
    if "search" in tools and messages[-1]["role"] != "tool":
        return Calls("search", {"query": "When does the ferry leave?"})
    told = AT_NOON if FERRY in messages[-1]["content"] else "The passages do not say."
    if asked.body.get("stream"):
        return Streams((told[:5], told[5:]))
    return Says(told)


@pytest.fixture(scope="module")
def model() -> Generator[Model]:
    with running(Model(reader, foreign=True)) as started:
        yield started


@pytest.fixture(scope="module")
def url(app: App, model: Model) -> Generator[str]:
    """A service that has a model."""
    llm = Llm(model.url, "a-model", total=60)
    with serving(replace(app, llm=llm)) as address:
        yield address
    llm.close()


@pytest.fixture
def settings(app: App, tenant: Tenant, url: str, key: str, model: Model) -> dict[str, str]:
    """What docs/recipes/README.md sets; the handbook is there."""
    with app.db.begin() as tx:
        for n, text in enumerate(TEXTS):
            content = documents.text_content(text)
            new = NewDocument(content, ["handbook"], metadata={"number": n})
            documents.add(tx, tenant, new, DocumentId(orgs.random_id()))
    drain(app)
    return {
        "RECOLLECT_URL": url,
        "RECOLLECT_API_KEY": key,
        "OPENAI_BASE_URL": model.url,
        "OPENAI_API_KEY": "none",
        "MODEL": "a-model",
    }


@pytest.fixture
def run(
    settings: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[Names, str]]:
    """Runs the blocks in Python of a page, those before its first heading and below the given
    ones; their names, and what they printed."""
    for name, value in settings.items():
        monkeypatch.setenv(name, value)

    def run(page: str, *headings: str) -> tuple[Names, str]:
        names: Names = {"__name__": "recipe"}
        for block in blocks(page, "python", "", *headings):
            exec(compile(block, page, "exec"), names)
        return names, capsys.readouterr().out

    return run


def sections(page: Path) -> dict[str, str]:
    """By heading; what stands before the first is under ""."""
    parts = re.split(r"^## (.+)$", page.read_text(), flags=re.MULTILINE)
    return dict(zip(["", *parts[1::2]], parts[::2], strict=True))


def blocks(page: str, language: str, *headings: str) -> list[str]:
    parts = sections(PAGES / page)
    return [
        block
        for heading in headings or parts
        for block in re.findall(rf"```{language}\n(.+?)```", parts[heading], re.DOTALL)
    ]


# --- answers -----------------------------------------------------------------------------------


def test_an_answer_in_one_request(run: Callable[..., tuple[Names, str]], settings: dict[str, str]):
    [command] = blocks("answer.md", "sh")
    ran = subprocess.run(
        ["sh", "-c", command.replace("curl ", "curl --noproxy '*' ", 1)],
        env={"PATH": os.environ["PATH"], **settings},  # noqa: TID251 # of the child
        capture_output=True,
        check=True,
        timeout=60,
    )
    told = json.loads(ran.stdout)
    assert (told["state"], told["answer"]) == ("answered", AT_NOON)
    names, printed = run("answer.md")
    assert printed == "The ferry leaves at noon.\nanswered\n"
    assert names["end"]["state"] == "answered"


def test_an_answer_by_the_openai_sdk(run: Callable[..., tuple[Names, str]], model: Model):
    names, printed = run("openai.md", "An answer over my documents")
    said, first = printed.splitlines()[:2]
    assert said == AT_NOON
    assert first.endswith(f"characters 0 to {len(FERRY)}")
    given = json.loads(model.asked[-1].body["messages"][1]["content"])
    assert given["passages"][0] == {"number": 1, "text": FERRY}
    assert all(chunk.is_relevant for _, chunk in names["passages"])


def test_an_agent_by_the_openai_sdk(
    run: Callable[..., tuple[Names, str]], app: App, tenant: Tenant
):
    names, printed = run("openai.md", "An agent that searches and remembers")
    assert printed == f"{AT_NOON}\n"
    assert [one["role"] for one in names["messages"]] == [
        "system", "user", "assistant", "tool", "assistant",
    ]  # fmt: skip
    kept = names["remember"]("The ferry is blue.")
    drain(app)
    with app.db.begin() as tx:
        document = documents.get(tx, tenant, kept["id"], with_text=True)
    assert (document.text, document.container_tags) == ("The ferry is blue.", ["handbook"])


def test_an_agent_over_mcp(run: Callable[..., tuple[Names, str]], model: Model):
    _, printed = run("mcp-agent.md")
    assert printed == f"{AT_NOON}\n"
    tools = [one["function"]["name"] for one in model.asked[-1].body["tools"]]
    assert sorted(tools) == ["fetch", "search"]


# --- retrievers --------------------------------------------------------------------------------


def test_langchain_s_retriever_finds_passages_and_their_places(
    run: Callable[..., tuple[Names, str]],
):
    names, printed = run("langchain.md", "A retriever")

    assert FERRY in printed
    best = names["retriever"].invoke("When does the ferry leave?")[0]
    assert best.page_content == FERRY
    assert (best.metadata["start"], best.metadata["end"]) == (0, len(FERRY))
    assert best.metadata["number"] == 0
    later = asyncio.run(names["retriever"].ainvoke("bread before dawn"))
    assert later[0].page_content == TEXTS[1]

    filters = {"AND": [{"key": "number", "value": "2", "filterType": "numeric"}]}
    narrow = names["RecollectRetriever"](client=names["client"], tag="handbook", filters=filters)
    assert [one.page_content for one in narrow.invoke("ferry")] in ([], [TEXTS[2]])
    few = names["RecollectRetriever"](client=names["client"], tag="handbook", k=2)
    assert len(few.invoke("ferry pier")) == 2  # passages, of which one document has many


def test_llamaindex_s_retriever_finds_nodes_with_scores(
    run: Callable[..., tuple[Names, str]],
):
    names, _ = run("llamaindex.md", "A retriever")
    nodes = names["nodes"]
    few = names["RecollectNodes"](names["client"], tag="handbook", k=2)

    assert len(few.retrieve("ferry pier")) == 2
    assert nodes[0].node.get_content() == FERRY
    assert nodes[0].score > 0
    assert (nodes[0].node.start_char_idx, nodes[0].node.end_char_idx) == (0, len(FERRY))


def test_llamaindex_s_reader_brings_whole_documents(run: Callable[..., tuple[Names, str]]):
    found = run("llamaindex.md", "A reader")[0]["documents"]

    assert {one.text for one in found} == set(TEXTS)


# --- n8n ---------------------------------------------------------------------------------------


def test_the_workflow_of_n8n_adds_waits_and_finds(live_url: str, key: str, app: App):
    """Its nodes, in the order of its links, each as n8n would send it."""
    [block] = blocks("n8n.md", "json")
    workflow = json.loads(block)
    nodes = {one["name"]: one for one in workflow["nodes"]}
    assert len({one["id"] for one in nodes.values()}) == len(nodes)
    name, answers = "Start", list[Any]()
    assert nodes[name]["type"] == "n8n-nodes-base.manualTrigger"
    while name in workflow["connections"]:
        [[link]] = workflow["connections"][name]["main"]
        name = link["node"]
        assert nodes[name]["type"] == "n8n-nodes-base.httpRequest"
        asks = nodes[name]["parameters"]
        assert asks["genericAuthType"] == "httpBearerAuth"
        answer = httpx.request(
            asks["method"],
            asks["url"].replace("http://127.0.0.1:6767", live_url),
            headers={"Authorization": f"Bearer {key}"},
            json=json.loads(asks["jsonBody"]) if asks.get("sendBody") else None,
            timeout=60,
            trust_env=False,
        )
        assert answer.status_code == 200, answer.text
        answers.append(answer.json())
        if name == "Add":
            drain(app)
    added, waited, found = answers
    assert waited["id"] == added["id"]
    assert waited["status"] == "done"
    assert found["results"][0]["chunks"][0]["content"] == FERRY


# --- assistants --------------------------------------------------------------------------------

Connected = AbstractAsyncContextManager[Client]


def test_the_settings_of_assistants_connect(settings: dict[str, str], tmp_path: Path):
    """Each block of docs/mcp.md, by the client of the official SDK: by what stands there."""
    parts = sections(DOCS / "mcp.md")
    ways: dict[str, Callable[[], Connected]] = {}
    for heading, text in parts.items():
        for n, block in enumerate(re.findall(r"```json\n(.+?)```", text, re.DOTALL)):
            ways[f"{heading} {n}"] = partial(_by, json.loads(block), settings)
        for n, line in enumerate(re.findall(r"\bclaude mcp add .+?(?=`|$)", text, re.MULTILINE)):
            if "--header" in line or "--env" in line:
                ways[f"{heading} command {n}"] = partial(_by_command, line, settings)
    assert len(ways) == 7, sorted(ways)

    async def talk() -> None:
        for name, way in ways.items():
            async with way() as client:
                told = await client.call_tool("search", {"query": "When does the ferry leave?"})
                assert not told.is_error, (name, told)
                assert told.structured_content is not None
                texts = [
                    passage["text"]
                    for one in told.structured_content["results"]
                    for passage in one["passages"]
                ]
                # The tag of the examples is `notes`, where nothing is.
                assert texts == [], name

    anyio.run(talk)


def _by(given: dict[str, Any], settings: dict[str, str]) -> Connected:
    """As an assistant reads its settings."""
    servers = given.get("mcpServers") or given.get("servers")
    one = next(iter(servers.values())) if servers else {**given, "url": given["server_url"]}
    if "command" in one:
        assert set(one["env"]) == {"RECOLLECT_URL", "RECOLLECT_API_KEY"}
        return _by_stdio(one["args"], settings)
    return _by_http(one["url"], one["headers"], settings)


def _by_command(line: str, settings: dict[str, str]) -> Connected:
    words = shlex.split(line)
    if "http" in words:
        address = next(word for word in words if word.startswith("http://"))
        given = [words[n + 1] for n, word in enumerate(words) if word == "--header"]
        return _by_http(address, dict(one.split(": ", 1) for one in given), settings)
    command = words[words.index("--") + 1 :]
    assert command[0].endswith("/recollect")
    return _by_stdio(command[1:], settings)


@asynccontextmanager
async def _by_http(
    address: str, headers: dict[str, str], settings: dict[str, str]
) -> AsyncGenerator[Client]:
    assert httpx.URL(address).path == "/mcp"
    assert headers["X-Recollect-Tag"] == "notes"
    scheme, _, secret = headers["Authorization"].partition(" ")
    assert scheme == "Bearer"
    assert secret == "sm_…" or "RECOLLECT_API_KEY" in secret or "recollect-key" in secret
    sent = {**headers, "Authorization": f"Bearer {settings['RECOLLECT_API_KEY']}"}
    async with httpx2.AsyncClient(headers=sent, timeout=60, trust_env=False) as http:
        transport = streamable_http_client(f"{settings['RECOLLECT_URL']}/mcp", http_client=http)
        async with Client(transport) as client:
            yield client


@asynccontextmanager
async def _by_stdio(arguments: list[str], settings: dict[str, str]) -> AsyncGenerator[Client]:
    started = StdioServerParameters(
        command=sys.executable,
        args=["-m", "recollect", *arguments],
        env={name: settings[name] for name in ("RECOLLECT_URL", "RECOLLECT_API_KEY")},
        cwd=DOCS.parent,
    )
    async with Client(started) as client:
        yield client


# --- what packages of their own are installed for ------------------------------------------------


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Those of LangChain and LlamaIndex for models."""
    site = tmp_path_factory.mktemp("packages")
    install(site, "--no-deps", "--require-hashes", "-r", str(HERE / "models.txt"))
    return site


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("page", "headings"),
    [
        ("langchain.md", ("A retriever", "In a chain")),
        ("llamaindex.md", ("A retriever", "A query engine")),
    ],
)
def test_a_model_of_the_framework_answers(
    page: str, headings: tuple[str, ...], packages: Path, settings: dict[str, str], tmp_path: Path
):
    program = tmp_path / "recipe.py"
    program.write_text("\n".join(blocks(page, "python", "", *headings)))
    said = _printed([sys.executable, str(program)], tmp_path, settings, PYTHONPATH=str(packages))
    assert AT_NOON in said
    assert FERRY in said


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_ai_sdk_answers(node: str, settings: dict[str, str], tmp_path: Path):
    for name in ("package.json", "package-lock.json"):
        shutil.copy(HERE / name, tmp_path)
    npm = Path(node).parent.parent / "lib/node_modules/npm/bin/npm-cli.js"
    command = [node, str(npm)] if npm.exists() else [shutil.which("npm") or "npm"]
    flags = ["ci", "--ignore-scripts", "--no-audit", "--no-fund"]
    done = subprocess.run(
        [*command, *flags], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    if done.returncode:
        pytest.skip(f"npm cannot install the packages here: {done.stderr[-300:]}")
    [program] = blocks("ai-sdk.md", "js")
    (tmp_path / "answer.mjs").write_text(program)
    said = _printed([node, "answer.mjs"], tmp_path, settings)
    assert said.startswith(AT_NOON)
    assert "[1]" in said


def _printed(command: list[str], folder: Path, settings: dict[str, str], **environment: str) -> str:
    ran = subprocess.run(
        command,
        cwd=folder,
        env={
            "PATH": os.environ["PATH"],  # noqa: TID251 # of the child
            "HOME": str(folder),
            **settings,
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-5000:]
    return ran.stdout


# --- all of them -------------------------------------------------------------------------------


def test_every_recipe_is_run_and_linked():
    index = (PAGES / "README.md").read_text()
    source = Path(__file__).read_text()
    for page in PAGES.glob("*.md"):
        if page.name == "README.md":
            continue
        assert f"({page.name})" in index
        assert f'"{page.name}"' in source, f"{page.name} is not run"
        for heading, text in sections(page).items():
            if heading and "```" in text:
                assert f'"{heading}"' in source, (page.name, heading)
