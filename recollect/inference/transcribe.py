"""Speech to text: which engine writes it down here, and what becomes of it if there is none.

An OpenAI-compatible endpoint is called from here; a local engine runs in the sandbox, next to the
extractor that decodes the sound. Either is asked for one stretch of a recording at a time, so
that neither memory nor the time of one step grows with its length.
"""

import io
import json
import math
import wave
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from recollect.errors import Permanent, SetupError, Transient
from recollect.fetch import Endpoint, EndpointAnswer
from recollect.fetch._answer import outcome
from recollect.inference.completion_stream import tells_of_error
from recollect.inference.speech import RATE, SAMPLE_BYTES, Heard, LocalEngine, Segment, Transcriber

MAX_SECONDS = 4 * 3600.0
"""of one recording that are written down"""
ENDPOINT_STRETCH = 600.0
"""seconds in one request: 19 MB of samples; OpenAI takes 25 MB"""
LOCAL_STRETCH = 120.0
"""seconds in one job of the sandbox, which limits its processor time"""
PATIENCE = 600.0
"""seconds without an answer: a small machine may need as long as the sound lasts"""
WHOLE = 1_200.0
"""seconds for a whole answer: some send a byte at a time to keep the connection"""

MODEL_FILES = ("model.bin", "config.json", "tokenizer.json")
GET_BETTER = (
    "Set RECOLLECT_TRANSCRIBER_MODEL to the folder of a faster-whisper model, or"
    " RECOLLECT_TRANSCRIBER_URL and RECOLLECT_TRANSCRIBER_MODEL to an endpoint with OpenAI's"
    " /audio/transcriptions, and add the file again."
)


@dataclass(frozen=True, slots=True)
class TranscriberChoice:
    """The operator's settings.

    `kind` is auto, whisper, openai, pocketsphinx or none; `auto` takes the endpoint if `url` is
    set, else whisper if `model` is, else none. `model` is a name at the endpoint; for whisper a
    folder or a name in the cache of the hub. `fallback`, for lack of an engine, is metadata (what
    is known without listening), pocketsphinx or fail.
    """

    kind: str = "auto"
    url: str | None = None
    key: str | None = field(default=None, repr=False)
    model: str | None = None
    fallback: str = "metadata"


Hear = Callable[[float, float, LocalEngine | None], Heard]
"""The sandbox with a recording: start, seconds and engine to the stretch from there on."""


@dataclass(frozen=True, slots=True)
class Transcript:
    """What was said, and sentences for people about how it was found out."""

    segments: Sequence[Segment] = ()
    warnings: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Listener:
    """How recordings without captions are treated here."""

    engine: Transcriber | LocalEngine | None
    fails: bool = False
    """whether a recording that nobody writes down fails its document"""

    @property
    def is_local(self) -> bool:
        """Whether the models run on this machine, one recording at a time."""
        return isinstance(self.engine, LocalEngine)

    @property
    def readable(self) -> Sequence[str]:
        """Folders that the sandbox must let the engine read."""
        if not isinstance(self.engine, LocalEngine) or self.engine.model is None:
            return ()
        # The hub's cache holds links to files elsewhere.
        folders = {str(path.resolve().parent) for path in Path(self.engine.model).iterdir()}
        return sorted({self.engine.model, *folders})

    def describe(self) -> str:
        """The engine for people: `faster-whisper:small`."""
        match self.engine:
            case None:
                return "none"
            case LocalEngine("whisper", model):
                return f"faster-whisper:{Path(model or '').name}"
            case LocalEngine(kind):
                return kind
            case engine:
                return engine.name

    def transcribe(self, hear: Hear) -> Transcript:
        """All that is said. Raises Transient, and what `hear` raises.

        Raises Permanent (`not_transcribed`) if nobody can write it down and that is to fail.
        """
        if self.engine is None:
            return self._without(f"no transcription engine is set up. {GET_BETTER}")
        try:
            segments, was_cut = self._listen(hear, self.engine)
        except Permanent as error:
            if error.code not in ("transcriber_failed", "transcriber_refused"):
                raise
            return self._without(f"{error}. {GET_BETTER}")
        warnings: list[str] = []
        if not segments:
            warnings.append(f"No speech was found in it ({self.describe()} listened).")
        elif self.engine == LocalEngine("pocketsphinx"):
            warnings.append(
                "Its text was written by pocketsphinx, which gets most words wrong. " + GET_BETTER
            )
        else:
            warnings.append(f"Its text was written by a machine ({self.describe()}).")
        if was_cut:
            warnings.append(f"Only its first {MAX_SECONDS / 3600:.0f} hours were transcribed.")
        return Transcript(segments, warnings)

    def _listen(self, hear: Hear, engine: Transcriber | LocalEngine) -> tuple[list[Segment], bool]:
        segments: list[Segment] = []
        start = 0.0
        local = engine if isinstance(engine, LocalEngine) else None
        while start < MAX_SECONDS:
            wanted = min(LOCAL_STRETCH if local else ENDPOINT_STRETCH, MAX_SECONDS - start)
            heard = hear(start, wanted, local)
            segments += heard.segments if isinstance(engine, LocalEngine) else _said(engine, heard)
            if heard.end is None:
                return segments, False
            # A child that was taken over could keep us here.
            start = max(start + max(1.0, wanted / 2), heard.end)
        return segments, True

    def _without(self, reason: str) -> Transcript:
        if self.fails:
            raise Permanent(f"what is said in it was not transcribed: {reason}", code=NOT_DONE)
        return Transcript(warnings=[f"What is said in it was not transcribed: {reason}"])


