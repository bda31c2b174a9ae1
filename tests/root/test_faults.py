"""What Pydantic finds, in words of ours."""

from datetime import date, datetime
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, ValidationError, field_validator

from recollect.errors import in_words
from recollect.model import Scope


class Asked(BaseModel, extra="forbid"):
    limit: int = Field(10, ge=1, le=10_000)
    score: float = Field(0.5, gt=0, lt=1)
    q: str = Field("a", min_length=1, max_length=3)
    named: str = Field("abc", min_length=2)
    tags: list[Annotated[str, Field(max_length=5)]] = Field(["a"], min_length=1, max_length=2)
    fine: bool = True
    how: Literal["one", "two"] = "one"
    scope: Scope = Scope.READ
    about: dict[str, int] = {}
    at: datetime | None = None
    on: date | None = None
    ours: str = ""

    @field_validator("ours")
    @classmethod
    def _ours(cls, value: str) -> str:
        if value:
            raise ValueError("it rains, or it will")
        return value


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"limit": 0}, "must be at least 1"),
        ({"limit": 10_001}, "must be at most 10,000"),
        ({"limit": "x"}, "must be a whole number"),
        ({"limit": 1.5}, "must be a whole number"),
        ({"limit": None}, "must be a whole number"),
        ({"score": 0}, "must be above 0"),
        ({"score": 1}, "must be below 1"),
        ({"score": "x"}, "must be a number"),
        ({"q": ""}, "must not be empty"),
        ({"q": "abcd"}, "must have at most 3 characters"),
        ({"named": "a"}, "must have at least 2 characters"),
        ({"q": 7}, "must be text"),
        ({"tags": []}, "must not be empty"),
        ({"tags": ["a"] * 3}, "must have at most 2 items, not 3"),
        ({"tags": "a"}, "must be a list"),
        ({"tags": ["abcdef"]}, "must have at most 5 characters"),
        ({"fine": "perhaps"}, "must be true or false"),
        ({"how": "three"}, "must be 'one' or 'two'"),
        ({"scope": "all"}, "must be 'read', 'write' or 'admin'"),
        ({"about": []}, "must be an object"),
        ({"about": {"a": "b"}}, "must be a whole number"),
        ({"at": "noon"}, "must be a time, such as 2026-11-22T12:36:05Z"),
        ({"on": "noon"}, "must be a date, such as 2026-11-22"),
        ({"ours": "x"}, "it rains, or it will"),
        ({"other": 1}, "unknown field"),
    ],
)
def test_a_fault_is_said_in_words_of_ours(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Asked.model_validate(given)
    [fault] = caught.value.errors()
    assert in_words(fault) == said


def test_a_missing_field_is_missing() -> None:
    class Wants(BaseModel):
        q: str

    with pytest.raises(ValidationError) as caught:
        Wants.model_validate({})
    assert [in_words(fault) for fault in caught.value.errors()] == ["is missing"]
