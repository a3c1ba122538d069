"""The background parts of the server itself: regular jobs, custom kinds and aggregated APIs."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from pinnace.auth.certificates.authority import CertificateFiles
from pinnace.client.client import Client
from pinnace.client.exchange import Retries
from pinnace.cluster.control_plane import ControlPlane
from pinnace.cluster.in_process import InProcessTransport, in_process_client
from pinnace.controllers.security.server_config_maps import (
    TOKEN_TRACKING,
    TRUST,
    ensure_config_map,
    keep_config_map,
    with_start_of_tracking,
)
from pinnace.model.users import AUTHENTICATED, User
from pinnace.process.event_loop import import_beside_loop
from pinnace.reconcile.manager import Manager
from pinnace.server.housekeeping import compact_regularly, expire_events_regularly

if TYPE_CHECKING:
    from pinnace.scheduler.configuration import SchedulerConfiguration


def add_extension_parts(plane: ControlPlane) -> None:
    """Keep the status of custom resource definitions and APIServices."""
    client = in_process_client(plane.local(), clock=plane.clock, field_manager="kube-apiserver")
    for name, run in (
        ("start-apiextensions-controllers", plane.custom_resources.run),
        ("apiservice-status-remote-available-controller", plane.aggregation.run_availability),
        ("kube-apiserver-autoregistration", plane.aggregation.run_registration),
        ("metrics-multiplexer", plane.aggregation.metrics.run),
    ):
        plane.supervisor.add(f"poststarthook/{name}", partial(run, client))


def add_regular_jobs(plane: ControlPlane) -> None:
    """Compact the store, and expire events."""
    store, clock = plane.store, plane.clock
    add = plane.supervisor.add
    add("store-compaction", partial(compact_regularly, store))
    if not store.is_shared:  # In etcd events have leases.
        add("event-expiry", partial(expire_events_regularly, plane.fanout, store, clock))


async def add_config_maps(plane: ControlPlane, files: CertificateFiles) -> None:
    """Write the ConfigMaps, and keep them in the background. Entries of others are left alone."""
    client = in_process_client(plane.local(), clock=plane.clock, field_manager="kube-apiserver")
    trust = files.trust()
    for hook, key, complete in (
        ("start-cluster-authentication-info-controller", TRUST, lambda data: {**data, **trust}),
        ("start-legacy-token-tracking-controller", TOKEN_TRACKING, partial(with_start_of_tracking, plane.clock)),
    ):
        await ensure_config_map(client, key, complete)
        plane.supervisor.add(f"poststarthook/{hook}", partial(keep_config_map, client, key, complete))


SCHEDULER = User("system:kube-scheduler", (AUTHENTICATED,))
NAME = "kube-scheduler"
_MODULE = "pinnace.scheduler.scheduler"


def add_scheduler(plane: ControlPlane, manager: Manager, configuration: SchedulerConfiguration | None = None) -> None:
    """Add the default scheduler to a manager, which may run already."""
    from pinnace.scheduler.scheduler import Scheduler  # noqa: PLC0415 - it loads numpy; `pinnace up` must not wait.

    transport = InProcessTransport(plane.local(SCHEDULER))
    client = Client(transport, clock=manager.client.clock, field_manager=NAME, retries=Retries(attempts=1))
    scheduler = Scheduler(manager, client.telling(manager.informers.note_write), configuration=configuration)
    manager.add(scheduler.controller)


async def run_scheduler(plane: ControlPlane, manager: Manager, configuration: SchedulerConfiguration | None) -> None:
    """Load the scheduler beside the event loop once there is a pod; return only when cancelled."""
    has_pod = asyncio.Event()
    leave = manager.informer("v1/Pod").on_change(lambda old, new: has_pod.set())
    await has_pod.wait()
    leave()
    await import_beside_loop(_MODULE)
    add_scheduler(plane, manager, configuration)
    await asyncio.get_running_loop().create_future()
