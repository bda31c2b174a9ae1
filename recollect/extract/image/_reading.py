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
from PIL import Image, ImageChops
from rapidocr import main

from recollect.extract.image._layout import TextLine, arrange
from recollect.extract.image._models import LONG_SIDE, models

Pixels = NDArray[np.uint8]
"""Rows of blue, green, red."""
Box = NDArray[np.float32]
"""Corners of a line from the upper left on clockwise."""

_LONGEST_SHAPE = 2.5
"""Higher than that times its width, a picture is read in pieces: a shot of a long web page."""
_SMALLEST = 8
_EMPTY = 2.0
"""Contrast of a row of pixels on which nothing stands."""
_DETECTION_SIDE = 1_280
"""Pixels to which what lines are looked for in is shrunk."""
_SMALL_PRINT = 8.5
"""Pixels of a line's height below which it is not found."""
_TO_FIND, _TO_READ = 12.0, 20.0
"""Pixels of a line's height with which it is found, and read, as well as a larger one."""
_SHRUNK = 0.6
"""Scale from which on small print stays large enough."""
_SAMPLE_SIDE = 640
"""Pixels of the square by which it is told whether there is small print."""
_EDGE = 60
"""Brightness by which pixels side by side differ at the edge of a printed letter."""
_INK, _STEP = 8, 6
"""Brightness by which pixels so far apart differ at least where something stands, be it faint or
out of focus."""
_GAP, _MARGIN = 200, 40
"""Pixels that are empty between parts that are looked at apart, and kept around each."""
_MOSTLY_EMPTY = 0.25
"""Part of a picture up to which it is looked at in such parts."""
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
    if image.mode != "RGB":
        image = image.convert("RGB")
    if max(image.size) > _LONGEST_SHAPE * min(image.size) and _lies(
        _pixels(_scaled(image, LONG_SIDE / (2 * min(image.size))))
    ):
        image = image.transpose(Image.Transpose.ROTATE_90)
    width, height = image.size
    # A high strip is read in pieces, and keeps the width at which it can be read.
    side = 2 * width if height > _LONGEST_SHAPE * width else max(width, height)
    tile = None
    if lines := _small_print(image, min(1.0, _DETECTION_SIDE / side)):
        scale = max(LONG_SIDE / side, _TO_READ / lines)
        tile = round(_DETECTION_SIDE * max(1.0, lines * min(1.0, scale) / _TO_FIND))
    else:
        scale = LONG_SIDE / (side if width <= _LONGEST_SHAPE * height else 2 * height)
    pixels = _pixels(_scaled(image, scale))
    pieces = [_read_piece(piece, tile) for piece in _pieces(pixels)]
    if sum(turns == 2 for turns, _ in pieces) * 2 > len(pieces):
        pieces.reverse()
    return "\n\n".join(text for _, text in pieces if text)


def _scaled(image: Image.Image, scale: float) -> Image.Image:
    if scale >= 1:
        return image
    return image.resize((max(1, round(image.width * scale)), max(1, round(image.height * scale))))


def _pixels(image: Image.Image) -> Pixels:
    return np.asarray(image)[:, :, ::-1]


