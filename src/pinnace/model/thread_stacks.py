"""Reads the stack of another thread while that thread runs.

The frames of `sys._current_frames()` are not safe for this: while Python code walks them, the other thread may get the
interpreter's lock and return from these functions, and Python 3.11 then reads memory that is freed. `faulthandler`
walks the whole stack in one call that keeps the lock.
"""

from __future__ import annotations

import faulthandler
import re
import tempfile
from dataclasses import dataclass

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


def stacks_of_threads() -> dict[int, Stack]:
    """Return the stack of each thread of this process by the thread's identifier."""
    with tempfile.TemporaryFile() as file:
        faulthandler.dump_traceback(file)
        file.seek(0)
        text = file.read().decode(errors="replace")
    heads = list(_THREAD.finditer(text))
    ends = [*(head.start() for head in heads[1:]), len(text)]
    return {int(head[1], 16): _parse(text[head.end() : end]) for head, end in zip(heads, ends, strict=True)}


def stack_of_thread(thread: int) -> Stack:
    """Return the stack of one thread; empty if it has ended."""
    return stacks_of_threads().get(thread, ())


def _parse(text: str) -> Stack:
    return tuple(Frame(file, int(line) if line.isdigit() else 0, name) for file, line, name in _FRAME.findall(text))
