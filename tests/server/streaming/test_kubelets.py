"""A node on another machine: the kubelet's API, with one that runs processes of this machine."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID
from tests.server.streaming.conftest import made, run_pod
from tests.server.streaming.process_node import ProcessNode
from tests.server.streaming.raw_client import PODS, upgraded

from pinnace.auth.certificates.authority import issue, new_ca
from pinnace.client.client import Client
from pinnace.client.transport import ConnectionLost
from pinnace.cluster.cluster import RunningCluster
from pinnace.cluster.in_process import in_process_client
from pinnace.model import errors
from pinnace.model.node_connections import CommandStreams, ContainerLogOptions, PodAddress
from pinnace.server.http.server import Answer, HttpServer, Request, Response, tls_context
from pinnace.server.streaming.exec import RequestedStreams, serve_command
from pinnace.server.streaming.kubelets import Kubelet, NoAddress, kubelet_address
from pinnace.server.streaming.logs import serve_log
from pinnace.server.streaming.port_forward import serve_ports

SECONDS = 60.0


_NOBODY = Response(401)


class FakeKubelet:
    """The paths of a kubelet, over a node that runs processes. It remembers who came, and how it was asked."""

    def __init__(self, node: ProcessNode) -> None:
        self.node = node
        self.callers: list[str] = []
        self.targets: list[str] = []

    def __call__(self, request: Request) -> Answer | Awaitable[Answer]:
        assert request.peer.certificate is not None, "a kubelet refuses clients without a certificate"
        subject = x509.load_der_x509_certificate(request.peer.certificate).subject
        self.callers.append(str(subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value))
        self.targets.append(request.target)
        kind, namespace, name, *rest = request.path.split("/")[1:] if request.path.count("/") > 2 else ("page", "", "")
        pod = PodAddress(namespace, name, "")
        query = parse_qs(request.raw_query)
        match kind:
            case "exec" if query["command"] == ["missing"]:
                return Response(404, (), b"container not found")
            case "exec" | "attach":
                wanted = RequestedStreams("input" in query, "output" in query, "error" in query, "tty" in query)

                async def perform(streams: CommandStreams) -> int:
                    if kind == "attach":
                        return await self.node.attach(pod, rest[0], streams)
                    return await self.node.exec(pod, rest[0], query["command"], streams)

                return serve_command(request, wanted, perform)
            case "portForward":
                return serve_ports(request, pod, [], lambda port: self.node.connect(pod, port))
            case "containerLogs":
                return self._log(request, pod, rest[0])
        return Response(200, [(b"Content-Type", b"text/plain")], f"{request.method} {request.target}".encode())

    async def _log(self, request: Request, pod: PodAddress, container: str) -> Answer:
        if "previous" in request.query:
            return Response(400, (), b'previous terminated container "main" not found')
        options = ContainerLogOptions(
            follow=request.parameter("follow") == "true",
            tail_lines=int(request.parameter("tailLines") or 0) or None,
            timestamps=request.parameter("timestamps") == "true",
        )
        return serve_log(request, await self.node.logs(pod, container, options))


@pytest.fixture
async def kubelet(cluster: RunningCluster, tmp_path: Path) -> AsyncIterator[FakeKubelet]:
    """A kubelet whose certificate is of its own making, and a pod on its node."""
    pair = issue(new_ca(), common_name="kubelet", server_names=["kubelet"])
    (tmp_path / "pair.pem").write_bytes(pair.certificate_pem + pair.key_pem)
    (tmp_path / "ca.pem").write_bytes(cluster.access.ca)
    context = tls_context(certificate=tmp_path / "pair.pem", key=tmp_path / "pair.pem", client_ca=tmp_path / "ca.pem")
    fake = FakeKubelet(ProcessNode())
    server = HttpServer()
    await server.start("127.0.0.1", 0, context, lambda request: fake(request) if request.peer.certificate else _NOBODY)
    status = {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": server.port}},
    }
    await made(cluster.plane, "/api/v1/nodes", {"metadata": {"name": "far"}, "status": status})
    await run_pod(cluster.plane, "web", "main", node="far")
    yield fake
    await server.stop(1.0)


@pytest.fixture
def client(cluster: RunningCluster, kubelet: FakeKubelet) -> Client:
    return in_process_client(cluster.plane.local())


async def test_commands_run_at_the_kubelet_who_is_shown_the_servers_certificate(
    client: Client, kubelet: FakeKubelet
) -> None:
    done = await client.exec("web", ["sh", "-c", "echo out; echo err >&2; exit 9"])
    assert (done.code, done.stdout, done.stderr) == (9, b"out\n", b"err\n")
    assert (await client.exec("web", ["true"])).code == 0
    assert set(kubelet.callers) == {"kube-apiserver-kubelet-client"}
    assert kubelet.targets[-1] == "/exec/default/web/main?output=1&error=1&command=true"


async def test_input_passes_to_the_kubelet_and_ends_there(client: Client) -> None:
    sent = bytes(range(256)) * 20_000
    async with client.exec("web", ["cat"], stdin=True) as session:

        async def feed() -> None:
            await session.write(sent)
            await session.close_stdin()

        feeding = asyncio.create_task(feed())
        assert await session.stdout.read() == sent
        await feeding
        assert await session.wait() == 0


async def test_terminals_are_resized_at_the_kubelet(client: Client) -> None:
    async with client.exec("web", ["sh", "-c", "stty size; read x; stty size"], stdin=True, tty=True) as session:
        await session.resize(80, 24)
        assert await anext(session.stdout) == b"24 80\r\n"
        await session.resize(132, 50)
        await session.write(b"go on\n")
        assert (await session.stdout.read()).endswith(b"50 132\r\n")


async def test_a_number_that_no_terminal_has_ends_the_sizes_alone(client: Client) -> None:
    async with client.exec("web", ["sh", "-c", "stty size; read x; stty size"], stdin=True, tty=True) as session:
        await session.resize(80, 24)
        assert await anext(session.stdout) == b"24 80\r\n"
        await session.resize(1 << 40, -1)
        await session.write(b"go on\n")
        assert (await session.stdout.read()).endswith(b"24 80\r\n")
        assert await session.wait() == 0


async def test_a_refusal_of_the_kubelet_is_reported_in_its_words(client: Client) -> None:
    with pytest.raises(errors.InternalError, match="unable to upgrade connection: container not found"):
        await client.exec("web", ["missing"])
    with pytest.raises(errors.InternalError, match="the runtime is broken"):
        await client.exec("web", ["break"])
    with pytest.raises(errors.NotFound, match='containers "main" not found'):
        await client.exec("web", ["refuse"])
    with pytest.raises(errors.BadRequest, match='previous terminated container "main" not found'):
        await anext(client.logs("web", previous=True))


async def test_a_command_at_the_kubelet_is_ended_when_the_client_leaves(client: Client, kubelet: FakeKubelet) -> None:
    async with client.exec("web", ["sh", "-c", "echo begun; sleep 1000"]) as session:
        assert await anext(session.stdout) == b"begun\n"
    await kubelet.node.until(lambda: kubelet.node.ended == ["cancelled"])


async def test_attach_and_logs_pass_to_the_kubelet(client: Client, kubelet: FakeKubelet) -> None:
    assert (await client.attach("web")).stdout == b"attached\n"
    kubelet.node.lines["main"] = [b"one\n", b"two\n"]
    assert [line async for line in client.logs("web", tail_lines=1, timestamps=True)] == ["2030-01-01T00:00:00Z two"]
    following = client.logs("web", follow=True)
    assert [await anext(following), await anext(following)] == ["one", "two"]
    await kubelet.node.say("main", b"three\n")
    assert await anext(following) == "three"
    await following.aclose()
    await kubelet.node.until(lambda: kubelet.node.ended[-1:] == ["log"])


async def test_ports_are_forwarded_by_the_kubelet(client: Client) -> None:
    async def shout(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write((await reader.readline()).upper())
        writer.close()

    server = await asyncio.start_server(shout, "127.0.0.1", 0)
    forward = client.port_forward("web", server.sockets[0].getsockname()[1])
    async with server, asyncio.timeout(SECONDS), await forward.open() as connection:
        await connection.write(b"hello\n")
        assert await connection.read() == b"HELLO\n"
        assert await connection.read() == b""
    async with asyncio.timeout(SECONDS), await client.port_forward("web", 1).open() as connection:
        with pytest.raises(ConnectionLost, match="connection refused"):
            await connection.read()


async def test_a_kubelet_that_is_not_there_is_reported_before_anything_is_upgraded(cluster: RunningCluster) -> None:
    status = {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 1}},
    }
    await made(cluster.plane, "/api/v1/nodes", {"metadata": {"name": "gone"}, "status": status})
    await run_pod(cluster.plane, "web", "main", node="gone")
    why = "error dialing backend: dial tcp 127.0.0.1:1: connect: connection refused"
    for target in ("exec?command=true&stdout=1", "attach?stdout=1", "portforward"):
        protocol = "portforward.k8s.io" if target == "portforward" else "v4.channel.k8s.io"
        async with upgraded(cluster, f"{PODS}/web/{target}", protocols=[protocol], is_spdy=True) as client:
            assert (client.status, await client.message()) == (500, why)


async def test_any_page_of_a_kubelet_can_be_asked_for(cluster: RunningCluster, kubelet: FakeKubelet) -> None:
    result = cluster.plane.nodes.find("far")
    answer = await result.ask("GET", "/metrics", [(b"host", b"elsewhere")], b"")
    assert (answer.status, [piece async for piece in answer.chunks()]) == (200, [b"GET /metrics"])
    answer.close()


async def test_a_server_that_is_no_kubelet_is_no_kubelet() -> None:
    async def ssh(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")
        writer.close()

    server = await asyncio.start_server(ssh, "127.0.0.1", 0)
    async with server:
        kubelet = Kubelet("127.0.0.1", server.sockets[0].getsockname()[1], ssl.create_default_context)
        with pytest.raises(ConnectionError, match="tls"):
            await kubelet.exec(PodAddress("default", "web", ""), "main", ["true"], CommandStreams())


def test_where_a_kubelet_is_is_read_from_its_node() -> None:
    addresses = [{"type": "Hostname", "address": "name"}, {"type": "InternalIP", "address": "10.0.0.1"}]
    assert kubelet_address({"status": {"addresses": addresses}}) == ("10.0.0.1", 10250)
    assert kubelet_address({"status": {"addresses": addresses[:1]}}) == ("name", 10250)
    with pytest.raises(NoAddress, match="no preferred addresses found; known addresses: \\[\\]"):
        kubelet_address({})
