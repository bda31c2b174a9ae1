"""A transcriber that is an OpenAI-compatible endpoint."""

import hashlib
import io
import json
import math
import wave
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from functools import partial
from threading import Lock
from typing import Any

import numpy as np

from recollect.errors import HeldOff, Parked, Permanent, Transient, Unavailable
from recollect.fetch import Endpoint, EndpointAnswer
from recollect.fetch._answer import outcome
from recollect.inference.circuit_breaker import Breaker
from recollect.inference.completion_stream import tells_of_error
from recollect.inference.speech import RATE, SAMPLE_BYTES, Heard, LocalEngine, Segment

STRETCH = 600.0
"""seconds in one request: 19 MB of samples; OpenAI takes 25 MB"""
SHORTEST_STRETCH = 30.0
"""seconds in one request where no more is taken or waited for: a Whisper model hears so much"""
TOO_LONG = frozenset({"timeout", "bad_response", "http_408", "http_413", "http_504", "http_524"})
"""codes of a service, or a proxy before it, that does not take or wait for so much; 524 is
Cloudflare's, and of a 413 sent before all was read (fasthttp's) the reset leaves `bad_response`"""
AWAY = frozenset({"unreachable", "http_401", "http_403", "http_404", "http_405", "http_429"})
"""codes that say nothing of the sound: any would be answered so"""
PATIENCE = 600.0
"""seconds without an answer: a small machine may need as long as the sound lasts"""
WHOLE = 1_200.0
"""seconds for a whole answer: some send a byte at a time to keep the connection"""
HURRY = 60.0
"""seconds for an answer to `check`: a model may have to be loaded"""
REFUSED = "transcriber_refused"
QUIETEST = 8
"""of 32,767: where no sample is louder the microphone was muted, and models hear words in it"""
KEPT = 10_000
"""stretches whose words are kept for the next attempt at their recordings: where four hours are
asked for in the shortest ones, more than ten recordings"""
REST, LONGEST_REST = timedelta(minutes=1), timedelta(hours=1)

Hear = Callable[[float, float, LocalEngine | None], Heard]
"""The sandbox with a recording: start, seconds and engine to the stretch from there on."""


class EndpointTranscriber:
    """Any service with OpenAI's `POST /audio/transcriptions`; shared by threads."""

    def __init__(self, url: str, model: str, key: str | None) -> None:
        """Raises SetupError for an address or a key that cannot be one."""
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        settings = "RECOLLECT_TRANSCRIBER_URL or RECOLLECT_TRANSCRIBER_KEY"
        known = partial(Endpoint, url, headers=headers, settings=settings)
        self._endpoint = known(timeout=PATIENCE, total=WHOLE)
        self._hurried = known(timeout=HURRY, total=HURRY)
        self._model = model
        self._key = key
        self._form = "verbose_json"
        self._most = STRETCH
        self._breaker = Breaker("transcription model", failures=1)
        self._keeping = Lock()
        self._known: dict[bytes, Sequence[Segment]] = {}

    @property
    def name(self) -> str:
        return f"openai:{self._model}"

    def writing(self, hear: Hear, end: float) -> Hear:
        """`hear` up to `end`, with the words of each stretch in place of its samples.

        What was written is kept until the recording is done or given up: where a limit of an hour
        ends an attempt, the next goes on. Raises Parked while the service is away or refuses
        the settings, which it names, HeldOff for what may be the fault of this sound, and Permanent
        (`transcriber_refused`) for sound that it does not take.
        """
        keys: list[bytes] = []

        def write(start: float, seconds: float, _: LocalEngine | None) -> Heard:
            try:
                heard = self._written(hear, start, seconds, keys)
            except Transient:
                raise
            except Exception:
                self._forget(keys)
                raise
            if heard.end is None or heard.end >= end:
                self._forget(keys)
            return heard

        return write

    def _written(self, hear: Hear, start: float, seconds: float, keys: list[bytes]) -> Heard:
        while True:
            with _parking():
                self._breaker.check()
            heard = hear(start, min(seconds, self._most), None)
            keys.append(hashlib.sha256(heard.pcm).digest())
            try:
                said = self._said(heard.pcm, keys[-1])
            except (HeldOff, Permanent) as error:
                if self._shortened(error, _seconds(heard.pcm)):
                    continue
                if isinstance(error, Permanent):
                    raise Permanent(str(error), code=REFUSED) from error
                raise
            segments = [
                replace(s, start=heard.start + s.start, end=heard.start + s.end) for s in said
            ]
            return Heard(heard.start, heard.end, segments=segments)

    def check(self) -> None:
        """Have it listen to a second of noise, within a minute. Raises as `writing` does."""
        self._transcribe(_noise(), self._hurried)

    def _said(self, pcm: bytes, key: bytes) -> Sequence[Segment]:
        if (known := self._known.get(key)) is not None:
            return known
        said = self._transcribe(pcm, self._endpoint) if _is_loud(pcm) else ()
        with self._keeping:
            self._known[key] = said
            for oldest in list(self._known)[:-KEPT]:
                del self._known[oldest]
        return said

    def _forget(self, keys: Sequence[bytes]) -> None:
        with self._keeping:
            for key in keys:
                self._known.pop(key, None)

    def _shortened(self, error: HeldOff | Permanent, seconds: float) -> bool:
        """Whether to ask again now for less than so many seconds at a time."""
        if error.code not in TOO_LONG or seconds <= SHORTEST_STRETCH:
            return False
        self._most = max(SHORTEST_STRETCH, min(self._most, seconds / 2))
        # A service that hangs has had this attempt's time.
        return error.code != "timeout"

    def _transcribe(self, pcm: bytes, endpoint: Endpoint) -> Sequence[Segment]:
        with _parking(), self._breaker.guard():
            sound = _wav(pcm)
            answer = self._asked(endpoint, sound, self._form)
            if answer.status in (400, 422) and self._form != "json":
                # gpt-4o-transcribe, Voxtral and others tell no times, and refuse to be asked.
                answer = self._asked(endpoint, sound, "json")
                if 200 <= answer.status < 300:
                    self._form = "json"
            if not 200 <= answer.status < 300:
                # A firewall before it may answer 403 to this sound, and take any other.
                alone = answer.status == 403 and endpoint is self._endpoint and self._takes_noise()
                raise self._judge(answer, alone=alone)
            try:
                told: Any = json.loads(answer.data)
            except (ValueError, RecursionError):
                told = None
            if tells_of_error(told):  # as whisper.cpp says it
                message = f"{self._message(answer)}; check RECOLLECT_TRANSCRIBER_URL"
                raise HeldOff(message, code="http_500")
            return _parse(told, _seconds(pcm))

    def _asked(self, endpoint: Endpoint, sound: bytes, form: str) -> EndpointAnswer:
        try:
            return endpoint.request(
                "POST",
                "/audio/transcriptions",
                data={"model": self._model, "response_format": form},
                files={"file": ("sound.wav", io.BytesIO(sound), "audio/wav")},
            )
        except (Transient, Permanent) as error:
            kind = Unavailable if error.code in AWAY else HeldOff
            raise kind(f"transcription: {error}", code=error.code) from error

    def _message(self, answer: EndpointAnswer) -> str:
        hide = [self._key] if self._key else []
        return f"transcription: {self._endpoint.message(answer, hide=hide)}"

    def _takes_noise(self) -> bool:
        status = self._asked(self._hurried, _wav(_noise()), self._form).status
        return 200 <= status < 300

    def _judge(self, answer: EndpointAnswer, *, alone: bool) -> Transient | Permanent:
        """`alone`: whether it takes other sound."""
        message = self._message(answer)
        code = f"http_{answer.status}"
        if alone:
            return HeldOff(message, code=code)
        if setting := _SETTINGS.get(answer.status):
            return Unavailable(f"{message}; check {setting}", code=code)
        judged = outcome(answer.status, answer.headers, message)
        if isinstance(judged, Permanent):
            return Permanent(message, code=code)
        kind = Unavailable if code in AWAY else HeldOff
        return kind(message, code=code, after=judged.after)


