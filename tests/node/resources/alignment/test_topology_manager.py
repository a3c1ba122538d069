"""The topology manager chooses NUMA nodes that suit all resources, or refuses the pod."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest
from tests.node.resources.alignment.machines import container, pod

from pinnace.kinds.feature_gates.gates import FeatureGates
from pinnace.model.typed_objects import Container, Pod
from pinnace.node.resources.alignment.hints import AllocationFailed, Hint, Hints
from pinnace.node.resources.alignment.topology_manager import TopologyManager, TopologyPolicy

GATES = FeatureGates("1.37")
LINE = {0: (10, 11, 20, 20), 1: (11, 10, 20, 20), 2: (20, 20, 10, 11), 3: (20, 20, 11, 10)}
"""Four NUMA nodes, of which two and two are near each other."""


@dataclass
class Provider:
    """States hints, and notes by which of them it allocates."""

    stated: Hints
    error: str = ""
    allocated: list[tuple[str, Hint]] = field(default_factory=list)
    released: list[str] = field(default_factory=list)

    def hints(self, pod: Pod, container: Container) -> Hints:
        return self.stated

    def pod_hints(self, pod: Pod) -> Hints:
        return {"pod": [Hint(0b1000, is_preferred=True)]}

    async def allocate(self, pod: Pod, container: Container, hint: Hint) -> None:
        if self.error:
            raise AllocationFailed(self.error)
        self.allocated.append((container["name"], hint))

    def release(self, uid: str) -> None:
        self.released.append(uid)


def hints(preferred: Sequence[int], others: Sequence[int] = ()) -> list[Hint]:
    return [Hint(mask, is_preferred=mask in preferred) for mask in (*preferred, *others)]


ANYWHERE: Hints = {}
NOWHERE: Hints = {"gpu": []}
CLOSEST = {"prefer-closest-numa-nodes": "true"}


@pytest.mark.parametrize(
    ("policy", "provided", "chosen"),
    [
        pytest.param("best-effort", [{"cpu": hints([1, 2], [3])}, {"gpu": hints([2])}], Hint(2, True), id="common"),
        pytest.param("best-effort", [{"cpu": hints([1])}, {"gpu": hints([2])}], Hint(15, False), id="nothing common"),
        pytest.param("best-effort", [NOWHERE, {"cpu": hints([1])}], Hint(1, False), id="one has no way"),
        pytest.param("best-effort", [ANYWHERE, {"a": None}], Hint(15, True), id="no preference"),
        pytest.param("best-effort", [{"cpu": hints([], [1, 3, 7])}], Hint(1, False), id="the fewest nodes"),
        pytest.param(
            "best-effort", [{"cpu": hints([], [1, 3, 7])}, {"gpu": hints([], [3, 7])}], Hint(3, False), id="enough"
        ),
        pytest.param("restricted", [{"cpu": hints([3])}, {"gpu": hints([3])}], Hint(3, True), id="several nodes"),
        pytest.param("restricted", [{"cpu": hints([1])}, {"gpu": hints([2])}], None, id="restricted, nothing common"),
        pytest.param("restricted", [{"cpu": hints([1])}, {"gpu": hints([], [1])}], None, id="not preferred"),
        pytest.param("restricted", [NOWHERE], None, id="restricted, no way"),
        pytest.param("single-numa-node", [{"cpu": hints([1, 2])}, {"g": hints([2, 4])}], Hint(2, True), id="one node"),
        pytest.param("single-numa-node", [{"cpu": hints([3])}], None, id="two nodes are needed"),
        pytest.param("single-numa-node", [ANYWHERE], Hint(None, True), id="nothing to align"),
        pytest.param("none", [NOWHERE], Hint(None, True), id="policy none"),
    ],
)
async def test_a_policy_chooses_the_best_hint(policy: str, provided: list[Hints], chosen: Hint | None) -> None:
    manager = TopologyManager(TopologyPolicy(name=policy), LINE, GATES)
    providers = [Provider(stated) for stated in provided]
    manager.providers += providers
    refused = await manager.admit(pod("p", container("web")))
    if chosen is None:
        assert refused is not None
        assert refused.reason == "TopologyAffinityError"
        assert refused.message == "Resources cannot be allocated with Topology locality"
        assert all(not provider.allocated for provider in providers)
    else:
        assert refused is None
        assert all(provider.allocated == [("web", chosen)] for provider in providers)


@pytest.mark.parametrize(("options", "chosen"), [({}, 0b0101), (CLOSEST, 0b1100)])
async def test_near_numa_nodes_may_be_preferred(options: Mapping[str, str], chosen: int) -> None:
    manager = TopologyManager(TopologyPolicy(name="restricted", options=options), LINE, GATES)
    provider = Provider({"cpu": hints([0b0101, 0b1100, 0b1001])})
    manager.providers.append(provider)
    assert await manager.admit(pod("p", container("web"))) is None
    assert provider.allocated == [("web", Hint(chosen, is_preferred=True))]


async def test_the_scope_pod_chooses_once_for_all_containers() -> None:
    manager = TopologyManager(TopologyPolicy(name="restricted", scope="pod"), LINE, GATES)
    provider = Provider(NOWHERE)
    manager.providers.append(provider)
    assert await manager.admit(pod("p", container("web"), init=[container("init")])) is None
    chosen = Hint(8, is_preferred=True)
    assert provider.allocated == [("init", chosen), ("web", chosen)]


async def test_a_provider_that_cannot_allocate_refuses_the_pod() -> None:
    manager = TopologyManager(TopologyPolicy(), LINE, GATES)
    manager.providers.append(Provider({}, error="no GPU is healthy"))
    refused = await manager.admit(pod("p", container("web")))
    assert refused is not None
    assert refused.reason == "UnexpectedAdmissionError"
    assert refused.message == "Allocate failed due to no GPU is healthy, which is unexpected"


async def test_many_hints_of_a_large_machine_are_compared_quickly() -> None:
    nodes = {node: (10,) * 8 for node in range(8)}
    everything = {f"r{number}": hints([], range(1, 256)) for number in range(3)}
    manager = TopologyManager(TopologyPolicy(name="best-effort"), nodes, GATES)
    provider = Provider(everything)  # 16 million combinations.
    manager.providers.append(provider)
    assert await manager.admit(pod("p", container("web"))) is None
    assert provider.allocated == [("web", Hint(1, is_preferred=False))]


@pytest.mark.parametrize(
    ("options", "nodes", "error"),
    [
        ({"fast": "true"}, 2, 'unknown Topology Manager Policy option: "fast"'),
        ({"prefer-closest-numa-nodes": "often"}, 2, 'bad value for option "prefer-closest-numa-nodes"'),
        ({"max-allowable-numa-nodes": "7"}, 2, 'minimum value of "max-allowable-numa-nodes" should not be less than 8'),
        ({"max-allowable-numa-nodes": "99"}, 2, "max-allowable-numa-nodes 99 is not supported"),
        ({"max-allowable-numa-nodes": "x"}, 2, "unable to convert policy option to integer"),
        ({}, 9, "unsupported on machines with more than 8 NUMA Nodes"),
    ],
)
def test_policies_that_do_not_suit_are_refused(options: Mapping[str, str], nodes: int, error: str) -> None:
    distances = {node: (10,) * nodes for node in range(nodes)}
    with pytest.raises(ValueError, match=error):
        TopologyManager(TopologyPolicy(name="restricted", options=options), distances, GATES)
