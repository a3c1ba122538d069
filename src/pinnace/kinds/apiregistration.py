"""apiregistration.k8s.io: APIServices. v1beta1 had one priority instead of two."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from pinnace.kinds import older_schemas
from pinnace.kinds.admissionregistration import webhooks
from pinnace.kinds.cells import AGE, NAME, condition, reach, string, text
from pinnace.kinds.certificates.parsing import decoded
from pinnace.kinds.rows import GA, STATUS, Row, old
from pinnace.kinds.validation.fields import validate_choice, validate_name
from pinnace.model import names
from pinnace.model.field_errors import FieldError, invalid, required
from pinnace.model.objects import Object
from pinnace.model.resources import Strategy
from pinnace.model.typed_objects import APIService, APIServiceCondition, APIServiceSpec
from pinnace.schema.shape import Schema


def _serving(api_service: APIService, now: datetime) -> str:
    service = reach(api_service, "spec", "service")
    return "Local" if service is None else f"{service.get('namespace', '')}/{service.get('name', '')}"


def _available(api_service: APIService, now: datetime) -> str:
    available = condition(api_service, "Available")
    if available is None:
        return "Unknown"
    status, reason = text(available.get("status")), available.get("reason")
    return f"{status} ({reason})" if reason and status != "True" else status


_HIGHEST_GROUP, _HIGHEST_VERSION = 20000, 1000


def _with_one_priority(schema: Schema) -> Schema:
    """Return the v1beta1 schema: early versions had one `priority`, and old manifests still use it."""
    return older_schemas.at(schema, "spec", older_schemas.with_fields(priority={"type": "integer", "format": "int64"}))


def _api_service_to_v1(service: Object) -> Object:
    spec = service.get("spec") or {}
    priority = spec.pop("priority", None)
    if priority is not None:
        spec.setdefault("groupPriorityMinimum", min(max(priority, 1), _HIGHEST_GROUP))
        spec.setdefault("versionPriority", min(max(priority, 1), _HIGHEST_VERSION))
    return service


def _api_service_from_v1(service: Object) -> Object:
    return service


LOCAL_AVAILABLE: APIServiceCondition = {
    "type": "Available",
    "status": "True",
    "reason": "Local",
    "message": "Local APIServices are always available",
}


def _default_api_service(service: Object) -> None:
    spec = service.setdefault("spec", {})
    if (reference := spec.get("service")) is not None:
        webhooks.default_service(reference)
    for field in ("groupPriorityMinimum", "versionPriority"):
        spec.setdefault(field, 0)
    service.setdefault("status", {})


def _prepare_api_service(service: APIService, old: APIService | None) -> None:
    if old is None and service.get("spec", {}).get("service") is None:
        moment = service["metadata"]["creationTimestamp"]
        service["status"] = {"conditions": [{**LOCAL_AVAILABLE, "lastTransitionTime": moment}]}


def _validate_api_service(service: APIService, old: APIService | None) -> Iterator[FieldError]:
    spec, name = service.get("spec", {}), service["metadata"].get("name", "")
    group, version = spec.get("group", ""), spec.get("version", "")
    if name and not names.path_segment(name) and name != f"{version}.{group}":
        yield invalid("metadata.name", name, f'must be `spec.version+"."+spec.group`: "{version}.{group}"')
    if not group and version != "v1":
        yield required("spec.group", "only v1 may have an empty group and it better be legacy kube")
    if group:
        yield from validate_name(group, names.dns_subdomain, "spec.group")
    yield from validate_name(version, names.dns1035_label, "spec.version")
    for field in ("groupPriorityMinimum", "versionPriority"):
        most = _HIGHEST_GROUP if field == "groupPriorityMinimum" else _HIGHEST_VERSION
        if not 0 < spec.get(field, 0) <= most:
            yield invalid(f"spec.{field}", spec.get(field, 0), f"must be positive and less than {most}")
    yield from _validate_backend(spec)


def _validate_backend(spec: APIServiceSpec) -> Iterator[FieldError]:
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


def _validate_api_service_status(service: APIService, old: APIService | None) -> Iterator[FieldError]:
    for i, item in enumerate(service.get("status", {}).get("conditions") or []):
        statuses = ("True", "False", "Unknown")
        yield from validate_choice(item.get("status", ""), statuses, f"status.conditions[{i}].status")


ROWS = (
    Row(
        group="apiregistration.k8s.io",
        name="APIService",
        plural="apiservices",
        columns=(
            NAME,
            string("Service", "The reference to the service that hosts this API endpoint.", _serving),
            string("Available", "Whether this service is available.", _available),
            AGE,
        ),
        namespaced=False,
        categories=("api-extensions",),
        versions=(
            GA,
            old(
                "v1beta1",
                deprecated="1.19",
                removed="1.22",
                replacement="apiregistration.k8s.io/v1",
                reshape=_with_one_priority,
                to_stored=_api_service_to_v1,
                from_stored=_api_service_from_v1,
            ),
        ),
        subresources=(STATUS,),
        strategy=Strategy(
            default=_default_api_service,
            qualified_finalizers=False,
            prepare=_prepare_api_service,
            validate=_validate_api_service,
            validate_status=_validate_api_service_status,
            name_rule=names.path_segment,  # The name depends on other fields: `validate` checks it.
            may_update_unconditionally=False,
        ),
    ),
)
