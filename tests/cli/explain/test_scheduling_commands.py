"""pinnace explain-schedule and simulate, against a cluster with simulated nodes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from tests.clients.server_process import ServerProcess

import pinnace
from pinnace.model.objects import Object

EXAMPLE = Path(__file__).parents[3] / "examples" / "09-scheduler" / "my_scheduler.py"


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    server = ServerProcess.start(tmp_path_factory.mktemp("server"), "--ephemeral", "--nodes", "2")
    try:
        yield server.await_kubeconfig()
    finally:
        server.stop()


def run(kubeconfig: Path, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pinnace.cli.main", *arguments, "--kubeconfig", str(kubeconfig)],
        input=given,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env=os.environ | {"PYTHONPATH": str(Path(pinnace.__file__).parents[1])},
    )


def pod(name: str, cpu: str = "100m", **spec: object) -> Object:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu}}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {"containers": [container], **spec}}


def deployment(replicas: int, cpu: str) -> Object:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": pod("x", cpu)["spec"]}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec}


def test_a_simulation_decides_for_every_replica_and_writes_nothing(kubeconfig: Path) -> None:
    result = run(kubeconfig, "simulate", "-f", "-", given=yaml.safe_dump(deployment(3, "20")))
    assert result.returncode == 1, result.stderr
    lines = result.stdout.splitlines()
    assert {line.partition(": ")[2] for line in lines[:2]} == {"node-0", "node-1"}
    assert lines[2].startswith("default/web-2: 0/2 nodes are available: 2 Insufficient cpu.")
    assert lines[3] == "2 of 3 pods would run"
    assert run(kubeconfig, "get", "pods").stdout == ""


def test_a_simulation_leaves_out_objects_without_pods(kubeconfig: Path) -> None:
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {"clusterIP": "None"}}
    result = run(kubeconfig, "simulate", "-f", "-", given=yaml.safe_dump_all([service, deployment(2, "1")]))
    assert (result.returncode, result.stderr) == (0, "left out: Service/web\n")
    assert result.stdout.endswith("2 of 2 pods would run\n")
    refused = run(kubeconfig, "simulate", "-f", "-", given=yaml.safe_dump(service))
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith("error: found Service/web; expected one of Pod, Deployment,")


def test_a_pod_that_fits_nowhere_is_explained_with_the_smallest_change(kubeconfig: Path) -> None:
    run(kubeconfig, "apply", "-f", "-", given=yaml.safe_dump(pod("large", "33")))
    result = run(kubeconfig, "explain-schedule", "pod/large")
    assert result.returncode == 1, result.stderr
    assert result.stdout.startswith("default/large fits on no node.\n0/2 nodes are available: 2 Insufficient cpu.")
    assert "less cpu; then it fits on node-" in result.stdout
    details = json.loads(run(kubeconfig, "explain-schedule", "large", "-o", "json").stdout)
    assert {node["plugin"] for node in details["nodes"]} == {"NodeResourcesFit"}


def test_the_scheduler_of_a_pod_must_be_known(kubeconfig: Path) -> None:
    run(kubeconfig, "apply", "-f", "-", given=yaml.safe_dump(pod("mine", schedulerName="my-custom-scheduler")))
    refused = run(kubeconfig, "explain-schedule", "mine")
    assert (refused.returncode, "--scheduler FILE" in refused.stderr) == (1, True)
    result = run(kubeconfig, "explain-schedule", "mine", "--scheduler", str(EXAMPLE))
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith("default/mine goes to node-")
