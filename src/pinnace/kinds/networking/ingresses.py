"""Ingresses and ingress classes: defaults, validation, and the form of v1beta1, in which backends had other fields."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from pinnace.kinds import older_schemas
from pinnace.kinds.services.strategy import validate_load_balancer_host
from pinnace.kinds.validation.addresses import sloppy_ip, validate_ip
from pinnace.kinds.validation.fields import (
    validate_choice,
    validate_domain_path,
    validate_given_name,
    validate_immutable,
    validate_name,
)
from pinnace.model import names
from pinnace.model.field_errors import FieldError, forbidden, invalid, not_supported, required, too_long
from pinnace.model.objects import NOTHING, Object
from pinnace.model.resources import Strategy
from pinnace.model.typed_objects import (
    HTTPIngressPath,
    Ingress,
    IngressBackend,
    IngressClass,
    IngressClassParametersReference,
    IngressClassSpec,
    IngressRule,
    IngressServiceBackend,
    IngressSpec,
    ServiceBackendPort,
    TypedLocalObjectReference,
)
from pinnace.schema.shape import Schema

_STRING = {"type": "string"}
_INT_OR_STRING = {"x-kubernetes-int-or-string": True}


def _old_backend(raw: dict[str, Any]) -> dict[str, Any]:
    changed = older_schemas.with_fields(("service",), serviceName=_STRING, servicePort=_INT_OR_STRING)(raw)
    return {**changed, "required": []}


def old_ingress(schema: Schema) -> Schema:
    schema = older_schemas.at(schema, "spec.defaultBackend", _old_backend)
    schema = older_schemas.at(schema, "spec", older_schemas.renamed("backend", "defaultBackend"))
    schema = older_schemas.at(schema, "spec.rules.[].http.paths.[].backend", _old_backend)
    return older_schemas.at(schema, "spec.rules.[].http.paths.[]", older_schemas.optional("pathType"))


def ingress_to_v1(ingress: Object) -> Object:
    spec = ingress.get("spec")
    if not isinstance(spec, dict):
        return ingress
    if "backend" in spec:
        backend = spec.pop("backend")
        if backend is not None:
            spec["defaultBackend"] = _new_backend_of(backend)
    for path in _paths(spec):
        if path.get("pathType") is None:
            path["pathType"] = "ImplementationSpecific"
        if isinstance(path.get("backend"), dict):
            path["backend"] = _new_backend_of(path["backend"])
    return ingress


def ingress_from_v1(ingress: Object) -> Object:
    spec = ingress.get("spec")
    if not isinstance(spec, dict):
        return ingress
    if "defaultBackend" in spec:
        backend = spec.pop("defaultBackend")
        if backend is not None:
            spec["backend"] = _old_backend_of(backend)
    for path in _paths(spec):
        if isinstance(path.get("backend"), dict):
            path["backend"] = _old_backend_of(path["backend"])
    return ingress


def _paths(spec: Object) -> list[Object]:
    return [path for rule in spec.get("rules") or () for path in (rule.get("http") or {}).get("paths") or ()]


def _new_backend_of(backend: Object) -> Object:
    rest = {name: value for name, value in backend.items() if name not in ("serviceName", "servicePort")}
    name, port = backend.get("serviceName", ""), backend.get("servicePort")
    if not name and port in (None, 0):
        return rest
    service: Object = {"name": name}
    if isinstance(port, str):
        service["port"] = {"name": port}
    elif port:
        service["port"] = {"number": port}
    return {**rest, "service": service}


def _old_backend_of(backend: Object) -> Object:
    rest = {name: value for name, value in backend.items() if name != "service"}
    service = backend.get("service")
    if service is None:
        return rest
    port = service.get("port") or {}
    return {"serviceName": service.get("name", ""), "servicePort": port.get("name") or port.get("number", 0), **rest}


CLASS_ANNOTATION = "kubernetes.io/ingress.class"
PATH_TYPES = ("Exact", "ImplementationSpecific", "Prefix")
PARAMETER_SCOPES = ("Cluster", "Namespace")
MOST_CONTROLLER_BYTES = 250

_FORBIDDEN_IN_PATH = ("//", "/./", "/../", "%2f", "%2F")
_FORBIDDEN_AT_END = ("/..", "/.")
_WILDCARD = rf"\*\.{names.DNS_SUBDOMAIN}"
_wildcard = re.compile(_WILDCARD).fullmatch


def wildcard_domain(value: str) -> list[str]:
    """Check a wildcard name: *.example.com."""
    errs = ["must be no more than 253 characters"] if len(value) > 253 else []
    if not _wildcard(value):
        errs.append(
            "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist "
            "of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character "
            f"(e.g. '*.example.com', regex used for validation is '{_WILDCARD}')"
        )
    return errs


# --- ingresses


def _validate_ingress(ingress: Ingress, old: Ingress | None) -> Iterator[FieldError]:
    spec: IngressSpec = ingress.get("spec") or {}
    before: IngressSpec = (old or NOTHING).get("spec") or {}
    rules: Sequence[IngressRule] = spec.get("rules") or ()
    backend = spec.get("defaultBackend")
    if not rules and backend is None:
        yield invalid("spec", spec.get("rules"), "either `defaultBackend` or `rules` must be specified")
    if backend is not None:
        yield from _validate_backend(backend, "spec.defaultBackend")
    tolerates_wildcards = any(
        "*" in rule.get("host", "") and any(_validate_http(rule, "")) for rule in before.get("rules") or ()
    )
    for index, rule in enumerate(rules):
        path = f"spec.rules[{index}]"
        yield from _validate_host(rule.get("host", ""), f"{path}.host")
        if not (tolerates_wildcards and "*" in rule.get("host", "")):
            yield from _validate_http(rule, path)
    tolerates_secrets = any(
        names.dns_subdomain(tls["secretName"]) for tls in before.get("tls") or () if tls.get("secretName")
    )
    for index, tls in enumerate(spec.get("tls") or ()):
        path = f"spec.tls[{index}]"
        for place, host in enumerate(tls.get("hosts") or ()):
            rule_of_host = wildcard_domain if "*" in host else names.dns_subdomain
            yield from validate_name(host, rule_of_host, f"{path}.hosts[{place}]")
        if tls.get("secretName") and not tolerates_secrets:
            yield from validate_name(tls["secretName"], names.dns_subdomain, f"{path}.secretName")
    name = spec.get("ingressClassName")
    yield from validate_name(name, names.dns_subdomain, "spec.ingressClassName")
    annotation = (ingress["metadata"].get("annotations") or {}).get(CLASS_ANNOTATION)
    if old is None and annotation is not None and name is not None and annotation != name:
        detail = "must match `ingressClassName` when both are specified"
        yield invalid(f"annotations.{CLASS_ANNOTATION}", annotation, detail)


def _validate_host(host: str, path: str) -> Iterator[FieldError]:
    if not host:
        return
    if sloppy_ip(host) is not None:
        yield invalid(path, host, "must be a DNS name, not an IP address")
    yield from validate_name(host, wildcard_domain if "*" in host else names.dns_subdomain, path)


def _validate_http(rule: IngressRule, path: str) -> Iterator[FieldError]:
    http = rule.get("http")
    if http is None:
        return
    paths: Sequence[HTTPIngressPath] = http.get("paths") or ()
    if not paths:
        yield required(f"{path}.http.paths")
    for index, http_path in enumerate(paths):
        yield from _validate_path(http_path, f"{path}.http.paths[{index}]")


def _validate_path(http_path: HTTPIngressPath, path: str) -> Iterator[FieldError]:
    kind, text = http_path.get("pathType"), http_path.get("path", "")
    if kind is None:
        yield required(f"{path}.pathType", "pathType must be specified")
        return
    if kind in ("Exact", "Prefix"):
        if not text.startswith("/"):
            yield invalid(f"{path}.path", text, "must be an absolute path")
        for part in _FORBIDDEN_IN_PATH:
            if part in text:
                yield invalid(f"{path}.path", text, f"must not contain '{part}'")
        for end in _FORBIDDEN_AT_END:
            if text.endswith(end):
                yield invalid(f"{path}.path", text, f"cannot end with '{end}'")
    elif kind == "ImplementationSpecific":
        if text and not text.startswith("/"):
            yield invalid(f"{path}.path", text, "must be an absolute path")
    else:
        yield not_supported(f"{path}.pathType", kind, PATH_TYPES)
    yield from _validate_backend(http_path.get("backend") or {}, f"{path}.backend")


def _validate_backend(backend: IngressBackend, path: str) -> Iterator[FieldError]:
    service, resource = backend.get("service"), backend.get("resource")
    if resource is not None and service is not None:
        yield invalid(path, "", "cannot set both resource and service backends")
    elif resource is not None:
        yield from _validate_reference(resource, f"{path}.resource")
    elif service is not None:
        yield from _validate_service_backend(service, path)
    else:
        yield invalid(path, "", "resource or service backend is required")


def _validate_service_backend(service: IngressServiceBackend, path: str) -> Iterator[FieldError]:
    yield from validate_given_name(service.get("name"), names.dns_label, f"{path}.service.name")
    port: ServiceBackendPort = service.get("port") or {}
    name, number = port.get("name", ""), port.get("number", 0)
    if name and number:
        yield invalid(path, "", "cannot set both port name & port number")
    elif name:
        yield from validate_name(name, names.port_name, f"{path}.service.port.name")
    elif number:
        yield from validate_name(number, names.port_number, f"{path}.service.port.number")
    else:
        yield required(path, "port name or number is required")


def _validate_reference(
    reference: TypedLocalObjectReference | IngressClassParametersReference, path: str
) -> Iterator[FieldError]:
    yield from validate_name(reference.get("apiGroup"), names.dns_subdomain, f"{path}.apiGroup")
    for field in ("kind", "name"):
        if reference.get(field):
            yield from validate_name(reference[field], names.path_segment, f"{path}.{field}")
        else:
            yield required(f"{path}.{field}")


def _validate_ingress_status(ingress: Ingress, old: Ingress | None) -> Iterator[FieldError]:
    path = "status.loadBalancer.ingress"
    before = (((old or NOTHING).get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    known = [point["ip"] for point in before if point.get("ip")]
    for index, point in enumerate(((ingress.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()):
        if point.get("ip"):
            yield from validate_ip(point["ip"], f"{path}[{index}].ip", known)
        yield from validate_load_balancer_host(point.get("hostname", ""), f"{path}[{index}].hostname")


def _default_ingress(ingress: Ingress) -> None:
    ingress.setdefault("status", {}).setdefault("loadBalancer", {})


def _prepare_ingress(ingress: Ingress, old: Ingress | None) -> None:
    if old is None:
        ingress["status"] = {"loadBalancer": {}}


def _ingress_warnings(ingress: Ingress, old: Ingress | None) -> Iterator[str]:
    has_annotation = CLASS_ANNOTATION in (ingress["metadata"].get("annotations") or {})
    if old is None and has_annotation and (ingress.get("spec") or {}).get("ingressClassName") is None:
        yield f"annotation \"{CLASS_ANNOTATION}\" is deprecated, please use 'spec.ingressClassName' instead"


INGRESS = Strategy(
    default=_default_ingress,
    prepare=_prepare_ingress,
    validate=_validate_ingress,
    validate_status=_validate_ingress_status,
    warnings=_ingress_warnings,
    tracks_generation=True,
)

# --- ingress classes


def _default_class(ingress_class: IngressClass) -> None:
    parameters = (ingress_class.get("spec") or {}).get("parameters")
    if parameters is not None and parameters.get("scope") is None:
        parameters["scope"] = "Cluster"


def _validate_class(ingress_class: IngressClass, old: IngressClass | None) -> Iterator[FieldError]:
    spec: IngressClassSpec = ingress_class.get("spec") or {}
    controller = spec.get("controller", "")
    if old is not None:
        before = (old.get("spec") or {}).get("controller", "")
        yield from validate_immutable(controller, before, "spec.controller")
    if len(controller.encode()) > MOST_CONTROLLER_BYTES:
        yield too_long("spec.controller", MOST_CONTROLLER_BYTES)
    yield from validate_domain_path(controller, "spec.controller")
    if spec.get("parameters") is not None:
        yield from _validate_parameter(spec["parameters"], "spec.parameters")


def _validate_parameter(parameters: IngressClassParametersReference, path: str) -> Iterator[FieldError]:
    scope, namespace = parameters.get("scope"), parameters.get("namespace")
    yield from validate_choice(scope, PARAMETER_SCOPES, f"{path}.scope")
    if scope == "Namespace":
        if namespace is None:
            yield required(f"{path}.namespace", "`parameters.scope` is set to 'Namespace'")
        else:
            yield from validate_name(namespace, names.dns_label, f"{path}.namespace")
    elif scope == "Cluster" and namespace is not None:
        yield forbidden(f"{path}.namespace", "`parameters.scope` is set to 'Cluster'")
    yield from _validate_reference(parameters, path)


INGRESS_CLASS = Strategy(default=_default_class, validate=_validate_class, tracks_generation=True)
