"""The table of connections is divided between pods: some that fill it take no connection from the others."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.network.policy.test_forged_packets import RANGES, addresses_of
from tests.network.services.conftest import PodCluster, run_pod_cluster

from pinnace.network.families import IPV4, IPV6, has_ipv6
from pinnace.network.pods import connection_watch, guard

_FLOWS = """
import socket, sys
for to in sys.argv[2:]:
    family = socket.AF_INET6 if ":" in to else socket.AF_INET
    for low in range(20000, 20000 + int(sys.argv[1]) // 50):
        with socket.socket(family, socket.SOCK_DGRAM) as opened:
            opened.bind(("", low))
            for port in range(5000, 5050): opened.sendto(b"flow", (to, port))
print("sent")
"""
_HOLD = """
import selectors, socket, struct, sys, time
def connect(number):
    "Return as many connections as can be open, at most the number, once that is sure."
    waiting, ready = selectors.DefaultSelector(), []
    for _ in range(number):
        opened = socket.socket(); opened.setblocking(False); opened.connect_ex((sys.argv[1], 8080))
        waiting.register(opened, selectors.EVENT_WRITE)
    while len(ready) < number and (events := waiting.select(float(sys.argv[3]))):
        for key, _ in events: waiting.unregister(key.fileobj); ready.append(key.fileobj)
    for key in list(waiting.get_map().values()): key.fileobj.close()
    return ready
def close(ready):
    for opened in ready:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)); opened.close()
first = connect(int(sys.argv[2]))
close(first)
again, wanted, end = [], len(first) * 9 // 10, time.monotonic() + 60
while len(again) < wanted and time.monotonic() < end:
    close(again); again = connect(wanted)
print(len(first), len(again) >= wanted)
"""
_ACCEPT = """
import selectors, socket
open_ones = selectors.DefaultSelector()
listener = socket.create_server(("", 8080), backlog=1024)
open_ones.register(listener, selectors.EVENT_READ)
while True:
    for key, _ in open_ones.select():
        if key.fileobj is listener: open_ones.register(listener.accept()[0], selectors.EVENT_READ); continue
        open_ones.unregister(key.fileobj); key.fileobj.close()
"""
_COUNT = "/proc/sys/net/netfilter/nf_conntrack_count"
_FLOODERS = 16
_SIZE = 16384


@pytest.fixture
def small_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Divide a small table, so that a flood is short. The kernel's own table is that of the machine."""
    path = tmp_path / "nf_conntrack_max"
    path.write_text(f"{_SIZE}\n")
    monkeypatch.setattr(guard, "_TABLE_SIZE", str(path))
    monkeypatch.setattr(connection_watch, "_INTERVAL_SECONDS", 0.5)
    return _SIZE


