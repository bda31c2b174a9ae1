"""S3 against a server that checks signatures and policies, with boto3 as the user."""

import gzip
import json
import re
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Network
from typing import Any

import boto3
import httpx
import pytest
from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.config import Config
from botocore.credentials import Credentials
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from moto.s3.models import s3_backends
from moto.server import ThreadedMotoServer

from recollect.connectors.base import (
    Change,
    Checkpoint,
    Cursor,
    Gone,
    Item,
    Listed,
    Listing,
    Missing,
    Verdict,
)
from recollect.connectors.s3 import S3
from recollect.connectors.s3._bucket import Settings, sign
from recollect.connectors.s3._pattern import KeyPattern
from recollect.errors import (
    BadRequestError,
    CursorExpired,
    LeaseLost,
    NotFoundError,
    Permanent,
    Reauthorize,
    Transient,
)
from recollect.extract import Sandbox
from recollect.fetch import Fetcher
from recollect.model import Blob
from tests.connectors.memory import MemorySource
from tests.fakes.proxy import Proxy

LOOPBACK = IPv4Network("127.0.0.0/8")
CALM = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""how long an example takes is the machine's business"""
REGION = "us-east-1"
ALL = {"Effect": "Allow", "Action": ["s3:*", "iam:*"], "Resource": "*"}


class Tens(S3):
    """The connector with small pages."""

    page_size = 10


class Amazon:
    """The server, and a user of it who may do everything."""

    def __init__(self, url: str) -> None:
        self.url = url
        httpx.post(f"{url}/moto-api/reset", trust_env=False)
        # So many calls pass without a signature: enough to make the user.
        self._enforce_after(3)
        self.key, self.secret = self._user(self._client("iam", "x", "y"), "owner", ALL)
        self.s3 = self._client("s3", self.key, self.secret)
        self._buckets = 0

    def close(self) -> None:
        self._enforce_after(float("inf"))

    def user(self, name: str, *statements: dict[str, Any]) -> tuple[str, str]:
        """Keys of somebody with these rights."""
        return self._user(self._client("iam", self.key, self.secret), name, *statements)

    def bucket(self) -> str:
        self._buckets += 1
        name = f"bucket-{self._buckets}"
        self.s3.create_bucket(Bucket=name)
        return name

    def _enforce_after(self, calls: float) -> None:
        httpx.post(f"{self.url}/moto-api/reset-auth", content=str(calls), trust_env=False)

    def _user(self, iam: Any, name: str, *statements: dict[str, Any]) -> tuple[str, str]:
        policy = {"Version": "2012-10-17", "Statement": list(statements)}
        iam.create_user(UserName=name)
        made = iam.create_access_key(UserName=name)["AccessKey"]
        iam.put_user_policy(UserName=name, PolicyName="p", PolicyDocument=json.dumps(policy))
        return made["AccessKeyId"], made["SecretAccessKey"]

    def _client(self, service: str, key: str, secret: str) -> Any:
        return boto3.client(
            service,
            endpoint_url=self.url,
            region_name=REGION,
            aws_access_key_id=key,
            aws_secret_access_key=secret,
            config=Config(s3={"addressing_style": "path"}, proxies={}),
        )


@pytest.fixture(scope="module")
def amazon() -> Iterator[Amazon]:
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    amazon = Amazon(f"http://{host}:{port}")
    yield amazon
    amazon.close()
    server.stop()


@pytest.fixture(scope="module")
def fetcher() -> Iterator[Fetcher]:
    with Fetcher(user_agent="test/1", allow_networks=[LOOPBACK]) as fetcher:
        yield fetcher


@pytest.fixture(scope="module")
def sandbox() -> Sandbox:
    return Sandbox(workers=1)


@pytest.fixture
def proxy(amazon: Amazon) -> Iterator[Proxy]:
    with Proxy(amazon.url) as proxy:
        yield proxy


Connect = Callable[..., MemorySource]


@pytest.fixture
def connect(amazon: Amazon, fetcher: Fetcher, sandbox: Sandbox, proxy: Proxy) -> Connect:
    """A connection to a bucket, through the fault proxy."""

    def connect(bucket: str, *, connector: S3 | None = None, **metadata: str) -> MemorySource:
        connector = connector or Tens()
        given = {
            "accessKeyId": amazon.key,
            "secretAccessKey": amazon.secret,
            "bucket": bucket,
            "region": REGION,
            "endpoint": proxy.url,
            **metadata,
        }
        return MemorySource(connector, fetcher, sandbox, connector.check(given, fetcher))

    return connect


def put(amazon: Amazon, bucket: str, *keys: str, body: bytes = b"hello") -> None:
    for key in keys:
        amazon.s3.put_object(Bucket=bucket, Key=key, Body=body)


def fill(bucket: str, *keys: str, body: bytes = b"hello") -> None:
    """Put behind the server's back: hundreds of calls, or large ones, take a while."""
    store: Any = s3_backends["123456789012"]["aws"]
    for key in keys:
        store.put_object(bucket, key, body)


def read(source: MemorySource, id: str) -> Blob:
    [row] = source.remembered([id])
    got = source.connector.fetch(source, row)
    assert isinstance(got, Blob)
    return got


def later(source: MemorySource) -> list[Change]:
    """The next scheduled sync."""
    return source.sync(at=source.since + timedelta(hours=4))


def error(code: str, message: str = "no", **more: str) -> bytes:
    fields = {"Code": code, "Message": message, **more}
    inner = "".join(f"<{name}>{value}</{name}>" for name, value in fields.items())
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<Error>{inner}</Error>'.encode()


# --- what a sync brings ---------------------------------------------------------------------


def test_every_object_becomes_an_item_with_its_bytes(amazon: Amazon, connect: Connect):
    bucket = amazon.bucket()
    put(amazon, bucket, "reports/2026/plan.md", body=b"# Plan")
    source = connect(bucket)

    heard = source.sync()

    assert [type(change) for change in heard] == [Listing, Item, Checkpoint, Listed, Checkpoint]
    item = source.items["reports/2026/plan.md"]
    assert (item.title, item.url) == ("plan.md", f"s3://{bucket}/reports/2026/plan.md")
    assert item.metadata["key"] == "reports/2026/plan.md"
    assert item.metadata["size"] == 6
    assert item.modified_at is not None
    assert item.metadata["lastModified"] == item.modified_at.isoformat()
    assert read(source, item.id) == Blob(b"# Plan", name="plan.md")


