"""Facts about the source of the package, counted from its syntax trees and its import graph."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

import grimp

import recollect

PACKAGE = Path(recollect.__file__).parent
PROJECT = PACKAGE.parent
_COMMON_WORDS = frozenset({"folder", "s3"})
"""Folders of providers whose names mean other things, too; of these, S3 is looked for in quotes."""
PROVIDERS = re.compile(
    "|".join(
        [
            r"google[_-]\w",
            r"[\"']s3[\"']",
            *(
                r"(?<![a-z])" + folder.parent.name.replace("_", "[_-]?")
                for folder in sorted((PACKAGE / "connectors").glob("*/__init__.py"))
                if folder.parent.name not in _COMMON_WORDS
            ),
        ]
    ),
    re.IGNORECASE,
)
_STATEMENT = re.compile(
    r"\"\s*(select\s.*\sfrom\s|insert into\s|update \w+ (\w+ )?set\s|delete from\s|copy \w+ "
    r"|with (recursive )?\w+ as )",
    re.DOTALL,
)
_SIX = 6


@cache
def sources() -> Mapping[str, str]:
    """The text of each module, by its path below the package."""
    files = sorted(PACKAGE.rglob("*.py"))
    return {file.relative_to(PACKAGE).as_posix(): file.read_text() for file in files}


@cache
def trees() -> Mapping[str, ast.Module]:
    return {name: ast.parse(text) for name, text in sources().items()}


def root_entries() -> list[str]:
    """Files and folders of the package itself."""
    return sorted(
        entry.name
        for entry in PACKAGE.iterdir()
        if entry.name != "__pycache__" and (entry.is_file() or any(entry.rglob("*.py")))
    )


def rooms() -> list[str]:
    return [name for name in root_entries() if (PACKAGE / name).is_dir()]


def function_imports() -> list[tuple[str, int]]:
    """Imports inside of functions: path and line, each once."""
    return sorted(
        {
            (name, node.lineno)
            for name, tree in trees().items()
            for function in ast.walk(tree)
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
            for node in ast.walk(function)
            if isinstance(node, ast.Import | ast.ImportFrom)
        }
    )


def class_names() -> Mapping[str, list[str]]:
    """Public classes that stand at the top of more than one module, with their paths."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for name, tree in trees().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found[node.name].append(name)
    return {name: places for name, places in sorted(found.items()) if len(places) > 1}


def speaking_sql() -> list[str]:
    """Modules that hand a statement to the database, or hold one."""
    return [
        name
        for name, tree in trees().items()
        if any(
            isinstance(node, ast.Attribute)
            and node.attr in ("execute", "executemany", "execute_planned")
            for node in ast.walk(tree)
        )
        or any(_STATEMENT.match(word) for word in _words(tree))
    ]


def naming_providers() -> list[str]:
    """Modules outside of the providers' folders that name one in their code."""
    return [
        name
        for name, tree in trees().items()
        if not name.startswith(("connectors/", "torture/"))
        and any(PROVIDERS.search(word) for word in _words(tree))
    ]


def files_naming_providers() -> list[str]:
    """Files of the package that are no modules, below no provider's folder, and name one."""
    return sorted(
        file.relative_to(PACKAGE).as_posix()
        for file in PACKAGE.rglob("*")
        if file.suffix in (".html", ".js", ".css", ".json", ".toml", ".md", ".txt", ".yaml")
        and not file.is_relative_to(PACKAGE / "connectors")
        and PROVIDERS.search(file.read_text())
    )


def _words(tree: ast.Module) -> Iterator[str]:
    """Names and texts, without docstrings and comments."""
    notes = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if id(node) not in notes:
                yield f'"{text}"'
            case ast.Name(id=text) | ast.Attribute(attr=text) | ast.alias(name=text):
                yield text.replace(".", " ")
            case ast.ImportFrom(module=str(text)):
                yield text.replace(".", " ")
            case (
                ast.FunctionDef(name=text)
                | ast.AsyncFunctionDef(name=text)
                | ast.ClassDef(name=text)
            ):
                yield text
            case ast.arg(arg=text) | ast.keyword(arg=str(text)):
                yield text
            case _:
                pass


def rooms_imported_alone(test: ast.Module) -> list[str]:
    """The room, if this module imports of all rooms that one."""
    found = set[str]()
    for node in ast.walk(test):
        match node:
            case ast.ImportFrom(module="recollect", names=names):
                found |= {one.name for one in names}
            case ast.ImportFrom(module=str(module)) if module.startswith("recollect."):
                found.add(room(module))
            case ast.Import(names=names):
                found |= {room(one.name) for one in names if one.name.startswith("recollect.")}
            case _:
                pass
    found &= set(rooms())
    return sorted(found) if len(found) == 1 else []


def edges() -> Mapping[str, set[str]]:
    """Which rooms, or files of the root, import which."""
    graph = grimp.build_graph("recollect")
    found: defaultdict[str, set[str]] = defaultdict(set)
    for module in graph.modules:
        for imported in graph.find_modules_directly_imported_by(module):
            if (one := room(module)) != (other := room(imported)):
                found[one].add(other)
    return found


def room(module: str) -> str:
    """Of a dotted name: the first part below the package."""
    return [*module.split("."), "__init__"][1]


def repeated_lines() -> int:
    """Pairs of places where the same six lines of code stand, imports left out."""
    seen: defaultdict[tuple[str, ...], int] = defaultdict(int)
    for name, text in sources().items():
        imported = {
            number
            for node in ast.walk(trees()[name])
            if isinstance(node, ast.Import | ast.ImportFrom)
            for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
        }
        lines = (
            line.strip()
            for number, line in enumerate(text.splitlines(), 1)
            if number not in imported
        )
        code = [line for line in lines if line and not line.startswith("#")]
        for start in range(len(code) - _SIX + 1):
            seen[tuple(code[start : start + _SIX])] += 1
    return sum(count * (count - 1) // 2 for count in seen.values())
