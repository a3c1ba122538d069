"""An Ingress controller: it serves the hosts and paths of Ingress objects on two ports of this machine's loopback.

    pinnace run examples/12-ingress/ingress.py
    kubectl apply -f examples/12-ingress/shop.yaml
    curl --resolve shop.example.com:8080:127.0.0.1 http://shop.example.com:8080/

As a pod behind a Service of its own:

    pinnace manifests examples/12-ingress/ingress.py --image=IMAGE | kubectl apply -f -
    kubectl apply -f examples/12-ingress/service.yaml

It serves the Ingresses whose IngressClass names the controller example.com/ingress. Outside of the cluster it reaches
pods by port-forward; in a pod it connects to them directly. The variables INGRESS_ADDRESS, INGRESS_HTTP_PORT and
INGRESS_HTTPS_PORT say where it listens; INGRESS_SERVICE=NAMESPACE/NAME is the Service whose address it reports.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
import random
import ssl
import tempfile
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from pinnace.sdk import Caches, Context, Key, Operator

CONTROLLER = "example.com/ingress"
CLASS_ANNOTATION = "kubernetes.io/ingress.class"
INGRESS, INGRESS_CLASS = "networking.k8s.io/v1/Ingress", "networking.k8s.io/v1/IngressClass"
SERVICE, SLICE = "v1/Service", "discovery.k8s.io/v1/EndpointSlice"
SERVICE_NAME = "kubernetes.io/service-name"
HOP_BY_HOP = {"connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer"}
HOP_BY_HOP |= {"transfer-encoding", "upgrade", "host"}
Object = dict[str, Any]


class Endpoint(NamedTuple):
    """A port of a pod that is ready."""

    namespace: str
    pod: str
    address: str
    port: int


@dataclass(frozen=True, slots=True)
class Rule:
    """One path of one host, empty for all hosts. A rule without a path is a default backend."""

    host: str
    path: str
    is_exact: bool
    endpoints: tuple[Endpoint, ...]

    def matches_host(self, host: str) -> bool:
        if self.host.startswith("*."):  # The wildcard stands for one label.
            return bool(host.partition(".")[0]) and host.partition(".")[2] == self.host[2:]
        return self.host in ("", host)

    def matches_path(self, path: str) -> bool:
        if self.is_exact:
            return path == self.path
        prefix = self.path.rstrip("/")  # /shop matches /shop and /shop/cart, but not /shopping.
        return path == prefix or path.startswith(f"{prefix}/")

    @property
    def rank(self) -> tuple[bool, bool, bool, int]:
        """Hosts before wildcards before none; exact paths before prefixes; then the longest path."""
        return (bool(self.host), not self.host.startswith("*"), self.is_exact, len(self.path))


@dataclass(frozen=True, slots=True)
class Route:
    """All that one Ingress asks for."""

    rules: tuple[Rule, ...] = ()
    certificates: dict[str, ssl.SSLContext] = field(default_factory=dict)
    """By the host of the client's server name indication."""

    @property
    def endpoints(self) -> set[Endpoint]:
        return {endpoint for rule in self.rules for endpoint in rule.endpoints}


