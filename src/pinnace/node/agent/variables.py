"""The environment of a container: literal values, ConfigMaps, Secrets, fields of the pod, resources and Services."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from pinnace.model import quantity
from pinnace.model.objects import Object
from pinnace.node.runtime.errors import ConfigRefused

_reference = re.compile(r"\$\$|\$\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)")
LONGEST = 128 << 10
"""The longest text of a variable or an argument that Linux takes."""
MOST_TOTAL = 6 << 20
"""The most that Linux takes of all variables, and of all arguments, whatever the size of the stack."""
_subscript = re.compile(r"(labels|annotations)\['([^']+)'\]")


class ConfigSource(Protocol):
    """Reads the ConfigMaps and Secrets of a namespace."""

    async def config_map(self, namespace: str, name: str) -> Mapping[str, bytes] | None: ...

    async def secret(self, namespace: str, name: str) -> Mapping[str, bytes] | None: ...


class PodFields:
    """A pod with the addresses that fields refer to, which its status may not have yet."""

    def __init__(
        self,
        pod: Object,
        *,
        node: str,
        host_ips: Sequence[str],
        pod_ips: Sequence[str],
        allocatable: Mapping[str, str],
    ) -> None:
        self.pod = pod
        self._allocatable = allocatable
        self._fields = {
            "metadata.name": pod["metadata"]["name"],
            "metadata.namespace": pod["metadata"]["namespace"],
            "metadata.uid": pod["metadata"]["uid"],
            "spec.nodeName": node,
            "spec.serviceAccountName": pod["spec"].get("serviceAccountName", ""),
            "status.hostIP": host_ips[0],
            "status.hostIPs": ",".join(host_ips),
            "status.podIP": pod_ips[0] if pod_ips else "",
            "status.podIPs": ",".join(pod_ips),
        }

    def field(self, path: str) -> str:
        """The value of a fieldRef. Labels and annotations are a map as a whole, or one of them by its key."""
        if path in self._fields:
            return str(self._fields[path])
        metadata = self.pod["metadata"]
        one = _subscript.fullmatch(path.removeprefix("metadata."))
        if one is not None:
            return str((metadata.get(one[1]) or {}).get(one[2], ""))
        if path in ("metadata.labels", "metadata.annotations"):
            found = metadata.get(path.partition(".")[2]) or {}
            return "\n".join(f'{key}="{_quote(found[key])}"' for key in sorted(found))
        raise ConfigRefused(f"fieldPath {path} is not supported")

    def resource(self, container: Object, reference: Mapping[str, Any]) -> str:
        """The value of a resourceFieldRef, in units of its divisor. Without a limit it is the node's allocatable."""
        name = reference.get("containerName")
        if name:
            container = next(one for one in all_containers(self.pod) if one["name"] == name)
        kind, _, resource = str(reference["resource"]).partition(".")
        stated = (container.get("resources") or {}).get(kind) or {}
        text = stated.get(resource) or (self._allocatable.get(resource, "0") if kind == "limits" else "0")
        amount, divisor = quantity.parse(str(text)), quantity.parse(str(reference.get("divisor") or "0"))
        return str((amount.ratio_to(divisor) if divisor else amount).value)


def all_containers(pod: Object) -> Sequence[Object]:
    spec = pod["spec"]
    return [*(spec.get("initContainers") or ()), *spec["containers"], *(spec.get("ephemeralContainers") or ())]


async def environment_of(
    container: Object, facts: PodFields, source: ConfigSource, services: Sequence[Object]
) -> list[tuple[str, str]]:
    """Return the variables in order. Raise ConfigRefused with kubelet's message if a source is missing."""
    values = service_variables(services, facts.pod)
    namespace = facts.pod["metadata"]["namespace"]
    size = 0
    for entry in container.get("envFrom") or ():
        for kind in ("configMapRef", "secretRef"):
            if kind in entry:
                data = await _all_of(source, kind, namespace, entry[kind])
                values |= {entry.get("prefix", "") + key: text for key, text in data.items()}
                size = _add_size(size, *data.values())
    for entry in container.get("env") or ():
        if "valueFrom" in entry:
            found = await _value_from(entry["valueFrom"], container, facts, source)
            if found is None:
                continue
        else:
            found = expand(entry.get("value", ""), values)
        values[entry["name"]] = found
        size = _add_size(size, found)
    return list(values.items())


