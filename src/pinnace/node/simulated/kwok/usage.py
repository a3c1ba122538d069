"""KWOK's ResourceUsage and ClusterResourceUsage: the usage of simulated pods by amounts and CEL expressions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any

import yaml

from pinnace.model import quantity
from pinnace.model.objects import Object
from pinnace.node.simulated.kwok.files import API_VERSION
from pinnace.node.simulated.stages import InvalidUsage
from pinnace.process.clock import Clock
from pinnace.schema.cel.environment import KUBERNETES, Environment
from pinnace.schema.cel.errors import CelError, CompileError, InstantiationError
from pinnace.schema.cel.overloads import Library, Overload, function, library, member, overload
from pinnace.schema.cel.program import Program, compile_cel
from pinnace.schema.cel.run import CelRun
from pinnace.schema.cel.types import DOUBLE, DYN, INT, STRING, TIMESTAMP, Type
from pinnace.schema.cel.values import NANOS, Timestamp, divide_double

KINDS = ("ResourceUsage", "ClusterResourceUsage")
_VARIABLES = {"pod": DYN, "node": DYN, "container": DYN}
_MOST_COST = 100_000
"""The largest cost of one evaluation: a formula over a pod needs a few hundred."""
_FIELDS = {
    "spec": frozenset(("usages", "selector")),
    "selector": frozenset(("matchNames", "matchNamespaces")),
    "usages": frozenset(("containers", "usage")),
    "usage": frozenset(("value", "expression")),
}
_OPERATORS: dict[str, Callable[[float, float], float]] = {
    "_+_": lambda a, b: a + b,
    "_-_": lambda a, b: a - b,
    "_*_": lambda a, b: a * b,
    "_/_": divide_double,
}


class UsageExpressions:
    """Compiles the expressions of usages, with KWOK's functions: Quantity, Rand, Now, SinceSecond and UnixSecond."""

    def __init__(self, clock: Clock, random: Random | None = None) -> None:
        self._clock = clock
        self._random = random or Random()
        self._environment = Environment((*KUBERNETES.libraries, self._functions(), _mixed_arithmetic()))

    def compile(self, text: str) -> Program:
        """Raise InvalidUsage with the place of the error."""
        try:
            return compile_cel(text, _VARIABLES, environment=self._environment)
        except (CompileError, InstantiationError) as error:
            raise InvalidUsage(f"the expression {text.strip()!r} cannot be compiled: {error}") from None

    def _functions(self) -> Library:
        return library(
            _both("Quantity", ((STRING, _number_of), (DOUBLE, float)), DOUBLE),
            _both("SinceSecond", ((DYN, self._since_second),), DOUBLE),
            _both("UnixSecond", ((TIMESTAMP, _unix_second), (STRING, _unix_second)), DOUBLE),
            function("Rand", overload("kwok_rand", (), DOUBLE, self._random.random)),
            function("Now", overload("kwok_now", (), TIMESTAMP, self._now)),
            function("now", overload("kwok_old_now", (), TIMESTAMP, self._now)),
        )

    def _now(self) -> Timestamp:
        return Timestamp(int(self._clock.now().timestamp() * 1e6) * 1000)

    def _since_second(self, obj: Object) -> float:
        created = datetime.fromisoformat(obj["metadata"]["creationTimestamp"])
        return (self._clock.now() - created).total_seconds()


@dataclass(frozen=True, slots=True)
class _Amount:
    """An amount, or the expression that computes it."""

    value: float = 0.0
    program: Program | None = None

    def evaluate(self, variables: Mapping[str, Any]) -> float:
        """Return the amount. Raise InvalidUsage if the expression has no value here, or none that is an amount."""
        if self.program is None:
            return self.value
        text = self.program.expression.strip()
        try:
            result = self.program.evaluate_in(CelRun(variables, _MOST_COST))
        except CelError as error:
            raise InvalidUsage(f"the expression {text!r} has no value: {error}") from None
        if isinstance(result, bool) or not isinstance(result, int | float):
            raise InvalidUsage(f"the expression {text!r} returns {type(result).__name__}; expected a number")
        if not math.isfinite(result) or result < 0:
            # Without the value, which may change with time: the message is reported once.
            sort = "a negative number" if result < 0 else "no finite number"
            raise InvalidUsage(f"the expression {text!r} returns {sort}; expected an amount of at least 0")
        return float(result)


