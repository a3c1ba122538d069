"""Acting as somebody else: what the headers of a request ask for, and what its sender must be allowed for that."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import unquote

from pinnace.auth.authorizers import Action
from pinnace.auth.users import (
    ANONYMOUS,
    UNAUTHENTICATED,
    User,
    authenticated,
    service_account_groups,
    split_service_account,
)
from pinnace.model import errors

PREFIX = b"impersonate-"
_EXTRA = b"impersonate-extra-"
_AUTHENTICATION = "authentication.k8s.io"


@dataclass(frozen=True, slots=True)
class Impersonation:
    """Whom somebody wants to be, and all that he must be allowed to do for it, in the order of checking."""

    user: User
    actions: tuple[Action, ...]


def impersonation_of(headers: Iterable[tuple[bytes, bytes]]) -> Impersonation | None:
    """What the headers, with names in lower case, ask for; None if nothing. Raises BadRequest for half a wish."""
    name = uid = ""
    groups: list[str] = []
    extra: dict[str, list[str]] = {}
    asked = False
    for header, raw in headers:
        if not header.startswith(PREFIX):
            continue
        value = raw.decode("utf-8", "replace").strip()
        if header == b"impersonate-user":
            name = name or value
        elif header == b"impersonate-group":
            groups.append(value)
        elif header == b"impersonate-uid":
            uid = uid or value
        elif header.startswith(_EXTRA):
            extra.setdefault(unquote(header[len(_EXTRA) :].decode("latin-1").lower()), []).append(value)
        else:
            continue
        asked = asked or bool(value)
    if not asked:
        return None
    if not name:
        raise errors.BadRequest(f"requested {_told(groups, uid, extra)} without impersonating a user name")
    account = split_service_account(name)
    if account is not None:
        actions = [Action("impersonate", resource="serviceaccounts", namespace=account[0], name=account[1])]
    else:
        actions = [Action("impersonate", resource="users", name=name)]
    actions += [Action("impersonate", resource="groups", name=group) for group in groups]
    actions += [
        Action("impersonate", group=_AUTHENTICATION, resource="userextras", subresource=key, name=value)
        for key, values in extra.items()
        for value in values
    ]
    if uid:
        actions.append(Action("impersonate", group=_AUTHENTICATION, resource="uids", name=uid))
    if account is not None and not groups:
        groups = list(service_account_groups(account[0]))
    user = User(name, tuple(groups), uid, {key: tuple(values) for key, values in extra.items()})
    return Impersonation(_with_common_group(user), tuple(actions))


def _with_common_group(user: User) -> User:
    if user.name != ANONYMOUS.name:
        return authenticated(user)
    if UNAUTHENTICATED in user.groups:
        return user
    return User(user.name, (*user.groups, UNAUTHENTICATED), user.uid, user.extra)


def _told(groups: list[str], uid: str, extra: dict[str, list[str]]) -> str:
    """As Go prints a user in a message."""
    texts = {key: _go_list(values) for key, values in sorted(extra.items())}
    shown = "{" + ", ".join(f"{json.dumps(key)}:{values}" for key, values in texts.items()) + "}" if extra else "(nil)"
    return (
        f'&user.DefaultInfo{{Name:"", UID:{json.dumps(uid)}, Groups:{_go_list(groups)}, '
        f"Extra:map[string][]string{shown}}}"
    )


def _go_list(values: list[str]) -> str:
    return "[]string{" + ", ".join(json.dumps(value) for value in values) + "}" if values else "[]string(nil)"
