"""What signs an event (Standard Webhooks): the secrets of endpoints, and how they sign."""

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Sequence

from recollect.errors import BadRequestError

PREFIX = "whsec_"
SECRET_BYTES = 32
SHORTEST, LONGEST = 24, 64
"""Bytes of a secret (Standard Webhooks)."""


def sign(secret: str, id: str, stamp: int, body: bytes) -> str:
    """`v1,…`: HMAC-SHA256 of id, Unix time and body, by a secret of the form `whsec_<base64>`."""
    key = base64.b64decode(secret.removeprefix(PREFIX))
    mac = hmac.new(key, f"{id}.{stamp}.".encode() + body, hashlib.sha256)
    return f"v1,{base64.b64encode(mac.digest()).decode()}"


def new_secret() -> str:
    return PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def check_secret(secret: str) -> str:
    """A secret that the receiver chose; raises BadRequestError for anything else."""
    try:
        size = len(base64.b64decode(secret.removeprefix(PREFIX), validate=True))
    except (binascii.Error, ValueError):
        size = 0
    if not secret.startswith(PREFIX) or not SHORTEST <= size <= LONGEST:
        raise BadRequestError(
            f"secret: {PREFIX} and base64 of {SHORTEST} to {LONGEST} random bytes"
        )
    return secret


def place(endpoint: str) -> Sequence[str]:
    """Where the secret of an endpoint is sealed for."""
    return (endpoint, "endpoint")
