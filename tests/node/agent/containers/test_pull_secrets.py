"""Pods whose image is in a registry with a password: the pod names its imagePullSecrets."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.machine import need
from tests.node.agent.conftest import RealNode
from tests.node.images.image_files import BuiltImage, directory, entry, layer
from tests.node.images.local_registry import PASSWORD, USER, LocalRegistry, run_registry

from pinnace.model.objects import Object


def _waiting(pod: Object) -> Object:
    statuses = (pod.get("status") or {}).get("containerStatuses") or [{}]
    obj: Object = (statuses[0].get("state") or {}).get("waiting") or {}
    return obj


def _pull_secret(registry: str, password: str, name: str) -> Object:
    auth = base64.b64encode(f"{USER}:{password}".encode()).decode()
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "kubernetes.io/dockerconfigjson",
        "metadata": {"name": name, "namespace": "default"},
        "stringData": {".dockerconfigjson": json.dumps({"auths": {registry: {"auth": auth}}})},
    }


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[LocalRegistry]:
    """A registry with the image private/tool:v1, which asks for a password."""
    image = BuiltImage([layer(directory("bin"), entry("bin/busybox", Path(need("busybox")).read_bytes(), mode=0o755))])
    with run_registry(tmp_path) as open_registry:
        open_registry.push("private/tool", image)
        open_registry.push_manifest("private/tool", "v1", image.manifest)
    with run_registry(tmp_path, needs_password=True) as closed_registry:
        yield closed_registry


async def test_an_image_is_pulled_with_the_secrets_of_the_pod(registry: LocalRegistry, node: RealNode) -> None:
    name = f"{registry.address}/private/tool:v1"
    command = ["/bin/busybox", "echo", "pulled"]

    async def create(pod: str, secrets: list[str]) -> None:
        references = [{"name": secret} for secret in secrets]
        await node.create(pod, command, container={"image": name}, restartPolicy="Never", imagePullSecrets=references)

    await node.client.create(_pull_secret(registry.address, "wrong", "wrong"))
    await create("without", [])
    await create("wrong", ["wrong", "missing"])
    for pod in ("without", "wrong"):
        obj = await node.until_pod(pod, lambda changed: _waiting(changed).get("reason") == "ImagePullBackOff")
        assert "pull access denied, repository does not exist or may require" in _waiting(obj)["message"]
    await node.client.create(_pull_secret(registry.address, PASSWORD, "right"))
    await create("with", ["wrong", "right"])
    await node.until_phase("with", "Succeeded")
    assert await node.logs("with") == "pulled\n"
