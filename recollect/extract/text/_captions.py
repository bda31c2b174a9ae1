"""Captions and transcripts: from SRT, WebVTT and the payloads of caption tracks to paragraphs."""

import html
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from operator import itemgetter

from recollect.extract._text import clean
from recollect.inference.speech import Segment
from recollect.model import Place

PAUSE = 2.0
"""seconds of silence that end a paragraph"""
FULL_PARAGRAPH = 400
LONGEST_PARAGRAPH = 800
"""characters after which a paragraph ends with its sentence, and with its segment"""

_TIME = r"(?:(\d{1,4}):)?(\d{1,2}):(\d{1,2})[.,](\d{1,3})"
_TIMING = re.compile(rf"\s*{_TIME}\s*-->\s*{_TIME}")
_TAG = re.compile(r"</?[A-Za-z][^<>]*>|<[\d:.]+>|\{\\[^{}]*\}")
_VOICE = re.compile(r"<v(?:\.[^\s<>]*)?\s++([^<>]*+)>")
_VOICES = re.compile(r"(?=<v[.\s])")
_SENTENCE_END = re.compile("[.!?\u2026\u3002\uff01\uff1f][\"'\u201d\u2019\u00bb)\\]]*$")
_ROLLED = 0.05
"""seconds between two captions of which the second repeats the first and goes on"""


def parse(text: str) -> list[Segment]:
    """The captions of an SRT or WebVTT file, in order of time; empty if it has none."""
    found: list[tuple[float, float, list[str]]] = []
    payload: list[str] | None = None
    text = text.lstrip("\ufeff")
    # What comes behind a blank line of it may be a note or a style; of SRT it is still said.
    is_webvtt = text.startswith("WEBVTT")
    for line in text.splitlines():
        if "-->" in line and (timing := _TIMING.match(line)):
            # Without a blank line in between, the number of this one was taken for text.
            if payload and payload[-1].strip().isdecimal():
                payload.pop()
            payload = []
            found.append((_seconds(timing.groups()[:4]), _seconds(timing.groups()[4:]), payload))
        elif is_webvtt and not line.strip():
            payload = None
        elif payload is not None:
            payload.append(line)
    return read_cues((start, end, "\n".join(lines)) for start, end, lines in found)


def read_cues(cues: Iterable[tuple[float, float, str]]) -> list[Segment]:
    """Captions without their markup, from start, end and payload.

    Captions that roll upwards show each line twice; it is kept once.
    """
    segments: list[Segment] = []
    shown: list[str] = []
    until = 0.0
    for start, end, payload in sorted(cues, key=lambda cue: cue[0]):
        said: list[tuple[str | None, str]] = []
        for part in _VOICES.split(payload):
            voice = _VOICE.search(part)
            speaker = _plain(voice[1]) or None if voice else None
            said += [(speaker, line) for one in part.split("\n") if (line := _plain(one))]
        if not said:
            continue
        lines = [line for _, line in said]
        rolled = start - until < _ROLLED
        fresh = said[_repeated(shown, lines) :] if rolled and shown else said
        shown, until = lines, max(end, start)
        for speaker, own in groupby(fresh, key=itemgetter(0)):
            segments.append(Segment(start, until, " ".join(line for _, line in own), speaker))
    return segments


def weave(
    text: str, places: Sequence[Place], segments: Iterable[Segment]
) -> tuple[str, list[Place]]:
    """Text in which each segment follows the place whose time it belongs to, in paragraphs.

    `places` are those of chapters, with a `time` each. Every segment becomes a place.
    """
    waiting = sorted(segments, key=lambda segment: segment.start)
    borders = [place.start for place in places] + [len(text)]
    blocks = [(text[: borders[0]], None)]
    blocks += [
        (text[place.start : end], place.at) for place, end in zip(places, borders[1:], strict=True)
    ]
    nexts = [*(float(place.at["time"]) for place in places), float("inf")]
    out: list[str] = []
    woven: list[Place] = []
    size = taken = 0
    for (block, at), until in zip(blocks, nexts, strict=True):
        if block.strip():
            if at is not None:
                woven.append(Place(size, at))
            out.append(block.strip() + "\n\n")
            size += len(out[-1])
        first = taken
        while taken < len(waiting) and waiting[taken].start < until:
            taken += 1
        for piece, time in _written(waiting[first:taken]):
            if time is not None:
                woven.append(Place(size, {"time": time}))
            out.append(piece)
            size += len(piece)
    return "".join(out).rstrip("\n"), woven


def _written(segments: Sequence[Segment]) -> Iterator[tuple[str, float | None]]:
    """Pieces of paragraphs; those that begin a segment with its time."""
    for paragraph in _paragraphs(segments):
        for number, segment in enumerate(paragraph):
            if number:
                yield " ", None
            named = not number and segment.speaker
            # Between such signs stands what is sung; here it would be a heading.
            words = re.sub(r"^#{1,6} ", "", " ".join(clean(segment.text).split()))
            yield (f"{segment.speaker}: {words}" if named else words), round(segment.start, 2)
        yield "\n\n", None


def _paragraphs(segments: Sequence[Segment]) -> Iterator[list[Segment]]:
    paragraph: list[Segment] = []
    size = 0
    for segment in segments:
        if paragraph:
            last = paragraph[-1]
            if (
                segment.start - last.end >= PAUSE
                or (segment.speaker and segment.speaker != paragraph[0].speaker)
                or size >= LONGEST_PARAGRAPH
                or (size >= FULL_PARAGRAPH and _SENTENCE_END.search(last.text))
            ):
                yield paragraph
                paragraph, size = [], 0
        if clean(segment.text).strip():
            paragraph.append(segment)
            size += len(segment.text) + 1
    if paragraph:
        yield paragraph


def _plain(line: str) -> str:
    return " ".join(html.unescape(_TAG.sub("", line)).split())


def _repeated(shown: Sequence[str], lines: Sequence[str]) -> int:
    """How many of the lines are the last ones that were shown before."""
    for count in range(min(len(shown), len(lines)), 0, -1):
        if list(shown[-count:]) == list(lines[:count]):
            return count
    return 0


def _seconds(parts: Sequence[str | None]) -> float:
    hours, minutes, seconds, fraction = parts
    return (
        int(hours or 0) * 3600
        + int(minutes or 0) * 60
        + int(seconds or 0)
        + int((fraction or "0").ljust(3, "0")) / 1000
    )
