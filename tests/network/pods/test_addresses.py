"""Each pod gets an address of its node's network."""

from __future__ import annotations

import pytest

from pinnace.network.pods.addresses import AddressesExhausted, PodAddresses


def test_the_node_has_the_first_address_and_pods_the_following() -> None:
    addresses = PodAddresses("10.244.3.0/24")
    assert addresses.node == "10.244.3.1/24"
    assert [addresses.allocate() for _ in range(3)] == ["10.244.3.2/24", "10.244.3.3/24", "10.244.3.4/24"]


def test_an_address_is_reused_as_late_as_possible() -> None:
    addresses = PodAddresses("10.244.3.0/29")
    first = [addresses.allocate() for _ in range(3)]
    addresses.release(first[0])
    assert addresses.allocate() == "10.244.3.5/29"
    addresses.take("10.244.3.6/29")
    assert addresses.allocate() == first[0]


def test_a_full_network_is_an_error_that_names_it() -> None:
    addresses = PodAddresses("10.244.3.0/30")
    assert addresses.allocate() == "10.244.3.2/30"
    with pytest.raises(AddressesExhausted, match=r"no address of 10\.244\.3\.0/30 is free"):
        addresses.allocate()
    addresses.release("10.244.3.2/30")
    assert addresses.allocate() == "10.244.3.2/30"
