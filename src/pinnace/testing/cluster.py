"""A cluster in the test's own process: a real server, without sockets unless a tool needs one, on the test's clock."""

from __future__ import annotations

import asyncio
import logging
import secrets
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from pinnace.auth.certificates.authority import CertificateFiles
from pinnace.client import kubeconfig_files as kubeconfig
from pinnace.client.client import Client
from pinnace.client.transport import ConnectionLost
from pinnace.cluster.control_plane import ControlPlane, build, build_on, fork_foundation
from pinnace.cluster.controllers import controllers_of
from pinnace.cluster.in_process import InProcessTransport, in_process_client
from pinnace.cluster.server_jobs import add_extension_parts
from pinnace.cluster.settings import Settings
from pinnace.controllers.security.server_config_maps import TRUST
from pinnace.controllers.storage.local_path import DIRECTORY as VOLUMES
from pinnace.controllers.storage.local_path import default_storage_class
from pinnace.model.objects import Kind, Object
from pinnace.model.users import AUTHENTICATED, MASTERS, User, service_account_groups, service_account_name
from pinnace.node.simulated.machines import NodeShape
from pinnace.node.simulated.nodes import SimulatedNodes
from pinnace.node.simulated.stages import Life
from pinnace.process.tasks import Tasks
from pinnace.reconcile.informer import EmptyKind
from pinnace.reconcile.manager import Manager
from pinnace.sdk.extension import Extension
from pinnace.sdk.installation.installation import Rights, install_account, install_external_definitions
from pinnace.sdk.operator.operator import Operator
from pinnace.server.bootstrap.creation import bootstrap
from pinnace.serving.cache.fanout import Fanout
from pinnace.serving.cache.watch_cache import CacheEvent
from pinnace.serving.messages import RequestHandler
from pinnace.store.memory import MemoryStore
from pinnace.store.store import Change
from pinnace.testing.clock import ManualClock
from pinnace.testing.faults import Faults, UnusedFault, describe
from pinnace.testing.faulty_api import FaultyApi, is_bookkeeping
from pinnace.testing.handler_time import HandlerTime, modules_of
from pinnace.testing.history import ObjectHistory
from pinnace.testing.nodes import ClusterNodes, NodeSetup
from pinnace.testing.recordings import Recording, read_recording, remove_object, store_object
from pinnace.testing.wire import Wire, certificates, open_wire

ADMIN = User("admin", (MASTERS, AUTHENTICATED))
ACCOUNT_NAMESPACE = "default"
"""The namespace of the ServiceAccounts of operators, and of their Leases."""


@dataclass(frozen=True, slots=True)
class ClusterSnapshot:
    """The objects and caches of a cluster. Each cluster that is built has a copy of them at that moment."""

    store: MemoryStore
    fanout: Fanout

    def build(self, settings: Settings, clock: ManualClock, token: str, files: CertificateFiles | None) -> ControlPlane:
        """Build a control plane with these objects."""
        store = self.store.fork()
        foundation = fork_foundation(settings, store, self.fanout.fork(store), clock)
        plane = build_on(foundation, settings, tokens={token: ADMIN}, files=files)
        plane.aggregation.show(certificates().front_proxy_client)
        return plane


PATIENCE = 10.0
"""The real seconds that a step of a test may take before it counts as hanging, where the process could work."""
_CONTROLLERS = "controllers"
_TEMPLATES: dict[bool, ClusterSnapshot] = {}
"""The state after the start of a cluster with the default settings, with and without controllers.

The next ones begin with it: they need not do again what the server and its controllers do at their first start.
"""


