"""A custom scheduler: decorators that declare its functions, and the methods that try, run and serve it."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, fields
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar, overload

from pinnace.client.client import Client
from pinnace.client.mapping import KindLike, kind_from
from pinnace.client.snapshots import Snapshot
from pinnace.client.typed import typed
from pinnace.model.objects import Kind, Object
from pinnace.reconcile.leader import LeaderElection
from pinnace.reconcile.manager import Manager
from pinnace.scheduler.configuration import ProfileConfiguration, SchedulerConfiguration, build_profile
from pinnace.scheduler.framework.events import ActionType, ClusterEvent
from pinnace.scheduler.framework.plugin import Handle
from pinnace.scheduler.framework.profile import Profile
from pinnace.scheduler.framework.registry import PluginRegistry
from pinnace.scheduler.plugins.defaults import DEFAULT_PLUGINS, default_registry
from pinnace.scheduler.scheduler import Scheduler as SchedulerLoop
from pinnace.sdk.declarations import Declarations
from pinnace.sdk.extension import Extension
from pinnace.sdk.handlers.calls import is_async
from pinnace.sdk.handlers.checks import check_handler, check_kind, check_operator_name, check_waits_for_nothing
from pinnace.sdk.handlers.permissions import READ, Permission, merge
from pinnace.sdk.handlers.threads import MAX_THREADS, HandlerThreads
from pinnace.sdk.installation.installation import install_definitions
from pinnace.sdk.installation.manifests import DeploymentOptions
from pinnace.sdk.operator.shared_resources import Shared, open_shared
from pinnace.sdk.resources.custom_resource import is_resource_class
from pinnace.sdk.resources.plurals import plural_like
from pinnace.sdk.scheduling import functions
from pinnace.sdk.scheduling.context import (
    CachedKind,
    SchedulerRuntime,
    Wakes,
    cache_of,
    event_kind,
    is_followed,
    kinds_of,
    registrations_of,
)
from pinnace.sdk.scheduling.manifests import scheduler_roles
from pinnace.sdk.scheduling.trial import Trial, attempt, cluster_of

Function = TypeVar("Function", bound=Callable[..., Any])

_NEEDED = ("SchedulingGates", "PrioritySort", "DefaultBinder")
"""The default plug-ins that a scheduler without defaults keeps: it still queues and binds pods."""


class Scheduler(Extension):
    """A second scheduler, for pods whose `schedulerName` is its name.

    Its functions run after kube-scheduler's default plug-ins, or instead of them with `defaults=False`. A function that
    raises fails the pod with its name; other pods do not wait for it.
    """

    def __init__(
        self,
        name: str,
        *,
        defaults: bool = True,
        without: Sequence[str] = (),
        weights: Mapping[str, int] | None = None,
        arguments: Mapping[str, Object] | None = None,
    ) -> None:
        """`without` names default plug-ins to leave out; `weights` and `arguments` configure the others."""
        check_operator_name(name)
        self._name = name
        known = dict(DEFAULT_PLUGINS)
        for plugin in (*without, *(weights or {}), *(arguments or {})):
            if plugin not in known:
                raise ValueError(f"{plugin!r} is no default plug-in: choose from {', '.join(known)}")
        self._defaults = {
            plugin: (weights or {}).get(plugin, weight)
            for plugin, weight in known.items()
            if (defaults or plugin in _NEEDED) and plugin not in without
        }
        self._arguments = dict(arguments or {})
        self._own: dict[str, tuple[functions.Moment, int]] = {}
        self._wakes: dict[str, Wakes] = {}
        """By the name of the function."""
        self._cached: dict[Kind, CachedKind] = {}
        self._startups: list[Callable[..., Any]] = []
        self._shutdowns: list[Callable[..., Any]] = []
        self._permissions: list[Permission] = []

    @property
    def name(self) -> str:
        return self._name

    # Declaring

    @overload
    def filter(self, function: Function) -> Function: ...
    @overload
    def filter(self, *, reason: str = "", wakes: Wakes | None = None) -> Callable[[Function], Function]: ...
    def filter(self, function: Function | None = None, *, reason: str = "", wakes: Wakes | None = None) -> Any:
        """`def fits(pod, node)`: return None or True if the node can run the pod, else the reason or False.

        `def fits(pod, nodes)` is called once with arrays over all nodes and returns an array of booleans. `reason` is
        given where the function gives none; without it, the first line of its docstring. `wakes` maps kinds to
        functions `def helps(pod, old, new) -> bool`: a refused pod is tried again only after a change for which its
        function returns True, or any change of a kind with None; without `wakes`, after every change. Pods that differ
        in their names alone are asked about once.
        """

        def declare(function: Function) -> Function:
            takes = taken_by(function, "filter")
            docstring = (function.__doc__ or "").strip().partition("\n")[0].rstrip(".")
            why = reason or docstring or f"node(s) were refused by {name_of(function)}"
            make = functions.ArrayFilterFunction if takes == TAKES_NODES else functions.OneNodeFilterFunction
            self._add(make(name_of(function), function, why), wakes=wakes)
            return function

        return declare if function is None else declare(function)

    @overload
    def score(self, function: Function) -> Function: ...
    @overload
    def score(
        self, *, weight: int = 1, normalize: bool = False, reverse: bool = False
    ) -> Callable[[Function], Function]: ...
    def score(
        self, function: Function | None = None, *, weight: int = 1, normalize: bool = False, reverse: bool = False
    ) -> Any:
        """`def prefer(pod, node)`: return a number from 0 to 100; the node with the highest sum is chosen.

        `def prefer(pod, nodes)` is called once with arrays over all nodes and returns an array of numbers. `normalize`
        accepts any numbers: the best node gets 100, the worst 0; with `reverse` the lowest number is the best.
        """
        if weight < 1:
            raise ValueError(f"@scheduler.score: weight is {weight}; write 1 or more")

        def declare(function: Function) -> Function:
            is_array = taken_by(function, "score") == TAKES_NODES
            plugin: Any
            if normalize or reverse:
                make = functions.NormalizedArrayScore if is_array else functions.NormalizedOneNodeScore
                plugin = make(name_of(function), function)
                plugin.is_reversed = reverse
            else:
                plain = functions.ArrayScoreFunction if is_array else functions.OneNodeScoreFunction
                plugin = plain(name_of(function), function)
            self._add(plugin, weight)
            return function

        return declare if function is None else declare(function)

    @overload
    def pre_enqueue(self, function: Function) -> Function: ...
    @overload
    def pre_enqueue(self, *, wakes: Wakes) -> Callable[[Function], Function]: ...
    def pre_enqueue(self, function: Function | None = None, *, wakes: Wakes | None = None) -> Any:
        """`def ready(pod)`: return why the pod may not enter the queue yet.

        It is asked again when the pod changes, or after the changes of `wakes`, as in `filter`.
        """
        return self._declare("pre_enqueue", functions.PreEnqueueFunction, function, wakes)

    def queue_sort(self, function: Function) -> Function:
        """`def order(pod)`: return a key; pods with lower keys are scheduled first. Replaces PrioritySort."""
        self._defaults.pop("PrioritySort", None)
        declared: Function = self._declare("queue_sort", functions.QueueSortFunction, function)
        return declared

    @overload
    def pre_filter(self, function: Function) -> Function: ...
    @overload
    def pre_filter(self, *, wakes: Wakes) -> Callable[[Function], Function]: ...
    def pre_filter(self, function: Function | None = None, *, wakes: Wakes | None = None) -> Any:
        """`def prepare(pod)`: return a reason to refuse all nodes, the names of the only nodes to try, or None."""
        return self._declare("pre_filter", functions.PreFilterFunction, function, wakes)

    def post_filter(self, function: Function) -> Function:
        """`def make_room(pod, reasons)`: called if no node fits; return a Nomination, or a text for the pod's event."""
        declared: Function = self._declare("post_filter", functions.PostFilterFunction, function)
        return declared

    def pre_score(self, function: Function) -> Function:
        """`def prepare(pod, nodes)`: called with the nodes that fit, before they are scored."""
        declared: Function = self._declare("pre_score", functions.PreScoreFunction, function)
        return declared

    @overload
    def reserve(self, function: Function) -> Function: ...
    @overload
    def reserve(self, *, wakes: Wakes) -> Callable[[Function], Function]: ...
    def reserve(self, function: Function | None = None, *, wakes: Wakes | None = None) -> Any:
        """`def take(pod, node)`: the pod will run on this node; return a reason to refuse it after all."""
        make = partial(functions.ReserveFunction, undo=None)
        return self._declare("reserve", make, function, wakes)

    def unreserve(self, function: Function) -> Function:
        """`def give_back(pod, node)`: the pod will not run there. Also called if `reserve` was not, or failed."""
        declared: Function = self._declare(
            "unreserve", lambda name, undo: functions.ReserveFunction(name, None, undo), function
        )
        return declared

    @overload
    def permit(self, function: Function) -> Function: ...
    @overload
    def permit(self, *, wakes: Wakes) -> Callable[[Function], Function]: ...
    def permit(self, function: Function | None = None, *, wakes: Wakes | None = None) -> Any:
        """`def allow(pod, node)`: return None to bind the pod, a reason to refuse it, or Wait(seconds).

        A pod that waits keeps its place until `ctx.allow(pod)` or `ctx.reject(pod, message)`, called for another pod.
        """
        return self._declare("permit", functions.PermitFunction, function, wakes)

    def pre_bind(self, function: Function) -> Function:
        """`async def prepare(pod, node)`: do what must be done before the pod is bound; return a reason on failure."""
        declared: Function = self._declare("pre_bind", functions.PreBindFunction, function)
        return declared

    def bind(self, function: Function) -> Function:
        """`async def bind(pod, node)`: bind the pod and return True; False leaves it to the default."""
        declared: Function = self._declare("bind", functions.BindFunction, function)
        return declared

    def post_bind(self, function: Function) -> Function:
        """`def note(pod, node)`: the pod is bound."""
        declared: Function = self._declare("post_bind", functions.PostBindFunction, function)
        return declared

    def _declare(
        self,
        moment: str,
        make: Callable[[str, Any], functions.Moment],
        function: Any,
        wakes: Wakes | None = None,
    ) -> Any:
        def declare(function: Function) -> Function:
            check_function(function, moment)
            self._add(make(name_of(function), function), wakes=wakes)
            return function

        return declare if function is None else declare(function)

    def _add(self, plugin: functions.Moment, weight: int = 0, *, wakes: Wakes | None = None) -> None:
        if plugin.name in self._own or plugin.name in dict(DEFAULT_PLUGINS):
            raise ValueError(f"{self.name} has a plug-in named {plugin.name} already; rename the function")
        for kind, wake in (wakes or {}).items():
            check_kind(kind, "wakes")
            if wake is not None:
                check_hint(wake)
            if not is_followed(kind):
                self.reads(kind)
        if wakes is not None:
            self._wakes[plugin.name] = wakes
        plugin.takes_context = takes_context(plugin.function)
        self._own[plugin.name] = (plugin, weight)

    # Caches, sessions and permissions of its functions

    def reads(self, kind: KindLike) -> None:
        """Keep the objects of a kind in memory, for `ctx.get`, `ctx.list` and `ctx.indexed` of its functions.

        Its role may read them; the CRD of a CustomResource class is installed.
        """
        check_kind(kind, "reads")
        self._cached.setdefault(kind_from(kind), CachedKind(kind))

    def index(self, kind: KindLike) -> Callable[[Function], Function]:
        """`def by_zone(obj) -> list[str]`: index objects of a kind by these values, for `ctx.indexed`."""
        self.reads(kind)

        def declare(function: Function) -> Function:
            check_handler(function, "index", "obj")
            check_waits_for_nothing(function, "index")
            indexes = self._cached[kind_from(kind)].indexes
            indexes[name_of(function)] = lambda obj: function(typed(kind, obj))
            return function

        return declare

    def startup(self, function: Function) -> Function:
        """`async def open_session() -> Session`: called once before it schedules; `ctx.shared[Session]` is its result.

        An async generator yields the value, and goes on when the scheduler has stopped.
        """
        check_handler(function, "startup", "shared")
        self._startups.append(function)
        return function

    def shutdown(self, function: Function) -> Function:
        """`async def close(shared)`: called once after it has stopped."""
        check_handler(function, "shutdown", "shared")
        self._shutdowns.append(function)
        return function

    def needs(self, kind: KindLike, *verbs: str, subresource: str = "") -> None:
        """Declare a permission beyond those of kube-scheduler and of the kinds that it reads."""
        resource = plural_like(kind) + (f"/{subresource}" if subresource else "")
        self._permissions.append(Permission(kind_from(kind).group, resource, verbs or READ))

    def permissions(self) -> list[Permission]:
        """Return its permissions beyond those of kube-scheduler."""
        kinds = [cached.kind for cached in self._cached.values()]
        read = [Permission(kind_from(kind).group, plural_like(kind), READ) for kind in kinds]
        return merge([*read, *self._permissions])

    def crds(self) -> list[Object]:
        """Return the CRDs of the kinds that it has classes for."""
        return self._declarations().crds()

    def _declarations(self) -> Declarations:
        kinds: list[Any] = [cached.kind for cached in self._cached.values() if is_resource_class(cached.kind)]
        return Declarations(name=self.name, extra_kinds=kinds)

    # Trying

    def schedule(
        self,
        pod: Object,
        nodes: Iterable[Object],
        *,
        pods: Iterable[Object] = (),
        objects: Iterable[Object] = (),
    ) -> Trial:
        """Decide where a pod would run among these nodes, without a cluster.

        `pods` run on the nodes already; `objects` are others that default plug-ins read, such as namespaces and
        volumes, and those of the kinds that the scheduler `reads`. A node without `status.allocatable` has ample
        resources. Raise the error of a function that fails.
        """
        by_kind = kinds_of(objects)
        others = (some for kind, some in by_kind.items() if is_followed(kind) or kind not in self._cached)
        state = cluster_of(nodes, pods, chain.from_iterable(others))
        caches = {kind: cache_of(cached, by_kind.get(kind, ())) for kind, cached in self._cached.items()}
        runtime = SchedulerRuntime(name=self.name, caches=caches, state=state)
        return attempt(self._profile(runtime), pod, state)

    def profile(self) -> Profile:
        """Return its plug-ins, without a client and with empty caches: for simulations."""
        return self._profile(self._empty_runtime())

    def _profile(self, runtime: SchedulerRuntime) -> Profile:
        return build_profile(self._profile_configuration(), Handle(), self.registry(runtime))

    def _empty_runtime(self) -> SchedulerRuntime:
        caches = {kind: cache_of(cached, ()) for kind, cached in self._cached.items()}
        return SchedulerRuntime(name=self.name, caches=caches)

    def own_profile(self, runtime: SchedulerRuntime | None = None) -> Profile:
        """Return its own functions alone: kube-scheduler runs the default plug-ins before it calls an extender."""
        own = [self._of_run(name, runtime or self._empty_runtime()) for name in self._own]
        return Profile(self.name, own, weights={name: weight for name, (_, weight) in self._own.items()})

    def _of_run(self, name: str, runtime: SchedulerRuntime) -> functions.Moment:
        plugin = self._own[name][0].of_run(runtime)
        if name in self._wakes:
            plugin.wakes = registrations_of(self._wakes[name], runtime)
        return plugin

    def registry(self, runtime: SchedulerRuntime | None = None) -> PluginRegistry:
        """Return the default plug-ins and its own by name, for one run."""
        registry, chosen = default_registry(), runtime or self._empty_runtime()
        for name in self._own:
            registry.add(name, lambda arguments, handle, name=name: self._of_run(name, chosen))  # type: ignore[misc]
        return registry

    def configuration(self) -> SchedulerConfiguration:
        """Return it as the one profile of a configuration."""
        return SchedulerConfiguration((self._profile_configuration(),))

    def _profile_configuration(self) -> ProfileConfiguration:
        own = {name: weight for name, (_, weight) in self._own.items()}
        defaults = dict(self._defaults)
        # The functions bind before DefaultBinder, which would leave nothing to them.
        binder = defaults.pop("DefaultBinder", None)
        plugins = {**defaults, **own, **({} if binder is None else {"DefaultBinder": binder})}
        return ProfileConfiguration(self.name, plugins, {}, self._arguments)

    def account(self, namespace: str) -> list[Object]:
        """Return its ServiceAccount in a namespace, with the roles of kube-scheduler and its own permissions."""
        place = DeploymentOptions(namespace=namespace, image="", file="")
        return scheduler_roles(self.name, place, self.permissions())

    # Running

    @asynccontextmanager
    async def running(self, client: Client, **options: Any) -> AsyncIterator[Manager]:
        """Schedule pods within a block, which begins when its caches are full. Takes the options of `run`."""
        chosen = SchedulerOptions.of(options)
        async with AsyncExitStack() as stack:
            is_extender = chosen.extender_port is not None
            leader = LeaderElection(client, self.name) if chosen.leader_election and not is_extender else None
            if chosen.install:
                await install_definitions(chosen.installer or client, self._declarations(), None)
            threads = HandlerThreads(MAX_THREADS, name=self.name)
            stack.callback(threads.close)
            shared = await stack.enter_async_context(open_shared(self._startups, self._shutdowns, threads))
            manager = Manager(client, name=self.name, leader=leader)
            runtime = self._runtime(manager, client, shared)
            configuration, registry = self.configuration(), self.registry(runtime)
            loop = SchedulerLoop(manager, client, configuration=configuration, registry=registry)
            runtime.permits, runtime.state = loop, loop.state
            self._follow(manager, loop)
            if is_extender:
                from pinnace.sdk.scheduling.extender_server import (  # noqa: PLC0415 - aiohttp takes long to import
                    ExtenderServer,
                    extender_listening,
                )

                server = ExtenderServer(self.own_profile(runtime), loop.state)
                await stack.enter_async_context(
                    extender_listening(server, chosen.extender_port or 0, host=chosen.extender_host)
                )
            else:
                manager.add(loop.controller)
            if chosen.metrics_port is not None:
                from pinnace.sdk.operator.metrics_server import metrics_listening  # noqa: PLC0415 - as above

                await stack.enter_async_context(metrics_listening(manager, chosen.metrics_port))
            yield await stack.enter_async_context(manager.running())

    def _runtime(self, manager: Manager, client: Client, shared: Shared) -> SchedulerRuntime:
        caches = {}
        for kind, cached in self._cached.items():
            cache = caches[kind] = manager.cache(kind)
            for name, function in cached.indexes.items():
                cache.add_index(name, function)
        return SchedulerRuntime(name=self.name, caches=caches, shared=shared, client=client, clock=client.clock)

    def _follow(self, manager: Manager, loop: SchedulerLoop) -> None:
        """Let changes of the kinds that it reads wake pods."""
        for kind in self._cached:
            if not is_followed(kind):
                manager.informer(kind).on_change(partial(_wake_pods, loop, event_kind(kind)))

    async def run(self, client: Client, **options: Any) -> None:
        """Schedule pods until cancelled. `leader_election` works only while this replica holds the lease;
        `metrics_port` serves /metrics, /healthz and /readyz; `extender_port` serves the functions as an HTTP extender
        instead."""
        async with self.running(client, **options):
            await asyncio.get_running_loop().create_future()

    def serve(self, *, kubeconfig: Path | None = None, context: str = "", **options: Any) -> None:
        """Run against the current cluster until SIGINT or SIGTERM: the last line of a file that is run."""
        from pinnace.sdk.operator.process import serve  # noqa: PLC0415 - it needs the HTTP client, which takes long to import

        logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
        serve(self, kubeconfig=kubeconfig, context=context, **options)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerOptions:
    """How a scheduler runs: the options of `Scheduler.run`."""

    leader_election: bool = False
    metrics_port: int | None = None
    extender_port: int | None = None
    extender_host: str = "127.0.0.1"
    install: bool = True
    """Install the CRDs of the kinds that it has classes for."""
    installer: Client | None = None

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> SchedulerOptions:
        """Return its own of the options that operators and schedulers share."""
        return cls(**{field.name: options[field.name] for field in fields(cls) if field.name in options})


