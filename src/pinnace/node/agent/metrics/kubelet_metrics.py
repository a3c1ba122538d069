"""The metrics of a node under kubelet's names: pods, containers, and the operations of the container runtime."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, ParamSpec, TypeVar

from pinnace.node.runtime.runtime import ContainerState, Runtime
from pinnace.process.clock import AlarmClock
from pinnace.process.tracing import span
from pinnace.reconcile.metrics import Metrics

OPERATIONS = "kubelet_runtime_operations_total"
OPERATION_SECONDS = "kubelet_runtime_operations_duration_seconds"
OPERATION_ERRORS = "kubelet_runtime_operations_errors_total"
STARTED_PODS = "kubelet_started_pods_total"
STARTED_PODS_ERRORS = "kubelet_started_pods_errors_total"
STARTED_CONTAINERS = "kubelet_started_containers_total"
RUNNING_PODS = "kubelet_running_pods"
RUNNING_CONTAINERS = "kubelet_running_containers"
NODE_NAME = "kubelet_node_name"

_OPERATION_BOUNDS = tuple(0.005 * 2.5**exponent for exponent in range(14))
_Arguments = ParamSpec("_Arguments")
_Outcome = TypeVar("_Outcome")


class MeteredRuntime:
    """A `Runtime` that passes every call on to another, and counts and times those that kubelet counts."""

    def __init__(self, runtime: Runtime, metrics: Metrics, clock: AlarmClock) -> None:
        self._metrics = metrics
        self._clock = clock
        metrics.describe(OPERATIONS, "Operations of the container runtime, by type.")
        metrics.describe(OPERATION_ERRORS, "Failed operations of the container runtime, by type.")
        metrics.describe(OPERATION_SECONDS, "The time that operations take, by type.", _OPERATION_BOUNDS)
        metrics.describe(STARTED_PODS, "Pods that were started.")
        metrics.describe(STARTED_CONTAINERS, "Containers that were started, by type.")
        metrics.describe(STARTED_PODS_ERRORS, "Pods that could not be started.")
        for name in (STARTED_PODS, STARTED_PODS_ERRORS):
            metrics.count(name, (), by=0)
        self.run_sandbox = self._metered("run_podsandbox", runtime.run_sandbox)
        self.stop_sandbox = self._metered("stop_podsandbox", runtime.stop_sandbox)
        self.remove_sandbox = self._metered("remove_podsandbox", runtime.remove_sandbox)
        self.create_container = self._metered("create_container", runtime.create_container)
        self.start_container = self._metered("start_container", runtime.start_container)
        self.stop_container = self._metered("stop_container", runtime.stop_container)
        self.remove_container = self._metered("remove_container", runtime.remove_container)
        self.update_resources = self._metered("update_container", runtime.update_resources)
        self.exec_sync = self._metered("exec_sync", runtime.exec_sync)
        self.status, self.events = runtime.status, runtime.events
        self.memory, self.open_file = runtime.memory, runtime.open_file
        self.sandboxes, self.sandbox, self.update_sandbox = runtime.sandboxes, runtime.sandbox, runtime.update_sandbox
        self.containers, self.container = runtime.containers, runtime.container
        self.stats, self.disk_usage = runtime.stats, runtime.disk_usage
        self.exec, self.attach, self.connect = runtime.exec, runtime.attach, runtime.connect

    def _metered(
        self, type: str, operation: Callable[_Arguments, Awaitable[_Outcome]]
    ) -> Callable[_Arguments, Coroutine[Any, Any, _Outcome]]:
        labels = (("operation_type", type),)
        self._metrics.count(OPERATIONS, labels, by=0)

        async def metered(*arguments: _Arguments.args, **options: _Arguments.kwargs) -> _Outcome:
            began = self._clock.monotonic()
            self._metrics.count(OPERATIONS, labels)
            try:
                with span(f"runtime {type}"):
                    result = await operation(*arguments, **options)
            except Exception:
                self._metrics.count(OPERATION_ERRORS, labels)
                if type == "run_podsandbox":
                    self._metrics.count(STARTED_PODS_ERRORS, ())
                raise
            finally:
                self._metrics.observe(OPERATION_SECONDS, labels, self._clock.monotonic() - began)
            if type == "run_podsandbox":
                self._metrics.count(STARTED_PODS, ())
            elif type == "start_container":
                self._metrics.count(STARTED_CONTAINERS, (("container_type", "container"),))
            return result

        return metered


class KubeletMetrics:
    """The page /metrics of a node: the metrics of its process, with the pods and containers of the moment."""

    def __init__(self, metrics: Metrics, runtime: Runtime, node: str) -> None:
        self._metrics = metrics
        self._runtime = runtime
        self._running: Counter[ContainerState] = Counter()
        self._pods = 0
        metrics.gauge(NODE_NAME, "The node's name. The count is always 1.", lambda: [((("node", node),), 1.0)])
        metrics.gauge(RUNNING_PODS, "The pods that have a sandbox.", lambda: [((), float(self._pods))])
        metrics.gauge(
            RUNNING_CONTAINERS,
            "The containers, by state.",
            lambda: [((("container_state", state),), float(self._running[state])) for state in ContainerState],
        )

    async def text(self) -> str:
        """Return all metrics in Prometheus' text format."""
        self._pods = sum(sandbox.is_ready for sandbox in await self._runtime.sandboxes())
        self._running = Counter(container.state for container in await self._runtime.containers())
        return self._metrics.text()
