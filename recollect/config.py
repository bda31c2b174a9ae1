"""Every setting, once. Environment variables (or `.env`) with the prefix `RECOLLECT_`.

Built once, by `cli`; everything below `app` gets values, never this class's environment.
"""

import logging
import math
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from datetime import timedelta
from difflib import get_close_matches
from functools import cached_property
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import urlsplit

import platformdirs
from dotenv import dotenv_values
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from recollect.errors import SetupError, in_words
from recollect.model import Plan


def _default_data_dir() -> Path:
    # PostgreSQL refuses to run as root and its own user cannot look into root's home folder.
    if os.geteuid() == 0:
        return Path("/var/lib/recollect")
    try:
        return Path(platformdirs.user_data_dir("recollect", appauthor=False))
    except RuntimeError as error:
        raise SetupError(
            "RECOLLECT_DATA_DIR: this user has no home folder to keep data in; name another folder"
        ) from error


_lines_told: set[object] = set()


def _once_of_the_file(record: logging.LogRecord) -> bool:
    """Of a line that dotenv cannot read: by the name of the file, once in a process, though the
    file is read for each provider."""
    fresh = record.args not in _lines_told
    _lines_told.add(record.args)
    if record.msg.startswith("python-dotenv could not parse"):
        record.msg = "line %s of .env has no effect: it is not NAME=value, or a quote is open"
    return fresh


logging.getLogger("dotenv.main").addFilter(_once_of_the_file)


def _parts(value: str) -> list[str]:
    return [part.strip() for part in value.split(",") if part.strip()]


def _split(value: object) -> object:
    return _parts(value) if isinstance(value, str) else value


def _networks(value: object) -> object:
    return list(map(ip_network, _parts(value))) if isinstance(value, str) else value


def _absolute(folders: list[Path]) -> list[Path]:
    for folder in folders:
        if not folder.is_absolute():
            raise ValueError(f"{str(folder)!r} is not an absolute path, such as /srv/papers")
    return [Path(os.path.normpath(folder)) for folder in folders]


Folders = Annotated[list[Path], NoDecode, BeforeValidator(_split), AfterValidator(_absolute)]
Networks = Annotated[list[IPv4Network | IPv6Network], NoDecode, BeforeValidator(_networks)]


def _seconds(value: Any) -> Any:
    """What the environment gives is text, and pydantic takes only ISO 8601 of that."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            return value
    return value


Duration = Annotated[timedelta, Field(le=timedelta(days=36_500)), BeforeValidator(_seconds)]
"""Seconds or ISO 8601: `90`, `PT4H`, `P7D`; a time of PostgreSQL's holds so many of them."""


def _web_address(value: str) -> str:
    parts = urlsplit(value)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{value!r} is not an address such as https://memory.example.org")
    return value


Address = Annotated[str, AfterValidator(_web_address)]

TOP = Path("/")


def control_groups(controller: str, root: Path = TOP) -> Iterator[Path]:
    """The folder of the control group of this process, and of those above it, of either version."""
    with suppress(OSError, ValueError):  # not Linux, or a form that we do not know
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers or controller in controllers.split(","):
                own = root / "sys/fs/cgroup" / controllers / path.lstrip("/")
                yield from (own, *own.parents)


def cores(root: Path = TOP) -> int:
    """Processors, a part of one counted as one: those on which this process may run, or fewer where
    a control group is bounded (`docker run --cpus`). A container is shown all of the machine's."""
    may = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    bounds = [float(may)]
    for folder in control_groups("cpu", root):
        with suppress(OSError, ValueError, ArithmeticError):  # none here, "max", or no period
            quota, period = (folder / "cpu.max").read_text().split()
            bounds.append(int(quota) / int(period))
        with suppress(OSError, ValueError, ArithmeticError):
            quota, period = (folder / f"cpu.cfs_{name}_us" for name in ("quota", "period"))
            if (given := int(quota.read_text())) > 0:  # -1: no bound
                bounds.append(given / int(period.read_text()))
    return max(1, math.ceil(min(bounds)))


