"""Judges whether the node can run pods: the runtime answers, the disk can be written, each part of the agent works."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from pinnace.node.errors import RuntimeFailure
from pinnace.node.runtime.runtime import Runtime, RuntimeStatus
from pinnace.process.clock import AlarmClock
from pinnace.process.supervisor import Supervisor
from pinnace.reconcile.deadlines import deadline

RUNTIME_SECONDS = 30.0
"""The runtime is down when it has not answered for this long, as with kubelet."""
ANSWER_SECONDS = 10.0
"""How long one question to the runtime may take."""
PART_SECONDS = 10.0
"""A part of the agent that fails for this long, with its restarts, makes the node not ready."""
PLEG = "PLEG"
"""The part that listens to the runtime has the name that kubelet's messages use."""


class NodeHealth:
    """Asked at each renewal of the node's status, and by the pages of its health."""

    def __init__(self, runtime: Runtime, clock: AlarmClock, directory: Path, supervisor: Supervisor) -> None:
        self._runtime = runtime
        self._clock = clock
        self._directory = directory
        self._supervisor = supervisor
        self.runtime: RuntimeStatus | None = None
        """The last answer of the runtime about itself."""
        self._answered_at: float | None = None
        self._misses = 0
        """The questions since then that had no answer. One alone may be that of an agent that was paused itself."""

    async def failures(self) -> list[str]:
        """Return the reasons why the node is not ready, in kubelet's words where it has them."""
        return [
            *await self._check_runtime(),
            *await asyncio.to_thread(check_disk, self._directory),
            *_check_files(),
            *(f"{name} is not healthy: {reason}" for name, reason in self.failing_parts().items()),
        ]

    def failing_parts(self) -> dict[str, str]:
        """Return the parts of the agent that fail repeatedly, each with its last failure."""
        down = self._supervisor.down_seconds()
        failures = self._supervisor.last_failures
        return {
            name: f"it fails since {seconds:.0f} s: {failures.get(name, '')}"
            for name, seconds in down.items()
            if seconds >= PART_SECONDS
        }

    async def _check_runtime(self) -> list[str]:
        try:
            async with deadline(self._clock, ANSWER_SECONDS):
                status = await self._runtime.status()
        except TimeoutError:
            self._misses += 1
            return self._judge_silence()
        except (RuntimeFailure, OSError) as error:
            self._misses += 1
            reason = getattr(error, "reason", "") or type(error).__name__
            text = f"RuntimeReady=false reason:{reason} message:{error}"
            return [f"container runtime not ready: {text}", *self._judge_silence()]
        self.runtime, self._answered_at, self._misses = status, self._clock.monotonic(), 0
        if not status.is_network_ready:
            text = "NetworkReady=false reason:NetworkPluginNotReady message:Network plugin returns error: not ready"
            return [f"container runtime network not ready: {text}"]
        return []

    def _judge_silence(self) -> list[str]:
        if self._answered_at is None:
            return ["container runtime status check may not have completed yet"]
        is_down = self._misses > 1 and self._clock.monotonic() - self._answered_at >= RUNTIME_SECONDS
        return ["container runtime is down"] if is_down else []


def _check_files() -> list[str]:
    """Return the reason why the agent can open no file, if there is one: no container starts or ends then."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return [f"node agent cannot open files: {error.strerror}"]
    return []


def check_disk(directory: Path) -> list[str]:
    """Return the reason why the state directory cannot be written, if there is one. A full disk is a pressure."""
    try:
        if os.statvfs(directory).f_flag & os.ST_RDONLY:
            return [f"state directory {directory} is not writable: read-only file system"]
    except OSError as error:
        return [f"state directory {directory} is not writable: {error.strerror}"]
    return []
