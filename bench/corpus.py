"""Texts that any machine has: Python's own sources, and the READMEs of what is installed.

Nothing is downloaded, so figures of two machines are not about quite the same texts; ratios within
one run are.
"""

import ast
import importlib.util
import random
import re
import sysconfig
from collections.abc import Iterator
from functools import cache
from importlib import metadata
from pathlib import Path

PROJECT = Path(__file__).parents[1]
SHORTEST, LONGEST = 80, 1_200
"""characters of a paragraph"""
BLANK = re.compile(r"\n\s*\n")


@cache
def sources() -> list[str]:
    """The standard library's modules that are in no package."""
    root = Path(sysconfig.get_paths()["stdlib"])
    return [path.read_text("utf-8", errors="replace") for path in sorted(root.glob("*.py"))]


@cache
def docstrings() -> list[str]:
    """Docstrings of those modules, their classes and functions, each once."""
    found: dict[str, None] = {}
    for source in sources():
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
                found[ast.get_docstring(node) or ""] = None
    return list(found)


@cache
def readmes() -> list[str]:
    """Long descriptions of installed packages, licences, the project's own pages."""
    texts: list[str] = []
    for package in sorted(metadata.distributions(), key=lambda one: one.name):
        texts.append(package.read_text("METADATA") or "")
        for file in package.files or ():
            if re.match(r"(LICEN[CS]E|COPYING|NOTICE)", file.name):
                path = Path(str(file.locate()))
                texts.append(path.read_text("utf-8", errors="replace") if path.is_file() else "")
    texts += [path.read_text() for path in sorted(PROJECT.glob("docs/**/*.md"))]
    return texts


@cache
def topics() -> list[str]:
    """The language reference, which comes with Python for its `help`."""
    spec = importlib.util.find_spec("pydoc_data.topics")
    if spec is None or spec.origin is None:
        return []
    tree = ast.parse(Path(spec.origin).read_text("utf-8"))
    strings = (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant))
    return [text for text in strings if isinstance(text, str) and len(text) > LONGEST]


@cache
def paragraphs() -> list[str]:
    """Prose in paragraphs, each once."""
    found: dict[str, None] = {}
    for text in (*topics(), *readmes()):
        for part in BLANK.split(text):
            words = "\n".join(line.strip() for line in part.splitlines()).strip()
            if SHORTEST <= len(words) <= LONGEST:
                found[words] = None
    return list(found)


class Shuffled:
    """Documents of a wanted length, no two the same, none with a paragraph twice."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._left: list[str] = []

    def document(self, length: int) -> str:
        """About `length` characters (at most a paragraph more); a short one is cut off exactly."""
        parts: list[str] = []
        size = 0
        while size < length:
            parts.append(next(self._paragraphs()))
            size += len(parts[-1]) + 2
        text = "\n\n".join(parts)
        return text[:length].rstrip() if length < LONGEST else text

    def _paragraphs(self) -> Iterator[str]:
        if not self._left:
            self._left = paragraphs().copy()
            self._random.shuffle(self._left)
        yield self._left.pop()
