"""A cache that follows the server: through changes, a restart, and the loss of history."""

# The package says that it is typed, but much of it is not.
# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
from kubernetes import client, config, watch
from kubernetes.client import ApiClient, CoreV1Api
from kubernetes.client.exceptions import ApiException
from kubernetes.informer import ADDED, DELETED, MODIFIED, SharedInformer
from tests.clients.server_process import ServerProcess
from tests.free_ports import free_port

from pinnace.store.sqlite.store import SqliteStore

PATIENCE = 60.0


class Follower:
    """An informer on the config maps of one namespace, whose events are waited for one by one."""

    def __init__(self, core: CoreV1Api, namespace: str) -> None:
        self._events: Queue[tuple[str, str, dict[str, str]]] = Queue()
        self._informer = SharedInformer(core.list_namespaced_config_map, namespace=namespace, label_selector="of=test")
        for kind in (ADDED, MODIFIED, DELETED):
            self._informer.add_event_handler(kind, lambda obj, kind=kind: self._put(kind, obj))

    def _put(self, kind: str, obj: Any) -> None:
        self._events.put((kind, obj.metadata.name, obj.data or {}))

    def next(self) -> tuple[str, str, dict[str, str]]:
        return self._events.get(timeout=PATIENCE)

    @property
    def cache(self) -> dict[str, dict[str, str]]:
        return {obj.metadata.name: obj.data or {} for obj in self._informer.cache.list()}

    @contextmanager
    def following(self) -> Iterator[None]:
        self._informer.start()
        try:
            yield
        finally:
            self._informer.stop()


class LastingServer:
    """A server that can be stopped and started again where it was, with what it had."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._port = free_port()
        self._running = self._start()
        self.api: ApiClient = config.new_client_from_config(str(self._running.kubeconfig))

    def _start(self) -> ServerProcess:
        server = ServerProcess.start(
            self._directory, "--no-controllers", "--data-dir", str(self._directory / "data"), port=self._port
        )
        server.await_kubeconfig()
        return server

    def stop(self) -> None:
        assert self._running.stop() == 0

    def start(self) -> None:
        self._running = self._start()

    def forget_history(self) -> None:
        """Compact, as the server does by itself after minutes; only while it is stopped."""

        async def forget() -> None:
            store = await SqliteStore.open(self._directory / "data" / "state.db")
            await store.compact(store.revision)
            await store.close()

        asyncio.run(forget())

    def close(self) -> None:
        self.api.close()
        if self._running.process.poll() is None:
            self.stop()


@pytest.fixture
def lasting(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[LastingServer]:
    # While the server is away the client tells of every attempt to reach it.
    caplog.set_level(logging.CRITICAL, logger="kubernetes.informer")
    caplog.set_level(logging.CRITICAL, logger="urllib3")
    server = LastingServer(tmp_path)
    try:
        yield server
    finally:
        server.close()


def _config_map(name: str, **data: str) -> client.V1ConfigMap:
    return client.V1ConfigMap(metadata=client.V1ObjectMeta(name=name, labels={"of": "test"}), data=data)


def test_an_informer_follows_every_change(api_client: ApiClient, namespace: str) -> None:
    core = CoreV1Api(api_client)
    core.create_namespaced_config_map(namespace, _config_map("one", a="1"))
    follower = Follower(core, namespace)
    with follower.following():
        assert follower.next() == ("ADDED", "one", {"a": "1"})
        core.create_namespaced_config_map(namespace, _config_map("two"))
        assert follower.next() == ("ADDED", "two", {})
        core.patch_namespaced_config_map("one", namespace, {"data": {"a": "2"}})
        assert follower.next() == ("MODIFIED", "one", {"a": "2"})
        core.delete_namespaced_config_map("two", namespace)
        assert follower.next() == ("DELETED", "two", {})
        core.patch_namespaced_config_map("one", namespace, {"metadata": {"labels": {"of": "others"}}})
        assert follower.next()[:2] == ("DELETED", "one")
        assert follower.cache == {}


def test_an_informer_goes_on_after_a_restart_without_listing_again(lasting: LastingServer) -> None:
    core = CoreV1Api(lasting.api)
    core.create_namespaced_config_map("default", _config_map("one", a="1"))
    follower = Follower(core, "default")
    with follower.following():
        assert follower.next() == ("ADDED", "one", {"a": "1"})
        lasting.stop()
        lasting.start()
        core.create_namespaced_config_map("default", _config_map("two"))
        assert follower.next() == ("ADDED", "two", {})  # After a second list, "one" would come first, as MODIFIED.
        assert follower.cache == {"one": {"a": "1"}, "two": {}}


def test_a_watch_sees_after_a_restart_what_happened_before(lasting: LastingServer) -> None:
    core = CoreV1Api(lasting.api)
    start = core.list_namespaced_config_map("default").metadata
    assert start is not None
    core.create_namespaced_config_map("default", _config_map("one"))
    core.delete_namespaced_config_map("one", "default")
    lasting.stop()
    lasting.start()
    stream = watch.Watch()
    seen = []
    for event in stream.stream(
        core.list_namespaced_config_map, "default", resource_version=start.resource_version, timeout_seconds=20
    ):
        seen.append((event["type"], event["object"].metadata.name))
        if event["type"] == "DELETED":
            stream.stop()
    assert seen == [("ADDED", "one"), ("DELETED", "one")]


def test_an_informer_lists_again_when_history_is_lost(lasting: LastingServer) -> None:
    core = CoreV1Api(lasting.api)
    created = core.create_namespaced_config_map("default", _config_map("one", a="1"))
    follower = Follower(core, "default")
    with follower.following():
        assert follower.next() == ("ADDED", "one", {"a": "1"})
        core.create_namespaced_config_map("kube-public", _config_map("elsewhere"))  # Later than all it has seen.
        lasting.stop()
        lasting.forget_history()
        lasting.start()
        assert follower.next() == ("MODIFIED", "one", {"a": "1"})
        core.delete_namespaced_config_map("one", "default")
        assert follower.next() == ("DELETED", "one", {"a": "1"})

    assert created.metadata is not None
    with pytest.raises(ApiException) as expired:
        for _ in watch.Watch().stream(
            core.list_namespaced_config_map,
            "default",
            resource_version=created.metadata.resource_version,
            timeout_seconds=20,
        ):
            pass
    assert expired.value.status == 410
    assert f"too old resource version: {created.metadata.resource_version} (" in str(expired.value.reason)
