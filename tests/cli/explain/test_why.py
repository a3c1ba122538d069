"""`pinnace why --in` asks an operator that runs in a pod."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.cli.streaming_twin import Pinnace, cluster, environment, kubectl, node, ours
from tests.server.streaming.conftest import SECONDS, Kubectl, run_pod
from tests.server.streaming.process_node import ProcessNode

from pinnace.cluster.cluster import RunningCluster

__all__ = ["cluster", "kubectl", "node", "ours"]

OPERATOR = """
from pinnace.sdk import Context, Operator

operator = Operator("labeller")


@operator.reconcile("v1/ConfigMap")
async def reconcile(found: dict, ctx: Context) -> None:
    print("looked at", found["metadata"]["name"], flush=True)
"""
DEPLOYMENT = b"""
apiVersion: apps/v1
kind: Deployment
metadata: {name: labeller}
spec:
  selector: {matchLabels: {app: labeller}}
  template: {metadata: {labels: {app: labeller}}, spec: {containers: [{name: main, image: image}]}}
"""


@pytest.fixture
async def inside(
    ours: Pinnace,
    kubectl: Kubectl,
    cluster: RunningCluster,
    node: ProcessNode,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> AsyncIterator[None]:
    """An operator in a pod. Pods are processes here: they find the command, and the operator's socket, by variables."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "pinnace-operator").write_text(f'#!/bin/sh\nexec {sys.executable} -m pinnace.sdk.command.main "$@"\n')
    (programs / "pinnace-operator").chmod(0o755)
    (tmp_path / "labeller.py").write_text(OPERATOR)
    for name, value in environment(kubectl.kubeconfig).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    await run_pod(cluster.plane, "labeller-1", "main")
    assert (await kubectl("label", "pod", "labeller-1", "app=labeller")).code == 0
    assert (await kubectl("create", "-f", "-", stdin=DEPLOYMENT)).code == 0
    assert (await kubectl("create", "configmap", "seen")).code == 0
    process = await asyncio.create_subprocess_exec(
        "pinnace-operator", "run", "labeller.py", cwd=tmp_path, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        await _until_looked_at(process.stdout)
        # A second reconcile begins when the first is over, and its record can be read.
        assert (await kubectl("label", "configmap", "seen", "again=yes")).code == 0
        await _until_looked_at(process.stdout)
        yield
    finally:
        process.terminate()
        await process.communicate()


async def _until_looked_at(message: asyncio.StreamReader) -> None:
    async with asyncio.timeout(SECONDS):
        while line := await message.readline():
            if line == b"looked at seen\n":
                return
    raise AssertionError("the operator has ended")


@pytest.mark.parametrize("where", ["labeller-1", "pod/labeller-1", "deploy/labeller", "default:deploy/labeller"])
async def test_an_operator_in_a_pod_is_asked_there(where: str, ours: Pinnace, inside: None, node: ProcessNode) -> None:
    arguments = ("why", "cm/seen", "--in", where, "--operator", "labeller", "-n", "default")
    ended = await ours(*arguments)
    assert ended.code == 0, ended.stderr
    assert ended.stdout.startswith(b"labeller (labeller-configmap, process ")
    assert b"because ConfigMap default/seen was added" in ended.stdout
    assert (
        "labeller-1",
        "main",
        "pinnace-operator",
        "why",
        "cm/seen",
        "-n",
        "default",
        "--operator",
        "labeller",
    ) in node.calls


async def test_it_answers_in_full_and_with_its_exit_code(ours: Pinnace, inside: None) -> None:
    document = json.loads((await ours("why", "--in", "deploy/labeller", "-o", "json")).stdout)
    assert {run["name"] for run in document[0]["controllers"][0]["runs"]} >= {"seen"}
    ended = await ours("why", "pod/x", "--in", "deploy/labeller")
    assert (ended.code, ended.stdout) == (1, b"")
    assert ended.stderr == b"error: no operator here reconciles pod; they reconcile: ConfigMap\n"


async def test_objects_of_another_namespace_than_the_operators_are_asked_for(
    ours: Pinnace, node: ProcessNode, cluster: RunningCluster
) -> None:
    """Where the operator is says nothing of where the object is."""
    await ours("why", "cm/seen", "--in", "default:web", "-n", "shop")
    assert [call[:6] for call in node.calls if isinstance(call, tuple)] == [
        ("web", "main", "pinnace-operator", "why", "cm/seen", "-n")
    ]
    assert node.calls[0][6:] == ("shop",)  # type: ignore[index]


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("nope", b'Error from server (NotFound): pods "nope" not found'),
        ("deploy/nope", b'Error from server (NotFound): deployments.apps "nope" not found'),
    ],
)
async def test_a_pod_that_is_not_there_is_reported(where: str, message: bytes, ours: Pinnace) -> None:
    ended = await ours("why", "cm/seen", "--in", where)
    assert (ended.code, ended.stderr.startswith(message)) == (1, True)
