"""Whether a node takes a pod that is bound to it, and why it ends one. The reasons and messages are kubelet's."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from pinnace.kinds.pods.declared_features import needed_to_run
from pinnace.kinds.pods.placement import Constraints
from pinnace.kinds.pods.resource_amounts import qos_class, total_of
from pinnace.model import quantity
from pinnace.model.quantity import Quantity
from pinnace.model.typed_objects import Node, Pod, PodSecurityContext, PodSpec, SecurityContext

MEMORY_PRESSURE = "MemoryPressure"
_MILLI = "cpu"
_OS_LABEL = "kubernetes.io/os"
_SAFE_SYSCTLS = {
    "kernel.shm_rmid_forced",
    *(
        f"net.ipv4.{name}"
        for name in (
            *("ip_local_port_range", "ip_local_reserved_ports", "ip_unprivileged_port_start", "ping_group_range"),
            *("tcp_fin_timeout", "tcp_keepalive_intvl", "tcp_keepalive_probes", "tcp_keepalive_time"),
            *("tcp_notsent_lowat", "tcp_rmem", "tcp_slow_start_after_idle", "tcp_syncookies", "tcp_wmem"),
        )
    ),
}
_SYSCTL_NAMESPACES = {
    "ipc": ("hostIPC", ("kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue.")),
    "net": ("hostNetwork", ("net.",)),
}
"""By namespace: the field with which a pod has that of the node, and the names of sysctls that belong to it."""
_ALL_ADDRESSES = ("", "0.0.0.0")


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a pod may not run, or may not have more resources, here."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class PodFailure:
    """Why the node ends a pod: the reason and message of its status."""

    reason: str
    message: str
    is_disruption: bool = False
    """Whether the pod gets the condition DisruptionTarget: it did nothing wrong itself."""
    grace_seconds: float | None = None
    """None for the grace period of the pod."""


def check_pod(
    pod: Pod, *, pressures: Sequence[str] = (), is_static: bool = False, unsafe_sysctls: Sequence[str] = ()
) -> Rejection | None:
    """Check a new pod for itself, before it gets resources.

    `pressures` are conditions of the node. `unsafe_sysctls` are allowed beside the safe ones; `net.*` allows many.
    """
    spec = pod["spec"]
    os_name = (spec.get("os") or {}).get("name", "linux")
    if (spec.get("nodeSelector") or {}).get(_OS_LABEL, "linux") != "linux":
        return Rejection(
            "PodOSSelectorNodeLabelDoesNotMatch",
            f"Failed to admit pod as the `{_OS_LABEL}` label doesn't match node label",
        )
    if os_name != "linux":
        return Rejection("PodOSNotSupported", "Failed to admit pod as the OS field doesn't match node OS")
    if rejection := _check_sysctls(spec, unsafe_sysctls):
        return rejection
    return None if is_static else _check_pressure(spec, pressures)


def check_predicates(
    pod: Pod, others: Sequence[Pod], node: Node, allocatable: Mapping[str, str], *, is_static: bool = False
) -> Rejection | None:
    """Check a new pod against its node and the pods that were admitted before it."""
    return (
        check_resources(pod, others, allocatable)
        or _check_labels(pod, node)
        or _check_ports(pod, others)
        or (None if is_static else _check_taints(pod, node))
    )


def check_features(pod: Pod, features: Sequence[str] | None) -> Rejection | None:
    """Check that the node has what the pod needs. `features` are those that it declares; None if it declares none."""
    missing = [] if features is None else [name for name in needed_to_run(pod["spec"]) if name not in features]
    if not missing:
        return None
    text = f"Pod requires node features that are not available: {', '.join(missing)}"
    return Rejection("PodFeatureUnsupported", text)


def _check_sysctls(spec: PodSpec, unsafe: Sequence[str]) -> Rejection | None:
    """Only sysctls that belong to the pod's own namespaces and cannot harm others are allowed."""
    for sysctl in (spec.get("securityContext") or {}).get("sysctls") or ():
        name = sysctl["name"].replace("/", ".")
        if name not in _SAFE_SYSCTLS and not any(fnmatchcase(name, pattern) for pattern in unsafe):
            return Rejection("SysctlForbidden", f'forbidden sysctl: "{name}" not allowlisted')
        for namespace, (field, prefixes) in _SYSCTL_NAMESPACES.items():
            if spec.get(field) and name.startswith(prefixes):
                text = f'forbidden sysctl: "{name}" not allowed with host {namespace} enabled'
                return Rejection("SysctlForbidden", text)
    return None


def check_resources(pod: Pod, others: Sequence[Pod], allocatable: Mapping[str, str]) -> Rejection | None:
    """Check that the requests of a pod and of the others fit the node."""
    most = quantity.parse(allocatable.get("pods", "0")).value
    if len(others) + 1 > most:
        return _out_of("pods", 1, len(others), most)
    used: dict[str, Quantity] = {}
    for other in others:
        for name, amount in requests_of(other).items():
            used[name] = used[name] + amount if name in used else amount
    for name, amount in requests_of(pod).items():
        if not amount or (name not in allocatable and _is_extended(name)):
            continue  # Resources that the node does not know belong to the cluster, or to devices.
        capacity = quantity.parse(allocatable.get(name, "0"))
        if used.get(name, quantity.ZERO) + amount > capacity:
            return _out_of(
                name, _whole(name, amount), _whole(name, used.get(name, quantity.ZERO)), _whole(name, capacity)
            )
    return None


