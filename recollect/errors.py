"""Every way in which something can go wrong, grouped by what happens next.

RecollectError
├── RequestError                     the caller is at fault; carries `status`; the message is shown
│   ├── BadRequestError        400   invalid or missing parameter, too large, blocked target
│   ├── AuthenticationError    401   no key, unknown key
│   ├── PermissionDeniedError  403   the plan or the key does not allow it
│   │   └── StrangerError            a page or a name that is not ours asks
│   ├── NotFoundError          404
│   ├── ConflictError          409   passing conflict; clients try again by themselves
│   └── RateLimitError         429   + Retry-After
├── Transient                        try again; the document goes back to the queue
│   ├── Unavailable                  something all documents need is down; costs no attempt
│   │   ├── Contended                the database ended this transaction alone; costs an attempt
│   │   └── Undeletable              the store keeps this one file, and is not down
│   ├── HeldOff                      a model answers others, or this lacks room; attempts far apart
│   └── Parked                       its connection or its turn; costs no attempt
├── Permanent                        will never work: unreadable, encrypted, unsupported, blocked
│   └── Refused                      the database cannot keep or compare a value of this content
├── Reauthorize                      the user must authorize the connection again
├── CursorExpired                    the provider forgot our cursor; list everything again
├── LeaseLost                        not ours any more; drop the result without a word
└── SetupError                       the machine or the settings are not right; says the remedy
"""

import errno
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any


class RecollectError(Exception):
    """Root of the tree."""


@dataclass(frozen=True, slots=True)
class Issue:
    """One fault of a request: where it is (`["metadata", "a"]`) and what is wrong."""

    path: Sequence[str | int]
    message: str


class RequestError(RecollectError):
    """The caller is at fault.

    `message` is the short, stable sentence; `details` says what is wrong here, field first.
    """

    status = 400
    permanent = False
    """a 409 or 5xx that trying again does not fix: clients repeat each unless told not to"""

    def __init__(
        self, message: str, details: str | None = None, issues: Sequence[Issue] = ()
    ) -> None:
        super().__init__(message if details is None else f"{message}: {details}")
        self.message = message
        self.details = details
        self.issues = issues


class BadRequestError(RequestError):
    status = 400

    def __init__(
        self,
        details: str,
        issues: Sequence[Issue] = (),
        message: str = "Invalid request parameters",
    ) -> None:
        super().__init__(message, details, issues)


class AuthenticationError(RequestError):
    status = 401

    def __init__(self, details: str | None = None) -> None:
        super().__init__("Unauthorized", details)


class PermissionDeniedError(RequestError):
    status = 403


class StrangerError(PermissionDeniedError):
    """A page or a name that is not ours asks, by this header."""

    def __init__(self, header: str, value: str) -> None:
        super().__init__(
            "Forbidden",
            f"{header}: {value[:200]!r} is neither this machine nor RECOLLECT_PUBLIC_URL",
        )


class NotFoundError(RequestError):
    status = 404


class ConflictError(RequestError):
    status = 409


class AmbiguousError(ConflictError):
    """A customId that several documents have."""

    permanent = True


class ForgottenError(ConflictError):
    permanent = True


class RateLimitError(RequestError):
    status = 429

    def __init__(self, message: str, retry_after: timedelta) -> None:
        self.seconds = max(1, round(retry_after.total_seconds()))
        """until it is worth trying again"""
        super().__init__(message, f"try again in {self.seconds} s")


class Transient(RecollectError):
    """Passing trouble; `after` is how long the other side asked us to wait, if it did."""

    def __init__(
        self, message: str, *, code: str = "temporary_error", after: timedelta | None = None
    ) -> None:
        super().__init__(message)
        self.code = code
        self.after = after


class Unavailable(Transient):
    """A dependency that every document needs is down: the queue pauses, nothing fails."""

    def __init__(
        self, message: str, *, code: str = "dependency_down", after: timedelta | None = None
    ) -> None:
        super().__init__(message, code=code, after=after)


class DatabaseAway(Unavailable):
    """The database does not answer, or gives nobody a connection in time."""


DISK_FULL = "disk_full"
"""`code` of an Unavailable: the database, or the folder of files, has no room left."""
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT})
"""What the system says of a disk that is full, or of which a user has had his part."""
READ_ONLY = "database_read_only"
"""`code` of an Unavailable: the database answers, and takes no writes."""
DATABASE_AWAY = "the database does not answer"
"""What clients are told of a DatabaseAway: its own message may name hosts and roles."""
NO_WRITES = (
    "the database takes no writes: it is a standby (name the server that writes), or"
    " default_transaction_read_only is on (reset it for the role, the database or the server)"
)
NO_ROOM_LEFT = "the disk is full: this cannot be stored until there is room"


class Contended(Unavailable):
    """The database ended this transaction, in favour of others or because it took too long.

    Nothing is down: nothing else pauses, and the attempt counts, or what is slow each time would
    be tried forever. Whoever only wants to try again treats it as any Unavailable.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message, code="database_contended")


class Collided(Contended):
    """It met another transaction and was ended so that the other could go on, as of two that wait
    for each other: the same once more goes through as a rule (`Database.write`)."""


class Undeletable(Unavailable):
    """The store of files is there and does not let this one go, such as one that is locked."""


class HeldOff(Transient):
    """A model has no answer to this now and answers something else, or this alone has no room on
    the disk: nothing is down and nobody else waits. It may be a limit that passes, so the attempts,
    which count, lie far apart."""


class Parked(Transient):
    """It has to wait: its connection for a provider or a user, or itself for its turn with the
    models that read pictures and recordings; costs no attempt."""


class Permanent(RecollectError):
    """Trying again cannot help. `code` (`encrypted_file`) is for programs."""

    def __init__(self, message: str, *, code: str = "unreadable_content") -> None:
        super().__init__(message)
        self.code = code


class Refused(Permanent):
    """The database cannot keep or compare a value, however often it is asked: too long, too large,
    out of range, against a rule of the schema. The message quotes no value."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code="database_refused")


