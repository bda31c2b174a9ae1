"""What a vector store takes for the ten nearest, run by a Python of its own that has it installed.

`PYTHON bench/stores.py chroma|lance ASKED.npz FOLDER` prints JSON: for each scope the seconds of
each query and the row numbers found. `bench/beside.py` starts it; nothing here imports
Recollect.
"""

import importlib
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

NEAREST = 10
BATCH = 5_000
WARM = 3
"""queries of each scope that do not count"""
Search = Callable[[Any, "str | None", "int | None"], list[int]]
"""vector, tag, below which draw; the numbers of the nearest rows"""


def chroma(vectors: Any, tags: Sequence[str], draws: Sequence[int], folder: Path) -> Search:
    chromadb = importlib.import_module("chromadb")
    client = chromadb.PersistentClient(
        str(folder), settings=chromadb.Settings(anonymized_telemetry=False)
    )
    collection = client.create_collection(
        "chunks", configuration={"hnsw": {"space": "cosine"}}, embedding_function=None
    )
    for start in range(0, len(vectors), BATCH):
        part = slice(start, start + BATCH)
        labels = [
            {"tag": str(tag), "draw": int(draw)}
            for tag, draw in zip(tags[part], draws[part], strict=True)
        ]
        ids = [str(start + number) for number in range(len(labels))]
        collection.add(ids=ids, embeddings=vectors[part], metadatas=labels)

    def search(vector: Any, tag: str | None, below: int | None) -> list[int]:
        asked: list[dict[str, Any]] = []
        if tag is not None:
            asked.append({"tag": tag})
        if below is not None:
            asked.append({"draw": {"$lt": below}})
        where = {"$and": asked} if len(asked) > 1 else asked[0] if asked else None
        found = collection.query(
            query_embeddings=[vector], n_results=NEAREST, where=where, include=["distances"]
        )
        return [int(id) for id in found["ids"][0]]

    return search


def lance(vectors: Any, tags: Sequence[str], draws: Sequence[int], folder: Path) -> Search:
    lancedb = importlib.import_module("lancedb")
    pa = importlib.import_module("pyarrow")
    flat = pa.array(vectors.reshape(-1))
    columns = {
        "vector": pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1]),
        "id": pa.array(range(len(vectors))),
        "tag": pa.array([str(tag) for tag in tags]),
        "draw": pa.array([int(draw) for draw in draws]),
    }
    table = lancedb.connect(str(folder)).create_table("chunks", pa.table(columns))
    table.create_index(metric="cosine", vector_column_name="vector", index_type="IVF_HNSW_SQ")
    table.create_scalar_index("tag")
    table.create_scalar_index("draw")

    def search(vector: Any, tag: str | None, below: int | None) -> list[int]:
        asked: list[str] = []
        if tag is not None:
            asked.append(f"tag = '{tag}'")
        if below is not None:
            asked.append(f"draw < {below}")
        query = table.search(vector).distance_type("cosine").limit(NEAREST)
        if asked:
            query = query.where(" and ".join(asked), prefilter=True)
        return [row["id"] for row in query.select(["id"]).to_list()]

    return search


def main(store: str, asked: str, folder: str) -> None:
    given = np.load(asked)
    made = {"chroma": chroma, "lance": lance}[store]
    search = made(given["vectors"], given["tags"], given["draws"], Path(folder))
    answers: dict[str, Any] = {}
    for scope, (tag, below) in json.loads(str(given["scopes"])).items():
        for vector in given["queries"][:WARM]:
            search(vector, tag, below)
        took: list[float] = []
        found: list[list[int]] = []
        for vector in given["queries"]:
            started = time.perf_counter()
            found.append(search(vector, tag, below))
            took.append(time.perf_counter() - started)
        answers[scope] = {"took": took, "found": found}
    print(json.dumps(answers))


if __name__ == "__main__":
    main(*sys.argv[1:])