@pytest.mark.parametrize(
    "key",
    [
        "ünï çödé/日本 🎈.txt",
        "plus+and space & amp;.txt",
        "100%25 %zz.txt",
        "a//b.txt",
        "/lead.txt",
        "trail/",
        "ctl\x01\x7f.txt",
        "back\\slash?query#hash.txt",
        "<b>\"quoted\" 'x'.txt",
        "\u202egnp.exe",
        "x" * 1_000 + "/y",
        "*~!$(),;:@[]{}|^`",
    ],
    ids=range(12),
)
def test_keys_of_every_kind_are_listed_and_read(amazon: Amazon, connect: Connect, key: str):
    bucket = amazon.bucket()
    put(amazon, bucket, key, body=key.encode())
    source = connect(bucket)
    source.sync()

    assert list(source.items) == [key]
    assert read(source, key).data == key.encode()


def test_what_comes_is_what_is_listed_or_is_read_again(
    amazon: Amazon, connect: Connect, proxy: Proxy
):
    bucket = amazon.bucket()
    put(amazon, bucket, "log.txt", "log.txt.1", body=b"hello world")
    source = connect(bucket)
    source.sync()

    proxy.on("/log.txt$", status=200, headers={"ETag": '"other"'}, body=b"hello")
    with pytest.raises(Transient, match="not the content that the provider lists") as caught:
        read(source, "log.txt")
    assert caught.value.code == "provider_unavailable"
    proxy.on("/log.txt$", alter=lambda _: b"")
    with pytest.raises(Transient, match="an error or nothing"):
        read(source, "log.txt")
    assert read(source, "log.txt").data == b"hello world"
    put(amazon, bucket, "log.txt", body=b"hello world, and one line more")
    assert read(source, "log.txt").data == b"hello world, and one line more"
    who_reads = {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}
    key, secret = amazon.user(f"reads-{bucket}", who_reads)
    source.metadata = {**source.metadata, "accessKeyId": key, "secretAccessKey": secret}
    assert read(source, "log.txt").data == b"hello world, and one line more"


def test_keys_that_differ_in_slashes_only_are_different(amazon: Amazon, connect: Connect):
    keys = ["/a", "//a", "a", "a/", "b//c", "b/c"]
    bucket = amazon.bucket()
    for key in keys:
        put(amazon, bucket, key, body=f"body of {key}".encode())
    source = connect(bucket)
    source.sync()

    assert {key: read(source, key).data.decode() for key in source.items} == {
        key: f"body of {key}" for key in keys
    }


def test_more_than_a_thousand_objects_come_in_pages(amazon: Amazon, connect: Connect, proxy: Proxy):
    bucket = amazon.bucket()
    keys = [f"bulk/{n:05d} ü.md" for n in range(1_050)]
    fill(bucket, *keys)
    source = connect(bucket, connector=S3())

    heard = source.sync()

    assert sorted(source.items) == keys
    assert proxy.asked("list-type=2") == 2
    assert sum(isinstance(change, Checkpoint) for change in heard) == 3


def test_edits_additions_and_deletions_are_seen(amazon: Amazon, connect: Connect):
    bucket = amazon.bucket()
    put(amazon, bucket, "kept", "edited", "deleted", body=b"one")
    source = connect(bucket)
    source.sync()
    before = dict(source.items)
    put(amazon, bucket, "edited", body=b"two")
    put(amazon, bucket, "new", body=b"three")
    amazon.s3.delete_object(Bucket=bucket, Key="deleted")
    later(source)

    assert sorted(source.items) == ["edited", "kept", "new"]
    assert source.items["kept"].version == before["kept"].version
    assert source.items["edited"].version != before["edited"].version
    assert read(source, "edited").data == b"two"


def test_a_delete_marker_hides_and_its_removal_brings_back(amazon: Amazon, connect: Connect):
    bucket = amazon.bucket()
    versioning = {"Status": "Enabled"}
    amazon.s3.put_bucket_versioning(Bucket=bucket, VersioningConfiguration=versioning)
    put(amazon, bucket, "a", "b")
    source = connect(bucket)
    source.sync()
    marker = amazon.s3.delete_object(Bucket=bucket, Key="a")["VersionId"]
    later(source)
    assert list(source.items) == ["b"]

    amazon.s3.delete_object(Bucket=bucket, Key="a", VersionId=marker)
    later(source)

    assert sorted(source.items) == ["a", "b"]


def test_an_empty_bucket_is_a_whole_listing(amazon: Amazon, connect: Connect):
    bucket = amazon.bucket()
    put(amazon, bucket, "only")
    source = connect(bucket)
    source.sync()
    amazon.s3.delete_object(Bucket=bucket, Key="only")

    assert any(isinstance(change, Listed) for change in later(source))
    assert source.items == {}


def test_what_cannot_be_read_gets_a_verdict(amazon: Amazon, connect: Connect):
    bucket = amazon.bucket()
    put(amazon, bucket, "folder/", "folder/empty.txt", body=b"")
    put(amazon, bucket, "up/../and.txt", "good.txt")
    fill(bucket, "huge.iso", body=b"x" * 50_000_001)
    source = connect(bucket)

    heard = source.sync()

    verdicts = {change.id: change.kind for change in heard if isinstance(change, Verdict)}
    assert verdicts == {
        "folder/": "folder",
        "folder/empty.txt": "empty",
        "huge.iso": "too_large",
        "up/../and.txt": "bad_key",
    }
    assert list(source.items) == ["good.txt"]


def test_a_key_that_no_database_takes_stops_nothing(synced: MemorySource, proxy: Proxy):
    listing = (
        "<ListBucketResult><IsTruncated>{}</IsTruncated><EncodingType>url</EncodingType>"
        "<Contents><Key>{}</Key><Size>1</Size><LastModified>2026-01-01T00:00:00Z</LastModified>"
        "</Contents></ListBucketResult>"
    )
    proxy.on("list-type=2", status=200, body=listing.format("true", "a%00b").encode())
    proxy.on("list-type=2", status=200, body=listing.format("false", "c").encode())

    heard = later(synced)

    assert proxy.log[-1].path.endswith("start-after=a%00b")
    assert [change.kind for change in heard if isinstance(change, Verdict)] == ["bad_key"]
    assert "\\x00" not in repr(heard)
    assert list(synced.items) == ["c"]


# --- prefix and tags ------------------------------------------------------------------------


