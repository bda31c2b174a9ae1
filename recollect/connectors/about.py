"""What a provider's pages show: what it brings, the form of its metadata, its OAuth application."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Field:
    """A key of the metadata as a field of a form."""

    name: str
    label: str
    hint: str = ""
    kind: Literal["text", "url", "number", "lines", "choice", "switch", "secret"] = "text"
    required: bool = False
    placeholder: str = ""
    choices: Sequence[tuple[str, str]] = ()
    """value and words; the first is the default"""
    default: bool = False
    """of a switch"""
    in_config: bool = False
    """whether the `config` of a namespace's connector takes it"""
    config_default: str | bool | int | None = None
    """what such a config has where it leaves it out"""


@dataclass(frozen=True, slots=True)
class Guide:
    """For people who are about to connect; the rules are those of `Connector.check`."""

    brings: str
    needs: str
    fields: Sequence[Field] = ()
    example: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """metadata to show in examples"""
    invitation: str = ""
    """what it offers those who have nothing yet, as a heading: Crawl a site"""
    if_nothing: str = ""
    """a sentence that says what to look at when a sync finds nothing at all"""


@dataclass(frozen=True, slots=True)
class Application:
    """An OAuth application, as the settings name it. Providers of one company share one."""

    provider: str
    """whose settings name it: `RECOLLECT_<PROVIDER>_CLIENT_ID`, `<provider>ClientId`"""
    name: str
    """of the company, for people"""
    made_at: str
    """where one registers an application"""

    @property
    def made_at_host(self) -> str:
        return urlsplit(self.made_at).hostname or ""

    def setting(self, part: Literal["CustomKeyEnabled", "ClientId", "ClientSecret", ""]) -> str:
        """The key among the settings of an organisation: `googleDriveClientId`. "": how they
        all begin."""
        first, *rest = self.provider.split("-")
        return "".join([first, *(word.capitalize() for word in rest), part])
