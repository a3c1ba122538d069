"""The traffic that network policies allow, as a function of policies, pods and namespaces."""

from __future__ import annotations

import tracemalloc
from ipaddress import IPv4Address
from typing import Any, cast

import pytest

from pinnace.model.objects import Key
from pinnace.model.typed_objects import NetworkPolicy
from pinnace.network.policy.selection import (
    MOST_STEPS,
    AllowedTraffic,
    PodRules,
    PolicyState,
    PortRange,
    essentials_of,
    pod_rules,
)

_WEB = "10.244.0.2"
_EVERYWHERE = (0, 0xFFFFFFFF)
_TEN = int(IPv4Address("10.0.0.0"))


def _pod(name: str, address: str, *, namespace: str = "default", node: str = "here", **fields: Any) -> Any:
    ports = [{"name": "http", "containerPort": 8080}]
    return {
        "metadata": {"name": name, "namespace": namespace, "labels": {"app": name}},
        "spec": {"nodeName": node, "containers": [{"name": "main", "ports": ports}], **fields},
        "status": {"podIP": address, "phase": "Running"},
    }


def _rules(**spec: Any) -> dict[str, PodRules]:
    state = PolicyState()
    for pod in (
        _pod("web", _WEB),
        _pod("db", "10.244.1.3", node="there"),
        _pod("web", "10.244.1.4", namespace="other", node="there"),
        _pod("agent", "10.244.0.1", hostNetwork=True),
    ):
        state.pods[Key(pod["metadata"]["namespace"], pod["metadata"]["name"])] = essentials_of(pod)
    for name in ("default", "other"):
        state.namespaces[name] = {"metadata": {"name": name, "labels": {"name": name}}}
    state.policies[Key("default", "p")] = cast(
        "NetworkPolicy", {"metadata": {"name": "p", "namespace": "default"}, "spec": spec}
    )
    return pod_rules(state, node="here")


def _of(address: str, *ports: PortRange, also: str = "") -> AllowedTraffic:
    numbers = [int(IPv4Address(text)) for text in (address, also) if text]
    return AllowedTraffic(frozenset((number, number) for number in numbers), frozenset(ports))


_FROM_DB = {"podSelector": {"matchLabels": {"app": "db"}}}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({}, PodRules(ingress=frozenset()), id="default deny"),
        pytest.param({"policyTypes": ["Egress"]}, PodRules(egress=frozenset()), id="deny egress"),
        pytest.param(
            {"ingress": [{}]},
            PodRules(frozenset({AllowedTraffic(frozenset({_EVERYWHERE}), frozenset())})),
            id="allow all",
        ),
        pytest.param({"ingress": [{"from": [_FROM_DB]}]}, PodRules(frozenset({_of("10.244.1.3")})), id="pods"),
        pytest.param(
            {"ingress": [{"from": [{"namespaceSelector": {"matchLabels": {"name": "other"}}}]}]},
            PodRules(frozenset({_of("10.244.1.4")})),
            id="namespaces",
        ),
        pytest.param(
            {"ingress": [{"from": [{"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "web"}}}]}]},
            PodRules(frozenset({_of(_WEB, also="10.244.1.4")})),
            id="pods of namespaces",
        ),
        pytest.param(
            {"ingress": [{"from": [_FROM_DB], "ports": [{"port": "http"}, {"port": 90, "endPort": 99}]}]},
            PodRules(frozenset({_of("10.244.1.3", PortRange("TCP", 8080, 8080), PortRange("TCP", 90, 99))})),
            id="named ports and ranges",
        ),
        pytest.param(
            {"ingress": [{"from": [_FROM_DB], "ports": [{"port": "unknown"}]}]},
            PodRules(frozenset()),
            id="a named port that the pod lacks",
        ),
        pytest.param(
            {"egress": [{"to": [_FROM_DB], "ports": [{"port": "http"}]}]},
            PodRules(frozenset(), frozenset({_of("10.244.1.3", PortRange("TCP", 8080, 8080))})),
            id="egress to the named port of a peer",
        ),
        pytest.param(
            {"ingress": [{"from": [{"ipBlock": {"cidr": "10.0.0.0/30", "except": ["10.0.0.1/32"]}}]}]},
            PodRules(frozenset({AllowedTraffic(frozenset({(_TEN, _TEN), (_TEN + 2, _TEN + 3)}), frozenset())})),
            id="an IP block with an exception",
        ),
    ],
)
def test_a_policy_allows_its_peers_and_ports(spec: Any, expected: PodRules) -> None:
    assert _rules(podSelector={"matchLabels": {"app": "web"}}, **spec) == {_WEB: expected}


def test_a_policy_concerns_the_pods_of_its_namespace_on_this_node() -> None:
    assert _rules(podSelector={}).keys() == {_WEB}
    assert _rules(podSelector={"matchLabels": {"app": "db"}}) == {}


def test_the_address_that_the_node_gave_counts_before_the_api_knows_it() -> None:
    state = PolicyState()
    pod = _pod("web", "")
    state.pods[Key("default", "web")] = essentials_of(pod)
    state.policies[Key("default", "p")] = cast(
        "NetworkPolicy", {"metadata": {"namespace": "default"}, "spec": {"podSelector": {}}}
    )
    assert pod_rules(state, node="here") == {}
    state.own_addresses[Key("default", "web")] = [_WEB, "fd00::2"]
    assert pod_rules(state, node="here") == {_WEB: PodRules(ingress=frozenset())}


_MANY = 20_000
"""About as many peers, ports or exceptions as one object of the API holds."""
_BLOCKS = [{"ipBlock": {"cidr": f"11.{number >> 8}.{number & 255}.0/24"}} for number in range(_MANY)]


def _selector(number: int) -> Any:
    return {"podSelector": {"matchLabels": {"app": f"db{number}"}}}


@pytest.mark.parametrize(
    ("direction", "peers"),
    [
        pytest.param("ingress", _BLOCKS, id="blocks"),
        pytest.param("egress", _BLOCKS, id="blocks of egress"),
        pytest.param("ingress", [_selector(number) for number in range(_MANY)], id="selectors"),
        pytest.param("egress", [{"namespaceSelector": {}, **_FROM_DB}] * _MANY, id="one selector again and again"),
    ],
)
def test_the_work_for_a_large_policy_is_not_the_product_of_its_peers_and_ports(
    direction: str, peers: list[Any]
) -> None:
    """An editor of a namespace would stop the agent of each node, and take its memory, with a single object."""
    ports: list[Any] = [{"port": number} for number in range(1, _MANY)] + [{"port": f"p{n}"} for n in range(_MANY)]
    spec = {direction: [{"to" if direction == "egress" else "from": peers, "ports": ports}]}
    tracemalloc.start()
    try:
        rules = _rules(podSelector={}, policyTypes=[direction.capitalize()], **spec)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert rules.keys() == {_WEB}
    assert most < 100 << 20


def test_policies_that_are_too_large_together_allow_less_than_they_say(caplog: pytest.LogCaptureFixture) -> None:
    state = PolicyState()
    state.pods[Key("default", "web")] = essentials_of(_pod("web", _WEB))
    for number in range(MOST_STEPS // _MANY + 1):
        spec = {"podSelector": {}, "ingress": [{"from": _BLOCKS}]}
        state.policies[Key("default", f"p{number}")] = cast("NetworkPolicy", {"metadata": {}, "spec": spec})
    (rules,) = pod_rules(state, node="here").values()
    assert rules.ingress is not None
    assert "they are too large" in caplog.text
