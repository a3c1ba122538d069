"""Put random clusters together: each mixes a few features, and asks about several pods."""

from collections.abc import Callable

from tests.scheduler import random_clusters as clusters
from tests.scheduler import random_volumes as volumes
from tests.scheduler.random_clusters import NAMESPACES, Draw

from pinnace.model.objects import Object

Decoration = Callable[[Draw, Object], None]

# The features of a cluster: how likely each is, the objects that it adds, its change to a pod, its likelihood.
FEATURES: dict[str, tuple[float, Callable[[Draw], None] | None, Decoration | None, float]] = {
    "taints": (0.3, clusters.taint_nodes, clusters.tolerate, 0.7),
    "images": (0.3, clusters.give_images, None, 0),
    "containers": (0.25, None, clusters.add_more_containers, 0.7),
    "extended": (0.2, None, clusters.ask_for_extended_resources, 0.6),
    "node-affinity": (0.3, None, clusters.want_nodes, 0.7),
    "ports": (0.2, None, clusters.take_ports, 0.5),
    "spread": (0.3, None, clusters.spread, 0.6),
    "pod-affinity": (0.3, None, clusters.relate, 0.6),
    "owners": (0.3, clusters.add_owners, clusters.own, 0.5),
    "priorities": (0.35, None, clusters.rank, 1),
    "budgets": (0.1, clusters.add_budgets, None, 0),
    "volumes": (0.15, volumes.add_storage, volumes.mount, 0.7),
    "devices": (0.08, volumes.add_devices, volumes.claim_devices, 0.7),
}


def make_question(seed: int, pods: int = 6) -> Object:
    """Return `objects`, the cluster, and `pods`, each of which is to be scheduled on it alone."""
    draw = Draw(seed)
    chosen = {name for name, (probability, *_) in FEATURES.items() if draw.chance(probability)}
    crowded = "priorities" in chosen and draw.chance(0.7)
    if crowded:
        chosen = {name for name in sorted(chosen) if draw.chance(0.35)} | {"priorities"}
        chosen |= {"budgets"} if draw.chance(0.5) else set()
    clusters.make_nodes(draw, small=crowded)
    for index, namespace in enumerate(NAMESPACES):
        labels = {"kubernetes.io/metadata.name": namespace} | ({"team": "ab"[index - 1]} if index else {})
        draw.add("v1", "Namespace", {"name": namespace, "labels": labels})
    for name, (_, add, _, _) in FEATURES.items():
        if name in chosen and add is not None:
            add(draw)
    for _ in range(6 * len(draw.nodes) if crowded else draw.between(0, 20)):
        add_running(draw, chosen, crowded=crowded)
    questions = []
    for _ in range(pods):
        pod = decorate(draw, clusters.make_pod(draw, "new"), chosen)
        if crowded:
            clusters.grow(draw, pod)
        elif draw.chance(0.05):
            pod["spec"]["nodeName"] = ""
            pod["spec"]["nodeSelector"] = {"disk": "tape"}
        if "priorities" in chosen and draw.chance(0.08):
            pod["status"]["nominatedNodeName"] = draw.pick(draw.nodes)["metadata"]["name"]
        questions.append(pod)
    return {"seed": seed, "features": sorted(chosen), "objects": draw.objects, "pods": questions}


def add_running(draw: Draw, chosen: set[str], *, crowded: bool) -> None:
    pod = clusters.make_pod(draw, "old")
    if "priorities" in chosen and draw.chance(0.04):
        pod["status"]["nominatedNodeName"] = draw.pick(draw.nodes)["metadata"]["name"]
    else:
        clusters.bind(draw, pod)
    decorate(draw, pod, chosen - {"devices"})
    if crowded:
        clusters.fill(draw, pod)
    if draw.chance(0.04):
        pod["metadata"]["deletionTimestamp"] = "2026-02-01T00:00:00Z"
        pod["metadata"]["deletionGracePeriodSeconds"] = 30
    draw.objects.append(pod)


def decorate(draw: Draw, pod: Object, chosen: set[str]) -> Object:
    for name, (_, _, change, probability) in FEATURES.items():
        if name in chosen and change is not None and draw.chance(probability):
            change(draw, pod)
    return pod