PREFIX = "RECOLLECT_"
NO_PROVIDERS: Mapping[str, "type[ProviderSettings]"] = MappingProxyType({})
_NO_SETTINGS = tuple(
    f"{PREFIX}{name}" for name in ("COMPLETE", "TEST_", "CHAOS_", "FUZZ_", "SERVICE_", "PORT_")
)
"""of the shell's completion, of the tests, and of Kubernetes, which tells each container of a
service named recollect"""


class EnvSettings(BaseSettings):
    """A blank value counts as not set. A compose file writes one for each variable that nobody set,
    and a blank host would mean all interfaces, a blank data folder the working folder. Nor does a
    port that Kubernetes tells of a service (`tcp://10.0.0.7:6767`) set ours."""

    @model_validator(mode="before")
    @classmethod
    def _without_blank(cls, given: Mapping[str, Any]) -> Mapping[str, Any]:
        return {
            name: value
            for name, value in given.items()
            if not isinstance(value, str)
            or (value.strip() and not (name == "port" and value.startswith("tcp://")))
        }


class ProviderSettings(EnvSettings):
    """Application and addresses of a provider, whose connector may add settings of its own.

    The prefix is `RECOLLECT_<PROVIDER>_`; a field with an alias has that name instead.
    """

    model_config = SettingsConfigDict(
        env_file=".env", env_ignore_empty=True, extra="ignore", frozen=True
    )

    client_id: str | None = Field(
        default=None, description="Id of the OAuth application, for organisations without one."
    )
    client_secret: SecretStr | None = Field(
        default=None, description="Secret of the OAuth application."
    )
    api_url: Address | None = Field(
        default=None, description="Base URL of the API; the provider's if unset."
    )
    auth_url: Address | None = Field(
        default=None, description="Where users authorize; the provider's if unset."
    )
    token_url: Address | None = Field(
        default=None, description="Where codes become tokens; the provider's if unset."
    )
    revoke_url: Address | None = Field(
        default=None, description="Where tokens are revoked; the provider's if unset."
    )

    @classmethod
    def variables(cls, provider: str) -> Mapping[str, str]:
        """The environment variable of each field."""
        return {
            name: str(field.validation_alias or f"{cls.prefix(provider)}{name.upper()}")
            for name, field in cls.model_fields.items()
        }

    @staticmethod
    def prefix(provider: str) -> str:
        return f"{PREFIX}{provider.replace('-', '_').upper()}_"


EnvSettingsT = TypeVar("EnvSettingsT", bound=EnvSettings)