def test_a_prefix_is_a_beginning_of_keys_not_a_folder(amazon: Amazon, connect: Connect):
    bucket = amazon.bucket()
    put(amazon, bucket, "docs/a", "docs-old/b", "doc", "other/docs/c", "Docs/d")
    source = connect(bucket, prefix="docs")
    source.sync()

    assert sorted(source.items) == ["docs-old/b", "docs/a"]


def test_another_prefix_is_another_question(amazon: Amazon, connect: Connect):
    bucket = amazon.bucket()
    fill(bucket, *(f"a/{n:02d}" for n in range(25)), *(f"b/{n}" for n in range(3)))
    source = connect(bucket, prefix="a/")
    cut_off(source, after=1)
    source.metadata = {**source.metadata, "prefix": "b/"}

    heard = source.sync()

    assert isinstance(heard[0], Listing)
    assert sorted(source.items) == ["b/0", "b/1", "b/2"]


def test_a_group_in_the_key_becomes_a_tag(amazon: Amazon, connect: Connect):
    bucket = amazon.bucket()
    put(amazon, bucket, "users/anna/a.md", "users/bob smith/b.md", "shared/c.md")
    source = connect(bucket, containerTagRegex="^users/(?<userId>[^/]+)/")
    source.sync()

    assert {key: list(item.tags) for key, item in source.items.items()} == {
        "users/anna/a.md": ["anna"],
        "users/bob smith/b.md": [],
        "shared/c.md": [],
    }
    assert source.items["users/bob smith/b.md"].detail == "'bob smith' cannot be a container tag"


# --- moves ----------------------------------------------------------------------------------


def move(amazon: Amazon, bucket: str, old: str, new: str) -> None:
    amazon.s3.copy_object(Bucket=bucket, Key=new, CopySource={"Bucket": bucket, "Key": old})
    amazon.s3.delete_object(Bucket=bucket, Key=old)


@pytest.mark.parametrize(("old", "new"), [("a/x", "z/x"), ("z/x", "a/x")], ids=["down", "up"])
def test_a_moved_object_is_the_same_thing(amazon: Amazon, connect: Connect, old: str, new: str):
    bucket = amazon.bucket()
    fill(bucket, *(f"m/{n:02d}" for n in range(15)))
    put(amazon, bucket, old, body=b"the moved one")
    source = connect(bucket)
    source.sync()
    move(amazon, bucket, old, new)
    put(amazon, bucket, "b/new", body=b"somewhat new")

    heard = later(source)

    formerly = {c.id: c.formerly for c in heard if isinstance(c, Item) and c.formerly}
    assert formerly == {new: old}
    assert len(source.items) == 17
    assert old not in source.items


def test_doubtful_moves_are_none(amazon: Amazon, connect: Connect):
    """Two vanished or two appeared with one content: nobody can tell which became which."""
    bucket = amazon.bucket()
    put(amazon, bucket, "twin-1", "twin-2", body=b"twins")
    put(amazon, bucket, "single", body=b"single")
    source = connect(bucket)
    source.sync()
    move(amazon, bucket, "twin-1", "new-1")
    amazon.s3.delete_object(Bucket=bucket, Key="twin-2")
    move(amazon, bucket, "single", "copy-1")
    put(amazon, bucket, "copy-2", body=b"single")

    heard = later(source)

    assert not [c for c in heard if isinstance(c, Item) and c.formerly]
    assert sorted(source.items) == ["copy-1", "copy-2", "new-1"]


def test_a_copy_is_no_move(amazon: Amazon, connect: Connect):
    bucket = amazon.bucket()
    put(amazon, bucket, "original")
    source = connect(bucket)
    source.sync()
    put(amazon, bucket, "copy")
    later(source)

    assert sorted(source.items) == ["copy", "original"]
    assert source.items["copy"].formerly is None


# --- cut off and gone on with -----------------------------------------------------------------


def cut_off(source: MemorySource, after: int) -> Cursor:
    """Sync until so many checkpoints were stored; then the process dies."""
    changes = source.connector.changes(source, source.cursor)
    missing: set[str] = set()
    for change in changes:
        source._apply(change, missing)
        after -= isinstance(change, Checkpoint)
        if after == 0:
            break
    assert source.cursor is not None
    return source.cursor


def test_a_listing_goes_on_where_it_was_cut_off(amazon: Amazon, connect: Connect, proxy: Proxy):
    bucket = amazon.bucket()
    keys = [f"{n:02d} ü" for n in range(35)]
    fill(bucket, *keys)
    source = connect(bucket)
    cut_off(source, after=2)
    proxy.forget()
    source.sync()

    assert sorted(source.items) == keys
    assert proxy.asked("list-type=2") == 2
    assert "continuation-token=" in proxy.log[0].path


def test_without_tokens_a_listing_goes_on_behind_the_last_key(
    amazon: Amazon, connect: Connect, proxy: Proxy
):
    bucket = amazon.bucket()
    keys = [f"{n:02d} ü" for n in range(35)]
    fill(bucket, *keys)
    source = connect(bucket)
    proxy.on(
        "list-type=2",
        times=None,
        alter=lambda body: re.sub(
            rb"<NextContinuationToken>.*?</NextContinuationToken>", b"", body
        ),
    )
    cut_off(source, after=2)
    asked = len(proxy.log)
    source.sync()

    assert sorted(source.items) == keys
    assert "start-after=19%20%C3%BC" in proxy.log[asked].path


def test_a_page_that_is_not_known_any_more_is_no_end(synced: MemorySource, proxy: Proxy):
    synced.since += timedelta(hours=4)
    cut_off(synced, after=1)
    refusal = b"<Error><Code>InvalidArgument</Code><Message>The token is wrong</Message></Error>"
    proxy.on("continuation-token=", times=1, status=400, body=refusal)

    with pytest.raises(CursorExpired):
        synced.sync()
    assert len(synced.items) == 25


def test_nothing_said_before_the_cut_is_taken_as_gone(amazon: Amazon, connect: Connect):
    bucket = amazon.bucket()
    keys = [f"{n:02d}" for n in range(25)]
    fill(bucket, *keys)
    source = connect(bucket)
    source.sync()
    amazon.s3.delete_object(Bucket=bucket, Key="03")
    source.since += timedelta(hours=4)
    cut_off(source, after=1)
    heard = source.sync()

    assert not any(isinstance(change, Listing) for change in heard)
    assert sorted(source.items) == [key for key in keys if key != "03"]


