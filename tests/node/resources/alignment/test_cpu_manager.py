"""Guaranteed containers get CPUs of their own, which the others lose; a checkpoint keeps them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.node.resources.alignment.machines import container, pod, write_machine

from pinnace.kinds.feature_gates.gates import FeatureGates
from pinnace.model.objects import Object
from pinnace.model.typed_objects import Pod
from pinnace.node.errors import RuntimeFailure
from pinnace.node.resources.admission import Rejection
from pinnace.node.resources.alignment.checkpoints import checksum_of
from pinnace.node.resources.alignment.machine_topology import format_cpus
from pinnace.node.resources.alignment.node_resources import (
    MachineAmounts,
    NodeResources,
    ResourcePolicies,
)
from pinnace.node.resources.alignment.topology_manager import TopologyPolicy

ALPHA = FeatureGates.parse("1.37", "CPUManagerPolicyAlphaOptions=true")
GATES = FeatureGates("1.37")


class Machine:
    """Two sockets with one NUMA node of four cores each; CPU 8 is the second thread of core 0."""

    def __init__(self, directory: Path) -> None:
        self.sys = write_machine(directory / "sys", sockets=2, nodes=1, cores=4, threads=2)
        self.directory = directory
        self.file = directory / "cpu_manager_state"

    def open(
        self,
        options: Mapping[str, str] | None = None,
        *,
        policy: str = "static",
        reserved: str = "1",
        cpus: str = "",
        topology: TopologyPolicy | None = None,
        gates: FeatureGates = GATES,
    ) -> NodeResources:
        policies = ResourcePolicies(
            cpus=policy,
            cpu_options=options or {},
            reserved_cpus=cpus,
            topology=topology or TopologyPolicy(),
            machine=self.sys,
        )
        amounts = MachineAmounts(capacity={"memory": "8Gi"}, reserved={"cpu": reserved} if reserved else {})
        return NodeResources(policies, amounts, self.directory, gates)

    def write_state(self, default: str, entries: Object | None = None, *, policy: str = "static") -> None:
        data = json.dumps({"policyName": policy, "defaultCpuSet": default, "entries": entries or {}})
        self.file.write_text(json.dumps({"data": data, "dataChecksum": checksum_of(data)}))


@pytest.fixture
def there(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def cpus(resources: NodeResources, uid: str, name: str = "web") -> str:
    return format_cpus(resources.cpus_of(uid, name))


def shared(resources: NodeResources) -> str:
    """The CPUs of a container that has none for itself."""
    return resources.placement("another", "web").cpus


async def test_guaranteed_whole_cpus_are_exclusive_until_the_pod_is_gone(there: Machine) -> None:
    resources = there.open()
    assert await resources.admit(pod("a", container("web", "2"), container("side", "500m"))) is None
    assert await resources.admit(pod("b", container("web", "3"))) is None
    assert (cpus(resources, "a"), cpus(resources, "a", "side"), cpus(resources, "b")) == ("1,9", "", "2,8,10")
    assert shared(resources) == resources.placement("a", "side").cpus == "0,3-7,11-15"
    resources.release("a")
    assert shared(resources) == "0-1,3-7,9,11-15"


@pytest.mark.parametrize(
    "shares",
    [
        pytest.param(pod("p", container("web", "1500m")), id="no whole number"),
        pytest.param(pod("p", {"name": "web", "resources": {"requests": {"cpu": "2"}}}), id="burstable"),
        pytest.param(pod("p", {"name": "web"}), id="best effort"),
        pytest.param(
            pod("p", container("web", "2"), resources={"limits": {"cpu": "2", "memory": "64Mi"}}), id="pod-level"
        ),
    ],
)
async def test_other_containers_share_the_rest(there: Machine, shares: Pod) -> None:
    resources = there.open()
    assert await resources.admit(shares) is None
    assert cpus(resources, "p") == ""
    assert shared(resources) == "0-15"


async def test_a_container_with_its_own_cpus_has_no_quota(there: Machine) -> None:
    resources = there.open()
    owner = pod("p", container("web", "2"), container("side", "500m"))
    assert await resources.admit(owner) is None
    web, side = (resources.limits_of(owner, container_) for container_ in owner["spec"]["containers"])
    assert (web.cpus, web.cpu_quota, side.cpu_quota) == ("1,9", 0, 50_000)
    assert resources.limits_of_pod(owner).cpu_quota == 0


async def test_containers_of_a_pod_have_the_cpus_of_its_init_containers_again(there: Machine) -> None:
    resources = there.open()
    init = [container("setup", "4"), container("sidecar", "1", restartPolicy="Always")]
    assert await resources.admit(pod("p", container("web", "2"), init=init)) is None
    setup, sidecar, web = (resources.cpus_of("p", name) for name in ("setup", "sidecar", "web"))
    assert (len(setup), len(sidecar), len(web)) == (4, 1, 2)
    assert web <= setup
    assert not sidecar & web


async def test_reserved_cpus_are_never_exclusive(there: Machine) -> None:
    resources = there.open(cpus="2-3", reserved="2")
    assert format_cpus(resources.allocatable_cpus) == "0-1,4-15"
    assert await resources.admit(pod("p", container("web", "14"))) is None
    assert cpus(resources, "p") == "0-1,4-15"
    assert shared(resources) == "2-3"
    refused = await resources.admit(pod("q", container("web", "1")))
    text = "Allocate failed due to not enough cpus available to satisfy request: requested=1, available=0"
    assert refused == Rejection("UnexpectedAdmissionError", f"{text}, which is unexpected")


async def test_strictly_reserved_cpus_are_not_shared_either(there: Machine) -> None:
    resources = there.open({"strict-cpu-reservation": "true"}, cpus="0,8", reserved="2")
    assert shared(resources) == "1-7,9-15"


async def test_whole_cores_are_refused_to_a_part_of_a_core(there: Machine) -> None:
    resources = there.open({"full-pcpus-only": "true"})
    assert await resources.admit(pod("odd", container("web", "3"))) == Rejection(
        "SMTAlignmentError", "SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2"
    )
    assert await resources.admit(pod("large", container("web", "16"))) == Rejection(
        "SMTAlignmentError",
        "SMT Alignment Error: not enough free physical CPUs: available physical CPUs = 14, requested CPUs = 16, "
        "CPUs per core = 2",
    )
    assert await resources.admit(pod("even", container("web", "4"))) is None
    assert cpus(resources, "even") == "1-2,9-10"


async def test_cpus_follow_the_numa_nodes_of_the_topology_manager(there: Machine) -> None:
    resources = there.open(topology=TopologyPolicy(name="single-numa-node"))
    assert await resources.admit(pod("first", container("web", "6"))) is None
    assert cpus(resources, "first") == "1-3,9-11"
    assert await resources.admit(pod("second", container("web", "8"))) is None
    assert cpus(resources, "second") == "4-7,12-15"
    refused = await resources.admit(pod("third", container("web", "2")))
    assert refused == Rejection("TopologyAffinityError", "Resources cannot be allocated with Topology locality")


@pytest.mark.parametrize(("scope", "is_admitted"), [("container", True), ("pod", False)])
async def test_the_scope_pod_wants_all_containers_on_one_numa_node(
    there: Machine, *, scope: str, is_admitted: bool
) -> None:
    resources = there.open(topology=TopologyPolicy(name="single-numa-node", scope=scope))
    refused = await resources.admit(pod("p", container("one", "6"), container("two", "6")))
    assert (refused is None) == is_admitted
    assert (shared(resources) == "0-15") != is_admitted  # After a refusal, nothing stays allocated.


async def test_the_next_agent_knows_what_containers_have(there: Machine) -> None:
    first = there.open()
    owner = pod("p", container("web", "4"))
    assert await first.admit(owner) is None
    second = there.open()
    assert (cpus(second, "p"), shared(second)) == (cpus(first, "p"), shared(first))
    assert await second.admit(owner) is None
    assert cpus(second, "p") == cpus(first, "p")
    second.release_others({"q"})
    assert shared(there.open()) == "0-15"


async def test_a_disk_that_is_full_changes_nothing(there: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    resources = there.open()

    def fail(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", fail)
        with pytest.raises(OSError, match="No space left"):
            await resources.admit(pod("p", container("web", "2")))
        assert shared(resources) == "0-15"
    assert shared(there.open()) == "0-15"


def test_a_checkpoint_has_the_checksum_of_kubelet() -> None:
    assert checksum_of('{"policyName":"none","defaultCPUSet":"4-6"}') == 657950972


@pytest.mark.parametrize(
    ("default", "entries", "reason"),
    [
        ("0-15", {"p": {"web": "a"}}, 'could not parse cpuset: strconv.Atoi: parsing "a": invalid syntax'),
        ("", {"p": {"web": "1"}}, "default cpuset cannot be empty"),
        ("1-15", {}, 'not all reserved cpus: "0" are present in defaultCpuSet: "1-15"'),
        ("0-15", {"p": {"web": "1"}}, 'pod: p, container: web cpuset: "1" overlaps with default cpuset "0-15"'),
        ("0-7", {"p": {"web": "8"}}, 'set of available CPUs "0-15" doesn\'t match with CPUs in state "0-8"'),
    ],
)
def test_a_checkpoint_that_does_not_suit_the_machine_is_refused(
    there: Machine, default: str, entries: Object, reason: str
) -> None:
    there.write_state(default, entries)
    with pytest.raises(RuntimeFailure) as refused:
        there.open()
    assert str(refused.value).startswith("could not restore state from checkpoint: ")
    assert reason in str(refused.value)
    advice = f'please drain this node and delete the CPU manager checkpoint file "{there.file}" before restarting'
    assert advice in str(refused.value)


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"data": 1, "dataChecksum": 2}', "\0" * 10])
def test_a_corrupted_checkpoint_is_refused(there: Machine, content: str) -> None:
    there.file.write_text(content)
    with pytest.raises(RuntimeFailure, match="checkpoint is corrupted, please drain this node"):
        there.open()


def test_a_change_by_hand_is_found(there: Machine) -> None:
    there.open()
    there.file.write_text(there.file.read_text().replace('\\"0-15\\"', '\\"0-14\\"'))
    with pytest.raises(RuntimeFailure, match="checkpoint is corrupted"):
        there.open()


async def test_another_policy_needs_a_drained_node(there: Machine) -> None:
    there.open()
    text = 'configured policy "none" differs from state checkpoint policy "static"'
    with pytest.raises(RuntimeFailure, match=text):
        there.open(policy="none")
    there.file.unlink()
    assert there.open(policy="none").placement("p", "web").cpus == ""


@pytest.mark.parametrize(
    ("options", "gates", "error"),
    [
        ({"fast": "true"}, GATES, 'unknown CPU Manager Policy option: "fast"'),
        ({"full-pcpus-only": "2"}, GATES, 'bad value for option "full-pcpus-only"'),
        ({"align-by-socket": "true"}, GATES, 'Alpha-level Options not enabled, but option "align-by-socket" provided'),
        (
            {"full-pcpus-only": "true", "distribute-cpus-across-cores": "true"},
            ALPHA,
            "full-pcpus-only and distribute-cpus-across-cores can not be used at the same time",
        ),
        (
            {"prefer-align-cpus-by-uncorecache": "true", "distribute-cpus-across-numa": "true"},
            GATES,
            "prefer-align-cpus-by-uncorecache and distribute-cpus-across-numa can not be used at the same time",
        ),
    ],
)
def test_options_that_do_not_suit_are_refused(
    there: Machine, options: Mapping[str, str], gates: FeatureGates, error: str
) -> None:
    with pytest.raises(ValueError, match=error):
        there.open(options, gates=gates)


def test_a_node_without_the_cpus_that_are_reserved_does_not_start(there: Machine) -> None:
    with pytest.raises(ValueError, match=r"requires systemreserved.cpu \+ kubereserved.cpu to be greater than zero"):
        there.open(reserved="")
    with pytest.raises(ValueError, match="unable to reserve the required amount of CPUs"):
        there.open(reserved="17")
    with pytest.raises(ValueError, match="reserved-cpus: 15-16 is not a subset of online-cpus: 0-15"):
        there.open(policy="none", cpus="15-16")
    with pytest.raises(ValueError, match=r"None policy: received unsupported options=map\[full-pcpus-only:true\]"):
        there.open({"full-pcpus-only": "true"}, policy="none")


def test_a_gate_that_has_no_effect_is_refused(there: Machine) -> None:
    gates = FeatureGates.parse("1.37", "PodLevelResourceManagers=true")
    with pytest.raises(ValueError, match="PodLevelResourceManagers is not supported with the static policies"):
        there.open(gates=gates)


async def test_exclusive_cpus_are_not_resized(there: Machine) -> None:
    resources = there.open()
    text = 'Resize is infeasible for Guaranteed Pods alongside CPU Manager policy "static"'
    before, after = pod("p", container("web", "2")), pod("p", container("web", "3"))
    assert resources.check_resize(after, before) == Rejection("Infeasible", text)
    assert resources.check_resize(pod("p", container("web", "2", "1Gi")), before) is None
    assert there.open(policy="static").check_resize(before, before) is None
