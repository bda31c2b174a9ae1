"""`python -m tests.house` counts what the plan of the house bounds.

With `--junit FILE`, which `pytest --junitxml=FILE` wrote in a run of all tests, it says what the
tests of a change cost that touches all files of a room.
"""

import argparse
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from xml.etree import ElementTree

from tests import change
from tests.house import facts

FIGURES = {
    "root entries": lambda: len(facts.root_entries()),
    "rooms": lambda: len(facts.rooms()),
    "modules": lambda: len(facts.sources()),
    "lines": lambda: sum(len(text.splitlines()) for text in facts.sources().values()),
    "edges between rooms": lambda: sum(map(len, facts.edges().values())),
    "function-level imports": lambda: len(facts.function_imports()),
    "class names used twice": lambda: len(facts.class_names()),
    "repeated pairs of six lines": facts.repeated_lines,
    "files that name a provider": lambda: len(facts.naming_providers()),
    "modules that speak SQL": lambda: len(facts.speaking_sql()),
    "longest file, lines": lambda: max(len(text.splitlines()) for text in facts.sources().values()),
}

AT_ONCE = 3
"""test processes that the Makefile starts"""


@dataclass(frozen=True)
class Case:
    file: str
    name: str
    seconds: float

    def runs(self, plan: change.Plan) -> bool:
        if not any(self.file == path or self.file.startswith(f"{path}/") for path in plan.paths):
            return False
        own = Path(self.file).name.startswith("test_conformance") and "[" in self.name
        return not own or self.name.rstrip("]").endswith(tuple(plan.providers))


def cases(junit: Path) -> Iterator[Case]:
    for case in ElementTree.parse(junit).iter("testcase"):
        file = case.attrib["classname"].replace(".", "/") + ".py"
        yield Case(file, case.attrib["name"], float(case.attrib["time"]))


def changes(junit: Path) -> Iterator[tuple[str, int, float]]:
    """Of each entry of the root: how many tests a change of it runs, and for how many seconds."""
    all_cases = list(cases(junit))
    for entry in facts.root_entries():
        inside = [name for name in facts.sources() if Path(name).parts[0] == entry]
        plan = change.planned(f"recollect/{name}" for name in inside)
        run = [case.seconds for case in all_cases if case.runs(plan)]
        yield entry, len(run), sum(run) / AT_ONCE


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--junit", type=Path, metavar="FILE")
    if (junit := parser.parse_args().junit) is None:
        for name, count in FIGURES.items():
            sys.stdout.write(f"{name:28} {count():>8,}\n")
    else:
        for entry, tests, seconds in changes(junit):
            sys.stdout.write(f"{entry:28} {tests:>8,} tests {seconds / 60:>6.1f} minutes\n")
