"""Rerankers whose judgement is how many words passage and query share.

`Judge` is a service with `POST /rerank` on real HTTP, strict about what it is sent: in the shape of
Cohere, Jina and vLLM, in that of Voyage, or in that of text-embeddings-inference. `write_model`
makes the folder of a cross-encoder, as they are published, that onnxruntime really runs.
"""

import json
import re
import threading
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
from onnx import TensorProto, helper, numpy_helper
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors


def shared(query: str, passage: str) -> int:
    """Words of the passage that the query has."""
    words = set(re.findall(r"\w+", query.lower()))
    return sum(word in words for word in re.findall(r"\w+", passage.lower()))


# --- an endpoint ---------------------------------------------------------------------------------

_TEXTS = {"type": "array", "minItems": 1, "items": {"type": "string"}}
_KNOWN = {
    "query": {"type": "string", "minLength": 1},
    "documents": _TEXTS,
    "model": {"type": "string", "minLength": 1},
}
DOCUMENTS = {
    "type": "object",
    "required": ["query", "documents", "top_n"],
    "additionalProperties": False,
    "properties": {**_KNOWN, "top_n": {"type": "integer", "minimum": 1}},
}
VOYAGE = {
    "type": "object",
    "required": ["query", "documents"],
    "additionalProperties": False,
    "properties": _KNOWN,
}
TEXTS = {
    "type": "object",
    "required": ["query", "texts", "truncate"],
    "properties": {
        "query": {"type": "string", "minLength": 1},
        "texts": _TEXTS,
        "truncate": {"const": True},
    },
}
# Made once: to look at the schema takes longer than to look at a request.
_DOCUMENTS_ONLY = jsonschema.Draft202012Validator(DOCUMENTS)
_TEXTS_ONLY = jsonschema.Draft202012Validator(TEXTS)
_VOYAGE_ONLY = jsonschema.Draft202012Validator(VOYAGE)


@dataclass(frozen=True)
class Says:
    """This, instead of a judgement."""

    status: int = 200
    body: str = "{}"
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class Silent:
    """Nothing at all, until the test is over."""


@dataclass
class Judge:
    wants_texts: bool = False
    """text-embeddings-inference"""
    is_voyage: bool = False
    """takes no `top_n`, and calls the results `data`"""
    window: int = 1_000_000
    """characters of a passage; longer ones are refused"""
    too_long: int = 400
    """… with this status"""
    misbehave: list[Says | Silent] = field(default_factory=list[Says | Silent])
    """what the next requests get, first come first"""
    url: str = ""
    asked: list[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])
    authorizations: list[str | None] = field(default_factory=list[str | None])
    over: threading.Event = field(default_factory=threading.Event)

    def respond(self, path: str, body: Mapping[str, Any]) -> Says | None:
        self.asked.append(body)
        fault = self.misbehave.pop(0) if self.misbehave else None
        if isinstance(fault, Silent):
            self.over.wait(60)
            return None
        if fault is not None:
            return fault
        if path != "/v1/rerank":
            return Says(404)
        try:
            taken = _VOYAGE_ONLY if self.is_voyage else _DOCUMENTS_ONLY
            (_TEXTS_ONLY if self.wants_texts else taken).validate(body)
        except jsonschema.ValidationError as error:
            status = 400 if self.is_voyage else 422
            return Says(status, json.dumps({"detail": error.message}))
        passages: Sequence[str] = body["texts" if self.wants_texts else "documents"]
        if any(len(passage) > self.window for passage in passages):
            return Says(self.too_long, '{"error": "input is too large to process"}')
        word = "score" if self.wants_texts else "relevance_score"
        told = [
            {"index": place, word: shared(body["query"], passage) / 10}
            for place, passage in enumerate(passages)
        ]
        told.sort(key=lambda one: -one[word])
        if self.wants_texts:
            return Says(body=json.dumps(told))
        if self.is_voyage:
            return Says(body=json.dumps({"object": "list", "data": told}))
        return Says(body=json.dumps({"id": "1", "results": told, "meta": {}}))


