"""POST /v4/conversations: the turns of a conversation become one document that grows.

A turn is a paragraph that begins with its role; its further lines are indented, so that the text
can be taken apart into the same turns again, whatever someone says in them.
"""

import json
import re
from collections.abc import Sequence
from functools import partial
from itertools import takewhile
from typing import Any

from fastapi import APIRouter

from recollect import documents
from recollect.api.deps import ApiRoute, CurrentApp, Writer, effective_tags
from recollect.api.document_schemas import Conversation, ConversationWritten, Message, public_status
from recollect.documents import NewDocument, merge
from recollect.ingest import intake

router = APIRouter(tags=["conversations"], route_class=ApiRoute)
_BLANK_LINES = re.compile(r"\n{3,}")
_NEXT_TURN = re.compile(r"\n\n(?! )")


@router.post("/v4/conversations", summary="Add to a conversation", operation_id="addConversation")
def add(body: Conversation, tenant: Writer, app: CurrentApp) -> ConversationWritten:
    """Send the whole conversation each time, or only what is new; turns are not doubled.

    A conversation that begins like the stored one and has at least half of its turns, in their
    order, was edited and replaces it; with fewer it is new and comes after it. Instructions of a
    system at the beginning may differ: the new ones take the place of the old. Leaving turns
    out removes nothing. Turns that repeat the last stored ones word for word were sent twice; but a
    single one, when nothing happened to the conversation for ten seconds, was said again.
    """
    turns = [turn(message) for message in body.messages]
    named = effective_tags(tenant, body.container_tag, body.container_tags, default=False)
    new = NewDocument(
        content=documents.text_content("\n\n".join(turns)),
        tags=named or effective_tags(tenant, None, None, default=True),
        tagged=bool(named),
        custom_id=body.conversation_id,
        metadata=intake.flat(app, body.metadata),
        join=partial(join, turns=turns),
    )
    document = intake.put(app, tenant, new, body.entity_context)
    return ConversationWritten(
        id=document.id,
        conversation_id=body.conversation_id,
        status=public_status(document, app.config.status_words),
        warnings=body.passed_over(),
    )


def turn(message: Message) -> str:
    """A message as people read it."""
    who = f"{message.role} {message.name}" if message.name else message.role
    said = [_part(part) for part in _parts(message.content)]
    said += [_call(call) for call in message.tool_calls or ()]
    text = "\n".join(line for line in said if line).strip() or "(nothing)"
    lines = ["  " + line.rstrip() if line.strip() else "" for line in text.splitlines()]
    return f"{who}: " + _BLANK_LINES.sub("\n\n", "\n".join(lines).lstrip())


def join(old: str, new: str, recent: bool, *, turns: Sequence[str]) -> str:
    """The stored turns and those that came, without the ones that both have.

    `recent`: the stored ones came a moment ago, so a turn like the last is a client's retry.
    Takes n log n for n turns.
    """
    stored, sent = _NEXT_TURN.split(old), list(turns)
    if (told := _instructed(stored, sent)) is not None:
        stored, old = told, "\n\n".join(told)
    if sent[: len(stored)] == stored:
        return old if len(sent) == len(stored) else new
    known = merge.overlap(stored, sent)
    if len(sent) == 1:
        return "\n\n".join([*stored, *sent[known if recent else 0 :]])
    if stored[: len(sent)] == sent:
        return old
    head = next(n for n, (a, b) in enumerate(zip(stored, sent, strict=False)) if a != b)
    half = head > 0 and merge.holds_half(stored, sent)
    # The first turns and a window over the last ones: what is between was left out, not taken away.
    window = merge.overlap(stored[head:], sent[head:]) if head else 0
    if window and (half or window > 1):
        known = max(known, head + window)
    elif half and 2 * known < len(stored):
        later = iter(stored)
        part = all(turn in later for turn in sent)
        return old if part else new
    return "\n\n".join([*stored, *sent[known:]])


def _instructed(stored: Sequence[str], sent: Sequence[str]) -> list[str] | None:
    """The stored turns under the instructions that were sent, where both begin with some, which
    differ, and the same talk follows: instructions often tell the time, and no two are alike."""
    before, now = _instructions(stored), _instructions(sent)
    if not before or not now or before == now:
        return None
    talk, again = stored[len(before) :], sent[len(now) :]
    whole = talk[:1] == again[:1] and merge.holds_half(talk, again)
    return [*now, *talk] if whole or merge.overlap(talk, again) > 1 else None


def _instructions(turns: Sequence[str]) -> list[str]:
    """What a system says before anybody else does."""
    return list(takewhile(lambda turn: turn.startswith(("system:", "system ")), turns))


def _parts(content: str | Sequence[Any] | None) -> Sequence[Any]:
    return [content] if isinstance(content, str) else content or ()


def _part(part: Any) -> str:
    """A piece of a message: its text, or in brackets what it is."""
    match part:
        case str() as text:
            return text
        case {"text": str() as text}:
            return text
        case {"image_url": {"url": str() as url}} | {"imageUrl": {"url": str() as url}}:
            return f"[image {_shown(url)}]"
        case {"url": str() as url} | {"image_url": str() as url}:
            return f"[{part.get('type', 'link')} {_shown(url)}]"
        case {"type": str() as kind}:
            return f"[{kind}]"
        case _:
            return f"[{json.dumps(part, ensure_ascii=False)}]"


def _shown(url: str) -> str:
    """Pictures that stand in the address itself are no text."""
    return "inline" if url.startswith("data:") else url


def _call(call: Any) -> str:
    match call:
        case {"function": {"name": str() as name, "arguments": str() as arguments}}:
            return f"[calls {name}({arguments})]"
        case {"function": {"name": str() as name}} | {"name": str() as name}:
            return f"[calls {name}]"
        case _:
            return "[calls a tool]"
