"""Decisions by roles: who gets what from which binding, and how changes are followed."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.auth.objects_in_memory import Kept, Object, binding, role, rule

from pinnace.auth.authorization.authorizers import InOrder, Masters
from pinnace.auth.authorization.rbac import Rbac
from pinnace.auth.authorization.rules import Rule
from pinnace.model.authorization import Action, Decision
from pinnace.model.users import User, authenticated

BOB = authenticated(User("bob", ("devs",)))
ROBOT = User("system:serviceaccount:shop:robot", ("system:serviceaccounts", "system:serviceaccounts:shop"))
LIST_PODS = Action("list", resource="pods", namespace="shop")
LIST_ALL_PODS = Action("list", resource="pods")
READER = role("reader", rule("get list", "pods"))


@dataclass(slots=True)
class Cluster:
    roles: Kept = field(default_factory=Kept)
    cluster_roles: Kept = field(default_factory=lambda: Kept(READER))
    bindings: Kept = field(default_factory=Kept)
    cluster_bindings: Kept = field(default_factory=Kept)

    def rbac(self) -> Rbac:
        return Rbac(
            roles=self.roles,
            cluster_roles=self.cluster_roles,
            bindings=self.bindings,
            cluster_bindings=self.cluster_bindings,
        )


def test_a_user_without_bindings_may_do_nothing() -> None:
    assert Cluster().rbac().decide(BOB, LIST_PODS) == Decision("no opinion")


@pytest.mark.parametrize(
    ("subject", "user", "message"),
    [
        ("User bob", BOB, 'User "bob"'),
        ("Group devs", BOB, 'Group "devs"'),
        ("Group system:authenticated", BOB, 'Group "system:authenticated"'),
        ("ServiceAccount shop/robot", ROBOT, 'ServiceAccount "robot/shop"'),
        ("User system:serviceaccount:shop:robot", ROBOT, 'User "system:serviceaccount:shop:robot"'),
        ("Group system:serviceaccounts:shop", ROBOT, 'Group "system:serviceaccounts:shop"'),
    ],
)
def test_a_binding_reaches_its_subject_and_is_named(subject: str, user: User, message: str) -> None:
    cluster = Cluster()
    cluster.cluster_bindings.put(binding("readers", "reader", subject))
    decision = cluster.rbac().decide(user, LIST_ALL_PODS)
    expected = f'RBAC: allowed by ClusterRoleBinding "readers" of ClusterRole "reader" to {message}'
    assert decision == Decision("allow", expected)


def test_a_binding_in_a_namespace_holds_there_alone() -> None:
    cluster = Cluster()
    cluster.bindings.put(binding("readers", "reader", "User bob", namespace="shop"))
    rbac = cluster.rbac()
    reason = 'RBAC: allowed by RoleBinding "readers/shop" of ClusterRole "reader" to User "bob"'
    assert rbac.decide(BOB, LIST_PODS) == Decision("allow", reason)
    assert not rbac.decide(BOB, Action("list", resource="pods", namespace="other")).is_allowed
    assert not rbac.decide(BOB, LIST_ALL_PODS).is_allowed


def test_a_role_of_another_namespace_is_another_role() -> None:
    cluster = Cluster()
    cluster.roles.put(role("local", rule("list", "pods"), namespace="other"))
    cluster.bindings.put(binding("b", "local", "User bob", namespace="shop", kind="Role"))
    decision = cluster.rbac().decide(BOB, LIST_PODS)
    assert decision == Decision("no opinion", 'RBAC: role.rbac.authorization.k8s.io "local" not found')


def test_a_service_account_without_namespace_is_of_the_binding_s() -> None:
    cluster = Cluster()
    cluster.bindings.put(binding("b", "reader", "ServiceAccount robot", namespace="shop"))
    assert cluster.rbac().decide(ROBOT, LIST_PODS).is_allowed


def test_a_binding_in_a_namespace_opens_no_paths() -> None:
    cluster = Cluster()
    cluster.cluster_roles.put(role("metrics", rule("get", urls="/metrics")))
    cluster.bindings.put(binding("b", "metrics", "User bob", namespace="shop"))
    assert not cluster.rbac().decide(BOB, Action("get", path="/metrics")).is_allowed


def test_names_are_distinguished_though_decisions_are_remembered() -> None:
    cluster = Cluster()
    cluster.cluster_roles.put(role("one", rule("get", "secrets", names="mine")))
    cluster.cluster_bindings.put(binding("b", "one", "User bob"))
    rbac = cluster.rbac()
    for _ in range(2):
        assert rbac.decide(BOB, Action("get", resource="secrets", namespace="shop", name="mine")).is_allowed
        assert not rbac.decide(BOB, Action("get", resource="secrets", namespace="shop", name="yours")).is_allowed
        assert not rbac.decide(BOB, Action("get", resource="secrets", namespace="shop")).is_allowed


def test_a_rule_for_all_names_counts_after_one_for_some() -> None:
    cluster = Cluster()
    cluster.cluster_roles.put(role("both", rule("get", "secrets", names="mine"), rule("get", "secrets")))
    cluster.cluster_bindings.put(binding("b", "both", "User bob"))
    assert cluster.rbac().decide(BOB, Action("get", resource="secrets", namespace="shop", name="yours")).is_allowed


def test_every_change_is_followed_at_once() -> None:
    cluster = Cluster()
    rbac = cluster.rbac()
    seen = [rbac.decide(BOB, LIST_PODS).is_allowed]
    cluster.bindings.put(binding("b", "reader", "User bob", namespace="shop"))
    seen.append(rbac.decide(BOB, LIST_PODS).is_allowed)
    cluster.cluster_roles.put(role("reader", rule("get", "pods")))
    seen.append(rbac.decide(BOB, LIST_PODS).is_allowed)
    cluster.cluster_roles.put(READER)
    seen.append(rbac.decide(BOB, LIST_PODS).is_allowed)
    cluster.bindings.put(binding("b", "reader", "User alice", namespace="shop"))
    seen.append(rbac.decide(BOB, LIST_PODS).is_allowed)
    cluster.bindings.put(binding("b", "reader", "User alice", "Group devs", namespace="shop"))
    seen.append(rbac.decide(BOB, LIST_PODS).is_allowed)
    cluster.cluster_roles.remove("reader")
    seen.append(rbac.decide(BOB, LIST_PODS).is_allowed)
    cluster.cluster_roles.put(READER)
    cluster.bindings.remove("shop/b")
    seen.append(rbac.decide(BOB, LIST_PODS).is_allowed)
    assert seen == [False, True, False, True, False, True, False, False]
    assert list(rbac.all_grants()) == []


def test_masters_may_everything_without_any_role() -> None:
    order = InOrder([Masters(), Cluster().rbac()])
    decision = order.decide(User("kubernetes-admin", ("system:masters",)), LIST_ALL_PODS)
    assert decision == Decision("allow")


WORDS = st.sampled_from(["get", "list", "*"])
PLACES = st.sampled_from(["pods", "pods/log", "*/log", "*", "secrets"])
RULES = st.builds(
    lambda verb, group, places, names: rule(verb, " ".join(places), groups=group, names=names),
    WORDS,
    st.sampled_from(["core", "apps", "*"]),
    st.lists(PLACES, min_size=1, max_size=3),
    st.sampled_from(["", "a", "a b"]),
)
PATHS = st.builds(lambda verb, url: rule(verb, urls=url), WORDS, st.sampled_from(["/metrics", "/logs/*", "*"]))
ACTIONS = st.one_of(
    st.builds(
        Action,
        st.sampled_from(["get", "list"]),
        group=st.sampled_from(["", "apps"]),
        resource=st.sampled_from(["pods", "secrets"]),
        subresource=st.sampled_from(["", "log", "status"]),
        namespace=st.sampled_from(["", "n", "m"]),
        name=st.sampled_from(["", "a", "b", "c"]),
    ),
    st.builds(Action, st.sampled_from(["get", "list"]), path=st.sampled_from(["/metrics", "/logs/x", "/other"])),
)


@settings(max_examples=500, deadline=None)
@example([[], [rule("get", "*/log")]], [Action("get", resource="pods", subresource="log", namespace="n")])
@given(st.lists(st.lists(st.one_of(RULES, PATHS), max_size=3), max_size=5), st.lists(ACTIONS, max_size=8))
def test_the_index_finds_the_same_as_reading_every_rule(rules: list[list[Object]], actions: list[Action]) -> None:
    """The first half of the roles is bound everywhere, the rest in one namespace."""
    everywhere = len(rules) // 2
    user = User("bob", ("devs",))
    rbac = Rbac(
        roles=Kept(),
        cluster_roles=Kept(*(role(f"r{number}", *rule) for number, rule in enumerate(rules))),
        bindings=Kept(*(binding(f"b{n}", f"r{n}", "User bob", namespace="n") for n in range(everywhere, len(rules)))),
        cluster_bindings=Kept(*(binding(f"b{n}", f"r{n}", "Group devs") for n in range(everywhere))),
    )
    for action in actions:
        reach = rules if action.namespace == "n" and action.resource else rules[:everywhere]
        read = any(Rule.of(rule).allows(action) for some in reach for rule in some)
        assert rbac.decide(user, action).is_allowed is read