NOT_DONE = "not_transcribed"


def open_transcriber(choice: TranscriberChoice) -> Listener:
    """Raises SetupError, with the remedy, for settings that cannot work."""
    if choice.fallback not in ("metadata", "pocketsphinx", "fail"):
        raise SetupError(
            f"RECOLLECT_TRANSCRIBER_FALLBACK is {choice.fallback!r}, but must be metadata,"
            " pocketsphinx or fail"
        )
    fails = choice.fallback == "fail"
    match choice.kind:
        case "openai":
            return Listener(_open_endpoint(choice), fails)
        case "whisper":
            return Listener(_open_whisper(choice.model), fails)
        case "pocketsphinx":
            return Listener(_open_pocketsphinx(), fails)
        case "none":
            return Listener(None, fails)
        case "auto" if choice.url is not None:
            return Listener(_open_endpoint(choice), fails)
        case "auto" if choice.model is not None:
            return Listener(_open_whisper(choice.model), fails)
        case "auto":
            rough = _open_pocketsphinx() if choice.fallback == "pocketsphinx" else None
            return Listener(rough, fails)
        case unknown:
            raise SetupError(
                f"RECOLLECT_TRANSCRIBER is {unknown!r}, but must be auto, whisper, openai,"
                " pocketsphinx or none"
            )


def _said(engine: Transcriber, heard: Heard) -> list[Segment]:
    if not heard.pcm:
        return []
    return [
        Segment(heard.start + s.start, heard.start + s.end, s.text, s.speaker)
        for s in engine.transcribe(heard.pcm, RATE)
    ]


# Local engines


def _open_pocketsphinx() -> LocalEngine:
    _need("pocketsphinx", "pocketsphinx")
    return LocalEngine("pocketsphinx")


def _open_whisper(model: str | None) -> LocalEngine:
    if model is None:
        raise SetupError(
            "RECOLLECT_TRANSCRIBER=whisper needs RECOLLECT_TRANSCRIBER_MODEL: the folder of a"
            " faster-whisper model, or its name if the hub's cache has it"
        )
    _need("faster_whisper", "'recollect[whisper]'")
    folder = _find_model(model)
    missing = [name for name in MODEL_FILES if not (folder / name).is_file()]
    if missing:
        raise SetupError(
            f"The whisper model in {folder} has no {' and no '.join(missing)}. A folder as made by"
            " `hf download Systran/faster-whisper-small --local-dir FOLDER` is needed."
        )
    return LocalEngine("whisper", str(folder))


def _find_model(model: str) -> Path:
    """The folder itself, or where the hub's cache keeps a model of that name. Never downloads."""
    folder = Path(model).expanduser().absolute()
    if folder.is_dir():
        return folder
    from huggingface_hub import try_to_load_from_cache  # noqa: PLC0415 - 3 MB, for few

    name = model if "/" in model else f"Systran/faster-whisper-{model}"
    try:
        found = try_to_load_from_cache(name, MODEL_FILES[0])
    except ValueError:  # not a name that the hub could know
        found = None
    if isinstance(found, str):
        return Path(found).parent
    raise SetupError(
        f"There is no folder {folder}, nor does the hub's cache have a whisper model {name}."
        f" Run `hf download {name}` where there is a network, or set RECOLLECT_TRANSCRIBER_MODEL"
        " to a folder with such a model."
    )


def _need(package: str, to_install: str) -> None:
    if find_spec(package) is None:
        raise SetupError(
            f"{package.replace('_', '-')} is not installed. Run `pip install {to_install}`,"
            " or set RECOLLECT_TRANSCRIBER=none."
        )


