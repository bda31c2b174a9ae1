"""What stands between the service and a PostgreSQL of others, and how people write its address."""

import socketserver
import struct
import threading

import psycopg
import pytest

from recollect.db.faults import judged
from recollect.db.replicas import Replicated
from recollect.db.schema import migrate
from recollect.db.sessions import check_url
from recollect.errors import DatabaseAway, SetupError

WELCOME = b"R\0\0\0\x08\0\0\0\0" + b"Z\0\0\0\x05I"


@pytest.mark.parametrize("state", [b"XX000", b"42501", b"08P01"])
def test_who_ends_the_session_is_away_whatever_it_says(state: bytes):
    """As Supavisor does when it loses the database. It counted as a bug of ours: 500, a traceback,
    and an attempt of each document."""
    said = b"SFATAL\0VFATAL\0C" + state + b"\0MTerminating\0\0"

    class Pooler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            self.request.recv(1 << 10)
            self.request.sendall(WELCOME)
            self.request.recv(1 << 10)
            self.request.sendall(b"E" + struct.pack(">I", len(said) + 4) + said)

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Pooler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"postgresql://r:p@127.0.0.1:{server.server_address[1]}/r?sslmode=disable"
        try:
            with pytest.raises(DatabaseAway, match="the database does not answer: Terminating"):
                migrate(f"{url}&gssencmode=disable")
        finally:
            server.shutdown()


@pytest.mark.parametrize(
    "words",
    [
        'root certificate file "/home/ann/.postgresql/root.crt" does not exist',
        "SSL error: certificate verify failed",
    ],
)
def test_who_finds_no_authority_for_the_server_is_told_where_it_is(words: str):
    """psycopg brings an OpenSSL that looks into a folder that nobody has."""
    assert "sslrootcert=/etc/ssl/certs/" in str(judged(psycopg.OperationalError(words)))


def test_who_has_no_ipv6_is_told_so():
    """The databases of some providers have no other addresses, and containers often have none."""
    words = 'connection to server at "{}", port 5432 failed: Network is unreachable'
    told = str(judged(psycopg.OperationalError(words.format("2001:db8::1"))))
    assert "has no IPv6: give it that" in told
    assert "IPv6" not in str(judged(psycopg.OperationalError(words.format("192.0.2.7"))))


ODD = {
    "postgresql+asyncpg://role:hunter2@h/d": "names a driver",
    "postgres+psycopg://role:hunter2@h/d?ssl=true": "names a driver",
    "postgresql://role:hunter2@h:6543/d?pgbouncer=true&connection_limit=1": "has a parameter that",
    "postgresql://role:hunter2@h/d?schema=public": "has a parameter that",
    "postgresql://role:a/b?hunter2=c@h/d": "in a password the signs",
}


@pytest.mark.parametrize("url", ODD)
def test_an_address_for_other_programs_is_told_from_a_bad_password(url: str):
    """All were told which signs of a password are to be escaped."""
    with pytest.raises(SetupError, match=ODD[url]) as refused:
        check_url(url)
    assert "hunter2" not in str(refused.value)
    with pytest.raises(SetupError, match=ODD[url]):
        Replicated("postgresql://127.0.0.1/recollect", [url], size=1, name="test")
