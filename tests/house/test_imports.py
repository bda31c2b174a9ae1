"""What the resident processes leave out of memory until somebody needs it."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("module", "present", "absent"),
    [
        # The supervisor loads what its children need while the database starts, not before.
        ("recollect.cli.serve", {"recollect.cli.serve"},
         {"recollect.app", "numpy", "httpx", "fastapi", "tokenizers"}),
        ("recollect.cli.work", {"recollect.worker.processing"},
         {"fastapi", "onnxruntime", "huggingface_hub", "PIL", "yt_dlp"}),
        # The door for assistants, but not their SDK.
        ("recollect.cli.api", {"recollect.api", "recollect.mcp"},
         {"onnxruntime", "huggingface_hub", "mcp", "PIL", "yt_dlp"}),
    ],
)  # fmt: skip
def test_a_process_loads_what_it_always_needs_and_no_more(
    module: str, present: set[str], absent: set[str]
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys, {module}; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = set(done.stdout.split())
    assert present <= loaded
    assert not absent & loaded
