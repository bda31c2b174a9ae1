"""The settings of the organisation, and the paths that need no key."""

from collections.abc import Callable

import httpx
import pytest
from psycopg import sql

from recollect.app import App, secret_keys
from recollect.db import Database
from recollect.errors import SetupError
from recollect.inference.llm import Llm
from recollect.model import Org, Scope
from recollect.orgs import settings
from tests.contract.calls import refused, rows

PATTERNS = {"urlPatterns": ["*/docs/*"], "titlePatterns": ["Spec *"]}


def patched(http: httpx.Client, **change: object) -> dict[str, object]:
    answer = http.patch("/v3/settings", json=change)
    assert answer.status_code == 200, answer.text
    return answer.json()["updated"]


def test_the_defaults_are_flat_and_complete(client: httpx.Client):
    settings = client.get("/v3/settings").json()

    assert settings["shouldLLMFilter"] is False
    assert settings["includeItems"] is None
    assert settings["filterPrompt"] is None
    assert {"chunkSize", "profileBuckets", "notionClientId", "githubClientSecret"} <= set(settings)


def test_the_answer_to_a_change_is_all_settings(served: Callable[..., httpx.Client], org: Org):
    client = served(llm=Llm("http://127.0.0.1:9/v1", "a-model"))
    answer = client.patch(
        "/v3/settings",
        json={"shouldLLMFilter": True, "includeItems": PATTERNS, "filterPrompt": "only papers"},
    )

    assert answer.status_code == 200
    assert set(answer.json()) == {"orgId", "orgSlug", "updated"}
    assert answer.json()["orgId"] == org.id
    assert answer.json()["orgSlug"] == org.name
    assert answer.json()["updated"] == client.get("/v3/settings").json()
    assert answer.json()["updated"]["includeItems"] == PATTERNS
    assert answer.json()["updated"]["shouldLLMFilter"] is True


@pytest.mark.parametrize("prefix", ["github", "googleDrive", "notion", "onedrive"])
def test_an_own_application_that_lacks_a_part_says_so(client: httpx.Client, prefix: str):
    enabled, id, secret = (
        f"{prefix}{end}" for end in ("CustomKeyEnabled", "ClientId", "ClientSecret")
    )

    def warned(**change: object) -> list[str] | None:
        return client.patch("/v3/settings", json=change).json().get("warnings")

    assert warned(**{id: "an id"}) is None
    [told] = warned(**{id: None, enabled: True}) or []
    assert told == f"{enabled}: it does nothing without {id} and {secret}; set them, too."
    [told] = warned(**{id: "an id"}) or []
    assert told == f"{enabled}: it does nothing without {secret}; set it, too."
    assert warned(keepVersions=1) is None
    assert warned(**{secret: "a secret"}) is None
    assert warned(**{enabled: False, secret: None}) is None


def test_a_filter_by_model_is_stored_without_one_and_says_so(client: httpx.Client):
    """A published plug-in asks for it at each start."""
    answer = client.patch("/v3/settings", json={"shouldLLMFilter": True, "filterPrompt": "papers"})
    assert answer.status_code == 200
    [warning] = answer.json()["warnings"]
    assert "RECOLLECT_LLM_URL" in warning
    assert "RECOLLECT_LLM_MODEL" in warning
    refused(client.post("/v3/settings/preview", json={"shouldLLMFilter": True}), 400, "LLM_URL")

    assert client.get("/v3/settings").json()["shouldLLMFilter"] is True
    again = client.patch("/v3/settings", json={"shouldLLMFilter": False})
    assert "warnings" not in again.json()


def test_changes_merge_by_key_and_null_clears(client: httpx.Client):
    patched(client, filterPrompt="one", excludeItems=PATTERNS)
    assert patched(client, workspacePrompt="two")["filterPrompt"] == "one"
    narrowed = {"urlPatterns": ["x"]}
    assert patched(client, excludeItems=narrowed)["excludeItems"] == narrowed
    assert patched(client, filterPrompt=None)["filterPrompt"] is None
    assert patched(client, filterPrompt=None, unheardOf=1)["workspacePrompt"] == "two"


@pytest.mark.parametrize("sends_body", [True, False])
def test_nothing_named_is_nothing_changed(client: httpx.Client, sends_body: bool):
    before = patched(client, filterPrompt="one")
    answer = client.patch("/v3/settings", json={}) if sends_body else client.patch("/v3/settings")

    assert answer.json()["updated"] == before


def test_patterns_need_no_language_model(client: httpx.Client):
    assert patched(client, shouldLLMFilter=False, includeItems=PATTERNS)


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("*.md", {"urlPatterns": ["*.md"], "titlePatterns": ["*.md"]}),
        (["a", "b"], {"urlPatterns": ["a", "b"], "titlePatterns": ["a", "b"]}),
        ({}, {}),
        (None, None),
    ],
)
def test_patterns_come_in_older_shapes_too(client: httpx.Client, given: object, kept: object):
    assert patched(client, includeItems=given, excludeItems=given)["includeItems"] == kept


