"""The fixture `cluster` against a real server: `pytest --pinnace-server=KUBECONFIG`, a fresh namespace for each test.

It has the parts of a `Cluster` that any server can offer. A test that uses another part is skipped, with the reason.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest
import yaml

from pinnace.client.client import Client
from pinnace.client.connect import connect
from pinnace.client.kubeconfig import Access, Overrides, find_access_with, impersonation
from pinnace.model import errors
from pinnace.model.objects import Object, kind_of
from pinnace.model.users import service_account_groups, service_account_name
from pinnace.process.tasks import Tasks
from pinnace.reconcile.manager import Manager
from pinnace.sdk.extension import Extension
from pinnace.sdk.installation.installation import Rights, install_account, install_external_definitions
from pinnace.sdk.operator.operator import Operator

PATIENCE = 60.0
"""The real seconds in which a server, its controllers and the operators must come to rest."""
_QUIET_SECONDS = 0.5
_POLL_SECONDS = 0.05
_CLEANED = (
    "apiextensions.k8s.io/v1/CustomResourceDefinition",
    "admissionregistration.k8s.io/v1/MutatingWebhookConfiguration",
    "admissionregistration.k8s.io/v1/ValidatingWebhookConfiguration",
    "apiregistration.k8s.io/v1/APIService",
)
"""Kinds whose objects would change the next test: those that a test has added are deleted at its end."""
_CLOCK, _PROCESS = "the time of a real server passes by itself", "a real server runs in another process"
_MISSING = {
    "add_nodes": "a real server has its own nodes",
    "advance": _CLOCK,
    "clock": _CLOCK,
    "faults": f"faults are injected in this process, and {_PROCESS}",
    "fork": f"a fork copies this process, and {_PROCESS}",
    "history": f"the history is recorded in this process, and {_PROCESS}",
    "load": f"objects are stored as they were only in this process, and {_PROCESS}",
    "replay": _CLOCK,
}


def access_of(server: str) -> Access:
    """Return the access to a server: the path of a kubeconfig, or a URL for the current credentials.

    Raise KubeconfigError.
    """
    if "://" in server:
        return find_access_with(Overrides(server=server))
    return find_access_with(Overrides(kubeconfig=Path(server)))


class RealCluster:
    """A namespace of a real server, and the operators that run against it."""

    def __init__(self, server: str, access: Access, namespace: str) -> None:
        self.namespace = namespace
        self.managers: list[Manager] = []
        self._server = server
        self._access = access
        self._clients: list[Client] = []
        self._granted: list[Object] = []
        """Roles and bindings outside of the namespace."""
        self._tasks = Tasks()
        self._running: dict[Manager, tuple[asyncio.Event, asyncio.Task[None]]] = {}
        self.client = self._connect(access, "test")

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("_"):
            raise AttributeError(name)
        pytest.skip(f"cluster.{name}: {_MISSING.get(name, _PROCESS)}")

    def _connect(self, access: Access, name: str) -> Client:
        client = connect(access, namespace=self.namespace, field_manager=name)
        self._clients.append(client)
        return client

    def client_as(self, user: str, *groups: str) -> Client:
        """Return a client with this user's permissions, by impersonation."""
        headers = [("Impersonate-User", user), *(("Impersonate-Group", group) for group in groups)]
        return self._connect(replace(self._access, headers=tuple(headers)), user)

    async def run(
        self, operator: Extension, *, client: Client | None = None, rights: Rights = "role", **options: Any
    ) -> Manager:
        """Start an operator, which runs until the test ends. Its CRDs are installed when this returns.

        It acts as its ServiceAccount, with its generated roles, unless it has all `rights`.
        """
        if client is None and rights == "role":
            client = await self._connect_as_account(operator)
            options.setdefault("installer", self._connect(self._access, operator.name))
        if options.get("install", True) and isinstance(operator, Operator):
            await install_external_definitions(self.client, operator.declarations)
        started = operator.running(client or self._connect(self._access, operator.name), **options)
        return await self._keep(started)

    async def _connect_as_account(self, operator: Extension) -> Client:
        """Create the account and roles of an operator, and return a client that acts as it.

        Objects outside of the namespace of the test have its name as a prefix: the server may run the same operator.
        """
        objects = operator.account(self.namespace)
        elsewhere = {(obj["kind"], obj["metadata"]["name"]) for obj in objects if not self._is_here(obj)}
        for obj in objects:
            if not self._is_here(obj):
                obj = {**obj, "metadata": {**obj["metadata"], "name": f"{self.namespace}-{obj['metadata']['name']}"}}
                self._granted.append(obj)
            role = obj.get("roleRef") or {}
            if not self._is_here(obj) and (role.get("kind"), role.get("name")) in elsewhere:
                obj["roleRef"] = {**role, "name": f"{self.namespace}-{role['name']}"}
            await install_account(self.client, [obj])
        account = service_account_name(self.namespace, operator.name)
        headers = impersonation({"as": account, "as-groups": service_account_groups(self.namespace)})
        return self._connect(replace(self._access, headers=headers), operator.name)

    def _is_here(self, obj: Object) -> bool:
        return bool(obj["metadata"].get("namespace") == self.namespace)

    async def revoke(self) -> None:
        """Delete the roles of operators that the deletion of the namespace leaves."""
        granted, self._granted = self._granted, []
        for obj in granted:
            metadata = obj["metadata"]
            with suppress(errors.NotFound):
                await self.client.delete(kind_of(obj), metadata["name"], namespace=metadata.get("namespace", ""))

    async def _keep(self, started: AbstractAsyncContextManager[Manager]) -> Manager:
        ready: asyncio.Future[Manager] = asyncio.get_running_loop().create_future()
        stop = asyncio.Event()

        async def work() -> None:
            try:
                async with started as manager:
                    ready.set_result(manager)
                    await stop.wait()
            except BaseException as error:
                if ready.done():
                    raise
                ready.set_exception(error)

        # A task of its own: pytest may tear a fixture down in another task than the one that set it up.
        task = self._tasks.start(work())
        async with asyncio.timeout(PATIENCE):
            manager = await ready
        self._running[manager] = (stop, task)
        self.managers.append(manager)
        return manager

    async def kill(self, manager: Manager) -> None:
        """End an operator at once."""
        _, task = self._running.pop(manager)
        self.managers.remove(manager)
        task.cancel()
        await asyncio.wait([task])

    async def settle(self) -> None:
        """Return when the operators have been idle for a while, and their caches equal the server's state.

        Raise TimeoutError, with the controllers and objects that are busy.
        """
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(PATIENCE):
                quiet_since, seen = loop.time(), -1
                while loop.time() - quiet_since < _QUIET_SECONDS:
                    for manager in self.managers:
                        await manager.settle()
                    activity = sum(manager.activity for manager in self.managers)
                    if activity != seen:
                        quiet_since, seen = loop.time(), activity
                    await asyncio.sleep(_POLL_SECONDS)
        except TimeoutError:
            busy = "\n  ".join(line for manager in self.managers for line in manager.busy())
            raise TimeoutError(f"the operators have not settled after {PATIENCE:g} s:\n  {busy}") from None

    async def listen(self, directory: Path) -> Path:
        """Write a kubeconfig for the namespace of this test, and return its path."""
        if "://" in self._server:
            pytest.skip("cluster.listen: give --pinnace-server the path of a kubeconfig")
        config = yaml.safe_load(Path(self._server).read_text())
        for entry in config.get("contexts") or ():
            entry["context"]["namespace"] = self.namespace
        path = directory / "kubeconfig"
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(config))
        return path

    async def stop(self) -> None:
        """Stop the operators. The end of a test does it too."""
        running, self._running = self._running, {}
        self.managers.clear()
        for stop, _ in running.values():
            stop.set()
        for _, task in running.values():
            await task

    async def close(self) -> None:
        """Stop the operators and close the connections."""
        await self.stop()
        await self._tasks.close()
        for client in self._clients:
            await client.close()


@asynccontextmanager
async def real_cluster(server: str) -> AsyncIterator[RealCluster]:
    """Yield a new namespace of a server. At the end it is deleted, and so are definitions that were added."""
    cluster = RealCluster(server, access_of(server), f"pinnace-test-{secrets.token_hex(4)}")
    client = cluster.client
    metadata = {"name": cluster.namespace}
    try:
        await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        before = {kind: await _names(client, kind) for kind in _CLEANED}
        try:
            yield cluster
        finally:
            await cluster.stop()
            await cluster.revoke()
            for kind, names in before.items():
                for name in await _names(client, kind) - names:
                    with suppress(errors.NotFound):
                        await client.delete(kind, name)
            await client.delete("v1/Namespace", cluster.namespace)
    finally:
        await cluster.close()


async def _names(client: Client, kind: str) -> set[str]:
    return {obj["metadata"]["name"] for obj in await client.list(kind)}
