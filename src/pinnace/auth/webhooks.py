"""Authentication and authorization webhooks. Answers are cached for a while."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Sequence
from datetime import datetime, timedelta
from typing import Any, Generic, TypeVar

from pinnace.auth.authentication.tokens import BadToken, Bearer, token_hash
from pinnace.auth.authorization.authorizers import Action, Decision
from pinnace.auth.remote import Remote, RemoteError
from pinnace.auth.users import User, authenticated
from pinnace.model.clock import Clock
from pinnace.model.objects import Object

log = logging.getLogger(__name__)

TOKENS_REMEMBERED = timedelta(minutes=2)
ALLOWED_REMEMBERED = timedelta(minutes=5)
REFUSED_REMEMBERED = timedelta(seconds=30)
_MOST = 10_000
_UNKNOWN = Bearer(User(""))

Answered = TypeVar("Answered")


class WebhookTokens:
    """Sends TokenReviews. An answer holds until `remembered` has passed."""

    def __init__(self, remote: Remote, clock: Clock, *, remembered: timedelta = TOKENS_REMEMBERED) -> None:
        self._remote = remote
        self._remembered = remembered
        self._memory: _Memory[Bearer] = _Memory(clock)

    def find(self, token: str, audiences: Sequence[str] = ()) -> Bearer | Awaitable[Bearer | None] | None:
        key = (token_hash(token), tuple(audiences))
        known = self._memory.get(key)
        if known is None:
            return self._ask(key, token, audiences)
        return None if known is _UNKNOWN else known

    async def _ask(self, key: object, token: str, audiences: Sequence[str]) -> Bearer | None:
        spec: Object = {"token": token} | ({"audiences": list(audiences)} if audiences else {})
        question = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
        try:
            status = _status(await self._remote.post(question))
        except RemoteError as error:
            log.warning("the token webhook could not be asked: %s", error)
            raise BadToken("the token webhook could not be asked") from None
        bearer = _bearer(status) if status.get("authenticated") is True else _UNKNOWN
        self._memory.keep(key, bearer, self._remembered)
        return None if bearer is _UNKNOWN else bearer


class WebhookAuthorizer:
    """Sends SubjectAccessReviews. One that cannot be reached has no opinion."""

    def __init__(
        self,
        remote: Remote,
        clock: Clock,
        *,
        allowed_remembered: timedelta = ALLOWED_REMEMBERED,
        refused_remembered: timedelta = REFUSED_REMEMBERED,
    ) -> None:
        self._remote = remote
        self._allowed_remembered = allowed_remembered
        self._refused_remembered = refused_remembered
        self._memory: _Memory[Decision] = _Memory(clock)

    def decide(self, user: User, action: Action) -> Decision | Awaitable[Decision]:
        key = (user.name, user.groups, user.uid, tuple(sorted(user.extra.items())), action)
        return self._memory.get(key) or self._ask(key, user, action)

    async def _ask(self, key: object, user: User, action: Action) -> Decision:
        question = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": _spec(user, action),
        }
        try:
            status = _status(await self._remote.post(question))
        except RemoteError as error:
            log.warning("the authorization webhook could not be asked: %s", error)
            return Decision("no opinion", "the authorization webhook could not be asked")
        reason = str(status.get("reason") or "")
        if status.get("denied") is True:  # An answer that says both means no.
            decision = Decision("deny", reason)
        elif status.get("allowed") is True:
            decision = Decision("allow", reason)
        else:
            decision = Decision("no opinion", reason)
        lasts = self._allowed_remembered if decision.is_allowed else self._refused_remembered
        self._memory.keep(key, decision, lasts)
        return decision


class _Memory(Generic[Answered]):
    """Answers, until they are too old."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._known: dict[object, tuple[datetime, Answered]] = {}

    def get(self, key: object) -> Answered | None:
        known = self._known.get(key)
        return known[1] if known is not None and known[0] > self._clock.now() else None

    def keep(self, key: object, answer: Answered, lasts: timedelta) -> None:
        if len(self._known) >= _MOST:
            self._known.clear()
        self._known[key] = (self._clock.now() + lasts, answer)


def _status(answer: Any) -> dict[str, Any]:
    status = answer.get("status") if isinstance(answer, dict) else None
    if not isinstance(status, dict):
        raise RemoteError("the answer has no status")
    return status


def _bearer(status: dict[str, Any]) -> Bearer:
    user = status.get("user")
    if not isinstance(user, dict) or not isinstance(user.get("username"), str) or not user["username"]:
        raise BadToken("the token webhook named no user")
    try:
        extra = {str(key): tuple(str(one) for one in values) for key, values in (user.get("extra") or {}).items()}
        groups = tuple(str(group) for group in user.get("groups") or ())
        audiences = tuple(str(one) for one in status.get("audiences") or ())
    except (AttributeError, TypeError):
        raise BadToken("the token webhook answered nonsense") from None
    return Bearer(authenticated(User(user["username"], groups, str(user.get("uid") or ""), extra)), audiences)


def _spec(user: User, action: Action) -> Object:
    spec: Object = {"user": user.name}
    if user.groups:
        spec["groups"] = list(user.groups)
    if user.uid:
        spec["uid"] = user.uid
    if user.extra:
        spec["extra"] = {key: list(values) for key, values in user.extra.items()}
    if not action.resource:
        spec["nonResourceAttributes"] = {"path": action.path, "verb": action.verb}
        return spec
    names = ("namespace", "verb", "group", "version", "resource", "subresource", "name")
    asked = {name: getattr(action, name) for name in names}
    spec["resourceAttributes"] = {name: value for name, value in asked.items() if value}
    return spec