_SETTINGS: Mapping[int, str] = {
    401: "RECOLLECT_TRANSCRIBER_KEY",
    403: "RECOLLECT_TRANSCRIBER_KEY",
    404: "RECOLLECT_TRANSCRIBER_URL and RECOLLECT_TRANSCRIBER_MODEL",
    405: "RECOLLECT_TRANSCRIBER_URL",
}
"""what to check, by status: these say nothing of the sound"""


@contextmanager
def _parking() -> Generator[None]:
    """Documents without a recording do not wait with the queue."""
    try:
        yield
    except Unavailable as error:
        after = min(error.after or REST, LONGEST_REST)
        raise Parked(str(error), code=error.code, after=after) from error


def _noise() -> bytes:
    return np.random.default_rng(0).integers(-500, 500, RATE).astype("<i2").tobytes()


def _seconds(pcm: bytes) -> float:
    return len(pcm) / SAMPLE_BYTES / RATE


def _is_loud(pcm: bytes) -> bool:
    samples = np.frombuffer(pcm, "<i2")
    return bool(samples.size) and max(int(samples.max()), -int(samples.min())) > QUIETEST


def _wav(pcm: bytes) -> bytes:
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(SAMPLE_BYTES)
        file.setframerate(RATE)
        file.writeframes(pcm)
    return out.getvalue()


def _parse(answer: Any, seconds: float) -> list[Segment]:
    """Segments within the sound, in order; the whole text as one where the service has no times.

    Raises HeldOff for anything else than an answer of this kind.
    """
    try:
        parts: Any = answer.get("segments")
        if parts is None or (parts == [] and answer.get("text")):
            parts = [{"start": 0.0, "end": seconds, "text": answer["text"]}]
        segments = [_segment(part, seconds) for part in parts]
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise HeldOff(
            "transcription: the answer is not one of OpenAI's /audio/transcriptions;"
            " check RECOLLECT_TRANSCRIBER_URL",
            code="bad_answer",
        ) from error
    return sorted((s for s in segments if s.text), key=lambda segment: segment.start)


def _segment(part: Any, seconds: float) -> Segment:
    text = part["text"]
    if not isinstance(text, str):
        raise TypeError("an invalid text")
    start, end = float(part["start"]), float(part["end"])
    if math.isnan(start) or math.isnan(end):
        raise ValueError("an invalid time")
    start = min(max(start, 0.0), seconds)
    return Segment(start, min(max(end, start), seconds), text.strip())
