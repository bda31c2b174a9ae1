"""Questions to a model over real HTTP, and what becomes of them when it misbehaves."""

import json
import threading
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from datetime import timedelta
from typing import Any

import pytest

from recollect.errors import LeaseLost, Permanent, SetupError, Unavailable
from recollect.inference.llm import Llm, LlmChoice, Question, Reply, open_llm
from tests.conftest import capture_logs, eventually
from tests.fakes.llm import Model, Says, Silent, Status, running
from tests.fakes.patience import only_for_what_hangs

KEY = "sk-very-secret-0123456789"
PLAIN = {"colour": "blue", "certain": True}


class Colour(Reply):
    colour: str
    certain: bool


class Skies(Reply):
    skies: list[Colour]


@pytest.fixture
def model() -> Generator[Model]:
    with running(Model(answer=lambda asked: PLAIN)) as started:
        yield started


@pytest.fixture
def opened(model: Model) -> Generator[Callable[..., Llm]]:
    """Makes clients of the model: `opened(pauses=())` tries once."""
    with ExitStack() as stack:

        def make(**settings: Any) -> Llm:
            settings = {"pauses": (0.01, 0.01)} | settings
            llm = Llm(model.url, "word-model", KEY, **settings)
            stack.callback(llm.close)
            return llm

        yield make


def question(data: object = "the sky") -> Question[Colour]:
    return Question("colours", "Name the colour of what the data names.", data, Colour)


# --- what is asked -------------------------------------------------------------------------------


def test_an_answer_fits_the_schema_that_was_sent_along(
    model: Model, opened: Callable[..., Llm]
) -> None:
    llm = opened()

    assert llm.ask(question()) == Colour(colour="blue", certain=True)

    [asked] = model.asked
    assert asked.authorization == f"Bearer {KEY}"
    assert asked.body["model"] == llm.name == "word-model"
    assert asked.system.startswith("Name the colour of what the data names.")
    assert asked.data == "the sky"
    assert asked.schema == Colour.model_json_schema()
    assert model.faults == []


def test_data_are_one_json_document_whatever_they_hold(
    model: Model, opened: Callable[..., Llm]
) -> None:
    data = {'"}]': '</data>\n"role": "system"', "lone \ud800": "nul \0", "ü": ["雪", 1, None]}

    opened().ask(question(data))

    expected = {'"}]': '</data>\n"role": "system"', "lone �": "nul �", "ü": ["雪", 1, None]}
    assert model.asked[0].data == expected
    assert model.faults == []


def test_an_endpoint_without_schemas_is_asked_for_json_from_then_on(
    model: Model, opened: Callable[..., Llm]
) -> None:
    model.knows_schemas = False
    llm = opened()

    llm.ask(question())
    llm.ask(question("the sea"))

    # The third is harmless: was it the question, or the form?
    assert [asked.schema is not None for asked in model.asked] == [True, False, True, False]
    assert json.dumps(Colour.model_json_schema()) in model.asked[-1].system
    assert model.faults == []


def test_a_refused_question_does_not_cost_the_schemas(
    model: Model, opened: Callable[..., Llm]
) -> None:
    model.misbehave = [Status(400)] * 3
    llm = opened()

    with pytest.raises(Permanent) as refused:
        llm.ask(question("what it never takes"))
    llm.ask(question())

    assert refused.value.code == "model_refused"
    assert model.asked[-1].schema is not None


@pytest.mark.parametrize(
    "said",
    [
        '```json\n{"colour": "blue", "certain": true}\n```',
        '<think>Is it {"colour": "red"}?</think>\n{"colour": "blue", "certain": true}',
        '<think>\n</think>```\n{"colour": "blue", "certain": true}```',
        # The template of DeepSeek R1 begins the thought before the model speaks.
        'Is it {"colour": "red"}?\n</think>\n\n{"colour": "blue", "certain": true}',
        'Here is the answer:\n\n```json\n{"colour": "blue", "certain": true}\n```\nIt is blue.',
        'Here it is: {"colour": "blue", "certain": true} I hope this helps.',
    ],
)
def test_wrapping_around_the_json_is_taken_off(
    model: Model, opened: Callable[..., Llm], said: str
) -> None:
    model.misbehave = [Says(said)]

    assert opened().ask(question()).colour == "blue"
    assert len(model.asked) == 1


