"""The rules of a pod in nftables."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from ipaddress import IPv4Address, ip_network

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinnace.network.families import IPV4
from pinnace.network.nftables.expressions import Expression
from pinnace.network.nftables.transactions import Transaction
from pinnace.network.policy.rules import MOST_RULES, _add_chain
from pinnace.network.policy.selection import AllowedTraffic, PortRange, _subtract


class Recorder(Transaction):
    """A transaction that counts its rules."""

    rules = 0

    def add_rule(self, chain: str, expressions: Iterable[Expression]) -> None:
        self.rules += 1


@pytest.mark.parametrize(("blocks", "ports", "is_cut"), [(50, 100, False), (1_000, 1_000, True)])
def test_a_pod_has_a_limited_number_of_rules_and_drops_the_rest(
    blocks: int, ports: int, is_cut: bool, caplog: pytest.LogCaptureFixture
) -> None:
    transaction = Recorder("t", IPV4)
    ranges = frozenset(PortRange("TCP", port, port) for port in range(1, ports + 1))
    peers = frozenset((10 * number, 10 * number + 5) for number in range(blocks))
    allowed = [AllowedTraffic(peers, ranges)]
    with caplog.at_level(logging.WARNING):
        _add_chain(transaction, "ingress", "10.244.0.7", allowed)
    assert transaction.rules == MOST_RULES + 1  # The last one drops.
    assert bool(caplog.records) == is_cut


@given(st.lists(st.tuples(st.integers(0, 63), st.integers(26, 32))))
def test_a_block_without_its_exceptions_is_every_other_address(holes: list[tuple[int, int]]) -> None:
    exceptions = [str(ip_network((f"192.0.2.{address}", length), strict=False)) for address, length in holes]
    result = [address for first, last in _subtract("192.0.2.0/26", exceptions) for address in range(first, last + 1)]
    networks = [ip_network(text) for text in exceptions]
    block = ip_network("192.0.2.0/26")
    assert result == [
        int(address) for address in block if not any(IPv4Address(int(address)) in network for network in networks)
    ]


def test_thousands_of_exceptions_are_ranges_at_once() -> None:
    exceptions = [f"10.{number // 256}.{number % 256}.1/32" for number in range(20_000)]
    assert len(_subtract("10.0.0.0/8", exceptions)) == len(exceptions) + 1
