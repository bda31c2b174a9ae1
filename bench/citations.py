"""Answers to some 200 questions about our own documentation, and the citations in them.

The questions are headings of `docs/`; the model is a server here, which streams. One cites what it
was given; the other invents citations, in all the forms that models use.
"""

import json
import re
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from bench.figures import Figure
from bench.ground import PROJECT, Client, Ground, until

_HEADING = re.compile(r"^#{1,3} +(.+)$", re.MULTILINE)
INVENTED = ("[99]", "[source 42]", "[1-9999]", "[0]", "[Doc 7, page 3]", "[77, 78]", "【55】")
"""Behind each sentence of the model that lies."""


@dataclass(frozen=True, slots=True)
class Size:
    questions: int


FULL = Size(questions=200)
QUICK = Size(questions=60)
TINY = Size(questions=3)

Write = Callable[[Sequence[Mapping[str, Any]]], str]


def measure(ground: Ground, size: Size) -> Generator[Figure]:
    for id, write, what in (
        ("honest", _honest, "a model that cites what it was given"),
        ("lying", _lying, "a model that invents citations"),
    ):
        with _model(write) as url, ground.serving(llm_url=url, llm_model="bench") as service:
            client = service.client()
            questions = _add_documentation(client)[: size.questions]
            answers = [client.send("POST", "/v4/answer", {"q": one}) for one in questions]
        yield from _figures(id, what, answers)


def _add_documentation(client: Client) -> list[str]:
    """The questions that it answers."""
    asked: list[str] = []
    for path in sorted((PROJECT / "docs").glob("*.md")):
        text = path.read_text()
        client.add(text, customId=path.name, containerTag="docs")
        title, *headings = _HEADING.findall(text)
        asked += [f"{heading} ({title})" for heading in headings]
    until(client.drained)
    return asked[:: max(1, len(asked) // 200)]


def _figures(id: str, what: str, answers: Sequence[Any]) -> Generator[Figure]:
    sentences = [(told, one) for told in answers for one in told["sentences"]]
    given = [{source["number"] for source in told["sources"]} for told, _ in sentences]
    valid = [
        set(one["sources"]) <= numbers
        for (_, one), numbers in zip(sentences, given, strict=True)
        if one["sources"]
    ]
    unmarked = [one for _, one in sentences if not one["sources"] and not one["unsupported"]]
    shown = sum(text in one["text"] for _, one in sentences for text in INVENTED)
    answered = sum(bool(told["sentences"]) for told in answers)
    yield Figure(
        f"citations.{id}.cited",
        f"sentences that cite a passage, {what}; {answered} of {len(answers)} questions answered",
        len(valid) / max(1, len(sentences)),
        "share",
    )
    yield Figure(
        f"citations.{id}.invented",
        f"citations that name nothing given, or sentences without one that are not marked, {what}",
        valid.count(False) + len(unmarked) + shown,
        "",
    )


def _honest(sources: Sequence[Mapping[str, Any]]) -> str:
    said = [f"{one['text'][:80].strip().splitlines()[0]} [{one['number']}]." for one in sources[:3]]
    return " ".join(said)


def _lying(sources: Sequence[Mapping[str, Any]]) -> str:
    return " ".join(f"Number {n} is so {wrong}." for n, wrong in enumerate(INVENTED))


@contextmanager
def _model(write: Write) -> Generator[str]:
    """The address of a server that streams what is written of the sources that it is given."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # as the library calls it
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            said = write(json.loads(body["messages"][1]["content"])["sources"])
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.end_headers()
            for at in range(0, len(said), 7):
                piece = {"choices": [{"delta": {"content": said[at : at + 7]}}]}
                self.wfile.write(f"data: {json.dumps(piece)}\n\n".encode())
            self.wfile.write(b"data: [DONE]\n\n")

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()
