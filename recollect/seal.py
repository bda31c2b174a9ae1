"""Secrets at rest: AES-256-GCM, under a key made of the installation's secret.

A sealed secret opens only in the place it was sealed for (organisation and field), so that whoever
can write to the database cannot move it to a place of his own.
"""

import base64
import binascii
import secrets
from collections.abc import Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from recollect.errors import SetupError

FORMAT = "sealed1:"
NONCE_BYTES = 12
"""NIST SP 800-38D: 96 random bits serve for 2^32 secrets under one key."""


def seal(key: bytes, secret: str, *, place: Sequence[str]) -> str:
    """`key` is the secret of the installation, of which the key of this purpose is derived."""
    nonce = secrets.token_bytes(NONCE_BYTES)
    sealed = _cipher(key).encrypt(nonce, secret.encode(), _name(place))
    return FORMAT + base64.b64encode(nonce + sealed).decode()


def unseal(key: bytes, sealed: str, *, place: Sequence[str]) -> str:
    """Raises SetupError when it was not sealed here, for this place, with this key."""
    try:
        if not sealed.startswith(FORMAT):
            raise ValueError("no mark of the format")
        data = base64.b64decode(sealed.removeprefix(FORMAT), validate=True)
        opened = _cipher(key).decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], _name(place))
    except (InvalidTag, ValueError, binascii.Error) as error:
        raise SetupError(
            f"the secret of {' '.join(place)} cannot be opened; is the secret key of this"
            " installation another one? Put the old one back, or set the secret anew"
        ) from error
    return opened.decode()


def _cipher(key: bytes) -> AESGCM:
    derived = HKDF(SHA256(), 32, salt=None, info=b"recollect: secrets at rest").derive(key)
    return AESGCM(derived)


def _name(place: Sequence[str]) -> bytes:
    # With lengths, so that no two places have the same name.
    return b"".join(len(part.encode()).to_bytes(4) + part.encode() for part in place)
