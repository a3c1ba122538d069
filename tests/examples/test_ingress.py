"""The Ingress controller of the examples: its hosts, paths, certificates and classes, over real HTTP and TLS."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest
from aiohttp import web
from tests.free_ports import free_port
from tests.server.streaming.process_node import ProcessNode

from pinnace.auth.certificates.authority import KeyPair, issue, new_ca
from pinnace.client import kubeconfig_files as kubeconfig
from pinnace.client.client import Client
from pinnace.client.connect import connect
from pinnace.client.kubeconfig import access_of
from pinnace.cluster.cluster import running
from pinnace.cluster.settings import Settings
from pinnace.model.objects import Object
from pinnace.sdk.command.operator_files import operator_in

EXAMPLE = Path(__file__).parents[2] / "examples" / "12-ingress" / "ingress.py"
INGRESS = "networking.k8s.io/v1/Ingress"
HOST = "shop.example.com"


@dataclass
class Site:
    """A cluster whose pods answer on loopback ports, and the controller before it."""

    client: Client
    http: int
    https: int
    stack: AsyncExitStack
    trusted: ssl.SSLContext | None = None

    async def add_service(self, name: str, *, is_ready: bool = True, listens: bool = True) -> None:
        """Add a pod that answers with its name, behind a Service of the same name."""
        port = await self._listen(name) if listens else free_port()
        spec = {"nodeName": "machine", "containers": [{"name": "main", "image": "image"}]}
        await self._create("v1", "Pod", name, spec=spec)
        await self.client.patch("v1/Pod", name, {"status": {"phase": "Running"}}, subresource="status")
        ports = [{"name": "other", "port": 1}, {"name": "http", "port": 80, "targetPort": port}]
        await self._create("v1", "Service", name, spec={"ports": ports})
        target = {"kind": "Pod", "namespace": "default", "name": name}
        endpoint = {"addresses": ["10.244.0.7"], "conditions": {"ready": is_ready}, "targetRef": target}
        await self._create(
            "discovery.k8s.io/v1",
            "EndpointSlice",
            name,
            labels={"kubernetes.io/service-name": name},
            addressType="IPv4",
            ports=[{"name": "http", "port": port}],
            endpoints=[endpoint],
        )

    async def _listen(self, name: str) -> int:
        async def answer(request: web.BaseRequest) -> web.Response:
            body = (await request.read()).decode()
            seen = [name, request.method, request.headers["Host"], request.raw_path, body]
            return web.Response(text=" ".join(seen).strip(), headers={"X-Proto": request.headers["X-Forwarded-Proto"]})

        runner = web.ServerRunner(web.Server(answer))
        await runner.setup()
        self.stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        return int(runner.addresses[0][1])

    async def add_class(self, name: str = "example", controller: str = "example.com/ingress") -> None:
        await self._create("networking.k8s.io/v1", "IngressClass", name, spec={"controller": controller})

    async def add_ingress(self, name: str = "shop", **spec: object) -> None:
        await self._create("networking.k8s.io/v1", "Ingress", name, spec={"ingressClassName": "example", **spec})

    async def _create(self, version: str, kind: str, name: str, labels: Object | None = None, **fields: object) -> None:
        metadata = {"name": name, "namespace": "default", "labels": labels or {}}
        await self.client.create({"apiVersion": version, "kind": kind, "metadata": metadata, **fields})

    async def fetch(self, host: str, path: str = "/", *, method: str = "GET", tls: bool = False, body: str = "") -> str:
        """Return the body of a 200, or the status code."""
        url = f"https://{host}:{self.https}{path}" if tls else f"http://127.0.0.1:{self.http}{path}"
        connector = aiohttp.TCPConnector(resolver=_Loopback(), ssl=self.trusted or True)
        async with (
            aiohttp.ClientSession(connector=connector) as session,
            session.request(method, url, headers={"Host": host}, data=body or None) as answer,
        ):
            return await answer.text() if answer.status == 200 else str(answer.status)

    async def until(self, read: Callable[[], Awaitable[str]], wanted: str) -> None:
        text = ""
        try:
            async with asyncio.timeout(60):
                while not (text := await read()).startswith(wanted):
                    await asyncio.sleep(0.01)
        except TimeoutError:
            raise AssertionError(f"expected {wanted}, found {text}") from None

    async def until_known(self, name: str = "shop") -> Object:
        """Wait until the controller has reported its address in the status of an Ingress, and return the status."""

        async def read() -> str:
            return str((await self.client.get(INGRESS, name, namespace="default"))["status"]["loadBalancer"])

        await self.until(read, "{'ingress'")
        status: Object = (await self.client.get(INGRESS, name, namespace="default"))["status"]
        return status


class _Loopback(aiohttp.abc.AbstractResolver):
    """Every host of the tests is this machine."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[aiohttp.abc.ResolveResult]:
        result = {
            "hostname": host,
            "host": "127.0.0.1",
            "port": port,
            "family": socket.AF_INET,
            "proto": 0,
            "flags": 0,
        }
        return [aiohttp.abc.ResolveResult(**result)]  # type: ignore[typeddict-item]

    async def close(self) -> None:
        """Nothing is open."""


