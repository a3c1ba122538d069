"""Containers of burstable pods have swap in proportion to the memory that they request, others have none."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest
from tests.node.resources.alignment.machines import pod

from pinnace.model.objects import Object
from pinnace.node.resources.alignment.swap import Swap, SwapPolicy

GI = 1 << 30


@pytest.fixture
def unified(tmp_path: Path) -> Path:
    """A machine with control groups of version 2, 8 GiB of memory and 4 GiB of swap."""
    (tmp_path / "fs/cgroup").mkdir(parents=True)
    (tmp_path / "fs/cgroup/cgroup.controllers").touch()
    (tmp_path / "meminfo").write_text(f"MemTotal: {8 << 20} kB\nSwapTotal: {4 << 20} kB\n")
    return tmp_path


def swap_on(machine: Path, behavior: str, *, fails: bool = False) -> Swap:
    policy = SwapPolicy(behavior=behavior, fails_with_swap=fails, memory_info=machine / "meminfo")
    return policy.on(machine, 8 * GI)


def memory(request: str, limit: str = "") -> Object:
    limits = {"limits": {"memory": limit}} if limit else {}
    return {"name": "web", "resources": {"requests": {"memory": request}, **limits}}


@pytest.mark.parametrize(
    ("body", "spec", "swap"),
    [
        pytest.param(memory("2Gi"), {}, GI, id="a quarter"),
        pytest.param(memory("1Gi", "3Gi"), {}, GI // 2, id="request below limit"),
        pytest.param(memory("1Gi", "1Gi"), {}, 0, id="request equals limit"),
        pytest.param({"name": "web"}, {}, 0, id="best effort"),
        pytest.param({"name": "web", "resources": {"requests": {"cpu": "1"}}}, {}, 0, id="no memory"),
        pytest.param(memory("9Gi"), {}, 0, id="more than the machine has"),
        pytest.param(memory("2Gi"), {"priority": 2_000_000_000}, 0, id="critical"),
    ],
)
def test_limited_swap_is_a_share_of_the_machine(unified: Path, body: Object, spec: Object, swap: int) -> None:
    owner = pod("p", body, **spec)
    web = owner["spec"]["containers"][0]
    assert swap_on(unified, "LimitedSwap").bytes_of(owner, web) == swap
    assert swap_on(unified, "NoSwap").bytes_of(owner, web) == swap_on(unified, "").bytes_of(owner, web) == 0


def test_static_pods_have_no_swap(unified: Path) -> None:
    owner = pod("p", memory("2Gi"))
    cast(Object, owner["metadata"])["annotations"] = {"kubernetes.io/config.source": "file"}
    assert swap_on(unified, "LimitedSwap").bytes_of(owner, owner["spec"]["containers"][0]) == 0


def test_limited_swap_needs_control_groups_of_version_2(unified: Path) -> None:
    (unified / "fs/cgroup/cgroup.controllers").unlink()
    with pytest.raises(ValueError, match="LimitedSwap but it is only supported with cgroupv2"):
        swap_on(unified, "LimitedSwap")


def test_a_node_may_refuse_a_machine_with_swap(unified: Path) -> None:
    text = "running with swap on is not supported, please disable swap or set --fail-swap-on flag to false"
    with pytest.raises(ValueError, match=text):
        swap_on(unified, "", fails=True)
    (unified / "meminfo").write_text("SwapTotal: 0 kB\n")
    assert swap_on(unified, "", fails=True).capacity == 0
