"""In process and over the wire: the same request gets the same answer."""

from __future__ import annotations

import asyncio
import json
import ssl
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.server.in_process import CONFIG_MAPS, MERGE, PODS, TABLE, InProcess, Reply, config_map, pod, reply_of

from pinnace.cluster.cluster import RunningCluster, running
from pinnace.cluster.settings import Settings
from pinnace.serving.local_streams import LocalStream

OWN = frozenset(("date", "audit-id", "content-length", "connection", "transfer-encoding"))
"""Headers that each answer has for itself."""


@pytest.fixture
async def cluster() -> AsyncIterator[RunningCluster]:
    async with running(Settings(controllers=False)) as cluster:
        yield cluster


class Wire:
    """One TLS connection with the admin's token."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str) -> None:
        self.reader, self.writer, self._token = reader, writer, token

    @classmethod
    async def to(cls, cluster: RunningCluster) -> Wire:
        context = ssl.create_default_context(cadata=cluster.access.ca.decode())
        reader, writer = await asyncio.open_connection("127.0.0.1", cluster.server.port, ssl=context, limit=64 << 20)
        return cls(reader, writer, cluster.access.token)

    async def call(self, method: str, target: str, body: bytes = b"", **headers: str) -> Reply:
        self.writer.write(self.head(method, target, len(body), headers) + body)
        return await self.reply(method)

    def head(self, method: str, target: str, length: int, headers: dict[str, str]) -> bytes:
        lines = [f"{method} {target} HTTP/1.1", "host: localhost", f"authorization: Bearer {self._token}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        return "\r\n".join([*lines, f"content-length: {length}", "", ""]).encode()

    async def reply(self, method: str = "GET") -> Reply:
        async with asyncio.timeout(60):
            lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            pairs = [line.split(": ", 1) for line in lines[1:] if line]
            headers = [(name.lower(), value) for name, value in pairs]
            length = int(dict(headers).get("content-length", "0"))
            body = await self.reader.readexactly(length) if method != "HEAD" else b""
            return Reply(int(lines[0].split()[1]), headers, body)

    def close(self) -> None:
        self.writer.transport.abort()


JSON_BODY = {"content_type": "application/json"}
REQUESTS: list[tuple[str, str, Any, dict[str, str]]] = [
    ("GET", f"{CONFIG_MAPS}/settings", None, {}),
    ("GET", CONFIG_MAPS, None, {}),
    ("GET", f"{CONFIG_MAPS}?limit=1", None, {}),
    ("GET", f"{PODS}", None, {"accept": TABLE}),
    ("GET", f"{PODS}/web", None, {"accept": "application/yaml"}),
    ("GET", f"{CONFIG_MAPS}?pretty=true", None, {}),
    ("GET", f"{CONFIG_MAPS}?labelSelector=a%20in%20(", None, {}),
    ("GET", f"{CONFIG_MAPS}/nothing", None, {}),
    ("GET", "/api/v1/namespaces/default/foos", None, {}),
    ("GET", "/foo", None, {}),
    ("GET", "/version", None, {}),
    ("GET", "/apis", None, {}),
    ("GET", "/openapi/v3/apis/apps/v1", None, {"accept_encoding": "gzip"}),
    ("GET", "/readyz?verbose", None, {}),
    ("POST", f"{CONFIG_MAPS}?dryRun=All", b"[", JSON_BODY),
    ("POST", CONFIG_MAPS, config_map(), JSON_BODY),
    ("PATCH", f"{CONFIG_MAPS}/settings", {"bogus": 1}, {"content_type": MERGE}),
    ("PUT", f"{CONFIG_MAPS}/settings", config_map(resourceVersion="1"), JSON_BODY),
    ("DELETE", f"{CONFIG_MAPS}/settings?dryRun=All", None, {}),
    ("PATCH", f"{CONFIG_MAPS}/settings", {}, {"content_type": "x/y"}),
]


async def test_the_wire_and_the_process_get_the_same_answers(cluster: RunningCluster) -> None:
    local = cluster.plane.local()
    api = InProcess(cluster.plane)
    await api.made(CONFIG_MAPS, config_map(data={"a": "1"}))
    await api.made(PODS, pod())
    wire = await Wire.to(cluster)
    for method, target, body, headers in REQUESTS:
        raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        for _ in range(10):  # The server itself may write between the two: a list has another revision then.
            over_wire = await wire.call(method, target, raw, **headers)
            in_process = reply_of(await local.request(method, target, raw, sent))
            if method != "GET" or in_process.body == over_wire.body:
                break
        where = f"{method} {target}"
        assert in_process.status == over_wire.status, where
        assert in_process.body == over_wire.body, where
        ours, theirs = (
            sorted((name, value) for name, value in reply.headers if name not in OWN)
            for reply in (in_process, over_wire)
        )
        assert ours == theirs, where
    wire.close()


async def test_a_watch_of_the_wire_and_of_the_process_gets_the_same_bytes(cluster: RunningCluster) -> None:
    api = InProcess(cluster.plane)
    wire = await Wire.to(cluster)
    target = f"{CONFIG_MAPS}?watch=1&fieldSelector=metadata.name%3Dsettings&timeoutSeconds=1"
    wire.writer.write(wire.head("GET", target, 0, {}))
    head = await wire.reader.readuntil(b"\r\n\r\n")
    stream = await cluster.plane.local().stream(target)
    assert isinstance(stream, LocalStream)
    await api.made(CONFIG_MAPS, config_map())
    await api.delete(f"{CONFIG_MAPS}/settings")
    chunks = b""
    while size := int(await wire.reader.readline(), 16):
        chunks += (await wire.reader.readexactly(size + 2))[:-2]
    assert b"200 OK" in head
    assert b"".join([chunk async for chunk in stream]) == chunks
    assert chunks.count(b"\n") == 2
    wire.close()


async def test_a_head_is_a_get_without_its_body(cluster: RunningCluster) -> None:
    wire = await Wire.to(cluster)
    got = await wire.call("GET", "/apis")
    head = await wire.call("HEAD", "/apis")
    assert (head.status, head.body, head.header("content-length")) == (200, b"", got.header("content-length"))
    wire.close()


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("HEAD", "/api/v1/namespaces/default", 405),
        ("HEAD", "/api/v1", 405),
        ("POST", "/version", 405),
        ("POST", "/apis/apps/v1", 405),
        ("POST", "/apis/apps", 200),
        ("DELETE", "/metrics", 200),
        ("OPTIONS", "/", 200),
        ("POST", "/nothing", 404),
        ("POST", "/apis/apps/v9", 404),
        ("POST", "/apis/nothing", 404),
    ],
)
async def test_pages_are_shown_by_any_method_but_discovery_and_objects_only_by_their_own(
    cluster: RunningCluster, method: str, path: str, status: int
) -> None:
    wire = await Wire.to(cluster)
    assert (await wire.call(method, path)).status == status
    wire.close()


async def test_a_body_of_more_than_three_mebibytes_is_refused_and_not_stored(cluster: RunningCluster) -> None:
    wire = await Wire.to(cluster)
    body = json.dumps(config_map(data={"a": "x" * (3 << 20)})).encode()
    wire.writer.write(wire.head("POST", CONFIG_MAPS, len(body), {"content-type": "application/json"}) + body)
    reply = await wire.reply()
    assert (reply.status, reply.json["reason"]) == (413, "RequestEntityTooLarge")
    assert (await InProcess(cluster.plane).get(f"{CONFIG_MAPS}/settings")).status == 404
    wire.close()


async def test_an_object_of_more_than_a_mebibyte_is_a_matter_of_its_kind(cluster: RunningCluster) -> None:
    reply = await InProcess(cluster.plane).post(CONFIG_MAPS, config_map(data={"a": "x" * (1 << 20) + "x"}))
    assert (reply.status, "Too long" in reply.message) == (422, True)


async def test_an_unknown_token_is_refused_and_no_token_is_anonymous(cluster: RunningCluster) -> None:
    wire = await Wire.to(cluster)
    stranger = Wire(wire.reader, wire.writer, "wrong")
    refused = await stranger.call("GET", "/api/v1/namespaces")
    assert (refused.status, refused.json["reason"]) == (401, "Unauthorized")
    wire.writer.write(b"GET /api/v1/namespaces HTTP/1.1\r\nhost: a\r\n\r\n")
    forbidden = await wire.reply()
    assert forbidden.status == 403
    assert 'User "system:anonymous" cannot list resource "namespaces"' in forbidden.message
    wire.writer.write(b"GET /readyz HTTP/1.1\r\nhost: a\r\n\r\n")
    assert (await wire.reply()).body == b"ok"
    wire.close()


async def test_a_client_certificate_is_as_good_as_a_token(cluster: RunningCluster, tmp_path: Any) -> None:
    certificate, key = tmp_path / "admin.crt", tmp_path / "admin.key"
    certificate.write_bytes(cluster.access.client_certificate)
    key.write_bytes(cluster.access.client_key)
    context = ssl.create_default_context(cadata=cluster.access.ca.decode())
    context.load_cert_chain(certificate, key)
    reader, writer = await asyncio.open_connection("127.0.0.1", cluster.server.port, ssl=context)
    writer.write(b"GET /api/v1/namespaces/default HTTP/1.1\r\nhost: a\r\n\r\n")
    assert (await Wire(reader, writer, "").reply()).status == 200
    writer.transport.abort()


async def test_a_stream_is_asked_for_as_one(cluster: RunningCluster) -> None:
    local = cluster.plane.local()
    with pytest.raises(TypeError, match="ask for it with `stream`"):
        await local.request("GET", f"{CONFIG_MAPS}?watch=1")
    refused = await local.stream(f"{CONFIG_MAPS}?watch=1&timeoutSeconds=x")
    assert not isinstance(refused, LocalStream)
    assert refused.status == 400
