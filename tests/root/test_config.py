"""Settings out of the environment."""

import os
import subprocess
import sys
from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path

import pytest

from recollect import __version__, connectors
from recollect.app import user_agent
from recollect.cli._config import load, unknown
from recollect.config import Config, ProviderSettings
from recollect.connectors.base import settings_of
from recollect.connectors.gmail._settings import GmailSettings
from recollect.connectors.notion import NotionSettings
from recollect.connectors.web_crawler._host import AGENT
from recollect.errors import SetupError
from recollect.fetch import Fetcher
from tests.fakes.website import Website

LOOPBACK = ip_network("127.0.0.0/8")
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


@pytest.mark.parametrize("blank", ["", " "])
def test_a_blank_value_is_none(blank: str, monkeypatch: pytest.MonkeyPatch):
    """As `${HOST}` of a compose file becomes, where nobody set that: it would be all interfaces."""
    meant = load()
    for name in Config.model_fields.keys() - {"providers"} | {"gmail_client_id"}:
        monkeypatch.setenv(f"RECOLLECT_{name.upper()}", blank)

    assert load() == meant
    assert load(host=blank) == meant


def test_a_blank_variable_leaves_a_line_of_the_file_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / ".env").write_text("RECOLLECT_PORT=7000\nRECOLLECT_GMAIL_CLIENT_ID=ours\n")
    monkeypatch.chdir(tmp_path)
    for name in ("PORT", "GMAIL_CLIENT_ID"):
        monkeypatch.setenv(f"RECOLLECT_{name}", "")

    config = load()

    assert (config.port, config.providers["gmail"].client_id) == (7000, "ours")


