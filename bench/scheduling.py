"""The speed of the scheduler: kube-scheduler's own scheduler_perf workloads, bindings written through the API.

    python bench/scheduling.py [--full] [--profile] [NAME ...]

Server and scheduler run in one process, as in scheduler_perf; the store is in memory. The pods are created first, then
the scheduler starts. `pods/s` counts the time from its start until the last pod is bound; `goal` is twice what
kube-scheduler's continuous integration demands on six cores. `cpu ms/pod` counts the process until the last Event is
written, the start of the scheduler included; `real` is kube-scheduler 1.36 with kube-apiserver and etcd on a machine of
this kind, creation of the pods included (1,000 nodes, 3,000 pods), where that was measured. `--full` runs 5,000 nodes;
by default there are 1,000. At the end: the cost of a score function over all nodes.

`preemption` is scheduler_perf's PreemptionAsync: nodes are full of pods of low priority; pods that fit beside them are
measured, while every 200 ms a pod comes for which three others have to leave. `preemption-basic` is its
PreemptionBasic, for which it has no floor: every measured pod evicts three others.
"""

from __future__ import annotations

import asyncio
import cProfile
import pstats
import resource
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from pinnace.client.client import Client
from pinnace.client.snapshots import Snapshot
from pinnace.cluster.control_plane import build
from pinnace.cluster.in_process import in_process_client
from pinnace.cluster.settings import Settings
from pinnace.controllers.storage.local_path import default_storage_class
from pinnace.model.objects import Object
from pinnace.model.typed_objects import NodeStatus
from pinnace.model.users import AUTHENTICATED, MASTERS, User
from pinnace.reconcile.manager import Manager
from pinnace.scheduler.decision import decide
from pinnace.scheduler.scheduler import Scheduler
from pinnace.scheduler.state.arrays import Integers
from pinnace.scheduler.state.cluster import ClusterState
from pinnace.scheduler.state.pods import Pod
from pinnace.sdk.scheduling import NodeArrays
from pinnace.sdk.scheduling import Scheduler as CustomScheduler
from pinnace.server.bootstrap.creation import bootstrap
from pinnace.store.memory import MemoryStore

ADMIN = User("admin", (MASTERS, AUTHENTICATED))
ZONE = "topology.kubernetes.io/zone"
AT_ONCE = 32
PATIENCE = 900.0


@dataclass(frozen=True, slots=True)
class Workload:
    """One workload of scheduler_perf. `before` and `pods` are pods per node."""

    name: str
    floor: int | None
    """Pods per second that kube-scheduler's continuous integration demands, where it demands any."""
    real: float | None
    """CPU ms per pod of kube-scheduler, kube-apiserver and etcd together."""
    zones: tuple[str, ...]
    before: float
    pods: float
    first: Callable[[], Object]
    measured: Callable[[], Object]
    churn: Callable[[], Object] | None = None
    """Pods that are created every 200 ms beside the measured ones, and not counted."""


def pod(*, cpu: str = "100m", labels: dict[str, str] | None = None, **spec: object) -> Object:
    amounts = {"cpu": cpu, "memory": "500Mi"}
    container = {
        "name": "pause",
        "image": "registry.k8s.io/pause:3.10.2",
        "ports": [{"containerPort": 80}],
        "resources": {"requests": amounts, "limits": amounts},
    }
    metadata = {"generateName": "pod-", "labels": labels or {}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"containers": [container], **spec}}


