"""Probes and hooks: exec, HTTP, HTTPS, TCP, gRPC and sleep, made from within the pod."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, cast

from pinnace.model.typed_objects import Container, GRPCAction, HTTPGetAction, LifecycleHandler, Probe
from pinnace.node.agent.probes.grpc_health import SERVING, check_health
from pinnace.node.agent.probes.http_probes import any_certificate, probe_http
from pinnace.node.errors import RuntimeFailure
from pinnace.node.runtime.runtime import Runtime
from pinnace.process.byte_streams import Duplex
from pinnace.process.clock import AlarmClock
from pinnace.process.tasks import Tasks

_log = logging.getLogger(__name__)
_MAX_OUTPUT = 10 << 10
ProbeKind = Literal["startupProbe", "livenessProbe", "readinessProbe"]
KINDS: tuple[ProbeKind, ...] = ("startupProbe", "livenessProbe", "readinessProbe")


@dataclass(frozen=True, slots=True)
class ProbeOutcome:
    is_success: bool
    message: str = ""
    """Of a failure."""
    warning: str = ""
    """Of a success that may not be what the author of the pod wants."""


@dataclass(frozen=True, slots=True)
class ProbeTarget:
    """A running container."""

    sandbox: str
    container: str
    spec: Container
    address: str


class Actions:
    """Carries out the action of a probe or hook once."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def run(self, action: Probe | LifecycleHandler, target: ProbeTarget, timeout: float) -> ProbeOutcome:
        try:
            async with asyncio.timeout(timeout):
                return await self._run(action, target, timeout)
        except TimeoutError:
            return ProbeOutcome(
                False, f"command timed out after {timeout:g}s" if "exec" in action else "context deadline exceeded"
            )
        except (RuntimeFailure, OSError, EOFError, ValueError) as error:
            return ProbeOutcome(False, str(error))
        except Exception as error:  # A pod may answer anything, and its probes must go on.
            _log.exception("a probe or hook of container %s failed", target.spec["name"])
            return ProbeOutcome(False, f"{type(error).__name__}: {error}")

    async def _run(self, action: Probe | LifecycleHandler, target: ProbeTarget, timeout: float) -> ProbeOutcome:
        if "exec" in action:
            command = action["exec"].get("command") or []
            result = await self._runtime.exec_sync(target.container, command, timeout=timeout, limit_bytes=_MAX_OUTPUT)
            return ProbeOutcome(result.exit_code == 0, result.output.decode(errors="replace"))
        if "httpGet" in action:
            return await self._http(action["httpGet"], target)
        if "sleep" in action:
            await asyncio.sleep(cast(LifecycleHandler, action)["sleep"]["seconds"])
            return ProbeOutcome(True)
        if "tcpSocket" in action:
            stated = action["tcpSocket"]
            connection = await self._connect(stated.get("host", ""), stated["port"], target)
            connection.writer.close()
            return ProbeOutcome(True)
        if "grpc" in action:
            return await self._grpc(cast(Probe, action)["grpc"], target)
        return ProbeOutcome(False, f"probes of the kind {', '.join(action)} are not supported")

    async def _connect(self, host: str, port: int | str, target: ProbeTarget) -> Duplex:
        return await self._runtime.connect(
            target.sandbox, port_number(port, target.spec), address=host or target.address
        )

    async def _grpc(self, stated: GRPCAction, target: ProbeTarget) -> ProbeOutcome:
        port = port_number(stated["port"], target.spec)
        connection = await self._connect("", port, target)
        try:
            if stated.get("mode") == "TLS":
                assert isinstance(connection.writer, asyncio.StreamWriter)
                await connection.writer.start_tls(any_certificate("h2"), server_hostname=None)
            state = await check_health(connection, stated.get("service") or "", f"{target.address}:{port}")
        finally:
            connection.writer.close()
        if not state:
            text = "error: this server does not implement the grpc health protocol (grpc.health.v1.Health)"
            return ProbeOutcome(False, text)
        return ProbeOutcome(state == SERVING, f'service unhealthy (responded with "{state}")')

    async def _http(self, stated: HTTPGetAction, target: ProbeTarget) -> ProbeOutcome:
        async def connect(host: str, port: int) -> Duplex:
            return await self._connect(host, port, target)

        port = port_number(stated["port"], target.spec)
        outcome = await probe_http(stated, stated.get("host") or target.address, port, connect)
        if 300 <= outcome.code < 400:
            return ProbeOutcome(True, warning=f"Probe terminated redirects, Response body: {outcome.body}")
        return ProbeOutcome(200 <= outcome.code < 300, f"HTTP probe failed with statuscode: {outcome.code}")