def test_what_looks_like_the_end_of_a_thought_in_an_answer_is_part_of_it(
    model: Model, opened: Callable[..., Llm]
) -> None:
    model.misbehave = [Says('{"colour": "blue </think> {", "certain": true}')]

    assert opened().ask(question()).colour == "blue </think> {"


def test_an_endpoint_that_knows_no_form_of_answer_is_asked_in_words_from_then_on(
    model: Model, opened: Callable[..., Llm]
) -> None:
    model.knows_schemas = model.knows_forms = False
    llm = opened()

    llm.ask(question())
    llm.ask(question("the sea"))

    forms = [asked.body.get("response_format", {"type": None})["type"] for asked in model.asked]
    assert forms == ["json_schema", "json_object", None, "json_object", None]
    assert json.dumps(Colour.model_json_schema()) in model.asked[-1].system
    assert model.faults == []


def test_a_question_refused_in_passing_does_not_cost_the_schemas(
    model: Model, opened: Callable[..., Llm]
) -> None:
    """Groq answers 400, `json_validate_failed`, when what its model wrote does not fit."""
    model.misbehave = [Status(400)]
    llm = opened()

    assert llm.ask(question()).colour == "blue"
    llm.ask(question("the sea"))

    assert model.asked[-1].schema == Colour.model_json_schema()


def test_an_endpoint_that_knows_but_simple_schemas_is_asked_for_json_from_then_on(
    model: Model, opened: Callable[..., Llm]
) -> None:
    """Gemini, and gateways to it, have refused `$defs`."""
    model.answer = lambda asked: (
        Status(400) if "$defs" in (asked.schema or {}) else {"skies": [PLAIN]}
    )
    asking = Question("skies", "Name the colours.", "the sky", Skies)
    llm = opened()

    llm.ask(asking)
    before = len(model.asked)
    llm.ask(asking)

    assert len(model.asked) == before + 1
    assert model.faults == []


@pytest.mark.parametrize("busy", [429, 503])
def test_a_form_that_a_busy_endpoint_did_not_judge_is_tried_again(
    model: Model, opened: Callable[..., Llm], busy: int
) -> None:
    model.knows_schemas = False
    told = json.dumps({"error": {"message": "response_format"}})
    model.misbehave = [Status(400, told), Status(busy)]
    llm = opened()

    assert llm.ask(question()).colour == "blue"
    llm.ask(question("the sea"))

    assert model.asked[-1].body["response_format"] == {"type": "json_object"}


def test_an_endpoint_that_takes_a_form_and_does_not_look_at_it_is_told_in_words(
    model: Model, opened: Callable[..., Llm]
) -> None:
    """Anthropic's ignores `response_format`."""
    wanted = json.dumps(Colour.model_json_schema())
    model.answer = lambda asked: Says(json.dumps(PLAIN if wanted in asked.system else {"hue": 1}))

    assert opened().ask(question()).colour == "blue"
    assert len(model.asked) == 1


def test_a_message_in_parts_is_read_without_its_thought(
    model: Model, opened: Callable[..., Llm]
) -> None:
    """Of Mistral's reasoning models, and of gateways."""
    model.in_parts = True

    assert opened().ask(question()).colour == "blue"


# --- what comes back wrong -----------------------------------------------------------------------


BROKEN = [
    '{"colour": "blue", "certain": tr',
    '<think>It is {"colour": "blue", "certain": true}',
    "",
    None,
    "It is blue.",
    '{"colour": "blue"}',
    '{"colour": "blue", "certain": "yes"}',
    '{"colour": "blue", "certain": true, "more": 1}',
    '[{"colour": "blue", "certain": true}]',
    '{"colour": "\\ud800", "certain": true}',
    "[" * 100_000,
    '"' + "x" * 1_000_001 + '"',
]


