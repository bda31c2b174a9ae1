"""Retrieval over long conversations: do the turns that hold the answer come up?

The data is LoCoMo (Maharana et al., ACL 2024; CC BY-NC 4.0: for evaluation only), which is neither
part of this repository nor downloaded: `--data FILE` names `data/locomo10.json` of
github.com/snap-research/locomo. Without it this part says nothing.

Each conversation is a container tag. Its sessions go through `POST /v4/conversations`, with their
date as the first message and then a message for each turn (the speaker's name; the caption of a
picture in brackets), and the service cuts, weighs and embeds them with its default settings. Then
each question is searched in its tag as `POST /v3/search` does it: by words alone, by vectors alone,
and by both. No model judges: a question names the turns that its answer stands in, and a turn has
come up when most of it stands in a chunk that did.

recall@k is the mean, over the questions, of the share of such turns (of the sessions that they are
in) that the first k chunks (documents) hold. Questions that the data marks as unanswerable, and
those that name no turn that there is, are left out.
"""

import json
import re
import statistics
import urllib.parse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench.figures import Figure
from bench.fill import default_tenant, open_database
from bench.ground import Client, Ground, until
from recollect import documents
from recollect.db import Database
from recollect.model import DocumentId, Tenant
from recollect.search import hybrid
from recollect.search.hybrid import Query

CUTS = (1, 5, 10, 20)
"""chunks, or documents, that are looked at"""
UNANSWERABLE = 5
KINDS = {1: "several places", 2: "time", 3: "what follows", 4: "one place"}
"""categories of questions, as the authors' own evaluation takes them"""
SIDES = ("words", "vectors", "both")
NEXT_TURN = re.compile(r"\n\n(?! )")
"""as `api/conversations.py` writes them"""
EVIDENCE = re.compile(r"D(\d+):(\d+)")
"""some questions name several turns in one word, or with zeros before"""


@dataclass(frozen=True, slots=True)
class Size:
    conversations: int
    questions: int
    """of each conversation at most"""


FULL = Size(conversations=10, questions=10_000)
QUICK = Size(conversations=3, questions=60)
TINY = Size(conversations=1, questions=2)


@dataclass(frozen=True, slots=True)
class Session:
    name: str
    date: str
    turns: Mapping[str, tuple[str, str]]
    """who says what, by the id of the turn"""


@dataclass(frozen=True, slots=True)
class Question:
    text: str
    kind: int
    evidence: Sequence[str]
    """ids of turns"""


@dataclass(frozen=True, slots=True)
class Conversation:
    tag: str
    sessions: Sequence[Session]
    questions: Sequence[Question]


@dataclass(frozen=True, slots=True)
class Found:
    """What came up of a question's evidence: the place of the first chunk, and document, with each
    turn, and session; None: it did not."""

    kind: int
    turns: Sequence[int | None]
    sessions: Sequence[int | None]


def measure(ground: Ground, size: Size, data: Path | None = None) -> Iterator[Figure]:
    if data is None:
        return
    conversations = load(data, size)
    client = ground.service.client()
    for conversation in conversations:
        for session in conversation.sessions:
            client.send("POST", "/v4/conversations", wire(conversation, session))
    until(client.drained, within=3_600)
    found: dict[str, list[Found]] = {side: [] for side in SIDES}
    with open_database(ground.service.database_url) as db:
        tenant = default_tenant(db)
        for conversation in conversations:
            spans = stored(db, client, tenant, conversation)
            for question in conversation.questions:
                [vector] = ground.embedder.embed([question.text], query=True)
                for side, words, meaning in (
                    ("words", question.text, None),
                    ("vectors", "", vector),
                    ("both", question.text, vector),
                ):
                    query = Query(words, meaning, tags=[conversation.tag], limit=CUTS[-1])
                    found[side].append(_found(db, tenant, query, spans, question))
    yield from figures(found)


def load(data: Path, size: Size) -> list[Conversation]:
    """Raises SystemExit when the file is not that set."""
    try:
        given: list[dict[str, Any]] = json.loads(data.read_bytes())
        return [_conversation(one, size) for one in given[: size.conversations]]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise SystemExit(f"{data} is not locomo10.json: {type(error).__name__}: {error}") from error


def wire(conversation: Conversation, session: Session) -> dict[str, Any]:
    """The session as `POST /v4/conversations` takes it."""
    said = list(session.turns.values())
    return {
        "conversationId": id_of(conversation, session),
        "containerTags": [conversation.tag],
        "messages": [
            {"role": "system", "content": session.date},
            *(
                {
                    "role": "user" if speaker == said[0][0] else "assistant",
                    "name": speaker.replace(" ", "_"),
                    "content": words,
                }
                for speaker, words in said
            ),
        ],
    }


