"""node.k8s.io: RuntimeClasses."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pinnace.kinds.cells import AGE, NAME, at, string
from pinnace.kinds.core.quotas import canonical_amounts
from pinnace.kinds.golang.printing import GoStruct
from pinnace.kinds.pods.resource_amounts import validate_overhead
from pinnace.kinds.pods.scheduling import validate_toleration
from pinnace.kinds.rows import GA, Row, old
from pinnace.kinds.validation.fields import validate_given_name, validate_immutable
from pinnace.kinds.validation.node_selectors import DEPRECATED_NODE_LABELS
from pinnace.model import names
from pinnace.model.field_errors import FieldError, duplicate
from pinnace.model.resources import Strategy
from pinnace.model.selectors import validate_label
from pinnace.model.typed_objects import RuntimeClass, Scheduling, Toleration

_TOLERATION = GoStruct("Key='' Operator='' Value='' Effect='' TolerationSeconds")


def _default_runtime_class(runtime_class: RuntimeClass) -> None:
    canonical_amounts((runtime_class.get("overhead") or {}).get("podFixed"))


def _validate_runtime_class(runtime_class: RuntimeClass, old: RuntimeClass | None) -> Iterator[FieldError]:
    handler = runtime_class.get("handler", "")
    yield from validate_given_name(handler, names.dns_label, "handler")
    errs: list[FieldError] = []
    if runtime_class.get("overhead") is not None:
        validate_overhead(runtime_class["overhead"].get("podFixed") or {}, "overhead", errs)
    yield from errs
    if runtime_class.get("scheduling") is not None:
        yield from _validate_scheduling(runtime_class["scheduling"])
    if old is not None:
        yield from validate_immutable(handler, old.get("handler", ""), "handler")


def _validate_scheduling(scheduling: Scheduling) -> Iterator[FieldError]:
    yield from validate_label(scheduling.get("nodeSelector"), "scheduling.nodeSelector")
    tolerations: Sequence[Toleration] = scheduling.get("tolerations") or ()
    errs: list[FieldError] = []
    validate_toleration(tolerations, "scheduling.tolerations", errs)
    yield from errs
    seen = set()
    for index, toleration in enumerate(tolerations):
        key = tuple(toleration.get(field, "") for field in ("key", "operator", "value", "effect"))
        if key in seen:
            yield duplicate(f"scheduling.tolerations[{index}]", _TOLERATION.view(toleration))
        seen.add(key)


def _runtime_class_warnings(runtime_class: RuntimeClass, old: RuntimeClass | None) -> Iterator[str]:
    for label in (runtime_class.get("scheduling") or {}).get("nodeSelector") or {}:
        if label in DEPRECATED_NODE_LABELS:
            yield f"scheduling.nodeSelector: {DEPRECATED_NODE_LABELS[label]}"


ROWS = (
    Row(
        group="node.k8s.io",
        name="RuntimeClass",
        plural="runtimeclasses",
        columns=(NAME, string("Handler", "", at("handler")), AGE),
        namespaced=False,
        versions=(GA, old("v1beta1", deprecated="1.22", removed="1.25")),
        strategy=Strategy(
            default=_default_runtime_class,
            qualified_finalizers=False,
            validate=_validate_runtime_class,
            warnings=_runtime_class_warnings,
            may_create_on_update=True,
            may_update_unconditionally=False,
        ),
    ),
)