def test_new_keys_that_waited_at_the_cut_are_not_forgotten(amazon: Amazon, connect: Connect):
    bucket = amazon.bucket()
    keys = [f"{n:02d}" for n in range(25)]
    fill(bucket, *keys)
    source = connect(bucket)
    source.sync()
    put(amazon, bucket, "00-new", body=b"new")
    source.since += timedelta(hours=4)
    cut_off(source, after=2)
    source.sync()

    assert sorted(source.items) == sorted([*keys, "00-new"])


@pytest.mark.parametrize("cursor", [{}, {"after": 5}, {"v": 9, "after": "zz"}], ids=range(3))
def test_a_cursor_of_another_shape_counts_as_none(amazon: Amazon, connect: Connect, cursor: Cursor):
    bucket = amazon.bucket()
    put(amazon, bucket, "a", "b")
    source = connect(bucket)
    source.cursor = cursor
    source.sync()

    assert sorted(source.items) == ["a", "b"]


def test_a_listing_that_failed_goes_on_in_the_next_sync(synced: MemorySource, proxy: Proxy):
    """What was seen before the failure is not taken for gone, nor for what something was before."""
    fill(synced.metadata["bucket"], "00", body=b"there is no other like it")
    later(synced)
    proxy.on("list-type=2", after=1, status=503, headers={"Retry-After": "600"})
    with pytest.raises(Transient):
        later(synced)
    fill(synced.metadata["bucket"], "97", body=b"there is no other like it")
    proxy.forget()

    heard = synced.sync(at=synced.since + timedelta(minutes=10))

    assert "continuation-token=" in proxy.log[0].path
    assert proxy.asked("list-type=2") == 2
    assert not any(isinstance(change, Listing) for change in heard)
    assert len(synced.items) == 26
    assert synced.items["97"].formerly is None


def test_a_listing_that_failed_long_ago_begins_anew(synced: MemorySource):
    synced.since += timedelta(hours=4)
    cut_off(synced, after=1)

    heard = synced.sync(at=synced.since + timedelta(days=2))

    assert isinstance(heard[0], Listing)


def test_the_sync_after_a_whole_listing_asks_anew(amazon: Amazon, connect: Connect):
    bucket = amazon.bucket()
    put(amazon, bucket, "b")
    source = connect(bucket)
    source.sync()
    put(amazon, bucket, "a")
    source.sync()

    assert sorted(source.items) == ["a", "b"]


# --- no answer that could be mistaken for "all deleted" -----------------------------------------


def refused(source: MemorySource) -> Exception:
    """How the sync ended; nothing may have been deleted."""
    before = dict(source.items)
    with pytest.raises((Reauthorize, Transient, Permanent)) as caught:
        later(source)
    assert source.items == before
    assert not any(isinstance(change, Listed) for change in source.said[-1:])
    return caught.value


@pytest.fixture
def synced(amazon: Amazon, connect: Connect) -> MemorySource:
    bucket = amazon.bucket()
    fill(bucket, *(f"{n:02d}" for n in range(25)))
    source = connect(bucket)
    source.sync()
    assert len(source.items) == 25
    return source


def test_a_wrong_secret_wants_new_keys(synced: MemorySource):
    synced.metadata = {**synced.metadata, "secretAccessKey": "wrong"}

    error = refused(synced)

    assert isinstance(error, Reauthorize)
    assert "secretAccessKey does not belong" in str(error)
    assert "give the connection another accessKeyId and secretAccessKey" in str(error)


def test_an_unknown_key_wants_new_keys(synced: MemorySource):
    synced.metadata = {**synced.metadata, "accessKeyId": "AKIAWRONGWRONGWRONG1"}

    error = refused(synced)

    assert isinstance(error, Reauthorize)
    assert "accessKeyId is not known" in str(error)


def test_a_missing_right_is_named(amazon: Amazon, synced: MemorySource):
    key, secret = amazon.user(
        "reader", {"Effect": "Allow", "Action": "s3:GetObject", "Resource": "*"}
    )
    synced.metadata = {**synced.metadata, "accessKeyId": key, "secretAccessKey": secret}

    error = refused(synced)

    assert isinstance(error, Permanent)
    assert error.code == "access_denied"
    assert "s3:ListBucket" in str(error)


def test_an_object_that_may_not_be_read_fails_alone(amazon: Amazon, synced: MemorySource):
    key, secret = amazon.user(
        "lister",
        {"Effect": "Allow", "Action": ["s3:ListBucket", "s3:GetObject"], "Resource": "*"},
        {
            "Effect": "Deny",
            "Action": "s3:GetObject",
            "Resource": f"arn:aws:s3:::{synced.metadata['bucket']}/03",
        },
    )
    synced.metadata = {**synced.metadata, "accessKeyId": key, "secretAccessKey": secret}
    later(synced)

    assert len(synced.items) == 25
    assert read(synced, "04").data == b"hello"
    with pytest.raises(Permanent, match="s3:GetObject") as caught:
        read(synced, "03")
    assert caught.value.code == "access_denied"


def test_a_bucket_that_is_not_there_deletes_nothing(amazon: Amazon, synced: MemorySource):
    bucket = synced.metadata["bucket"]
    for id in synced.items:
        amazon.s3.delete_object(Bucket=bucket, Key=id)
    amazon.s3.delete_bucket(Bucket=bucket)

    error = refused(synced)

    assert isinstance(error, Permanent)
    assert error.code == "no_bucket"


@pytest.mark.parametrize(
    ("status", "headers", "body"),
    [
        (301, {"x-amz-bucket-region": "eu-central-1"}, error("PermanentRedirect")),
        (400, {}, error("AuthorizationHeaderMalformed", Region="eu-central-1")),
        (307, {"x-amz-bucket-region": "eu-central-1", "Location": "http://127.0.0.1:1/"}, b""),
    ],
    ids=["moved", "malformed", "redirect"],
)
def test_the_right_region_is_told(
    synced: MemorySource, proxy: Proxy, status: int, headers: dict[str, str], body: bytes
):
    proxy.on("list-type=2", status=status, headers=headers, body=body)

    error = refused(synced)

    assert isinstance(error, Permanent)
    assert error.code == "wrong_region"
    assert "in region eu-central-1, not in us-east-1" in str(error)


