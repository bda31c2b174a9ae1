"""One HTTP connection: what it may cost before a request is whole, and while its answer is read.

uvicorn's parser has no bounds of its own. Here a head has a size and a deadline, and connections
that wait for a head have a number, in all and by address; the ones that wait longest make room.
Who does not read what is sent is cut off.
"""

import asyncio
import json
import re
import resource
import socket
from collections import defaultdict
from contextlib import suppress
from http import HTTPStatus
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from recollect import log
from recollect.api import edge

LOG = log.get("api")
HEAD = 64 * 1024
"""Bytes of a head, of a body's trailers, or of what stands between two pieces of a body."""
HEAD_WITHIN = 10.0
"""Seconds from the first byte of a head, or from the beginning of a connection, to its end; and how
long the rest of a body comes in after it was refused."""
IDLE = 75
"""Seconds that a connection is kept for the next request: longer than clients and proxies keep it
(up to a minute), so that none sends a request into one that we close."""
READ_WITHIN = 180.0
"""Seconds within which some of what waits to be read is read. A client that takes
a kilobyte a second shows that it reads about every two minutes."""
UNSENT = 64 * 1024
"""Bytes that the system takes from us beyond those under way. Left to itself it takes megabytes,
and asks for more once a third of them is read: until then a slow reader looks like none."""
WAITING = 512
"""Connections that wait for a head, in all."""
WAITING_HERE = 128
"""Such connections from one address. A proxy on this machine may have any number."""
GRACE = 1.0
"""Seconds that a connection waits before it can be made to give way: a burst is not an attack."""
AHEAD = 16
"""Requests that a client may send before the first is answered."""
RESERVED = 256
"""Descriptors that are left for the database, files and models."""
_MAPPED = re.compile(r"::ffff:(\d+\.\d+\.\d+\.\d+)")
"""How a socket for both families (`::`) tells an IPv4 address, by which a proxy is believed."""


