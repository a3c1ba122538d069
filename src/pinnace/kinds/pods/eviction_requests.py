"""lifecycle.k8s.io: EvictionRequests, and the Evictions that a controller makes of them; off by default (1.37)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime

from pinnace.kinds.cells import AGE, NAME, UNSET, at, condition, reach, string
from pinnace.kinds.rows import STATUS, Row, on_request
from pinnace.kinds.validation.fields import validate_condition
from pinnace.model import names
from pinnace.model.field_errors import IMMUTABLE, FieldError, invalid, not_supported, required, too_many
from pinnace.model.objects import NOTHING
from pinnace.model.resources import Strategy
from pinnace.model.typed_objects import (
    EvictionRequest,
    EvictionRequestSpec,
    EvictionRequestStatus,
    EvictionRequestTarget,
)

GROUP = "lifecycle.k8s.io"
INTENTS = ("Eviction", "Withdrawn")
_MOST_CONDITIONS = 100
_RESERVED = (".k8s.io", ".kubernetes.io")
_is_uuid = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}").fullmatch


def _validate_request(request: EvictionRequest, old: EvictionRequest | None) -> Iterator[FieldError]:
    spec: EvictionRequestSpec = request.get("spec", NOTHING)
    before: EvictionRequestSpec = (old or NOTHING).get("spec", NOTHING)
    if spec == before and old is not None:
        return
    yield from _validate_target(spec, None if old is None else before)
    yield from _validate_requester(spec.get("requester", ""), None if old is None else before.get("requester", ""))
    intent = spec.get("intent", "")
    if old is not None and intent == before.get("intent", ""):
        return
    if not intent:
        yield required("spec.intent")
    elif intent not in INTENTS:
        yield not_supported("spec.intent", intent, INTENTS)


def _validate_target(spec: EvictionRequestSpec, before: EvictionRequestSpec | None) -> Iterator[FieldError]:
    target: EvictionRequestTarget = spec.get("target") or {}
    if before is not None:
        if target != (before.get("target") or {}):
            yield invalid("spec.target", None, IMMUTABLE)
        return
    pod = target.get("pod")
    if pod is None:
        yield invalid("spec.target", "", "must specify one of: `pod`")
        return
    if not (name := pod.get("name", "")):
        yield required("spec.target.pod.name")
    else:
        for error in names.long_name(name):
            yield invalid("spec.target.pod.name", name, error)
    if not (uid := pod.get("uid", "")):
        yield required("spec.target.pod.uid")
    elif not _is_uuid(uid):
        yield invalid("spec.target.pod.uid", uid, "must be a lowercase UUID in 8-4-4-4-12 format")


def _validate_requester(requester: str, before: str | None) -> Iterator[FieldError]:
    if requester == before:
        return
    if before is not None:
        yield invalid("spec.requester", None, IMMUTABLE)
    if not requester:
        yield required("spec.requester")
    if before is not None or not requester:
        return
    domain = requester.partition("/")[0].strip().lower().rstrip(".")
    if any(domain.endswith(suffix) or domain == suffix.strip(".") for suffix in _RESERVED):
        reserved = ", ".join(f"*{suffix}" for suffix in _RESERVED)
        yield invalid("spec.requester", requester, f"domain names {reserved} are reserved")
    errors = names.qualified_name(requester)
    if not errors and "/" not in requester:
        errors = ["must include a prefix (e.g. 'example.com/key')"]
    for error in errors:
        yield invalid("spec.requester", requester, error)


def _validate_request_status(request: EvictionRequest, old: EvictionRequest | None) -> Iterator[FieldError]:
    status: EvictionRequestStatus = request.get("status") or {}
    before: EvictionRequestStatus = (old or NOTHING).get("status") or {}
    conditions = status.get("conditions") or []
    if len(conditions) > _MOST_CONDITIONS:
        yield too_many("status.conditions", len(conditions), _MOST_CONDITIONS)
    yield from validate_condition(conditions, "status.conditions")
    yield from _validate_observed(status.get("observedGeneration"), before.get("observedGeneration"))


def _validate_observed(observed: int | None, before: int | None) -> Iterator[FieldError]:
    path = "status.observedGeneration"
    if observed == before:
        return
    if observed is None:
        yield invalid(path, None, "field cannot be cleared once set")
        return
    if observed < 1:
        yield invalid(path, observed, "must be greater than or equal to 1")
    if before is not None and observed < before:
        yield invalid(path, observed, f"may not be decreased from {before}")


def _target_type(request: EvictionRequest, now: datetime) -> str:
    return UNSET if reach(request, "spec", "target", "pod") is None else "Pod"


def _request_status(request: EvictionRequest, now: datetime) -> str:
    for type_ in ("TargetEvicted", "Failed"):
        outcome = condition(request, type_)
        if outcome is not None and outcome.get("status") == "True":
            return f"{type_} ({outcome.get('reason', '')})"
    return "Progressing" if (reach(request, "status", "observedGeneration") or 0) > 0 else "Pending"


_SPEC, _STATUS = (f"io.k8s.api.lifecycle.v1alpha1.EvictionRequest{part}" for part in ("Spec", "Status"))

ROWS: Sequence[Row] = (
    Row(
        group=GROUP,
        name="EvictionRequest",
        plural="evictionrequests",
        columns=(
            NAME,
            string("Target", f"{_SPEC}.target", at("spec.target.pod.name", UNSET)),
            string("Target Type", f"{_SPEC}.target", _target_type),
            string("Status", f"{_STATUS}.conditions", _request_status),
            string("Requester", f"{_SPEC}.requester", at("spec.requester")),
            string("Intent", f"{_SPEC}.intent", at("spec.intent")),
            AGE,
        ),
        versions=(on_request("v1alpha1"),),
        subresources=(STATUS,),
        strategy=Strategy(
            validate=_validate_request,
            validate_status=_validate_request_status,
            tracks_generation=True,
            may_update_unconditionally=False,
        ),
        gate="EvictionRequestAPI",
    ),
)
