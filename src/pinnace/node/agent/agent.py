"""The node agent: registers the node, watches its pods, and drives them through a runtime."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pinnace.client.transport import ConnectionLost
from pinnace.model import errors, quantity
from pinnace.model.objects import Key, Object, key_of
from pinnace.network.service_range import SERVICE_RANGE, dns_address_of
from pinnace.node.agent.pod_metrics import PodMetrics
from pinnace.node.agent.pod_records import AgentNode, WorkerContext
from pinnace.node.agent.pod_workers import PodWorkers
from pinnace.node.agent.registration import RENEW_SECONDS, Registration, capacity_of_machine
from pinnace.node.agent.static_pods import HASH, MIRROR, MirrorPods, StaticPods, annotation, is_static
from pinnace.node.images.pulls import Pulls
from pinnace.node.pressure.eviction import Eviction, EvictionContext
from pinnace.node.pressure.signals import DEFAULT_THRESHOLDS, MachineSignals, Signals, parse_thresholds
from pinnace.node.pressure.storage_meter import StorageMeter
from pinnace.node.runtime.errors import NotThere
from pinnace.node.runtime.runtime import ImageService, Runtime
from pinnace.reconcile.controller import Controller, Result
from pinnace.reconcile.manager import Manager

_WORKERS = 32
_COLLECT_SECONDS = 300.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings:
    name: str
    directory: Path
    """The state directory of the node."""
    address: str = "127.0.0.1"
    """The address of the node that pods and users see."""
    ipv6_address: str = ""
    """The same in IPv6, in a dual-stack cluster."""
    pod_cidrs: Sequence[str] = ()
    """The networks of the node's pods, for the Node object."""
    port: int = 0
    """The port of the node's web server, 0 for none."""
    service_network: str = SERVICE_RANGE
    """The addresses of Services; the tenth is that of the DNS server."""
    ipv6_service_network: str = ""
    """The IPv6 addresses of Services, in a dual-stack cluster."""
    version: str = "v1.37.0"
    capacity: Mapping[str, str] = field(default_factory=capacity_of_machine)
    manifests: Path | None = None
    """The directory with the manifests of static pods."""
    eviction_hard: str = DEFAULT_THRESHOLDS
    unsafe_sysctls: Sequence[str] = ()
    """Sysctls that pods may set beside the safe ones, such as kernel.msg* or net.core.somaxconn."""
    signals: Signals | None = None
    """The signals of the node that eviction watches; this machine's if None."""

    @property
    def pods(self) -> Path:
        """The directory with one directory for each pod, named by its uid."""
        return self.directory / "agent" / "pods"


