"""Messages over pipes that do not block: a length, then so many bytes, before a deadline."""

import fcntl
import os
import select
import socket
import struct
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

LENGTH = struct.Struct(">I")
STATUS = struct.Struct(">i")
"""How a child ended, as the zygote tells it: below 0 by that signal."""
_PIPE_BYTES = 1 << 20
"""as many as Linux lets anybody have"""


class PipeClosed(Exception):
    """The child closed its pipe."""


class Late(Exception):
    """The child did not answer in time."""


def widen(pipe: int) -> None:
    """Let it hold more at a time, where that can be: each time it is full, both sides wake up."""
    if sys.platform == "linux":
        with suppress(OSError):
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)


def send(pipe: int, pieces: Sequence[bytes], deadline: float) -> None:
    """All at once where the pipe has room: each piece by itself would wake the child again."""
    views = [memoryview(piece) for piece in pieces if piece]
    while views:
        try:
            written = os.writev(pipe, views)
        except BlockingIOError:
            _wait(pipe, select.POLLOUT, deadline)
            continue
        except BrokenPipeError as error:
            raise PipeClosed from error
        while views and written >= len(views[0]):
            written -= len(views.pop(0))
        if written:
            views[0] = views[0][written:]


def receive(pipe: int, most: int, deadline: float) -> bytes:
    """One message; ValueError if it claims to be longer than `most` bytes."""
    size = LENGTH.unpack(receive_bytes(pipe, LENGTH.size, deadline))[0]
    if size > most:
        raise ValueError(f"an answer of {size} bytes")
    return receive_bytes(pipe, size, deadline)


def receive_bytes(pipe: int, size: int, deadline: float) -> bytes:
    data = bytearray()
    while len(data) < size:
        try:
            piece = os.read(pipe, min(size - len(data), 1 << 20))
        except BlockingIOError:
            _wait(pipe, select.POLLIN, deadline)
            continue
        if not piece:
            raise PipeClosed
        data += piece
    return bytes(data)


def _wait(descriptor: int, event: int, deadline: float) -> None:
    poll = select.poll()
    poll.register(descriptor, event)
    if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
        raise Late


def is_readable(line: socket.socket) -> bool:
    poll = select.poll()  # unlike select, for any number of open files
    poll.register(line, select.POLLIN)
    return bool(poll.poll(0))
