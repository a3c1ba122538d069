"""Service addresses once more as an ordinary user, when root runs them."""

from __future__ import annotations

from tests.node.ordinary_user import needs_root, run_tests_as_ordinary_user

_PODS = "network/services/test_pods.py"


@needs_root
def test_services_work_for_an_ordinary_user() -> None:
    run_tests_as_ordinary_user(
        f"{_PODS}::test_a_cluster_ip_leads_to_its_pods",
        f"{_PODS}::test_udp_node_ports_and_several_ports[nftables]",
        f"{_PODS}::test_clients_keep_their_endpoint_with_session_affinity[nftables]",
        f"{_PODS}::test_the_machine_reaches_node_ports_and_load_balancers_on_loopback[nftables]",
        f"{_PODS}::test_pods_reach_the_api_server_at_its_service_address[nftables]",
        "network/services/test_dual_stack.py::test_a_dual_stack_service_leads_to_its_pods_over_both_families[nftables]",
        "network/nodes/test_links.py",
        "network/policy/test_pods.py",
    )
