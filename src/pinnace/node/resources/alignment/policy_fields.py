"""The fields of a KubeletConfiguration about CPUs, memory and swap, with kubelet's checks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from pinnace.kinds.pods.resource_amounts import HUGE_PAGES
from pinnace.model import quantity
from pinnace.model.objects import Object
from pinnace.model.quantity import InvalidQuantity, Quantity
from pinnace.node.resources.alignment.cpu_manager import STATIC as STATIC_CPUS
from pinnace.node.resources.alignment.machine_topology import parse_cpus
from pinnace.node.resources.alignment.memory_manager import STATIC as STATIC_MEMORY
from pinnace.node.resources.alignment.node_resources import NO_CPUS, NO_MEMORY, ResourcePolicies
from pinnace.node.resources.alignment.swap import LIMITED_SWAP, NO_SWAP, SwapPolicy
from pinnace.node.resources.alignment.topology_manager import (
    CONTAINER_SCOPE,
    NONE,
    POD_SCOPE,
    POLICIES,
    SCOPES,
    TopologyPolicy,
)
from pinnace.schema.configuration.documents import FLAG, TEXT, items, structure

_TEXT_MAP: Object = {"type": "object", "additionalProperties": TEXT}
_AMOUNTS: Object = {"type": "object", "additionalProperties": {"x-kubernetes-int-or-string": True}}
_INTEGER: Object = {"type": "integer", "format": "int32"}
POLICY_TYPES: Mapping[str, Object] = {
    "cpuManagerPolicy": TEXT,
    "cpuManagerPolicyOptions": _TEXT_MAP,
    "cpuManagerReconcilePeriod": TEXT,
    "reservedSystemCPUs": TEXT,
    "memoryManagerPolicy": TEXT,
    "reservedMemory": items(structure(numaNode=_INTEGER, limits=_AMOUNTS)),
    "topologyManagerPolicy": TEXT,
    "topologyManagerPolicyOptions": _TEXT_MAP,
    "topologyManagerScope": TEXT,
    "memorySwap": structure(swapBehavior=TEXT),
    "failSwapOn": FLAG,
}
POLICY_FIELDS = frozenset(POLICY_TYPES)
_DURATION = re.compile(r"(?:(\d{1,4})h)?(?:(\d{1,5})m)?(?:(\d{1,6}(?:\.\d{1,9})?)s)?(?:(\d{1,9})ms)?")
_AMOUNT = re.compile(r"[0-9.]{1,20}[A-Za-z]{0,2}")
_RECONCILE = "10s"


def policies_of(document: Object) -> ResourcePolicies:
    """Return the policies of a configuration that `check_policies` accepts."""
    reserved: dict[int, Mapping[str, str]] = {}
    for reservation in document.get("reservedMemory") or ():
        node = reservation.get("numaNode", 0)
        amounts = {name: str(amount) for name, amount in (reservation.get("limits") or {}).items()}
        reserved[node] = {**reserved.get(node, {}), **amounts}
    topology = TopologyPolicy(
        name=document.get("topologyManagerPolicy") or NONE,
        scope=document.get("topologyManagerScope") or CONTAINER_SCOPE,
        options=document.get("topologyManagerPolicyOptions") or {},
    )
    return ResourcePolicies(
        cpus=document.get("cpuManagerPolicy") or NO_CPUS,
        cpu_options=document.get("cpuManagerPolicyOptions") or {},
        reserved_cpus=document.get("reservedSystemCPUs") or "",
        reconcile_seconds=_seconds(document.get("cpuManagerReconcilePeriod") or _RECONCILE) or 10.0,
        memory=document.get("memoryManagerPolicy") or NO_MEMORY,
        reserved_memory=reserved,
        topology=topology,
        swap=SwapPolicy(behavior=_swap_behavior(document), fails_with_swap=document.get("failSwapOn") or False),
    )


def configuration_of(policies: ResourcePolicies) -> Object:
    """Return policies as a KubeletConfiguration has them."""
    topology = policies.topology
    reserved = [
        {"numaNode": node, "limits": dict(amounts)} for node, amounts in sorted(policies.reserved_memory.items())
    ]
    return {
        "cpuManagerPolicy": policies.cpus,
        **({"cpuManagerPolicyOptions": dict(policies.cpu_options)} if policies.cpu_options else {}),
        "cpuManagerReconcilePeriod": f"{policies.reconcile_seconds:g}s",
        **({"reservedSystemCPUs": policies.reserved_cpus} if policies.reserved_cpus else {}),
        "memoryManagerPolicy": policies.memory,
        **({"reservedMemory": reserved} if reserved else {}),
        "topologyManagerPolicy": topology.name,
        **({"topologyManagerPolicyOptions": dict(topology.options)} if topology.options else {}),
        "topologyManagerScope": topology.scope,
        "memorySwap": {"swapBehavior": policies.swap.behavior} if policies.swap.behavior else {},
        "failSwapOn": policies.swap.fails_with_swap,
    }


def with_reserved_cpus(document: Object, name: str) -> dict[str, str]:
    """Return kubeReserved or systemReserved. The number of reserved CPUs replaces their amounts of CPU."""
    amounts = dict(document.get(name) or {})
    if text := document.get("reservedSystemCPUs"):
        amounts.pop("cpu", None)
        if name == "systemReserved":
            amounts["cpu"] = str(len(parse_cpus(text)))
    return amounts


def check_policies(document: Object) -> Iterator[str]:
    """Yield the errors of kubelet's validation. The machine is not known here."""
    if (policy := document.get("cpuManagerPolicy") or NO_CPUS) not in (NO_CPUS, STATIC_CPUS):
        yield f'unknown policy: "{policy}"'
    if (policy := document.get("memoryManagerPolicy") or NO_MEMORY) not in (NO_MEMORY, STATIC_MEMORY):
        yield f'unknown policy: "{policy}"'
    if (policy := document.get("topologyManagerPolicy") or NONE) not in POLICIES:
        known = " ".join(f'"{name}"' for name in POLICIES)
        yield f'topologyManagerPolicy (--topology-manager-policy) "{policy}" must be one of: [{known}]'
    if (scope := document.get("topologyManagerScope") or CONTAINER_SCOPE) not in SCOPES:
        expected = f'"{CONTAINER_SCOPE}", or "{POD_SCOPE}"'
        yield f'topologyManagerScope (--topology-manager-scope) "{scope}" must be one of: {expected}'
    if (behavior := _swap_behavior(document)) not in ("", NO_SWAP, LIMITED_SWAP):
        yield f'memorySwap.swapBehavior "{behavior}" must be one of: "", "{LIMITED_SWAP}" or "{NO_SWAP}"'
    if not _seconds(document.get("cpuManagerReconcilePeriod") or _RECONCILE):
        yield f'cpuManagerReconcilePeriod "{document["cpuManagerReconcilePeriod"]}" is no duration such as {_RECONCILE}'
    if cpus := document.get("reservedSystemCPUs"):
        yield from _check_reserved_cpus(document, cpus)
    yield from _check_reserved_memory(document)


