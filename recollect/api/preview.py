"""What a changed filter would do to what connections remember, without doing it."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter

from recollect import admission, connections, items, settings
from recollect.admission import FILTERED, UNDECIDED, Gate, Ruling
from recollect.api.deps import Admin, CurrentApp
from recollect.api.schemas import FilterEffect, FilterExample, FilterPreview, FilterPreviewed
from recollect.app import App
from recollect.items import Known
from recollect.model import Connection

router = APIRouter(tags=["settings"])
ASKED = 50
"""Things that one preview may have the model judge: somebody waits, and somebody pays."""
PAGE = 500
STAY = (
    "The filter acts on new things only: documents that are here stay. Drops are those that it"
    " would refuse if they came today."
)


@router.post("/v3/settings/preview", summary="Try out a filter", operation_id="previewSettings")
def preview(body: FilterPreview, tenant: Admin, app: CurrentApp) -> FilterPreviewed:
    """What a changed filter would add and drop among remembered things. Changes no setting, no
    document; what the model says is remembered, so that a sync does not ask it again."""
    change = body.given()
    admission.need_model(change, app.llm)
    with app.db.begin() as tx:
        now = settings.read(tx, tenant.id)
        if body.connection_id is None:
            found = connections.find(tx, tenant)
        else:
            found = [connections.get(tx, tenant, body.connection_id)]
    cleared = {n: settings.DEFAULTS[n] if value is None else value for n, value in change.items()}
    survey = _Survey(app, {**now, **cleared}, ASKED if body.ask else 0, body.examples)
    effects = [survey.of(connection) for connection in found]
    undecided = sum(one.undecided for one in effects)
    notes = [STAY]
    if survey.trouble is not None:
        notes.append(f"The model was not asked: {survey.trouble}.")
    elif undecided and not body.ask:
        notes.append(f"{undecided:,} things want the model's word; `ask` has it judge {ASKED}.")
    return FilterPreviewed(
        adds=sum(one.adds for one in effects),
        drops=sum(one.drops for one in effects),
        undecided=undecided,
        asked=survey.asked,
        connections=effects,
        notes=notes,
    )


@dataclass(slots=True)
class _Survey:
    app: App
    settings: dict[str, Any]
    left: int
    """things that may still be asked about"""
    examples: int
    asked: int = 0
    trouble: str | None = None

    def of(self, connection: Connection) -> FilterEffect:
        gate = admission.open_gate(self.settings, self.app.llm)
        gate.trouble = self.trouble
        tally, known = Counter[str](), 0
        shown: list[FilterExample] = []
        after: str | None = ""
        while after is not None:
            with self.app.db.begin() as tx:
                page, after = items.survey(tx, connection.id, after=after, limit=PAGE)
                items.recall(tx, connection.id, [one.item for one in page], gate)
            self._ask(connection, page, gate)
            known += len(page)
            for one in page:
                ruling = gate.rule(one.item)
                effect = _effect(one, ruling)
                if effect is None:
                    continue
                tally[effect] += 1
                if tally[effect] <= self.examples:
                    shown.append(_example(one, effect, ruling, gate))
            gate.forget()
        self.trouble = gate.trouble
        return FilterEffect(
            connection_id=connection.id,
            provider=connection.provider,
            known=known,
            adds=tally["add"],
            drops=tally["drop"],
            undecided=tally["undecided"],
            examples=shown,
        )

    def _ask(self, connection: Connection, page: Sequence[Known], gate: Gate) -> None:
        if not self.left or not gate.asks or gate.trouble is not None:
            return
        some = [one.item for one in page if gate.open(one.item)][: self.left]
        gate.ask(some)
        self.left -= len(some)
        self.asked += 0 if self.app.llm is None else len(some)
        with self.app.db.begin() as tx:
            items.note(tx, connection.id, some, gate)


def _effect(one: Known, ruling: Ruling | None) -> str | None:
    """What the ruling means for a thing as it stands, if it means anything."""
    if ruling is not None and ruling.verdict == UNDECIDED:
        return "undecided"
    if one.document_id is None:
        return "add" if ruling is None else None
    return "drop" if ruling is not None and ruling.verdict == FILTERED else None


def _example(one: Known, effect: Any, ruling: Ruling | None, gate: Gate) -> FilterExample:
    said = gate.judgement(one.item)
    reason = ruling.reason if ruling is not None else said.reason if said is not None else None
    return FilterExample(
        effect=effect,
        id=one.item.id,
        title=one.item.title,
        url=one.item.url,
        before=one.detail,
        reason=reason,
    )
