"""Impersonation: the headers, the permissions that allow it, and their order."""

from __future__ import annotations

import pytest

from pinnace.auth.authentication.impersonation import Impersonator, wanted_user, ways_to
from pinnace.model import errors
from pinnace.model.authorization import ALLOWED, NO_OPINION, Action, Decision
from pinnace.model.users import User

AS_BOB = (b"impersonate-user", b"bob")
LIST_PODS = Action("list", resource="pods", namespace="shop", version="v1")
ASKER = User("alice", ("system:authenticated",))
ROBOT = "system:serviceaccount:shop:robot"
NODE = "system:node:one"


def legacy_user(wanted: User) -> User:
    (way,) = ways_to(wanted, ASKER, LIST_PODS, constrained=False)
    return way.user


def test_nothing_is_asked_without_headers() -> None:
    assert wanted_user([(b"accept", b"*/*"), (b"impersonate-user", b"")]) is None


def test_a_user_becomes_a_member_of_the_authenticated() -> None:
    wanted = wanted_user([AS_BOB])
    assert wanted is not None
    (way,) = ways_to(wanted, ASKER, LIST_PODS, constrained=False)
    assert way.user == User("bob", ("system:authenticated",))
    assert [step.action for step in way.steps] == [Action("impersonate", resource="users", name="bob")]
    assert way.constraint == ""


def test_a_service_account_gets_its_groups() -> None:
    (way,) = ways_to(User(ROBOT), ASKER, LIST_PODS, constrained=False)
    assert way.user.groups == ("system:serviceaccounts", "system:serviceaccounts:shop", "system:authenticated")
    expected = Action("impersonate", resource="serviceaccounts", namespace="shop", name="robot")
    assert [step.action for step in way.steps] == [expected]
    assert legacy_user(User(ROBOT, ("devs",))).groups == ("devs", "system:authenticated")


def test_the_anonymous_stay_unauthenticated() -> None:
    assert legacy_user(User("system:anonymous")).groups == ("system:unauthenticated",)


def test_everything_that_is_asked_for_must_be_allowed() -> None:
    wanted = wanted_user(
        [
            AS_BOB,
            (b"impersonate-group", b"devs"),
            (b"impersonate-group", b"ops"),
            (b"impersonate-uid", b"7"),
            (b"impersonate-extra-scopes", b"a"),
            (b"impersonate-extra-acme.com%2fproject", b"b"),
        ]
    )
    assert wanted is not None
    (way,) = ways_to(wanted, ASKER, LIST_PODS, constrained=False)
    extra = {"scopes": ("a",), "acme.com/project": ("b",)}
    assert way.user == User("bob", ("devs", "ops", "system:authenticated"), "7", extra)
    checked = [
        (step.action.group, step.action.resource, step.action.subresource, step.action.name) for step in way.steps
    ]
    assert checked == [
        ("", "users", "", "bob"),
        ("authentication.k8s.io", "uids", "", "7"),
        ("", "groups", "", "devs"),
        ("", "groups", "", "ops"),
        ("authentication.k8s.io", "userextras", "scopes", "a"),
        ("authentication.k8s.io", "userextras", "acme.com/project", "b"),
    ]
    assert {step.action.verb for step in way.steps} == {"impersonate"}


@pytest.mark.parametrize("header", [b"impersonate-group", b"impersonate-uid", b"impersonate-extra-scopes"])
def test_a_group_without_a_user_is_half_a_wish(header: bytes) -> None:
    with pytest.raises(errors.BadRequest, match="without impersonating a user name"):
        wanted_user([(header, b"system:masters")])


# For some requests alone.


class Allowing:
    """Allows what is listed: verb, resource (with its group and subresource) and name."""

    def __init__(self, *allowed: str) -> None:
        self.allowed = set(allowed)
        self.requests: list[str] = []

    def decide(self, user: User, action: Action) -> Decision:
        resource = "/".join(part for part in (action.group, action.resource, action.subresource) if part)
        what = f"{action.verb} {resource or action.path} {action.name}".strip()
        self.requests.append(what)
        return ALLOWED if what in self.allowed else NO_OPINION


AUTHN = "authentication.k8s.io"
ON_PODS = "impersonate-on:user-info:list pods"
BE_BOB = f"impersonate:user-info {AUTHN}/users bob"


async def refused(impersonator: Impersonator, wanted: User, asker: User = ASKER) -> str:
    with pytest.raises(errors.Forbidden) as caught:
        await impersonator.become(asker, wanted, LIST_PODS)
    return caught.value.message


