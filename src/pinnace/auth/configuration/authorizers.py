"""Reads an AuthorizationConfiguration: authorizers in their order, with any number of webhooks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Literal

from pinnace.auth.configuration.expressions import REVIEW, ExpressionCompiler
from pinnace.model import names
from pinnace.model.objects import Object
from pinnace.schema.cel.program import Program
from pinnace.schema.cel.times import duration_text, parse_duration
from pinnace.schema.cel.values import Duration
from pinnace.schema.configuration.documents import FLAG, TEXT, check, decode, items, structure
from pinnace.schema.field_errors import FieldError, duplicate, invalid, not_supported, required, too_many

KIND = "AuthorizationConfiguration"
VERSIONS = ("v1", "v1beta1", "v1alpha1")
TYPES = ("AlwaysAllow", "AlwaysDeny", "Node", "RBAC", "Webhook")
"""The authorizers there are. ABAC reads a file of policies that Kubernetes itself advises against: it is not here."""
_MOST_CONDITIONS = 64
_SECOND = 10**9
_LONGEST_TIMEOUT = 30 * _SECOND
_WEBHOOK = structure(
    authorizedTTL=TEXT, cacheAuthorizedRequests=FLAG, unauthorizedTTL=TEXT, cacheUnauthorizedRequests=FLAG,
    timeout=TEXT, subjectAccessReviewVersion=TEXT, matchConditionSubjectAccessReviewVersion=TEXT, failurePolicy=TEXT,
    connectionInfo=structure(type=TEXT, kubeConfigFile=TEXT),
    matchConditions=items(structure(expression=TEXT)),
)  # fmt: skip
_FIELDS: Object = {"authorizers": items(structure(type=TEXT, name=TEXT, webhook=_WEBHOOK))}


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSettings:
    """How a webhook is called, and how long its answers hold."""

    kubeconfig: Path
    timeout: float
    version: Literal["v1", "v1beta1"]
    denies_on_error: bool
    allowed_remembered: timedelta
    refused_remembered: timedelta
    conditions: tuple[Program, ...] = ()


@dataclass(frozen=True, slots=True)
class ConfiguredAuthorizer:
    type: str
    name: str
    webhook: WebhookSettings | None = None


def parse_authorization(content: bytes, path: Path) -> tuple[ConfiguredAuthorizer, ...]:
    """Parse a file. Raise ConfigurationError."""
    document = decode(content, path, kind=KIND, versions=VERSIONS, fields=_FIELDS)
    errors: list[FieldError] = []
    authorizers = tuple(_authorizers(document.get("authorizers") or (), errors))
    check(path, errors)
    return authorizers


def _authorizers(configured: Sequence[Object], errors: list[FieldError]) -> Iterator[ConfiguredAuthorizer]:
    if not configured:
        errors.append(required("authorizers", "at least one authorization mode must be defined"))
    types: set[str] = set()
    taken: set[str] = set()
    for number, authorizer in enumerate(configured):
        path, type_, name = f"authorizers[{number}]", authorizer.get("type", ""), authorizer.get("name", "")
        if not type_:
            errors.append(required(f"{path}.type"))
            continue
        if type_ not in TYPES:
            errors.append(not_supported(f"{path}.type", type_, TYPES))
            continue
        if type_ in types and type_ != "Webhook":
            errors.append(duplicate(f"{path}.type", type_))
            continue
        types.add(type_)
        errors += _name_errors(name, taken, f"{path}.name")
        taken.add(name)
        webhook = authorizer.get("webhook")
        if type_ != "Webhook":
            if webhook is not None:
                errors.append(invalid(f"{path}.webhook", "non-null", "may only be specified when type=Webhook"))
            yield ConfiguredAuthorizer(type_, name)
        elif webhook is None:
            errors.append(required(f"{path}.webhook", "required when type=Webhook"))
        else:
            yield ConfiguredAuthorizer(type_, name, _webhook(webhook, path, errors))


def _name_errors(name: str, taken: set[str], path: str) -> Iterator[FieldError]:
    if not name:
        yield required(path)
    elif name in taken:
        yield duplicate(path, name)
    elif errs := names.dns_subdomain(name):
        yield invalid(path, name, f"authorizer name is invalid: {', '.join(errs)}")


def _webhook(webhook: Object, path: str, errors: list[FieldError]) -> WebhookSettings | None:
    timeout = _duration(webhook.get("timeout"), f"{path}.timeout", errors)
    if timeout is not None and not 0 < timeout <= _LONGEST_TIMEOUT:
        errors.append(invalid(f"{path}.timeout", _text(timeout), "must be > 0s and <= 30s"))
    allowed = _remembered(webhook, "authorizedTTL", 300 * _SECOND, path, errors)
    refused = _remembered(webhook, "unauthorizedTTL", 30 * _SECOND, path, errors)
    errors += _choice_errors(webhook, path)
    connection = webhook.get("connectionInfo") or {}
    errors += _connection_errors(connection, f"{path}.connectionInfo")
    conditions = _conditions(webhook, path, errors)
    if errors:
        return None
    assert timeout is not None, "a missing timeout is an error"
    caches = [webhook.get(f"cache{kind}Requests", True) for kind in ("Authorized", "Unauthorized")]
    return WebhookSettings(
        kubeconfig=Path(connection["kubeConfigFile"]),
        timeout=timeout / _SECOND,
        version=webhook["subjectAccessReviewVersion"],
        denies_on_error=webhook["failurePolicy"] == "Deny",
        allowed_remembered=timedelta(seconds=allowed / _SECOND if caches[0] else 0),
        refused_remembered=timedelta(seconds=refused / _SECOND if caches[1] else 0),
        conditions=conditions,
    )


def _duration(text: str | None, path: str, errors: list[FieldError]) -> int | None:
    """Return the nanoseconds of a duration; None after an error."""
    try:
        nanoseconds = parse_duration(text or "0").nanos
    except ValueError:
        errors.append(invalid(path, text, "must be a duration such as 3s or 1m30s"))
        return None
    if nanoseconds == 0:
        errors.append(required(path))
        return None
    return nanoseconds


def _remembered(webhook: Object, field: str, default: int, path: str, errors: list[FieldError]) -> int:
    text = webhook.get(field)
    if not text or text in ("0", "0s"):
        return default
    nanoseconds = _duration(text, f"{path}.{field}", errors)
    if nanoseconds is not None and nanoseconds < 0:
        errors.append(invalid(f"{path}.{field}", _text(nanoseconds), "must be > 0s"))
    return nanoseconds or default


def _choice_errors(webhook: Object, path: str) -> Iterator[FieldError]:
    review, of_conditions = (
        webhook.get(field, "") for field in ("subjectAccessReviewVersion", "matchConditionSubjectAccessReviewVersion")
    )
    if not review:
        yield required(f"{path}.subjectAccessReviewVersion")
    elif review not in ("v1", "v1beta1"):
        yield not_supported(f"{path}.subjectAccessReviewVersion", review, ("v1", "v1beta1"))
    if not of_conditions:
        if webhook.get("matchConditions"):
            error = "required if match conditions are specified"
            yield required(f"{path}.matchConditionSubjectAccessReviewVersion", error)
    elif of_conditions != "v1":
        yield not_supported(f"{path}.matchConditionSubjectAccessReviewVersion", of_conditions, ("v1",))
    policy = webhook.get("failurePolicy", "")
    if not policy:
        yield required(f"{path}.failurePolicy")
    elif policy not in ("NoOpinion", "Deny"):
        yield not_supported(f"{path}.failurePolicy", policy, ("NoOpinion", "Deny"))


def _connection_errors(connection: Object, path: str) -> Iterator[FieldError]:
    type_, file = connection.get("type", ""), connection.get("kubeConfigFile")
    if not type_:
        yield required(f"{path}.type")
    elif type_ == "InClusterConfig":
        error = "is for API servers that run in pods; use KubeConfigFile"
        yield invalid(f"{path}.type", type_, error)
    elif type_ != "KubeConfigFile":
        yield not_supported(f"{path}.type", type_, ("InClusterConfig", "KubeConfigFile"))
    elif not file:
        yield required(f"{path}.kubeConfigFile")
    elif not Path(file).is_absolute():
        yield invalid(f"{path}.kubeConfigFile", file, "must be an absolute path")
    elif not Path(file).exists():
        yield invalid(f"{path}.kubeConfigFile", file, f"error loading file: stat {file}: no such file or directory")
    elif not Path(file).is_file():
        yield invalid(f"{path}.kubeConfigFile", file, "must be a regular file")


def _conditions(webhook: Object, path: str, errors: list[FieldError]) -> tuple[Program, ...]:
    conditions = webhook.get("matchConditions") or []
    if len(conditions) > _MOST_CONDITIONS:
        errors.append(too_many(f"{path}.matchConditions", len(conditions), _MOST_CONDITIONS))
        return ()
    compiler = ExpressionCompiler(errors)
    programs: dict[str, Program] = {}
    for number, condition in enumerate(conditions):
        at, expression = f"{path}.matchConditions[{number}].expression", condition.get("expression", "")
        if not expression.strip():
            errors.append(required(at))
        elif expression in programs:
            errors.append(duplicate(at, expression))
        elif (program := compiler.compile(expression, REVIEW, at, is_condition=True)) is not None:
            programs[expression] = program
    return tuple(programs.values())


def _text(nanoseconds: int) -> str:
    return duration_text(Duration(nanoseconds))
