"""Packets and frames that a pod makes by hand: none reaches another pod in the name of a third one."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests.machine import need
from tests.network.services.conftest import PodCluster, run_pod_cluster

from pinnace.kinds.services.service_range import SERVICE_RANGE
from pinnace.model.objects import Object
from pinnace.network.families import has_ipv6

RANGES = (SERVICE_RANGE, "fd00:10:96::/112")
_FORGE = Path(__file__).with_name("forge.py").read_text()
_WATCH = """
import re, socket, sys
opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
opened.setsockopt(263, 23, 1)  # No outgoing frames.
opened.bind(("eth0", 3))
sinks = []
for family in (socket.AF_INET, socket.AF_INET6):
    for port in (9000, 9001):
        sink = socket.socket(family, socket.SOCK_DGRAM)
        if family == socket.AF_INET6: sink.setsockopt(41, 26, 1)
        sink.bind(("", port)); sinks.append(sink)
print("watching", flush=True)
while True:
    for name in re.findall(rb"case=([^;]+);", opened.recv(70000)): print(name.decode(), flush=True)
"""
_SEND = """
import socket, sys
source, to, text = sys.argv[1:]
with socket.socket(socket.AF_INET6 if ":" in to else socket.AF_INET, socket.SOCK_DGRAM) as opened:
    if source: opened.bind((source, 0))
    opened.sendto(text.encode(), (to, 9000))
"""

_numbers = count()


@dataclass(frozen=True)
class Places:
    """The addresses of the pods and of the node, by family."""

    victim: dict[int, str]
    friend: dict[int, str]
    attacker: dict[int, str]
    node: dict[int, str]
    service: dict[int, str]
    victim_hardware: str
    friend_hardware: str


def _packets(places: Places) -> Iterator[tuple[str, dict[str, Any]]]:
    """Each attack with its name: a datagram from a source that the victim's policy allows, or a frame past the node."""
    sources = {
        4: {
            "friend": places.friend[4],
            "node": places.node[4],
            "service": places.service[4],
            "victim": places.victim[4],
            "pod of another node": "10.244.1.9",
            "no pod": "10.244.0.99",
            "loopback": "127.0.0.1",
            "unspecified": "0.0.0.0",
            "this network": "0.0.0.9",
            "all": "255.255.255.255",
            "group": "224.0.0.1",
            "link-local": "169.254.1.1",
        },
        6: {
            "friend": places.friend.get(6, ""),
            "node": places.node[6],
            "service": places.service.get(6, ""),
            "victim": places.victim.get(6, ""),
            "pod of another node": "fd00:10:244:1::9",
            "no pod": "fd00:10:244::99",
            "loopback": "::1",
            "unspecified": "::",
            "group": "ff02::1",
            "link-local": "fe80::1",
            "IPv4 address of the friend": f"::ffff:{places.friend[4]}",
        },
    }
    for family, named in sources.items():
        if family not in places.victim:
            continue
        for name, source in named.items():
            yield f"IPv{family} from {name}", {"source": source, "to": places.victim[family]}
        yield (
            f"IPv{family} from friend in fragments",
            {"source": named["friend"], "to": places.victim[family], "fragments": [[0, 2], [2, 99]]},
        )
    forged = {"source": places.friend[4], "to": places.victim[4]}
    own = {"source": places.attacker[4], "to": places.victim[4]}  # Its policy drops these.
    for name, packet in (("forged", forged), ("own", own)):
        yield f"{name} to the victim's hardware address", {**packet, "destination": places.victim_hardware}
        yield f"{name} to all hardware addresses", {**packet, "destination": "ffffffffffff"}
        yield f"{name} from the friend's hardware address", {**packet, "hardware": places.friend_hardware}
        for tag in ("81000000", "81000005", "88a80005", "88a8000581000005"):
            yield f"{name} with the tag {tag}", {**packet, "destination": places.victim_hardware, "tags": tag}
    for kind in ("8847", "8864", "8137", "88cc", "0805", "86dd"):
        for to in (places.victim_hardware, "ffffffffffff"):
            yield f"frame {kind} to {to}", {"raw": kind + "00" * 40, "destination": to}
    yield (
        "STP",
        {
            "raw": "0026424203000000000080000000000000000000000080000000000080010000140002000f00",
            "destination": "0180c2000000",
        },
    )
    yield "flow control", {"raw": "88080001ffff", "destination": "0180c2000001"}
    for group, hardware in (
        ("255.255.255.255", "ffffffffffff"),
        ("10.244.0.255", "ffffffffffff"),
        ("224.0.0.251", "01005e0000fb"),
        ("239.1.1.1", "01005e010101"),
    ):
        yield f"to group {group}", {"source": places.attacker[4], "to": group, "destination": hardware}
    yield "DHCP", {"source": "0.0.0.0", "to": "255.255.255.255", "destination": "ffffffffffff", "port": 67}
    for owner, address in (("friend", places.friend[4]), ("node", places.node[4]), ("victim", places.victim[4])):
        yield from _arp(places, owner, address)
    yield from _unusual(places)
    if 6 not in places.victim:
        return
    for group in ("ff02::1", "ff05::2", "ff02::fb"):
        yield f"to group {group}", {"source": places.attacker[6], "to": group, "destination": "333300000001"}
    yield from _neighbours(places)


