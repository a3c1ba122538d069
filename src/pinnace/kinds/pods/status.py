"""Validation of the status of pods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Literal

from pinnace.kinds.pods.updates import validate_annotation_change
from pinnace.kinds.validation.addresses import strict_ip, validate_ip
from pinnace.kinds.validation.fields import (
    validate_dns_label,
    validate_dns_subdomain,
    validate_qualified_name,
)
from pinnace.model.field_errors import (
    IMMUTABLE,
    FieldError,
    duplicate,
    forbidden,
    invalid,
    not_supported,
    required,
    too_long,
)
from pinnace.model.typed_objects import (
    Container,
    ContainerStateTerminated,
    ContainerStatus,
    Pod,
    PodCondition,
    PodExtendedResourceClaimStatus,
    PodSpec,
    PodStatus,
    ResourceHealth,
    ResourceRequirements,
)

_STATUS_LISTS: Final = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
_BACK_TO_LIFE = "may not be transitioned to non-terminated state"
_UNREQUESTED = (
    "must match the extended resource name of an entry in spec.initContainers.resources.requests or "
    "spec.containers.resources.requests"
)
_MOST_ID = 2**31 - 1
_HEALTH = ("Healthy", "Unhealthy", "Unknown")
_MOST_MESSAGE = 1024


def validate_pod_status(new: Pod, old: Pod) -> list[FieldError]:
    """Return every error of a change through pods/status."""
    errs: list[FieldError] = []
    validate_annotation_change(new, old, errs)
    status, before = new.get("status") or {}, old.get("status") or {}
    _validate_conditions(status.get("conditions", ()), errs)
    _validate_node(new, old, errs)
    if status.get("observedGeneration", 0) < 0:
        detail = "must be a non-negative integer"
        errs.append(invalid("status.observedGeneration", status["observedGeneration"], detail))
    if status.get("qosClass", "") != before.get("qosClass", ""):
        errs.append(invalid("status.qosClass", status.get("qosClass", ""), IMMUTABLE))
    for field in _STATUS_LISTS:
        _validate_transition(status.get(field, ()), before.get(field, ()), field, old["spec"], errs)
    _validate_claim_status(status, new["spec"], errs)
    if (claimed := status.get("extendedResourceClaimStatus")) is not None:
        _validate_extended_claim(claimed, new["spec"], errs)
    for addresses in ("podIPs", "hostIPs"):
        _validate_address(status, before, addresses, errs)
    for statuses in _STATUS_LISTS:
        _validate_user(status.get(statuses, ()), f"status.{statuses}", new["spec"], errs)
    containers, init_containers = new["spec"].get("containers") or (), new["spec"].get("initContainers") or ()
    _validate_device(status.get("containerStatuses", ()), "status.containerStatuses", containers, errs)
    _validate_device(status.get("initContainerStatuses", ()), "status.initContainerStatuses", init_containers, errs)
    for index, ephemeral in enumerate(status.get("ephemeralContainerStatuses", ())):
        if ephemeral.get("allocatedResourcesStatus"):
            where = f"status.ephemeralContainerStatuses[{index}].allocatedResourcesStatus"
            errs.append(forbidden(where, "must not be specified in container status"))
    return errs


def _validate_conditions(conditions: Sequence[PodCondition], errs: list[FieldError]) -> None:
    for index, condition in enumerate(conditions):
        if condition.get("observedGeneration", 0) < 0:
            where = f"status.conditions[{index}].observedGeneration"
            errs.append(invalid(where, condition["observedGeneration"], "must be a non-negative integer"))
        if condition.get("type") not in ("PodScheduled", "Ready", "Initialized"):
            errs += validate_qualified_name(condition.get("type", ""), f"status.conditions[{index}].Type")


def _validate_node(new: Pod, old: Pod, errs: list[FieldError]) -> None:
    """Check the node that the pod is bound to, and the one that it is nominated for."""
    node = old["spec"].get("nodeName", "")
    if new["spec"].get("nodeName", "") != node:
        errs.append(forbidden("status.nodeName", "may not be changed directly"))
    nominated = (new.get("status") or {}).get("nominatedNodeName", "")
    if nominated and nominated != (old.get("status") or {}).get("nominatedNodeName", ""):
        errs += validate_dns_subdomain(nominated, "status.nominatedNodeName")
        if node:
            detail = "may not be set on pods that are already bound to a node"
            errs.append(forbidden("status.nominatedNodeName", detail))


def _validate_transition(
    now: Sequence[ContainerStatus], before: Sequence[ContainerStatus], field: str, spec: PodSpec, errs: list[FieldError]
) -> None:
    """Check that terminated containers stay terminated, unless the restart policy allows a restart."""
    for index, old in enumerate(before):
        ended = old.get("state", {}).get("terminated")
        if ended is None:
            continue
        status = next((status for status in now if status.get("name") == old.get("name")), None)
        if status is None or "terminated" in status.get("state", ()):
            continue
        if field == "ephemeralContainerStatuses" or not _may_restart(old.get("name"), ended, field, spec):
            errs.append(forbidden(f"status.{field}[{index}].state", _BACK_TO_LIFE))


def _may_restart(name: str | None, ended: ContainerStateTerminated, field: str, spec: PodSpec) -> bool:
    is_init = field.startswith("init")
    listed = spec.get("initContainers" if is_init else "containers") or ()
    container = next((container for container in listed if container.get("name") == name), None)
    if any(
        rule.get("action") == "RestartAllContainers"
        for container_of_pod in (*spec.get("containers", ()), *spec.get("initContainers", ()))
        for rule in container_of_pod.get("restartPolicyRules") or ()
    ):
        return True
    if container is None:
        return False
    code = ended.get("exitCode", 0)
    for rule in container.get("restartPolicyRules") or ():
        codes = rule.get("exitCodes")
        is_listed = codes is not None and code in (codes.get("values") or ())
        if is_listed == (codes is not None and codes.get("operator") == "In"):
            return True
    policy = container.get("restartPolicy") or spec.get("restartPolicy", "Always")
    if is_init and policy == "Always" and container.get("restartPolicy") != "Always":
        return bool(code) or spec.get("restartPolicy") == "Always"
    return bool(policy == "Always" or (policy == "OnFailure" and code))


def _validate_claim_status(status: PodStatus, spec: PodSpec, errs: list[FieldError]) -> None:
    known = {claim.get("name", "") for claim in spec.get("resourceClaims", ())}
    seen: set[str] = set()
    for index, claim in enumerate(status.get("resourceClaimStatuses", ())):
        where, name = f"status.resourceClaimStatuses[{index}]", claim.get("name", "")
        if name not in known:
            detail = "must match the name of an entry in `spec.resourceClaims`"
            errs.append(invalid(f"{where}.name", name, detail))
        if name in seen:
            errs.append(duplicate(f"{where}.name", name))
        seen.add(name)
        if "resourceClaimName" in claim:
            errs += validate_dns_subdomain(claim["resourceClaimName"], f"{where}.resourceClaimName")


def _validate_extended_claim(claimed: PodExtendedResourceClaimStatus, spec: PodSpec, errs: list[FieldError]) -> None:
    """Check the claim for a pod's extended resources: which request is for which resource."""
    path = "status.extendedResourceClaimStatus"
    requests = {
        container.get("name", ""): (container.get("resources") or {}).get("requests") or {}
        for listed in ("initContainers", "containers")
        for container in spec.get(listed) or ()
    }
    mappings = claimed.get("requestMappings") or ()
    if not mappings:
        errs.append(required(f"{path}.requestMappings", "at least one request mapping is required"))
    seen: set[tuple[str, ...]] = set()
    for index, mapping in enumerate(mappings):
        where = f"{path}.requestMappings[{index}]"
        names = {name: mapping.get(name, "") for name in ("containerName", "resourceName", "requestName")}
        if names["containerName"] not in requests:
            detail = "must match the name of an entry in spec.initContainers.name or spec.containers.name"
            errs.append(invalid(f"{where}.containerName", names["containerName"], detail))
        elif names["resourceName"] not in requests[names["containerName"]]:
            errs.append(invalid(f"{where}.resourceName", names["resourceName"], _UNREQUESTED))
        errs += validate_dns_label(names["requestName"], f"{path}.requestName")
        if (key := tuple(names.values())) in seen:
            errs.extend(duplicate(f"{where}.{name}", value) for name, value in names.items())
        seen.add(key)
    if not claimed.get("resourceClaimName"):
        errs.append(required(f"{path}.resourceClaimName"))
    else:
        errs += validate_dns_subdomain(claimed["resourceClaimName"], f"{path}.resourceClaimName")


