"""Reviews: objects that are created to ask a question and answered in their status, never stored."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

import orjson

from pinnace.auth.authentication.authenticators import BadToken, Bearer, Tokens
from pinnace.auth.authentication.service_accounts import TokenIssuer, default_lifetime
from pinnace.auth.authorization.rbac import HeldRules
from pinnace.kinds.golang import empty_fields
from pinnace.model import errors, field_errors
from pinnace.model.authorization import Action, Authorizer, Decision
from pinnace.model.field_errors import FieldError
from pinnace.model.objects import Kind, Object
from pinnace.model.patches import managed_fields
from pinnace.model.patches.managed_fields import Ownership
from pinnace.model.selectors import (
    FieldRequirement,
    FieldSelector,
    LabelSelector,
    Requirement,
    field_selector,
    from_object,
    validate_requirement,
)
from pinnace.model.selectors import label_selector as parsed_labels
from pinnace.model.users import User
from pinnace.process.clock import Clock, to_rfc3339
from pinnace.schema.shape import Schema
from pinnace.serving.cache.representations import Representations, check_view, partial_metadata
from pinnace.serving.long_work import decode_body, run_beside
from pinnace.serving.request.body import is_long_body
from pinnace.serving.request.call import Call
from pinnace.serving.request.negotiation import WITHOUT_ROWS, negotiate
from pinnace.serving.responses import Outcome
from pinnace.serving.write.body_decoder import BodyDecoder, check_options, kind_of, match_namespace, metadata_of
from pinnace.serving.write.pipeline import Pipeline

_WITHOUT_METADATA = frozenset(("SelfSubjectReview", "SelfSubjectRulesReview"))
"""Reviews whose metadata is left out of the answer."""

Review = Callable[[Call, Object], Awaitable[Object]]


class ReviewSecurity(NamedTuple):
    """The parts of the cluster's security that reviews ask."""

    authorizer: Authorizer
    rules: HeldRules
    tokens: Tokens
    issuer: TokenIssuer


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
        message = await run_beside(call.user.name, self._read, call) if is_long else self._read(call)
        check = partial(self._check, call)
        # A token is handed out: that is a write, whether or not anything is stored.
        if call.subresource or self._pipeline.reviews_unstored(call.resource):
            beside = partial(run_beside, call.user.name, check)
            await self._pipeline.admit(call, message, check=beside if is_long else check)
        elif is_long:
            await run_beside(call.user.name, check, message)
        else:
            check(message)
        answer = await review(call, message)
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
        message = self._decoder.message(call)
        if call.resource.namespaced:
            match_namespace(call, metadata_of(message))
        if call.subresource:
            default_lifetime(message)
        self._own(call, message)
        return message

    def _own(self, call: Call, message: Object) -> None:
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
            message["metadata"] = message.get("metadata") or {}
            managed_fields.after_update(
                None, message, ownership, manager=call.manager, now=to_rfc3339(self._clock.now())
            )

    def _check(self, call: Call, message: Object) -> None:
        """Default a review, and raise if it cannot be answered."""
        if call.subresource:
            self._issuer.complete(call.namespace, call.name, message)
            return
        check = _CHECKS.get(call.resource.kind.name)
        if check is not None:
            check(call, message)

    async def _give_token(self, call: Call, message: Object) -> Object:
        return self._issuer.issue(call.namespace, call.name, message)

    async def _who_am_i(self, call: Call, message: Object) -> Object:
        return self._answer(call, message, {"userInfo": user_info(call.user)})

    async def _may_i(self, call: Call, message: Object) -> Object:
        return self._answer(call, message, await self._decision(call, call.user, message.get("spec") or {}))

    async def _may_they(self, call: Call, message: Object) -> Object:
        spec = message.get("spec") or {}
        extra = {name: tuple(values) for name, values in (spec.get("extra") or {}).items()}
        user = User(spec.get("user", ""), tuple(spec.get("groups") or ()), spec.get("uid", ""), extra)
        return self._answer(call, message, await self._decision(call, user, spec))

    async def _what_may_i(self, call: Call, message: Object) -> Object:
        rules = self._rules.rules_for(call.user, message["spec"]["namespace"])
        rule_objects = [rule.on_the_wire for rule in rules]
        unknown = self._rules.unknown_for(call.user)
        status: Object = {
            "resourceRules": [rule for rule in rule_objects if "nonResourceURLs" not in rule],
            "nonResourceRules": [rule for rule in rule_objects if "nonResourceURLs" in rule],
            "incomplete": bool(unknown),
        }
        if unknown:
            status["evaluationError"] = unknown
        return self._answer(call, message | {"spec": {}}, status)

    async def _whose_token(self, call: Call, message: Object) -> Object:
        spec = message.get("spec") or {}
        token, audiences = spec.get("token", ""), tuple(spec.get("audiences") or ())
        why = "invalid bearer token"
        try:
            answer = self._tokens.find(token, audiences)
            bearer = answer if answer is None or isinstance(answer, Bearer) else await answer
        except BadToken as error:
            bearer, why = None, str(error)
        if bearer is None:
            return self._answer(call, message, {"user": {}, "error": why})
        status = {"authenticated": True, "user": user_info(bearer.user), "audiences": list(bearer.audiences)}
        return self._answer(call, message, status)

    async def _decision(self, call: Call, user: User, spec: Object) -> Object:
        about, path = spec.get("resourceAttributes"), spec.get("nonResourceAttributes")
        selected = UsableSelectors("", "", ())
        if about is not None:
            selected = await decode_body(call.user.name, call.request.body, usable_selectors, about)
        decided = self._authorizer.decide(user, _action(about, path, selected))
        decision = decided if isinstance(decided, Decision) else await decided
        status: Object = {"allowed": decision.is_allowed}
        if decision.verdict == "deny":
            status["denied"] = True
        if decision.reason:
            status["reason"] = decision.reason
        if selected.ignored:
            status["evaluationError"] = "; ".join(selected.ignored)
        return status

    def _answer(self, call: Call, message: Object, status: dict[str, Any]) -> Object:
        kind = call.resource.kind
        metadata = dict(message.get("metadata") or {}) if kind.name not in _WITHOUT_METADATA else {}
        if not call.resource.namespaced:
            metadata.pop("namespace", None)
        if kind.name == "SelfSubjectReview":
            metadata["creationTimestamp"] = to_rfc3339(self._clock.now())
        answer: Object = {"kind": kind.name, "apiVersion": kind.api_version, "metadata": metadata}
        if kind.name != "SelfSubjectReview":
            answer["spec"] = message.get("spec") or {}
        answer["status"] = status
        return answer


