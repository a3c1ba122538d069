"""The work of a request grows no faster than the request, in every field of every built-in kind.

The dimensions come from the schemas (`dimensions.py`), and from the parameters, headers and paths that the server reads
(`protocol.py`). `test_work_is_linear.py` has those that need several parts to grow together.
`make test` measures a sample, `make soak` measures all.
"""

from __future__ import annotations

import random
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.growth import FLOOR, TRIES, no_collection
from tests.hostile.dimensions import Dimension, walk
from tests.hostile.protocol import CHARACTERS, ProtocolDimension, walk_protocol
from tests.server.in_process import InProcess, control_plane

from pinnace.serving.write import pipeline
from pinnace.serving.write.pipeline import validate

pytestmark = pytest.mark.stalls(reason="requests at the limit of their size, measured here")

GROWTH, MOST_GROWTH = 16, 48
"""How much larger the second input is, and how much longer it may take. Quadratic work takes up to 256 times."""
SAMPLE = 30
PARTS = 20
"""How many parts all dimensions are measured in."""


@pytest.fixture
async def api() -> AsyncIterator[InProcess]:
    async with control_plane() as plane:
        yield plane


def dimensions(api: InProcess) -> list[Dimension]:
    seen: set[tuple[str, str]] = set()
    listed: list[Dimension] = []
    for resource in sorted(api.plane.registry, key=lambda served: (served.group, served.plural, served.version)):
        if "create" in resource.verbs and resource.kind == resource.stored:
            listed += walk(resource, seen)
    return listed


def target_of(dimension: Dimension) -> str:
    resource = dimension.resource
    root = f"/apis/{resource.group}/{resource.version}" if resource.group else f"/api/{resource.version}"
    return f"{root}/{'namespaces/default/' if resource.namespaced else ''}{resource.plural}?dryRun=All"


async def cpu_seconds(api: InProcess, dimension: Dimension, size: int) -> float:
    """Return the CPU time of a create, the best of some."""
    obj: dict[str, Any] = dimension.build(size)
    if isinstance(obj.get("metadata", {}), dict):
        obj["metadata"] = {"name": "input", **obj.get("metadata", {})}
    best = float("inf")
    for _ in range(3):
        with no_collection():
            start = time.process_time()
            reply = await api.post(target_of(dimension), obj)
            best = min(best, time.process_time() - start)
        # Kubernetes answers 500 without a reason where a check has no other code, as of a Binding without a target.
        assert reply.status < 500 or "reason" not in reply.json, (str(dimension), reply.body[:300])
        if best < FLOOR:
            break
    return best


async def cpu_seconds_of_request(api: InProcess, dimension: ProtocolDimension, size: int) -> float:
    """Return the CPU time of a request, the best of some."""
    best = float("inf")
    for _ in range(3):
        with no_collection():
            start = time.process_time()
            status = await dimension.send(api, size)
            best = min(best, time.process_time() - start)
        assert status < 500, (str(dimension), status)
        if best < FLOOR:
            break
    return best


async def is_linear(api: InProcess, dimension: Dimension | ProtocolDimension) -> bool:
    async def measure(size: int) -> float:
        if isinstance(dimension, ProtocolDimension):
            return await cpu_seconds_of_request(api, dimension, size)
        return await cpu_seconds(api, dimension, size)

    most = CHARACTERS if isinstance(dimension, ProtocolDimension) else dimension.size
    await measure(2)  # Compile and import what the first request needs.
    for _ in range(TRIES):
        large = await measure(most)
        if large < FLOOR or large <= MOST_GROWTH * await measure(most // GROWTH):
            return True
    return False


async def test_there_are_dimensions_of_each_sort(api: InProcess) -> None:
    paths = {dimension.path for dimension in dimensions(api)}
    assert len(paths) > 500
    common = {".metadata.finalizers[]", ".metadata.ownerReferences[]", ".metadata.annotations{k} of a"}
    assert common | {".data{}", ".spec.containers[]", ".spec.hard{k} of 0"} <= paths


async def test_the_time_grows_with_the_input_in_a_sample_of_dimensions(api: InProcess) -> None:
    sample = random.Random(13).sample(dimensions(api), SAMPLE)
    assert [str(dimension) for dimension in sample if not await is_linear(api, dimension)] == []


async def test_the_protocol_has_dimensions_of_each_sort(api: InProcess) -> None:
    names = {str(dimension) for dimension in await walk_protocol(api)}
    assert len(names) > 200
    assert any("labelSelector as a list" in name for name in names)
    assert {"get accept as wildcards", "get impersonate-group as letters", "delete path of segments"} <= names


async def test_the_time_grows_with_the_request_in_a_sample_of_the_protocol(api: InProcess) -> None:
    sample = random.Random(13).sample(await walk_protocol(api), SAMPLE)
    assert [str(dimension) for dimension in sample if not await is_linear(api, dimension)] == []


@pytest.mark.soak
@pytest.mark.parametrize("part", range(PARTS))
async def test_the_time_grows_with_the_request_in_every_dimension(api: InProcess, part: int) -> None:
    walked = await walk_protocol(api)
    assert [str(dimension) for dimension in walked[part::PARTS] if not await is_linear(api, dimension)] == []


@pytest.mark.soak
@pytest.mark.parametrize("part", range(PARTS))
async def test_the_time_grows_with_the_input_in_every_dimension(api: InProcess, part: int) -> None:
    assert [str(dimension) for dimension in dimensions(api)[part::PARTS] if not await is_linear(api, dimension)] == []


async def test_quadratic_work_is_found(api: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:

    def compare_all(call: Any, new: Any, old: Any) -> None:
        keys = list(new.get("data") or ())
        assert all(key in keys for key in keys)  # A search through a list for each of its items.
        validate(call, new, old)

    [data] = [dimension for dimension in dimensions(api) if str(dimension) == "ConfigMap .data{}"]
    assert await is_linear(api, data)
    monkeypatch.setattr(pipeline, "validate", compare_all)
    assert not await is_linear(api, data)
