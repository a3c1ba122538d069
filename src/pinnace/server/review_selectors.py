"""Selectors in access reviews: their validation, and the parts that authorizers understand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pinnace.model import errors, field_errors
from pinnace.model.field_errors import FieldError
from pinnace.model.objects import Object
from pinnace.model.selectors import FieldRequirement, FieldSelector, field_selector, from_object, validate_requirement
from pinnace.model.selectors import label_selector as parsed_labels

_PATH = "spec.resourceAttributes"


class UsableSelectors(NamedTuple):
    """A field selector as a query string, and messages about ignored selectors."""

    fields: str
    ignored: tuple[str, ...]


def validate_selector(about: Object) -> Iterator[FieldError]:
    """Validate the selectors of `resourceAttributes`.

    An unknown operator is no error: the client may be newer, and ignoring it only widens the question.
    """
    for name in ("fieldSelector", "labelSelector"):
        selector, path = about.get(name), f"{_PATH}.{name}"
        if selector is None:
            continue
        raw, requirements = selector.get("rawSelector"), selector.get("requirements") or ()
        if raw and requirements:
            yield field_errors.invalid(f"{path}.rawSelector", raw, "may not specified at the same time as requirements")
        if not raw and not requirements:
            detail = f"when {path} is specified, requirements or rawSelector is required"
            yield field_errors.required(f"{path}.requirements", detail)
        for index, requirement in enumerate(requirements):
            of_one = _validate_field if name == "fieldSelector" else _validate_label
            yield from of_one(requirement, f"{path}.requirements[{index}]")


def usable_selectors(about: Object) -> UsableSelectors:
    """Return the part of the selectors that authorizers use, with messages about the rest."""
    fields, field_problem = _fields(about.get("fieldSelector") or {})
    label_problem = _label_problem(about.get("labelSelector") or {})
    failures = (("fieldSelector", field_problem), ("labelSelector", label_problem))
    ignored = tuple(f"{_PATH}.{name} {error} due to parse error" for name, error in failures if error)
    return UsableSelectors(fields, ignored)


def _validate_field(requirement: Object, path: str) -> Iterator[FieldError]:
    if not requirement.get("key"):
        yield field_errors.required(f"{path}.key", "must be specified")
    yield from (err for err in validate_requirement(requirement, path) if err.field == f"{path}.values")


def _validate_label(requirement: Object, path: str) -> Iterator[FieldError]:
    yield from (err for err in validate_requirement(requirement, path) if err.field != f"{path}.operator")


def _fields(selector: Object) -> tuple[str, str]:
    """Return the selector, and whether some or all of it is ignored."""
    if raw := selector.get("rawSelector"):
        try:
            return str(field_selector(raw)), ""
        except errors.BadRequest:
            return "", "ignored"
    given, known = selector.get("requirements") or (), []
    for one in given:
        operator = {"In": "=", "NotIn": "!="}.get(one.get("operator", ""))
        values = one.get("values") or []
        if operator is not None and len(values) == 1:
            known.append(FieldRequirement(one["key"], operator, values[0]))
    return str(FieldSelector(tuple(known))), _extent(len(known), len(given))


def _label_problem(selector: Object) -> str:
    """Return whether some or all of a label selector is ignored. No authorizer uses it; the answer mentions it."""
    if raw := selector.get("rawSelector"):
        try:
            parsed_labels(raw)
        except errors.BadRequest:
            return "ignored"
        return ""
    given = selector.get("requirements") or ()
    return _extent(sum(_is_known(one) for one in given), len(given))


def _is_known(requirement: Object) -> bool:
    try:
        from_object({"matchExpressions": [requirement]})
    except ValueError:
        return False
    return True


def _extent(known: int, given: int) -> str:
    if known == given:
        return ""
    return "partially ignored" if known else "ignored"