class Cluster:
    """The cluster of one test. Everything in it is gone when the test ends."""

    def __init__(
        self,
        plane: ControlPlane,
        clock: ManualClock,
        settings: Settings,
        token: str,
        files: CertificateFiles | None = None,
    ) -> None:
        """`token` is the administrator's. `files` are published and sign requests, as in every other cluster."""
        self.clock = clock
        """Time passes only by `await cluster.clock.advance(seconds)`."""
        self.faults = Faults(clock, plane.local, lambda: self._fork_plane(clock).api)
        """Adds rules for conflicts, time-outs, lost events and other faults."""
        self._api = FaultyApi(plane.api, self.faults, clock)
        self.plane = replace(plane, api=self._api)
        plane.webhooks.check_call = self.faults.check_webhook
        self.managers: list[Manager] = []
        self._settings = settings
        self._token = token
        self._files = files
        self.kept: list[KeptManager] = []
        """The managers that run until the test ends."""
        self._stack = AsyncExitStack()
        self._tasks = Tasks()
        self._beginning: asyncio.Task[None] | None = None
        self._wire: Wire | None = None
        self._sockets: list[Wire] = []
        self._nodes = ClusterNodes(self.plane)
        self._handler_time = HandlerTime(clock)
        self._is_closed = False
        self.settle_disturbed: Callable[[], Awaitable[None]] | None = None
        """Called by `settle` while operators are disturbed on purpose, instead of waiting for all managers."""
        self.extra_seconds = 0.0
        """The real seconds that `settle` may take beside PATIENCE."""
        self.history = ObjectHistory(clock)
        """Every change since the cluster was made or forked, with its writer."""
        self.faults.on_inject = self.history.note_injection
        plane.store.follow(self.history.note)
        plane.store.follow(self._note_change)
        self.client: Client = self._client(None, "test")
        """The administrator's client."""

    async def fork(self) -> Cluster:
        """Return a copy of the whole cluster: objects, revisions, custom kinds and the clock. It takes a millisecond.

        From then on each changes on its own. Watches of the fork start at its own revision. Operators are not copied:
        `run` them in the fork. The built-in controllers, and simulated nodes if there are any, begin with its first
        change. Use it in a block, `async with await cluster.fork() as copy:`, or call its `close`.
        """
        if self._is_closed:
            raise RuntimeError("the cluster is closed, so that it cannot be forked; fork it within its test or block")
        clock = self.clock.fork()
        twin = Cluster(self._fork_plane(clock), clock, self._settings, self._token, self._files)
        twin._nodes.setups = list(self._nodes.setups)
        if self._wire is not None:
            await twin._use_wire()
        return twin

    def _fork_plane(self, clock: ManualClock) -> ControlPlane:
        """Return a control plane with the objects of now."""
        return self._present().build(self._settings, clock, self._token, self._files)

    def snapshot(self) -> ClusterSnapshot:
        """Return the objects of now. It takes a millisecond: bytes are shared."""
        copied = self._present().store.fork()
        return ClusterSnapshot(copied, self.plane.fanout.fork(copied))

    def _present(self) -> ClusterSnapshot:
        """Return the objects themselves, which go on to change: for a copy that is made at once."""
        store = self.plane.store
        assert isinstance(store, MemoryStore)
        return ClusterSnapshot(store, self.plane.fanout)

    async def __aenter__(self) -> Cluster:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _note_change(self, changes: Sequence[Change]) -> None:
        """Begin with the first change: until then controllers have nothing to do."""
        if self._beginning is None and not self._is_closed:
            self._beginning = self._tasks.start(self._run_parts())
        self._nodes.note_changes(changes)

    async def _begin(self) -> None:
        """Return when the background parts and controllers run."""
        if self._beginning is None:
            self._note_change(())
        assert self._beginning is not None, "the cluster is closed"
        await asyncio.shield(self._beginning)

    async def _run_parts(self) -> None:
        self.plane.health.is_ready = True
        add_extension_parts(self.plane)
        await self._stack.enter_async_context(self.plane.supervisor.running())
        if self._settings.controllers:
            controllers = controllers_of(self.plane, self._files, clock=self.clock)
            controllers.informers.find_empty = EmptyKinds(self.plane).find
            self._nodes.begin(await self.keep(controllers.running(), name=_CONTROLLERS))

    async def _use_wire(self) -> None:
        """Send the requests of all clients over HTTPS."""
        self._wire = await open_wire(self.plane, self._token)
        self._stack.push_async_callback(self._wire.close)
        self.client = self._client(None, "test")

    def client_as(self, user: str, *groups: str) -> Client:
        """Return a client with this user's permissions."""
        return self._client(User(user, (AUTHENTICATED, *groups)), user)

    def client_with_agent(self, *, field_manager: str, agent: str) -> Client:
        """Return a client of the administrator with this user agent, by which faults can select it."""
        transport = self._wire.transport() if self._wire is not None else InProcessTransport(self.plane.local(ADMIN))
        return Client(transport, clock=self.clock, field_manager=field_manager, user_agent=agent)

    def api_of(self, client: str) -> FaultyApi:
        """Return the API for a socket that one program uses: its requests count as those of `client`."""
        return self._api.named(client)

    def _client(self, user: User | None, name: str) -> Client:
        if self._wire is not None:
            return self._wire.client(user, clock=self.clock, field_manager=name)
        return in_process_client(self.plane.local(user or ADMIN), clock=self.clock, field_manager=name)

    async def run(
        self, operator: Extension, *, client: Client | None = None, rights: Rights = "role", **options: Any
    ) -> Manager:
        """Start an operator or a scheduler, which runs until the test ends. Its CRDs are installed when this returns.

        Those of `external` kinds are installed too, unless the test has done it. It acts as its ServiceAccount, with
        exactly the roles that `pinnace manifests` writes: a missing permission fails here as in a real cluster, and the
        log has the rule to add. `rights="admin"` lets it do everything, and `client` replaces its identity.
        """
        await self._begin()
        if isinstance(operator, Operator):
            self._handler_time.enter(operator)
            modules = (str(names.get("__name__", "")) for names in modules_of(operator))
            for name in {operator.name, *modules}:
                self._log_as_in_production(name)
        if options.get("install", True) and isinstance(operator, Operator):
            await install_external_definitions(self.client, operator.declarations)
        connection = _Connection()
        admin = self._client(None, operator.name).fenced(connection.check)
        if client is None and rights == "role":
            await install_account(self.client, operator.account(ACCOUNT_NAMESPACE))
            account = service_account_name(ACCOUNT_NAMESPACE, operator.name)
            groups = (*service_account_groups(ACCOUNT_NAMESPACE), AUTHENTICATED)
            client = self._client(User(account, groups), operator.name)
            options.setdefault("installer", admin)
        fenced = admin if client is None else client.fenced(connection.check)
        return await self.keep(operator.running(fenced, **options), name=operator.name, connection=connection)

    def _log_as_in_production(self, name: str) -> None:
        """Let handlers log at level INFO, into pytest's capture, so that a call that cannot be logged fails."""
        if not name or name.partition(".")[0] == "pinnace":
            return
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.INFO)
            self._stack.callback(logger.setLevel, logging.NOTSET)

    async def add_nodes(
        self,
        count: int,
        *,
        shape: NodeShape | None = None,
        life: Life | None = None,
        node_life: Life | None = None,
        usage: Path | None = None,
    ) -> SimulatedNodes:
        """Add simulated nodes, and a scheduler with the first call, also for 0 nodes; returns when they are ready.

        The scheduler comes as well with the first Node that the test creates itself, which has no kubelet.
        Pods become ready at once; Job pods complete. `life` chooses otherwise for all nodes of the test, and `usage` is
        a file with the recorded usage of their pods; only the first call may give them.
        """
        await self._begin()
        nodes = self._nodes.add(NodeSetup(count, shape, life, node_life, usage))
        await self.settle()
        return nodes

    async def keep(
        self, started: AbstractAsyncContextManager[Manager], *, name: str, connection: _Connection | None = None
    ) -> Manager:
        """Keep a manager running until the test ends. `kill` cuts its `connection`."""
        ready: asyncio.Future[Manager] = asyncio.get_running_loop().create_future()
        stop = asyncio.Event()

        async def work() -> None:
            try:
                async with started as manager:
                    ready.set_result(manager)
                    await stop.wait()
            except BaseException as error:
                if ready.done():
                    raise
                ready.set_exception(error)

        # A task of its own: pytest may tear a fixture down in another task than the one that set it up.
        task = asyncio.create_task(work(), name=name)
        try:
            async with limit_working_time(PATIENCE):
                manager = await ready
        except TimeoutError:
            # It waits for something that may never happen: the end of the test must not wait for it as well.
            task.cancel()
            await asyncio.wait([task])
            raise TimeoutError(f"{name} has not started after {PATIENCE:g} s; its log says what it waits for") from None
        manager.last_change = self.plane.last_change
        if name != _CONTROLLERS:
            self.history.observe(manager)
        self.kept.append(KeptManager(manager, stop, task, connection or _Connection()))
        self.managers.append(manager)
        return manager

    async def kill(self, manager: Manager) -> None:
        """End an operator at once, as a crash does: its requests get no answer, and it cleans nothing up."""
        kept = next((running for running in self.kept if running.manager is manager), None)
        if kept is None:
            raise ValueError(f"{manager.name} does not run in this cluster")
        self.kept.remove(kept)
        self.managers.remove(manager)
        kept.connection.is_cut = True
        for controller in manager.controllers:
            controller.grace = 0.0
        while not kept.task.done():  # Its clean-up waits for answers, too.
            kept.task.cancel()
            await asyncio.wait([kept.task], timeout=0.01)

    async def settle(self) -> None:
        """Return when all managers are idle. Delayed work waits for the clock.

        Raise TimeoutError, with the controllers and objects that are busy, if that takes too long.
        """
        await self._begin()
        self._nodes.add_scheduler()
        own_requests = is_bookkeeping.set(True)
        seconds = PATIENCE + self.extra_seconds
        try:
            async with limit_working_time(seconds):
                await (self.settle_disturbed or self._settle)()
        except TimeoutError:
            busy = [line for manager in self.managers for line in manager.busy()]
            reasons = "\n  ".join(busy) or "nothing is busy now: the objects change as fast as they are handled"
            raise TimeoutError(f"the cluster has not settled after {seconds:g} s:\n  {reasons}") from None
        finally:
            is_bookkeeping.reset(own_requests)

    async def _settle(self) -> None:
        while True:
            before = [manager.activity for manager in self.managers]
            for manager in self.managers:
                await manager.settle()
            if len(self.managers) < 2 or before == [manager.activity for manager in self.managers]:
                return

    async def advance(self, seconds: float) -> None:
        """Let time pass, and wait for its effects."""
        end = self.clock.monotonic() + seconds
        await self.settle()
        while (wait := self.clock.next_alarm) is not None and self.clock.monotonic() + wait <= end:
            # Time goes on only after tasks that woke are done, however long a socket or a thread takes.
            sent = self._sent
            await self.clock.advance(wait)
            if self._sent != sent or not all(manager.is_idle for manager in self.managers):
                await self.settle()
        await self.clock.advance(end - self.clock.monotonic())
        await self.settle()

    @property
    def _sent(self) -> int:
        """The number of requests over a socket so far."""
        return self._wire.sent if self._wire is not None else 0

    async def load(self, path: Path) -> Recording:
        """Store the objects of a recording, as they were at its start. Raise BadRecording."""
        recording = read_recording(path)
        for obj in recording.initial:
            await store_object(self.plane, obj)
        return recording

    async def replay(self, path: Path, *, speed: float = 1.0) -> int:
        """Play the changes of a recording, and return their number. Time passes as it did, divided by `speed`.

        Raise BadRecording. Call `load` first for the objects that were there at its start.
        """
        changes = [change for change in read_recording(path).changes if change.type != "LISTED"]
        last = changes[0].time if changes else None
        for change in changes:
            await self.advance(max(0.0, (change.time - (last or change.time)).total_seconds()) / speed)
            last = change.time
            await (remove_object if change.type == "DELETED" else store_object)(self.plane, change.object)
        await self.settle()
        return len(changes)

    async def listen(self, directory: Path) -> Path:
        """Open a socket, for tools that need one; return the path of a kubeconfig."""
        wire = await self.open_socket()
        path = directory / "kubeconfig"
        kubeconfig.write(path, wire.access)
        return path

    async def open_socket(
        self, handler: RequestHandler | None = None, *, host: str = "127.0.0.1", port: int = 0
    ) -> Wire:
        """Open a socket, which closes with the cluster. `handler` answers instead of the API. Raise CannotListen."""
        await self._begin()
        wire = await open_wire(self.plane, self._token, handler=handler, host=host, port=port)
        self._sockets.append(wire)
        return wire

    async def stop(self) -> None:
        """Stop the operators and controllers, then the socket. The end of a test does it too."""
        self._handler_time.restore()
        if self._beginning is not None:
            await asyncio.wait([self._beginning])
        stops, self.kept = self.kept, []
        self.managers.clear()
        for kept in reversed(stops):
            kept.stop.set()
        for kept in reversed(stops):
            await kept.task
        sockets, self._sockets = self._sockets, []
        for wire in sockets:
            await wire.close()

    async def close(self) -> None:
        """Stop everything and give up all objects."""
        if self._is_closed:
            return
        self._is_closed = True
        for rule in self.faults.unused:
            warnings.warn(f"this fault never happened: {describe(rule)}", UnusedFault, stacklevel=2)
        self.faults.lift()
        await self.stop()
        await self._tasks.close()
        await self._stack.aclose()
        await self.plane.close()
        await self.plane.store.close()


