"""What a robots.txt lets our crawler fetch, as RFC 9309 and its readers have it."""

import sys
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recollect.connectors._robots import MAX_BYTES, Robots, Rule, header_directives
from recollect.fetch._answer import join_headers
from tests.conftest import examples

BOT = "OrchardBot"


def lines(*rules: str, agent: str = BOT) -> str:
    return "\n".join([f"User-agent: {agent}", *rules, ""])


def allowed(robots: str | bytes, target: str, agent: str = BOT) -> bool:
    data = robots.encode() if isinstance(robots, str) else robots
    return Robots.parse(data, agent).verdict(target).allowed


# Each: what is shown, the file, what may be fetched, what may not.
TABLE: list[tuple[str, str | bytes, list[str], list[str]]] = [
    # --- groups and who is meant
    ("an empty file", "", ["/", "/a?b"], []),
    ("a file without groups", "Disallow: /\nAllow: /a", ["/", "/b"], []),
    ("an empty rule", lines("Disallow:"), ["/", "/a"], []),
    ("two empty rules", lines("Disallow: ", "Allow:"), ["/", "/a"], []),
    ("everything is shut", lines("Disallow: /"), [], ["/", "/a", "/a/b?c=d", "//"]),
    ("the general group", lines("Disallow: /a", agent="*"), ["/b"], ["/a"]),
    (
        "the own group instead of the general one",
        lines("Disallow: /", agent="*") + lines("Disallow: /b"),
        ["/a", "/"],
        ["/b"],
    ),
    (
        "the own group, though it comes first",
        lines("Disallow: /b") + lines("Disallow: /", agent="*"),
        ["/a"],
        ["/b/c"],
    ),
    (
        "an own group without rules shuts nothing",
        lines("Disallow: /", agent="*") + lines("Disallow:"),
        ["/a"],
        [],
    ),
    (
        "an own group at the end without any line",
        lines("Disallow: /", agent="*") + "User-agent: orchardbot",
        ["/a"],
        [],
    ),
    ("the group of another", lines("Disallow: /", agent="PlumBot"), ["/a"], []),
    (
        "the groups of others around",
        lines("Disallow: /", agent="PlumBot")
        + lines("Disallow: /a")
        + lines("Disallow: /", agent="X"),
        ["/b"],
        ["/a"],
    ),
    (
        "several groups of one bot are one",
        lines("Disallow: /a") + lines("Disallow: /", agent="Plum") + lines("Disallow: /b"),
        ["/c"],
        ["/a", "/b"],
    ),
    (
        "several general groups are one",
        lines("Disallow: /a", agent="*")
        + lines("Allow: /", agent="P")
        + lines("Disallow: /b", agent="*"),
        ["/c"],
        ["/a", "/b"],
    ),
    (
        "one group of several bots",
        "User-agent: Plum\nUser-agent: OrchardBot\nUser-agent: Pear\nDisallow: /a",
        ["/b"],
        ["/a"],
    ),
    (
        "one group of the bot and all others",
        "User-agent: *\nUser-agent: OrchardBot\nDisallow: /a\n",
        ["/b"],
        ["/a"],
    ),
    (
        "rules ahead of the first group belong to nobody",
        "Allow: /a/b\n\n" + lines("Disallow: /a"),
        ["/c"],
        ["/a/b"],
    ),
    (
        "blank lines do not end a group",
        "User-agent: OrchardBot\n\n\nDisallow: /a\n\n# pause\n\nDisallow: /b\n",
        ["/c"],
        ["/a", "/b"],
    ),
    (
        "an agent line after a rule begins a group, even one that says nothing",
        lines("Disallow: /a", agent="Plum") + "User-agent: Pear\n" + lines("Allow: /z"),
        ["/a", "/z"],
        [],
    ),
    (
        "a sitemap between agents does not part them",
        "User-agent: Plum\nSitemap: https://e.test/s.xml\nUser-agent: OrchardBot\nDisallow: /a",
        ["/b"],
        ["/a"],
    ),
    (
        "an unknown record between agents does not part them",
        "User-agent: Plum\nHost: e.test\nUser-agent: *\nDisallow: /",
        [],
        ["/a"],
    ),
    (
        "a delay between agents does not part them",
        "User-agent: Plum\nCrawl-delay: 5\nUser-agent: *\nDisallow: /",
        [],
        ["/a"],
    ),
    (
        "an unknown record between rules does not end them",
        lines("Disallow: /a", "Noindex: /b", "Disallow: /c"),
        ["/b"],
        ["/a", "/c"],
    ),
    ("a name in other case", lines("Disallow: /a", agent="oRCHARDbOT"), ["/b"], ["/a"]),
    ("a name with a version", lines("Disallow: /a", agent="OrchardBot/2.1"), ["/b"], ["/a"]),
    ("a name and more", lines("Disallow: /a", agent="OrchardBot Images"), ["/b"], ["/a"]),
    ("a longer name", lines("Disallow: /a", agent="OrchardBot-News"), ["/a"], []),
    ("a shorter name", lines("Disallow: /a", agent="Orchard"), ["/a"], []),
    ("a name within ours", lines("Disallow: /a", agent="Bot"), ["/a"], []),
    ("no name", lines("Disallow: /a", agent=""), ["/a"], []),
    ("a name that is none", lines("Disallow: /a", agent="ツ"), ["/a"], []),
    ("a star and more", lines("Disallow: /a", agent="* all of you"), ["/b"], ["/a"]),
    ("a star at a name", lines("Disallow: /a", agent="*Bot"), ["/a"], []),
    # --- lines
    ("keys in capitals", "USER-AGENT: *\nDISALLOW: /a\nALLOW: /a/b", ["/a/b"], ["/a"]),
    ("keys in mixed case", "uSeR-aGeNt: *\ndIsAlLoW: /a\naLLoW: /a/b", ["/a/b"], ["/a"]),
    ("paths in their own case", lines("Disallow: /Apple"), ["/apple", "/APPLE"], ["/Apple"]),
    ("spaces around everything", "  User-agent \t:  *  \n\tDisallow\t:\t/a \t\n", ["/b"], ["/a"]),
    ("no spaces at all", "user-agent:*\ndisallow:/a", ["/b"], ["/a"]),
    ("no colons", "user-agent OrchardBot\ndisallow /a\n", ["/b"], ["/a"]),
    ("no colon, but too many words", lines("disallow /a /b"), ["/a", "/b"], []),
    ("a word without a value", lines("disallow"), ["/"], []),
    ("foreign words", "foo: OrchardBot\nbar: /", ["/", "/a"], []),
    ("a comment line", lines("# Disallow: /", "Disallow: /a"), ["/b"], ["/a"]),
    (
        "a comment behind a rule",
        lines("Disallow: /a # not /b", "Disallow: /c#d"),
        ["/b"],
        ["/a", "/c"],
    ),
    ("a comment behind an agent", "User-agent: * # all\nDisallow: /a", ["/b"], ["/a"]),
    ("a comment in place of a path", lines("Disallow: # nothing"), ["/a"], []),
    ("CR LF", b"User-agent: *\r\nDisallow: /a\r\n\r\nAllow: /a/b\r\n", ["/a/b"], ["/a"]),
    ("CR alone", b"User-agent: *\rDisallow: /a\rAllow: /a/b", ["/a/b"], ["/a"]),
    (
        "all line ends",
        b"User-agent: *\r\nDisallow: /a\rDisallow: /b\nDisallow: /c",
        ["/d"],
        ["/a", "/b", "/c"],
    ),
    ("no line end at the end", "User-agent: *\nDisallow: /a", ["/b"], ["/a"]),
    ("a byte order mark", b"\xef\xbb\xbfUser-agent: *\nDisallow: /a", ["/b"], ["/a"]),
    ("half a byte order mark", b"\xef\xbbUser-agent: *\nDisallow: /a", ["/b"], ["/a"]),
    ("a mark that is none", b"\xef\x11\xbfUser-agent: *\nDisallow: /a", ["/a"], []),
    (
        "a mark in the middle",
        b"User-agent: *\n\xef\xbb\xbfDisallow: /a\nDisallow: /b",
        ["/a"],
        ["/b"],
    ),
    (
        "bytes that are no UTF-8",
        b"User-agent: *\nDisallow: /\xff\xfe\nDisallow: /a",
        ["/b"],
        ["/a", "/%FF%FE"],
    ),
    ("a line of rubbish", b"\x80\x81\x82\nUser-agent: *\nDisallow: /a\n\x00\x01", ["/b"], ["/a"]),
    ("a NUL in a path", b"User-agent: *\nDisallow: /a\x00b", ["/a"], ["/a%00b"]),
    ("a NUL between lines", b"User-agent: *\n\x00\nDisallow: /a", ["/b"], ["/a"]),
    (
        "an HTML page instead",
        "<!doctype html><html><title>User-agent: *</title>\n<p>Disallow: /",
        ["/a"],
        [],
    ),
    ("misspelt as dissallow", lines("Dissallow: /a"), ["/b"], ["/a"]),
    ("misspelt as disalow", lines("Disalow: /a"), ["/b"], ["/a"]),
    ("misspelt as useragent", "useragent: *\nDisallow: /a", ["/b"], ["/a"]),
    ("misspelt as user agent", "user agent: *\nDisallow: /a", ["/b"], ["/a"]),
    # --- which rule wins
    ("the longer rule shuts", lines("Allow: /a/", "Disallow: /a/b.html"), ["/a/c"], ["/a/b.html"]),
    (
        "the longer rule opens",
        lines("Disallow: /a/", "Allow: /a/b.html"),
        ["/a/b.html"],
        ["/a/", "/a/c"],
    ),
    ("not the first rule", lines("Allow: /", "Disallow: /a"), ["/b"], ["/a"]),
    ("not the last rule", lines("Disallow: /a", "Allow: /"), ["/b"], ["/a"]),
    ("of equals the one that allows", lines("Disallow: /a", "Allow: /a"), ["/a", "/a/b"], []),
    ("also if it comes first", lines("Allow: /a", "Disallow: /a"), ["/a"], []),
    ("also for everything", lines("Disallow: /", "Allow: /"), ["/", "/a"], []),
    ("a slash more", lines("Disallow: /a", "Allow: /a/"), ["/a/", "/a/b"], ["/a", "/ab"]),
    (
        "wildcards count as octets",
        lines("Allow: /page", "Disallow: /*.html"),
        ["/page"],
        ["/page.html"],
    ),
    (
        "a longer prefix beats a wildcard",
        lines("Allow: /a/page.", "Disallow: /*.html"),
        ["/a/page.html"],
        ["/a/b.html"],
    ),
    (
        "a wildcard of equal length loses",
        lines("Allow: /pag", "Disallow: /*.h"),
        ["/pag.h"],
        ["/q.h"],
    ),
    (
        "length is that of octets",
        lines("Disallow: /ä", "Allow: /*12345"),
        ["/ä12345", "/x12345"],
        ["/ä"],
    ),
    (
        "open in a shut folder",
        lines("Disallow: /a", "Allow: /a/b", "Disallow: /a/b/c"),
        ["/a/b"],
        ["/a", "/a/b/c"],
    ),
    ("only the front page", lines("Allow: /$", "Disallow: /"), ["/"], ["/a", "/?a", "/index.html"]),
    (
        "robots.txt itself",
        lines("Disallow: /"),
        ["/robots.txt"],
        ["/robots.txt.bak", "/a/robots.txt"],
    ),
    (
        "robots.txt, though a rule names it",
        lines("Disallow: /robots.txt"),
        ["/robots.txt"],
        ["/robots.txt?a"],
    ),
    # --- paths
    (
        "a prefix",
        lines("Disallow: /", "Allow: /plum"),
        ["/plum", "/plum.html", "/plum/jam", "/plums", "/plum?id=a", "/plum/"],
        ["/Plum", "/redplum", "/?id=plum", "/plu", "/a/plum"],
    ),
    (
        "a star at the end changes nothing",
        lines("Disallow: /", "Allow: /plum*"),
        ["/plum", "/plum.html", "/plums/jam.html", "/plum?id=a"],
        ["/Plum", "/redplum", "/?id=plum"],
    ),
    (
        "a folder",
        lines("Disallow: /", "Allow: /plum/"),
        ["/plum/", "/plum/?jam", "/plum/jam"],
        ["/plum", "/plum.html", "/Plum/jam"],
    ),
    (
        "a star in the middle",
        lines("Disallow: /", "Allow: /*.php"),
        ["/a.php", "/a/b.php", "/a.php?x", "/a/b.php.c.html", "/a.php/", "/i?f=a.php/", "/.php"],
        ["/a", "/php/", "/i?php", "/a.PHP"],
    ),
    (
        "a star and the end",
        lines("Disallow: /", "Allow: /*.php$"),
        ["/a.php", "/a/b.php", "/a.php.php"],
        ["/a.php?x", "/a.php/", "/a.php5", "/php/", "/a?php", "/a.phpa", "/a.PHP"],
    ),
    (
        "a star within a name",
        lines("Disallow: /", "Allow: /plum*.php"),
        ["/plum.php", "/plums/jam.php?x"],
        ["/Plum.php", "/plum.PHP", "/plum"],
    ),
    (
        "the end",
        lines("Disallow: /a/b$"),
        ["/a/b/", "/a/bc", "/a/b?c", "/a"],
        ["/a/b"],
    ),
    (
        "a star between slashes",
        lines("Disallow: /a/*/c"),
        ["/a/c", "/a/b"],
        ["/a/b/c", "/a//c", "/a/b/d/cc"],
    ),
    ("stars in a row are one", lines("Disallow: /a***b"), ["/a", "/b"], ["/ab", "/axb"]),
    ("only a star", lines("Disallow: *"), [], ["/", "/a"]),
    ("only stars and the end", lines("Disallow: /**$"), [], ["/", "/a"]),
    ("a star in front", lines("Disallow: *.gif$"), ["/a.gif?b", "/gif"], ["/a.gif", "/.gif"]),
    ("two parts that may not overlap", lines("Disallow: /ab*ba$"), ["/aba"], ["/abba", "/abxba"]),
    ("the end that comes twice", lines("Disallow: /*a$"), ["/ab"], ["/aa", "/aba", "/a"]),
    ("a part that must come later", lines("Disallow: /*b*a"), ["/ab"], ["/ba", "/aba"]),
    ("a dollar within is a letter", lines("Disallow: /a$b"), ["/a"], ["/a$b", "/a%24b"]),
    ("two dollars", lines("Disallow: /a$$"), ["/a", "/a$b"], ["/a$"]),
    ("only a dollar", lines("Disallow: $"), ["/", "/a"], []),
    ("a path without a slash", lines("Disallow: a", "Disallow: a/"), ["/a", "/", "/a/"], []),
    ("a query", lines("Disallow: /*?"), ["/a"], ["/a?", "/a?b=c", "/?"]),
    ("a parameter", lines("Disallow: /*?*sid="), ["/a?b=c", "/a"], ["/a?sid=1", "/a?b=c&sid=2"]),
    (
        "an address in a query",
        lines("Disallow: /", "Allow: /a?b=http://c.test?d&e"),
        ["/a?b=http://c.test?d&e"],
        ["/a?b=http"],
    ),
    ("a double slash", lines("Disallow: //"), ["/", "/a//"], ["//", "//a"]),
    ("dots are dots", lines("Disallow: /a.b"), ["/axb"], ["/a.b"]),
    ("brackets are no regex", lines("Disallow: /[ab]+(c|d)"), ["/a", "/abc"], ["/[ab]+(c|d)"]),
    # --- encodings (RFC 9309 2.2.2 and the table in 2.2.3)
    ("letters beyond ASCII", lines("Disallow: /ツ"), ["/"], ["/ツ", "/%E3%83%84", "/%e3%83%84x"]),
    ("encoded letters beyond ASCII", lines("Disallow: /%e3%83%84"), ["/"], ["/ツ", "/%E3%83%84"]),
    (
        "encoded unreserved letters",
        lines("Disallow: /a/%62%61%7A"),
        ["/a/"],
        ["/a/baz", "/a/%62%61%7a"],
    ),
    (
        "unreserved letters, encoded in the address",
        lines("Disallow: /a~b-c_d.e"),
        [],
        ["/a%7Eb%2Dc%5fd%2Ee"],
    ),
    ("an encoded slash is no slash", lines("Disallow: /a/b"), ["/a%2Fb", "/a%2fb"], ["/a/b"]),
    ("a rule on an encoded slash", lines("Disallow: /a%2Fb"), ["/a/b"], ["/a%2fb"]),
    ("an encoded question mark is none", lines("Disallow: /*%3F"), ["/a?b"], ["/a%3fb"]),
    ("an encoded star is a star", lines("Disallow: /a-%2A.b"), ["/a-x.b"], ["/a-*.b", "/a-%2a.b"]),
    (
        "an encoded dollar is a dollar",
        lines("Disallow: /a-%24"),
        ["/a-", "/a-b"],
        ["/a-$", "/a-%24c"],
    ),
    ("a space in the rule", lines("Disallow: /a b"), ["/a"], ["/a%20b", "/a b"]),
    ("a plus is no space", lines("Disallow: /a+b"), ["/a%20b", "/a%2Bb"], ["/a+b"]),
    ("a quote in the rule", lines('Disallow: /a?b="c"'), ["/a?b=c"], ["/a?b=%22c%22"]),
    (
        "an apostrophe in either form",
        lines("Disallow: /a'b", "Disallow: /c%27d"),
        [],
        ["/a%27b", "/a'b", "/c'd"],
    ),
    ("a stray percent sign", lines("Disallow: /100%"), ["/100"], ["/100%", "/100%25", "/100%zz"]),
    ("half an escape", lines("Disallow: /a%4"), ["/aA", "/a%41"], ["/a%4", "/a%4g"]),
    ("an escape of an escape", lines("Disallow: /%2541"), ["/A", "/%41"], ["/%2541"]),
    ("latin-1 in the rule", b"User-agent: *\nDisallow: /\xe4", ["/%C3%A4"], ["/%E4"]),
    ("a fragment is not sent", lines("Disallow: /a$"), ["/ab#a"], ["/a#b"]),
]

