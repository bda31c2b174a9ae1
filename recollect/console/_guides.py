"""What each provider brings and needs, for people, and the form of its metadata.

The rules are the connectors' own (`Connector.check`); here are only words and fields.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast

from recollect.errors import BadRequestError
from recollect.model import storable

LONGEST = 10_000
"""characters of a value"""


@dataclass(frozen=True, slots=True)
class Field:
    """A key of the metadata as a field of a form."""

    name: str
    label: str
    hint: str = ""
    kind: Literal["text", "url", "number", "lines", "choice", "switch", "secret"] = "text"
    required: bool = False
    placeholder: str = ""
    choices: Sequence[tuple[str, str]] = ()
    """value and words; the first is the default"""
    default: bool = False
    """of a switch"""


@dataclass(frozen=True, slots=True)
class Guide:
    brings: str
    needs: str
    fields: Sequence[Field] = ()


_FOLDERS = Field(
    "folders",
    "Folders",
    "Ids of folders, one on a line. Read only with “only what is in the folders below”.",
    kind="lines",
)
_SCOPE = Field(
    "syncScope",
    "What to follow",
    kind="choice",
    choices=(("full", "everything"), ("selected", "only what is in the folders below")),
)
GUIDES: Mapping[str, Guide] = {
    "github": Guide(
        "Documentation files of the repositories that you pick.",
        "a GitHub account; you choose the repositories afterwards",
        (
            Field(
                "visibility",
                "Repositories",
                "Public only asks GitHub for fewer rights.",
                kind="choice",
                choices=(("all", "private and public"), ("public", "public only")),
            ),
            Field(
                "webhooks",
                "Let GitHub tell of changes at once",
                "Registers a webhook in each repository; without it, changes are looked for.",
                kind="switch",
                default=True,
            ),
        ),
    ),
    "gmail": Guide(
        "Threads of a mailbox, each with the whole conversation.",
        "a Google account",
        (
            Field(
                "q",
                "Search",
                "As in Gmail's own search field; only such threads are followed.",
                placeholder="newer_than:2y -category:promotions",
            ),
            Field("labelIds", "Labels", "Ids of labels, one on a line.", kind="lines"),
            Field(
                "pubsubTopic",
                "Pub/Sub topic",
                "For mails to arrive at once; without it they are looked for every few minutes.",
                placeholder="projects/PROJECT/topics/TOPIC",
            ),
        ),
    ),
    "google-drive": Guide(
        "Documents, sheets, slides and files, shared drives included.",
        "a Google account",
        (_SCOPE, _FOLDERS),
    ),
    "notion": Guide(
        "Pages and rows of databases.",
        "a Notion account; Notion asks which pages to share",
    ),
    "onedrive": Guide(
        "Files of a personal account, or one for work or school.",
        "a Microsoft account",
        (
            _SCOPE,
            _FOLDERS,
            Field(
                "shared",
                "Also what others shared",
                "Asks Microsoft for the right to read all files that the user may read.",
                kind="switch",
            ),
        ),
    ),
    "s3": Guide(
        "Objects of a bucket, at Amazon or any service that speaks S3.",
        "a bucket and a key that may list and read it",
        (
            Field("bucket", "Bucket", "Only its name.", required=True),
            Field(
                "region",
                "Region",
                "Such as eu-central-1; auto for Cloudflare R2; others often us-east-1.",
                required=True,
            ),
            Field(
                "endpoint",
                "Endpoint",
                "For services other than Amazon.",
                kind="url",
                placeholder="https://minio.example.com",
            ),
            Field(
                "prefix",
                "Prefix",
                "Only keys that begin with it. “docs” takes docs-old/a.md too, “docs/” does not.",
            ),
            Field(
                "containerTagRegex",
                "Tag from the key",
                "A pattern with one named group, which becomes a tag besides those below.",
                placeholder="^users/(?<userId>[^/]+)/",
            ),
            Field("accessKeyId", "Access key id", kind="secret", required=True),
            Field("secretAccessKey", "Secret access key", kind="secret", required=True),
        ),
    ),
    "web-crawler": Guide(
        "Pages of one host, as Markdown.",
        "an address; nothing to authorize",
        (
            Field(
                "startUrl",
                "Start page",
                "The crawl begins here and stays on this host.",
                kind="url",
                required=True,
                placeholder="https://docs.example.org/",
            ),
            Field(
                "crawlDepth",
                "Depth",
                "Links from the start page, 0 to 20. With it, sitemaps are left aside.",
                kind="number",
            ),
            Field(
                "includePatterns",
                "Only these addresses",
                "One on a line; * stands for anything.",
                kind="lines",
                placeholder="https://docs.example.org/guide/*",
            ),
            Field(
                "excludePatterns",
                "Not these addresses",
                "One on a line; * stands for anything. Wins over the others.",
                kind="lines",
            ),
        ),
    ),
}
_NOTHING_KNOWN = Guide("", "")


def of(provider: str) -> Guide:
    return GUIDES.get(provider, _NOTHING_KNOWN)


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
