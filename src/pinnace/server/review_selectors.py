"""The selectors that a question about access may name: what is wrong with them, and what is understood of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from pinnace.model import errors, field_errors
from pinnace.model.field_errors import FieldError
from pinnace.model.objects import Object
from pinnace.model.selectors import FieldRequirement, FieldSelector, field_selector, from_object, validate_requirement
from pinnace.model.selectors import label_selector as parsed_labels

_PATH = "spec.resourceAttributes"


class Understood(NamedTuple):
    """A field selector in the words of a query, and what had to be ignored of either."""

    fields: str
    ignored: tuple[str, ...]


def validate_selector(about: Object) -> Iterator[FieldError]:
    """What is wrong with the selectors of `resourceAttributes`.

    An operator that nobody knows is not: clients may be newer than we are, and what is ignored only asks for more.
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


def understood(about: Object) -> Understood:
    """What authorizers are told, and what they are not: who asks is told that."""
    fields, field_problem = _fields(about.get("fieldSelector") or {})
    label_problem = _label_problem(about.get("labelSelector") or {})
    failures = (("fieldSelector", field_problem), ("labelSelector", label_problem))
    ignored = tuple(f"{_PATH}.{name} {error} due to parse error" for name, error in failures if error)
    return Understood(fields, ignored)


def _validate_field(requirement: Object, path: str) -> Iterator[FieldError]:
    if not requirement.get("key"):
        yield field_errors.required(f"{path}.key", "must be specified")
    yield from (err for err in validate_requirement(requirement, path) if err.field == f"{path}.values")


def _validate_label(requirement: Object, path: str) -> Iterator[FieldError]:
    yield from (err for err in validate_requirement(requirement, path) if err.field != f"{path}.operator")


def _fields(selector: Object) -> tuple[str, str]:
    """The selector, and whether some or all of it is ignored."""
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
    """As above: nobody here decides by labels, but who asks is told what could not be understood."""
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
