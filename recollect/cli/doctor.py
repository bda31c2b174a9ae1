"""`recollect doctor`: effective settings, and what works, what is off, and how to fix it."""

import platform
import shutil
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from threading import Event
from types import MappingProxyType
from typing import Annotated, Literal
from urllib.parse import urlsplit

import typer

from recollect import documents, encryption
from recollect.app import (
    SOME_FILES,
    check_files,
    index_identity,
    open_database,
    open_embedder_of,
    open_listener_of,
    open_llm_of,
    open_reranker_of,
    secret_keys,
)
from recollect.blobs import folder_of, new_key, open_blobs
from recollect.cli._config import load, unknown
from recollect.cli._log import log_of_command
from recollect.cli.client import AsJson
from recollect.cli.output import closed, echo_json, shown, table, tell
from recollect.config import PREFIX, Config, cores, proxies_of_environment, temporary_folder
from recollect.connectors import all as all_connectors
from recollect.db import citus, open_once, takes_writes, versions
from recollect.db.embedded import Embedded, database
from recollect.db.schema import OLDER, is_current, lacking, migrate
from recollect.db.server_check import what_case_lacks
from recollect.errors import NO_WRITES, DatabaseAway, Permanent, RecollectError, Transient
from recollect.extract import Sandbox
from recollect.fetch import ForwardProxy
from recollect.fetch.video import is_installed
from recollect.index import model_switch, vector_index
from recollect.index.model_switch import SwitchProgress
from recollect.inference.local_model import E5
from recollect.inference.rerank import NEEDS_RERANKER
from recollect.inference.speech import LocalEngine
from recollect.inference.transcribe import GET_BETTER
from recollect.model import OrgId
from recollect.sync import connections
from recollect.sync.credentials import client_of_installation

State = Literal["ok", "off", "warn", "FAIL"]
"""`off`: not there, and nothing else suffers"""
SEVERITY: tuple[State, ...] = ("FAIL", "warn", "ok", "off")
"""in the order in which they are shown"""
STATES: Mapping[bool | None, State] = {True: "ok", None: "off", False: "FAIL"}
LEAST_FREE = 2_000_000_000
"""bytes on the disk of the data folder below which writing is in danger"""
LEAST_TEMPORARY = 64 << 20
"""bytes for temporary files below which an upload may find no room"""

UNSET: Mapping[str, str] = MappingProxyType(
    {
        "api_key": "made on first boot",
        "blob_url": "DATA_DIR/blobs",
        "crawl_contact": "RECOLLECT_PUBLIC_URL",
        "database_url": "embedded",
        "embedder_dimensions": "the model's",
        "embedder_model": f"that of the index; for a new one {E5}",
        "public_url": "http://HOST:PORT",
        "redirect_origins": "any https, http on loopback",
        "secret_key": "made on first boot, in DATA_DIR",
        "url": "http://HOST:PORT",
    }
)
"""What is in effect where a setting is left out."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    name: str
    state: State
    details: str


def register(app: typer.Typer) -> None:
    app.command()(doctor)


def doctor(
    everything: Annotated[
        bool, typer.Option("--all", help="Show all settings, not only those that are set.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Say what works, what is off, what is missing, and what to do about it.

    Example: recollect doctor --json
    """
    config = load()
    log_of_command(config.log_level)
    findings = _findings(config)
    settings = _settings(config)
    if as_json:
        echo_json(
            {
                "version": version("recollect"),
                "python": platform.python_version(),
                "settings": {name: value for name, value, _ in settings},
                "given": [name for name, _, given in settings if given],
                "checks": [
                    {"name": f.name, "ok": f.state != "FAIL", "state": f.state.lower()}
                    | {"details": f.details}
                    for f in findings
                ],
            }
        )
    else:
        typer.echo(f"Recollect {version('recollect')}, Python {platform.python_version()}")
        typer.echo(_verdict(findings))
        for finding in sorted(findings, key=lambda one: list(SEVERITY).index(one.state)):
            typer.echo(f"{finding.state:4} {finding.name}: {finding.details}")
        rows = [
            [f"{PREFIX}{name.upper()}", value, "environment or .env"]
            if given
            else [f"{PREFIX}{name.upper()}", value or UNSET.get(name, "none"), "default"]
            for name, value, given in settings
            if given or everything
        ]
        if rows:
            typer.echo()
            table(["setting", "value", "from"], rows)
        if not everything:
            tell("all settings: recollect doctor --all")
    if any(finding.state == "FAIL" for finding in findings):
        raise typer.Exit(1)


