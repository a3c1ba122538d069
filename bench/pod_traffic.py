"""Measures the traffic between two pods of a node: directly, and through a Service address.

python bench/pod_traffic.py

It needs a network namespace of its own without a default route: bench/network.py runs it in one. The pods are processes
in network namespaces of their own, connected to the node as the runtime connects them. Three ways take turns: the veth
pairs alone, beside the rules that each node has and those of 1,000 Services, and through one of these Services.
"""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
import time
from contextlib import ExitStack
from ipaddress import ip_interface, ip_network

from pinnace.kinds.services.service_range import SERVICE_RANGE
from pinnace.network.families import IPV4
from pinnace.network.netlink import Netlink
from pinnace.network.nftables.transactions import PROTOCOL, Nftables, Transaction
from pinnace.network.pods.guard import TABLE as GUARD
from pinnace.network.pods.guard import guard_pods
from pinnace.network.policy.rules import TABLE as POLICIES
from pinnace.network.policy.rules import PolicyRules
from pinnace.network.services.rules import TABLE, ServiceRules
from pinnace.network.services.table import Backends, Endpoint, Frontend
from pinnace.node.runtime.embedded.supervision.pod_links import add_link, make_network

SERVICES, ENDPOINTS = 1000, 5
ROUNDS, SECONDS = 15, 0.15
"""Many short rounds, of which the best counts: other work of the machine disturbs some of them."""
_GATEWAY, _POD_NETWORK = "10.244.0.1/24", "10.244.0.0/16"
_CLIENT, _SERVER, _PORT = "10.244.0.2", "10.244.0.3", 8080
_SERVICE = "10.96.0.200"
_MEGABYTE = bytes(1 << 20)
_RESET = struct.pack("ii", 1, 0)


class Pod:
    """A process in a network namespace of its own. It measures when it is asked to."""

    def __init__(self, stack: ExitStack, node: Netlink, address: str) -> None:
        command = ["unshare", "--net", sys.executable, __file__, "pod", address]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        stack.callback(self._process.kill)
        self._ask("")
        name, gateway = f"veth{address.rpartition('.')[2]}", _GATEWAY.partition("/")[0]
        add_link(node, {"veth": name, "addresses": [f"{address}/24"], "gateways": [gateway]}, self._process.pid)
        self._ask("connected")

    def measure(self, kind: str, address: str, port: int) -> float:
        return float(self._ask(f"{kind} {address} {port}"))

    def _ask(self, line: str) -> str:
        assert self._process.stdin is not None and self._process.stdout is not None
        if line:
            self._process.stdin.write(f"{line}\n")
            self._process.stdin.flush()
        return self._process.stdout.readline()


def measure() -> None:
    node = Netlink()
    if node.has_default_route():
        raise SystemExit("run this in a network namespace without a default route: python bench/network.py")
    make_network(node, [_GATEWAY])
    node.add_local_network(ip_network(SERVICE_RANGE))
    nftables = Nftables(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, PROTOCOL))
    rules = ServiceRules(nftables)
    with ExitStack() as stack:
        Pod(stack, node, _SERVER)
        client = Pod(stack, node, _CLIENT)
        ways = {"bare": (_SERVER, _PORT), "direct": (_SERVER, _PORT), "service": (_SERVICE, 80)}
        samples: dict[tuple[str, str], list[float]] = {}
        for _ in range(ROUNDS):
            for way, place in ways.items():
                if way == "direct":
                    guard_pods(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, PROTOCOL), [IPV4])
                    rules.replace(_table())
                    PolicyRules(nftables).apply({})
                for kind in ("bytes", "connections"):
                    samples.setdefault((kind, way), []).append(client.measure(kind, *place))
            for table in (TABLE, GUARD, POLICIES):
                removal = Transaction(table)
                removal.delete_table()
                nftables.commit(removal)
    _report(samples)


def _report(samples: dict[tuple[str, str], list[float]]) -> None:
    for kind, unit, scale in (("bytes", "MB/s", 1e6), ("connections", "connections/s", 1.0)):
        bare, direct, service = (max(samples[kind, way]) / scale for way in ("bare", "direct", "service"))
        print(
            f"nftables: {service:.0f} {unit} between two pods through one of {SERVICES} Services, {direct:.0f} beside "
            f"their rules, {bare:.0f} by the veth pairs alone; ratio {service / bare:.2f}"
        )


def _table() -> dict[Frontend, Backends | None]:
    table: dict[Frontend, Backends | None] = {
        Frontend(f"10.96.{1 + number // 250}.{number % 250 + 1}", "TCP", 80): Backends(
            tuple(Endpoint(f"10.244.{number % 250 + 1}.{last + 1}", 8080) for last in range(ENDPOINTS))
        )
        for number in range(SERVICES - 1)
    }
    table[Frontend(_SERVICE, "TCP", 80)] = Backends((Endpoint(_SERVER, _PORT),))
    return table


def run_pod(address: str) -> None:
    """Connect this namespace as the runtime connects a pod; then serve, or measure as standard input asks."""
    print("started", flush=True)
    sys.stdin.readline()
    pod = Netlink()
    gateway = str(ip_interface(_GATEWAY).ip)
    pod.set_up("lo")
    pod.add_address("eth0", ip_interface(f"{address}/32"))
    pod.set_up("eth0")
    pod.add_link_route(ip_network(f"{gateway}/32"), name="eth0")
    for network in (_POD_NETWORK, SERVICE_RANGE):
        pod.add_route(ip_network(network), gateway=gateway)
    if address == _SERVER:
        _serve()
    print("connected", flush=True)
    for line in sys.stdin:
        kind, host, port = line.split()
        print(_count_bytes(host, int(port)) if kind == "bytes" else _count_connections(host, int(port)), flush=True)


def _serve() -> None:
    """Answer with a byte, then read each connection to its end."""
    with socket.create_server(("", _PORT), backlog=1024) as listener:
        print("connected", flush=True)
        while True:
            opened, _ = listener.accept()
            with opened:
                opened.send(b"x")
                try:
                    while opened.recv(1 << 20):
                        pass
                except ConnectionResetError:
                    continue


def _count_bytes(host: str, port: int) -> float:
    """Return the bytes in a second."""
    sent = 0
    with socket.create_connection((host, port)) as opened:
        opened.recv(1)
        started = time.perf_counter()
        while time.perf_counter() < started + SECONDS:
            sent += opened.send(_MEGABYTE)
        opened.shutdown(socket.SHUT_WR)
        opened.recv(1)
    return sent / (time.perf_counter() - started)


def _count_connections(host: str, port: int) -> float:
    """Return the connections in a second, one after the other: each waits for a byte and is reset."""
    count = 0
    started = time.perf_counter()
    while time.perf_counter() < started + SECONDS:
        with socket.create_connection((host, port)) as opened:
            opened.recv(1)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        count += 1
    return count / (time.perf_counter() - started)


if __name__ == "__main__":
    if sys.argv[1:2] == ["pod"]:
        run_pod(sys.argv[2])
    else:
        measure()
