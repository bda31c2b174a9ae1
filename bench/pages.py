"""The main part of real pages: how much of it, and how little else, reaches the text.

`python -m bench.pages FOLDER…` reads one or both of two public sets, fetches nothing, and compares
with the floors. The first is `scrapinghub/article-extraction-benchmark`: runs of four words of the
text, precision and recall by page, as its `evaluate.py` counts them. Its `articleBody` has no
headline, so the first heading of level 1 is left out of ours; of Markdown the words count, not the
signs nor the targets of links. The second is the corpus of trafilatura (its folder `tests`):
passages that have to be in the text and passages that must not, over all pages.
"""

import argparse
import gzip
import json
import re
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.figures import Figure, below, floors, table
from recollect.errors import Permanent
from recollect.extract.web import html
from recollect.model import Blob

WORDS = 4
_WORD = re.compile(r"\w+")
_FENCE = re.compile(r"^```.*$", re.MULTILINE)
_TARGET = re.compile(r"\]\((?:<[^>]*>|[^()\s]*(?:\([^()\s]*\)[^()\s]*)*)(?:\s+\"[^\"]*\")?\)")
_ESCAPED = re.compile(r"\\([!-/:-@\[-`{-~])")
_BLOCK = re.compile(r"^\s*(?:> ?|[-*+] |\d+\. )*(?:#{1,6} )?", re.MULTILINE)
_HEADLINE = re.compile(r"^# [^\n]*$", re.MULTILINE)
_SIGNS = str.maketrans("[]|", "   ", "*`")


@dataclass(frozen=True, slots=True)
class Score:
    precision: float
    recall: float

    @property
    def f1(self) -> float:
        return 2 * self.precision * self.recall / (self.precision + self.recall)


@dataclass(frozen=True, slots=True)
class Measured:
    score: Score
    pages: int
    seconds: float


def plain(markdown: str) -> str:
    """The words of a text without the signs of Markdown."""
    text = _TARGET.sub("] ", _FENCE.sub("", markdown))
    return _ESCAPED.sub(r"\1", _BLOCK.sub("", text)).translate(_SIGNS)


def runs_of_words(text: str) -> Counter[tuple[str, ...]]:
    words = _WORD.findall(text)
    return Counter(
        run
        for at in range(max(1, len(words) - WORDS + 1))
        if (run := tuple(words[at : at + WORDS]))
    )


def overlap(known: str, found: str) -> tuple[float | None, float | None]:
    """Precision and recall of one page; None where there is nothing to count."""
    wanted, given = runs_of_words(known), runs_of_words(found)
    common = (wanted & given).total()
    return (
        common / given.total() if given else None,
        common / wanted.total() if wanted else None,
    )


def articles(folder: Path) -> Measured:
    known: dict[str, dict[str, str]] = json.loads((folder / "ground-truth.json").read_text())
    precisions: list[float] = []
    recalls: list[float] = []
    seconds = 0.0
    for name, page in known.items():
        data = gzip.decompress((folder / "html" / f"{name}.html.gz").read_bytes())
        started = time.process_time()
        text = _text(data, page["url"])
        seconds += time.process_time() - started
        precision, recall = overlap(page["articleBody"], plain(_HEADLINE.sub("", text, count=1)))
        precisions += [] if precision is None else [precision]
        recalls += [] if recall is None else [recall]
    score = Score(statistics.mean(precisions), statistics.mean(recalls))
    return Measured(score, len(known), seconds)


def passages(folder: Path) -> Measured:
    known: dict[str, dict[str, Any]] = json.loads((folder / "evaldata.json").read_text())
    right = wrong = missing = 0
    seconds = 0.0
    for url, page in known.items():
        data = next(
            path.read_bytes()
            for place in ("cache", "eval")
            if (path := folder / place / page["file"]).is_file()
        )
        started = time.process_time()
        text = " ".join(plain(_text(data, url)).split())
        seconds += time.process_time() - started
        held = sum(" ".join(passage.split()) in text for passage in page["with"])
        right += held
        missing += len(page["with"]) - held
        wrong += sum(" ".join(passage.split()) in text for passage in page["without"])
    return Measured(Score(right / (right + wrong), right / (right + missing)), len(known), seconds)


def _text(data: bytes, url: str) -> str:
    """As a crawler reads the page, without the sandbox around it."""
    try:
        return html.extract(Blob(data=data, mime="text/html", url=url)).text
    except Permanent:
        return ""


def measure(folder: Path) -> Iterator[Figure]:
    """Raises FileNotFoundError for a folder that holds neither of the sets."""
    if (folder / "ground-truth.json").is_file():
        name, what, measured = "articles", "article-extraction-benchmark", articles(folder)
    elif (folder / "evaldata.json").is_file():
        name, what, measured = "passages", "trafilatura's corpus", passages(folder)
    else:
        raise FileNotFoundError(
            f"{folder} holds neither ground-truth.json (article-extraction-benchmark) "
            "nor evaldata.json (the folder tests of trafilatura); see docs/bench.md"
        )
    score = measured.score
    yield Figure(f"pages.{name}.f1", f"{what}: F1", score.f1, "")
    yield Figure(f"pages.{name}.precision", f"{what}: precision", score.precision, "")
    yield Figure(f"pages.{name}.recall", f"{what}: recall", score.recall, "")
    each = 1_000 * measured.seconds / measured.pages
    yield Figure(f"pages.{name}.time", f"{what}: processor time of a page", each, "ms")


def main(arguments: list[str]) -> int:
    """The exit code: 1 below a floor, 2 without data."""
    parser = argparse.ArgumentParser(prog="python -m bench.pages", description=__doc__)
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    try:
        figures = [
            one for folder in parser.parse_args(arguments).folders for one in measure(folder)
        ]
    except FileNotFoundError as error:
        print(error, file=sys.stderr)
        return 2
    print(table(figures, floors()))
    return 1 if below(figures, floors()) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
