"""The traffic that network policies allow, as a function of policies, pods and namespaces."""

from __future__ import annotations

from ipaddress import IPv4Address
from typing import Any

import pytest

from pinnace.model.objects import Key, Object
from pinnace.network.policy.selection import AllowedTraffic, PodRules, PolicyState, PortRange, essentials_of, pod_rules

_WEB = "10.244.0.2"
_EVERYWHERE = (0, 0xFFFFFFFF)


def _pod(name: str, address: str, *, namespace: str = "default", node: str = "here", **fields: Any) -> Object:
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
    state.policies[Key("default", "p")] = {"metadata": {"name": "p", "namespace": "default"}, "spec": spec}
    return pod_rules(state, node="here")


def _of(address: str, *ports: PortRange) -> AllowedTraffic:
    number = int(IPv4Address(address))
    return AllowedTraffic(number, number, ports)


_FROM_DB = {"podSelector": {"matchLabels": {"app": "db"}}}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({}, PodRules(ingress=frozenset()), id="default deny"),
        pytest.param({"policyTypes": ["Egress"]}, PodRules(egress=frozenset()), id="deny egress"),
        pytest.param({"ingress": [{}]}, PodRules(frozenset({AllowedTraffic(*_EVERYWHERE, ())})), id="allow all"),
        pytest.param({"ingress": [{"from": [_FROM_DB]}]}, PodRules(frozenset({_of("10.244.1.3")})), id="pods"),
        pytest.param(
            {"ingress": [{"from": [{"namespaceSelector": {"matchLabels": {"name": "other"}}}]}]},
            PodRules(frozenset({_of("10.244.1.4")})),
            id="namespaces",
        ),
        pytest.param(
            {"ingress": [{"from": [{"namespaceSelector": {}, "podSelector": {"matchLabels": {"app": "web"}}}]}]},
            PodRules(frozenset({_of(_WEB), _of("10.244.1.4")})),
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
            PodRules(
                frozenset(
                    {_of("10.0.0.0"), AllowedTraffic(int(IPv4Address("10.0.0.2")), int(IPv4Address("10.0.0.3")), ())}
                )
            ),
            id="an IP block with an exception",
        ),
    ],
)
def test_a_policy_allows_its_peers_and_ports(spec: Object, expected: PodRules) -> None:
    assert _rules(podSelector={"matchLabels": {"app": "web"}}, **spec) == {_WEB: expected}


def test_a_policy_concerns_the_pods_of_its_namespace_on_this_node() -> None:
    assert _rules(podSelector={}).keys() == {_WEB}
    assert _rules(podSelector={"matchLabels": {"app": "db"}}) == {}
