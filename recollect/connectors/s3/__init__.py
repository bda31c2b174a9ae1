"""S3: every object of a bucket, or of one prefix in it, at Amazon or any service that speaks S3.

There is no feed of changes: each sync lists all keys and compares ETag and size with what is
remembered. A listing that was cut off goes on at its next page, by the token that the service gave
for it. A service that gives no tokens goes on behind the last key, so it must list keys in order.
Where keys come in another order, some may be left out between two pages: what such a listing lacks
is gone when another one lacks it, too.
"""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar
from urllib.parse import quote, unquote, urlsplit

from recollect.connectors.api import Turning
from recollect.connectors.base import (
    TAG_PATTERN,
    Assumption,
    Change,
    Checkpoint,
    Connector,
    Cursor,
    Item,
    Listed,
    Listing,
    Missing,
    Source,
    Verdict,
)
from recollect.connectors.s3._bucket import LARGEST_OBJECT, S3Bucket, Settings, Stored
from recollect.connectors.s3._guide import GUIDE
from recollect.connectors.s3._pattern import KeyPattern
from recollect.errors import BadRequestError, CursorExpired, Permanent
from recollect.fetch import Fetcher
from recollect.model import Blob, Remembered

HELD = 1_000
"""new keys that may wait for the end of a listing, to be told from keys that moved"""
LONGEST_LISTING = timedelta(days=1)
"""A listing that was cut off goes on for so long."""
CLOCK = timedelta(minutes=15)
"""by which a request's time may be off (S3 API reference, RequestTimeTooSkewed)"""
LONGEST_PATTERN = 200
"""characters"""
TAG = re.compile(r"[A-Za-z0-9_:.-]{1,100}")

