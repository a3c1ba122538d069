"""The versions and strategy of a lease candidate are validated."""

from __future__ import annotations

import pytest
from tests.kinds.strategies import STRATEGIES


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
def test_a_lease_candidate_is_validated(spec: dict[str, str], errs: list[str]) -> None:
    candidate = {"metadata": {"name": "a"}, "spec": spec}
    assert [str(cause) for cause in STRATEGIES["LeaseCandidate"].validate(candidate, None)] == errs
