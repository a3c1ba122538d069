"""Clients that break the protocol, vanish or flood hurt neither the server nor leave a command behind."""

from __future__ import annotations

import asyncio
import struct
import zlib

import pytest
from tests.server.streaming.process_node import ProcessNode
from tests.server.streaming.raw_client import KEY, PODS, SECONDS, upgraded

from pinnace.cluster.cluster import RunningCluster
from pinnace.server.streaming import exec, websocket
from pinnace.server.streaming import spdy_frames as frames

ECHOING = f"{PODS}/web/exec?command=cat&stdin=1&stdout=1"
SLEEPING = f"{PODS}/web/exec?command=sleep&command=1000&stdin=1&stdout=1"
V5 = ["v5.channel.k8s.io"]
V4 = ["v4.channel.k8s.io"]
GREETING = bytes((0x82, 1, 1))
MASK = b"\x01\x02\x03\x04"


def closed_with(code: int) -> bytes:
    return bytes((0x88, 2)) + struct.pack(">H", code)


BAD_FRAMES = {
    "no mask": (bytes((0x82, 1, 0)), 1002),
    "a reserved bit": (bytes((0xC2, 0x81)) + MASK + b"x", 1002),
    "an unknown opcode": (bytes((0x83, 0x81)) + MASK + b"x", 1002),
    "a continuation of nothing": (bytes((0x80, 0x81)) + MASK + b"x", 1002),
    "a message within a message": (bytes((0x02, 0x81)) + MASK + b"x" + bytes((0x82, 0x81)) + MASK + b"x", 1002),
    "a ping in pieces": (bytes((0x09, 0x81)) + MASK + b"x", 1002),
    "a long ping": (bytes((0x89, 0x80 | 126)) + struct.pack(">H", 200), 1002),
    "a message of a terabyte": (bytes((0x82, 0x80 | 127)) + struct.pack(">Q", 1 << 40) + MASK, 1009),
    "a message that is too large in pieces": (
        bytes((0x02, 0x80 | 127))
        + struct.pack(">Q", 1 << 20)
        + MASK
        + b"x" * (1 << 20)
        + bytes((0x00, 0x80 | 127))
        + struct.pack(">Q", (32 << 20) - 1)
        + MASK,
        1009,
    ),
    "a signal to close without a channel": (bytes((0x82, 0x81)) + MASK + bytes((255 ^ MASK[0],)), 1002),
}


@pytest.mark.parametrize(("frame", "code"), BAD_FRAMES.values(), ids=BAD_FRAMES)
async def test_a_websocket_that_breaks_the_rules_is_closed_and_its_command_ended(
    cluster: RunningCluster, node: ProcessNode, frame: bytes, code: int
) -> None:
    async with upgraded(cluster, SLEEPING, protocols=V5) as client:
        client.writer.write(frame)
        assert await client.rest() == GREETING + closed_with(code)
        await node.until(lambda: node.ended == ["cancelled"])
    await _is_well(cluster)


def _syn(number: int, headers: bytes) -> bytes:
    return frames.syn_stream(number, headers)


def _packed(block: bytes) -> bytes:
    packer = zlib.compressobj(zdict=frames._DICTIONARY)
    return packer.compress(block) + packer.flush(zlib.Z_SYNC_FLUSH)


STDIN = frames.HeaderPacker().pack({"streamType": "stdin"})
BAD_SESSIONS = {
    "junk": b"\xff" * 64,
    "another version": struct.pack(">HHI", 0x8002, 1, 10) + b"x" * 10,
    "headers that are not packed": _syn(1, b"not zlib at all"),
    "headers that unpack to much": _syn(1, _packed(b"\x00" * (64 << 20))[:200_000]),
    "more headers than there are": _syn(1, _packed(struct.pack(">I", 1 << 31))),
    "a header longer than its block": _syn(1, _packed(struct.pack(">III", 1, 1 << 30, 5))),
    "a control frame of 16 MiB": struct.pack(">HHI", 0x8003, 1, 0xFFFFFF),
    "a stream with an even number": _syn(2, STDIN),
    "the same stream twice": _syn(1, STDIN) + _syn(1, STDIN),
    "an unknown kind of frame": frames.control(77, 0, b""),
    "a short ping": frames.control(frames.PING, 0, b"x"),
    "a short reset": frames.control(frames.RST_STREAM, 0, b""),
}


@pytest.mark.parametrize("reply", BAD_SESSIONS.values(), ids=BAD_SESSIONS)
async def test_a_spdy_session_that_breaks_the_rules_is_closed(
    cluster: RunningCluster, node: ProcessNode, reply: bytes
) -> None:
    async with upgraded(cluster, ECHOING, protocols=V4, is_spdy=True) as client:
        client.writer.write(reply)
        await client.rest()
    assert node.calls == []
    await _is_well(cluster)


