"""The claim for the extended resources of a pod that devices provide: its requests, and which container uses which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

from pinnace.model.typed_objects import (
    Container,
    ContainerExtendedResourceRequest,
    DeviceRequest,
    ExactDeviceRequest,
    ObjectMeta,
    OwnerReference,
    PodSpec,
    ResourceClaim,
    TemplateMeta,
)
from pinnace.scheduler.state.pods import Pod
from pinnace.scheduler.state.resources import amount_of

ANNOTATION = "resource.kubernetes.io/extended-resource-claim"
UNNAMED = "<extended-resources>"
"""The name of the claim in messages before it exists. No object can have it."""


@dataclass(frozen=True, slots=True)
class ExtendedClaim:
    """A claim for the extended resources that one node provides by devices."""

    claim: ResourceClaim
    """As it will be created, without a name."""
    mappings: Sequence[ContainerExtendedResourceRequest]
    """For status.extendedResourceClaimStatus of the pod."""


def is_for(claim: ResourceClaim, pod: Pod) -> bool:
    """Return whether an earlier attempt has created this claim for the extended resources of a pod."""
    metadata = claim["metadata"]
    if (metadata.get("annotations") or {}).get(ANNOTATION) != "true":
        return False
    owners = metadata.get("ownerReferences") or ()
    return any(owner.get("controller") and owner.get("uid") == pod.uid for owner in owners)


def extended_claim(pod: Pod, classes: Mapping[str, str]) -> ExtendedClaim:
    """Return the claim of a pod for some resources, given with their device classes."""
    requests, mappings = requests_of(pod.object["spec"], classes)
    owner: OwnerReference = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid, "controller": True}
    metadata: TemplateMeta = {
        "namespace": pod.namespace,
        "generateName": f"{pod.name}-extended-resources-",
        "ownerReferences": [owner],
        "annotations": {ANNOTATION: "true"},
    }
    claim: ResourceClaim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": cast("ObjectMeta", metadata),  # The server names it.
        "spec": {"devices": {"requests": requests}},
    }
    return ExtendedClaim(claim, mappings)


def requests_of(
    spec: PodSpec, classes: Mapping[str, str]
) -> tuple[list[DeviceRequest], list[ContainerExtendedResourceRequest]]:
    """Return the device requests of all containers, and which container uses which request for which resource.

    Init containers run before the others, so they use the devices of containers that start later, and the devices of
    each other.
    """
    requests: list[DeviceRequest] = []
    mappings: list[ContainerExtendedResourceRequest] = []
    for resource in sorted(classes):
        _add_resource(spec, resource, classes[resource], requests, mappings)
    requests.sort(key=lambda request: str(request["name"]))
    return requests, mappings


def _add_resource(
    spec: PodSpec,
    resource: str,
    class_name: str,
    requests: list[DeviceRequest],
    mappings: list[ContainerExtendedResourceRequest],
) -> None:
    init = spec.get("initContainers") or []
    containers = [*init, *(spec.get("containers") or ())]
    lasting: list[DeviceRequest | None] = [None] * len(containers)
    first: list[int] = []
    for index, container in enumerate(containers):
        if index < len(init) and container.get("restartPolicy") != "Always":
            first.append(index)
            continue
        lasting[index], used = _request_of(index, container, resource, class_name, ())
        mappings += used
    largest: DeviceRequest | None = None
    names: set[str] = set()
    used_first: list[ContainerExtendedResourceRequest] = []
    for index in first:
        request, used = _request_of(index, containers[index], resource, class_name, lasting[index:])
        used_first += used
        if request is not None:
            names.add(request["name"])
            if largest is None or largest["exactly"]["count"] < request["exactly"]["count"]:
                largest = request
    if largest is not None:
        requests.append(largest)
        for use in used_first:
            if use["requestName"] in names:
                use["requestName"] = largest["name"]
    requests += [request for request in lasting if request is not None]
    mappings += used_first


def _request_of(
    index: int, container: Container, resource: str, class_name: str, reusable: Sequence[DeviceRequest | None]
) -> tuple[DeviceRequest | None, list[ContainerExtendedResourceRequest]]:
    """Return the request of one container for the devices that it cannot take from `reusable`, and all that it uses."""
    wanted = (container.get("resources") or {}).get("requests") or {}
    count = amount_of(resource, wanted[resource]) if resource in wanted else 0
    if not count:
        return None, []
    used: list[ContainerExtendedResourceRequest] = []
    granted = 0
    for other in reusable:
        if other is not None:
            granted += other["exactly"]["count"]
            used.append(_mapping(container, resource, other["name"]))
            if granted >= count:
                return None, used
    name = f"container-{index}-request-{sorted(wanted).index(resource)}"
    exactly: ExactDeviceRequest = {
        "deviceClassName": class_name,
        "allocationMode": "ExactCount",
        "count": count - granted,
    }
    return {"name": name, "exactly": exactly}, [*used, _mapping(container, resource, name)]


def _mapping(container: Container, resource: str, request: str) -> ContainerExtendedResourceRequest:
    return {"containerName": container["name"], "resourceName": resource, "requestName": request}
