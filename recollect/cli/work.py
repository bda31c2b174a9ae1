"""`work`: one process that works the queues of documents and of connections."""

import threading

import typer

from recollect import log
from recollect.cli._opened import opened
from recollect.cli._process import Supervised, Workers, on_signals, when_orphaned
from recollect.config import load
from recollect.deliver import Deliverer
from recollect.dream import Dreamer
from recollect.pulse import Pulse
from recollect.purge import Purger
from recollect.tender import Tender
from recollect.worker import Worker


def register(app: typer.Typer) -> None:
    app.command(rich_help_panel="Run")(work)


def work(workers: Workers = None, supervised: Supervised = False) -> None:
    """Run one worker process; as many as wanted may share a database.

    Example: RECOLLECT_DATABASE_URL=postgresql://… recollect work --workers 4
    """
    config = load(workers=workers)
    log.configure(config.log_level, process="worker")
    with opened(config, supervised=supervised) as app:
        worker, purger = Worker(app), Purger(app)
        others = [Tender(app), Deliverer(app), Pulse(app), Dreamer(app)]

        def stop() -> None:
            worker.stop()
            purger.stop()
            for other in others:
                other.stop()

        on_signals(stop)
        if supervised:
            when_orphaned(stop)
        threads = [
            threading.Thread(target=other.run, name=type(other).__name__) for other in others
        ]
        for thread in threads:
            thread.start()
        # A daemon, since a purge takes its time: one that is cut off is cleared away by the next.
        threading.Thread(target=purger.run, name="Purger", daemon=True).start()
        worker.run()
        for thread in threads:
            thread.join()
