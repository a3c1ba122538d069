"""Our server with its scheduler and a real control plane, on the same machine, one after the other: pods and CPU.

    python -m bench.scheduling_beside --kubeconfig FILE --pid APISERVER --pid ETCD --pid SCHEDULER

1,000 nodes without a kubelet are created, then 3,000 pods; the CPU of the given processes counts from the first pod
until the last is bound. The real one (not started here) needs no controller manager; lift the limits of the clients of
its scheduler, `--kube-api-qps 5000 --kube-api-burst 5000`. Ours is `pinnace up` on disk with its scheduler. Only the
ratio is to be believed.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from bench.api import Server, started
from bench.scheduling import (
    PATIENCE,
    ZONE,
    at_once,
    pod,
    with_host_anti_affinity,
    with_spreading,
)

from pinnace.client.client import Client
from pinnace.client.credentials import Fixed, Identity
from pinnace.client.http import HttpTransport
from pinnace.client.kubeconfig import Access, find_access
from pinnace.model import errors
from pinnace.model.objects import Object

GOAL = 3.0
ZONES = ("moon-1", "moon-2", "moon-3")
WORKLOADS: dict[str, Callable[[], Object]] = {
    "basic": pod,
    "topology-spreading": with_spreading,
    "host-anti-affinity": with_host_anti_affinity,
}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--kubeconfig", type=Path, required=True, help="the administrator's, of the real cluster")
    options.add_argument("--pid", type=int, action="append", required=True, help="each process that counts")
    options.add_argument("--nodes", type=int, default=1000)
    options.add_argument("--pods", type=int, default=3000)
    given = options.parse_args()
    theirs = Server(tuple(given.pid), 0, "")
    print(f"{'CPU ms per pod':24}{'theirs':>9}{'ours':>9}{'cheaper':>9}{'goal':>6}   pods/s")
    for name, make in WORKLOADS.items():
        count = min(given.pods, int(0.8 * given.nodes)) if name == "host-anti-affinity" else given.pods
        real = asyncio.run(measure(find_access(path=given.kubeconfig), theirs, given.nodes, count, make))
        with started() as (server, _):
            credentials = Fixed(Identity(authorization=f"Bearer {server.token}"))
            access = Access(server=f"https://127.0.0.1:{server.port}", insecure=True, credentials=credentials)
            own = asyncio.run(measure(access, server, given.nodes, count, make))
        mark = "" if real[0] / own[0] >= GOAL else "  short of the goal"
        figures = f"{real[0]:9.2f}{own[0]:9.2f}{real[0] / own[0]:8.1f}x{GOAL:5.3g}x"
        print(f"{name:24}{figures}   {real[1]:.0f} and {own[1]:.0f}{mark}", flush=True)


async def measure(
    access: Access, server: Server, nodes: int, pods: int, make: Callable[[], Object]
) -> tuple[float, float]:
    """Return the CPU ms per pod of all processes, and the pods per second, from the first creation to the last node."""
    transport = HttpTransport(access)
    client = Client(transport)
    namespace = f"bench-{int(time.time())}"
    try:
        await prepare(client, namespace, nodes)
        cpu, began = server.cpu_seconds, time.perf_counter()

        async def create(number: int) -> None:
            made = make()
            made["spec"]["tolerations"] = [{"operator": "Exists"}]
            await client.create(made, namespace=namespace)

        await at_once(create, pods)
        await bound(client, namespace, pods)
        return 1000 * (server.cpu_seconds - cpu) / pods, pods / (time.perf_counter() - began)
    finally:
        await client.delete_collection("v1/Pod", namespace=namespace, grace_seconds=0)
        await transport.close()


async def prepare(client: Client, namespace: str, nodes: int) -> None:
    """Create a namespace with its service account, and the nodes that are missing."""
    await client.create({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
    with suppress(errors.AlreadyExists):
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
        await client.create(account, namespace=namespace)
    amounts = {"cpu": "4", "memory": "32Gi", "pods": "110"}
    status = {"capacity": amounts, "allocatable": amounts, "conditions": [{"type": "Ready", "status": "True"}]}

    async def create(number: int) -> None:
        name = f"bench-{number}"
        labels = {"kubernetes.io/hostname": name, ZONE: ZONES[number % len(ZONES)]}
        with suppress(errors.AlreadyExists):
            await client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}})
            await client.patch("v1/Node", name, {"status": status}, subresource="status")

    await at_once(create, nodes)


async def bound(client: Client, namespace: str, count: int) -> None:
    """Return when no pod is left without a node. It is asked for one such pod: a list of all would cost CPU."""
    async with asyncio.timeout(PATIENCE):
        while await client.list("v1/Pod", namespace=namespace, fields="spec.nodeName=", limit=1):
            await asyncio.sleep(0.1)


if __name__ == "__main__":
    main()
