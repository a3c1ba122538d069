"""Descriptions of pods and pod templates."""

from __future__ import annotations

from typing import Any

from pinnace.cli.describe.parts import (
    NONE,
    UNSET,
    Description,
    describe_controller,
    describe_labels,
    heading,
    long_time,
    since,
    yes,
)
from pinnace.cli.describe.volumes import volumes
from pinnace.kinds.cells import format_selector
from pinnace.kinds.pods.resource_amounts import qos_class
from pinnace.model import quantity
from pinnace.model.objects import Object
from pinnace.schema.golang.text import quote


def pod(page: Description, obj: Object) -> None:
    spec, status, metadata = obj["spec"], obj.get("status") or {}, obj["metadata"]
    heading(page, obj)
    if spec.get("priority") is not None:
        page.pair("Priority", spec["priority"])
    _pairs_if_set(page, spec, ("priorityClassName", "Priority Class Name"), ("runtimeClassName", "Runtime Class Name"))
    _pairs_if_set(page, spec, ("serviceAccountName", "Service Account"))
    page.pair("Node", f"{spec['nodeName']}/{status.get('hostIP', '')}" if spec.get("nodeName") else NONE)
    if status.get("startTime"):
        page.pair("Start Time", long_time(status["startTime"]))
    describe_labels(page, obj)
    if metadata.get("deletionTimestamp") and status.get("phase") not in ("Failed", "Succeeded"):
        page.pair("Status", f"Terminating (lasts {since(metadata['deletionTimestamp'])})")
        page.pair("Termination Grace Period", f"{metadata.get('deletionGracePeriodSeconds', 0)}s")
    else:
        page.pair("Status", status.get("phase", ""))
    _pairs_if_set(page, status, ("reason", "Reason"), ("message", "Message"))
    _seccomp(page, spec.get("securityContext"), 0)
    page.pair("IP", status.get("podIP", ""))
    _addresses(page, status.get("podIPs") or ())
    describe_controller(page, obj)
    _pairs_if_set(page, status, ("nominatedNodeName", "NominatedNodeName"))
    if spec.get("resources"):
        page.line("Resources:")
        _resources(page, spec["resources"], 1)
    if spec.get("initContainers"):
        _containers(page, "Init Containers", spec["initContainers"], status.get("initContainerStatuses"), obj)
    _containers(page, "Containers", spec["containers"], status.get("containerStatuses"), obj)
    if spec.get("ephemeralContainers"):
        statuses = status.get("ephemeralContainerStatuses")
        _containers(page, "Ephemeral Containers", spec["ephemeralContainers"], statuses, obj)
    _gates_and_conditions(page, spec, status)
    volumes(page, spec.get("volumes") or ())
    page.pair("QoS Class", status.get("qosClass") or qos_class(spec))
    _placement(page, spec, "")


def template(page: Description, obj: Object | None) -> None:
    """Describe the pod template of a workload."""
    page.line("Pod Template:")
    if obj is None:
        page.line(UNSET, 1)
        return
    metadata, spec = obj.get("metadata") or {}, obj.get("spec") or {}
    page.labels("Labels", metadata.get("labels"), indent="  ")
    if metadata.get("annotations"):
        page.annotations("  Annotations", metadata["annotations"])
    if spec.get("serviceAccountName"):
        page.pair("Service Account", spec["serviceAccountName"], 1)
    if spec.get("initContainers"):
        _containers(page, "Init Containers", spec["initContainers"], None, None, indent="  ")
    _containers(page, "Containers", spec.get("containers") or [], None, None, indent="  ")
    volumes(page, spec.get("volumes") or (), indent="  ")
    _spread(page, spec, "  ")
    if spec.get("priorityClassName"):
        page.pair("Priority Class Name", spec["priorityClassName"], 1)
    page.labels("Node-Selectors", spec.get("nodeSelector"), indent="  ")
    _tolerations(page, spec, "  ")
    _group(page, spec, "  ")


def _pairs_if_set(page: Description, where: Object, *fields: tuple[str, str]) -> None:
    for name, title in fields:
        if where.get(name):
            page.pair(title, where[name])


def _addresses(page: Description, addresses: Any) -> None:
    if not addresses:
        page.pair("IPs", NONE)
        return
    page.line("IPs:")
    for address in addresses:
        page.pair("IP", address.get("ip", ""), 1)


def _gates_and_conditions(page: Description, spec: Object, status: Object) -> None:
    conditions = status.get("conditions") or []
    statuses = {condition["type"]: condition["status"] for condition in conditions}
    if spec.get("readinessGates"):
        page.line("Readiness Gates:")
        page.line("Type\tStatus", 1)
        for readiness in spec["readinessGates"]:
            page.line(f"{readiness['conditionType']} \t{statuses.get(readiness['conditionType'], NONE)} ", 1)
    if conditions:
        page.line("Conditions:")
        page.line("Type\tStatus", 1)
        for condition in conditions:
            page.line(f"{condition['type']} \t{condition['status']} ", 1)


def _placement(page: Description, spec: Object, indent: str) -> None:
    page.labels("Node-Selectors", spec.get("nodeSelector"), indent=indent)
    _tolerations(page, spec, indent)
    _spread(page, spec, indent)
    _group(page, spec, indent)


