"""The attacks on pods, policies and addresses once more on the node of an ordinary user."""

from __future__ import annotations

from tests.node.ordinary_user import needs_root, run_tests_as_ordinary_user


@needs_root
def test_forged_packets_reach_no_other_pod_of_an_ordinary_user() -> None:
    run_tests_as_ordinary_user("network/policy/test_forged_packets.py", "network/policy/test_forged_errors.py")


@needs_root
def test_policies_hold_on_the_node_of_an_ordinary_user() -> None:
    run_tests_as_ordinary_user(
        "network/policy/test_first_packets.py",
        "network/policy/test_hard_traffic.py",
        "network/policy/test_published_attacks.py",
        "network/pods/test_host_ports.py",
        "network/pods/test_connection_limits.py",
    )
