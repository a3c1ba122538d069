"""Probes and hooks: exec, HTTP, HTTPS, TCP, gRPC and sleep, made from within the pod."""

from __future__ import annotations

import asyncio
import functools
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pinnace.model.byte_streams import ByteReader, Duplex
from pinnace.model.clock import AlarmClock
from pinnace.model.objects import Object
from pinnace.model.tasks import Tasks
from pinnace.node.agent.grpc_health import SERVING, check_health
from pinnace.node.runtime.errors import RuntimeFailure
from pinnace.node.runtime.runtime import Runtime

_MAX_OUTPUT = 10 << 10
_MAX_ANSWER = 64 << 10
KINDS = ("startupProbe", "livenessProbe", "readinessProbe")


@dataclass(frozen=True, slots=True)
class ProbeOutcome:
    is_success: bool
    message: str = ""


@dataclass(frozen=True, slots=True)
class ProbeTarget:
    """A running container."""

    sandbox: str
    container: str
    spec: Object
    address: str


class Actions:
    """Carries out the action of a probe or hook once."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime

    async def run(self, action: Mapping[str, Any], target: ProbeTarget, timeout: float) -> ProbeOutcome:
        try:
            async with asyncio.timeout(timeout):
                return await self._run(action, target, timeout)
        except TimeoutError:
            return ProbeOutcome(
                False, f"command timed out after {timeout:g}s" if "exec" in action else "context deadline exceeded"
            )
        except (RuntimeFailure, OSError, EOFError, ValueError) as error:
            return ProbeOutcome(False, str(error))

    async def _run(self, action: Mapping[str, Any], target: ProbeTarget, timeout: float) -> ProbeOutcome:
        if "exec" in action:
            command = action["exec"].get("command") or []
            result = await self._runtime.exec_sync(target.container, command, timeout=timeout, limit_bytes=_MAX_OUTPUT)
            return ProbeOutcome(result.exit_code == 0, result.output.decode(errors="replace"))
        if "httpGet" in action:
            return await self._http(action["httpGet"], target)
        if "sleep" in action:
            await asyncio.sleep(action["sleep"]["seconds"])
            return ProbeOutcome(True)
        if "tcpSocket" in action:
            stated = action["tcpSocket"]
            connection = await self._connect(stated.get("host", ""), stated["port"], target)
            connection.writer.close()
            return ProbeOutcome(True)
        if "grpc" in action:
            return await self._grpc(action["grpc"], target)
        return ProbeOutcome(False, f"probes of the kind {', '.join(action)} are not supported")

    async def _connect(self, host: str, port: int | str, target: ProbeTarget) -> Duplex:
        return await self._runtime.connect(
            target.sandbox, port_number(port, target.spec), address=host or target.address
        )

    async def _grpc(self, stated: Mapping[str, Any], target: ProbeTarget) -> ProbeOutcome:
        port = port_number(stated["port"], target.spec)
        connection = await self._connect("", port, target)
        try:
            state = await check_health(connection, stated.get("service") or "", f"{target.address}:{port}")
        finally:
            connection.writer.close()
        if not state:
            text = "error: this server does not implement the grpc health protocol (grpc.health.v1.Health)"
            return ProbeOutcome(False, text)
        return ProbeOutcome(state == SERVING, f'service unhealthy (responded with "{state}")')

    async def _http(self, stated: Mapping[str, Any], target: ProbeTarget) -> ProbeOutcome:
        port = port_number(stated["port"], target.spec)
        reader, writer = await self._connect(stated.get("host", ""), port, target)
        if stated.get("scheme", "HTTP") == "HTTPS":
            assert isinstance(writer, asyncio.StreamWriter)
            await writer.start_tls(_any_certificate(), server_hostname=None)
        headers = {"Host": f"{target.address}:{port}", "User-Agent": "kube-probe/pinnace", "Accept": "*/*"}
        headers |= {one["name"]: one["value"] for one in stated.get("httpHeaders") or ()}
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        try:
            writer.write(f"GET {stated.get('path') or '/'} HTTP/1.1\r\n{head}Connection: close\r\n\r\n".encode())
            await writer.drain()
            line = await _first_line(reader)
        finally:
            writer.close()
        code = int(line.split()[1])
        return ProbeOutcome(200 <= code < 400, f"HTTP probe failed with statuscode: {code}")


@functools.cache
def _any_certificate() -> ssl.SSLContext:
    """Probes do not verify certificates, as kubelet's do not."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def port_number(port: int | str, container: Object) -> int:
    """The number of a port, which may be the name of one of the container's ports."""
    if isinstance(port, int) or port.isdecimal():
        return int(port)
    for one in container.get("ports") or ():
        if one.get("name") == port:
            return int(one["containerPort"])
    raise ValueError(f"the container has no port named {port}")


async def _first_line(reader: ByteReader) -> str:
    data = b""
    while b"\n" not in data and len(data) < _MAX_ANSWER:
        chunk = await reader.read(4096)
        if not chunk:
            break
        data += chunk
    if not data.startswith(b"HTTP/"):
        raise ValueError("malformed HTTP response")
    return data.partition(b"\r\n")[0].decode(errors="replace")


@dataclass(slots=True)
class ProbeResults:
    """The findings of the probes of one container."""

    is_started: bool = False
    is_ready: bool = False
    unhealthy: str = ""
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
        spec = target.spec
        self.results = ProbeResults(is_started="startupProbe" not in spec)
        self.results.is_ready = "readinessProbe" not in spec and self.results.is_started
        for kind in KINDS:
            if kind in spec and (kind == "startupProbe" or self.results.is_started):
                self._tasks.start(self._run(kind, spec[kind]))

    async def close(self) -> None:
        await self._tasks.close()

    async def _run(self, kind: str, probe: Mapping[str, Any]) -> None:
        await self._clock.sleep(probe.get("initialDelaySeconds", 0))
        run = 0
        was = False
        while True:
            began = self._clock.monotonic()
            outcome = await self._actions.run(probe, self._target, probe.get("timeoutSeconds", 1))
            self._observe(kind, outcome.is_success, self._clock.monotonic() - began)
            run = run + 1 if outcome.is_success == was else 1
            was = outcome.is_success
            if not outcome.is_success:
                self._report("Unhealthy", f"{kind.removesuffix('Probe').capitalize()} probe failed: {outcome.message}")
            threshold = probe.get("successThreshold", 1) if was else probe.get("failureThreshold", 3)
            if run >= threshold and self._apply(kind, is_success=was):
                return
            await self._clock.sleep(probe.get("periodSeconds", 10))

    def _apply(self, kind: str, *, is_success: bool) -> bool:
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
                    self._tasks.start(self._run(other, self._target.spec[other]))
            self._changed()
            return True
        return False
