"""Kinds whose readers do what no honest one does."""

from recollect.extract.kinds import Kind

KINDS = (
    Kind(
        "absent",
        "tests.extract.rogues.absent",
        frozenset({"application/x-absent", ".absent"}),
        is_light=True,
        loads=("not_there",),
    ),
    Kind(
        "refusing",
        "tests.extract.rogues.refusing",
        frozenset({"application/x-refusing", ".refusing"}),
    ),
    Kind(
        "rogue",
        "tests.extract.rogues.rogue",
        frozenset({"application/x-rogue", ".rogue"}),
        is_light=True,
        is_archive=True,
        unpacks=True,
    ),
)
