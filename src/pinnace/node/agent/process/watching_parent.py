"""The parent of an agent that was started by hand: a small process that starts it again when its loop stalls.

    python -I -S watching_parent.py PID BEATS COMMAND…

It has the process id that the user knows: signals are passed on, and it ends as the agent ends. It imports nothing of
pinnace, so that it costs 9 MB, most of which it shares with the agent.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys

FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_STOP = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_STALL_SECONDS = 30.0
"""As `STALL_SECONDS` of the watch dog of `pinnace up`."""
_FIRST_SECONDS = 60.0
_LAST_SECONDS = 2.0
"""The first silence may be that of a parent that was paused: waiting beats are read before the second."""
_DUMP_SECONDS = 1.0


class WatchingParent:
    def __init__(self, pid: int, beats: int, command: list[str]) -> None:
        self._pid = pid
        self._beats = beats
        self._command = command
        self._is_stopping = False

    def run(self) -> int:
        """Return the wait status of the agent that has ended by itself, or was stopped."""
        for number in FORWARDED:
            if signal.getsignal(number) is not signal.SIG_IGN:  # nohup ignores SIGHUP, for the agent too.
                signal.signal(number, lambda number, _: self._forward(number))
        signal.pthread_sigmask(signal.SIG_UNBLOCK, FORWARDED)
        while True:
            silence = self._await_end()
            if silence:
                self._end_stalled(silence)
            _, status = os.waitpid(self._pid, 0)
            if not silence or self._is_stopping:
                return status
            os.close(self._beats)
            self._start()

    def _forward(self, number: int) -> None:
        self._is_stopping = self._is_stopping or number in _STOP
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._pid, number)

    def _await_end(self) -> float:
        """Return the seconds for which the agent was silent, or 0 when it has ended."""
        process = os.pidfd_open(self._pid)
        events = select.poll()
        events.register(process, select.POLLIN)
        events.register(self._beats, select.POLLIN)
        limit = _FIRST_SECONDS
        try:
            while True:
                ready = events.poll(1000 * limit) or events.poll(1000 * min(limit, _LAST_SECONDS))
                if not ready:
                    return limit
                if any(fd == process for fd, _ in ready):
                    return 0.0
                limit = _STALL_SECONDS
                if not os.read(self._beats, 4096):
                    events.unregister(self._beats)
                    events.poll()
                    return 0.0
        finally:
            os.close(process)

    def _end_stalled(self, silence: float) -> None:
        text = f"the loop of this node's agent has not turned for {silence:.0f} s: it is killed and started again"
        print(text, file=sys.stderr, flush=True)
        process = os.pidfd_open(self._pid)
        signal.pidfd_send_signal(process, signal.SIGQUIT)  # It writes its stacks.
        select.select([process], [], [], _DUMP_SECONDS)
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(process, signal.SIGKILL)
        os.close(process)

    def _start(self) -> None:
        self._beats, writing = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.set_inheritable(writing, True)
            os.execv(self._command[0], [*self._command, "--beats", str(writing)])
        os.close(writing)


def main() -> None:
    status = WatchingParent(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]).run()
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    sys.exit(os.waitstatus_to_exitcode(status) if os.WIFEXITED(status) else 1)


if __name__ == "__main__":
    main()
