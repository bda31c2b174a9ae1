"""The plan of the house holds: where what stands, how long files are, who says what."""

import ast
import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from recollect import connectors
from recollect.api.settings_schemas import SettingsOut, SettingsPatch
from recollect.orgs import settings
from tests import change
from tests.house import facts, plan


def test_the_root_shows_the_way():
    entries = facts.root_entries()

    assert len(entries) <= plan.MOST_ROOT_ENTRIES, entries


def test_each_room_says_in_a_sentence_what_comes_in_and_what_goes_out():
    said = re.compile(r"[^.]+ comes? in\b[^.]* goe?s? out\b[^.]*\.")
    first = {
        name: (ast.get_docstring(facts.trees()[f"{name}/__init__.py"]) or "").partition("\n\n")[0]
        for name in facts.rooms()
    }

    assert [name for name, sentence in first.items() if not said.fullmatch(sentence)] == []


def test_files_are_short():
    long = {
        name for name, text in facts.sources().items() if len(text.splitlines()) > plan.MOST_LINES
    }

    assert not long


def test_imports_inside_functions_are_few_and_give_their_reason():
    found = facts.function_imports()
    silent = [
        f"{name}:{line}"
        for name, line in found
        if not re.search(r"# noqa: PLC0415 [#-] \w+", facts.sources()[name].splitlines()[line - 1])
    ]

    assert len(found) <= plan.MOST_FUNCTION_IMPORTS
    assert silent == []


def test_only_some_rooms_speak_sql():
    elsewhere = {name for name in facts.speaking_sql() if name.split("/")[0] not in plan.SQL_ROOMS}

    assert elsewhere == set(plan.SQL_ELSEWHERE)


def test_what_a_caller_may_see_is_said_in_one_place():
    """The words of a limited key's tags in a predicate, whatever the parameter is called."""
    said = re.compile(
        r"(&&|<@|@>|= any\() ?%\(reach\)s|%\((reach|tags|own)\)s::text\[\] is null or"
    )
    found = {name for name, text in facts.sources().items() if said.search(text)}
    # What a connection may reach; which of several documents a customId means to a key; and the
    # tags that the operator limits an export to.
    own = {"sync/connections.py", "documents/_reading.py"}
    own |= {"ops/backup/_export.py", "ops/backup/_questions.py"}

    assert found == {plan.TENANCY, *plan.TENANCY_ELSEWHERE, *own}


def test_how_a_rest_grows_is_said_in_two_places():
    """In Python, and for a statement."""
    said = re.compile(r"\bpower\(|\b2(\.0)? ?\*\* ?[a-z_(]|\bfactor ?\*\*")
    found = {name for name, text in facts.sources().items() if said.search(text)}

    assert found == {"loop.py", "db/leases.py"}


def test_providers_are_named_in_their_rooms():
    assert set(facts.naming_providers()) == set(plan.PROVIDERS_ELSEWHERE)
    assert facts.files_naming_providers() == []


def test_what_has_to_list_the_providers_lists_them_all():
    shared = {one.application for one in connectors.all().values() if one.oauth}

    assert shared == set(connectors.applications())
    assert {one.provider for one in connectors.applications()} <= connectors.settings().keys()
    for model in (SettingsPatch, SettingsOut):
        assert {field.alias for field in model.model_fields.values()} == set(settings.DEFAULTS)


def test_a_class_has_a_name_of_its_own():
    found = facts.class_names()

    assert found.keys() == plan.CLASS_NAMES_TWICE
    assert all(place.startswith("connectors/") for places in found.values() for place in places)


def test_the_tour_is_short():
    page = facts.PROJECT / "docs" / "tour.md"
    way, _, _ = page.read_text().partition("\n## ")
    files = {Path(name) for name in re.findall(r"\]\(\.\./(recollect/[^)#]+\.py)", way)}
    lines = sum(len((facts.PROJECT / file).read_text().splitlines()) for file in files)

    assert len(files) <= plan.MOST_TOUR_FILES, files
    assert lines <= plan.MOST_TOUR_LINES


def test_the_tour_names_every_room_and_only_files_that_are_there():
    page = (facts.PROJECT / "docs" / "tour.md").read_text()
    table = "\n".join(line for line in page.splitlines() if line.startswith("| `"))
    named = re.findall(r"`((?:[\w-]+/)+(?:[\w-]+\.\w+)?)`", page)

    assert set(re.findall(r"`(\w+)`", table)) == set(facts.rooms())
    assert "search/candidates.py" in named, "it sees names"
    roots = facts.PACKAGE, facts.PROJECT
    assert [name for name in named if not any((root / name).exists() for root in roots)] == []


def test_a_change_of_a_room_runs_the_tests_that_import_nothing_else_of_the_house():
    """Of nouns, flows and what is below; that the doors are asked, the imports do not tell."""

    @cache
    def planned(room: str) -> Sequence[Path]:
        paths = change.planned([f"recollect/{room}/__init__.py"]).paths
        return [facts.PROJECT / path for path in paths]

    left_out = {
        test.relative_to(facts.PROJECT).as_posix(): room
        for test in sorted((facts.PROJECT / "tests").rglob("test_*.py"))
        for room in facts.rooms_imported_alone(ast.parse(test.read_text()))
        if not any(test.is_relative_to(path) for path in planned(room))
    }

    assert {test for test, room in left_out.items() if room not in plan.ASKED_FROM_ABOVE} == set()
