"""The benchmark of long conversations, on one that is written here: none of the set's is kept."""

import json
from pathlib import Path
from typing import Any

import pytest

from bench import locomo
from bench.__main__ import main
from bench.ground import Ground
from bench.locomo import FULL, TINY, Found, Size, load, recall, wire


def turn(id: str, speaker: str, text: str, **more: str) -> dict[str, str]:
    return {"dia_id": id, "speaker": speaker, "text": text, **more}


SAMPLE: dict[str, Any] = {
    "sample_id": "conv-1",
    "conversation": {
        "speaker_a": "Ann",
        "speaker_b": "Bo",
        "session_1_date_time": "1 May 2031",
        "session_1": [
            turn("D1:1", "Ann", "I saw a heron\n\nat the pond.", blip_caption="a grey bird"),
            turn("D1:2", "Bo", "Lovely."),
        ],
        "session_2_date_time": "2 May 2031",
        "session_2": [turn("D2:1", "Bo", "I moved to Bonn.")],
        "session_3_date_time": "3 May 2031",
        "session_3": [],
    },
    "qa": [
        {"question": "What did Ann see at the pond?", "category": 4, "evidence": ["D1:1"]},
        {"question": "Who moved, who liked it?", "category": 1, "evidence": ["D1:2; D2:01"]},
        {"question": "What does nobody know?", "category": 5, "evidence": ["D1:1"]},
        {"question": "Where is it?", "category": 4, "evidence": ["D", "D9:9"]},
    ],
}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    file = tmp_path / "locomo10.json"
    file.write_text(json.dumps([SAMPLE]))
    return file


def test_questions_that_can_be_found_are_asked(data: Path):
    [conversation] = load(data, FULL)

    assert [question.evidence for question in conversation.questions] == [
        ["D1:1"],
        ["D1:2", "D2:1"],
    ]
    assert [session.name for session in conversation.sessions] == ["session_1", "session_2"]
    messages = wire(conversation, conversation.sessions[0])["messages"]
    assert messages[0] == {"role": "system", "content": "1 May 2031"}
    assert messages[1]["content"] == "I saw a heron\n\nat the pond. [a grey bird]"
    assert [message["role"] for message in messages[1:]] == ["user", "assistant"]
    assert len(load(data, Size(1, 1))[0].questions) == 1


def test_recall_is_the_share_of_what_was_wanted():
    found = [Found(4, [1], [1]), Found(1, [7, None], [2, 3]), Found(2, [None], [None])]

    assert recall(found, "turns", 1) == pytest.approx(1 / 3)
    assert recall(found, "turns", 10) == pytest.approx(1.5 / 3)
    assert recall(found, "sessions", 2) == pytest.approx(1.5 / 3)


def test_another_file_is_refused_and_none_is_said(tmp_path: Path, capsys: Any):
    wrong = tmp_path / "x.json"
    wrong.write_text('[{"qa": 1}]')
    with pytest.raises(SystemExit, match="is not locomo10"):
        load(wrong, TINY)
    with pytest.raises(SystemExit):
        main(["locomo"])
    assert "--data" in capsys.readouterr().err


@pytest.mark.slow
def test_a_conversation_goes_through_the_service(data: Path):
    with Ground() as ground:
        figures = {figure.id: figure.value for figure in locomo.measure(ground, FULL, data)}

    assert figures["locomo.turns.20.both"] == 1
    assert figures["locomo.sessions.20.both"] == 1
    assert figures["locomo.turns.5.words"] > 0
