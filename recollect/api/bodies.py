"""Bodies of requests while they come in: how large, how slow, and how many at once.

Memory is charged as it is taken: to the key that sends, its organisation and all keys together, or
to all who have none. What a body's header claims is only believed where it claims too much.
"""

import asyncio
import re
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from itertools import accumulate

from starlette.datastructures import Headers
from starlette.types import Message, Receive, Scope

from recollect import connectors
from recollect.errors import BadRequestError, RateLimitError
from recollect.model import Key

KB = 1024
MB = 1024 * KB
LARGEST = 80 * MB
"""Bytes of a body that holds content; single fields have tighter limits of their own."""
MESSAGES = 50 * MB
"""Bytes of an assistant's message. There is room for it and for what its tool then sends."""
LISTS = 16 * MB
"""Bytes of a body that holds metadata, or many patterns, memories, questions or turns."""
SMALL = MB
"""Bytes of any other body."""
_LIMITS = (
    (re.compile(r"/v3/documents(/batch|/file)?|/v4/conversations|/console/add"), LARGEST),
    (re.compile(r"/mcp"), MESSAGES),
    (re.compile(r"/console/documents/[^/]+/edit"), LARGEST),
    (re.compile(r"/v3/documents/(?!list$|retry$|bulk$|documents$)[^/]+"), LARGEST),
    (re.compile(r"/ns/[^/]+/document(/.*)?"), LARGEST),
    *(
        (re.compile(f"/v3/hooks/{one.provider}"), one.largest_push)
        for one in connectors.all().values()
        if one.largest_push is not None
    ),
    (re.compile(r"/v3/settings(/preview)?|/v3/connections/.+|/v4/(memories|answer)"), LISTS),
    (re.compile(r"/v3/test-questions(/import)?"), LISTS),
    (re.compile(r"/console/(filters|connections)(/.*)?"), LISTS),
    # Anybody may send these; some hold what an assistant asks, with a long state.
    (re.compile(r"/console/login"), 32 * KB),
    (re.compile(r"/console/assistants/allow|/oauth/(register|token|revoke)"), 64 * KB),
)
"""The first that matches the whole path counts."""
DEPTH = 950
"""Levels of a JSON body."""
VALUE = 48
"""Bytes that a JSON value takes in memory besides its text, at least."""
BY_KEY = 112 * MB
"""Memory for the bodies of one key that are in work; one of the largest has room."""
BY_ORG = 144 * MB
"""… and of all keys of an organisation: beside it there is room for a largest one of others."""
BY_ALL = 240 * MB
"""… and of all keys."""
SPARE = 16 * MB
"""Beyond what an organisation, or all, may hold, for keys, or organisations, that hold little: the
others together cannot keep them waiting."""
LITTLE = 4 * MB
"""What those hold at most."""
BY_STRANGERS = 64 * MB
"""Memory for the bodies of all who have no key."""
PATIENCE = timedelta(seconds=10)
"""How long a body waits for others to be done before it is refused."""
STALL = timedelta(seconds=30)
"""How long a body may bring nothing before we stop to wait for the rest. All of a body without a
key comes within that time."""
SLOWEST = 32 * 1024
"""Bytes a second that a longer body brings at least."""
_STRINGS = re.compile(rb'"(?:[^"\\]++|\\.|(?!))*+("|\\?\Z)', re.DOTALL)
_STEPS = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


class BusyError(RateLimitError):
    status = 503


class Held:
    """What one body holds of the memory, and whether it waits for more."""

    def __init__(self, key: Key | None) -> None:
        self.key = key
        self.size = 0
        self.waits = False

    def shares(self) -> dict[str, int]:
        """What it takes from, and how much that may be in all; the narrowest first."""
        if self.key is None:
            return {"strangers": BY_STRANGERS}
        return {
            f"key {self.key.id}": BY_KEY,
            f"org {self.key.org.id}": BY_ORG,
            "all": BY_ALL,
        }


class BodyMemory:
    """The memory that bodies in work hold, in this process; used on the event loop only."""

    def __init__(self) -> None:
        self._taken = Counter[str]()
        """by share"""
        self._holders: dict[Held, None] = {}
        """in the order in which they came"""
        self._changed = asyncio.Event()

    async def take(self, held: Held, size: int) -> None:
        """Waits for room, but not where all who have taken it wait for each other: then the last of
        them gives way. Raises RateLimitError where the key or the organisation holds too much,
        BusyError where others do."""
        until = time.monotonic() + PATIENCE.total_seconds()
        try:
            while (share := self._full(held, size)) is not None:
                if not held.waits:
                    held.waits = True
                    self._changed.set()  # another one may have to give way now
                rest = until - time.monotonic()
                if rest <= 0 or self._gives_way(held, share):
                    raise _refusal(share)
                self._changed.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(rest):
                        await self._changed.wait()
        finally:
            held.waits = False
        held.size += size
        self._holders[held] = None
        for share in held.shares():
            self._taken[share] += size

    def give_back(self, held: Held) -> None:
        for share in held.shares():
            self._taken[share] -= held.size
        self._taken += Counter()  # forgets who has none
        held.size = 0
        self._holders.pop(held, None)
        self._changed.set()

    def _full(self, held: Held, size: int) -> str | None:
        """The first share without room for it."""
        spare = 0
        for name, most in held.shares().items():
            would = self._taken[name] + size
            if would > most + spare:
                return name
            spare = SPARE if would <= LITTLE else 0
        return None

    def _gives_way(self, held: Held, share: str) -> bool:
        """Whether all who hold some of the share wait for more, and this one came last."""
        holders = [one for one in self._holders if share in one.shares()]
        return holders[-1] is held and all(one.waits for one in holders)


