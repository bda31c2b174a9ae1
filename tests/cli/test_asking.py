"""`recollect ask` against a service whose language model streams, and misbehaves."""

from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import pytest

from recollect.app import App
from recollect.inference.llm import Llm
from recollect.worker.processing import drain
from tests.conftest import plain_client, serving
from tests.contract.calls import add
from tests.e2e.shell import Shell, Starter
from tests.fakes.llm import Model, Status, Streams, running

MEETING = "The team meets on Mondays at nine in the blue room."
Q = ("ask", "when", "does", "the", "team", "meet", "on", "Mondays")


@pytest.fixture
def model() -> Generator[Model]:
    with running(Model()) as started:
        yield started
    assert started.faults == []


@pytest.fixture
def run(starter: Starter, app: App, key: str, model: Model, tmp_path: Path) -> Generator[Shell]:
    llm = Llm(model.url, "a-model", total=30)
    with serving(replace(app, llm=llm)) as url:
        with plain_client(url, {"Authorization": f"Bearer {key}"}) as http:
            add(http, MEETING, customId="notes/1")
        drain(app)
        yield Shell(starter, tmp_path, {"RECOLLECT_URL": url, "RECOLLECT_API_KEY": key})
    llm.close()


def test_sentences_come_with_their_sources(run: Shell, model: Model):
    model.misbehave = [Streams(("On Mon", "days at nine [1]. In the red room. So [9]."))]
    told = run(*Q)

    assert told.code == 0
    assert told.out.splitlines()[:3] == [
        "On Mondays at nine. [1]",
        "In the red room. (no source)",
        "So. (no source)",
    ]
    assert MEETING in told.out
    assert "1 citation named nothing" in told.err


def test_what_was_written_before_the_model_ended_is_shown(run: Shell, model: Model):
    model.misbehave = [Streams(("On Mondays [1]. At",), ending="")]
    told = run(*Q)

    assert "On Mondays. [1]" in told.out
    assert "The answer ends here" in told.err


def test_a_model_that_fails_leaves_the_passages(run: Shell, model: Model):
    model.misbehave = [Status(500)]
    told = run(*Q)

    assert (told.code, MEETING in told.out) == (0, True)
    assert "No answer: " in told.err


def test_a_refusal_is_told_as_for_any_command(run: Shell):
    told = run(*Q, "--key", "sm_wrong")
    assert told.code == 1
    assert "key" in told.err
    assert run(*Q, "--tag", "not a tag!").code == 2


def test_a_search_shows_once_what_two_documents_say(run: Shell, app: App):
    key = {"Authorization": f"Bearer {run.settings['RECOLLECT_API_KEY']}"}
    with plain_client(run.settings["RECOLLECT_URL"], key) as http:
        add(http, MEETING.upper(), customId="notes/2")
    drain(app)
    question = ("when", "does", "the", "team", "meet")
    folded, apart = run("search", *question), run("search", "--with-duplicates", *question)

    assert (folded.out.count("\n2. "), folded.out.count("also in")) == (0, 1)
    assert (apart.out.count("\n2. "), apart.out.count("also in")) == (1, 0)


def test_a_passage_and_a_source_are_said_to_stand_where_the_original_has_them(
    run: Shell, app: App, model: Model
):
    key = {"Authorization": f"Bearer {run.settings['RECOLLECT_API_KEY']}"}
    file = ("birds.csv", "place,bird\nlake,heron\n", "text/csv")
    with plain_client(run.settings["RECOLLECT_URL"], key) as http:
        http.post("/v3/documents/file", files={"file": file}).raise_for_status()
    drain(app)
    model.misbehave = [Streams(("At the lake [1].",))]

    assert " · row 2 · chars 0" in run("search", "heron", "lake").out
    assert "birds.csv  row 2 · id " in run("ask", "heron", "lake").out
