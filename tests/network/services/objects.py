"""Services and EndpointSlices for tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def service(name: str, address: str = "10.96.0.7", **spec: Any) -> Any:
    ports = spec.pop("ports", [{"port": 80, "protocol": "TCP"}])
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"clusterIP": address, "clusterIPs": [address], "ports": ports, **spec},
    }


def endpoint(address: str, *, node: str = "here", **conditions: bool) -> Any:
    return {"addresses": [address], "nodeName": node, "conditions": conditions}


def endpoint_slice(service: str, endpoints: Sequence[Any], name: str = "", **fields: Any) -> Any:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": name or f"{service}-1",
            "namespace": "default",
            "labels": {"kubernetes.io/service-name": service},
        },
        "addressType": "IPv4",
        "ports": [{"name": "", "port": 8080, "protocol": "TCP"}],
        "endpoints": list(endpoints),
        **fields,
    }
