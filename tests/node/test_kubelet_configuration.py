"""A KubeletConfiguration sets up a node; what does not act is refused or named, never left out in silence."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import orjson
import pytest
from tests.clients.kubectl_command import Kubectl, kubectl_binary
from tests.clients.server_process import ServerProcess
from tests.machine import need
from tests.node.namespaces import need_namespaces
from tests.waiting import until

import pinnace
from pinnace.node.kubelet_configuration import read_kubelet_configuration
from pinnace.schema.configuration.errors import ConfigurationError

HEAD = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n"


def write(path: Path, fields: str) -> Path:
    path.write_text(HEAD + fields)
    return path


def test_the_settings_of_a_file_reach_the_node(tmp_path: Path) -> None:
    need_namespaces()
    kubectl_binary()
    config = write(
        tmp_path / "kubelet.yaml",
        "maxPods: 17\nkubeReserved: {cpu: 100m, memory: 100Mi}\nsystemReserved: {memory: 28Mi}\n"
        "registerWithTaints: [{key: dedicated, value: ci, effect: NoSchedule}]\nsyncFrequency: 30s\n"
        "evictionHard: {memory.available: 50Mi}\nallowedUnsafeSysctls: ['kernel.msg*']\n",
    )
    environment = os.environ | {"PYTHONPATH": str(Path(pinnace.__file__).parents[1]), "PINNACE_OFFLINE": "1"}
    server = ServerProcess.start(tmp_path, "--data-dir", str(tmp_path / "data"), "--no-node")
    kubectl = Kubectl(kubectl_binary(), server.await_kubeconfig(), tmp_path, "default")
    command = [sys.executable, "-m", "pinnace.cli.main", "node", "--kubeconfig", str(server.kubeconfig)]
    arguments = [*command, "--name", "n1", "--directory", str(tmp_path / "node"), "--config", str(config)]
    log = tmp_path / "node.log"
    with log.open("wb") as output:
        node = subprocess.Popen([*arguments, "--stop-pods"], env=environment, stdout=output, stderr=subprocess.STDOUT)
    try:
        until(lambda: "n1" in kubectl("get nodes -o name"))
        kubectl("wait --for=condition=Ready --timeout=120s node --all")
        result = orjson.loads(kubectl("get node n1 -o json"))
        assert {"key": "dedicated", "value": "ci", "effect": "NoSchedule"} in result["spec"]["taints"]
        assert result["status"]["capacity"]["pods"] == result["status"]["allocatable"]["pods"] == "17"
        memory = [int(result["status"][part]["memory"].removesuffix("Ki")) for part in ("capacity", "allocatable")]
        assert memory[0] - memory[1] == 128 << 10
        assert "syncFrequency has no effect on this node" in log.read_text()
        port = result["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]
        token = kubectl("create token default").strip()
        kubectl(
            "create clusterrolebinding reader --clusterrole=system:kubelet-api-admin --serviceaccount=default:default"
        )
        requested = [need("curl"), "-sk", "-H", f"Authorization: Bearer {token}", f"https://127.0.0.1:{port}/configz"]
        answer = subprocess.run(requested, capture_output=True, text=True, timeout=60, check=True).stdout
        configuration = orjson.loads(answer)["kubeletconfig"]
        assert configuration["maxPods"] == 17
        assert configuration["evictionHard"] == {"memory.available": "50Mi"}
        assert configuration["allowedUnsafeSysctls"] == ["kernel.msg*"]
    finally:
        node.terminate()
        node.wait(60)
        server.stop()


def test_drop_ins_change_a_file_in_the_order_of_their_names(tmp_path: Path) -> None:
    config = write(tmp_path / "kubelet.yaml", "maxPods: 10\nevictionHard: {memory.available: 1Gi}\nport: 10250\n")
    (tmp_path / "drop-ins").mkdir()
    write(tmp_path / "drop-ins" / "20.conf", "maxPods: 30\n")
    write(tmp_path / "drop-ins" / "10.conf", "maxPods: 20\nevictionHard: {nodefs.available: 3%}\n")
    write(tmp_path / "drop-ins" / "30.yaml", "maxPods: 40\n")
    settings = read_kubelet_configuration(config, tmp_path / "drop-ins")
    assert (settings.max_pods, settings.port) == (30, 10250)
    assert settings.eviction_hard == "memory.available<1Gi,nodefs.available<3%"


def test_default_thresholds_are_kept_if_they_are_to_be_merged(tmp_path: Path) -> None:
    fields = "evictionHard: {memory.available: 1Gi}\nmergeDefaultEvictionSettings: true\n"
    settings = read_kubelet_configuration(write(tmp_path / "file", fields))
    assert settings.eviction_hard is not None
    assert settings.eviction_hard.startswith("memory.available<1Gi,") and "nodefs.available<" in settings.eviction_hard


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ("foo: 1", 'strict decoding error: unknown field "foo"'),
        ("maxPods: a", "cannot unmarshal string into Go value of type int64"),
        ("maxPods: 1\nmaxPods: 2", 'key "maxPods" already set'),
        ("maxPods: -1", "invalid configuration: maxPods (--max-pods) -1 must not be a negative number"),
        ("port: 70000", "port (--port) 70000 must be between 1 and 65535, inclusive"),
        ("containerLogMaxFiles: 1", "containerLogMaxFiles must be greater than 1"),
        ("containerLogMaxSize: 1Q1", "containerLogMaxSize '1Q1' is no quantity"),
        ("evictionHard: {cpu.available: 5%}", "evictionHard: cpu.available<5% is not a threshold"),
        ("kubeReserved: {gpu: '1'}", "kubeReserved: cannot reserve 'gpu' resource"),
        ("systemReserved: {cpu: many}", "systemReserved: 'many' is no quantity of cpu"),
        ("registerWithTaints: [{key: a, effect: b}]", "invalid taint: a=:b"),
        ("staticPodPath: a", "staticPodPath 'a' must be an absolute path"),
        ("readOnlyPort: 10255", "readOnlyPort 10255 is not supported: there is no server without authentication"),
        ("authentication: {anonymous: {enabled: true}}", "authentication.anonymous.enabled true is not supported"),
        ("authorization: {mode: AlwaysAllow}", "authorization.mode 'AlwaysAllow' is not supported"),
        ("tlsMinVersion: VersionTLS13", "tlsMinVersion is not supported"),
        ("seccompDefault: true", "seccompDefault true is not supported"),
        ("podPidsLimit: 100", "podPidsLimit 100 is not supported"),
        ("cpuManagerPolicy: some", 'unknown policy: "some"'),
        ("memoryManagerPolicy: some", 'unknown policy: "some"'),
        (
            "topologyManagerPolicy: some",
            'topologyManagerPolicy (--topology-manager-policy) "some" must be one of: ["none" "best-effort"',
        ),
        ("topologyManagerScope: node", '(--topology-manager-scope) "node" must be one of: "container", or "pod"'),
        ("memorySwap: {swapBehavior: Much}", 'memorySwap.swapBehavior "Much" must be one of: "", "LimitedSwap"'),
        ("reservedSystemCPUs: 3-1", "unable to parse reservedSystemCPUs (--reserved-cpus) 3-1, error: invalid range"),
        ("cpuManagerReconcilePeriod: often", 'cpuManagerReconcilePeriod "often" is no duration'),
        ("reservedMemory: [{numaNode: 0, limits: {cpu: 1}}]", 'the limit type "cpu" for NUMA node 0 is not supported'),
        ("reservedMemory: [{numaNode: 0, limits: {memory: 0}}]", "reserved memory may not be zero for NUMA node 0"),
        ("reservedMemory: [{limits: {memory: 1e999999}}]", 'reservedMemory: "1e999999" is no quantity of memory'),
        (
            "reservedMemory: [{limits: {memory: 1}}, {limits: {memory: 1}}]",
            'the reserved memory has a duplicate value for NUMA node 0 and resource "memory"',
        ),
        ("shutdownGracePeriod: 30s", "shutdownGracePeriod is not supported"),
        ("maxPods: -1\nrunOnce: true", "[maxPods (--max-pods) -1 must not be a negative number, runOnce true is not"),
    ],
)
def test_a_bad_configuration_is_refused(tmp_path: Path, fields: str, error: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        read_kubelet_configuration(write(tmp_path / "file", fields))
    assert error in str(refused.value)


def test_the_policies_of_a_file_are_those_of_the_node(tmp_path: Path) -> None:
    fields = (
        "cpuManagerPolicy: static\ncpuManagerPolicyOptions: {full-pcpus-only: 'true'}\nreservedSystemCPUs: 0-1,4\n"
        "cpuManagerReconcilePeriod: 1m30s\nmemoryManagerPolicy: Static\n"
        "reservedMemory: [{numaNode: 0, limits: {memory: 1Gi}}, {numaNode: 1, limits: {memory: 1Gi}}]\n"
        "topologyManagerPolicy: restricted\ntopologyManagerScope: pod\n"
        "topologyManagerPolicyOptions: {prefer-closest-numa-nodes: 'true'}\n"
        "memorySwap: {swapBehavior: LimitedSwap}\nfailSwapOn: false\n"
        "kubeReserved: {cpu: 500m, memory: 1Gi}\nsystemReserved: {cpu: 500m}\n"
    )
    settings = read_kubelet_configuration(write(tmp_path / "file", fields))
    policies = settings.policies
    assert (policies.cpus, dict(policies.cpu_options), policies.reserved_cpus, policies.reconcile_seconds) == (
        "static",
        {"full-pcpus-only": "true"},
        "0-1,4",
        90.0,
    )
    assert (policies.memory, policies.reserved_memory) == ("Static", {0: {"memory": "1Gi"}, 1: {"memory": "1Gi"}})
    topology = policies.topology
    assert (topology.name, topology.scope, list(topology.options)) == (
        "restricted",
        "pod",
        ["prefer-closest-numa-nodes"],
    )
    assert (policies.swap.behavior, policies.swap.fails_with_swap) == ("LimitedSwap", False)
    assert settings.reserved == {"cpu": "3", "memory": "1Gi"}  # The reserved CPUs count instead of the amounts.
    assert settings.warnings == []


def test_fields_without_effect_are_named(tmp_path: Path) -> None:
    settings = read_kubelet_configuration(write(tmp_path / "file", "syncFrequency: 1m\noomScoreAdj: -999\n"))
    assert settings.warnings == [
        "syncFrequency has no effect on this node",
        "oomScoreAdj has no effect on this node",
    ]


def test_a_missing_directory_of_drop_ins_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="missing is not a directory"):
        read_kubelet_configuration(None, tmp_path / "missing")
