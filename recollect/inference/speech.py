"""What engines that write down speech, and those who ask them, say to each other.

Sound is always mono: signed 16-bit little-endian samples, RATE of them a second. Times are
seconds from the beginning of the recording.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

RATE = 16_000
SAMPLE_BYTES = 2


@dataclass(frozen=True, slots=True)
class Segment:
    """Words that were said, or shown as a caption, from `start` to `end`."""

    start: float
    end: float
    text: str
    speaker: str | None = None


@dataclass(frozen=True, slots=True)
class Heard:
    """A stretch of sound: its samples, or what a local engine made of them.

    `end` is where the next stretch begins; None if this was the last.
    """

    start: float
    end: float | None
    pcm: bytes = b""
    segments: Sequence[Segment] = ()


@dataclass(frozen=True, slots=True)
class LocalEngine:
    """An engine that runs beside the extractors, confined: `whisper` or `pocketsphinx`.

    `model` is the folder of a whisper model.
    """

    kind: str
    model: str | None = None

    @property
    def loads(self) -> str:
        """The module of the engine."""
        return "faster_whisper" if self.kind == "whisper" else self.kind


class Transcriber(Protocol):
    """Writes down speech."""

    @property
    def name(self) -> str:
        """Engine and model, for people: `faster-whisper:small`."""
        ...

    def transcribe(self, pcm: bytes, rate: int) -> Sequence[Segment]:
        """What is said, in order; times count from the first sample.

        Raises Transient, or Permanent for this sound.
        """
        ...
