"""The rows of webhook configurations and admission policies."""

from __future__ import annotations

from dataclasses import replace

from pinnace.kinds.admissionregistration import columns, conversion, policies, webhooks
from pinnace.kinds.rows import GA, STATUS, Row, old, on_request

GROUP = "admissionregistration.k8s.io"
_V1 = "admissionregistration.k8s.io/v1"
_CATEGORIES = ("api-extensions",)
_OLD_WEBHOOKS = old(
    "v1beta1",
    deprecated="1.16",
    removed="1.22",
    replacement=_V1,
    to_stored=conversion.webhooks_to_v1,
    reshape=conversion.old_webhooks,
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

ROWS = (
    Row(
        group=GROUP,
        name="MutatingAdmissionPolicy",
        plural="mutatingadmissionpolicies",
        columns=columns.MUTATING_ADMISSION_POLICY,
        namespaced=False,
        categories=_CATEGORIES,
        versions=_MUTATING_POLICY_VERSIONS,
        strategy=policies.MUTATING_ADMISSION_POLICY,
    ),
    Row(
        group=GROUP,
        name="MutatingAdmissionPolicyBinding",
        plural="mutatingadmissionpolicybindings",
        columns=columns.ADMISSION_POLICY_BINDING,
        namespaced=False,
        categories=_CATEGORIES,
        versions=_MUTATING_POLICY_VERSIONS,
        strategy=policies.MUTATING_ADMISSION_POLICY_BINDING,
    ),
    Row(
        group=GROUP,
        name="MutatingWebhookConfiguration",
        plural="mutatingwebhookconfigurations",
        columns=columns.WEBHOOK_CONFIGURATION,
        namespaced=False,
        categories=_CATEGORIES,
        versions=(GA, replace(_OLD_WEBHOOKS, strategy=webhooks.OLD_MUTATING_WEBHOOK_CONFIGURATION)),
        strategy=webhooks.MUTATING_WEBHOOK_CONFIGURATION,
    ),
    Row(
        group=GROUP,
        name="ValidatingAdmissionPolicy",
        plural="validatingadmissionpolicies",
        columns=columns.VALIDATING_ADMISSION_POLICY,
        namespaced=False,
        categories=_CATEGORIES,
        versions=_VALIDATING_POLICY_VERSIONS,
        subresources=(STATUS,),
        strategy=policies.VALIDATING_ADMISSION_POLICY,
    ),
    Row(
        group=GROUP,
        name="ValidatingAdmissionPolicyBinding",
        plural="validatingadmissionpolicybindings",
        columns=columns.ADMISSION_POLICY_BINDING,
        namespaced=False,
        categories=_CATEGORIES,
        versions=_VALIDATING_POLICY_VERSIONS,
        strategy=policies.VALIDATING_ADMISSION_POLICY_BINDING,
    ),
    Row(
        group=GROUP,
        name="ValidatingWebhookConfiguration",
        plural="validatingwebhookconfigurations",
        columns=columns.WEBHOOK_CONFIGURATION,
        namespaced=False,
        categories=_CATEGORIES,
        versions=(GA, replace(_OLD_WEBHOOKS, strategy=webhooks.OLD_VALIDATING_WEBHOOK_CONFIGURATION)),
        strategy=webhooks.VALIDATING_WEBHOOK_CONFIGURATION,
    ),
)
