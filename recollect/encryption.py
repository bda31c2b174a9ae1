"""Secrets at rest: AES-256-GCM, under a key made of the installation's secret.

A sealed secret opens only in the place it was sealed for (organisation and field), so that whoever
can write to the database cannot move it to a place of his own. An installation may have several
keys: the first seals, each opens, and the sealed secret says which one it was.
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

FORMAT = "sealed2:"
"""then the id of the key, a colon, and base64 of nonce and ciphertext"""
FIRST_FORMAT = "sealed1:"
"""without the id of a key; read, not written"""
NONCE_BYTES = 12
"""NIST SP 800-38D: 96 random bits serve for 2^32 secrets under one key."""
ID_BYTES = 4


def seal(keys: Sequence[bytes], secret: str, *, place: Sequence[str]) -> str:
    """`keys` are the secrets of the installation, newest first, of which the keys of this purpose
    are derived."""
    newest = keys[0]
    nonce = secrets.token_bytes(NONCE_BYTES)
    sealed = _cipher(newest).encrypt(nonce, secret.encode(), _name((FORMAT, *place)))
    return f"{FORMAT}{_id(newest)}:{base64.b64encode(nonce + sealed).decode()}"


def unseal(keys: Sequence[bytes], sealed: str, *, place: Sequence[str]) -> str:
    """Raises SetupError when it was not sealed here, for this place, with one of these keys."""
    try:
        if sealed.startswith(FORMAT):
            id, _, text = sealed.removeprefix(FORMAT).partition(":")
            keys = [key for key in keys if _id(key) == id]
            name = _name((FORMAT, *place))
        elif sealed.startswith(FIRST_FORMAT):
            text, name = sealed.removeprefix(FIRST_FORMAT), _name(place)
        else:
            raise ValueError("no mark of the format")
        return _open(keys, base64.b64decode(text, validate=True), name).decode()
    except (InvalidTag, ValueError, binascii.Error) as error:
        raise SetupError(
            f"the secret of {' '.join(place)} cannot be opened; did RECOLLECT_SECRET_KEY"
            " change? Put the old key back, or after the new one, separated by a comma; or set the"
            " secret again"
        ) from error


def mark(keys: Sequence[bytes]) -> str:
    """How everything begins that the newest key sealed."""
    return f"{FORMAT}{_id(keys[0])}:"


def ids(keys: Sequence[bytes]) -> list[str]:
    """A name of each key, 8 characters that say nothing of it; as in `mark`."""
    return [_id(key) for key in keys]


def stale(keys: Sequence[bytes], sealed: str) -> bool:
    """Whether it should be sealed again: an older key did it, or an older format."""
    return not sealed.startswith(mark(keys))


def again(keys: Sequence[bytes], sealed: str | None, *, place: Sequence[str]) -> str | None:
    """What an older key sealed, sealed with the newest; None where nothing has to be done, or none
    of the keys opens it: the old one may still come back."""
    if sealed is None or not stale(keys, sealed):
        return None
    try:
        return seal(keys, unseal(keys, sealed, place=place), place=place)
    except SetupError:
        return None


def _open(keys: Sequence[bytes], data: bytes, name: bytes) -> bytes:
    for key in keys:
        try:
            return _cipher(key).decrypt(data[:NONCE_BYTES], data[NONCE_BYTES:], name)
        except InvalidTag:
            continue
    raise InvalidTag


def _cipher(key: bytes) -> AESGCM:
    return AESGCM(derived(key, "secrets at rest"))


def _id(key: bytes) -> str:
    # Derived apart, so that it says nothing of the key or of the one that seals.
    return _derived(key, b"recollect: id of a key", ID_BYTES).hex()


def derived(key: bytes, purpose: str) -> bytes:
    """The key of a purpose of its own, of 32 bytes: it tells nothing of the others."""
    return _derived(key, b"recollect: " + purpose.encode(), 32)


def _derived(key: bytes, purpose: bytes, length: int) -> bytes:
    return HKDF(SHA256(), length, salt=None, info=purpose).derive(key)


def _name(place: Sequence[str]) -> bytes:
    # With lengths, so that no two places have the same name.
    return b"".join(len(part.encode()).to_bytes(4) + part.encode() for part in place)
