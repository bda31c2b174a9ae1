"""No function over foreign text takes much more than its length: ten times the text, at most thirty
times the time. `test_linear_time.py` asks the same of each regular expression.

Called is what takes nothing but texts (and no code of a language), in modules that see foreign
text in the service's own processes. A text that a function refuses is as good as one that it
takes: it was looked at.
"""

import importlib
import inspect
import time
import types
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, get_type_hints

import pytest

from recollect.errors import RecollectError

MODULES = (
    "recollect.api.conversations",
    "recollect.connectors._robots",
    "recollect.connectors._urls",
    "recollect.connectors.gmail._quotes",
    "recollect.connectors.notion._markdown",
    "recollect.documents.merge",
    "recollect.documents.stretch",
    "recollect.extract._text",
    "recollect.fetch._address",
    "recollect.index.phrases",
    "recollect.index.spellings",
    "recollect.index.terms",
    "recollect.ingest.chunk",
    "recollect.ingest.intake",
    "recollect.ingest.positions",
    "recollect.log",
    "recollect.memories.extraction",
    "recollect.memories.memories",
    "recollect.model",
    "recollect.search.ranking",
    "recollect.sync.item_filter",
)
FLOOR = 0.02
"""seconds of processor time below which nothing is compared"""
MOST_TIMES = 30
SHAPES: dict[str, str] = {
    "letters": "a",
    "blanks": " ",
    "line ends": "\n",
    "returns": "\r\n",
    "tabs": "\t",
    "open brackets": "[",
    "nested brackets": "([{",
    "links": "[a](",
    "quotation marks": '"',
    "quoted words": '"a" -"b" ',
    "minus signs": " -a",
    "headings": "# ",
    "heading lines": "# a\n",
    "list markers": "- - ",
    "list lines": "- a\n",
    "numbered lines": "1. a\n",
    "table lines": "|a|b|\n",
    "fences": "```\n",
    "digits": "1",
    "dates": "2024-03-17 ",
    "dots": ".",
    "sentences": "A word. ",
    "slashes": "/",
    "percent signs": "%",
    "escapes": "%61",
    "stars": "*",
    "dollars": "$",
    "colons": ":",
    "at signs": "a@",
    "Han": "漢",
    "marks": "e\u0301",
    "marks alone": "\u0301",
    "emoji": "😀",
    "joined emoji": "👩\u200d",
    "Arabic": "ا ",
    "camel": "aB",
    "snake": "a_",
    "tags": "<a>",
    "entities": "&amp;",
    "speakers": "user: a\n",
    "quoted lines": "> ",
    "NUL": "\0",
}


def functions() -> Iterator[tuple[str, Callable[..., Any], list[type]]]:
    """Each function of the modules that wants texts alone, and of what type each is."""
    for name in MODULES:
        module = importlib.import_module(name)
        for function in vars(module).values():
            if not isinstance(function, types.FunctionType) or function.__module__ != name:
                continue
            hints: dict[str, Any] = {}
            with suppress(NameError):  # a type that only type checkers import
                hints = get_type_hints(function)
            wanted = [
                hints.get(one.name)
                for one in inspect.signature(function).parameters.values()
                if one.default is inspect.Parameter.empty
                and one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)
            ]
            named = any(
                one.kind is one.KEYWORD_ONLY and one.default is one.empty
                for one in inspect.signature(function).parameters.values()
            )
            codes = {"language", "by"} & set(inspect.signature(function).parameters)
            if wanted and not named and not codes and all(one in (str, bytes) for one in wanted):
                yield f"{name}.{function.__name__}", function, [one for one in wanted if one]


FOUND = {name: (function, wanted) for name, function, wanted in functions()}


def cost(function: Callable[..., Any], wanted: list[type], text: str) -> float:
    """Seconds of processor time, the least of two."""
    given = [text if one is str else text.encode() for one in wanted]
    took: list[float] = []
    for _ in range(2):
        began = time.thread_time()
        with suppress(RecollectError, ValueError):
            made = function(*given)
            if isinstance(made, Iterator):
                for _ in made:
                    pass
        took.append(time.thread_time() - began)
        if took[-1] < FLOOR:
            break
    return min(took)


def slow_shapes(name: str, length: int) -> list[str]:
    function, wanted = FOUND[name]
    found: list[str] = []
    for shape, unit in SHAPES.items():
        some = (unit * (length // len(unit) + 1))[:length]
        short = cost(function, wanted, some)
        long = cost(function, wanted, (unit * (10 * length // len(unit) + 1))[: 10 * length])
        if long > FLOOR and long > MOST_TIMES * max(short, FLOOR / 10):
            found.append(f"{shape}: {short * 1000:.1f} ms, ten times as long {long * 1000:.0f} ms")
    return found


def test_functions_are_found():
    assert len(FOUND) > 60


@pytest.mark.parametrize("name", FOUND)
def test_no_function_takes_much_longer_than_its_text(name: str):
    assert slow_shapes(name, 1_000) == []


@pytest.mark.slow
@pytest.mark.parametrize("name", FOUND)
def test_no_function_takes_much_longer_than_a_long_text(name: str):
    assert slow_shapes(name, 10_000) == []
