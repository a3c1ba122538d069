"""Defaults and validation of API services."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pinnace.kinds.admissionregistration import webhooks
from pinnace.kinds.certificates.parsing import decoded
from pinnace.kinds.validation.fields import (
    validate_choice,
    validate_name,
)
from pinnace.model import names
from pinnace.model.clock import server_now, to_rfc3339
from pinnace.model.field_errors import FieldError, invalid, required
from pinnace.model.objects import Object
from pinnace.model.resources import Strategy

LOCAL_AVAILABLE = {
    "type": "Available",
    "status": "True",
    "reason": "Local",
    "message": "Local APIServices are always available",
}


def _any_name(name: str) -> list[str]:
    """Return no error: the name depends on other fields, so `validate` checks it."""
    return names.path_segment(name)


def _default_api_service(service: Object) -> None:
    spec = service.setdefault("spec", {})
    if (reference := spec.get("service")) is not None:
        webhooks.default_service(reference)
    for field in ("groupPriorityMinimum", "versionPriority"):
        spec.setdefault(field, 0)
    service.setdefault("status", {})


def _prepare_api_service(service: Object, old: Object | None) -> None:
    if old is None and service.get("spec", {}).get("service") is None:
        now = to_rfc3339(server_now())
        service["status"] = {"conditions": [{**LOCAL_AVAILABLE, "lastTransitionTime": now}]}


def _validate_api_service(service: Object, old: Object | None) -> Iterator[FieldError]:
    spec, name = service.get("spec", {}), service["metadata"].get("name", "")
    group, version = spec.get("group", ""), spec.get("version", "")
    if name and not names.path_segment(name) and name != f"{version}.{group}":
        yield invalid("metadata.name", name, f'must be `spec.version+"."+spec.group`: "{version}.{group}"')
    if not group and version != "v1":
        yield required("spec.group", "only v1 may have an empty group and it better be legacy kube")
    if group:
        yield from validate_name(group, names.dns_subdomain, "spec.group")
    yield from validate_name(version, names.dns1035_label, "spec.version")
    for field, most in (("groupPriorityMinimum", 20000), ("versionPriority", 1000)):
        if not 0 < spec.get(field, 0) <= most:
            yield invalid(f"spec.{field}", spec.get(field, 0), f"must be positive and less than {most}")
    yield from _validate_backend(spec)


def _validate_backend(spec: Mapping[str, Any]) -> Iterator[FieldError]:
    bundle, trusting = decoded(spec.get("caBundle") or ""), bool(spec.get("insecureSkipTLSVerify"))
    if (service := spec.get("service")) is None:
        if bundle:
            yield invalid("spec.caBundle", f"{len(bundle)} bytes", "local APIServices may not have a caBundle")
        if trusting:
            yield invalid("spec.insecureSkipTLSVerify", True, "local APIServices may not have insecureSkipTLSVerify")
        return
    for field in ("namespace", "name"):
        if not service.get(field):
            yield required(f"spec.service.{field}")
    port = service.get("port", 443)
    if errs := names.port_number(port):
        yield invalid("spec.service.port", port, f"port is not valid: {', '.join(errs)}")
    if trusting and bundle:
        yield invalid("spec.insecureSkipTLSVerify", True, "may not be true if caBundle is present")


def _validate_api_service_status(service: Object, old: Object | None) -> Iterator[FieldError]:
    for i, condition in enumerate(service.get("status", {}).get("conditions") or []):
        statuses = ("True", "False", "Unknown")
        yield from validate_choice(condition.get("status", ""), statuses, f"status.conditions[{i}].status")


API_SERVICE = Strategy(
    default=_default_api_service,
    prepare=_prepare_api_service,
    validate=_validate_api_service,
    validate_status=_validate_api_service_status,
    name_rule=_any_name,
    may_update_unconditionally=False,
)
