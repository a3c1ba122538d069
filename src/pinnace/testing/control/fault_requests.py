"""Fault rules as JSON: what a client of the control endpoint sends and gets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from pinnace.model import errors
from pinnace.testing.faults import FaultOptions, FaultRule, Faults, InjectedFault


class FaultEntry(NamedTuple):
    """One fault: the method of `Faults` that adds it, and the parameters that it takes besides the options."""

    add: Callable[..., FaultRule]
    parameters: Mapping[str, tuple[str, tuple[type, ...]]] = {}
    """The method's parameter and the accepted types, by name in JSON."""
    required: tuple[str, ...] = ()


_NUMBER = (int, float)
FAULTS: dict[str, FaultEntry] = {
    "conflict": FaultEntry(Faults.conflict),
    "error": FaultEntry(Faults.error, {"code": ("code", (int,))}),
    "too-many-requests": FaultEntry(Faults.too_many_requests, {"retryAfter": ("retry_after", (int,))}),
    "timeout": FaultEntry(Faults.timeout, {"committed": ("committed", (bool,))}),
    "latency": FaultEntry(Faults.latency, {"seconds": ("seconds", _NUMBER)}, ("seconds",)),
    "stale-reads": FaultEntry(Faults.stale_reads),
    "lose-lease": FaultEntry(Faults.lose_lease, {"holder": ("holder", (str,))}),
    "cut-watch": FaultEntry(Faults.cut_watch),
    "delay-events": FaultEntry(Faults.delay_events, {"seconds": ("seconds", _NUMBER)}, ("seconds",)),
    "withhold-events": FaultEntry(Faults.withhold_events),
    "fail-webhook": FaultEntry(Faults.fail_webhook),
}
_TYPES: dict[str, tuple[type, ...]] = {"times": (int,), "probability": _NUMBER, "seed": (int,)}


def add_rule(faults: Faults, body: Mapping[str, Any]) -> FaultRule:
    """Add the rule of a request. Raise BadRequest."""
    name = body.get("fault")
    entry = FAULTS.get(name) if isinstance(name, str) else None
    if entry is None:
        raise errors.BadRequest(f"fault: expected one of {', '.join(FAULTS)}, found {name!r}")
    known = {
        **entry.parameters,
        **{option: (option, _TYPES.get(option, (str,))) for option in FaultOptions.__annotations__},
    }
    arguments: dict[str, Any] = {}
    for field, value in body.items():
        if field == "fault":
            continue
        if field not in known:
            raise errors.BadRequest(f"{name} has no field {field}; expected {', '.join(known)}")
        parameter, types = known[field]
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            raise errors.BadRequest(
                f"{field}: expected {' or '.join(option.__name__ for option in types)}, found {value!r}"
            )
        arguments[parameter] = value
    for field in entry.required:
        if field not in body:
            raise errors.BadRequest(f"{name} needs the field {field}")
    try:
        return entry.add(faults, **arguments)
    except ValueError as error:
        raise errors.BadRequest(str(error)) from None


def rule_as_json(faults: Faults, rule: FaultRule) -> dict[str, Any]:
    """Return a rule with its number and how often it has happened."""
    return {
        "id": faults.rules.index(rule) + 1,
        "fault": rule.fault,
        **rule.options,
        "count": rule.count,
        "lifted": rule.is_lifted,
    }


def injected_as_json(fault: InjectedFault) -> dict[str, Any]:
    """Return a fault that happened."""
    return {
        "time": fault.time,
        "fault": fault.fault,
        "verb": fault.verb,
        "resource": fault.resource,
        "key": fault.key,
        "user": fault.user,
        "client": fault.client,
    }
