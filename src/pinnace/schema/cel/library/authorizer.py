"""Authorization checks in CEL: authorizer.group('').resource('pods').check('get').allowed()."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

from pinnace.schema.cel.errors import CelError
from pinnace.schema.cel.overloads import function, library, member, overload
from pinnace.schema.cel.types import BOOL, STRING, object_type

AUTHORIZER = object_type("kubernetes.authorization.Authorizer")
PATH_CHECK = object_type("kubernetes.authorization.PathCheck")
GROUP_CHECK = object_type("kubernetes.authorization.GroupCheck")
RESOURCE_CHECK = object_type("kubernetes.authorization.ResourceCheck")
DECISION = object_type("kubernetes.authorization.Decision")
REQUEST_RESOURCE = "authorizer.requestResource"
"""The variable for a check of the request's own resource."""


@dataclass(frozen=True, slots=True)
class CelDecision:
    """The result of a check: whether the action is allowed, why, and the error of the check."""

    allowed: bool
    reason: str = ""
    error: str = ""
    TYPE_NAME: ClassVar[str] = "kubernetes.authorization.Decision"


@dataclass(frozen=True, slots=True)
class Question:
    """The action to check. A service account (system:serviceaccount:ns:name) replaces the user."""

    verb: str = ""
    path: str = ""
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    field_selector: str = ""
    label_selector: str = ""
    service_account: tuple[str, str] | None = None


class Oracle(Protocol):
    """Decides checks; given as the variable `authorizer`, wrapped in CelAuthorizer."""

    def decide(self, question: Question) -> CelDecision: ...


@dataclass(frozen=True, slots=True)
class CelAuthorizer:
    oracle: Oracle
    service_account: tuple[str, str] | None = None
    TYPE_NAME: ClassVar[str] = "kubernetes.authorization.Authorizer"


@dataclass(frozen=True, slots=True)
class PathCheck:
    authorizer: CelAuthorizer
    question: Question
    TYPE_NAME: ClassVar[str] = "kubernetes.authorization.PathCheck"


@dataclass(frozen=True, slots=True)
class GroupCheck:
    authorizer: CelAuthorizer
    question: Question
    TYPE_NAME: ClassVar[str] = "kubernetes.authorization.GroupCheck"


@dataclass(frozen=True, slots=True)
class ResourceCheck:
    authorizer: CelAuthorizer
    question: Question
    TYPE_NAME: ClassVar[str] = "kubernetes.authorization.ResourceCheck"


def _path(authorizer: CelAuthorizer, path: str) -> PathCheck:
    if not path.strip():
        raise CelError("path must not be empty")
    return PathCheck(authorizer, Question(path=path, service_account=authorizer.service_account))


def _group(authorizer: CelAuthorizer, group: str) -> GroupCheck:
    return GroupCheck(authorizer, Question(group=group, service_account=authorizer.service_account))


def _service_account(authorizer: CelAuthorizer, namespace: str, name: str) -> CelAuthorizer:
    return replace(authorizer, service_account=(namespace, name))


def _resource(check: GroupCheck, resource: str) -> ResourceCheck:
    if not resource.strip():
        raise CelError("resource must not be empty")
    return ResourceCheck(check.authorizer, replace(check.question, resource=resource))


def _refine(name: str) -> Any:
    def refined(question: Question, value: str) -> Question:
        changes: dict[str, Any] = {name: value}
        return replace(question, **changes)

    def refine(check: ResourceCheck, value: str) -> ResourceCheck:
        return ResourceCheck(check.authorizer, refined(check.question, value))

    return refine


def _check(check: PathCheck | ResourceCheck, verb: str) -> CelDecision:
    return check.authorizer.oracle.decide(replace(check.question, verb=verb))


def _escape_key(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")


_TO_RESOURCE = (RESOURCE_CHECK, STRING)

AUTHORIZERS = library(
    function("path", member("authorizer_path", (AUTHORIZER, STRING), PATH_CHECK, _path)),
    function("group", member("authorizer_group", (AUTHORIZER, STRING), GROUP_CHECK, _group)),
    function(
        "serviceAccount",
        member("authorizer_serviceaccount", (AUTHORIZER, STRING, STRING), AUTHORIZER, _service_account),
    ),
    function("resource", member("groupcheck_resource", (GROUP_CHECK, STRING), RESOURCE_CHECK, _resource)),
    function("subresource", member("resourcecheck_subresource", _TO_RESOURCE, RESOURCE_CHECK, _refine("subresource"))),
    function("namespace", member("resourcecheck_namespace", _TO_RESOURCE, RESOURCE_CHECK, _refine("namespace"))),
    function("name", member("resourcecheck_name", _TO_RESOURCE, RESOURCE_CHECK, _refine("name"))),
    function(
        "fieldSelector", member("authorizer_fieldselector", _TO_RESOURCE, RESOURCE_CHECK, _refine("field_selector"))
    ),
    function(
        "labelSelector", member("authorizer_labelselector", _TO_RESOURCE, RESOURCE_CHECK, _refine("label_selector"))
    ),
    function(
        "check",
        member("pathcheck_check", (PATH_CHECK, STRING), DECISION, _check),
        member("resourcecheck_check", (RESOURCE_CHECK, STRING), DECISION, _check),
    ),
    function("errored", member("decision_errored", (DECISION,), BOOL, lambda decision: bool(decision.error))),
    function("error", member("decision_error", (DECISION,), STRING, lambda decision: decision.error)),
    function("allowed", member("decision_allowed", (DECISION,), BOOL, lambda decision: decision.allowed)),
    function("reason", member("decision_reason", (DECISION,), STRING, lambda decision: decision.reason)),
)

JSON_PATCH = library(
    function("jsonpatch.escapeKey", overload("string_jsonpatch_escapeKey_string", (STRING,), STRING, _escape_key)),
)
