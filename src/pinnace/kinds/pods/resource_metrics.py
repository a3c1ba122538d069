"""/metrics/resources: the requests and limits of each pod, as kube-scheduler shows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pinnace.kinds.pods.resource_amounts import Side, total_of
from pinnace.model.objects import AnyObject
from pinnace.process.exposition import Labels, Sample, render_samples
from pinnace.process.work_slices import SliceQueue

_FAMILIES: Mapping[Side, tuple[str, str]] = {
    "limits": ("kube_pod_resource_limit", "The limits of each pod, by resource."),
    "requests": ("kube_pod_resource_request", "The requests of each pod, by resource."),
}
_UNITS = {"cpu": "cores", "memory": "bytes", "storage": "bytes", "ephemeral-storage": "bytes"}


async def render_pod_resources(pods: Iterable[AnyObject]) -> str:
    """Return the metrics in Prometheus' text format. Pods on a node that have ended are left out."""
    slices = SliceQueue.of_loop().begin()
    samples: dict[Side, list[Sample]] = {what: [] for what in _FAMILIES}
    for pod in pods:
        await slices.pause()
        spec = pod["spec"]
        if spec.get("nodeName") and (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
            continue
        for side, of_side in samples.items():
            for name, amount in total_of(spec, side).items():
                if amount.amount:
                    of_side.append((_labels(pod, name), float(amount.amount)))
    lines = [
        line
        for what, (name, help) in _FAMILIES.items()
        if samples[what]
        for line in render_samples(name, help, "gauge", sorted(samples[what]))
    ]
    return "\n".join([*lines, ""])


def _labels(pod: AnyObject, resource: str) -> Labels:
    metadata, spec = pod["metadata"], pod["spec"]
    unit = "bytes" if resource.startswith("hugepages-") else _UNITS.get(resource, "")
    priority = spec.get("priority")
    return (
        ("namespace", metadata["namespace"]),
        ("node", spec.get("nodeName") or ""),
        ("pod", metadata["name"]),
        ("priority", "" if priority is None else str(priority)),
        ("resource", resource),
        ("scheduler", spec.get("schedulerName") or ""),
        ("unit", "integer" if resource.startswith("attachable-volumes-") else unit),
    )