class Reauthorize(RecollectError):
    """The user has to authorize the connection again."""

    code = "auth_expired"


class KeyLost(Reauthorize):
    """No key opens what the connection was given; it goes on once the old key is back."""

    code = "key_lost"


class CursorExpired(RecollectError):
    """The provider does not know our cursor any more."""


class LeaseLost(RecollectError):
    """Someone else holds the document, or it was deleted."""

    code = "lease_lost"


class SetupError(RecollectError):
    """The machine or the settings are not right; the message says how to fix it."""


INTERNAL_ERROR = "internal_error"
"""The code of a failure that is Recollect's own."""


def code_of(error: Exception) -> str:
    """The code under which a failure is stored and counted."""
    if isinstance(error, Permanent | Transient | Reauthorize | LeaseLost):
        return error.code
    return INTERNAL_ERROR


def sentence_of(error: RecollectError) -> str:
    """What clients are told of a failure: words of the database's server, which may name hosts,
    roles and files, are for the log."""
    if isinstance(error, DatabaseAway):
        return DATABASE_AWAY
    if isinstance(error, Unavailable) and error.code in (DISK_FULL, READ_ONLY):
        return NO_ROOM_LEFT if error.code == DISK_FULL else NO_WRITES
    if isinstance(error, RequestError):
        return error.details or error.message
    return str(error)


_KINDS = {
    "text": ("string",),
    "a whole number": ("int",),
    "a number": ("float", "decimal"),
    "true or false": ("bool",),
    "a list": ("list", "tuple", "set", "iterable"),
    "an object": ("dict", "model", "mapping", "dataclass"),
    "a time, such as 2026-11-22T12:36:05Z": ("datetime", "timezone"),
    "a date, such as 2026-11-22": ("date",),
    "an address": ("url",),
    "a duration in seconds or ISO 8601, such as 90, PT4H, P7D": ("time_delta",),
}
_BOUNDS = {
    "less_than_equal": ("at most", "le"),
    "less_than": ("below", "lt"),
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("above", "gt"),
    "multiple_of": ("a multiple of", "multiple_of"),
}
_LENGTHS = {
    "string_too_short": ("at least", "min_length", "character"),
    "string_too_long": ("at most", "max_length", "character"),
    "too_short": ("at least", "min_length", "item"),
    "too_long": ("at most", "max_length", "item"),
}


def in_words(fault: Mapping[str, Any]) -> str:
    """What is wrong by a finding of Pydantic's (an item of its `errors()`), in words of ours."""
    kind, told = str(fault["type"]), str(fault["msg"])
    given: Mapping[str, Any] = fault.get("ctx", {})
    if kind in ("value_error", "assertion_error"):
        return told.partition(", ")[2] or told
    if kind in ("missing", "extra_forbidden"):
        return "is missing" if kind == "missing" else "unknown field"
    if kind == "string_pattern_mismatch":
        return f"must match {given['pattern']}"
    if kind in _BOUNDS:
        word, name = _BOUNDS[kind]
        return f"must be {word} {_number(given[name])}"
    if kind in _LENGTHS:
        word, name, what = _LENGTHS[kind]
        if kind == "too_long" and isinstance(fault.get("input"), str):
            what = "character"
        count = given[name]
        if (word, count) == ("at least", 1):
            return "must not be empty"
        length = given.get("actual_length")
        more = f", not {length:,}" if isinstance(length, int) else ""
        return f"must have {word} {count:,} {what}{'' if count == 1 else 's'}{more}"
    if kind in ("literal_error", "enum"):
        return f"must be {given['expected']}"
    for words, beginnings in _KINDS.items():
        if kind.startswith(tuple(f"{one}_" for one in beginnings)):
            return f"must be {words}"
    return told.replace("Input should be", "must be").replace("Input should", "must")


_TYPES: Mapping[str | int, str] = {
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "list[str]": "a list of texts",
}


def by_place(faults: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Pydantic's findings, one for each value: for one that may be of several types, it has one
    for each of them, with the type as a part of the place."""
    grouped: dict[tuple[str | int, ...], list[Mapping[str, Any]]] = {}
    for fault in faults:
        grouped.setdefault(_place(fault["loc"]), []).append(fault)
    found: list[Mapping[str, Any]] = []
    for place, of_it in grouped.items():
        types = {fault["loc"][len(place)] for fault in of_it if len(fault["loc"]) > len(place)}
        if "float" in types:
            types.discard("int")
        kinds = [words for type, words in _TYPES.items() if type in types]
        told = f"must be {', '.join(kinds[:-1])} or {kinds[-1]}" if kinds[1:] else None
        whole = {**of_it[0], "type": "union", "loc": place, "msg": told}
        found += [whole] if told else of_it
    return found


def _place(named: tuple[str | int, ...]) -> tuple[str | int, ...]:
    """Without the type that a value may be of; a field may have the name of one."""
    ends = (at for at in range(len(named) - 1, 0, -1) if named[at] in _TYPES)
    return named[: next(ends, len(named))]


def _number(bound: object) -> str:
    if isinstance(bound, float) and bound.is_integer():
        bound = int(bound)
    return f"{bound:,}" if isinstance(bound, int | float) else str(bound)
