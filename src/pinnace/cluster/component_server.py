"""The HTTPS server of a component of its own, such as the scheduler: health, metrics, and the pages about the process.

Every caller may ask for its health. All else is authorized by the cluster, path by path, as in Kubernetes' components.
"""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import ssl
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import orjson
from aiohttp import web

from pinnace.client.client import Client
from pinnace.client.transport import ConnectionLost
from pinnace.kinds.feature_gates.gates import FeatureGates
from pinnace.model import errors
from pinnace.model.authorization import Action
from pinnace.model.objects import Object
from pinnace.node.agent.kubelet_api.web_pages import Diagnostics, WebPage
from pinnace.node.agent.status.served_minor import served_minor
from pinnace.node.identity.certificates import save, self_signed_certificate
from pinnace.process.tasks import Tasks
from pinnace.reconcile.manager import Manager
from pinnace.sdk.api.callers import Callers
from pinnace.server.health.zpages import ZPages
from pinnace.serving.discovery.version import version_of
from pinnace.serving.messages import Response

Page = Callable[[], Awaitable[str]]
"""Returns the text of a page."""
_VERBS = {"GET": "get", "HEAD": "head", "POST": "post", "PUT": "put", "PATCH": "patch", "DELETE": "delete"}
_PLAIN, _TEXT, _JSON = "text/plain; charset=utf-8", "text/plain; version=0.0.4; charset=utf-8", "application/json"
_HEALTH = ("/healthz", "/livez", "/readyz")
_REVIEW_SECONDS = 10.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Component:
    """The name, configuration and flags of a component, as its pages show them."""

    name: str
    """Its name in Kubernetes, such as kube-scheduler."""
    configuration: Mapping[str, Object]
    """The documents of /configz by their names."""
    flags: Mapping[str, str]


def zpages_of(
    name: str, gates: FeatureGates, flags: Mapping[str, str], paths: Sequence[str], began: float | None = None
) -> ZPages:
    """Return /statusz, /flagz and /debug/pprof of a component that serves these paths, too."""
    return ZPages(
        name,
        version=version_of(gates.minor),
        flags=flags,
        has_statusz=gates.is_on("ComponentStatusz"),
        has_flagz=gates.is_on("ComponentFlagz"),
        paths=paths,
        began=began,
    )


