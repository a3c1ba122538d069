"""Published attacks on the API server and on kubelet's own pages: each is tried, and has its result.

`published.toml` lists the others, and where they are tried.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.hostile.test_node_identity import Cluster, cluster, until
from tests.node.agent.conftest import NODE, RealNode, node

from pinnace.model import errors
from pinnace.model.objects import Object
from pinnace.node.agent.kubelet_api.connection import AgentConnection
from pinnace.node.agent.kubelet_api.web_pages import WebPages
from pinnace.node.pressure.storage_meter import StorageMeter
from pinnace.process.clock import SystemClock

__all__ = ["cluster", "node"]
_GROUP = "stolen.example.com"


def _definition(kind: str, scope: str) -> Object:
    names = {"plural": f"{kind.lower()}s", "singular": kind.lower(), "kind": kind, "listKind": f"{kind}List"}
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.lower()}s.{_GROUP}"},
        "spec": {"group": _GROUP, "scope": scope, "names": names, "versions": [version]},
    }


@pytest.fixture
async def kinds(cluster: Cluster) -> Cluster:
    """Ships and crews in namespaces, and harbours of the cluster, one of each. Bob may read ships everywhere."""
    for kind, scope in (("Ship", "Namespaced"), ("Crew", "Namespaced"), ("Harbour", "Cluster")):
        await cluster.root.create(_definition(kind, scope))

        async def is_served(kind: str = kind) -> bool:
            try:
                await cluster.root.list(f"{_GROUP}/v1/{kind}")
            except errors.NotFound:
                return False
            return True

        await until(is_served)
        metadata = {"name": f"secret-{kind.lower()}"} | ({"namespace": "default"} if scope == "Namespaced" else {})
        await cluster.root.create({"apiVersion": f"{_GROUP}/v1", "kind": kind, "metadata": metadata})
    rules = [
        {"apiGroups": [_GROUP], "resources": ["ships"], "verbs": ["get", "list", "watch"]},
    ]
    rbac = "rbac.authorization.k8s.io"
    await cluster.root.create(
        {"apiVersion": f"{rbac}/v1", "kind": "ClusterRole", "metadata": {"name": "ships"}, "rules": rules}
    )
    await cluster.root.create(
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "ships"},
            "roleRef": {"apiGroup": rbac, "kind": "ClusterRole", "name": "ships"},
            "subjects": [{"apiGroup": rbac, "kind": "User", "name": "bob"}],
        }
    )
    return cluster


_TOKEN = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiIuLi9jcmV3cy8ifQ"
"""A continue token with `start: ../crews/`."""
_PATHS = (
    *(
        "ships/../crews",
        "ships%2F..%2Fcrews",
        "namespaces/..%2Fcrews/ships",
        "namespaces/%2e%2e/crews",
        "ships/..%2Fcrews",
    ),
    *("namespaces/default/ships/..%2F..%2Fcrews%2Fdefault%2Fsecret-crew", "namespaces/default/ships/%2e%2e/crews"),
    *("namespaces//crews", "namespaces/default%2F..%2F..%2Fcrews%2Fdefault/ships", "./crews", "ships;/../crews"),
    *(
        f"ships?continue={_TOKEN}",
        f"namespaces/default/ships?continue={_TOKEN}",
        "ships?fieldSelector=metadata.name=../crews",
    ),
    *("ships?resourceVersion=0&prefix=../crews", "watch/ships/../crews", "watch/crews?watch=false"),
)


@pytest.mark.parametrize("path", _PATHS)
async def test_reading_one_custom_kind_shows_no_other(kinds: Cluster, path: str) -> None:
    """CVE-2022-3162: the prefix of the one kind in the store was left by a crafted path."""
    bob = kinds.as_user("bob")
    assert b"secret-ship" in await bob.read(f"/apis/{_GROUP}/v1/ships")
    try:
        answer = await bob.read(f"/apis/{_GROUP}/v1/{path}")
    except errors.ApiError as error:
        answer = str(error).encode()
    assert b"secret-crew" not in answer.replace(b'ships "secret-crew" not found', b"")


async def test_a_kind_of_the_cluster_is_not_reached_through_a_namespace(kinds: Cluster) -> None:
    """CVE-2019-11247: a role in a namespace was enough for objects of the whole cluster."""
    for path in ("harbours", "harbours/secret-harbour"):
        with pytest.raises(errors.ApiError, match="could not find"):
            await kinds.root.read(f"/apis/{_GROUP}/v1/namespaces/default/{path}")
    for path in ("ships/secret-ship", "crews/secret-crew"):
        with pytest.raises(errors.ApiError, match="could not find"):
            await kinds.root.read(f"/apis/{_GROUP}/v1/{path}")


async def test_a_policy_for_nodes_sees_the_node_as_it_is_stored(cluster: Cluster) -> None:
    """CVE-2021-25735: the old object of an update of a node had the values of the new one."""
    had, has = (f"{name}.metadata.?labels.locked.hasValue()" for name in ("oldObject", "object"))
    rule = f"!{had} || {has}"
    api = "admissionregistration.k8s.io/v1"
    match = {
        "resourceRules": [
            {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["nodes", "nodes/status"]}
        ]
    }
    policy = {"matchConstraints": match, "validations": [{"expression": rule, "message": "it is locked"}]}
    for kind, spec in (
        ("ValidatingAdmissionPolicy", policy),
        ("ValidatingAdmissionPolicyBinding", {"policyName": "lock", "validationActions": ["Deny"]}),
    ):
        await cluster.root.create({"apiVersion": api, "kind": kind, "metadata": {"name": "lock"}, "spec": spec})
    await cluster.root.patch("v1/Node", "n1", {"metadata": {"labels": {"locked": "yes"}}})

    async def is_in_force() -> bool:
        try:
            await cluster.root.patch("v1/Node", "n1", {"metadata": {"labels": {"locked": None}}}, dry_run=True)
        except errors.ApiError as error:
            return "it is locked" in str(error)
        return False

    await until(is_in_force)
    node = cluster.node
    for subresource in ("", "status"):
        obj = await cluster.root.get("v1/Node", "n1")
        del obj["metadata"]["labels"]["locked"]
        obj["metadata"]["labels"]["unlocked"] = "yes"
        below = f"/{subresource}" if subresource else ""
        for caller in (cluster.root, node):
            with pytest.raises(errors.ApiError):
                await caller.send("PUT", f"/api/v1/nodes/n1{below}", obj)
            with pytest.raises(errors.ApiError):
                await caller.patch("v1/Node", "n1", {"metadata": {"labels": {"locked": None}}}, subresource=subresource)
    assert (await cluster.root.get("v1/Node", "n1"))["metadata"]["labels"]["locked"] == "yes"


@pytest.fixture
def paged(node: RealNode) -> RealNode:
    """A node whose pages the proxy of the API server reaches."""
    clock = SystemClock()
    storage = StorageMeter(node.runtime, clock, node.directory / "agent" / "pods")
    pages = WebPages(node.runtime, clock, NODE, node.directory, storage)
    node.cluster.plane.nodes.register(NODE, AgentConnection(node.runtime, clock, pages))
    return node


async def test_queries_of_the_logs_of_a_node_run_nothing(paged: RealNode, tmp_path: Path) -> None:
    """CVE-2024-9042: the name of a service in the query was a command."""
    ran = tmp_path / "ran"
    for query in (
        f"kubelet;touch%20{ran}",
        f"$(touch%20{ran})",
        f"%60touch%20{ran}%60",
        f"x%0atouch%20{ran}",
        "/etc/shadow",
    ):
        for path in (
            f"logs/?query={query}",
            f"logs/?query=x&pattern={query}",
            f"logs/{query}",
            "logs/..%2f..%2fetc/shadow",
        ):
            with pytest.raises(errors.ApiError, match=r"disabled|could not find|not found"):
                await paged.client.read(f"/api/v1/nodes/{NODE}/proxy/{path}")
    assert not ran.exists()


async def test_checkpoints_and_profiles_leave_nothing_on_a_node(paged: RealNode) -> None:
    """CVE-2025-0426 and CVE-2019-11248: checkpoints without end fill the disk; the pages of a debugger are open."""
    await paged.create("target", ["sleep", "1000"])
    await paged.until_ready("target")

    def files() -> set[str]:
        return {f"{place}/{name}" for place, _, names in os.walk(paged.directory) for name in names}

    before = files()
    proxy = f"/api/v1/nodes/{NODE}/proxy"
    for name in ("target", "..%2f..%2ftarget", "target%00"):
        for _ in range(5):
            with pytest.raises(errors.ApiError):
                await paged.client.send("POST", f"{proxy}/checkpoint/default/{name}/main", {})
    for page in ("debug/pprof/", "debug/pprof/heap", "debug/flags/v", "run/default/target/main", "configz/../../pods"):
        with pytest.raises(errors.ApiError):
            await paged.client.read(f"{proxy}/{page}")
    assert {path for path in files() - before if "/events" not in path} == set()
