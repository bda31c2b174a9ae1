"""Addresses of a crawl: one spelling for a page, and the shapes of traps."""

from datetime import date
from urllib.parse import parse_qsl, urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from recollect.connectors._urls import (
    MOST_BARREN,
    MOST_DAYS,
    MOST_FACETS,
    Branches,
    normalise,
    pathological,
    split,
)

TODAY = date(2026, 6, 1)
SPELLED = st.text("abzAZ09/%.;?=&~-_+ ü\\:@'", max_size=40)
ESCAPED = st.lists(
    st.sampled_from(["%7e", "%2F", "%41", "%", "%2e", "%25", "/", ".", "a", ";jsessionid=", "?"])
    | st.sampled_from(["&", "=", "utm_a", "sid", "0123456789abcdef", "..", "é"]),
    max_size=20,
).map("".join)


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ("HTTP://Example.COM:80/a", "http://example.com/a"),
        ("https://example.com:443", "https://example.com/"),
        ("http://example.com:8080/a", "http://example.com:8080/a"),
        ("http://example.com/a#part", "http://example.com/a"),
        ("http://example.com/a/./b/../c", "http://example.com/a/c"),
        ("http://example.com/%7euser/%c3%a9", "http://example.com/~user/%C3%A9"),
        ("http://example.com/a%2fb", "http://example.com/a%2Fb"),
        ("http://example.com/%zz%2f", "http://example.com/%zz%2F"),
        ("http://example.com/a?", "http://example.com/a"),
        ("http://example.com/a/", "http://example.com/a/"),
        ("http://example.com/index.html", "http://example.com/index.html"),
        ("http://example.com/a?b=2&a=1", "http://example.com/a?b=2&a=1"),
        ("http://example.com/a?x=1&utm_source=m&y=2", "http://example.com/a?x=1&y=2"),
        ("http://example.com/a?UTM_Source=m&fbclid=1&gclid=2", "http://example.com/a"),
        ("http://example.com/a?utm=1&ref=2", "http://example.com/a?utm=1&ref=2"),
        ("http://example.com/a;jsessionid=AB12?x", "http://example.com/a?x"),
        ("http://example.com/a?PHPSESSID=7&x=1", "http://example.com/a?x=1"),
        ("http://example.com/a?sid=0123456789abcdef", "http://example.com/a"),
        ("http://example.com/a?sid=7", "http://example.com/a?sid=7"),
        ("http://example.com/a?session=spring-conference", None),
        ("http://bücher.example.com/ö", "http://xn--bcher-kva.example.com/%C3%B6"),
        ("http://[2001:DB8::1]:80/", "http://[2001:db8::1]/"),
    ],
)
def test_an_address_has_one_spelling(raw: str, expected: str | None):
    assert normalise(raw) == (expected or raw)


def test_links_are_relative_to_their_page():
    assert normalise("../b?x", "http://example.com/a/c/d") == "http://example.com/a/b?x"
    assert normalise("//other.org/b", "https://example.com/") == "https://other.org/b"


@pytest.mark.parametrize(
    "raw", ["", "/a", "mailto:me@example.com", "javascript:void(0)", "http://", "http://a b/"]
)
def test_what_is_no_address_of_a_page_is_refused(raw: str):
    with pytest.raises(ValueError, match="URL"):
        normalise(raw)


def test_credentials_are_refused():
    with pytest.raises(ValueError, match="user name"):
        normalise("http://me:secret@example.com/")


@given(SPELLED | ESCAPED)
@example("/.;jsessionid=1/a")
@example("/%%37%45")
@example("/a?%75tm_source=1")
@example("?&")
@example("%7e;jsessionid=%")
@example("?a=%7e&utm_source=%")
def test_normalising_twice_is_normalising_once(rest: str):
    once = normalise(f"http://example.com/{rest}")

    assert normalise(once) == once


@given(SPELLED | ESCAPED)
def test_normalising_never_leaves_the_host(rest: str):
    url = normalise(f"http://example.com/{rest}")

    assert split(url).host == "example.com"
    assert urlsplit(url).hostname == "example.com"
    assert url.isascii()
    assert "#" not in url


@given(st.lists(st.tuples(st.text("abc", min_size=1, max_size=3), st.text("xyz9", max_size=20))))
def test_parameters_that_mean_something_stay_in_their_order(pairs: list[tuple[str, str]]):
    query = "&".join(f"{name}={value}" for name, value in pairs)

    kept = split(normalise(f"http://example.com/?utm_x=1&{query}&gclid=2")).query

    assert parse_qsl(kept, keep_blank_values=True) == pairs


