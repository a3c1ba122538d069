"""What is wrong with the containers of a pod: ordinary, init and ephemeral ones."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from pinnace.kinds.pods.probes import lifecycle_faults, probe_faults
from pinnace.kinds.pods.references import env_faults, env_from_faults
from pinnace.kinds.pods.resource_amounts import container_resource_faults
from pinnace.kinds.pods.security import container_security_faults
from pinnace.kinds.validation.field_lists import dns_label, no_backsteps, port_name, relative_path_faults
from pinnace.model.field_errors import (
    Cause,
    duplicate,
    forbidden,
    invalid,
    not_found,
    not_supported,
    required,
    too_many,
)
from pinnace.model.objects import Object

PULL_POLICIES = ("Always", "IfNotPresent", "Never")
PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_PROPAGATIONS = ("Bidirectional", "HostToContainer", "None")
_WHITESPACE = "must not have leading or trailing whitespace"
_NOT_FOR_EPHEMERAL = (
    "ports",
    "resources",
    "resizePolicy",
    "restartPolicy",
    "restartPolicyRules",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
)
# Most containers have none of these, and one look tells.
_RARE_FIELDS = frozenset({"envFrom", "volumeDevices", "resizePolicy"})
_LIVENESS_FIELDS = frozenset({"lifecycle", *PROBES})
_RARE_MOUNT_FIELDS = frozenset({"subPath", "subPathExpr", "mountPropagation", "recursiveReadOnly"})


class Surroundings(NamedTuple):
    """What the rest of the pod's spec means for its containers."""

    volumes: Mapping[str, Object]
    claims: Collection[str]
    restart_policy: str
    grace_period: int
    host_users: bool


def containers_faults(containers: list[Object], around: Surroundings, path: str, faults: list[Cause]) -> None:
    if not containers:
        faults.append(required(path))
        return
    seen: set[str] = set()
    for index, container in enumerate(containers):
        where = f"{path}[{index}]"
        _container_faults(container, around, where, faults)
        name = container.get("name", "")
        if name in seen:
            faults.append(duplicate(f"{where}.name", name))
        seen.add(name)
        if not _LIVENESS_FIELDS.isdisjoint(container):
            _liveness_faults(container, around, where, faults)
        if "restartPolicy" in container or "restartPolicyRules" in container:
            _restart_policy_faults(container, where, faults)
    _host_port_conflicts(containers, path, faults)


def init_containers_faults(
    containers: list[Object], ordinary: list[Object], around: Surroundings, path: str, faults: list[Cause]
) -> None:
    seen = {container.get("name", "") for container in ordinary}
    for index, container in enumerate(containers):
        where = f"{path}[{index}]"
        _container_faults(container, around, where, faults)
        is_sidecar = container.get("restartPolicy") == "Always"
        if "restartPolicy" in container:
            _restart_policy_faults(container, where, faults)
        elif container.get("restartPolicyRules"):
            detail = "must specify restartPolicy when restart rules are used"
            faults.append(required(f"{where}.restartPolicy", detail))
        name = container.get("name", "")
        if name in seen:
            faults.append(duplicate(f"{where}.name", name))
        elif name:
            seen.add(name)
        _host_port_conflicts([container], path, faults)
        if is_sidecar:
            _liveness_faults(container, around, where, faults)
        else:
            for field in ("lifecycle", *PROBES):
                if field in container:
                    detail = "may not be set for init containers without restartPolicy=Always"
                    faults.append(forbidden(f"{where}.{field}", detail))
            for position, policy in enumerate(container.get("resizePolicy", ())):
                if policy.get("restartPolicy") == "RestartContainer":
                    detail = "must not be set to 'RestartContainer' for non-sidecar initContainers"
                    at = f"{where}.resizePolicy[{position}].restartPolicy"
                    faults.append(invalid(at, "RestartContainer", detail))