def _verdict(findings: Sequence[CheckResult]) -> str:
    failed = [one.name for one in findings if one.state == "FAIL"]
    if failed:
        return f"{len(failed)} of {len(findings)} checks failed: {', '.join(failed)}"
    notes = {
        name: count
        for name, state in (("off", "off"), ("to look at", "warn"))
        if (count := sum(one.state == state for one in findings))
    }
    told = ", ".join(f"{count} {name}" for name, count in notes.items())
    return f"everything works ({told})" if told else "everything works"


def _findings(config: Config) -> list[CheckResult]:
    away = False
    try:
        found = _database(config)
    except RecollectError as error:
        found = [CheckResult("database", "FAIL", str(error))]
        away = isinstance(error, DatabaseAway)
    if not away:  # each of them would wait for it again
        found += [one for check in CHECKS_OF_DATABASE for one in _surely(check, config)]
    found += _surely(_embedder, config, away)
    return found + [one for check in CHECKS for one in _surely(check, config)]


def _surely(check: Callable[..., list[CheckResult]], *given: Config | bool) -> list[CheckResult]:
    try:
        return check(*given)
    except (RecollectError, PermissionError) as error:
        told = closed(error) if isinstance(error, PermissionError) else str(error)
        return [CheckResult(check.__name__.removeprefix("_"), "FAIL", told)]


def _settings(config: Config) -> list[tuple[str, str, bool]]:
    """Name, value and whether it was given."""
    found = [
        (name, shown(getattr(config, name)), name in config.model_fields_set)
        for name in sorted(type(config).model_fields)
        if name != "providers"
    ]
    for provider, settings in config.providers.items():
        for name, variable in sorted(settings.variables(provider).items()):
            told = variable.removeprefix(PREFIX).lower()
            found.append((told, shown(getattr(settings, name)), name in settings.model_fields_set))
    return found


# --- the checks ----------------------------------------------------------------------------------


def _database(config: Config) -> list[CheckResult]:
    kind = "embedded" if config.database_url is None else "configured"
    with database(config) as ensure:
        url = ensure()
        with open_once(url) as tx:
            older = lacking(tx)
        if older:
            return [CheckResult("database", "warn", f"{kind}; {OLDER}")]
        migrate(url)
        with open_once(url) as tx:
            server, vector = versions(tx)
            others = connections.sealed_by_others(tx, encryption.mark(secret_keys(config)))
            stuck = connections.stuck(tx)
            told = f"{kind} PostgreSQL {server}, pgvector {vector}"
            if not takes_writes(tx):
                return [CheckResult("database", "FAIL", f"{told}; {NO_WRITES}")]
            found = [CheckResult("database", "ok", told)]
            if case := what_case_lacks(tx):
                found.append(CheckResult("database locale", "warn", case))
    if config.database_url is None and Embedded(config.data_dir).is_shared:
        told = (
            "they belong to the user nobody, and so to every service that runs as nobody; make a"
            " user named recollect, and move to it by `recollect backup` and `recollect restore`"
        )
        found.append(CheckResult("database files", "warn", told))
    if stuck:
        counts = ", ".join(f"{count} {why}" for why, count in stuck.items())
        told = f"{counts}, over all organisations; `recollect connections` says what to do"
        found.append(CheckResult("connections", "warn", told))
    if others:
        told = (
            f"connections sealed with an older key: {others}; a running service seals them"
            " again, if RECOLLECT_SECRET_KEY still names that key behind the new one"
        )
        found.append(CheckResult("secret key", "warn", told))
    return found


def _replicas(config: Config) -> list[CheckResult]:
    if config.read_urls is None:
        return []
    with database(config, keep=False) as ensure:
        url = ensure()
        with open_once(url) as tx:
            if lacking(tx):
                return []
        db = open_database(config, url, size=1)
        try:
            found = db.replicas()
            if any(one.state != "serves" for one in found):  # a slow start is none of its faults
                Event().wait(1)
                found = [
                    replace(one, reason=refusal or one.reason)
                    for one, refusal in zip(db.replicas(), db.refusals(), strict=True)
                ]
        finally:
            db.close()
    return [
        CheckResult(f"replica {one.name}", "ok", "follows the database and answers reads")
        if one.state == "serves"
        else CheckResult(
            f"replica {one.name}", "warn", f"{one.state}: {one.reason}; reads go elsewhere"
        )
        for one in found
    ]


def _citus(config: Config) -> list[CheckResult]:
    if config.database_url is None:
        return []
    try:
        with database(config) as ensure, open_once(ensure()) as tx:
            found = citus.nodes(tx)
    except RecollectError:  # of which another line tells
        return []
    return [
        CheckResult(
            f"worker {one.name}",
            "FAIL" if one.faults else "warn" if one.limits else "ok",
            "; ".join([f"{one.versions}, {one.shards} shards", *one.faults, *one.limits]),
        )
        for one in found
    ]


