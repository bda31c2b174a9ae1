"""Whether `recollect evaluate` says of a set what the benchmark says.

The first documents of a public set go into a tag of a service of their own. Their questions are
asked by `POST /v3/search`, as in `bench.quality`, and counted here the way that `docs/evaluate.md`
promises: the place of the first document that is meant and shows a passage with the words. Then the
same questions are imported and asked by the command. Each question has to come out at the same
place, so the figures are the same, too.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench import sets
from bench.ground import KEY, PROJECT, Client, Ground, Service, clean_environment, until
from bench.sets import Absent, Question, Set

TAG = "bench"
DOCUMENTS = 40
TAKEN = 1_000
"""characters of the question and of the words that a test question may have, and how many a tag"""
Ranks = Mapping[str, int | None]
"""by question, the place from 1 among the first ten documents"""
FIGURES: Mapping[str, Callable[[int | None], float]] = {
    "hitAt1": lambda rank: float(rank is not None and rank <= 1),
    "hitAt5": lambda rank: float(rank is not None and rank <= 5),
    "hitAt10": lambda rank: float(rank is not None),
    "mrr": lambda rank: 1 / rank if rank else 0.0,
}


def chosen(one: Set, most: int) -> list[Question]:
    """Those about the first documents that ask for one answer; each text once."""
    found: dict[str, Question] = {}
    for question in one.questions:
        if all(wanted.document < most for wanted in question.wanted):
            [wanted] = question.wanted
            if len(question.text) <= TAKEN and all(len(text) <= TAKEN for text in wanted.texts[:1]):
                found.setdefault(question.text, question)
    return list(found.values())[:TAKEN]


def lines(questions: Sequence[Question], ids: Sequence[str]) -> str:
    """For `recollect evaluate --import`."""
    told = ""
    for question in questions:
        [wanted] = question.wanted
        line = {"question": question.text, "document": ids[wanted.document]}
        told += json.dumps(line | ({"words": wanted.texts[0]} if wanted.texts else {})) + "\n"
    return told


def by_search(client: Client, questions: Sequence[Question], ids: Sequence[str]) -> Ranks:
    return {
        question.text: place(
            client.send("POST", "/v3/search", {"q": question.text, "containerTags": [TAG]})[
                "results"
            ],
            question,
            ids,
        )
        for question in questions
    }


def place(
    results: Sequence[Mapping[str, Any]], question: Question, ids: Sequence[str]
) -> int | None:
    """Case and spaces do not count."""
    [wanted] = question.wanted
    words = " ".join(wanted.texts[0].split()).casefold() if wanted.texts else ""
    for at, result in enumerate(results, 1):
        shown = [" ".join(chunk["content"].split()).casefold() for chunk in result["chunks"]]
        if result["documentId"] == ids[wanted.document] and any(words in text for text in shown):
            return at
    return None


def by_command(service: Service, folder: Path, told: str) -> tuple[Ranks, Mapping[str, float]]:
    """What `recollect evaluate` says of each question, and its figures."""
    file = folder / "questions.jsonl"
    file.write_text(told)
    _evaluate(service, folder, "--import", str(file))
    found = _evaluate(service, folder)
    ranks = {one["question"]: one["rank"] for one in found["results"]}
    return ranks, {name: found["run"][name] for name in FIGURES}


def _evaluate(service: Service, folder: Path, *more: str) -> Any:
    address = f"http://127.0.0.1:{service.port}"
    command = ["evaluate", TAG, "--json", "--url", address, "--key", KEY, *more]
    done = subprocess.run(
        [sys.executable, "-m", "recollect", *command],
        cwd=folder,
        env=clean_environment() | {"PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"recollect evaluate: {done.stderr[-2000:]}")
    return json.loads(done.stdout)


def compare(ground: Ground, one: Set, documents: int) -> int:
    """Prints the figures of both, and the questions that they disagree about; says how many."""
    with ground.serving() as service, tempfile.TemporaryDirectory() as folder:
        client = service.client()
        ids: list[str] = [
            client.send("POST", source.path, {**source.body, "containerTags": [TAG]})["id"]
            for source in one.documents[:documents]
        ]
        until(client.drained, within=7_200)
        questions = chosen(one, len(ids))
        ours = by_search(client, questions, ids)
        theirs, told = by_command(service, Path(folder), lines(questions, ids))
    print(f"{one.name}: {len(ids)} documents, {len(questions)} questions")
    wrong = [text for text in ours if ours[text] != theirs.get(text)]
    for name, points in FIGURES.items():
        mean = statistics.mean(map(points, ours.values()))
        print(f"  {name:8} bench {mean:.4f}  recollect evaluate {told[name]:.4f}")
        if abs(mean - told[name]) > 1e-9 and not wrong:
            wrong.append(name)
    for text in wrong:
        print(f"  differs: {text}: {ours.get(text)}, {theirs.get(text)}")
    return len(wrong)


def main(arguments: Sequence[str]) -> int:
    """The exit code: 1 where the two disagree."""
    parser = argparse.ArgumentParser(prog="python -m bench.evaluate", description=__doc__)
    parser.add_argument("data", type=Path, metavar="FOLDER", help="the public sets")
    parser.add_argument("--set", default="covid", metavar="NAME", help="in the format of SQuAD")
    parser.add_argument("--documents", type=int, default=DOCUMENTS, metavar="N", help="its first")
    given = parser.parse_args(arguments)
    found = next((one for one in sets.public(given.data) if one.name == given.set), None)
    if not isinstance(found, Set) or any(len(one.wanted) != 1 for one in found.questions):
        told = f"{found.missing} is absent" if isinstance(found, Absent) else "no set for this"
        parser.error(f"--set {given.set}: {told}")
    with Ground() as ground:
        return 1 if compare(ground, found, given.documents) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
