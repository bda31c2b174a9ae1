"""/metrics and /ready: what they show, at what cost, to whom; and the canary behind them."""

import re
import shutil
import threading
from collections.abc import Callable, Generator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from psycopg.conninfo import make_conninfo
from pydantic import SecretStr
from starlette.testclient import TestClient

from bench.ground import PROJECT
from recollect import documents
from recollect.app import App
from recollect.blobs import FolderBlobs, open_blobs
from recollect.cli.api import website
from recollect.config import Config
from recollect.db import Database
from recollect.db.server_roles import SERVICE
from recollect.documents import DocumentQuery, NewDocument
from recollect.errors import Unavailable, Undeletable
from recollect.extract import Sandbox
from recollect.model import DocumentId, Org, Scope, Tenant, random_id
from recollect.ops import canary, readiness
from recollect.orgs import orgs
from recollect.search import hybrid
from recollect.search.hybrid import Query
from recollect.telemetry import metrics
from recollect.telemetry.metrics import METRICS, TROUBLED
from recollect.worker import maintenance, processing
from tests.conftest import plain_client, serving
from tests.contract.calls import add
from tests.search.test_query_plans import ExplainingCursor

Numbers = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture(autouse=True)
def clean(db: Database) -> Generator[None]:
    """Nothing of other tests, in the database or in this process."""

    def forget() -> None:
        metrics.take()
        with db.begin() as tx:
            tx.execute("delete from tallies")
            tx.execute("delete from stage_health")
            tx.execute("delete from canary")
            tx.execute("delete from orgs where id = %s", (canary.ORG,))

    forget()
    yield
    forget()


@pytest.fixture
def operator(db: Database, house: Org, live_url: str) -> Generator[httpx.Client]:
    """With an admin key of the default organisation."""
    with db.begin() as tx:
        _, secret = orgs.create_key(tx, house.id)
    headers = {"Authorization": f"Bearer {secret}"}
    with httpx.Client(base_url=live_url, headers=headers, timeout=60, trust_env=False) as http:
        yield http


def numbers(http: httpx.Client) -> Numbers:
    answer = http.get("/metrics")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/plain")
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(answer.text)
        for sample in family.samples
    }


def test_what_workers_did_is_seen_at_the_api(
    operator: httpx.Client, client: httpx.Client, app: App
):
    add(client, "the heron stands in the shallow water", customId="one")
    client.post("/v3/documents", json={"content": "   x ", "customId": "two"})
    processing.drain(app)
    add(client, "the heron stands in the shallow water, still", customId="one")
    processing.drain(app)
    maintenance.flush(app)

    found = numbers(operator)
    assert found["recollect_documents_finished_total", (("code", ""), ("outcome", "done"))] == 3
    assert found["recollect_chunks_total", (("how", "embedded"),)] == 3
    stages = {"chunking", "embedding", "extracting", "indexing"}
    assert {
        dict(labels)["stage"]
        for (name, labels), value in found.items()
        if name == "recollect_stage_seconds_count" and value == 3
    } == stages
    assert found["recollect_stage_seconds_bucket", (("le", "+Inf"), ("stage", "indexing"))] == 3
    assert all(found["recollect_stage_failures", (("stage", stage),)] == 0 for stage in stages)
    assert found["recollect_queue_documents", (("state", "queued"),)] >= 0


def test_two_processes_add_up(operator: httpx.Client, app: App):
    for _ in range(2):
        metrics.add("recollect_chunks_total", 5, how="embedded")
        maintenance.flush(app)

    assert numbers(operator)["recollect_chunks_total", (("how", "embedded"),)] == 10


def test_what_could_not_be_stored_is_kept(operator: httpx.Client, app: App):
    metrics.add("recollect_chunks_total", 5, how="embedded")
    metrics.stumbled("embedding", "dependency_down")
    metrics.give_back(metrics.take())
    metrics.add("recollect_chunks_total", 1, how="embedded")
    metrics.stumbled("embedding", "dependency_down")
    maintenance.flush(app)

    found = numbers(operator)
    assert found["recollect_chunks_total", (("how", "embedded"),)] == 6
    assert found["recollect_stage_failures", (("stage", "embedding"),)] == 2


def test_the_queue_shows_its_depth_and_age(
    operator: httpx.Client, client: httpx.Client, app: App, db: Database
):
    id = add(client, "it waits")
    with db.begin() as tx:
        tx.execute(
            "update documents set updated_at = now() - interval '1 hour' where id = %s", (id,)
        )
    found = numbers(operator)
    processing.drain(app)

    assert found["recollect_queue_documents", (("state", "queued"),)] >= 1
    assert found["recollect_queue_oldest_seconds", (("state", "queued"),)] >= 3600
    assert numbers(operator)["recollect_queue_documents", (("state", "queued"),)] == 0


