"""kubectl top, autoscale and raw requests to the metrics APIs, against a server and an operator of their own."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.clients.kubectl_command import Kubectl, kubectl_binary
from tests.clients.server_process import ServerProcess
from tests.waiting import until

import pinnace

OPERATOR = """
from pinnace.sdk import Operator
operator = Operator("depths")
operator.metrics.pods("queue_depth", lambda pod: 30)
"""
HPA = """
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: worker}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: worker}
  maxReplicas: 3
  metrics:
  - {type: Pods, pods: {metric: {name: queue_depth}, target: {type: AverageValue, averageValue: "10"}}}
"""
RAW = "/apis/custom.metrics.k8s.io/v1beta2/namespaces/default/pods/*/queue_depth"


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    """A server with simulated nodes, and an operator that serves a metric."""
    directory = tmp_path_factory.mktemp("metrics")
    (directory / "depths.py").write_text(OPERATOR)
    server = ServerProcess.start(directory, "--ephemeral", "--nodes", "2")
    operator: subprocess.Popen[bytes] | None = None
    try:
        kubeconfig = server.await_kubeconfig()
        with (directory / "operator.log").open("wb") as log:
            command = [sys.executable, "-m", "pinnace.cli.main", "run", "depths.py", "--no-reload"]
            operator = subprocess.Popen(
                [*command, "--kubeconfig", str(kubeconfig)],
                cwd=directory,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=os.environ | {"PYTHONPATH": str(Path(pinnace.__file__).parents[1])},
            )
        kubectl = Kubectl(kubectl_binary(), kubeconfig, directory / "cache", "default")
        kubectl("create deployment worker --image worker")
        kubectl("set resources deployment worker --requests cpu=100m")
        yield kubectl
    finally:
        if operator is not None:
            operator.terminate()
            operator.wait(60)
        server.stop()


def test_top_shows_nodes_pods_and_containers(kubectl: Kubectl) -> None:
    until(lambda: kubectl.outcome("top pods").stdout.count("worker-") == 1)
    header, *rows = kubectl("top nodes").splitlines()
    assert header.split() == ["NAME", "CPU(cores)", "CPU(%)", "MEMORY(bytes)", "MEMORY(%)"]
    assert len(rows) == 2
    header, row = kubectl("top pods --containers").splitlines()
    assert header.split() == ["POD", "NAME", "CPU(cores)", "MEMORY(bytes)"]
    assert row.split()[1:] == ["worker", "1m", "1Mi"]
    for command in (
        "top nodes",
        "top pods",
        "top pods -A",
        "top pods --containers -l app=worker",
        "top pods -l app=no",
    ):
        ours = subprocess.run(
            [sys.executable, "-m", "pinnace.cli.main", *shlex.split(command), "--kubeconfig", str(kubectl.kubeconfig)],
            capture_output=True,
            text=True,
            env=os.environ | {"PYTHONPATH": str(Path(pinnace.__file__).parents[1])},
        )
        theirs = kubectl.outcome(command)
        assert (ours.returncode, ours.stdout, ours.stderr) == (theirs.code, theirs.stdout, theirs.stderr), command


def test_autoscale_makes_an_autoscaler_of_the_usage(kubectl: Kubectl) -> None:
    kubectl("create deployment web --image web --replicas 2")
    kubectl("set resources deployment web --requests cpu=100m")
    made = kubectl("autoscale deployment web --min 1 --max 4 --cpu-percent=50")
    assert made == "horizontalpodautoscaler.autoscaling/web autoscaled\n"
    metrics = kubectl.json("get hpa web")["spec"]["metrics"]
    assert metrics == [
        {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}}
    ]
    until(lambda: "AbleToScale" in str(kubectl.json("get hpa web").get("status", {}).get("conditions")))
    kubectl("delete hpa,deployment web")


def test_custom_metrics_are_read_and_followed(kubectl: Kubectl) -> None:
    until(lambda: kubectl.outcome(f"get --raw {RAW}").code == 0)
    values = json.loads(kubectl(f"get --raw {RAW}?labelSelector=app%3Dworker"))
    assert [(item["metric"]["name"], item["value"]) for item in values["items"]] == [("queue_depth", "30")]
    rows = json.loads(kubectl("get --raw /apis/custom.metrics.k8s.io/v1beta2"))["resources"]
    assert [row["name"] for row in rows] == ["pods/queue_depth"]
    kubectl("apply -f -", stdin=HPA)
    until(lambda: kubectl.json("get deployment worker")["spec"]["replicas"] == 3)
    assert "30/10 (avg)" in kubectl("get hpa worker") or "30/10" in kubectl("get hpa worker")
    described = kubectl("describe hpa worker")
    assert '"queue_depth" on pods:' in described
    assert "SuccessfulRescale" in described
    (provider,) = kubectl.json("get metricsproviders")["items"]
    assert provider["spec"]["custom"] == ["pods/queue_depth"]