def _validate_address(
    status: PodStatus, before: PodStatus, field: Literal["podIPs", "hostIPs"], errs: list[FieldError]
) -> None:
    listed = [entry.get("ip", "") for entry in status.get(field) or ()]
    old = {entry.get("ip", "") for entry in before.get(field) or ()}
    if field == "hostIPs" and listed and listed[0] != status.get("hostIP", ""):
        errs.append(invalid("status.hostIPs[0].ip", listed[0], "must be equal to `hostIP`"))
    for index, address in enumerate(listed):
        if address not in old:
            errs += validate_ip(address, f"status.{field}[{index}]")
    if len(listed) < 2:
        return
    parsed = list(map(strict_ip, listed))
    if None in parsed:
        wrong = parsed.index(None)
        detail = f"failed to check for dual stack with error:invalid IP[{wrong}]: {listed[wrong]}"
        errs.append(FieldError(f"status.{field}", "InternalError", f"Internal error: {detail}"))
    if len(listed) > 2 or len({address.version for address in parsed if address is not None}) != 2:
        detail = "may specify no more than one IP for each IP family"
        errs.append(invalid(f"status.{field}", [{"IP": address} for address in listed], detail))


def _validate_user(statuses: Sequence[ContainerStatus], path: str, spec: PodSpec, errs: list[FieldError]) -> None:
    system = (spec.get("os") or {}).get("name") or "linux"
    for index, status in enumerate(statuses):
        user, where = (status.get("user") or {}).get("linux"), f"{path}[{index}].user.linux"
        if user is None:
            continue
        if system == "windows":
            errs.append(forbidden(where, "cannot be set for a windows pod"))
            continue
        numbers = [(f"{where}.{field}", user.get(field, 0)) for field in ("uid", "gid")]
        groups = user.get("supplementalGroups") or ()
        numbers += [(f"{where}.supplementalGroups[{at}]", group) for at, group in enumerate(groups)]
        errs += [
            invalid(at, number, f"must be between 0 and {_MOST_ID}, inclusive")
            for at, number in numbers
            if not 0 <= number <= _MOST_ID
        ]


