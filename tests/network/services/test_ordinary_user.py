"""Service addresses and two stories of the notes once more as an ordinary user, when root runs them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

_HERE = Path(__file__).parent
_NOBODY = 65534
_NOTES = "../../examples/test_notes.py"
_NAMES = (
    "test_pods.py::test_a_cluster_ip_leads_to_its_pods",
    "test_pods.py::test_udp_node_ports_and_several_ports[nftables]",
    "test_pods.py::test_clients_keep_their_endpoint_with_session_affinity[nftables]",
    "test_pods.py::test_the_machine_reaches_node_ports_and_load_balancers_on_loopback[nftables]",
    "test_pods.py::test_pods_reach_the_api_server_at_its_service_address[nftables]",
    "../nodes/test_links.py",
    "../policy/test_pods.py",
    f"{_NOTES}::test_a_website_is_served_by_a_controller_that_runs_as_a_pod",
    f"{_NOTES}::test_the_members_of_the_stateful_set_are_found_by_name",
)


@pytest.mark.skipif(os.geteuid() != 0, reason="this user is an ordinary one already")
def test_services_work_for_an_ordinary_user() -> None:
    home = Path(tempfile.mkdtemp(prefix="pinnace-ordinary-"))
    os.chown(home, _NOBODY, _NOBODY)
    command = [
        *("setpriv", f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups"),
        *(sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"),
        *(str(_HERE / name) for name in _NAMES),
    ]
    environment = {
        **{key: text for key, text in os.environ.items() if not key.startswith("PYTEST")},
        **{"HOME": str(home), "TMPDIR": str(home), "PYTHONDONTWRITEBYTECODE": "1"},
    }
    try:
        done = subprocess.run(
            command, env=environment, cwd=_HERE.parents[2], capture_output=True, text=True, timeout=600
        )
        assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    finally:
        shutil.rmtree(home, ignore_errors=True)
