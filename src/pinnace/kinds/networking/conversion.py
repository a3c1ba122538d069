"""Ingresses as v1beta1 wrote them: backends had other fields."""

from __future__ import annotations

from typing import Any

from pinnace.kinds import older_schemas
from pinnace.model.objects import Object
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