class Crowd:
    """The connections of a process that wait for a head, those that wait longest first."""

    def __init__(self) -> None:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        unlimited = soft == resource.RLIM_INFINITY
        self.most = 65_536 if unlimited else max(soft - RESERVED, soft // 2)
        """connections of any kind"""
        self._since: dict[BoundedHttp, float] = {}
        self._by_address: defaultdict[str, dict[BoundedHttp, None]] = defaultdict(dict)

    def join(self, wire: "BoundedHttp", now: float) -> None:
        """`wire` waits; if too many do, the one that has waited longest ends."""
        self.leave(wire)
        self._since[wire] = now
        if len(self._since) > WAITING:
            self.make_room(now)
        if wire.address is not None:
            here = self._by_address[wire.address]
            here[wire] = None
            if len(here) > WAITING_HERE:
                self._end(next(iter(here)), now)

    def leave(self, wire: "BoundedHttp") -> None:
        self._since.pop(wire, None)
        if wire.address is not None and wire.address in self._by_address:
            self._by_address[wire.address].pop(wire, None)
            if not self._by_address[wire.address]:
                del self._by_address[wire.address]

    def make_room(self, now: float) -> bool:
        """End the connection that waits longest; False if each waits only since a moment."""
        return bool(self._since) and self._end(next(iter(self._since)), now)

    def _end(self, wire: "BoundedHttp", now: float) -> bool:
        if now - self._since[wire] < GRACE:
            return False
        self.leave(wire)
        wire.transport.abort()
        return True


CROWD = Crowd()


class BoundedHttp(HttpToolsProtocol):
    """uvicorn's protocol with bounds."""

    def __init__(self, *arguments: Any, **more: Any) -> None:
        super().__init__(*arguments, **more)
        self.timeout_keep_alive = IDLE
        self.address: str | None = None
        self._begun = False
        """whether a request was ever whole"""
        self._in_head = False
        self._deadline: asyncio.TimerHandle | None = None
        self._reading: asyncio.TimerHandle | None = None
        """runs while the other side has to read"""
        self._unread = 0
        """bytes since the parser last had something whole: a head, or a piece of a body"""
        self._lines = 0
        """bytes of the lines of this request's head and trailers"""
        self._large = False

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        line: socket.socket = transport.get_extra_info("socket")
        with suppress(OSError):  # who connected may be gone again
            line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT)
        if self.client and (mapped := _MAPPED.fullmatch(self.client[0])):
            self.client = (mapped[1], self.client[1])
        self.address = edge.address_of(self.client)
        if len(self.connections) > CROWD.most and not CROWD.make_room(self.loop.time()):
            self._refuse(503, "too many connections; try again in a moment")
            return
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._go_on()
        self._is_read()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._must_be_read()

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self.transport.is_closing():
            self._is_read()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._must_be_read()

    def data_received(self, data: bytes) -> None:
        self._unread += len(data)
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._unread > HEAD:
            self._too_large()
        elif not (self._deadline or self.timeout_keep_alive_task or self._answers()):
            self._wait()

    def on_message_begin(self) -> None:
        self._unset_keepalive_if_required()
        self._in_head = True
        self._lines = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(len(name) + len(value) + 4)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if len(self.pipeline) >= AHEAD:
            raise httptools.HttpParserError("too many requests before the first is answered")
        self._go_on()
        self._in_head = False
        self._unread = 0
        super().on_headers_complete()
        self._begun = True

    def on_body(self, body: bytes) -> None:
        self._unread = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._unread = 0
        super().on_message_complete()
        if self.cycle.response_complete:  # it was answered before it was whole
            self._go_on()
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )
            CROWD.join(self, self.loop.time())

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            self._must_be_read()
        if self.timeout_keep_alive_task is None:
            return
        if self._in_head or self.cycle.more_body:
            self._wait()
        else:  # it is kept for the next request
            CROWD.join(self, self.loop.time())

    def send_400_response(self, msg: str) -> None:
        if self._large:
            self._too_large()
        else:
            self._refuse(400, "this is not a request of HTTP/1.1")

    def _count(self, more: int) -> None:
        self._lines += more
        if self._lines > HEAD:
            self._large = True
            raise httptools.HttpParserError("too large")

    def _answers(self) -> bool:
        """Whether a request is being answered, so that nothing may be written between."""
        return self._begun and not self.cycle.response_complete

    def _may_tell(self) -> bool:
        """Whether a refusal now is taken for the answer to what is refused: a head, or the body of
        the one request that is in work."""
        if not self._answers():
            return True
        return self.cycle.more_body and not (self.pipeline or self.cycle.response_started)

    def _wait(self) -> None:
        self._go_on()
        self._unset_keepalive_if_required()
        self._deadline = self.loop.call_later(HEAD_WITHIN, self._late)
        CROWD.join(self, self.loop.time())

    def _go_on(self) -> None:
        CROWD.leave(self)
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _late(self) -> None:
        if self.transport.is_closing():
            self.transport.abort()
        elif self._unread and not self._answers():
            self._refuse(408, f"the head of a request takes at most {HEAD_WITHIN:g} seconds")
        else:
            self._close()

    def _too_large(self) -> None:
        self._refuse(431, f"the head of a request has at most {HEAD:,} bytes")

    def _refuse(self, status: int, text: str) -> None:
        self._go_on()
        LOG.info("connection refused", status=status, reason=text)
        if self._may_tell():
            told = {"error": HTTPStatus(status).phrase.capitalize(), "details": text}
            body = json.dumps(told).encode()
            head = b"content-type: application/json\r\ncontent-length: %d\r\n" % len(body)
            self.transport.write(STATUS_LINE[status] + head + b"connection: close\r\n\r\n" + body)
        self._close()

    def _close(self) -> None:
        self.transport.close()
        self._must_be_read()

    def _must_be_read(self) -> None:
        if self._reading is None:
            left = self.transport.get_write_buffer_size()
            self._reading = self.loop.call_later(READ_WITHIN, self._reads_on, left)

    def _reads_on(self, before: int) -> None:
        self._reading = None
        if self.transport.get_write_buffer_size() < before:
            self._must_be_read()
        else:
            self.transport.abort()

    def _is_read(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            self._reading = None