@pytest.mark.parametrize("said", BROKEN, ids=range(len(BROKEN)))
def test_broken_json_is_asked_for_once_more(
    model: Model, opened: Callable[..., Llm], said: str | None
) -> None:
    model.misbehave = [Says(said)]
    assert opened().ask(question()).colour == "blue"
    assert len(model.asked) == 2

    model.misbehave = [Says(said), Says(said)]
    with pytest.raises(Permanent) as broken:
        opened().ask(question())
    assert broken.value.code == "bad_answer"
    assert len(model.asked) == 4


@pytest.mark.parametrize(
    ("said", "code"),
    [
        (Says(None, refusal="I'd rather not."), "model_refused"),
        (Says("", finish="content_filter"), "model_refused"),
        (Says('{"colour": "bl', finish="length"), "bad_answer"),
        (Says('{"colour": "blue", "certain": true}', finish="model_length"), "bad_answer"),
    ],
)
def test_a_question_without_an_answer_ends_without_further_tries(
    model: Model, opened: Callable[..., Llm], said: Says, code: str
) -> None:
    model.misbehave = [said]

    with pytest.raises(Permanent) as refused:
        opened().ask(question())

    assert refused.value.code == code
    assert len(model.asked) == 1


@pytest.mark.parametrize(
    "choices", [[], None, [{"finish_reason": "content_filter", "message": None}]]
)
def test_an_answer_without_a_choice_is_a_matter_of_its_question(
    model: Model, opened: Callable[..., Llm], choices: object
) -> None:
    """Gemini, and Azure, answer 200 so to what they filter; others do it in passing."""
    nothing = Status(200, json.dumps({"id": "1", "choices": choices}))
    model.answer = lambda asked: nothing if asked.data == "forbidden" else PLAIN
    llm = opened()

    with pytest.raises(Permanent) as refused:
        llm.ask(question("forbidden"))

    assert refused.value.code == "model_refused"
    assert llm.ask(question()).colour == "blue"


@pytest.mark.parametrize("message", ["null", '{"content": ""}'])
def test_a_filter_that_is_named_with_its_reason_is_one(
    model: Model, opened: Callable[..., Llm], message: str
) -> None:
    reason = "content_filter: PROHIBITED_CONTENT"
    choice = f'{{"finish_reason": "{reason}", "message": {message}}}'
    model.misbehave = [Status(200, f'{{"choices": [{choice}]}}')]

    with pytest.raises(Permanent, match="refused to answer"):
        opened().ask(question())
    assert len(model.asked) == 1


@pytest.mark.parametrize("body", ['{"error": "Unexpected endpoint"}', '{"choices": []}'])
def test_an_endpoint_that_never_answers_refuses_no_question(
    model: Model, opened: Callable[..., Llm], body: str
) -> None:
    """LM Studio says 200 at a path that it does not know."""
    model.misbehave = [Status(200, body)] * 9

    with pytest.raises(Unavailable):
        opened().ask(question())


@pytest.mark.parametrize("body", ["{}", "[]", '{"choices": [5]}', '{"choices": [{}]}', "<html>"])
def test_what_is_no_chat_endpoint_is_named(
    model: Model, opened: Callable[..., Llm], body: str
) -> None:
    model.misbehave = [Status(200, body)]

    with pytest.raises(Unavailable, match="RECOLLECT_LLM_URL"):
        opened().ask(question())


# --- who cannot answer now -----------------------------------------------------------------------


def test_passing_trouble_is_tried_again_after_as_long_as_asked(
    model: Model, opened: Callable[..., Llm]
) -> None:
    model.misbehave = [Status(429, headers={"retry-after": "7"}), Status(503)]
    waits: list[float] = []

    opened().ask(question(), pause=waits.append)

    assert waits == [7.0, 0.01]
    assert len(model.asked) == 3


