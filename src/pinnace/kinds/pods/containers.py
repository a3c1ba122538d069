"""Validation of the containers of a pod: regular, init and ephemeral."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from pinnace.kinds.pods.probes import validate_lifecycle, validate_probe
from pinnace.kinds.pods.references import validate_env, validate_env_from
from pinnace.kinds.pods.resource_amounts import validate_container_resource
from pinnace.kinds.pods.security import validate_container_security
from pinnace.kinds.validation.fields import dns_label, has_backsteps, port_name, validate_relative_path
from pinnace.model.field_errors import (
    FieldError,
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
# Most containers have none of these fields: one set operation shows it.
_RARE_FIELDS = frozenset({"envFrom", "volumeDevices", "resizePolicy"})
_LIVENESS_FIELDS = frozenset({"lifecycle", *PROBES})
_RARE_MOUNT_FIELDS = frozenset({"subPath", "subPathExpr", "mountPropagation", "recursiveReadOnly"})


class ContainerContext(NamedTuple):
    """The parts of a pod spec that the validation of its containers needs."""

    volumes: Mapping[str, Object]
    claims: Collection[str]
    restart_policy: str
    grace_period: int
    host_users: bool


def validate_containers(containers: list[Object], context: ContainerContext, path: str, errs: list[FieldError]) -> None:
    if not containers:
        errs.append(required(path))
        return
    seen: set[str] = set()
    for index, container in enumerate(containers):
        where = f"{path}[{index}]"
        _validate_container(container, context, where, errs)
        name = container.get("name", "")
        if name in seen:
            errs.append(duplicate(f"{where}.name", name))
        seen.add(name)
        if not _LIVENESS_FIELDS.isdisjoint(container):
            _validate_liveness(container, context, where, errs)
        if "restartPolicy" in container or "restartPolicyRules" in container:
            _validate_restart_policy(container, where, errs)
    _host_port_conflicts(containers, path, errs)


def validate_init_containers(
    containers: list[Object], ordinary: list[Object], context: ContainerContext, path: str, errs: list[FieldError]
) -> None:
    seen = {container.get("name", "") for container in ordinary}
    for index, container in enumerate(containers):
        where = f"{path}[{index}]"
        _validate_container(container, context, where, errs)
        is_sidecar = container.get("restartPolicy") == "Always"
        if "restartPolicy" in container:
            _validate_restart_policy(container, where, errs)
        elif container.get("restartPolicyRules"):
            detail = "must specify restartPolicy when restart rules are used"
            errs.append(required(f"{where}.restartPolicy", detail))
        name = container.get("name", "")
        if name in seen:
            errs.append(duplicate(f"{where}.name", name))
        elif name:
            seen.add(name)
        _host_port_conflicts([container], path, errs)
        if is_sidecar:
            _validate_liveness(container, context, where, errs)
        else:
            for field in ("lifecycle", *PROBES):
                if field in container:
                    detail = "may not be set for init containers without restartPolicy=Always"
                    errs.append(forbidden(f"{where}.{field}", detail))
            for position, policy in enumerate(container.get("resizePolicy", ())):
                if policy.get("restartPolicy") == "RestartContainer":
                    detail = "must not be set to 'RestartContainer' for non-sidecar initContainers"
                    at = f"{where}.resizePolicy[{position}].restartPolicy"
                    errs.append(invalid(at, "RestartContainer", detail))


def validate_ephemeral_containers(
    containers: list[Object], others: list[Object], context: ContainerContext, path: str, errs: list[FieldError]
) -> None:
    targets = {container.get("name", "") for container in others}
    seen = set(targets)
    for index, container in enumerate(containers):
        where = f"{path}[{index}]"
        _validate_container(container, context, where, errs)
        validate_image_space(container, where, errs)
        name, target = container.get("name", ""), container.get("targetContainerName", "")
        if name in seen:
            errs.append(duplicate(f"{where}.name", name))
        seen.add(name)
        if target and target not in targets:
            errs.append(not_found(f"{where}.targetContainerName", target))
        for field in _NOT_FOR_EPHEMERAL:
            if container.get(field) or (field in container and field != "resources"):
                errs.append(forbidden(f"{where}.{field}", "cannot be set for an Ephemeral Container"))
        for position, mount in enumerate(container.get("volumeMounts", ())):
            for field in ("subPath", "subPathExpr"):
                if mount.get(field):
                    at = f"{where}.volumeMounts[{position}].{field}"
                    errs.append(forbidden(at, "cannot be set for an Ephemeral Container"))


def validate_image_space(container: Object, path: str, errs: list[FieldError]) -> None:
    """Check for spaces around an image. Only for pods: the image of a template may still change."""
    image = container.get("image", "")
    if image != image.strip():
        errs.append(invalid(f"{path}.image", image, _WHITESPACE))


def _validate_container(container: Object, context: ContainerContext, path: str, errs: list[FieldError]) -> None:
    name = container.get("name", "")
    if not name:
        errs.append(required(f"{path}.name"))
    elif wrong := dns_label(name):
        errs.extend(invalid(f"{path}.name", name, err) for err in wrong)
    if not container.get("image"):
        errs.append(required(f"{path}.image"))
    policy = container.get("terminationMessagePolicy", "")
    if policy not in ("File", "FallbackToLogsOnError"):
        supported = ["File", "FallbackToLogsOnError"]
        errs.append(not_supported(f"{path}.terminationMessagePolicy", policy, supported))
    if "ports" in container:
        _validate_port(container["ports"], f"{path}.ports", errs)
    if "env" in container:
        validate_env(container["env"], f"{path}.env", errs)
    if "volumeMounts" in container:
        _validate_mount(container, context.volumes, f"{path}.volumeMounts", errs)
    if not _RARE_FIELDS.isdisjoint(container):
        _validate_rare(container, context, path, errs)
    pull = container.get("imagePullPolicy", "")
    if pull not in PULL_POLICIES:
        errs.append(not_supported(f"{path}.imagePullPolicy", pull, PULL_POLICIES))
    if resources := container.get("resources"):
        validate_container_resource(resources, f"{path}.resources", errs, context.claims)
    if security := container.get("securityContext"):
        validate_container_security(security, f"{path}.securityContext", errs, has_host_users=context.host_users)


def _validate_rare(container: Object, context: ContainerContext, path: str, errs: list[FieldError]) -> None:
    if "envFrom" in container:
        validate_env_from(container["envFrom"], f"{path}.envFrom", errs)
    if devices := container.get("volumeDevices"):
        mounts = container.get("volumeMounts") or []
        _validate_device(devices, mounts, context.volumes, f"{path}.volumeDevices", errs)
    if "resizePolicy" in container:
        _validate_resize_policy(container["resizePolicy"], context.restart_policy, f"{path}.resizePolicy", errs)


def _validate_liveness(container: Object, context: ContainerContext, path: str, errs: list[FieldError]) -> None:
    if "lifecycle" in container:
        validate_lifecycle(container["lifecycle"], context.grace_period, f"{path}.lifecycle", errs)
    for name in PROBES:
        probe = container.get(name)
        if probe is not None:
            validate_probe(probe, name, f"{path}.{name}", errs)


def _validate_port(ports: list[Object], path: str, errs: list[FieldError]) -> None:
    seen: set[str] = set()
    for index, port in enumerate(ports):
        name = port.get("name", "")
        if name:
            if wrong := port_name(name):
                errs.extend(invalid(f"{path}[{index}].name", name, err) for err in wrong)
            elif name in seen:
                errs.append(duplicate(f"{path}[{index}].name", name))
            seen.add(name)
        number = port.get("containerPort", 0)
        if not number:
            errs.append(required(f"{path}[{index}].containerPort"))
        elif not 1 <= number <= 65535:
            detail = "must be between 1 and 65535, inclusive"
            errs.append(invalid(f"{path}[{index}].containerPort", number, detail))
        host_port = port.get("hostPort", 0)
        if host_port and not 1 <= host_port <= 65535:
            detail = "must be between 1 and 65535, inclusive"
            errs.append(invalid(f"{path}[{index}].hostPort", host_port, detail))
        if port.get("protocol", "") not in _PROTOCOLS:
            errs.append(not_supported(f"{path}[{index}].protocol", port.get("protocol", ""), _PROTOCOLS))


def _host_port_conflicts(containers: list[Object], path: str, errs: list[FieldError]) -> None:
    seen: set[str] = set()
    for index, container in enumerate(containers):
        for position, port in enumerate(container["ports"]) if "ports" in container else ():
            if "hostPort" in port and (number := port["hostPort"]):
                address = f"{port.get('protocol', '')}/{port.get('hostIP', '')}/{number}"
                if address in seen:
                    errs.append(duplicate(f"{path}[{index}].ports[{position}].hostPort", address))
                seen.add(address)


def _validate_mount(container: Object, volumes: Mapping[str, Object], path: str, errs: list[FieldError]) -> None:
    devices = {}
    if "volumeDevices" in container:
        devices = {device.get("name", ""): device.get("devicePath", "") for device in container["volumeDevices"]}
    seen: set[str] = set()
    for index, mount in enumerate(container["volumeMounts"]):
        name, target = mount.get("name", ""), mount.get("mountPath", "")
        if not name:
            errs.append(required(f"{path}[{index}].name"))
        if name not in volumes:
            errs.append(not_found(f"{path}[{index}].name", name))
        if not target:
            errs.append(required(f"{path}[{index}].mountPath"))
        if target in seen:
            errs.append(invalid(f"{path}[{index}].mountPath", target, "must be unique"))
        seen.add(target)
        if devices:
            if name in devices:
                errs.append(invalid(f"{path}[{index}].name", name, "must not already exist in volumeDevices"))
            if target in devices.values():
                detail = "must not already exist as a path in volumeDevices"
                errs.append(invalid(f"{path}[{index}].mountPath", target, detail))
        if not _RARE_MOUNT_FIELDS.isdisjoint(mount):
            _validate_mount_detail(mount, container, path, f"{path}[{index}]", errs)


def _validate_mount_detail(mount: Object, container: Object, path: str, where: str, errs: list[FieldError]) -> None:
    # Most of these errors name the list, not the mount.
    sub_path, expression = mount.get("subPath", ""), mount.get("subPathExpr", "")
    if sub_path:
        errs += validate_relative_path(sub_path, f"{path}.subPath")
    if expression:
        if sub_path:
            detail = "subPathExpr and subPath are mutually exclusive"
            errs.append(invalid(f"{where}.subPathExpr", expression, detail))
        errs += validate_relative_path(expression, f"{path}.subPathExpr")
    propagation = mount.get("mountPropagation")
    if propagation is not None:
        if propagation not in _PROPAGATIONS:
            errs.append(not_supported(f"{path}.mountPropagation", propagation, _PROPAGATIONS))
        if propagation == "Bidirectional" and not container.get("securityContext", {}).get("privileged"):
            detail = "Bidirectional mount propagation is available only to privileged containers"
            errs.append(forbidden(f"{path}.mountPropagation", detail))
    recursion = mount.get("recursiveReadOnly")
    if recursion in ("Enabled", "IfPossible"):
        if not mount.get("readOnly"):
            errs.append(forbidden(f"{path}.recursiveReadOnly", "may only be specified when readOnly is true"))
        if propagation not in (None, "None"):
            detail = "may only be specified when mountPropagation is None or not specified"
            errs.append(forbidden(f"{path}.recursiveReadOnly", detail))
    elif recursion not in (None, "Disabled"):
        supported = ["Disabled", "Enabled", "IfPossible"]
        errs.append(not_supported(f"{path}.recursiveReadOnly", recursion, supported))


def _validate_device(
    devices: list[Object], mounts: list[Object], volumes: Mapping[str, Object], path: str, errs: list[FieldError]
) -> None:
    mounted = {mount.get("name", ""): mount.get("mountPath", "") for mount in mounts}
    names: set[str] = set()
    paths: set[str] = set()
    for index, device in enumerate(devices):
        where = f"{path}[{index}]"
        name, target = device.get("name", ""), device.get("devicePath", "")
        if not name:
            errs.append(required(f"{where}.name"))
        if name in names:
            errs.append(invalid(f"{where}.name", name, "must be unique"))
        if name not in volumes:
            errs.append(not_found(f"{where}.name", name))
        elif "persistentVolumeClaim" not in volumes[name] and "ephemeral" not in volumes[name]:
            detail = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
            errs.append(invalid(f"{where}.name", name, detail))
        if not target:
            errs.append(required(f"{where}.devicePath"))
        if target in paths:
            errs.append(invalid(f"{where}.devicePath", target, "must be unique"))
        if has_backsteps(target):
            errs.append(invalid(f"{where}.devicePath", target, "can not contain backsteps ('..')"))
        else:
            paths.add(target)
        if name in mounted:
            errs.append(invalid(f"{where}.name", name, "must not already exist in volumeMounts"))
        if target in mounted.values():
            detail = "must not already exist as a path in volumeMounts"
            errs.append(invalid(f"{where}.devicePath", target, detail))
        if name:
            names.add(name)


def _validate_resize_policy(policies: list[Object], restart_policy: str, path: str, errs: list[FieldError]) -> None:
    seen: set[str] = set()
    for index, policy in enumerate(policies):
        resource, restart = policy.get("resourceName", ""), policy.get("restartPolicy", "")
        if resource in seen:
            errs.append(duplicate(f"{path}[{index}]", resource))
        seen.add(resource)
        for value, supported in ((resource, ("cpu", "memory")), (restart, ("NotRequired", "RestartContainer"))):
            if not value:
                errs.append(required(path))
            elif value not in supported:
                errs.append(not_supported(path, value, supported))
        if restart_policy == "Never" and restart != "NotRequired":
            detail = "must be 'NotRequired' when pod `restartPolicy` is 'Never'"
            errs.append(invalid(path, restart, detail))


def _validate_restart_policy(container: Object, path: str, errs: list[FieldError]) -> None:
    policy, rules = container.get("restartPolicy"), container.get("restartPolicyRules") or []
    if policy is None:
        if not rules:
            return
        errs.append(required(f"{path}.restartPolicy", "must specify restartPolicy when restart rules are used"))
    elif policy not in ("Always", "Never", "OnFailure"):
        errs.append(not_supported(f"{path}.restartPolicy", policy, ["Always", "Never", "OnFailure"]))
    if len(rules) > 20:
        errs.append(too_many(f"{path}.restartPolicyRules", len(rules), 20))
    for index, rule in enumerate(rules):
        where = f"{path}.restartPolicyRules[{index}]"
        if rule.get("action", "") not in ("Restart", "RestartAllContainers"):
            errs.append(not_supported(f"{where}.action", rule.get("action", ""), ["Restart", "RestartAllContainers"]))
        codes = rule.get("exitCodes")
        if codes is None:
            errs.append(required(f"{where}.exitCodes", "must be specified"))
            continue
        if codes.get("operator", "") not in ("In", "NotIn"):
            operator = codes.get("operator", "")
            errs.append(not_supported(f"{where}.exitCodes.operator", operator, ["In", "NotIn"]))
        if len(codes.get("values") or ()) > 255:
            errs.append(too_many(f"{where}.exitCodes.values", len(codes["values"]), 255))
