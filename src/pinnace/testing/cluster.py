"""A cluster in the test's own process: a real server, without sockets unless a tool needs one, on the test's clock."""

from __future__ import annotations

import asyncio
import atexit
import secrets
import tempfile
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

from pinnace.auth.certificates import CertificateFiles, ensure_certificates
from pinnace.auth.users import MASTERS, User
from pinnace.client.client import Client
from pinnace.cluster import kubeconfig
from pinnace.cluster.cluster import ControlPlane, Settings, build, give_birth
from pinnace.cluster.controllers import controllers_of, trust_of
from pinnace.cluster.in_process import in_process_client
from pinnace.controllers.extension_authentication import KEY as TRUST
from pinnace.model.objects import Object
from pinnace.reconcile.manager import Manager
from pinnace.sdk.operator import Operator
from pinnace.server.http import HttpServer, tls_context
from pinnace.store.memory import MemoryStore
from pinnace.testing.clock import ManualClock

PATIENCE = 10.0
"""Real seconds that anything in a test may take: what takes longer hangs."""

_NEWBORN: dict[str, bytes] = {}
"""What every cluster is born with, kept from the first birth: the next ones are quicker."""


class Cluster:
    """What a test holds in its hands. Everything in it is gone when the test ends."""

    def __init__(self, plane: ControlPlane, clock: ManualClock, tokens: dict[str, User]) -> None:
        self.client: Client = in_process_client(plane.local(), clock=clock, field_manager="test")
        """As the administrator."""
        self.clock = clock
        """Time stands still but for `await cluster.clock.advance(seconds)`."""
        self.plane = plane
        self.managers: list[Manager] = []
        self._tokens = tokens
        self._stops: list[tuple[asyncio.Event, asyncio.Task[None]]] = []
        self._server: HttpServer | None = None

    def client_as(self, user: str, *groups: str) -> Client:
        """A client that may do what RBAC lets this user do."""
        asked = User(user, ("system:authenticated", *groups))
        return in_process_client(self.plane.local(asked), clock=self.clock, field_manager=user)

    async def run(self, operator: Operator, *, client: Client | None = None, **options: Any) -> Manager:
        """Start an operator; it works until the test ends. Its CRDs are installed when this returns."""
        return await self.keep(operator.running(client or self.client, **options), name=operator.name)

    async def keep(self, started: AbstractAsyncContextManager[Manager], *, name: str) -> Manager:
        """Keep a manager running until the test ends."""
        ready: asyncio.Future[Manager] = asyncio.get_running_loop().create_future()
        stop = asyncio.Event()

        async def work() -> None:
            try:
                async with started as manager:
                    ready.set_result(manager)
                    await stop.wait()
            except BaseException as problem:
                if ready.done():
                    raise
                ready.set_exception(problem)

        # A task of its own: a fixture may be taken down by another task than the one that set it up.
        task = asyncio.create_task(work(), name=name)
        self._stops.append((stop, task))
        try:
            async with asyncio.timeout(PATIENCE):
                manager = await ready
        except TimeoutError:
            # It waits for something that may never come: the end of the test must not wait for it as well.
            self._stops.remove((stop, task))
            task.cancel()
            await asyncio.wait([task])
            raise TimeoutError(f"{name} is not at work after {PATIENCE:g} s; its log says what it waits for") from None
        self.managers.append(manager)
        return manager

    async def settle(self) -> None:
        """Return when nobody has anything left to do. What is for later waits for the clock."""
        async with asyncio.timeout(PATIENCE):
            while True:
                before = [manager.metrics.text() for manager in self.managers]
                for manager in self.managers:
                    await manager.settle()
                if len(self.managers) < 2 or before == [manager.metrics.text() for manager in self.managers]:
                    return

    async def advance(self, seconds: float) -> None:
        """Let time pass, and everything happen that was waiting for it."""
        await self.clock.advance(seconds)
        await self.settle()

    async def listen(self, directory: Path) -> Path:
        """Open a socket, for tools that need one; gives the path of a kubeconfig."""
        files = _certificates(directory)
        context = tls_context(
            certificate=files.server.certificate,
            key=files.server.key,
            client_ca=files.ca.certificate,
            proxy_ca=files.front_proxy_ca.certificate,
        )
        self._server = HttpServer()
        await self._server.start("127.0.0.1", 0, context, self.plane.api)
        token = next(iter(self._tokens))
        access = kubeconfig.Access(
            server=f"https://127.0.0.1:{self._server.port}", ca=files.ca.certificate.read_bytes(), token=token
        )
        path = directory / "kubeconfig"
        kubeconfig.write(path, access)
        return path

    async def stop(self) -> None:
        """Stop the operators, then the socket. A test need not: it is done at its end."""
        stops, self._stops = self._stops, []
        self.managers.clear()
        for stop, _ in reversed(stops):
            stop.set()
        for _, task in reversed(stops):
            await task
        if self._server is not None:
            await self._server.stop(0.0)
            self._server = None


@asynccontextmanager
async def running_cluster(*, settings: Settings | None = None) -> AsyncIterator[Cluster]:
    """A newborn cluster within a block."""
    clock = ManualClock()
    store = MemoryStore()
    tokens = {secrets.token_urlsafe(16): User("admin", (MASTERS,))}
    for key, value in _NEWBORN.items() if settings is None else ():
        await store.put(key, value, expected=0)
    plane = await build(settings or Settings(), store, clock=clock, tokens=tokens)
    if settings is not None or not _NEWBORN:
        await give_birth(plane, address="127.0.0.1", port=6443)
        await in_process_client(plane.local(), clock=clock).create(_proxy_trust())
        if settings is None:
            _NEWBORN.update({record.key: record.value for record in (await store.list("")).records})
    plane.aggregation.show(proxy_certificates().front_proxy_client)
    plane.readiness.is_reached = True
    definer = in_process_client(plane.local(), clock=clock, field_manager="kube-apiserver")
    upkeep = [asyncio.create_task(part.run(definer)) for part in (plane.custom_resources, plane.aggregation)]
    cluster = Cluster(plane, clock, tokens)
    try:
        await cluster.keep(controllers_of(plane, None, clock=clock).running(), name="controllers")
        yield cluster
    finally:
        await cluster.stop()
        for task in upkeep:
            task.cancel()
        await asyncio.gather(*upkeep, return_exceptions=True)
        await plane.gates.webhooks.close()
        await store.close()


@cache
def proxy_certificates() -> CertificateFiles:
    """By which servers of the test's own know the cluster; made once for all clusters of a run."""
    directory = tempfile.TemporaryDirectory(prefix="pinnace-proxy-")
    atexit.register(directory.cleanup)
    return ensure_certificates(Path(directory.name))


def _proxy_trust() -> Object:
    files = proxy_certificates()
    data = trust_of(files, client_ca=files.ca.certificate.read_text())
    metadata = {"name": TRUST.name, "namespace": TRUST.namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def _certificates(directory: Path) -> CertificateFiles:
    return ensure_certificates(directory / "pki")
