"""The question of authorization: may this user do this? Its answer, and the error of a denial."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from pinnace.model import errors
from pinnace.model.users import User
from pinnace.process.eager_coroutines import NowOrLater


class Action(NamedTuple):
    """One action to authorize: a verb on a resource or on a non-resource path.

    A tuple, since one is made for every request: a frozen dataclass costs four times as much to make.
    """

    verb: str
    path: str = ""
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    version: str = ""
    fields: str = ""
    """The field selector of a list, watch or deletion of many."""
    labels: str = ""
    """The label selector of the same."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The answer of an authorizer. Without an opinion the next one decides; a denial is final."""

    verdict: Literal["allow", "deny", "no opinion"]
    reason: str = ""

    @property
    def is_allowed(self) -> bool:
        return self.verdict == "allow"


ALLOWED = Decision("allow")
NO_OPINION = Decision("no opinion")


class Authorizer(Protocol):
    def decide(self, user: User, action: Action) -> NowOrLater[Decision]:
        """Return the decision; it is awaitable only if it cannot be made at once."""


class ForbiddenByAuthorizer(errors.Forbidden):
    """The authorizer does not allow the request; admission would have been asked after it."""


def forbidden_error(user: User, action: Action, reason: str = "") -> errors.Forbidden:
    """Names user, verb and resource, as clients expect it."""
    because = f": {reason}" if reason else ""
    if not action.resource:
        return ForbiddenByAuthorizer(f'User "{user.name}" cannot {action.verb} path "{action.path}"{because}')
    resource = f"{action.resource}/{action.subresource}" if action.subresource else action.resource
    where = f' in the namespace "{action.namespace}"' if action.namespace else " at the cluster scope"
    why = f'User "{user.name}" cannot {action.verb} resource "{resource}" in API group "{action.group}"{where}{because}'
    return ForbiddenByAuthorizer(why, group=action.group, plural=action.resource, name=action.name)
