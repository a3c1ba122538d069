"""The fields a list can be narrowed by, read from the stored object as text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pinnace.model.objects import Object

Read = Callable[[Object], str]


def text_at(path: str, default: str = "") -> Read:
    """Reads a dotted path; a missing field reads as `default`, and booleans as Go prints them."""
    steps = path.split(".")

    def read(obj: Object) -> str:
        value: Any = obj
        for step in steps:
            value = value.get(step) if isinstance(value, dict) else None
            if value is None:
                return default
        if isinstance(value, bool):
            return "true" if value else "false"
        return str(value)

    return read


def fields(*paths: str) -> Mapping[str, Read]:
    return {path: text_at(path) for path in paths}


def _source(event: Object) -> str:
    component = (event.get("source") or {}).get("component")
    return str(component or event.get("reportingComponent") or "")


_ABOUT = ("kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath")

POD: Mapping[str, Read] = {
    **fields("spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName"),
    "spec.hostNetwork": text_at("spec.hostNetwork", "false"),
    **fields("status.phase", "status.podIP", "status.nominatedNodeName"),
    "status.podIPs": lambda pod: "",  # Accepted, and never more than empty.
    "spec.host": text_at("spec.nodeName"),  # What the first clients called it.
}
NODE: Mapping[str, Read] = {"spec.unschedulable": text_at("spec.unschedulable", "false")}
NAMESPACE = fields("status.phase")
SECRET = fields("type")
SERVICE = fields("spec.clusterIP", "spec.type")
REPLICAS: Mapping[str, Read] = {"status.replicas": text_at("status.replicas", "0")}
JOB: Mapping[str, Read] = {"status.successful": text_at("status.succeeded", "0")}
EVENT: Mapping[str, Read] = {
    **{f"involvedObject.{name}": text_at(f"involvedObject.{name}") for name in _ABOUT},
    **fields("reason", "reportingComponent", "type"),
    "source": _source,
}
NEW_EVENT: Mapping[str, Read] = {
    **{f"regarding.{name}": text_at(f"involvedObject.{name}") for name in _ABOUT},
    **fields("reason", "type"),
    "reportingController": text_at("reportingComponent"),
}
SIGNER = fields("spec.signerName")
POD_CERTIFICATE = fields("spec.signerName", "spec.podName", "spec.nodeName")
RESOURCE_SLICE = fields("spec.nodeName", "spec.driver")
