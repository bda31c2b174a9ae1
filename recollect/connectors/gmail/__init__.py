"""Gmail: the threads of a mailbox, each of them one document with all of its mails.

Everything is listed once and then followed through the history. Of a thread the ids of its mails
are the version: mails never change, and labels are metadata. Gmail puts a number on each thread
that rises with every change (its `historyId`), which is remembered: a listing asks only for
threads whose number is another one. So a history that Gmail forgot is not a calamity: everything is
listed again, which finds what was deleted meanwhile as well, in one call for 500 threads.

With a query or labels only Gmail knows what is in scope. There, anything new in the history means
listing again.

Facts: developers.google.com/workspace/gmail/api (guides/sync, guides/push, reference/quota,
users.threads, users.history), cloud.google.com/pubsub/docs/authenticate-push-subscriptions.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, cast

from recollect.config import Config
from recollect.connectors import _google
from recollect.connectors._json import as_object
from recollect.connectors.api import PROVIDER_UNAVAILABLE, Api, as_json, field_of
from recollect.connectors.base import Account, Assumption, Change, Connector, Cursor, Source
from recollect.connectors.gmail._guide import GUIDE
from recollect.connectors.gmail._pass import FOR_ALL, LABELS, QUERY, Pass
from recollect.connectors.gmail._settings import GmailSettings, settings_in
from recollect.connectors.gmail._text import ThreadReader
from recollect.connectors.gmail._threads import (
    UNPRINTABLE,
    number_of,
    path_of,
    read_thread,
    time_of,
)
from recollect.connectors.gmail.proofs import FindKey, json_of, keys_at, verify
from recollect.connectors.gmail.pubsub import Subscription, diagnosed, notice_of, open_subscription
from recollect.connectors.oauth import Tokens
from recollect.connectors.pushes import FORGED, Push, PushResult, Registration
from recollect.errors import BadRequestError, NotFoundError, Permanent, Transient
from recollect.fetch import EndpointAnswer, Fetcher, believable, told_time
from recollect.model import Extracted, Remembered

TOPIC = "pubsubTopic"
"""key of the metadata: the Pub/Sub topic for pushes; without it there are none"""
SCOPE = "https://www.googleapis.com/auth/gmail.readonly"
MAILBOX = "mailbox"
RENEWAL = timedelta(days=2)
"""Registrations are renewed at half of their life, and Google wants that daily."""
TOPIC_NAME = re.compile(r"projects/[a-z0-9.:-]{4,100}/topics/[A-Za-z][A-Za-z0-9._~+%-]{2,254}")
LABEL_ID = re.compile(r"[A-Za-z0-9_^.-]{1,100}")
WAIT_UNTIL = re.compile(r"Retry after (\d{4}-\d\d-\d\dT[\d:]{8}(?:\.\d{1,6})?Z)", re.IGNORECASE)


class Gmail(Connector):
    provider = "gmail"
    name = "Gmail"
    guide = GUIDE
    settings = GmailSettings
    application = _google.APPLICATION
    api_url = "https://gmail.googleapis.com"
    oauth = _google.GOOGLE_OAUTH((SCOPE, "openid", "email"))
    # A project of today has 6,000 units a minute for each user, and threads.get costs 40.
    per_second = 2.4
    pushes = True
    pulls = True
    selects = "labels"

    def check(self, metadata: Mapping[str, Any], fetcher: Fetcher) -> dict[str, Any]:
        kept = dict(metadata)
        if QUERY in metadata:
            kept[QUERY] = _checked_query(metadata[QUERY])
        if LABELS in metadata:
            kept[LABELS] = ",".join(_checked_labels(metadata[LABELS]))
        topic = metadata.get(TOPIC)
        if topic is not None and not (isinstance(topic, str) and TOPIC_NAME.fullmatch(topic)):
            raise BadRequestError(f"metadata.{TOPIC}: must be projects/PROJECT/topics/TOPIC")
        return kept

    def selection(self, metadata: Mapping[str, Any]) -> dict[str, str] | None:
        given = str(metadata.get(LABELS) or "")
        return {label: label for label in given.split(",")} if given else None

    def select(self, metadata: Mapping[str, Any], ids: Sequence[str]) -> dict[str, Any]:
        return {**metadata, LABELS: ",".join(ids)}

    def judge(self, answer: EndpointAnswer) -> Exception | None:
        known = _google.judge(answer, scope="gmail.readonly")
        if isinstance(known, Transient) and known.after is None:
            return Transient(str(known), code=known.code, after=_told_wait(answer))
        if known is not None:
            return known
        why = _google.reasons(answer)
        if answer.status == 400 and why & {"failedPrecondition", "FAILED_PRECONDITION"}:
            return Permanent(
                f"this Google account has no mailbox, or Gmail is switched off for it"
                f" ({_google.message(answer)})",
                code="no_mailbox",
            )
        if answer.status == 403 and "domainPolicy" in why:
            return Permanent(
                "an administrator of the Google Workspace does not let applications read mail",
                code="domain_policy",
            )
        return None

    def identify(self, api: Api, tokens: Tokens) -> Account:
        return _google.identify(api, tokens)

    # --- listing and fetching ------------------------------------------------------------------

    def changes(self, source: Source, cursor: Cursor | None) -> Iterator[Change]:
        yield from Pass(source, cursor).run()

    def fetch(self, source: Source, item: Remembered) -> Extracted:
        fields = "id,messages(id,labelIds,internalDate,payload)"
        try:
            thread = read_thread(source.api, item.id, fields)
        except Permanent as error:
            if error.code in FOR_ALL:
                raise Transient(str(error), code=PROVIDER_UNAVAILABLE) from error
            raise Permanent(f"{item.title}: {error}", code=error.code) from error
        except NotFoundError as error:
            # The history tells of what was deleted; of what was not, nothing would tell again.
            told = f"{item.title}: Gmail does not find it; the next sync removes it if it is gone"
            raise Transient(told, code=PROVIDER_UNAVAILABLE) from error
        if thread is None:
            raise NotFoundError(f"{item.title} is not in the mailbox any more")
        return ThreadReader(source).read(thread)

    def ping(self, source: Source) -> None:
        source.api.get(path_of("profile"))

    def assumptions(self, source: Source) -> Iterator[Assumption]:
        profile = source.api.get(path_of("profile"))
        field_of(profile, "historyId", str)
        threads = profile.get("threadsTotal")
        told = f"{threads:,} threads" if isinstance(threads, int) else "threads"
        yield Assumption(
            "mailbox", True, f"the mailbox has {told}, and its history can be followed"
        )

    # --- pushes --------------------------------------------------------------------------------

    def diagnose(self, config: Config) -> Iterator[Assumption]:
        return diagnosed(settings_in(config))

    def push_url(self, config: Config, registration: str) -> str | None:
        """To the subscription that notices are pulled from, if there is one."""
        given = settings_in(config)
        if given.pubsub_subscription is not None:
            return f"{given.pubsub_api_url.rstrip('/')}/v1/{given.pubsub_subscription}"
        return super().push_url(config, registration)

    def inbox(self, config: Config) -> Subscription | None:
        return open_subscription(settings_in(config))

    def proof(self, config: Config, *, confirmed: bool) -> Assumption | None:
        given = settings_in(config)
        if given.pubsub_service_account or given.pubsub_subscription:
            return None
        told = "RECOLLECT_PUBSUB_SERVICE_ACCOUNT is not set, so pushes cannot be verified"
        return Assumption("pushes", False, told)

    def push_config(self, config: Config) -> Mapping[str, Any]:
        given = settings_in(config)
        return {
            "audience": given.pubsub_audience,
            "service_account": given.pubsub_service_account,
            "keys": keys_at(given.pubsub_certs_url),
        }

    def watches(self, source: Source) -> Sequence[str]:
        return [MAILBOX] if source.metadata.get(TOPIC) else []

    def subscribe(self, source: Source, registration: Registration) -> Registration:
        """There is one watch for a mailbox and an application; a second one is the first, renewed.

        Raises Permanent (`no_watch`) when Gmail may not publish to the topic.
        """
        body = {
            "topicName": source.metadata.get(TOPIC),
            "labelIds": ["INBOX"],
            "labelFilterBehavior": "include",
        }
        refused = frozenset({400, 403, 404})
        answer = source.api.call("POST", path_of("watch"), json=body, accept=refused, repeat=True)
        if answer.status in refused:
            raise self.judge(answer) or Permanent(
                f"Gmail does not publish to {body['topicName']} ({_google.message(answer)}): the"
                " topic must be in the project of the OAuth application, and"
                " gmail-api-push@system.gserviceaccount.com must be a publisher of it",
                code="no_watch",
            )
        watch = as_json(answer)
        ends = time_of(number_of(field_of(watch, "expiration", str)))
        return replace(
            registration,
            remote={"historyId": field_of(watch, "historyId", str)},
            expires_at=min(ends, source.since + RENEWAL),
        )

    def unsubscribe(self, api: Api, registration: Registration) -> None:
        """Nothing: `users.stop` would end the pushes of every connection of this mailbox, and the
        renewed watch with the old one. What nobody renews ends within a week."""

    def reads(self, push: Push) -> bool:
        """Where Google sends a token that we could verify."""
        return bool(push.config.get("audience")) and "authorization" in push.headers

    def receive(self, push: Push) -> PushResult:
        """Of `Push.config`: `audience`, `service_account`, and `keys` by their names (`Keys`).

        What is authentic is always acknowledged; Pub/Sub would repeat it for a week.
        """
        audience, account = push.config.get("audience"), push.config.get("service_account")
        keys = push.config.get("keys")
        if not (isinstance(audience, str) and isinstance(account, str) and callable(keys)):
            return FORGED
        kind, _, token = push.headers.get("authorization", "").partition(" ")
        proven = kind.lower() == "bearer" and verify(
            token.strip(),
            audience=audience,
            service_account=account,
            keys=cast("FindKey", keys),
            now=datetime.now(UTC),
        )
        if not proven:
            return FORGED
        return notice_of(as_object(json_of(push.body).get("message")))


def _told_wait(answer: EndpointAnswer) -> timedelta | None:
    """Gmail hides it in the message for people: `Retry after 2026-01-31T12:00:00.000Z`."""
    found = WAIT_UNTIL.search(_google.message(answer))
    if found is None:
        return None
    wait = datetime.fromisoformat(found[1]) - told_time(answer.headers)
    return max(believable(wait), timedelta(seconds=1))


def _checked_query(given: object) -> str:
    if not isinstance(given, str) or len(given) > 1_000 or UNPRINTABLE.search(given):
        raise BadRequestError(
            f"metadata.{QUERY}: must be a query as you type it into Gmail's search, at most"
            " 1,000 characters"
        )
    return given.strip()


def _checked_labels(given: object) -> list[str]:
    """Ids out of a list or `a,b`; raises BadRequestError."""
    parts = given.split(",") if isinstance(given, str) else given
    found: list[str] = []
    for part in cast("list[Any]", parts) if isinstance(parts, list) else [None]:
        id = part.strip() if isinstance(part, str) else None
        if id is None or (id and not LABEL_ID.fullmatch(id)):
            raise BadRequestError(
                f"metadata.{LABELS}: must be ids of labels (INBOX, Label_12), separated by commas"
            )
        found += [id] if id else []
    if len(set(found)) > 20:
        raise BadRequestError(f"metadata.{LABELS}: at most 20 labels")
    return list(dict.fromkeys(found))
