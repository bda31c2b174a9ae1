"""A wall clock that steps: a few lines of C between a process and its kernel.

Made where there is a compiler, loaded before everything else. What waits and measures goes by the
monotonic clock, which is left alone; so is the clock of whoever is started without it.
"""

import mmap
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SOURCE = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile const long long *by;

__attribute__((constructor)) static void find(void) {
  const char *name = getenv("TORTURE_CLOCK");
  int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
  if (file < 0) return;
  void *page = mmap(0, sizeof *by, PROT_READ, MAP_SHARED, file, 0);
  close(file);
  if (page != MAP_FAILED) by = page;
}

int clock_gettime(clockid_t id, struct timespec *now) {
  int failed = syscall(SYS_clock_gettime, id, now);
  if (!failed && by && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) now->tv_sec += *by;
  return failed;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
  struct timespec exact;
  (void)zone;
  if (clock_gettime(CLOCK_REALTIME, &exact)) return -1;
  now->tv_sec = exact.tv_sec;
  now->tv_usec = exact.tv_nsec / 1000;
  return 0;
}

time_t time(time_t *kept) {
  struct timespec exact;
  clock_gettime(CLOCK_REALTIME, &exact);
  if (kept) *kept = exact.tv_sec;
  return exact.tv_sec;
}
"""
STEP = struct.Struct("q")
DAY = 86_400


class Clock:
    """The wall clock of all processes that are started with `environment`, with a `folder` of its
    own; `step` moves it at once, also of those that run."""

    def __init__(self, compiler: Path, folder: Path) -> None:
        """Raises OSError or CalledProcessError where the compiler does not work."""
        self._library = folder / "step.so"
        self._file = folder / "step"
        self._file.write_bytes(STEP.pack(0))
        source = folder / "step.c"
        source.write_text(SOURCE)
        subprocess.run(
            [str(compiler), "-shared", "-fPIC", "-O2", "-o", str(self._library), str(source)],
            check=True,
            capture_output=True,
        )

    @property
    def environment(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self._library), "TORTURE_CLOCK": str(self._file)}

    def step(self, by: int) -> None:
        """Seconds ahead of the machine's clock; 0 is the right time."""
        with self._file.open("r+b") as file, mmap.mmap(file.fileno(), STEP.size) as page:
            page[:] = STEP.pack(by)


def can_step() -> Path | str:
    """The compiler, or why there is no clock that steps here."""
    found = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if found is None:
        return "there is no C compiler on this machine"
    probe = "import time; time.sleep(0.01); print(int(time.time()))"
    with tempfile.TemporaryDirectory() as folder:
        try:
            clock = Clock(Path(found), Path(folder))
        except (OSError, subprocess.CalledProcessError):
            return f"{found} makes no library"
        clock.step(DAY)
        child = subprocess.run(
            [sys.executable, "-c", probe],
            env=clock.environment,
            check=False,
            capture_output=True,
            text=True,
        )
    if child.returncode != 0 or abs(int(child.stdout) - time.time() - DAY) > 60:
        return "this Python asks for the time by another way"
    return Path(found)