def _tolerations(page: Description, spec: Object, indent: str) -> None:
    tolerations = sorted(spec.get("tolerations") or (), key=lambda toleration: toleration.get("key", ""))
    page.listed("Tolerations", [_toleration(toleration) for toleration in tolerations], indent=indent)


def _toleration(toleration: Object) -> str:
    key, value, effect = toleration.get("key", ""), toleration.get("value", ""), toleration.get("effect", "")
    text: str = key + (f"={value}" if value else "") + (f":{effect}" if effect else "")
    if toleration.get("operator") == "Exists" and not value:
        text += " op=Exists" if key or effect else "op=Exists"
    seconds = toleration.get("tolerationSeconds")
    return text if seconds is None else f"{text} for {seconds}s"


def _group(page: Description, spec: Object, indent: str) -> None:
    group = spec.get("schedulingGroup")
    if group:
        page.line(f"{indent}SchedulingGroup:")
        page.pair("PodGroupName", group.get("podGroupName", ""), 1)


def _spread(page: Description, spec: Object, indent: str) -> None:
    constraints = sorted(spec.get("topologySpreadConstraints") or (), key=lambda constraint: constraint["topologyKey"])
    lines = []
    for constraint in constraints:
        selector = constraint.get("labelSelector")
        key, otherwise = constraint["topologyKey"], constraint["whenUnsatisfiable"]
        text = f"{key}:{otherwise} when max skew {constraint['maxSkew']} is exceeded"
        lines.append(text + (f" for selector {format_selector(selector)}" if selector is not None else ""))
    if lines:
        page.listed("Topology Spread Constraints", lines, indent=indent)


# Containers


def _containers(
    page: Description,
    title: str,
    containers: list[Object],
    statuses: list[Object] | None,
    pod: Object | None,
    *,
    indent: str = "",
) -> None:
    known = {status["name"]: status for status in statuses or ()}
    page.line(f"{indent}{title}:" + ("" if containers else f" {NONE}"))
    for container in containers:
        status = known.get(container["name"])
        page.line(f"{' ' if indent else ''}{container['name']}:", 1)
        _identity(page, container, status)
        for field, heading_ in (("command", "Command"), ("args", "Args")):
            if container.get(field):
                page.line(f"{heading_}:", 2)
                for word in container[field]:
                    for line in word.split("\n"):
                        page.line(line, 3)
        if status is not None:
            _state(page, status)
        _resources(page, container.get("resources") or {}, 2)
        for field, heading_ in (
            ("livenessProbe", "Liveness"),
            ("readinessProbe", "Readiness"),
            ("startupProbe", "Startup"),
        ):
            if container.get(field):
                page.pair(heading_, _probe(container[field]), 2)
        _environment(page, container, pod)
        _mounts(page, container)


def _identity(page: Description, container: Object, status: Object | None) -> None:
    if status is not None:
        page.pair("Container ID", status.get("containerID", ""), 2)
    page.pair("Image", container.get("image", ""), 2)
    if status is not None:
        page.pair("Image ID", status.get("imageID", ""), 2)
    for field, title in (("containerPort", "Port"), ("hostPort", "Host Port")):
        ports = [
            f"{port.get(field, 0)}/{port.get('protocol', '')}" + (f" ({port['name']})" if port.get("name") else "")
            for port in container.get("ports") or ()
        ]
        page.pair(title + ("s" if len(ports) > 1 else ""), ", ".join(ports) or NONE, 2)
    _seccomp(page, container.get("securityContext"), 2)


def _seccomp(page: Description, security: Object | None, level: int) -> None:
    profile = (security or {}).get("seccompProfile")
    if profile:
        page.pair("SeccompProfile", profile["type"], level)
        if profile["type"] == "Localhost":
            page.pair("LocalhostProfile", profile.get("localhostProfile", ""), level + (1 if level else 0))


def _state(page: Description, status: Object) -> None:
    _one_state(page, "State", status.get("state") or {})
    if (status.get("lastState") or {}).get("terminated"):
        _one_state(page, "Last State", status["lastState"])
    page.pair("Ready", yes(status.get("ready")), 2)
    page.pair("Restart Count", status.get("restartCount", 0), 2)


def _one_state(page: Description, title: str, state: Object) -> None:
    if "running" in state:
        page.pair(title, "Running", 2)
        page.pair("Started", long_time(state["running"].get("startedAt")), 3)
    elif "terminated" in state:
        ended = state["terminated"]
        page.pair(title, "Terminated", 2)
        for field, heading_ in (("reason", "Reason"), ("message", "Message")):
            if ended.get(field):
                page.pair(heading_, ended[field], 3)
        page.pair("Exit Code", ended.get("exitCode", 0), 3)
        if ended.get("signal"):
            page.pair("Signal", ended["signal"], 3)
        page.pair("Started", long_time(ended.get("startedAt")), 3)
        page.pair("Finished", long_time(ended.get("finishedAt")), 3)
    else:
        page.pair(title, "Waiting", 2)
        if (state.get("waiting") or {}).get("reason"):
            page.pair("Reason", state["waiting"]["reason"], 3)


