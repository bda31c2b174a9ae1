"""Items of the OWASP ASVS that no other test shows; `docs/security.md` has the table of all."""

import ast
import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from re import _constants as codes  # pyright: ignore[reportAttributeAccessIssue]
from re import _parser as parser  # pyright: ignore[reportAttributeAccessIssue]
from typing import Any

import httpx
import psycopg
import pytest
import structlog
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict
from structlog.testing import LogCapture

import recollect
from recollect import documents, extract
from recollect.api import edge
from recollect.db.schema import migrate
from recollect.errors import SetupError
from recollect.model import Scope
from tests.conftest import capture_logs
from tests.house.facts import trees

PACKAGE = Path(recollect.__file__).parent
BOUNDED = {
    "connectors/notion/_markdown.py": "each round begins with a space and a name, or a brace",
    "extract/office/doc.py": "each round begins with a backslash",
}
"""Files with a repetition in a repetition whose rounds cannot be cut in two ways."""
DICE = {
    *("loop.py", "sync/runs.py", "worker/webhooks.py"),
    *("ops/_words.py", "ops/_older_texts.py", "ops/_sound_memories.py"),
}
"""Modules that may throw dice that can be foretold: for pauses, and for what verify looks at."""


@cache
def modules() -> list[tuple[str, Sequence[ast.AST]]]:
    """Name and all nodes of each."""
    return [(path, list(ast.walk(tree))) for path, tree in trees().items()]


# --- V1: encoding and parsing --------------------------------------------------------------------


def repeats_within(pattern: Any, inside: bool = False) -> bool:
    """Whether an unbounded repetition stands in another that may take back what it took."""
    for code, argument in pattern:
        parts: list[Any] = []
        within = inside
        if code in (codes.MAX_REPEAT, codes.MIN_REPEAT):
            endless = argument[1] == codes.MAXREPEAT
            if inside and endless:
                return True
            within, parts = inside or endless, [argument[2]]
        elif code is codes.SUBPATTERN:
            parts = [argument[3]]
        elif code is codes.BRANCH:
            parts = argument[1]
        elif code in (codes.ASSERT, codes.ASSERT_NOT):
            parts = [argument[1]]
        if any(repeats_within(part, within) for part in parts):
            return True
    return False


def patterns() -> Iterator[tuple[str, str | bytes, int]]:
    """All regular expressions that are written out, with the flags that change their parsing."""
    for name, nodes in modules():
        for call in nodes:
            match call:
                case ast.Call(
                    func=ast.Attribute(value=ast.Name("re")),
                    args=[ast.Constant(value=str() | bytes() as pattern), *_],
                ):
                    verbose = "VERBOSE" in ast.unparse(call) or "re.X" in ast.unparse(call)
                    yield name, pattern, re.VERBOSE if verbose else 0
                case _:
                    pass


def test_no_expression_takes_exponential_time() -> None:
    found = list(patterns())
    risky = {name for name, one, flags in found if repeats_within(parser.parse(one, flags))}

    assert len(found) > 150
    assert risky == set(BOUNDED)


@pytest.mark.parametrize(
    "round_", ["<!---->", "<!-- -->\n", "<?xml?>", "<?xml?><!---->", " ", "<!--", "\ufeff"]
)
def test_what_tells_a_kind_ends_at_once(round_: str) -> None:
    """It runs in the API, before any sandbox, on the first bytes of what was sent."""
    head = (round_ * extract.HEAD).encode()[: extract.HEAD - 1] + b"x"
    began = time.thread_time()

    for name in (None, "a.html", "a.txt", "a.xml", "a.eml", "a.csv"):
        extract.detect(head, name=name, mime=None, forced=None)

    assert time.thread_time() - began < 2


def test_no_table_is_written_that_a_spreadsheet_would_compute() -> None:
    """1.2.10 asks for escaped cells; here nothing writes CSV or a spreadsheet at all."""
    writers = [
        name
        for name, nodes in modules()
        for node in nodes
        if isinstance(node, ast.Attribute)
        and node.attr in ("DictWriter", "writer", "Workbook", "to_csv", "to_excel")
    ]

    assert writers == []


