"""Services, endpoints and slices of them are stored and rejected as in Kubernetes."""

from __future__ import annotations

from typing import Any

import pytest
from tests.kinds.recorded_writes import Write, answer_here, answer_recorded, recorded

from pinnace.kinds.services import strategy
from pinnace.kinds.services.endpoints import ENDPOINTS


@pytest.mark.parametrize("write", recorded("services"), ids=lambda write: write["name"])
def test_the_answer_is_that_of_a_real_server(write: Write) -> None:
    assert answer_here(write) == answer_recorded(write)


def _service(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": "a", "namespace": "b"}, "spec": spec}


def test_a_service_keeps_allocated_addresses_and_ports() -> None:
    given = {"clusterIP": "10.96.0.7", "clusterIPs": ["10.96.0.7"], "healthCheckNodePort": 31000}
    ports = [{"name": "http", "port": 80, "nodePort": 30080}, {"name": "https", "port": 443, "nodePort": 30443}]
    old = _service(type="LoadBalancer", externalTrafficPolicy="Local", ports=ports, **given)
    renumbered = [{"name": "http", "port": 8080}, {"name": "https", "port": 443}]
    new = _service(type="LoadBalancer", externalTrafficPolicy="Local", ports=renumbered)
    strategy.SERVICE.default(new)
    strategy.SERVICE.prepare(new, old)
    assert {field: new["spec"][field] for field in given} == given
    assert [port["nodePort"] for port in new["spec"]["ports"]] == [30080, 30443]


def test_a_node_port_that_moved_to_another_port_is_not_given_twice() -> None:
    old = _service(type="NodePort", ports=[{"name": "a", "port": 1, "nodePort": 30001}])
    moved = [{"name": "a", "port": 1}, {"name": "b", "port": 2, "nodePort": 30001}]
    new = _service(type="NodePort", ports=moved)
    strategy.SERVICE.default(new)
    strategy.SERVICE.prepare(new, old)
    assert [port.get("nodePort") for port in new["spec"]["ports"]] == [None, 30001]


def test_stored_endpoints_stay_valid() -> None:
    subsets = [{"addresses": [{"ip": "010.0.0.1"}]}]
    old = {"metadata": {"name": "a"}, "subsets": subsets}
    assert list(ENDPOINTS.validate(old, None))
    assert not list(ENDPOINTS.validate(old, old))
