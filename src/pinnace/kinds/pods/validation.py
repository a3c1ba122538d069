"""Validation of pods and pod templates, without comparison to an old pod."""

from __future__ import annotations

import re
from typing import Literal

from pinnace.kinds.golang.printing import GoStruct
from pinnace.kinds.pods.containers import (
    ContainerContext,
    validate_containers,
    validate_ephemeral_containers,
    validate_image_space,
    validate_init_containers,
)
from pinnace.kinds.pods.resource_amounts import validate_overhead, validate_pod_level
from pinnace.kinds.pods.scheduling import validate_affinity, validate_spread, validate_toleration
from pinnace.kinds.pods.security import containers_with_paths, validate_host_process, validate_os, validate_pod_security
from pinnace.kinds.pods.volumes import validate_volume
from pinnace.kinds.validation.addresses import validate_ip
from pinnace.kinds.validation.fields import (
    dns_subdomain,
    validate_dns_label,
    validate_dns_subdomain,
    validate_qualified_name,
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
    too_long,
)
from pinnace.model.metadata import validate_annotation
from pinnace.model.selectors import validate_label
from pinnace.model.typed_objects import (
    AppArmorProfile,
    Container,
    ObjectMeta,
    Pod,
    PodResourceClaim,
    PodSchedulingGate,
    PodSpec,
    PodTemplateSpec,
    SeccompProfile,
    Volume,
)
from pinnace.schema.golang.numbers import parse_int

MIRROR = "kubernetes.io/config.mirror"
APP_ARMOR_PREFIX = "container.apparmor.security.beta.kubernetes.io/"
SECCOMP_POD = "seccomp.security.alpha.kubernetes.io/pod"
SECCOMP_PREFIX = "container.seccomp.security.alpha.kubernetes.io/"
_PROFILE_PREFIXES = (SECCOMP_POD, SECCOMP_PREFIX, APP_ARMOR_PREFIX)
_DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_RESTART_POLICIES = ("Always", "OnFailure", "Never")
_LONGEST_DEADLINE = 2**31 - 1
_underscored_label = "_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_search_pattern = rf"{_underscored_label}(\.{_underscored_label})*"
_search_domain = re.compile(_search_pattern).fullmatch
_deletion_cost = re.compile("0|-?[1-9][0-9]*").fullmatch
# Most pods have none of these fields: one set operation shows it.
_PLACEMENT_FIELDS = frozenset(
    {"nodeSelector", "affinity", "dnsConfig", "readinessGates", "schedulingGates", "topologySpreadConstraints"}
)
_RARE_FIELDS = frozenset(
    {
        "os",
        "hostUsers",
        "hostnameOverride",
        "activeDeadlineSeconds",
        "hostname",
        "subdomain",
        "hostAliases",
        "runtimeClassName",
        "preemptionPolicy",
        "overhead",
    }
)
_NO_CLAIMS: frozenset[str] = frozenset()
_NameField = Literal["serviceAccountName", "nodeName", "priorityClassName"]
_CLAIM = GoStruct("Name='' ResourceClaimName ResourceClaimTemplateName")


def validate_pod(pod: Pod) -> list[FieldError]:
    """Return every error of a pod, checked on create and on every change."""
    errs: list[FieldError] = []
    spec, metadata = pod["spec"], pod["metadata"]
    annotations = metadata.get("annotations")
    if annotations:
        validate_pod_annotation(annotations, spec, "metadata.annotations", errs)
    validate_pod_spec(spec, "spec", errs, metadata=metadata)
    if not spec.get("serviceAccountName"):
        _validate_token_without_account(spec, errs)
    for field in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(field, ())):
            validate_image_space(container, f"spec.{field}[{index}]", errs)
    return errs


