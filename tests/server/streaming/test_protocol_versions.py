"""Every protocol version of clients: negotiation, and how each reports errors and the end."""

from __future__ import annotations

import asyncio
import base64
import struct
from urllib.parse import quote

import orjson
import pytest
from tests.server.streaming.process_node import ProcessNode
from tests.server.streaming.raw_client import PODS, SECONDS, messages, upgraded

from pinnace.cluster.cluster import RunningCluster
from pinnace.server.streaming.spdy import SpdySession, SpdyStream

pytestmark = pytest.mark.usefixtures("node")

FAILING = f"{PODS}/web/exec?command=sh&command=-c&command={quote('echo out; echo err >&2; exit 3')}&stdout=1&stderr=1"
ECHOING = f"{PODS}/web/exec?command=cat&stdin=1&stdout=1"
STATUS = {
    "metadata": {},
    "status": "Failure",
    "message": "command terminated with non-zero exit code: command terminated with exit code 3",
    "reason": "NonZeroExitCode",
    "details": {"causes": [{"reason": "ExitCode", "message": "3"}]},
}


@pytest.mark.parametrize("protocol", ["v5.channel.k8s.io", "v4.channel.k8s.io"])
async def test_newer_websockets_tell_the_exit_code(cluster: RunningCluster, protocol: str) -> None:
    async with upgraded(cluster, FAILING, protocols=[protocol]) as client:
        assert (client.status, client.headers["sec-websocket-protocol"]) == (101, protocol)
        received = await messages(client.socket())
    assert (received[1], received[2]) == (b"out\n", b"err\n")
    assert orjson.loads(received[3]) == STATUS


@pytest.mark.parametrize("protocol", ["channel.k8s.io", "v2.channel.k8s.io", "v3.channel.k8s.io", ""])
async def test_older_websockets_tell_a_sentence(cluster: RunningCluster, protocol: str) -> None:
    async with upgraded(cluster, FAILING, protocols=[protocol] if protocol else []) as client:
        assert client.headers.get("sec-websocket-protocol", "") == protocol
        received = await messages(client.socket())
    assert received == {1: b"out\n", 2: b"err\n", 3: str(STATUS["message"]).encode()}


@pytest.mark.parametrize("protocol", ["base64.channel.k8s.io", "v4.base64.channel.k8s.io"])
async def test_browsers_may_speak_base64(cluster: RunningCluster, protocol: str) -> None:
    async with upgraded(cluster, ECHOING, protocols=[protocol]) as client:
        socket = client.socket()
        assert await socket.receive() == b"1"
        socket.send(b"0not base64!")  # Is not heard.
        socket.send(b"0" + base64.b64encode(b"hello"))
        assert await socket.receive() == b"1" + base64.b64encode(b"hello")


async def test_the_first_protocol_of_the_client_that_is_spoken_is_chosen(cluster: RunningCluster) -> None:
    offered = ["v9.channel.k8s.io", "v4.channel.k8s.io", "v5.channel.k8s.io"]
    async with upgraded(cluster, ECHOING, protocols=offered) as client:
        assert client.headers["sec-websocket-protocol"] == "v4.channel.k8s.io"


@pytest.mark.parametrize("is_spdy", [False, True], ids=["websocket", "spdy"])
async def test_an_unknown_subprotocol_is_refused_with_the_known_ones(cluster: RunningCluster, is_spdy: bool) -> None:
    async with upgraded(cluster, ECHOING, protocols=["v9.channel.k8s.io"], is_spdy=is_spdy) as client:
        assert client.status == 403
        received = await client.message()
    assert "v9.channel.k8s.io" in received and "v4.channel.k8s.io" in received


async def test_version_five_closes_the_input_alone(cluster: RunningCluster) -> None:
    async with upgraded(cluster, ECHOING, protocols=["v5.channel.k8s.io"]) as client:
        socket = client.socket()
        socket.send(b"\x00hello")
        socket.send(bytes((255, 0)))
        received = await messages(socket)
    assert received[1] == b"hello"
    assert orjson.loads(received[3]) == {"metadata": {}, "status": "Success"}


