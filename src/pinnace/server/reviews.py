"""Reviews: objects that are created to ask a question and answered in their status, never stored."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Protocol

import orjson

from pinnace.auth.authentication.service_accounts import TokenIssuer, default_lifetime
from pinnace.auth.authentication.tokens import BadToken, Bearer, Tokens
from pinnace.auth.authorization.authorizers import Action, Authorizer, Decision
from pinnace.auth.authorization.rules import Rule
from pinnace.auth.users import User
from pinnace.kinds.golang import empty_fields
from pinnace.model import errors, field_errors
from pinnace.model.clock import Clock, to_rfc3339
from pinnace.model.field_errors import FieldError
from pinnace.model.objects import Kind, Object
from pinnace.model.patches import managed_fields
from pinnace.model.patches.field_ownership import Ownership
from pinnace.schema.shape import Schema
from pinnace.server.cache.representations import partial_metadata
from pinnace.server.long_work import decode_body, is_long_body, run_beside
from pinnace.server.outcome import Outcome, Representations, check_view
from pinnace.server.request.call import Call
from pinnace.server.request.negotiation import WITHOUT_ROWS, negotiate
from pinnace.server.review_selectors import UsableSelectors, usable_selectors, validate_selector
from pinnace.server.write.body_decoder import BodyDecoder, check_options, kind_of, match_namespace, metadata_of
from pinnace.server.write.names import manager_of
from pinnace.server.write.pipeline import Pipeline

_WITHOUT_METADATA = frozenset(("SelfSubjectReview", "SelfSubjectRulesReview"))
"""Reviews whose metadata is left out of the answer."""

Review = Callable[[Call, Object], Awaitable[Object]]


class RuleSource(Protocol):
    """The rules that grant a user access in a namespace."""

    def rules_for(self, user: User, namespace: str) -> list[Rule]: ...
    def unknown_for(self, user: User) -> str:
        """Return why the rules may be incomplete; empty if they are complete."""


class ReviewSecurity(Protocol):
    """The parts of the cluster's security that reviews ask."""

    @property
    def authorizer(self) -> Authorizer: ...
    @property
    def rules(self) -> RuleSource: ...
    @property
    def tokens(self) -> Tokens: ...
    @property
    def issuer(self) -> TokenIssuer: ...


