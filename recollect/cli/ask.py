"""`recollect ask`: an answer with the passages that it rests on."""

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from typing import Annotated, Any

import typer
from rich.padding import Padding
from rich.text import Text

from recollect.cli.client import (
    ApiKey,
    AsJson,
    AsOf,
    Service,
    ServiceAnswer,
    Url,
    open_service,
)
from recollect.cli.output import console, counted, echo_json, fail, harmless, one_line, tell
from recollect.errors import Transient
from recollect.search import places

PASSAGE = 240
"""Characters of a source that a person is shown."""
LONGEST = 600.0
"""Seconds that the service's own model may take (`RECOLLECT_LLM_TIMEOUT`)."""
ENDS = {
    "nothing_found": "Nothing relevant was found, so no model was asked.",
    "not_answered": "What was found does not answer the question.",
}


def register(app: typer.Typer) -> None:
    app.command()(ask)


def ask(
    words: Annotated[list[str], typer.Argument(metavar="QUESTION", help="The question.")],
    tag: Annotated[
        list[str] | None,
        typer.Option("--tag", help="Only from this container tag; repeat for several."),
    ] = None,
    rerank: Annotated[
        bool, typer.Option("--rerank", help="Let the reranker put the best first.")
    ] = False,
    as_of: AsOf = None,
    as_json: AsJson = False,
    url: Url = None,
    key: ApiKey = None,
) -> None:
    """Answer a question from your documents and memories, each sentence with its sources.

    The language model of RECOLLECT_LLM_URL writes it; the service checks every citation.

    Example: recollect ask when do we meet --tag team:a
    """
    question = " ".join(words)
    if not question.strip():
        fail("the question is empty", code=2)
    service = open_service(url, key, timeout=LONGEST)
    body = {"q": question, "containerTags": tag, "rerank": rerank, "asOf": as_of}
    with console(err=True).status("Reading what answers …"):
        if as_json:
            echo_json(service.send("POST", "/v4/answer", body))
            return
        told = asyncio.run(_followed(service, {**body, "stream": True}))
    _print_sources(told)
    for warning in told.get("warnings") or ():
        tell(warning)
    if told["state"] == "cut":
        tell(f"The answer ends here: {told['reason']}")
    elif told["state"] == "nothing_found" and (unused := service.unused(tag)):
        tell(f"Nothing was found{unused}.")
    elif told["state"] != "answered":
        tell(ENDS.get(told["state"]) or f"No answer: {told['reason']}")
    if told["droppedCitations"]:
        number = counted(told["droppedCitations"], "citation")
        tell(f"{number} named nothing that was found; left out.")


async def _followed(service: Service, body: Mapping[str, Any]) -> dict[str, Any]:
    """Print each sentence as it comes; all that was said."""
    told = ServiceAnswer(sentences=[], sources=[])
    async with aclosing(service.events("/v4/answer", body)) as events:
        async for name, data in events:
            if name == "sentence":
                told["sentences"].append(data)
                _print_sentence(data)
            else:
                told |= data
    if "state" not in told:
        raise Transient("the service ended in the middle of its answer")
    return told


def _print_sentence(sentence: Mapping[str, Any]) -> None:
    marks = "".join(f" [{number}]" for number in sentence["sources"])
    doubt = " (no source)" if sentence["unsupported"] else ""
    out, text = console(), harmless(sentence["text"])
    out.print(Text.assemble(text, (f"{marks}{doubt}", "dim")), soft_wrap=not out.is_terminal)


def _print_sources(told: Mapping[str, Any]) -> None:
    cited = {number for sentence in told["sentences"] for number in sentence["sources"]}
    shown = [one for one in told["sources"] if one["number"] in cited or not cited]
    if shown and told["sentences"]:
        typer.echo()
    out = console()
    for source in shown:
        named = source.get("title") or source.get("filepath") or source.get("url") or "a memory"
        id = f"id {source.get('documentId') or source.get('memoryId')}"
        place = one_line(places.in_words(source.get("place") or {}))
        where = f"  {place} · {id}" if place else f"  {id}"
        heading = Text.assemble(f"[{source['number']}] ", (one_line(named), "bold"), where)
        content = one_line(source["content"])
        passage = f"{content[:PASSAGE]}{'…' if len(content) > PASSAGE else ''}"
        if out.is_terminal:
            out.print(heading, Padding(Text(passage, "dim"), (0, 0, 0, 4)))
        else:
            typer.echo(f"{heading.plain}\n    {passage}")
