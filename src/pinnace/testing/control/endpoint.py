"""The control endpoint of a test's cluster: `/control` beside the API, for its administrator alone."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple

import orjson

from pinnace.client import kubeconfig_files as kubeconfig
from pinnace.client.kubeconfig_files import ClusterAccess
from pinnace.cluster.server_jobs import add_regular_jobs
from pinnace.cluster.settings import Settings
from pinnace.model import errors
from pinnace.model.users import MASTERS
from pinnace.process.eager_coroutines import NowOrLater
from pinnace.serving.messages import JSON_HEADERS, Answer, Request, Response
from pinnace.testing.cluster import Cluster, running_cluster
from pinnace.testing.control.fault_requests import add_rule, injected_as_json, rule_as_json
from pinnace.testing.history import HistoryEntry, ObjectVersion
from pinnace.testing.live_clock import LiveClock
from pinnace.testing.quiet import NotQuiet, wait_until_quiet
from pinnace.testing.wire import Wire, certificates

PREFIX = "/control"
_QUIET_SECONDS = 0.5
_TIMEOUT_SECONDS = 60.0


class ControlCall(NamedTuple):
    """A request to the control endpoint."""

    body: dict[str, Any]
    query: Callable[[str], str | None]
    name: str
    """The part of the path after the collection: the name of a fork, or the number of a fault."""


class ControlledCluster:
    """A cluster at a socket of its own, with its control endpoint. Its forks are served at sockets of their own."""

    def __init__(self, cluster: Cluster, clock: LiveClock, name: str) -> None:
        self.cluster = cluster
        self.clock = clock
        self.name = name
        self.forks: dict[str, ControlledCluster] = {}
        self._numbers = itertools.count(1)
        self._wire: Wire | None = None

    @property
    def access(self) -> ClusterAccess:
        """The way to reach the cluster, as its administrator."""
        assert self._wire is not None, "the cluster does not listen"
        return replace(self._wire.access, name=self.name)

    @property
    def url(self) -> str:
        return self.access.server

    async def listen(self, host: str = "127.0.0.1", port: int = 0) -> None:
        """Serve the API and the control endpoint. Raise CannotListen."""
        self._wire = await self.cluster.open_socket(ControlApi(self), host=host, port=port)
        add_regular_jobs(self.cluster.plane)

    async def fork(self, name: str = "") -> ControlledCluster:
        """Serve a copy of the cluster at a port of its own."""
        name = name or f"{self.name}-{next(self._numbers)}"
        if name in self.forks:
            raise errors.AlreadyExists(group="", plural="forks", name=name)
        copy = await self.cluster.fork()
        assert isinstance(copy.clock, LiveClock)
        twin = ControlledCluster(copy, copy.clock, name)
        self.forks[name] = twin
        await twin.listen()
        return twin

    async def close(self) -> None:
        """Close the cluster and its forks."""
        while self.forks:
            await self.forks.popitem()[1].close()
        await self.cluster.close()
        self.clock.close()


@asynccontextmanager
async def running_with_control(
    settings: Settings, *, before_ready: Callable[[ClusterAccess], None] = lambda access: None
) -> AsyncIterator[ControlledCluster]:
    """Run a cluster in memory with a control endpoint, from its readiness to its end. Time passes by itself.

    `before_ready` is called with the way to reach it.
    """
    clock = LiveClock()
    async with running_cluster(settings=settings, clock=clock, files=certificates()) as cluster:
        if settings.nodes:
            await cluster.add_nodes(settings.nodes)
        controlled = ControlledCluster(cluster, clock, settings.name)
        try:
            await controlled.listen(settings.host, settings.port)
            before_ready(controlled.access)
            yield controlled
        finally:
            await controlled.close()


class ControlApi:
    """Answers the requests to `/control`, and passes on all others. No fault happens to its own requests."""

    def __init__(self, controlled: ControlledCluster) -> None:
        self._controlled = controlled
        self._cluster = controlled.cluster
        self._api = self._cluster.plane.api
        self._routes: dict[tuple[str, str], Callable[[ControlCall], Awaitable[Response]]] = {
            ("GET", ""): self._show,
            ("GET", "clock"): self._show_clock,
            ("POST", "clock"): self._change_clock,
            ("GET", "forks"): self._list_forks,
            ("POST", "forks"): self._create_fork,
            ("DELETE", "forks"): self._delete_fork,
            ("GET", "faults"): self._list_rules,
            ("POST", "faults"): self._create_rule,
            ("DELETE", "faults"): self._lift_rules,
            ("GET", "history"): self._show_history,
            ("GET", "timeline"): self._show_timeline,
            ("POST", "settle"): self._settle,
        }

    def __call__(self, request: Request, /) -> NowOrLater[Answer]:
        if request.path != PREFIX and not request.path.startswith(f"{PREFIX}/"):
            return self._api(request)
        return self._handle(request)

    async def _handle(self, request: Request) -> Answer:
        try:
            known = self._api.authenticate(request)
            user = await known if isinstance(known, Awaitable) else known
            if MASTERS not in user.groups:
                why = f'User "{user.name}" cannot use the control endpoint: it is for the group {MASTERS}'
                raise errors.Forbidden(why)
            collection, _, name = request.path.removeprefix(PREFIX).strip("/").partition("/")
            run = self._routes.get((request.method, collection))
            if run is None:
                raise _no_route(request, {collection for _, collection in self._routes})
            return await run(ControlCall(_body_of(request), request.parameter, name))
        except errors.ApiError as error:
            return self._api.render_error(request, error)

    # The cluster

    async def _show(self, call: ControlCall) -> Response:
        collections = sorted({collection for _, collection in self._routes if collection})
        return _json({"name": self._controlled.name, "server": self._controlled.url, "paths": collections})

    async def _settle(self, call: ControlCall) -> Response:
        quiet, timeout = _number(call.body, "quiet", _QUIET_SECONDS), _number(call.body, "timeout", _TIMEOUT_SECONDS)
        try:
            await wait_until_quiet(self._cluster, quiet=quiet, timeout=timeout)
        except (NotQuiet, TimeoutError) as error:
            raise errors.Timeout(str(error)) from None
        return _json({"revision": self._cluster.plane.store.revision})

    # Time

    async def _show_clock(self, call: ControlCall) -> Response:
        clock = self._controlled.clock
        return _json({"now": clock.now(), "paused": clock.is_paused})

    async def _change_clock(self, call: ControlCall) -> Response:
        """Apply the fields in this order: paused, now, advance."""
        unknown = sorted(set(call.body) - {"paused", "now", "advance"})
        if unknown or not call.body:
            listed = ", ".join(unknown) or "none"
            raise errors.BadRequest(f"the clock has the fields advance, now and paused, found {listed}")
        clock, paused = self._controlled.clock, call.body.get("paused")
        seconds, moment = _number(call.body, "advance", 0.0), _moment(call.body)
        if not isinstance(paused, bool | None):
            raise errors.BadRequest(f"paused: expected true or false, found {paused!r}")
        if paused is not None:
            (clock.pause if paused else clock.resume)()
        if moment is not None:
            clock.set(moment)
        if seconds:
            try:
                await self._cluster.advance(seconds)
            except TimeoutError as error:
                raise errors.Timeout(str(error)) from None
        return await self._show_clock(call)

    # Forks

    async def _list_forks(self, call: ControlCall) -> Response:
        return _json({"items": [_fork_as_json(fork) for fork in self._controlled.forks.values()]})

    async def _create_fork(self, call: ControlCall) -> Response:
        name = call.body.get("name", "")
        if not isinstance(name, str):
            raise errors.BadRequest(f"name: expected a text, found {name!r}")
        return _json(_fork_as_json(await self._controlled.fork(name)), status=201)

    async def _delete_fork(self, call: ControlCall) -> Response:
        fork = self._controlled.forks.pop(call.name, None)
        if fork is None:
            raise errors.NotFound(group="", plural="forks", name=call.name)
        await fork.close()
        return _json({"name": call.name})

    # Faults

    async def _list_rules(self, call: ControlCall) -> Response:
        faults = self._cluster.faults
        rules = [rule_as_json(faults, rule) for rule in faults.rules]
        return _json({"items": rules, "injected": [injected_as_json(fault) for fault in faults.injected]})

    async def _create_rule(self, call: ControlCall) -> Response:
        faults = self._cluster.faults
        return _json(rule_as_json(faults, add_rule(faults, call.body)), status=201)

    async def _lift_rules(self, call: ControlCall) -> Response:
        faults = self._cluster.faults
        if not call.name:
            faults.lift()
            return await self._list_rules(call)
        number = int(call.name) if call.name.isdigit() else 0
        if not 0 < number <= len(faults.rules):
            raise errors.NotFound(group="", plural="faults", name=call.name)
        rule = faults.rules[number - 1]
        rule.lift()
        return _json(rule_as_json(faults, rule))

    # History

    def _about(self, call: ControlCall) -> Callable[[HistoryEntry], bool]:
        """Return the filter of the parameters resource, namespace and name."""
        return self._cluster.history.about(call.query("resource"), call.query("namespace"), call.query("name"))

    async def _show_history(self, call: ControlCall) -> Response:
        versions = filter(self._about(call), self._cluster.history.versions)
        return _json({"items": [_version_as_json(version) for version in versions]})

    async def _show_timeline(self, call: ControlCall) -> Response:
        history, matches = self._cluster.history, self._about(call)
        if call.query("format") == "html":
            page = history.timeline_html(self._controlled.name, matches)
            return Response(200, ((b"Content-Type", b"text/html; charset=utf-8"),), page.encode())
        return Response(
            200, ((b"Content-Type", b"text/plain; charset=utf-8"),), f"{history.timeline(matches)}\n".encode()
        )


def _json(value: Any, *, status: int = 200) -> Response:
    return Response(status, JSON_HEADERS, orjson.dumps(value, option=orjson.OPT_APPEND_NEWLINE))


def _body_of(request: Request) -> dict[str, Any]:
    if not request.body:
        return {}
    try:
        decoded = orjson.loads(request.body)
    except orjson.JSONDecodeError as error:
        raise errors.BadRequest(f"the body is not JSON: {error}") from None
    if not isinstance(decoded, dict | None):
        raise errors.BadRequest("the body is not a JSON object")
    return decoded or {}


def _no_route(request: Request, collections: set[str]) -> errors.ApiError:
    if request.path.removeprefix(PREFIX).strip("/").partition("/")[0] in collections:
        return errors.BadMethod()
    expected = ", ".join(f"{PREFIX}/{collection}" for collection in sorted(collections) if collection)
    return errors.NoSuchPath(f"the control endpoint has no {request.path}; expected {expected}")


def _number(body: dict[str, Any], field: str, default: float) -> float:
    value = body.get(field, default)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1e9:
        raise errors.BadRequest(f"{field}: expected a number of seconds that is not negative, found {value!r}")
    return float(value)


def _moment(body: dict[str, Any]) -> datetime | None:
    value = body.get("now")
    if value is None:
        return None
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        moment = None
    if moment is None or moment.tzinfo is None:
        raise errors.BadRequest(f"now: expected a time such as 2026-01-01T00:00:00Z, found {value!r}")
    return moment


def _fork_as_json(fork: ControlledCluster) -> dict[str, Any]:
    return {"name": fork.name, "server": fork.url, "kubeconfig": kubeconfig.render(fork.access).decode()}


def _version_as_json(version: ObjectVersion) -> dict[str, Any]:
    return {
        "time": version.time,
        "revision": version.revision,
        "action": version.action,
        "resource": version.resource,
        "key": version.key,
        "verb": version.origin.verb,
        "user": version.origin.user,
        "client": version.origin.client,
        "difference": version.difference,
        "object": version.object,
    }
