"""Disruption budgets, webhooks, certificate requests and priority levels as older versions wrote them."""

from __future__ import annotations

from typing import Any

from pinnace.kinds import older_schemas
from pinnace.kinds.certificates.signers import probable_signer
from pinnace.model.objects import Object
from pinnace.schema.shape import Schema

EMPTY_SELECTOR = "pdb.kubernetes.io/deprecated-v1beta1-empty-selector-match"
PRESERVE_ZERO_SHARES = "flowcontrol.k8s.io/v1beta3-preserve-zero-concurrency-shares"

_MATCH_NONE = [{"key": EMPTY_SELECTOR, "operator": "Exists"}]
_MATCH_ALL = [{"key": EMPTY_SELECTOR, "operator": "DoesNotExist"}]


def _is_empty(selector: Any) -> bool:
    return isinstance(selector, dict) and not selector.get("matchLabels") and not selector.get("matchExpressions")


def _is_only(selector: Any, expressions: list[Object]) -> bool:
    return (
        isinstance(selector, dict)
        and not selector.get("matchLabels")
        and selector.get("matchExpressions") == expressions
    )


def budget_to_v1(budget: Object) -> Object:
    """An empty selector chose no pod in v1beta1, and chooses every pod in v1."""
    spec = budget.get("spec") or {}
    selector = spec.get("selector")
    if _is_empty(selector):
        spec["selector"] = {"matchExpressions": [dict(expression) for expression in _MATCH_NONE]}
    elif _is_only(selector, _MATCH_ALL):
        spec["selector"] = {}
    return budget


def budget_from_v1(budget: Object) -> Object:
    spec = budget.get("spec") or {}
    selector = spec.get("selector")
    if _is_only(selector, _MATCH_NONE):
        spec["selector"] = {}
    elif _is_empty(selector):
        spec["selector"] = {"matchExpressions": [dict(expression) for expression in _MATCH_ALL]}
    return budget


def old_webhooks(schema: Schema) -> Schema:
    return older_schemas.at(schema, "webhooks.[]", older_schemas.optional("sideEffects", "admissionReviewVersions"))


def webhooks_to_v1(configuration: Object) -> Object:
    for webhook in configuration.get("webhooks") or ():
        webhook.setdefault("failurePolicy", "Ignore")
        webhook.setdefault("matchPolicy", "Exact")
        if webhook.get("sideEffects") is None:
            webhook["sideEffects"] = "Unknown"
        webhook.setdefault("timeoutSeconds", 30)
        if not webhook.get("admissionReviewVersions"):
            webhook["admissionReviewVersions"] = ["v1beta1"]
    return configuration


def old_certificate_request(schema: Schema) -> Schema:
    schema = older_schemas.at(schema, "spec", older_schemas.optional("signerName", "usages"))
    return older_schemas.at(schema, "status.conditions.[]", older_schemas.optional("status"))


def certificate_request_to_v1(request: Object) -> Object:
    spec = request.get("spec")
    if isinstance(spec, dict):
        if spec.get("usages") is None:
            spec["usages"] = ["digital signature", "key encipherment"]
        if spec.get("signerName") is None:
            spec["signerName"] = probable_signer(spec)
    for condition in (request.get("status") or {}).get("conditions") or ():
        condition.setdefault("status", "True")
    return request


def _rename_shares(level: Object, before: str, after: str) -> Object:
    limited = (level.get("spec") or {}).get("limited")
    if isinstance(limited, dict) and before in limited:
        level["spec"]["limited"] = {after if name == before else name: value for name, value in limited.items()}
    return level


def shares_to_nominal(level: Object) -> Object:
    return _rename_shares(level, "assuredConcurrencyShares", "nominalConcurrencyShares")


def shares_from_nominal(level: Object) -> Object:
    return _rename_shares(level, "nominalConcurrencyShares", "assuredConcurrencyShares")


def zero_shares_to_v1(level: Object) -> Object:
    """v1beta3 cannot say zero shares but by an annotation, which no other version shows."""
    metadata = level.get("metadata") or {}
    annotations = metadata.get("annotations") or {}
    kept = annotations.pop(PRESERVE_ZERO_SHARES, None) is not None
    if kept and not annotations:
        metadata.pop("annotations", None)
    limited = (level.get("spec") or {}).get("limited")
    if isinstance(limited, dict) and not limited.get("nominalConcurrencyShares"):
        limited["nominalConcurrencyShares"] = 0 if kept else 30
    return level


def zero_shares_from_v1(level: Object) -> Object:
    limited = (level.get("spec") or {}).get("limited")
    if isinstance(limited, dict) and limited.get("nominalConcurrencyShares") == 0:
        annotations = level.setdefault("metadata", {}).setdefault("annotations", {})
        annotations[PRESERVE_ZERO_SHARES] = ""
    return level
