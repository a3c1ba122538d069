"""Run an operator: install its CRDs, serve its webhooks and APIs, and run its controllers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypedDict

from pinnace.client.client import Client
from pinnace.client.credentials import NoCredentials
from pinnace.client.rates import Rate
from pinnace.client.transport import ConnectionLost
from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.process.tasks import contain
from pinnace.reconcile.deadlines import StopDeadline
from pinnace.reconcile.leader import LeaderElection, Terms
from pinnace.reconcile.manager import Manager
from pinnace.reconcile.metrics import Metrics
from pinnace.sdk.api.computed import ComputedApi
from pinnace.sdk.declarations import Declarations
from pinnace.sdk.handlers.permissions import READ, rule_for
from pinnace.sdk.handlers.threads import MAX_THREADS, HandlerThreads
from pinnace.sdk.installation.api_registration import ApiRegistration, check_free, versions_of
from pinnace.sdk.installation.installation import ServiceName, install_definitions, install_webhooks
from pinnace.sdk.installation.webhook_repair import add_repairs
from pinnace.sdk.installation.webhook_restore import find_previous_webhooks, restore_webhooks
from pinnace.sdk.operator.controllers import add_controllers
from pinnace.sdk.operator.runtime import OperatorRuntime
from pinnace.sdk.operator.shared_resources import open_shared
from pinnace.sdk.operator.sources import Hook, hooks_of

if TYPE_CHECKING:
    from pinnace.sdk.installation.metric_registration import MetricRegistration
    from pinnace.sdk.operator.webhook_server import WebhookServer


import threading
import time

from pinnace.process.thread_stacks import stack_of_thread

_log = logging.getLogger(__name__)
_REVIEW = "authorization.k8s.io/v1"


class RunParameters(TypedDict, total=False):
    """The options of `Operator.run`."""

    install: bool
    """Apply the CRDs and webhook configurations to the cluster first."""
    leader_election: bool
    """Work only while this process holds the Lease with the operator's name. Shards have Leases of their own."""
    lease: Terms
    """The durations of these Leases."""
    webhook_host: str
    """The address of the webhooks, which the API server must reach."""
    webhook_port: int
    webhook_service: str
    """The Service, as namespace/name or namespace/name:port, by which the API server reaches the webhooks within a
    cluster. Without it, the server calls `webhook_host` itself."""
    metrics_port: int | None
    """Serve /metrics, /healthz and /readyz here."""
    max_threads: int
    """The most threads for `def` handlers."""
    rate: Rate
    """The requests of this operator to the API server, per second; watches do not count."""
    installer: Client
    """The client that installs CRDs, webhook configurations and APIServices, if the operator itself may not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """How an operator runs: the options of `Operator.run`, with their defaults."""

    install: bool = True
    leader_election: bool = False
    lease: Terms = field(default_factory=Terms)
    webhook_host: str = "127.0.0.1"
    webhook_port: int = 0
    webhook_service: str = ""
    metrics_port: int | None = None
    max_threads: int = MAX_THREADS
    rate: Rate | None = None
    installer: Client | None = None

    @property
    def service(self) -> ServiceName | None:
        """Raise ValueError if `webhook_service` does not name a Service."""
        return ServiceName.parse(self.webhook_service) if self.webhook_service else None


class Registrations(NamedTuple):
    """The APIs and metrics of one run that the API server has to find."""

    apis: ApiRegistration
    metrics: MetricRegistration | None

    async def announce(self, client_config: Object) -> None:
        await self.apis.announce(client_config)
        if self.metrics is not None:
            await self.metrics.announce(self.apis, client_config)

    async def wait_until_available(self) -> None:
        await self.apis.wait_until_available()
        if self.metrics is not None:
            await self.metrics.wait_until_available()


@asynccontextmanager
async def running(declarations: Declarations, client: Client, options: RunOptions) -> AsyncIterator[Manager]:
    """Run an operator within a block, which begins when its caches are full and ends with a clean stop."""
    service, installer = options.service, options.installer or client
    if options.rate is not None:
        client = client.limited(options.rate)
    async with AsyncExitStack() as stack:
        manager = _manager(declarations, client, options)
        if options.installer is not None:
            manager.meter(options.installer)
        stack.enter_context(declarations.instruments.running())
        manager.metrics.append(declarations.instruments.lines)
        threads = HandlerThreads(options.max_threads, name=declarations.name)
        stack.callback(threads.close)
        registrations = await _registrations(declarations, installer)
        computed = _computed_api(declarations, client, manager, threads)
        webhooks = await _serve_webhooks(stack, declarations, client, manager.metrics, options, computed)
        background = [partial(_check_permissions, declarations, client, manager)]
        if options.install or service is not None:
            if webhooks is not None and service is None:
                await _restore_at_exit(stack, declarations, installer, registrations, webhooks.client_config["url"])
            await _install(declarations, installer, registrations, webhooks, options)
            if webhooks is not None:
                trust = partial(_trust, declarations, installer, registrations)
                background.append(partial(webhooks.keep_fresh, trust))
        await stack.enter_async_context(loop_watched(declarations.name))
        opened = open_shared(declarations.startups, declarations.shutdowns, threads)
        shared = await stack.enter_async_context(opened)
        runtime = OperatorRuntime(declarations=declarations, manager=manager, threads=threads, shared=shared)
        manager.lingering = lambda: threads.running
        controllers = add_controllers(runtime)
        if webhooks is not None and (options.install or service is not None):
            add_repairs(manager, declarations, lambda: webhooks.client_config)
        await _serve_metrics(stack, manager, options, hooks_of(runtime, controllers))
        group = await stack.enter_async_context(asyncio.TaskGroup())
        tasks = [group.create_task(contain(work)) for work in background]
        stack.callback(lambda: [task.cancel() for task in tasks])
        yield await stack.enter_async_context(manager.running())


def _manager(declarations: Declarations, client: Client, options: RunOptions) -> Manager:
    """Return the manager of this process, which works on its shards, while it leads, or always."""
    name = declarations.name
    if declarations.shards:
        from pinnace.reconcile.shards import Shards  # noqa: PLC0415 - few operators have shards.

        return Manager(client, name=name, shards=Shards(client, name, declarations.shards, terms=options.lease))
    leader = LeaderElection(client, name, terms=options.lease) if options.leader_election else None
    return Manager(client, name=name, leader=leader)


async def _serve_metrics(
    stack: AsyncExitStack, manager: Manager, options: RunOptions, hooks: Mapping[str, Hook]
) -> None:
    if options.metrics_port is None:
        if hooks:
            raise ValueError(f"the source at {next(iter(hooks))} is served beside /metrics: choose a metrics_port")
        return
    from pinnace.sdk.operator.metrics_server import metrics_listening  # noqa: PLC0415 - aiohttp takes long to import

    await stack.enter_async_context(metrics_listening(manager, options.metrics_port, hooks=hooks))


async def _serve_webhooks(
    stack: AsyncExitStack,
    declarations: Declarations,
    client: Client,
    metrics: Metrics,
    options: RunOptions,
    computed: ComputedApi | None,
) -> WebhookServer | None:
    """Serve webhooks and APIs until the stack unwinds; None if there are none.

    Replicas that do not lead serve too: they share the certificate and ask for reviews with `client`, since that of the
    manager does not write without the lease.
    """
    if not declarations.has_endpoints:
        return None
    from pinnace.sdk.operator.webhook_server import (  # noqa: PLC0415 - aiohttp takes long to import
        ListenAddress,
        webhooks_listening,
    )

    names = [ApiRegistration(client, (), declarations.name).host_name] if declarations.serves_apis else []
    at = ListenAddress(options.webhook_host, options.webhook_port, options.service, names)
    listening = webhooks_listening(declarations, client, metrics, at=at, computed=computed)
    return await stack.enter_async_context(listening)


async def _registrations(declarations: Declarations, client: Client) -> Registrations:
    versions, metrics = versions_of(declarations.served_kinds), None
    if declarations.metrics.functions:
        from pinnace.sdk.installation.metric_registration import MetricRegistration  # noqa: PLC0415 - few need it

        metrics = MetricRegistration(client, declarations.metrics, declarations.name)
        versions += await metrics.own_versions()
    if declarations.computed is not None:
        await check_free(client, declarations.computed.versions, declarations.name)
        versions += declarations.computed.versions
    return Registrations(ApiRegistration(client, versions, declarations.name), metrics)


def _computed_api(
    declarations: Declarations, client: Client, manager: Manager, threads: HandlerThreads
) -> ComputedApi | None:
    if declarations.computed is not None:
        return declarations.computed.build(client, manager)
    functions = declarations.metrics.functions
    if not functions:
        return None
    from pinnace.sdk.metrics.api import MetricsApi  # noqa: PLC0415 - few operators have metrics
    from pinnace.sdk.metrics.evaluation import MetricEvaluator  # noqa: PLC0415 - few operators have metrics

    evaluator = MetricEvaluator(functions, manager, threads, declarations.namespaces)
    return MetricsApi(functions, evaluator, manager.client.clock)


async def _restore_at_exit(
    stack: AsyncExitStack, declarations: Declarations, client: Client, registrations: Registrations, url: str
) -> None:
    """Restore the former webhooks and APIServices at the end: this process's address would fail every write then."""
    previous = await find_previous_webhooks(client, declarations, url)
    stop, name = StopDeadline(client.clock), declarations.name
    restore = partial(restore_webhooks, client, declarations, previous)
    stack.push_async_callback(stop.run, f"the registration of the webhooks of {name}", restore)
    if declarations.serves_apis:
        await registrations.apis.remember()
        stack.push_async_callback(stop.run, f"the registration of the APIs of {name}", registrations.apis.restore)
    if registrations.metrics is not None:
        stack.push_async_callback(stop.run, f"MetricsProvider {name}", registrations.metrics.withdraw)


