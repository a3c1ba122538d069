"""Pods share the ports of their node on the way out: one that takes many to a destination leaves some to the others."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys

from tests.machine import need
from tests.node.namespaces import need_namespaces

from pinnace.network.nftables.transactions import Transaction, commit_once
from pinnace.network.pods import egress
from pinnace.network.sockets import HostSockets

_NETWORKS = """
set -e
ip link set lo up
unshare --net sleep 1000 >/dev/null 2>&1 & outside=$!
trap 'kill $outside' EXIT
until [ "$(readlink /proc/$outside/ns/net)" != "$(readlink /proc/$$/ns/net)" ]; do :; done
ip link add egress0 type veth peer name eth0 netns $outside
ip addr add 198.51.100.1/24 dev egress0
ip link set egress0 up
in_outside() { nsenter --net=/proc/$outside/ns/net "$@"; }
in_outside ip link set lo up
in_outside ip addr add 198.51.100.2/24 dev eth0
in_outside ip link set eth0 up
for address in 10.9.0.2 10.9.0.3; do ip addr add $address/32 dev lo; done
nsenter --net=/proc/$outside/ns/net "$1" "$2" serve >/dev/null 2>&1 & server=$!
trap 'kill $outside $server' EXIT
"$1" "$2" send
"""
_SHARED, _OWN, _EACH = (1024, 1031), (2048, 2063), 4


def _serve() -> None:
    """Answer each datagram with the port from which it came."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
        opened.bind(("198.51.100.2", 5000))
        while True:
            _, place = opened.recvfrom(100)
            opened.sendto(str(place[1]).encode(), place)


def _send() -> None:
    """Print the ports that each of two pods gets for its connections to one destination."""
    asyncio.run(commit_once(HostSockets(), _rules()))
    greedy = [_connect("10.9.0.2") for _ in range(40)]
    ports = _ports_of(greedy, _EACH + _SHARED[1] - _SHARED[0] + 1)
    other = _ports_of([_connect("10.9.0.3") for _ in range(3)], 3)
    print(*(ports | _ports_of(greedy, 0)))
    print(*other)


def _rules() -> Transaction:
    egress._SHARED_PORTS, egress._OWN_PORTS, egress._OWN_PORTS_EACH = _SHARED, _OWN, _EACH
    return egress._node_rules([])


def _connect(source: str) -> socket.socket:
    opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    opened.setblocking(False)
    opened.bind((source, 0))
    opened.connect(("198.51.100.2", 5000))
    return opened


def _ports_of(connections: list[socket.socket], number: int) -> set[int]:
    """Send by each connection until so many have an answer, and return the ports of the node from which they came."""
    ports: set[int] = set()
    while True:
        for opened in connections:
            with contextlib.suppress(OSError):  # Refused while the server does not listen yet, or not answered.
                opened.send(b"port?")
            with contextlib.suppress(OSError):
                ports.add(int(opened.recv(100)))
        if len(ports) >= number:
            return ports


def test_a_pod_that_takes_the_ports_to_a_destination_leaves_some_to_others() -> None:
    need_namespaces()
    need("ip")
    command = ["unshare", "--user", "--map-root-user", "--net", "sh", "-c", _NETWORKS, "sh", sys.executable, __file__]
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "PYTHONPATH": ":".join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, start_new_session=True) as running:
        try:
            output, _ = running.communicate(timeout=60)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)
    assert running.returncode == 0
    greedy, other = ([int(port) for port in line.split()] for line in output.decode().splitlines())
    own, shared = range(_OWN[0], _OWN[1] + 1), range(_SHARED[0], _SHARED[1] + 1)
    assert len([port for port in greedy if port in own]) == _EACH
    assert set(greedy) - set(own) == set(shared), "the others of the greedy pod come from the shared ports, and no more"
    assert len(other) == 3
    assert set(other) <= set(own)


if __name__ == "__main__":
    _serve() if sys.argv[1] == "serve" else _send()
