"""Interfaces, addresses and routes, in a network namespace that the test makes for itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

from tests.machine import need
from tests.node.namespaces import need_namespaces

import pinnace


def _in_namespace(script: str) -> str:
    """Run Python in a new network namespace, as root of a new user namespace, and return its output."""
    need_namespaces()
    head = "import json, os\nfrom ipaddress import IPv4Interface, IPv4Network\n"
    head += "from pinnace.network.netlink import Netlink\nnetlink = Netlink()\n"
    environment = os.environ | {"PYTHONPATH": str(Path(pinnace.__file__).parents[1])}
    command = ["unshare", "--user", "--map-root-user", "--net", sys.executable, "-c", head + textwrap.dedent(script)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_pod_link_resolves_no_addresses_and_both_ends_have_one() -> None:
    need("ip")
    output = _in_namespace(
        """
        netlink.set_up("lo")
        netlink.add_bridge("pods0")
        netlink.add_address("pods0", IPv4Interface("10.244.9.1/32"))
        netlink.set_up("pods0")
        netlink.refuse(IPv4Network("10.244.9.0/24"))
        netlink.add_pod_link("veth1", "eth0", peer_pid=os.getpid(), address=b"\\2\\0\\12\\364\\11\\2", mtu=1400)
        netlink.add_link_route(IPv4Network("10.244.9.2"), name="veth1", source="10.244.9.1")
        print(json.dumps([sorted(netlink.link_names()), netlink.has_default_route()]), flush=True)
        os.system("ip -j link show dev veth1; ip -j link show dev eth0; ip -j route")
        """
    )
    first, *rest = output.splitlines()
    assert json.loads(first) == [["eth0", "lo", "pods0", "veth1"], False]
    (here,), (there,), routes = (json.loads(line) for line in rest)
    assert here["address"] == there["address"] == "02:00:0a:f4:09:02"
    assert "UP" in here["flags"]
    assert "UP" not in there["flags"]
    assert "NOARP" in here["flags"]
    assert "NOARP" in there["flags"]
    assert (here["mtu"], there["mtu"]) == (1400, 1400)
    assert {route["dst"]: route.get("type", route.get("dev")) for route in routes} == {
        "10.244.9.0/24": "unreachable",
        "10.244.9.2": "veth1",
    }


def test_a_default_route_is_noticed() -> None:
    output = _in_namespace(
        """
        netlink.add_bridge("pods0")
        netlink.add_address("pods0", IPv4Interface("10.244.9.1/24"))
        netlink.set_up("pods0")
        print(netlink.has_default_route())
        netlink.add_route(IPv4Network("10.96.0.0/12"), gateway="10.244.9.2")
        print(netlink.has_default_route())
        netlink.add_route(IPv4Network("0.0.0.0/0"), gateway="10.244.9.2")
        print(netlink.has_default_route())
        """
    )
    assert output.split() == ["False", "False", "True"]


def test_errors_of_the_kernel_are_raised() -> None:
    output = _in_namespace(
        """
        netlink.add_bridge("pods0")
        try:
            netlink.add_bridge("pods0")
        except FileExistsError:
            print("exists")
        try:
            netlink.set_up("nothing")
        except OSError:
            print("missing")
        netlink.delete_link("pods0")
        print(netlink.link_names())
        """
    )
    assert output.splitlines() == ["exists", "missing", "['lo']"]
