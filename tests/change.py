"""`make change`: the tests of the rooms that a change touches and of those that import them.

A change is what differs from the branch that it goes into (`main`, or what `--base` names), with
what is not committed. The tests of a room that changed run whole. Of a room that imports a module
that changed, its own tests run, too; but of the doors and of the plug-ins, whose tests take minutes
and start from the wire, one example of each. What every change runs (`SMOKE`) is fixed.
"""

import argparse
import subprocess
import sys
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import grimp

PROJECT = Path(__file__).parents[1]
SMOKE = (
    "tests/house",
    "tests/root",
    "tests/contract/test_documents_api.py",
    "tests/contract/test_search_api.py",
    "tests/contract/test_isolation.py",
    "tests/contract/test_queries.py",
    "tests/db/test_row_security.py",
    "tests/connectors/test_conformance.py",
    "tests/chaos/test_crash.py",
    "tests/docs/test_docs.py",
)
SMOKE_PROVIDER = "cabinet"
"""whose part of the conformance suite every change runs"""
OWN = {
    "api": ("tests/contract",),
    "mcp": ("tests/contract/test_mcp.py", "tests/contract/test_reach.py"),
    "cli": ("tests/cli", "tests/e2e/test_cli.py", "tests/e2e/test_quickstart.py", "tests/docs"),
    "console": (
        "tests/console",
        *(
            path.relative_to(PROJECT).as_posix()
            for path in sorted((PROJECT / "tests" / "e2e").glob("test_*_browser.py"))
        ),
    ),
    "sandbox": tuple(
        f"tests/extract/test_{name}.py" for name in ("confine", "filter", "sandbox", "tasks")
    ),
    "torture": ("tests/chaos/test_torture.py",),
}
"""Rooms whose tests lie elsewhere than in the folder of their name; a file of the root has its
tests in `tests/root`."""
DEAR = frozenset({"api", "mcp", "cli", "console", "connectors", "extract", "torture"})
"""Rooms of which an importer's tests do not run whole."""


@dataclass
class Plan:
    """Which tests run: paths, and the providers whose part of the conformance suite does."""

    paths: set[str] = field(default_factory=lambda: set(SMOKE))
    providers: set[str] = field(default_factory=lambda: {SMOKE_PROVIDER})


def changed_files(base: str) -> list[str]:
    """Paths of the project that differ from where this branch left `base`, or are new."""

    def git(*words: str) -> list[str]:
        done = subprocess.run(
            ["git", *words], cwd=PROJECT, capture_output=True, text=True, check=True
        )
        return done.stdout.splitlines()

    (left,) = git("merge-base", base, "HEAD")
    return sorted({*git("diff", "--name-only", left), *git("ls-files", "-o", "--exclude-standard")})


def planned(files: Iterable[str]) -> Plan:
    """The tests for a change of these files."""
    found = Plan()
    modules: set[str] = set()
    for name in files:
        path = Path(name)
        parts = path.parts
        if parts[0] == "tests" and path.name.startswith("test_") and (PROJECT / path).exists():
            found.paths.add(name)
        elif parts[0] == "recollect":
            _touch(found, parts)
            if path.suffix == ".py":
                modules.add(".".join(path.with_suffix("").parts).removesuffix(".__init__"))
        elif parts[0] == "docs" or path.suffix == ".md":
            found.paths.add("tests/docs")
        elif parts[0] == "bench":
            found.paths.add("tests/docs/test_bench.py")
    for room in importers(modules):
        if room not in DEAR:
            found.paths |= _tests_of(room)
    found.paths = {path for path in found.paths if not _covered(path, found.paths)}
    return found


def importers(modules: Collection[str]) -> set[str]:
    """Rooms with a module that imports one of these."""
    graph = grimp.build_graph("recollect")
    known = [module for module in modules if module in graph.modules]
    return {
        importer.split(".")[1]
        for module in known
        for importer in graph.find_modules_that_directly_import(module)
        if "." in importer
    }


def _touch(plan: Plan, parts: tuple[str, ...]) -> None:
    room = parts[1]
    if room == "connectors" and len(parts) > 3:
        provider = parts[2]
        plan.paths |= {
            path.relative_to(PROJECT).as_posix()
            for path in (PROJECT / "tests/connectors").glob(f"test_{provider}*.py")
        }
        plan.providers.add(provider.replace("_", "-"))
    else:
        plan.paths |= _tests_of(Path(room).stem)


def _tests_of(room: str) -> set[str]:
    if room in OWN:
        return set(OWN[room])
    folder = f"tests/{room}"
    return {folder if (PROJECT / folder).is_dir() else "tests/root"}


def _covered(path: str, paths: Collection[str]) -> bool:
    return any(path.startswith(f"{other}/") for other in paths)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", default="main", help="the branch that the change goes into")
    parser.add_argument("--files", nargs="*", help="take these for the change")
    parser.add_argument("--list", action="store_true", help="say what would run, and run nothing")
    given, rest = parser.parse_known_args()
    files = changed_files(given.base) if given.files is None else given.files
    plan = planned(files)
    told = [f"{len(files)} files changed; tests:", *sorted(plan.paths)]
    sys.stdout.write("\n  ".join(told) + "\n")
    sys.stdout.flush()
    if given.list:
        return 0
    providers = [f"--provider={name}" for name in sorted(plan.providers)]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-m", "not slow", *providers, *rest, *sorted(plan.paths)],
        cwd=PROJECT,
        check=False,
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