def _wake_pods(loop: SchedulerLoop, kind: str, old: Snapshot[Any] | None, new: Snapshot[Any] | None) -> None:
    action = ActionType.DELETE if new is None else ActionType.ADD if old is None else ActionType.UPDATE
    loop.queue.move(ClusterEvent(kind, action, old, new))


TAKES_NODE = "node"
TAKES_NODES = "nodes"

SIGNATURES = {
    "pre_enqueue": "def {name}(pod: Pod) -> str | None",
    "queue_sort": "def {name}(pod: Pod) -> Any",
    "pre_filter": "def {name}(pod: Pod) -> str | Collection[str] | None",
    "filter": "def {name}(pod: Pod, node: NodeView) -> str | None or def {name}(pod: Pod, nodes: NodeArrays) -> Array",
    "post_filter": "def {name}(pod: Pod, reasons: Mapping[str, str]) -> Nomination | str | None",
    "pre_score": "def {name}(pod: Pod, nodes: NodeArrays) -> None",
    "score": "def {name}(pod: Pod, node: NodeView) -> float or def {name}(pod: Pod, nodes: NodeArrays) -> Array",
    "reserve": "def {name}(pod: Pod, node: str) -> str | None",
    "unreserve": "def {name}(pod: Pod, node: str) -> None",
    "permit": "def {name}(pod: Pod, node: str) -> str | Wait | None",
    "pre_bind": "async def {name}(pod: Pod, node: str) -> str | None",
    "bind": "async def {name}(pod: Pod, node: str) -> bool",
    "post_bind": "def {name}(pod: Pod, node: str) -> None",
}
"""The moments that a scheduler's functions can take part in, and how each is called."""

