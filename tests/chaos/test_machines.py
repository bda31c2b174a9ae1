"""Several machines on one database: what they must share, and the guarantees under torture."""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Generator
from contextlib import ExitStack, closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psycopg
import pytest
import typer
from psycopg import sql
from psycopg.conninfo import make_conninfo
from typer.testing import CliRunner

from recollect import documents
from recollect.app import App, open_app, shares
from recollect.blobs import identity, new_key, open_blobs
from recollect.cli import app as cli
from recollect.cli._opened import opened
from recollect.config import Config
from recollect.db import Database
from recollect.errors import Permanent, SetupError, Unavailable
from recollect.model import Content, DocumentId, Plan, StoredBlob, Tenant, random_id
from recollect.ops import backup
from recollect.ops.backup import Archive
from recollect.orgs import orgs
from recollect.torture import make
from recollect.torture.plan import SHARES_OF_MACHINES
from tests.conftest import eventually, free_port, plain_client, serving

SEED = 11
SAME = "the same on all 4f9a0c7be1d2586307"
OLD, NEW = "the old one 7c5e91b0d8f3a2640f1b", "the new one 2ba80e6d9f41c7538d60"
AWS = {
    "AWS_ACCESS_KEY_ID": "AKIAMACHINES",
    "AWS_SECRET_ACCESS_KEY": "secret/of+machines",
    "AWS_REGION": "us-east-1",
    "AWS_ALLOW_HTTP": "true",
}


@pytest.fixture(scope="module")
def bucket() -> Generator[str]:
    """An S3 server in a process of its own, which the environment names; the URL of a bucket."""
    port = free_port()
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    address = f"http://127.0.0.1:{port}"

    def made() -> bool:
        try:
            return asking.put("/machines", timeout=5).is_success
        except httpx.TransportError:
            return False

    with pytest.MonkeyPatch.context() as patch:
        for name, value in {**AWS, "AWS_ENDPOINT_URL": address}.items():
            patch.setenv(name, value)
        try:
            with plain_client(address, {}) as asking:
                eventually(made)
            yield "s3://machines"
        finally:
            server.terminate()
            server.wait(20)


@pytest.fixture
def empty_database(postgres_url: str) -> Generator[str]:
    """One without any table."""
    name = f"test_empty_{random_id().lower()[:8].replace('-', '_')}"
    with psycopg.connect(postgres_url, autocommit=True) as session:
        session.execute(sql.SQL("create database {}").format(sql.Identifier(name)))
        yield make_conninfo(postgres_url, dbname=name)
        session.execute(sql.SQL("drop database {} with (force)").format(sql.Identifier(name)))


@pytest.fixture
def machine(new_database: Callable[[], str], tmp_path: Path) -> Generator[Callable[..., App]]:
    """Opens a process that serves, each with a data folder of its own, all on one database."""
    url = new_database()
    with ExitStack() as stack:

        def start(name: str, **settings: str) -> App:
            return stack.enter_context(
                open_app(config(tmp_path / name, **settings), url, serves=True)
            )

        yield start


def config(folder: Path, **settings: str) -> Config:
    given = {"embedder": "none", "workers": "1", "blob_url": (folder.parent / "shared").as_uri()}
    return Config.model_validate({"data_dir": folder, **given, **settings})


# --- what they must share --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other", "agree"),
    [
        ("old", "old", True),
        ("old", "old,new", True),
        ("old,new", "new,old", True),
        ("new,old", "new", True),
        ("old", "new", False),
        ("old", "new,old", False),
    ],
)
def test_machines_agree_that_open_what_the_other_seals(
    tmp_path: Path, one: str, other: str, *, agree: bool
):
    words = {"old": OLD, "new": NEW}
    here, there = (
        shares(config(tmp_path / "one", secret_key=",".join(map(words.__getitem__, names))))
        for names in (one.split(","), other.split(","))
    )

    assert here.agrees(there) is there.agrees(here) is agree
    assert len(here.name.encode()) <= 63


def test_machines_that_each_made_a_secret_key_are_refused(machine: Callable[..., App]):
    first = machine("one")

    with pytest.raises(SetupError, match=r"another secret key.*same RECOLLECT_SECRET_KEY"):
        machine("other")

    # Only as long as the other one is there.
    first.close()
    eventually(lambda: is_accepted(machine, {}))


def is_accepted(machine: Callable[..., App], given: dict[str, str]) -> bool:
    try:
        machine("other", **given)
    except SetupError:
        return False
    return True


def test_machines_that_keep_files_each_for_itself_are_refused(
    machine: Callable[..., App], tmp_path: Path
):
    machine("one", secret_key=SAME, blob_url=(tmp_path / "one" / "blobs").as_uri())

    with pytest.raises(SetupError, match=r"another store of files.*same RECOLLECT_BLOB_URL"):
        machine("other", secret_key=SAME, blob_url=(tmp_path / "other" / "blobs").as_uri())