class NodeAgent:
    """Add its `controllers` to the manager, and run it beside the manager."""

    def __init__(
        self,
        settings: AgentSettings,
        manager: Manager,
        runtime: Runtime,
        images: ImageService,
        storage: StorageMeter | None = None,
    ) -> None:
        self._runtime = runtime
        self._images = images
        client = manager.client
        self._clock = client.clock
        addresses = [one for one in (settings.address, settings.ipv6_address) if one]
        self._registration = Registration(
            client,
            settings.name,
            addresses=addresses,
            pod_cidrs=settings.pod_cidrs,
            capacity=settings.capacity,
            version=settings.version,
            port=settings.port,
        )
        selection = f"spec.nodeName={settings.name}"
        self._pods = manager.cache("v1/Pod", fields=selection)
        services = manager.cache("v1/Service")
        nodes = manager.cache("v1/Node", fields=f"metadata.name={settings.name}")
        own = Key("", settings.name)

        def enqueue(key: Key) -> None:
            self.controller.enqueue(key, "runtime")

        self.controller = Controller("node-agent", self._sync, workers=_WORKERS)
        self.controller.for_("v1/Pod", fields=selection)
        node = AgentNode(
            name=settings.name,
            host_ips=addresses,
            pods=settings.pods,
            allocatable=settings.capacity,
            dns_address=dns_address_of(settings.service_network),
            unsafe_sysctls=settings.unsafe_sysctls,
            memory_bytes=quantity.parse(settings.capacity.get("memory", "0")).value,
        )
        context = WorkerContext(
            enqueue=enqueue,
            services=lambda: list(services.list()),
            current=self._current,
            node=lambda: nodes.get(own),
            pressures=lambda: self.eviction.pressures(),
            api_uid=self._api_uid,
            probe_observer=lambda pod, container: self.pod_metrics.probe_observer(pod, container),
        )
        self.pod_metrics = PodMetrics(manager.metrics, client.clock)
        pulls = Pulls(images, client.clock, self.pod_metrics.note_pull)
        self._workers = PodWorkers(node, runtime, pulls, client, manager.recorder, context)
        self._mirrors = MirrorPods(client, context.node)
        self._statics: StaticPods | None = None
        if settings.manifests is not None:
            self._statics = StaticPods(settings.manifests, settings.name, client.clock, changed=enqueue)
        meter = storage or StorageMeter(runtime, client.clock, settings.pods)
        self.eviction = self._make_eviction(settings, meter)

    def _make_eviction(self, settings: AgentSettings, storage: StorageMeter) -> Eviction:
        context = EvictionContext(
            active_pods=self._workers.active_pods,
            fail=self._workers.fail,
            storage=storage,
            free_images=self._free_images,
            report=self._registration.report_pressures,
            count=self.pod_metrics.note_eviction,
        )
        signals = settings.signals or MachineSignals(settings.directory)
        return Eviction(signals, parse_thresholds(settings.eviction_hard), self._runtime, self._clock, context)

    async def run(self) -> None:
        """Register the node, then renew its lease and listen to the runtime, until cancelled."""
        await self._registration.register()
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._renew())
                group.create_task(self._listen())
                group.create_task(self.eviction.run())
                group.create_task(self._collect_images())
                if self._statics is not None:
                    group.create_task(self._statics.run())
        finally:
            await self._workers.close()

    async def _sync(self, key: Key) -> Result | None:
        found = self._pods.get(key)
        static = self._statics.get(key) if self._statics is not None else None
        if static is not None:
            await self._mirrors.ensure(static, found)
        elif found is not None and annotation(found, MIRROR):
            await self._mirrors.remove(found)
        current = self._current(key)
        if current is not None:
            self.pod_metrics.see(current)
        else:
            self.pod_metrics.forget(key)
        wait = await self._workers.sync(key, current)
        return Result(requeue_after=wait) if wait else None

    def _current(self, key: Key) -> Object | None:
        """A pod as the node runs it. A static pod has the status of its mirror."""
        found = self._pods.get(key)
        if found is not None:
            found["metadata"].pop("managedFields", None)  # Half of the memory that is kept for a pod.
        static = self._statics.get(key) if self._statics is not None else None
        if static is None:
            return None if found is not None and annotation(found, MIRROR) else found
        is_mirror = found is not None and annotation(found, MIRROR) == annotation(static, HASH)
        return {**static, "status": found.get("status") or {}} if found is not None and is_mirror else static

    def _api_uid(self, pod: Object) -> str:
        if not is_static(pod):
            return str(pod["metadata"]["uid"])
        found = self._pods.get(key_of(pod))
        is_mirror = found is not None and annotation(found, MIRROR) == annotation(pod, HASH)
        return str(found["metadata"]["uid"]) if found is not None and is_mirror else ""

    async def _images_in_use(self) -> set[str]:
        """The images of containers, and those that were loaded by hand: no registry may have them."""
        used = {one.id for one in await self._images.images() if one.is_loaded}
        for one in await self._runtime.containers():
            used |= {one.config.image, *(mount.image for mount in one.config.mounts if mount.image)}
        return used

    async def _free_images(self) -> int:
        return len(await self._images.collect(await self._images_in_use(), high_percent=0, low_percent=0))

    async def _collect_images(self) -> None:
        while True:
            await self._clock.sleep(_COLLECT_SECONDS)
            try:
                for one in await self._images.collect(await self._images_in_use()):
                    _log.info("removed the unused image %s: the disk is nearly full", one)
            except OSError as error:
                _log.warning("unused images were not removed: %s", error)

    async def _renew(self) -> None:
        while True:
            try:
                await self._registration.renew()
            except (errors.ApiError, ConnectionLost) as error:
                _log.warning("the lease of the node was not renewed: %s", error)
            await self._clock.sleep(RENEW_SECONDS)

    async def _listen(self) -> None:
        events = self._runtime.events()
        for sandbox in await self._runtime.sandboxes():  # Pods that were deleted while no agent ran.
            self.controller.enqueue(Key(sandbox.config.namespace, sandbox.config.name), "found on the node")
        async for event in events:
            with contextlib.suppress(NotThere):
                config = (await self._runtime.sandbox(event.sandbox)).config
                self.controller.enqueue(Key(config.namespace, config.name), "runtime")
