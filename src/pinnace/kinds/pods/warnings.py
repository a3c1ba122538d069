"""Warnings about valid pods and pod templates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from pinnace.kinds.pods.security import containers_with_paths
from pinnace.kinds.pods.validation import APP_ARMOR_PREFIX, SECCOMP_POD, SECCOMP_PREFIX
from pinnace.kinds.validation.addresses import ip_warnings
from pinnace.kinds.validation.fields import find_repeats
from pinnace.kinds.validation.node_selectors import DEPRECATED_NODE_LABELS
from pinnace.kinds.volumes.claims import claim_spec_warnings
from pinnace.model.objects import AnyObject
from pinnace.model.quantity import parse
from pinnace.model.typed_objects import (
    ContainerPort,
    EnvVar,
    NodeSelectorTerm,
    Pod,
    PodAffinity,
    PodAntiAffinity,
    PodSpec,
    PodTemplateSpec,
    Volume,
    VolumeProjection,
)

_DEPRECATED_LABELS = {
    **DEPRECATED_NODE_LABELS,
    "node-role.kubernetes.io/master": 'use "node-role.kubernetes.io/control-plane" instead',
}
_DEPRECATED_ANNOTATIONS = {
    "scheduler.alpha.kubernetes.io/critical-pod": 'non-functional in v1.16+; use the "priorityClassName" field instead',
    "security.alpha.kubernetes.io/sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
    "security.alpha.kubernetes.io/unsafe-sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
}
_DEPRECATED_VOLUMES = {
    "photonPersistentDisk": ("photonPersistentDisk", "deprecated in v1.11, non-functional in v1.16+"),
    "gitRepo": ("gitRepo", "deprecated in v1.11, and disabled by default in v1.33+"),
    "scaleIO": ("scaleIO", "deprecated in v1.16, non-functional in v1.22+"),
    "flocker": ("flocker", "deprecated in v1.22, non-functional in v1.25+"),
    "storageos": ("storageOS", "deprecated in v1.22, non-functional in v1.25+"),
    "quobyte": ("quobyte", "deprecated in v1.22, non-functional in v1.25+"),
    "glusterfs": ("glusterfs", "deprecated in v1.25, non-functional in v1.26+"),
    "cephfs": ("cephfs", "deprecated in v1.28, non-functional in v1.31+"),
    "rbd": ("rbd", "deprecated in v1.28, non-functional in v1.31+"),
}
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_PLACEMENT_FIELDS = frozenset({"nodeSelector", "affinity", "topologySpreadConstraints"})
_REPEATING_FIELDS = frozenset({"hostAliases", "imagePullSecrets", "overhead"})
_ADDRESS_FIELDS = frozenset({"dnsConfig", "hostAliases"})
_NO_SELECTOR = "a null labelSelector results in matching no pod"


def template_warnings(template: PodTemplateSpec | Pod, path: str) -> Iterator[str]:
    """Yield warnings about a template at `path`, or about a pod, whose path is empty."""
    spec = template.get("spec") or {}
    metadata = template.get("metadata") or {}
    prefix = f"{path}." if path else ""
    if not _PLACEMENT_FIELDS.isdisjoint(spec):
        yield from _placement_warnings(spec, f"{prefix}spec")
    annotations = metadata.get("annotations") or {}
    if annotations:
        yield from _annotation_warnings(annotations, f"{prefix}metadata.annotations")
    if "volumes" in spec:
        yield from _volume_warnings(spec["volumes"], f"{prefix}spec.volumes")
        yield from _overlap_warnings(spec["volumes"])
    if not _REPEATING_FIELDS.isdisjoint(spec):
        yield from _repetition_warnings(spec, f"{prefix}spec")
    if annotations:
        yield from _profile_warnings(spec, annotations, prefix)
    for container, where in containers_with_paths(spec, f"{prefix}spec"):
        if resources := container.get("resources"):
            yield from _fraction_warnings(resources, f"{where}.resources")
        if len(container.get("env", ())) > 1:
            yield from _env_warnings(container["env"], f"{where}.env")
    yield from _port_warnings(spec, f"{prefix}spec")
    if spec.get("terminationGracePeriodSeconds", 0) < 0:
        yield (
            f"{prefix}spec.terminationGracePeriodSeconds: must be >= 0; "
            "negative values are invalid and will be treated as 1"
        )
    for field in ("podAffinity", "podAntiAffinity") if spec.get("affinity") else ():
        yield from _selector_warnings(spec["affinity"].get(field) or {}, f"{prefix}spec.affinity.{field}")
    if not _ADDRESS_FIELDS.isdisjoint(spec):
        yield from _address_warnings(spec, f"{prefix}spec")


def _annotation_warnings(annotations: dict[str, str], path: str) -> Iterator[str]:
    for key, message in _DEPRECATED_ANNOTATIONS.items():
        if key in annotations:
            yield f"{path}[{key}]: {message}"


def _address_warnings(spec: PodSpec, path: str) -> Iterator[str]:
    for index, server in enumerate((spec.get("dnsConfig") or {}).get("nameservers", ())):
        yield from ip_warnings(server, f"{path}.dnsConfig.nameservers[{index}]")
    for index, alias in enumerate(spec.get("hostAliases", ())):
        yield from ip_warnings(alias.get("ip", ""), f"{path}.hostAliases[{index}].ip")


def _placement_warnings(spec: PodSpec, path: str) -> Iterator[str]:
    for key in spec.get("nodeSelector", ()):
        if key in _DEPRECATED_LABELS:
            yield f"{path}.nodeSelector[{key}]: {_DEPRECATED_LABELS[key]}"
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    terms = (affinity.get(_REQUIRED) or {}).get("nodeSelectorTerms") or ()
    for index, term in enumerate(terms):
        yield from _term_warnings(term, f"{path}.affinity.nodeAffinity.{_REQUIRED}.nodeSelectorTerms[{index}]")
    for index, weighted in enumerate(affinity.get(_PREFERRED) or ()):
        where = f"{path}.affinity.nodeAffinity.{_PREFERRED}[{index}].preference"
        yield from _term_warnings(weighted.get("preference") or {}, where)
    for index, constraint in enumerate(spec.get("topologySpreadConstraints", ())):
        where, key = f"{path}.topologySpreadConstraints[{index}]", constraint.get("topologyKey", "")
        if key in _DEPRECATED_LABELS:
            yield f"{where}.topologyKey: {key} is {_DEPRECATED_LABELS[key]}"
        if "labelSelector" not in constraint:
            yield f"{where}.labelSelector: {_NO_SELECTOR}"


def _term_warnings(term: NodeSelectorTerm, path: str) -> Iterator[str]:
    for index, expression in enumerate(term.get("matchExpressions") or ()):
        key = expression.get("key", "")
        if key in _DEPRECATED_LABELS:
            yield f"{path}.matchExpressions[{index}].key: {key} is {_DEPRECATED_LABELS[key]}"


def _volume_warnings(volumes: list[Volume], path: str) -> Iterator[str]:
    for index, volume in enumerate(volumes):
        for source, (name, message) in _DEPRECATED_VOLUMES.items():
            if source in volume:
                yield f"{path}[{index}].{name}: {message}"
        template = volume.get("ephemeral", {}).get("volumeClaimTemplate")
        if template is not None:
            where = f"{path}[{index}].ephemeral.volumeClaimTemplate.spec"
            yield from claim_spec_warnings(template.get("spec", {}), where)


def _overlap_warnings(volumes: list[Volume]) -> Iterator[str]:
    """Yield warnings about files that overlap: the same path, or one inside the other."""
    for volume in volumes:
        name = volume.get("name", "")
        if "items" in volume.get("configMap", ()):
            label = f'ConfigMap "{volume["configMap"].get("name", "")}"'
            yield from _overlaps(_files(volume["configMap"]), f'volume "{name}" ({label})')
        if "items" in volume.get("secret", ()):
            label = f'Secret "{volume["secret"].get("secretName", "")}"'
            yield from _overlaps(_files(volume["secret"]), f'volume "{name}" ({label})')
        if "items" in volume.get("downwardAPI", ()):
            yield from _overlaps(_files(volume["downwardAPI"]), f'volume "{name}" (DownwardAPI)')
        if "projected" in volume:
            sources = volume["projected"].get("sources") or ()
            for _ in filter(lambda source: not source, sources):
                yield f'volume "{name}" (Projected) has no sources provided'
            files = [file for source in sources for file in _projected_files(source)]
            yield from _overlaps(files, f'volume "{name}" (Projected)')


def _files(source: AnyObject, origin: str = "") -> list[tuple[str, str]]:
    """Return the paths of the items of a volume's source, each with its origin."""
    return [(item.get("path", ""), origin) for item in source.get("items", ())]


