"""An administrator acts as another user."""

from __future__ import annotations

from tests.auth.objects_in_memory import rule
from tests.server.in_process import InProcess, control_plane
from tests.server.roles import AUTHENTICATION, BOB, CLUSTER_BINDINGS, CLUSTER_ROLES, as_user, binding, cluster_role

from pinnace.cluster.settings import Settings


async def test_an_administrator_acts_as_anyone(api: InProcess) -> None:
    question = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
    target = f"{AUTHENTICATION}/selfsubjectreviews"
    reply = await api.post(target, question, impersonate_user="bob", impersonate_group="devs", impersonate_uid="7")
    info = {"username": "bob", "uid": "7", "groups": ["devs", "system:authenticated"]}
    assert reply.json["status"] == {"userInfo": info}
    assert (await api.get("/api/v1/pods", impersonate_user="bob")).status == 403


async def test_impersonation_takes_permission_for_each_part(api: InProcess, bob: InProcess) -> None:
    refused = await bob.get("/api/v1/pods", impersonate_user="alice")
    assert (refused.status, refused.message) == (
        403,
        'pods is forbidden: User "bob" cannot impersonate-on:user-info:list resource "pods" in API group "" at the '
        "cluster scope",
    )
    await api.made(CLUSTER_ROLES, cluster_role("acting", rule("impersonate", "users", names="alice")))
    await api.made(CLUSTER_BINDINGS, binding("acting", "acting", of="ClusterRoleBinding"))
    as_alice = await bob.get("/api/v1/pods", impersonate_user="alice")
    assert 'User "alice" cannot list' in as_alice.message
    as_root = await bob.get("/api/v1/pods", impersonate_user="alice", impersonate_group="system:masters")
    assert (as_root.status, as_root.json["details"]) == (403, {"name": "system:masters", "kind": "groups"})
    assert (await bob.get("/api/v1/pods", impersonate_user="carol")).status == 403
    alone = await bob.get("/api/v1/pods", impersonate_group="system:masters")
    assert alone.status == 400


async def test_impersonation_for_some_requests_opens_no_others(api: InProcess, bob: InProcess) -> None:
    on = rule("impersonate-on:user-info:list", "pods")
    be = rule("impersonate:user-info", "users", groups="authentication.k8s.io", names="alice")
    await api.made(CLUSTER_ROLES, cluster_role("acting", on, be))
    await api.made(CLUSTER_BINDINGS, binding("acting", "acting", of="ClusterRoleBinding"))
    assert 'User "alice" cannot list' in (await bob.get("/api/v1/pods", impersonate_user="alice")).message
    other = await bob.get("/api/v1/services", impersonate_user="alice")
    assert 'User "bob" cannot impersonate-on:user-info:list resource "services"' in other.message
    carol = await bob.get("/api/v1/pods", impersonate_user="carol")
    assert 'User "bob" cannot impersonate:user-info resource "users"' in carol.message


async def test_an_older_kubernetes_knows_of_no_such_impersonation() -> None:
    async with control_plane(settings=Settings(kubernetes_version="1.35")) as api:
        refused = await as_user(api, BOB).get("/api/v1/pods", impersonate_user="alice")
        assert 'User "bob" cannot impersonate resource "users"' in refused.message
