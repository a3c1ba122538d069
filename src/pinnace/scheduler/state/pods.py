"""Pods as the scheduler keeps them: a small record each, and all that pods of one template have in common once."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from functools import cached_property
from typing import Any, cast
from weakref import WeakValueDictionary

import orjson

from pinnace.client.snapshots import Snapshot
from pinnace.model.objects import Key
from pinnace.model.typed_objects import Container, ObjectMeta, PodSpec, PodStatus, Volume
from pinnace.model.typed_objects import Pod as PodObject
from pinnace.scheduler.state import resources
from pinnace.scheduler.state.terms import PodTerms, terms_of

HostPort = tuple[str, int, str]
"""Protocol, port and address of a port on the node."""

_SPEC_FIELDS = (
    "nodeSelector",
    "affinity",
    "tolerations",
    "topologySpreadConstraints",
    "priority",
    "preemptionPolicy",
    "schedulerName",
    "overhead",
    "resources",
    "resourceClaims",
    "hostNetwork",
    "hostUsers",
    "schedulingGates",
)
_VOLUMES = (
    "persistentVolumeClaim",
    "ephemeral",
    "image",
    "csi",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "rbd",
    "iscsi",
    "azureDisk",
    "cinder",
)
DISKS = ("gcePersistentDisk", "awsElasticBlockStore", "iscsi", "rbd")
_ANY_ADDRESS = "0.0.0.0"


class Template:
    """The part of pods that decides where they may run. Pods of one template share masks and scores."""

    local_key: LocalKey

    def __init__(self, signature: bytes, pod: PodObject, node_name: str) -> None:
        metadata, spec = pod["metadata"], pod["spec"].copy()
        spec.pop("nodeName", None)
        self.signature = signature
        self.namespace: str = metadata.get("namespace", "")
        self.labels: Mapping[str, str] = metadata.get("labels") or {}
        self.owner = owner_of(metadata)
        self.pod_name: str = metadata.get("name", "")
        """Name and uid of the first pod; those of all pods if they have ephemeral volumes, which belong to one pod."""
        self.pod_uid: str = metadata.get("uid", "")
        self.spec: PodSpec = spec
        self.node_name = node_name
        """The node that a waiting pod names. Pods on nodes share the template of those that wait for any node."""
        self.priority: int = spec.get("priority") or 0
        self.requests = {
            name: amount
            for name, amount in resources.requests_of(pod).items()
            if resources.is_counted(name) and name != "pods"
        }
        self.non_zero = resources.non_zero_requests_of(pod)
        self._pod: PodObject = {"metadata": {"name": ""}, "spec": spec}
        self.cached: dict[Hashable, Any] = {}
        """Values that plug-ins derive from the template alone; the key names the plug-in."""

    @cached_property
    def scored_requests(self) -> dict[str, int]:
        return resources.scored_requests_of(self._pod)

    @cached_property
    def host_ports(self) -> tuple[HostPort, ...]:
        return tuple(host_ports_of(self.spec))

    @cached_property
    def terms(self) -> PodTerms:
        return terms_of(self.namespace, self.labels, self.spec.get("affinity"))

    @cached_property
    def label_key(self) -> tuple[str, tuple[tuple[str, str], ...]]:
        """The identity of the pods that every selector treats alike."""
        return self.namespace, tuple(sorted(self.labels.items()))

    @cached_property
    def claims(self) -> tuple[str, ...]:
        """The names of the claims that the pod names itself."""
        claims = (volume["persistentVolumeClaim"] for volume in self.volumes if volume.get("persistentVolumeClaim"))
        return tuple(claim.get("claimName", "") for claim in claims)

    @cached_property
    def has_disks(self) -> bool:
        """Whether a volume is a disk that only one pod may use."""
        return any(volume.get(kind) for volume in self.volumes for kind in DISKS)

    @cached_property
    def volumes(self) -> list[Volume]:
        """The volumes that matter to the scheduler."""
        return [volume for volume in self.spec.get("volumes") or () if any(volume.get(kind) for kind in _VOLUMES)]

    __hash__ = object.__hash__


class LocalKey:
    """The identity of the templates of one state that differ in namespace, labels and owner alone."""

    __slots__ = ("__weakref__",)


class Pod:
    """One pod. Its template and identity never change; its place does."""

    __slots__ = (
        "created",
        "generation",
        "is_preempted",
        "is_terminating",
        "key",
        "node",
        "nominated_node",
        "slot",
        "source",
        "started",
        "template",
        "uid",
    )

    def __init__(self, template: Template, obj: PodObject) -> None:
        metadata, status = obj["metadata"], obj.get("status") or {}
        self.template = template
        self.uid: str = metadata.get("uid", "") or f"{metadata.get('namespace', '')}/{metadata['name']}"
        self.key = Key(metadata.get("namespace", ""), metadata["name"])
        self.created: str = metadata.get("creationTimestamp") or ""
        self.generation: int = metadata.get("generation") or 0
        self.started: str = status.get("startTime") or ""
        self.is_terminating = bool(metadata.get("deletionTimestamp"))
        self.is_preempted = self.is_terminating and is_preemption_target(status)
        self.node: str = obj["spec"].get("nodeName") or ""
        self.nominated_node: str = status.get("nominatedNodeName") or ""
        self.slot = -1
        self.source: PodObject | Snapshot[PodObject] | None = None
        """The pod as the server sent it, for pods that wait. Decoded pods would take ten times the memory."""

    @property
    def object(self) -> PodObject:
        """The whole pod, decoded. Of a pod on a node only the part that its template has."""
        if isinstance(self.source, Snapshot):
            return self.source.object
        labels = cast("dict[str, str]", self.labels)
        metadata: ObjectMeta = {
            "namespace": self.key.namespace,
            "name": self.key.name,
            "uid": self.uid,
            "labels": labels,
        }
        return self.source or {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": self.template.spec}

    @property
    def namespace(self) -> str:
        return self.key.namespace

    @property
    def name(self) -> str:
        return self.key.name

    @property
    def labels(self) -> Mapping[str, str]:
        return self.template.labels

    @property
    def priority(self) -> int:
        return self.template.priority

    @property
    def requests(self) -> Mapping[str, int]:
        return self.template.requests

    @property
    def spec(self) -> PodSpec:
        """The spec of the first pod of the template: equal in all that the scheduler reads."""
        return self.template.spec

    def __repr__(self) -> str:
        return f"Pod({self.key}{f' on {self.node}' if self.node else ''})"


class Templates:
    """The templates of the pods that exist now."""

    def __init__(self) -> None:
        self._by_signature: WeakValueDictionary[bytes, Template] = WeakValueDictionary()
        self._local_keys: WeakValueDictionary[bytes, LocalKey] = WeakValueDictionary()

    def of(self, pod: PodObject, *, names_node: bool = False) -> Template:
        """Return the template of a pod; `names_node` makes spec.nodeName a part of it."""
        name: str = (pod["spec"].get("nodeName") or "") if names_node else ""
        signature = sign(pod) + name.encode()
        known = self._by_signature.get(signature)
        if known is None:
            known = self._by_signature[signature] = Template(signature, pod, name)
            local = sign_local(known)
            known.local_key = self._local_keys.get(local) or self._local_keys.setdefault(local, LocalKey())
        return known

    def pod(self, obj: PodObject, *, names_node: bool = False) -> Pod:
        return Pod(self.of(obj, names_node=names_node), obj)


def sign(pod: PodObject) -> bytes:
    """Return bytes that are equal for pods of one template."""
    metadata, spec = pod["metadata"], pod["spec"]
    parts: list[object] = [metadata.get("namespace"), metadata.get("labels"), owner_of(metadata)]
    parts += [spec.get(name) for name in _SPEC_FIELDS]
    for containers in (spec.get("initContainers"), spec.get("containers")):
        parts.append([_sign_container(container) for container in containers or ()])
    volumes = [volume for volume in spec.get("volumes") or () if any(kind in volume for kind in _VOLUMES)]
    parts.append(volumes)
    if volumes and any("ephemeral" in volume for volume in volumes):
        parts += [metadata.get("name"), metadata.get("uid")]
    status = pod.get("status")
    if status and ("containerStatuses" in status or "resources" in status) and resources.has_status_resources(pod):
        parts.append(resources.requests_of(pod))
    return orjson.dumps(parts)


def sign_local(template: Template) -> bytes:
    """Return bytes that are equal for templates that differ in namespace, labels and owner alone."""
    spec = template.spec
    parts: list[object] = [template.node_name, template.requests, template.volumes]
    parts += [spec.get(name) for name in _SPEC_FIELDS]
    for containers in (spec.get("initContainers"), spec.get("containers")):
        parts.append([_sign_container(container) for container in containers or ()])
    return orjson.dumps(parts)


def _sign_container(container: Container) -> tuple[object, ...]:
    ports = container.get("ports")
    return (
        container.get("image"),
        container.get("resources"),
        container.get("restartPolicy"),
        container.get("restartPolicyRules"),
        [port for port in ports if port.get("hostPort")] if ports else None,
    )


def owner_of(metadata: ObjectMeta) -> tuple[str, str, str] | None:
    """Return apiVersion, kind and name of the controller."""
    for owner in metadata.get("ownerReferences") or ():
        if owner.get("controller"):
            return owner.get("apiVersion", ""), owner.get("kind", ""), owner.get("name", "")
    return None


def host_ports_of(spec: PodSpec) -> list[HostPort]:
    """Return the ports that a pod takes of its node, while it runs."""
    running = [
        container for container in spec.get("initContainers") or () if container.get("restartPolicy") == "Always"
    ]
    return [
        (port.get("protocol") or "TCP", port["hostPort"], port.get("hostIP") or _ANY_ADDRESS)
        for container in (*running, *(spec.get("containers") or ()))
        for port in container.get("ports") or ()
        if (port.get("hostPort") or 0) > 0
    ]


def is_preemption_target(status: PodStatus) -> bool:
    conditions = status.get("conditions") or ()
    condition = next((condition for condition in conditions if condition.get("type") == "DisruptionTarget"), None)
    return (
        condition is not None
        and condition.get("status") == "True"
        and condition.get("reason") == "PreemptionByScheduler"
    )
