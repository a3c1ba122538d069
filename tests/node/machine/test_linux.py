"""System calls through libc."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from pinnace.node.machine import linux


def test_a_path_is_opened_while_others_are_renamed(tmp_path: Path) -> None:
    """The kernel answers EAGAIN for a path with `..` then: pods that start beside each other would fail."""
    for name in ("a/b/c", "d"):
        (tmp_path / name).mkdir(parents=True)
    root = os.open(tmp_path, os.O_PATH)
    child = os.fork()
    if child == 0:
        linux.prctl(linux.PR_SET_PDEATHSIG, signal.SIGKILL)
        while True:
            os.rename(tmp_path / "d", tmp_path / "e")
            os.rename(tmp_path / "e", tmp_path / "d")
    try:
        for _ in range(5_000):
            os.close(linux.open_inside(root, "a/../a/b/../b/c/../../b/c/../..", os.O_PATH))
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(root)
