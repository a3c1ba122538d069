"""Watches over WebSocket: one message per event, and a proper end."""

from __future__ import annotations

import asyncio
import base64
import re
import struct

import orjson
import pytest
from tests.server.streaming.conftest import made
from tests.server.streaming.raw_client import KEY, SECONDS, Upgraded, upgraded

from pinnace.cluster.cluster import RunningCluster
from pinnace.kinds.golang.field_numbers import decode_answer
from pinnace.model.objects import Object
from pinnace.schema.golang.protobuf import read_event
from pinnace.server.streaming import websocket
from pinnace.serving.cache import watch_cache
from pinnace.serving.read import watch as watches

CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
WATCH = f"{CONFIG_MAPS}?watch=1&labelSelector=mine"
HANDSHAKE = f"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n"
ORIGIN = "Origin: http://page.example\r\n"
NORMAL_END = bytes((0x88, 2)) + struct.pack(">H", 1000)
TEXT, BINARY = 0x81, 0x82


def labelled(name: str, **data: str) -> Object:
    metadata = {"name": name, "labels": {"mine": ""}}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


async def event(client: Upgraded) -> tuple[str, str]:
    """Return the type of an event and its object. Read byte by byte, to check the frame."""
    async with asyncio.timeout(SECONDS):
        opcode, size = await client.reader.readexactly(2)
        if size == 126:
            (size,) = struct.unpack(">H", await client.reader.readexactly(2))
        assert (opcode, size < 126 or opcode == TEXT) == (TEXT, True)
        message = await client.reader.readexactly(size)
    assert message.endswith(b"\n")
    event = orjson.loads(message)
    return event["type"], event["object"]["metadata"].get("name", event["object"].get("reason", ""))


async def test_each_event_of_a_watch_is_a_message(cluster: RunningCluster) -> None:
    await made(cluster.plane, CONFIG_MAPS, labelled("one"))
    await made(cluster.plane, CONFIG_MAPS, labelled("two"))
    async with upgraded(cluster, WATCH, handshake=HANDSHAKE + ORIGIN) as watch:
        assert (watch.status, "sec-websocket-protocol" in watch.headers) == (101, False)
        assert [await event(watch), await event(watch)] == [("ADDED", "one"), ("ADDED", "two")]
        await asyncio.gather(*(made(cluster.plane, CONFIG_MAPS, labelled(f"many-{number}")) for number in range(5)))
        assert {await event(watch) for _ in range(5)} == {("ADDED", f"many-{number}") for number in range(5)}
        await cluster.plane.local().request("DELETE", f"{CONFIG_MAPS}/one")
        assert await event(watch) == ("DELETED", "one")


async def test_an_event_in_protobuf_is_a_binary_message(cluster: RunningCluster) -> None:
    await made(cluster.plane, CONFIG_MAPS, labelled("one", text="x" * 200))
    accept = "Accept: application/vnd.kubernetes.protobuf\r\n"
    async with upgraded(cluster, WATCH, handshake=HANDSHAKE + ORIGIN + accept) as watch, asyncio.timeout(SECONDS):
        assert await watch.reader.readexactly(2) == bytes((BINARY, 126))
        (size,) = struct.unpack(">H", await watch.reader.readexactly(2))
        # Without the length that stands before each event elsewhere.
        added = read_event(b"0000" + await watch.reader.readexactly(size))
    assert (added.type, decode_answer(added.body)["metadata"]["name"]) == ("ADDED", "one")


async def test_a_watch_that_is_over_says_so(cluster: RunningCluster) -> None:
    async with upgraded(cluster, f"{WATCH}&timeoutSeconds=1", handshake=HANDSHAKE + ORIGIN) as watch:
        assert await watch.rest() == NORMAL_END


async def test_a_watch_from_a_compacted_revision_gets_an_error_and_ends(
    cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_cache, "RECENT_EVENTS", 1)
    for name in ("one", "two", "three"):
        await made(cluster.plane, CONFIG_MAPS, labelled(name))
    await cluster.plane.store.compact(cluster.plane.store.revision)
    async with upgraded(cluster, f"{WATCH}&resourceVersion=1", handshake=HANDSHAKE + ORIGIN) as watch:
        assert await event(watch) == ("ERROR", "Expired")
        assert await watch.rest() == NORMAL_END


async def test_any_protocol_will_do_and_a_token_among_them_is_not_said_back(cluster: RunningCluster) -> None:
    token = base64.urlsafe_b64encode(cluster.access.token.encode()).decode().rstrip("=")
    protocols = f"Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.{token}, my.own\r\n"
    async with upgraded(cluster, WATCH, handshake=HANDSHAKE + ORIGIN + protocols) as watch:
        assert (watch.status, watch.headers["sec-websocket-protocol"]) == (101, "my.own")