CASES = [
    pytest.param(robots, target, verdict, id=f"{number}-{verdict}-{place}")
    for number, (_, robots, open, shut) in enumerate(TABLE)
    for verdict, targets in ((True, open), (False, shut))
    for place, target in enumerate(targets)
]


@pytest.mark.parametrize(("robots", "target", "verdict"), CASES)
def test_the_rules_of_the_table(robots, target, verdict):
    assert allowed(robots, target) is verdict


def test_the_table_is_long_enough():
    assert len(CASES) >= 250
    assert len({title for title, *_ in TABLE}) == len(TABLE)


def test_the_line_that_decided_is_told():
    robots = Robots.parse(
        b"# ours\r\n\r\nUser-agent: *\r\nDisallow: /a   # shut\r\n\r\nALLOW : /a/b\r\n", BOT
    )

    assert robots.verdict("/a") == Rule(False, "Disallow: /a", 4)
    assert robots.verdict("/a/b") == Rule(True, "ALLOW : /a/b", 6)
    assert robots.verdict("/c") == Rule(True, None, None)


def test_of_rules_alike_the_first_is_told():
    assert Robots.parse(lines("Disallow: /a", "Disallow: /a").encode(), BOT).verdict("/a") == Rule(
        False, "Disallow: /a", 2
    )


