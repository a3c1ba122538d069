"""The port of a joined node, attacked: whatever a caller sends, it gets kubelet's error, and nothing is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import os
import random
import ssl
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from tests.auth.intermediates import intermediate
from tests.server.streaming.process_node import ProcessNode

from pinnace.auth.certificates.authority import KeyPair, PairFiles, issue, load_pair, new_ca
from pinnace.client.client import Client
from pinnace.client.transport import ConnectionLost
from pinnace.cluster import kubelet_port as port_of_cluster
from pinnace.cluster.cluster import running
from pinnace.cluster.in_process import in_process_client
from pinnace.cluster.kubelet_port import kubelet_port
from pinnace.cluster.settings import Settings
from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.model.users import User
from pinnace.node.identity.certificates import save, self_signed_certificate
from pinnace.process.certificates import CertificateIssuer, certificate_builder, common_name
from pinnace.server.http.server import listening_sockets
from pinnace.server.nodes import kubelet_callers
from pinnace.server.nodes.kubelet_port import NodeServerFiles

NODE = "attacked"
SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Port:
    number: int
    administrator: Client
    client: Client
    """The node's own."""
    ca: KeyPair
    directory: Path
    pki: Path

    def tls(self, *chain: KeyPair) -> ssl.SSLContext:
        """A client's context with the first certificate, and the others behind it."""
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if chain:
            pair = self.directory / "pair.pem"
            pair.write_bytes(chain[0].key_pem + b"".join(pair.certificate_pem for pair in chain))
            context.load_cert_chain(pair)
        return context

    async def open(self, tls: ssl.SSLContext) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.number, ssl=tls)

    async def ask(self, tls: ssl.SSLContext, path: str = "/pods", *, headers: str = "") -> tuple[int, str]:
        head = f"GET {path} HTTP/1.1\r\nHost: node\r\nConnection: close\r\n{headers}\r\n"
        return await self.send(tls, head.encode())

    async def send(self, tls: ssl.SSLContext, request: bytes) -> tuple[int, str]:
        """Return status and body of the first answer; status 0 if the connection ends without one."""
        async with asyncio.timeout(SECONDS):
            try:
                reader, writer = await self.open(tls)
                writer.write(request)
                answer = await reader.read()
                writer.close()
            except (ssl.SSLError, ConnectionError):
                return 0, ""
        head, _, body = answer.partition(b"\r\n\r\n")
        return (int(head.split()[1]) if head else 0), body.decode("utf-8", "replace")


