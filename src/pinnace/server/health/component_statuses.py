"""ComponentStatuses: whether the store, the controller manager and the scheduler work, checked for each request.

Parts of this process report to the supervisor. Where this process runs none, they are looked for at the ports on
loopback where Kubernetes' own programs serve /healthz.
"""

from __future__ import annotations

import asyncio
import ssl
from dataclasses import dataclass

from pinnace.model.objects import Object
from pinnace.process.outbound import OutboundFailed, exchange
from pinnace.process.supervisor import Supervisor
from pinnace.schema.golang.connection_errors import describe_connection_error
from pinnace.store.store import Store, StoreError

CONTROLLER_MANAGER, SCHEDULER = "kube-controller-manager", "kube-scheduler"
_PORTS = {SCHEDULER: 10259, CONTROLLER_MANAGER: 10257}
_PROBE_SECONDS = 20.0
_LARGEST_PAGE = 1 << 20


@dataclass(frozen=True, slots=True)
class ComponentStatuses:
    """Computes the ComponentStatuses."""

    store: Store
    supervisor: Supervisor
    has_scheduler: bool
    """Whether a scheduler runs beside the controllers of this process."""

    async def compute(self) -> list[Object]:
        """Return all three, in the order in which they are listed."""
        scheduler, manager = await asyncio.gather(self._check_part(SCHEDULER), self._check_part(CONTROLLER_MANAGER))
        return [
            _status("scheduler", scheduler),
            _status("controller-manager", manager),
            _status("etcd-0", await self._check_store()),
        ]

    async def _check_store(self) -> Object:
        try:
            await self.store.check_read()
        except StoreError as error:
            return _condition("False", error=str(error))
        return _condition("True", "ok")

    async def _check_part(self, name: str) -> Object:
        part = next((part for part in self._parts_of(name) if part in self.supervisor.names), None)
        if part is None:
            return await _probe(_PORTS[name])
        seconds = self.supervisor.down_seconds().get(part)
        return _condition("True", "ok") if seconds is None else _condition("False", f"down for {seconds:.0f} s")

    def _parts_of(self, name: str) -> tuple[str, ...]:
        return (name, CONTROLLER_MANAGER, "kubelet") if name == SCHEDULER and self.has_scheduler else (name,)


async def _probe(port: int) -> Object:
    where = f"127.0.0.1:{port}"
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        answer = await exchange(
            "GET", f"https://{where}/healthz", tls=context, largest=_LARGEST_PAGE, seconds=_PROBE_SECONDS, redirects=10
        )
    except OutboundFailed as error:
        cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
        return _condition("False", f'Get "https://{where}/healthz": {describe_connection_error(cause, where)}')
    if answer.status >= 300:
        return _condition("False", f"HTTP probe failed with statuscode: {answer.status}")
    return _condition("True", answer.body.decode(errors="replace"))


def _condition(status: str, message: str = "", *, error: str = "") -> Object:
    condition = {"type": "Healthy", "status": status, "message": message, "error": error}
    return {name: value for name, value in condition.items() if value}


def _status(name: str, condition: Object) -> Object:
    return {"kind": "ComponentStatus", "apiVersion": "v1", "metadata": {"name": name}, "conditions": [condition]}
