"""Whose document is worked next: organisations take turns, and the tags of each do."""

from collections import Counter
from collections.abc import Callable, Collection, Generator
from datetime import timedelta

import pytest

from recollect import documents
from recollect.app import App
from recollect.documents import DocumentTurn, NewDocument
from recollect.model import Claim, Content, DocumentId, Org, OrgId, Plan, Tenant, random_id
from recollect.orgs import orgs
from recollect.worker import processing

Add = Callable[..., None]


@pytest.fixture
def neighbour(app: App) -> Generator[Tenant]:
    with app.db.begin() as tx:
        made = orgs.create(tx, f"neighbour-{random_id()}", Plan.ENTERPRISE)
    yield Tenant(made.id)
    with app.db.begin() as tx:
        tx.execute("delete from orgs where id = %s", (made.id,))


@pytest.fixture
def add(app: App) -> Add:
    def add(tenant: Tenant, count: int, tag: str = "notes") -> None:
        with app.db.begin() as tx:
            for _ in range(count):
                text = f"Note {random_id()}."
                new = NewDocument(Content("text", text.encode(), text=text), [tag])
                documents.add(tx, tenant, new, DocumentId(random_id()))

    return add


def claim(
    app: App,
    limit: int,
    turn: DocumentTurn | None = None,
    busy: Collection[tuple[str, str]] = (),
) -> list[Claim]:
    lease = timedelta(minutes=1)
    with app.db.begin() as tx:
        return documents.claim(tx, lease=lease, limit=limit, max_attempts=5, turn=turn, busy=busy)


def owners(claims: list[Claim]) -> Counter[OrgId]:
    return Counter(claim.document.org_id for claim in claims)


def test_one_document_waits_for_one_of_the_others_only(
    app: App, tenant: Tenant, neighbour: Tenant, add: Add
) -> None:
    add(tenant, 200)
    add(neighbour, 1)
    turn = DocumentTurn()
    first = [claim(app, 1, turn)[0].document.org_id for _ in range(2)]
    assert sorted(first) == sorted([tenant.id, neighbour.id])
    assert owners(claim(app, 4, turn)) == {tenant.id: 4}


def test_who_has_nothing_in_work_is_found_among_those_who_have(
    app: App, tenant: Tenant, neighbour: Tenant, add: Add
) -> None:
    turn = DocumentTurn()

    def other(*busy: tuple[Tenant, str]) -> tuple[OrgId, str] | None:
        claims = claim(app, 1, turn, busy=[(owner.id, tag) for owner, tag in busy])
        assert len(claims) <= 1
        return next(((c.document.org_id, c.document.container_tags[0]) for c in claims), None)

    add(tenant, 20)
    add(neighbour, 2)
    assert other((tenant, "notes")) == (neighbour.id, "notes")
    assert other((neighbour, "notes")) == (tenant.id, "notes")
    assert other((tenant, "notes"), (neighbour, "notes")) is None
    add(tenant, 2, "letters")
    add(tenant, 2, "bills")
    assert other((tenant, "notes")) == (neighbour.id, "notes"), "who has none comes first"
    assert other((tenant, "notes"), (neighbour, "notes")) == (tenant.id, "bills")
    assert other((tenant, "notes"), (neighbour, "notes")) == (tenant.id, "letters")
    assert other((tenant, "notes"), (tenant, "bills")) == (tenant.id, "letters")
    assert other((tenant, "notes"), (tenant, "letters")) == (tenant.id, "bills")
    assert other((tenant, "notes")) is None


def test_a_claim_of_several_is_shared(
    app: App, tenant: Tenant, neighbour: Tenant, add: Add
) -> None:
    add(tenant, 50)
    add(neighbour, 50)
    assert owners(claim(app, 8)) == {tenant.id: 4, neighbour.id: 4}


def test_the_tags_of_an_organisation_take_turns(app: App, tenant: Tenant, add: Add) -> None:
    add(tenant, 50, "large")
    add(tenant, 3, "small")
    turn = DocumentTurn()
    tags = [claim(app, 1, turn)[0].document.container_tags[0] for _ in range(8)]
    assert sorted(tags[:6]) == ["large"] * 3 + ["small"] * 3
    assert tags[6:] == ["large"] * 2


