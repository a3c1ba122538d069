"""The user of a request: name, groups, uid and extra values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

MASTERS = "system:masters"
AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
SERVICE_ACCOUNTS = "system:serviceaccounts"
_SERVICE_ACCOUNT = "system:serviceaccount:"


@dataclass(frozen=True, slots=True)
class User:
    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


ANONYMOUS = User("system:anonymous", (UNAUTHENTICATED,))


def authenticated(user: User) -> User:
    """Return the same user in the group system:authenticated."""
    if AUTHENTICATED in user.groups or UNAUTHENTICATED in user.groups:
        return user
    return User(user.name, (*user.groups, AUTHENTICATED), user.uid, user.extra)


def service_account_name(namespace: str, name: str) -> str:
    """Return the user name of a service account."""
    return f"{_SERVICE_ACCOUNT}{namespace}:{name}"


def service_account_groups(namespace: str) -> tuple[str, ...]:
    return (SERVICE_ACCOUNTS, f"{SERVICE_ACCOUNTS}:{namespace}")


def split_service_account(user_name: str) -> tuple[str, str] | None:
    """Namespace and name, if the user is a service account."""
    if not user_name.startswith(_SERVICE_ACCOUNT):
        return None
    namespace, _, name = user_name[len(_SERVICE_ACCOUNT) :].partition(":")
    return (namespace, name) if namespace and name and ":" not in name else None


def is_cluster_part(user_name: str) -> bool:
    """Return whether a user is a part of the cluster itself. Operators and pods act as other service accounts."""
    account = split_service_account(user_name)
    return user_name.startswith("system:") and (account is None or account[0] == "kube-system")