@pytest.mark.parametrize(
    ("handshake", "code"),
    [
        (HANDSHAKE, 403),
        (HANDSHAKE + "Origin: null\r\n", 403),
        (HANDSHAKE + ORIGIN + "Sec-WebSocket-Protocol: one, two\r\n", 400),
        (HANDSHAKE.replace("13", "12") + ORIGIN, 400),
        (HANDSHAKE.replace(KEY, "") + ORIGIN, 400),
    ],
    ids=["no origin", "a null origin", "two protocols", "an old version", "no key"],
)
async def test_a_handshake_is_refused_as_kubernetes_refuses_it(
    cluster: RunningCluster, handshake: str, code: int
) -> None:
    async with upgraded(cluster, WATCH, handshake=handshake) as watch:
        assert watch.status == code


async def test_connections_that_are_given_away_are_counted_without_a_code(cluster: RunningCluster) -> None:
    watched = "/api/v1/namespaces/default/podtemplates?watch=1"  # The server itself watches none of these.
    before = await counted(cluster, "podtemplates")
    async with upgraded(cluster, watched, handshake=HANDSHAKE + ORIGIN) as watch:
        assert watch.status == 101
    async with upgraded(cluster, watched, handshake=HANDSHAKE) as watch:
        assert watch.status == 403
    async with upgraded(cluster, f"{watched}&labelSelector=a==b==c", handshake=HANDSHAKE + ORIGIN) as watch:
        assert watch.status == 400
    after = await counted(cluster, "podtemplates")
    changes = {code: after[code] - before.get(code, 0) for code in after}
    assert {code: count for code, count in changes.items() if count} == {"0": 2, "400": 1}


async def counted(cluster: RunningCluster, plural: str) -> dict[str, int]:
    """How many watches of a resource were answered with each code."""
    body = (await cluster.plane.local().request("GET", "/metrics")).body
    assert isinstance(body, bytes)
    line = r'^apiserver_request_total\{code="(\d+)",.*resource="(\w+)",.*verb="WATCH",.* (\d+)$'
    result = re.findall(line, body.decode(), re.MULTILINE)
    return {code: int(count) for code, about, count in result if about == plural}


async def test_an_upgrade_of_what_is_no_watch_is_answered_as_if_it_were_none(cluster: RunningCluster) -> None:
    async with upgraded(cluster, CONFIG_MAPS, handshake=HANDSHAKE + ORIGIN) as listing:
        assert (listing.status, listing.headers["content-type"]) == (200, "application/json")


@pytest.mark.parametrize(
    "frame",
    [bytes((0x88, 0x80, 0, 0, 0, 0)), bytes((0x82, 1, 0)), bytes((0x82, 0xFF)) + struct.pack(">Q", 1 << 40) + b"mask"],
    ids=["a close", "no mask", "a terabyte"],
)
async def test_a_watch_ends_when_its_client_leaves_or_breaks_the_protocol(
    cluster: RunningCluster, frame: bytes
) -> None:
    before = count_watchers(cluster)
    async with upgraded(cluster, WATCH, handshake=HANDSHAKE + ORIGIN) as watch:
        await until_watching(cluster, before + 1)
        watch.writer.write(b"\x81\x81maskx" + frame)  # Messages of the client are ignored.
        assert await watch.rest() == NORMAL_END
        await until_watching(cluster, before)


async def test_a_client_that_does_not_read_is_cut_off_and_forgotten(
    cluster: RunningCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watches, "MAX_BUFFERED", 256 * 1024)
    monkeypatch.setattr(websocket, "LINGER_SECONDS", 0.1)
    before = count_watchers(cluster)
    async with upgraded(cluster, WATCH, handshake=HANDSHAKE + ORIGIN) as watch:
        await until_watching(cluster, before + 1)
        watch.writer.transport.pause_reading()  # type: ignore[attr-defined]
        for number in range(40):
            await made(cluster.plane, CONFIG_MAPS, labelled(f"large-{number}", text="x" * 500_000))
            if count_watchers(cluster) == before:
                break
        await until_watching(cluster, before)


def count_watchers(cluster: RunningCluster) -> int:
    """Return the watches of this namespace: the server itself watches ConfigMaps of another."""
    return sum(watcher.namespace == "default" for _, watcher in cluster.plane.fanout.watchers())


async def until_watching(cluster: RunningCluster, count: int) -> None:
    async with asyncio.timeout(SECONDS):
        while count_watchers(cluster) != count:
            await asyncio.sleep(0)
