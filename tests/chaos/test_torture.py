"""`recollect torture` finds nothing in the service as it is, and finds what is broken on purpose.

The mutants are triggers in the scratch database: the product knows nothing of them.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random

import psycopg
import pytest

from recollect.torture import FaultPlan, Torture, Verdict, make, oracle, texts
from recollect.torture.ground import Ground
from recollect.torture.oracle import TAG, Fault, Written, compare
from recollect.torture.plan import LINES, MOODS, SHARES, Kill
from tests.conftest import eventually

SEED = 7
MUTANTS = """
create function mutant_vanishes() returns trigger language plpgsql as $$
begin delete from documents where id = new.id; return null; end $$;
create constraint trigger mutant_vanishes after insert on documents
  deferrable initially deferred for each row when (new.custom_id like '0%')
  execute function mutant_vanishes();

create function mutant_doubles() returns trigger language plpgsql as $$
begin
  new.id := reverse(new.id);
  new.custom_id := null;
  insert into documents select new.*;
  return null;
end $$;
create constraint trigger mutant_doubles after insert on documents
  deferrable initially deferred for each row when (new.custom_id like '1%')
  execute function mutant_doubles();

create function mutant_sticks() returns trigger language plpgsql as $$
begin new.status := 'queued'; new.due_at := now() + interval '1 day'; return new; end $$;
create trigger mutant_sticks before update on documents
  for each row when (new.custom_id like '2%' and new.status = 'done')
  execute function mutant_sticks();

create function mutant_relabels() returns trigger language plpgsql as $$
begin new.metadata := '{"n": -1}'; return new; end $$;
create trigger mutant_relabels before insert or update on documents
  for each row when (new.custom_id like '3%') execute function mutant_relabels();

create function mutant_keeps() returns trigger language plpgsql as $$
begin return null; end $$;
create trigger mutant_keeps before delete on documents
  for each row when (old.custom_id ~ '^[4c-f]') execute function mutant_keeps();

create function mutant_rewrites() returns trigger language plpgsql as $$
begin new.text := new.text || ' and more'; return new; end $$;
create trigger mutant_rewrites before update on documents
  for each row when (new.custom_id like '5%' and new.status = 'done')
  execute function mutant_rewrites();

create function mutant_shifts() returns trigger language plpgsql as $$
begin
  if exists (select from documents where id = new.document_id and custom_id like '6%') then
    new.start_at := new.start_at + 1;
  end if;
  return new;
end $$;
create trigger mutant_shifts before insert on chunks
  for each row execute function mutant_shifts();

create function mutant_mixes_up() returns trigger language plpgsql as $$
begin
  if exists (select from documents where id = new.document_id and custom_id like '7%') then
    new.embedding := ('[' || repeat('1,', 31) || '1]')::halfvec;
  end if;
  return new;
end $$;
create trigger mutant_mixes_up before insert on entries
  for each row execute function mutant_mixes_up();