@pytest.mark.parametrize("size", [1024, 8192, 65536, 262144, 1 << 20, 1 << 24])
@pytest.mark.parametrize("families", [[IPV4], [IPV4, IPV6]], ids=["IPv4", "dual-stack"])
def test_the_tiers_of_all_families_fit_into_three_quarters_of_the_table(size: int, families: list[object]) -> None:
    own, beyond = guard.plan_tiers(size // len(families))
    assert all(tier.pool for tier in (*own[1:], beyond)), "only the number of pods bounds the first tier"
    pods, protocols = 128, 2
    together = pods * protocols * own[0].each + sum(tier.pool for tier in (*own, beyond))
    assert len(families) * together <= 0.75 * size + pods * protocols * len(families)


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
async def test_sixteen_pods_that_fill_the_table_take_no_connection_from_another(small_table: int) -> None:
    async with run_pod_cluster(service_ranges=RANGES) as pods:
        flooders = [f"flooder-{number}" for number in range(_FLOODERS)]
        probe = {"tcpSocket": {"port": 8080}, "periodSeconds": 1, "failureThreshold": 60}
        command = ["python3", "-m", "http.server", "8080", "--bind", "::", "--directory", "/etc"]
        await pods.create_pod("server", command, container={"readinessProbe": probe})
        server, victim, *_ = await asyncio.gather(
            pods.until_ready("server"),
            pods.start_client("victim"),
            pods.start_client("of-the-node", hostNetwork=True),
            *(pods.start_client(name) for name in flooders),
        )
        places = list(addresses_of(server).values())
        own = set(addresses_of(victim).values())
        flood = ("python3", "-c", _FLOWS, "2000", *places)
        during, floods = await asyncio.gather(
            _fetch_from(pods, "victim", places), asyncio.gather(*(pods.run(name, *flood) for name in flooders))
        )
        assert {output for _, output in floods} == {"sent"}
        after = await _fetch_from(pods, "victim", places)
        assert {*during, *after} == {"server"}
        _, count = await pods.run("of-the-node", "cat", _COUNT)
        assert int(count) < small_table, "the kernel's table would be full"
        code, output = await pods.run("flooder-0", "python3", "-c", _FLOWS, "50", *places)
        assert (code, output) == (0, "sent")
        refused = await guard.refused_sources(pods.runtimes[0], [IPV4, IPV6])
        assert refused & set(addresses_of(await pods.until_ready("flooder-0")).values())
        assert not refused & own
        await pods.until(lambda: _is_reported(pods, "flooder-0"))
        assert not await _is_reported(pods, "victim")


async def _is_reported(pods: PodCluster, pod: str) -> bool:
    events = await pods.client.list("v1/Event", namespace="default")
    reasons = [event["reason"] for event in events if event["involvedObject"]["name"] == pod]
    return connection_watch.REASON in reasons


async def _fetch_from(pods: PodCluster, pod: str, places: list[str]) -> list[str]:
    """Fetch the name of the host from each address several times, always by new connections."""
    urls = [f"http://{f'[{place}]' if ':' in place else place}:8080/hostname" for place in places]
    return [await pods.fetch(pod, url) for url in urls * 3]


async def test_a_pod_that_opens_too_many_connections_stops_no_other_pod() -> None:
    async with run_pod_cluster() as pods:
        server, *_ = await asyncio.gather(
            pods.start_server("server"),
            pods.start_client("greedy"),
            pods.start_client("other"),
            pods.start_client("of-the-node", hostNetwork=True),
        )
        address = server["status"]["podIP"]
        flows = str(3 * guard.MOST_CONNECTIONS)
        code, output = await pods.run("greedy", "python3", "-c", _FLOWS, flows, address)
        assert (code, output) == (0, "sent")
        _, count = await pods.run("of-the-node", "cat", _COUNT)
        assert guard.MOST_CONNECTIONS // 2 < int(count) < 2 * guard.MOST_CONNECTIONS
        assert (await pods.fetch("other", f"http://{address}:8080/")).startswith("server ")
        assert (await pods.fetch("greedy", f"http://{address}:8080/")).startswith("server "), "TCP is counted apart"
        code, _ = await pods.run("greedy", "getent", "hosts", "kubernetes.default")
        assert code == 0, "queries are not counted"


async def test_a_pod_that_has_closed_its_connections_opens_as_many_again(small_table: int) -> None:
    own, _ = guard.plan_tiers(small_table)
    limit = sum(tier.each for tier in own)
    async with run_pod_cluster() as pods:
        probe = {"tcpSocket": {"port": 8080}, "periodSeconds": 1, "failureThreshold": 60}
        await pods.create_pod("server", ["python3", "-c", _ACCEPT], container={"readinessProbe": probe})
        server, _ = await asyncio.gather(pods.until_ready("server"), pods.start_client())
        arguments = (server["status"]["podIP"], str(2 * limit), "1")
        code, output = await pods.run("client", "python3", "-c", _HOLD, *arguments)
        opened, has_recovered = output.split()
        assert code == 0
        assert limit // 2 < int(opened) <= limit, "each tier refuses what it has no room for"
        assert has_recovered == "True"
