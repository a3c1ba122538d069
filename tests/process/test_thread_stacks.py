"""The stack of another thread is read while it runs."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from pathlib import Path

from pinnace.process.thread_stacks import file_of_thread, stack_of_thread

BUSY = """
import asyncio, gc, sys, threading, weakref
from pinnace.process.thread_stacks import stack_of_thread

sys.setswitchinterval(1e-6)  # The threads change places inside nearly every call.
main, done = threading.get_ident(), threading.Event()

def look():
    looks = descents = 0
    while looks < 3000 or not descents:
        descents += any(frame.function == "descend" for frame in stack_of_thread(main))
        looks += 1
    done.set()

def descend(depth):
    if depth == 0:
        raise ValueError
    descend(depth - 1)

class Watched:
    pass

watched = weakref.WeakSet()

def leave(_):
    local = Watched()
    watched.add(local)  # Python code runs while this function, which C code has called, frees its variables.

async def wait(depth):
    if depth:
        return await wait(depth - 1)
    await asyncio.sleep(0)
    list(map(leave, range(20)))
    try:
        descend(30)
    except ValueError as error:
        kept = [error]
        kept.append(kept)

async def work():
    while not done.is_set():
        await asyncio.gather(*(wait(20) for _ in range(20)))
        gc.collect(0)

threading.Thread(target=look).start()
asyncio.run(work())
"""


def test_a_busy_thread_is_read_without_harm() -> None:
    ran = subprocess.run([sys.executable, "-c", BUSY], capture_output=True, text=True, timeout=120)
    assert (ran.returncode, ran.stderr) == (0, "")


def test_the_innermost_function_comes_first() -> None:
    begun, over = threading.Event(), threading.Event()

    def outer() -> None:
        inner()

    def inner() -> None:
        begun.set()
        over.wait()

    thread = threading.Thread(target=outer)
    thread.start()
    begun.wait()
    own = [frame for frame in stack_of_thread(thread.ident or 0) if frame.file == __file__]
    over.set()
    thread.join()
    assert [frame.function for frame in own] == ["inner", "outer"]
    assert "over.wait()" in Path(own[0].file).read_text().splitlines()[own[0].line - 1]


def test_a_thread_that_has_ended_has_no_stack() -> None:
    thread = threading.Thread(target=int)
    thread.start()
    thread.join()
    assert stack_of_thread(thread.ident or 0) == ()
    assert file_of_thread(thread.ident or 0) == ""


def test_no_garbage_is_collected_while_the_file_of_a_thread_is_read() -> None:
    collecting: list[str] = []

    def record(phase: str, info: dict[str, int]) -> None:
        collecting.append(sys._getframe(1).f_code.co_name)

    threshold = gc.get_threshold()
    gc.disable()
    gc.callbacks.append(record)
    try:
        new = [set[int]() for _ in range(10)]  # A new frame is one object too many now.
        gc.set_threshold(len(new) // 2)
        gc.enable()
        file = file_of_thread(threading.get_ident())
        assert gc.isenabled()
    finally:
        gc.callbacks.remove(record)
        gc.set_threshold(*threshold)
    assert ("file_of_thread" in collecting, file) == (False, file_of_thread.__code__.co_filename)
