"""Jobs, CronJobs and simulated nodes as users of kubectl meet them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.clients.kubectl_command import Kubectl, kubectl_binary
from tests.clients.server_process import ServerProcess
from tests.waiting import until


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The kubeconfig of a cluster with simulated nodes."""
    kubectl_binary()
    server = ServerProcess.start(tmp_path_factory.mktemp("simulated"), "--ephemeral", "--nodes", "3")
    try:
        yield server.await_kubeconfig()
    finally:
        code = server.stop()
    assert code == 0, server.log.read_text()


@pytest.fixture
def kubectl(simulated: Path, kubectl_cache: Path) -> Kubectl:
    return Kubectl(kubectl_binary(), simulated, kubectl_cache, "default")


def test_a_job_completes_on_simulated_nodes(kubectl: Kubectl) -> None:
    until(lambda: kubectl("get nodes -o name"))  # The nodes register themselves after the server is ready.
    kubectl("wait --for=condition=ready node --all --timeout=120s")
    kubectl("create job once --image=busybox -- echo hello")
    kubectl("wait --for=condition=complete job/once --timeout=120s")
    line = kubectl("get job once --no-headers").split()
    assert line[:3] == ["once", "Complete", "1/1"]
    assert "Completed" in kubectl("get pods -l batch.kubernetes.io/job-name=once --no-headers")
    described = kubectl("describe job once")
    assert "1 Succeeded / 0 Failed" in described
    assert "SuccessfulCreate" in described


def test_a_job_is_made_by_hand_from_a_cron_job(kubectl: Kubectl) -> None:
    kubectl("create cronjob nightly --image=busybox --schedule='0 3 * * *' -- echo night")
    kubectl("create job --from=cronjob/nightly now")
    kubectl("wait --for=condition=complete job/now --timeout=120s")
    assert kubectl.json("get job now")["metadata"]["annotations"] == {"cronjob.kubernetes.io/instantiate": "manual"}
    line = kubectl("get cronjob nightly --no-headers").split()
    assert line[:3] == ["nightly", "0", "3"]
    kubectl("delete cronjob nightly --cascade=foreground --timeout=120s")
    assert "NotFound" in kubectl.failure("get job now")


def test_a_pod_of_a_simulated_node_has_no_container_to_run_in(kubectl: Kubectl) -> None:
    kubectl("run web --image=nginx")
    kubectl("wait --for=condition=ready pod/web --timeout=120s")
    assert kubectl("logs web") == ""
    assert "is simulated: its pods run no containers" in kubectl.failure("exec web -- true")
    kubectl("delete pod web --timeout=120s")
