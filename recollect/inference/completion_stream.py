"""What an endpoint streams from `POST /chat/completions`, as pieces of text."""

import json
import re
from collections.abc import Iterator
from typing import Any, cast

from recollect.errors import Permanent, Transient, Unavailable

LARGEST_LINE = 1_000_000
"""Bytes of one event."""
REFUSED, BAD_ANSWER = "model_refused", "bad_answer"
THOUGHT, THOUGHT_END = "<think>", "</think>"
CUT_OFF = ("length", "model_length", "error")
"""what `finish_reason` says of a model that had more to say; the second is Mistral's"""
_UNENDED = (None, "", "null")
"""what `finish_reason` says while more comes: Ollama, SGLang and KoboldCpp have sent these"""


def tells_of_error(body: Any) -> bool:
    """Whether an answer of status 200 is about an error: the model, or the provider behind the
    server, failed after it had begun to answer; LM Studio does not know the path."""
    return isinstance(body, dict) and bool(cast("dict[str, Any]", body).get("error"))


def check_for_error(body: Any) -> None:
    """Raises Transient (`http_500`)."""
    if tells_of_error(body):
        raise Transient("the model's endpoint broke off with an error", code="http_500")


def spoken(content: Any) -> str:
    """The text of a message: of one in parts, as reasoning models of Mistral and gateways send it,
    that of the parts which are text."""
    if isinstance(content, str):
        return content
    parts = cast("list[Any]", content) if isinstance(content, list) else []
    said = [part.get("text") for part in parts if part.get("type") == "text"]
    return "".join(one for one in said if isinstance(one, str))


def is_filtered(ended: Any) -> bool:
    """Whether a `finish_reason` names a filter. Gemini: `content_filter: PROHIBITED_CONTENT`."""
    return isinstance(ended, str) and ended.startswith("content_filter")


class CompletionPieces:
    """Reads the bytes of one answer: server-sent events, or the one JSON document of an endpoint
    that does not stream."""

    def __init__(self, *, streams: bool) -> None:
        self._streams = streams
        self._bytes = bytearray()
        self._held: str | None = ""
        """the beginning, until it is known not to be a thought; None: it is known"""
        self.has_ended = False
        """whether the model said all that it had to say"""

    def read(self, data: bytes) -> Iterator[str]:
        """What came before a fault is given before it is raised.

        Raises Permanent (`model_refused`, `bad_answer`, `cut_off`), Unavailable (`bad_answer`),
        Transient (`http_500`).
        """
        self._bytes += data
        if len(self._bytes) > LARGEST_LINE:
            raise Permanent("the model's answer is too large", code=BAD_ANSWER)
        if not self._streams or b"\n" not in data:
            return
        *lines, rest = re.split(rb"\r?\n", bytes(self._bytes))
        self._bytes = bytearray(rest)
        for line in lines:
            if piece := self._spoken(self._event(line)):
                yield piece

    def rest(self) -> list[str]:
        """What is left once the endpoint has closed. Raises as `read`; Permanent (`cut_off`) when
        the answer has no end."""
        left, self._bytes = bytes(self._bytes), bytearray()
        piece = self._spoken(self._event(left) if self._streams else self._choice(left, "message"))
        held, self._held = self._held, None
        if not self.has_ended:
            raise Permanent("the model's answer was cut off", code="cut_off")
        # A thought without an end is not an answer.
        unheld = "" if (held or "").lstrip().startswith(THOUGHT) else held or ""
        return [one for one in (piece, unheld) if one]

    def _event(self, line: bytes) -> str:
        name, _, value = line.partition(b":")
        value = value.strip()
        if name != b"data" or not value or self.has_ended:
            return ""
        if value == b"[DONE]":
            self.has_ended = True
            return ""
        return self._choice(value, "delta")

    def _choice(self, document: bytes, part: str) -> str:
        try:
            body: Any = json.loads(document)
            check_for_error(body)
            # An event that tells the usage has none; Vertex and Bedrock leave out the field.
            if part == "delta" and not body.get("choices"):
                return ""
            choice = body["choices"][0]
            ended: Any = choice.get("finish_reason")
            told: Any = choice.get(part) or {}
            said = spoken(told.get("content"))
            refusal: Any = told.get("refusal")
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
            raise Unavailable(
                "the answer is not one of /chat/completions; check RECOLLECT_LLM_URL",
                code=BAD_ANSWER,
            ) from None
        if refusal or is_filtered(ended):
            raise Permanent("the model refused to answer", code=REFUSED)
        if ended in CUT_OFF:
            raise Permanent("the model's answer was cut off", code="cut_off")
        self.has_ended = self.has_ended or ended not in _UNENDED
        return said

    def _spoken(self, piece: str) -> str:
        """Without the thought that some models begin with."""
        if self._held is None or not piece:
            return piece
        self._held += piece
        begun = self._held.lstrip()
        if begun.startswith(THOUGHT):
            _, end, after = begun.partition(THOUGHT_END)
            if not end:
                return ""
            begun = after.lstrip()
        elif THOUGHT.startswith(begun):
            return ""
        self._held = None
        return begun
