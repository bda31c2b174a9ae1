"""`python -m bench [PART…] [--quick] [--json]`: measure and compare with the floors."""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bench import (
    citations,
    crawl,
    duplicates,
    edit,
    extract,
    ingest,
    memory,
    post,
    quality,
    replicas,
    scale,
    search,
    sets,
    start,
)
from bench.figures import Figure, as_json, below, floors, table
from bench.ground import Ground

PARTS: dict[str, Any] = {
    "start": start,
    "memory": memory,
    "ingest": ingest,
    "post": post,
    "edit": edit,
    "scale": scale,
    "replicas": replicas,
    "search": search,
    "quality": quality,
    "citations": citations,
    "duplicates": duplicates,
    "crawl": crawl,
    "extract": extract,
}
"""in the order in which they run: what wants a quiet machine first"""


def main(arguments: list[str]) -> int:
    """The exit code: 1 when a figure is below its floor."""
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], metavar="PART", default=[])
    parser.add_argument("--quick", action="store_true", help="less of everything: 3 minutes")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--data", type=Path, metavar="FOLDER", help="quality: the public sets")
    parser.add_argument("--set", action="append", default=[], metavar="NAME", help="quality: only")
    parser.add_argument("--questions", type=int, metavar="N", help="quality: of each set at most")
    parser.add_argument(
        "--model", action="append", default=[], metavar="NAME", help="quality: beside the default"
    )
    parser.add_argument(
        "--beside", type=Path, metavar="PYTHON", help="search: one with chromadb and lancedb"
    )
    given = parser.parse_args(arguments)
    for name in given.set:
        if name not in sets.NAMES:
            parser.error(f"--set {name}: there are {', '.join(sets.NAMES)}")
    kept = floors()
    figures: list[Figure] = []
    try:
        asked = {
            "quality": {
                "data": given.data,
                "only": given.set,
                "models": given.model,
                "questions": given.questions,
            },
            "search": {"others": given.beside},
        }
        figures.extend(run(given.parts or list(PARTS), asked, quick=given.quick, tell=_tell))
    finally:  # what was measured is not lost with the part that failed
        if given.json:
            print(json.dumps(as_json(figures, kept), indent=2))
        else:
            print(table(figures, kept))
    return 1 if below(figures, kept) else 0


def run(
    parts: list[str],
    asked: Mapping[str, Mapping[str, Any]],
    *,
    quick: bool,
    tell: Callable[[str], None],
) -> Iterator[Figure]:
    with Ground() as ground:
        for part in PARTS:
            if part in parts:
                started = time.monotonic()
                module = PARTS[part]
                size = module.QUICK if quick else module.FULL
                yield from module.measure(ground, size, **asked.get(part, {}))
                tell(f"{part}: {time.monotonic() - started:.0f} s")


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
