"""Authentication and authorization webhooks. Answers are cached for a while."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Generic, Literal, Protocol, TypeVar

from pinnace.auth.authentication.authenticators import BadToken, Bearer, token_hash
from pinnace.auth.authentication.oidc import user_value
from pinnace.auth.remote import RemoteError
from pinnace.model import errors
from pinnace.model.authorization import NO_OPINION, Action, Decision
from pinnace.model.objects import Object
from pinnace.model.selectors import field_selector, label_selector
from pinnace.model.users import User, authenticated
from pinnace.process.clock import Clock
from pinnace.process.eager_coroutines import NowOrLater
from pinnace.schema.cel.errors import CelError

if TYPE_CHECKING:
    from pinnace.schema.cel.program import Program

log = logging.getLogger(__name__)

TOKENS_REMEMBERED = timedelta(minutes=2)
ALLOWED_REMEMBERED = timedelta(minutes=5)
REFUSED_REMEMBERED = timedelta(seconds=30)
_MOST = 10_000
_RESOURCE_NAMES = ("namespace", "verb", "group", "version", "resource", "subresource", "name")
_UNKNOWN = Bearer(User(""))

Answered = TypeVar("Answered")


class Reviewer(Protocol):
    async def post(self, document: Object, /) -> Any:
        """Return the answer to a review. Raise RemoteError; other errors reach the caller of the webhook."""


class WebhookTokens:
    """Sends TokenReviews. An answer holds until `remembered` has passed."""

    def __init__(self, remote: Reviewer, clock: Clock, *, remembered: timedelta = TOKENS_REMEMBERED) -> None:
        self._remote = remote
        self._remembered = remembered
        self._memory: _Memory[Bearer] = _Memory(clock)

    def find(self, token: str, audiences: Sequence[str] = ()) -> NowOrLater[Bearer | None]:
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
    """Sends SubjectAccessReviews, unless a condition is false. One that cannot be sent has no opinion, or denies."""

    def __init__(
        self,
        remote: Reviewer,
        clock: Clock,
        *,
        version: Literal["v1", "v1beta1"] = "v1",
        conditions: Sequence[Program] = (),
        denies_on_error: bool = False,
        allowed_remembered: timedelta = ALLOWED_REMEMBERED,
        refused_remembered: timedelta = REFUSED_REMEMBERED,
    ) -> None:
        self._remote = remote
        self._version = version
        self._conditions = tuple(conditions)
        self._on_error: Literal["deny", "no opinion"] = "deny" if denies_on_error else "no opinion"
        self._allowed_remembered = allowed_remembered
        self._refused_remembered = refused_remembered
        self._memory: _Memory[Decision] = _Memory(clock)

    def decide(self, user: User, action: Action) -> NowOrLater[Decision]:
        key = (user.name, user.groups, user.uid, tuple(sorted(user.extra.items())), action)
        if (known := self._memory.get(key)) is not None:
            return known
        spec = _spec(user, action)
        if self._conditions:
            try:
                if not self._matches(spec, user, action):
                    return NO_OPINION
            except CelError as error:
                log.warning("a condition of the authorization webhook fails: %s", error)
                return Decision(self._on_error, "a condition of the authorization webhook fails")
        return self._ask(key, spec)

    def _matches(self, spec: Object, user: User, action: Action) -> bool:
        """Whether all conditions are true. Raise CelError if one fails and none is false."""
        request = review_value(spec, user, action)
        failure: CelError | None = None
        for condition in self._conditions:
            try:
                if condition.evaluate(request=request) is not True:
                    return False
            except CelError as error:
                failure = failure or error
        if failure is not None:
            raise failure
        return True

    async def _ask(self, key: tuple[object, ...], spec: Object) -> Decision:
        if self._version == "v1beta1" and "groups" in spec:
            spec["group"] = spec.pop("groups")
        review = {"apiVersion": f"authorization.k8s.io/{self._version}", "kind": "SubjectAccessReview", "spec": spec}
        try:
            status = _status(await self._remote.post(review))
        except RemoteError as error:
            log.warning("the authorization webhook could not be asked: %s", error)
            return Decision(self._on_error, "the authorization webhook could not be asked")
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
        if not lasts:
            return
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
        extra = {str(key): tuple(str(value) for value in values) for key, values in (user.get("extra") or {}).items()}
        groups = tuple(str(group) for group in user.get("groups") or ())
        audiences = tuple(str(audience) for audience in status.get("audiences") or ())
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
    attributes: Object = {name: value for name in _RESOURCE_NAMES if (value := getattr(action, name))}
    if action.fields and (requirements := list(_field_requirements(action.fields))):
        attributes["fieldSelector"] = {"requirements": requirements}
    if action.labels and (requirements := list(_label_requirements(action.labels))):
        attributes["labelSelector"] = {"requirements": requirements}
    spec["resourceAttributes"] = attributes
    return spec


def review_value(spec: Object, user: User, action: Action) -> Object:
    """Return the value of `request` in conditions: the spec of a review, with every text, also an empty one."""
    value = user_value(user)
    value["user"] = value.pop("username")
    if "nonResourceAttributes" in spec:
        return {**value, "nonResourceAttributes": spec["nonResourceAttributes"]}
    names = {name: getattr(action, name) for name in _RESOURCE_NAMES}
    return {**value, "resourceAttributes": {**names, **spec["resourceAttributes"]}}


def _field_requirements(text: str) -> Iterator[Object]:
    """Return the requirements of a field selector. One that is malformed has none: that only widens the question."""
    with suppress(errors.BadRequest, ValueError):
        for field, operator, value in field_selector(text).requirements:
            yield {"key": field, "operator": "NotIn" if operator == "!=" else "In", "values": [value]}


def _label_requirements(text: str) -> Iterator[Object]:
    operators = {
        "in": "In", "=": "In", "notin": "NotIn", "!=": "NotIn", "exists": "Exists", "!": "DoesNotExist",
    }  # fmt: skip
    with suppress(errors.BadRequest, ValueError):
        for requirement in label_selector(text).requirements:
            if operator := operators.get(requirement.operator):
                values = {"values": list(requirement.values)} if requirement.values else {}
                yield {"key": requirement.key, "operator": operator, **values}