class Gateway:
    """The web server: it finds the rule of each request, and forwards the request to one of its endpoints."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self._routes: dict[Key, Route] = {}
        self._rules: list[Rule] = []
        self._tunnels: dict[Endpoint, tuple[AsyncExitStack, str]] = {}
        self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.tls.sni_callback = self._choose_certificate

    def set(self, key: Key, route: Route | None) -> None:
        """Serve the route of an Ingress from now on, or stop it."""
        if route is None:
            self._routes.pop(key, None)
        else:
            self._routes[key] = route
        rules = [rule for _, routes in sorted(self._routes.items()) for rule in routes.rules]
        self._rules = sorted(rules, key=lambda rule: rule.rank, reverse=True)

    def unused(self) -> list[Endpoint]:
        used = {endpoint for route in self._routes.values() for endpoint in route.endpoints}
        return [endpoint for endpoint in self._tunnels if endpoint not in used]

    async def open(self, endpoint: Endpoint, ctx: Context) -> None:
        """Make an endpoint reachable: by a port of this machine that the API server forwards to the pod."""
        if endpoint in self._tunnels:
            return
        stack = AsyncExitStack()
        if "KUBERNETES_SERVICE_HOST" in os.environ:
            host = f"[{endpoint.address}]" if ":" in endpoint.address else endpoint.address
            self._tunnels[endpoint] = (stack, f"http://{host}:{endpoint.port}")
            return
        forward = ctx.client.port_forward(endpoint.pod, endpoint.port, namespace=endpoint.namespace)
        url = (await stack.enter_async_context(forward)).url
        self._tunnels[endpoint] = (stack, url)

    async def close(self, endpoints: Iterable[Endpoint]) -> None:
        for endpoint in list(endpoints):
            stack, _ = self._tunnels.pop(endpoint)
            await stack.aclose()

    async def close_all(self) -> None:
        await self.close(self._tunnels)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        rule = self._find((request.host.partition(":")[0]).lower(), request.path)
        if rule is None:
            return web.Response(status=404, text="no Ingress has a rule for this host and path\n")
        for endpoint in random.sample(rule.endpoints, len(rule.endpoints)):
            try:
                return await self._forward(request, self._tunnels[endpoint][1])
            except (aiohttp.ClientConnectorError, KeyError):
                continue  # Nothing was sent: the next endpoint may do it.
            except aiohttp.ClientError as error:
                return web.Response(status=502, text=f"the pod has not answered: {error}\n")
        return web.Response(status=503, text="no pod of the Service is ready\n")

    def _find(self, host: str, path: str) -> Rule | None:
        """Return the rule of a request. The most specific host decides alone; default backends come last."""
        named = [rule for rule in self._rules if rule.path and rule.matches_host(host)]
        own = [rule for rule in named if rule.host == named[0].host]
        defaults = [rule for rule in self._rules if not rule.path]
        return next((rule for rule in [*own, *defaults] if rule.matches_path(path)), None)

    async def _forward(self, request: web.BaseRequest, url: str) -> web.StreamResponse:
        headers = _end_to_end(request.headers)
        headers["Host"] = request.host
        headers["X-Forwarded-For"] = request.remote or ""
        headers["X-Forwarded-Host"] = request.host
        headers["X-Forwarded-Proto"] = request.scheme
        target = URL(url + request.raw_path, encoded=True)
        body = request.content if request.can_read_body else None
        async with self._session.request(
            request.method, target, data=body, headers=headers, allow_redirects=False
        ) as answer:
            own = _end_to_end(answer.headers)
            response = web.StreamResponse(status=answer.status, reason=answer.reason, headers=own)
            await response.prepare(request)
            async for data in answer.content.iter_any():
                await response.write(data)
            await response.write_eof()
            return response

    def _choose_certificate(self, connection: ssl.SSLObject, host: str | None, _: ssl.SSLContext) -> int | None:
        name = (host or "").lower()
        for route in self._routes.values():
            for pattern in (name, f"*.{name.partition('.')[2]}", ""):
                if pattern in route.certificates:
                    connection.context = route.certificates[pattern]
                    return None
        return ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME


def _end_to_end(headers: Any) -> CIMultiDict[str]:
    """Return the headers that are not about the connection itself."""
    named = {word.strip().lower() for word in headers.get("Connection", "").split(",")}
    return CIMultiDict(
        (name, value) for name, value in headers.items() if name.lower() not in HOP_BY_HOP and name.lower() not in named
    )


operator = Operator("ingress")


@operator.startup
async def listen() -> AsyncIterator[Gateway]:
    address = os.environ.get("INGRESS_ADDRESS", "127.0.0.1")
    timeout = aiohttp.ClientTimeout(total=None, sock_connect=5, sock_read=60)
    async with aiohttp.ClientSession(timeout=timeout, auto_decompress=False) as session:
        gateway = Gateway(session)
        runner = web.ServerRunner(web.Server(gateway.handle))
        await runner.setup()
        try:
            await web.TCPSite(runner, address, port_of("http", 8080)).start()
            await web.TCPSite(runner, address, port_of("https", 8443), ssl_context=gateway.tls).start()
            yield gateway
        finally:
            await runner.cleanup()
            await gateway.close_all()


def port_of(name: str, default: int) -> int:
    return int(os.environ.get(f"INGRESS_{name.upper()}_PORT", default))


@operator.index(INGRESS)
def by_service(ingress: Object) -> Iterable[str]:
    return {f"{ingress['metadata']['namespace']}/{name}" for name in services_of(ingress)}


@operator.index(INGRESS)
def by_secret(ingress: Object) -> Iterable[str]:
    namespace = ingress["metadata"]["namespace"]
    return {f"{namespace}/{tls['secretName']}" for tls in ingress["spec"].get("tls") or () if tls.get("secretName")}


@operator.index(INGRESS)
def by_class(ingress: Object) -> Iterable[str]:
    return [class_of(ingress)]


def of_service(obj: Object, caches: Caches) -> set[Key]:
    name = (obj["metadata"].get("labels") or {}).get(SERVICE_NAME) if obj["kind"] == "EndpointSlice" else ""
    return caches.keys(INGRESS, "by_service", f"{obj['metadata']['namespace']}/{name or obj['metadata']['name']}")


def of_secret(secret: Object, caches: Caches) -> set[Key]:
    return caches.keys(INGRESS, "by_secret", f"{secret['metadata']['namespace']}/{secret['metadata']['name']}")


def of_class(ingress_class: Object, caches: Caches) -> set[Key]:
    return caches.keys(INGRESS, "by_class", ingress_class["metadata"]["name"])


@operator.reconcile(
    INGRESS, watches={SERVICE: of_service, SLICE: of_service, "v1/Secret": of_secret, INGRESS_CLASS: of_class}
)
async def route(ingress: Object, ctx: Context) -> None:
    gateway = ctx.shared[Gateway]
    ingress_class = await ctx.get(INGRESS_CLASS, class_of(ingress)) if class_of(ingress) else None
    if ingress_class is None or ingress_class["spec"].get("controller") != CONTROLLER:
        gateway.set(ctx.key, None)
    else:
        wanted = Route(tuple(await rules_of(ingress, ctx)), await certificates_of(ingress, ctx))
        for endpoint in wanted.endpoints:
            await gateway.open(endpoint, ctx)
        if await ctx.get(INGRESS, ctx.key.name) is not None:  # It may have been deleted meanwhile.
            gateway.set(ctx.key, wanted)
        ingress["status"] = {"loadBalancer": {"ingress": await addresses(ctx)}}
    await gateway.close(gateway.unused())


@operator.daemon(INGRESS)
async def withdraw(ingress: Object, ctx: Context) -> None:
    """Stop serving an Ingress when it is deleted: the SDK cancels this task then."""
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        ctx.shared[Gateway].set(ctx.key, None)


def class_of(ingress: Object) -> str:
    annotation = (ingress["metadata"].get("annotations") or {}).get(CLASS_ANNOTATION, "")
    return str(ingress["spec"].get("ingressClassName") or annotation)


def services_of(ingress: Object) -> Iterable[str]:
    for backend in [ingress["spec"].get("defaultBackend"), *(path["backend"] for _, path in paths_of(ingress))]:
        if backend and backend.get("service"):
            yield backend["service"]["name"]


def paths_of(ingress: Object) -> Iterable[tuple[str, Object]]:
    for rule in ingress["spec"].get("rules") or ():
        for path in (rule.get("http") or {}).get("paths") or ():
            yield rule.get("host", ""), path


async def rules_of(ingress: Object, ctx: Context) -> list[Rule]:
    rules = []
    for host, path in paths_of(ingress):
        is_exact = path["pathType"] == "Exact"
        rules.append(Rule(host, path.get("path") or "/", is_exact, await endpoints_of(path["backend"], ctx)))
    if backend := ingress["spec"].get("defaultBackend"):
        rules.append(Rule("", "", is_exact=False, endpoints=await endpoints_of(backend, ctx)))
    return rules


async def endpoints_of(backend: Object, ctx: Context) -> tuple[Endpoint, ...]:
    """Return the ready endpoints of a backend. A backend that is no Service, or a missing one, has none."""
    service = await ctx.get(SERVICE, backend["service"]["name"]) if backend.get("service") else None
    if service is None:
        return ()
    wanted = backend["service"]["port"]
    names = [
        port.get("name", "")
        for port in service["spec"].get("ports") or ()
        if port["port"] == wanted.get("number") or (wanted.get("name") and port.get("name") == wanted["name"])
    ]
    slices = await ctx.list(SLICE, labels=f"{SERVICE_NAME}={service['metadata']['name']}")
    return tuple(sorted({endpoint for part in slices for endpoint in ready_endpoints(part, names[:1])}))


def ready_endpoints(endpoint_slice: Object, names: Sequence[str]) -> Iterable[Endpoint]:
    for port in endpoint_slice.get("ports") or ():
        if (port.get("name") or "") not in names or not port.get("port"):
            continue
        for endpoint in endpoint_slice.get("endpoints") or ():
            target = endpoint.get("targetRef") or {}
            if (endpoint.get("conditions") or {}).get("ready") is not False and target.get("kind") == "Pod":
                yield Endpoint(target["namespace"], target["name"], endpoint["addresses"][0], port["port"])


async def certificates_of(ingress: Object, ctx: Context) -> dict[str, ssl.SSLContext]:
    """Load the certificates from the Secrets. One that cannot be used is an event, and its hosts have no TLS."""
    contexts: dict[str, ssl.SSLContext] = {}
    for tls in ingress["spec"].get("tls") or ():
        name = tls.get("secretName", "")
        secret = await ctx.get("v1/Secret", name) if name else None
        try:
            context = context_of(secret or {})
        except (KeyError, ValueError, binascii.Error, ssl.SSLError) as error:
            what = "does not exist" if secret is None else f"has no usable tls.crt and tls.key: {error}"
            ctx.event("BadCertificate", f"the secret {name} {what}", type="Warning")
            continue
        contexts |= dict.fromkeys(tls.get("hosts") or [""], context)
    return contexts


def context_of(secret: Object) -> ssl.SSLContext:
    pair = b"\n".join(base64.b64decode(secret["data"][name], validate=True) for name in ("tls.crt", "tls.key"))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile(prefix="ingress-") as file:  # OpenSSL reads a key from a file alone.
        Path(file.name).write_bytes(pair)
        context.load_cert_chain(file.name)
    return context


async def addresses(ctx: Context) -> list[Object]:
    """Return the addresses that the status of every Ingress reports."""
    namespace, _, name = os.environ.get("INGRESS_SERVICE", "").rpartition("/")
    if name:
        service = await ctx.get(SERVICE, name, namespace=namespace or "default")
        return list((((service or {}).get("status") or {}).get("loadBalancer") or {}).get("ingress") or ())
    ports = [{"port": port, "protocol": "TCP"} for port in (port_of("http", 8080), port_of("https", 8443)) if port]
    return [{"ip": os.environ.get("INGRESS_ADDRESS", "127.0.0.1"), "ports": ports}]


operator.needs(INGRESS, "patch", subresource="status")
operator.needs("v1/Pod", "get")
operator.needs("v1/Pod", "create", subresource="portforward")


if __name__ == "__main__":
    operator.serve()