def port_number(port: int | str, container: Container) -> int:
    """The number of a port, which may be the name of one of the container's ports."""
    if isinstance(port, int) or port.isdecimal():
        return int(port)
    for entry in container.get("ports") or ():
        if entry.get("name") == port:
            return int(entry["containerPort"])
    raise ValueError(f"the container has no port named {port}")


@dataclass(slots=True)
class ProbeResults:
    """The findings of the probes of one container."""

    is_started: bool = False
    is_ready: bool = False
    unhealthy: ProbeKind | Literal[""] = ""
    """The kind of the probe because of which the container must be killed; empty while it is healthy."""


class Prober:
    """Runs the probes of one container until it is closed."""

    def __init__(
        self,
        target: ProbeTarget,
        actions: Actions,
        clock: AlarmClock,
        *,
        changed: Callable[[], None],
        report: Callable[[str, str], None],
        observe: Callable[[str, bool, float], None] = lambda kind, is_success, seconds: None,
    ) -> None:
        """`changed` is called when a result changes, `report` with the reason and message of a failure's Event.

        `observe` is called after each probe, with its kind, whether it succeeded, and its seconds.
        """
        self._observe = observe
        self._target = target
        self._actions = actions
        self._clock = clock
        self._changed = changed
        self._report = report
        self._tasks = Tasks()
        self._running: dict[ProbeKind, asyncio.Task[None]] = {}
        spec = target.spec
        self.results = ProbeResults(is_started="startupProbe" not in spec)
        self.results.is_ready = "readinessProbe" not in spec and self.results.is_started
        for kind in KINDS:
            if kind in spec and (kind == "startupProbe" or self.results.is_started):
                self._begin(kind)

    async def close(self) -> None:
        await self._tasks.close()

    async def close_all_but(self, kept: ProbeKind) -> None:
        """End the probes of the other kinds. Their last results stay."""
        ending = [task for kind, task in self._running.items() if kind != kept and not task.done()]
        for task in ending:
            task.cancel()
        if ending:
            await asyncio.wait(ending)

    def _begin(self, kind: ProbeKind) -> None:
        self._running[kind] = self._tasks.start(self._run(kind, self._target.spec[kind]))

    async def _run(self, kind: ProbeKind, probe: Probe) -> None:
        await self._clock.sleep(probe.get("initialDelaySeconds", 0))
        run = 0
        was = False
        while True:
            began = self._clock.monotonic()
            outcome = await self._actions.run(probe, self._target, probe.get("timeoutSeconds", 1))
            self._observe(kind, outcome.is_success, self._clock.monotonic() - began)
            run = run + 1 if outcome.is_success == was else 1
            was = outcome.is_success
            title = kind.removesuffix("Probe").capitalize()
            if not outcome.is_success:
                self._report("Unhealthy", f"{title} probe failed: {outcome.message}")
            elif outcome.warning:
                self._report("ProbeWarning", f"{title} probe warning: {outcome.warning}")
            threshold = probe.get("successThreshold", 1) if was else probe.get("failureThreshold", 3)
            if run >= threshold and self._apply(kind, is_success=was):
                return
            await self._clock.sleep(probe.get("periodSeconds", 10))

    def _apply(self, kind: ProbeKind, *, is_success: bool) -> bool:
        """Store a result. Return whether this probe has nothing left to do."""
        results = self.results
        if kind == "readinessProbe":
            if results.is_ready != is_success:
                results.is_ready = is_success
                self._changed()
            return False
        if not is_success:
            results.unhealthy = kind
            self._changed()
            return True
        if kind == "startupProbe":
            results.is_started = True
            results.is_ready = "readinessProbe" not in self._target.spec
            for other in KINDS[1:]:
                if other in self._target.spec:
                    self._begin(other)
            self._changed()
            return True
        return False