def test_a_folder_that_is_not_mounted_is_no_new_store(
    machine: Callable[..., App], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The empty folder under it was taken for a store, and documents failed for lack of files."""
    folder, kept = tmp_path / "shared", tmp_path / "on the volume"
    with machine("one", secret_key=SAME) as app, app.db.begin() as tx:
        org = orgs.create(tx, "acme", Plan.ENTERPRISE).id
        key = new_key(org, b"bytes")
        app.blobs.put(key, b"bytes")
        content = Content(kind="text", hash=b"0" * 32, blob=StoredBlob(key, "a.txt", "text/plain"))
        new = documents.NewDocument(content, ["files"])
        document = documents.add(tx, Tenant(org), new, DocumentId(random_id()))
    folder.rename(kept)

    for is_there in (False, True):
        if is_there:
            folder.mkdir()
        with pytest.raises(SetupError, match=r"Mount the volume.*create an empty file \.store"):
            machine("one", secret_key=SAME)
        assert not (folder / ".store").exists()
    monkeypatch.setenv("RECOLLECT_DATA_DIR", str(tmp_path / "one"))
    monkeypatch.setenv("RECOLLECT_BLOB_URL", folder.as_uri())
    monkeypatch.setenv("RECOLLECT_DATABASE_URL", app.db.url)
    assert "FAIL files: " in CliRunner().invoke(cli, ["doctor"]).output

    folder.rmdir()
    kept.rename(folder)
    (folder / ".store").unlink()  # as in a copy of what is not hidden
    with machine("one", secret_key=SAME) as app:
        assert app.blobs.get(key) == b"bytes"

    (folder / key).unlink()
    (folder / ".store").write_text("")
    with machine("one", secret_key=SAME) as app, app.db.begin() as tx:
        with pytest.raises(Permanent):
            app.blobs.get(key)
        documents.delete(tx, Tenant(org), [document.id])
    (folder / ".store").unlink()
    with machine("one", secret_key=SAME):
        assert (folder / ".store").exists()


def test_a_machine_does_not_start_with_a_bucket_that_has_none_of_the_files(
    machine: Callable[..., App], bucket: str
) -> None:
    full, empty = f"{bucket}/full", f"{bucket}/empty"
    with machine("one", secret_key=SAME, blob_url=full) as app, app.db.begin() as tx:
        org = orgs.create(tx, "acme", Plan.ENTERPRISE).id
        key = new_key(org, b"bytes")
        app.blobs.put(key, b"bytes")
        content = Content(kind="text", hash=b"0" * 32, blob=StoredBlob(key, "a.txt", "text/plain"))
        new = documents.NewDocument(content, ["files"])
        documents.add(tx, Tenant(org), new, DocumentId(random_id()))

    for wrong, told in (
        (empty, "has none of the files"),
        ("s3://no-such-bucket", "there is no such blob bucket"),
    ):
        with pytest.raises(SetupError, match=told):
            machine("one", secret_key=SAME, blob_url=wrong)
    with machine("one", secret_key=SAME, blob_url=full) as app:
        assert app.blobs.get(key) == b"bytes"

    open_blobs(empty).put(".store", b"")
    with machine("one", secret_key=SAME, blob_url=empty) as app:
        assert list(app.blobs.older_than(timedelta(seconds=-60))) == []


def test_a_folder_of_files_is_the_same_under_any_path_and_its_note_is_no_file(tmp_path: Path):
    folder, path = tmp_path / "blobs", tmp_path / "mounted"
    path.symlink_to(folder)
    store = open_blobs(folder.as_uri())
    key = new_key(orgs.OrgId("org"), b"bytes")
    store.put(key, b"bytes")

    assert identity(folder.as_uri()) == identity(path.as_uri())
    assert identity(folder.as_uri()) != identity((tmp_path / "second").as_uri())
    assert identity("s3://one/prefix") == identity("s3://one/prefix/")
    assert identity("s3://one/prefix") != identity("s3://one/other")
    assert list(store.older_than(timedelta(seconds=-60))) == [key]


def test_what_one_machine_signs_another_accepts(app: App, tenant: Tenant, key: str, tmp_path: Path):
    shared = (tmp_path / "shared").as_uri()
    one, other = (
        replace(app, config=config(tmp_path / name, secret_key=SAME), blobs=open_blobs(shared))
        for name in ("one", "other")
    )
    headers = {"Authorization": f"Bearer {key}"}
    with serving(one) as here, serving(other) as there:
        file = ("plan.txt", b"All of it.", "text/plain")
        with plain_client(here, headers) as http:
            sent = http.post("/v3/documents/file", files={"file": file})
            address = http.get(f"/v3/documents/{sent.json()['id']}/file-url").json()["url"]
        parts = urlsplit(address)
        with plain_client(there, {}) as anybody:
            found = anybody.get(f"{parts.path}?{parts.query}")

    assert (found.status_code, found.content) == (200, b"All of it.")


def test_processes_make_the_schema_of_an_empty_database(empty_database: str, tmp_path: Path):
    settings = config(tmp_path / "one", database_url=empty_database, api_key="sm_first")

    with opened(settings) as first, opened(settings) as second, first.db.begin() as tx:
        assert orgs.authenticate(tx, "sm_first").org.name == orgs.DEFAULT
        second.db.ping()


def test_a_process_that_differs_says_why_and_ends(
    empty_database: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    settings = config(tmp_path / "one", database_url=empty_database, secret_key=SAME)
    with opened(settings), pytest.raises(typer.Exit) as ended:
        opened(settings.model_copy(update={"data_dir": tmp_path / "o", "secret_key": None}))

    assert ended.value.exit_code == 2
    assert "another secret key" in capsys.readouterr().err


# --- files in a bucket -------------------------------------------------------------------------


def test_a_bucket_keeps_files(bucket: str):
    store = open_blobs(f"{bucket}/kept")
    key = new_key(orgs.OrgId("org"), b"bytes")

    store.put(key, b"bytes")

    assert open_blobs(f"{bucket}/kept").get(key) == b"bytes"
    assert list(store.older_than(timedelta(seconds=-60))) == [key]
    assert list(store.older_than(timedelta(minutes=5))) == []
    store.delete(key)
    store.delete(key)
    with pytest.raises(Permanent, match="missing"):
        store.get(key)
    nowhere = open_blobs("s3://no-such-bucket")
    for use in (lambda: nowhere.put(key, b"bytes"), lambda: nowhere.get(key)):
        with pytest.raises(Unavailable):
            use()


def test_a_backup_brings_files_from_one_bucket_to_another(
    machine: Callable[..., App], bucket: str, new_database: Callable[[], str], tmp_path: Path
):
    app = machine("one", blob_url=f"{bucket}/before")
    with app.db.begin() as tx:
        org = orgs.create(tx, "acme", Plan.ENTERPRISE)
        files = {new_key(org.id, data): data for data in (b"one", b"x" * 6_000_000)}
        for key, data in files.items():
            app.blobs.put(key, data)
            content = Content(
                kind="text", hash=key.encode(), blob=StoredBlob(key, "a.txt", "text/plain")
            )
            new = documents.NewDocument(content, ["notes"])
            documents.add(tx, Tenant(org.id), new, DocumentId(random_id()))
    path, url, store = tmp_path / "b.zip", new_database(), open_blobs(f"{bucket}/after")

    made = backup.backup(app.db.url, app.blobs, path, sealed_with="")
    with Archive(path) as archive:
        with pytest.raises(SetupError, match="a service is running"):
            backup.restore(archive, app.db.url, store, replace=True)
        backup.restore(archive, url, store)

    assert (made.manifest.files, made.manifest.missing) == (2, [])
    assert {key: store.get(key) for key in files} == files
    with closing(Database(url, size=1).open()) as db, db.begin() as tx:
        rows = tx.execute("select blob from documents").fetchall()
    assert {row["blob"] for row in rows} == set(files)


# --- under torture -----------------------------------------------------------------------------


def test_a_plan_for_several_machines_kills_and_freezes_them():
    plan = make(SEED, 10, 240, ["embedder", "freeze"], machines=True)

    kinds = Counter(step.kind for step in plan.steps)
    assert {kind: kinds[kind] for kind in SHARES_OF_MACHINES} == {
        kind: 10 * share for kind, share in SHARES_OF_MACHINES.items()
    }
    assert (kinds["supervisor"], kinds["freeze"]) == (0, 48)
    assert {step.how for step in plan.steps if step.kind == "freeze"} == {"api", "worker"}
    assert plan.command.endswith("--kills 240 --machines")
    assert "--machines" not in make(SEED, 10, 240, []).command


@pytest.mark.slow
@pytest.mark.chaos
@pytest.mark.timeout(1200)
def test_two_api_and_three_worker_processes_keep_every_promise(bucket: str):
    done = subprocess.run(
        [
            *(sys.executable, "-m", "recollect", "torture", "--json", "--machines"),
            *("--blobs", f"{bucket}/torture"),
            *("--seed", str(SEED), "--minutes", "1", "--kills", "14"),
        ],
        check=False,
        capture_output=True,
        text=True,
        env=dict(os.environ),  # noqa: TID251 # the bucket's address is in it
    )
    assert done.stdout, done.stderr
    report = json.loads(done.stdout)

    assert (report["faults"], done.returncode) == ([], 0)
    assert sum(report["kills"].values()) == 14
    assert set(report["kills"]) <= {
        "api",
        "worker",
        "machine",
        "everything",
        "postmaster",
        "backend",
    }
    assert any(name.startswith("frozen: ") for name in report["otherFaults"])
    assert report["figures"]["acknowledged"] > 100
    assert report["command"].endswith(" --machines")
