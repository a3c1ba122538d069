"""pinnace started as kubectl is, against a cluster whose node runs processes."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.server.streaming.conftest import Ended, Kubectl, cluster, kubectl_for, node
from tests.server.streaming.process_node import ProcessNode

import pinnace
from pinnace.cluster.cluster import RunningCluster

__all__ = ["Pinnace", "cluster", "differences", "environment", "kubectl", "node", "ours"]


def environment(kubeconfig: Path) -> dict[str, str]:
    return {**os.environ, "KUBECONFIG": str(kubeconfig), "PYTHONPATH": str(Path(pinnace.__file__).parents[1])}


class Pinnace(Kubectl):
    async def start(self, *arguments: str, **streams: Any) -> asyncio.subprocess.Process:
        pipe = asyncio.subprocess.PIPE
        return await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "pinnace.cli.main",
            *arguments,
            **{"stdin": pipe, "stdout": pipe, "stderr": pipe, **streams},
            env=environment(self.kubeconfig),
        )


@pytest.fixture
def kubectl(cluster: RunningCluster, node: ProcessNode, tmp_path: Path) -> Kubectl:
    """As it speaks today: how it once spoke is of no concern to who is compared with it."""
    return kubectl_for(cluster, tmp_path)


@pytest.fixture
def ours(kubectl: Kubectl) -> Pinnace:
    return Pinnace(kubectl.binary, kubectl.kubeconfig, False)


async def differences(kubectl: Kubectl, ours: Pinnace, *arguments: str, stdin: bytes = b"") -> list[str]:
    """Return the outputs of kubectl and pinnace if they differ in more than the name of the program."""
    theirs, mine = await asyncio.gather(kubectl(*arguments, stdin=stdin), ours(*arguments, stdin=stdin))
    in_any_order = any(word.startswith("--all-containers") for word in arguments)  # kubectl's changes with each run.
    if _plain(mine, in_any_order=in_any_order) == _plain(theirs, in_any_order=in_any_order):
        return []
    return [f"{' '.join(arguments)}\n  {mine}\n  {theirs}"]


def _plain(ended: Ended, *, in_any_order: bool) -> Ended:
    message = ended.stderr.replace(b"kubectl", b"pinnace")
    # Kubectls of before 1.33 may begin to read before they know their streams, and log the empty first message.
    message = re.sub(rb"E\d{4} .* websocket\.go:\d+\] Unknown stream id \d, discarding message\n", b"", message)
    message = re.sub(
        rb"(is not valid for pod \S+) out of: .*", rb"\1", message
    )  # Older ones do not say which there are.
    lines = ended.stdout.splitlines(keepends=True)
    return Ended(ended.code, b"".join(sorted(lines) if in_any_order else lines), message)