def _check_own_access(call: Call, message: Object) -> None:
    spec = message.get("spec") or {}
    _refuse(
        [
            *_validate_attribute(spec),
            *validate_selector(spec.get("resourceAttributes") or {}),
            *_validate_metadata(message),
        ]
    )


def _check_access(call: Call, message: Object) -> None:
    spec = message.get("spec") or {}
    errs = _validate_attribute(spec)
    if not spec.get("user") and not spec.get("groups"):
        why = "at least one of user or group must be specified"
        errs.append(field_errors.invalid("spec.user", spec.get("user", ""), why))
    errs += validate_selector(spec.get("resourceAttributes") or {})
    if call.resource.namespaced:
        errs += _validate_metadata(message, "must be empty except for namespace")
        errs += _validate_locality(spec, call.namespace)
    else:
        errs += _validate_metadata(message)
    _refuse(errs)


def _check_rules(call: Call, message: Object) -> None:
    if not (message.get("spec") or {}).get("namespace"):
        raise errors.BadRequest("no namespace on request")


def _check_token(call: Call, message: Object) -> None:
    if not (message.get("spec") or {}).get("token"):
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
    if (about is None) != (path is None):
        return []
    why = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
    return [field_errors.invalid("spec", None if path is None else _in_go(path), why)]


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


def _validate_metadata(message: Object, detail: str = "must be empty") -> list[FieldError]:
    given = {name: value for name, value in (message.get("metadata") or {}).items() if value}
    return [field_errors.invalid("metadata", given, detail)] if given.keys() - {"namespace", "managedFields"} else []


def _in_go(path: Object) -> Object:
    return {"Path": path.get("path", ""), "Verb": path.get("verb", "")}


