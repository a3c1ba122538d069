"""Requests at the limit of their size do not hold the event loop. The gate in `tests/conftest.py` judges each test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from tests.hostile.test_work_is_linear import DIMENSIONS, SELF_REVIEWS, Input, container, create
from tests.server.in_process import CONFIG_MAPS, DEPLOYMENTS, PODS, InProcess, control_plane

YAML = "application/yaml"

LARGEST = {"finalizers": 150_000, "owners": 20_000, "unknown fields": 120_000, "expression": 4_000}
"""The sizes of the dimensions that reach the limit of a body only with more than the complexity test needs."""


def yaml_fields(count: int) -> bytes:
    return b"".join(b"k%d: [a, {b: c}]\n" % number for number in range(count))


def review(**attributes: Any) -> Input:
    return create(SELF_REVIEWS, spec={"resourceAttributes": {"verb": "list", "resource": "pods", **attributes}})


LONG_WORK: dict[str, tuple[int, Callable[[int], Input]]] = {
    "options of a deletion": (
        20_000,
        lambda n: Input("DELETE", f"{CONFIG_MAPS}/there?dryRun=All", yaml_fields(n), YAML),
    ),
    "options of deletions": (
        20_000,
        lambda n: Input("DELETE", f"{CONFIG_MAPS}?dryRun=All", yaml_fields(n), YAML),
    ),
    "eviction": (20_000, lambda n: Input("POST", f"{PODS}/there/eviction", yaml_fields(n), YAML)),
    "binding": (20_000, lambda n: Input("POST", f"{PODS}/there/binding", yaml_fields(n), YAML)),
    "scale": (20_000, lambda n: Input("PUT", f"{DEPLOYMENTS}/there/scale", yaml_fields(n), YAML)),
    "labels of a review": (
        120_000,
        lambda n: create(SELF_REVIEWS, metadata={"labels": {f"l{i}": "v" for i in range(n)}}),
    ),
    "finalizers of a review": (
        120_000,
        lambda n: create(SELF_REVIEWS, metadata={"finalizers": [f"a/{i}" for i in range(n)]}),
    ),
    "labels that a review selects": (
        80_000,
        lambda n: review(labelSelector={"rawSelector": ",".join(f"l{i} in (a,b)" for i in range(n))}),
    ),
    "fields that a review selects": (
        40_000,
        lambda n: review(
            fieldSelector={"requirements": [{"key": f"k{i}", "operator": "In", "values": ["v"]} for i in range(n)]}
        ),
    ),
    "errors as YAML": (
        20_000,
        lambda n: Input(
            "POST",
            f"{PODS}?dryRun=All",
            {"metadata": {"name": "input"}, "spec": {"containers": [{"name": f"c{i}"} for i in range(n)]}},
            accept=YAML,
        ),
    ),
    "empty containers": (
        99_000,
        lambda n: create(PODS, spec={"containers": [{}] * n}),
    ),
    "keys as YAML": (
        30_000,
        lambda n: Input(
            "POST",
            f"{CONFIG_MAPS}?dryRun=All",
            {"metadata": {"name": "input"}, "data": {"k" * 200: "", **{f"k{i}": "" for i in range(n)}}},
            accept=YAML,
        ),
    ),
    "list as YAML": (10_000, lambda n: Input("GET", f"{CONFIG_MAPS}?labelSelector=large", accept=YAML)),
}
"""Work that is linear, and long for the largest input."""


@pytest.fixture
async def api() -> AsyncIterator[InProcess]:
    async with control_plane() as plane:
        await plane.made(CONFIG_MAPS, {"metadata": {"name": "there"}, "data": {}})
        yield plane


@pytest.fixture
async def workloads(api: InProcess) -> InProcess:
    data = {f"k{i}": "v" for i in range(20_000)}
    await api.made(CONFIG_MAPS, {"metadata": {"name": "large", "labels": {"large": "yes"}}, "data": data})
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [container()]}}
    await api.made(PODS, {"metadata": {"name": "there"}, "spec": template["spec"]})
    spec = {"replicas": 0, "selector": {"matchLabels": {"a": "b"}}, "template": template}
    await api.made(DEPLOYMENTS, {"metadata": {"name": "there"}, "spec": spec})
    return api


@pytest.mark.parametrize("name", DIMENSIONS)
async def test_a_large_request_leaves_the_loop_to_others(api: InProcess, name: str) -> None:
    size, build = DIMENSIONS[name]
    await send(api, build, size // 10)  # Compile and import what the first request needs.
    await send(api, build, LARGEST.get(name, 4 * size))


@pytest.mark.parametrize(("size", "build"), LONG_WORK.values(), ids=LONG_WORK)
async def test_long_work_leaves_the_loop_to_others(
    workloads: InProcess, size: int, build: Callable[[int], Input]
) -> None:
    await send(workloads, build, size)


async def send(api: InProcess, build: Callable[[int], Input], size: int) -> None:
    given = build(size)
    reply = await api.call(given.method, given.target, given.body, given.content_type, accept=given.accept)
    assert reply.status < 500, reply.body[:500]