@pytest.mark.parametrize(
    ("url", "origin", "host", "target"),
    [
        ("http://a.b/", "http://a.b", "a.b", "/"),
        ("https://a.b:8443/c/d?e=/f?g", "https://a.b:8443", "a.b", "/c/d?e=/f?g"),
        ("http://[2001:db8::1]/x", "http://[2001:db8::1]", "[2001:db8::1]", "/x"),
        ("http://[2001:db8::1]:8080/x", "http://[2001:db8::1]:8080", "[2001:db8::1]", "/x"),
    ],
)
def test_an_address_has_parts(url: str, origin: str, host: str, target: str):
    parts = split(url)

    assert (parts.origin, parts.host, parts.target) == (origin, host, target)


@pytest.mark.parametrize(
    "path",
    [
        "/" + "x" * 2_048,
        "/" + "/".join(f"p{n}" for n in range(21)),
        "/a/b/a/c/a/",
        "/en/docs/en/docs/en/docs",
    ],
    ids=["long", "many parts", "scattered repeats", "repeated pair"],
)
def test_addresses_that_a_loop_made_are_seen(path: str):
    assert pathological(f"http://example.com{path}") is not None


@pytest.mark.parametrize(
    "path", ["/", "/a/b/a", "/2024/01/01/01/01", "/en/guide/en/", "/" + "x" * 2_000]
)
def test_addresses_that_people_make_pass(path: str):
    assert pathological(f"http://example.com{path}") is None


@pytest.mark.parametrize(
    ("path", "trap"),
    [
        ("/calendar/2027/03", False),
        ("/calendar/2031/03", True),
        ("/calendar/1888/03", True),
        ("/events?date=2099-01-05", True),
        ("/?view=month&year=2099", True),
        ("/kalender/2099-01", True),
        ("/blog/2099/01/the-future", False),
        ("/reports/2099/12", False),
        ("/events/2025/05/concert", False),
        ("/calendar/all", False),
        ("/update/2099/01", False),
    ],
)
def test_years_of_a_calendar_that_nobody_lives_in_are_a_trap(path: str, trap: bool):
    assert (Branches(TODAY).judge(f"http://example.com{path}") is not None) == trap


def test_days_of_a_calendar_are_bounded_but_its_events_are_not():
    branches = Branches(TODAY)
    days = [
        f"http://example.com/events/{y}/{m:02}/{d:02}"
        for y in (2025, 2026)
        for m in range(1, 13)
        for d in range(1, 29)
    ]
    for url in days[:MOST_DAYS]:
        assert branches.judge(url) is None
        branches.take(url)

    assert branches.judge(days[MOST_DAYS]) is not None
    assert branches.judge(f"{days[0]}/concert") is None


def test_combinations_of_parameters_are_bounded_and_single_ones_are_not():
    branches = Branches(TODAY)
    for n in range(MOST_FACETS):
        branches.take(f"http://example.com/shop?a={n}&b=1&c=2")
        branches.take(f"http://example.com/item?id={n}")

    assert branches.judge("http://example.com/shop?a=x&b=1&c=2") is not None
    assert branches.judge("http://example.com/item?id=x") is None
    assert branches.judge("http://example.com/other?a=x&b=1&c=2") is None


@pytest.mark.parametrize(
    ("path", "shared"),
    [
        ("/(S(lit3py55t21z5v{:05}))/a", True),
        ("/s0e8d4a51{:06}/a", True),
        ("/the-harbour-in-{:04}/a", False),
        ("/1234567{:06}/a", False),
    ],
)
def test_folders_with_the_name_of_a_session_are_one_branch(path: str, shared: bool):
    branches = Branches(TODAY)
    for number in range(MOST_BARREN):
        branches.bore("http://example.com" + path.format(number), fruit=False)

    assert (branches.judge("http://example.com" + path.format(9999)) is not None) == shared


def test_a_branch_that_says_nothing_new_for_long_is_left_until_it_does():
    branches = Branches(TODAY)
    for n in range(MOST_BARREN):
        assert branches.judge(f"http://example.com/copies/{n}") is None
        branches.bore(f"http://example.com/copies/{n}", fruit=False)

    assert branches.judge("http://example.com/copies/next") is not None
    assert branches.judge("http://example.com/copies/further/next") is None
    branches.bore("http://example.com/copies/late", fruit=True)
    assert branches.judge("http://example.com/copies/next") is None


def test_the_same_parameters_in_another_order_are_known():
    branches = Branches(TODAY)
    branches.take("http://example.com/?a=1&b=2")

    assert branches.reordered("http://example.com/?b=2&a=1") == "http://example.com/?a=1&b=2"
    assert branches.reordered("http://example.com/?a=1&b=2") is None
    assert branches.reordered("http://example.com/?a=2&b=1") is None
    assert branches.reordered("http://example.com/x?b=2&a=1") is None
