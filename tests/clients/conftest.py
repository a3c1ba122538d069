"""One running server for all clients, and a namespace for each test."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest
from kubernetes import config
from kubernetes.client import ApiClient, CoreV1Api, V1Namespace, V1ObjectMeta
from tests.clients.kubectl_command import Kubectl, kubectl_binary
from tests.clients.server_process import ServerProcess

ANOTHER_CLUSTER = "PINNACE_CLIENTS_KUBECONFIG"
"""Names a kubeconfig: the tests then run against that cluster, which shows whether they expect what Kubernetes does."""


@pytest.fixture(scope="session")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The way to a cluster that is ready."""
    another = os.environ.get(ANOTHER_CLUSTER)
    if another:
        yield Path(another)
        return
    server = ServerProcess.start(tmp_path_factory.mktemp("server"), "--ephemeral")
    try:
        yield server.await_kubeconfig()
    finally:
        code = server.stop()
    assert code == 0, server.log.read_text()


@pytest.fixture
def only_pinnace() -> None:
    """Asked for by tests of what Kubernetes itself does not do."""
    if os.environ.get(ANOTHER_CLUSTER):
        pytest.skip("another cluster is tested, and only pinnace does this")


@pytest.fixture(scope="session")
def api_client(kubeconfig: Path) -> Iterator[ApiClient]:
    """The transport of the official client."""
    client: ApiClient = config.new_client_from_config(str(kubeconfig))  # type: ignore[no-untyped-call]
    with client:
        yield client


@pytest.fixture
def namespace(api_client: ApiClient) -> Iterator[str]:
    """A namespace that no other test uses."""
    name = f"clients-{secrets.token_hex(4)}"
    core = CoreV1Api(api_client)
    core.create_namespace(V1Namespace(metadata=V1ObjectMeta(name=name)))
    yield name
    core.delete_namespace(name)


@pytest.fixture(scope="session")
def kubectl_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("kubectl")


@pytest.fixture
def kubectl(kubeconfig: Path, kubectl_cache: Path, namespace: str) -> Kubectl:
    """kubectl in the test's own namespace."""
    return Kubectl(kubectl_binary(), kubeconfig, kubectl_cache, namespace)
