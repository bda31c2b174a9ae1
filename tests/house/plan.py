"""What the plan of the house allows: bounds, and the exceptions with their reason.

`test_house.py` holds the code to them; `python -m tests.house` counts. An exception may go, and
none may come without a reason that the next reader accepts.
"""

from collections.abc import Mapping

MOST_ROOT_ENTRIES = 32
MOST_LINES = 600
MOST_FUNCTION_IMPORTS = 13
"""All with their reason beside them: engines that are large, that a child loads once it is
confined, or that an operator may leave out; and what only readers of texts need."""
MOST_TOUR_FILES = 7
MOST_TOUR_LINES = 2_000

SQL_ROOMS = frozenset(
    {
        "db",
        "documents",
        "orgs",
        "index",
        "sync",
        "memories",
        "search",
        "events",
        "ops",
        "telemetry",
    }
)
SQL_ELSEWHERE: Mapping[str, str] = {
    "cli/_add_ledger.py": "SQLite: what this machine has added",
    "torture/judge.py": "judges the database from outside",
    "torture/run.py": "judges the database from outside",
}

TENANCY = "db/tenancy.py"
TENANCY_ELSEWHERE: Mapping[str, str] = {
    "documents/figures.py": "with the numbers of the tags, so that the index serves it",
}

CLASS_NAMES_TWICE = frozenset({"Pass", "State"})
"""Those of connectors that play the same part in each of them."""

PROVIDERS_ELSEWHERE: Mapping[str, str] = {
    "blobs.py": "the scheme of a store of files, which has no connection",
}
"""Files outside of `connectors/` that name a provider, and why they may."""

ASKED_FROM_ABOVE = frozenset({"connectors", "console", "ingest", "worker"})
"""Rooms that tests of other rooms import alone: for a list of providers or of texts, to draw a
page, or to have the queue worked off."""

WAYS: Mapping[str, tuple[int, int, int]] = {
    "a text, from POST to its chunks": (9, 37, 118),
    "a search": (6, 27, 108),
    "a sync of one new file": (13, 74, 503),
}
"""Rooms, files, and changes from one file to another, at most. The goals are 9, 24, 60 for a text,
6 rooms and 12 files for a search, and 10, 55, 250 for a sync. What has come since they were set
(turns, bounds of bodies, phrases, tenancy in one place, older texts), and what long modules were
split into (models of the wire, candidates of a search, the queue of connections, authorizations,
what a sync does to items and leaves as they are, folders and listings of a drive, languages, the
children that read files), are files on the way. What a provider held back is read again, and broken
things are told from a provider that is down (10 changes of file in a sync); words are counted in
the tag, too (2 in a search); the first passage is found by the names of its document (2 for a text,
6 in a sync, where they have digits)."""
