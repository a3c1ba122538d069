"""The flow schema, priority level and seats of requests are those that kube-apiserver 1.36.4 has reported.

Recorded with 40 ConfigMaps of 50 kB, from the headers of its answers and its work_estimated_seats metric.
"""

from __future__ import annotations

from typing import cast

from tests.server.flowcontrol.test_work_estimates import call
from tests.server.in_process import InProcess

from pinnace.model.users import AUTHENTICATED, MASTERS, User
from pinnace.server.handler import Handler

MAPS = "/api/v1/namespaces/seats/configmaps"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/x"
NODE_STATUS = "/api/v1/nodes/n1/status"

ACCOUNTS = "system:serviceaccounts"
USERS = {
    "masters": User("admin", (MASTERS, AUTHENTICATED)),
    "cluster-admin": User("alice", (AUTHENTICATED, "admins")),
    "account": User("system:serviceaccount:seats:x", (AUTHENTICATED, ACCOUNTS, f"{ACCOUNTS}:seats")),
    "kube-system": User("system:serviceaccount:kube-system:x", (AUTHENTICATED, ACCOUNTS, f"{ACCOUNTS}:kube-system")),
    "node": User("system:node:n1", (AUTHENTICATED, "system:nodes")),
    "scheduler": User("system:kube-scheduler", (AUTHENTICATED,)),
    "controllers": User("system:kube-controller-manager", (AUTHENTICATED,)),
    "anonymous": User("system:anonymous", ("system:unauthenticated",)),
}

RECORDED = [  # The user, the method and target of the request, the schema, the level, and the seats: 0 if exempt.
    ("masters", "GET", MAPS, "exempt", "exempt", 0),
    ("masters", "PATCH", f"{MAPS}/c1", "exempt", "exempt", 0),
    ("cluster-admin", "GET", MAPS, "global-default", "global-default", 8),
    ("cluster-admin", "GET", f"{MAPS}?limit=5", "global-default", "global-default", 3),
    ("cluster-admin", "GET", f"{MAPS}?resourceVersion=0", "global-default", "global-default", 8),
    ("cluster-admin", "GET", f"{MAPS}?fieldSelector=metadata.name%3Dc1", "global-default", "global-default", 1),
    ("cluster-admin", "GET", f"{MAPS}?labelSelector=a%3Db", "global-default", "global-default", 8),
    ("cluster-admin", "GET", "/api/v1/configmaps", "global-default", "global-default", 8),
    ("cluster-admin", "GET", f"{MAPS}/c1", "global-default", "global-default", 1),
    ("cluster-admin", "GET", f"{MAPS}?watch=1", "global-default", "global-default", 8),
    ("cluster-admin", "GET", f"{MAPS}?watch=1&resourceVersion=9", "global-default", "global-default", 1),
    ("cluster-admin", "PATCH", f"{MAPS}/c1", "global-default", "global-default", 1),
    ("cluster-admin", "DELETE", f"{MAPS}?dryRun=All", "global-default", "global-default", 1),
    ("cluster-admin", "GET", LEASE, "global-default", "global-default", 1),
    ("account", "GET", MAPS, "service-accounts", "workload-low", 10),
    ("account", "GET", LEASE, "service-accounts", "workload-low", 1),
    ("kube-system", "GET", MAPS, "kube-system-service-accounts", "workload-high", 10),
    ("kube-system", "GET", LEASE, "system-leader-election", "leader-election", 1),
    ("node", "GET", MAPS, "system-nodes", "system", 10),
    ("node", "GET", LEASE, "system-node-high", "node-high", 1),
    ("node", "GET", NODE_STATUS, "system-node-high", "node-high", 1),
    ("scheduler", "GET", MAPS, "kube-scheduler", "workload-high", 10),
    ("scheduler", "GET", LEASE, "system-leader-election", "leader-election", 1),
    ("controllers", "GET", MAPS, "kube-controller-manager", "workload-high", 10),
    ("controllers", "GET", LEASE, "system-leader-election", "leader-election", 1),
    ("anonymous", "GET", MAPS, "global-default", "global-default", 8),
]


async def test_requests_have_the_level_and_the_seats_that_kubernetes_gives_them(api: InProcess) -> None:
    await api.made("/api/v1/namespaces", {"metadata": {"name": "seats"}})
    for number in range(40):
        await api.made(MAPS, {"metadata": {"name": f"c{number}"}, "data": {"a": "x" * 50_000}})
    control = cast(Handler, api.plane.api)._flow_control
    assert control._estimator is not None
    results = []
    for user, method, target, *_ in RECORDED:
        request = call(api, target, method)
        flow = control._flow_of(USERS[user], api.plane.api.action_of(request.request))
        (_, schema), (_, level) = flow.counts.labels
        seats = control._estimator.estimate(request, flow.level.widest).seats if not flow.level.is_exempt else 0
        results.append((user, method, target, schema, level, seats))
    assert results == RECORDED
