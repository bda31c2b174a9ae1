"""A service with OpenAI's `POST /chat/completions`, scripted: it answers what a test decides.

It is strict where the published one is: a request of another shape, or with a schema that strict
mode would not take, is a fault of ours and is kept in `faults`; an answer that does not fit the
schema asked for is a fault of the test. `misbehave` says what the next requests get instead. With
`foreign` it takes what other programs ask for, too: their own messages, tools, streams.
"""

import json
import select
import socket
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import jsonschema


def _object(**properties: Any) -> dict[str, Any]:
    """All of these, and nothing else."""
    return {
        "type": "object",
        "required": list(properties),
        "additionalProperties": False,
        "properties": properties,
    }


def _message(role: str) -> dict[str, Any]:
    return _object(role={"const": role}, content={"type": "string", "minLength": 1})


_SCHEMA = _object(
    name={"type": "string", "pattern": "^[a-zA-Z0-9_-]{1,64}$"},
    strict={"const": True},
    schema={"type": "object"},
)
_MESSAGES = {
    "type": "array",
    "minItems": 2,
    "prefixItems": [_message("system"), _message("user")],
    "items": False,
}
STREAMED = _object(
    model={"type": "string", "minLength": 1}, messages=_MESSAGES, stream={"const": True}
)
"""… and as far as we use its streams."""
REQUEST = _object(
    model={"type": "string", "minLength": 1},
    messages=_MESSAGES,
    response_format={
        "oneOf": [
            {"const": {"type": "json_object"}},
            _object(type={"const": "json_schema"}, json_schema=_SCHEMA),
        ]
    },
)
"""What the published service takes, as far as we use it."""
REQUEST["required"].remove("response_format")
_TAKEN = jsonschema.Draft202012Validator(REQUEST)
_TAKEN_STREAMED = jsonschema.Draft202012Validator(STREAMED)


@dataclass(frozen=True)
class Asked:
    """One request."""

    path: str
    authorization: str | None
    body: Mapping[str, Any]

    @property
    def system(self) -> str:
        return self.body["messages"][0]["content"]

    @property
    def data(self) -> Any:
        """The user's message, which is JSON."""
        return json.loads(self.body["messages"][1]["content"])

    @property
    def schema(self) -> Mapping[str, Any] | None:
        """What the answer has to fit; None where JSON of any kind was asked for."""
        form = self.body.get("response_format", {"type": "text"})
        return form["json_schema"]["schema"] if form["type"] == "json_schema" else None


@dataclass(frozen=True)
class Status:
    """Answer with this instead."""

    status: int
    body: str = "{}"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class Says:
    """The model says this, whatever was asked for."""

    text: str | None
    refusal: str | None = None
    finish: str = "stop"


@dataclass(frozen=True)
class Calls:
    """The model wants this tool called."""

    tool: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True)
class Silent:
    """No answer until the test is over."""


@dataclass(frozen=True)
class Streams:
    """The model says these pieces, one event each. `ending`: the last events as they are on the
    line; without `[DONE]` and `finish_reason` the stream is cut. `waits`: it goes on, silent, until
    the test is over or the client has gone."""

    pieces: tuple[str, ...]
    ending: str = 'data: {"choices":[{"delta":{},"finish_reason":"stop"}]}\n\ndata: [DONE]\n\n'
    waits: bool = False


Fault = Status | Says | Silent | Streams | Calls


def nothing(asked: Asked) -> object:
    raise AssertionError("this model was not to be asked")


@dataclass
class Model:
    answer: Callable[[Asked], object] = nothing
    """what the model says to a request, as JSON; a Fault to misbehave by what was asked"""
    misbehave: list[Fault] = field(default_factory=list[Fault])
    """what the next requests get, first come first"""
    knows_schemas: bool = True
    knows_forms: bool = True
    """whether it takes a `response_format`; some servers refuse any"""
    in_parts: bool = False
    """whether a message is a list of parts, of which one is a thought"""
    foreign: bool = False
    url: str = ""
    asked: list[Asked] = field(default_factory=list[Asked])
    faults: list[str] = field(default_factory=list[str])
    """what was wrong with requests, and with the test's own answers"""
    at_once: int = 0
    """the most requests that were there at the same time"""
    left: threading.Event = field(default_factory=threading.Event)
    """a client has gone while a stream waited"""
    over: threading.Event = field(default_factory=threading.Event)
    _there: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def respond(self, asked: Asked) -> tuple[int, Mapping[str, str], str] | Streams | None:
        """Status, headers and body; None: no answer at all."""
        with self._lock:
            self.asked.append(asked)
            self._there += 1
            self.at_once = max(self.at_once, self._there)
            fault = self.misbehave.pop(0) if self.misbehave else None
        try:
            return self._respond(asked, fault)
        finally:
            with self._lock:
                self._there -= 1

    def _respond(
        self, asked: Asked, fault: Fault | None
    ) -> tuple[int, Mapping[str, str], str] | Streams | None:
        wrong = None if self.foreign else _wrong(asked)
        if wrong is not None:
            self.faults.append(wrong)
            return 400, {}, json.dumps({"error": {"code": "invalid_request", "message": wrong}})
        refused = not self.knows_schemas if asked.schema is not None else not self.knows_forms
        if refused and "response_format" in asked.body:
            told = {"message": "response_format", "type": "invalid_request_error"}
            return 400, {}, json.dumps({"error": told})
        said = fault or self._say(asked)
        match said:
            case Status():
                return said.status, said.headers, said.body
            case Streams():
                return said
            case Silent():
                self.over.wait(60)
                return None
            case Says() | Calls():
                return 200, {}, json.dumps(self._completion(said, asked))
            case _:
                return 200, {}, json.dumps(self._completion(Says(json.dumps(said)), asked))

    def _completion(self, said: Says | Calls, asked: Asked) -> dict[str, Any]:
        completion = _completion(said, asked)
        if self.in_parts and isinstance(said, Says):
            thought = {"type": "thinking", "thinking": [{"type": "text", "text": '{"no": 1}'}]}
            halves = [said.text[:5], said.text[5:]] if said.text else []
            parts = [{"type": "text", "text": half} for half in halves]
            completion["choices"][0]["message"]["content"] = [thought, *parts]
        return completion

    def _say(self, asked: Asked) -> object:
        if asked.schema is not None and set(asked.schema.get("properties", ())) == {"fine"}:
            return {"fine": True}
        try:
            said = self.answer(asked)
            if asked.schema is not None and not isinstance(said, Fault):
                _accepted(json.dumps(asked.schema)).validate(said)
        except (AssertionError, KeyError, TypeError, jsonschema.ValidationError) as error:
            self.faults.append(f"the test's own answer: {error}")
            return Status(500)
        return said