def _add_size(size: int, *texts: str) -> int:
    size += sum(map(len, texts))
    if size > MOST_TOTAL:
        raise ConfigRefused(f"the environment or the arguments are longer than {MOST_TOTAL} bytes")
    return size


def expand(text: str, values: Mapping[str, str]) -> str:
    """Replace $(NAME) by its value; $$ is a dollar sign, and an unknown name stays as it is.

    Raise ConfigRefused for a result that Linux would not take: values that name each other twice double each time.
    """
    parts, end, size = list[str](), 0, 0
    for match in _reference.finditer(text):
        value = "$" if match[0] == "$$" else values.get(match[1], match[0])
        size += match.start() - end + len(value)
        if size > LONGEST:
            raise ConfigRefused(f"{text[:40]!r} expands to more than {LONGEST} bytes")
        parts += text[end : match.start()], value
        end = match.end()
    return "".join((*parts, text[end:])) if parts else text


def expand_all(texts: Sequence[str], values: Mapping[str, str]) -> list[str]:
    """Expand the words of a command. Raise ConfigRefused if there is more than Linux would take."""
    found, size = list[str](), 0
    for text in texts:
        found.append(expand(text, values))
        size = _add_size(size, found[-1])
    return found


def service_variables(services: Sequence[Object], pod: Object) -> dict[str, str]:
    """The variables of Services: the API server's always, those of the namespace unless service links are off."""
    links = pod["spec"].get("enableServiceLinks", True)
    values: dict[str, str] = {}
    for service in services:
        metadata, spec = service["metadata"], service["spec"]
        is_api = (metadata["namespace"], metadata["name"]) == ("default", "kubernetes")
        address = spec.get("clusterIP", "")
        if address in ("", "None") or not (is_api or (links and metadata["namespace"] == pod["metadata"]["namespace"])):
            continue
        name = metadata["name"].upper().replace("-", "_")
        ports = spec.get("ports") or [{"port": 0}]
        values |= {f"{name}_SERVICE_HOST": address, f"{name}_SERVICE_PORT": str(ports[0]["port"])}
        for port in ports:
            if port.get("name"):
                values[f"{name}_SERVICE_PORT_{port['name'].upper().replace('-', '_')}"] = str(port["port"])
            protocol = port.get("protocol", "TCP")
            prefix = f"{name}_PORT_{port['port']}_{protocol}"
            url = f"{protocol.lower()}://{address}:{port['port']}"
            values.setdefault(f"{name}_PORT", url)
            values |= {prefix: url, f"{prefix}_PROTO": protocol.lower(), f"{prefix}_PORT": str(port["port"])}
            values[f"{prefix}_ADDR"] = address
    return values


async def _all_of(source: ConfigSource, kind: str, namespace: str, reference: Mapping[str, Any]) -> dict[str, str]:
    name = reference.get("name", "")
    is_secret = kind == "secretRef"
    data = await (source.secret(namespace, name) if is_secret else source.config_map(namespace, name))
    if data is None:
        if reference.get("optional"):
            return {}
        raise ConfigRefused(f'{"secret" if is_secret else "configmap"} "{name}" not found')
    return {key: content.decode(errors="replace") for key, content in data.items()}


async def _value_from(
    origin: Mapping[str, Any], container: Object, facts: PodFields, source: ConfigSource
) -> str | None:
    if "fieldRef" in origin:
        return facts.field(origin["fieldRef"]["fieldPath"])
    if "resourceFieldRef" in origin:
        return facts.resource(container, origin["resourceFieldRef"])
    namespace = facts.pod["metadata"]["namespace"]
    for kind, word in (("configMapKeyRef", "configmap"), ("secretKeyRef", "secret")):
        if kind not in origin:
            continue
        reference = origin[kind]
        name, key = reference.get("name", ""), reference["key"]
        data = await (source.secret(namespace, name) if word == "secret" else source.config_map(namespace, name))
        if data is None and not reference.get("optional"):
            raise ConfigRefused(f'{word} "{name}" not found')
        if data is not None and key not in data and not reference.get("optional"):
            title = "Secret" if word == "secret" else "ConfigMap"
            raise ConfigRefused(f"couldn't find key {key} in {title} {namespace}/{name}")
        return data[key].decode(errors="replace") if data is not None and key in data else None
    return None


def _quote(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
