"""Which URLs and addresses may be fetched: no network here, DNS is a function."""

from collections.abc import Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_network

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from recollect.errors import BadRequestError, Permanent, Transient
from recollect.fetch import Fetcher, parse_url
from recollect.fetch._address import NOT_PUBLIC


def words(text: str) -> list[str]:
    return text.split()


# One of each special-purpose block and both of its ends. Written from the IANA registries, not from
# the tables of the code.
INNER_V4 = words("""
0.0.0.0 0.0.0.1 0.255.255.255 10.0.0.0 10.0.0.1 10.255.255.255 100.64.0.0 100.64.0.1
100.100.100.200 100.127.255.255 127.0.0.0 127.0.0.1 127.1.2.3 127.255.255.255 168.63.129.16
169.254.0.0 169.254.169.254 169.254.170.2 169.254.255.255 172.16.0.0 172.17.0.1 172.31.255.255
192.0.0.0 192.0.0.192 192.0.0.255 192.0.2.0 192.0.2.255 192.88.99.0 192.88.99.1 192.168.0.0
192.168.1.1 192.168.255.255 198.18.0.0 198.19.255.255 198.51.100.0 198.51.100.255 203.0.113.0
203.0.113.255 224.0.0.0 224.0.0.1 239.255.255.255 240.0.0.0 254.1.2.3 255.255.255.255
""")
PUBLIC_V4 = words("""
1.0.0.0 1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.0 93.184.216.34 100.63.255.255 100.128.0.0
126.255.255.255 128.0.0.0 168.63.129.15 168.63.129.17 169.253.255.255 169.255.0.0 172.15.255.255
172.32.0.0 191.255.255.255 192.0.1.0 192.0.3.0 192.88.98.255 192.88.100.0 192.167.255.255
192.169.0.0 198.17.255.255 198.20.0.0 198.51.99.255 198.51.101.0 203.0.112.255 203.0.114.0
223.255.255.255
""")
INNER_V6 = words("""
:: ::1 ::127.0.0.1 ::ffff:127.0.0.1 ::ffff:7f00:1 ::ffff:8.8.8.8 ::ffff:0:127.0.0.1
64:ff9b::127.0.0.1 64:ff9b::8.8.8.8 64:ff9b:1::7f00:1 100::1 100:0:0:1::1
1fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff 2001:: 2001::1 2001:0:7f00:1:: 2001:2::1 2001:10::1
2001:20::1 2001:1ff:ffff:ffff:ffff:ffff:ffff:ffff 2001:db8:: 2001:db8::1
2001:db8:ffff:ffff:ffff:ffff:ffff:ffff 2002:: 2002:7f00:1:: 2002:a00:1:: 2002:808:808::1
2620:4f:8000::1 3fff:: 3fff::1 3fff:fff:ffff:ffff:ffff:ffff:ffff:ffff 4000:: 5f00::1 8000::1
fc00:: fc00::1 fd00:ec2::254 fd20:ce::254 fdff:ffff:ffff:ffff:ffff:ffff:ffff:ffff fe80::1
fe80::5efe:127.0.0.1 fe80::a9fe:a9fe febf::1 fec0::1 ff00::1 ff02::1 ff0e::1
ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff
""")
PUBLIC_V6 = words("""
2000::1 2001:200::1 2001:4860:4860::8888 2001:db7:ffff::1 2001:db9::1
2001:ffff:ffff:ffff:ffff:ffff:ffff:ffff 2003::1 2600::1 2606:4700:4700::1111 2620:4f:7fff::1
2620:4f:8001::1 2a00:1450:4001:800::200e 3ffe:ffff::1 3fff:1000::1
3fff:ffff:ffff:ffff:ffff:ffff:ffff:ffff
""")

INNER_NETWORKS = [
    ip_network(text)
    for text in words("""
0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 168.63.129.16/32 169.254.0.0/16 172.16.0.0/12
192.0.0.0/24 192.0.2.0/24 192.88.99.0/24 192.168.0.0/16 198.18.0.0/15 198.51.100.0/24
203.0.113.0/24 224.0.0.0/4 240.0.0.0/4
::/128 ::1/128 ::/96 ::ffff:0:0/96 64:ff9b::/96 64:ff9b:1::/48 100::/64 2001::/23 2001::/32
2001:db8::/32 2002::/16 2620:4f:8000::/48 3fff::/20 5f00::/16 fc00::/7 fe80::/10 fec0::/10 ff00::/8
""")
]


