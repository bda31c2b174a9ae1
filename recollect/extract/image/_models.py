"""Where the models of rapidocr lie, and for which size of picture they are."""

import functools
import importlib.util
from pathlib import Path

LONG_SIDE = 2_000
"""Pixels at which a page is read: 170 dots per inch of A4."""


@functools.cache
def models() -> dict[str, Path | None]:
    """Model files by task. Given by path, since rapidocr downloads what it does not find."""
    spec = importlib.util.find_spec("rapidocr")
    if spec is None or spec.origin is None:
        return {"det": None, "rec": None}
    folder = Path(spec.origin).parent / "models"
    return {
        task: next(iter(sorted(folder.glob(f"*_{task}_*.onnx"))), None) for task in ("det", "rec")
    }