@dataclass(frozen=True, slots=True)
class SimulatedUsage:
    """One ResourceUsage or ClusterResourceUsage."""

    document: Object
    names: frozenset[str]
    namespaces: frozenset[str]
    """The pods that it is for; empty for all."""
    usages: Sequence[tuple[frozenset[str], Mapping[str, _Amount]]]
    """The amounts by resource, for the containers with these names; without names for all others."""

    @property
    def is_for_one_pod(self) -> bool:
        return bool(self.document.get("kind") == "ResourceUsage")

    def selects(self, namespace: str, name: str) -> bool:
        return (not self.names or name in self.names) and (not self.namespaces or namespace in self.namespaces)

    def of_container(self, name: str) -> Mapping[str, _Amount] | None:
        """Return the amounts of a container: by its name, or else by the first group without names."""
        named = next((amounts for names, amounts in self.usages if name in names), None)
        return named or next((amounts for names, amounts in self.usages if not names), None)


def parse_usage(document: Object, expressions: UsageExpressions) -> SimulatedUsage:
    """Compile a ResourceUsage or ClusterResourceUsage. Raise InvalidUsage."""
    metadata, spec = document.get("metadata") or {}, document.get("spec") or {}
    try:
        _check_fields(spec, "spec")
        usages = [_parse_group(usage, expressions) for usage in spec.get("usages") or ()]
        selector = spec.get("selector") or {}
        _check_fields(selector, "selector")
        names, namespaces = selector.get("matchNames") or (), selector.get("matchNamespaces") or ()
        if document["kind"] == "ResourceUsage":
            names, namespaces = (metadata["name"],), (metadata.get("namespace") or "default",)
        return SimulatedUsage(document, frozenset(names), frozenset(namespaces), usages)
    except (KeyError, TypeError, AttributeError) as error:
        raise InvalidUsage(f"it has not the form of a {document.get('kind')}: {error!r}") from None


