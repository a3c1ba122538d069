"""Errors of ICMP that a pod makes by hand: they end or slow no connection between others."""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.machine import need
from tests.network.policy.test_forged_packets import RANGES, addresses_of, seen_by
from tests.network.services.conftest import PodCluster, run_pod_cluster

from pinnace.network.families import has_ipv6

_FORGE = Path(__file__).with_name("forge.py").read_text()
_PORT = 41000
_TALK = """
import errno, socket, sys, time
talks = []
for to in sys.argv[1:]:
    is_six = ":" in to
    opened = socket.socket(socket.AF_INET6 if is_six else socket.AF_INET, socket.SOCK_DGRAM)
    if is_six: opened.setsockopt(41, 26, 1)
    opened.bind(("", 41000)); opened.connect((to, 9)); opened.setblocking(False)
    talks.append((opened, (41, 24) if is_six else (0, 14), 6 if is_six else 4))
known = set()
def say(*words):
    line = " ".join(map(str, words))
    if line not in known: known.add(line); print(line, flush=True)
while True:
    for opened, option, family in talks:
        try: opened.send(b"x")
        except OSError as error: say(family, errno.errorcode[error.errno])
        say(family, "mtu", opened.getsockopt(*option))
    say("talking"); time.sleep(0.02)
"""
_LISTEN = "import socket; o = socket.socket(socket.AF_INET6, 2); o.bind(('', 9))\nwhile True: o.recv(99)"


def _quote(family: int, source: str, to: str, protocol: int = 17, content: bytes = b"") -> str:
    """The beginning of a packet, as an error quotes it."""
    content = content or struct.pack("!HHHH", _PORT, 9, 9, 0)
    kind = socket.AF_INET6 if family == 6 else socket.AF_INET
    addresses = socket.inet_pton(kind, source) + socket.inet_pton(kind, to)
    if family == 6:
        return (struct.pack("!IHBB", 6 << 28, len(content), protocol, 64) + addresses + content).hex()
    head = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(content), 0, 0x4000, 64, protocol, 0)
    return (head + addresses + content).hex()


def _errors(family: int, sender: str, victim: str, peer: str, *, mtu: int, code: int) -> Iterator[dict[str, Any]]:
    """Say that the victim's datagrams to its peer are too large, and that they do not arrive."""
    quote = _quote(family, victim, peer)
    base = {"source": sender, "to": victim, "text": ""}
    if family == 6:
        yield {**base, "icmp": 2, "body": f"{mtu:08x}{quote}"}
        yield {**base, "icmp": 1, "code": code, "body": f"00000000{quote}"}
    else:
        yield {**base, "icmp": 3, "code": 4, "body": f"{mtu:08x}{quote}"}
        yield {**base, "icmp": 3, "code": code, "body": f"00000000{quote}"}


async def _forge(pods: PodCluster, pod: str, items: list[dict[str, Any]]) -> None:
    code, output = await pods.run(pod, "python3", "-c", _FORGE, json.dumps(items))
    assert code == 0, output


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
async def test_only_the_peer_of_a_connection_may_report_an_error_of_it() -> None:
    async with run_pod_cluster(service_ranges=RANGES) as pods:
        await pods.create_pod("friend", ["python3", "-c", _LISTEN])
        friend = addresses_of(await pods.until_ready("friend"))
        await pods.create_pod("victim", ["python3", "-c", _TALK, *friend.values()])
        await pods.create_pod("attacker", ["sleep", "1000"])
        victim = addresses_of(await pods.until_ready("victim"))
        attacker = addresses_of(await pods.until_ready("attacker"))
        await pods.until(lambda: _has_seen(pods, "talking"))

        for family in (4, 6):
            forged = _errors(family, attacker[family], victim[family], friend[family], mtu=1400, code=3 + family // 6)
            await _forge(pods, "attacker", list(forged))
        for family in (4, 6):
            honest = _errors(family, friend[family], victim[family], friend[family], mtu=1300, code=2 - family // 6)
            await _forge(pods, "friend", list(honest))
        for line in ("4 mtu 1300", "6 mtu 1300", "4 ENOPROTOOPT", "6 EACCES"):
            await pods.until(lambda line=line: _has_seen(pods, line))  # type: ignore[misc]
        seen = await seen_by(pods, "victim")
        assert not seen & {"4 mtu 1400", "6 mtu 1400", "4 ECONNREFUSED", "6 ECONNREFUSED"}


async def _has_seen(pods: PodCluster, line: str) -> bool:
    return line in await seen_by(pods, "victim")


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
async def test_a_pod_cannot_make_the_packets_of_the_node_to_others_small() -> None:
    need("ip")
    async with run_pod_cluster(service_ranges=RANGES) as pods:
        for name, extra in (("victim", {}), ("attacker", {}), ("node", {"hostNetwork": True})):
            await pods.create_pod(name, ["sleep", "1000"], **extra)
        victim = addresses_of(await pods.until_ready("victim"))
        attacker = addresses_of(await pods.until_ready("attacker"))
        await pods.until_ready("node")
        node = {4: "10.244.0.1", 6: "fd00:10:244::1"}
        for family, protocol, kind in ((4, 1, b"\0\0"), (6, 58, b"\x81\0")):
            for content in (kind + bytes(6), struct.pack("!HHHH", 53, _PORT, 9, 0)):
                number = protocol if content.startswith(kind) else 17
                quote = _quote(family, node[family], victim[family], number, content)
                error = {"icmp": 2} if family == 6 else {"icmp": 3, "code": 4}
                item = {"source": attacker[family], "to": node[family], "text": "", "body": f"{1300:08x}{quote}"}
                await _forge(pods, "attacker", [{**item, **error}])
            code, route = await pods.run("node", "ip", "route", "get", victim[family])
            assert code == 0, route
            assert "mtu" not in route