class Reviews:
    """Answers reviews."""

    def __init__(
        self,
        *,
        security: ReviewSecurity,
        pipeline: Pipeline,
        decoder: BodyDecoder,
        representations: Representations,
        schema_of: Callable[[Kind], Schema | None],
        clock: Clock,
    ) -> None:
        self._authorizer = security.authorizer
        self._rules = security.rules
        self._tokens = security.tokens
        self._issuer = security.issuer
        self._pipeline = pipeline
        self._decoder = decoder
        self._representations = representations
        self._schema_of = schema_of
        self._clock = clock
        self._ownerships: dict[Kind, Ownership] = {}
        self._by_kind: dict[str, Review] = {
            "SelfSubjectReview": self._who_am_i,
            "SelfSubjectAccessReview": self._may_i,
            "SubjectAccessReview": self._may_they,
            "LocalSubjectAccessReview": self._may_they,
            "SelfSubjectRulesReview": self._what_may_i,
            "TokenReview": self._whose_token,
        }

    async def run(self, call: Call, review: Review) -> Outcome:
        """Decode, admit, check and answer a review."""
        check_options(call)
        self._representations.accepted(call)
        accepted = negotiate(call.request.head.accept, views=WITHOUT_ROWS)
        check_view(call, accepted, "")
        is_long = is_long_body(call.request.body)
        asked = await run_beside(self._read, call) if is_long else self._read(call)
        check = partial(self._check, call)
        # A token is handed out: that is a write, whether or not anything is stored.
        if call.subresource or self._pipeline.asks_about(call.resource):
            await self._pipeline.admit(call, asked, check=partial(run_beside, check) if is_long else check)
        elif is_long:
            await run_beside(check, asked)
        else:
            check(asked)
        answer = await review(call, asked)
        if accepted.view:
            answer = partial_metadata(answer, accepted.version)
        return Outcome(201, orjson.dumps(answer), accepted=accepted)

    def find(self, call: Call) -> Review | None:
        """Return the review that a call creates; None if it creates an object."""
        if call.subresource == "token" and call.resource.plural == "serviceaccounts" and not call.resource.group:
            return self._give_token
        if call.subresource or call.resource.group not in ("authentication.k8s.io", "authorization.k8s.io"):
            return None
        return self._by_kind.get(call.resource.kind.name)

    def _read(self, call: Call) -> Object:
        asked = self._decoder.message(call)
        if call.resource.namespaced:
            match_namespace(call, metadata_of(asked))
        if call.subresource:
            default_lifetime(asked)
        self._own(call, asked)
        return asked

    def _own(self, call: Call, asked: Object) -> None:
        """Set managedFields. Kubernetes does so, though no other manager can ever take a field over."""
        kind = kind_of(call)
        if kind.name in _WITHOUT_METADATA:
            return
        ownership = self._ownerships.get(kind)
        if ownership is None and (schema := self._schema_of(kind)) is not None:
            blank = empty_fields.empty(schema) or None
            ownership = self._ownerships[kind] = Ownership(
                schema=schema, api_version=kind.api_version, subresource=call.subresource, blank=blank
            )
        if ownership is not None:
            asked["metadata"] = asked.get("metadata") or {}
            managed_fields.after_update(
                None, asked, ownership, manager=manager_of(call), now=to_rfc3339(self._clock.now())
            )

    def _check(self, call: Call, asked: Object) -> None:
        """Default a review, and raise if it cannot be answered."""
        if call.subresource:
            self._issuer.complete(call.namespace, call.name, asked)
            return
        check = _CHECKS.get(call.resource.kind.name)
        if check is not None:
            check(call, asked)

    async def _give_token(self, call: Call, asked: Object) -> Object:
        return self._issuer.issue(call.namespace, call.name, asked)

    async def _who_am_i(self, call: Call, asked: Object) -> Object:
        return self._answer(call, asked, {"userInfo": user_info(call.user)})

    async def _may_i(self, call: Call, asked: Object) -> Object:
        return self._answer(call, asked, await self._decision(call, call.user, asked.get("spec") or {}))

    async def _may_they(self, call: Call, asked: Object) -> Object:
        spec = asked.get("spec") or {}
        extra = {name: tuple(values) for name, values in (spec.get("extra") or {}).items()}
        user = User(spec.get("user", ""), tuple(spec.get("groups") or ()), spec.get("uid", ""), extra)
        return self._answer(call, asked, await self._decision(call, user, spec))

    async def _what_may_i(self, call: Call, asked: Object) -> Object:
        rules = self._rules.rules_for(call.user, asked["spec"]["namespace"])
        shown = [rule.on_the_wire for rule in rules]
        unknown = self._rules.unknown_for(call.user)
        status: Object = {
            "resourceRules": [rule for rule in shown if "nonResourceURLs" not in rule],
            "nonResourceRules": [rule for rule in shown if "nonResourceURLs" in rule],
            "incomplete": bool(unknown),
        }
        if unknown:
            status["evaluationError"] = unknown
        return self._answer(call, asked | {"spec": {}}, status)

    async def _whose_token(self, call: Call, asked: Object) -> Object:
        spec = asked.get("spec") or {}
        token, audiences = spec.get("token", ""), tuple(spec.get("audiences") or ())
        why = "invalid bearer token"
        try:
            found = self._tokens.find(token, audiences)
            bearer = found if found is None or isinstance(found, Bearer) else await found
        except BadToken as error:
            bearer, why = None, str(error)
        if bearer is None:
            return self._answer(call, asked, {"user": {}, "error": why})
        status = {"authenticated": True, "user": user_info(bearer.user), "audiences": list(bearer.audiences)}
        return self._answer(call, asked, status)

    async def _decision(self, call: Call, user: User, spec: Object) -> Object:
        about, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
        selected = UsableSelectors("", ())
        if about is not None:
            selected = await decode_body(call.request.body, usable_selectors, about)
        found = self._authorizer.decide(user, _action(about, path, selected.fields))
        decision = found if isinstance(found, Decision) else await found
        status: Object = {"allowed": decision.is_allowed}
        if decision.verdict == "deny":
            status["denied"] = True
        if decision.reason:
            status["reason"] = decision.reason
        if selected.ignored:
            status["evaluationError"] = "; ".join(selected.ignored)
        return status

    def _answer(self, call: Call, asked: Object, status: dict[str, Any]) -> Object:
        kind = call.resource.kind
        metadata = dict(asked.get("metadata") or {}) if kind.name not in _WITHOUT_METADATA else {}
        if not call.resource.namespaced:
            metadata.pop("namespace", None)
        if kind.name == "SelfSubjectReview":
            metadata["creationTimestamp"] = to_rfc3339(self._clock.now())
        answer: Object = {"kind": kind.name, "apiVersion": kind.api_version, "metadata": metadata}
        if kind.name != "SelfSubjectReview":
            answer["spec"] = asked.get("spec") or {}
        answer["status"] = status
        return answer


