"""What providers report of changes: registrations, pushes, and the notices that they come to."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from recollect.model import ConnectionId


@dataclass(frozen=True, slots=True)
class Registration:
    """Our registration for pushes at a provider: `id` and `secret` are ours and random."""

    id: str
    connection_id: ConnectionId
    resource: str
    """what is watched, as `watches` named it"""
    secret: str
    url: str
    """where pushes go; it carries the id as the query parameter `registration`"""
    remote: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """what the provider answered and wants to hear again: its id of the hook, the channel"""
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Push:
    """A call of a provider, unverified. Header names are in lower case, `body` is raw."""

    headers: Mapping[str, str]
    query: Mapping[str, str]
    body: bytes
    registration: Registration | None
    """the one that the query names; None: unknown, or none named"""
    secrets: Sequence[str] = field(default=(), repr=False)
    """the application's secrets for this provider that are active, where it has one registration
    for all connections"""
    config: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)
    """what the settings say of proofs that are no secret, in the connector's words"""


@dataclass(frozen=True, slots=True)
class PushResult:
    """What a push comes to: how to answer it, and which connections have something new."""

    status: int = 202
    text: str | None = None
    """body of the answer, as text/plain"""
    concerned: bool = False
    """the connection of the registration"""
    accounts: Sequence[str] = ()
    """ids of accounts of which all connections are concerned"""
    addresses: Sequence[str] = ()
    """e-mail addresses of such accounts, where the provider names them by these"""
    key: str | None = None
    """what a repetition of the same push has in common with it"""
    lost: bool = False
    """the registration is gone at the provider and wants to be made again"""
    pending_secret: str | None = field(default=None, repr=False)
    """a verification token that the operator has to confirm. It came from anybody: it is to be
    shown, and never replaces one that is active"""

    @property
    def proven(self) -> bool:
        """Whether the provider sent it, as far as this result tells."""
        return self.concerned or bool(self.accounts or self.addresses) or self.key is not None


FORGED = PushResult(status=401)


@dataclass(frozen=True, slots=True)
class Received:
    """A notice that was fetched from where it waited."""

    ack: str
    """what to say when it has been acted on"""
    notice: PushResult


class Inbox(Protocol):
    """Where notices wait to be fetched, for those whom nobody can push to. One thread at a time."""

    name: str

    def pull(self) -> Sequence[Received]:
        """Notices that came; none if none did for a while.

        Raises Permanent for what the operator has to fix, Transient for what passes.
        """
        ...

    def acknowledge(self, received: Sequence[Received]) -> None:
        """They do not come again; without this they do, after some seconds. Raises as `pull`."""
        ...