# https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html
BUCKET = re.compile(r"(?!.{0,62}\.\.)(?!xn--)[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
DOTTED = re.compile(r"[0-9]+(\.[0-9]+){3}")
REGION = re.compile(r"[A-Za-z0-9]+(-[A-Za-z0-9]+){0,5}")
AMAZON_REGION = re.compile(r"[a-z]{2}(-[a-z]+){1,3}-[0-9]{1,2}")
KEY_ID = re.compile(r"[!-~]{1,256}")


class S3(Connector):
    provider = "s3"
    name = "S3"
    guide = GUIDE
    subject = "bucket"
    tree = True
    secrets = frozenset({"accessKeyId", "secretAccessKey"})
    page_size: ClassVar[int] = 1_000
    """keys asked for at a time"""

    def check(self, metadata: Mapping[str, Any], fetcher: Fetcher) -> dict[str, Any]:
        kept = {
            name: value.strip() if name in CHECKS and isinstance(value, str) else value
            for name, value in metadata.items()
            if name not in OPTIONAL or value not in (None, "")
        }
        for name, (pattern, rule) in CHECKS.items():
            value = kept.get(name)
            if value in (None, ""):
                raise BadRequestError(f"metadata.{name}: is required")
            if not isinstance(value, str) or not pattern.fullmatch(value):
                raise BadRequestError(f"metadata.{name}: {rule}")
        if DOTTED.fullmatch(kept["bucket"]):
            raise BadRequestError("metadata.bucket: must not look like an IP address")
        if "/" in kept["accessKeyId"] or "," in kept["accessKeyId"]:
            raise BadRequestError("metadata.accessKeyId: must not contain / or ,")
        return {**kept, **_optional(kept, fetcher)}

    def changes(self, source: Source, cursor: Cursor | None) -> Iterator[Change]:
        """One listing. New keys wait for its end, while there may be a key that they were."""
        settings = _settings(source.metadata)
        bucket = S3Bucket(settings, source.fetcher, source.pause)
        regex = source.metadata.get(TAG_PATTERN)
        pattern = _pattern(regex) if regex else None
        asked = {"url": settings.base_url, "prefix": settings.prefix}
        began, after, token = _resumed(asked, cursor, source.since)
        asked["began"] = began.isoformat()
        begins = after is None and token is None
        ordered = begins or (cursor or {}).get("ordered") is not False
        if begins:
            yield Listing()
        taken_up, place = token, _place(after, token)
        may_have_moved = next(source.remembered(), None) is not None
        held: dict[str, Item] = {}
        turning = Turning("The store", token)
        more = True
        while more:
            source.going()
            try:
                page = bucket.list(after, self.page_size, token=token)
            except Permanent as error:
                if token is None or token != taken_up:
                    raise
                raise CursorExpired(
                    f"the store does not know the page any more: {error}"
                ) from error
            ids = [one.key for one in page.objects if "\0" not in one.key]
            known = {row.id for row in source.remembered(ids)}
            for stored in page.objects:
                change = _change(stored, settings, pattern)
                waits = may_have_moved and isinstance(change, Item) and change.id not in known
                if waits and isinstance(change, Item) and len(held) < HELD:
                    held[change.id] = change
                else:
                    yield change
            alone = not page.more and after is None and token is None
            ordered = ordered and (alone or page.is_ordered(after))
            after, more = (page.objects[-1].key if page.objects else after), page.more
            token = turning.turn(page.token, (one.key for one in page.objects)) if more else None
            if not held:
                place = _place(after, token)  # what waits is listed again if this sync is cut off
            yield Checkpoint({**asked, **place, "ordered": ordered})
        yield from _told_apart(source, [*held.values()], began)
        if not ordered:
            yield from _not_listed(source, began)
        yield Listed()
        yield Checkpoint({**asked, **_place(None, None)})

    def fetch(self, source: Source, item: Remembered) -> Blob:
        return Blob(_bucket_of(source).get(item.id, item.version or ""), name=_title(item.id))

    def ping(self, source: Source) -> None:
        _bucket_of(source).list(None, 1)

    def assumptions(self, source: Source) -> Iterator[Assumption]:
        off = _bucket_of(source).clock_off(datetime.now(UTC))
        if off is None:
            yield Assumption("clock", None, "the service does not send the time")
        else:
            yield Assumption(
                "clock",
                abs(off) < CLOCK,
                f"the clocks differ by {abs(off).total_seconds():.0f} seconds; requests are signed"
                f" with the time, and refused from {CLOCK.total_seconds():.0f} on",
            )
        safe = _settings(source.metadata).base_url.startswith("https://")
        told = "requests go over TLS" if safe else "requests and contents go unencrypted (http)"
        yield Assumption("transport", True if safe else None, told)


CHECKS: Mapping[str, tuple[re.Pattern[str], str]] = {
    "accessKeyId": (KEY_ID, "1 to 256 characters of ASCII without spaces"),
    "secretAccessKey": (KEY_ID, "1 to 256 characters of ASCII without spaces"),
    "bucket": (
        BUCKET,
        "3 to 63 lower-case letters, digits, dots and hyphens; only the name, not a URL",
    ),
    "region": (REGION, "the code of a region, such as eu-central-1, or auto"),
}
"""What is required, and its rule."""
OPTIONAL = ("endpoint", "prefix", TAG_PATTERN)


def _bucket_of(source: Source) -> S3Bucket:
    return S3Bucket(_settings(source.metadata), source.fetcher, source.pause)


def _settings(metadata: Mapping[str, Any]) -> Settings:
    return Settings(
        access_key_id=metadata["accessKeyId"],
        secret_access_key=metadata["secretAccessKey"],
        bucket=metadata["bucket"],
        region=metadata["region"],
        endpoint=metadata.get("endpoint") or None,
        prefix=metadata.get("prefix") or "",
    )


def _optional(kept: Mapping[str, Any], fetcher: Fetcher) -> dict[str, Any]:
    """What is to be kept of what may be given; raises BadRequestError."""
    given = {name: kept[name] for name in OPTIONAL if name in kept}
    for name, value in given.items():
        if not isinstance(value, str):
            raise BadRequestError(f"metadata.{name}: must be a string")
    if "endpoint" in given:
        given["endpoint"] = _endpoint(given["endpoint"], fetcher)
    elif not AMAZON_REGION.fullmatch(kept["region"]):
        raise BadRequestError(
            "metadata.region: without an endpoint it is one of Amazon's, such as eu-central-1"
        )
    prefix = given.get("prefix", "")
    if "\0" in prefix or len(prefix.encode(errors="replace")) > 1024:
        raise BadRequestError("metadata.prefix: at most 1,024 bytes, none of them NUL")
    if TAG_PATTERN in given:
        _pattern(given[TAG_PATTERN])
    return given


def _endpoint(given: str, fetcher: Fetcher) -> str:
    """The endpoint to keep, without a slash at its end; raises BadRequestError."""
    given = given.strip()
    if not given.lower().startswith(("http://", "https://")):
        raise BadRequestError("metadata.endpoint: must begin with https:// or http://")
    verdict = fetcher.check(given)
    if verdict.href is None or not verdict.allowed:
        raise BadRequestError(f"metadata.endpoint: {verdict.reason}")
    if urlsplit(verdict.href).query:
        raise BadRequestError("metadata.endpoint: must have no query")
    return verdict.href.rstrip("/")


def _pattern(source: str) -> KeyPattern:
    """Raises BadRequestError."""
    if len(source) > LONGEST_PATTERN:
        raise BadRequestError(f"metadata.{TAG_PATTERN}: at most {LONGEST_PATTERN} characters")
    try:
        return KeyPattern(source)
    except ValueError as error:
        raise BadRequestError(f"metadata.{TAG_PATTERN}: {error}") from error


def _resumed(
    asked: Mapping[str, str], cursor: Cursor | None, now: datetime
) -> tuple[datetime, str | None, str | None]:
    """When the listing began that goes on now, behind which key, and by which token; without both
    it begins now.

    Another bucket or prefix is another question, and one of yesterday is asked again.
    """
    known = cursor or {}
    after, token = (
        unquote(value) if isinstance(value := known.get(name), str) else None
        for name in ("after", "token")
    )
    whole = after is None and token is None
    if whole or any(known.get(key) != value for key, value in asked.items()):
        return now, None, None
    try:
        began = datetime.fromisoformat(str(known.get("began")))
    except ValueError:
        return now, None, None
    return (began, after, token) if now - began < LONGEST_LISTING else (now, None, None)


def _place(after: str | None, token: str | None) -> dict[str, str | None]:
    """As a cursor has it. Quoted: PostgreSQL stores no NUL."""
    return {"after": after and quote(after), "token": token and quote(token)}


def _change(stored: Stored, settings: Settings, pattern: KeyPattern | None) -> Item | Verdict:
    key = stored.key
    url = f"s3://{settings.bucket}/{key}"
    verdict = _unreadable(stored)
    if verdict is not None:
        id, title = key.replace("\0", "\ufffd"), _title(key).replace("\0", "\ufffd")
        return Verdict(id, *verdict, url=url.replace("\0", "\ufffd"), title=title)
    tag = pattern.find(key) if pattern is not None else None
    fits = tag is not None and TAG.fullmatch(tag) is not None
    return Item(
        id=key,
        version=stored.version,
        title=_title(key),
        url=url,
        metadata={
            "key": key,
            "size": stored.size,
            **({"lastModified": stored.modified_at.isoformat()} if stored.modified_at else {}),
        },
        tags=(tag,) if tag is not None and fits else (),
        modified_at=stored.modified_at,
        detail=None if tag is None or fits else f"{tag!r} cannot be a container tag",
    )


def _unreadable(stored: Stored) -> tuple[str, str] | None:
    """Why an object does not become a document, as one word and a sentence."""
    key = stored.key
    if stored.size == 0:
        return ("folder", "marks a folder") if key.endswith("/") else ("empty", "has no content")
    if stored.size > LARGEST_OBJECT:
        return "too_large", f"is larger than {LARGEST_OBJECT // 1_000_000} MB"
    if "\0" in key or not {".", ".."}.isdisjoint(key.split("/")):
        return "bad_key", "no URL can have . or .. between slashes, or NUL; give it another key"
    return None


def _title(key: str) -> str:
    return key.rstrip("/").rpartition("/")[2] or key


def _not_listed(source: Source, began: datetime) -> Iterator[Missing]:
    """A service that goes by the time of change, with equal times in any order, begins a page
    behind where the last key stands by then (github.com/rclone/rclone/pull/9371)."""
    for row in source.remembered():
        if row.document_id is not None and row.seen_at < began:
            yield Missing(row.id, "The store did not list it.")


def _told_apart(source: Source, new: Sequence[Item], began: datetime) -> Iterator[Item]:
    """The new keys, each with the one it had before if there can be no doubt.

    Moved was an object when one key vanished and one appeared with the same content.
    """
    appeared = Counter(item.version for item in new)
    vanished: defaultdict[str, list[str]] = defaultdict(list)
    for row in source.remembered() if new else ():
        if row.version is not None and row.version in appeared and row.seen_at < began:
            vanished[row.version].append(row.id)
    for item in new:
        before = vanished[item.version]
        is_moved = appeared[item.version] == 1 and len(before) == 1
        yield replace(item, formerly=before[0]) if is_moved else item
