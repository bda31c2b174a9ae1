"""yt-dlp on one page. Only the child loads it, and only once it is confined."""

import io
import itertools
import re
import socket
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

import msgspec
import yt_dlp
import yt_dlp.networking._urllib as stack
from yt_dlp.downloader import common
from yt_dlp.extractor import gen_extractor_classes
from yt_dlp.utils import dfxp2srt

from recollect.fetch.video._wire import LINE, MAX_WORDS, NOTES, FoundVideo, VideoJob
from recollect.model import storable

_READABLE = ("vtt", "srt", "ttml", "dfxp")
"""endings of captions, best first"""
_FORMAT = "(ba/b)[protocol~='^(https?|m3u8(_native)?|http_dash_segments)$']"
_WORD = re.compile(r"(?<!\\)[a-z0-9][a-z0-9-]*")
_GROUP = re.compile(r"\(\?P<\w+>|\(\?[a-z]+\)|\(\?<?[:!=]", re.I)


class _TooLarge(Exception):
    """More bytes came than are allowed."""


def answer(job: VideoJob, line: socket.socket) -> FoundVideo:
    if job.url is None:
        return FoundVideo(words=tuple(itertools.islice(_words(), MAX_WORDS)))
    extractor = _extractor(job.url, job.site)
    if extractor is None and not job.marked:
        return FoundVideo()
    _connect_through(line)
    return _look(job, job.url, extractor, _keep_in_memory(job.most_bytes))


# --- which pages ---------------------------------------------------------------------------------


def _extractors() -> list[Any]:
    return [one for one in cast(Any, gen_extractor_classes)() if one.IE_NAME != "generic"]


def _patterns(extractor: Any) -> Sequence[str]:
    found = extractor._VALID_URL
    return [found] if isinstance(found, str) else found or []


def _words() -> Iterable[str]:
    """All words of all patterns; those of sites are among them."""
    return {
        word
        for extractor in _extractors()
        for pattern in _patterns(extractor)
        for word in _WORD.findall(_GROUP.sub("(", pattern).lower())
        if len(word) <= LINE
    }


def _extractor(url: str, site: str) -> str | None:
    """The key of the extractor that takes this address, other than the one for all the rest.

    Only those that name the site are asked: to compile the patterns of all takes a second.
    """
    named = (
        one
        for one in _extractors()
        if site and any(site in pattern.lower() for pattern in _patterns(one))
    )
    return next((one.ie_key() for one in named if one.suitable(url)), None)


# --- the world outside ---------------------------------------------------------------------------


def _connect_through(line: socket.socket) -> None:
    """Have yt-dlp ask the parent for each of its connections: this process cannot make any."""
    lock = threading.Lock()

    def connect(_: object, timeout: Any = None, *_others: object, **_more: object) -> socket.socket:
        with lock:
            line.sendall(b"?")
            _, found, _, _ = socket.recv_fds(line, 1, 1)
        if not found:
            raise ConnectionRefusedError("no more connections")
        connection = socket.socket(fileno=found[0])
        connection.settimeout(timeout if isinstance(timeout, int | float) else None)
        return connection

    cast(Any, stack).create_connection = connect


