"""The first signal stops a cluster in order; a later one ends the process at once."""

from __future__ import annotations

import subprocess
import sys

import pytest

CHILD = """
import asyncio, os, signal, sys
from pinnace.cli.cluster import foreground as stop_signals

stop_signals.REPEAT_SECONDS = float(sys.argv[1])

async def main():
    signals = stop_signals.StopSignals()
    os.kill(os.getpid(), signal.SIGTERM)
    await signals.wait()
    os.kill(os.getpid(), signal.SIGHUP)
    await asyncio.sleep(0.2)
    print("stopped in order")

asyncio.run(main())
"""


@pytest.mark.parametrize(
    ("repeat_seconds", "code", "message"),
    [
        pytest.param("0", 1, "ending at once: this is the second signal\n", id="later"),
        pytest.param("600", 0, "stopped in order\n", id="together with the first"),
    ],
)
def test_a_second_signal_ends_the_process(repeat_seconds: str, code: int, message: str) -> None:
    child = subprocess.run(
        [sys.executable, "-c", CHILD, repeat_seconds], capture_output=True, text=True, check=False, timeout=60
    )
    assert (child.returncode, child.stdout + child.stderr) == (code, message)
