"""Files in another file: which are handed over, by which path, and why others are not."""

from collections import Counter
from collections.abc import Callable
from pathlib import PurePosixPath

from recollect.extract._wire import (
    MAX_MEMBERS,
    MEMBER_BYTES,
    PATH_BYTES,
    PATH_LENGTH,
    UNPACKED_BYTES,
)

REASONS = 3
"""why files are not read, named at most in one warning"""
UNSUPPORTED = "its kind is not supported"

Keep = Callable[[str, bytes], None]
"""takes the path and the bytes of a file, as soon as they are known to be whole"""


class Skipped(Exception):
    """Why a file is not handed over."""


class Unpacking:
    """The files of one file, with those of archives within it."""

    def __init__(self, keep: Keep) -> None:
        self._keep = keep
        self._paths: set[str] = set()
        self._reasons = Counter[str]()
        self.kept = 0
        self.kept_bytes = 0
        self.skipped = 0
        self.unpacked = 0
        """bytes that came out so far, of what is not handed over, too"""

    def check_path(self, path: str) -> None:
        """Raises Skipped."""
        if len(path) > PATH_LENGTH:
            raise Skipped(f"its path has more than {PATH_LENGTH:,} characters")
        if len(path.encode(errors="surrogatepass")) > PATH_BYTES:
            raise Skipped(f"its path has more than {PATH_BYTES:,} bytes")
        if path in self._paths:
            raise Skipped("another file has the same path")

    def check_size(self, size: int) -> None:
        """Of the next file. Raises Skipped."""
        if self.kept >= MAX_MEMBERS:
            raise Skipped(f"only {MAX_MEMBERS:,} files of an archive are read")
        if not size:
            raise Skipped("it is empty")
        if size > MEMBER_BYTES:
            raise Skipped(f"it has {size:,} bytes; {MEMBER_BYTES:,} are accepted")
        if self.unpacked + size > UNPACKED_BYTES:
            raise Skipped(f"the archive unpacks to more than {UNPACKED_BYTES:,} bytes")

    def free(self, path: str) -> str:
        """The path, or the first such as `a (2).pdf` that no other file has."""
        found, number = path, 1
        while found in self._paths:
            number += 1
            whole = PurePosixPath(path)
            found = str(whole.with_stem(f"{whole.stem} ({number})"))
        return found

    def take(self, path: str) -> None:
        """No other file has this path from now on."""
        self._paths.add(path)

    def hand_over(self, path: str, data: bytes) -> None:
        self._keep(path, data)
        self.kept += 1
        self.kept_bytes += len(data)

    def skip(self, reason: str) -> None:
        self.skipped += 1
        self._reasons[reason] += 1

    def warnings(self, rest: str = "; its text says why") -> list[str]:
        """`rest`: what is said of reasons that are too many to be named."""
        if not self.skipped:
            return []
        were = "was" if self.skipped == 1 else "were"
        return [f"{counted(self.skipped, 'file')} in it {were} not read{self._why(rest)}."]

    def _why(self, rest: str) -> str:
        """The reason if there is one alone, else how often the most common were."""
        if len(self._reasons) == 1:
            each = "" if self.skipped == 1 else " each"
            return f",{each} because {next(iter(self._reasons))}"
        told = [f"{reason} ({count})" for reason, count in self._reasons.most_common(REASONS)]
        return ": " + ", ".join(told) + (rest if len(self._reasons) > REASONS else "")


def counted(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"
