"""Streams as endpoints really send them, read without one."""

import json
from typing import Any

import pytest

from recollect.errors import Permanent
from recollect.inference.completion_stream import CompletionPieces


def event(content: str | None, finish: str | None) -> bytes:
    choice = {"index": 0, "delta": {"content": content}, "finish_reason": finish}
    return data({"choices": [choice]})


def data(told: Any) -> bytes:
    return f"data: {json.dumps(told)}\n\n".encode()


def read(*events: bytes) -> str:
    """As `Llm.write` does: what comes after the end is left unread."""
    pieces = CompletionPieces(streams=True)
    said: list[str] = []
    for one in events:
        said += pieces.read(one)
        if pieces.has_ended:
            break
    return "".join([*said, *pieces.rest()])


@pytest.mark.parametrize("unended", ["", "null", None])
def test_a_piece_that_names_no_end_is_not_the_last(unended: str | None):
    """Ollama and SGLang have sent an empty `finish_reason` with each piece, KoboldCpp a word."""
    assert read(event("Herons", unended), event(" fish.", unended), event("", "stop")) == (
        "Herons fish."
    )
    with pytest.raises(Permanent) as cut:
        read(event("Herons", unended))
    assert cut.value.code == "cut_off"


@pytest.mark.parametrize("told", [{"usage": {"total_tokens": 9}}, {"choices": None}, {}])
def test_an_event_without_choices_says_nothing(told: Any):
    """Of Vertex, Bedrock and LiteLLM, among the pieces or after them."""
    assert read(event("Herons", None), data(told), event(" fish.", None), event("", "stop")) == (
        "Herons fish."
    )


@pytest.mark.parametrize("reason", ["length", "model_length", "error"])
def test_an_answer_that_ends_for_lack_of_room_is_cut(reason: str):
    """`model_length` is Mistral's."""
    with pytest.raises(Permanent) as cut:
        read(event("Herons", None), event("", reason))
    assert cut.value.code == "cut_off"