async def _install(
    declarations: Declarations,
    client: Client,
    registrations: Registrations,
    webhooks: WebhookServer | None,
    options: RunOptions,
) -> None:
    client_config = webhooks.client_config if webhooks is not None else None
    await install_definitions(client, declarations, client_config, only_converted=not options.install)
    if client_config is None:
        return
    if declarations.computed is not None and options.install:
        for needed in declarations.computed.objects(client.namespace):
            await client.apply(needed, field_manager=declarations.name, force=True)
    await install_webhooks(client, declarations, client_config)
    await registrations.announce(client_config)
    if options.service is None:
        # Behind a Service the server's requests arrive only after this pod is ready: waiting here would never end.
        await registrations.wait_until_available()


async def _trust(
    declarations: Declarations, client: Client, registrations: Registrations, client_config: Object
) -> None:
    """Make the API server trust the new certificate of webhooks and APIs."""
    await install_definitions(client, declarations, client_config, only_converted=True)
    await install_webhooks(client, declarations, client_config)
    await registrations.announce(client_config)


async def _check_permissions(declarations: Declarations, client: Client, manager: Manager) -> None:
    """Log the rules that are missing for watches: a forbidden watch is otherwise not noticed."""
    may_do_all: bool | None = None
    for informer in manager.informers:
        kind = informer.scope.kind
        try:
            if may_do_all is None:
                may_do_all = await _is_allowed(client, {"group": "*", "resource": "*", "verb": "*"})
            if may_do_all:
                return  # An administrator, as in most tests.
            served = await client.kinds.find(kind)
            for verb in ("list", "watch"):
                attributes = {"group": kind.group, "resource": served.plural, "verb": verb}
                if informer.scope.namespace:
                    attributes["namespace"] = informer.scope.namespace
                if not await _is_allowed(client, attributes):
                    rule = rule_for(kind.group, served.plural, READ, declarations.permissions())
                    name = declarations.name
                    _log.error("%s may not %s %s; add this rule to its role: %s", name, verb, kind.name, rule)
                    break
        except (errors.ApiError, ConnectionLost, NoCredentials) as error:
            _log.debug("cannot check the permissions for %s: %s", kind.name, error)


