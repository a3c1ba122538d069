"""The official Python client's stream() and portforward(), which speak version 4 over WebSocket."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kubernetes import config
from kubernetes.client import CoreV1Api
from kubernetes.client.exceptions import ApiException
from kubernetes.stream import portforward, stream
from tests.server.streaming.conftest import POD
from tests.server.streaming.process_node import ProcessNode

from pinnace.client import kubeconfig_files as kubeconfig
from pinnace.cluster.cluster import RunningCluster

pytestmark = [pytest.mark.usefixtures("node"), pytest.mark.filterwarnings("ignore::DeprecationWarning")]


@pytest.fixture
def core(cluster: RunningCluster, tmp_path: Path) -> Callable[[], CoreV1Api]:
    """stream() changes the client that it is given, so each call has one of its own."""
    path = tmp_path / "kubeconfig"
    kubeconfig.write(path, cluster.access)
    return lambda: CoreV1Api(config.new_client_from_config(str(path)))  # type: ignore[no-untyped-call]


def _exec(core: CoreV1Api, *command: str, **options: Any) -> Any:
    wanted = {"stdin": False, "stdout": True, "stderr": True, "tty": False, **options}
    return stream(core.connect_get_namespaced_pod_exec, POD, "default", command=list(command), **wanted)


async def test_a_command_is_run_and_its_output_returned(core: Callable[[], CoreV1Api]) -> None:
    assert await asyncio.to_thread(_exec, core(), "sh", "-c", "echo out; echo err >&2") == "out\nerr\n"


async def test_a_command_is_talked_to_and_tells_its_exit_code(core: Callable[[], CoreV1Api]) -> None:
    def talk() -> tuple[str, int]:
        session = _exec(core(), "sh", "-c", "read x; echo got $x; exit 6", stdin=True, _preload_content=False)
        session.write_stdin("hello\n")
        session.run_forever(timeout=60)
        return session.read_stdout(), session.returncode

    assert await asyncio.to_thread(talk) == ("got hello\n", 6)


async def test_leaving_ends_the_command(core: Callable[[], CoreV1Api], node: ProcessNode) -> None:
    def leave() -> None:
        session = _exec(core(), "sleep", "1000", _preload_content=False)
        session.close()

    await asyncio.to_thread(leave)
    await node.until(lambda: node.ended == ["cancelled"])


async def test_a_refusal_is_an_exception(core: Callable[[], CoreV1Api]) -> None:
    def refused() -> None:
        stream(core().connect_get_namespaced_pod_exec, "absent", "default", command=["true"], stdout=True)

    with pytest.raises(ApiException, match="404"):
        await asyncio.to_thread(refused)


async def test_ports_are_forwarded(core: Callable[[], CoreV1Api]) -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello " + await reader.readline())
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    def ask() -> bytes:
        forward = portforward(core().connect_get_namespaced_pod_portforward, POD, "default", ports=str(port))
        socket = forward.socket(port)
        socket.settimeout(20)
        socket.sendall(b"python\n")
        output = b""
        while piece := socket.recv(1024):
            output += piece
        return output

    async with server:
        assert await asyncio.to_thread(ask) == b"hello python\n"


async def test_logs_are_read_and_followed(core: Callable[[], CoreV1Api], node: ProcessNode) -> None:
    node.lines["main"] = [b"one\n", b"two\n"]
    read = core().read_namespaced_pod_log
    assert await asyncio.to_thread(read, POD, "default", tail_lines=1) == "two\n"

    def follow() -> list[bytes]:
        answer: Any = read(POD, "default", follow=True, _preload_content=False)
        pieces = answer.stream()
        first = [next(pieces)]
        answer.close()
        return first

    assert b"".join(await asyncio.to_thread(follow)).startswith(b"one\n")
    await node.until(lambda: node.ended == ["log", "log"])
