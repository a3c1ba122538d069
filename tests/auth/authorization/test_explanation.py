"""Explanations of denials: the reason, and the bindings that would allow the action."""

from __future__ import annotations

from tests.auth.objects_in_memory import Kept, binding, role, rule

from pinnace.auth.authorization.explanation import explain
from pinnace.auth.authorization.rbac import Rbac
from pinnace.model.authorization import Action
from pinnace.model.users import User

BOB = User("bob")
DELETE_POD = Action("delete", resource="pods", namespace="shop")


def cluster() -> Rbac:
    return Rbac(
        roles=Kept(role("cleaner", rule("delete", "pods"), namespace="shop")),
        cluster_roles=Kept(
            role("reader", rule("get list", "pods")),
            role("everything", rule("*", "*", groups="*")),
            role("system:controller:pods", rule("delete", "pods")),
        ),
        bindings=Kept(
            binding("readers", "reader", "User bob", namespace="shop"),
            binding("cleaners", "cleaner", "Group ops", namespace="shop", kind="Role"),
            binding("elsewhere", "everything", "Group ops", namespace="other"),
        ),
        cluster_bindings=Kept(binding("system:controller:pods", "system:controller:pods", "ServiceAccount kube/p")),
    )


def test_the_report_names_held_roles_joinable_groups_and_bindable_roles() -> None:
    explanation = explain(cluster(), BOB, DELETE_POD)
    assert explanation.allowed_by == ""
    assert [grant.binding for grant in explanation.held] == ["readers"]
    assert [str(grant) for grant in explanation.joinable] == [
        'RoleBinding "cleaners/shop" of Role "cleaner" to Group "ops"'
    ]
    assert explanation.bindable == (("Role", "cleaner"), ("ClusterRole", "everything"))
    assert str(explanation.rule) == '{APIGroups:[""], Resources:["pods"], Verbs:["delete"]}'


def test_an_allowed_user_gets_the_reason() -> None:
    explanation = explain(cluster(), User("carol", ("ops",)), DELETE_POD)
    assert explanation.allowed_by == 'RoleBinding "cleaners/shop" of Role "cleaner" to Group "ops"'


def test_the_rule_for_a_path_has_a_path() -> None:
    assert str(explain(cluster(), BOB, Action("get", path="/metrics")).rule) == (
        '{NonResourceURLs:["/metrics"], Verbs:["get"]}'
    )


def test_a_role_for_everything_is_offered_last_even_behind_the_systems_own() -> None:
    rbac = Rbac(
        roles=Kept(),
        cluster_roles=Kept(
            role("everything", rule("*", "*", groups="*")),
            role("system:cleaning", rule("delete get list watch", "pods")),
        ),
        bindings=Kept(),
        cluster_bindings=Kept(),
    )
    assert [name for _, name in explain(rbac, BOB, DELETE_POD).bindable] == ["system:cleaning", "everything"]