def ephemeral_containers_faults(
    containers: list[Object], others: list[Object], around: Surroundings, path: str, faults: list[Cause]
) -> None:
    targets = {container.get("name", "") for container in others}
    seen = set(targets)
    for index, container in enumerate(containers):
        where = f"{path}[{index}]"
        _container_faults(container, around, where, faults)
        image_space_faults(container, where, faults)
        name, target = container.get("name", ""), container.get("targetContainerName", "")
        if name in seen:
            faults.append(duplicate(f"{where}.name", name))
        seen.add(name)
        if target and target not in targets:
            faults.append(not_found(f"{where}.targetContainerName", target))
        for field in _NOT_FOR_EPHEMERAL:
            if container.get(field) or (field in container and field != "resources"):
                faults.append(forbidden(f"{where}.{field}", "cannot be set for an Ephemeral Container"))
        for position, mount in enumerate(container.get("volumeMounts", ())):
            for field in ("subPath", "subPathExpr"):
                if mount.get(field):
                    at = f"{where}.volumeMounts[{position}].{field}"
                    faults.append(forbidden(at, "cannot be set for an Ephemeral Container"))


def image_space_faults(container: Object, path: str, faults: list[Cause]) -> None:
    """Pods only: a template may still be completed by something that trims."""
    image = container.get("image", "")
    if image != image.strip():
        faults.append(invalid(f"{path}.image", image, _WHITESPACE))


def _container_faults(container: Object, around: Surroundings, path: str, faults: list[Cause]) -> None:
    name = container.get("name", "")
    if not name:
        faults.append(required(f"{path}.name"))
    elif wrong := dns_label(name):
        faults.extend(invalid(f"{path}.name", name, fault) for fault in wrong)
    if not container.get("image"):
        faults.append(required(f"{path}.image"))
    policy = container.get("terminationMessagePolicy", "")
    if policy not in ("File", "FallbackToLogsOnError"):
        supported = ["File", "FallbackToLogsOnError"]
        faults.append(not_supported(f"{path}.terminationMessagePolicy", policy, supported))
    if "ports" in container:
        _port_faults(container["ports"], f"{path}.ports", faults)
    if "env" in container:
        env_faults(container["env"], f"{path}.env", faults)
    if "volumeMounts" in container:
        _mount_faults(container, around.volumes, f"{path}.volumeMounts", faults)
    if not _RARE_FIELDS.isdisjoint(container):
        _rare_faults(container, around, path, faults)
    pull = container.get("imagePullPolicy", "")
    if pull not in PULL_POLICIES:
        faults.append(not_supported(f"{path}.imagePullPolicy", pull, PULL_POLICIES))
    if resources := container.get("resources"):
        container_resource_faults(resources, f"{path}.resources", faults, around.claims)
    if security := container.get("securityContext"):
        container_security_faults(security, f"{path}.securityContext", faults, has_host_users=around.host_users)


def _rare_faults(container: Object, around: Surroundings, path: str, faults: list[Cause]) -> None:
    if "envFrom" in container:
        env_from_faults(container["envFrom"], f"{path}.envFrom", faults)
    if devices := container.get("volumeDevices"):
        mounts = container.get("volumeMounts") or []
        _device_faults(devices, mounts, around.volumes, f"{path}.volumeDevices", faults)
    if "resizePolicy" in container:
        _resize_policy_faults(container["resizePolicy"], around.restart_policy, f"{path}.resizePolicy", faults)


def _liveness_faults(container: Object, around: Surroundings, path: str, faults: list[Cause]) -> None:
    if "lifecycle" in container:
        lifecycle_faults(container["lifecycle"], around.grace_period, f"{path}.lifecycle", faults)
    for name in PROBES:
        probe = container.get(name)
        if probe is not None:
            probe_faults(probe, name, f"{path}.{name}", faults)


