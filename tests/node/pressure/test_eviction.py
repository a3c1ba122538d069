"""Eviction under pressure: conditions of the node, the choice of the pod, and its status."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from tests.node.agent.conftest import NODE, NodeInMemory, RealNode

from pinnace.model.objects import Key, Object
from pinnace.model.typed_objects import Pod
from pinnace.node.pressure.eviction import find_excess, has_limits
from pinnace.node.pressure.signals import MEMORY, NODE_FILES, MachineSignals, Signal, Threshold, parse_thresholds
from pinnace.node.pressure.storage_meter import ContainerStorage, PodStorage, StorageMeter
from pinnace.node.runtime.in_memory import InMemoryRuntime
from pinnace.node.runtime.runtime import ContainerStats, DiskUsage
from pinnace.testing.clock import ManualClock

_LOW = Signal(50 << 20, 1 << 30)
_FINE = Signal(500 << 20, 1 << 30)


def _conditions(obj: Object) -> dict[str, Object]:
    return {condition["type"]: condition for condition in obj["status"]["conditions"]}


async def test_a_pod_without_requests_is_evicted_before_one_within_its_request(memory_node: NodeInMemory) -> None:
    await memory_node.create("modest", "sleep 1000", container={"resources": {"requests": {"memory": "900Mi"}}})
    await memory_node.create("greedy", "sleep 1000", priority=0)
    await memory_node.until_ready("modest")
    await memory_node.until_ready("greedy")
    memory_node.runtime.usage["main"] = ContainerStats(timestamp=0, working_set_bytes=3 << 20)
    memory_node.signals.readings[MEMORY] = _LOW
    evicted = await memory_node.agent.eviction.check()
    assert evicted is not None
    assert evicted.name == "greedy"
    pod = await memory_node.until_phase("greedy", "Failed")
    assert pod["status"]["reason"] == "Evicted"
    assert pod["status"]["message"] == (
        "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. "
        "Container main was using 3Mi, request is 0, has larger consumption of memory. "
    )
    assert _conditions(pod)["DisruptionTarget"]["reason"] == "TerminationByKubelet"
    obj = await memory_node.client.get("v1/Node", NODE)
    assert _conditions(obj)["MemoryPressure"]["status"] == "True"
    await memory_node.until_ready("modest")


async def test_a_node_under_pressure_refuses_pods_without_requests(memory_node: NodeInMemory) -> None:
    memory_node.signals.readings[MEMORY] = _LOW
    await memory_node.agent.eviction.check()
    memory_node.signals.readings[MEMORY] = _FINE
    assert await memory_node.agent.eviction.check() is None
    await memory_node.create("best-effort", "sleep 1000", tolerations=[{"operator": "Exists"}])
    pod = await memory_node.until_phase("best-effort", "Failed")
    assert (pod["status"]["reason"], pod["status"]["message"]) == (
        "Evicted",
        "Pod was rejected: The node had condition: [MemoryPressure]. ",
    )
    requests = {"resources": {"requests": {"memory": "1Mi"}}}
    await memory_node.create("burstable", "sleep 1000", container=requests, tolerations=[{"operator": "Exists"}])
    await memory_node.until_ready("burstable")


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


async def test_changes_in_the_image_and_logs_count_as_local_storage(node: RealNode) -> None:
    limit = {"resources": {"limits": {"ephemeral-storage": "1Mi"}}}
    write = "head -c {} /dev/zero > {}; echo written; sleep 1000"
    await node.create("modest", write.format(300_000, "/tmp/x"), container=limit)
    await node.create("large", write.format(2_000_000, "/tmp/x"), container=limit)
    await node.create("unlimited", write.format(2_000_000, "/tmp/x"))
    for name in ("modest", "large", "unlimited"):
        await node.until_ready(name)
        await node.until_logs(name, "written\n")
    await node.agent.eviction.check_local_storage()
    pod = await node.until_phase("large", "Failed")
    assert (pod["status"]["reason"], pod["status"]["message"]) == (
        "Evicted",
        "Pod ephemeral local storage usage exceeds the total limit of containers 1Mi. ",
    )
    await node.until_ready("modest")
    await node.until_ready("unlimited")


def _pod(*limits: str, **spec: Any) -> Pod:
    containers = [
        {"name": f"c{number}", "resources": {"limits": {"ephemeral-storage": limit}} if limit else {}}
        for number, limit in enumerate(limits)
    ]
    return cast(Pod, {"spec": {"containers": containers, **spec}})


def _storage(*containers: int, other: int = 0, **volumes: int) -> PodStorage:
    used = {f"c{number}": ContainerStorage(size, 0) for number, size in enumerate(containers)}
    return PodStorage(used, volumes, other)


_EMPTY = [{"name": "work", "emptyDir": {"sizeLimit": "1Mi"}}, {"name": "key", "secret": {"secretName": "key"}}]
_POD_EXCEEDS = "Pod ephemeral local storage usage exceeds the total limit of containers 2Mi. "


@pytest.mark.parametrize(
    ("pod", "storage", "message"),
    [
        pytest.param(_pod("1Mi", "1Mi"), _storage(1_000_000, 1_000_000), "", id="within the limits"),
        pytest.param(_pod("1Mi", "1Mi"), _storage(1_000_000, 1_000_000, other=200_000), _POD_EXCEEDS, id="sum"),
        pytest.param(_pod("2Mi", ""), _storage(1, 3_000_000), _POD_EXCEEDS, id="container without a limit"),
        pytest.param(
            _pod("1Mi", "1Mi"),
            _storage(1_500_000, 0),
            'Container c0 exceeded its local ephemeral storage limit "1Mi". ',
            id="one container",
        ),
        pytest.param(_pod("2Mi", volumes=_EMPTY), _storage(1_500_000, work=900_000), _POD_EXCEEDS, id="volume counts"),
        pytest.param(_pod("2Mi", volumes=_EMPTY), _storage(1, key=9_000_000), "", id="secrets do not count"),
        pytest.param(
            _pod("", volumes=_EMPTY),
            _storage(1, work=1_100_000),
            'Usage of EmptyDir volume "work" exceeds the limit "1Mi". ',
            id="volume limit",
        ),
    ],
)
def test_limits_of_local_storage_are_those_of_kubelet(pod: Pod, storage: PodStorage, message: str) -> None:
    assert has_limits(pod)
    assert find_excess(pod, storage) == message


def test_a_pod_without_limits_is_not_measured() -> None:
    assert not has_limits(_pod("", volumes=[{"name": "work", "emptyDir": {}}]))


async def test_measurements_take_a_fiftieth_of_a_core_at_most(tmp_path: Path) -> None:
    clock = ManualClock()
    runtime = InMemoryRuntime(tmp_path, clock)
    runtime.disk = DiskUsage(files={"volumes/work": 7}, layers={}, cpu_seconds=1.0)
    meter = StorageMeter(runtime, clock, tmp_path)
    key = Key("default", "web")
    for _ in range(1000):
        used = await meter.usage(key, "1")
        await clock.advance(1)
        assert used is not None
        assert used.volumes == {"work": 7}
    assert 19 <= runtime.calls.count("disk_usage") <= 22
    assert await meter.usage(key, "2") is None  # The others have used all of it.


async def test_a_pod_of_the_api_is_never_static(memory_node: NodeInMemory) -> None:
    """Any user may write the annotation of static pods, which a node under pressure takes and taints do not concern."""
    memory_node.signals.readings[MEMORY] = _LOW
    await memory_node.agent.eviction.check()
    annotations = {"kubernetes.io/config.source": "file", "kubernetes.io/config.hash": "x"}
    await memory_node.create(
        "pretender", "sleep 1000", metadata={"annotations": annotations}, tolerations=[{"operator": "Exists"}]
    )
    pod = await memory_node.until_pod(
        "pretender", lambda pod: (pod.get("status") or {}).get("phase") in ("Failed", "Running")
    )
    assert pod["status"].get("reason") == "Evicted"


async def test_a_healthy_node_evicts_nothing(memory_node: NodeInMemory) -> None:
    await memory_node.create("fine", "sleep 1000")
    await memory_node.until_ready("fine")
    memory_node.signals.readings = {MEMORY: _FINE, NODE_FILES: Signal(50, 100)}
    assert await memory_node.agent.eviction.check() is None
    assert memory_node.agent.eviction.pressures() == []


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
    result = MachineSignals(tmp_path_factory.mktemp("node")).read()
    assert {MEMORY, NODE_FILES} <= set(result)
    assert all(0 <= resource.available <= resource.capacity for resource in result.values())
