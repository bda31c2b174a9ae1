"""Files in a bucket that misbehaves."""

from collections.abc import Generator
from datetime import timedelta

import pytest

from recollect.blobs import Blobs, delete_all, is_whole, new_key, open_blobs
from recollect.errors import Permanent, SetupError, Unavailable, Undeletable
from recollect.model import OrgId
from tests.fakes.bucket import Bucket, Way, serving_bucket

SMALL, LARGE = b"a small file", bytes(range(256)) * (12 << 12)


@pytest.fixture(scope="module")
def served() -> Generator[Bucket]:
    with serving_bucket() as bucket:
        yield bucket


@pytest.fixture
def bucket(served: Bucket) -> Bucket:
    served.heal()
    served.objects.clear()
    served.locked.clear()
    served.asked.clear()
    served.name = "files"
    return served


@pytest.fixture
def blobs(bucket: Bucket) -> Blobs:
    return open_blobs("s3://files/of us")


def test_files_of_any_size_are_kept_read_and_deleted(blobs: Blobs, bucket: Bucket):
    for data in (SMALL, LARGE):
        key = new_key(OrgId("org"), data)
        blobs.put(key, data)

        assert blobs.get(key) == data
        assert list(blobs.older_than(timedelta(seconds=-60))) == [key]
        blobs.delete(key)
        assert not bucket.objects
    assert not bucket.uploads


def test_a_large_file_is_read_in_pieces_each_of_which_has_its_own_time(
    blobs: Blobs, bucket: Bucket
):
    """A request has 30 seconds: on a slow link the whole never came."""
    key = new_key(OrgId("org"), LARGE)
    blobs.put(key, LARGE)
    bucket.asked.clear()

    assert blobs.get(key) == LARGE
    assert len(bucket.asked) == 3


@pytest.mark.parametrize("data", [SMALL, LARGE], ids=["small", "large"])
@pytest.mark.parametrize("fault", ["cut", "lose", (503, "SlowDown"), (500, "InternalError")])
def test_what_fails_once_is_tried_again(
    blobs: Blobs, bucket: Bucket, fault: Way | tuple[int, str], data: bytes
):
    key = new_key(OrgId("org"), data)
    bucket.fail("PUT", fault, times=1)
    blobs.put(key, data)
    bucket.fail("GET", fault, times=1)

    assert is_whole(key, blobs.get(key))


@pytest.mark.parametrize(
    ("status", "code", "told"),
    [
        (503, "SlowDown", "answers 503 SlowDown"),
        (403, "RequestTimeTooSkewed", "answers 403 RequestTimeTooSkewed"),
        (400, "ExpiredToken", "answers 400 ExpiredToken"),
        (301, "PermanentRedirect", "in another region"),
        (404, "NoSuchBucket", "there is no such blob bucket"),
    ],
)
def test_a_bucket_that_serves_nothing_says_why(
    blobs: Blobs, bucket: Bucket, status: int, code: str, told: str
):
    key = new_key(OrgId("org"), SMALL)
    blobs.put(key, SMALL)
    bucket.fail("", (status, code))

    for use in (
        lambda: blobs.put(key, SMALL),
        lambda: blobs.get(key),
        lambda: blobs.delete(key),
        lambda: list(blobs.older_than(timedelta())),
    ):
        with pytest.raises(Unavailable, match=told) as caught:
            use()
        assert not isinstance(caught.value, Undeletable)


def test_a_bucket_that_is_gone_is_not_one_without_the_file(blobs: Blobs, bucket: Bucket):
    assert not blobs.has("org/aa/file")
    bucket.name = "another"

    with pytest.raises(SetupError, match="there is no such blob bucket"):
        blobs.has("org/aa/file")


def test_a_file_that_alone_is_refused_is_lost_and_the_bucket_is_not(blobs: Blobs, bucket: Bucket):
    """As one that a rule of the bucket moved to an archive."""
    key = new_key(OrgId("org"), SMALL)
    blobs.put(key, SMALL)
    bucket.locked.update(bucket.objects)

    with pytest.raises(Permanent, match="403 InvalidObjectState") as caught:
        blobs.get(key)
    assert caught.value.code == "missing_blob"


def test_a_file_that_the_bucket_keeps_holds_up_no_other(blobs: Blobs, bucket: Bucket):
    keys = [new_key(OrgId("org"), SMALL) for _ in range(3)]
    for key in keys:
        blobs.put(key, SMALL)
    bucket.locked.add(f"of us/{keys[0]}")

    done = delete_all(blobs, keys)

    assert (done.gone, done.kept) == (keys[1:], keys[:1])
    assert set(bucket.objects) == {f"of us/{keys[0]}"}
