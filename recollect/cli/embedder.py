"""`recollect embedder`: change the embedding model while the service runs.

The commands change one row of the database; the workers see it and do the rest.
"""

import threading
from dataclasses import asdict
from typing import Annotated, Any, Literal

import typer

from recollect.app import (
    cache_folder,
    embedder_choice,
    index_identity,
    kept_choice,
    open_embedder_of,
)
from recollect.cli._config import load
from recollect.cli._database import opened
from recollect.cli.output import confirm, echo_json, fail, tell
from recollect.config import Config
from recollect.db import Database
from recollect.errors import RecollectError, SetupError
from recollect.index import model_switch, vector_index
from recollect.index.model_switch import Estimate, SwitchProgress
from recollect.index.vector_index import Kept
from recollect.inference.embed import Embedder, EmbedderChoice, open_embedder
from recollect.inference.local_model import DEFAULT
from recollect.orgs import audit

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Wait = Annotated[bool, typer.Option("--wait", help="Show progress until searches use it.")]
LOOK = 1.0
"""Seconds between two looks at the progress."""
_PAUSE = threading.Event()

_embedder = typer.Typer(
    help="Change the embedding model while the service runs.", no_args_is_help=True
)


def register(app: typer.Typer) -> None:
    app.add_typer(_embedder, name="embedder")


@_embedder.command()
def status(wait: Wait = False, as_json: AsJson = False) -> None:
    """Which model searches use, and how far a change has come.

    Example: recollect embedder status --wait
    """
    with opened(load()) as db:
        _show(_awaited(db) if wait else _progress(db), as_json=as_json)