@pytest.fixture
async def site(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    http, https = free_port(), free_port()
    monkeypatch.setenv("INGRESS_HTTP_PORT", str(http))
    monkeypatch.setenv("INGRESS_HTTPS_PORT", str(https))
    async with AsyncExitStack() as stack:
        cluster = await stack.enter_async_context(running(Settings(controllers=False)))
        cluster.plane.nodes.register("machine", ProcessNode())
        access = access_of(kubeconfig.kubeconfig_of(cluster.access))
        client = await stack.enter_async_context(connect(access))
        await client.create({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "machine"}})
        made = Site(client, http, https, stack)
        await made.add_class()
        await stack.enter_async_context(operator_in(str(EXAMPLE)).running(client))
        yield made


def path_to(service: str, path: str = "/", kind: str = "Prefix", port: Object | None = None) -> Object:
    backend = {"service": {"name": service, "port": port or {"number": 80}}}
    return {"path": path, "pathType": kind, "backend": backend}


def rule_of(host: str, *paths: Object) -> Object:
    return {**({"host": host} if host else {}), "http": {"paths": list(paths)}}


RULES = [
    rule_of(HOST, path_to("one", "/"), path_to("two", "/cart"), path_to("three", "/cart", "Exact")),
    rule_of("*.example.com", path_to("two", "/", port={"name": "http"})),
    rule_of("static.example.com", path_to("three", "/img/", "ImplementationSpecific")),
]
CASES = [
    pytest.param(HOST, "/", "one", id="the root is a prefix of every path"),
    pytest.param(HOST, "/cart/7?full=1", "two", id="the longest prefix wins"),
    pytest.param(HOST, "/cart", "three", id="an exact path wins over a prefix"),
    pytest.param(HOST, "/cart/", "two", id="an exact path does not match a trailing slash"),
    pytest.param(HOST, "/cartoon", "one", id="a prefix ends at a slash"),
    pytest.param(HOST.upper(), "/", "one", id="hosts have no case"),
    pytest.param("blog.example.com", "/", "two", id="a wildcard matches one label"),
    pytest.param("a.blog.example.com", "/", "default", id="a wildcard does not match two labels"),
    pytest.param("example.com", "/", "default", id="a wildcard does not match the domain itself"),
    pytest.param("static.example.com", "/img", "three", id="a trailing slash of a prefix is ignored"),
    pytest.param("static.example.com", "/", "default", id="the most specific host decides alone"),
    pytest.param("other.test", "/x", "default", id="an unknown host has the default backend"),
]


@pytest.mark.parametrize(("host", "path", "service"), CASES)
async def test_requests_go_to_the_service_of_their_host_and_path(
    site: Site, host: str, path: str, service: str
) -> None:
    for name in ("one", "two", "three", "default"):
        await site.add_service(name)
    backend = {"service": {"name": "default", "port": {"number": 80}}}
    await site.add_ingress(rules=RULES, defaultBackend=backend)
    await site.until(lambda: site.fetch(host, path), f"{service} GET {host} {path}")


async def test_the_status_names_the_address_and_the_body_passes_through(site: Site) -> None:
    await site.add_service("one")
    await site.add_ingress(rules=[rule_of(HOST, path_to("one"))])
    ports = [{"port": site.http, "protocol": "TCP"}, {"port": site.https, "protocol": "TCP"}]
    assert await site.until_known() == {"loadBalancer": {"ingress": [{"ip": "127.0.0.1", "ports": ports}]}}
    body = "x" * 900_000
    answer = await site.fetch(HOST, "/a%2Fb?c", method="POST", body=body)
    assert (answer[:50], len(answer)) == (f"one POST {HOST} /a%2Fb?c xxxxxxxxxxxxxxx", 35 + len(body))


async def test_requests_without_a_rule_or_a_ready_pod_are_refused(site: Site) -> None:
    await site.add_service("sleepy", is_ready=False)
    await site.add_service("deaf", listens=False)
    paths = [path_to("sleepy"), path_to("deaf", "/deaf"), path_to("missing", "/missing")]
    await site.add_ingress(rules=[rule_of(HOST, *paths)])
    await site.until_known()
    assert await site.fetch("other.test") == "404"
    assert [await site.fetch(HOST, path) for path in ("/", "/missing")] == ["503", "503"]
    assert await site.fetch(HOST, "/deaf") in ("502", "503")
    endpoint = {"addresses": ["10.244.0.7"], "targetRef": {"kind": "Pod", "namespace": "default", "name": "sleepy"}}
    await site.client.patch("discovery.k8s.io/v1/EndpointSlice", "sleepy", {"endpoints": [endpoint]})
    await site.until(lambda: site.fetch(HOST), "sleepy GET")


