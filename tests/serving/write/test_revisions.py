"""The resourceVersion in the body of a write, answered as the real server answers it."""

from __future__ import annotations

from typing import Any

import pytest
from tests.server.in_process import APPLY, CONFIG_MAPS, MERGE, InProcess, config_map

LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
OVERFLOW = "99999999999999999999999"
SET = "resourceVersion should not be set on objects to be created"
MODIFIED = (
    'Operation cannot be fulfilled on configmaps "web": the object has been modified; please apply your changes to the '
    "latest version and try again"
)
UNPARSED = [
    ("abc", 'strconv.ParseUint: parsing "abc": invalid syntax'),
    ("-1", 'strconv.ParseUint: parsing "-1": invalid syntax'),
    (OVERFLOW, f'strconv.ParseUint: parsing "{OVERFLOW}": value out of range'),
]
UNCONDITIONAL = ["", "0", "00"]


def body(version: str, **metadata: Any) -> dict[str, Any]:
    return config_map("web", resourceVersion=version, **metadata)


def lease(version: str) -> dict[str, Any]:
    metadata = {"name": "web", "resourceVersion": version}
    return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata}


async def test_a_create_with_a_revision_fails_after_validation_and_before_the_name_is_looked_up(api: InProcess) -> None:
    reply = await api.post(CONFIG_MAPS, body("5"))
    assert (reply.status, reply.message) == (500, SET)
    assert "reason" not in reply.json and "details" not in reply.json
    await api.made(CONFIG_MAPS, config_map("web"))
    assert (await api.post(CONFIG_MAPS, body("5"))).message == SET
    assert (await api.post(CONFIG_MAPS, body("5") | {"metadata": {"name": "B", "resourceVersion": "5"}})).status == 422


@pytest.mark.parametrize("version", [*UNCONDITIONAL, "abc", "-1", OVERFLOW])
async def test_a_create_takes_what_is_no_revision_for_none(api: InProcess, version: str) -> None:
    reply = await api.post(CONFIG_MAPS, body(version))
    assert (reply.status, reply.version.isdigit(), reply.version != version) == (201, True, True)
    assert (await api.post(CONFIG_MAPS, body(version))).status == 409


@pytest.mark.parametrize("version", ["5", "0", "abc"])
async def test_a_dry_run_of_a_create_ignores_and_returns_the_revision(api: InProcess, version: str) -> None:
    reply = await api.post(f"{CONFIG_MAPS}?dryRun=All", body(version))
    assert (reply.status, reply.version) == (201, version)
    await api.made(CONFIG_MAPS, config_map("web"))
    assert (await api.post(f"{CONFIG_MAPS}?dryRun=All", body(version))).status == 409


@pytest.mark.parametrize("version", [*UNCONDITIONAL, "1", "7777777"])
async def test_an_apply_that_creates_ignores_the_revision(api: InProcess, version: str) -> None:
    reply = await api.call("PATCH", f"{CONFIG_MAPS}/web?fieldManager=m", body(version), APPLY)
    assert reply.status == 201


@pytest.mark.parametrize("version", UNCONDITIONAL)
async def test_an_apply_without_a_revision_overwrites(api: InProcess, version: str) -> None:
    await api.made(CONFIG_MAPS, config_map("web"))
    labels = {"a": "b"}
    reply = await api.call("PATCH", f"{CONFIG_MAPS}/web?fieldManager=m", body(version, labels=labels), APPLY)
    assert (reply.status, reply.json["metadata"]["labels"]) == (200, labels)


@pytest.mark.parametrize("version", ["1", "7777777"])
async def test_an_apply_at_another_revision_conflicts(api: InProcess, version: str) -> None:
    await api.made(CONFIG_MAPS, config_map("web"))
    reply = await api.call("PATCH", f"{CONFIG_MAPS}/web?fieldManager=m", body(version), APPLY)
    assert (reply.status, reply.message) == (409, MODIFIED)


@pytest.mark.parametrize("version", UNCONDITIONAL)
async def test_a_kind_that_needs_a_revision_says_so(api: InProcess, version: str) -> None:
    path = f"{LEASES}/web?fieldManager=m"
    await api.call("PATCH", path, lease("5"), APPLY)
    reply = await api.call("PATCH", path, lease(version), APPLY)
    assert (reply.status, reply.message) == (
        422,
        'leases.coordination.k8s.io "web" is invalid: metadata.resourceVersion: Invalid value: 0: '
        "must be specified for an update",
    )


@pytest.mark.parametrize(("version", "message"), UNPARSED)
@pytest.mark.parametrize("verb", ["apply", "apply that creates", "merge patch", "update", "update that creates"])
async def test_an_invalid_number_fails_every_other_write(api: InProcess, verb: str, version: str, message: str) -> None:
    if not verb.endswith("creates"):
        await api.made(CONFIG_MAPS, config_map("web"))
    match verb:
        case "merge patch":
            patch = {"metadata": {"resourceVersion": version}}
            reply = await api.call("PATCH", f"{CONFIG_MAPS}/web", patch, MERGE)
        case "update":
            reply = await api.call("PUT", f"{CONFIG_MAPS}/web", body(version))
        case "update that creates":
            reply = await api.call("PUT", f"{LEASES}/web", lease(version))
        case _:
            reply = await api.call("PATCH", f"{CONFIG_MAPS}/web?fieldManager=m", body(version), APPLY)
    assert (reply.status, reply.message) == (500, message)
    assert "reason" not in reply.json