def id_of(conversation: Conversation, session: Session) -> str:
    return f"{conversation.tag}-{session.name}"


Spans = Mapping[str, tuple[DocumentId, int, int]]
"""where a turn stands: the document of its session, and from where to where"""


def stored(db: Database, client: Client, tenant: Tenant, conversation: Conversation) -> Spans:
    """Raises RuntimeError when a document has not as many turns as its session."""
    spans: dict[str, tuple[DocumentId, int, int]] = {}
    for session in conversation.sessions:
        name = urllib.parse.quote(id_of(conversation, session))
        id = DocumentId(client.document(name)["id"])
        with db.begin() as tx:
            text = documents.get(tx, tenant, id, with_text=True).text or ""
        borders = [0, *(found.start() for found in NEXT_TURN.finditer(text)), len(text)]
        said = list(pairwise(borders))[1:]  # without the date
        if len(said) != len(session.turns):
            raise RuntimeError(f"{name}: {len(said)} turns, not {len(session.turns)}")
        for turn, (start, end) in zip(session.turns, said, strict=True):
            spans[turn] = (id, start, end)
    return spans


def figures(found: Mapping[str, Sequence[Found]]) -> Iterator[Figure]:
    for what in ("turns", "sessions"):
        for cut in CUTS:
            values = {side: recall(found[side], what, cut) for side in SIDES}
            singles = max(values["words"], values["vectors"], 1e-9)
            for side in SIDES:
                yield Figure(
                    f"locomo.{what}.{cut}.{side}",
                    f"{what} by {side}, {len(found[side])} questions",
                    values[side],
                    f"recall@{cut}",
                    values[side] / singles,
                    "best single side",
                )
    for kind, name in KINDS.items():
        some = {side: [one for one in found[side] if one.kind == kind] for side in SIDES}
        if some["both"]:
            values = {side: recall(some[side], "turns", 10) for side in SIDES}
            yield Figure(
                f"locomo.turns.10.both.{kind}",
                f"turns by both, {name}, {len(some['both'])} questions"
                f" (words {values['words']:.3f}, vectors {values['vectors']:.3f})",
                values["both"],
                "recall@10",
                values["both"] / max(values["words"], values["vectors"], 1e-9),
                "best single side",
            )


def recall(found: Sequence[Found], what: str, cut: int) -> float:
    """The mean share of what was wanted that stands among the first `cut`."""
    places = [one.turns if what == "turns" else one.sessions for one in found]
    shares = [sum(p is not None and p <= cut for p in some) / len(some) for some in places]
    return statistics.mean(shares) if shares else 0.0


def _found(db: Database, tenant: Tenant, query: Query, spans: Spans, question: Question) -> Found:
    with db.begin() as tx:
        hits = hybrid.search(tx, tenant, query)
    chunks = [(hit.document.id, chunk) for hit in hits for chunk in hit.chunks]
    best = sorted(chunks, key=lambda one: -one[1].score)
    order = [hit.document.id for hit in hits]
    turns: list[int | None] = []
    for id, start, end in (spans[turn] for turn in question.evidence):
        holding = (
            place
            for place, (of, chunk) in enumerate(best, 1)
            if of == id and min(chunk.end, end) - max(chunk.start, start) > (end - start) / 2
        )
        turns.append(next(holding, None))
    wanted = dict.fromkeys(spans[turn][0] for turn in question.evidence)
    sessions = [order.index(id) + 1 if id in order else None for id in wanted]
    return Found(question.kind, turns, sessions)


def _conversation(given: Mapping[str, Any], size: Size) -> Conversation:
    said = given["conversation"]
    sessions: list[Session] = []
    for name, turns in said.items():
        if re.fullmatch(r"session_\d+", name) and turns:
            told = {turn["dia_id"]: (turn["speaker"], _words(turn)) for turn in turns}
            sessions.append(Session(name, said[f"{name}_date_time"], told))
    there = {turn for session in sessions for turn in session.turns}
    questions: list[Question] = []
    for one in given["qa"]:
        named = [f"D{int(s)}:{int(t)}" for s, t in EVIDENCE.findall(" ".join(one["evidence"]))]
        evidence = [turn for turn in dict.fromkeys(named) if turn in there]
        if evidence and one["category"] != UNANSWERABLE:
            questions.append(Question(one["question"], one["category"], evidence))
    # Evenly from all of them: they stand by kind.
    step = max(1, -(-len(questions) // size.questions))
    return Conversation(f"locomo-{given['sample_id']}", sessions, questions[::step])


def _words(turn: Mapping[str, Any]) -> str:
    caption = turn.get("blip_caption")
    return turn["text"] + (f" [{caption}]" if caption else "")
