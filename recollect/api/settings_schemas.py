"""Settings of an organisation on the wire, and what a filter would change."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, cast

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    create_model,
    field_validator,
)

from recollect import connectors, documents
from recollect.api.wire import WARNINGS, RequestBody, Text, Wire, example
from recollect.orgs import tags
from recollect.orgs.settings import CREDENTIAL_LENGTH, PATTERN_LENGTH, PATTERNS, PROMPT_LENGTH
from recollect.sync.item_filter import KEYS as FILTER_KEYS

PatternList = Annotated[
    list[Annotated[Text, Field(min_length=1, max_length=PATTERN_LENGTH)]],
    Field(max_length=PATTERNS),
]


class FilterPatterns(RequestBody):
    url_patterns: PatternList = Field(default_factory=list[str])
    title_patterns: PatternList = Field(default_factory=list[str])


def _patterns(value: object) -> object:
    """The interface's object; also an array of patterns or one pattern, for url and title both."""
    match value:
        case str():
            return {"urlPatterns": [value], "titlePatterns": [value]}
        case list():
            return {"urlPatterns": cast("object", value), "titlePatterns": cast("object", value)}
        case Mapping() | FilterPatterns():
            return cast("object", value)
        case _:
            raise ValueError("an object {urlPatterns, titlePatterns}, patterns, or one pattern")


PatternsIn = Annotated[FilterPatterns, BeforeValidator(_patterns)]
Prompt = Annotated[Text, Field(max_length=PROMPT_LENGTH)]
Credential = Annotated[Text, Field(max_length=CREDENTIAL_LENGTH)]


class Bucket(RequestBody):
    """A group of profile facts."""

    key: Annotated[str, Field(pattern=tags.BUCKET_KEY)]
    description: Annotated[Text, Field(max_length=tags.BUCKET_LENGTH)] | None = None

    @field_validator("key")
    @classmethod
    def _free(cls, key: str) -> str:
        if key in tags.BUCKETS_OF_THE_SERVICE:
            raise ValueError(f"{key} is a bucket of the service itself")
        return key


def _different(buckets: list[Bucket]) -> list[Bucket]:
    keys = [bucket.key for bucket in buckets]
    for key in keys:
        if keys.count(key) > 1:
            raise ValueError(f"names {key} twice")
    return buckets


_Kind = tuple[Any, Any]
"""of a field of settings: its type and its default"""
BucketsIn = Annotated[list[Bucket], Field(max_length=50), AfterValidator(_different)]


def _of_applications(flag: _Kind, id: _Kind, secret: _Kind) -> dict[str, Any]:
    """Fields for the OAuth applications."""

    def described(kind: _Kind, said: str, *examples: str) -> _Kind:
        return Annotated[kind[0], Field(description=said, examples=[*examples] or None)], kind[1]

    found: dict[str, Any] = {}
    for one, users in connectors.applications().items():
        names = " and ".join(user.name for user in users)
        app = f"of your own {one.name} app"
        found |= {
            one.setting("CustomKeyEnabled"): described(flag, f"Connect {names} by your own app."),
            one.setting("ClientId"): described(id, f"Client id {app}.", "8a61f9b3a7aba766"),
            one.setting("ClientSecret"): described(
                secret, f"Client secret {app}; answers mask it.", "…"
            ),
        }
    return found


class _CommonPatch(RequestBody):
    model_config = example(
        shouldLLMFilter=False, excludeItems={"urlPatterns": ["*/drafts/*"], "titlePatterns": []}
    )

    should_llm_filter: Annotated[bool | None, Field(alias="shouldLLMFilter")] = None
    include_items: PatternsIn | None = None
    exclude_items: PatternsIn | None = None
    filter_prompt: Prompt | None = None
    workspace_prompt: Prompt | None = None
    keep_versions: int | None = Field(None, ge=0, le=documents.MOST_KEPT)
    # As wide as the published clients take it to be; nothing reads it.
    chunk_size: int | None = Field(None, ge=-(2**31), lt=2**31)
    profile_buckets: BucketsIn | None = None


class SettingsPatch(
    create_model(
        "_Patch",
        __base__=_CommonPatch,
        **_of_applications(
            flag=(bool | None, None), id=(Credential | None, None), secret=(Credential | None, None)
        ),
    )
):
    """Any of them; null clears."""

    def given(self) -> dict[str, Any]:
        """What the caller named, null included, on the wire's spelling."""
        return self.model_dump(by_alias=True, exclude_unset=True, mode="json")


class FilterPreview(RequestBody):
    """A change of the filter to try out: any of its settings; null clears, absent stays."""

    model_config = example(
        excludeItems={"urlPatterns": [], "titlePatterns": ["Draft *"]}, examples=5
    )

    should_llm_filter: Annotated[bool | None, Field(alias="shouldLLMFilter")] = None
    include_items: PatternsIn | None = None
    exclude_items: PatternsIn | None = None
    filter_prompt: Prompt | None = None
    connection_id: Text | None = Field(default=None, description="Only this one; all if absent.")
    ask: bool = Field(
        default=False,
        description="Have the model judge up to 50 things that it never judged by this prompt.",
    )
    examples: int = Field(default=10, ge=0, le=100, description="Of each effect and connection.")

    def given(self) -> dict[str, Any]:
        """The settings that the caller named, null included, on the wire's spelling."""
        every = self.model_dump(by_alias=True, exclude_unset=True, mode="json")
        return {name: value for name, value in every.items() if name in FILTER_KEYS}


Shown = Annotated[str | None, Field(description="Shown masked.")]
PatternsOut = Annotated[
    dict[str, list[str]] | None, Field(description="{urlPatterns, titlePatterns}, those given.")
]


class _Common(Wire):
    should_llm_filter: Annotated[bool, Field(alias="shouldLLMFilter")]
    include_items: PatternsOut
    exclude_items: PatternsOut
    filter_prompt: str | None
    workspace_prompt: str | None
    keep_versions: int
    chunk_size: int | None
    profile_buckets: list[dict[str, Any]] | None


class SettingsOut(
    create_model(
        "_Settings",
        __base__=_Common,
        **_of_applications(flag=(bool, ...), id=(str | None, ...), secret=(Shown, ...)),
    )
):
    """All of them; what nobody set is null or false."""


class SettingsChanged(Wire):
    org_id: str
    org_slug: str
    updated: SettingsOut
    warnings: list[str] | None = WARNINGS


class FilterExample(Wire):
    effect: Literal["add", "drop", "undecided"]
    id: str
    title: str | None
    url: str | None
    before: str | None = Field(description="What was noted when it was seen last.")
    reason: str | None = Field(description="What this filter says: a pattern, the model's word.")


class FilterEffect(Wire):
    """What a filter does to the things that one connection remembers."""

    connection_id: str
    provider: str
    known: int = Field(description="Things that are documents, or that a filter kept out.")
    adds: int = Field(description="Kept out now; a sync would let them in, if there is room.")
    drops: int = Field(description="Documents that would be refused were they new. They stay.")
    undecided: int = Field(description="Only the model could say, and it has not.")
    examples: list[FilterExample]


class FilterPreviewed(Wire):
    adds: int
    drops: int
    undecided: int
    asked: int = Field(description="Things that the model was asked about for this answer.")
    connections: list[FilterEffect]
    notes: list[str] = Field(description="Sentences for people.")
    warnings: list[str] | None = WARNINGS
