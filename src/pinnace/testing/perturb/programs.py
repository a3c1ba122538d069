"""Replicas of an operator that is a program in any language: a process with a kubeconfig, at a socket of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pinnace.client import kubeconfig_files as kubeconfig
from pinnace.process.eager_coroutines import NowOrLater
from pinnace.process.tasks import Tasks
from pinnace.reconcile.manager import Manager
from pinnace.serving.messages import Answer, Request
from pinnace.testing.cluster import Cluster
from pinnace.testing.perturb.replicas import Replica
from pinnace.testing.quiet import count_writes
from pinnace.testing.wire import Wire

START_SECONDS = 60.0
"""The time in which a program must send its first request."""
_POLL_SECONDS = 0.01
_RESTART_SECONDS = 0.2
_MOST_RESTARTS = 50
_LAST_OUTPUT = 2000


class ProgramFailed(Exception):
    """A program does not work at all: it cannot be started, sends no request, or ends again and again."""


@dataclass(eq=False)
class ProgramReplica:
    """A process, started again whenever it ends by itself, as a kubelet does."""

    agent: str
    launcher: ProgramLauncher
    wire: Wire
    directory: Path
    process: asyncio.subprocess.Process | None = None
    called_event: asyncio.Event = field(default_factory=asyncio.Event)
    restarts: int = 0
    _tasks: Tasks = field(default_factory=Tasks)
    _is_ended: bool = False

    def owns(self, manager: Manager) -> bool:
        return False

    async def start(self) -> None:
        """Start the process and wait for its first request. Raise ProgramFailed."""
        await self._spawn()
        keeping = self._tasks.start(self._keep())
        calling = self._tasks.start(self.called_event.wait())
        await asyncio.wait({keeping, calling}, timeout=START_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if not self.called_event.is_set():
            self.launcher.check()
            raise ProgramFailed(
                f"{self.launcher.title} has sent no request to the cluster of its KUBECONFIG in {START_SECONDS:g} s. "
                f"Its output: {self.output()}"
            )

    async def finish(self) -> None:
        await self.launcher.wait_for_rest()

    async def kill(self) -> None:
        self._is_ended = True
        if self.process is not None and self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)  # Its children too: a script waits for kubectl.
            await self.process.wait()
        await self._tasks.close()
        await self.wire.close()

    def output(self) -> str:
        """Return the end of what the process has printed."""
        text = (self.directory / "output").read_text(errors="replace").strip()
        return text[-_LAST_OUTPUT:] or "none"

    async def _spawn(self) -> None:
        environment = {**os.environ, "KUBECONFIG": str(self.directory / "kubeconfig")}
        with (self.directory / "output").open("ab") as output:
            try:
                self.process = await asyncio.create_subprocess_exec(
                    *self.launcher.command,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    env=environment,
                    start_new_session=True,
                )
            except OSError as error:
                raise ProgramFailed(f"{self.launcher.title} cannot be started: {error}") from None

    async def _keep(self) -> None:
        while not self._is_ended:
            assert self.process is not None
            code = await self.process.wait()
            self.restarts += 1
            if self.restarts > _MOST_RESTARTS:
                self.launcher.failure = (
                    f"{self.launcher.title} has ended {self.restarts} times, the last time with {code}. "
                    f"Its output: {self.output()}"
                )
                return
            await asyncio.sleep(_RESTART_SECONDS)
            if not self._is_ended:
                await self._spawn()


class ProgramLauncher:
    """Starts processes, each with a kubeconfig of its own, so that requests tell which replica sends them."""

    poll_seconds = _POLL_SECONDS

    def __init__(self, cluster: Cluster, command: Sequence[str], *, quiet: float) -> None:
        """`quiet` is the real time without a change after which programs have done all that they have to do."""
        self.command = list(command)
        self.title = " ".join(command)
        self._cluster = cluster
        self._quiet = quiet
        self._directory = tempfile.TemporaryDirectory(prefix="pinnace-perturb-")
        self._replicas: list[ProgramReplica] = []
        self._writes = -1
        self._since = 0.0
        self.failure = ""
        """Why a program does not run any more; empty while all run."""

    def check(self) -> None:
        """Raise ProgramFailed if a program does not run any more."""
        if self.failure:
            raise ProgramFailed(self.failure)

    async def start(self, agent: str) -> Replica:
        """Start a replica and return it when it has sent its first request. Raise ProgramFailed."""
        directory = Path(self._directory.name) / agent.replace("/", "-")
        directory.mkdir()
        called_event = asyncio.Event()
        api = self._cluster.api_of(agent)

        def handle(request: Request, /) -> NowOrLater[Answer]:
            called_event.set()
            return api(request)

        wire = await self._cluster.open_socket(handle)
        kubeconfig.write(directory / "kubeconfig", wire.access)
        replica = ProgramReplica(agent, self, wire, directory, called_event=called_event)
        self._replicas.append(replica)
        await replica.start()
        self._writes = -1
        return replica

    async def is_at_rest(self) -> bool:
        self.check()
        writes, now = count_writes(self._cluster), time.monotonic()
        if writes != self._writes:
            self._writes, self._since = writes, now
        if now - self._since >= self._quiet:
            return True
        await asyncio.sleep(_POLL_SECONDS)
        return False

    async def wait_for_rest(self) -> None:
        """Return when no object has changed for a while."""
        self._writes = -1
        while not await self.is_at_rest():
            continue

    async def close(self) -> None:
        """End all processes."""
        for replica in self._replicas:
            await replica.kill()
        self._directory.cleanup()
