"""The managedFields of a new cluster's objects are those of a new Kubernetes cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.server.in_process import InProcess, control_plane

from pinnace.testing.cluster import Cluster

RBAC = "/apis/rbac.authorization.k8s.io/v1"
FLOW_CONTROL = "/apis/flowcontrol.apiserver.k8s.io/v1"
SERVER = ("kube-apiserver", "Update", "")
PRODUCER = ("api-priority-and-fairness-config-producer-v1", "Update", "")
CONSUMER = ("api-priority-and-fairness-config-consumer-v1", "Apply", "status")
AGGREGATOR = ("clusterrole-aggregation-controller", "Apply", "")
AVAILABLE = ("kubernetes-service-cidr-controller", "Apply", "status")
_METADATA: dict[str, Any] = {
    "f:annotations": {".": {}, "f:rbac.authorization.kubernetes.io/autoupdate": {}},
    "f:labels": {".": {}, "f:kubernetes.io/bootstrapping": {}},
}


@pytest.fixture
async def api() -> AsyncIterator[InProcess]:
    async with control_plane() as plane:
        yield plane


@pytest.mark.parametrize(
    ("target", "managers"),
    [
        ("/api/v1/namespaces/default", [SERVER]),
        ("/api/v1/namespaces/default/services/kubernetes", [SERVER]),
        ("/api/v1/namespaces/default/endpoints/kubernetes", [SERVER]),
        ("/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes", [SERVER]),
        ("/apis/apiregistration.k8s.io/v1/apiservices/v1.apps", [SERVER]),
        ("/apis/networking.k8s.io/v1/servicecidrs/kubernetes", [AVAILABLE, SERVER]),
        (f"{FLOW_CONTROL}/flowschemas/exempt", [CONSUMER, PRODUCER]),
        (f"{FLOW_CONTROL}/prioritylevelconfigurations/system", [PRODUCER]),
        (f"{RBAC}/clusterroles/view", [AGGREGATOR, SERVER]),
        (f"{RBAC}/clusterrolebindings/cluster-admin", [SERVER]),
    ],
)
async def test_a_bootstrap_object_has_the_managers_of_kubernetes(
    api: InProcess, target: str, managers: list[tuple[str, str, str]]
) -> None:
    obj = (await api.get(target)).json["metadata"]["managedFields"]
    assert [(entry["manager"], entry["operation"], entry.get("subresource", "")) for entry in obj] == managers


@pytest.mark.parametrize(
    ("target", "fields"),
    [
        (f"{RBAC}/clusterroles/cluster-admin", {"f:metadata": _METADATA, "f:rules": {}}),
        (f"{RBAC}/clusterrolebindings/cluster-admin", {"f:metadata": _METADATA, "f:roleRef": {}, "f:subjects": {}}),
        (
            "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes",
            {
                "f:addressType": {},
                "f:endpoints": {},
                "f:metadata": {"f:labels": {".": {}, "f:kubernetes.io/service-name": {}}},
                "f:ports": {},
            },
        ),
    ],
    ids=["role", "binding", "slice"],
)
async def test_the_server_owns_the_fields_that_it_wrote(api: InProcess, target: str, fields: dict[str, Any]) -> None:
    (entry,) = (await api.get(target)).json["metadata"]["managedFields"]
    assert entry["fieldsV1"] == fields


async def test_the_rules_of_an_aggregated_role_belong_to_the_controller(cluster: Cluster) -> None:
    kind: dict[str, Any] = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"}
    part = [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]
    selectors = {"clusterRoleSelectors": [{"matchLabels": {"to": "readers"}}]}
    everything = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
    await cluster.client.create({**kind, "metadata": {"name": "one", "labels": {"to": "readers"}}, "rules": part})
    await cluster.client.create(
        {**kind, "metadata": {"name": "all"}, "aggregationRule": selectors, "rules": everything}
    )
    await cluster.settle()
    role = await cluster.client.get("rbac.authorization.k8s.io/v1/ClusterRole", "all")
    entries = role["metadata"]["managedFields"]
    assert role["rules"] == part
    owners = [(entry["manager"], entry["operation"]) for entry in entries if "f:rules" in entry["fieldsV1"]]
    assert owners == [("clusterrole-aggregation-controller", "Apply")]
