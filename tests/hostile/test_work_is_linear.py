"""The work of a request grows no faster than the request: each dimension of an input is doubled twice and measured.

Measured in CPU time of the process, best of three and without garbage collection, so that a busy machine does not
count. Four times the input takes linear work four times as long, and quadratic work sixteen times as long; the
limit is in the middle. Short times are not judged, and a bad measurement is repeated.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import pytest
from tests.growth import TRIES, no_collection
from tests.server.in_process import (
    APPLY,
    CONFIG_MAPS,
    JSON,
    MERGE,
    OPERATIONS,
    PODS,
    SERVICES,
    InProcess,
    control_plane,
)

GROWTH = 8.0
FLOOR_SECONDS = 0.02
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
STORAGE_CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
QUOTAS = "/api/v1/namespaces/default/resourcequotas"
SELF_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"

pytestmark = pytest.mark.stalls(reason="requests at the limit of their size, measured here")


@dataclass(frozen=True, slots=True)
class Input:
    method: str
    target: str
    body: Any = None
    content_type: str = JSON
    accept: str = JSON


def create(target: str, **fields: Any) -> Input:
    metadata = {"name": "input", **fields.pop("metadata", {})}
    return Input("POST", f"{target}?dryRun=All", {"metadata": metadata, **fields})


def container(**fields: Any) -> dict[str, Any]:
    return {"name": "c", "image": "i", **fields}


def pod(**fields: Any) -> Input:
    return create(PODS, spec={"containers": [container(**fields)]})


def nested(depth: int) -> Any:
    value: Any = "end"
    for _ in range(depth):
        value = {"a": value}
    return value


def owner(number: int) -> dict[str, str]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "name": f"owner-{number}", "uid": f"uid-{number}"}


def definition(properties: dict[str, Any]) -> Input:
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
    }
    names = {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"}
    spec = {"group": "example.com", "scope": "Namespaced", "names": names, "versions": [version]}
    return create(CRDS, metadata={"name": "things.example.com"}, spec=spec)


def rule(expression: str) -> Input:
    return definition({"spec": {"type": "string", "x-kubernetes-validations": [{"rule": expression}]}})


DIMENSIONS: dict[str, tuple[int, Callable[[int], Input]]] = {
    "body bytes": (600_000, lambda n: create(CONFIG_MAPS, data={"a": "x" * n})),
    "fields": (15_000, lambda n: create(CONFIG_MAPS, data={f"k{i}": "" for i in range(n)})),
    "unknown fields": (10_000, lambda n: create(CONFIG_MAPS, **{f"k{i}": i for i in range(n)})),
    "unknown fields of a review": (10_000, lambda n: create(SELF_REVIEWS, **{f"k{i}": i for i in range(n)})),
    "depth": (100, lambda n: create(CONFIG_MAPS, odd=nested(n))),
    "items of a list": (4_000, lambda n: pod(args=["x"] * n)),
    "variables": (3_000, lambda n: pod(env=[{"name": f"E{i}", "value": "v"} for i in range(n)])),
    "duplicate variables": (3_000, lambda n: pod(env=[{"name": "E", "value": "v"} for _ in range(n)])),
    "ports": (3_000, lambda n: pod(ports=[{"containerPort": 1 + i} for i in range(n)])),
    "labels": (10_000, lambda n: create(CONFIG_MAPS, metadata={"labels": {f"l{i}": "v" for i in range(n)}})),
    "annotations": (4_000, lambda n: create(CONFIG_MAPS, metadata={"annotations": {f"l{i}": "v" for i in range(n)}})),
    "bad labels": (4_000, lambda n: create(CONFIG_MAPS, metadata={"labels": {f"l {i}": "v" for i in range(n)}})),
    "owners": (6_000, lambda n: create(CONFIG_MAPS, metadata={"ownerReferences": [owner(i) for i in range(n)]})),
    "finalizers": (20_000, lambda n: create(CONFIG_MAPS, metadata={"finalizers": [f"a/f{i}" for i in range(n)]})),
    "patch operations": (
        3_000,
        lambda n: Input(
            "PATCH",
            f"{CONFIG_MAPS}/there?dryRun=All",
            [{"op": "add", "path": f"/data/k{i}", "value": "v"} for i in range(n)],
            OPERATIONS,
        ),
    ),
    "merged fields": (
        8_000,
        lambda n: Input("PATCH", f"{CONFIG_MAPS}/there?dryRun=All", {"data": {f"k{i}": "" for i in range(n)}}, MERGE),
    ),
    "applied fields": (
        5_000,
        lambda n: Input(
            "PATCH",
            f"{CONFIG_MAPS}/there?dryRun=All&fieldManager=m&force=true",
            {"apiVersion": "v1", "kind": "ConfigMap", "data": {f"k{i}": "" for i in range(n)}},
            APPLY,
        ),
    ),
    "selector terms": (
        6_000,
        lambda n: Input("GET", f"{CONFIG_MAPS}?labelSelector=" + ",".join(f"l{i}!=x" for i in range(n))),
    ),
    "selector values": (
        10_000,
        lambda n: Input("GET", f"{CONFIG_MAPS}?labelSelector=a+in+(" + ",".join(f"v{i}" for i in range(n)) + ")"),
    ),
    "topology terms": (
        4_000,
        lambda n: create(STORAGE_CLASSES, provisioner="example.com/disk", allowedTopologies=[{} for _ in range(n)]),
    ),
    "node ports": (
        600,
        lambda n: create(
            SERVICES, spec={"type": "NodePort", "ports": [{"name": f"p{i}", "port": 1 + i} for i in range(n)]}
        ),
    ),
    "quantity digits": (400_000, lambda n: create(QUOTAS, spec={"hard": {"cpu": "0" * n + "x"}})),
    "quantity of ones": (400_000, lambda n: create(QUOTAS, spec={"hard": {"cpu": "1" * n}})),
    "schema properties": (1_000, lambda n: definition({f"p{i}": {"type": "string"} for i in range(n)})),
    "pattern": (20_000, lambda n: definition({"p": {"type": "string", "pattern": "(a|b)*" * (n // 6)}})),
    "expression": (400, lambda n: rule(" && ".join(["self != 'x'"] * n))),
}


@pytest.fixture
async def api() -> AsyncIterator[InProcess]:
    async with control_plane() as plane:
        await plane.made(CONFIG_MAPS, {"metadata": {"name": "there"}, "data": {}})
        yield plane


async def cpu_seconds(api: InProcess, given: Input) -> float:
    best = float("inf")
    for _ in range(3):
        with no_collection():
            start = time.process_time()
            reply = await api.call(given.method, given.target, given.body, given.content_type)
            best = min(best, time.process_time() - start)
        assert reply.status < 500, reply.body[:500]
    return best


@pytest.mark.parametrize(("size", "build"), DIMENSIONS.values(), ids=DIMENSIONS)
async def test_the_time_grows_with_the_input(api: InProcess, size: int, build: Callable[[int], Input]) -> None:
    await cpu_seconds(api, build(size // 10))  # Compile and import what the first request needs.
    for _ in range(TRIES):
        large = await cpu_seconds(api, build(4 * size))
        small = await cpu_seconds(api, build(size))
        if large <= max(FLOOR_SECONDS, GROWTH * small):
            return
    pytest.fail(f"{size}: {small:.3f} s, {4 * size}: {large:.3f} s")
