"""The web server of a node agent: kubelet's HTTPS API, for an API server on this or another machine.

Callers show a certificate of the cluster, and the API server says whether they may use the node.
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qs

from cryptography import x509
from cryptography.x509.oid import NameOID

from pinnace.client.client import Client
from pinnace.client.transport import ConnectionLost
from pinnace.model import errors
from pinnace.model.node_connections import CommandStreams, ContainerLogOptions, NodeConnection, PodAddress
from pinnace.server.http.server import Answer, HttpServer, Request, Response, tls_context
from pinnace.server.streaming.exec import RequestedStreams, serve_command
from pinnace.server.streaming.logs import serve_log
from pinnace.server.streaming.port_forward import serve_ports

_STOP_SECONDS = 5.0
_SUBRESOURCES = {"stats": "stats", "metrics": "metrics", "containerLogs": "log"}


@dataclass(frozen=True, slots=True)
class NodeServerFiles:
    """The certificate of the server with its key in one file, and the CA of its callers."""

    pair: Path
    ca: Path


class NodeServer:
    """Start it with a connection to the agent, and stop it."""

    def __init__(self, client: Client, node: str) -> None:
        """The client asks the API server whether a caller is authorized."""
        self._client = client
        self._node = node
        self._server = HttpServer()
        self._connection: NodeConnection | None = None

    async def start(self, connection: NodeConnection, address: str, port: int, files: NodeServerFiles) -> int:
        """Listen, and return the port: a free one for 0. Raise OSError."""
        self._connection = connection
        context = tls_context(certificate=files.pair, key=files.pair, client_ca=files.ca)
        await self._server.start(address, port, context, self._serve)
        return self._server.port

    async def stop(self) -> None:
        await self._server.stop(_STOP_SECONDS)

    def _serve(self, request: Request) -> Answer | Awaitable[Answer]:
        if request.peer.certificate is None:
            return Response(401, [(b"Content-Type", b"text/plain")], b"Unauthorized")
        return self._authorized(request, x509.load_der_x509_certificate(request.peer.certificate))

    async def _authorized(self, request: Request, certificate: x509.Certificate) -> Answer:
        try:
            if not await self._is_allowed(request, certificate):
                return Response(403, [(b"Content-Type", b"text/plain")], b"Forbidden")
            return await self._route(request)
        except errors.ApiError as error:
            return Response(error.code, [(b"Content-Type", b"text/plain")], str(error).encode())
        except ConnectionLost as error:
            return Response(500, [(b"Content-Type", b"text/plain")], str(error).encode())

    async def _is_allowed(self, request: Request, certificate: x509.Certificate) -> bool:
        subject = certificate.subject
        names = [str(one.value) for one in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
        groups = [str(one.value) for one in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]
        kind = request.path.split("/")[1]
        verb = {"POST": "create", "GET": "get", "HEAD": "get"}.get(request.method, "update")
        asked = {
            "verb": verb,
            "version": "v1",
            "resource": "nodes",
            "subresource": _SUBRESOURCES.get(kind, "proxy"),
            "name": self._node,
        }
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": names[-1] if names else "", "groups": groups, "resourceAttributes": asked},
        }
        return bool((await self._client.create(review))["status"].get("allowed"))

    async def _route(self, request: Request) -> Answer:
        assert self._connection is not None
        connection = self._connection
        match request.path.split("/")[1:]:
            case ["exec" | "attach" as kind, namespace, name, container]:
                return self._command(request, kind, PodAddress(namespace, name, ""), container)
            case ["portForward", namespace, name]:
                pod = PodAddress(namespace, name, "")
                return serve_ports(request, pod, [], lambda port: connection.connect(pod, port))
            case ["containerLogs", namespace, name, container]:
                pod = PodAddress(namespace, name, "")
                return serve_log(request, await connection.logs(pod, container, _log_options(request)))
        page = await connection.ask(request.method, request.target, (), b"")
        body = b"".join([data async for data in page.chunks()])
        return Response(page.status, [pair for pair in page.headers if pair[0] != b"Content-Length"], body)

    def _command(self, request: Request, kind: str, pod: PodAddress, container: str) -> Answer:
        assert self._connection is not None
        connection = self._connection
        query = parse_qs(request.raw_query)
        wanted = RequestedStreams("input" in query, "output" in query, "error" in query, "tty" in query)

        async def perform(streams: CommandStreams) -> int:
            if kind == "attach":
                return await connection.attach(pod, container, streams)
            return await connection.exec(pod, container, query.get("command") or [], streams)

        return serve_command(request, wanted, perform)


def _log_options(request: Request) -> ContainerLogOptions:
    def number(name: str) -> int | None:
        text = request.parameter(name)
        return int(text) if text and text.isdecimal() else None

    return ContainerLogOptions(
        follow=request.parameter("follow") == "true",
        previous=request.parameter("previous") == "true",
        timestamps=request.parameter("timestamps") == "true",
        since_seconds=number("sinceSeconds"),
        since_time=request.parameter("sinceTime") or "",
        tail_lines=number("tailLines"),
        limit_bytes=number("limitBytes"),
    )
