"""A whole cluster in this process: born once, born again on what is stored, and gone without a trace."""

from __future__ import annotations

import socket
import tempfile
from pathlib import Path

import pytest
from tests.server.in_process import CONFIG_MAPS, InProcess, config_map, control_plane

from pinnace.client.kubeconfig_files import ClusterAccess
from pinnace.cluster import cluster as clusters
from pinnace.cluster.cluster import CannotListen, RunningCluster, running
from pinnace.cluster.settings import Settings
from pinnace.serving.discovery.version import version_of
from pinnace.store.memory import MemoryStore
from pinnace.store.store import Damaged, Locked


async def test_a_new_cluster_has_what_every_cluster_has() -> None:
    async with control_plane() as api:
        namespaces = set((await api.get("/api/v1/namespaces")).names)
        assert {"default", "kube-system", "kube-public", "kube-node-lease"} <= namespaces
        service = (await api.get("/api/v1/namespaces/default/services/kubernetes")).json
        assert service["spec"]["clusterIP"] == "10.96.0.1"
        assert "cluster-admin" in (await api.get("/apis/rbac.authorization.k8s.io/v1/clusterroles")).names
        priorities = (await api.get("/apis/scheduling.k8s.io/v1/priorityclasses")).names
        assert {"system-cluster-critical", "system-node-critical"} <= set(priorities)


async def test_a_cluster_that_is_born_again_leaves_what_was_changed() -> None:
    store = MemoryStore()
    role = "/apis/rbac.authorization.k8s.io/v1/clusterroles/view"
    async with control_plane(store) as first:
        await first.patch(role, {"metadata": {"labels": {"mine": "yes"}}})
        before = (await first.get(role)).json
        async with control_plane(store) as second:
            assert (await second.get(role)).json == before


async def test_a_cluster_on_disk_goes_on_where_it_stopped(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path / "data")
    async with running(settings) as cluster:
        made = await InProcess(cluster.plane).made(CONFIG_MAPS, config_map())
        token, authority = cluster.access.token, cluster.access.ca
    async with running(settings) as cluster:
        assert (cluster.access.token, cluster.access.ca) == (token, authority)
        assert (await InProcess(cluster.plane).get(f"{CONFIG_MAPS}/settings")).json == made
        again = await InProcess(cluster.plane).made(CONFIG_MAPS, config_map("again"))
        assert int(again["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])
    assert (tmp_path / "data").stat().st_mode & 0o077 == 0


async def test_work_before_readiness_is_done_when_the_cluster_is_ready() -> None:
    reported: list[ClusterAccess] = []
    async with running(Settings(), before_ready=reported.append) as cluster:
        assert reported == [cluster.access]
        assert (await InProcess(cluster.plane).get("/readyz")).body == b"ok"


async def test_a_cluster_is_ready_once_its_simulated_nodes_are() -> None:
    reported: list[ClusterAccess] = []
    async with running(Settings(nodes=10), before_ready=reported.append) as cluster:
        nodes = (await InProcess(cluster.plane).get("/api/v1/nodes")).json["items"]
        assert reported == [cluster.access]
        assert (await InProcess(cluster.plane).get("/readyz")).body == b"ok"
    assert len(nodes) == 10
    assert len({node["spec"]["podCIDR"] for node in nodes}) == 10
    assert all(
        {"type": "Ready", "status": "True"}.items() <= node["status"]["conditions"][-1].items() for node in nodes
    )


async def test_simulated_nodes_without_controllers_need_no_range_of_addresses() -> None:
    async with running(Settings(nodes=2, controllers=False)) as cluster:
        assert len((await InProcess(cluster.plane).get("/api/v1/nodes")).json["items"]) == 2


async def test_a_cluster_starts_although_its_simulated_nodes_are_refused(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(clusters, "REGISTER_SECONDS", 0.0)
    async with running(Settings(nodes=3)) as cluster:
        assert (await InProcess(cluster.plane).get("/readyz")).body == b"ok"
    assert "3 simulated nodes are not registered" in caplog.text


async def test_a_cluster_in_memory_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    async with running(Settings()):
        assert list(tmp_path.iterdir()) != []
    assert list(tmp_path.iterdir()) == []


async def test_a_cluster_that_cannot_start_says_why_and_lets_go(tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(CannotListen, match=f"cannot listen on 127.0.0.1:{port}"):
            await _start(Settings(data_dir=tmp_path, port=port))
    async with running(settings):
        with pytest.raises(Locked):
            await _start(settings)
    (tmp_path / "state.db").write_bytes(b"junk" * 5000)
    with pytest.raises(Damaged):
        await _start(settings)


async def _start(settings: Settings) -> RunningCluster:
    async with running(settings) as cluster:
        return cluster


def test_the_version_names_the_minor_and_the_maker() -> None:
    version = version_of("1.31")
    assert (version["major"], version["minor"], version["minCompatibilityMinor"]) == ("1", "31", "30")
    assert version["gitVersion"].startswith("v1.31.0+pinnace.")
    assert "/" in version["platform"]
