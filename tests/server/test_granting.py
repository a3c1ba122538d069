"""A user can grant only permissions that the user holds."""

from __future__ import annotations

import pytest
from tests.auth.objects_in_memory import rule
from tests.server.in_process import InProcess, Object
from tests.server.roles import (
    BINDINGS,
    CLUSTER_BINDINGS,
    CLUSTER_ROLES,
    CONFIG_MAPS,
    ROLES,
    as_user,
    binding,
    cluster_role,
    role,
)

from pinnace.model.users import User


async def lets_bob_write_roles(api: InProcess, *more: Object) -> None:
    writes = rule("create update get", "roles rolebindings", groups="rbac.authorization.k8s.io")
    cluster_writes = rule("create", "clusterroles clusterrolebindings", groups="rbac.authorization.k8s.io")
    await api.made(CLUSTER_ROLES, cluster_role("role-writer", writes, cluster_writes, *more))
    await api.made(CLUSTER_BINDINGS, binding("role-writer", "role-writer", of="ClusterRoleBinding"))


NOT_HELD = (
    '"r" is forbidden: user "bob" (groups=["devs" "system:authenticated"]) is attempting to grant RBAC permissions '
    'not currently held:\n{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}'
)


async def test_a_user_cannot_grant_more_than_the_user_holds(api: InProcess, bob: InProcess) -> None:
    await lets_bob_write_roles(api)
    secrets = rule("get", "secrets")
    made = await bob.post(ROLES, role("r", secrets))
    assert (made.status, made.message) == (403, f"roles.rbac.authorization.k8s.io {NOT_HELD}")
    await api.made(ROLES, role("r", rule("get", "pods")))
    changed = await bob.put(f"{ROLES}/r", role("r", secrets))
    assert (changed.status, changed.message) == (403, f"roles.rbac.authorization.k8s.io {NOT_HELD}")
    await api.made(CLUSTER_ROLES, cluster_role("secret-reader", secrets))
    bound = await bob.post(BINDINGS, binding("r", "secret-reader"))
    assert (bound.status, bound.message) == (403, f"rolebindings.rbac.authorization.k8s.io {NOT_HELD}")
    admin = await bob.post(CLUSTER_BINDINGS, binding("me", "cluster-admin", of="ClusterRoleBinding"))
    assert admin.status == 403
    assert (await bob.get("/api/v1/namespaces/default/secrets/x")).status == 403


async def test_a_user_can_grant_permissions_that_the_user_holds(api: InProcess, bob: InProcess) -> None:
    await lets_bob_write_roles(api, rule("get list", "configmaps"))
    await bob.made(ROLES, role("r", rule("get", "configmaps")))
    await bob.made(BINDINGS, binding("r", "r", user="alice", kind="Role"))
    assert (await as_user(api, User("alice")).get(f"{CONFIG_MAPS}/x")).status == 404


@pytest.mark.parametrize(("verb", "resource"), [("escalate", "roles"), ("bind", "clusterroles")])
async def test_the_verbs_escalate_and_bind_allow_to_grant_more(
    api: InProcess, bob: InProcess, verb: str, resource: str
) -> None:
    await lets_bob_write_roles(api, rule(verb, resource, groups="rbac.authorization.k8s.io"))
    made = await bob.post(ROLES, role("r", rule("get", "secrets")))
    bound = await bob.post(BINDINGS, binding("b", "edit"))
    assert (made.status, bound.status) == ((201, 403) if verb == "escalate" else (403, 201))


async def test_a_gathering_role_takes_an_administrator(api: InProcess, bob: InProcess) -> None:
    await lets_bob_write_roles(api)
    gathers = {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}
    reply = await bob.post(CLUSTER_ROLES, {**cluster_role("r"), "aggregationRule": gathers})
    assert reply.status == 403
    assert reply.message.endswith("must have cluster-admin privileges to use the aggregationRule")


async def test_a_role_that_is_not_there_cannot_be_bound(api: InProcess, bob: InProcess) -> None:
    await lets_bob_write_roles(api)
    assert (await bob.post(BINDINGS, binding("r", "nosuch"))).status == 404
    everywhere = await bob.post(CLUSTER_BINDINGS, binding("r", "nosuch", kind="Role", of="ClusterRoleBinding"))
    assert (everywhere.status, everywhere.message) == (400, "Namespace parameter required.")


async def test_the_role_is_looked_up_before_the_permission_to_create_and_before_validation(
    api: InProcess, bob: InProcess
) -> None:
    updates = rule("update get", "rolebindings", groups="rbac.authorization.k8s.io")
    await api.made(CLUSTER_ROLES, cluster_role("updater", updates))
    await api.made(CLUSTER_BINDINGS, binding("updater", "updater", of="ClusterRoleBinding"))
    missing = await bob.put(f"{BINDINGS}/r", binding("r", "nosuch"))
    assert (missing.status, missing.message) == (404, 'rolebindings.rbac.authorization.k8s.io "nosuch" not found')
    held = await bob.put(f"{BINDINGS}/r", binding("r", "updater"))
    assert (held.status, 'cannot create resource "rolebindings"' in held.message) == (403, True)
    odd = await bob.put(f"{BINDINGS}/r", binding("r", "view", kind="Wrong"))
    assert (odd.status, odd.message) == (500, 'unsupported role reference kind: "Wrong"')


async def test_a_patch_cannot_slip_a_rule_past_the_check(api: InProcess, bob: InProcess) -> None:
    await lets_bob_write_roles(api, rule("patch", "roles", groups="rbac.authorization.k8s.io"))
    await api.made(ROLES, role("r", rule("get", "pods")))
    patch = {"rules": [rule("*", "*", groups="*")]}
    for content_type in ("application/merge-patch+json", "application/strategic-merge-patch+json"):
        assert (await bob.patch(f"{ROLES}/r", patch, content_type)).status == 403
    operations = [{"op": "add", "path": "/rules/-", "value": rule("*", "*", groups="*")}]
    assert (await bob.patch(f"{ROLES}/r", operations, "application/json-patch+json")).status == 403
    applied = role("r", rule("*", "*", groups="*"))
    url = f"{ROLES}/r?fieldManager=bob&force=true"
    assert (await bob.patch(url, applied, "application/apply-patch+yaml")).status == 403


async def test_rules_that_combine_to_billions_of_permissions_are_refused_at_once(
    api: InProcess, bob: InProcess
) -> None:
    """The body is of 8 KB; each of its permissions would be a line of the answer."""
    await lets_bob_write_roles(api)
    many = [" ".join(f"{word}{number}" for number in range(200)) for word in "vrgn"]
    verbs, resources, groups, names = many
    refused = await bob.post(ROLES, role("r", rule(verbs, resources, groups=groups, names=names)))
    assert refused.status == 403
    assert refused.message.endswith("\n...")
    assert len(refused.message) < 200_000