def spellings(dotted: str) -> list[str]:
    """The ways in which a browser reads this IPv4 address."""
    number = int(IPv4Address(dotted))
    a, b, c, d = (int(part) for part in dotted.split("."))
    return [
        dotted,
        f"{dotted}.",
        str(number),
        hex(number),
        f"0X{number:X}",
        f"0x{number:020x}",
        f"0{number:o}",
        f"0x{a:x}.0x{b:x}.0x{c:x}.0x{d:x}",
        f"0{a:o}.0{b:o}.0{c:o}.0{d:o}",
        f"000{a:o}.{b}.0x{c:x}.{d}",
        f"{a}.{(b << 16) + (c << 8) + d}",
        f"{a}.{b}.{(c << 8) + d}",
        f"0x{a:x}.{b}.{(c << 8) + d}",
        dotted.replace(".", "。"),
        dotted.replace(".", "．"),
        dotted.replace(".", "｡"),
        dotted.replace(".", "%2e"),
        "".join(f"%{ord(c):02x}" for c in dotted),
        dotted.translate({ord("0") + n: 0xFF10 + n for n in range(10)}),
        dotted.translate({ord("0") + n: 0x1D7CE + n for n in range(10)}),
        dotted.translate({ord("0"): "⓪", **{ord("0") + n: 0x245F + n for n in range(1, 10)}}),
    ]


WHERE = words("""
http://{} https://{}/ http://{}:80/ https://{}:8443/x?y#z http:{}/ http:/{}/ http:///{}/
http:\\\\{}\\ HtTp://{}/ http://{}?x http://{}#x http://@{}/ http://:@{}/
""")

