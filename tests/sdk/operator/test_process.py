"""Signals stop the process of an operator, also one whose handler never returns."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

import pinnace

_SOURCES = Path(pinnace.__file__).parents[1]
_SECONDS = 60.0
_PROGRAM = """
import asyncio, signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # A test run in the background ignores it.
from pinnace.sdk.operator.process import run_until_signal

async def work():
    print("ready", flush=True)
    {body}

asyncio.run(run_until_signal(work()))
"""
_WAITS = "await asyncio.Event().wait()"
_BLOCKS = "\n    while True: pass"


def _stop(body: str, *numbers: signal.Signals, is_hangup_ignored: bool = False) -> tuple[int, str]:
    """Send signals to a process, one after the other, and return its exit code and its errors."""
    prelude = "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)" if is_hangup_ignored else ""
    process = subprocess.Popen(
        [sys.executable, "-c", prelude + _PROGRAM.format(body=body)],
        env={"PYTHONPATH": str(_SOURCES), "PATH": "/usr/bin:/bin"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "ready\n"
        for place, number in enumerate(numbers):
            process.send_signal(number)
            if number is signal.SIGINT and place == 0:
                assert "Ctrl-C again interrupts" in process.stderr.readline()
        return process.wait(_SECONDS), process.stderr.read()
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_one_signal_stops_a_process_that_waits(number: signal.Signals) -> None:
    assert _stop(_WAITS, number) == (0, "")


def test_a_process_under_nohup_outlives_its_terminal() -> None:
    code, _ = _stop(_WAITS, signal.SIGHUP, signal.SIGTERM, is_hangup_ignored=True)
    assert code == 0


def test_a_handler_that_never_returns_is_interrupted_by_the_second_signal() -> None:
    code, errors = _stop(_BLOCKS, signal.SIGINT, signal.SIGINT)
    assert code != 0
    assert "StopRequested" in errors
