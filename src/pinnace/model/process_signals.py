"""The signals that ask a process to stop."""

from __future__ import annotations

import signal


def stop_signals() -> list[signal.Signals]:
    """Return Ctrl-C, SIGTERM and the end of the terminal, without those that the parent ignores: nohup does SIGHUP."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    return [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
