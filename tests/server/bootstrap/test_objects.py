"""A new cluster has what a new Kubernetes cluster has."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from pinnace.kinds import catalog
from pinnace.kinds.definitions import Definitions
from pinnace.model.objects import Object
from pinnace.model.resources import Registry
from pinnace.server.bootstrap.endpoints import api_endpoints, is_usable_address
from pinnace.server.bootstrap.objects import bootstrap_objects

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
OBJECTS_1_36 = [json.loads(line) for line in (Path(__file__).parent / "objects_1_36.jsonl").read_text().splitlines()]
"""The flow schemas, priority levels and API services of a new Kubernetes 1.36."""


def born(
    minor: str = "1.36", *, address: str = "192.0.2.7", old_versions: bool = False
) -> dict[tuple[str, str], Object]:
    registry = Registry(catalog.resources(Definitions.load(minor), old_versions=old_versions))
    objects = bootstrap_objects(registry, address=address, port=6443, now=NOW)
    return {(obj["kind"], obj["metadata"]["name"]): obj for obj in objects}


def test_flow_control_and_api_services_equal_those_of_a_real_cluster() -> None:
    objects = born()
    kinds = {"FlowSchema", "PriorityLevelConfiguration", "APIService"}
    made = {key: (obj["apiVersion"], obj["spec"]) for key, obj in objects.items() if key[0] in kinds}
    assert made == {(obj["kind"], obj["name"]): (obj["apiVersion"], obj["spec"]) for obj in OBJECTS_1_36}


def test_the_api_has_a_service_with_an_address() -> None:
    objects = born()
    service = objects["Service", "kubernetes"]
    assert service["spec"]["clusterIP"] == "10.96.0.1"
    assert service["spec"]["ports"] == [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": 6443}]
    assert objects["ServiceCIDR", "kubernetes"]["spec"]["cidrs"] == ["10.96.0.0/16"]


@pytest.mark.parametrize(("address", "family"), [("127.0.0.1", "IPv4"), ("::1", "IPv6"), ("192.0.2.7", "IPv4")])
def test_the_service_leads_to_this_server(address: str, family: str) -> None:
    endpoints, slice_ = api_endpoints([(address, 6443)])
    assert endpoints["subsets"][0]["addresses"] == [{"ip": address}]
    assert (slice_["addressType"], slice_["endpoints"][0]["addresses"]) == (family, [address])


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "localhost"])
def test_a_server_without_one_address_has_no_endpoints(address: str) -> None:
    assert not is_usable_address(address)


def test_namespaces_come_before_what_lives_in_them() -> None:
    kinds = [kind for kind, _ in born()]
    assert kinds[:4] == ["Namespace"] * 4


def test_old_versions_have_api_services_that_rank_below_todays() -> None:
    objects = born(old_versions=True)
    old, today = objects["APIService", "v1beta1.extensions"], objects["APIService", "v1.apps"]
    assert old["spec"]["groupPriorityMinimum"] < today["spec"]["groupPriorityMinimum"]
    assert objects["APIService", "v2beta2.autoscaling"]["spec"]["versionPriority"] < 15


@pytest.mark.parametrize("minor", ["1.25", "1.28", "1.37"])
def test_every_minor_can_be_born(minor: str) -> None:
    version = {"1.25": None, "1.28": "v1beta3", "1.37": "v1"}[minor]
    obj = born(minor).get(("FlowSchema", "exempt"))
    assert (obj["apiVersion"].rpartition("/")[2] if obj else None) == version
