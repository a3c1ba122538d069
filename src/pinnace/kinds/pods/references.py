"""Validation of the sources of environment variables and files: fields, resources, keys."""

from __future__ import annotations

from collections.abc import Sequence

from pinnace.kinds.validation.fields import (
    validate_dns_label,
    validate_dns_subdomain,
    validate_no_backsteps,
    validate_qualified_name,
)
from pinnace.model import names
from pinnace.model.field_errors import FieldError, invalid, not_supported, required
from pinnace.model.quantity import parse
from pinnace.model.typed_objects import (
    ConfigMapKeySelector,
    EnvFromSource,
    EnvVar,
    EnvVarSource,
    FileKeySelector,
    ObjectFieldSelector,
    ResourceFieldSelector,
    SecretKeySelector,
)

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


def validate_env(variables: list[EnvVar], path: str, errs: list[FieldError]) -> None:
    for index, variable in enumerate(variables):
        name = variable.get("name", "")
        if not name:
            errs.append(required(f"{path}[{index}].name"))
        elif not _is_printable(name):
            errs.append(invalid(f"{path}[{index}].name", name, _UNPRINTABLE))
        source = variable.get("valueFrom")
        if source is not None:
            _validate_source(source, variable.get("value", ""), f"{path}[{index}].valueFrom", errs)


_UNPRINTABLE = "a valid environment variable name must consist only of printable ASCII characters other than '='"


def _is_printable(name: str) -> bool:
    return name.isascii() and name.isprintable() and "=" not in name


def _validate_source(source: EnvVarSource, value: str, path: str, errs: list[FieldError]) -> None:
    if "fieldRef" in source:
        validate_field_ref(source["fieldRef"], ENV_FIELDS, f"{path}.fieldRef", errs)
    if "resourceFieldRef" in source:
        validate_resource_field_ref(source["resourceFieldRef"], f"{path}.resourceFieldRef", errs, needs_container=False)
    for name in ("configMapKeyRef", "secretKeyRef"):
        if name in source:
            _validate_key_ref(source[name], f"{path}.{name}", errs)
    if "fileKeyRef" in source:
        _validate_file_key_ref(source["fileKeyRef"], f"{path}.fileKeyRef", errs)
    if not source:
        detail = (
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or `fileKeyRef`"
        )
        errs.append(invalid(path, "", detail))
    elif value:
        errs.append(invalid(path, "", "may not be specified when `value` is not empty"))
    elif len(source) > 1:
        errs.append(invalid(path, "", "may not have more than one field specified at a time"))


def validate_field_ref(
    reference: ObjectFieldSelector, supported: Sequence[str], path: str, errs: list[FieldError]
) -> None:
    """Check a reference to a field of the pod: a supported field, or one label or annotation."""
    version, field = reference.get("apiVersion", ""), reference.get("fieldPath", "")
    if not version:
        errs.append(required(f"{path}.apiVersion"))
        return
    if field in supported and version == "v1":
        return
    if not field:
        errs.append(required(f"{path}.fieldPath"))
        return
    container, key = _split_subscript(field)
    wrong = ""
    if version != "v1":
        wrong = f"unsupported pod version: {version}"
    elif key is not None and container not in ("metadata.annotations", "metadata.labels"):
        wrong = f"field label does not support subscript: {field}"
    elif key is None and field not in _DOWNWARD_FIELDS and field != "spec.host":
        wrong = f"field label not supported: {field}"
    if wrong:
        errs.append(invalid(f"{path}.fieldPath", field, f"error converting fieldPath: {wrong}"))
    elif key is not None:
        errs += validate_qualified_name(key.lower() if container == "metadata.annotations" else key, path)
    elif field == "spec.host":
        if "spec.nodeName" not in supported:
            errs.append(not_supported(f"{path}.fieldPath", "spec.nodeName", supported))
    else:
        errs.append(not_supported(f"{path}.fieldPath", field, supported))


