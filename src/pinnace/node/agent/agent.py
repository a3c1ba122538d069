"""The node agent: registers the node, watches its pods, and drives them through a runtime."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from dataclasses import replace

from pinnace.kinds.services.service_range import dns_address_of
from pinnace.model.objects import Key, key_of
from pinnace.model.typed_objects import Node, Pod, Service
from pinnace.node.agent.metrics.pod_metrics import PodMetrics
from pinnace.node.agent.pod_records import AgentNode, WorkerContext
from pinnace.node.agent.pods.pod_workers import PodWorkers
from pinnace.node.agent.pods.static_pods import HASH, MIRROR, MirrorPods, StaticPods, annotation, is_static, of_api
from pinnace.node.agent.settings import AgentSettings
from pinnace.node.agent.status.node_health import PLEG, NodeHealth
from pinnace.node.agent.status.pod_status import FINAL
from pinnace.node.agent.status.registration import Registration
from pinnace.node.agent.volumes.pod_certificates import PodCertificates
from pinnace.node.agent.volumes.trust_bundles import TrustBundles
from pinnace.node.errors import NotThere
from pinnace.node.image_service import ImageService
from pinnace.node.images.pulls import Pulls
from pinnace.node.plugins.devices import CHECKPOINT, DeviceManager
from pinnace.node.plugins.plugins import NodePlugins
from pinnace.node.pressure.eviction import Eviction, EvictionContext
from pinnace.node.pressure.signals import MachineSignals, parse_thresholds
from pinnace.node.pressure.storage_meter import StorageMeter
from pinnace.node.resources.alignment.node_resources import NodeResources
from pinnace.node.resources.huge_pages import allocatable_of
from pinnace.node.runtime.runtime import Runtime
from pinnace.process.backoff import Backoff
from pinnace.process.exposition import Sample
from pinnace.process.supervisor import Supervisor
from pinnace.reconcile.controller import Controller, Result
from pinnace.reconcile.informer import Informer
from pinnace.reconcile.manager import Manager

PART_FAILURES = "pinnace_background_part_failures_total"
_WORKERS = 32
_RETRIES = Backoff(first=0.005, longest=10.0)
"""As kubelet: after an outage of any length, a pod takes its next step within ten seconds."""
_COLLECT_SECONDS = 300.0
_log = logging.getLogger(__name__)


class NodeAgent:
    """Add its `controllers` to the manager, and run it beside the manager."""

    def __init__(
        self,
        settings: AgentSettings,
        manager: Manager,
        runtime: Runtime,
        images: ImageService,
        storage: StorageMeter | None = None,
        supervisor: Supervisor | None = None,
    ) -> None:
        """`supervisor` runs the parts of the agent, beside those that the caller adds."""
        self.resources = settings.resources or settings.open_resources()
        settings = replace(settings, resources=self.resources)
        self._runtime = runtime
        self._images = images
        client = manager.client
        self._clock = client.clock
        self.supervisor = supervisor or Supervisor(client.clock)
        self.health = NodeHealth(runtime, client.clock, settings.directory, self.supervisor)
        selection = f"spec.nodeName={settings.name}"
        self._bound = manager.informer(Pod, fields=selection)
        self._pods = self._bound.cache
        nodes = manager.informer(Node, fields=f"metadata.name={settings.name}")
        self._devices = DeviceManager(
            settings.directory / "agent" / CHECKPOINT,
            client.clock,
            holders=self._holders,
            changed=self._note_devices,
        )
        self._registration = Registration(
            client,
            settings.identity,
            nodes,
            failures=self.health.failures,
            runtime=lambda: self.health.runtime,
            devices=self._devices.capacity,
        )
        self.controller = Controller("node-agent", self._sync, workers=_WORKERS, backoff=_RETRIES)
        self.controller.for_(Pod, fields=selection)
        context = self._make_context(settings.name, manager, nodes)
        self.pod_metrics = PodMetrics(manager.metrics, client.clock)
        pulls = Pulls(images, client.clock, self.pod_metrics.note_pull)
        node = _node_of(settings, self.resources)
        self._workers = PodWorkers(node, runtime, pulls, client, manager.recorder, context)
        self._mirrors = MirrorPods(client, context.node)
        self._statics: StaticPods | None = None
        if settings.manifests is not None:
            self._statics = StaticPods(settings.manifests, settings.name, client.clock, changed=self._enqueue)
        meter = storage or StorageMeter(runtime, client.clock, settings.pods)
        self.eviction = self._make_eviction(settings, meter)
        self._add_parts()
        if settings.plugins is not None:
            plugins = NodePlugins(settings.plugins, self._devices, self._active_pods, client.clock, self.resources)
            self.supervisor.add("plugins", plugins.run)
        manager.metrics.describe(PART_FAILURES, "Failures of the parts of the agent, each followed by a restart.")
        manager.metrics.counted(PART_FAILURES, self._count_failures)

    def _make_context(self, name: str, manager: Manager, nodes: Informer[Node]) -> WorkerContext:
        services, own = manager.cache(Service), Key("", name)
        return WorkerContext(
            enqueue=self._enqueue,
            services=lambda: list(services.list()),
            current=self._current,
            uids=self._uids,
            node=lambda: nodes.cache.get(own),
            pressures=lambda: self.eviction.reported,
            features=lambda: self._registration.features,
            api_uid=self._api_uid,
            probe_observer=lambda pod, container: self.pod_metrics.probe_observer(pod, container),
            trust_bundles=TrustBundles(manager),
            certificates=PodCertificates(manager, name, lambda: nodes.cache.get(own), self._enqueue),
            devices=self._devices,
            is_on=self._registration.is_on,
        )

    def _enqueue(self, key: Key) -> None:
        self.controller.enqueue(key, "runtime")

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

    def pods(self) -> list[Pod]:
        """Return the pods of the node as it runs them."""
        keys = {*self._pods, *(self._statics.keys() if self._statics is not None else ())}
        return [pod for key in sorted(keys) if (pod := self._current(key)) is not None]

    def _active_pods(self) -> list[Pod]:
        return [pod for pod in self.pods() if (pod.get("status") or {}).get("phase") not in FINAL]

    def _holders(self) -> set[str] | None:
        """The uids of the pods that may have devices; None while the pods of the node are not known."""
        if not self._bound.is_synced:
            return None
        return {pod["metadata"]["uid"] for pod in self._active_pods()} | self._workers.running_uids()

    def _note_devices(self, uids: Collection[str]) -> None:
        self._registration.note_devices()
        for pod in self.pods() if uids else ():
            if pod["metadata"]["uid"] in uids:
                self.controller.enqueue(key_of(pod), "devices")

    def _uids(self) -> set[str]:
        known = [pod for key in self._pods if (pod := self._pods.get(key)) is not None]
        active = [pod for pod in known if (pod.get("status") or {}).get("phase") not in FINAL]
        uids = {annotation(pod, MIRROR) or pod["metadata"]["uid"] for pod in active}
        return uids | {pod["metadata"]["uid"] for pod in self.pods() if is_static(pod)}

    def _count_failures(self) -> list[Sample]:
        return [((("part", name),), float(count)) for name, count in sorted(self.supervisor.failures.items())]

    def _add_parts(self) -> None:
        """Give the parts to the supervisor."""
        self.supervisor.add(PLEG, self._listen)
        self.supervisor.add("eviction-manager", self.eviction.run)
        self.supervisor.add("image-collection", self._collect_images)
        self.supervisor.add("node-status", self._registration.keep_status)
        self.supervisor.add("node-lease", self._registration.keep_lease)
        if self._statics is not None:
            self.supervisor.add("static-pods", self._statics.run)
        if self.resources.policies.pins_containers:
            self.supervisor.add("cpu-manager", self._workers.pinning.run)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run the parts of the supervisor within a block: each that fails is logged, counted and restarted."""
        try:
            async with self.supervisor.running():
                yield
        finally:
            await self._workers.close()

    async def _sync(self, key: Key) -> Result | None:
        stored = self._pods.get(key)
        static = self._statics.get(key) if self._statics is not None else None
        if static is not None:
            await self._mirrors.ensure(static, stored)
        elif stored is not None and annotation(stored, MIRROR):
            await self._mirrors.remove(stored)
        current = self._current(key)
        if current is not None:
            self.pod_metrics.see(current)
        else:
            self.pod_metrics.forget(key)
        wait = await self._workers.sync(key, current)
        return Result(requeue_after=wait) if wait else None

    def _current(self, key: Key) -> Pod | None:
        """A pod as the node runs it. A static pod has the status of its mirror."""
        stored = self._pods.get(key)
        if stored is not None:
            stored["metadata"].pop("managedFields", None)  # Half of the memory that is kept for a pod.
        static = self._statics.get(key) if self._statics is not None else None
        if static is None:
            return None if stored is None or annotation(stored, MIRROR) else of_api(stored)
        is_mirror = stored is not None and annotation(stored, MIRROR) == annotation(static, HASH)
        return {**static, "status": stored.get("status") or {}} if stored is not None and is_mirror else static

    def _api_uid(self, pod: Pod) -> str:
        if not is_static(pod):
            return str(pod["metadata"]["uid"])
        stored = self._pods.get(key_of(pod))
        is_mirror = stored is not None and annotation(stored, MIRROR) == annotation(pod, HASH)
        return str(stored["metadata"]["uid"]) if stored is not None and is_mirror else ""

    async def _images_in_use(self) -> set[str]:
        """The images of containers, and those that were loaded by hand: no registry may have them."""
        used = {image.id for image in await self._images.images() if image.is_loaded}
        for container in await self._runtime.containers():
            used |= {container.config.image, *(mount.image for mount in container.config.mounts if mount.image)}
        return used

    async def _free_images(self) -> int:
        return len(await self._images.collect(await self._images_in_use(), high_percent=0, low_percent=0))

    async def _collect_images(self) -> None:
        while True:
            await self._clock.sleep(_COLLECT_SECONDS)
            try:
                for image in await self._images.collect(await self._images_in_use()):
                    _log.info("removed the unused image %s: the disk is nearly full", image)
            except OSError as error:
                _log.warning("unused images were not removed: %s", error)

    async def _listen(self) -> None:
        events = self._runtime.events()
        for sandbox in await self._runtime.sandboxes():  # Pods that were deleted while no agent ran.
            self.controller.enqueue(Key(sandbox.config.namespace, sandbox.config.name), "found on the node")
        async for event in events:
            with contextlib.suppress(NotThere):
                config = (await self._runtime.sandbox(event.sandbox)).config
                self.controller.enqueue(Key(config.namespace, config.name), "runtime")


def _node_of(settings: AgentSettings, resources: NodeResources) -> AgentNode:
    return AgentNode(
        name=settings.name,
        host_ips=settings.addresses,
        pods=settings.pods,
        allocatable=allocatable_of(settings.capacity, settings.reserved),
        dns_address=dns_address_of(settings.service_network),
        unsafe_sysctls=settings.unsafe_sysctls,
        find_credentials=settings.find_credentials,
        kubelet_directory=str(settings.plugins or ""),
        resources=resources,
    )
