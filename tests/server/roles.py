"""Users, roles and bindings for the tests of access."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from tests.server.in_process import InProcess, Object, Reply, reply_of

from pinnace.model.users import User, authenticated
from pinnace.server.local import NoTransport
from pinnace.serving.messages import Peer, Request, RequestHead, Response, split_target

RBAC = "/apis/rbac.authorization.k8s.io/v1"
ROLES = f"{RBAC}/namespaces/default/roles"
BINDINGS = f"{RBAC}/namespaces/default/rolebindings"
CLUSTER_ROLES = f"{RBAC}/clusterroles"
CLUSTER_BINDINGS = f"{RBAC}/clusterrolebindings"
AUTHORIZATION = "/apis/authorization.k8s.io/v1"
AUTHENTICATION = "/apis/authentication.k8s.io/v1"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
BOB = authenticated(User("bob", ("devs",)))


def role(name: str, *rules: Object) -> Object:
    return {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": name}, "rules": rules}


def cluster_role(name: str, *rules: Object, **more: Any) -> Object:
    return {**role(name, *rules), "kind": "ClusterRole", **more}


def binding(
    name: str, to_role: str, user: str = "bob", *, kind: str = "ClusterRole", of: str = "RoleBinding"
) -> Object:
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": of,
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": to_role},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user}],
    }


def as_user(api: InProcess, user: User) -> InProcess:
    return InProcess(api.plane, user)


async def from_the_wire(api: InProcess, target: str, *, is_upgrade: bool = False, **headers: str) -> Reply:
    """Send a request as from a socket: its user is not authenticated yet."""
    path, query = split_target(target)
    named = {name.replace("_", "-").encode(): value.encode() for name, value in headers.items()}
    answer = api.plane.api(
        Request("GET", target, path, query, RequestHead(named), b"", Peer(NoTransport()), upgrade=is_upgrade)
    )
    done = await answer if isinstance(answer, Awaitable) else answer
    assert isinstance(done, Response)
    return reply_of(done)


async def review(api: InProcess, plural: str, kind: str, spec: Object, group: str = AUTHORIZATION) -> Object:
    body = {"apiVersion": group.removeprefix("/apis/"), "kind": kind, "spec": spec}
    status: Object = (await api.made(f"{group}/{plural}", body))["status"]
    return status