def _split_subscript(field: str) -> tuple[str, str | None]:
    """Split metadata.labels['app'] into metadata.labels and app."""
    container, bracket, rest = field.partition("['")
    if bracket and container and rest.endswith("']"):
        return container, rest[:-2]
    return field, None


def validate_resource_field_ref(
    reference: ResourceFieldSelector, path: str, errs: list[FieldError], *, needs_container: bool
) -> None:
    """Check a reference to a container's limit or request, and its unit."""
    resource = reference.get("resource", "")
    if needs_container and not reference.get("containerName"):
        errs.append(required(f"{path}.containerName"))
    elif not resource:
        errs.append(required(f"{path}.resource"))
    elif resource not in _RESOURCES and not resource.startswith(_HUGE_PAGES):
        errs.append(not_supported(f"{path}.resource", resource, _RESOURCES))
    divisor = reference.get("divisor", "0")
    if divisor != "0" and parse(divisor):
        _validate_divisor(resource, str(parse(divisor)), f"{path}.divisor", errs)


def _validate_divisor(resource: str, divisor: str, path: str, errs: list[FieldError]) -> None:
    name = resource.partition(".")[2]
    if name == "cpu":
        if divisor not in ("1m", "1"):
            detail = "only divisor's values 1m and 1 are supported with the cpu resource"
            errs.append(invalid(path, resource, detail))
        return
    noun = {"memory": "memory", "ephemeral-storage": "local ephemeral storage"}.get(name)
    if resource.startswith(_HUGE_PAGES):
        noun = "hugepages"
    if noun and divisor not in _SIZES:
        detail = f"only divisor's values {', '.join(_SIZES)} are supported with the {noun} resource"
        errs.append(invalid(path, resource, detail))


def _validate_key_ref(reference: ConfigMapKeySelector | SecretKeySelector, path: str, errs: list[FieldError]) -> None:
    errs += validate_dns_subdomain(reference.get("name", ""), f"{path}.name")
    key = reference.get("key", "")
    if not key:
        errs.append(required(f"{path}.key"))
    else:
        for err in names.config_key(key):
            errs.append(invalid(f"{path}.key", key, err))


def _validate_file_key_ref(reference: FileKeySelector, path: str, errs: list[FieldError]) -> None:
    key, volume, file = (reference.get(name, "") for name in ("key", "volumeName", "path"))
    if not key:
        errs.append(required(f"{path}.key"))
    elif not _is_printable(key):
        errs.append(invalid(f"{path}.key", key, _UNPRINTABLE))
    if not volume:
        errs.append(required(f"{path}.volumeName"))
    else:
        errs += validate_dns_label(volume, f"{path}.volumeName")
    if not file:
        errs.append(required(f"{path}.path"))
    else:
        errs += validate_no_backsteps(file, f"{path}.path")


def validate_env_from(sources: list[EnvFromSource], path: str, errs: list[FieldError]) -> None:
    for index, source in enumerate(sources):
        where = f"{path}[{index}]"
        prefix = source.get("prefix", "")
        if prefix and not _is_printable(prefix):
            errs.append(invalid(f"{where}.prefix", prefix, _UNPRINTABLE))
        count = 0
        for name in ("configMapRef", "secretRef"):
            if name in source:
                count += 1
                referred = source[name].get("name", "")
                if not referred:
                    errs.append(required(f"{where}.{name}.name"))
                else:
                    # A prefix that ends with a dash becomes part of a longer name, so it passes.
                    display = referred[:-1] + "a" if len(referred) > 1 and referred.endswith("-") else referred
                    for err in names.dns_subdomain(display):
                        errs.append(invalid(f"{where}.{name}.name", referred, err))
        if not count:
            errs.append(invalid(path, "", "must specify one of: `configMapRef` or `secretRef`"))
        elif count > 1:
            errs.append(invalid(path, "", "may not have more than one field specified at a time"))
