"""OAuth 2.0 for web applications (RFC 6749, RFC 7636): links, exchange, refresh, revocation."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import MappingProxyType
from typing import Literal

NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class OAuth:
    """How a provider does it. URLs are its own, unless the settings name others."""

    authorize_url: str
    token_url: str
    revoke_url: str | None = None
    scopes: Sequence[str] = ()
    pkce: bool = True
    """whether it takes an S256 challenge"""
    parameters: Mapping[str, str] = field(default_factory=lambda: NOTHING)
    """further ones of the link"""
    client: Literal["body", "basic"] = "body"
    """where the token endpoint wants the client's id and secret"""
    sends: Literal["form", "json"] = "form"
    rotates: bool = False
    """whether a refresh token serves once"""
    separator: str = " "
    """between scopes in answers"""


@dataclass(frozen=True, slots=True)
class Tokens:
    """What an authorization is worth. Never logged, stored sealed."""

    access: str = field(repr=False)
    refresh: str | None = field(default=None, repr=False)
    expires_at: datetime | None = None
    """of the access token; None: it says nothing, so 401 will"""
    scopes: Sequence[str] = ()
    """granted; empty when the provider does not tell"""
    extra: Mapping[str, str] = field(default_factory=lambda: NOTHING, repr=False)
    """further texts of the answer that identify the account (`workspace_id`, `id_token`)"""