@pytest.fixture
async def port(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> AsyncIterator[Port]:
    async with running(Settings(data_dir=tmp_path / "data", port=0, controllers=False)) as cluster:
        pki = tmp_path / "data" / "pki"
        user = User(f"system:node:{NODE}", ("system:nodes", "system:authenticated"))
        client = in_process_client(cluster.plane.local(user), field_manager="kubelet")
        files = NodeServerFiles(tmp_path / "serving.pem", pki / "ca.crt")
        save(files.pair, self_signed_certificate(NODE, [NODE, "127.0.0.1"], datetime.now(UTC)))
        server = kubelet_port(client, NODE)
        number = await server.start(ProcessNode(), "127.0.0.1", 0, files)
        try:
            ca = load_pair(PairFiles(pki / "ca.crt", pki / "ca.key"))
            yield Port(number, in_process_client(cluster.plane.local()), client, ca, tmp_path, pki)
            failures = [record for record in caplog.records if record.levelno >= logging.ERROR or record.exc_info]
            assert not failures, [failure.getMessage() for failure in failures]
        finally:
            await server.stop()


def master(port: Port) -> ssl.SSLContext:
    return port.tls(issue(port.ca, common_name="root", organizations=["system:masters"], client=True))


def self_signed() -> KeyPair:
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    valid = now - timedelta(hours=1), now + timedelta(hours=1)
    issuer = CertificateIssuer(common_name("me"), key.public_key())
    builder = certificate_builder(common_name("me"), key.public_key(), valid=valid, issuer=issuer)
    return KeyPair(builder.sign(key, hashes.SHA256()), key)


def nameless(ca: KeyPair) -> KeyPair:
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.now(UTC)
    valid = now - timedelta(hours=1), now + timedelta(hours=1)
    builder = certificate_builder(x509.Name([]), key.public_key(), valid=valid, issuer=ca.as_issuer)
    return KeyPair(builder.sign(ca.key, hashes.SHA256()), key)


def late(ca: KeyPair, days: int) -> KeyPair:
    """A master's certificate of two hours, so many days from now."""
    now = datetime.now(UTC) + timedelta(days=days)
    return issue(
        ca, common_name="root", organizations=["system:masters"], client=True, now=now, lifetime=timedelta(hours=2)
    )


CERTIFICATES: dict[str, Callable[[KeyPair], list[KeyPair]]] = {
    "none": lambda ca: [],
    "self-signed": lambda ca: [self_signed()],
    "foreign": lambda ca: [issue(new_ca(), common_name="root", organizations=["system:masters"], client=True)],
    "expired": lambda ca: [late(ca, -2)],
    "not yet valid": lambda ca: [late(ca, 2)],
    "a server's": lambda ca: [issue(ca, common_name="root", organizations=["system:masters"], server_names=["a"])],
    "nameless": lambda ca: [nameless(ca)],
    "below a foreign chain": lambda ca: [self_signed(), *(intermediate(new_ca(), str(n)) for n in range(20))],
}


def metadata(name: str) -> Object:
    return {"name": name, "namespace": "default"}


async def grant(port: Port, user: str, *resources: str) -> None:
    api, name = "rbac.authorization.k8s.io", user.replace(":", "-")
    rule = {"apiGroups": [""], "resources": list(resources), "verbs": ["get"]}
    await port.administrator.create(
        {"apiVersion": f"{api}/v1", "kind": "ClusterRole", "metadata": {"name": name}, "rules": [rule]}
    )
    await port.administrator.create(
        {
            "apiVersion": f"{api}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": api, "kind": "ClusterRole", "name": name},
            "subjects": [{"apiGroup": api, "kind": "User", "name": user}],
        }
    )


@pytest.mark.parametrize("certificate", CERTIFICATES)
async def test_a_certificate_that_proves_nothing_is_unauthorized(port: Port, certificate: str) -> None:
    assert await port.ask(port.tls(*CERTIFICATES[certificate](port.ca))) == (401, "Unauthorized")


async def test_a_chain_that_is_too_long_ends_the_connection(port: Port) -> None:
    chain = [intermediate(port.ca, str(number)) for number in range(10)]
    assert (await port.ask(port.tls(self_signed(), *chain * 40)))[0] in (0, 401)
    assert (await port.ask(master(port)))[0] == 200


