"""Settings out of the environment."""

from datetime import timedelta

import pytest

from recollect.config import Config, load
from recollect.errors import SetupError

DURATIONS = [name for name, field in Config.model_fields.items() if field.annotation is timedelta]


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("90", timedelta(seconds=90)),
        ("0.5", timedelta(seconds=0.5)),
        ("PT4H", timedelta(hours=4)),
        ("P7D", timedelta(days=7)),
    ],
)
def test_a_duration_is_seconds_or_iso_8601(
    text: str, meant: timedelta, monkeypatch: pytest.MonkeyPatch
):
    assert len(DURATIONS) >= 5
    for name in DURATIONS:
        monkeypatch.setenv(f"RECOLLECT_{name.upper()}", text)

    config = load()

    assert {getattr(config, name) for name in DURATIONS} == {meant}


@pytest.mark.parametrize("name", ["canary_interval", "audit_retention", "purge_interval"])
def test_zero_switches_off(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(f"RECOLLECT_{name.upper()}", "0")

    assert getattr(load(), name) == timedelta()


@pytest.mark.parametrize("text", ["soon", "-1", "inf", "nan", ""])
def test_what_is_no_duration_is_refused_by_the_name_of_the_setting(
    text: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("RECOLLECT_POLL_INTERVAL", text)

    with pytest.raises(SetupError, match="RECOLLECT_POLL_INTERVAL"):
        load()