class _File(io.BytesIO):
    """A file with a limit of bytes, which can be read after it was closed."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most

    def write(self, data: Any, /) -> int:
        if self.tell() + len(data) > self._most:
            raise _TooLarge
        return super().write(data)

    def close(self) -> None:
        pass


def _keep_in_memory(most: int) -> dict[str, _File]:
    """Have yt-dlp write its files into what is returned, by name; `-` is the one that is wanted."""
    files: dict[str, _File] = {}

    def sanitize_open(name: str, mode: str) -> tuple[io.BytesIO, str]:
        if "r" in mode:
            return io.BytesIO(files.pop(name).getvalue()), name
        files[name] = _File(most)
        return files[name], name

    cast(Any, common).sanitize_open = sanitize_open
    return files


class _Silent:
    """What yt-dlp would say on the way is of no use here: what stops it is raised."""

    def debug(self, message: str) -> None: ...

    def warning(self, message: str) -> None: ...

    def error(self, message: str) -> None: ...


def _options(proxy: str) -> dict[str, Any]:
    return {
        "proxy": proxy,
        "logger": _Silent(),
        "quiet": True,
        "noprogress": True,
        "cachedir": False,
        "js_runtimes": {},
        "remote_components": (),
        "ffmpeg_location": "/nowhere",
        "external_downloader": {"default": "native"},
        "hls_prefer_native": True,
        # Of the sounds in the language of the video, the one with the fewest bytes.
        "format": _FORMAT,
        "format_sort": ["lang", "+size", "+br", "+res"],
        "ignore_no_formats_error": True,
        "noplaylist": True,
        "playlist_items": "1",
        "skip_download": True,
        "writesubtitles": True,
        "writeautomaticsub": True,
        "nopart": True,
        "continuedl": False,
        "updatetime": False,
        "socket_timeout": 20,
        "retries": 2,
        "fragment_retries": 2,
        "extractor_retries": 1,
    }


# --- the video -----------------------------------------------------------------------------------


def _look(job: VideoJob, url: str, extractor: str | None, files: dict[str, _File]) -> FoundVideo:
    own = extractor is not None
    with cast(Any, yt_dlp).YoutubeDL(_options(job.proxy)) as ydl:
        try:
            info: dict[str, Any] = ydl.extract_info(
                url, download=False, ie_key=extractor or "Generic"
            )
            if info.get("_type") in ("playlist", "multi_video"):
                # Of a page with several videos the first; a list of pages is none of a video.
                entries = [] if own else [one for one in info.get("entries") or () if one]
                if not entries:
                    return FoundVideo(
                        shown=not own, trouble="" if own else "no video was found on it"
                    )
                info = entries[0]
        except Exception as error:  # noqa: BLE001 - a thousand parsers of what strangers write
            return FoundVideo(shown=True, own=own, trouble=_said(error, job.proxy))
        found = _known(info, own)
        trouble = ""
        for language, track, automatic in _tracks(info):
            try:
                captions = _captions(ydl, files, track)
            except Exception as error:  # noqa: BLE001 - as above
                trouble = f"captions: {_said(error, job.proxy)}"
                continue
            return msgspec.structs.replace(
                found, captions=captions, language=_line(language), automatic=automatic
            )
        if not job.with_sound:
            return msgspec.structs.replace(found, trouble=trouble)
        try:
            return msgspec.structs.replace(found, sound=_sound(ydl, files, info, job.most_bytes))
        except Exception as error:  # noqa: BLE001 - as above
            return msgspec.structs.replace(found, trouble=_said(error, job.proxy))


def _known(info: Mapping[str, Any], own: bool) -> FoundVideo:
    uploaded = str(info.get("upload_date") or info.get("release_date"))
    return FoundVideo(
        shown=True,
        own=own,
        title=_line(info.get("title")),
        uploader=_line(info.get("uploader") or info.get("channel") or info.get("creator")),
        uploaded=uploaded if re.fullmatch(r"[0-9]{8}", uploaded) else "",
        seconds=_seconds(info.get("duration")),
        description=storable(str(info.get("description") or "")[:NOTES]),
    )


def _seconds(told: object) -> float | None:
    """A length, if it is plausible: pages give all sorts of numbers."""
    if not isinstance(told, int | float) or not 0 < told < sys.float_info.max:
        return None
    return float(told)


def _tracks(info: Mapping[str, Any]) -> Iterable[tuple[str, dict[str, Any], bool]]:
    """Language, track, and whether a machine wrote it: the best one by people, then by machine."""
    automatic: dict[str, Any] = info.get("automatic_captions") or {}
    original = next((name[:-5] for name in automatic if name.endswith("-orig")), None)
    wanted = str(info.get("language") or original or "en").lower()
    for tracks, by_machine in ((info.get("subtitles") or {}, False), (automatic, True)):
        usable = {
            language: track
            for language, formats in tracks.items()
            if (track := _readable(formats)) is not None
        }
        if usable:
            best = min(usable, key=lambda name: _distance(name.lower(), wanted))
            yield best, usable[best], by_machine


def _distance(language: str, wanted: str) -> int:
    """The distance from the language of the video; of equally distant ones the first is taken."""
    if language in (wanted, f"{wanted}-orig"):
        return 0
    if language.split("-")[0] == wanted.split("-")[0]:
        return 1
    return 2 if language.split("-")[0] == "en" else 3


def _readable(formats: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    known = [dict(one) for one in formats if one.get("ext") in _READABLE]
    return min(known, key=lambda one: _READABLE.index(one["ext"]), default=None)


def _captions(ydl: Any, files: dict[str, _File], track: dict[str, Any]) -> bytes:
    data = track.get("data")
    data = data.encode() if isinstance(data, str) else _downloaded(ydl, files, track)
    if track["ext"] in ("ttml", "dfxp"):
        data = cast(str, cast(Any, dfxp2srt)(data)).encode()
    if b"-->" not in data:
        raise ValueError("there are none")
    return data


def _sound(ydl: Any, files: dict[str, _File], info: dict[str, Any], most: int) -> bytes:
    if info.get("is_live") or info.get("live_status") in ("is_live", "is_upcoming"):
        raise ValueError("it is broadcast live")
    if not info.get("url") or not info.get("format_id"):
        raise ValueError("none of its sound can be fetched")
    size = info.get("filesize") or info.get("filesize_approx") or 0
    if size > most:
        raise _TooLarge
    return _downloaded(ydl, files, info)


def _downloaded(ydl: Any, files: dict[str, _File], info: dict[str, Any]) -> bytes:
    files.clear()
    ydl.dl("-", info)
    data = files["-"].getvalue() if "-" in files else b""
    files.clear()
    if not data:
        raise ValueError("nothing came")
    return data


# --- for people ----------------------------------------------------------------------------------


def _said(error: BaseException, proxy: str) -> str:
    """The reason in one line, without the address of the proxy."""
    if isinstance(error, _TooLarge):
        return "its sound is larger than what is read of one recording"
    if isinstance(error, MemoryError):
        return "it needs more memory than is allowed"
    information: Any = getattr(error, "exc_info", None)
    inner = information[1] if information and information[1] is not None else error
    words = str(getattr(inner, "orig_msg", None) or inner).replace(proxy, "the network")
    return _line(re.sub(r"\x1b\[[0-9;]*m|^ERROR: ", "", words).split("; please report")[0], 300)


def _line(value: object, most: int = LINE) -> str:
    return " ".join(storable(str(value or "")).split())[:most]
