"""Config maps, secrets, namespaces, nodes, quotas, events, leases and the like are stored and refused as elsewhere."""

from __future__ import annotations

import pytest
from tests.kinds.recorded_writes import Write, answer_here, answer_recorded, recorded

from pinnace.kinds.coordination import validation as coordination_validation
from pinnace.kinds.core import secrets, validation

MEBIBYTE = 1024 * 1024


@pytest.mark.parametrize("write", recorded("config"), ids=lambda write: write["name"])
def test_the_answer_is_that_of_a_real_server(write: Write) -> None:
    assert answer_here(write) == answer_recorded(write)


@pytest.mark.parametrize(
    ("size", "errs"), [(MEBIBYTE, []), (MEBIBYTE + 1, ["[]: Too long: may not be more than 1048576 bytes"])]
)
def test_a_config_map_holds_a_mebibyte(size: int, errs: list[str]) -> None:
    config_map = {
        "metadata": {"name": "a"},
        "data": {"a": "é" * 4, "b": "x" * (size - 11)},
        "binaryData": {"c": "eHl6"},
    }
    assert [str(cause) for cause in validation.CONFIG_MAP.validate(config_map, None)] == errs


@pytest.mark.parametrize(
    ("size", "errs"), [(MEBIBYTE, []), (MEBIBYTE + 1, ["data: Too long: may not be more than 1048576 bytes"])]
)
def test_a_secret_holds_a_mebibyte(size: int, errs: list[str]) -> None:
    secret = {"metadata": {"name": "a"}, "stringData": {"a": "x" * size}}
    secrets.SECRET.default(secret)
    assert [str(cause) for cause in secrets.SECRET.validate(secret, None)] == errs


def test_a_namespace_changes_its_finalizers_elsewhere() -> None:
    old = {"metadata": {"name": "a"}, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}
    new = {"metadata": {"name": "a"}, "spec": {"finalizers": ["example.com/other"]}}
    validation.NAMESPACE.prepare(new, old)
    assert new["spec"] == {"finalizers": ["kubernetes"]}


@pytest.mark.parametrize(
    ("spec", "errs"),
    [
        (
            {
                "leaseName": "a",
                "binaryVersion": "1.2.3",
                "emulationVersion": "1.2.3",
                "strategy": "OldestEmulationVersion",
            },
            [],
        ),
        (
            {
                "leaseName": "a",
                "binaryVersion": "1.2.3-rc.1",
                "emulationVersion": "1.2.3",
                "strategy": "example.com/own",
            },
            ['spec.binaryVersion: Invalid value: "1.2.3-rc.1": must be greater than or equal to `emulationVersion`'],
        ),
        (
            {"binaryVersion": "one", "strategy": "OldestEmulationVersion"},
            [
                "spec.leaseName: Required value",
                'spec.binaryVersion: Invalid value: "one": must be a valid semantic version',
                "spec.emulationVersion: Required value: must be specified when `strategy` is 'OldestEmulationVersion'",
            ],
        ),
        (
            {"leaseName": "a", "strategy": "Newest"},
            [
                "spec.binaryVersion: Required value",
                'spec.strategy.strategy: Unsupported value: "Newest": supported values: "OldestEmulationVersion"',
            ],
        ),
    ],
)
def test_a_candidate_for_a_lease_is_judged(spec: dict[str, str], errs: list[str]) -> None:
    candidate = {"metadata": {"name": "a"}, "spec": spec}
    assert [str(cause) for cause in coordination_validation.LEASE_CANDIDATE.validate(candidate, None)] == errs