def test_a_rule_line_can_be_shown_and_stored():
    robots = Robots.parse(b"User-agent: *\nDisallow: /\x00\xff\x1b[2J" + b"a" * 5000, BOT)
    line = robots.verdict("/%00%FF%1B[2J" + "a" * 5000).line

    assert line is not None
    assert len(line) == 300
    assert line.isprintable()


def test_without_a_file_everything_is_allowed():
    assert Robots.everything().verdict("/a?b") == Rule(True, None, None)
    assert Robots.everything().reason is None


def test_when_it_cannot_be_had_nothing_is_allowed_and_the_reason_is_told():
    robots = Robots.nothing("robots.txt answered 503")

    assert robots.verdict("/") == Rule(False, None, None, "robots.txt answered 503")
    assert robots.reason == "robots.txt answered 503"


@pytest.mark.parametrize(
    ("agent", "name"),
    [
        ("OrchardBot", "orchardbot"),
        ("OrchardBot/1.0 (+https://e.test)", "OrchardBot"),
        ("orchard-bot_x", "Orchard-Bot_X"),
    ],
)
def test_the_agent_is_known_by_its_product_token(agent, name):
    assert not allowed(lines("Disallow: /", agent=name), "/a", agent)


def test_an_agent_without_a_name_is_any_agent():
    assert allowed(lines("Disallow: /", agent=""), "/a", "")
    assert not allowed(lines("Disallow: /", agent="*"), "/a", "")


