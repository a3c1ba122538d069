"""Defaults and validation of replication controllers."""

from __future__ import annotations

from pinnace.kinds.apps.rollouts import (
    MISMATCH,
    fill_status,
    named_template_warnings,
    prepare_replicas,
    validate_lasting_template,
    validate_replica_counts,
)
from pinnace.kinds.pods.defaults import default_template
from pinnace.kinds.validation.fields import in_key_order, validate_counts
from pinnace.model.field_errors import FieldError, invalid, required
from pinnace.model.objects import Object
from pinnace.model.resources import Strategy
from pinnace.model.selectors import from_labels


def _default_replication_controller(controller: Object) -> None:
    spec = controller.setdefault("spec", {})
    if "template" in spec:
        default_template(spec)
        labels = spec["template"]["metadata"].get("labels")
        if labels:
            if not spec.get("selector"):
                spec["selector"] = dict(labels)
            metadata = controller.setdefault("metadata", {})
            if not metadata.get("labels"):
                metadata["labels"] = dict(labels)
    if "replicas" not in spec:
        spec["replicas"] = 1
    fill_status(controller, ("replicas",))


def _validate_replication_controller(new: Object, old: Object | None) -> list[FieldError]:
    errs: list[FieldError] = []
    spec = new["spec"]
    errs += validate_counts(spec, ("minReadySeconds", "replicas"), "spec")
    selector, template = spec.get("selector"), spec.get("template")
    if not selector:
        errs.append(required("spec.selector"))
    if template is None:
        errs.append(required("spec.template"))
        return errs
    labels = template["metadata"].get("labels")
    if selector and not from_labels(selector).matches(labels or {}):
        errs.append(invalid("spec.template.metadata.labels", in_key_order(labels), MISMATCH))
    validate_lasting_template(template, "ReplicationController", errs)
    return errs


REPLICATION_CONTROLLER = Strategy(
    default=_default_replication_controller,
    prepare=prepare_replicas,
    validate=_validate_replication_controller,
    validate_status=validate_replica_counts,
    dependents="orphan",
    tracks_generation=True,
    warnings=named_template_warnings,
)