# An endpoint


class EndpointTranscriber:
    """Any service with OpenAI's `POST /audio/transcriptions`."""

    def __init__(self, endpoint: Endpoint, model: str, key: str | None) -> None:
        self._endpoint = endpoint
        self._model = model
        self._key = key
        self._form = "verbose_json"

    @property
    def name(self) -> str:
        return f"openai:{self._model}"

    def transcribe(self, pcm: bytes, rate: int) -> Sequence[Segment]:
        """Raises Transient, also for wrong settings, which it names: they can be fixed.

        Raises Permanent (`transcriber_refused`) if the service does not take this sound.
        """
        sound = _wav(pcm, rate)
        answer = self._asked(sound, self._form)
        if answer.status in (400, 422) and self._form != "json":
            # gpt-4o-transcribe, Voxtral and others tell no times, and refuse to be asked for them.
            answer = self._asked(sound, "json")
            if 200 <= answer.status < 300:
                self._form = "json"
        if not 200 <= answer.status < 300:
            raise self._judge(answer)
        try:
            told: Any = json.loads(answer.data)
        except (ValueError, RecursionError):
            told = None
        if tells_of_error(told):  # as whisper.cpp says it
            message = f"{self._message(answer)}; check RECOLLECT_TRANSCRIBER_URL"
            raise Transient(message, code="http_500")
        return _parse(told, len(pcm) / SAMPLE_BYTES / rate)

    def _asked(self, sound: bytes, form: str) -> EndpointAnswer:
        try:
            return self._endpoint.request(
                "POST",
                "/audio/transcriptions",
                data={"model": self._model, "response_format": form},
                files={"file": ("sound.wav", io.BytesIO(sound), "audio/wav")},
            )
        except Transient as error:
            raise Transient(
                f"transcription: {error}", code=error.code, after=error.after
            ) from error
        except Permanent as error:
            raise Transient(f"transcription: {error}", code=error.code) from error

    def _message(self, answer: EndpointAnswer) -> str:
        hide = [self._key] if self._key else []
        return f"transcription: {self._endpoint.message(answer, hide=hide)}"

    def _judge(self, answer: EndpointAnswer) -> Transient | Permanent:
        message = self._message(answer)
        if setting := _SETTINGS.get(answer.status):
            return Transient(f"{message}; check {setting}", code=f"http_{answer.status}")
        judged = outcome(answer.status, answer.headers, message)
        if isinstance(judged, Permanent):
            return Permanent(message, code="transcriber_refused")
        return judged


_SETTINGS: Mapping[int, str] = {
    401: "RECOLLECT_TRANSCRIBER_KEY",
    403: "RECOLLECT_TRANSCRIBER_KEY",
    404: "RECOLLECT_TRANSCRIBER_URL and RECOLLECT_TRANSCRIBER_MODEL",
    405: "RECOLLECT_TRANSCRIBER_URL",
}
"""what to check, by status: these say nothing of the sound"""


def _open_endpoint(choice: TranscriberChoice) -> EndpointTranscriber:
    if choice.url is None or choice.model is None:
        missing = "_URL" if choice.url is None else "_MODEL"
        raise SetupError(
            f"a transcription endpoint needs RECOLLECT_TRANSCRIBER{missing}, too"
            if choice.kind == "auto"
            else f"RECOLLECT_TRANSCRIBER=openai needs RECOLLECT_TRANSCRIBER{missing}"
        )
    headers = {"Authorization": f"Bearer {choice.key}"} if choice.key else {}
    settings = "RECOLLECT_TRANSCRIBER_URL or RECOLLECT_TRANSCRIBER_KEY"
    endpoint = Endpoint(
        choice.url, headers=headers, timeout=PATIENCE, total=WHOLE, settings=settings
    )
    return EndpointTranscriber(endpoint, choice.model, choice.key)


def _wav(pcm: bytes, rate: int) -> bytes:
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(SAMPLE_BYTES)
        file.setframerate(rate)
        file.writeframes(pcm)
    return out.getvalue()


def _parse(answer: Any, seconds: float) -> list[Segment]:
    """Segments within the sound, in order; the whole text as one where the service has no times.

    Raises Transient for anything else than an answer of this kind.
    """
    try:
        parts: Any = answer.get("segments")
        if parts is None or (parts == [] and answer.get("text")):
            parts = [{"start": 0.0, "end": seconds, "text": answer["text"]}]
        segments = [_segment(part, seconds) for part in parts]
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        raise Transient(
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