_ONE = ("pre_enqueue", "queue_sort", "pre_filter")
_MAY_AWAIT = ("pre_bind", "bind")


def check_function(function: Callable[..., Any], moment: str) -> None:
    """Raise TypeError, with the right signature, unless a function can be called at a moment."""
    if not callable(function):
        raise TypeError(f"@scheduler.{moment} stands above a function, not {function!r}")
    expected = SIGNATURES[moment].format(name=name_of(function))
    wanted = (1 if moment in _ONE else 2) + takes_context(function)
    try:
        inspect.signature(function).bind(*[None] * wanted)
    except TypeError:
        written = f"{name_of(function)}{inspect.signature(function)}"
        raise TypeError(f"@scheduler.{moment} cannot call {written}: write {expected}") from None
    if inspect.iscoroutinefunction(function) and moment not in _MAY_AWAIT:
        raise TypeError(f"@scheduler.{moment} cannot wait for {name_of(function)}: write {expected}")


def taken_by(function: Callable[..., Any], moment: str) -> str:
    """Return TAKES_NODE or TAKES_NODES, from the annotation or the name of the second parameter. Raise TypeError."""
    check_function(function, moment)
    second = list(inspect.signature(function).parameters.values())[1]
    annotation = second.annotation if isinstance(second.annotation, str) else getattr(second.annotation, "__name__", "")
    match annotation.rpartition(".")[2]:
        case "NodeArrays":
            return TAKES_NODES
        case "NodeView":
            return TAKES_NODE
    if second.name in (TAKES_NODE, TAKES_NODES):
        return second.name
    raise TypeError(
        f"@scheduler.{moment}: {name_of(function)} does not tell whether {second.name} is one node or all of them: "
        f"write {SIGNATURES[moment].format(name=name_of(function))}"
    )


def takes_context(function: Callable[..., Any]) -> bool:
    """Return whether the last parameter of a function is a SchedulerContext, by its name or its annotation."""
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters:
        return False
    annotation = parameters[-1].annotation
    named = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return parameters[-1].name in ("ctx", "context") or named.rpartition(".")[2] == "SchedulerContext"


def check_hint(function: Callable[..., Any]) -> None:
    """Raise TypeError unless a function can be called about a change."""
    expected = f"def {name_of(function)}(pod: Pod, old: Kind | None, new: Kind | None) -> bool"
    if not callable(function) or is_async(function):
        raise TypeError(f"wakes: write {expected}, or None for every change")
    try:
        inspect.signature(function).bind(*[None] * (3 + takes_context(function)))
    except TypeError:
        raise TypeError(f"wakes: cannot call {name_of(function)}: write {expected}") from None


def name_of(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__name__", type(function).__name__))
