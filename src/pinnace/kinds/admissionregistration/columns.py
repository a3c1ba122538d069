"""The columns of webhook configurations and admission policies."""

from __future__ import annotations

from datetime import datetime

from pinnace.kinds.cells import (
    AGE,
    NAME,
    UNSET,
    at,
    integer,
    length_of,
    reach,
    string,
)
from pinnace.model.objects import Object

WEBHOOK_CONFIGURATION = (
    NAME,
    integer(
        "Webhooks",
        "Webhooks indicates the number of webhooks registered in this configuration",
        length_of("webhooks"),
    ),
    AGE,
)


def _param_kind(policy: Object, now: datetime) -> str:
    kind = reach(policy, "spec", "paramKind")
    return UNSET if kind is None else f"{kind.get('apiVersion', '')}/{kind.get('kind', '')}"


_PARAM_KIND = string(
    "ParamKind", "ParamKind specifies the kind of resources used to parameterize this policy", _param_kind
)
VALIDATING_ADMISSION_POLICY = (
    NAME,
    integer(
        "Validations",
        "Validations indicates the number of validation rules defined in this configuration",
        length_of("spec.validations"),
    ),
    _PARAM_KIND,
    AGE,
)
MUTATING_ADMISSION_POLICY = (
    NAME,
    integer(
        "Mutations",
        "Mutation indicates the number of mutations rules defined in this configuration",
        length_of("spec.mutations"),
    ),
    _PARAM_KIND,
    AGE,
)


def _param_ref(binding: Object, now: datetime) -> str:
    reference = reach(binding, "spec", "paramRef") or {}
    if reference.get("name"):
        return f"{reference.get('namespace') or '*'}/{reference['name']}"
    selector = reference.get("selector")
    return UNSET if selector is None else _go_selector(selector)


def _go_selector(selector: Object) -> str:
    """Return a label selector as Go's generated String method prints it, which this column contains."""
    labels = "".join(f"{key}: {value}," for key, value in sorted((selector.get("matchLabels") or {}).items()))
    expressions = "".join(
        f"LabelSelectorRequirement{{Key:{found.get('key', '')},Operator:{found.get('operator', '')},"
        f"Values:[{' '.join(found.get('values') or ())}],}},"
        for found in selector.get("matchExpressions") or ()
    )
    return (
        f"&LabelSelector{{MatchLabels:map[string]string{{{labels}}},"
        f"MatchExpressions:[]LabelSelectorRequirement{{{expressions}}},}}"
    )


ADMISSION_POLICY_BINDING = (
    NAME,
    string(
        "PolicyName",
        "PolicyName indicates the policy definition which the policy binding binded to",
        at("spec.policyName"),
    ),
    string("ParamRef", "ParamRef indicates the param resource which sets the configuration param", _param_ref),
    AGE,
)