@dataclass(slots=True)
class _Connection:
    """The connection by which an operator writes."""

    is_cut: bool = False

    def check(self) -> None:
        """Raise ConnectionLost once it is cut."""
        if self.is_cut:
            raise ConnectionLost("the operator was killed", was_sent=False)


@dataclass(frozen=True, slots=True)
class KeptManager:
    """A manager that runs until it is stopped."""

    manager: Manager
    stop: asyncio.Event
    task: asyncio.Task[None]
    connection: _Connection


@asynccontextmanager
async def running_cluster(
    *,
    settings: Settings | None = None,
    over_http: bool = False,
    controllers: bool = True,
    clock: ManualClock | None = None,
    files: CertificateFiles | None = None,
) -> AsyncIterator[Cluster]:
    """Run a new cluster within a block.

    With `over_http` the requests of the test and its operators use HTTPS on loopback. Without `controllers` no
    built-in controllers run: it starts and settles faster. With `files` namespaces get the CA's certificate, and
    certificate requests are signed.
    """
    chosen = replace(settings or Settings(), controllers=controllers and (settings or Settings()).controllers)
    is_default = settings is None and files is None
    template = _TEMPLATES.get(controllers) if is_default else None
    cluster = await _build_cluster(chosen, clock or ManualClock(), files, template)
    try:
        if is_default and template is None and clock is None:
            await cluster.settle()
            _TEMPLATES[controllers] = cluster.snapshot()
        if over_http:
            await cluster._use_wire()
        yield cluster
    finally:
        await cluster.close()


