"""Pages that show a video: captions or sound, and its description, by yt-dlp where installed.

yt-dlp is a thousand parsers of strangers' pages, so it runs in a child process of its own for each
page, confined like those that read files: no files, no programs, no sockets. What connections it
needs it asks of this process, which opens each to a `GuardedProxy`, so that it reaches what
`Fetcher` reaches, and nothing else.
"""

import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from types import TracebackType
from urllib.parse import urlsplit

import msgspec

from recollect.errors import Transient
from recollect.fetch import Fetcher, GuardedProxy, ProxyLimits
from recollect.fetch.video._wire import FoundVideo, VideoJob, validate
from recollect.model import Blob

PACKAGE = "yt_dlp"
_PROGRAM = "from recollect.fetch.video._child import serve; serve()"
_LOOK_SECONDS = 0.5
"""between two checks whether it should stop"""
_CONNECTIONS = 10_000
"""of one child; a recording may come in thousands of pieces"""
_LONGEST_URL = 8_000
_LOOKED_AT = 2_000_000
"""bytes of a page in which a sign of a video is looked for"""

# A tag is passed over as a whole: what looked at each `<video` within it again would take a page of
# nothing else a thousand times.
_SIGN = re.compile(
    rb"og:video|og:type\W{1,5}content\W{1,5}video|twitter:player|<video(?:>|\s([^>]{0,1000}))", re.I
)
_DECORATION = re.compile(rb"\b(?:muted|loop)\b", re.I)
# Second levels under which sites have their names: bbc.co.uk.
_SHARED = frozenset({"ac", "co", "com", "edu", "go", "gov", "ne", "net", "or", "org"})


@dataclass(frozen=True, slots=True)
class VideoLimits:
    """What one page may take."""

    memory_bytes: int = 1_500_000_000
    """address space of the child"""
    most_bytes: int = 52_428_800
    """of sound, or of captions"""
    cpu_seconds: int = 120
    wall_seconds: float = 300.0
    at_once: int = 2
    """children"""


class VideoPages(AbstractContextManager["VideoPages"]):
    """Looks at pages with yt-dlp. Threads may share it."""

    def __init__(self, fetcher: Fetcher, limits: VideoLimits = VideoLimits()) -> None:
        self._fetcher = fetcher
        self._limits = limits
        self._turns = threading.Semaphore(limits.at_once)
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._words: frozenset[str] | None = None

    def look(self, page: Blob, url: str, *, with_sound: bool) -> FoundVideo | None:
        """The video on a page that was fetched from `url`; None if it shows none. Sound is fetched
        only if there are no captions. An ordinary page costs a look at its bytes; once in the life
        of a process a child lists the sites that yt-dlp knows. `trouble` says what went wrong.
        Raises Transient only, when this is closed.
        """
        marked = is_marked(page.data)
        addresses = [url] if page.url is None else [url, page.url]
        if max(map(len, addresses)) > _LONGEST_URL:
            return None
        known = [address for address in addresses if site(address) in self._known()]
        if not (marked or known):
            return None
        address = (known or addresses[-1:])[0]
        found = self._ask(self._job(address, marked=marked, with_sound=with_sound))
        if isinstance(found, str):
            found = FoundVideo(shown=True, trouble=found)
        return found if found.shown else None

    def close(self) -> None:
        """End all children; their callers get Transient."""
        self._stop.set()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _known(self) -> frozenset[str]:
        """Words of the addresses that yt-dlp knows; those of its sites are among them."""
        with self._lock:
            if self._words is None:
                found = self._ask(self._job(None, marked=False, with_sound=False))
                # Pages that tell of their video are looked at all the same.
                self._words = frozenset() if isinstance(found, str) else frozenset(found.words)
            return self._words

    def _job(self, url: str | None, *, marked: bool, with_sound: bool) -> VideoJob:
        limits = self._limits
        return VideoJob(
            url=url,
            site=site(url) if url else "",
            marked=marked,
            with_sound=with_sound,
            proxy="",
            memory_bytes=limits.memory_bytes,
            most_bytes=limits.most_bytes,
            cpu_seconds=limits.cpu_seconds,
            wall_seconds=limits.wall_seconds,
        )

    def _ask(self, job: VideoJob) -> FoundVideo | str:
        """Its answer, or why there is none, for people."""
        with self._turns, self._fetcher.proxy(ProxyLimits(total=job.wall_seconds)) as proxy:
            ours, theirs = socket.socketpair()
            with ours, theirs:
                ours.setblocking(False)
                try:
                    process = _start(theirs)
                except OSError as error:
                    return f"the process that reads such pages does not start ({error.strerror})"
                theirs.close()
                with process:
                    try:
                        job = msgspec.structs.replace(job, proxy=proxy.url)
                        answer = self._converse(process, ours, proxy, job)
                    finally:
                        process.kill()
                status = process.returncode
        try:
            found = msgspec.msgpack.decode(answer or b"", type=FoundVideo)
            validate(found, job)
        except (msgspec.DecodeError, ValueError):
            late = answer is None or status in (-signal.SIGXCPU, -signal.SIGALRM)
            return "it takes too long" if late else "yt-dlp crashed on it"
        return found

    def _converse(
        self,
        process: subprocess.Popen[bytes],
        line: socket.socket,
        proxy: GuardedProxy,
        job: VideoJob,
    ) -> bytes | None:
        """Hand out connections until the answer is there; None if it does not come in time."""
        assert process.stdin is not None
        assert process.stdout is not None
        # An answer has the sound or the captions, and a little text.
        most = job.most_bytes + 4_000_000
        with suppress(BrokenPipeError), process.stdin as out:  # its end is seen below
            out.write(msgspec.msgpack.encode(job))
        source = process.stdout.fileno()
        poll = select.poll()
        poll.register(source, select.POLLIN)
        poll.register(line, select.POLLIN)
        answer = bytearray()
        handed = 0
        until = time.monotonic() + job.wall_seconds
        while time.monotonic() < until:
            if self._stop.is_set():
                raise Transient("looking at video pages was stopped")
            for descriptor, _ in poll.poll(_LOOK_SECONDS * 1000):
                if descriptor == source:
                    piece = os.read(source, 1 << 20)
                    if not piece:
                        return bytes(answer)
                    answer += piece
                    if len(answer) > most:
                        return b""
                elif handed == _CONNECTIONS or not _hand_out(line, proxy):
                    poll.unregister(line)
                else:
                    handed += 1
        return None


