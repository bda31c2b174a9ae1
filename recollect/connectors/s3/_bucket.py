"""A bucket at any service that speaks S3, through the guarded door.

Requests are signed here (AWS Signature Version 4) rather than by a client library: an object
store's path is not a key (`a//b`, `/a` and `a/` are three keys, and one that a library cannot
express would hide the rest of its listing), and the connection must be judged by the Fetcher. The
rules are those of the S3 API reference: ListObjectsV2, GetObject, "Error responses".
"""

import hashlib
import hmac
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from itertools import pairwise
from typing import NoReturn
from urllib.parse import quote, unquote_plus, urlsplit
from xml.parsers import expat

from recollect.connectors._json import as_time
from recollect.connectors.api import (
    PROVIDER_UNAVAILABLE,
    RATE_LIMITED,
    led_away,
    other_content,
    refuse_stand_in,
    rest,
)
from recollect.errors import NotFoundError, Permanent, Reauthorize, Transient
from recollect.fetch import EndpointAnswer, Fetcher, outcome, said_in

LARGEST_OBJECT = 50_000_000
"""bytes"""
LARGEST_LISTING = 5_000_000
"""bytes: a thousand keys of 1,024 bytes, each written as %xx, fit in"""
MOST_LEAVES = 20_000
"""elements of a listing"""
TRIES = 3
LONGEST_PAUSE = 5.0
"""seconds that a thread waits in place"""
EXCERPT = 200
CONTENTS = "ListBucketResult/Contents"

EMPTY = hashlib.sha256(b"").hexdigest()
REFUSED_KEYS = {
    "InvalidAccessKeyId": "the accessKeyId is not known there",
    "SignatureDoesNotMatch": "the secretAccessKey does not belong to the accessKeyId",
    "ExpiredToken": "it has expired",
    "InvalidToken": "it needs a session token, which is not supported; make a permanent key",
}
NEW_KEY = (
    "give the connection another accessKeyId and secretAccessKey, or sync it again once the key is"
    " in order"
)
SLOW = frozenset(
    {"SlowDown", "SlowDownRead", "SlowDownWrite", "RequestLimitExceeded", "Throttling",
     "ThrottlingException", "TooManyRequests"}
)  # fmt: skip
"""MinIO says whether it was too busy to read or to write."""
PASSING = frozenset({"InternalError", "RequestTimeout", "ServiceUnavailable", "OperationAborted"})
ELSEWHERE = frozenset(
    {"PermanentRedirect", "TemporaryRedirect", "AuthorizationHeaderMalformed",
     "IllegalLocationConstraintException", "IncorrectEndpoint"}
)  # fmt: skip
NAMED_IN_HOST = frozenset({"SecondLevelDomainForbidden", "PathStyleDomainForbidden"})
"""what Alibaba and Tencent say to a bucket that is named in the path"""


@dataclass(frozen=True, slots=True)
class Settings:
    """Where a bucket is and who asks."""

    access_key_id: str
    secret_access_key: str
    bucket: str
    region: str
    endpoint: str | None
    """without a slash at the end; None: Amazon's"""
    prefix: str

    @property
    def base_url(self) -> str:
        """Of the bucket, without a slash at the end.

        The bucket stands in the host name for Amazon, unless its dots would break the certificate,
        and where the endpoint has it there already; else it stands in the path.
        """
        if self.endpoint is not None:
            named = (urlsplit(self.endpoint).hostname or "").startswith(f"{self.bucket}.")
            return self.endpoint if named else f"{self.endpoint}/{self.bucket}"
        suffix = "amazonaws.com.cn" if self.region.startswith("cn-") else "amazonaws.com"
        if "." in self.bucket:
            return f"https://s3.{self.region}.{suffix}/{self.bucket}"
        return f"https://{self.bucket}.s3.{self.region}.{suffix}"


@dataclass(frozen=True, slots=True)
class Stored:
    """An object as a listing describes it."""

    key: str
    size: int
    """bytes"""
    etag: str
    modified_at: datetime | None
    """None for what is not a time"""

    @property
    def version(self) -> str:
        return f"{self.etag}-{self.size}"


@dataclass(frozen=True, slots=True)
class BucketPage:
    objects: Sequence[Stored]
    more: bool
    token: str | None
    """of the page after it"""

    def is_ordered(self, after: str | None) -> bool:
        """Whether its keys come in their order, behind one."""
        keys = [one.key for one in self.objects]
        return all(one < other for one, other in pairwise([after or "", *keys]))


