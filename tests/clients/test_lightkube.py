"""lightkube: typed by dataclasses, synchronous and asynchronous."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import cast

import pytest
from lightkube import ApiError, AsyncClient, Client, KubeConfig
from lightkube.generic_resource import create_namespaced_resource
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.apps_v1 import Deployment
from lightkube.resources.core_v1 import ConfigMap
from lightkube.types import PatchType
from tests.clients.manifests import deployment


@pytest.fixture
def lightkube(kubeconfig: Path, namespace: str) -> Iterator[Client]:
    with Client(KubeConfig.from_file(kubeconfig), namespace=namespace, field_manager="test") as client:
        yield client


def _config_map(name: str, **data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, labels={"of": "test"}), data=data)


def _names(objects: Iterable[ConfigMap]) -> list[str | None]:
    return [obj.metadata.name if obj.metadata else None for obj in objects]


def test_objects_are_created_listed_replaced_and_deleted(lightkube: Client) -> None:
    for number in range(5):
        lightkube.create(_config_map(f"item-{number}"))
    assert _names(iter(lightkube.list(ConfigMap, labels={"of": "test"}, chunk_size=2))) == [
        f"item-{n}" for n in range(5)
    ]
    item = lightkube.get(ConfigMap, "item-0")
    item.data = {"a": "1"}
    assert lightkube.replace(item).data == {"a": "1"}
    with pytest.raises(ApiError) as lost:
        lightkube.replace(item)
    assert (lost.value.status.code, lost.value.status.reason) == (409, "Conflict")
    lightkube.delete(ConfigMap, "item-0")
    with pytest.raises(ApiError) as gone:
        lightkube.get(ConfigMap, "item-0")
    assert gone.value.status.message == 'configmaps "item-0" not found'
    lightkube.deletecollection(ConfigMap)
    assert _names(lightkube.list(ConfigMap, labels={"of": "test"})) == []


def test_every_kind_of_patch_is_understood(lightkube: Client) -> None:
    lightkube.create(_config_map("settings", a="1", b="2"))
    assert lightkube.patch(ConfigMap, "settings", {"data": {"c": "3"}}).data == {"a": "1", "b": "2", "c": "3"}
    merged = lightkube.patch(ConfigMap, "settings", {"data": {"a": None}}, patch_type=PatchType.MERGE)
    assert merged.data == {"b": "2", "c": "3"}
    steps = [{"op": "remove", "path": "/data/b"}]
    assert lightkube.patch(ConfigMap, "settings", steps, patch_type=PatchType.JSON).data == {"c": "3"}
    wanted = _config_map("settings", d="4")
    applied = lightkube.patch(ConfigMap, "settings", wanted, patch_type=PatchType.APPLY)
    assert applied.data == {"c": "3", "d": "4"}
    with pytest.raises(ApiError) as conflict:
        lightkube.apply(_config_map("settings", d="5"), field_manager="rival")
    assert conflict.value.status.code == 409
    assert lightkube.apply(_config_map("settings", d="5"), field_manager="rival", force=True).data == {
        "c": "3",
        "d": "5",
    }


def test_a_watch_sees_changes_in_their_order(lightkube: Client) -> None:
    lightkube.create(_config_map("settings", colour="red"))
    seen = []
    for change, obj in lightkube.watch(ConfigMap, labels={"of": "test"}, server_timeout=60):
        seen.append((change, obj.data))
        if change == "ADDED":
            lightkube.patch(ConfigMap, "settings", {"data": {"colour": "blue"}})
        elif change == "MODIFIED":
            lightkube.delete(ConfigMap, "settings")
        else:
            break
    assert seen == [("ADDED", {"colour": "red"}), ("MODIFIED", {"colour": "blue"}), ("DELETED", {"colour": "blue"})]


def test_subresources_have_classes_of_their_own(lightkube: Client) -> None:
    lightkube.create(cast(Deployment, Deployment.from_dict(deployment("web", replicas=2))))
    scale = lightkube.get(Deployment.Scale, "web")
    assert scale.spec is not None
    scale.spec.replicas = 4
    assert scale.metadata is not None
    scale.metadata.resourceVersion = None  # The Deployment controller writes too.
    lightkube.replace(scale, "web")
    patched = lightkube.patch(Deployment.Status, "web", {"status": {"replicas": 4, "readyReplicas": 3}})
    assert patched.status is not None and patched.status.readyReplicas == 3
    progressing = lightkube.wait(Deployment, "web", for_conditions=["Progressing"])
    assert progressing.spec is not None and progressing.spec.replicas == 4


def test_a_kind_can_be_used_without_its_class(lightkube: Client) -> None:
    lease = create_namespaced_resource("coordination.k8s.io", "v1", "Lease", "leases")
    lightkube.create(lease(metadata=ObjectMeta(name="lock"), spec={"holderIdentity": "one"}))
    taken = lightkube.patch(lease, "lock", {"spec": {"holderIdentity": "two"}}, patch_type=PatchType.MERGE)
    assert taken["spec"] == {"holderIdentity": "two"}
    assert [item["metadata"]["name"] for item in lightkube.list(lease)] == ["lock"]


async def test_the_asynchronous_client_does_the_same(kubeconfig: Path, namespace: str) -> None:
    async with (
        asyncio.timeout(60),
        AsyncClient(KubeConfig.from_file(kubeconfig), namespace=namespace, field_manager="test") as client,
    ):
        await client.create(_config_map("settings", colour="red"))
        await client.apply(_config_map("settings", colour="red", size="big"), force=True)
        assert (await client.get(ConfigMap, "settings")).data == {"colour": "red", "size": "big"}
        assert [item.data async for item in client.list(ConfigMap, labels={"of": "test"})] == [
            {"colour": "red", "size": "big"}
        ]
        seen = []
        async for change, _ in client.watch(ConfigMap, labels={"of": "test"}):
            seen.append(change)
            if change == "DELETED":
                break
            await client.delete(ConfigMap, "settings")
        assert seen == ["ADDED", "DELETED"]
