"""The kernel's limits of pods and containers, from the resources that they state."""

from __future__ import annotations

from pathlib import Path
from typing import cast

import pytest

from pinnace.model.objects import Object
from pinnace.model.typed_objects import Pod
from pinnace.node.resources.amounts import POD_PIDS, container_resources, pod_resources
from pinnace.node.resources.huge_pages import NoHugePages, allocatable_of, capacity_of_pages, page_size_of_medium

_GI = 1 << 30


def _pod(*resources: Object, **spec: object) -> Pod:
    containers = [{"name": f"c{number}", "resources": stated} for number, stated in enumerate(resources)]
    return cast("Pod", {"metadata": {}, "spec": {"containers": containers, **spec}})


def test_a_container_without_limits_has_those_of_the_whole_pod() -> None:
    own = {"limits": {"cpu": "100m", "memory": "10Mi"}}
    pod = _pod(own, {}, resources={"limits": {"cpu": "1", "memory": "100Mi"}, "requests": {"cpu": "500m"}})
    first, second = (container_resources(pod, container, _GI) for container in pod["spec"]["containers"])
    assert (first.cpu_quota, first.memory_bytes) == (10_000, 10 << 20)
    assert (second.cpu_quota, second.memory_bytes, second.cpu_shares) == (100_000, 100 << 20, 1024)
    whole = pod_resources(pod)
    assert (whole.cpu_shares, whole.cpu_quota, whole.memory_bytes) == (512, 100_000, 100 << 20)
    assert whole.pids == first.pids == POD_PIDS


def test_an_init_container_without_a_limit_leaves_the_pod_without_one() -> None:
    limited = {"limits": {"memory": "10Mi"}}
    assert pod_resources(_pod(limited)).memory_bytes == 10 << 20
    assert pod_resources(_pod(limited, initContainers=[{"name": "init"}])).memory_bytes == 0


def test_memory_that_the_whole_pod_requests_protects_its_containers_evenly() -> None:
    half = {"requests": {"memory": "256Mi"}}
    alone = _pod(half, {})
    together = _pod(half, {}, resources={"requests": {"memory": "768Mi"}})
    scores = [
        [container_resources(pod, container, _GI).oom_score_adjust for container in pod["spec"]["containers"]]
        for pod in (alone, together)
    ]
    assert scores == [[750, 999], [500, 750]]


@pytest.fixture
def pools(tmp_path: Path) -> Path:
    for size, count in ((2048, 3), (1048576, 0)):
        (tmp_path / f"hugepages-{size}kB").mkdir()
        (tmp_path / f"hugepages-{size}kB" / "nr_hugepages").write_text(f"{count}\n")
    return tmp_path


def test_huge_pages_are_a_capacity_and_no_memory_for_others(pools: Path) -> None:
    pages = capacity_of_pages(pools)
    assert pages == {"hugepages-2Mi": "6Mi", "hugepages-1Gi": "0"}
    assert allocatable_of({"memory": "10Mi", **pages}) == {"memory": "4Mi", **pages}
    assert allocatable_of({"memory": "10Mi", "hugepages-1Gi": "0"})["memory"] == "10Mi"


_PAGES = {"requests": {"hugepages-2Mi": "4Mi", "memory": "1Gi"}}


@pytest.mark.parametrize(
    ("medium", "resources", "expected"),
    [
        ("HugePages", [_PAGES], 2 << 20),
        ("HugePages-2Mi", [_PAGES, {"requests": {"hugepages-1Gi": "1Gi"}}], 2 << 20),
        (
            "HugePages",
            [_PAGES, {"requests": {"hugepages-1Gi": "1Gi"}}],
            "medium: HugePages can't be used if container requests multiple huge page sizes",
        ),
        (
            "HugePages-1Gi",
            [_PAGES],
            "medium HugePages-1Gi: hugePages storage requested, but there is no resource request for huge pages",
        ),
    ],
)
def test_the_pages_of_a_volume_are_those_that_the_pod_requests(
    medium: str, resources: list[Object], expected: int | str
) -> None:
    pod = _pod(*resources)
    if isinstance(expected, int):
        assert page_size_of_medium(medium, pod) == expected
        return
    with pytest.raises(NoHugePages) as caught:
        page_size_of_medium(medium, pod)
    assert str(caught.value) == expected
