"""Profiles of this process: where threads spend their time, in pprof's format, and where tasks wait, as text."""

from __future__ import annotations

import asyncio
import gzip
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from types import CodeType
from typing import Any

from pinnace.process.thread_stacks import Frame, Stack, stacks_of_threads
from pinnace.process.varint import encode_varint

LONGEST_SECONDS = 30
_PERIOD_NANOS = 20_000_000
_LEAST_NANOS = 100_000
"""A thread that has used less between two samples waits."""
_MOST_TASKS = 2000
"""More tasks would take the event loop longer than other requests should wait."""
_running = threading.Lock()


class ProfileRuns(Exception):
    """Another profile is being taken."""


async def cpu_profile(seconds: int) -> bytes:
    """Sample the stacks of all threads for so long, and return what `go tool pprof` reads. Raise ProfileRuns."""
    if not _running.acquire(blocking=False):
        raise ProfileRuns
    try:
        started = time.time_ns()
        samples = await asyncio.to_thread(_sample, seconds)
        return await asyncio.to_thread(_encode, samples, started, seconds * 10**9)
    finally:
        _running.release()


def _sample(seconds: int) -> dict[Stack, list[int]]:
    """Return how often each stack was seen, and the CPU time in nanoseconds that its thread had used."""
    own, samples = threading.get_ident(), dict[Stack, list[int]]()
    end, used = time.monotonic() + seconds, _cpu_times()
    while time.monotonic() < end:
        time.sleep(_PERIOD_NANOS / 10**9)
        now = _cpu_times()
        spent = {thread: nanos - used.get(thread, nanos) for thread, nanos in now.items() if thread != own}
        used = now
        if not any(nanos > _LEAST_NANOS for nanos in spent.values()):
            continue
        for thread, stack in stacks_of_threads().items():
            if stack and (nanos := spent.get(thread, 0)) > _LEAST_NANOS:
                sample = samples.setdefault(stack, [0, 0])
                sample[0] += 1
                sample[1] += nanos
    return samples


def _cpu_times() -> dict[int, int]:
    """Return the CPU time that each thread has used. Where the system cannot say it, all is the main thread's."""
    if sys.platform != "linux":
        return {threading.main_thread().ident or 0: time.process_time_ns()}
    # A thread in this list has not ended while this thread holds the interpreter's lock.
    return {
        thread.ident: time.clock_gettime_ns(time.pthread_getcpuclockid(thread.ident))
        for thread in threading.enumerate()
        if thread.ident is not None and thread.is_alive() and not isinstance(thread, threading._DummyThread)
    }


def task_stacks(*, grouped: bool) -> str:
    """Return where the tasks of the running loop wait, each way once with the number of its tasks, or each task."""
    tasks = asyncio.all_tasks()
    chosen = sorted(tasks, key=lambda task: task.get_name())[:_MOST_TASKS]
    lines = [f"goroutine profile: total {len(tasks)}"]
    if grouped:
        counted = Counter(tuple(_awaited(task.get_coro())) for task in chosen)
        for stack, count in counted.most_common():
            lines += [f"{count} @ {len(stack)} frames", *(_line(frame) for frame in stack), ""]
    else:
        for task in chosen:
            lines += [f"task {task.get_name()}:", *(_line(frame) for frame in _awaited(task.get_coro())), ""]
    if len(tasks) > len(chosen):
        lines.append(f"and {len(tasks) - len(chosen)} more tasks")
    return "\n".join(lines) + "\n"


def _line(frame: Frame) -> str:
    return f"#\t{frame.function}\t{frame.file}:{frame.line}"


def _awaited(waiting: Any) -> Iterator[Frame]:
    """Yield the function of a coroutine, and those that it waits for, the outermost first."""
    while waiting is not None:
        frame = getattr(waiting, "cr_frame", None) or getattr(waiting, "gi_frame", None)
        if frame is not None:
            code: CodeType = frame.f_code
            yield Frame(code.co_filename, frame.f_lineno or 0, code.co_qualname)
        waiting = getattr(waiting, "cr_await", None) or getattr(waiting, "gi_yieldfrom", None)


# The format of pprof: github.com/google/pprof/blob/main/proto/profile.proto.


def _encode(samples: dict[Stack, list[int]], started: int, duration: int) -> bytes:
    strings: dict[str, int] = {"": 0}
    functions: dict[tuple[str, str], int] = {}
    locations: dict[Frame, int] = {}
    parts: list[bytes] = []

    def text(value: str) -> int:
        return strings.setdefault(value, len(strings))

    def value_type(kind: str, unit: str) -> bytes:
        return _number(1, text(kind)) + _number(2, text(unit))

    cpu = value_type("cpu", "nanoseconds")
    parts += [_message(1, value_type("samples", "count")), _message(1, cpu)]
    for stack, values in samples.items():
        ids = []
        for frame in stack:
            functions.setdefault((frame.function, frame.file), len(functions) + 1)
            ids.append(locations.setdefault(frame, len(locations) + 1))
        parts.append(_message(2, _packed(1, ids) + _packed(2, values)))
    for frame, number in locations.items():
        line = _number(1, functions[frame.function, frame.file]) + _number(2, frame.line)
        parts.append(_message(4, _number(1, number) + _message(4, line)))
    for (name, file), number in functions.items():
        name_at = text(name)
        names = _number(2, name_at) + _number(3, name_at) + _number(4, text(file))
        parts.append(_message(5, _number(1, number) + names))
    parts += [_message(6, value.encode()) for value in strings]
    parts += [_number(9, started), _number(10, duration), _message(11, cpu), _number(12, _PERIOD_NANOS)]
    return gzip.compress(b"".join(parts))


def _number(field: int, value: int) -> bytes:
    return encode_varint(field << 3) + encode_varint(value)


def _message(field: int, content: bytes) -> bytes:
    return encode_varint(field << 3 | 2) + encode_varint(len(content)) + content


def _packed(field: int, values: Iterable[int]) -> bytes:
    return _message(field, b"".join(map(encode_varint, values)))
