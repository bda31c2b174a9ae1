"""Every scenario of connectors.md 4.1 has a test at every connector, or a reason why it has none.

Tests of the suite are found by the number in their name; a provider's own are named here.
"""

import ast
import re
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from recollect import connectors
from tests.connectors import (
    test_canaries,
    test_conformance,
    test_conformance_pushes,
    test_many_things,
)

SUITE = (test_conformance, test_conformance_pushes, test_many_things, test_canaries)
HERE = Path(__file__).parent
SCENARIOS = range(1, 37)
GOOGLE = ("gmail", "google-drive")
AUTHORIZED = ("github", "gmail", "google-drive", "notion", "onedrive")
"""with OAuth: what follows from it is the framework's, and the same for all"""
FLOW = "test_canaries::test_35_canaries_are_nowhere"
"""goes from the link over consent, refresh and loss to the return, at each provider"""
FRAMEWORK = "../sync/test_authorize::"

OWN: dict[int, dict[str, str]] = {
    1: {
        **dict.fromkeys(AUTHORIZED, FLOW),
        "github": "test_github_end_to_end::test_from_the_link_to_the_hit",
    },
    7: {
        "google-drive": "test_google_drive::test_access_that_is_taken_away_is_noticed",
        "notion": "test_notion::test_what_is_not_found_any_more_goes_when_it_is_not_found_again",
        "onedrive": "test_onedrive::test_what_is_unshared_is_gone_once_that_is_certain",
        "github": "test_github::"
        "test_a_repository_that_is_lost_goes_when_another_sync_finds_the_same",
        "s3": "test_s3::test_an_object_that_may_not_be_read_fails_alone",
        "web-crawler": "test_web_crawler::test_a_page_not_found_twice_loses_its_document",
        "folder": "test_folder::test_what_may_not_be_read_is_named_and_its_documents_stay",
    },
    8: {
        **dict.fromkeys(AUTHORIZED, FLOW),
        "google-drive": "test_google_drive::test_one_refresh_when_the_token_has_expired",
        "gmail": "test_gmail::test_an_expired_token_is_refreshed_once",
        "notion": "test_notion::test_a_token_that_expires_in_the_middle_is_refreshed",
    },
    9: dict.fromkeys(
        ("github", "notion", "onedrive"),
        FRAMEWORK + "test_a_lost_answer_to_a_refresh_ends_as_needs_auth",
    ),
    12: {
        "google-drive": "test_google_drive::test_a_scope_that_was_not_granted_is_named",
        "gmail": "test_gmail::test_a_scope_that_was_not_granted_is_named",
        "notion": "test_notion::test_a_missing_capability_is_named_and_nothing_is_gone",
        "onedrive": "test_onedrive::"
        "test_an_account_that_did_not_grant_files_is_asked_again_and_nothing_is_deleted",
        "github": "test_check::test_rights_that_a_token_of_github_lost_are_named",
        "s3": "test_s3::test_a_missing_right_is_named",
        "folder": "test_folder::test_what_may_not_be_read_is_named_and_its_documents_stay",
    },
    15: {
        "google-drive": "test_google_drive::test_refusals_mean_what_google_says_they_mean",
        "gmail": "test_gmail::test_a_thread_that_is_forbidden_keeps_no_other_from_being_synced",
        "notion": "test_notion::test_one_page_that_may_not_be_read_does_not_stop_the_others",
        "onedrive": "test_onedrive::test_refusals_are_told_apart",
        "github": "test_github::test_a_refusal_that_is_no_limit_is_trouble_of_that_repository",
        "s3": "test_s3::test_an_object_that_may_not_be_read_fails_alone",
        "web-crawler": "test_web_crawler::"
        "test_every_misbehaviour_gets_its_answer_and_the_others_are_crawled",
        "folder": "test_folder::test_what_may_not_be_read_is_named_and_its_documents_stay",
    },
    18: {
        "google-drive": "test_google_drive::"
        "test_an_expired_token_lists_everything_again_without_doubling",
        "gmail": "test_gmail::test_after_a_forgotten_history_what_changed_in_the_gap_is_found",
        "notion": "test_notion::test_a_place_in_the_search_that_notion_forgot_is_searched_anew",
        "onedrive": "test_onedrive::test_a_lost_place_is_a_whole_listing",
        "github": "test_github::test_a_forced_push_is_like_any_other",
        "s3": "test_s3::test_a_listing_that_goes_in_circles_ends",
        "folder": "test_folder::test_a_cursor_of_another_shape_counts_as_none",
    },
    19: {"folder": "test_folder::test_a_change_within_one_tick_of_the_clock_is_found"},
    20: {
        "gmail": "test_gmail::test_many_threads_are_said_with_checkpoints_in_between",
        "google-drive": "test_google_drive::test_a_thousand_files_come_page_by_page",
        "notion": "test_notion::test_a_thousand_pages",
        "onedrive": "test_onedrive::test_a_thousand_items_come_page_by_page",
        "web-crawler": "test_web_crawler::test_checkpoints_come_every_twenty_pages_and_are_small",
    },
    26: {"notion": "test_conformance_pushes::test_26_a_stranger_replaces_no_token"},
    21: {"web-crawler": "test_web_crawler::test_the_document_limit_is_exact"},
    6: {"web-crawler": "test_web_crawler::test_a_page_that_moved_keeps_its_document"},
    31: {
        "google-drive": "test_google_drive::"
        "test_one_shared_drive_that_fails_does_not_stop_the_rest",
        "gmail": "test_gmail::test_a_thread_that_fails_is_tried_again_with_the_next_sync",
        "notion": "test_notion::test_blocks_that_fail_leave_the_page_and_are_tried_again",
        "onedrive": "test_onedrive::"
        "test_a_shared_folder_that_fails_keeps_its_documents_and_stops_nothing",
        "github": "test_github::test_one_repository_that_fails_does_not_stop_the_others",
        "web-crawler": "test_web_crawler::"
        "test_a_page_that_answers_with_an_error_keeps_its_document",
        "folder": "test_folder::test_a_disk_within_the_folder_that_is_away_keeps_its_documents",
    },
    32: {"gmail": "test_gmail::test_odd_mails_are_read_as_far_as_they_go"},
    33: {
        "s3": "test_conformance_pushes::test_33_one_account_in_two_tags",
        "web-crawler": "test_conformance_pushes::test_33_one_account_in_two_tags",
    },
}
NO_ACCOUNT = "there is nobody to authorize"
EXEMPT: dict[tuple[int, str], str] = {
    **{
        (number, provider): NO_ACCOUNT
        for number in (1, 8, 9, 11)
        for provider in ("folder", "s3", "web-crawler")
    },
    **{(9, provider): "refresh tokens of Google do not rotate" for provider in GOOGLE},
    **{
        (number, "s3"): "S3 tells queues of Amazon's of changes, not us"
        for number in (3, 24, 25, 26, 27)
    },
    **{(number, "web-crawler"): "sites push nothing" for number in (3, 24, 25, 26, 27)},
    **{(number, "folder"): "a folder tells nobody of changes" for number in (3, 24, 25, 26, 27)},
    **{(number, "folder"): "a disk asks nobody to slow down" for number in (13, 14)},
    (10, "folder"): "a folder asks for no authorization",
    (6, "gmail"): "threads have no names, and are in no folder",
    (7, "gmail"): "a mailbox is shared as a whole or not at all",
    (10, "web-crawler"): "a public site asks for no authorization",
    (12, "web-crawler"): "a public site asks for no authorization",
    (18, "web-crawler"): "its cursor is its own: no site can forget it",
    (26, "gmail"): "Pub/Sub pushes without a handshake",
    (27, "notion"): "a subscription of Notion does not end, and is made by hand",
    (30, "web-crawler"): "pages go one by one, each with its own 410, never by a listing",
    (31, "s3"): "there is one listing, without branches; one that fails ends the sync",
    (35, "web-crawler"): "there are no secrets: nobody authorizes, nothing is sealed",
}