def _projected_files(source: VolumeProjection) -> Iterator[tuple[str, str]]:
    if "configMap" in source:
        yield from _files(source["configMap"], f' (ConfigMap "{source["configMap"].get("name", "")}")')
    if "secret" in source:
        yield from _files(source["secret"], f' (Secret "{source["secret"].get("name", "")}")')
    if "downwardAPI" in source:
        yield from _files(source["downwardAPI"], " (DownwardAPI)")
    if "serviceAccountToken" in source:
        yield source["serviceAccountToken"].get("path", ""), " (ServiceAccountToken)"
    if "clusterTrustBundle" in source:
        bundle = source["clusterTrustBundle"]
        name = bundle.get("name", bundle.get("signerName", ""))
        yield bundle.get("path", ""), f' (ClusterTrustBundle "{name}")'
    if "podCertificate" in source:
        certificate = source["podCertificate"]
        yield certificate.get("certificateChainPath", ""), " (PodCertificate chain)"
        yield certificate.get("keyPath", ""), " (PodCertificate key)"
        yield certificate.get("credentialBundlePath", ""), " (PodCertificate credential bundle)"


def _overlaps(files: Iterable[tuple[str, str]], volume: str) -> Iterator[str]:
    seen: list[tuple[str, str]] = []
    for path, origin in files:
        path = path.rstrip("/")
        for other, other_origin in seen:
            if path and other and (f"{other}/".startswith(f"{path}/") or f"{path}/".startswith(f"{other}/")):
                yield f'{volume}: overlapping paths: "{path}"{origin} with "{other}"{other_origin}'
        seen.append((path, origin))