async def test_an_ingress_of_another_class_is_left_alone_until_it_changes_its_class(site: Site) -> None:
    await site.add_service("one")
    await site.add_class("other", "example.com/other")
    await site.add_ingress(ingressClassName="other", rules=[rule_of(HOST, path_to("one"))])
    await site.add_ingress("known", rules=[rule_of("known.test", path_to("one"))])
    await site.until_known("known")
    assert await site.fetch(HOST) == "404"
    assert (await site.client.get(INGRESS, "shop"))["status"] == {"loadBalancer": {}}
    await site.client.patch(INGRESS, "shop", {"spec": {"ingressClassName": "example"}})
    await site.until(lambda: site.fetch(HOST), "one GET")
    await site.client.patch(INGRESS, "shop", {"spec": {"ingressClassName": "other"}})
    await site.until(lambda: site.fetch(HOST), "404")


async def test_changed_and_deleted_rules_are_in_force_at_once(site: Site) -> None:
    await site.add_service("one")
    await site.add_service("two")
    await site.add_ingress(rules=[rule_of(HOST, path_to("one"))])
    await site.until(lambda: site.fetch(HOST), "one GET")
    await site.client.patch(INGRESS, "shop", {"spec": {"rules": [rule_of(HOST, path_to("two"))]}})
    await site.until(lambda: site.fetch(HOST), "two GET")
    await site.client.delete("v1/Service", "two")
    await site.until(lambda: site.fetch(HOST), "503")
    await site.client.delete(INGRESS, "shop")
    await site.until(lambda: site.fetch(HOST), "404")


def secret_of(name: str, pair: KeyPair) -> Object:
    data = {"tls.crt": pair.certificate_pem.decode(), "tls.key": pair.key_pem.decode()}
    metadata = {"name": name, "namespace": "default"}
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata,
        "type": "kubernetes.io/tls",
        "stringData": data,
    }


async def test_tls_shows_the_certificate_of_the_secret_and_follows_its_renewal(site: Site) -> None:
    old, new = new_ca(), new_ca()
    site.trusted = ssl.create_default_context(cadata=old.certificate_pem.decode())
    await site.add_service("one")
    await site.client.create(secret_of("cert", issue(old, common_name="shop", server_names=[HOST, "*.shop.test"])))
    tls = [{"hosts": [HOST, "*.shop.test"], "secretName": "cert"}]
    await site.add_ingress(rules=[rule_of("", path_to("one"))], tls=tls)
    await site.until_known()
    assert await site.fetch(HOST, tls=True) == f"one GET {HOST} /"
    assert await site.fetch("a.shop.test", tls=True) == "one GET a.shop.test /"
    with pytest.raises(aiohttp.ClientConnectorError):
        await site.fetch("other.test", tls=True)
    renewed = issue(new, common_name="shop", server_names=[HOST])
    await site.client.patch("v1/Secret", "cert", {"stringData": secret_of("cert", renewed)["stringData"]})
    site.trusted = ssl.create_default_context(cadata=new.certificate_pem.decode())

    async def fetch_renewed() -> str:
        try:
            return await site.fetch(HOST, tls=True)
        except aiohttp.ClientConnectorError as error:
            return str(error)

    await site.until(fetch_renewed, f"one GET {HOST} /")


async def test_a_bad_certificate_is_an_event_and_the_rest_is_served(site: Site) -> None:
    await site.add_service("one")
    bad = secret_of("cert", issue(new_ca(), common_name="shop", server_names=[HOST]))
    other = secret_of("other", issue(new_ca(), common_name="shop", server_names=[HOST]))
    bad["stringData"]["tls.key"] = other["stringData"]["tls.key"]
    await site.client.create(bad)
    tls = [{"hosts": [HOST], "secretName": "cert"}, {"hosts": ["b.test"], "secretName": "missing"}]
    await site.add_ingress(rules=[rule_of(HOST, path_to("one"))], tls=tls)
    await site.until(lambda: site.fetch(HOST), "one GET")

    async def messages() -> str:
        events = await site.client.list("v1/Event", namespace="default")
        return " ".join(sorted(event["message"] for event in events if event["reason"] == "BadCertificate"))

    await site.until(messages, "the secret cert has no usable tls.crt and tls.key: ")
    assert "the secret missing does not exist" in await messages()
