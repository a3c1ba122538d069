"""The fields of a pod that variables and volumes refer to, and its containers of every kind."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from pinnace.kinds.pods.resource_amounts import is_extended
from pinnace.model import quantity
from pinnace.model.typed_objects import Container, Pod, ResourceFieldSelector
from pinnace.node.errors import ConfigRefused

_subscript = re.compile(r"(labels|annotations)\['([^']+)'\]")


class PodFields:
    """A pod with the addresses that fields refer to, which its status may not have yet."""

    def __init__(
        self,
        pod: Pod,
        *,
        node: str,
        host_ips: Sequence[str],
        pod_ips: Sequence[str],
        allocatable: Mapping[str, str],
    ) -> None:
        self.pod = pod
        self._allocatable = allocatable
        self._fields = {
            "metadata.name": pod["metadata"]["name"],
            "metadata.namespace": pod["metadata"]["namespace"],
            "metadata.uid": pod["metadata"]["uid"],
            "spec.nodeName": node,
            "spec.serviceAccountName": pod["spec"].get("serviceAccountName", ""),
            "status.hostIP": host_ips[0],
            "status.hostIPs": ",".join(host_ips),
            "status.podIP": pod_ips[0] if pod_ips else "",
            "status.podIPs": ",".join(pod_ips),
        }

    def field(self, path: str) -> str:
        """The value of a fieldRef. Labels and annotations are a map as a whole, or one of them by its key."""
        if path in self._fields:
            return str(self._fields[path])
        metadata = self.pod["metadata"]
        subscript = _subscript.fullmatch(path.removeprefix("metadata."))
        maps = {"labels": metadata.get("labels") or {}, "annotations": metadata.get("annotations") or {}}
        if subscript is not None:
            return maps[subscript[1]].get(subscript[2], "")
        if path in ("metadata.labels", "metadata.annotations"):
            entries = maps[path.partition(".")[2]]
            return "\n".join(f'{key}="{_quote(entries[key])}"' for key in sorted(entries))
        raise ConfigRefused(f"fieldPath {path} is not supported")

    @property
    def memory(self) -> str:
        """The memory that pods can have on the node."""
        return self._allocatable.get("memory", "0")

    def resource(self, container: Container, reference: ResourceFieldSelector) -> str:
        """The value of a resourceFieldRef, in units of its divisor. Without a limit it is the node's allocatable."""
        name = reference.get("containerName")
        if name:
            container = next(candidate for candidate in all_containers(self.pod) if candidate["name"] == name)
        kind, _, resource = reference["resource"].partition(".")
        stated = container.get("resources") or {}
        if kind == "limits":
            of_pod = ((self.pod["spec"].get("resources") or {}).get("limits") or {}).get(resource)
            text = (stated.get("limits") or {}).get(resource) or of_pod or self._allocatable.get(resource, "0")
        else:
            text = (stated.get("requests") or {}).get(resource) or "0"
        amount, divisor = quantity.parse(str(text)), quantity.parse(str(reference.get("divisor") or "0"))
        return str((amount.ratio_to(divisor) if divisor else amount).value)


def all_containers(pod: Pod) -> Sequence[Container]:
    spec = pod["spec"]
    return [*(spec.get("initContainers") or ()), *spec["containers"], *(spec.get("ephemeralContainers") or ())]


def _quote(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def has_extended_resources(pod: Pod) -> bool:
    """Return whether a container asks for resources such as devices."""
    return any(
        is_extended(name)
        for container in all_containers(pod)
        for name in (container.get("resources") or {}).get("limits") or ()
    )
