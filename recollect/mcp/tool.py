"""What a tool of an assistant is, and the arguments that several have.

Descriptions are read by language models: they say when to call, and what to do with the answer.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from recollect.ingest import intake
from recollect.mcp.seam import Session

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
    """Unknown arguments are refused: a model that invents one should hear of it. Null is the
    default of an argument that has one, as in the API."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, given: Mapping[str, object]) -> Mapping[str, object]:
        filled = {name for name, field in cls.model_fields.items() if not field.is_required()}
        return {
            name: value for name, value in given.items() if value is not None or name not in filled
        }

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
