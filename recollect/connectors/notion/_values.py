"""What Notion's JSON says, as text: ids, times, rich text, values of properties.

Facts: developers.notion.com/reference (rich-text, property-value-object, file-object).
"""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, cast
from urllib.parse import unquote, urlsplit

from recollect.connectors._json import as_object, as_objects, as_time, as_word
from recollect.connectors.api import PROVIDER_UNAVAILABLE
from recollect.errors import Transient
from recollect.model import storable

SITE = "https://www.notion.so/"
SIGNED = re.compile(
    r"X-Amz-(Signature|Credential|Security-Token)=|[?&](AWSAccessKeyId|Signature|signature)="
    r"|//(file\.notion\.so|prod-files-secure\.)|secure\.notion-static\.com",
    re.IGNORECASE,
)
"""Links to hosted files: good for an hour, and for everybody who has them."""
MARKS = (("bold", "**"), ("italic", "*"), ("strikethrough", "~~"))
ROLLED = 50
"""values of one rollup that are told"""


# --- unpacking ---------------------------------------------------------------------------------


def tidy(value: Any) -> str:
    """A text that can be stored; empty where there is none."""
    return storable(value) if isinstance(value, str) else ""


def id_of(value: Any) -> str:
    """An id as we keep it: 32 hexadecimal digits. Notion writes it with hyphens or without.

    Raises Transient for anything else: it goes into addresses.
    """
    short = value.replace("-", "").lower() if isinstance(value, str) else ""
    if not re.fullmatch(r"[0-9a-f]{32}", short):
        raise Transient("Notion answered with an invalid id", code=PROVIDER_UNAVAILABLE)
    return short


def time_of(value: Any) -> datetime:
    """Raises Transient for anything else."""
    found = as_time(as_word(value))
    if found is None:
        raise Transient("Notion answered with an invalid time", code=PROVIDER_UNAVAILABLE)
    return found


# --- rich text ---------------------------------------------------------------------------------


def plain(rich: Any) -> str:
    """Rich text without its marks."""
    return "".join(tidy(part.get("plain_text")) for part in as_objects(rich))


def marked(rich: Any) -> str:
    """Rich text as Markdown."""
    return "".join(_part(part) for part in as_objects(rich))


def link(label: str, url: Any) -> str:
    """Markdown of a link; the label alone if the address is not worth keeping."""
    target = address(url)
    label = " ".join(label.split())
    if target is None:
        return label
    return target if label in ("", target) else f"[{label}]({target})"


def address(url: Any) -> str | None:
    """A web address that may be stored: none that is signed, and none with blanks."""
    text = tidy(url)
    if text.startswith("/"):
        text = SITE + text.lstrip("/")
    if not re.fullmatch(r"https?://[^\s<>()]+", text) or SIGNED.search(text):
        return None
    return text


def file_name(file: Mapping[str, Any]) -> str:
    """What a file is called: by its name, else by the end of its address."""
    if name := tidy(file.get("name")):
        return name
    url = tidy(as_object(file.get(tidy(file.get("type")))).get("url"))
    return name_of_link(url)


def name_of_link(url: str) -> str:
    """The end of its path."""
    return tidy(unquote(urlsplit(url).path.rpartition("/")[2]))


def _part(part: Mapping[str, Any]) -> str:
    text = tidy(part.get("plain_text"))
    how = as_object(part.get("annotations"))
    core = text.strip()
    if not core:
        return text
    before, after = text[: text.index(core)], text[text.index(core) + len(core) :]
    if part.get("type") == "equation":
        core = f"${core}$"
    elif how.get("code"):
        core = f"`{core}`"
    for name, sign in MARKS:
        if how.get(name):
            core = f"{sign}{core}{sign}"
    if part.get("href") is not None:
        core = link(core, part.get("href"))
    return before + core + after


# --- properties --------------------------------------------------------------------------------


def title_of(properties: Any) -> str:
    """The title of a page stands in the one property of that type, whatever it is called."""
    for value in as_object(properties).values():
        if as_object(value).get("type") == "title":
            return " ".join(plain(as_object(value).get("title")).split())
    return ""


def value_of(property: Any) -> str | float | bool | None:
    """A property's value as metadata can hold it; None: it has none, or none that is known."""
    given = as_object(property)
    kind = tidy(given.get("type"))
    return _value(kind, given.get(kind))


def _value(kind: str, value: Any) -> str | float | bool | None:
    match kind:
        case "checkbox":
            return value if isinstance(value, bool) else None
        case "number":
            return None if isinstance(value, bool) or not isinstance(value, int | float) else value
        case "formula":
            return _computed(as_object(value))
        case "rollup":
            return _rolled(as_object(value))
        case _:
            return _words(kind, value) or None


def _words(kind: str, value: Any) -> str:  # noqa: C901 # one table
    match kind:
        case "title" | "rich_text":
            return " ".join(plain(value).split())
        case "url":
            return "" if SIGNED.search(tidy(value)) else tidy(value)
        case "email" | "phone_number" | "created_time" | "last_edited_time" | "string":
            return tidy(value)
        case "select" | "status":
            return tidy(as_object(value).get("name"))
        case "multi_select" | "people":
            return _listed(tidy(each.get("name")) for each in as_objects(value))
        case "created_by" | "last_edited_by":
            return tidy(as_object(value).get("name"))
        case "files":
            return _listed(file_name(each) for each in as_objects(value))
        case "relation":
            return _listed(tidy(each.get("id")).replace("-", "") for each in as_objects(value))
        case "date":
            return _date(as_object(value))
        case "unique_id":
            given = as_object(value)
            number = given.get("number")
            return "" if number is None else _joined("-", tidy(given.get("prefix")), str(number))
        case "verification":
            return tidy(as_object(value).get("state"))
        case "place":
            return _place(as_object(value))
        case _:
            return ""


def _listed(words: Any) -> str:
    return ", ".join(word for word in cast("Sequence[str]", words) if word)


def _joined(glue: str, *parts: str) -> str:
    return glue.join(part for part in parts if part)


def _date(value: Mapping[str, Any]) -> str:
    return _joined(" to ", tidy(value.get("start")), tidy(value.get("end")))


def _place(value: Mapping[str, Any]) -> str:
    named = _joined(", ", tidy(value.get("name")), tidy(value.get("address")))
    latitude, longitude = value.get("lat"), value.get("lon")
    if named or latitude is None:
        return named
    return f"{latitude}, {longitude}"


def _computed(value: Mapping[str, Any]) -> str | float | bool | None:
    kind = tidy(value.get("type"))
    return _value("checkbox" if kind == "boolean" else kind, value.get(kind))


def _rolled(value: Mapping[str, Any]) -> str | float | bool | None:
    if value.get("type") != "array":
        return _computed(value)
    found = [value_of(each) for each in as_objects(value.get("array"))[:ROLLED]]
    return ", ".join(shown(each) for each in found if each is not None) or None


def shown(value: str | float | bool) -> str:
    """A value as people write it."""
    match value:
        case bool():
            return "yes" if value else "no"
        case float() if value.is_integer() and abs(value) < 1e15:
            return str(int(value))
        case _:
            return str(value)
