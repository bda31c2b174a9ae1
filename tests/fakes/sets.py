"""Sets in the formats of the public ones, written for tests: none of the real ones is kept."""

import json
from pathlib import Path
from typing import Any

TEXTS = {
    "en": ("The heron eats frogs in the pond.", "Bread is made of flour and water."),
    "de": ("Der Reiher frisst Frösche im Teich.", "Brot besteht aus Mehl und Wasser."),
    "ru": ("Цапля ест лягушек в пруду.", "Хлеб делают из муки и воды."),
    "zh": ("苍鹭在池塘里吃青蛙。", "面包由面粉和水制成。"),
}
ASKED = {
    "en": (("What does the heron eat?", "frogs"), ("What is bread made of?", "flour and water")),
    "de": (("Was frisst der Reiher?", "Frösche"), ("Woraus besteht Brot?", "Mehl und Wasser")),
    "ru": (("Что ест цапля?", "лягушек"), ("Из чего делают хлеб?", "муки и воды")),
    "zh": (("苍鹭吃什么?", "青蛙"), ("面包由什么制成?", "面粉和水")),
}
CRAN_TEXTS = """.I 1
.T
wings in a slipstream
.A
a person
.W
wings in a slipstream
the lift of wings in a slipstream was measured .
.I 2
.T
heat of slabs
.W
heat of slabs
how slabs of two metals conduct heat .
.I 3
.T
.A
.W
"""
CRAN_ASKED = ".I 001\n.W\nlift of a wing\n.I 004\n.W\nheat in slabs\n"
CRAN_JUDGED = "1 1 2 \n2 2 3 \n2 1 -1\n"


def turn(id: str, speaker: str, text: str, **more: str) -> dict[str, str]:
    return {"dia_id": id, "speaker": speaker, "text": text, **more}


TALK: dict[str, Any] = {
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


def write(folder: Path) -> Path:
    """One of each public set, under the name of its file."""
    for language in TEXTS:
        (folder / f"xquad.{language}.json").write_text(json.dumps(squad(language)))
    (folder / "200423_covidQA.json").write_text(json.dumps(squad("en")))
    (folder / "cran.all.1400").write_text(CRAN_TEXTS)
    (folder / "cran.qry").write_text(CRAN_ASKED)
    (folder / "cranqrel").write_text(CRAN_JUDGED)
    (folder / "locomo10.json").write_text(json.dumps([TALK]))
    return folder


def squad(language: str) -> dict[str, Any]:
    paragraphs = [
        {
            "context": text,
            "qas": [
                {"question": asked, "answers": [{"text": answer}]},
                {"question": "Who knows?", "answers": []},
            ],
        }
        for text, (asked, answer) in zip(TEXTS[language], ASKED[language], strict=True)
    ]
    return {"data": [{"paragraphs": paragraphs}]}
