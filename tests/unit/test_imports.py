"""What the resident processes leave out of memory until somebody needs it."""

import subprocess
import sys

import pytest


@pytest.mark.parametrize(
    ("module", "absent"),
    [
        # The supervisor stands beside those that work: none of their code.
        ("recollect.cli.serve", {"recollect.app", "numpy", "httpx", "fastapi", "tokenizers"}),
        ("recollect.cli.work", {"fastapi", "onnxruntime", "huggingface_hub", "PIL", "yt_dlp"}),
        ("recollect.cli.api", {"onnxruntime", "huggingface_hub", "mcp", "PIL", "yt_dlp"}),
    ],
)
def test_a_process_loads_what_it_always_needs_and_no_more(module: str, absent: set[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys, {module}; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert not absent & set(done.stdout.split())
