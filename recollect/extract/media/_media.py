"""The one seam to PyAV: what is known of a recording, its captions, and its sound in stretches.

Memory is bounded by the stretch, not by the recording. Pictures are never decoded.
"""

from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from io import BytesIO

import numpy as np

from recollect.errors import Permanent
from recollect.extract._text import clean, clean_line
from recollect.extract.media._containers import find_container
from recollect.extract.media._speech import open_engine
from recollect.extract.text import _captions
from recollect.inference.speech import RATE, SAMPLE_BYTES, Heard, LocalEngine, Segment
from recollect.model import Blob, Extracted, Place

try:
    import av
    from av.audio.frame import AudioFrame
    from av.audio.resampler import AudioResampler
    from av.audio.stream import AudioStream
    from av.container import InputContainer
    from av.error import FFmpegError
    from av.packet import Packet
    from av.stream import Disposition, Stream
    from av.subtitles.stream import SubtitleStream
except ModuleNotFoundError as error:
    # An extra that the operator left out must not hold up all other documents.
    raise Permanent(
        "sound and video are not read here; `pip install 'recollect[media]'` changes that",
        code="unsupported_kind",
    ) from error

MAX_STREAMS = 100
MAX_CHAPTERS = 1_000
MAX_CAPTIONS = 100_000
LONGEST_NOTE = 100_000
"""characters of a description or of lyrics"""
LONGEST_DURATION = 1_000_000
"""seconds; who claims more does not know"""

_PREROLL = 1.0
"""seconds decoded before the place where a stretch begins: codecs look back"""
_GAP = 0.5
"""seconds by which times may jump before they are believed"""
_QUIET_WITHIN = 15.0
"""seconds at the end of a stretch in which the quietest moment is where it is cut"""
_QUIET = 0.2

_LINES = (
    "title", "artist", "author", "album", "album_artist", "composer", "show", "episode_id",
    "genre", "date", "year", "copyright",
)  # fmt: skip
_NOTES = ("description", "synopsis", "comment", "lyrics")
_TEXT_CODECS = frozenset({"mov_text", "subrip", "srt", "webvtt", "ass", "ssa", "text"})
_PROTECTED = frozenset({"enca", "encv", "drms", "drmi", "p608"})
"""kinds of tracks that need a key (ISO 14496-12 8.12; the others are Apple's)"""


def read(blob: Blob, kind: str) -> Extracted:
    """Title, notes, chapters, captions. Raises Permanent."""
    with _opened(blob) as container:
        known = _metadata(container)
        head = _head(known, _duration(container))
        text, places = _add_chapters(head, container)
        warnings: list[str] = []
        segments = _read_captions(container, warnings)
        has_sound = any(_is_sound(stream) for stream in container.streams)
        if segments:
            text, places = _captions.weave(text, places, segments)
        elif not has_sound:
            warnings.append("It has neither sound nor captions that can be read.")
        return Extracted(
            text,
            title=clean_line(known.get("title", "")) or None,
            kind=kind,
            warnings=warnings,
            places=places,
            unheard=has_sound and not segments,
        )


def hear(blob: Blob, start: float, seconds: float, engine: LocalEngine | None) -> Heard:
    """The sound from `start` on, about `seconds` of it; written down if there is an engine."""
    with _opened(blob) as container:
        heard = _cut_quietly(_listen(container, start, seconds), seconds)
    if engine is None:
        return heard
    said = open_engine(engine).transcribe(heard.pcm, RATE) if heard.pcm else ()
    segments = [
        Segment(heard.start + s.start, heard.start + s.end, s.text, s.speaker) for s in said
    ]
    return Heard(heard.start, heard.end, segments=segments)


@contextmanager
def _opened(blob: Blob) -> Generator[InputContainer]:
    found = find_container(blob.data)
    demuxer = found.demuxer if found else "mp3"
    try:
        container = av.open(
            BytesIO(blob.data),
            "r",
            format=demuxer,
            metadata_errors="replace",
            container_options={"max_streams": str(MAX_STREAMS)},
        )
    except (FFmpegError, ValueError) as error:
        raise _damaged(error) from error
    with container:
        if len(container.streams) >= MAX_STREAMS:
            raise Permanent(f"it has {MAX_STREAMS} tracks or more", code="too_large")
        if any(_tag(stream) in _PROTECTED for stream in container.streams):
            raise Permanent("it is protected against copying (DRM)", code="encrypted_file")
        try:
            yield container
        except FFmpegError as error:
            raise _damaged(error) from error


def _damaged(error: Exception) -> Permanent:
    if isinstance(error, MemoryError):
        # Also what the library says of too many tracks.
        return Permanent("it has too many tracks or is too large inside", code="too_large")
    return Permanent("it is damaged or cut off")


