"""Reads the stack of another thread while that thread runs.

The frames of `sys._current_frames()` are not safe for this in Python 3.11: while Python code walks them, the other
thread may get the interpreter's lock and return from these functions, and 3.11 then reads memory that is freed. There
`faulthandler` walks the whole stack in one call that keeps the lock. Later versions keep the frames; in them it is
`faulthandler` that crashes, while a function that C code has called frees its local variables (seen with 3.13.0).
"""

from __future__ import annotations

import faulthandler
import gc
import re
import sys
import tempfile
from dataclasses import dataclass
from types import FrameType

_THREAD = re.compile(r"^(?:Current t|T)hread 0x([0-9a-f]+)", re.MULTILINE)
_FRAME = re.compile(r'^  File "(.*)", line (\d+|\?\?\?) in (.*)$', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Frame:
    """One function of a stack."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} in {self.function}"


Stack = tuple[Frame, ...]
"""The innermost function first; at most a hundred."""


_MOST_FRAMES = 100


def stacks_of_threads() -> dict[int, Stack]:
    """Return the stack of each thread of this process by the thread's identifier."""
    if sys.version_info >= (3, 12):
        return {thread: _walk(frame) for thread, frame in sys._current_frames().items()}
    return _dump()


def stack_of_thread(thread: int) -> Stack:
    """Return the stack of one thread; empty if it has ended."""
    return stacks_of_threads().get(thread, ())


def file_of_thread(thread: int) -> str:
    """Return the file of the innermost function of a thread; empty if it has ended. Cheaper than its stack."""
    # A collection of garbage inside of this call may run Python code. The thread may then get the interpreter's lock
    # and return from its function, and 3.11 writes the new frame into memory that has another use: it crashes, or a
    # variable elsewhere has a wrong value. Later versions prevent the collection themselves.
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        frame = sys._current_frames().get(thread)
    finally:
        if was_enabled:
            gc.enable()
    return frame.f_code.co_filename if frame is not None else ""


def _walk(frame: FrameType | None) -> Stack:
    frames: list[Frame] = []
    while frame is not None and len(frames) < _MOST_FRAMES:
        frames.append(Frame(frame.f_code.co_filename, frame.f_lineno or 0, frame.f_code.co_name))
        frame = frame.f_back
    return tuple(frames)


def _dump() -> dict[int, Stack]:
    with tempfile.TemporaryFile() as file:
        faulthandler.dump_traceback(file)
        file.seek(0)
        text = file.read().decode(errors="replace")
    heads = list(_THREAD.finditer(text))
    ends = [*(head.start() for head in heads[1:]), len(text)]
    return {int(head[1], 16): _parse(text[head.end() : end]) for head, end in zip(heads, ends, strict=True)}


def _parse(text: str) -> Stack:
    return tuple(Frame(file, int(line) if line.isdigit() else 0, name) for file, line, name in _FRAME.findall(text))
