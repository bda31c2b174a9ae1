from collections.abc import Callable
from pathlib import Path

import pytest

from recollect.errors import SetupError
from recollect.inference.embed import EmbedderChoice, open_embedder
from recollect.inference.llm import LlmChoice, open_llm
from recollect.inference.rerank import RerankChoice, open_reranker
from recollect.inference.transcribe import TranscriberChoice, open_transcriber
from recollect.telemetry.tracing import open_tracer

OPENERS: dict[str, Callable[[str, str | None], object]] = {
    "EMBEDDER": lambda url, key: open_embedder(
        EmbedderChoice("openai", url, key, "m"), cache=Path("unused"), threads=1
    ),
    "LLM": lambda url, key: open_llm(LlmChoice(url, key, "m")),
    "RERANK": lambda url, key: open_reranker(RerankChoice(url, key)),
    "TRANSCRIBER": lambda url, key: open_transcriber(TranscriberChoice("openai", url, key, "m")),
    "OTLP": lambda url, key: open_tracer(url, f"authorization={key}"),
}


@pytest.mark.parametrize("name", OPENERS)
@pytest.mark.parametrize(
    "url", ["http://h/v1?api-version=1", "http://h/#v1", "ftp://h", "h", "http://h:x"]
)
def test_an_address_that_is_none_names_its_setting(name: str, url: str):
    with pytest.raises(SetupError, match=f"RECOLLECT_{name}_URL"):
        OPENERS[name](url, None)


@pytest.mark.parametrize("name", OPENERS)
def test_a_key_that_no_header_can_carry_names_its_setting_and_is_not_shown(name: str):
    with pytest.raises(SetupError, match=f"RECOLLECT_{name}_(KEY|HEADERS)") as refusal:
        OPENERS[name]("http://h/v1", "geheimnißvoll")
    assert "geheim" not in repr(refusal.value) + repr(refusal.value.__cause__)
