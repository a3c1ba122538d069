"""A container as its supervisor sees it: its streams, its log, its attached clients and its end."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time

from pinnace.node.machine.messages import Message
from pinnace.node.machine.status_files import write_json
from pinnace.node.runtime.embedded.groups.remaining_processes import (
    end_processes_of_groups,
    end_processes_of_mounts,
    mounts_of,
)
from pinnace.node.runtime.embedded.supervision.container_logs import ContainerLog

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

    def __init__(self, directory: str, request: Message, *, launch: int) -> None:
        """`launch` is an open file in memory with its launch: it has values of Secrets, which no disk may hold."""
        self._launch = launch
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
        self.has_started = False
        """Whether its program runs: before that, its namespaces are those of the node in part."""
        self.proc = -1
        """Its processes, as a mount of /proc that is attached nowhere; -1 if it shares them."""
        self._is_killed = False
        self.shares_processes = False
        """Whether its process namespace lives on when its first process ends."""
        self._mounts = ""
        self._wants_stdin: bool = request["stdin"]
        self._has_terminal: bool = request["tty"]
        self._oom_file: str = request["oom_file"]
        self._child_fds: tuple[int, ...] = ()
        self._attached: list[Attachment] = []
        self._log = ContainerLog(request["log"], max_bytes=request["log_max_bytes"], max_files=request["log_max_files"])

    def read_launch(self) -> Message:
        """Read the launch in a child, which shares the place in the file with others."""
        size = os.fstat(self._launch).st_size
        data = b""
        while len(data) < size:
            data += os.pread(self._launch, size - len(data), len(data))
        launch: Message = json.loads(data)
        return launch

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

    def continue_as(self, pid: int) -> None:
        """Supervise the process that the first one has made in its place."""
        os.close(self.pidfd)
        self.pid, self.pidfd = pid, os.pidfd_open(pid)
        self._mounts = mounts_of(pid) or self._mounts  # Its program runs already, or `save` finds them.
        if self._is_killed:  # The signal has reached the first process alone.
            self.signal(signal.SIGKILL)

    def set_terminal(self, master: int) -> None:
        os.set_blocking(master, False)
        self.outputs[master] = _OUT
        if self._wants_stdin:
            self.stdin = os.dup(master)

    def save(self) -> None:
        self.has_started = True
        self._mounts = mounts_of(self.pid) or self._mounts
        status = {"pid": self.pid, "started_at": self.started_at}
        write_json(os.path.join(self.directory, "status.json"), status)

    def signal(self, number: int) -> None:
        self._is_killed = self._is_killed or number == signal.SIGKILL
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
            for attachment in [
                attachment
                for attachment in self._attached
                if target in attachment.targets() and not attachment.is_waiting
            ]:
                self._attached.remove(attachment)
                attachment.close()

    def targets(self) -> list[int]:
        return [target for attachment in self._attached for target in attachment.targets()]

    def end_output(self, fd: int) -> None:
        self._log.end(self.outputs.pop(fd))
        os.close(fd)

    def ended(self, status: int) -> None:
        """Read what the process has left in its pipes, and write its status."""
        if self.shares_processes:
            self._end_others()
        for fd in list(self.outputs):
            self._drain(fd)
        self._log.close()
        if self.stdin >= 0:
            os.close(self.stdin)
            self.stdin = -1
        os.close(self.pidfd)
        os.close(self._launch)
        self.close_proc()
        self.is_running = False
        code = exit_code(status)
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
        for attachment in [attachment for attachment in self._attached if not attachment.is_waiting]:
            self._attached.remove(attachment)
            attachment.close()

    def _end_others(self) -> None:
        """End the processes that it has left: its process namespace does not end."""
        groups = [os.path.dirname(path) for path in self.read_launch()["cgroup_files"]]
        if groups:
            end_processes_of_groups(groups)
        else:
            end_processes_of_mounts(self._mounts)

    def close_proc(self) -> None:
        if self.proc >= 0:
            os.close(self.proc)
            self.proc = -1

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


def exit_code(status: int) -> int:
    """The exit code of a process by the status that it was awaited with, as a shell reports it."""
    return os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)


def _oom_kills(path: str) -> int:
    """The number of processes that the kernel killed for memory: cgroup v1 and v2 write the same line."""
    try:
        with open(path) as file:
            return next((int(line.split()[1]) for line in file if line.startswith("oom_kill ")), 0)
    except OSError:
        return 0