# --- delay and sitemaps


@pytest.mark.parametrize(
    ("robots", "delay"),
    [
        (lines("Disallow: /a", "Crawl-delay: 10"), 10.0),
        (lines("crawl-delay:0.5"), 0.5),
        (lines("Crawl-delay: .25 # a quarter"), 0.25),
        (lines("Crawl-delay: 0"), 0.0),
        (lines("Crawl-delay: 3", agent="*"), 3.0),
        (lines("Crawl-delay: 3", agent="*") + lines("Disallow: /a"), None),
        (lines("Crawl-delay: 3", agent="Plum"), None),
        (lines("Crawl-delay: 2") + lines("Crawl-delay: 7") + lines("Crawl-delay: 5"), 7.0),
        ("User-agent: Plum\nCrawl-delay: 9\nUser-agent: OrchardBot\nDisallow: /a", None),
        ("User-agent: Plum\nUser-agent: OrchardBot\nCrawl-delay: 9\nDisallow: /a", 9.0),
        ("Crawl-delay: 4\n", None),
        *(
            (lines(f"Crawl-delay: {word}"), None)
            for word in [
                "",
                "soon",
                "-1",
                "nan",
                "inf",
                "1e9",
                "10s",
                "1,5",
                "99999",
                "9" * 5000,
                "١",
            ]
        ),
    ],
)
def test_a_delay_is_a_reasonable_number_of_the_own_group(robots, delay):
    assert Robots.parse(robots.encode(), BOT).delay == delay