class Config(EnvSettings):
    """The defaults start a working system with no environment at all."""

    model_config = SettingsConfigDict(
        env_prefix="RECOLLECT_",
        env_file=".env",
        env_ignore_empty=True,
        extra="ignore",
        frozen=True,
    )

    data_dir: Path = Field(
        default_factory=_default_data_dir,
        description="Folder of the embedded PostgreSQL, blobs, model cache and secrets.",
    )
    host: str = Field(default="127.0.0.1", description="Address to listen on.")
    port: int = Field(default=6767, ge=1, le=65535, description="Port to listen on.")
    public_url: Address | None = Field(
        default=None,
        description="Address that others use; http://HOST:PORT if unset.",
    )
    database_url: SecretStr | None = Field(
        default=None,
        description="Any PostgreSQL 15 or later with pgvector 0.8; embedded PostgreSQL if unset.",
    )
    read_urls: SecretStr | None = Field(
        default=None,
        description="Streaming replicas of that PostgreSQL, comma-separated, which answer searches"
        " and other reads.",
    )
    index_shards: int = Field(
        default=8,
        ge=1,
        le=1024,
        description="Parts of the index where that PostgreSQL is a coordinator of Citus; read once,"
        " when its workers get the index.",
    )
    blob_url: str | None = Field(
        default=None, description="Where files are kept: file:///folder or s3://bucket/prefix."
    )
    api_key: SecretStr | None = Field(
        default=None,
        description="Key of the default organisation, any string (16 characters or more where other"
        " machines reach the service); made on first boot.",
    )
    url: str | None = Field(
        default=None,
        description="Where the command line finds the service; http://HOST:PORT if unset.",
    )
    secret_key: SecretStr | None = Field(
        default=None,
        description="Signs and seals, 32 characters or more; made on first boot in DATA_DIR. The"
        " same on all machines; several, comma-separated, for a change: the first seals, all open.",
    )
    plan: Plan = Field(default=Plan.ENTERPRISE, description="Plan of the default organisation.")
    workers: int = Field(
        default=max(4, 2 * cores()),
        ge=1,
        le=256,
        description="Documents processed at once.",
    )
    embedder: Literal["local", "openai", "none"] = Field(
        default="local",
        description="Embedding model: local, openai (any such endpoint), none (lexical).",
    )
    embedder_url: str | None = Field(
        default=None, description="Base URL of the embedding endpoint, for example http://host/v1."
    )
    embedder_key: SecretStr | None = Field(
        default=None, description="Key of the embedding endpoint."
    )
    embedder_model: str | None = Field(
        default=None,
        description="Model name at the endpoint; for local: multilingual-e5-small-q4 (default of a"
        " new index), all-MiniLM-L6-v2 (half the work, English) or a folder with a model's files.",
    )
    embedder_dimensions: int | None = Field(
        default=None,
        ge=1,
        le=4000,
        description="Dimensions of the vectors, if the model lets you choose.",
    )
    embedder_next_key: SecretStr | None = Field(
        default=None,
        description="Key of the endpoint that `recollect embedder switch` changes to.",
    )
    embedder_threads: int = Field(
        default=cores(),
        ge=1,
        le=256,
        description="Threads of the local model.",
    )
    transcriber: Literal["auto", "whisper", "openai", "pocketsphinx", "none"] = Field(
        default="auto",
        description="Engine for speech without captions; auto: the endpoint if TRANSCRIBER_URL is"
        " set, else whisper if TRANSCRIBER_MODEL is, else TRANSCRIBER_FALLBACK.",
    )
    transcriber_url: str | None = Field(
        default=None, description="Base URL of the transcription endpoint, with its /v1."
    )
    transcriber_key: SecretStr | None = Field(
        default=None, description="Key of the transcription endpoint."
    )
    transcriber_model: str | None = Field(
        default=None,
        description="Model name at the endpoint; for whisper: a folder, or a name that the hub's"
        " cache has.",
    )
    transcriber_fallback: Literal["metadata", "pocketsphinx", "fail"] = Field(
        default="metadata",
        description="Without an engine: metadata (keep what is known, with a warning),"
        " pocketsphinx (poor text), fail.",
    )
    sandbox: Literal["required", "best", "off"] = Field(
        default="best",
        description="Confinement of the processes that read files: required (the service does not"
        " start where the kernel lacks a layer), best (what the kernel has, with a warning), or off"
        " (limits of time and memory only).",
    )
    video: Literal["auto", "none"] = Field(
        default="auto",
        description="Pages that show a video: auto (captions or sound by yt-dlp where it is"
        " installed), none (their text only).",
    )
    llm_url: str | None = Field(
        default=None,
        description="Base URL of a language model's endpoint (OpenAI-compatible), with its /v1.",
    )
    llm_key: SecretStr | None = Field(
        default=None, description="Key of the language model's endpoint."
    )
    llm_model: str | None = Field(
        default=None, description="Name of the language model at the endpoint."
    )
    llm_concurrency: int = Field(
        default=4, ge=1, le=64, description="Questions to the language model at once, per process."
    )
    llm_timeout: float = Field(
        default=120, gt=0, le=3600, description="Seconds for one answer of the language model."
    )
    answer_tokens: int = Field(
        default=6_000,
        ge=500,
        le=200_000,
        description="Tokens of the passages that the language model reads for one answer, about.",
    )
    otlp_url: str | None = Field(
        default=None,
        description="OpenTelemetry collector for traces (OTLP/HTTP), for example"
        " http://127.0.0.1:4318; needs the extra `traces`.",
    )
    otlp_headers: SecretStr | None = Field(
        default=None, description="Headers for the collector: name=value, comma-separated."
    )
    rerank_model: str | None = Field(
        default=None,
        description="Reranker: a folder with model.onnx and tokenizer.json of a cross-encoder; with"
        " RERANK_URL the model's name at the endpoint.",
    )
    rerank_url: str | None = Field(
        default=None,
        description="Base URL of an endpoint that answers POST /rerank, for example http://host/v1.",
    )
    rerank_key: SecretStr | None = Field(
        default=None, description="Key of the reranker's endpoint."
    )
    rerank_first: int = Field(
        default=20, ge=1, le=200, description="Passages of a search that the reranker judges."
    )
    rerank_timeout: float = Field(
        default=10, gt=0, le=600, description="Seconds that a search waits for the reranker."
    )
    allow_networks: Networks = Field(
        default_factory=list,
        description="Networks (CIDR, …) that URLs may point into besides the public internet.",
    )
    proxy: SecretStr | None = Field(
        default=None,
        description="Forward proxy, http://host:port or http://user:password@host:port, through"
        " which this service reaches all but the inside.",
    )
    no_proxy: Annotated[list[str], NoDecode, BeforeValidator(_split)] = Field(
        default_factory=list,
        description="Names (with those below them) and networks that are reached without PROXY,"
        " besides loopback, private addresses and names without a dot.",
    )
    folders: Folders = Field(
        default_factory=list[Path],
        description="Folders of this machine (/srv/papers, …) that may be connected by anyone"
        " with a key that may write, with all below them.",
    )
    redirect_origins: Annotated[list[str], NoDecode, BeforeValidator(_split)] = Field(
        default_factory=list,
        description="Exact origins (https://app.example, …) that redirectUrl may name; any https"
        " URL, and http on loopback, if unset.",
    )
    syncs: int = Field(default=2, ge=1, le=64, description="Connections synced at once.")
    sync_interval: Duration = Field(
        default=timedelta(hours=4),
        gt=timedelta(),
        description="Time between scheduled syncs of a connection, in seconds or as ISO 8601.",
    )
    sync_stretch: Duration = Field(
        default=timedelta(minutes=1),
        ge=timedelta(),
        description="How long a sync keeps its place while other connections wait for one.",
    )
    poll_interval: Duration = Field(
        default=timedelta(minutes=5),
        gt=timedelta(),
        description="Time between checks for changes where pushes cannot arrive (no https"
        " PUBLIC_URL).",
    )
    crawl_delay: float = Field(
        default=0.5,
        ge=0,
        le=60,
        description="Seconds between requests to one host; robots.txt may ask for more.",
    )
    crawl_concurrency: int = Field(
        default=4, ge=1, le=32, description="Requests to one host at once."
    )
    crawl_contact: str | None = Field(
        default=None,
        pattern=r"^[!-'*-~][ -'*-~]*$",
        description="URL or mail address where site owners can reach the person who runs this"
        " service, part of the User-Agent; PUBLIC_URL if unset. ASCII without parentheses.",
    )
    providers: Mapping[str, ProviderSettings] = Field(
        default_factory=dict[str, ProviderSettings],
        exclude=True,
        description="Applications and addresses of the providers, each with a prefix of its own.",
    )
    status_words: Literal["spec", "sdk"] = Field(
        default="spec",
        description="Words of `status`: spec (queued, processing, done), sdk (finer).",
    )
    python_client_arrays: bool = Field(
        default=True,
        description="Whether the published Python client gets an array when it deletes"
        " connections, as its versions from 3.58.0 on expect.",
    )
    metadata_arrays: Literal["refuse", "allow"] = Field(
        default="allow", description="Whether metadata values may be arrays of strings."
    )
    metrics_token: SecretStr | None = Field(
        default=None,
        description="Bearer token for /metrics; if unset, an admin key of the default"
        " organisation is needed.",
    )
    canary_interval: Duration = Field(
        default=timedelta(hours=1),
        ge=timedelta(),
        description="Between canaries, documents that prove that the whole service works; 0: none.",
    )
    audit_retention: Duration = Field(
        default=timedelta(days=365),
        ge=timedelta(),
        description="How long the audit log is kept; 0: forever.",
    )
    rate_limit: int = Field(
        default=0, ge=0, description="Requests per minute and key; 0 sets no limit."
    )
    max_attempts: int = Field(
        default=5, ge=1, le=100, description="Attempts before a document fails."
    )
    lease_seconds: float = Field(
        default=60, gt=0, le=3600, description="How long a silent worker keeps a document."
    )
    max_file_mb: int = Field(
        default=50, ge=1, le=50, description="Largest upload in MB (1 MB = 1,048,576 bytes)."
    )
    purge_interval: Duration = Field(
        default=timedelta(days=7),
        ge=timedelta(),
        description="Time between purges, which remove from the disk what was deleted, in"
        " seconds or as ISO 8601; 0: only by `recollect purge --now`.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        default="info", description="Lowest level of the log lines that are written."
    )

    @field_validator("blob_url")
    @classmethod
    def _check_blob_url(cls, value: str | None) -> str | None:
        if value is not None and ("?" in value or "#" in value):
            raise ValueError(
                f"{value!r} ends at its ? or #: write %3F and %23, or leave off what follows"
            )
        return value

    @cached_property
    def address(self) -> str:
        """Where this machine reaches the service, without a trailing slash."""
        host = "127.0.0.1" if self.host in ("0.0.0.0", "::") else self.host  # noqa: S104 # compared, not bound
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    @cached_property
    def is_open_to_others(self) -> bool:
        """Whether other machines reach the service, as far as the settings tell."""
        public = urlsplit(self.public_url).hostname if self.public_url else None
        return not all(map(is_this_machine, (self.host, public or self.host)))

    @cached_property
    def blobs(self) -> str:
        return self.blob_url or (self.data_dir.absolute() / "blobs").as_uri()


