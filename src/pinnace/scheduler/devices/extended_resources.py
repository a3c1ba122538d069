"""The claim for the extended resources of a pod that devices provide: its requests, and which container uses which."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pinnace.model.objects import Object
from pinnace.scheduler.state.pods import Pod
from pinnace.scheduler.state.resources import amount_of

ANNOTATION = "resource.kubernetes.io/extended-resource-claim"
UNNAMED = "<extended-resources>"
"""The name of the claim in messages before it exists. No object can have it."""


@dataclass(frozen=True, slots=True)
class ExtendedClaim:
    """A claim for the extended resources that one node provides by devices."""

    claim: Object
    """As it will be created, without a name."""
    mappings: Sequence[Object]
    """For status.extendedResourceClaimStatus of the pod."""


def is_for(claim: Object, pod: Pod) -> bool:
    """Return whether an earlier attempt has created this claim for the extended resources of a pod."""
    metadata = claim["metadata"]
    if (metadata.get("annotations") or {}).get(ANNOTATION) != "true":
        return False
    owners: Iterable[Object] = metadata.get("ownerReferences") or ()
    return any(one.get("controller") and one.get("uid") == pod.uid for one in owners)


def extended_claim(pod: Pod, classes: Mapping[str, str]) -> ExtendedClaim:
    """Return the claim of a pod for some resources, given with their device classes."""
    requests, mappings = requests_of(pod.object["spec"], classes)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.uid, "controller": True}
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {
            "namespace": pod.namespace,
            "generateName": f"{pod.name}-extended-resources-",
            "ownerReferences": [owner],
            "annotations": {ANNOTATION: "true"},
        },
        "spec": {"devices": {"requests": requests}},
    }
    return ExtendedClaim(claim, mappings)


def requests_of(spec: Object, classes: Mapping[str, str]) -> tuple[list[Object], list[Object]]:
    """Return the device requests of all containers, and which container uses which request for which resource.

    Init containers run before the others, so they use the devices of containers that start later, and the devices of
    each other.
    """
    requests: list[Object] = []
    mappings: list[Object] = []
    for resource in sorted(classes):
        _add_resource(spec, resource, classes[resource], requests, mappings)
    requests.sort(key=lambda one: str(one["name"]))
    return requests, mappings


def _add_resource(spec: Object, resource: str, class_name: str, requests: list[Object], mappings: list[Object]) -> None:
    init = spec.get("initContainers") or []
    containers = [*init, *(spec.get("containers") or ())]
    lasting: list[Object | None] = [None] * len(containers)
    first: list[int] = []
    for index, container in enumerate(containers):
        if index < len(init) and container.get("restartPolicy") != "Always":
            first.append(index)
            continue
        lasting[index], used = _request_of(index, container, resource, class_name, ())
        mappings += used
    largest: Object | None = None
    names: set[str] = set()
    used_first: list[Object] = []
    for index in first:
        request, used = _request_of(index, containers[index], resource, class_name, lasting[index:])
        used_first += used
        if request is not None:
            names.add(request["name"])
            if largest is None or largest["exactly"]["count"] < request["exactly"]["count"]:
                largest = request
    if largest is not None:
        requests.append(largest)
        for one in used_first:
            if one["requestName"] in names:
                one["requestName"] = largest["name"]
    requests += [one for one in lasting if one is not None]
    mappings += used_first


def _request_of(
    index: int, container: Object, resource: str, class_name: str, reusable: Sequence[Object | None]
) -> tuple[Object | None, list[Object]]:
    """Return the request of one container for the devices that it cannot take from `reusable`, and all that it uses."""
    wanted = (container.get("resources") or {}).get("requests") or {}
    count = amount_of(resource, wanted[resource]) if resource in wanted else 0
    if not count:
        return None, []
    used: list[Object] = []
    found = 0
    for other in reusable:
        if other is not None:
            found += other["exactly"]["count"]
            used.append(_mapping(container, resource, other["name"]))
            if found >= count:
                return None, used
    name = f"container-{index}-request-{sorted(wanted).index(resource)}"
    exactly = {"deviceClassName": class_name, "allocationMode": "ExactCount", "count": count - found}
    return {"name": name, "exactly": exactly}, [*used, _mapping(container, resource, name)]


def _mapping(container: Object, resource: str, request: str) -> Object:
    return {"containerName": container["name"], "resourceName": resource, "requestName": request}