def requests_of(pod: Pod) -> dict[str, Quantity]:
    """The requests of a pod with its overhead. Pod-level requests replace the sums of the containers."""
    return total_of(pod["spec"], "requests")


def _out_of(name: str, requested: int, used: int, capacity: int) -> Rejection:
    return Rejection(
        f"OutOf{name}",
        f"Node didn't have enough resource: {name}, requested: {requested}, used: {used}, capacity: {capacity}",
    )


def _is_extended(name: str) -> bool:
    domain, slash, _ = name.partition("/")
    return bool(slash) and not domain.endswith("kubernetes.io")


def _whole(name: str, amount: Quantity) -> int:
    return amount.milli_value if name == _MILLI else amount.value


def _check_pressure(spec: PodSpec, pressures: Sequence[str]) -> Rejection | None:
    """Under memory pressure alone, pods that requested some are admitted."""
    if not pressures or (spec.get("priority") or 0) >= 2_000_000_000:
        return None
    if list(pressures) == [MEMORY_PRESSURE] and qos_class(spec) != "BestEffort":
        return None
    return Rejection("Evicted", f"The node had condition: [{' '.join(pressures)}]. ")


def _check_labels(pod: Pod, node: Node) -> Rejection | None:
    if Constraints(pod["spec"]).matches_labels(node["metadata"]["name"], node["metadata"].get("labels") or {}):
        return None
    return Rejection("NodeAffinity", "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector")


def _check_ports(pod: Pod, others: Iterable[Pod]) -> Rejection | None:
    taken = [port for other in others for port in _host_ports(other)]
    for protocol, address, port in _host_ports(pod):
        for other_protocol, other_address, other_port in taken:
            meet = address == other_address or address in _ALL_ADDRESSES or other_address in _ALL_ADDRESSES
            if meet and (protocol, port) == (other_protocol, other_port):
                return Rejection(
                    "NodePorts",
                    "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports",
                )
    return None


def _host_ports(pod: Pod) -> list[tuple[str, str, int]]:
    return [
        (port.get("protocol", "TCP"), port.get("hostIP", ""), port["hostPort"])
        for container in pod["spec"]["containers"]
        for port in container.get("ports") or ()
        if port.get("hostPort")
    ]


def _check_taints(pod: Pod, node: Node) -> Rejection | None:
    if Constraints(pod["spec"]).tolerates((node.get("spec") or {}).get("taints") or (), ("NoExecute",)):
        return None
    return Rejection(
        "TaintToleration", "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate"
    )


def check_apparmor(pod: Pod, loaded: Collection[str] | None) -> Rejection | None:
    """Check that the node can confine a pod with the AppArmor profiles that it names.

    Accept only profiles that are loaded: `loaded` is None on a machine without AppArmor.
    """
    contexts = _security_contexts(pod)
    for profile in (context["appArmorProfile"] for context in contexts if context.get("appArmorProfile")):
        name = profile.get("localhostProfile", "")
        if profile["type"] == "Unconfined":
            continue
        if loaded is None:
            return Rejection("AppArmor", "Cannot enforce AppArmor: AppArmor is not enabled on the host")
        if profile["type"] == "RuntimeDefault":
            return Rejection("AppArmor", "Cannot enforce AppArmor: this node has no default profile")
        if name not in loaded:
            return Rejection("AppArmor", f'Cannot enforce AppArmor: profile "{name}" is not loaded')
    return None


def check_selinux(pod: Pod, *, is_enabled: bool) -> Rejection | None:
    """Refuse SELinux options where they would count: this node sets no labels. Elsewhere they mean nothing."""
    if is_enabled and any(context.get("seLinuxOptions") for context in _security_contexts(pod)):
        return Rejection("SELinux", "Cannot enforce SELinux: this node sets no SELinux labels")
    return None


def has_selinux() -> bool:
    return Path("/sys/fs/selinux/enforce").exists()


def _security_contexts(pod: Pod) -> list[PodSecurityContext | SecurityContext]:
    """Return the security contexts of a pod and of its containers."""
    spec = pod["spec"]
    containers = [*(spec.get("initContainers") or ()), *spec["containers"]]
    contexts = [spec.get("securityContext"), *(container.get("securityContext") for container in containers)]
    return [context for context in contexts if context]


def loaded_apparmor_profiles() -> Collection[str] | None:
    """The AppArmor profiles of this machine; None if it has no AppArmor."""
    try:
        if not Path("/sys/module/apparmor/parameters/enabled").read_text().startswith("Y"):
            return None
        lines = Path("/sys/kernel/security/apparmor/profiles").read_text().splitlines()
    except OSError:
        return None
    return {line.rpartition(" (")[0] for line in lines}