def test_sitemaps_belong_to_no_group_and_stay_as_written():
    robots = Robots.parse(
        b"Sitemap: https://e.test/a.xml\nUser-agent: Plum\nsitemap:/b.xml \nDisallow: /\n"
        b"SITE-MAP: https://e.test/\xc3\xa4?x=1&y=2 # all\nSitemap:\nSitemap /c\n",
        BOT,
    )

    assert robots.sitemaps == (
        "https://e.test/a.xml",
        "/b.xml",
        "https://e.test/ä?x=1&y=2",
        "/c",
    )


# --- size


def test_only_the_first_500_kib_count_and_no_rule_is_cut_in_two():
    head = lines("Disallow: /").encode()
    comment = b"#" * (MAX_BYTES - len(head) - len(b"\nAllow: /")) + b"\n"
    robots = Robots.parse(head + comment + b"Allow: /late\n" * 9, BOT)

    assert not robots.verdict("/").allowed
    assert not robots.verdict("/late").allowed


def test_a_file_of_just_500_kib_counts_whole():
    tail = b"Disallow: /last"
    head = lines().encode()
    data = head + b"#" * (MAX_BYTES - len(head) - len(tail) - 1) + b"\n" + tail

    assert len(data) == MAX_BYTES
    assert not Robots.parse(data, BOT).verdict("/last").allowed