ODD = [
    # looks like another host to one parser or the other
    "http://good@127.0.0.1/",
    "http://good.com@127.0.0.1/",
    "http://good.com:80@127.0.0.1/",
    "http://good.com%2f@127.0.0.1/",
    "http://good.com%40127.0.0.1/",
    "http://127.0.0.1\\@good.com/",
    "http://127.0.0.1#@good.com/",
    "http://127.0.0.1?@good.com/",
    "http://127.0.0.1/@good.com/",
    "http://127.0.0.1;good.com/",
    "http://127.0.0.1:80\\@good.com:80/",
    "http://good.com @127.0.0.1/",
    "http://good.com\t@127.0.0.1/",
    "http://1.1.1.1 &@2.2.2.2# @127.0.0.1/",
    "http://127.0.0.1 good.com/",
    "http://127.0.0.1\r\nHost: good.com/",
    "http://127\t.0.0.1/",
    "http://127.0\n.0.1/",
    "http://1\r27.0.0.1/",
    "ht\ntp://127.0.0.1/",
    "\x00http://127.0.0.1/",
    " \t\r\n http://127.0.0.1/ ",
    "http://127.0.0.1\x00.good.com/",
    "http://good.com\x00@127.0.0.1/",
    "http:\\/\\/127.0.0.1/",
    "http:\\127.0.0.1",
    "http://127.0.0.1\u00ad/",
    "http://127.0.\u200b0.1/",
    "http://127.0.0.1\u2024/",
    "http://127\u20240.0.1/",
    "http://①②⑦.0.0.1/",
    "http://⑯⑨。②⑤④。⑯⑨。②⑤④/",
    "http://0x7f.1/",
    "http://127.1/",
    "http://127.0.1/",
    "http://0/",
    "http://0x0/",
    "http://00/",
    "http://0x/",
    "http://0.0.0.0/",
    "http://127.0.0.1../",
    "http://127.0.0.256/",
    "http://127.0.0.0x100/",
    "http://127.0.0.08/",
    "http://4294967296/",
    "http://0x100000000/",
    "http://1.2.3.4.5/",
    "http://127.0.0.1.1/",
    "http://foo.127.0.0.1/",
    "http://good.com.0x7f/",
    "http://-1/",
    "http://1e3/",
    # IPv6
    "http://[::1%25lo]/",
    "http://[::1%lo]/",
    "http://[fe80::1%25eth0]/",
    "http://[2606:4700::1%25eth0]/",
    "http://[::1]",
    "http://[::1].good.com/",
    "http://[::1]good.com/",
    "http://[::1/",
    "http://::1/",
    "http://[127.0.0.1]/",
    "http://[::127.1]/",
    "http://[::0x7f000001]/",
    "http://[0:0:0:0:0:0:0:1]/",
    "http://[0000:0000:0000:0000:0000:ffff:7f00:0001]/",
    "http://[::FFFF:127.0.0.1]/",
    "http://[::ffff:169.254.169.254]:80/",
    "http://%5B::1%5D/",
    "http://[v1.::1]/",
    "http://[]/",
    # names of the inside
    "http://localhost/",
    "http://LOCALHOST:8080/",
    "http://localhost./",
    "http://localhost../",
    "http://ｌｏｃａｌｈｏｓｔ/",
    "http://ⓛⓞⓒⓐⓛⓗⓞⓢⓣ/",
    "http://𝓁𝓸𝒸𝒶𝓁𝒽ℴ𝓈𝓉/",
    "http://loc\u00adalhost/",
    "http://loc%61lhost/",
    "http://local\thost/",
    "http://foo.localhost/",
    "http://foo.localhost./",
    "http://localhost.localdomain/",
    "http://localhost6/",
    "http://ip6-localhost/",
    "http://intranet/",
    "http://router/",
    "http://wiki./",
    "http://printer.local/",
    "http://nas.lan/",
    "http://db.internal/",
    "http://git.corp/",
    "http://gateway.home/",
    "http://fritz.box.home.arpa/",
    "http://portal.intranet/",
    "http://x.private/",
    "http://1.0.0.127.in-addr.arpa/",
    "http://facebookcorewwwi.onion/",
    "http://a.test/",
    "http://a.invalid/",
    "http://a.example/",
    "http://postgres.default.svc/",
    "http://kubernetes.default.svc.cluster.local/",
    "http://consul.service.consul/",
    "http://kubernetes/",
    "http://docker/",
    "http://host.docker.internal:2375/",
    "http://gateway.docker.internal/",
    # cloud metadata
    "http://metadata/",
    "http://metadata.google.internal/computeMetadata/v1/",
    "http://metadata.google.internal./",
    "http://METADATA.GOOGLE.INTERNAL/",
    "http://metadata。google。internal/",
    "http://instance-data/",
    "http://instance-data.ec2.internal/latest/meta-data/",
    "http://169.254.169.254/latest/meta-data/",
    "http://2852039166/latest/meta-data/",
    "http://[fd00:ec2::254]/latest/meta-data/",
    "http://[fd20:ce::254]/computeMetadata/v1/",
    "http://169.254.170.2/v2/credentials",
    "http://100.100.100.200/latest/meta-data/",
    "http://192.0.0.192/opc/v1/instance/",
    "http://168.63.129.16/machine?comp=goalstate",
    # names that DNS does not know
    "http://a..com/",
    "http://.com/",
    "http://.a.com/",
    "http://a.com../",
    "http://*.a.com/",
    "http://a;b.com/",
    "http://a,b.com/",
    "http://a!b.com/",
    "http://a{b.com/",
    "http://a'b.com/",
    "http://a%00b.com/",
    "http://a%2fb.com/",
    "http://" + "a" * 64 + ".com/",
    "http://" + "a." * 127 + "com/",
    "http:///",
    "http://",
    "http://?",
    "http://:80/",
    # credentials
    "http://user@a.com/",
    "http://user:password@a.com/",
    "http://:password@a.com/",
    "https://token:x-oauth-basic@a.com/",
    "http://user%40b.com@a.com/",
    # schemes
    "file:///etc/passwd",
    "file://a.com/etc/passwd",
    "ftp://a.com/",
    "gopher://a.com:70/_x",
    "dict://a.com:2628/",
    "ldap://a.com/",
    "tftp://a.com/",
    "ws://a.com/",
    "wss://a.com/",
    "data:text/html,hello",
    "javascript:alert(1)",
    "jar:http://a.com!/",
    "view-source:http://a.com/",
    "blob:http://a.com/x",
    "about:blank",
    "mailto:a@a.com",
    "netdoc:///etc/passwd",
    "unix:///var/run/docker.sock",
    "http+unix://%2Fvar%2Frun%2Fdocker.sock/",
    "httpx://a.com/",
    "url:http://a.com/",
    # ports
    "http://a.com:0/",
    "http://a.com:22/",
    "http://a.com:25/",
    "http://a.com:53/",
    "http://a.com:110/",
    "http://a.com:143/",
    "http://a.com:389/",
    "http://a.com:587/",
    "http://a.com:2049/",
    "http://a.com:6000/",
    "http://a.com:6667/",
    "http://a.com:10080/",
    "https://a.com:0022/",
    "http://8.8.8.8:25/",
    "http://[2606:4700::1]:25/",
    "http://a.com:65536/",
    "http://a.com:-1/",
    "http://a.com:80a/",
    "http://a.com:８０/",
    # no URLs
    "",
    "a.com",
    "//a.com/",
    "/path",
    "http",
    "http:",
    "http://a.com/" + "x" * 8_000,
    "http://a.com/\ud800",
]

