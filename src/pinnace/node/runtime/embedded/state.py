"""The state of sandboxes and containers on disk: it is the truth, and an agent that starts reads it.

Neither the environment nor the command of a container is in it: they may have values of Secrets.

pods/SANDBOX/sandbox.json                     the configuration and the address
pods/SANDBOX/supervisor.json                  which process supervises it, written by that process
pods/SANDBOX/containers/CONTAINER/config.json
pods/SANDBOX/containers/CONTAINER/created     an empty file, as old as the container
pods/SANDBOX/containers/CONTAINER/status.json written by the supervisor at the start and at the end
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from pinnace.node.machine.status_files import is_alive, read_json, write_json
from pinnace.node.runtime.runtime import ContainerConfig, ContainerState, ContainerStatus, SandboxConfig

_LOST = 137
"""The exit code of a container whose supervisor was killed, and it with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SandboxRecord:
    id: str
    config: SandboxConfig
    created_at: int
    address: str = ""
    is_stopped: bool = False
    users: int = 0
    """The first of its user ids on the node; 0 for the node's own users."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerRecord:
    id: str
    sandbox: str
    config: ContainerConfig
    created_at: int
    stop_signal: int = 15


def without_secrets(config: ContainerConfig) -> ContainerConfig:
    """Leave out the fields that may have values of Secrets: the environment, and what is expanded from it."""
    return replace(config, environment=(), command=(), args=())


@dataclass(frozen=True, slots=True)
class _Ended:
    """The content of status.json."""

    pid: int = 0
    started_at: int = 0
    finished_at: int = 0
    exit_code: int = 0
    reason: str = ""
    message: str = ""


class State:
    """The files below the state directory of a node."""

    def __init__(self, directory: Path) -> None:
        self._pods = directory / "pods"
        self._pods.mkdir(parents=True, exist_ok=True, mode=0o700)

    def directory(self, sandbox: str) -> Path:
        return self._pods / sandbox

    def container_directory(self, record: ContainerRecord) -> Path:
        return self._pods / record.sandbox / "containers" / record.id

    def save_sandbox(self, record: SandboxRecord) -> None:
        _save(self.directory(record.id) / "sandbox.json", record)

    def save_container(self, record: ContainerRecord) -> None:
        _save(self.container_directory(record) / "config.json", record)

    def sandboxes(self) -> Iterator[SandboxRecord]:
        for directory in sorted(self._pods.iterdir()):
            with contextlib.suppress(OSError, msgspec.MsgspecError):
                yield msgspec.json.decode((directory / "sandbox.json").read_bytes(), type=SandboxRecord)

    def containers(self, sandbox: str) -> Iterator[ContainerRecord]:
        place = self.directory(sandbox) / "containers"
        for directory in sorted(place.iterdir()) if place.is_dir() else ():
            with contextlib.suppress(OSError, msgspec.MsgspecError):
                yield msgspec.json.decode((directory / "config.json").read_bytes(), type=ContainerRecord)

    def has_supervisor(self, sandbox: str) -> bool:
        process = self.open_supervisor(sandbox)
        if process is None:
            return False
        os.close(process)
        return True

    def open_supervisor(self, sandbox: str) -> int | None:
        """Return a pidfd of the living supervisor, which the caller closes; None if it has ended."""
        try:
            known = read_json(str(self.directory(sandbox) / "supervisor.json"))
            process = os.pidfd_open(known["pid"])
        except (OSError, ValueError):
            return None
        if is_alive(known["pid"], known["began"]):
            return process
        os.close(process)
        return None

    def kill_supervisor(self, sandbox: str) -> None:
        """End a supervisor, and with it its containers."""
        process = self.open_supervisor(sandbox)
        if process is not None:
            try:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(process, signal.SIGKILL)
            finally:
                os.close(process)

    def status(self, record: ContainerRecord, log_file: str) -> ContainerStatus:
        ended = self._ended(record)
        state = ContainerState.CREATED
        if ended is not None and ended.finished_at:
            state = ContainerState.EXITED
        elif ended is not None:
            state = ContainerState.RUNNING
            if not self.has_supervisor(record.sandbox):
                ended = self._ended(record) or ended
                state = ContainerState.EXITED
                if not ended.finished_at:
                    ended = self._lost(record, ended)
        known = ended or _Ended()
        return ContainerStatus(
            id=record.id,
            sandbox=record.sandbox,
            config=record.config,
            state=state,
            created_at=record.created_at,
            started_at=known.started_at,
            finished_at=known.finished_at,
            exit_code=known.exit_code,
            reason=known.reason,
            message=known.message,
            log_file=log_file,
        )

    def pid_of(self, record: ContainerRecord) -> int:
        """The main process of a container that has started; 0 before."""
        known = self._ended(record)
        return known.pid if known is not None else 0

    def _ended(self, record: ContainerRecord) -> _Ended | None:
        try:
            return msgspec.json.decode((self.container_directory(record) / "status.json").read_bytes(), type=_Ended)
        except (OSError, msgspec.MsgspecError):
            return None

    def _lost(self, record: ContainerRecord, known: _Ended) -> _Ended:
        """Write the end of a container that was killed together with its supervisor."""
        path = self.container_directory(record) / "status.json"
        content = {
            "pid": known.pid,
            "started_at": known.started_at,
            "finished_at": os.stat(path).st_mtime_ns,
            "exit_code": _LOST,
            "reason": "ContainerStatusUnknown",
            "message": "The supervisor of the pod was killed, and the container with it",
        }
        write_json(str(path), content)
        return msgspec.convert(content, _Ended)


def _save(path: Path, record: SandboxRecord | ContainerRecord) -> None:
    beside = path.with_suffix(".new")
    beside.write_bytes(msgspec.json.encode(record))
    beside.chmod(0o600)
    beside.replace(path)