@pytest.mark.parametrize("code", ["SecondLevelDomainForbidden", "PathStyleDomainForbidden"])
def test_an_endpoint_that_must_name_the_bucket_is_told(
    synced: MemorySource, proxy: Proxy, code: str
):
    """Alibaba's and Tencent's: github.com/peak/s5cmd/issues/518,
    github.com/gobackup/gobackup/issues/233"""
    proxy.on("list-type=2", status=403, body=error(code))

    told = refused(synced)

    assert isinstance(told, Permanent)
    assert told.code == "wrong_endpoint"
    assert f"http://{synced.metadata['bucket']}.127.0.0.1:" in str(told)


def test_a_redirect_without_a_region_is_no_listing(synced: MemorySource, proxy: Proxy):
    proxy.on("list-type=2", status=302, headers={"Location": f"{proxy.url}/elsewhere"}, body=b"")

    error = refused(synced)

    assert isinstance(error, Permanent)
    assert error.code == "wrong_region"
    assert proxy.asked("elsewhere") == 0


def test_an_endpoint_that_only_looks_as_if_it_named_the_bucket_is_told(
    synced: MemorySource, proxy: Proxy
):
    body = b"<?xml version='1.0'?><ListAllMyBucketsResult><Buckets/></ListAllMyBucketsResult>"
    proxy.on("list-type=2", status=200, body=body)

    error = refused(synced)

    assert isinstance(error, Permanent)
    assert error.code == "wrong_endpoint"
    assert f"add /{synced.metadata['bucket']} to the endpoint" in str(error)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b"<html><body>Please sign in</body></html>",
        b"<ListBucketResult/>",
        b"<ListBucketResult><IsTruncated>perhaps</IsTruncated></ListBucketResult>",
        b"<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>",
        b"<ListBucketResult><IsTruncated>false</IsTruncated>",
        b"<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>a</Key></Contents>"
        b"</ListBucketResult>",
        b'<!DOCTYPE x [<!ENTITY a "aa">]><ListBucketResult><IsTruncated>false</IsTruncated>'
        b"</ListBucketResult>",
        b"<ListBucketResult><IsTruncated>false</IsTruncated>"
        + b"<a>" * 1_000
        + b"</a>" * 1_000
        + b"</ListBucketResult>",
        b"<ListBucketResult><IsTruncated>false</IsTruncated>"
        + b"<a/>" * 100_000
        + b"</ListBucketResult>",
        b"<?xml version='1.0' encoding='UTF-9'?><ListBucketResult/>",
    ],
    ids=range(12),
)
def test_what_is_no_listing_is_not_taken_for_an_empty_one(
    synced: MemorySource, proxy: Proxy, body: bytes
):
    proxy.on("list-type=2", times=None, status=200, body=body)

    error = refused(synced)

    assert isinstance(error, Transient)
    assert error.code == "provider_unavailable"


@pytest.mark.parametrize(
    ("token", "code"), [(True, "provider_unavailable"), (False, "unordered_listing")]
)
def test_a_listing_that_goes_in_circles_ends(
    synced: MemorySource, proxy: Proxy, token: bool, code: str
):
    """A server that knows neither, or without a token: one that speaks version 1 of the API."""
    first: list[bytes] = []

    def repeat(body: bytes) -> bytes:
        told = re.sub(rb"<NextContinuationToken>.*?</NextContinuationToken>", b"", body)
        first.append(body if token else told)
        return first[0]

    proxy.on("list-type=2", times=None, alter=repeat)

    error = refused(synced)

    assert isinstance(error, Transient if token else Permanent)
    assert error.code == code


def page_of(*keys: str, token: str = "") -> bytes:
    contents = "".join(
        f"<Contents><Key>{key}</Key><Size>1</Size><ETag>{key}</ETag>"
        "<LastModified>2026-01-01T00:00:00Z</LastModified></Contents>"
        for key in keys
    )
    following = f"<NextContinuationToken>{token}</NextContinuationToken>" if token else ""
    return (
        f"<ListBucketResult><IsTruncated>{'true' if token else 'false'}</IsTruncated>"
        f"{following}{contents}</ListBucketResult>"
    ).encode()


def test_keys_need_not_come_in_their_order(amazon: Amazon, connect: Connect, proxy: Proxy):
    """github.com/storj/storj/issues/5564, github.com/rclone/rclone/issues/9002, and Amazon's
    directory buckets."""
    source = connect(amazon.bucket())
    for _ in range(2):
        proxy.on("list-type=2", status=200, body=page_of("m", "a", token="t/1+="))
        proxy.on("list-type=2", status=200, body=page_of(token="t2"))
        proxy.on("list-type=2", status=200, body=page_of("z", "b"))
    source.sync()

    heard = later(source)

    assert list(source.items) == ["m", "a", "z", "b"]
    assert [path.path.rpartition("?")[2].split("&")[0] for path in proxy.log[-3:]] == [
        "encoding-type=url", "continuation-token=t%2F1%2B%3D", "continuation-token=t2"
    ]  # fmt: skip
    assert not any(isinstance(change, Gone) for change in heard)


def test_what_a_listing_without_order_has_yet_to_name_outlives_a_cut(
    amazon: Amazon, connect: Connect, proxy: Proxy
):
    """The first page may come in order, as that of the files beside folders: behind its last key a
    service that orders otherwise would leave out the others, and they would be deleted."""
    source = connect(amazon.bucket())

    def answers() -> None:
        proxy.forget()
        proxy.on("continuation-token=t", times=None, status=200, body=page_of("a/x", "m/y"))
        proxy.on("start-after=", times=None, status=200, body=page_of())
        proxy.on("list-type=2", times=None, status=200, body=page_of("b", "z", token="t"))

    answers()
    source.sync()
    source.since += timedelta(hours=4)
    cut_off(source, after=1)
    answers()
    source.sync()

    assert sorted(source.items) == ["a/x", "b", "m/y", "z"]


@pytest.mark.parametrize("cut", [False, True], ids=["whole", "cut off"])
def test_what_a_listing_without_order_left_out_is_gone_when_another_leaves_it_out(
    amazon: Amazon, connect: Connect, proxy: Proxy, cut: bool
):
    """One by the time of change goes on behind where the last key stands by then, and that was
    written meanwhile: github.com/rclone/rclone/pull/9371"""
    source = connect(amazon.bucket())

    def listed(*last: str) -> list[Change]:
        proxy.behave()
        proxy.on("continuation-token=t", status=200, body=page_of(*last))
        proxy.on("list-type=2", status=200, body=page_of("m", "a", token="t"))
        source.since += timedelta(hours=4)
        if cut:
            cut_off(source, after=1)
        return source.sync()

    listed("z", "b")
    lacking, whole = listed("b"), listed("z", "b")

    assert [change.id for change in lacking if isinstance(change, Missing)] == ["z"]
    assert not any(isinstance(change, Missing) for change in whole)
    assert sorted(source.items) == ["a", "b", "m", "z"]
    listed("z")
    listed("z")
    assert sorted(source.items) == ["a", "m", "z"]


