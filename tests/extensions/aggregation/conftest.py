"""A control plane and an aggregated server for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
from tests.extensions.aggregated_server import Kitchen, serving, tls_of
from tests.extensions.aggregation.aggregating import Aggregating, Pki

from pinnace.auth.certificates.authority import ensure_certificates, issue, new_ca
from pinnace.cluster.control_plane import build
from pinnace.cluster.server_jobs import add_extension_parts
from pinnace.cluster.settings import Settings
from pinnace.server.bootstrap.creation import bootstrap
from pinnace.store.memory import MemoryStore


@pytest.fixture(scope="module")
def pki(tmp_path_factory: pytest.TempPathFactory) -> Pki:
    directory = tmp_path_factory.mktemp("pki")
    ca = new_ca(name="kitchen-ca")
    pair = issue(ca, common_name="kitchen", server_names=("kitchen.default.svc",))
    (directory / "kitchen.crt").write_bytes(pair.certificate_pem)
    (directory / "kitchen.key").write_bytes(pair.key_pem)
    files = ensure_certificates(directory / "cluster")
    return Pki(files, ca.certificate_pem, directory / "kitchen.crt", directory / "kitchen.key")


@pytest.fixture
async def cluster(pki: Pki) -> AsyncIterator[Aggregating]:
    async with AsyncExitStack() as stack:
        store = MemoryStore()
        plane = await build(Settings(), store, files=pki.files)
        await bootstrap(plane.foundation, plane.local(), ("127.0.0.1", 6443))
        kitchen = Kitchen()
        tls = tls_of(pki.certificate, pki.key, pki.files.front_proxy_ca.certificate)
        server = await stack.enter_async_context(AsyncExitStack())
        port = await server.enter_async_context(serving(kitchen, tls))
        add_extension_parts(plane)
        async with plane.supervisor.running():
            yield Aggregating(plane, kitchen, port, pki.ca, server.aclose)
        await plane.close()
        await store.close()