@pytest.mark.usefixtures("node")
async def test_spdy_frames_that_mean_nothing_here_are_passed_over(cluster: RunningCluster) -> None:
    packer = frames.HeaderPacker()
    streams = [
        frames.syn_stream(1 + 2 * index, packer.pack({"streamType": kind}))
        for index, kind in enumerate(("error", "stdin", "stdout"))
    ]
    noise = [
        frames.control(frames.SETTINGS, 0, struct.pack(">III", 1, 4, 100)),
        frames.control(frames.WINDOW_UPDATE, 0, struct.pack(">II", 1, 1000)),
        frames.control(frames.HEADERS, 0, struct.pack(">I", 3) + packer.pack({"any": "thing"})),
        frames.data(99, b"for no stream"),
        frames.rst_stream(77, 1),
        frames.ping(1),
    ]
    async with upgraded(cluster, ECHOING, protocols=V4, is_spdy=True) as client:
        client.writer.write(b"".join([*streams, *noise, frames.data(3, b"hello", flags=frames.FIN)]))
        reply = await asyncio.wait_for(client.reader.readuntil(b"Success"), SECONDS)
    assert frames.ping(1) in reply
    assert frames.data(5, b"hello") in reply


@pytest.mark.parametrize("is_spdy", [False, True], ids=["websocket", "spdy"])
async def test_a_client_that_vanishes_while_the_command_does_not_read_is_noticed(
    cluster: RunningCluster, node: ProcessNode, monkeypatch: pytest.MonkeyPatch, is_spdy: bool
) -> None:
    """The server has stopped reading by then: it notices when it writes."""
    monkeypatch.setattr(websocket, "PING_SECONDS", 0.05)
    async with upgraded(cluster, SLEEPING, protocols=V4, is_spdy=is_spdy) as client:
        if is_spdy:
            packer = frames.HeaderPacker()
            for index, kind in enumerate(("error", "stdin", "stdout")):
                client.writer.write(frames.syn_stream(1 + 2 * index, packer.pack({"streamType": kind})))
            client.writer.write(frames.data(3, b"x" * (4 << 20)))
        else:
            socket = client.socket()
            for _ in range(64):
                socket.send(b"\x00" + b"x" * (1 << 16))
        await node.until(lambda: len(node.calls) == 1)
    await node.until(lambda: node.ended == ["cancelled"])


async def test_a_client_that_does_not_read_holds_up_its_own_command_alone(
    cluster: RunningCluster, node: ProcessNode
) -> None:
    flood = f"{PODS}/web/exec?command=cat&command=/dev/zero&stdout=1"
    async with upgraded(cluster, flood, protocols=V5) as client:
        await node.until(lambda: len(node.calls) == 1)
        async with upgraded(cluster, ECHOING, protocols=V5) as other:
            socket = other.socket()
            socket.send(b"\x00hello")
            assert await socket.receive() == b"\x01"
            assert await asyncio.wait_for(socket.receive(), SECONDS) == b"\x01hello"
        client.writer.transport.abort()
    await node.until(lambda: sorted(node.ended) == ["cancelled", "cancelled"])


async def test_a_client_that_never_opens_its_streams_is_disconnected(
    cluster: RunningCluster, node: ProcessNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exec, "STREAM_SECONDS", 0.05)
    monkeypatch.setattr(exec, "LINGER_SECONDS", 0.05)
    async with upgraded(cluster, ECHOING, protocols=V4, is_spdy=True) as client:
        assert await client.rest() == b""
    assert node.calls == []


@pytest.mark.parametrize(
    ("handshake", "why"),
    [
        (f"Sec-WebSocket-Version: 12\r\nSec-WebSocket-Key: {KEY}\r\n", "Sec-WebSocket-Version must be 13"),
        ("Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: short\r\n", "Sec-WebSocket-Key must be sixteen bytes"),
        ("Sec-WebSocket-Version: 13\r\n", "Sec-WebSocket-Key must be sixteen bytes"),
    ],
    ids=["another version of WebSocket", "a bad key", "no key"],
)
async def test_a_bad_handshake_is_refused(cluster: RunningCluster, node: ProcessNode, handshake: str, why: str) -> None:
    async with upgraded(cluster, ECHOING, handshake=f"Upgrade: websocket\r\n{handshake}") as client:
        assert client.status == 400
        assert why in await client.message()
    assert node.calls == []


async def _is_well(cluster: RunningCluster) -> None:
    """The server answers others as if nothing had been."""
    async with upgraded(cluster, ECHOING, protocols=V5) as client:
        assert client.status == 101
