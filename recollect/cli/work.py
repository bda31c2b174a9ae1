"""`work`: one process that works the queues of documents and of connections."""

import threading

import typer

from recollect import log
from recollect.cli._process import Supervised, Workers, on_signals, opened, when_orphaned
from recollect.config import load
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
    with opened(config) as app:
        worker, tender = Worker(app), Tender(app)

        def stop() -> None:
            worker.stop()
            tender.stop()

        on_signals(stop)
        if supervised:
            when_orphaned(stop)
        tending = threading.Thread(target=tender.run, name="tender")
        tending.start()
        worker.run()
        tending.join()