def _files(config: Config) -> list[CheckResult]:
    try:
        with database(config, keep=False) as ensure, open_once(ensure()) as tx:
            # The first start makes the folder.
            if not is_current(tx) or vector_index.read(tx) is None:
                return []
            keys = documents.some_blobs(tx, SOME_FILES)
    except RecollectError:  # of which another line tells
        return []
    check_files(keys, config)
    with suppress(Permanent):  # there is no such file, as a store says that is there
        open_blobs(config.blobs, used=True).get(new_key(OrgId("doctor"), b""))
    return [CheckResult("files", "ok", config.blobs)]


def _embedder(config: Config, away: bool) -> list[CheckResult]:
    change = SwitchProgress(None, 0, None, 0)
    if not away:
        with (
            suppress(RecollectError),  # of which another line tells
            database(config, keep=False) as ensure,
            open_once(ensure()) as tx,
        ):
            if not is_current(tx):
                return []
            change = model_switch.progress(tx)
    index = change.index
    name, dimensions = index_identity(open_embedder_of(config, index))
    if name == "none":
        told = "none: search by words only; RECOLLECT_EMBEDDER=local adds meaning"
        return [CheckResult("embedder", "off", told)]
    told = f"{name}, {dimensions} dimensions"
    if index is not None and index.used.name != name:
        told += f"; searches use {index.used.name}"
    found = [CheckResult("embedder", "ok", told)]
    if change.failure is not None:
        told = "the vector index was not built"
        if change.failing:
            told = f"{change.failing} stretches of texts wait for vectors"
        told = f"{told}: {change.failure.message}"
        found.append(CheckResult("embedder", "warn", f"{told} (recollect embedder status)"))
    return found


def _sandbox(config: Config) -> list[CheckResult]:
    with Sandbox(workers=1, confined=config.sandbox != "off") as sandbox:
        layers, missing = sandbox.describe(), sandbox.missing()
    if missing is None:
        return [CheckResult("sandbox", "ok", layers)]
    state = "FAIL" if config.sandbox == "required" else "off"
    return [CheckResult("sandbox", state, f"{layers}; {missing}")]


def _pictures(config: Config) -> list[CheckResult]:
    if find_spec("rapidocr") is None:
        told = "pictures and scanned pages are not read; install recollect[ocr]"
        return [CheckResult("pictures", "off", told)]
    if find_spec("pi_heif") is None:
        told = "photos of telephones (HEIC) are not read; install recollect[ocr] again"
        return [CheckResult("pictures", "off", told)]
    return [CheckResult("pictures", "ok", "rapidocr, offline: Latin, Chinese, Japanese")]


def _recordings(config: Config) -> list[CheckResult]:
    if find_spec("av") is None:
        told = "recordings are not read; install recollect[media]"
        return [CheckResult("recordings", "off", told)]
    listener = open_listener_of(config)
    if listener.engine is None:
        return [CheckResult("recordings", "off", f"captions only. {GET_BETTER}")]
    told = f"captions, else {listener.describe()}"
    try:
        listener.check()
    except (Permanent, Transient) as error:
        return [CheckResult("recordings", "FAIL", f"{told}: {error}")]
    if listener.engine == LocalEngine("pocketsphinx"):
        told += f", which gets most words wrong. {GET_BETTER}"
    return [CheckResult("recordings", "ok", told)]


def _videos(config: Config) -> list[CheckResult]:
    if config.video == "none":
        told = "RECOLLECT_VIDEO=none: pages that show a video are read for their text only"
        return [CheckResult("video pages", "off", told)]
    if not is_installed():
        told = "pages that show a video are read for their text only; install recollect[media]"
        return [CheckResult("video pages", "off", told)]
    heard = open_listener_of(config).engine is not None
    told = f"yt-dlp {version('yt-dlp')}: captions" + (", else sound" if heard else " only")
    return [CheckResult("video pages", "ok", told)]


def _model(config: Config) -> list[CheckResult]:
    llm = open_llm_of(config)
    if llm is None:
        told = (
            "no language model: with shouldLLMFilter, syncs take in nothing that it would judge,"
            " and no memories are drawn from documents; everything else works. RECOLLECT_LLM_URL"
            " and RECOLLECT_LLM_MODEL name one"
        )
        return [CheckResult("language model", "off", told)]
    try:
        llm.check()
    except (Permanent, Transient) as error:
        return [CheckResult("language model", "FAIL", f"{llm.name}: {error}")]
    finally:
        llm.close()
    told = f"{llm.name} answers; {config.llm_concurrency} questions at once"
    return [CheckResult("language model", "ok", told)]


