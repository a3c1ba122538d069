"""The synchronous client does what the asynchronous one does, over HTTPS and from several threads."""

from __future__ import annotations

import asyncio
import inspect
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pinnace.client.client import Client
from pinnace.client.sync import SyncClient, connect
from pinnace.model import errors
from pinnace.sdk.kinds import ConfigMap

CONFIG_MAP = "v1/ConfigMap"


def config_map(name: str, **data: str) -> ConfigMap:
    return ConfigMap(apiVersion="v1", kind="ConfigMap", metadata={"name": name, "labels": {"app": "web"}}, data=data)


def use_every_verb(kubeconfig: Path) -> None:
    with connect(kubeconfig=kubeconfig, namespace="default") as client:
        assert client.create(config_map("a", text="1"))["data"] == {"text": "1"}
        assert client.apply(config_map("b", text="2"), field_manager="me")["metadata"]["name"] == "b"
        assert client.patch(CONFIG_MAP, "a", {"data": {"text": "3"}})["data"] == {"text": "3"}
        assert client.get(ConfigMap, "a")["data"] == {"text": "3"}
        assert client.get_or_none(CONFIG_MAP, "none") is None
        listed = [item["metadata"]["name"] for item in client.list(CONFIG_MAP, labels={"app": "web"})]
        assert listed == [item["metadata"]["name"] for item in client.each(ConfigMap, labels="app=web", limit=1)]
        with pytest.raises(errors.NotFound):
            client.get(CONFIG_MAP, "none")
        for type_, item in client.changes(ConfigMap, namespace="default", labels="app=web"):
            assert (type_, item["metadata"]["name"]) in (("ADDED", "a"), ("ADDED", "b"))
            if item["metadata"]["name"] == "b":
                break
        client.delete(CONFIG_MAP, "a")
        assert client.wait(CONFIG_MAP, "a", "delete") is None
    with pytest.raises(RuntimeError, match="the client is closed"):
        client.list(CONFIG_MAP)
    client.close()


async def test_every_verb_is_a_plain_call(kubeconfig: Path) -> None:
    await asyncio.to_thread(use_every_verb, kubeconfig)
    assert not [thread for thread in threading.enumerate() if thread.name == "pinnace-sync-client"]


def use_in_threads(kubeconfig: Path) -> list[str]:
    with connect(kubeconfig=kubeconfig) as client, ThreadPoolExecutor(4) as pool:
        made = pool.map(lambda number: client.create(config_map(f"m{number}")), range(8))
        return [item["metadata"]["name"] for item in made]


async def test_several_threads_share_a_client(kubeconfig: Path) -> None:
    assert await asyncio.to_thread(use_in_threads, kubeconfig) == [f"m{number}" for number in range(8)]


def test_a_client_that_cannot_be_made_leaves_no_thread() -> None:
    def fail() -> Client:
        raise ValueError("no kubeconfig")

    with pytest.raises(ValueError, match="no kubeconfig"):
        SyncClient(fail)
    assert not [thread for thread in threading.enumerate() if thread.name == "pinnace-sync-client"]


def test_each_verb_has_the_signature_of_its_model() -> None:
    for name in ("get", "list", "apply", "wait", "wait_for_rollout", "logs", "delete_collection"):
        ours, model = (inspect.signature(getattr(owner, name)).parameters for owner in (SyncClient, Client))
        assert list(ours) == list(model)
