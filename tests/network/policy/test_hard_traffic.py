"""Traffic that is hard to judge: fragments, header extensions and other protocols."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.network.policy.test_forged_packets import RANGES, addresses_of, is_watching, seen_by
from tests.network.services.conftest import PodCluster, run_pod_cluster

from pinnace.network.families import has_ipv6

_FORGE = Path(__file__).with_name("forge.py").read_text()
_WATCH_DATAGRAMS = """
import re, select, socket
opened = []
for family in (socket.AF_INET, socket.AF_INET6):
    for port in (9000, 9001):
        sink = socket.socket(family, socket.SOCK_DGRAM)
        if family == socket.AF_INET6: sink.setsockopt(41, 26, 1)
        sink.bind(("", port)); opened.append(sink)
print("watching", flush=True)
while True:
    for one in select.select(opened, [], [])[0]:
        for name in re.findall(rb"case=([^;]+);", one.recv(70000)): print(name.decode(), flush=True)
"""
_WHOLE = [[0, 2], [2, 4], [4, 99]]


async def _allow_port(pods: PodCluster) -> None:
    ports = [{"port": 9001, "protocol": "UDP"}, {"port": 1, "endPort": 8999, "protocol": "UDP"}, {"port": 8080}]
    spec = {"podSelector": {"matchLabels": {"app": "victim"}}, "ingress": [{"ports": ports}]}
    policy = {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "spec": spec}
    await pods.client.apply({**policy, "metadata": {"name": "ports", "namespace": "default"}})


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
async def test_fragments_and_extensions_hide_no_port_from_a_policy() -> None:
    """The same packets to an allowed port arrive, so that each of them is one that the pod would take."""
    async with run_pod_cluster(service_ranges=RANGES) as pods:
        labels = {"metadata": {"labels": {"app": "victim"}}}
        await pods.create_pod("victim", ["python3", "-c", _WATCH_DATAGRAMS], **labels)
        victim, client = await pods.until_ready("victim"), await pods.start_client()
        await pods.until(lambda: is_watching(pods, "victim"))
        await _allow_port(pods)
        own, to = addresses_of(client), addresses_of(victim)
        shapes: dict[str, dict[str, Any]] = {"whole": {}, "in fragments": {"fragments": _WHOLE}}
        for name, places in {"backwards": [[4, 99], [2, 4], [0, 2]], "one unit first": [[0, 1], [1, 99]]}.items():
            shapes[name] = {"fragments": places}
        attacks = {
            "overlapping": [[0, 2], [1, 4], [4, 99]],
            "tail alone": [[2, 99]],
            "twice": [[0, 1], [0, 2], [2, 99]],
        }
        items: dict[str, dict[str, Any]] = {}
        for family in (4, 6):
            packet = {"source": own[family], "to": to[family]}
            for name, shape in shapes.items():
                items[f"{family} {name}"] = {**packet, **shape}
            for name, places in attacks.items():
                items[f"{family} attack {name}"] = {**packet, "fragments": places}
        for name, extensions in {"options": [60], "hop by hop": [0], "routing after options": [60, 0]}.items():
            items[f"6 {name}"] = {"source": own[6], "to": to[6], "extensions": extensions}
        honest = {name for name in items if "attack" not in name}

        async def forge(port: int, label: str) -> None:
            packets = [
                {**item, "port": port, "text": f"case={label} {name};".ljust(64)} for name, item in items.items()
            ]
            code, output = await pods.run("client", "python3", "-c", _FORGE, json.dumps(packets))
            assert code == 0, output

        async def is_in_force() -> bool:
            await forge(9000, "before")
            await forge(9001, "after")
            count = sum(text.startswith("before") for text in await seen_by(pods, "victim"))
            await forge(9000, "before")
            await forge(9001, "later")
            return count == sum(text.startswith("before") for text in await seen_by(pods, "victim"))

        await pods.until(is_in_force)
        await forge(9000, "denied")
        await forge(9001, "allowed")

        async def arrived() -> set[str]:
            return {
                text.removeprefix("allowed ") for text in await seen_by(pods, "victim") if "allowed" in text
            } & honest

        await pods.until(arrived, honest)
        assert not {text for text in await seen_by(pods, "victim") if text.startswith("denied")}
