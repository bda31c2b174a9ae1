"""The loop that fetches notices from where they wait, for those whom no provider can push to.

A notice is acted on as if it had been pushed, and acknowledged once that is written
down. While none can be fetched, changes are found by asking the provider itself, and each
connection's status says why.
"""

import threading
from datetime import timedelta

from recollect import log
from recollect.app import App
from recollect.connectors.base import Connector
from recollect.connectors.pushes import Inbox
from recollect.errors import RecollectError, Transient, Unavailable
from recollect.loop import backoff, enduring, tell_bug
from recollect.sync import push_registrations

LOG = log.get("pulls")
IDLE = timedelta(seconds=1)
"""After an answer without notices."""
PATIENCE = 3
"""failures in a row that may pass by themselves"""
FIRST_PAUSE, LONGEST_PAUSE = timedelta(seconds=1), timedelta(minutes=5)


def run(app: App, connector: Connector, stop: threading.Event) -> None:
    """Until stopped; several may run on one inbox, in any processes.

    What the operator fixes, key file included, is taken without a restart.
    """
    inbox: Inbox | None = None
    failures, working = 0, False
    while not stop.is_set():
        try:
            inbox = inbox or connector.inbox(app.config)
            if inbox is None:
                return
            count = fetch(app, connector, inbox)
            if not working:
                _tell_working(app, connector, inbox)
                working = True
        except Exception as error:  # noqa: BLE001 # a bug must not end the loop without a word
            failures += 1
            passing = isinstance(error, Unavailable) or (
                isinstance(error, Transient) and failures < PATIENCE
            )
            if not passing:
                working, inbox = False, None
                _tell_failing(app, connector, error)
            stop.wait(_pause(error, failures).total_seconds())
            continue
        failures = 0
        if not count:
            stop.wait(IDLE.total_seconds())


def fetch(app: App, connector: Connector, inbox: Inbox) -> int:
    """Act on what has come; returns how many notices. Raises Permanent, Transient."""
    received = inbox.pull()
    if received:
        with app.db.begin() as tx:
            for one in received:
                push_registrations.take_push(tx, connector.provider, one.notice)
        # Before this it may come again, to us or to another process; it is heeded once.
        inbox.acknowledge(received)
    return len(received)


def _tell_working(app: App, connector: Connector, inbox: Inbox) -> None:
    with app.db.begin() as tx:
        again = push_registrations.resume(tx, connector.provider)
    LOG.info("notices are pulled", inbox=inbox.name, registered_again=again)


def _tell_failing(app: App, connector: Connector, error: Exception) -> None:
    told = str(error)
    if not isinstance(error, RecollectError):
        tell_bug(LOG, error)
        told = f"an error in Recollect itself ({type(error).__name__})"
    reason = f"notices cannot be pulled: {told}"
    with enduring(LOG):
        with app.db.begin() as tx:
            again = app.config.poll_interval
            suspended = push_registrations.suspend(tx, connector.provider, reason, again=again)
        LOG.warning("notices cannot be pulled", reason=told, suspended=suspended)


def _pause(error: Exception, failures: int) -> timedelta:
    doubled = backoff(failures, FIRST_PAUSE, LONGEST_PAUSE)
    asked = error.after if isinstance(error, Transient) else None
    return doubled if asked is None else min(max(doubled, asked), LONGEST_PAUSE)


__all__ = ["fetch", "run"]
