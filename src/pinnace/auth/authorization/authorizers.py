"""Authorizes actions: several authorizers in order, one decision."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

from pinnace.model.authorization import (
    ALLOWED,
    NO_OPINION,
    Action,
    Authorizer,
    Decision,
)
from pinnace.model.users import MASTERS, User
from pinnace.process.eager_coroutines import NowOrLater


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
        self.authorizers = tuple(authorizers)
        self._names: tuple[str, ...] = ()

    def replace(self, authorizers: Sequence[Authorizer], names: Sequence[str] = ()) -> None:
        """Ask these from now on. Reasons begin with the name of their authorizer, if there are names."""
        self.authorizers, self._names = tuple(authorizers), tuple(names)

    def decide(self, user: User, action: Action) -> NowOrLater[Decision]:
        reasons: list[str] = []
        authorizers, names = self.authorizers, self._names
        for index, authorizer in enumerate(authorizers):
            decision = authorizer.decide(user, action)
            if not isinstance(decision, Decision):
                return self._rest(user, action, decision, authorizers[index + 1 :], names[index:], reasons)
            if decision.verdict != "no opinion":
                return decision
            if decision.reason:
                reasons.append(_named(decision.reason, names[index:]))
        return _no_opinion(reasons)

    async def _rest(
        self,
        user: User,
        action: Action,
        pending: Awaitable[Decision],
        others: Sequence[Authorizer],
        names: Sequence[str],
        reasons: list[str],
    ) -> Decision:
        """Go on after an authorizer that is waited for; `names` are its own and those of the others."""
        decision = await pending
        for index, authorizer in enumerate(others):
            if decision.verdict != "no opinion":
                return decision
            if decision.reason:
                reasons.append(_named(decision.reason, names[index:]))
            next_one = authorizer.decide(user, action)
            decision = next_one if isinstance(next_one, Decision) else await next_one
        if decision.verdict != "no opinion":
            return decision
        if decision.reason:
            reasons.append(_named(decision.reason, names[len(others) :]))
        return _no_opinion(reasons)


def _named(reason: str, names: Sequence[str]) -> str:
    """Return a reason after the first of these names, if there is one."""
    return f"{names[0]}: {reason}" if names else reason


def _no_opinion(reasons: list[str]) -> Decision:
    return Decision("no opinion", "\n".join(reasons)) if reasons else NO_OPINION