# --- V4: answers ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "status", "kind"),
    [
        ("/v3/documents/counts", 200, "application/json"),
        ("/v3/documents/none", 404, "application/json"),
        ("/v3/nothing", 404, "application/json"),
        ("/v3/search", 405, "application/json"),
        ("/v3/openapi", 200, "application/json"),
        ("/docs", 200, "text/html; charset=utf-8"),
        ("/v3/files/a/b?until=1&mark=x", 403, "application/json"),
    ],
)
def test_every_answer_says_what_it_is(
    client: httpx.Client, path: str, status: int, kind: str
) -> None:
    answer = client.get(path)

    assert (answer.status_code, answer.headers["content-type"]) == (status, kind)
    assert answer.headers.get_list("x-content-type-options") == ["nosniff"]
    assert answer.headers["x-request-id"]
    assert "server" not in answer.headers or "uvicorn" in answer.headers["server"]


# --- V11: chance ---------------------------------------------------------------------------------


def test_what_may_be_guessed_is_made_for_pauses_and_samples_only() -> None:
    throwing = {
        name
        for name, nodes in modules()
        for node in nodes
        if (isinstance(node, ast.Import) and any(one.name == "random" for one in node.names))
        or (isinstance(node, ast.ImportFrom) and node.module == "random")
    }

    assert {name for name in throwing if not name.startswith("torture/")} == DICE


# --- V13: what the service stands on -------------------------------------------------------------


def test_a_database_that_forgets_is_refused(
    new_database: Callable[[], str], postgres_url: str
) -> None:
    url = new_database()
    name = conninfo_to_dict(url)["dbname"]
    with psycopg.connect(postgres_url, autocommit=True) as session:
        session.execute(
            sql.SQL("alter database {} set synchronous_commit = off").format(
                sql.Identifier(str(name))
            )
        )

    with pytest.raises(SetupError, match="synchronous_commit"):
        migrate(url)


# --- V16: log and errors -------------------------------------------------------------------------


def test_a_refused_request_is_logged_with_its_key(
    limited: Callable[..., httpx.Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    caught = LogCapture()
    processors = [structlog.contextvars.merge_contextvars, caught]
    logger = structlog.wrap_logger(None, processors, structlog.BoundLogger)
    monkeypatch.setattr(edge, "LOG", logger)

    answer = limited(scope=Scope.READ).post("/v3/documents", json={"content": "no"})

    assert answer.status_code == 403
    line = next(one for one in caught.entries if one["event"] == "request")
    assert (line["status"], line["route"]) == (403, "/v3/documents")
    assert line["key"]


def test_a_line_of_the_log_is_one_line_whatever_is_in_it() -> None:
    script = (
        "from recollect import log\n"
        "log.configure(process='worker')\n"
        "log.get('x').info('a\\nb', name='c\\r\\n{\"event\": \"forged\"}\\u2028d', bad='\\ud800')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    )

    [line] = done.stderr.splitlines()
    assert json.loads(line)["name"] == 'c\r\n{"event": "forged"}\u2028d'


def test_a_bug_is_told_without_its_words(
    served: Callable[..., httpx.Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(*_: object, **__: object) -> None:
        raise RuntimeError("select secret from nowhere")

    http = served()
    monkeypatch.setattr(documents, "counts", die)
    with capture_logs() as lines:
        answer = http.get("/v3/documents/counts")

    assert answer.status_code == 500
    assert answer.json()["error"] == "Internal server error"
    assert "nowhere" not in answer.text
    assert "Traceback" not in answer.text
    # The log has it, and the process lives on.
    assert [one["event"] for one in lines if one["event"] == "bug"] == ["bug"]
    monkeypatch.undo()
    assert http.get("/v3/documents/counts").status_code == 200
