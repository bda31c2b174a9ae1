"""Chroma and LanceDB beside our search: the same vectors, filters and queries, in the same run.

`python -m bench search --beside PYTHON`, where PYTHON has `chromadb` and `lancedb` installed: they
have no place among what the service needs. Each store builds its index with the settings that it
has by default, in a process of its own, and is asked by vector alone for the ten nearest, as ours
is; no network lies between. Theirs give ids and distances, ours whole documents with their texts.
"""

import json
import statistics
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.figures import Figure, percentile
from bench.fill import Filling
from bench.ground import clean_environment
from recollect.db import Database
from recollect.documents.filters import parse
from recollect.model import Tenant
from recollect.search import hybrid
from recollect.search.hybrid import Query

STORES = {"chroma": "Chroma", "lance": "LanceDB"}
SCRIPT = Path(__file__).with_name("stores.py")
HOUR = 3600
Scopes = Mapping[str, tuple[str | None, int | None]]
"""the tag, and below which draw documents match"""


def measure(
    python: Path,
    folder: Path,
    db: Database,
    tenant: Tenant,
    made: Sequence[Filling],
    queries: NDArray[np.float32],
    scopes: Scopes,
) -> Iterator[Figure]:
    """Median and 95th percentile of each scope, ours as a ratio to theirs, and their recall."""
    vectors = np.concatenate([one.vectors for one in made])
    tags = np.array([tag for one in made for tag in one.tags for _ in one.texts])
    draws = np.array([int(one.metadata["draw"]) for one in made for _ in one.texts])
    asked = folder / "asked.npz"
    np.savez(
        asked, vectors=vectors, tags=tags, draws=draws, queries=queries, scopes=json.dumps(scopes)
    )
    ours = {id: _ours(db, tenant, queries, tag, below) for id, (tag, below) in scopes.items()}
    for store, name in STORES.items():
        theirs = ask(python, store, asked, folder / store)
        for id, (tag, below) in scopes.items():
            took, found = theirs[id]["took"], theirs[id]["found"]
            for part in (0.5, 0.95):
                yield Figure(
                    f"search.beside.{store}.{id}.p{part * 100:.0f}",
                    f"{id}, by vector alone, in-process, p{part * 100:.0f}",
                    percentile(ours[id], part) * 1000,
                    "ms",
                    percentile(ours[id], part) / percentile(took, part),
                    name,
                )
            within = np.full(len(vectors), True)
            if tag is not None:
                within &= tags == tag
            if below is not None:
                within &= draws < below
            share = recall(vectors, within, queries, found)
            yield Figure(
                f"search.beside.{store}.{id}.recall",
                f"{id}, nearest found by {name}",
                share,
                "recall",
                share,
                "comparing all",
            )


def _ours(
    db: Database,
    tenant: Tenant,
    queries: NDArray[np.float32],
    tag: str | None,
    below: int | None,
) -> list[float]:
    condition = {
        "filterType": "numeric", "key": "draw", "value": str(below), "numericOperator": "<",
    }  # fmt: skip
    filter = parse({"AND": [condition]}) if below is not None else None
    took: list[float] = []
    for vector in (*queries[:3], *queries):
        query = Query("", vector, tags=[tag] if tag else [], filter=filter)
        started = time.perf_counter()
        with db.begin() as tx:
            hybrid.search(tx, tenant, query)
        took.append(time.perf_counter() - started)
    return took[3:]


def ask(python: Path, store: str, asked: Path, folder: Path) -> dict[str, Any]:
    """What `bench/stores.py` prints. Raises RuntimeError with what went wrong."""
    done = subprocess.run(
        [python, SCRIPT, store, asked, folder],
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=HOUR,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{store} ended with {done.returncode}: {done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def recall(
    vectors: NDArray[np.float32],
    within: NDArray[np.bool_],
    queries: NDArray[np.float32],
    found: Sequence[Sequence[int]],
) -> float:
    """The mean share of the ten nearest of those in scope, equal distances counted alike."""
    if not within.any():
        return 1.0
    shares: list[float] = []
    for query, rows in zip(queries, found, strict=True):
        exact = np.sort(vectors[within] @ query)[::-1][:10]
        near = np.sort(vectors[list(rows)] @ query)[::-1][: len(exact)]
        shares.append(float((near >= exact[-1] - 2e-4).sum()) / len(exact))
    return statistics.mean(shares)
