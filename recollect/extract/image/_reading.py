"""Writing on a picture, by rapidocr. Only the child that reads pictures loads this: 150 MB."""

import functools
import logging
import math
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from statistics import median
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image
from rapidocr import main

from recollect.extract.image._layout import TextLine, arrange
from recollect.extract.image._models import LONG_SIDE, models

Pixels = NDArray[np.uint8]
"""Rows of blue, green, red."""

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


@dataclass(frozen=True, slots=True)
class _Found:
    """A line on a picture: its corners from the upper left on clockwise, as the line is read."""

    corners: Sequence[tuple[float, float]]
    crop: Pixels

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


def read(image: Image.Image) -> str:
    """The writing on a picture, in reading order, whichever way it is turned; "" if there is none.

    Takes any mode; what is transparent must have been laid on a ground before.
    """
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


def _contrast(pixels: Pixels, axis: int) -> NDArray[np.float64]:
    """Of each row (axis 1) or column (axis 0): 0 where nothing is."""
    return pixels.mean(axis=2).std(axis=axis)


def _lies(strip: Pixels) -> bool:
    """Whether lines of writing run up or down it: these leave columns empty, others rows."""
    columns, rows = (_contrast(strip, axis) for axis in (0, 1))
    return float((columns < _EMPTY).mean()) > float((rows < _EMPTY).mean())


def _pieces(pixels: Pixels) -> list[Pixels]:
    """A high picture cut where no writing is, as far as there is such a place."""
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


def _read_piece(pixels: Pixels) -> tuple[int, str]:
    """By how many quarter turns it was turned, and what is on it."""
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


def _line(text: str, box: Sequence[tuple[float, float]], tilt: float) -> TextLine:
    cos, sin = math.cos(-tilt), math.sin(-tilt)
    xs = [x * cos - y * sin for x, y in box]
    ys = [x * sin + y * cos for x, y in box]
    return TextLine(text, min(xs), min(ys), max(xs), max(ys))


def _confidence(texts: Sequence[tuple[str, float]]) -> float:
    length = sum(len(text) for text, _ in texts)
    return sum(len(text) * sure for text, sure in texts) / length if length else 0.0


def _find(pixels: Pixels) -> list[_Found]:
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


def _recognize(crops: Sequence[Pixels]) -> list[tuple[str, float]]:
    engine, _, threads = _engine()

    def recognize(crop: Pixels) -> tuple[str, float]:
        result = engine.recognize_txt([crop])
        return str(result.txts[0]), float(result.scores[0])

    return list(threads.map(recognize, crops))


@functools.cache
def _engine() -> tuple[Any, type[Exception], ThreadPoolExecutor]:
    """rapidocr, its word for "no line found", and the threads that read lines."""
    files = {name: str(path) for name, path in models().items()}
    logging.getLogger("RapidOCR").setLevel(logging.ERROR)
    cv2.setNumThreads(1)
    engine: Any = main.RapidOCR(
        params={
            "Global.log_level": "error",
            "Global.use_cls": False,
            "Det.model_path": files["det"],
            "Det.limit_type": "max",
            "Det.limit_side_len": _DETECTION_SIDE,
            "Rec.model_path": files["rec"],
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
