"""The engines for speech that run in the child, at one seam: `Transcriber`."""

import functools
import json
import os
from collections.abc import Sequence
from typing import Any, cast

from recollect.errors import Permanent
from recollect.inference.speech import LocalEngine, Segment, Transcriber


@functools.cache
def open_engine(engine: LocalEngine) -> Transcriber:
    """Raises Permanent (`transcriber_failed`) if it does not load."""
    try:
        match engine.kind:
            case "whisper":
                return WhisperTranscriber(_load_whisper(engine.model or ""), engine.model or "")
            case "pocketsphinx":
                return SphinxTranscriber()
            case unknown:
                raise ValueError(f"there is no engine {unknown!r}")
    # ctranslate2 raises RuntimeError for a model that is not there, damaged, or too new for it.
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        raise Permanent(
            f"the {engine.kind} engine does not load: it, or its model, is missing, damaged, or of"
            " another version",
            code="transcriber_failed",
        ) from error


def _load_whisper(folder: str) -> Any:
    import faster_whisper  # noqa: PLC0415 - an optional engine of 200 MB

    # Without one, the library would ask the network; for a damaged one, it raises just Exception.
    with open(os.path.join(folder, "tokenizer.json"), "rb") as file:
        json.load(file)
    return faster_whisper.WhisperModel(
        folder, device="cpu", compute_type="int8", cpu_threads=1, local_files_only=True
    )


class WhisperTranscriber:
    """faster-whisper; `model` is a loaded WhisperModel."""

    def __init__(self, model: Any, folder: str) -> None:
        self._model = model
        self.name = f"faster-whisper:{os.path.basename(folder.rstrip('/'))}"

    def transcribe(self, pcm: bytes, rate: int) -> Sequence[Segment]:
        import numpy as np  # noqa: PLC0415 - the other engines do without

        samples = np.frombuffer(pcm, "<i2").astype(np.float32) / 32_768
        # Without the filter it invents words in silence; with the text before as a prompt, it may
        # repeat that text forever.
        segments, _ = self._model.transcribe(
            samples, vad_filter=True, condition_on_previous_text=False
        )
        # It thinks in pieces of 30 s, and may see words beyond the end.
        length = len(samples) / rate
        return [
            Segment(float(s.start), min(float(s.end), length), str(s.text).strip())
            for s in segments
            if s.start < length
        ]


class SphinxTranscriber:
    """pocketsphinx with the English model of its wheel: wrong in most words."""

    name = "pocketsphinx:en-us"

    def transcribe(self, pcm: bytes, rate: int) -> Sequence[Segment]:
        import pocketsphinx  # noqa: PLC0415 - an optional engine

        sphinx = cast(Any, pocketsphinx)
        decoder = sphinx.Decoder(samprate=rate, loglevel="FATAL")
        endpointer = sphinx.Endpointer(sample_rate=rate)
        size = int(endpointer.frame_bytes)
        segments: list[Segment] = []
        inside = False
        for start in range(0, len(pcm), size):
            frame = pcm[start : start + size]
            is_last = start + size >= len(pcm)
            # The last frame may be shorter, and ends what is being said.
            speech = endpointer.end_stream(frame) if is_last else endpointer.process(frame)
            if speech is not None:
                if not inside:
                    decoder.start_utt()
                    inside = True
                decoder.process_raw(speech)
            if inside and (is_last or not endpointer.in_speech):
                decoder.end_utt()
                inside = False
                if (found := decoder.hyp()) and found.hypstr:
                    begin, end = float(endpointer.speech_start), float(endpointer.speech_end)
                    segments.append(Segment(begin, max(begin, end), found.hypstr))
        return segments
