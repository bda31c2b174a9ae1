"""Speech to text: which engine writes it down here, and what becomes of it if there is none.

An OpenAI-compatible endpoint is called from here; a local engine runs in the sandbox, next to the
extractor that decodes the sound. Either is asked for one stretch of a recording at a time, so
that neither memory nor the time of one step grows with its length.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

from recollect.errors import Permanent, SetupError
from recollect.inference.endpoint_transcriber import (
    REFUSED,
    SHORTEST_STRETCH,
    STRETCH,
    EndpointTranscriber,
    Hear,
)
from recollect.inference.speech import LocalEngine, Segment

MAX_SECONDS = 4 * 3600.0
"""of one recording that are written down"""
LOCAL_STRETCH = 120.0
"""seconds in one job of the sandbox, which limits its processor time"""

MODEL_FILES = ("model.bin", "config.json", "tokenizer.json")
GET_BETTER = (
    "Set RECOLLECT_TRANSCRIBER_MODEL to the folder of a faster-whisper model, or"
    " RECOLLECT_TRANSCRIBER_URL and RECOLLECT_TRANSCRIBER_MODEL to an endpoint with OpenAI's"
    " /audio/transcriptions, then retry the document."
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


@dataclass(frozen=True, slots=True)
class Transcript:
    """What was said, and sentences for people about how it was found out."""

    segments: Sequence[Segment] = ()
    warnings: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Listener:
    """How recordings without captions are treated here."""

    engine: EndpointTranscriber | LocalEngine | None
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

    def check(self) -> None:
        """Ask the endpoint, if that is the engine. Raises Transient or Permanent."""
        if isinstance(self.engine, EndpointTranscriber):
            self.engine.check()

    def transcribe(self, hear: Hear) -> Transcript:
        """All that is said. Raises Parked, HeldOff, and what `hear` raises.

        Raises Permanent (`not_transcribed`) if nobody can write it down and that is to fail.
        """
        if self.engine is None:
            return self._without(f"no transcription engine is set up. {GET_BETTER}")
        try:
            segments, was_cut = self._listen(hear, self.engine)
        except Permanent as error:
            if error.code not in ("transcriber_failed", REFUSED):
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

    def _listen(
        self, hear: Hear, engine: EndpointTranscriber | LocalEngine
    ) -> tuple[list[Segment], bool]:
        if isinstance(engine, LocalEngine):
            local, longest, least = engine, LOCAL_STRETCH, LOCAL_STRETCH / 2
        else:
            local, longest, least = None, STRETCH, SHORTEST_STRETCH / 2
            hear = engine.writing(hear, MAX_SECONDS)
        segments: list[Segment] = []
        start = 0.0
        while start < MAX_SECONDS:
            heard = hear(start, min(longest, MAX_SECONDS - start), local)
            segments += heard.segments
            if heard.end is None:
                return segments, False
            # A child that was taken over could keep us here.
            start = max(start + least, heard.end)
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


def _open_endpoint(choice: TranscriberChoice) -> EndpointTranscriber:
    if choice.url is None or choice.model is None:
        missing = "_URL" if choice.url is None else "_MODEL"
        raise SetupError(
            f"a transcription endpoint needs RECOLLECT_TRANSCRIBER{missing}, too"
            if choice.kind == "auto"
            else f"RECOLLECT_TRANSCRIBER=openai needs RECOLLECT_TRANSCRIBER{missing}"
        )
    return EndpointTranscriber(choice.url, choice.model, choice.key)


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