def _repetition_warnings(spec: PodSpec, path: str) -> Iterator[str]:
    addresses = [alias.get("ip", "") for alias in spec.get("hostAliases", ())]
    secrets = [secret.get("name", "") for secret in spec.get("imagePullSecrets", ())]
    for field, name, values in (("hostAliases", "ip", addresses), ("imagePullSecrets", "name", secrets)):
        repeated = find_repeats(values)
        for index, value in enumerate(values):
            if repeated[index]:
                yield f'{path}.{field}[{index}].{name}: duplicate {name} "{value}"'
    for index, secret in enumerate(secrets):
        if not secret:
            yield f'{path}.imagePullSecrets[{index}].name: invalid empty name ""'
    if "overhead" in spec:
        yield from _fraction_warnings({"overhead": spec["overhead"]}, path)


def _fraction_warnings(resources: Mapping[str, Any], path: str) -> Iterator[str]:
    for name in ("memory", "ephemeral-storage"):
        for what in ("limits", "requests", "overhead"):
            amount = resources[what].get(name) if what in resources else None
            if amount is not None and str(amount).endswith("m") and parse(amount).milli_value % 1000:
                parsed = parse(amount)
                yield f'{path}.{what}[{name}]: fractional byte value "{parsed}" is invalid, must be an integer'