def test_a_moved_object_that_is_listed_twice_is_the_same_thing(
    amazon: Amazon, connect: Connect, proxy: Proxy
):
    source = connect(amazon.bucket())
    proxy.on("list-type=2", status=200, body=page_of("old"))
    source.sync()
    moved = page_of("new").replace(b"<ETag>new", b"<ETag>old")
    first = moved.replace(b">false<", b">true<").replace(
        b"</IsTruncated>", b"</IsTruncated><NextContinuationToken>t</NextContinuationToken>"
    )
    for body in (first, moved):
        proxy.on("list-type=2", status=200, body=body)

    later(source)

    assert list(source.items) == ["new"]
    assert source.items["new"].formerly == "old"


def test_what_one_page_lacks_is_gone_in_whatever_order_it_is(
    amazon: Amazon, connect: Connect, proxy: Proxy
):
    source = connect(amazon.bucket())
    for keys in (("m", "a", "b"), ("m", "a")):
        proxy.on("list-type=2", status=200, body=page_of(*keys))
        later(source)

    assert sorted(source.items) == ["a", "m"]


def test_a_server_that_begins_at_the_last_key_again(amazon: Amazon, connect: Connect, proxy: Proxy):
    """github.com/rustfs/rustfs/issues/1165"""
    source = connect(amazon.bucket())
    proxy.on("continuation-token=t", status=200, body=page_of("c"))
    proxy.on("start-after=b", status=200, body=page_of("b", "c"))
    proxy.on("list-type=2", status=200, body=page_of("a", "b", token="t"))

    source.sync()

    assert list(source.items) == ["a", "b", "c"]


# --- trouble that passes ----------------------------------------------------------------------


@pytest.mark.parametrize("status", [429, 500, 502, 503])
def test_passing_trouble_is_waited_out(synced: MemorySource, proxy: Proxy, status: int):
    proxy.on("list-type=2", after=1, times=2, status=status, body=b"")
    later(synced)

    assert len(synced.items) == 25
    assert len(synced.pauses) == 2


@pytest.mark.parametrize("code", ["SlowDown", "SlowDownRead", "SlowDownWrite"])
def test_slow_down_parks_the_connection(synced: MemorySource, proxy: Proxy, code: str):
    proxy.on("list-type=2", times=None, status=503, body=error(code))

    error_ = refused(synced)

    assert isinstance(error_, Transient)
    assert (error_.code, error_.after) == ("rate_limited", None)
    assert proxy.asked("list-type=2") == 3 + 3  # those of the first sync


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (error("SlowDown"), "rate_limited"),
        (error("ServiceUnavailable"), "provider_unavailable"),
        (b"busy", "provider_unavailable"),
    ],
)
def test_a_long_wait_is_not_waited_here(synced: MemorySource, proxy: Proxy, body: bytes, code: str):
    proxy.on("list-type=2", status=503, headers={"Retry-After": "600"}, body=body)

    error_ = refused(synced)

    assert isinstance(error_, Transient)
    assert (error_.code, error_.after) == (code, timedelta(minutes=10))
    assert synced.pauses == []


def test_a_short_wait_is_kept(synced: MemorySource, proxy: Proxy):
    proxy.on("list-type=2", status=503, headers={"Retry-After": "2"}, body=error("SlowDown"))
    later(synced)

    assert synced.pauses == [2.0]


@pytest.mark.parametrize("fault", [{"reset": True}, {"cut": 100}], ids=str)
def test_cut_answers_are_asked_again(synced: MemorySource, proxy: Proxy, fault: dict[str, Any]):
    proxy.on("list-type=2", after=1, **fault)
    proxy.on("/07$", **fault)
    later(synced)

    assert len(synced.items) == 25
    assert read(synced, "07").data == b"hello"


def test_a_clock_that_is_wrong_is_told(synced: MemorySource, proxy: Proxy):
    proxy.on("list-type=2", times=None, status=403, body=error("RequestTimeTooSkewed"))

    error_ = refused(synced)

    assert isinstance(error_, Transient)
    assert "clock of this machine" in str(error_)


def test_nobody_at_the_endpoint_is_worth_another_try(synced: MemorySource, proxy: Proxy):
    closed = Proxy()
    closed._server.server_close()
    synced.metadata = {**synced.metadata, "endpoint": closed.url}

    error_ = refused(synced)

    assert isinstance(error_, Transient)
    assert error_.code == "provider_unavailable"


def test_unknown_refusals_are_quoted_without_the_keys(synced: MemorySource, proxy: Proxy):
    key, secret = synced.metadata["accessKeyId"], synced.metadata["secretAccessKey"]
    proxy.on("list-type=2", status=400, body=error("Odd", f"{key} and {secret}"))

    error_ = refused(synced)

    assert isinstance(error_, Permanent)
    assert error_.code == "http_400"
    assert "Odd: *** and ***" in str(error_)


@pytest.mark.parametrize("status", [400, 403, 405, 500])
def test_what_stands_before_the_store_is_told_in_its_words(
    synced: MemorySource, proxy: Proxy, status: int
):
    page = b"<html><head><title>Blocked by the gateway</title></head><body>"
    proxy.on("list-type=2", times=None, status=status, body=page)

    error_ = refused(synced)

    assert str(error_).endswith(f" answered {status} Blocked by the gateway")


def test_a_stop_is_heard_between_pages(synced: MemorySource):
    synced.stopped = True

    with pytest.raises(LeaseLost):
        later(synced)


# --- objects ------------------------------------------------------------------------------------


def test_an_archived_object_says_so(amazon: Amazon, connect: Connect):
    bucket = amazon.bucket()
    amazon.s3.put_object(Bucket=bucket, Key="cold", Body=b"x", StorageClass="GLACIER")
    source = connect(bucket)
    source.sync()

    with pytest.raises(Permanent, match="archive") as caught:
        read(source, "cold")
    assert caught.value.code == "archived"


def test_an_object_that_vanished_meanwhile_is_not_found(amazon: Amazon, synced: MemorySource):
    amazon.s3.delete_object(Bucket=synced.metadata["bucket"], Key="05")

    with pytest.raises(NotFoundError):
        read(synced, "05")