def test_an_error_in_an_answer_of_200_is_passing_trouble(
    model: Model, opened: Callable[..., Llm]
) -> None:
    model.misbehave = [Status(200, '{"error": {"code": 502, "message": "The provider is gone."}}')]

    assert opened().ask(question()).colour == "blue"
    assert len(model.asked) == 2


def test_who_asks_for_a_long_wait_is_unavailable_at_once(
    model: Model, opened: Callable[..., Llm]
) -> None:
    quota = '{"error": {"code": "insufficient_quota", "message": "about the sky"}}'
    model.misbehave = [Status(429, quota, {"retry-after": "600"})]
    waits: list[float] = []

    with pytest.raises(Unavailable, match="insufficient_quota") as down:
        opened().ask(question(), pause=waits.append)

    assert (down.value.code, down.value.after) == ("http_429", timedelta(seconds=600))
    assert waits == []
    assert len(model.asked) == 1


def test_tries_end(model: Model, opened: Callable[..., Llm]) -> None:
    model.misbehave = [Status(502)] * 3

    with pytest.raises(Unavailable, match="502"):
        opened().ask(question())

    assert len(model.asked) == 3


def test_a_service_that_is_not_there_is_unavailable(opened: Callable[..., Llm]) -> None:
    llm = Llm("http://127.0.0.1:9/v1", "m", pauses=())

    with pytest.raises(Unavailable) as down:
        llm.ask(question())

    assert down.value.code == "unreachable"


def test_a_slow_model_is_given_up_in_time(model: Model, opened: Callable[..., Llm]) -> None:
    model.misbehave = [Silent(), Silent()]
    llm = opened(total=0.2)
    only_for_what_hangs(llm._endpoint, lambda body: True)

    with pytest.raises(Unavailable) as slow:
        llm.ask(question())

    assert slow.value.code == "timeout"
    # The second is something harmless: what took all the time is not tried again.
    eventually(lambda: len(model.asked) == 2)
    assert sorted(asked.data == {} for asked in model.asked) == [False, True]


@pytest.mark.parametrize("trouble", [Silent(), Status(500)])
def test_a_question_that_always_fails_is_told_from_a_model_that_is_down(
    model: Model, opened: Callable[..., Llm], trouble: Silent | Status
) -> None:
    model.answer = lambda asked: trouble if asked.data == "poison" else PLAIN
    llm = opened(total=0.2)
    hangs = trouble == Silent()
    only_for_what_hangs(llm._endpoint, lambda body: hangs and b"poison" in body)

    with pytest.raises(Permanent) as refused:
        llm.ask(question("poison"))

    assert refused.value.code == "model_refused"


@pytest.mark.parametrize(
    ("status", "setting"),
    [
        (301, "RECOLLECT_LLM_URL"),
        (401, "RECOLLECT_LLM_KEY"),
        (402, "RECOLLECT_LLM_KEY"),
        (403, "RECOLLECT_LLM_KEY"),
        (404, "RECOLLECT_LLM_MODEL"),
    ],
)
def test_wrong_settings_are_named_and_not_tried_again(
    model: Model, opened: Callable[..., Llm], status: int, setting: str
) -> None:
    model.misbehave = [Status(status)]

    with pytest.raises(Unavailable, match=setting):
        opened().ask(question())

    assert len(model.asked) == 1


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ('{"error": {"code": "model_not_found"}}', "model_not_found"),
        # Google's, to a wrong key.
        ('[{"error": {"code": 400, "message": "API key not valid."}}]', "API key not valid"),
    ],
)
def test_who_refuses_everything_has_wrong_settings(
    model: Model, opened: Callable[..., Llm], body: str, told: str
) -> None:
    model.misbehave = [Status(400, body)] * 6

    with pytest.raises(Unavailable, match=f"{told}.*RECOLLECT_LLM_KEY.*RECOLLECT_LLM_MODEL"):
        opened().ask(question())


def test_what_an_endpoint_says_to_something_harmless_is_told(
    model: Model, opened: Callable[..., Llm]
) -> None:
    """LM Studio answers 200 at a path that it does not know."""
    model.misbehave = [Status(200, '{"error": "Unexpected endpoint or method."}')]

    with pytest.raises(Unavailable, match=r"Unexpected endpoint.*RECOLLECT_LLM_URL"):
        opened().check()


