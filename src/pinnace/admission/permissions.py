"""The permissions of users, for plug-ins and for CEL expressions."""

from __future__ import annotations

from collections.abc import Coroutine

from pinnace.model.authorization import Action, Authorizer, Decision, forbidden_error
from pinnace.model.users import AUTHENTICATED, User, service_account_groups, service_account_name
from pinnace.schema.cel.library.authorizer import CelDecision as Answer
from pinnace.schema.cel.library.authorizer import Question


class Permissions:
    """The permissions of users, as the authorizers decide them."""

    def __init__(self, authorizer: Authorizer) -> None:
        self._authorizer = authorizer

    async def forbidden_error(
        self,
        user: User,
        verb: str,
        *,
        group: str,
        resource: str,
        subresource: str = "",
        namespace: str = "",
        name: str = "",
    ) -> str:
        """Return the denial message; empty when allowed."""
        action = Action(verb, "", group, resource, subresource, namespace, name)
        decided = self._authorizer.decide(user, action)
        decision = decided if isinstance(decided, Decision) else await decided
        return "" if decision.is_allowed else str(forbidden_error(user, action, decision.reason))


class ExpressionAuthorizer:
    """The authorizers, for the CEL expressions of a user: only those that answer at once."""

    def __init__(self, authorizer: Authorizer, user: User) -> None:
        self._authorizer = authorizer
        self._user = user

    def decide(self, question: Question) -> Answer:
        user = self._user
        if question.service_account is not None:
            namespace, name = question.service_account
            groups = (*service_account_groups(namespace), AUTHENTICATED)
            user = User(service_account_name(namespace, name), groups)
        action = Action(
            question.verb,
            question.path,
            question.group,
            question.resource,
            question.subresource,
            question.namespace,
            question.name,
        )
        decision = self._authorizer.decide(user, action)
        if not isinstance(decision, Decision):
            if isinstance(decision, Coroutine):
                decision.close()
            return Answer(False, error="the authorization webhook cannot be asked from an expression")
        return Answer(decision.is_allowed, decision.reason)