def _check_own_access(call: Call, asked: Object) -> None:
    spec = asked.get("spec") or {}
    _refuse(
        [
            *_validate_attribute(spec),
            *validate_selector(spec.get("resourceAttributes") or {}),
            *_validate_metadata(asked),
        ]
    )


def _check_access(call: Call, asked: Object) -> None:
    spec = asked.get("spec") or {}
    errs = _validate_attribute(spec)
    if not spec.get("user") and not spec.get("groups"):
        why = "at least one of user or group must be specified"
        errs.append(field_errors.invalid("spec.user", spec.get("user", ""), why))
    errs += validate_selector(spec.get("resourceAttributes") or {})
    if call.resource.namespaced:
        errs += _validate_metadata(asked, "must be empty except for namespace")
        errs += _validate_locality(spec, call.namespace)
    else:
        errs += _validate_metadata(asked)
    _refuse(errs)


def _check_rules(call: Call, asked: Object) -> None:
    if not (asked.get("spec") or {}).get("namespace"):
        raise errors.BadRequest("no namespace on request")


def _check_token(call: Call, asked: Object) -> None:
    if not (asked.get("spec") or {}).get("token"):
        raise errors.BadRequest("token is required for TokenReview in authentication")


_CHECKS: dict[str, Callable[[Call, Object], None]] = {
    "SelfSubjectAccessReview": _check_own_access,
    "SubjectAccessReview": _check_access,
    "LocalSubjectAccessReview": _check_access,
    "SelfSubjectRulesReview": _check_rules,
    "TokenReview": _check_token,
}


def _refuse(errs: list[FieldError]) -> None:
    """Raise Invalid without a kind, as Kubernetes does for reviews."""
    if errs:
        raise errors.Invalid(errs, group="authorization.k8s.io", kind="", name="")


def _validate_attribute(spec: Object) -> list[FieldError]:
    about, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if about is not None and path is not None:
        why = "cannot be specified in combination with resourceAttributes"
        return [field_errors.invalid("spec.nonResourceAttributes", _in_go(path), why)]
    if about is None and path is None:
        why = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
        return [field_errors.invalid("spec.resourceAttributes", None, why)]
    return []


def _validate_locality(spec: Object, namespace: str) -> list[FieldError]:
    """Validate the attributes of a review about one namespace."""
    about, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
    if path is not None:
        why = "disallowed on this kind of request"
        return [field_errors.invalid("spec.nonResourceAttributes", _in_go(path), why)]
    given = (about or {}).get("namespace", "")
    if about is not None and given != namespace:
        return [field_errors.invalid("spec.resourceAttributes.namespace", given, "must match metadata.namespace")]
    return []


def _validate_metadata(asked: Object, detail: str = "must be empty") -> list[FieldError]:
    said = {name: value for name, value in (asked.get("metadata") or {}).items() if value}
    return [field_errors.invalid("metadata", said, detail)] if said.keys() - {"namespace", "managedFields"} else []


def _in_go(path: Object) -> Object:
    return {"Path": path.get("path", ""), "Verb": path.get("verb", "")}


def user_info(user: User) -> Object:
    shown: Object = {"username": user.name}
    if user.uid:
        shown["uid"] = user.uid
    shown["groups"] = list(user.groups)
    if user.extra:
        shown["extra"] = {name: list(values) for name, values in user.extra.items()}
    return shown


def _action(about: Object | None, path: Object | None, fields: str) -> Action:
    if about is None:
        asked = path or {}
        return Action(asked.get("verb", ""), path=asked.get("path", ""))
    return Action(
        about.get("verb", ""),
        group=about.get("group", ""),
        # A review without a resource is not about a path.
        resource=about.get("resource", "") or "-",
        subresource=about.get("subresource", ""),
        namespace=about.get("namespace", ""),
        name=about.get("name", ""),
        version=about.get("version", ""),
        fields=fields,
    )
