"""Defaults of pods and of every kind's pod template."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from pinnace.kinds.pods import resource_amounts
from pinnace.kinds.volumes.claims import default_claim_spec
from pinnace.kinds.volumes.sources import DEFAULTS
from pinnace.model.objects import Object
from pinnace.model.typed_objects import (
    ConfigMapVolumeSource,
    Container,
    DownwardAPIProjection,
    DownwardAPIVolumeSource,
    EnvVarSource,
    EphemeralVolumeSource,
    HostPathVolumeSource,
    HTTPGetAction,
    ImageVolumeSource,
    Lifecycle,
    ObjectFieldSelector,
    PodSpec,
    PodStatus,
    Probe,
    ProjectedVolumeSource,
    ResourceRequirements,
    SecretVolumeSource,
    Volume,
)
from pinnace.schema.text_cache import cache_short_texts

_FILE_MODE = 0o644
# Kubernetes drops these fields when they are empty, false or zero. It keeps all others.
_NOTHING_IN_SPEC = frozenset(
    {
        "hostNetwork",
        "hostPID",
        "hostIPC",
        "hostname",
        "subdomain",
        "nodeName",
        "priorityClassName",
        "serviceAccountName",
        "serviceAccount",
        "volumes",
        "initContainers",
        "ephemeralContainers",
        "nodeSelector",
        "tolerations",
        "hostAliases",
        "imagePullSecrets",
        "readinessGates",
        "schedulingGates",
        "topologySpreadConstraints",
        "resourceClaims",
        "overhead",
    }
)
_NOTHING_IN_CONTAINER = frozenset(
    {
        "stdin",
        "stdinOnce",
        "tty",
        "command",
        "args",
        "workingDir",
        "ports",
        "env",
        "envFrom",
        "volumeMounts",
        "volumeDevices",
        "resizePolicy",
    }
)
_NOTHING_IN_MOUNT = frozenset({"readOnly", "subPath", "subPathExpr"})
_domain_part = "(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])"
_path_part = "[a-z0-9]+(?:(?:[.]|_|__|-+)[a-z0-9]+)*"
_reference = re.compile(
    rf"(?:{_domain_part}(?:[.]{_domain_part})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?/{_path_part}(?:/{_path_part})*"
    r"(?::(?P<tag>[0-9A-Za-z_][0-9A-Za-z_.-]{0,127}))?"
    r"(?:@(?P<digest>[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}))?"
).fullmatch
_identifier = re.compile("[a-f0-9]{64}").fullmatch
_LIST_FIELDS = frozenset({"ports", "env", "volumeMounts"})
_PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")


def default_pod(pod: Object) -> None:
    """Set the defaults of pods that templates do not have: requests from limits, service links, host ports and mirrored
    addresses."""
    spec = pod.setdefault("spec", {})
    for containers in (spec.get("containers"), spec.get("initContainers")):
        for container in containers or ():
            _default_requests(container.get("resources"))
    if "resources" in spec:
        resource_amounts.default_pod_level_requests(spec)
    if "enableServiceLinks" not in spec:
        spec["enableServiceLinks"] = True
    if spec.get("hostNetwork"):
        _default_host_ports(spec)
    if spec.get("terminationGracePeriodSeconds", 0) < 0:
        spec["terminationGracePeriodSeconds"] = 1
    default_pod_spec(spec)
    status = pod.get("status")
    if status and (status.get("podIP") or status.get("podIPs")):
        _mirror_pod_ips(status)


def default_template(owner: Any, field: str = "template") -> None:
    """Set the defaults of the template in `owner[field]`, which is created if missing."""
    template = owner.get(field)
    if template is None:
        template = owner[field] = {}
    if "metadata" not in template:
        template["metadata"] = {}
    if "spec" not in template:
        template["spec"] = {}
    default_pod_spec(template["spec"])


def default_pod_spec(spec: PodSpec) -> None:
    for volume in spec.get("volumes", ()):
        _default_volume(volume)
    if spec.get("containers") is None:
        spec["containers"] = []  # Go writes null; validation rejects both.
    for field in ("containers", "initContainers", "ephemeralContainers"):
        for container in spec.get(field, ()):
            _default_container(container)
    if "overhead" in spec:
        resource_amounts.round_up(spec["overhead"])
    if not spec.get("restartPolicy"):
        spec["restartPolicy"] = "Always"
    if "terminationGracePeriodSeconds" not in spec:
        spec["terminationGracePeriodSeconds"] = 30
    if not spec.get("dnsPolicy"):
        spec["dnsPolicy"] = "ClusterFirst"
    account = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if account:
        spec["serviceAccountName"] = spec["serviceAccount"] = account
    if "securityContext" not in spec:
        spec["securityContext"] = {}
    if not spec.get("schedulerName"):
        spec["schedulerName"] = "default-scheduler"
    _drop_nothings(spec, _NOTHING_IN_SPEC)


def _drop_nothings(holder: Any, names: frozenset[str]) -> None:
    if not all(holder.values()):
        for name in [name for name, value in holder.items() if not value and name in names]:
            del holder[name]


def _default_container(container: Container) -> None:
    if not _LIST_FIELDS.isdisjoint(container):
        _default_container_lists(container)
    resources = container.get("resources")
    if resources is None:
        container["resources"] = {}
    elif resources:
        resource_amounts.round_up(resources.get("limits"))
        resource_amounts.round_up(resources.get("requests"))
    for name in _PROBES:
        probe = container.get(name)
        if probe is not None:
            _default_probe(probe)
    if lifecycle := container.get("lifecycle"):
        _default_lifecycle(lifecycle)
    if not container.get("terminationMessagePath"):
        container["terminationMessagePath"] = "/dev/termination-log"
    if not container.get("terminationMessagePolicy"):
        container["terminationMessagePolicy"] = "File"
    if not container.get("imagePullPolicy"):
        container["imagePullPolicy"] = pull_policy(container.get("image", ""))
    _drop_nothings(container, _NOTHING_IN_CONTAINER)


def _default_container_lists(container: Container) -> None:
    for port in container.get("ports") or ():
        if not port.get("protocol"):
            port["protocol"] = "TCP"
    for variable in container.get("env") or ():
        if "valueFrom" in variable:
            _default_env_source(variable["valueFrom"])
        if variable.get("value") == "":
            del variable["value"]
    for mount in container.get("volumeMounts") or ():
        if len(mount) > 2:
            _drop_nothings(mount, _NOTHING_IN_MOUNT)


def _default_lifecycle(lifecycle: Lifecycle) -> None:
    for moment in ("postStart", "preStop"):
        if "httpGet" in lifecycle.get(moment, ()):
            _default_http_get(lifecycle[moment]["httpGet"])


@cache_short_texts(4096)
def pull_policy(image: str) -> str:
    """Return Always for the tag latest, explicit or implied, else IfNotPresent. Text that is not an image reference is
    not latest."""
    first, slash, rest = image.partition("/")
    if not slash or not ({".", ":"} & set(first) or first == "localhost" or first != first.lower()):
        first, rest = "docker.io", image
    parts = _reference(f"{first}/{rest}")
    if parts is None or _identifier(image):
        return "IfNotPresent"
    tag = parts["tag"] or ("" if parts["digest"] else "latest")
    return "Always" if tag == "latest" else "IfNotPresent"


def _default_env_source(source: EnvVarSource) -> None:
    if "fieldRef" in source:
        _default_field_ref(source["fieldRef"])
    elif "resourceFieldRef" in source:
        source["resourceFieldRef"].setdefault("divisor", "0")
    elif "fileKeyRef" in source:
        source["fileKeyRef"].setdefault("optional", False)


def _default_field_ref(reference: ObjectFieldSelector) -> None:
    if not reference.get("apiVersion"):
        reference["apiVersion"] = "v1"


def _default_probe(probe: Probe) -> None:
    if "httpGet" in probe:
        _default_http_get(probe["httpGet"])
    elif "grpc" in probe:
        probe["grpc"]["service"] = probe["grpc"].get("service") or ""
    if not probe.get("timeoutSeconds"):
        probe["timeoutSeconds"] = 1
    if not probe.get("periodSeconds"):
        probe["periodSeconds"] = 10
    if not probe.get("successThreshold"):
        probe["successThreshold"] = 1
    if not probe.get("failureThreshold"):
        probe["failureThreshold"] = 3


def _default_http_get(action: HTTPGetAction) -> None:
    if not action.get("path"):
        action["path"] = "/"
    if not action.get("scheme"):
        action["scheme"] = "HTTP"


def _default_volume(volume: Volume) -> None:
    if len(volume) < 2 and not volume.keys() - {"name"}:
        volume["emptyDir"] = {}
        return
    for source, content in volume.items():
        fill = _VOLUME_DEFAULTS.get(source)
        if fill is not None:
            fill(content)


def _default_mode(
    source: SecretVolumeSource | ConfigMapVolumeSource | DownwardAPIVolumeSource | ProjectedVolumeSource,
) -> None:
    if "defaultMode" not in source:
        source["defaultMode"] = _FILE_MODE


def _default_downward_files(source: DownwardAPIVolumeSource | DownwardAPIProjection) -> None:
    for file in source.get("items", ()):
        if "fieldRef" in file:
            _default_field_ref(file["fieldRef"])
        elif "resourceFieldRef" in file:
            file["resourceFieldRef"].setdefault("divisor", "0")


def _default_downward_api(source: DownwardAPIVolumeSource) -> None:
    _default_mode(source)
    _default_downward_files(source)


def _default_projected(source: ProjectedVolumeSource) -> None:
    _default_mode(source)
    for projection in source.get("sources") or ():
        if "serviceAccountToken" in projection:
            projection["serviceAccountToken"].setdefault("expirationSeconds", 3600)
        elif "downwardAPI" in projection:
            _default_downward_files(projection["downwardAPI"])


def _default_host_path(source: HostPathVolumeSource) -> None:
    source.setdefault("type", "")


def _default_image(source: ImageVolumeSource) -> None:
    if not source.get("pullPolicy"):
        source["pullPolicy"] = pull_policy(source.get("reference", ""))


def _default_claim(source: EphemeralVolumeSource) -> None:
    template = source.get("volumeClaimTemplate")
    if template is not None:
        template.setdefault("metadata", {})
        spec = template.setdefault("spec", {})
        default_claim_spec(spec)
        spec.setdefault("resources", {})


def _fill_in(**values: Any) -> Callable[[Object], None]:
    def fill(source: Object) -> None:
        for name, value in values.items():
            if source.get(name) in (None, ""):
                source[name] = value

    return fill


_VOLUME_DEFAULTS: dict[str, Callable[[Any], None]] = {
    "secret": _default_mode,
    "configMap": _default_mode,
    "downwardAPI": _default_downward_api,
    "projected": _default_projected,
    "hostPath": _default_host_path,
    "image": _default_image,
    "ephemeral": _default_claim,
    **{field: _fill_in(**DEFAULTS[field]) for field in ("iscsi", "rbd", "azureDisk", "scaleIO")},
}


def _default_requests(resources: ResourceRequirements | None) -> None:
    limits = resources.get("limits") if resources else None
    if resources is None or limits is None:
        return
    requests = resources.setdefault("requests", {})
    for name, amount in limits.items():
        if name not in requests:
            requests[name] = amount
    if not requests:
        del resources["requests"]


def _default_host_ports(spec: PodSpec) -> None:
    for containers in (spec.get("containers"), spec.get("initContainers")):
        for container in containers or ():
            for port in container.get("ports", ()):
                if not port.get("hostPort") and port.get("containerPort"):
                    port["hostPort"] = port["containerPort"]


def _mirror_pod_ips(status: PodStatus) -> None:
    """Make podIP and the first of podIPs equal; podIP wins."""
    first = status.get("podIP")
    listed = status.get("podIPs")
    if first and (not listed or listed[0].get("ip") != first):
        status["podIPs"] = [{"ip": first}]
    elif listed:
        status["podIP"] = listed[0].get("ip", "")
