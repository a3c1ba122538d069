"""The metrics of a node's pods under kubelet's names: how long they take to start, pulls, evictions and probes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from pinnace.model.objects import Key, key_of
from pinnace.model.typed_objects import Pod
from pinnace.node.agent.pods.static_pods import SEEN, annotation
from pinnace.process.clock import AlarmClock
from pinnace.reconcile.metrics import Metrics

POD_START_SECONDS = "kubelet_pod_start_duration_seconds"
POD_START_SLI_SECONDS = "kubelet_pod_start_sli_duration_seconds"
POD_START_TOTAL_SECONDS = "kubelet_pod_start_total_duration_seconds"
PULL_SECONDS = "kubelet_image_pull_duration_seconds"
EVICTIONS = "kubelet_evictions"
PROBES = "prober_probe_total"
PROBE_SECONDS = "prober_probe_duration_seconds"

_START_BOUNDS = (
    0.5, 1, 2, 3, 4, 5, 6, 8, 10, 20, 30, 45, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600,
)  # fmt: skip
_PULL_BOUNDS = (1, 5, 10, 20, 30, 60, 120, 180, 240, 300, 360, 480, 600, 900, 1200, 1800, 2700, 3600)
_PROBE_BOUNDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)
_MB, _GB = 1 << 20, 1 << 30
_SIZES = (
    (100 * _GB, "GT100GB"),
    (60 * _GB, "60GB-100GB"),
    (40 * _GB, "40GB-60GB"),
    (30 * _GB, "30GB-40GB"),
    (20 * _GB, "20GB-30GB"),
    (10 * _GB, "10GB-20GB"),
    (5 * _GB, "5GB-10GB"),
    (_GB, "1GB-5GB"),
    (500 * _MB, "500MB-1GB"),
    (100 * _MB, "100MB-500MB"),
    (10 * _MB, "10MB-100MB"),
    (0, "0-10MB"),
)
"""The lower bound and the label of each range of image sizes."""
_FINAL = ("Succeeded", "Failed")


@dataclass(slots=True)
class _Start:
    """A pod that does not run yet."""

    key: Key
    seen_at: float
    pull_seconds: float = 0.0


class PodMetrics:
    """Follows each pod from the moment at which the agent first sees it until the API shows that it runs."""

    def __init__(self, metrics: Metrics, clock: AlarmClock) -> None:
        self._metrics = metrics
        self._probes = Metrics()
        """On a page of their own, as in kubelet: their labels name every container."""
        self._clock = clock
        self._starts: dict[str, _Start] = {}
        """By uid."""
        metrics.describe(POD_START_SECONDS, "From a pod's first sight to Running.", _START_BOUNDS)
        metrics.describe(
            POD_START_SLI_SECONDS, "From a pod's creation to Running, without pulls and init containers.", _START_BOUNDS
        )
        metrics.describe(POD_START_TOTAL_SECONDS, "From a pod's creation to Running.", _START_BOUNDS)
        metrics.describe(PULL_SECONDS, "The time that pulls take, by the size of the image.", _PULL_BOUNDS)
        metrics.describe(EVICTIONS, "Pods that the node has evicted, by signal.")
        self._probes.describe(PROBES, "Probes, by type and result.")
        self._probes.describe(PROBE_SECONDS, "The time that probes take.", _PROBE_BOUNDS)
        for name in (POD_START_SECONDS, POD_START_SLI_SECONDS, POD_START_TOTAL_SECONDS):
            metrics.histogram(name, ())

    async def probe_text(self) -> str:
        """Return the page /metrics/probes."""
        return self._probes.text()

    def see(self, pod: Pod) -> None:
        """Note the state of a pod in the API. A pod that ran before this agent started is not counted."""
        uid, status = pod["metadata"]["uid"], pod.get("status") or {}
        phase = status.get("phase")
        start = self._starts.get(uid)
        if start is None:
            if phase not in ("Running", *_FINAL) and not status.get("startTime"):
                self._starts[uid] = _Start(key_of(pod), self._clock.monotonic())
            return
        if phase == "Running":
            self._observe_start(pod, start)
        if phase in ("Running", *_FINAL):
            del self._starts[uid]

    def forget(self, key: Key) -> None:
        """Forget a pod that is gone, and its probes."""
        for uid in [uid for uid, start in self._starts.items() if start.key == key]:
            del self._starts[uid]
        self._probes.forget((("namespace", key.namespace), ("pod", key.name)))

    def note_pull(self, uid: str, seconds: float, size: int) -> None:
        label = next((label for least, label in _SIZES if size > least), "N/A")
        self._metrics.observe(PULL_SECONDS, (("image_size_in_bytes", label),), seconds)
        if uid in self._starts:
            self._starts[uid].pull_seconds += seconds

    def note_eviction(self, signal: str) -> None:
        self._metrics.count(EVICTIONS, (("eviction_signal", signal),))

    def probe_observer(self, pod: Pod, container: str) -> Callable[[str, bool, float], None]:
        """Return the function that counts a probe of a container: its kind, whether it succeeded, and its seconds."""
        metadata = pod["metadata"]
        names = (("namespace", metadata["namespace"]), ("pod", metadata["name"]))

        def observe(kind: str, is_success: bool, seconds: float) -> None:
            type = kind.removesuffix("Probe").capitalize()
            result = "successful" if is_success else "failed"
            owner = (("pod_uid", metadata["uid"]), ("probe_type", type), ("result", result))
            self._probes.count(PROBES, (("container", container), *names, *owner))
            if is_success:
                self._probes.observe(PROBE_SECONDS, (("container", container), *names, ("probe_type", type)), seconds)

        return observe

    def _observe_start(self, pod: Pod, start: _Start) -> None:
        metadata = pod["metadata"]  # A static pod begins when its file is read.
        created = datetime.fromisoformat(metadata.get("creationTimestamp") or annotation(pod, SEEN))
        total = max(0.0, (self._clock.now() - created).total_seconds())
        excluded = start.pull_seconds + _init_seconds(pod)
        self._metrics.observe(POD_START_SECONDS, (), self._clock.monotonic() - start.seen_at)
        self._metrics.observe(POD_START_TOTAL_SECONDS, (), total)
        self._metrics.observe(POD_START_SLI_SECONDS, (), max(0.0, total - excluded))


def _init_seconds(pod: Pod) -> float:
    """Return how long the init containers ran."""
    statuses = (pod.get("status") or {}).get("initContainerStatuses") or ()
    ended = [state for status in statuses if (state := (status.get("state") or {}).get("terminated"))]
    return sum(
        (datetime.fromisoformat(state["finishedAt"]) - datetime.fromisoformat(state["startedAt"])).total_seconds()
        for state in ended
        if state.get("startedAt") and state.get("finishedAt")
    )
