"""Recordings made on the spot: tones, captions, chapters, covers."""

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import av
import numpy as np

RATES = {"libopus": 48_000}
CODECS = {
    "mp4": "aac", "ipod": "aac", "mov": "aac", "webm": "libopus", "matroska": "aac",
    "mp3": "libmp3lame", "wav": "pcm_s16le", "ogg": "libopus", "flac": "flac",
    "avi": "pcm_s16le", "adts": "aac",
}  # fmt: skip
"""of the sound, by container as FFmpeg calls it"""

Cue = tuple[float, float, str]

_STYLE = b"""[Script Info]
ScriptType: v4.00+

[V4+ Styles]
Format: Name, Fontname, Fontsize, PrimaryColour, SecondaryColour, OutlineColour, BackColour, \
Bold, Italic, Underline, StrikeOut, ScaleX, ScaleY, Spacing, Angle, BorderStyle, Outline, Shadow, \
Alignment, MarginL, MarginR, MarginV, Encoding
Style: Default,Arial,16,&Hffffff,&Hffffff,&H0,&H0,0,0,0,0,100,100,0,0,1,1,0,2,10,10,10,0

[Events]
Format: Layer, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect, Text
"""


@dataclass(frozen=True)
class Track:
    """Captions of one language."""

    cues: Sequence[Cue]
    language: str = "eng"
    disposition: int = 0


def tone(seconds: float, rate: int, *, silent: Sequence[tuple[float, float]] = ()) -> np.ndarray:
    """440 Hz, but for the spans that are silent; float samples from -1 to 1."""
    times = np.arange(int(seconds * rate)) / rate
    wave = 0.3 * np.sin(2 * np.pi * 440 * times)
    for start, end in silent:
        wave[(times >= start) & (times < end)] = 0
    return wave


def recording(
    container: str,
    sound: np.ndarray | float | None = 2.0,
    *,
    pictures: bool = False,
    tags: Mapping[str, str] | None = None,
    chapters: Sequence[tuple[float, str]] = (),
    tracks: Sequence[Track] = (),
    codec: str | None = None,
    options: Mapping[str, str] | None = None,
) -> bytes:
    """`sound` is samples at the codec's rate, seconds of a tone, or none."""
    out = io.BytesIO()
    with av.open(out, "w", format=container, container_options=dict(options or {})) as muxer:
        muxer.metadata.update(tags or {})
        if chapters:
            ends = [*(int(start * 1000) for start, _ in chapters[1:]), 3_600_000]
            muxer.set_chapters(
                [
                    {
                        "id": number,
                        "start": int(start * 1000),
                        "end": end,
                        "time_base": Fraction(1, 1000),
                        "metadata": {"title": title} if title else {},
                    }
                    for number, ((start, title), end) in enumerate(zip(chapters, ends, strict=True))
                ]
            )
        codec = codec or CODECS[container]
        rate = RATES.get(codec, 16_000)
        audio: Any = None
        video: Any = None
        if pictures:
            video = muxer.add_stream("mpeg4" if container != "webm" else "libvpx", rate=5)
            video.width, video.height, video.pix_fmt = 64, 64, "yuv420p"
        if sound is not None:
            audio = muxer.add_stream(codec, rate=rate)
            audio.layout = "mono"
        captions = [_caption_stream(muxer, container, track) for track in tracks]
        muxer.start_encoding()
        for stream, track in zip(captions, tracks, strict=True):
            for start, end, text in track.cues:
                muxer.mux(_caption(container, stream, start, end, text))
        if video is not None:
            for number in range(5):
                frame = av.VideoFrame.from_ndarray(np.full((64, 64, 3), number * 40, np.uint8))
                frame.pts = number
                muxer.mux(video.encode(frame))
            muxer.mux(video.encode(None))
        if audio is not None:
            samples = tone(sound, rate) if isinstance(sound, float) else sound
            for frame in _frames(samples, rate, audio):
                muxer.mux(audio.encode(frame))
            muxer.mux(audio.encode(None))
    return out.getvalue()


def _frames(samples, rate, audio):
    resampler = av.AudioResampler(
        format=audio.format.name, layout="mono", rate=rate, frame_size=audio.frame_size or 1024
    )
    for start in range(0, len(samples), rate):
        block = (samples[start : start + rate] * 32_767).astype(np.int16)[None]
        frame = av.AudioFrame.from_ndarray(block, format="s16", layout="mono")
        frame.sample_rate, frame.pts, frame.time_base = rate, start, Fraction(1, rate)
        yield from resampler.resample(frame)
    yield from resampler.resample(None)


def _caption_stream(muxer, container, track):
    if container in ("mp4", "mov", "ipod"):
        stream = muxer.add_stream("mov_text")
        stream.codec_context.subtitle_header = _STYLE
        stream.time_base = Fraction(1, 1000)
    else:
        kind = "webvtt" if container == "webm" else "srt"
        source = "WEBVTT\n\n" if kind == "webvtt" else "1\n00:00:00,000 --> 00:00:01,000\nx\n"
        template = av.open(io.BytesIO(source.encode()), format=kind)
        stream = muxer.add_stream_from_template(template.streams[0])
    stream.metadata["language"] = track.language
    stream.disposition = track.disposition
    return stream


def _caption(container, stream, start, end, text):
    data = text.encode()
    if container in ("mp4", "mov", "ipod"):
        data = len(data).to_bytes(2, "big") + data
    packet = av.Packet(data)
    packet.pts = packet.dts = int(start * 1000)
    packet.duration = int((end - start) * 1000)
    packet.time_base = Fraction(1, 1000)
    packet.stream = stream
    return packet
