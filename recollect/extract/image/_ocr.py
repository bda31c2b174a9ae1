"""The one seam to rapidocr: a picture of writing becomes text. Offline, by the models in its wheel.

One model reads all that it can: Chinese, Japanese, and languages in Latin letters. Cyrillic,
Greek, Arabic, Hebrew, Korean, Thai and the scripts of India it cannot; rapidocr has models for
most of them, but only to be downloaded.

One line at a time, several at once: in batches each line is padded to the longest, which takes 1.7
times the processor time and 2.5 times the memory.
"""

import math
import resource
from typing import TYPE_CHECKING

from recollect.errors import Permanent
from recollect.extract.image._models import models

if TYPE_CHECKING:
    from PIL import Image

MEND = "pip install 'recollect[ocr]'"

_PAGE_SECONDS = 15.0
"""Of processor time, for a page full of small print."""


def is_installed() -> bool:
    """Whether rapidocr is there with its models. Loads nothing."""
    return all(models().values())


def require() -> None:
    """Raises Permanent `ocr_unavailable`, which says how to fix it."""
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


class TimeBudget:
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
    from recollect.extract.image import _reading  # noqa: PLC0415 - 150 MB, and an optional engine

    return _reading.read(image)
