"""What a user may do. Until roles are evaluated, masters may do everything, others look at health and discovery."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from pinnace.auth.users import MASTERS, User
from pinnace.model import errors

_OPEN_TO_ALL = ("/healthz", "/livez", "/readyz", "/version")
_OPEN_TO_AUTHENTICATED = ("/api", "/apis", "/openapi")


@dataclass(frozen=True, slots=True)
class Action:
    """One thing that somebody wants to do: a verb on a resource, or on a plain path."""

    verb: str
    path: str = ""
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""


class Authorizer(Protocol):
    def authorize(self, user: User, action: Action) -> None:
        """Return, or raise Forbidden."""


class MastersOnly:
    """The rule of a cluster without roles."""

    def authorize(self, user: User, action: Action) -> None:
        if MASTERS in user.groups:
            return
        if not action.resource and action.verb == "get":
            if action.path.startswith(_OPEN_TO_ALL):
                return
            if "system:authenticated" in user.groups and action.path.startswith(_OPEN_TO_AUTHENTICATED):
                return
        raise refusal(user, action)


def refusal(user: User, action: Action) -> errors.Forbidden:
    """Names user, verb and resource, as clients expect it."""
    if not action.resource:
        return errors.Forbidden(f'User "{user.name}" cannot {action.verb} path "{action.path}"')
    resource = f"{action.resource}/{action.subresource}" if action.subresource else action.resource
    where = f' in the namespace "{action.namespace}"' if action.namespace else " at the cluster scope"
    why = f'User "{user.name}" cannot {action.verb} resource "{resource}" in API group "{action.group}"{where}'
    return errors.Forbidden(why, group=action.group, plural=action.resource, name=action.name)
