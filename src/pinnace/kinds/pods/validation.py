"""What is wrong with a pod, or with the template of one: everything that needs no look at what was there before."""

from __future__ import annotations

import re

from pinnace.kinds.golang.printing import GoStruct
from pinnace.kinds.pods.containers import (
    Surroundings,
    containers_faults,
    ephemeral_containers_faults,
    image_space_faults,
    init_containers_faults,
)
from pinnace.kinds.pods.resource_amounts import overhead_faults, pod_level_faults
from pinnace.kinds.pods.scheduling import affinity_faults, spread_faults, toleration_faults
from pinnace.kinds.pods.security import containers_with_paths, host_process_faults, os_faults, pod_security_faults
from pinnace.kinds.pods.volumes import volume_faults
from pinnace.kinds.validation.field_lists import (
    annotation_faults,
    dns_label_faults,
    dns_subdomain,
    dns_subdomain_faults,
    ip_faults,
    label_faults,
    qualified_name_faults,
    relative_path_faults,
)
from pinnace.model.field_errors import (
    Cause,
    duplicate,
    forbidden,
    invalid,
    not_found,
    not_supported,
    required,
    too_long,
)
from pinnace.model.objects import Object

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
# Most pods have none of these, and one look tells.
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
_CLAIM = GoStruct("Name='' ResourceClaimName ResourceClaimTemplateName")


def pod_faults(pod: Object) -> list[Cause]:
    """Every fault of the pod itself, as it is checked on create and on every change."""
    faults: list[Cause] = []
    spec, metadata = pod["spec"], pod["metadata"]
    annotations = metadata.get("annotations")
    if annotations:
        pod_annotation_faults(annotations, spec, "metadata.annotations", faults)
    pod_spec_faults(spec, "spec", faults, metadata=metadata)
    if not spec.get("serviceAccountName"):
        _token_without_account_faults(spec, faults)
    for field in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(field, ())):
            image_space_faults(container, f"spec.{field}[{index}]", faults)
    return faults


