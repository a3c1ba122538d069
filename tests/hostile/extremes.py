"""The largest values of each field of each built-in kind, found by walking the schemas.

The objects that the fields are set in were recorded from a real kube-apiserver, or are written here. A field that an
object does not have is added with what its structs must have. Validation decides which of the values of a field is the
largest valid one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.controllers.security.test_pod_certificates import pod_certificate_request
from tests.hostile.dimensions import sample

from pinnace.model.objects import Object
from pinnace.model.resources import Resource
from pinnace.schema.shape import Schema
from pinnace.testing.wire import certificates

_RECORDED = Path(__file__).parents[1] / "kinds" / "table_rows_1_36.jsonl"
MOST_DEPTH = 10
Path_ = tuple[str | int, ...]

_INT32 = (2**31 - 1, 1_000_000_000, 86_400, 65_535, 32_767, 10_000, 1_000, 100)
_INT64 = (2**63 - 1, 2**62, 10**12, *_INT32)
_QUANTITIES = ("9223372036854775807E", "9223372036854775807", "8Ei", "1E18", "1" + "0" * 30, "1e-9", "1Ti", "1000")
_TIMES = ("9999-12-31T23:59:59Z", "0001-01-01T00:00:01Z")
_MICRO_TIMES = ("9999-12-31T23:59:59.999999Z",)
_ITEMS = (8_000, 1_000, 100, 20)
_TEXTS = (
    *("a" * size for size in (200_000, 60_000, 8_000, 253, 63)),
    "2562047h47m16s",  # The longest duration that Go holds.
    "2562047h",
    "0,1," * 8_000 + "2",
    "2147483647",
    "*/1," * 8_000 + "* * * * *",
    "1%" + "0" * 400,
)
_INT_OR_TEXT = (2**31 - 1, "2147483647%", "100%", 65_535, 10_000)

_DEPTHS = (200, 60, 20)
"""The depths of JSON of any shape, and of schemas of custom kinds."""

_RULES = [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["CREATE"], "resources": ["limitranges"]}]
WRITTEN: tuple[Object, ...] = (
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"], "resourceNames": ["a"]}],
    },
    {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "webhooks": [
            {
                "name": "a.example.com",
                "clientConfig": {"url": "https://127.0.0.1:1/a"},
                "rules": _RULES,
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
            }
        ],
    },
    {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingAdmissionPolicy",
        "spec": {
            "matchConstraints": {"resourceRules": _RULES},
            "reinvocationPolicy": "Never",
            "failurePolicy": "Ignore",
            "mutations": [
                {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{}"}},
            ],
        },
    },
    {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingAdmissionPolicyBinding",
        "spec": {"policyName": "a"},
    },
    {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceTaintRule",
        "spec": {
            "deviceSelector": {"driver": "gpu.example.com", "pool": "a", "device": "b"},
            "taint": {"key": "example.com/broken", "value": "yes", "effect": "NoExecute"},
        },
    },
    {
        "apiVersion": "storagemigration.k8s.io/v1",
        "kind": "StorageVersionMigration",
        "spec": {"resource": {"group": "", "resource": "configmaps"}},
    },
    {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "spec": {
            "group": "example.com",
            "names": {"plural": "", "kind": ""},  # Set by `Extreme.object`.
            "scope": "Namespaced",
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object"}}}},
                    "additionalPrinterColumns": [{"name": "a", "type": "string", "jsonPath": ".spec.a"}],
                }
            ],
        },
    },
)
"""Of stored kinds that are not among the recorded objects."""


def _written() -> Iterator[Object]:
    yield from WRITTEN
    yield pod_certificate_request("")
    bundle = {"trustBundle": certificates().root_ca.read_text()}
    yield {"apiVersion": "certificates.k8s.io/v1", "kind": "ClusterTrustBundle", "spec": bundle}


VARIANTS: dict[str, Sequence[Mapping[str, Any]]] = {
    "StatefulSet": ({}, {"podManagementPolicy": "Parallel"}),
    "Job": ({}, {"completionMode": "Indexed", "completions": 5, "backoffLimitPerIndex": 1, "backoffLimit": 6}),
}
"""Fields of the spec with which a kind behaves differently."""


@dataclass(frozen=True, slots=True)
class Extreme:
    """One field, and its values: the largest first."""

    resource: Resource
    variant: int
    base: Object
    path: Path_
    values: Sequence[Any]

    def __str__(self) -> str:
        variant = f" ({self.variant})" if self.variant else ""
        return f"{self.resource.kind.name}{variant} {'.'.join(map(str, self.path))}"

    def object(self, name: str, value: Any) -> Object:
        """Return the object with one of the values."""
        obj = deepcopy(self.base)
        if self.resource.kind.name == "CustomResourceDefinition":
            obj["spec"]["names"] |= {"plural": name, "kind": name.title()}
            name = f"{name}.{obj['spec']['group']}"
        obj["metadata"] = {**obj["metadata"], "name": name}
        _put(obj, self.resource.schema, self.path, value)
        return obj


def recorded_objects() -> dict[tuple[str, str], Object]:
    """Return an object of each kind by API version and name of the kind: the one with the most fields."""
    objects = {(obj["apiVersion"], obj["kind"]): {"metadata": {}, **obj} for obj in _written()}
    for line in _RECORDED.read_text().splitlines():
        obj = json.loads(line)["object"]
        known = objects.get((obj["apiVersion"], obj["kind"]))
        if known is None or len(json.dumps(obj)) > len(json.dumps(known)):
            objects[obj["apiVersion"], obj["kind"]] = obj
    return objects


def extremes_of(resource: Resource, recorded: Object, seen: set[tuple[str, str, str]]) -> Iterator[Extreme]:
    """Yield the fields of a kind. `seen` has the fields of structs that were walked before."""
    base = {name: value for name, value in recorded.items() if name != "metadata"}
    kept = {name: recorded["metadata"][name] for name in ("labels", "annotations") if name in recorded["metadata"]}
    base["metadata"] = kept | ({"namespace": "default"} if resource.namespaced else {})
    for number, fields in enumerate(VARIANTS.get(resource.kind.name, ({},))):
        obj = deepcopy(base)
        if fields:
            obj["spec"].update(fields)
        walked = seen if not number else {mark for mark in seen if not mark[0].startswith(f"{resource.kind.name} ")}
        for path, values in _walk(resource.schema, obj, (), walked, kind=resource.kind.name):
            yield Extreme(resource, number, obj, path, values)


def _walk(
    schema: Schema, obj: Any, path: Path_, seen: set[tuple[str, str, str]], *, kind: str
) -> Iterator[tuple[Path_, Sequence[Any]]]:
    if len(path) > MOST_DEPTH:
        return
    for name, child in schema.properties.items():
        if not path and name in ("kind", "apiVersion"):
            continue
        if path == ("metadata",) and name not in ("annotations", "labels", "finalizers", "ownerReferences"):
            continue
        # The same struct in a spec and in a status are two: controllers read one and write the other.
        # The own fields of a kind are walked again though another kind has a template of it, as CronJobs have of Jobs.
        place = f"{kind} {path}" if len(path) < 2 else str(path[0])
        mark = (place, schema.name or str(path), name)
        if mark in seen:
            continue
        seen.add(mark)
        there = obj.get(name) if isinstance(obj, dict) else None
        yield from _values(child, there, (*path, name), seen, kind=kind)


def _values(
    schema: Schema, there: Any, path: Path_, seen: set[tuple[str, str, str]], *, kind: str
) -> Iterator[tuple[Path_, Sequence[Any]]]:
    if schema.items is not None:
        item = schema.items
        first = there[0] if isinstance(there, list) and there else None
        yield path, Sizes(partial(_items, item, first))
        if item.properties:
            yield from _walk(item, first, (*path, 0), seen, kind=kind)
        else:
            yield from _values(item, first, (*path, 0), seen, kind=kind)
    elif schema.additional is not None:
        value = schema.additional
        yield path, Sizes(partial(_entries, value))
        if not value.properties:
            yield from _values(value, None, (*path, "example.com/k"), seen, kind=kind)
    elif schema.properties:
        yield from _walk(schema, there, path, seen, kind=kind)
    elif schema.type in ("", "object"):
        yield path, Sizes(_nested, _DEPTHS)
    elif values := _largest(schema):
        yield path, values


class Sizes(Sequence[Any]):
    """Values of several sizes, made on demand."""

    def __init__(self, make: Callable[[int], Any], sizes: Sequence[int] = _ITEMS) -> None:
        self._make = make
        self._sizes = sizes

    def __len__(self) -> int:
        return len(self._sizes)

    def __getitem__(self, number: Any) -> Any:
        return self._make(self._sizes[number])


def _nested(depth: int) -> Any:
    value: Any = {}
    for _ in range(depth):
        value = {"a": value}
    return value


def _items(item: Schema, first: Any, size: int) -> list[Any]:
    return [_another(item, first, number) for number in range(size)]


def _entries(value: Schema, size: int) -> dict[str, Any]:
    return {f"example.com/k{number}": sample(value, number) for number in range(size)}


def _largest(schema: Schema) -> Sequence[Any]:
    if schema.is_int_or_string:
        return _INT_OR_TEXT
    if schema.is_quantity:
        return _QUANTITIES
    match schema.type, schema.format:
        case "integer", "int64":
            return _INT64
        case "integer", _:
            return _INT32
        case "number", _:
            return (1.7e308, 1e300, 1e9)
        case "string", "date-time":
            return (*_TIMES, *_MICRO_TIMES)
        case "string", _:
            return _TEXTS
    return ()


def _another(item: Schema, first: Any, number: int) -> Any:
    """Return one of many items: like the one that the object has, under another name."""
    if not isinstance(first, dict):
        return sample(item, number)
    names = {*item.list_map_keys, "name", "key", "containerPort", "port"} & first.keys()
    different = {name: _differ(first[name], number) for name in names}
    return {**first, **different} if number else first


def _differ(value: Any, number: int) -> Any:
    return 1 + number % 65_000 if isinstance(value, int) else f"{value}-{number}"


def _put(obj: Any, schema: Schema, path: Path_, value: Any) -> None:
    """Set a field, adding the structs above it with what they must have."""
    head, *rest = path
    if isinstance(head, int):
        if not obj:
            obj.append(None)
        child = schema.items
    else:
        child = schema.properties.get(head) or schema.additional
    assert child is not None
    if not rest:
        obj[head] = value
        return
    there = obj[head] if isinstance(head, int) else obj.get(head)
    if there is None:
        there = [] if child.items is not None else {} if child.additional is not None else _struct(child)
        obj[head] = there
    _put(there, child, tuple(rest), value)


def _struct(schema: Schema) -> Any:
    made = sample(schema, 1)
    return made if isinstance(made, dict) else {}