def load_usages(path: Path, expressions: UsageExpressions) -> list[SimulatedUsage]:
    """Read the usages of a YAML file. Skip documents of other kinds. Raise InvalidUsage."""
    try:
        documents = list(yaml.load_all(path.read_text(), yaml.CSafeLoader))
    except OSError as error:
        raise InvalidUsage(f"{path} cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidUsage(f"{path} is not YAML: {error}") from None
    usages = []
    for document in _usages_in(documents):
        name = (document.get("metadata") or {}).get("name")
        try:
            usages.append(parse_usage(document, expressions))
        except InvalidUsage as error:
            raise InvalidUsage(f"{path}: {document['kind']} {name!r}: {error}") from None
    if not usages:
        raise InvalidUsage(f"{path} has no {' or '.join(KINDS)} of {API_VERSION}")
    return usages


def amounts_of(usages: Sequence[SimulatedUsage], pod: Object, node: Object, container: Object) -> dict[str, float]:
    """Return cpu and memory of a container by the first usage that knows it; 0 for what none names.

    Raise InvalidUsage, which names the usage.
    """
    matching = ((usage, amounts) for usage in usages if (amounts := usage.of_container(container["name"])) is not None)
    usage, amounts = next(matching, (None, {}))
    variables = {"pod": pod, "node": node, "container": container}
    try:
        return {
            resource: amounts[resource].evaluate(variables) if resource in amounts else 0.0
            for resource in ("cpu", "memory")
        }
    except InvalidUsage as error:
        error.usage = usage.document if usage is not None else {}
        raise


def as_variable(obj: Object) -> Object:
    """Return a pod or node as expressions see it: with labels and annotations, and with amounts as numbers."""
    metadata = {"labels": {}, "annotations": {}, **obj["metadata"]}
    variable = {**obj, "metadata": metadata}
    status = obj.get("status") or {}
    spec = obj.get("spec") or {}
    if "containers" in spec:
        variable["spec"] = {**spec, "containers": [container_variable(container) for container in spec["containers"]]}
    if "capacity" in status or "allocatable" in status:
        lists = {name: _numbers(status.get(name)) for name in ("capacity", "allocatable")}
        variable["status"] = {**status, **lists}
    return variable


def container_variable(container: Object) -> Object:
    resources = container.get("resources") or {}
    return {
        **container,
        "resources": {**resources, **{name: _numbers(resources.get(name)) for name in ("requests", "limits")}},
    }


def _usages_in(documents: Sequence[Any]) -> Iterator[Object]:
    for document in documents:
        if not isinstance(document, dict):
            continue
        if str(document.get("kind", "")).endswith("List"):
            yield from _usages_in(document.get("items") or ())
        elif document.get("apiVersion") == API_VERSION and document.get("kind") in KINDS:
            yield document


def _parse_group(group: Object, expressions: UsageExpressions) -> tuple[frozenset[str], dict[str, _Amount]]:
    _check_fields(group, "usages")
    amounts = {name: _parse_value(amount, expressions) for name, amount in (group.get("usage") or {}).items()}
    return frozenset(group.get("containers") or ()), amounts


def _parse_value(given: Object, expressions: UsageExpressions) -> _Amount:
    """Return the amount. A value wins over an expression."""
    _check_fields(given, "usage")
    if given.get("value") is not None:
        return _Amount(_parse_amount(given["value"]))
    return _Amount(program=expressions.compile(given["expression"])) if given.get("expression") else _Amount()


def _check_fields(part: Object, where: str) -> None:
    unknown = sorted(part.keys() - _FIELDS[where])
    if unknown:
        raise InvalidUsage(
            f"the field {unknown[0]} is not known in {where}; known: {', '.join(sorted(_FIELDS[where]))}"
        )


def _parse_amount(text: str | int | float) -> float:
    try:
        return float(quantity.parse(text).amount)
    except quantity.InvalidQuantity as error:
        raise InvalidUsage(f"{text!r} is not a quantity: {error}") from None


def _number_of(text: str) -> float:
    """Return a quantity as a number, within an expression. Raise CelError."""
    try:
        return _parse_amount(text)
    except InvalidUsage as error:
        raise CelError(str(error)) from None


def _numbers(amounts: Mapping[str, Any] | None) -> dict[str, float]:
    return {name: _parse_amount(amount) for name, amount in (amounts or {}).items()}


def _unix_second(moment: Timestamp | str) -> float:
    return datetime.fromisoformat(moment).timestamp() if isinstance(moment, str) else moment.nanos / NANOS


def _both(
    name: str, overloads: Sequence[tuple[Type, Callable[..., Any]]], result: Type
) -> Mapping[str, tuple[Overload, ...]]:
    """Declare a function that may also be called as a method of its parameter."""
    made = []
    for type, call in overloads:
        made.append(overload(f"kwok_{name}_{type.kind}", (type,), result, call))
        made.append(member(f"kwok_{type.kind}_{name}", (type,), result, call))
    return function(name, *made)


def _mixed_arithmetic() -> Library:
    """Amounts are doubles here: as in KWOK they are computed with integers, too."""
    mixed = ((INT, DOUBLE), (DOUBLE, INT))
    return library(
        *(
            function(
                name,
                *(overload(f"kwok_{name}_{a.kind}_{b.kind}", (a, b), DOUBLE, _on_floats(operator)) for a, b in mixed),
            )
            for name, operator in _OPERATORS.items()
        )
    )


def _on_floats(operator: Callable[[float, float], float]) -> Callable[[Any, Any], float]:
    return lambda a, b: operator(float(a), float(b))
