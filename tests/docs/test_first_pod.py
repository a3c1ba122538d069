"""The first pod of the README, from an empty directory. The time is printed: it is what a newcomer waits."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.clients.kubectl_command import Kubectl, kubectl_binary
from tests.clients.server_process import ServerProcess
from tests.node.namespaces import need_namespaces

README = Path(__file__).parents[2] / "README.md"


def _commands() -> list[str]:
    """The kubectl commands of the README's first five minutes, up to the first one that does not end."""
    section = README.read_text().split("## The first five minutes")[1].split("\n## ")[0]
    block = section.split("In another terminal:")[1].split("\n\n")[1]
    lines = [line.strip().removeprefix("$ kubectl ") for line in block.splitlines()]
    return [line for line in lines if not line.startswith("port-forward")]


def test_the_readme_leads_to_a_running_pod(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    need_namespaces()
    if not os.access("/usr/bin/python3", os.X_OK):
        pytest.skip("the image `python` is this machine's /usr/bin/python3, which is missing")
    with pytest.MonkeyPatch.context() as environment:
        environment.delenv("PINNACE_NO_NODE", raising=False)
        environment.setenv("PINNACE_OFFLINE", "1")
        began = time.monotonic()
        server = ServerProcess.start(tmp_path, "--data-dir", str(tmp_path / "data"))
    try:
        kubectl = Kubectl(kubectl_binary(), server.await_kubeconfig(), tmp_path / "cache", "default")
        said = [kubectl(command) for command in _commands()]
        seconds = time.monotonic() - began
    finally:
        code = server.stop()
    assert said[-1] == "web\n"
    assert code == 0
    record_property("figure", f"from an empty directory to a pod that runs and answers exec: {seconds:.1f} s")
