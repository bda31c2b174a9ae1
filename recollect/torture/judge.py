"""What must hold at the end, asked of the API and of the tables below it."""

import contextlib
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, LiteralString
from urllib.parse import urlsplit

from recollect.blobs import Blobs
from recollect.db import Database
from recollect.errors import Permanent, Transient, Unavailable
from recollect.fetch import Endpoint
from recollect.ops.verify import LISTS_MISCOUNTED
from recollect.torture import peers, texts
from recollect.torture.oracle import TAG, Fault, Verdict, Written, compare

PAGE = 400
SEARCHED = 200
"""Documents of those that are there, and of the deleted, that are searched for: at most these,"""
SEARCHED_OF = 10
"""and one of so many."""
VECTORS = 2000
FILES = 500
LONGEST_WISH = 420.0
"""Seconds: no document waits longer for its next attempt (five minutes and some jitter)."""
DRAIN_WITHIN = 1200.0
LOOK = 0.25

BELOW: dict[str, tuple[Verdict, LiteralString]] = {
    "a chunk is not part of the text": (
        "wrong",
        "with placed as materialized (select c.document_id, c.start_at, c.end_at, e.text"
        "  from chunks c left join entries e on e.document_id = c.document_id and e.hash = c.hash)"
        " select p.document_id as what from placed p join documents d on d.id = p.document_id"
        " where p.text is distinct from substr(d.text, p.start_at + 1, p.end_at - p.start_at)",
    ),
    "an index entry without a chunk": (
        "wrong",
        "select e.document_id as what from entries e where not exists"
        " (select 1 from chunks c where c.document_id = e.document_id and c.hash = e.hash)",
    ),
    "a document without chunks": (
        "lost",
        "select id as what from documents where status = 'done'"
        " and id not in (select document_id from chunks)",
    ),
    "a wrong number of chunks": (
        "doubled",
        "with placed as materialized"
        "  (select document_id as id, count(*) as n from chunks group by document_id)"
        " select id as what from documents left join placed using (id)"
        " where status = 'done' and chunks <> coalesce(n, 0)",
    ),
    "a number of entries that is not counted right": (
        "wrong",
        "with recount as materialized (select d.org_id, number, count(*) as n from entries e"
        "  join facets d on d.id = e.document_id, unnest(e.terms) number"
        "  group by d.org_id, number)"
        " select number::text as what from term_counts full join recount using (org_id, number)"
        " where term_counts.entries is distinct from recount.n",
    ),
    "a number in a list that is not counted right": (
        "wrong",
        "select org_id || ' ' || tag as what from (" + LISTS_MISCOUNTED + ") off",
    ),
    "an indexed revision that is not the newest": (
        "wrong",
        "select id as what from documents where status = 'done' and indexed_revision <> revision",
    ),
    "a text without its vector": (
        "wrong",
        "select distinct document_id as what from entries where embedding is null",
    ),
    "a blob that is doomed and in use": (
        "wrong",
        "select d.id as what from documents d join doomed_blobs b on b.key = d.blob",
    ),
}
"""Rows that no answer shows; each is a fault."""