async def test_constrained_impersonation_allows_nothing_but_its_verb() -> None:
    impersonator = Impersonator(Allowing(ON_PODS, BE_BOB))
    way = await impersonator.become(ASKER, User("bob"), LIST_PODS)
    assert (way.user, way.constraint) == (User("bob", ("system:authenticated",)), "impersonate:user-info")
    with pytest.raises(errors.Forbidden, match="cannot impersonate-on:user-info:delete"):
        await impersonator.become(ASKER, User("bob"), LIST_PODS._replace(verb="delete"))


@pytest.mark.parametrize("allowed", [ON_PODS, BE_BOB])
async def test_half_of_it_is_not_enough(allowed: str) -> None:
    assert "cannot impersonate" in await refused(Impersonator(Allowing(allowed)), User("bob"))


async def test_before_it_was_known_it_opens_nothing() -> None:
    impersonator = Impersonator(Allowing(ON_PODS, BE_BOB), constrained=False)
    assert 'cannot impersonate resource "users"' in await refused(impersonator, User("bob"))


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (User("bob"), "impersonate-on:user-info:list"),
        (User(NODE), "impersonate-on:arbitrary-node:list"),
        (User(ROBOT), "impersonate-on:serviceaccount:list"),
        (User(NODE, ("x",)), 'impersonate resource "users"'),
        (User(ROBOT, ("x",)), 'impersonate resource "serviceaccounts"'),
        (User("system:node:No Name"), "impersonate-on:user-info:list"),
    ],
    ids=["user", "node", "account", "node with more", "account with more", "no node"],
)
async def test_a_refusal_tells_of_the_first_way(wanted: User, message: str) -> None:
    assert f'User "alice" cannot {message}' in await refused(Impersonator(Allowing()), wanted)


async def test_the_verb_impersonate_still_allows_everything() -> None:
    allowing = Allowing("impersonate users bob", "impersonate groups system:masters")
    impersonator = Impersonator(allowing)
    way = await impersonator.become(ASKER, User("bob", ("system:masters",)), LIST_PODS)
    assert (way.constraint, way.user.groups) == ("", ("system:masters", "system:authenticated"))
    allowing.requests.clear()
    await impersonator.become(ASKER, User("bob"), LIST_PODS)
    assert allowing.requests == ["impersonate users bob"]  # The way that went last is tried first.


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        (User("bob", ("system:masters",)), "impersonating the system:masters group is not allowed"),
        (User("bob", ("devs", "")), "impersonating the empty string group is not allowed"),
        (User("bob", extra={"scopes": ("a",)}), "must be a domain-prefixed path"),
        (User("bob", extra={"Acme.com/x": ("a",)}), "a lowercase RFC 1123 subdomain"),
        (User("bob", extra={"acme.com/a b": ("a",)}), "Invalid path"),
        (User("bob", extra={"acme.com/x": ("",)}), "impersonating the empty string value in extra is not allowed"),
    ],
)
async def test_constrained_impersonation_never_gives_the_group_of_masters(wanted: User, why: str) -> None:
    class Yes(Allowing):
        def decide(self, user: User, action: Action) -> Decision:
            return NO_OPINION if action.verb == "impersonate" else ALLOWED

    assert why in await refused(Impersonator(Yes()), wanted)


async def test_a_node_has_its_group_and_no_other() -> None:
    on, be = "impersonate-on:arbitrary-node:list pods", f"impersonate:arbitrary-node {AUTHN}/nodes one"
    way = await Impersonator(Allowing(on, be)).become(ASKER, User(NODE), LIST_PODS)
    assert way.user == User(NODE, ("system:nodes", "system:authenticated"))


async def test_a_pod_may_be_the_node_that_it_runs_on() -> None:
    on, be = "impersonate-on:associated-node:list pods", f"impersonate:associated-node {AUTHN}/nodes *"
    impersonator = Impersonator(Allowing(on, be))
    agent = User("system:serviceaccount:kube-system:agent", extra={"authentication.kubernetes.io/node-name": ("one",)})
    way = await impersonator.become(agent, User(NODE), LIST_PODS)
    assert (way.constraint, way.user.name) == ("impersonate:associated-node", NODE)
    assert "arbitrary-node" in await refused(impersonator, User("system:node:two"), agent)
    assert "arbitrary-node" in await refused(impersonator, User(NODE), User(agent.name))
    assert "arbitrary-node" in await refused(impersonator, User(NODE), User("alice", extra=agent.extra))
