"""What all bodies and answers are made of: texts, times, bounds, and the names on the wire."""

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from difflib import get_close_matches
from functools import cache
from itertools import chain, islice
from typing import Annotated, Any, Self, TypeVar, cast, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    PlainSerializer,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticCustomError

from recollect.errors import BadRequestError
from recollect.ingest import intake
from recollect.model import Page, storable

MESSAGE_LEVELS = 32
MOST_COMPARED = 100
"""fields that a deletion does not have and that are compared with those that it has"""
MOST_NAMED = 10
LONGEST_NAMED = 100
"""Of the fields that a request has and should not: how many are named, and how much of a name."""


def text(value: str) -> str:
    """Text as PostgreSQL and UTF-8 can hold it: NUL and lone surrogates become U+FFFD."""
    return storable(value)


def _storable(value: object) -> object:
    """`text` before anything else looks at the value."""
    return text(value) if isinstance(value, str) else value


def cleaned(value: object) -> object:
    """`text` at any depth of a JSON value."""
    return _cleaned_to(value, MESSAGE_LEVELS)


def _cleaned_to(value: object, levels: int) -> object:
    if levels == 0:
        raise ValueError(f"nests deeper than {MESSAGE_LEVELS} levels")
    match value:
        case str():
            return text(value)
        case list():
            elements = cast("list[object]", value)
            return [_cleaned_to(element, levels - 1) for element in elements]
        case dict():
            pairs = cast("dict[str, object]", value).items()
            return {text(key): _cleaned_to(element, levels - 1) for key, element in pairs}
        case _:
            return value


def _moment(value: object) -> object:
    """A date or a timestamp; without a zone it is UTC."""
    if isinstance(value, datetime):
        return value
    if isinstance(value, str):
        try:
            if len(value) == 10:
                found = date.fromisoformat(value)
                return datetime(found.year, found.month, found.day, tzinfo=UTC)
            moment = datetime.fromisoformat(value)
            # Years 1 to 9999, in UTC too: else it could be stored, but never be read again.
            return moment.astimezone(UTC) if moment.tzinfo else moment.replace(tzinfo=UTC)
        except (ValueError, OverflowError) as error:
            raise ValueError("a date YYYY-MM-DD or an ISO 8601 timestamp") from error
    raise ValueError("a date YYYY-MM-DD or an ISO 8601 timestamp")


