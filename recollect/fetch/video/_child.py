"""The child process that runs yt-dlp on one page: confines itself, looks, answers, ends."""

import os
import resource
import signal
import socket
import sys
from typing import Any, cast

import msgspec

from recollect.fetch.video._wire import VideoJob
from recollect.sandbox.confine import confine

_DESCRIPTORS = 64
_OTHER_STACKS = ("requests", "curl_cffi", "websockets", "secretstorage", "mutagen")
"""Libraries that yt-dlp would use where they are: they open sockets of their own, which fails."""


def serve() -> None:
    """Answer the job on standard input. Never returns."""
    writer = os.dup(1)
    # Whatever prints must not write into the answer.
    os.dup2(2, 1)
    with open(0, "rb", closefd=False) as reader:
        job = msgspec.msgpack.decode(reader.read(), type=VideoJob)
    line = socket.socket(fileno=int(sys.argv[1]))
    resource.setrlimit(resource.RLIMIT_CPU, (job.cpu_seconds, job.cpu_seconds + 5))
    signal.setitimer(signal.ITIMER_REAL, job.wall_seconds + 5)
    for name in _OTHER_STACKS:
        cast(dict[str, Any], sys.modules)[name] = None
    confine(
        packages=("yt_dlp",),
        memory_bytes=job.memory_bytes,
        file_bytes=0,
        descriptors=_DESCRIPTORS,
    )
    from recollect.fetch.video import _ytdlp  # noqa: PLC0415 - what it loads is confined from now on

    view = memoryview(msgspec.msgpack.encode(_ytdlp.answer(job, line)))
    while view:
        view = view[os.write(writer, view) :]
    os._exit(0)