def open_video_pages(kind: str, fetcher: Fetcher) -> VideoPages | None:
    """`auto`, or `none`; None also where yt-dlp is not installed."""
    return None if kind == "none" or not is_installed() else VideoPages(fetcher)


def is_installed() -> bool:
    return find_spec(PACKAGE) is not None


def is_marked(data: bytes) -> bool:
    """Whether a page says that it shows a video. A mute decoration does not count."""
    signs = _SIGN.finditer(data[:_LOOKED_AT])
    return any(not _DECORATION.search(sign[1] or b"") for sign in signs)


def site(url: str) -> str:
    """The word of an address that names its site: `youtube` of https://www.youtube.com/watch."""
    try:
        labels = (urlsplit(url).hostname or "").rstrip(".").split(".")[:-1]
    except ValueError:
        return ""
    while len(labels) > 1 and labels[-1] in _SHARED:
        labels.pop()
    word = labels[-1] if labels else ""
    return "" if word.isdecimal() else word


def _start(line: socket.socket) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-s", "-P", "-B", "-X", "utf8", "-c", _PROGRAM, str(line.fileno())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        # What it says there may quote the page.
        stderr=subprocess.DEVNULL,
        cwd="/",
        env=_environment(sys.path),
        pass_fds=(line.fileno(),),
        start_new_session=True,
        bufsize=0,
    )


def _environment(path: Sequence[str]) -> dict[str, str]:
    """Nothing of this process's own: that holds keys and passwords."""
    return {
        "PYTHONPATH": os.pathsep.join(folder or os.getcwd() for folder in path),
        "MALLOC_ARENA_MAX": "2",
        "YTDLP_NO_PLUGINS": "1",
    }


def _hand_out(line: socket.socket, proxy: GuardedProxy) -> bool:
    """Answer one wish for a connection; False when there will be no more.

    `line` must not block: a child that was taken over could keep us here.
    """
    try:
        if not line.recv(1):
            return False
        with proxy.dial() as connection:
            socket.send_fds(line, [b"."], [connection.fileno()])
    except OSError:
        return False
    return True
