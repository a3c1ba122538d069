"""Questions that are asked by creating an object and answered in its status: who am I, may I, is this token good."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from pinnace.auth.authenticators import Authenticator
from pinnace.auth.authorizers import Action, Authorizer
from pinnace.auth.users import User
from pinnace.model import causes, errors
from pinnace.model.clock import Clock, to_rfc3339
from pinnace.model.objects import Object
from pinnace.server.calls import Call

Review = Callable[[Call, Object], Awaitable[Object]]


class Reviews:
    """Answers the kinds that are never stored."""

    def __init__(self, *, authorizer: Authorizer, tokens: Authenticator, clock: Clock) -> None:
        self._authorizer = authorizer
        self._tokens = tokens
        self._clock = clock
        self._by_kind: dict[str, Review] = {
            "SelfSubjectReview": self._who_am_i,
            "SelfSubjectAccessReview": self._may_i,
            "SubjectAccessReview": self._may_they,
            "LocalSubjectAccessReview": self._may_they,
            "SelfSubjectRulesReview": self._what_may_i,
            "TokenReview": self._whose_token,
        }

    def of(self, call: Call) -> Review | None:
        if call.subresource or call.resource.group not in ("authentication.k8s.io", "authorization.k8s.io"):
            return None
        return self._by_kind.get(call.resource.kind.name)

    async def _who_am_i(self, call: Call, asked: Object) -> Object:
        return self._answered(call, asked, {"userInfo": user_info(call.user)})

    async def _may_i(self, call: Call, asked: Object) -> Object:
        return self._answered(
            call, asked, self._decision(call.user, asked.get("spec") or {}, "SelfSubjectAccessReview")
        )

    async def _may_they(self, call: Call, asked: Object) -> Object:
        spec = asked.get("spec") or {}
        if not spec.get("user") and not spec.get("groups"):
            fault = causes.invalid("spec.user", spec.get("user", ""), "at least one of user or group must be specified")
            raise errors.Invalid([fault], group=call.resource.group, kind=call.resource.kind.name, name="")
        extra = {name: tuple(values) for name, values in (spec.get("extra") or {}).items()}
        user = User(spec.get("user", ""), tuple(spec.get("groups") or ()), spec.get("uid", ""), extra)
        if call.resource.namespaced:
            about = (spec.get("resourceAttributes") or {}).get("namespace")
            if about != call.namespace:
                fault = causes.invalid(
                    "spec.resourceAttributes.namespace", about or "", "must match metadata.namespace"
                )
                raise errors.Invalid([fault], group=call.resource.group, kind=call.resource.kind.name, name="")
        return self._answered(call, asked, self._decision(user, spec, call.resource.kind.name))

    async def _what_may_i(self, call: Call, asked: Object) -> Object:
        rules = [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}]
        paths = [{"verbs": ["*"], "nonResourceURLs": ["*"]}]
        may_all = self._decision(call.user, {"resourceAttributes": {"verb": "*", "resource": "*", "group": "*"}}, "")
        status = {"resourceRules": rules, "nonResourceRules": paths, "incomplete": False}
        if not may_all["allowed"]:
            status = {"resourceRules": [], "nonResourceRules": [], "incomplete": False}
        return self._answered(call, asked, status)

    async def _whose_token(self, call: Call, asked: Object) -> Object:
        token = (asked.get("spec") or {}).get("token", "")
        if not token:
            raise errors.BadRequest("token is required for TokenReview in authentication")
        try:
            user = self._tokens.authenticate(_OnlyToken(token))
        except errors.Unauthorized:
            user = None
        if user is None:
            return self._answered(call, asked, {"user": {}, "error": "invalid bearer token"})
        return self._answered(call, asked, {"authenticated": True, "user": user_info(user)})

    def _decision(self, user: User, spec: Object, kind: str) -> Object:
        about, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
        if (about is None) == (path is None):
            why = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
            fault = causes.invalid("spec.resourceAttributes", about, why)
            raise errors.Invalid([fault], group="authorization.k8s.io", kind=kind, name="")
        try:
            self._authorizer.authorize(user, _action(about or {}, path or {}))
        except errors.Forbidden:
            return {"allowed": False}
        return {"allowed": True}

    def _answered(self, call: Call, asked: Object, status: dict[str, Any]) -> Object:
        kind = call.resource.kind
        metadata = dict(asked.get("metadata") or {})
        if kind.name == "SelfSubjectReview":
            metadata["creationTimestamp"] = to_rfc3339(self._clock.now())
        answer: Object = {"kind": kind.name, "apiVersion": kind.api_version, "metadata": metadata}
        if kind.name != "SelfSubjectReview":
            answer["spec"] = asked.get("spec") or {}
        answer["status"] = status
        return answer


def user_info(user: User) -> Object:
    shown: Object = {"username": user.name, "groups": list(user.groups)}
    if user.uid:
        shown["uid"] = user.uid
    if user.extra:
        shown["extra"] = {name: list(values) for name, values in user.extra.items()}
    return shown


class _OnlyToken:
    """A token that somebody asks about, not one that a request came with."""

    certificate = None

    def __init__(self, token: str) -> None:
        self.token: str | None = token


def _action(about: Object, path: Object) -> Action:
    return Action(
        about.get("verb") or path.get("verb") or "",
        path=path.get("path", ""),
        group=about.get("group", ""),
        resource=about.get("resource", ""),
        subresource=about.get("subresource", ""),
        namespace=about.get("namespace", ""),
        name=about.get("name", ""),
    )