def _small_print(image: Image.Image, scale: float) -> float | None:
    """The height of small lines of writing that are not found on the picture scaled down so, looked
    for where most edges are; None if there are no such lines."""
    if scale >= _SHRUNK:
        return None
    gray = image.convert("L")
    steps = ImageChops.difference(gray, ImageChops.offset(gray, 1, 0))
    half = _SAMPLE_SIDE // 2
    edges = np.asarray(steps.point([0] * _EDGE + [255] * (256 - _EDGE)).reduce(half))
    top, left = (
        max(0, int(at) * half - half // 2) for at in np.unravel_index(edges.argmax(), edges.shape)
    )
    box = (left, top, min(left + 2 * half, image.width), min(top + 2 * half, image.height))
    lines = [
        line
        for line in _find(_pixels(image.crop(box)), None)
        if min(line.width, line.height) * scale < _SMALL_PRINT
    ]
    lines.sort(key=lambda line: -max(line.width, line.height))
    # Leaves and bricks look like lines as well.
    if _confidence(_recognize([line.crop for line in lines[:_SAMPLE]])) < _UPRIGHT:
        return None
    return float(np.percentile([min(line.width, line.height) for line in lines], 20))


def _contrast(pixels: Pixels, axis: int) -> NDArray[np.float64]:
    """Of each row (axis 1) or column (axis 0): 0 where nothing is."""
    return pixels.mean(axis=2).std(axis=axis)


def _lies(strip: Pixels) -> bool:
    """Whether lines of writing run up or down it: these leave columns empty, others rows. Margins
    alone do not tell, nor do gaps between letters."""
    columns, rows = (_contrast(strip, axis) >= _EMPTY for axis in (0, 1))
    return columns.mean() < rows.mean() and _within_margins(columns) < _within_margins(rows)


def _within_margins(filled: NDArray[np.bool_]) -> float:
    at = np.flatnonzero(filled)
    return at.size / (at[-1] + 1 - at[0]) if at.size else 1.0


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


def _read_piece(pixels: Pixels, tile: int | None) -> tuple[int, str]:
    """By how many quarter turns it was turned, and what is on it."""
    found = _find(pixels, tile)
    if turns := _turns(found):
        # Lines are found better on a page that stands upright.
        found = _find(np.ascontiguousarray(np.rot90(pixels, turns)), tile)
    texts = _recognize([line.crop for line in found])
    # rapidocr turns steep lines as those that run down; the label of an axis runs up.
    steep = [at for at, line in enumerate(found) if line.is_steep]
    flipped = _recognize([found[at].crop[::-1, ::-1] for at in steep])
    for at, text in zip(steep, flipped, strict=True):
        texts[at] = max(texts[at], text, key=lambda read: len(read[0]) * read[1])
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


def _find(pixels: Pixels, tile: int | None) -> list[_Found]:
    """Lines of writing; `tile`: the side of the squares in which they are looked for."""
    pixels = np.ascontiguousarray(pixels)
    boxes = _detect(pixels) if tile is None else _detect_in_tiles(pixels, tile)
    engine, _, _ = _engine()
    return [
        _Found([(float(x), float(y)) for x, y in box], crop)
        for box, crop in zip(boxes, engine.crop_text_regions(pixels, boxes), strict=True)
        if min(crop.shape[:2]) > 0
    ]


def _detect(pixels: Pixels) -> list[Box]:
    # A line or two on a page that is empty else are not found.
    parts = _inked(pixels)
    if sum((bottom - top) * (right - left) for top, bottom, left, right in parts) > (
        _MOSTLY_EMPTY * pixels.shape[0] * pixels.shape[1]
    ):
        return _detect_all(pixels)
    boxes: list[Box] = []
    for top, bottom, left, right in parts:
        part = np.ascontiguousarray(pixels[top:bottom, left:right])
        boxes += [box + np.array((left, top), box.dtype) for box in _detect_all(part)]
    return boxes


def _detect_all(pixels: Pixels) -> list[Box]:
    engine, no_lines, _ = _engine()
    record: dict[str, dict[str, float]] = {}
    try:
        boxes: NDArray[np.float32] = engine.detect_and_crop(pixels, record)[1].boxes
    except no_lines:
        return []
    # A single line gets a margin first.
    margin = record["padding_1"]
    return list(boxes - np.array((margin["left"], margin["top"]), boxes.dtype))


def _inked(pixels: Pixels) -> list[tuple[int, int, int, int]]:
    """Top, bottom, left and right of what stands on it, with a margin; apart where a wide stripe
    between is empty."""
    gray = cv2.blur(cv2.cvtColor(pixels, cv2.COLOR_BGR2GRAY), (3, 3))  # grain is no writing
    ink = cv2.absdiff(gray[:, _STEP:], gray[:, :-_STEP]) > _INK
    rows = np.flatnonzero(ink.any(axis=1))
    parts: list[tuple[int, int, int, int]] = []
    for part in np.split(rows, np.flatnonzero(np.diff(rows) > _GAP) + 1):
        if part.size:
            top, bottom = int(part[0]), int(part[-1]) + 1
            columns = np.flatnonzero(ink[top:bottom].any(axis=0))
            left, right = int(columns[0]), int(columns[-1]) + _STEP + 1
            parts.append(
                (
                    max(0, top - _MARGIN),
                    min(len(pixels), bottom + _MARGIN),
                    max(0, left - _MARGIN),
                    min(pixels.shape[1], right + _MARGIN),
                )
            )
    return parts


def _detect_in_tiles(pixels: Pixels, side: int) -> list[Box]:
    """Lines of small print from squares that overlap, and of large print from the whole."""
    overlap = side // 8
    thin = overlap * 0.8
    joined = [box for box in _detect(pixels) if _thickness(box) > thin]
    height, width = pixels.shape[:2]
    for top, bottom in _stretches(height, side, overlap):
        for left, right in _stretches(width, side, overlap):
            tile = np.ascontiguousarray(pixels[top:bottom, left:right])
            inner = ((left > 0, right < width), (top > 0, bottom < height))
            for box in _detect(tile):
                # What is cut lengthwise is whole in the next square.
                if _thickness(box) <= thin and not _is_cut(box, tile, inner):
                    _join(joined, box + np.array((left, top), box.dtype))
    return joined


def _stretches(length: int, side: int, overlap: int) -> list[tuple[int, int]]:
    """As few as there can be of at most 1.25 times `side`, all as long."""
    count = max(1, math.ceil((length - overlap) / (1.25 * side - overlap)))
    step = (length - overlap) / count
    return [(round(at * step), round((at + 1) * step) + overlap) for at in range(count)]


def _thickness(box: Box) -> float:
    return min(math.dist(box[0], box[1]), math.dist(box[0], box[3]))


def _across(box: Box) -> int:
    """0 for a line that runs up or down, 1 for others: the axis of its thickness."""
    return int(math.dist(box[0], box[3]) < 1.5 * math.dist(box[0], box[1]))


def _is_cut(box: Box, tile: Pixels, inner: tuple[tuple[bool, bool], tuple[bool, bool]]) -> bool:
    axis = _across(box)
    begins, ends = inner[axis]
    low, high = box[:, axis].min(), box[:, axis].max()
    return bool((begins and low <= 2) or (ends and high >= tile.shape[1 - axis] - 3))


def _join(joined: list[Box], box: Box) -> None:
    """Add what one square has of a line to what others have of it."""
    apart: list[Box] = []
    for other in joined:
        if _is_one_line(other, box):
            box = _both(other, box)
        else:
            apart.append(other)
    joined[:] = [*apart, box]


def _is_one_line(one: Box, other: Box) -> bool:
    if (axis := _across(one)) != _across(other):
        return False
    (low, high), (its_low, its_high) = ((box.min(axis=0), box.max(axis=0)) for box in (one, other))
    shared = np.minimum(high, its_high) - np.maximum(low, its_low)
    thin, thick = sorted((high[axis] - low[axis], its_high[axis] - its_low[axis]))
    return bool(shared.min() > 0 and shared[axis] > 0.6 * thin and thick < 3 * thin)


def _both(one: Box, other: Box) -> Box:
    """From the beginning of the one that begins first to the end of the one that ends last."""
    along = 1 - _across(one)
    longer, shorter = sorted((one, other), key=lambda box: -float(np.ptp(box[:, along])))
    slack = _thickness(longer)
    if (
        shorter[:, along].min() >= longer[:, along].min() - slack
        and shorter[:, along].max() <= longer[:, along].max() + slack
    ):
        return longer
    first = min(one, other, key=lambda box: float(box[:, along].min()))
    last = max(one, other, key=lambda box: float(box[:, along].max()))
    if along == 0:
        return np.array((first[0], last[1], last[2], first[3]), first.dtype)
    return np.array((first[0], first[1], last[2], last[3]), first.dtype)


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
