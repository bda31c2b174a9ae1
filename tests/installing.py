"""Packages of PyPI that some tests install for themselves."""

import subprocess
import sys
from pathlib import Path

import pytest

_UV = (sys.executable, "-m", "uv", "--quiet", "pip")
_PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")


def install(site: Path, *wanted: str) -> None:
    """Into a folder: with uv, which takes a tenth of the time, or with pip where uv cannot."""
    arguments = ["install", "--only-binary", ":all:", "--target", str(site), *wanted]
    if _run([*_UV, *arguments]).returncode:
        _needed([*_PIP, *arguments])


def download_source(folder: Path, package: str, *wanted: str) -> None:
    """The source archive of one package. What builds it comes as wheels."""
    _needed(
        [*_PIP, "download", "--no-deps", "--no-binary", package, "--dest", str(folder), *wanted]
    )


def _needed(command: list[str]) -> None:
    done = _run(command)
    if done.returncode:
        pytest.skip(f"pip cannot fetch packages here: {done.stderr[-300:]}")


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
