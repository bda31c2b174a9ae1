"""After a change of the secret key nothing is left that only the old one opens."""

import hashlib
import secrets
from collections.abc import Generator
from dataclasses import replace

import pytest
from psycopg import sql
from psycopg.types.json import Jsonb
from pydantic import SecretStr

from recollect import encryption
from recollect.app import EMBEDDER_KEY, App, kept_choice, secret_keys
from recollect.inference.embed import EmbedderChoice
from recollect.ops import reencrypt
from recollect.sync import push_registrations

PLACE = ("notion", "hook")


@pytest.fixture
def newer(app: App) -> Generator[App]:
    """The installation with another key, which still knows the old one."""
    config = app.config.model_copy(update={"secret_key": SecretStr(secrets.token_hex(32))})
    with app.db.begin() as tx:
        row = tx.execute("select choice, other_choice from index_settings").fetchone()
    assert row is not None
    yield replace(app, config=config)
    with app.db.begin() as tx:
        tx.execute("delete from hook_secrets")
        tx.execute("delete from farewells")
        kept = [one and Jsonb(one) for one in row.values()]
        tx.execute("update index_settings set choice = %s, other_choice = %s", kept)


def test_a_token_that_proves_pushes_is_sealed_again(app: App, newer: App):
    sealed = encryption.seal(secret_keys(app.config), "proof", place=PLACE)
    with app.db.begin() as tx:
        push_registrations.keep_hook_secret(tx, "notion", hashlib.sha256(b"proof").digest(), sealed)
    reencrypt.reseal(newer)
    with app.db.begin() as tx:
        [found] = push_registrations.hook_secrets(tx, "notion")
    assert encryption.unseal(secret_keys(newer.config)[:1], found.sealed, place=PLACE) == "proof"


def test_what_is_still_to_be_said_to_a_provider_is_sealed_again(app: App, newer: App):
    place = ("farewell", "1")
    sealed = encryption.seal(secret_keys(app.config), "tokens", place=place)
    with app.db.begin() as tx:
        push_registrations.say_later(tx, "notion", "1", sealed)
    reencrypt.reseal(newer)
    with app.db.begin() as tx:
        [found] = push_registrations.due_revocations(tx)
    assert encryption.unseal(secret_keys(newer.config)[:1], found.sealed, place=place) == "tokens"


@pytest.mark.parametrize("column", ["choice", "other_choice"])
def test_the_key_of_a_model_that_the_index_remembers_is_sealed_again(
    app: App, newer: App, column: str
):
    of_model = EmbedderChoice("openai", "http://127.0.0.1/v1", "a key", "model", None)
    with app.db.begin() as tx:
        kept = Jsonb(dict(kept_choice(app.config, of_model)))
        named = sql.Identifier(column)
        tx.execute(sql.SQL("update index_settings set {} = %s").format(named), (kept,))
    reencrypt.reseal(newer)
    with app.db.begin() as tx:
        row = tx.execute("select * from index_settings").fetchone()
    assert row is not None
    new = secret_keys(newer.config)[:1]
    assert encryption.unseal(new, row[column]["key"], place=EMBEDDER_KEY) == "a key"
    assert row[column]["url"] == of_model.url
