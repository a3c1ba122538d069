"""logs, exec and port-forward do what kubectl does, with a node whose containers are processes."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
from tests.cli.streaming_twin import Pinnace, cluster, differences, kubectl, node, ours
from tests.server.streaming.conftest import POD, SECONDS, Ended, Kubectl, run_pod
from tests.server.streaming.process_node import ProcessNode

from pinnace.cluster.cluster import RunningCluster

__all__ = ["cluster", "kubectl", "node", "ours"]


COMMANDS = [
    ("exec web -- sh -c", "echo out; echo err >&2; exit 42", b""),
    ("exec web -- true", "", b""),
    ("exec -i web -- tr a-z A-Z", "", b"hello\n"),
    ("exec web -c main -- echo", "hi", b""),
    ("exec pod/web -- echo", "hi", b""),
    ("exec web -- refuse", "", b""),
    ("exec nope -- true", "", b""),
    ("exec two -- echo", "which", b""),
    ("exec two -c other -- echo", "which", b""),
    ("exec web echo", "", b""),
    ("logs web", "", b""),
    ("logs web --tail=1", "", b""),
    ("logs web -c main --tail 2", "", b""),
    ("logs pod/web", "", b""),
    ("logs nope", "", b""),
    ("logs two", "", b""),
    ("logs two --all-containers --prefix", "", b""),
    ("logs -l app=none", "", b""),
]


async def test_commands_and_logs_are_the_same_as_with_kubectl(
    ours: Pinnace, kubectl: Kubectl, node: ProcessNode, cluster: RunningCluster
) -> None:
    await run_pod(cluster.plane, "two", "main", "other")
    node.lines["main"] = [b"one\n", b"two\n", b"three\n"]
    node.lines["other"] = [b"four\n"]
    differing = []
    for command, last, stdin in COMMANDS:
        arguments = [*command.split(), *([last] if last else [])]
        differing += await differences(kubectl, ours, *arguments, stdin=stdin)
    assert not differing, "\n".join(differing)


async def test_a_command_may_end_without_reading_its_input(ours: Pinnace) -> None:
    ended = await ours("exec", "-i", POD, "--", "head", "-c", "5", stdin=b"x" * 1_000_000)
    assert ended == Ended(0, b"xxxxx", b"")


async def test_a_log_is_followed_as_it_grows(ours: Pinnace, node: ProcessNode) -> None:
    node.lines["main"] = [b"one\n"]
    process = await ours.start("logs", "-f", POD)
    assert process.stdout is not None
    async with asyncio.timeout(SECONDS):
        assert await process.stdout.readline() == b"one\n"
        process.terminate()
        await process.wait()


@contextlib.asynccontextmanager
async def _echo_server() -> AsyncIterator[int]:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.readline()).upper())
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def test_a_port_of_a_pod_is_reached_through_one_of_this_machine(ours: Pinnace, node: ProcessNode) -> None:
    async with _echo_server() as remote, asyncio.timeout(SECONDS):
        process = await ours.start("port-forward", POD, f":{remote}")
        assert process.stdout is not None
        output = (await process.stdout.readline()).decode()
        assert output.startswith("Forwarding from 127.0.0.1:")
        assert output.endswith(f"-> {remote}\n")
        local = int(output.split(":")[1].split()[0])
        for _ in range(2):
            reader, writer = await asyncio.open_connection("127.0.0.1", local)
            writer.write(b"hello\n")
            assert await reader.readline() == b"HELLO\n"
            writer.close()
        process.terminate()
        await process.wait()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("port-forward", POD, "http"), b"error: Pod 'web' does not have a named port 'http'"),
        (("port-forward", POD, "x:80"), b"error: error parsing local port 'x'"),
        (("port-forward", "nope", "80"), b'Error from server (NotFound): pods "nope" not found'),
        (("logs", POD, "-c", "nope"), b"error: container nope is not valid for pod web out of: main\n"),
        (("exec", POD, "-c", "nope", "--", "x"), b"error: container nope is not valid for pod web out of: main\n"),
        (("logs", POD, "--since", "soon"), b'error: invalid argument "soon" for "--since" flag'),
        (("logs",), b"error: expected 'logs [-f] [-p] (POD | TYPE/NAME) [-c CONTAINER]'."),
        (("exec", POD, "--"), b"error: you must specify at least one command for the container"),
    ],
    ids=["named port", "local port", "no pod", "no container", "exec", "duration", "nothing", "no command"],
)
async def test_invalid_arguments_are_refused_with_the_reason(
    ours: Pinnace, arguments: tuple[str, ...], message: bytes
) -> None:
    ended = await ours(*arguments)
    assert ended.code == 1
    assert ended.stderr.startswith(message)
