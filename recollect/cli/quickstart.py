"""`recollect quickstart`: from nothing to the first hit, with a bundled sample."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import typer

from recollect.cli.client import ApiKey, AsJson, Service, Url, in_words_of_ours, open_service
from recollect.cli.look import print_hit
from recollect.cli.output import echo_json, fail, tell
from recollect.errors import BadRequestError, SetupError, Transient
from recollect.ingest import samples

WITHIN = 120.0
"""Seconds for the service to start, and for the sample to become searchable."""
LOOK = 0.1


def register(app: typer.Typer) -> None:
    app.command()(quickstart)


def quickstart(
    serve: Annotated[
        bool,
        typer.Option("--serve", help="Start a temporary service, and delete it at the end."),
    ] = False,
    clean: Annotated[
        bool, typer.Option("--clean", help="Delete the sample from the service instead.")
    ] = False,
    tag: Annotated[str, typer.Option(help="Container tag of the sample.")] = samples.TAG,
    as_json: AsJson = False,
    url: Url = None,
    key: ApiKey = None,
) -> None:
    """Bring a few sample texts in, ask them a question, and show the first hit.

    Example: recollect quickstart --serve
    """
    if serve and (clean or url or key):
        fail("--serve makes a service of its own; leave --clean, --url and --key away", code=2)
    began = time.monotonic()
    with _scratch() if serve else nullcontext(open_service(url, key)) as service:
        if clean:
            _clean(service, tag, as_json=as_json)
            return
        ids = _add(service, tag)
        tell(f"{len(ids)} sample texts added to the tag {tag}")
        hit = _first_hit(service, ids[samples.FIRST], tag)
        seconds = time.monotonic() - began
        if as_json:
            echo_json(
                {
                    "service": service.url,
                    "tag": tag,
                    "documents": list(ids.values()),
                    "question": samples.QUESTION,
                    "hit": hit,
                    "seconds": round(seconds, 3),
                }
            )
            return
        typer.echo(f'$ recollect search "{samples.QUESTION}" --tag {tag} --limit 1')
        print_hit(1, hit, samples.QUESTION)
        tell(f"The first hit came {seconds:.1f} seconds after the start.")
        if serve:
            tell(
                "Start a service that stays with `recollect serve`, then `recollect add` a folder."
            )
        else:
            tell(f"Now `recollect add` a folder of yours, or look at {service.url}/console.")
            tell("`recollect quickstart --clean` deletes the sample again.")


def _add(service: Service, tag: str) -> dict[str, str]:
    """Ids by file name. Again, it brings the same documents up to date."""
    texts = samples.texts()
    try:
        answer = service.send(
            "POST",
            "/v3/documents/batch",
            {
                "documents": [
                    {
                        "content": text,
                        "customId": samples.custom_id(name),
                        "filepath": samples.custom_id(name),
                    }
                    for name, text in texts.items()
                ],
                "containerTag": tag,
            },
        )
    except SetupError as error:
        raise SetupError(f"{error}, or try `recollect quickstart --serve`") from error
    for result in answer["results"]:
        if result.get("error"):
            raise BadRequestError(in_words_of_ours(result.get("details") or result["error"]))
    return {name: result["id"] for name, result in zip(texts, answer["results"], strict=True)}


def _first_hit(service: Service, id: str, tag: str) -> dict[str, Any]:
    document = service.get(f"/v3/documents/{id}?wait=50")
    if document["status"] == "failed":
        fail(f"the sample could not be processed: {document['errorMessage']}")
    if document["status"] != "done":
        fail(
            "the sample is still waiting to be processed; `recollect status` shows what it waits"
            " for"
        )
    question = {"q": samples.QUESTION, "containerTags": [tag], "limit": 1}
    found = service.send("POST", "/v3/search", question)["results"]
    if not found:
        fail("nothing was found; `recollect doctor` shows what is wrong")
    return found[0]


def _clean(service: Service, tag: str, *, as_json: bool) -> None:
    names = {samples.custom_id(name) for name in samples.texts()}
    found = service.documents(containerTags=[tag])
    ids = [document.id for document in found if document.custom_id in names]
    deleted = 0
    if ids:
        deleted = service.send("DELETE", "/v3/documents/bulk", {"ids": ids})["deletedCount"]
    if as_json:
        echo_json({"deleted": deleted})
    else:
        typer.echo(f"deleted {deleted}")


@contextmanager
def _scratch() -> Generator[Service]:
    """A service of our own in a folder that is deleted in the end; Ctrl-C ends it, too."""
    with tempfile.TemporaryDirectory(prefix="recollect-quickstart-") as name:
        folder = Path(name)
        folder.chmod(0o711)  # root's PostgreSQL is another user, who has to pass through
        tell(f"starting a service in {folder} …")
        port = _free_port()
        log = folder / "serve.log"
        with log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "recollect", "serve"],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                cwd=folder,  # where no .env is
                env=_environment(folder / "data", port),
                start_new_session=True,  # Ctrl-C is ours, and we stop it in order
            )
        try:
            url = f"http://127.0.0.1:{port}"
            _until_ready(url, process, log)
            yield Service(url, (folder / "data" / "api-key").read_text().strip())
        finally:
            # Ctrl-C once more would leave the folder, and a service that goes on writing to it.
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            process.terminate()
            process.wait()


def _environment(data_dir: Path, port: int) -> dict[str, str]:
    """Without the settings of a service that is kept elsewhere: its database is left alone."""
    inherited: Mapping[str, str] = os.environ  # noqa: TID251 # handed on unread but for the names
    kept = {name: v for name, v in inherited.items() if not name.startswith("RECOLLECT_")}
    return {**kept, "RECOLLECT_DATA_DIR": str(data_dir), "RECOLLECT_PORT": str(port)}


def _until_ready(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    service, stop = Service(url, None), threading.Event()
    until = time.monotonic() + WITHIN
    while time.monotonic() < until:
        if process.poll() is not None:
            break
        try:
            service.get("/ready")
        except (SetupError, Transient):
            stop.wait(LOOK)
        else:
            return
    said = log.read_text(errors="replace").strip().splitlines()
    fail("the service did not start" + (f": {said[-1]}" if said else ""))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
