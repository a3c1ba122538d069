"""Validation of the containers of a pod: regular, init and ephemeral; their probes and lifecycle hooks."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Final, NamedTuple, cast

from pinnace.kinds.pods.references import validate_env, validate_env_from
from pinnace.kinds.pods.resource_amounts import validate_container_resource
from pinnace.kinds.pods.security import validate_container_security
from pinnace.kinds.validation.fields import (
    NEGATIVE,
    dns_label,
    has_backsteps,
    port_name,
    validate_port,
    validate_relative_path,
)
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
from pinnace.model.typed_objects import (
    Container,
    ContainerPort,
    ContainerResizePolicy,
    EphemeralContainer,
    HTTPGetAction,
    Lifecycle,
    LifecycleHandler,
    Probe,
    Volume,
    VolumeDevice,
    VolumeMount,
)
from pinnace.process.work_slices import give_way

_TIMES: Final = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")
_GRPC_MODES = ("Plaintext", "TLS")
_PROBE_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc")
_HOOK_HANDLERS = ("exec", "httpGet", "tcpSocket", "sleep")
_header_name = re.compile("[-A-Za-z0-9]+").fullmatch
_HEADER_ERROR = (
    "a valid HTTP header must consist of alphanumeric characters or '-' "
    "(e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')"
)


def validate_probe(probe: Probe, name: str, path: str, errs: list[FieldError]) -> None:
    _validate_handler(probe, _PROBE_HANDLERS, None, path, errs)
    for field in _TIMES:
        value = probe.get(field)
        if value is not None and value < 0:
            errs.append(invalid(f"{path}.{field}", value, NEGATIVE))
    grace = probe.get("terminationGracePeriodSeconds")
    if grace is not None:
        if grace <= 0:
            errs.append(invalid(f"{path}.terminationGracePeriodSeconds", grace, "must be greater than 0"))
        if name == "readinessProbe":
            detail = "must not be set for readinessProbes"
            errs.append(invalid(f"{path}.terminationGracePeriodSeconds", grace, detail))
    if name != "readinessProbe" and probe.get("successThreshold", 0) != 1:
        errs.append(invalid(f"{path}.successThreshold", probe.get("successThreshold", 0), "must be 1"))


def validate_lifecycle(lifecycle: Lifecycle, grace_period: int, path: str, errs: list[FieldError]) -> None:
    for moment in ("postStart", "preStop"):
        hook = lifecycle.get(moment)
        if hook is not None:
            _validate_handler(hook, _HOOK_HANDLERS, grace_period, f"{path}.{moment}", errs)


def _validate_handler(
    holder: Probe | LifecycleHandler,
    handlers: tuple[str, ...],
    grace_period: int | None,
    path: str,
    errs: list[FieldError],
) -> None:
    kinds = [kind for kind in handlers if kind in holder]
    match kinds[:1]:
        case ["httpGet"]:
            _validate_http_get(holder["httpGet"], f"{path}.httpGet", errs)
        case ["exec"]:
            if not holder["exec"].get("command"):
                errs.append(required(f"{path}.exec.command"))
        case ["tcpSocket"]:
            errs += validate_port(holder["tcpSocket"].get("port", 0), f"{path}.tcpSocket.port")
        case ["grpc"]:
            grpc = cast("Probe", holder)["grpc"]
            errs += validate_port(grpc.get("port", 0), f"{path}.grpc.port")
            if (mode := grpc.get("mode")) is not None and mode not in _GRPC_MODES:
                errs.append(not_supported(f"{path}.grpc.mode", mode, list(_GRPC_MODES)))
        case ["sleep"]:
            seconds = cast("LifecycleHandler", holder)["sleep"].get("seconds", 0)
            if grace_period is not None and not 0 <= seconds <= grace_period:
                detail = f"must be non-negative and less than terminationGracePeriodSeconds ({grace_period})"
                errs.append(invalid(f"{path}.sleep", seconds, detail))
        case _:
            errs.append(required(path, "must specify a handler type"))
    for extra in kinds[1:]:
        errs.append(forbidden(f"{path}.{extra}", "may not specify more than 1 handler type"))


def _validate_http_get(action: HTTPGetAction, path: str, errs: list[FieldError]) -> None:
    if not action.get("path"):
        errs.append(required(f"{path}.path"))
    errs += validate_port(action.get("port", 0), f"{path}.port")
    if action.get("scheme", "") not in ("HTTP", "HTTPS"):
        errs.append(not_supported(f"{path}.scheme", action.get("scheme", ""), ["HTTP", "HTTPS"]))
    for header in action.get("httpHeaders", ()):
        if not _header_name(header.get("name", "")):
            errs.append(invalid(f"{path}.httpHeaders", header.get("name", ""), _HEADER_ERROR))


PULL_POLICIES = ("Always", "IfNotPresent", "Never")
PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
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
_RARE_MOUNT_FIELDS = frozenset({"subPath", "subPathExpr", "mountPropagation", "recursiveReadOnly", "bindMountOptions"})
_MOUNT_OPTIONS = ("nodev", "noexec", "nosuid")


class ContainerContext(NamedTuple):
    """The parts of a pod spec that the validation of its containers needs."""

    volumes: Mapping[str, Volume]
    claims: Collection[str]
    restart_policy: str
    grace_period: int
    host_users: bool


def validate_containers(
    containers: list[Container], context: ContainerContext, path: str, errs: list[FieldError]
) -> None:
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
    containers: list[Container], ordinary: list[Container], context: ContainerContext, path: str, errs: list[FieldError]
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
    containers: list[EphemeralContainer],
    others: list[Container],
    context: ContainerContext,
    path: str,
    errs: list[FieldError],
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


def validate_image_space(container: Container | EphemeralContainer, path: str, errs: list[FieldError]) -> None:
    """Check for spaces around an image. Only for pods: the image of a template may still change."""
    image = container.get("image", "")
    if image != image.strip():
        errs.append(invalid(f"{path}.image", image, _WHITESPACE))


def _validate_container(
    container: Container | EphemeralContainer, context: ContainerContext, path: str, errs: list[FieldError]
) -> None:
    give_way()
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


def _validate_rare(
    container: Container | EphemeralContainer, context: ContainerContext, path: str, errs: list[FieldError]
) -> None:
    if "envFrom" in container:
        validate_env_from(container["envFrom"], f"{path}.envFrom", errs)
    if devices := container.get("volumeDevices"):
        mounts = container.get("volumeMounts") or []
        _validate_device(devices, mounts, context.volumes, f"{path}.volumeDevices", errs)
    if "resizePolicy" in container:
        _validate_resize_policy(container["resizePolicy"], context.restart_policy, f"{path}.resizePolicy", errs)


def _validate_liveness(container: Container, context: ContainerContext, path: str, errs: list[FieldError]) -> None:
    if "lifecycle" in container:
        validate_lifecycle(container["lifecycle"], context.grace_period, f"{path}.lifecycle", errs)
    for name in PROBES:
        probe = container.get(name)
        if probe is not None:
            validate_probe(probe, name, f"{path}.{name}", errs)


def _validate_port(ports: list[ContainerPort], path: str, errs: list[FieldError]) -> None:
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


def _host_port_conflicts(containers: list[Container], path: str, errs: list[FieldError]) -> None:
    seen: set[str] = set()
    for index, container in enumerate(containers):
        for position, port in enumerate(container["ports"]) if "ports" in container else ():
            if "hostPort" in port and (number := port["hostPort"]):
                address = f"{port.get('protocol', '')}/{port.get('hostIP', '')}/{number}"
                if address in seen:
                    errs.append(duplicate(f"{path}[{index}].ports[{position}].hostPort", address))
                seen.add(address)


def _validate_mount(
    container: Container | EphemeralContainer, volumes: Mapping[str, Volume], path: str, errs: list[FieldError]
) -> None:
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
            if "bindMountOptions" in mount:
                _validate_mount_options(mount["bindMountOptions"], volumes.get(name), f"{path}[{index}]", errs)


def _validate_mount_detail(
    mount: VolumeMount, container: Container | EphemeralContainer, path: str, where: str, errs: list[FieldError]
) -> None:
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


def _validate_mount_options(options: list[str], volume: Volume | None, where: str, errs: list[FieldError]) -> None:
    for position, option in enumerate(options):
        if option not in _MOUNT_OPTIONS:
            errs.append(not_supported(f"{where}.bindMountOptions[{position}]", option, _MOUNT_OPTIONS))
        if option in options[:position]:
            errs.append(duplicate(f"{where}.bindMountOptions[{position}]", option))
    if options and volume is not None and "image" in volume:
        detail = "bindMountOptions may not be used with image volumes"
        errs.append(invalid(f"{where}.bindMountOptions", options, detail))


def _validate_device(
    devices: list[VolumeDevice],
    mounts: list[VolumeMount],
    volumes: Mapping[str, Volume],
    path: str,
    errs: list[FieldError],
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


def _validate_resize_policy(
    policies: list[ContainerResizePolicy], restart_policy: str, path: str, errs: list[FieldError]
) -> None:
    seen: set[str] = set()
    for index, policy in enumerate(policies):
        resource, restart = policy.get("resourceName", ""), policy.get("restartPolicy", "")
        if resource in seen:
            errs.append(duplicate(f"{path}[{index}]", resource))
        seen.add(resource)
        for value, supported in ((resource, ("cpu", "memory")), (restart, ("NotRequired", "RestartContainer"))):
            if value and value not in supported:
                errs.append(not_supported(path, value, supported))
        if not resource or not restart:
            errs.append(required(path))
        if restart_policy == "Never" and restart != "NotRequired":
            detail = "must be 'NotRequired' when pod `restartPolicy` is 'Never'"
            errs.append(invalid(path, restart, detail))


def _validate_restart_policy(container: Container, path: str, errs: list[FieldError]) -> None:
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
