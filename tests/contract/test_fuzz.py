"""Requests drawn from the OpenAPI document: no 5xx, no undeclared status, answers as declared."""

import os
from typing import Any, cast

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import (
    content_type_conformance,
    not_a_server_error,
    response_schema_conformance,
    status_code_conformance,
)

from tests.conftest import examples

ASKED = os.environ.get("RECOLLECT_FUZZ_EXAMPLES")  # noqa: TID251 # `make fuzz`
EXAMPLES = int(ASKED or examples(change=3, night=30))
"""Of each kind for each operation; three of each, the same in each run, take half a minute."""
FOREIGN = ("Input should", "Field required", "Value error", "Extra inputs", "valid string")
"""How the library that checks requests would say it."""


def says_it_in_words_of_ours(_: object, answer: Any, __: object) -> None:
    if answer.status_code == 400:
        assert not [words for words in FOREIGN if words in answer.text], answer.text


CHECKS: list[Any] = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    says_it_in_words_of_ours,
]


@pytest.fixture
def operations(live_url: str) -> dict[str, Any]:
    schema = schemathesis.openapi.from_url(f"{live_url}/v3/openapi")
    found: Any = [result.ok() for result in cast("Any", schema).get_all_operations()]
    # A stream never ends by itself; see test_events.py. Feedback is 503 by the contract.
    left_out = ("/v3/documents/events", "/feedback")
    return {o.label: o for o in found if o.path not in left_out}


@pytest.mark.costly
@pytest.mark.timeout(900)
@pytest.mark.parametrize("mode", list(GenerationMode))
def test_no_request_breaks_it(operations: dict[str, Any], key: str, mode: GenerationMode):
    for operation in operations.values():
        if mode is GenerationMode.POSITIVE or takes_anything(operation):
            assert requests_of(operation, mode, key) > 0, operation.label


def requests_of(operation: Any, mode: GenerationMode, key: str) -> int:
    """Send some, check each answer, and say how many there were."""
    sent = 0

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    @given(case=operation.as_strategy(generation_mode=mode))
    def send(case: schemathesis.Case) -> None:
        nonlocal sent
        case.query.pop("wait", None)  # it would wait
        case.call_and_validate(headers={"Authorization": f"Bearer {key}"}, checks=CHECKS)
        sent += 1

    send()
    return sent


def takes_anything(operation: Any) -> bool:
    """Without a parameter or a body there is nothing to get wrong."""
    return bool(list(operation.iter_parameters())) or bool(operation.body)
