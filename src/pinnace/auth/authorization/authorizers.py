"""Authorizes actions: several authorizers in order, one decision."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, Protocol

from pinnace.auth.users import MASTERS, User
from pinnace.model import errors


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
    def decide(self, user: User, action: Action) -> Decision | Awaitable[Decision]:
        """Return the decision; it is awaitable only if it cannot be made at once."""


class Masters:
    """Members of system:masters may do everything, whatever the roles say."""

    def decide(self, user: User, action: Action) -> Decision:
        return ALLOWED if MASTERS in user.groups else NO_OPINION


class Always:
    """Gives every request the same answer: the modes AlwaysAllow and AlwaysDeny."""

    def __init__(self, decision: Decision = NO_OPINION) -> None:
        self._decision = decision

    def decide(self, user: User, action: Action) -> Decision:
        return self._decision


class InOrder:
    """Asks each in turn until one allows or denies. The default is to deny."""

    def __init__(self, authorizers: Sequence[Authorizer]) -> None:
        self._authorizers = tuple(authorizers)

    def decide(self, user: User, action: Action) -> Decision | Awaitable[Decision]:
        reasons: list[str] = []
        for index, authorizer in enumerate(self._authorizers):
            decision = authorizer.decide(user, action)
            if not isinstance(decision, Decision):
                return self._rest(user, action, decision, index, reasons)
            if decision.verdict != "no opinion":
                return decision
            if decision.reason:
                reasons.append(decision.reason)
        return _no_opinion(reasons)

    async def _rest(
        self, user: User, action: Action, pending: Awaitable[Decision], index: int, reasons: list[str]
    ) -> Decision:
        decision = await pending
        for authorizer in self._authorizers[index + 1 :]:
            if decision.verdict != "no opinion":
                return decision
            if decision.reason:
                reasons.append(decision.reason)
            next_one = authorizer.decide(user, action)
            decision = next_one if isinstance(next_one, Decision) else await next_one
        if decision.verdict != "no opinion":
            return decision
        return _no_opinion([*reasons, decision.reason] if decision.reason else reasons)


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


def _no_opinion(reasons: list[str]) -> Decision:
    return Decision("no opinion", "\n".join(reasons)) if reasons else NO_OPINION
