"""The smallest server that does in one statement what a request is about: what `post` and `search`
are compared with, beside the bare statement.

It has FastAPI, uvicorn, a pool, and the embedder of the service. It checks no key, bounds and keeps
nothing, and asks for no words: what it takes is what the server, the model and a statement cost.
In a large tag it compares all vectors, which takes longer than to walk through their index.

`python -m bench.smallest PORT DATABASE_URL CACHE MODEL`
"""

import os
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, LiteralString

import psycopg
import uvicorn
from fastapi import Body, FastAPI
from pgvector import HalfVector
from pgvector.psycopg import register_vector
from psycopg import sql
from psycopg.rows import dict_row
from psycopg_pool import ConnectionPool

from bench.ground import PROJECT, THREADS, Client, Ground, clean_environment, free_port, until
from recollect.inference.embed import Embedder, EmbedderChoice, open_embedder

INSERT: LiteralString = "insert into bench_bare (content) values (%s)"
MAKE: LiteralString = (
    "create table if not exists bench_bare"
    " (id bigint generated always as identity primary key, content text not null)"
)
UNTAGGED = sql.SQL(
    "select document_id, text, (embedding::halfvec({dimensions})) <=> %(v)s as distance"
    " from entries order by (embedding::halfvec({dimensions})) <=> %(v)s limit 10"
)
TAGGED = sql.SQL(
    "select e.document_id, e.text, e.embedding <=> %(v)s as distance from documents d"
    " join entries e on e.document_id = d.id where d.container_tags @> array[%(tag)s]"
    " order by distance limit 10"
)


@contextmanager
def answering(ground: Ground, url: str) -> Generator[Callable[[], Client]]:
    """The server, on that database; gives what makes a connection to it."""
    port = free_port()
    cache = ground.new_folder() / "cache"
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.smallest", str(port), url, str(cache), ground.model],
        env={**clean_environment(), "PYTHONPATH": os.fspath(PROJECT)},
    )
    try:
        until(lambda: _answers(process, port), within=60)
        yield lambda: Client(port)
    finally:
        process.terminate()
        process.wait(60)


def _answers(process: subprocess.Popen[bytes], port: int) -> bool:
    if process.poll() is not None:
        raise RuntimeError(f"the smallest server ended with {process.returncode}")
    try:
        Client(port).send("GET", "/ready")
    except OSError:
        return False
    return True


def _configure(connection: psycopg.Connection[Any]) -> None:
    connection.autocommit = True
    register_vector(connection)


def app(url: str, embedder: Embedder) -> FastAPI:
    pool = ConnectionPool(
        url, min_size=2, max_size=8, configure=_configure, kwargs={"row_factory": dict_row}
    )
    made = FastAPI()

    @made.get("/ready")
    def ready() -> dict[str, str]:
        return {"status": "ready"}

    @made.post("/v3/documents")
    def add(content: Annotated[str, Body(embed=True)]) -> dict[str, str]:
        with pool.connection() as connection:
            connection.execute(INSERT, (content,))
        return {"id": "1", "status": "queued"}

    @made.post("/v3/search")
    def search(
        q: Annotated[str, Body()], containerTag: Annotated[str | None, Body()] = None
    ) -> dict[str, Any]:
        vector = embedder.embed([q], query=True)[0]
        width = sql.Literal(len(vector))
        statement = TAGGED if containerTag else UNTAGGED.format(dimensions=width)
        with pool.connection() as connection:
            rows = connection.execute(
                statement, {"v": HalfVector(vector), "tag": containerTag}, prepare=True
            ).fetchall()
        return {
            "results": [
                {
                    "documentId": row["document_id"],
                    "chunks": [{"content": row["text"], "score": 1 - row["distance"]}],
                }
                for row in rows
            ]
        }

    return made


def main(port: str, url: str, cache: str, model: str) -> None:
    embedder = open_embedder(
        EmbedderChoice("local", model=model), cache=Path(cache), threads=THREADS
    )
    assert embedder is not None
    uvicorn.run(app(url, embedder), port=int(port), log_level="warning", access_log=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
