"""`python -m tests.house` counts what the plan of the house bounds."""

import sys

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

if __name__ == "__main__":
    for name, count in FIGURES.items():
        sys.stdout.write(f"{name:28} {count():>8,}\n")
