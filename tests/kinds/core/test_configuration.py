"""Config maps, secrets, namespaces, nodes, quotas, events and leases are stored and rejected as in Kubernetes."""

from __future__ import annotations

import pytest
from tests.kinds.recorded_writes import Write, answer_here, answer_recorded, recorded

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
