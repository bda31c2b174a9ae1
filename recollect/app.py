"""What a process is made of: the composition root."""

import hashlib
import os
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.parse import quote, urlsplit

from recollect import __version__, documents, encryption, log
from recollect.blobs import NOTE, Blobs, identity, is_new, keeps_any, open_blobs
from recollect.config import Config, cores, temporary_folder
from recollect.db import Database, citus, machines
from recollect.db.machines import Shared
from recollect.db.replicas import Replicated
from recollect.db.schema import migrate
from recollect.db.server_check import what_case_lacks
from recollect.errors import SetupError, Unavailable
from recollect.extract import Sandbox
from recollect.fetch import Fetcher, self_test
from recollect.fetch.video import VideoPages, open_video_pages
from recollect.index import vector_index
from recollect.index.embedder import IndexEmbedder
from recollect.index.vector_index import Choice, Index
from recollect.inference.embed import Embedder, EmbedderChoice, open_embedder
from recollect.inference.llm import Llm, LlmChoice, open_llm
from recollect.inference.local_model import DEFAULT, MINILM, MODELS, local_name
from recollect.inference.rerank import RerankChoice, Reranker, open_reranker
from recollect.inference.transcribe import Listener, TranscriberChoice, open_transcriber
from recollect.orgs import orgs
from recollect.telemetry.tracing import Tracer, open_tracer

LOG = log.get("app")
SECRET_BYTES = 32
SHORTEST_SECRET = 32
"""Characters of RECOLLECT_SECRET_KEY: 128 bits, if it is hexadecimal."""
DIFFERENT_STEPS = 20
"""Pairs of steps from character to character that differ; 32 random digits have some 30."""
SHORTEST_KEY = 16
"""Characters of RECOLLECT_API_KEY where others reach the service."""
EMBEDDER_KEY = ("index", "embedder key")
"""where the key of an embedding endpoint is sealed for"""
SOME_FILES = 20
"""files that documents name, of which the store of files has to have one"""
_BETWEEN_URLS = re.compile(r",(?=\s*(?:postgres(?:ql)?://|\Z))")
_BETWEEN_PAIRS = re.compile(r",(?=\s*(?:[a-z_]+=|\Z))")
_READ = set[Path]()
"""files with a secret key that this process has read"""
CHILDREN = max(1, cores() - 1)
"""Files extracted at once: each child takes memory and a core, which documents in flight do not."""


