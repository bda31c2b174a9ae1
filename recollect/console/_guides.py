"""The form of a provider's metadata: what was typed into it, and what is shown in it.

The rules are the connectors' own (`Connector.check`), the words and fields those of their guides.
"""

from collections.abc import Mapping
from typing import Any, cast

from recollect.connectors.about import Guide
from recollect.errors import BadRequestError
from recollect.model import storable

LONGEST = 10_000
"""characters of a value"""


def typed(guide: Guide, form: Mapping[str, str]) -> dict[str, Any]:
    """The metadata that a form says; empty fields are left out. Raises BadRequestError."""
    found: dict[str, Any] = {}
    for field in guide.fields:
        raw = storable(form.get(f"m.{field.name}", "")).strip()
        if len(raw) > LONGEST:
            raise BadRequestError(f"{field.label}: at most {LONGEST:,} characters")
        match field.kind:
            case "switch":
                if bool(raw) != field.default:
                    found[field.name] = bool(raw)
            case "choice":
                if raw and raw != field.choices[0][0]:
                    found[field.name] = raw
            case "lines":
                lines = [line.strip() for line in raw.splitlines() if line.strip()]
                if lines:
                    found[field.name] = ",".join(lines)
            case _:
                if raw:
                    found[field.name] = raw
    return found


def as_typed(guide: Guide, metadata: Mapping[str, Any]) -> dict[str, str]:
    """The fields of a form as stored metadata fills them; secrets stay empty."""
    found: dict[str, str] = {}
    for field in guide.fields:
        value = metadata.get(field.name)
        match field.kind:
            case "secret":
                continue
            case "switch":
                value = field.default if value is None else value
                found[f"m.{field.name}"] = "on" if value is True else ""
            case "lines":
                listed = isinstance(value, list)
                parts = cast("list[object]", value) if listed else str(value or "").split(",")
                found[f"m.{field.name}"] = "\n".join(str(part).strip() for part in parts)
            case _:
                found[f"m.{field.name}"] = "" if value is None else str(value)
    return found
