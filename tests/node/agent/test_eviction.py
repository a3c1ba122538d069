"""Eviction under pressure: conditions of the node, the choice of the pod, and its status."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.node.agent.conftest import NODE, RealNode

from pinnace.model.objects import Object
from pinnace.node.pressure.local_storage import find_excess
from pinnace.node.pressure.signals import MEMORY, NODE_FILES, MachineSignals, Signal, Threshold, parse_thresholds

_LOW = Signal(50 << 20, 1 << 30)
_FINE = Signal(500 << 20, 1 << 30)


def _conditions(obj: Object) -> dict[str, Object]:
    return {one["type"]: one for one in obj["status"]["conditions"]}


async def test_a_pod_without_requests_is_evicted_before_one_within_its_request(node: RealNode) -> None:
    await node.create("modest", "sleep 1000", container={"resources": {"requests": {"memory": "900Mi"}}})
    await node.create("greedy", "sleep 1000", priority=0)
    await node.until_ready("modest")
    await node.until_ready("greedy")
    node.signals.found[MEMORY] = _LOW
    evicted = await node.agent.eviction.check()
    assert evicted is not None
    assert evicted.name == "greedy"
    pod = await node.until_phase("greedy", "Failed")
    assert pod["status"]["reason"] == "Evicted"
    assert pod["status"]["message"] == (
        "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. "
    )
    assert _conditions(pod)["DisruptionTarget"]["reason"] == "TerminationByKubelet"
    found = await node.client.get("v1/Node", NODE)
    assert _conditions(found)["MemoryPressure"]["status"] == "True"
    await node.until_ready("modest")


async def test_a_node_under_pressure_refuses_pods_without_requests(node: RealNode) -> None:
    node.signals.found[MEMORY] = _LOW
    await node.agent.eviction.check()
    node.signals.found[MEMORY] = _FINE
    assert await node.agent.eviction.check() is None
    await node.create("best-effort", "sleep 1000", tolerations=[{"operator": "Exists"}])
    pod = await node.until_phase("best-effort", "Failed")
    assert (pod["status"]["reason"], pod["status"]["message"]) == (
        "Evicted",
        "Pod was rejected: The node had condition: [MemoryPressure]. ",
    )
    requests = {"resources": {"requests": {"memory": "1Mi"}}}
    await node.create("burstable", "sleep 1000", container=requests, tolerations=[{"operator": "Exists"}])
    await node.until_ready("burstable")


async def test_a_volume_over_its_limit_evicts_its_pod_alone(node: RealNode) -> None:
    volumes = [{"name": "work", "emptyDir": {"sizeLimit": "1Mi"}}]
    mount = {"volumeMounts": [{"name": "work", "mountPath": "/work"}]}
    await node.create(
        "modest", "head -c 500000 /dev/zero > /work/x; sleep 1000", volumes=volumes, container=dict(mount)
    )
    await node.create(
        "large", "head -c 2000000 /dev/zero > /work/x; echo full; sleep 1000", volumes=volumes, container=mount
    )
    await node.until_ready("modest")
    await node.until_ready("large")
    await node.until_logs("large", "full\n")
    await node.agent.eviction.check_local_storage()
    pod = await node.until_phase("large", "Failed")
    assert (pod["status"]["reason"], pod["status"]["message"]) == (
        "Evicted",
        'Usage of EmptyDir volume "work" exceeds the limit "1Mi". ',
    )
    await node.until_ready("modest")


def test_the_limits_of_all_containers_are_that_of_the_pod(tmp_path: Path) -> None:
    (tmp_path / "volumes").mkdir()
    (tmp_path / "volumes" / "file").write_bytes(b"x" * 3_000_000)
    limited = {"name": "a", "resources": {"limits": {"ephemeral-storage": "1Mi"}}}
    expected = "Pod ephemeral local storage usage exceeds the total limit of containers 2Mi. "
    assert find_excess({"spec": {"containers": [limited, limited]}}, tmp_path) == expected
    assert find_excess({"spec": {"containers": [limited, {"name": "b"}]}}, tmp_path) == ""


async def test_a_healthy_node_evicts_nothing(node: RealNode) -> None:
    await node.create("fine", "sleep 1000")
    await node.until_ready("fine")
    node.signals.found = {MEMORY: _FINE, NODE_FILES: Signal(50, 100)}
    assert await node.agent.eviction.check() is None
    assert node.agent.eviction.pressures() == []


def test_thresholds_are_quantities_or_shares() -> None:
    memory, files = parse_thresholds("memory.available<100Mi, nodefs.available<10%")
    assert memory == Threshold(MEMORY, "100Mi")
    assert memory.is_met(Signal(99 << 20, 1 << 40))
    assert not memory.is_met(Signal(100 << 20, 1 << 40))
    assert files.is_met(Signal(9, 100))
    assert not files.is_met(Signal(10, 100))


@pytest.mark.parametrize("text", ["memory.available", "memory.available>1Mi", "disk<10%", "memory.available<x"])
def test_a_threshold_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a threshold"):
        parse_thresholds(text)


def test_this_machine_has_signals(tmp_path_factory: pytest.TempPathFactory) -> None:
    found = MachineSignals(tmp_path_factory.mktemp("node")).read()
    assert {MEMORY, NODE_FILES} <= set(found)
    assert all(0 <= one.available <= one.capacity for one in found.values())
