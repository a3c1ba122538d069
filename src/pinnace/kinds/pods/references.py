"""What is wrong with the places that an environment variable or a file takes its value from."""

from __future__ import annotations

from collections.abc import Sequence

from pinnace.kinds.validation.field_lists import (
    dns_label_faults,
    dns_subdomain_faults,
    no_backsteps,
    qualified_name_faults,
)
from pinnace.model import names
from pinnace.model.field_errors import Cause, invalid, not_supported, required
from pinnace.model.objects import Object
from pinnace.model.quantity import parse

ENV_FIELDS = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)
_DOWNWARD_FIELDS = frozenset(ENV_FIELDS) | {
    "metadata.annotations",
    "metadata.labels",
    "spec.restartPolicy",
    "spec.schedulerName",
    "status.phase",
}
_RESOURCES = (
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
)
_HUGE_PAGES = ("limits.hugepages-", "requests.hugepages-")
_SIZES = ("1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei")


def env_faults(variables: list[Object], path: str, faults: list[Cause]) -> None:
    for index, variable in enumerate(variables):
        name = variable.get("name", "")
        if not name:
            faults.append(required(f"{path}[{index}].name"))
        elif not _is_printable(name):
            faults.append(invalid(f"{path}[{index}].name", name, _UNPRINTABLE))
        source = variable.get("valueFrom")
        if source is not None:
            _source_faults(source, variable.get("value", ""), f"{path}[{index}].valueFrom", faults)


_UNPRINTABLE = "a valid environment variable name must consist only of printable ASCII characters other than '='"


def _is_printable(name: str) -> bool:
    return name.isascii() and name.isprintable() and "=" not in name


def _source_faults(source: Object, value: str, path: str, faults: list[Cause]) -> None:
    if "fieldRef" in source:
        field_ref_faults(source["fieldRef"], ENV_FIELDS, f"{path}.fieldRef", faults)
    if "resourceFieldRef" in source:
        resource_field_ref_faults(source["resourceFieldRef"], f"{path}.resourceFieldRef", faults, needs_container=False)
    for name in ("configMapKeyRef", "secretKeyRef"):
        if name in source:
            _key_ref_faults(source[name], f"{path}.{name}", faults)
    if "fileKeyRef" in source:
        _file_key_ref_faults(source["fileKeyRef"], f"{path}.fileKeyRef", faults)
    if not source:
        detail = (
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        )
        faults.append(invalid(path, "", detail))
    elif value:
        faults.append(invalid(path, "", "may not be specified when `value` is not empty"))
    elif len(source) > 1:
        faults.append(invalid(path, "", "may not have more than one field specified at a time"))


def field_ref_faults(reference: Object, supported: Sequence[str], path: str, faults: list[Cause]) -> None:
    """A field of the pod itself: one of those supported, or one label or annotation."""
    version, field = reference.get("apiVersion", ""), reference.get("fieldPath", "")
    if not version:
        faults.append(required(f"{path}.apiVersion"))
        return
    if field in supported and version == "v1":
        return
    if not field:
        faults.append(required(f"{path}.fieldPath"))
        return
    container, key = _subscripted(field)
    wrong = ""
    if version != "v1":
        wrong = f"unsupported pod version: {version}"
    elif key is not None and container not in ("metadata.annotations", "metadata.labels"):
        wrong = f"field label does not support subscript: {field}"
    elif key is None and field not in _DOWNWARD_FIELDS and field != "spec.host":
        wrong = f"field label not supported: {field}"
    if wrong:
        faults.append(invalid(f"{path}.fieldPath", field, f"error converting fieldPath: {wrong}"))
    elif key is not None:
        qualified_name_faults(key.lower() if container == "metadata.annotations" else key, path, faults)
    elif field == "spec.host":
        if "spec.nodeName" not in supported:
            faults.append(not_supported(f"{path}.fieldPath", "spec.nodeName", supported))
    else:
        faults.append(not_supported(f"{path}.fieldPath", field, supported))


def _subscripted(field: str) -> tuple[str, str | None]:
    """metadata.labels['app'] is the pair metadata.labels, app."""
    container, bracket, rest = field.partition("['")
    if bracket and container and rest.endswith("']"):
        return container, rest[:-2]
    return field, None


def resource_field_ref_faults(reference: Object, path: str, faults: list[Cause], *, needs_container: bool) -> None:
    """A container's own limit or request, and in which unit."""
    resource = reference.get("resource", "")
    if needs_container and not reference.get("containerName"):
        faults.append(required(f"{path}.containerName"))
    elif not resource:
        faults.append(required(f"{path}.resource"))
    elif resource not in _RESOURCES and not resource.startswith(_HUGE_PAGES):
        faults.append(not_supported(f"{path}.resource", resource, _RESOURCES))
    divisor = reference.get("divisor", "0")
    if divisor != "0" and parse(divisor):
        _divisor_faults(resource, str(parse(divisor)), f"{path}.divisor", faults)


def _divisor_faults(resource: str, divisor: str, path: str, faults: list[Cause]) -> None:
    name = resource.partition(".")[2]
    if name == "cpu":
        if divisor not in ("1m", "1"):
            detail = "only divisor's values 1m and 1 are supported with the cpu resource"
            faults.append(invalid(path, resource, detail))
        return
    called = {"memory": "memory", "ephemeral-storage": "local ephemeral storage"}.get(name)
    if resource.startswith(_HUGE_PAGES):
        called = "hugepages"
    if called and divisor not in _SIZES:
        detail = f"only divisor's values {', '.join(_SIZES)} are supported with the {called} resource"
        faults.append(invalid(path, resource, detail))


def _key_ref_faults(reference: Object, path: str, faults: list[Cause]) -> None:
    dns_subdomain_faults(reference.get("name", ""), f"{path}.name", faults)
    key = reference.get("key", "")
    if not key:
        faults.append(required(f"{path}.key"))
    else:
        for fault in names.config_key(key):
            faults.append(invalid(f"{path}.key", key, fault))


def _file_key_ref_faults(reference: Object, path: str, faults: list[Cause]) -> None:
    key, volume, file = (reference.get(name, "") for name in ("key", "volumeName", "path"))
    if not key:
        faults.append(required(f"{path}.key"))
    elif not _is_printable(key):
        faults.append(invalid(f"{path}.key", key, _UNPRINTABLE))
    if not volume:
        faults.append(required(f"{path}.volumeName"))
    else:
        dns_label_faults(volume, f"{path}.volumeName", faults)
    if not file:
        faults.append(required(f"{path}.path"))
    else:
        no_backsteps(file, f"{path}.path", faults)


def env_from_faults(sources: list[Object], path: str, faults: list[Cause]) -> None:
    for index, source in enumerate(sources):
        where = f"{path}[{index}]"
        prefix = source.get("prefix", "")
        if prefix and not _is_printable(prefix):
            faults.append(invalid(f"{where}.prefix", prefix, _UNPRINTABLE))
        found = 0
        for name in ("configMapRef", "secretRef"):
            if name in source:
                found += 1
                referred = source[name].get("name", "")
                if not referred:
                    faults.append(required(f"{where}.{name}.name"))
                else:
                    # A name with a dash at its end may still be completed, so it passes here.
                    shown = referred[:-1] + "a" if len(referred) > 1 and referred.endswith("-") else referred
                    for fault in names.dns_subdomain(shown):
                        faults.append(invalid(f"{where}.{name}.name", referred, fault))
        if not found:
            faults.append(invalid(path, "", "must specify one of: `configMapRef` or `secretRef`"))
        elif found > 1:
            faults.append(invalid(path, "", "may not have more than one field specified at a time"))
