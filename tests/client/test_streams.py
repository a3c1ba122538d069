"""Logs, commands and ports of pods from Python, each in process and over the wire."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from tests.server.in_process import control_plane
from tests.server.streaming.conftest import furnish
from tests.server.streaming.process_node import ProcessNode

from pinnace.client.client import Client
from pinnace.client.connect import connect
from pinnace.client.kubeconfig import access_of
from pinnace.client.kubeconfig_files import kubeconfig_of
from pinnace.client.transport import ConnectionLost
from pinnace.cluster.cluster import running
from pinnace.cluster.in_process import in_process_client
from pinnace.cluster.settings import Settings
from pinnace.model import errors

SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Pods:
    client: Client
    node: ProcessNode


@pytest.fixture(params=["in process", "over http"])
async def pods(request: pytest.FixtureRequest) -> AsyncIterator[Pods]:
    if request.param == "in process":
        async with control_plane() as api:
            yield Pods(in_process_client(api.plane.local()), await furnish(api.plane))
    else:
        async with (
            running(Settings(controllers=False)) as cluster,
            connect(access_of(kubeconfig_of(cluster.access))) as client,
        ):
            yield Pods(client, await furnish(cluster.plane))


async def test_a_command_is_awaited_for_what_it_wrote_and_its_exit_code(pods: Pods) -> None:
    done = await pods.client.exec("web", ["sh", "-c", "echo out; echo err >&2; exit 7"])
    assert (done.code, done.stdout, done.stderr) == (7, b"out\n", b"err\n")


async def test_a_command_is_talked_to(pods: Pods) -> None:
    async with pods.client.exec("web", ["tr", "a-z", "A-Z"], stdin=True) as session:
        await session.write(b"hello ")
        await session.write(b"world")
        await session.close_stdin()
        assert await session.stdout.read() == b"HELLO WORLD"
        assert await session.wait() == 0


async def test_much_passes_both_ways_unchanged(pods: Pods) -> None:
    sent = random.Random(3).randbytes(10 << 20)

    async with pods.client.exec("web", ["cat"], stdin=True) as session:

        async def feed() -> None:
            await session.write(sent)
            await session.close_stdin()

        feeding = asyncio.create_task(feed())
        assert await session.stdout.read() == sent
        await feeding
        assert await session.wait() == 0


async def test_waiting_does_not_depend_on_reading(pods: Pods) -> None:
    async with pods.client.exec("web", ["sh", "-c", "head -c 5000000 /dev/zero; exit 5"]) as session:
        assert await asyncio.wait_for(session.wait(), SECONDS) == 5


async def test_a_command_may_have_a_terminal(pods: Pods) -> None:
    async with pods.client.exec("web", ["sh", "-c", "stty size; read x; stty size"], stdin=True, tty=True) as session:
        await session.resize(80, 24)
        assert await anext(session.stdout) == b"24 80\r\n"
        await session.resize(132, 50)
        await session.write(b"go on\n")
        assert (await session.stdout.read()).endswith(b"50 132\r\n")
        assert await session.wait() == 0


async def test_leaving_ends_the_command(pods: Pods) -> None:
    async with pods.client.exec("web", ["sh", "-c", "echo begun; sleep 1000"]) as session:
        assert await anext(session.stdout) == b"begun\n"
    await pods.node.until(lambda: pods.node.ended == ["cancelled"])


async def test_a_command_that_cannot_be_run_raises_what_the_server_says(pods: Pods) -> None:
    with pytest.raises(errors.NotFound, match='pods "absent" not found'):
        await pods.client.exec("absent", ["true"])
    with pytest.raises(errors.BadRequest, match="container other is not valid for pod web"):
        await pods.client.exec("web", ["true"], container="other")
    with pytest.raises(errors.NotFound, match='containers "main" not found'):
        await pods.client.exec("web", ["refuse"])
    with pytest.raises(errors.InternalError, match="the runtime is broken"):
        await pods.client.exec("web", ["break"])


async def test_attach_joins_the_container(pods: Pods) -> None:
    assert (await pods.client.attach("web")).stdout == b"attached\n"


async def test_logs_come_as_lines(pods: Pods) -> None:
    pods.node.lines["main"] = [b"one\n", b"\n", b"thr", b"ee\nlast"]
    assert [line async for line in pods.client.logs("web")] == ["one", "", "three", "last"]
    assert [line async for line in pods.client.logs("web", tail_lines=1)] == ["ee", "last"]


@pytest.mark.parametrize("size", [1, 2, 5])
async def test_characters_and_lines_are_whole_wherever_the_log_is_cut(pods: Pods, size: int) -> None:
    written = "größer\r\n日本語 🚣\n\nend".encode()
    pods.node.lines["main"] = [written[start : start + size] for start in range(0, len(written), size)]
    assert [line async for line in pods.client.logs("web")] == ["größer\r", "日本語 🚣", "", "end"]


async def test_bytes_that_are_no_text_arrive_unchanged(pods: Pods) -> None:
    written = random.Random(5).randbytes(1 << 16) + b"\xff\n"
    pods.node.lines["main"] = [written]
    assert b"".join([chunk async for chunk in pods.client.log_bytes("web")]) == written
    *_, last = [line async for line in pods.client.logs("web")]
    assert last.endswith("\N{REPLACEMENT CHARACTER}")


async def test_a_log_can_be_read_as_any_other_page(pods: Pods) -> None:
    pods.node.lines["main"] = [b"one\n", b"two\n"]
    assert await pods.client.read("/api/v1/namespaces/default/pods/web/log") == b"one\ntwo\n"
    assert await pods.client.read("/api/v1/nodes/machine/proxy/healthz") == b"GET /healthz\n"


async def test_logs_are_followed_until_the_reader_leaves(pods: Pods) -> None:
    pods.node.lines["main"] = [b"one\n"]
    lines = pods.client.logs("web", follow=True)
    assert await anext(lines) == "one"
    await pods.node.say("main", b"two\n")
    assert await anext(lines) == "two"
    await lines.aclose()
    await pods.node.until(lambda: pods.node.ended == ["log"])


async def test_a_log_that_is_long_is_not_held_in_memory_for_a_slow_reader(pods: Pods) -> None:
    pods.node.lines["main"] = [b"x" * 99_999 + b"\n"] * 100
    count = 0
    async for line in pods.client.logs("web"):
        assert len(line) == 99_999
        count += 1
        await asyncio.sleep(0)
    assert count == 100


async def test_logs_that_are_refused_raise_what_the_server_says(pods: Pods) -> None:
    with pytest.raises(errors.BadRequest, match="previous terminated container"):
        await anext(pods.client.logs("web", previous=True))


async def test_a_port_of_a_pod_is_a_port_of_this_machine(pods: Pods) -> None:
    async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello " + await reader.readline())
        writer.close()

    server = await asyncio.start_server(greet, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]

    async def ask(at: int, name: str) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", at)
        writer.write(f"{name}\n".encode())
        answer = await reader.read()
        writer.close()
        return answer

    async with server, asyncio.timeout(SECONDS), pods.client.port_forward("web", port) as forward:
        names = [f"caller {number}" for number in range(5)]
        answers = await asyncio.gather(*(ask(forward.port, name) for name in names))
        assert answers == [f"hello {name}\n".encode() for name in names]
        async with await forward.open() as connection:
            await connection.write(b"you\n")
            assert await connection.read() == b"hello you\n"
            assert await connection.read() == b""


async def test_a_port_without_a_listener_raises_an_error(pods: Pods) -> None:
    async with pods.client.port_forward("web", 1) as forward:
        async with await forward.open() as connection:
            with pytest.raises(ConnectionLost, match="connection refused"):
                await connection.read()
        reader, writer = await asyncio.open_connection("127.0.0.1", forward.port)
        assert await asyncio.wait_for(reader.read(), SECONDS) == b""
        writer.close()
        assert "connection refused" in str(forward.last_error)