def _check_reserved_cpus(document: Object, cpus: str) -> Iterator[str]:
    if document.get("systemReservedCgroup") or document.get("kubeReservedCgroup"):
        yield (
            "can't use reservedSystemCPUs (--reserved-cpus) with systemReservedCgroup (--system-reserved-cgroup) or "
            "kubeReservedCgroup (--kube-reserved-cgroup)"
        )
    try:
        parse_cpus(cpus)
    except ValueError as error:
        yield f"unable to parse reservedSystemCPUs (--reserved-cpus) {cpus}, error: {error}"


def _check_reserved_memory(document: Object) -> Iterator[str]:
    seen: set[tuple[int, str]] = set()
    for reservation in document.get("reservedMemory") or ():
        node = reservation.get("numaNode", 0)
        for name, amount in (reservation.get("limits") or {}).items():
            if name != "memory" and not name.startswith(HUGE_PAGES):
                yield (
                    f'the limit type "{name}" for NUMA node {node} is not supported, only '
                    "[memory hugepages-<HugePageSize>] is accepted"
                )
            size = _amount(str(amount))
            if size is None:
                yield f'reservedMemory: "{amount}" is no quantity of {name}'
            elif not size:
                yield f'reserved memory may not be zero for NUMA node {node} and resource "{name}"'
            if (node, name) in seen:
                yield f'the reserved memory has a duplicate value for NUMA node {node} and resource "{name}"'
            seen.add((node, name))


def _amount(text: str) -> Quantity | None:
    try:
        return quantity.parse(text) if _AMOUNT.fullmatch(text) else None
    except InvalidQuantity:
        return None


def _swap_behavior(document: Object) -> str:
    return str((document.get("memorySwap") or {}).get("swapBehavior") or "")


def _seconds(text: str) -> float:
    """Return a duration of Go in seconds; 0 if it is none."""
    match = _DURATION.fullmatch(text)
    if match is None:
        return 0.0
    hours, minutes, seconds, milliseconds = (float(part or 0) for part in match.groups())
    return hours * 3600 + minutes * 60 + seconds + milliseconds / 1000
