"""When a key ends, as people write it."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.errors import BadRequestError
from recollect.orgs import orgs

SOON = datetime.now(UTC).replace(microsecond=0) + timedelta(days=2)
"""Not tomorrow: midnight may pass between collecting a test and running it."""


@pytest.mark.parametrize(
    ("written", "lives"),
    [
        ("90m", timedelta(minutes=90)),
        ("2h", timedelta(hours=2)),
        ("30d", timedelta(days=30)),
        (" 30 ", timedelta(days=30)),
    ],
)
def test_a_time_to_live(written: str, lives: timedelta) -> None:
    before = datetime.now(UTC)
    ends = orgs.expiry(written)

    assert before + lives <= ends <= datetime.now(UTC) + lives


@pytest.mark.parametrize(
    ("written", "ends"),
    [
        (f"{SOON:%Y-%m-%d}", SOON.replace(hour=0, minute=0, second=0)),
        (f"{SOON:%Y-%m-%dT%H:%M:%S}", SOON),
        (f"{SOON:%Y-%m-%d %H:%M:%S}", SOON),
        (f"{SOON:%Y-%m-%dT%H:%M:%SZ}", SOON),
        (f"{SOON:%Y-%m-%dT%H:%M:%S}-02:00", SOON + timedelta(hours=2)),
    ],
    ids=["date", "time", "time with a space", "UTC", "offset"],
)
def test_a_date_or_a_time(written: str, ends: datetime) -> None:
    assert orgs.expiry(written) == ends


@pytest.mark.parametrize(
    "written",
    [
        "", "0", "0d", "-1", "-2h", "2w", "1.5h", "h", "2 h", "1e3", "9" * 5000, "9999999d",
        "3651d", "2020-01-31", "9999-12-31", "2027-02-30", "31.01.2027", "tomorrow", "٣d",
        "2027-01-31T25:00",
    ],
)  # fmt: skip
def test_what_is_no_end_is_refused(written: str) -> None:
    with pytest.raises(BadRequestError, match="expires: how long"):
        orgs.expiry(written)


@given(st.text(max_size=40) | st.from_regex(r"[0-9T:+Zmhd. -]{1,30}", fullmatch=True))
def test_whatever_is_written_ends_within_ten_years_or_is_refused(written: str) -> None:
    try:
        ends = orgs.expiry(written)
    except BadRequestError:
        return
    now = datetime.now(UTC)
    assert now - timedelta(minutes=1) < ends <= now + orgs.LONGEST_LIFE
