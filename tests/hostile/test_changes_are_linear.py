"""The work of a change grows no faster than the object: it is compared with the object before, in every field.

`test_every_dimension.py` measures creations. Here the steps of a change are measured alone, because few of the
generated objects are valid and can be stored.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import orjson
import pytest
from tests.growth import is_linear
from tests.hostile.dimensions import Dimension
from tests.hostile.test_every_dimension import dimensions
from tests.server.in_process import control_plane

from pinnace.auth.authorization.rules import aggregate_rules
from pinnace.kinds.pods.scheduling import validate_affinity
from pinnace.kinds.pods.updates import validate_pod_update
from pinnace.model.errors import ApplyConflict
from pinnace.model.objects import Object
from pinnace.model.patches import apply, managed_fields
from pinnace.model.patches.managed_fields import Ownership
from pinnace.schema.shape import Schema

pytestmark = pytest.mark.stalls(reason="steps of large changes, measured here")

SAMPLE = 8
PARTS = 20
ITEMS = 2_000
INCOMPLETE = (LookupError, TypeError, ValueError, AttributeError)
"""Raised for a sample that lacks a field which decoded objects have."""
NOW = "2026-01-01T00:00:00Z"
COMPARED = ("CSINode .spec.drivers[]", "Pod .spec.containers[0].ports[]", "Service .spec.loadBalancerSourceRanges[]")
"""Dimensions in which a change once took quadratic time."""


async def all_dimensions() -> list[Dimension]:
    async with control_plane() as api:
        return [
            dimension
            for dimension in dimensions(api)
            if "metadata" not in dimension.path and not dimension.resource.is_converted
        ]


def changed(value: Any) -> Any:
    """Return the value with other names."""
    if isinstance(value, dict):
        return {key: changed(item) for key, item in value.items()}
    if isinstance(value, list):
        return [changed(item) for item in value]
    return f"m{value[1:]}" if isinstance(value, str) and value[:1] == "n" and value[1:].isdigit() else value


def is_change_linear(dimension: Dimension) -> bool:
    strategy = dimension.resource.strategy

    def make(size: int) -> bytes:
        obj = {"metadata": {"name": "input", "namespace": "default", "uid": "u"}, **dimension.build(size)}
        with suppress(*INCOMPLETE):
            strategy.default(obj)
        return orjson.dumps(obj)

    def change(body: bytes) -> None:
        for edit in (dict, changed):
            old, new = orjson.loads(body), edit(orjson.loads(body))
            with suppress(*INCOMPLETE):
                strategy.prepare(new, old)
                list(strategy.validate(new, old))

    return is_linear(change, make, ITEMS)


async def test_the_time_of_a_change_grows_with_the_object() -> None:
    dimensions = [dimension for dimension in await all_dimensions() if " of " not in dimension.path]
    compared = [dimension for dimension in dimensions if str(dimension) in COMPARED]
    assert len(compared) == len(COMPARED)
    sample = compared + random.Random(13).sample(dimensions, SAMPLE)
    assert [str(dimension) for dimension in sample if not is_change_linear(dimension)] == []


@pytest.mark.soak
@pytest.mark.parametrize("part", range(PARTS))
async def test_the_time_of_a_change_grows_with_the_object_in_every_dimension(part: int) -> None:
    dimensions = await all_dimensions()
    assert [str(dimension) for dimension in dimensions[part::PARTS] if not is_change_linear(dimension)] == []


def reverse_tolerations(keys: list[str]) -> None:
    def pod(listed: list[str]) -> Any:
        spec = {"containers": [{"name": "c", "image": "i"}], "tolerations": [{"key": key} for key in listed]}
        return {"metadata": {"name": "p", "namespace": "default"}, "spec": spec}

    validate_pod_update(pod(keys), pod(keys[::-1]))


def exclude_label_keys(keys: list[str]) -> None:
    term = {"topologyKey": "zone", "matchLabelKeys": keys, "mismatchLabelKeys": keys[::-1], "labelSelector": {}}
    affinity: Any = {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    validate_affinity(affinity, "spec.affinity", [])


def conflict_with_two(keys: list[str]) -> None:
    text, texts = {"type": "string"}, {"type": "object", "additionalProperties": {"type": "string"}}
    properties = {"kind": text, "apiVersion": text, "metadata": texts, "data": texts}
    ownership = Ownership(schema=Schema({"type": "object", "properties": properties}), api_version="v1")
    live: Object = {"kind": "A", "apiVersion": "v1", "metadata": {"name": "a"}, "data": {}}
    for manager, some in (("a", keys[::2]), ("b", keys[1::2])):
        new = {**live, "metadata": dict(live["metadata"]), "data": {**live["data"], **dict.fromkeys(some, "v")}}
        managed_fields.after_update(live if live["data"] else None, new, ownership, manager=manager, now=NOW)
        live = new
    applied = {"kind": "A", "apiVersion": "v1", "metadata": {"name": "a"}, "data": dict.fromkeys(keys, "w")}
    with pytest.raises(ApplyConflict):
        apply.apply(live, applied, ownership, manager="c", now=NOW, force=False)


def aggregate(keys: list[str]) -> None:
    parts = [
        {"metadata": {"name": name, "labels": {"a": "b"}}, "rules": [{"resources": [f"{name}-{key}"]} for key in keys]}
        for name in ("first", "second")
    ]
    whole = {"metadata": {"name": "whole"}, "aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}}
    rules = aggregate_rules(whole, parts)
    assert rules is not None and len(rules) == 2 * len(keys)


CHANGES: dict[str, Callable[[list[str]], None]] = {
    "tolerations in another order": reverse_tolerations,
    "label keys that match and mismatch": exclude_label_keys,
    "conflicts with two managers": conflict_with_two,
    "aggregated rules": aggregate,
}


@pytest.mark.parametrize("run", CHANGES.values(), ids=CHANGES)
def test_the_time_grows_with_two_lists(run: Callable[[list[str]], None]) -> None:
    assert is_linear(run, lambda size: [f"key-{number}" for number in range(size)], 6_000)
