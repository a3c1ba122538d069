"""Clusters whose objects are in etcd, alone and several on one etcd."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.server.in_process import CONFIG_MAPS, InProcess, config_map
from tests.store.etcd.deadlines import short_calls
from tests.store.etcd.processes import EtcdMember, running_member
from tests.store.etcd.proxy import Proxy

from pinnace.cluster.cluster import running
from pinnace.cluster.settings import Settings
from pinnace.store.etcd.settings import EtcdSettings


@pytest.fixture
def member(tmp_path: Path) -> Iterator[EtcdMember]:
    with running_member(tmp_path / "etcd") as member:
        yield member


def settings_of(member: EtcdMember | Proxy, data: Path) -> Settings:
    return Settings(
        data_dir=data, etcd=EtcdSettings(endpoints=(("127.0.0.1", member.port),)), controllers=False, scheduler=False
    )


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
    result = member.control("get", "--prefix", "/registry/core/configmaps/default/", "--keys-only").split()
    assert result == [f"/registry/core/configmaps/default/{name}" for name in ("again", "settings")]


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
    leases = [line for line in member.control("lease", "list").split() if len(line) == 16]
    held = [member.control("lease", "timetolive", lease, "--keys") for lease in leases]
    (of_event,) = (text for text in held if "/registry/core/events/default/e" in text)
    assert "granted with TTL(37" in of_event


async def test_while_etcd_is_gone_requests_fail_with_the_reason_and_readyz_names_it(
    member: EtcdMember, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pinnace.process.supervisor.RECOVERY_SECONDS", 0.5)
    async with running(settings_of(member, tmp_path / "data")) as cluster:
        api = InProcess(cluster.plane)
        made = await api.made(CONFIG_MAPS, config_map("before"))
        with short_calls():
            member.kill()
            refused = await api.post(CONFIG_MAPS, config_map("during"))
            assert refused.status == 500 and "did not answer a write" in refused.message
            unread = await api.get(f"{CONFIG_MAPS}/before")
            assert unread.status == 500 and "cannot be read" in unread.message
            stale = await api.get(f"{CONFIG_MAPS}/before?resourceVersion=0")
            assert stale.json == made
            ready = await api.get("/readyz?verbose")
            assert ready.status == 500 and b"[-]etcd failed" in ready.body
        member.start()
        async with asyncio.timeout(60):
            while (await api.get("/readyz")).status != 200:
                await asyncio.sleep(0.05)
        assert (await api.get(f"{CONFIG_MAPS}/before")).json == made
        await api.made(CONFIG_MAPS, config_map("after"))


async def test_a_watch_over_compacted_history_ends_with_410_and_the_next_one_goes_on(
    member: EtcdMember, tmp_path: Path
) -> None:
    proxy = Proxy(member.port)
    await proxy.start()
    async with running(settings_of(proxy, tmp_path / "one")) as cluster:
        api = InProcess(cluster.plane)
        await api.made(CONFIG_MAPS, config_map("old"))
        since = (await api.get(CONFIG_MAPS)).version
        watch = await api.watch(f"{CONFIG_MAPS}?watch=1&resourceVersion={since}")
        proxy.cut()
        async with running(settings_of(member, tmp_path / "two")) as other:
            there = InProcess(other.plane)
            await there.made(CONFIG_MAPS, config_map("new"))
            await there.delete(f"{CONFIG_MAPS}/old")
            await other.plane.store.compact(other.plane.store.revision)
            proxy.mend()
            async with asyncio.timeout(60):
                while cluster.plane.store.compacted < other.plane.store.compacted:
                    await asyncio.sleep(0.02)
            (event,) = await watch.rest()
            assert event["type"] == "ERROR" and event["object"]["code"] == 410
            listed = await api.get(CONFIG_MAPS)
            assert "new" in listed.names and "old" not in listed.names
            watch = await api.watch(f"{CONFIG_MAPS}?watch=1&resourceVersion={listed.version}")
            await there.made(CONFIG_MAPS, config_map("newest"))
            assert (await watch.next())["object"]["metadata"]["name"] == "newest"
            watch.close()
    await proxy.stop()