def _profile_warnings(spec: PodSpec, annotations: dict[str, str], prefix: str) -> Iterator[str]:
    replaced = 'non-functional in v1.27+; use the "seccompProfile" field instead'
    if SECCOMP_POD in annotations and "seccompProfile" not in (spec.get("securityContext") or ()):
        yield f"{prefix}metadata.annotations[{SECCOMP_POD}]: {replaced}"
    for container, _ in containers_with_paths(spec, ""):
        context = container.get("securityContext") or {}
        key = SECCOMP_PREFIX + container.get("name", "")
        if key in annotations and "seccompProfile" not in context:
            yield f"{prefix}metadata.annotations[{key}]: {replaced}"
        key = APP_ARMOR_PREFIX + container.get("name", "")
        # Warnings about a pod's own fields come from elsewhere.
        if prefix and key in annotations and "appArmorProfile" not in context:
            message = 'deprecated since v1.30; use the "appArmorProfile" field instead'
            yield f"{prefix}metadata.annotations[{key}]: {message}"


def _env_warnings(variables: list[EnvVar], path: str) -> Iterator[str]:
    seen: set[str] = set()
    for index, variable in enumerate(variables):
        name, value = variable.get("name", ""), variable.get("value", "")
        if name in seen:
            reference = f"$({name})"
            if "valueFrom" in variable or value == reference or reference not in value:
                yield f'{path}[{index}]: hides previous definition of "{name}", which may be dropped when using apply'
        seen.add(name)


def _port_warnings(spec: PodSpec, path: str) -> Iterator[str]:
    ports = [
        (f"{where}.ports[{index}]", port)
        for container, where in containers_with_paths(spec, path)
        for index, port in enumerate(container.get("ports", ()))
    ]
    seen: dict[tuple[int, str], list[tuple[str, ContainerPort]]] = {}
    for where, port in ports:
        host_ip, host_port = port.get("hostIP", ""), port.get("hostPort", 0)
        if host_ip and not host_port:
            address = (
                f"{{Name:{port.get('name', '')} HostPort:0 ContainerPort:{port.get('containerPort', 0)} "
                f"Protocol:{port.get('protocol', '')} HostIP:{host_ip}}}"
            )
            yield f"{where}: hostIP set without hostPort: {address}"
        others = seen.setdefault((port.get("containerPort", 0), port.get("protocol", "")), [])
        for other_place, other in others:
            other_ip, other_port = other.get("hostIP", ""), other.get("hostPort", 0)
            if host_ip == other_ip and host_port == other_port:
                yield f"{where}: duplicate port definition with {other_place}"
            elif not host_port or not other_port:
                yield f"{where}: overlapping port definition with {other_place}"
            elif host_port == other_port and bool(host_ip) != bool(other_ip):
                yield f"{where}: dangerously ambiguous port definition with {other_place}"
        others.append((where, port))
    named: dict[str, str] = {}
    for where, port in ports:
        name = port.get("name", "")
        if name and name in named:
            first = named[name]
            yield (
                f'{where}: duplicate port name "{name}" with {first}, services and probes that select ports by name '
                f"will use {first}"
            )
        elif name:
            named[name] = where


def _selector_warnings(affinity: PodAffinity | PodAntiAffinity, path: str) -> Iterator[str]:
    for index, term in enumerate(affinity.get(_REQUIRED) or ()):
        if "labelSelector" not in term:
            yield f"{path}.{_REQUIRED}[{index}].labelSelector: {_NO_SELECTOR}"
    for index, weighted in enumerate(affinity.get(_PREFERRED) or ()):
        if "labelSelector" not in (weighted.get("podAffinityTerm") or {}):
            yield f"{path}.{_PREFERRED}[{index}].podAffinityTerm.labelSelector: {_NO_SELECTOR}"