def _arp(places: Places, owner: str, address: str) -> Iterator[tuple[str, dict[str, Any]]]:
    for kind in (1, 2):
        for to in (places.victim[4], places.friend[4], places.node[4], address):
            yield (
                f"ARP {kind} of the {owner} to {to}",
                {"arp": kind, "source": address, "to": to, "destination": "ffffffffffff"},
            )


def _neighbours(places: Places) -> Iterator[tuple[str, dict[str, Any]]]:
    """The messages by which a pod would take the address of another, or of the node."""
    for owner, address in (("friend", places.friend[6]), ("node", places.node[6])):
        target = _hex(address)
        body = f"e0000000{target}0201{places.friend_hardware}"
        yield (
            f"advertisement of the {owner}",
            {"icmp": 136, "body": body, "source": address, "to": "ff02::1", "destination": "333300000001"},
        )
        yield (
            f"solicitation by the {owner}",
            {
                "icmp": 135,
                "body": f"00000000{_hex(places.victim[6])}0101{places.friend_hardware}",
                "source": address,
                "to": places.victim[6],
            },
        )
    yield (
        "router advertisement",
        {
            "icmp": 134,
            "body": "4000070800000000" + "00000000",
            "source": "fe80::1",
            "to": "ff02::1",
            "destination": "333300000001",
        },
    )
    yield (
        "redirect",
        {
            "icmp": 137,
            "body": f"00000000{_hex('fe80::9')}{_hex(places.friend[6])}",
            "source": "fe80::1",
            "to": places.victim[6],
        },
    )
    yield (
        "duplicate address",
        {
            "icmp": 135,
            "body": f"00000000{_hex(places.victim[6])}",
            "source": "::",
            "to": "ff02::1",
            "destination": "333300000001",
        },
    )


def _unusual(places: Places) -> Iterator[tuple[str, dict[str, Any]]]:
    for family in places.victim:
        yield from _tunnels(places, family)
        yield from _protocols(places, family)
    yield from _routed(places)


