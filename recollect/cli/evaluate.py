"""`recollect evaluate`: how well the search finds what a tag's test questions expect."""

import json
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

import typer

from recollect.cli.client import ApiKey, AsJson, Service, Url, open_service
from recollect.cli.output import console, echo_json, fail, one_line, table, tell
from recollect.errors import NotFoundError

LONGEST = 600.0
"""Seconds that a step may take, with a reranker or a model that is slow."""
AT_ONCE = 20
"""Questions that the service makes in one request."""
NO_MORE = (
    "every other document of the tag has one already, or has no headings; with a language model"
    " (RECOLLECT_LLM_URL) the service makes questions of any document"
)
LARGEST = 16_000_000
"""Bytes of a file of questions."""


def register(app: typer.Typer) -> None:
    app.command()(evaluate)


def evaluate(
    tag: Annotated[str, typer.Argument(metavar="TAG", help="The container tag to search.")],
    bring: Annotated[
        Path | None,
        typer.Option(
            "--import", help="Add the questions of this file (JSON lines); starts no run."
        ),
    ] = None,
    make: Annotated[
        int | None,
        typer.Option(
            "--make",
            min=1,
            max=1_000,
            help="Make this many questions from documents; starts no run.",
        ),
    ] = None,
    export: Annotated[
        bool, typer.Option("--export", help="Print the questions as JSON lines; starts no run.")
    ] = False,
    rerank: Annotated[
        bool, typer.Option("--rerank", help="Let the reranker put the best first.")
    ] = False,
    rewrite: Annotated[
        bool, typer.Option("--rewrite", help="Let the language model reword each question.")
    ] = False,
    as_json: AsJson = False,
    url: Url = None,
    key: ApiKey = None,
) -> None:
    """Ask a tag's test questions and say where the search finds what they expect.

    Example: recollect evaluate team:a --import questions.jsonl
    """
    if sum((bring is not None, make is not None, export)) > 1:
        fail("--import, --make and --export exclude each other", code=2)
    service = open_service(url, key, timeout=LONGEST)
    if bring is not None:
        body = {"containerTag": tag, "lines": _read(bring)}
        told = service.send("POST", "/v3/test-questions/import", body)
        if as_json:
            echo_json(told)
        else:
            tell(f"questions added to {tag}: {len(told['questions'])}")
    elif make is not None:
        made = _make(service, tag, make)
        if len(made) < make:
            tell(f"{len(made)} made: {NO_MORE}")
        if as_json:
            echo_json({"questions": made})
        elif made:
            table(["question", "document"], [[one["question"], one["document"]] for one in made])
    elif export:
        _export(service, tag)
    elif not _questions(service, tag):
        fail(f"{tag} has no test questions; add some with --import, or --make some", code=2)
    else:
        told = _run(service, {"containerTag": tag, "rerank": rerank, "rewriteQuery": rewrite})
        if as_json:
            echo_json(told)
        else:
            _print(told)
        _tell_missing(service, tag, told["results"])


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > LARGEST:
            fail(f"{path} has more than {LARGEST:,} bytes", code=2)
        return path.read_text("utf-8-sig")
    except OSError as error:
        fail(f"{path}: {error.strerror}", code=2)
    except UnicodeDecodeError:
        fail(f"{path} is not UTF-8 text", code=2)


def _make(service: Service, tag: str, most: int) -> list[dict[str, Any]]:
    """As many as there are documents for, at most."""
    made: list[dict[str, Any]] = []
    with console(err=True).status("Making questions …"):
        while len(made) < most:
            body = {"containerTag": tag, "limit": min(AT_ONCE, most - len(made))}
            more = service.send("POST", "/v3/test-questions/make", body)["questions"]
            if not more:
                break
            made += more
    return made


def _questions(service: Service, tag: str) -> list[dict[str, Any]]:
    return service.get(f"/v3/test-questions?containerTag={quote(tag, safe='')}")["questions"]


def _export(service: Service, tag: str) -> None:
    for one in _questions(service, tag):
        named = {name: one[name] for name in ("question", "document", "words")}
        line = {name: value for name, value in named.items() if value is not None}
        typer.echo(json.dumps(line))


def _run(service: Service, body: dict[str, Any]) -> dict[str, Any]:
    run = service.send("POST", "/v3/test-runs", body)
    address = f"/v3/test-runs/{run['id']}"
    with console(err=True).status("Asking …") as status:
        while run["finishedAt"] is None:
            run = service.send("POST", f"{address}/step")
            status.update(f"Asked {run['asked']} of {run['questions']} …")
    return service.get(address)


def _print(told: dict[str, Any]) -> None:
    rows = [
        [one_line(one["question"]), _rank(one["asked"], one["rank"]), _before(one)]
        for one in told["results"]
    ]
    table(["question", "rank", "before"], rows)
    names = {"hitAt1": "hit@1", "hitAt5": "hit@5", "hitAt10": "hit@10", "mrr": "MRR"}
    before = told["runBefore"]
    figures = [
        [shown, f"{told['run'][name]:.3f}", "" if before is None else f"{before[name]:.3f}"]
        for name, shown in names.items()
    ]
    table(["figure", "now", "before"], figures)


def _tell_missing(service: Service, tag: str, results: list[dict[str, Any]]) -> None:
    """Name the expected documents that no search of the tag can find, because it has none such."""
    lost = {one["questionId"] for one in results if one["asked"] and one["rank"] is None}
    named = {one["document"] for one in _questions(service, tag) if one["id"] in lost}
    for document in sorted(named - {None}):
        try:
            found = service.get(f"/v3/documents/{quote(document, safe='')}")
        except NotFoundError:
            tell(f"a question expects the document {document}, which does not exist")
            continue
        if tag not in found["containerTags"]:
            tell(f"a question expects the document {document}, which does not have the tag {tag}")


def _before(one: dict[str, Any]) -> str:
    return _rank(one["askedBefore"], one["rankBefore"])


def _rank(asked: bool, rank: int | None) -> str:
    if not asked:
        return ""
    return "not found" if rank is None else str(rank)
