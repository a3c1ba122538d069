"""A wall clock that a test moves, for processes that it starts: a library that the machine's compiler makes.

Time namespaces do not cover CLOCK_REALTIME, and the clock of the machine belongs to others. The library adds the number
in a shared file to each answer of the C library. Processes without the C library, such as those in static images, and
times of files keep the machine's clock.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile const long long *shift;
static int (*real_gettime)(clockid_t, struct timespec *);

__attribute__((constructor)) static void start(void) {
    real_gettime = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    const char *path = getenv("PINNACE_CHAOS_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *place = mmap(NULL, sizeof(long long), PROT_READ, MAP_SHARED, file, 0);
    if (place != MAP_FAILED) shift = place;
    close(file);
}

int clock_gettime(clockid_t id, struct timespec *answer) {
    int result = real_gettime(id, answer);
    if (result == 0 && shift && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) answer->tv_sec += *shift;
    return result;
}

int gettimeofday(struct timeval *restrict answer, void *restrict zone) {
    struct timespec now;
    (void)zone;
    int result = clock_gettime(CLOCK_REALTIME, &now);
    if (result == 0 && answer) { answer->tv_sec = now.tv_sec; answer->tv_usec = now.tv_nsec / 1000; }
    return result;
}

time_t time(time_t *answer) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (answer) *answer = now.tv_sec;
    return now.tv_sec;
}
"""


def build_library(directory: Path) -> Path | None:
    """Return the library, or None on a machine without a compiler."""
    compiler = shutil.which("cc")
    if compiler is None:
        return None
    source, library = directory / "clock.c", directory / "clock.so"
    source.write_text(_SOURCE)
    command = [compiler, "-O1", "-shared", "-fPIC", "-o", str(library), str(source), "-ldl"]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return library


class ShiftedClock:
    """The clock of the processes with these variables in their environment."""

    def __init__(self, library: Path | None, file: Path) -> None:
        self._file = file
        self._library = library
        if library is not None:
            file.write_bytes(struct.pack("q", 0))

    @property
    def environment(self) -> dict[str, str]:
        if self._library is None:
            return {}
        return {"LD_PRELOAD": str(self._library), "PINNACE_CHAOS_CLOCK": str(self._file)}

    def shift(self, seconds: int) -> None:
        """Move the clock to so many seconds after that of the machine."""
        with self._file.open("r+b") as file:
            file.write(struct.pack("q", seconds))