def _port_faults(ports: list[Object], path: str, faults: list[Cause]) -> None:
    seen: set[str] = set()
    for index, port in enumerate(ports):
        name = port.get("name", "")
        if name:
            if wrong := port_name(name):
                faults.extend(invalid(f"{path}[{index}].name", name, fault) for fault in wrong)
            elif name in seen:
                faults.append(duplicate(f"{path}[{index}].name", name))
            seen.add(name)
        number = port.get("containerPort", 0)
        if not number:
            faults.append(required(f"{path}[{index}].containerPort"))
        elif not 1 <= number <= 65535:
            detail = "must be between 1 and 65535, inclusive"
            faults.append(invalid(f"{path}[{index}].containerPort", number, detail))
        host_port = port.get("hostPort", 0)
        if host_port and not 1 <= host_port <= 65535:
            detail = "must be between 1 and 65535, inclusive"
            faults.append(invalid(f"{path}[{index}].hostPort", host_port, detail))
        if port.get("protocol", "") not in _PROTOCOLS:
            faults.append(not_supported(f"{path}[{index}].protocol", port.get("protocol", ""), _PROTOCOLS))


def _host_port_conflicts(containers: list[Object], path: str, faults: list[Cause]) -> None:
    seen: set[str] = set()
    for index, container in enumerate(containers):
        for position, port in enumerate(container["ports"]) if "ports" in container else ():
            if "hostPort" in port and (number := port["hostPort"]):
                address = f"{port.get('protocol', '')}/{port.get('hostIP', '')}/{number}"
                if address in seen:
                    faults.append(duplicate(f"{path}[{index}].ports[{position}].hostPort", address))
                seen.add(address)


def _mount_faults(container: Object, volumes: Mapping[str, Object], path: str, faults: list[Cause]) -> None:
    devices = {}
    if "volumeDevices" in container:
        devices = {device.get("name", ""): device.get("devicePath", "") for device in container["volumeDevices"]}
    seen: set[str] = set()
    for index, mount in enumerate(container["volumeMounts"]):
        name, target = mount.get("name", ""), mount.get("mountPath", "")
        if not name:
            faults.append(required(f"{path}[{index}].name"))
        if name not in volumes:
            faults.append(not_found(f"{path}[{index}].name", name))
        if not target:
            faults.append(required(f"{path}[{index}].mountPath"))
        if target in seen:
            faults.append(invalid(f"{path}[{index}].mountPath", target, "must be unique"))
        seen.add(target)
        if devices:
            if name in devices:
                faults.append(invalid(f"{path}[{index}].name", name, "must not already exist in volumeDevices"))
            if target in devices.values():
                detail = "must not already exist as a path in volumeDevices"
                faults.append(invalid(f"{path}[{index}].mountPath", target, detail))
        if not _RARE_MOUNT_FIELDS.isdisjoint(mount):
            _mount_detail_faults(mount, container, path, f"{path}[{index}]", faults)


def _mount_detail_faults(mount: Object, container: Object, path: str, where: str, faults: list[Cause]) -> None:
    # Kubernetes names the list, not the mount, in most of these.
    sub_path, expression = mount.get("subPath", ""), mount.get("subPathExpr", "")
    if sub_path:
        relative_path_faults(sub_path, f"{path}.subPath", faults)
    if expression:
        if sub_path:
            detail = "subPathExpr and subPath are mutually exclusive"
            faults.append(invalid(f"{where}.subPathExpr", expression, detail))
        relative_path_faults(expression, f"{path}.subPathExpr", faults)
    propagation = mount.get("mountPropagation")
    if propagation is not None:
        if propagation not in _PROPAGATIONS:
            faults.append(not_supported(f"{path}.mountPropagation", propagation, _PROPAGATIONS))
        if propagation == "Bidirectional" and not container.get("securityContext", {}).get("privileged"):
            detail = "Bidirectional mount propagation is available only to privileged containers"
            faults.append(forbidden(f"{path}.mountPropagation", detail))
    recursion = mount.get("recursiveReadOnly")
    if recursion in ("Enabled", "IfPossible"):
        if not mount.get("readOnly"):
            faults.append(forbidden(f"{path}.recursiveReadOnly", "may only be specified when readOnly is true"))
        if propagation not in (None, "None"):
            detail = "may only be specified when mountPropagation is None or not specified"
            faults.append(forbidden(f"{path}.recursiveReadOnly", detail))
    elif recursion not in (None, "Disabled"):
        supported = ["Disabled", "Enabled", "IfPossible"]
        faults.append(not_supported(f"{path}.recursiveReadOnly", recursion, supported))