def test_an_endless_line_is_one_rule():
    assert not allowed(lines("Disallow: /" + "a" * 400_000), "/" + "a" * 400_001)


class _Counted(str):
    """A path that counts how many of its characters are looked at in search of wildcards' parts."""

    looked_at: int
    searches: int

    def __new__(cls, text: str) -> "_Counted":
        counted = super().__new__(cls, text)
        counted.looked_at = counted.searches = 0
        return counted

    def find(self, part: str, start: int = 0) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        found = super().find(part, start)
        self.looked_at += (len(self) if found < 0 else found + len(part)) - start
        self.searches += 1
        return found


@pytest.mark.parametrize(
    "pattern",
    ["/" + "*a" * 50_000, "/" + "*a" * 50_000 + "b$", "*" * 100_000, "/*" + "ab*" * 30_000 + "$",
     "/" + "*a*" * 1_000 + "b", "/" + "*aaaaaaab" * 500, "/*" + "a*" * 100 + "b$"],
    ids=["a", "a-end", "stars", "ab", "doubled", "nearly", "short"],
)  # fmt: skip
@pytest.mark.parametrize("length", [500, 1_000, 2_000])
def test_a_hostile_pattern_looks_at_each_character_of_a_path_once(pattern, length):
    robots = Robots.parse(lines(f"Disallow: {pattern}").encode(), BOT)
    target = _Counted("/" + "a" * length)
    robots.paths[0].pattern.matches(target)

    assert target.looked_at <= len(target)
    assert target.searches <= len(target) + 1


