"""kr8s: objects that know what can be done with them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import kr8s
import pytest
from kr8s.asyncio import api as connect
from kr8s.asyncio.objects import ConfigMap, Deployment
from tests.clients.manifests import config_map, deployment

# kr8s says so of every minor that is newer than itself.
pytestmark = pytest.mark.filterwarnings("ignore:Kubernetes version .* is not supported")


@pytest.fixture
async def api(kubeconfig: Path, namespace: str) -> Any:
    return await connect(kubeconfig=str(kubeconfig), namespace=namespace)


async def test_objects_are_created_changed_waited_for_and_deleted(api: Any) -> None:
    settings = await ConfigMap(config_map("settings", colour="red"), api=api)
    await settings.create()
    assert await settings.exists()
    await settings.patch({"data": {"colour": "blue"}})
    await settings.label(tier="front")
    await settings.annotate(note="two words")
    settings = await ConfigMap.get("settings", api=api)
    assert (settings.data, settings.labels, settings.annotations) == (
        {"colour": "blue"},
        {"tier": "front"},
        {"note": "two words"},
    )
    await settings.patch([{"op": "add", "path": "/data/size", "value": "big"}], type="json")
    assert [item.name async for item in api.get("configmaps", label_selector={"tier": "front"})] == ["settings"]
    await settings.remove_label("tier")
    assert [item.name async for item in api.get("configmaps", label_selector="tier=front")] == []
    await settings.delete()
    async with asyncio.timeout(60):
        await settings.wait("delete")
    assert not await settings.exists()
    with pytest.raises(kr8s.NotFoundError):
        await ConfigMap.get("settings", api=api, timeout=1)


async def test_workloads_are_scaled_and_waited_for(api: Any) -> None:
    web = await Deployment(deployment("web"), api=api)
    await web.create()

    async with asyncio.timeout(60):
        await web.patch({"spec": {"replicas": 3}}, subresource="scale")
        await web.wait("condition=Progressing")
        await web.wait("jsonpath='{.spec.replicas}'=3")
    await web.refresh()
    assert web.replicas == 3


async def test_a_watch_sees_changes_in_their_order(api: Any) -> None:
    labels = {"of": "test"}
    settings = await ConfigMap(config_map("settings", labels=labels, colour="red"), api=api)
    await settings.create()
    seen = []
    async with asyncio.timeout(60):
        async for change, obj in api.watch("configmaps", label_selector=labels):
            seen.append((change, obj.data["colour"]))
            if change == "ADDED":
                await settings.patch({"data": {"colour": "blue"}})
            elif change == "MODIFIED":
                await settings.delete()
            else:
                break
    assert seen == [("ADDED", "red"), ("MODIFIED", "blue"), ("DELETED", "blue")]


async def test_the_cluster_tells_what_it_is_and_who_is_asking(api: Any) -> None:
    assert (await api.version())["major"] == "1"
    assert await api.whoami()
    kinds = {resource["kind"] for resource in await api.api_resources()}
    assert {"Pod", "Deployment", "CustomResourceDefinition"} <= kinds
    assert "apps/v1" in [version async for version in api.api_versions()]
