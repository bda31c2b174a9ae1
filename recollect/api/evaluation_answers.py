"""What the operations on test questions answer when all goes well (see `answers`)."""

from collections.abc import Mapping
from typing import Any

_QUESTION: Mapping[str, Any] = {
    "id": "xT7mQ2vK9sLbN4aZ8rYwP3",
    "containerTag": "team:a",
    "question": "When do we meet?",
    "document": "notes/1",
    "words": None,
    "createdAt": "2026-11-23T09:30:00.000Z",
    "updatedAt": "2026-11-23T09:30:00.000Z",
}
_BEGUN: Mapping[str, Any] = {
    "id": "rN5bV8cX1zL4kJ7hG0fD2s",
    "containerTag": "team:a",
    "rerank": False,
    "rewriteQuery": False,
    "createdAt": "2026-11-23T09:31:00.000Z",
    "finishedAt": None,
    "questions": 1,
    "asked": 0,
    "hitAt1": 0.0,
    "hitAt5": 0.0,
    "hitAt10": 0.0,
    "mrr": 0.0,
}
_RUN: Mapping[str, Any] = {
    **_BEGUN,
    "finishedAt": "2026-11-23T09:31:00.084Z",
    "asked": 1,
    "hitAt1": 1.0,
    "hitAt5": 1.0,
    "hitAt10": 1.0,
    "mrr": 1.0,
}

ANSWERS: Mapping[str, Any] = {
    "listTestQuestions": {"questions": [_QUESTION]},
    "makeTestQuestions": {"questions": [_QUESTION]},
    "addTestQuestions": {"questions": [_QUESTION]},
    "importTestQuestions": {"questions": [_QUESTION]},
    "updateTestQuestion": _QUESTION,
    "deleteTestQuestion": {"success": True},
    "listTestRuns": {"runs": [_RUN]},
    "beginTestRun": _BEGUN,
    "stepTestRun": _RUN,
    "getTestRun": {
        "run": _RUN,
        "runBefore": None,
        "results": [
            {
                "questionId": _QUESTION["id"],
                "question": "When do we meet?",
                "asked": True,
                "rank": 1,
                "askedBefore": False,
                "rankBefore": None,
            }
        ],
    },
}
