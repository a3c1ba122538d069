"""A pod has no network until its policies are in force, and they last as long as it runs."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from ipaddress import IPv4Address
from typing import Any

from tests.network.services.conftest import PodCluster, run_pod_cluster

from pinnace.model.objects import Key
from pinnace.network.families import IPV4
from pinnace.network.netlink import Netlink
from pinnace.network.nftables.transactions import PROTOCOL
from pinnace.network.pods.addresses import NoFollower
from pinnace.network.services.connections import tracked_connections

_EAGER = """
import signal, socket, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
while True:
    try: socket.create_connection((sys.argv[1], 8080), timeout=0.2).close(); print("reached", flush=True)
    except OSError as error: print(error, flush=True)
    time.sleep(0.05)
"""


class SlowFollower(NoFollower):
    """Protects a pod when the test allows it."""

    def __init__(self) -> None:
        self.pods: list[Key] = []
        self.requested, self.allowed = asyncio.Event(), asyncio.Event()

    def on_start(self, pod: Key, addresses: Sequence[str]) -> None:
        self.pods.append(pod)

    async def protect(self) -> None:
        self.requested.set()
        await self.allowed.wait()


async def _has_link(pods: PodCluster, sandbox: str) -> bool:
    netlink = Netlink(await pods.runtimes[0].open_socket(socket.AF_NETLINK, socket.SOCK_RAW))
    try:
        netlink.index_of(f"veth{sandbox[:11]}")
    except OSError:
        return False
    finally:
        netlink.close()
    return True


async def test_a_pod_has_no_network_before_it_is_protected() -> None:
    async with run_pod_cluster() as pods:
        (runtime,) = pods.runtimes
        follower = SlowFollower()
        runtime.follow_addresses(follower)
        await pods.create_pod("client", ["sleep", "1000"])
        await follower.requested.wait()
        (sandbox,) = await runtime.sandboxes()
        assert follower.pods == [Key("default", "client")]
        assert not await _has_link(pods, sandbox.id)
        follower.allowed.set()
        await pods.until_ready("client")
        assert await _has_link(pods, sandbox.id)


async def test_policies_hold_from_the_first_to_the_last_packet_of_a_pod() -> None:
    """Its last ones come after the API has forgotten it: it was deleted by force, and ignores the signal to end."""
    async with run_pod_cluster() as pods:
        server = await pods.start_server("server")
        address = server["status"]["podIP"]
        spec: dict[str, Any] = {"podSelector": {"matchLabels": {"app": "eager"}}, "policyTypes": ["Egress"]}
        policy = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "spec": spec}
        await pods.client.create({**policy, "metadata": {"name": "eager", "namespace": "default"}})
        fields: dict[str, Any] = {"metadata": {"labels": {"app": "eager"}}, "terminationGracePeriodSeconds": 2}
        await pods.create_pod("eager", ["python3", "-c", _EAGER, address], **fields)
        await pods.until_ready("eager")
        (sandbox,) = await pods.runtimes[0].sandboxes("default", "eager")
        log = (await pods.runtimes[0].containers(sandbox.id))[0].log_file
        seen = ""

        async def has_tried(count: int) -> bool:
            nonlocal seen
            try:
                with open(log) as file:
                    seen = file.read()
            except FileNotFoundError:
                return True
            return seen.count("\n") >= count

        await pods.until(lambda: has_tried(3))
        await pods.client.delete("v1/Pod", "eager", namespace="default", grace_seconds=0)

        async def has_ended() -> bool:
            await has_tried(0)
            return not await pods.runtimes[0].sandboxes("default", "eager")

        await pods.until(has_ended)
        assert seen.count("timed out") >= 3
        assert "reached" not in seen


async def test_connections_end_with_their_pod_so_that_the_next_one_at_its_address_has_none() -> None:
    """The kernel itself would forget a connection by TCP two minutes after its end."""
    async with run_pod_cluster() as pods:
        server, _ = await asyncio.gather(pods.start_server("server"), pods.start_client())
        address = server["status"]["podIP"]
        assert (await pods.fetch("client", f"http://{address}:8080/")).startswith("server ")

        async def is_tracked() -> bool:
            opened = await pods.runtimes[0].open_socket(socket.AF_NETLINK, socket.SOCK_RAW, PROTOCOL)
            with opened as tracking:
                tracking.setblocking(False)
                return any(
                    IPv4Address(address).packed in original for original, _ in tracked_connections(tracking, IPV4)
                )

        assert await is_tracked()
        await pods.delete_pod("server")
        await pods.until(is_tracked, False)