def validate_pod_creation(pod: Pod) -> list[FieldError]:
    """Return every error of a pod that is being created."""
    errs = validate_pod(pod)
    spec = pod["spec"]
    if spec.get("ephemeralContainers"):
        errs.append(forbidden("spec.ephemeralContainers", "cannot be set on create"))
    if spec.get("nodeName") and spec.get("schedulingGates"):
        errs.append(forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared"))
    annotations = pod["metadata"].get("annotations")
    if annotations:
        _validate_profile_mismatch(annotations, spec, "spec", errs)
    return errs


def validate_template(template: PodTemplateSpec, path: str, errs: list[FieldError]) -> None:
    """Add every error of a pod template. Changes are checked by the kind that has it."""
    metadata, spec = template.get("metadata", {}), template.get("spec", {})
    errs += validate_label(metadata.get("labels"), f"{path}.labels")
    annotations = metadata.get("annotations")
    if annotations:
        errs += validate_annotation(annotations, f"{path}.annotations")
        validate_pod_annotation(annotations, spec, f"{path}.annotations", errs)
    validate_pod_spec(spec, f"{path}.spec", errs, metadata=None)
    if annotations:
        _validate_profile_mismatch(annotations, spec, f"{path}.spec", errs)
    if spec.get("ephemeralContainers"):
        detail = "ephemeral containers not allowed in pod template"
        errs.append(forbidden(f"{path}.spec.ephemeralContainers", detail))


def validate_pod_spec(spec: PodSpec, path: str, errs: list[FieldError], *, metadata: ObjectMeta | None) -> None:
    """`metadata` is that of a pod, and None for a template."""
    _validate_contents(spec, path, errs, metadata)
    restart_policy = spec.get("restartPolicy", "")
    if restart_policy not in _RESTART_POLICIES:
        errs.append(not_supported(f"{path}.restartPolicy", restart_policy, _RESTART_POLICIES))
    if spec.get("dnsPolicy", "") not in _DNS_POLICIES:
        errs.append(not_supported(f"{path}.dnsPolicy", spec.get("dnsPolicy", ""), _DNS_POLICIES))
    if "nodeSelector" in spec:
        errs += validate_label(spec["nodeSelector"], f"{path}.nodeSelector")
    if spec.get("securityContext") or spec.get("hostPID"):
        validate_pod_security(spec, path, errs)
    if not _PLACEMENT_FIELDS.isdisjoint(spec) or spec.get("dnsPolicy") == "None":
        _validate_placement(spec, path, errs)
    _validate_windows(spec, path, errs)
    # In Kubernetes' order. Few pods have the rare fields between the others.
    is_rare = not _RARE_FIELDS.isdisjoint(spec)
    if is_rare:
        _validate_host(spec, path, errs)
    _validate_name(spec, "serviceAccountName", path, errs)
    _validate_name(spec, "nodeName", path, errs)
    if is_rare:
        _validate_deadline_and_hostname(spec, path, errs)
    if tolerations := spec.get("tolerations"):
        validate_toleration(tolerations, f"{path}.tolerations", errs)
    if is_rare:
        _validate_host_alias(spec, path, errs)
    _validate_name(spec, "priorityClassName", path, errs)
    if is_rare:
        _validate_class(spec, path, errs)
    _validate_file_key_volume(spec, path, errs)


def _validate_contents(spec: PodSpec, path: str, errs: list[FieldError], metadata: ObjectMeta | None) -> None:
    """Check volumes, claims and containers, and the requirements of all of them."""
    is_pod = metadata is not None
    valid_volumes: dict[str, Volume] = {}
    if volumes := spec.get("volumes"):
        pod_name = metadata.get("name", "") if metadata else ""
        valid_volumes = validate_volume(volumes, f"{path}.volumes", errs, pod_name)
        if is_pod:
            _validate_image_reference(volumes, f"{path}.volumes", errs)
    claims = spec.get("resourceClaims") or ()
    if claims:
        _validate_claims(claims, metadata, f"{path}.resourceClaims", errs)
    context = ContainerContext(
        volumes=valid_volumes,
        claims=frozenset(claim["name"] for claim in claims if claim.get("name")) if claims else _NO_CLAIMS,
        restart_policy=spec.get("restartPolicy", ""),
        grace_period=spec.get("terminationGracePeriodSeconds", 0),
        host_users=spec.get("hostUsers") is not False,
    )
    containers = spec.get("containers") or []
    validate_containers(containers, context, f"{path}.containers", errs)
    if init_containers := spec.get("initContainers"):
        validate_init_containers(init_containers, containers, context, f"{path}.initContainers", errs)
    if ephemeral := spec.get("ephemeralContainers"):
        others = containers + spec.get("initContainers", [])
        validate_ephemeral_containers(ephemeral, others, context, f"{path}.ephemeralContainers", errs)
    if "resources" in spec:
        validate_pod_level(spec, f"{path}.resources", errs, context.claims)
    if spec.get("hostNetwork"):
        _validate_host_network(containers, f"{path}.containers", errs, is_pod=is_pod)


def _validate_placement(spec: PodSpec, path: str, errs: list[FieldError]) -> None:
    if affinity := spec.get("affinity"):
        validate_affinity(affinity, f"{path}.affinity", errs)
    if spec.get("dnsPolicy") == "None" or "dnsConfig" in spec:
        _validate_dns(spec, f"{path}.dnsConfig", errs)
    for index, readiness_gate in enumerate(spec.get("readinessGates", ())):
        where = f"{path}.readinessGates[{index}].conditionType"
        errs += validate_qualified_name(readiness_gate.get("conditionType", ""), where)
    if scheduling_gates := spec.get("schedulingGates"):
        _validate_gate(scheduling_gates, f"{path}.schedulingGates", errs)
    if constraints := spec.get("topologySpreadConstraints"):
        validate_spread(constraints, f"{path}.topologySpreadConstraints", errs)


def _validate_windows(spec: PodSpec, path: str, errs: list[FieldError]) -> None:
    for holder in (spec, *spec.get("containers", ()), *spec.get("initContainers", ())):
        context = holder.get("securityContext")
        if context and "windowsOptions" in context:
            validate_host_process(spec, path, errs)
            return


def _validate_host(spec: PodSpec, path: str, errs: list[FieldError]) -> None:
    if spec.get("hostUsers") is False:
        for field, name in (("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")):
            if spec.get(field):
                errs.append(forbidden(f"{path}.{name}", "when `hostUsers` is false"))
        for container, where in containers_with_paths(spec, path):
            if container.get("volumeDevices"):
                errs.append(forbidden(f"{where}.volumeDevices", "when `hostUsers` is false"))
    override = spec.get("hostnameOverride")
    if override is not None:
        where = f"{path}.hostnameOverride"
        if spec.get("setHostnameAsFQDN"):
            errs.append(forbidden(where, "may not be specified when setHostnameAsFQDN is true"))
        if spec.get("hostNetwork"):
            errs.append(forbidden(where, "may not be specified when hostNetwork is true"))
        if len(override) > 64:
            errs.append(too_long(where, 64))
        errs += validate_dns_subdomain(override, where)


def _validate_deadline_and_hostname(spec: PodSpec, path: str, errs: list[FieldError]) -> None:
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= _LONGEST_DEADLINE:
        detail = f"must be between 1 and {_LONGEST_DEADLINE}, inclusive"
        errs.append(invalid(f"{path}.activeDeadlineSeconds", deadline, detail))
    for field in ("hostname", "subdomain"):
        if name := spec.get(field):
            errs += validate_dns_label(name, f"{path}.{field}")


def _validate_host_alias(spec: PodSpec, path: str, errs: list[FieldError]) -> None:
    for index, alias in enumerate(spec.get("hostAliases", ())):
        where = f"{path}.hostAliases[{index}]"
        errs += validate_ip(alias.get("ip", ""), f"{where}.ip")
        for position, hostname in enumerate(alias.get("hostnames", ())):
            errs += validate_dns_subdomain(hostname, f"{where}.hostnames[{position}]")


def _validate_class(spec: PodSpec, path: str, errs: list[FieldError]) -> None:
    if "runtimeClassName" in spec:
        errs += validate_dns_subdomain(spec["runtimeClassName"], f"{path}.runtimeClassName")
    policy = spec.get("preemptionPolicy")
    if policy is not None and policy not in ("PreemptLowerPriority", "Never"):
        supported = ["PreemptLowerPriority", "Never"]
        where = f"{path}.preemptionPolicy"
        errs.append(not_supported(where, policy, supported) if policy else required(where))
    if "overhead" in spec:
        validate_overhead(spec["overhead"], f"{path}.overhead", errs)
    if "os" in spec:
        validate_os(spec, path, errs)


def _validate_name(spec: PodSpec, field: _NameField, path: str, errs: list[FieldError]) -> None:
    name = spec.get(field)
    if name and (wrong := dns_subdomain(name)):
        errs.extend(invalid(f"{path}.{field}", name, err) for err in wrong)


def _validate_image_reference(volumes: list[Volume], path: str, errs: list[FieldError]) -> None:
    for index, volume in enumerate(volumes):
        if volume.keys() - {"name"} == {"image"} and not volume["image"].get("reference"):
            errs.append(required(f"{path}[{index}].image.reference"))


def _validate_token_without_account(spec: PodSpec, errs: list[FieldError]) -> None:
    for index, volume in enumerate(spec.get("volumes", ())):
        if "projected" in volume:
            for position, source in enumerate(volume["projected"].get("sources") or ()):
                if "serviceAccountToken" in source:
                    where = f"spec.volumes[{index}].projected.sources[{position}].serviceAccountToken"
                    errs.append(forbidden(where, "must not be specified when serviceAccountName is not set"))


def _validate_claims(
    claims: list[PodResourceClaim], metadata: ObjectMeta | None, path: str, errs: list[FieldError]
) -> None:
    if MIRROR in ((metadata or {}).get("annotations") or ()):
        errs.append(forbidden("", "static pods do not support resource claims"))
        return
    seen: set[str] = set()
    for index, claim in enumerate(claims):
        where = f"{path}[{index}]"
        name = claim.get("name", "")
        if not name:
            errs.append(required(f"{where}.name"))
        elif name in seen:
            errs.append(duplicate(f"{where}.name", name))
        else:
            errs += validate_dns_label(name, f"{where}.name")
            seen.add(name)
        sources = [field for field in ("resourceClaimName", "resourceClaimTemplateName") if field in claim]
        if len(sources) > 1:
            detail = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            errs.append(invalid(where, _CLAIM.view(claim), detail))
        if not sources:
            detail = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            errs.append(invalid(where, _CLAIM.view(claim), detail))
        for field in sources:
            errs += validate_dns_subdomain(claim[field], f"{where}.{field}")


def _validate_host_network(containers: list[Container], path: str, errs: list[FieldError], *, is_pod: bool) -> None:
    for index, container in enumerate(containers):
        for position, port in enumerate(container.get("ports", ())):
            on_host, inside = port.get("hostPort", 0), port.get("containerPort", 0)
            if (is_pod or on_host) and on_host != inside:
                detail = "must match `containerPort` when `hostNetwork` is true"
                errs.append(invalid(f"{path}[{index}].ports[{position}].hostPort", on_host, detail))


def _validate_dns(spec: PodSpec, path: str, errs: list[FieldError]) -> None:
    config = spec.get("dnsConfig")
    if spec.get("dnsPolicy") == "None":
        if config is None:
            errs.append(required(path, "must provide `dnsConfig` when `dnsPolicy` is None"))
            return
        if not config.get("nameservers"):
            detail = "must provide at least one DNS nameserver when `dnsPolicy` is None"
            errs.append(required(f"{path}.nameservers", detail))
            return
    config = config or {}
    servers, searches = config.get("nameservers") or [], config.get("searches") or []
    if len(servers) > 3:
        errs.append(invalid(f"{path}.nameservers", servers, "must not have more than 3 nameservers"))
    for index, server in enumerate(servers):
        errs += validate_ip(server, f"{path}.nameservers[{index}]")
    if len(searches) > 32:
        errs.append(invalid(f"{path}.searches", searches, "must not have more than 32 search paths"))
    if len(" ".join(searches)) > 2048:
        detail = "must not have more than 2048 characters (including spaces) in the search list"
        errs.append(invalid(f"{path}.searches", searches, detail))
    for index, search in enumerate(searches):
        if search != ".":
            _validate_search(search.removesuffix("."), f"{path}.searches[{index}]", errs)
    for index, option in enumerate(config.get("options") or ()):
        if not option.get("name"):
            errs.append(required(f"{path}.options[{index}]", "must not be empty"))


def _validate_search(search: str, path: str, errs: list[FieldError]) -> None:
    if len(search) > 253:
        errs.append(invalid(path, search, "must be no more than 253 characters"))
    if not _search_domain(search):
        detail = (
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', "
            "and must start and end with an alphanumeric character "
            f"(e.g. 'example.com', regex used for validation is '{_search_pattern}')"
        )
        errs.append(invalid(path, search, detail))


def _validate_gate(scheduling_gates: list[PodSchedulingGate], path: str, errs: list[FieldError]) -> None:
    seen: set[str] = set()
    for index, scheduling_gate in enumerate(scheduling_gates):
        name = scheduling_gate.get("name", "")
        errs += validate_qualified_name(name, f"{path}[{index}]")
        if name in seen:
            errs.append(duplicate(f"{path}[{index}]", name))
        seen.add(name)


def _validate_file_key_volume(spec: PodSpec, path: str, errs: list[FieldError]) -> None:
    for field in ("initContainers", "containers", "ephemeralContainers"):
        for index, container in enumerate(spec[field]) if field in spec else ():
            for position, variable in enumerate(container["env"]) if "env" in container else ():
                if "valueFrom" in variable and "fileKeyRef" in variable["valueFrom"]:
                    name = variable["valueFrom"]["fileKeyRef"].get("volumeName", "")
                    where = f"{path}.{field}[{index}].env[{position}].valueFrom.fileKeyRef.volumeName"
                    volume = next((v for v in spec.get("volumes", ()) if v.get("name", "") == name), None)
                    if volume is None:
                        errs.append(not_found(where, name))
                    elif "emptyDir" not in volume:
                        errs.append(invalid(where, name, "referenced volume must be of type emptyDir"))


def _is_int32(text: str) -> bool:
    return parse_int(text, least=-(2**31), greatest=2**31 - 1) is not None


def validate_pod_annotation(annotations: dict[str, str], spec: PodSpec, path: str, errs: list[FieldError]) -> None:
    """Check annotations that Kubernetes itself uses."""
    if MIRROR in annotations and not spec.get("nodeName"):
        detail = "must set spec.nodeName if mirror pod annotation is set"
        errs.append(invalid(f"{path}[{MIRROR}]", annotations[MIRROR], detail))
    cost = annotations.get(_DELETION_COST)
    if cost is not None and not (_deletion_cost(cost) and _is_int32(cost)):
        errs.append(invalid(f"{path}[{_DELETION_COST}]", cost, "must be a 32bit integer"))
    for key, value in annotations.items():
        if not key.startswith(_PROFILE_PREFIXES):
            continue
        if key == SECCOMP_POD or key.startswith(SECCOMP_PREFIX):
            if value.startswith("localhost/"):
                errs += validate_relative_path(value.removeprefix("localhost/"), f"{path}.{key}")
            elif value not in ("runtime/default", "docker/default", "unconfined"):
                errs.append(invalid(f"{path}.{key}", value, "must be a valid seccomp profile"))
        elif key.startswith(APP_ARMOR_PREFIX):
            name = key.removeprefix(APP_ARMOR_PREFIX)
            if not any(container.get("name", "") == name for container, _ in containers_with_paths(spec, "")):
                errs.append(invalid(f"{path}[{key}]", name, "container not found"))
            if value not in ("", "runtime/default", "unconfined") and not value.startswith("localhost/"):
                errs.append(invalid(f"{path}[{key}]", value, f'invalid AppArmor profile name: "{value}"'))


def _validate_profile_mismatch(annotations: dict[str, str], spec: PodSpec, path: str, errs: list[FieldError]) -> None:
    """Check that profiles in annotations and in fields agree. They were annotations once."""
    if not any(key.startswith(_PROFILE_PREFIXES) for key in annotations):
        return
    context = spec.get("securityContext") or {}
    if SECCOMP_POD in annotations and "seccompProfile" in context:
        where = f"{path}.securityContext.seccompProfile"
        _mismatch(annotations[SECCOMP_POD], context["seccompProfile"], "seccomp", where, errs)
    for container, where in containers_with_paths(spec, path):
        own = (container.get("securityContext") or {}).get("seccompProfile")
        annotated = annotations.get(SECCOMP_PREFIX + container.get("name", ""))
        if own is not None and annotated is not None:
            _mismatch(annotated, own, "seccomp", f"{where}.securityContext.seccompProfile", errs)
    if spec.get("os", {}).get("name") == "windows":
        return
    for container, where in containers_with_paths(spec, path):
        own = (container.get("securityContext") or {}).get("appArmorProfile") or context.get("appArmorProfile")
        annotated = annotations.get(APP_ARMOR_PREFIX + container.get("name", ""))
        if own is not None and annotated is not None:
            _mismatch(annotated, own, "apparmor", f"{where}.securityContext.appArmorProfile", errs)


def _mismatch(
    annotation: str, profile: SeccompProfile | AppArmorProfile, technology: str, path: str, errs: list[FieldError]
) -> None:
    kind = profile.get("type")
    agreeing = {"Unconfined": ("unconfined",), "RuntimeDefault": ("runtime/default", "docker/default")}
    if kind == "Localhost" and annotation.startswith("localhost/"):
        if annotation.removeprefix("localhost/") != profile.get("localhostProfile"):
            detail = f"{technology} profile in annotation and field must match"
            errs.append(forbidden(f"{path}.localhostProfile", detail))
    elif kind == "Localhost" or annotation not in agreeing.get(kind or "", (annotation,)):
        errs.append(forbidden(f"{path}.type", f"{technology} type in annotation and field must match"))
