"""Adding from a form: what its fields mean. The rules are those of the API, in `intake`."""

import json
from collections.abc import Sequence
from typing import Any

from recollect.app import App
from recollect.errors import BadRequestError
from recollect.ingest import intake
from recollect.ingest.intake import CUSTOM_ID, Labels
from recollect.model import Document, Tenant, storable
from recollect.orgs import tags


def labels(
    tenant: Tenant, tag: str, custom_id: str, rows: Sequence[tuple[str, str, str]]
) -> Labels:
    """Checked labels; empty fields mean absent. `rows`: metadata as (key, type, value).

    Raises BadRequestError, and PermissionDeniedError for a tag that the key may not touch.
    """
    named = tags.asked(tenant, tag or None, None, default=False, field="tag")
    if custom_id and (len(custom_id) > CUSTOM_ID or not intake.is_one_line(custom_id)):
        raise BadRequestError(f"customId: 1 to {CUSTOM_ID} characters, none of them a control")
    given = {key: _value(key, kind, value) for key, kind, value in rows if key or value}
    try:
        metadata = intake.metadata(given)
    except ValueError as error:
        raise BadRequestError(f"metadata: {error}") from error
    return Labels(tags=named, custom_id=custom_id or None, metadata=metadata or None)


def add_text(app: App, tenant: Tenant, labels: Labels, text: str) -> Document:
    """A text, or a content that is one http(s) URL and nothing else, which is fetched."""
    text = storable(text.replace("\r\n", "\n"))  # forms send CRLF whatever was typed
    try:
        content = intake.content_of(app, intake.text(text))
    except ValueError as error:
        raise BadRequestError(f"content: {error}") from error
    return intake.take(app, tenant, labels, content)


def _value(key: str, kind: str, value: str) -> Any:
    """What was typed, as the type that was chosen."""
    match kind:
        case "number":
            try:
                found: object = json.loads(value)
            except (ValueError, RecursionError):
                found = None
            if isinstance(found, bool) or not isinstance(found, int | float):
                raise BadRequestError(f"metadata: {key[:80]}: {value[:40]!r} is not a number")
            return found
        case "boolean":
            if value.strip().lower() not in ("true", "false"):
                raise BadRequestError(f"metadata: {key[:80]}: must be true or false")
            return value.strip().lower() == "true"
        case _:
            return value
