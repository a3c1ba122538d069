"""The rows of webhook configurations and admission policies: columns, versions.

In v1beta1 webhook configurations had other defaults.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from functools import partial

from pinnace.kinds import older_schemas
from pinnace.kinds.admissionregistration import policies, webhooks
from pinnace.kinds.admissionregistration.reserved_names import reserve_names
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
from pinnace.kinds.rows import GA, STATUS, Row, old, on_request
from pinnace.model.objects import Object
from pinnace.model.typed_objects import (
    LabelSelector,
    MutatingAdmissionPolicy,
    MutatingAdmissionPolicyBinding,
    ValidatingAdmissionPolicy,
    ValidatingAdmissionPolicyBinding,
)
from pinnace.schema.shape import Schema

WEBHOOK_CONFIGURATION = (
    NAME,
    integer(
        "Webhooks",
        "Webhooks indicates the number of webhooks registered in this configuration",
        length_of("webhooks"),
    ),
    AGE,
)


def _param_kind(policy: ValidatingAdmissionPolicy | MutatingAdmissionPolicy, now: datetime) -> str:
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


def _param_ref(binding: ValidatingAdmissionPolicyBinding | MutatingAdmissionPolicyBinding, now: datetime) -> str:
    reference = reach(binding, "spec", "paramRef") or {}
    if reference.get("name"):
        return f"{reference.get('namespace') or '*'}/{reference['name']}"
    selector = reference.get("selector")
    return UNSET if selector is None else _go_selector(selector)


def _go_selector(selector: LabelSelector) -> str:
    """Return a label selector as Go's generated String method prints it, which this column contains."""
    labels = "".join(f"{key}: {value}," for key, value in sorted((selector.get("matchLabels") or {}).items()))
    expressions = "".join(
        f"LabelSelectorRequirement{{Key:{requirement.get('key', '')},Operator:{requirement.get('operator', '')},"
        f"Values:[{' '.join(requirement.get('values') or ())}],}},"
        for requirement in selector.get("matchExpressions") or ()
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


GROUP = "admissionregistration.k8s.io"
_V1 = "admissionregistration.k8s.io/v1"
_CATEGORIES = ("api-extensions",)
_OLD_WEBHOOKS = old(
    "v1beta1",
    deprecated="1.16",
    removed="1.22",
    replacement=_V1,
    to_stored=webhooks_to_v1,
    reshape=old_webhooks,
)
_MUTATING_POLICY_VERSIONS = (
    GA,
    on_request("v1beta1", deprecated="1.37", removed="1.40", replacement=_V1),
    on_request("v1alpha1", deprecated="1.35", removed="1.38"),
)
_VALIDATING_POLICY_VERSIONS = (
    GA,
    on_request("v1beta1", deprecated="1.31", removed="1.34"),
    on_request("v1alpha1", deprecated="1.29", removed="1.32"),
)

_row = partial(Row, group=GROUP, namespaced=False, categories=_CATEGORIES)

ROWS = (
    _row(
        name="MutatingAdmissionPolicy",
        plural="mutatingadmissionpolicies",
        columns=MUTATING_ADMISSION_POLICY,
        versions=_MUTATING_POLICY_VERSIONS,
        strategy=policies.MUTATING_ADMISSION_POLICY,
        gated=reserve_names(policies.MUTATING_ADMISSION_POLICY),
    ),
    _row(
        name="MutatingAdmissionPolicyBinding",
        plural="mutatingadmissionpolicybindings",
        columns=ADMISSION_POLICY_BINDING,
        versions=_MUTATING_POLICY_VERSIONS,
        strategy=policies.MUTATING_ADMISSION_POLICY_BINDING,
        gated=reserve_names(policies.MUTATING_ADMISSION_POLICY_BINDING),
    ),
    _row(
        name="MutatingWebhookConfiguration",
        plural="mutatingwebhookconfigurations",
        columns=WEBHOOK_CONFIGURATION,
        versions=(GA, replace(_OLD_WEBHOOKS, strategy=webhooks.OLD_MUTATING_WEBHOOK_CONFIGURATION)),
        strategy=webhooks.MUTATING_WEBHOOK_CONFIGURATION,
        gated=reserve_names(webhooks.MUTATING_WEBHOOK_CONFIGURATION),
    ),
    _row(
        name="ValidatingAdmissionPolicy",
        plural="validatingadmissionpolicies",
        columns=VALIDATING_ADMISSION_POLICY,
        versions=_VALIDATING_POLICY_VERSIONS,
        subresources=(STATUS,),
        strategy=policies.VALIDATING_ADMISSION_POLICY,
        gated=reserve_names(policies.VALIDATING_ADMISSION_POLICY),
    ),
    _row(
        name="ValidatingAdmissionPolicyBinding",
        plural="validatingadmissionpolicybindings",
        columns=ADMISSION_POLICY_BINDING,
        versions=_VALIDATING_POLICY_VERSIONS,
        strategy=policies.VALIDATING_ADMISSION_POLICY_BINDING,
        gated=reserve_names(policies.VALIDATING_ADMISSION_POLICY_BINDING),
    ),
    _row(
        name="ValidatingWebhookConfiguration",
        plural="validatingwebhookconfigurations",
        columns=WEBHOOK_CONFIGURATION,
        versions=(GA, replace(_OLD_WEBHOOKS, strategy=webhooks.OLD_VALIDATING_WEBHOOK_CONFIGURATION)),
        strategy=webhooks.VALIDATING_WEBHOOK_CONFIGURATION,
        gated=reserve_names(webhooks.VALIDATING_WEBHOOK_CONFIGURATION),
    ),
)