def _refusal(share: str) -> RateLimitError:
    soon = timedelta(seconds=1)
    if share.startswith("key "):
        return RateLimitError("Too many large requests at once", soon)
    if share.startswith("org "):
        return RateLimitError("Too many large requests of this organisation at once", soon)
    return BusyError("Too busy", soon)


_AS_IT_IS = frozenset({"", "identity", "utf-8", "utf8"})
"""Of `content-encoding`. Clients put the charset there by mistake: then nothing is compressed."""


class Body:
    """One request's body: what it is charged, and the limits that it keeps."""

    def __init__(self, ledger: BodyMemory, scope: Scope, path: str, marks: dict[str, str]) -> None:
        """`marks` are headers of the answer."""
        headers = Headers(scope=scope)
        self._ledger = ledger
        self._scope = scope
        self._marks = marks
        self._limit = limit_of(path)
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        self._spooled = kind == "multipart/form-data"
        self._json = Scanner() if kind.endswith("json") else None
        self._claimed = headers.get("content-length", "")
        self._encoding = headers.get("content-encoding", "identity")
        self._taken = 0
        self._held: Held | None = None

    def check(self) -> None:
        """Raises BadRequestError for a body that claims to be too large, or to be compressed."""
        if not _AS_IT_IS.issuperset(self._encoding.lower().replace(" ", "").split(",")):
            raise BadRequestError(
                f"content-encoding: send the body as it is, not as {self._encoding[:80]!r}"
            )
        if len(self._claimed) > 18 or int(self._claimed or 0) > self._limit:
            raise self._too_large()

    def close(self) -> None:
        """The request is over: what it held is free."""
        if self._held is not None:
            self._ledger.give_back(self._held)

    def counted(self, receive: Receive) -> Receive:
        """`receive`, which raises RequestError where the body goes beyond a limit."""
        more = True
        spent = 0.0

        async def receive_counted() -> Message:
            nonlocal more, spent
            if not more:  # after it comes only the end of the connection: one may wait long
                return await receive()
            began = time.monotonic()
            try:
                async with asyncio.timeout(self._rest(spent)):
                    message = await receive()
            except TimeoutError as error:
                self._marks["connection"] = "close"
                raise BadRequestError(self._slowness()) from error
            spent += time.monotonic() - began
            if message["type"] == "http.request":
                more = message.get("more_body", False)
                await self._count(message.get("body", b""), more)
            return message

        return receive_counted

    async def _count(self, piece: bytes, more: bool) -> None:
        self._taken += len(piece)
        if self._taken > self._limit:
            raise self._too_large()
        if self._held is None:  # the key is known before a body is read, and the same to its end
            self._held = Held(self._key)
        if self._spooled:
            # It goes to the disk as it comes, and is read from there once it is whole.
            size = min(self._taken, MB) - min(self._taken - len(piece), MB) if more else 0
            size += 0 if more else max(self._taken - self._held.size, 0)
        else:
            size = len(piece)
        if self._json is not None and self._key is not None:
            size += VALUE * self._json.feed(piece)
        if self._held.size + size > (BY_STRANGERS if self._key is None else BY_KEY):
            raise BadRequestError("the body holds too many values")
        if size:
            await self._ledger.take(self._held, size)

    @property
    def _key(self) -> Key | None:
        # The console finds it after the edge did, but before a body is read.
        return self._scope["state"].get("key")

    def _rest(self, spent: float) -> float:
        """Seconds until the next piece has to be here."""
        stall = STALL.total_seconds()
        if self._key is None:
            return max(stall - spent, 0)
        return min(stall, max(stall + self._taken / SLOWEST - spent, 0))

    def _slowness(self) -> str:
        return (
            f"the body brought nothing for {STALL.total_seconds():g} seconds, or less than"
            f" {SLOWEST:,} bytes a second"
        )

    def _too_large(self) -> BadRequestError:
        return BadRequestError(f"the body is larger than {self._limit:,} bytes")


class Scanner:
    """Looks at JSON as it comes in, before any of it is parsed."""

    def __init__(self) -> None:
        self._rest = b""
        """a beginning of the next piece, where the last ended within a string"""
        self._depth = 0

    def feed(self, piece: bytes) -> int:
        """How many values begin in the piece, about; raises BadRequestError where it nests too
        deeply."""
        outside, strings = _STRINGS.subn(rb"\1", self._rest + piece)
        is_open = strings > outside.count(b'"')
        self._rest = b""
        if is_open:
            self._rest = b'"\\' if outside.endswith(b"\\") else b'"'
        opened = outside.count(b"[") + outside.count(b"{")
        if self._depth + opened > DEPTH and max(self._depths(outside), default=0) > DEPTH:
            raise BadRequestError(f"the body nests too deeply: at most {DEPTH} levels")
        self._depth += opened - outside.count(b"]") - outside.count(b"}")
        return opened + outside.count(b",") + outside.count(b":")

    def _depths(self, outside: bytes) -> Iterator[int]:
        return accumulate((_STEPS.get(byte, 0) for byte in outside), initial=self._depth)


def limit_of(path: str) -> int:
    """Bytes that the body of a request for it may have."""
    return next((limit for known, limit in _LIMITS if known.fullmatch(path)), SMALL)
