"""Peers that do not speak gRPC, or that want the memory and the time of this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from hpack import Encoder
from tests.process.grpc.echoes import ECHO, Part, Whole, serving

from pinnace.process.grpc import frames
from pinnace.process.grpc.errors import CallError
from pinnace.process.grpc.frames import FrameKind, Setting, frame
from pinnace.process.grpc.methods import Method, SocketChannel
from pinnace.process.grpc.server import GrpcServer

SECONDS = 30.0
HEADS = frames.END_HEADERS | frames.END_STREAM
BOMB = b"\x40\x01a\x7f\x80\x1e" + b"b" * 3967 + b"\xbe" * 12_000
"""A header of 4 kB that is put into the table, then named 12,000 times."""

ATTACKS = [
    pytest.param(b"GET / HTTP/1.1\r\n\r\n", id="another protocol"),
    pytest.param(frames.PREFACE + b"\xff" * 9, id="a frame of 16 MB"),
    pytest.param(frames.PREFACE + frame(FrameKind.SETTINGS, 0, 0, b"12345"), id="settings of five bytes"),
    pytest.param(frames.PREFACE + frame(FrameKind.HEADERS, frames.PADDED, 1, b""), id="no padding"),
    pytest.param(frames.PREFACE + frame(FrameKind.HEADERS, HEADS, 1, b"\xff\xff\xff\xff\xff"), id="no HPACK"),
    pytest.param(frames.PREFACE + frame(FrameKind.HEADERS, HEADS, 1, BOMB[:16384]), id="a bomb of headers"),
    pytest.param(
        frames.PREFACE + frame(FrameKind.HEADERS, 0, 1, b"") + frame(FrameKind.CONTINUATION, 0, 1, b"\x00" * 16384) * 5,
        id="headers without an end",
    ),
    pytest.param(
        frames.PREFACE + frame(FrameKind.HEADERS, 0, 1, b"") + frame(FrameKind.PING, 0, 0, b"12345678"),
        id="interrupted headers",
    ),
    pytest.param(frames.PREFACE + frame(FrameKind.RST_STREAM, 0, 1, b"\0\0\0\1") * 1001, id="too many resets"),
]


@pytest.mark.parametrize("data", ATTACKS)
async def test_a_hostile_client_is_disconnected_and_others_are_served(tmp_path: Path, data: bytes) -> None:
    async with serving(tmp_path / "s"):
        reader, writer = await asyncio.open_unix_connection(tmp_path / "s")
        writer.write(data)
        async with asyncio.timeout(SECONDS):
            with pytest.raises((ConnectionError, EOFError)):
                await reader.readexactly(1 << 20)
        writer.close()
        channel = SocketChannel(tmp_path / "s")
        assert (await channel.call(ECHO, Whole(name="x"), seconds=SECONDS)).name == "x"
        channel.close()


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 20, id="another protocol"),
        pytest.param(b"\xff" * 9, id="a frame of 16 MB"),
        pytest.param(frame(FrameKind.SETTINGS, 0, 0, b"12345"), id="settings of five bytes"),
        pytest.param(frame(FrameKind.HEADERS, HEADS, 1, b"\xff\xff\xff\xff\xff"), id="no HPACK"),
        pytest.param(
            frame(FrameKind.HEADERS, 0, 1, b"") + frame(FrameKind.CONTINUATION, 0, 1, b"\0" * 16384) * 5, id="endless"
        ),
        pytest.param(frame(FrameKind.HEADERS, HEADS, 1, b"\x88"), id="no status of gRPC"),
        pytest.param(frame(FrameKind.DATA, frames.END_STREAM, 1, b"\0\0\0\0\1\xff"), id="no headers"),
        pytest.param(frame(FrameKind.DATA, 0, 1, b"\0\xff\xff\xff\xff"), id="a message of 4 GB"),
        pytest.param(frame(FrameKind.DATA, 0, 1, b"\1\0\0\0\0"), id="a compressed message"),
        pytest.param(frame(FrameKind.GOAWAY, 0, 0, b"\0" * 8), id="no more calls"),
        pytest.param(b"", id="the end of the connection"),
    ],
)
async def test_a_hostile_server_fails_the_call_alone(tmp_path: Path, data: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"application/grpc")
        writer.write(data)
        if not data:
            writer.close()

    server = await asyncio.start_unix_server(serve, tmp_path / "s")
    channel = SocketChannel(tmp_path / "s", largest_message=1 << 20)
    with pytest.raises(CallError):
        await channel.call(Method("test.Echoes", "Echo", Part, Part), Part(), seconds=SECONDS)
    channel.close()
    server.close()


async def test_a_stream_that_is_not_read_ends(tmp_path: Path) -> None:
    endless = Method("test.Echoes", "Count", Part, Part, streams=True)
    async with serving(tmp_path / "s"):
        channel = SocketChannel(tmp_path / "s")
        stream = channel.stream(endless, Part(size=10_000))
        first = await anext(stream)
        while len(asyncio.all_tasks()) > 1:  # The server has sent all that it will.
            await asyncio.sleep(0)
        with pytest.raises(CallError, match="faster than it is read"):
            while True:
                first = await anext(stream)
        assert first.size < 1000
        channel.close()


async def test_a_server_keeps_little_for_a_peer_that_grants_much_and_reads_nothing(tmp_path: Path) -> None:
    endless = Method("test.Echoes", "Count", Part, Part, streams=True)
    sent = 0

    async def count(_: Part) -> AsyncGenerator[Part, None]:
        nonlocal sent
        while True:
            sent += 1
            yield Part(name="x" * 1000)

    server = GrpcServer({endless: count})
    await server.open(tmp_path / "s")
    _, writer = await asyncio.open_unix_connection(tmp_path / "s", limit=1)
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    head = Encoder().encode([(":method", "POST"), (":path", endless.path), ("content-type", "application/grpc")])
    grant = (frames.LARGEST_WINDOW - frames.FIRST_WINDOW).to_bytes(4, "big")
    writer.write(frames.PREFACE + frames.settings_frame((Setting.INITIAL_WINDOW_SIZE, frames.LARGEST_WINDOW)))
    writer.write(frame(FrameKind.WINDOW_UPDATE, 0, 0, grant) + frame(FrameKind.HEADERS, frames.END_HEADERS, 1, head))
    writer.write(frame(FrameKind.DATA, frames.END_STREAM, 1, frames.message_frame_data(Part().encode())))
    before = -1
    while not 0 < sent == before:
        before = sent
        for _ in range(100):
            await asyncio.sleep(0)
    assert sent * 1000 < 2 << 20
    writer.close()
    await server.close()
