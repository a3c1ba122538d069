"""A custom scheduler: decorators that declare its functions, and the methods that try, run and serve it."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeVar, overload

from pinnace.client.client import Client
from pinnace.model.objects import Object
from pinnace.reconcile.leader import LeaderElection
from pinnace.reconcile.manager import Manager
from pinnace.scheduler.configuration import ProfileConfiguration, SchedulerConfiguration, build_profile
from pinnace.scheduler.framework.plugin import Handle, Plugin
from pinnace.scheduler.framework.profile import Profile
from pinnace.scheduler.framework.registry import PluginRegistry
from pinnace.scheduler.plugins.defaults import DEFAULT_PLUGINS, default_registry
from pinnace.scheduler.scheduler import Scheduler as SchedulerLoop
from pinnace.sdk.extension import Extension
from pinnace.sdk.handlers.checks import check_operator_name
from pinnace.sdk.scheduling import functions
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
        self._own: dict[str, tuple[Plugin, int]] = {}
        self._profile: Profile | None = None

    @property
    def name(self) -> str:
        return self._name

    # Declaring

    @overload
    def filter(self, function: Function) -> Function: ...
    @overload
    def filter(self, *, reason: str) -> Callable[[Function], Function]: ...
    def filter(self, function: Function | None = None, *, reason: str = "") -> Any:
        """`def fits(pod, node)`: return None or True if the node can run the pod, else the reason or False.

        `def fits(pod, nodes)` is called once with arrays over all nodes and returns an array of booleans. `reason` is
        given where the function gives none; without it, the first line of its docstring.
        """

        def declare(function: Function) -> Function:
            takes = taken_by(function, "filter")
            docstring = (function.__doc__ or "").strip().partition("\n")[0].rstrip(".")
            why = reason or docstring or f"node(s) were refused by {name_of(function)}"
            make = functions.ArrayFilterFunction if takes == TAKES_NODES else functions.OneNodeFilterFunction
            self._add(make(name_of(function), function, why))
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

    def pre_enqueue(self, function: Function) -> Function:
        """`def ready(pod)`: return why the pod may not enter the queue yet; it is asked again when the pod changes."""
        return self._declare("pre_enqueue", functions.PreEnqueueFunction, function)

    def queue_sort(self, function: Function) -> Function:
        """`def order(pod)`: return a key; pods with lower keys are scheduled first. Replaces PrioritySort."""
        self._defaults.pop("PrioritySort", None)
        return self._declare("queue_sort", functions.QueueSortFunction, function)

    def pre_filter(self, function: Function) -> Function:
        """`def prepare(pod)`: return a reason to refuse all nodes, the names of the only nodes to try, or None."""
        return self._declare("pre_filter", functions.PreFilterFunction, function)

    def post_filter(self, function: Function) -> Function:
        """`def make_room(pod, reasons)`: called if no node fits; return a Nomination, or a text for the pod's event."""
        return self._declare("post_filter", functions.PostFilterFunction, function)

    def pre_score(self, function: Function) -> Function:
        """`def prepare(pod, nodes)`: called with the nodes that fit, before they are scored."""
        return self._declare("pre_score", functions.PreScoreFunction, function)

    def reserve(self, function: Function) -> Function:
        """`def take(pod, node)`: the pod will run on this node; return a reason to refuse it after all."""
        check_function(function, "reserve")
        self._add(functions.ReserveFunction(name_of(function), function, None))
        return function

    def unreserve(self, function: Function) -> Function:
        """`def give_back(pod, node)`: the pod will not run there. Also called if `reserve` was not, or failed."""
        check_function(function, "unreserve")
        self._add(functions.ReserveFunction(name_of(function), None, function))
        return function

    def permit(self, function: Function) -> Function:
        """`def allow(pod, node)`: return None to bind the pod, a reason to refuse it, or Wait(seconds)."""
        return self._declare("permit", functions.PermitFunction, function)

    def pre_bind(self, function: Function) -> Function:
        """`async def prepare(pod, node)`: do what must be done before the pod is bound; return a reason on failure."""
        return self._declare("pre_bind", functions.PreBindFunction, function)

    def bind(self, function: Function) -> Function:
        """`async def bind(pod, node)`: bind the pod and return True; False leaves it to the default."""
        return self._declare("bind", functions.BindFunction, function)

    def post_bind(self, function: Function) -> Function:
        """`def note(pod, node)`: the pod is bound."""
        return self._declare("post_bind", functions.PostBindFunction, function)

    def _declare(self, moment: str, make: Callable[[str, Function], Plugin], function: Function) -> Function:
        check_function(function, moment)
        self._add(make(name_of(function), function))
        return function

    def _add(self, plugin: Plugin, weight: int = 0) -> None:
        if plugin.name in self._own or plugin.name in dict(DEFAULT_PLUGINS):
            raise ValueError(f"{self.name} has a plug-in named {plugin.name} already; rename the function")
        self._own[plugin.name] = (plugin, weight)
        self._profile = None

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
        volumes. A node without `status.allocatable` has ample resources. Raise the error of a function that fails.
        """
        return attempt(self.profile(), pod, cluster_of(nodes, pods, objects))

    def profile(self) -> Profile:
        """Return its plug-ins, without a client: for trials and simulations."""
        if self._profile is None:
            self._profile = build_profile(self._profile_configuration(), Handle(), self.registry())
        return self._profile

    def own_profile(self) -> Profile:
        """Return its own functions alone: kube-scheduler runs the default plug-ins before it calls an extender."""
        own = [plugin for plugin, _ in self._own.values()]
        return Profile(self.name, own, weights={name: weight for name, (_, weight) in self._own.items()})

    def registry(self) -> PluginRegistry:
        """Return the default plug-ins and its own by name."""
        registry = default_registry()
        for name, (plugin, _) in self._own.items():
            registry.add(name, lambda arguments, handle, plugin=plugin: plugin)  # type: ignore[misc]
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

    # Running

    @asynccontextmanager
    async def running(self, client: Client, **options: Any) -> AsyncIterator[Manager]:
        """Schedule pods within a block, which begins when its caches are full. Takes the options of `run`."""
        chosen = SchedulerOptions.of(options)
        async with AsyncExitStack() as stack:
            is_extender = chosen.extender_port is not None
            leader = LeaderElection(client, self.name) if chosen.leader_election and not is_extender else None
            manager = Manager(client, name=self.name, leader=leader)
            loop = SchedulerLoop(manager, client, configuration=self.configuration(), registry=self.registry())
            if is_extender:
                from pinnace.sdk.scheduling.extender_server import (  # noqa: PLC0415 - aiohttp takes long to import
                    ExtenderServer,
                    extender_listening,
                )

                server = ExtenderServer(self.own_profile(), loop.state)
                await stack.enter_async_context(
                    extender_listening(server, chosen.extender_port or 0, host=chosen.extender_host)
                )
            else:
                manager.add(loop.controller)
            if chosen.metrics_port is not None:
                from pinnace.sdk.operator.metrics_server import metrics_listening  # noqa: PLC0415 - as above

                await stack.enter_async_context(metrics_listening(manager, chosen.metrics_port))
            yield await stack.enter_async_context(manager.running())

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

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> SchedulerOptions:
        """Return its own of the options that operators and schedulers share."""
        return cls(**{field.name: options[field.name] for field in fields(cls) if field.name in options})


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
    wanted = 1 if moment in _ONE else 2
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


def name_of(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__name__", type(function).__name__))