HOSTILE = [
    *(WHERE[n % len(WHERE)].format(s) for n, a in enumerate(INNER_V4) for s in spellings(a)),
    *(WHERE[n % len(WHERE)].format(f"[{address}]") for n, address in enumerate(INNER_V6)),
    *(f"http://[{address.upper()}]:8080/" for address in INNER_V6),
    *ODD,
]


def test_the_corpus_is_large():
    assert len(set(HOSTILE)) >= 1_000


@pytest.mark.parametrize("url", ODD, ids=ascii)
def test_hostile_url_is_refused(url: str):
    with pytest.raises(BadRequestError) as refusal:
        parse_url(url)

    assert refusal.value.status == 400


def test_no_spelling_of_an_inner_address_passes():
    assert [url for url in HOSTILE if passes(url)] == []


@pytest.mark.parametrize("address", PUBLIC_V4)
def test_public_neighbours_pass_in_every_spelling(address: str):
    hosts = {parse_url(f"http://{spelled}/") for spelled in spellings(address)}

    assert hosts == {f"http://{address}/"}


@pytest.mark.parametrize("address", PUBLIC_V6)
def test_public_ipv6_passes(address: str):
    assert parse_url(f"http://[{address}]/") == f"http://[{IPv6Address(address)}]/"


@pytest.mark.parametrize(
    ("raw", "parsed"),
    [
        ("http://a.com", "http://a.com/"),
        ("  HTTP://A.com:80/b/../c d?q=1#part ", "http://a.com/c%20d?q=1"),
        ("https://a.com:443/", "https://a.com/"),
        ("https://a.com:8443/", "https://a.com:8443/"),
        ("http://bücher.de/", "http://xn--bcher-kva.de/"),
        ("http://a_b.a.com/", "http://a_b.a.com/"),
        ("http://a.com./", "http://a.com./"),
        ("http://localhost.a.com/", "http://localhost.a.com/"),
        ("http://127.0.0.1.nip.io/", "http://127.0.0.1.nip.io/"),
        ("http://10.com/", "http://10.com/"),
        ("http://internal.a.com/", "http://internal.a.com/"),
        ("http://a.com/?u=http://127.0.0.1/", "http://a.com/?u=http://127.0.0.1/"),
        ("http://a.com/@127.0.0.1", "http://a.com/@127.0.0.1"),
        ("http://a.com\\@127.0.0.1/", "http://a.com/@127.0.0.1/"),
        ("http://a.com:5432/", "http://a.com:5432/"),
    ],
)
def test_harmless_urls_are_serialised(raw: str, parsed: str):
    assert parse_url(raw) == parsed


@given(st.text(max_size=60) | st.text(max_size=30).map("http://a.com/{}".format))
def test_parsing_never_breaks_and_is_stable(raw: str):
    try:
        parsed = parse_url(raw)
    except BadRequestError:
        return
    assert parse_url(parsed) == parsed


inner_addresses = st.sampled_from(INNER_NETWORKS).flatmap(lambda n: st.ip_addresses(network=n))


@given(address=inner_addresses, data=st.data())
def test_every_inner_address_is_refused_in_every_spelling(
    address: IPv4Address | IPv6Address, data: st.DataObject
):
    spelled = (
        data.draw(st.sampled_from(spellings(str(address))))
        if isinstance(address, IPv4Address)
        else data.draw(st.sampled_from([f"[{address}]", f"[{address.exploded}]"]))
    )

    assert not passes(f"http://{spelled}/")


@given(address=inner_addresses)
def test_names_of_inner_addresses_are_refused(address: IPv4Address | IPv6Address):
    verdict = resolving(str(address)).check("http://a.com/")

    assert not verdict.allowed
    assert verdict.reason == NOT_PUBLIC


@given(address=st.ip_addresses(v=4) | st.ip_addresses(network=IPv6Network("2000::/3")))
def test_all_other_addresses_are_public(address: IPv4Address | IPv6Address):
    assume(not any(address in network for network in INNER_NETWORKS))

    assert resolving(str(address)).check("http://a.com/").allowed


@given(inner=inner_addresses, position=st.integers(0, 3))
def test_one_bad_answer_refuses_the_name(inner: IPv4Address | IPv6Address, position: int):
    answers = ["8.8.8.8", "1.1.1.1", "2606:4700::1"]
    answers.insert(position, str(inner))

    verdict = resolving(*answers).check("http://a.com/")

    assert not verdict.allowed
    assert [one.allowed for one in verdict.addresses].count(False) == 1