def with_node_affinity() -> Object:
    expression = {"key": ZONE, "operator": "In", "values": ["zone1", "zone2"]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
    return pod(affinity={"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}})


def with_spreading() -> Object:
    constraint = {
        "maxSkew": 5,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"color": "blue"}},
    }
    return pod(labels={"color": "blue"}, topologySpreadConstraints=[constraint])


def with_pod_affinity() -> Object:
    term = {"labelSelector": {"matchLabels": {"color": "blue"}}, "topologyKey": ZONE}
    affinity = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return pod(labels={"color": "blue"}, affinity=affinity)


def with_host_anti_affinity() -> Object:
    term = {"labelSelector": {"matchLabels": {"color": "green"}}, "topologyKey": "kubernetes.io/hostname"}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return pod(labels={"color": "green"}, affinity=affinity)


def low() -> Object:
    return pod(cpu="900m", terminationGracePeriodSeconds=0)


def high() -> Object:
    """Return a pod for which three of four pods of a node have to leave."""
    return pod(cpu="3000m", priorityClassName="high")


WORKLOADS = (
    Workload("basic", 680, 7.2, (), 0.2, 2, pod, pod),
    Workload("node-affinity", 540, None, ("zone1",), 1, 2, with_node_affinity, with_node_affinity),
    Workload("topology-spreading", 460, 10.2, ("moon-1", "moon-2", "moon-3"), 1, 1, pod, with_spreading),
    Workload("pod-affinity", 70, None, ("zone1",), 1, 1, with_pod_affinity, with_pod_affinity),
    Workload("host-anti-affinity", 540, 10.5, (), 0.2, 0.8, pod, with_host_anti_affinity),
    Workload("preemption", 570, None, (), 4, 1, low, pod, high),
    Workload("preemption-basic", None, None, (), 4, 1, low, high),
)


def main() -> None:
    flags = {argument for argument in sys.argv[1:] if argument.startswith("--")}
    names = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    nodes = 5000 if "--full" in flags else 1000
    print(f"{nodes:,} nodes{'workload':>21}{'pods':>8}{'pods/s':>8}{'goal':>7}{'cpu ms/pod':>12}{'real':>6}{'MB':>6}")
    for workload in WORKLOADS:
        if names and workload.name not in names:
            continue
        asyncio.run(measure(workload, nodes, has_profile="--profile" in flags))
    if not names or "custom-score" in names:
        print(f"a score function over {nodes:,} nodes: {custom_score(nodes):.3f} ms CPU per pod (goal 0.2)")


async def measure(workload: Workload, nodes: int, *, has_profile: bool) -> None:
    async with server() as client:
        await create_nodes(client, nodes, workload.zones)
        first = int(workload.before * nodes)
        async with scheduling(client):
            await create_pods(client, first, workload.first)
            await bound(client, first)
        pods = int(workload.pods * nodes)
        names = await create_pods(client, pods, workload.measured)
        profile = cProfile.Profile() if has_profile else None
        began, cpu = time.perf_counter(), time.process_time()
        if profile is not None:
            profile.enable()
        async with scheduling(client) as manager, churning(client, workload.churn):
            await bound_by(manager, names)
            seconds = time.perf_counter() - began
            await manager.recorder.idle()
            used = time.process_time() - cpu
        if profile is not None:
            profile.disable()
            pstats.Stats(profile).sort_stats("tottime").print_stats(45)
        megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000
        goal = 2 * workload.floor if workload.floor is not None else ""
        print(
            f"{workload.name:>32}{pods:>8}{pods / seconds:>8.0f}{goal:>7}"
            f"{1000 * used / pods:>12.2f}{workload.real or '':>6}{megabytes:>6.0f}",
            flush=True,
        )


def custom_score(nodes: int, pods: int = 500) -> float:
    """Return the CPU ms that a score function over arrays of all nodes adds to the decision about a pod."""
    scheduler = CustomScheduler("custom")

    @scheduler.score(normalize=True)
    def free_cpu(pod: Pod, nodes: NodeArrays) -> Integers:
        return nodes.allocatable("cpu") - nodes.requested("cpu")

    profiles = (CustomScheduler("plain").profile(), scheduler.profile())
    states = [state_with(nodes) for _ in profiles]
    used = [0.0, 0.0]
    waiting: Any = pod()
    waiting["metadata"]["namespace"] = "default"
    for number in range(pods):
        for index, (profile, state) in enumerate(zip(profiles, states, strict=True)):
            named: Any = {**waiting, "metadata": {**waiting["metadata"], "name": f"p{number}", "uid": f"{number}"}}
            named_pod = state.pod(named)
            began = time.process_time()
            node = decide(named_pod, state, profile).node
            used[index] += time.process_time() - began
            state.add_pod(named_pod, node)
    return 1000 * (used[1] - used[0]) / pods


def state_with(nodes: int) -> ClusterState:
    state = ClusterState()
    for number in range(nodes):
        name = f"node-{number}"
        status: NodeStatus = {"allocatable": {"cpu": "4", "memory": "32Gi", "pods": "110"}}
        state.put_node({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}, "status": status})
    return state


