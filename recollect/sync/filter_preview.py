"""What a changed filter would do to what connections remember, without doing it: the rules that
the API and the console share."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from recollect.app import App
from recollect.model import Connection, Tenant
from recollect.orgs import settings
from recollect.sync import connections, item_filter, item_rulings
from recollect.sync.item_filter import FILTERED, UNDECIDED, Gate, Ruling
from recollect.sync.item_rulings import KnownItem

ASKED = 50
"""Things that one preview may have the model judge: someone waits, and someone pays."""
PAGE = 500
STAY = (
    "The filter acts on new things only: documents that are here stay. Drops are those that it"
    " would refuse if they came today."
)
Effect = Literal["add", "drop", "undecided"]


@dataclass(frozen=True, slots=True)
class Example:
    """A thing for which the filter makes a difference."""

    effect: Effect
    id: str
    title: str | None
    url: str | None
    before: str | None
    """what was noted when it was seen last"""
    reason: str | None
    """what this filter says: a pattern, the model's word"""


@dataclass(frozen=True, slots=True)
class Effects:
    """What a filter does to the things that one connection remembers."""

    connection: Connection
    known: int
    """things that are documents, or that a filter kept out"""
    adds: int
    drops: int
    undecided: int
    examples: Sequence[Example]


@dataclass(frozen=True, slots=True)
class Previewed:
    """`asked`: things that the model was asked about; `notes` are sentences for people."""

    asked: int
    effects: Sequence[Effects]
    notes: Sequence[str]

    @property
    def adds(self) -> int:
        return sum(one.adds for one in self.effects)

    @property
    def drops(self) -> int:
        return sum(one.drops for one in self.effects)

    @property
    def undecided(self) -> int:
        return sum(one.undecided for one in self.effects)


def preview(
    app: App,
    tenant: Tenant,
    change: Mapping[str, Any],
    *,
    connection: str | None = None,
    ask: bool = False,
    examples: int = 10,
) -> Previewed:
    """Try out a change of the settings of a filter (None clears one); `connection`: that one alone.

    Changes no setting and no document; what the model says (`ask`) is remembered, so that a sync
    does not ask it again. `examples`: of each effect and connection. Raises NotFoundError, and
    BadRequestError when a model is wanted and none is configured.
    """
    item_filter.need_model(change, app.llm)
    with app.db.begin() as tx:
        now = settings.read(tx, tenant.id)
        if connection is None:
            found = connections.find(tx, tenant)
        else:
            found = [connections.get(tx, tenant, connection)]
    cleared = {n: settings.DEFAULTS[n] if value is None else value for n, value in change.items()}
    survey = _Survey(app, {**now, **cleared}, ASKED if ask else 0, examples)
    effects = [survey.of(one) for one in found]
    undecided = sum(one.undecided for one in effects)
    notes = [STAY]
    if survey.trouble is not None:
        notes.append(f"The model was not asked: {survey.trouble}.")
    elif undecided and not ask:
        need = "1 item needs" if undecided == 1 else f"{undecided:,} items need"
        notes.append(
            f"{need} the model's judgement; with `ask` (`--ask`) it judges up to {ASKED} now."
        )
    return Previewed(survey.asked, effects, notes)


@dataclass(slots=True)
class _Survey:
    app: App
    settings: dict[str, Any]
    left: int
    """things that may still be asked about"""
    examples: int
    asked: int = 0
    trouble: str | None = None

    def of(self, connection: Connection) -> Effects:
        gate = item_filter.open_gate(self.settings, self.app.llm)
        gate.trouble = self.trouble
        tally, known = Counter[str](), 0
        shown: list[Example] = []
        after: str | None = ""
        while after is not None:
            with self.app.db.begin() as tx:
                page, after = item_rulings.survey(tx, connection.id, after=after, limit=PAGE)
                item_rulings.recall(tx, connection.id, [one.item for one in page], gate)
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
        return Effects(
            connection=connection,
            known=known,
            adds=tally["add"],
            drops=tally["drop"],
            undecided=tally["undecided"],
            examples=shown,
        )

    def _ask(self, connection: Connection, page: Sequence[KnownItem], gate: Gate) -> None:
        if not self.left or not gate.asks or gate.trouble is not None:
            return
        some = [one.item for one in page if gate.open(one.item)][: self.left]
        gate.ask(some)
        self.left -= len(some)
        self.asked += 0 if self.app.llm is None else len(some)
        with self.app.db.begin() as tx:
            item_rulings.note(tx, connection.id, some, gate)


def _effect(one: KnownItem, ruling: Ruling | None) -> Effect | None:
    """What the ruling means for a thing as it stands, if it means anything."""
    if ruling is not None and ruling.verdict == UNDECIDED:
        return "undecided"
    if one.document_id is None:
        return "add" if ruling is None else None
    return "drop" if ruling is not None and ruling.verdict == FILTERED else None


def _example(one: KnownItem, effect: Effect, ruling: Ruling | None, gate: Gate) -> Example:
    said = gate.judgement(one.item)
    reason = ruling.reason if ruling is not None else said.reason if said is not None else None
    return Example(
        effect=effect,
        id=one.item.id,
        title=one.item.title,
        url=one.item.url,
        before=one.detail,
        reason=reason,
    )
