"""Acting as somebody else: what is asked for, and what it takes."""

from __future__ import annotations

import pytest

from pinnace.auth.authorizers import Action
from pinnace.auth.impersonation import impersonation_of
from pinnace.auth.users import User
from pinnace.model import errors

AS_BOB = (b"impersonate-user", b"bob")


def test_nothing_is_asked_without_headers() -> None:
    assert impersonation_of([(b"accept", b"*/*"), (b"impersonate-user", b"")]) is None


def test_a_user_becomes_a_member_of_the_authenticated() -> None:
    wanted = impersonation_of([AS_BOB])
    assert wanted is not None
    assert wanted.user == User("bob", ("system:authenticated",))
    assert wanted.actions == (Action("impersonate", resource="users", name="bob"),)


def test_a_service_account_gets_its_groups() -> None:
    wanted = impersonation_of([(b"impersonate-user", b"system:serviceaccount:shop:robot")])
    assert wanted is not None
    assert wanted.user.groups == ("system:serviceaccounts", "system:serviceaccounts:shop", "system:authenticated")
    assert wanted.actions == (Action("impersonate", resource="serviceaccounts", namespace="shop", name="robot"),)


def test_the_anonymous_stay_unauthenticated() -> None:
    wanted = impersonation_of([(b"impersonate-user", b"system:anonymous")])
    assert wanted is not None and wanted.user.groups == ("system:unauthenticated",)


def test_everything_that_is_asked_for_must_be_allowed() -> None:
    wanted = impersonation_of(
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
    extra = {"scopes": ("a",), "acme.com/project": ("b",)}
    assert wanted.user == User("bob", ("devs", "ops", "system:authenticated"), "7", extra)
    asked = [(one.group, one.resource, one.subresource, one.name) for one in wanted.actions]
    assert asked == [
        ("", "users", "", "bob"),
        ("", "groups", "", "devs"),
        ("", "groups", "", "ops"),
        ("authentication.k8s.io", "userextras", "scopes", "a"),
        ("authentication.k8s.io", "userextras", "acme.com/project", "b"),
        ("authentication.k8s.io", "uids", "", "7"),
    ]
    assert {one.verb for one in wanted.actions} == {"impersonate"}


@pytest.mark.parametrize("header", [b"impersonate-group", b"impersonate-uid", b"impersonate-extra-scopes"])
def test_a_group_without_a_user_is_half_a_wish(header: bytes) -> None:
    with pytest.raises(errors.BadRequest, match="without impersonating a user name"):
        impersonation_of([(header, b"system:masters")])
