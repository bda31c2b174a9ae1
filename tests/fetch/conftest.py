"""A site over TLS."""

import shutil
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes.website import Website


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate for a.com that signed itself, with its key in one file."""
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("needs the openssl program to make a certificate")
    folder = tmp_path_factory.mktemp("tls")
    made = folder / "both.pem"
    names = ["-subj", "/CN=a.com", "-addext", "subjectAltName=DNS:a.com"]
    output = ["-keyout", str(folder / "key"), "-out", str(folder / "certificate")]
    kind = ["-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-noenc"]
    subprocess.run([openssl, "req", *kind, *names, *output], check=True, capture_output=True)
    made.write_text((folder / "key").read_text() + (folder / "certificate").read_text())
    return made


@pytest.fixture
def secure_site(certificate: Path) -> Iterator[Website]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with Website(tls=context) as site:
        site.page("/", "hello")
        yield site
