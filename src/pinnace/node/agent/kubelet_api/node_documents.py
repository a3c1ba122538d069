"""The documents of kubelet's API about a node: its pods, those that run, and its configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from pinnace.kinds.services.service_range import dns_address_of
from pinnace.model.objects import Object
from pinnace.model.typed_objects import (
    Container,
    ObjectMeta,
    Pod,
)
from pinnace.node.agent.settings import AgentSettings
from pinnace.node.pressure.signals import parse_thresholds
from pinnace.node.resources.alignment.policy_fields import configuration_of
from pinnace.node.runtime.runtime import ContainerState, Runtime, SandboxStatus


class NodeDocuments:
    """The pages /pods, /runningpods and /configz."""

    def __init__(self, settings: AgentSettings, runtime: Runtime, pods: Callable[[], Sequence[Pod]]) -> None:
        """`pods` returns the pods that are bound to the node, with their statuses."""
        self._settings = settings
        self._runtime = runtime
        self._pods = pods

    async def pods(self) -> Object:
        """Return all pods of the node, static pods included."""
        return _pod_list([{name: value for name, value in pod.items() if name in _PARTS} for pod in self._pods()])

    async def running_pods(self) -> Object:
        """Return the pods that have a running container, as the runtime knows them: names and images."""
        pods = [await self._running(sandbox) for sandbox in await self._runtime.sandboxes()]
        return _pod_list([pod for pod in pods if pod["spec"]["containers"]])

    async def configuration(self) -> Object:
        """Return the settings of the agent under kubelet's names."""
        settings = self._settings
        thresholds = parse_thresholds(settings.eviction_hard)
        configuration = {
            "enableServer": True,
            "staticPodPath": str(settings.manifests or ""),
            "address": settings.address,
            "port": settings.port,
            "rotateCertificates": True,
            "authentication": {
                "x509": {"clientCAFile": str(settings.directory / "pki" / "ca.crt")},
                "webhook": {"enabled": True, "cacheTTL": "2m0s"},
                "anonymous": {"enabled": False},
            },
            "authorization": {
                "mode": "Webhook",
                "webhook": {"cacheAuthorizedTTL": "5m0s", "cacheUnauthorizedTTL": "30s"},
            },
            "clusterDomain": "cluster.local",
            "clusterDNS": [dns_address_of(settings.service_network)],
            "nodeLeaseDurationSeconds": 40,
            "maxPods": int(settings.capacity.get("pods", "0")),
            "podCIDR": next(iter(settings.pod_cidrs), ""),
            "cgroupDriver": "cgroupfs",
            "evictionHard": {threshold.signal: threshold.text for threshold in thresholds},
            "allowedUnsafeSysctls": list(settings.unsafe_sysctls),
            "registerWithTaints": [dict(taint) for taint in settings.taints],
            "systemReserved": dict(settings.reserved),
            **configuration_of(settings.policies),
            "enableSystemLogHandler": False,
            "enableSystemLogQuery": False,
            "kind": "KubeletConfiguration",
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
        }
        return {"kubeletconfig": configuration}

    async def _running(self, sandbox: SandboxStatus) -> Pod:
        config = sandbox.config
        containers: list[Container] = [
            {"name": container.config.name, "image": container.config.image, "resources": {}}
            for container in await self._runtime.containers(sandbox.id)
            if container.state is ContainerState.RUNNING
        ]
        metadata: ObjectMeta = {"name": config.name, "namespace": config.namespace, "uid": config.uid}
        return {"metadata": metadata, "spec": {"containers": containers}, "status": {}}


_PARTS = ("metadata", "spec", "status")
"""The items of a list have no kind and apiVersion."""


def _pod_list(items: Sequence[Mapping[str, object]]) -> Object:
    return {"kind": "PodList", "apiVersion": "v1", "metadata": {}, "items": list(items)}
