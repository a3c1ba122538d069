"""The scheduler in the server's process. It is loaded with the first pod: numpy is a fifth of an idle server."""

from __future__ import annotations

import asyncio
from typing import Protocol

from pinnace.auth.users import AUTHENTICATED, User
from pinnace.client.client import Client
from pinnace.client.retries import Retries
from pinnace.cluster.in_process import InProcessTransport
from pinnace.model.late_imports import import_beside_loop
from pinnace.reconcile.manager import Manager
from pinnace.server.local import LocalApi

SCHEDULER = User("system:kube-scheduler", (AUTHENTICATED,))
NAME = "kube-scheduler"
_MODULE = "pinnace.scheduler.scheduler"


class SchedulerPlane(Protocol):
    """A control plane that can be called as any user."""

    def local(self, user: User) -> LocalApi: ...


def add_scheduler(plane: SchedulerPlane, manager: Manager) -> None:
    """Add the default scheduler to a manager, which may run already."""
    from pinnace.scheduler.scheduler import Scheduler  # noqa: PLC0415 - it loads numpy; `pinnace up` must not wait.

    transport = InProcessTransport(plane.local(SCHEDULER))
    client = Client(transport, clock=manager.client.clock, field_manager=NAME, retries=Retries(attempts=1))
    manager.add(Scheduler(manager, client.telling(manager.informers.note_write)).controller)


async def run_scheduler(plane: SchedulerPlane, manager: Manager) -> None:
    """Load the scheduler beside the event loop once there is a pod; return only when cancelled."""
    has_pod = asyncio.Event()
    leave = manager.informer("v1/Pod").on_change(lambda old, new: has_pod.set())
    await has_pod.wait()
    leave()
    await import_beside_loop(_MODULE)
    add_scheduler(plane, manager)
    await asyncio.get_running_loop().create_future()
