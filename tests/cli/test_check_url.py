"""`recollect check-url`: why an address may be fetched and crawled, or not."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from recollect.cli import app as commands
from recollect.fetch import use_proxy
from tests.fakes.gateway import Gateway
from tests.fakes.site import Site

RULES = "User-agent: *\nDisallow: /private\nAllow: /private/press"


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """On loopback, which is opened."""
    monkeypatch.setenv("RECOLLECT_ALLOW_NETWORKS", "127.0.0.0/8")
    with Site() as site:
        site.robots(RULES)
        yield site


def check(*words: str) -> Result:
    return CliRunner().invoke(commands, ["check-url", *words])


def told(*words: str) -> tuple[int, dict[str, Any]]:
    """Exit code and answer."""
    done = check(*words, "--json")
    return done.exit_code, json.loads(done.stdout)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("http://169.254.169.254/latest/", "not a public address"),
        ("http://0x7f.1/", "not a public address"),
        ("http://metadata.google.internal/", "not a public address"),
        ("ftp://example.com/", "only http and https"),
        ("http://me:secret@example.com/", "user name or password"),
        ("http://example.com:25/", "port 25"),
        ("no url", "not a valid URL"),
    ],
)
def test_a_refusal_is_told_with_its_reason(url: str, reason: str) -> None:
    code, answer = told(url)

    assert (code, answer["allowed"]) == (1, False)
    assert reason in answer["reason"]
    assert "refused" in check(url).stdout


def test_the_operator_learns_which_rule_refuses_an_address() -> None:
    _, answer = told("http://169.254.169.254/")

    [judged] = answer["addresses"]
    assert (judged["address"], judged["allowed"]) == ("169.254.169.254", False)
    assert "cloud metadata" in judged["rule"]


def test_an_allowed_network_is_named(site: Site) -> None:
    code, answer = told(site.url("/a"))

    assert (code, answer["allowed"]) == (0, True)
    assert answer["addresses"][0]["rule"] == "127.0.0.0/8 is an allowed network"
    assert site.requests == [], "nothing is asked without --robots"


@pytest.mark.parametrize(
    ("path", "allowed", "line", "number"),
    [
        ("/", True, None, None),
        ("/private/plans", False, "Disallow: /private", 2),
        ("/private/press?of=today", True, "Allow: /private/press", 3),
    ],
)
def test_robots_txt_is_asked_when_wanted(
    site: Site, path: str, allowed: bool, line: str | None, number: int | None
) -> None:
    code, answer = told(site.url(path), "--robots")

    robots = answer["robots"]
    assert (code == 0) == allowed
    assert (robots["allowed"], robots["line"], robots["number"]) == (allowed, line, number)
    assert site.paths() == ["/robots.txt"], "and nothing else"
    assert ("allows" if allowed else "forbids") in check(site.url(path), "--robots").stdout


@pytest.mark.parametrize(("status", "allowed"), [(404, True), (401, True), (500, False)])
def test_what_a_missing_robots_txt_means_is_told(site: Site, status: int, allowed: bool) -> None:
    site.status("/robots.txt", status)

    _, answer = told(site.url("/a"), "--robots")

    assert answer["robots"]["allowed"] == allowed
    if not allowed:
        assert str(status) in answer["robots"]["reason"]


def test_an_address_is_asked_through_the_forward_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    with Site() as site, Gateway({"8.8.8.8": int(site.url().rpartition(":")[2][:-1])}) as gateway:
        site.robots(RULES)
        monkeypatch.setenv("RECOLLECT_PROXY", gateway.url)
        try:
            code, answer = told("http://8.8.8.8/private", "--robots")
        finally:
            use_proxy(None)

    assert (code, answer["allowed"], answer["robots"]["line"]) == (1, True, "Disallow: /private")
    assert gateway.asked == ["CONNECT 8.8.8.8:80 HTTP/1.1"]


def test_a_wrong_forward_proxy_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECOLLECT_PROXY", "socks5://me:pass-word@proxy")

    done = check("http://8.8.8.8/")

    assert done.exit_code != 0
    assert "RECOLLECT_PROXY: must be http://host:port" in done.output + str(done.exception)
    assert "pass-word" not in done.output
