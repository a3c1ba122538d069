"""The examples for other languages, against `pinnace up --control`."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.clients.server_process import ServerProcess
from tests.machine import need

EXAMPLE = Path(__file__).parents[2] / "examples" / "13-any-language"
GO_MODULE = "PINNACE_GO_MODULE"
"""The directory of a Go module that has client-go, vendored or downloaded, in which the example is compiled."""


@pytest.fixture(scope="module")
def controlled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    process = ServerProcess.start(tmp_path_factory.mktemp("control"), "--ephemeral", "--control")
    try:
        process.await_kubeconfig()
        yield process
    finally:
        code = process.stop()
        assert code == 0, process.log.read_text()


def test_the_shell_example_runs(controlled: ServerProcess) -> None:
    need("curl")
    environment = {**os.environ, "KUBECONFIG": str(controlled.kubeconfig)}
    ran = subprocess.run(
        ["sh", str(EXAMPLE / "copies.sh")], env=environment, capture_output=True, text=True, timeout=60
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "created configmaps default/settings by curl/" in ran.stdout
    assert ran.stdout.endswith("the prepared cluster has not changed\n")
    assert f"control endpoint: {_server_of(controlled)}/control" in controlled.log.read_text()


@pytest.mark.skipif(
    shutil.which("go") is None or GO_MODULE not in os.environ,
    reason=f"needs go on the PATH, and {GO_MODULE}: the directory of a Go module that has client-go",
)
def test_the_go_example_runs(controlled: ServerProcess) -> None:
    module = Path(os.environ[GO_MODULE])
    package = module / "zz-pinnace-example"
    package.mkdir()
    try:
        shutil.copy(EXAMPLE / "copies_test.go", package)
        ran = subprocess.run(
            ["go", "test", "-count=1", "-v", "./zz-pinnace-example"],
            cwd=module,
            env={**os.environ, "KUBECONFIG": str(controlled.kubeconfig)},
            capture_output=True,
            text=True,
            timeout=600,
        )
    finally:
        shutil.rmtree(package)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "created configmaps default/from-go by " in ran.stdout


def _server_of(process: ServerProcess) -> str:
    return next(line.split()[1] for line in process.kubeconfig.read_text().splitlines() if "server:" in line)