# What is known


def _metadata(container: InputContainer) -> Mapping[str, str]:
    """By name in lower case; Ogg keeps it with the track."""
    known: dict[str, str] = {}
    sources = [container.metadata]
    if container.format.name == "ogg":
        sources += [stream.metadata for stream in container.streams]
    for source in sources:
        for name, value in source.items():
            # lyrics-eng
            known.setdefault(name.lower().partition("-")[0], value)
    return known


def _head(known: Mapping[str, str], duration: float | None) -> str:
    lines = [
        f"{name.replace('_', ' ').capitalize()}: {value}"
        for name in _LINES
        if (value := clean_line(known.get(name, "")))
    ]
    if duration is not None:
        lines.append(f"Duration: {_clock(duration)}")
    notes = [
        f"{name.capitalize()}:\n{value}" if "\n" in value else f"{name.capitalize()}: {value}"
        for name in _NOTES
        if (value := clean(known.get(name, "")[:LONGEST_NOTE]).strip())
    ]
    return "\n\n".join(["\n".join(lines), *notes])


def _duration(container: InputContainer) -> float | None:
    if container.duration is None:
        return None
    seconds = container.duration / av.time_base
    return seconds if 0 < seconds < LONGEST_DURATION else None


def _add_chapters(head: str, container: InputContainer) -> tuple[str, list[Place]]:
    """Headings, each with the time when it begins."""
    text, places = head, list[Place]()
    offset = _offset(container)
    chapters = sorted(container.chapters()[:MAX_CHAPTERS], key=lambda chapter: chapter["start"])
    for number, chapter in enumerate(chapters, 1):
        title = clean_line(chapter["metadata"].get("title", "")) or f"Chapter {number}"
        text += "\n\n" if text else ""
        time = max(0.0, float(chapter["start"] * (chapter["time_base"] or Fraction())) - offset)
        places.append(Place(len(text), {"time": round(time, 2)}))
        text += f"## {title}"
    return text, places


def _clock(seconds: float) -> str:
    """`1:02:03`"""
    whole = round(seconds)
    hours, minutes = whole // 3600, whole // 60 % 60
    clock = f"{hours}:{minutes:02}" if hours else f"{minutes}"
    return f"{clock}:{whole % 60:02}"


def _tag(stream: Stream) -> str | None:
    # PyAV's types say that a stream always has a codec; one of an unknown kind has none.
    context = getattr(stream, "codec_context", None)
    return context.codec_tag if context is not None else None


def _offset(container: InputContainer) -> float:
    """Seconds at which the recording begins on its own clock."""
    # None if unknown, whatever its type says.
    start: int | None = container.start_time
    return start / av.time_base if start else 0.0


# Captions


def _read_captions(container: InputContainer, warnings: list[str]) -> list[Segment]:
    tracks = [s for s in container.streams if isinstance(s, SubtitleStream)]
    readable = [s for s in tracks if s.codec_context and s.codec_context.name in _TEXT_CODECS]
    # Forced captions translate foreign words only; default ones are what a player shows.
    readable.sort(
        key=lambda s: (
            bool(s.disposition & Disposition.forced),
            not s.disposition & Disposition.default,
        )
    )
    for track in readable:
        if segments := _captions.read_cues(_cues(container, track)):
            if len(readable) > 1:
                warnings.append(
                    f"It has captions in {len(readable)} tracks; those of track"
                    f" {track.index + 1} ({track.language or 'unknown language'}) were read."
                )
            return segments
        container.seek(0)
    if len(tracks) > len(readable):
        warnings.append("Its captions are pictures, which cannot be read.")
    return []


def _cues(container: InputContainer, track: SubtitleStream) -> Iterator[tuple[float, float, str]]:
    offset = _offset(container)
    name = track.codec_context.name
    count = 0
    for packet in _packets(container, track):
        if packet.pts is None or not packet.size:
            continue
        count += 1
        if count > MAX_CAPTIONS:
            return
        start = max(0.0, float(packet.pts * packet.time_base) - offset)
        length = float((packet.duration or 0) * packet.time_base)
        yield start, start + max(0.0, length), _payload(name, bytes(packet))


def _payload(codec: str, data: bytes) -> str:
    if codec == "mov_text":
        # A length, the text, then boxes of style (3GPP TS 26.245 5.17).
        size = int.from_bytes(data[:2], "big")
        return data[2 : 2 + size].decode("utf-8", "replace")
    text = data.decode("utf-8", "replace")
    if codec in ("ass", "ssa"):
        # Order, layer, style, name, three margins, effect, text (RFC 9559's S_TEXT/ASS).
        text = text.split(",", 8)[-1]
        return text.replace("\\N", "\n").replace("\\n", "\n").replace("\\h", " ")
    return text