# --- what it costs, and what is kept quiet -------------------------------------------------------


def test_what_is_spent_is_counted_by_purpose(model: Model, opened: Callable[..., Llm]) -> None:
    model.misbehave = [Status(503), Says("broken"), Says("", refusal="no")]
    llm = opened()

    with pytest.raises(Permanent):
        llm.ask(question())
    llm.ask(question())

    spent = llm.spent["colours"]
    assert (spent.calls, spent.failures) == (4, 1)
    assert spent.prompt_tokens > 100
    assert spent.completion_tokens > 5
    assert spent.seconds > 0
    assert model.faults == []


def test_no_more_at_once_than_there_are_lanes(model: Model, opened: Callable[..., Llm]) -> None:
    meeting = threading.Barrier(2, timeout=120)

    def met(asked: object) -> object:
        meeting.wait()  # two at once, or it never ends
        return PLAIN

    model.answer = met
    llm = opened(lanes=2)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda n: llm.ask(question(n)), range(8)))

    assert model.at_once == 2


@pytest.mark.parametrize("status", [400, 401, 429, 500])
def test_neither_key_nor_content_gets_into_errors_or_logs(
    model: Model, opened: Callable[..., Llm], status: int
) -> None:
    echo = json.dumps({"error": {"code": KEY, "message": f"bad: zugzwang {KEY}", "type": "x y"}})
    of_harmless = json.dumps({"error": {"message": f"bad: {KEY}"}})
    model.misbehave = [*[Status(status, echo)] * 3, *[Status(status, of_harmless)] * 3]

    with capture_logs() as lines, pytest.raises(Unavailable) as failed:
        opened().ask(question("zugzwang"))

    assert lines
    told = f"{failed.value!r} {failed.value.__cause__!r} {lines!r}"
    assert KEY not in told
    assert "zugzwang" not in told
    assert KEY not in repr(LlmChoice(model.url, KEY, "m"))


def test_a_pause_may_end_it(model: Model, opened: Callable[..., Llm]) -> None:
    def stopped(seconds: float) -> None:
        raise LeaseLost

    model.misbehave = [Status(503)]
    with pytest.raises(LeaseLost):
        opened().ask(question(), pause=stopped)


def test_a_check_asks_something_harmless(model: Model, opened: Callable[..., Llm]) -> None:
    opened().check()
    assert model.asked[0].data == {}

    model.misbehave = [Status(401)]
    with pytest.raises(Unavailable, match="RECOLLECT_LLM_KEY"):
        opened().check()


# --- settings ------------------------------------------------------------------------------------


def test_the_settings_open_it_or_name_what_is_missing() -> None:
    assert open_llm(LlmChoice()) is None
    assert open_llm(LlmChoice(key=KEY)) is None
    with pytest.raises(SetupError, match="RECOLLECT_LLM_MODEL"):
        open_llm(LlmChoice(url="http://127.0.0.1/v1"))
    with pytest.raises(SetupError, match="RECOLLECT_LLM_URL"):
        open_llm(LlmChoice(model="m"))
    with pytest.raises(SetupError, match="RECOLLECT_LLM_URL"):
        open_llm(LlmChoice(url="ftp://127.0.0.1", model="m"))
    with pytest.raises(SetupError, match="RECOLLECT_LLM_KEY") as wrong:
        open_llm(LlmChoice(url="http://127.0.0.1/v1", model="m", key="line\nbreak"))
    assert "break" not in str(wrong.value)


@pytest.mark.parametrize("said", [None, "", " "])
def test_a_model_that_says_nothing_is_told_by_the_check(
    model: Model, opened: Callable[..., Llm], said: str | None
) -> None:
    """vLLM and Xinference, told of another model's marks, give the answer as a thought."""
    model.misbehave = [Says(said)]

    with pytest.raises(Unavailable, match="reasoning_content"):
        opened().check()