@dataclass(frozen=True)
class ComponentServer:
    component: Component
    feature_gates: str
    """The gates that differ from the defaults of the cluster's minor version."""
    address: str
    port: int
    """0 for no server."""

    @asynccontextmanager
    async def listening(self, manager: Manager, pages: Mapping[str, Page] | None = None) -> AsyncIterator[None]:
        """Serve the pages of a component within a block. Raise InvalidFeatureGates or OSError.

        `pages` are further ones in Prometheus' format.
        """
        if not self.port:
            yield
            return
        client = manager.client
        gates = FeatureGates.parse(f"1.{await served_minor(client)}", self.feature_gates)
        tls = _self_signed(self.component.name, self.address, client)
        callers = Callers(client, tls)
        app = web.Application()
        door = _Door(callers, _Pages(manager, self.component, gates, pages or {}))
        app.router.add_route("*", "/{path:.*}", door.answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
        async with Tasks(expected=(errors.ApiError, ConnectionLost)) as tasks:
            await callers.begin()
            tasks.start(callers.follow())
            await runner.setup()
            try:
                await web.TCPSite(runner, self.address or None, self.port, ssl_context=tls).start()
                print(f"metrics, health and status: https://{self.address}:{self.port}", flush=True)
                yield
            finally:
                await runner.cleanup()
                await callers.close()


class _Door:
    """Lets callers pass who may read a page."""

    def __init__(self, callers: Callers, pages: _Pages) -> None:
        self._callers = callers
        self._pages = pages

    async def answer(self, request: web.Request) -> web.Response:
        try:
            async with asyncio.timeout(_REVIEW_SECONDS):
                await self._check(request)
        except errors.ApiError as error:
            return _web(_error(error))
        except (ConnectionLost, TimeoutError, OSError) as error:
            _log.warning("a caller of %s could not be reviewed: %s", request.path, error or "no answer in time")
            return _web(_error(errors.InternalError("the cluster could not review the caller")))
        try:
            return _web(await self._pages.answer(request))
        except errors.ApiError as error:
            return _web(_error(error))

    async def _check(self, request: web.Request) -> None:
        """Raise Unauthorized or Forbidden."""
        transport = request.transport
        tls = transport.get_extra_info("ssl_object") if transport is not None else None
        certificate = tls.getpeercert(binary_form=True) if tls is not None else None
        try:
            user = await self._callers.identify(certificate, request.raw_headers)
        except errors.Unauthorized:
            raise
        except errors.ApiError as error:  # The review was refused: the fault is not the caller's.
            raise errors.InternalError(str(error)) from error
        verb = _VERBS.get(request.method, request.method.lower())
        try:
            decision = await self._callers.decide(user, Action(verb, path=request.path))
        except errors.ApiError as error:
            raise errors.InternalError(str(error)) from error
        if not decision.is_allowed:
            raise errors.Forbidden(f'User "{user.name}" cannot {verb} path "{request.path}"')


class _Pages:
    def __init__(self, manager: Manager, component: Component, gates: FeatureGates, pages: Mapping[str, Page]) -> None:
        self._manager = manager
        self._component = component
        self._metrics: Mapping[str, Page] = {"/metrics": self._own_metrics, **pages}
        self._zpages = zpages_of(component.name, gates, component.flags, ("/configz", *self._metrics))

    async def answer(self, request: web.Request) -> Response:
        path = request.path
        if request.method not in ("GET", "HEAD"):
            return _plain(405, "405: Method Not Allowed")
        if path in _HEALTH:
            return self._health(path)
        if path in self._metrics:
            return Response(200, ((b"Content-Type", _TEXT.encode()),), (await self._metrics[path]()).encode())
        if path == "/configz":
            return Response(200, ((b"Content-Type", _JSON.encode()),), orjson.dumps(self._component.configuration))
        segments = path.strip("/").split("/") if path != "/debug/pprof/" else ["debug", "pprof", ""]
        accept = request.headers.get("Accept", "")
        page = await self._zpages.answer(accept, request.query_string, segments)
        return page if page is not None else _plain(404, "404 page not found\n")

    async def _own_metrics(self) -> str:
        return self._manager.metrics.text()

    def _health(self, path: str) -> Response:
        failed = [controller.name for controller in self._manager.failed_controllers]
        if failed and path != "/readyz":
            return _plain(500, f"these controllers have ended: {', '.join(failed)}")
        late = [informer.scope.kind.name for informer in self._manager.informers if not informer.is_synced]
        if late and path == "/readyz":
            return _plain(500, f"not listed yet: {', '.join(late)}")
        return _plain(200, "ok")


def _plain(status: int, text: str) -> Response:
    return Response(status, ((b"Content-Type", _PLAIN.encode()),), text.encode("utf-8", "replace"))


def _error(error: errors.ApiError) -> Response:
    return Response(error.code, ((b"Content-Type", _JSON.encode()),), orjson.dumps(error.status))


def _web(response: Response) -> web.Response:
    headers = [(name.decode(), value.decode()) for name, value in _pairs(response)]
    body = response.body if isinstance(response.body, bytes) else b"".join(response.body)
    return web.Response(status=response.status, headers=headers, body=body)


def _pairs(response: Response) -> list[tuple[bytes, bytes]]:
    return list(cast("Sequence[tuple[bytes, bytes]]", response.headers))


def diagnostics_of_node(
    gates: FeatureGates, flags: Mapping[str, str], paths: Sequence[str], began: float
) -> Diagnostics:
    """Return the function that answers /statusz, /flagz and /debug/pprof of a node agent.

    `began` is the time of the monotonic clock at which the agent started.
    """
    zpages = zpages_of("kubelet", gates, flags, paths, began)

    async def answer(accept: str, query: str, segments: list[str]) -> WebPage | None:
        try:
            response = await zpages.answer(accept, query, segments)
        except errors.ApiError as error:
            response = _error(error)
        if response is None:
            return None
        headers = dict(_pairs(response))
        content_type = headers.pop(b"Content-Type", b"text/plain").decode()
        body = response.body if isinstance(response.body, bytes) else b"".join(response.body)
        return WebPage(response.status, content_type, body, tuple(headers.items()))

    return answer


def _self_signed(name: str, address: str, client: Client) -> ssl.SSLContext:
    """Return the certificate of a server that made it itself, as Kubernetes' components do."""
    try:
        names = [name, str(ipaddress.ip_address(address))]
    except ValueError:
        names = [name]
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    with tempfile.TemporaryDirectory(prefix="pinnace-") as directory:
        pair = Path(directory) / "server.pem"
        save(pair, self_signed_certificate(name, names, client.clock.now()))
        context.load_cert_chain(pair)
    return context
