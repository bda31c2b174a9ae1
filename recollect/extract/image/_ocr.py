"""The one seam to rapidocr: a picture of writing becomes text. Offline, by the models in its wheel.

One model reads all that it can: Chinese, Japanese, and languages in Latin letters. Cyrillic,
Greek, Arabic, Hebrew, Korean, Thai and the scripts of India it cannot; rapidocr has models for
most of them, but only to be downloaded.

One line at a time, several at once: in batches each line is padded to the longest, which takes 1.7
times the processor time and 2.5 times the memory.
"""

import functools
import importlib.util
import logging
import math
import os
import resource
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from recollect.errors import Permanent
from recollect.extract.image._layout import Line, arrange

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL import Image

    Pixels = NDArray[np.uint8]
    """Rows of blue, green, red."""

MEND = "pip install 'recollect[ocr]'"

LONG_SIDE = 2_000
"""Pixels at which a page is read: 170 dots per inch of A4."""
_LONGEST_SHAPE = 2.5
"""Higher than that times its width, a picture is read in pieces: a shot of a long web page."""
_SMALLEST = 8
_EMPTY = 2.0
"""Contrast of a row of pixels on which nothing stands."""
_DETECTION_SIDE = 1_280
_SURE = 0.5
"""Lines read with less confidence are left out: they are pictures, not writing."""
_UPRIGHT = 0.8
"""Mean confidence of a page that does not stand on its head."""
_SAMPLE = 6
_THREADS = 4
_PAGE_SECONDS = 15.0
"""Of processor time, for a page full of small print."""


@dataclass(frozen=True, slots=True)
class _Found:
    """A line on a picture: its corners from the upper left on clockwise, as the line is read."""

    corners: Sequence[tuple[float, float]]
    crop: "Pixels"

    @property
    def width(self) -> float:
        return math.dist(self.corners[0], self.corners[1])

    @property
    def height(self) -> float:
        return math.dist(self.corners[0], self.corners[3])

    @property
    def is_steep(self) -> bool:
        """Whether rapidocr took it for a line that runs up or down, and turned it to read it."""
        return self.height >= 1.5 * self.width


def is_installed() -> bool:
    """Whether rapidocr is there with its models. Loads nothing."""
    return all(_models().values())


def require() -> None:
    """Raises Permanent `ocr_unavailable`, which says the mend."""
    if not is_installed():
        raise missing()


def missing() -> Permanent:
    return Permanent(
        f"reading pictures needs an engine that is not installed: {MEND}",
        code="ocr_unavailable",
    )


def seconds_left() -> float:
    """Processor seconds that this process may still take, as the kernel counts them."""
    limit, _ = resource.getrlimit(resource.RLIMIT_CPU)
    if limit == resource.RLIM_INFINITY:
        return math.inf
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return limit - usage.ru_utime - usage.ru_stime


class Budget:
    """Says when to stop: before the processor time would not suffice for one more page."""

    def __init__(self) -> None:
        self._left = seconds_left()
        self._dearest = _PAGE_SECONDS

    def suffices(self) -> bool:
        """For one more; to be asked before each."""
        left = seconds_left()
        if math.isfinite(left):
            self._dearest = max(self._dearest, self._left - left)
            self._left = left
        return left > 2 * self._dearest


def read(image: "Image.Image") -> str:
    """The writing on a picture, in reading order, whichever way it is turned; "" if there is none.

    Takes any mode; what is transparent must have been laid on a ground before.
    """
    import numpy as np  # noqa: PLC0415 - only the child reads pictures

    if min(image.size) < _SMALLEST:
        return ""
    image = image.convert("RGB")
    width, height = image.size
    long, short = max(width, height), min(width, height)
    # A long strip keeps the width at which it can be read.
    most = LONG_SIDE if long <= _LONGEST_SHAPE * short else LONG_SIDE * long / (2 * short)
    if long > most:
        scale = most / long
        image = image.resize((max(1, round(width * scale)), max(1, round(height * scale))))
    pixels = np.asarray(image)[:, :, ::-1]
    if long > _LONGEST_SHAPE * short and _lies(pixels):
        pixels = np.rot90(pixels)
    pieces = [_read_piece(piece) for piece in _pieces(pixels)]
    if sum(turns == 2 for turns, _ in pieces) * 2 > len(pieces):
        pieces.reverse()
    return "\n\n".join(text for _, text in pieces if text)


def _contrast(pixels: "Pixels", axis: int) -> "NDArray[np.float64]":
    """Of each row (axis 1) or column (axis 0): 0 where nothing is."""
    return pixels.mean(axis=2).std(axis=axis)


def _lies(strip: "Pixels") -> bool:
    """Whether lines of writing run up or down it: these leave columns empty, others rows."""
    columns, rows = (_contrast(strip, axis) for axis in (0, 1))
    return float((columns < _EMPTY).mean()) > float((rows < _EMPTY).mean())