def test_requests_are_counted_by_template_and_status(operator: httpx.Client, client: httpx.Client):
    client.get("/v3/documents/no-such-thing")
    client.get("/v3/zugzwang")

    answer = operator.get("/metrics").text
    [line] = [
        line
        for line in answer.splitlines()
        if line.startswith("recollect_http_request_seconds_count")
        and 'method="GET"' in line
        and 'route="/v3/documents/{id}"' in line
        and 'status="404"' in line
    ]
    assert float(line.rsplit(" ", 1)[1]) >= 1
    assert "no-such-thing" not in answer
    assert "zugzwang" not in answer


def test_only_the_operator_sees_it(
    live_url: str,
    db: Database,
    house: Org,
    client: httpx.Client,
    served: Callable[..., httpx.Client],
):
    assert httpx.get(f"{live_url}/metrics", trust_env=False).status_code == 401
    assert client.get("/metrics").status_code == 403, "an admin of another organisation"
    with db.begin() as tx:
        secret = orgs.create_key(tx, house.id, scope=Scope.READ)[1]
    headers = {"Authorization": f"Bearer {secret}"}
    assert httpx.get(f"{live_url}/metrics", headers=headers, trust_env=False).status_code == 403

    other = served(metrics_token=SecretStr("of-prometheus"))
    assert other.get("/metrics", headers={"Authorization": "Bearer of-prometheus"}).is_success
    assert other.get("/metrics", headers={"Authorization": "Bearer of"}).status_code == 401
    assert other.get("/v3/settings", headers={"Authorization": "Bearer of-prometheus"}).is_error


def test_a_blank_token_opens_it_to_nobody(served: Callable[..., httpx.Client]):
    """As `${METRICS_TOKEN}` of a compose file becomes, where nobody set that."""
    other = served(metrics_token=SecretStr(""))
    del other.headers["authorization"]
    for headers in ({}, {"Authorization": ""}, {"Authorization": "Bearer "}):
        assert other.get("/metrics", headers=headers).status_code == 401


def test_no_statement_of_it_reads_a_large_table(new_database: Callable[[], str]):
    with Database(new_database()) as other:
        with other.begin() as tx:
            org = orgs.create(tx, "large", orgs.Plan.ENTERPRISE)
            # Without what follows each row: only their number matters.
            tx.execute("set local session_replication_role = replica")
            tx.execute(
                "insert into documents (id, org_id, container_tags, scope, kind, source, content,"
                " content_hash, status, due_at)"
                " select 'd' || n, %s, '{a}', '{1}', 'text', 'api', repeat('x', 500), 'x',"
                " case when n %% 100 = 0 then 'queued' else 'done' end,"
                " case when n %% 100 = 0 then now() end from generate_series(1, 20000) n",
                (org.id,),
            )
            tx.execute(
                "insert into endpoints (id, org_id, url, events, secret)"
                " values ('e', %s, 'https://x', '{document.done}', 's')",
                (org.id,),
            )
            tx.execute(
                "insert into deliveries (id, endpoint_id, type, payload, state, due_at, ended_at)"
                " select 'm' || n, 'e', 'document.done', '{}',"
                " case when n % 100 = 0 then 'pending' else 'delivered' end,"
                " case when n % 100 = 0 then now() end,"
                " case when n % 100 = 0 then null else now() end from generate_series(1, 20000) n"
            )
        with other.begin() as tx:
            tx.execute("analyze")
        ExplainingCursor.explained.clear()
        with other.begin() as tx:
            tx.cursor_factory = ExplainingCursor
            samples = {(one.name, one.labels): one.value for one in metrics.look(tx)}
            metrics.failing(tx)

    assert len(ExplainingCursor.explained) >= 8
    for statement in ExplainingCursor.explained:
        assert not statement.scans("documents"), statement.statement
        assert not statement.scans("deliveries"), statement.statement
    assert samples["recollect_queue_documents", (("state", "queued"),)] == 200
    assert samples["recollect_deliveries_pending", ()] == 200


def test_every_metric_is_described_and_none_is_invented():
    page = (PROJECT / "docs" / "operations.md").read_text()

    assert set(re.findall(r"`(recollect_\w+)", page)) - {SERVICE} == set(METRICS)
    for name, metric in METRICS.items():
        [line] = [line for line in page.splitlines() if line.startswith(f"| `{name}`")]
        assert metric.kind in line
        assert all(f"`{label}`" in line for label in metric.labels), name


# --- ready ---------------------------------------------------------------------------------------


