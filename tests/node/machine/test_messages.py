"""A message server answers requests of its users, on asyncio's loop and on its own, whatever they send."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from pinnace.node.errors import RuntimeFailure
from pinnace.node.machine import messages
from pinnace.node.machine.channels import Channel, ChannelClosed
from pinnace.node.machine.messages import MessageServer, SocketPeer, SocketRequest, connect
from pinnace.node.machine.poll_loop import PollLoop

PATIENCE = 60.0


def _answer(request: SocketRequest) -> None:
    match request.content["op"]:
        case "add":
            request.reply({"sum": request.content["first"] + request.content["second"]})
        case "read":
            request.reply({"text": os.pread(request.fds[0], 100, 0).decode()})
        case "open":
            with open(os.devnull) as opened:
                request.reply({}, [opened.fileno()])


Turn = Callable[[], Awaitable[None]]


async def _turn_asyncio() -> None:
    await asyncio.sleep(0)


def _start(kind: str, directory: Path, **handlers: Callable[[SocketPeer], None]) -> tuple[MessageServer, Turn]:
    """Return a listening server and what lets it work."""
    if kind == "asyncio":
        server, turn = MessageServer(asyncio.get_running_loop(), _answer, **handlers), _turn_asyncio
    else:
        loop = PollLoop()
        server = MessageServer(loop, _answer, **handlers)

        async def turn() -> None:
            loop.turn(0)
            await asyncio.sleep(0)

    server.listen(str(directory), "socket", users=[os.geteuid()])
    return server, turn


async def _work_until(turn: Turn, is_done: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not is_done():
            await turn()


async def _finish(turn: Turn, work: asyncio.Task[object]) -> None:
    await _work_until(turn, work.done)


both_loops = pytest.mark.parametrize("kind", ["asyncio", "poll"])


@both_loops
async def test_requests_get_their_replies_and_files_pass_both_ways(tmp_path: Path, kind: str) -> None:
    server, turn = _start(kind, tmp_path)
    (tmp_path / "file").write_text("content")
    channel = Channel(connect(tmp_path / "socket"), "the server")
    async with asyncio.TaskGroup() as group:
        sums = [group.create_task(channel.request({"op": "add", "first": 1, "second": n})) for n in range(3)]
        with open(tmp_path / "file") as file:
            text = group.create_task(channel.request({"op": "read"}, [file.fileno()]))
            opened = group.create_task(channel.request({"op": "open"}))
            for work in (*sums, text, opened):
                await _finish(turn, work)
    assert [work.result()[0]["sum"] for work in sums] == [1, 2, 3]
    assert text.result()[0]["text"] == "content"
    (received,) = opened.result()[1]
    assert os.fstat(received).st_rdev == os.stat(os.devnull).st_rdev
    assert not os.get_inheritable(received)
    os.close(received)
    channel.close()
    await _work_until(turn, lambda: not server.peers)
    server.close()


@both_loops
async def test_a_bad_request_is_answered_and_leaves_no_file_open(tmp_path: Path, kind: str) -> None:
    server, turn = _start(kind, tmp_path)
    channel = Channel(connect(tmp_path / "socket"), "the server")
    reading, writing = os.pipe()
    async with asyncio.TaskGroup() as group:
        work = group.create_task(_failure_of(channel, [writing]))
        await _finish(turn, work)
    assert work.result() == "KeyError: 'first'"
    os.close(writing)
    assert os.read(reading, 1) == b""
    os.close(reading)
    channel.close()
    server.close()


async def _failure_of(channel: Channel, fds: list[int]) -> str:
    with pytest.raises(RuntimeFailure) as failure:
        await channel.request({"op": "add"}, fds)
    return str(failure.value)


@both_loops
@pytest.mark.parametrize("data", [b"no json", b"[1]", b'{"op"', b"\xff"])
async def test_anything_but_a_message_closes_its_connection_alone(tmp_path: Path, kind: str, data: bytes) -> None:
    gone: list[SocketPeer] = []
    server, turn = _start(kind, tmp_path, on_close=gone.append)
    good, bad = connect(tmp_path / "socket"), connect(tmp_path / "socket")
    await _work_until(turn, lambda: len(server.peers) == 2)
    reading, writing = os.pipe()
    socket.send_fds(bad, [data], [writing])
    os.close(writing)
    await _work_until(turn, lambda: len(gone) == 1)
    assert bad.recv(1) == b""
    assert os.read(reading, 1) == b""
    os.close(reading)
    messages.send(good, {"op": "add", "n": 7, "first": 1, "second": 2})
    good.setblocking(False)
    replies: list[messages.Message | None] = []
    await _work_until(turn, lambda: _received(good, replies))
    assert replies == [{"n": 7, "sum": 3}]
    server.close()
    for channel in (good, bad):
        channel.close()


def _received(channel: socket.socket, replies: list[messages.Message | None]) -> bool:
    try:
        replies.append(messages.receive(channel)[0])
    except BlockingIOError:
        return False
    return True


async def test_a_process_of_another_user_is_refused(tmp_path: Path) -> None:
    loop = PollLoop()
    server = MessageServer(loop, _answer)
    server.listen(str(tmp_path), "socket", users=[os.geteuid() + 1])
    channel = Channel(connect(tmp_path / "socket"), "the server")
    loop.turn(PATIENCE)
    with pytest.raises(ChannelClosed, match=r"the server (has ended|does not answer)"):
        await channel.request({"op": "add", "first": 1, "second": 2})
    server.close()


def test_the_loop_of_a_parent_keeps_its_files_when_a_child_closes_its_own(tmp_path: Path) -> None:
    """Both have the same epoll file: what the child took out of it would be gone for its parent."""
    loop = PollLoop()
    server = MessageServer(loop, _answer)
    server.listen(str(tmp_path), "socket", users=[os.geteuid()])
    child = os.fork()
    if child == 0:
        loop.close()
        server.close()
        os._exit(0)
    os.waitpid(child, 0)
    with connect(tmp_path / "socket") as client:
        loop.turn(PATIENCE)
        messages.send(client, {"op": "add", "n": 1, "first": 1, "second": 1})
        loop.turn(PATIENCE)
        assert messages.receive(client)[0] == {"n": 1, "sum": 2}
    server.close()
