"""Measures Service rules, the proxy and the DNS server: on loopback, and in network namespaces of its own.

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
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

from pinnace.client.client import Client
from pinnace.cluster.cluster import running
from pinnace.cluster.in_process import in_process_client
from pinnace.cluster.settings import Settings
from pinnace.kinds.services.service_range import SERVICE_RANGE, dns_address_of
from pinnace.model.typed_objects import ServiceSpec
from pinnace.network.dns.network import DnsNetwork, records_of
from pinnace.network.dns.server import DnsServer
from pinnace.network.dns.zone import Zone
from pinnace.network.netlink import Netlink
from pinnace.network.nftables.transactions import PROTOCOL, Nftables
from pinnace.network.services.network import ServiceNetwork
from pinnace.network.services.proxy import ServiceProxy
from pinnace.network.services.rules import ServiceRules
from pinnace.network.services.table import Backends, Endpoint, Frontend
from pinnace.network.sockets import HostSockets, open_listener
from pinnace.process.clock import SystemClock
from pinnace.process.tasks import Tasks
from pinnace.reconcile.manager import Manager

SERVICES, ENDPOINTS, CHANGES = 1000, 5, 500
WARM_UP = 5
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
        receiver = subprocess.Popen([sys.executable, __file__, "sink"], stdout=subprocess.PIPE)
        stack.callback(receiver.kill)
        assert receiver.stdout is not None
        port = int(receiver.stdout.readline())
        with socket.socket() as free:
            free.bind((_LOOPBACK, 0))
            front = free.getsockname()[1]
        proxy = ServiceProxy(HostSockets(), HostSockets(), SystemClock())
        stack.push_async_callback(proxy.close)
        await proxy.apply({Frontend(_LOOPBACK, "TCP", front): Backends((Endpoint(_LOOPBACK, port),))})
        seconds = await asyncio.to_thread(_send_all, front)
        print(f"proxy: {MEGABYTES / seconds:.0f} MB/s")
        before = time.process_time()
        seconds = await asyncio.to_thread(_connect_often, front)
        cost = (time.process_time() - before) / CONNECTIONS * 1e6
        print(f"proxy: {CONNECTIONS / seconds:.0f} connections/s one after the other, {cost:.0f} µs of CPU time each")


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


async def measure_changes() -> None:
    """Run in a new network namespace: change one of many Services through the API, and ask until it is in force."""
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(running(Settings(controllers=False, scheduler=False)))
        client = in_process_client(cluster.plane.local())
        netlink = Netlink(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW))
        netlink.set_up("lo")
        netlink.add_local_network(IPv4Network("10.244.0.0/16"))
        for number in range(SERVICES):
            await _create_service(client, number)
        manager = Manager(in_process_client(cluster.plane.local()), name="kubelet")
        ServiceNetwork(manager, HostSockets(), node="node", service_networks=[SERVICE_RANGE])
        # One client asks again and again, faster than a pod may.
        DnsNetwork(manager, HostSockets(), address=dns_address_of(SERVICE_RANGE), uses_nftables=False)
        tasks = await stack.enter_async_context(Tasks(expected=()))
        tasks.start(manager.run())
        for last in (1, 2):
            server = await asyncio.start_server(_answer_with(last), f"10.244.9.{last}", 8080)
            stack.callback(server.close)
        service = await client.get("v1/Service", "web-0", namespace="default")
        rules: list[float] = []
        names: list[float] = []
        for number in range(CHANGES // 5 + WARM_UP):
            if number == WARM_UP:
                rules.clear()
                names.clear()
            last = number % 2 + 1
            started = time.perf_counter()
            await client.apply(_slice(0, [f"10.244.9.{last}"]), force=True)
            while await _first_byte(service["spec"]["clusterIP"], 80) != bytes((last,)):
                await asyncio.sleep(0)
            rules.append(time.perf_counter() - started)
            started = time.perf_counter()
            await client.apply(_headless_slice(f"10.244.9.{last}"), force=True)
            while not (await _query("headless")).endswith(bytes((10, 244, 9, last))):
                await asyncio.sleep(0)
            names.append(time.perf_counter() - started)
        for what, took in (("a Service", rules), ("a name", names)):
            took.sort()
            middle, late = took[len(took) // 2] * 1000, took[int(len(took) * 0.99)] * 1000
            print(
                f"change: {what} of {SERVICES}, from the request to its effect, p50 {middle:.1f} ms, p99 {late:.1f} ms"
            )
        await tasks.close()


def _answer_with(last: int) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(bytes((last,)))
        writer.close()

    return answer


async def _create_service(client: Client, number: int) -> None:
    ports = [{"port": 80, "targetPort": 8080}]
    metadata = {"name": f"web-{number}", "namespace": "default"}
    await client.create({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": {"ports": ports}})
    addresses = [f"10.244.{number % 200 + 10}.{last + 1}" for last in range(ENDPOINTS)]
    await client.create(_slice(number, addresses))
    if number == 0:
        spec = {"clusterIP": "None", "ports": [{"port": 80}]}
        await client.create({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "headless"}, "spec": spec})


def _slice(number: int, addresses: Sequence[str], name: str = "") -> Any:
    service = name or f"web-{number}"
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": service,
            "namespace": "default",
            "labels": {"kubernetes.io/service-name": service},
        },
        "addressType": "IPv4",
        "ports": [{"name": "", "port": 8080, "protocol": "TCP"}],
        "endpoints": [{"addresses": [address], "conditions": {"ready": True}} for address in addresses],
    }


def _headless_slice(address: str) -> Any:
    return _slice(0, [address], "headless")


async def _first_byte(address: str, port: int) -> bytes:
    try:
        reader, writer = await asyncio.open_connection(address, port)
        byte = await reader.read(1)
        writer.close()
    except OSError:
        return b""
    return byte


async def _query(name: str) -> bytes:
    """Return the response to a query for the address of a Service."""
    loop = asyncio.get_running_loop()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
        opened.setblocking(False)
        opened.connect((dns_address_of(SERVICE_RANGE), 53))
        await loop.sock_sendall(opened, _encode_query(0, name.encode()))
        try:
            return await loop.sock_recv(opened, 512)
        except ConnectionRefusedError:
            return b""


async def measure_dns() -> None:
    zone = Zone()
    for number in range(SERVICES):
        address = f"10.96.{number // 250}.{number % 250 + 1}"
        spec: ServiceSpec = {"clusterIP": address, "clusterIPs": [address], "ports": [{"name": "http", "port": 80}]}
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
            query = _encode_query(number, f"web-{number % SERVICES}".encode())
            started = time.perf_counter()
            opened.send(query)
            opened.recv(512)
            took.append(time.perf_counter() - started)
        seconds = time.perf_counter() - begun
    took.sort()
    print(f"{QUERIES / seconds:.0f} answers/s to one client, p99 {took[int(QUERIES * 0.99)] * 1000:.2f} ms")


def _encode_query(number: int, name: bytes) -> bytes:
    labels = bytes((len(name),)) + name + b"\7default\3svc\7cluster\5local\0"
    return struct.pack("!HHHHHH", number & 0xFFFF, 0x100, 1, 0, 0, 0) + labels + b"\0\1\0\1"


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


def _run_alone(*command: str) -> None:
    """Run a script in a network namespace of its own."""
    alone = ["unshare", "--user", "--map-root-user", "--net", sys.executable, *command]
    subprocess.run(alone, check=True, env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)})


def main() -> None:
    match sys.argv[1:]:
        case ["rules"]:
            measure_rules()
            asyncio.run(measure_changes())
        case ["send", port]:
            _send(int(port))
        case ["connect", port]:
            _connect(int(port))
        case ["sink"]:
            _receive()
        case ["ask", port]:
            _ask(int(port))
        case _:
            _run_alone(__file__, "rules")
            _run_alone(str(Path(__file__).with_name("pod_traffic.py")))
            asyncio.run(measure_proxy())
            asyncio.run(measure_dns())


if __name__ == "__main__":
    main()
