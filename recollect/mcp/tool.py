"""What a tool of an assistant is, and the arguments that several have.

Descriptions are read by language models: they say when to call, and what to do with the answer.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Annotated, Any, Generic, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import PydanticCustomError, core_schema, from_json

from recollect.ingest import intake
from recollect.mcp.seam import Session

TEXTS: tuple[object, ...] = (str, str | None)
NUMBERS: tuple[object, ...] = (int, float, int | None, float | None)
Tag = Annotated[
    str | None,
    Field(description="Container tag; absent: the one of this session, else what the key allows."),
]
ReadTag = Annotated[
    str | None,
    Field(
        description="Only documents with this container tag; `team:*` means any that begins with"
        " `team:`. Absent: the one of this session, else all that the key may read."
    ),
]


class Arguments(BaseModel):
    """Unknown arguments are refused: a model that invents one should hear of it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _as_meant(cls, given: dict[str, object]) -> dict[str, object]:
        """Models send null, "", {} or [] for what they leave out (czlonkowski/n8n-mcp#774), and
        clients send objects as JSON text."""
        meant: dict[str, object] = {}
        for name, value in given.items():
            field = cls.model_fields.get(name)
            if field is None or field.is_required():
                meant[name] = value
                continue
            if field.annotation not in TEXTS:
                value = _parsed(value)
            if value not in (None, {}, []) and (not isinstance(value, str) or value.strip()):
                meant[name] = value
        return meant

    @field_validator("*", mode="before")
    @classmethod
    def _no_flag_for_a_number(cls, value: object, field: ValidationInfo) -> object:
        """Python takes true for 1, and "no" for false."""
        taken: object = cls.model_fields[field.field_name or ""].annotation
        if taken is bool:
            return intake.flag(value)
        if isinstance(value, bool) and taken in NUMBERS:
            raise PydanticCustomError("number_type", "must be a number, not true or false")
        return value


def _parsed(value: object) -> object:
    if isinstance(value, str) and value.lstrip().startswith("{"):
        with suppress(ValueError):
            return from_json(value, allow_inf_nan=False)
    return value


class ArgumentsSchema(GenerateJsonSchema):
    """Without unions, nulls and titles: some assistants take a union for text, others refuse all
    tools for one, and what need not be sent need not be null."""

    def nullable_schema(self, schema: core_schema.NullableSchema) -> JsonSchemaValue:
        return self.generate_inner(schema["schema"])

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        told = super().default_schema(schema)
        return told if told.get("default") is not None else self.generate_inner(schema["schema"])

    def dict_schema(self, schema: core_schema.DictSchema) -> JsonSchemaValue:
        return {"type": "object", "additionalProperties": True}

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        told = super().model_schema(schema)
        return {word: value for word, value in told.items() if word != "title"}

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False


class ToolAnswer(BaseModel):
    model_config = ConfigDict(frozen=True)


ArgumentsT = TypeVar("ArgumentsT", bound=Arguments)
AnswerT = TypeVar("AnswerT", bound=ToolAnswer)


@dataclass(frozen=True, slots=True)
class Tool(Generic[ArgumentsT, AnswerT]):
    """`read_only`: changes nothing. `destructive`: what it changes cannot be undone.
    `open_world`: reaches beyond this service."""

    name: str
    title: str
    description: str
    arguments: type[ArgumentsT]
    answer: type[AnswerT]
    run: Callable[[Session, ArgumentsT], Awaitable[AnswerT]]
    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False
    open_world: bool = False
    names: Mapping[str, str] = field(default_factory=dict[str, str])
    """what the API calls arguments that only this tool calls otherwise"""
