"""The official client's asynchronous twin."""

# The package says that it is typed, but much of it is not.
# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from kubernetes_asyncio import client, config, watch
from kubernetes_asyncio.client.exceptions import ApiException
from tests.clients.manifests import config_map


@pytest.fixture
async def core(kubeconfig: Path) -> AsyncIterator[Any]:
    async with await config.new_client_from_config(str(kubeconfig)) as api:
        yield client.CoreV1Api(api)


async def test_objects_are_created_listed_changed_and_deleted(core: Any, namespace: str) -> None:
    names = [f"item-{number}" for number in range(4)]
    labels = {"of": "test"}
    await asyncio.gather(
        *(core.create_namespaced_config_map(namespace, config_map(name, labels=labels)) for name in names)
    )
    listed = await core.list_namespaced_config_map(namespace, label_selector="of=test")
    assert [item.metadata.name for item in listed.items] == names
    patched = await core.patch_namespaced_config_map(
        "item-0", namespace, {"data": {"a": "1"}}, _content_type="application/merge-patch+json"
    )
    assert patched.data == {"a": "1"}
    await core.delete_namespaced_config_map("item-0", namespace)
    with pytest.raises(ApiException) as gone:
        await core.read_namespaced_config_map("item-0", namespace)
    assert gone.value.status == 404


async def test_a_watch_sees_what_happens_while_it_is_open(core: Any, namespace: str) -> None:
    labels = {"of": "test"}
    seen: list[tuple[str, str]] = []
    async with asyncio.timeout(60), watch.Watch() as stream:
        await core.create_namespaced_config_map(namespace, config_map("settings", labels=labels, colour="red"))
        async for event in stream.stream(core.list_namespaced_config_map, namespace, label_selector="of=test"):
            seen.append((event["type"], event["object"].data["colour"]))
            match len(seen):
                case 1:
                    await core.patch_namespaced_config_map(
                        "settings",
                        namespace,
                        {"data": {"colour": "blue"}},
                        _content_type="application/merge-patch+json",
                    )
                case 2:
                    await core.delete_namespaced_config_map("settings", namespace)
                case 3:
                    break
    assert seen == [("ADDED", "red"), ("MODIFIED", "blue"), ("DELETED", "blue")]
