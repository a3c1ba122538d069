"""Exec, attach and connections into pods of the embedded runtime."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.free_ports import free_port
from tests.machine import need
from tests.node.runtime.embedded.conftest import PROCESSES, Pods, log_of, until

from pinnace.model.node_connections import CommandStreams, TerminalSize
from pinnace.node.errors import RuntimeFailure, SandboxFailed, StartFailed
from pinnace.node.runtime.embedded.connections.container_streams import OutputCollector
from pinnace.node.runtime.runtime import PortMapping


def _input(data: bytes) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    reader.feed_data(data)
    reader.feed_eof()
    return reader


async def _sizes(*sizes: TerminalSize) -> AsyncIterator[TerminalSize]:
    for size in sizes:
        yield size


async def test_exec_returns_the_output_and_the_exit_code(pods: Pods) -> None:
    container = await pods.start(["sleep", "1000"])
    out, err = OutputCollector(1 << 20), OutputCollector(1 << 20)
    streams = CommandStreams(stdin=_input(b"from outside"), stdout=out, stderr=err)
    code = await pods.runtime.exec(container, ["sh", "-c", "cat; echo oops >&2; exit 5"], streams)
    assert (code, out.data, err.data) == (5, b"from outside", b"oops\n")


async def test_exec_has_the_user_the_environment_and_the_limits_of_the_container(pods: Pods) -> None:
    container = await pods.start(["sleep", "1000"], environment=[("COLOUR", "blue")], working_directory="/tmp")
    result = await pods.runtime.exec_sync(container, ["sh", "-c", "echo $COLOUR; pwd; id -u"], timeout=60)
    assert result.output.decode().split() == ["blue", "/tmp", "0"]


async def test_exec_of_a_missing_command_is_an_error(pods: Pods) -> None:
    container = await pods.start(["sleep", "1000"])
    with pytest.raises(StartFailed, match=r'exec: "nope": executable file not found in \$PATH') as caught:
        await pods.runtime.exec_sync(container, ["nope"], timeout=60)
    assert caught.value.exit_code == 127


async def test_exec_in_a_container_that_has_ended_is_an_error(pods: Pods) -> None:
    container = await pods.start(["true"])
    await pods.end_of(container)
    with pytest.raises(RuntimeFailure, match="not running"):
        await pods.runtime.exec_sync(container, ["true"], timeout=60)


async def test_a_large_output_arrives_whole(pods: Pods) -> None:
    container = await pods.start(["sleep", "1000"])
    result = await pods.runtime.exec_sync(
        container, ["head", "-c", "3000000", "/dev/zero"], timeout=60, limit_bytes=1 << 23
    )
    assert len(result.output) == 3_000_000


async def test_a_command_that_takes_too_long_is_killed(pods: Pods) -> None:
    container = await pods.start(["sleep", "1000"])
    with pytest.raises(TimeoutError):
        await pods.runtime.exec_sync(container, ["sleep", "4321"], timeout=0.2)

    async def is_gone() -> bool:
        result = await pods.runtime.exec_sync(container, ["sh", "-c", PROCESSES], timeout=60)
        return b"sleep 4321" not in result.output

    await until(is_gone)


async def test_exec_gives_the_command_a_terminal(pods: Pods) -> None:
    container = await pods.start(["sleep", "1000"])
    reader = asyncio.StreamReader()
    out = OutputCollector(1 << 20)
    streams = CommandStreams(stdin=reader, stdout=out, sizes=_sizes(TerminalSize(70_000, -1), TerminalSize(101, 37)))
    running = asyncio.ensure_future(pods.runtime.exec(container, ["sh"], streams))

    async def has_size() -> bool:
        reader.feed_data(b"stty size\n")
        await asyncio.sleep(0.05)
        return b"37 101" in out.data

    await until(has_size)
    reader.feed_data(b"tty; exit 4\n")
    assert await running == 4
    assert b"/dev/pts/0" in out.data


async def test_attach_sends_input_and_receives_output(pods: Pods) -> None:
    container = await pods.start("read line; echo got $line; echo done >&2", stdin=True, stdin_once=True)
    out, err = OutputCollector(1 << 20), OutputCollector(1 << 20)
    code = await pods.runtime.attach(container, CommandStreams(stdin=_input(b"this\n"), stdout=out, stderr=err))
    assert (code, out.data, err.data) == (0, b"got this\n", b"done\n")
    assert log_of(await pods.runtime.container(container)) == "got this\ndone\n"


async def test_attach_gives_the_input_to_a_terminal(pods: Pods) -> None:
    container = await pods.start(["sh"], stdin=True, tty=True)
    reader = asyncio.StreamReader()
    out = OutputCollector(1 << 20)
    streams = CommandStreams(stdin=reader, stdout=out, sizes=_sizes(TerminalSize(91, 33)))
    running = asyncio.ensure_future(pods.runtime.attach(container, streams))

    async def has_size() -> bool:
        reader.feed_data(b"stty size\n")
        await asyncio.sleep(0.05)
        return b"33 91" in out.data

    await until(has_size)
    reader.feed_data(b"exit 6\n")
    assert await running == 6


async def test_an_attached_client_that_is_slow_receives_everything(pods: Pods) -> None:
    container = await pods.start("read go; head -c 2000000 /dev/zero | tr '\\0' x", stdin=True)

    class Slow(OutputCollector):
        async def drain(self) -> None:
            await asyncio.sleep(0.001)

    out = Slow(1 << 23)
    await pods.runtime.attach(container, CommandStreams(stdin=_input(b"go\n"), stdout=out))
    assert len(out.data) == 2_000_000


async def test_connections_are_made_from_within_the_pod(pods: Pods) -> None:
    server = (
        "import socket\n"
        "s = socket.create_server(('127.0.0.1', 8080))\n"
        "print('ready', flush=True)\n"
        "while True:\n"
        "    c, _ = s.accept()\n"
        "    c.sendall(c.recv(100).upper())\n"
        "    c.close()\n"
    )
    sandbox = await pods.sandbox()
    container = await pods.start(["/usr/bin/python3", "-c", server], sandbox)

    async def is_ready() -> bool:
        status = await pods.runtime.container(container)
        return Path(status.log_file).exists() and "ready" in log_of(status)

    await until(is_ready)
    reader, writer = await pods.runtime.connect(sandbox, 8080)
    writer.write(b"hello")
    await writer.drain()
    assert await reader.read(100) == b"HELLO"
    writer.close()
    with pytest.raises(ConnectionRefusedError):
        await pods.runtime.connect(sandbox, 9)


async def test_pods_reach_each_other_and_nothing_else(pods: Pods) -> None:
    """The namespaces of node and pods have no default route: checked before any traffic."""
    need("ip")
    first = await pods.sandbox()
    routes = json.loads(await pods.output(["ip", "-j", "route"], first, name="routes"))
    assert sorted(route["dst"] for route in routes) == ["10.244.0.0/24", "10.244.0.1"]
    address = (await pods.runtime.sandbox(first)).addresses[0]
    second = await pods.sandbox(name="other")
    other = (await pods.runtime.sandbox(second)).addresses[0]
    assert address != other
    server = (
        "import socket; s = socket.create_server(('', 80)); print('ready', flush=True); c, _ = s.accept(); "
        "c.sendall(b'hi')"
    )
    container = await pods.start(["/usr/bin/python3", "-c", server], second)

    async def is_ready() -> bool:
        status = await pods.runtime.container(container)
        return Path(status.log_file).exists() and "ready" in log_of(status)

    await until(is_ready)
    client = f"import socket; s = socket.create_connection(('{other}', 80), 30); print(s.recv(10), s.getsockname()[0])"
    assert await pods.output(["/usr/bin/python3", "-c", client], first, name="client") == f"b'hi' {address}\n"
    outside = (
        "import socket\ntry: socket.create_connection(('192.0.2.1', 80), 30)\nexcept OSError as e: print(e.strerror)"
    )
    assert await pods.output(["/usr/bin/python3", "-c", outside], first, name="outside") == "Network is unreachable\n"


async def test_a_host_port_leads_into_the_pod_and_is_closed_with_it(pods: Pods) -> None:
    port = free_port()
    is_taken = pytest.raises(SandboxFailed, match=f"the host port {port} cannot be opened")
    with socket.create_server(("127.0.0.1", port)), is_taken:
        await pods.sandbox(ports=[PortMapping(8080, port)])
    assert await pods.runtime.sandboxes() == []
    sandbox = await pods.sandbox(ports=[PortMapping(8080, port)])
    server = (
        "import socket; s = socket.create_server(('', 8080)); print('ready', flush=True); c, _ = s.accept(); "
        "c.sendall(c.recv(100).upper())"
    )
    container = await pods.start(["/usr/bin/python3", "-c", server], sandbox)

    async def is_ready() -> bool:
        status = await pods.runtime.container(container)
        return Path(status.log_file).exists() and "ready" in log_of(status)

    await until(is_ready)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"hello")
    assert await reader.read(100) == b"HELLO"
    writer.close()
    await pods.runtime.remove_sandbox(sandbox)
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


async def test_a_host_port_takes_datagrams_too(pods: Pods) -> None:
    port = free_port()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as taken:
        taken.bind(("127.0.0.1", port))
        with pytest.raises(SandboxFailed, match=f"the host port {port} cannot be opened"):
            await pods.sandbox(ports=[PortMapping(5353, port, "UDP")])
    sandbox = await pods.sandbox(ports=[PortMapping(5353, port, "UDP")])
    server = (
        "import socket; s = socket.socket(type=socket.SOCK_DGRAM); s.bind(('', 5353)); print('ready', flush=True)\n"
        "while True: data, peer = s.recvfrom(100); s.sendto(data.upper(), peer)"
    )
    container = await pods.start(["/usr/bin/python3", "-c", server], sandbox)

    async def is_ready() -> bool:
        status = await pods.runtime.container(container)
        return Path(status.log_file).exists() and "ready" in log_of(status)

    await until(is_ready)
    loop = asyncio.get_running_loop()
    for words in ((b"one", b"two"), (b"three", b"four")):  # Two clients, each with its own answers.
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as client:
            client.setblocking(False)
            client.connect(("127.0.0.1", port))
            for word in words:
                await loop.sock_sendall(client, word)
                async with asyncio.timeout(60):
                    assert await loop.sock_recv(client, 100) == word.upper()
    await pods.runtime.remove_sandbox(sandbox)
