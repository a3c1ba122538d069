"""Defaults and validation of runtime classes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pinnace.kinds.core.quotas import canonical_amounts
from pinnace.kinds.golang.printing import GoStruct
from pinnace.kinds.pods.resource_amounts import validate_overhead
from pinnace.kinds.pods.scheduling import validate_toleration
from pinnace.kinds.validation.fields import validate_immutable, validate_name
from pinnace.kinds.validation.node_selectors import DEPRECATED_NODE_LABELS
from pinnace.model import names
from pinnace.model.field_errors import FieldError, duplicate, required
from pinnace.model.objects import Object
from pinnace.model.resources import Strategy
from pinnace.model.selectors import validate_label

_TOLERATION = GoStruct("Key='' Operator='' Value='' Effect='' TolerationSeconds")


def _default_runtime_class(runtime_class: Object) -> None:
    canonical_amounts((runtime_class.get("overhead") or {}).get("podFixed"))


def _validate_runtime_class(runtime_class: Object, old: Object | None) -> Iterator[FieldError]:
    handler = runtime_class.get("handler", "")
    if not handler:
        yield required("handler")
    else:
        yield from validate_name(handler, names.dns_label, "handler")
    errs: list[FieldError] = []
    if runtime_class.get("overhead") is not None:
        validate_overhead(runtime_class["overhead"].get("podFixed") or {}, "overhead", errs)
    yield from errs
    if runtime_class.get("scheduling") is not None:
        yield from _validate_scheduling(runtime_class["scheduling"])
    if old is not None:
        yield from validate_immutable(handler, old.get("handler", ""), "handler")


def _validate_scheduling(scheduling: Object) -> Iterator[FieldError]:
    yield from validate_label(scheduling.get("nodeSelector"), "scheduling.nodeSelector")
    tolerations: Sequence[Object] = scheduling.get("tolerations") or ()
    errs: list[FieldError] = []
    validate_toleration(tolerations, "scheduling.tolerations", errs)
    yield from errs
    seen = set()
    for index, toleration in enumerate(tolerations):
        key = tuple(toleration.get(field, "") for field in ("key", "operator", "value", "effect"))
        if key in seen:
            yield duplicate(f"scheduling.tolerations[{index}]", _TOLERATION.view(toleration))
        seen.add(key)


def _runtime_class_warnings(runtime_class: Object, old: Object | None) -> Iterator[str]:
    for label in (runtime_class.get("scheduling") or {}).get("nodeSelector") or {}:
        if label in DEPRECATED_NODE_LABELS:
            yield f"scheduling.nodeSelector: {DEPRECATED_NODE_LABELS[label]}"


RUNTIME_CLASS = Strategy(
    default=_default_runtime_class,
    validate=_validate_runtime_class,
    warnings=_runtime_class_warnings,
    may_create_on_update=True,
    may_update_unconditionally=False,
)
