"""Calls between our client and our server, and beside a peer that speaks HTTP/2 by another library."""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import AsyncIterator
from pathlib import Path

import h2.connection
import h2.events
import h2.settings
import pytest
from tests.process.grpc.echoes import COUNT, ECHO, FAIL, HANG, MISSING, Echoes, Part, Whole, serving

from pinnace.process.grpc.errors import GrpcCode, GrpcError, PeerLost
from pinnace.process.grpc.methods import SocketChannel

SECONDS = 30.0


@pytest.fixture
async def service(tmp_path: Path) -> AsyncIterator[Echoes]:
    async with serving(tmp_path / "s") as service:
        yield service


@pytest.fixture
async def channel(service: Echoes, tmp_path: Path) -> AsyncIterator[SocketChannel]:
    channel = SocketChannel(tmp_path / "s")
    yield channel
    channel.close()


async def test_large_and_many_messages_arrive(channel: SocketChannel) -> None:
    large = Whole(name="x" * 3_000_000)
    answers = await asyncio.gather(
        *(channel.call(ECHO, Whole(name=str(number)), seconds=SECONDS) for number in range(50)),
        channel.call(ECHO, large, seconds=SECONDS),
    )
    assert [answer.name for answer in answers[:50]] == [str(number) for number in range(50)]
    assert answers[50] == large


async def test_a_stream_yields_each_message(channel: SocketChannel) -> None:
    assert [part.size async for part in channel.stream(COUNT, Part(size=5))] == [0, 1, 2, 3, 4]
    assert [part async for part in channel.stream(COUNT, Part())] == []


async def test_errors_arrive_with_code_and_message(channel: SocketChannel) -> None:
    failures = []
    for method, request in ((FAIL, Part(name="100 % gone: ü\n")), (FAIL, Part()), (MISSING, Part())):
        with pytest.raises(GrpcError) as failed:
            await channel.call(method, request, seconds=SECONDS)
        failures.append(failed.value)
    assert [(error.code, error.message) for error in failures] == [
        (GrpcCode.NOT_FOUND, "100 % gone: ü\n"),
        (GrpcCode.UNKNOWN, "RuntimeError: a fault of the author"),
        (GrpcCode.UNIMPLEMENTED, "unknown method Missing for service test.Echoes"),
    ]
    assert failures[2].in_go == (
        "rpc error: code = Unimplemented desc = unknown method Missing for service test.Echoes"
    )


async def test_a_call_ends_with_its_deadline_on_both_sides(channel: SocketChannel, service: Echoes) -> None:
    with pytest.raises(GrpcError) as failed:
        await channel.call(HANG, Part(), seconds=0.3)
    assert failed.value.code == GrpcCode.DEADLINE_EXCEEDED
    await service.cancelled.wait()


async def test_a_call_ends_with_its_connection(channel: SocketChannel, service: Echoes) -> None:
    waiting = asyncio.ensure_future(channel.call(HANG, Part(), seconds=SECONDS))
    await service.hanging.wait()
    channel.close()
    with pytest.raises(PeerLost):
        await waiting
    await service.cancelled.wait()
    assert (await channel.call(ECHO, Whole(name="again"), seconds=SECONDS)).name == "again"


async def test_a_missing_server_is_named(tmp_path: Path) -> None:
    with pytest.raises(PeerLost, match=r"dial unix .*/none: connect: no such file or directory"):
        await SocketChannel(tmp_path / "none").call(ECHO, Whole(), seconds=SECONDS)


async def test_messages_over_the_limit_are_refused_on_both_sides(tmp_path: Path) -> None:
    async with serving(tmp_path / "s", largest_message=1000):
        channel = SocketChannel(tmp_path / "s", largest_message=100)
        for size, limit in ((2000, 1000), (500, 100)):
            with pytest.raises(GrpcError, match=rf"received message larger than max \(\d+ vs. {limit}\)") as failed:
                await channel.call(ECHO, Whole(name="x" * size), seconds=SECONDS)
            assert failed.value.code == GrpcCode.RESOURCE_EXHAUSTED
        assert (await channel.call(ECHO, Whole(name="small"), seconds=SECONDS)).name == "small"
        channel.close()


async def test_a_socket_with_a_long_path_belongs_to_its_user(tmp_path: Path) -> None:
    directory = tmp_path / ("d" * 120)
    directory.mkdir()
    async with serving(directory / "s"):
        channel = SocketChannel(directory / "s")
        assert (await channel.call(ECHO, Whole(name="x"), seconds=SECONDS)).name == "x"
        assert stat.S_IMODE(os.stat(directory / "s").st_mode) == 0o600
        channel.close()
    async with serving(directory / "s"):
        pass  # It takes the place of the socket that was left.
    (tmp_path / "file").write_text("precious")
    with pytest.raises(FileExistsError):
        async with serving(tmp_path / "file"):
            pass
    assert (tmp_path / "file").read_text() == "precious"


async def test_another_library_calls_with_compressed_headers_and_small_windows(service: Echoes, tmp_path: Path) -> None:
    peer = h2.connection.H2Connection()
    peer.initiate_connection()
    peer.update_settings({h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: 10})
    reader, writer = await asyncio.open_unix_connection(tmp_path / "s")
    headers = [(":method", "POST"), (":scheme", "http"), (":path", ECHO.path), (":authority", "x")]
    body = Whole(name="y" * 100).encode()
    for stream in (1, 3):  # The second has its headers from the table of the connection.
        peer.send_headers(stream, [*headers, ("content-type", "application/grpc"), ("te", "trailers")])
        peer.send_data(stream, b"\0" + len(body).to_bytes(4, "big") + body, end_stream=True)
    bodies = {1: b"", 3: b""}
    statuses: dict[int, bytes] = {}
    while len(statuses) < 2:
        writer.write(peer.data_to_send())
        for event in peer.receive_data(await reader.read(65536)):
            if isinstance(event, h2.events.DataReceived):
                bodies[event.stream_id] += event.data
                peer.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
            elif isinstance(event, h2.events.TrailersReceived):
                statuses[event.stream_id] = dict(event.headers)[b"grpc-status"]
    writer.close()
    assert statuses == {1: b"0", 3: b"0"}
    assert {Whole.decode(data[5:]).name for data in bodies.values()} == {"y" * 100}


async def test_a_server_removes_its_own_socket_and_not_that_of_a_later_one(tmp_path: Path) -> None:
    async with serving(tmp_path / "s"):
        async with serving(tmp_path / "s"):
            later = (tmp_path / "s").lstat().st_ino
            (tmp_path / "s").rename(tmp_path / "later")
        (tmp_path / "later").rename(tmp_path / "s")
        assert later == (tmp_path / "s").lstat().st_ino
    assert (tmp_path / "s").exists()
    (tmp_path / "s").unlink()
    async with serving(tmp_path / "s"):
        assert (tmp_path / "s").is_socket()
    assert not (tmp_path / "s").exists()
