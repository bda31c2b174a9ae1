"""What `VideoPages` and its child say to each other: one message each way, never pickle.

The child may be taken over by the page it reads, so its answer is decoded into this type only.
"""

import math
from typing import Annotated

import msgspec

from recollect.model import storable

MAX_WORDS = 50_000
LINE = 1_000
"""characters of a title, a name, a reason"""
NOTES = 100_000
"""characters of a description"""

_Line = Annotated[str, msgspec.Meta(max_length=LINE)]


class VideoJob(msgspec.Struct, frozen=True):
    """A page to look at; without `url` only the words of addresses are wanted.

    `marked`: the page says that it shows a video, so that it is looked at whatever its address.
    `site` is the word that names the site in its address. `proxy` is the URL of the only way out.
    """

    url: str | None
    site: str
    marked: bool
    with_sound: bool
    proxy: str
    memory_bytes: int
    most_bytes: int
    """of captions, and of sound"""
    cpu_seconds: int
    wall_seconds: float


class FoundVideo(msgspec.Struct, frozen=True):
    """What yt-dlp made of a page; `shown` is false for a page that shows no video."""

    words: Annotated[tuple[_Line, ...], msgspec.Meta(max_length=MAX_WORDS)] = ()
    shown: bool = False
    own: bool = False
    """whether the page is one of a video, by its address, rather than one with a video on it"""
    title: _Line = ""
    uploader: _Line = ""
    uploaded: Annotated[str, msgspec.Meta(pattern=r"^(\d{8})?$")] = ""
    """YYYYMMDD"""
    seconds: float | None = None
    description: Annotated[str, msgspec.Meta(max_length=NOTES)] = ""
    captions: bytes = b""
    """WebVTT or SRT"""
    language: _Line = ""
    """of the captions"""
    automatic: bool = False
    """whether a machine wrote them"""
    sound: bytes = b""
    trouble: _Line = ""
    """why something is not there, for people"""


def validate(found: FoundVideo, job: VideoJob) -> None:
    """ValueError for what no honest child says: nothing of it reaches the document."""
    texts = (found.title, found.uploader, found.description, found.language, found.trouble)
    if any(storable(text) != text for text in texts):
        raise ValueError("a text that cannot be kept")
    if found.seconds is not None and not (math.isfinite(found.seconds) and found.seconds > 0):
        raise ValueError("an invalid length")
    if max(len(found.captions), len(found.sound)) > job.most_bytes:
        raise ValueError("more than was asked for")
    if (found.words and job.url is not None) or (found.sound and not job.with_sound):
        raise ValueError("an answer to another question")