def providers(test: Any) -> set[str]:
    """At which a test of the suite runs."""
    found: set[str] = set()
    for mark in getattr(test, "pytestmark", []):
        if mark.name != "parametrize" or mark.args[0] not in ("world", "loud"):
            continue
        for value in mark.args[1]:
            skipped = any(one.name == "skip" for one in getattr(value, "marks", ()))
            if not skipped:
                found.add(value if isinstance(value, str) else value.values[0])
    return found


@cache
def suite() -> dict[int, set[str]]:
    """Scenario → providers at which the suite runs it."""
    ran: dict[int, set[str]] = {number: set() for number in SCENARIOS}
    for module in SUITE:
        for name, test in vars(module).items():
            if is_own(module, test) and (numbers := re.match(r"test((_\d+)+)_", name)):
                for number in numbers[1].split("_")[1:]:
                    ran[int(number)] |= providers(test)
    return ran


def is_own(module: ModuleType, test: Any) -> bool:
    return getattr(test, "__module__", None) == module.__name__


@cache
def functions(module: str) -> set[str]:
    tree = ast.parse((HERE / f"{module}.py").read_text())
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


@pytest.mark.parametrize("number", SCENARIOS)
def test_each_scenario_is_tested_or_exempt_at_each_connector(number: int) -> None:
    known = set(connectors.all())
    own = OWN.get(number, {})
    exempt = {provider for n, provider in EXEMPT if n == number}
    lacking = known - suite()[number] - own.keys() - exempt
    assert not lacking, f"scenario {number} is neither tested nor exempt at {sorted(lacking)}"


def test_the_tests_that_are_named_exist() -> None:
    for number, own in OWN.items():
        assert number in SCENARIOS
        for provider, named in own.items():
            assert provider in connectors.all()
            module, _, function = named.partition("::")
            assert function in functions(module), f"{number}, {provider}: {named}"


def test_an_exemption_has_a_reason_and_no_test() -> None:
    for (number, provider), reason in EXEMPT.items():
        assert provider in connectors.all()
        assert len(reason) > 10
        assert provider not in OWN.get(number, {}), (number, provider)
        if number != 35:  # the suite runs there, to find nothing
            assert provider not in suite()[number], (number, provider)


def test_an_exemption_of_the_suite_has_a_reason() -> None:
    for (provider, _), reason in test_conformance.EXEMPT.items():
        assert provider in test_conformance.PEERS
        assert len(reason) > 10
