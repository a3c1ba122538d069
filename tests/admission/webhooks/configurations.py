"""Webhook configurations for the tests of admission."""

from __future__ import annotations

from typing import Any

from tests.admission.webhook_server import patched
from tests.server.in_process import (
    InProcess,
    Object,
)

MUTATING = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations"
VALIDATING = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
CONFIG_MAPS_ONLY = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}
NAME = "check.example.com"


def hook(client_config: Object, **more: Any) -> Object:
    return {
        "name": NAME,
        "clientConfig": client_config,
        "rules": [CONFIG_MAPS_ONLY],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        **more,
    }


async def configure(api: InProcess, target: str, *hooks: Object, name: str = "one") -> list[str]:
    """The warnings that the configuration is answered with."""
    kind = "MutatingWebhookConfiguration" if target == MUTATING else "ValidatingWebhookConfiguration"
    body = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": name}}
    reply = await api.post(target, {**body, "webhooks": list(hooks)})
    assert reply.status == 201, reply.body
    return reply.header("warning")


def label(request: Object) -> Object:
    return patched(request, {"op": "add", "path": "/metadata/labels", "value": {"seen": "yes"}})
