"""kubectl exec, attach, cp, logs and port-forward, over WebSocket and over SPDY."""

from __future__ import annotations

import asyncio
import fcntl
import hashlib
import os
import pty
import random
import signal
import struct
import termios
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.server.streaming.conftest import POD, SECONDS, Kubectl, run_pod
from tests.server.streaming.process_node import ProcessNode

from pinnace.cluster.cluster import RunningCluster

MEGABYTES = 50


async def test_a_command_writes_to_both_streams_and_tells_its_exit_code(kubectl: Kubectl) -> None:
    ended = await kubectl("exec", POD, "--", "sh", "-c", "echo out; echo err >&2; exit 42")
    assert (ended.code, ended.stdout) == (42, b"out\n")
    assert ended.stderr == b"err\ncommand terminated with exit code 42\n"


async def test_a_command_that_succeeds_says_nothing_of_its_own(kubectl: Kubectl) -> None:
    ended = await kubectl("exec", POD, "--", "true")
    assert (ended.code, ended.stdout, ended.stderr) == (0, b"", b"")


async def test_a_command_reads_until_its_input_ends(kubectl: Kubectl) -> None:
    ended = await kubectl("exec", "-i", POD, "--", "tr", "a-z", "A-Z", stdin=b"hello\n")
    assert (ended.code, ended.stdout) == (0, b"HELLO\n")


async def test_much_passes_both_ways_unchanged(kubectl: Kubectl) -> None:
    sent = random.Random(1).randbytes(MEGABYTES << 20)
    ended = await kubectl("exec", "-i", POD, "--", "cat", stdin=sent)
    assert ended.code == 0
    assert hashlib.sha256(ended.stdout).digest() == hashlib.sha256(sent).digest()


async def test_a_command_may_end_without_reading_its_input(kubectl: Kubectl) -> None:
    ended = await kubectl("exec", "-i", POD, "--", "head", "-c", "5", stdin=b"x" * (8 << 20))
    assert (ended.code, ended.stdout) == (0, b"xxxxx")


async def test_a_command_that_cannot_run_reports_the_reason(kubectl: Kubectl) -> None:
    ended = await kubectl("exec", POD, "--", "refuse")
    assert (ended.code, ended.stderr) == (1, b'error: containers "main" not found\n')
    ended = await kubectl("exec", POD, "--", "break")
    why = b"error: Internal error occurred: error executing command in container: the runtime is broken\n"
    assert (ended.code, ended.stderr) == (1, why)


async def test_the_container_is_chosen(kubectl: Kubectl, cluster: RunningCluster, node: ProcessNode) -> None:
    await run_pod(cluster.plane, "two", "first", "second")
    await kubectl("exec", "two", "-c", "second", "--", "true")
    assert node.calls == [("two", "second", "true")]


async def test_a_command_has_a_terminal_of_the_clients_size_and_follows_its_changes(
    kubectl: Kubectl, node: ProcessNode
) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    script = "stty size; while [ \"$(stty size)\" != '50 132' ]; do sleep 0.02; done; echo grown; read x; echo got $x"
    process = await kubectl.start("exec", "-it", POD, "--", "sh", "-c", script, stdin=theirs, stdout=theirs)
    os.close(theirs)
    screen = _Screen(ours)
    await screen.shows("24 80")
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 132, 0, 0))
    process.send_signal(signal.SIGWINCH)
    await screen.shows("grown")
    os.write(ours, b"typed\n")
    await screen.shows("got typed")
    assert await asyncio.wait_for(process.wait(), SECONDS) == 0
    os.close(ours)


class _Screen:
    """Return the output of a program on its terminal."""

    def __init__(self, terminal: int) -> None:
        self._terminal = terminal
        self._text = ""

    async def shows(self, text: str) -> None:
        async with asyncio.timeout(SECONDS):
            while text not in self._text:
                self._text += (await asyncio.to_thread(os.read, self._terminal, 4096)).decode()


async def test_attach_joins_the_container(kubectl: Kubectl) -> None:
    ended = await kubectl("attach", "-i", POD, stdin=b"to the container\n")
    assert (ended.code, ended.stdout) == (0, b"to the container\n")


async def test_files_are_copied_there_and_back(kubectl: Kubectl, tmp_path: Path) -> None:
    source, there, back = tmp_path / "source", tmp_path / "there", tmp_path / "back"
    source.mkdir()
    (source / "large").write_bytes(random.Random(2).randbytes(3 << 20))
    (source / "empty").touch()
    assert (await kubectl("cp", str(source), f"{POD}:{there}")).code == 0
    assert (await kubectl("cp", f"{POD}:{there}", str(back))).code == 0
    assert {path.name: path.read_bytes() for path in back.iterdir()} == {
        path.name: path.read_bytes() for path in source.iterdir()
    }


async def test_a_command_is_cancelled_when_its_client_is_killed(kubectl: Kubectl, node: ProcessNode) -> None:
    process = await kubectl.start("exec", "-i", POD, "--", "sh", "-c", "echo begun; sleep 1000")
    assert process.stdout is not None
    assert await process.stdout.readline() == b"begun\n"
    process.kill()
    await node.until(lambda: node.ended == ["cancelled"])
    await process.wait()