def unknown(providers: Mapping[str, type[ProviderSettings]]) -> dict[str, str | None]:
    """Names in the environment and in `.env` that begin as settings do and are none, each with
    the setting that was probably meant."""
    known = {f"{PREFIX}{name.upper()}" for name in Config.model_fields if name != "providers"}
    for provider, kind in providers.items():
        known |= set(kind.variables(provider).values())
    names = (*os.environ, *dotenv_values(".env"))  # noqa: TID251 # here it is read
    given = {name.upper() for name in names}
    wrong = sorted(
        name
        for name in given - known
        if name.startswith(PREFIX) and not name.startswith(_NO_SETTINGS)
    )
    return {name: next(iter(get_close_matches(name, known, 1)), None) for name in wrong}


def proxies_of_environment() -> list[str]:
    """Variables that other programs take a forward proxy from, and this one does not."""
    names = ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")
    return [name for name in names if os.environ.get(name)]  # noqa: TID251 # here it is read


def host_of(address: str) -> str | None:
    """The host that a URL names; None also for one that cannot be read."""
    try:
        return urlsplit(address).hostname
    except ValueError:  # brackets that hold no IPv6 address
        return None


def temporary_folder() -> Path:
    """Where large uploads and what readers of files say go. Raises SetupError if nothing can be
    written to, as where a container's root is read-only and nothing is mounted at /tmp."""
    try:
        return Path(tempfile.gettempdir())
    except FileNotFoundError as error:
        raise SetupError(
            "no folder for temporary files can be written to (/tmp, /var/tmp); mount one there"
            " (podman run --tmpfs /tmp), make room in it, or let TMPDIR name another"
        ) from error