async def _is_allowed(client: Client, attributes: dict[str, str]) -> bool:
    review: Object = {"apiVersion": _REVIEW, "kind": "SelfSubjectAccessReview"}
    review["spec"] = {"resourceAttributes": attributes}
    return bool((await client.create(review))["status"]["allowed"])


LIMIT_SECONDS = 1.0


class _Heartbeat:
    """The time at which the loop last ran, which a thread compares with the current time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, name: str) -> None:
        self._loop = loop
        self._name = name
        self._thread = threading.get_ident()
        self._beat = time.monotonic()
        self._stopped = threading.Event()
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._tick()
        threading.Thread(target=self._watch, name=f"{self._name}-loop-watch", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()
        if self._timer is not None:
            self._timer.cancel()

    def _tick(self) -> None:
        self._beat = time.monotonic()
        self._timer = self._loop.call_later(LIMIT_SECONDS / 4, self._tick)

    def _watch(self) -> None:
        reported = 0.0
        while not self._stopped.wait(LIMIT_SECONDS / 2):
            beat = self._beat
            late = time.monotonic() - beat - LIMIT_SECONDS / 4
            if late > LIMIT_SECONDS and beat != reported:
                reported = beat
                stack = "\n".join(f"  {frame}" for frame in stack_of_thread(self._thread))
                _log.error(
                    "%s has blocked its event loop for %.1f s: no lease is renewed and no probe is answered meanwhile. "
                    "Write `def` instead of `async def` for a handler that blocks. It is here:\n%s",
                    self._name,
                    late,
                    stack,
                )


@asynccontextmanager
async def loop_watched(name: str) -> AsyncIterator[None]:
    """Log the stack of the event loop's thread whenever it is blocked for more than a second within the block."""
    heartbeat = _Heartbeat(asyncio.get_running_loop(), name)
    heartbeat.start()
    try:
        yield
    finally:
        heartbeat.stop()
