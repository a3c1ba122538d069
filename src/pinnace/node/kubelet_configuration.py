"""Reads a KubeletConfiguration: each of its fields acts, is what this node does anyway, or is refused or named."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pinnace.model import quantity
from pinnace.model.objects import Object
from pinnace.node.agent.status.registration import MAX_PODS
from pinnace.node.pressure.signals import CONDITIONS, DEFAULT_THRESHOLDS, parse_thresholds
from pinnace.node.resources.alignment.node_resources import ResourcePolicies
from pinnace.node.resources.alignment.policy_fields import (
    POLICY_FIELDS,
    POLICY_TYPES,
    check_policies,
    policies_of,
    with_reserved_cpus,
)
from pinnace.schema.configuration.documents import (
    FLAG,
    TEXT,
    TEXTS,
    check_fields,
    items,
    read_file,
    read_yaml,
    structure,
)
from pinnace.schema.configuration.errors import ConfigurationError

KIND = "KubeletConfiguration"
API_VERSION = "kubelet.config.k8s.io/v1beta1"
_INTEGER: Object = {"type": "integer", "format": "int64"}
_TEXT_MAP: Object = {"type": "object", "additionalProperties": TEXT}
_ANY: Object = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
_TAINT = structure(key=TEXT, value=TEXT, effect=TEXT, timeAdded=TEXT)
_AUTHENTICATION = structure(
    x509=structure(clientCAFile=TEXT),
    webhook=structure(enabled=FLAG, cacheTTL=TEXT),
    anonymous=structure(enabled=FLAG),
)
_AUTHORIZATION = structure(mode=TEXT, webhook=structure(cacheAuthorizedTTL=TEXT, cacheUnauthorizedTTL=TEXT))
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_RESERVABLE = ("cpu", "memory", "ephemeral-storage", "pid")


@dataclass(slots=True, kw_only=True)
class KubeletSettings:
    """The settings of a node in a configuration; None and empty leave them to the flags."""

    manifests: Path | None = None
    port: int | None = None
    healthz_port: int | None = None
    has_signed_certificate: bool | None = None
    max_pods: int | None = None
    eviction_hard: str | None = None
    unsafe_sysctls: Sequence[str] = ()
    feature_gates: str = ""
    taints: Sequence[Mapping[str, str]] = ()
    reserved: Mapping[str, str] = field(default_factory=dict)
    """The resources of the machine that pods may not use."""
    log_max_bytes: int | None = None
    log_max_files: int | None = None
    policies: ResourcePolicies = field(default_factory=ResourcePolicies)
    """How the node shares out CPUs, memory and swap."""
    warnings: Sequence[str] = ()
    """The fields without effect."""


def read_kubelet_configuration(path: Path | None, directory: Path | None = None) -> KubeletSettings:
    """Read a file, and the drop-ins *.conf of a directory in their order. Raise ConfigurationError."""
    files = [path] if path is not None else []
    if directory is not None:
        if not directory.is_dir():
            raise ConfigurationError(f"{directory} is not a directory; expected one with drop-ins named *.conf")
        files += sorted(directory.glob("*.conf"))
    merged: Object = {}
    for file in files:
        document = read_yaml(read_file(file), file, KIND)
        actual = (document.pop("apiVersion", None), document.pop("kind", None))
        if actual != (API_VERSION, KIND):
            raise ConfigurationError(
                f"{file}: expected kind {KIND} of apiVersion {API_VERSION}, found kind {actual[1]} of {actual[0]}"
            )
        check_fields(document, file, structure(**_FIELDS))
        merged = _merge(merged, document)
    settings = KubeletSettings()
    errors = [error for name, value in merged.items() if (error := _take(settings, name, value))]
    errors += _errors_together(merged)
    if errors:
        where = path or directory
        listed = errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]"
        raise ConfigurationError(f"{where}: invalid configuration: {listed}")
    settings.eviction_hard = _thresholds(merged)
    settings.reserved = _reserved(merged)
    settings.policies = policies_of(merged)
    settings.warnings = [
        f"{name} has no effect on this node" for name in merged if name in _WITHOUT_EFFECT and merged[name] is not None
    ]
    return settings


def _merge(first: Object, second: Object) -> Object:
    """Return the first document changed by the second: objects are merged, all else is replaced."""
    merged = dict(first)
    for name, value in second.items():
        known = merged.get(name)
        merged[name] = _merge(known, value) if isinstance(known, dict) and isinstance(value, dict) else value
    return merged


def _take(settings: KubeletSettings, name: str, value: Any) -> str:
    """Apply one field. Return the error."""
    if value is None:
        return ""
    if name in _ACTING:
        return _ACTING[name](settings, value)
    if name in _FIXED:
        expected, reason = _FIXED[name]
        return "" if value in expected else f"{name} {_format(value)} is not supported: {reason}"
    if name in _REFUSED:
        return f"{name} is not supported: {_REFUSED[name]}"
    return ""


def _format(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)


# Fields that act.


def _set_manifests(settings: KubeletSettings, value: str) -> str:
    settings.manifests = Path(value) if value else None
    return "" if not value or value.startswith("/") else f"staticPodPath {value!r} must be an absolute path"


def _port(name: str, flag: str, attribute: str, least: int) -> Callable[[KubeletSettings, int], str]:
    def take(settings: KubeletSettings, value: int) -> str:
        setattr(settings, attribute, value)
        return "" if least <= value <= 65535 else f"{name} (--{flag}) {value} must be between 1 and 65535, inclusive"

    return take


def _set_bootstrap(settings: KubeletSettings, value: bool) -> str:
    settings.has_signed_certificate = value
    return ""


def _set_max_pods(settings: KubeletSettings, value: int) -> str:
    settings.max_pods = value or MAX_PODS
    return "" if value >= 0 else f"maxPods (--max-pods) {value} must not be a negative number"


def _set_sysctls(settings: KubeletSettings, value: list[str]) -> str:
    settings.unsafe_sysctls = value
    return ""


def _set_gates(settings: KubeletSettings, value: Mapping[str, bool]) -> str:
    settings.feature_gates = ",".join(f"{gate}={str(is_on).lower()}" for gate, is_on in value.items())
    return ""


def _set_taints(settings: KubeletSettings, value: list[Mapping[str, str]]) -> str:
    for taint in value:
        if not taint.get("key") or taint.get("effect") not in _EFFECTS:
            return f"invalid taint: {taint.get('key', '')}={taint.get('value', '')}:{taint.get('effect', '')}"
        if taint.get("timeAdded"):
            return "taint.TimeAdded is not nil"
    settings.taints = value
    return ""


def _set_log_size(settings: KubeletSettings, value: str) -> str:
    try:
        settings.log_max_bytes = quantity.parse(value).value
    except ValueError:
        return f"containerLogMaxSize {value!r} is no quantity such as 10Mi"
    return "" if settings.log_max_bytes > 0 else "containerLogMaxSize must be greater than 0"


def _set_log_files(settings: KubeletSettings, value: int) -> str:
    settings.log_max_files = value
    return "" if value > 1 else "containerLogMaxFiles must be greater than 1"


def _ignore(settings: KubeletSettings, value: object) -> str:
    """Accept a field that is read together with others."""
    return ""


_ACTING: Mapping[str, Callable[[KubeletSettings, Any], str]] = {
    "staticPodPath": _set_manifests,
    "port": _port("port", "port", "port", 1),
    "healthzPort": _port("healthzPort", "healthz-port", "healthz_port", 0),
    "serverTLSBootstrap": _set_bootstrap,
    "maxPods": _set_max_pods,
    "allowedUnsafeSysctls": _set_sysctls,
    "featureGates": _set_gates,
    "registerWithTaints": _set_taints,
    "containerLogMaxSize": _set_log_size,
    "containerLogMaxFiles": _set_log_files,
    "evictionHard": _ignore,
    "mergeDefaultEvictionSettings": _ignore,
    "kubeReserved": _ignore,
    "systemReserved": _ignore,
    "authentication": _ignore,
    "authorization": _ignore,
    **dict.fromkeys(POLICY_FIELDS, _ignore),
}


def _thresholds(merged: Object) -> str | None:
    """Return the thresholds in the notation of --eviction-hard."""
    stated = merged.get("evictionHard")
    if stated is None:
        return None
    if merged.get("mergeDefaultEvictionSettings"):
        defaults = {threshold.signal: threshold.text for threshold in parse_thresholds(DEFAULT_THRESHOLDS)}
        stated = {**defaults, **stated}
    return ",".join(f"{signal}<{text}" for signal, text in stated.items())


def _reserved(merged: Object) -> dict[str, str]:
    """Return the sum of what is reserved for the system and for kubelet."""
    total: dict[str, quantity.Quantity] = {}
    for name in ("kubeReserved", "systemReserved"):
        for resource, text in with_reserved_cpus(merged, name).items():
            amount = quantity.parse(text)
            total[resource] = total[resource] + amount if resource in total else amount
    return {resource: str(amount) for resource, amount in total.items() if resource != "pid"}


def _errors_together(merged: Object) -> Iterator[str]:
    """Yield the errors of fields that are read together with others, or inside of others."""
    try:
        parse_thresholds(_thresholds(merged) or "")
    except ValueError as error:
        yield f"evictionHard: {error}; the signals of this node are {', '.join(CONDITIONS)}"
    for name in ("kubeReserved", "systemReserved"):
        for resource, text in (merged.get(name) or {}).items():
            if resource not in _RESERVABLE:
                yield f"{name}: cannot reserve {resource!r} resource"
            elif not re.fullmatch(r"[0-9.]+[A-Za-z]*", text):
                yield f"{name}: {text!r} is no quantity of {resource}"
    yield from check_policies(merged)
    authentication = merged.get("authentication") or {}
    if (authentication.get("anonymous") or {}).get("enabled"):
        yield "authentication.anonymous.enabled true is not supported: the node's server knows all its callers"
    if (authentication.get("webhook") or {}).get("enabled") is False:
        yield "authentication.webhook.enabled false is not supported: tokens are reviewed by the cluster"
    if file := (authentication.get("x509") or {}).get("clientCAFile"):
        yield f"authentication.x509.clientCAFile {file!r} is not supported: the CA of clients is the cluster's"
    if (mode := (merged.get("authorization") or {}).get("mode", "Webhook")) != "Webhook":
        yield f"authorization.mode {mode!r} is not supported: the cluster authorizes the callers of the node's server"


_FIXED: Mapping[str, tuple[tuple[Any, ...], str]] = {
    "enableServer": ((True,), "the API server reaches the node by its server"),
    "address": (("", "0.0.0.0", "::"), "the server of the node listens on --node-ip"),
    "readOnlyPort": ((0,), "there is no server without authentication"),
    "rotateCertificates": ((True,), "the client certificate is always renewed"),
    "clusterDomain": (("", "cluster.local"), "the domain of Services is cluster.local"),
    "cgroupDriver": (("cgroupfs",), "the node keeps its control groups itself"),
    "cgroupsPerQOS": ((True,), "pods have control groups by their quality of service"),
    "registerNode": ((True,), "the node registers itself"),
    "hairpinMode": (("promiscuous-bridge", "hairpin-veth", ""), "expected promiscuous-bridge, hairpin-veth"),
    "enableControllerAttachDetach": ((True,), "volumes are attached by the controller"),
    "enableDebuggingHandlers": ((True,), "logs and exec are always served"),
    "podPidsLimit": ((-1,), "each pod has at most 4096 processes"),
    "runOnce": ((False,), "Runonce mode has been deprecated and should not be set"),
    "seccompDefault": ((False,), "set a seccompProfile in the pods"),
    "protectKernelDefaults": ((False,), "the node does not compare settings of the kernel"),
    "localStorageCapacityIsolation": ((True,), "the limits of ephemeral storage always hold"),
}
"""The values that mean what the node does anyway, and why there are no others."""
_REFUSED: Mapping[str, str] = {
    "tlsCertFile": "use serverTLSBootstrap, or the self-signed certificate",
    "tlsPrivateKeyFile": "use serverTLSBootstrap, or the self-signed certificate",
    "tlsCipherSuites": "the ciphers are those of OpenSSL's defaults",
    "tlsMinVersion": "the least version is that of OpenSSL's defaults, TLS 1.2",
    "tlsCurvePreferences": "the curves are those of OpenSSL's defaults",
    "staticPodURL": "static pods are read from staticPodPath",
    "staticPodURLHeader": "static pods are read from staticPodPath",
    "evictionSoft": "pods are evicted at the thresholds of evictionHard alone",
    "evictionSoftGracePeriod": "pods are evicted at the thresholds of evictionHard alone",
    "evictionMinimumReclaim": "pods are evicted at the thresholds of evictionHard alone",
    "qosReserved": "use systemReserved",
    "defaultPodSysctls": "set them in the pods",
    "shutdownGracePeriod": "the node does not delay the shutdown of the machine",
    "shutdownGracePeriodCriticalPods": "the node does not delay the shutdown of the machine",
    "shutdownGracePeriodByPodPriority": "the node does not delay the shutdown of the machine",
    "imagePullCredentialsVerificationPolicy": "images that are there are not checked again",
    "preloadedImagesVerificationAllowlist": "images that are there are not checked again",
    "userNamespaces": "the node chooses the ids of pods itself",
    "containerRuntimeEndpoint": "the node has a runtime of its own",
    "imageServiceEndpoint": "the node has a runtime of its own",
    "clusterDNS": "the address of DNS is the tenth of --service-cluster-ip-range",
    "podCIDR": "use --pod-network",
    "podsPerCore": "use maxPods",
    "providerID": "set it in the Node",
}
_WITHOUT_EFFECT: Mapping[str, Object] = {
    **dict.fromkeys(
        (
            "podLogsDir", "syncFrequency", "fileCheckFrequency", "httpCheckFrequency", "healthzBindAddress",
            "streamingConnectionIdleTimeout", "nodeStatusUpdateFrequency", "nodeStatusReportFrequency",
            "imageMinimumGCAge", "imageMaximumGCAge", "volumeStatsAggPeriod", "kubeletCgroups", "systemCgroups",
            "cgroupRoot", "runtimeRequestTimeout", "resolvConf",
            "cpuCFSQuotaPeriod", "contentType", "evictionPressureTransitionPeriod", "containerLogMonitorInterval",
            "configMapAndSecretChangeDetectionStrategy", "showHiddenMetricsForVersion", "systemReservedCgroup",
            "kubeReservedCgroup", "volumePluginDir", "memoryReservationPolicy",
        ),
        TEXT,
    ),
    **dict.fromkeys(
        (
            "registryPullQPS", "registryBurst", "eventRecordQPS", "eventBurst", "oomScoreAdj",
            "nodeLeaseDurationSeconds", "imageGCHighThresholdPercent", "imageGCLowThresholdPercent",
            "nodeStatusMaxImages", "maxOpenFiles", "kubeAPIQPS", "kubeAPIBurst", "maxParallelImagePulls",
            "evictionMaxPodGracePeriod", "iptablesMasqueradeBit", "iptablesDropBit", "containerLogMaxWorkers",
        ),
        _INTEGER,
    ),
    **dict.fromkeys(
        (
            "enableContentionProfiling", "singleProcessOOMKill", "cpuCFSQuota", "serializeImagePulls",
            "makeIPTablesUtilChains", "kernelMemcgNotification", "enableSystemLogHandler", "enableSystemLogQuery",
            "enableProfilingHandler", "enableDebugFlagsHandler", "failCgroupV1",
        ),
        FLAG,
    ),
    "enforceNodeAllocatable": TEXTS,
    "memoryThrottlingFactor": {"type": "number"},
    "logging": _ANY,
    "tracing": _ANY,
    "crashLoopBackOff": _ANY,
}  # fmt: skip
"""Fields that tune kubelet: they are accepted, and named in the log."""
_OTHER_TYPES: Mapping[str, Object] = {
    **dict.fromkeys(("port", "healthzPort", "maxPods", "containerLogMaxFiles", "readOnlyPort"), _INTEGER),
    **dict.fromkeys(("podPidsLimit", "podsPerCore"), _INTEGER),
    **dict.fromkeys(("evictionHard", "kubeReserved", "systemReserved", "evictionSoft", "qosReserved"), _TEXT_MAP),
    **dict.fromkeys(("evictionSoftGracePeriod", "evictionMinimumReclaim", "defaultPodSysctls"), _TEXT_MAP),
    **dict.fromkeys(("allowedUnsafeSysctls", "tlsCipherSuites", "preloadedImagesVerificationAllowlist"), TEXTS),
    **dict.fromkeys(("clusterDNS",), TEXTS),
    **dict.fromkeys(("staticPodURLHeader", "userNamespaces"), _ANY),
    **POLICY_TYPES,
    "shutdownGracePeriodByPodPriority": items(_ANY),
    "tlsCurvePreferences": items(_INTEGER),
    "featureGates": {"type": "object", "additionalProperties": FLAG},
    "registerWithTaints": items(_TAINT),
    "authentication": _AUTHENTICATION,
    "authorization": _AUTHORIZATION,
}
_FLAGS = frozenset(("serverTLSBootstrap", "mergeDefaultEvictionSettings"))


def _type_of(name: str) -> Object:
    if name in _FLAGS or isinstance(_FIXED.get(name, ((None,), ""))[0][0], bool):
        return FLAG
    return _WITHOUT_EFFECT.get(name) or _OTHER_TYPES.get(name) or TEXT


_FIELDS: Mapping[str, Object] = {name: _type_of(name) for name in (*_ACTING, *_FIXED, *_REFUSED, *_WITHOUT_EFFECT)}