def test_many_tags_are_no_larger_share(
    app: App, tenant: Tenant, neighbour: Tenant, add: Add
) -> None:
    for number in range(12):
        add(tenant, 1, f"tag-{number:02}")
    add(neighbour, 12)
    turn = DocumentTurn()
    assert owners([claim(app, 1, turn)[0] for _ in range(12)]) == {
        tenant.id: 6,
        neighbour.id: 6,
    }
    assert len(claim(app, 20, turn)) >= 7
    left = claim(app, 20, turn)
    assert all(one.document.org_id == neighbour.id for one in left), "all tags had their turn"


def test_the_oldest_of_a_tag_comes_first(app: App, tenant: Tenant, add: Add) -> None:
    add(tenant, 5)
    with app.db.begin() as tx:
        tx.execute(
            "update documents set due_at = now() - numbered.n * interval '1 minute' from"
            " (select id, row_number() over (order by id) as n from documents where org_id = %s)"
            " numbered where documents.id = numbered.id",
            (tenant.id,),
        )
        rows = tx.execute(
            "select id from documents where org_id = %s order by due_at", (tenant.id,)
        ).fetchall()
    assert [claim(app, 1)[0].document.id for _ in range(5)] == [row["id"] for row in rows]


def test_what_waits_gives_its_turn_away(
    app: App, tenant: Tenant, neighbour: Tenant, add: Add
) -> None:
    add(tenant, 3)
    add(neighbour, 3)
    with app.db.begin() as tx:
        tx.execute(
            "update documents set due_at = now() + interval '1 hour' where org_id = %s",
            (tenant.id,),
        )
    assert owners(claim(app, 2)) == {neighbour.id: 2}
    assert owners(claim(app, 2)) == {neighbour.id: 1}
    assert claim(app, 2) == []


def test_two_claims_at_a_time_take_different_ones(app: App, tenant: Tenant, add: Add) -> None:
    add(tenant, 6)
    with app.db.begin() as one, app.db.begin() as other:
        first = documents.claim(one, lease=app.lease, limit=3, max_attempts=5)
        second = documents.claim(other, lease=app.lease, limit=3, max_attempts=5)
    assert len({claim.document.id for claim in first + second}) == 6


def test_what_waits_tells_how_many_are_before_it(
    app: App, tenant: Tenant, neighbour: Tenant, add: Add
) -> None:
    add(tenant, 3)
    add(tenant, 5, "another")
    add(neighbour, 5)
    with app.db.begin() as tx:
        tx.execute(
            "update documents set due_at = now() - numbered.n * interval '1 minute' from"
            " (select id, row_number() over (order by id) as n from documents"
            "  where due_at is not null) numbered"
            " where documents.id = numbered.id"
        )
        waiting = documents.find(tx, tenant, documents.DocumentQuery(tags=["notes"])).items
        assert sorted(documents.ahead(tx, one) or 0 for one in waiting) == [0, 1, 2]
        claimed = documents.claim(tx, lease=app.lease, limit=1, max_attempts=5)
        now = documents.get(tx, Tenant(claimed[0].document.org_id), claimed[0].document.id)
        assert documents.ahead(tx, now) is None


def test_a_turn_forgets_tags_of_long_ago() -> None:
    turn = DocumentTurn()
    for number in range(1_000):
        turn.pass_on(f"org {number}", "tag")
    assert len(turn.tags) == documents.TURNS_KEPT
    assert "org 999" in turn.tags


def test_a_worker_that_drains_serves_all(
    app: App, org: Org, tenant: Tenant, neighbour: Tenant, add: Add
) -> None:
    add(tenant, 5, "one")
    add(tenant, 2, "two")
    add(neighbour, 3)
    assert processing.drain(app) == 10
    with app.db.begin() as tx:
        row = tx.execute(
            "select count(*) as n from documents where org_id = any(%s) and status <> 'done'",
            ([org.id, neighbour.id],),
        ).fetchone()
    assert row == {"n": 0}