def _tunnels(places: Places, family: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Packets of the friend inside of packets that the attacker may send: to the node, and to the victim itself."""
    inner = {"source": places.friend[family], "to": places.victim[family], "port": 9001}
    kind = "86dd" if family == 6 else "0800"
    frame = places.victim_hardware + places.friend_hardware + kind
    for outer in places.victim:
        for end, to in (("node", places.node[outer]), ("victim", places.victim[outer])):
            base = {"source": places.attacker[outer], "to": to, "inner": inner}
            name = f"IPv{family} in IPv{outer} to the {end}"
            yield name, base
            yield f"{name} by GRE", {**base, "protocol": 47, "before": "0000" + kind}
            yield f"{name} by GRE with Ethernet", {**base, "protocol": 47, "before": "00006558" + frame}
            yield f"{name} by VXLAN", {**base, "port": 4789, "before": "0800000000000100" + frame}
            yield f"{name} by Geneve", {**base, "port": 6081, "before": "0000655800000100" + frame}
            yield f"{name} by FOU", {**base, "port": 5555}
            yield f"{name} by ESP in UDP", {**base, "port": 4500, "before": "0000000100000001"}


def _protocols(places: Places, family: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Everything but UDP to the open port: other protocols, and each kind of ICMP."""
    base = {"source": places.attacker[family], "to": places.victim[family]}
    ports = "9c402329"  # From port 40000 to 9001, where a protocol has ports.
    for number in (2, 6, 33, 41, 46, 47, 50, 51, 59, 88, 89, 94, 97, 103, 108, 112, 115, 132, 135, 136, 137, 139, 253):
        yield f"IPv{family} protocol {number}", {**base, "protocol": number, "before": ports + "00" * 16}
    kinds = (*range(1, 5), *range(128, 162)) if family == 6 else range(19)
    for kind in kinds:
        yield f"IPv{family} ICMP {kind}", {**base, "icmp": kind, "body": "00000000"}
    for flags in ("02", "12", "10", "04", "14", "01", "29", "00"):  # SYN, its answer, ACK, RST, …, all, none.
        head = f"{ports}000000010000000150{flags}ffff00000000"
        yield f"IPv{family} TCP with the flags {flags}", {**base, "protocol": 6, "before": head}


def _routed(places: Places) -> Iterator[tuple[str, dict[str, Any]]]:
    """Packets that name their way, and headers that stand where a policy looks for others."""
    victim = socket.inet_aton(places.victim[4]).hex()
    for name, option in (("loosely", "83"), ("strictly", "89")):
        options = f"{option}0704{victim}00"
        own = {"source": places.attacker[4], "port": 9001, "options": options}
        yield f"IPv4 routed {name} over the node", {**own, "to": places.node[4]}
        yield f"IPv4 routed {name} from the friend", {**own, "to": places.node[4], "source": places.friend[4]}
    yield (
        "IPv4 with options to a closed port",
        {"source": places.attacker[4], "to": places.victim[4], "port": 9000, "options": "01010101"},
    )
    if 6 not in places.victim:
        return
    six = {"source": places.attacker[6], "to": places.node[6], "port": 9001}
    way = _hex(places.victim[6])
    for kind in (0, 2, 3, 4, 253):  # Source routes, home addresses, RPL, segments, experiments.
        routing = [[43, f"{kind:02x}0100000000{way}"]]
        yield f"IPv6 routed by type {kind} over the node", {**six, "extensions": routing}
        yield f"IPv6 routed by type {kind} from the friend", {**six, "source": places.friend[6], "extensions": routing}
    closed = {"source": places.attacker[6], "to": places.victim[6], "port": 9000}
    extensions: dict[str, list[Any]] = {
        "jumbo": [[0, "c204000001ff"]],
        "router alert": [[0, "050200000100"]],
        "home address": [[60, f"c910{_hex(places.friend[6])}00000000"]],
        "twice hop by hop": [0, 0],
        "authentication": [[51, "0000000000010000000100000000"]],
        "mobility": [135],
        "all": [60, 43, 60, 0],
        "many": [60] * 20,
    }
    for name, headers in extensions.items():
        yield f"IPv6 with {name}", {**closed, "extensions": headers}
    for name, cuts in {"second": [[0, 1], [1, 99]], "third": [[0, 1], [1, 2], [2, 99]]}.items():
        for headers in ([60], [60, 60], [0]):
            yield (
                f"IPv6 with {headers} and its header in the {name} fragment",
                {**closed, "extensions": headers, "fragments": cuts},
            )


def _hex(address: str) -> str:
    return socket.inet_pton(socket.AF_INET6, address).hex()


def addresses_of(pod: Object) -> dict[int, str]:
    return {6 if ":" in address["ip"] else 4: address["ip"] for address in pod["status"]["podIPs"]}


async def _hardware(pods: PodCluster, pod: str) -> str:
    return (await pods.run(pod, "cat", "/sys/class/net/eth0/address"))[1].replace(":", "")


async def seen_by(pods: PodCluster, pod: str) -> set[str]:
    log = await pods.client.read(f"/api/v1/namespaces/default/pods/{pod}/log")
    return set(log.decode().splitlines())


async def _forge(pods: PodCluster, pod: str, items: list[dict[str, Any]]) -> None:
    code, output = await pods.run(pod, "python3", "-c", _FORGE, json.dumps(items))
    assert code == 0, output


async def _send(pods: PodCluster, pod: str, to: str, text: str, *, source: str = "") -> tuple[int, str]:
    return await pods.run(pod, "python3", "-c", _SEND, source, to, f"case={text};")


async def _start(pods: PodCluster) -> Places:
    watch = ["python3", "-c", _WATCH]
    for name in ("victim", "friend", "attacker"):
        extra = {"securityContext": {"capabilities": {"add": ["NET_ADMIN"]}}} if name == "attacker" else {}
        await pods.create_pod(name, watch, metadata={"labels": {"app": name}}, container=extra)
    victim, friend, attacker = [await pods.until_ready(name) for name in ("victim", "friend", "attacker")]
    service = await pods.create_service(ipFamilyPolicy="PreferDualStack")
    for name in ("victim", "friend", "attacker"):
        await pods.until(lambda name=name: is_watching(pods, name))  # type: ignore[misc]
    return Places(
        victim=addresses_of(victim),
        friend=addresses_of(friend),
        attacker=addresses_of(attacker),
        node={4: "10.244.0.1", 6: "fd00:10:244::1"},
        service={6 if ":" in address else 4: address for address in service["spec"]["clusterIPs"]},
        victim_hardware=await _hardware(pods, "victim"),
        friend_hardware=await _hardware(pods, "friend"),
    )


async def is_watching(pods: PodCluster, name: str) -> bool:
    return "watching" in await seen_by(pods, name)


async def _allow_friend(pods: PodCluster) -> None:
    from_friend = {"from": [{"podSelector": {"matchLabels": {"app": "friend"}}}, *_others()]}
    everybody = {"ports": [{"port": 9001, "protocol": "UDP"}]}
    spec = {"podSelector": {"matchLabels": {"app": "victim"}}, "ingress": [from_friend, everybody]}
    policy = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy"}
    await pods.client.apply({**policy, "metadata": {"name": "friend", "namespace": "default"}, "spec": spec})


def _others() -> Iterator[Object]:
    """Sources that no pod has, and that the policy allows all the same: only the check of sources drops them."""
    for cidr in ("0.0.0.0/8", "127.0.0.0/8", "10.96.0.0/16", "10.244.0.1/32", "10.244.0.99/32", "10.244.1.0/24"):
        yield {"ipBlock": {"cidr": cidr}}
    for cidr in ("224.0.0.0/4", "255.255.255.255/32", "169.254.0.0/16", "fe80::/10", "ff00::/8", "fd00:10:96::/112"):
        yield {"ipBlock": {"cidr": cidr}}
    for cidr in ("::1/128", "::/128", "fd00:10:244:1::/64", "fd00:10:244::99/128", "fd00:10:244::1/128"):
        yield {"ipBlock": {"cidr": cidr}}


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
async def test_forged_packets_and_frames_reach_no_other_pod() -> None:
    async with run_pod_cluster(service_ranges=RANGES) as pods:
        places = await _start(pods)
        await _allow_friend(pods)

        await pods.until(lambda: _is_denied(pods, places))
        await _forge(pods, "attacker", [{**_honest(places, family), "port": 9001} for family in (4, 6)])
        attacks = dict(_packets(places))
        await _forge(pods, "attacker", _marked(attacks))
        await _mark(pods, places, "end")
        for pod in ("victim", "friend"):
            seen = await seen_by(pods, pod)
            assert not seen & attacks.keys(), pod
        assert {"own 4", "own 6"} <= await seen_by(pods, "victim"), "packets made by hand arrive if they are honest"
        assert not {text for text in await seen_by(pods, "attacker") if text.startswith("end")}, "traffic was stolen"


async def test_without_nftables_forged_ipv4_packets_and_frames_still_reach_no_other_pod() -> None:
    """Policies are not enforced then. Sources of IPv6 are checked by rules alone, which the status of the node says."""
    async with run_pod_cluster(uses_nftables=False) as pods:
        places = await _start(pods)
        await _forge(pods, "attacker", [{**_honest(places, 4), "port": 9001}])
        attacks = {name: item for name, item in _packets(places) if ":" not in item.get("source", "") + name}
        attacks = {name: item for name, item in attacks.items() if item.get("source") != places.attacker[4]}
        await _forge(pods, "attacker", _marked(attacks))
        await _mark(pods, places, "end", families=(4,))
        for pod in ("victim", "friend"):
            assert not await seen_by(pods, pod) & attacks.keys(), pod
        assert "own 4" in await seen_by(pods, "victim")
        missing = (await pods.runtimes[0].status()).missing
        assert [message for message in missing if "network policies are not enforced" in message]


_STEAL = """
set -e
for address in "$@"; do
    case $address in *:*) ip -6 addr add $address/128 dev eth0 nodad;; *) ip addr add $address/32 dev eth0;; esac
done
"""


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
async def test_a_pod_that_takes_the_address_of_another_gets_and_sends_nothing_in_its_name() -> None:
    need("ip")
    async with run_pod_cluster(service_ranges=RANGES) as pods:
        places = await _start(pods)
        stolen = [*places.friend.values(), *places.node.values()]
        code, output = await pods.run("attacker", "sh", "-c", _STEAL, "sh", *stolen)
        assert code == 0, output
        for family in (4, 6):
            for owner, source in (("friend", places.friend[family]), ("node", places.node[family])):
                await _send(pods, "attacker", places.victim[family], f"stolen {owner} {family}", source=source)
            await _send(pods, "victim", places.friend[family], f"to the friend {family}")
        await _mark(pods, places, "end")

        async def arrived() -> bool:
            return {"to the friend 4", "to the friend 6"} <= await seen_by(pods, "friend")

        await pods.until(arrived)
        assert not {text for text in await seen_by(pods, "victim") if text.startswith("stolen")}
        assert await seen_by(pods, "attacker") == {"watching"}


def _honest(places: Places, family: int) -> dict[str, Any]:
    return {"source": places.attacker[family], "to": places.victim[family], "text": f"case=own {family};"}


def _marked(attacks: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    return [{"port": 9000, **item, "text": f"case={name};"} for name, item in attacks.items()]


async def _is_denied(pods: PodCluster, places: Places) -> bool:
    """Whether the policy is in force: nothing that the attacker sends in its own name arrives."""
    number = next(_numbers)
    names = {f"denied {number} {family}" for family in (4, 6)}
    for family in (4, 6):
        await _send(pods, "attacker", places.victim[family], f"denied {number} {family}")
    await _mark(pods, places, f"after {number}")
    return not names & await seen_by(pods, "victim")


async def _mark(pods: PodCluster, places: Places, text: str, *, families: Sequence[int] = (4, 6)) -> None:
    """Let the friend send to the victim by each family until it has arrived: what was sent before it has too."""
    for family in families:
        name = f"{text} {family}"

        async def has_arrived(name: str = name, family: int = family) -> bool:
            await _send(pods, "friend", places.victim[family], name)
            return name in await seen_by(pods, "victim")

        await pods.until(has_arrived)
