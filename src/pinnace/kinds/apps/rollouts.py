"""What the kinds that keep copies of a pod running check alike: counts, percentages, selectors and templates."""

from __future__ import annotations

from collections.abc import Iterable

from pinnace.kinds.pods.validation import template_faults
from pinnace.kinds.validation.equality import alike
from pinnace.kinds.validation.fields import in_key_order
from pinnace.model import names
from pinnace.model.field_errors import IMMUTABLE, Cause, forbidden, invalid, not_supported, required
from pinnace.model.objects import Object
from pinnace.model.selectors import from_object, label_selector_faults

NEGATIVE = "must be greater than or equal to 0"
MISMATCH = "`selector` does not match template `labels`"
_MORE_THAN_ALL = "cannot be greater than status.replicas"


def count_faults(holder: Object, fields: Iterable[str], path: str, faults: list[Cause]) -> None:
    """None of these numbers may be negative."""
    for field in fields:
        value = holder.get(field)
        if value is not None and value < 0:
            faults.append(invalid(f"{path}.{field}", value, NEGATIVE))


def replica_status_faults(
    status: Object, parts: Iterable[str], faults: list[Cause], *, ready: str = "readyReplicas"
) -> None:
    """Each part is at most the whole, and what is available is at most what is ready."""
    total, available = status.get("replicas", 0), status.get("availableReplicas", 0)
    for field in parts:
        if status.get(field, 0) > total:
            faults.append(invalid(f"status.{field}", status.get(field, 0), _MORE_THAN_ALL))
    if available > status.get("readyReplicas", 0):
        faults.append(invalid("status.availableReplicas", available, f"cannot be greater than {ready}"))


def collision_faults(new: Object, old: Object, faults: list[Cause]) -> None:
    """The number of hash collisions only grows."""
    before = old.get("status", {}).get("collisionCount")
    now = new.get("status", {}).get("collisionCount")
    if before is not None and (now is None or now < before):
        faults.append(invalid("status.collisionCount", now or 0, "cannot be decremented"))


def amount_faults(value: int | str, path: str, faults: list[Cause]) -> None:
    """A count, or a percentage of one."""
    if isinstance(value, str):
        faults.extend(invalid(path, value, fault) for fault in names.percent(value))
    elif value < 0:
        faults.append(invalid(path, value, NEGATIVE))


def amount_of(value: int | str) -> int:
    """The number before the percent sign, or the number; nothing for what is neither."""
    if isinstance(value, int):
        return value
    digits = value[:-1] if not names.percent(value) else value
    return int(digits) if digits.isascii() and digits.lstrip("+-").isdigit() else 0


def over_all_faults(value: int | str, path: str, faults: list[Cause]) -> None:
    if isinstance(value, str) and not names.percent(value) and int(value[:-1]) > 100:
        faults.append(invalid(path, value, "must not be greater than 100%"))


def shown_selector(selector: Object | None) -> Object | None:
    """A selector as Kubernetes prints it: labels in order, and nothing that is empty."""
    if selector is None:
        return None
    shown: Object = {}
    if labels := selector.get("matchLabels"):
        shown["matchLabels"] = in_key_order(labels)
    if expressions := selector.get("matchExpressions"):
        shown["matchExpressions"] = [_shown_expression(expression) for expression in expressions]
    return shown


def _shown_expression(expression: Object) -> Object:
    shown = {"key": expression.get("key", ""), "operator": expression.get("operator", "")}
    return {**shown, "values": expression["values"]} if expression.get("values") else shown


def selector_faults(spec: Object, kind: str, faults: list[Cause]) -> bool:
    """A selector is needed and may not be empty. Whether it makes sense enough to be matched with a template."""
    selector = spec.get("selector")
    if selector is None:
        faults.append(required("spec.selector"))
        return True
    before = len(faults)
    faults.extend(label_selector_faults(selector, "spec.selector"))
    if not selector.get("matchLabels") and not selector.get("matchExpressions"):
        faults.append(invalid("spec.selector", shown_selector(selector), f"empty selector is invalid for {kind}"))
        return True
    return len(faults) == before


def selector_change_faults(new: Object, old: Object, faults: list[Cause]) -> None:
    if not alike(new["spec"].get("selector"), old["spec"].get("selector")):
        faults.append(invalid("spec.selector", shown_selector(new["spec"].get("selector")), IMMUTABLE))


def matching_faults(spec: Object, faults: list[Cause]) -> None:
    """The selector must find the pods that the template makes; an empty one is told elsewhere."""
    selector = from_object(spec.get("selector"))
    labels = spec["template"]["metadata"].get("labels")
    if not selector.matches_everything and not selector.matches(labels or {}):
        faults.append(invalid("spec.template.metadata.labels", in_key_order(labels), MISMATCH))


def lasting_template_faults(template: Object, kind: str, faults: list[Cause]) -> None:
    """A template for pods that are meant to run on."""
    template_faults(template, "spec.template", faults)
    never_ending_faults(template["spec"], kind, faults)


def never_ending_faults(spec: Object, kind: str, faults: list[Cause]) -> None:
    if spec.get("restartPolicy") != "Always":
        faults.append(not_supported("spec.template.spec.restartPolicy", spec.get("restartPolicy", ""), ["Always"]))
    if "activeDeadlineSeconds" in spec:
        detail = f"activeDeadlineSeconds in {kind} is not Supported"
        faults.append(forbidden("spec.template.spec.activeDeadlineSeconds", detail))