async def test_connections_of_one_pod_leave_room_for_those_of_others(
    port: Port, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two pods opened so many that the agent could open no other file: no container started or ended."""
    monkeypatch.setattr(port_of_cluster, "_MOST_CONNECTIONS", 20)
    (listener,) = await listening_sockets("127.0.0.1", 0, backlog=100)
    address = listener.getsockname()
    server = kubelet_port(port.client, NODE)
    server.serve(ProcessNode(), listener, NodeServerFiles(port.directory / "serving.pem", port.pki / "ca.crt"))
    try:
        async with asyncio.timeout(SECONDS):
            held = [
                await asyncio.open_connection(*address, local_addr=("127.0.0.2", 0), ssl=port.tls()) for _ in range(20)
            ]
            refused, _ = await asyncio.open_connection(*address, local_addr=("127.0.0.2", 0))
            assert await refused.read() == b""
            for _ in range(10):
                reader, writer = await asyncio.open_connection(*address, local_addr=("127.0.0.3", 0), ssl=port.tls())
                writer.write(b"GET /pods HTTP/1.1\r\nHost: node\r\n\r\n")
                assert await reader.readline() == b"HTTP/1.1 401 Unauthorized\r\n"
                held.append((reader, writer))
            held.pop(0)[1].close()
            while True:
                with contextlib.suppress(ConnectionError):
                    held.append(await asyncio.open_connection(*address, local_addr=("127.0.0.2", 0), ssl=port.tls()))
                    break
    finally:
        for _, writer in held:
            writer.close()
        await server.stop()


async def test_garbage_instead_of_tls_ends_the_connection(port: Port) -> None:
    chance = random.Random(7)
    pieces = [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\xff\xff", *(chance.randbytes(300) for _ in range(30))]
    for piece in pieces:
        reader, writer = await asyncio.open_connection("127.0.0.1", port.number)
        writer.write(piece)
        writer.write_eof()
        with contextlib.suppress(ConnectionError):
            assert b"HTTP/1.1 200" not in await asyncio.wait_for(reader.read(), SECONDS)
        writer.close()
    assert (await port.ask(master(port)))[0] == 200


SMUGGLED: dict[str, bytes] = {
    "two lengths": b"POST /pods HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
    "length and chunks": b"POST /pods HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n"
    b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    "odd encoding": b"POST /pods HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    "a space before the colon": b"GET /pods HTTP/1.1\r\nHost : a\r\n\r\n",
    "a folded header": b"GET /pods HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n",
    "a line feed in the target": b"GET /pods\n HTTP/1.1\r\nHost: a\r\n\r\n",
    "a negative length": b"POST /pods HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n",
    "no version": b"GET /pods\r\n\r\n",
}


@pytest.mark.parametrize("request_name", SMUGGLED)
async def test_an_ambiguous_request_is_refused(port: Port, request_name: str) -> None:
    assert (await port.send(master(port), SMUGGLED[request_name]))[0] == 400


async def test_odd_paths_are_no_way_around_the_authorization(port: Port) -> None:
    """A caller that may read metrics alone gets the metrics' answer or none, however the path is written."""
    await grant(port, "reader", "nodes/metrics")
    tls = port.tls(issue(port.ca, common_name="reader", client=True))
    assert (await port.ask(tls, "/metrics"))[0] == 200
    for path in (
        "/pods",
        "//metrics",
        "/%6detrics/../pods",
        "/metrics/../exec/a/b/c",
        "/metrics%2f..%2fpods",
        "*",
        "/",
    ):
        status, body = await port.ask(tls, path)
        assert status in (400, 403) or body.startswith("GET /metrics"), (path, status, body)
    assert (await port.ask(tls, "/metricsx"))[0] == 403
    assert (await port.ask(tls, "/stats/summary"))[0] == 403
    assert (await port.ask(tls, "https://node:1/pods"))[0] == 403


@pytest.mark.parametrize("path,subresource", [("/pods", "pods"), ("/healthz", "healthz"), ("/configz", "configz")])
async def test_a_fine_grained_permission_is_enough(port: Port, path: str, subresource: str) -> None:
    await grant(port, "fine", f"nodes/{subresource}")
    await grant(port, "coarse", "nodes/proxy")
    for name in ("fine", "coarse"):
        assert (await port.ask(port.tls(issue(port.ca, common_name=name, client=True)), path))[0] == 200
    status, body = await port.ask(port.tls(issue(port.ca, common_name="other", client=True)), path)
    attributes = f"user=other, verb=get, resource=nodes, subresource(s)=[{subresource} proxy]"
    assert (status, body) == (403, f"Forbidden ({attributes})\n")


async def test_tokens_are_reviewed_by_the_api_server(port: Port) -> None:
    await port.administrator.create({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata("reads")})
    made = await port.administrator.create_below(
        "v1/ServiceAccount",
        "reads",
        "token",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}},
        namespace="default",
    )
    token = made["status"]["token"]
    bearer = f"Authorization: Bearer {token}\r\n"
    await grant(port, "system:serviceaccount:default:reads", "nodes/healthz")
    assert (await port.ask(port.tls(), "/healthz", headers=bearer))[0] == 200
    assert (await port.ask(port.tls(), headers=bearer))[0] == 403
    for bad in ("x", token[:-2], f"{token}x", "a" * 4000, "é"):
        assert await port.ask(port.tls(), headers=f"Authorization: Bearer {bad}\r\n") == (401, "Unauthorized")


