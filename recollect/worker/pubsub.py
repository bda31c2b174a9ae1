"""The loop that fetches notices from where they wait, for those whom no provider can push to.

Only Gmail's wait anywhere, in Cloud Pub/Sub. A notice is heeded as if it had been pushed, and
acknowledged once that is written down. While none can be fetched, changes are found by asking the
provider itself, and each connection's status says why.
"""

import threading
from datetime import timedelta

from recollect import log
from recollect.app import App
from recollect.connectors.gmail.pubsub import Subscription, read_key
from recollect.errors import RecollectError, SetupError, Transient, Unavailable
from recollect.loop import enduring, tell_bug
from recollect.sync import connections

LOG = log.get("pull")
PROVIDER = "gmail"
IDLE = timedelta(seconds=1)
"""After an answer without notices."""
PATIENCE = 3
"""failures in a row that may pass by themselves"""
FIRST_PAUSE, LONGEST_PAUSE = timedelta(seconds=1), timedelta(minutes=5)


def run(app: App, stop: threading.Event) -> None:
    """Until stopped; several may run on one subscription, in any processes.

    What the operator mends, key file included, is taken without a restart.
    """
    if app.config.pubsub_subscription is None:
        return
    subscription: Subscription | None = None
    failures, working = 0, False
    while not stop.is_set():
        try:
            subscription = subscription or open_subscription(app)
            count = fetch(app, subscription)
            if not working:
                _tell_working(app, subscription)
                working = True
        except Exception as error:  # noqa: BLE001 # a bug must not end the loop without a word
            failures += 1
            passing = isinstance(error, Unavailable) or (
                isinstance(error, Transient) and failures < PATIENCE
            )
            if not passing:
                working, subscription = False, None
                _tell_failing(app, error)
            stop.wait(_pause(error, failures).total_seconds())
            continue
        failures = 0
        if not count:
            stop.wait(IDLE.total_seconds())


def open_subscription(app: App) -> Subscription:
    """Raises SetupError that says which setting or file is at fault."""
    name, path = app.config.pubsub_subscription, app.config.pubsub_key_file
    assert name is not None
    if path is None:
        raise SetupError("RECOLLECT_PUBSUB_KEY_FILE is not set: who shall read the subscription?")
    return Subscription(name, read_key(path), app.config.pubsub_api_url)


def fetch(app: App, subscription: Subscription) -> int:
    """Heed what has come; returns how many notices. Raises Permanent, Transient."""
    received = subscription.pull()
    if received:
        with app.db.begin() as tx:
            for one in received:
                connections.heed(tx, PROVIDER, one.notice)
        # Before this it may come again, to us or to another process; it is heeded once.
        subscription.acknowledge(received)
    return len(received)


def _tell_working(app: App, subscription: Subscription) -> None:
    with app.db.begin() as tx:
        again = connections.unmute(tx, PROVIDER)
    LOG.info("notices are pulled", subscription=subscription.name, registered_again=again)


def _tell_failing(app: App, error: Exception) -> None:
    told = str(error)
    if not isinstance(error, RecollectError):
        tell_bug(LOG, error)
        told = f"an error in Recollect itself ({type(error).__name__})"
    reason = f"notices cannot be pulled: {told}"
    with enduring(LOG):
        with app.db.begin() as tx:
            muted = connections.mute(tx, PROVIDER, reason, again=app.config.poll_interval)
        LOG.warning("notices cannot be pulled", reason=told, muted=muted)


def _pause(error: Exception, failures: int) -> timedelta:
    doubled = min(FIRST_PAUSE * 2.0 ** min(failures - 1, 20), LONGEST_PAUSE)
    asked = error.after if isinstance(error, Transient) else None
    return doubled if asked is None else min(max(doubled, asked), LONGEST_PAUSE)


__all__ = ["fetch", "open_subscription", "run"]
