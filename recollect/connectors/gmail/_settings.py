"""What the operator may set for Gmail: how its notices arrive through Pub/Sub."""

from pathlib import Path

from pydantic import Field

from recollect.config import Address, Config, ProviderSettings
from recollect.connectors.base import settings_of


class GmailSettings(ProviderSettings):
    pubsub_audience: str | None = Field(
        default=None,
        validation_alias="RECOLLECT_PUBSUB_AUDIENCE",
        description="Audience in the tokens of pushes.",
    )
    pubsub_service_account: str | None = Field(
        default=None,
        validation_alias="RECOLLECT_PUBSUB_SERVICE_ACCOUNT",
        description="Email of the service account that signs pushes.",
    )
    pubsub_certs_url: Address = Field(
        default="https://www.googleapis.com/oauth2/v3/certs",
        validation_alias="RECOLLECT_PUBSUB_CERTS_URL",
        description="Where the public keys of those tokens are.",
    )
    pubsub_subscription: str | None = Field(
        default=None,
        validation_alias="RECOLLECT_PUBSUB_SUBSCRIPTION",
        pattern=r"^projects/[a-z0-9.:-]{4,100}/subscriptions/[A-Za-z][A-Za-z0-9._~+%-]{2,254}$",
        description="Pull subscription that notices are fetched from, where Google cannot reach"
        " us: projects/PROJECT/subscriptions/NAME.",
    )
    pubsub_key_file: Path | None = Field(
        default=None,
        validation_alias="RECOLLECT_PUBSUB_KEY_FILE",
        description="Key of the service account that may read it, or what `gcloud auth"
        " application-default login` wrote.",
    )
    pubsub_api_url: Address = Field(
        default="https://pubsub.googleapis.com",
        validation_alias="RECOLLECT_PUBSUB_API_URL",
        description="Base URL of Cloud Pub/Sub.",
    )


def settings_in(config: Config) -> GmailSettings:
    return settings_of(config, "gmail", GmailSettings)
