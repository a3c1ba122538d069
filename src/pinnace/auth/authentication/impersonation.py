"""Impersonation: the identity that the headers of a request ask for, and the permissions that it needs.

There are several modes, tried in order: constrained impersonation permits to act as a node, a service account or a user
for some requests only; permission to `impersonate` covers all requests.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from urllib.parse import unquote

from pinnace.auth.authorization.nodes import GROUP as NODES
from pinnace.model import errors, names
from pinnace.model.authorization import Action, Authorizer, Decision, forbidden_error
from pinnace.model.users import (
    ANONYMOUS,
    MASTERS,
    UNAUTHENTICATED,
    User,
    authenticated,
    service_account_groups,
    split_service_account,
)

PREFIX = b"impersonate-"
_EXTRA = b"impersonate-extra-"
_AUTHENTICATION = "authentication.k8s.io"
_NODE = "system:node:"
_NODE_NAME = "authentication.kubernetes.io/node-name"
_NODE_KEYS = "authentication.kubernetes.io/associated-node-keys"
_REMEMBERED = 10_000
_PATH = re.compile(r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+")


@dataclass(frozen=True, slots=True)
class Step:
    """Something that must be allowed; with a `error`, something that never is."""

    action: Action
    err: str = ""


@dataclass(frozen=True, slots=True)
class Way:
    """One mode of impersonation: the resulting user, and the actions that must be allowed, in order."""

    name: str
    user: User
    asker: User
    steps: tuple[Step, ...]

    @property
    def constraint(self) -> str:
        """The verb that allows it, where it is allowed for some requests alone."""
        return f"impersonate:{self.name}" if self.name else ""


class Impersonator:
    """Authorizes impersonation. The mode that was allowed last is tried first."""

    def __init__(self, authorizer: Authorizer, *, constrained: bool = True) -> None:
        """Without `constrained`, as before Kubernetes 1.36, there is one way alone."""
        self._authorizer = authorizer
        self._constrain = constrained
        self._last: dict[str, str] = {}

    async def become(self, asker: User, wanted: User, action: Action) -> Way:
        """Return the permission that allows it. Raise Forbidden, which names the first that is missing."""
        first: errors.Forbidden | None = None
        ways = list(ways_to(wanted, asker, action, constrained=self._constrain))
        last = self._last.get(asker.name)
        for way in sorted(ways, key=lambda candidate: candidate.name != last):
            error = await self._refusal(way)
            if error is None:
                if last != way.name:
                    if len(self._last) >= _REMEMBERED:
                        self._last.clear()
                    self._last[asker.name] = way.name
                return way
            first = first or error
        assert first is not None, "there is always one way"
        try:
            raise first
        finally:
            del first, error  # An exception keeps this frame: a name in the frame would keep both alive.

    async def _refusal(self, way: Way) -> errors.Forbidden | None:
        for step in way.steps:
            if step.err:
                return forbidden_error(way.asker, step.action, step.err)
            decision = self._authorizer.decide(way.asker, step.action)
            if not isinstance(decision, Decision):
                decision = await decision
            if not decision.is_allowed:
                return forbidden_error(way.asker, step.action, decision.reason)
        return None


def wanted_user(headers: Iterable[tuple[bytes, bytes]]) -> User | None:
    """Return the user that the headers (names in lower case) ask for, or None. Raise BadRequest if it is incomplete."""
    name = uid = ""
    groups: list[str] = []
    extra: dict[str, list[str]] = {}
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
    if name:
        return User(name, tuple(groups), uid, {key: tuple(values) for key, values in extra.items()})
    if uid or groups or extra:
        raise errors.BadRequest(f"requested {_describe(groups, uid, extra)} without impersonating a user name")
    return None


def ways_to(wanted: User, asker: User, action: Action, *, constrained: bool) -> Iterator[Way]:
    """Yield the permissions that allow `action` as the `wanted` user, the narrowest first."""
    node, account = _node_of(wanted.name), split_service_account(wanted.name)
    if constrained:
        is_plain = not (wanted.uid or wanted.groups or wanted.extra)
        if node and is_plain and split_service_account(asker.name) and asker.extra.get(_NODE_NAME) == (node,):
            # Whichever node it is on: so that all of a daemon's pods are asked about as one.
            anywhere = User(asker.name, asker.groups, asker.uid, {_NODE_KEYS: tuple(sorted(asker.extra))})
            yield _constrain("associated-node", wanted, anywhere, action, resource="nodes", name="*")
        if node and is_plain:
            yield _constrain("arbitrary-node", wanted, asker, action, resource="nodes", name=node)
        if account is not None and is_plain:
            namespace, name = account
            yield _constrain(
                "serviceaccount", wanted, asker, action, resource="serviceaccounts", name=name, namespace=namespace
            )
        if not node and account is None:
            yield _constrain("user-info", wanted, asker, action, resource="users", name=wanted.name)
    if account is not None:
        first = Action("impersonate", resource="serviceaccounts", namespace=account[0], name=account[1])
    else:
        first = Action("impersonate", resource="users", name=wanted.name)
    yield Way("", _complete(wanted), asker, (Step(first), *_other_steps(wanted, "impersonate", group="")))


def _constrain(
    mode: str, wanted: User, asker: User, action: Action, *, resource: str, name: str, namespace: str = ""
) -> Way:
    verb = f"impersonate:{mode}"
    on = action._replace(verb=f"impersonate-on:{mode}:{action.verb}")
    who = Action(verb, group=_AUTHENTICATION, resource=resource, namespace=namespace, name=name)
    user = _complete(User(wanted.name, (NODES,)) if resource == "nodes" else wanted)
    steps = [Step(on), Step(who)]
    for step in _other_steps(wanted, verb, group=_AUTHENTICATION):
        steps += [*_errs(wanted, step.action), step]
    return Way(mode, user, asker, tuple(steps))


def _other_steps(wanted: User, verb: str, *, group: str) -> Iterator[Step]:
    if wanted.uid:
        yield Step(Action(verb, group=_AUTHENTICATION, resource="uids", name=wanted.uid))
    for group_ in wanted.groups:
        yield Step(Action(verb, group=group, resource="groups", name=group_))
    for key, values in wanted.extra.items():
        for value in values:
            yield Step(Action(verb, group=_AUTHENTICATION, resource="userextras", subresource=key, name=value))


def _errs(wanted: User, action: Action) -> Iterator[Step]:
    """Refuse identities that constrained impersonation excludes. All groups are checked before any is authorized."""
    if action.resource == "groups":
        if "" in wanted.groups:
            yield Step(action._replace(name=""), "impersonating the empty string group is not allowed")
        if MASTERS in wanted.groups:
            yield Step(action._replace(name=MASTERS), f"impersonating the {MASTERS} group is not allowed")
    elif action.resource == "userextras":
        for key, values in wanted.extra.items():
            if err := _check_extra(key, values):
                yield Step(action._replace(subresource="", name=""), err)


def _check_extra(key: str, values: tuple[str, ...]) -> str:
    if not key:
        return "impersonating the empty string key in extra is not allowed"
    domain, _, path = key.partition("/")
    bad = "impersonating an invalid key in extra is not allowed: extra.key: Invalid value: "
    if not domain or not path:
        return f'{bad}{json.dumps(key)}: must be a domain-prefixed path (such as "acme.io/foo")'
    if errs := names.dns_subdomain(domain):
        return f"{bad}{json.dumps(domain)}: {errs[0]}"
    if not _PATH.fullmatch(path):
        return f"{bad}{json.dumps(path)}: Invalid path (regex used for validation is '{_PATH.pattern}')"
    return "impersonating the empty string value in extra is not allowed" if "" in values else ""


def _node_of(name: str) -> str:
    """Return the node name of a node's user; empty for others."""
    node = name.removeprefix(_NODE)
    return node if node != name and node and not names.dns_subdomain(node) else ""


def _complete(user: User) -> User:
    """Return the user with the groups that every user of its kind has."""
    account = split_service_account(user.name)
    if account is not None and not user.groups:
        user = User(user.name, service_account_groups(account[0]), user.uid, user.extra)
    return _with_common_group(user)


def _with_common_group(user: User) -> User:
    if user.name != ANONYMOUS.name:
        return authenticated(user)
    if UNAUTHENTICATED in user.groups:
        return user
    return User(user.name, (*user.groups, UNAUTHENTICATED), user.uid, user.extra)


def _describe(groups: list[str], uid: str, extra: dict[str, list[str]]) -> str:
    """As Go prints a user in a message."""
    texts = {key: _go_list(values) for key, values in sorted(extra.items())}
    extra_text = (
        "{" + ", ".join(f"{json.dumps(key)}:{values}" for key, values in texts.items()) + "}" if extra else "(nil)"
    )
    return (
        f'&user.DefaultInfo{{Name:"", UID:{json.dumps(uid)}, Groups:{_go_list(groups)}, '
        f"Extra:map[string][]string{extra_text}}}"
    )


def _go_list(values: list[str]) -> str:
    return "[]string{" + ", ".join(json.dumps(value) for value in values) + "}" if values else "[]string(nil)"