def json_text(value: object) -> object:
    """An object, or JSON text of one (multipart fields, and filters of older clients)."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError) as error:
        raise ValueError("must be JSON") from error


def not_blank(value: str) -> str:
    if not value.strip():
        raise ValueError("must not be empty")
    return value


Text = Annotated[str, BeforeValidator(_storable)]
Flag = Annotated[bool, BeforeValidator(intake.flag)]
"""in a query; in a body every `bool` is one"""
Id = Annotated[Text, Field(description="Id or customId.")]
CustomId = Annotated[str, Field(min_length=1, max_length=255), AfterValidator(intake.plain)]
Label = Annotated[str, Field(min_length=1, max_length=1000), AfterValidator(intake.plain)]
EntityContext = Annotated[Text, Field(max_length=1500)]
Moment = Annotated[
    datetime,
    BeforeValidator(_moment),
    WithJsonSchema({"type": "string", "examples": ["2026-11-20"]}),
]
AsOf = Annotated[
    Moment | None, Field(description="Search what was known then, of texts that are kept.")
]
MetadataIn = Annotated[
    dict[str, Any],
    BeforeValidator(json_text),
    AfterValidator(intake.metadata),
    WithJsonSchema(
        {
            "type": "object",
            "additionalProperties": {
                "anyOf": [{"type": "string"}, {"type": "number"}, {"type": "boolean"}]
            },
            "examples": [{"source": "wiki", "year": 2026, "public": True}],
        }
    ),
]
TagsIn = Annotated[list[str], Field(max_length=100)]
FiltersIn = Annotated[
    Any,
    WithJsonSchema(
        {
            "anyOf": [{"type": "object"}, {"type": "string"}],
            "description": "`{AND: [condition, …]}` or `{OR: [condition, …]}`, as an object or as"
            " JSON text; a part may be such an object itself. A condition has `key`, `value` and"
            " perhaps `filterType`: `metadata` (the value is the same; the default),"
            " `string_contains` (the text contains it), `array_contains` (the array holds it), or"
            " `numeric` (the number compares by `numericOperator`: `=`, `<`, `<=`, `>` or `>=`)."
            " `negate: true` inverts a condition; `ignoreCase: true` ignores case.",
        }
    ),
]
Timestamp = Annotated[
    datetime,
    PlainSerializer(
        lambda moment: moment.astimezone(UTC).isoformat(timespec="milliseconds")[:23] + "Z",
        return_type=str,
    ),
    WithJsonSchema({"type": "string", "format": "date-time"}, mode="serialization"),
]
ABSENT: Any = Field(default=None, exclude_if=lambda value: value is None)


def absent() -> Any:
    """A field that is left out without a value."""
    return ABSENT


WARNINGS: Any = Field(
    default=None,
    description="What was asked for and not done, and why.",
    exclude_if=lambda value: value is None,
)
PLACE: Any = Field(
    description="Where it stands in the original, what applies: page, sheet, row, time (seconds),"
    " message, heading (the path of headings); …End where it goes on to another.",
    examples=[{"page": 3, "heading": ["Setup", "Linux"]}],
)


class Wire(BaseModel):
    """camelCase outside, snake_case inside."""

    model_config = ConfigDict(
        alias_generator=to_camel, populate_by_name=True, extra="ignore", frozen=True
    )


def _kinds(annotation: object) -> Iterator[object]:
    """The types that an annotation names, those of a union one by one."""
    yield annotation
    for one in get_args(annotation):
        yield from _kinds(one)


WireT = TypeVar("WireT", bound=Wire)


class RequestBody(Wire):
    """What a caller sends: null in a field that has a default means the default."""

    _passed_over: tuple[str, ...] = ()

    @model_validator(mode="wrap")
    @classmethod
    def _without_nulls(cls, given: object, handler: ModelWrapValidatorHandler[Self]) -> Self:
        if not isinstance(given, dict):
            return handler(given)
        known, filled = _spellings(cls)
        pairs = cast("dict[str, object]", given)
        made = handler(
            {
                name: value
                for name, value in pairs.items()
                if value is not None or name not in filled
            }
        )
        made._passed_over = tuple(name for name in pairs if name not in known)
        return made

    def passed_over(self) -> list[str] | None:
        """A sentence for each field that the request does not have, the first ten, or None."""
        some = islice(self._unknown(""), MOST_NAMED)
        ends = ((name, f"; did you mean {near}?" if near else ".") for name, near in some)
        return [f"{name}: no such field, ignored{end}" for name, end in ends] or None

    def warned(self, answer: WireT) -> WireT:
        """The answer with those sentences as its `warnings`."""
        return answer.model_copy(update={"warnings": self.passed_over()})

    def refuse_slips(self) -> None:
        """For what cannot be undone, and would go further without the field that was misspelt.
        Raises BadRequestError."""
        for name, near in islice(self._unknown(""), MOST_COMPARED):
            if near:
                raise BadRequestError(f"{name}: no such field; did you mean {near}?")

    def _unknown(self, place: str) -> Iterator[tuple[str, str | None]]:
        """Its own fields that the request does not have, with the most similar one, then those of
        the objects in it; `place` is where it stands itself."""
        names = {name: field.alias or name for name, field in type(self).model_fields.items()}
        by_lower = {name.lower(): name for name in names.values()}
        for given in self._passed_over:
            near = get_close_matches(given.lower()[:LONGEST_NAMED], by_lower, 1, cutoff=0.75)
            yield place + text(given[:LONGEST_NAMED]), by_lower[near[0]] if near else None
        for name, value in self:
            many = isinstance(value, list)
            for number, one in enumerate(cast("list[object]", value) if many else [value]):
                if isinstance(one, RequestBody):
                    within = f"{place}{names[name]}." + (f"{number}." if many else "")
                    yield from one._unknown(within)

    @field_validator("*", mode="before")
    @classmethod
    def _no_flag_for_a_number(cls, value: object, field: ValidationInfo) -> object:
        """Python takes true for 1, and "no" for false; a caller does not."""
        if isinstance(value, bool | int | float | str):
            kinds = {*_kinds(cls.model_fields[field.field_name or ""].annotation)}
            if isinstance(value, bool) and kinds & {int, float} and bool not in kinds:
                raise PydanticCustomError("number_type", "must be a number, not true or false")
            if bool in kinds and not kinds & {int, float, str}:
                return intake.flag(value)
        return value


@cache
def _spellings(model: type[BaseModel]) -> tuple[frozenset[str], frozenset[str]]:
    """Names of all fields, and of those in which null means the default."""
    fields = model.model_fields
    filled = [
        (name, field.alias or name)
        for name, field in fields.items()
        if not field.is_required() and field.default is not None
    ]
    known = fields.keys() | {field.alias or name for name, field in fields.items()}
    return frozenset(known), frozenset(chain.from_iterable(filled))


def example(**body: Any) -> ConfigDict:
    """Shown in the OpenAPI document."""
    return ConfigDict(json_schema_extra={"examples": [body]})


class Pagination(Wire):
    current_page: int
    limit: int
    total_items: int
    total_pages: int

    @classmethod
    def of(cls, page: Page[Any]) -> Self:
        return cls(
            current_page=page.number,
            limit=page.limit,
            total_items=page.total,
            total_pages=-(-page.total // page.limit),
        )