def _validate_device(
    statuses: Sequence[ContainerStatus], path: str, containers: Sequence[Container], errs: list[FieldError]
) -> None:
    """Check that the health of devices is about devices that the container requests."""
    by_name = {container.get("name"): container for container in reversed(containers)}
    for index, status in enumerate(statuses):
        container = by_name.get(status.get("name"))
        for at, device in enumerate(status.get("allocatedResourcesStatus") or ()):
            where, name = f"{path}[{index}].allocatedResourcesStatus[{at}]", device.get("name", "")
            if container is not None and (err := _unasked(name, container.get("resources") or {})):
                errs.append(invalid(f"{where}.name", name, err))
            _validate_health(device.get("resources") or (), f"{where}.resources", errs)


def _unasked(name: str, resources: ResourceRequirements) -> str:
    if not name.startswith("claim:"):
        is_requested = name in (resources.get("requests") or {})
        return "" if is_requested else "must match one of the container's resource requests"
    claims = (
        f"claim:{claim.get('name', '')}" + (f"/{claim['request']}" if claim.get("request") else "")
        for claim in resources.get("claims") or ()
    )
    if name in claims:
        return ""
    return (
        "must match one of the container's resource claims in a format 'claim:<claimName>/<request>' or "
        "'claim:<claimName>' if request is empty"
    )


def _validate_health(devices: Sequence[ResourceHealth], path: str, errs: list[FieldError]) -> None:
    seen: set[str] = set()
    for index, device in enumerate(devices):
        where, identity, message = f"{path}[{index}]", device.get("resourceID", ""), device.get("message")
        if device.get("health", "") not in _HEALTH:
            errs.append(not_supported(f"{where}.health", device.get("health", ""), _HEALTH))
        if message == "":
            errs.append(required(f"{where}.message", "must be non-empty if specified"))
        elif message is not None and len(message.encode()) > _MOST_MESSAGE:
            errs.append(too_long(f"{where}.message", _MOST_MESSAGE))
        if identity in seen:
            errs.append(duplicate(f"{where}.resourceID", identity))
        seen.add(identity)