def _resources(page: Description, resources: Object, level: int) -> None:
    for field, title in (("limits", "Limits"), ("requests", "Requests")):
        amounts = resources.get(field) or {}
        if amounts:
            page.line(f"{title}:", level)
        for name in sorted(amounts):
            page.pair(name, amounts[name], level + 1)


def _probe(probe: Object) -> str:
    timing = (
        f"delay={probe.get('initialDelaySeconds', 0)}s timeout={probe.get('timeoutSeconds', 0)}s "
        f"period={probe.get('periodSeconds', 0)}s #success={probe.get('successThreshold', 0)} "
        f"#failure={probe.get('failureThreshold', 0)}"
    )
    if "exec" in probe:
        return f"exec [{' '.join(probe['exec'].get('command') or ())}] {timing}"
    if "httpGet" in probe:
        get = probe["httpGet"]
        url = f"{get.get('scheme', '').lower()}://{get.get('host', '')}:{get['port']}{get.get('path', '')}"
        return f"http-get {url} {timing}"
    if "tcpSocket" in probe:
        return f"tcp-socket {probe['tcpSocket'].get('host', '')}:{probe['tcpSocket']['port']} {timing}"
    if "grpc" in probe:
        return f"grpc <pod>:{probe['grpc']['port']} {probe['grpc'].get('service') or ''} {timing}"
    return f"unknown {timing}"


def _environment(page: Description, container: Object, pod: Object | None) -> None:
    if container.get("envFrom"):
        page.line("Environment Variables from:", 2)
        for source in container["envFrom"]:
            none: tuple[str, Object] = ("", {})
            kind, reference = next(
                (
                    (kind, source[field])
                    for field, kind in (("configMapRef", "ConfigMap"), ("secretRef", "Secret"))
                    if field in source
                ),
                none,
            )
            prefix = f" with prefix '{source['prefix']}'" if source.get("prefix") else ""
            page.line(f"{reference.get('name', '')}\t{kind}{prefix}\tOptional: {_flag(reference)}", 3)
    page.line("Environment:" + ("" if container.get("env") else f"\t{NONE}"), 2)
    for variable in container.get("env") or ():
        for line in _variable(variable, container, pod):
            page.line(line, 3)


def _variable(variable: Object, container: Object, pod: Object | None) -> list[str]:
    name, source = variable["name"], variable.get("valueFrom")
    if not source:
        first, *rest = variable.get("value", "").split("\n")
        return [f"{name}:\t{first}", *(f"\t{line}" for line in rest)]
    if "fieldRef" in source:
        reference = source["fieldRef"]
        value = _field(pod, reference["fieldPath"]) if pod is not None else ""
        return [f"{name}:\t{value} ({reference.get('apiVersion', '')}:{reference['fieldPath']})"]
    if "resourceFieldRef" in source:
        return [f"{name}:\t{_amount(source['resourceFieldRef'], container)} ({source['resourceFieldRef']['resource']})"]
    if "secretKeyRef" in source:
        key = source["secretKeyRef"]
        return [f"{name}:\t<set to the key '{key['key']}' in secret '{key.get('name', '')}'>\tOptional: {_flag(key)}"]
    if "configMapKeyRef" in source:
        key = source["configMapKeyRef"]
        return [
            f"{name}:\t<set to the key '{key['key']}' of config map '{key.get('name', '')}'>\tOptional: {_flag(key)}"
        ]
    return []


def _flag(reference: Object) -> str:
    return "true" if reference.get("optional") else "false"


def _field(pod: Object, path: str) -> str:
    """Return the value of a variable, as far as it is known before the pod runs."""
    if path in ("metadata.name", "metadata.namespace", "metadata.uid"):
        return str(pod["metadata"].get(path.partition(".")[2], ""))
    return ""


def _amount(reference: Object, container: Object) -> str:
    which, _, name = reference["resource"].partition(".")
    stated = ((container.get("resources") or {}).get(which) or {}).get(name)
    if stated is None:
        return "node allocatable" if which == "limits" and name in ("cpu", "memory") else "0"
    divisor = quantity.parse(reference.get("divisor") or "1")
    amount, unit = quantity.parse(stated).milli_value, divisor.milli_value or 1000
    return str(-(-amount // unit))


def _mounts(page: Description, container: Object) -> None:
    mounts = sorted(container.get("volumeMounts") or (), key=lambda mount: mount["mountPath"])
    page.line("Mounts:" + ("" if mounts else f"\t{NONE}"), 2)
    for mount in mounts:
        flags = ["ro" if mount.get("readOnly") else "rw"]
        if mount.get("subPath"):
            flags.append(f"path={quote(mount['subPath'])}")
        page.line(f"{mount['mountPath']} from {mount['name']} ({','.join(flags)})", 3)
    if container.get("volumeDevices"):
        page.line("Devices:" + ("" if mounts else f"\t{NONE}"), 2)
        for device in sorted(container["volumeDevices"], key=lambda block: block["devicePath"]):
            page.line(f"{device['devicePath']} from {device['name']}", 3)