@dataclass(frozen=True, slots=True)
class App:
    """The tools of one process, opened; close it at the end."""

    config: Config
    db: Database
    blobs: Blobs
    embedder: Embedder | None
    fetcher: Fetcher
    sandbox: Sandbox
    listener: Listener
    llm: Llm | None = None
    """None: no language model is configured"""
    reranker: Reranker | None = None
    """None: none is configured"""

    tracer: Tracer | None = None
    """None: no collector is configured"""
    videos: VideoPages | None = None
    """None: pages that show a video are pages like others"""

    @property
    def lease(self) -> timedelta:
        return timedelta(seconds=self.config.lease_seconds)

    def close(self) -> None:
        self.sandbox.close()
        if self.videos is not None:
            self.videos.close()
        self.fetcher.close()
        if self.llm is not None:
            self.llm.close()
        if self.reranker is not None:
            self.reranker.close()
        if self.tracer is not None:
            self.tracer.close()
        self.db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def open_app(config: Config, database_url: str, *, serves: bool = False) -> App:
    """Open what a process needs on a migrated database.

    `serves`: it is one of those that all work on this database for long, which must agree on what
    they share. Raises SetupError where the settings or the machine are not right, for example when
    the index was built with another embedding model, or another machine has another secret key.
    """
    self_test()
    config.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    listener = open_listener_of(config)
    llm = open_llm_of(config)
    reranker = open_reranker_of(config)
    if serves:
        temporary_folder()
        with Database(database_url, size=1) as database, database.begin() as tx:
            keys = documents.some_blobs(tx, SOME_FILES)
        check_files(keys, config)
    shared = shares(config) if serves else None
    name = shared.name if shared else "recollect"
    database = open_database(config, database_url, size=config.workers + 20, name=name)
    try:
        with database.begin() as tx:
            index = vector_index.read(tx)  # None: nothing has worked on this database yet
            used = not serves and (index is not None or bool(documents.some_blobs(tx, 1)))
        embedder = open_embedder_of(config, index)
        _bind(database, embedder, shared)
    except BaseException:
        database.close()
        raise
    if embedder is not None:
        embedder = IndexEmbedder(database, embedder, lambda choice: open_choice(config, choice))
    fetcher = Fetcher(user_agent=user_agent(config), allow_networks=config.allow_networks)
    sandbox = Sandbox(
        workers=min(config.workers, CHILDREN),
        readable=listener.readable,
        heavy_lock=config.data_dir / "heavy.lock",
        heavy_places=max(1, config.workers // 2),
        confined=config.sandbox != "off",
    )
    if serves:
        try:
            _check(sandbox, config)
        except BaseException:
            sandbox.close()
            database.close()
            raise
    return App(
        config=config,
        db=database,
        blobs=open_blobs(config.blobs, used=used),
        embedder=embedder,
        fetcher=fetcher,
        sandbox=sandbox,
        listener=listener,
        llm=llm,
        reranker=reranker,
        tracer=open_tracer_of(config),
        videos=open_video_pages(config.video, fetcher),
    )


def open_database(
    config: Config, database_url: str, *, size: int, name: str = "recollect"
) -> Database:
    """The database, and the replicas that the settings name; raises SetupError, Unavailable."""
    if config.read_urls is None:
        return Database(database_url, size=size, name=name).open()
    with Database(database_url, size=1, name=name) as database, database.begin() as tx:
        if citus.is_spread(tx):
            raise SetupError(
                "RECOLLECT_READ_URLS names replicas, and the index lies on the workers of Citus:"
                " a replica of the coordinator does not know how far those are. Unset it"
            )
    replicas = connection_strings(config.read_urls.get_secret_value())
    return Replicated(database_url, replicas, size=size, name=name).open()


def connection_strings(listed: str) -> list[str]:
    """Those between the commas of a list; not each comma separates, since a password may have
    some, and one string may name several hosts."""
    separator = _BETWEEN_URLS if listed.lstrip().startswith("postgres") else _BETWEEN_PAIRS
    return [one.strip() for one in separator.split(listed) if one.strip()]


def _check(sandbox: Sandbox, config: Config) -> None:
    """Raises SetupError where files would be read less confined than the settings require."""
    missing = sandbox.missing()
    if missing and config.sandbox == "required":
        raise SetupError(f"RECOLLECT_SANDBOX=required, but {missing}")
    if missing:
        LOG.warning("files are read with less confinement", missing=missing)


def check_files(keys: Sequence[str], config: Config) -> None:
    """`keys`: some of those that documents name; not in a transaction, since a bucket may be slow.

    Raises SetupError where none of the files that documents were uploaded as lies in what is to
    become the store of them: the folder of a volume that is not mounted, or another bucket.

    A folder of a version that made no note, or a copy without it, has them. Of a bucket that does
    not answer nothing is known.
    """
    try:
        if not keys or not is_new(config.blobs) or keeps_any(config.blobs, keys):
            return
    except Unavailable as error:
        LOG.warning("files not looked for", reason=str(error))
        return
    raise SetupError(
        f"{config.blobs} has none of the files that documents were uploaded as. Mount the volume"
        " that has them, or set RECOLLECT_BLOB_URL to where they are. If they are lost, create an"
        f" empty file {NOTE} there, and the service starts without them"
    )


def _bind(database: Database, embedder: Embedder | None, shared: Shared | None) -> None:
    """Raises SetupError where others on the database, or the index, go by other settings."""
    with database.begin() as tx:
        if shared is not None:
            machines.check(tx, shared)
        index = vector_index.read(tx)
        if embedder is None or index is None or not vector_index.reaches(index, embedder.name):
            vector_index.adopt(tx, *index_identity(embedder))
        else:
            LOG.warning("the settings name another model than the index", used=index.used.name)


def shares(config: Config) -> Shared:
    """What this process must have in common with all others on its database."""
    return Shared(encryption.ids(secret_keys(config)), identity(config.blobs))


def prepare(config: Config, database_url: str) -> str | None:
    """Migrate, and make sure that a key opens the default organisation.

    Returns the secret of a key made now, which is shown once, and kept in the data folder. Raises
    as `check_secrets`, and SetupError where it cannot be kept.
    """
    check_secrets(config)
    try:
        config.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise SetupError(
            f"the data folder {config.data_dir} cannot be created ({error.strerror}); set"
            " RECOLLECT_DATA_DIR to another"
        ) from error
    migrate(database_url, index_shards=config.index_shards)
    with Database(database_url, size=1) as database, database.begin() as tx:
        if case := what_case_lacks(tx):
            LOG.warning("locale", reason=case)
        secret = config.api_key.get_secret_value() if config.api_key else None
        made = orgs.ensure_default(tx, plan=config.plan, secret=secret)
        if made is not None:
            # Before the commit: once there is a key, no start makes another.
            _keep_key(config.data_dir / "api-key", made)
        return made


def _keep_key(path: Path, secret: str) -> None:
    """For the command line on this machine: who can read the data folder can do anything anyway.

    One of another database is put aside, since nobody may know it otherwise.
    """
    aside = path.with_name(f"{path.name}.replaced")
    try:
        if path.is_file() and not aside.exists():
            path.rename(aside)
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(secret + "\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise SetupError(f"the first key cannot be kept in {path} ({error.strerror})") from error


def user_agent(config: Config) -> str:
    """Who fetches, and whom a site's owner may ask: without any address, only who.

    ASCII on one line, as a header must be. Raises SetupError when the address is none.
    """
    contact = config.crawl_contact
    if contact is None and config.public_url is not None:
        parts = urlsplit(config.public_url.strip())
        path = quote(parts.path.rstrip("/"), safe="/%")
        try:
            contact = f"{parts.scheme}://{parts.netloc.encode('idna').decode()}{path}"
        except UnicodeError as error:
            raise SetupError(f"RECOLLECT_PUBLIC_URL is not a URL: {error}") from error
    return f"RecollectBot/{__version__}" + (f" (+{contact})" if contact else "")


def index_identity(embedder: Embedder | None) -> tuple[str, int]:
    """What the index remembers of its embedding model: name and dimensions."""
    return (embedder.name, embedder.dimensions) if embedder else ("none", 0)


def cache_folder(config: Config) -> Path:
    return config.data_dir / "cache"


def open_embedder_of(config: Config, index: Index | None) -> Embedder | None:
    """The embedding model that the settings name; raises SetupError, None for `none`."""
    return _open_embedder(config, embedder_choice(config, index))


def embedder_choice(config: Config, index: Index | None) -> EmbedderChoice:
    """What the settings say of the embedding model.

    Where they name no local one it is the one that the index has, so that an index keeps its model
    when another becomes the default.
    """
    model = config.embedder_model
    if config.embedder == "local" and model is None:
        model = _local_of(index)
    return EmbedderChoice(
        kind=config.embedder,
        url=config.embedder_url,
        key=config.embedder_key.get_secret_value() if config.embedder_key else None,
        model=model,
        dimensions=config.embedder_dimensions,
    )


def _local_of(index: Index | None) -> str:
    """Of the models that come with the service, the one that the index has, or had last."""
    if index is not None:
        other = None if index.other is None else index.other.name
        for name in (index.used.name, other, index.replaced):
            for model in MODELS:
                if name == local_name(model):
                    return model
    return DEFAULT


def kept_choice(config: Config, choice: EmbedderChoice) -> Choice:
    """As the index remembers it, for all processes: the key is sealed. Raises SetupError."""
    key = choice.key
    if key is not None:
        key = encryption.seal(secret_keys(config), key, place=EMBEDDER_KEY)
    return {
        "kind": choice.kind,
        "url": choice.url,
        "key": key,
        "model": choice.model,
        "dimensions": choice.dimensions,
    }


def open_choice(config: Config, choice: Choice) -> Embedder:
    """The model that the index remembers; raises SetupError."""
    key = choice["key"]
    if key is not None:
        key = encryption.unseal(secret_keys(config), key, place=EMBEDDER_KEY)
    model = choice["model"]
    if choice["kind"] == "local" and model is None:  # written when there was no other
        model = MINILM
    opened = EmbedderChoice(
        kind=choice["kind"],
        url=choice["url"],
        key=key,
        model=model,
        dimensions=choice["dimensions"],
    )
    embedder = _open_embedder(config, opened)
    if embedder is None:
        raise SetupError("the index remembers no model that makes vectors")
    return embedder


def _open_embedder(config: Config, choice: EmbedderChoice) -> Embedder | None:
    return open_embedder(choice, cache=cache_folder(config), threads=config.embedder_threads)


def open_listener_of(config: Config) -> Listener:
    """The engine for speech that the settings name; raises SetupError."""
    choice = TranscriberChoice(
        kind=config.transcriber,
        url=config.transcriber_url,
        key=config.transcriber_key.get_secret_value() if config.transcriber_key else None,
        model=config.transcriber_model,
        fallback=config.transcriber_fallback,
    )
    return open_transcriber(choice)


def open_llm_of(config: Config) -> Llm | None:
    """The language model that the settings name; raises SetupError, None without one."""
    choice = LlmChoice(
        url=config.llm_url,
        key=config.llm_key.get_secret_value() if config.llm_key else None,
        model=config.llm_model,
        concurrency=config.llm_concurrency,
        timeout=config.llm_timeout,
    )
    return open_llm(choice)


def open_tracer_of(config: Config) -> Tracer | None:
    """The collector that the settings name; raises SetupError, None without one."""
    headers = config.otlp_headers.get_secret_value() if config.otlp_headers else None
    return open_tracer(config.otlp_url, headers)


def open_reranker_of(config: Config) -> Reranker | None:
    """The reranker that the settings name; raises SetupError, None without one."""
    choice = RerankChoice(
        url=config.rerank_url,
        key=config.rerank_key.get_secret_value() if config.rerank_key else None,
        model=config.rerank_model,
        timeout=config.rerank_timeout,
        threads=config.embedder_threads,
    )
    return open_reranker(choice)


def secret_keys(config: Config) -> tuple[bytes, ...]:
    """Of 32 bytes each: those of RECOLLECT_SECRET_KEY, then the one in `DATA_DIR/secret-key`.

    The first seals, all of them open; random bytes are made for the file when there is neither.
    Processes that ask at the same time get the same ones. Raises SetupError when the setting is
    blank, or its first key may be guessed, or when the file cannot be read or made, or is damaged;
    Unavailable while a file that this process has read is not there: what a new key seals could
    not be opened once the file is back.
    """
    named = tuple(map(_secret_of, _named_secrets(config)))
    path = config.data_dir / "secret-key"
    was_read = path in _READ  # before the look, since another thread may make the file after it
    try:
        if not path.exists():
            if named:
                return named
            if was_read:
                raise Unavailable(f"{path}, which holds the secret key, is away")
            _make_secret(path)
        found = path.read_bytes()
        _READ.add(path)
    except OSError as error:
        raise SetupError(
            f"{path}, which holds the secret key, cannot be read: {error.strerror}"
        ) from error
    if len(found) != SECRET_BYTES:
        raise SetupError(
            f"{path} is damaged ({len(found)} bytes, not {SECRET_BYTES}); restore it from a backup"
        )
    return (*named, found)


def signing_keys(config: Config) -> tuple[bytes, ...]:
    """Those of `secret_keys` that sign what strangers get to see, by which a secret that can be
    guessed would be found: not the old ones that are too weak."""
    weak = {_secret_of(word) for word in _named_secrets(config) if weakness(word) is not None}
    return tuple(key for key in secret_keys(config) if key not in weak)


def weakness(secret: str) -> str | None:
    """Why someone who tries would find it; None: nothing is seen that makes that likely."""
    if len(secret) < SHORTEST_SECRET:
        return f"has {len(secret)} characters and needs at least {SHORTEST_SECRET}"
    # What repeats itself, or counts up, goes by few steps from character to character.
    steps = [ord(after) - ord(before) for before, after in pairwise(secret)]
    if len(set(pairwise(steps))) < DIFFERENT_STEPS:
        return "repeats itself or counts up"
    return None


def check_secrets(config: Config) -> None:
    """Raises SetupError where a named secret may be guessed: the one that seals and signs, and the
    API key if others reach the service."""
    _named_secrets(config)
    length = len(config.api_key.get_secret_value()) if config.api_key else SHORTEST_KEY
    if length >= SHORTEST_KEY:
        return
    told = f"RECOLLECT_API_KEY has {length} characters, so few that a stranger may guess it"
    if config.is_open_to_others:
        raise SetupError(
            f"{told}, and other machines reach this service (RECOLLECT_HOST, RECOLLECT_PUBLIC_URL);"
            f" set a key of at least {SHORTEST_KEY} characters, or unset it to have one made"
        )
    LOG.warning("weak key", reason=told)


def _named_secrets(config: Config) -> list[str]:
    if config.secret_key is None:
        return []
    given = [word.strip() for word in config.secret_key.get_secret_value().split(",")]
    if not all(given):
        raise SetupError(
            "RECOLLECT_SECRET_KEY: a key is blank; give one or more, newest first, separated by"
            " commas, or unset it to have one made in the data folder"
        )
    if (fault := weakness(given[0])) is not None:
        raise SetupError(
            f"RECOLLECT_SECRET_KEY: the first key {fault}; make one with `openssl rand -hex 32`."
            " If the installation uses this key already, put the new one before it, separated by a"
            " comma: what the old one sealed stays readable and is sealed again with the new one"
        )
    return given


def _secret_of(word: str) -> bytes:
    return hashlib.sha256(word.encode()).digest()


def _make_secret(path: Path) -> None:
    # Written whole under a name of its own and then linked: nobody ever reads half of it, and
    # of several that make one, the first link wins.
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(secrets.token_bytes(SECRET_BYTES))
        file.flush()
        os.fsync(file.fileno())
    try:
        path.hardlink_to(draft)
    except FileExistsError:
        pass
    finally:
        draft.unlink()
    folder = os.open(path.parent, os.O_RDONLY)
    os.fsync(folder)
    os.close(folder)
