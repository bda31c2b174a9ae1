"""Syncs of one connection in a process of its own, whose memory can be measured, and which can be
killed: `python -m tests.connectors.one_sync` with what to do as JSON on standard input.

Prints a line of JSON for each sync: what was counted, and the most memory so far in KiB. Without a
number of syncs it is a worker process: it does all that is due until it is killed.
"""

import json
import re
import sys
import threading
from dataclasses import asdict
from ipaddress import ip_network
from pathlib import Path
from typing import Any

from recollect import connectors, log
from recollect.app import App
from recollect.blobs import open_blobs
from recollect.config import Config, ProviderSettings
from recollect.db import Database
from recollect.extract import Sandbox
from recollect.fetch import Fetcher
from recollect.inference.transcribe import Listener
from recollect.sync import connection_queue
from recollect.sync.items import SyncCounts
from recollect.worker import syncs
from recollect.worker.processing import Worker
from tests.fakes.embedder import WordEmbedder

LOOPBACK = ip_network("127.0.0.0/8")


def main(asked: dict[str, Any]) -> None:
    log.configure("error")
    settings = {name: ProviderSettings(**given) for name, given in asked["providers"].items()}
    config = Config(
        data_dir=Path(asked["data_dir"]),
        workers=1,
        allow_networks=[LOOPBACK],
        providers=settings,
        folders=asked.get("folders", []),
        lease_seconds=asked.get("lease_seconds", 60),
        crawl_delay=asked.get("crawl_delay", 0.0),
    )
    for connector in connectors.all().values():
        connector.per_second = None  # pyright: ignore[reportAttributeAccessIssue] # no pace here
    fetcher = Fetcher(user_agent="RecollectBot/test", allow_networks=[LOOPBACK])
    with Database(asked["database"], size=4) as db, Sandbox(workers=1) as sandbox:
        app = App(
            config=config,
            db=db,
            blobs=open_blobs(config.blobs),
            embedder=WordEmbedder(),
            fetcher=fetcher,
            sandbox=sandbox,
            listener=Listener(None),
        )
        say({})
        if asked["syncs"] is None:
            threading.Thread(target=syncs.Syncer(app).run, daemon=True).start()
            Worker(app).run()
            return
        for _ in range(asked["syncs"]):
            with db.begin() as tx:
                tx.execute("update connections set due_at = now() where id = %s", (asked["id"],))
                [claim] = connection_queue.claim(tx, lease=app.lease, limit=1)
            outcome = syncs.attempt(app, claim, threading.Event())
            syncs.settle(app, claim, outcome)
            told = asdict(outcome) if isinstance(outcome, SyncCounts) else {"error": repr(outcome)}
            say(told)
    fetcher.close()


def say(told: dict[str, Any]) -> None:
    # Not ru_maxrss: that of a child begins with what its parent had (getrusage(2)).
    status = Path("/proc/self/status").read_text()
    peak = int(re.findall(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)[0])
    sys.stdout.write(json.dumps({**told, "kib": peak}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(json.load(sys.stdin))