def _pieces(pixels: "Pixels") -> "list[Pixels]":
    """A high picture cut where no writing is, as far as there is such a place."""
    import numpy as np  # noqa: PLC0415 - only the child reads pictures

    height, width = pixels.shape[:2]
    if height <= _LONGEST_SHAPE * width:
        return [np.ascontiguousarray(pixels)]
    contrast = _contrast(pixels, 1)
    pieces: list[Pixels] = []
    start = 0
    while start < height:
        end = start + 2 * width
        if end < height:
            earliest = start + width
            band = contrast[earliest:end]
            # Of the emptiest rows the last one, so that pieces are few.
            end = earliest + int(np.flatnonzero(band <= band.min() + 1)[-1]) + 1
        pieces.append(np.ascontiguousarray(pixels[start:end]))
        start = end
    return pieces


def _read_piece(pixels: "Pixels") -> tuple[int, str]:
    """By how many quarter turns it was turned, and what is on it."""
    import numpy as np  # noqa: PLC0415 - only the child reads pictures

    found = _find(pixels)
    if turns := _turns(found):
        # Lines are found better on a page that stands upright.
        found = _find(np.ascontiguousarray(np.rot90(pixels, turns)))
    texts = _recognize([line.crop for line in found])
    tilt = _tilt([line.corners for line in found])
    return turns, arrange(
        [
            _line(text, line.corners, tilt)
            for (text, confidence), line in zip(texts, found, strict=True)
            if confidence >= _SURE
        ]
    )


def _turns(found: Sequence[_Found]) -> int:
    """Quarter turns counter-clockwise that set a page upright, by how its longest lines read."""
    sample = sorted(found, key=lambda line: -max(line.width, line.height))[:_SAMPLE]
    if not sample:
        return 0
    is_sideways = sum(line.is_steep for line in found) * 2 > len(found)
    confidence = _confidence(_recognize([line.crop for line in sample]))
    is_flipped = confidence < _UPRIGHT and confidence < _confidence(
        _recognize([line.crop[::-1, ::-1] for line in sample])
    )
    # rapidocr has turned steep lines once.
    return (int(is_sideways) + 2 * int(is_flipped)) % 4


def _tilt(boxes: Sequence[Sequence[tuple[float, float]]]) -> float:
    """The angle at which most lines of a page run, which may be scanned askew."""
    long = [box for box in boxes if math.dist(box[0], box[1]) > 3 * math.dist(box[0], box[3])]
    angles = [math.atan2(box[1][1] - box[0][1], box[1][0] - box[0][0]) for box in long]
    return median(angles) if angles else 0.0


def _line(text: str, box: Sequence[tuple[float, float]], tilt: float) -> Line:
    cos, sin = math.cos(-tilt), math.sin(-tilt)
    xs = [x * cos - y * sin for x, y in box]
    ys = [x * sin + y * cos for x, y in box]
    return Line(text, min(xs), min(ys), max(xs), max(ys))


def _confidence(texts: Sequence[tuple[str, float]]) -> float:
    length = sum(len(text) for text, _ in texts)
    return sum(len(text) * sure for text, sure in texts) / length if length else 0.0


def _find(pixels: "Pixels") -> list[_Found]:
    engine, no_lines, _ = _engine()
    try:
        crops, result = engine.detect_and_crop(pixels, {})
    except no_lines:
        return []
    return [
        _Found([(float(x), float(y)) for x, y in box], crop)
        for box, crop in zip(result.boxes, crops, strict=True)
        if min(crop.shape[:2]) > 0
    ]


def _recognize(crops: "Sequence[Pixels]") -> list[tuple[str, float]]:
    engine, _, threads = _engine()

    def recognize(crop: "Pixels") -> tuple[str, float]:
        result = engine.recognize_txt([crop])
        return str(result.txts[0]), float(result.scores[0])

    return list(threads.map(recognize, crops))


@functools.cache
def _engine() -> tuple[Any, type[Exception], ThreadPoolExecutor]:
    """rapidocr, its word for "no line found", and the threads that read lines."""
    import cv2  # noqa: PLC0415 - with rapidocr
    from rapidocr import main  # noqa: PLC0415 - 150 MB that only the heavy child needs

    models = {name: str(path) for name, path in _models().items()}
    logging.getLogger("RapidOCR").setLevel(logging.ERROR)
    cv2.setNumThreads(1)
    engine: Any = main.RapidOCR(
        params={
            "Global.log_level": "error",
            "Global.use_cls": False,
            "Det.model_path": models["det"],
            "Det.limit_type": "max",
            "Det.limit_side_len": _DETECTION_SIDE,
            "Rec.model_path": models["rec"],
            "Rec.rec_batch_num": 1,
            # Threads within a line gain nothing and spin.
            "EngineConfig.onnxruntime.intra_op_num_threads": 1,
            "EngineConfig.onnxruntime.inter_op_num_threads": 1,
            "EngineConfig.onnxruntime.enable_cpu_mem_arena": False,
        }
    )
    available = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    count = min(_THREADS, available)
    return engine, main.RapidOCRError, ThreadPoolExecutor(count)


@functools.cache
def _models() -> dict[str, Path | None]:
    """Model files by task. Given by path, since rapidocr downloads what it does not find."""
    spec = importlib.util.find_spec("rapidocr")
    if spec is None or spec.origin is None:
        return {"det": None, "rec": None}
    folder = Path(spec.origin).parent / "models"
    return {
        task: next(iter(sorted(folder.glob(f"*_{task}_*.onnx"))), None) for task in ("det", "rec")
    }