async def test_before_version_five_the_signal_to_close_is_only_a_channel(
    cluster: RunningCluster, node: ProcessNode
) -> None:
    async with upgraded(cluster, ECHOING, protocols=["v4.channel.k8s.io"]) as client:
        socket = client.socket()
        socket.send(bytes((255, 0)))
        socket.send(b"\x00still heard")
        assert await socket.receive() == b"\x01"
        assert await socket.receive() == b"\x01still heard"
        socket.close()
        await node.until(lambda: node.ended == ["cancelled"])


async def _all(stream: SpdyStream) -> bytes:
    pieces = []
    while piece := await stream.read(1 << 16):
        pieces.append(piece)
    return b"".join(pieces)


async def _opened(session: SpdySession, *kinds: str) -> dict[str, SpdyStream]:
    return {kind: await session.open({"streamType": kind}) for kind in kinds}


@pytest.mark.parametrize(
    "protocol", ["v4.channel.k8s.io", "v3.channel.k8s.io", "v2.channel.k8s.io", "channel.k8s.io", ""]
)
async def test_every_version_of_spdy_tells_how_a_command_ended(cluster: RunningCluster, protocol: str) -> None:
    async with upgraded(cluster, FAILING, protocols=[protocol] if protocol else [], is_spdy=True) as client:
        assert (client.status, client.headers.get("x-stream-protocol-version", "")) == (101, protocol)
        session = client.session()
        reading = asyncio.ensure_future(session.run())
        streams = await _opened(session, "error", "stdout", "stderr")
        async with asyncio.timeout(SECONDS):
            assert await _all(streams["stdout"]) == b"out\n"
            assert await _all(streams["stderr"]) == b"err\n"
            received = await _all(streams["error"])
        reading.cancel()
    assert (
        orjson.loads(received) == STATUS if protocol.startswith("v4") else received == str(STATUS["message"]).encode()
    )


async def test_a_stream_that_was_not_asked_for_is_refused(cluster: RunningCluster) -> None:
    async with upgraded(cluster, FAILING, protocols=["v4.channel.k8s.io"], is_spdy=True) as client:
        session = client.session()
        reading = asyncio.ensure_future(session.run())
        with pytest.raises(ConnectionError):
            await session.open({"streamType": "stdin"})
        reading.cancel()


async def test_ports_may_be_named_beforehand_over_a_websocket(cluster: RunningCluster) -> None:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"echo " + await reader.readline())
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    target = f"{PODS}/web/portforward?ports={port}&ports=1"
    async with server, upgraded(cluster, target, protocols=["v4.channel.k8s.io"]) as client:
        socket = client.socket()
        socket.send(b"\x00hello\n")
        received = await messages(socket)
    named, other = struct.pack("<H", port), struct.pack("<H", 1)
    assert (received[0], received[1], received[2]) == (named + b"echo hello\n", named, other)
    assert received[3].startswith(other + b"error forwarding port 1 to pod web") and received[3].endswith(b"refused")


async def test_logs_may_be_followed_over_a_websocket(cluster: RunningCluster, node: ProcessNode) -> None:
    node.lines["main"] = [b"one\n"]
    async with upgraded(cluster, f"{PODS}/web/log?follow=1", protocols=["binary.k8s.io"]) as client:
        socket = client.socket()
        assert await socket.receive() == b"one\n"
        await node.say("main", b"two\n")
        assert await socket.receive() == b"two\n"
        socket.close()
        await node.until(lambda: node.ended == ["log"])
    async with upgraded(cluster, f"{PODS}/web/log", protocols=["base64.binary.k8s.io"]) as client:
        socket = client.socket()
        received = [await socket.receive(), await socket.receive(), await socket.receive()]
    assert received == [base64.b64encode(b"one\n"), base64.b64encode(b"two\n"), None]


async def test_a_token_may_come_as_a_protocol_since_browsers_set_no_headers(cluster: RunningCluster) -> None:
    token = base64.urlsafe_b64encode(cluster.access.token.encode()).decode().rstrip("=")
    protocols = [f"base64url.bearer.authorization.k8s.io.{token}", "v4.channel.k8s.io"]
    async with upgraded(cluster, ECHOING, protocols=protocols) as client:
        assert (client.status, client.headers["sec-websocket-protocol"]) == (101, "v4.channel.k8s.io")
