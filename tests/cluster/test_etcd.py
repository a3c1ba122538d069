"""Clusters whose objects are in etcd, alone and several on one etcd."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.server.in_process import CONFIG_MAPS, InProcess, config_map
from tests.store.etcd.processes import EtcdMember, etcd_program

from pinnace.cluster.cluster import running
from pinnace.cluster.settings import Settings
from pinnace.store.etcd.settings import EtcdSettings


@pytest.fixture
def member(tmp_path: Path) -> Iterator[EtcdMember]:
    member = EtcdMember(tmp_path / "etcd")
    member.start()
    yield member
    member.stop()


def settings_of(member: EtcdMember, data: Path) -> Settings:
    return Settings(
        data_dir=data, etcd=EtcdSettings(endpoints=(("127.0.0.1", member.port),)), controllers=False, scheduler=False
    )


def etcdctl(member: EtcdMember, *arguments: str) -> str:
    command = [str(etcd_program("etcdctl")), f"--endpoints=127.0.0.1:{member.port}", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


async def test_a_cluster_in_etcd_goes_on_where_it_stopped_and_its_keys_are_readable(
    member: EtcdMember, tmp_path: Path
) -> None:
    settings = settings_of(member, tmp_path / "data")
    async with running(settings) as cluster:
        api = InProcess(cluster.plane)
        made = await api.made(CONFIG_MAPS, config_map())
        assert (await api.get("/readyz")).body == b"ok"
    async with running(settings) as cluster:
        api = InProcess(cluster.plane)
        assert (await api.get(f"{CONFIG_MAPS}/settings")).json == made
        again = await api.made(CONFIG_MAPS, config_map("again"))
        assert int(again["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])
    assert not (tmp_path / "data" / "state.db").exists()
    found = etcdctl(member, "get", "--prefix", "/registry/core/configmaps/default/", "--keys-only").split()
    assert found == [f"/registry/core/configmaps/default/{name}" for name in ("again", "settings")]


async def test_events_have_a_lease_in_etcd(member: EtcdMember, tmp_path: Path) -> None:
    event = {
        "metadata": {"name": "e"},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": "default"},
        "reason": "Tested",
        "message": "a test",
        "type": "Normal",
    }
    async with running(settings_of(member, tmp_path / "data")) as cluster:
        await InProcess(cluster.plane).made("/api/v1/namespaces/default/events", event)
    leases = [line for line in etcdctl(member, "lease", "list").split() if len(line) == 16]
    assert len(leases) == 1
    held = etcdctl(member, "lease", "timetolive", leases[0], "--keys")
    assert "/registry/core/events/default/e" in held and "granted with TTL(37" in held