@pytest.mark.parametrize(
    "answer", ["fe80::1%lo", "2606:4700::1%lo", "localhost", "127.1", "", "\0"]
)
def test_answers_that_are_no_plain_addresses_are_refused(answer: str):
    assert not resolving(answer).check("http://a.com/").allowed


def test_refusals_do_not_tell_what_was_found():
    found = []
    for address in ("127.0.0.1", "10.1.2.3", "169.254.169.254", "::1"):
        with pytest.raises(Permanent) as refusal:
            resolving(address).get("http://a.com/")
        found.append((str(refusal.value), refusal.value.code))

    assert set(found) == {(NOT_PUBLIC, "blocked_target")}


def test_check_tells_the_operator_which_rule_decided():
    verdict = resolving("8.8.8.8", "10.1.2.3").check("HTTP://A.com:8080/x#y")

    assert (verdict.href, verdict.scheme, verdict.host, verdict.port) == (
        "http://a.com:8080/x",
        "http",
        "a.com",
        8080,
    )
    assert [(one.address, one.rule) for one in verdict.addresses] == [
        ("8.8.8.8", "public"),
        ("10.1.2.3", "10.0.0.0/8 (private)"),
    ]


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("no url", "not a valid URL"),
        ("ftp://a.com/", "only http and https URLs can be fetched"),
        ("http://me@a.com/", "a URL must not contain a user name or password"),
        ("http://wiki/", NOT_PUBLIC),
        ("http://a.com:25/", "port 25 is not for the web"),
    ],
)
def test_check_explains_refusals_without_asking_dns(url: str, reason: str):
    verdict = Fetcher(user_agent="t", resolve=never_asked).check(url)

    assert not verdict.allowed
    assert verdict.reason == reason


def test_check_tells_that_a_name_does_not_resolve():
    def nothing(name: str, port: int) -> Sequence[str]:
        raise OSError("no such name")

    verdict = Fetcher(user_agent="t", resolve=nothing).check("http://a.com/")

    assert verdict.reason == "a.com does not resolve"
    assert not resolving().check("http://a.com/").allowed


def test_an_unknown_name_is_worth_another_try():
    with pytest.raises(Transient) as failure:
        resolving().get("http://a.com/")

    assert failure.value.code == "dns_failure"


INTRANET = [IPv4Network("10.1.0.0/16"), IPv6Network("fd00::/8")]


@pytest.mark.parametrize(
    ("url", "answers", "allowed"),
    [
        ("http://10.1.2.3/", [], True),
        ("http://10.1.2.3:25/", [], True),
        ("http://0xa010203/", [], True),
        ("http://[fd00::1]/", [], True),
        ("http://10.2.0.1/", [], False),
        ("http://127.0.0.1/", [], False),
        ("http://[::ffff:10.1.2.3]/", [], False),
        ("http://8.8.8.8/", [], True),
        ("http://8.8.8.8:25/", [], False),
        ("http://wiki/", ["10.1.2.3"], True),
        ("http://wiki.corp:22/", ["10.1.2.3", "fd00::1"], True),
        ("http://wiki/", ["8.8.8.8"], False),
        ("http://wiki/", ["10.1.2.3", "8.8.8.8"], False),
        ("http://wiki/", ["10.2.0.1"], False),
        ("http://localhost/", ["127.0.0.1"], False),
        ("http://localhost/", ["10.1.2.3"], True),
        ("http://a.com/", ["10.1.2.3", "8.8.8.8"], True),
        ("http://a.com:25/", ["10.1.2.3", "8.8.8.8"], False),
        ("http://a..com/", ["10.1.2.3"], False),
        ("http://me@wiki/", ["10.1.2.3"], False),
        ("ftp://wiki/", ["10.1.2.3"], False),
    ],
)
def test_allowed_networks_open_themselves_and_nothing_else(
    url: str, answers: list[str], allowed: bool
):
    fetcher = Fetcher(user_agent="t", allow_networks=INTRANET, resolve=lambda name, port: answers)

    assert fetcher.check(url).allowed == allowed


def passes(url: str) -> bool:
    try:
        parse_url(url)
    except BadRequestError:
        return False
    return True


ANSWERS: list[str] = []
FETCHER = Fetcher(user_agent="t", resolve=lambda name, port: list(ANSWERS))


def resolving(*addresses: str) -> Fetcher:
    """A fetcher that finds these addresses behind every name; always the same one, because
    loading the trusted certificates takes longer than all the rest."""
    ANSWERS[:] = addresses
    return FETCHER


def never_asked(name: str, port: int) -> Sequence[str]:
    raise AssertionError(f"DNS was asked for {name}")