def test_a_stage_that_fails_by_itself_turns_ready_red_until_it_works(
    client: httpx.Client, served: Callable[..., httpx.Client], app: App
):
    class Down:
        name, dimensions = "words", 16

        def embed(self, texts: object, *, query: bool = False) -> object:
            raise Unavailable("the embedding model does not answer")

    broken = replace(app, embedder=Down())
    add(client, "a heron")
    for _ in range(TROUBLED):
        with app.db.begin() as tx:
            tx.execute("update documents set due_at = now() where status = 'queued'")
        processing.drain(broken)
    maintenance.flush(app)
    red = client.get("/ready")
    with app.db.begin() as tx:
        tx.execute("update documents set due_at = now() where status = 'queued'")
    processing.drain(app)
    maintenance.flush(app)

    assert red.status_code == 503
    assert red.json()["reason"].startswith("embedding failed 5 times in a row")
    assert client.get("/ready").json() == {"status": "ready"}


def test_ready_warns_of_weak_confinement_and_stays_ready(client: httpx.Client, app: App):
    """One who looks only at the status sees no difference: it is the operator's choice."""
    with (
        Sandbox(workers=1, confined=False) as weak,
        TestClient(website(replace(app, sandbox=weak))) as http,
    ):
        answer = http.get("/ready")

    assert answer.status_code == 200
    assert answer.json()["status"] == "ready"
    assert answer.json()["warning"].startswith("RECOLLECT_SANDBOX=off: ")
    assert "warning" not in client.get("/ready").json() or app.sandbox.missing() is not None


