"""What may be fetched, as far as a URL and the addresses behind its name can tell.

A URL is parsed once, by the WHATWG rules, and only its serialised form is used from then on: two
parsers that see two hosts in one string are how guards are passed. The address tables are our own
because `ipaddress.is_global` lets through ranges that carry IPv4 inside IPv6, and changes with the
Python version. IPv6 is an allow-list, so every embedding of IPv4 falls outside without decoding.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
)

import ada_url

from recollect.errors import BadRequestError

Network = IPv4Network | IPv6Network
Address = IPv4Address | IPv6Address

NOT_PUBLIC = "target is not a public address; RECOLLECT_ALLOW_NETWORKS allows networks of your own"
"""All that a caller learns: the addresses behind a name stay private."""

LONGEST_URL = 8_000
"""characters; what RFC 9110 4.1 asks every recipient to support"""

# IANA special-purpose registries (RFC 6890 and successors), plus multicast, plus the address of
# Azure's WireServer, which looks public and answers with secrets of the virtual machine.
NOT_PUBLIC_V4 = {
    IPv4Network(network): what
    for network, what in {
        "0.0.0.0/8": "this network",
        "10.0.0.0/8": "private",
        "100.64.0.0/10": "carrier-grade NAT",
        "127.0.0.0/8": "loopback",
        "168.63.129.16/32": "cloud platform",
        "169.254.0.0/16": "link-local, cloud metadata",
        "172.16.0.0/12": "private",
        "192.0.0.0/24": "protocol assignments",
        "192.0.2.0/24": "documentation",
        "192.88.99.0/24": "6to4 relays",
        "192.168.0.0/16": "private",
        "198.18.0.0/15": "benchmarks",
        "198.51.100.0/24": "documentation",
        "203.0.113.0/24": "documentation",
        "224.0.0.0/4": "multicast",
        "240.0.0.0/4": "reserved, broadcast",
    }.items()
}
PUBLIC_V6 = IPv6Network("2000::/3")
NOT_PUBLIC_V6 = {
    IPv6Network(network): what
    for network, what in {
        "2001::/23": "protocol assignments, Teredo",
        "2001:db8::/32": "documentation",
        "2002::/16": "6to4",
        "2620:4f:8000::/48": "AS112 service",
        "3fff::/20": "documentation",
    }.items()
}

INNER_NAMES = frozenset(
    {
        "arpa", "consul", "corp", "example", "home", "internal", "intranet", "invalid", "lan",
        "local", "localdomain", "localhost", "onion", "private", "svc", "test",
    }
)  # fmt: skip
"""last labels that no public name has"""

LABEL = re.compile(r"[a-z0-9_-]{1,63}")

# https://fetch.spec.whatwg.org/#port-blocking
BAD_PORTS = frozenset(
    {
        0, 1, 7, 9, 11, 13, 15, 17, 19, 20, 21, 22, 23, 25, 37, 42, 43, 53, 69, 77, 79, 87, 95,
        101, 102, 103, 104, 109, 110, 111, 113, 115, 117, 119, 123, 135, 137, 139, 143, 161, 179,
        389, 427, 465, 512, 513, 514, 515, 526, 530, 531, 532, 540, 548, 554, 556, 563, 587, 601,
        636, 989, 990, 993, 995, 1719, 1720, 1723, 2049, 3659, 4045, 4190, 5060, 5061, 6000, 6566,
        6665, 6666, 6667, 6668, 6669, 6679, 6697, 10080,
    }
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class FetchTarget:
    """A URL that passed all rules which need no DNS. `href` has no fragment."""

    href: str
    scheme: str
    host: str
    """name or address as serialised, IPv6 without brackets"""
    port: int
    authority: str
    """what the Host header says"""
    resource: str
    """path and query, as they go on the wire"""

    @property
    def origin(self) -> tuple[str, str, int]:
        return self.scheme, self.host, self.port


@dataclass(frozen=True, slots=True)
class JudgedAddress:
    address: str
    allowed: bool
    rule: str


def parse_url(raw: str, *, allow_networks: Sequence[Network] = ()) -> str:
    """The serialised form of an http(s) URL, without its fragment.

    Asks no DNS. With `allow_networks`, names and ports that only the inside uses pass here and
    are decided when their addresses are known. Raises BadRequestError.
    """
    try:
        return screen(read_url(raw), allow_networks).href
    except ValueError as error:
        raise BadRequestError("not a valid URL") from error


def read_url(raw: str, base: str | None = None) -> ada_url.URL:
    """Raises ValueError for what is not a URL."""
    if len(raw) > LONGEST_URL:
        raise ValueError("URL is too long")
    return ada_url.URL(raw, base)


def screen(url: ada_url.URL, allow_networks: Sequence[Network]) -> FetchTarget:
    """Apply the rules that need no DNS. Raises BadRequestError."""
    if url.protocol not in ("http:", "https:"):
        raise BadRequestError("only http and https URLs can be fetched")
    if url.username or url.password:
        raise BadRequestError("a URL must not contain a user name or password")
    url.hash = ""
    scheme = url.protocol.removesuffix(":")
    target = FetchTarget(
        href=url.href,
        scheme=scheme,
        host=url.hostname.strip("[]"),
        port=int(url.port or {"http": 80, "https": 443}[scheme]),
        authority=url.host,
        resource=url.pathname + url.search,
    )
    if literal_address(target.host) is not None:
        judged = [judge(target.host, allow_networks)]
        refusal = refuse(judged, target.host, target.port, allow_networks)
    else:
        refusal = None if allow_networks else inner_only(target.host, target.port)
        if not is_name(target.host):
            refusal = "not a valid host name"
    if refusal is not None:
        raise BadRequestError(refusal)
    return target


@lru_cache(maxsize=1024)
def literal_address(host: str) -> Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def is_name(host: str) -> bool:
    """Could DNS know this name? The URL standard alone lets far more characters through."""
    name = host.removesuffix(".")
    return len(name) <= 253 and all(LABEL.fullmatch(label) for label in name.split("."))


def inner_only(host: str, port: int) -> str | None:
    """Why only an allowed network may be reached by this name and port; None: anything may."""
    labels = host.removesuffix(".").split(".")
    if literal_address(host) is None and (len(labels) == 1 or labels[-1] in INNER_NAMES):
        return NOT_PUBLIC
    if port in BAD_PORTS:
        return f"port {port} is not for the web"
    return None


def judge(address: str, allow_networks: Sequence[Network]) -> JudgedAddress:
    """May this address be dialled, and by which rule."""
    ip = literal_address(address)
    if ip is None:
        return JudgedAddress(address, False, "not an address")
    for network in allow_networks:
        if ip in network:
            return JudgedAddress(address, True, f"{network} is an allowed network")
    if isinstance(ip, IPv6Address):
        if ip not in PUBLIC_V6 or ip.scope_id is not None:
            return JudgedAddress(address, False, f"outside of {PUBLIC_V6}")
        table = NOT_PUBLIC_V6
    else:
        table = NOT_PUBLIC_V4
    for network, what in table.items():
        if ip in network:
            return JudgedAddress(address, False, f"{network} ({what})")
    return JudgedAddress(address, True, "public")


def refuse(
    judged: Sequence[JudgedAddress],
    host: str,
    port: int,
    allow_networks: Sequence[Network] = (),
) -> str | None:
    """Why this host must not be dialled although it has these addresses; None: it may be.

    One bad address refuses the name: an attacker who mixes answers must gain nothing.
    """
    if not judged or not all(one.allowed for one in judged):
        return NOT_PUBLIC
    if all(is_within(one.address, allow_networks) for one in judged):
        return None
    return inner_only(host, port)


def is_within(address: str, networks: Sequence[Network]) -> bool:
    ip = literal_address(address)
    return ip is not None and any(ip in network for network in networks)
