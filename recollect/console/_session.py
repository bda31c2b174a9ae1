"""Who is signed in: a signed note of a key's id and an end, kept by the browser.

The note never holds the key. It only says which key opened the session; whether that key still
opens anything is asked of the database at every request.
"""

import hmac
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from recollect.model import KeyId

COOKIE = "recollect_session"
LIFETIME = timedelta(hours=12)
_PURPOSE = b"recollect console session 1\n"
_TOKEN = re.compile(r"([0-9a-f]{12})\.([0-9]{1,12})\.([0-9a-f]{64})", re.ASCII)


def issue(secrets: Sequence[bytes], key: KeyId, now: datetime) -> str:
    """The token of a session that ends `LIFETIME` from now, signed with the first secret."""
    said = f"{key}.{int((now + LIFETIME).timestamp())}"
    return f"{said}.{_seal(secrets[0], said)}"


def read(secrets: Sequence[bytes], token: str, now: datetime) -> KeyId | None:
    """Whose session it is; None for a token that is not ours, was changed, or has ended."""
    match = _TOKEN.fullmatch(token)
    if match is None:
        return None
    key, end, seal = match.groups()
    ours = [_seal(secret, f"{key}.{end}") for secret in secrets]
    if not any(hmac.compare_digest(known, seal) for known in ours):
        return None
    return KeyId(key) if now < datetime.fromtimestamp(int(end), UTC) else None


def _seal(secret: bytes, said: str) -> str:
    return hmac.digest(secret, _PURPOSE + said.encode(), "sha256").hex()