def test_an_object_that_grew_meanwhile_is_too_large(synced: MemorySource, proxy: Proxy):
    proxy.on("/05$", status=200, body=b"x" * 50_000_001)

    with pytest.raises(Permanent) as caught:
        read(synced, "05")
    assert caught.value.code == "too_large"


def test_gzip_that_the_object_was_stored_with_is_undone(amazon: Amazon, connect: Connect):
    bucket = amazon.bucket()
    amazon.s3.put_object(
        Bucket=bucket, Key="a.txt", Body=gzip.compress(b"unpacked"), ContentEncoding="gzip"
    )
    source = connect(bucket)
    source.sync()

    assert read(source, "a.txt").data == b"unpacked"


@pytest.mark.parametrize("coding", ["aws-chunked", "gzip,aws-chunked", "utf-8"])
def test_codings_that_are_none_are_ignored(synced: MemorySource, proxy: Proxy, coding: str):
    body = gzip.compress(b"words") if "gzip" in coding else b"words"
    proxy.on("/03", status=200, body=body, headers={"content-encoding": coding})

    assert read(synced, "03").data == b"words"


def test_a_refusal_is_told_in_the_words_of_the_store(synced: MemorySource, proxy: Proxy):
    proxy.on("/03", status=403, body=error("AccessDenied", "not authorized: kms:Decrypt"))

    with pytest.raises(Permanent, match="not authorized: kms:Decrypt"):
        read(synced, "03")


# --- what may be asked for ---------------------------------------------------------------------


GOOD = {
    "accessKeyId": "AKIAIOSFODNN7EXAMPLE",
    "secretAccessKey": "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "bucket": "my-documents.bucket",
    "region": "eu-central-1",
}


@pytest.fixture(scope="module")
def strict() -> Iterator[Fetcher]:
    """Opens no inner network; its names lead to the public, or nowhere."""
    names = {"minio.example.com": ["93.184.216.34"], "inner.example.com": ["10.0.0.1"]}

    def resolve(name: str, port: int) -> Sequence[str]:
        if name not in names:
            raise OSError
        return names[name]

    with Fetcher(user_agent="test/1", resolve=resolve) as fetcher:
        yield fetcher


def test_what_is_given_is_kept_tidied_up(strict: Fetcher):
    given = {
        **GOOD,
        "accessKeyId": f" {GOOD['accessKeyId']}\n",
        "endpoint": "https://MinIO.example.com:443/",
        "prefix": "",
        "containerTagRegex": None,
        "team": "a",
    }

    assert S3().check(given, strict) == {
        **GOOD,
        "endpoint": "https://minio.example.com",
        "team": "a",
    }


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"accessKeyId": None}, "accessKeyId: is required"),
        ({"accessKeyId": "a/b"}, "accessKeyId: must not contain"),
        ({"accessKeyId": 5}, "accessKeyId: 1 to 256"),
        ({"secretAccessKey": " "}, "secretAccessKey: is required"),
        ({"secretAccessKey": "a b"}, "secretAccessKey: 1 to 256"),
        ({"secretAccessKey": "é" * 40}, "secretAccessKey: 1 to 256"),
        ({"bucket": "My-Bucket"}, "bucket: 3 to 63"),
        ({"bucket": "ab"}, "bucket: 3 to 63"),
        ({"bucket": "a" * 64}, "bucket: 3 to 63"),
        ({"bucket": "a..b"}, "bucket: 3 to 63"),
        ({"bucket": "-ab"}, "bucket: 3 to 63"),
        ({"bucket": "a/b"}, "bucket: 3 to 63"),
        ({"bucket": "s3://name"}, "bucket: 3 to 63"),
        ({"bucket": "127.0.0.1"}, "bucket: must not look like an IP"),
        ({"region": ""}, "region: is required"),
        ({"region": "auto"}, "region: without an endpoint"),
        ({"region": "eu central"}, "region: the code"),
        ({"region": "x@evil.example/"}, "region: the code"),
        ({"endpoint": "minio.example.com"}, "endpoint: must begin with"),
        ({"endpoint": 1}, "endpoint: must be a string"),
        ({"endpoint": "ftp://minio.example.com"}, "endpoint: must begin with"),
        ({"endpoint": "https://u:p@minio.example.com"}, "endpoint: a URL must not"),
        ({"endpoint": "https://minio.example.com/?a=b"}, "endpoint: must have no query"),
        ({"endpoint": "http://169.254.169.254"}, "endpoint: target is not a public"),
        ({"endpoint": "http://127.0.0.1:9000"}, "endpoint: target is not a public"),
        ({"endpoint": "http://localhost:9000"}, "endpoint: target is not a public"),
        ({"endpoint": "https://inner.example.com"}, "endpoint: target is not a public"),
        ({"endpoint": "https://nowhere.example.com"}, "endpoint: nowhere.example.com does not"),
        ({"prefix": 1}, "prefix: must be a string"),
        ({"prefix": "a\0b"}, "prefix: at most"),
        ({"prefix": "é" * 513}, "prefix: at most"),
        ({"containerTagRegex": "(?<a>x)" + "y" * 200}, "containerTagRegex: at most 200"),
        ({"containerTagRegex": "users/([^/]+)/"}, "containerTagRegex: it must have exactly"),
        ({"containerTagRegex": "(?<a>x)(?<b>y)"}, "containerTagRegex: it must have exactly"),
    ],
    ids=str,
)
def test_each_fault_is_named(strict: Fetcher, change: dict[str, Any], said: str):
    with pytest.raises(BadRequestError, match=re.escape(f"metadata.{said}")):
        S3().check({**GOOD, **change}, strict)


@pytest.mark.parametrize("missing", list(GOOD))
def test_four_things_are_required(strict: Fetcher, missing: str):
    with pytest.raises(BadRequestError, match=f"metadata.{missing}: is required"):
        S3().check({k: v for k, v in GOOD.items() if k != missing}, strict)


@pytest.mark.parametrize(
    "endpoint", ["http://169.254.169.254", "http://127.0.0.1:9", "https://inner.example.com"]
)
def test_an_endpoint_that_turned_inwards_is_not_asked(
    strict: Fetcher, sandbox: Sandbox, endpoint: str
):
    """It passed when the connection was made: names change."""
    source = MemorySource(S3(), strict, sandbox, {**GOOD, "endpoint": endpoint})

    with pytest.raises(Permanent) as caught:
        source.sync()
    assert caught.value.code == "blocked_target"


