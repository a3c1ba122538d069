"""The proxy subresources: HTTP to a pod, to a pod behind a service, and to a node, upgrades too."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
from OpenSSL.SSL import Context
from tests.server.streaming.conftest import POD, made, run_pod
from tests.server.streaming.process_node import ProcessNode
from tests.server.streaming.raw_client import upgraded

from pinnace.auth.certificates.authority import issue, new_ca
from pinnace.cluster.cluster import RunningCluster
from pinnace.server.http.server import (
    Answer,
    HttpServer,
    Request,
    Response,
    ResponseStream,
    StreamingResponse,
    Takeover,
    frame,
    reader_and_writer,
    tls_context,
)
from pinnace.server.local import NoTransport
from pinnace.server.streaming.proxy import rewrite_links
from pinnace.server.streaming.relay import forwarded_headers
from pinnace.serving.messages import Peer, RequestHead, header_block

PODS = "/api/v1/namespaces/default/pods"
SERVICES = "/api/v1/namespaces/default/services"
ENDPOINTS = "/api/v1/namespaces/default/endpoints"

pytestmark = [pytest.mark.usefixtures("node"), pytest.mark.filterwarnings("ignore:.*Endpoints.*")]


PAGE = b"""<html><!-- <a href="/x"> --><A class=a HREF='/x?y=1#z'>x</A><a href="relative">y</a>
<img src=/x.png alt="/no"><a href="https://example.com/x">z</a>
<script src="/x.js">var page = '<a href="/x">';</script><p title="/x"><a href="/x"</html>"""


class Site:
    """The web server of a pod, which remembers what it was asked."""

    def __init__(self) -> None:
        self.requests: list[Request] = []

    def __call__(self, request: Request) -> Answer:
        self.requests.append(request)
        match request.path:
            case "/moved":
                return Response(302, [(b"Location", b"/elsewhere?x=1")])
            case "/absolute":
                return Response(302, [(b"Location", b"http://" + request.headers[b"host"] + b"/elsewhere")])
            case "/away":
                return Response(302, [(b"Location", b"https://example.com/x")])
            case "/page":
                return Response(200, [(b"Content-Type", b"text/html")], PAGE)
            case "/slow":
                return StreamingResponse(200, [(b"Content-Type", b"text/plain")], self._slowly)
            case "/echo" if request.upgrade:
                return Takeover(_echo, [(b"Connection", b"Upgrade"), (b"Upgrade", b"echo")])
        body = f"{request.method} {request.target} {request.body.decode()}".encode()
        return Response(201 if request.method == "POST" else 200, [(b"X-Site", b"yes")], body)

    async def _slowly(self, stream: ResponseStream) -> None:
        for number in range(3):
            stream.write(frame(b"part %d\n" % number))
            await stream.drain()


async def _echo(transport: asyncio.Transport, leftover: bytes) -> None:
    reader, writer = await reader_and_writer(transport, leftover)
    while line := await reader.readline():
        writer.write(line.upper())
        await writer.drain()


@asynccontextmanager
async def serving(site: Site, context: Context | None = None) -> AsyncIterator[int]:
    server = HttpServer()
    await server.start("127.0.0.1", 0, context, site)
    try:
        yield server.port
    finally:
        await server.stop(1.0)


@pytest.fixture
async def browser(cluster: RunningCluster) -> AsyncIterator[aiohttp.ClientSession]:
    context = ssl.create_default_context(cadata=cluster.access.ca.decode())
    headers = {"Authorization": f"Bearer {cluster.access.token}", "User-Agent": "test"}
    async with aiohttp.ClientSession(
        cluster.url, headers=headers, connector=aiohttp.TCPConnector(ssl=context)
    ) as session:
        yield session


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
async def test_every_method_is_passed_to_a_pod(browser: aiohttp.ClientSession, method: str) -> None:
    async with serving(Site()) as port:
        target = f"{PODS}/{POD}:{port}/proxy/a/b%2Fc/?x=1&y=%20"
        async with browser.request(method, target, data=b"body" if method != "GET" else None) as answer:
            body = await answer.text()
    sent_body = "" if method == "GET" else "body"
    assert (answer.status, body) == (201 if method == "POST" else 200, f"{method} /a/b%2Fc/?x=1&y=%20 {sent_body}")
    assert answer.headers["X-Site"] == "yes"


async def test_a_proxied_request_has_the_address_of_its_client_and_no_credentials(
    browser: aiohttp.ClientSession,
) -> None:
    site = Site()
    async with serving(site) as port:
        target = f"{PODS}/{POD}:{port}/proxy/x"
        async with browser.get(target, headers={"X-Remote-User": "admin", "X-Own": "kept"}) as answer:
            assert answer.status == 200
    headers = site.requests[0].headers
    assert headers[b"x-own"] == b"kept"
    assert headers[b"x-forwarded-for"] == b"127.0.0.1"
    assert headers[b"x-forwarded-uri"] == target.encode()
    assert not {b"authorization", b"x-remote-user"} & headers.keys()


async def test_an_answer_that_goes_on_is_passed_back_as_it_comes(browser: aiohttp.ClientSession) -> None:
    async with serving(Site()) as port, browser.get(f"{PODS}/{POD}:{port}/proxy/slow") as answer:
        assert await answer.text() == "part 0\npart 1\npart 2\n"


async def test_redirects_of_a_pod_to_itself_lead_through_the_proxy(browser: aiohttp.ClientSession) -> None:
    async with serving(Site()) as port:
        prefix = f"{PODS}/{POD}:{port}/proxy"
        async with browser.get(f"{prefix}/moved", allow_redirects=False) as answer:
            assert answer.headers["Location"] == f"{prefix}/elsewhere?x=1"
        async with browser.get(f"{prefix}/absolute", allow_redirects=False) as answer:
            front = answer.url.authority
            assert answer.headers["Location"] == f"http://{front}{prefix}/elsewhere"
        async with browser.get(f"{prefix}/away", allow_redirects=False) as answer:
            assert answer.headers["Location"] == "https://example.com/x"
        async with browser.get(f"{prefix}?x=1", allow_redirects=False) as answer:
            assert (answer.status, answer.headers["Location"]) == (301, f"{prefix}/?x=1")


async def test_links_of_a_pods_pages_to_itself_lead_through_the_proxy(browser: aiohttp.ClientSession) -> None:
    async with serving(Site()) as port:
        prefix = f"{PODS}/{POD}:{port}/proxy"
        async with browser.get(f"{prefix}/page") as answer:
            page = await answer.read()
    expected = PAGE
    for link in (b"HREF='", b"<img src=", b'<script src="'):
        expected = expected.replace(link + b"/x", link + prefix.encode() + b"/x")
    assert page == expected


@pytest.mark.parametrize("junk", [b"<a href='", b"<!--", b"<script>", b"<a href=/x "], ids=repr)
def test_a_page_of_what_never_ends_is_left_as_it_is(junk: bytes) -> None:
    page = junk * 100_000
    assert rewrite_links(page, lambda link: "never") == page


async def test_a_pod_may_be_asked_over_https(browser: aiohttp.ClientSession, tmp_path: Path) -> None:
    pair = issue(new_ca(), common_name="pod", server_names=["pod"])
    (tmp_path / "pair.pem").write_bytes(pair.certificate_pem + pair.key_pem)
    (tmp_path / "ca.pem").write_bytes(pair.certificate_pem)
    context = tls_context(certificate=tmp_path / "pair.pem", key=tmp_path / "pair.pem", client_ca=tmp_path / "ca.pem")
    async with serving(Site(), context) as port, browser.get(f"{PODS}/https:{POD}:{port}/proxy/x") as answer:
        assert await answer.text() == "GET /x "


async def test_upgrades_pass_through(cluster: RunningCluster) -> None:
    async with serving(Site()) as port:
        target = f"{PODS}/{POD}:{port}/proxy/echo"
        async with upgraded(cluster, target, handshake="Upgrade: echo\r\n") as client:
            assert (client.status, client.headers["upgrade"]) == (101, "echo")
            client.writer.write(b"hello\n")
            assert await client.reader.readline() == b"HELLO\n"


async def test_a_pod_that_does_not_listen_is_unavailable(browser: aiohttp.ClientSession) -> None:
    async with browser.get(f"{PODS}/{POD}:1/proxy/x") as answer:
        status = await answer.json()
    assert (answer.status, status["reason"]) == (503, "ServiceUnavailable")
    assert status["message"].startswith("error trying to reach service: ")


async def test_a_pod_that_breaks_off_is_unavailable(browser: aiohttp.ClientSession) -> None:
    async def rude(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        writer.close()

    server = await asyncio.start_server(rude, "127.0.0.1", 0)
    async with server, browser.get(f"{PODS}/{POD}:{server.sockets[0].getsockname()[1]}/proxy/x") as answer:
        assert answer.status == 503


@pytest.mark.parametrize("by", ["name", "number"])
async def test_a_service_leads_to_one_of_its_pods(
    cluster: RunningCluster, browser: aiohttp.ClientSession, by: str
) -> None:
    async with serving(Site()) as port:
        await run_pod(cluster.plane, "backend", "main", ip="10.0.0.7")
        await made(
            cluster.plane, SERVICES, {"metadata": {"name": "shop"}, "spec": {"ports": [{"name": "web", "port": 80}]}}
        )
        subset = {
            "addresses": [{"ip": "10.0.0.7", "targetRef": {"kind": "Pod", "name": "backend", "namespace": "default"}}],
            "ports": [{"name": "web", "port": port}],
        }
        await made(cluster.plane, ENDPOINTS, {"metadata": {"name": "shop"}, "subsets": [subset]})
        async with browser.get(f"{SERVICES}/shop:{'web' if by == 'name' else 80}/proxy/x") as answer:
            assert await answer.text() == "GET /x "
        async with browser.get(f"{SERVICES}/shop:81/proxy/x") as answer:
            assert (answer.status, (await answer.json())["message"]) == (
                503,
                'no service port 81 found for service "shop"',
            )


async def test_a_service_does_not_lead_to_addresses_that_are_no_pods(
    cluster: RunningCluster, browser: aiohttp.ClientSession
) -> None:
    """Otherwise a user who may write Endpoints could reach any address."""
    await run_pod(cluster.plane, "backend", "main", ip="10.0.0.7")
    await made(cluster.plane, SERVICES, {"metadata": {"name": "shop"}, "spec": {"ports": [{"port": 80}]}})
    addresses = [
        {"ip": "10.0.0.8"},
        {"ip": "10.0.0.9", "targetRef": {"kind": "Pod", "name": "backend", "namespace": "default"}},
    ]
    await made(
        cluster.plane,
        ENDPOINTS,
        {"metadata": {"name": "shop"}, "subsets": [{"addresses": addresses, "ports": [{"port": 80}]}]},
    )
    async with browser.get(f"{SERVICES}/shop/proxy/x") as answer:
        assert (answer.status, (await answer.json())["message"]) == (503, 'no endpoints available for service "shop"')


async def test_a_node_answers_for_itself(browser: aiohttp.ClientSession, node: ProcessNode) -> None:
    async with browser.get("/api/v1/nodes/machine/proxy/metrics/cadvisor?x=1") as answer:
        assert (answer.status, await answer.text()) == (200, "GET /metrics/cadvisor?x=1\n")


def test_headers_of_a_pod_cannot_smuggle_in_others() -> None:
    with pytest.raises(ValueError, match="line break"):
        header_block([(b"Location", b"/x\r\nSet-Cookie: a=b")])


def test_a_token_that_is_named_as_a_protocol_goes_no_further() -> None:
    token = b"base64url.bearer.authorization.k8s.io.c2VjcmV0"
    headers = {b"upgrade": b"websocket", b"sec-websocket-protocol": b"one, " + token, b"x": b"y"}
    head = RequestHead(headers, ((b"sec-websocket-protocol", b"two"),))
    request = Request("GET", "/", "/", "", head, b"", Peer(NoTransport()), upgrade=True)
    assert list(forwarded_headers(request)) == [(b"x", b"y"), (b"sec-websocket-protocol", b"one, two")]