def user_info(user: User) -> Object:
    info: Object = {"username": user.name}
    if user.uid:
        info["uid"] = user.uid
    info["groups"] = list(user.groups)
    if user.extra:
        info["extra"] = {name: list(values) for name, values in user.extra.items()}
    return info


def _action(about: Object | None, path: Object | None, selected: UsableSelectors) -> Action:
    if about is None:
        path_attributes = path or {}
        return Action(path_attributes.get("verb", ""), path=path_attributes.get("path", ""))
    return Action(
        about.get("verb", ""),
        group=about.get("group", ""),
        # A review without a resource is not about a path.
        resource=about.get("resource", "") or "-",
        subresource=about.get("subresource", ""),
        namespace=about.get("namespace", ""),
        name=about.get("name", ""),
        version=about.get("version", ""),
        fields=selected.fields,
        labels=selected.labels,
    )


_PATH = "spec.resourceAttributes"


class UsableSelectors(NamedTuple):
    """Selectors as query strings, and messages about ignored selectors."""

    fields: str
    labels: str
    ignored: tuple[str, ...]


def validate_selector(about: Object) -> Iterator[FieldError]:
    """Validate the selectors of `resourceAttributes`.

    An unknown operator is no error: the client may be newer, and ignoring it only widens the question.
    """
    for name in ("fieldSelector", "labelSelector"):
        selector, path = about.get(name), f"{_PATH}.{name}"
        if selector is None:
            continue
        raw, requirements = selector.get("rawSelector"), selector.get("requirements") or ()
        if raw and requirements:
            yield field_errors.invalid(f"{path}.rawSelector", raw, "may not specified at the same time as requirements")
        if not raw and not requirements:
            detail = f"when {path} is specified, requirements or rawSelector is required"
            yield field_errors.required(f"{path}.requirements", detail)
        for index, requirement in enumerate(requirements):
            of_one = _validate_field if name == "fieldSelector" else _validate_label
            yield from of_one(requirement, f"{path}.requirements[{index}]")


def usable_selectors(about: Object) -> UsableSelectors:
    """Return the part of the selectors that authorizers use, with messages about the rest."""
    fields, field_problem = _fields(about.get("fieldSelector") or {})
    labels, label_problem = _labels(about.get("labelSelector") or {})
    failures = (("fieldSelector", field_problem), ("labelSelector", label_problem))
    ignored = tuple(f"{_PATH}.{name} {error} due to parse error" for name, error in failures if error)
    return UsableSelectors(fields, labels, ignored)


def _validate_field(requirement: Object, path: str) -> Iterator[FieldError]:
    if not requirement.get("key"):
        yield field_errors.required(f"{path}.key", "must be specified")
    yield from (err for err in validate_requirement(requirement, path) if err.field == f"{path}.values")


def _validate_label(requirement: Object, path: str) -> Iterator[FieldError]:
    yield from (err for err in validate_requirement(requirement, path) if err.field != f"{path}.operator")


def _fields(selector: Object) -> tuple[str, str]:
    """Return the selector, and whether some or all of it is ignored."""
    if raw := selector.get("rawSelector"):
        try:
            return str(field_selector(raw)), ""
        except errors.BadRequest:
            return "", "ignored"
    given, known = selector.get("requirements") or (), []
    for requirement in given:
        operator = {"In": "=", "NotIn": "!="}.get(requirement.get("operator", ""))
        values = requirement.get("values") or []
        if operator is not None and len(values) == 1:
            known.append(FieldRequirement(requirement["key"], operator, values[0]))
    return str(FieldSelector(tuple(known))), _extent(len(known), len(given))


def _labels(selector: Object) -> tuple[str, str]:
    """Return the selector, and whether some or all of it is ignored."""
    if raw := selector.get("rawSelector"):
        try:
            return str(parsed_labels(raw)), ""
        except errors.BadRequest:
            return "", "ignored"
    known: list[Requirement] = []
    given = selector.get("requirements") or ()
    for requirement in given:
        with suppress(ValueError):
            known += from_object({"matchExpressions": [requirement]}).requirements
    return str(LabelSelector(tuple(known))), _extent(len(known), len(given))


def _extent(known: int, given: int) -> str:
    if known == given:
        return ""
    return "partially ignored" if known else "ignored"
