"""Webhook configurations as v1beta1 wrote them: with other defaults."""

from __future__ import annotations

from pinnace.kinds import older_schemas
from pinnace.model.objects import Object
from pinnace.schema.shape import Schema


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
