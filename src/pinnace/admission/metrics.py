"""The metrics of admission under Kubernetes' names: steps, plug-ins, webhooks and validating policies."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from pinnace.process.exposition import HistogramFamily, Labels

if TYPE_CHECKING:
    from pinnace.admission.static_manifests import StaticManifests

STEP_SECONDS = "apiserver_admission_step_admission_duration_seconds"
PLUGIN_SECONDS = "apiserver_admission_controller_admission_duration_seconds"
WEBHOOK_SECONDS = "apiserver_admission_webhook_admission_duration_seconds"
POLICY_SECONDS = "apiserver_validating_admission_policy_check_duration_seconds"
WEBHOOK_REQUESTS = "apiserver_admission_webhook_request_total"
WEBHOOK_REJECTIONS = "apiserver_admission_webhook_rejection_count"
WEBHOOK_FAIL_OPEN = "apiserver_admission_webhook_fail_open_count"
POLICY_CHECKS = "apiserver_validating_admission_policy_check_total"

ADMIT, VALIDATE, VALIDATING = "admit", "validate", "validating"
"""The types of steps; validating webhooks have a type of their own."""
SAMPLED = 16
"""One in so many writes is timed, with its plug-ins; such a write counts for those since the one before it."""

_BOUNDS = (0.005, 0.025, 0.1, 0.5, 1.0, 2.5)
_NAMES = {
    "MutatingWebhooks": "MutatingAdmissionWebhook",
    "ValidatingWebhooks": "ValidatingAdmissionWebhook",
    "MutatingPolicies": "MutatingAdmissionPolicy",
    "ValidatingPolicies": "ValidatingAdmissionPolicy",
}
"""The classes that do not have the names of their plug-ins."""
_HIGHEST_CODE = 600


def plugin_name(plugin: object) -> str:
    """Return the name of a plug-in as Kubernetes knows it."""
    name = type(plugin).__name__
    return _NAMES.get(name, name)


class AdmissionMetrics:
    """Histograms and counters that the plug-ins of one server fill in."""

    def __init__(self) -> None:
        self.steps = HistogramFamily(
            STEP_SECONDS, "The time of a step, by operation and result, in a sample of writes.", _BOUNDS
        )
        self.plugins = HistogramFamily(PLUGIN_SECONDS, "The time of a plug-in, in a sample of writes.", _BOUNDS)
        self.webhooks = HistogramFamily(WEBHOOK_SECONDS, "The time of a webhook.", (*_BOUNDS, 10, 25))
        self.policies = HistogramFamily(POLICY_SECONDS, "The time of a policy.", (5e-07, 0.001, 0.01, 0.1, 1.0))
        self.manifests: list[StaticManifests] = []
        """The files with configurations of plug-ins, whose reloads are counted."""
        self.counts: dict[str, Counter[Labels]] = {
            name: Counter() for name in (WEBHOOK_REQUESTS, WEBHOOK_REJECTIONS, WEBHOOK_FAIL_OPEN, POLICY_CHECKS)
        }

    @property
    def families(self) -> tuple[HistogramFamily, ...]:
        return self.steps, self.plugins, self.webhooks, self.policies

    def observe_rejection(self, step: str, plugin: object, operation: str, seconds: float) -> None:
        """Count a write that a plug-in rejected. `seconds` is the time since the step began."""
        labels = (("operation", operation), ("rejected", "true"), ("type", step))
        self.steps.of(labels).observe(seconds)
        self.plugins.of((("name", plugin_name(plugin)), *labels)).observe(seconds)

    def observe_webhook(
        self, labels: tuple[str, str, str], seconds: float, *, code: int, error_type: str = "", is_rejected: bool
    ) -> None:
        """Count a call. `labels`: the webhook's name, the operation and the type. `error_type` is empty if allowed."""
        name, operation, type = labels
        status = str(min(code, _HIGHEST_CODE))
        call = (("name", name), ("operation", operation), ("rejected", str(is_rejected).lower()), ("type", type))
        self.webhooks.of(call).observe(seconds)
        self.counts[WEBHOOK_REQUESTS][("code", status), *call] += 1
        if error_type and is_rejected:
            rejection = (("error_type", error_type), ("name", name), ("operation", operation))
            self.counts[WEBHOOK_REJECTIONS][*rejection, ("rejection_code", status), ("type", type)] += 1
        elif error_type:
            self.counts[WEBHOOK_FAIL_OPEN][("name", name), ("type", type)] += 1

    def observe_policy(self, policy: str, binding: str, seconds: float, *, action: str, error_type: str) -> None:
        """Count a decision of a policy: allow, deny, audit or warn."""
        decision = (("enforcement_action", action), ("error_type", error_type))
        labels = (*decision, ("policy", policy), ("policy_binding", binding))
        self.policies.of(labels).observe(seconds)
        self.counts[POLICY_CHECKS][labels] += 1
