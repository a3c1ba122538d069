"""A container as its supervisor sees it: its streams, its log, its attached clients and its end."""

from __future__ import annotations

import contextlib
import os
import signal
import time

from pinnace.node.runtime.embedded.container_logs import ContainerLog
from pinnace.node.runtime.embedded.messages import Message
from pinnace.node.runtime.embedded.status_files import write_json

_OUT, _ERR = b"stdout", b"stderr"
_LAST_READS = 64
"""How many chunks are read after the end of a process: a pipe holds at most 16 of them by default."""


class Attachment:
    """A client that reads the output: the writing ends of its pipes."""

    def __init__(self, fds: list[int]) -> None:
        """One or two files: standard output, and standard error if it is not a terminal."""
        self._fds = fds
        self._waiting = [b"" for _ in fds]
        for fd in fds:
            os.set_blocking(fd, False)

    def target(self, stream: bytes) -> int:
        return self._fds[1] if stream == _ERR and len(self._fds) > 1 else self._fds[0]

    def is_behind(self, stream: bytes) -> bool:
        return bool(self._waiting[self._fds.index(self.target(stream))])

    @property
    def is_waiting(self) -> bool:
        return any(self._waiting)

    def write(self, stream: bytes, data: bytes) -> bool:
        """Return False if the client has gone."""
        return self._write(self._fds.index(self.target(stream)), data)

    def flush(self, target: int) -> bool:
        """Return whether nothing waits for this file any more."""
        if target not in self._fds:
            return True
        place = self._fds.index(target)
        data, self._waiting[place] = self._waiting[place], b""
        self._write(place, data)
        return not self._waiting[place]

    def close(self) -> None:
        for place, fd in enumerate(self._fds):
            with contextlib.suppress(OSError):
                os.write(fd, self._waiting[place])
            os.close(fd)
        self._fds = []

    def targets(self) -> list[int]:
        return self._fds

    def _write(self, place: int, data: bytes) -> bool:
        try:
            written = os.write(self._fds[place], data)
        except BlockingIOError:
            written = 0
        except OSError:
            self._waiting[place] = b""
            return False
        self._waiting[place] += data[written:]
        return True


class SupervisedContainer:
    """One container. The supervisor's loop calls it; it never blocks."""

    def __init__(self, directory: str, request: Message) -> None:
        self.id: str = request["id"]
        self.directory = directory
        self.pid = 0
        self.pidfd = -1
        self.stdin = -1
        self.closes_stdin: bool = request["stdin_once"]
        self.outputs: dict[int, bytes] = {}
        """The reading ends of the streams, and their names."""
        self.error = ""
        self.started_at = 0
        self.is_running = False
        self._wants_stdin: bool = request["stdin"]
        self._has_terminal: bool = request["tty"]
        self._oom_file: str = request["oom_file"]
        self._child_fds: tuple[int, ...] = ()
        self._attached: list[Attachment] = []
        self._log = ContainerLog(request["log"], max_bytes=request["log_max_bytes"], max_files=request["log_max_files"])

    def open_streams(self) -> tuple[int, int, int] | None:
        """Open the pipes and return the ends for the process; None for a terminal, which the process opens."""
        if self._has_terminal:
            return None
        if self._wants_stdin:
            reading, self.stdin = os.pipe()
            os.set_blocking(self.stdin, False)
        else:
            reading = os.open("/dev/null", os.O_RDONLY)
        out, out_end = os.pipe()
        err, err_end = os.pipe()
        for fd, name in ((out, _OUT), (err, _ERR)):
            os.set_blocking(fd, False)
            self.outputs[fd] = name
        self._child_fds = (reading, out_end, err_end)
        return reading, out_end, err_end

    def began(self, pid: int) -> None:
        for fd in self._child_fds:
            os.close(fd)
        self.pid, self.pidfd = pid, os.pidfd_open(pid)
        self.started_at = time.time_ns()
        self.is_running = True

    def set_terminal(self, master: int) -> None:
        os.set_blocking(master, False)
        self.outputs[master] = _OUT
        if self._wants_stdin:
            self.stdin = os.dup(master)

    def save(self) -> None:
        status = {"pid": self.pid, "started_at": self.started_at}
        write_json(os.path.join(self.directory, "status.json"), status)

    def signal(self, number: int) -> None:
        if self.is_running:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self.pidfd, number)

    def attach(self, attachment: Attachment) -> None:
        self._attached.append(attachment)

    def release_stdin(self) -> None:
        """Leave the only writing end of standard input to the client, so that its end is the end of the input."""
        if not self._has_terminal:
            os.close(self.stdin)
            self.stdin = -1

    def write(self, fd: int, data: bytes) -> bool:
        """Log the data and send it to the clients. Return False if one of them is behind."""
        stream = self.outputs[fd]
        self._log.write(stream, data)
        is_ahead = True
        for attachment in list(self._attached):
            if not attachment.write(stream, data):
                self._attached.remove(attachment)
                attachment.close()
            elif attachment.is_behind(stream):
                is_ahead = False
        return is_ahead

    def behind(self, fd: int) -> list[Attachment]:
        stream = self.outputs.get(fd, _OUT)
        return [attachment for attachment in self._attached if attachment.is_behind(stream)]

    def flush(self, target: int) -> bool:
        return all([attachment.flush(target) for attachment in self._attached if target in attachment.targets()])

    def close_ended(self, target: int) -> None:
        """Close the clients of this file whose container has no output left."""
        if not self.outputs:
            for attachment in [one for one in self._attached if target in one.targets() and not one.is_waiting]:
                self._attached.remove(attachment)
                attachment.close()

    def targets(self) -> list[int]:
        return [target for attachment in self._attached for target in attachment.targets()]

    def end_output(self, fd: int) -> None:
        self._log.end(self.outputs.pop(fd))
        os.close(fd)

    def ended(self, status: int) -> None:
        """Read what the process has left in its pipes, and write its status."""
        for fd in list(self.outputs):
            self._drain(fd)
        self._log.close()
        if self.stdin >= 0:
            os.close(self.stdin)
            self.stdin = -1
        os.close(self.pidfd)
        self.is_running = False
        code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
        reason = "StartError" if self.error else "Completed" if code == 0 else "Error"
        if self._oom_file and code == 128 + signal.SIGKILL and _oom_kills(self._oom_file):
            reason = "OOMKilled"
        content = {
            "pid": self.pid,
            "started_at": 0 if self.error else self.started_at,
            "finished_at": time.time_ns(),
            "exit_code": code,
            "reason": reason,
            "message": self.error,
        }
        with contextlib.suppress(OSError):  # The directory may be gone: the pod is being removed.
            write_json(os.path.join(self.directory, "status.json"), content)
        for attachment in [one for one in self._attached if not one.is_waiting]:
            self._attached.remove(attachment)
            attachment.close()

    def _drain(self, fd: int) -> None:
        for _ in range(_LAST_READS):
            try:
                data = os.read(fd, 65536)
            except OSError:
                break
            if not data:
                break
            self.write(fd, data)
        self.end_output(fd)


def _oom_kills(path: str) -> int:
    """The number of processes that the kernel killed for memory: cgroup v1 and v2 write the same line."""
    try:
        with open(path) as file:
            return next((int(line.split()[1]) for line in file if line.startswith("oom_kill ")), 0)
    except OSError:
        return 0
