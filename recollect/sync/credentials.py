"""Tokens, secrets and applications of connections, sealed and opened."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from recollect import encryption
from recollect.app import App, secret_keys
from recollect.config import Config, ProviderSettings
from recollect.connectors.base import Connector, settings_of
from recollect.connectors.oauth import OAuth, OAuthClient, Tokens
from recollect.connectors.pushes import Registration
from recollect.db import Tx
from recollect.errors import (
    BadRequestError,
    SetupError,
)
from recollect.model import (
    ConnectionId,
    OrgId,
)
from recollect.orgs import settings
from recollect.sync.push_registrations import StoredRegistration

AGEING = timedelta(minutes=5)
"""An access token with less than this to live is refreshed before it is used."""


def provider_settings(app: App, connector: Connector) -> ProviderSettings:
    return settings_of(app.config, connector.provider, ProviderSettings)


def oauth_of(app: App, connector: Connector) -> OAuth:
    """How the provider authorizes, at the addresses that the settings name."""
    assert connector.oauth is not None
    given = provider_settings(app, connector)
    return replace(
        connector.oauth,
        authorize_url=given.auth_url or connector.oauth.authorize_url,
        token_url=given.token_url or connector.oauth.token_url,
        revoke_url=given.revoke_url or connector.oauth.revoke_url,
        issuer=None if given.auth_url else connector.oauth.issuer,
    )


def client_of(tx: Tx, app: App, org: OrgId, connector: Connector) -> OAuthClient:
    """The OAuth application: the organisation's own, else that of the installation.

    Raises BadRequestError that names the settings to fill.
    """
    assert connector.application is not None
    stored = settings.read(tx, org)
    enabled = connector.application.setting("CustomKeyEnabled")
    id_name = connector.application.setting("ClientId")
    secret_name = connector.application.setting("ClientSecret")
    if stored.get(enabled) and stored[id_name]:
        try:
            secret = settings.secret(tx, org, secret_name, keys=secret_keys(app.config))
        except SetupError as error:
            raise BadRequestError(f"{secret_name}: {error}") from error
        if secret is not None:
            return OAuthClient(stored[id_name], secret)
    if (client := client_of_installation(app.config, connector)) is not None:
        return client
    variables = connector.settings.variables(connector.provider)
    raise BadRequestError(
        f"{connector.provider}: no OAuth application is configured; set {variables['client_id']}"
        f" and {variables['client_secret']}, or {enabled}, {id_name} and {secret_name} with"
        " PATCH /v3/settings"
    )


def client_of_installation(config: Config, connector: Connector) -> OAuthClient | None:
    """The provider's own, else that of the application which it shares with others."""
    assert connector.application is not None
    for provider in (connector.provider, connector.application.provider):
        given = settings_of(config, provider, ProviderSettings)
        if given.client_id and given.client_secret:
            return OAuthClient(given.client_id, given.client_secret.get_secret_value())
    return None


def seal_tokens(app: App, connection: ConnectionId, tokens: Tokens) -> str:
    """Opens on this connection's row only."""
    told = {
        "access": tokens.access,
        "refresh": tokens.refresh,
        "expires_at": tokens.expires_at.isoformat() if tokens.expires_at else None,
        "scopes": list(tokens.scopes),
        "extra": dict(tokens.extra),
    }
    return encryption.seal(secret_keys(app.config), json.dumps(told), place=(connection, "tokens"))


def open_tokens(app: App, connection: ConnectionId, sealed: str) -> Tokens:
    told = json.loads(
        encryption.unseal(secret_keys(app.config), sealed, place=(connection, "tokens"))
    )
    return Tokens(
        access=told["access"],
        refresh=told["refresh"],
        expires_at=datetime.fromisoformat(told["expires_at"]) if told["expires_at"] else None,
        scopes=told["scopes"],
        extra=told["extra"],
    )


def seal_secrets(app: App, connection: ConnectionId, secrets: Mapping[str, Any]) -> str | None:
    if not secrets:
        return None
    place = (connection, "secrets")
    return encryption.seal(secret_keys(app.config), json.dumps(dict(secrets)), place=place)


def open_secrets(app: App, connection: ConnectionId, sealed: str | None) -> dict[str, Any]:
    if sealed is None:
        return {}
    return json.loads(
        encryption.unseal(secret_keys(app.config), sealed, place=(connection, "secrets"))
    )


def ageing(tokens: Tokens) -> bool:
    """Whether the access token is about to expire, as far as it tells."""
    return tokens.expires_at is not None and tokens.expires_at - datetime.now(UTC) < AGEING


def open_registration(app: App, stored: StoredRegistration) -> Registration:
    registration = stored.registration
    place = (registration.connection_id, "registration", registration.id)
    return stored.opened(encryption.unseal(secret_keys(app.config), stored.sealed, place=place))
