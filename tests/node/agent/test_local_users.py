"""Other users of the machine: a node shows them nothing, and answers none of them, whatever modes it finds."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.clients.kubectl_command import Kubectl, kubectl_binary
from tests.clients.server_process import ServerProcess
from tests.node.agent.conftest import RealNode
from tests.node.namespaces import need_namespaces
from tests.node.ordinary_user import NOBODY, as_ordinary_user
from tests.waiting import until

import pinnace
from pinnace.node.agent.kubelet_api.connection import AgentConnection
from pinnace.node.agent.kubelet_api.socket_connection import SOCKET
from pinnace.node.agent.kubelet_api.socket_server import AgentSocket
from pinnace.node.errors import RuntimeFailure
from pinnace.node.identity.state_directory import make_private
from pinnace.node.machine.messages import listen
from pinnace.process.tasks import Tasks

NODE = "shared-machine"
_only_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
_LOOK = """
import os, socket, sys
top, *values = sys.argv[1:]
os.listdir(top)
for place, _, names in os.walk(top):
    for name in names:
        path = os.path.join(place, name)
        try:
            channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            os.chdir(place)  # An address has at most 107 bytes.
            channel.connect(name)
            print("socket", path)
        except OSError:
            pass
        try:
            with open(path, "rb") as file:
                content = file.read()
        except OSError:
            continue
        if any(value.encode() in content for value in values):
            print("file", path)
"""


def _as_other_user(*command: str) -> str:
    with _shared_directory() as home:
        words = [*as_ordinary_user(home), *command]
        return subprocess.run(words, stdout=subprocess.PIPE, text=True, timeout=60, check=True).stdout


@contextlib.contextmanager
def _shared_directory() -> Iterator[Path]:
    """A directory that every user of the machine can reach, unlike those that pytest makes."""
    directory = Path(tempfile.mkdtemp(prefix="pinnace-shared-"))
    directory.chmod(0o755)
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@_only_root
def test_a_joined_node_shows_other_users_neither_secrets_nor_keys_nor_sockets(tmp_path: Path) -> None:
    """The directory was there with mode 0755, the node of an earlier version left open parts, and the umask is 000."""
    need_namespaces()
    kubectl_binary()
    with _shared_directory() as directory:
        for part in (".", "pki", "agent", "runtime"):
            (directory / part).mkdir(exist_ok=True)
            (directory / part).chmod(0o755)
        (directory / "kubeconfig").touch()
        (directory / "kubeconfig").chmod(0o644)
        server = ServerProcess.start(tmp_path, "--data-dir", str(tmp_path / "data"))
        try:
            kubectl = Kubectl(kubectl_binary(), server.await_kubeconfig(), tmp_path, "default")
            with _joined_node(kubectl, directory, tmp_path / "node.log"):
                kubectl("create secret generic password --from-literal=key=value-of-the-secret")
                _run_pod_with_secret(kubectl)
                token = kubectl("exec reader -- cat /var/run/secrets/kubernetes.io/serviceaccount/token")
                assert kubectl("exec reader -- cat /secret/key") == "value-of-the-secret"
                values = ("value-of-the-secret", token, "PRIVATE KEY")
                assert _as_other_user(sys.executable, "-c", _LOOK, str(directory), *values) == ""
                assert (directory / "kubeconfig").stat().st_mode & 0o777 == 0o600
            assert f"other users could open {directory}/pki (mode 755)" in (tmp_path / "node.log").read_text()
        finally:
            server.stop()


@contextlib.contextmanager
def _joined_node(kubectl: Kubectl, directory: Path, log: Path) -> Iterator[None]:
    environment = os.environ | {"PYTHONPATH": str(Path(pinnace.__file__).parents[1]), "PINNACE_OFFLINE": "1"}
    command = [sys.executable, "-m", "pinnace.cli.main"]
    ask = [*command, "token", "create", "--print-join-command", "--kubeconfig", str(kubectl.kubeconfig)]
    join = subprocess.run(ask, env=environment, stdout=subprocess.PIPE, text=True, timeout=60, check=True).stdout
    command += [*join.split()[1:], "--name", NODE, "--directory", str(directory), "--host-image", "--stop-pods"]
    with log.open("wb") as output:
        node = subprocess.Popen(command, env=environment, stdout=output, stderr=subprocess.STDOUT, umask=0)
    try:
        until(lambda: NODE in kubectl("get nodes -o name"))
        kubectl("wait --for=condition=Ready --timeout=120s node --all")
        yield
    finally:
        node.terminate()
        node.wait(60)


def _run_pod_with_secret(kubectl: Kubectl) -> None:
    manifest = """