def test_a_full_disk_is_not_ready(client: httpx.Client, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(readiness, "LEAST_FREE", 1 << 60)
    # What follows from it is no news.
    monkeypatch.setattr(metrics, "failing", lambda tx: "indexing failed 7 times (disk_full)")
    answer = client.get("/ready")

    assert answer.status_code == 503
    assert answer.json()["reason"].startswith("the disk is full: ")


@pytest.mark.parametrize("mounted", ["postgres", "blobs"])
def test_a_full_disk_of_one_folder_alone_is_not_ready(
    client: httpx.Client, app: App, monkeypatch: pytest.MonkeyPatch, mounted: str
):
    """Each may be a volume of its own."""
    usage = shutil.disk_usage
    folder = app.config.data_dir / mounted
    monkeypatch.setattr(
        shutil, "disk_usage", lambda of: SimpleNamespace(free=0) if of == folder else usage("/")
    )
    answer = client.get("/ready")

    assert answer.status_code == 503
    assert answer.json()["reason"] == "the disk is full: 0 MB free"


def test_a_database_that_takes_no_writes_is_not_ready_and_says_so(app: App, client: httpx.Client):
    url = make_conninfo(app.db.url, options="-c default_transaction_read_only=on")
    with (
        Database(url, size=4) as read_only,
        serving(replace(app, db=read_only)) as base,
        plain_client(base, dict(client.headers)) as http,
    ):
        answer, refused = http.get("/ready"), http.post("/v3/documents", json={"content": "hello"})

    for one in (answer.json()["reason"], refused.json()["details"]):
        assert one.startswith("the database takes no writes")
    assert (answer.status_code, refused.status_code) == (503, 503)
    assert refused.headers["retry-after"] == "1"


def test_a_database_that_is_away_is_named(app: App, client: httpx.Client):
    """Both said that "something" did not answer. No address or role is told with it."""
    url = make_conninfo(app.db.url, host="127.0.0.1", port=1)
    with (
        Database(url, size=1, patience=timedelta(milliseconds=100)) as away,
        serving(replace(app, db=away)) as base,
        plain_client(base, dict(client.headers)) as http,
    ):
        ready, refused = http.get("/ready"), http.post("/v3/documents", json={"content": "hello"})

    assert (ready.status_code, refused.status_code) == (503, 503)
    assert ready.json() == {"status": "failing", "reason": "the database does not answer"}
    assert refused.json()["details"] == "the database does not answer; try again in a moment"
    assert refused.headers["retry-after"] == "1"


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs a disk without room")
def test_a_full_disk_of_files_is_not_ready(app: App):
    """Uploads were refused, and all was said to be well."""
    full = Config(data_dir=app.config.data_dir, blob_url="file:///proc")
    with TestClient(website(replace(app, config=full))) as http:
        answer = http.get("/ready")

    assert answer.status_code == 503
    assert answer.json()["reason"] == "the disk is full: 0 MB free"


def test_bad_documents_do_not_turn_it_red(client: httpx.Client, app: App):
    for number in range(2 * TROUBLED):
        data = b"%PDF-1.7 not really" + str(number).encode()
        client.post("/v3/documents/file", files={"file": (f"{number}.pdf", data)})
    processing.drain(app)
    maintenance.flush(app)

    assert client.get("/ready").status_code == 200


def test_one_document_alone_does_not_accuse_a_stage(app: App, client: httpx.Client):
    for _ in range(2 * TROUBLED):
        metrics.stumbled("extracting", "internal_error", "the same")
    maintenance.flush(app)
    assert client.get("/ready").status_code == 200

    for number in range(TROUBLED):
        metrics.stumbled("extracting", "internal_error", f"another {number}")
    maintenance.flush(app)
    assert client.get("/ready").status_code == 503


# --- the canary ----------------------------------------------------------------------------------


@pytest.fixture
def working(app: App) -> Generator[None]:
    """A worker beside the test."""
    loop = processing.Worker(app)
    thread = threading.Thread(target=loop.run)
    thread.start()
    yield
    loop.stop()
    thread.join()


def test_the_canary_goes_through_everything_and_leaves_nothing(
    working: None, app: App, db: Database, client: httpx.Client, operator: httpx.Client
):
    assert maintenance.send_canary(app, threading.Event()) is True

    told = client.get("/ready").json()
    assert told["status"] == "ready"
    assert told["canary"]["ok"] is True
    assert told["canary"]["ageSeconds"] < 60
    found = numbers(operator)
    assert found["recollect_canary_ok", ()] == 1
    assert found["recollect_canary_seconds", ()] > 0
    with db.begin() as tx:
        assert canary.ORG not in [org.id for org in orgs.list_all(tx)]
        for table in ("documents", "receipts", "term_counts", "tags"):
            row = tx.execute(
                f"select count(*) as n from {table} where org_id = %s".encode(), (canary.ORG,)
            ).fetchone()
            assert row == {"n": 0}, table


def test_a_canary_that_nobody_works_on_turns_ready_red(
    client: httpx.Client, app: App, db: Database
):
    came = maintenance.send_canary(app, threading.Event(), patience=timedelta(seconds=0.3))

    assert came is False
    answer = client.get("/ready")
    assert answer.status_code == 503
    assert "canary did not come through: it is still queued" in answer.json()["reason"]


def test_a_store_of_files_that_fails_turns_ready_red(
    client: httpx.Client, app: App, tmp_path: Path
):
    broken = replace(app, blobs=open_blobs((tmp_path / "blobs").as_uri()))
    shutil.rmtree(tmp_path / "blobs")
    (tmp_path / "blobs").write_text("a file where the folder was")

    assert maintenance.send_canary(broken, threading.Event()) is False

    answer = client.get("/ready")
    assert answer.status_code == 503
    assert "blob folder" in answer.json()["reason"]


def test_a_store_that_lets_no_file_go_is_no_reason_to_turn_ready_red(
    working: None, app: App, tmp_path: Path
):
    """As a bucket that locks files for a time: it takes what is uploaded."""
    locking = replace(app, blobs=LockingBlobs(tmp_path))

    assert maintenance.send_canary(locking, threading.Event()) is True


class LockingBlobs(FolderBlobs):
    def delete(self, key: str) -> None:
        raise Undeletable(f"{key} is locked")


def test_one_that_was_cut_off_is_cleaned_up_by_the_next(working: None, app: App, db: Database):
    with db.begin() as tx:
        canary.ensure(tx)
        new = NewDocument(documents.text_content("an old one"), [canary.TAG], custom_id="canary")
        documents.add(tx, canary.TENANT, new, DocumentId(random_id()))

    assert maintenance.send_canary(app, threading.Event()) is True
    with db.begin() as tx:
        assert documents.find(tx, canary.TENANT, DocumentQuery()).total == 0


def test_nobody_else_finds_the_canary(app: App, db: Database, org: Org, tenant: Tenant):
    with db.begin() as tx:
        canary.ensure(tx)
        new = NewDocument(documents.text_content("the canary sings"), [canary.TAG])
        documents.add(tx, canary.TENANT, new, DocumentId(random_id()))
    processing.drain(app)
    with db.begin() as tx:
        found = hybrid.search(tx, tenant, Query("canary sings", vector=None))
        with pytest.raises(orgs.NotFoundError):
            orgs.find(tx, "recollect canary")

    assert found == []


def test_only_one_process_sends_it_and_not_before_its_time(db: Database):
    hour = timedelta(hours=1)
    with db.begin() as tx:
        assert not canary.take(tx, hour), "the first is due an interval after the start"
        tx.execute("update canary set due_at = now()")
        assert canary.take(tx, hour)
        assert not canary.take(tx, hour)
        assert not canary.take(tx, timedelta(minutes=1))
        row = tx.execute("select due_at - now() as wait from canary").fetchone()

    assert row == {"wait": timedelta(minutes=1)}
