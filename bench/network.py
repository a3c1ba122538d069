"""Measures Service rules, the proxy and the DNS server: on loopback, and in a network namespace of its own.

python bench/network.py
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
import subprocess
import sys
import time
from contextlib import AsyncExitStack

from pinnace.model.clock import SystemClock
from pinnace.network.dns.records import records_of
from pinnace.network.dns.server import DnsServer
from pinnace.network.dns.zone import Zone
from pinnace.network.nftables.transactions import PROTOCOL, Nftables
from pinnace.network.services.proxy import ServiceProxy
from pinnace.network.services.rules import ServiceRules
from pinnace.network.services.table import Backends, Endpoint, Frontend
from pinnace.network.sockets import HostSockets, open_listener

SERVICES, ENDPOINTS, CHANGES = 1000, 5, 500
MEGABYTES, CONNECTIONS, QUERIES = 1000, 2000, 20_000
_LOOPBACK = "127.0.0.1"
_MEGABYTE = bytes(1 << 20)


def measure_rules() -> None:
    """Run in a new network namespace: make the rules of many Services, then change one again and again."""
    rules = ServiceRules(Nftables(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, PROTOCOL)))
    table = {
        Frontend(f"10.96.{number // 250}.{number % 250 + 1}", "TCP", 80): Backends(
            tuple(Endpoint(f"10.244.{number % 250}.{last + 1}", 8080) for last in range(ENDPOINTS))
        )
        for number in range(SERVICES)
    }
    started = time.perf_counter()
    rules.replace(table)
    whole = time.perf_counter() - started
    frontend, backends = next(iter(table.items()))
    took = []
    for number in range(CHANGES):
        started = time.perf_counter()
        rules.apply({frontend: Backends(backends.endpoints[: ENDPOINTS - number % 2])})
        took.append(time.perf_counter() - started)
    took.sort()
    middle, late = took[len(took) // 2] * 1000, took[int(len(took) * 0.99)] * 1000
    print(f"rules: {SERVICES} Services of {ENDPOINTS} endpoints in {whole:.2f} s")
    print(f"rules: a change of one, p50 {middle:.1f} ms, p99 {late:.1f} ms")


async def measure_proxy() -> None:
    """The sender, the proxy and the receiver share this machine; only the proxy's own CPU time is its cost."""
    async with AsyncExitStack() as stack:
        sink = subprocess.Popen([sys.executable, __file__, "sink"], stdout=subprocess.PIPE)
        stack.callback(sink.kill)
        assert sink.stdout is not None
        port = int(sink.stdout.readline())
        with socket.socket() as free:
            free.bind((_LOOPBACK, 0))
            front = free.getsockname()[1]
        proxy = ServiceProxy(HostSockets(), HostSockets(), SystemClock())
        stack.push_async_callback(proxy.close)
        await proxy.apply({Frontend(_LOOPBACK, "TCP", front): Backends((Endpoint(_LOOPBACK, port),))})
        seconds = await asyncio.to_thread(_send_all, front)
        print(f"proxy: {MEGABYTES / seconds:.0f} MB/s")
        seconds = await asyncio.to_thread(_connect_often, front)
        print(f"proxy: {CONNECTIONS / seconds:.0f} connections/s")


def _receive() -> None:
    """Accept connections one after the other, and read each to its end."""
    with socket.create_server((_LOOPBACK, 0), backlog=1024) as listener:
        print(listener.getsockname()[1], flush=True)
        while True:
            opened, _ = listener.accept()
            with opened:
                while opened.recv(1 << 20):
                    pass


def _send_all(port: int) -> float:
    child = subprocess.Popen([sys.executable, __file__, "send", str(port)], stdout=subprocess.PIPE)
    return float(child.communicate()[0])


def _connect_often(port: int) -> float:
    child = subprocess.Popen([sys.executable, __file__, "connect", str(port)], stdout=subprocess.PIPE)
    return float(child.communicate()[0])


async def measure_dns() -> None:
    zone = Zone()
    for number in range(SERVICES):
        address = f"10.96.{number // 250}.{number % 250 + 1}"
        spec = {"clusterIP": address, "clusterIPs": [address], "ports": [{"name": "http", "port": 80}]}
        zone.set(number, records_of({"metadata": {"name": f"web-{number}", "namespace": "default"}, "spec": spec}, []))
    datagrams = await open_listener(HostSockets(), socket.SOCK_DGRAM, _LOOPBACK, 0)
    port = datagrams.getsockname()[1]
    server = DnsServer(zone, datagrams, await open_listener(HostSockets(), socket.SOCK_STREAM, _LOOPBACK, 0))
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, __file__, "ask", str(port)), stdout=asyncio.subprocess.PIPE
    )
    started = time.process_time()
    output, _ = await child.communicate()
    cost = (time.process_time() - started) / QUERIES * 1e6
    print(f"dns: {output.decode().strip()}; {cost:.0f} µs of CPU time an answer")
    await server.close()


def _ask(port: int) -> None:
    """Ask one question after the other, and print their number in a second and the slowest."""
    took = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
        opened.connect((_LOOPBACK, port))
        begun = time.perf_counter()
        for number in range(QUERIES):
            name = f"web-{number % SERVICES}".encode()
            labels = bytes((len(name),)) + name + b"\7default\3svc\7cluster\5local\0"
            query = struct.pack("!HHHHHH", number & 0xFFFF, 0x100, 1, 0, 0, 0) + labels + b"\0\1\0\1"
            started = time.perf_counter()
            opened.send(query)
            opened.recv(512)
            took.append(time.perf_counter() - started)
        seconds = time.perf_counter() - begun
    took.sort()
    print(f"{QUERIES / seconds:.0f} answers/s to one client, p99 {took[int(QUERIES * 0.99)] * 1000:.2f} ms")


def _send(port: int) -> None:
    started = time.perf_counter()
    with socket.create_connection((_LOOPBACK, port)) as opened:
        for _ in range(MEGABYTES):
            opened.sendall(_MEGABYTE)
        opened.shutdown(socket.SHUT_WR)
        opened.recv(1)
    print(time.perf_counter() - started)


def _connect(port: int) -> None:
    started = time.perf_counter()
    for _ in range(CONNECTIONS):
        with socket.create_connection((_LOOPBACK, port)) as opened:
            opened.shutdown(socket.SHUT_WR)
            opened.recv(1)
    print(time.perf_counter() - started)


def main() -> None:
    match sys.argv[1:]:
        case ["rules"]:
            measure_rules()
        case ["send", port]:
            _send(int(port))
        case ["connect", port]:
            _connect(int(port))
        case ["sink"]:
            _receive()
        case ["ask", port]:
            _ask(int(port))
        case _:
            alone = ["unshare", "--user", "--map-root-user", "--net", sys.executable, __file__, "rules"]
            subprocess.run(alone, check=True, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})
            asyncio.run(measure_proxy())
            asyncio.run(measure_dns())


if __name__ == "__main__":
    main()
