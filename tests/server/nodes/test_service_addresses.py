"""Services as the server's own process reaches them: by endpoints outside of the cluster's network, or not at all."""

from __future__ import annotations

from typing import Any

import pytest
from tests.server.in_process import SERVICES, InProcess, control_plane, service

from pinnace.server.nodes.connections import ServedAddresses

SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
POD = {"kind": "Pod", "name": "web-1", "namespace": "default"}


def endpoint_slice(**endpoint: Any) -> dict[str, Any]:
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": "web-1", "labels": {"kubernetes.io/service-name": "web"}},
        "addressType": "IPv4",
        "ports": [{"name": "", "port": 8443, "protocol": "TCP"}],
        "endpoints": [endpoint],
    }


async def address_of(api: InProcess) -> tuple[str, int]:
    return ServedAddresses(api.plane.fanout).address_of("default", "web", 443)


@pytest.mark.parametrize(
    "endpoint",
    [
        pytest.param(None, id="no endpoints"),
        pytest.param({"addresses": ["10.244.0.7"], "targetRef": POD}, id="a pod"),
        pytest.param({"addresses": ["192.0.2.7"], "conditions": {"ready": False}}, id="not ready"),
    ],
)
async def test_a_service_without_an_endpoint_to_dial_is_not_dialled_at_its_cluster_ip(
    endpoint: dict[str, Any] | None,
) -> None:
    async with control_plane() as api:
        await api.made(SERVICES, service("web", ports=[{"port": 443}]))
        if endpoint is not None:
            await api.made(SLICES, endpoint_slice(**endpoint))
        with pytest.raises(LookupError, match='no endpoints available for service "web"'):
            await address_of(api)


async def test_an_endpoint_outside_of_the_cluster_is_dialled() -> None:
    async with control_plane() as api:
        await api.made(SERVICES, service("web", ports=[{"port": 443}]))
        await api.made(SLICES, endpoint_slice(addresses=["192.0.2.7"]))
        assert await address_of(api) == ("192.0.2.7", 8443)
