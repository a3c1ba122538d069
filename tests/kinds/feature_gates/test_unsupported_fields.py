"""Each field of each built-in kind acts, or a write that sets it warns that it does not."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from tests.server.in_process import CONFIG_MAPS, DEPLOYMENTS, config_map, control_plane, deployment

from pinnace.cluster.settings import Settings
from pinnace.kinds.catalog import resources
from pinnace.kinds.definitions import Definitions, minors
from pinnace.kinds.feature_gates.inert_fields import unsupported_fields
from pinnace.kinds.runtime_config import RuntimeConfig
from pinnace.model.objects import Object
from pinnace.model.resources import Resource
from pinnace.schema.shape import Schema

ROOT = Path(__file__).parents[3]


@pytest.mark.timeout(900)  # Without its cache, mypy needs half a minute of CPU time.
def test_each_field_of_each_minor_has_an_entry_in_the_ledger() -> None:
    command = [sys.executable, "-m", "tools.field_ledger", "--check"]
    checked = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=880)
    assert checked.returncode == 0, checked.stdout + checked.stderr


@cache
def served(minor: str) -> tuple[Resource, ...]:
    definitions = Definitions.load(minor)
    return tuple(resources(definitions, runtime_config=RuntimeConfig.parse("api/all=true"), old_versions=False))


def object_with(schema: Schema, field: str, seen: frozenset[str] = frozenset()) -> tuple[str, Object] | None:
    """Return the path of a field, as group, definition and name, and an object in which it is set."""
    *_, group, _, definition = ("", "", "", *schema.name.split("."))
    for name, shape in schema.raw.get("properties", {}).items():
        if f"{group}.{definition}.{name}" == field:
            return name, {name: {}}
        for place, reference, wrapped in values(shape):
            below = schema.resolve(reference)
            if reference in seen or (result := object_with(below, field, seen | {reference})) is None:
                continue
            path, value = result
            return f"{name}{place}.{path}", {name: wrapped(value)}
    return None


def values(shape: Mapping[str, Any]) -> Iterator[tuple[str, str, Any]]:
    """Yield the place of an object in a field, its definition, and what makes the field's value from it."""
    reference = shape.get("$ref") or next((part.get("$ref") for part in shape.get("allOf", ())), None)
    items, entries = shape.get("items"), shape.get("additionalProperties")
    if reference:
        yield "", reference.rpartition("/")[2], lambda value: value
    elif items:
        yield from (
            (f"[0]{place}", below, lambda value, make=make: [make(value)]) for place, below, make in values(items)
        )
    elif isinstance(entries, dict):
        yield from (
            (f"[key]{place}", below, lambda value, make=make: {"key": make(value)})
            for place, below, make in values(entries)
        )


@pytest.mark.parametrize(
    ("field", "reason"), [(field, line.reason) for line in unsupported_fields() for field in line.fields]
)
def test_an_object_with_the_field_gets_a_warning_with_its_path_and_the_reason(field: str, reason: str) -> None:
    for minor in reversed(minors()):
        for resource in served(minor):
            if (result := object_with(resource.schema, field)) is not None:
                path, obj = result
                assert resource.inert is not None and resource.inert.warn is not None
                assert resource.inert.warn(obj) == [f"{path}: has no effect in this cluster: {reason}"]
                return
    pytest.fail(f"no kind of any minor has {field}")


async def test_a_client_is_warned_once_for_each_reason_also_in_templates() -> None:
    web = deployment()
    spec = web["spec"]["template"]["spec"]
    probe = {"httpGet": {"path": "/", "port": 80, "protocol": "HTTP2"}}
    spec["containers"][0] |= {"livenessProbe": probe, "readinessProbe": probe}
    spec["schedulingGroup"] = {"podGroupName": "training"}
    settings = Settings(kubernetes_version="1.37", feature_gates="AllAlpha=true,AllBeta=true")
    async with control_plane(settings=settings) as api:
        made = await api.post(DEPLOYMENTS, web)
        assert made.status == 201, made.message
        reasons = {field: line.reason for line in unsupported_fields() for field in line.fields}
        above, after = "spec.template.spec", "has no effect in this cluster"
        first = f"{above}.containers[0].livenessProbe.httpGet.protocol"
        assert sorted(made.header("warning")) == [
            f'299 - "{first}: {after}: {reasons["core.HTTPGetAction.protocol"]}"',
            f'299 - "{above}.schedulingGroup: {after}: {reasons["core.PodSpec.schedulingGroup"]}"',
        ]
        assert (await api.post(DEPLOYMENTS, deployment("other"))).header("warning") == []


async def test_a_client_is_warned_of_an_option_of_deletions() -> None:
    async with control_plane(settings=Settings(kubernetes_version="1.37")) as api:
        await api.made(CONFIG_MAPS, config_map())
        options = {"ignoreStoreReadErrorWithClusterBreakingPotential": True}
        deleted = await api.delete(f"{CONFIG_MAPS}/settings", options)
        assert deleted.status == 200
        assert "has no effect in this cluster" in deleted.header("warning")[0]