@asynccontextmanager
async def server() -> AsyncIterator[Client]:
    """Run an API server in this process, without controllers; yield the administrator's client."""
    store = MemoryStore()
    plane = await build(Settings(), store, tokens={})
    await bootstrap(plane.foundation, plane.local(), ("127.0.0.1", 6443), storage_class=default_storage_class("/tmp"))
    plane.health.is_ready = True
    try:
        async with plane.supervisor.running():
            client = in_process_client(plane.local(ADMIN))
            account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
            await client.create(account, namespace="default")
            high = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}}
            await client.create({**high, "value": 10})
            yield client
    finally:
        await plane.close()
        await store.close()


@asynccontextmanager
async def scheduling(client: Client) -> AsyncIterator[Manager]:
    """Run a scheduler within a block."""
    manager = Manager(client, name="kube-scheduler")
    scheduler = Scheduler(manager, manager.client, seed=1)
    manager.add(scheduler.controller)
    async with manager.running():
        yield manager


@asynccontextmanager
async def churning(client: Client, make: Callable[[], Object] | None) -> AsyncIterator[None]:
    """Create a pod every 200 ms within a block."""

    async def churn() -> None:
        while make is not None:
            await client.create(make(), namespace="default")
            await asyncio.sleep(0.2)

    task = asyncio.create_task(churn())
    try:
        yield
    finally:
        task.cancel()


async def create_nodes(client: Client, count: int, zones: tuple[str, ...]) -> None:
    amounts = {"cpu": "4", "memory": "32Gi", "pods": "110"}

    async def create(number: int) -> None:
        name = f"scheduler-perf-{number}"
        labels = {"kubernetes.io/hostname": name}
        if zones:
            labels[ZONE] = zones[number % len(zones)]
        made = await client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}})
        status = {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        made["spec"].pop("taints", None)
        made = await client.update(made)
        await client.update_status({**made, "status": status})

    await at_once(create, count)


async def create_pods(client: Client, count: int, make: Callable[[], Object]) -> set[str]:
    """Create pods and return their names."""
    names: set[str] = set()

    async def create(number: int) -> None:
        names.add((await client.create(make(), namespace="default"))["metadata"]["name"])

    await at_once(create, count)
    return names


async def at_once(create: Callable[[int], Awaitable[None]], count: int) -> None:
    numbers = iter(range(count))

    async def work() -> None:
        for number in numbers:
            await create(number)

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(work())


async def bound(client: Client, count: int) -> None:
    """Return when so many pods have a node."""
    async with asyncio.timeout(PATIENCE):
        while len(await client.list("v1/Pod", fields="spec.nodeName!=")) < count:
            await asyncio.sleep(0.05)


async def bound_by(manager: Manager, names: set[str]) -> None:
    """Return when all these pods have a node."""
    done = asyncio.get_running_loop().create_future()
    left = set(names)

    def hear(old: Snapshot | None, new: Snapshot | None) -> None:
        if new is not None and new.key.name in left and b'"nodeName":' in new.body:
            left.remove(new.key.name)
            if not left and not done.done():
                done.set_result(None)

    manager.informer("v1/Pod").on_change(hear)
    async with asyncio.timeout(PATIENCE):
        await done


if __name__ == "__main__":
    main()
