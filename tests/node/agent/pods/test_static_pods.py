"""Static pods run from files of the node; their mirrors show them in the API."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.node.agent.conftest import NODE, NodeInMemory, is_ready

from pinnace.model.objects import Object
from pinnace.node.agent.pods import static_pods
from pinnace.node.agent.pods.static_pods import parse_manifest

NAME = f"web-{NODE}"


@pytest.fixture(autouse=True)
def looks_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(static_pods, "_CHECK_SECONDS", 0.1)


def _write(node: NodeInMemory, command: str, file: str = "web.yaml") -> Path:
    container = {"name": "main", "image": "host", "command": ["sh", "-c", command]}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web"},
        "spec": {"containers": [container], "terminationGracePeriodSeconds": 1},
    }
    beside = node.directory / "manifest"
    beside.write_text(json.dumps(pod))
    return beside.replace(node.manifests / file)


async def test_a_manifest_runs_and_is_mirrored(memory_node: NodeInMemory) -> None:
    _write(memory_node, "sleep 1000")
    pod = await memory_node.until_ready(NAME)
    annotations = pod["metadata"]["annotations"]
    assert annotations["kubernetes.io/config.source"] == "file"
    assert annotations["kubernetes.io/config.mirror"] == annotations["kubernetes.io/config.hash"]
    assert pod["metadata"]["ownerReferences"][0]["kind"] == "Node"
    (sandbox,) = await memory_node.runtime.sandboxes()
    assert sandbox.config.uid == annotations["kubernetes.io/config.hash"]
    assert pod["status"]["podIP"] == sandbox.addresses[0]


async def test_deleting_the_mirror_changes_nothing(memory_node: NodeInMemory) -> None:
    _write(memory_node, "sleep 1000")
    before = await memory_node.until_ready(NAME)
    (sandbox,) = await memory_node.runtime.sandboxes()
    await memory_node.client.delete("v1/Pod", NAME, namespace="default")

    def is_another(pod: Object) -> bool:
        return is_ready(pod) and pod["metadata"]["uid"] != before["metadata"]["uid"]

    await memory_node.until_pod(NAME, is_another)
    assert [running.id for running in await memory_node.runtime.sandboxes()] == [sandbox.id]


async def test_a_changed_manifest_restarts_the_pod_and_a_removed_one_ends_it(memory_node: NodeInMemory) -> None:
    path = _write(memory_node, "echo one; sleep 1000")
    first = await memory_node.until_ready(NAME)
    _write(memory_node, "echo two; sleep 1000")

    def has_changed(pod: Object) -> bool:
        return is_ready(pod) and pod["metadata"]["annotations"] != first["metadata"]["annotations"]

    await memory_node.until_pod(NAME, has_changed)
    path.unlink()
    await memory_node.until_gone(NAME)

    async def is_clean() -> bool:
        return not await memory_node.runtime.sandboxes()

    await memory_node.until(is_clean)


async def test_a_broken_manifest_does_not_stop_the_others(memory_node: NodeInMemory) -> None:
    (memory_node.manifests / "broken.yaml").write_text("kind: [")
    (memory_node.manifests / "other.yaml").write_text("apiVersion: v1\nkind: Service\n")
    _write(memory_node, "sleep 1000")
    await memory_node.until_ready(NAME)


@pytest.mark.parametrize(
    "content",
    [b"", b"- a", b"apiVersion: v1\nkind: Pod\n", b"apiVersion: v1\nkind: Pod\nmetadata: {name: a}\n"],
    ids=["empty", "list", "no name", "no containers"],
)
def test_a_manifest_without_a_pod_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match=r"expected a manifest|needs a name"):
        parse_manifest(content, NODE, now="2026-01-01T00:00:00Z")


@pytest.mark.parametrize(
    "spec",
    [
        "containers: [{name: ../../../climbed, image: host}]",
        "containers: [{name: 7, image: host}]",
        "initContainers: [{name: a/b, image: host}]",
        "volumes: [{name: ../../../../climbed, emptyDir: {}}]",
        "volumes: {name: x}",
    ],
)
def test_a_manifest_with_names_that_are_none_is_refused(spec: str) -> None:
    content = f"apiVersion: v1\nkind: Pod\nmetadata: {{name: x}}\nspec:\n  {spec}\n"
    if "  containers:" not in content:
        content += "  containers: [{name: main, image: host}]\n"
    with pytest.raises(ValueError, match="valid name"):
        parse_manifest(content.encode(), NODE, now="")