@pytest.mark.parametrize("failure", ["an error", "silence", "no answer"])
async def test_a_review_that_fails_is_an_error_of_the_node(
    port: Port, monkeypatch: pytest.MonkeyPatch, failure: str
) -> None:
    monkeypatch.setattr(kubelet_callers, "REVIEW_SECONDS", 0.2)

    async def post(document: Object) -> Object:
        if failure == "silence":
            await asyncio.Event().wait()
        if failure == "no answer":
            raise ConnectionLost("the server has closed the connection", was_sent=True)
        raise errors.Unavailable("not now")

    monkeypatch.setattr(port.client, "create", post)
    attributes = "user=root, verb=get, resource=nodes, subresource=pods"
    assert await port.ask(master(port)) == (500, f"Authorization error ({attributes})")
    assert await port.ask(port.tls(), headers="Authorization: Bearer x\r\n") == (401, "Unauthorized")


WEBSOCKET = (
    "Upgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n"
)
SPDY = "Upgrade: SPDY/3.1\r\nConnection: Upgrade\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n"
_EXEC = "/exec/default/pod/main?output=1&command=yes"
UPGRADES: dict[str, bytes] = {
    "a websocket that reads nothing": f"GET {_EXEC} HTTP/1.1\r\nHost: a\r\n{WEBSOCKET}\r\n".encode(),
    "a websocket with half a frame": f"GET {_EXEC}&input=1 HTTP/1.1\r\nHost: a\r\n{WEBSOCKET}\r\n\x82".encode(
        "latin-1"
    ),
    "SPDY without streams": f"POST {_EXEC} HTTP/1.1\r\nHost: a\r\n{SPDY}\r\n".encode(),
    "SPDY with garbage": f"POST {_EXEC} HTTP/1.1\r\nHost: a\r\n{SPDY}\r\n".encode() + b"\xff" * 4000,
    "half a head": f"POST {_EXEC} HTTP/1.1\r\nHost: a\r\n{SPDY}".encode(),
    "SPDY for ports with garbage": f"POST /portForward/a/b HTTP/1.1\r\nHost: a\r\n{SPDY}\r\n".encode()
    + b"\x80\x03\0\1",
}


async def test_upgrades_that_stop_half_way_leave_nothing_behind(port: Port) -> None:
    tls = master(port)
    assert (await port.ask(tls))[0] == 200
    await _until_as_before(0, 0)
    tasks, descriptors = len(asyncio.all_tasks()), _descriptors()
    opened = []
    for request in UPGRADES.values():
        for _ in range(3):
            reader, writer = await port.open(tls)
            writer.write(request)
            await writer.drain()
            opened.append((reader, writer))
    for reader, _ in opened:  # Each has begun: it has an answer, or waits for the rest of the request.
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(reader.read(1), 0.2)
    for _, writer in opened:
        writer.transport.abort()
    opened.clear()
    await _until_as_before(tasks, descriptors)
    assert (await port.ask(tls))[0] == 200


def _descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


async def _until_as_before(tasks: int, descriptors: int) -> None:
    """Wait until no more tasks and descriptors are left than there were; for none, until nothing is collected."""
    async with asyncio.timeout(SECONDS):
        while gc.collect() > 0 or (tasks and (len(asyncio.all_tasks()) > tasks or _descriptors() > descriptors)):
            await asyncio.sleep(0.02)
