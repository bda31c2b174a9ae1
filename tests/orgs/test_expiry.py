"""When a key ends, as people write it."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect.errors import BadRequestError
from recollect.orgs import orgs

NOW = datetime(2026, 11, 27, 12, 30, tzinfo=UTC)
SOON = NOW + timedelta(days=1)


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
    assert orgs.expiry(written, NOW) == NOW + lives


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
    assert orgs.expiry(written, NOW) == ends


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
        orgs.expiry(written, NOW)


@given(st.text(max_size=40) | st.from_regex(r"[0-9T:+Zmhd. -]{1,30}", fullmatch=True))
def test_whatever_is_written_ends_within_ten_years_or_is_refused(written: str) -> None:
    try:
        ends = orgs.expiry(written, NOW)
    except BadRequestError:
        return
    assert NOW < ends <= NOW + orgs.LONGEST_LIFE