def is_this_machine(host: str | None) -> bool:
    """Whether a name or an IP address, also in brackets, is of the loopback interface."""
    try:
        return ip_address((host or "").strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


def load(providers: Mapping[str, type[ProviderSettings]] = NO_PROVIDERS, **given: Any) -> Config:
    """The settings, those of these providers among them, with what the command line gave on top;
    raises SetupError naming the fault."""
    given = {name: value for name, value in given.items() if value is not None}
    return _read(Config, PREFIX, providers=load_providers(providers), **given)


def load_providers(
    providers: Mapping[str, type[ProviderSettings]],
) -> Mapping[str, ProviderSettings]:
    """The settings of these; raises SetupError naming the fault."""
    return {name: _read(kind, kind.prefix(name)) for name, kind in providers.items()}


def _read(kind: type[EnvSettingsT], prefix: str, **given: Any) -> EnvSettingsT:
    try:
        return kind(_env_prefix=prefix, **given)  # pyright: ignore[reportCallIssue] # BaseSettings takes it
    except ValidationError as error:
        faults: list[str] = []
        for fault in error.errors():
            name = ".".join(map(str, fault["loc"])).upper()
            variable = name if name.startswith(PREFIX) else prefix + name
            faults.append(f"{variable}: {in_words(fault)}")
        raise SetupError("; ".join(faults)) from error
