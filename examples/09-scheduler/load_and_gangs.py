"""A scheduler that avoids busy nodes and starts the pods of a group together or not at all.

    pinnace up --nodes 3 --run load_and_gangs.py

NodeLoad objects, which an agent on each node may write, say how busy it is. Pods with the label `group` and the
annotation `group-size` wait for a permit until so many of them have a node.
"""

from __future__ import annotations

from pinnace.sdk import CustomResource, Field, Model
from pinnace.sdk.scheduling import NodeView, Pod, Scheduler, SchedulerContext, Wait

BUSY = 80
SECONDS = 60


class NodeLoadSpec(Model):
    percent: int = Field(ge=0, le=100, description="How busy the node of the same name is.")


class NodeLoad(CustomResource[NodeLoadSpec, None], group="load.example.com", version="v1", scope="Cluster"):
    """How busy a node is."""


scheduler = Scheduler("load-and-gangs")


def has_cooled(pod: Pod, old: NodeLoad | None, new: NodeLoad | None) -> bool:
    return new is None or new.spec.percent < BUSY


def load_of(node: NodeView, ctx: SchedulerContext) -> int:
    load = ctx.get(NodeLoad, node.name)
    return load.spec.percent if load is not None else 0


@scheduler.filter(wakes={NodeLoad: has_cooled, "v1/Node": None})
def not_busy(pod: Pod, node: NodeView, ctx: SchedulerContext) -> str | None:
    return f"node(s) were more than {BUSY} % busy" if load_of(node, ctx) >= BUSY else None


@scheduler.score(weight=3)
def idle_first(pod: Pod, node: NodeView, ctx: SchedulerContext) -> int:
    return 100 - load_of(node, ctx)


@scheduler.permit
def together(pod: Pod, node: str, ctx: SchedulerContext) -> Wait | None:
    group = pod.labels.get("group")
    if group is None:
        return None
    size = int(pod.object["metadata"].get("annotations", {}).get("group-size", "1"))
    others = [
        other for other, _ in ctx.waiting() if (other.namespace, other.labels.get("group")) == (pod.namespace, group)
    ]
    if len(others) + 1 < size:
        return Wait(SECONDS)
    for other in others:
        ctx.allow(other)
    return None
