"""Recollect: takes knowledge in and makes it searchable, on your own machine."""

import os

__version__ = "0.1.0"

# ONNX Runtime reports its use to its maker, unless it is told not to before it is loaded. Nothing
# in this package is, before this line.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"  # noqa: TID251 # a library's switch, no setting
