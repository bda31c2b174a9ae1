"""`work`: one process that works the queues of documents and of connections."""

import typer

from recollect import log
from recollect.cli._config import load
from recollect.cli._log import log_of_process
from recollect.cli._opened import opened
from recollect.cli._process import Parent, Supervised, Workers, end_within, on_signals
from recollect.loop import Loop, ending_with_loops
from recollect.ops.purge import Purger
from recollect.worker.extraction import Dreamer
from recollect.worker.maintenance import Maintainer
from recollect.worker.processing import Worker
from recollect.worker.syncs import Syncer
from recollect.worker.webhooks import Deliverer

LOG = log.get("work")
LAST = 2.0
"""Seconds for threads that still work when all claims are given back."""


def register(app: typer.Typer) -> None:
    app.command()(work)


def work(workers: Workers = None, supervised: Supervised = False) -> None:
    """Run one worker process; as many as wanted may share a database.

    Example: RECOLLECT_DATABASE_URL=postgresql://… recollect work --workers 4
    """
    parent = Parent() if supervised else None
    config = load(workers=workers)
    log_of_process(config, "worker")
    with opened(config, supervised=supervised) as app:
        worker, purger = Worker(app), Purger(app)
        others = [Syncer(app), Deliverer(app), Maintainer(app), Dreamer(app)]

        def stop() -> None:
            worker.stop()
            purger.stop()
            for other in others:
                other.stop()

        on_signals(stop)
        if parent:
            parent.at_end(stop)
        threads = [Loop(other.run, type(other).__name__) for other in others]
        with ending_with_loops(LOG, stop) as died:
            try:
                for thread in threads:
                    thread.start()
                # Not waited for: a purge takes its time, and one that is cut off is cleared away
                # by the next.
                Loop(purger.run, "Purger").start()
                worker.run()
            finally:
                stop()
                for thread in threads:
                    thread.join()
        code = int(died.is_set())
        end_within(LAST, code)
    if code:
        raise typer.Exit(code)