apiVersion: v1
kind: Pod
metadata: {name: reader}
spec:
  volumes: [{name: secret, secret: {secretName: password}}]
  containers:
  - name: main
    image: host
    command: [sleep, "1000"]
    env: [{name: KEY, valueFrom: {secretKeyRef: {name: password, key: key}}}]
    volumeMounts: [{name: secret, mountPath: /secret}]
"""
    kubectl("apply -f -", stdin=manifest)
    kubectl("wait --for=condition=Ready --timeout=120s pod reader")


@_only_root
async def test_sockets_answer_their_own_user_alone(node: RealNode) -> None:
    """Every mode is opened on purpose: what is left is the check of the user at the other end."""
    await node.create("served", "sleep 1000")
    await node.until_ready("served")
    (sandbox,) = await node.runtime.sandboxes("default", "served")
    agent = AgentSocket(node.directory / SOCKET, AgentConnection(node.runtime, node.clock))
    async with Tasks(expected=()) as tasks:
        tasks.start(agent.run())

        async def is_listening() -> bool:
            return (node.directory / SOCKET).exists()

        await node.until(is_listening)
        pod = node.directory / "runtime/pods" / sandbox.id
        paths = [node.directory / SOCKET, node.directory / "runtime/node.sock", pod / "supervisor.sock"]
        modes = [path.stat().st_mode & 0o777 for path in paths]
        assert modes == [0o600] * 3
        for path in (*paths, node.directory, node.directory / "runtime", pod.parent, pod):
            path.chmod(0o777)
        ask = (
            "import os, socket, sys\n"
            "channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
            "channel.settimeout(60)\n"
            "os.chdir(os.path.dirname(sys.argv[1]))\n"
            "channel.connect(os.path.basename(sys.argv[1]))\n"
            'try: channel.send(b\'{"op": "hello", "n": 1}\'); print(channel.recv(1000))\n'
            "except ConnectionError: print(b'')\n"
        )
        for path in paths:
            assert await asyncio.to_thread(_as_other_user, sys.executable, "-c", ask, str(path)) == "b''\n"
    assert await node.runtime.exec_sync((await node.runtime.containers(sandbox.id))[0].id, ["true"], timeout=60)


def test_a_socket_has_its_mode_from_the_beginning(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        with listen(str(tmp_path), "socket"):
            assert (tmp_path / "socket").stat().st_mode & 0o777 == 0o600
    finally:
        os.umask(old)


@pytest.mark.parametrize("umask", [0, 0o022, 0o777 & ~0o700], ids=oct)
def test_parts_of_a_new_directory_are_private_whatever_the_umask(tmp_path: Path, umask: int) -> None:
    old = os.umask(umask)
    try:
        make_private(tmp_path / "above/node")
    finally:
        os.umask(old)
    assert (tmp_path / "above").stat().st_mode & 0o022 == 0
    places = [tmp_path / "above/node", *(tmp_path / "above/node").iterdir()]
    assert {place.stat().st_mode & 0o777 for place in places} == {0o700}


def test_a_directory_that_others_may_write_is_corrected(tmp_path: Path) -> None:
    (tmp_path / "node").mkdir()
    (tmp_path / "node").chmod(0o777)
    make_private(tmp_path / "node")
    assert (tmp_path / "node").stat().st_mode & 0o777 == 0o755


@pytest.mark.parametrize("planted", ["link", "file"])
def test_a_part_that_is_no_directory_is_refused(tmp_path: Path, planted: str) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o755)
    node = tmp_path / "node"
    node.mkdir()
    if planted == "link":
        (node / "runtime").symlink_to(tmp_path / "elsewhere")
    else:
        (node / "runtime").touch()
    with pytest.raises(RuntimeFailure, match=r"node/runtime is no directory of its own"):
        make_private(node)
    assert (tmp_path / "elsewhere").stat().st_mode & 0o777 == 0o755


@_only_root
def test_a_part_of_another_user_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pki").mkdir()
    os.chown(tmp_path / "pki", NOBODY, NOBODY)
    with pytest.raises(RuntimeFailure, match="belongs to the user 65534"):
        make_private(tmp_path)
