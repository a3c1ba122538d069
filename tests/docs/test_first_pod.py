"""The first pod of the README, on this machine and on a bare one. The times are printed: a newcomer waits so long."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.clients.kubectl_command import Kubectl, kubectl_binary
from tests.clients.server_process import ServerProcess
from tests.docs.bare_machine import bare_machine, command_on
from tests.machine import do_without
from tests.node.namespaces import need_namespaces
from tests.waiting import until

CHECKOUT = Path(__file__).parents[2]
README = CHECKOUT / "README.md"
_UP_UNTIL_END_OF_INPUT = (
    'make up ARGS="--port 0 --kubeconfig /tmp/kubeconfig --host-image" & cat >/dev/null; kill $!; wait'
)
_INSTALLATION_SECONDS = 400.0


def _commands() -> list[str]:
    """The kubectl commands of the README's first five minutes, up to the first one that does not end."""
    section = README.read_text().split("## The first five minutes")[1].split("\n## ")[0]
    block = section.split("In another terminal:")[1].split("\n\n")[1]
    lines = [line.strip().removeprefix("$ kubectl ") for line in block.splitlines()]
    return [line for line in lines if not line.startswith("port-forward")]


def test_the_readme_leads_to_a_running_pod(tmp_path: Path, record_property: Callable[[str, object], None]) -> None:
    need_namespaces()
    kubectl_binary()
    if not os.access("/usr/bin/python3", os.X_OK):
        do_without("the image `python` is this machine's /usr/bin/python3, which is missing")
    with pytest.MonkeyPatch.context() as environment:
        environment.delenv("PINNACE_NO_NODE", raising=False)
        environment.setenv("PINNACE_OFFLINE", "1")
        began = time.monotonic()
        server = ServerProcess.start(tmp_path, "--data-dir", str(tmp_path / "data"))
    try:
        kubectl = Kubectl(kubectl_binary(), server.await_kubeconfig(), tmp_path / "cache", "default")
        outputs = [kubectl(command) for command in _commands()]
        seconds = time.monotonic() - began
    finally:
        code = server.stop()
    assert outputs[-1] == "web\n"
    assert code == 0
    record_property("figure", f"from an empty directory to a pod that runs and answers exec: {seconds:.1f} s")


@pytest.mark.timeout(900)
def test_the_first_command_leads_to_a_running_pod_on_a_bare_machine(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    binary, log = kubectl_binary(), tmp_path / "log"
    with bare_machine(CHECKOUT) as root:
        before = set(_files(root / "checkout"))
        kubectl = Kubectl(binary, root / "tmp" / "kubeconfig", tmp_path / "cache", "default")
        began = time.monotonic()
        with command_on(root, log, "sh", "-c", _UP_UNTIL_END_OF_INPUT) as process:
            until(lambda: kubectl.kubeconfig.exists() or process.poll() is not None, seconds=_INSTALLATION_SECONDS)
            assert process.poll() is None, log.read_text()
            outputs = [kubectl(command) for command in _commands()]
            seconds = time.monotonic() - began
            process.communicate(timeout=60)
        assert outputs[-1] == "web\n", log.read_text()
        assert set(_files(root / "checkout")) == before, "the installation wrote into the checkout"
    record_property("figure", f"from a bare machine to a pod that runs and answers exec: {seconds:.0f} s")


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_the_second_command_passes_on_a_bare_machine(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with bare_machine(CHECKOUT) as root, command_on(root, log, "make", "test") as process:
        process.communicate(timeout=3500)
    assert process.returncode == 0, log.read_text()[-10_000:]


def _files(checkout: Path) -> Iterator[str]:
    """Yield the files of the checkout without those of its environment, and without compiled modules."""
    for folder, folders, names in os.walk(checkout):
        folders[:] = [name for name in folders if name not in (".venv", "__pycache__")]
        yield from (os.path.join(folder, name) for name in names)