# Sound


def _is_sound(stream: Stream) -> bool:
    return isinstance(stream, AudioStream)


def _listen(container: InputContainer, start: float, seconds: float) -> Heard:
    """Samples from `start` on, at most `seconds` of them; gaps in its clock become silence."""
    want = int(seconds * RATE)
    samples = bytearray()
    begin = clock = start
    for number, (block, time) in enumerate(_blocks(container, start)):
        if number == 0 or (time is not None and time - clock > _GAP):
            gap = (time if time is not None else 0.0) - clock
            if samples and len(samples) // SAMPLE_BYTES + gap * RATE >= want:
                return Heard(begin, clock + gap, bytes(samples))
            if samples:
                samples += bytes(int(gap * RATE) * SAMPLE_BYTES)
            clock += gap
        late = max(0, round((start - clock) * RATE))
        clock += len(block) / SAMPLE_BYTES / RATE
        block = block[late * SAMPLE_BYTES :]
        if block and not samples:
            begin = round(max(start, clock - len(block) / SAMPLE_BYTES / RATE), 6)
        samples += block
        if len(samples) >= want * SAMPLE_BYTES:
            kept = bytes(samples[: want * SAMPLE_BYTES])
            return Heard(begin, begin + want / RATE, kept)
    return Heard(begin, None, bytes(samples))


def _cut_quietly(heard: Heard, seconds: float) -> Heard:
    """The same, ending where it is quietest, so that no word is cut in two."""
    if heard.end is None or len(heard.pcm) < seconds * RATE * SAMPLE_BYTES * 0.99:
        return heard
    step = int(_QUIET * RATE)
    within = int(min(_QUIET_WITHIN, seconds / 4) / _QUIET)
    tail = np.frombuffer(heard.pcm, "<i2")[-within * step :].astype(np.float64)
    loudness = np.square(tail).reshape(within, step).sum(axis=1)
    # Of equally quiet ones the last, so that silence is not cut short.
    quietest = within - 1 - int(np.argmin(loudness[::-1]))
    dropped = (within - quietest) * step - step // 2
    kept = heard.pcm[: len(heard.pcm) - dropped * SAMPLE_BYTES]
    return Heard(heard.start, heard.start + len(kept) / SAMPLE_BYTES / RATE, kept)


def _blocks(container: InputContainer, start: float) -> Iterator[tuple[bytes, float | None]]:
    """Decoded sound with the time when it begins, from a little before `start`."""
    tracks = [s for s in container.streams if isinstance(s, AudioStream)]
    tracks.sort(key=lambda s: not s.disposition & Disposition.default)
    if not tracks:
        return
    track, offset = tracks[0], _offset(container)
    resampler: AudioResampler | None = None
    decoded = broken = 0
    for packet in _packets(container, track):
        if _ends_before(packet, start + offset - _PREROLL):
            continue
        try:
            frames = track.decode(packet)  # pyright: ignore[reportUnknownMemberType]
        except FFmpegError:
            # A player would skip it as well.
            broken += 1
            continue
        for frame in frames:
            decoded += 1
            time = None if frame.time is None else frame.time - offset
            resampler = resampler or _new_resampler(frame)
            try:
                pieces = resampler.resample(frame)
            except ValueError:  # the form of the sound changes in the middle
                resampler = _new_resampler(frame)
                pieces = resampler.resample(frame)
            yield b"".join(map(_samples, pieces)), time
    if resampler is not None:
        yield b"".join(map(_samples, resampler.resample(None))), None
    if broken and not decoded:
        raise Permanent("none of its sound can be decoded")


def _packets(container: InputContainer, stream: Stream) -> "Iterator[Packet[Stream]]":
    """All that can be read: a recording that is cut off ends there."""
    packets = container.demux(stream)
    while True:
        try:
            packet = next(packets, None)
        except FFmpegError:
            return
        if packet is None:
            return
        yield packet


def _ends_before(packet: "Packet[Stream]", time: float) -> bool:
    if packet.pts is None:
        return False
    return float((packet.pts + (packet.duration or 0)) * packet.time_base) < time


def _new_resampler(frame: AudioFrame) -> AudioResampler:
    if not 1_000 <= frame.sample_rate <= 1_000_000:
        raise Permanent(f"its sound claims {frame.sample_rate:,} samples a second")
    return AudioResampler(format="s16", layout="mono", rate=RATE)


def _samples(frame: AudioFrame) -> bytes:
    return bytes(frame.planes[0])[: frame.samples * SAMPLE_BYTES]