@_embedder.command()
def switch(
    kind: Annotated[
        Literal["local", "openai"], typer.Argument(help="As RECOLLECT_EMBEDDER.", metavar="KIND")
    ],
    url: Annotated[str | None, typer.Option(help="Base URL of the endpoint.")] = None,
    model: Annotated[
        str | None, typer.Option(help="Name of the model, at the endpoint or local.")
    ] = None,
    dimensions: Annotated[
        int | None, typer.Option(min=1, help="If the model lets you choose.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    wait: Wait = False,
    as_json: AsJson = False,
) -> None:
    """Compute vectors of another model beside those in use; searches use them once all are there.

    The key of its endpoint is read from RECOLLECT_EMBEDDER_NEXT_KEY, and kept sealed. Nothing has
    to be restarted; the old vectors stay until `finish`, for `rollback`.

    Example: recollect embedder switch openai --url http://gpu:8000/v1 --model bge-m3
    """
    config = load()
    key = config.embedder_next_key
    if kind == "local" and model is None:
        model = DEFAULT
    choice = EmbedderChoice(kind, url, key.get_secret_value() if key else None, model, dimensions)
    with opened(config) as db:
        with db.begin() as tx:
            index = vector_index.read(tx)
        settings = open_embedder_of(config, index)
        name, width = _tried(config, choice)
        with db.begin() as tx:
            index = vector_index.read(tx)
            estimate = model_switch.estimate(tx, width)
        if index is not None and settings is not None and index.used.name != settings.name:
            fail(
                f"searches use {index.used.name}, the settings name {settings.name}: bring"
                " RECOLLECT_EMBEDDER… up to date first"
            )
        index = model_switch.check(index, name, width)
        fresh = index.other is None
        if fresh and not as_json:
            _tell_cost(name, width, estimate)
        confirm(f"Embed {estimate.texts:,} texts with {name}?", yes=yes or not fresh)
        own = kept_choice(config, embedder_choice(config, index))
        audit.act(audit.CLI)
        with db.begin() as tx:
            model_switch.switch(tx, name, width, kept_choice(config, choice), own)
            audit.record(tx, "index.switch_begun", embedder=name)
        _show(_awaited(db) if wait else _progress(db), as_json=as_json, estimate=estimate)


@_embedder.command()
def rollback(as_json: AsJson = False) -> None:
    """Back to the model before, at once. While the new one is being built: give it up.

    Example: recollect embedder rollback
    """
    with opened(load()) as db:
        audit.act(audit.CLI)
        with db.begin() as tx:
            index = model_switch.rollback(tx)
            audit.record(tx, "index.rolled_back", embedder=index.used.name)
        _show(_progress(db), as_json=as_json)


@_embedder.command()
def finish(as_json: AsJson = False) -> None:
    """Keep only the model that searches use; after that there is no way back.

    Example: recollect embedder finish
    """
    config = load()
    with opened(config) as db:
        audit.act(audit.CLI)
        with db.begin() as tx:
            index = model_switch.finish(tx)
            audit.record(tx, "index.switch_finished", embedder=index.used.name)
        _show(_progress(db), as_json=as_json)
    choice = index.used.choice or {}
    tell(f"{index.used.name} is the model of the index now; put it into the settings, too:")
    for setting in ("kind", "url", "model", "dimensions"):
        if choice.get(setting) is not None:
            ending = "" if setting == "kind" else f"_{setting.upper()}"
            tell(f"  RECOLLECT_EMBEDDER{ending}={choice[setting]}")
    if choice.get("key") is not None:
        tell("  RECOLLECT_EMBEDDER_KEY=…")


def _tried(config: Config, choice: EmbedderChoice) -> tuple[str, int]:
    """Name and dimensions of a model that has embedded something; it fails here or never."""
    embedder: Embedder | None = None
    try:
        embedder = open_embedder(
            choice, cache=cache_folder(config), threads=config.embedder_threads
        )
        assert embedder is not None
        embedder.embed(["Does it answer?"])
    except SetupError as error:
        fail(f"{error} (here: --url, --model)", code=2)
    except RecollectError as error:
        fail(f"the model does not answer: {error} (here: --url, --model, --dimensions)")
    return index_identity(embedder)


def _tell_cost(name: str, width: int, estimate: Estimate) -> None:
    disk = estimate.vectors + estimate.vector_index
    tell(
        f"{name}: {width} dimensions; {estimate.texts:,} texts to embed; about"
        f" {_size(disk)} of disk for its vectors and their index, and up to"
        f" {_size(estimate.rewritten)} for rows that are written again"
    )


def _size(bytes_: int) -> str:
    return f"{bytes_ / 1e9:.2f} GB" if bytes_ >= 10**8 else f"{bytes_ / 1e6:.1f} MB"


# --- what is shown -------------------------------------------------------------------------------


def _progress(db: Database) -> SwitchProgress:
    with db.begin() as tx:
        return model_switch.progress(tx)


def _awaited(db: Database) -> SwitchProgress:
    """Once nothing is being built any more; how it goes is told meanwhile."""
    last = ""
    try:
        while True:
            found = _progress(db)
            if found.index is None or found.index.phase != "building":
                return found
            told = _line(found)
            if told != last:
                tell(told)
                last = told
            _PAUSE.wait(LOOK)
    except KeyboardInterrupt:
        tell(
            "the workers go on: `recollect embedder status` says how far they are,"
            " `recollect embedder rollback` gives it up"
        )
        raise


def _line(found: SwitchProgress) -> str:
    index = found.index
    assert index is not None
    assert index.other is not None
    if not index.planned:
        return f"{index.other.name}: the workers have not begun"
    done = max(index.total - found.left, 0)
    if not found.left:
        told = f"{index.other.name}: all {index.total:,} texts embedded; building the vector index"
        return f"{told}{_waits(found)}"
    share = 100 * done / max(index.total, 1)
    return f"{index.other.name}: {done:,} of {index.total:,} texts, {share:.0f} %{_waits(found)}"


def _waits(found: SwitchProgress) -> str:
    if found.failure is None:
        return ""
    if not found.failing:
        return f"; the last try failed: {found.failure.message}"
    return f"; {found.failing} stretches wait: {found.failure.message}"


def _show(found: SwitchProgress, *, as_json: bool, estimate: Estimate | None = None) -> None:
    index = found.index
    if as_json:
        told: dict[str, Any] = {
            "phase": index.phase if index else None,
            "used": _model(index.used if index else None),
            "other": _model(index.other if index else None),
            "total": index.total if index else 0,
            "left": found.left,
            "waiting": found.failing,
            "reason": found.failure.message if found.failure else None,
            "flippedAt": index.flipped_at.isoformat() if index and index.flipped_at else None,
        }
        if estimate is not None:
            told["estimate"] = asdict(estimate)
        echo_json(told)
        return
    if index is None:
        typer.echo("the service was never started: the index has no model yet")
        return
    typer.echo(f"searches use {index.used.name} ({index.used.dimensions} dimensions)")
    match index.phase:
        case "building":
            typer.echo(_line(found))
        case "kept" | "returned":
            assert index.other is not None
            back = "rollback" if index.phase == "kept" else f"switch to {index.other.name}"
            typer.echo(
                f"{index.other.name} is kept beside it: {back} takes a moment, `recollect"
                " embedder finish` forgets it"
            )
            if found.left:
                typer.echo(
                    f"{found.left:,} texts lack a vector of one of them; being made{_waits(found)}"
                )
        case "clearing":
            typer.echo("the vectors of the other model are being removed")
        case None:
            pass


def _model(kept: Kept | None) -> dict[str, Any] | None:
    return None if kept is None else {"name": kept.name, "dimensions": kept.dimensions}
