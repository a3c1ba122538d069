"""Pods get the zone and the region of their node as labels when they are bound."""

from __future__ import annotations

import pytest
from tests.server.in_process import PODS, InProcess, Object, pod

from pinnace.cluster.control_plane import build
from pinnace.cluster.settings import Settings
from pinnace.server.bootstrap.creation import bootstrap
from pinnace.store.memory import MemoryStore

NODES = "/api/v1/nodes"
ZONE, REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"


async def create_node(api: InProcess) -> None:
    metadata = {"name": "n1", "labels": {ZONE: "a", REGION: "west", "example.com/rack": "7"}}
    await api.made(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": metadata})


async def labels_of(api: InProcess, name: str) -> Object:
    obj: Object = (await api.get(f"{PODS}/{name}")).json["metadata"].get("labels") or {}
    return obj


def binding(name: str, node: str, kind: str = "Node") -> Object:
    target = {"kind": kind, "name": node} if kind else {"name": node}
    return {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}


async def test_a_bound_pod_gets_zone_and_region_in_place_of_its_own(api: InProcess) -> None:
    await create_node(api)
    await api.made(PODS, pod("web", labels={ZONE: "mine", "app": "web"}))
    await api.made(f"{PODS}/web/binding", binding("web", "n1"))
    assert await labels_of(api, "web") == {"app": "web", ZONE: "a", REGION: "west"}


async def test_a_pod_that_is_created_with_a_node_gets_them_too(api: InProcess) -> None:
    await create_node(api)
    made = pod("web")
    made["spec"]["nodeName"] = "n1"
    await api.made(PODS, made)
    assert await labels_of(api, "web") == {ZONE: "a", REGION: "west"}


async def test_the_labels_are_those_that_the_node_has_now(api: InProcess) -> None:
    await create_node(api)
    for name in ("first", "second", "third"):
        await api.made(PODS, pod(name))
    await api.made(f"{PODS}/first/binding", binding("first", "n1"))
    node = (await api.get(f"{NODES}/n1")).json
    node["metadata"]["labels"] = {ZONE: "b"}
    await api.put(f"{NODES}/n1", node)
    await api.made(f"{PODS}/second/binding", binding("second", "n1"))
    assert (await labels_of(api, "first"))[ZONE] == "a"
    assert await labels_of(api, "second") == {ZONE: "b"}
    await api.made(f"{PODS}/third/binding", binding("third", "unknown"))
    assert await labels_of(api, "third") == {}


async def test_a_binding_that_names_no_kind_copies_nothing(api: InProcess) -> None:
    await create_node(api)
    await api.made(PODS, pod("web"))
    await api.made(f"{PODS}/web/binding", binding("web", "n1", kind=""))
    assert await labels_of(api, "web") == {}


@pytest.mark.parametrize(("version", "copied"), [("1.34", {}), ("1.35", {ZONE: "a", REGION: "west"})])
async def test_labels_are_copied_since_1_35(version: str, copied: Object) -> None:
    store = MemoryStore()
    plane = await build(Settings(kubernetes_version=version), store)
    await bootstrap(plane.foundation, plane.local(), ("127.0.0.1", 6443))
    api = InProcess(plane)
    await create_node(api)
    await api.made(PODS, pod("web"))
    await api.made(f"{PODS}/web/binding", binding("web", "n1"))
    assert await labels_of(api, "web") == copied
    await store.close()
