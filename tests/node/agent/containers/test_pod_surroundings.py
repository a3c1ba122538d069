"""The surroundings of a container: names, resolver, service links, hooks, and paths of the machine."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from tests.node.agent.conftest import NODE, NodeInMemory, RealNode

from pinnace.model.objects import Object
from pinnace.node.agent.volumes.host_volumes import MountFailed, check_host_path


async def test_names_and_resolver_are_as_the_pod_says(node: RealNode) -> None:
    service = {"metadata": {"name": "db", "namespace": "default"}, "spec": {"ports": [{"port": 5432}]}}
    made = await node.client.create({"apiVersion": "v1", "kind": "Service", **service})
    await node.create(
        "named",
        "hostname; hostname -f; grep -c 'backend' /etc/hosts; cat /etc/resolv.conf; echo $DB_SERVICE_HOST; sleep 1000",
        hostname="web",
        subdomain="front",
        hostAliases=[{"ip": "192.0.2.1", "hostnames": ["backend"]}],
        dnsPolicy="None",
        dnsConfig={
            "nameservers": ["192.0.2.53"],
            "searches": ["example.com"],
            "options": [{"name": "ndots", "value": "2"}],
        },
        restartPolicy="Never",
    )
    expected = ["web", "web.front.default.svc.cluster.local", "1"]
    resolver = ["nameserver 192.0.2.53", "search example.com", "options ndots:2"]
    await node.until_ready("named")

    async def has_printed_all() -> bool:
        return str(made["spec"]["clusterIP"]) in (await node.logs("named")).splitlines()

    await node.until(has_printed_all)
    lines = (await node.logs("named")).splitlines()
    assert lines[:3] == expected
    assert set(resolver) <= set(lines)


async def test_a_pod_in_the_network_of_the_node_has_its_name(node: RealNode) -> None:
    command = "hostname; cat /etc/hostname; echo $HOSTNAME"
    await node.create("host", command, hostNetwork=True, hostname="own", restartPolicy="Never")
    await node.until_phase("host", "Succeeded")
    assert (await node.logs("host")).split() == [NODE] * 3


@pytest.mark.parametrize(
    ("spec", "name"),
    [
        ({"hostnameOverride": "over.example.com", "hostname": "web", "subdomain": "front"}, "over.example.com"),
        ({"setHostnameAsFQDN": True, "hostname": "web", "subdomain": "front"}, "web.front.default.svc.cluster.local"),
        ({"setHostnameAsFQDN": True, "hostname": "web"}, "web"),
    ],
    ids=["override", "full name", "no domain"],
)
async def test_the_name_that_the_kernel_shows_is_the_one_that_the_pod_states(
    node: RealNode, spec: Object, name: str
) -> None:
    await node.create("named", "hostname; cat /etc/hostname; echo $HOSTNAME", restartPolicy="Never", **spec)
    await node.until_phase("named", "Succeeded")
    assert (await node.logs("named")).split() == [name] * 3


async def test_a_full_name_that_is_too_long_keeps_the_pod_waiting(memory_node: NodeInMemory) -> None:
    label = "n" * 40
    await memory_node.create("named", setHostnameAsFQDN=True, hostname=label, subdomain="front")
    text = (
        "Failed to construct FQDN from pod hostname and cluster domain, "
        f"FQDN {label}.front.default.svc.cluster.local is too long (64 is the max, 72 characters requested)"
    )
    await memory_node.until_event("named", text, reason="FailedCreatePodSandBox")


async def test_hooks_run_after_the_start_and_before_the_end(node: RealNode, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    hooks = {
        "postStart": {"exec": {"command": ["sh", "-c", "echo started >> /notes/log"]}},
        "preStop": {"exec": {"command": ["sh", "-c", "echo stopping >> /notes/log"]}},
    }
    await node.create(
        "hooked",
        "trap 'echo terminated >> /notes/log; exit 0' TERM; while :; do sleep 0.05; done",
        container={"lifecycle": hooks, "volumeMounts": [{"name": "notes", "mountPath": "/notes"}]},
        volumes=[{"name": "notes", "hostPath": {"path": str(tmp_path)}}],
    )
    await node.until_ready("hooked")
    await node.delete("hooked")
    assert (tmp_path / "log").read_text().split() == ["started", "stopping", "terminated"]


@pytest.fixture
def places(tmp_path: Path) -> Path:
    (tmp_path / "directory").mkdir()
    (tmp_path / "file").write_text("")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "socket"))
    return tmp_path


@pytest.mark.parametrize(
    ("type_", "good", "bad"),
    [
        ("", "directory", ""),
        ("Directory", "directory", "file"),
        ("DirectoryOrCreate", "made/deep", "file"),
        ("File", "file", "directory"),
        ("FileOrCreate", "made-file", "directory"),
        ("Socket", "socket", "file"),
        ("CharDevice", "/dev/null", "file"),
        ("BlockDevice", "", "/dev/null"),
    ],
)
def test_a_host_path_is_of_its_type(places: Path, type_: str, good: str, bad: str) -> None:
    if good:
        result = check_host_path("volume", {"path": str(places / good), "type": type_})
        assert result == str(places / good)
        assert Path(result).exists()
    if bad:
        with pytest.raises(MountFailed, match="hostPath type check failed"):
            check_host_path("volume", {"path": str(places / bad), "type": type_})
