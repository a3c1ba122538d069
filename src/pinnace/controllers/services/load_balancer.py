"""Gives Services of type LoadBalancer an address outside the cluster, through a provider."""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

from pinnace.client.client import Client
from pinnace.client.snapshots import Snapshot
from pinnace.model.load_balancers import LoadBalancerProvider
from pinnace.model.objects import Key, Object
from pinnace.model.typed_objects import LoadBalancerIngress, Node, Service, ServiceSpec
from pinnace.process.backoff import Backoff
from pinnace.reconcile.conditions import is_true
from pinnace.reconcile.controller import Controller
from pinnace.reconcile.events import EventType
from pinnace.reconcile.finalizers import has_finalizer
from pinnace.reconcile.manager import Manager

__all__ = ["LoadBalancerController", "LoadBalancerProvider"]

FINALIZER = "service.kubernetes.io/load-balancer-cleanup"
_COMPONENT = "service-controller"
_EXCLUDED = "node.kubernetes.io/exclude-from-external-load-balancers"
_BALANCED = "balanced"
_RETRIES = Backoff(first=5.0, longest=300.0)
_STATUS = "status"


class LoadBalancerController:
    """One reconcile per Service. The finalizer is added before the provider is called, and removed after deletion."""

    def __init__(self, manager: Manager, client: Client, *, provider: LoadBalancerProvider) -> None:
        self._client = client
        self._recorder = manager.recorder
        self._provider = provider
        self._services = manager.cache(Service)
        self._services.add_index(_BALANCED, _is_balanced)
        self._nodes = manager.cache(Node)
        self._hosts: set[str] = set()
        self._ensured: dict[Key, ServiceSpec] = {}
        self.controller = Controller("service-lb", self._reconcile, workers=2, backoff=_RETRIES)
        self.controller.for_(Service, when=_concerns_balancers)
        manager.informer(Node).on_change(self._node_changed)

    def _node_changed(self, old: Snapshot[Node] | None, new: Snapshot[Node] | None) -> None:
        seen = new or old
        if seen is None:
            return
        is_host = new is not None and _takes_traffic(new.object)
        if is_host is (seen.key.name in self._hosts):
            return
        (self._hosts.add if is_host else self._hosts.discard)(seen.key.name)
        for key in self._services.keys_by_index(_BALANCED, "yes"):
            self.controller.enqueue(key, "nodes")

    async def _reconcile(self, key: Key) -> None:
        service = self._services.get(key)
        if service is None:
            self._ensured.pop(key, None)
            return
        try:
            if not _wants_balancer(service):
                await self._clean_up(key, service)
            elif "deletionTimestamp" not in service["metadata"]:
                await self._ensure(key, service)
        except Exception as error:
            self._tell(service, "Warning", "SyncLoadBalancerFailed", f"Error syncing load balancer: {error}")
            raise

    async def _ensure(self, key: Key, service: Service) -> None:
        is_new = self._ensured.get(key) != service["spec"]
        if is_new:
            self._tell(service, "Normal", "EnsuringLoadBalancer", "Ensuring load balancer")
        if not has_finalizer(service, FINALIZER):
            finalizers = [*(service["metadata"].get("finalizers") or ()), FINALIZER]
            service = await self._patch(key, service, {"metadata": {"finalizers": finalizers}})
        if not self._hosts:
            text = "There are no available nodes for LoadBalancer"
            self._tell(service, "Warning", "UnAvailableLoadBalancer", text)
        nodes = [node for name in sorted(self._hosts) if (node := self._nodes.get(Key("", name))) is not None]
        ingress = list(await self._provider.ensure(cast("Object", service), cast("list[Object]", nodes)))
        self._ensured[key] = service["spec"]
        await self._set_ingress(key, service, ingress)
        if is_new:
            self._tell(service, "Normal", "EnsuredLoadBalancer", "Ensured load balancer")

    async def _clean_up(self, key: Key, service: Service) -> None:
        self._ensured.pop(key, None)
        if not has_finalizer(service, FINALIZER):
            return
        self._tell(service, "Normal", "DeletingLoadBalancer", "Deleting load balancer")
        await self._provider.delete(cast("Object", service))
        service = await self._set_ingress(key, service, [])
        left = [finalizer for finalizer in service["metadata"]["finalizers"] if finalizer != FINALIZER]
        await self._patch(key, service, {"metadata": {"finalizers": left}})
        self._tell(service, "Normal", "DeletedLoadBalancer", "Deleted load balancer")

    async def _set_ingress(self, key: Key, service: Service, ingress: list[Object]) -> Service:
        status = service.get("status") or {}
        present = (status.get("loadBalancer") or {}).get("ingress") or []
        if [_plain(address) for address in present] == ingress:
            return service
        balancer = {"ingress": ingress or None}
        return await self._patch(key, service, {"status": {"loadBalancer": balancer}})

    async def _patch(self, key: Key, service: Service, patch: Object) -> Service:
        """Patch the Service through /status, with its version: a merge patch replaces whole lists."""
        metadata = {**(patch.get("metadata") or {}), "resourceVersion": service["metadata"]["resourceVersion"]}
        patch = {**patch, "metadata": metadata}
        return await self._client.patch(Service, key.name, patch, namespace=key.namespace, subresource=_STATUS)

    def _tell(self, service: Service, type: EventType, reason: str, message: str) -> None:
        self._recorder.record(service, type, reason, message, component=_COMPONENT)


def _wants_balancer(service: Service) -> bool:
    """Whether this controller manages the Service: one with a load balancer class belongs to another controller."""
    spec = service["spec"]
    is_wanted = spec.get("type") == "LoadBalancer" and not spec.get("loadBalancerClass")
    return is_wanted and "deletionTimestamp" not in service["metadata"]


def _is_balanced(service: Service) -> Iterable[str]:
    return ("yes",) if _wants_balancer(service) else ()


def _concerns_balancers(old: Service | None, new: Service | None) -> bool:
    return any(
        snapshot is not None and (_wants_balancer(snapshot) or has_finalizer(snapshot, FINALIZER))
        for snapshot in (old, new)
    )


def _takes_traffic(node: Node) -> bool:
    metadata = node["metadata"]
    if _EXCLUDED in (metadata.get("labels") or {}) or "deletionTimestamp" in metadata:
        return False
    return is_true(node, "Ready")


def _plain(entry: LoadBalancerIngress) -> Object:
    """Return an entry without the server's defaults."""
    return {name: value for name, value in entry.items() if name != "ipMode"}