def test_a_faulty_line_of_the_file_is_told_once_by_the_name_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("RECOLLECT_DATA_DIR", "data")
    (tmp_path / ".env").write_text("RECOLLECT_LOG_LEVEL=info\nexport this please\n")

    done = subprocess.run(
        [sys.executable, "-m", "recollect", "doctor", "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    told = [line for line in done.stderr.splitlines() if "line 2" in line]
    assert told == ["line 2 of .env has no effect: it is not NAME=value, or a quote is open"]


def test_what_a_provider_alone_is_set_to_is_read_and_known(monkeypatch: pytest.MonkeyPatch):
    for name in ("PUBSUB_AUDIENCE", "NOTION_VERIFICATION_TOKEN"):
        monkeypatch.setenv(f"RECOLLECT_{name}", "given")
    monkeypatch.setenv("RECOLLECT_ONEDRIVE_API_URL", "http://given")
    monkeypatch.setenv("RECOLLECT_NOTION_VERIFICATION_TOKENS", "misspelt")

    config = load()

    assert settings_of(config, "gmail", GmailSettings).pubsub_audience == "given"
    token = settings_of(config, "notion", NotionSettings).verification_token
    assert token is not None
    assert token.get_secret_value() == "given"
    assert settings_of(config, "onedrive", ProviderSettings).api_url == "http://given"
    meant = "RECOLLECT_NOTION_VERIFICATION_TOKEN"
    assert unknown() == [f"There is no setting {meant}S; did you mean {meant}?"]


def test_what_kubernetes_tells_of_a_service_sets_nothing(monkeypatch: pytest.MonkeyPatch):
    """A pod beside a service named recollect ended: its port was not a whole number."""
    meant = load()
    for name in ("PORT", "PORT_6767_TCP"):
        monkeypatch.setenv(f"RECOLLECT_{name}", "tcp://10.43.12.7:6767")
    for name in ("PORT_6767_TCP_ADDR", "SERVICE_HOST"):
        monkeypatch.setenv(f"RECOLLECT_{name}", "10.43.12.7")

    assert load() == meant
    assert unknown() == []


def test_what_is_no_setting_has_no_effect_as_is_said(monkeypatch: pytest.MonkeyPatch):
    """Pub/Sub's variables have names of their own, without the provider's."""
    monkeypatch.setenv("RECOLLECT_GMAIL_PUBSUB_AUDIENCE", "given")

    assert len(unknown()) == 1
    assert settings_of(load(), "gmail", GmailSettings).pubsub_audience is None


def test_variables_of_other_programs_set_no_provider(monkeypatch: pytest.MonkeyPatch):
    for name in ("API_URL", "CLIENT_ID", "RECOLLECT_API_URL"):
        monkeypatch.setenv(name, "http://127.0.0.1:9/")

    config = load()

    for provider in connectors.all():
        given = settings_of(config, provider, ProviderSettings)
        assert (given.api_url, given.client_id) == (None, None)


@pytest.mark.parametrize("name", ["canary_interval", "audit_retention", "purge_interval"])
def test_zero_switches_off(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(f"RECOLLECT_{name.upper()}", "0")

    assert getattr(load(), name) == timedelta()


@pytest.mark.parametrize("text", ["soon", "-1", "inf", "nan"])
def test_what_is_no_duration_is_refused_by_the_name_of_the_setting(
    text: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("RECOLLECT_POLL_INTERVAL", text)

    with pytest.raises(SetupError, match="RECOLLECT_POLL_INTERVAL"):
        load()


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("PUBLIC_URL", "memory.example.org", "is not an address such as https://"),
        ("PUBLIC_URL", "https://", "is not an address such as https://"),
        ("GOOGLE_DRIVE_API_URL", "ftp://drive.example", "is not an address such as https://"),
        ("PUBSUB_CERTS_URL", "certs.example", "is not an address such as https://"),
        ("BLOB_URL", "file:///files of #1", "ends at its ? or #"),
        ("ALLOW_NETWORKS", "10.0.0.0/33", "'10.0.0.0/33' does not appear to be an IPv4 or IPv6"),
        ("ALLOW_NETWORKS", "127.0.0.0/8, 10.1.0.0/8", "10.1.0.0/8 has host bits set"),
        ("PURGE_INTERVAL", "1h", "must be a duration in seconds or ISO 8601, such as 90, PT4H"),
        ("AUDIT_RETENTION", "P999999D", "must be at most 36500 days"),
    ],
)
def test_what_is_refused_is_said_by_the_name_of_the_setting(
    name: str, text: str, told: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(f"RECOLLECT_{name}", text)

    with pytest.raises(SetupError) as refused:
        load()

    assert str(refused.value).startswith(f"RECOLLECT_{name}: ")
    assert told in str(refused.value)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({}, ""),
        ({"PUBLIC_URL": ""}, ""),
        ({"PUBLIC_URL": "https://memory.example.org/"}, " (+https://memory.example.org)"),
        (
            {"PUBLIC_URL": "https://b\u00fccher.example/a b"},
            " (+https://xn--bcher-kva.example/a%20b)",
        ),
        (
            {"PUBLIC_URL": "https://memory.example.org", "CRAWL_CONTACT": "ops@example.org"},
            " (+ops@example.org)",
        ),
        ({"CRAWL_CONTACT": "https://example.org/bot"}, " (+https://example.org/bot)"),
    ],
)
def test_sites_are_told_where_the_owner_is_found(
    settings: dict[str, str], told: str, monkeypatch: pytest.MonkeyPatch
):
    for name, value in settings.items():
        monkeypatch.setenv(f"RECOLLECT_{name}", value)
    agent = user_agent(load())
    with Website() as site, Fetcher(user_agent=agent, allow_networks=[LOOPBACK]) as fetcher:
        site.page("/", "<p>Hello</p>")
        fetcher.get(site.url("/"))
        [request] = site.requests

    assert request.headers["user-agent"] == f"{AGENT}/{__version__}{told}"


@pytest.mark.parametrize("contact", ["J\u00f6rg", "a\nX-Forged: b", "me (at) example.org", " x"])
def test_a_contact_that_is_no_header_is_refused_by_the_name_of_the_setting(
    contact: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("RECOLLECT_CRAWL_CONTACT", contact)

    with pytest.raises(SetupError, match="RECOLLECT_CRAWL_CONTACT"):
        load()


HOMELESS = """
import os, sys
from recollect.cli import doctor, main
from recollect.cli._add_ledger import open_ledger

os.environ.pop("HOME", None)
os.setgroups([])
os.setgid(54321)
os.setuid(54321)
with open_ledger("a"):
    main(["doctor"])
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another user")
def test_a_user_without_a_home_is_told_what_to_name():
    """As a container runs one that its image does not know."""
    done = subprocess.run(
        [sys.executable, "-c", HOMELESS], capture_output=True, text=True, check=False
    )

    assert "nothing is remembered for the next time" in done.stderr
    assert "error: RECOLLECT_DATA_DIR: this user has no home folder" in done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode == 1