def _wrong(asked: Asked) -> str | None:
    """What the published service would not take."""
    if asked.path != "/v1/chat/completions":
        return f"no such path: {asked.path}"
    try:
        streamed = "stream" in asked.body
        (_TAKEN_STREAMED if streamed else _TAKEN).validate(asked.body)
        if not streamed and asked.schema is None and "JSON" not in asked.system:
            return "the word JSON must be among the messages"
        if asked.schema is not None:
            _accepted(json.dumps(asked.schema))
        json.loads(asked.body["messages"][1]["content"])
    except jsonschema.ValidationError as error:
        return f"{list(error.absolute_path)}: {error.message[:200]}"
    except (jsonschema.SchemaError, ValueError) as error:
        return str(error)[:200]
    return None


@lru_cache
def _accepted(schema: str) -> Any:
    """What judges by a schema, given as JSON: each is looked at once, which takes longer than all
    else here. Raises SchemaError, and ValueError where strict mode would not take it.
    """
    parsed = json.loads(schema)
    jsonschema.Draft202012Validator.check_schema(parsed)
    _check_strict(parsed)
    return jsonschema.Draft202012Validator(parsed)


def _check_strict(schema: Any) -> None:
    """Strict mode: every object lists all its properties as required, and takes no others."""
    if isinstance(schema, dict):
        if schema.get("type") == "object" and (
            schema.get("additionalProperties") is not False
            or set(schema.get("required", ())) != set(schema["properties"])
        ):
            raise ValueError("an object of the schema is not strict")
        for part in schema.values():
            _check_strict(part)
    elif isinstance(schema, list):
        for part in schema:
            _check_strict(part)


def _completion(said: Says | Calls, asked: Asked) -> dict[str, Any]:
    prompt = sum(len(message.get("content") or "") for message in asked.body["messages"]) // 4
    if isinstance(said, Calls):
        told, finish = 0, "tool_calls"
        function = {"name": said.tool, "arguments": json.dumps(said.arguments)}
        calls = [
            {"id": f"call_{len(asked.body['messages'])}", "type": "function", "function": function}
        ]
        message = {"role": "assistant", "content": None, "tool_calls": calls}
    else:
        told, finish = len(said.text or "") // 4, said.finish
        message = {"role": "assistant", "content": said.text, "refusal": said.refusal}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_750_000_000,
        "model": asked.body["model"],
        "choices": [
            {
                "index": 0,
                "finish_reason": finish,
                "logprobs": None,
                "message": message,
            }
        ],
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": told,
            "total_tokens": prompt + told,
        },
    }


@contextmanager
def running(model: Model) -> Generator[Model]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # or each body waits 40 ms for the head's acknowledgement

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            asked = Asked(self.path, self.headers["authorization"], json.loads(body))
            answer = model.respond(asked)
            if answer is None:
                self.close_connection = True
                return
            if isinstance(answer, Streams):
                self.close_connection = True
                self.stream(answer)
                return
            status, headers, text = answer
            self.send_response(status)
            for name, value in {"content-type": "application/json", **headers}.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(text.encode())))
            self.end_headers()
            self.wfile.write(text.encode())

        def stream(self, told: Streams) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("connection", "close")
            self.end_headers()
            for piece in told.pieces:
                delta = {"choices": [{"delta": {"content": piece}, "finish_reason": None}]}
                self.wfile.write(f"data: {json.dumps(delta)}\n\n".encode())
            self.wfile.flush()
            if told.waits:
                while not model.over.is_set():
                    readable, _, _ = select.select([self.connection], [], [], 0.02)
                    if readable and not self.connection.recv(1, socket.MSG_PEEK):
                        model.left.set()
                        return
            self.wfile.write(told.ending.encode())

        def log_message(self, format: str, *args: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        model.url = f"http://127.0.0.1:{server.server_port}/v1"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield model
        finally:
            model.over.set()
            server.shutdown()
            thread.join()