class S3Bucket:
    def __init__(
        self, settings: Settings, fetcher: Fetcher, pause: Callable[[float], None]
    ) -> None:
        self._settings = settings
        self._fetcher = fetcher
        self._pause = pause

    def list(
        self, after: str | None, most: int, prefix: str | None = None, token: str | None = None
    ) -> BucketPage:
        """The objects whose keys come after one, `most` of them at a time; `prefix`: instead of
        that of the settings; `token`: of this page.

        Raises Reauthorize, Transient (`rate_limited`, `provider_unavailable`), Permanent
        (`access_denied`, `no_bucket`, `wrong_region`, `wrong_endpoint`, `blocked_target`, …).
        """
        query = {"encoding-type": "url", "list-type": "2", "max-keys": str(most)}
        if beginning := self._settings.prefix if prefix is None else prefix:
            query["prefix"] = beginning
        if token is not None:
            query["continuation-token"] = token
        elif after is not None:
            query["start-after"] = after
        answer = self._get("", query, LARGEST_LISTING, total=60.0)
        if answer.status != 200:
            raise self._refusal(answer, "s3:ListBucket on the bucket")
        try:
            listed = _listing(answer.data)
        except ValueError as error:
            if b"<ListAllMyBucketsResult" in answer.data[:EXCERPT]:
                raise Permanent(
                    f"{self._host} lists its buckets: its name begins with that of the bucket, but"
                    f" is not its own; add /{self._settings.bucket} to the endpoint",
                    code="wrong_endpoint",
                ) from error
            raise Transient(
                f"{self._host} did not answer with a listing", code=PROVIDER_UNAVAILABLE
            ) from error
        if listed.more and listed.token is None:
            # It goes on behind the last key; we might go round in circles, or leave out something.
            if not listed.objects:
                raise Transient(
                    f"{self._host} ended its listing too early", code=PROVIDER_UNAVAILABLE
                )
            if not listed.is_ordered(after):
                raise Permanent(
                    f"{self._host} neither lists keys in their order nor names the next page, so"
                    " that deletions cannot be told",
                    code="unordered_listing",
                )
        return listed

    def get(self, key: str, version: str) -> bytes:
        """The bytes of an object that was listed with this version.

        Raises NotFoundError, Permanent (`archived`, `too_large`, `access_denied`, …), and what
        `list` raises.
        """
        answer = self._get(f"/{key}", {}, LARGEST_OBJECT, total=300.0)
        if answer.status == 200:
            self._prove(key, answer, version)
            return answer.data
        code, _, _ = _error(answer.data)
        if code == "InvalidObjectState":
            raise Permanent(
                "the object is in an archive (Glacier) and cannot be read until it is restored",
                code="archived",
            )
        if code == "NoSuchKey" or (answer.status == 404 and code != "NoSuchBucket"):
            raise NotFoundError("Not found", "the object is gone")
        raise self._refusal(answer, "s3:GetObject on the objects")

    def _prove(self, key: str, answer: EndpointAnswer, version: str) -> None:
        """Raises Transient unless what came is what was listed, or is listed by now."""
        if _is_of(version, answer):
            return
        refuse_stand_in(answer.data)
        try:
            # Of all keys that begin so, it is the first.
            now = self.list(None, 1, prefix=key).objects
        except Permanent:  # the key may list its prefix as a whole only
            return
        if not any(one.key == key and _is_of(one.version, answer) for one in now):
            raise other_content()

    def clock_off(self, now: datetime) -> timedelta | None:
        """How far the service's clock is ahead of `now`, to the second; None if it sends no time.

        Raises what `list` raises.
        """
        answer = self._get("", {"list-type": "2", "max-keys": "1"}, LARGEST_LISTING, total=60.0)
        if answer.status != 200:
            raise self._refusal(answer, "s3:ListBucket on the bucket")
        try:
            return parsedate_to_datetime(answer.headers.get("date", "")) - now
        except (ValueError, OverflowError, TypeError):  # TypeError: a time without a zone
            return None

    @property
    def _host(self) -> str:
        return urlsplit(self._settings.base_url).netloc

    def _get(
        self, path: str, query: Mapping[str, str], max_bytes: int, *, total: float
    ) -> EndpointAnswer:
        """The answer, after a few tries if it is one that passes."""
        base = urlsplit(self._settings.base_url)
        path = (base.path + quote(path)) or "/"
        asked = "&".join(f"{name}={quote(value, safe='')}" for name, value in sorted(query.items()))
        url = f"{base.scheme}://{base.netloc}{path}" + (f"?{asked}" if asked else "")
        for attempt in range(1, TRIES + 1):
            headers = sign(self._settings, base.netloc, path, asked, datetime.now(UTC))
            try:
                answer = self._fetcher.ask(url, headers=headers, max_bytes=max_bytes, total=total)
                trouble = self._passing(answer)
            except Transient as error:
                trouble = Transient(str(error), code=PROVIDER_UNAVAILABLE, after=error.after)
                trouble.__cause__ = error
                answer = None
            if trouble is None and answer is not None:
                return answer
            assert trouble is not None
            wait = rest(attempt) if trouble.after is None else trouble.after.total_seconds()
            if attempt == TRIES or wait > LONGEST_PAUSE:
                raise trouble
            self._pause(wait)
        raise AssertionError("the last try ends the loop")

    def _passing(self, answer: EndpointAnswer) -> Transient | None:
        """What an answer means that is worth another try; None: it is not one."""
        if answer.status == 200 or 300 <= answer.status < 400:
            return None
        code, _, _ = _error(answer.data)
        meant = outcome(answer.status, answer.headers, "")
        after = meant.after if isinstance(meant, Transient) else None
        if code in SLOW or answer.status == 429:
            return Transient(f"{self._host} asks to slow down", code=RATE_LIMITED, after=after)
        if code == "RequestTimeTooSkewed":
            return Transient(
                f"{self._host} says that the clock of this machine is wrong; correct it",
                code=PROVIDER_UNAVAILABLE,
            )
        # A success without what was asked for (204) is none.
        if code in PASSING or isinstance(meant, Transient) or answer.status < 300:
            return Transient(
                f"{self._host} answered {answer.status} {self._quoted(answer)}".rstrip(),
                code=PROVIDER_UNAVAILABLE,
                after=after,
            )
        return None

    def _refusal(self, answer: EndpointAnswer, right: str) -> Exception:
        """What an answer means that no other try would change; `right` is what was needed."""
        code, _, region = _error(answer.data)
        if code in REFUSED_KEYS:
            why = REFUSED_KEYS[code]
            return Reauthorize(f"{self._host} refuses the key: {why}; {NEW_KEY}")
        if answer.status == 401:
            return Reauthorize(f"{self._host} refuses the key; {NEW_KEY}")
        if code == "NoSuchBucket":
            return Permanent(
                f"there is no bucket {self._settings.bucket!r} at {self._host}; documents stay",
                code="no_bucket",
            )
        region = answer.headers.get("x-amz-bucket-region") or region
        away = led_away(self._settings.base_url, answer, within=False)
        if away is not None and not code and not region:
            return away
        if code in ELSEWHERE or 300 <= answer.status < 400:
            return self._elsewhere(region)
        if code in NAMED_IN_HOST:
            base = urlsplit(self._settings.endpoint or self._settings.base_url)
            return Permanent(
                f"{self._host} wants the bucket in the name of the host; make the endpoint"
                f" {base.scheme}://{self._settings.bucket}.{base.netloc}{base.path}",
                code="wrong_endpoint",
            )
        if answer.status == 403 and (code or not answer.data):
            return Permanent(
                f"the key may not read this; it needs {right}, and kms:Decrypt where the bucket is"
                f" encrypted with a key of KMS ({self._quoted(answer) or answer.status})",
                code="access_denied",
            )
        return Permanent(
            f"{self._host} answered {answer.status} {self._quoted(answer)}".rstrip(),
            code=f"http_{answer.status}",
        )

    def _elsewhere(self, region: str | None) -> Permanent:
        given = self._settings.region
        if region and region != given:
            fault = f"is in region {region}, not in {given}; change the connection's region"
        else:
            fault = f"is not in region {given}, or not at this endpoint; change the connection"
        return Permanent(f"the bucket {self._settings.bucket!r} {fault}", code="wrong_region")

    def _quoted(self, answer: EndpointAnswer) -> str:
        """What the service says of an error, or something before it, without what is secret."""
        code, said, _ = _error(answer.data)
        told = ": ".join(filter(None, (code, said))).encode() or answer.data
        keys = (self._settings.secret_access_key, self._settings.access_key_id)
        return said_in(told, hide=keys)[:EXCERPT]


