"""Every pattern that runs in our own processes takes time in proportion to its input.

They are found by a walk over the code. What only the sandbox's child imports is left out: there,
limits of the kernel end what takes too long.
"""

import ast
import importlib
import pkgutil
import re
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

import pytest

import recollect

parser: Any = importlib.import_module("re._parser")
constants: Any = importlib.import_module("re._constants")

ROOT = Path(recollect.__file__).parent
LEFT_OUT = ("recollect.cli", "recollect.torture", "recollect.__main__")
"""What reads the user's own files on the user's machine, and the torture of our own service."""
PROCESSES = (
    "recollect.worker.processing",
    "recollect.api",
    "recollect.worker.syncs",
    "recollect.worker.webhooks",
)
SIZES = SHORT, MIDDLE, LONG = 1_000, 10_000, 100_000
QUICK = 0.01
"""CPU seconds for the middle size that need no second look: the square would take ten times that"""
STEEP = 30
"""times as long for ten times as much; the square is 100"""
GIVEN_UP = 3.0
"""CPU seconds"""
RUNS = (
    *" \t\n\r\0aZ0é漢-_*#`~'\"<>[](){}=:;,./\\|&%$+!?@^",
    *(
        "\r\n",
        " \n",
        "\n ",
        "\n\n",
        "a ",
        "a\n",
        "- ",
        "# ",
        "a.",
        "a:",
        "<a ",
        "<a>",
        "</a",
        "<!--",
    ),
    *(
        "[a](",
        "![",
        "&#",
        "{{",
        "```\n",
        "~~~\n",
        "user: a\n",
        "# a\n",
        "http://",
        "%20",
        "é ",
        "a\u0301",
    ),
    *(
        "Disallow: ",
        "a, ",
        "=a",
        '="',
        "a=b;",
        "\u200b",
        "\u200d\u200d",
        "1.",
        "1 ",
        "> ",
        "|-",
        "a\u200b",
    ),
)


@cache
def outside() -> frozenset[str]:
    """The modules of ours that a process other than the sandbox's child imports."""
    say = "import sys\nprint(*(name for name in sys.modules if name.startswith('recollect')))"
    script = "".join(f"import {name}\n" for name in PROCESSES) + say
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return frozenset(done.stdout.split())


@cache
def modules() -> list[ModuleType]:
    found = (one.name for one in pkgutil.walk_packages([str(ROOT)], "recollect."))
    return [
        importlib.import_module(name)
        for name in sorted(found)
        if not name.startswith(LEFT_OUT)
        and (not name.startswith("recollect.extract") or name in outside())
        and not name.endswith(("_child", "__main__"))
    ]


# --- time ----------------------------------------------------------------------------------------


class _TooLongError(Exception):
    pass


@contextmanager
def at_most(seconds: float) -> Generator[None]:
    """CPU time; patterns look for signals, too, while they search."""

    def end(_number: int, _frame: FrameType | None) -> None:
        raise _TooLongError

    before = signal.signal(signal.SIGPROF, end)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def took(work: Callable[[Any], object], given: object) -> float:
    began = time.thread_time()
    try:
        with at_most(GIVEN_UP):
            work(given)
    except _TooLongError:
        return float("inf")
    except Exception:  # noqa: BLE001 # what is refused, or of another kind, is judged by its time
        return time.thread_time() - began
    return time.thread_time() - began


def steep(work: Callable[[Any], object], shape: Callable[[int], object]) -> bool:
    """Whether it takes far more than ten times as long for ten times as much; in doubt it is
    measured again, since others work on this machine."""
    for _ in range(3):
        if took(work, shape(MIDDLE)) <= QUICK:
            return False
        times = [max(took(work, shape(size)), QUICK / STEEP) for size in SIZES]
        if all(long <= STEEP * short for short, long in pairwise(times)):
            return False
    return True


# --- patterns ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Found:
    where: str
    pattern: re.Pattern[Any]
    anchored: bool
    """whether it is only ever tried at the beginning (`match`, `fullmatch`)"""


METHODS = ["search", "match", "fullmatch", "findall", "finditer", "sub", "subn", "split"]
UNKNOWN = {
    "recollect.memories.extraction": "the model's quote, escaped, with white space between them",
    "recollect.extract.web._markup": "a name of the page's own between letters",
    "recollect.connectors.notion._markdown": "tabs at the beginning of a line, up to a number",
    "recollect.console._syntax": "made once at import, so they are found live",
    "recollect.api.bodies": "names of providers, without any mark",
    "recollect.connectors.gmail._quotes": "made once at import, so it is found live",
    "recollect.index.spellings": "made once at import, so they are found live",
    "recollect.index.terms": "made once at import, so they are found live",
    "recollect.index.phrases": "made once at import, so it is found live",
    "recollect.extract._text": "made once at import, so they are found live",
    "recollect.extract.text._captions": "made once at import, so it is found live",
}
"""Modules with a pattern that is not written out where it is made, and of what it is made."""


def patterns() -> Iterator[Found]:
    sources = {module: Path(str(module.__file__)).read_text() for module in modules()}
    uses: defaultdict[str, set[str]] = defaultdict(set)
    for source in sources.values():
        for name, method in re.findall(rf"\b(\w+)\.({'|'.join(METHODS)})\b", source):
            uses[name].add(method)
    for module, source in sources.items():
        for name, value in vars(module).items():
            for pattern in live(value):
                anchored = bool(uses[name]) and uses[name] <= {"match", "fullmatch"}
                yield Found(f"{module.__name__}.{name}", pattern, anchored)
        for call, method in calls(source):
            pattern = written(call)
            if method != "compile" and pattern is not None:
                where = f"{module.__name__}:{call.lineno}"
                yield Found(where, pattern, method in ("match", "fullmatch"))