@contextmanager
def judging(judge: Judge) -> Generator[Judge]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # or each body waits 40 ms for the head's acknowledgement

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            judge.authorizations.append(self.headers["authorization"])
            said = judge.respond(self.path, body)
            if said is None:
                self.close_connection = True
                return
            data = said.body.encode()
            self.send_response(said.status)
            for name, value in {"content-type": "application/json", **said.headers}.items():
                self.send_header(name, value)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    class Server(ThreadingHTTPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        judge.url = f"http://127.0.0.1:{server.server_port}/v1"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield judge
        finally:
            judge.over.set()
            server.shutdown()
            thread.join()


# --- a model -------------------------------------------------------------------------------------

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
WORDS = ["heron", "frog", "pond", "river", "waits", "eats", "in", "the", "what", "does", "where"]


def write_model(
    folder: Path, *, labels: int = 1, tokens: int | None = 64, types: bool = True
) -> Path:
    """A cross-encoder whose logit is how many tokens of the passage the query has, too, less one.

    `tokens` is what its tokenizer truncates to; without `types` the graph takes none, as those
    of RoBERTa do not, and passages lie behind the first separator.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer(
        models.WordLevel({w: n for n, w in enumerate([*SPECIAL, *WORDS])}, "[UNK]")
    )
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    if tokens is not None:
        tokenizer.enable_truncation(tokens)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "model.onnx").write_bytes(_graph(labels, types))
    return folder


def _graph(labels: int, types: bool) -> bytes:
    """What two places have in common, summed over those of the query and those of the passage."""
    node = helper.make_node
    constants = {
        "one": np.array([1], np.int64),
        "two": np.array([2], np.int64),
        "last": np.array([-1], np.int64),
        "separator": np.array(3, np.int64),
        "words": np.array(4, np.int64),
        "zero": np.array(0, np.int64),
        "less": np.array(1, np.float32),
        "column": np.array([1 - labels, 1][-labels:], np.float32).reshape(1, labels),
    }
    behind = [
        node("Equal", ["input_ids", "separator"], ["is_separator"]),
        node("Cast", ["is_separator"], ["separators"], to=TensorProto.INT64),
        node("CumSum", ["separators", "one_axis"], ["passed"], exclusive=1),
        node("Greater", ["passed", "zero"], ["of_passage"]),
    ]
    constants["one_axis"] = np.array(1, np.int64)
    if types:
        behind = [node("Greater", ["token_type_ids", "zero"], ["of_passage"])]
    nodes = [
        *behind,
        node("GreaterOrEqual", ["input_ids", "words"], ["is_word"]),
        node("Greater", ["attention_mask", "zero"], ["there"]),
        node("And", ["is_word", "there"], ["counts"]),
        node("And", ["counts", "of_passage"], ["in_passage"]),
        node("Not", ["of_passage"], ["of_query"]),
        node("And", ["counts", "of_query"], ["in_query"]),
        node("Unsqueeze", ["input_ids", "one"], ["ids_across"]),
        node("Unsqueeze", ["input_ids", "two"], ["ids_down"]),
        node("Unsqueeze", ["in_passage", "one"], ["across"]),
        node("Unsqueeze", ["in_query", "two"], ["down"]),
        node("Equal", ["ids_across", "ids_down"], ["same"]),
        node("And", ["same", "across"], ["same_there"]),
        node("And", ["same_there", "down"], ["both"]),
        node("Cast", ["both"], ["numbers"], to=TensorProto.FLOAT),
        node("ReduceSum", ["numbers", "two"], ["each"], keepdims=0),
        node("ReduceSum", ["each", "one"], ["sum"], keepdims=1),
        node("Sub", ["sum", "less"], ["logit"]),
        node("Mul", ["logit", "column"], ["logits"]),
    ]
    names = ["input_ids", "attention_mask", *(["token_type_ids"] if types else [])]
    graph = helper.make_graph(
        nodes,
        "shared-words",
        [helper.make_tensor_value_info(n, TensorProto.INT64, ["texts", "tokens"]) for n in names],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["texts", labels])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    opsets = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