@pytest.mark.parametrize(
    ("change", "url"),
    [
        ({"bucket": "plain"}, "https://plain.s3.eu-central-1.amazonaws.com"),
        ({}, "https://s3.eu-central-1.amazonaws.com/my-documents.bucket"),
        ({"bucket": "b", "region": "cn-north-1"}, "https://b.s3.cn-north-1.amazonaws.com.cn"),
        ({"endpoint": "https://minio.lan:9000"}, "https://minio.lan:9000/my-documents.bucket"),
        ({"endpoint": "https://x.co/storage/s3"}, "https://x.co/storage/s3/my-documents.bucket"),
        (
            {"bucket": "b1", "endpoint": "https://b1.fra1.spaces.example"},
            "https://b1.fra1.spaces.example",
        ),
    ],
    ids=["amazon", "dots", "china", "path", "deep", "host"],
)
def test_where_the_bucket_is(change: dict[str, str], url: str):
    metadata = {**GOOD, **change}

    assert place(metadata).base_url == url


def place(metadata: dict[str, str]) -> Settings:
    return Settings(
        metadata["accessKeyId"],
        metadata["secretAccessKey"],
        metadata["bucket"],
        metadata["region"],
        metadata.get("endpoint"),
        "",
    )


@given(
    path=st.text(st.characters(codec="ascii", categories=["L", "N"]), max_size=20),
    query=st.sampled_from(["", "list-type=2&prefix=a%2Fb", "encoding-type=url&start-after=%C3%BC"]),
    at=st.datetimes(datetime(2020, 1, 1), datetime(2040, 1, 1)),  # noqa: DTZ001 # naive here
)
@settings(CALM, max_examples=50)
def test_signatures_are_those_of_the_official_client(path: str, query: str, at: datetime):
    at = at.replace(tzinfo=UTC, microsecond=0)
    ours = sign(place(GOOD), "bucket.example:9000", f"/{path}", query, at)
    theirs = AWSRequest(
        "GET",
        f"http://bucket.example:9000/{path}" + (f"?{query}" if query else ""),
        headers={"x-amz-content-sha256": ours["x-amz-content-sha256"]},
    )
    auth = S3SigV4Auth(
        Credentials(GOOD["accessKeyId"], GOOD["secretAccessKey"]), "s3", GOOD["region"]
    )
    theirs.context["timestamp"] = ours["x-amz-date"]
    theirs.headers["X-Amz-Date"] = ours["x-amz-date"]
    canonical = auth.canonical_request(theirs)
    signature = auth.signature(auth.string_to_sign(theirs, canonical), theirs)

    assert ours["authorization"].endswith(f"Signature={signature}")


# --- the pattern engine ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pattern", "text", "tag"),
    [
        ("(?<tag>[^/]+)/", "team/a", "team"),
        ("(?P<tag>[^/]+)$", "team/a", "a"),
        (r"^u(?:sers|)/(?<id>\w+)", "users/anna-b", "anna"),
        (r"(?<n>\d{4})-\d{2}", "x 123 2026-01", "2026"),
        ("(?<a>a+?)a*$", "aaa", "a"),
        ("(?<a>a|ab)c?$", "ab", "ab"),
        ("(x(?<a>.))*y", "x1x2y", "2"),
        ("a(?<a>b)?c", "ac", None),
        ("(?<a>)b", "b", ""),
        (r"(?<a>[]\-a-c]+)", "x-]b", "-]b"),
        (r"(?<a>[^\w.]+)", "ab.:c", ":"),
        (r"\/(?<a>.{2,})\.md", "/ab.md", "ab"),
        ("(?<a>{)", "{", "{"),
        ("(?<a>.)", "\n", None),
        ("(?<a>b$)", "ab\n", None),
        ("(?=x)(?<a>x)", None, "RE2 does not take it: invalid perl operator"),
        ("(?<!x)(?<a>x)", None, "RE2 does not take it"),
        (r"(?<a>x)\1", None, "invalid escape sequence"),
        ("(?<a>x", None, "missing )"),
        ("(?<a>x))", None, "unexpected )"),
        ("*(?<a>x)", None, "no argument for repetition"),
        ("(?<a>[x)", None, "missing ]"),
        ("(?<a>x{2000})", None, "repetition"),
        ("(?<a>((x{99}){99}){99})", None, "RE2 does not take it"),
        ("x", None, "exactly one named group, but has 0"),
        ("(?<a>x)(?<b>y)", None, "exactly one named group, but has 2"),
    ],
    ids=str,
)
def test_patterns(pattern: str, text: str | None, tag: str | None):
    if text is None:
        with pytest.raises(ValueError, match=re.escape(tag or "")):
            KeyPattern(pattern)
    else:
        assert KeyPattern(pattern).find(text) == tag


SMALL = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\d", "/"])


def rows(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    count = st.sampled_from(["", "", "*", "+", "?", "*?", "+?", "??", "{2}", "{1,2}", "{1,}?"])
    part = st.builds("{}{}".format, inner, count)
    return st.lists(part, min_size=1, max_size=3).map("".join)


# A row that may be empty is not repeated: engines differ on how often nothing was matched.
SOLID = st.builds("(?:{}{}|b)".format, SMALL, rows(SMALL))
PATTERNS = st.builds(
    "{}{}(?P<x>{}){}{}".format,
    st.sampled_from(["", "^"]),
    rows(SMALL | SOLID) | st.just(""),
    rows(SMALL | SOLID) | st.builds("{}|{}".format, rows(SMALL), rows(SMALL)),
    rows(SMALL) | st.just(""),
    st.sampled_from(["", "$"]),
)


@given(pattern=PATTERNS, text=st.text("ab1/", max_size=12))
@settings(CALM, max_examples=150)
def test_it_finds_what_a_backtracking_engine_finds(pattern: str, text: str):
    found = re.search(pattern.replace("$", r"\Z"), text, re.ASCII)

    assert KeyPattern(pattern).find(text) == (found["x"] if found else None)


@pytest.mark.parametrize(
    "pattern",
    ["(?<a>(a+)+)b", "(?<a>(a|a)*)b", "(?<a>(a*)*)b", "(?<a>.*.*.*.*.*.*)b", "(?<a>(.+)+x)+b"],
)
def test_no_pattern_takes_exponential_time(pattern: str):
    """Each of them would keep a backtracking engine busy for longer than anybody lives."""
    assert KeyPattern(pattern).find("a" * 1_000 + "!") is None
