"""A scheduler of one's own: pods go to the node with the most free memory, and never to the nodes of other teams.

    pinnace up --nodes 3 --merge
    pinnace run examples/09-scheduler/my_scheduler.py
    kubectl apply -f examples/09-scheduler/pod.yaml
    kubectl get pod custom-scheduled-pod -o wide

It schedules the pods whose schedulerName is its name; all others are scheduled as before. The functions run after the
plug-ins of kube-scheduler, so that resources, taints and affinity are still respected.
"""

from typing import Any

from pinnace.sdk.scheduling import NodeArrays, NodeView, Pod, Scheduler

scheduler = Scheduler("my-custom-scheduler")


@scheduler.filter
def same_team(pod: Pod, node: NodeView) -> str | None:
    owner = node.labels.get("team")
    if owner is None or owner == pod.labels.get("team"):
        return None
    return f"node(s) belong to team {owner}"


@scheduler.score(weight=5, normalize=True)
def most_free_memory(pod: Pod, nodes: NodeArrays) -> Any:
    return nodes.free("memory")


if __name__ == "__main__":
    scheduler.serve()