def pod_creation_faults(pod: Object) -> list[Cause]:
    """Every fault of a pod that is about to be created."""
    faults = pod_faults(pod)
    spec = pod["spec"]
    if spec.get("ephemeralContainers"):
        faults.append(forbidden("spec.ephemeralContainers", "cannot be set on create"))
    if spec.get("nodeName") and spec.get("schedulingGates"):
        faults.append(forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared"))
    annotations = pod["metadata"].get("annotations")
    if annotations:
        _profile_mismatch_faults(annotations, spec, "spec", faults)
    return faults


def template_faults(template: Object, path: str, faults: list[Cause]) -> None:
    """Every fault of a pod template; what may become of it is for the kind that holds it to say."""
    metadata, spec = template.get("metadata", {}), template.get("spec", {})
    label_faults(metadata.get("labels"), f"{path}.labels", faults)
    annotations = metadata.get("annotations")
    if annotations:
        annotation_faults(annotations, f"{path}.annotations", faults)
        pod_annotation_faults(annotations, spec, f"{path}.annotations", faults)
    pod_spec_faults(spec, f"{path}.spec", faults, metadata=None)
    if annotations:
        _profile_mismatch_faults(annotations, spec, f"{path}.spec", faults)
    if spec.get("ephemeralContainers"):
        detail = "ephemeral containers not allowed in pod template"
        faults.append(forbidden(f"{path}.spec.ephemeralContainers", detail))


def pod_spec_faults(spec: Object, path: str, faults: list[Cause], *, metadata: Object | None) -> None:
    """`metadata` is a pod's own, and None for a template."""
    is_pod = metadata is not None
    volumes = spec.get("volumes")
    sound: dict[str, Object] = {}
    if volumes:
        sound = volume_faults(volumes, f"{path}.volumes", faults, metadata.get("name", "") if metadata else "")
        if is_pod:
            _image_reference_faults(volumes, f"{path}.volumes", faults)
    claims = spec.get("resourceClaims") or ()
    if claims:
        _claims_faults(claims, metadata, f"{path}.resourceClaims", faults)
    restart_policy = spec.get("restartPolicy", "")
    around = Surroundings(
        volumes=sound,
        claims=frozenset(claim["name"] for claim in claims if claim.get("name")) if claims else _NO_CLAIMS,
        restart_policy=restart_policy,
        grace_period=spec.get("terminationGracePeriodSeconds", 0),
        host_users=spec.get("hostUsers") is not False,
    )
    containers = spec.get("containers") or []
    containers_faults(containers, around, f"{path}.containers", faults)
    if before := spec.get("initContainers"):
        init_containers_faults(before, containers, around, f"{path}.initContainers", faults)
    if beside := spec.get("ephemeralContainers"):
        others = containers + spec.get("initContainers", [])
        ephemeral_containers_faults(beside, others, around, f"{path}.ephemeralContainers", faults)
    if "resources" in spec:
        pod_level_faults(spec, f"{path}.resources", faults, around.claims)
    if spec.get("hostNetwork"):
        _host_network_faults(containers, f"{path}.containers", faults, is_pod=is_pod)
    if restart_policy not in _RESTART_POLICIES:
        faults.append(not_supported(f"{path}.restartPolicy", restart_policy, _RESTART_POLICIES))
    if spec.get("dnsPolicy", "") not in _DNS_POLICIES:
        faults.append(not_supported(f"{path}.dnsPolicy", spec.get("dnsPolicy", ""), _DNS_POLICIES))
    if "nodeSelector" in spec:
        label_faults(spec["nodeSelector"], f"{path}.nodeSelector", faults)
    if spec.get("securityContext") or spec.get("hostPID"):
        pod_security_faults(spec, path, faults)
    if not _PLACEMENT_FIELDS.isdisjoint(spec) or spec.get("dnsPolicy") == "None":
        _placement_faults(spec, path, faults)
    _windows_faults(spec, path, faults)
    # In the order of Kubernetes, though few pods have any of the rare fields that stand between the others.
    is_rare = not _RARE_FIELDS.isdisjoint(spec)
    if is_rare:
        _host_faults(spec, path, faults)
    _name_faults(spec, "serviceAccountName", path, faults)
    _name_faults(spec, "nodeName", path, faults)
    if is_rare:
        _deadline_and_hostname_faults(spec, path, faults)
    if tolerations := spec.get("tolerations"):
        toleration_faults(tolerations, f"{path}.tolerations", faults)
    if is_rare:
        _host_alias_faults(spec, path, faults)
    _name_faults(spec, "priorityClassName", path, faults)
    if is_rare:
        _class_faults(spec, path, faults)
    _file_key_volume_faults(spec, path, faults)


def _placement_faults(spec: Object, path: str, faults: list[Cause]) -> None:
    if affinity := spec.get("affinity"):
        affinity_faults(affinity, f"{path}.affinity", faults)
    if spec.get("dnsPolicy") == "None" or "dnsConfig" in spec:
        _dns_faults(spec, f"{path}.dnsConfig", faults)
    for index, gate in enumerate(spec.get("readinessGates", ())):
        where = f"{path}.readinessGates[{index}].conditionType"
        qualified_name_faults(gate.get("conditionType", ""), where, faults)
    if gates := spec.get("schedulingGates"):
        _gate_faults(gates, f"{path}.schedulingGates", faults)
    if constraints := spec.get("topologySpreadConstraints"):
        spread_faults(constraints, f"{path}.topologySpreadConstraints", faults)


def _windows_faults(spec: Object, path: str, faults: list[Cause]) -> None:
    for holder in (spec, *spec.get("containers", ()), *spec.get("initContainers", ())):
        context = holder.get("securityContext")
        if context and "windowsOptions" in context:
            host_process_faults(spec, path, faults)
            return


def _host_faults(spec: Object, path: str, faults: list[Cause]) -> None:
    if spec.get("hostUsers") is False:
        for field, shown in (("hostNetwork", "hostNetwork"), ("hostPID", "HostPID"), ("hostIPC", "HostIPC")):
            if spec.get(field):
                faults.append(forbidden(f"{path}.{shown}", "when `hostUsers` is false"))
        for container, where in containers_with_paths(spec, path):
            if container.get("volumeDevices"):
                faults.append(forbidden(f"{where}.volumeDevices", "when `hostUsers` is false"))
    override = spec.get("hostnameOverride")
    if override is not None:
        where = f"{path}.hostnameOverride"
        if spec.get("setHostnameAsFQDN"):
            faults.append(forbidden(where, "may not be specified when setHostnameAsFQDN is true"))
        if spec.get("hostNetwork"):
            faults.append(forbidden(where, "may not be specified when hostNetwork is true"))
        if len(override) > 64:
            faults.append(too_long(where, 64))
        dns_subdomain_faults(override, where, faults)


def _deadline_and_hostname_faults(spec: Object, path: str, faults: list[Cause]) -> None:
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= _LONGEST_DEADLINE:
        detail = f"must be between 1 and {_LONGEST_DEADLINE}, inclusive"
        faults.append(invalid(f"{path}.activeDeadlineSeconds", deadline, detail))
    for field in ("hostname", "subdomain"):
        if name := spec.get(field):
            dns_label_faults(name, f"{path}.{field}", faults)


def _host_alias_faults(spec: Object, path: str, faults: list[Cause]) -> None:
    for index, alias in enumerate(spec.get("hostAliases", ())):
        where = f"{path}.hostAliases[{index}]"
        ip_faults(alias.get("ip", ""), f"{where}.ip", faults)
        for position, hostname in enumerate(alias.get("hostnames", ())):
            dns_subdomain_faults(hostname, f"{where}.hostnames[{position}]", faults)


def _class_faults(spec: Object, path: str, faults: list[Cause]) -> None:
    if "runtimeClassName" in spec:
        dns_subdomain_faults(spec["runtimeClassName"], f"{path}.runtimeClassName", faults)
    policy = spec.get("preemptionPolicy")
    if policy is not None and policy not in ("PreemptLowerPriority", "Never"):
        supported = ["PreemptLowerPriority", "Never"]
        where = f"{path}.preemptionPolicy"
        faults.append(not_supported(where, policy, supported) if policy else required(where))
    if "overhead" in spec:
        overhead_faults(spec["overhead"], f"{path}.overhead", faults)
    if "os" in spec:
        os_faults(spec, path, faults)


def _name_faults(spec: Object, field: str, path: str, faults: list[Cause]) -> None:
    name = spec.get(field)
    if name and (wrong := dns_subdomain(name)):
        faults.extend(invalid(f"{path}.{field}", name, fault) for fault in wrong)


def _image_reference_faults(volumes: list[Object], path: str, faults: list[Cause]) -> None:
    for index, volume in enumerate(volumes):
        if volume.keys() - {"name"} == {"image"} and not volume["image"].get("reference"):
            faults.append(required(f"{path}[{index}].image.reference"))


def _token_without_account_faults(spec: Object, faults: list[Cause]) -> None:
    for index, volume in enumerate(spec.get("volumes", ())):
        if "projected" in volume:
            for position, source in enumerate(volume["projected"].get("sources") or ()):
                if "serviceAccountToken" in source:
                    where = f"spec.volumes[{index}].projected.sources[{position}].serviceAccountToken"
                    faults.append(forbidden(where, "must not be specified when serviceAccountName is not set"))


def _claims_faults(claims: list[Object], metadata: Object | None, path: str, faults: list[Cause]) -> None:
    if MIRROR in ((metadata or {}).get("annotations") or ()):
        faults.append(forbidden("", "static pods do not support resource claims"))
        return
    seen: set[str] = set()
    for index, claim in enumerate(claims):
        where = f"{path}[{index}]"
        name = claim.get("name", "")
        if not name:
            faults.append(required(f"{where}.name"))
        elif name in seen:
            faults.append(duplicate(f"{where}.name", name))
        else:
            dns_label_faults(name, f"{where}.name", faults)
            seen.add(name)
        sources = [field for field in ("resourceClaimName", "resourceClaimTemplateName") if field in claim]
        if len(sources) > 1:
            detail = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            faults.append(invalid(where, _CLAIM.view(claim), detail))
        if not sources:
            detail = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            faults.append(invalid(where, _CLAIM.view(claim), detail))
        for field in sources:
            dns_subdomain_faults(claim[field], f"{where}.{field}", faults)


def _host_network_faults(containers: list[Object], path: str, faults: list[Cause], *, is_pod: bool) -> None:
    for index, container in enumerate(containers):
        for position, port in enumerate(container.get("ports", ())):
            on_host, inside = port.get("hostPort", 0), port.get("containerPort", 0)
            if (is_pod or on_host) and on_host != inside:
                detail = "must match `containerPort` when `hostNetwork` is true"
                faults.append(invalid(f"{path}[{index}].ports[{position}].hostPort", on_host, detail))


def _dns_faults(spec: Object, path: str, faults: list[Cause]) -> None:
    config = spec.get("dnsConfig")
    if spec.get("dnsPolicy") == "None":
        if config is None:
            faults.append(required(path, "must provide `dnsConfig` when `dnsPolicy` is None"))
            return
        if not config.get("nameservers"):
            detail = "must provide at least one DNS nameserver when `dnsPolicy` is None"
            faults.append(required(f"{path}.nameservers", detail))
            return
    config = config or {}
    servers, searches = config.get("nameservers") or [], config.get("searches") or []
    if len(servers) > 3:
        faults.append(invalid(f"{path}.nameservers", servers, "must not have more than 3 nameservers"))
    for index, server in enumerate(servers):
        ip_faults(server, f"{path}.nameservers[{index}]", faults)
    if len(searches) > 32:
        faults.append(invalid(f"{path}.searches", searches, "must not have more than 32 search paths"))
    if len(" ".join(searches)) > 2048:
        detail = "must not have more than 2048 characters (including spaces) in the search list"
        faults.append(invalid(f"{path}.searches", searches, detail))
    for index, search in enumerate(searches):
        if search != ".":
            _search_faults(search.removesuffix("."), f"{path}.searches[{index}]", faults)
    for index, option in enumerate(config.get("options") or ()):
        if not option.get("name"):
            faults.append(required(f"{path}.options[{index}]", "must not be empty"))


def _search_faults(search: str, path: str, faults: list[Cause]) -> None:
    if len(search) > 253:
        faults.append(invalid(path, search, "must be no more than 253 characters"))
    if not _search_domain(search):
        detail = (
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '_', '-' or '.', "
            "and must start and end with an alphanumeric character "
            f"(e.g. 'example.com', regex used for validation is '{_search_pattern}')"
        )
        faults.append(invalid(path, search, detail))


def _gate_faults(gates: list[Object], path: str, faults: list[Cause]) -> None:
    seen: set[str] = set()
    for index, gate in enumerate(gates):
        name = gate.get("name", "")
        qualified_name_faults(name, f"{path}[{index}]", faults)
        if name in seen:
            faults.append(duplicate(f"{path}[{index}]", name))
        seen.add(name)


def _file_key_volume_faults(spec: Object, path: str, faults: list[Cause]) -> None:
    for field in ("initContainers", "containers", "ephemeralContainers"):
        for index, container in enumerate(spec[field]) if field in spec else ():
            for position, variable in enumerate(container["env"]) if "env" in container else ():
                if "valueFrom" in variable and "fileKeyRef" in variable["valueFrom"]:
                    name = variable["valueFrom"]["fileKeyRef"].get("volumeName", "")
                    where = f"{path}.{field}[{index}].env[{position}].valueFrom.fileKeyRef.volumeName"
                    volume = next((v for v in spec.get("volumes", ()) if v.get("name", "") == name), None)
                    if volume is None:
                        faults.append(not_found(where, name))
                    elif "emptyDir" not in volume:
                        faults.append(invalid(where, name, "referenced volume must be of type emptyDir"))


def pod_annotation_faults(annotations: dict[str, str], spec: Object, path: str, faults: list[Cause]) -> None:
    """Annotations that mean something to Kubernetes itself."""
    if MIRROR in annotations and not spec.get("nodeName"):
        detail = "must set spec.nodeName if mirror pod annotation is set"
        faults.append(invalid(f"{path}[{MIRROR}]", annotations[MIRROR], detail))
    cost = annotations.get(_DELETION_COST)
    if cost is not None and not (_deletion_cost(cost) and -(2**31) <= int(cost) < 2**31):
        faults.append(invalid(f"{path}[{_DELETION_COST}]", cost, "must be a 32bit integer"))
    for key, value in annotations.items():
        if not key.startswith(_PROFILE_PREFIXES):
            continue
        if key == SECCOMP_POD or key.startswith(SECCOMP_PREFIX):
            if value.startswith("localhost/"):
                relative_path_faults(value.removeprefix("localhost/"), f"{path}.{key}", faults)
            elif value not in ("runtime/default", "docker/default", "unconfined"):
                faults.append(invalid(f"{path}.{key}", value, "must be a valid seccomp profile"))
        elif key.startswith(APP_ARMOR_PREFIX):
            name = key.removeprefix(APP_ARMOR_PREFIX)
            if not any(container.get("name", "") == name for container, _ in containers_with_paths(spec, "")):
                faults.append(invalid(f"{path}[{key}]", name, "container not found"))
            if value not in ("", "runtime/default", "unconfined") and not value.startswith("localhost/"):
                faults.append(invalid(f"{path}[{key}]", value, f'invalid AppArmor profile name: "{value}"'))


def _profile_mismatch_faults(annotations: dict[str, str], spec: Object, path: str, faults: list[Cause]) -> None:
    """Profiles were annotations once; where both are given they must agree."""
    if not any(key.startswith(_PROFILE_PREFIXES) for key in annotations):
        return
    context = spec.get("securityContext") or {}
    if SECCOMP_POD in annotations and "seccompProfile" in context:
        where = f"{path}.securityContext.seccompProfile"
        _mismatch(annotations[SECCOMP_POD], context["seccompProfile"], "seccomp", where, faults)
    for container, where in containers_with_paths(spec, path):
        own = (container.get("securityContext") or {}).get("seccompProfile")
        said = annotations.get(SECCOMP_PREFIX + container.get("name", ""))
        if own is not None and said is not None:
            _mismatch(said, own, "seccomp", f"{where}.securityContext.seccompProfile", faults)
    if spec.get("os", {}).get("name") == "windows":
        return
    for container, where in containers_with_paths(spec, path):
        own = (container.get("securityContext") or {}).get("appArmorProfile") or context.get("appArmorProfile")
        said = annotations.get(APP_ARMOR_PREFIX + container.get("name", ""))
        if own is not None and said is not None:
            _mismatch(said, own, "apparmor", f"{where}.securityContext.appArmorProfile", faults)


def _mismatch(annotation: str, profile: Object, technology: str, path: str, faults: list[Cause]) -> None:
    kind = profile.get("type")
    agreeing = {"Unconfined": ("unconfined",), "RuntimeDefault": ("runtime/default", "docker/default")}
    if kind == "Localhost" and annotation.startswith("localhost/"):
        if annotation.removeprefix("localhost/") != profile.get("localhostProfile"):
            detail = f"{technology} profile in annotation and field must match"
            faults.append(forbidden(f"{path}.localhostProfile", detail))
    elif kind == "Localhost" or annotation not in agreeing.get(kind or "", (annotation,)):
        faults.append(forbidden(f"{path}.type", f"{technology} type in annotation and field must match"))
