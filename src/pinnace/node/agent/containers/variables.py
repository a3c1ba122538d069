"""The environment of a container: literal values, ConfigMaps, Secrets, fields of the pod, resources and Services."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Protocol

from pinnace.model.typed_objects import (
    ConfigMapEnvSource,
    ConfigMapKeySelector,
    Container,
    EnvFromSource,
    EnvVarSource,
    Pod,
    SecretEnvSource,
    SecretKeySelector,
    Service,
)
from pinnace.node.agent.containers.env_files import EnvFiles
from pinnace.node.agent.pod_fields import PodFields
from pinnace.node.errors import ConfigRefused

_reference = re.compile(r"\$\$|\$\(([A-Za-z_.-][A-Za-z0-9_.-]*)\)")
LONGEST = 128 << 10
"""The longest text of a variable or an argument that Linux takes."""
MOST_TOTAL = 6 << 20
"""The most that Linux takes of all variables, and of all arguments, whatever the size of the stack."""


class ConfigSource(Protocol):
    """Reads the ConfigMaps and Secrets of a namespace."""

    async def config_map(self, namespace: str, name: str) -> Mapping[str, bytes] | None: ...

    async def secret(self, namespace: str, name: str) -> Mapping[str, bytes] | None: ...


async def environment_of(
    container: Container, facts: PodFields, source: ConfigSource, services: Sequence[Service], files: EnvFiles
) -> list[tuple[str, str]]:
    """Return the variables in order. Raise ConfigRefused with kubelet's message if a source is missing."""
    values = service_variables(services, facts.pod)
    namespace = facts.pod["metadata"]["namespace"]
    size = 0
    for entry in container.get("envFrom") or ():
        data = await _all_of(source, namespace, entry)
        values |= {entry.get("prefix", "") + key: text for key, text in data.items()}
        size = _add_size(size, *data.values())
    for variable in container.get("env") or ():
        if "valueFrom" in variable:
            origin = variable["valueFrom"]
            if "fileKeyRef" in origin:
                value = await files.value(origin["fileKeyRef"])
            else:
                value = await _value_from(origin, container, facts, source)
            if value is None:
                continue
        else:
            value = expand(variable.get("value", ""), values)
        values[variable["name"]] = value
        size = _add_size(size, value)
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
    texts_expanded, size = list[str](), 0
    for text in texts:
        texts_expanded.append(expand(text, values))
        size = _add_size(size, texts_expanded[-1])
    return texts_expanded


def service_variables(services: Sequence[Service], pod: Pod) -> dict[str, str]:
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


async def _all_of(source: ConfigSource, namespace: str, entry: EnvFromSource) -> dict[str, str]:
    texts: dict[str, str] = {}
    if "configMapRef" in entry:
        config_map = entry["configMapRef"]
        texts |= _texts(config_map, await source.config_map(namespace, config_map.get("name", "")), "configmap")
    if "secretRef" in entry:
        secret = entry["secretRef"]
        texts |= _texts(secret, await source.secret(namespace, secret.get("name", "")), "secret")
    return texts


def _texts(
    reference: ConfigMapEnvSource | SecretEnvSource, data: Mapping[str, bytes] | None, word: str
) -> dict[str, str]:
    if data is None and not reference.get("optional"):
        raise ConfigRefused(f'{word} "{reference.get("name", "")}" not found')
    return {key: content.decode(errors="replace") for key, content in (data or {}).items()}


async def _value_from(origin: EnvVarSource, container: Container, facts: PodFields, source: ConfigSource) -> str | None:
    if "fieldRef" in origin:
        return facts.field(origin["fieldRef"]["fieldPath"])
    if "resourceFieldRef" in origin:
        return facts.resource(container, origin["resourceFieldRef"])
    namespace = facts.pod["metadata"]["namespace"]
    if "configMapKeyRef" in origin:
        config_map = origin["configMapKeyRef"]
        return _text_of_key(
            config_map, await source.config_map(namespace, config_map.get("name", "")), namespace, "ConfigMap"
        )
    if "secretKeyRef" in origin:
        secret = origin["secretKeyRef"]
        return _text_of_key(secret, await source.secret(namespace, secret.get("name", "")), namespace, "Secret")
    return None


def _text_of_key(
    reference: ConfigMapKeySelector | SecretKeySelector, data: Mapping[str, bytes] | None, namespace: str, title: str
) -> str | None:
    name, key = reference.get("name", ""), reference["key"]
    if data is not None and key in data:
        return data[key].decode(errors="replace")
    if reference.get("optional"):
        return None
    if data is None:
        raise ConfigRefused(f'{title.lower()} "{name}" not found')
    raise ConfigRefused(f"couldn't find key {key} in {title} {namespace}/{name}")