def _calls(work: Callable[[], object]) -> int:
    """How many functions it calls, those in C included."""
    count = 0

    def see(frame: object, event: str, argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(see)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.parametrize(
    "line",
    ["Disallow: /a*b*c$\n", "User-agent: OrchardBot\n", "User-agent: *\nAllow: /a\n", "\n", "\r",
     ":\n", "a b\n", "Sitemap: x\n", "Crawl-delay: 1\n", "%41", "*", "#", "\x00"],
    ids=range(13),
)  # fmt: skip
def test_reading_takes_steps_in_proportion_to_length(line):
    def steps(count: int) -> int:
        data = (lines() + line * count).encode()
        return _calls(lambda: Robots.parse(data, BOT).verdict("/" + line[:1] * count))

    assert steps(2_000) <= 2.2 * steps(1_000) + 200


# --- properties


def spelt(words: list[str], size: int) -> st.SearchStrategy[str]:
    """Some of these words in a row; of one number each, for hypothesis is slow at lists."""
    return st.binary(max_size=size).map(
        lambda choice: "".join(words[number % len(words)] for number in choice)
    )


_WORDS = (
    ["User-agent", "user-agent: *", "User-agent: OrchardBot", "User-agent: Plum", "Allow", "allow:",
     "Disallow", "Disallow: /", "Allow: /a", "Crawl-delay: ", "Sitemap: ", ":", "/", "*", "$", "#",
     " ", "\t", "\n", "\r", "\r\n", "%", "%4", "%41", "%2F", "ä", "\x00", "\ufeff", "a", "/a/*b$"]
)  # fmt: skip
_FILES = st.one_of(
    st.binary(max_size=300),
    spelt(_WORDS, 120).map(str.encode),
    spelt(_WORDS, 60).map(lambda text: b"User-agent: *\n" + text.encode()[1:]),
)
_LETTERS = ["a", "b", "/", "?", "%", "%41", "%2F", "*", "$", "ä", " ", "é", "'"]
_TARGETS = spelt(_LETTERS, 12).map("/{}".format)
_PATTERNS = spelt(["a", "b", "*", "$", "/"], 10).map("/{}".format)
_PLAIN = spelt(["a", "b", "/"], 14).map("/{}".format)
_RULES = st.lists(
    st.tuples(st.sampled_from(["Allow", "Disallow"]), _PATTERNS).map(": ".join), max_size=6
)


@settings(max_examples=examples(change=500, night=2_500))
@given(data=_FILES, target=st.one_of(_TARGETS, st.text(max_size=20)))
def test_no_file_breaks_it_and_what_it_tells_stands_in_the_file(data, target):
    robots = Robots.parse(data, BOT)
    rule = robots.verdict(target)

    assert (rule.line is None) == (rule.number is None)
    if rule.line is None:
        assert rule.allowed
    else:
        assert rule.line.lower().startswith("allow") is rule.allowed
        assert 1 <= (rule.number or 0) <= data.count(b"\n") + data.count(b"\r") + 1
    assert robots.delay is None or 0 <= robots.delay <= 86_400


def _fits(pattern: str, target: str) -> bool:
    """RFC 9309 2.2.3 word for word: try every length for each star."""
    if not pattern:
        return True
    if pattern == "$":
        return not target
    if pattern[0] == "*":
        return any(_fits(pattern[1:], target[skip:]) for skip in range(len(target) + 1))
    return target[:1] == pattern[0] and _fits(pattern[1:], target[1:])


@settings(max_examples=examples(change=200, night=1_000))
@given(pattern=_PATTERNS, target=_PLAIN)
def test_a_pattern_means_what_the_rfc_says(pattern, target):
    assert allowed(lines(f"Disallow: {pattern}"), target) is not _fits(pattern, target)


@settings(max_examples=examples(change=80, night=400))
@given(rules=_RULES, target=_PLAIN)
def test_the_longest_rule_decides_and_of_equals_the_kinder(rules, target):
    fitting = [rule.split(": ") for rule in rules if _fits(rule.split(": ")[1], target)]
    best = max(fitting, key=lambda rule: (len(rule[1]), rule[0] == "Allow"), default=["Allow"])

    assert allowed(lines(*rules), target) is (best[0] == "Allow")


@settings(max_examples=examples(change=40, night=200))
@given(rules=_RULES, others=_RULES, target=_PLAIN, first=st.booleans())
def test_the_group_of_another_changes_nothing(rules, others, target, first):
    own, other = lines("Allow:", *rules), lines(*others, "Disallow: /", agent="PlumBot")
    both = other + own if first else own + other

    assert allowed(both, target) is allowed(own, target)


@settings(max_examples=examples(change=40, night=200))
@given(rules=_RULES, more=_RULES, target=_PLAIN)
def test_two_groups_of_ours_are_as_good_as_one(rules, more, target):
    apart = lines("Allow:", *rules) + lines("Disallow: /", agent="PlumBot") + lines(*more)

    assert allowed(apart, target) is allowed(lines(*rules, *more), target)


@settings(max_examples=examples(change=40, night=200))
@given(rules=_RULES, target=_PLAIN)
def test_order_and_repetition_of_rules_do_not_matter(rules, target):
    assert allowed(lines(*rules), target) is allowed(lines(*reversed(rules), *rules), target)


@settings(max_examples=examples(change=40, night=200))
@given(rules=_RULES, target=_PLAIN)
def test_allowing_the_very_address_opens_it(rules, target):
    assert allowed(lines(*rules, f"Allow: {target}$", "Allow: " + "*" * 40), target)


@settings(max_examples=examples(change=40, night=200))
@given(target=_TARGETS, rules=_RULES)
def test_how_an_address_is_spelt_does_not_matter(target, rules):
    other = "".join(
        f"%{ord(letter):02x}" if letter in "ab" else letter
        for letter in target.replace("%41", "A").replace("%2F", "%2f")
    )

    assert allowed(lines(*rules), other) is allowed(lines(*rules), target)


# --- X-Robots-Tag


@pytest.mark.parametrize(
    ("values", "directives"),
    [
        ("noindex", ("noindex",)),
        ("NoIndex, NOFOLLOW", ("noindex", "nofollow")),
        ("none", ("noindex", "nofollow")),
        ("noindex, none", ("noindex", "nofollow")),
        ("all", ("all",)),
        ("", ()),
        (" , ,", ()),
        ("noindex\nnofollow\nnoindex", ("noindex", "nofollow")),
        ("OrchardBot: noindex", ("noindex",)),
        ("orchardbot : noindex, nofollow", ("noindex", "nofollow")),
        ("PlumBot: noindex, nofollow", ()),
        ("noarchive, PlumBot: noindex", ("noarchive",)),
        ("PlumBot: noindex, OrchardBot: nofollow, noarchive", ("nofollow", "noarchive")),
        ("OrchardBot: nofollow, PlumBot: noindex", ("nofollow",)),
        ("PlumBot: noindex\nnofollow", ("nofollow",)),
        ("*: noindex", ("noindex",)),
        ("OrchardBot: none", ("noindex", "nofollow")),
        ("OrchardBot:", ()),
        (
            "unavailable_after: 25 Jun 2031 15:00:00 PST",
            ("unavailable_after: 25 Jun 2031 15:00:00 PST",),
        ),
        (
            "noarchive, Unavailable_After: Wed, 25 Jun 2031 15:00:00 GMT, nofollow",
            ("noarchive", "unavailable_after: Wed, 25 Jun 2031 15:00:00 GMT", "nofollow"),
        ),
        (
            "OrchardBot: unavailable_after: 2031-06-25T15:00:00Z",
            ("unavailable_after: 2031-06-25T15:00:00Z",),
        ),
        ("PlumBot: unavailable_after: 2031-06-25", ()),
        (
            "max-snippet: 50, max-image-preview:Large",
            ("max-snippet: 50", "max-image-preview: large"),
        ),
        ("a:b:c:d", ()),
    ],
)
def test_what_a_header_asks_of_us(values, directives):
    assert header_directives(values, BOT) == directives


def test_a_header_for_another_robot_does_not_hold_for_the_next_header():
    sent = [(b"X-Robots-Tag", b"PlumBot: noarchive"), (b"x-robots-tag", b"noindex")]

    assert header_directives(join_headers(sent)["x-robots-tag"], BOT) == ("noindex",)


@settings(max_examples=examples(change=80, night=400))
@given(
    values=st.one_of(
        st.text(max_size=80),
        st.lists(
            st.sampled_from(["noindex", "none", ",", ":", " ", "*", "PlumBot", "OrchardBot",
                             "unavailable_after", "2", "\n", "Wed"]),
            max_size=20,
        ).map("".join),
    )
)  # fmt: skip
def test_no_header_breaks_it(values):
    directives = header_directives(values, BOT)

    assert "none" not in directives
    assert len(set(directives)) == len(directives)


@pytest.mark.parametrize("piece", [":", "a:", ",", "a: b,", "unavailable_after:", " "])
def test_reading_a_header_takes_steps_in_proportion_to_length(piece):
    def steps(count: int) -> int:
        return _calls(lambda: header_directives(piece * count, BOT))

    assert steps(4_000) <= 2.2 * steps(2_000) + 100