def test_secrets_go_in_and_never_out(client: httpx.Client, app: App, db: Database, org: Org):
    shown = patched(client, githubClientId="id", githubClientSecret="s3cret")
    assert shown["githubClientId"] == "id"
    assert shown["githubClientSecret"] == "********"
    assert "s3cret" not in client.get("/v3/settings").text

    patched(client, githubClientSecret="********")
    with db.begin() as tx:
        keys = secret_keys(app.config)
        assert settings.secret(tx, org.id, "githubClientSecret", keys=keys) == "s3cret"
        assert settings.secret(tx, org.id, "notionClientSecret", keys=keys) is None
        with pytest.raises(SetupError, match="githubClientSecret"):
            settings.secret(tx, org.id, "githubClientSecret", keys=[b"another" * 5])
    assert patched(client, githubClientSecret=None)["githubClientSecret"] is None


def test_no_table_holds_a_secret(client: httpx.Client, db: Database):
    names = [name for name in settings.DEFAULTS if name.endswith("Secret")]
    assert len(names) == len(settings.SECRETS) >= 4
    patched(client, **{name: f"canary-{name}" for name in names})
    with db.begin() as tx:
        tables = tx.execute(
            "select table_name from information_schema.tables where table_schema = 'public'"
        ).fetchall()
        for table in tables:
            statement = sql.SQL("select count(*) as n from {} t where t::text like '%%canary-%%'")
            found = tx.execute(statement.format(sql.Identifier(table["table_name"]))).fetchone()
            assert found == {"n": 0}, table


def test_a_change_of_keys_reaches_the_stored_secrets(db: Database, org: Org):
    old, new, lost = b"o" * 32, b"n" * 32, b"l" * 32
    with db.begin() as tx:
        settings.patch(tx, org.id, {"githubClientSecret": "one", "chunkSize": 500}, keys=[old])
        settings.patch(tx, org.id, {"notionClientSecret": "two"}, keys=[old])
        settings.patch(tx, org.id, {"onedriveClientSecret": "three"}, keys=[lost])
        before = settings.read(tx, org.id)

        assert settings.reseal(tx, org.id, [new, old]) == 2
        assert settings.reseal(tx, org.id, [new, old]) == 0
        after = settings.read(tx, org.id)
        assert settings.secret(tx, org.id, "githubClientSecret", keys=[new]) == "one"
        assert settings.secret(tx, org.id, "notionClientSecret", keys=[new]) == "two"
        assert settings.secret(tx, org.id, "onedriveClientSecret", keys=[lost]) == "three"
    changed = {name for name, value in after.items() if before[name] != value}
    assert changed == {"githubClientSecret", "notionClientSecret"}


def test_there_is_nothing_to_seal_anew_without_settings(db: Database, org: Org):
    with db.begin() as tx:
        assert settings.reseal(tx, org.id, [b"k" * 32]) == 0


def test_profile_buckets_have_a_slug_and_a_description(client: httpx.Client):
    bucket = {"key": "work-1", "description": "about work"}
    assert patched(client, profileBuckets=[bucket])["profileBuckets"] == [bucket]


@pytest.mark.parametrize(
    "change",
    [
        {"shouldLLMFilter": "perhaps"},
        {"includeItems": 5},
        {"includeItems": True},
        {"includeItems": [1]},
        {"includeItems": {"urlPatterns": "x"}},
        {"excludeItems": {"titlePatterns": [{"a": 1}]}},
        {"includeItems": ["x"] * 1001},
        {"filterPrompt": ["x"]},
        {"filterPrompt": "x" * 10_001},
        {"chunkSize": 2**31},
        {"profileBuckets": [{"key": "Not A Slug"}]},
        {"profileBuckets": [{"key": "static"}]},
        {"profileBuckets": [{"key": f"k{n}"} for n in range(51)]},
        [],
        "x",
    ],
)
def test_what_cannot_be_understood_is_refused_and_changes_nothing(
    client: httpx.Client, db: Database, org: Org, change: object
):
    refused(client.patch("/v3/settings", json=change), 400)
    assert rows(db, org)["settings"] == 0


def test_changing_them_needs_an_administrator(limited: Callable[..., httpx.Client]):
    change = {"filterPrompt": "x"}

    assert limited(Scope.READ).get("/v3/settings").status_code == 200
    refused(limited(Scope.WRITE).patch("/v3/settings", json=change), 403)
    refused(limited(Scope.ADMIN, ["a"]).patch("/v3/settings", json=change), 403)


@pytest.fixture
def healthy(db: Database) -> None:
    """What stages of other tests failed at counts against all for a quarter of an hour."""
    with db.begin() as tx:
        tx.execute("delete from stage_health")
        tx.execute("delete from canary")


@pytest.mark.usefixtures("healthy")
@pytest.mark.parametrize("path", ["/", "/health", "/ready", "/docs", "/v3/openapi"])
def test_some_paths_need_no_key(with_key: Callable[[str], httpx.Client], path: str):
    assert with_key("").get(path).status_code == 200


@pytest.mark.usefixtures("healthy")
def test_health_and_ready(client: httpx.Client):
    assert client.get("/health").json() == {"status": "ok"}
    assert client.get("/ready").json() == {"status": "ready"}