async def _build_cluster(
    settings: Settings, clock: ManualClock, files: CertificateFiles | None, template: ClusterSnapshot | None
) -> Cluster:
    token = secrets.token_urlsafe(16)
    if template is not None:
        return Cluster(template.build(settings, clock, token, files), clock, settings, token, files)
    plane = await build(settings, MemoryStore(), clock=clock, tokens={token: ADMIN}, files=files)
    ranges = settings.service_ranges
    plane.discovery.set_address("127.0.0.1:6443")
    await bootstrap(
        plane.foundation,
        plane.local(),
        ("127.0.0.1", 6443),
        storage_class=default_storage_class(VOLUMES),
        service_ranges=ranges,
    )
    await in_process_client(plane.local(), clock=clock).create(_proxy_trust())
    plane.aggregation.show(certificates().front_proxy_client)
    return Cluster(plane, clock, settings, token, files)


def _proxy_trust() -> Object:
    files = certificates()
    metadata = {"name": TRUST.name, "namespace": TRUST.namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": files.trust()}


class EmptyKinds:
    """Tells informers when the first object of a kind is written."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._waiting: dict[str, asyncio.Event] = {}

    def find(self, kind: Kind) -> EmptyKind | None:
        """Return a kind that has no objects; None if it has some, or if they are not stored here."""
        plane = self._plane
        resource = plane.registry.of_kind(kind)
        if resource is None or plane.aggregation.api_services.find(kind.group, kind.version) is not None:
            return None
        cache = plane.fanout.cache(resource.prefix)
        if cache.entries:
            return None
        waiting = self._waiting.get(resource.prefix)
        if waiting is None:
            waiting = self._waiting[resource.prefix] = asyncio.Event()
            plane.fanout.on_change(resource.prefix, partial(self._wake, resource.prefix))
        elif waiting.is_set():
            waiting = self._waiting[resource.prefix] = asyncio.Event()
        return EmptyKind(cache.changed, resource.namespaced, waiting)

    def _wake(self, prefix: str, event: CacheEvent) -> None:
        self._waiting[prefix].set()


_SCHEDULER = Path("/proc/self/schedstat")
_MARGIN = 0.01


def seconds_without_processor() -> float:
    """Return how long this process has waited for a processor; 0 where the kernel does not say."""
    try:
        return int(_SCHEDULER.read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return 0.0


@asynccontextmanager
async def limit_working_time(seconds: float) -> AsyncIterator[None]:
    """Raise TimeoutError after so many seconds in which the process could work."""
    loop = asyncio.get_running_loop()
    end, waited = loop.time() + seconds, seconds_without_processor()
    async with asyncio.timeout_at(end) as limit:
        timer = loop.call_at(end - _MARGIN / 2, lambda: extend())

        def extend() -> None:
            nonlocal end, waited, timer
            now = seconds_without_processor()
            if now - waited > _MARGIN:
                end, waited = end + now - waited, now
                limit.reschedule(end)
                timer = loop.call_at(end - _MARGIN / 2, extend)

        try:
            yield
        finally:
            timer.cancel()
