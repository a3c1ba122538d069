"""`pinnace why-stuck` names what holds an object that was deleted, and the command that ends it."""

from __future__ import annotations

from typing import Any

import pytest

from pinnace.cli.explain.why_stuck import explain_deletion
from pinnace.cli.kubectl.resource_types import ResourceTypes
from pinnace.testing.cluster import Cluster

Object = dict[str, Any]
DEFINITION = "apiextensions.k8s.io/v1/CustomResourceDefinition"


def _config_map(name: str, namespace: str = "default", **metadata: Any) -> Object:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace, **metadata}}


async def _explain(cluster: Cluster, kind: str, name: str, namespace: str = "") -> str:
    types = await ResourceTypes.load(cluster.client)
    obj = await cluster.client.get(kind, name, namespace=namespace)
    assert obj["metadata"]["deletionTimestamp"]
    return "\n".join([line async for line in explain_deletion(cluster.client, types, obj)])


async def test_a_finalizer_is_named_with_its_manager_and_the_command_that_removes_it(cluster: Cluster) -> None:
    await cluster.client.create(_config_map("held", finalizers=["kept.example.com/a", "kept.example.com/b"]))
    await cluster.client.delete("v1/ConfigMap", "held", namespace="default")
    message = await _explain(cluster, "v1/ConfigMap", "held", "default")
    assert "finalizer kept.example.com/b, set by " in message
    assert "is that controller running?" in message
    patch = """-p '[{"op":"remove","path":"/metadata/finalizers/1"}]'"""
    assert f"kubectl patch configmap/held -n default --type=json {patch}" in message


async def test_an_object_that_is_set_aside_shows_why(cluster: Cluster) -> None:
    held = await cluster.client.create(_config_map("held", finalizers=["kept.example.com/a"]))
    about = {"kind": "ConfigMap", "name": "held", "namespace": "default", "uid": held["metadata"]["uid"]}
    event = {"reason": "SetAside", "message": "it held the event loop", "involvedObject": about}
    named = {"apiVersion": "v1", "kind": "Event", "metadata": {"name": "held.1", "namespace": "default"}}
    await cluster.client.create({**named, **event})
    await cluster.client.delete("v1/ConfigMap", "held", namespace="default")
    message = await _explain(cluster, "v1/ConfigMap", "held", "default")
    assert "set aside at 2026-" in message
    assert "it held the event loop" in message


async def test_a_namespace_shows_the_objects_that_remain(cluster: Cluster) -> None:
    await cluster.client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
    await cluster.client.create(_config_map("held", "shop", finalizers=["kept.example.com/a"]))
    await cluster.client.delete("v1/Namespace", "shop")
    await cluster.settle()
    message = await _explain(cluster, "v1/Namespace", "shop")
    assert "kept.example.com/a in 1 resource instances" in message
    assert "configmap/held has the finalizers kept.example.com/a: pinnace why-stuck configmap/held -n shop" in message


async def test_an_owner_shows_the_dependents_that_block_it(cluster: Cluster) -> None:
    owner = await cluster.client.create(_config_map("owner"))
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    owned = [{**reference, "blockOwnerDeletion": True}]
    await cluster.client.create(_config_map("owned", finalizers=["kept.example.com/a"], ownerReferences=owned))
    await cluster.client.delete("v1/ConfigMap", "owner", namespace="default", propagation="Foreground")
    await cluster.settle()
    message = await _explain(cluster, "v1/ConfigMap", "owner", "default")
    assert "finalizer foregroundDeletion" in message
    assert "pinnace why-stuck configmap/owned -n default" in message


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ([], "its node gone does not exist, so nothing confirms the end of its containers: kubectl delete pod web -n"),
        (
            ["gone"],
            "its node gone is not ready (no status), so nothing confirms the end of its containers: kubectl delete",
        ),
    ],
    ids=["no node", "a node that is not ready"],
)
async def test_a_pod_shows_that_its_node_cannot_stop_it(cluster: Cluster, node: list[str], message: str) -> None:
    containers = [{"name": "main", "image": "nginx"}]
    spec = {"nodeName": "gone", "containers": containers, "tolerations": [{"operator": "Exists"}]}
    for name in node:
        await cluster.client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "namespace": "default"}, "spec": spec}
    await cluster.client.create(pod)
    await cluster.client.delete("v1/Pod", "web", namespace="default")
    assert message in await _explain(cluster, "v1/Pod", "web", "default")


async def test_a_kind_shows_its_objects(cluster: Cluster) -> None:
    names = {"plural": "things", "kind": "Thing", "singular": "thing"}
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    spec = {"group": "stuck.example.com", "scope": "Namespaced", "names": names, "versions": [version]}
    head = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"}
    await cluster.client.create({**head, "metadata": {"name": "things.stuck.example.com"}, "spec": spec})
    await cluster.settle()
    metadata = {"name": "one", "namespace": "default", "finalizers": ["kept.example.com/a"]}
    await cluster.client.create({"apiVersion": "stuck.example.com/v1", "kind": "Thing", "metadata": metadata})
    await cluster.client.delete(DEFINITION, "things.stuck.example.com")
    await cluster.settle()
    message = await _explain(cluster, DEFINITION, "things.stuck.example.com")
    assert "thing.stuck.example.com/one has the finalizers kept.example.com/a: pinnace why-stuck" in message
