"""A node refuses the pods that it cannot run, and gives the resources of others back when they are gone."""

from __future__ import annotations

import json
from typing import Any

import pytest
from tests.node.agent.conftest import NODE, NodeInMemory


@pytest.mark.parametrize(
    ("spec", "reason", "message"),
    [
        pytest.param(
            {"container": {"resources": {"requests": {"cpu": "10k"}}}},
            "OutOfcpu",
            "Pod was rejected: Node didn't have enough resource: cpu, requested: 10000000, used: 0, capacity: ",
            id="cpu",
        ),
        pytest.param(
            {"nodeSelector": {"disk": "fast"}},
            "NodeAffinity",
            "Pod was rejected: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector",
            id="labels",
        ),
        pytest.param(
            {"nodeSelector": {"kubernetes.io/os": "windows"}},
            "PodOSSelectorNodeLabelDoesNotMatch",
            "Pod was rejected: Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
            id="operating system",
        ),
        pytest.param(
            {"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "65536"}]}},
            "SysctlForbidden",
            'Pod was rejected: forbidden sysctl: "kernel.msgmax" not allowlisted',
            id="unsafe sysctl",
        ),
    ],
)
async def test_a_pod_that_does_not_fit_is_rejected(
    memory_node: NodeInMemory, spec: dict[str, Any], reason: str, message: str
) -> None:
    await memory_node.create("large", "sleep 1000", **spec)
    pod = await memory_node.until_phase("large", "Failed")
    assert pod["status"]["reason"] == reason
    assert pod["status"]["message"].startswith(message)
    assert await memory_node.runtime.sandboxes() == []


async def test_a_pod_that_never_started_gives_its_resources_back(memory_node: NodeInMemory) -> None:
    capacity = await memory_node.client.get("v1/Node", NODE)
    all_of_it = {"resources": {"requests": {"cpu": capacity["status"]["capacity"]["cpu"]}}}
    missing = [{"name": "none", "hostPath": {"path": "/nonexistent", "type": "Directory"}}]
    await memory_node.create("first", "sleep 1000", container=dict(all_of_it), volumes=missing)
    await memory_node.until_pod("first", lambda pod: (pod.get("status") or {}).get("startTime"))
    await memory_node.create("second", "sleep 1000", container=dict(all_of_it))
    await memory_node.until_phase("second", "Failed")
    await memory_node.client.delete("v1/Pod", "first", namespace="default", grace_seconds=0)

    async def is_forgotten() -> bool:
        return not list((memory_node.directory / "agent" / "pods").glob("*/allocated.json"))

    await memory_node.until(is_forgotten)
    await memory_node.create("third", "sleep 1000", container=dict(all_of_it))
    await memory_node.until_ready("third")


async def test_a_host_port_is_given_once(memory_node: NodeInMemory) -> None:
    ports = {"container": {"ports": [{"containerPort": 80, "hostPort": 47163, "hostIP": "127.0.0.1"}]}}
    await memory_node.create("first", "sleep 1000", **json.loads(json.dumps(ports)))
    await memory_node.until_ready("first")
    await memory_node.create("second", "sleep 1000", **ports)
    pod = await memory_node.until_phase("second", "Failed")
    assert pod["status"]["reason"] == "NodePorts"
