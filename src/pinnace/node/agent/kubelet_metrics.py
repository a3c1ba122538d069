"""The metrics of a node under kubelet's names: pods, containers, and the operations of the container runtime."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from pinnace.model.clock import AlarmClock
from pinnace.model.tracing import span
from pinnace.node.runtime.runtime import ContainerState, Runtime
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

_TYPES = {
    "run_sandbox": "run_podsandbox",
    "stop_sandbox": "stop_podsandbox",
    "remove_sandbox": "remove_podsandbox",
    "create_container": "create_container",
    "start_container": "start_container",
    "stop_container": "stop_container",
    "remove_container": "remove_container",
    "exec_sync": "exec_sync",
    "update_resources": "update_container",
}
"""The methods of a runtime that are counted, with kubelet's names for them."""
_OPERATION_BOUNDS = tuple(0.005 * 2.5**exponent for exponent in range(14))
_Operation = Callable[..., Awaitable[Any]]


class KubeletMetrics:
    """Counts what a runtime does, from its construction on. `text` is the page /metrics."""

    def __init__(self, metrics: Metrics, runtime: Runtime, clock: AlarmClock, node: str) -> None:
        self._metrics = metrics
        self._runtime = runtime
        self._clock = clock
        self._running: Counter[ContainerState] = Counter()
        self._pods = 0
        metrics.describe(OPERATIONS, "Operations of the container runtime, by type.")
        metrics.describe(OPERATION_ERRORS, "Failed operations of the container runtime, by type.")
        metrics.describe(OPERATION_SECONDS, "The time that operations take, by type.", _OPERATION_BOUNDS)
        metrics.describe(STARTED_PODS, "Pods that were started.")
        metrics.describe(STARTED_CONTAINERS, "Containers that were started, by type.")
        metrics.describe(STARTED_PODS_ERRORS, "Pods that could not be started.")
        for name in (STARTED_PODS, STARTED_PODS_ERRORS):
            metrics.count(name, (), by=0)
        metrics.gauge(NODE_NAME, "The node's name. The count is always 1.", lambda: [((("node", node),), 1.0)])
        metrics.gauge(RUNNING_PODS, "The pods that have a sandbox.", lambda: [((), float(self._pods))])
        metrics.gauge(
            RUNNING_CONTAINERS,
            "The containers, by state.",
            lambda: [((("container_state", state),), float(self._running[state])) for state in ContainerState],
        )
        for method, type in _TYPES.items():
            setattr(runtime, method, self._metered(getattr(runtime, method), type))

    async def text(self) -> str:
        """Return all metrics of the node's process in Prometheus' text format."""
        self._pods = sum(one.is_ready for one in await self._runtime.sandboxes())
        self._running = Counter(one.state for one in await self._runtime.containers())
        return self._metrics.text()

    def _metered(self, operation: _Operation, type: str) -> _Operation:
        labels = (("operation_type", type),)
        self._metrics.count(OPERATIONS, labels, by=0)

        async def metered(*arguments: Any, **options: Any) -> Any:
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
            self._note(type)
            return result

        return metered

    def _note(self, type: str) -> None:
        if type == "run_podsandbox":
            self._metrics.count(STARTED_PODS, ())
        elif type == "start_container":
            self._metrics.count(STARTED_CONTAINERS, (("container_type", "container"),))