def _reranker(config: Config) -> list[CheckResult]:
    reranker = open_reranker_of(config)
    if reranker is None:
        told = f"none: `rerank` is answered with a warning; {NEEDS_RERANKER}"
        return [CheckResult("reranker", "off", told)]
    try:
        reranker.score("Does it answer?", ["It answers."])
    except (Permanent, Transient) as error:
        return [CheckResult("reranker", "FAIL", f"{reranker.name}: {error}")]
    finally:
        reranker.close()
    told = f"{reranker.name} answers; the first {config.rerank_first} passages of a search"
    return [CheckResult("reranker", "ok", told)]


def _providers(config: Config) -> list[CheckResult]:
    found: list[CheckResult] = []
    for provider, connector in all_connectors().items():
        if connector.oauth is None:
            told = "needs no application"
        elif client_of_installation(config, connector) is not None:
            told = "the installation's application"
        else:
            told = (
                "organisations need an application of their own; or set"
                f" RECOLLECT_{provider.replace('-', '_').upper()}_CLIENT_ID and _CLIENT_SECRET,"
                f" see docs/{provider}.md"
            )
            found.append(CheckResult(provider, "off", told))
            continue
        found.append(CheckResult(provider, "ok", told))
    public = config.public_url
    if public is None or urlsplit(public).scheme != "https":
        told = (
            "providers cannot push to us: changes are looked for every"
            f" {config.poll_interval.total_seconds() / 60:g} minutes. An https"
            " RECOLLECT_PUBLIC_URL that reaches this service turns them on"
        )
        found.append(CheckResult("pushes", "off", told))
    else:
        found.append(CheckResult("pushes", "ok", f"to {public.rstrip('/')}/v3/hooks/…"))
    if public is not None and urlsplit(public).path.strip("/"):
        told = f"{public} has a path, where the API works, but not the console: give it a host name"
        found.append(CheckResult("console", "warn", told))
    found += [
        CheckResult(one.name, STATES[one.holds], one.sentence)
        for connector in all_connectors().values()
        for one in connector.diagnose(config)
    ]
    if not config.redirect_origins:
        told = "redirectUrl may be any https address; RECOLLECT_REDIRECT_ORIGINS narrows it"
        found.append(CheckResult("redirects", "off", told))
    return found


def _way_out(config: Config) -> list[CheckResult]:
    if config.proxy is not None:
        host, port = ForwardProxy(config.proxy.get_secret_value(), config.no_proxy).address
        return [CheckResult("proxy", "ok", f"all but the inside is reached through {host}:{port}")]
    told = "is set and not used: RECOLLECT_PROXY names a forward proxy"
    return [CheckResult("proxy", "off", f"{name} {told}") for name in proxies_of_environment()[:1]]


def _names(_: Config) -> list[CheckResult]:
    return [CheckResult("settings", "warn", f"{told} It has no effect.") for told in unknown()]


def _secrets(config: Config) -> list[CheckResult]:
    files = (config.data_dir / name for name in ("secret-key", "api-key", "postgres/password"))
    open_ones = [one for one in files if one.exists() and one.stat().st_mode & 0o077]
    return [
        CheckResult("secrets", "warn", f"{one} is open to other users; run: chmod 600 {one}")
        for one in open_ones
    ]


def _disk(config: Config) -> list[CheckResult]:
    free, told = _room(config.data_dir)
    told = f"{told}, {cores()} cores"
    found = [CheckResult("machine", "ok" if free > LEAST_FREE else "FAIL", told)]
    left, told = _room(config.data_dir / "postgres")
    if left <= LEAST_FREE < free:
        found.append(CheckResult("disk of the database", "FAIL", told))
    if config.blob_url is not None and (files := folder_of(config.blobs)) is not None:
        free, told = _room(files)
        found.append(CheckResult("disk of files", "ok" if free > LEAST_FREE else "FAIL", told))
    free, told = _room(temporary_folder())
    if free < LEAST_TEMPORARY:
        told = (
            f"{told} (TMPDIR): larger uploads are refused, and archives wait, until there is room"
        )
        found.append(CheckResult("temporary files", "warn", told))
    return found


def _room(folder: Path) -> tuple[int, str]:
    """Bytes that are free where a folder is or will be, and the words for it."""
    there = folder
    while not there.exists():
        there = there.parent
    free = shutil.disk_usage(there).free
    return free, f"{free / 1e9:.1f} GB free at {folder}"


CHECKS_OF_DATABASE = (_replicas, _citus, _files)
CHECKS = (
    _sandbox,
    _pictures,
    _recordings,
    _videos,
    _model,
    _reranker,
    _providers,
    _way_out,
    _names,
    _secrets,
    _disk,
)