class Judge:
    """Compares the service with what was acknowledged, once all faults are over."""

    def __init__(
        self, urls: Sequence[str], key: str, database: Database, blobs: Blobs, *, patience: float
    ) -> None:
        """`patience`: seconds without any progress after which what is left counts as stuck."""
        headers = {"Authorization": f"Bearer {key}"}
        self._endpoints = [Endpoint(url, headers=headers, timeout=60.0) for url in urls]
        self._endpoint = self._endpoints[0]
        self._database = database
        self._blobs = blobs
        self._patience = patience

    def close(self) -> None:
        for endpoint in self._endpoints:
            endpoint.close()

    def drain(self, wait: Callable[[float], object], say: Callable[[int], object]) -> float:
        """Wait until nothing is queued or in work, while there is progress; returns seconds.

        `wait` passes some seconds, `say` is told how many are left. What is left at the end is
        found by the verdicts.
        """
        start = since = time.monotonic()
        last: object = None
        while time.monotonic() - start < DRAIN_WITHIN:
            try:
                with self._database.begin() as tx:
                    row = tx.execute(
                        "select count(*) filter (where due_at is not null) as left,"
                        " count(*) as all, count(*) filter (where status = 'queued' and due_at"
                        "  between now() and now() + make_interval(secs => %s)) as later"
                        " from documents",
                        (LONGEST_WISH,),
                    ).fetchone()
            except Unavailable:
                row = None
            now = time.monotonic()
            if row is not None:
                say(row["left"])
                if row["left"] == 0:
                    break
                if last != (row["left"], row["all"]) or row["later"]:
                    last, since = (row["left"], row["all"]), now
            if now - since > self._patience:
                break
            wait(LOOK)
        return time.monotonic() - start

    def verdicts(self, written: Sequence[Written], chance: Random) -> tuple[list[Fault], int]:
        """All faults, and how many documents there are."""
        listed = self._listed()
        faults = compare(written, listed)
        faults += self._searched(written, chance)
        faults += self._below()
        faults += self._vectors()
        faults += self._files()
        faults += self._ready()
        return faults, len(listed)

    def site(self, connection: str, wait: Callable[[float], object]) -> list[Fault]:
        """Each page of the site is one document, once the crawl is over."""
        end = time.monotonic() + self._patience
        state = self._run_of(connection)
        while state != "completed" and time.monotonic() < end:
            if state == "failed":
                self._ask("POST", "/v3/connections/web-crawler/import", {})
            wait(LOOK)
            state = self._run_of(connection)
        if state != "completed":
            return [Fault("stuck", f"the crawl of the site is {state or 'not begun'}")]
        self.drain(wait, lambda _: None)
        faults: list[Fault] = []
        expected = {f"/site/{n}": peers.page(n) for n in range(peers.PAGES)}
        expected["/site"] = peers.page(peers.PAGES)
        for found in self._listed(connection):
            path = urlsplit(str(found["url"])).path
            words = expected.pop(path, None)
            if words is None:
                faults.append(Fault("doubled", f"{found['id']} is a second {path}"))
            elif found["status"] != "done":
                faults.append(Fault("stuck", f"{found['id']} ({path}) is {found['status']}"))
            elif words not in (found.get("content") or ""):
                faults.append(Fault("wrong", f"{found['id']} has not the text of {path}"))
        return faults + [Fault("lost", f"{path} of the site") for path in expected]

    def _run_of(self, connection: str) -> str | None:
        found = self._ask("GET", f"/v3/connections/{connection}", None)
        run: dict[str, str] = found.get("lastSyncRun") or {}
        return run.get("status")

    def _listed(self, connection: str | None = None) -> list[dict[str, Any]]:
        listed: list[dict[str, Any]] = []
        page, pages = 1, 1
        while page <= pages:
            query = {"limit": PAGE, "page": page, "includeContent": True, "order": "asc"}
            answer = self._ask("POST", "/v3/documents/list", query)
            listed += answer["memories"]
            pages = answer["pagination"]["totalPages"]
            page += 1
        return [one for one in listed if one["connectionId"] == connection]

    def _searched(self, written: Sequence[Written], chance: Random) -> list[Fault]:
        """The first words of a text find it, and nothing finds a deleted one."""
        faults: list[Fault] = []
        for there in (True, False):
            some = [one for one in written if one.there is there and len(one.contents) == 1]
            for one in chance.sample(some, min(-(-len(some) // SEARCHED_OF), SEARCHED)):
                query = {"q": one.content.split()[0], "limit": 5, "containerTag": TAG}
                hits = self._ask("POST", "/v3/search", query)["results"]
                mark = texts.marks(one.content)[0]
                found = any(mark in chunk["content"] for hit in hits for chunk in hit["chunks"])
                if found is not there:
                    state = "is not found" if there else "was deleted and is found"
                    faults.append(Fault("lost" if there else "wrong", f"{one.name} {state}"))
        return faults

    def _below(self) -> list[Fault]:
        with self._database.begin() as tx:
            return [
                Fault(verdict, f"{name}: {row['what']}")
                for name, (verdict, query) in BELOW.items()
                for row in tx.execute(query)
            ]

    def _vectors(self) -> list[Fault]:
        """Each entry has the vector of its own text."""
        with self._database.begin() as tx:
            rows = tx.execute(
                "select document_id, text, embedding::text as vector from entries"
                " where embedding is not null order by hash limit %s",
                (VECTORS,),
            ).fetchall()
        return [
            Fault("wrong", f"{row['document_id']} has the vector of another text")
            for row in rows
            if _cosine(peers.vector(row["text"]), json.loads(row["vector"])) < 0.99
        ]

    def _files(self) -> list[Fault]:
        """Each uploaded file is in the store."""
        with self._database.begin() as tx:
            rows = tx.execute(
                "select id, blob from documents where blob is not null order by blob limit %s",
                (FILES,),
            ).fetchall()
        faults: list[Fault] = []
        for row in rows:
            try:
                self._blobs.get(row["blob"])
            except Permanent:
                faults.append(Fault("lost", f"the file of {row['id']} is not in the store"))
        return faults

    def _ready(self) -> list[Fault]:
        answers = [endpoint.request("GET", "/ready") for endpoint in self._endpoints]
        return [
            Fault("wrong", f"/ready answers {answer.status} when all is well again")
            for answer in answers
            if answer.status != 200
        ]

    def _ask(self, method: str, path: str, body: object | None) -> dict[str, Any]:
        """Raises Transient unless it is answered well, soon."""
        end = time.monotonic() + self._patience
        while True:
            try:
                return self._endpoint.request_json(method, path, body)
            except Transient:
                if time.monotonic() > end:
                    raise


def bugs(log: Path) -> list[Fault]:
    """A kill explains lost connections and ended processes, but never a bug."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return [
        Fault("wrong", f"a bug, line {number} of the log: {_last_words(line)}")
        for number, line in enumerate(lines, 1)
        if '"event": "bug"' in line or line.startswith("Traceback")
    ]


def _last_words(line: str) -> str:
    """Of a traceback in a line of the log: what was raised."""
    with contextlib.suppress(ValueError, AttributeError):
        told = json.loads(line)
        return str(told.get("exception") or told.get("traceback")).strip().split("\n")[-1][:200]
    return line[:200]


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    """Of two of length 1."""
    return sum(a * b for a, b in zip(one, other, strict=True))