async def test_a_command_that_reads_nothing_is_cancelled_when_its_client_is_killed_while_it_sends(
    kubectl: Kubectl, node: ProcessNode
) -> None:
    process = await kubectl.start("exec", "-i", POD, "--", "sh", "-c", "echo begun; sleep 1000")
    assert process.stdout is not None and process.stdin is not None
    assert await process.stdout.readline() == b"begun\n"
    process.stdin.write(b"x" * 100_000)
    process.kill()
    await node.until(lambda: node.ended == ["cancelled"])
    await process.wait()


async def test_a_server_that_stops_ends_its_commands(
    kubectl: Kubectl, cluster: RunningCluster, node: ProcessNode
) -> None:
    process = await kubectl.start("exec", "-i", POD, "--", "sh", "-c", "echo begun; sleep 1000")
    assert process.stdout is not None
    assert await process.stdout.readline() == b"begun\n"
    await cluster.server.stop(10.0)
    assert node.ended == ["cancelled"]
    _, output = await asyncio.wait_for(process.communicate(), SECONDS)
    assert (process.returncode, output) == (
        1,
        b"error: Internal error occurred: the server is stopping and has ended the command\n",
    )


# Logs.


async def test_logs_are_shown_from_where_the_client_wants(kubectl: Kubectl, node: ProcessNode) -> None:
    node.lines["main"] = [b"one\n", b"two\n", b"three\n"]
    assert (await kubectl("logs", POD)).stdout == b"one\ntwo\nthree\n"
    assert (await kubectl("logs", POD, "--tail=1")).stdout == b"three\n"
    assert (await kubectl("logs", POD, "--limit-bytes=5")).stdout == b"one\nt"
    assert (await kubectl("logs", POD, "--timestamps", "--tail=1")).stdout == b"2030-01-01T00:00:00Z three\n"
    ended = await kubectl("logs", POD, "--previous")
    why = f'Error from server (BadRequest): previous terminated container "main" in pod "{POD}" not found\n'
    assert (ended.code, ended.stderr.decode()) == (1, why)
    await kubectl("logs", POD, "--since=1h")
    assert getattr(node.calls[-1], "since_seconds", None) == 3600


async def test_logs_are_followed_until_the_client_leaves(kubectl: Kubectl, node: ProcessNode) -> None:
    node.lines["main"] = [b"one\n"]
    process = await kubectl.start("logs", "-f", POD)
    assert process.stdout is not None
    assert await process.stdout.readline() == b"one\n"
    await node.say("main", b"two\n")
    assert await process.stdout.readline() == b"two\n"
    process.kill()
    await node.until(lambda: node.ended == ["log"])
    await process.wait()


# Ports.


@asynccontextmanager
async def forwarding(kubectl: Kubectl, *ports: int) -> AsyncIterator[tuple[asyncio.subprocess.Process, list[int]]]:
    """kubectl that forwards, and the ports of this machine that it has chosen."""
    process = await kubectl.start("port-forward", "--address=127.0.0.1", f"pod/{POD}", *(f":{port}" for port in ports))
    assert process.stdout is not None
    lines = [(await asyncio.wait_for(process.stdout.readline(), SECONDS)).decode() for _ in ports]
    try:
        yield process, [int(line.split(":")[1].split(" ")[0]) for line in lines]
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _shout(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answers when the client has sent everything: the end must arrive."""
    writer.write((await reader.read()).upper())
    writer.close()


async def test_many_connections_are_forwarded_at_once(kubectl: Kubectl, node: ProcessNode) -> None:
    server = await asyncio.start_server(_shout, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    async def ask(number: int, at: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", at)
        output = b"%d " % number * 200_000
        writer.write(output)
        writer.write_eof()
        assert await reader.read() == output.upper()
        writer.close()

    async with server, forwarding(kubectl, port) as (_, [local]), asyncio.timeout(SECONDS):
        await asyncio.gather(*(ask(number, local) for number in range(8)))
    assert node.calls == [("connect", POD, port)] * 8


async def test_a_port_without_a_listener_is_reported(kubectl: Kubectl) -> None:
    async with forwarding(kubectl, 1) as (process, [local]):
        reader, writer = await asyncio.open_connection("127.0.0.1", local)
        assert await asyncio.wait_for(reader.read(), SECONDS) == b""
        writer.close()
        assert process.stderr is not None
        output = (await asyncio.wait_for(process.stderr.readline(), SECONDS)).decode()
        assert "error forwarding port 1 to pod web" in output
        assert "connection refused" in output


async def test_connections_to_the_pod_are_closed_when_the_client_is_killed(kubectl: Kubectl) -> None:
    closed = asyncio.Event()

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello\n")
        await reader.read()
        closed.set()
        writer.close()

    server = await asyncio.start_server(listen, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, forwarding(kubectl, port) as (process, [local]):
        reader, writer = await asyncio.open_connection("127.0.0.1", local)
        assert await asyncio.wait_for(reader.readline(), SECONDS) == b"hello\n"
        process.kill()
        await asyncio.wait_for(closed.wait(), SECONDS)
        writer.close()


@pytest.mark.parametrize("command", ["exec web -- true", "port-forward pod/web 0:80", "logs web"])
async def test_a_node_that_is_not_there_is_reported(kubectl: Kubectl, cluster: RunningCluster, command: str) -> None:
    cluster.plane.nodes.remove("machine")
    ended = await kubectl(*command.split())
    assert ended.code == 1
    assert b"no preferred addresses found" in ended.stderr
