"""The controllers that users of kubectl rely on: namespaces are emptied, garbage is collected."""

from __future__ import annotations

import json
import secrets
from typing import Any

import pytest
from tests.clients.kubectl_command import Kubectl

from pinnace.reconcile.owners import owner_reference


@pytest.fixture
def owner(kubectl: Kubectl) -> dict[str, Any]:
    """A Deployment with two ReplicaSets, none of which wants pods, so that this is about owners alone."""
    deployment: dict[str, Any] = json.loads(kubectl("create -f - -o json", stdin=json.dumps(_workload("Deployment"))))
    for name in ("one", "two"):
        replica_set = _workload("ReplicaSet", name=name)
        # With the labels that the Deployment selects: it would release the ReplicaSet otherwise.
        replica_set["metadata"]["labels"] = {"app": "web"}
        replica_set["metadata"]["ownerReferences"] = [owner_reference(deployment)]
        kubectl("create -f -", stdin=json.dumps(replica_set))
    return deployment


def _workload(kind: str, name: str = "web") -> dict[str, Any]:
    labels = {"app": name}
    template = {
        "metadata": {"labels": labels},
        "spec": {"containers": [{"name": "main", "image": "example.com/web:1"}]},
    }
    spec: dict[str, Any] = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    if kind == "Deployment":
        spec["paused"] = True
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def test_a_namespace_goes_with_all_that_is_in_it(kubectl: Kubectl) -> None:
    name = f"full-{secrets.token_hex(4)}"
    kubectl(f"create namespace {name}")
    for expected in ("serviceaccount/default", "configmap/kube-root-ca.crt"):  # kubectl fails if it misses two at once.
        kubectl(f"wait --for=create -n {name} {expected} --timeout=120s")
    kubectl(f"create configmap settings -n {name}")
    kubectl(f"create service clusterip web --tcp=80 -n {name}")
    kubectl(f"run web --image=example.com/web:1 -n {name}")
    kubectl(f"delete namespace {name} --timeout=120s")
    assert "NotFound" in kubectl.failure(f"get namespace {name}")
    assert kubectl.json(f"get configmaps,services,pods,serviceaccounts -n {name}")["items"] == []


def test_a_namespace_with_a_finalizer_in_it_waits_and_says_for_what(kubectl: Kubectl) -> None:
    name = f"held-{secrets.token_hex(4)}"
    kubectl(f"create namespace {name}")
    kubectl(f"create configmap held -n {name}")
    kubectl(f"""patch configmap held -n {name} -p '{{"metadata":{{"finalizers":["example.com/hold"]}}}}'""")
    kubectl(f"delete namespace {name} --wait=false")
    kubectl(f"wait namespace {name} --for=condition=NamespaceFinalizersRemaining --timeout=120s")
    namespace = kubectl.json(f"get namespace {name}")
    messages = {condition["type"]: condition["message"] for condition in namespace["status"]["conditions"]}
    assert messages["NamespaceContentRemaining"] == (
        "Some resources are remaining: configmaps. has 1 resource instances"
    )
    assert messages["NamespaceFinalizersRemaining"] == (
        "Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances"
    )
    kubectl(f"""patch configmap held -n {name} -p '{{"metadata":{{"finalizers":null}}}}'""")
    kubectl(f"wait namespace {name} --for=delete --timeout=120s")


@pytest.mark.parametrize("cascade", ["background", "foreground"])
def test_the_dependents_of_an_owner_go_with_it(kubectl: Kubectl, owner: dict[str, Any], cascade: str) -> None:
    kubectl(f"delete deployment web --cascade={cascade} --timeout=120s")
    kubectl("wait replicaset/one replicaset/two --for=delete --timeout=120s")


def test_orphans_stay_and_have_no_owner(kubectl: Kubectl, owner: dict[str, Any]) -> None:
    kubectl("delete deployment web --cascade=orphan --timeout=120s")
    left = kubectl.json("get replicasets")["items"]
    assert [obj["metadata"]["name"] for obj in left] == ["one", "two"]
    assert not any("ownerReferences" in obj["metadata"] for obj in left)