@cache
def all_patterns() -> list[Found]:
    return list(patterns())


def live(value: object) -> Iterator[re.Pattern[Any]]:
    match value:
        case re.Pattern():
            yield value
        case list() | tuple() | set() | frozenset():
            for one in value:
                yield from live(one)
        case dict():
            yield from live([*value, *value.values()])
        case _:
            pass


@cache
def calls(source: str) -> Sequence[tuple[ast.Call, str]]:
    return [
        (node, node.func.attr)
        for node in (ast.walk(ast.parse(source)) if "re." in source else ())
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id == "re"
        and node.func.attr in (*METHODS, "compile")
    ]


def written(call: ast.Call) -> re.Pattern[Any] | None:
    try:
        pattern = ast.literal_eval(call.args[0])
    except ValueError:
        return None
    flags = re.NOFLAG
    for node in [*call.args[1:], *(one.value for one in call.keywords)]:
        for name in ast.walk(node):
            if isinstance(name, ast.Attribute) and isinstance(
                getattr(re, name.attr, 0), re.RegexFlag
            ):
                flags |= getattr(re, name.attr)
    return re.compile(pattern, flags)


def nearly(pattern: re.Pattern[Any]) -> Iterator[Callable[[int], str]]:
    """Inputs that it almost matches: each repetition of it, pumped, after what comes before it,
    and what comes before it again and again."""
    tree = parser.parse(pattern.pattern, pattern.flags & ~re.DEBUG)
    for head, body in pumps(list(tree), ""):
        for lead, part in ((head, body), ("", head), ("", head + body), ("", head + body + "\n")):
            if part:
                for end in ("", "\0", "!\n"):
                    yield (
                        lambda n, lead=lead, part=part, end=end: (
                            lead + part * (n // len(part)) + end
                        )
                    )


def pumps(nodes: list[Any], before: str) -> Iterator[tuple[str, str]]:
    for op, value in nodes:
        if op in (constants.MAX_REPEAT, constants.MIN_REPEAT, constants.POSSESSIVE_REPEAT):
            inner = list(value[2])
            if value[1] > 20:
                yield before, witness(inner)
            yield from pumps(inner, before)
        elif op is constants.SUBPATTERN:
            yield from pumps(list(value[-1]), before)
        elif op is constants.ATOMIC_GROUP:
            yield from pumps(list(value), before)
        elif op is constants.BRANCH:
            for branch in value[1]:
                yield from pumps(list(branch), before)
        elif op in (constants.ASSERT, constants.ASSERT_NOT):
            yield from pumps(list(value[1]), before)
        before += witness([(op, value)])


def witness(nodes: Iterable[Any]) -> str:
    """A text that these nodes match, or nearly."""
    said = ""
    for op, value in nodes:
        if op is constants.LITERAL:
            said += chr(value)
        elif op is constants.NOT_LITERAL:
            said += "a" if value != ord("a") else "b"
        elif op is constants.ANY:
            said += "a"
        elif op is constants.IN:
            said += member(value)
        elif op in (constants.MAX_REPEAT, constants.MIN_REPEAT, constants.POSSESSIVE_REPEAT):
            said += witness(value[2]) * max(1, min(value[0], 5))
        elif op is constants.SUBPATTERN:
            said += witness(value[-1])
        elif op is constants.ATOMIC_GROUP:
            said += witness(value)
        elif op is constants.BRANCH:
            said += witness(value[1][0])
    return said


CATEGORIES = {"SPACE": " ", "NOT_SPACE": "a", "WORD": "a", "NOT_WORD": "-", "DIGIT": "1"}


def member(options: list[Any]) -> str:
    if options[0][0] is constants.NEGATE:
        compiled = {chr(v) for op, v in options if op is constants.LITERAL}
        return next(c for c in "a <b1-\n" if c not in compiled)
    op, value = options[0]
    if op is constants.RANGE:
        return chr(value[0])
    if op is constants.CATEGORY:
        return CATEGORIES.get(str(value).removeprefix("CATEGORY_"), "a")
    return chr(value)


def shapes(pattern: re.Pattern[Any] | None = None) -> Iterator[Callable[[int], str]]:
    for run in RUNS:
        yield lambda n, run=run: run * (n // len(run))
        yield lambda n, run=run: "# a: <b " + run * (n // len(run)) + "\0"
    if pattern is not None:
        yield from nearly(pattern)


def slow_inputs(found: Found) -> Iterator[str]:
    is_bytes = isinstance(found.pattern.pattern, bytes)

    def look(text: Any) -> None:
        if found.anchored:
            found.pattern.match(text)
            found.pattern.fullmatch(text)
        else:
            for _ in found.pattern.finditer(text):
                pass

    for shape in shapes(found.pattern):

        def given(n: int, shape: Callable[[int], str] = shape) -> object:
            text = shape(n)
            return text.encode("utf-8", "surrogatepass") if is_bytes else text

        if steep(look, given):
            yield shape(30)[:60]
            return


def test_every_pattern_is_found_live_written_out_or_explained():
    hidden = {
        module.__name__
        for module in modules()
        for call, _ in calls(Path(str(module.__file__)).read_text())
        if written(call) is None
    }

    assert hidden <= set(UNKNOWN)
    assert len(all_patterns()) > 150


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("room", sorted(one.stem for one in ROOT.iterdir()))
def test_no_pattern_takes_longer_than_its_input(room: str):
    own = [one for one in all_patterns() if re.match(rf"recollect\.{room}\b", one.where)]
    slow = {one.where: list(slow_inputs(one)) for one in own}
    assert not any(slow.values()), slow