def sign(settings: Settings, host: str, path: str, query: str, at: datetime) -> dict[str, str]:
    """The headers that a GET needs; `path` and `query` (sorted) as they go on the wire.

    https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
    """
    stamp = at.strftime("%Y%m%dT%H%M%SZ")
    day = stamp[:8]
    scope = f"{day}/{settings.region}/s3/aws4_request"
    names = "host;x-amz-content-sha256;x-amz-date"
    canonical = "\n".join(
        ["GET", path, query, f"host:{host}", f"x-amz-content-sha256:{EMPTY}",
         f"x-amz-date:{stamp}", "", names, EMPTY]
    )  # fmt: skip
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    key = f"AWS4{settings.secret_access_key}".encode()
    for part in (day, settings.region, "s3", "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    signed = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{digest}"
    signature = hmac.digest(key, signed.encode(), "sha256").hex()
    return {
        "authorization": f"AWS4-HMAC-SHA256 Credential={settings.access_key_id}/{scope},"
        f" SignedHeaders={names}, Signature={signature}",
        "x-amz-content-sha256": EMPTY,
        "x-amz-date": stamp,
    }


def _is_of(version: str, answer: EndpointAnswer) -> bool:
    """Whether it has this version: by its ETag, since what is stored compressed has another size
    here, or by its size, since some services give another ETag with the content. Nothing is of no
    version: objects of 0 bytes are not read."""
    etag, _, size = version.rpartition("-")
    told = answer.headers.get("etag", "").removeprefix("W/").strip('"')
    return bool(answer.data) and (told == etag or str(len(answer.data)) == size)


def _listing(data: bytes) -> BucketPage:
    """Raises ValueError for everything that is not a whole answer to ListObjectsV2."""
    leaves = _leaves(data)
    top = {path: text for path, text in leaves if path.count("/") == 1}
    truncated = top.get("ListBucketResult/IsTruncated")
    if truncated not in ("true", "false"):
        raise ValueError("not a listing")
    decode = unquote_plus if top.get("ListBucketResult/EncodingType") == "url" else str
    objects: list[Stored] = []
    fields: dict[str, str] = {}
    for path, text in leaves:
        if path == CONTENTS:
            objects.append(_stored(fields, decode))
            fields = {}
        elif path.startswith(f"{CONTENTS}/"):
            fields[path.removeprefix(f"{CONTENTS}/")] = text
    token = top.get("ListBucketResult/NextContinuationToken") or None
    return BucketPage(objects, truncated == "true", token)


def _stored(fields: Mapping[str, str], decode: Callable[[str], str]) -> Stored:
    try:
        modified_at = as_time(fields.get("LastModified", ""))
        etag = fields.get("ETag", "").strip('"') or (modified_at and modified_at.isoformat())
        return Stored(
            key=decode(fields["Key"]),
            size=int(fields["Size"]),
            etag=etag or fields["LastModified"],
            modified_at=modified_at,
        )
    except KeyError as error:
        raise ValueError(f"an object without {error}") from error


def _error(data: bytes) -> tuple[str, str, str | None]:
    """Code, message and region of an error; empty if it is not an error of S3."""
    try:
        leaves = dict(_leaves(data))
    except ValueError:
        return "", "", None
    return leaves.get("Error/Code", ""), leaves.get("Error/Message", ""), leaves.get("Error/Region")


def _leaves(data: bytes) -> list[tuple[str, str]]:
    """Each element's path and text at its end, in order. Raises ValueError; takes no DTD."""
    found: list[tuple[str, str]] = []
    path: list[str] = []
    text: list[str] = []

    def start(name: str, _attributes: object) -> None:
        path.append(name)
        text.clear()
        if len(path) > 8 or len(found) > MOST_LEAVES:
            raise ValueError("too deep or too long")

    def end(_name: str) -> None:
        found.append(("/".join(path), "".join(text)))
        path.pop()
        text.clear()

    parser = expat.ParserCreate()
    parser.buffer_text = True
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = text.append
    parser.StartDoctypeDeclHandler = _refuse
    try:
        parser.Parse(data, True)
    except (expat.ExpatError, LookupError) as error:  # an encoding that does not exist
        raise ValueError("not XML") from error
    return found


def _refuse(*_: object) -> NoReturn:
    raise ValueError("a document type")


__all__ = ["LARGEST_OBJECT", "BucketPage", "S3Bucket", "Settings", "Stored", "sign"]