"""
FOUND: dict[str, tuple[Verdict, str]] = {
    "vanishes": ("lost", "was acknowledged and is not"),
    "doubles": ("doubled", "have one text"),
    "sticks": ("stuck", "is queued"),
    "relabels": ("wrong", "has the metadata"),
    "keeps": ("wrong", "was deleted, or never wholly sent, and is there"),
    "rewrites": ("wrong", "has a foreign content"),
    "shifts": ("wrong", "a chunk is not part of the text"),
    "mixes up": ("wrong", "has the vector of another text"),
}


@pytest.mark.chaos
@pytest.mark.timeout(600)
@pytest.mark.costly
def test_a_short_run_of_the_whole_service_loses_doubles_and_delays_nothing() -> None:
    done = subprocess.run(
        [
            *(sys.executable, "-m", "recollect", "torture", "--json"),
            *("--seed", str(SEED), "--minutes", "0.1", "--kills", "6"),
        ],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.stdout, done.stderr
    report = json.loads(done.stdout)

    assert (report["faults"], done.returncode) == ([], 0)
    assert report["verdicts"] == {"lost": 0, "doubled": 0, "stuck": 0, "wrong": 0}
    assert sum(report["kills"].values()) == 6
    assert report["figures"]["acknowledged"] > 50
    assert report["figures"]["documents"] > 50
    assert report["figures"]["reads"] > 10
    assert set(report["notDone"]) <= {"disk full", "clock steps"}
    others = report["otherFaults"]
    assert ("clock stepped" in others) is ("clock steps" not in report["notDone"])
    assert any(what.startswith("database connections: ") for what in others)
    assert report["command"] == f"recollect torture --seed {SEED} --minutes 0.1 --kills 6"


@pytest.mark.slow
@pytest.mark.chaos
@pytest.mark.timeout(600)
def test_every_mutant_is_found(short_tmp: Path) -> None:
    plan = FaultPlan(SEED, minutes=0.3, kills=0, steps=())
    folder = scratch(short_tmp, "mutants")
    with Torture(plan, folder, lambda _: None, patience=3, clients=4) as run:
        with psycopg.connect(run.ground.database_url()) as session:
            session.execute(MUTANTS)
        report = run.run()
        written = {one.id: one.custom_id for one in run.ledger.written if one.id}

    for mutant, (verdict, what) in FOUND.items():
        assert any(one.verdict == verdict and what in one.what for one in report.faults), mutant
    assert not report.good
    # Nothing is said of the documents that no mutant touches.
    sound = {id for id, name in written.items() if name is not None and name[0] in "89ab"}
    assert len(sound) > 10
    assert [one.what for one in report.faults if sound.intersection(one.what.split())] == []


@pytest.mark.slow
@pytest.mark.chaos
@pytest.mark.timeout(300)
def test_kills_hit_nothing_but_the_service_that_was_started(short_tmp: Path) -> None:
    chance = Random(SEED)
    with decoy("recollect: api") as api, decoy("recollect serve") as serve:
        settings = {"embedder": "none"}
        folder = scratch(short_tmp, "aim")
        with Ground(
            folder, "http://127.0.0.1:9", disk=False, clock=None, settings=settings
        ) as ground:
            order: tuple[Kill, ...] = ("backend", "api", "everything")
            hits = [ground.kill(kill, chance) for kill in order]
            ground.wait_until_up()
            hits.append(ground.kill("reused", chance))
            ground.wait_until_up()
            code = ground.stop()

            assert hits == [True, True, True, True]
            assert code == 0
            assert ground.restarts >= 1
            assert not ground.kill("everything", chance)
        assert (api.poll(), serve.poll()) == (None, None)


@pytest.mark.slow
@pytest.mark.chaos
@pytest.mark.timeout(300)
def test_nothing_of_a_run_that_is_killed_stays(short_tmp: Path) -> None:
    running = subprocess.Popen(
        [sys.executable, "-m", "recollect", "torture", "--minutes", "5", "--kills", "0"],
        env=os.environ | {"TMPDIR": str(short_tmp)},  # noqa: TID251 # of the child
        stderr=subprocess.DEVNULL,
    )

    def runs() -> list[Path]:
        found: list[Path] = []
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                told = (process / "environ").read_bytes() + (process / "cmdline").read_bytes()
                if b"recollect-torture-" in told and os.fsencode(short_tmp) in told:
                    found.append(process)
        return found

    eventually(lambda: len(runs()) > 5, 90)
    running.kill()
    running.wait()
    eventually(lambda: runs() == [], 30)


def test_a_plan_is_made_from_its_seed() -> None:
    plan = make(SEED, 10, 240, ["embedder", "disk"])

    kinds = Counter(step.kind for step in plan.steps)
    assert plan == make(SEED, 10, 240, ["embedder", "disk"])
    assert plan != make(SEED + 1, 10, 240, ["embedder", "disk"])
    assert {kind: kinds[kind] for kind in SHARES} == {k: 10 * n for k, n in SHARES.items()}
    assert (kinds["embedder"], kinds["disk"], kinds["clock"]) == (60, 12, 0)
    assert {step.how for step in plan.steps if step.kind == "embedder"} == set(MOODS)
    assert [step.at for step in plan.steps] == sorted(step.at for step in plan.steps)
    assert plan.steps[-1].at < 600
    more = make(SEED, 10, 240, ["line", "clock"]).steps
    assert {step.how for step in more if step.kind == "line"} == set(LINES)
    assert {int(step.how) for step in more if step.kind == "clock"} == {
        sign * seconds for sign in (1, -1) for seconds in (3600, 86_400)
    }
    assert {plan.light_at(second) for second in range(600)} == {True, False}


def test_a_text_shows_whether_it_is_whole() -> None:
    chance = Random(SEED)
    one, other = texts.part(chance, 3), texts.part(chance, 2)
    lines = one.split("\n")

    assert texts.is_whole(one)
    assert texts.is_whole(f"{one}\n{other}")
    assert len(texts.marks(f"{one}\n{other}")) == 2
    for torn in (
        "\n".join(lines[:2]),
        "\n".join(lines[1:]),
        "\n".join([lines[0], lines[2]]),
        "\n".join([lines[0], other, *lines[1:]]),
        "\n".join([*lines[:2], other]),
        "",
    ):
        assert not texts.is_whole(torn)


def test_what_is_listed_is_compared_with_what_was_acknowledged() -> None:
    written = Written("a", {"new"}, {(TAG,)}, {'{"n": 1}'}, id="1", there=True, past={"old"})
    good: dict[str, object] = {
        "id": "1",
        "customId": "a",
        "status": "done",
        "content": "new",
        "containerTags": [TAG],
        "metadata": {"n": 1},
    }

    def verdicts(*listed: dict[str, object]) -> list[str]:
        return [fault.verdict for fault in compare([written], list(listed))]

    assert verdicts(good) == []
    assert verdicts() == ["lost"]
    assert verdicts(good, good | {"id": "2"}) == ["doubled", "wrong"]
    assert verdicts(good | {"status": "processing"}) == ["stuck"]
    assert verdicts(good | {"status": "failed", "errorCode": "worker_died"}) == ["stuck"]
    assert verdicts(good | {"content": "other"}) == ["wrong"]
    assert verdicts(good | {"containerTags": ["x"]}) == ["wrong"]
    assert verdicts(good | {"metadata": None}) == ["wrong"]
    assert compare([written], [good | {"content": "old"}]) == [
        Fault("wrong", "1 has an old content")
    ]
    written.there = False
    assert verdicts(good) == ["wrong"]
    written.there, written.id = None, None
    assert verdicts() == verdicts(good) == []
    assert oracle.canonical({"b": 1, "a": 2}) == oracle.canonical({"a": 2, "b": 1})


def scratch(parent: Path, name: str) -> Path:
    """A folder that PostgreSQL's user may pass through."""
    folder = parent / name
    folder.mkdir(mode=0o711)
    return folder


@contextmanager
def decoy(words: str) -> Generator[subprocess.Popen[bytes]]:
    """Looks like a process of a service, and is none of ours."""
    process = subprocess.Popen(
        [sys.executable, "-c", "import sys; sys.stdin.read()", *words.split()],
        stdin=subprocess.PIPE,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()