def _device_faults(
    devices: list[Object], mounts: list[Object], volumes: Mapping[str, Object], path: str, faults: list[Cause]
) -> None:
    mounted = {mount.get("name", ""): mount.get("mountPath", "") for mount in mounts}
    names: set[str] = set()
    paths: set[str] = set()
    for index, device in enumerate(devices):
        where = f"{path}[{index}]"
        name, target = device.get("name", ""), device.get("devicePath", "")
        if not name:
            faults.append(required(f"{where}.name"))
        if name in names:
            faults.append(invalid(f"{where}.name", name, "must be unique"))
        if name not in volumes:
            faults.append(not_found(f"{where}.name", name))
        elif "persistentVolumeClaim" not in volumes[name] and "ephemeral" not in volumes[name]:
            detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
            faults.append(invalid(f"{where}.name", name, detail))
        if not target:
            faults.append(required(f"{where}.devicePath"))
        if target in paths:
            faults.append(invalid(f"{where}.devicePath", target, "must be unique"))
        steps: list[Cause] = []
        no_backsteps(target, where, steps)
        if steps:
            faults.append(invalid(f"{where}.devicePath", target, "can not contain backsteps ('..')"))
        else:
            paths.add(target)
        if name in mounted:
            faults.append(invalid(f"{where}.name", name, "must not already exist in volumeMounts"))
        if target in mounted.values():
            detail = "must not already exist as a path in volumeMounts"
            faults.append(invalid(f"{where}.devicePath", target, detail))
        if name:
            names.add(name)


def _resize_policy_faults(policies: list[Object], restart_policy: str, path: str, faults: list[Cause]) -> None:
    seen: set[str] = set()
    for index, policy in enumerate(policies):
        resource, restart = policy.get("resourceName", ""), policy.get("restartPolicy", "")
        if resource in seen:
            faults.append(duplicate(f"{path}[{index}]", resource))
        seen.add(resource)
        for value, supported in ((resource, ("cpu", "memory")), (restart, ("NotRequired", "RestartContainer"))):
            if not value:
                faults.append(required(path))
            elif value not in supported:
                faults.append(not_supported(path, value, supported))
        if restart_policy == "Never" and restart != "NotRequired":
            detail = "must be 'NotRequired' when pod `restartPolicy` is 'Never'"
            faults.append(invalid(path, restart, detail))


def _restart_policy_faults(container: Object, path: str, faults: list[Cause]) -> None:
    policy, rules = container.get("restartPolicy"), container.get("restartPolicyRules") or []
    if policy is None:
        if not rules:
            return
        faults.append(required(f"{path}.restartPolicy", "must specify restartPolicy when restart rules are used"))
    elif policy not in ("Always", "Never", "OnFailure"):
        faults.append(not_supported(f"{path}.restartPolicy", policy, ["Always", "Never", "OnFailure"]))
    if len(rules) > 20:
        faults.append(too_many(f"{path}.restartPolicyRules", len(rules), 20))
    for index, rule in enumerate(rules):
        where = f"{path}.restartPolicyRules[{index}]"
        if rule.get("action", "") not in ("Restart", "RestartAllContainers"):
            faults.append(not_supported(f"{where}.action", rule.get("action", ""), ["Restart", "RestartAllContainers"]))
        codes = rule.get("exitCodes")
        if codes is None:
            faults.append(required(f"{where}.exitCodes", "must be specified"))
            continue
        if codes.get("operator", "") not in ("In", "NotIn"):
            operator = codes.get("operator", "")
            faults.append(not_supported(f"{where}.exitCodes.operator", operator, ["In", "NotIn"]))
        if len(codes.get("values") or ()) > 255:
            faults.append(too_many(f"{where}.exitCodes.values", len(codes["values"]), 255))
